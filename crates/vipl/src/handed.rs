//! How do receive descriptors reach the sender? The receiver writes them into a buffer that both share and counts them; the sender takes
//! over as many as a batch has, and looks again when these are used up (paper 001 §1.4.3).

#[cfg(loom)]
use loom::sync::atomic::{AtomicU64, Ordering};
use std::ops::Deref;
#[cfg(not(loom))]
use std::sync::atomic::{AtomicU64, Ordering};

/// Pieces of a scatter list.
pub const PIECES_MAX: usize = 31;
/// Descriptors that a receive queue holds.
#[cfg(not(loom))]
pub const ENTRIES: usize = 512;
#[cfg(loom)]
pub const ENTRIES: usize = 2;
/// Descriptors taken over at a time, at first and at most.
pub const BATCH: u32 = 32;
pub const BATCH_MAX: u32 = 64;

#[cfg(not(loom))]
const WORDS: usize = 64;
#[cfg(loom)]
const WORDS: usize = 4;

/// A receive descriptor in shared memory: the count of its pieces, then two words each.
#[repr(C, align(64))]
pub struct Entry {
    words: [AtomicU64; WORDS],
}

/// Receive descriptors posted since the connection was made. One line, written by the receiver alone.
#[repr(C, align(64))]
pub struct Posted {
    count: AtomicU64,
    unused: [AtomicU64; 7],
}

#[cfg(loom)]
impl Default for Entry {
    fn default() -> Self {
        Entry { words: std::array::from_fn(|_| AtomicU64::new(0)) }
    }
}
#[cfg(loom)]
impl Default for Posted {
    fn default() -> Self {
        Posted { count: AtomicU64::new(0), unused: std::array::from_fn(|_| AtomicU64::new(0)) }
    }
}

/// A contiguous part of a region: where a message goes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Target {
    pub handle: u32,
    pub bytes: u32,
    /// From the region's start.
    pub offset: u64,
}

/// The receiver's side.
pub struct Giver<E: Deref<Target = [Entry]>, P: Deref<Target = Posted>> {
    entries: E,
    posted: P,
    count: u64,
}

impl<E: Deref<Target = [Entry]>, P: Deref<Target = Posted>> Giver<E, P> {
    pub fn new(entries: E, posted: P) -> Self {
        assert_eq!(entries.len(), ENTRIES);
        Giver { entries, posted, count: 0 }
    }

    /// Hands over a descriptor. The caller keeps at most [`ENTRIES`] of them outstanding.
    #[inline]
    pub fn give(&mut self, targets: impl Iterator<Item = Target>) {
        let words = &self.entries[self.count as usize % ENTRIES].words;
        let mut pieces = 0;
        for (target, pair) in targets.zip(words[1..].chunks_exact(2)) {
            pair[0].store(target.handle as u64 | (target.bytes as u64) << 32, Ordering::Relaxed);
            pair[1].store(target.offset, Ordering::Relaxed);
            pieces += 1;
        }
        words[0].store(pieces, Ordering::Relaxed);
        self.count += 1;
        self.posted.count.store(self.count, Ordering::Release);
    }
}

/// Posted descriptors, as anybody who holds the line may ask.
#[inline]
pub fn posted(posted: &Posted) -> u64 {
    posted.count.load(Ordering::Acquire)
}

/// The sender's side.
pub struct Taker<E: Deref<Target = [Entry]>, P: Deref<Target = Posted>> {
    entries: E,
    posted: P,
    pub batch: u32,
    /// Descriptors used, and known to be there.
    used: u64,
    known: u64,
    /// Contents of descriptors from `first` on that have been taken over.
    first: u64,
    contents: Vec<Vec<Target>>,
    pub counts: Counts,
}

/// How often descriptors were there.
#[derive(Clone, Copy, Default, Debug, PartialEq, Eq)]
pub struct Counts {
    pub uses: u64,
    pub found: u64,
    pub batches: u64,
}

impl<E: Deref<Target = [Entry]>, P: Deref<Target = Posted>> Taker<E, P> {
    pub fn new(entries: E, posted: P) -> Self {
        assert_eq!(entries.len(), ENTRIES);
        Taker { entries, posted, batch: BATCH, used: 0, known: 0, first: 0, contents: Vec::new(), counts: Counts::default() }
    }

    /// Descriptors used since the start.
    #[inline]
    pub fn used(&self) -> u64 {
        self.used
    }

    /// Whether a descriptor is there for the next message. `told` is the count that came with the last message of the peer.
    #[inline]
    pub fn available(&mut self, told: u64) -> bool {
        if self.known.max(told.min(self.used + ENTRIES as u64)) > self.used {
            self.known = self.known.max(told.min(self.used + ENTRIES as u64));
            return true;
        }
        self.take_over()
    }

    #[cold]
    fn take_over(&mut self) -> bool {
        let posted = posted(&self.posted);
        // A count that cannot be is no reason to read what was not written.
        self.known = self.known.max(posted.min(self.used + self.batch as u64));
        if self.known > self.used {
            self.counts.batches += 1;
        }
        self.known > self.used
    }

    /// Uses the next descriptor, which is [`Taker::available`], without looking at it.
    #[inline]
    pub fn pass(&mut self, found: bool) {
        self.used += 1;
        self.counts.uses += 1;
        self.counts.found += found as u64;
    }

    /// Whether the next descriptor has been taken over.
    #[inline]
    pub fn found(&self) -> bool {
        self.known > self.used
    }

    /// The scatter list of the next descriptor, which is [`Taker::available`]; does not use it.
    pub fn targets(&mut self) -> &[Target] {
        let end = self.first + self.contents.len() as u64;
        if self.used < self.first || self.used >= end {
            let last = self.known.min(self.used + self.batch as u64);
            self.first = self.used;
            let mut contents = std::mem::take(&mut self.contents);
            contents.resize_with((last - self.used) as usize, Vec::new);
            for (at, list) in contents.iter_mut().enumerate() {
                self.read((self.used as usize + at) % ENTRIES, list);
            }
            self.contents = contents;
        }
        &self.contents[(self.used - self.first) as usize]
    }

    fn read(&self, at: usize, list: &mut Vec<Target>) {
        let words = &self.entries[at].words;
        list.clear();
        let pieces = (words[0].load(Ordering::Relaxed) as usize).min(PIECES_MAX);
        for pair in words[1..].chunks_exact(2).take(pieces) {
            let word = pair[0].load(Ordering::Relaxed);
            list.push(Target { handle: word as u32, bytes: (word >> 32) as u32, offset: pair[1].load(Ordering::Relaxed) });
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    type Both = (Giver<std::sync::Arc<[Entry]>, std::sync::Arc<Posted>>, Taker<std::sync::Arc<[Entry]>, std::sync::Arc<Posted>>);

    fn pair() -> Both {
        let entries: std::sync::Arc<[Entry]> = (0..ENTRIES).map(|_| Entry { words: std::array::from_fn(|_| AtomicU64::new(0)) }).collect();
        let posted = std::sync::Arc::new(Posted { count: AtomicU64::new(0), unused: Default::default() });
        (Giver::new(entries.clone(), posted.clone()), Taker::new(entries, posted))
    }

    fn target(n: u64) -> Target {
        Target { handle: n as u32 + 1, bytes: 10, offset: n * 100 }
    }

    #[test]
    fn batches_are_taken_over_whole() {
        let batches: &[u32] = if cfg!(miri) { &[3] } else { &[1, 2, 3, 32, 64] };
        for &batch in batches {
            let (mut giver, mut taker) = pair();
            taker.batch = batch;
            assert!(!taker.available(0));
            (0..192).for_each(|n| giver.give([target(n), target(n + 1)].into_iter()));
            for n in 0..192 {
                let found = taker.found();
                assert_eq!(found, n % batch as u64 != 0);
                assert!(taker.available(0));
                assert_eq!(taker.targets(), [target(n), target(n + 1)]);
                taker.pass(found);
            }
            assert!(!taker.available(0));
            assert_eq!((taker.counts.uses, taker.counts.batches), (192, 192 / batch as u64));
            assert_eq!(taker.counts.found, 192 - 192 / batch as u64);
        }
    }

    #[test]
    fn counts_that_cannot_be_are_bounded() {
        let (giver, mut taker) = pair();
        giver.posted.count.store(u64::MAX, Ordering::Relaxed);
        giver.entries[0].words[0].store(u64::MAX, Ordering::Relaxed);
        assert!(taker.available(u64::MAX));
        assert_eq!(taker.known, ENTRIES as u64);
        assert_eq!(taker.targets().len(), PIECES_MAX);
    }
}
