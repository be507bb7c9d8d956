//! Who may drive the engine: one thread at a time. Without `MPI_THREAD_MULTIPLE` the program promises that, and no lock is taken.
//!
//! With it, the thread that initialized MPI owns the engine until another thread comes ([`crate::owner`]). From then on everybody takes a lock that is never
//! slept for: whoever holds it is about to leave, or waits for something and lets it go between its looks.

use crate::order::{Held, Level};
use crate::owner::{Owner, pause_until, register, this_thread};
use std::cell::UnsafeCell;
use std::ops::{Deref, DerefMut};
use std::sync::atomic::{AtomicBool, Ordering};

/// A value behind a lock that is only there when several threads may come. Cells of threads that have nothing to do with each other share no line.
pub struct Cell<T> {
    locking: AtomicBool,
    owner: Owner,
    /// Its place in the order of locks.
    level: u8,
    words: LockWords,
    value: UnsafeCell<T>,
}

// SAFETY: access is exclusive: by owner or lock, or by the program's promise (MPI-5.0 §11.6.2) when there is none.
unsafe impl<T: Send> Sync for Cell<T> {}

/// What changes whenever somebody enters, away from what others only look at.
#[derive(Default)]
#[repr(align(128))]
struct LockWords {
    owner_inside: AtomicBool,
    held: AtomicBool,
}

pub struct Guard<'a, T> {
    cell: &'a Cell<T>,
    leave: Leave,
    _held: Held,
}

#[derive(Clone, Copy)]
enum Leave {
    Nothing,
    Owner,
    Lock,
}

impl<T> Cell<T> {
    /// The calling thread is the owner.
    pub fn new(value: T, locking: bool) -> Cell<T> {
        Cell::numbered(value, locking, 0)
    }

    /// The cell of engine `vci` of its process: those with smaller numbers are entered first.
    pub fn numbered(value: T, locking: bool, vci: u8) -> Cell<T> {
        let owned = locking && register();
        Cell {
            locking: AtomicBool::new(locking),
            owner: Owner::given(owned.then(this_thread)),
            level: Level::engine(vci),
            words: LockWords::default(),
            value: UnsafeCell::new(value),
        }
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

    /// Whether the calling thread enters freely: it owns the value, or there is no other thread.
    #[inline]
    pub fn mine(&self) -> bool {
        !self.locking() || self.owner.is(this_thread())
    }

    /// Whether other threads than the owner have come.
    #[inline]
    pub fn shared(&self) -> bool {
        self.locking() && self.owner.is_shared()
    }

    /// Enters. Never call this while holding a guard of the same cell.
    #[inline]
    #[cfg_attr(debug_assertions, track_caller)]
    pub fn lock(&self) -> Guard<'_, T> {
        let held = Held::note(self.level);
        if !self.locking() {
            return self.enter(Leave::Nothing, held);
        }
        if self.owner.enter(this_thread(), &self.words.owner_inside) {
            return self.enter(Leave::Owner, held);
        }
        self.share();
        if self.words.held.swap(true, Ordering::Acquire) {
            self.contended();
        }
        self.enter(Leave::Lock, held)
    }

    /// Enters if nobody is inside.
    pub fn try_lock(&self) -> Option<Guard<'_, T>> {
        if self.mine() {
            return Some(self.lock());
        }
        self.share();
        (!self.words.held.swap(true, Ordering::Acquire)).then(|| self.enter(Leave::Lock, Held::note(self.level)))
    }

    #[inline]
    fn enter(&self, leave: Leave, held: Held) -> Guard<'_, T> {
        Guard { cell: self, leave, _held: held }
    }

    /// Makes sure that everybody takes the lock.
    #[inline]
    fn share(&self) {
        let owned = self.owner.settle(this_thread(), || pause_until(|| !self.words.owner_inside.load(Ordering::Acquire)));
        debug_assert!(!owned, "a cell has an owner from the start, or none");
    }

    #[cold]
    fn contended(&self) {
        pause_until(|| !self.words.held.load(Ordering::Relaxed) && !self.words.held.swap(true, Ordering::Acquire));
    }
}

impl<T> Drop for Guard<'_, T> {
    #[inline]
    fn drop(&mut self) {
        match self.leave {
            Leave::Nothing => {}
            Leave::Owner => Owner::leave(&self.cell.words.owner_inside),
            Leave::Lock => self.cell.words.held.store(false, Ordering::Release),
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

    #[test]
    fn only_one_gets_in() {
        let cell = Cell::new(0u32, true);
        let inside = cell.lock();
        assert!(cell.mine());
        std::thread::scope(|s| {
            let elsewhere = s.spawn(|| {
                assert!(!cell.mine());
                cell.try_lock().map(|_| ())
            });
            // Whoever comes waits until the owner is outside: it would not wait for a lock.
            drop(inside);
            assert!(elsewhere.join().unwrap().is_some());
            let inside = cell.lock();
            assert!(s.spawn(|| cell.try_lock().is_none()).join().unwrap());
            drop(inside);
        });
    }

    /// The owner works on while others come for the first time: nobody is inside together with it.
    #[test]
    fn ownership_ends_without_a_gap() {
        for round in 0..300 {
            let cell = Cell::new((0u64, 0u64), true);
            std::thread::scope(|s| {
                for _ in 0..2 {
                    s.spawn(|| {
                        for _ in 0..round {
                            std::hint::spin_loop();
                        }
                        for _ in 0..20 {
                            let mut both = cell.lock();
                            both.0 += 1;
                            both.1 += 1;
                            assert_eq!(both.0, both.1);
                        }
                    });
                }
                for _ in 0..200 {
                    let mut both = cell.lock();
                    both.0 += 1;
                    both.1 += 1;
                    assert_eq!(both.0, both.1);
                }
            });
            assert!(cell.shared());
            assert_eq!(*cell.lock(), (240, 240));
        }
    }
}
