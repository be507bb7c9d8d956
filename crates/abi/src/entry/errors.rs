//! Error classes, codes, strings and the making of error handlers (MPI-5.0 §9.3 to §9.5).

use crate::args::{bytes, load, store, store_text};
use crate::finish;
use mpi::consts::*;
use mpi::error::{Error, Result};
use mpi::errors::{self, Handler};
use mpi::handle::*;
use std::ffi::{c_char, c_int};

pub unsafe fn MPI_Add_error_class(errorclass: *mut c_int) -> c_int {
    finish("MPI_Add_error_class", errors::add_class().and_then(|class| store(errorclass, "errorclass", class)))
}

pub unsafe fn MPI_Add_error_code(errorclass: c_int, errorcode: *mut c_int) -> c_int {
    finish("MPI_Add_error_code", errors::add_code(errorclass).and_then(|code| store(errorcode, "errorcode", code)))
}

pub unsafe fn MPI_Add_error_string(errorcode: c_int, string: *const c_char) -> c_int {
    let added = bytes(string, MPI_ERR_ARG, "string").and_then(|text| errors::add_string(errorcode, text));
    finish("MPI_Add_error_string", added)
}

pub unsafe fn MPI_Remove_error_class(errorclass: c_int) -> c_int {
    finish("MPI_Remove_error_class", errors::remove_class(errorclass))
}

pub unsafe fn MPI_Remove_error_code(errorcode: c_int) -> c_int {
    finish("MPI_Remove_error_code", errors::remove_code(errorcode))
}

pub unsafe fn MPI_Remove_error_string(errorcode: c_int) -> c_int {
    finish("MPI_Remove_error_string", errors::remove_string(errorcode))
}

pub unsafe fn MPI_Error_class(errorcode: c_int, errorclass: *mut c_int) -> c_int {
    finish("MPI_Error_class", errors::class_of(errorcode).and_then(|class| store(errorclass, "errorclass", class)))
}

pub unsafe fn MPI_Error_string(errorcode: c_int, string: *mut c_char, resultlen: *mut c_int) -> c_int {
    let describe = || -> Result<()> {
        let text = errors::string(errorcode)?;
        store_text(string, "string", &text, MPI_MAX_ERROR_STRING)?;
        store(resultlen, "resultlen", text.len() as c_int)
    };
    finish("MPI_Error_string", describe())
}

pub unsafe fn MPI_Comm_create_errhandler(comm_errhandler_fn: Option<CommErrhandlerFunction>, errhandler: *mut Errhandler) -> c_int {
    finish("MPI_Comm_create_errhandler", create(comm_errhandler_fn.map(Handler::Comm), errhandler))
}

pub unsafe fn MPI_Win_create_errhandler(win_errhandler_fn: Option<WinErrhandlerFunction>, errhandler: *mut Errhandler) -> c_int {
    finish("MPI_Win_create_errhandler", create(win_errhandler_fn.map(Handler::Win), errhandler))
}

pub unsafe fn MPI_File_create_errhandler(file_errhandler_fn: Option<FileErrhandlerFunction>, errhandler: *mut Errhandler) -> c_int {
    finish("MPI_File_create_errhandler", create(file_errhandler_fn.map(Handler::File), errhandler))
}

pub unsafe fn MPI_Session_create_errhandler(session_errhandler_fn: Option<SessionErrhandlerFunction>, errhandler: *mut Errhandler) -> c_int {
    finish("MPI_Session_create_errhandler", create(session_errhandler_fn.map(Handler::Session), errhandler))
}

pub unsafe fn MPI_Errhandler_free(errhandler: *mut Errhandler) -> c_int {
    let released = load(errhandler, "errhandler").and_then(errors::release_handler);
    finish("MPI_Errhandler_free", released.and_then(|()| store(errhandler, "errhandler", MPI_ERRHANDLER_NULL)))
}

pub(super) unsafe fn create(handler: Option<Handler>, place: *mut Errhandler) -> Result<()> {
    let handler = handler.ok_or_else(|| Error::new(MPI_ERR_ARG, "the error handler function is null"))?;
    store(place, "errhandler", errors::create_handler(handler)?)
}
