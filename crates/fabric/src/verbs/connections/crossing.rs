//! How a connection is made by a call, which one process begins and the other answers, where both may begin at once.
//!
//! Of two calls that cross, that of the process with the lower number stands: it refuses the other one, and the other process takes
//! its call and lets go of its own. A process that is refused waits a moment for the call of the other, and else calls again. Whoever
//! called speaks first: iWARP wants that, and whoever was called knows by it that both ends are connected.

/// Between calls, later twice as long each time, ns.
const AGAIN_NS_MIN: u64 = 10_000_000;
const AGAIN_NS_MAX: u64 = 500_000_000;

/// How far a connection is, at one of its ends.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
enum Stage {
    /// Nothing is under way.
    Paused,
    /// The peer has been called, and has not answered.
    Calling,
    /// The peer's call has been taken, and it has said nothing yet.
    Taken,
    /// Both ends are connected.
    Open,
}

/// What becomes of the peer's call.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Answer {
    Take,
    /// Take it, and let go of the own one.
    TakeInstead,
    Refuse,
}

/// One end.
#[derive(Clone, Debug)]
pub struct Crossing {
    /// The own call stands where two cross.
    first: bool,
    stage: Stage,
    /// The peer waits for the first word.
    owes: bool,
    /// When it began, when it calls again, and how long after that, ns.
    pub since_ns: u64,
    again_ns: u64,
    wait_ns: u64,
}

impl Crossing {
    /// A call is due.
    pub fn new(first: bool, now_ns: u64) -> Crossing {
        Crossing { first, stage: Stage::Paused, owes: false, since_ns: now_ns, again_ns: now_ns, wait_ns: AGAIN_NS_MIN }
    }

    /// Messages may leave.
    pub fn is_open(&self) -> bool {
        self.stage == Stage::Open
    }

    /// When a call is due.
    pub fn due_ns(&self) -> Option<u64> {
        (self.stage == Stage::Paused).then_some(self.again_ns)
    }

    /// The peer is called.
    pub fn called(&mut self) {
        debug_assert_eq!(self.stage, Stage::Paused);
        self.stage = Stage::Calling;
    }

    /// The peer calls.
    pub fn asked(&mut self) -> Answer {
        let answer = match self.stage {
            Stage::Paused => Answer::Take,
            Stage::Calling if !self.first => Answer::TakeInstead,
            Stage::Calling | Stage::Taken | Stage::Open => return Answer::Refuse,
        };
        self.stage = Stage::Taken;
        answer
    }

    /// The peer has taken the call.
    pub fn answered(&mut self) {
        debug_assert_eq!(self.stage, Stage::Calling);
        (self.stage, self.owes) = (Stage::Open, true);
    }

    /// Whether the peer waits for a word, which leaves now.
    pub fn speaks(&mut self) -> bool {
        std::mem::take(&mut self.owes)
    }

    pub fn owes(&self) -> bool {
        self.owes
    }

    /// Something has come through the connection. True the first time, where the peer had called: messages may leave from now on.
    pub fn spoken_to(&mut self) -> bool {
        let opens = self.stage == Stage::Taken;
        if opens {
            self.stage = Stage::Open;
        }
        opens
    }

    /// The call, or the connection, has ended. False where messages may have gone through it; else a call is due later.
    pub fn ended(&mut self, now_ns: u64) -> bool {
        if self.stage == Stage::Open {
            return false;
        }
        self.stage = Stage::Paused;
        self.again_ns = now_ns + self.wait_ns;
        self.wait_ns = (2 * self.wait_ns).min(AGAIN_NS_MAX);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::{HashMap, HashSet};

    /// A call on its way, or a connection that came of it.
    #[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
    struct Call {
        caller: usize,
        at: At,
        /// The caller still wants it, and so does who has taken it.
        wanted: [bool; 2],
    }

    #[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
    enum At {
        /// The request is under way.
        Asked,
        /// The answer is under way.
        Taken,
        Refused,
        /// The caller has the answer; its first word is under way, or has come.
        Speaking,
        Spoken,
    }

    /// Two processes, and what is under way between them.
    #[derive(Clone, Debug)]
    struct World {
        /// Number 0 is the lower one.
        ends: [Crossing; 2],
        calls: Vec<Call>,
        /// Calls that may still fail at their callers although their requests arrive.
        losses: u32,
        /// How often each may still call, where that has an end.
        calls_left: Option<[u32; 2]>,
        /// Words that were sent and that came, by who sent them.
        sent: [u32; 2],
        came: [u32; 2],
    }

    /// What tells worlds apart.
    type Key = (Vec<(Stage, bool)>, Vec<Call>, u32, Option<[u32; 2]>, [u32; 2], [u32; 2]);

    impl World {
        fn new(losses: u32, calls_left: Option<[u32; 2]>) -> World {
            World { ends: [Crossing::new(true, 0), Crossing::new(false, 0)], calls: Vec::new(), losses, calls_left, sent: [0; 2], came: [0; 2] }
        }

        fn key(&self) -> Key {
            let mut calls = self.calls.clone();
            calls.sort();
            (self.ends.iter().map(|end| (end.stage, end.owes)).collect(), calls, self.losses, self.calls_left, self.sent, self.came)
        }

        /// What `end` has let go of: the other one hears that it has ended.
        fn let_go(&mut self, end: usize, keep: Option<usize>) {
            for (at, call) in self.calls.iter_mut().enumerate() {
                let side = usize::from(call.caller != end);
                if Some(at) != keep && (side == 0 || matches!(call.at, At::Taken | At::Speaking | At::Spoken)) {
                    call.wanted[side] = false;
                }
            }
        }

        /// Every world that may follow.
        fn next(&self) -> Vec<World> {
            let mut all = Vec::new();
            for end in 0..2 {
                if self.ends[end].stage == Stage::Paused && self.calls_left.is_none_or(|left| left[end] > 0) {
                    let mut next = self.clone();
                    next.calls_left = next.calls_left.map(|mut left| {
                        left[end] -= 1;
                        left
                    });
                    next.ends[end].called();
                    next.calls.push(Call { caller: end, at: At::Asked, wanted: [true, true] });
                    all.push(next);
                }
            }
            for at in 0..self.calls.len() {
                let call = self.calls[at];
                let (caller, callee) = (call.caller, 1 - call.caller);
                let mut next = self.clone();
                match call.at {
                    At::Asked => {
                        // A device does not tell whether the caller still waits.
                        match next.ends[callee].asked() {
                            Answer::Refuse => next.calls[at].at = At::Refused,
                            answer => {
                                if answer == Answer::TakeInstead {
                                    next.let_go(callee, None);
                                }
                                next.calls[at].at = At::Taken;
                                next.calls[at].wanted[1] = true;
                            }
                        }
                        all.push(next);
                        if self.losses > 0 && call.wanted[0] {
                            let mut next = self.clone();
                            next.losses -= 1;
                            next.calls[at].wanted[0] = false;
                            assert!(next.ends[caller].ended(0));
                            all.push(next);
                        }
                    }
                    At::Refused => {
                        next.calls.remove(at);
                        if call.wanted[0] {
                            assert!(next.ends[caller].ended(0));
                        }
                        all.push(next);
                    }
                    At::Taken if call.wanted[0] => {
                        next.ends[caller].answered();
                        assert!(next.ends[caller].speaks());
                        next.sent[caller] += 1;
                        next.calls[at].at = At::Speaking;
                        all.push(next);
                    }
                    // The caller lets go of what was taken too late.
                    At::Taken => {
                        next.calls.remove(at);
                        if call.wanted[1] {
                            assert!(next.ends[callee].ended(0), "messages have gone through a connection that its caller has let go");
                        }
                        all.push(next);
                    }
                    At::Speaking => {
                        assert!(call.wanted[1], "a word is lost");
                        assert!(next.ends[callee].spoken_to());
                        next.came[caller] += 1;
                        // And is answered.
                        next.sent[callee] += 1;
                        next.came[callee] += 1;
                        assert!(!next.ends[caller].spoken_to());
                        next.calls[at].at = At::Spoken;
                        all.push(next);
                    }
                    At::Spoken => {}
                }
            }
            all
        }

        /// Both ends are connected to each other, and each has heard the other's word.
        fn is_done(&self) -> bool {
            let spoken = self.calls.iter().filter(|call| call.at == At::Spoken && call.wanted == [true, true]).count();
            self.ends.iter().all(Crossing::is_open) && (spoken, self.sent, self.came) == (1, [1, 1], [1, 1])
        }
    }

    /// Where each calls once at most and none of that fails, no order needs another call.
    #[test]
    fn crossing_calls_suffice() {
        for calls_left in [[1, 1], [1, 0], [0, 1]] {
            let (mut known, mut waiting, mut ends) = (HashSet::new(), vec![World::new(0, Some(calls_left))], 0);
            while let Some(world) = waiting.pop() {
                let next = world.next();
                if next.is_empty() {
                    assert!(world.is_done(), "{world:?}");
                    ends += 1;
                }
                waiting.extend(next.into_iter().filter(|next| known.insert(next.key())));
            }
            assert!(ends > 0);
        }
    }

    /// All orders in which two processes call each other, are answered, and calls fail: at the end there is one connection, no word is lost or comes
    /// twice, and from everywhere there is a way to that end.
    #[test]
    fn all_orders() {
        let first = World::new(3, None);
        let (mut known, mut waiting) = (HashSet::from([first.key()]), vec![first]);
        let (mut before, mut done) = (HashMap::<_, Vec<_>>::new(), Vec::new());
        while let Some(world) = waiting.pop() {
            let open = world.calls.iter().filter(|call| matches!(call.at, At::Speaking | At::Spoken)).count();
            assert!(open <= 1, "{world:?}");
            for (one, other) in [(0, 1), (1, 0)] {
                if world.ends[one].is_open() {
                    assert!(matches!(world.ends[other].stage, Stage::Taken | Stage::Open), "{world:?}");
                }
            }
            if world.ends.iter().all(Crossing::is_open) {
                assert!(world.is_done(), "{world:?}");
                done.push(world.key());
            }
            for next in world.next() {
                before.entry(next.key()).or_default().push(world.key());
                if known.insert(next.key()) {
                    waiting.push(next);
                }
            }
        }
        assert!(known.len() > 100, "{} worlds", known.len());
        let mut leads: HashSet<_> = done.iter().cloned().collect();
        while let Some(key) = done.pop() {
            for earlier in before.get(&key).into_iter().flatten() {
                if leads.insert(earlier.clone()) {
                    done.push(earlier.clone());
                }
            }
        }
        assert_eq!(known.difference(&leads).next(), None, "no way to a connection from here");
    }

    #[test]
    fn calls_become_rarer() {
        let mut one = Crossing::new(true, 0);
        let mut now_ns = 0;
        for _ in 0..10 {
            assert_eq!(one.due_ns(), Some(now_ns));
            one.called();
            assert_eq!(one.due_ns(), None);
            assert!(one.ended(now_ns));
            now_ns = one.due_ns().unwrap();
        }
        one.called();
        assert!(one.ended(now_ns));
        assert_eq!(one.due_ns(), Some(now_ns + AGAIN_NS_MAX));
    }
}
