//! Access by the file's own pages ([`engine::MappedFile`]): which files, which ranges, and when that is the faster way.
//!
//! A system call for each short piece takes longer than to copy the piece, and writes of several processes wait for each other in the system; copies to and from
//! mapped pages do neither. But pages have to be mapped first, one by one where the system keeps the file in short ones. So short pieces go by pages wherever
//! that is possible, and for long ones it is measured which way is the faster, file by file.
#![forbid(unsafe_code)]

use super::{OpenFile, lock};
use crate::coll::aggregate::Extent;
use engine::MappedFile;
use rustix::fs::{SeekFrom, Timespec, Timestamps, UTIME_NOW, UTIME_OMIT};
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// File systems whose pages all processes of the host see at once, and nobody else does (`statfs(2)`): ext2 to ext4, XFS, tmpfs, btrfs, and overlays of them.
const FILE_SYSTEMS: [u32; 5] = [0xef53, 0x5846_5342, 0x0102_1994, 0x9123_683e, 0x794c_7630];
/// Less data than this is not worth asking for the file's size, bytes.
const BYTES_MIN: u64 = 4 << 10;
/// Longest range that is mapped: address space, and the tables of its pages.
const RANGE_BYTES_MAX: u64 = 16 << 30;
/// Where at least one in so many bytes is touched, all pages are mapped ahead.
const AHEAD_SHARE: u64 = 16;
/// A file tells when it was written, as exactly as its file system's clock has ticks, ns.
const TICK_NS: u64 = 4_000_000;
/// Accesses before the way that is not in use is tried again: at first, and at most, since it is twice as many whenever it has turned out slower.
const TRIED_AFTER: [u32; 2] = [2, 1024];

/// What is known of a file's pages.
#[derive(Default)]
pub struct Pages {
    /// Whether this file's may be used, once that has been asked.
    usable: Option<bool>,
    mapped: Option<Arc<MappedFile>>,
    /// Ranges whose pages have been mapped, to be read and to be written.
    ready: [Range<u64>; 2],
    /// Of reads and of writes of long pieces.
    ways: [Ways; 2],
    /// When the file's time of change was last set.
    told_ns: u64,
    /// It has been written since.
    untold: bool,
}

/// Which of two ways is the faster.
#[derive(Default)]
struct Ways {
    /// Without pages, and by them: ns for 64 KiB, a moving average; 0 before the first.
    took_ns: [u64; 2],
    /// Accesses since the other way was tried, and after how many it is tried again.
    since: u32,
    tried_after: u32,
    /// What is left of trying the other way: the first access has to map pages, which the next ones find mapped.
    trying: u32,
}

/// Accesses of a try; the last one counts.
const TRY: u32 = 2;

impl Ways {
    fn faster(&self) -> bool {
        self.took_ns[1] > 0 && self.took_ns[1] < self.took_ns[0]
    }

    /// Whether the next access goes by pages.
    fn next(&mut self) -> bool {
        if self.trying == 0 {
            self.since += 1;
            if self.since > self.tried_after.max(TRIED_AFTER[0]) {
                (self.since, self.trying) = (0, TRY);
            }
        }
        self.faster() != (self.trying > 0)
    }

    fn took(&mut self, by_pages: bool, ns: u64, bytes: u64) {
        let ns = (ns.saturating_mul(64 << 10) / bytes).max(1);
        if self.trying == 0 || by_pages == self.faster() {
            let average = &mut self.took_ns[by_pages as usize];
            *average = if *average == 0 { ns } else { *average - *average / 4 + ns / 4 };
            return;
        }
        self.trying -= 1;
        if self.trying > 0 {
            return;
        }
        let before = self.faster();
        self.took_ns[by_pages as usize] = ns;
        let changed = self.faster() != before;
        self.tried_after = if changed { TRIED_AFTER[0] } else { (2 * self.tried_after.max(TRIED_AFTER[0])).min(TRIED_AFTER[1]) };
    }
}

impl OpenFile {
    /// As [`crate::coll::aggregate::Storage::pages`].
    pub(super) fn pages_for(&self, of: &Extent, write: bool) -> Option<Arc<MappedFile>> {
        if of.bytes < BYTES_MIN || of.high - of.low > RANGE_BYTES_MAX || self.atomic.load(Ordering::SeqCst) {
            return None;
        }
        let pages = &mut *lock(&self.pages);
        if !*pages.usable.get_or_insert_with(|| self.has_usable_pages()) || (of.is_long(write) && !pages.ways[write as usize].next()) {
            return None;
        }
        // What lies behind the end of the file in its last page is no part of it.
        let size = self.os.metadata().ok()?.len();
        if of.high > size {
            return None;
        }
        let mapped = match &pages.mapped {
            Some(mapped) if mapped.covers(of.low, of.high, write) => mapped.clone(),
            _ => {
                let low = if size <= RANGE_BYTES_MAX { 0 } else { of.low / engine::MAPPED_ALIGNMENT * engine::MAPPED_ALIGNMENT };
                let high = size.min(low + RANGE_BYTES_MAX).max(of.high);
                let mapped = Arc::new(MappedFile::map(&self.os, low, high, self.writable())?);
                (pages.mapped, pages.ready) = (Some(mapped.clone()), Default::default());
                mapped
            }
        };
        let ready = &mut pages.ready[write as usize];
        if of.low < ready.start || of.high > ready.end {
            // Pages that the file does not have yet are best made by the system, many in one go.
            if write && rustix::fs::seek(&self.os, SeekFrom::Hole(of.low)).ok()? < of.high {
                return None;
            }
            if (of.high - of.low) / AHEAD_SHARE <= of.bytes && !mapped.populate(of.low, of.high, write) {
                return None;
            }
            let joined = of.low <= ready.end && of.high >= ready.start && !ready.is_empty();
            *ready = if joined { ready.start.min(of.low)..ready.end.max(of.high) } else { of.low..of.high };
        }
        if write {
            self.dirty.store(true, Ordering::SeqCst);
            pages.untold = true;
            if trace::now_ns() >= pages.told_ns + TICK_NS {
                self.tell_change(pages);
            }
        }
        Some(mapped)
    }

    /// As [`crate::coll::aggregate::Storage::took`].
    pub(super) fn pages_took(&self, of: &Extent, write: bool, ns: u64) {
        if of.bytes >= BYTES_MIN {
            lock(&self.pages).ways[write as usize].took(of.by_pages, ns, of.bytes);
        }
    }

    /// The file says that it has been changed, where the system does not know it: it notices only the first change of a page.
    fn tell_change(&self, pages: &mut Pages) {
        let times =
            Timestamps { last_access: Timespec { tv_sec: 0, tv_nsec: UTIME_OMIT as _ }, last_modification: Timespec { tv_sec: 0, tv_nsec: UTIME_NOW as _ } };
        // Who may write a file may set this; where it does not work, the file tells an earlier time.
        let _ = rustix::fs::futimens(&self.os, &times);
        (pages.told_ns, pages.untold) = (trace::now_ns(), false);
    }

    /// What has been written by pages is known to have been.
    pub(super) fn tell_last_change(&self) {
        let pages = &mut *lock(&self.pages);
        if pages.untold {
            self.tell_change(pages);
        }
    }

    fn has_usable_pages(&self) -> bool {
        // Pages are read before they are written.
        self.readable() && rustix::fs::fstatfs(&self.os).is_ok_and(|system| FILE_SYSTEMS.contains(&(system.f_type as u32)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Which way `count` accesses go, that take `ns` without pages and by them, and `first_ns` where pages have to be mapped.
    fn goes(ways: &mut Ways, count: usize, ns: [u64; 2], first_ns: u64) -> String {
        let mut mapped = false;
        (0..count)
            .map(|_| {
                let by_pages = ways.next();
                let took_ns = if by_pages && !mapped { first_ns } else { ns[by_pages as usize] };
                mapped |= by_pages;
                ways.took(by_pages, took_ns, 64 << 10);
                if by_pages { 'p' } else { '-' }
            })
            .collect()
    }

    #[test]
    fn the_faster_way_is_found_and_the_other_one_tried_ever_more_rarely() {
        let mut ways = Ways::default();
        assert_eq!(goes(&mut ways, 14, [100, 50], 500), "--pppp--pppp--");
        let mut ways = Ways::default();
        assert_eq!(goes(&mut ways, 14, [100, 150], 500), "--pp----pp----");
        let long = goes(&mut ways, 20_000, [100, 150], 500);
        assert!(long.matches('p').count() < 80 && long.matches('p').count() > 20);
        // What was slower becomes faster.
        let long = goes(&mut ways, 20_000, [100, 20], 500);
        assert!(long.matches('-').count() < 1_100, "{}", long.matches('-').count());
    }
}
