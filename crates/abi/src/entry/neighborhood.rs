//! Neighbourhood collectives (MPI-5.0 §8.6): each is a plan, as in `coll`.

use super::coll::{alike, data, each};
use crate::args::Number;
use mpi::collective::{Blocks, Plan};
use mpi::comm::Comm as Communicator;
use mpi::error::Result;
use mpi::handle::*;
use mpi::neighborhood::{self, around};
use std::ffi::c_void;

unsafe fn incoming<N: Number, D: Number>(comm: &Communicator, start: *const c_void, counts: *const N, displs: *const D, datatype: Datatype) -> Result<Blocks> {
    alike(around(comm)?.indegree(), start, counts, displs, datatype)
}

unsafe fn outgoing<N: Number, D: Number>(comm: &Communicator, start: *const c_void, counts: *const N, displs: *const D, datatype: Datatype) -> Result<Blocks> {
    alike(around(comm)?.outdegree(), start, counts, displs, datatype)
}

unsafe fn incoming_mixed<N: Number>(
    comm: &Communicator,
    start: *const c_void,
    counts: *const N,
    displs: *const isize,
    datatypes: *const Datatype,
) -> Result<Blocks> {
    each(around(comm)?.indegree(), start, counts, displs, datatypes)
}

unsafe fn outgoing_mixed<N: Number>(
    comm: &Communicator,
    start: *const c_void,
    counts: *const N,
    displs: *const isize,
    datatypes: *const Datatype,
) -> Result<Blocks> {
    each(around(comm)?.outdegree(), start, counts, displs, datatypes)
}

pub unsafe fn MPI_Neighbor_allgather_plan<N: Number>(
    c: &'static Communicator,
    sendbuf: *const c_void,
    sendcount: N,
    sendtype: Datatype,
    recvbuf: *mut c_void,
    recvcount: N,
    recvtype: Datatype,
) -> Result<impl Plan> {
    neighborhood::allgather(c, data(sendbuf, sendcount, sendtype), data(recvbuf, recvcount, recvtype))
}

pub unsafe fn MPI_Neighbor_allgatherv_plan<N: Number, D: Number>(
    c: &'static Communicator,
    sendbuf: *const c_void,
    sendcount: N,
    sendtype: Datatype,
    recvbuf: *mut c_void,
    recvcounts: *const N,
    displs: *const D,
    recvtype: Datatype,
) -> Result<impl Plan> {
    neighborhood::allgatherv(c, data(sendbuf, sendcount, sendtype), incoming(c, recvbuf, recvcounts, displs, recvtype)?)
}

pub unsafe fn MPI_Neighbor_alltoall_plan<N: Number>(
    c: &'static Communicator,
    sendbuf: *const c_void,
    sendcount: N,
    sendtype: Datatype,
    recvbuf: *mut c_void,
    recvcount: N,
    recvtype: Datatype,
) -> Result<impl Plan> {
    neighborhood::alltoall(c, data(sendbuf, sendcount, sendtype), data(recvbuf, recvcount, recvtype))
}

pub unsafe fn MPI_Neighbor_alltoallv_plan<N: Number, D: Number>(
    c: &'static Communicator,
    sendbuf: *const c_void,
    sendcounts: *const N,
    sdispls: *const D,
    sendtype: Datatype,
    recvbuf: *mut c_void,
    recvcounts: *const N,
    rdispls: *const D,
    recvtype: Datatype,
) -> Result<impl Plan> {
    neighborhood::alltoallv(c, outgoing(c, sendbuf, sendcounts, sdispls, sendtype)?, incoming(c, recvbuf, recvcounts, rdispls, recvtype)?)
}

pub unsafe fn MPI_Neighbor_alltoallw_plan<N: Number>(
    c: &'static Communicator,
    sendbuf: *const c_void,
    sendcounts: *const N,
    sdispls: *const isize,
    sendtypes: *const Datatype,
    recvbuf: *mut c_void,
    recvcounts: *const N,
    rdispls: *const isize,
    recvtypes: *const Datatype,
) -> Result<impl Plan> {
    neighborhood::alltoallv(c, outgoing_mixed(c, sendbuf, sendcounts, sdispls, sendtypes)?, incoming_mixed(c, recvbuf, recvcounts, rdispls, recvtypes)?)
}
