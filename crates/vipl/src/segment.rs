//! Where does shared memory come from? A provider makes segments, and attaches those of peers by what they say of them.

use crate::status::{Refusal, Result};
use crate::sys::{self, Map, PAGE};
use fabric::shm::parts;
use std::fs::File;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::path::PathBuf;
use std::sync::Arc;

/// Where a segment is found by peers that have the same kind of provider.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Locator {
    /// A descriptor of the owner's process, or an offset in the common file, bytes.
    pub place: u64,
    /// Whole length, bytes.
    pub bytes: u64,
}

/// A segment of this process. Its memory goes when the last user of it does, also in peers.
pub struct Segment {
    pub map: Arc<Map>,
    pub locator: Locator,
    /// Closing it gives the segment back.
    _keeper: OwnedFd,
}

/// Largest segment, bytes.
pub const BYTES_MAX: u64 = 1 << 36;

/// A source of shared memory.
pub trait SegmentProvider: Send + Sync {
    /// Peers must have a provider of the same kind.
    fn kind(&self) -> u8;
    /// A new segment of at least `bytes`, all zero, its pages reserved.
    fn create(&self, bytes: u64) -> Result<Segment>;
    /// Maps the segment of process `pid` at `locator`.
    fn attach(&self, pid: u32, locator: Locator) -> Result<Arc<Map>>;
    /// Whether memory of this process that lies in a file of its own can be attached by peers.
    fn attaches_descriptors(&self) -> bool {
        false
    }
}

fn rounded(bytes: u64) -> Result<u64> {
    if bytes == 0 || bytes > BYTES_MAX { Err(Refusal::Resource) } else { Ok(bytes.next_multiple_of(PAGE)) }
}

/// Sealed anonymous files, opened by peers through the owner's descriptor: for processes that see each other.
pub struct Anonymous;

impl SegmentProvider for Anonymous {
    fn kind(&self) -> u8 {
        1
    }

    fn create(&self, bytes: u64) -> Result<Segment> {
        let bytes = rounded(bytes)?;
        let fd = parts::memfd(bytes).map_err(|_| Refusal::Resource)?;
        parts::reserve(fd.as_fd(), 0, bytes, "a segment of the VI provider library").map_err(|_| Refusal::Resource)?;
        let map = Map::new(fd.as_fd(), 0, bytes as usize)?;
        Ok(Segment { map, locator: Locator { place: fd.as_raw_fd() as u64, bytes }, _keeper: fd })
    }

    fn attach(&self, pid: u32, locator: Locator) -> Result<Arc<Map>> {
        let number = u32::try_from(locator.place).map_err(|_| Refusal::InvalidParameter)?;
        if rounded(locator.bytes)? != locator.bytes {
            return Err(Refusal::InvalidParameter);
        }
        let fd = sys::open_of_process(pid, number)?;
        if memory::check(fd.as_fd()).map_or(true, |bytes| bytes < locator.bytes) {
            return Err(Refusal::Resource);
        }
        Map::new(fd.as_fd(), 0, locator.bytes as usize)
    }

    fn attaches_descriptors(&self) -> bool {
        true
    }
}

/// Ranges of one file that all processes map, as a DAX device gives: they need not see each other's processes. A range belongs to whoever holds
/// a lock on it, which the kernel releases with the process. Whoever keeps the file must not shorten it while it is used.
pub struct CommonFile {
    path: PathBuf,
    bytes: u64,
    /// Pages can be reserved; a device has them.
    sparse: bool,
}

/// Ranges begin at multiples of this, bytes: DAX devices are mapped in pages of 2 MiB.
const RANGE_BYTES: u64 = 2 << 20;

impl CommonFile {
    /// The file at `path`, whose length is given for devices, which have none of their own.
    pub fn new(path: PathBuf, device_bytes: Option<u64>) -> Result<CommonFile> {
        let kind = std::fs::metadata(&path).map_err(|_| Refusal::Resource)?;
        let bytes = device_bytes.unwrap_or(kind.len());
        if bytes < RANGE_BYTES {
            return Err(Refusal::Resource);
        }
        Ok(CommonFile { path, bytes, sparse: kind.is_file() })
    }

    fn open(&self) -> Result<OwnedFd> {
        File::options().read(true).write(true).open(&self.path).map(OwnedFd::from).map_err(|_| Refusal::Resource)
    }
}

impl SegmentProvider for CommonFile {
    fn kind(&self) -> u8 {
        2
    }

    fn create(&self, bytes: u64) -> Result<Segment> {
        let bytes = bytes.max(1).checked_next_multiple_of(RANGE_BYTES).filter(|it| *it <= BYTES_MAX).ok_or(Refusal::Resource)?;
        let fd = self.open()?;
        let mut place = 0;
        while place + bytes <= self.bytes {
            if sys::take_range(fd.as_fd(), place, bytes)? {
                if self.sparse {
                    parts::reserve(fd.as_fd(), place, bytes, "a range of the common file").map_err(|_| Refusal::Resource)?;
                }
                let map = Map::new(fd.as_fd(), place, bytes as usize)?;
                // The last owner's bytes are nobody's business.
                map.as_user().fill_zero();
                return Ok(Segment { map, locator: Locator { place, bytes }, _keeper: fd });
            }
            place += RANGE_BYTES;
        }
        Err(Refusal::Resource)
    }

    fn attach(&self, _pid: u32, locator: Locator) -> Result<Arc<Map>> {
        let end = locator.place.checked_add(locator.bytes).ok_or(Refusal::InvalidParameter)?;
        if locator.bytes == 0 || end > self.bytes || !locator.place.is_multiple_of(RANGE_BYTES) {
            return Err(Refusal::InvalidParameter);
        }
        Map::new(self.open()?.as_fd(), locator.place, locator.bytes as usize)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shared(a: &dyn SegmentProvider, b: &dyn SegmentProvider) {
        let segment = a.create(5000).unwrap();
        let peer = b.attach(std::process::id(), segment.locator).unwrap();
        segment.map.as_user().at(segment.map.address() + 4090, 5).unwrap().store(b"hello");
        let mut read = [0; 5];
        peer.bytes(4090, 5).unwrap().load(&mut read);
        assert_eq!(&read, b"hello");
        assert!(peer.bytes(peer.len() as u64 - 4, 5).is_none() && peer.bytes(u64::MAX, 2).is_none());
    }

    #[test]
    fn anonymous_segments_are_shared() {
        shared(&Anonymous, &Anonymous);
        assert!(Anonymous.create(0).is_err() && Anonymous.create(u64::MAX).is_err());
        let locator = Anonymous.create(1).unwrap().locator;
        assert!(Anonymous.attach(std::process::id(), Locator { bytes: locator.bytes + PAGE, ..locator }).is_err());
        assert!(Anonymous.attach(std::process::id(), Locator { place: 1 << 40, ..locator }).is_err());
    }

    #[test]
    fn ranges_of_a_file_belong_to_one_at_a_time() {
        let path = PathBuf::from(format!("/dev/shm/whimbrel-vipl-test-{}", std::process::id()));
        File::create(&path).unwrap().set_len(3 * RANGE_BYTES).unwrap();
        let (a, b) = (CommonFile::new(path.clone(), None).unwrap(), CommonFile::new(path.clone(), None).unwrap());
        shared(&a, &b);
        let first = a.create(RANGE_BYTES + 1).unwrap();
        let second = b.create(1).unwrap();
        assert_eq!((first.locator.place, second.locator.place), (0, 2 * RANGE_BYTES));
        assert!(a.create(1).is_err());
        drop(first);
        assert_eq!(b.create(1).unwrap().locator.place, 0);
        for bad in [Locator { place: 1, bytes: 1 }, Locator { place: 0, bytes: u64::MAX }, Locator { place: 2 * RANGE_BYTES, bytes: 2 * RANGE_BYTES }] {
            assert!(a.attach(0, bad).is_err());
        }
        std::fs::remove_file(&path).unwrap();
    }
}
