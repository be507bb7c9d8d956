//! Two ends over a device of this machine: `tests/rdma/device.py` runs these in a guest that has one; skipped elsewhere. With
//! `WHIMBREL_TEST_DEVICE` over that one.

use std::time::Duration;

use super::*;
use crate::reliable::tests::{Memory, PATIENCE, SIZES, skipped};

struct End {
    node: Connections,
    memory: Memory,
    sent: u64,
}

impl End {
    fn send(&mut self, peer: PeerId, bytes: usize) {
        let token = self.memory.sends.len() as u64;
        let payload = self.memory.payload(self.sent, bytes);
        self.memory.sends.push(Some(payload));
        self.node.send(peer, &self.sent.to_le_bytes(), token, bytes as u64, false).unwrap();
        self.sent += 1;
    }

    fn step(&mut self) -> usize {
        let came = self.node.take_in(&mut self.memory);
        self.node.flush(self.node.now_ns(), &mut self.memory);
        while let Some((peer, bytes)) = self.memory.releases.pop_front() {
            self.node.release(peer, bytes);
        }
        while let Some((peer, index, transfer, bytes)) = self.memory.requests.pop_front() {
            let token = self.memory.receives.len() as u64;
            self.memory.receives.push((index, vec![0; bytes as usize]));
            // It may have failed meanwhile.
            let _ = self.node.receive(peer, transfer, bytes, token);
            self.node.release(peer, 0);
        }
        came
    }

    fn is_done(&self) -> bool {
        self.memory.sends.iter().all(Option::is_none)
    }
}

const KEEPS: Keeps = Keeps { bytes_max: 64 << 20, in_place: InPlaceUse::Always, overlaps: true, rendezvous: Rendezvous::Read };

fn ends(timeout: Duration) -> Option<[End; 2]> {
    ends_with(KEEPS, |config| config.peer_timeout_ns = timeout.as_nanos() as u64)
}

fn ends_keeping(keeps: Keeps, timeout: Duration) -> Option<[End; 2]> {
    ends_with(keeps, |config| config.peer_timeout_ns = timeout.as_nanos() as u64)
}

fn ends_with(keeps: Keeps, adjust: impl Fn(&mut Config)) -> Option<[End; 2]> {
    let mut ends = Vec::new();
    let device = std::env::var("WHIMBREL_TEST_DEVICE").ok();
    let filter = |names: &[&str], _: std::net::IpAddr| device.as_deref().is_none_or(|device| names.contains(&device));
    for me in [0, 1] {
        let node = Connections::open(&filter, me, me + 1, &JobKey::new([9; 32]), keeps, &adjust);
        match node {
            Ok(node) => ends.push(End { node, memory: Memory::default(), sent: 0 }),
            Err(why) => {
                skipped("verbs::connections::tests", &format!("no device here: {why}"));
                return None;
            }
        }
    }
    let mut ends: [End; 2] = ends.try_into().ok()?;
    let cards = [ends[0].node.card(), ends[1].node.card()];
    ends[0].node.connect(1, &cards[1]).unwrap();
    ends[1].node.connect(0, &cards[0]).unwrap();
    assert_eq!(ends[0].node.connect(2, "7 1 roce2/0/::ffff:10.0.0.1/17/0/4096"), Err(NoCard), "one that speaks datagrams");
    Some(ends)
}

fn run_until(ends: &mut [End; 2], mut done: impl FnMut(&[End; 2]) -> bool) {
    let start = Instant::now();
    while !done(ends) {
        let came: usize = ends.iter_mut().map(End::step).sum();
        if came == 0 {
            std::thread::yield_now();
        }
        assert!(start.elapsed() < PATIENCE, "no end: {:?} {:?}", ends[0].node, ends[1].node);
    }
}

fn exchange(ends: &mut [End; 2], sizes: &[usize]) {
    let before = [ends[0].memory.whole, ends[1].memory.whole];
    for &bytes in sizes {
        ends[0].send(1, bytes);
        ends[1].send(0, bytes);
    }
    let count = sizes.len() as u64;
    run_until(ends, |ends| ends.iter().zip(before).all(|(end, before)| end.is_done() && end.memory.whole == before + count));
}

/// Both begin at once: messages of all lengths, moved by the device where both lie in one piece, and in frames where one does not.
#[test]
fn messages() {
    for rendezvous in [Rendezvous::Read, Rendezvous::Write, Rendezvous::Pieces] {
        let Some(mut ends) = ends_keeping(Keeps { rendezvous, ..KEEPS }, Duration::from_secs(60)) else { return };
        for plain in [[true, true], [false, true], [true, false], [false, false]] {
            ends.iter_mut().zip(plain).for_each(|(end, plain)| end.memory.plain = plain);
            exchange(&mut ends, &SIZES);
            exchange(&mut ends, &[3 << 20]);
        }
        run_until(&mut ends, |ends| ends.iter().all(|end| end.node.is_quiet()));
        for end in &ends {
            assert_eq!((end.node.footprint().1, end.node.counters.refused), (1, 0), "one connection");
            let (counted, pool_bytes) = (end.node.counters().registrations, end.node.footprint().0 as u64);
            let greets = matches!(end.node.maker, Maker::Greetings(_));
            assert_eq!(counted.queue_pairs, 1 + u64::from(greets), "of the connection, and of greetings where these make it");
            assert_eq!((counted.pool_bytes > pool_bytes, counted.pool_bytes >= pool_bytes), (greets, true));
        }
    }
}

/// Memory that is used again is found registered, and that of frequent short messages is sent from; memory that has changed is registered again.
#[test]
fn registrations_are_kept() {
    let Some(mut ends) = ends(Duration::from_secs(60)) else { return };
    if let Err(why) = memory::monitor::Monitor::get(|run| std::thread::Builder::new().spawn(run).is_ok()) {
        return skipped("memory::monitor, registrations that are kept", &why.to_string());
    }
    ends.iter_mut().for_each(|end| (end.memory.plain, end.memory.again) = (true, true));
    let one_by_one = |ends: &mut [End; 2], bytes: usize, count: usize| {
        let before = ends[0].node.counters().registrations;
        (0..count).for_each(|_| exchange(ends, &[bytes]));
        (before, ends[0].node.counters().registrations)
    };
    let (before, after) = one_by_one(&mut ends, 100_000, 50);
    assert!(after.hits - before.hits >= 50 && after.made - before.made <= 25, "{before:?} {after:?}");
    // All but the first of each buffer.
    let (before, after) = one_by_one(&mut ends, 8192, 50);
    assert!(after.in_place - before.in_place >= 40 && after.in_place_bytes == 8192 * after.in_place, "{before:?} {after:?}");
    ends.iter_mut().for_each(|end| end.memory.mapped = true);
    let (before, after) = one_by_one(&mut ends, 2 << 20, 20);
    // Each has been unmapped when the next one is looked for.
    assert!(after.invalidated - before.invalidated >= 19, "{before:?} {after:?}");
    run_until(&mut ends, |ends| ends.iter().all(|end| end.node.is_quiet()));
}

/// Of a buffer that the program has said that it will use again the first message leaves from there, of others the second.
#[test]
fn buffers_that_are_preferred() {
    let Some(mut ends) = ends(Duration::from_secs(60)) else { return };
    if let Err(why) = memory::monitor::Monitor::get(|run| std::thread::Builder::new().spawn(run).is_ok()) {
        return skipped("memory::monitor, buffers that are preferred", &why.to_string());
    }
    for end in &mut ends {
        (end.memory.plain, end.memory.again) = (true, true);
    }
    let payload = ends[0].memory.payload(0, 4096);
    ends[0].node.prefer(payload.as_ptr(), payload.len());
    ends[0].memory.sends.push(Some(payload));
    ends[0].node.send(1, &0u64.to_le_bytes(), 0, 4096, false).unwrap();
    ends[0].sent = 1;
    ends[1].send(0, 4096);
    let done = |ends: &[End; 2]| ends.iter().all(|end| end.is_done() && end.memory.whole == 1);
    run_until(&mut ends, done);
    let in_place = |ends: &[End; 2]| [0, 1].map(|at| ends[at].node.counters().registrations.in_place);
    assert_eq!(in_place(&ends), [1, 0]);
    exchange(&mut ends, &[4096]);
    assert_eq!(in_place(&ends), [2, 1]);
}

/// Without a cache each transfer has a registration of its own.
#[test]
fn registrations_end_with_their_transfers() {
    let Some(mut ends) = ends_keeping(Keeps { bytes_max: 0, ..KEEPS }, Duration::from_secs(60)) else { return };
    ends.iter_mut().for_each(|end| (end.memory.plain, end.memory.again) = (true, true));
    (0..20).for_each(|_| exchange(&mut ends, &[100_000, 8192]));
    run_until(&mut ends, |ends| ends.iter().all(|end| end.node.is_quiet()));
    // Both sides of each longer message in two pieces.
    let expected = trace::Registrations { made: 80, overlapped: 40, ..Default::default() };
    assert_eq!(ends.map(|end| end.node.registrations.counters()), [expected; 2]);
}

/// Bodies that go in pieces need no memory of the program registered, on either side.
#[test]
fn pieces_register_nothing() {
    let Some(mut ends) = ends_keeping(Keeps { rendezvous: Rendezvous::Pieces, in_place: InPlaceUse::Never, ..KEEPS }, Duration::from_secs(60)) else { return };
    ends.iter_mut().for_each(|end| end.memory.plain = true);
    exchange(&mut ends, &[20_000, 100_000, 3 << 20]);
    assert_eq!(ends.map(|end| end.node.registrations.counters()), [trace::Registrations::default(); 2]);
}

/// Without overlap a body is registered in one piece before it is announced, and the memory of its receive before it is read.
#[test]
fn registrations_come_first() {
    let Some(mut ends) = ends_keeping(Keeps { bytes_max: 0, overlaps: false, ..KEEPS }, Duration::from_secs(60)) else { return };
    ends.iter_mut().for_each(|end| end.memory.plain = true);
    exchange(&mut ends, &[100_000, 3 << 20]);
    run_until(&mut ends, |ends| ends.iter().all(|end| end.node.is_quiet()));
    let expected = trace::Registrations { made: 4, ..Default::default() };
    assert_eq!(ends.map(|end| end.node.registrations.counters()), [expected; 2]);
}

/// Where there is room for some pieces of a body alone, the whole is asked for.
#[test]
fn registrations_that_are_refused_on_the_way() {
    for rendezvous in [Rendezvous::Read, Rendezvous::Write] {
        let Some(mut ends) = ends_keeping(Keeps { bytes_max: 256 << 10, rendezvous, ..KEEPS }, Duration::from_secs(60)) else { return };
        if let Err(why) = memory::monitor::Monitor::get(|run| std::thread::Builder::new().spawn(run).is_ok()) {
            return skipped("memory::monitor, registrations that are refused", &why.to_string());
        }
        ends.iter_mut().for_each(|end| end.memory.plain = true);
        for _ in 0..10 {
            exchange(&mut ends, &[150_000, 250_000, 100_000, 20_000]);
        }
        run_until(&mut ends, |ends| ends.iter().all(|end| end.node.is_quiet()));
        for end in &ends {
            let counted = end.node.counters().registrations;
            assert!(counted.refused > 0 && counted.overlapped > 0, "{counted:?}");
        }
    }
}

/// Peers are asked for signs of life while bodies are read from them and by them.
#[test]
fn signs_of_life_between_reads() {
    let Some(mut ends) = ends_with(KEEPS, |config| config.keepalive_ns = 1_000) else { return };
    ends.iter_mut().for_each(|end| end.memory.plain = true);
    ends[0].node.watch_peer(1, true).unwrap();
    ends[1].node.watch_peer(0, true).unwrap();
    for _ in 0..20 {
        exchange(&mut ends, &[40_000, 8, 100_000, 40_000, 8, 1 << 20, 20_000]);
    }
    assert!(ends.iter().all(|end| end.memory.failed.is_empty()));
}

/// More than there are receives and credits for: all of it comes, and no more than is promised is under way.
#[test]
fn many_messages() {
    let Some(mut ends) = ends(Duration::from_secs(60)) else { return };
    let many: Vec<usize> = (0..3000).map(|at| if at % 7 == 0 { 5000 } else { at % 300 }).collect();
    exchange(&mut ends, &many);
    let most = (allowance::EACH + allowance::SPARE + SEND_SLOTS).next_multiple_of(CHUNK_SLOTS) as usize * SLOT_BYTES;
    for end in &ends {
        assert!(end.node.footprint().0 <= most, "{} bytes", end.node.footprint().0);
        let extra = end.node.peers.values().filter_map(|peer| Some(peer.link.as_ref()?.allowance.extra())).max();
        assert!(extra > Some(0), "a busy peer gets more credits");
    }
}

/// A connection that breaks with messages under way fails the peer on both sides, and every operation with it ends.
#[test]
fn a_connection_that_breaks() {
    for rendezvous in [Rendezvous::Read, Rendezvous::Write, Rendezvous::Pieces] {
        a_connection_breaks(Keeps { rendezvous, ..KEEPS });
    }
}

fn a_connection_breaks(keeps: Keeps) {
    let Some(mut ends) = ends_keeping(keeps, Duration::from_secs(2)) else { return };
    ends.iter_mut().for_each(|end| (end.memory.plain, end.memory.gives_up) = (true, true));
    exchange(&mut ends, &SIZES);
    for bytes in [1 << 20, 100_000, 8, 0, 1 << 20] {
        ends[0].send(1, bytes);
        ends[1].send(0, bytes);
    }
    ends.iter_mut().for_each(|end| _ = end.step());
    let pair = ends[0].node.peers[&1].link.as_ref().unwrap().pair;
    ends[0].node.hub.fail(pair);
    let start = Instant::now();
    run_until(&mut ends, |ends| ends[0].memory.failed == [1] && ends[1].memory.failed == [0]);
    assert!(start.elapsed() < Duration::from_secs(10), "{:?}", start.elapsed());
    assert!(ends.iter().all(End::is_done));
    assert_eq!(ends[0].node.send(1, &[0; 8], 0, 8, false), Err(Refused::Peer));
}

/// A peer that is watched and has gone is missed although nothing is under way, and one that never answered, too.
#[test]
fn a_peer_that_has_gone() {
    let Some([mut one, mut two]) = ends(Duration::from_secs(2)) else { return };
    one.memory.gives_up = true;
    let card = two.node.card();
    one.send(1, 8);
    while two.memory.whole == 0 {
        one.step();
        two.step();
    }
    let missed = |one: &mut End, peer| {
        one.node.watch_peer(peer, true).unwrap();
        let start = Instant::now();
        while one.memory.failed.last() != Some(&peer) {
            one.step();
            std::thread::sleep(Duration::from_millis(1));
            assert!(start.elapsed() < Duration::from_secs(20), "it is not missed");
        }
    };
    drop(two);
    missed(&mut one, 1);
    one.node.connect(3, &card).unwrap();
    missed(&mut one, 3);
}

/// A process that ends while it makes a connection does not wait for that; the other one has not failed, and works on with others.
#[test]
fn an_end_in_the_middle_of_a_call() {
    let Some([mut one, mut two]) = ends(Duration::from_secs(60)) else { return };
    one.memory.gives_up = true;
    one.send(1, 8);
    let turns = |end: &mut End| (0..200).for_each(|_| _ = (end.step(), std::thread::sleep(Duration::from_millis(1))));
    turns(&mut one);
    assert!(one.node.counters.probes_sent > 0);
    drop(one);
    turns(&mut two);
    assert!(two.memory.failed.is_empty() && two.memory.whole == 0);
    drop(two);
    let Some(mut ends) = ends(Duration::from_secs(60)) else { return };
    exchange(&mut ends, &SIZES);
}

/// A peer that has not the job's key gets no connection, and none of its messages; each side gives the other up.
#[test]
fn a_peer_without_the_key() {
    let Some(mut ends) = ends(Duration::from_secs(2)) else { return };
    ends[1].node.set_key(&JobKey::new([8; 32]), Protection::Auth);
    ends.iter_mut().for_each(|end| end.memory.gives_up = true);
    ends[0].send(1, 8);
    ends[1].send(0, 8);
    run_until(&mut ends, |ends| ends[0].memory.failed == [1] && ends[1].memory.failed == [0]);
    assert!(ends.iter().all(|end| end.is_done() && end.memory.whole == 0));
    // Greetings by datagrams that nobody can open are not told from other datagrams.
    let by_requests = matches!(ends[0].node.maker, Maker::Manager(_));
    assert!(ends.iter().any(|end| end.node.counters.refused > 0) == by_requests, "{:?} {:?}", ends[0].node.counters, ends[1].node.counters);
}

/// What comes wakes who sleeps, also just after it has looked.
#[test]
fn sleepers_wake() {
    let Some([mut one, mut two]) = ends(Duration::from_secs(60)) else { return };
    let sleeper = std::thread::spawn(move || {
        let (watch, mut longest) = (one.node.watch().unwrap(), Duration::ZERO);
        while one.memory.whole < 50 {
            let start = Instant::now();
            if one.node.arm() {
                watch.wait(Some(60_000_000_000));
            }
            longest = longest.max(start.elapsed());
            while one.step() > 0 {}
        }
        longest
    });
    for sent in 1..=50 {
        two.send(0, 8);
        while two.memory.sends.len() < sent || !two.is_done() || !two.node.is_quiet() {
            two.step();
            std::thread::yield_now();
        }
    }
    assert!(sleeper.join().unwrap() < Duration::from_secs(60), "nothing woke it");
}
