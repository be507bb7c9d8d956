//! Waiting, and asking, while operations of several steps go on and collectives are compared that do not end.

use super::task::{FlagsWatched, flags_ready, poll_tasks, tasks_running};
use crate::error::Result;
use crate::mismatch;
use crate::world::{self, World, fault};
use engine::{Cell, Doing, Engine, LivenessWatch, ProgressSeen, Vcis};

/// Waits until `ready` says something; operations of several steps go on meanwhile.
#[inline]
pub fn wait_for<T>(world: &World, cell: &Cell<Engine>, doing: Doing, mut ready: impl FnMut(&mut Engine) -> Option<T>) -> Result<T> {
    if !tasks_running() {
        let mut engine = cell.lock();
        engine.flush_coalesced();
        if let Some(value) = engine.look_briefly(&mut ready).map_err(fault)? {
            return Ok(value);
        }
    }
    let asked = || {
        poll_tasks_asking(false);
        None
    };
    wait_asking(world, cell, doing, &mut Pauses::new(world, cell), ready, asked)
}

/// As [`poll_tasks`]; operations that must wait ask whom they wait for. `alone`: this thread waits for nothing else.
#[cold]
#[inline(never)]
pub(crate) fn poll_tasks_asking(alone: bool) {
    if tasks_running() {
        mismatch::while_asking(alone, poll_tasks);
    }
}

/// Longest pause between looks whether collectives match, as a multiple of the first.
const CHECK_PAUSES_MAX: u64 = 16;

/// Tries of a wait between readings of the clock.
const TRIES_PER_READING: u32 = 8;

/// When a wait is to look whether collectives match. Whatever else completes lets a wait try anew, and puts the look
/// off by no more than [`TRIES_PER_READING`] pauses.
pub struct Pauses<'c> {
    /// For whose failure it looks meanwhile.
    liveness: LivenessWatch<'c>,
    pause_ns: u64,
    longest_ns: u64,
    tries: u32,
    /// When the pause began, as far as the clock has been read.
    since_ns: Option<u64>,
    /// Others have been asked.
    long: bool,
}

impl<'c> Pauses<'c> {
    #[inline]
    pub fn new(world: &World, cell: &'c Cell<Engine>) -> Pauses<'c> {
        let pause_ns = world.collective_check_ns;
        Pauses { liveness: LivenessWatch::new(cell), pause_ns, longest_ns: pause_ns.saturating_mul(CHECK_PAUSES_MAX), tries: 0, since_ns: None, long: false }
    }

    /// How long the next try may last, ns; 0 where the pause is over.
    #[inline]
    fn left_ns(&mut self) -> u64 {
        self.tries = self.tries.wrapping_add(1);
        if self.tries % TRIES_PER_READING == 2 { self.read() } else { self.pause_ns }
    }

    /// As [`Pauses::left_ns`], by the clock.
    fn read(&mut self) -> u64 {
        if self.pause_ns == u64::MAX {
            return u64::MAX;
        }
        let now_ns = trace::now_ns();
        let since_ns = *self.since_ns.get_or_insert(now_ns);
        self.pause_ns.saturating_sub(now_ns - since_ns)
    }

    /// A look is over.
    fn next(&mut self) {
        self.pause_ns = self.pause_ns.saturating_mul(2).min(self.longest_ns);
        self.since_ns = Some(trace::now_ns());
    }
}

impl Drop for Pauses<'_> {
    fn drop(&mut self) {
        if self.long {
            goes_on();
        }
    }
}

/// Apart, so that a short wait does not look up the thread's own storage.
#[cold]
#[inline(never)]
fn goes_on() {
    mismatch::goes_on();
}

/// As [`wait_for`]. Now and then `asked` is called too, without the engine: collectives that have waited for long ask whether they
/// [match](mismatch). `pauses` are those of a wait that goes on over several of these calls.
pub fn wait_asking<T>(
    world: &World,
    cell: &Cell<Engine>,
    doing: Doing,
    pauses: &mut Pauses,
    mut ready: impl FnMut(&mut Engine) -> Option<T>,
    mut asked: impl FnMut() -> Option<T>,
) -> Result<T> {
    let mut limit_ns = pauses.left_ns();
    loop {
        let before = if tasks_running() {
            let before = cell.lock().completions_anywhere();
            poll_tasks();
            Some(before)
        } else {
            None
        };
        let watched = FlagsWatched::new(cell);
        let found = engine::wait_for(cell, world.board(), doing, limit_ns, &mut pauses.liveness, |e| {
            if let Some(value) = ready(e) {
                return Some(Some(value));
            }
            // Anything that completes may let a task go on, and so may flags; another thread may have started one.
            let idle = match before {
                None => !tasks_running(),
                Some(before) => e.completions_anywhere() == before && tasks_running() && !flags_ready(e),
            };
            if idle { None } else { Some(None) }
        })
        .map_err(fault)?;
        drop(watched);
        match found {
            Some(Some(value)) => return Ok(value),
            Some(None) => limit_ns = pauses.left_ns(),
            None => limit_ns = 0,
        }
        if limit_ns == 0 {
            pauses.long = true;
            // Whoever asks says which collective this thread is in, which answers to others depend on.
            if let Some(value) = asked() {
                return Ok(value);
            }
            if mismatch::look(world)
                && let Some(value) = asked()
            {
                return Ok(value);
            }
            pauses.next();
            limit_ns = pauses.pause_ns;
        }
    }
}

/// One look at what may need progress: asks, makes progress if there is nothing, and asks again; gives the core away where others need it.
pub(crate) fn try_for<T>(cell: &Cell<Engine>, mut ask: impl FnMut(&mut Engine) -> Result<Option<T>>) -> Result<Option<T>> {
    let world = world::get()?;
    let mut engine = cell.lock();
    engine.flush_coalesced();
    if let Some(found) = ask(&mut engine)? {
        engine.polled(true);
        return Ok(Some(found));
    }
    let before = engine.completions();
    let moved = engine.progress().map_err(fault)?;
    let siblings = engine.siblings();
    if !moved && engine.completions() == before && !tasks_running() && siblings.is_none() && !engine.has_failures() {
        // Nothing has come that could be another answer.
        engine.polled(false);
        drop(engine);
        pause(world, cell, before);
        return Ok(None);
    }
    if tasks_running() || siblings.is_some() {
        let vci = engine.vci();
        drop(engine);
        if let Some(siblings) = siblings {
            help(siblings, vci);
        }
        poll_tasks();
        engine = cell.lock();
    }
    let found = ask(&mut engine)?;
    engine.polled(found.is_some());
    let completions = engine.completions();
    drop(engine);
    if found.is_none() {
        pause(world, cell, completions);
    }
    Ok(found)
}

/// Looks after the engines that the one of `vci`, which is looked at, does not stand for: now and then only where other threads may be at it.
fn help(siblings: &Vcis, vci: u8) {
    const LOOKS: u32 = 16;
    thread_local!(static LOOKED: std::cell::Cell<(u32, ProgressSeen)> = std::cell::Cell::new((0, ProgressSeen::default())));
    let (looks, mut seen) = LOOKED.get();
    if looks.is_multiple_of(LOOKS) {
        siblings.help(vci, &mut seen);
    } else {
        siblings.help_own(vci);
    }
    LOOKED.set((looks.wrapping_add(1), seen));
}

/// Looks that have found nothing since something completed last.
#[derive(Clone, Copy)]
struct InVain {
    completions: u64,
    /// How often the core was given away, and looks until it is given away next.
    given: u32,
    left: u32,
}

impl InVain {
    /// So often the core is given away after each look; then after two, four and so on, up to so many.
    const GIVEN_EACH: u32 = 16;
    const LOOKS_MAX: u32 = 512;

    const fn since(completions: u64) -> InVain {
        InVain { completions, given: 0, left: 0 }
    }

    /// One more, by when so much had completed: whether the core is to be given away. A program that only looks until something comes soon gets it so; one that
    /// works between its looks would lose more by each change of processes than it works.
    fn gives(&mut self, completions: u64) -> bool {
        if self.completions != completions {
            *self = InVain::since(completions);
        }
        if self.left > 0 {
            self.left -= 1;
            return false;
        }
        self.given = self.given.saturating_add(1);
        self.left = self.given.checked_sub(InVain::GIVEN_EACH).map_or(0, |more| (1 << more.min(31)).min(InVain::LOOKS_MAX) - 1);
        true
    }
}

/// After a look that found nothing, by when so much had completed: gives the core away where another rank needs it, and now and then where another thread may.
fn pause(world: &World, cell: &Cell<Engine>, completions: u64) {
    /// A look costs a tenth of what giving the core away does.
    const LOOKS: u32 = 16;
    thread_local!(static LOOKED: std::cell::Cell<u32> = const { std::cell::Cell::new(0) });
    thread_local!(static IN_VAIN: std::cell::Cell<InVain> = const { std::cell::Cell::new(InVain::since(0)) });
    if world.crowded {
        let mut in_vain = IN_VAIN.get();
        let gives = in_vain.gives(completions);
        IN_VAIN.set(in_vain);
        if gives {
            drop(engine::give_core(cell, cell.lock()));
        }
    } else if cell.shared() {
        LOOKED.set(LOOKED.get() + 1);
        if LOOKED.get() == LOOKS {
            LOOKED.set(0);
            engine::yield_core();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn given(in_vain: &mut InVain, looks: u32, completions: u64) -> u32 {
        (0..looks).filter(|_| in_vain.gives(completions)).count() as u32
    }

    #[test]
    fn who_looks_in_vain_for_long_gives_its_core_away_less_often_until_something_completes() {
        let mut in_vain = InVain::since(7);
        assert_eq!(given(&mut in_vain, InVain::GIVEN_EACH, 7), InVain::GIVEN_EACH);
        assert_eq!(given(&mut in_vain, InVain::LOOKS_MAX - 1, 7), InVain::LOOKS_MAX.ilog2());
        assert_eq!(given(&mut in_vain, 100 * InVain::LOOKS_MAX, 7), 100);
        assert_eq!(given(&mut in_vain, InVain::GIVEN_EACH, 8), InVain::GIVEN_EACH);
    }
}
