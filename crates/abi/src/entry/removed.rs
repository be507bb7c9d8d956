//! Functions that the standard has removed (MPI-5.0 chapter 17), which old programs still link against: `abi/removed.tsv`.
//!
//! Each does what the function does that took its place, and names itself in errors.

use super::comm::check_handler;
use super::datatype::{blocks, give, structure};
use crate::args::store;
use crate::{finish, finish_on};
use mpi::comm::find;
use mpi::consts::MPI_ERR_ARG;
use mpi::datatype::{self, Form, Type};
use mpi::error::Error;
use mpi::errors::{self, Handler};
use mpi::handle::{Comm, CommErrhandlerFunction, Datatype, Errhandler};
use std::ffi::{c_int, c_void};

pub unsafe fn MPI_Address(location: *mut c_void, address: *mut isize) -> c_int {
    finish("MPI_Address", store(address, "address", location as isize))
}

pub unsafe fn MPI_Errhandler_create(function: Option<CommErrhandlerFunction>, errhandler: *mut Errhandler) -> c_int {
    let handler = function.map(Handler::Comm).ok_or_else(|| Error::new(MPI_ERR_ARG, "the error handler function is null"));
    finish("MPI_Errhandler_create", handler.and_then(|handler| super::errors::create(Some(handler), errhandler)))
}

pub unsafe fn MPI_Errhandler_get(comm: Comm, errhandler: *mut Errhandler) -> c_int {
    let got = find(comm).and_then(|c| errors::retain_handler(c.errhandler()).map(|_| c.errhandler()));
    finish_on(comm, "MPI_Errhandler_get", got.and_then(|h| store(errhandler, "errhandler", h)))
}

pub unsafe fn MPI_Errhandler_set(comm: Comm, errhandler: Errhandler) -> c_int {
    let set = find(comm).and_then(|c| check_handler(errhandler).and_then(|()| c.set_errhandler(errhandler)));
    finish_on(comm, "MPI_Errhandler_set", set)
}

pub unsafe fn MPI_Type_extent(datatype: Datatype, extent: *mut isize) -> c_int {
    bound("MPI_Type_extent", datatype, Type::extent, extent, "extent")
}

pub unsafe fn MPI_Type_lb(datatype: Datatype, displacement: *mut isize) -> c_int {
    bound("MPI_Type_lb", datatype, Type::lb, displacement, "displacement")
}

pub unsafe fn MPI_Type_ub(datatype: Datatype, displacement: *mut isize) -> c_int {
    bound("MPI_Type_ub", datatype, |found| found.lb() + found.extent(), displacement, "displacement")
}

unsafe fn bound(function: &str, datatype: Datatype, of: fn(&Type) -> isize, place: *mut isize, name: &str) -> c_int {
    finish(function, datatype::lookup(datatype).and_then(|found| store(place, name, of(found))))
}

pub unsafe fn MPI_Type_hvector(count: c_int, blocklength: c_int, stride: isize, oldtype: Datatype, newtype: *mut Datatype) -> c_int {
    give("MPI_Type_hvector", datatype::hvector(Form::Small, count.into(), blocklength.into(), stride as i64, oldtype), newtype)
}

pub unsafe fn MPI_Type_hindexed(
    count: c_int,
    array_of_blocklengths: *mut c_int,
    array_of_displacements: *mut isize,
    oldtype: Datatype,
    newtype: *mut Datatype,
) -> c_int {
    let (lengths, displacements) = (array_of_blocklengths.cast_const(), array_of_displacements.cast_const());
    give("MPI_Type_hindexed", blocks(datatype::hindexed, Form::Small, count.into(), lengths, displacements, oldtype), newtype)
}

pub unsafe fn MPI_Type_struct(
    count: c_int,
    array_of_blocklengths: *mut c_int,
    array_of_displacements: *mut isize,
    array_of_types: *mut Datatype,
    newtype: *mut Datatype,
) -> c_int {
    let (lengths, displacements) = (array_of_blocklengths.cast_const(), array_of_displacements.cast_const());
    give("MPI_Type_struct", structure(Form::Small, count.into(), lengths, displacements, array_of_types.cast_const()), newtype)
}
