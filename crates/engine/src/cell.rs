//! Who may drive the engine: one thread at a time. Without `MPI_THREAD_MULTIPLE` the program promises that, and no lock is taken.
//!
//! With it, the thread that initialized MPI owns the engine until another thread comes: it enters by a plain store and a plain load, as long as
//! nobody else has ever come. The first other thread ends that for good: it announces itself, makes every thread of the process pass a full memory
//! barrier (`membarrier`), and waits until the owner is outside. From then on everybody takes the lock.

use crate::order::{Held, Level};
use std::cell::UnsafeCell;
use std::ops::{Deref, DerefMut};
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicUsize, Ordering, compiler_fence};

/// The owner enters freely.
const OWNED: u8 = 0;
/// Another thread is ending that.
const ENDING: u8 = 1;
/// Everybody takes the lock.
const SHARED: u8 = 2;

/// Looks at a held lock before the core is given away.
const LOOKS: u32 = 200;

/// A value behind a lock that is only there when several threads may come. Cells of threads that have nothing to do with each other share no line.
pub struct Cell<T> {
    locking: AtomicBool,
    mode: AtomicU8,
    owner: AtomicUsize,
    /// Its place in the order of locks.
    level: u8,
    door: Door,
    value: UnsafeCell<T>,
}

// SAFETY: access is exclusive: by owner or lock, or by the program's promise (MPI-5.0 §11.6.2) when there is none.
unsafe impl<T: Send> Sync for Cell<T> {}

/// What changes whenever somebody enters, away from what others only look at.
#[derive(Default)]
#[repr(align(128))]
struct Door {
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
            mode: AtomicU8::new(if owned { OWNED } else { SHARED }),
            owner: AtomicUsize::new(this_thread()),
            level: Level::engine(vci),
            door: Door::default(),
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
        !self.locking() || (self.mode.load(Ordering::Relaxed) == OWNED && self.owner.load(Ordering::Relaxed) == this_thread())
    }

    /// Whether other threads than the owner have come.
    #[inline]
    pub fn shared(&self) -> bool {
        self.locking() && self.mode.load(Ordering::Relaxed) != OWNED
    }

    /// Enters. Never call this while holding a guard of the same cell.
    #[inline]
    #[cfg_attr(debug_assertions, track_caller)]
    pub fn lock(&self) -> Guard<'_, T> {
        let held = Held::note(self.level);
        if !self.locking() {
            return self.enter(Leave::Nothing, held);
        }
        if self.mode.load(Ordering::Relaxed) == OWNED && self.owner.load(Ordering::Relaxed) == this_thread() {
            self.door.owner_inside.store(true, Ordering::Relaxed);
            // Whoever ends the ownership makes this order real by its heavy barrier.
            compiler_fence(Ordering::SeqCst);
            if self.mode.load(Ordering::Relaxed) == OWNED {
                return self.enter(Leave::Owner, held);
            }
            self.door.owner_inside.store(false, Ordering::Release);
        }
        self.share();
        if self.door.held.swap(true, Ordering::Acquire) {
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
        (!self.door.held.swap(true, Ordering::Acquire)).then(|| self.enter(Leave::Lock, Held::note(self.level)))
    }

    #[inline]
    fn enter(&self, leave: Leave, held: Held) -> Guard<'_, T> {
        Guard { cell: self, leave, _held: held }
    }

    /// Makes sure that everybody takes the lock.
    #[inline]
    fn share(&self) {
        if self.mode.load(Ordering::Acquire) != SHARED {
            self.end_ownership();
        }
    }

    #[cold]
    fn end_ownership(&self) {
        if self.mode.compare_exchange(OWNED, ENDING, Ordering::AcqRel, Ordering::Acquire).is_ok() {
            heavy_barrier();
            pause_until(|| !self.door.owner_inside.load(Ordering::Acquire));
            self.mode.store(SHARED, Ordering::Release);
        } else {
            pause_until(|| self.mode.load(Ordering::Acquire) == SHARED);
        }
    }

    #[cold]
    fn contended(&self) {
        pause_until(|| !self.door.held.load(Ordering::Relaxed) && !self.door.held.swap(true, Ordering::Acquire));
    }
}

/// Looks again and again, and gives the core away between looks after a while: what is waited for is short, or a copy.
pub(crate) fn pause_until(mut ready: impl FnMut() -> bool) {
    let mut looks = 0;
    while !ready() {
        looks += 1;
        if looks < LOOKS {
            std::hint::spin_loop();
        } else {
            crate::yield_core();
        }
    }
}

/// A number that differs between the threads that run now: where the thread's own storage lies.
#[inline(always)]
pub(crate) fn this_thread() -> usize {
    #[cfg(all(target_arch = "x86_64", target_os = "linux"))]
    {
        let pointer: usize;
        // SAFETY: the ABI keeps the thread's own address in the first word of its storage.
        unsafe { std::arch::asm!("mov {}, fs:0", out(reg) pointer, options(nostack, preserves_flags, readonly)) };
        pointer
    }
    #[cfg(not(all(target_arch = "x86_64", target_os = "linux")))]
    {
        thread_local!(static HERE: u8 = const { 0 });
        HERE.with(|here| std::ptr::from_ref(here) as usize)
    }
}

const MEMBARRIER_PRIVATE_EXPEDITED: libc::c_long = 1 << 3;
const MEMBARRIER_REGISTER_PRIVATE_EXPEDITED: libc::c_long = 1 << 4;

/// Whether heavy barriers work here.
pub(crate) fn register() -> bool {
    // SAFETY: plain system calls.
    unsafe {
        libc::syscall(libc::SYS_membarrier, MEMBARRIER_REGISTER_PRIVATE_EXPEDITED, 0, 0) == 0
            && libc::syscall(libc::SYS_membarrier, MEMBARRIER_PRIVATE_EXPEDITED, 0, 0) == 0
    }
}

/// A full memory barrier on every core that runs a thread of this process. It worked when it was registered.
pub(crate) fn heavy_barrier() {
    // SAFETY: a plain system call.
    unsafe { libc::syscall(libc::SYS_membarrier, MEMBARRIER_PRIVATE_EXPEDITED, 0, 0) };
}

impl<T> Drop for Guard<'_, T> {
    #[inline]
    fn drop(&mut self) {
        match self.leave {
            Leave::Nothing => {}
            Leave::Owner => self.cell.door.owner_inside.store(false, Ordering::Release),
            Leave::Lock => self.cell.door.held.store(false, Ordering::Release),
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
