//! Synchronization (MPI-5.0 §12.5): fences, locks and flushes; [`super::exposure`] has post, start, complete and wait.
//!
//! What epochs a process has opened stands in one word of the window ([`Epochs::mode`]) and in the state of each rank's [`Part`], so that a call looks at two
//! words and takes no lock. Threads that use the same epochs at once are ordered by the program (MPI-5.0 §12.7); threads that lock several ranks at once
//! change the word by atomic instructions, a process with one thread by plain ones.

use super::memory::{EXCLUSIVE, LOCKED, Part, STARTED, UNCHECKED};
use super::{Window, find, lock};
use crate::call::Kind;
use crate::collective;
use crate::consts::*;
use crate::error::{Error, Result};
use crate::handle::Win;
use crate::world::{self, fault};
use engine::RequestId;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering, fence};

/// Flushes and unlocks between looks at what others want of this process: where each of them is a few instructions, and where it may take longer or
/// others wait for this core. Powers of two.
const FLUSHES_PER_LOOK: [u32; 2] = [256, 16];

/// Bits of [`Epochs::mode`]: after a fence that is not the last; a start; `MPI_Win_lock_all`, that it has taken no locks, that it has taken each by itself;
/// the info key `no_locks`.
pub(super) const FENCE: u64 = 1;
pub(super) const START: u64 = 2;
const ALL: u64 = 4;
const ALL_UNCHECKED: u64 = 8;
const ALL_EACH: u64 = 16;
const NO_LOCKS: u64 = 32;
/// One lock of `MPI_Win_lock`; their number is in the bits from here on.
const LOCK: u64 = 1 << 32;

/// Ranks that a start or post names.
pub(super) enum Ranks {
    /// A bit for each.
    Bits(u64),
    /// Ascending.
    List(Vec<u32>),
}

impl Default for Ranks {
    fn default() -> Ranks {
        Ranks::Bits(0)
    }
}

impl Ranks {
    /// # Errors
    /// The first of `of`, which is not called for ranks behind.
    #[inline]
    pub(super) fn try_each(&self, mut of: impl FnMut(u32) -> Result<()>) -> Result<()> {
        match self {
            Ranks::Bits(bits) => {
                let mut left = *bits;
                while left != 0 {
                    of(left.trailing_zeros())?;
                    left &= left - 1;
                }
                Ok(())
            }
            Ranks::List(ranks) => ranks.iter().try_for_each(|rank| of(*rank)),
        }
    }
}

/// Who has been named by starts and posts that have not ended.
#[derive(Default)]
pub struct Lists {
    /// Ranks of `MPI_Win_start`.
    pub(super) started: Ranks,
    pub(super) posted: Option<Posted>,
}

/// What `MPI_Win_wait` waits for.
pub(super) enum Posted {
    /// Messages.
    Messages(Vec<RequestId>),
    /// That many completions, counted in this rank's line.
    Count(u64),
}

/// The epochs that this process has opened on a window.
#[derive(Default)]
pub(super) struct Epochs {
    mode: AtomicU64,
    /// Something was done since the last fence.
    used: AtomicBool,
    /// Something was stored into memory that others load from, since this process has last waited until they see it.
    stored: AtomicBool,
    pub(super) lists: Mutex<Lists>,
}

#[cold]
pub(super) fn wrong(why: impl Into<String>) -> Box<Error> {
    Error::new(MPI_ERR_RMA_SYNC, why)
}

#[inline]
pub(super) fn check_assert(assert: i32, known: i32) -> Result<()> {
    if assert & !known == 0 {
        return Ok(());
    }
    Err(Error::new(MPI_ERR_ASSERT, format!("assert = {assert} has bits that mean nothing here")))
}

/// Waits until all processors see what this one has stored. `lock or` is an `mfence` that takes half as long.
#[inline]
fn await_stores() {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: adds nothing to a word of this thread's own stack.
    unsafe {
        std::arch::asm!("lock or dword ptr [rsp], 0", options(nostack));
    }
    #[cfg(not(target_arch = "x86_64"))]
    fence(Ordering::SeqCst);
}

impl Epochs {
    #[inline]
    pub(super) fn mode(&self) -> u64 {
        self.mode.load(Ordering::Relaxed)
    }

    /// Changes the mode to what `change` makes of it, unless that is an error.
    #[inline]
    pub(super) fn update(&self, threads: bool, change: impl Fn(u64) -> Result<u64>) -> Result<()> {
        let mut mode = self.mode();
        loop {
            let new = change(mode)?;
            if !threads {
                self.mode.store(new, Ordering::Relaxed);
                return Ok(());
            }
            match self.mode.compare_exchange_weak(mode, new, Ordering::Relaxed, Ordering::Relaxed) {
                Ok(_) => return Ok(()),
                Err(found) => mode = found,
            }
        }
    }

    /// Sets some bits, clears others.
    #[inline]
    pub(super) fn change(&self, threads: bool, set: u64, clear: u64) {
        let _ = self.update(threads, |mode| Ok(mode & !clear | set));
    }

    pub(super) fn set_no_locks(&self, no_locks: bool) {
        if no_locks { self.change(true, NO_LOCKS, 0) } else { self.change(true, 0, NO_LOCKS) }
    }

    /// Whether a rank whose part has this state may be accessed now. An access under a fence is noted.
    #[inline]
    pub(super) fn may_access(&self, state: u32) -> bool {
        let mode = self.mode();
        if mode & ALL != 0 || state & (LOCKED | STARTED) != 0 {
            return true;
        }
        // Whoever has locked or started others may not mean the fence.
        let open = mode & (FENCE | START) == FENCE && mode < LOCK;
        if open {
            self.used.store(true, Ordering::Relaxed);
        }
        open
    }

    /// What was stored is seen by others after the next flush or unlock.
    #[inline]
    pub(super) fn has_stored(&self) {
        self.stored.store(true, Ordering::Relaxed);
    }

    /// Waits until others see what was stored, if anything was.
    #[inline]
    fn show_stores(&self) {
        // What was loaded before stays before.
        fence(Ordering::AcqRel);
        if self.stored.load(Ordering::Relaxed) {
            self.stored.store(false, Ordering::Relaxed);
            await_stores();
        }
    }

    #[inline]
    fn passive(&self, part: &Part) -> bool {
        part.state.load(Ordering::Relaxed) & LOCKED != 0 || self.mode() & ALL != 0
    }

    pub(super) fn locked(&self) -> bool {
        is_locked(self.mode())
    }

    /// Whether the window may be freed.
    pub(super) fn may_end(&self) -> Result<()> {
        match () {
            () if self.locked() => Err(wrong("this process holds a lock of the window")),
            () if self.mode() & START != 0 => Err(wrong("MPI_Win_start has not been ended by MPI_Win_complete")),
            () if lock(&self.lists).posted.is_some() => Err(wrong("MPI_Win_post has not been ended by MPI_Win_wait")),
            () => Ok(()),
        }
    }

    /// Whether another access epoch may begin in this mode, but a fence's.
    #[inline]
    pub(super) fn may_begin(&self, mode: u64) -> Result<()> {
        if mode & START != 0 {
            return Err(wrong("MPI_Win_start has not been ended by MPI_Win_complete"));
        }
        self.fence_is_over(mode)
    }

    #[inline]
    pub(super) fn fence_is_over(&self, mode: u64) -> Result<()> {
        if mode & FENCE != 0 && self.used.load(Ordering::Relaxed) {
            return Err(wrong("the epoch of a fence, in which something was done, has not been ended by another fence"));
        }
        Ok(())
    }

    /// Whether ranks may be locked in this mode.
    #[inline]
    fn may_lock(&self, mode: u64) -> Result<()> {
        self.may_begin(mode)?;
        if mode & NO_LOCKS != 0 {
            return Err(wrong("the info key no_locks of the window is true"));
        }
        Ok(())
    }
}

#[inline]
pub(super) fn is_locked(mode: u64) -> bool {
    mode & ALL != 0 || mode >= LOCK
}

#[inline]
pub(super) fn threads() -> Result<bool> {
    Ok(world::get()?.may_have_threads())
}

/// Sets and clears bits of a part's state.
#[inline]
pub(super) fn change_state(part: &Part, threads: bool, set: u32, clear: u32) {
    let changed = |state: u32| state & !clear | set;
    match threads {
        false => part.state.store(changed(part.state.load(Ordering::Relaxed)), Ordering::Relaxed),
        true => drop(part.state.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |state| Some(changed(state)))),
    }
}

impl Window {
    /// Whether requests may be made: only between a lock and its unlock (MPI-5.0 §12.3.5).
    pub(super) fn must_be_passive(&self, rank: i32) -> Result<()> {
        match self.rank(rank)? {
            Some(rank) if !self.epochs.passive(self.memory.part(rank)) => Err(wrong(format!("a request is made for rank {rank}, which is not locked"))),
            _ => Ok(()),
        }
    }

    /// Whether `rank` may be accessed now.
    ///
    /// # Errors
    /// `MPI_ERR_RMA_SYNC`.
    pub(super) fn may_access(&self, rank: u32) -> Result<()> {
        if self.epochs.may_access(self.memory.part(rank).state.load(Ordering::Relaxed)) {
            return Ok(());
        }
        Err(wrong(format!("rank {rank} of the window is accessed outside of an epoch")))
    }

    /// Whether nobody else may change the elements of a part in this state now: this process has locked it alone, and has one thread.
    #[inline]
    pub(super) fn excludes_others(&self, state: u32) -> bool {
        state & (LOCKED | EXCLUSIVE) == LOCKED | EXCLUSIVE && threads().is_ok_and(|threads| !threads)
    }

    /// All that was asked of any rank has been done. Who is told so by what this process stores next sees what it has stored before.
    pub(super) fn flush_all(&self, function: &'static str) -> Result<()> {
        let done = self.confirm(function, None);
        fence(Ordering::Release);
        done
    }

    /// All that was asked of `rank`, or of all, has been done; or, where that is `local`, needs this process' memory no more.
    #[inline(never)]
    fn end_asked(&self, function: &'static str, rank: Option<u32>, local: bool) -> Result<()> {
        if local { self.land(function, rank) } else { self.confirm(function, rank) }
    }

    /// All that was asked of `rank`, or of all, has been done, and is seen there.
    #[inline]
    fn end(&self, function: &'static str, rank: Option<u32>) -> Result<()> {
        let done = if self.messages.is_some() { self.confirm(function, rank) } else { Ok(()) };
        self.epochs.show_stores();
        done
    }

    /// The lock of a part is given back, or was not got.
    #[inline]
    fn forget_lock(&self, part: &Part, threads: bool) -> Result<()> {
        change_state(part, threads, 0, LOCKED | EXCLUSIVE | UNCHECKED);
        self.epochs.update(threads, |mode| Ok(mode - LOCK))
    }

    /// Looks now and then what others want: whoever only flushes or unlocks in a loop waits for something, perhaps from a rank that has no core or has ended.
    #[inline]
    fn look(&self) -> Result<()> {
        // Counts that threads lose to each other do not matter.
        static FLUSHES: AtomicU32 = AtomicU32::new(0);
        let flushes = FLUSHES.load(Ordering::Relaxed).wrapping_add(1);
        FLUSHES.store(flushes, Ordering::Relaxed);
        if !flushes.is_multiple_of(FLUSHES_PER_LOOK[1]) {
            return Ok(());
        }
        self.look_now(flushes)
    }

    #[cold]
    fn look_now(&self, flushes: u32) -> Result<()> {
        let world = world::get()?;
        let often = world.crowded || self.messages.is_some();
        if !often && !flushes.is_multiple_of(FLUSHES_PER_LOOK[0]) {
            return Ok(());
        }
        let mut first = world.engine().lock();
        first.progress().map_err(fault)?;
        first.asks_on();
        let failed = self.failed(&first);
        drop(first);
        if let Some(why) = failed {
            return Err(why);
        }
        if !std::ptr::eq(self.comm.cell, world.engine()) {
            self.comm.cell.lock().progress().map_err(fault)?;
        }
        if world.crowded {
            engine::yield_core();
        }
        Ok(())
    }
}

/// `MPI_Win_fence`, collective.
///
/// # Errors
/// `MPI_ERR_WIN`, `MPI_ERR_ASSERT`; `MPI_ERR_RMA_SYNC` inside an epoch that something else has opened; of what was done before, `MPI_ERR_RMA_RANGE`.
pub fn fence_all(win: Win, assert: i32) -> Result<()> {
    let function = "MPI_Win_fence";
    let window = find(win)?;
    check_assert(assert, MPI_MODE_NOSTORE | MPI_MODE_NOPUT | MPI_MODE_NOPRECEDE | MPI_MODE_NOSUCCEED)?;
    window.epochs.may_end()?;
    let done = window.flush_all(function);
    collective::barrier(window.comm, function, Kind::Barrier)?;
    fence(Ordering::Acquire);
    window.epochs.used.store(false, Ordering::Relaxed);
    let threads = threads()?;
    match assert & MPI_MODE_NOSUCCEED {
        0 => window.epochs.change(threads, FENCE, 0),
        _ => window.epochs.change(threads, 0, FENCE),
    }
    done
}

/// `MPI_Win_lock`.
///
/// # Errors
/// `MPI_ERR_WIN`, `MPI_ERR_LOCKTYPE`, `MPI_ERR_RANK`, `MPI_ERR_ASSERT`; `MPI_ERR_RMA_SYNC` where this process has locked that rank or is in another access epoch.
#[inline]
pub fn lock_one(win: Win, lock_type: i32, rank: i32, assert: i32) -> Result<()> {
    let window = find(win)?;
    let exclusive = match lock_type {
        MPI_LOCK_EXCLUSIVE => true,
        MPI_LOCK_SHARED => false,
        _ => return Err(Error::new(MPI_ERR_LOCKTYPE, format!("lock_type = {lock_type} is neither MPI_LOCK_SHARED nor MPI_LOCK_EXCLUSIVE"))),
    };
    check_assert(assert, MPI_MODE_NOCHECK)?;
    let Some(rank) = window.rank(rank)? else { return Ok(()) };
    let (part, threads) = (window.memory.part(rank), threads()?);
    window.epochs.update(threads, |mode| {
        window.epochs.may_lock(mode)?;
        if mode & ALL != 0 || part.state.load(Ordering::Relaxed) & LOCKED != 0 {
            return Err(wrong(format!("this process has locked rank {rank} already")));
        }
        Ok((mode & !FENCE) + LOCK)
    })?;
    let unchecked = assert & MPI_MODE_NOCHECK != 0;
    let state = LOCKED | if exclusive { EXCLUSIVE } else { 0 } | if unchecked { UNCHECKED } else { 0 };
    change_state(part, threads, state, 0);
    let taken = if unchecked { Ok(()) } else { window.acquire("MPI_Win_lock", rank, exclusive) };
    if taken.is_err() {
        window.forget_lock(part, threads)?;
    }
    taken
}

/// `MPI_Win_unlock`.
///
/// # Errors
/// `MPI_ERR_WIN`, `MPI_ERR_RANK`; `MPI_ERR_RMA_SYNC` without a lock; of what was done, `MPI_ERR_RMA_RANGE`.
#[inline]
pub fn unlock_one(win: Win, rank: i32) -> Result<()> {
    let function = "MPI_Win_unlock";
    let window = find(win)?;
    let Some(rank) = window.rank(rank)? else { return Ok(()) };
    let part = window.memory.part(rank);
    let state = part.state.load(Ordering::Relaxed);
    if state & LOCKED == 0 {
        return Err(wrong(format!("rank {rank} is not locked by MPI_Win_lock")));
    }
    window.forget_lock(part, threads()?)?;
    match state & UNCHECKED {
        0 => window.release_one(function, rank, state & EXCLUSIVE != 0)?,
        _ => window.end(function, Some(rank))?,
    }
    window.look()
}

/// `MPI_Win_lock_all`.
///
/// # Errors
/// As [`lock_one`].
#[inline]
pub fn lock_all(win: Win, assert: i32) -> Result<()> {
    let function = "MPI_Win_lock_all";
    let window = find(win)?;
    check_assert(assert, MPI_MODE_NOCHECK)?;
    let unchecked = assert & MPI_MODE_NOCHECK != 0;
    let all = ALL | if unchecked { ALL_UNCHECKED } else { 0 };
    window.epochs.update(threads()?, |mode| {
        window.epochs.may_lock(mode)?;
        if is_locked(mode) { Err(wrong("this process holds a lock of the window")) } else { Ok(mode & !FENCE | all) }
    })?;
    if unchecked {
        return Ok(());
    }
    match window.acquire_all(function) {
        Ok(false) => Ok(()),
        Ok(true) => {
            window.epochs.change(true, ALL_EACH, 0);
            Ok(())
        }
        Err(error) => {
            window.epochs.change(true, 0, ALL);
            Err(error)
        }
    }
}

/// `MPI_Win_unlock_all`.
///
/// # Errors
/// `MPI_ERR_WIN`; `MPI_ERR_RMA_SYNC` without a lock; of what was done, `MPI_ERR_RMA_RANGE`.
#[inline]
pub fn unlock_all(win: Win) -> Result<()> {
    let function = "MPI_Win_unlock_all";
    let window = find(win)?;
    let mode = window.epochs.mode();
    window.epochs.update(threads()?, |mode| match mode & ALL {
        0 => Err(wrong("MPI_Win_unlock_all without MPI_Win_lock_all")),
        _ => Ok(mode & !(ALL | ALL_UNCHECKED | ALL_EACH)),
    })?;
    match mode & ALL_UNCHECKED {
        0 => window.release_all(function, mode & ALL_EACH != 0)?,
        _ => window.end(function, None)?,
    }
    window.look()
}

/// Which ranks a flush is about, and whether it may return when the origin's memory is free again.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Flush {
    /// `None`: all.
    pub rank: Option<i32>,
    pub local: bool,
}

/// `MPI_Win_flush` and its kin.
///
/// # Errors
/// `MPI_ERR_WIN`, `MPI_ERR_RANK`; `MPI_ERR_RMA_SYNC` outside of a passive target epoch; of what was done, `MPI_ERR_RMA_RANGE`.
#[inline(always)]
pub fn flush(function: &'static str, win: Win, flush: Flush) -> Result<()> {
    let window = find(win)?;
    let (rank, inside) = match flush.rank {
        None => (None, window.epochs.locked()),
        Some(rank) => match window.memory.part_of(rank) {
            Some(part) => (Some(rank as u32), window.epochs.passive(part)),
            // MPI_PROC_NULL, or an error.
            None => return window.rank(rank).map(drop),
        },
    };
    if !inside {
        return Err(wrong("flushed outside of a passive target epoch"));
    }
    if window.messages.is_some() {
        window.end_asked(function, rank, flush.local)?;
    }
    window.epochs.show_stores();
    window.look()
}

/// `MPI_Win_sync`.
///
/// # Errors
/// `MPI_ERR_WIN`.
pub fn sync(win: Win) -> Result<()> {
    let window = find(win)?;
    fence(Ordering::SeqCst);
    window.look()
}
