//! Messages in long pieces: which way they take one way and in exchanges, and that they arrive whole.

mod layout;

use engine::{Buffer, Config, Context, ContextIndex, Engine, Mode, Pattern, RequestId, Target};
use fabric::local::{self, LocalPeers};
use layout::EverySecond;
use std::collections::HashMap;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex};
use trace::DataPath;

const BYTES: usize = 1 << 20;

struct Side {
    engine: Engine,
    context: ContextIndex,
    plan: Arc<EverySecond>,
    outgoing: Vec<u8>,
    incoming: Vec<u8>,
}

impl Side {
    fn buffer(&self, memory: &[u8]) -> Buffer {
        // SAFETY: the vectors live as long as the engine and are not touched while it is at work.
        unsafe { Buffer::planned(memory.as_ptr().cast_mut(), 1, BYTES, self.plan.clone()) }
    }

    fn receive(&mut self, from: u32) -> RequestId {
        self.incoming.fill(0x55);
        let buffer = self.buffer(&self.incoming);
        self.engine.receive(self.context, Pattern { source: from, tag: 1 }, &buffer).unwrap()
    }

    fn send(&mut self, to: u32) -> Option<RequestId> {
        let target = Target { process: to, context: context(), source: 1 - to, tag: 1 };
        let buffer = self.buffer(&self.outgoing);
        self.engine.send(&target, &buffer, Mode::Standard).unwrap()
    }

    /// Messages received in this way so far.
    fn received(&self, path: DataPath) -> u64 {
        self.engine.counters().received[path as usize].iter().map(|tally| tally.messages).sum()
    }
}

fn context() -> Context {
    Context::new(0, 1).unwrap()
}

fn pair(block: usize) -> [Side; 2] {
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
        let mut engine = Engine::new(Config { me: index, processes: 2, cores: 2, ..Config::default() }, Some(local));
        let context = engine.open(context());
        let outgoing = (0..2 * BYTES).map(|i| (i * 31 + (i >> 8) * 7) as u8 ^ index as u8).collect();
        Side { engine, context, plan: Arc::new(EverySecond { block, bytes: BYTES }), outgoing, incoming: vec![0; 2 * BYTES] }
    })
}

/// Drives both until all is over, then compares what came to `receivers` with what left.
fn finish(sides: &mut [Side; 2], mut open: Vec<(usize, RequestId)>, receivers: &[usize]) {
    for _ in 0..100_000 {
        for (side, _) in &open {
            sides[*side].engine.progress().unwrap();
        }
        open.retain(|(side, id)| sides[*side].engine.take(*id).is_none());
        if open.is_empty() {
            break;
        }
    }
    assert!(open.is_empty(), "not over: {open:?}");
    for &receiver in receivers {
        let (to, from) = (&sides[receiver], &sides[1 - receiver]);
        let block = to.plan.block;
        for (i, (got, sent)) in to.incoming.iter().zip(&from.outgoing).enumerate() {
            assert_eq!(*got, if i / block % 2 == 0 { *sent } else { 0x55 }, "byte {i} at {receiver}");
        }
    }
}

/// One after the other enters its exchange: the second finds the first one's message there already.
fn exchange(sides: &mut [Side; 2], first: usize) {
    let mut open = Vec::new();
    for side in [first, 1 - first] {
        open.push((side, sides[side].receive(1 - side as u32)));
        open.extend(sides[side].send(1 - side as u32).map(|id| (side, id)));
        sides[side].engine.progress().unwrap();
    }
    finish(sides, open, &[0, 1]);
}

fn one_way(sides: &mut [Side; 2]) {
    let mut open = vec![(1, sides[1].receive(0))];
    open.extend(sides[0].send(1).map(|id| (0, id)));
    finish(sides, open, &[1]);
}

#[test]
fn in_exchanges_each_side_reads_and_one_way_both_copy() {
    let mut sides = pair(8192);
    exchange(&mut sides, 0);
    let cooperative = |sides: &[Side; 2]| sides.each_ref().map(|side| side.received(DataPath::Cooperative));
    let before = cooperative(&sides);
    for round in 0..6 {
        exchange(&mut sides, round % 2);
    }
    assert_eq!(cooperative(&sides), before, "a copy was shared in an exchange");
    assert!(sides.iter().all(|side| side.received(DataPath::Read) >= 6));
    // The first one after an exchange may be taken for one more of them.
    one_way(&mut sides);
    let before = cooperative(&sides);
    (0..3).for_each(|_| one_way(&mut sides));
    assert_eq!(cooperative(&sides), [before[0], before[1] + 3]);
}

#[test]
fn short_pieces_are_packed() {
    for (block, path) in [(2048, DataPath::Pipelined), (4096, DataPath::Read)] {
        let mut sides = pair(block);
        (0..3).for_each(|round| exchange(&mut sides, round % 2));
        assert!(sides.iter().all(|side| side.received(path) >= 2), "pieces of {block} bytes");
    }
}

/// What is sent only where that can be done at once knows what its receiver has released since.
#[test]
fn sends_that_never_wait_go_on_when_earlier_ones_are_matched() {
    let mut sides = pair(8);
    let mut bytes = [7; 1000];
    for number in 0..3_000 {
        let target = Target { process: 1, context: context(), source: 0, tag: 1 };
        // SAFETY: the bytes live as long as the engines.
        let buffer = unsafe { Buffer::contiguous(bytes.as_mut_ptr(), bytes.len()) };
        assert!(sides[0].engine.send_now(&target, &buffer).unwrap(), "message {number} had to wait");
        let mut here = [0; 1000];
        // SAFETY: the receive ends before the bytes do.
        let buffer = unsafe { Buffer::contiguous(here.as_mut_ptr(), here.len()) };
        let context = sides[1].context;
        let id = sides[1].engine.receive(context, Pattern { source: 0, tag: 1 }, &buffer).unwrap();
        while sides[1].engine.take(id).is_none() {
            sides[1].engine.progress().unwrap();
        }
        assert_eq!(here, bytes);
    }
}

/// Messages of one piece that might go with their header.
fn plain(side: &mut Side, other: u32, bytes: usize, receives: bool, sends: bool) -> Vec<RequestId> {
    // SAFETY: as in `Side::buffer`.
    let [incoming, outgoing] = [&side.incoming, &side.outgoing].map(|memory| unsafe { Buffer::contiguous(memory.as_ptr().cast_mut(), bytes) });
    let mut open = Vec::new();
    if receives {
        side.incoming[..bytes].fill(0x55);
        open.push(side.engine.receive(side.context, Pattern { source: other, tag: 1 }, &incoming).unwrap());
    }
    if sends {
        let target = Target { process: other, context: context(), source: 1 - other, tag: 1 };
        open.extend(side.engine.send(&target, &outgoing, Mode::Standard).unwrap());
    }
    open
}

#[test]
fn messages_that_cross_are_tried_both_ways_and_one_way_they_go_with_their_header() {
    const PLAIN_BYTES: usize = 16 << 10;
    let mut sides = pair(8192);
    let both = |sides: &mut [Side; 2], round: usize, sends: [bool; 2]| {
        let mut open = Vec::new();
        for at in [round % 2, 1 - round % 2] {
            let ids = plain(&mut sides[at], 1 - at as u32, PLAIN_BYTES, sends[1 - at], sends[at]);
            open.extend(ids.into_iter().map(|id| (at, id)));
        }
        finish(sides, open, &[]);
        for at in [0, 1].into_iter().filter(|at| sends[1 - at]) {
            assert!(sides[at].incoming[..PLAIN_BYTES] == sides[1 - at].outgoing[..PLAIN_BYTES], "round {round}");
        }
    };
    let seen = |sides: &[Side; 2], path| [sides[0].received(path), sides[1].received(path)];
    (0..2000).for_each(|round| both(&mut sides, round, [true; 2]));
    // How long each is tried depends on the time that its messages take.
    for path in [DataPath::Eager, DataPath::Read] {
        assert!(seen(&sides, path).iter().all(|messages| *messages > 0), "{path:?}: {:?}", seen(&sides, path));
    }
    let [eager, read] = [DataPath::Eager, DataPath::Read].map(|path| seen(&sides, path));
    assert_eq!([eager[0] + read[0], eager[1] + read[1]], [2000; 2], "each went one of the two ways");
    (0..600).for_each(|round| both(&mut sides, round, [true, false]));
    let before = seen(&sides, DataPath::Eager)[1];
    (0..100).for_each(|round| both(&mut sides, round, [true, false]));
    assert_eq!(seen(&sides, DataPath::Eager)[1] - before, 100);
}

/// Whoever has waited for a long message may post the receive of the next before that is looked at: it is not copied twice.
#[test]
fn a_long_message_that_is_there_ends_a_look() {
    const LONG: usize = 8 << 10;
    let mut sides = pair(8);
    let mut bytes = [9; LONG];
    let mut here = [0; LONG];
    // SAFETY: the bytes live as long as the engines, and each receive ends before its bytes do.
    let (out, into) = unsafe { (Buffer::contiguous(bytes.as_mut_ptr(), LONG), Buffer::contiguous(here.as_mut_ptr(), LONG)) };
    let target = Target { process: 1, context: context(), source: 0, tag: 1 };
    let context = sides[1].context;
    let receive = |side: &mut Side| side.engine.receive(context, Pattern { source: 0, tag: 1 }, &into).unwrap();
    let until_over = |side: &mut Side, id| {
        while side.engine.take(id).is_none() {
            side.engine.progress().unwrap();
        }
    };
    // The first makes the connection.
    assert!(sides[0].engine.send_now(&target, &out).unwrap());
    let first = receive(&mut sides[1]);
    until_over(&mut sides[1], first);
    for _ in 0..100 {
        let mut next = receive(&mut sides[1]);
        assert!((0..2).all(|_| sides[0].engine.send_now(&target, &out).unwrap()));
        for _ in 0..2 {
            until_over(&mut sides[1], next);
            next = receive(&mut sides[1]);
        }
        sides[1].engine.cancel(next).unwrap();
        until_over(&mut sides[1], next);
    }
    assert_eq!(sides[1].engine.counters().unexpected, 0);
}

#[test]
fn who_ends_what_is_under_way_is_known_where_it_is_one() {
    let mut sides = pair(8);
    let mut here = [0; 8];
    let (context, own) = (sides[1].context, sides[1].engine.depends_on(|_| true));
    assert!(!own, "nothing is under way");
    sides[1].engine.expect(context, || Arc::new(World));
    // SAFETY: the receives are cancelled before the bytes end.
    let into = unsafe { Buffer::contiguous(here.as_mut_ptr(), 8) };
    let engine = &mut sides[1].engine;
    let from_0 = engine.receive(context, Pattern { source: 0, tag: 1 }, &into).unwrap();
    assert!(engine.depends_on(|process| process == 0) && !engine.depends_on(|process| process == 1));
    let from_any = engine.receive(context, Pattern { source: Pattern::ANY_SOURCE, tag: 1 }, &into).unwrap();
    assert!(!engine.depends_on(|_| true), "anybody may end one of them");
    for id in [from_0, from_any] {
        engine.cancel(id).unwrap();
        while engine.take(id).is_none() {
            engine.progress().unwrap();
        }
    }
    assert!(!engine.depends_on(|_| true));
}

/// Two processes, each of the rank that is its number.
struct World;

impl engine::Senders for World {
    fn process(&self, pattern: Pattern) -> Option<u32> {
        (pattern.source < 2).then_some(pattern.source)
    }

    fn contains(&self, process: u32) -> bool {
        process < 2
    }

    fn together(&self) -> bool {
        false
    }
}
