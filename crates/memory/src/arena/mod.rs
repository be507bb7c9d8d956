//! Memory that peers can map: blocks of whole pages in a file of this process, which other processes map once and then load from and store to.
//!
//! The file has one length for ever, which is sealed, and lies at one range of addresses. So an address of this process names a place of the file, a block
//! that is freed and given out again is the same memory at the same place, and nothing that a peer has mapped can become stale. What is free goes
//! back to the system by punching holes: a peer that still reads there reads zeroes, and is never sent a signal. That wants a memory file whose
//! pages cannot be refused one by one: where there is none (a sandbox without `memfd_create`), where the system commits memory strictly
//! (`vm.overcommit_memory` 2), and where address space is limited (`ulimit -v`), there is no arena, and blocks are ordinary memory.
//!
//! A child of `fork` has a private copy of all blocks, as it has of all other memory. It makes the copy before the parent's `fork` returns, so that
//! neither sees what the other writes afterwards, whoever of its peers writes into the parent's; what other threads of the parent write in that time, it may see. That takes time by how much memory is
//! in use. `posix_spawn` and `vfork` cost nothing. A child of a call that runs no handlers (`_Fork`, `clone`) has no blocks: touching one there is SIGSEGV.

mod runs;
#[allow(unsafe_code)]
mod sys;

use crate::Refused;
use runs::Runs;
use rustix::fs::SealFlags;
use std::cell::UnsafeCell;
use std::os::fd::{AsRawFd, IntoRawFd};
use std::sync::OnceLock;
use sys::Signal;
pub(crate) use sys::{Lock, at_fork};

/// Blocks are whole pages.
pub const PAGE_BYTES: usize = 4096;
/// Shortest block that is worth pages of its own, bytes.
pub const BLOCK_BYTES_MIN: usize = 64 << 10;
/// Longest range, bytes: what a process's peers map of it, each in one piece.
const RANGE_BYTES_MAX: usize = 1 << 40;
/// What is mapped at a time, bytes.
const GROWTH_BYTES: usize = 16 << 20;
/// Freed pages that are kept for the next block: a quarter of what is in use, within these bounds, bytes.
const KEPT_BYTES_MIN: usize = 768 << 10;
const KEPT_BYTES_MAX: usize = 64 << 20;

/// Where an arena lies: what other processes have to know.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Range {
    /// In this process' memory.
    pub start: u64,
    /// As long as the file, bytes.
    pub bytes: u64,
    /// The file's descriptor in this process.
    pub fd: i32,
}

struct State {
    runs: Runs,
    mapped_bytes: usize,
    /// This is the child of a fork, whose blocks are memory of its own.
    private: bool,
    /// What the next child says that it has its copy with: kept, since there may be no descriptor left when it is wanted.
    signal: Option<Signal>,
}

/// An allocator of blocks in a file of its own.
pub struct Arena {
    range: Range,
    /// The file's device and number. The program may close descriptors that are not its own.
    file: (u64, u64),
    lock: Lock,
    state: UnsafeCell<State>,
}

/// A new block.
#[derive(Clone, Copy, Debug)]
pub struct Block {
    pub start: *mut u8,
    /// All its bytes are 0.
    pub zeroed: bool,
}

/// There is no block in use at that address.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NoBlock;

fn kept_pages_max(used_pages: usize) -> usize {
    (used_pages / 4).clamp(KEPT_BYTES_MIN / PAGE_BYTES, KEPT_BYTES_MAX / PAGE_BYTES)
}

/// Bytes of a range: as much as this machine has memory.
fn range_bytes() -> usize {
    let memory = rustix::system::sysinfo();
    let bytes = (memory.totalram as usize).saturating_mul(memory.mem_unit as usize);
    bytes.next_multiple_of(2 << 20).min(RANGE_BYTES_MAX)
}

impl Arena {
    /// An arena of as many bytes as this machine has memory; only pages that are written take memory.
    ///
    /// Errors: no file, or none whose pages are there when they are touched; no address space.
    pub fn new() -> Result<Arena, Refused> {
        Arena::with(range_bytes())
    }

    fn with(bytes: usize) -> Result<Arena, Refused> {
        let refused = |call, errno| Refused::Call(call, rustix::io::Errno::from_raw_os_error(errno));
        let limited = rustix::process::getrlimit(rustix::process::Resource::As).current.is_some();
        if limited || std::fs::read("/proc/sys/vm/overcommit_memory").is_ok_and(|mode| mode.starts_with(b"2")) {
            return Err(refused("mmap", libc::ENOMEM));
        }
        let file = crate::create("whimbrel-blocks", bytes as u64)?;
        if !rustix::fs::fcntl_get_seals(&file).is_ok_and(|seals| seals.contains(SealFlags::SHRINK)) {
            return Err(refused("memfd_create", libc::ENOSYS));
        }
        let marks = sys::marks(bytes / PAGE_BYTES).map_err(|errno| refused("mmap", errno))?;
        let start = sys::reserve_addresses(bytes).map_err(|errno| refused("mmap", errno))?;
        let identity = sys::identity(file.as_raw_fd()).ok_or_else(|| refused("fstat", libc::EBADF))?;
        let range = Range { start: start as u64, bytes: bytes as u64, fd: file.into_raw_fd() };
        let state = State { runs: Runs::new(marks), mapped_bytes: 0, private: false, signal: Signal::new() };
        Ok(Arena { range, file: identity, lock: Lock::default(), state: UnsafeCell::new(state) })
    }

    pub fn range(&self) -> Range {
        self.range
    }

    /// Whether `address` lies in the range, in a block or not.
    #[inline]
    pub fn contains(&self, address: usize) -> bool {
        (address as u64).wrapping_sub(self.range.start) < self.range.bytes
    }

    /// Runs `work` with the lock held. It must not allocate.
    fn locked<T>(&self, work: impl FnOnce(&mut State) -> T) -> T {
        self.lock.lock();
        let done = self.with_state(work);
        self.lock.unlock();
        done
    }

    #[allow(unsafe_code)]
    fn with_state<T>(&self, work: impl FnOnce(&mut State) -> T) -> T {
        // SAFETY: the lock is held, by this thread or, in the child of a fork, by the thread that it is a copy of; so nobody else has a reference.
        work(unsafe { &mut *self.state.get() })
    }

    fn page(&self, address: usize) -> Option<usize> {
        let offset = (address as u64).wrapping_sub(self.range.start);
        (offset < self.range.bytes && offset.is_multiple_of(PAGE_BYTES as u64)).then_some(offset as usize / PAGE_BYTES)
    }

    /// A block of at least `bytes`, at least 1, at a multiple of `align_bytes`, a power of two. `None`: the range, or the system, has no more.
    pub fn allocate(&self, bytes: usize, align_bytes: usize) -> Option<Block> {
        let (pages, align) = (bytes.max(1).div_ceil(PAGE_BYTES), align_bytes.div_ceil(PAGE_BYTES).max(1));
        // The range begins at a multiple of 2 MiB.
        if align > (2 << 20) / PAGE_BYTES {
            return None;
        }
        self.locked(|state| {
            let taken = state.runs.take(pages, align)?;
            if !self.reach(state, (taken.first + pages) * PAGE_BYTES) {
                state.runs.give(taken.first);
                return None;
            }
            Some(Block { start: (self.range.start as usize + taken.first * PAGE_BYTES) as *mut u8, zeroed: taken.clean })
        })
    }

    fn has_file(&self) -> bool {
        sys::identity(self.range.fd) == Some(self.file)
    }

    /// Maps the range up to `bytes`, at least.
    fn reach(&self, state: &mut State, bytes: usize) -> bool {
        let had = state.mapped_bytes;
        if bytes <= had {
            return true;
        }
        let wanted = bytes.next_multiple_of(GROWTH_BYTES).min(self.range.bytes as usize);
        let mapped = match state.private {
            true => sys::map_private(self.range.start as usize + had, wanted - had),
            false => self.has_file() && sys::map_file(self.range.start as usize, self.range.fd, had, wanted - had),
        };
        if mapped {
            state.mapped_bytes = wanted;
        }
        mapped
    }

    /// Bytes that the block at `address` has.
    pub fn block_bytes(&self, address: usize) -> Option<usize> {
        let page = self.page(address)?;
        self.locked(|state| state.runs.pages(page)).map(|pages| pages * PAGE_BYTES)
    }

    /// Makes the block at `address` one of at least `bytes`, where it is. False: it is none, or has no room there.
    pub fn resize(&self, address: usize, bytes: usize) -> bool {
        let (Some(page), pages) = (self.page(address), bytes.max(1).div_ceil(PAGE_BYTES)) else { return false };
        self.locked(|state| {
            let Some(had) = state.runs.pages(page) else { return false };
            if !state.runs.resize(page, pages) {
                return false;
            }
            if pages < had {
                self.purge(state, None);
            } else if !self.reach(state, (page + pages) * PAGE_BYTES) {
                state.runs.resize(page, had);
                return false;
            }
            true
        })
    }

    /// Gives a block back.
    pub fn free(&self, address: usize) -> Result<(), NoBlock> {
        let page = self.page(address).ok_or(NoBlock)?;
        self.locked(|state| {
            let run = state.runs.give(page).ok_or(NoBlock)?;
            self.purge(state, Some(run));
            Ok(())
        })
    }

    /// Gives what is free back to the system, past what is kept for the next block: that of the newest run first.
    fn purge(&self, state: &mut State, newest: Option<usize>) {
        let most = kept_pages_max(state.runs.used_pages());
        if state.runs.dirty_pages() <= most {
            return;
        }
        let (private, mapped) = (state.private, state.mapped_bytes);
        let drop = |first: usize, pages: usize| {
            // What was never mapped holds nothing.
            let (from, to) = (first * PAGE_BYTES, ((first + pages) * PAGE_BYTES).min(mapped));
            from >= to || self.drop_pages(private, from, to - from)
        };
        if let Some(run) = newest {
            state.runs.purge_run(run, drop);
        }
        if state.runs.dirty_pages() > most {
            state.runs.purge(most / 2, drop);
        }
    }

    fn drop_pages(&self, private: bool, offset: usize, bytes: usize) -> bool {
        match private {
            true => sys::drop_private(self.range.start as usize + offset, bytes),
            false => sys::punch(self.range.start as usize + offset, bytes),
        }
    }

    /// The program needs nothing of what is in its pages in `address..address + bytes`, which must lie in the range; they read as zero afterwards, as
    /// with `MADV_DONTNEED` on memory of a process' own. False: the system could not do that, or the pages are none.
    pub fn discard(&self, address: usize, bytes: usize) -> bool {
        let (Some(page), Some(bytes)) = (self.page(address), bytes.checked_next_multiple_of(PAGE_BYTES)) else { return false };
        let offset = page * PAGE_BYTES;
        self.locked(|state| {
            let inside = offset.checked_add(bytes).is_some_and(|end| end <= state.mapped_bytes);
            inside && (bytes == 0 || self.drop_pages(state.private, offset, bytes))
        })
    }

    fn before_fork(&self) {
        self.lock.lock();
        self.with_state(|state| state.signal = state.signal.take().or_else(Signal::new));
    }

    fn after_fork_in_parent(&self) {
        self.with_state(|state| {
            if let Some(signal) = state.signal.take().filter(|_| !state.private) {
                signal.wait();
                state.signal = Signal::new();
            }
        });
        self.lock.unlock();
    }

    /// Without a signal the parent does not wait, and the child has no blocks; nor has it any where the program has closed the file's descriptor.
    #[allow(unsafe_code)]
    fn after_fork_in_child(&self) {
        self.with_state(|state| {
            if let Some(signal) = state.signal.take().filter(|_| !state.private && self.has_file()) {
                let (start, bytes) = (self.range.start as usize, state.mapped_bytes);
                // SAFETY: it is all zero, new, and this process is one thread.
                if !(sys::map_private(start, bytes) && unsafe { sys::read_file(self.range.fd, start, bytes) }) {
                    sys::die("whimbrel: the child of a fork has no memory for its copy of what its parent shares with others\n");
                }
                state.private = true;
                sys::close(self.range.fd);
                signal.send();
            }
        });
        self.lock.unlock();
    }
}

#[allow(unsafe_code)]
// SAFETY: the state is used with the lock held.
unsafe impl Sync for Arena {}
#[allow(unsafe_code)]
// SAFETY: an address range and a descriptor, which belong to the process.
unsafe impl Send for Arena {}

/// The arena whose blocks children of this process get copies of.
static FORKED: OnceLock<&'static Arena> = OnceLock::new();

extern "C" fn before_fork() {
    FORKED.get().inspect(|arena| arena.before_fork());
}

extern "C" fn after_fork_in_parent() {
    FORKED.get().inspect(|arena| arena.after_fork_in_parent());
}

extern "C" fn after_fork_in_child() {
    FORKED.get().inspect(|arena| arena.after_fork_in_child());
}

/// The one arena of this library, which is made when it is first asked for. `None`: there is none on this machine.
pub fn own() -> Option<&'static Arena> {
    static OWN: OnceLock<Option<&'static Arena>> = OnceLock::new();
    *OWN.get_or_init(|| {
        let arena: &'static Arena = Box::leak(Box::new(Arena::new().ok()?));
        FORKED.set(arena).ok()?;
        at_fork(before_fork, after_fork_in_parent, after_fork_in_child).then_some(arena)
    })
}

/// The same where it has been made.
pub fn made() -> Option<&'static Arena> {
    FORKED.get().copied()
}

/// The arena of a library that was preloaded.
pub fn preloaded() -> Option<Range> {
    sys::preloaded().map(|[start, bytes, fd]| Range { start, bytes, fd: fd as i32 })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn arena() -> Arena {
        Arena::with(64 << 20).expect("an arena: a memory file, memory that is not committed strictly, and no limit on addresses")
    }

    fn resident_pages(arena: &Arena) -> u64 {
        let file = std::fs::metadata(format!("/proc/self/fd/{}", arena.range.fd)).unwrap();
        std::os::unix::fs::MetadataExt::blocks(&file) * 512 / PAGE_BYTES as u64
    }

    fn fill(block: Block, bytes: usize, value: u8) {
        #[allow(unsafe_code)]
        // SAFETY: a block of at least as many bytes.
        unsafe {
            std::ptr::write_bytes(block.start, value, bytes)
        };
    }

    #[test]
    fn blocks_are_places_of_the_file() {
        let arena = arena();
        let (one, two) = (arena.allocate(100_000, 64).unwrap(), arena.allocate(65_536, 1 << 20).unwrap());
        assert!(one.zeroed && two.zeroed && (two.start as usize).is_multiple_of(1 << 20));
        assert_eq!(arena.block_bytes(one.start as usize), Some(25 * PAGE_BYTES));
        fill(one, 100_000, 7);
        let mut read = [0; 2];
        let file = std::fs::File::open(format!("/proc/self/fd/{}", arena.range.fd)).unwrap();
        std::os::unix::fs::FileExt::read_exact_at(&file, &mut read, one.start as u64 - arena.range.start + 99_999).unwrap();
        assert_eq!(read, [7, 0]);
        assert_eq!((arena.free(one.start as usize + 64), arena.free(one.start as usize), arena.free(one.start as usize)), (Err(NoBlock), Ok(()), Err(NoBlock)));
        assert!(arena.free(&raw const read as usize) == Err(NoBlock) && arena.block_bytes(0).is_none() && !arena.contains(0));
    }

    #[test]
    fn what_is_free_goes_back_to_the_system() {
        let arena = arena();
        let blocks: Vec<Block> = (0..8).map(|_| arena.allocate(4 << 20, 64).unwrap()).collect();
        assert!(arena.allocate(40 << 20, 64).is_none() && arena.allocate(1, 4 << 20).is_none());
        blocks.iter().for_each(|block| fill(*block, 4 << 20, 1));
        assert_eq!(resident_pages(&arena), 8 * 1024);
        blocks.iter().for_each(|block| arena.free(block.start as usize).unwrap());
        assert!(resident_pages(&arena) <= KEPT_BYTES_MIN as u64 / PAGE_BYTES as u64, "{} pages", resident_pages(&arena));
        let again = arena.allocate(32 << 20, 64).unwrap();
        #[allow(unsafe_code)]
        // SAFETY: a block of that length.
        let bytes = unsafe { std::slice::from_raw_parts(again.start, 32 << 20) };
        assert!(again.zeroed == bytes.iter().all(|byte| *byte == 0));
        assert!(arena.resize(again.start as usize, 1 << 20) && arena.resize(again.start as usize, 48 << 20));
        assert_eq!(arena.block_bytes(again.start as usize), Some(48 << 20));
    }

    #[test]
    fn what_is_discarded_reads_as_zero() {
        let arena = arena();
        let block = arena.allocate(1 << 20, 64).unwrap();
        fill(block, 1 << 20, 9);
        assert!(arena.discard(block.start as usize + PAGE_BYTES, 2 * PAGE_BYTES) && !arena.discard(block.start as usize + 1, 1));
        #[allow(unsafe_code)]
        // SAFETY: a block of that length.
        let bytes = unsafe { std::slice::from_raw_parts(block.start, 1 << 20) };
        assert_eq!(bytes.iter().filter(|byte| **byte == 0).count(), 2 * PAGE_BYTES);
        assert_eq!((bytes[PAGE_BYTES - 1], bytes[PAGE_BYTES], bytes[3 * PAGE_BYTES]), (9, 0, 9));
    }

    #[test]
    fn threads_share_an_arena() {
        let arena = arena();
        std::thread::scope(|scope| {
            for value in 1..5u8 {
                let arena = &arena;
                scope.spawn(move || {
                    for round in 1..200usize {
                        let bytes = 4096 * (1 + round % 70);
                        let block = arena.allocate(bytes, 64).unwrap();
                        fill(block, bytes, value);
                        #[allow(unsafe_code)]
                        // SAFETY: a block of that length.
                        let all = unsafe { std::slice::from_raw_parts(block.start, bytes) };
                        assert!(all.iter().all(|byte| *byte == value));
                        arena.free(block.start as usize).unwrap();
                    }
                });
            }
        });
        assert_eq!(arena.locked(|state| state.runs.used_pages()), 0);
    }
}
