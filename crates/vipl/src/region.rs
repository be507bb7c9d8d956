//! Which memory may be touched, by whom? Registration, protection, and the way from a virtual address to a segment and an offset in it.

use crate::segment::{Locator, Segment};
use crate::sys::{Map, UserRange};
use std::sync::Arc;

/// Regions of a NIC, at most: as many lines as its board has.
pub const REGIONS_MAX: usize = 1024;

/// Bits that a board shows beside the protection tag.
pub const RDMA_WRITE: u64 = 1 << 32;
pub const RDMA_READ: u64 = 1 << 33;
pub const SHADOW: u64 = 1 << 34;

/// What the program may set of a region.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Attributes {
    pub ptag: u32,
    pub write: bool,
    pub read: bool,
}

impl Attributes {
    pub fn bits(&self) -> u64 {
        self.ptag as u64 | if self.write { RDMA_WRITE } else { 0 } | if self.read { RDMA_READ } else { 0 }
    }
}

/// How peers reach a region.
pub enum Memory {
    /// Through a segment of the same length: one copy on each side.
    Shadow(Segment),
    /// The library's memory, in which the program works.
    Allocated(Segment),
    /// A file that the program has mapped anyway: `offset` of the region's first byte in it.
    Shared { locator: Locator, offset: u64 },
}

pub struct Region {
    pub handle: u32,
    pub user: UserRange,
    pub attributes: Attributes,
    pub memory: Arc<Memory>,
}

impl Region {
    /// The program's bytes at `address`, if the region has them all and the tag is the region's.
    #[inline]
    pub fn window(&self, ptag: u32, address: u64, bytes: u64) -> Option<UserRange> {
        if self.attributes.ptag == ptag { self.user.at(address, bytes) } else { None }
    }

    /// The shadow segment, where there is one.
    pub fn shadow(&self) -> Option<&Arc<Map>> {
        match &*self.memory {
            Memory::Shadow(segment) => Some(&segment.map),
            _ => None,
        }
    }

    /// Where peers find the region: its segment, and the place of its first byte.
    pub fn place(&self) -> (Locator, u64) {
        match &*self.memory {
            Memory::Shadow(segment) | Memory::Allocated(segment) => (segment.locator, 0),
            Memory::Shared { locator, offset } => (*locator, *offset),
        }
    }
}

/// Places of a queue's cache of regions.
pub const CACHED: usize = 16;

/// The regions last used by one queue: checked against the table's count of changes, so that no lock is taken.
#[derive(Default)]
pub struct Cache {
    changes: u64,
    regions: [Option<Arc<Region>>; CACHED],
}

impl Cache {
    #[inline(always)]
    pub fn find(&mut self, nic: &crate::nic::Nic, handle: u32) -> Option<&Region> {
        let changes = nic.region_changes();
        if self.changes != changes {
            self.regions = Default::default();
            self.changes = changes;
        }
        let slot = &mut self.regions[handle as usize % CACHED];
        if slot.as_ref().is_none_or(|region| region.handle != handle) {
            Self::look_up(slot, nic, handle)?;
        }
        slot.as_deref()
    }

    #[cold]
    fn look_up(slot: &mut Option<Arc<Region>>, nic: &crate::nic::Nic, handle: u32) -> Option<()> {
        *slot = Some(nic.region(handle)?);
        Some(())
    }
}

/// Finds the file of which `address..address + bytes` is a shared mapping, among the open descriptors of this process: descriptor,
/// offset and length of the file. Peers open it as they open segments; it must be sealed against shrinking.
pub fn mapped_file(address: u64, bytes: u64) -> Option<(u32, u64, u64)> {
    use std::os::unix::fs::MetadataExt;
    let maps = std::fs::read_to_string("/proc/self/maps").ok()?;
    let (start, offset, inode) = maps.lines().find_map(|line| mapping(line, address, bytes))?;
    for entry in std::fs::read_dir("/proc/self/fd").ok()?.flatten() {
        let Some(number) = entry.file_name().to_str().and_then(|name| name.parse::<u32>().ok()) else { continue };
        let Ok(file) = std::fs::metadata(entry.path()) else { continue };
        let end = offset + (address - start) + bytes;
        if file.ino() != inode || file.len() < end {
            continue;
        }
        let Ok(opened) = crate::sys::open_of_process(std::process::id(), number) else { continue };
        use std::os::fd::AsFd;
        if crate::sys::sealed(opened.as_fd(), end) {
            return Some((number, offset + (address - start), file.len()));
        }
    }
    None
}

/// Start, file offset and inode of a line of `/proc/self/maps` that is a shared mapping around the range.
fn mapping(line: &str, address: u64, bytes: u64) -> Option<(u64, u64, u64)> {
    let mut words = line.split_ascii_whitespace();
    let (range, access, offset) = (words.next()?, words.next()?, words.next()?);
    let (start, end) = range.split_once('-')?;
    let (start, end) = (u64::from_str_radix(start, 16).ok()?, u64::from_str_radix(end, 16).ok()?);
    if !access.starts_with("rw") || !access.ends_with('s') || address < start || address.checked_add(bytes)? > end {
        return None;
    }
    let inode = words.nth(1)?.parse().ok()?;
    (inode != 0).then_some((start, u64::from_str_radix(offset, 16).ok()?, inode))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shared_mappings_are_found_in_the_list() {
        let line = "7f0000001000-7f0000005000 rw-s 00002000 00:01 1234 /memfd:x (deleted)";
        assert_eq!(mapping(line, 0x7f0000002000, 0x3000), Some((0x7f0000001000, 0x2000, 1234)));
        assert_eq!(mapping(line, 0x7f0000002000, 0x3001), None);
        assert_eq!(mapping(&line.replace("rw-s", "rw-p"), 0x7f0000002000, 1), None);
        assert_eq!(mapping(&line.replace("rw-s", "r--s"), 0x7f0000002000, 1), None);
        assert_eq!(mapping("", 0, 0), None);
    }

    #[test]
    fn tags_and_bounds_decide() {
        // SAFETY: never read or written.
        let user = unsafe { UserRange::promised(1 << 20, 100) };
        let attributes = Attributes { ptag: 3, write: false, read: true };
        let memory = Arc::new(Memory::Shared { locator: Locator::default(), offset: 7 });
        let region = Region { handle: 9, user, attributes, memory };
        assert!(region.window(3, 1 << 20, 100).is_some());
        for (ptag, address, bytes) in [(4, 1 << 20, 1), (3, (1 << 20) - 1, 2), (3, 1 << 20, 101), (3, u64::MAX, 2), (3, 0, u64::MAX)] {
            assert!(region.window(ptag, address, bytes).is_none());
        }
    }
}
