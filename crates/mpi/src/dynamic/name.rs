//! Name publishing (MPI-5.0 §11.9.4), among the processes of one user on one host: a file for each name, in a folder that nobody else may enter. A name goes
//! with the process that has published it.
#![forbid(unsafe_code)]

use crate::consts::*;
use crate::error::{Error, Result};
use std::fs;
use std::io::{ErrorKind, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// Longest name of a service, bytes: its digits make the name of a file.
const SERVICE_BYTES_MAX: usize = 120;
/// Longest file that is read, bytes.
const FILE_BYTES_MAX: u64 = 4096;
/// How often a name that goes with its process is taken over before another one is faster.
const TRIES: usize = 10;

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

/// When a process began, in the kernel's ticks: another one that gets its number begins later. `None` where it is not there.
fn began(pid: u32) -> Option<u64> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    stat.rsplit_once(") ")?.1.split(' ').nth(19)?.parse().ok()
}

/// The port in a file, and whether this process has left it; `None` where its process has ended, or the file is none.
fn read(file: &Path) -> Option<(String, bool)> {
    let facts = fs::symlink_metadata(file).ok()?;
    if !facts.is_file() || facts.len() > FILE_BYTES_MAX {
        return None;
    }
    let text = fs::read_to_string(file).ok()?;
    let (process, port) = text.split_once('\n')?;
    let (pid, start) = process.split_once(' ')?;
    let (pid, start): (u32, u64) = (pid.parse().ok()?, start.parse().ok()?);
    (began(pid) == Some(start)).then(|| (port.to_owned(), pid == std::process::id()))
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
    let pid = std::process::id();
    let draft = folder.join(format!("draft-{pid}"));
    let _ = fs::remove_file(&draft);
    let mut out = fs::File::options().write(true).create_new(true).mode(0o600).open(&draft).map_err(failed)?;
    out.write_all(format!("{pid} {}\n{port}", began(pid).unwrap_or(0)).as_bytes()).map_err(failed)?;
    let mut linked = Err(ErrorKind::AlreadyExists.into());
    for _ in 0..TRIES {
        linked = fs::hard_link(&draft, &file);
        match &linked {
            // What a process has left that has ended counts for nothing.
            Err(error) if error.kind() == ErrorKind::AlreadyExists && read(&file).is_none() => drop(fs::remove_file(&file)),
            _ => break,
        }
    }
    let _ = fs::remove_file(&draft);
    linked.map_err(|error| match error.kind() {
        ErrorKind::AlreadyExists => Error::new(MPI_ERR_SERVICE, format!("the name {:?} is published already", String::from_utf8_lossy(service))),
        _ => failed(error),
    })
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
    match read(&file) {
        Some((_, true)) if fs::remove_file(&file).is_ok() => Ok(()),
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
    read(&file).map(|(port, _)| port).ok_or_else(unknown)
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
        publish_in(&folder, b"s", b"p").unwrap();
        let file = file_of(&folder, b"s", 0).unwrap();
        // The same number, and another beginning: that process has ended.
        fs::write(&file, format!("{} 1\nold", std::process::id())).unwrap();
        assert_eq!(look_up_in(&folder, b"s").unwrap_err().class, MPI_ERR_NAME);
        assert_eq!(unpublish_in(&folder, b"s").unwrap_err().class, MPI_ERR_SERVICE);
        publish_in(&folder, b"s", b"new").unwrap();
        assert_eq!(look_up_in(&folder, b"s").unwrap(), "new");
        for wrong in ["", "x", "1\np", "a b\np", "-1 2\np"] {
            fs::write(&file, wrong).unwrap();
            assert!(read(&file).is_none(), "{wrong:?}");
        }
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
