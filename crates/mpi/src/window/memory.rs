//! The memory of windows, and what each process knows of all parts: an entry a rank of its own, and one line of lock words a rank, shared where all ranks
//! share memory.

use crate::consts::MPI_ERR_NO_MEM;
use crate::error::{Error, Result};
use engine::SharedMemory;
use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::sync::atomic::{AtomicU32, AtomicU64};

/// Words of a rank's line in shared memory: 64 bytes, a cache line of its own.
pub const LINE_WORDS: usize = 8;
pub const LINE_BYTES: usize = 8 * LINE_WORDS;
/// Memory that the library gives out begins at a multiple of this, bytes.
pub const PAGE_BYTES: usize = 4096;

/// What a word of a rank's line says; the others are not used.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(usize)]
pub enum Word {
    /// The lock of `MPI_Win_lock`: see [`super::ticket`].
    Lock,
    /// A bit for each rank (modulo 64) that waits for something of this line, and sleeps or soon will.
    Sleepers,
    /// 1 while somebody changes elements of the rank, else 0.
    Elements,
    /// A bit for each rank that has posted to this one, until this one starts.
    Posted,
    /// How many have completed what this rank has posted.
    Completed,
    /// In the last line, which belongs to no rank: how many hold the locks of all ranks without having taken each.
    Everyone,
}

/// What this process knows of one rank's part of a window: 24 bytes.
#[derive(Debug)]
pub struct Part {
    /// Where the part begins: in this process' memory where `state` has [`HERE`], else in its own process' memory.
    pub start: usize,
    /// Bytes; 0 for a dynamic window.
    pub size: u64,
    /// Bytes of a unit of displacement.
    pub unit: u32,
    /// The bits below.
    pub state: AtomicU32,
}

const _: () = assert!(size_of::<Part>() == 24);

/// This process loads from and stores into the part. Set when the window is made.
pub const HERE: u32 = 1;
/// `MPI_Win_lock` has locked the part; the lock is exclusive; it was not taken, since the program says that nobody else wants it.
pub const LOCKED: u32 = 2;
pub const EXCLUSIVE: u32 = 4;
pub const UNCHECKED: u32 = 8;
/// `MPI_Win_start` has named the rank.
pub const STARTED: u32 = 16;

/// Memory of this process alone.
struct Own {
    start: *mut u8,
    layout: Layout,
}

// SAFETY: an address range of the program; the library itself only frees it.
unsafe impl Send for Own {}
// SAFETY: as above.
unsafe impl Sync for Own {}

impl Own {
    fn new(bytes: usize) -> Result<Own> {
        let refused = || Error::new(MPI_ERR_NO_MEM, format!("no memory of {bytes} bytes for a window"));
        let layout = Layout::from_size_align(bytes.max(1), PAGE_BYTES).map_err(|_| refused())?;
        // SAFETY: the layout has a size.
        let start = unsafe { alloc_zeroed(layout) };
        if start.is_null() { Err(refused()) } else { Ok(Own { start, layout }) }
    }
}

impl Drop for Own {
    fn drop(&mut self) {
        // SAFETY: from `alloc_zeroed`, with this layout.
        unsafe { dealloc(self.start, self.layout) };
    }
}

/// Words of lines, in the mapping or the box beside which they are kept.
struct Lines {
    start: *const AtomicU64,
    words: usize,
}

// SAFETY: the address of atomics, which live as long as the window's memory.
unsafe impl Send for Lines {}
// SAFETY: as above.
unsafe impl Sync for Lines {}

/// All that a window keeps in memory.
pub struct Memory {
    /// Lines of all ranks, then what the library has given out, if it has.
    shared: Option<SharedMemory>,
    /// The lines where nothing is shared, and there is but one rank: its own, and the window's.
    _private: Option<Box<[AtomicU64; 2 * LINE_WORDS]>>,
    lines: Lines,
    own: Option<Own>,
    parts: Box<[Part]>,
}

/// Bytes of the lines of a window: one of each rank, and one of the window.
pub const fn lines_bytes(ranks: usize) -> usize {
    (ranks + 1) * LINE_BYTES
}

/// How a window with these parts lies in shared memory: bytes of the whole, and where each rank's part begins. `None` past 63 bits.
pub fn arrange(sizes: impl Iterator<Item = u64>, ranks: usize, contiguous: bool) -> Option<(usize, Vec<u64>)> {
    let page = |bytes: u64| bytes.checked_next_multiple_of(PAGE_BYTES as u64);
    let mut end = page(lines_bytes(ranks) as u64)?;
    let mut offsets = Vec::with_capacity(ranks);
    for size in sizes {
        offsets.push(end);
        end = end.checked_add(size)?;
        if !contiguous {
            end = page(end)?;
        }
    }
    Some((isize::try_from(page(end)?).ok()? as usize, offsets))
}

impl Memory {
    /// Memory that all `ranks` share, or none.
    ///
    /// # Panics
    /// Where the shared memory has no room for the lines.
    pub fn new(shared: Option<SharedMemory>, ranks: usize) -> Memory {
        let private: Option<Box<[AtomicU64; 2 * LINE_WORDS]>> = (shared.is_none() && ranks == 1).then(Box::default);
        let words = match (&shared, &private) {
            (Some(shared), _) => shared.slice(0, lines_bytes(ranks) / 8).expect("the lines of a window"),
            (None, Some(private)) => &private[..],
            (None, None) => &[],
        };
        let lines = Lines { start: words.as_ptr(), words: words.len() };
        Memory { shared, _private: private, lines, own: None, parts: Box::default() }
    }

    /// Memory of this process alone for its part of the window.
    ///
    /// # Errors
    /// `MPI_ERR_NO_MEM`.
    pub fn allocate(&mut self, bytes: usize) -> Result<*mut u8> {
        Ok(self.own.insert(Own::new(bytes)?).start)
    }

    pub fn is_shared(&self) -> bool {
        self.shared.is_some()
    }

    pub fn shared_mut(&mut self) -> Option<&mut SharedMemory> {
        self.shared.as_mut()
    }

    /// Where the shared memory begins here.
    pub fn start(&self) -> Option<*mut u8> {
        self.shared.as_ref().map(SharedMemory::address)
    }

    pub fn set_parts(&mut self, parts: impl Iterator<Item = Part>) {
        self.parts = parts.collect();
    }

    /// A word of the line of `rank`, or of the window's for the number of ranks. Only asked for where lines are shared, or where there is but one rank.
    #[inline]
    pub fn word(&self, rank: u32, word: Word) -> &AtomicU64 {
        let at = rank as usize * LINE_WORDS + word as usize;
        assert!(at < self.lines.words, "a line of the window");
        // SAFETY: one of the words, which live as long as `self`: the mapping is unmapped, and the box freed, with it.
        unsafe { &*self.lines.start.add(at) }
    }

    /// `None` for what is no rank of the window.
    #[inline]
    pub fn part_of(&self, rank: i32) -> Option<&Part> {
        self.parts.get(rank as u32 as usize)
    }

    /// # Panics
    /// Where `rank` is no rank of the window.
    #[inline]
    pub fn part(&self, rank: u32) -> &Part {
        &self.parts[rank as usize]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_follow_each_other_or_begin_pages() {
        assert_eq!(arrange([5, 0, 9000].into_iter(), 3, true), Some((16384, vec![4096, 4101, 4101])));
        assert_eq!(arrange([5, 0, 9000].into_iter(), 3, false), Some((20480, vec![4096, 8192, 8192])));
        assert_eq!(arrange([0; 63].into_iter(), 63, false).unwrap().1[62], 4096);
        assert_eq!(arrange([0; 64].into_iter(), 64, false).unwrap().1[63], 8192);
        assert_eq!(arrange([i64::MAX as u64, 1].into_iter(), 2, true), None);
        assert_eq!(arrange([u64::MAX, 1].into_iter(), 2, false), None);
    }

    #[test]
    fn parts_are_found_by_rank() {
        let mut memory = Memory::new(None, 1);
        memory.set_parts((0..3).map(|rank| Part { start: 16 * rank, size: 7, unit: 1, state: AtomicU32::new(0) }));
        assert_eq!(memory.part(2).start, 32);
        assert_eq!(memory.part_of(1).map(|part| part.start), Some(16));
        assert!([3, -1, i32::MIN, i32::MAX].into_iter().all(|rank| memory.part_of(rank).is_none()));
    }
}
