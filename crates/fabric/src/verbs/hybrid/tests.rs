//! Two ends over a device of this machine; skipped elsewhere.

use std::time::{Duration, Instant};

use proto::reliability::wire::Run;
use proto::reliability::{Begun, Delivery, Slice};

use super::*;
use crate::reliable::Sink;
use crate::reliable::tests::{Memory, Random, SIZES, skipped};
use crate::verbs::Rendezvous;
const PATIENCE: Duration = Duration::from_secs(15);

/// Messages whose envelopes are headers, with their numbers in the second word.
#[derive(Default)]
struct Headed(Memory);

fn number(envelope: &[u8]) -> &[u8] {
    &envelope[8..16]
}

// SAFETY: as that of what it holds.
unsafe impl Program for Headed {
    fn gather(&self, slice: &Slice, out: &mut Sink) {
        self.0.gather(slice, out);
    }
    fn place(&mut self, receive: u64, offset_bytes: u64, payload: &[u8], check: &dyn Fn(&[u8]) -> bool) -> bool {
        self.0.place(receive, offset_bytes, payload, check)
    }
    fn place_run(&mut self, receive: u64, offset_bytes: u64, run: &Run) -> bool {
        self.0.place_run(receive, offset_bytes, run)
    }
    fn begin(&mut self, peer: PeerId, envelope: &[u8], bytes: u64) -> Option<Begun> {
        self.0.begin(peer, number(envelope), bytes)
    }
    fn deliver(&mut self, peer: PeerId, delivery: Delivery) {
        self.0.deliver(
            peer,
            match delivery {
                Delivery::Eager { envelope, payload } => Delivery::Eager { envelope: number(envelope), payload },
                Delivery::Placed { envelope, receive, bytes } => Delivery::Placed { envelope: number(envelope), receive, bytes },
                Delivery::Request { envelope, transfer, bytes } => Delivery::Request { envelope: number(envelope), transfer, bytes },
                other => other,
            },
        );
    }
    fn complete(&mut self, send: u64, result: Result<(), Failure>) {
        self.0.complete(send, result);
    }
    fn received(&mut self, receive: u64, result: Result<(), Failure>) {
        self.0.received(receive, result);
    }
    fn peer_failed(&mut self, peer: PeerId, in_use: &[u64]) {
        self.0.peer_failed(peer, in_use);
    }
    fn body(&self, send: u64) -> Option<*const u8> {
        self.0.body(send)
    }
    fn room(&mut self, receive: u64, bytes: u64) -> Option<*mut u8> {
        self.0.room(receive, bytes)
    }
    fn card(&mut self, peer: PeerId) -> Option<String> {
        self.0.card(peer)
    }
}

struct End {
    node: Hybrid,
    memory: Headed,
    sent: u64,
    waiting: VecDeque<(Header, u64, u64, bool)>,
    /// Bodies that have come are fetched so much later, looks.
    patience: u64,
    looks: u64,
}

impl End {
    /// As the engine does: what is short goes at once where it can, and is copied.
    fn send(&mut self, peer: PeerId, bytes: usize, pulled: bool) {
        let header = Header::new([7 << 16 | 1 << 8, self.sent], if pulled { &[5] } else { &[] });
        let (envelope, length) = header.to_bytes();
        let payload = self.memory.0.payload(self.sent, bytes);
        self.sent += 1;
        if !pulled && self.waiting.is_empty() && self.node.send_now(peer, &envelope[..length], bytes, |out| out.extend_from_slice(&payload)) {
            return;
        }
        let token = self.memory.0.sends.len() as u64;
        self.memory.0.sends.push(Some(payload));
        self.waiting.push_back((header, token, bytes as u64, pulled));
    }

    /// Sends what waits, as far as there is room.
    fn go_on(&mut self, peer: PeerId) {
        while let Some(&(header, token, bytes, pulled)) = self.waiting.front() {
            let (envelope, length) = header.to_bytes();
            match self.node.send(self.node.now_ns(), peer, &envelope[..length], token, bytes, pulled) {
                Err(Refused::Full) => break,
                sent => sent.unwrap(),
            }
            self.waiting.pop_front();
        }
    }

    fn step(&mut self) -> usize {
        let came = self.node.take_in(&mut self.memory);
        self.node.flush(self.node.now_ns(), &mut self.memory);
        let now_ns = self.node.now_ns();
        self.looks += 1;
        while let Some((peer, bytes)) = self.memory.0.releases.pop_front() {
            self.node.release(now_ns, peer, bytes);
        }
        if self.looks.is_multiple_of(self.patience) {
            while let Some((peer, index, transfer, bytes)) = self.memory.0.requests.pop_front() {
                let token = self.memory.0.receives.len() as u64;
                self.memory.0.receives.push((index, vec![0; bytes as usize]));
                self.node.receive(now_ns, peer, transfer, bytes, token).unwrap();
                if bytes == 0 {
                    // There is nothing to come.
                    self.memory.received(token, Ok(()));
                }
                self.node.release(now_ns, peer, 0);
            }
        }
        came
    }
}

const KEEPS: Keeps = Keeps { bytes_max: 64 << 20, in_place: InPlaceUse::Always, overlaps: true, rendezvous: Rendezvous::Read };
/// A few messages are enough, and a moment without them is too long.
const CHEAP: Terms = Terms { connections_max: 4, price: 4, period_ns: 200_000 };

fn ends(terms: Terms, rendezvous: Rendezvous) -> Option<[End; 2]> {
    let mut ends = Vec::new();
    for me in [0, 1] {
        let key = JobKey::new([9; 32]);
        let keeps = Keeps { rendezvous, ..KEEPS };
        let node = Ports::open(&|_, _| true, true, None).and_then(|device| Hybrid::over(device, terms, (me, me + 1), &key, Protection::Auth, keeps, |_| ()));
        match node {
            Ok(node) => ends.push(End { node, memory: Headed::default(), sent: 0, waiting: VecDeque::new(), patience: 1, looks: 0 }),
            Err(why) => {
                skipped("verbs::hybrid::tests", &format!("no device here: {why}"));
                return None;
            }
        }
    }
    let mut ends: [End; 2] = ends.try_into().ok()?;
    let cards = [ends[0].node.card(), ends[1].node.card()];
    for (end, peer) in [(0, 1), (1, 0)] {
        ends[end].node.connect(peer, &cards[peer as usize]).unwrap();
        ends[end].memory.0.cards.insert(peer, cards[peer as usize].clone());
    }
    Some(ends)
}

fn run_until(ends: &mut [End; 2], mut done: impl FnMut(&mut [End; 2]) -> bool) {
    let start = Instant::now();
    while !done(ends) {
        let mut came = 0;
        for (end, peer) in ends.iter_mut().zip([1, 0]) {
            end.go_on(peer);
            came += end.step();
        }
        if came == 0 {
            std::thread::yield_now();
        }
        let words = || ends.iter().map(|end| (&end.node.routes, &end.node.bonds, end.memory.0.whole, end.sent));
        assert!(start.elapsed() < PATIENCE, "no end: {:#?}", words().collect::<Vec<_>>());
    }
}

/// All that was sent is there, in order and whole, and no end waits for anything.
fn settle(ends: &mut [End; 2]) {
    let whole = [ends[1].sent, ends[0].sent];
    run_until(ends, |ends| ends.iter().zip(whole).all(|(end, whole)| end.waiting.is_empty() && end.memory.0.whole == whole && end.node.is_quiet()));
    for end in ends {
        assert!(end.memory.0.sends.iter().all(Option::is_none) && end.memory.0.failed.is_empty());
    }
}

fn pass(ends: &mut [End; 2], time: Duration) {
    let start = Instant::now();
    run_until(ends, |_| start.elapsed() > time);
}

/// Messages of all lengths while connections come, and go since nobody uses them for a while.
#[test]
fn connections_come_and_go() {
    for rendezvous in [Rendezvous::Read, Rendezvous::Write, Rendezvous::Pieces] {
        let Some(mut ends) = ends(CHEAP, rendezvous) else { return };
        for plain in [[true, true], [false, true], [true, false], [false, false]] {
            ends.iter_mut().zip(plain).for_each(|(end, plain)| end.memory.0.plain = plain);
            for round in 0..6 {
                for &bytes in &SIZES {
                    for (end, peer) in ends.iter_mut().zip([1, 0]) {
                        end.send(peer, bytes, round % 3 == 1);
                        end.step();
                    }
                }
                settle(&mut ends);
                if round % 2 == 1 {
                    run_until(&mut ends, |ends| ends.iter().all(|end| end.node.bonds.pairs == 0));
                }
            }
        }
        for end in &ends {
            let counters = end.node.counters().connections;
            assert!(counters.made >= 8 && counters.broken == 0, "{counters:?}");
        }
        assert!(ends.iter().map(|end| end.node.counters().connections.given_back).sum::<u64>() >= 8);
    }
}

/// Where no message may be queued when a connection opens, that one is used a little later, and does not break.
#[test]
fn connections_open_without_room() {
    let Some(mut ends) = ends(Terms { period_ns: 10_000_000_000, ..CHEAP }, Rendezvous::Read) else { return };
    let [one, other] = &mut ends;
    let (start, so_far) = (Instant::now(), |end: &End| end.node.counters().connections);
    other.node.promote(0);
    while !one.node.bonds.of(1).handshake.is_begun() {
        other.step();
        one.step();
        assert!(start.elapsed() < PATIENCE);
    }
    // Its own words have left; that the other one is ready it hears when its queue is full.
    while one.waiting.is_empty() {
        one.send(1, 8, false);
        one.go_on(1);
    }
    while so_far(one).made + so_far(one).broken == 0 {
        other.step();
        one.node.take_in(&mut one.memory);
        assert!(start.elapsed() < PATIENCE);
    }
    assert!(!one.node.bonds.is_open(1), "there was room");
    settle(&mut ends);
    assert!(ends[0].node.bonds.is_open(1));
    for counters in ends.iter().map(so_far) {
        assert!(counters.made == 1 && counters.broken == 0, "{counters:?}");
    }
}

/// Connections break at any time, at either end, under load: nothing is lost, doubled, overtaken or damaged, and nobody hears of it.
#[test]
fn connections_break() {
    let mut sum = trace::Connections::default();
    for seed in 0..if std::env::var_os("WHIMBREL_TEST_SCALE").is_some() { 200 } else { 24 } {
        let mut random = Random(seed);
        let Some(mut ends) = ends(Terms { price: 2, period_ns: 20_000, ..CHEAP }, [Rendezvous::Read, Rendezvous::Write, Rendezvous::Pieces][seed as usize % 3])
        else {
            return;
        };
        ends.iter_mut().for_each(|end| {
            end.memory.0.plain = random.chance(70);
            end.patience = 1 + random.word() % 20;
        });
        for _ in 0..1500 {
            let one = (random.word() % 2) as usize;
            match random.word() % 8 {
                0..5 => {
                    let bytes = match random.word() % 10 {
                        0..6 => random.word() % 300,
                        6..8 => random.word() % 20_000,
                        _ => random.word() % 200_000,
                    };
                    ends[one].send(1 - one as PeerId, bytes as usize, random.chance(20));
                }
                5 => {
                    let connections = &mut ends[one].node.both.connections;
                    if random.chance(15) {
                        connections.fail_all();
                    }
                }
                _ => {
                    ends[one].go_on(1 - one as PeerId);
                    ends[one].step();
                }
            }
        }
        settle(&mut ends);
        for end in &ends {
            let counters = end.node.counters().connections;
            sum.made += counters.made;
            sum.broken += counters.broken;
            sum.resent += counters.resent;
        }
    }
    assert!(sum.made > 50 && sum.broken > 50 && sum.resent > 500, "{sum:?}");
}

/// No more connections than there may be, and those who earn most have them.
#[test]
fn one_at_most() {
    let Some(mut ends) = ends(Terms { connections_max: 1, ..CHEAP }, Rendezvous::Read) else { return };
    for _ in 0..10 {
        ends[0].send(1, 8, false);
        pass(&mut ends, Duration::from_micros(50));
    }
    settle(&mut ends);
    let registered = ends[0].node.both.connections.footprint();
    assert!(registered.1 <= 1, "{registered:?}");
}

/// What waits for its receiver for long is offered again where its connection has gone, and comes from there.
#[test]
fn bodies_that_wait_outlive_connections() {
    // It does not go back by itself, however busy the machine is.
    let Some(mut ends) = ends(Terms { period_ns: 10_000_000_000, ..CHEAP }, Rendezvous::Read) else { return };
    ends.iter_mut().for_each(|end| end.memory.0.plain = true);
    ends[1].patience = u64::MAX;
    for _ in 0..20 {
        ends[0].send(1, 8, false);
        pass(&mut ends, Duration::from_micros(50));
    }
    run_until(&mut ends, |ends| ends[0].node.bonds.is_open(1));
    for bytes in [100_000, 5000, 20_000] {
        ends[0].send(1, bytes, true);
    }
    run_until(&mut ends, |ends| ends[1].memory.0.requests.len() == 3);
    for _ in 0..3 {
        ends[0].node.both.connections.fail_all();
        pass(&mut ends, Duration::from_millis(2));
    }
    assert!(ends[0].node.counters().connections.broken >= 1);
    ends[1].patience = 1;
    settle(&mut ends);
}

/// A peer that is gone has failed once its datagrams are not answered, and all that was under way with it ends.
#[test]
fn a_peer_that_is_gone() {
    let Some([mut one, mut other]) = ends(CHEAP, Rendezvous::Read) else { return };
    one.memory.0.gives_up = true;
    let mut both = [one, other];
    for _ in 0..20 {
        both[0].send(1, 8, false);
        pass(&mut both, Duration::from_micros(50));
    }
    [one, other] = both;
    for bytes in [8, 100, 5000, 100_000] {
        one.send(1, bytes, bytes > 100);
        one.go_on(1);
    }
    other.node.take_in(&mut other.memory);
    drop(other);
    one.node.abandon(one.node.now_ns(), &[1], &mut one.memory);
    one.step();
    assert_eq!(one.memory.0.failed, [1]);
    assert!(one.memory.0.sends.iter().all(Option::is_none) && one.node.is_quiet());
    assert_eq!(one.node.send(1, 1, &[0; 16], 0, 0, false), Err(Refused::Peer));
}
