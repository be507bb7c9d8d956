//! Bytes of the library's own, exchanged among all members of a communicator.
#![forbid(unsafe_code)]

use crate::call::{Call, Kind};
use crate::coll;
use crate::comm::Comm;
use crate::error::Result;
use crate::link::{Channel, block};
use crate::world;

/// The bytes of all ranks, in order, on every rank of an intracommunicator. All give the same number.
pub fn allgather_bytes(function: &'static str, comm: &Comm, mine: &[u8]) -> Result<Vec<u8>> {
    let mut all = coll::zeros(mine.len() * comm.size() as usize)?;
    let channel = Channel::new(comm, Call::named(function))?;
    block(comm.cell, function, coll::allgather(&channel, channel.tuning(), Some(mine), &mut all))?;
    Ok(all)
}

/// The bytes of all ranks, in order, on rank 0; nothing elsewhere.
pub fn gather_bytes(comm: &'static Comm, mine: &[u8]) -> Result<Vec<u8>> {
    let mut all = if comm.rank == 0 { coll::zeros(mine.len() * comm.size() as usize)? } else { Vec::new() };
    block(comm.cell, "MPI_Finalize", coll::gather(&Channel::new(comm, Call::new(Kind::Finalize))?, &world::get()?.tuning, Some(mine), &mut all, 0))?;
    Ok(all)
}

/// `outgoing[rank]` goes to `rank`; gives what came from each rank of an intracommunicator. Lengths may differ.
pub fn alltoall_bytes(function: &'static str, comm: &Comm, outgoing: &[Vec<u8>]) -> Result<Vec<Vec<u8>>> {
    let lengths: Vec<u8> = outgoing.iter().flat_map(|bytes| (bytes.len() as u64).to_ne_bytes()).collect();
    let mut incoming_lengths = coll::zeros(lengths.len())?;
    let (channel, second) = (Channel::new(comm, Call::named(function))?, Channel::new(comm, Call::named(function))?);
    block(comm.cell, function, async {
        coll::alltoall(&channel, channel.tuning(), Some(&lengths), &mut incoming_lengths).await?;
        let length = |bytes: &[u8]| u64::from_ne_bytes(bytes.try_into().expect("eight bytes")) as usize;
        let mut incoming = incoming_lengths.chunks_exact(8).map(|bytes| coll::zeros(length(bytes))).collect::<Result<Vec<Vec<u8>>>>()?;
        let send: Vec<&[u8]> = outgoing.iter().map(Vec::as_slice).collect();
        let mut recv: Vec<&mut [u8]> = incoming.iter_mut().map(Vec::as_mut_slice).collect();
        coll::alltoallv(&second, second.tuning(), Some(&send), &mut recv).await?;
        Ok(incoming)
    })
}
