//! Collective communication (MPI-5.0 chapter 6): blocking, nonblocking and persistent forms of each.

use crate::finish_on;
use mpi::collective::{self, Blocks, Data, Types, in_place};
use mpi::comm::{self, Comm as Communicator};
use mpi::consts::*;
use mpi::error::{Error, Result};
use mpi::handle::*;
use mpi::link::{Channel, block};
use mpi::request;
use std::ffi::{c_int, c_void};

/// A count or displacement of either size.
trait Number: Copy {
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

fn data(start: *const c_void, count: impl Number, datatype: Datatype) -> Data {
    Data { start: start.cast_mut(), count: count.wide(), datatype }
}

unsafe fn numbers<N: Number>(what: &str, from: *const N, count: usize) -> Result<Vec<i64>> {
    if from.is_null() && count > 0 {
        return Err(Error::new(MPI_ERR_ARG, format!("{what} is null")));
    }
    Ok((0..count).map(|at| (*from.add(at)).wide()).collect())
}

/// Blocks of one datatype, one for each rank of `comm`.
unsafe fn blocks<N: Number, D: Number>(comm: &Communicator, start: *const c_void, counts: *const N, displs: *const D, datatype: Datatype) -> Result<Blocks> {
    let ranks = comm.peers().size() as usize;
    Ok(Blocks { start: start.cast_mut(), counts: numbers("counts", counts, ranks)?, displacements: numbers("displs", displs, ranks)?, datatypes: Types::Same(datatype) })
}

/// Blocks of several datatypes.
unsafe fn mixed<N: Number, D: Number>(comm: &Communicator, start: *const c_void, counts: *const N, displs: *const D, datatypes: *const Datatype) -> Result<Blocks> {
    let ranks = comm.peers().size() as usize;
    if datatypes.is_null() {
        return Err(Error::new(MPI_ERR_TYPE, "the array of datatypes is null"));
    }
    let datatypes = Types::Each(std::slice::from_raw_parts(datatypes, ranks).to_vec());
    Ok(Blocks { start: start.cast_mut(), counts: numbers("counts", counts, ranks)?, displacements: numbers("displs", displs, ranks)?, datatypes })
}

/// Runs a collective to its end.
unsafe fn now<F: collective::Operated>(function: &'static str, comm: Comm, make: impl FnOnce(&'static Communicator, Channel) -> Result<F>) -> c_int {
    finish_on(comm, function, comm::find(comm).and_then(|c| block(function, make(c, Channel::new(c)?)?)))
}

/// Starts a collective.
unsafe fn later<F: collective::Operated>(function: &'static str, comm: Comm, request: *mut Request, make: impl FnOnce(&'static Communicator, Channel) -> Result<F>) -> c_int {
    let made = comm::find(comm).and_then(|c| {
        let operated = make(c, Channel::new(c)?)?;
        request::start_task(Some(comm), Box::pin(async move { operated.await.map(|()| Status::EMPTY) }))
    });
    finish_on(comm, function, made.map(|r| *request = r))
}

/// Makes a collective that can be started again and again. All ranks make them in the same order, and that is what matches.
unsafe fn again<F: collective::Operated>(
    function: &'static str,
    comm: Comm,
    request: *mut Request,
    make: impl Fn(&'static Communicator, Channel) -> Result<F> + Send + Sync + 'static,
) -> c_int {
    let made = comm::find(comm).and_then(|c| {
        let tag = c.next_collective();
        // The arguments are checked now, not at the first start.
        drop(make(c, Channel::tagged(c, tag)?)?);
        let starter = move || {
            let operated = make(c, Channel::tagged(c, tag)?)?;
            let task: request::Task = Box::pin(async move { operated.await.map(|()| Status::EMPTY) });
            Ok(task)
        };
        request::task_init(Some(comm), Box::new(starter))
    });
    finish_on(comm, function, made.map(|r| *request = r))
}

pub unsafe fn MPI_Bcast(buffer: *mut c_void, count: c_int, datatype: Datatype, root: c_int, comm: Comm) -> c_int {
    now("MPI_Bcast", comm, |c, ch| collective::bcast(c, &data(buffer, count, datatype), root, ch))
}

pub unsafe fn MPI_Ibcast(buffer: *mut c_void, count: c_int, datatype: Datatype, root: c_int, comm: Comm, request: *mut Request) -> c_int {
    later("MPI_Ibcast", comm, request, |c, ch| collective::bcast(c, &data(buffer, count, datatype), root, ch))
}

pub unsafe fn MPI_Bcast_init(buffer: *mut c_void, count: c_int, datatype: Datatype, root: c_int, comm: Comm, _info: Info, request: *mut Request) -> c_int {
    let held = Held((buffer, count, datatype, root,));
    again("MPI_Bcast_init", comm, request, move |c, ch| {
        let (buffer, count, datatype, root,) = *held.get();
        collective::bcast(c, &data(buffer, count, datatype), root, ch)
    })
}

pub unsafe fn MPI_Gather(sendbuf: *const c_void, sendcount: c_int, sendtype: Datatype, recvbuf: *mut c_void, recvcount: c_int, recvtype: Datatype, root: c_int, comm: Comm) -> c_int {
    now("MPI_Gather", comm, |c, ch| collective::gather(c, &data(sendbuf, sendcount, sendtype), &data(recvbuf, recvcount, recvtype), root, ch))
}

pub unsafe fn MPI_Igather(sendbuf: *const c_void, sendcount: c_int, sendtype: Datatype, recvbuf: *mut c_void, recvcount: c_int, recvtype: Datatype, root: c_int, comm: Comm, request: *mut Request) -> c_int {
    later("MPI_Igather", comm, request, |c, ch| collective::gather(c, &data(sendbuf, sendcount, sendtype), &data(recvbuf, recvcount, recvtype), root, ch))
}

pub unsafe fn MPI_Gather_init(sendbuf: *const c_void, sendcount: c_int, sendtype: Datatype, recvbuf: *mut c_void, recvcount: c_int, recvtype: Datatype, root: c_int, comm: Comm, _info: Info, request: *mut Request) -> c_int {
    let held = Held((sendbuf, sendcount, sendtype, recvbuf, recvcount, recvtype, root,));
    again("MPI_Gather_init", comm, request, move |c, ch| {
        let (sendbuf, sendcount, sendtype, recvbuf, recvcount, recvtype, root,) = *held.get();
        collective::gather(c, &data(sendbuf, sendcount, sendtype), &data(recvbuf, recvcount, recvtype), root, ch)
    })
}

pub unsafe fn MPI_Gatherv(sendbuf: *const c_void, sendcount: c_int, sendtype: Datatype, recvbuf: *mut c_void, recvcounts: *const c_int, displs: *const c_int, recvtype: Datatype, root: c_int, comm: Comm) -> c_int {
    now("MPI_Gatherv", comm, |c, ch| { let into = if root == c.rank as c_int { Some(blocks(c, recvbuf, recvcounts, displs, recvtype)?) } else { None }; collective::gatherv(c, &data(sendbuf, sendcount, sendtype), into.as_ref(), root, ch) })
}

pub unsafe fn MPI_Igatherv(sendbuf: *const c_void, sendcount: c_int, sendtype: Datatype, recvbuf: *mut c_void, recvcounts: *const c_int, displs: *const c_int, recvtype: Datatype, root: c_int, comm: Comm, request: *mut Request) -> c_int {
    later("MPI_Igatherv", comm, request, |c, ch| { let into = if root == c.rank as c_int { Some(blocks(c, recvbuf, recvcounts, displs, recvtype)?) } else { None }; collective::gatherv(c, &data(sendbuf, sendcount, sendtype), into.as_ref(), root, ch) })
}

pub unsafe fn MPI_Gatherv_init(sendbuf: *const c_void, sendcount: c_int, sendtype: Datatype, recvbuf: *mut c_void, recvcounts: *const c_int, displs: *const c_int, recvtype: Datatype, root: c_int, comm: Comm, _info: Info, request: *mut Request) -> c_int {
    let held = Held((sendbuf, sendcount, sendtype, recvbuf, recvcounts, displs, recvtype, root,));
    again("MPI_Gatherv_init", comm, request, move |c, ch| {
        let (sendbuf, sendcount, sendtype, recvbuf, recvcounts, displs, recvtype, root,) = *held.get();
        { let into = if root == c.rank as c_int { Some(blocks(c, recvbuf, recvcounts, displs, recvtype)?) } else { None }; collective::gatherv(c, &data(sendbuf, sendcount, sendtype), into.as_ref(), root, ch) }
    })
}

pub unsafe fn MPI_Scatter(sendbuf: *const c_void, sendcount: c_int, sendtype: Datatype, recvbuf: *mut c_void, recvcount: c_int, recvtype: Datatype, root: c_int, comm: Comm) -> c_int {
    now("MPI_Scatter", comm, |c, ch| collective::scatter(c, &data(sendbuf, sendcount, sendtype), &data(recvbuf, recvcount, recvtype), root, ch))
}

pub unsafe fn MPI_Iscatter(sendbuf: *const c_void, sendcount: c_int, sendtype: Datatype, recvbuf: *mut c_void, recvcount: c_int, recvtype: Datatype, root: c_int, comm: Comm, request: *mut Request) -> c_int {
    later("MPI_Iscatter", comm, request, |c, ch| collective::scatter(c, &data(sendbuf, sendcount, sendtype), &data(recvbuf, recvcount, recvtype), root, ch))
}

pub unsafe fn MPI_Scatter_init(sendbuf: *const c_void, sendcount: c_int, sendtype: Datatype, recvbuf: *mut c_void, recvcount: c_int, recvtype: Datatype, root: c_int, comm: Comm, _info: Info, request: *mut Request) -> c_int {
    let held = Held((sendbuf, sendcount, sendtype, recvbuf, recvcount, recvtype, root,));
    again("MPI_Scatter_init", comm, request, move |c, ch| {
        let (sendbuf, sendcount, sendtype, recvbuf, recvcount, recvtype, root,) = *held.get();
        collective::scatter(c, &data(sendbuf, sendcount, sendtype), &data(recvbuf, recvcount, recvtype), root, ch)
    })
}

pub unsafe fn MPI_Scatterv(sendbuf: *const c_void, sendcounts: *const c_int, displs: *const c_int, sendtype: Datatype, recvbuf: *mut c_void, recvcount: c_int, recvtype: Datatype, root: c_int, comm: Comm) -> c_int {
    now("MPI_Scatterv", comm, |c, ch| { let from = if root == c.rank as c_int { Some(blocks(c, sendbuf, sendcounts, displs, sendtype)?) } else { None }; collective::scatterv(c, from.as_ref(), &data(recvbuf, recvcount, recvtype), root, ch) })
}

pub unsafe fn MPI_Iscatterv(sendbuf: *const c_void, sendcounts: *const c_int, displs: *const c_int, sendtype: Datatype, recvbuf: *mut c_void, recvcount: c_int, recvtype: Datatype, root: c_int, comm: Comm, request: *mut Request) -> c_int {
    later("MPI_Iscatterv", comm, request, |c, ch| { let from = if root == c.rank as c_int { Some(blocks(c, sendbuf, sendcounts, displs, sendtype)?) } else { None }; collective::scatterv(c, from.as_ref(), &data(recvbuf, recvcount, recvtype), root, ch) })
}

pub unsafe fn MPI_Scatterv_init(sendbuf: *const c_void, sendcounts: *const c_int, displs: *const c_int, sendtype: Datatype, recvbuf: *mut c_void, recvcount: c_int, recvtype: Datatype, root: c_int, comm: Comm, _info: Info, request: *mut Request) -> c_int {
    let held = Held((sendbuf, sendcounts, displs, sendtype, recvbuf, recvcount, recvtype, root,));
    again("MPI_Scatterv_init", comm, request, move |c, ch| {
        let (sendbuf, sendcounts, displs, sendtype, recvbuf, recvcount, recvtype, root,) = *held.get();
        { let from = if root == c.rank as c_int { Some(blocks(c, sendbuf, sendcounts, displs, sendtype)?) } else { None }; collective::scatterv(c, from.as_ref(), &data(recvbuf, recvcount, recvtype), root, ch) }
    })
}

pub unsafe fn MPI_Allgather(sendbuf: *const c_void, sendcount: c_int, sendtype: Datatype, recvbuf: *mut c_void, recvcount: c_int, recvtype: Datatype, comm: Comm) -> c_int {
    now("MPI_Allgather", comm, |c, ch| collective::allgather(c, &data(sendbuf, sendcount, sendtype), &data(recvbuf, recvcount, recvtype), ch))
}

pub unsafe fn MPI_Iallgather(sendbuf: *const c_void, sendcount: c_int, sendtype: Datatype, recvbuf: *mut c_void, recvcount: c_int, recvtype: Datatype, comm: Comm, request: *mut Request) -> c_int {
    later("MPI_Iallgather", comm, request, |c, ch| collective::allgather(c, &data(sendbuf, sendcount, sendtype), &data(recvbuf, recvcount, recvtype), ch))
}

pub unsafe fn MPI_Allgather_init(sendbuf: *const c_void, sendcount: c_int, sendtype: Datatype, recvbuf: *mut c_void, recvcount: c_int, recvtype: Datatype, comm: Comm, _info: Info, request: *mut Request) -> c_int {
    let held = Held((sendbuf, sendcount, sendtype, recvbuf, recvcount, recvtype,));
    again("MPI_Allgather_init", comm, request, move |c, ch| {
        let (sendbuf, sendcount, sendtype, recvbuf, recvcount, recvtype,) = *held.get();
        collective::allgather(c, &data(sendbuf, sendcount, sendtype), &data(recvbuf, recvcount, recvtype), ch)
    })
}

pub unsafe fn MPI_Allgatherv(sendbuf: *const c_void, sendcount: c_int, sendtype: Datatype, recvbuf: *mut c_void, recvcounts: *const c_int, displs: *const c_int, recvtype: Datatype, comm: Comm) -> c_int {
    now("MPI_Allgatherv", comm, |c, ch| collective::allgatherv(c, &data(sendbuf, sendcount, sendtype), &blocks(c, recvbuf, recvcounts, displs, recvtype)?, ch))
}

pub unsafe fn MPI_Iallgatherv(sendbuf: *const c_void, sendcount: c_int, sendtype: Datatype, recvbuf: *mut c_void, recvcounts: *const c_int, displs: *const c_int, recvtype: Datatype, comm: Comm, request: *mut Request) -> c_int {
    later("MPI_Iallgatherv", comm, request, |c, ch| collective::allgatherv(c, &data(sendbuf, sendcount, sendtype), &blocks(c, recvbuf, recvcounts, displs, recvtype)?, ch))
}

pub unsafe fn MPI_Allgatherv_init(sendbuf: *const c_void, sendcount: c_int, sendtype: Datatype, recvbuf: *mut c_void, recvcounts: *const c_int, displs: *const c_int, recvtype: Datatype, comm: Comm, _info: Info, request: *mut Request) -> c_int {
    let held = Held((sendbuf, sendcount, sendtype, recvbuf, recvcounts, displs, recvtype,));
    again("MPI_Allgatherv_init", comm, request, move |c, ch| {
        let (sendbuf, sendcount, sendtype, recvbuf, recvcounts, displs, recvtype,) = *held.get();
        collective::allgatherv(c, &data(sendbuf, sendcount, sendtype), &blocks(c, recvbuf, recvcounts, displs, recvtype)?, ch)
    })
}

pub unsafe fn MPI_Alltoall(sendbuf: *const c_void, sendcount: c_int, sendtype: Datatype, recvbuf: *mut c_void, recvcount: c_int, recvtype: Datatype, comm: Comm) -> c_int {
    now("MPI_Alltoall", comm, |c, ch| collective::alltoall(c, &data(sendbuf, sendcount, sendtype), &data(recvbuf, recvcount, recvtype), ch))
}

pub unsafe fn MPI_Ialltoall(sendbuf: *const c_void, sendcount: c_int, sendtype: Datatype, recvbuf: *mut c_void, recvcount: c_int, recvtype: Datatype, comm: Comm, request: *mut Request) -> c_int {
    later("MPI_Ialltoall", comm, request, |c, ch| collective::alltoall(c, &data(sendbuf, sendcount, sendtype), &data(recvbuf, recvcount, recvtype), ch))
}

pub unsafe fn MPI_Alltoall_init(sendbuf: *const c_void, sendcount: c_int, sendtype: Datatype, recvbuf: *mut c_void, recvcount: c_int, recvtype: Datatype, comm: Comm, _info: Info, request: *mut Request) -> c_int {
    let held = Held((sendbuf, sendcount, sendtype, recvbuf, recvcount, recvtype,));
    again("MPI_Alltoall_init", comm, request, move |c, ch| {
        let (sendbuf, sendcount, sendtype, recvbuf, recvcount, recvtype,) = *held.get();
        collective::alltoall(c, &data(sendbuf, sendcount, sendtype), &data(recvbuf, recvcount, recvtype), ch)
    })
}

pub unsafe fn MPI_Alltoallv(sendbuf: *const c_void, sendcounts: *const c_int, sdispls: *const c_int, sendtype: Datatype, recvbuf: *mut c_void, recvcounts: *const c_int, rdispls: *const c_int, recvtype: Datatype, comm: Comm) -> c_int {
    now("MPI_Alltoallv", comm, |c, ch| { let from = if in_place(sendbuf) { None } else { Some(blocks(c, sendbuf, sendcounts, sdispls, sendtype)?) }; collective::alltoallv(c, from.as_ref(), &blocks(c, recvbuf, recvcounts, rdispls, recvtype)?, ch) })
}

pub unsafe fn MPI_Ialltoallv(sendbuf: *const c_void, sendcounts: *const c_int, sdispls: *const c_int, sendtype: Datatype, recvbuf: *mut c_void, recvcounts: *const c_int, rdispls: *const c_int, recvtype: Datatype, comm: Comm, request: *mut Request) -> c_int {
    later("MPI_Ialltoallv", comm, request, |c, ch| { let from = if in_place(sendbuf) { None } else { Some(blocks(c, sendbuf, sendcounts, sdispls, sendtype)?) }; collective::alltoallv(c, from.as_ref(), &blocks(c, recvbuf, recvcounts, rdispls, recvtype)?, ch) })
}

pub unsafe fn MPI_Alltoallv_init(sendbuf: *const c_void, sendcounts: *const c_int, sdispls: *const c_int, sendtype: Datatype, recvbuf: *mut c_void, recvcounts: *const c_int, rdispls: *const c_int, recvtype: Datatype, comm: Comm, _info: Info, request: *mut Request) -> c_int {
    let held = Held((sendbuf, sendcounts, sdispls, sendtype, recvbuf, recvcounts, rdispls, recvtype,));
    again("MPI_Alltoallv_init", comm, request, move |c, ch| {
        let (sendbuf, sendcounts, sdispls, sendtype, recvbuf, recvcounts, rdispls, recvtype,) = *held.get();
        { let from = if in_place(sendbuf) { None } else { Some(blocks(c, sendbuf, sendcounts, sdispls, sendtype)?) }; collective::alltoallv(c, from.as_ref(), &blocks(c, recvbuf, recvcounts, rdispls, recvtype)?, ch) }
    })
}

pub unsafe fn MPI_Alltoallw(sendbuf: *const c_void, sendcounts: *const c_int, sdispls: *const c_int, sendtypes: *const Datatype, recvbuf: *mut c_void, recvcounts: *const c_int, rdispls: *const c_int, recvtypes: *const Datatype, comm: Comm) -> c_int {
    now("MPI_Alltoallw", comm, |c, ch| { let from = if in_place(sendbuf) { None } else { Some(mixed(c, sendbuf, sendcounts, sdispls, sendtypes)?) }; collective::alltoallv(c, from.as_ref(), &mixed(c, recvbuf, recvcounts, rdispls, recvtypes)?, ch) })
}

pub unsafe fn MPI_Ialltoallw(sendbuf: *const c_void, sendcounts: *const c_int, sdispls: *const c_int, sendtypes: *const Datatype, recvbuf: *mut c_void, recvcounts: *const c_int, rdispls: *const c_int, recvtypes: *const Datatype, comm: Comm, request: *mut Request) -> c_int {
    later("MPI_Ialltoallw", comm, request, |c, ch| { let from = if in_place(sendbuf) { None } else { Some(mixed(c, sendbuf, sendcounts, sdispls, sendtypes)?) }; collective::alltoallv(c, from.as_ref(), &mixed(c, recvbuf, recvcounts, rdispls, recvtypes)?, ch) })
}

pub unsafe fn MPI_Alltoallw_init(sendbuf: *const c_void, sendcounts: *const c_int, sdispls: *const c_int, sendtypes: *const Datatype, recvbuf: *mut c_void, recvcounts: *const c_int, rdispls: *const c_int, recvtypes: *const Datatype, comm: Comm, _info: Info, request: *mut Request) -> c_int {
    let held = Held((sendbuf, sendcounts, sdispls, sendtypes, recvbuf, recvcounts, rdispls, recvtypes,));
    again("MPI_Alltoallw_init", comm, request, move |c, ch| {
        let (sendbuf, sendcounts, sdispls, sendtypes, recvbuf, recvcounts, rdispls, recvtypes,) = *held.get();
        { let from = if in_place(sendbuf) { None } else { Some(mixed(c, sendbuf, sendcounts, sdispls, sendtypes)?) }; collective::alltoallv(c, from.as_ref(), &mixed(c, recvbuf, recvcounts, rdispls, recvtypes)?, ch) }
    })
}

pub unsafe fn MPI_Reduce(sendbuf: *const c_void, recvbuf: *mut c_void, count: c_int, datatype: Datatype, op: Op, root: c_int, comm: Comm) -> c_int {
    now("MPI_Reduce", comm, |c, ch| collective::reduce(c, sendbuf.cast_mut(), &data(recvbuf, count, datatype), op, root, ch))
}

pub unsafe fn MPI_Ireduce(sendbuf: *const c_void, recvbuf: *mut c_void, count: c_int, datatype: Datatype, op: Op, root: c_int, comm: Comm, request: *mut Request) -> c_int {
    later("MPI_Ireduce", comm, request, |c, ch| collective::reduce(c, sendbuf.cast_mut(), &data(recvbuf, count, datatype), op, root, ch))
}

pub unsafe fn MPI_Reduce_init(sendbuf: *const c_void, recvbuf: *mut c_void, count: c_int, datatype: Datatype, op: Op, root: c_int, comm: Comm, _info: Info, request: *mut Request) -> c_int {
    let held = Held((sendbuf, recvbuf, count, datatype, op, root,));
    again("MPI_Reduce_init", comm, request, move |c, ch| {
        let (sendbuf, recvbuf, count, datatype, op, root,) = *held.get();
        collective::reduce(c, sendbuf.cast_mut(), &data(recvbuf, count, datatype), op, root, ch)
    })
}

pub unsafe fn MPI_Allreduce(sendbuf: *const c_void, recvbuf: *mut c_void, count: c_int, datatype: Datatype, op: Op, comm: Comm) -> c_int {
    let done = comm::find(comm).and_then(|c| match c.remote {
        None => collective::allreduce_now("MPI_Allreduce", c, sendbuf.cast_mut(), &data(recvbuf, count, datatype), op),
        Some(_) => block("MPI_Allreduce", collective::allreduce(c, sendbuf.cast_mut(), &data(recvbuf, count, datatype), op, Channel::new(c)?)?),
    });
    finish_on(comm, "MPI_Allreduce", done)
}

pub unsafe fn MPI_Iallreduce(sendbuf: *const c_void, recvbuf: *mut c_void, count: c_int, datatype: Datatype, op: Op, comm: Comm, request: *mut Request) -> c_int {
    later("MPI_Iallreduce", comm, request, |c, ch| collective::allreduce(c, sendbuf.cast_mut(), &data(recvbuf, count, datatype), op, ch))
}

pub unsafe fn MPI_Allreduce_init(sendbuf: *const c_void, recvbuf: *mut c_void, count: c_int, datatype: Datatype, op: Op, comm: Comm, _info: Info, request: *mut Request) -> c_int {
    let held = Held((sendbuf, recvbuf, count, datatype, op,));
    again("MPI_Allreduce_init", comm, request, move |c, ch| {
        let (sendbuf, recvbuf, count, datatype, op,) = *held.get();
        collective::allreduce(c, sendbuf.cast_mut(), &data(recvbuf, count, datatype), op, ch)
    })
}

pub unsafe fn MPI_Reduce_scatter(sendbuf: *const c_void, recvbuf: *mut c_void, recvcounts: *const c_int, datatype: Datatype, op: Op, comm: Comm) -> c_int {
    now("MPI_Reduce_scatter", comm, |c, ch| collective::reduce_scatter(c, sendbuf.cast_mut(), &data(recvbuf, 0, datatype), &numbers("recvcounts", recvcounts, c.size() as usize)?, op, ch))
}

pub unsafe fn MPI_Ireduce_scatter(sendbuf: *const c_void, recvbuf: *mut c_void, recvcounts: *const c_int, datatype: Datatype, op: Op, comm: Comm, request: *mut Request) -> c_int {
    later("MPI_Ireduce_scatter", comm, request, |c, ch| collective::reduce_scatter(c, sendbuf.cast_mut(), &data(recvbuf, 0, datatype), &numbers("recvcounts", recvcounts, c.size() as usize)?, op, ch))
}

pub unsafe fn MPI_Reduce_scatter_init(sendbuf: *const c_void, recvbuf: *mut c_void, recvcounts: *const c_int, datatype: Datatype, op: Op, comm: Comm, _info: Info, request: *mut Request) -> c_int {
    let held = Held((sendbuf, recvbuf, recvcounts, datatype, op,));
    again("MPI_Reduce_scatter_init", comm, request, move |c, ch| {
        let (sendbuf, recvbuf, recvcounts, datatype, op,) = *held.get();
        collective::reduce_scatter(c, sendbuf.cast_mut(), &data(recvbuf, 0, datatype), &numbers("recvcounts", recvcounts, c.size() as usize)?, op, ch)
    })
}

pub unsafe fn MPI_Reduce_scatter_block(sendbuf: *const c_void, recvbuf: *mut c_void, recvcount: c_int, datatype: Datatype, op: Op, comm: Comm) -> c_int {
    now("MPI_Reduce_scatter_block", comm, |c, ch| collective::reduce_scatter(c, sendbuf.cast_mut(), &data(recvbuf, 0, datatype), &vec![recvcount.wide(); c.size() as usize], op, ch))
}

pub unsafe fn MPI_Ireduce_scatter_block(sendbuf: *const c_void, recvbuf: *mut c_void, recvcount: c_int, datatype: Datatype, op: Op, comm: Comm, request: *mut Request) -> c_int {
    later("MPI_Ireduce_scatter_block", comm, request, |c, ch| collective::reduce_scatter(c, sendbuf.cast_mut(), &data(recvbuf, 0, datatype), &vec![recvcount.wide(); c.size() as usize], op, ch))
}

pub unsafe fn MPI_Reduce_scatter_block_init(sendbuf: *const c_void, recvbuf: *mut c_void, recvcount: c_int, datatype: Datatype, op: Op, comm: Comm, _info: Info, request: *mut Request) -> c_int {
    let held = Held((sendbuf, recvbuf, recvcount, datatype, op,));
    again("MPI_Reduce_scatter_block_init", comm, request, move |c, ch| {
        let (sendbuf, recvbuf, recvcount, datatype, op,) = *held.get();
        collective::reduce_scatter(c, sendbuf.cast_mut(), &data(recvbuf, 0, datatype), &vec![recvcount.wide(); c.size() as usize], op, ch)
    })
}

pub unsafe fn MPI_Scan(sendbuf: *const c_void, recvbuf: *mut c_void, count: c_int, datatype: Datatype, op: Op, comm: Comm) -> c_int {
    now("MPI_Scan", comm, |c, ch| collective::scan(c, sendbuf.cast_mut(), &data(recvbuf, count, datatype), op, false, ch))
}

pub unsafe fn MPI_Iscan(sendbuf: *const c_void, recvbuf: *mut c_void, count: c_int, datatype: Datatype, op: Op, comm: Comm, request: *mut Request) -> c_int {
    later("MPI_Iscan", comm, request, |c, ch| collective::scan(c, sendbuf.cast_mut(), &data(recvbuf, count, datatype), op, false, ch))
}

pub unsafe fn MPI_Scan_init(sendbuf: *const c_void, recvbuf: *mut c_void, count: c_int, datatype: Datatype, op: Op, comm: Comm, _info: Info, request: *mut Request) -> c_int {
    let held = Held((sendbuf, recvbuf, count, datatype, op,));
    again("MPI_Scan_init", comm, request, move |c, ch| {
        let (sendbuf, recvbuf, count, datatype, op,) = *held.get();
        collective::scan(c, sendbuf.cast_mut(), &data(recvbuf, count, datatype), op, false, ch)
    })
}

pub unsafe fn MPI_Exscan(sendbuf: *const c_void, recvbuf: *mut c_void, count: c_int, datatype: Datatype, op: Op, comm: Comm) -> c_int {
    now("MPI_Exscan", comm, |c, ch| collective::scan(c, sendbuf.cast_mut(), &data(recvbuf, count, datatype), op, true, ch))
}

pub unsafe fn MPI_Iexscan(sendbuf: *const c_void, recvbuf: *mut c_void, count: c_int, datatype: Datatype, op: Op, comm: Comm, request: *mut Request) -> c_int {
    later("MPI_Iexscan", comm, request, |c, ch| collective::scan(c, sendbuf.cast_mut(), &data(recvbuf, count, datatype), op, true, ch))
}

pub unsafe fn MPI_Exscan_init(sendbuf: *const c_void, recvbuf: *mut c_void, count: c_int, datatype: Datatype, op: Op, comm: Comm, _info: Info, request: *mut Request) -> c_int {
    let held = Held((sendbuf, recvbuf, count, datatype, op,));
    again("MPI_Exscan_init", comm, request, move |c, ch| {
        let (sendbuf, recvbuf, count, datatype, op,) = *held.get();
        collective::scan(c, sendbuf.cast_mut(), &data(recvbuf, count, datatype), op, true, ch)
    })
}

pub unsafe fn MPI_Bcast_c(buffer: *mut c_void, count: i64, datatype: Datatype, root: c_int, comm: Comm) -> c_int {
    now("MPI_Bcast_c", comm, |c, ch| collective::bcast(c, &data(buffer, count, datatype), root, ch))
}

pub unsafe fn MPI_Ibcast_c(buffer: *mut c_void, count: i64, datatype: Datatype, root: c_int, comm: Comm, request: *mut Request) -> c_int {
    later("MPI_Ibcast_c", comm, request, |c, ch| collective::bcast(c, &data(buffer, count, datatype), root, ch))
}

pub unsafe fn MPI_Bcast_init_c(buffer: *mut c_void, count: i64, datatype: Datatype, root: c_int, comm: Comm, _info: Info, request: *mut Request) -> c_int {
    let held = Held((buffer, count, datatype, root,));
    again("MPI_Bcast_init_c", comm, request, move |c, ch| {
        let (buffer, count, datatype, root,) = *held.get();
        collective::bcast(c, &data(buffer, count, datatype), root, ch)
    })
}

pub unsafe fn MPI_Gather_c(sendbuf: *const c_void, sendcount: i64, sendtype: Datatype, recvbuf: *mut c_void, recvcount: i64, recvtype: Datatype, root: c_int, comm: Comm) -> c_int {
    now("MPI_Gather_c", comm, |c, ch| collective::gather(c, &data(sendbuf, sendcount, sendtype), &data(recvbuf, recvcount, recvtype), root, ch))
}

pub unsafe fn MPI_Igather_c(sendbuf: *const c_void, sendcount: i64, sendtype: Datatype, recvbuf: *mut c_void, recvcount: i64, recvtype: Datatype, root: c_int, comm: Comm, request: *mut Request) -> c_int {
    later("MPI_Igather_c", comm, request, |c, ch| collective::gather(c, &data(sendbuf, sendcount, sendtype), &data(recvbuf, recvcount, recvtype), root, ch))
}

pub unsafe fn MPI_Gather_init_c(sendbuf: *const c_void, sendcount: i64, sendtype: Datatype, recvbuf: *mut c_void, recvcount: i64, recvtype: Datatype, root: c_int, comm: Comm, _info: Info, request: *mut Request) -> c_int {
    let held = Held((sendbuf, sendcount, sendtype, recvbuf, recvcount, recvtype, root,));
    again("MPI_Gather_init_c", comm, request, move |c, ch| {
        let (sendbuf, sendcount, sendtype, recvbuf, recvcount, recvtype, root,) = *held.get();
        collective::gather(c, &data(sendbuf, sendcount, sendtype), &data(recvbuf, recvcount, recvtype), root, ch)
    })
}

pub unsafe fn MPI_Gatherv_c(sendbuf: *const c_void, sendcount: i64, sendtype: Datatype, recvbuf: *mut c_void, recvcounts: *const i64, displs: *const isize, recvtype: Datatype, root: c_int, comm: Comm) -> c_int {
    now("MPI_Gatherv_c", comm, |c, ch| { let into = if root == c.rank as c_int { Some(blocks(c, recvbuf, recvcounts, displs, recvtype)?) } else { None }; collective::gatherv(c, &data(sendbuf, sendcount, sendtype), into.as_ref(), root, ch) })
}

pub unsafe fn MPI_Igatherv_c(sendbuf: *const c_void, sendcount: i64, sendtype: Datatype, recvbuf: *mut c_void, recvcounts: *const i64, displs: *const isize, recvtype: Datatype, root: c_int, comm: Comm, request: *mut Request) -> c_int {
    later("MPI_Igatherv_c", comm, request, |c, ch| { let into = if root == c.rank as c_int { Some(blocks(c, recvbuf, recvcounts, displs, recvtype)?) } else { None }; collective::gatherv(c, &data(sendbuf, sendcount, sendtype), into.as_ref(), root, ch) })
}

pub unsafe fn MPI_Gatherv_init_c(sendbuf: *const c_void, sendcount: i64, sendtype: Datatype, recvbuf: *mut c_void, recvcounts: *const i64, displs: *const isize, recvtype: Datatype, root: c_int, comm: Comm, _info: Info, request: *mut Request) -> c_int {
    let held = Held((sendbuf, sendcount, sendtype, recvbuf, recvcounts, displs, recvtype, root,));
    again("MPI_Gatherv_init_c", comm, request, move |c, ch| {
        let (sendbuf, sendcount, sendtype, recvbuf, recvcounts, displs, recvtype, root,) = *held.get();
        { let into = if root == c.rank as c_int { Some(blocks(c, recvbuf, recvcounts, displs, recvtype)?) } else { None }; collective::gatherv(c, &data(sendbuf, sendcount, sendtype), into.as_ref(), root, ch) }
    })
}

pub unsafe fn MPI_Scatter_c(sendbuf: *const c_void, sendcount: i64, sendtype: Datatype, recvbuf: *mut c_void, recvcount: i64, recvtype: Datatype, root: c_int, comm: Comm) -> c_int {
    now("MPI_Scatter_c", comm, |c, ch| collective::scatter(c, &data(sendbuf, sendcount, sendtype), &data(recvbuf, recvcount, recvtype), root, ch))
}

pub unsafe fn MPI_Iscatter_c(sendbuf: *const c_void, sendcount: i64, sendtype: Datatype, recvbuf: *mut c_void, recvcount: i64, recvtype: Datatype, root: c_int, comm: Comm, request: *mut Request) -> c_int {
    later("MPI_Iscatter_c", comm, request, |c, ch| collective::scatter(c, &data(sendbuf, sendcount, sendtype), &data(recvbuf, recvcount, recvtype), root, ch))
}

pub unsafe fn MPI_Scatter_init_c(sendbuf: *const c_void, sendcount: i64, sendtype: Datatype, recvbuf: *mut c_void, recvcount: i64, recvtype: Datatype, root: c_int, comm: Comm, _info: Info, request: *mut Request) -> c_int {
    let held = Held((sendbuf, sendcount, sendtype, recvbuf, recvcount, recvtype, root,));
    again("MPI_Scatter_init_c", comm, request, move |c, ch| {
        let (sendbuf, sendcount, sendtype, recvbuf, recvcount, recvtype, root,) = *held.get();
        collective::scatter(c, &data(sendbuf, sendcount, sendtype), &data(recvbuf, recvcount, recvtype), root, ch)
    })
}

pub unsafe fn MPI_Scatterv_c(sendbuf: *const c_void, sendcounts: *const i64, displs: *const isize, sendtype: Datatype, recvbuf: *mut c_void, recvcount: i64, recvtype: Datatype, root: c_int, comm: Comm) -> c_int {
    now("MPI_Scatterv_c", comm, |c, ch| { let from = if root == c.rank as c_int { Some(blocks(c, sendbuf, sendcounts, displs, sendtype)?) } else { None }; collective::scatterv(c, from.as_ref(), &data(recvbuf, recvcount, recvtype), root, ch) })
}

pub unsafe fn MPI_Iscatterv_c(sendbuf: *const c_void, sendcounts: *const i64, displs: *const isize, sendtype: Datatype, recvbuf: *mut c_void, recvcount: i64, recvtype: Datatype, root: c_int, comm: Comm, request: *mut Request) -> c_int {
    later("MPI_Iscatterv_c", comm, request, |c, ch| { let from = if root == c.rank as c_int { Some(blocks(c, sendbuf, sendcounts, displs, sendtype)?) } else { None }; collective::scatterv(c, from.as_ref(), &data(recvbuf, recvcount, recvtype), root, ch) })
}

pub unsafe fn MPI_Scatterv_init_c(sendbuf: *const c_void, sendcounts: *const i64, displs: *const isize, sendtype: Datatype, recvbuf: *mut c_void, recvcount: i64, recvtype: Datatype, root: c_int, comm: Comm, _info: Info, request: *mut Request) -> c_int {
    let held = Held((sendbuf, sendcounts, displs, sendtype, recvbuf, recvcount, recvtype, root,));
    again("MPI_Scatterv_init_c", comm, request, move |c, ch| {
        let (sendbuf, sendcounts, displs, sendtype, recvbuf, recvcount, recvtype, root,) = *held.get();
        { let from = if root == c.rank as c_int { Some(blocks(c, sendbuf, sendcounts, displs, sendtype)?) } else { None }; collective::scatterv(c, from.as_ref(), &data(recvbuf, recvcount, recvtype), root, ch) }
    })
}

pub unsafe fn MPI_Allgather_c(sendbuf: *const c_void, sendcount: i64, sendtype: Datatype, recvbuf: *mut c_void, recvcount: i64, recvtype: Datatype, comm: Comm) -> c_int {
    now("MPI_Allgather_c", comm, |c, ch| collective::allgather(c, &data(sendbuf, sendcount, sendtype), &data(recvbuf, recvcount, recvtype), ch))
}

pub unsafe fn MPI_Iallgather_c(sendbuf: *const c_void, sendcount: i64, sendtype: Datatype, recvbuf: *mut c_void, recvcount: i64, recvtype: Datatype, comm: Comm, request: *mut Request) -> c_int {
    later("MPI_Iallgather_c", comm, request, |c, ch| collective::allgather(c, &data(sendbuf, sendcount, sendtype), &data(recvbuf, recvcount, recvtype), ch))
}

pub unsafe fn MPI_Allgather_init_c(sendbuf: *const c_void, sendcount: i64, sendtype: Datatype, recvbuf: *mut c_void, recvcount: i64, recvtype: Datatype, comm: Comm, _info: Info, request: *mut Request) -> c_int {
    let held = Held((sendbuf, sendcount, sendtype, recvbuf, recvcount, recvtype,));
    again("MPI_Allgather_init_c", comm, request, move |c, ch| {
        let (sendbuf, sendcount, sendtype, recvbuf, recvcount, recvtype,) = *held.get();
        collective::allgather(c, &data(sendbuf, sendcount, sendtype), &data(recvbuf, recvcount, recvtype), ch)
    })
}

pub unsafe fn MPI_Allgatherv_c(sendbuf: *const c_void, sendcount: i64, sendtype: Datatype, recvbuf: *mut c_void, recvcounts: *const i64, displs: *const isize, recvtype: Datatype, comm: Comm) -> c_int {
    now("MPI_Allgatherv_c", comm, |c, ch| collective::allgatherv(c, &data(sendbuf, sendcount, sendtype), &blocks(c, recvbuf, recvcounts, displs, recvtype)?, ch))
}

pub unsafe fn MPI_Iallgatherv_c(sendbuf: *const c_void, sendcount: i64, sendtype: Datatype, recvbuf: *mut c_void, recvcounts: *const i64, displs: *const isize, recvtype: Datatype, comm: Comm, request: *mut Request) -> c_int {
    later("MPI_Iallgatherv_c", comm, request, |c, ch| collective::allgatherv(c, &data(sendbuf, sendcount, sendtype), &blocks(c, recvbuf, recvcounts, displs, recvtype)?, ch))
}

pub unsafe fn MPI_Allgatherv_init_c(sendbuf: *const c_void, sendcount: i64, sendtype: Datatype, recvbuf: *mut c_void, recvcounts: *const i64, displs: *const isize, recvtype: Datatype, comm: Comm, _info: Info, request: *mut Request) -> c_int {
    let held = Held((sendbuf, sendcount, sendtype, recvbuf, recvcounts, displs, recvtype,));
    again("MPI_Allgatherv_init_c", comm, request, move |c, ch| {
        let (sendbuf, sendcount, sendtype, recvbuf, recvcounts, displs, recvtype,) = *held.get();
        collective::allgatherv(c, &data(sendbuf, sendcount, sendtype), &blocks(c, recvbuf, recvcounts, displs, recvtype)?, ch)
    })
}

pub unsafe fn MPI_Alltoall_c(sendbuf: *const c_void, sendcount: i64, sendtype: Datatype, recvbuf: *mut c_void, recvcount: i64, recvtype: Datatype, comm: Comm) -> c_int {
    now("MPI_Alltoall_c", comm, |c, ch| collective::alltoall(c, &data(sendbuf, sendcount, sendtype), &data(recvbuf, recvcount, recvtype), ch))
}

pub unsafe fn MPI_Ialltoall_c(sendbuf: *const c_void, sendcount: i64, sendtype: Datatype, recvbuf: *mut c_void, recvcount: i64, recvtype: Datatype, comm: Comm, request: *mut Request) -> c_int {
    later("MPI_Ialltoall_c", comm, request, |c, ch| collective::alltoall(c, &data(sendbuf, sendcount, sendtype), &data(recvbuf, recvcount, recvtype), ch))
}

pub unsafe fn MPI_Alltoall_init_c(sendbuf: *const c_void, sendcount: i64, sendtype: Datatype, recvbuf: *mut c_void, recvcount: i64, recvtype: Datatype, comm: Comm, _info: Info, request: *mut Request) -> c_int {
    let held = Held((sendbuf, sendcount, sendtype, recvbuf, recvcount, recvtype,));
    again("MPI_Alltoall_init_c", comm, request, move |c, ch| {
        let (sendbuf, sendcount, sendtype, recvbuf, recvcount, recvtype,) = *held.get();
        collective::alltoall(c, &data(sendbuf, sendcount, sendtype), &data(recvbuf, recvcount, recvtype), ch)
    })
}

pub unsafe fn MPI_Alltoallv_c(sendbuf: *const c_void, sendcounts: *const i64, sdispls: *const isize, sendtype: Datatype, recvbuf: *mut c_void, recvcounts: *const i64, rdispls: *const isize, recvtype: Datatype, comm: Comm) -> c_int {
    now("MPI_Alltoallv_c", comm, |c, ch| { let from = if in_place(sendbuf) { None } else { Some(blocks(c, sendbuf, sendcounts, sdispls, sendtype)?) }; collective::alltoallv(c, from.as_ref(), &blocks(c, recvbuf, recvcounts, rdispls, recvtype)?, ch) })
}

pub unsafe fn MPI_Ialltoallv_c(sendbuf: *const c_void, sendcounts: *const i64, sdispls: *const isize, sendtype: Datatype, recvbuf: *mut c_void, recvcounts: *const i64, rdispls: *const isize, recvtype: Datatype, comm: Comm, request: *mut Request) -> c_int {
    later("MPI_Ialltoallv_c", comm, request, |c, ch| { let from = if in_place(sendbuf) { None } else { Some(blocks(c, sendbuf, sendcounts, sdispls, sendtype)?) }; collective::alltoallv(c, from.as_ref(), &blocks(c, recvbuf, recvcounts, rdispls, recvtype)?, ch) })
}

pub unsafe fn MPI_Alltoallv_init_c(sendbuf: *const c_void, sendcounts: *const i64, sdispls: *const isize, sendtype: Datatype, recvbuf: *mut c_void, recvcounts: *const i64, rdispls: *const isize, recvtype: Datatype, comm: Comm, _info: Info, request: *mut Request) -> c_int {
    let held = Held((sendbuf, sendcounts, sdispls, sendtype, recvbuf, recvcounts, rdispls, recvtype,));
    again("MPI_Alltoallv_init_c", comm, request, move |c, ch| {
        let (sendbuf, sendcounts, sdispls, sendtype, recvbuf, recvcounts, rdispls, recvtype,) = *held.get();
        { let from = if in_place(sendbuf) { None } else { Some(blocks(c, sendbuf, sendcounts, sdispls, sendtype)?) }; collective::alltoallv(c, from.as_ref(), &blocks(c, recvbuf, recvcounts, rdispls, recvtype)?, ch) }
    })
}

pub unsafe fn MPI_Alltoallw_c(sendbuf: *const c_void, sendcounts: *const i64, sdispls: *const isize, sendtypes: *const Datatype, recvbuf: *mut c_void, recvcounts: *const i64, rdispls: *const isize, recvtypes: *const Datatype, comm: Comm) -> c_int {
    now("MPI_Alltoallw_c", comm, |c, ch| { let from = if in_place(sendbuf) { None } else { Some(mixed(c, sendbuf, sendcounts, sdispls, sendtypes)?) }; collective::alltoallv(c, from.as_ref(), &mixed(c, recvbuf, recvcounts, rdispls, recvtypes)?, ch) })
}

pub unsafe fn MPI_Ialltoallw_c(sendbuf: *const c_void, sendcounts: *const i64, sdispls: *const isize, sendtypes: *const Datatype, recvbuf: *mut c_void, recvcounts: *const i64, rdispls: *const isize, recvtypes: *const Datatype, comm: Comm, request: *mut Request) -> c_int {
    later("MPI_Ialltoallw_c", comm, request, |c, ch| { let from = if in_place(sendbuf) { None } else { Some(mixed(c, sendbuf, sendcounts, sdispls, sendtypes)?) }; collective::alltoallv(c, from.as_ref(), &mixed(c, recvbuf, recvcounts, rdispls, recvtypes)?, ch) })
}

pub unsafe fn MPI_Alltoallw_init_c(sendbuf: *const c_void, sendcounts: *const i64, sdispls: *const isize, sendtypes: *const Datatype, recvbuf: *mut c_void, recvcounts: *const i64, rdispls: *const isize, recvtypes: *const Datatype, comm: Comm, _info: Info, request: *mut Request) -> c_int {
    let held = Held((sendbuf, sendcounts, sdispls, sendtypes, recvbuf, recvcounts, rdispls, recvtypes,));
    again("MPI_Alltoallw_init_c", comm, request, move |c, ch| {
        let (sendbuf, sendcounts, sdispls, sendtypes, recvbuf, recvcounts, rdispls, recvtypes,) = *held.get();
        { let from = if in_place(sendbuf) { None } else { Some(mixed(c, sendbuf, sendcounts, sdispls, sendtypes)?) }; collective::alltoallv(c, from.as_ref(), &mixed(c, recvbuf, recvcounts, rdispls, recvtypes)?, ch) }
    })
}

pub unsafe fn MPI_Reduce_c(sendbuf: *const c_void, recvbuf: *mut c_void, count: i64, datatype: Datatype, op: Op, root: c_int, comm: Comm) -> c_int {
    now("MPI_Reduce_c", comm, |c, ch| collective::reduce(c, sendbuf.cast_mut(), &data(recvbuf, count, datatype), op, root, ch))
}

pub unsafe fn MPI_Ireduce_c(sendbuf: *const c_void, recvbuf: *mut c_void, count: i64, datatype: Datatype, op: Op, root: c_int, comm: Comm, request: *mut Request) -> c_int {
    later("MPI_Ireduce_c", comm, request, |c, ch| collective::reduce(c, sendbuf.cast_mut(), &data(recvbuf, count, datatype), op, root, ch))
}

pub unsafe fn MPI_Reduce_init_c(sendbuf: *const c_void, recvbuf: *mut c_void, count: i64, datatype: Datatype, op: Op, root: c_int, comm: Comm, _info: Info, request: *mut Request) -> c_int {
    let held = Held((sendbuf, recvbuf, count, datatype, op, root,));
    again("MPI_Reduce_init_c", comm, request, move |c, ch| {
        let (sendbuf, recvbuf, count, datatype, op, root,) = *held.get();
        collective::reduce(c, sendbuf.cast_mut(), &data(recvbuf, count, datatype), op, root, ch)
    })
}

pub unsafe fn MPI_Allreduce_c(sendbuf: *const c_void, recvbuf: *mut c_void, count: i64, datatype: Datatype, op: Op, comm: Comm) -> c_int {
    let done = comm::find(comm).and_then(|c| match c.remote {
        None => collective::allreduce_now("MPI_Allreduce_c", c, sendbuf.cast_mut(), &data(recvbuf, count, datatype), op),
        Some(_) => block("MPI_Allreduce_c", collective::allreduce(c, sendbuf.cast_mut(), &data(recvbuf, count, datatype), op, Channel::new(c)?)?),
    });
    finish_on(comm, "MPI_Allreduce_c", done)
}

pub unsafe fn MPI_Iallreduce_c(sendbuf: *const c_void, recvbuf: *mut c_void, count: i64, datatype: Datatype, op: Op, comm: Comm, request: *mut Request) -> c_int {
    later("MPI_Iallreduce_c", comm, request, |c, ch| collective::allreduce(c, sendbuf.cast_mut(), &data(recvbuf, count, datatype), op, ch))
}

pub unsafe fn MPI_Allreduce_init_c(sendbuf: *const c_void, recvbuf: *mut c_void, count: i64, datatype: Datatype, op: Op, comm: Comm, _info: Info, request: *mut Request) -> c_int {
    let held = Held((sendbuf, recvbuf, count, datatype, op,));
    again("MPI_Allreduce_init_c", comm, request, move |c, ch| {
        let (sendbuf, recvbuf, count, datatype, op,) = *held.get();
        collective::allreduce(c, sendbuf.cast_mut(), &data(recvbuf, count, datatype), op, ch)
    })
}

pub unsafe fn MPI_Reduce_scatter_c(sendbuf: *const c_void, recvbuf: *mut c_void, recvcounts: *const i64, datatype: Datatype, op: Op, comm: Comm) -> c_int {
    now("MPI_Reduce_scatter_c", comm, |c, ch| collective::reduce_scatter(c, sendbuf.cast_mut(), &data(recvbuf, 0, datatype), &numbers("recvcounts", recvcounts, c.size() as usize)?, op, ch))
}

pub unsafe fn MPI_Ireduce_scatter_c(sendbuf: *const c_void, recvbuf: *mut c_void, recvcounts: *const i64, datatype: Datatype, op: Op, comm: Comm, request: *mut Request) -> c_int {
    later("MPI_Ireduce_scatter_c", comm, request, |c, ch| collective::reduce_scatter(c, sendbuf.cast_mut(), &data(recvbuf, 0, datatype), &numbers("recvcounts", recvcounts, c.size() as usize)?, op, ch))
}

pub unsafe fn MPI_Reduce_scatter_init_c(sendbuf: *const c_void, recvbuf: *mut c_void, recvcounts: *const i64, datatype: Datatype, op: Op, comm: Comm, _info: Info, request: *mut Request) -> c_int {
    let held = Held((sendbuf, recvbuf, recvcounts, datatype, op,));
    again("MPI_Reduce_scatter_init_c", comm, request, move |c, ch| {
        let (sendbuf, recvbuf, recvcounts, datatype, op,) = *held.get();
        collective::reduce_scatter(c, sendbuf.cast_mut(), &data(recvbuf, 0, datatype), &numbers("recvcounts", recvcounts, c.size() as usize)?, op, ch)
    })
}

pub unsafe fn MPI_Reduce_scatter_block_c(sendbuf: *const c_void, recvbuf: *mut c_void, recvcount: i64, datatype: Datatype, op: Op, comm: Comm) -> c_int {
    now("MPI_Reduce_scatter_block_c", comm, |c, ch| collective::reduce_scatter(c, sendbuf.cast_mut(), &data(recvbuf, 0, datatype), &vec![recvcount.wide(); c.size() as usize], op, ch))
}

pub unsafe fn MPI_Ireduce_scatter_block_c(sendbuf: *const c_void, recvbuf: *mut c_void, recvcount: i64, datatype: Datatype, op: Op, comm: Comm, request: *mut Request) -> c_int {
    later("MPI_Ireduce_scatter_block_c", comm, request, |c, ch| collective::reduce_scatter(c, sendbuf.cast_mut(), &data(recvbuf, 0, datatype), &vec![recvcount.wide(); c.size() as usize], op, ch))
}

pub unsafe fn MPI_Reduce_scatter_block_init_c(sendbuf: *const c_void, recvbuf: *mut c_void, recvcount: i64, datatype: Datatype, op: Op, comm: Comm, _info: Info, request: *mut Request) -> c_int {
    let held = Held((sendbuf, recvbuf, recvcount, datatype, op,));
    again("MPI_Reduce_scatter_block_init_c", comm, request, move |c, ch| {
        let (sendbuf, recvbuf, recvcount, datatype, op,) = *held.get();
        collective::reduce_scatter(c, sendbuf.cast_mut(), &data(recvbuf, 0, datatype), &vec![recvcount.wide(); c.size() as usize], op, ch)
    })
}

pub unsafe fn MPI_Scan_c(sendbuf: *const c_void, recvbuf: *mut c_void, count: i64, datatype: Datatype, op: Op, comm: Comm) -> c_int {
    now("MPI_Scan_c", comm, |c, ch| collective::scan(c, sendbuf.cast_mut(), &data(recvbuf, count, datatype), op, false, ch))
}

pub unsafe fn MPI_Iscan_c(sendbuf: *const c_void, recvbuf: *mut c_void, count: i64, datatype: Datatype, op: Op, comm: Comm, request: *mut Request) -> c_int {
    later("MPI_Iscan_c", comm, request, |c, ch| collective::scan(c, sendbuf.cast_mut(), &data(recvbuf, count, datatype), op, false, ch))
}

pub unsafe fn MPI_Scan_init_c(sendbuf: *const c_void, recvbuf: *mut c_void, count: i64, datatype: Datatype, op: Op, comm: Comm, _info: Info, request: *mut Request) -> c_int {
    let held = Held((sendbuf, recvbuf, count, datatype, op,));
    again("MPI_Scan_init_c", comm, request, move |c, ch| {
        let (sendbuf, recvbuf, count, datatype, op,) = *held.get();
        collective::scan(c, sendbuf.cast_mut(), &data(recvbuf, count, datatype), op, false, ch)
    })
}

pub unsafe fn MPI_Exscan_c(sendbuf: *const c_void, recvbuf: *mut c_void, count: i64, datatype: Datatype, op: Op, comm: Comm) -> c_int {
    now("MPI_Exscan_c", comm, |c, ch| collective::scan(c, sendbuf.cast_mut(), &data(recvbuf, count, datatype), op, true, ch))
}

pub unsafe fn MPI_Iexscan_c(sendbuf: *const c_void, recvbuf: *mut c_void, count: i64, datatype: Datatype, op: Op, comm: Comm, request: *mut Request) -> c_int {
    later("MPI_Iexscan_c", comm, request, |c, ch| collective::scan(c, sendbuf.cast_mut(), &data(recvbuf, count, datatype), op, true, ch))
}

pub unsafe fn MPI_Exscan_init_c(sendbuf: *const c_void, recvbuf: *mut c_void, count: i64, datatype: Datatype, op: Op, comm: Comm, _info: Info, request: *mut Request) -> c_int {
    let held = Held((sendbuf, recvbuf, count, datatype, op,));
    again("MPI_Exscan_init_c", comm, request, move |c, ch| {
        let (sendbuf, recvbuf, count, datatype, op,) = *held.get();
        collective::scan(c, sendbuf.cast_mut(), &data(recvbuf, count, datatype), op, true, ch)
    })
}

/// Arguments that a persistent collective keeps until it is freed.
struct Held<T>(T);

// SAFETY: addresses that the program lends to the operation from its making to its freeing (MPI-5.0 §6.13).
unsafe impl<T> Send for Held<T> {}
// SAFETY: as above.
unsafe impl<T> Sync for Held<T> {}

impl<T> Held<T> {
    fn get(&self) -> &T {
        &self.0
    }
}

pub unsafe fn MPI_Barrier(comm: Comm) -> c_int {
    finish_on(comm, "MPI_Barrier", comm::find(comm).and_then(|c| collective::barrier(c, "MPI_Barrier")))
}

pub unsafe fn MPI_Ibarrier(comm: Comm, request: *mut Request) -> c_int {
    later("MPI_Ibarrier", comm, request, collective::barrier_of)
}

pub unsafe fn MPI_Barrier_init(comm: Comm, _info: Info, request: *mut Request) -> c_int {
    again("MPI_Barrier_init", comm, request, collective::barrier_of)
}

pub unsafe fn MPI_Reduce_local(inbuf: *const c_void, inoutbuf: *mut c_void, count: c_int, datatype: Datatype, op: Op) -> c_int {
    crate::finish("MPI_Reduce_local", collective::reduce_local(inbuf.cast_mut(), &data(inoutbuf, count, datatype), op))
}

pub unsafe fn MPI_Reduce_local_c(inbuf: *const c_void, inoutbuf: *mut c_void, count: i64, datatype: Datatype, op: Op) -> c_int {
    crate::finish("MPI_Reduce_local_c", collective::reduce_local(inbuf.cast_mut(), &data(inoutbuf, count, datatype), op))
}
