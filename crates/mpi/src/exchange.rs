//! Bytes of the library's own, exchanged among all members of a communicator.
#![forbid(unsafe_code)]

use crate::call::{Call, Kind};
use crate::coll;
use crate::comm::Comm;
use crate::consts::MPI_ERR_NOT_SAME;
use crate::error::{Error, Result};
use crate::errors;
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

/// The error of the first rank that has one, on all ranks; the own one where there is one.
pub fn agree<T>(function: &'static str, comm: &Comm, mine: Result<T>) -> Result<T> {
    let class = mine.as_ref().err().map_or(0, |error| error.class);
    let all = allgather_bytes(function, comm, &class.to_ne_bytes())?;
    let value = mine?;
    let mut classes = all.chunks_exact(4).map(|bytes| i32::from_ne_bytes(bytes.try_into().expect("four bytes")));
    match classes.position(|class| class != 0) {
        Some(rank) => {
            let class = i32::from_ne_bytes(all[4 * rank..4 * rank + 4].try_into().expect("four bytes"));
            Err(Error::new(class, format!("rank {rank} of the communicator failed: {}", errors::message(class))))
        }
        None => Ok(value),
    }
}

/// Whether all ranks gave the same bytes.
///
/// # Errors
/// `MPI_ERR_NOT_SAME` on all ranks.
pub fn same(function: &'static str, comm: &Comm, what: &str, mine: &[u8]) -> Result<()> {
    let all = allgather_bytes(function, comm, mine)?;
    match all.chunks_exact(mine.len()).position(|theirs| theirs != &all[..mine.len()]) {
        Some(rank) => Err(Error::new(MPI_ERR_NOT_SAME, format!("{what} differs between rank 0 and rank {rank}"))),
        None => Ok(()),
    }
}
