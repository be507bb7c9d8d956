//! Copies between processes by a thread that does not own the endpoint.

use super::mapped::PeerMemory;
use super::segment::Header;
use super::{Doorbell, Shm, sleep, sys};
use crate::Error;
use std::sync::Arc;
use std::sync::atomic::{Ordering, fence};

/// Copies to and from one peer. It may be used by any thread.
#[derive(Clone)]
pub struct Copier {
    secret: Secret,
    /// The peer's memory, where that is mapped and `of` lies in it.
    memory: Option<Arc<PeerMemory>>,
    own: Doorbell,
    peer: Doorbell,
}

/// By what a process is known again: its number alone may have gone to another one.
#[derive(Clone, Copy)]
pub(super) struct Secret {
    pid: u32,
    address: u64,
    words: [u64; 2],
}

impl Secret {
    /// What the process `pid`, whose segment begins with `header`, says that it holds.
    pub(super) fn of(header: &Header, pid: u32) -> Secret {
        let words = [0, 1].map(|word| header.nonce[word].load(Ordering::Relaxed));
        Secret { pid, address: header.nonce_address.load(Ordering::Relaxed), words }
    }

    /// Whether it is there.
    pub(super) fn is_there(&self) -> bool {
        let mut found = [0u64; 2];
        // SAFETY: `found` is 16 writable bytes.
        let read = unsafe { sys::read_process(self.pid, self.address, found.as_mut_ptr().cast(), 16) };
        read.is_ok() && found == self.words
    }
}

impl Shm {
    /// A copier to and from `peer`, for the memory in which `remote` lies.
    pub fn copier(&mut self, peer: u32, remote: u64) -> Result<Copier, Error> {
        let own = self.doorbell();
        let memory = self.memory_at(peer, remote)?.cloned();
        let p = self.segment_of(peer)?;
        Ok(Copier { secret: Secret::of(p.header, p.pid), memory, own, peer: Doorbell { header: p.header } })
    }
}

impl Copier {
    /// Reads `bytes` at `remote` of the peer into `local`. Returns whether that worked.
    ///
    /// # Safety
    /// `local..local + bytes` must be writable and otherwise unused.
    pub unsafe fn read(&self, remote: u64, local: *mut u8, bytes: usize) -> bool {
        if let Some(from) = self.memory.as_ref().and_then(|memory| memory.at(remote, bytes)) {
            // SAFETY: the caller's promise; mapped memory of the peer.
            unsafe { sys::copy_mapped(from, local, bytes) };
            return true;
        }
        // SAFETY: the caller's promise.
        self.secret.is_there() && unsafe { sys::read_process(self.secret.pid, remote, local, bytes) }.is_ok()
    }

    /// Writes `bytes` at `local` to `remote` of the peer. Returns whether that worked.
    ///
    /// # Safety
    /// `local..local + bytes` must be readable, and the peer must have offered the remote range.
    pub unsafe fn write(&self, remote: u64, local: *const u8, bytes: usize) -> bool {
        if let Some(to) = self.memory.as_ref().and_then(|memory| memory.at(remote, bytes)) {
            // SAFETY: as above.
            unsafe { sys::copy_mapped(local, to, bytes) };
            return true;
        }
        // SAFETY: the caller's promise.
        self.secret.is_there() && unsafe { sys::write_process(self.secret.pid, remote, local, bytes) }.is_ok()
    }

    /// Wakes those of the two processes that sleep: something was written that both look at.
    pub fn wake_both(&self) {
        fence(Ordering::SeqCst);
        sleep::wake(self.own.header);
        sleep::wake(self.peer.header);
    }
}
