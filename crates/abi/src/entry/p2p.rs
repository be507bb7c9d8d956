//! Point-to-point communication (MPI-5.0 chapter 3).

use crate::args::{Number, room, store};
use crate::{fail_on, finish, finish_on};
use mpi::buffered::{self, Holder};
use mpi::comm;
use mpi::consts::*;
use mpi::error::Result;
use mpi::handle::*;
use mpi::p2p::{self, Mode, Side};
use mpi::request;
use std::ffi::{c_int, c_void};

#[inline(always)]
fn side(buffer: *const c_void, count: i64, datatype: Datatype, peer: c_int, tag: c_int) -> Side {
    Side { buffer: buffer.cast_mut(), count, datatype, peer, tag }
}

/// Writes a status where the caller wants one; its error field stays as it was (MPI-5.0 §3.2.5).
#[inline(always)]
pub unsafe fn give(status: *mut Status, value: Status) {
    if !status.is_null() {
        // An empty status has all fields set (MPI-5.0 §3.7.3).
        *status = if value == Status::EMPTY { value } else { value.keeping_error_of(&*status) };
    }
}

#[inline(always)]
unsafe fn send(function: &'static str, side: Side, comm: Comm, mode: Mode) -> c_int {
    finish_on(comm, function, comm::find(comm).and_then(|c| p2p::send(function, c, &side, mode)))
}

#[inline(always)]
unsafe fn isend(function: &'static str, side: Side, comm: Comm, mode: Mode, request: *mut Request) -> c_int {
    finish_on(
        comm,
        function,
        comm::find(comm).and_then(|c| {
            room(request, "request")?;
            p2p::isend(c, &side, mode).map(|r| *request = r)
        }),
    )
}

unsafe fn send_init(function: &'static str, side: Side, comm: Comm, mode: Mode, request: *mut Request) -> c_int {
    let made = comm::find(comm).and_then(|c| {
        room(request, "request")?;
        request::send_init(c, &side, mode)
    });
    finish_on(comm, function, made.map(|r| *request = r))
}

#[inline(always)]
unsafe fn recv(function: &'static str, side: Side, comm: Comm, status: *mut Status) -> c_int {
    finish_on(comm, function, comm::find(comm).and_then(|c| p2p::recv(function, c, &side, |s| give(status, s))))
}

#[inline(always)]
unsafe fn irecv(function: &'static str, side: Side, comm: Comm, request: *mut Request) -> c_int {
    finish_on(
        comm,
        function,
        comm::find(comm).and_then(|c| {
            room(request, "request")?;
            p2p::irecv(c, &side).map(|r| *request = r)
        }),
    )
}

unsafe fn recv_init(function: &'static str, side: Side, comm: Comm, request: *mut Request) -> c_int {
    let made = comm::find(comm).and_then(|c| {
        room(request, "request")?;
        request::recv_init(c, &side)
    });
    finish_on(comm, function, made.map(|r| *request = r))
}

#[inline(always)]
unsafe fn sendrecv(function: &'static str, out: Side, into: Side, comm: Comm, status: *mut Status) -> c_int {
    finish_on(comm, function, comm::find(comm).and_then(|c| p2p::sendrecv(function, c, out, into, |s| give(status, s))))
}

unsafe fn sendrecv_replace(function: &'static str, out: Side, into: Side, comm: Comm, status: *mut Status) -> c_int {
    finish_on(comm, function, comm::find(comm).and_then(|c| p2p::sendrecv_replace(function, c, &out, &into, |s| give(status, s))))
}

unsafe fn isendrecv(function: &'static str, out: Side, into: Side, comm: Comm, replace: bool, request: *mut Request) -> c_int {
    finish_on(
        comm,
        function,
        comm::find(comm).and_then(|c| {
            room(request, "request")?;
            p2p::isendrecv(c, &out, &into, replace).map(|r| *request = r)
        }),
    )
}

unsafe fn mrecv(function: &'static str, side: Side, message: *mut Message, status: *mut Status) -> c_int {
    let mut on = MPI_COMM_NULL;
    let received = room(message, "message").and_then(|()| p2p::mrecv(function, &mut *message, &side, &mut on, |s| give(status, s)));
    match received {
        Ok(()) => MPI_SUCCESS,
        Err(error) => fail_on(on, function, error),
    }
}

unsafe fn imrecv(function: &'static str, side: Side, message: *mut Message, request: *mut Request) -> c_int {
    let mut on = MPI_COMM_NULL;
    let places = room(message, "message").and_then(|()| room(request, "request"));
    match places.and_then(|()| p2p::imrecv(&mut *message, &side, &mut on)) {
        Ok(r) => {
            *request = r;
            MPI_SUCCESS
        }
        Err(error) => fail_on(on, function, error),
    }
}

#[inline(always)]
pub unsafe fn MPI_Send<N: Number>(function: &'static str, buf: *const c_void, count: N, datatype: Datatype, dest: c_int, tag: c_int, comm: Comm) -> c_int {
    send(function, side(buf, count.wide(), datatype, dest, tag), comm, Mode::Standard)
}

#[inline(always)]
pub unsafe fn MPI_Isend<N: Number>(
    function: &'static str,
    buf: *const c_void,
    count: N,
    datatype: Datatype,
    dest: c_int,
    tag: c_int,
    comm: Comm,
    request: *mut Request,
) -> c_int {
    isend(function, side(buf, count.wide(), datatype, dest, tag), comm, Mode::Standard, request)
}

pub unsafe fn MPI_Send_init<N: Number>(
    function: &'static str,
    buf: *const c_void,
    count: N,
    datatype: Datatype,
    dest: c_int,
    tag: c_int,
    comm: Comm,
    request: *mut Request,
) -> c_int {
    send_init(function, side(buf, count.wide(), datatype, dest, tag), comm, Mode::Standard, request)
}

pub unsafe fn MPI_Bsend<N: Number>(function: &'static str, buf: *const c_void, count: N, datatype: Datatype, dest: c_int, tag: c_int, comm: Comm) -> c_int {
    send(function, side(buf, count.wide(), datatype, dest, tag), comm, Mode::Buffered)
}

pub unsafe fn MPI_Ibsend<N: Number>(
    function: &'static str,
    buf: *const c_void,
    count: N,
    datatype: Datatype,
    dest: c_int,
    tag: c_int,
    comm: Comm,
    request: *mut Request,
) -> c_int {
    isend(function, side(buf, count.wide(), datatype, dest, tag), comm, Mode::Buffered, request)
}

pub unsafe fn MPI_Bsend_init<N: Number>(
    function: &'static str,
    buf: *const c_void,
    count: N,
    datatype: Datatype,
    dest: c_int,
    tag: c_int,
    comm: Comm,
    request: *mut Request,
) -> c_int {
    send_init(function, side(buf, count.wide(), datatype, dest, tag), comm, Mode::Buffered, request)
}

pub unsafe fn MPI_Ssend<N: Number>(function: &'static str, buf: *const c_void, count: N, datatype: Datatype, dest: c_int, tag: c_int, comm: Comm) -> c_int {
    send(function, side(buf, count.wide(), datatype, dest, tag), comm, Mode::Synchronous)
}

pub unsafe fn MPI_Issend<N: Number>(
    function: &'static str,
    buf: *const c_void,
    count: N,
    datatype: Datatype,
    dest: c_int,
    tag: c_int,
    comm: Comm,
    request: *mut Request,
) -> c_int {
    isend(function, side(buf, count.wide(), datatype, dest, tag), comm, Mode::Synchronous, request)
}

pub unsafe fn MPI_Ssend_init<N: Number>(
    function: &'static str,
    buf: *const c_void,
    count: N,
    datatype: Datatype,
    dest: c_int,
    tag: c_int,
    comm: Comm,
    request: *mut Request,
) -> c_int {
    send_init(function, side(buf, count.wide(), datatype, dest, tag), comm, Mode::Synchronous, request)
}

pub unsafe fn MPI_Rsend<N: Number>(function: &'static str, buf: *const c_void, count: N, datatype: Datatype, dest: c_int, tag: c_int, comm: Comm) -> c_int {
    send(function, side(buf, count.wide(), datatype, dest, tag), comm, Mode::Ready)
}

pub unsafe fn MPI_Irsend<N: Number>(
    function: &'static str,
    buf: *const c_void,
    count: N,
    datatype: Datatype,
    dest: c_int,
    tag: c_int,
    comm: Comm,
    request: *mut Request,
) -> c_int {
    isend(function, side(buf, count.wide(), datatype, dest, tag), comm, Mode::Ready, request)
}

pub unsafe fn MPI_Rsend_init<N: Number>(
    function: &'static str,
    buf: *const c_void,
    count: N,
    datatype: Datatype,
    dest: c_int,
    tag: c_int,
    comm: Comm,
    request: *mut Request,
) -> c_int {
    send_init(function, side(buf, count.wide(), datatype, dest, tag), comm, Mode::Ready, request)
}

#[inline(always)]
pub unsafe fn MPI_Recv<N: Number>(
    function: &'static str,
    buf: *mut c_void,
    count: N,
    datatype: Datatype,
    source: c_int,
    tag: c_int,
    comm: Comm,
    status: *mut Status,
) -> c_int {
    recv(function, side(buf, count.wide(), datatype, source, tag), comm, status)
}

#[inline(always)]
pub unsafe fn MPI_Irecv<N: Number>(
    function: &'static str,
    buf: *mut c_void,
    count: N,
    datatype: Datatype,
    source: c_int,
    tag: c_int,
    comm: Comm,
    request: *mut Request,
) -> c_int {
    irecv(function, side(buf, count.wide(), datatype, source, tag), comm, request)
}

pub unsafe fn MPI_Recv_init<N: Number>(
    function: &'static str,
    buf: *mut c_void,
    count: N,
    datatype: Datatype,
    source: c_int,
    tag: c_int,
    comm: Comm,
    request: *mut Request,
) -> c_int {
    recv_init(function, side(buf, count.wide(), datatype, source, tag), comm, request)
}

pub unsafe fn MPI_Sendrecv<N: Number>(
    function: &'static str,
    sendbuf: *const c_void,
    sendcount: N,
    sendtype: Datatype,
    dest: c_int,
    sendtag: c_int,
    recvbuf: *mut c_void,
    recvcount: N,
    recvtype: Datatype,
    source: c_int,
    recvtag: c_int,
    comm: Comm,
    status: *mut Status,
) -> c_int {
    sendrecv(function, side(sendbuf, sendcount.wide(), sendtype, dest, sendtag), side(recvbuf, recvcount.wide(), recvtype, source, recvtag), comm, status)
}

pub unsafe fn MPI_Isendrecv<N: Number>(
    function: &'static str,
    sendbuf: *const c_void,
    sendcount: N,
    sendtype: Datatype,
    dest: c_int,
    sendtag: c_int,
    recvbuf: *mut c_void,
    recvcount: N,
    recvtype: Datatype,
    source: c_int,
    recvtag: c_int,
    comm: Comm,
    request: *mut Request,
) -> c_int {
    isendrecv(
        function,
        side(sendbuf, sendcount.wide(), sendtype, dest, sendtag),
        side(recvbuf, recvcount.wide(), recvtype, source, recvtag),
        comm,
        false,
        request,
    )
}

pub unsafe fn MPI_Sendrecv_replace<N: Number>(
    function: &'static str,
    buf: *mut c_void,
    count: N,
    datatype: Datatype,
    dest: c_int,
    sendtag: c_int,
    source: c_int,
    recvtag: c_int,
    comm: Comm,
    status: *mut Status,
) -> c_int {
    sendrecv_replace(function, side(buf, count.wide(), datatype, dest, sendtag), side(buf, count.wide(), datatype, source, recvtag), comm, status)
}

pub unsafe fn MPI_Isendrecv_replace<N: Number>(
    function: &'static str,
    buf: *mut c_void,
    count: N,
    datatype: Datatype,
    dest: c_int,
    sendtag: c_int,
    source: c_int,
    recvtag: c_int,
    comm: Comm,
    request: *mut Request,
) -> c_int {
    isendrecv(function, side(buf, count.wide(), datatype, dest, sendtag), side(buf, count.wide(), datatype, source, recvtag), comm, true, request)
}

pub unsafe fn MPI_Mrecv<N: Number>(
    function: &'static str,
    buf: *mut c_void,
    count: N,
    datatype: Datatype,
    message: *mut Message,
    status: *mut Status,
) -> c_int {
    mrecv(function, side(buf, count.wide(), datatype, MPI_PROC_NULL, 0), message, status)
}

pub unsafe fn MPI_Imrecv<N: Number>(
    function: &'static str,
    buf: *mut c_void,
    count: N,
    datatype: Datatype,
    message: *mut Message,
    request: *mut Request,
) -> c_int {
    imrecv(function, side(buf, count.wide(), datatype, MPI_PROC_NULL, 0), message, request)
}

pub unsafe fn MPI_Buffer_attach<N: Number>(function: &'static str, buffer: *mut c_void, size: N) -> c_int {
    finish(function, buffered::attach(&Holder::Process, buffer, size.wide()))
}

pub unsafe fn MPI_Comm_attach_buffer<N: Number>(function: &'static str, comm: Comm, buffer: *mut c_void, size: N) -> c_int {
    finish_on(comm, function, comm::find(comm).and_then(|c| buffered::attach(&Holder::Comm(c), buffer, size.wide())))
}

/// Detaches a buffer; `buffer_addr` is the address of a pointer. Null places are found before the buffer is gone.
pub unsafe fn detach<N: Number>(holder: &Holder<'_>, function: &'static str, buffer_addr: *mut c_void, size: *mut N) -> Result<()> {
    room(buffer_addr, "buffer_addr")?;
    room(size, "size")?;
    let (base, bytes) = buffered::detach(holder, function)?;
    store(buffer_addr.cast::<*mut c_void>(), "buffer_addr", base)?;
    store(size, "size", N::or_undefined(bytes as i64))
}

pub unsafe fn MPI_Buffer_detach<N: Number>(function: &'static str, buffer_addr: *mut c_void, size: *mut N) -> c_int {
    finish(function, detach(&Holder::Process, function, buffer_addr, size))
}

pub unsafe fn MPI_Comm_detach_buffer<N: Number>(function: &'static str, comm: Comm, buffer_addr: *mut c_void, size: *mut N) -> c_int {
    let detached = comm::find(comm).and_then(|c| detach(&Holder::Comm(c), function, buffer_addr, size));
    finish_on(comm, function, detached)
}

pub unsafe fn MPI_Buffer_flush() -> c_int {
    finish("MPI_Buffer_flush", buffered::flush(&Holder::Process, "MPI_Buffer_flush"))
}

pub unsafe fn MPI_Buffer_iflush(request: *mut Request) -> c_int {
    let started = room(request, "request").and_then(|()| buffered::iflush(&Holder::Process, None));
    finish("MPI_Buffer_iflush", started.map(|r| *request = r))
}

pub unsafe fn MPI_Comm_flush_buffer(comm: Comm) -> c_int {
    finish_on(comm, "MPI_Comm_flush_buffer", comm::find(comm).and_then(|c| buffered::flush(&Holder::Comm(c), "MPI_Comm_flush_buffer")))
}

pub unsafe fn MPI_Comm_iflush_buffer(comm: Comm, request: *mut Request) -> c_int {
    let started = comm::find(comm).and_then(|c| {
        room(request, "request")?;
        buffered::iflush(&Holder::Comm(c), Some(comm))
    });
    finish_on(comm, "MPI_Comm_iflush_buffer", started.map(|r| *request = r))
}

pub unsafe fn MPI_Probe(source: c_int, tag: c_int, comm: Comm, status: *mut Status) -> c_int {
    finish_on(comm, "MPI_Probe", comm::find(comm).and_then(|c| p2p::probe("MPI_Probe", c, source, tag)).map(|s| give(status, s)))
}

pub unsafe fn MPI_Iprobe(source: c_int, tag: c_int, comm: Comm, flag: *mut c_int, status: *mut Status) -> c_int {
    let found = comm::find(comm).and_then(|c| {
        room(flag, "flag")?;
        p2p::iprobe(c, source, tag)
    });
    finish_on(
        comm,
        "MPI_Iprobe",
        found.map(|found| {
            *flag = found.is_some() as c_int;
            if let Some(s) = found {
                give(status, s);
            }
        }),
    )
}

pub unsafe fn MPI_Mprobe(source: c_int, tag: c_int, comm: Comm, message: *mut Message, status: *mut Status) -> c_int {
    let found = comm::find(comm).and_then(|c| {
        room(message, "message")?;
        p2p::mprobe("MPI_Mprobe", c, source, tag)
    });
    finish_on(
        comm,
        "MPI_Mprobe",
        found.map(|(m, s)| {
            *message = m;
            give(status, s);
        }),
    )
}

pub unsafe fn MPI_Improbe(source: c_int, tag: c_int, comm: Comm, flag: *mut c_int, message: *mut Message, status: *mut Status) -> c_int {
    let found = comm::find(comm).and_then(|c| {
        room(flag, "flag")?;
        room(message, "message")?;
        p2p::improbe(c, source, tag)
    });
    finish_on(
        comm,
        "MPI_Improbe",
        found.map(|found| {
            *flag = found.is_some() as c_int;
            if let Some((m, s)) = found {
                *message = m;
                give(status, s);
            }
        }),
    )
}
