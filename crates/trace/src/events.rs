//! Events of one process, for whoever asks for them: kept in a bounded log, in the order in which they happened.
//!
//! Where nobody asks, an event costs one load and one branch.

use crate::now_ns;
use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Mutex, MutexGuard};

/// What can happen. Its values are described beside each.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(usize)]
pub enum EventKind {
    /// A message came whose receive was not posted: sending process, tag, bytes.
    Unexpected,
    /// A send has to wait for room or credit: receiving process, tag, bytes.
    HeldBack,
    /// A send went as a header for lack of credit: receiving process, tag, bytes.
    HeldToHeader,
    /// This process has slept in the kernel: duration in ns.
    Slept,
    /// A packet made no sense: sending process.
    Refused,
    /// An announced receive was used by its sender: sending process, tag, bytes.
    Announced,
}

/// Kinds of events.
pub const EVENT_KINDS: usize = 6;
/// Values of one event, at most.
pub const VALUES: usize = 3;
/// Events that are kept until somebody takes them; later ones are counted and dropped.
pub const LOG_MAX: usize = 4096;

/// One event.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Event {
    pub kind: EventKind,
    /// On the clock of [`now_ns`].
    pub time_ns: u64,
    /// Counts all events that were asked for, also dropped ones.
    pub number: u64,
    pub values: [i64; VALUES],
}

struct Log {
    events: VecDeque<Event>,
    next_number: u64,
    dropped: [u64; EVENT_KINDS],
}

static WANTED: AtomicU32 = AtomicU32::new(0);
static PENDING: AtomicBool = AtomicBool::new(false);
static LOG: Mutex<Log> = Mutex::new(Log { events: VecDeque::new(), next_number: 0, dropped: [0; EVENT_KINDS] });

fn log() -> MutexGuard<'static, Log> {
    LOG.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
}

/// Notes an event, if somebody wants its kind.
#[inline(always)]
pub fn note(kind: EventKind, values: impl FnOnce() -> [i64; VALUES]) {
    if WANTED.load(Ordering::Relaxed) & 1 << kind as u32 != 0 {
        record(kind, values());
    }
}

#[cold]
fn record(kind: EventKind, values: [i64; VALUES]) {
    let mut log = log();
    let event = Event { kind, time_ns: now_ns(), number: log.next_number, values };
    log.next_number += 1;
    if log.events.len() < LOG_MAX {
        log.events.push_back(event);
    } else {
        log.dropped[kind as usize] += 1;
    }
    PENDING.store(true, Ordering::Release);
}

/// Asks for the kinds of events whose bits are set, and for no others; what was kept of others stays until it is taken.
pub fn want(kinds: u32) {
    WANTED.store(kinds, Ordering::Release);
}

/// Whether there is something to take.
#[inline(always)]
pub fn pending() -> bool {
    PENDING.load(Ordering::Relaxed)
}

/// The number that the next event will have.
pub fn next_number() -> u64 {
    log().next_number
}

/// Takes what has been kept, oldest first, and how many events of each kind were dropped since the last call.
pub fn take() -> (VecDeque<Event>, [u64; EVENT_KINDS]) {
    let mut log = log();
    PENDING.store(false, Ordering::Relaxed);
    (std::mem::take(&mut log.events), std::mem::take(&mut log.dropped))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_wanted_is_kept_up_to_the_limit_and_then_counted() {
        note(EventKind::Slept, || panic!("nobody wants it"));
        assert!(!pending());
        want(1 << EventKind::Slept as u32);
        for n in 0..LOG_MAX as i64 + 7 {
            note(EventKind::Slept, || [n, 0, 0]);
            note(EventKind::Refused, || panic!("nobody wants it"));
        }
        assert!(pending());
        let (events, dropped) = take();
        want(0);
        assert_eq!(events.len(), LOG_MAX);
        assert_eq!(dropped, [0, 0, 0, 7, 0, 0]);
        assert!(events.iter().enumerate().all(|(at, e)| (e.number, e.values[0]) == (at as u64, at as i64)));
        assert!(events.iter().zip(events.iter().skip(1)).all(|(a, b)| a.time_ns <= b.time_ns));
        assert!(!pending() && take().0.is_empty());
        assert_eq!(next_number(), LOG_MAX as u64 + 7);
    }
}
