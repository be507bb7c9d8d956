//! The network's thread: it deals with datagrams while the program computes, and rings for a process that sleeps on shared memory's doorbell.

use crate::reliable::Watch;
use crate::shm::Doorbell;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};
use std::time::Duration;

/// What the network's thread and the owner of the transport tell each other without the owner's lock.
pub(super) struct Status {
    /// Looks at the network by anybody.
    pub looks: AtomicU64,
    /// How often messages have begun to wait for others to share a datagram with.
    holds: AtomicU64,
    /// How the network's thread sleeps.
    thread: AtomicU32,
    /// How threads of the program that are in MPI sleep.
    pub doing: AtomicU32,
}

impl Default for Status {
    fn default() -> Status {
        // What waits before the thread is there is not allowed to; and it looks as soon as it runs.
        Status { looks: AtomicU64::new(0), holds: AtomicU64::new(0), thread: AtomicU32::new(SOON), doing: AtomicU32::new(AWAKE) }
    }
}

/// Only datagrams end its sleep, or it is not there.
const UNWAKEABLE: u32 = 0;
/// It sleeps long, and can be woken.
const PARKED: u32 = 1;
/// It looks again within [`TICK`].
const SOON: u32 = 2;

impl Status {
    /// Whether messages may begin to wait: `thread` then sees to it that they leave.
    pub fn hold(&self, thread: Option<&std::thread::Thread>) -> bool {
        self.holds.store(self.holds.load(Ordering::Relaxed).wrapping_add(1), Ordering::Relaxed);
        // The thread says how it will sleep and then looks whether something waits: one of both sees the other.
        fence(Ordering::SeqCst);
        let how = self.thread.load(Ordering::Relaxed);
        if how == PARKED {
            thread.into_iter().for_each(std::thread::Thread::unpark);
        }
        how != UNWAKEABLE
    }

    /// The thread is about to sleep. Whether no messages have begun to wait since `holds`.
    fn sleep(&self, how: u32, holds: &mut u64) -> bool {
        self.thread.store(how, Ordering::Relaxed);
        fence(Ordering::SeqCst);
        let now = self.holds.load(Ordering::Relaxed);
        let calm = std::mem::replace(holds, now) == now;
        if !calm && how == PARKED {
            self.thread.store(SOON, Ordering::Relaxed);
        }
        calm
    }
}

/// Nobody sleeps in MPI.
pub(super) const AWAKE: u32 = 0;
/// A thread sleeps on the sockets itself.
pub(super) const ON_SOCKETS: u32 = 1;
/// A thread sleeps on shared memory's doorbell, which has to ring for datagrams too.
pub(super) const ON_DOORBELL: u32 = 2;

/// Between looks at a program that calls MPI: at first, where ranks share cores, and when that has gone on for a while or the program sleeps in MPI.
const TICK: Duration = Duration::from_millis(1);
const TICK_CROWDED: Duration = Duration::from_millis(20);
const TICK_MAX: Duration = Duration::from_millis(50);
/// Longest sleep on the sockets.
const SLEEP_NS_MAX: u64 = 1_000_000_000;

/// What the network's thread is given by its owner: on busy cores it may not get to run for long, and then finds the owner locked.
pub struct NetworkThread {
    status: Arc<Status>,
    watch: Arc<Watch>,
    doorbell: Option<Doorbell>,
    least: Duration,
    helps: bool,
}

impl NetworkThread {
    pub(super) fn new(status: Arc<Status>, watch: Arc<Watch>, doorbell: Option<Doorbell>, crowded: bool, helps: bool) -> NetworkThread {
        NetworkThread { status, watch, doorbell, least: if crowded { TICK_CROWDED } else { TICK }, helps }
    }
}

/// What the network's thread does. `progress` locks the owner and makes progress there; before it lets go it calls what it is given, and says how
/// long it may sleep, or `None` at the end. It is called only while nobody else has looked at the network for a while.
pub fn run(thread: NetworkThread, mut progress: impl FnMut(&mut dyn FnMut()) -> Option<Option<Duration>>) {
    let NetworkThread { status, watch, doorbell, least, helps } = thread;
    let (mut seen, mut tick, mut holds) = (0, least, 0);
    loop {
        match (status.doing.load(Ordering::Acquire), &doorbell) {
            (ON_DOORBELL, Some(doorbell)) => {
                if status.sleep(UNWAKEABLE, &mut holds) {
                    watch.wait_sources(SLEEP_NS_MAX);
                }
                if status.doing.load(Ordering::Acquire) == ON_DOORBELL {
                    doorbell.ring();
                    // It looks at the sockets before it sleeps again.
                    std::thread::park_timeout(TICK);
                }
                continue;
            }
            (AWAKE, _) if helps => {}
            _ => {
                std::thread::park_timeout(if status.sleep(PARKED, &mut holds) { TICK_MAX } else { least });
                continue;
            }
        }
        let looks = status.looks.load(Ordering::Relaxed);
        if looks != seen {
            // Somebody looks; less and less often while that goes on and no messages wait in between.
            seen = looks;
            if !status.sleep(if tick > least { PARKED } else { SOON }, &mut holds) {
                tick = least;
            }
            std::thread::park_timeout(tick);
            tick = (2 * tick).min(TICK_MAX);
            continue;
        }
        tick = least;
        // Nothing waits when the owner is let go, and nothing will while this thread does not look.
        let Some(due) = progress(&mut || _ = status.sleep(UNWAKEABLE, &mut holds)) else { return };
        seen = status.looks.load(Ordering::Relaxed);
        watch.wait_sources(due.map_or(SLEEP_NS_MAX, |due| (due.as_nanos() as u64).clamp(100_000, SLEEP_NS_MAX)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_wait_before_the_thread_has_run() {
        let status = Status::default();
        assert!(status.hold(None));
        status.sleep(UNWAKEABLE, &mut 0);
        assert!(!status.hold(None), "it would not hear of them");
    }
}
