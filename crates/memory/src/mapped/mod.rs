//! A file's pages as this process' memory: what is read or written there costs no system call, and processes do it side by side.
//!
//! A page may be gone when it is touched: another process has shortened the file, the disk is full, a sector cannot be read. The system tells that by `SIGBUS`.
//! So bytes are copied by one instruction, and a handler of that signal lets a copy end early that it has hit; all other faults go to whoever handled the signal
//! before. Where another handler has been put in this one's place since, files are not mapped.

mod sys;

use std::fs::File;
use std::os::fd::AsFd;

/// Mapped files begin at multiples of this, so that the system can map pages of this length.
pub const ALIGNMENT: u64 = 2 << 20;

/// A range of a file in this process' memory.
#[derive(Debug)]
pub struct MappedFile {
    pages: sys::Pages,
    low: u64,
    writable: bool,
}

impl MappedFile {
    /// Maps the bytes from `low`, a multiple of [`ALIGNMENT`], to `high`. `None` where the system does not do it, or faults would kill the process.
    pub fn map(file: &File, low: u64, high: u64, writable: bool) -> Option<MappedFile> {
        let bytes = usize::try_from(high.checked_sub(low)?).ok().filter(|bytes| *bytes > 0 && low.is_multiple_of(ALIGNMENT))?;
        if !sys::catches_faults() {
            return None;
        }
        Some(MappedFile { pages: sys::Pages::map(file.as_fd(), low, bytes, writable)?, low, writable })
    }

    /// Whether the bytes from `low` to `high` may be read here, and written if `write`.
    pub fn covers(&self, low: u64, high: u64, write: bool) -> bool {
        low >= self.low && high - self.low <= self.pages.bytes() as u64 && (self.writable || !write)
    }

    /// Maps the pages from `low` to `high` ahead, to be written if `write`; whether they are all there.
    pub fn populate(&self, low: u64, high: u64, write: bool) -> bool {
        low < high && self.covers(low, high, write) && self.pages.populate((low - self.low) as usize, (high - low) as usize, write)
    }

    /// Reads the bytes from byte `at` of the file on. False where some are not there: then `into` has anything in it.
    #[inline]
    pub fn read(&self, at: u64, into: &mut [u8]) -> bool {
        self.covers(at, at.saturating_add(into.len() as u64), false) && self.pages.read((at - self.low) as usize, into)
    }

    /// Writes `data` from byte `at` of the file on. False where that is not possible: then some of it may have been written.
    #[inline]
    pub fn write(&self, at: u64, data: &[u8]) -> bool {
        self.covers(at, at.saturating_add(data.len() as u64), true) && self.pages.write((at - self.low) as usize, data)
    }
}

#[cfg(all(test, target_arch = "x86_64", not(miri), not(loom)))]
mod tests {
    use super::*;
    use std::os::unix::fs::FileExt;

    fn file(bytes: u64) -> File {
        let fd = crate::create("mapped", bytes).unwrap();
        File::from(fd)
    }

    #[test]
    fn what_is_written_here_is_in_the_file_and_the_other_way_round() {
        let file = file(3 * ALIGNMENT);
        let mapped = MappedFile::map(&file, ALIGNMENT, 3 * ALIGNMENT, true).unwrap();
        assert!(mapped.populate(ALIGNMENT + 5, 2 * ALIGNMENT, true));
        let data: Vec<u8> = (0..10_000u32).map(|at| ((at * 31) >> 3) as u8).collect();
        for (at, bytes) in [(ALIGNMENT, 1), (ALIGNMENT + 4_090, 10_000), (3 * ALIGNMENT - 77, 77), (ALIGNMENT, 0)] {
            assert!(mapped.write(at, &data[..bytes]));
            let mut there = vec![0; bytes];
            file.read_exact_at(&mut there, at).unwrap();
            assert_eq!(there, data[..bytes]);
            file.write_all_at(&data[1..][..bytes.min(9_000)], at).unwrap();
            assert!(mapped.read(at, &mut there[..bytes.min(9_000)]));
            assert_eq!(there[..bytes.min(9_000)], data[1..][..bytes.min(9_000)]);
        }
        for (at, bytes) in [(ALIGNMENT - 1, 1), (3 * ALIGNMENT - 1, 2), (u64::MAX, 1)] {
            assert!(!mapped.read(at, &mut vec![0; bytes]) && !mapped.write(at, &data[..bytes]));
        }
        let read_only = MappedFile::map(&file, 0, ALIGNMENT, false).unwrap();
        assert!(read_only.covers(0, 9, false) && !read_only.write(0, &data) && !read_only.populate(0, 9, true) && read_only.populate(0, 9, false));
        assert!(MappedFile::map(&file, 4096, 8192, true).is_none() && MappedFile::map(&file, 0, 0, true).is_none());
    }

    #[test]
    fn pages_that_are_gone_end_a_copy_and_nothing_else() {
        let path = std::env::temp_dir().join(format!("mapped-{}", std::process::id()));
        let file = File::options().read(true).write(true).create(true).truncate(true).open(&path).unwrap();
        std::fs::remove_file(&path).unwrap();
        file.set_len(ALIGNMENT).unwrap();
        let mapped = MappedFile::map(&file, 0, ALIGNMENT, true).unwrap();
        assert!(mapped.write(0, &[7; 3 * 4096]));
        file.set_len(4096).unwrap();
        let mut into = [0; 2 * 4096];
        assert!(mapped.read(0, &mut into[..4096]) && into[..4096] == [7; 4096]);
        assert!(!mapped.read(0, &mut into) && !mapped.write(4096, &[1]) && !mapped.populate(0, 8192, true));
        file.set_len(ALIGNMENT).unwrap();
        assert!(mapped.write(4096, &[1]) && mapped.read(4095, &mut into[..3]) && into[..3] == [7, 1, 0]);
    }
}
