//! A peer that says anything: packets of every kind with any words, in any order. The engine refuses and counts, or fails with an
//! error; it never writes where no request of its own allows it, and never panics.
//!
//! `WHIMBREL_TEST_SEED=N` plays attack N alone, `WHIMBREL_TEST_SCALE=N` plays N times as many.

#[path = "world/batch.rs"]
mod batch;
#[path = "world/random.rs"]
mod random;

use batch::number;
use engine::{Buffer, Config, Context, ContextIndex, Engine, Mode, Pattern, RequestId, Target};
use fabric::local::{self, LocalPeers};
use fabric::{Body, Fabric};
use proto::costs::Costs;
use proto::protocols::Protocol;
use proto::wire::{self, Cooperative, Cts, Envelope, Kind, Rts};
use random::Random;
use std::collections::HashMap;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex};

const ATTACKS: u64 = 1_000;
/// Attacks of one child process: what they map stays mapped until it ends.
const BATCH: u64 = 250;

const TAG: i32 = 5;
const GUARD_BYTES: usize = 64;
const UNTOUCHED: u8 = 0x5a;

/// Memory that the attacker offers for reading and writing. Nobody else uses it.
const PLAYGROUND_BYTES: usize = 4 << 20;

struct Field {
    victim: Engine,
    attacker: LocalPeers,
    context: ContextIndex,
    /// The attacker's memory.
    playground: Vec<u8>,
}

fn context() -> Context {
    Context::new(0, 1).unwrap()
}

impl Field {
    fn new(config: Config, single_copy: bool) -> Field {
        let segments: Arc<Mutex<HashMap<u32, OwnedFd>>> = Arc::default();
        let endpoint = |index| {
            let others = segments.clone();
            let resolver: local::Resolver = Box::new(move |peer, _| others.lock().unwrap()[&peer].try_clone().map(Some).map_err(|e| e.to_string()));
            let local = LocalPeers::new(
                local::Config { index, processes: 2, memory_bytes: 1, single_copy, map_memory: true, answer_within: local::ANSWER_WITHIN },
                resolver,
            )
            .unwrap();
            segments.lock().unwrap().insert(index, local.segment().try_clone_to_owned().unwrap());
            local
        };
        let (local, attacker) = (endpoint(0), endpoint(1));
        let mut victim = Engine::new(Config { me: 0, processes: 2, cores: 2, ..config }, Some(local));
        let context = victim.open(context());
        Field { victim, attacker, context, playground: vec![0; PLAYGROUND_BYTES] }
    }

    fn attack(&mut self, head: [u64; 2], words: &[u64], body: &[u8]) {
        // SAFETY: the slice is readable. A full ring swallows the attack.
        let _ = self.attacker.send(0, head, words, unsafe { Body::new(body.as_ptr(), body.len()) });
    }

    fn envelope(&self, tag: i32) -> Envelope {
        Envelope { context: context(), source: 1, tag }
    }

    /// Takes and drops what the victim sent. Shows its words.
    fn drain(&mut self) -> Vec<[u64; 6]> {
        let mut all = Vec::new();
        // The first look may only find that the victim has connected.
        for _ in 0..2 {
            while let Ok(Some(packet)) = self.attacker.receive() {
                all.push(packet.taken.words);
                self.attacker.release(&packet);
            }
        }
        all
    }
}

/// A receive buffer with walls.
struct Walled {
    bytes: Vec<u8>,
    room: usize,
}

impl Walled {
    fn new(room: usize) -> Walled {
        Walled { bytes: vec![UNTOUCHED; room + 2 * GUARD_BYTES], room }
    }

    fn buffer(&mut self) -> Buffer {
        // SAFETY: the walls are outside; whoever calls keeps this until the engine is gone.
        unsafe { Buffer::contiguous(self.bytes.as_mut_ptr().add(GUARD_BYTES), self.room) }
    }

    fn walls_stand(&self) -> bool {
        let (before, rest) = self.bytes.split_at(GUARD_BYTES);
        before.iter().chain(&rest[self.room..]).all(|b| *b == UNTOUCHED)
    }
}

fn cooperative_config() -> Config {
    Config { cooperative_bytes_min: 1, eager_bytes_max: 1000, costs: Costs::preferring(Protocol::Cooperative), ..Config::default() }
}

/// A piece without bytes does not end a receive that is being copied: the copy would go on into memory that is the program's again.
#[test]
fn an_empty_piece_ends_nothing() {
    let mut field = Field::new(cooperative_config(), true);
    let mut memory = Walled::new(1 << 20);
    let id = field.victim.receive(field.context, Pattern { source: 1, tag: TAG }, &memory.buffer()).unwrap();
    let rts = Rts { request: 1, bytes: 1 << 20, address: field.playground.as_ptr() as u64, pieces: 0 };
    let head = wire::header(Kind::Rts, field.envelope(TAG));
    field.attack(head, &rts.to_words(), &[]);
    field.attack(wire::control(Kind::Data), &[id.to_raw(), 0], &[]);
    // The first look only finds that the attacker has connected.
    field.victim.progress().unwrap();
    field.victim.progress().unwrap();
    assert_eq!(field.victim.take(id), None, "the receive is over before its bytes are there");
    // It leaves pieces to the sender for some looks.
    for _ in 0..10_000 {
        field.victim.progress().unwrap();
    }
    assert_eq!(field.victim.take(id).map(|o| o.bytes), Some(1 << 20));
    assert_eq!(field.victim.counters().refused, 1);
}

/// The words of a segment, as its owner's peers see them.
fn words_of(segment: &OwnedFd) -> &'static [AtomicU64] {
    let bytes = rustix::fs::fstat(segment).unwrap().st_size as usize;
    // SAFETY: a new mapping of a whole file that nobody cuts; it stays until the process ends, and others change it by atomics only.
    unsafe {
        let start = libc::mmap(std::ptr::null_mut(), bytes, libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED, segment.as_raw_fd(), 0);
        assert!(start != libc::MAP_FAILED, "{}", std::io::Error::last_os_error());
        std::slice::from_raw_parts(start.cast(), bytes / 8)
    }
}

/// A sender that stops while it writes a long body keeps nobody from anything: what it has shown is received, messages of others come, and when it is lost, the
/// receive has failed and its memory is not written any more. One that goes on ends it.
#[test]
fn a_sender_that_stops_in_the_middle_of_a_body_holds_nobody_up() {
    const BYTES: usize = 32 << 10;
    for lost in [false, true] {
        let segments: Arc<Mutex<HashMap<u32, OwnedFd>>> = Arc::default();
        let mut all: Vec<LocalPeers> = (0..3)
            .map(|index| {
                let others = segments.clone();
                let resolver: local::Resolver = Box::new(move |peer, _| others.lock().unwrap()[&peer].try_clone().map(Some).map_err(|e| e.to_string()));
                let config =
                    local::Config { index, processes: 3, memory_bytes: 2 << 20, single_copy: false, map_memory: true, answer_within: local::ANSWER_WITHIN };
                let local = LocalPeers::new(config, resolver).unwrap();
                segments.lock().unwrap().insert(index, local.segment().try_clone_to_owned().unwrap());
                local
            })
            .collect();
        let (mut other, mut sender) = (all.pop().unwrap(), all.pop().unwrap());
        let mut victim = Engine::new(Config { me: 0, processes: 3, cores: 2, ..Config::default() }, all.pop());
        let in_context = victim.open(context());
        let mut memory = Walled::new(BYTES);
        let id = victim.receive(in_context, Pattern { source: 1, tag: TAG }, &memory.buffer()).unwrap();
        let head = wire::header(Kind::Eager, Envelope { context: context(), source: 1, tag: TAG });
        let body = vec![9u8; BYTES];
        // SAFETY: the vector is readable.
        sender.send(0, head, &[], unsafe { Body::new(body.as_ptr(), BYTES) }).unwrap();
        // The slots of its four pieces; two of them have not been written yet. Above the length it says that a trial has written the beginning.
        let words = words_of(&segments.lock().unwrap()[&0]);
        let slot = words.chunks_exact(8).position(|line| line[1].load(Relaxed) == head[1] && line[2].load(Relaxed) << 2 == (BYTES as u64) << 2).unwrap();
        let later: Vec<&AtomicU64> = (2..4).map(|piece| &words[8 * (slot + piece)]).collect();
        assert!(later.iter().all(|word| word.swap(0, Relaxed) == 1));
        for _ in 0..5 {
            victim.progress().unwrap();
        }
        let placed = |memory: &Walled| memory.bytes[GUARD_BYTES..].iter().take_while(|byte| **byte == 9).count();
        assert_eq!((victim.take(id), placed(&memory)), (None, BYTES / 2));

        let mut short = Walled::new(8);
        let from_other = victim.receive(in_context, Pattern { source: 2, tag: TAG }, &short.buffer()).unwrap();
        let head = wire::header(Kind::Eager, Envelope { context: context(), source: 2, tag: TAG });
        // SAFETY: as above.
        other.send(0, head, &[], unsafe { Body::new(body.as_ptr(), 8) }).unwrap();
        for _ in 0..5 {
            victim.progress().unwrap();
        }
        assert_eq!(victim.take(from_other).map(|outcome| outcome.bytes), Some(8));

        if lost {
            victim.lose_peer(1, engine::Fault::Program("it has ended".into()));
            assert_eq!(victim.take(id).map(|outcome| outcome.failed), Some(true));
        }
        later.iter().for_each(|word| word.store(1, Relaxed));
        for _ in 0..5 {
            victim.progress().unwrap();
        }
        if lost {
            assert_eq!(placed(&memory), BYTES / 2, "memory of the program was written");
        } else {
            assert_eq!((victim.take(id).map(|outcome| outcome.bytes), placed(&memory)), (Some(BYTES as u64), BYTES));
        }
        assert!(memory.walls_stand() && short.walls_stand());
    }
}

/// A send that is over is not read or written by a copy that was agreed on before.
#[test]
fn a_copy_ends_with_its_send() {
    let mut field = Field::new(cooperative_config(), true);
    let mut memory = vec![7u8; 1 << 20];
    // SAFETY: the vector outlives the engine's use of it, which this test is about.
    let buffer = unsafe { Buffer::contiguous(memory.as_mut_ptr(), memory.len()) };
    let target = Target { process: 1, context: context(), source: 0, tag: TAG };
    let id = field.victim.send(&target, &buffer, Mode::Standard).unwrap().expect("too large to be over at once");
    let request = field.drain()[0][0];
    assert_eq!(request, id.to_raw());
    let address = field.playground.as_mut_ptr() as u64;
    field.attacker.cooperative(1, 0).unwrap().begin(9);
    let offer = Cooperative { request, receiver: 3, slot: 9 << 32, address, bytes: 1 << 20, pieces: 0 };
    field.attack(wire::control(Kind::Cooperative), &offer.to_words(), &[]);
    field.attack(wire::control(Kind::Fin), &[request], &[]);
    field.victim.progress().unwrap();
    field.victim.progress().unwrap();
    let over = field.victim.peek(id).is_some();
    let copied = |field: &Field| field.playground.iter().filter(|b| **b == 7).count();
    let before = copied(&field);
    for _ in 0..100 {
        field.victim.progress().unwrap();
    }
    assert!(over && copied(&field) == before, "{before} bytes were copied, then {}", copied(&field));
}

/// Once a peer has left, nothing is copied to or from it: what was under way with it has failed, and its memory is the program's again.
#[test]
fn nothing_is_copied_once_a_peer_has_left() {
    let mut field = Field::new(cooperative_config(), true);
    let (mut memory, mut sent) = (Walled::new(1 << 20), vec![7u8; 1 << 20]);
    let receive = field.victim.receive(field.context, Pattern { source: 1, tag: TAG }, &memory.buffer()).unwrap();
    // SAFETY: the vector outlives the engine's use of it, which this test is about.
    let buffer = unsafe { Buffer::contiguous(sent.as_mut_ptr(), sent.len()) };
    let target = Target { process: 1, context: context(), source: 0, tag: TAG };
    let send = field.victim.send(&target, &buffer, Mode::Synchronous).unwrap().expect("too large to be over at once");
    let rts = Rts { request: 1, bytes: 1 << 20, address: field.playground.as_ptr() as u64, pieces: 0 };
    field.attack(wire::header(Kind::Rts, field.envelope(TAG)), &rts.to_words(), &[]);
    let address = field.playground.as_mut_ptr() as u64;
    field.attacker.cooperative(1, 0).unwrap().begin(9);
    let offer = Cooperative { request: send.to_raw(), receiver: 3, slot: 9 << 32, address, bytes: 1 << 20, pieces: 0 };
    field.attack(wire::control(Kind::Cooperative), &offer.to_words(), &[]);
    field.attack(wire::control(Kind::Left), &[7], &[]);
    // The first look only finds that the attacker has connected, the second all that it has sent.
    field.victim.progress().unwrap();
    field.victim.progress().unwrap();
    for request in [receive, send] {
        assert_eq!(field.victim.take(request).map(|outcome| (outcome.failed, outcome.source)), Some((true, 1)));
    }
    while field.victim.progress().unwrap() {}
    assert!(field.victim.settled() && memory.bytes.iter().all(|b| *b == UNTOUCHED) && field.playground.iter().all(|b| *b == 0));
    assert!(field.attacker.cooperative(1, 0).unwrap().claim(9, 16, fabric::local::Side::Receiver).is_none());
    assert!(field.victim.send(&target, &buffer, Mode::Standard).is_err());
    // Also what it had sent and nobody had asked for yet.
    let kept = wire::header(Kind::Rts, field.envelope(6));
    field.attack(kept, &rts.to_words(), &[]);
    field.victim.progress().unwrap();
    let late = field.victim.receive(field.context, Pattern { source: 1, tag: 6 }, &memory.buffer()).unwrap();
    assert_eq!(field.victim.take(late).map(|outcome| outcome.failed), Some(true));
}

/// More headers and payloads than the peer has credit for are a fault, not memory without end.
#[test]
fn credit_that_is_not_kept_is_a_fault() {
    let config = Config { unexpected_bytes_max: 10_000, headers_bytes_max: 20_000, ..Config::default() };
    let mut field = Field::new(config, true);
    let mut held = 0;
    let mut failed = false;
    for i in 0..3_000 {
        let head = wire::header(Kind::Eager, field.envelope(i));
        field.attack(head, &[], &[1; 1000]);
        failed |= field.victim.progress().is_err();
        held = held.max(field.victim.held_bytes(1));
    }
    assert!(failed && held <= 100_000, "{held} bytes lie unmatched; failed: {failed}");
}

#[test]
fn any_packets_are_refused_or_dealt_with() {
    if let Some(seed) = number("WHIMBREL_TEST_SEED") {
        return any_packets(seed);
    }
    if let Some(first) = batch::first() {
        return batch::play(first..first + BATCH, any_packets);
    }
    for first in (0..ATTACKS * number("WHIMBREL_TEST_SCALE").unwrap_or(1)).step_by(BATCH as usize) {
        batch::run("any_packets_are_refused_or_dealt_with", first);
    }
}

fn any_packets(seed: u64) {
    let mut random = Random::new(seed);
    let config = Config {
        cooperative_bytes_min: random.pick(&[1, 70_000]),
        eager_bytes_max: random.pick(&[0, 100, 4096]),
        unexpected_bytes_max: random.pick(&[1000, 20_000]),
        headers_bytes_max: random.pick(&[2000, 100_000]),
        costs: if random.chance(50) { Costs::preferring(Protocol::Cooperative) } else { Costs::default() },
        ..Config::default()
    };
    let mut field = Field::new(config, random.chance(60));
    // Memory is kept to the end: what the engine may still use must stay.
    let mut receives: Vec<(Walled, Option<RequestId>)> = Vec::new();
    let mut sends: Vec<(Vec<u8>, Option<RequestId>)> = Vec::new();
    let mut messages = Vec::new();
    let mut broken = false;
    for _ in 0..300 {
        let pattern = Pattern { source: random.pick(&[1, 1, 0, Pattern::ANY_SOURCE]), tag: random.pick(&[TAG, TAG, 6, Pattern::ANY_TAG]) };
        let victim = &mut field.victim;
        match random.below(12) {
            0 => {
                let room = random.pick(&[0, 8, 40, 5000, 200_000]);
                receives.push((Walled::new(room), None));
                let (memory, request) = receives.last_mut().unwrap();
                *request = victim.receive(field.context, pattern, &memory.buffer()).ok();
            }
            1 => {
                let mut memory = vec![7u8; random.pick(&[0, 8, 90, 5000, 200_000])];
                let target = Target { process: random.pick(&[1, 1, 1, 0]), context: context(), source: 0, tag: TAG };
                // SAFETY: the memory is kept, unmoved.
                let buffer = unsafe { Buffer::contiguous(memory.as_mut_ptr(), memory.len()) };
                let mode = random.pick(&[Mode::Standard, Mode::Synchronous]);
                let request = victim.send(&target, &buffer, mode).unwrap_or(None);
                sends.push((memory, request));
            }
            2 => {
                victim.probe(field.context, pattern);
                if random.chance(50) {
                    messages.extend(victim.probe_taking(field.context, pattern));
                }
            }
            3 if !messages.is_empty() => {
                let mut memory = Walled::new(random.pick(&[0, 100, 5000]));
                let request = victim.receive_message(messages.pop().unwrap(), &memory.buffer()).ok();
                receives.push((memory, request));
            }
            4 => {
                let all = receives.iter().map(|r| r.1).chain(sends.iter().map(|s| s.1));
                let waiting: Vec<RequestId> = all.flatten().collect();
                if !waiting.is_empty() && random.chance(30) {
                    let _ = victim.cancel(random.pick(&waiting));
                }
                let _ = victim.widen();
            }
            5..9 => {
                let live = receives.iter().map(|r| r.1).chain(sends.iter().map(|s| s.1)).flatten().map(RequestId::to_raw);
                let live: Vec<u64> = live.collect();
                any_packet(&mut field, &mut random, &live);
            }
            _ => {
                broken |= victim.progress().is_err();
                let requests = receives.iter_mut().map(|r| &mut r.1).chain(sends.iter_mut().map(|s| &mut s.1));
                for request in requests {
                    if request.is_some_and(|id| victim.take(id).is_some()) {
                        *request = None;
                    }
                }
                if random.chance(50) {
                    field.drain();
                }
            }
        }
    }
    // The engine comes to rest: no packet keeps it busy for ever.
    for _ in 0..200 {
        broken |= field.victim.progress().is_err();
        field.drain();
    }
    // Also a call that starts a long message looks at what has come, and may find the packet that breaks it.
    assert!(!broken || field.victim.fault().is_some());
    assert!(receives.iter().all(|(memory, _)| memory.walls_stand()), "a receive wrote past its buffer");
    assert!(sends.iter().all(|(memory, _)| memory.iter().all(|b| *b == 7)), "a send wrote into its buffer");
}

/// `live` are names of requests of the victim, which attackers can guess.
fn any_packet(field: &mut Field, random: &mut Random, live: &[u64]) {
    let raw = |random: &mut Random| match random.chance(70) && !live.is_empty() {
        true => random.pick(live),
        false => random.below(12) | random.below(6) << 32,
    };
    let any_word = |random: &mut Random| match random.below(6) {
        0 => random.next(),
        1 => u64::MAX - random.below(3),
        2 => random.below(300_000),
        3 => i64::MAX as u64,
        _ => raw(random),
    };
    let place = field.playground.as_mut_ptr() as u64;
    // Written to by the victim, too: either the attacker's own memory or nobody's.
    let address = |random: &mut Random| random.pick(&[place, place + 64, 0, 8, u64::MAX - 100]);
    let bytes = |random: &mut Random| random.pick(&[0, 1, 100, 5000, 200_000, 1 << 20, 1 << 40, i64::MAX as u64, u64::MAX]);
    let body = vec![9u8; random.pick(&[0, 1, 30, 48, 100, 4096])];
    let tag = random.pick(&[TAG, 6, -1]);
    let envelope = Envelope { source: random.pick(&[1, 1, 0, u32::MAX]), ..field.envelope(tag) };
    match random.below(10) {
        0 => {
            let words: Vec<u64> = (0..random.below(5)).map(|_| any_word(random)).collect();
            field.attack([random.next(), random.next()], &words, &body);
        }
        1 => field.attack(wire::header(Kind::Eager, envelope), &[], &body),
        2 => field.attack(wire::header(Kind::EagerSync, envelope), &[raw(random)], &body),
        3 => {
            let rts = Rts { request: raw(random), bytes: bytes(random), address: address(random), pieces: random.pick(&[0, 0, 1, 3, 1 << 17, u64::MAX]) };
            field.attack(wire::header(Kind::Rts, envelope), &rts.to_words(), &[]);
        }
        4 => {
            let cts = Cts { request: raw(random), receiver: raw(random), bytes: bytes(random) };
            field.attack(wire::control(Kind::Cts), &cts.to_words(), &[]);
        }
        5 | 6 => {
            let offset = random.pick(&[0, 1, 4096, 199_999, u64::MAX, u64::MAX - 4000]);
            let (kind, word) = if random.chance(50) { (Kind::Data, offset) } else { (Kind::Piece, random.below(4) | random.below(4) << 32) };
            field.attack(wire::control(kind), &[raw(random), word], &body);
        }
        7 => {
            let slot = random.below(40) | random.below(4) << 32;
            if random.chance(60)
                && let Ok(cooperative) = field.attacker.cooperative(random.below(2) as u32, slot & 0xff)
            {
                cooperative.begin(random.below(4) as u32);
                for _ in 0..random.below(3) {
                    cooperative.finish();
                }
            }
            let bytes = bytes(random).min(PLAYGROUND_BYTES as u64 / 2);
            let offer = Cooperative {
                request: raw(random),
                receiver: raw(random),
                slot,
                address: address(random),
                bytes,
                pieces: random.pick(&[0, 0, 1, 3, u64::MAX]),
            };
            field.attack(wire::control(Kind::Cooperative), &offer.to_words(), &[]);
        }
        8 => {
            let kind = random.pick(&[Kind::Fin, Kind::Cancelled, Kind::CooperativeDone, Kind::Widen]);
            field.attack(wire::control(kind), &[raw(random), random.below(3)], &[]);
        }
        _ if random.below(30) == 0 => {
            let kind = random.pick(&[Kind::Left, Kind::Lost]);
            field.attack(wire::control(kind), &[random.pick(&[0, 1, 2, u64::MAX])], &[]);
        }
        _ => field.attack(wire::header(Kind::Cancel, envelope), &[raw(random)], &[]),
    }
}
