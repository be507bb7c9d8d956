//! Synchronization (MPI-5.0 §12.5): fences, post, start, complete and wait, locks and flushes.

use super::{Window, find, lock};
use crate::call::Kind;
use crate::collective;
use crate::consts::*;
use crate::error::{Error, Result};
use crate::group::{self, Group};
use crate::handle::{self, Win};
use crate::p2p::check_outcome;
use crate::world::{self, fault};
use engine::{Buffer, Engine, Mode, Pattern, RequestId, Target};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU32, Ordering, fence};

/// Tags of messages without data, on the point-to-point context of the window's communicator.
const POSTED_TAG: i32 = 1;
const COMPLETE_TAG: i32 = 2;
/// Flushes and unlocks between looks at what others want of this process, where nothing is asked of a target.
const FLUSHES_PER_LOOK: u32 = 16;

/// The epochs that this process has opened on a window.
#[derive(Default)]
pub struct Epochs {
    /// After a fence that is not the last; and whether something was done since.
    fence: bool,
    used: bool,
    /// Ranks of `MPI_Win_start`, ascending.
    started: Option<Vec<u32>>,
    /// Messages that are awaited since `MPI_Win_post`.
    posted: Option<Vec<RequestId>>,
    /// Of `MPI_Win_lock_all`: whether the locks have really been taken.
    all: Option<bool>,
    locks: BTreeMap<u32, Held>,
}

/// A lock that this process holds.
#[derive(Clone, Copy, Debug)]
struct Held {
    exclusive: bool,
    /// The program says that nobody else wants it: it was not taken.
    unchecked: bool,
}

fn wrong(why: impl Into<String>) -> Box<Error> {
    Error::new(MPI_ERR_RMA_SYNC, why)
}

fn check_assert(assert: i32, known: i32) -> Result<()> {
    if assert & !known == 0 {
        return Ok(());
    }
    Err(Error::new(MPI_ERR_ASSERT, format!("assert = {assert} has bits that mean nothing here")))
}

impl Epochs {
    /// Whether `rank` may be accessed now.
    #[inline]
    pub(super) fn may_access(&mut self, rank: u32) -> Result<()> {
        if self.all.is_some() || self.locks.contains_key(&rank) || self.started.as_ref().is_some_and(|ranks| ranks.binary_search(&rank).is_ok()) {
            return Ok(());
        }
        // Whoever has locked or started others may not mean the fence.
        if self.fence && self.started.is_none() && self.locks.is_empty() {
            self.used = true;
            return Ok(());
        }
        Err(wrong(format!("rank {rank} of the window is accessed outside of an epoch")))
    }

    fn passive(&self, rank: u32) -> bool {
        self.all.is_some() || self.locks.contains_key(&rank)
    }

    /// Whether this process alone has the lock of `rank`.
    pub(super) fn excludes(&self, rank: u32) -> bool {
        self.locks.get(&rank).is_some_and(|held| held.exclusive)
    }

    fn locked(&self) -> bool {
        self.all.is_some() || !self.locks.is_empty()
    }

    /// Whether the window may be freed.
    pub(super) fn may_end(&self) -> Result<()> {
        match () {
            () if self.locked() => Err(wrong("this process holds a lock of the window")),
            () if self.started.is_some() => Err(wrong("MPI_Win_start has not been ended by MPI_Win_complete")),
            () if self.posted.is_some() => Err(wrong("MPI_Win_post has not been ended by MPI_Win_wait")),
            () => Ok(()),
        }
    }

    /// Whether another access epoch may begin, but a fence's.
    fn may_begin(&self) -> Result<()> {
        if self.started.is_some() {
            return Err(wrong("MPI_Win_start has not been ended by MPI_Win_complete"));
        }
        self.fence_is_over()
    }

    fn fence_is_over(&self) -> Result<()> {
        if self.fence && self.used {
            return Err(wrong("the epoch of a fence, in which something was done, has not been ended by another fence"));
        }
        Ok(())
    }
}

impl Window {
    /// Whether requests may be made: only between a lock and its unlock (MPI-5.0 §12.3.5).
    pub(super) fn must_be_passive(&self, rank: i32) -> Result<()> {
        match self.rank(rank)? {
            Some(rank) if !lock(&self.epochs).passive(rank) => Err(wrong(format!("a request is made for rank {rank}, which is not locked"))),
            _ => Ok(()),
        }
    }

    /// Whether ranks may be locked.
    fn may_lock(&self, epochs: &Epochs) -> Result<()> {
        epochs.may_begin()?;
        if self.no_locks() {
            return Err(wrong("the info key no_locks of the window is true"));
        }
        Ok(())
    }

    /// All that was asked of any rank has been done.
    pub(super) fn flush_all(&self, function: &'static str) -> Result<()> {
        let done = self.confirm(function, None);
        fence(Ordering::SeqCst);
        done
    }

    /// Looks now and then what others want: whoever only flushes or unlocks in a loop waits for something, perhaps from a rank that has no core.
    fn look(&self) -> Result<()> {
        static FLUSHES: AtomicU32 = AtomicU32::new(0);
        if !FLUSHES.fetch_add(1, Ordering::Relaxed).is_multiple_of(FLUSHES_PER_LOOK) {
            return Ok(());
        }
        let world = world::get()?;
        world.engine().lock().progress().map_err(fault)?;
        if !std::ptr::eq(self.comm.cell, world.engine()) {
            self.comm.cell.lock().progress().map_err(fault)?;
        }
        if world.crowded {
            engine::yield_core();
        }
        Ok(())
    }

    /// Sends a message without data to `rank`.
    fn tell(&self, engine: &mut Engine, rank: u32, tag: i32) -> Result<()> {
        let to = Target { process: self.comm.group.process(rank), context: self.comm.context, source: self.comm.rank, tag };
        let sent = engine.promptly(|engine| engine.send(&to, &Buffer::EMPTY, Mode::Standard)).map_err(fault)?;
        sent.into_iter().for_each(|id| engine.detach(id));
        Ok(())
    }

    /// Starts to await such a message from each of `ranks`.
    fn await_all(&self, ranks: &[u32], tag: i32) -> Result<Vec<RequestId>> {
        let mut engine = self.comm.cell.lock();
        ranks.iter().map(|rank| engine.receive(self.comm.p2p, Pattern { source: *rank, tag }, &Buffer::EMPTY).map_err(fault)).collect()
    }

    /// Looks whether all awaited messages have come; those that have are taken out.
    fn have_come(&self, engine: &mut Engine, awaited: &mut Vec<RequestId>) -> Option<Result<()>> {
        let mut failed = None;
        awaited.retain(|id| match engine.take(*id) {
            Some(outcome) => {
                failed = failed.take().or(check_outcome(&outcome).err());
                false
            }
            None => true,
        });
        match failed {
            Some(error) => Some(Err(error)),
            None => awaited.is_empty().then_some(Ok(())),
        }
    }

    /// Ranks of this window of the members of `group`, ascending.
    fn ranks_of(&self, group: &Group) -> Result<Vec<u32>> {
        let rank_of = |process| self.comm.group.rank_of(process);
        let ranks: Option<Vec<u32>> = group.processes().map(rank_of).collect();
        let mut ranks = ranks.ok_or_else(|| Error::new(MPI_ERR_GROUP, "the group has a member that is not of the window"))?;
        ranks.sort_unstable();
        Ok(ranks)
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
    lock(&window.epochs).may_end()?;
    let done = window.flush_all(function);
    collective::barrier(window.comm, function, Kind::Barrier)?;
    fence(Ordering::SeqCst);
    let mut epochs = lock(&window.epochs);
    (epochs.fence, epochs.used) = (assert & MPI_MODE_NOSUCCEED == 0, false);
    done
}

/// `MPI_Win_post`.
///
/// # Errors
/// `MPI_ERR_WIN`, `MPI_ERR_GROUP`, `MPI_ERR_ASSERT`; `MPI_ERR_RMA_SYNC` where the one before has not been ended.
pub fn post(win: Win, group: handle::Group, assert: i32) -> Result<()> {
    let window = find(win)?;
    check_assert(assert, MPI_MODE_NOCHECK | MPI_MODE_NOSTORE | MPI_MODE_NOPUT)?;
    let ranks = window.ranks_of(group::here(group)?)?;
    let mut epochs = lock(&window.epochs);
    if epochs.posted.is_some() {
        return Err(wrong("MPI_Win_post has not been ended by MPI_Win_wait"));
    }
    epochs.fence_is_over()?;
    fence(Ordering::SeqCst);
    epochs.posted = Some(window.await_all(&ranks, COMPLETE_TAG)?);
    epochs.fence = false;
    drop(epochs);
    let mut engine = window.comm.cell.lock();
    ranks.into_iter().try_for_each(|rank| window.tell(&mut engine, rank, POSTED_TAG))
}

/// `MPI_Win_start`: waits until all members of `group` have posted.
///
/// # Errors
/// `MPI_ERR_WIN`, `MPI_ERR_GROUP`, `MPI_ERR_ASSERT`; `MPI_ERR_RMA_SYNC` inside another access epoch.
pub fn start(win: Win, group: handle::Group, assert: i32) -> Result<()> {
    let function = "MPI_Win_start";
    let window = find(win)?;
    check_assert(assert, MPI_MODE_NOCHECK)?;
    let ranks = window.ranks_of(group::here(group)?)?;
    {
        let mut epochs = lock(&window.epochs);
        epochs.may_begin()?;
        if epochs.locked() {
            return Err(wrong("this process holds a lock of the window"));
        }
        epochs.fence = false;
    }
    let mut awaited = window.await_all(&ranks, POSTED_TAG)?;
    window.wait(window.comm.cell, function, |engine| window.have_come(engine, &mut awaited))?;
    fence(Ordering::SeqCst);
    lock(&window.epochs).started = Some(ranks);
    Ok(())
}

/// `MPI_Win_complete`.
///
/// # Errors
/// `MPI_ERR_WIN`; `MPI_ERR_RMA_SYNC` without a start; of what was done, `MPI_ERR_RMA_RANGE`.
pub fn complete(win: Win) -> Result<()> {
    let function = "MPI_Win_complete";
    let window = find(win)?;
    let ranks = lock(&window.epochs).started.take().ok_or_else(|| wrong("MPI_Win_complete without MPI_Win_start"))?;
    let done = window.flush_all(function);
    let mut engine = window.comm.cell.lock();
    ranks.into_iter().try_for_each(|rank| window.tell(&mut engine, rank, COMPLETE_TAG))?;
    done
}

fn not_posted(function: &str) -> Box<Error> {
    wrong(format!("{function} without MPI_Win_post"))
}

/// `MPI_Win_wait`.
///
/// # Errors
/// `MPI_ERR_WIN`; `MPI_ERR_RMA_SYNC` without a post.
pub fn wait(win: Win) -> Result<()> {
    let function = "MPI_Win_wait";
    let window = find(win)?;
    let mut awaited = lock(&window.epochs).posted.take().ok_or_else(|| not_posted(function))?;
    let come = window.wait(window.comm.cell, function, |engine| window.have_come(engine, &mut awaited));
    fence(Ordering::SeqCst);
    come
}

/// `MPI_Win_test`: whether [`wait`] would return at once, and then as that.
///
/// # Errors
/// As [`wait`].
pub fn test(win: Win) -> Result<bool> {
    let window = find(win)?;
    let mut awaited = lock(&window.epochs).posted.take().ok_or_else(|| not_posted("MPI_Win_test"))?;
    let come = {
        let mut engine = window.comm.cell.lock();
        engine.progress().map_err(fault)?;
        let come = window.have_come(&mut engine, &mut awaited);
        engine.polled(come.is_some());
        come.or_else(|| window.failed(&engine).map(Err))
    };
    if come.is_none() {
        lock(&window.epochs).posted = Some(awaited);
    }
    fence(Ordering::SeqCst);
    come.map_or(Ok(false), |come| come.map(|()| true))
}

/// `MPI_Win_lock`.
///
/// # Errors
/// `MPI_ERR_WIN`, `MPI_ERR_LOCKTYPE`, `MPI_ERR_RANK`, `MPI_ERR_ASSERT`; `MPI_ERR_RMA_SYNC` where this process has locked that rank or is in another access epoch.
pub fn lock_one(win: Win, lock_type: i32, rank: i32, assert: i32) -> Result<()> {
    let window = find(win)?;
    let exclusive = match lock_type {
        MPI_LOCK_EXCLUSIVE => true,
        MPI_LOCK_SHARED => false,
        _ => return Err(Error::new(MPI_ERR_LOCKTYPE, format!("lock_type = {lock_type} is neither MPI_LOCK_SHARED nor MPI_LOCK_EXCLUSIVE"))),
    };
    check_assert(assert, MPI_MODE_NOCHECK)?;
    let Some(rank) = window.rank(rank)? else { return Ok(()) };
    let unchecked = assert & MPI_MODE_NOCHECK != 0;
    {
        let mut epochs = lock(&window.epochs);
        window.may_lock(&epochs)?;
        if epochs.passive(rank) {
            return Err(wrong(format!("this process has locked rank {rank} already")));
        }
        epochs.locks.insert(rank, Held { exclusive, unchecked });
        epochs.fence = false;
    }
    let taken = if unchecked { Ok(()) } else { window.acquire("MPI_Win_lock", rank, exclusive) };
    if taken.is_err() {
        lock(&window.epochs).locks.remove(&rank);
    }
    taken
}

/// `MPI_Win_unlock`.
///
/// # Errors
/// `MPI_ERR_WIN`, `MPI_ERR_RANK`; `MPI_ERR_RMA_SYNC` without a lock; of what was done, `MPI_ERR_RMA_RANGE`.
pub fn unlock_one(win: Win, rank: i32) -> Result<()> {
    let function = "MPI_Win_unlock";
    let window = find(win)?;
    let Some(rank) = window.rank(rank)? else { return Ok(()) };
    let held = lock(&window.epochs).locks.remove(&rank).ok_or_else(|| wrong(format!("rank {rank} is not locked by MPI_Win_lock")))?;
    fence(Ordering::SeqCst);
    match held.unchecked {
        true => window.confirm(function, Some(rank))?,
        false => window.release(function, &[(rank, held.exclusive)])?,
    }
    window.look()
}

/// `MPI_Win_lock_all`.
///
/// # Errors
/// As [`lock_one`].
pub fn lock_all(win: Win, assert: i32) -> Result<()> {
    let function = "MPI_Win_lock_all";
    let window = find(win)?;
    check_assert(assert, MPI_MODE_NOCHECK)?;
    let taken = assert & MPI_MODE_NOCHECK == 0;
    {
        let mut epochs = lock(&window.epochs);
        window.may_lock(&epochs)?;
        if epochs.locked() {
            return Err(wrong("this process holds a lock of the window"));
        }
        epochs.all = Some(taken);
        epochs.fence = false;
    }
    let done = (0..if taken { window.ranks() } else { 0 }).try_for_each(|rank| window.acquire(function, rank, false));
    if done.is_err() {
        lock(&window.epochs).all = None;
    }
    done
}

/// `MPI_Win_unlock_all`.
///
/// # Errors
/// `MPI_ERR_WIN`; `MPI_ERR_RMA_SYNC` without a lock; of what was done, `MPI_ERR_RMA_RANGE`.
pub fn unlock_all(win: Win) -> Result<()> {
    let function = "MPI_Win_unlock_all";
    let window = find(win)?;
    let taken = lock(&window.epochs).all.take().ok_or_else(|| wrong("MPI_Win_unlock_all without MPI_Win_lock_all"))?;
    fence(Ordering::SeqCst);
    if !taken {
        window.flush_all(function)?;
        return window.look();
    }
    let ranks: Vec<(u32, bool)> = (0..window.ranks()).map(|rank| (rank, false)).collect();
    window.release(function, &ranks)?;
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
pub fn flush(function: &'static str, win: Win, flush: Flush) -> Result<()> {
    let window = find(win)?;
    let rank = match flush.rank {
        None => None,
        Some(rank) => match window.rank(rank)? {
            None => return Ok(()),
            some => some,
        },
    };
    let inside = rank.map_or_else(|| lock(&window.epochs).locked(), |rank| lock(&window.epochs).passive(rank));
    if !inside {
        return Err(wrong("flushed outside of a passive target epoch"));
    }
    let done = if flush.local { window.land(function, rank) } else { window.confirm(function, rank) };
    fence(Ordering::SeqCst);
    done.and(window.look())
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
