//! Collective communication (MPI-5.0 chapter 6): blocking, nonblocking and persistent forms of each.

use crate::args::room;
use crate::finish_on;
use mpi::call::{Begun, Form, Kind};
use mpi::collective::{self, Blocks, Data, Plan, Types, in_place};
use mpi::comm::{self, Comm as Communicator};
use mpi::consts::*;
use mpi::error::{Error, Result};
use mpi::handle::*;
use mpi::link::Channel;
use mpi::{info as infos, request};
use std::ffi::{c_int, c_void};
use std::sync::Arc;

/// A count or displacement of either size.
pub(super) trait Number: Copy {
    fn wide(self) -> i64;
}
impl Number for c_int {
    fn wide(self) -> i64 {
        self as i64
    }
}
impl Number for i64 {
    fn wide(self) -> i64 {
        self
    }
}
impl Number for isize {
    fn wide(self) -> i64 {
        self as i64
    }
}

pub(super) fn data(start: *const c_void, count: impl Number, datatype: Datatype) -> Data {
    Data { start: start.cast_mut(), count: count.wide(), datatype }
}

pub(super) unsafe fn numbers<N: Number>(what: &str, from: *const N, count: usize) -> Result<Vec<i64>> {
    if from.is_null() && count > 0 {
        return Err(Error::new(MPI_ERR_ARG, format!("{what} is null")));
    }
    Ok((0..count).map(|at| (*from.add(at)).wide()).collect())
}

/// `n` blocks of one datatype.
pub(super) unsafe fn alike<N: Number, D: Number>(n: usize, start: *const c_void, counts: *const N, displs: *const D, datatype: Datatype) -> Result<Blocks> {
    Ok(Blocks {
        start: start.cast_mut(),
        counts: numbers("counts", counts, n)?,
        displacements: numbers("displs", displs, n)?,
        datatypes: Types::Same(datatype),
    })
}

/// `n` blocks of several datatypes.
pub(super) unsafe fn each<N: Number, D: Number>(
    n: usize,
    start: *const c_void,
    counts: *const N,
    displs: *const D,
    datatypes: *const Datatype,
) -> Result<Blocks> {
    if datatypes.is_null() && n > 0 {
        return Err(Error::new(MPI_ERR_TYPE, "the array of datatypes is null"));
    }
    let datatypes = Types::Each((0..n).map(|at| *datatypes.add(at)).collect());
    Ok(Blocks { start: start.cast_mut(), counts: numbers("counts", counts, n)?, displacements: numbers("displs", displs, n)?, datatypes })
}

fn peers(comm: &Communicator) -> usize {
    comm.peers().size() as usize
}

/// Blocks of one datatype, one for each peer.
unsafe fn blocks<N: Number, D: Number>(comm: &Communicator, start: *const c_void, counts: *const N, displs: *const D, datatype: Datatype) -> Result<Blocks> {
    alike(peers(comm), start, counts, displs, datatype)
}

/// Blocks of several datatypes, one for each peer.
unsafe fn mixed<N: Number, D: Number>(
    comm: &Communicator,
    start: *const c_void,
    counts: *const N,
    displs: *const D,
    datatypes: *const Datatype,
) -> Result<Blocks> {
    each(peers(comm), start, counts, displs, datatypes)
}

/// What matters at the root only.
fn at_root(comm: &Communicator, root: c_int, get: impl FnOnce() -> Result<Blocks>) -> Result<Option<Blocks>> {
    let here = if comm.remote.is_some() { root == MPI_ROOT } else { root == comm.rank as c_int };
    here.then(get).transpose()
}

fn not_in_place(start: *const c_void, get: impl FnOnce() -> Result<Blocks>) -> Result<Option<Blocks>> {
    (!in_place(start)).then(get).transpose()
}

/// Runs a collective to its end.
pub(super) fn now<P: Plan>(function: &'static str, comm: Comm, make: impl FnOnce(&'static Communicator) -> Result<P>) -> c_int {
    finish_on(comm, function, comm::find(comm).and_then(|c| collective::now(function, c, make(c))))
}

/// Starts a collective.
pub(super) unsafe fn later<P: Plan>(function: &'static str, comm: Comm, request: *mut Request, make: impl FnOnce(&'static Communicator) -> Result<P>) -> c_int {
    let made = comm::find(comm).and_then(|c| {
        room(request, "request")?;
        let plan = make(c)?;
        let operated = plan.run(Channel::lasting(c, c.calls.begin(plan.call().form(Form::Nonblocking)))?);
        request::start_task(Some(comm), Box::pin(async move { operated.await.map(|()| Status::EMPTY) }))
    });
    finish_on(comm, function, made.map(|r| *request = r))
}

/// Makes a collective that can be started again and again. All ranks make them in the same order, and that is what matches.
pub(super) unsafe fn again<P: Plan>(
    function: &'static str,
    comm: Comm,
    info: Info,
    request: *mut Request,
    make: impl FnOnce(&'static Communicator) -> Result<P>,
) -> c_int {
    let made = comm::find(comm).and_then(|c| {
        room(request, "request")?;
        infos::hints(info)?;
        let plan = make(c)?;
        let (shared, begun): (Arc<Communicator>, Begun) = (c.share(), c.calls.begin(plan.call().form(Form::Persistent)));
        let starter = move || {
            let operated = plan.run(Channel::lasting(&shared, begun)?);
            let task: request::Task = Box::pin(async move { operated.await.map(|()| Status::EMPTY) });
            Ok(task)
        };
        request::task_init(Some(comm), Box::new(starter))
    });
    finish_on(comm, function, made.map(|r| *request = r))
}

pub unsafe fn MPI_Barrier(comm: Comm) -> c_int {
    finish_on(comm, "MPI_Barrier", comm::find(comm).and_then(|c| collective::barrier(c, "MPI_Barrier", Kind::Barrier)))
}

pub unsafe fn MPI_Ibarrier(comm: Comm, request: *mut Request) -> c_int {
    later("MPI_Ibarrier", comm, request, collective::barrier_plan)
}

pub unsafe fn MPI_Barrier_init(comm: Comm, info: Info, request: *mut Request) -> c_int {
    again("MPI_Barrier_init", comm, info, request, collective::barrier_plan)
}

pub unsafe fn MPI_Reduce_local(inbuf: *const c_void, inoutbuf: *mut c_void, count: c_int, datatype: Datatype, op: Op) -> c_int {
    crate::finish("MPI_Reduce_local", collective::reduce_local(inbuf.cast_mut(), data(inoutbuf, count, datatype), op))
}

pub unsafe fn MPI_Reduce_local_c(inbuf: *const c_void, inoutbuf: *mut c_void, count: i64, datatype: Datatype, op: Op) -> c_int {
    crate::finish("MPI_Reduce_local_c", collective::reduce_local(inbuf.cast_mut(), data(inoutbuf, count, datatype), op))
}

pub unsafe fn MPI_Bcast(buffer: *mut c_void, count: c_int, datatype: Datatype, root: c_int, comm: Comm) -> c_int {
    now("MPI_Bcast", comm, |c| collective::bcast(c, data(buffer, count, datatype), root))
}

pub unsafe fn MPI_Ibcast(buffer: *mut c_void, count: c_int, datatype: Datatype, root: c_int, comm: Comm, request: *mut Request) -> c_int {
    later("MPI_Ibcast", comm, request, |c| collective::bcast(c, data(buffer, count, datatype), root))
}

pub unsafe fn MPI_Bcast_init(buffer: *mut c_void, count: c_int, datatype: Datatype, root: c_int, comm: Comm, info: Info, request: *mut Request) -> c_int {
    again("MPI_Bcast_init", comm, info, request, |c| collective::bcast(c, data(buffer, count, datatype), root))
}

pub unsafe fn MPI_Bcast_c(buffer: *mut c_void, count: i64, datatype: Datatype, root: c_int, comm: Comm) -> c_int {
    now("MPI_Bcast_c", comm, |c| collective::bcast(c, data(buffer, count, datatype), root))
}

pub unsafe fn MPI_Ibcast_c(buffer: *mut c_void, count: i64, datatype: Datatype, root: c_int, comm: Comm, request: *mut Request) -> c_int {
    later("MPI_Ibcast_c", comm, request, |c| collective::bcast(c, data(buffer, count, datatype), root))
}

pub unsafe fn MPI_Bcast_init_c(buffer: *mut c_void, count: i64, datatype: Datatype, root: c_int, comm: Comm, info: Info, request: *mut Request) -> c_int {
    again("MPI_Bcast_init_c", comm, info, request, |c| collective::bcast(c, data(buffer, count, datatype), root))
}

pub unsafe fn MPI_Gather(
    sendbuf: *const c_void,
    sendcount: c_int,
    sendtype: Datatype,
    recvbuf: *mut c_void,
    recvcount: c_int,
    recvtype: Datatype,
    root: c_int,
    comm: Comm,
) -> c_int {
    now("MPI_Gather", comm, |c| collective::gather(c, data(sendbuf, sendcount, sendtype), data(recvbuf, recvcount, recvtype), root))
}

pub unsafe fn MPI_Igather(
    sendbuf: *const c_void,
    sendcount: c_int,
    sendtype: Datatype,
    recvbuf: *mut c_void,
    recvcount: c_int,
    recvtype: Datatype,
    root: c_int,
    comm: Comm,
    request: *mut Request,
) -> c_int {
    later("MPI_Igather", comm, request, |c| collective::gather(c, data(sendbuf, sendcount, sendtype), data(recvbuf, recvcount, recvtype), root))
}

pub unsafe fn MPI_Gather_init(
    sendbuf: *const c_void,
    sendcount: c_int,
    sendtype: Datatype,
    recvbuf: *mut c_void,
    recvcount: c_int,
    recvtype: Datatype,
    root: c_int,
    comm: Comm,
    info: Info,
    request: *mut Request,
) -> c_int {
    again("MPI_Gather_init", comm, info, request, |c| collective::gather(c, data(sendbuf, sendcount, sendtype), data(recvbuf, recvcount, recvtype), root))
}

pub unsafe fn MPI_Gather_c(
    sendbuf: *const c_void,
    sendcount: i64,
    sendtype: Datatype,
    recvbuf: *mut c_void,
    recvcount: i64,
    recvtype: Datatype,
    root: c_int,
    comm: Comm,
) -> c_int {
    now("MPI_Gather_c", comm, |c| collective::gather(c, data(sendbuf, sendcount, sendtype), data(recvbuf, recvcount, recvtype), root))
}

pub unsafe fn MPI_Igather_c(
    sendbuf: *const c_void,
    sendcount: i64,
    sendtype: Datatype,
    recvbuf: *mut c_void,
    recvcount: i64,
    recvtype: Datatype,
    root: c_int,
    comm: Comm,
    request: *mut Request,
) -> c_int {
    later("MPI_Igather_c", comm, request, |c| collective::gather(c, data(sendbuf, sendcount, sendtype), data(recvbuf, recvcount, recvtype), root))
}

pub unsafe fn MPI_Gather_init_c(
    sendbuf: *const c_void,
    sendcount: i64,
    sendtype: Datatype,
    recvbuf: *mut c_void,
    recvcount: i64,
    recvtype: Datatype,
    root: c_int,
    comm: Comm,
    info: Info,
    request: *mut Request,
) -> c_int {
    again("MPI_Gather_init_c", comm, info, request, |c| collective::gather(c, data(sendbuf, sendcount, sendtype), data(recvbuf, recvcount, recvtype), root))
}

pub unsafe fn MPI_Gatherv(
    sendbuf: *const c_void,
    sendcount: c_int,
    sendtype: Datatype,
    recvbuf: *mut c_void,
    recvcounts: *const c_int,
    displs: *const c_int,
    recvtype: Datatype,
    root: c_int,
    comm: Comm,
) -> c_int {
    now("MPI_Gatherv", comm, |c| {
        collective::gatherv(c, data(sendbuf, sendcount, sendtype), at_root(c, root, || blocks(c, recvbuf, recvcounts, displs, recvtype))?, root)
    })
}

pub unsafe fn MPI_Igatherv(
    sendbuf: *const c_void,
    sendcount: c_int,
    sendtype: Datatype,
    recvbuf: *mut c_void,
    recvcounts: *const c_int,
    displs: *const c_int,
    recvtype: Datatype,
    root: c_int,
    comm: Comm,
    request: *mut Request,
) -> c_int {
    later("MPI_Igatherv", comm, request, |c| {
        collective::gatherv(c, data(sendbuf, sendcount, sendtype), at_root(c, root, || blocks(c, recvbuf, recvcounts, displs, recvtype))?, root)
    })
}

pub unsafe fn MPI_Gatherv_init(
    sendbuf: *const c_void,
    sendcount: c_int,
    sendtype: Datatype,
    recvbuf: *mut c_void,
    recvcounts: *const c_int,
    displs: *const c_int,
    recvtype: Datatype,
    root: c_int,
    comm: Comm,
    info: Info,
    request: *mut Request,
) -> c_int {
    again("MPI_Gatherv_init", comm, info, request, |c| {
        collective::gatherv(c, data(sendbuf, sendcount, sendtype), at_root(c, root, || blocks(c, recvbuf, recvcounts, displs, recvtype))?, root)
    })
}

pub unsafe fn MPI_Gatherv_c(
    sendbuf: *const c_void,
    sendcount: i64,
    sendtype: Datatype,
    recvbuf: *mut c_void,
    recvcounts: *const i64,
    displs: *const isize,
    recvtype: Datatype,
    root: c_int,
    comm: Comm,
) -> c_int {
    now("MPI_Gatherv_c", comm, |c| {
        collective::gatherv(c, data(sendbuf, sendcount, sendtype), at_root(c, root, || blocks(c, recvbuf, recvcounts, displs, recvtype))?, root)
    })
}

pub unsafe fn MPI_Igatherv_c(
    sendbuf: *const c_void,
    sendcount: i64,
    sendtype: Datatype,
    recvbuf: *mut c_void,
    recvcounts: *const i64,
    displs: *const isize,
    recvtype: Datatype,
    root: c_int,
    comm: Comm,
    request: *mut Request,
) -> c_int {
    later("MPI_Igatherv_c", comm, request, |c| {
        collective::gatherv(c, data(sendbuf, sendcount, sendtype), at_root(c, root, || blocks(c, recvbuf, recvcounts, displs, recvtype))?, root)
    })
}

pub unsafe fn MPI_Gatherv_init_c(
    sendbuf: *const c_void,
    sendcount: i64,
    sendtype: Datatype,
    recvbuf: *mut c_void,
    recvcounts: *const i64,
    displs: *const isize,
    recvtype: Datatype,
    root: c_int,
    comm: Comm,
    info: Info,
    request: *mut Request,
) -> c_int {
    again("MPI_Gatherv_init_c", comm, info, request, |c| {
        collective::gatherv(c, data(sendbuf, sendcount, sendtype), at_root(c, root, || blocks(c, recvbuf, recvcounts, displs, recvtype))?, root)
    })
}

pub unsafe fn MPI_Scatter(
    sendbuf: *const c_void,
    sendcount: c_int,
    sendtype: Datatype,
    recvbuf: *mut c_void,
    recvcount: c_int,
    recvtype: Datatype,
    root: c_int,
    comm: Comm,
) -> c_int {
    now("MPI_Scatter", comm, |c| collective::scatter(c, data(sendbuf, sendcount, sendtype), data(recvbuf, recvcount, recvtype), root))
}

pub unsafe fn MPI_Iscatter(
    sendbuf: *const c_void,
    sendcount: c_int,
    sendtype: Datatype,
    recvbuf: *mut c_void,
    recvcount: c_int,
    recvtype: Datatype,
    root: c_int,
    comm: Comm,
    request: *mut Request,
) -> c_int {
    later("MPI_Iscatter", comm, request, |c| collective::scatter(c, data(sendbuf, sendcount, sendtype), data(recvbuf, recvcount, recvtype), root))
}

pub unsafe fn MPI_Scatter_init(
    sendbuf: *const c_void,
    sendcount: c_int,
    sendtype: Datatype,
    recvbuf: *mut c_void,
    recvcount: c_int,
    recvtype: Datatype,
    root: c_int,
    comm: Comm,
    info: Info,
    request: *mut Request,
) -> c_int {
    again("MPI_Scatter_init", comm, info, request, |c| collective::scatter(c, data(sendbuf, sendcount, sendtype), data(recvbuf, recvcount, recvtype), root))
}

pub unsafe fn MPI_Scatter_c(
    sendbuf: *const c_void,
    sendcount: i64,
    sendtype: Datatype,
    recvbuf: *mut c_void,
    recvcount: i64,
    recvtype: Datatype,
    root: c_int,
    comm: Comm,
) -> c_int {
    now("MPI_Scatter_c", comm, |c| collective::scatter(c, data(sendbuf, sendcount, sendtype), data(recvbuf, recvcount, recvtype), root))
}

pub unsafe fn MPI_Iscatter_c(
    sendbuf: *const c_void,
    sendcount: i64,
    sendtype: Datatype,
    recvbuf: *mut c_void,
    recvcount: i64,
    recvtype: Datatype,
    root: c_int,
    comm: Comm,
    request: *mut Request,
) -> c_int {
    later("MPI_Iscatter_c", comm, request, |c| collective::scatter(c, data(sendbuf, sendcount, sendtype), data(recvbuf, recvcount, recvtype), root))
}

pub unsafe fn MPI_Scatter_init_c(
    sendbuf: *const c_void,
    sendcount: i64,
    sendtype: Datatype,
    recvbuf: *mut c_void,
    recvcount: i64,
    recvtype: Datatype,
    root: c_int,
    comm: Comm,
    info: Info,
    request: *mut Request,
) -> c_int {
    again("MPI_Scatter_init_c", comm, info, request, |c| collective::scatter(c, data(sendbuf, sendcount, sendtype), data(recvbuf, recvcount, recvtype), root))
}

pub unsafe fn MPI_Scatterv(
    sendbuf: *const c_void,
    sendcounts: *const c_int,
    displs: *const c_int,
    sendtype: Datatype,
    recvbuf: *mut c_void,
    recvcount: c_int,
    recvtype: Datatype,
    root: c_int,
    comm: Comm,
) -> c_int {
    now("MPI_Scatterv", comm, |c| {
        collective::scatterv(c, at_root(c, root, || blocks(c, sendbuf, sendcounts, displs, sendtype))?, data(recvbuf, recvcount, recvtype), root)
    })
}

pub unsafe fn MPI_Iscatterv(
    sendbuf: *const c_void,
    sendcounts: *const c_int,
    displs: *const c_int,
    sendtype: Datatype,
    recvbuf: *mut c_void,
    recvcount: c_int,
    recvtype: Datatype,
    root: c_int,
    comm: Comm,
    request: *mut Request,
) -> c_int {
    later("MPI_Iscatterv", comm, request, |c| {
        collective::scatterv(c, at_root(c, root, || blocks(c, sendbuf, sendcounts, displs, sendtype))?, data(recvbuf, recvcount, recvtype), root)
    })
}

pub unsafe fn MPI_Scatterv_init(
    sendbuf: *const c_void,
    sendcounts: *const c_int,
    displs: *const c_int,
    sendtype: Datatype,
    recvbuf: *mut c_void,
    recvcount: c_int,
    recvtype: Datatype,
    root: c_int,
    comm: Comm,
    info: Info,
    request: *mut Request,
) -> c_int {
    again("MPI_Scatterv_init", comm, info, request, |c| {
        collective::scatterv(c, at_root(c, root, || blocks(c, sendbuf, sendcounts, displs, sendtype))?, data(recvbuf, recvcount, recvtype), root)
    })
}

pub unsafe fn MPI_Scatterv_c(
    sendbuf: *const c_void,
    sendcounts: *const i64,
    displs: *const isize,
    sendtype: Datatype,
    recvbuf: *mut c_void,
    recvcount: i64,
    recvtype: Datatype,
    root: c_int,
    comm: Comm,
) -> c_int {
    now("MPI_Scatterv_c", comm, |c| {
        collective::scatterv(c, at_root(c, root, || blocks(c, sendbuf, sendcounts, displs, sendtype))?, data(recvbuf, recvcount, recvtype), root)
    })
}

pub unsafe fn MPI_Iscatterv_c(
    sendbuf: *const c_void,
    sendcounts: *const i64,
    displs: *const isize,
    sendtype: Datatype,
    recvbuf: *mut c_void,
    recvcount: i64,
    recvtype: Datatype,
    root: c_int,
    comm: Comm,
    request: *mut Request,
) -> c_int {
    later("MPI_Iscatterv_c", comm, request, |c| {
        collective::scatterv(c, at_root(c, root, || blocks(c, sendbuf, sendcounts, displs, sendtype))?, data(recvbuf, recvcount, recvtype), root)
    })
}

pub unsafe fn MPI_Scatterv_init_c(
    sendbuf: *const c_void,
    sendcounts: *const i64,
    displs: *const isize,
    sendtype: Datatype,
    recvbuf: *mut c_void,
    recvcount: i64,
    recvtype: Datatype,
    root: c_int,
    comm: Comm,
    info: Info,
    request: *mut Request,
) -> c_int {
    again("MPI_Scatterv_init_c", comm, info, request, |c| {
        collective::scatterv(c, at_root(c, root, || blocks(c, sendbuf, sendcounts, displs, sendtype))?, data(recvbuf, recvcount, recvtype), root)
    })
}

pub unsafe fn MPI_Allgather(
    sendbuf: *const c_void,
    sendcount: c_int,
    sendtype: Datatype,
    recvbuf: *mut c_void,
    recvcount: c_int,
    recvtype: Datatype,
    comm: Comm,
) -> c_int {
    now("MPI_Allgather", comm, |c| collective::allgather(c, data(sendbuf, sendcount, sendtype), data(recvbuf, recvcount, recvtype)))
}

pub unsafe fn MPI_Iallgather(
    sendbuf: *const c_void,
    sendcount: c_int,
    sendtype: Datatype,
    recvbuf: *mut c_void,
    recvcount: c_int,
    recvtype: Datatype,
    comm: Comm,
    request: *mut Request,
) -> c_int {
    later("MPI_Iallgather", comm, request, |c| collective::allgather(c, data(sendbuf, sendcount, sendtype), data(recvbuf, recvcount, recvtype)))
}

pub unsafe fn MPI_Allgather_init(
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
    again("MPI_Allgather_init", comm, info, request, |c| collective::allgather(c, data(sendbuf, sendcount, sendtype), data(recvbuf, recvcount, recvtype)))
}

pub unsafe fn MPI_Allgather_c(
    sendbuf: *const c_void,
    sendcount: i64,
    sendtype: Datatype,
    recvbuf: *mut c_void,
    recvcount: i64,
    recvtype: Datatype,
    comm: Comm,
) -> c_int {
    now("MPI_Allgather_c", comm, |c| collective::allgather(c, data(sendbuf, sendcount, sendtype), data(recvbuf, recvcount, recvtype)))
}

pub unsafe fn MPI_Iallgather_c(
    sendbuf: *const c_void,
    sendcount: i64,
    sendtype: Datatype,
    recvbuf: *mut c_void,
    recvcount: i64,
    recvtype: Datatype,
    comm: Comm,
    request: *mut Request,
) -> c_int {
    later("MPI_Iallgather_c", comm, request, |c| collective::allgather(c, data(sendbuf, sendcount, sendtype), data(recvbuf, recvcount, recvtype)))
}

pub unsafe fn MPI_Allgather_init_c(
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
    again("MPI_Allgather_init_c", comm, info, request, |c| collective::allgather(c, data(sendbuf, sendcount, sendtype), data(recvbuf, recvcount, recvtype)))
}

pub unsafe fn MPI_Allgatherv(
    sendbuf: *const c_void,
    sendcount: c_int,
    sendtype: Datatype,
    recvbuf: *mut c_void,
    recvcounts: *const c_int,
    displs: *const c_int,
    recvtype: Datatype,
    comm: Comm,
) -> c_int {
    now("MPI_Allgatherv", comm, |c| collective::allgatherv(c, data(sendbuf, sendcount, sendtype), blocks(c, recvbuf, recvcounts, displs, recvtype)?))
}

pub unsafe fn MPI_Iallgatherv(
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
    later("MPI_Iallgatherv", comm, request, |c| {
        collective::allgatherv(c, data(sendbuf, sendcount, sendtype), blocks(c, recvbuf, recvcounts, displs, recvtype)?)
    })
}

pub unsafe fn MPI_Allgatherv_init(
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
    again("MPI_Allgatherv_init", comm, info, request, |c| {
        collective::allgatherv(c, data(sendbuf, sendcount, sendtype), blocks(c, recvbuf, recvcounts, displs, recvtype)?)
    })
}

pub unsafe fn MPI_Allgatherv_c(
    sendbuf: *const c_void,
    sendcount: i64,
    sendtype: Datatype,
    recvbuf: *mut c_void,
    recvcounts: *const i64,
    displs: *const isize,
    recvtype: Datatype,
    comm: Comm,
) -> c_int {
    now("MPI_Allgatherv_c", comm, |c| collective::allgatherv(c, data(sendbuf, sendcount, sendtype), blocks(c, recvbuf, recvcounts, displs, recvtype)?))
}

pub unsafe fn MPI_Iallgatherv_c(
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
    later("MPI_Iallgatherv_c", comm, request, |c| {
        collective::allgatherv(c, data(sendbuf, sendcount, sendtype), blocks(c, recvbuf, recvcounts, displs, recvtype)?)
    })
}

pub unsafe fn MPI_Allgatherv_init_c(
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
    again("MPI_Allgatherv_init_c", comm, info, request, |c| {
        collective::allgatherv(c, data(sendbuf, sendcount, sendtype), blocks(c, recvbuf, recvcounts, displs, recvtype)?)
    })
}

pub unsafe fn MPI_Alltoall(
    sendbuf: *const c_void,
    sendcount: c_int,
    sendtype: Datatype,
    recvbuf: *mut c_void,
    recvcount: c_int,
    recvtype: Datatype,
    comm: Comm,
) -> c_int {
    now("MPI_Alltoall", comm, |c| collective::alltoall(c, data(sendbuf, sendcount, sendtype), data(recvbuf, recvcount, recvtype)))
}

pub unsafe fn MPI_Ialltoall(
    sendbuf: *const c_void,
    sendcount: c_int,
    sendtype: Datatype,
    recvbuf: *mut c_void,
    recvcount: c_int,
    recvtype: Datatype,
    comm: Comm,
    request: *mut Request,
) -> c_int {
    later("MPI_Ialltoall", comm, request, |c| collective::alltoall(c, data(sendbuf, sendcount, sendtype), data(recvbuf, recvcount, recvtype)))
}

pub unsafe fn MPI_Alltoall_init(
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
    again("MPI_Alltoall_init", comm, info, request, |c| collective::alltoall(c, data(sendbuf, sendcount, sendtype), data(recvbuf, recvcount, recvtype)))
}

pub unsafe fn MPI_Alltoall_c(
    sendbuf: *const c_void,
    sendcount: i64,
    sendtype: Datatype,
    recvbuf: *mut c_void,
    recvcount: i64,
    recvtype: Datatype,
    comm: Comm,
) -> c_int {
    now("MPI_Alltoall_c", comm, |c| collective::alltoall(c, data(sendbuf, sendcount, sendtype), data(recvbuf, recvcount, recvtype)))
}

pub unsafe fn MPI_Ialltoall_c(
    sendbuf: *const c_void,
    sendcount: i64,
    sendtype: Datatype,
    recvbuf: *mut c_void,
    recvcount: i64,
    recvtype: Datatype,
    comm: Comm,
    request: *mut Request,
) -> c_int {
    later("MPI_Ialltoall_c", comm, request, |c| collective::alltoall(c, data(sendbuf, sendcount, sendtype), data(recvbuf, recvcount, recvtype)))
}

pub unsafe fn MPI_Alltoall_init_c(
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
    again("MPI_Alltoall_init_c", comm, info, request, |c| collective::alltoall(c, data(sendbuf, sendcount, sendtype), data(recvbuf, recvcount, recvtype)))
}

pub unsafe fn MPI_Alltoallv(
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
    now("MPI_Alltoallv", comm, |c| {
        collective::alltoallv(
            c,
            not_in_place(sendbuf, || blocks(c, sendbuf, sendcounts, sdispls, sendtype))?,
            blocks(c, recvbuf, recvcounts, rdispls, recvtype)?,
        )
    })
}

pub unsafe fn MPI_Ialltoallv(
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
    later("MPI_Ialltoallv", comm, request, |c| {
        collective::alltoallv(
            c,
            not_in_place(sendbuf, || blocks(c, sendbuf, sendcounts, sdispls, sendtype))?,
            blocks(c, recvbuf, recvcounts, rdispls, recvtype)?,
        )
    })
}

pub unsafe fn MPI_Alltoallv_init(
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
    again("MPI_Alltoallv_init", comm, info, request, |c| {
        collective::alltoallv(
            c,
            not_in_place(sendbuf, || blocks(c, sendbuf, sendcounts, sdispls, sendtype))?,
            blocks(c, recvbuf, recvcounts, rdispls, recvtype)?,
        )
    })
}

pub unsafe fn MPI_Alltoallv_c(
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
    now("MPI_Alltoallv_c", comm, |c| {
        collective::alltoallv(
            c,
            not_in_place(sendbuf, || blocks(c, sendbuf, sendcounts, sdispls, sendtype))?,
            blocks(c, recvbuf, recvcounts, rdispls, recvtype)?,
        )
    })
}

pub unsafe fn MPI_Ialltoallv_c(
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
    later("MPI_Ialltoallv_c", comm, request, |c| {
        collective::alltoallv(
            c,
            not_in_place(sendbuf, || blocks(c, sendbuf, sendcounts, sdispls, sendtype))?,
            blocks(c, recvbuf, recvcounts, rdispls, recvtype)?,
        )
    })
}

pub unsafe fn MPI_Alltoallv_init_c(
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
    again("MPI_Alltoallv_init_c", comm, info, request, |c| {
        collective::alltoallv(
            c,
            not_in_place(sendbuf, || blocks(c, sendbuf, sendcounts, sdispls, sendtype))?,
            blocks(c, recvbuf, recvcounts, rdispls, recvtype)?,
        )
    })
}

pub unsafe fn MPI_Alltoallw(
    sendbuf: *const c_void,
    sendcounts: *const c_int,
    sdispls: *const c_int,
    sendtypes: *const Datatype,
    recvbuf: *mut c_void,
    recvcounts: *const c_int,
    rdispls: *const c_int,
    recvtypes: *const Datatype,
    comm: Comm,
) -> c_int {
    now("MPI_Alltoallw", comm, |c| {
        collective::alltoallv(
            c,
            not_in_place(sendbuf, || mixed(c, sendbuf, sendcounts, sdispls, sendtypes))?,
            mixed(c, recvbuf, recvcounts, rdispls, recvtypes)?,
        )
    })
}

pub unsafe fn MPI_Ialltoallw(
    sendbuf: *const c_void,
    sendcounts: *const c_int,
    sdispls: *const c_int,
    sendtypes: *const Datatype,
    recvbuf: *mut c_void,
    recvcounts: *const c_int,
    rdispls: *const c_int,
    recvtypes: *const Datatype,
    comm: Comm,
    request: *mut Request,
) -> c_int {
    later("MPI_Ialltoallw", comm, request, |c| {
        collective::alltoallv(
            c,
            not_in_place(sendbuf, || mixed(c, sendbuf, sendcounts, sdispls, sendtypes))?,
            mixed(c, recvbuf, recvcounts, rdispls, recvtypes)?,
        )
    })
}

pub unsafe fn MPI_Alltoallw_init(
    sendbuf: *const c_void,
    sendcounts: *const c_int,
    sdispls: *const c_int,
    sendtypes: *const Datatype,
    recvbuf: *mut c_void,
    recvcounts: *const c_int,
    rdispls: *const c_int,
    recvtypes: *const Datatype,
    comm: Comm,
    info: Info,
    request: *mut Request,
) -> c_int {
    again("MPI_Alltoallw_init", comm, info, request, |c| {
        collective::alltoallv(
            c,
            not_in_place(sendbuf, || mixed(c, sendbuf, sendcounts, sdispls, sendtypes))?,
            mixed(c, recvbuf, recvcounts, rdispls, recvtypes)?,
        )
    })
}

pub unsafe fn MPI_Alltoallw_c(
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
    now("MPI_Alltoallw_c", comm, |c| {
        collective::alltoallv(
            c,
            not_in_place(sendbuf, || mixed(c, sendbuf, sendcounts, sdispls, sendtypes))?,
            mixed(c, recvbuf, recvcounts, rdispls, recvtypes)?,
        )
    })
}

pub unsafe fn MPI_Ialltoallw_c(
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
    later("MPI_Ialltoallw_c", comm, request, |c| {
        collective::alltoallv(
            c,
            not_in_place(sendbuf, || mixed(c, sendbuf, sendcounts, sdispls, sendtypes))?,
            mixed(c, recvbuf, recvcounts, rdispls, recvtypes)?,
        )
    })
}

pub unsafe fn MPI_Alltoallw_init_c(
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
    again("MPI_Alltoallw_init_c", comm, info, request, |c| {
        collective::alltoallv(
            c,
            not_in_place(sendbuf, || mixed(c, sendbuf, sendcounts, sdispls, sendtypes))?,
            mixed(c, recvbuf, recvcounts, rdispls, recvtypes)?,
        )
    })
}

pub unsafe fn MPI_Reduce(sendbuf: *const c_void, recvbuf: *mut c_void, count: c_int, datatype: Datatype, op: Op, root: c_int, comm: Comm) -> c_int {
    now("MPI_Reduce", comm, |c| collective::reduce(c, sendbuf.cast_mut(), data(recvbuf, count, datatype), op, root))
}

pub unsafe fn MPI_Ireduce(
    sendbuf: *const c_void,
    recvbuf: *mut c_void,
    count: c_int,
    datatype: Datatype,
    op: Op,
    root: c_int,
    comm: Comm,
    request: *mut Request,
) -> c_int {
    later("MPI_Ireduce", comm, request, |c| collective::reduce(c, sendbuf.cast_mut(), data(recvbuf, count, datatype), op, root))
}

pub unsafe fn MPI_Reduce_init(
    sendbuf: *const c_void,
    recvbuf: *mut c_void,
    count: c_int,
    datatype: Datatype,
    op: Op,
    root: c_int,
    comm: Comm,
    info: Info,
    request: *mut Request,
) -> c_int {
    again("MPI_Reduce_init", comm, info, request, |c| collective::reduce(c, sendbuf.cast_mut(), data(recvbuf, count, datatype), op, root))
}

pub unsafe fn MPI_Reduce_c(sendbuf: *const c_void, recvbuf: *mut c_void, count: i64, datatype: Datatype, op: Op, root: c_int, comm: Comm) -> c_int {
    now("MPI_Reduce_c", comm, |c| collective::reduce(c, sendbuf.cast_mut(), data(recvbuf, count, datatype), op, root))
}

pub unsafe fn MPI_Ireduce_c(
    sendbuf: *const c_void,
    recvbuf: *mut c_void,
    count: i64,
    datatype: Datatype,
    op: Op,
    root: c_int,
    comm: Comm,
    request: *mut Request,
) -> c_int {
    later("MPI_Ireduce_c", comm, request, |c| collective::reduce(c, sendbuf.cast_mut(), data(recvbuf, count, datatype), op, root))
}

pub unsafe fn MPI_Reduce_init_c(
    sendbuf: *const c_void,
    recvbuf: *mut c_void,
    count: i64,
    datatype: Datatype,
    op: Op,
    root: c_int,
    comm: Comm,
    info: Info,
    request: *mut Request,
) -> c_int {
    again("MPI_Reduce_init_c", comm, info, request, |c| collective::reduce(c, sendbuf.cast_mut(), data(recvbuf, count, datatype), op, root))
}

pub unsafe fn MPI_Allreduce(sendbuf: *const c_void, recvbuf: *mut c_void, count: c_int, datatype: Datatype, op: Op, comm: Comm) -> c_int {
    let done = comm::find(comm).and_then(|c| collective::allreduce_now("MPI_Allreduce", c, sendbuf.cast_mut(), data(recvbuf, count, datatype), op));
    finish_on(comm, "MPI_Allreduce", done)
}

pub unsafe fn MPI_Iallreduce(
    sendbuf: *const c_void,
    recvbuf: *mut c_void,
    count: c_int,
    datatype: Datatype,
    op: Op,
    comm: Comm,
    request: *mut Request,
) -> c_int {
    later("MPI_Iallreduce", comm, request, |c| collective::allreduce(c, sendbuf.cast_mut(), data(recvbuf, count, datatype), op))
}

pub unsafe fn MPI_Allreduce_init(
    sendbuf: *const c_void,
    recvbuf: *mut c_void,
    count: c_int,
    datatype: Datatype,
    op: Op,
    comm: Comm,
    info: Info,
    request: *mut Request,
) -> c_int {
    again("MPI_Allreduce_init", comm, info, request, |c| collective::allreduce(c, sendbuf.cast_mut(), data(recvbuf, count, datatype), op))
}

pub unsafe fn MPI_Allreduce_c(sendbuf: *const c_void, recvbuf: *mut c_void, count: i64, datatype: Datatype, op: Op, comm: Comm) -> c_int {
    let done = comm::find(comm).and_then(|c| collective::allreduce_now("MPI_Allreduce_c", c, sendbuf.cast_mut(), data(recvbuf, count, datatype), op));
    finish_on(comm, "MPI_Allreduce_c", done)
}

pub unsafe fn MPI_Iallreduce_c(
    sendbuf: *const c_void,
    recvbuf: *mut c_void,
    count: i64,
    datatype: Datatype,
    op: Op,
    comm: Comm,
    request: *mut Request,
) -> c_int {
    later("MPI_Iallreduce_c", comm, request, |c| collective::allreduce(c, sendbuf.cast_mut(), data(recvbuf, count, datatype), op))
}

pub unsafe fn MPI_Allreduce_init_c(
    sendbuf: *const c_void,
    recvbuf: *mut c_void,
    count: i64,
    datatype: Datatype,
    op: Op,
    comm: Comm,
    info: Info,
    request: *mut Request,
) -> c_int {
    again("MPI_Allreduce_init_c", comm, info, request, |c| collective::allreduce(c, sendbuf.cast_mut(), data(recvbuf, count, datatype), op))
}

pub unsafe fn MPI_Reduce_scatter(sendbuf: *const c_void, recvbuf: *mut c_void, recvcounts: *const c_int, datatype: Datatype, op: Op, comm: Comm) -> c_int {
    now("MPI_Reduce_scatter", comm, |c| {
        collective::reduce_scatter(c, sendbuf.cast_mut(), data(recvbuf, 0, datatype), numbers("recvcounts", recvcounts, c.size() as usize)?, op, false)
    })
}

pub unsafe fn MPI_Ireduce_scatter(
    sendbuf: *const c_void,
    recvbuf: *mut c_void,
    recvcounts: *const c_int,
    datatype: Datatype,
    op: Op,
    comm: Comm,
    request: *mut Request,
) -> c_int {
    later("MPI_Ireduce_scatter", comm, request, |c| {
        collective::reduce_scatter(c, sendbuf.cast_mut(), data(recvbuf, 0, datatype), numbers("recvcounts", recvcounts, c.size() as usize)?, op, false)
    })
}

pub unsafe fn MPI_Reduce_scatter_init(
    sendbuf: *const c_void,
    recvbuf: *mut c_void,
    recvcounts: *const c_int,
    datatype: Datatype,
    op: Op,
    comm: Comm,
    info: Info,
    request: *mut Request,
) -> c_int {
    again("MPI_Reduce_scatter_init", comm, info, request, |c| {
        collective::reduce_scatter(c, sendbuf.cast_mut(), data(recvbuf, 0, datatype), numbers("recvcounts", recvcounts, c.size() as usize)?, op, false)
    })
}

pub unsafe fn MPI_Reduce_scatter_c(sendbuf: *const c_void, recvbuf: *mut c_void, recvcounts: *const i64, datatype: Datatype, op: Op, comm: Comm) -> c_int {
    now("MPI_Reduce_scatter_c", comm, |c| {
        collective::reduce_scatter(c, sendbuf.cast_mut(), data(recvbuf, 0, datatype), numbers("recvcounts", recvcounts, c.size() as usize)?, op, false)
    })
}

pub unsafe fn MPI_Ireduce_scatter_c(
    sendbuf: *const c_void,
    recvbuf: *mut c_void,
    recvcounts: *const i64,
    datatype: Datatype,
    op: Op,
    comm: Comm,
    request: *mut Request,
) -> c_int {
    later("MPI_Ireduce_scatter_c", comm, request, |c| {
        collective::reduce_scatter(c, sendbuf.cast_mut(), data(recvbuf, 0, datatype), numbers("recvcounts", recvcounts, c.size() as usize)?, op, false)
    })
}

pub unsafe fn MPI_Reduce_scatter_init_c(
    sendbuf: *const c_void,
    recvbuf: *mut c_void,
    recvcounts: *const i64,
    datatype: Datatype,
    op: Op,
    comm: Comm,
    info: Info,
    request: *mut Request,
) -> c_int {
    again("MPI_Reduce_scatter_init_c", comm, info, request, |c| {
        collective::reduce_scatter(c, sendbuf.cast_mut(), data(recvbuf, 0, datatype), numbers("recvcounts", recvcounts, c.size() as usize)?, op, false)
    })
}

pub unsafe fn MPI_Reduce_scatter_block(sendbuf: *const c_void, recvbuf: *mut c_void, recvcount: c_int, datatype: Datatype, op: Op, comm: Comm) -> c_int {
    now("MPI_Reduce_scatter_block", comm, |c| {
        collective::reduce_scatter(c, sendbuf.cast_mut(), data(recvbuf, 0, datatype), vec![recvcount.wide(); c.size() as usize], op, true)
    })
}

pub unsafe fn MPI_Ireduce_scatter_block(
    sendbuf: *const c_void,
    recvbuf: *mut c_void,
    recvcount: c_int,
    datatype: Datatype,
    op: Op,
    comm: Comm,
    request: *mut Request,
) -> c_int {
    later("MPI_Ireduce_scatter_block", comm, request, |c| {
        collective::reduce_scatter(c, sendbuf.cast_mut(), data(recvbuf, 0, datatype), vec![recvcount.wide(); c.size() as usize], op, true)
    })
}

pub unsafe fn MPI_Reduce_scatter_block_init(
    sendbuf: *const c_void,
    recvbuf: *mut c_void,
    recvcount: c_int,
    datatype: Datatype,
    op: Op,
    comm: Comm,
    info: Info,
    request: *mut Request,
) -> c_int {
    again("MPI_Reduce_scatter_block_init", comm, info, request, |c| {
        collective::reduce_scatter(c, sendbuf.cast_mut(), data(recvbuf, 0, datatype), vec![recvcount.wide(); c.size() as usize], op, true)
    })
}

pub unsafe fn MPI_Reduce_scatter_block_c(sendbuf: *const c_void, recvbuf: *mut c_void, recvcount: i64, datatype: Datatype, op: Op, comm: Comm) -> c_int {
    now("MPI_Reduce_scatter_block_c", comm, |c| {
        collective::reduce_scatter(c, sendbuf.cast_mut(), data(recvbuf, 0, datatype), vec![recvcount.wide(); c.size() as usize], op, true)
    })
}

pub unsafe fn MPI_Ireduce_scatter_block_c(
    sendbuf: *const c_void,
    recvbuf: *mut c_void,
    recvcount: i64,
    datatype: Datatype,
    op: Op,
    comm: Comm,
    request: *mut Request,
) -> c_int {
    later("MPI_Ireduce_scatter_block_c", comm, request, |c| {
        collective::reduce_scatter(c, sendbuf.cast_mut(), data(recvbuf, 0, datatype), vec![recvcount.wide(); c.size() as usize], op, true)
    })
}

pub unsafe fn MPI_Reduce_scatter_block_init_c(
    sendbuf: *const c_void,
    recvbuf: *mut c_void,
    recvcount: i64,
    datatype: Datatype,
    op: Op,
    comm: Comm,
    info: Info,
    request: *mut Request,
) -> c_int {
    again("MPI_Reduce_scatter_block_init_c", comm, info, request, |c| {
        collective::reduce_scatter(c, sendbuf.cast_mut(), data(recvbuf, 0, datatype), vec![recvcount.wide(); c.size() as usize], op, true)
    })
}

pub unsafe fn MPI_Scan(sendbuf: *const c_void, recvbuf: *mut c_void, count: c_int, datatype: Datatype, op: Op, comm: Comm) -> c_int {
    now("MPI_Scan", comm, |c| collective::scan(c, sendbuf.cast_mut(), data(recvbuf, count, datatype), op, false))
}

pub unsafe fn MPI_Iscan(sendbuf: *const c_void, recvbuf: *mut c_void, count: c_int, datatype: Datatype, op: Op, comm: Comm, request: *mut Request) -> c_int {
    later("MPI_Iscan", comm, request, |c| collective::scan(c, sendbuf.cast_mut(), data(recvbuf, count, datatype), op, false))
}

pub unsafe fn MPI_Scan_init(
    sendbuf: *const c_void,
    recvbuf: *mut c_void,
    count: c_int,
    datatype: Datatype,
    op: Op,
    comm: Comm,
    info: Info,
    request: *mut Request,
) -> c_int {
    again("MPI_Scan_init", comm, info, request, |c| collective::scan(c, sendbuf.cast_mut(), data(recvbuf, count, datatype), op, false))
}

pub unsafe fn MPI_Scan_c(sendbuf: *const c_void, recvbuf: *mut c_void, count: i64, datatype: Datatype, op: Op, comm: Comm) -> c_int {
    now("MPI_Scan_c", comm, |c| collective::scan(c, sendbuf.cast_mut(), data(recvbuf, count, datatype), op, false))
}

pub unsafe fn MPI_Iscan_c(sendbuf: *const c_void, recvbuf: *mut c_void, count: i64, datatype: Datatype, op: Op, comm: Comm, request: *mut Request) -> c_int {
    later("MPI_Iscan_c", comm, request, |c| collective::scan(c, sendbuf.cast_mut(), data(recvbuf, count, datatype), op, false))
}

pub unsafe fn MPI_Scan_init_c(
    sendbuf: *const c_void,
    recvbuf: *mut c_void,
    count: i64,
    datatype: Datatype,
    op: Op,
    comm: Comm,
    info: Info,
    request: *mut Request,
) -> c_int {
    again("MPI_Scan_init_c", comm, info, request, |c| collective::scan(c, sendbuf.cast_mut(), data(recvbuf, count, datatype), op, false))
}

pub unsafe fn MPI_Exscan(sendbuf: *const c_void, recvbuf: *mut c_void, count: c_int, datatype: Datatype, op: Op, comm: Comm) -> c_int {
    now("MPI_Exscan", comm, |c| collective::scan(c, sendbuf.cast_mut(), data(recvbuf, count, datatype), op, true))
}

pub unsafe fn MPI_Iexscan(sendbuf: *const c_void, recvbuf: *mut c_void, count: c_int, datatype: Datatype, op: Op, comm: Comm, request: *mut Request) -> c_int {
    later("MPI_Iexscan", comm, request, |c| collective::scan(c, sendbuf.cast_mut(), data(recvbuf, count, datatype), op, true))
}

pub unsafe fn MPI_Exscan_init(
    sendbuf: *const c_void,
    recvbuf: *mut c_void,
    count: c_int,
    datatype: Datatype,
    op: Op,
    comm: Comm,
    info: Info,
    request: *mut Request,
) -> c_int {
    again("MPI_Exscan_init", comm, info, request, |c| collective::scan(c, sendbuf.cast_mut(), data(recvbuf, count, datatype), op, true))
}

pub unsafe fn MPI_Exscan_c(sendbuf: *const c_void, recvbuf: *mut c_void, count: i64, datatype: Datatype, op: Op, comm: Comm) -> c_int {
    now("MPI_Exscan_c", comm, |c| collective::scan(c, sendbuf.cast_mut(), data(recvbuf, count, datatype), op, true))
}

pub unsafe fn MPI_Iexscan_c(sendbuf: *const c_void, recvbuf: *mut c_void, count: i64, datatype: Datatype, op: Op, comm: Comm, request: *mut Request) -> c_int {
    later("MPI_Iexscan_c", comm, request, |c| collective::scan(c, sendbuf.cast_mut(), data(recvbuf, count, datatype), op, true))
}

pub unsafe fn MPI_Exscan_init_c(
    sendbuf: *const c_void,
    recvbuf: *mut c_void,
    count: i64,
    datatype: Datatype,
    op: Op,
    comm: Comm,
    info: Info,
    request: *mut Request,
) -> c_int {
    again("MPI_Exscan_init_c", comm, info, request, |c| collective::scan(c, sendbuf.cast_mut(), data(recvbuf, count, datatype), op, true))
}
