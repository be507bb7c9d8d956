//! Where things lie in a segment.
//!
//! | from | what |
//! | --- | --- |
//! | 0 | [`Header`], three lines |
//! | 256 | descriptors of cooperative copies |
//! | … | directory: for every process the place of its ring, 0 when it has none, [`REFUSED`] when it gets no answer |
//! | page | rings and shared areas, in the order in which they were asked for |
//!
//! A process whose communicators are spread over several VCIs has for each further one a [`ConnectionDirectory`] among those areas: its own count of connects,
//! descriptors and directory. Doorbell and memory are common.

use super::area::Cooperative;
use super::ring::{Returns, Slot};
use super::sys::{Area, Atomics, Mapping};
use super::told::Told;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

pub const PAGE: u64 = 4096;
/// Cooperative copies that one process may receive at once.
pub const COOPERATIVES: usize = 32;
/// In a directory: the owner can answer that process nothing, and reads no more of it.
pub const REFUSED: u64 = u64::MAX;
const MAGIC: u64 = u64::from_le_bytes(*b"whimbrl1");
const COOPERATIVES_AT: usize = 256;
const DIRECTORY_AT: usize = COOPERATIVES_AT + COOPERATIVES * 64;
/// Endpoints that one process may have in its segment.
pub const VCIS: usize = proto::wire::Context::VCIS as usize;

/// Sizes that all processes of a job compute alike.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Geometry {
    pub processes: u32,
    pub slots: u32,
    /// Bytes beside the slots of a ring that has just been made, and of one that has grown as far as any.
    pub bulk_bytes: u32,
    pub bulk_bytes_max: u32,
    /// By how much all rings of a process may grow together, bytes.
    pub growth_bytes: u64,
}

/// Longer than the caches of a core: a line that is written again has left its reader's.
const BULK_BYTES_MAX: u64 = 2 << 20;
/// Addresses that one VCI of a process has for the rings of all its peers: where there are many, each grows to less.
const RINGS_BYTES_MAX: u64 = 128 << 20;

impl Geometry {
    /// `memory_bytes`: what the rings of all peers may take together, and by how much they may grow together. Rings never go below 16 KiB, so that many
    /// processes may take more.
    pub fn new(processes: u32, memory_bytes: u64) -> Geometry {
        let peers = processes.max(2) as u64 - 1;
        let each = memory_bytes / peers;
        let power_below = |bytes: u64| 1u64 << bytes.max(1).ilog2();
        let bulk_bytes = power_below(each * 3 / 4).clamp(8 << 10, 256 << 10);
        let bulk_bytes_max = power_below((bulk_bytes + memory_bytes).min(RINGS_BYTES_MAX / peers)).clamp(bulk_bytes, BULK_BYTES_MAX);
        let slots = power_below(each / 4 / 64).clamp(64, 256);
        let [slots, bulk_bytes, bulk_bytes_max] = [slots, bulk_bytes, bulk_bytes_max].map(|number| number as u32);
        Geometry { processes, slots, bulk_bytes, bulk_bytes_max, growth_bytes: memory_bytes }
    }

    /// What a ring takes that has just been made.
    pub fn ring_bytes(&self) -> u64 {
        self.ring_bytes_with(self.bulk_bytes as u64)
    }

    /// The room that is kept for a ring.
    pub fn ring_bytes_max(&self) -> u64 {
        self.ring_bytes_with(self.bulk_bytes_max as u64)
    }

    /// What a ring takes with so many bytes beside its slots.
    pub fn ring_bytes_with(&self, bulk_bytes: u64) -> u64 {
        64 + self.slots as u64 * 64 + bulk_bytes
    }

    pub fn head_bytes(&self) -> u64 {
        (DIRECTORY_AT as u64 + self.processes as u64 * 8).next_multiple_of(PAGE)
    }

    /// Size of the file. Sparse: only what is reserved takes memory.
    pub fn segment_bytes(&self) -> u64 {
        let rings_bytes = self.processes as u64 * (self.ring_bytes_max().next_multiple_of(PAGE));
        self.head_bytes() + VCIS as u64 * (rings_bytes + self.connections_bytes()) + SHARED_BYTES_MAX
    }

    fn to_word(self) -> u64 {
        self.slots as u64 | (self.bulk_bytes_max.ilog2() as u64) << 16 | (self.bulk_bytes as u64) << 32
    }

    /// What a further VCI takes beside its rings.
    pub fn connections_bytes(&self) -> u64 {
        (64 + COOPERATIVES as u64 * 64 + self.processes as u64 * 8).next_multiple_of(PAGE)
    }

    /// The ring at `offset`, if one can lie there.
    pub fn ring(&self, mapping: &Mapping, offset: u64) -> Option<(&'static [Slot], &'static Returns, Area)> {
        let offset = usize::try_from(offset).ok()?;
        if (offset as u64) < self.head_bytes() || !(offset as u64).is_multiple_of(PAGE) {
            return None;
        }
        let slots_at = offset.checked_add(64)?;
        let bulk_at = slots_at.checked_add(self.slots as usize * 64)?;
        Some((mapping.slice(slots_at, self.slots as usize)?, mapping.at(offset)?, mapping.bytes(bulk_at, self.bulk_bytes_max as usize)?))
    }
}

/// Most that collective areas take in one segment, bytes.
pub const SHARED_BYTES_MAX: u64 = 64 << 20;

/// The first lines of a segment.
#[repr(C, align(64))]
pub struct Header {
    magic: AtomicU64,
    geometry: AtomicU64,
    processes: AtomicU64,
    pub pid: AtomicU64,
    pub nonce_address: AtomicU64,
    pub nonce: [AtomicU64; 2],
    /// Not 0: heavy fences do not work for this process; senders must fence.
    pub fence: AtomicU64,
    // Second line: written only to sleep and to wake.
    doorbell: AtomicU64,
    pub sleeping: AtomicU64,
    /// Where the process gives memory out that others may map. Written once.
    pub mapped: Told,
    /// Bytes by which rings in this segment have grown.
    pub grown: AtomicU64,
    // Third line: written when somebody connects.
    pub connects: AtomicU64,
    /// Where the next allocation lies.
    pub cursor: AtomicU64,
    /// Where the further VCIs' connection directories lie; 0 for those that nobody has asked for.
    pub directories: [AtomicU64; VCIS - 1],
    /// Bytes before the cursor that have no pages: what rings may grow by.
    pub unreserved: AtomicU64,
    /// Not 0: a thread of this process waits in a call and looks into its rings.
    pub waiting: AtomicU64,
    /// Bytes of collective areas, as its owner has counted them: the rest of the segment is for rings.
    pub shared: AtomicU64,
    unused_2: [AtomicU64; 4 - VCIS],
    // Fourth line: written whenever a core is given away.
    /// Not 0: a thread of this process has given its core to others, and has not had it back.
    pub away: AtomicU64,
    unused_3: [AtomicU64; 7],
}

// SAFETY: made of atomics only.
unsafe impl Atomics for Header {}
// SAFETY: made of atomics only.
unsafe impl Atomics for Cooperative {}
// SAFETY: made of atomics only.
unsafe impl Atomics for super::area::Line {}

impl Header {
    pub fn of(mapping: &Mapping) -> Option<&'static Header> {
        mapping.at(0)
    }

    pub fn publish(&self, geometry: &Geometry, pid: u32, nonce: &[u64; 2], fence: bool) {
        self.geometry.store(geometry.to_word(), Ordering::Relaxed);
        self.processes.store(geometry.processes as u64, Ordering::Relaxed);
        self.pid.store(pid as u64, Ordering::Relaxed);
        self.nonce_address.store(nonce.as_ptr() as u64, Ordering::Relaxed);
        self.nonce[0].store(nonce[0], Ordering::Relaxed);
        self.nonce[1].store(nonce[1], Ordering::Relaxed);
        self.fence.store(fence as u64, Ordering::Relaxed);
        self.cursor.store(geometry.head_bytes(), Ordering::Relaxed);
        self.magic.store(MAGIC, Ordering::Release);
    }

    /// Whether a peer's segment is one of ours, made with the same sizes.
    pub fn check(&self, geometry: &Geometry) -> Result<(), (&'static str, u64)> {
        let same = |what, is: &AtomicU64, want: u64| {
            let is = is.load(Ordering::Acquire);
            if is == want { Ok(()) } else { Err((what, is)) }
        };
        same("the segment's first word", &self.magic, MAGIC)?;
        same("the segment's geometry", &self.geometry, geometry.to_word())?;
        same("the segment's count of processes", &self.processes, geometry.processes as u64)
    }

    /// The word that sleepers wait on: the low half of the doorbell.
    pub fn futex(&self) -> &AtomicU32 {
        // SAFETY: the first four bytes of an AtomicU64 are aligned and valid as an AtomicU32; the other half is not used.
        unsafe { AtomicU32::from_ptr(self.doorbell.as_ptr().cast()) }
    }
}

/// Where one VCI of a process is found by others.
#[derive(Clone, Copy)]
pub struct ConnectionDirectory {
    /// How often somebody has connected.
    pub connects: &'static AtomicU64,
    /// Descriptors of cooperative copies.
    pub cooperative_copies: &'static [Cooperative],
    pub rings: &'static [AtomicU64],
}

impl ConnectionDirectory {
    /// The first VCI's, in the segment's head.
    pub fn first(mapping: &Mapping, header: &'static Header, geometry: &Geometry) -> Option<ConnectionDirectory> {
        Some(ConnectionDirectory {
            connects: &header.connects,
            cooperative_copies: mapping.slice(COOPERATIVES_AT, COOPERATIVES)?,
            rings: mapping.slice(DIRECTORY_AT, geometry.processes as usize)?,
        })
    }

    /// A further one's, at `offset`, if it can lie there.
    pub fn at(mapping: &Mapping, geometry: &Geometry, offset: u64) -> Option<ConnectionDirectory> {
        let at = usize::try_from(offset).ok()?;
        if offset < geometry.head_bytes() || !offset.is_multiple_of(PAGE) {
            return None;
        }
        Some(ConnectionDirectory {
            connects: mapping.at(at)?,
            cooperative_copies: mapping.slice(at.checked_add(64)?, COOPERATIVES)?,
            rings: mapping.slice(at.checked_add(64 + COOPERATIVES * 64)?, geometry.processes as usize)?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sixty_four_ranks_stay_under_four_mib() {
        for processes in [2, 3, 4, 8, 16, 32, 64] {
            let g = Geometry::new(processes, 3 << 20);
            let total = g.head_bytes() + (processes as u64 - 1) * g.ring_bytes().next_multiple_of(PAGE);
            assert!(total < 4 << 20, "{processes}: {total}");
            assert!(total + g.growth_bytes < 7 << 20, "{processes}: {total}, and what rings that are used a lot grow by together");
        }
    }

    #[test]
    fn addresses_are_few_for_many_ranks() {
        let most = |processes| Geometry::new(processes, 3 << 20).bulk_bytes_max;
        assert_eq!([2, 8, 32, 64, 200, 1_000].map(most), [2 << 20, 2 << 20, 2 << 20, 2 << 20, 512 << 10, 128 << 10]);
        for processes in [2, 64, 1_000, 100_000] {
            let g = Geometry::new(processes, 3 << 20);
            assert!(g.bulk_bytes_max as u64 * (processes as u64 - 1) <= RINGS_BYTES_MAX.max(g.bulk_bytes as u64 * processes as u64), "{processes}");
        }
    }

    #[test]
    fn many_ranks_still_get_rings() {
        let g = Geometry::new(1024, 3 << 20);
        assert_eq!((g.slots, g.bulk_bytes, g.bulk_bytes_max), (64, 8 << 10, 128 << 10));
    }

    #[test]
    fn header_is_three_lines() {
        assert_eq!(size_of::<Header>(), 256);
        assert!(size_of::<Header>() <= COOPERATIVES_AT);
    }
}
