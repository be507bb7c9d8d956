//! The system calls by which a process sleeps and is woken.

use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

use super::device::SOURCES_MAX;
use crate::Error;

fn errno() -> i32 {
    std::io::Error::last_os_error().raw_os_error().unwrap_or(0)
}

/// A counter that a thread can wait for.
pub fn eventfd() -> Result<OwnedFd, Error> {
    // SAFETY: a plain system call; the descriptor is new and ours.
    unsafe {
        let fd = libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK);
        if fd < 0 {
            return Err(Error::System { call: "eventfd", errno: errno() });
        }
        Ok(OwnedFd::from_raw_fd(fd))
    }
}

pub fn ring(doorbell: BorrowedFd) {
    let one = 1u64;
    // SAFETY: writes eight bytes of this frame; a full counter wakes as well.
    unsafe { libc::write(doorbell.as_raw_fd(), (&raw const one).cast(), 8) };
}

pub fn silence(doorbell: BorrowedFd) {
    let mut count = 0u64;
    // SAFETY: reads eight bytes into this frame.
    unsafe { libc::read(doorbell.as_raw_fd(), (&raw mut count).cast(), 8) };
}

/// Sleeps until one of `fds` has something (or takes something, where true), at most `timeout_ns`. Whether one has.
pub fn wait<'a>(fds: impl Iterator<Item = (BorrowedFd<'a>, bool)>, timeout_ns: Option<u64>) -> bool {
    let mut set = [libc::pollfd { fd: -1, events: 0, revents: 0 }; SOURCES_MAX + 1];
    let mut count = 0;
    for ((fd, writes), slot) in fds.zip(&mut set) {
        let events = libc::POLLIN | if writes { libc::POLLOUT } else { 0 };
        *slot = libc::pollfd { fd: fd.as_raw_fd(), events, revents: 0 };
        count += 1;
    }
    let timeout = timeout_ns.map(|ns| libc::timespec { tv_sec: (ns / 1_000_000_000) as libc::time_t, tv_nsec: (ns % 1_000_000_000) as libc::c_long });
    let timeout = timeout.as_ref().map_or(std::ptr::null(), std::ptr::from_ref);
    // SAFETY: the first `count` entries are filled; no signal mask.
    unsafe { libc::ppoll(set.as_mut_ptr(), count, timeout, std::ptr::null()) > 0 }
}
