//! Small structures that several processes share beside the rings.

#[cfg(loom)]
use loom::sync::atomic::{AtomicU64, Ordering, fence};
#[cfg(not(loom))]
use std::sync::atomic::{AtomicU64, Ordering, fence};

/// One line of a collective: written by one process, read by all others of the group.
///
/// The first word is a sequence number, published last; the rest is payload.
#[repr(C, align(64))]
#[derive(Debug)]
#[cfg_attr(any(loom, test), derive(Default))]
pub struct Line {
    words: [AtomicU64; 8],
}

/// Payload words in a line.
pub const LINE_WORDS: usize = 7;

impl Line {
    /// Publishes `payload` under `sequence`.
    #[inline]
    pub fn write(&self, sequence: u64, payload: &[u64]) {
        for (to, word) in self.words[1..].iter().zip(payload) {
            to.store(*word, Ordering::Relaxed);
        }
        self.words[0].store(sequence, Ordering::Release);
    }

    /// Takes the line from the caches of those who have read it, before it is written: else the stores wait for that, and all that come after them.
    #[inline(always)]
    pub fn foresee_write(&self) {
        #[cfg(not(loom))]
        super::sys::prefetch_for_store(self);
    }

    /// Whether `sequence`, or a later one, has been published.
    #[inline]
    pub fn reached(&self, sequence: u64) -> bool {
        self.words[0].load(Ordering::Acquire) >= sequence
    }

    /// Whether exactly `sequence` has been published last.
    #[inline]
    pub fn holds(&self, sequence: u64) -> bool {
        self.words[0].load(Ordering::Acquire) == sequence
    }

    /// Changes what has been published, if that is `from`; whether it was.
    #[inline]
    pub(super) fn change(&self, from: u64, to: u64) -> bool {
        self.words[0].compare_exchange(from, to, Ordering::Acquire, Ordering::Relaxed).is_ok()
    }

    /// What has been published last.
    #[inline]
    pub fn sequence(&self) -> u64 {
        self.words[0].load(Ordering::Acquire)
    }

    /// Writes one word of the payload, before [`Line::write`] publishes it.
    #[inline]
    pub fn set_payload(&self, at: usize, value: u64) {
        self.words[1 + at].store(value, Ordering::Relaxed);
    }

    /// One word of the payload, after [`Line::reached`] or [`Line::holds`].
    #[inline]
    pub fn payload(&self, at: usize) -> u64 {
        self.words[1 + at].load(Ordering::Relaxed)
    }

    /// Publishes one word of the payload by itself.
    #[inline]
    pub fn set_word(&self, at: usize, value: u64) {
        self.words[1 + at].store(value, Ordering::Release);
    }

    /// One word of the payload that is published by itself.
    #[inline]
    pub fn word(&self, at: usize) -> u64 {
        self.words[1 + at].load(Ordering::Acquire)
    }

    /// The payload, after [`Line::reached`] or [`Line::holds`].
    #[inline]
    pub fn read(&self, payload: &mut [u64]) {
        for (to, word) in payload.iter_mut().zip(&self.words[1..]) {
            *to = word.load(Ordering::Relaxed);
        }
    }

    /// As a set of up to 448 sleepers: adds `member`.
    pub fn add(&self, member: usize) {
        self.words[1 + member / 64].fetch_or(1 << (member % 64), Ordering::SeqCst);
        fence(Ordering::SeqCst);
    }

    /// As a set: how many are in it.
    pub fn count(&self) -> usize {
        self.words[1..].iter().map(|word| word.load(Ordering::SeqCst).count_ones() as usize).sum()
    }

    /// Makes all words 0. Only while nobody else uses the line.
    pub fn clear(&self) {
        self.words.iter().for_each(|word| word.store(0, Ordering::SeqCst));
    }

    /// As a set of sleepers: removes `member`.
    pub fn remove(&self, member: usize) {
        self.words[1 + member / 64].fetch_and(!(1 << (member % 64)), Ordering::SeqCst);
    }

    /// As [`Line::take_all`], of members below 64; where there are no others, the further words are no part of the set.
    #[inline]
    pub fn take_low(&self, mut each: impl FnMut(usize)) {
        self.take_of(0, &mut each);
    }

    /// As a set of sleepers: takes all out. Cheap when there are none.
    #[inline]
    pub fn take_all(&self, mut each: impl FnMut(usize)) {
        (0..LINE_WORDS).for_each(|at| self.take_of(at, &mut each));
    }

    /// Takes the members out that stand in one word.
    #[inline]
    fn take_of(&self, at: usize, each: &mut impl FnMut(usize)) {
        let word = &self.words[1 + at];
        if word.load(Ordering::Relaxed) != 0 {
            let mut bits = word.swap(0, Ordering::SeqCst);
            while bits != 0 {
                each(at * 64 + bits.trailing_zeros() as usize);
                bits &= bits - 1;
            }
        }
    }
}

/// A copy that two processes do together: pieces are claimed one by one, by either.
///
/// The claim word carries the copy's generation, so that a claim for a copy that is over claims nothing. A copy that its
/// receiver has only announced is *open*: no piece can be claimed until one of the two begins it, and the receiver can take it back as
/// long as nobody has.
#[repr(C, align(64))]
#[derive(Debug)]
#[cfg_attr(loom, derive(Default))]
pub struct Cooperative {
    /// Generation (upper 32 bits), pieces that the sender has claimed (16 bits), pieces that the receiver has claimed (16 bits).
    claim: AtomicU64,
    /// Generation and pieces that are done.
    done: AtomicU64,
    /// Not 0: some piece could not be copied.
    failed: AtomicU64,
    /// Not 0: the sender's pieces are to come through the ring.
    through_ring: AtomicU64,
    unused: [AtomicU64; 4],
}

/// What stands for claimed pieces in a copy that is open, and in one that was taken back: more than any copy has.
const OPEN: u64 = u32::MAX as u64;
const VOID: u64 = u32::MAX as u64 - 1;

pub use proto::p2p::{COOPERATIVE_PIECES_MAX, Side};

impl Cooperative {
    /// Says how the sender's pieces are to come, before the copy is announced or begun: through the ring, or written to the receiver's memory. A hint.
    pub fn say_through_ring(&self, through_ring: bool) {
        self.through_ring.store(through_ring as u64, Ordering::Relaxed);
    }

    /// What [`Cooperative::say_through_ring`] has said, after the copy has begun.
    pub fn goes_through_ring(&self) -> bool {
        self.through_ring.load(Ordering::Relaxed) != 0
    }

    /// Announces a copy under `generation`, which differs from the ones before.
    pub fn open(&self, generation: u32) {
        self.done.store((generation as u64) << 32, Ordering::Relaxed);
        self.failed.store(0, Ordering::Relaxed);
        self.claim.store((generation as u64) << 32 | OPEN, Ordering::Release);
    }

    /// Begins the copy that is open under `generation`. False: it is not open any more.
    pub fn begin_open(&self, generation: u32) -> bool {
        let base = (generation as u64) << 32;
        self.claim.compare_exchange(base | OPEN, base, Ordering::AcqRel, Ordering::Acquire).is_ok()
    }

    /// Undoes [`Cooperative::begin_open`], when no piece can have been claimed because nobody else knows of it yet.
    pub fn reopen(&self, generation: u32) {
        let base = (generation as u64) << 32;
        let _ = self.claim.compare_exchange(base, base | OPEN, Ordering::AcqRel, Ordering::Acquire);
    }

    /// Takes back the copy that is open under `generation`. False: somebody has begun it.
    pub fn withdraw(&self, generation: u32) -> bool {
        let base = (generation as u64) << 32;
        self.claim.compare_exchange(base | OPEN, base | VOID, Ordering::AcqRel, Ordering::Acquire).is_ok()
    }

    /// Whether the copy under `generation` has been begun; it may be over.
    pub fn begun(&self, generation: u32) -> bool {
        let seen = self.claim.load(Ordering::Acquire);
        (seen >> 32) as u32 == generation && seen & u32::MAX as u64 != OPEN && seen & u32::MAX as u64 != VOID
    }

    /// Begins a copy of `pieces` under `generation`, which differs from the ones before.
    pub fn begin(&self, generation: u32) {
        self.done.store((generation as u64) << 32, Ordering::Relaxed);
        self.failed.store(0, Ordering::Relaxed);
        self.claim.store((generation as u64) << 32, Ordering::Release);
    }

    /// Claims a piece for `side`, if one of the `pieces`, at most [`COOPERATIVE_PIECES_MAX`], is left.
    pub fn claim(&self, generation: u32, pieces: u32, side: Side) -> Option<u32> {
        let mut seen = self.claim.load(Ordering::Acquire);
        loop {
            let (front, back) = (seen as u16 as u32, (seen >> 16) as u16 as u32);
            if (seen >> 32) as u32 != generation || front + back >= pieces {
                return None;
            }
            let (piece, one) = match side {
                Side::Receiver => (front, 1),
                Side::Sender => (pieces - 1 - back, 1 << 16),
            };
            match self.claim.compare_exchange_weak(seen, seen + one, Ordering::AcqRel, Ordering::Acquire) {
                Ok(_) => return Some(piece),
                Err(now) => seen = now,
            }
        }
    }

    /// Says that one claimed piece is copied; returns how many are now.
    pub fn finish(&self) -> u32 {
        (self.done.fetch_add(1, Ordering::AcqRel) as u32).wrapping_add(1)
    }

    /// Says that a claimed piece cannot be copied; [`Cooperative::finish`] follows all the same.
    pub fn fail(&self) {
        self.failed.store(1, Ordering::Relaxed);
    }

    /// Whether a piece that is finished could not be copied.
    pub fn failed(&self) -> bool {
        self.failed.load(Ordering::Relaxed) != 0
    }

    /// Pieces copied so far.
    pub fn finished(&self) -> u32 {
        self.done.load(Ordering::Acquire) as u32
    }

    /// Pieces copied so far under `generation`. `None`: that copy is over, and another one has been announced or begun.
    pub fn finished_under(&self, generation: u32) -> Option<u32> {
        let done = self.done.load(Ordering::Acquire);
        ((done >> 32) as u32 == generation).then_some(done as u32)
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    fn cooperative() -> Cooperative {
        Cooperative {
            claim: AtomicU64::new(0),
            done: AtomicU64::new(0),
            failed: AtomicU64::new(0),
            through_ring: AtomicU64::new(0),
            unused: Default::default(),
        }
    }

    #[test]
    fn every_piece_is_claimed_once() {
        let j = &cooperative();
        j.begin(7);
        let claimed: Vec<Vec<u32>> = std::thread::scope(|s| {
            let threads: Vec<_> = [Side::Receiver, Side::Sender, Side::Receiver, Side::Sender]
                .into_iter()
                .map(|side| {
                    s.spawn(move || {
                        let mut mine = Vec::new();
                        while let Some(piece) = j.claim(7, 1000, side) {
                            mine.push(piece);
                            j.finish();
                        }
                        mine
                    })
                })
                .collect();
            threads.into_iter().map(|t| t.join().unwrap()).collect()
        });
        let mut all: Vec<u32> = claimed.into_iter().flatten().collect();
        all.sort_unstable();
        assert_eq!(all, (0..1000).collect::<Vec<_>>());
        assert_eq!(j.finished(), 1000);
        assert_eq!(j.claim(6, 1000, Side::Receiver), None);
        j.begin(8);
        assert_eq!((j.claim(7, 1000, Side::Sender), j.claim(8, 1000, Side::Receiver)), (None, Some(0)));
    }

    #[test]
    fn each_side_claims_from_its_own_end() {
        let j = cooperative();
        j.begin(1);
        let claimed = [Side::Receiver, Side::Sender, Side::Sender, Side::Receiver, Side::Sender].map(|side| j.claim(1, 4, side));
        assert_eq!(claimed, [Some(0), Some(3), Some(2), Some(1), None]);
        for side in [Side::Receiver, Side::Sender] {
            j.begin(2);
            assert_eq!((0..COOPERATIVE_PIECES_MAX).filter(|_| j.claim(2, COOPERATIVE_PIECES_MAX, side).is_some()).count() as u32, COOPERATIVE_PIECES_MAX);
            assert_eq!(j.claim(2, COOPERATIVE_PIECES_MAX, side), None);
        }
    }

    #[test]
    fn an_open_copy_is_begun_or_taken_back() {
        let j = cooperative();
        j.open(3);
        assert_eq!((j.claim(3, 10, Side::Sender), j.begun(3)), (None, false));
        assert!(!j.begin_open(2) && j.begin_open(3) && !j.begin_open(3));
        assert!(j.begun(3) && !j.begun(2) && !j.withdraw(3));
        j.reopen(3);
        assert_eq!((j.claim(3, 10, Side::Sender), j.begun(3)), (None, false));
        assert!(j.withdraw(3) && !j.begin_open(3) && !j.begun(3));
        assert_eq!(j.claim(3, COOPERATIVE_PIECES_MAX, Side::Receiver), None);
        j.open(4);
        assert!(j.begin_open(4));
        assert_eq!(j.claim(4, 10, Side::Receiver), Some(0));
        j.reopen(4);
        assert!(j.begun(4));
    }

    #[test]
    fn sleepers_are_taken_once() {
        let line = Line { words: Default::default() };
        for member in [0, 63, 64, 447] {
            line.add(member);
        }
        line.remove(63);
        let mut taken = Vec::new();
        line.take_all(|m| taken.push(m));
        assert_eq!(taken, [0, 64, 447]);
        line.take_all(|_| panic!("taken twice"));
    }
}
