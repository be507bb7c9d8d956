//! How a process says that it sleeps, and how a sender finds out, with no fence on the sender's side where the system can
//! put one there: the sleeper's heavy fence runs a full fence on every core that runs a process of the job.

#[cfg(loom)]
use loom::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};
#[cfg(not(loom))]
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};

/// What a process sleeps on.
pub(crate) trait Bed {
    /// Not 0: the process sleeps, or is about to.
    fn sleeping(&self) -> &AtomicU64;
    /// The word that it waits on.
    fn futex(&self) -> &AtomicU32;
    /// A full fence on all senders.
    fn heavy_fence(&self);
    /// Wakes whoever waits on the word.
    fn wake_all(&self);
}

/// The sleeper's side. `note` is where it leaves its name elsewhere: who takes the name finds [`Bed::sleeping`] set, and who
/// wrote something before the fence without seeing the name is seen by the sleeper's last look, which comes after this.
#[inline]
pub(crate) fn arm(bed: &impl Bed, note: impl FnOnce()) -> u32 {
    let seen = bed.futex().load(Ordering::Acquire);
    bed.sleeping().swap(1, Ordering::SeqCst);
    note();
    bed.heavy_fence();
    fence(Ordering::SeqCst);
    seen
}

/// The sleeper's side, when it is awake again.
#[inline]
pub(crate) fn disarm(bed: &impl Bed) {
    #[cfg(not(loom))]
    bed.sleeping().store(0, Ordering::Relaxed);
    // Loom forgets that nothing comes between a sender's swap and what it read, and would put this store there.
    #[cfg(loom)]
    bed.sleeping().swap(0, Ordering::Relaxed);
}

/// The sender's side, after it wrote and fenced (or was fenced).
#[inline]
pub(crate) fn wake(bed: &impl Bed) {
    if bed.sleeping().load(Ordering::Relaxed) != 0 {
        ring(bed);
    }
}

#[cold]
fn ring(bed: &impl Bed) {
    if bed.sleeping().swap(0, Ordering::AcqRel) != 0 {
        bed.futex().fetch_add(1, Ordering::Release);
        bed.wake_all();
    }
}
