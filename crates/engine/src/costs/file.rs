//! Where a machine's costs are kept: one small file in the user's cache directory, for each machine.

use proto::costs::Costs;
use proto::costs::text::{self, Refused, TEXT_BYTES_MAX};
use std::fmt;
use std::fs::{File, OpenOptions};
use std::io::{Read, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// After an attempt that failed, the machine is left alone for so long: whoever measures holds the end of its process up.
const PAUSE: Duration = Duration::from_secs(60);

/// Why there are no costs in a file.
#[derive(Debug)]
pub enum Nothing {
    Absent,
    Unreadable(std::io::Error),
    /// It is no plain file, or another user's.
    NotOurs,
    Refused(Refused),
}

impl fmt::Display for Nothing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Nothing::Absent => f.write_str("absent"),
            Nothing::Unreadable(error) => write!(f, "unreadable: {error}"),
            Nothing::NotOurs => f.write_str("not a file of this user"),
            Nothing::Refused(refused) => refused.fmt(f),
        }
    }
}

/// The file for `machine` in the user's cache directory: `XDG_CACHE_HOME`, else `.cache` in `HOME`. `None` where there is none, and in a process
/// whose user has chosen its environment but not its privileges.
pub fn usual(machine: &str) -> Option<PathBuf> {
    if params::is_privileged() {
        return None;
    }
    let variable = |name| std::env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let folder = variable("XDG_CACHE_HOME").or_else(|| variable("HOME").map(|home| home.join(".cache")))?;
    Some(folder.join("whimbrel").join(format!("costs-{:016x}", text::fingerprint(machine))))
}

/// The costs of `machine` that `path` holds.
pub fn read(path: &Path, machine: &str) -> Result<Costs, Nothing> {
    // A pipe or a device would hold up whoever opens it.
    let file = OpenOptions::new().read(true).custom_flags(libc::O_NONBLOCK | libc::O_NOCTTY).open(path);
    let file = file.map_err(|error| if error.kind() == std::io::ErrorKind::NotFound { Nothing::Absent } else { Nothing::Unreadable(error) })?;
    let facts = file.metadata().map_err(Nothing::Unreadable)?;
    if !facts.is_file() || facts.uid() != rustix::process::geteuid().as_raw() {
        return Err(Nothing::NotOurs);
    }
    let mut bytes = Vec::new();
    file.take(TEXT_BYTES_MAX as u64 + 1).read_to_end(&mut bytes).map_err(Nothing::Unreadable)?;
    text::parse(&bytes, machine).map_err(Nothing::Refused)
}

/// Leaves the costs of `machine` at `path`, whole or not at all.
pub fn write(path: &Path, machine: &str, costs: &Costs) -> std::io::Result<()> {
    let beside = path.with_extension(format!("new-{}", std::process::id()));
    let text = text::write(machine, costs);
    let done = OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(&beside)
        .and_then(|mut file| file.write_all(text.as_bytes()))
        .and_then(|()| std::fs::rename(&beside, path));
    if done.is_err() {
        let _ = std::fs::remove_file(&beside);
    }
    done
}

/// Who may measure a machine for a file.
#[derive(Debug)]
pub enum Claim {
    /// This process, until it drops this.
    Ours(File),
    /// Another process has the right.
    Busy,
    /// Nobody can tell: no such file can be made.
    NoFile,
}

/// Asks for the right to measure this machine for `path`.
pub fn claim(path: &Path) -> Claim {
    if let Some(folder) = path.parent() {
        let _ = std::fs::DirBuilder::new().recursive(true).mode(0o700).create(folder);
    }
    let lock = path.with_extension("lock");
    let Ok(file) = OpenOptions::new().write(true).create(true).truncate(false).mode(0o600).custom_flags(libc::O_NONBLOCK).open(lock) else {
        return Claim::NoFile;
    };
    match file.try_lock() {
        Ok(()) if failed_lately(&file) => Claim::Busy,
        Ok(()) => Claim::Ours(file),
        Err(std::fs::TryLockError::WouldBlock) => Claim::Busy,
        Err(std::fs::TryLockError::Error(_)) => Claim::NoFile,
    }
}

/// Whether whoever had this right could not measure, and that is not long ago.
fn failed_lately(claim: &File) -> bool {
    let failed = claim.metadata().ok().filter(|facts| facts.len() > 0).and_then(|facts| facts.modified().ok());
    failed.is_some_and(|at| at.elapsed().is_ok_and(|ago| ago < PAUSE))
}

/// Leaves word for the next that ask whether this machine could be measured.
pub fn report(claim: &mut File, measured: bool) {
    let _ = claim.set_len(0);
    if !measured {
        let _ = claim.write_all(b"busy\n");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proto::protocols::Protocol;

    struct Folder(PathBuf);

    impl Folder {
        fn new(name: &str) -> Folder {
            let folder = std::env::temp_dir().join(format!("whimbrel-costs-{}-{name}", std::process::id()));
            std::fs::create_dir_all(&folder).unwrap();
            Folder(folder)
        }
    }

    impl Drop for Folder {
        fn drop(&mut self) {
            let _ = std::fs::remove_dir_all(&self.0);
        }
    }

    #[test]
    fn what_was_left_is_found_again_and_nothing_else_lies_there() {
        let folder = Folder::new("again");
        let path = folder.0.join("costs");
        let costs = Costs::preferring(Protocol::Read);
        assert!(matches!(read(&path, "here"), Err(Nothing::Absent)));
        for _ in 0..2 {
            write(&path, "here", &costs).unwrap();
            assert_eq!(read(&path, "here").unwrap(), costs);
        }
        assert!(matches!(read(&path, "there"), Err(Nothing::Refused(Refused::Foreign))));
        assert_eq!(std::fs::read_dir(&folder.0).unwrap().count(), 1);
    }

    #[test]
    fn what_is_no_file_of_ours_is_left_alone() {
        let folder = Folder::new("no-file");
        assert!(matches!(read(&folder.0, "here"), Err(Nothing::NotOurs)));
        let pipe = folder.0.join("pipe");
        rustix::fs::mknodat(rustix::fs::CWD, &pipe, rustix::fs::FileType::Fifo, rustix::fs::Mode::RWXU, 0).unwrap();
        assert!(matches!(read(&pipe, "here"), Err(Nothing::NotOurs)));
        assert!(write(&folder.0.join("absent/costs"), "here", &Costs::preferring(Protocol::Read)).is_err());
    }

    #[test]
    fn one_process_at_a_time_measures() {
        let folder = Folder::new("claim");
        let path = folder.0.join("deeper/costs");
        let Claim::Ours(first) = claim(&path) else { panic!("no lock") };
        assert!(matches!(claim(&path), Claim::Busy));
        drop(first);
        let Claim::Ours(mut second) = claim(&path) else { panic!("no lock") };
        // Nobody tries again at once where one has failed.
        report(&mut second, false);
        drop(second);
        assert!(matches!(claim(&path), Claim::Busy));
        std::fs::write(path.with_extension("lock"), "").unwrap();
        assert!(matches!(claim(&path), Claim::Ours(_)));
        std::fs::write(folder.0.join("plain"), "").unwrap();
        assert!(matches!(claim(&folder.0.join("plain/costs")), Claim::NoFile));
    }
}
