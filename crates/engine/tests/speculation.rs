//! What the engine learns from announcements (RTRs) that were of no use: they die out, also where no tag comes twice.

mod layout;

use engine::{Buffer, Config, Context, ContextIndex, Engine, Mode, Pattern, RequestId, Speculation, Target};
use fabric::local::{self, LocalPeers};
use layout::{EverySecond, place};
use std::collections::HashMap;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex};

const LONG: usize = 100_000;
/// More than a sender remembers, and more than a receiver takes in one look.
const AHEAD: usize = 150;

struct Side {
    engine: Engine,
    context: ContextIndex,
    memory: Vec<u8>,
}

fn context() -> Context {
    Context::new(0, 1).unwrap()
}

fn pair(speculation: Speculation) -> [Side; 2] {
    pair_on(2, speculation)
}

fn pair_on(cores: u32, speculation: Speculation) -> [Side; 2] {
    let segments: Arc<Mutex<HashMap<u32, OwnedFd>>> = Arc::default();
    [0u32, 1].map(|index| {
        let others = segments.clone();
        let resolver: local::Resolver = Box::new(move |peer, _| others.lock().unwrap()[&peer].try_clone().map(Some).map_err(|e| e.to_string()));
        let local = LocalPeers::new(
            local::Config { index, processes: 2, memory_bytes: 3 << 20, single_copy: true, map_memory: true, answer_within: local::ANSWER_WITHIN },
            resolver,
        )
        .unwrap();
        segments.lock().unwrap().insert(index, local.segment().try_clone_to_owned().unwrap());
        let mut engine = Engine::new(Config { me: index, processes: 2, local_processes: 2, cores, speculation, ..Config::default() }, Some(local));
        let context = engine.open(context());
        Side { engine, context, memory: vec![index as u8; LONG] }
    })
}

impl Side {
    fn buffer(&mut self, bytes: usize) -> Buffer {
        // SAFETY: the memory lives, unmoved, as long as the engine. Receives at the same time may write it in any order: nobody reads it.
        unsafe { Buffer::contiguous(self.memory.as_mut_ptr(), bytes) }
    }

    fn receive(&mut self, tag: i32, bytes: usize) -> RequestId {
        let buffer = self.buffer(bytes);
        let id = self.engine.receive(self.context, Pattern { source: 0, tag }, &buffer).unwrap();
        self.engine.announce(id, 0);
        id
    }

    fn send(&mut self, tag: i32, bytes: usize) -> Option<RequestId> {
        let target = Target { process: 1, context: context(), source: 0, tag };
        let buffer = self.buffer(bytes);
        self.engine.send(&target, &buffer, Mode::Standard).unwrap()
    }
}

/// Drives both until all is over; the receiver looks first, or the sender.
fn finish(sides: &mut [Side; 2], mut open: Vec<(usize, RequestId)>, first: usize) {
    for _ in 0..100_000 {
        for side in [first, 1 - first] {
            sides[side].engine.progress().unwrap();
        }
        open.retain(|(side, id)| sides[*side].engine.take(*id).is_none());
        if open.is_empty() {
            return;
        }
    }
    panic!("not over: {open:?}");
}

/// What one round does to the announcement of its long receive.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Way {
    /// The sender looks at it when [`AHEAD`] messages have left since, and resets. The long message leaves after that.
    ResetBeforeOffer,
    /// As before, but its own long message is among these.
    ResetAfterOffer,
    /// The message is short.
    Short,
    /// The sender comes late and uses it.
    Answered,
}

/// One round; `tag` is that of the long receive.
fn round(sides: &mut [Side; 2], way: Way, tag: i32) {
    let mut open = Vec::new();
    let [sender, receiver] = sides;
    let short = |sender: &mut Side, count: usize| (0..count).for_each(|_| assert!(sender.send(0, 8).is_none()));
    let mut shorts = AHEAD;
    match way {
        Way::ResetBeforeOffer => {
            open.push((1, receiver.receive(tag, LONG)));
            short(sender, AHEAD);
            open.extend(sender.send(tag, LONG).map(|id| (0, id)));
        }
        Way::ResetAfterOffer => {
            short(sender, AHEAD);
            open.extend(sender.send(tag, LONG).map(|id| (0, id)));
            open.push((1, receiver.receive(tag, LONG)));
        }
        Way::Short => {
            shorts = 0;
            open.push((1, receiver.receive(tag, LONG)));
            assert!(sender.send(tag, 8).is_none());
        }
        Way::Answered => {
            shorts = 0;
            open.push((1, receiver.receive(tag, LONG)));
            sender.engine.progress().unwrap();
            open.extend(sender.send(tag, LONG).map(|id| (0, id)));
        }
    }
    if way == Way::ResetAfterOffer {
        sender.engine.progress().unwrap();
    }
    open.extend((0..shorts).map(|_| (1, receiver.receive(0, 8))));
    finish(sides, open, 1);
}

/// RTRs of the last `rounds / 2` of so many rounds.
fn sent_late(speculation: Speculation, way: Way, rounds: i32, new_tags: bool) -> (u64, [Side; 2]) {
    let mut sides = pair(speculation);
    let mut before = 0;
    for number in 0..rounds {
        if number == rounds / 2 {
            before = sides[1].engine.counters().rtr_sent;
        }
        round(&mut sides, way, if new_tags { 1 + number } else { 1 });
    }
    (sides[1].engine.counters().rtr_sent - before, sides)
}

const ROUNDS: i32 = 2000;

#[test]
fn announcements_of_no_use_die_out() {
    for way in [Way::ResetBeforeOffer, Way::ResetAfterOffer, Way::Short] {
        for new_tags in [false, true] {
            let (always, _) = sent_late(Speculation::Always, way, 60, new_tags);
            assert_eq!(always, 30, "{way:?}: it is to announce each time where it does not adapt");
            let (late, sides) = sent_late(Speculation::Adaptive, way, ROUNDS, new_tags);
            let counters = sides[1].engine.counters();
            assert!(late < 5, "{way:?}, new tags {new_tags}: {late} of {} RTRs in the second half; {counters:?}", counters.rtr_sent);
            assert!(counters.rtr_pauses > 0, "{way:?}: {counters:?}");
            assert_eq!(counters.rtr_suppressed + counters.rtr_sent, ROUNDS as u64, "{way:?}: {counters:?}");
            let voided = if way == Way::Short { 0 } else { counters.rtr_sent };
            assert_eq!(counters.rtr_voided, voided, "{way:?}, new tags {new_tags}: {counters:?}");
        }
    }
}

#[test]
fn announcements_of_use_go_on() {
    for new_tags in [false, true] {
        let (late, sides) = sent_late(Speculation::Adaptive, Way::Answered, 200, new_tags);
        let counters = sides[1].engine.counters();
        assert_eq!((late, counters.rtr_used, counters.rtr_pauses, counters.rtr_voided), (100, 200, 0, 0), "{counters:?}");
    }
}

#[test]
fn nothing_is_announced_and_nothing_looked_for_where_speculation_is_off() {
    let mut sides = pair(Speculation::Off);
    assert_eq!(sides[1].engine.announce_above_bytes(), usize::MAX);
    round(&mut sides, Way::Answered, 1);
    // What lies in the ring stays there: posting a long receive is no look.
    assert!(sides[0].send(7, 8).is_none());
    let id = sides[1].receive(8, LONG);
    assert_eq!(sides[1].engine.queued().1, 0);
    sides[1].engine.progress().unwrap();
    assert_eq!(sides[1].engine.queued().1, 1);
    sides[1].engine.cancel(id).unwrap();
    assert_eq!(sides[1].engine.counters().rtr_sent, 0);
}

/// Nobody's neighbour is to write for one while another's reads: one would have two copies to do at a time, and another none.
#[test]
fn receivers_read_where_processes_share_cores() {
    for (cores, speculation, sent) in [(1, Speculation::Adaptive, 0), (1, Speculation::Always, 1), (2, Speculation::Adaptive, 1)] {
        let mut sides = pair_on(cores, speculation);
        round(&mut sides, Way::Answered, 1);
        let [sender, receiver] = sides.each_ref().map(|side| side.engine.counters());
        assert_eq!((receiver.rtr_sent, receiver.rtr_used), (sent, sent), "{cores} cores, {speculation:?}: {receiver:?}, {sender:?}");
        // What lies in the ring stays there where nothing is going to be announced.
        assert!(sides[0].send(7, 8).is_none());
        let id = sides[1].receive(8, LONG);
        assert_eq!(sides[1].engine.queued().1, sent as u32 as _, "{cores} cores, {speculation:?}");
        sides[1].engine.cancel(id).unwrap();
    }
}

#[test]
fn a_pause_is_no_look_either() {
    let mut sides = pair(Speculation::Adaptive);
    let paused = (0..100).any(|_| {
        round(&mut sides, Way::Short, 1);
        sides[1].engine.counters().rtr_pauses > 0
    });
    assert!(paused);
    assert!(sides[0].send(7, 8).is_none());
    let paused = sides[1].receive(1, LONG);
    assert_eq!(sides[1].engine.queued(), (1, 0));
    // A receive of another source looks, and finds it.
    let buffer = sides[1].buffer(LONG);
    let context = sides[1].context;
    let other = sides[1].engine.receive(context, Pattern { source: Pattern::ANY_SOURCE, tag: 2 }, &buffer).unwrap();
    assert_eq!(sides[1].engine.queued(), (2, 1));
    sides[1].engine.cancel(paused).unwrap();
    sides[1].engine.cancel(other).unwrap();
}

/// Long pieces, of different lengths at both sides, or one piece: a late sender uses the announcement, and one that crosses it does too.
#[test]
fn receives_in_long_pieces_are_announced() {
    let layouts = [0, 5000, 8192];
    for (from, to) in layouts.into_iter().flat_map(|from| layouts.map(|to| (from, to))) {
        for crossing in [false, true] {
            let mut sides = pair(Speculation::Always);
            let mut out = vec![0x77u8; place(from, LONG - 1) + 1];
            (0..LONG).for_each(|i| out[place(from, i)] = (i * 7 + (i >> 8)) as u8);
            let mut into = vec![0x55u8; place(to, LONG - 1) + 1];
            let buffer = |memory: &mut [u8], block: usize| {
                let start = memory.as_mut_ptr();
                // SAFETY: the memory lives until the messages are over, and is not touched before.
                unsafe {
                    if block == 0 { Buffer::contiguous(start, LONG) } else { Buffer::planned(start, 1, LONG, Arc::new(EverySecond { block, bytes: LONG })) }
                }
            };
            let target = Target { process: 1, context: context(), source: 0, tag: 1 };
            for round in 0..10 {
                into.fill(0x55);
                let id = sides[1].engine.receive(sides[1].context, Pattern { source: 0, tag: 1 }, &buffer(&mut into, to)).unwrap();
                if crossing {
                    // The offer leaves, then the announcement.
                    sides[1].engine.progress().unwrap();
                    let sent = sides[0].engine.send(&target, &buffer(&mut out, from), Mode::Standard).unwrap();
                    sides[1].engine.announce(id, 0);
                    finish(&mut sides, sent.map(|id| (0, id)).into_iter().chain([(1, id)]).collect(), round % 2);
                } else {
                    sides[1].engine.announce(id, 0);
                    let sent = sides[0].engine.send(&target, &buffer(&mut out, from), Mode::Standard).unwrap();
                    finish(&mut sides, sent.map(|id| (0, id)).into_iter().chain([(1, id)]).collect(), round % 2);
                }
                (0..LONG).for_each(|i| assert_eq!(into[place(to, i)], out[place(from, i)], "byte {i}, pieces of {from} and {to} bytes"));
                assert!(to == 0 || into.iter().enumerate().all(|(i, byte)| i / to % 2 == 0 || *byte == 0x55));
            }
            let counters = sides[1].engine.counters();
            let served = if crossing { counters.rtr_crossed } else { counters.rtr_used };
            // At first contact a look may only find that the other side has come.
            assert!(counters.rtr_sent == 10 && served >= 9, "pieces of {from} and {to} bytes, crossing {crossing}: {counters:?}");
        }
    }
}
