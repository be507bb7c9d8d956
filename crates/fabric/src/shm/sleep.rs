//! How a process says that it sleeps, and how a sender finds out, with no fence on the sender's side where the system can
//! put one there: the sleeper's heavy fence runs a full fence on every core that runs a process of the job.

#[cfg(loom)]
use loom::sync::{
    Mutex,
    atomic::{AtomicU32, AtomicU64, Ordering, fence},
};
use std::sync::PoisonError;
#[cfg(not(loom))]
use std::sync::{
    Mutex,
    atomic::{AtomicU32, AtomicU64, Ordering, fence},
};

/// What a process sleeps on.
pub trait SleepWord {
    /// Not 0: the process sleeps, or is about to.
    fn sleeping(&self) -> &AtomicU64;
    /// The word that it waits on.
    fn futex(&self) -> &AtomicU32;
    /// A full fence on all senders.
    fn heavy_fence(&self);
    /// Wakes whoever waits on the word.
    fn wake_all(&self);
}

/// The sleeper's side. `note` is where it leaves its name elsewhere: who takes the name finds [`SleepWord::sleeping`] set, and who
/// wrote something before the fence without seeing the name is seen by the sleeper's last look, which comes after this.
#[inline]
pub fn arm(sleep_word: &impl SleepWord, note: impl FnOnce()) -> u32 {
    let seen = sleep_word.futex().load(Ordering::Acquire);
    sleep_word.sleeping().swap(1, Ordering::SeqCst);
    note();
    sleep_word.heavy_fence();
    fence(Ordering::SeqCst);
    seen
}

/// The sleeper's side, when it is awake again.
#[inline]
pub fn disarm(sleep_word: &impl SleepWord) {
    #[cfg(not(loom))]
    sleep_word.sleeping().store(0, Ordering::Relaxed);
    // Loom forgets that nothing comes between a sender's swap and what it read, and would put this store there.
    #[cfg(loom)]
    sleep_word.sleeping().swap(0, Ordering::Relaxed);
}

/// The sender's side, after it wrote and fenced (or was fenced).
#[inline]
pub fn wake(sleep_word: &impl SleepWord) {
    if sleep_word.sleeping().load(Ordering::Relaxed) != 0 {
        ring(sleep_word);
    }
}

#[cold]
fn ring(sleep_word: &impl SleepWord) {
    if sleep_word.sleeping().swap(0, Ordering::AcqRel) != 0 {
        sleep_word.futex().fetch_add(1, Ordering::Release);
        sleep_word.wake_all();
    }
}

/// Threads of one process that sleep on its sleep word without one lock between them: only the last that wakes may say that nobody sleeps.
#[derive(Default)]
pub struct Sleepers {
    asleep: AtomicU32,
    changing: Mutex<()>,
}

impl Sleepers {
    /// `threads` more sleep, or are about to. Comes before they arm the sleep word.
    pub fn begin_sleep(&self, threads: u32) {
        let _held = self.changing.lock().unwrap_or_else(PoisonError::into_inner);
        self.asleep.fetch_add(threads, Ordering::Relaxed);
    }

    /// A thread does not sleep any more. `last`, which disarms the sleep word, is called if no other one does, and while none can begin to sleep.
    pub fn end_sleep(&self, last: impl FnOnce()) {
        let _held = self.changing.lock().unwrap_or_else(PoisonError::into_inner);
        if self.asleep.fetch_sub(1, Ordering::Relaxed) == 1 {
            last();
        }
    }

    /// How many sleep. Who asks under a lock that sleepers take once more before they sleep overlooks none of them.
    #[inline]
    pub fn asleep(&self) -> u32 {
        self.asleep.load(Ordering::Relaxed)
    }
}
