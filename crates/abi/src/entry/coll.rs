//! Collective communication (MPI-5.0 chapter 6): each is a plan, from which the exported symbols make the blocking, nonblocking and persistent forms.

use crate::args::{Number, numbers, room, slice};
use crate::finish_on;
use mpi::call::Kind;
use mpi::collective::{self, Blocks, Data, Each, Plan, Types, in_place};
use mpi::comm::{self, Comm as Communicator};
use mpi::consts::*;
use mpi::error::{Error, Result};
use mpi::handle::*;
use mpi::{info as infos, later, request};
use std::ffi::{c_int, c_void};

pub(super) fn data(start: *const c_void, count: impl Number, datatype: Datatype) -> Data {
    Data { start: start.cast_mut(), count: count.wide(), datatype }
}

/// `n` blocks of one datatype.
pub(super) unsafe fn alike<N: Number, D: Number>(n: usize, start: *const c_void, counts: *const N, displs: *const D, datatype: Datatype) -> Result<Blocks> {
    Ok(Blocks {
        start: start.cast_mut(),
        counts: numbers(counts, n, "counts")?,
        displacements: numbers(displs, n, "displs")?,
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
    Ok(Blocks { start: start.cast_mut(), counts: numbers(counts, n, "counts")?, displacements: numbers(displs, n, "displs")?, datatypes })
}

/// The same blocks as [`alike`], read where they are needed. `None`: an array is null.
unsafe fn given<N: Number, D: Number>(
    start: *const c_void,
    counts: *const N,
    displs: *const D,
    datatype: Datatype,
) -> Option<Each<impl Fn(usize) -> (i64, i64)>> {
    if counts.is_null() || displs.is_null() {
        return None;
    }
    let of = move |rank: usize| ((*counts.add(rank)).wide(), (*displs.add(rank)).wide());
    Some(Each { start: start.cast_mut(), datatype, of })
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
pub fn now<P: Plan>(function: &'static str, comm: Comm, make: impl FnOnce(&'static Communicator) -> Result<P>) -> c_int {
    finish_on(comm, function, comm::find(comm).and_then(|c| collective::blocking(function, c, make(c))))
}

/// Starts a collective.
pub unsafe fn later<P: Plan>(function: &'static str, comm: Comm, request: *mut Request, make: impl FnOnce(&'static Communicator) -> Result<P>) -> c_int {
    let made = comm::find(comm).and_then(|c| {
        room(request, "request")?;
        later::start(function, c, make(c)?)
    });
    finish_on(comm, function, made.map(|r| *request = r))
}

/// Makes a collective that can be started again and again. All ranks make them in the same order, and that is what matches.
pub unsafe fn again<P: Plan>(
    function: &'static str,
    comm: Comm,
    info: Info,
    request: *mut Request,
    make: impl FnOnce(&'static Communicator) -> Result<P>,
) -> c_int {
    let made = comm::find(comm).and_then(|c| {
        room(request, "request")?;
        infos::hints(info)?;
        request::task_init(Some(comm), collective::starter(function, c, make(c)?)?)
    });
    finish_on(comm, function, made.map(|r| *request = r))
}

pub unsafe fn MPI_Barrier(comm: Comm) -> c_int {
    finish_on(comm, "MPI_Barrier", comm::find(comm).and_then(|c| collective::barrier(c, "MPI_Barrier", Kind::Barrier)))
}

pub unsafe fn MPI_Barrier_plan(c: &'static Communicator) -> Result<impl Plan> {
    collective::barrier_plan(c)
}

pub unsafe fn MPI_Reduce_local<N: Number>(function: &'static str, inbuf: *const c_void, inoutbuf: *mut c_void, count: N, datatype: Datatype, op: Op) -> c_int {
    crate::finish(function, collective::reduce_local(inbuf.cast_mut(), data(inoutbuf, count, datatype), op))
}

pub unsafe fn MPI_Bcast<N: Number>(function: &'static str, buffer: *mut c_void, count: N, datatype: Datatype, root: c_int, comm: Comm) -> c_int {
    finish_on(comm, function, comm::find(comm).and_then(|c| collective::bcast_now(function, c, data(buffer, count, datatype), root)))
}

pub unsafe fn MPI_Bcast_plan<N: Number>(c: &'static Communicator, buffer: *mut c_void, count: N, datatype: Datatype, root: c_int) -> Result<impl Plan> {
    collective::bcast(c, data(buffer, count, datatype), root)
}

pub unsafe fn MPI_Gather<N: Number>(
    function: &'static str,
    sendbuf: *const c_void,
    sendcount: N,
    sendtype: Datatype,
    recvbuf: *mut c_void,
    recvcount: N,
    recvtype: Datatype,
    root: c_int,
    comm: Comm,
) -> c_int {
    finish_on(
        comm,
        function,
        comm::find(comm).and_then(|c| collective::gather_now(function, c, data(sendbuf, sendcount, sendtype), data(recvbuf, recvcount, recvtype), root)),
    )
}

pub unsafe fn MPI_Gather_plan<N: Number>(
    c: &'static Communicator,
    sendbuf: *const c_void,
    sendcount: N,
    sendtype: Datatype,
    recvbuf: *mut c_void,
    recvcount: N,
    recvtype: Datatype,
    root: c_int,
) -> Result<impl Plan> {
    collective::gather(c, data(sendbuf, sendcount, sendtype), data(recvbuf, recvcount, recvtype), root)
}

pub unsafe fn MPI_Gatherv<N: Number, D: Number>(
    function: &'static str,
    sendbuf: *const c_void,
    sendcount: N,
    sendtype: Datatype,
    recvbuf: *mut c_void,
    recvcounts: *const N,
    displs: *const D,
    recvtype: Datatype,
    root: c_int,
    comm: Comm,
) -> c_int {
    let done = comm::find(comm).and_then(|c| {
        let recv = given(recvbuf, recvcounts, displs, recvtype);
        let plan = || MPI_Gatherv_plan(c, sendbuf, sendcount, sendtype, recvbuf, recvcounts, displs, recvtype, root);
        collective::gatherv_now(function, c, data(sendbuf, sendcount, sendtype), recv, root, plan)
    });
    finish_on(comm, function, done)
}

pub unsafe fn MPI_Gatherv_plan<N: Number, D: Number>(
    c: &'static Communicator,
    sendbuf: *const c_void,
    sendcount: N,
    sendtype: Datatype,
    recvbuf: *mut c_void,
    recvcounts: *const N,
    displs: *const D,
    recvtype: Datatype,
    root: c_int,
) -> Result<impl Plan> {
    collective::gatherv(c, data(sendbuf, sendcount, sendtype), at_root(c, root, || blocks(c, recvbuf, recvcounts, displs, recvtype))?, root)
}

pub unsafe fn MPI_Scatter<N: Number>(
    function: &'static str,
    sendbuf: *const c_void,
    sendcount: N,
    sendtype: Datatype,
    recvbuf: *mut c_void,
    recvcount: N,
    recvtype: Datatype,
    root: c_int,
    comm: Comm,
) -> c_int {
    finish_on(
        comm,
        function,
        comm::find(comm).and_then(|c| collective::scatter_now(function, c, data(sendbuf, sendcount, sendtype), data(recvbuf, recvcount, recvtype), root)),
    )
}

pub unsafe fn MPI_Scatter_plan<N: Number>(
    c: &'static Communicator,
    sendbuf: *const c_void,
    sendcount: N,
    sendtype: Datatype,
    recvbuf: *mut c_void,
    recvcount: N,
    recvtype: Datatype,
    root: c_int,
) -> Result<impl Plan> {
    collective::scatter(c, data(sendbuf, sendcount, sendtype), data(recvbuf, recvcount, recvtype), root)
}

pub unsafe fn MPI_Scatterv<N: Number, D: Number>(
    function: &'static str,
    sendbuf: *const c_void,
    sendcounts: *const N,
    displs: *const D,
    sendtype: Datatype,
    recvbuf: *mut c_void,
    recvcount: N,
    recvtype: Datatype,
    root: c_int,
    comm: Comm,
) -> c_int {
    let done = comm::find(comm).and_then(|c| {
        let send = given(sendbuf, sendcounts, displs, sendtype);
        let plan = || MPI_Scatterv_plan(c, sendbuf, sendcounts, displs, sendtype, recvbuf, recvcount, recvtype, root);
        collective::scatterv_now(function, c, send, data(recvbuf, recvcount, recvtype), root, plan)
    });
    finish_on(comm, function, done)
}

pub unsafe fn MPI_Scatterv_plan<N: Number, D: Number>(
    c: &'static Communicator,
    sendbuf: *const c_void,
    sendcounts: *const N,
    displs: *const D,
    sendtype: Datatype,
    recvbuf: *mut c_void,
    recvcount: N,
    recvtype: Datatype,
    root: c_int,
) -> Result<impl Plan> {
    collective::scatterv(c, at_root(c, root, || blocks(c, sendbuf, sendcounts, displs, sendtype))?, data(recvbuf, recvcount, recvtype), root)
}

pub unsafe fn MPI_Allgather_plan<N: Number>(
    c: &'static Communicator,
    sendbuf: *const c_void,
    sendcount: N,
    sendtype: Datatype,
    recvbuf: *mut c_void,
    recvcount: N,
    recvtype: Datatype,
) -> Result<impl Plan> {
    collective::allgather(c, data(sendbuf, sendcount, sendtype), data(recvbuf, recvcount, recvtype))
}

pub unsafe fn MPI_Allgatherv<N: Number, D: Number>(
    function: &'static str,
    sendbuf: *const c_void,
    sendcount: N,
    sendtype: Datatype,
    recvbuf: *mut c_void,
    recvcounts: *const N,
    displs: *const D,
    recvtype: Datatype,
    comm: Comm,
) -> c_int {
    let done = comm::find(comm).and_then(|c| {
        let recv = given(recvbuf, recvcounts, displs, recvtype);
        let plan = || MPI_Allgatherv_plan(c, sendbuf, sendcount, sendtype, recvbuf, recvcounts, displs, recvtype);
        collective::allgatherv_now(function, c, data(sendbuf, sendcount, sendtype), recv, plan)
    });
    finish_on(comm, function, done)
}

pub unsafe fn MPI_Allgatherv_plan<N: Number, D: Number>(
    c: &'static Communicator,
    sendbuf: *const c_void,
    sendcount: N,
    sendtype: Datatype,
    recvbuf: *mut c_void,
    recvcounts: *const N,
    displs: *const D,
    recvtype: Datatype,
) -> Result<impl Plan> {
    collective::allgatherv(c, data(sendbuf, sendcount, sendtype), blocks(c, recvbuf, recvcounts, displs, recvtype)?)
}

pub unsafe fn MPI_Alltoall_plan<N: Number>(
    c: &'static Communicator,
    sendbuf: *const c_void,
    sendcount: N,
    sendtype: Datatype,
    recvbuf: *mut c_void,
    recvcount: N,
    recvtype: Datatype,
) -> Result<impl Plan> {
    collective::alltoall(c, data(sendbuf, sendcount, sendtype), data(recvbuf, recvcount, recvtype))
}

pub unsafe fn MPI_Alltoallv<N: Number, D: Number>(
    function: &'static str,
    sendbuf: *const c_void,
    sendcounts: *const N,
    sdispls: *const D,
    sendtype: Datatype,
    recvbuf: *mut c_void,
    recvcounts: *const N,
    rdispls: *const D,
    recvtype: Datatype,
    comm: Comm,
) -> c_int {
    let done = comm::find(comm).and_then(|c| {
        let (send, recv) = (given(sendbuf, sendcounts, sdispls, sendtype), given(recvbuf, recvcounts, rdispls, recvtype));
        let plan = || MPI_Alltoallv_plan(c, sendbuf, sendcounts, sdispls, sendtype, recvbuf, recvcounts, rdispls, recvtype);
        collective::alltoallv_now(function, c, send, recv, plan)
    });
    finish_on(comm, function, done)
}

pub unsafe fn MPI_Alltoallv_plan<N: Number, D: Number>(
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
    collective::alltoallv(c, not_in_place(sendbuf, || blocks(c, sendbuf, sendcounts, sdispls, sendtype))?, blocks(c, recvbuf, recvcounts, rdispls, recvtype)?)
}

pub unsafe fn MPI_Alltoallw_plan<N: Number, D: Number>(
    c: &'static Communicator,
    sendbuf: *const c_void,
    sendcounts: *const N,
    sdispls: *const D,
    sendtypes: *const Datatype,
    recvbuf: *mut c_void,
    recvcounts: *const N,
    rdispls: *const D,
    recvtypes: *const Datatype,
) -> Result<impl Plan> {
    collective::alltoallv(c, not_in_place(sendbuf, || mixed(c, sendbuf, sendcounts, sdispls, sendtypes))?, mixed(c, recvbuf, recvcounts, rdispls, recvtypes)?)
}

pub unsafe fn MPI_Reduce<N: Number>(
    function: &'static str,
    sendbuf: *const c_void,
    recvbuf: *mut c_void,
    count: N,
    datatype: Datatype,
    op: Op,
    root: c_int,
    comm: Comm,
) -> c_int {
    finish_on(comm, function, comm::find(comm).and_then(|c| collective::reduce_now(function, c, sendbuf.cast_mut(), data(recvbuf, count, datatype), op, root)))
}

pub unsafe fn MPI_Reduce_plan<N: Number>(
    c: &'static Communicator,
    sendbuf: *const c_void,
    recvbuf: *mut c_void,
    count: N,
    datatype: Datatype,
    op: Op,
    root: c_int,
) -> Result<impl Plan> {
    collective::reduce(c, sendbuf.cast_mut(), data(recvbuf, count, datatype), op, root)
}

pub unsafe fn MPI_Allreduce<N: Number>(
    function: &'static str,
    sendbuf: *const c_void,
    recvbuf: *mut c_void,
    count: N,
    datatype: Datatype,
    op: Op,
    comm: Comm,
) -> c_int {
    let done = comm::find(comm).and_then(|c| collective::allreduce_now(function, c, sendbuf.cast_mut(), data(recvbuf, count, datatype), op));
    finish_on(comm, function, done)
}

pub unsafe fn MPI_Allreduce_plan<N: Number>(
    c: &'static Communicator,
    sendbuf: *const c_void,
    recvbuf: *mut c_void,
    count: N,
    datatype: Datatype,
    op: Op,
) -> Result<impl Plan> {
    collective::allreduce(c, sendbuf.cast_mut(), data(recvbuf, count, datatype), op)
}

pub unsafe fn MPI_Reduce_scatter<N: Number>(
    function: &'static str,
    sendbuf: *const c_void,
    recvbuf: *mut c_void,
    recvcounts: *const N,
    datatype: Datatype,
    op: Op,
    comm: Comm,
) -> c_int {
    let done = comm::find(comm).and_then(|c| {
        let counts = slice(recvcounts, c.size() as usize, "recvcounts")?;
        collective::reduce_scatter_now(function, c, sendbuf.cast_mut(), data(recvbuf, 0, datatype), |rank| counts[rank].wide(), op, false)
    });
    finish_on(comm, function, done)
}

pub unsafe fn MPI_Reduce_scatter_plan<N: Number>(
    c: &'static Communicator,
    sendbuf: *const c_void,
    recvbuf: *mut c_void,
    recvcounts: *const N,
    datatype: Datatype,
    op: Op,
) -> Result<impl Plan> {
    collective::reduce_scatter(c, sendbuf.cast_mut(), data(recvbuf, 0, datatype), numbers(recvcounts, c.size() as usize, "recvcounts")?, op, false)
}

pub unsafe fn MPI_Reduce_scatter_block<N: Number>(
    function: &'static str,
    sendbuf: *const c_void,
    recvbuf: *mut c_void,
    recvcount: N,
    datatype: Datatype,
    op: Op,
    comm: Comm,
) -> c_int {
    let done = comm::find(comm)
        .and_then(|c| collective::reduce_scatter_now(function, c, sendbuf.cast_mut(), data(recvbuf, 0, datatype), |_| recvcount.wide(), op, true));
    finish_on(comm, function, done)
}

pub unsafe fn MPI_Reduce_scatter_block_plan<N: Number>(
    c: &'static Communicator,
    sendbuf: *const c_void,
    recvbuf: *mut c_void,
    recvcount: N,
    datatype: Datatype,
    op: Op,
) -> Result<impl Plan> {
    collective::reduce_scatter(c, sendbuf.cast_mut(), data(recvbuf, 0, datatype), vec![recvcount.wide(); c.size() as usize], op, true)
}

pub unsafe fn MPI_Scan<N: Number>(
    function: &'static str,
    sendbuf: *const c_void,
    recvbuf: *mut c_void,
    count: N,
    datatype: Datatype,
    op: Op,
    comm: Comm,
) -> c_int {
    let done = comm::find(comm).and_then(|c| collective::scan_now(function, c, sendbuf.cast_mut(), data(recvbuf, count, datatype), op, false));
    finish_on(comm, function, done)
}

pub unsafe fn MPI_Scan_plan<N: Number>(
    c: &'static Communicator,
    sendbuf: *const c_void,
    recvbuf: *mut c_void,
    count: N,
    datatype: Datatype,
    op: Op,
) -> Result<impl Plan> {
    collective::scan(c, sendbuf.cast_mut(), data(recvbuf, count, datatype), op, false)
}

pub unsafe fn MPI_Exscan<N: Number>(
    function: &'static str,
    sendbuf: *const c_void,
    recvbuf: *mut c_void,
    count: N,
    datatype: Datatype,
    op: Op,
    comm: Comm,
) -> c_int {
    let done = comm::find(comm).and_then(|c| collective::scan_now(function, c, sendbuf.cast_mut(), data(recvbuf, count, datatype), op, true));
    finish_on(comm, function, done)
}

pub unsafe fn MPI_Exscan_plan<N: Number>(
    c: &'static Communicator,
    sendbuf: *const c_void,
    recvbuf: *mut c_void,
    count: N,
    datatype: Datatype,
    op: Op,
) -> Result<impl Plan> {
    collective::scan(c, sendbuf.cast_mut(), data(recvbuf, count, datatype), op, true)
}
