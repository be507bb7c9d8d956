//! System calls that have no safe wrapper: signals as a descriptor, how a process that is no child ended, and trials of what a
//! kernel or sandbox allows.

use rustix::event::{EventfdFlags, eventfd};
use rustix::process::Signal;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::sync::atomic::{AtomicI32, AtomicU64, Ordering::SeqCst};

/// Signals that have arrived: bit `n` for signal `n`.
static ARRIVED: AtomicU64 = AtomicU64::new(0);
/// The descriptor that the handler writes to.
static WAKE: AtomicI32 = AtomicI32::new(-1);

/// From now on, `watched` signals do nothing but make the descriptor readable; see [`next_signal`]. Call it once.
///
/// Signals that whoever started this process wants ignored (`nohup`, a script's background) stay ignored, but for SIGCHLD.
/// Programs started later get the default actions, since handlers do not outlive `exec`, as blocked signals would.
pub fn watch_signals(watched: &[Signal]) -> io::Result<OwnedFd> {
    let wake = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
    WAKE.store(wake.as_raw_fd(), SeqCst);
    for signal in watched {
        // SAFETY: an all-zero `sigaction` is valid memory, and the first call only fills it in. The handler does nothing but
        // what may be done at any moment.
        let result = unsafe {
            let mut action: libc::sigaction = std::mem::zeroed();
            libc::sigaction(signal.as_raw(), std::ptr::null(), &mut action);
            // While SIGCHLD is ignored, the kernel throws exit statuses away.
            if action.sa_sigaction == libc::SIG_IGN && *signal != Signal::CHILD {
                continue;
            }
            action = std::mem::zeroed();
            action.sa_sigaction = on_signal as *const () as usize;
            action.sa_flags = if *signal == Signal::CHILD { libc::SA_NOCLDSTOP } else { 0 };
            libc::sigaction(signal.as_raw(), &action, std::ptr::null_mut())
        };
        if result != 0 {
            return Err(io::Error::last_os_error());
        }
    }
    Ok(wake)
}

/// The next of the signals that arrived, if any. Several of one kind may be one.
pub fn next_signal(wake: &OwnedFd) -> Option<Signal> {
    // First: what arrives from here on makes the descriptor readable again.
    let _ = rustix::io::read(wake, &mut [0u8; 8]);
    loop {
        let arrived = ARRIVED.load(SeqCst);
        if arrived == 0 {
            return None;
        }
        let number = arrived.trailing_zeros();
        ARRIVED.fetch_and(!(1 << number), SeqCst);
        if let Some(signal) = Signal::from_named_raw(number as i32) {
            return Some(signal);
        }
    }
}

extern "C" fn on_signal(number: libc::c_int) {
    ARRIVED.fetch_or(1 << (number & 63), SeqCst);
    let one = 1u64.to_ne_bytes();
    // SAFETY: `write` may be called from a handler; the buffer is valid; what it does to `errno` is undone.
    unsafe {
        let errno = libc::__errno_location();
        let before = *errno;
        libc::write(WAKE.load(SeqCst), one.as_ptr().cast(), one.len());
        *errno = before;
    }
}

/// Wait status of the process behind `pidfd`, which need not be a child; `None` until its parent has collected it, and on
/// kernels before 6.15.
pub fn exit_status(pidfd: &OwnedFd) -> Option<i32> {
    /// The kernel's `struct pidfd_info` in its first version.
    #[repr(C)]
    #[derive(Default)]
    struct Info {
        mask: u64,
        cgroup: u64,
        ids: [u32; 11],
        exit_code: i32,
    }
    const _: () = assert!(size_of::<Info>() == 64);
    const PIDFD_INFO_EXIT: u64 = 1 << 3;
    // _IOWR(0xff, 11, 64 bytes)
    const PIDFD_GET_INFO: libc::c_ulong = 0xc040_ff0b;
    let mut info = Info { mask: PIDFD_INFO_EXIT, ..Info::default() };
    // SAFETY: the kernel writes at most the 64 bytes that the request's number states, and `info` has them.
    let result = unsafe { libc::ioctl(pidfd.as_raw_fd(), PIDFD_GET_INFO as _, &mut info) };
    (result == 0 && info.mask & PIDFD_INFO_EXIT != 0).then_some(info.exit_code)
}

/// Whether `process_vm_readv` works at all: tried on this process' own memory.
pub fn reads_memory() -> bool {
    let (from, mut to) = (0x5eed_u64, 0u64);
    let remote = libc::iovec { iov_base: std::ptr::from_ref(&from).cast_mut().cast(), iov_len: size_of::<u64>() };
    let local = libc::iovec { iov_base: std::ptr::from_mut(&mut to).cast(), iov_len: size_of::<u64>() };
    // SAFETY: both describe eight bytes that live until the call returns.
    let read = unsafe { libc::process_vm_readv(libc::getpid(), &local, 1, &remote, 1, 0) };
    read == size_of::<u64>() as isize && std::hint::black_box(to) == from
}

/// Whether rings for asynchronous input and output may be made: a ring without entries is refused as such, or as any.
pub fn makes_io_uring() -> bool {
    // SAFETY: with no entries and no parameters, nothing is made and nothing is written.
    unsafe { libc::syscall(libc::SYS_io_uring_setup, 0, std::ptr::null_mut::<u8>()) };
    !matches!(io::Error::last_os_error().raw_os_error(), Some(libc::ENOSYS | libc::EPERM | libc::EACCES))
}

/// Whether `userfaultfd` may be used, for faults of the kernel too or only (`user_mode_only`) of the process itself.
pub fn makes_userfaultfd(user_mode_only: bool) -> bool {
    const UFFD_USER_MODE_ONLY: libc::c_int = 1;
    let flags = libc::O_CLOEXEC | if user_mode_only { UFFD_USER_MODE_ONLY } else { 0 };
    // SAFETY: a plain system call that gives a new descriptor or an error.
    let descriptor = unsafe { libc::syscall(libc::SYS_userfaultfd, flags) };
    if descriptor < 0 {
        return false;
    }
    // SAFETY: it is new, and nobody else has it.
    drop(unsafe { OwnedFd::from_raw_fd(descriptor as libc::c_int) });
    true
}

/// Locks `bytes` of new memory that has been written, and unlocks them: how long each call took, ns.
///
/// Errors: the limit on locked memory, or no memory.
pub fn lock_and_unlock(bytes: usize) -> io::Result<(f64, f64)> {
    let memory = vec![1u8; bytes];
    let began = std::time::Instant::now();
    // SAFETY: the memory is there until after it has been unlocked; locking changes nothing in it.
    let locked = unsafe { libc::mlock(memory.as_ptr().cast(), bytes) };
    let lock_ns = began.elapsed().as_nanos() as f64;
    if locked != 0 {
        return Err(io::Error::last_os_error());
    }
    let began = std::time::Instant::now();
    // SAFETY: as above.
    let unlocked = unsafe { libc::munlock(memory.as_ptr().cast(), bytes) };
    let unlock_ns = began.elapsed().as_nanos() as f64;
    if unlocked != 0 {
        return Err(io::Error::last_os_error());
    }
    Ok((lock_ns, unlock_ns))
}
