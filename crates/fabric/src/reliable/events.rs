//! How whoever drives a device, or another thread, sleeps until something comes.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, Mutex, PoisonError};

use super::device::{DatagramDevice, SOURCES_MAX};
use super::sys;
use crate::Error;

/// Wakes a process that sleeps in [`Reliable::wait`](super::Reliable::wait), from any thread.
#[derive(Clone, Debug)]
pub struct Doorbell(Arc<OwnedFd>);

impl Doorbell {
    pub(crate) fn new() -> Result<Doorbell, Error> {
        Ok(Doorbell(Arc::new(sys::eventfd()?)))
    }

    /// Readable from a ring until [`Doorbell::silence`].
    pub(crate) fn source(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }

    pub(crate) fn silence(&self) {
        sys::silence(self.0.as_fd());
    }

    pub fn ring(&self) {
        sys::ring(self.0.as_fd());
    }
}

/// Descriptors of their own, for another thread to sleep on while nobody drives the node.
#[derive(Debug)]
pub struct Watch {
    sources: Watched,
    doorbell: Doorbell,
}

/// Who sleeps keeps those that it sleeps on; others may be added meanwhile.
pub(super) type Watched = Arc<Mutex<Arc<[OwnedFd]>>>;

pub(super) fn watched(sources: &Watched) -> std::sync::MutexGuard<'_, Arc<[OwnedFd]>> {
    sources.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Watch {
    pub(super) fn new(sources: Watched) -> Result<Watch, Error> {
        Ok(Watch { sources, doorbell: Doorbell::new()? })
    }

    /// Sleeps until something has arrived, the doorbell rings, or `timeout_ns` have passed. False for the last.
    pub fn wait(&self, timeout_ns: Option<u64>) -> bool {
        let sources = watched(&self.sources).clone();
        let fds = sources.iter().map(|fd| (fd.as_fd(), false));
        let woken = sys::wait(fds.chain([(self.doorbell.0.as_fd(), false)]), timeout_ns);
        if woken {
            sys::silence(self.doorbell.0.as_fd());
        }
        woken
    }

    /// Sleeps until something has arrived, or `timeout_ns` have passed. False for the last. The doorbell does not end it.
    pub fn wait_sources(&self, timeout_ns: u64) -> bool {
        let sources = watched(&self.sources).clone();
        sys::wait(sources.iter().map(|fd| (fd.as_fd(), false)), Some(timeout_ns))
    }

    /// Ends the sleep of [`Watch::wait`].
    pub fn doorbell(&self) -> Doorbell {
        self.doorbell.clone()
    }
}

/// Sleeps until something arrives at a device, a full one has room, the doorbell rings, or the time has passed. False for the last.
pub(super) fn wait(device: &impl DatagramDevice, doorbell: &Doorbell, timeout_ns: Option<u64>) -> bool {
    let mut fds = Vec::with_capacity(SOURCES_MAX + 1);
    device.sources(|fd, writes| fds.push((fd, writes)));
    fds.push((doorbell.0.as_fd(), false));
    let woken = sys::wait(fds.into_iter(), timeout_ns);
    if woken {
        sys::silence(doorbell.0.as_fd());
    }
    woken
}

/// Copies of a device's descriptors.
pub(super) fn copies(device: &impl DatagramDevice) -> Result<Arc<[OwnedFd]>, Error> {
    let mut all = Vec::new();
    device.sources(|fd, _| all.push(fd));
    copied(&all)
}

pub(super) fn copied(sources: &[BorrowedFd]) -> Result<Arc<[OwnedFd]>, Error> {
    let all: Result<Arc<[OwnedFd]>, _> = sources.iter().map(|fd| fd.try_clone_to_owned()).collect();
    all.map_err(|e| Error::System { call: "dup", errno: e.raw_os_error().unwrap_or(0) })
}
