//! Memory of a peer that this process maps, to copy from and to it by load and store: the range in which the peer gives blocks out
//! ([`memory::arena`]).
//!
//! A process says in its segment where that range lies in its own memory, and which file it is. So an address that a message names says whether its bytes
//! lie in such memory, and at which place of the file. A peer opens the file when an address first lies there, once, and maps the whole of it; its
//! length is sealed. What the segment says is read once and checked against the file.

use super::segment::Header;
use super::shared::{SharedMemory, SharedName};
use crate::Error;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Address space that peers' ranges may take in this process, bytes. Those of further peers are not mapped.
const MAPPED_BYTES_MAX: u64 = 16 << 40;
static MAPPED_BYTES: AtomicU64 = AtomicU64::new(0);

/// A peer's range, mapped here. It is unmapped with the last of those that copy.
pub struct PeerMemory {
    start: u64,
    memory: SharedMemory,
}

impl PeerMemory {
    /// Errors: it cannot be opened, is none, or is too long.
    fn open(start: u64, bytes: u64, name: SharedName) -> Result<PeerMemory, Error> {
        let too_much = Error::Memory { what: "a mapping of a peer's memory", bytes, errno: libc::ENOMEM };
        let counted = MAPPED_BYTES.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |all| all.checked_add(bytes).filter(|all| *all <= MAPPED_BYTES_MAX));
        counted.map_err(|_| too_much)?;
        let opened = SharedMemory::open(name).and_then(|mut memory| {
            let as_said = memory.len() as u64 == bytes && start.checked_add(bytes).is_some();
            memory.close();
            memory.keep_to_itself();
            as_said.then_some(memory).ok_or(Error::System { call: "a check of the length of a peer's memory", errno: libc::EINVAL })
        });
        match opened {
            Ok(memory) => Ok(PeerMemory { start, memory }),
            Err(error) => {
                MAPPED_BYTES.fetch_sub(bytes, Ordering::Relaxed);
                Err(error)
            }
        }
    }

    /// Where `bytes` at `remote` of the peer lie in this process. `None`: not all of them in the range.
    #[inline]
    pub fn at(&self, remote: u64, bytes: usize) -> Option<*mut u8> {
        let offset = usize::try_from(remote.checked_sub(self.start)?).ok()?;
        let inside = offset.checked_add(bytes)? <= self.memory.len();
        inside.then(|| self.memory.address().wrapping_add(offset))
    }
}

impl Drop for PeerMemory {
    fn drop(&mut self) {
        MAPPED_BYTES.fetch_sub(self.memory.len() as u64, Ordering::Relaxed);
    }
}

/// What is known of a peer's range.
#[derive(Default)]
pub enum Mapped {
    /// No address has lain there yet.
    #[default]
    Unasked,
    Here(Arc<PeerMemory>),
    /// It cannot be mapped; nobody asks again.
    Refused,
}

impl Mapped {
    /// The memory in which `remote` of the peer lies, if this process maps it: it is, once `is_itself` says that the peer's number has not gone to another
    /// process.
    #[inline]
    pub fn of(&mut self, header: &Header, remote: u64, is_itself: impl FnOnce() -> bool) -> Option<&Arc<PeerMemory>> {
        if matches!(self, Mapped::Unasked) {
            self.open(header, remote, is_itself);
        }
        match self {
            Mapped::Here(memory) => Some(memory),
            _ => None,
        }
    }

    #[cold]
    fn open(&mut self, header: &Header, remote: u64, is_itself: impl FnOnce() -> bool) {
        let Some((start, bytes, name)) = header.mapped.heard().filter(|(start, bytes, _)| remote.wrapping_sub(*start) < *bytes) else { return };
        // Opened first: as long as the process is still the same then, the descriptor was its own.
        *self = match PeerMemory::open(start, bytes, name) {
            Ok(memory) if is_itself() => Mapped::Here(Arc::new(memory)),
            _ => Mapped::Refused,
        };
    }
}

#[cfg(test)]
mod tests {
    use super::super::told::Told;
    use super::*;
    use memory::arena::Range;
    use std::os::fd::AsRawFd;

    fn told(start: u64, bytes: u64, fd: i32) -> Told {
        let told = Told::default();
        told.tell(Range { start, bytes, fd }).unwrap();
        told
    }

    #[test]
    fn places_are_checked_against_the_file() {
        let file = memory::create("test", 8192).unwrap();
        let (start, bytes, name) = told(1 << 40, 8192, file.as_raw_fd()).heard().unwrap();
        let memory = PeerMemory::open(start, bytes, name).unwrap();
        let first = memory.at(start, 8192).unwrap();
        assert_eq!(memory.at(start + 8191, 1), Some(first.wrapping_add(8191)));
        for (remote, bytes) in [(start, 8193), (start + 8192, 1), (start - 1, 1), (0, 8192), (u64::MAX, 2), (start + 1, usize::MAX)] {
            assert_eq!(memory.at(remote, bytes), None, "{remote:#x} {bytes}");
        }
        assert_eq!(memory.at(start + 8192, 0), Some(first.wrapping_add(8192)));
    }

    #[test]
    fn what_is_said_of_the_file_must_be_so() {
        let file = memory::create("test", 8192).unwrap();
        for (start, bytes) in [(1 << 40, 4096), (1 << 40, 16384), (u64::MAX - 4095, 8192), (1 << 40, u64::MAX)] {
            let (start, bytes, name) = told(start, bytes, file.as_raw_fd()).heard().unwrap();
            assert!(PeerMemory::open(start, bytes, name).is_err(), "{start:#x} {bytes}");
        }
        assert!(Told::default().heard().is_none());
        assert!(Told::default().tell(Range { start: 4096, bytes: 1, fd: -1 }).is_err());
    }
}
