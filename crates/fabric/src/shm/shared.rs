//! Memory that processes of one host share beside their segments: one makes it, and the others open it by its name.

use super::sys::{Atomics, errno};
use crate::Error;
use std::fs::{File, OpenOptions};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::fs::MetadataExt;

/// How other processes of the host find shared memory: a descriptor of the process that made it, and which file it must be.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SharedName {
    pid: u32,
    fd: u32,
    device: u64,
    inode: u64,
}

impl SharedName {
    pub const WORDS: usize = 3;

    pub fn to_words(self) -> [u64; Self::WORDS] {
        [self.pid as u64 | (self.fd as u64) << 32, self.device, self.inode]
    }

    /// Of a file that this process has open.
    ///
    /// # Errors
    /// It has none by that number.
    pub(super) fn of_descriptor(fd: i32) -> Result<SharedName, Error> {
        let found = std::fs::metadata(format!("/proc/self/fd/{fd}"));
        let found = found.map_err(|e| Error::System { call: "looking at a descriptor", errno: e.raw_os_error().unwrap_or(0) })?;
        Ok(SharedName { pid: std::process::id(), fd: fd as u32, device: found.dev(), inode: found.ino() })
    }

    pub fn from_words(words: [u64; Self::WORDS]) -> SharedName {
        SharedName { pid: words[0] as u32, fd: (words[0] >> 32) as u32, device: words[1], inode: words[2] }
    }
}

/// A mapping of shared memory, all zero at first. It is unmapped when this is dropped.
pub struct SharedMemory {
    start: *mut u8,
    bytes: usize,
    /// Until it is closed.
    file: Option<File>,
}

// SAFETY: a mapping is an address range; all access to it goes through atomics or raw copies.
unsafe impl Send for SharedMemory {}
// SAFETY: as above.
unsafe impl Sync for SharedMemory {}

impl SharedMemory {
    /// Makes `bytes` of memory. Nothing is reserved: [`SharedMemory::reserve`].
    ///
    /// # Errors
    /// No descriptor, no address space, or no place where this process may make a file.
    pub fn create(bytes: usize) -> Result<SharedMemory, Error> {
        let fd: OwnedFd = memory::create("whimbrel-window", bytes as u64).map_err(|refused| Error::Segment {
            bytes: bytes as u64,
            errno: refused.errno(),
            why: refused.to_string(),
        })?;
        SharedMemory::map(File::from(fd))
    }

    /// Opens what another process of this host and user has made.
    ///
    /// # Errors
    /// The system does not let this process look into the other one, or finds another file there.
    pub fn open(name: SharedName) -> Result<SharedMemory, Error> {
        let refused = |e: std::io::Error| Error::System { call: "opening a descriptor of another process", errno: e.raw_os_error().unwrap_or(0) };
        let path = format!("/proc/{}/fd/{}", name.pid, name.fd);
        let file = OpenOptions::new().read(true).write(true).open(path).map_err(refused)?;
        let found = file.metadata().map_err(refused)?;
        if (found.dev(), found.ino()) != (name.device, name.inode) {
            return Err(Error::System { call: "opening a descriptor of another process", errno: libc::ESTALE });
        }
        SharedMemory::map(file)
    }

    fn map(file: File) -> Result<SharedMemory, Error> {
        let checked = memory::check(file.as_fd());
        let bytes = checked.map_err(|e| Error::System { call: "a check that shared memory cannot shrink", errno: e.raw_os_error() })? as usize;
        // SAFETY: a plain system call; the mapping is new, and unmapped by `drop` alone.
        let start = unsafe { libc::mmap(std::ptr::null_mut(), bytes, libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED, file.as_raw_fd(), 0) };
        if start == libc::MAP_FAILED {
            return Err(Error::Memory { what: "a mapping of shared memory", bytes: bytes as u64, errno: errno() });
        }
        Ok(SharedMemory { start: start.cast(), bytes, file: Some(file) })
    }

    /// The name by which others open it.
    ///
    /// # Errors
    /// It has been closed.
    pub fn name(&self) -> Result<SharedName, Error> {
        let closed = Error::System { call: "fstat", errno: libc::EBADF };
        let Some(file) = &self.file else { return Err(closed) };
        let found = file.metadata().map_err(|_| closed)?;
        Ok(SharedName { pid: std::process::id(), fd: file.as_raw_fd() as u32, device: found.dev(), inode: found.ino() })
    }

    /// Reserves pages, so that touching them cannot fail. `bytes` of 0 reserve nothing.
    ///
    /// # Errors
    /// No memory; it has been closed.
    pub fn reserve(&self, offset: usize, bytes: usize) -> Result<(), Error> {
        match &self.file {
            _ if bytes == 0 => Ok(()),
            Some(file) => super::sys::reserve(file.as_fd(), offset as u64, bytes as u64, "the memory of a window"),
            None => Err(Error::System { call: "fallocate", errno: libc::EBADF }),
        }
    }

    /// Everybody has opened it: its descriptor is not needed any more.
    pub fn close(&mut self) {
        self.file = None;
    }

    /// Neither children of this process nor core dumps get it: a dump would give memory to all holes of the file.
    pub(super) fn keep_to_itself(&self) {
        for advice in [libc::MADV_DONTFORK, libc::MADV_DONTDUMP] {
            // SAFETY: the mapping that `map` made. Where it is refused, nothing is lost but memory.
            unsafe { libc::madvise(self.start.cast(), self.bytes, advice) };
        }
    }

    pub fn address(&self) -> *mut u8 {
        self.start
    }

    #[allow(clippy::len_without_is_empty)]
    pub fn len(&self) -> usize {
        self.bytes
    }

    /// `count` values of atomics from `offset` on, for as long as the memory is mapped. `None` where they do not lie inside or are not aligned.
    pub fn slice<T: Atomics>(&self, offset: usize, count: usize) -> Option<&[T]> {
        let bytes = count.checked_mul(size_of::<T>())?;
        if offset.checked_add(bytes)? > self.bytes || !offset.is_multiple_of(align_of::<T>()) {
            return None;
        }
        // SAFETY: in bounds and aligned, mapped while `self` lives; `Atomics` types consist of atomics, which any bytes are valid for.
        Some(unsafe { std::slice::from_raw_parts(self.start.add(offset).cast::<T>(), count) })
    }
}

impl Drop for SharedMemory {
    fn drop(&mut self) {
        // SAFETY: the mapping that `map` made; nothing borrowed from it outlives `self`.
        unsafe { libc::munmap(self.start.cast(), self.bytes) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicU64, Ordering};

    #[test]
    fn what_one_makes_another_opens_by_its_name() {
        let mut made = SharedMemory::create(8192).unwrap();
        made.reserve(4096, 4096).unwrap();
        let name = SharedName::from_words(made.name().unwrap().to_words());
        let opened = SharedMemory::open(name).unwrap();
        made.slice::<AtomicU64>(4096, 1).unwrap()[0].store(7, Ordering::Relaxed);
        assert_eq!(opened.slice::<AtomicU64>(4096, 1).unwrap()[0].load(Ordering::Relaxed), 7);
        assert!(opened.slice::<AtomicU64>(8192, 1).is_none() && opened.slice::<AtomicU64>(4, 1).is_none());
        assert!(SharedMemory::open(SharedName { inode: name.inode + 1, ..name }).is_err());
        made.close();
        assert!(made.name().is_err() && made.reserve(0, 1).is_err() && made.reserve(0, 0).is_ok());
        assert!(SharedMemory::open(name).is_err());
        assert_eq!(made.len(), 8192);
    }
}
