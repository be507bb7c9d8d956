//! How does a thread wait? It looks for a while, then says that it sleeps, looks once more, and sleeps until a peer or its own process wakes it.

use crate::nic::Nic;
use crate::status::{Refusal, Result};
use fabric::shm::parts;
use std::time::{Duration, Instant};

/// Looks before a thread sleeps, and between two looks at the clock.
const SPINS: u32 = 2000;
const SPINS_PER_YIELD: u32 = 100;
/// Longest sleep between two looks.
const NAP: Duration = Duration::from_millis(100);

/// A time limit of the program, milliseconds. Values that fill 32 bits, as `VIP_INFINITE` does, never pass.
pub fn deadline(timeout_ms: u64) -> Option<Instant> {
    if timeout_ms >= u32::MAX as u64 { None } else { Some(Instant::now() + Duration::from_millis(timeout_ms)) }
}

/// Calls `look` until it finds something else than `NotDone`, or the time is over.
pub fn until<T>(nic: &Nic, timeout_ms: u64, mut look: impl FnMut() -> Result<T>) -> Result<T> {
    let mut once = |spins: &mut u32| match look() {
        Err(Refusal::NotDone) => {
            *spins += 1;
            if spins.is_multiple_of(SPINS_PER_YIELD) {
                fabric::shm::yield_core();
            }
            None
        }
        found => Some(found),
    };
    let mut spins = 0;
    if let Some(found) = once(&mut spins) {
        return found;
    }
    let deadline = deadline(timeout_ms);
    loop {
        while spins < SPINS {
            if let Some(found) = once(&mut spins) {
                return found;
            }
            std::hint::spin_loop();
        }
        let left = deadline.map_or(NAP, |deadline| deadline.saturating_duration_since(Instant::now()));
        if left.is_zero() {
            return Err(Refusal::Timeout);
        }
        nic.sleepers.begin_sleep(1);
        let waiters = nic.board.waiters();
        let seen = parts::arm(&waiters, || ());
        let found = once(&mut spins);
        if found.is_none() && !nic.closing() {
            parts::futex_wait(parts::Waiting::futex(&waiters), seen, left.min(NAP));
        }
        nic.sleepers.end_sleep(|| parts::disarm(&waiters));
        if let Some(found) = found {
            return found;
        }
        // Whoever was woken by something else does not search long again.
        spins = SPINS - 50;
    }
}
