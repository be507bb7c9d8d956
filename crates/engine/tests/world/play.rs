//! One world: engines on shared memory, or on datagrams between sockets, stepped by one thread, and what the program saw.

use crate::layout::{EverySecond, place};
use crate::order;
use crate::random::Random;
use engine::{Buffer, Config, Context, ContextIndex, Engine, Message, Mode, Outcome, Pattern, Rendezvous, RequestId, Speculation, Target};
use fabric::Network;
use fabric::local::{self, LocalPeers};
use fabric::reliable::{JobKey, Protection};
use fabric::udp::{Setup, Udp};
use proto::costs::Costs;
use proto::protocols::Protocol;
use std::collections::HashMap;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use trace::{DATA_PATHS, DataPath};

const CONTEXTS: u32 = 3;
const TAGS: u64 = 3;
/// Bytes behind every receive buffer that nobody may touch.
const GUARD_BYTES: usize = 24;
const UNTOUCHED: u8 = 0xa5;
/// Messages of one source, target, context and tag, at most: one byte tells them apart, which is all that some receives have room for.
const LIKE_MAX: usize = 255;
/// Rounds in which nothing moves before a world counts as stuck.
const STILL_ROUNDS_MAX: usize = 3000;

/// Memory of the program that a request uses.
struct Memory {
    bytes: Vec<u8>,
    length: usize,
    /// Bytes of each block; 0: in one piece.
    block: usize,
}

impl Memory {
    fn new(length: usize, block: usize) -> Memory {
        let span = if length == 0 { 0 } else { place(block, length - 1) + 1 };
        Memory { bytes: vec![UNTOUCHED; span + GUARD_BYTES], length, block }
    }

    fn at(&self, i: usize) -> u8 {
        self.bytes[place(self.block, i)]
    }

    fn set(&mut self, i: usize, to: u8) {
        self.bytes[place(self.block, i)] = to;
    }

    fn buffer(&mut self) -> Buffer {
        let start = self.bytes.as_mut_ptr();
        // SAFETY: the world keeps the memory, unmoved, until its engines are gone.
        unsafe {
            if self.block > 0 {
                let plan = EverySecond { block: self.block, bytes: self.length };
                Buffer::planned(start, 1, self.length, Arc::new(plan))
            } else {
                Buffer::contiguous(start, self.length)
            }
        }
    }

    /// Whether only the first `bytes` were written.
    fn rest_untouched(&self, bytes: usize) -> bool {
        let hole = |i: usize| self.block > 0 && i / self.block % 2 == 1;
        let end = place(self.block, bytes);
        self.bytes.iter().enumerate().all(|(i, b)| *b == UNTOUCHED || (i < end && !hole(i)))
    }
}

struct Send {
    from: usize,
    to: usize,
    context: u32,
    tag: i32,
    synchronous: bool,
    memory: Memory,
    request: Option<RequestId>,
    sent_at: u64,
    done_at: Option<u64>,
    cancel_asked_at: Option<u64>,
    cancelled: bool,
    /// Number among those of the same source, target, context and tag: its first two bytes.
    number: usize,
}

struct Receive {
    at: usize,
    context: u32,
    pattern: Pattern,
    memory: Memory,
    request: Option<RequestId>,
    /// Taken by a matched probe and not received yet.
    message: Option<Message>,
    posted_at: u64,
    done: Option<(u64, Outcome)>,
    took: Option<usize>,
}

/// What differs from world to world.
#[derive(Clone, Debug)]
pub struct Shape {
    pub ranks: usize,
    pub single_copy: bool,
    pub steps: u64,
    pub bytes_max: usize,
    pub config: Config,
    /// Contexts and tags in use: few, so that messages could overtake each other, or all.
    pub contexts: u32,
    pub tags: u64,
    /// A rank's number in the second context is counted from the other end.
    pub reversed: bool,
    /// Ranks reach each other by datagrams, of which the longest message that is not pulled has so many bytes.
    pub datagrams: Option<usize>,
}

impl Shape {
    pub fn new(random: &mut Random) -> Shape {
        let ranks = random.pick(&[1, 2, 2, 2, 3, 4, 5, 6]);
        let unexpected_bytes_max = random.pick(&[300, 1 << 10, 5_000, 40_000]);
        let crowded = random.chance(30);
        Shape {
            ranks,
            single_copy: random.chance(50),
            steps: random.pick(&[60, 250, 700]),
            bytes_max: if random.chance(8) { 1 << 20 } else { random.pick(&[64, 5_000, 100_000]) },
            contexts: if random.chance(50) { 1 } else { CONTEXTS },
            tags: if random.chance(50) { 1 } else { TAGS },
            reversed: random.chance(50),
            datagrams: None,
            config: Config {
                processes: ranks as u32,
                cores: if crowded { 1 } else { 64 },
                eager_bytes_max: random.pick(&[0, 48, 200, 3_000, 16 << 10]),
                unexpected_bytes_max,
                headers_bytes_max: unexpected_bytes_max * random.pick(&[1, 2, 8]),
                cooperative_bytes_min: random.pick(&[1, 4_000, 66_000]),
                rendezvous: random.pick(&[Rendezvous::Sequence, Rendezvous::Acks]),
                speculation: random.pick(&[Speculation::Off, Speculation::Always, Speculation::Always, Speculation::Adaptive]),
                costs: if random.chance(50) { Costs::preferring(Protocol::Cooperative) } else { Costs::default() },
                ..Config::default()
            },
        }
    }

    /// The same between hosts. Sockets of several ranks take long: few ranks.
    fn apart(self, random: &mut Random) -> Shape {
        let ranks = self.ranks.clamp(2, 3);
        let speculation = random.pick(&[Speculation::Always, Speculation::Always, Speculation::Adaptive]);
        let eager_bytes_max = random.pick(&[200, 3_000, 40_000]);
        let unexpected_bytes_max = self.config.unexpected_bytes_max.max(2 * eager_bytes_max as u64);
        let config = Config {
            processes: ranks as u32,
            local_processes: 1,
            rendezvous: Rendezvous::Sequence,
            speculation,
            unexpected_bytes_max,
            headers_bytes_max: self.config.headers_bytes_max.max(unexpected_bytes_max),
            peer_timeout_ms: 600_000,
            ..self.config
        };
        Shape { ranks, config, steps: self.steps.min(250), bytes_max: self.bytes_max.max(5_000), datagrams: Some(eager_bytes_max), ..self }
    }
}

/// An engine that reaches the others by datagrams alone.
fn apart(config: Config, eager_bytes_max: usize, key: &JobKey, cards: &Arc<Mutex<HashMap<u32, String>>>) -> Engine {
    let me = config.me;
    let setup = Setup { filter: "127.0.0.1".parse().unwrap(), ..Setup::default() };
    let node = Network::over(Udp::open(&setup).expect("sockets"), me, me + 1, key, Protection::Auth, |limits| {
        limits.eager_bytes_max = eager_bytes_max as u32;
        limits.credit_bytes = config.unexpected_bytes_max;
        limits.credit_header_bytes = config.headers_bytes_max;
        limits.peer_timeout_ns = 600_000_000_000;
    });
    let node = node.expect("an event");
    cards.lock().unwrap().insert(me, node.card());
    let mut engine = Engine::new(config, None);
    let others = cards.clone();
    let card = move |peer, _| others.lock().unwrap().get(&peer).map(|card| (card.clone(), format!("host {peer}"))).ok_or("unknown".to_owned());
    engine.reach_remote(node, &[me], Box::new(card)).expect("a node");
    engine
}

struct Rank {
    engine: Engine,
    contexts: Vec<ContextIndex>,
    /// How often it let its peers leave more headers.
    widened: u32,
}

const TALLY: &str = "tally: ";

/// What worlds went through: a test that never came to a case has not tested it.
#[derive(Default, Debug)]
pub struct Tally {
    pub routes: [u64; DATA_PATHS.len()],
    pub held_to_header: u64,
    pub held_back: u64,
    pub truncated: u64,
    pub sends_taken_back: u64,
    pub receives_taken_back: u64,
    pub widened: u64,
    pub rtr_used: u64,
    pub rtr_crossed: u64,
    pub rtr_mispredicted: u64,
    pub rtr_voided: u64,
    pub rtr_suppressed: u64,
}

impl Tally {
    /// All numbers, in the order of their declaration.
    fn numbers(&mut self) -> impl Iterator<Item = &mut u64> {
        let Tally {
            routes,
            held_to_header,
            held_back,
            truncated,
            sends_taken_back,
            receives_taken_back,
            widened,
            rtr_used,
            rtr_crossed,
            rtr_mispredicted,
            rtr_voided,
            rtr_suppressed,
        } = self;
        let matched = [held_to_header, held_back, truncated, sends_taken_back, receives_taken_back, widened];
        routes.iter_mut().chain(matched).chain([rtr_used, rtr_crossed, rtr_mispredicted, rtr_voided, rtr_suppressed])
    }

    /// A line that [`Tally::add`] reads.
    pub fn line(&mut self) -> String {
        let numbers: Vec<String> = self.numbers().map(|number| number.to_string()).collect();
        format!("{TALLY}{}", numbers.join(" "))
    }

    /// Adds the tally in what a batch printed; whether it has one.
    pub fn add(&mut self, said: &str) -> bool {
        let Some(line) = said.lines().find_map(|line| line.strip_prefix(TALLY)) else { return false };
        self.numbers().zip(line.split(' ')).for_each(|(sum, more)| *sum += more.parse::<u64>().expect("a number"));
        true
    }

    pub fn all(&self) -> bool {
        let rest = [
            self.held_to_header,
            self.held_back,
            self.truncated,
            self.sends_taken_back,
            self.receives_taken_back,
            self.widened,
            self.rtr_used,
            self.rtr_crossed,
            self.rtr_mispredicted,
        ];
        // These worlds are of memory alone.
        let memory = self.routes.iter().enumerate().filter(|(route, _)| ![DataPath::Datagrams as usize, DataPath::Pulled as usize].contains(route));
        memory.map(|(_, count)| count).chain(&rest).all(|count| *count > 0)
    }

    /// The same of worlds of datagrams.
    pub fn all_apart(&self) -> bool {
        let routes = [DataPath::Datagrams, DataPath::Pulled].map(|route| self.routes[route as usize]);
        let announced = [self.rtr_used, self.rtr_crossed, self.rtr_mispredicted, self.rtr_voided, self.rtr_suppressed];
        routes.iter().chain(&announced).chain(&[self.truncated, self.sends_taken_back, self.receives_taken_back]).all(|count| *count > 0)
    }
}

pub struct World {
    random: Random,
    shape: Shape,
    ranks: Vec<Rank>,
    sends: Vec<Send>,
    receives: Vec<Receive>,
    numbers: HashMap<(usize, usize, u32, i32), usize>,
    now: u64,
}

impl World {
    pub fn new(seed: u64) -> World {
        let mut random = Random::new(seed);
        let shape = Shape::new(&mut random);
        World::with(seed, random, shape)
    }

    /// A world whose ranks reach each other by datagrams. Real sockets and clocks: a seed need not play the same again.
    pub fn apart(seed: u64) -> World {
        let mut random = Random::new(seed);
        let shape = Shape::new(&mut random).apart(&mut random);
        World::with(seed, random, shape)
    }

    fn with(seed: u64, random: Random, shape: Shape) -> World {
        let (key, cards) = (JobKey::new([seed as u8; 32]), Arc::default());
        // Numbers of its own: what a seed plays is what it played before.
        let mut late = Random::new(!seed);
        let segments: Arc<Mutex<HashMap<u32, OwnedFd>>> = Arc::default();
        let ranks = (0..shape.ranks as u32)
            .map(|me| {
                let others = segments.clone();
                // Some answer late.
                let mut asked = HashMap::<u32, u64>::new();
                let late = late.below(2) * late.below(20);
                let resolver: local::Resolver = Box::new(move |peer, _| {
                    let times = asked.entry(peer).or_default();
                    *times += 1;
                    let all = others.lock().unwrap();
                    Some(&all[&peer]).filter(|_| *times > late * peer as u64).map(OwnedFd::try_clone).transpose().map_err(|e| e.to_string())
                });
                // The smallest rings that there are: 64 lines and 8 KiB.
                let config = local::Config {
                    index: me,
                    processes: shape.ranks as u32,
                    memory_bytes: 1,
                    single_copy: shape.single_copy,
                    map_memory: true,
                    answer_within: Duration::ZERO,
                };
                let local = LocalPeers::new(config, resolver).expect("a segment");
                segments.lock().unwrap().insert(me, local.segment().try_clone_to_owned().unwrap());
                let config = Config { me, ..shape.config.clone() };
                let mut engine = match shape.datagrams {
                    Some(eager_bytes_max) => apart(config, eager_bytes_max, &key, &cards),
                    None => Engine::new(config, Some(local)),
                };
                let contexts = (0..CONTEXTS).map(|c| engine.open(Context::new(0, c).unwrap())).collect();
                Rank { engine, contexts, widened: 0 }
            })
            .collect();
        World { random, shape, ranks, sends: Vec::new(), receives: Vec::new(), numbers: HashMap::new(), now: 0 }
    }

    /// Plays the world to its end and checks it.
    pub fn run(mut self, tally: &mut Tally) {
        for _ in 0..self.shape.steps {
            self.step();
        }
        self.drain();
        self.count(tally);
        self.check();
    }

    fn count(&self, tally: &mut Tally) {
        for rank in &self.ranks {
            let counters = rank.engine.counters();
            for (route, sum) in tally.routes.iter_mut().enumerate() {
                *sum += counters.received[route].iter().map(|t| t.messages).sum::<u64>();
            }
            tally.held_to_header += counters.held_to_header;
            tally.held_back += counters.held_back;
            tally.widened += rank.widened as u64;
            tally.rtr_used += counters.rtr_used;
            tally.rtr_crossed += counters.rtr_crossed;
            tally.rtr_mispredicted += counters.rtr_mispredicted;
            tally.rtr_voided += counters.rtr_voided;
            tally.rtr_suppressed += counters.rtr_suppressed;
        }
        tally.truncated += self.receives.iter().filter(|r| r.done.is_some_and(|d| d.1.truncated())).count() as u64;
        tally.receives_taken_back += self.receives.iter().filter(|r| r.done.is_some_and(|d| d.1.cancelled)).count() as u64;
        tally.sends_taken_back += self.sends.iter().filter(|s| s.cancelled).count() as u64;
    }

    /// The rank in `context` of a process.
    fn number_of(&self, process: usize, context: u32) -> u32 {
        if context == 1 && self.shape.reversed { (self.shape.ranks - 1 - process) as u32 } else { process as u32 }
    }

    fn step(&mut self) {
        self.now += 1;
        let rank = self.random.below(self.shape.ranks as u64) as usize;
        match self.random.below(100) {
            0..22 => {
                // A burst fills rings and uses credit up.
                let burst = if self.random.chance(25) { self.random.below(12) } else { 1 };
                let to = self.random.below(self.shape.ranks as u64) as usize;
                (0..burst).for_each(|_| self.send(rank, to));
            }
            22..40 => self.receive(rank),
            40..45 => self.probe(rank),
            45..49 => self.take_message(rank),
            49..54 => {
                self.receive_taken(rank);
            }
            54..57 => self.cancel_receive(rank),
            57..60 => self.cancel_send(rank),
            60 => self.widen(rank),
            _ => {
                let turns = 1 + self.random.below(3);
                for _ in 0..turns {
                    self.progress(rank);
                }
            }
        }
        self.look(rank);
    }

    fn progress(&mut self, rank: usize) -> bool {
        let moved = self.ranks[rank].engine.progress().expect("progress");
        let bound = |widened: u32| {
            let c = &self.shape.config;
            c.headers_bytes_max.max(c.unexpected_bytes_max) << widened.min(30)
        };
        // Of datagrams the reliability layer bounds what lies here.
        for peer in 0..if self.shape.datagrams.is_some() { 0 } else { self.shape.ranks } {
            let held = self.ranks[rank].engine.held_bytes(peer as u32);
            let most = bound(self.ranks[rank].widened);
            assert!(held <= most, "{held} bytes of process {peer} lie unmatched at {rank}; {most} are allowed");
        }
        moved
    }

    fn widen(&mut self, rank: usize) {
        self.ranks[rank].widened += 1;
        self.ranks[rank].engine.widen().expect("widen");
    }

    fn size(&mut self) -> usize {
        let eager = self.shape.datagrams.unwrap_or(self.shape.config.eager_bytes_max);
        let thresholds = [0, 8, 40, 48, 200, 4096, eager, 8 << 10, self.shape.config.cooperative_bytes_min as usize, 64 << 10];
        let size = match self.random.below(10) {
            0..4 => self.random.below(50) as usize,
            4..8 => (self.random.pick(&thresholds) + self.random.below(3) as usize).saturating_sub(1),
            _ => self.random.below(self.shape.bytes_max as u64 + 1) as usize,
        };
        size.min(self.shape.bytes_max)
    }

    /// Blocks that a message lies in: mostly one piece, else too short to be listed, long enough for the receiver only, or long.
    fn block(&mut self) -> usize {
        if self.random.chance(60) { 0 } else { self.random.pick(&[1, 600, 2048, 5000]) }
    }

    fn content(number: usize, id: usize, i: usize) -> u8 {
        if i < 2 { (number >> (8 * i)) as u8 } else { (i * 7 + (i >> 8) * 13 + id * 31 + 5) as u8 }
    }

    fn send(&mut self, from: usize, to: usize) {
        let (context, tag) = (self.random.below(self.shape.contexts as u64) as u32, self.random.below(self.shape.tags) as i32);
        let (bytes, block) = (self.size(), self.block());
        let id = self.sends.len();
        let number = self.numbers.entry((from, to, context, tag)).or_default();
        if *number == LIKE_MAX {
            return;
        }
        *number += 1;
        let number = *number;
        let mut memory = Memory::new(bytes, block);
        (0..bytes).for_each(|i| memory.set(i, World::content(number, id, i)));
        let synchronous = self.random.chance(25);
        let how = self.random.below(3);
        let target = Target { process: to as u32, context: Context::new(0, context).unwrap(), source: self.number_of(from, context), tag };
        let engine = &mut self.ranks[from].engine;
        let buffer = memory.buffer();
        // SAFETY: the memory is readable.
        let at_once = match how {
            0 if !synchronous && block == 0 => unsafe { engine.send_quickly(target, memory.bytes.as_ptr(), bytes) },
            1 if !synchronous => engine.send_now(&target, &buffer).expect("send now"),
            _ => false,
        };
        let mode = if synchronous { Mode::Synchronous } else { Mode::Standard };
        let request = if at_once { None } else { engine.send(&target, &buffer, mode).expect("send") };
        let done_at = request.is_none().then_some(self.now);
        self.sends.push(Send {
            from,
            to,
            context,
            tag,
            synchronous,
            memory,
            request,
            sent_at: self.now,
            done_at,
            cancel_asked_at: None,
            cancelled: false,
            number,
        });
        // The receive that a message to oneself completes.
        self.look(to);
    }

    fn pattern(&mut self, context: u32) -> Pattern {
        let source = self.random.below(self.shape.ranks as u64) as usize;
        Pattern {
            source: if self.random.chance(35) { Pattern::ANY_SOURCE } else { self.number_of(source, context) },
            tag: if self.random.chance(35) { Pattern::ANY_TAG } else { self.random.below(self.shape.tags) as i32 },
        }
    }

    fn room(&mut self) -> usize {
        if self.random.chance(70) { self.shape.bytes_max } else { self.size() }
    }

    fn receive(&mut self, at: usize) {
        let context = self.random.below(self.shape.contexts as u64) as u32;
        let pattern = self.pattern(context);
        self.receive_with(at, context, pattern);
    }

    fn receive_with(&mut self, at: usize, context: u32, pattern: Pattern) {
        let (room, block) = (self.room(), self.block());
        let mut memory = Memory::new(room, block);
        let rank = &mut self.ranks[at];
        let index = rank.contexts[context as usize];
        let quickly = block == 0 && self.random.chance(50);
        let request = if quickly {
            // SAFETY: the world keeps the memory.
            unsafe { rank.engine.receive_quickly(index, pattern, memory.bytes.as_mut_ptr(), room, 0) }
        } else {
            rank.engine.receive(index, pattern, &memory.buffer())
        };
        let request = request.expect("receive");
        let sender = match pattern.source {
            Pattern::ANY_SOURCE if self.shape.ranks == 2 => Some(1 - at as u32),
            Pattern::ANY_SOURCE => None,
            source => Some(self.number_of(source as usize, context)),
        };
        if let Some(process) = sender {
            self.ranks[at].engine.announce(request, process);
        }
        self.receives.push(Receive { at, context, pattern, memory, request: Some(request), message: None, posted_at: self.now, done: None, took: None });
        self.look(at);
    }

    /// What is probed is what a receive gets.
    fn probe(&mut self, at: usize) {
        let context = self.random.below(self.shape.contexts as u64) as u32;
        let pattern = self.pattern(context);
        let index = self.ranks[at].contexts[context as usize];
        let Some(found) = self.ranks[at].engine.probe(index, pattern) else { return };
        assert!(pattern.accepts(found.source, found.tag));
        let exact = Pattern { source: found.source, tag: found.tag };
        let pattern = if self.random.chance(50) { pattern } else { exact };
        self.receive_with(at, context, pattern);
        let receive = self.receives.last_mut().unwrap();
        match receive.done {
            Some((_, got)) => {
                assert_eq!((got.source, got.tag), (found.source, found.tag), "a probe and the receive after it differ");
                assert_eq!(got.bytes, found.bytes.min(receive.memory.length as u64));
            }
            None => assert!(receive.request.is_some()),
        }
    }

    fn take_message(&mut self, at: usize) {
        let context = self.random.below(self.shape.contexts as u64) as u32;
        let pattern = self.pattern(context);
        let index = self.ranks[at].contexts[context as usize];
        let Some(message) = self.ranks[at].engine.probe_taking(index, pattern) else { return };
        let (room, block) = (self.room(), self.block());
        self.receives.push(Receive {
            at,
            context,
            pattern,
            memory: Memory::new(room, block),
            request: None,
            message: Some(message),
            posted_at: self.now,
            done: None,
            took: None,
        });
    }

    fn receive_taken(&mut self, at: usize) -> bool {
        let Some(receive) = self.receives.iter_mut().find(|r| r.at == at && r.message.is_some()) else { return false };
        let message = receive.message.take().unwrap();
        let promised = message.outcome();
        let request = self.ranks[at].engine.receive_message(message, &receive.memory.buffer()).expect("receive of a message");
        if let Some(outcome) = self.ranks[at].engine.peek(request) {
            assert_eq!((outcome.source, outcome.tag), (promised.source, promised.tag));
        }
        receive.request = Some(request);
        self.look(at);
        true
    }

    fn cancel_receive(&mut self, at: usize) {
        let waiting: Vec<RequestId> = self.receives.iter().filter(|r| r.at == at).filter_map(|r| r.request).collect();
        if !waiting.is_empty() {
            let id = self.random.pick(&waiting);
            self.ranks[at].engine.cancel(id).expect("cancel");
        }
    }

    fn cancel_send(&mut self, from: usize) {
        let now = self.now;
        let waiting: Vec<usize> = (0..self.sends.len()).filter(|s| self.sends[*s].from == from && self.sends[*s].request.is_some()).collect();
        if !waiting.is_empty() {
            let send = &mut self.sends[self.random.pick(&waiting)];
            send.cancel_asked_at.get_or_insert(now);
            self.ranks[from].engine.cancel(send.request.unwrap()).expect("cancel");
        }
    }

    /// Notes which requests of a rank are complete.
    fn look(&mut self, rank: usize) -> bool {
        let engine = &mut self.ranks[rank].engine;
        let mut any = false;
        for send in self.sends.iter_mut().filter(|s| s.from == rank) {
            let Some(id) = send.request else { continue };
            if let Some(outcome) = engine.take(id) {
                assert!(!outcome.failed);
                assert!(!outcome.cancelled || send.cancel_asked_at.is_some(), "a send was taken back that nobody cancelled");
                (send.request, send.done_at, send.cancelled) = (None, Some(self.now), outcome.cancelled);
                any = true;
            }
        }
        for receive in self.receives.iter_mut().filter(|r| r.at == rank) {
            let Some(id) = receive.request else { continue };
            let (index, generation) = id.parts();
            let before = engine.peek(id);
            if let Some(received) = engine.take_well(index, generation, u32::MAX, engine::Received::new(-1, -1, 0)) {
                let outcome = before.expect("what is taken well was complete");
                assert_eq!((received.source(), received.tag(), received.bytes()), (outcome.source as i32, outcome.tag, outcome.bytes));
                (receive.request, receive.done) = (None, Some((self.now, outcome)));
                any = true;
            } else if let Some(outcome) = engine.take(id) {
                (receive.request, receive.done) = (None, Some((self.now, outcome)));
                any = true;
            }
        }
        any
    }

    /// Receives everything that was sent, then takes back the receives that are left.
    fn drain(&mut self) {
        let mut still = 0;
        loop {
            self.now += 1;
            let mut moved = false;
            for rank in 0..self.shape.ranks {
                for _ in 0..=self.random.below(2) {
                    moved |= self.progress(rank);
                }
                moved |= self.look(rank);
                moved |= self.receive_taken(rank);
                for context in 0..CONTEXTS {
                    let any = Pattern { source: Pattern::ANY_SOURCE, tag: Pattern::ANY_TAG };
                    let index = self.ranks[rank].contexts[context as usize];
                    while self.ranks[rank].engine.probe(index, any).is_some() {
                        self.receive_with(rank, context, any);
                        moved = true;
                    }
                }
            }
            let sending = self.sends.iter().any(|s| s.request.is_some());
            // A receive that has been matched is on its way to its end, and cannot be cancelled any more.
            if !moved && !sending {
                let waiting: Vec<(usize, RequestId)> = self.receives.iter().filter_map(|r| r.request.map(|id| (r.at, id))).collect();
                for (at, id) in &waiting {
                    self.ranks[*at].engine.cancel(*id).expect("cancel");
                    self.look(*at);
                }
                let apart = self.shape.datagrams.is_some();
                let quiet = self.ranks.iter().all(|r| r.engine.quiet() && (!apart || r.engine.settled()));
                if waiting.is_empty() && quiet && still > 3 {
                    return;
                }
            }
            still = if moved { 0 } else { still + 1 };
            if !moved && self.shape.datagrams.is_some() {
                // What is lost in a socket comes again in its time.
                std::thread::sleep(Duration::from_millis(1));
            }
            if still == 20 {
                (0..self.shape.ranks).for_each(|rank| self.widen(rank));
            }
            if still > STILL_ROUNDS_MAX {
                let sends: Vec<_> = self.sends.iter().filter(|s| s.request.is_some()).map(|s| (s.from, s.to, s.memory.length)).collect();
                let receives: Vec<_> = self.receives.iter().filter(|r| r.request.is_some()).map(|r| (r.at, r.pattern)).collect();
                panic!("stuck: sends {sends:?}, receives {receives:?}");
            }
        }
    }

    fn check(mut self) {
        self.identify();
        for rank in &mut self.ranks {
            assert_eq!(rank.engine.active(), 0, "requests are left");
            assert_eq!(rank.engine.counters().refused, 0, "packets were refused");
            for peer in 0..self.shape.ranks {
                assert_eq!(rank.engine.held_bytes(peer as u32), 0, "unexpected memory of process {peer} is not given back");
            }
        }
        let mut taken = vec![false; self.sends.len()];
        for (r, receive) in self.receives.iter().enumerate() {
            let (_, outcome) = receive.done.expect("every receive is over");
            let Some(id) = receive.took else {
                assert!(outcome.cancelled && receive.memory.rest_untouched(0), "receive {r}: {outcome:?}");
                continue;
            };
            let send = &self.sends[id];
            assert!(!std::mem::replace(&mut taken[id], true), "message {id} came twice");
            let bytes = send.memory.length.min(receive.memory.length);
            assert_eq!(outcome.bytes, bytes as u64, "receive {r} of message {id}");
            assert_eq!(outcome.truncated(), send.memory.length > receive.memory.length, "receive {r} of message {id}");
            for i in 0..bytes {
                assert_eq!(receive.memory.at(i), send.memory.at(i), "byte {i} of message {id} in receive {r}");
            }
            assert!(receive.memory.rest_untouched(bytes), "receive {r} wrote past the message or into holes");
            if send.synchronous {
                assert!(send.done_at >= Some(receive.posted_at), "synchronous send {id} ended before its receive began");
            }
        }
        for (id, send) in self.sends.iter().enumerate() {
            assert!(taken[id] != send.cancelled, "message {id} is lost, or came though it was taken back");
            (0..send.memory.length).for_each(|i| assert_eq!(send.memory.at(i), World::content(send.number, id, i)));
            assert!(send.memory.rest_untouched(send.memory.length));
        }
        for at in 0..self.shape.ranks {
            for context in 0..CONTEXTS {
                self.check_order(at, context);
            }
        }
    }

    /// Finds out which message each receive took: by its first bytes, and where they do not tell by the order of its like.
    fn identify(&mut self) {
        let mut free: Vec<bool> = self.sends.iter().map(|s| !s.cancelled).collect();
        // Those that are known for certain come first.
        for telling in [2, 1, 0] {
            for r in 0..self.receives.len() {
                let receive = &self.receives[r];
                let Some((_, outcome)) = receive.done else { continue };
                if outcome.cancelled || outcome.bytes.min(2) != telling {
                    continue;
                }
                let found = (0..self.sends.len()).find(|id| {
                    let send = &self.sends[*id];
                    let bytes = send.memory.length.min(receive.memory.length);
                    free[*id]
                        && (send.to, send.context, send.tag) == (receive.at, receive.context, outcome.tag)
                        && self.number_of(send.from, send.context) == outcome.source
                        && (bytes.min(2) as u64, send.memory.length > bytes) == (telling, outcome.truncated())
                        && (0..bytes.min(2)).all(|i| send.memory.at(i) == receive.memory.at(i))
                });
                let id = found.unwrap_or_else(|| panic!("receive {r} got a message that nobody sent: {outcome:?}"));
                free[id] = false;
                self.receives[r].took = Some(id);
            }
        }
    }

    fn check_order(&self, at: usize, context: u32) {
        let here: Vec<usize> = (0..self.sends.len()).filter(|s| (self.sends[*s].to, self.sends[*s].context) == (at, context)).collect();
        let sent: Vec<_> = here
            .iter()
            .map(|id| {
                let s = &self.sends[*id];
                order::Sent {
                    source: self.number_of(s.from, context),
                    tag: s.tag,
                    sent_at: s.sent_at,
                    cancelled_at: if s.cancelled { s.cancel_asked_at } else { None },
                }
            })
            .collect();
        let received: Vec<_> = self
            .receives
            .iter()
            .filter(|r| (r.at, r.context) == (at, context))
            .map(|r| order::Received {
                source: (r.pattern.source != Pattern::ANY_SOURCE).then_some(r.pattern.source),
                tag: (r.pattern.tag != Pattern::ANY_TAG).then_some(r.pattern.tag),
                done_at: r.done.map_or(u64::MAX, |d| d.0),
                took: r.took.map(|id| here.iter().position(|h| *h == id).expect("a message of this context")),
            })
            .collect();
        if let Err(why) = order::check(&sent, &received) {
            panic!("process {at}, context {context}: {why}\n{sent:#?}\n{received:#?}");
        }
    }
}
