//! The one system call that has no safe wrapper: signals as a descriptor.

use rustix::process::Signal;
use std::io;
use std::os::fd::{FromRawFd, OwnedFd};

/// Blocks `blocked` and `watched` in this thread; the descriptor tells of `watched` ones. It never blocks a reader.
/// `std::process::Command` unblocks all signals in the processes that it starts.
pub fn watch_signals(watched: &[Signal], blocked: &[Signal]) -> io::Result<OwnedFd> {
    // SAFETY: an all-zero signal set is valid memory for `sigemptyset`, which initialises it.
    let empty = || unsafe {
        let mut set: libc::sigset_t = std::mem::zeroed();
        libc::sigemptyset(&mut set);
        set
    };
    let (mut all, mut seen) = (empty(), empty());
    for signal in watched {
        // SAFETY: both sets are initialised, and the numbers are those of named signals.
        unsafe {
            libc::sigaddset(&mut all, signal.as_raw());
            libc::sigaddset(&mut seen, signal.as_raw());
        }
    }
    for signal in blocked {
        // SAFETY: as above.
        unsafe { libc::sigaddset(&mut all, signal.as_raw()) };
    }
    // SAFETY: the set is initialised, and the old mask is not asked for.
    let error = unsafe { libc::pthread_sigmask(libc::SIG_BLOCK, &all, std::ptr::null_mut()) };
    if error != 0 {
        return Err(io::Error::from_raw_os_error(error));
    }
    // SAFETY: the set is initialised.
    let descriptor = unsafe { libc::signalfd(-1, &seen, libc::SFD_CLOEXEC | libc::SFD_NONBLOCK) };
    if descriptor < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: `signalfd` has just opened it, and nobody else owns it.
    Ok(unsafe { OwnedFd::from_raw_fd(descriptor) })
}

/// The next signal that arrived, if any.
pub fn next_signal(signals: &OwnedFd) -> Option<Signal> {
    let mut record = [0u8; size_of::<libc::signalfd_siginfo>()];
    let length = rustix::io::read(signals, &mut record).ok()?;
    // The record begins with the signal's number, 32 bits.
    let (number, _) = record.split_first_chunk::<4>()?;
    if length < record.len() { None } else { Signal::from_named_raw(i32::from_ne_bytes(*number)) }
}
