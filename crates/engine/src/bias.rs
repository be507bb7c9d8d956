//! Locks that one thread takes nearly always: plain loads and stores for that thread, until another one comes.
//!
//! The first thread that takes any of these locks becomes the owner of all of them: it enters by a plain store between two plain loads. The first
//! other thread ends that for good, as it does for an engine ([`crate::Cell`]): it takes the ownership away, makes every thread of the process pass
//! a full memory barrier (`membarrier`), and waits until the owner is outside of the lock that it wants. From then on every thread takes a mutex.
//! So a program with one thread pays no atomic instruction for a table of handles, whatever thread level it has asked for.

use crate::cell::{heavy_barrier, pause_until, register, this_thread};
use std::cell::UnsafeCell;
use std::ops::{Deref, DerefMut};
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicUsize, Ordering, compiler_fence};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// No thread has taken a lock.
const UNOWNED: u8 = 0;
/// One thread enters freely.
const OWNED: u8 = 1;
/// A thread becomes the owner, or ends the ownership.
const CHANGING: u8 = 2;
/// Every thread takes the mutex.
const SHARED: u8 = 3;

/// Which thread enters the locks freely that are taken with it.
pub(crate) struct Bias {
    /// The owner, as [`this_thread`] gives it; 0: nobody.
    owner: AtomicUsize,
    mode: AtomicU8,
}

impl Bias {
    pub const fn new() -> Bias {
        Bias { owner: AtomicUsize::new(0), mode: AtomicU8::new(UNOWNED) }
    }

    /// Lets the calling thread become the owner, if it is the first of all, and ends the ownership of another thread. Gives whether the caller is the
    /// owner now.
    fn settle(&self) -> bool {
        loop {
            match self.mode.load(Ordering::Acquire) {
                SHARED => return false,
                UNOWNED => {
                    if self.change(UNOWNED) {
                        let owned = register();
                        self.owner.store(if owned { this_thread() } else { 0 }, Ordering::Relaxed);
                        self.mode.store(if owned { OWNED } else { SHARED }, Ordering::Release);
                        return owned;
                    }
                }
                OWNED => {
                    if self.change(OWNED) {
                        self.owner.store(0, Ordering::SeqCst);
                        heavy_barrier();
                        self.mode.store(SHARED, Ordering::Release);
                    }
                }
                _ => pause_until(|| self.mode.load(Ordering::Acquire) != CHANGING),
            }
        }
    }

    fn change(&self, from: u8) -> bool {
        self.mode.compare_exchange(from, CHANGING, Ordering::AcqRel, Ordering::Acquire).is_ok()
    }
}

/// A value behind a lock. Never taken twice by one thread.
pub(crate) struct Biased<T> {
    owner_inside: AtomicBool,
    mutex: Mutex<()>,
    value: UnsafeCell<T>,
}

// SAFETY: access is exclusive: whoever has the mutex waits until the owner is outside, and the owner enters freely only while nobody takes the mutex.
unsafe impl<T: Send> Sync for Biased<T> {}

pub(crate) struct BiasedGuard<'a, T> {
    lock: &'a Biased<T>,
    /// `None`: the owner has entered freely.
    _shared: Option<MutexGuard<'a, ()>>,
}

impl<T> Biased<T> {
    pub const fn new(value: T) -> Biased<T> {
        Biased { owner_inside: AtomicBool::new(false), mutex: Mutex::new(()), value: UnsafeCell::new(value) }
    }

    /// Takes the lock. What a thread that panicked has left behind is used as it is. All locks that are taken with `bias` have one owner; a lock is
    /// always taken with the same one.
    #[inline]
    pub fn lock(&self, bias: &Bias) -> BiasedGuard<'_, T> {
        let me = this_thread();
        if bias.owner.load(Ordering::Relaxed) == me {
            debug_assert!(!self.owner_inside.load(Ordering::Relaxed), "a thread takes a lock that it holds");
            self.owner_inside.store(true, Ordering::Relaxed);
            // Whoever ends the ownership makes this order real by its heavy barrier.
            compiler_fence(Ordering::SeqCst);
            if bias.owner.load(Ordering::Relaxed) == me {
                return BiasedGuard { lock: self, _shared: None };
            }
            self.owner_inside.store(false, Ordering::Release);
        }
        self.lock_otherwise(bias)
    }

    #[cold]
    #[inline(never)]
    fn lock_otherwise(&self, bias: &Bias) -> BiasedGuard<'_, T> {
        if bias.settle() {
            return self.lock(bias);
        }
        let shared = self.mutex.lock().unwrap_or_else(PoisonError::into_inner);
        // Who was the owner may still be inside, for the last time.
        self.wait_for_owner();
        BiasedGuard { lock: self, _shared: Some(shared) }
    }
}

impl<T> Biased<T> {
    /// Waits until the owner is outside, which is soon for most locks; some are held while a process joins its job.
    fn wait_for_owner(&self) {
        const LOOKS: u32 = 1000;
        const NAP: Duration = Duration::from_micros(50);
        let mut looks = 0;
        pause_until(|| {
            looks += 1;
            let outside = !self.owner_inside.load(Ordering::Acquire);
            if !outside && looks > LOOKS {
                std::thread::sleep(NAP);
            }
            outside
        });
    }
}

impl<T> Drop for BiasedGuard<'_, T> {
    #[inline]
    fn drop(&mut self) {
        if self._shared.is_none() {
            self.lock.owner_inside.store(false, Ordering::Release);
        }
    }
}

impl<T> Deref for BiasedGuard<'_, T> {
    type Target = T;
    #[inline]
    fn deref(&self) -> &T {
        // SAFETY: the guard is the only way in.
        unsafe { &*self.lock.value.get() }
    }
}

impl<T> DerefMut for BiasedGuard<'_, T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: the guard is the only way in.
        unsafe { &mut *self.lock.value.get() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The owner goes on while others come for the first time: nobody is inside together with it, also not in a lock that others reach later.
    #[test]
    fn ownership_ends_without_a_gap() {
        for round in 0..300 {
            let (bias, locks) = (Bias::new(), [const { Biased::new((0u64, 0u64)) }; 2]);
            let add = |lock: &Biased<(u64, u64)>| {
                let mut both = lock.lock(&bias);
                both.0 += 1;
                both.1 += 1;
                assert_eq!(both.0, both.1);
            };
            add(&locks[0]);
            assert_eq!(bias.owner.load(Ordering::Relaxed), if register() { this_thread() } else { 0 });
            std::thread::scope(|s| {
                for first in 0..2 {
                    let (add, locks) = (&add, &locks);
                    s.spawn(move || {
                        for _ in 0..round {
                            std::hint::spin_loop();
                        }
                        for at in 0..20 {
                            add(&locks[(first + at) % 2]);
                        }
                    });
                }
                for at in 0..200 {
                    add(&locks[at % 2]);
                }
            });
            assert_eq!((bias.mode.load(Ordering::Relaxed), bias.owner.load(Ordering::Relaxed)), (SHARED, 0));
            let sums = locks.map(|lock| lock.value.into_inner());
            assert_eq!((sums[0].0 + sums[1].0, sums[0].1 + sums[1].1), (241, 241));
        }
    }

    #[test]
    fn a_thread_that_comes_waits_for_the_owner_and_the_owner_for_it() {
        let (bias, lock) = (Bias::new(), Biased::new(0));
        let inside = lock.lock(&bias);
        std::thread::scope(|s| {
            let other = s.spawn(|| {
                let mut inside = lock.lock(&bias);
                *inside += 1;
                *inside
            });
            while bias.mode.load(Ordering::Acquire) != SHARED {
                std::hint::spin_loop();
            }
            assert_eq!(*inside, 0);
            drop(inside);
            assert_eq!(other.join().unwrap(), 1);
        });
        assert_eq!(*lock.lock(&bias), 1);
    }

    #[test]
    fn a_panic_leaves_the_lock_free() {
        let (bias, lock) = (Bias::new(), Biased::new(1));
        let held = || std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| *lock.lock(&bias) / 0u32.wrapping_add(std::hint::black_box(0))));
        assert!(held().is_err());
        assert_eq!(*lock.lock(&bias), 1);
    }
}
