//! The engines of one process. Each communicator's messages are matched in one of them, which its context names; the engines share the doorbell of the
//! process and nothing else, so that threads on different communicators do not meet.
//!
//! Progress is common all the same (MPI-5.0 §3.5, §3.7.4): whoever waits in one engine looks after those that nobody attends to.

use crate::order::{Level, Ordered};
use crate::{Cell, Engine, Fault};
use fabric::local::{Resolver, Sleepers};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

/// Most engines of one process.
pub const VCIS: usize = fabric::local::VCIS;

/// All engines of one process. The first is there from the start, the others when a communicator first wants them.
pub struct Vcis {
    cells: [OnceLock<Cell<Engine>>; VCIS],
    shared: &'static Shared,
    opening: Ordered<()>,
}

/// What the engines of a process have in common, once there are several.
#[derive(Default)]
pub(crate) struct Shared {
    pub sleepers: Sleepers,
    completions: [Line; VCIS],
    /// How often each engine has made progress. A thread that only enters one, as whoever polls a collective does, attends to nothing there.
    progress: [Line; VCIS],
}

/// A count in a cache line of its own.
#[derive(Default)]
#[repr(align(128))]
struct Line(AtomicU64);

impl Shared {
    #[inline]
    pub fn publish(&self, vci: u8, completions: u64) {
        self.completions[vci as usize].0.store(completions, Ordering::Release);
    }

    /// The engine of `vci`, which the calling thread holds, has made what progress it could.
    #[inline]
    pub fn attend(&self, vci: u8) {
        let count = &self.progress[vci as usize].0;
        count.store(count.load(Ordering::Relaxed).wrapping_add(1), Ordering::Relaxed);
    }

    fn attended(&self, vci: usize) -> u64 {
        self.progress[vci].0.load(Ordering::Relaxed)
    }

    /// Completions of all engines but `vci`, as they last told.
    pub fn elsewhere(&self, vci: u8) -> u64 {
        self.completions.iter().enumerate().filter(|(at, _)| *at != vci as usize).map(|(_, line)| line.0.load(Ordering::Acquire)).sum()
    }
}

/// What came of looking after other engines.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Helped {
    /// Something moved.
    pub moved: bool,
    /// Nothing is under way there that only this process' progress could end.
    pub quiet: bool,
    /// One of them has a network, which does not wake whoever sleeps for others.
    pub networked: bool,
}

/// How often other engines had made progress when they were last looked at.
#[derive(Clone, Copy, Default)]
pub struct ProgressSeen([u64; VCIS]);

impl Vcis {
    pub fn new(engine: Engine, locking: bool) -> Vcis {
        let cells: [OnceLock<Cell<Engine>>; VCIS] = Default::default();
        let shared: &'static Shared = Box::leak(Box::default());
        let _ = cells[0].set(Cell::new(engine, locking));
        Vcis { cells, shared, opening: Ordered::new(Level::Opening, ()) }
    }

    /// The engine that is there from the start.
    #[inline]
    pub fn first(&self) -> &Cell<Engine> {
        self.cells[0].get().expect("set when it was made")
    }

    /// The engine of requests and contexts of `vci`. The first one's where there is none.
    #[inline]
    pub fn of(&self, vci: u8) -> &Cell<Engine> {
        self.cells.get(vci as usize).and_then(OnceLock::get).unwrap_or_else(|| self.first())
    }

    /// Whether there is more than one.
    #[inline]
    pub fn several(&self) -> bool {
        self.cells[1..].iter().any(|cell| cell.get().is_some())
    }

    /// All engines that there are, in the order of their numbers.
    pub fn all(&self) -> impl Iterator<Item = &Cell<Engine>> {
        self.cells.iter().filter_map(OnceLock::get)
    }

    /// The engine of `vci`, made if it is not there. `resolver` gives it the segments of others.
    pub fn open(&'static self, vci: u8, resolver: impl FnOnce() -> Resolver) -> Result<&'static Cell<Engine>, Fault> {
        if let Some(cell) = self.cells[vci as usize].get() {
            return Ok(cell);
        }
        let _one = self.opening.lock();
        if self.cells[vci as usize].get().is_none() {
            let first = self.first();
            let mut engine = first.lock();
            let made = engine.sibling(vci, resolver())?;
            engine.accompany(self);
            drop(engine);
            let cell = Cell::numbered(made, first.locking(), vci);
            cell.lock().accompany(self);
            let _ = self.cells[vci as usize].set(cell);
        }
        Ok(self.of(vci))
    }

    /// Turns locking on everywhere. Only while no other thread is inside.
    pub fn set_locking(&self) {
        let _one = self.opening.lock();
        self.all().for_each(|cell| cell.set_locking(true));
    }

    /// Looks after those engines other than `vci`, in which nothing may be held, that only the calling thread uses.
    pub fn help_own(&self, vci: u8) -> Helped {
        self.look_after(vci, &mut ProgressSeen::default(), |cell, _| if cell.mine() { Some(cell.lock()) } else { None })
    }

    /// Looks after the engines other than `vci`, in which nothing may be held. Those that have made progress since the last look at `seen` are left alone.
    pub fn help(&self, vci: u8, seen: &mut ProgressSeen) -> Helped {
        self.look_after(vci, seen, |cell, attended| if attended && !cell.mine() { None } else { cell.try_lock() })
    }

    /// Looks after all engines other than `vci`, in which nothing may be held.
    pub fn help_all(&self, vci: u8) -> Helped {
        self.look_after(vci, &mut ProgressSeen::default(), |cell, _| Some(cell.lock()))
    }

    /// `enter` is also told whether an engine has made progress since the last look at `seen`.
    fn look_after<'a>(&'a self, vci: u8, seen: &mut ProgressSeen, mut enter: impl FnMut(&'a Cell<Engine>, bool) -> Option<crate::Guard<'a, Engine>>) -> Helped {
        let mut helped = Helped { moved: false, quiet: true, networked: false };
        for (at, cell) in self.cells.iter().enumerate() {
            if at == vci as usize {
                continue;
            }
            let Some(cell) = cell.get() else { continue };
            let progress = self.shared.attended(at);
            let attended = std::mem::replace(&mut seen.0[at], progress) != progress;
            let Some(mut engine) = enter(cell, attended) else { continue };
            // What breaks it, it says to its own callers.
            helped.moved |= engine.progress().unwrap_or(false);
            seen.0[at] = self.shared.attended(at);
            helped.networked |= engine.networked();
            helped.quiet &= engine.quiet() || engine.fault().is_some();
        }
        helped
    }

    pub(crate) fn shared(&self) -> &'static Shared {
        self.shared
    }
}
