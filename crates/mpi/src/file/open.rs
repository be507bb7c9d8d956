//! Opening, closing and deleting files (MPI-5.0 §14.2).

use super::hints::Hints;
use super::pointer::SharedPointer;
use super::view::View;
use super::{DEFAULT_HANDLER, FILES, OpenFile, find, lock, trouble};
use crate::collective;
use crate::comm::{self, Comm};
use crate::consts::*;
use crate::creation;
use crate::error::{Error, Result};
use crate::errors;
use crate::exchange::{agree, same};
use crate::handle::{self, Errhandler, File};
use crate::info;
use crate::world;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, RwLock};

/// Permissions of a file that is created, less the process' umask.
const PERMISSIONS: u32 = 0o666;
/// Names of file systems that a program may put before a file's name, as other libraries know them; all are used in the same way.
const PREFIXES: [&str; 8] = ["ufs", "nfs", "lustre", "gpfs", "panfs", "xfs", "testfs", "daos"];

const ACCESS: i32 = MPI_MODE_RDONLY | MPI_MODE_WRONLY | MPI_MODE_RDWR;
const KNOWN: i32 = ACCESS | MPI_MODE_CREATE | MPI_MODE_EXCL | MPI_MODE_DELETE_ON_CLOSE | MPI_MODE_UNIQUE_OPEN | MPI_MODE_SEQUENTIAL | MPI_MODE_APPEND;

/// The path in a file name.
fn path_of(name: &[u8]) -> Result<PathBuf> {
    let known = |prefix: &[u8]| PREFIXES.iter().any(|known| known.as_bytes() == prefix);
    let name = match name.iter().position(|byte| *byte == b':') {
        Some(colon) if known(&name[..colon]) => &name[colon + 1..],
        _ => name,
    };
    if name.is_empty() {
        return Err(Error::new(MPI_ERR_BAD_FILE, "filename is empty"));
    }
    Ok(Path::new(OsStr::from_bytes(name)).to_path_buf())
}

fn check_amode(amode: i32) -> Result<()> {
    let refuse = |why: &str| Err(Error::new(MPI_ERR_AMODE, format!("amode = {amode}: {why}")));
    if amode & !KNOWN != 0 {
        return refuse("it has bits that are no access mode");
    }
    if (amode & ACCESS).count_ones() != 1 {
        return refuse("exactly one of MPI_MODE_RDONLY, MPI_MODE_WRONLY and MPI_MODE_RDWR is possible");
    }
    if amode & MPI_MODE_RDONLY != 0 && amode & (MPI_MODE_CREATE | MPI_MODE_EXCL) != 0 {
        return refuse("MPI_MODE_CREATE and MPI_MODE_EXCL do not go with MPI_MODE_RDONLY");
    }
    if amode & MPI_MODE_RDWR != 0 && amode & MPI_MODE_SEQUENTIAL != 0 {
        return refuse("MPI_MODE_SEQUENTIAL does not go with MPI_MODE_RDWR");
    }
    Ok(())
}

fn options(amode: i32, permissions: u32) -> std::fs::OpenOptions {
    let mut options = std::fs::OpenOptions::new();
    options.read(amode & MPI_MODE_WRONLY == 0).write(amode & MPI_MODE_RDONLY == 0).mode(permissions);
    options
}

/// Rank 0 creates the file where it is to be created, the others open it then.
fn open_all(function: &'static str, comm: &Comm, path: &Path, amode: i32, permissions: u32) -> Result<std::fs::File> {
    let opened = |options: &std::fs::OpenOptions| options.open(path).map_err(|e| trouble(path, "it cannot be opened", &e));
    let creates = amode & MPI_MODE_CREATE != 0;
    let first = if comm.rank == 0 {
        let mut options = options(amode, permissions);
        // Without MPI_MODE_CREATE, MPI_MODE_EXCL says nothing.
        options.create(creates).create_new(creates && amode & MPI_MODE_EXCL != 0);
        Some(opened(&options))
    } else {
        None
    };
    let failed = first.as_ref().and_then(|first| first.as_ref().err()).map(|error| Error::new(error.class, error.detail.clone()));
    agree(function, comm, failed.map_or(Ok(()), Err))?;
    let file = first.unwrap_or_else(|| opened(&options(amode, permissions)));
    agree(function, comm, file)
}

/// `MPI_File_open`.
///
/// # Errors
/// `MPI_ERR_COMM`, `MPI_ERR_AMODE`, `MPI_ERR_NOT_SAME`, and what the operating system says, the same class on all ranks.
pub fn open(comm: handle::Comm, name: &[u8], amode: i32, given: handle::Info) -> Result<File> {
    let function = "MPI_File_open";
    let parent = comm::find_intra(comm)?;
    let duplicate = creation::dup(function, parent)?;
    // Errors of requests are told to whoever waits for them.
    duplicate.set_errhandler(MPI_ERRORS_RETURN)?;
    let checked = check_amode(amode).and_then(|()| {
        let mut hints = Hints::default();
        hints.update(&info::hints(given)?)?;
        Ok((path_of(name)?, hints))
    });
    let (path, hints) = agree(function, &duplicate, checked)?;
    same(function, &duplicate, "amode", &amode.to_ne_bytes())?;
    let os = open_all(function, &duplicate, &path, amode, hints.permissions.unwrap_or(PERMISSIONS))?;
    let shared = SharedPointer::new(function, &duplicate, &path)?;
    let handler = Errhandler(DEFAULT_HANDLER.load(Ordering::Relaxed));
    errors::retain_handler(handler)?;
    let handle = comm::publish(duplicate.clone())?;
    let file = OpenFile {
        comm: handle,
        amode,
        path,
        os,
        view: RwLock::new(Arc::new(View::bytes()?)),
        position: Mutex::new(0),
        shared,
        atomic: AtomicBool::new(false),
        dirty: AtomicBool::new(false),
        locking: Mutex::new(()),
        rooms: Mutex::default(),
        pages: Mutex::default(),
        split: Mutex::new(None),
        hints: Mutex::new(hints),
        near: world::get()?.shares_memory(duplicate.group.processes()),
        errhandler: AtomicUsize::new(handler.0),
    };
    let end = if amode & MPI_MODE_APPEND != 0 { agree(function, &duplicate, file.size_bytes())? as i64 } else { 0 };
    *lock(&file.position) = end;
    if duplicate.rank == 0 {
        file.shared.set(end)?;
    }
    // Nobody uses the shared pointer before it is set.
    collective::now(function, &duplicate, collective::barrier_plan(&duplicate))?;
    FILES.insert(file).map(File).ok_or_else(|| Error::new(MPI_ERR_OTHER, "too many files are open"))
}

/// `MPI_File_close`: what was written reaches the disk first, as by `MPI_File_sync` (§14.2.2).
///
/// # Errors
/// `MPI_ERR_FILE`, what the operating system says; the file is closed all the same.
pub fn close(handle: File) -> Result<()> {
    let function = "MPI_File_close";
    let file = find(handle)?;
    let comm = file.comm()?;
    if let Some(split) = lock(&file.split).as_ref() {
        return Err(Error::new(MPI_ERR_OTHER, format!("{} has not been ended", split.function)));
    }
    let discarded = file.amode & MPI_MODE_DELETE_ON_CLOSE != 0;
    let synchronized = if discarded { Ok(()) } else { file.flush() };
    // All have finished with the file before it may be deleted.
    let mut result = agree(function, comm, synchronized);
    if discarded {
        // Nobody finds the file after its own call.
        let deleted = if comm.rank == 0 { std::fs::remove_file(&file.path).map_err(|e| file.trouble("it cannot be deleted", &e)) } else { Ok(()) };
        result = result.and(agree(function, comm, deleted));
    }
    if comm.rank == 0 {
        file.shared.remove();
    }
    FILES.remove(handle.0);
    errors::release_handler(Errhandler(file.errhandler.load(Ordering::Relaxed)))?;
    comm::free(file.comm)?;
    result
}

/// `MPI_File_delete`.
///
/// # Errors
/// `MPI_ERR_NO_SUCH_FILE`, `MPI_ERR_ACCESS`, and what else the operating system says.
pub fn delete(name: &[u8], given: handle::Info) -> Result<()> {
    info::hints(given)?;
    let path = path_of(name)?;
    std::fs::remove_file(&path).map_err(|e| trouble(&path, "it cannot be deleted", &e))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn access_modes_that_contradict_each_other_are_refused() {
        for amode in [MPI_MODE_RDONLY, MPI_MODE_RDWR | MPI_MODE_CREATE, MPI_MODE_WRONLY | MPI_MODE_APPEND | MPI_MODE_SEQUENTIAL] {
            assert!(check_amode(amode).is_ok(), "{amode}");
        }
        let contradictions =
            [0, MPI_MODE_RDONLY | MPI_MODE_WRONLY, MPI_MODE_RDONLY | MPI_MODE_CREATE, MPI_MODE_RDWR | MPI_MODE_SEQUENTIAL, MPI_MODE_RDWR | 1 << 20];
        for amode in contradictions {
            assert_eq!(check_amode(amode).unwrap_err().class, MPI_ERR_AMODE, "{amode}");
        }
    }

    #[test]
    fn a_file_system_before_the_name_is_left_out() {
        assert_eq!(path_of(b"ufs:/tmp/a:b").unwrap(), Path::new("/tmp/a:b"));
        assert_eq!(path_of(b"dir/c:d").unwrap(), Path::new("dir/c:d"));
        assert_eq!(path_of(b"nfs:").unwrap_err().class, MPI_ERR_BAD_FILE);
    }
}
