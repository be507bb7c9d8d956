//! The memory of windows, and what each rank knows of the others': one line of eight words a rank, shared where all ranks share memory.

use crate::consts::MPI_ERR_NO_MEM;
use crate::error::{Error, Result};
use engine::SharedMemory;
use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::sync::atomic::{AtomicU64, Ordering};

/// Words of a rank's line: 64 bytes, a cache line of its own.
pub const LINE_WORDS: usize = 8;
pub const LINE_BYTES: usize = 8 * LINE_WORDS;
/// Memory that the library gives out begins at a multiple of this, bytes.
pub const PAGE_BYTES: usize = 4096;

/// What a word of a rank's line says.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(usize)]
pub enum Word {
    /// Where the window begins in the memory of its process; 0 for a dynamic one.
    Base,
    /// Bytes.
    Size,
    /// Bytes of a unit of displacement.
    Unit,
    /// Where the window begins in the shared memory, bytes.
    Offset,
    /// Tickets of `MPI_Win_lock`: the next to be given out, and the one whose turn it is.
    Next,
    Serving,
    /// How many hold the lock together, and [`ELEMENTS`].
    Readers,
    /// A bit for each rank (modulo 64) that waits for something of this line, and sleeps or soon will.
    Sleepers,
}

/// In [`Word::Readers`]: held while elements are accumulated that the processor does not change at once.
pub const ELEMENTS: u64 = 1 << 32;

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

/// All that a window keeps in memory.
pub struct Memory {
    /// Lines of all ranks, then what the library has given out, if it has.
    shared: Option<SharedMemory>,
    /// The lines where they are not shared.
    lines: Vec<AtomicU64>,
    own: Option<Own>,
}

/// How a window with these parts lies in shared memory: bytes of the whole, and where each rank's part begins. `None` past 63 bits.
pub fn arrange(sizes: impl Iterator<Item = u64>, ranks: usize, contiguous: bool) -> Option<(usize, Vec<u64>)> {
    let page = |bytes: u64| bytes.checked_next_multiple_of(PAGE_BYTES as u64);
    let mut end = page((ranks * LINE_BYTES) as u64)?;
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
    pub fn shared(shared: SharedMemory) -> Memory {
        Memory { shared: Some(shared), lines: Vec::new(), own: None }
    }

    pub fn private(ranks: usize) -> Memory {
        Memory { shared: None, lines: (0..ranks * LINE_WORDS).map(|_| AtomicU64::new(0)).collect(), own: None }
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

    #[inline]
    pub fn word(&self, rank: u32, word: Word) -> &AtomicU64 {
        let at = rank as usize * LINE_WORDS + word as usize;
        match &self.shared {
            Some(shared) => &shared.slice(at * 8, 1).expect("a line of a rank of the window")[0],
            None => &self.lines[at],
        }
    }

    #[inline]
    pub fn value(&self, rank: u32, word: Word) -> u64 {
        self.word(rank, word).load(Ordering::Relaxed)
    }

    pub fn set(&self, rank: u32, word: Word, value: u64) {
        self.word(rank, word).store(value, Ordering::Relaxed);
    }

    /// Where the part of `rank` lies in this process' address space, if it is shared.
    #[inline]
    pub fn mapped(&self, rank: u32) -> Option<*mut u8> {
        Some(self.shared.as_ref()?.address().wrapping_add(self.value(rank, Word::Offset) as usize))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_follow_each_other_or_begin_pages() {
        assert_eq!(arrange([5, 0, 9000].into_iter(), 3, true), Some((16384, vec![4096, 4101, 4101])));
        assert_eq!(arrange([5, 0, 9000].into_iter(), 3, false), Some((20480, vec![4096, 8192, 8192])));
        assert_eq!(arrange([0; 65].into_iter(), 65, false).unwrap().1[64], 8192);
        assert_eq!(arrange([i64::MAX as u64, 1].into_iter(), 2, true), None);
        assert_eq!(arrange([u64::MAX, 1].into_iter(), 2, false), None);
    }

    #[test]
    fn lines_are_apart() {
        let memory = Memory::private(3);
        memory.set(1, Word::Size, 7);
        memory.set(2, Word::Base, 9);
        let all: Vec<u64> = memory.lines.iter().map(|word| word.load(Ordering::Relaxed)).collect();
        assert_eq!((all[9], all[16], all.iter().sum::<u64>()), (7, 9, 16));
        assert_eq!(memory.mapped(1), None);
    }
}
