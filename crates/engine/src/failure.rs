//! Processes of this host that end, and what engines of one process tell each other of those that have failed. What follows from a failure is the
//! machine's ([`proto::p2p::failure`]).

use crate::state::{HasEnded, Machine};
use crate::{Engine, remote};
use std::time::{Duration, Instant};

/// Between looks at the processes of this host, while one waits.
const LOCAL_CHECK_NS: u64 = 900_000_000;

/// A program that has asked in vain for that long waits.
const ASKING_NS: u64 = 1_000_000_000;
/// How often it asks in vain between looks at the clock, where no process is remote.
const ASKED_PER_LOOK: u32 = 64;

impl Engine {
    /// Whether a process that has lost others, and ends, has waited for long enough since `start` for what is still under way: twice the silence that is borne
    /// of a peer, and a second.
    pub fn gives_up(&self, start: Instant) -> bool {
        self.has_failures() && start.elapsed() > Duration::from_millis(2 * self.worker.config.peer_timeout_ms + 1000)
    }

    /// No launcher ends the job when a process ends: `has_ended` says which of this host have.
    pub(crate) fn look_after(&mut self, has_ended: HasEnded) {
        self.worker.has_ended = Some(has_ended);
    }

    /// Looks now and then whether processes of this host have ended, or can answer nothing. That one has ended must be seen twice: what it had sent has come
    /// by then.
    pub(crate) fn check_local_peers(&mut self) {
        let Some(local) = &self.memory else { return };
        let now_ns = trace::now_ns();
        let refused: Vec<u32> = (0..self.config.processes).filter(|process| !self.peers[*process as usize].gone && local.is_refused(*process)).collect();
        for process in refused {
            let why = "it runs on this host and has no memory, or no descriptors, left to answer".into();
            self.lose_peer(process, fabric::Error::Peer { peer: process, why }.into());
            self.keep_to_itself(process);
        }
        if self.worker.has_ended.is_none() {
            return;
        }
        if now_ns < self.worker.local_checked_ns + LOCAL_CHECK_NS.max(self.worker.config.peer_timeout_ms * 1_000_000 / 2) {
            return;
        }
        self.worker.local_checked_ns = now_ns;
        let here = |process: &u32| *process != self.config.me && !self.peers[*process as usize].remote && !self.peers[*process as usize].gone;
        let has_ended = |process: &u32| self.worker.has_ended.as_ref().is_some_and(|has_ended| has_ended(*process));
        let ended: Vec<u32> = (0..self.config.processes).filter(here).filter(has_ended).collect();
        let before = std::mem::replace(&mut self.worker.local_ended, ended.clone());
        for process in ended.into_iter().filter(|process| before.contains(process)) {
            self.lose_peer(process, fabric::Error::Peer { peer: process, why: launch::HAS_ENDED.into() }.into());
        }
    }

    /// The program has asked for something and `found` it, or not. When it has been asking in vain for long, it waits in its own way, and failed peers matter.
    #[inline(always)]
    pub fn polled(&mut self, found: bool) {
        if found {
            self.worker.asked = 0;
            if self.worker.asking_since_ns.is_some() {
                self.answered();
            }
            return;
        }
        if self.is_crowded() {
            self.polled_in_vain();
        }
        self.worker.asked = self.worker.asked.wrapping_add(1);
        // A look at the clock costs as much as one at a ring.
        if self.worker.asked.is_multiple_of(ASKED_PER_LOOK) || self.network.is_some() {
            self.asks_on();
        }
    }

    /// The program has got what it asked for, or waits for it.
    #[cold]
    pub(crate) fn answered(&mut self) {
        self.worker.asking_since_ns = None;
        if std::mem::take(&mut self.worker.asking_watches) {
            remote::unwatch(self);
        }
    }

    /// The program may be waiting for another process in a loop of calls that do not wait themselves. Once it has been for long, failed peers matter.
    #[inline(never)]
    pub fn asks_on(&mut self) {
        let now_ns = trace::now_ns();
        if now_ns > *self.worker.asking_since_ns.get_or_insert(now_ns) + ASKING_NS {
            if now_ns > self.worker.asking_checked_ns + ASKING_NS {
                self.worker.asking_checked_ns = now_ns;
                let begins = !self.worker.asking_watches;
                self.worker.asking_watches |= remote::watch(self, None, begins);
            }
            self.check_local_peers();
        }
    }
}

/// The other engines of the process reach those of this host, too. Whoever holds one of them never waits for this one.
pub(crate) fn tell_siblings(machine: &Machine, process: u32) {
    if let Some(siblings) = machine.worker.siblings.filter(|_| machine.worker.vci == 0 && machine.shares_memory(process)) {
        siblings.all().skip(1).for_each(|cell| tell_sibling(machine, &mut cell.lock(), process));
    }
}

fn tell_sibling(machine: &Machine, sibling: &mut Engine, process: u32) {
    let why = machine.reason(process);
    match machine.peers[process as usize].gone {
        true => sibling.lose_peer(process, why),
        false => sibling.fail_peer(process, why),
    }
}

/// A further engine of this process learns what this one knows.
pub(crate) fn initiate(machine: &Machine, sibling: &mut Engine) {
    machine.failures().iter().filter(|process| machine.shares_memory(**process)).for_each(|process| tell_sibling(machine, sibling, *process));
}
