//! Neighbourhood collectives (MPI-5.0 §8.6), on communicators with a topology. They have no `MPI_IN_PLACE`.

mod shared;

pub use shared::longest_block;

use crate::call::{Call, Kind};
use crate::coll::{Tuning, neighbor};
use crate::collective::{Blocks, Data, Operated, Packed, PackedBlocks, PerRank, Plan, Types, buffer, buffers, longest_part, times};
use crate::comm::Comm;
use crate::consts::*;
use crate::error::{Error, Result};
use crate::link::Channel;
use crate::topology::Around;
use crate::turn::Turn;
use engine::Buffer;
use std::sync::Arc;

/// The neighbours of this process.
///
/// # Errors
/// `MPI_ERR_TOPOLOGY` where the communicator has none.
pub fn around(comm: &Comm) -> Result<&Arc<Around>> {
    let topology = comm.topology.get().ok_or_else(|| Error::new(MPI_ERR_TOPOLOGY, "the communicator has no topology"))?;
    Ok(comm.around.get_or_init(|| topology.around(comm.rank).into()))
}

/// Bytes that any rank brings at most through memory that all share: none knows what others bring.
fn longest(kind: Kind, comm: &Comm) -> Option<usize> {
    (comm.size() > 1).then(|| longest_part(kind, 0, comm.size() as usize))
}

/// Equal blocks of `all`, one for each of `degree` sources.
fn each_of(all: &mut [u8], degree: usize) -> PerRank<&mut [u8]> {
    let bytes = all.len() / degree.max(1);
    if bytes == 0 { (0..degree).map(|_| <&mut [u8]>::default()).collect() } else { all.chunks_exact_mut(bytes).collect() }
}

struct Allgather {
    around: Arc<Around>,
    mine: Buffer,
    all: Buffer,
}

/// `MPI_Neighbor_allgather`.
pub fn allgather(comm: &Comm, send: Data, recv: Data) -> Result<impl Plan + use<>> {
    let around = around(comm)?;
    let (mine, all) = (buffer(&send)?, buffer(&times(&recv, around.indegree())?)?);
    Ok(Allgather { around: around.clone(), mine, all })
}

impl Plan for Allgather {
    fn call(&self) -> Call {
        Call::new(Kind::NeighborAllgather)
    }

    fn longest(&self, comm: &Comm, _tuning: &Tuning) -> Option<usize> {
        longest(Kind::NeighborAllgather, comm)
    }

    fn share(&self, turn: &Turn) -> Result<()> {
        // What no neighbour sends stays as it is.
        let (mine, mut all) = (Packed::sent(&self.mine)?, Packed::of(&self.all, true, true)?);
        shared::allgather(turn, self.around.neighbors(), mine.read(), &mut each_of(all.write(), self.around.indegree()))?;
        all.unpack();
        Ok(())
    }

    fn run(&self, channel: Channel) -> impl Operated + use<> {
        // What no neighbour sends stays as it is.
        let (around, mine, all) = (self.around.clone(), Packed::sent(&self.mine), Packed::of(&self.all, true, true));
        async move {
            let (mine, mut all) = (mine?, all?);
            neighbor::neighbor_allgather(&channel, around.neighbors(), mine.read(), all.write()).await?;
            all.unpack();
            Ok(())
        }
    }
}

struct Allgatherv {
    around: Arc<Around>,
    mine: Buffer,
    all: PerRank<Buffer>,
}

/// `MPI_Neighbor_allgatherv`.
pub fn allgatherv(comm: &Comm, send: Data, recv: Blocks) -> Result<impl Plan + use<>> {
    Ok(Allgatherv { around: around(comm)?.clone(), mine: buffer(&send)?, all: buffers(&recv)? })
}

impl Plan for Allgatherv {
    fn call(&self) -> Call {
        Call::new(Kind::NeighborAllgatherv)
    }

    fn longest(&self, comm: &Comm, _tuning: &Tuning) -> Option<usize> {
        longest(Kind::NeighborAllgatherv, comm)
    }

    fn share(&self, turn: &Turn) -> Result<()> {
        let (mine, mut all) = (Packed::sent(&self.mine)?, PackedBlocks::of(&self.all, true, true)?);
        shared::allgather(turn, self.around.neighbors(), mine.read(), &mut all.write())?;
        all.unpack();
        Ok(())
    }

    fn run(&self, channel: Channel) -> impl Operated + use<> {
        let (around, mine, all) = (self.around.clone(), Packed::sent(&self.mine), PackedBlocks::of(&self.all, true, true));
        async move {
            let (mine, mut all) = (mine?, all?);
            neighbor::neighbor_allgatherv(&channel, around.neighbors(), mine.read(), &mut all.write()).await?;
            all.unpack();
            Ok(())
        }
    }
}

struct Alltoall {
    around: Arc<Around>,
    from: Buffer,
    into: Buffer,
}

/// `MPI_Neighbor_alltoall`.
pub fn alltoall(comm: &Comm, send: Data, recv: Data) -> Result<impl Plan + use<>> {
    let around = around(comm)?;
    let (from, into) = (buffer(&times(&send, around.outdegree())?)?, buffer(&times(&recv, around.indegree())?)?);
    Ok(Alltoall { around: around.clone(), from, into })
}

impl Plan for Alltoall {
    fn call(&self) -> Call {
        Call::new(Kind::NeighborAlltoall)
    }

    fn longest(&self, comm: &Comm, _tuning: &Tuning) -> Option<usize> {
        longest(Kind::NeighborAlltoall, comm)
    }

    fn share(&self, turn: &Turn) -> Result<()> {
        let (from, mut into) = (Packed::sent(&self.from)?, Packed::of(&self.into, true, true)?);
        let (from, bytes) = (from.read(), self.from.len() / self.around.outdegree().max(1));
        let block = |i: usize| &from[i * bytes..(i + 1) * bytes];
        shared::alltoall(turn, self.around.neighbors(), block, &mut each_of(into.write(), self.around.indegree()))?;
        into.unpack();
        Ok(())
    }

    fn run(&self, channel: Channel) -> impl Operated + use<> {
        let (around, from, into) = (self.around.clone(), Packed::sent(&self.from), Packed::of(&self.into, true, true));
        async move {
            let (from, mut into) = (from?, into?);
            neighbor::neighbor_alltoall(&channel, around.neighbors(), from.read(), into.write()).await?;
            into.unpack();
            Ok(())
        }
    }
}

struct Alltoallv {
    kind: Kind,
    around: Arc<Around>,
    from: PerRank<Buffer>,
    into: PerRank<Buffer>,
}

/// `MPI_Neighbor_alltoallv` and `MPI_Neighbor_alltoallw`.
pub fn alltoallv(comm: &Comm, send: Blocks, recv: Blocks) -> Result<impl Plan + use<>> {
    let kind = match recv.datatypes {
        Types::Same(_) => Kind::NeighborAlltoallv,
        Types::Each(_) => Kind::NeighborAlltoallw,
    };
    Ok(Alltoallv { kind, around: around(comm)?.clone(), from: buffers(&send)?, into: buffers(&recv)? })
}

impl Plan for Alltoallv {
    fn call(&self) -> Call {
        Call::new(self.kind)
    }

    fn longest(&self, comm: &Comm, _tuning: &Tuning) -> Option<usize> {
        longest(self.kind, comm)
    }

    fn share(&self, turn: &Turn) -> Result<()> {
        let (from, mut into) = (PackedBlocks::of(&self.from, true, false)?, PackedBlocks::of(&self.into, true, true)?);
        let from = from.read();
        shared::alltoall(turn, self.around.neighbors(), |i| from[i], &mut into.write())?;
        into.unpack();
        Ok(())
    }

    fn run(&self, channel: Channel) -> impl Operated + use<> {
        let around = self.around.clone();
        let (from, into) = (PackedBlocks::of(&self.from, true, false), PackedBlocks::of(&self.into, true, true));
        async move {
            let (from, mut into) = (from?, into?);
            neighbor::neighbor_alltoallv(&channel, around.neighbors(), &from.read(), &mut into.write()).await?;
            into.unpack();
            Ok(())
        }
    }
}
