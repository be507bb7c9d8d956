//! Locks of a window's ranks (MPI-5.0 §12.5.3): tickets in shared memory, or a queue at the target.
//!
//! Whoever waits for something of a line in shared memory leaves its bit there before it looks for the last time; whoever changes the line takes all bits
//! out and wakes these ranks. Some are woken in vain: all that wait for one lock, and those whose wait has ended since.

use super::memory::Word;
use super::{Window, ticket};
use crate::error::Result;
use crate::lines::look_quickly;
use crate::request;
use crate::world::{self, fault};
use engine::{Doing, LivenessWatch};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Looks before who waits for elements gives way to others.
const SPINS: u32 = 200;
/// Looks, those and more that give the core away each, before who waits for elements sleeps between looks, and for how long.
const YIELDS: u32 = 1000;
const NAP: Duration = Duration::from_micros(50);
/// How long such a rank waits in one engine before it looks after the others of this process.
const PAUSE: Duration = Duration::from_millis(100);
/// After that long it matters whether those live that are waited for.
const LIVENESS_AFTER: Duration = Duration::from_secs(1);
/// Ranks that share a bit of [`Word::Sleepers`] are so far apart.
const SLEEPERS: u32 = u64::BITS;

impl Window {
    /// Waits until `free` says so, which other processes bring about by changing the line of `rank` in shared memory.
    pub(super) fn until(&self, function: &'static str, rank: u32, free: impl Fn() -> bool) -> Result<()> {
        if free() || look_quickly(&free) {
            return Ok(());
        }
        let (world, start) = (world::get()?, Instant::now());
        let (mut wait, mut first_liveness) = (LivenessWatch::new(self.comm.cell), LivenessWatch::new(world.engine()));
        let (sleepers, bit) = (self.memory.word(rank, Word::Sleepers), 1 << (self.comm.rank % SLEEPERS));
        loop {
            let ready = |_: &mut engine::Engine| {
                // The bit first, then one more look: whoever changes the line meanwhile does it before it looks for bits.
                let free = free() || (sleepers.load(Ordering::Relaxed) & bit == 0 && sleepers.fetch_or(bit, Ordering::SeqCst) & bit == 0 && free());
                free.then_some(())
            };
            if engine::wait_for(self.comm.cell, world.board(), Doing::call(function), PAUSE.as_nanos() as u64, &mut wait, ready).map_err(fault)?.is_some() {
                return Ok(());
            }
            request::poll_tasks();
            let mut first = world.engine().lock();
            if start.elapsed() > LIVENESS_AFTER {
                first_liveness.look(&mut first, None);
            }
            if let Some(why) = self.failed(&first) {
                return Err(why);
            }
        }
    }

    /// Wakes all that sleep for something of the line of `rank`, after it was changed by a sequentially consistent instruction.
    #[inline]
    pub(super) fn wake(&self, rank: u32) -> Result<()> {
        match self.memory.word(rank, Word::Sleepers).load(Ordering::SeqCst) {
            0 => Ok(()),
            _ => self.wake_sleepers(rank),
        }
    }

    #[cold]
    fn wake_sleepers(&self, rank: u32) -> Result<()> {
        let mut bits = self.memory.word(rank, Word::Sleepers).swap(0, Ordering::SeqCst);
        let mut engine = self.comm.cell.lock();
        while bits != 0 {
            let first = bits.trailing_zeros();
            bits &= bits - 1;
            for sleeper in (first..self.ranks()).step_by(SLEEPERS as usize) {
                engine.wake(self.comm.group.process(sleeper)).map_err(fault)?;
            }
        }
        Ok(())
    }

    /// Takes the lock of `rank`, in the order in which ranks ask for it.
    ///
    /// # Errors
    /// `MPI_ERR_PROC_ABORTED` where a process of the window has failed, which may hold it.
    #[inline]
    pub(super) fn acquire(&self, function: &'static str, rank: u32, exclusive: bool) -> Result<()> {
        if !self.locks_shared {
            return self.ask_lock(function, rank, exclusive);
        }
        let ticket = ticket::enter(self.memory.word(rank, Word::Lock), exclusive);
        if ticket.is_some() || (exclusive && !ticket::nobody(self.everyone())) {
            return self.await_turn(function, rank, ticket, exclusive);
        }
        Ok(())
    }

    /// How many hold the locks of all ranks by one word.
    #[inline]
    fn everyone(&self) -> &AtomicU64 {
        self.memory.word(self.ranks(), Word::Everyone)
    }

    /// Takes the locks of all ranks, to share them; says whether each has been taken by itself.
    #[inline]
    pub(super) fn acquire_all(&self, function: &'static str) -> Result<bool> {
        if self.locks_shared {
            if ticket::enter_all(self.everyone(), (0..self.ranks()).map(|rank| self.memory.word(rank, Word::Lock))) {
                return Ok(false);
            }
            self.wake(self.ranks())?;
        }
        (0..self.ranks()).try_for_each(|rank| self.acquire(function, rank, false)).map(|()| true)
    }

    #[cold]
    fn await_turn(&self, function: &'static str, rank: u32, ticket: Option<u64>, exclusive: bool) -> Result<()> {
        let word = self.memory.word(rank, Word::Lock);
        if let Some(ticket) = ticket {
            self.until(function, rank, || ticket::has_turn(word, ticket, exclusive))?;
        }
        match exclusive {
            true => self.until(function, self.ranks(), || ticket::nobody(self.everyone())),
            // The next one may share it too.
            false => self.wake(rank),
        }
    }

    /// Gives the lock of one rank back, after all that was asked of it has been done. What was stored there is seen by all from then on.
    #[inline]
    pub(super) fn release_one(&self, function: &'static str, rank: u32, exclusive: bool) -> Result<()> {
        if !self.locks_shared {
            return self.give_back(function, &[rank]);
        }
        let done = if self.messages.is_none() { Ok(()) } else { self.confirm(function, Some(rank)) };
        ticket::leave(self.memory.word(rank, Word::Lock), exclusive);
        done.and(self.wake(rank))
    }

    /// Gives the locks of all ranks back, which are shared; `each`: as [`Window::acquire_all`] said.
    #[inline]
    pub(super) fn release_all(&self, function: &'static str, each: bool) -> Result<()> {
        if !self.locks_shared {
            return self.give_back(function, &(0..self.ranks()).collect::<Vec<u32>>());
        }
        if !each {
            let done = if self.messages.is_none() { Ok(()) } else { self.confirm(function, None) };
            ticket::leave_all(self.everyone());
            return done.and(self.wake(self.ranks()));
        }
        (0..self.ranks()).map(|rank| self.release_one(function, rank, false)).fold(Ok(()), Result::and)
    }

    /// Keeps others from changing elements of `rank`. Every accumulate to memory that ranks share takes this, so that long ones cost one atomic instruction
    /// and not one an element. It is held for at most [`super::call::PART_BYTES`]: nobody sleeps for it, and letting it go is a plain store.
    #[inline]
    pub(super) fn lock_elements(&self, rank: u32) -> Result<Elements<'_>> {
        let word = self.memory.word(rank, Word::Elements);
        if word.swap(1, Ordering::Acquire) != 0 {
            self.await_elements(word)?;
        }
        Ok(Elements(word))
    }

    /// Waits for the elements; who has them may wait for this core.
    #[cold]
    fn await_elements(&self, word: &AtomicU64) -> Result<()> {
        let free = || word.load(Ordering::Relaxed) == 0 && word.swap(1, Ordering::Acquire) == 0;
        for look in 0..YIELDS {
            if free() {
                return Ok(());
            }
            if look < SPINS { std::hint::spin_loop() } else { engine::yield_core() }
        }
        let (world, start) = (world::get()?, Instant::now());
        let mut liveness = LivenessWatch::new(world.engine());
        while !free() {
            std::thread::sleep(NAP);
            let mut first = world.engine().lock();
            first.progress().map_err(fault)?;
            if start.elapsed() > LIVENESS_AFTER {
                liveness.look(&mut first, None);
            }
            if let Some(why) = self.failed(&first) {
                return Err(why);
            }
        }
        Ok(())
    }
}

/// The elements of a rank, which are let go when this is dropped.
pub(super) struct Elements<'a>(&'a AtomicU64);

impl Drop for Elements<'_> {
    #[inline]
    fn drop(&mut self) {
        self.0.store(0, Ordering::Release);
    }
}
