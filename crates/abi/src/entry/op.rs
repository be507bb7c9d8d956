//! Operations (MPI-5.0 §6.9).

use crate::args::{load, room, store};
use crate::finish;
use mpi::consts::*;
use mpi::error::Error;
use mpi::handle::*;
use mpi::operation::{self, Function, User};
use std::ffi::c_int;

unsafe fn create(name: &'static str, function: Option<Function>, commute: c_int, op: *mut Op) -> c_int {
    let function = function.ok_or_else(|| Error::new(MPI_ERR_ARG, "user_fn is null"));
    let made = function.and_then(|function| room(op, "op").and_then(|()| operation::create(User { function, commutative: commute != 0 })));
    finish(name, made.and_then(|made| store(op, "op", made)))
}

pub unsafe fn MPI_Op_create(user_fn: Option<UserFunction>, commute: c_int, op: *mut Op) -> c_int {
    create("MPI_Op_create", user_fn.map(Function::Small), commute, op)
}

pub unsafe fn MPI_Op_create_c(user_fn: Option<UserFunctionC>, commute: c_int, op: *mut Op) -> c_int {
    create("MPI_Op_create_c", user_fn.map(Function::Large), commute, op)
}

pub unsafe fn MPI_Op_free(op: *mut Op) -> c_int {
    finish("MPI_Op_free", load(op, "op").and_then(operation::free).and_then(|()| store(op, "op", MPI_OP_NULL)))
}

pub unsafe fn MPI_Op_commutative(op: Op, commute: *mut c_int) -> c_int {
    finish("MPI_Op_commutative", operation::commutative(op).and_then(|c| store(commute, "commute", c as c_int)))
}
