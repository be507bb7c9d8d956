//! Data access of files (MPI-5.0 §14.4): each call is an [`Access`], with a count of either size.

use super::file::finish;
use super::p2p::give;
use crate::args::room;
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

fn data(start: *const c_void, count: i64, datatype: Datatype) -> Data {
    Data { start: start.cast_mut(), count, datatype }
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

pub unsafe fn MPI_File_iread(fh: File, buf: *mut c_void, count: c_int, datatype: Datatype, request: *mut Request) -> c_int {
    start("MPI_File_iread", fh, READ, data(buf, count as i64, datatype), request)
}

pub unsafe fn MPI_File_iread_all(fh: File, buf: *mut c_void, count: c_int, datatype: Datatype, request: *mut Request) -> c_int {
    start("MPI_File_iread_all", fh, all(READ), data(buf, count as i64, datatype), request)
}

pub unsafe fn MPI_File_iread_all_c(fh: File, buf: *mut c_void, count: i64, datatype: Datatype, request: *mut Request) -> c_int {
    start("MPI_File_iread_all_c", fh, all(READ), data(buf, count, datatype), request)
}

pub unsafe fn MPI_File_iread_at(fh: File, offset: i64, buf: *mut c_void, count: c_int, datatype: Datatype, request: *mut Request) -> c_int {
    start("MPI_File_iread_at", fh, at(READ, offset), data(buf, count as i64, datatype), request)
}

pub unsafe fn MPI_File_iread_at_all(fh: File, offset: i64, buf: *mut c_void, count: c_int, datatype: Datatype, request: *mut Request) -> c_int {
    start("MPI_File_iread_at_all", fh, all(at(READ, offset)), data(buf, count as i64, datatype), request)
}

pub unsafe fn MPI_File_iread_at_all_c(fh: File, offset: i64, buf: *mut c_void, count: i64, datatype: Datatype, request: *mut Request) -> c_int {
    start("MPI_File_iread_at_all_c", fh, all(at(READ, offset)), data(buf, count, datatype), request)
}

pub unsafe fn MPI_File_iread_at_c(fh: File, offset: i64, buf: *mut c_void, count: i64, datatype: Datatype, request: *mut Request) -> c_int {
    start("MPI_File_iread_at_c", fh, at(READ, offset), data(buf, count, datatype), request)
}

pub unsafe fn MPI_File_iread_c(fh: File, buf: *mut c_void, count: i64, datatype: Datatype, request: *mut Request) -> c_int {
    start("MPI_File_iread_c", fh, READ, data(buf, count, datatype), request)
}

pub unsafe fn MPI_File_iread_shared(fh: File, buf: *mut c_void, count: c_int, datatype: Datatype, request: *mut Request) -> c_int {
    start("MPI_File_iread_shared", fh, shared(READ), data(buf, count as i64, datatype), request)
}

pub unsafe fn MPI_File_iread_shared_c(fh: File, buf: *mut c_void, count: i64, datatype: Datatype, request: *mut Request) -> c_int {
    start("MPI_File_iread_shared_c", fh, shared(READ), data(buf, count, datatype), request)
}

pub unsafe fn MPI_File_iwrite(fh: File, buf: *const c_void, count: c_int, datatype: Datatype, request: *mut Request) -> c_int {
    start("MPI_File_iwrite", fh, WRITE, data(buf, count as i64, datatype), request)
}

pub unsafe fn MPI_File_iwrite_all(fh: File, buf: *const c_void, count: c_int, datatype: Datatype, request: *mut Request) -> c_int {
    start("MPI_File_iwrite_all", fh, all(WRITE), data(buf, count as i64, datatype), request)
}

pub unsafe fn MPI_File_iwrite_all_c(fh: File, buf: *const c_void, count: i64, datatype: Datatype, request: *mut Request) -> c_int {
    start("MPI_File_iwrite_all_c", fh, all(WRITE), data(buf, count, datatype), request)
}

pub unsafe fn MPI_File_iwrite_at(fh: File, offset: i64, buf: *const c_void, count: c_int, datatype: Datatype, request: *mut Request) -> c_int {
    start("MPI_File_iwrite_at", fh, at(WRITE, offset), data(buf, count as i64, datatype), request)
}

pub unsafe fn MPI_File_iwrite_at_all(fh: File, offset: i64, buf: *const c_void, count: c_int, datatype: Datatype, request: *mut Request) -> c_int {
    start("MPI_File_iwrite_at_all", fh, all(at(WRITE, offset)), data(buf, count as i64, datatype), request)
}

pub unsafe fn MPI_File_iwrite_at_all_c(fh: File, offset: i64, buf: *const c_void, count: i64, datatype: Datatype, request: *mut Request) -> c_int {
    start("MPI_File_iwrite_at_all_c", fh, all(at(WRITE, offset)), data(buf, count, datatype), request)
}

pub unsafe fn MPI_File_iwrite_at_c(fh: File, offset: i64, buf: *const c_void, count: i64, datatype: Datatype, request: *mut Request) -> c_int {
    start("MPI_File_iwrite_at_c", fh, at(WRITE, offset), data(buf, count, datatype), request)
}

pub unsafe fn MPI_File_iwrite_c(fh: File, buf: *const c_void, count: i64, datatype: Datatype, request: *mut Request) -> c_int {
    start("MPI_File_iwrite_c", fh, WRITE, data(buf, count, datatype), request)
}

pub unsafe fn MPI_File_iwrite_shared(fh: File, buf: *const c_void, count: c_int, datatype: Datatype, request: *mut Request) -> c_int {
    start("MPI_File_iwrite_shared", fh, shared(WRITE), data(buf, count as i64, datatype), request)
}

pub unsafe fn MPI_File_iwrite_shared_c(fh: File, buf: *const c_void, count: i64, datatype: Datatype, request: *mut Request) -> c_int {
    start("MPI_File_iwrite_shared_c", fh, shared(WRITE), data(buf, count, datatype), request)
}

pub unsafe fn MPI_File_read(fh: File, buf: *mut c_void, count: c_int, datatype: Datatype, status: *mut Status) -> c_int {
    run("MPI_File_read", fh, READ, data(buf, count as i64, datatype), status)
}

pub unsafe fn MPI_File_read_all(fh: File, buf: *mut c_void, count: c_int, datatype: Datatype, status: *mut Status) -> c_int {
    run("MPI_File_read_all", fh, all(READ), data(buf, count as i64, datatype), status)
}

pub unsafe fn MPI_File_read_all_begin(fh: File, buf: *mut c_void, count: c_int, datatype: Datatype) -> c_int {
    begin("MPI_File_read_all_begin", fh, all(READ), data(buf, count as i64, datatype))
}

pub unsafe fn MPI_File_read_all_begin_c(fh: File, buf: *mut c_void, count: i64, datatype: Datatype) -> c_int {
    begin("MPI_File_read_all_begin_c", fh, all(READ), data(buf, count, datatype))
}

pub unsafe fn MPI_File_read_all_c(fh: File, buf: *mut c_void, count: i64, datatype: Datatype, status: *mut Status) -> c_int {
    run("MPI_File_read_all_c", fh, all(READ), data(buf, count, datatype), status)
}

pub unsafe fn MPI_File_read_all_end(fh: File, buf: *mut c_void, status: *mut Status) -> c_int {
    end("MPI_File_read_all_end", fh, "MPI_File_read_all_begin", buf, status)
}

pub unsafe fn MPI_File_read_at(fh: File, offset: i64, buf: *mut c_void, count: c_int, datatype: Datatype, status: *mut Status) -> c_int {
    run("MPI_File_read_at", fh, at(READ, offset), data(buf, count as i64, datatype), status)
}

pub unsafe fn MPI_File_read_at_all(fh: File, offset: i64, buf: *mut c_void, count: c_int, datatype: Datatype, status: *mut Status) -> c_int {
    run("MPI_File_read_at_all", fh, all(at(READ, offset)), data(buf, count as i64, datatype), status)
}

pub unsafe fn MPI_File_read_at_all_begin(fh: File, offset: i64, buf: *mut c_void, count: c_int, datatype: Datatype) -> c_int {
    begin("MPI_File_read_at_all_begin", fh, all(at(READ, offset)), data(buf, count as i64, datatype))
}

pub unsafe fn MPI_File_read_at_all_begin_c(fh: File, offset: i64, buf: *mut c_void, count: i64, datatype: Datatype) -> c_int {
    begin("MPI_File_read_at_all_begin_c", fh, all(at(READ, offset)), data(buf, count, datatype))
}

pub unsafe fn MPI_File_read_at_all_c(fh: File, offset: i64, buf: *mut c_void, count: i64, datatype: Datatype, status: *mut Status) -> c_int {
    run("MPI_File_read_at_all_c", fh, all(at(READ, offset)), data(buf, count, datatype), status)
}

pub unsafe fn MPI_File_read_at_all_end(fh: File, buf: *mut c_void, status: *mut Status) -> c_int {
    end("MPI_File_read_at_all_end", fh, "MPI_File_read_at_all_begin", buf, status)
}

pub unsafe fn MPI_File_read_at_c(fh: File, offset: i64, buf: *mut c_void, count: i64, datatype: Datatype, status: *mut Status) -> c_int {
    run("MPI_File_read_at_c", fh, at(READ, offset), data(buf, count, datatype), status)
}

pub unsafe fn MPI_File_read_c(fh: File, buf: *mut c_void, count: i64, datatype: Datatype, status: *mut Status) -> c_int {
    run("MPI_File_read_c", fh, READ, data(buf, count, datatype), status)
}

pub unsafe fn MPI_File_read_ordered(fh: File, buf: *mut c_void, count: c_int, datatype: Datatype, status: *mut Status) -> c_int {
    run("MPI_File_read_ordered", fh, all(shared(READ)), data(buf, count as i64, datatype), status)
}

pub unsafe fn MPI_File_read_ordered_begin(fh: File, buf: *mut c_void, count: c_int, datatype: Datatype) -> c_int {
    begin("MPI_File_read_ordered_begin", fh, all(shared(READ)), data(buf, count as i64, datatype))
}

pub unsafe fn MPI_File_read_ordered_begin_c(fh: File, buf: *mut c_void, count: i64, datatype: Datatype) -> c_int {
    begin("MPI_File_read_ordered_begin_c", fh, all(shared(READ)), data(buf, count, datatype))
}

pub unsafe fn MPI_File_read_ordered_c(fh: File, buf: *mut c_void, count: i64, datatype: Datatype, status: *mut Status) -> c_int {
    run("MPI_File_read_ordered_c", fh, all(shared(READ)), data(buf, count, datatype), status)
}

pub unsafe fn MPI_File_read_ordered_end(fh: File, buf: *mut c_void, status: *mut Status) -> c_int {
    end("MPI_File_read_ordered_end", fh, "MPI_File_read_ordered_begin", buf, status)
}

pub unsafe fn MPI_File_read_shared(fh: File, buf: *mut c_void, count: c_int, datatype: Datatype, status: *mut Status) -> c_int {
    run("MPI_File_read_shared", fh, shared(READ), data(buf, count as i64, datatype), status)
}

pub unsafe fn MPI_File_read_shared_c(fh: File, buf: *mut c_void, count: i64, datatype: Datatype, status: *mut Status) -> c_int {
    run("MPI_File_read_shared_c", fh, shared(READ), data(buf, count, datatype), status)
}

pub unsafe fn MPI_File_write(fh: File, buf: *const c_void, count: c_int, datatype: Datatype, status: *mut Status) -> c_int {
    run("MPI_File_write", fh, WRITE, data(buf, count as i64, datatype), status)
}

pub unsafe fn MPI_File_write_all(fh: File, buf: *const c_void, count: c_int, datatype: Datatype, status: *mut Status) -> c_int {
    run("MPI_File_write_all", fh, all(WRITE), data(buf, count as i64, datatype), status)
}

pub unsafe fn MPI_File_write_all_begin(fh: File, buf: *const c_void, count: c_int, datatype: Datatype) -> c_int {
    begin("MPI_File_write_all_begin", fh, all(WRITE), data(buf, count as i64, datatype))
}

pub unsafe fn MPI_File_write_all_begin_c(fh: File, buf: *const c_void, count: i64, datatype: Datatype) -> c_int {
    begin("MPI_File_write_all_begin_c", fh, all(WRITE), data(buf, count, datatype))
}

pub unsafe fn MPI_File_write_all_c(fh: File, buf: *const c_void, count: i64, datatype: Datatype, status: *mut Status) -> c_int {
    run("MPI_File_write_all_c", fh, all(WRITE), data(buf, count, datatype), status)
}

pub unsafe fn MPI_File_write_all_end(fh: File, buf: *const c_void, status: *mut Status) -> c_int {
    end("MPI_File_write_all_end", fh, "MPI_File_write_all_begin", buf, status)
}

pub unsafe fn MPI_File_write_at(fh: File, offset: i64, buf: *const c_void, count: c_int, datatype: Datatype, status: *mut Status) -> c_int {
    run("MPI_File_write_at", fh, at(WRITE, offset), data(buf, count as i64, datatype), status)
}

pub unsafe fn MPI_File_write_at_all(fh: File, offset: i64, buf: *const c_void, count: c_int, datatype: Datatype, status: *mut Status) -> c_int {
    run("MPI_File_write_at_all", fh, all(at(WRITE, offset)), data(buf, count as i64, datatype), status)
}

pub unsafe fn MPI_File_write_at_all_begin(fh: File, offset: i64, buf: *const c_void, count: c_int, datatype: Datatype) -> c_int {
    begin("MPI_File_write_at_all_begin", fh, all(at(WRITE, offset)), data(buf, count as i64, datatype))
}

pub unsafe fn MPI_File_write_at_all_begin_c(fh: File, offset: i64, buf: *const c_void, count: i64, datatype: Datatype) -> c_int {
    begin("MPI_File_write_at_all_begin_c", fh, all(at(WRITE, offset)), data(buf, count, datatype))
}

pub unsafe fn MPI_File_write_at_all_c(fh: File, offset: i64, buf: *const c_void, count: i64, datatype: Datatype, status: *mut Status) -> c_int {
    run("MPI_File_write_at_all_c", fh, all(at(WRITE, offset)), data(buf, count, datatype), status)
}

pub unsafe fn MPI_File_write_at_all_end(fh: File, buf: *const c_void, status: *mut Status) -> c_int {
    end("MPI_File_write_at_all_end", fh, "MPI_File_write_at_all_begin", buf, status)
}

pub unsafe fn MPI_File_write_at_c(fh: File, offset: i64, buf: *const c_void, count: i64, datatype: Datatype, status: *mut Status) -> c_int {
    run("MPI_File_write_at_c", fh, at(WRITE, offset), data(buf, count, datatype), status)
}

pub unsafe fn MPI_File_write_c(fh: File, buf: *const c_void, count: i64, datatype: Datatype, status: *mut Status) -> c_int {
    run("MPI_File_write_c", fh, WRITE, data(buf, count, datatype), status)
}

pub unsafe fn MPI_File_write_ordered(fh: File, buf: *const c_void, count: c_int, datatype: Datatype, status: *mut Status) -> c_int {
    run("MPI_File_write_ordered", fh, all(shared(WRITE)), data(buf, count as i64, datatype), status)
}

pub unsafe fn MPI_File_write_ordered_begin(fh: File, buf: *const c_void, count: c_int, datatype: Datatype) -> c_int {
    begin("MPI_File_write_ordered_begin", fh, all(shared(WRITE)), data(buf, count as i64, datatype))
}

pub unsafe fn MPI_File_write_ordered_begin_c(fh: File, buf: *const c_void, count: i64, datatype: Datatype) -> c_int {
    begin("MPI_File_write_ordered_begin_c", fh, all(shared(WRITE)), data(buf, count, datatype))
}

pub unsafe fn MPI_File_write_ordered_c(fh: File, buf: *const c_void, count: i64, datatype: Datatype, status: *mut Status) -> c_int {
    run("MPI_File_write_ordered_c", fh, all(shared(WRITE)), data(buf, count, datatype), status)
}

pub unsafe fn MPI_File_write_ordered_end(fh: File, buf: *const c_void, status: *mut Status) -> c_int {
    end("MPI_File_write_ordered_end", fh, "MPI_File_write_ordered_begin", buf, status)
}

pub unsafe fn MPI_File_write_shared(fh: File, buf: *const c_void, count: c_int, datatype: Datatype, status: *mut Status) -> c_int {
    run("MPI_File_write_shared", fh, shared(WRITE), data(buf, count as i64, datatype), status)
}

pub unsafe fn MPI_File_write_shared_c(fh: File, buf: *const c_void, count: i64, datatype: Datatype, status: *mut Status) -> c_int {
    run("MPI_File_write_shared_c", fh, shared(WRITE), data(buf, count, datatype), status)
}
