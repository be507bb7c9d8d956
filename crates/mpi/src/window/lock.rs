//! Locks of a window's ranks (MPI-5.0 §12.5.3): tickets in shared memory, or a queue at the target.
//!
//! Whoever waits for something of a line in shared memory leaves its bit there before it looks for the last time; whoever changes the line takes all bits
//! out and wakes these ranks. Some are woken in vain: all that wait for one lock, and those whose wait has ended since.

use super::Window;
use super::memory::{ELEMENTS, Word};
use crate::error::Result;
use crate::request;
use crate::world::{self, fault};
use engine::{Doing, Heed};
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// Looks before a rank that waits for another one's lock gives way to others.
const SPINS: u32 = 200;
/// How long such a rank waits in one engine before it looks after the others of this process.
const PAUSE: Duration = Duration::from_millis(100);
/// After that long it matters whether those live that are waited for.
const HEED: Duration = Duration::from_secs(1);
/// Ranks that share a bit of [`Word::Sleepers`] are so far apart.
const SLEEPERS: u32 = u64::BITS;

impl Window {
    /// Waits until `free` says so, which other processes bring about by changing the line of `rank` in shared memory.
    fn until(&self, function: &'static str, rank: u32, free: impl Fn() -> bool) -> Result<()> {
        for _ in 0..SPINS {
            if free() {
                return Ok(());
            }
            std::hint::spin_loop();
        }
        let (world, start) = (world::get()?, Instant::now());
        let (mut wait, mut first_heed) = (Heed::new(self.comm.cell), Heed::new(world.engine()));
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
            if start.elapsed() > HEED {
                first_heed.look(&mut first, None);
            }
            if let Some(why) = self.failed(&first) {
                return Err(why);
            }
        }
    }

    /// Wakes all that sleep for something of the line of `rank`, after it was changed by a sequentially consistent instruction.
    #[inline]
    fn wake(&self, rank: u32) -> Result<()> {
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
                engine.nudge(self.comm.group.process(sleeper)).map_err(fault)?;
            }
        }
        Ok(())
    }

    /// Takes the lock of `rank`, in the order in which ranks ask for it.
    ///
    /// # Errors
    /// `MPI_ERR_PROC_ABORTED` where a process of the window has failed, which may hold it.
    pub(super) fn acquire(&self, function: &'static str, rank: u32, exclusive: bool) -> Result<()> {
        if !self.locks_shared {
            return self.ask_lock(function, rank, exclusive);
        }
        let [next, serving, readers] = [Word::Next, Word::Serving, Word::Readers].map(|word| self.memory.word(rank, word));
        let ticket = next.fetch_add(1, Ordering::AcqRel);
        self.until(function, rank, || serving.load(Ordering::Acquire) == ticket)?;
        if exclusive {
            return self.until(function, rank, || readers.load(Ordering::Acquire) % ELEMENTS == 0);
        }
        readers.fetch_add(1, Ordering::AcqRel);
        serving.fetch_add(1, Ordering::SeqCst);
        self.wake(rank)
    }

    /// Gives the locks of `ranks` back, after all that was asked of them under these has been done.
    pub(super) fn release(&self, function: &'static str, ranks: &[(u32, bool)]) -> Result<()> {
        if !self.locks_shared {
            let ranks: Vec<u32> = ranks.iter().map(|(rank, _)| *rank).collect();
            return self.give_back(function, &ranks);
        }
        let mut done = Ok(());
        for (rank, exclusive) in ranks {
            done = done.and(self.confirm(function, Some(*rank)));
            match exclusive {
                true => self.memory.word(*rank, Word::Serving).fetch_add(1, Ordering::SeqCst),
                false => self.memory.word(*rank, Word::Readers).fetch_sub(1, Ordering::SeqCst),
            };
            done = done.and(self.wake(*rank));
        }
        done
    }

    /// Keeps the elements of `rank` for this process that the processor does not change at once.
    pub(super) fn lock_elements(&self, function: &'static str, rank: u32) -> Result<Elements<'_>> {
        let word = self.memory.word(rank, Word::Readers);
        let take = || word.load(Ordering::Relaxed) & ELEMENTS == 0 && word.fetch_or(ELEMENTS, Ordering::Acquire) & ELEMENTS == 0;
        self.until(function, rank, take)?;
        Ok(Elements { window: self, rank })
    }
}

/// The elements of a rank, which are let go when this is dropped.
pub(super) struct Elements<'a> {
    window: &'a Window,
    rank: u32,
}

impl Drop for Elements<'_> {
    fn drop(&mut self) {
        self.window.memory.word(self.rank, Word::Readers).fetch_and(!ELEMENTS, Ordering::SeqCst);
        // Whoever cannot be woken finds it free within its pause.
        let _ = self.window.wake(self.rank);
    }
}
