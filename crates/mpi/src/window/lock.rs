//! Locks of a window's ranks (MPI-5.0 §12.5.3): tickets in shared memory, or a queue at the target.

use super::Window;
use super::memory::Word;
use crate::error::Result;
use crate::request;
use crate::world::{self, fault};
use engine::Doing;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// Looks before a rank that waits for another one's lock gives way to others.
const SPINS: u32 = 200;
/// How long such a rank looks for what is asked of itself before it looks at the lock again; nobody wakes it when the lock is free.
const PAUSE_MIN: Duration = Duration::from_micros(20);
const PAUSE_MAX: Duration = Duration::from_millis(1);
/// After that long it matters whether those live that are waited for.
const HEED: Duration = Duration::from_secs(1);

impl Window {
    /// Waits until `free` says so, which other processes bring about by storing to shared memory.
    fn until(&self, function: &'static str, free: impl Fn() -> bool) -> Result<()> {
        for _ in 0..SPINS {
            if free() {
                return Ok(());
            }
            std::hint::spin_loop();
        }
        let (world, start) = (world::get()?, Instant::now());
        let (mut pause, mut heeded) = (PAUSE_MIN, start);
        loop {
            let ready = |_: &mut engine::Engine| free().then_some(());
            let limit_ns = pause.as_nanos() as u64;
            if engine::wait_for(self.comm.cell, world.board(), Doing::call(function), limit_ns, ready).map_err(fault)?.is_some() {
                return Ok(());
            }
            request::poll_tasks();
            let mut first = world.engine().lock();
            if heeded.elapsed() > HEED {
                heeded = Instant::now();
                first.look_for_failures();
            }
            if let Some(why) = self.failed(&first) {
                return Err(why);
            }
            pause = PAUSE_MAX.min(pause * 2);
        }
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
        self.until(function, || serving.load(Ordering::Acquire) == ticket)?;
        if exclusive {
            return self.until(function, || readers.load(Ordering::Acquire) == 0);
        }
        readers.fetch_add(1, Ordering::AcqRel);
        serving.store(ticket + 1, Ordering::Release);
        Ok(())
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
                true => self.memory.word(*rank, Word::Serving).fetch_add(1, Ordering::AcqRel),
                false => self.memory.word(*rank, Word::Readers).fetch_sub(1, Ordering::AcqRel),
            };
        }
        done
    }

    /// Keeps the elements of `rank` for this process that the processor does not change at once.
    pub(super) fn lock_elements(&self, function: &'static str, rank: u32) -> Result<Elements<'_>> {
        let word = self.memory.word(rank, Word::Elements);
        let take = || word.load(Ordering::Relaxed) == 0 && word.compare_exchange(0, 1, Ordering::Acquire, Ordering::Relaxed).is_ok();
        self.until(function, take)?;
        Ok(Elements(word))
    }
}

/// The elements of a rank, which are let go when this is dropped.
pub(super) struct Elements<'a>(&'a std::sync::atomic::AtomicU64);

impl Drop for Elements<'_> {
    fn drop(&mut self) {
        self.0.store(0, Ordering::Release);
    }
}
