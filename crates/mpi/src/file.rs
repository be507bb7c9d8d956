//! Files (MPI-5.0 chapter 14): the error handler with which they begin, that of `MPI_FILE_NULL` (§14.7).

use crate::consts::*;
use crate::error::{Error, Result};
use crate::errors::{self, Handler};
use crate::handle::{Errhandler, File};
use crate::world;
use std::sync::atomic::{AtomicUsize, Ordering};

static HANDLER: AtomicUsize = AtomicUsize::new(MPI_ERRORS_RETURN.0);

/// Whether the handle is `MPI_FILE_NULL`, which stands for files that are yet to be opened.
///
/// # Errors
/// `MPI_ERR_FILE` for any other: no file is open.
pub fn check(file: File) -> Result<()> {
    match file {
        MPI_FILE_NULL => Ok(()),
        _ => Err(Error::new(MPI_ERR_FILE, format!("{:#x} is no open file", file.0))),
    }
}

/// `MPI_File_get_errhandler`: a reference that the caller frees.
///
/// # Errors
/// As [`check`].
pub fn errhandler(file: File) -> Result<Errhandler> {
    check(file)?;
    let handler = Errhandler(HANDLER.load(Ordering::Relaxed));
    errors::retain_handler(handler).map(|_| handler)
}

/// `MPI_File_set_errhandler`.
///
/// # Errors
/// As [`check`]; `MPI_ERR_ERRHANDLER` when the handler is none of files.
pub fn set_errhandler(file: File, new: Errhandler) -> Result<()> {
    check(file)?;
    if let Handler::Comm(_) | Handler::Win(_) | Handler::Session(_) = errors::handler(new)? {
        return Err(Error::new(MPI_ERR_ERRHANDLER, "the error handler is not one of files"));
    }
    errors::retain_handler(new)?;
    errors::release_handler(Errhandler(HANDLER.swap(new.0, Ordering::Relaxed)))
}

/// Raises `error` of `function` on a file, and gives the code to return.
#[cold]
pub fn raise(mut file: File, function: &str, error: &Error) -> i32 {
    errors::remember(error.class, &format!("{function}: {}", error.detail));
    let mut code = error.class;
    match errors::handler(Errhandler(HANDLER.load(Ordering::Relaxed))) {
        Ok(Handler::Return) => {}
        // SAFETY: the user's handler, called as the standard says.
        Ok(Handler::File(user)) => unsafe {
            engine::order::before_callback();
            user(&mut file, &mut code)
        },
        _ => world::abort(code, &format!("rank {}: {function} failed: {}: {}", world::me(), errors::message(error.class), error.detail)),
    }
    error.class
}
