//! Locks of tables and lists, which one thread takes nearly always: the first thread that takes any of them owns all of them ([`crate::owner`]), so that a
//! program with one thread pays no atomic instruction for a table of handles, whatever thread level it has asked for. When another thread has come, every
//! thread takes a mutex and sleeps for it: unlike an engine, some of these are held for long, as while a process joins its job.

use crate::owner::{Owner, pause_until, this_thread};
use std::cell::UnsafeCell;
use std::ops::{Deref, DerefMut};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

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

    #[inline]
    pub fn get_mut(&mut self) -> &mut T {
        self.value.get_mut()
    }

    /// Takes the lock. What a thread that panicked has left behind is used as it is. All locks that are taken with `owner` have that one owner; a lock is
    /// always taken with the same one.
    #[inline]
    pub fn lock(&self, owner: &Owner) -> BiasedGuard<'_, T> {
        let me = this_thread();
        debug_assert!(!owner.is(me) || !self.owner_inside.load(Ordering::Relaxed), "a thread takes a lock that it holds");
        if owner.enter(me, &self.owner_inside) {
            return BiasedGuard { lock: self, _shared: None };
        }
        self.lock_otherwise(owner)
    }

    #[cold]
    #[inline(never)]
    fn lock_otherwise(&self, owner: &Owner) -> BiasedGuard<'_, T> {
        // The owner may be inside of any of the locks: each thread waits for it where it wants to enter.
        if owner.settle(this_thread(), || ()) {
            return self.lock(owner);
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
            Owner::leave(&self.lock.owner_inside);
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
    use crate::owner::register;

    /// The owner goes on while others come for the first time: nobody is inside together with it, also not in a lock that others reach later.
    #[test]
    fn ownership_ends_without_a_gap() {
        for round in 0..300 {
            let (owner, locks) = (Owner::first_to_come(), [const { Biased::new((0u64, 0u64)) }; 2]);
            let add = |lock: &Biased<(u64, u64)>| {
                let mut both = lock.lock(&owner);
                both.0 += 1;
                both.1 += 1;
                assert_eq!(both.0, both.1);
            };
            add(&locks[0]);
            assert_eq!(owner.is(this_thread()), register());
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
            assert!(owner.is_shared() && !owner.is(this_thread()));
            let sums = locks.map(|lock| lock.value.into_inner());
            assert_eq!((sums[0].0 + sums[1].0, sums[0].1 + sums[1].1), (241, 241));
        }
    }

    #[test]
    fn a_thread_that_comes_waits_for_the_owner_and_the_owner_for_it() {
        let (owner, lock) = (Owner::first_to_come(), Biased::new(0));
        let inside = lock.lock(&owner);
        std::thread::scope(|s| {
            let other = s.spawn(|| {
                let mut inside = lock.lock(&owner);
                *inside += 1;
                *inside
            });
            while !owner.is_shared() {
                std::hint::spin_loop();
            }
            assert_eq!(*inside, 0);
            drop(inside);
            assert_eq!(other.join().unwrap(), 1);
        });
        assert_eq!(*lock.lock(&owner), 1);
    }

    #[test]
    fn a_panic_leaves_the_lock_free() {
        let (owner, lock) = (Owner::first_to_come(), Biased::new(1));
        let held = || std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| *lock.lock(&owner) / 0u32.wrapping_add(std::hint::black_box(0))));
        assert!(held().is_err());
        assert_eq!(*lock.lock(&owner), 1);
    }
}
