//! Biased locking: the owner of a lock enters by a plain store between two plain loads, as long as no other thread has come.
//!
//! The first other thread ends that for good: it takes the ownership away, makes every thread of the process pass a full memory barrier (`membarrier`), and
//! waits until the owner is outside of the lock that it wants. From then on every thread takes the lock behind it ([`crate::Cell`], [`crate::order`]).

#[cfg(loom)]
use loom::sync::atomic::{AtomicBool, AtomicU8, AtomicUsize, Ordering};
#[cfg(not(loom))]
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicUsize, Ordering};

/// No thread has come.
const UNOWNED: u8 = 0;
/// One thread enters freely.
const OWNED: u8 = 1;
/// A thread becomes the owner, or ends the ownership.
const CHANGING: u8 = 2;
/// Every thread takes the lock.
const SHARED: u8 = 3;

/// Looks before the core is given away between them.
#[cfg(not(loom))]
const LOOKS: u32 = 200;

/// Which thread enters freely the lock, or locks, that this belongs to.
pub(crate) struct Owner {
    /// As [`this_thread`] gives it; 0: nobody.
    thread: AtomicUsize,
    mode: AtomicU8,
}

impl Owner {
    /// The first thread that comes becomes the owner.
    #[cfg(not(loom))]
    pub const fn first_to_come() -> Owner {
        Owner { thread: AtomicUsize::new(0), mode: AtomicU8::new(UNOWNED) }
    }

    #[cfg(loom)]
    pub fn first_to_come() -> Owner {
        Owner { thread: AtomicUsize::new(0), mode: AtomicU8::new(UNOWNED) }
    }

    /// `thread` is the owner; `None`: every thread takes the lock.
    pub fn given(thread: Option<usize>) -> Owner {
        Owner { thread: AtomicUsize::new(thread.unwrap_or(0)), mode: AtomicU8::new(if thread.is_some() { OWNED } else { SHARED }) }
    }

    /// Whether `me`, the calling thread, enters freely.
    #[inline(always)]
    pub fn is(&self, me: usize) -> bool {
        self.thread.load(Ordering::Relaxed) == me
    }

    /// Whether every thread takes the lock, or will soon.
    #[inline]
    pub fn is_shared(&self) -> bool {
        matches!(self.mode.load(Ordering::Relaxed), CHANGING | SHARED)
    }

    /// `me`, the calling thread, enters freely the lock of `inside`, if it is the owner. It leaves by [`Owner::leave`].
    #[inline(always)]
    pub fn enter(&self, me: usize, inside: &AtomicBool) -> bool {
        if !self.is(me) {
            return false;
        }
        inside.store(true, Ordering::Relaxed);
        // Whoever ends the ownership makes this order real by its heavy barrier.
        light_barrier();
        if self.is(me) {
            return true;
        }
        inside.store(false, Ordering::Release);
        false
    }

    /// The owner is outside again.
    #[inline(always)]
    pub fn leave(inside: &AtomicBool) {
        inside.store(false, Ordering::Release);
    }

    /// Lets `me`, the calling thread, become the owner, if it is the first of all; ends the ownership of another thread. Gives whether `me` is the owner now.
    /// If it is not, every thread takes the lock from here on, and `until_outside` has returned before the first one that does so.
    #[inline]
    pub fn settle(&self, me: usize, until_outside: impl FnOnce()) -> bool {
        if self.mode.load(Ordering::Acquire) == SHARED {
            return false;
        }
        self.settle_now(me, until_outside)
    }

    #[cold]
    #[inline(never)]
    fn settle_now(&self, me: usize, until_outside: impl FnOnce()) -> bool {
        loop {
            match self.mode.load(Ordering::Acquire) {
                SHARED => return false,
                UNOWNED => {
                    if self.change(UNOWNED) {
                        let owned = register();
                        self.thread.store(if owned { me } else { 0 }, Ordering::Relaxed);
                        self.mode.store(if owned { OWNED } else { SHARED }, Ordering::Release);
                        return owned;
                    }
                }
                OWNED => {
                    if self.change(OWNED) {
                        self.thread.store(0, Ordering::SeqCst);
                        heavy_barrier();
                        until_outside();
                        self.mode.store(SHARED, Ordering::Release);
                        return false;
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

#[cfg(not(loom))]
pub(crate) use native::*;

#[cfg(not(loom))]
mod native {
    use super::LOOKS;
    use std::sync::atomic::{Ordering, compiler_fence};

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

    /// A number that differs between the threads that run now, and is not 0: where the thread's own storage lies.
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
    pub(super) fn heavy_barrier() {
        // SAFETY: a plain system call.
        unsafe { libc::syscall(libc::SYS_membarrier, MEMBARRIER_PRIVATE_EXPEDITED, 0, 0) };
    }

    #[inline(always)]
    pub(super) fn light_barrier() {
        compiler_fence(Ordering::SeqCst);
    }
}

/// What the models put in place of the system's barriers: full fences on both sides, or none.
#[cfg(loom)]
pub(crate) use modelled::*;

#[cfg(loom)]
mod modelled {
    use loom::sync::atomic::{Ordering, fence};
    use std::cell::Cell;

    // Loom runs all threads of a model in one thread of the system.
    thread_local!(pub(crate) static FENCED: Cell<bool> = const { Cell::new(true) });

    pub(crate) fn pause_until(mut ready: impl FnMut() -> bool) {
        while !ready() {
            loom::thread::yield_now();
        }
    }

    pub(super) fn register() -> bool {
        true
    }

    pub(super) fn heavy_barrier() {
        light_barrier();
    }

    pub(super) fn light_barrier() {
        if FENCED.get() {
            fence(Ordering::SeqCst);
        }
    }
}
