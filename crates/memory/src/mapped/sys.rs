//! Mapping, and copies that a fault ends early.

#![allow(unsafe_code)]

use std::os::fd::{AsRawFd, BorrowedFd};

/// Pages of a file, until this is dropped.
#[derive(Debug)]
pub struct Pages {
    start: *mut u8,
    bytes: usize,
}

// SAFETY: an address range that stays mapped; what lies there is shared with other processes anyway, and is only copied.
unsafe impl Send for Pages {}
// SAFETY: as above.
unsafe impl Sync for Pages {}

impl Pages {
    pub fn map(fd: BorrowedFd, at: u64, bytes: usize, writable: bool) -> Option<Pages> {
        let protection = if writable { libc::PROT_READ | libc::PROT_WRITE } else { libc::PROT_READ };
        // SAFETY: a new mapping, at a place that the system chooses; a child of this process has no use for it.
        unsafe {
            let start = libc::mmap(std::ptr::null_mut(), bytes, protection, libc::MAP_SHARED, fd.as_raw_fd(), at.try_into().ok()?);
            if start == libc::MAP_FAILED {
                return None;
            }
            libc::madvise(start, bytes, libc::MADV_DONTFORK);
            Some(Pages { start: start.cast(), bytes })
        }
    }

    pub fn bytes(&self) -> usize {
        self.bytes
    }

    pub fn populate(&self, at: usize, bytes: usize, write: bool) -> bool {
        let (first, end) = (at / 4096 * 4096, (at + bytes).min(self.bytes));
        let advice = if write { libc::MADV_POPULATE_WRITE } else { libc::MADV_POPULATE_READ };
        // SAFETY: a part of the mapping; pages that are not there are an error of this call.
        unsafe { libc::madvise(self.start.add(first).cast(), end - first, advice) == 0 }
    }

    /// The bytes from `at` on, which the caller has seen to be inside.
    #[inline]
    pub fn read(&self, at: usize, into: &mut [u8]) -> bool {
        // SAFETY: inside the mapping, and the caller's memory.
        unsafe { copy(into.as_mut_ptr(), self.start.add(at), into.len()) }
    }

    /// As [`Pages::read`].
    #[inline]
    pub fn write(&self, at: usize, data: &[u8]) -> bool {
        // SAFETY: as in `read`.
        unsafe { copy(self.start.add(at), data.as_ptr(), data.len()) }
    }
}

impl Drop for Pages {
    fn drop(&mut self) {
        // SAFETY: this mapping, which nobody uses any more.
        unsafe { libc::munmap(self.start.cast(), self.bytes) };
    }
}

#[cfg(all(target_arch = "x86_64", not(miri)))]
pub use guarded::{catches_faults, copy};

/// Where copies cannot be guarded files are not mapped.
#[cfg(not(all(target_arch = "x86_64", not(miri))))]
pub fn catches_faults() -> bool {
    false
}

#[cfg(not(all(target_arch = "x86_64", not(miri))))]
unsafe fn copy(_: *mut u8, _: *const u8, _: usize) -> bool {
    false
}

#[cfg(all(target_arch = "x86_64", not(miri)))]
mod guarded {
    use std::ffi::{c_int, c_void};
    use std::sync::OnceLock;

    // to in rdi, from in rsi, bytes in rdx; gives what has not been copied. A fault leaves the rest in rcx.
    std::arch::global_asm!(
        ".pushsection .text.whimbrel_guarded_copy,\"ax\",@progbits",
        ".p2align 4",
        ".globl whimbrel_guarded_copy",
        ".globl whimbrel_guarded_copy_moves",
        ".globl whimbrel_guarded_copy_ends",
        ".hidden whimbrel_guarded_copy",
        ".hidden whimbrel_guarded_copy_moves",
        ".hidden whimbrel_guarded_copy_ends",
        ".type whimbrel_guarded_copy, @function",
        "whimbrel_guarded_copy:",
        ".cfi_startproc",
        "mov rcx, rdx",
        "whimbrel_guarded_copy_moves:",
        "rep movsb",
        "whimbrel_guarded_copy_ends:",
        "mov rax, rcx",
        "ret",
        ".cfi_endproc",
        ".size whimbrel_guarded_copy, . - whimbrel_guarded_copy",
        ".popsection",
    );

    unsafe extern "C" {
        fn whimbrel_guarded_copy(to: *mut u8, from: *const u8, bytes: usize) -> usize;
        static whimbrel_guarded_copy_moves: u8;
        static whimbrel_guarded_copy_ends: u8;
    }

    /// Copies, unless a page of a mapped file is not there; whether all has been copied.
    ///
    /// # Safety
    /// Both ranges are mapped, and do not overlap.
    #[inline]
    pub unsafe fn copy(to: *mut u8, from: *const u8, bytes: usize) -> bool {
        // SAFETY: the caller's promise; the direction flag is clear between functions.
        unsafe { whimbrel_guarded_copy(to, from, bytes) == 0 }
    }

    /// What handled `SIGBUS` before.
    static BEFORE: OnceLock<Option<libc::sigaction>> = OnceLock::new();

    /// Whether a fault in [`copy`] ends only that.
    pub fn catches_faults() -> bool {
        // SAFETY: all-zero structures are valid ones, which the calls fill in or read.
        unsafe {
            let before = BEFORE.get_or_init(|| {
                let (mut action, mut before): (libc::sigaction, libc::sigaction) = (std::mem::zeroed(), std::mem::zeroed());
                action.sa_sigaction = on_fault as *const () as usize;
                action.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK | libc::SA_NODEFER;
                (libc::sigaction(libc::SIGBUS, &action, &mut before) == 0).then_some(before)
            });
            let mut now: libc::sigaction = std::mem::zeroed();
            before.is_some() && libc::sigaction(libc::SIGBUS, std::ptr::null(), &mut now) == 0 && now.sa_sigaction == on_fault as *const () as usize
        }
    }

    extern "C" fn on_fault(signal: c_int, info: *mut libc::siginfo_t, context: *mut c_void) {
        // SAFETY: with SA_SIGINFO the system passes a valid context; the addresses are those of instructions.
        unsafe {
            let registers = &mut (*context.cast::<libc::ucontext_t>()).uc_mcontext.gregs;
            let at = &mut registers[libc::REG_RIP as usize];
            if *at == (&raw const whimbrel_guarded_copy_moves).addr() as i64 {
                *at = (&raw const whimbrel_guarded_copy_ends).addr() as i64;
                return;
            }
        }
        let before = BEFORE.get().copied().flatten();
        match before.map(|before| (before.sa_sigaction, before.sa_flags & libc::SA_SIGINFO != 0)) {
            // SAFETY: what the program has given for such a handler, with what the system has given this one.
            Some((handler, true)) if handler != libc::SIG_DFL && handler != libc::SIG_IGN => unsafe {
                std::mem::transmute::<usize, extern "C" fn(c_int, *mut libc::siginfo_t, *mut c_void)>(handler)(signal, info, context);
            },
            // SAFETY: as above.
            Some((handler, false)) if handler != libc::SIG_DFL && handler != libc::SIG_IGN => unsafe {
                std::mem::transmute::<usize, extern "C" fn(c_int)>(handler)(signal);
            },
            // The instruction is tried again, and now the signal kills.
            // SAFETY: the default action is a valid one.
            _ => unsafe {
                libc::signal(signal, libc::SIG_DFL);
            },
        }
    }
}
