//! Reading and writing a status (MPI-5.0 §3.2.5, §3.8.4, §13.3).

use crate::args::{load, store};
use crate::finish;
use mpi::consts::MPI_ERR_ARG;
use mpi::error::{Error, Result};
use mpi::handle::Status;
use std::ffi::c_int;

pub unsafe fn MPI_Status_get_source(status: *const Status, source: *mut c_int) -> c_int {
    finish("MPI_Status_get_source", load(status, "status").and_then(|status| store(source, "source", status.source)))
}

pub unsafe fn MPI_Status_get_tag(status: *const Status, tag: *mut c_int) -> c_int {
    finish("MPI_Status_get_tag", load(status, "status").and_then(|status| store(tag, "tag", status.tag)))
}

pub unsafe fn MPI_Status_get_error(status: *const Status, error: *mut c_int) -> c_int {
    finish("MPI_Status_get_error", load(status, "status").and_then(|status| store(error, "error", status.error)))
}

pub unsafe fn MPI_Status_set_source(status: *mut Status, source: c_int) -> c_int {
    finish("MPI_Status_set_source", change(status, |status| status.source = source))
}

pub unsafe fn MPI_Status_set_tag(status: *mut Status, tag: c_int) -> c_int {
    finish("MPI_Status_set_tag", change(status, |status| status.tag = tag))
}

pub unsafe fn MPI_Status_set_error(status: *mut Status, error: c_int) -> c_int {
    finish("MPI_Status_set_error", change(status, |status| status.error = error))
}

pub unsafe fn MPI_Status_set_cancelled(status: *mut Status, flag: c_int) -> c_int {
    finish("MPI_Status_set_cancelled", change(status, |status| status.set_cancelled(flag != 0)))
}

pub unsafe fn MPI_Test_cancelled(status: *const Status, flag: *mut c_int) -> c_int {
    let cancelled = load(status, "status").map(|status| c_int::from(status.is_cancelled()));
    finish("MPI_Test_cancelled", cancelled.and_then(|cancelled| store(flag, "flag", cancelled)))
}

unsafe fn change(status: *mut Status, change: impl FnOnce(&mut Status)) -> Result<()> {
    // SAFETY: null or the program's own status, which no other thread touches during the call.
    let status = unsafe { status.as_mut() };
    status.map(change).ok_or_else(|| Error::new(MPI_ERR_ARG, "status is null or MPI_STATUS_IGNORE"))
}
