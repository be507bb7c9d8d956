//! Waiting: spin briefly, give the core away, then sleep in the kernel until a message comes.

use crate::state::Machine;
use crate::{Cell, Doorbell, Engine, Fault, Guard, ProgressSeen, remote};
use fabric::reliable::Watch;
use launch::Board;
use std::sync::Arc;
use std::time::Duration;
use trace::events::{EventKind, note};
use trace::now_ns;

/// Longest sleep before the world is looked at again. Nothing depends on it but hope after a lost peer.
const SLEEP_MAX: Duration = Duration::from_secs(1);
/// Looks, each after giving the core away, at what only waits for room at a peer, which wakes nobody; and the pauses after that.
const ROOM_LOOKS: u32 = 64;
const ROOM_PAUSE_MIN: Duration = Duration::from_micros(50);
const ROOM_PAUSE_MAX: Duration = Duration::from_millis(2);
/// After that long it matters whether remote peers are alive that owe nothing; asking all of them costs memory and datagrams.
const LIVENESS_NS: u64 = 1_000_000_000;
/// Longest sleep on the sockets where several threads sleep there, or away from them where nobody does.
const SHARED_SLEEP_MAX: Duration = Duration::from_millis(2);
/// Shorter sleeps on the sockets take longer than the core given away once.
const NAP_MIN: Duration = Duration::from_micros(100);
/// How long another process may take for a piece that it has claimed before it is taken to need a core.
const PIECE_NS_MAX: u64 = 50_000;
/// Tries between looks after other engines of the process that only this thread uses; and how long it looks away from those that other threads use, ns.
const TRIES_PER_HELP: u32 = 4;
const HELP_NS: u64 = 20_000;
/// Looks before peers are told that this process waits: what is short comes sooner. What is long may depend on it at once.
const LOOKS_UNSAID: u32 = 8;
/// Looks of a process that shares its core, beside others that have cores, before it asks anew whether they have.
pub const LOOKS_BESIDE: u32 = 8;
/// Tries between looks at the clock.
const TRIES_PER_LOOK: u32 = 32;

/// How long nothing has moved, by a clock that is looked at now and then. A long transfer is no reason to sleep between its pieces.
struct Silence {
    since_ns: u64,
    /// Something has moved since the clock was last looked at.
    broken: bool,
    longest_ns: u64,
}

impl Silence {
    fn so_far_ns(&mut self, now_ns: u64) -> u64 {
        if std::mem::take(&mut self.broken) {
            self.since_ns = now_ns;
        }
        let silent_ns = now_ns - self.since_ns;
        self.longest_ns = self.longest_ns.max(silent_ns);
        silent_ns
    }
}

/// What a rank that waits is doing, for whoever looks from outside.
#[derive(Clone, Copy)]
pub struct Doing {
    pub function: &'static str,
    /// Rank in the world, negative for any, [`launch::board::NONE`] for nobody in particular.
    pub peer: i32,
    pub tag: i32,
}

impl Doing {
    /// Instead of a rank: a thread that waits for no process, but makes progress for those that do.
    const FOR_OTHERS: i32 = launch::board::NONE + 1;

    pub const fn call(function: &'static str) -> Doing {
        Doing { function, peer: launch::board::NONE, tag: launch::board::NONE }
    }

    /// Making progress for others.
    pub const fn serving(function: &'static str) -> Doing {
        Doing { function, peer: Doing::FOR_OTHERS, tag: launch::board::NONE }
    }
}

/// Drives progress until `ready` says something. `ready` is asked at first, and whenever something has moved or completed.
pub fn wait<T>(cell: &Cell<Engine>, board: Option<&Board>, doing: Doing, ready: impl FnMut(&mut Engine) -> Option<T>) -> Result<T, Fault> {
    wait_for(cell, board, doing, u64::MAX, &mut LivenessWatch::new(cell), ready).map(|value| value.expect("the interval has no end"))
}

/// One wait of the program, which may go on over several calls of [`wait_for`]: since when, and for whose failure it looks after [`LIVENESS_NS`]. Peers are watched
/// until it is dropped, since one that is watched anew is given all of its time again.
pub struct LivenessWatch<'c> {
    cell: &'c Cell<Engine>,
    since_ns: Option<u64>,
    looked_ns: u64,
    watches: bool,
}

impl<'c> LivenessWatch<'c> {
    #[inline]
    pub fn new(cell: &'c Cell<Engine>) -> LivenessWatch<'c> {
        LivenessWatch { cell, since_ns: None, looked_ns: 0, watches: false }
    }

    /// It matters from now on whether `awaited` lives, if that is a remote process, else all that this process has spoken with. `engine` is the one of this
    /// wait.
    pub fn look(&mut self, engine: &mut Engine, awaited: Option<u32>) {
        let now_ns = now_ns();
        if now_ns >= self.looked_ns + LIVENESS_NS {
            self.looked_ns = now_ns;
            self.watches |= remote::watch(engine, awaited, !self.watches);
            engine.check_local_peers();
        }
    }
}

impl Drop for LivenessWatch<'_> {
    #[inline]
    fn drop(&mut self) {
        if self.watches {
            remote::unwatch(&mut self.cell.lock());
        }
    }
}

/// As [`wait`], for `limit_ns` at most: `None` once that is over.
pub fn wait_for<T>(
    cell: &Cell<Engine>,
    board: Option<&Board>,
    doing: Doing,
    limit_ns: u64,
    liveness: &mut LivenessWatch,
    mut ready: impl FnMut(&mut Engine) -> Option<T>,
) -> Result<Option<T>, Fault> {
    let mut guard = cell.lock();
    guard.flush_coalesced();
    if let Some(value) = guard.look_briefly(&mut ready)? {
        return Ok(Some(value));
    }
    let mut tries = TRIES_PER_LOOK;
    if let Some(board) = board {
        board.enter(doing.function, doing.peer, doing.tag);
    }
    let start = now_ns();
    let since_ns = *liveness.since_ns.get_or_insert(start);
    let vci = guard.worker.vci;
    guard.worker.counters.waits += 1;
    guard.worker.waiting.begins();
    let mut silence = Silence { since_ns: start, broken: false, longest_ns: 0 };
    // Looks since something has moved, with something that waits for room.
    let mut fruitless = 0u32;
    // Since when this thread has its core, or what moved last, and looks that are left before the clock is looked at anew.
    let (mut core_ns, mut moved, mut looks) = (start, false, 0);
    // What the clock has said before this look, if that was not long ago.
    let mut said_ns = Some(start);
    // Since when only others can end the copies.
    let mut stuck_ns = None;
    let (mut seen, mut helped_ns) = (ProgressSeen::default(), start);
    say_waiting(&mut guard, true);
    let result = loop {
        let said = said_ns.take();
        // What this thread waits for must move: others may hold the engine only between its looks.
        match guard.progress() {
            // Ranks that share cores give them away all the same.
            Ok(true) => (fruitless, stuck_ns, silence.broken, moved) = (0, None, !guard.worker.waiting.oversubscribed, true),
            Ok(false) => {}
            Err(fault) => break Err(fault),
        }
        if let Some(value) = ready(&mut guard) {
            said_ns = said;
            break Ok(Some(value));
        }
        tries += 1;
        if let Some(helper) = guard.helped() {
            // It may need this very core to end its piece.
            drop(guard);
            helper.await_piece();
            guard = cell.lock();
            continue;
        }
        if let Some(siblings) = guard.worker.siblings
            && tries.is_multiple_of(TRIES_PER_HELP)
        {
            drop(guard);
            let helped = siblings.help_own(vci);
            guard = cell.lock();
            if helped.moved {
                silence.broken = !guard.worker.waiting.oversubscribed;
                continue;
            }
        }
        if looks > 0 || guard.worker.waiting.spin_budget_ns() > 0 && !tries.is_multiple_of(TRIES_PER_LOOK) {
            looks = u32::saturating_sub(looks, 1);
            guard.pause();
            if cell.shared() {
                drop(guard);
                guard = cell.lock();
            }
            continue;
        }
        let now = said.unwrap_or_else(now_ns);
        if now - start >= limit_ns {
            break Ok(None);
        }
        if let Some(siblings) = guard.worker.siblings
            && now > helped_ns + HELP_NS
        {
            helped_ns = now;
            drop(guard);
            let helped = siblings.help(vci, &mut seen);
            guard = cell.lock();
            if helped.moved {
                silence.broken = !guard.worker.waiting.oversubscribed;
                continue;
            }
        }
        let silent_ns = silence.so_far_ns(now);
        let alone = guard.stuck() && now > *stuck_ns.get_or_insert(now) + PIECE_NS_MAX;
        let spin_ns = guard.worker.waiting.spin_budget_ns();
        if silent_ns < spin_ns && !alone {
            continue;
        }
        if std::mem::take(&mut moved) {
            core_ns = now;
            guard.worker.waiting.begins();
        }
        if spin_ns == 0 && !alone && now < core_ns + guard.worker.waiting.beside_ns(guard.worker.waiting.given) && guard.awaited_have_cores() {
            looks = LOOKS_BESIDE;
            continue;
        }
        if (silent_ns < spin_ns + guard.worker.waiting.yield_budget_ns() || guard.worker.waiting.yields_more())
            && !alone
            && !guard.worker.waiting.yields_in_vain()
        {
            guard = give_core(cell, guard);
            core_ns = now_ns();
            said_ns = Some(core_ns);
            guard.worker.waiting.gave_core(now, core_ns, fabric::local::switches);
            continue;
        }
        if let Err(fault) = guard.widen() {
            break Err(fault);
        }
        if now >= since_ns + LIVENESS_NS && doing.peer != Doing::FOR_OTHERS {
            liveness.look(&mut guard, u32::try_from(doing.peer).ok());
            if let Some(siblings) = guard.worker.siblings.filter(|_| vci != 0) {
                drop(guard);
                siblings.first().lock().check_local_peers();
                guard = cell.lock();
            }
        }
        // From `arm` on, whoever sends wakes us; what came before is looked for once more.
        guard.begin_sleep();
        let remote_sleep = guard.sleep_remote();
        let sleep_word = match (&guard.memory, remote_sleep) {
            (Some(local), remote) => {
                let seen = local.arm(|| guard.worker.armed.iter().for_each(|(line, member, _)| line.add(*member)));
                SleepWord::Doorbell(local.doorbell(), seen, remote.and_then(|(_, due)| due))
            }
            (None, Some((watch, due))) => SleepWord::Sockets(watch, due),
            (None, None) => {
                guard.disarm();
                drop(guard);
                std::thread::sleep(Duration::from_micros(50));
                guard = cell.lock();
                continue;
            }
        };
        guard.set_asleep_remote(true);
        let mut again = match guard.progress() {
            Ok(moved) => moved,
            Err(fault) => {
                guard.disarm();
                break Err(fault);
            }
        };
        guard.worker.unanswered = false;
        let mut found = ready(&mut guard);
        let (mut quiet, mut timeout) = (guard.quiet() && !guard.worker.unanswered, SLEEP_MAX);
        if let Some(siblings) = guard.worker.siblings
            && !again
            && found.is_none()
        {
            drop(guard);
            // Nobody may be left to look after what comes for them.
            let helped = siblings.help_all(vci);
            guard = cell.lock();
            (again, quiet) = (helped.moved, quiet && helped.quiet);
            if helped.networked {
                timeout = SHARED_SLEEP_MAX;
            }
            // Whoever was there before has seen nobody asleep.
            found = ready(&mut guard);
        }
        if again || found.is_some() {
            guard.disarm();
            if let Some(value) = found {
                break Ok(Some(value));
            }
            fruitless = 0;
            continue;
        }
        if !quiet {
            fruitless += 1;
            if fruitless <= ROOM_LOOKS {
                guard.disarm();
                guard = give_core(cell, guard);
                continue;
            }
            timeout = ROOM_PAUSE_MAX.min(ROOM_PAUSE_MIN * (1 << (fruitless - ROOM_LOOKS).min(16)));
        }
        guard.worker.counters.sleeps += 1;
        if guard.worker.asleep > 1 && matches!(sleep_word, SleepWord::Sockets(..)) {
            // A ring wakes only one of them.
            timeout = timeout.min(SHARED_SLEEP_MAX);
        }
        drop(guard);
        let asleep_ns = now_ns();
        sleep_word.sleep(timeout.min(Duration::from_nanos(limit_ns.saturating_sub(asleep_ns - start))));
        note(EventKind::Slept, || [(now_ns() - asleep_ns) as i64, 0, 0]);
        guard = cell.lock();
        guard.disarm();
    };
    say_waiting(&mut guard, false);
    if guard.worker.asking_since_ns.is_some() {
        guard.answered();
    }
    guard.worker.counters.waiting_ns += said_ns.unwrap_or_else(now_ns) - start;
    if silence.longest_ns > guard.worker.waiting.spin_ns {
        guard.worker.waiting.learn(silence.longest_ns);
    } else {
        guard.worker.waiting.learn(0);
    }
    drop(guard);
    if let Some(board) = board {
        board.leave();
    }
    result
}

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

/// Where a thread sleeps.
enum SleepWord {
    /// On shared memory's doorbell, as it stood; what the network wants to be done is due then.
    Doorbell(Doorbell, u32, Option<Duration>),
    Sockets(Arc<Watch>, Option<Duration>),
}

impl SleepWord {
    fn sleep(self, timeout: Duration) {
        let until = |due: Option<Duration>| due.map_or(timeout, |due| timeout.min(due));
        match self {
            SleepWord::Doorbell(doorbell, seen, due) => doorbell.sleep(seen, until(due)),
            // The kernel's timers are not finer than this.
            SleepWord::Sockets(_, Some(due)) if due < NAP_MIN => crate::yield_core(),
            SleepWord::Sockets(watch, due) => drop(watch.wait(Some(until(due).as_nanos() as u64))),
        }
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
    fn awaited_have_cores(&self) -> bool {
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
    fn pause(&mut self) {
        if self.memory.as_mut().is_some_and(|memory| memory.use_wait()) {
            return;
        }
        if self.memory.is_some() || self.network.is_none() {
            std::hint::spin_loop();
        }
    }

    fn begin_sleep(&mut self) {
        self.worker.asleep += 1;
        if let Some(siblings) = self.worker.siblings {
            siblings.shared().sleepers.begin_sleep(1);
        }
    }

    fn disarm(&mut self) {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn silence_begins_anew_with_every_move() {
        let mut silence = Silence { since_ns: 100, broken: false, longest_ns: 0 };
        assert_eq!((silence.so_far_ns(150), silence.so_far_ns(170)), (50, 70));
        silence.broken = true;
        assert_eq!((silence.so_far_ns(200), silence.so_far_ns(230)), (0, 30));
        assert_eq!(silence.longest_ns, 70);
    }
}
