//! Who tells whom that memory has changed: one writer at a time, any number of readers, no lock between them.
//!
//! The kernel lets an unmapping call return when its event has been *read*, and not when anybody has dealt with it. So the writer says that it reads
//! before it reads ([`Log::begin`]); whoever comes back from such a call finds the log in the middle of a change, or after it, and never before it.

#[cfg(loom)]
use loom::{
    sync::atomic::{AtomicU64, AtomicUsize, Ordering, fence},
    thread::yield_now,
};
use std::ops::Range;
#[cfg(not(loom))]
use std::{
    sync::atomic::{AtomicU64, AtomicUsize, Ordering, fence},
    thread::yield_now,
};

/// Changes that are remembered; who has missed more takes all memory as changed. A power of two.
pub const REMEMBERED: usize = if cfg!(loom) { 2 } else { 256 };
/// All addresses of programs.
pub const EVERYTHING: Range<usize> = 0..1 << (usize::BITS - 1);

/// What has changed, latest last.
pub struct Log {
    /// Odd while the writer reads: what it has read may not stand here yet.
    state: AtomicU64,
    /// Changes since the start.
    noted: AtomicU64,
    ranges: [[AtomicUsize; 2]; REMEMBERED],
}

/// How far a reader has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cursor {
    state: u64,
    noted: u64,
}

impl Default for Log {
    fn default() -> Log {
        Log { state: AtomicU64::new(0), noted: AtomicU64::new(0), ranges: std::array::from_fn(|_| [AtomicUsize::new(0), AtomicUsize::new(0)]) }
    }
}

impl Log {
    /// The writer is about to read events. Calls nothing that allocates, as [`Log::note`] and [`Log::end`].
    // Additions, where loads and stores would do for the only writer: loom takes a load of the writer's for the last access, and then does not try its store
    // before the reader's load.
    pub fn begin(&self) {
        self.state.fetch_add(1, Ordering::Relaxed);
        // Before what is written below, for readers that are in the middle of it.
        fence(Ordering::Release);
    }

    /// Between [`Log::begin`] and [`Log::end`]: memory of `range` is not what it was.
    pub fn note(&self, range: Range<usize>) {
        let noted = self.noted.fetch_add(1, Ordering::Relaxed);
        let [start, end] = &self.ranges[noted as usize % REMEMBERED];
        start.store(range.start, Ordering::Relaxed);
        end.store(range.end, Ordering::Relaxed);
    }

    /// What has been read stands here.
    pub fn end(&self) {
        self.state.fetch_add(1, Ordering::Release);
    }

    /// From now on.
    pub fn cursor(&self) -> Cursor {
        loop {
            let state = self.state.load(Ordering::Acquire);
            if state.is_multiple_of(2) {
                // More may be noted by now than in that state.
                return Cursor { state, noted: self.noted.load(Ordering::Relaxed) };
            }
            yield_now();
        }
    }

    /// Gives `apply` all changes of before this call that the reader has not been given; some twice, and perhaps some that never were.
    #[inline]
    pub fn changes(&self, cursor: &mut Cursor, apply: impl FnMut(Range<usize>)) {
        if self.state.load(Ordering::Acquire) != cursor.state {
            self.catch_up(cursor, apply);
        }
    }

    #[cold]
    fn catch_up(&self, cursor: &mut Cursor, mut apply: impl FnMut(Range<usize>)) {
        loop {
            let now @ Cursor { state, noted } = self.cursor();
            if noted - cursor.noted > REMEMBERED as u64 {
                apply(EVERYTHING);
            } else {
                for at in cursor.noted..noted {
                    let [start, end] = &self.ranges[at as usize % REMEMBERED];
                    let range = start.load(Ordering::Relaxed)..end.load(Ordering::Relaxed);
                    if !range.is_empty() {
                        apply(range);
                    }
                }
            }
            // Whether nothing of that was written over meanwhile.
            fence(Ordering::Acquire);
            if self.state.load(Ordering::Relaxed) == state {
                *cursor = now;
                return;
            }
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    fn seen(log: &Log, cursor: &mut Cursor) -> Vec<Range<usize>> {
        let mut all = Vec::new();
        log.changes(cursor, |range| all.push(range));
        all
    }

    #[test]
    fn each_reader_is_given_what_it_has_missed() {
        let log = Log::default();
        let mut early = log.cursor();
        log.begin();
        log.note(1..2);
        log.note(3..4);
        log.end();
        let mut late = log.cursor();
        assert_eq!(seen(&log, &mut early), [1..2, 3..4]);
        assert_eq!(seen(&log, &mut early), []);
        log.begin();
        log.end();
        assert_eq!(seen(&log, &mut late), []);
        log.begin();
        log.note(5..6);
        log.end();
        for cursor in [&mut early, &mut late] {
            assert_eq!(seen(&log, cursor), std::iter::once(5..6).collect::<Vec<_>>());
        }
        assert_eq!(log.cursor().noted, 3);
    }

    #[test]
    fn who_has_missed_too_much_takes_all_as_changed() {
        let log = Log::default();
        for (changes, expected) in [(REMEMBERED, REMEMBERED), (REMEMBERED + 1, 1)] {
            let mut cursor = log.cursor();
            log.begin();
            (0..changes).for_each(|at| log.note(at..at + 1));
            log.end();
            let all = seen(&log, &mut cursor);
            assert_eq!(all.len(), expected);
            assert_eq!(all[0] == EVERYTHING, changes > REMEMBERED);
        }
    }
}
