//! Files (MPI-5.0 chapter 14) of local and shared POSIX file systems.
//!
//! [`open`] makes an [`OpenFile`]; [`view`] says where a process' data lies in it; [`access`] moves data, alone or, through
//! [`crate::coll::aggregate`], together; [`pages`] when without system calls; [`pointer`] is the shared file pointer; [`datarep`] the data representations.

pub mod access;
pub mod datarep;
pub mod hints;
pub mod manage;
pub mod open;
pub mod pages;
pub mod pointer;
pub mod view;

use crate::coll::aggregate::Rooms;
use crate::comm::{self, Comm};
use crate::consts::*;
use crate::error::{Error, Result};
use crate::errors::{self, Handler};
use crate::handle::{self, Errhandler, File};
use crate::table::Table;
use crate::world;
use hints::Hints;
use pointer::SharedPointer;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};
use view::View;

static FILES: Table<OpenFile> = Table::new();

/// The error handler of `MPI_FILE_NULL`, with which files begin (§14.7).
static DEFAULT_HANDLER: AtomicUsize = AtomicUsize::new(MPI_ERRORS_RETURN.0);

/// An open file, seen from this process.
pub struct OpenFile {
    /// A duplicate of the communicator that the file was opened on.
    pub comm: handle::Comm,
    pub amode: i32,
    path: PathBuf,
    os: std::fs::File,
    view: RwLock<Arc<View>>,
    /// The individual file pointer, in elementary datatypes of the view.
    position: Mutex<i64>,
    shared: SharedPointer,
    atomic: AtomicBool,
    /// Something was written since the last synchronization.
    dirty: AtomicBool,
    /// Held with the operating system's lock on the file, which threads of one process share.
    locking: Mutex<()>,
    /// What collective accesses have used and may use again.
    rooms: Mutex<Rooms>,
    pages: Mutex<pages::Pages>,
    /// The split collective that has begun.
    split: Mutex<Option<access::Split>>,
    hints: Mutex<Hints>,
    /// All ranks share memory, and so are on one host.
    near: bool,
    errhandler: AtomicUsize,
}

impl OpenFile {
    /// The communicator of the file.
    pub fn comm(&self) -> Result<&'static Comm> {
        comm::find(self.comm)
    }

    pub fn view(&self) -> Arc<View> {
        self.view.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub fn hints(&self) -> Hints {
        lock(&self.hints).clone()
    }

    fn readable(&self) -> bool {
        self.amode & MPI_MODE_WRONLY == 0
    }

    fn writable(&self) -> bool {
        self.amode & MPI_MODE_RDONLY == 0
    }

    fn sequential(&self) -> bool {
        self.amode & MPI_MODE_SEQUENTIAL != 0
    }

    /// The size of the file, bytes.
    fn size_bytes(&self) -> Result<u64> {
        Ok(self.os.metadata().map_err(|e| self.trouble("its size cannot be asked", &e))?.len())
    }

    /// What the operating system said about this file.
    fn trouble(&self, what: &str, error: &std::io::Error) -> Box<Error> {
        trouble(&self.path, what, error)
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What the operating system said about a file, as an error of the class that names it (MPI-5.0 §14.8).
fn trouble(path: &std::path::Path, what: &str, error: &std::io::Error) -> Box<Error> {
    use rustix::io::Errno;
    let class = match error.raw_os_error().map(Errno::from_raw_os_error) {
        Some(Errno::NOENT) => MPI_ERR_NO_SUCH_FILE,
        Some(Errno::ACCESS | Errno::PERM) => MPI_ERR_ACCESS,
        Some(Errno::EXIST) => MPI_ERR_FILE_EXISTS,
        Some(Errno::NOSPC) => MPI_ERR_NO_SPACE,
        Some(Errno::DQUOT) => MPI_ERR_QUOTA,
        Some(Errno::ROFS) => MPI_ERR_READ_ONLY,
        Some(Errno::BUSY | Errno::TXTBSY) => MPI_ERR_FILE_IN_USE,
        Some(Errno::NAMETOOLONG | Errno::NOTDIR | Errno::ISDIR | Errno::LOOP) => MPI_ERR_BAD_FILE,
        Some(Errno::NOMEM) => MPI_ERR_NO_MEM,
        _ => MPI_ERR_IO,
    };
    Error::new(class, format!("{}: {what}: {error}", path.display()))
}

/// The file behind a handle.
///
/// # Errors
/// `MPI_ERR_FILE`.
pub fn find(file: File) -> Result<Arc<OpenFile>> {
    FILES.share(file.0).ok_or_else(|| match file {
        MPI_FILE_NULL => Error::new(MPI_ERR_FILE, "the file is MPI_FILE_NULL"),
        _ => Error::new(MPI_ERR_FILE, format!("{:#x} is no open file", file.0)),
    })
}

/// Where the error handler of a file is kept; `MPI_FILE_NULL` stands for files that are yet to be opened.
fn handler_of(file: File, with: impl FnOnce(&AtomicUsize) -> Result<()>) -> Result<()> {
    match file {
        MPI_FILE_NULL => with(&DEFAULT_HANDLER),
        _ => with(&find(file)?.errhandler),
    }
}

/// `MPI_File_get_errhandler`: a reference that the caller frees.
///
/// # Errors
/// `MPI_ERR_FILE`.
pub fn errhandler(file: File) -> Result<Errhandler> {
    let mut handler = MPI_ERRHANDLER_NULL;
    handler_of(file, |kept| {
        handler = Errhandler(kept.load(Ordering::Relaxed));
        errors::retain_handler(handler).map(|_| ())
    })?;
    Ok(handler)
}

/// `MPI_File_set_errhandler`.
///
/// # Errors
/// `MPI_ERR_FILE`; `MPI_ERR_ERRHANDLER` when the handler is none of files.
pub fn set_errhandler(file: File, new: Errhandler) -> Result<()> {
    handler_of(file, |kept| {
        if let Handler::Comm(_) | Handler::Win(_) | Handler::Session(_) = errors::handler(new)? {
            return Err(Error::new(MPI_ERR_ERRHANDLER, "the error handler is not one of files"));
        }
        errors::retain_handler(new)?;
        errors::release_handler(Errhandler(kept.swap(new.0, Ordering::Relaxed)))
    })
}

/// Whether the handle is an open file or `MPI_FILE_NULL`.
///
/// # Errors
/// `MPI_ERR_FILE`.
pub fn check(file: File) -> Result<()> {
    handler_of(file, |_| Ok(()))
}

/// Raises `error` of `function` on a file, and gives the code to return. What is no file has the handler of `MPI_FILE_NULL` (§14.7).
#[cold]
pub fn raise(mut file: File, function: &str, error: &Error) -> i32 {
    errors::remember(error.class, &format!("{function}: {}", error.detail));
    let mut code = error.class;
    let kept = find(file).map_or(DEFAULT_HANDLER.load(Ordering::Relaxed), |open| open.errhandler.load(Ordering::Relaxed));
    match errors::handler(Errhandler(kept)) {
        Ok(Handler::Return) => {}
        // SAFETY: the user's handler, called as the standard says.
        Ok(Handler::File(user)) => unsafe { user(&mut file, &mut code) },
        _ => world::abort(code, &format!("rank {}: {function} failed: {}: {}", world::me(), errors::message(error.class), error.detail)),
    }
    error.class
}
