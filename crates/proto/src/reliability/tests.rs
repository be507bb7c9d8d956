//! Two endpoints side by side: incarnations, replays, sends that never leave, silence, credit.

use std::collections::{HashMap, VecDeque};

use super::seal::{TestSeal, open_datagram, seal_datagram};
use super::*;
use crate::credits::OVERHEAD_BYTES;

const SEAL: TestSeal = TestSeal(5);
const MS: u64 = 1_000_000;

/// What one endpoint has done, and what it does with its datagrams.
#[derive(Default)]
struct Side {
    /// Datagrams on their way: rail and bytes.
    out: VecDeque<(u8, Vec<u8>)>,
    /// A rail whose sends never complete locally.
    stuck: Option<u8>,
    queued: HashMap<(u8, u8), u32>,
    /// Datagrams leave at once, and read their payloads until [`Pair::complete_locally`]: rail, endpoint, sends.
    late: bool,
    reading: VecDeque<(u8, u8, Vec<u64>)>,
    reading_max: usize,
    eager: Vec<Vec<u8>>,
    /// There is a receive of so many bytes for the next message.
    room_bytes: Option<u64>,
    placed: Vec<(u64, u64)>,
    requests: Vec<(u32, u64)>,
    offers: Vec<(u32, u64)>,
    memory: HashMap<u64, Vec<u8>>,
    ended: Vec<(u64, bool)>,
    failed: Vec<PeerId>,
    in_use: Vec<u64>,
    silent: Vec<PeerId>,
    rails: Vec<(u8, bool)>,
    /// Segments that were to leave together: of transfers, and of messages where they do.
    runs: Vec<u32>,
    together: Option<Vec<u32>>,
    /// The last of those were to be made by streaming stores.
    streams: bool,
    /// All datagrams are made as long.
    least_bytes: usize,
}

impl Outside for Side {
    fn transmit_run(&mut self, route: SendPath, header: &mut [u8], payload: &Slice, cut: Cut) -> Option<Taken> {
        let Cut { segment_bytes, count, .. } = cut;
        self.runs.push(count);
        if !self.late {
            return None;
        }
        let end_bytes = payload.offset_bytes + payload.length_bytes as u64;
        for index in 0..count {
            let offset_bytes = payload.offset_bytes + (index * segment_bytes) as u64;
            let length_bytes = segment_bytes.min((end_bytes - offset_bytes) as u32);
            assert_eq!(self.transmit(route, header, &[Slice { offset_bytes, length_bytes, ..*payload }]), Sent::Queued);
            if index + 1 < count {
                wire::advance(header);
            }
        }
        Some(Taken { datagrams: count, queued: true })
    }
    fn transmit_message(&mut self, route: SendPath, (first, next): (&mut [u8], &mut [u8]), payload: &Slice, cut: Cut, _: bool) -> Option<Taken> {
        let Cut { segment_bytes, count, each_bytes, streams } = cut;
        self.together.as_mut()?.push(count);
        (self.least_bytes, self.streams) = (each_bytes, streams);
        let end_bytes = payload.offset_bytes + payload.length_bytes as u64;
        let mut sent = Sent::Done;
        for index in 0..count {
            let offset_bytes = payload.offset_bytes + (index * segment_bytes) as u64;
            let length_bytes = segment_bytes.min((end_bytes - offset_bytes) as u32);
            let slice = Slice { offset_bytes, length_bytes, ..*payload };
            sent = self.transmit(route, if index == 0 { &mut *first } else { &mut *next }, &[slice]);
            if index > 0 {
                wire::advance_message(next);
            }
        }
        self.least_bytes = 0;
        Some(Taken { datagrams: count, queued: sent == Sent::Queued })
    }
    fn transmit(&mut self, route: SendPath, header: &mut [u8], payload: &[Slice]) -> Sent {
        let mut bytes = header.to_vec();
        for slice in payload {
            bytes.extend((slice.offset_bytes..).take(slice.length_bytes as usize).map(|at| (at % 251) as u8));
        }
        bytes.resize(bytes.len().max(self.least_bytes), 0);
        let (head, body) = bytes.split_at_mut(header.len());
        seal_datagram(&SEAL, head, &[body]);
        if self.stuck == Some(route.rail) {
            *self.queued.entry((route.rail, route.endpoint)).or_default() += 1;
            return Sent::Queued;
        }
        self.out.push_back((route.rail, bytes));
        if self.late {
            self.reading.push_back((route.rail, route.endpoint, payload.iter().map(|slice| slice.send).collect()));
            let in_queue = self.reading.iter().filter(|(rail, endpoint, _)| (*rail, *endpoint) == (route.rail, route.endpoint)).count();
            self.reading_max = self.reading_max.max(in_queue);
            return Sent::Queued;
        }
        Sent::Done
    }
    fn place(&mut self, placement: &Placement, payload: &[u8]) -> bool {
        let memory = self.memory.get_mut(&placement.receive).unwrap();
        let start = placement.offset_bytes as usize;
        memory[start..start + payload.len()].copy_from_slice(payload);
        true
    }
    fn begin(&mut self, _: PeerId, _: &[u8], bytes: u64) -> Option<Begun> {
        let room_bytes = bytes.min(self.room_bytes?);
        let receive = 100 + self.placed.len() as u64;
        self.memory.insert(receive, vec![0; room_bytes as usize]);
        Some(Begun { receive, room_bytes })
    }
    fn deliver(&mut self, _: PeerId, delivery: Delivery) {
        match delivery {
            Delivery::Placed { receive, bytes, .. } => self.placed.push((receive, bytes)),
            Delivery::Eager { payload, .. } => self.eager.push(payload.to_vec()),
            Delivery::Request { transfer, bytes, .. } => self.requests.push((transfer, bytes)),
            Delivery::Offer { window, granted_bytes, .. } => self.offers.push((window, granted_bytes)),
            Delivery::Push { .. } => {}
        }
    }
    fn complete(&mut self, send: u64, result: Result<(), Failure>) {
        assert!(!self.reading.iter().any(|(_, _, sends)| sends.contains(&send)), "send {send} ends while a datagram reads its payload");
        self.ended.push((send, result.is_ok()));
    }
    fn received(&mut self, receive: u64, result: Result<(), Failure>) {
        self.ended.push((receive, result.is_ok()));
    }
    fn peer_failed(&mut self, peer: PeerId, in_use: &[u64]) {
        self.failed.push(peer);
        self.in_use.extend(in_use);
    }
    fn silent(&mut self, peer: PeerId) {
        self.silent.push(peer);
    }
    fn rail_changed(&mut self, _: PeerId, rail: u8, alive: bool) {
        self.rails.push((rail, alive));
    }
}

/// Processes 0 and 1, in the incarnations 10 and 11.
struct Pair {
    now_ns: u64,
    ends: [Endpoint; 2],
    sides: [Side; 2],
    /// All datagrams that have ever been sent, by receiver.
    captured: [Vec<(u8, Vec<u8>)>; 2],
    /// Datagrams to this one vanish, and those on this rail.
    deaf: Option<usize>,
    cut: Option<u8>,
}

fn config() -> Config {
    let rail = RailConfig { mtu_bytes: 1472, endpoints: 2, queue_packets_max: 16 };
    Config { rails: vec![rail; 2], ..Config::default() }
}

impl Pair {
    fn new(config: Config) -> Pair {
        let mut ends = [Endpoint::new(config.clone(), 0, 10), Endpoint::new(config, 1, 11)];
        ends[0].connect(1, 11);
        ends[1].connect(0, 10);
        Pair { now_ns: MS, ends, sides: Default::default(), captured: Default::default(), deaf: None, cut: None }
    }

    fn give(&mut self, to: usize, rail: u8, bytes: &[u8]) {
        let mut bytes = bytes.to_vec();
        let packet = open_datagram(&SEAL, &mut bytes).expect("authentic");
        self.ends[to].arrived(self.now_ns, rail, &packet, &mut self.sides[to]);
    }

    /// Carries datagrams and lets time pass until `ns` have passed.
    fn run(&mut self, ns: u64) {
        let end_ns = self.now_ns + ns;
        loop {
            for from in 0..2 {
                self.ends[from].flush(self.now_ns, &mut self.sides[from]);
                let to = 1 - from;
                while let Some((rail, bytes)) = self.sides[from].out.pop_front() {
                    self.captured[to].push((rail, bytes.clone()));
                    if self.deaf != Some(to) && self.cut != Some(rail) {
                        self.give(to, rail, &bytes);
                    }
                }
            }
            for at in 0..2 {
                self.ends[at].flush(self.now_ns, &mut self.sides[at]);
            }
            if self.sides.iter().any(|side| !side.out.is_empty()) {
                self.now_ns += 1000;
                continue;
            }
            let next_ns = self.ends.iter().filter_map(Endpoint::deadline_ns).min().unwrap_or(u64::MAX);
            if next_ns > end_ns {
                self.now_ns = end_ns;
                return;
            }
            self.now_ns = self.now_ns.max(next_ns);
            for at in 0..2 {
                self.ends[at].tick(self.now_ns, &mut self.sides[at]);
            }
        }
    }
}

impl Pair {
    /// The oldest `count` datagrams that read their payloads have left them.
    fn complete_locally(&mut self, from: usize, count: usize) {
        for _ in 0..count {
            let Some((rail, endpoint, _)) = self.sides[from].reading.pop_front() else { return };
            self.ends[from].local_completion(self.now_ns, rail, endpoint, 1, &mut self.sides[from]);
        }
    }

    /// A pair whose first end has an eager message (1) and a transfer (2) under way through queues that complete late, and a transfer (3) that nobody
    /// fetches.
    fn late() -> Pair {
        let mut pair = Pair::new(config());
        pair.sides[0].late = true;
        pair.ends[0].send(MS, 1, b"a", 1, 5000, false).unwrap();
        pair.ends[0].send(MS, 1, b"b", 2, 300_000, false).unwrap();
        pair.ends[0].send(MS, 1, b"c", 3, 300_000, false).unwrap();
        pair.run(MS);
        let (transfer, bytes) = pair.sides[1].requests[0];
        pair.sides[1].memory.insert(7, vec![0; bytes as usize]);
        pair.ends[1].receive(pair.now_ns, 0, transfer, bytes, 7).unwrap();
        pair.run(MS);
        pair
    }
}

/// Runs of datagrams go through queues, fill them at most, and end their transfer with the last local completion.
#[test]
fn runs_are_queued() {
    let mut pair = Pair::late();
    assert!(pair.sides[0].runs.iter().any(|&count| count > 1) && pair.sides[1].ended.is_empty());
    while pair.sides[1].ended.is_empty() {
        pair.complete_locally(0, 1);
        pair.run(MS / 10);
    }
    assert_eq!(pair.sides[1].ended, [(7, true)]);
    assert!(pair.sides[1].memory[&7].iter().enumerate().all(|(at, &byte)| byte == (at % 251) as u8));
    assert!(!pair.sides[0].ended.contains(&(2, true)), "some datagrams still read its payload");
    while !pair.sides[0].reading.is_empty() {
        pair.complete_locally(0, 1);
        pair.run(MS / 10);
    }
    assert!(pair.sides[0].ended.contains(&(1, true)) && pair.sides[0].ended.contains(&(2, true)));
    assert_eq!(pair.sides[0].reading_max, config().rails[0].queue_packets_max as usize, "full, and no more");
}

/// A queued datagram may read the payload of a send whose peer has failed: the send ends with its local completion.
#[test]
fn payloads_stay_in_use_when_their_peer_fails() {
    for reset in [false, true] {
        let mut pair = Pair::late();
        let before = pair.sides[0].ended.clone();
        let now_ns = pair.now_ns;
        pair.ends[0].abandon(now_ns, 1, &mut pair.sides[0]);
        assert_eq!((&pair.sides[0].failed[..], &pair.sides[0].in_use[..]), (&[1][..], &[1, 2][..]));
        assert_eq!(pair.sides[0].ended[before.len()..], [(3, false)], "nothing reads its payload");
        assert!(!pair.ends[0].is_quiet(), "it still reads memory of the program");
        // What comes meanwhile changes nothing, nor does time.
        pair.run(30_000 * MS);
        assert_eq!(pair.sides[0].ended.len(), before.len() + 1);
        if reset {
            pair.sides[0].reading.clear();
            (0..2).for_each(|rail| pair.ends[0].rail_reset(pair.now_ns, rail, &mut pair.sides[0]));
        } else {
            pair.complete_locally(0, usize::MAX);
        }
        let mut ended = pair.sides[0].ended[before.len() + 1..].to_vec();
        ended.sort();
        assert_eq!(ended, [(1, true), (2, false)], "the first has arrived as a whole");
        assert!(pair.ends[0].is_quiet() && pair.ends[0].orphans.is_empty());
    }
}

fn is_pattern(payload: &[u8], bytes: usize) -> bool {
    payload.len() == bytes && payload.iter().enumerate().all(|(at, &byte)| byte == (at % 251) as u8)
}

fn one_rail() -> Config {
    Config { rails: vec![RailConfig { mtu_bytes: 1472, endpoints: 1, queue_packets_max: 64 }], ..Config::default() }
}

/// The segments of a message leave together, in datagrams of one length, in whatever order they come; also where they
/// are read late.
#[test]
fn segments_of_a_message_leave_together() {
    for late in [false, true] {
        let mut pair = Pair::new(one_rail());
        (pair.sides[0].together, pair.sides[0].late) = (Some(Vec::new()), late);
        let sizes = [1300, 2048, 4096, 5000, 16_384, 1, 16_383];
        for (send, &bytes) in sizes.iter().enumerate() {
            pair.ends[0].send(MS, 1, b"envelope", send as u64, bytes, false).unwrap();
        }
        let now_ns = pair.now_ns;
        pair.ends[0].flush(now_ns, &mut pair.sides[0]);
        assert_eq!(pair.sides[0].together, Some(vec![2, 4, 4, 13]), "as far as window and pace go");
        let lengths: Vec<usize> = pair.sides[0].out.iter().skip(1).map(|(_, bytes)| bytes.len()).collect();
        assert!(lengths[..2].iter().all(|&one| one == lengths[0]) && lengths[2..6].iter().all(|&one| one == lengths[2]), "{lengths:?}");
        pair.sides[0].out.make_contiguous().reverse();
        for _ in 0..100 {
            pair.run(MS);
            pair.complete_locally(0, usize::MAX);
        }
        let eager = &pair.sides[1].eager;
        assert!(eager.len() == sizes.len() && eager.iter().zip(sizes).all(|(one, bytes)| is_pattern(one, bytes as usize)));
        assert_eq!((pair.sides[0].ended.len(), pair.ends[0].counters.segments_again, pair.ends[1].counters.refused_frames), (sizes.len(), 0, 0));
    }
}

/// Long messages are made by the stores with which they arrive sooner, in datagrams that such stores can write; short ones by ordinary ones.
#[test]
fn messages_are_made_by_the_faster_stores() {
    for (bytes, streaming_is_faster) in [(16_384, true), (16_384, false), (5_000, true)] {
        let mut pair = Pair::new(one_rail());
        pair.sides[0].together = Some(Vec::new());
        let mut streamed = Vec::new();
        for send in 0..6000 {
            pair.ends[0].send(pair.now_ns, 1, b"envelope", send, bytes, false).unwrap();
            pair.ends[0].flush(pair.now_ns, &mut pair.sides[0]);
            let Side { streams, out, .. } = &pair.sides[0];
            let steps = out.iter().all(|(_, datagram)| datagram.len() == out[0].1.len() && datagram.len().is_multiple_of(wire::STEP_BYTES));
            assert!(out.len() > 1 && (steps || !streams));
            streamed.push(*streams);
            pair.now_ns += if *streams == streaming_is_faster { 20_000 } else { 40_000 };
            pair.run(MS);
            assert!(is_pattern(&pair.sides[1].eager.pop().unwrap(), bytes as usize) && pair.sides[0].ended.pop() == Some((send, true)));
            pair.ends[1].release(pair.now_ns, 0, bytes);
            pair.captured = Default::default();
        }
        let late = streamed[4000..].iter().filter(|&&streams| streams).count();
        let expected = if bytes > 8192 { streaming_is_faster as usize * 2000 } else { 0 };
        assert_eq!((late, streamed.contains(&true)), (expected, bytes > 8192), "{bytes}, {streaming_is_faster}");
    }
}

/// A datagram of a message that is lost leaves again alone.
#[test]
fn a_lost_segment_leaves_again_alone() {
    for lost in 0..13 {
        let mut pair = Pair::new(one_rail());
        pair.sides[0].together = Some(Vec::new());
        pair.ends[0].send(MS, 1, b"a", 1, 16_384, false).unwrap();
        let now_ns = pair.now_ns;
        pair.ends[0].flush(now_ns, &mut pair.sides[0]);
        assert_eq!(pair.sides[0].together, Some(vec![13]));
        pair.sides[0].out.remove(lost).unwrap();
        // Something that comes later tells what is missing before it.
        pair.ends[0].send(now_ns, 1, b"b", 2, 10, false).unwrap();
        pair.run(100 * MS);
        assert!(is_pattern(&pair.sides[1].eager[0], 16_384) && is_pattern(&pair.sides[1].eager[1], 10));
        assert_eq!((&pair.sides[0].ended[..], pair.ends[0].counters.segments_again), (&[(2, true), (1, true)][..], 1), "segment {lost}");
        assert_eq!(pair.sides[0].together, Some(vec![13]), "alone");
    }
}

/// The segments of a message whose receive is there are placed as they come, as far as there is room, also out of order and when one is lost; one that
/// comes before its turn is not.
#[test]
fn segments_go_to_their_place_as_they_come() {
    for (room_bytes, lost, backwards) in [(16_384, None, false), (u64::MAX, Some(5), false), (5_000, None, false), (0, Some(12), false), (16_384, None, true)] {
        let mut pair = Pair::new(one_rail());
        pair.sides[0].together = Some(Vec::new());
        pair.sides[1].room_bytes = Some(room_bytes);
        pair.ends[0].send(MS, 1, b"a", 1, 16_384, false).unwrap();
        pair.ends[0].send(MS, 1, b"b", 2, 3_000, false).unwrap();
        let now_ns = pair.now_ns;
        pair.ends[0].flush(now_ns, &mut pair.sides[0]);
        lost.map(|lost| pair.sides[0].out.remove(lost).unwrap());
        if backwards {
            pair.sides[0].out.make_contiguous().reverse();
        }
        pair.run(100 * MS);
        let side = &pair.sides[1];
        // Its first segment came last; then the message after it has come as well.
        let expected: &[_] = match (backwards, lost) {
            (true, _) => &[],
            (_, Some(_)) => &[(100, 16_384)],
            _ => &[(100, 16_384), (101, 3_000)],
        };
        assert_eq!((&side.placed[..], side.eager.len()), (expected, 2 - expected.len()), "lost {lost:?}, backwards {backwards}");
        for (receive, bytes) in expected {
            assert!(is_pattern(&side.memory[receive], room_bytes.min(*bytes) as usize));
        }
        assert_eq!((pair.ends[1].counters.refused_frames, pair.ends[1].counters.damaged_in_memory, pair.ends[0].is_quiet()), (0, 0, true));
        assert_eq!(pair.ends[1].high.unreleased_bytes, 16_384 + 3_000 + 2 * OVERHEAD_BYTES);
    }
}

/// Those of `datagrams`, all of one length, as they come joined.
fn joined(datagrams: &[(u8, Vec<u8>)]) -> (Vec<u8>, usize) {
    let each_bytes = datagrams[0].1.len();
    assert!(datagrams.iter().all(|(_, bytes)| bytes.len() == each_bytes));
    (datagrams.iter().flat_map(|(_, bytes)| bytes.clone()).collect(), each_bytes)
}

/// Segments may be written to their place before anybody vouches for them where nothing lies that has arrived, and nothing that is not part of what comes.
#[test]
fn only_what_is_open_may_be_written_to_early() {
    for room_bytes in [u64::MAX, 5_000] {
        let mut pair = Pair::new(one_rail());
        (pair.sides[0].together, pair.sides[1].room_bytes) = (Some(Vec::new()), Some(room_bytes));
        pair.ends[0].send(MS, 1, b"a", 1, 16_384, false).unwrap();
        let now_ns = pair.now_ns;
        pair.ends[0].flush(now_ns, &mut pair.sides[0]);
        let out: Vec<_> = pair.sides[0].out.drain(..).collect();
        let placement = |pair: &Pair, segments: std::ops::Range<usize>| {
            let (bytes, each_bytes) = joined(&out[segments.clone()]);
            assert_eq!(wire::Run::length(&bytes, each_bytes), segments.len());
            let run = wire::Run::parse(&bytes, each_bytes).unwrap();
            let found = pair.ends[1].placement(&run);
            assert!(found.is_none_or(|found| (found.receive, found.offset_bytes) == (100, (segments.start * run.segment_bytes()) as u64)));
            found.is_some()
        };
        assert!(!placement(&pair, 1..13), "its receive is not known yet");
        pair.give(1, 0, &out[0].1);
        assert_eq!((placement(&pair, 1..3), placement(&pair, 1..13)), (true, room_bytes > 16_384));
        pair.give(1, 0, &out[2].1);
        assert_eq!([1..2, 1..3, 2..3, 3..13].map(|range| placement(&pair, range)), [true, false, false, room_bytes > 16_384]);
        let (mut bytes, each_bytes) = joined(&out[3..4]);
        for (at, to) in [(wire::HEADER_BYTES + 1, 9), (4, 77)] {
            // Another sequence, another sender.
            let was = std::mem::replace(&mut bytes[at], to);
            let other = wire::Run::parse(&bytes, each_bytes).is_none_or(|run| pair.ends[1].placement(&run).is_none());
            assert!(other || was == to, "byte {at}");
            bytes[at] = was;
        }
        out.iter().for_each(|(rail, bytes)| pair.give(1, *rail, bytes));
        assert!(!placement(&pair, 1..13), "it is whole");
    }
}

/// The same of a transfer, whose datagrams say themselves how it is cut.
#[test]
fn only_what_is_open_of_a_transfer_may_be_written_to_early() {
    let mut pair = Pair::new(one_rail());
    pair.ends[0].send(MS, 1, b"a", 1, 200_000, false).unwrap();
    pair.run(MS);
    let (transfer, bytes) = pair.sides[1].requests[0];
    pair.sides[1].memory.insert(7, vec![0; bytes as usize]);
    pair.ends[1].receive(pair.now_ns, 0, transfer, bytes, 7).unwrap();
    let now_ns = pair.now_ns;
    pair.ends[1].flush(now_ns, &mut pair.sides[1]);
    for (rail, bytes) in std::mem::take(&mut pair.sides[1].out) {
        pair.give(0, rail, &bytes);
    }
    pair.ends[0].flush(now_ns, &mut pair.sides[0]);
    let mut out: Vec<_> = pair.sides[0].out.drain(..).filter(|(_, bytes)| wire::Run::length(bytes, bytes.len()) == 1).collect();
    assert!(out.len() > 4);
    let placement = |pair: &Pair, datagram: &[u8]| {
        let run = wire::Run::parse(datagram, datagram.len())?;
        pair.ends[1].placement(&run).map(|found| (found.receive, found.offset_bytes, run.segment_bytes() as u64))
    };
    let (_, _, segment_bytes) = placement(&pair, &out[0].1).unwrap();
    assert_eq!(placement(&pair, &out[3].1), Some((7, 3 * segment_bytes, segment_bytes)));
    let third = out[3].1.clone();
    pair.give(1, 0, &third);
    assert_eq!(placement(&pair, &out[3].1), None, "it is there");
    assert!(placement(&pair, &out[2].1).is_some());
    // Each bit of what says how it is cut, and which window and peer it is of: another place, if any, is one where nothing has arrived.
    for bit in 0..8 * wire::RUN_HEAD_BYTES {
        let datagram = &mut out[2].1;
        datagram[bit / 8] ^= 1 << (bit % 8);
        if let Some((receive, offset_bytes, segment)) = placement(&pair, datagram) {
            assert_eq!((receive, segment), (7, segment_bytes), "bit {bit}");
            assert!(offset_bytes != 3 * segment_bytes && offset_bytes.is_multiple_of(segment_bytes) && offset_bytes < 200_000, "bit {bit}");
        }
        datagram[bit / 8] ^= 1 << (bit % 8);
    }
}

/// A receive whose message has come in part ends when its peer fails.
#[test]
fn a_message_that_is_not_whole_ends_with_its_peer() {
    let mut pair = Pair::new(one_rail());
    pair.sides[1].room_bytes = Some(16_384);
    pair.ends[0].send(MS, 1, b"a", 1, 16_384, false).unwrap();
    let now_ns = pair.now_ns;
    pair.ends[0].flush(now_ns, &mut pair.sides[0]);
    let (rail, bytes) = pair.sides[0].out.pop_front().unwrap();
    pair.give(1, rail, &bytes);
    pair.ends[1].abandon(now_ns, 0, &mut pair.sides[1]);
    assert_eq!((&pair.sides[1].ended[..], &pair.sides[1].placed[..]), (&[(100, false)][..], &[][..]));
}

#[test]
fn messages_of_all_kinds() {
    let mut pair = Pair::new(config());
    pair.ends[0].send(MS, 1, b"a", 1, 0, false).unwrap();
    pair.ends[0].send(MS, 1, b"b", 2, 10_000, false).unwrap();
    pair.ends[0].send(MS, 1, b"c", 3, 1_000_000, false).unwrap();
    pair.ends[0].send(MS, 1, b"d", 4, 70_000, true).unwrap();
    pair.run(5 * MS);
    assert_eq!(pair.sides[1].eager, [vec![], (0..10_000u64).map(|at| (at % 251) as u8).collect()]);
    let [(long, 1_000_000), (declined, 70_000)] = pair.sides[1].requests[..] else { panic!() };
    // Less is taken than was sent.
    pair.sides[1].memory.insert(7, vec![0; 500_000]);
    pair.ends[1].receive(pair.now_ns, 0, long, 500_000, 7).unwrap();
    pair.ends[1].receive(pair.now_ns, 0, declined, 0, 8).unwrap();
    pair.run(50 * MS);
    assert_eq!(pair.sides[0].ended, [(1, true), (2, true), (4, true), (3, true)]);
    assert_eq!(pair.sides[1].ended, [(7, true)]);
    assert!(pair.sides[1].memory[&7].iter().enumerate().all(|(at, &byte)| byte == (at % 251) as u8));
    // The receiver is first.
    pair.sides[1].memory.insert(9, vec![0; 300_000]);
    pair.ends[1].offer(pair.now_ns, 0, b"e", 300_000, 9).unwrap();
    pair.run(5 * MS);
    let [(window, granted_bytes)] = pair.sides[0].offers[..] else { panic!() };
    pair.ends[0].push(pair.now_ns, 1, b"f", window, granted_bytes, 10, 200_000).unwrap();
    pair.run(100 * MS);
    assert_eq!(pair.sides[1].ended.last(), Some(&(9, true)));
    assert_eq!(pair.sides[0].ended.last(), Some(&(10, true)));
    assert!(pair.sides[1].memory[&9][..200_000].iter().enumerate().all(|(at, &byte)| byte == (at % 251) as u8));
    // Long after, nothing is left but what a quiet peer costs, and it is still known what has been.
    pair.run(1000 * MS);
    assert!(pair.ends.iter().all(|end| end.peers[0].active.is_none() && end.timers.is_empty()));
    for (rail, bytes) in pair.captured[1].clone() {
        pair.give(1, rail, &bytes);
    }
    assert_eq!((pair.sides[1].eager.len(), pair.sides[1].requests.len(), pair.sides[1].ended.len()), (2, 2, 2));
    assert_eq!(pair.ends[1].counters.refused_replayed, pair.captured[1].len() as u64);
}

#[test]
fn other_incarnations_are_refused() {
    let mut pair = Pair::new(config());
    pair.ends[0].send(MS, 1, b"a", 1, 100, false).unwrap();
    pair.run(5 * MS);
    // A new incarnation of the receiver does not listen to what was meant for the old one.
    let mut anew = Endpoint::new(config(), 1, 12);
    let mut side = Side::default();
    for (rail, bytes) in &pair.captured[1] {
        let mut bytes = bytes.clone();
        anew.arrived(MS, *rail, &open_datagram(&SEAL, &mut bytes).unwrap(), &mut side);
    }
    assert!(side.eager.is_empty() && anew.counters.refused_foreign == pair.captured[1].len() as u64);
    // A new incarnation of the sender ends all that was under way with the old one.
    pair.ends[1].send(pair.now_ns, 0, b"b", 2, 100_000, false).unwrap();
    pair.run(MS);
    pair.ends[0] = Endpoint::new(config(), 0, 13);
    pair.ends[0].connect(1, 11);
    pair.ends[0].send(pair.now_ns, 1, b"c", 3, 100, false).unwrap();
    pair.run(MS);
    assert_eq!((&pair.sides[1].failed[..], &pair.sides[1].ended[..]), (&[0][..], &[(2, false)][..]));
    assert_eq!(pair.ends[1].send(pair.now_ns, 0, b"d", 4, 0, false), Err(Refused::Peer));
    assert_eq!(pair.sides[1].eager.len(), 1);
}

#[test]
fn sends_that_never_leave_kill_their_rail() {
    let mut pair = Pair::new(config());
    pair.sides[0].stuck = Some(0);
    for send in 0..20 {
        pair.ends[0].send(MS, 1, b"a", send, 5000, false).unwrap();
    }
    pair.run(1000 * MS);
    assert_eq!(pair.sides[1].eager.len(), 20, "the other rail carried them");
    assert!(pair.sides[0].rails.contains(&(0, false)));
    // What the stuck rail may still read has not ended.
    let before = pair.sides[0].ended.len();
    assert!(before < 20);
    let now_ns = pair.now_ns;
    pair.ends[0].rail_reset(now_ns, 0, &mut pair.sides[0]);
    pair.sides[0].stuck = None;
    assert_eq!(pair.sides[0].ended.len(), 20);
    // The rail is found to work again once there is something to do.
    pair.ends[0].send(now_ns, 1, b"b", 30, 1 << 20, false).unwrap();
    pair.run(3000 * MS);
    assert!(pair.sides[0].rails.contains(&(0, true)));
}

/// A spare rail carries nothing but signs of life while another one answers, however much waits there, takes over where none does, and gives way again.
#[test]
fn spares_stand_by() {
    let mut pair = Pair::new(config());
    (0..2).for_each(|at| pair.ends[at].set_spares(1 - at as u32, 0b10));
    let mut send = 0;
    let mut burst = |pair: &mut Pair, ns| {
        let before = pair.captured[1].len();
        for _ in 0..10 {
            for _ in 0..4 {
                send += 1;
                let now_ns = pair.now_ns;
                pair.ends[0].send(now_ns, 1, b"a", send, 5000, false).unwrap();
            }
            pair.run(ns / 10);
            for bytes in std::mem::take(&mut pair.sides[1].eager) {
                assert_eq!(bytes.len(), 5000);
                let now_ns = pair.now_ns;
                pair.ends[1].release(now_ns, 0, 5000);
            }
        }
        let bytes = |rail| pair.captured[1][before..].iter().filter(|one| one.0 == rail).map(|one| one.1.len()).sum::<usize>();
        [bytes(0), bytes(1)]
    };
    let [own, spare] = burst(&mut pair, 100 * MS);
    assert!(own > 40 * 5000 && spare < 2000, "{own} bytes, and {spare} on the spare rail");
    pair.cut = Some(0);
    let [_, spare] = burst(&mut pair, 5000 * MS);
    assert!(spare >= 40 * 5000, "{spare} bytes on the spare rail");
    assert_eq!(pair.sides[0].ended.iter().filter(|(_, well)| *well).count(), 80);
    assert_eq!(pair.ends[0].rails_alive(1), 0b10);
    pair.cut = None;
    // While something is wanted of the peer, the dead rail is asked for its return.
    let now_ns = pair.now_ns;
    pair.ends[0].watch(now_ns, 1, true).unwrap();
    pair.run(5000 * MS);
    assert_eq!(pair.ends[0].rails_alive(1), 0b11);
    let [own, spare] = burst(&mut pair, 100 * MS);
    assert!(own > 40 * 5000 && spare < 2000, "{own} bytes, and {spare} on the spare rail");
    // Where all are spare, they are used as any.
    pair.ends[0].set_spares(1, 0b11);
    let [own, spare] = burst(&mut pair, 100 * MS);
    assert!(own > 5000 && spare > 5000, "{own} and {spare} bytes");
    assert!(pair.sides[0].failed.is_empty());
}

/// Each end grants the other a window, and both grants are lost on a rail that has just died: the next ones find another rail, spare or not.
#[test]
fn grants_find_another_rail() {
    for spares in [0, 0b10] {
        let mut pair = Pair::new(config());
        for end in 0..2 {
            pair.ends[end].set_spares(1 - end as u32, spares);
            pair.ends[end].send(MS, 1 - end as u32, b"a", 1, 300_000, false).unwrap();
        }
        pair.run(5 * MS);
        pair.cut = Some(0);
        for end in 0..2 {
            let (transfer, bytes) = pair.sides[end].requests[0];
            pair.sides[end].memory.insert(7, vec![0; bytes as usize]);
            let now_ns = pair.now_ns;
            pair.ends[end].receive(now_ns, 1 - end as u32, transfer, bytes, 7).unwrap();
        }
        pair.run(3000 * MS);
        for side in &pair.sides {
            assert!(side.failed.is_empty() && side.ended.contains(&(1, true)) && side.ended.contains(&(7, true)), "{spares:b}: {:?}", side.ended);
        }
    }
}

#[test]
fn silence_fails_a_watched_peer() {
    let mut pair = Pair::new(Config { peer_timeout_ns: 3000 * MS, ..config() });
    pair.ends[0].watch(MS, 1, true).unwrap();
    pair.run(20_000 * MS);
    assert!(pair.sides[0].failed.is_empty());
    pair.deaf = Some(1);
    let from_ns = pair.now_ns;
    pair.run(2500 * MS);
    assert!(pair.sides[0].failed.is_empty());
    pair.run(1100 * MS);
    assert_eq!(pair.sides[0].failed, [1], "within the timeout and one question, {} ms", (pair.now_ns - from_ns) / MS);
    assert!(pair.ends[0].deadline_ns().is_none());
}

/// Whoever is given up has what it said last acknowledged, and all that was under way with it is over.
#[test]
fn who_is_given_up_hears_that_its_last_word_has_come() {
    let mut pair = Pair::new(config());
    pair.ends[1].send(pair.now_ns, 0, b"never fetched", 2, 100_000, false).unwrap();
    pair.ends[0].send(pair.now_ns, 1, b"never sent", 3, 100_000, false).unwrap();
    pair.run(5 * MS);
    pair.sides[1].memory.insert(4, vec![0; 100_000]);
    let (transfer, bytes) = pair.sides[1].requests[0];
    pair.deaf = Some(0);
    pair.ends[1].receive(pair.now_ns, 0, transfer, bytes, 4).unwrap();
    pair.ends[0].send(pair.now_ns, 1, b"farewell", 1, 10, false).unwrap();
    pair.run(10_000);
    pair.deaf = None;
    assert_eq!((pair.sides[1].eager.len(), &pair.sides[0].ended[..]), (1, &[][..]), "it is not acknowledged yet");
    pair.ends[1].abandon(pair.now_ns, 0, &mut pair.sides[1]);
    assert_eq!((&pair.sides[1].failed[..], &pair.sides[1].ended[..]), (&[0][..], &[(2, false), (4, false)][..]));
    assert!(!pair.ends[1].knows(0) && pair.ends[1].is_quiet());
    pair.run(1000);
    assert_eq!(pair.sides[0].ended, [(1, true)]);
    assert_eq!(pair.ends[1].send(pair.now_ns, 0, b"later", 5, 0, false), Err(Refused::Peer));
}

/// A peer that answers on no rail is said to be silent, long before it has failed; and when there are other paths, they are tried at once.
#[test]
fn silence_is_told_and_other_ways_are_tried_at_once() {
    let mut pair = Pair::new(config());
    pair.ends[0].send(MS, 1, b"a", 1, 10, false).unwrap();
    pair.run(5 * MS);
    pair.deaf = Some(1);
    pair.ends[0].send(pair.now_ns, 1, b"b", 2, 10, false).unwrap();
    pair.run(200 * MS);
    assert!(pair.sides[0].silent.is_empty(), "not yet");
    pair.run(5000 * MS);
    assert!(pair.sides[0].silent.len() > 5 && pair.sides[0].failed.is_empty(), "{:?}", pair.sides[0].silent);
    pair.ends[0].set_paths(1, 2, 1472);
    pair.ends[0].paths_changed(1, 0b11);
    pair.deaf = None;
    pair.run(5 * MS);
    assert_eq!(pair.sides[1].eager.len(), 2);
    let told = pair.sides[0].silent.len();
    pair.run(20_000 * MS);
    assert_eq!((pair.sides[0].silent.len(), pair.sides[1].silent.len()), (told, 0));
}

#[test]
fn silence_ends_every_operation() {
    let mut pair = Pair::new(config());
    pair.sides[0].memory.insert(3, vec![0; 1000]);
    pair.ends[0].offer(MS, 1, b"o", 1000, 3).unwrap();
    pair.ends[0].send(MS, 1, b"p", 2, 1 << 20, false).unwrap();
    pair.run(5 * MS);
    // Neither is answered, and then the peer is gone.
    pair.deaf = Some(1);
    pair.ends[0].send(pair.now_ns, 1, b"q", 1, 10, false).unwrap();
    pair.run(25_000 * MS);
    let mut ended = pair.sides[0].ended.clone();
    ended.sort();
    assert_eq!(ended, [(1, false), (2, false), (3, false)]);
}

/// An offer and a request cross: the receiver takes the one for the other, and the sender need not be asked.
#[test]
fn offers_that_cross_requests_are_filled() {
    for sender_first in [false, true] {
        let mut pair = Pair::new(config());
        pair.sides[1].memory.insert(7, vec![0; 500_000]);
        pair.ends[0].send(MS, 1, b"a", 1, 400_000, false).unwrap();
        let window = pair.ends[1].offer(MS, 0, b"o", 500_000, 7).unwrap();
        pair.run(5 * MS);
        let ([(transfer, 400_000)], [(offered, granted_bytes)]) = (&pair.sides[1].requests[..], &pair.sides[0].offers[..]) else { panic!() };
        let (transfer, granted_bytes) = (*transfer, *granted_bytes);
        assert_eq!((*offered, pair.ends[1].is_quiet()), (window, true), "nobody has to answer an offer");
        if sender_first {
            // What is granted is there before the receiver says which transfer it belongs to.
            pair.ends[0].fill(1, 1, window, granted_bytes, 500_000);
            pair.run(20 * MS);
            assert!(pair.sides[1].memory[&7][..60_000].iter().enumerate().all(|(at, &byte)| byte == (at % 251) as u8));
            assert!(pair.sides[1].ended.is_empty());
        }
        assert_eq!(pair.ends[1].adopt(pair.now_ns, 0, window, transfer, 600_000), Err(Refused::Argument));
        pair.ends[1].adopt(pair.now_ns, 0, window, transfer, 400_000).unwrap();
        assert_eq!(pair.ends[1].adopt(pair.now_ns, 0, window, transfer, 400_000), Err(Refused::Argument));
        pair.run(50 * MS);
        assert_eq!((&pair.sides[1].ended[..], &pair.sides[0].ended[..]), (&[(7, true)][..], &[(1, true)][..]));
        assert!(pair.sides[1].memory[&7][..400_000].iter().enumerate().all(|(at, &byte)| byte == (at % 251) as u8));
        // Too late, and of no effect.
        pair.ends[0].fill(1, 1, window, granted_bytes, 500_000);
        pair.ends[1].withdraw(0, window);
        pair.run(1000 * MS);
        assert!(pair.ends.iter().all(|end| end.peers[0].active.is_none() && end.windows.len() == 0));
    }
}

#[test]
fn an_acknowledgement_that_does_not_fit_cuts_no_run() {
    let mut pair = Pair::new(config());
    pair.sides[1].memory.insert(7, vec![0; 200_000]);
    pair.ends[0].send(MS, 1, b"a", 1, 200_000, false).unwrap();
    pair.run(5 * MS);
    let (transfer, bytes) = pair.sides[1].requests[0];
    // The grant comes together with something that wants an acknowledgement.
    let now_ns = pair.now_ns;
    pair.ends[1].receive(now_ns, 0, transfer, bytes, 7).unwrap();
    pair.ends[1].send(now_ns, 0, b"b", 2, 100, false).unwrap();
    pair.ends[1].flush(now_ns, &mut pair.sides[1]);
    while let Some((rail, bytes)) = pair.sides[1].out.pop_front() {
        pair.give(0, rail, &bytes);
    }
    assert_eq!(pair.sides[0].eager.len(), 1);
    pair.ends[0].flush(now_ns, &mut pair.sides[0]);
    assert!(pair.sides[0].runs.first().is_some_and(|&first| first > 1), "{:?}", pair.sides[0].runs);
}

/// The end of a transfer is acknowledged at once; where the last one was answered, it waits as long for the next answer, and goes along with it.
#[test]
fn the_end_of_a_transfer_waits_for_an_answer() {
    let wait_ns = config().ack_long_ns;
    let mut pair = Pair::new(config());
    let transfer = |pair: &mut Pair, send: u64| {
        pair.ends[0].send(pair.now_ns, 1, b"a", send, 200_000, false).unwrap();
        while pair.sides[1].requests.is_empty() {
            pair.run(1000);
        }
        let (transfer, bytes) = pair.sides[1].requests.remove(0);
        pair.sides[1].memory.insert(7, vec![0; bytes as usize]);
        pair.ends[1].receive(pair.now_ns, 0, transfer, bytes, 7).unwrap();
        while !pair.sides[1].ended.contains(&(7, true)) {
            pair.run(1000);
        }
        pair.sides[1].ended.clear();
        let before = pair.ends[1].counters.control_sent;
        pair.run(wait_ns / 4);
        (pair.sides[0].ended.contains(&(send, true)), before)
    };
    assert!(transfer(&mut pair, 1).0, "told at once");
    assert!(transfer(&mut pair, 2).0, "and so it stays where nothing is sent back");
    pair.ends[1].send(pair.now_ns, 0, b"b", 3, 100, false).unwrap();
    pair.run(2 * wait_ns);
    let (told, before) = transfer(&mut pair, 4);
    assert!(!told, "one was answered at once");
    pair.ends[1].send(pair.now_ns, 0, b"b", 5, 100, false).unwrap();
    pair.run(wait_ns / 4);
    assert!(pair.sides[0].ended.contains(&(4, true)));
    assert_eq!(pair.ends[1].counters.control_sent, before, "along with the answer");
    pair.run(2 * wait_ns);
    let (told, _) = transfer(&mut pair, 6);
    assert!(!told);
    pair.run(wait_ns);
    assert!(pair.sides[0].ended.contains(&(6, true)), "no longer than that");
    assert!(transfer(&mut pair, 8).0, "this one was not answered");
}

#[test]
fn withdrawn_offers_leave_nothing() {
    let mut pair = Pair::new(config());
    let window = pair.ends[1].offer(MS, 0, b"o", 500_000, 7).unwrap();
    pair.run(1000 * MS);
    assert!(pair.ends[1].peers[0].active.is_none() && pair.ends[1].windows.len() == 1);
    pair.ends[1].withdraw(0, window);
    assert_eq!((pair.ends[1].windows.len(), pair.sides[1].ended.len()), (0, 0));
}

/// What is said to leave whole ends although nobody matches it; what is not may wait for that.
#[test]
fn what_leaves_whole_ends_unmatched() {
    let mut pair = Pair::new(Config { eager_bytes_max: 16 << 10, credit_bytes: 20_000, credit_header_bytes: 20_000, ..config() });
    assert!(!pair.ends[0].leaves_whole(1, 17 << 10), "it is too long");
    let mut whole = 0;
    for send in 0..20 {
        let said = pair.ends[0].leaves_whole(1, 1000);
        assert!(!said || whole == send, "only while there is room");
        whole += u64::from(said);
        pair.ends[0].send(pair.now_ns.max(MS), 1, b"a", send, 1000, false).unwrap();
        pair.run(50 * MS);
        assert_eq!(pair.sides[1].eager.len() as u64, whole);
    }
    assert!((10..20).contains(&whole), "{whole}");
    assert!(!pair.ends[0].is_quiet(), "the others wait to be matched");
}

/// While the receiver makes room, nothing has to be asked for; where it makes none for long, or says that it waits, the rest goes as headers.
#[test]
fn what_finds_no_room_is_held_back_for_it() {
    for (released, widened) in [(true, false), (false, false), (false, true)] {
        let mut pair = Pair::new(Config { eager_bytes_max: 16 << 10, credit_bytes: 20_000, credit_header_bytes: 40_000, ..config() });
        for send in 0..40 {
            pair.ends[0].send(MS, 1, b"a", send, 1000, false).unwrap();
        }
        pair.run(MS / 10);
        let arrived = pair.sides[1].eager.len();
        assert!((1..40).contains(&arrived) && pair.sides[1].requests.is_empty() && pair.ends[0].lacks_room(1), "{arrived} have room");
        if widened {
            pair.ends[1].widen(pair.now_ns, 0);
        }
        let mut done = 0;
        for _ in 0..if released { 400 } else { 2 } {
            while released && done < pair.sides[1].eager.len() {
                pair.ends[1].release(pair.now_ns, 0, 1000);
                done += 1;
            }
            pair.run(MS / 10);
        }
        let (eager, requests) = (pair.sides[1].eager.len(), pair.sides[1].requests.len());
        match (released, widened) {
            (true, _) => assert_eq!((eager, requests, pair.ends[0].lacks_room(1)), (40, 0, false)),
            (false, false) => assert_eq!((eager, requests), (arrived, 0), "still held back"),
            (false, true) => assert_eq!((eager, requests), (arrived, 40 - arrived), "the receiver may wait for one of them"),
        }
        if !released {
            pair.run(200 * MS);
            assert_eq!((pair.sides[1].eager.len(), pair.sides[1].requests.len()), (arrived, 40 - arrived));
        }
    }
}

#[test]
fn credit_bounds_what_is_unmatched() {
    let mut pair = Pair::new(Config { eager_bytes_max: 16 << 10, credit_bytes: 20_000, credit_header_bytes: 20_000, ..config() });
    for send in 0..200 {
        pair.ends[0].send(MS, 1, b"a", send, 1000, false).unwrap();
    }
    pair.run(200 * MS);
    let (eager, headers) = (pair.sides[1].eager.len(), pair.sides[1].requests.len());
    assert_eq!((eager, headers), (17, 6), "17 payloads and overheads, the rest as headers");
    // The receiver waits for one that is behind them.
    pair.ends[1].widen(pair.now_ns, 0);
    pair.run(200 * MS);
    assert!(pair.sides[1].requests.len() > 100);
    assert!(pair.ends[1].high.unreleased_bytes <= 40_000);
    // Room is made, and the word of it is lost: the sender asks.
    pair.deaf = Some(0);
    for _ in 0..eager {
        pair.ends[1].release(pair.now_ns, 0, 1000);
    }
    for (transfer, bytes) in std::mem::take(&mut pair.sides[1].requests) {
        pair.sides[1].memory.insert(1000 + transfer as u64, vec![0; bytes as usize]);
        pair.ends[1].receive(pair.now_ns, 0, transfer, bytes, 1000 + transfer as u64).unwrap();
        pair.ends[1].release(pair.now_ns, 0, 0);
    }
    pair.run(10 * MS);
    pair.deaf = None;
    pair.run(2000 * MS);
    let arrived = pair.sides[1].eager.len() + pair.sides[1].ended.len() + pair.sides[1].requests.len();
    assert_eq!(arrived, 200);
}
