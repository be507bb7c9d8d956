//! Which memory may be shared with processes, and which may a device touch?
//!
//! | module | question |
//! | --- | --- |
//! | this one | Where does memory come from that processes share? |
//! | [`arena`] | Where do blocks lie that peers can map? |
//! | [`usage`] | Which buffers does a program send again and again? |
//! | [`regions`] | What does a request call its buffer? |
//! | [`cache`] | Which memory is registered, and until when? |
//! | [`monitor`] | Who tells that memory which is registered has changed? |
//! | [`mapped`] | How is a file read and written without system calls? |
//! | [`overlap`] | Which pages are pinned next, while a transfer is under way? |
//!
//! Memory to share comes from files without a name, whose descriptors are handed from one process to another.
//! [`create`] makes a `memfd` and seals its length. Where the system refuses that call (a sandbox with a seccomp filter), it takes a file in
//! `/dev/shm`, in `TMPDIR`, or in `/tmp` that has no name, or loses it at once, so that no other user can open it and nothing is left behind. Such a
//! file has no seals: [`check`] accepts it only where it has no name and belongs to this user. Whoever of the same user shortens it does
//! what he may do to this process anyway.
//!
//! [`arena`] gives out blocks in such a file.

#![deny(unsafe_code)]

pub mod arena;
pub mod cache;
mod lru;
pub mod mapped;
pub mod monitor;
pub mod overlap;
pub mod regions;
#[allow(unsafe_code)]
mod sys;
pub mod usage;

pub use sys::{in_huge_pages, without_signals};

use rustix::fs::{FallocateFlags, FileType, MemfdFlags, Mode, OFlags, SealFlags};
use rustix::io::Errno;
use rustix::process::Resource;
use std::fmt;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};

/// Why there is no file to share.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Refused {
    /// The system's call, and its error.
    Call(&'static str, Errno),
    /// The limit on the size of files (`ulimit -f`), bytes, is less than what was asked for.
    Limit(u64),
    /// `memfd_create` is not allowed here, and none of the directories could be used: one line.
    Everywhere(String),
}

impl Refused {
    /// The system's error number.
    pub fn errno(&self) -> i32 {
        match self {
            Refused::Call(_, errno) => errno.raw_os_error(),
            Refused::Limit(_) => Errno::FBIG.raw_os_error(),
            Refused::Everywhere(_) => Errno::PERM.raw_os_error(),
        }
    }
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Refused::Call(call, errno) => write!(f, "{call} failed: {errno}"),
            Refused::Limit(bytes) => {
                write!(f, "the limit on the size of files is {bytes} bytes, and shared memory counts as a file: raise it (ulimit -f unlimited)")
            }
            Refused::Everywhere(line) => f.write_str(line),
        }
    }
}

impl std::error::Error for Refused {}

/// A file of `bytes` without a name, all zero and sparse, whose length is sealed where the kernel has seals; `name` is seen in `/proc` only.
///
/// Errors: no descriptor, no memory, a limit on files, or no place where this process may make one.
pub fn create(name: &str, bytes: u64) -> Result<OwnedFd, Refused> {
    // Past that limit the system would send SIGXFSZ, which ends the process without a word.
    if let Some(limit) = rustix::process::getrlimit(Resource::Fsize).current.filter(|limit| *limit < bytes) {
        return Err(Refused::Limit(limit));
    }
    match rustix::fs::memfd_create(name, MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING) {
        Ok(file) => {
            rustix::fs::ftruncate(&file, bytes).map_err(|errno| Refused::Call("ftruncate", errno))?;
            rustix::fs::fcntl_add_seals(&file, SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL)
                .map_err(|errno| Refused::Call("fcntl(F_ADD_SEALS)", errno))?;
            Ok(file)
        }
        // What is forbidden, or not there.
        Err(errno @ (Errno::PERM | Errno::ACCESS | Errno::NOSYS)) => create_in(&directories(), bytes).map_err(|tried| {
            Refused::Everywhere(format!(
                "memfd_create is refused ({errno}), and so are files for shared memory in {}: allow that call, or name a directory on a local file \
                 system with room in TMPDIR",
                tried.join(", ")
            ))
        }),
        Err(errno) => Err(Refused::Call("memfd_create", errno)),
    }
}

/// Reserves pages of `file`, so that touching them cannot fail.
///
/// Errors: no memory, or no room on the file system.
pub fn reserve(file: BorrowedFd, offset: u64, bytes: u64) -> Result<(), Errno> {
    rustix::io::retry_on_intr(|| rustix::fs::fallocate(file, FallocateFlags::empty(), offset, bytes))
}

/// The length of a file that another process has handed over, bytes, where it can be trusted to stay that long: it is sealed against shrinking, or a
/// regular file of this user without a name.
///
/// Errors: `EPERM` for what is neither.
pub fn check(file: BorrowedFd) -> Result<u64, Errno> {
    let stat = rustix::fs::fstat(file)?;
    let sealed = rustix::fs::fcntl_get_seals(file).is_ok_and(|seals| seals.contains(SealFlags::SHRINK));
    let nameless = stat.st_nlink == 0
        && FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile
        && stat.st_uid == rustix::process::geteuid().as_raw()
        && !is_memory(file);
    if sealed || nameless { Ok(stat.st_size as u64) } else { Err(Errno::PERM) }
}

/// Whether `file` is a memfd that could have been sealed: who makes one and does not seal it means no good. Files of other kinds have the seal
/// against seals, or none at all.
fn is_memory(file: BorrowedFd) -> bool {
    rustix::fs::fcntl_get_seals(file).is_ok_and(|seals| !seals.contains(SealFlags::SEAL))
}

/// Where files are made instead, in this order.
fn directories() -> Vec<PathBuf> {
    let mut all = vec![PathBuf::from("/dev/shm")];
    if !params::is_privileged() {
        all.extend(std::env::var_os("TMPDIR").map(PathBuf::from).filter(|directory| directory.is_absolute()));
    }
    all.push(PathBuf::from("/tmp"));
    all.dedup();
    all
}

/// A file of `bytes` without a name in the first of `directories` that can have one.
///
/// Errors: each of them, and why it cannot.
fn create_in(directories: &[PathBuf], bytes: u64) -> Result<OwnedFd, Vec<String>> {
    let mut tried = Vec::new();
    for directory in directories {
        match nameless(directory).and_then(|file| ready(&file, bytes).map(|()| file)) {
            Ok(file) => return Ok(file),
            Err(errno) => tried.push(format!("{} ({errno})", directory.display())),
        }
    }
    Err(tried)
}

/// Sets the length, and finds out whether pages can be reserved there: not every file system can, and without that a full one would be SIGBUS.
fn ready(file: &OwnedFd, bytes: u64) -> Result<(), Errno> {
    rustix::fs::ftruncate(file, bytes)?;
    reserve(file.as_fd(), 0, bytes.clamp(1, 4096))
}

/// An open file in `directory` that has no name there.
fn nameless(directory: &Path) -> Result<OwnedFd, Errno> {
    let (flags, mode) = (OFlags::RDWR | OFlags::CLOEXEC, Mode::RUSR | Mode::WUSR);
    match rustix::fs::open(directory, flags | OFlags::TMPFILE | OFlags::EXCL, mode) {
        // File systems, and kernels, that do not know such files.
        Err(Errno::OPNOTSUPP | Errno::ISDIR | Errno::INVAL | Errno::NOENT) if directory.is_dir() => {}
        made => return made,
    }
    let mut number = [0; 16];
    rustix::rand::getrandom(&mut number, rustix::rand::GetRandomFlags::empty())?;
    let number: String = number.iter().map(|byte| format!("{byte:02x}")).collect();
    let path = directory.join(format!(".whimbrel-{number}"));
    let file = rustix::fs::open(&path, flags | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW, mode)?;
    rustix::fs::unlink(&path)?;
    Ok(file)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_made_is_accepted_and_cannot_shrink() {
        let file = create("test", 8192).unwrap();
        assert_eq!(check(file.as_fd()), Ok(8192));
        assert!(rustix::fs::ftruncate(&file, 4096).is_err());
        reserve(file.as_fd(), 4096, 4096).unwrap();
    }

    #[test]
    fn without_memory_files_there_are_others() {
        for directory in ["/dev/shm", "/tmp"] {
            let file = create_in(&["/nowhere/at/all".into(), directory.into()], 1 << 20).unwrap();
            assert_eq!(check(file.as_fd()), Ok(1 << 20), "{directory}");
            reserve(file.as_fd(), 8192, 8192).unwrap();
            assert_eq!(rustix::fs::fstat(&file).unwrap().st_nlink, 0);
        }
        let tried = create_in(&["/nowhere/at/all".into(), "/proc".into()], 4096).unwrap_err();
        assert!(tried.len() == 2 && tried[0].starts_with("/nowhere/at/all (") && tried[1].starts_with("/proc ("), "{tried:?}");
    }

    #[test]
    fn what_others_could_shorten_is_refused() {
        let path = std::env::temp_dir().join(format!("whimbrel-memory-test-{}", std::process::id()));
        let named = OwnedFd::from(std::fs::File::options().read(true).write(true).create_new(true).open(&path).unwrap());
        assert_eq!(check(named.as_fd()), Err(Errno::PERM), "it has a name");
        std::fs::remove_file(&path).unwrap();
        assert_eq!(check(named.as_fd()), Ok(0));
        let loose = rustix::fs::memfd_create("loose", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING).unwrap();
        assert_eq!(check(loose.as_fd()), Err(Errno::PERM), "it is not sealed");
        for path in ["/dev/null", "/proc/self/stat", "/"] {
            let file = OwnedFd::from(std::fs::File::open(path).unwrap());
            assert_eq!(check(file.as_fd()), Err(Errno::PERM), "{path}");
        }
    }
}
