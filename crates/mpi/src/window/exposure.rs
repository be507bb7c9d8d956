//! Post, start, complete and wait (MPI-5.0 §12.5.2).
//!
//! Where all ranks share lines, and a word has a bit for each, who posts sets its bit in the line of each rank of its group, and who completes counts in the
//! line of each target. Between a post and the wait that ends it each rank of the group starts once, which takes the bit, and completes once: a bit is never
//! set twice, and the count is only read to the end by who waits, which then makes it zero before it posts again. Elsewhere both are messages without data.

use super::epoch::{FENCE, Posted, Ranks, START, change_state, check_assert, is_locked, threads, wrong};
use super::memory::{STARTED, Word};
use super::{Window, find, lock};
use crate::consts::*;
use crate::error::{Error, Result};
use crate::group::{self, Group};
use crate::handle::{self, Win};
use crate::p2p::check_outcome;
use crate::world::fault;
use engine::{Buffer, Engine, Mode, Pattern, RequestId, Target};
use std::sync::atomic::{Ordering, fence};

/// Tags of messages without data, on the point-to-point context of the window's communicator.
const POSTED_TAG: i32 = 1;
const COMPLETE_TAG: i32 = 2;

impl Window {
    /// Whether posts and completions go by shared lines.
    fn by_lines(&self) -> bool {
        self.locks_shared && self.ranks() <= u64::BITS
    }

    /// Sends a message without data to each of `ranks`.
    fn tell(&self, ranks: &[u32], tag: i32) -> Result<()> {
        let mut engine = self.comm.cell.lock();
        for rank in ranks {
            let to = Target { process: self.comm.group.process(*rank), context: self.comm.context, source: self.comm.rank, tag };
            let sent = engine.without_coalescing(|engine| engine.send(&to, &Buffer::EMPTY, Mode::Standard)).map_err(fault)?;
            sent.into_iter().for_each(|id| engine.detach(id));
        }
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

    /// Whether `count` ranks have completed; then nobody counts until this rank posts again.
    fn completed(&self, count: u64) -> bool {
        let completed = self.memory.word(self.comm.rank, Word::Completed);
        let all = completed.load(Ordering::Acquire) == count;
        if all {
            completed.store(0, Ordering::Relaxed);
        }
        all
    }

    /// Ranks of this window of the members of `group`: bits where [`Window::by_lines`].
    fn ranks_of(&self, group: &Group) -> Result<Ranks> {
        let rank_of = |process| self.comm.group.rank_of(process).ok_or_else(|| Error::new(MPI_ERR_GROUP, "the group has a member that is not of the window"));
        if self.by_lines() {
            return group.processes().try_fold(0, |bits, process| Ok(bits | 1 << rank_of(process)?)).map(Ranks::Bits);
        }
        let mut ranks = group.processes().map(rank_of).collect::<Result<Vec<u32>>>()?;
        ranks.sort_unstable();
        Ok(Ranks::List(ranks))
    }
}

/// `MPI_Win_post`.
///
/// # Errors
/// `MPI_ERR_WIN`, `MPI_ERR_GROUP`, `MPI_ERR_ASSERT`; `MPI_ERR_RMA_SYNC` where the one before has not been ended.
pub fn post(win: Win, group: handle::Group, assert: i32) -> Result<()> {
    let window = find(win)?;
    check_assert(assert, MPI_MODE_NOCHECK | MPI_MODE_NOSTORE | MPI_MODE_NOPUT)?;
    let ranks = window.ranks_of(group::here(group)?)?;
    let mut lists = lock(&window.epochs.lists);
    if lists.posted.is_some() {
        return Err(wrong("MPI_Win_post has not been ended by MPI_Win_wait"));
    }
    window.epochs.fence_is_over(window.epochs.mode())?;
    fence(Ordering::Release);
    lists.posted = Some(match &ranks {
        Ranks::Bits(bits) => Posted::Count(u64::from(bits.count_ones())),
        Ranks::List(ranks) => Posted::Messages(window.await_all(ranks, COMPLETE_TAG)?),
    });
    drop(lists);
    window.epochs.change(threads()?, 0, FENCE);
    if let Ranks::List(ranks) = &ranks {
        return window.tell(ranks, POSTED_TAG);
    }
    ranks.try_each(|rank| {
        window.memory.word(rank, Word::Posted).fetch_or(1 << window.comm.rank, Ordering::SeqCst);
        window.wake(rank)
    })
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
    let threads = threads()?;
    window.epochs.update(threads, |mode| {
        window.epochs.may_begin(mode)?;
        if is_locked(mode) { Err(wrong("this process holds a lock of the window")) } else { Ok(mode & !FENCE) }
    })?;
    match &ranks {
        Ranks::Bits(bits) => {
            let posted = window.memory.word(window.comm.rank, Word::Posted);
            window.until(function, window.comm.rank, || posted.load(Ordering::Acquire) & bits == *bits)?;
            posted.fetch_and(!bits, Ordering::AcqRel);
        }
        Ranks::List(ranks) => {
            let mut awaited = window.await_all(ranks, POSTED_TAG)?;
            window.wait(window.comm.cell, function, |engine| window.have_come(engine, &mut awaited))?;
        }
    }
    fence(Ordering::Acquire);
    ranks.try_each(|rank| {
        change_state(window.memory.part(rank), threads, STARTED, 0);
        Ok(())
    })?;
    lock(&window.epochs.lists).started = ranks;
    window.epochs.change(threads, START, 0);
    Ok(())
}

/// `MPI_Win_complete`.
///
/// # Errors
/// `MPI_ERR_WIN`; `MPI_ERR_RMA_SYNC` without a start; of what was done, `MPI_ERR_RMA_RANGE`.
pub fn complete(win: Win) -> Result<()> {
    let function = "MPI_Win_complete";
    let window = find(win)?;
    let threads = threads()?;
    window.epochs.update(threads, |mode| match mode & START {
        0 => Err(wrong("MPI_Win_complete without MPI_Win_start")),
        _ => Ok(mode & !START),
    })?;
    let ranks = std::mem::take(&mut lock(&window.epochs.lists).started);
    ranks.try_each(|rank| {
        change_state(window.memory.part(rank), threads, 0, STARTED);
        Ok(())
    })?;
    let done = window.flush_all(function);
    match &ranks {
        Ranks::Bits(_) => ranks.try_each(|rank| {
            window.memory.word(rank, Word::Completed).fetch_add(1, Ordering::SeqCst);
            window.wake(rank)
        })?,
        Ranks::List(ranks) => window.tell(ranks, COMPLETE_TAG)?,
    }
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
    let posted = lock(&window.epochs.lists).posted.take().ok_or_else(|| not_posted(function))?;
    let come = match posted {
        Posted::Count(count) => window.until(function, window.comm.rank, || window.completed(count)),
        Posted::Messages(mut awaited) => window.wait(window.comm.cell, function, |engine| window.have_come(engine, &mut awaited)),
    };
    fence(Ordering::Acquire);
    come
}

/// `MPI_Win_test`: whether [`wait`] would return at once, and then as that.
///
/// # Errors
/// As [`wait`].
pub fn test(win: Win) -> Result<bool> {
    let window = find(win)?;
    let mut posted = lock(&window.epochs.lists).posted.take().ok_or_else(|| not_posted("MPI_Win_test"))?;
    let come = {
        let mut engine = window.comm.cell.lock();
        engine.progress().map_err(fault)?;
        let come = match &mut posted {
            Posted::Count(count) => window.completed(*count).then_some(Ok(())),
            Posted::Messages(awaited) => window.have_come(&mut engine, awaited),
        };
        engine.polled(come.is_some());
        come.or_else(|| window.failed(&engine).map(Err))
    };
    if come.is_none() {
        lock(&window.epochs.lists).posted = Some(posted);
    }
    fence(Ordering::Acquire);
    come.map_or(Ok(false), |come| come.map(|()| true))
}
