//! Waiting for what does not come within a few looks: spin briefly, give the core away, then sleep in the kernel until a message comes.

use crate::wait::{LOOKS_BESIDE, TRIES_PER_LOOK, give_core, say_waiting};
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

/// A wait that goes on.
struct LongWait<'a, 'l> {
    cell: &'a Cell<Engine>,
    vci: u8,
    doing: Doing,
    /// For whose failure it looks, and since when all that belongs to it goes on.
    liveness: &'a mut LivenessWatch<'l>,
    since_ns: u64,
    start_ns: u64,
    limit_ns: u64,
    silence: Silence,
    tries: u32,
    /// Looks since something has moved, with something that waits for room.
    fruitless: u32,
    /// Since when this thread has its core, or what moved last, and looks that are left before the clock is looked at anew.
    core_ns: u64,
    moved: bool,
    looks: u32,
    /// What the clock has said before the next look, if that was not long ago.
    said_ns: Option<u64>,
    /// Since when only others can end the copies.
    stuck_ns: Option<u64>,
    seen: ProgressSeen,
    helped_ns: u64,
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
    if let Some(board) = board {
        board.enter(doing.function, doing.peer, doing.tag);
    }
    let mut wait = LongWait::begin(cell, &mut guard, doing, limit_ns, liveness);
    let result = loop {
        // What this thread waits for must move: others may hold the engine only between its looks.
        match guard.progress() {
            Ok(true) => wait.has_moved(&guard),
            Ok(false) => {}
            Err(fault) => break Err(fault),
        }
        if let Some(value) = ready(&mut guard) {
            break Ok(Some(value));
        }
        let said = wait.said_ns.take();
        let mut goes_on;
        (guard, goes_on) = wait.looks_on(guard);
        if goes_on {
            continue;
        }
        let now = said.unwrap_or_else(now_ns);
        if now - wait.start_ns >= limit_ns {
            break Ok(None);
        }
        (guard, goes_on) = wait.stays_awake(guard, now);
        if goes_on {
            continue;
        }
        let slept;
        (guard, slept) = wait.sleep(guard, now, &mut ready);
        match slept {
            Ok(None) => {}
            ended => break ended,
        }
    };
    wait.end(&mut guard);
    drop(guard);
    if let Some(board) = board {
        board.leave();
    }
    result
}

impl<'a, 'l> LongWait<'a, 'l> {
    fn begin(cell: &'a Cell<Engine>, engine: &mut Engine, doing: Doing, limit_ns: u64, liveness: &'a mut LivenessWatch<'l>) -> Self {
        let start_ns = now_ns();
        let since_ns = *liveness.since_ns.get_or_insert(start_ns);
        engine.worker.counters.waits += 1;
        engine.worker.waiting.begins();
        say_waiting(engine, true);
        LongWait {
            cell,
            vci: engine.vci(),
            doing,
            liveness,
            since_ns,
            start_ns,
            limit_ns,
            silence: Silence { since_ns: start_ns, broken: false, longest_ns: 0 },
            tries: TRIES_PER_LOOK,
            fruitless: 0,
            core_ns: start_ns,
            moved: false,
            looks: 0,
            said_ns: Some(start_ns),
            stuck_ns: None,
            seen: ProgressSeen::default(),
            helped_ns: start_ns,
        }
    }

    /// Learns from how it has ended.
    fn end(&self, engine: &mut Engine) {
        say_waiting(engine, false);
        if engine.worker.asking_since_ns.is_some() {
            engine.answered();
        }
        engine.worker.counters.waiting_ns += self.said_ns.unwrap_or_else(now_ns) - self.start_ns;
        let (silent_ns, waiting) = (self.silence.longest_ns, &mut engine.worker.waiting);
        waiting.learn(if silent_ns > waiting.spin_ns { silent_ns } else { 0 });
    }

    #[inline]
    fn has_moved(&mut self, engine: &Engine) {
        (self.fruitless, self.stuck_ns, self.moved) = (0, None, true);
        self.break_silence(engine);
    }

    /// Ranks that share cores give them away all the same.
    #[inline]
    fn break_silence(&mut self, engine: &Engine) {
        self.silence.broken = !engine.worker.waiting.oversubscribed;
    }

    /// After a look in vain: whether to look anew at once, without asking the clock.
    #[inline(always)]
    fn looks_on(&mut self, mut guard: Guard<'a, Engine>) -> (Guard<'a, Engine>, bool) {
        self.tries += 1;
        if let Some(helper) = guard.helped() {
            // It may need this very core to end its piece.
            drop(guard);
            helper.await_piece();
            return (self.cell.lock(), true);
        }
        if let Some(siblings) = guard.worker.siblings
            && self.tries.is_multiple_of(TRIES_PER_HELP)
        {
            drop(guard);
            let helped = siblings.help_own(self.vci);
            guard = self.cell.lock();
            if helped.moved {
                self.break_silence(&guard);
                return (guard, true);
            }
        }
        if self.looks > 0 || guard.worker.waiting.spin_budget_ns() > 0 && !self.tries.is_multiple_of(TRIES_PER_LOOK) {
            self.looks = self.looks.saturating_sub(1);
            guard.pause();
            if self.cell.shared() {
                drop(guard);
                guard = self.cell.lock();
            }
            return (guard, true);
        }
        (guard, false)
    }

    /// Whether this thread spins on, or has given its core away and has it back.
    fn stays_awake(&mut self, mut guard: Guard<'a, Engine>, now: u64) -> (Guard<'a, Engine>, bool) {
        if let Some(siblings) = guard.worker.siblings
            && now > self.helped_ns + HELP_NS
        {
            self.helped_ns = now;
            drop(guard);
            let helped = siblings.help(self.vci, &mut self.seen);
            guard = self.cell.lock();
            if helped.moved {
                self.break_silence(&guard);
                return (guard, true);
            }
        }
        let silent_ns = self.silence.so_far_ns(now);
        let alone = guard.stuck() && now > *self.stuck_ns.get_or_insert(now) + PIECE_NS_MAX;
        let spin_ns = guard.worker.waiting.spin_budget_ns();
        if silent_ns < spin_ns && !alone {
            return (guard, true);
        }
        if std::mem::take(&mut self.moved) {
            self.core_ns = now;
            guard.worker.waiting.begins();
        }
        if alone {
            return (guard, false);
        }
        let waiting = &guard.worker.waiting;
        if spin_ns == 0 && now < self.core_ns + waiting.beside_ns(waiting.given) && guard.awaited_have_cores() {
            self.looks = LOOKS_BESIDE;
            return (guard, true);
        }
        let yields = (silent_ns < spin_ns + waiting.yield_budget_ns() || waiting.yields_more()) && !waiting.yields_in_vain();
        if yields {
            guard = give_core(self.cell, guard);
            self.core_ns = now_ns();
            self.said_ns = Some(self.core_ns);
            guard.worker.waiting.gave_core(now, self.core_ns, fabric::local::switches);
        }
        (guard, yields)
    }

    /// Before a sleep: looks for the failure of those that are waited for.
    fn look_for_failures(&mut self, mut guard: Guard<'a, Engine>, now: u64) -> Guard<'a, Engine> {
        if now >= self.since_ns + LIVENESS_NS && self.doing.peer != Doing::FOR_OTHERS {
            self.liveness.look(&mut guard, u32::try_from(self.doing.peer).ok());
            if let Some(siblings) = guard.worker.siblings.filter(|_| self.vci != 0) {
                drop(guard);
                siblings.first().lock().check_local_peers();
                guard = self.cell.lock();
            }
        }
        guard
    }

    /// Sleeps until something comes, unless that is there already: what `ready` says of it.
    fn sleep<T>(
        &mut self,
        mut guard: Guard<'a, Engine>,
        now: u64,
        ready: &mut impl FnMut(&mut Engine) -> Option<T>,
    ) -> (Guard<'a, Engine>, Result<Option<T>, Fault>) {
        if let Err(fault) = guard.widen() {
            return (guard, Err(fault));
        }
        guard = self.look_for_failures(guard, now);
        // From here on whoever sends wakes us; what came before is looked for once more.
        guard.begin_sleep();
        let Some(sleep_word) = SleepWord::arm(&mut guard) else {
            guard.disarm();
            drop(guard);
            std::thread::sleep(Duration::from_micros(50));
            return (self.cell.lock(), Ok(None));
        };
        guard.set_asleep_remote(true);
        let mut again = match guard.progress() {
            Ok(moved) => moved,
            Err(fault) => {
                guard.disarm();
                return (guard, Err(fault));
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
            let helped = siblings.help_all(self.vci);
            guard = self.cell.lock();
            (again, quiet) = (helped.moved, quiet && helped.quiet);
            if helped.networked {
                timeout = SHARED_SLEEP_MAX;
            }
            // Whoever was there before has seen nobody asleep.
            found = ready(&mut guard);
        }
        if again || found.is_some() {
            guard.disarm();
            self.fruitless = 0;
            return (guard, Ok(found));
        }
        if !quiet {
            self.fruitless += 1;
            if self.fruitless <= ROOM_LOOKS {
                guard.disarm();
                return (give_core(self.cell, guard), Ok(None));
            }
            timeout = ROOM_PAUSE_MAX.min(ROOM_PAUSE_MIN * (1 << (self.fruitless - ROOM_LOOKS).min(16)));
        }
        guard.worker.counters.sleeps += 1;
        if guard.worker.asleep > 1 && matches!(sleep_word, SleepWord::Sockets(..)) {
            // A ring wakes only one of them.
            timeout = timeout.min(SHARED_SLEEP_MAX);
        }
        drop(guard);
        let asleep_ns = now_ns();
        sleep_word.sleep(timeout.min(Duration::from_nanos(self.limit_ns.saturating_sub(asleep_ns - self.start_ns))));
        note(EventKind::Slept, || [(now_ns() - asleep_ns) as i64, 0, 0]);
        guard = self.cell.lock();
        guard.disarm();
        (guard, Ok(None))
    }
}

/// Where a thread sleeps.
enum SleepWord {
    /// On shared memory's doorbell, as it stood; what the network wants to be done is due then.
    Doorbell(Doorbell, u32, Option<Duration>),
    Sockets(Arc<Watch>, Option<Duration>),
}

impl SleepWord {
    /// Has this process woken there from now on. `None`: there is no such place.
    fn arm(engine: &mut Engine) -> Option<SleepWord> {
        let remote = engine.sleep_remote();
        if let Some(local) = &engine.memory {
            let seen = local.arm(|| engine.worker.armed.iter().for_each(|(line, member, _)| line.add(*member)));
            return Some(SleepWord::Doorbell(local.doorbell(), seen, remote.and_then(|(_, due)| due)));
        }
        remote.map(|(watch, due)| SleepWord::Sockets(watch, due))
    }

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
