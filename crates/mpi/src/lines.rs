//! Short collectives through lines that all members share: each writes its own line and reads the others'.
//!
//! One step, whatever the number of ranks. A line is written again only when everybody has read it: a rank that
//! writes for the collective after next has seen everybody's line of the next one, and so everybody has finished this one. Hence two sets of lines in turn.

use crate::call::{Begun, Call};
use crate::comm::Comm;
use crate::error::Result;
use crate::link::Channel;
use crate::mismatch::{self, About};
use crate::request::Pauses;
use crate::world::{self, World, fault};
use engine::{Doing, LINE_WORDS, Line};
use std::cell::Cell;
use std::sync::Mutex;
use std::sync::atomic::{Ordering, compiler_fence, fence};

/// Most ranks that share lines; more take steps between pairs.
pub const RANKS_MAX: usize = 64;
/// Most bytes of one rank's contribution.
pub const BYTES_MAX: usize = LINE_WORDS * 8;
/// Looks at a line before the engine gets its turn, where every rank has a core.
const QUICK_LOOKS: u32 = 200;

/// Times that a rank gives its core away here, where others need it, before it waits as for any message.
const WAYS_GIVEN: u64 = 32;

/// Gives the core to the ranks that are waited for. Whether all lines are there.
fn give_way(comm: &Comm, all_here: &impl Fn() -> bool) -> Result<bool> {
    let start_ns = trace::now_ns();
    let (mut here, mut yields) = (false, 0);
    while !here && yields < WAYS_GIVEN {
        engine::yield_core();
        yields += 1;
        here = all_here();
        if !here {
            comm.engine().progress().map_err(fault)?;
        }
    }
    comm.engine().count_wait(trace::now_ns() - start_ns, yields);
    Ok(here)
}

/// The lines of one communicator: two sets of one line a rank, one that names who sleeps, one that names who has finished with them.
pub struct Lines {
    all: &'static [Line],
    ranks: usize,
    me: usize,
    /// Place in the first member's segment.
    place: u64,
    /// Collectives done through the lines.
    sequence: Mutex<u64>,
}

/// Lines in this process' segment whose communicator is gone here. They are used again when all members have finished with them.
static RETIRED: Mutex<Vec<(u64, &'static [Line])>> = Mutex::new(Vec::new());

const fn lines_of(ranks: usize) -> usize {
    2 * ranks + 2
}

/// Takes lines for `ranks` that everybody has finished with.
fn reuse(ranks: usize) -> Option<u64> {
    let mut retired = RETIRED.lock().unwrap_or_else(|e| e.into_inner());
    let at = retired.iter().position(|(_, all)| all.len() == lines_of(ranks) && all[2 * ranks + 1].count() == ranks)?;
    let (place, all) = retired.swap_remove(at);
    all.iter().for_each(Line::clear);
    Some(place)
}

impl Drop for Lines {
    fn drop(&mut self) {
        self.all[2 * self.ranks + 1].add(self.me);
        if self.me == 0 {
            RETIRED.lock().unwrap_or_else(|e| e.into_inner()).push((self.place, self.all));
        }
    }
}

/// How a collective went that is short enough for lines.
pub enum Short<T> {
    Done(T),
    /// There are none: it has its number, and takes steps between pairs. Once these are over, [`settle`] is called.
    Long(Begun),
}

/// Does `call` through the lines of `comm`; the first short collective makes them. `mine` and `read` as in
/// [`Lines::exchange`].
#[inline(always)]
pub fn short<T>(comm: &'static Comm, function: &'static str, call: Call, mine: &[u64], read: impl FnOnce(&[Line]) -> T) -> Result<Short<T>> {
    let begun = comm.calls.begin(call);
    match comm.lines.get() {
        Some(Some(lines)) => lines.exchange(comm, function, begun, mine, read).map(Short::Done),
        Some(None) => Ok(Short::Long(begun)),
        None => first(comm, function, begun, mine, read),
    }
}

/// All members have the lines, or none has, once the collective is over that made them: it is over for nobody where one
/// has called another one.
#[cold]
fn first<T>(comm: &'static Comm, function: &'static str, begun: Begun, mine: &[u64], read: impl FnOnce(&[Line]) -> T) -> Result<Short<T>> {
    let Some(lines) = Lines::agree(comm, function, begun)? else { return Ok(Short::Long(begun)) };
    let result = lines.exchange(comm, function, begun, mine, read)?;
    comm.lines.get_or_init(|| Some(lines));
    Ok(Short::Done(result))
}

/// There are no lines for `comm`, as all members know now.
pub fn settle(comm: &Comm) {
    comm.lines.get_or_init(|| None);
}

impl Lines {
    /// Makes the lines of `comm` together with its other members, as a part of the short collective that has `begun`.
    /// `None` when they share no memory, or none is left.
    fn agree(comm: &'static Comm, function: &'static str, begun: Begun) -> Result<Option<Lines>> {
        let (ranks, me) = (comm.size() as usize, comm.rank as usize);
        let world = world::get()?;
        // They all see the same: who shares memory with one of them shares it with all.
        if !(2..=RANKS_MAX).contains(&ranks) || (0..ranks as u32).any(|rank| !comm.engine().near(comm.group.process(rank))) {
            return Ok(None);
        }
        // Place of the lines in the first member's segment; 0 stands for "none", since a segment begins with its head.
        let mut place = 0u64;
        if me == 0 {
            place = match reuse(ranks) {
                Some(place) => place,
                None => comm.engine().share(lines_of(ranks)).unwrap_or(0),
            };
        }
        let mut bytes = place.to_ne_bytes();
        let channel = Channel::begun(comm, begun)?;
        crate::link::block(comm.cell, function, crate::coll::bcast(&channel, &world.tuning, &mut bytes, 0))?;
        let place = u64::from_ne_bytes(bytes);
        if place == 0 {
            return Ok(None);
        }
        let owner = comm.group.process(0);
        let mapped = |engine: &mut engine::Engine| match engine.context_failed(comm.coll) {
            Some(why) => Some(Err(why)),
            None => engine.lines(owner, place, lines_of(ranks)).transpose(),
        };
        let within = || {
            mismatch::waits_within(comm.context, begun.tag);
            None
        };
        let all = crate::request::wait_asking(world, comm.cell, Doing::call(function), &mut Pauses::new(world, comm.cell), mapped, within)?.map_err(fault)?;
        Ok(Some(Lines { all, ranks, me, place, sequence: Mutex::new(0) }))
    }

    /// Publishes `mine` as this rank's part of the call that has `begun` and waits until everybody has published
    /// theirs; then `read` is called with the lines in order of rank. A line's mark holds number and summary of the
    /// call, so that another call's line is never taken for one of this.
    // Inlined: where a call is known when the library is built, so is the summary in its mark.
    #[inline(always)]
    fn exchange<T>(&self, comm: &'static Comm, function: &'static str, begun: Begun, mine: &[u64], read: impl FnOnce(&[Line]) -> T) -> Result<T> {
        let world = world::get()?;
        mismatch::check(comm, begun.tag)?;
        let mut sequence = self.sequence.lock().unwrap_or_else(|e| e.into_inner());
        // Counted when it is over: where one rank calls another collective, its line stays away, and it is over for
        // nobody.
        let now = *sequence + 1;
        let from = if now.is_multiple_of(2) { self.ranks } else { 0 };
        let (lines, sleepers) = (&self.all[from..from + self.ranks], &self.all[2 * self.ranks]);
        let mark = now & u32::MAX as u64 | (begun.tag as u64) << 32;
        lines[self.me].write(mark, mine);
        let seen = Cell::new(0);
        let all_here = || {
            let mut at = seen.get();
            while at < self.ranks && lines[at].holds(mark) {
                at += 1;
            }
            seen.set(at);
            at == self.ranks
        };
        let mut here = all_here();
        if !here && world.crowded {
            here = give_way(comm, &all_here)?;
        } else if !here {
            for _ in 0..QUICK_LOOKS {
                std::hint::spin_loop();
                here = all_here();
                if here {
                    break;
                }
            }
        }
        if !here {
            let me = self.me;
            comm.engine().watch(sleepers, me);
            let over = |engine: &mut engine::Engine| if all_here() { Some(None) } else { engine.context_failed(comm.coll).map(|why| Some(fault(why))) };
            let asked = || {
                crate::request::poll_tasks_asking(false);
                let about = About { context: comm.context, rank: comm.rank, begun };
                let missing = seen.get();
                (missing < self.ranks)
                    .then(|| mismatch::while_asking(true, || mismatch::ask(world, &about, comm.group.process(missing as u32))).err())
                    .flatten()
                    .map(Some)
            };
            let waited = crate::request::wait_asking(world, comm.cell, Doing::call(function), &mut Pauses::new(world, comm.cell), over, asked);
            comm.engine().unwatch(sleepers, me);
            if let Some(why) = waited? {
                return Err(why);
            }
        }
        let result = read(lines);
        *sequence = now;
        self.wake(comm, world, sleepers)?;
        Ok(result)
    }

    /// Whoever sees all lines wakes those that sleep for them.
    #[inline]
    fn wake(&self, comm: &'static Comm, world: &World, sleepers: &'static Line) -> Result<()> {
        if world.must_fence {
            fence(Ordering::SeqCst);
        } else {
            // A sleeper's heavy fence makes the order of our line and this look real.
            compiler_fence(Ordering::SeqCst);
        }
        let mut failed = None;
        sleepers.take_all(|member| {
            if let Err(e) = comm.engine().nudge(comm.group.process(member as u32)) {
                failed = Some(fault(e));
            }
        });
        failed.map_or(Ok(()), Err)
    }
}
