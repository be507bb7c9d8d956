//! The ABI chapter (MPI-5.0 chapter 20): its version, and handles as integers.
//!
//! Every handle of this library, predefined or not, is at most `i32::MAX`, so that its integer is its value.

use mpi::handle::*;
use std::ffi::c_int;

pub unsafe fn MPI_Comm_toint(comm: Comm) -> c_int {
    to_int(comm.0)
}

pub unsafe fn MPI_Comm_fromint(comm: c_int) -> Comm {
    Comm(from_int(comm))
}

pub unsafe fn MPI_Errhandler_toint(errhandler: Errhandler) -> c_int {
    to_int(errhandler.0)
}

pub unsafe fn MPI_Errhandler_fromint(errhandler: c_int) -> Errhandler {
    Errhandler(from_int(errhandler))
}

pub unsafe fn MPI_File_toint(file: File) -> c_int {
    to_int(file.0)
}

pub unsafe fn MPI_File_fromint(file: c_int) -> File {
    File(from_int(file))
}

pub unsafe fn MPI_Group_toint(group: Group) -> c_int {
    to_int(group.0)
}

pub unsafe fn MPI_Group_fromint(group: c_int) -> Group {
    Group(from_int(group))
}

pub unsafe fn MPI_Info_toint(info: Info) -> c_int {
    to_int(info.0)
}

pub unsafe fn MPI_Info_fromint(info: c_int) -> Info {
    Info(from_int(info))
}

pub unsafe fn MPI_Message_toint(message: Message) -> c_int {
    to_int(message.0)
}

pub unsafe fn MPI_Message_fromint(message: c_int) -> Message {
    Message(from_int(message))
}

pub unsafe fn MPI_Op_toint(op: Op) -> c_int {
    to_int(op.0)
}

pub unsafe fn MPI_Op_fromint(op: c_int) -> Op {
    Op(from_int(op))
}

pub unsafe fn MPI_Request_toint(request: Request) -> c_int {
    to_int(request.0)
}

pub unsafe fn MPI_Request_fromint(request: c_int) -> Request {
    Request(from_int(request))
}

pub unsafe fn MPI_Session_toint(session: Session) -> c_int {
    to_int(session.0)
}

pub unsafe fn MPI_Session_fromint(session: c_int) -> Session {
    Session(from_int(session))
}

pub unsafe fn MPI_Type_toint(datatype: Datatype) -> c_int {
    to_int(datatype.0)
}

pub unsafe fn MPI_Type_fromint(datatype: c_int) -> Datatype {
    Datatype(from_int(datatype))
}

pub unsafe fn MPI_Win_toint(win: Win) -> c_int {
    to_int(win.0)
}

pub unsafe fn MPI_Win_fromint(win: c_int) -> Win {
    Win(from_int(win))
}

fn to_int(handle: usize) -> c_int {
    debug_assert!(handle <= c_int::MAX as usize);
    handle as c_int
}

fn from_int(integer: c_int) -> usize {
    integer as u32 as usize
}
