//! Who may drive the engine: one thread at a time. Without `MPI_THREAD_MULTIPLE` the program promises that, and no lock is taken.

use std::cell::UnsafeCell;
use std::ops::{Deref, DerefMut};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

/// A value behind a lock that is only there when several threads may come.
pub struct Cell<T> {
    locking: AtomicBool,
    /// 0 free, 1 held, 2 held and somebody sleeps.
    state: AtomicU32,
    value: UnsafeCell<T>,
}

// SAFETY: access is exclusive: by the lock, or by the program's promise (MPI-5.0 §11.6.2) when there is none.
unsafe impl<T: Send> Sync for Cell<T> {}

pub struct Guard<'a, T> {
    cell: &'a Cell<T>,
    locked: bool,
}

impl<T> Cell<T> {
    pub fn new(value: T, locking: bool) -> Cell<T> {
        Cell { locking: AtomicBool::new(locking), state: AtomicU32::new(0), value: UnsafeCell::new(value) }
    }

    /// Whether several threads may come.
    #[inline]
    pub fn locking(&self) -> bool {
        self.locking.load(Ordering::Relaxed)
    }

    /// Turns locking on or off. Only while no other thread is inside.
    pub fn set_locking(&self, on: bool) {
        self.locking.store(on, Ordering::SeqCst);
    }

    /// Enters. Never call this while holding a guard of the same cell.
    #[inline]
    pub fn lock(&self) -> Guard<'_, T> {
        let locked = self.locking();
        if locked && self.state.compare_exchange(0, 1, Ordering::Acquire, Ordering::Relaxed).is_err() {
            self.contended();
        }
        Guard { cell: self, locked }
    }

    #[cold]
    fn contended(&self) {
        for _ in 0..100 {
            if self.state.load(Ordering::Relaxed) == 0 && self.state.compare_exchange(0, 1, Ordering::Acquire, Ordering::Relaxed).is_ok() {
                return;
            }
            std::hint::spin_loop();
        }
        while self.state.swap(2, Ordering::Acquire) != 0 {
            // SAFETY: a plain futex wait on a word that lives as long as this call.
            unsafe {
                libc::syscall(libc::SYS_futex, self.state.as_ptr(), libc::FUTEX_WAIT | libc::FUTEX_PRIVATE_FLAG, 2, std::ptr::null::<libc::timespec>());
            }
        }
    }
}

impl<T> Drop for Guard<'_, T> {
    #[inline]
    fn drop(&mut self) {
        if self.locked && self.cell.state.swap(0, Ordering::Release) == 2 {
            // SAFETY: as in `contended`.
            unsafe {
                libc::syscall(libc::SYS_futex, self.cell.state.as_ptr(), libc::FUTEX_WAKE | libc::FUTEX_PRIVATE_FLAG, 1);
            }
        }
    }
}

impl<T> Deref for Guard<'_, T> {
    type Target = T;
    #[inline]
    fn deref(&self) -> &T {
        // SAFETY: the guard is the only way in.
        unsafe { &*self.cell.value.get() }
    }
}

impl<T> DerefMut for Guard<'_, T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: the guard is the only way in.
        unsafe { &mut *self.cell.value.get() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_right_under_contention() {
        let cell = Cell::new(0u64, true);
        std::thread::scope(|s| {
            for _ in 0..4 {
                s.spawn(|| {
                    for _ in 0..20_000 {
                        *cell.lock() += 1;
                    }
                });
            }
        });
        assert_eq!(*cell.lock(), 80_000);
    }
}
