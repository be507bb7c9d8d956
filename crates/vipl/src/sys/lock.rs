//! A lock for the short path: one atomic exchange to take it, a plain store to give it back.

#[cfg(loom)]
use loom::{
    cell::UnsafeCell,
    sync::atomic::{AtomicBool, Ordering},
};
#[cfg(not(loom))]
use std::sync::atomic::{AtomicBool, Ordering};

/// Tries before a waiting thread gives its core away.
#[cfg(not(loom))]
const SPINS: u32 = 64;

#[cfg(not(loom))]
struct UnsafeCell<T>(std::cell::UnsafeCell<T>);

#[cfg(not(loom))]
impl<T> UnsafeCell<T> {
    const fn new(value: T) -> Self {
        UnsafeCell(std::cell::UnsafeCell::new(value))
    }
    #[inline(always)]
    fn with_mut<R>(&self, f: impl FnOnce(*mut T) -> R) -> R {
        f(self.0.get())
    }
}

/// A value that one thread at a time uses, for so short a time that others wait without sleeping.
pub struct Lock<T> {
    taken: AtomicBool,
    value: UnsafeCell<T>,
}

// SAFETY: the value is reached by the thread that has taken the lock alone.
unsafe impl<T: Send> Send for Lock<T> {}
// SAFETY: as above.
unsafe impl<T: Send> Sync for Lock<T> {}

impl<T> Lock<T> {
    #[cfg(not(loom))]
    pub const fn new(value: T) -> Lock<T> {
        Lock { taken: AtomicBool::new(false), value: UnsafeCell::new(value) }
    }

    #[cfg(loom)]
    pub fn new(value: T) -> Lock<T> {
        Lock { taken: AtomicBool::new(false), value: UnsafeCell::new(value) }
    }

    /// Calls `f` with the value. `f` must not take the same lock.
    #[inline]
    pub fn with<R>(&self, f: impl FnOnce(&mut T) -> R) -> R {
        while self.taken.swap(true, Ordering::Acquire) {
            self.contended();
        }
        self.held(f)
    }

    /// As [`Lock::with`], unless another thread has it.
    #[inline]
    pub fn try_with<R>(&self, f: impl FnOnce(&mut T) -> R) -> Option<R> {
        (!self.taken.swap(true, Ordering::Acquire)).then(|| self.held(f))
    }

    #[inline]
    fn held<R>(&self, f: impl FnOnce(&mut T) -> R) -> R {
        struct Release<'a>(&'a AtomicBool);
        impl Drop for Release<'_> {
            fn drop(&mut self) {
                #[cfg(not(loom))]
                self.0.store(false, Ordering::Release);
                // Loom forgets that nothing comes between another thread's swap and what it read, and would put this store there.
                #[cfg(loom)]
                self.0.swap(false, Ordering::Release);
            }
        }
        let _release = Release(&self.taken);
        // SAFETY: this thread has taken the lock, and gives it back after `f`.
        self.value.with_mut(|value| f(unsafe { &mut *value }))
    }

    #[cold]
    fn contended(&self) {
        #[cfg(loom)]
        loom::thread::yield_now();
        #[cfg(not(loom))]
        {
            for _ in 0..SPINS {
                if !self.taken.load(Ordering::Relaxed) {
                    return;
                }
                std::hint::spin_loop();
            }
            std::thread::yield_now();
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn one_at_a_time() {
        let lock = Lock::new(0u64);
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| (0..200).for_each(|_| lock.with(|value| *value += 1)));
            }
        });
        assert_eq!(lock.with(|value| *value), 800);
        lock.with(|_| assert!(lock.try_with(|_| ()).is_none()));
        assert!(lock.try_with(|_| ()).is_some());
    }
}
