//! Waiting: a few looks; and what is said of a wait to others.

use crate::state::Machine;
use crate::{Cell, Engine, Fault, Guard, remote};

/// Looks before peers are told that this process waits: what is short comes sooner. What is long may depend on it at once.
const LOOKS_UNSAID: u32 = 8;
/// Looks of a process that shares its core, beside others that have cores, before it asks anew whether they have.
pub const LOOKS_BESIDE: u32 = 8;
/// Tries between looks at the clock.
pub(crate) const TRIES_PER_LOOK: u32 = 32;

/// Gives the core to other threads, with the engine left meanwhile. Peers see that this process has none.
pub fn give_core<'c>(cell: &'c Cell<Engine>, mut guard: Guard<'c, Engine>) -> Guard<'c, Engine> {
    guard.worker.counters.yields += 1;
    guard.say_away(true);
    drop(guard);
    crate::yield_core();
    let guard = cell.lock();
    guard.say_away(false);
    guard
}

/// Tells peers whether this process waits in a call: what is long they send accordingly.
pub(crate) fn say_waiting(machine: &mut Machine, waits: bool) {
    if let Some(local) = &machine.memory {
        local.say_waiting(waits);
    }
    match waits {
        true => machine.worker.costs.wait_begins(),
        false => machine.worker.costs.wait_ends(),
    }
}

/// Tells peers that this process waits in a call, where it does and has not said so.
pub(crate) fn say_waiting_where_blocked(machine: &mut Machine) {
    if machine.worker.blocked && !machine.worker.costs.is_waiting() {
        say_waiting(machine, true);
    }
}

impl Engine {
    /// The quick way of waiting: what is waited for is there, or comes within a few looks. `None`: it has not come.
    #[inline(always)]
    pub fn look_briefly<T>(&mut self, mut ready: impl FnMut(&mut Engine) -> Option<T>) -> Result<Option<T>, Fault> {
        if let Some(value) = ready(self) {
            return Ok(Some(value));
        }
        // Copies that begin from here on say it themselves.
        self.worker.blocked = true;
        if self.copies_may_come() {
            say_waiting_where_blocked(self);
        }
        let found = self.look_often(&mut ready);
        self.worker.blocked = false;
        if self.worker.costs.is_waiting() {
            say_waiting(self, false);
        }
        found
    }

    /// The program has called for something long that it is going to wait for at once: peers are told, until that wait ends.
    #[inline]
    pub fn is_going_to_wait(&mut self) {
        if !self.worker.waiting.oversubscribed {
            say_waiting(self, true);
        }
    }

    #[inline(always)]
    fn look_often<T>(&mut self, ready: &mut impl FnMut(&mut Engine) -> Option<T>) -> Result<Option<T>, Fault> {
        // Most wait for one message. Who waits for many goes on with four times as many packets each time.
        let mut packets = 1usize;
        for tries in 0..TRIES_PER_LOOK {
            let before = self.events();
            let moved = self.progress_by(packets)?;
            if (moved || self.events() != before)
                && let Some(value) = ready(self)
            {
                return Ok(Some(value));
            }
            if moved {
                packets = packets.saturating_mul(4);
                continue;
            }
            if (self.worker.waiting.oversubscribed || self.worker.waiting.contended) && tries.is_multiple_of(LOOKS_BESIDE) && !self.awaited_have_cores() {
                break;
            }
            if !self.worker.costs.is_waiting() && (tries >= LOOKS_UNSAID || self.copies_may_come()) {
                say_waiting(self, true);
            }
            self.pause();
        }
        Ok(None)
    }

    /// Whether all that this process waits for comes from others of its host that have cores now, as far as they have said: it may come sooner than this
    /// process would have its own core back.
    pub(crate) fn awaited_have_cores(&self) -> bool {
        match self.worker.armed.is_empty() {
            true => self.depends_on(|process| self.has_core(process)),
            false => self.worker.armed.iter().all(|(_, _, process)| process.is_some_and(|process| self.has_core(process))),
        }
    }

    /// Whether `process` of this host has a core, as far as it has said.
    #[inline]
    pub fn has_core(&self, process: u32) -> bool {
        self.memory.as_ref().is_some_and(|memory| self.shares_memory(process) && memory.has_core(process))
    }

    /// How long to look on beside others that have cores, before the core is given away for the time after `yields`, ns.
    pub fn beside_ns(&self, yields: u64) -> u64 {
        self.worker.waiting.beside_ns(yields)
    }

    /// Peers see whether this process has given its core to others.
    fn say_away(&self, away: bool) {
        if let Some(memory) = &self.memory {
            memory.say_away(away);
        }
    }

    /// Between two looks. Those at the network alone take long enough.
    #[inline]
    pub(crate) fn pause(&mut self) {
        if self.memory.as_mut().is_some_and(|memory| memory.use_wait()) {
            return;
        }
        if self.memory.is_some() || self.network.is_none() {
            std::hint::spin_loop();
        }
    }

    pub(crate) fn begin_sleep(&mut self) {
        self.worker.asleep += 1;
        if let Some(siblings) = self.worker.siblings {
            siblings.shared().sleepers.begin_sleep(1);
        }
    }

    pub(crate) fn disarm(&mut self) {
        self.worker.asleep -= 1;
        let wake_nobody = || self.memory.iter().for_each(|local| local.disarm());
        match self.worker.siblings {
            Some(siblings) => siblings.shared().sleepers.end_sleep(wake_nobody),
            None if self.worker.asleep == 0 => wake_nobody(),
            None => {}
        }
        // Other threads may sleep on.
        if self.worker.asleep > 0 {
            return;
        }
        self.set_asleep_remote(false);
        for (line, member, _) in &self.worker.armed {
            line.remove(*member);
        }
    }

    /// Threads of this process that sleep look again: something that they may wait for has completed.
    pub fn wake_threads(&self) {
        wake_threads(self);
    }
}

/// Threads of this process that sleep look again: something that they may wait for has completed.
pub(crate) fn wake_threads(machine: &Machine) {
    let asleep = match machine.worker.siblings {
        Some(siblings) => {
            siblings.shared().publish(machine.worker.vci, machine.completions());
            siblings.shared().sleepers.asleep()
        }
        None => machine.worker.asleep,
    };
    if asleep > 0 {
        match &machine.memory {
            Some(local) => local.doorbell().ring(),
            None => remote::wake(machine),
        }
    }
}
