//! Data access of files (MPI-5.0 §14.4): each call is an [`Access`], with a count of either size.

use super::coll::data;
use super::file::finish;
use super::p2p::give;
use crate::args::{Number, room};
use mpi::collective::Data;
use mpi::error::Result;
use mpi::file::access::{self, Access, Place};
use mpi::handle::*;
use std::ffi::{c_int, c_void};

const READ: Access = Access { place: Place::Pointer, write: false, together: false };
const WRITE: Access = Access { write: true, ..READ };

const fn at(access: Access, offset: i64) -> Access {
    Access { place: Place::Offset(offset), ..access }
}

const fn shared(access: Access) -> Access {
    Access { place: Place::Shared, ..access }
}

const fn all(access: Access) -> Access {
    Access { together: true, ..access }
}

unsafe fn given(fh: File, function: &'static str, status: *mut Status, moved: Result<Status>) -> c_int {
    finish(fh, function, moved.map(|moved| give(status, moved)))
}

unsafe fn run(function: &'static str, fh: File, access: Access, data: Data, status: *mut Status) -> c_int {
    given(fh, function, status, access::run(function, fh, access, data))
}

unsafe fn start(function: &'static str, fh: File, access: Access, data: Data, request: *mut Request) -> c_int {
    let started = room(request, "request").and_then(|()| access::start(function, fh, access, data));
    finish(fh, function, started.map(|started| *request = started))
}

fn begin(function: &'static str, fh: File, access: Access, data: Data) -> c_int {
    finish(fh, function, access::begin(function, fh, access, data))
}

unsafe fn end(function: &'static str, fh: File, begun: &'static str, buf: *const c_void, status: *mut Status) -> c_int {
    given(fh, function, status, access::end(fh, begun, buf as usize))
}

pub unsafe fn MPI_File_iread<N: Number>(function: &'static str, fh: File, buf: *mut c_void, count: N, datatype: Datatype, request: *mut Request) -> c_int {
    start(function, fh, READ, data(buf, count, datatype), request)
}

pub unsafe fn MPI_File_iread_all<N: Number>(function: &'static str, fh: File, buf: *mut c_void, count: N, datatype: Datatype, request: *mut Request) -> c_int {
    start(function, fh, all(READ), data(buf, count, datatype), request)
}

pub unsafe fn MPI_File_iread_at<N: Number>(
    function: &'static str,
    fh: File,
    offset: i64,
    buf: *mut c_void,
    count: N,
    datatype: Datatype,
    request: *mut Request,
) -> c_int {
    start(function, fh, at(READ, offset), data(buf, count, datatype), request)
}

pub unsafe fn MPI_File_iread_at_all<N: Number>(
    function: &'static str,
    fh: File,
    offset: i64,
    buf: *mut c_void,
    count: N,
    datatype: Datatype,
    request: *mut Request,
) -> c_int {
    start(function, fh, all(at(READ, offset)), data(buf, count, datatype), request)
}

pub unsafe fn MPI_File_iread_shared<N: Number>(
    function: &'static str,
    fh: File,
    buf: *mut c_void,
    count: N,
    datatype: Datatype,
    request: *mut Request,
) -> c_int {
    start(function, fh, shared(READ), data(buf, count, datatype), request)
}

pub unsafe fn MPI_File_iwrite<N: Number>(function: &'static str, fh: File, buf: *const c_void, count: N, datatype: Datatype, request: *mut Request) -> c_int {
    start(function, fh, WRITE, data(buf, count, datatype), request)
}

pub unsafe fn MPI_File_iwrite_all<N: Number>(
    function: &'static str,
    fh: File,
    buf: *const c_void,
    count: N,
    datatype: Datatype,
    request: *mut Request,
) -> c_int {
    start(function, fh, all(WRITE), data(buf, count, datatype), request)
}

pub unsafe fn MPI_File_iwrite_at<N: Number>(
    function: &'static str,
    fh: File,
    offset: i64,
    buf: *const c_void,
    count: N,
    datatype: Datatype,
    request: *mut Request,
) -> c_int {
    start(function, fh, at(WRITE, offset), data(buf, count, datatype), request)
}

pub unsafe fn MPI_File_iwrite_at_all<N: Number>(
    function: &'static str,
    fh: File,
    offset: i64,
    buf: *const c_void,
    count: N,
    datatype: Datatype,
    request: *mut Request,
) -> c_int {
    start(function, fh, all(at(WRITE, offset)), data(buf, count, datatype), request)
}

pub unsafe fn MPI_File_iwrite_shared<N: Number>(
    function: &'static str,
    fh: File,
    buf: *const c_void,
    count: N,
    datatype: Datatype,
    request: *mut Request,
) -> c_int {
    start(function, fh, shared(WRITE), data(buf, count, datatype), request)
}

pub unsafe fn MPI_File_read<N: Number>(function: &'static str, fh: File, buf: *mut c_void, count: N, datatype: Datatype, status: *mut Status) -> c_int {
    run(function, fh, READ, data(buf, count, datatype), status)
}

pub unsafe fn MPI_File_read_all<N: Number>(function: &'static str, fh: File, buf: *mut c_void, count: N, datatype: Datatype, status: *mut Status) -> c_int {
    run(function, fh, all(READ), data(buf, count, datatype), status)
}

pub unsafe fn MPI_File_read_all_begin<N: Number>(function: &'static str, fh: File, buf: *mut c_void, count: N, datatype: Datatype) -> c_int {
    begin(function, fh, all(READ), data(buf, count, datatype))
}

pub unsafe fn MPI_File_read_all_end(fh: File, buf: *mut c_void, status: *mut Status) -> c_int {
    end("MPI_File_read_all_end", fh, "MPI_File_read_all_begin", buf, status)
}

pub unsafe fn MPI_File_read_at<N: Number>(
    function: &'static str,
    fh: File,
    offset: i64,
    buf: *mut c_void,
    count: N,
    datatype: Datatype,
    status: *mut Status,
) -> c_int {
    run(function, fh, at(READ, offset), data(buf, count, datatype), status)
}

pub unsafe fn MPI_File_read_at_all<N: Number>(
    function: &'static str,
    fh: File,
    offset: i64,
    buf: *mut c_void,
    count: N,
    datatype: Datatype,
    status: *mut Status,
) -> c_int {
    run(function, fh, all(at(READ, offset)), data(buf, count, datatype), status)
}

pub unsafe fn MPI_File_read_at_all_begin<N: Number>(function: &'static str, fh: File, offset: i64, buf: *mut c_void, count: N, datatype: Datatype) -> c_int {
    begin(function, fh, all(at(READ, offset)), data(buf, count, datatype))
}

pub unsafe fn MPI_File_read_at_all_end(fh: File, buf: *mut c_void, status: *mut Status) -> c_int {
    end("MPI_File_read_at_all_end", fh, "MPI_File_read_at_all_begin", buf, status)
}

pub unsafe fn MPI_File_read_ordered<N: Number>(function: &'static str, fh: File, buf: *mut c_void, count: N, datatype: Datatype, status: *mut Status) -> c_int {
    run(function, fh, all(shared(READ)), data(buf, count, datatype), status)
}

pub unsafe fn MPI_File_read_ordered_begin<N: Number>(function: &'static str, fh: File, buf: *mut c_void, count: N, datatype: Datatype) -> c_int {
    begin(function, fh, all(shared(READ)), data(buf, count, datatype))
}

pub unsafe fn MPI_File_read_ordered_end(fh: File, buf: *mut c_void, status: *mut Status) -> c_int {
    end("MPI_File_read_ordered_end", fh, "MPI_File_read_ordered_begin", buf, status)
}

pub unsafe fn MPI_File_read_shared<N: Number>(function: &'static str, fh: File, buf: *mut c_void, count: N, datatype: Datatype, status: *mut Status) -> c_int {
    run(function, fh, shared(READ), data(buf, count, datatype), status)
}

pub unsafe fn MPI_File_write<N: Number>(function: &'static str, fh: File, buf: *const c_void, count: N, datatype: Datatype, status: *mut Status) -> c_int {
    run(function, fh, WRITE, data(buf, count, datatype), status)
}

pub unsafe fn MPI_File_write_all<N: Number>(function: &'static str, fh: File, buf: *const c_void, count: N, datatype: Datatype, status: *mut Status) -> c_int {
    run(function, fh, all(WRITE), data(buf, count, datatype), status)
}

pub unsafe fn MPI_File_write_all_begin<N: Number>(function: &'static str, fh: File, buf: *const c_void, count: N, datatype: Datatype) -> c_int {
    begin(function, fh, all(WRITE), data(buf, count, datatype))
}

pub unsafe fn MPI_File_write_all_end(fh: File, buf: *const c_void, status: *mut Status) -> c_int {
    end("MPI_File_write_all_end", fh, "MPI_File_write_all_begin", buf, status)
}

pub unsafe fn MPI_File_write_at<N: Number>(
    function: &'static str,
    fh: File,
    offset: i64,
    buf: *const c_void,
    count: N,
    datatype: Datatype,
    status: *mut Status,
) -> c_int {
    run(function, fh, at(WRITE, offset), data(buf, count, datatype), status)
}

pub unsafe fn MPI_File_write_at_all<N: Number>(
    function: &'static str,
    fh: File,
    offset: i64,
    buf: *const c_void,
    count: N,
    datatype: Datatype,
    status: *mut Status,
) -> c_int {
    run(function, fh, all(at(WRITE, offset)), data(buf, count, datatype), status)
}

pub unsafe fn MPI_File_write_at_all_begin<N: Number>(function: &'static str, fh: File, offset: i64, buf: *const c_void, count: N, datatype: Datatype) -> c_int {
    begin(function, fh, all(at(WRITE, offset)), data(buf, count, datatype))
}

pub unsafe fn MPI_File_write_at_all_end(fh: File, buf: *const c_void, status: *mut Status) -> c_int {
    end("MPI_File_write_at_all_end", fh, "MPI_File_write_at_all_begin", buf, status)
}

pub unsafe fn MPI_File_write_ordered<N: Number>(
    function: &'static str,
    fh: File,
    buf: *const c_void,
    count: N,
    datatype: Datatype,
    status: *mut Status,
) -> c_int {
    run(function, fh, all(shared(WRITE)), data(buf, count, datatype), status)
}

pub unsafe fn MPI_File_write_ordered_begin<N: Number>(function: &'static str, fh: File, buf: *const c_void, count: N, datatype: Datatype) -> c_int {
    begin(function, fh, all(shared(WRITE)), data(buf, count, datatype))
}

pub unsafe fn MPI_File_write_ordered_end(fh: File, buf: *const c_void, status: *mut Status) -> c_int {
    end("MPI_File_write_ordered_end", fh, "MPI_File_write_ordered_begin", buf, status)
}

pub unsafe fn MPI_File_write_shared<N: Number>(
    function: &'static str,
    fh: File,
    buf: *const c_void,
    count: N,
    datatype: Datatype,
    status: *mut Status,
) -> c_int {
    run(function, fh, shared(WRITE), data(buf, count, datatype), status)
}
