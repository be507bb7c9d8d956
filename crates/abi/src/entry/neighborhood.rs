//! Neighbourhood collectives (MPI-5.0 §8.6): blocking, nonblocking and persistent forms of each.

use super::coll::{Number, again, alike, data, each, later, now};
use mpi::collective::Blocks;
use mpi::comm::Comm as Communicator;
use mpi::error::Result;
use mpi::handle::*;
use mpi::neighborhood::{self, around};
use std::ffi::{c_int, c_void};

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

pub unsafe fn MPI_Neighbor_allgather(
    sendbuf: *const c_void,
    sendcount: c_int,
    sendtype: Datatype,
    recvbuf: *mut c_void,
    recvcount: c_int,
    recvtype: Datatype,
    comm: Comm,
) -> c_int {
    now("MPI_Neighbor_allgather", comm, |c| neighborhood::allgather(c, data(sendbuf, sendcount, sendtype), data(recvbuf, recvcount, recvtype)))
}

pub unsafe fn MPI_Ineighbor_allgather(
    sendbuf: *const c_void,
    sendcount: c_int,
    sendtype: Datatype,
    recvbuf: *mut c_void,
    recvcount: c_int,
    recvtype: Datatype,
    comm: Comm,
    request: *mut Request,
) -> c_int {
    later("MPI_Ineighbor_allgather", comm, request, |c| neighborhood::allgather(c, data(sendbuf, sendcount, sendtype), data(recvbuf, recvcount, recvtype)))
}

pub unsafe fn MPI_Neighbor_allgather_init(
    sendbuf: *const c_void,
    sendcount: c_int,
    sendtype: Datatype,
    recvbuf: *mut c_void,
    recvcount: c_int,
    recvtype: Datatype,
    comm: Comm,
    info: Info,
    request: *mut Request,
) -> c_int {
    again("MPI_Neighbor_allgather_init", comm, info, request, |c| {
        neighborhood::allgather(c, data(sendbuf, sendcount, sendtype), data(recvbuf, recvcount, recvtype))
    })
}

pub unsafe fn MPI_Neighbor_allgather_c(
    sendbuf: *const c_void,
    sendcount: i64,
    sendtype: Datatype,
    recvbuf: *mut c_void,
    recvcount: i64,
    recvtype: Datatype,
    comm: Comm,
) -> c_int {
    now("MPI_Neighbor_allgather_c", comm, |c| neighborhood::allgather(c, data(sendbuf, sendcount, sendtype), data(recvbuf, recvcount, recvtype)))
}

pub unsafe fn MPI_Ineighbor_allgather_c(
    sendbuf: *const c_void,
    sendcount: i64,
    sendtype: Datatype,
    recvbuf: *mut c_void,
    recvcount: i64,
    recvtype: Datatype,
    comm: Comm,
    request: *mut Request,
) -> c_int {
    later("MPI_Ineighbor_allgather_c", comm, request, |c| neighborhood::allgather(c, data(sendbuf, sendcount, sendtype), data(recvbuf, recvcount, recvtype)))
}

pub unsafe fn MPI_Neighbor_allgather_init_c(
    sendbuf: *const c_void,
    sendcount: i64,
    sendtype: Datatype,
    recvbuf: *mut c_void,
    recvcount: i64,
    recvtype: Datatype,
    comm: Comm,
    info: Info,
    request: *mut Request,
) -> c_int {
    again("MPI_Neighbor_allgather_init_c", comm, info, request, |c| {
        neighborhood::allgather(c, data(sendbuf, sendcount, sendtype), data(recvbuf, recvcount, recvtype))
    })
}

pub unsafe fn MPI_Neighbor_allgatherv(
    sendbuf: *const c_void,
    sendcount: c_int,
    sendtype: Datatype,
    recvbuf: *mut c_void,
    recvcounts: *const c_int,
    displs: *const c_int,
    recvtype: Datatype,
    comm: Comm,
) -> c_int {
    now("MPI_Neighbor_allgatherv", comm, |c| {
        neighborhood::allgatherv(c, data(sendbuf, sendcount, sendtype), incoming(c, recvbuf, recvcounts, displs, recvtype)?)
    })
}

pub unsafe fn MPI_Ineighbor_allgatherv(
    sendbuf: *const c_void,
    sendcount: c_int,
    sendtype: Datatype,
    recvbuf: *mut c_void,
    recvcounts: *const c_int,
    displs: *const c_int,
    recvtype: Datatype,
    comm: Comm,
    request: *mut Request,
) -> c_int {
    later("MPI_Ineighbor_allgatherv", comm, request, |c| {
        neighborhood::allgatherv(c, data(sendbuf, sendcount, sendtype), incoming(c, recvbuf, recvcounts, displs, recvtype)?)
    })
}

pub unsafe fn MPI_Neighbor_allgatherv_init(
    sendbuf: *const c_void,
    sendcount: c_int,
    sendtype: Datatype,
    recvbuf: *mut c_void,
    recvcounts: *const c_int,
    displs: *const c_int,
    recvtype: Datatype,
    comm: Comm,
    info: Info,
    request: *mut Request,
) -> c_int {
    again("MPI_Neighbor_allgatherv_init", comm, info, request, |c| {
        neighborhood::allgatherv(c, data(sendbuf, sendcount, sendtype), incoming(c, recvbuf, recvcounts, displs, recvtype)?)
    })
}

pub unsafe fn MPI_Neighbor_allgatherv_c(
    sendbuf: *const c_void,
    sendcount: i64,
    sendtype: Datatype,
    recvbuf: *mut c_void,
    recvcounts: *const i64,
    displs: *const isize,
    recvtype: Datatype,
    comm: Comm,
) -> c_int {
    now("MPI_Neighbor_allgatherv_c", comm, |c| {
        neighborhood::allgatherv(c, data(sendbuf, sendcount, sendtype), incoming(c, recvbuf, recvcounts, displs, recvtype)?)
    })
}

pub unsafe fn MPI_Ineighbor_allgatherv_c(
    sendbuf: *const c_void,
    sendcount: i64,
    sendtype: Datatype,
    recvbuf: *mut c_void,
    recvcounts: *const i64,
    displs: *const isize,
    recvtype: Datatype,
    comm: Comm,
    request: *mut Request,
) -> c_int {
    later("MPI_Ineighbor_allgatherv_c", comm, request, |c| {
        neighborhood::allgatherv(c, data(sendbuf, sendcount, sendtype), incoming(c, recvbuf, recvcounts, displs, recvtype)?)
    })
}

pub unsafe fn MPI_Neighbor_allgatherv_init_c(
    sendbuf: *const c_void,
    sendcount: i64,
    sendtype: Datatype,
    recvbuf: *mut c_void,
    recvcounts: *const i64,
    displs: *const isize,
    recvtype: Datatype,
    comm: Comm,
    info: Info,
    request: *mut Request,
) -> c_int {
    again("MPI_Neighbor_allgatherv_init_c", comm, info, request, |c| {
        neighborhood::allgatherv(c, data(sendbuf, sendcount, sendtype), incoming(c, recvbuf, recvcounts, displs, recvtype)?)
    })
}

pub unsafe fn MPI_Neighbor_alltoall(
    sendbuf: *const c_void,
    sendcount: c_int,
    sendtype: Datatype,
    recvbuf: *mut c_void,
    recvcount: c_int,
    recvtype: Datatype,
    comm: Comm,
) -> c_int {
    now("MPI_Neighbor_alltoall", comm, |c| neighborhood::alltoall(c, data(sendbuf, sendcount, sendtype), data(recvbuf, recvcount, recvtype)))
}

pub unsafe fn MPI_Ineighbor_alltoall(
    sendbuf: *const c_void,
    sendcount: c_int,
    sendtype: Datatype,
    recvbuf: *mut c_void,
    recvcount: c_int,
    recvtype: Datatype,
    comm: Comm,
    request: *mut Request,
) -> c_int {
    later("MPI_Ineighbor_alltoall", comm, request, |c| neighborhood::alltoall(c, data(sendbuf, sendcount, sendtype), data(recvbuf, recvcount, recvtype)))
}

pub unsafe fn MPI_Neighbor_alltoall_init(
    sendbuf: *const c_void,
    sendcount: c_int,
    sendtype: Datatype,
    recvbuf: *mut c_void,
    recvcount: c_int,
    recvtype: Datatype,
    comm: Comm,
    info: Info,
    request: *mut Request,
) -> c_int {
    again("MPI_Neighbor_alltoall_init", comm, info, request, |c| {
        neighborhood::alltoall(c, data(sendbuf, sendcount, sendtype), data(recvbuf, recvcount, recvtype))
    })
}

pub unsafe fn MPI_Neighbor_alltoall_c(
    sendbuf: *const c_void,
    sendcount: i64,
    sendtype: Datatype,
    recvbuf: *mut c_void,
    recvcount: i64,
    recvtype: Datatype,
    comm: Comm,
) -> c_int {
    now("MPI_Neighbor_alltoall_c", comm, |c| neighborhood::alltoall(c, data(sendbuf, sendcount, sendtype), data(recvbuf, recvcount, recvtype)))
}

pub unsafe fn MPI_Ineighbor_alltoall_c(
    sendbuf: *const c_void,
    sendcount: i64,
    sendtype: Datatype,
    recvbuf: *mut c_void,
    recvcount: i64,
    recvtype: Datatype,
    comm: Comm,
    request: *mut Request,
) -> c_int {
    later("MPI_Ineighbor_alltoall_c", comm, request, |c| neighborhood::alltoall(c, data(sendbuf, sendcount, sendtype), data(recvbuf, recvcount, recvtype)))
}

pub unsafe fn MPI_Neighbor_alltoall_init_c(
    sendbuf: *const c_void,
    sendcount: i64,
    sendtype: Datatype,
    recvbuf: *mut c_void,
    recvcount: i64,
    recvtype: Datatype,
    comm: Comm,
    info: Info,
    request: *mut Request,
) -> c_int {
    again("MPI_Neighbor_alltoall_init_c", comm, info, request, |c| {
        neighborhood::alltoall(c, data(sendbuf, sendcount, sendtype), data(recvbuf, recvcount, recvtype))
    })
}

pub unsafe fn MPI_Neighbor_alltoallv(
    sendbuf: *const c_void,
    sendcounts: *const c_int,
    sdispls: *const c_int,
    sendtype: Datatype,
    recvbuf: *mut c_void,
    recvcounts: *const c_int,
    rdispls: *const c_int,
    recvtype: Datatype,
    comm: Comm,
) -> c_int {
    now("MPI_Neighbor_alltoallv", comm, |c| {
        neighborhood::alltoallv(c, outgoing(c, sendbuf, sendcounts, sdispls, sendtype)?, incoming(c, recvbuf, recvcounts, rdispls, recvtype)?)
    })
}

pub unsafe fn MPI_Ineighbor_alltoallv(
    sendbuf: *const c_void,
    sendcounts: *const c_int,
    sdispls: *const c_int,
    sendtype: Datatype,
    recvbuf: *mut c_void,
    recvcounts: *const c_int,
    rdispls: *const c_int,
    recvtype: Datatype,
    comm: Comm,
    request: *mut Request,
) -> c_int {
    later("MPI_Ineighbor_alltoallv", comm, request, |c| {
        neighborhood::alltoallv(c, outgoing(c, sendbuf, sendcounts, sdispls, sendtype)?, incoming(c, recvbuf, recvcounts, rdispls, recvtype)?)
    })
}

pub unsafe fn MPI_Neighbor_alltoallv_init(
    sendbuf: *const c_void,
    sendcounts: *const c_int,
    sdispls: *const c_int,
    sendtype: Datatype,
    recvbuf: *mut c_void,
    recvcounts: *const c_int,
    rdispls: *const c_int,
    recvtype: Datatype,
    comm: Comm,
    info: Info,
    request: *mut Request,
) -> c_int {
    again("MPI_Neighbor_alltoallv_init", comm, info, request, |c| {
        neighborhood::alltoallv(c, outgoing(c, sendbuf, sendcounts, sdispls, sendtype)?, incoming(c, recvbuf, recvcounts, rdispls, recvtype)?)
    })
}

pub unsafe fn MPI_Neighbor_alltoallv_c(
    sendbuf: *const c_void,
    sendcounts: *const i64,
    sdispls: *const isize,
    sendtype: Datatype,
    recvbuf: *mut c_void,
    recvcounts: *const i64,
    rdispls: *const isize,
    recvtype: Datatype,
    comm: Comm,
) -> c_int {
    now("MPI_Neighbor_alltoallv_c", comm, |c| {
        neighborhood::alltoallv(c, outgoing(c, sendbuf, sendcounts, sdispls, sendtype)?, incoming(c, recvbuf, recvcounts, rdispls, recvtype)?)
    })
}

pub unsafe fn MPI_Ineighbor_alltoallv_c(
    sendbuf: *const c_void,
    sendcounts: *const i64,
    sdispls: *const isize,
    sendtype: Datatype,
    recvbuf: *mut c_void,
    recvcounts: *const i64,
    rdispls: *const isize,
    recvtype: Datatype,
    comm: Comm,
    request: *mut Request,
) -> c_int {
    later("MPI_Ineighbor_alltoallv_c", comm, request, |c| {
        neighborhood::alltoallv(c, outgoing(c, sendbuf, sendcounts, sdispls, sendtype)?, incoming(c, recvbuf, recvcounts, rdispls, recvtype)?)
    })
}

pub unsafe fn MPI_Neighbor_alltoallv_init_c(
    sendbuf: *const c_void,
    sendcounts: *const i64,
    sdispls: *const isize,
    sendtype: Datatype,
    recvbuf: *mut c_void,
    recvcounts: *const i64,
    rdispls: *const isize,
    recvtype: Datatype,
    comm: Comm,
    info: Info,
    request: *mut Request,
) -> c_int {
    again("MPI_Neighbor_alltoallv_init_c", comm, info, request, |c| {
        neighborhood::alltoallv(c, outgoing(c, sendbuf, sendcounts, sdispls, sendtype)?, incoming(c, recvbuf, recvcounts, rdispls, recvtype)?)
    })
}

pub unsafe fn MPI_Neighbor_alltoallw(
    sendbuf: *const c_void,
    sendcounts: *const c_int,
    sdispls: *const isize,
    sendtypes: *const Datatype,
    recvbuf: *mut c_void,
    recvcounts: *const c_int,
    rdispls: *const isize,
    recvtypes: *const Datatype,
    comm: Comm,
) -> c_int {
    now("MPI_Neighbor_alltoallw", comm, |c| {
        neighborhood::alltoallv(c, outgoing_mixed(c, sendbuf, sendcounts, sdispls, sendtypes)?, incoming_mixed(c, recvbuf, recvcounts, rdispls, recvtypes)?)
    })
}

pub unsafe fn MPI_Ineighbor_alltoallw(
    sendbuf: *const c_void,
    sendcounts: *const c_int,
    sdispls: *const isize,
    sendtypes: *const Datatype,
    recvbuf: *mut c_void,
    recvcounts: *const c_int,
    rdispls: *const isize,
    recvtypes: *const Datatype,
    comm: Comm,
    request: *mut Request,
) -> c_int {
    later("MPI_Ineighbor_alltoallw", comm, request, |c| {
        neighborhood::alltoallv(c, outgoing_mixed(c, sendbuf, sendcounts, sdispls, sendtypes)?, incoming_mixed(c, recvbuf, recvcounts, rdispls, recvtypes)?)
    })
}

pub unsafe fn MPI_Neighbor_alltoallw_init(
    sendbuf: *const c_void,
    sendcounts: *const c_int,
    sdispls: *const isize,
    sendtypes: *const Datatype,
    recvbuf: *mut c_void,
    recvcounts: *const c_int,
    rdispls: *const isize,
    recvtypes: *const Datatype,
    comm: Comm,
    info: Info,
    request: *mut Request,
) -> c_int {
    again("MPI_Neighbor_alltoallw_init", comm, info, request, |c| {
        neighborhood::alltoallv(c, outgoing_mixed(c, sendbuf, sendcounts, sdispls, sendtypes)?, incoming_mixed(c, recvbuf, recvcounts, rdispls, recvtypes)?)
    })
}

pub unsafe fn MPI_Neighbor_alltoallw_c(
    sendbuf: *const c_void,
    sendcounts: *const i64,
    sdispls: *const isize,
    sendtypes: *const Datatype,
    recvbuf: *mut c_void,
    recvcounts: *const i64,
    rdispls: *const isize,
    recvtypes: *const Datatype,
    comm: Comm,
) -> c_int {
    now("MPI_Neighbor_alltoallw_c", comm, |c| {
        neighborhood::alltoallv(c, outgoing_mixed(c, sendbuf, sendcounts, sdispls, sendtypes)?, incoming_mixed(c, recvbuf, recvcounts, rdispls, recvtypes)?)
    })
}

pub unsafe fn MPI_Ineighbor_alltoallw_c(
    sendbuf: *const c_void,
    sendcounts: *const i64,
    sdispls: *const isize,
    sendtypes: *const Datatype,
    recvbuf: *mut c_void,
    recvcounts: *const i64,
    rdispls: *const isize,
    recvtypes: *const Datatype,
    comm: Comm,
    request: *mut Request,
) -> c_int {
    later("MPI_Ineighbor_alltoallw_c", comm, request, |c| {
        neighborhood::alltoallv(c, outgoing_mixed(c, sendbuf, sendcounts, sdispls, sendtypes)?, incoming_mixed(c, recvbuf, recvcounts, rdispls, recvtypes)?)
    })
}

pub unsafe fn MPI_Neighbor_alltoallw_init_c(
    sendbuf: *const c_void,
    sendcounts: *const i64,
    sdispls: *const isize,
    sendtypes: *const Datatype,
    recvbuf: *mut c_void,
    recvcounts: *const i64,
    rdispls: *const isize,
    recvtypes: *const Datatype,
    comm: Comm,
    info: Info,
    request: *mut Request,
) -> c_int {
    again("MPI_Neighbor_alltoallw_init_c", comm, info, request, |c| {
        neighborhood::alltoallv(c, outgoing_mixed(c, sendbuf, sendcounts, sdispls, sendtypes)?, incoming_mixed(c, recvbuf, recvcounts, rdispls, recvtypes)?)
    })
}
