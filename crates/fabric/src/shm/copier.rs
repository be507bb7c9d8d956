//! Copies between processes by a thread that does not own the endpoint.

use super::{Bell, Shm, sleep, sys};
use crate::Error;
use std::sync::atomic::{Ordering, fence};

/// Copies to and from one peer. It may be used by any thread.
#[derive(Clone, Copy)]
pub struct Copier {
    pid: u32,
    own: Bell,
    peer: Bell,
}

impl Shm {
    /// A copier to and from `peer`.
    pub fn copier(&mut self, peer: u32) -> Result<Copier, Error> {
        let own = self.bell();
        let p = self.map(peer)?;
        Ok(Copier { pid: p.pid, own, peer: Bell { header: p.header } })
    }
}

impl Copier {
    /// Reads `bytes` at `remote` of the peer into `local`. Returns whether that worked.
    ///
    /// # Safety
    /// `local..local + bytes` must be writable and otherwise unused.
    pub unsafe fn read(&self, remote: u64, local: *mut u8, bytes: usize) -> bool {
        // SAFETY: the caller's promise.
        unsafe { sys::read_process(self.pid, remote, local, bytes) }.is_ok()
    }

    /// Writes `bytes` at `local` to `remote` of the peer. Returns whether that worked.
    ///
    /// # Safety
    /// `local..local + bytes` must be readable, and the peer must have offered the remote range.
    pub unsafe fn write(&self, remote: u64, local: *const u8, bytes: usize) -> bool {
        // SAFETY: the caller's promise.
        unsafe { sys::write_process(self.pid, remote, local, bytes) }.is_ok()
    }

    /// Wakes those of the two processes that sleep: something was written that both look at.
    pub fn wake_both(&self) {
        fence(Ordering::SeqCst);
        sleep::wake(self.own.header);
        sleep::wake(self.peer.header);
    }
}
