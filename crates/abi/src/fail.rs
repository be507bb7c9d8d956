//! The one way by which an entry point reports an error.

use mpi::consts::{MPI_ERR_UNSUPPORTED_OPERATION, MPI_SUCCESS};
use mpi::error::{Error, Result};
use mpi::handle::{Comm, Errhandler};
use std::ffi::c_int;

/// Raises `error` of `function` where no object's error handler applies, and gives the code for the caller to return
/// (MPI-5.0 §9.3): on `MPI_COMM_SELF`, and before initialization on the initial handler.
#[cold]
#[allow(clippy::boxed_local)]
pub fn fail(function: &str, error: Box<Error>) -> c_int {
    mpi::world::raise(None, function, &error)
}

/// Raises `error` of `function` on `comm`, if that is a communicator.
#[cold]
#[allow(clippy::boxed_local)]
pub fn fail_on(comm: Comm, function: &str, error: Box<Error>) -> c_int {
    mpi::world::raise(mpi::comm::find(comm).ok(), function, &error)
}

/// The code of a call that may only be made between initialization and finalization, where it is made outside.
#[inline(always)]
pub fn outside(function: &str) -> Option<c_int> {
    if mpi::world::is_usable() { None } else { Some(fail_outside(function)) }
}

/// Apart, so that a call that is made inside saves nothing for it.
#[cold]
#[inline(never)]
fn fail_outside(function: &str) -> c_int {
    fail(function, mpi::world::unusable())
}

/// The code of a finished call: `MPI_SUCCESS`, or what raising the error gives.
#[inline(always)]
pub fn finish(function: &str, result: Result<()>) -> c_int {
    if result.is_ok() && !mpi::tool::is_unsettled() { MPI_SUCCESS } else { finish_otherwise(function, result) }
}

/// As [`finish`], for a call on a communicator.
#[inline(always)]
pub fn finish_on(comm: Comm, function: &str, result: Result<()>) -> c_int {
    if result.is_ok() && !mpi::tool::is_unsettled() { MPI_SUCCESS } else { finish_otherwise_on(comm, function, result) }
}

#[cold]
#[inline(never)]
fn finish_otherwise(function: &str, result: Result<()>) -> c_int {
    mpi::tool::settle();
    result.map_or_else(|error| fail(function, error), |()| MPI_SUCCESS)
}

#[cold]
#[inline(never)]
fn finish_otherwise_on(comm: Comm, function: &str, result: Result<()>) -> c_int {
    mpi::tool::settle();
    result.map_or_else(|error| fail_on(comm, function, error), |()| MPI_SUCCESS)
}

/// As [`finish`], for a call that makes an object which `errhandler` was meant for.
#[allow(clippy::boxed_local)]
pub fn finish_making(errhandler: Errhandler, function: &str, result: Result<()>) -> c_int {
    match result {
        Ok(()) => MPI_SUCCESS,
        Err(error) => mpi::world::raise_on(errhandler, function, &error),
    }
}

/// Raises `MPI_ERR_UNSUPPORTED_OPERATION` for a function of the ABI that is not built.
#[cold]
pub fn unsupported(function: &'static str) -> c_int {
    fail(function, not_built(function))
}

/// Gives `MPI_ERR_UNSUPPORTED_OPERATION` for an `MPI_T_` function that is not built; those never call an error handler (MPI-5.0 §15.3.10).
#[cold]
pub fn unsupported_tool(function: &'static str) -> c_int {
    let error = not_built(function);
    mpi::errors::remember(error.class, &format!("{function}: {}", error.detail));
    error.class
}

fn not_built(function: &str) -> Box<Error> {
    Error::new(MPI_ERR_UNSUPPORTED_OPERATION, format!("{function} is not built in this version of Whimbrel"))
}
