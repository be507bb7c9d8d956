//! Error handlers of files (MPI-5.0 §9.3.3, §14.7).

use crate::args::store;
use mpi::consts::MPI_SUCCESS;
use mpi::error::{Error, Result};
use mpi::file;
use mpi::handle::{Errhandler, File};
use std::ffi::c_int;

fn finish(file: File, function: &str, result: Result<()>) -> c_int {
    mpi::tool::settle();
    result.map_or_else(|error| file::raise(file, function, &error), |()| MPI_SUCCESS)
}

pub unsafe fn MPI_File_set_errhandler(file: File, errhandler: Errhandler) -> c_int {
    finish(file, "MPI_File_set_errhandler", file::set_errhandler(file, errhandler))
}

pub unsafe fn MPI_File_get_errhandler(file: File, errhandler: *mut Errhandler) -> c_int {
    let got = file::errhandler(file).and_then(|handler| store(errhandler, "errhandler", handler));
    finish(file, "MPI_File_get_errhandler", got)
}

pub unsafe fn MPI_File_call_errhandler(fh: File, errorcode: c_int) -> c_int {
    let function = "MPI_File_call_errhandler";
    let called = file::check(fh).map(|()| {
        file::raise(fh, function, &Error { class: errorcode, detail: format!("called with code {errorcode}") });
    });
    finish(fh, function, called)
}
