//! What is each rank doing just now? One 64-byte record per rank in memory shared by the job's processes.
//!
//! A rank writes its own record with relaxed stores, a few nanoseconds in all; the launcher reads it after the rank
//! has died. Nothing here is trusted: a torn or forged record makes a message odd, never a crash.

use crate::{Error, RANKS_MAX};
use rustix::mm::{MapFlags, ProtFlags};
use std::fmt;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicI32, AtomicU32, AtomicU64, Ordering::Relaxed};

/// [`Board::enter`]'s peer or tag where the function has none.
pub const NONE: i32 = i32::MIN;
/// Longest function name that a record holds, bytes. Longer names are cut.
pub const NAME_BYTES_MAX: usize = 32;

/// How far a rank has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum State {
    /// It has not said hello to its launcher.
    Absent,
    /// It has said hello; `MPI_Init` is not done.
    Started,
    /// `MPI_Init` is done.
    Initialized,
    /// `MPI_Finalize` is done.
    Finalized,
}

/// What a rank was doing, as far as its record tells.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Doing {
    /// How far it has come.
    pub state: State,
    /// The call that it waits in.
    pub call: Option<Call>,
}

/// A call that a rank waits in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Call {
    /// Such as `MPI_Recv`.
    pub function: String,
    /// Rank in the world, [`NONE`], or negative for any.
    pub peer: i32,
    /// Tag, [`NONE`], or negative for any.
    pub tag: i32,
}

/// The records of all ranks of a job, mapped into this process.
pub struct Board {
    records: NonNull<Record>,
    size: u32,
    rank: u32,
}

#[repr(C, align(64))]
struct Record {
    state: AtomicU32,
    waiting: AtomicU32,
    peer: AtomicI32,
    tag: AtomicI32,
    name: [AtomicU64; NAME_BYTES_MAX / 8],
    spare: [AtomicU64; 2],
}

const _: () = assert!(size_of::<Record>() == 64);

// SAFETY: the mapping lives as long as the value, and every access goes through atomics.
unsafe impl Send for Board {}
// SAFETY: as above.
unsafe impl Sync for Board {}

impl Board {
    /// A fresh board for `size` ranks, and the descriptor that lets ranks map it. Its length stays ([`memory::create`]), so that
    /// no rank can make another process fault.
    ///
    /// Errors: no memory for it, or `size` not in 1..=[`RANKS_MAX`].
    pub fn create(size: u32) -> Result<(Board, OwnedFd), Error> {
        let (failed, bytes) = (|why: String| Error::new(format!("cannot create the job's board: {why}")), u64::from(size) * 64);
        let memory = memory::create("whimbrel-board", bytes).map_err(|refused| failed(refused.to_string()))?;
        memory::reserve(memory.as_fd(), 0, bytes.max(1)).map_err(|errno| failed(format!("no room for {bytes} bytes: {errno}")))?;
        Ok((Board::map(memory.as_fd(), size, 0)?, memory))
    }

    /// Maps the board behind `memory`; this process is `rank` of `size`.
    ///
    /// Errors: `memory` is no board for `size` ranks, `rank` or `size` is out of range, or mapping fails.
    pub fn map(memory: BorrowedFd, size: u32, rank: u32) -> Result<Board, Error> {
        if size == 0 || size > RANKS_MAX || rank >= size {
            return Err(Error::new(format!("rank {rank} of {size} is out of range (most ranks: {RANKS_MAX})")));
        }
        let bytes = size as usize * size_of::<Record>();
        if memory::check(memory) != Ok(bytes as u64) {
            return Err(Error::new(format!("the launcher sent no board for {size} ranks")));
        }
        // SAFETY: a fresh mapping at an address of the kernel's choice touches no memory of this process.
        let base = unsafe { rustix::mm::mmap(std::ptr::null_mut(), bytes, ProtFlags::READ | ProtFlags::WRITE, MapFlags::SHARED, memory, 0) }
            .map_err(|error| Error::new(format!("cannot map the job's board ({bytes} bytes): {error}")))?;
        let records = NonNull::new(base.cast()).ok_or_else(|| Error::new("the job's board was mapped at address 0"))?;
        Ok(Board { records, size, rank })
    }

    /// This rank is about to wait in `function`, for `peer` (rank in the world; negative: any; [`NONE`]: nobody in
    /// particular) and `tag` (likewise). With a literal name this is a handful of plain stores.
    #[inline(always)]
    pub fn enter(&self, function: &'static str, peer: i32, tag: i32) {
        let mut name = [0u8; NAME_BYTES_MAX];
        let length = function.len().min(NAME_BYTES_MAX);
        name[..length].copy_from_slice(&function.as_bytes()[..length]);
        let record = self.own();
        for (word, bytes) in record.name.iter().zip(name.as_chunks::<8>().0) {
            word.store(u64::from_le_bytes(*bytes), Relaxed);
        }
        record.peer.store(peer, Relaxed);
        record.tag.store(tag, Relaxed);
        record.waiting.store(1, Relaxed);
    }

    /// This rank crashes within `function`: said where it does not say already that it waits in a call.
    pub fn crashed_in(&self, function: &str) {
        let record = self.own();
        if record.waiting.load(Relaxed) != 0 {
            return;
        }
        let mut name = [0u8; NAME_BYTES_MAX];
        let length = function.len().min(NAME_BYTES_MAX);
        name[..length].copy_from_slice(&function.as_bytes()[..length]);
        for (word, bytes) in record.name.iter().zip(name.as_chunks::<8>().0) {
            word.store(u64::from_le_bytes(*bytes), Relaxed);
        }
        record.peer.store(NONE, Relaxed);
        record.tag.store(NONE, Relaxed);
        record.waiting.store(1, Relaxed);
    }

    /// This rank waits no more.
    #[inline(always)]
    pub fn leave(&self) {
        self.own().waiting.store(0, Relaxed);
    }

    /// `MPI_Init` is done here.
    pub fn initialized(&self) {
        self.set(State::Initialized);
    }

    /// What `rank` was doing when its record was last written.
    pub fn read(&self, rank: u32) -> Doing {
        let Some(record) = self.records().get(rank as usize) else { return Doing { state: State::Absent, call: None } };
        let state = match record.state.load(Relaxed) {
            0 => State::Absent,
            1 => State::Started,
            2 => State::Initialized,
            _ => State::Finalized,
        };
        let name: Vec<u8> = record.name.iter().flat_map(|word| word.load(Relaxed).to_le_bytes()).collect();
        let function: String = name.iter().take_while(|byte| **byte != 0).map(|byte| if byte.is_ascii_graphic() { char::from(*byte) } else { '?' }).collect();
        let waits = record.waiting.load(Relaxed) != 0 && !function.is_empty();
        let call = waits.then(|| Call { function, peer: record.peer.load(Relaxed), tag: record.tag.load(Relaxed) });
        Doing { state, call }
    }

    pub(crate) fn set(&self, state: State) {
        self.own().state.store(state as u32, Relaxed);
    }

    #[inline(always)]
    fn own(&self) -> &Record {
        &self.records()[self.rank as usize]
    }

    #[inline(always)]
    fn records(&self) -> &[Record] {
        // SAFETY: `size` records are mapped for as long as `self`; their length stays; all fields are atomics.
        unsafe { std::slice::from_raw_parts(self.records.as_ptr(), self.size as usize) }
    }
}

impl Drop for Board {
    fn drop(&mut self) {
        // SAFETY: this mapping was made in `map`, and no reference into it outlives `self`.
        let _ = unsafe { rustix::mm::munmap(self.records.as_ptr().cast(), self.size as usize * size_of::<Record>()) };
    }
}

/// Reads on after "rank 3 was killed": `in MPI_Recv from rank 2, tag 5`, or `while computing`.
impl fmt::Display for Doing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.call {
            Some(call) => call.fmt(f),
            None if self.state == State::Started => f.write_str("while starting"),
            None => f.write_str("while computing"),
        }
    }
}

impl fmt::Display for Call {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "in {}", self.function)?;
        let to = if self.function.to_ascii_lowercase().contains("send") { "to" } else { "from" };
        match self.peer {
            NONE => {}
            peer if peer < 0 => write!(f, " {to} any rank")?,
            peer => write!(f, " {to} rank {peer}")?,
        }
        match self.tag {
            NONE => Ok(()),
            tag if tag < 0 => f.write_str(", any tag"),
            tag => write!(f, ", tag {tag}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_rank_writes_the_launcher_reads() {
        let (launcher, memory) = Board::create(3).unwrap();
        let rank = Board::map(memory.as_fd(), 3, 2).unwrap();
        assert_eq!(launcher.read(2), Doing { state: State::Absent, call: None });
        rank.set(State::Started);
        assert_eq!(launcher.read(2).to_string(), "while starting");
        rank.initialized();
        rank.enter("MPI_Recv", 1, 5);
        assert_eq!(launcher.read(2).to_string(), "in MPI_Recv from rank 1, tag 5");
        rank.enter("MPI_Ssend", 0, -2);
        assert_eq!(launcher.read(2).to_string(), "in MPI_Ssend to rank 0, any tag");
        rank.enter("MPI_Probe", -1, NONE);
        assert_eq!(launcher.read(2).to_string(), "in MPI_Probe from any rank");
        rank.enter("MPI_Intercomm_create_from_groups_and_more", NONE, NONE);
        assert_eq!(launcher.read(2).to_string(), "in MPI_Intercomm_create_from_groups");
        rank.leave();
        assert_eq!(launcher.read(2).to_string(), "while computing");
        assert_eq!(launcher.read(0).state, State::Absent);
        assert_eq!(launcher.read(99).state, State::Absent);
        rank.set(State::Finalized);
        assert_eq!(launcher.read(2).state, State::Finalized);
    }

    #[test]
    fn a_forged_record_reads_as_something_printable() {
        let (launcher, memory) = Board::create(1).unwrap();
        let record = &launcher.records()[0];
        record.name.iter().for_each(|word| word.store(0x1b41_ff0a_0d7f_2080, Relaxed));
        record.waiting.store(u32::MAX, Relaxed);
        record.state.store(u32::MAX, Relaxed);
        let doing = launcher.read(0);
        assert_eq!(doing.state, State::Finalized);
        assert!(doing.to_string().chars().all(|c| c == ' ' || c.is_ascii_graphic()), "{doing}");
        drop(memory);
    }

    #[test]
    fn only_a_sealed_board_of_the_right_size_maps() {
        let (_, memory) = Board::create(4).unwrap();
        for (size, rank) in [(0, 0), (4, 4), (3, 0), (5, 0), (RANKS_MAX + 1, 0)] {
            assert!(Board::map(memory.as_fd(), size, rank).is_err(), "{size} {rank}");
        }
        assert!(rustix::fs::ftruncate(&memory, 64).is_err(), "a rank must not be able to shrink the board");
        let unsealed = rustix::fs::memfd_create("unsealed", rustix::fs::MemfdFlags::CLOEXEC | rustix::fs::MemfdFlags::ALLOW_SEALING).unwrap();
        rustix::fs::ftruncate(&unsealed, 256).unwrap();
        assert!(Board::map(unsealed.as_fd(), 4, 0).is_err());
    }
}
