//! Neighbourhood collectives (MPI-5.0 §8.6), on communicators with a topology. They have no `MPI_IN_PLACE`.

use crate::call::{Call, Kind};
use crate::coll::neighbor;
use crate::collective::{Blocks, Data, Operated, Packed, PackedBlocks, PerRank, Plan, Types, buffer, buffers, times};
use crate::comm::Comm;
use crate::consts::*;
use crate::error::{Error, Result};
use crate::link::Channel;
use crate::topology::Around;
use engine::Buffer;
use std::sync::Arc;

/// The neighbours of this process.
///
/// # Errors
/// `MPI_ERR_TOPOLOGY` where the communicator has none.
pub fn around(comm: &Comm) -> Result<Around> {
    let topology = comm.topology.get().ok_or_else(|| Error::new(MPI_ERR_TOPOLOGY, "the communicator has no topology"))?;
    Ok(topology.around(comm.rank))
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
    Ok(Allgather { around: around.into(), mine, all })
}

impl Plan for Allgather {
    fn call(&self) -> Call {
        Call::new(Kind::NeighborAllgather)
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
    Ok(Allgatherv { around: around(comm)?.into(), mine: buffer(&send)?, all: buffers(&recv)? })
}

impl Plan for Allgatherv {
    fn call(&self) -> Call {
        Call::new(Kind::NeighborAllgatherv)
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
    Ok(Alltoall { around: around.into(), from, into })
}

impl Plan for Alltoall {
    fn call(&self) -> Call {
        Call::new(Kind::NeighborAlltoall)
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
    Ok(Alltoallv { kind, around: around(comm)?.into(), from: buffers(&send)?, into: buffers(&recv)? })
}

impl Plan for Alltoallv {
    fn call(&self) -> Call {
        Call::new(self.kind)
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
