//! What the ranks of a mixed world send and receive, and whether all of it came right.

use super::field::Shared;
use super::worker::{Buffer, Rank};
use crate::load::{fill, is_filled};
use crate::random::{Random, mix};
use proto::matching::Pattern;
use proto::p2p::{Mode, Outcome, RequestId, Target};
use proto::wire::Context;
use std::collections::{BTreeMap, VecDeque};

/// How the receives of a context ask: for source and tag, for any tag of a source, for anything.
pub const CONTEXTS: u32 = 3;
const ANY_TAG: u32 = 1;
const ANYTHING: u32 = 2;
/// A message of this length or more says which one it is.
const NAMED_BYTES: usize = 8;

pub fn context(number: u32) -> Context {
    Context::new(0, number).expect("a small number")
}

/// Messages from one rank to another in one context with one tag.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
struct Stream {
    source: u32,
    destination: u32,
    context: u32,
    tag: i32,
}

impl Stream {
    /// What message number `index` is told apart by.
    fn name(&self, index: u32) -> u64 {
        (self.source as u64) << 56 | (self.destination as u64) << 48 | (self.context as u64) << 40 | (self.tag as u64) << 32 | index as u64
    }

    fn bytes(&self, index: u32, length: usize) -> Vec<u8> {
        let (name, mut bytes) = (self.name(index), vec![0; length]);
        match bytes.split_at_mut_checked(NAMED_BYTES) {
            Some((named, rest)) => {
                named.copy_from_slice(&name.to_le_bytes());
                fill(mix(name), 0, rest);
            }
            None => fill(mix(name), 0, &mut bytes),
        }
        bytes
    }
}

#[derive(Clone, Copy, Debug)]
struct Send {
    stream: Stream,
    index: u32,
    bytes: usize,
    mode: Mode,
    contiguous: bool,
}

#[derive(Clone, Copy, Debug)]
struct Receive {
    context: u32,
    pattern: Pattern,
    /// Shorter than some messages at times.
    room: usize,
    contiguous: bool,
}

/// A message that has come.
struct Came {
    /// Which of the rank's receives it was, in the order of posting.
    posted: u64,
    /// Its number, if it says that.
    index: Option<u32>,
    /// What there is of it, where it does not say; and how long it was.
    short: Vec<u8>,
    whole: usize,
}

/// How much there is to do.
#[derive(Clone, Copy, Debug)]
pub struct Traffic {
    /// Messages that each rank sends.
    pub messages: u32,
    pub tags: u32,
    pub longest_bytes: usize,
    /// Chance that a receive is cancelled soon after it was posted, that a message is taken by a matched probe, and that a send is synchronous, millionths.
    pub cancel_ppm: u32,
    pub probe_ppm: u32,
    pub synchronous_ppm: u32,
}

fn length(random: &mut Random, longest_bytes: usize) -> usize {
    let drawn = match random.below(100) {
        0..10 => 0,
        10..70 => random.below(65),
        70..88 => random.below(2048),
        88..98 => random.below(32 << 10),
        _ => random.below(longest_bytes as u64 + 1),
    };
    drawn.min(longest_bytes as u64) as usize
}

/// One rank's program.
pub struct Program {
    me: u32,
    sends: VecDeque<Send>,
    receives: VecDeque<Receive>,
    sending: Vec<(RequestId, Buffer)>,
    receiving: Vec<(RequestId, u64, Receive, Buffer)>,
    /// At most so many at once; more once nothing moves.
    pub limit: usize,
    posted: u64,
    came: BTreeMap<Stream, Vec<Came>>,
    pub received: u64,
    pub cancelled: u64,
    pub taken: u64,
}

/// The programs of all ranks.
pub fn programs(ranks: u32, traffic: &Traffic, random: &mut Random) -> Vec<Program> {
    let empty = |me| Program {
        me,
        sends: VecDeque::new(),
        receives: VecDeque::new(),
        sending: Vec::new(),
        receiving: Vec::new(),
        limit: 8,
        posted: 0,
        came: BTreeMap::new(),
        received: 0,
        cancelled: 0,
        taken: 0,
    };
    let mut all: Vec<Program> = (0..ranks).map(empty).collect();
    let mut next: BTreeMap<Stream, u32> = BTreeMap::new();
    for source in 0..ranks {
        // A rank talks to some more than to others, and sends runs with one envelope.
        let mut stream = None;
        for _ in 0..traffic.messages {
            if stream.is_none() || random.chance(300_000) {
                let (destination, context) = (random.below(ranks as u64) as u32, random.below(CONTEXTS as u64) as u32);
                stream = Some(Stream { source, destination, context, tag: random.below(traffic.tags as u64) as i32 });
            }
            let stream = stream.expect("just drawn");
            let index = next.entry(stream).or_default();
            let least = if stream.context == 0 { 0 } else { NAMED_BYTES };
            let bytes = length(random, traffic.longest_bytes).max(least);
            let mode = if random.chance(traffic.synchronous_ppm) { Mode::Synchronous } else { Mode::Standard };
            all[source as usize].sends.push_back(Send { stream, index: *index, bytes, mode, contiguous: random.chance(850_000) });
            *index += 1;
            let pattern = Pattern {
                source: if stream.context == ANYTHING { Pattern::ANY_SOURCE } else { source },
                tag: if stream.context >= ANY_TAG { Pattern::ANY_TAG } else { stream.tag },
            };
            let room = if random.chance(50_000) { random.between(least as u64, traffic.longest_bytes as u64) as usize } else { traffic.longest_bytes };
            all[stream.destination as usize].receives.push_back(Receive { context: stream.context, pattern, room, contiguous: random.chance(850_000) });
        }
    }
    // Receives come in an order of their own, not too far from that of the sends.
    for program in &mut all {
        let receives = program.receives.make_contiguous();
        for at in 0..receives.len() {
            let distance = (receives.len() - at).min(24) as u64;
            receives.swap(at, at + random.below(distance) as usize);
        }
    }
    all
}

impl Program {
    pub fn is_done(&self) -> bool {
        self.sends.is_empty() && self.receives.is_empty() && self.sending.is_empty() && self.receiving.is_empty()
    }

    /// For the message of a world that does not end.
    pub fn state(&self) -> String {
        let (sends, receives) = (self.sends.len(), self.receives.len());
        let waiting: Vec<String> = self.receiving.iter().take(3).map(|(id, posted, receive, _)| format!("{id:?} {posted} {receive:?}")).collect();
        let sending: Vec<String> = self.sending.iter().take(3).map(|(id, buffer)| format!("{id:?} {} bytes", buffer.bytes)).collect();
        format!("rank {}: {sends} sends and {receives} receives not begun; sending {sending:?}; receiving {waiting:?}", self.me)
    }

    /// Goes on. Whether something was done.
    pub fn go_on(&mut self, rank: &mut Rank, shared: &Shared, traffic: &Traffic) -> bool {
        let mut moved = self.finish(rank, shared);
        let chance = |ppm| shared.borrow_mut().random.chance(ppm);
        if self.sending.len() < self.limit
            && chance(700_000)
            && let Some(send) = self.sends.pop_front()
        {
            self.send(rank, shared, send);
            moved = true;
        }
        if self.receiving.len() < self.limit
            && chance(700_000)
            && let Some(receive) = self.receives.pop_front()
        {
            self.receive(rank, shared, receive, traffic);
            moved = true;
        }
        // What was left for another time can be done then.
        moved || self.sending.len() < self.limit && !self.sends.is_empty() || self.receiving.len() < self.limit && !self.receives.is_empty()
    }

    fn send(&mut self, rank: &mut Rank, shared: &Shared, send: Send) {
        let Send { stream, index, bytes, mode, contiguous } = send;
        let region = shared.borrow_mut().region(stream.bytes(index, bytes));
        let buffer = Buffer { region: Some(region), bytes, contiguous };
        let target = Target { process: stream.destination, context: context(stream.context), source: self.me, tag: stream.tag };
        rank.prompt = shared.borrow_mut().random.chance(300_000);
        let sent = rank.send(&target, &buffer, mode);
        rank.prompt = false;
        match sent.unwrap_or_else(|error| panic!("rank {} sends: {error:?}", self.me)) {
            Some(id) => self.sending.push((id, buffer)),
            None => over(shared, &buffer),
        }
    }

    fn receive(&mut self, rank: &mut Rank, shared: &Shared, receive: Receive, traffic: &Traffic) {
        let index = rank.open(context(receive.context));
        let region = shared.borrow_mut().region(vec![0; receive.room]);
        let buffer = Buffer { region: Some(region), bytes: receive.room, contiguous: receive.contiguous };
        self.posted += 1;
        let probes = shared.borrow_mut().random.chance(traffic.probe_ppm);
        let taken = if probes { rank.probe_taking(index, receive.pattern) } else { None };
        let id = match taken {
            Some(message) => {
                self.taken += 1;
                rank.receive_message(message, &buffer)
            }
            None => rank.receive(index, receive.pattern, &buffer),
        };
        let id = id.unwrap_or_else(|error| panic!("rank {} receives: {error:?}", self.me));
        let only = match receive.pattern.source {
            Pattern::ANY_SOURCE if rank.config.processes == 2 => Some(1 - self.me),
            Pattern::ANY_SOURCE => None,
            source => (source != self.me).then_some(source),
        };
        if let Some(process) = only {
            rank.announce(id, process);
        }
        if shared.borrow_mut().random.chance(traffic.cancel_ppm) {
            rank.cancel(id).unwrap_or_else(|error| panic!("rank {} cancels: {error:?}", self.me));
        }
        self.receiving.push((id, self.posted, receive, buffer));
    }

    /// Takes what is complete.
    fn finish(&mut self, rank: &mut Rank, shared: &Shared) -> bool {
        let before = self.sending.len() + self.receiving.len();
        self.sending.retain(|(id, buffer)| match rank.take(*id) {
            Some(outcome) => {
                assert!(!outcome.failed && !outcome.cancelled, "a send that failed");
                over(shared, buffer);
                false
            }
            None => true,
        });
        for (id, posted, receive, buffer) in std::mem::take(&mut self.receiving) {
            match rank.take(id) {
                None => self.receiving.push((id, posted, receive, buffer)),
                Some(outcome) if outcome.cancelled => {
                    self.cancelled += 1;
                    over(shared, &buffer);
                    self.receives.push_back(receive);
                }
                Some(outcome) => {
                    self.check(posted, &receive, &outcome, &buffer);
                    over(shared, &buffer);
                }
            }
        }
        before != self.sending.len() + self.receiving.len()
    }

    fn check(&mut self, posted: u64, receive: &Receive, outcome: &Outcome, buffer: &Buffer) {
        assert!(!outcome.failed, "rank {}: a receive that failed", self.me);
        assert!(receive.pattern.accepts(outcome.source, outcome.tag), "rank {}: {outcome:?} for {receive:?}", self.me);
        let stream = Stream { source: outcome.source, destination: self.me, context: receive.context, tag: outcome.tag };
        let bytes = buffer.get(0, outcome.bytes as usize);
        let whole = (outcome.bytes + outcome.cut_bytes) as usize;
        assert!(outcome.cut_bytes == 0 || bytes.len() == receive.room, "rank {}: {outcome:?} into {} bytes", self.me, receive.room);
        let named = if bytes.len() >= NAMED_BYTES { Some(u64::from_le_bytes(bytes[..NAMED_BYTES].try_into().expect("eight bytes"))) } else { None };
        if let Some(name) = named {
            assert_eq!(name, stream.name(name as u32), "rank {}: a message of another stream than {stream:?}", self.me);
            assert!(is_filled(mix(name), &bytes[NAMED_BYTES..]), "rank {}: message {} of {stream:?} is damaged, {} bytes", self.me, name as u32, bytes.len());
        }
        let short = if named.is_none() { bytes } else { Vec::new() };
        self.came.entry(stream).or_default().push(Came { posted, index: named.map(|name| name as u32), short, whole });
        self.received += 1;
    }

    /// All messages of each stream have come once, and receives got them in the order in which they were posted.
    pub fn judge(&mut self, ranks: u32, expected: &BTreeMap<(u32, u32, u32, i32), Vec<usize>>) {
        for (stream, came) in &mut self.came {
            came.sort_by_key(|one| one.posted);
            let sent = &expected[&(stream.source, stream.destination, stream.context, stream.tag)];
            assert_eq!(came.len(), sent.len(), "rank {} of {ranks}: messages of {stream:?}", self.me);
            for (index, one) in came.iter().enumerate() {
                assert_eq!(one.whole, sent[index], "rank {}: the length of message {index} of {stream:?}", self.me);
                match one.index {
                    Some(named) => assert_eq!(named as usize, index, "rank {}: {stream:?}: out of order", self.me),
                    None => assert_eq!(one.short, stream.bytes(index as u32, one.whole)[..one.short.len()], "rank {}: message {index} of {stream:?}", self.me),
                }
            }
        }
        let streams = expected.keys().filter(|key| key.1 == self.me).count();
        assert_eq!(self.came.len(), streams, "rank {}: streams", self.me);
    }

    /// The lengths of the messages that this rank sends, by stream.
    pub fn lengths(&self, into: &mut BTreeMap<(u32, u32, u32, i32), Vec<usize>>) {
        for send in &self.sends {
            let Stream { source, destination, context, tag } = send.stream;
            into.entry((source, destination, context, tag)).or_default().push(send.bytes);
        }
    }
}

/// The memory is the program's again: nobody may read or write it from here on.
fn over(shared: &Shared, buffer: &Buffer) {
    if let Some(region) = &buffer.region {
        shared.borrow_mut().regions.remove(&region.number);
        region.bytes.borrow_mut().fill(0xee);
    }
}
