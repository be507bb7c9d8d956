//! Name publishing (MPI-5.0 §11.9.4), among the processes of one user on one host: a file for each name, in a folder that nobody else may enter. A name goes
//! with the process that has published it, which keeps its file locked: that tells of a process in another container, too, whose number says nothing here.
#![forbid(unsafe_code)]

use crate::consts::*;
use crate::error::{Error, Result};
use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;
use std::collections::BTreeMap;
use std::fs;
use std::io::{ErrorKind, Read, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Mutex;

/// Longest name of a service, bytes: its digits make the name of a file.
const SERVICE_BYTES_MAX: usize = 120;
/// Longest file that is read, bytes.
const FILE_BYTES_MAX: u64 = 4096;
/// Where a file is written before it gets its name, which has digits alone.
const DRAFT: &str = "draft";

/// The files of the names that this process has published, open and locked.
static PUBLISHED: Mutex<BTreeMap<PathBuf, fs::File>> = Mutex::new(BTreeMap::new());

/// The folder of this user: in `XDG_RUNTIME_DIR`, else in `/tmp`.
fn folder() -> PathBuf {
    let own = rustix::process::geteuid().as_raw();
    let runtime = std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from).filter(|folder| folder.is_absolute() && folder.is_dir());
    runtime.unwrap_or_else(|| PathBuf::from("/tmp")).join(format!("whimbrel-names-{own}"))
}

/// Makes the folder if it is not there, and looks whose it is.
fn secured(folder: &Path) -> Result<()> {
    let refused = |why: String| Error::new(MPI_ERR_OTHER, format!("names cannot be published in {}: {why}", folder.display()));
    match fs::DirBuilder::new().mode(0o700).create(folder) {
        Err(error) if error.kind() != ErrorKind::AlreadyExists => return Err(refused(error.to_string())),
        _ => {}
    }
    let facts = fs::symlink_metadata(folder).map_err(|error| refused(error.to_string()))?;
    let own = rustix::process::geteuid().as_raw();
    match facts.is_dir() && facts.uid() == own && facts.mode() & 0o077 == 0 {
        true => Ok(()),
        false => {
            Err(refused(format!("it must be a folder of user {own} with mode 700, and is one of user {} with mode {:o}", facts.uid(), facts.mode() & 0o7777)))
        }
    }
}

fn file_of(folder: &Path, service: &[u8], class: i32) -> Result<PathBuf> {
    if service.is_empty() || service.len() > SERVICE_BYTES_MAX {
        return Err(Error::new(class, format!("service_name has {} bytes, and 1 to {SERVICE_BYTES_MAX} may be had", service.len())));
    }
    Ok(folder.join(service.iter().map(|byte| format!("{byte:02x}")).collect::<String>()))
}

/// The port in a file; `None` where no process holds its lock any more, or the file is none.
fn read(file: &Path) -> Option<String> {
    let facts = fs::symlink_metadata(file).ok()?;
    if !facts.is_file() || facts.len() > FILE_BYTES_MAX {
        return None;
    }
    let mut open = fs::File::open(file).ok()?;
    if flock(&open, FlockOperation::NonBlockingLockShared) != Err(Errno::WOULDBLOCK) {
        return None;
    }
    let mut port = String::new();
    open.read_to_string(&mut port).ok()?;
    Some(port)
}

/// `MPI_Publish_name`.
///
/// # Errors
/// `MPI_ERR_SERVICE` where the name is published already, or too long; `MPI_ERR_PORT` where the port's name is too long or no text.
pub fn publish(service: &[u8], port: &[u8]) -> Result<()> {
    publish_in(&folder(), service, port)
}

fn publish_in(folder: &Path, service: &[u8], port: &[u8]) -> Result<()> {
    let file = file_of(folder, service, MPI_ERR_SERVICE)?;
    let port = std::str::from_utf8(port).ok().filter(|port| !port.is_empty() && port.len() < MPI_MAX_PORT_NAME);
    let port = port.ok_or_else(|| Error::new(MPI_ERR_PORT, "port_name is empty, too long, or no UTF-8"))?;
    secured(folder)?;
    let failed = |error: std::io::Error| Error::new(MPI_ERR_OTHER, format!("{}: {error}", file.display()));
    // One process at a time: two would take the place of one that has ended, and write one draft.
    let alone = fs::File::open(folder).map_err(failed)?;
    flock(&alone, FlockOperation::LockExclusive).map_err(|error| failed(error.into()))?;
    if read(&file).is_some() {
        return Err(Error::new(MPI_ERR_SERVICE, format!("the name {:?} is published already", String::from_utf8_lossy(service))));
    }
    let draft = folder.join(DRAFT);
    let _ = fs::remove_file(&draft);
    let mut out = fs::File::options().write(true).create_new(true).mode(0o600).open(&draft).map_err(failed)?;
    out.write_all(port.as_bytes()).map_err(failed)?;
    flock(&out, FlockOperation::NonBlockingLockExclusive).map_err(|error| failed(error.into()))?;
    // In place of what a process has left that has ended.
    fs::rename(&draft, &file).map_err(failed)?;
    PUBLISHED.lock().unwrap_or_else(|e| e.into_inner()).insert(file, out);
    Ok(())
}

/// `MPI_Unpublish_name`.
///
/// # Errors
/// `MPI_ERR_SERVICE` where this process has published no such name.
pub fn unpublish(service: &[u8]) -> Result<()> {
    unpublish_in(&folder(), service)
}

fn unpublish_in(folder: &Path, service: &[u8]) -> Result<()> {
    let file = file_of(folder, service, MPI_ERR_SERVICE)?;
    secured(folder)?;
    // The file goes before its lock.
    match PUBLISHED.lock().unwrap_or_else(|e| e.into_inner()).remove(&file) {
        Some(_locked) if fs::remove_file(&file).is_ok() => Ok(()),
        _ => Err(Error::new(MPI_ERR_SERVICE, format!("this process has published no name {:?}", String::from_utf8_lossy(service)))),
    }
}

/// `MPI_Lookup_name`.
///
/// # Errors
/// `MPI_ERR_NAME` where the name is not published.
pub fn look_up(service: &[u8]) -> Result<String> {
    look_up_in(&folder(), service)
}

fn look_up_in(folder: &Path, service: &[u8]) -> Result<String> {
    let file = file_of(folder, service, MPI_ERR_NAME)?;
    secured(folder)?;
    let unknown = || Error::new(MPI_ERR_NAME, format!("no process of this user on this host has published the name {:?}", String::from_utf8_lossy(service)));
    read(&file).ok_or_else(unknown)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    fn scratch(name: &str) -> PathBuf {
        let folder = std::env::temp_dir().join(format!("whimbrel-names-test-{}-{name}", std::process::id()));
        let _ = fs::remove_dir_all(&folder);
        folder
    }

    #[test]
    fn names_come_and_go() {
        let folder = scratch("plain");
        let class = |done: Result<()>| done.unwrap_err().class;
        assert_eq!(look_up_in(&folder, b"a service").unwrap_err().class, MPI_ERR_NAME);
        publish_in(&folder, b"a service", b"port 1").unwrap();
        assert_eq!(look_up_in(&folder, b"a service").unwrap(), "port 1");
        assert_eq!(class(publish_in(&folder, b"a service", b"port 2")), MPI_ERR_SERVICE);
        publish_in(&folder, "anderer/..".as_bytes(), b"port 3").unwrap();
        unpublish_in(&folder, b"a service").unwrap();
        assert_eq!(class(unpublish_in(&folder, b"a service")), MPI_ERR_SERVICE);
        assert_eq!(look_up_in(&folder, b"a service").unwrap_err().class, MPI_ERR_NAME);
        assert_eq!(look_up_in(&folder, b"anderer/..").unwrap(), "port 3");
        assert_eq!(class(publish_in(&folder, &[b'x'; 200], b"p")), MPI_ERR_SERVICE);
        assert_eq!(class(publish_in(&folder, b"x", &[b'p'; 2000])), MPI_ERR_PORT);
        fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn a_name_goes_with_its_process() {
        let folder = scratch("ended");
        secured(&folder).unwrap();
        let file = file_of(&folder, b"s", 0).unwrap();
        // Nobody holds its lock: the process has ended.
        fs::write(&file, "old").unwrap();
        assert_eq!(look_up_in(&folder, b"s").unwrap_err().class, MPI_ERR_NAME);
        assert_eq!(unpublish_in(&folder, b"s").unwrap_err().class, MPI_ERR_SERVICE);
        publish_in(&folder, b"s", b"new").unwrap();
        assert_eq!(look_up_in(&folder, b"s").unwrap(), "new");
        unpublish_in(&folder, b"s").unwrap();
        // Another process has it.
        fs::write(&file, "theirs").unwrap();
        let theirs = fs::File::open(&file).unwrap();
        flock(&theirs, FlockOperation::LockExclusive).unwrap();
        assert_eq!(look_up_in(&folder, b"s").unwrap(), "theirs");
        assert_eq!(publish_in(&folder, b"s", b"p").unwrap_err().class, MPI_ERR_SERVICE);
        assert_eq!(unpublish_in(&folder, b"s").unwrap_err().class, MPI_ERR_SERVICE);
        drop(theirs);
        assert_eq!(look_up_in(&folder, b"s").unwrap_err().class, MPI_ERR_NAME);
        fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn those_who_publish_at_once_get_a_name_each() {
        let folder = scratch("at-once");
        std::thread::scope(|scope| {
            for me in 0..4 {
                let folder = &folder;
                scope.spawn(move || {
                    for round in 0..100 {
                        let (service, port) = (format!("s{me}"), format!("{me} {round}"));
                        publish_in(folder, service.as_bytes(), port.as_bytes()).unwrap();
                        assert_eq!(look_up_in(folder, service.as_bytes()).unwrap(), port);
                        unpublish_in(folder, service.as_bytes()).unwrap();
                    }
                });
            }
        });
        fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn a_folder_that_others_may_enter_is_refused() {
        let folder = scratch("open");
        fs::create_dir(&folder).unwrap();
        fs::set_permissions(&folder, fs::Permissions::from_mode(0o755)).unwrap();
        let error = publish_in(&folder, b"s", b"p").unwrap_err();
        assert!(error.class == MPI_ERR_OTHER && error.detail.contains("mode 700"), "{}", error.detail);
        assert!(look_up_in(&folder, b"s").is_err());
        fs::remove_dir(folder).unwrap();
    }
}
