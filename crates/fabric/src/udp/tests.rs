//! Two nodes over loopback sockets, bare and with a forwarder between that loses, repeats, reorders, delays and damages.

use std::net::{SocketAddr, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::{Duration, Instant};

use super::groups::{Group, Piece};
use super::lines::{LINES, STREAK};
use super::*;
use crate::reliable::tests::{End, PATIENCE, Random, SIZES, exchange, run_until, skipped};
use crate::reliable::{DATAGRAM_BYTES_MAX, Protection};

fn loopback() -> Setup {
    Setup { filter: "127.0.0.1".parse().unwrap(), ..Setup::default() }
}

type Card = crate::reliable::Card<Offer>;

fn open_end(me: u32, setup: &Setup, key: [u8; 32], protection: Protection) -> End<Udp> {
    End::new(me, Udp::open(setup).unwrap(), key, protection, |_| {})
}

fn card(end: &End<Udp>) -> Card {
    end.node.card().parse().unwrap()
}

fn pair(setup: &Setup, protection: Protection) -> [End<Udp>; 2] {
    let mut ends = [0, 1].map(|me| open_end(me, setup, [9; 32], protection));
    let cards = [ends[0].node.card(), ends[1].node.card()];
    ends[0].connect(1, cards[1].clone());
    ends[1].connect(0, cards[0].clone());
    ends
}

#[test]
fn messages_in_every_mode() {
    for protection in [Protection::Auth, Protection::Crc, Protection::Encrypt] {
        let mut ends = pair(&loopback(), protection);
        for _ in 0..5 {
            exchange(&mut ends, &SIZES);
        }
        for end in &ends {
            let counters = end.node.counters();
            assert_eq!((counters.refused, counters.unroutable, counters.received.cut), (0, 0, 0), "{protection:?}");
            assert_eq!(end.node.paths_to(1 - end.node.me()), Some((true, 1)));
        }
    }
}

#[test]
fn a_long_message() {
    let mut ends = pair(&loopback(), Protection::Auth);
    exchange(&mut ends, &[64 << 20]);
}

/// Two processes that look every few milliseconds, as where they share their cores with others: what waits for them is no queue of the network, and
/// what the pace would have let go meanwhile goes at once.
#[test]
fn processes_that_are_often_away() {
    let mut ends = pair(&loopback(), Protection::Auth);
    exchange(&mut ends, &[1 << 20]);
    let before = ends[1].memory.whole;
    ends[0].send(1, 32 << 20);
    let mut turns = 0;
    while !ends.iter().all(End::is_done) || ends[1].memory.whole == before {
        for end in &mut ends {
            std::thread::sleep(Duration::from_millis(2));
            while end.step() > 0 {}
        }
        turns += 1;
        assert!(turns < 250, "32 MiB take more than 250 turns");
    }
}

/// Datagrams as short as an Ethernet's are sealed, joined, opened and placed several at a time.
#[test]
fn short_datagrams() {
    let mut ends = [0, 1].map(|me| open_end(me, &loopback(), [9; 32], Protection::Auth));
    let cards = ends.each_ref().map(|end| {
        let mut card = card(end);
        card.offers.iter_mut().for_each(|offer| offer.mtu_bytes = 1472);
        card
    });
    for (me, end) in ends.iter_mut().enumerate() {
        end.memory.plain = true;
        end.connect(1 - me as u32, cards[1 - me].to_string());
    }
    for _ in 0..5 {
        exchange(&mut ends, &SIZES);
    }
    exchange(&mut ends, &[8 << 20]);
    let before = ends.each_ref().map(|end| end.node.counters());
    for end in &ends {
        let counters = end.node.counters();
        assert_eq!(counters.refused, 0);
        // Half of all datagrams at the least, where this core opens several at a time.
        let several = crate::reliable::lanes::Lanes::new(&[0; 16], &[0; 16]).is_some();
        assert!(!several || 2 * counters.opened_together > counters.received.datagrams, "{counters:?}");
    }
    // The same of messages that go with their headers.
    for _ in 0..20 {
        exchange(&mut ends, &[4096, 16_384]);
    }
    for (end, before) in ends.iter().zip(before) {
        let counters = end.node.counters();
        let (together, all) = (counters.opened_together - before.opened_together, counters.received.datagrams - before.received.datagrams);
        assert!(2 * together > all, "{together} of {all}");
    }
}

/// Datagrams of a message come joined and are opened together: one that has been damaged is refused, the others are
/// not.
#[test]
fn one_of_several_is_damaged() {
    // Some that are taken in as one, behind the first, and such as are only opened together.
    for (bytes, count) in [(5000, 4), (2000, 2), (16_384, 13)] {
        for damaged in 0..count {
            one_is_damaged(bytes, count, damaged, false);
            one_is_damaged(bytes, count, damaged, true);
        }
    }
}

/// A message that has left, and not come.
struct Left {
    ends: [End<Udp>; 2],
    /// Where it has come instead.
    between: UdpSocket,
    /// Where its receiver listens.
    real: SocketAddr,
    datagrams: Vec<u8>,
    each_bytes: usize,
}

/// A message of `bytes` in `count` datagrams. `None` where they differ in length.
fn leaving(bytes: usize, count: usize, plain: bool) -> Option<Left> {
    let between = open("127.0.0.1:0".parse().unwrap());
    let mut ends = [0, 1].map(|me| open_end(me, &loopback(), [9; 32], Protection::Auth));
    let mut known = card(&ends[1]);
    let real = SocketAddr::new(known.offers[0].ip, known.offers[0].ports[0]);
    (known.offers[0].ports, known.offers[0].mtu_bytes) = (vec![between.local_addr().unwrap().port()], 1472);
    (ends[0].memory.plain, ends[1].memory.plain) = (true, plain);
    ends[0].connect(1, known.to_string());
    ends[0].send(1, bytes);
    ends[0].step();
    let (mut sound, mut lengths) = (Vec::new(), Vec::new());
    let start = Instant::now();
    while lengths.len() < count {
        let mut datagram = [0; 2000];
        if let Ok(length) = between.recv(&mut datagram) {
            sound.extend_from_slice(&datagram[..length]);
            lengths.push(length);
        } else {
            // Not all have left where the pace did not let them.
            ends[0].step();
            assert!(start.elapsed() < PATIENCE, "{} of {count} have come", lengths.len());
        }
    }
    let each_bytes = lengths[0];
    (lengths == vec![each_bytes; count]).then_some(Left { ends, between, real, datagrams: sound, each_bytes })
}

/// A message of `bytes` goes in `count` datagrams, of which `damaged` is. Where it belongs lies in one piece or not.
fn one_is_damaged(bytes: usize, count: usize, damaged: usize, plain: bool) {
    // Where the pace has not let all of them leave at once the last one is shorter; beside other tests it may do so many times.
    let start = Instant::now();
    let tries = std::iter::repeat_with(|| leaving(bytes, count, plain)).take_while(|_| start.elapsed() < PATIENCE);
    let left = tries.flatten().next().expect("one that leaves at once");
    let Left { mut ends, between, real, datagrams: sound, each_bytes } = left;
    let group = Group { to: real, pieces: 1, segments: count, segment_bytes: each_bytes, bytes: sound.len(), closed: false, slot: None };
    let give = |bytes: &[u8], ends: &mut [End<Udp>; 2]| {
        let pieces = [Piece::Own { start: 0, bytes: bytes.len() }];
        // SAFETY: there is no foreign piece.
        assert_eq!(unsafe { sys::send(&between, sys::Through::Any, &mut sys::SendSpace::new(), &[group], &pieces, bytes) }, Ok(1));
        let before = ends[1].node.counters().received.datagrams;
        let start = Instant::now();
        while ends[1].node.counters().received.datagrams < before + count as u64 {
            ends[1].step();
            assert!(start.elapsed() < PATIENCE, "not all have come");
        }
        let (counters, replayed) = (ends[1].node.counters(), ends[1].node.endpoint().counters.refused_replayed);
        (counters.refused, replayed, ends[1].memory.whole, counters.opened_together)
    };
    let mut bad = sound.clone();
    bad[damaged * each_bytes + 700] ^= 4;
    let (refused, replayed, whole, _) = give(&bad, &mut ends);
    assert_eq!((refused, replayed, whole), (1, 0, 0), "{damaged} of {count}");
    // None is authentic: what has arrived stays as it is.
    let mut forged = sound.clone();
    forged.chunks_exact_mut(each_bytes).for_each(|datagram| datagram[700..720].fill(0xee));
    let (refused, replayed, whole, _) = give(&forged, &mut ends);
    assert_eq!((refused, replayed, whole), (1 + count as u64, 0, 0), "{damaged} of {count}");
    let (refused, replayed, whole, together) = give(&sound, &mut ends);
    assert_eq!((refused, replayed, whole), (1 + count as u64, count as u64 - 1, 1), "{damaged} of {count}: what was missing has come");
    assert!(together > 0);
}

/// Several sockets and both families of addresses, where the host has the other one.
#[test]
fn rails_and_sockets() {
    let both = if UdpSocket::bind("[::1]:0").is_ok() {
        "lo"
    } else {
        skipped("udp::rails_and_sockets, IPv6", "no IPv6 on this host");
        "127.0.0.1"
    };
    let setup = Setup { filter: both.parse().unwrap(), endpoints: 3, ..Setup::default() };
    let mut ends = pair(&setup, Protection::Auth);
    for _ in 0..10 {
        exchange(&mut ends, &SIZES);
    }
}

/// Two ends of which the first knows the second by two offers: one of `port`, if it is one, and the real one.
fn two_offers(port: Option<u16>) -> [End<Udp>; 2] {
    let mut ends = [0, 1].map(|me| open_end(me, &loopback(), [9; 32], Protection::Auth));
    let mut card = card(&ends[1]);
    let real = card.offers[0].clone();
    let first = Offer { ports: port.map_or(real.ports.clone(), |port| vec![port]), ..real };
    card.offers.insert(0, first);
    ends[0].connect(1, card.to_string());
    ends
}

/// The likeliest pair of addresses leads nowhere: another one is looked for, and found.
#[test]
fn the_likeliest_pair_is_dead() {
    let nobody = UdpSocket::bind("127.0.0.1:0").unwrap();
    let mut ends = two_offers(Some(nobody.local_addr().unwrap().port()));
    ends[0].send(1, 100);
    run_until(&mut ends, |ends| ends[0].is_done() && ends[0].node.paths_to(1) == Some((true, 1)));
    assert_eq!(ends[1].memory.whole, 1);
    assert!(ends[0].node.counters().probes_sent >= 2);
}

/// Short messages cost no datagrams but those that carry them and their acknowledgements; many bytes are worth a search.
#[test]
fn wire_up_is_free() {
    let start = Instant::now();
    let mut ends = two_offers(None);
    ends[0].send(1, 8);
    run_until(&mut ends, |ends| ends[0].is_done());
    assert!(ends[0].node.counters().probes_sent == 0 || start.elapsed() >= Duration::from_millis(3));
    ends[0].send(1, 1 << 20);
    run_until(&mut ends, |ends| ends[0].is_done() && ends[0].node.counters().probes_sent > 0);
}

/// Only one end has the other's card: the other answers where the question came from.
#[test]
fn one_knows_the_other() {
    let mut ends = [0, 1].map(|me| open_end(me, &loopback(), [9; 32], Protection::Auth));
    let card = ends[1].node.card();
    ends[0].connect(1, card);
    for _ in 0..3 {
        ends[0].send(1, 100_000);
        ends[0].send(1, 10);
    }
    run_until(&mut ends, |ends| ends[0].is_done() && ends[1].memory.whole == 6);
    assert_eq!(ends[1].node.paths_to(0), Some((false, 1)));
}

/// What stands between two nodes. Chances in percent.
#[derive(Clone, Copy, Default)]
struct Faults {
    lose: u64,
    repeat: u64,
    hold: u64,
    damage: u64,
    /// Datagrams of its own making for each that comes.
    forge: usize,
}

struct Forwarder {
    ports: [u16; 2],
    stop: Arc<AtomicBool>,
    damaged: Arc<AtomicU32>,
    thread: Option<std::thread::JoinHandle<()>>,
}

/// A socket that gets datagrams one by one.
fn open(at: SocketAddr) -> UdpSocket {
    let socket = sys::socket(at).unwrap();
    sys::bind(&socket, at, 4 << 20, false).unwrap();
    socket
}

impl Forwarder {
    /// `real`: where the two nodes listen. Each is to take [`Forwarder::ports`] of the other's index for the other.
    fn start(real: [SocketAddr; 2], faults: Faults, seed: u64) -> Forwarder {
        let sockets = [(); 2].map(|()| open("127.0.0.1:0".parse().unwrap()));
        let ports = [0, 1].map(|at: usize| sockets[at].local_addr().unwrap().port());
        let (stop, damaged) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU32::new(0)));
        let (stopped, counted) = (stop.clone(), damaged.clone());
        let thread = std::thread::spawn(move || {
            let (mut random, mut buffer) = (Random(seed), vec![0; 1 << 16]);
            let mut held: Vec<(usize, Vec<u8>, Instant)> = Vec::new();
            let mut captured: Vec<Vec<u8>> = Vec::new();
            while !stopped.load(Ordering::Relaxed) {
                let mut idle = true;
                for to in 0..2 {
                    let Ok(bytes) = sockets[to].recv(&mut buffer) else { continue };
                    idle = false;
                    let mut datagram = buffer[..bytes].to_vec();
                    let send = |datagram: &[u8]| sockets[1 - to].send_to(datagram, real[to]).is_ok();
                    if faults.forge > 0 {
                        captured.push(datagram.clone());
                        captured.truncate(100);
                    }
                    for _ in 0..faults.forge {
                        let mut forged = datagram.clone();
                        match random.word() % 5 {
                            0 => forged.truncate(random.word() as usize % (bytes + 1)),
                            1 => forged.iter_mut().take(200).for_each(|byte| *byte = random.word() as u8),
                            2 => forged.extend([0; 9]),
                            3 if captured.len() > 30 => forged.clone_from(&captured[random.word() as usize % 30]),
                            _ => forged[random.word() as usize % bytes] ^= 1 << (random.word() % 8),
                        }
                        send(&forged);
                    }
                    if random.chance(faults.lose) {
                        continue;
                    }
                    if random.chance(faults.damage) {
                        datagram[random.word() as usize % bytes] ^= 1 << (random.word() % 8);
                        counted.fetch_add(1, Ordering::Relaxed);
                    }
                    if random.chance(faults.repeat) {
                        send(&datagram);
                    }
                    if random.chance(faults.hold) {
                        let until = Instant::now() + Duration::from_micros(random.word() % 3000);
                        held.push((to, datagram, until));
                    } else {
                        send(&datagram);
                    }
                }
                held.retain(|(to, datagram, until)| {
                    let due = *until <= Instant::now();
                    if due {
                        let _ = sockets[1 - to].send_to(datagram, real[*to]);
                    }
                    !due
                });
                if idle {
                    std::thread::yield_now();
                }
            }
        });
        Forwarder { ports, stop, damaged, thread: Some(thread) }
    }
}

impl Drop for Forwarder {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// In datagrams as short as an Ethernet's, into memory that lies in one piece, or as the loopback takes them into several.
fn through(faults: Faults, protection: Protection, plain: bool) -> ([End<Udp>; 2], Forwarder) {
    let mut ends = [0, 1].map(|me| open_end(me, &loopback(), [9; 32], protection));
    ends.iter_mut().for_each(|end| end.memory.plain = plain);
    let mut cards = [card(&ends[0]), card(&ends[1])];
    let real = [0, 1].map(|at: usize| SocketAddr::new(cards[at].offers[0].ip, cards[at].offers[0].ports[0]));
    let forwarder = Forwarder::start(real, faults, 1);
    for (card, port) in cards.iter_mut().zip(forwarder.ports) {
        card.offers[0].ports = vec![port];
        card.offers[0].mtu_bytes = if plain { 1472 } else { card.offers[0].mtu_bytes };
    }
    let [first, second] = cards;
    ends[0].connect(1, second.to_string());
    ends[1].connect(0, first.to_string());
    (ends, forwarder)
}

#[test]
fn through_every_fault() {
    let faults = Faults { lose: 3, repeat: 3, hold: 5, damage: 2, forge: 0 };
    for (protection, plain) in [Protection::Auth, Protection::Crc, Protection::Encrypt].into_iter().flat_map(|one| [(one, false), (one, true)]) {
        let (mut ends, forwarder) = through(faults, protection, plain);
        for _ in 0..4 {
            exchange(&mut ends, &SIZES);
        }
        assert!(forwarder.damaged.load(Ordering::Relaxed) > 0);
        let refused: u64 = ends.iter().map(|end| end.node.counters().refused + end.node.endpoint().counters.damaged_in_memory).sum();
        assert!(refused > 0, "{protection:?}: something was damaged, and nothing refused");
    }
}

/// Cut, changed, random and old datagrams by the thousand: nothing that arrives changes, and nothing fails.
#[test]
fn forged_datagrams_change_nothing() {
    for plain in [false, true] {
        let (mut ends, _forwarder) = through(Faults { forge: 5, ..Faults::default() }, Protection::Auth, plain);
        for _ in 0..20 {
            exchange(&mut ends, &SIZES[..9]);
        }
        for end in &ends {
            assert!(end.memory.failed.is_empty());
            assert!(end.node.counters().refused > 100, "{:?}", end.node.counters());
            assert!(end.node.endpoint().counters.refused_replayed > 0);
            assert_eq!(end.node.endpoint().counters.refused_frames, 0);
        }
    }
}

/// A process with the address and not the key is not heard, and nothing is kept of it.
#[test]
fn another_job_is_not_heard() {
    let mut ends = [open_end(0, &loopback(), [9; 32], Protection::Auth), open_end(1, &loopback(), [8; 32], Protection::Auth)];
    let card = ends[0].node.card();
    ends[1].connect(0, card);
    ends[1].send(0, 10);
    run_until(&mut ends, |ends| ends[0].node.counters().refused >= 5);
    assert_eq!(ends[0].memory.whole, 0);
    assert_eq!(ends[0].node.paths_to(1), None);
    assert_eq!(ends[0].node.endpoint().counters.packets_arrived, 0);
}

/// A sleeper wakes for a datagram, for the doorbell, and for what is due.
#[test]
fn wakes() {
    let mut ends = pair(&loopback(), Protection::Auth);
    exchange(&mut ends, &[8]);
    let [mut one, mut two] = ends;
    let doorbell = one.node.doorbell();
    let watch = one.node.watch().unwrap();
    let watch_doorbell = watch.doorbell();
    let sleeper = std::thread::spawn(move || {
        // Also until it has acknowledged what it has.
        while one.memory.whole < 2 || one.node.deadline_ns().is_some() {
            one.node.wait(None);
            one.step();
        }
        one
    });
    two.send(0, 8);
    while !two.is_done() || two.node.deadline_ns().is_some() {
        two.step();
    }
    let mut one = sleeper.join().unwrap();
    let sleeper = std::thread::spawn(move || one.node.wait(None));
    while !sleeper.is_finished() {
        doorbell.ring();
        std::thread::sleep(Duration::from_millis(1));
    }
    sleeper.join().unwrap();
    watch_doorbell.ring();
    assert!(watch.wait(None));
    assert!(!watch.wait(Some(1_000_000)));
}

/// A socket that is full keeps what it has, without the program's memory.
#[test]
fn full_sockets() {
    let at: SocketAddr = "127.0.0.1:0".parse().unwrap();
    let [to, mut from] = [(); 2].map(|()| Sockets::open(at, 4 << 20).unwrap());
    let (to_address, mut outbox) = (to.own().local_addr().unwrap(), Outbox::new(DATAGRAM_BYTES_MAX));
    let mut payload = vec![1u8; 3000];
    const COUNT: usize = 100;
    // SAFETY: the payload outlives the outbox.
    let mut push = |outbox: &mut Outbox, payload: &[u8], number: u8| unsafe {
        outbox.push(&mut from, to_address, &[number; 48], [&payload[..1000], &payload[1000..]].into_iter())
    };
    (0..COUNT).for_each(|number| assert!(push(&mut outbox, &payload, number as u8)));
    // The loopback is never full, so that this has to be said.
    outbox.park(0, 0);
    assert!(outbox.is_parked());
    payload.fill(2);
    assert!(outbox.flush(&mut from) && !outbox.is_parked() && outbox.is_empty());
    let (mut pool, mut came) = (Pool::new(), 0);
    while came < COUNT {
        for index in 0..pool.receive(to.own(), BATCH_MAX).unwrap() {
            let (arrival, bytes) = pool.arrival(index).unwrap();
            for datagram in bytes.chunks(arrival.segment_bytes) {
                assert_eq!((datagram.len(), datagram[0], datagram[48], datagram[3047]), (3048, came as u8, 1, 1));
                came += 1;
            }
        }
    }
    assert!(outbox.counters.calls < COUNT as u64 / 4, "joined: {:?}", outbox.counters);
}

/// Datagrams that are longer than the link takes join no others, and leave in their turn.
#[test]
fn long_datagrams_leave_by_themselves() {
    let at: SocketAddr = "127.0.0.1:0".parse().unwrap();
    let [to, mut from] = [(); 2].map(|()| Sockets::open(at, 4 << 20).unwrap());
    let (to_address, mut outbox) = (to.own().local_addr().unwrap(), Outbox::new(1000));
    let lengths = [500, 500, 2000, 2000, 1000, 1000, 300, 4000];
    for (number, &bytes) in lengths.iter().enumerate() {
        assert!(outbox.push_copied(&mut from, to_address, bytes, |own| own.extend(std::iter::repeat_n(number as u8, bytes))));
    }
    let run = |out: &mut [MaybeUninit<u8>], _: Stores| {
        assert_eq!(out.len(), 1500, "one at a time");
        out.fill(MaybeUninit::new(8));
    };
    // SAFETY: all is filled.
    assert_eq!(unsafe { outbox.push_run(&mut from, to_address, Batch { stamp: STAMP, each_bytes: 1500, count: 2, stores: Stores::Ordinary }, run) }, 2);
    assert!(outbox.flush(&mut from) && outbox.is_empty());
    let (mut pool, mut came) = (Pool::new(), Vec::new());
    while came.len() < lengths.len() + 2 {
        for index in 0..pool.receive(to.own(), BATCH_MAX).unwrap() {
            let (arrival, bytes) = pool.arrival(index).unwrap();
            came.extend(bytes.chunks(arrival.segment_bytes).map(|datagram| (datagram.len(), datagram[0])));
        }
    }
    let expected = lengths.iter().copied().zip(0..).chain([(1500, 8), (1500, 8)]);
    assert_eq!(came, expected.collect::<Vec<_>>());
    assert_eq!(outbox.counters.dropped, 0);
}

const STAMP: Stamp = Stamp { peer: 1, rail: 0, sent_us: 7 };

/// Runs leave from the memory they are made in: it is not used again before it is said that they have passed, and each arrives as it was made. What
/// finds no memory is copied, and what leaves through the same socket in between is not cut.
#[test]
fn runs_leave_from_where_they_are_made() {
    if !sys::splices_datagrams().unwrap_or(false) {
        return skipped("udp::runs_leave_from_where_they_are_made", "this kernel does not splice datagrams");
    }
    const EACH: usize = 1000;
    const STORES: [Stores; 2] = [Stores::Ordinary, Stores::Streaming];
    let at: SocketAddr = "127.0.0.1:0".parse().unwrap();
    let [to, mut from] = [(); 2].map(|()| Sockets::open(at, 8 << 20).unwrap());
    let (to_address, mut outbox) = (to.own().local_addr().unwrap(), Outbox::new(DATAGRAM_BYTES_MAX));
    let (mut pool, mut number, mut next) = (Pool::new(), 0u32, 0u32);
    for round in 0..100 {
        // Datagrams lie in the receiver's socket until the round ends, in which none has passed.
        let first = outbox.counters.spliced;
        for run in 0..4 {
            let mut write = |out: &mut [MaybeUninit<u8>], _: Stores| {
                for datagram in out.chunks_exact_mut(EACH) {
                    datagram.fill(MaybeUninit::new(number as u8));
                    number += 1;
                }
            };
            // The second half is made later, behind the first one.
            for sent_us in [2 * round, 2 * round + 1] {
                let batch = Batch { stamp: Stamp { sent_us, ..STAMP }, each_bytes: EACH, count: 20, stores: STORES[round as usize / 25 % 2] };
                // SAFETY: all is filled.
                assert_eq!(unsafe { outbox.push_run(&mut from, to_address, batch, &mut write) }, 20);
            }
            if run == 1 {
                assert!(outbox.push_copied(&mut from, to_address, 1400, |own| own.extend([number as u8; 1400])));
                number += 1;
            }
            assert!(outbox.flush(&mut from));
        }
        let spliced = outbox.counters.spliced > first;
        assert!(!spliced || outbox.slots.lends());
        while next < number {
            for index in 0..pool.receive(to.own(), BATCH_MAX).unwrap() {
                let (arrival, bytes) = pool.arrival(index).unwrap();
                for datagram in bytes.chunks(arrival.segment_bytes) {
                    let alone = next % 161 == 80;
                    assert!(datagram.iter().all(|&byte| byte == next as u8), "round {round}, datagram {next}");
                    assert_eq!(datagram.len(), if alone { 1400 } else { EACH });
                    next += 1;
                }
            }
        }
        outbox.slots.reclaim(|stamp| stamp.sent_us <= 2 * round);
        assert!(!spliced || outbox.slots.lends(), "those of this round have not passed");
        outbox.slots.reclaim(|_| true);
        assert!(!outbox.slots.lends());
    }
    assert!(outbox.counters.spliced > 0 && outbox.counters.dropped == 0, "{:?}", outbox.counters);
}

/// What is left of a run when a group is full is filled up by the next one.
#[test]
fn runs_fill_groups() {
    if !sys::splices_datagrams().unwrap_or(false) {
        return skipped("udp::runs_fill_groups", "this kernel does not splice datagrams");
    }
    const EACH: usize = 1472;
    let at: SocketAddr = "127.0.0.1:0".parse().unwrap();
    let [to, mut from] = [(); 2].map(|()| Sockets::open(at, 8 << 20).unwrap());
    let (to_address, mut outbox) = (to.own().local_addr().unwrap(), Outbox::new(DATAGRAM_BYTES_MAX));
    let (whole, count) = (proto::reliability::wire::run_datagrams(EACH), 3 + proto::reliability::wire::run_datagrams(EACH));
    for _ in 0..8 {
        let write = |out: &mut [MaybeUninit<u8>], _: Stores| out.fill(MaybeUninit::new(7));
        let batch = Batch { stamp: STAMP, each_bytes: EACH, count, stores: Stores::Ordinary };
        // SAFETY: all is filled.
        assert_eq!(unsafe { outbox.push_run(&mut from, to_address, batch, write) }, count);
    }
    assert!(outbox.flush(&mut from));
    assert_eq!((outbox.counters.datagrams, outbox.counters.calls), (8 * count as u64, (8 * count).div_ceil(whole) as u64));
}

/// Datagrams that wait to leave when their send ends leave as they were: here to a peer that is given up.
#[test]
fn a_send_ends_after_its_datagrams_have_left() {
    let mut ends = pair(&loopback(), Protection::Auth);
    exchange(&mut ends, &[8]);
    let [one, _] = &mut ends;
    (one.memory.plain, one.memory.gives_up) = (true, true);
    one.send(1, 16_000);
    let now_ns = one.node.now_ns();
    one.node.abandon(now_ns, &[1], &mut one.memory);
    assert!(one.is_done(), "its memory is overwritten now");
    one.step();
    run_until(&mut ends[1..], |ends| ends[0].memory.whole == 2 || ends[0].node.counters().refused > 0);
    assert_eq!((ends[1].memory.whole, ends[1].node.counters().refused), (2, 0));
}

/// Who is talked to alone gets a line, and so does the next; nobody else can have the port, and everything is heard.
#[test]
fn lines_to_those_that_are_talked_to() {
    let at: SocketAddr = "127.0.0.1:0".parse().unwrap();
    let mut sockets = Sockets::open(at, 1 << 20).unwrap();
    let here = sockets.own().local_addr().unwrap();
    let peers: Vec<UdpSocket> = (0..LINES + 2).map(|_| open(at)).collect();
    let mut outbox = Outbox::new(DATAGRAM_BYTES_MAX);
    let mut send = |sockets: &mut Sockets, to: usize, count: u32| {
        for _ in 0..count {
            let address = peers[to].local_addr().unwrap();
            // One datagram, or two that leave together.
            let together = 1 + to % 2;
            (0..together).for_each(|_| assert!(outbox.push_copied(sockets, address, 8, |out| out.extend_from_slice(&[to as u8; 8]))));
            assert!(outbox.flush(sockets));
            for _ in 0..together {
                let (mut bytes, mut from) = ([0; 9], None);
                while from.is_none() {
                    from = peers[to].recv_from(&mut bytes).ok();
                }
                assert_eq!((from, bytes[0]), (Some((8, here)), to as u8), "peers see one address");
            }
        }
    };
    let mut pool = Pool::new();
    // Through which sockets something of each peer comes.
    let mut heard = |sockets: &Sockets| {
        let mut through = Vec::new();
        for peer in &peers {
            assert_eq!(peer.send_to(&[9; 8], here).unwrap(), 8);
            let mut arrived = |at: &usize| sockets.heard(*at).is_some_and(|socket| pool.receive(socket, 1) == Ok(1));
            through.push(loop {
                if let Some(at) = (0..SOCKETS_EACH).find(&mut arrived) {
                    break at;
                }
            });
        }
        through
    };
    for _ in 0..3 {
        (0..peers.len()).for_each(|to| send(&mut sockets, to, STREAK - 1));
    }
    assert_eq!(heard(&sockets), [0; 4], "to each in turn");
    send(&mut sockets, 0, STREAK);
    assert_eq!(heard(&sockets), [1, 0, 0, 0]);
    send(&mut sockets, 1, 1);
    send(&mut sockets, 0, 1);
    send(&mut sockets, 2, STREAK);
    assert_eq!(heard(&sockets), [1, 0, 2, 0]);
    send(&mut sockets, 0, 1);
    send(&mut sockets, 3, STREAK);
    assert_eq!(heard(&sockets), [1, 0, 0, 2], "the one that was used last stays");
    assert!(UdpSocket::bind(here).is_err());
    let other = sys::socket(at).unwrap();
    sys::share_port(&other, true).unwrap();
    assert!(sys::bind(&other, here, 1 << 20, true).is_err(), "not even who would share it");
}

/// A peer that is not there any more makes a line fail; datagrams to others, and to whoever takes its place, arrive.
#[test]
fn lines_to_nobody() {
    let at: SocketAddr = "127.0.0.1:0".parse().unwrap();
    let (mut sockets, mut outbox) = (Sockets::open(at, 1 << 20).unwrap(), Outbox::new(DATAGRAM_BYTES_MAX));
    let (first, other) = (open(at), open(at));
    let there = first.local_addr().unwrap();
    let mut send = |to: SocketAddr| assert!(outbox.push_copied(&mut sockets, to, 8, |out| out.extend_from_slice(&[7; 8])) && outbox.flush(&mut sockets));
    (0..STREAK).for_each(|_| send(there));
    drop(first);
    (0..3).for_each(|_| send(there));
    send(other.local_addr().unwrap());
    let second = open(there);
    // The last refusal is told of with this one.
    send(there);
    for socket in [second, other] {
        let mut bytes = [0; 9];
        while socket.recv(&mut bytes).is_err() {
            std::thread::yield_now();
        }
    }
    assert_eq!((outbox.counters.datagrams, outbox.counters.dropped), (STREAK as u64 + 5, 0));
}
