//! Two nodes over loopback sockets, bare and with a forwarder between that loses, repeats, reorders, delays and damages.

use std::collections::{HashMap, VecDeque};
use std::net::{SocketAddr, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::{Duration, Instant};

use proto::reliability::{Delivery, Failure, PeerId, Slice};

use super::lines::{LINES, STREAK};
use super::*;

/// Splitmix64.
struct Random(u64);

impl Random {
    fn word(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn chance(&mut self, percent: u64) -> bool {
        self.word() % 100 < percent
    }
}

fn pattern(index: u64, bytes: usize) -> Vec<u8> {
    let mut random = Random(index);
    let mut out: Vec<u8> = (0..bytes.div_ceil(8)).flat_map(|_| random.word().to_le_bytes()).collect();
    out.truncate(bytes);
    out
}

/// Counts what arrives; message `i` of length `n` must be `pattern(i, n)`.
#[derive(Default)]
struct Memory {
    cards: HashMap<PeerId, Card>,
    sends: Vec<Option<Vec<u8>>>,
    receives: Vec<(u64, Vec<u8>)>,
    requests: VecDeque<(PeerId, u64, u32, u64)>,
    releases: VecDeque<(PeerId, u64)>,
    seen: u64,
    whole: u64,
    failed: Vec<PeerId>,
    /// Sends lie in one piece.
    plain: bool,
}

// SAFETY: sends keep their memory until they complete.
unsafe impl Program for Memory {
    fn gather(&self, slice: &Slice, out: &mut Sink) {
        let payload = self.sends[slice.send as usize].as_deref().expect("a send under way");
        let piece = &payload[slice.offset_bytes as usize..][..slice.length_bytes as usize];
        // In several pieces, as a datatype would give them.
        for part in piece.chunks(if self.plain { piece.len().max(1) } else { (piece.len() / 3).max(1) }) {
            // SAFETY: kept until the send is complete.
            unsafe { out.push(part.as_ptr(), part.len()) };
        }
    }
    fn place(&mut self, receive: u64, offset_bytes: u64, payload: &[u8], check: &dyn Fn(&[u8]) -> bool) -> bool {
        let to = &mut self.receives[receive as usize].1[offset_bytes as usize..][..payload.len()];
        to.copy_from_slice(payload);
        check(to)
    }
    fn deliver(&mut self, peer: PeerId, delivery: Delivery) {
        let index = |envelope: &[u8]| u64::from_le_bytes(envelope.try_into().unwrap());
        match delivery {
            Delivery::Eager { envelope, payload } => {
                assert_eq!(index(envelope), self.seen);
                assert!(payload == pattern(self.seen, payload.len()));
                self.whole += 1;
                self.releases.push_back((peer, payload.len() as u64));
            }
            Delivery::Request { envelope, transfer, bytes } => {
                assert_eq!(index(envelope), self.seen);
                self.requests.push_back((peer, self.seen, transfer, bytes));
            }
            _ => unreachable!("nobody offers"),
        }
        self.seen += 1;
    }
    fn complete(&mut self, send: u64, result: Result<(), Failure>) {
        assert!(result.is_ok());
        self.sends[send as usize] = None;
    }
    fn received(&mut self, receive: u64, result: Result<(), Failure>) {
        if result.is_ok() {
            let (index, bytes) = std::mem::take(&mut self.receives[receive as usize]);
            assert!(bytes == pattern(index, bytes.len()), "message {index}");
            self.whole += 1;
        }
    }
    fn peer_failed(&mut self, peer: PeerId, _in_use: &[u64]) {
        self.failed.push(peer);
    }
    fn card(&mut self, peer: PeerId) -> Option<Card> {
        self.cards.get(&peer).cloned()
    }
}

struct End {
    node: Node,
    memory: Memory,
    sent: u64,
}

impl End {
    fn new(me: PeerId, setup: &Setup, key: [u8; 32], protection: Protection) -> End {
        let node = Node::open(setup, me, me + 1, &JobKey::new(key), protection, |config| {
            config.peer_timeout_ns = 60_000_000_000;
        });
        End { node: node.unwrap(), memory: Memory::default(), sent: 0 }
    }

    fn connect(&mut self, peer: PeerId, card: Card) {
        self.node.connect(peer, &card);
        self.memory.cards.insert(peer, card);
    }

    fn send(&mut self, peer: PeerId, bytes: usize) {
        let token = self.memory.sends.len() as u64;
        self.memory.sends.push(Some(pattern(self.sent, bytes)));
        let (now_ns, requests) = self.node.requests();
        requests.send(now_ns, peer, &self.sent.to_le_bytes(), token, bytes as u64, false).unwrap();
        self.sent += 1;
    }

    fn step(&mut self) -> usize {
        let came = self.node.poll(&mut self.memory);
        while let Some((peer, bytes)) = self.memory.releases.pop_front() {
            let (now_ns, requests) = self.node.requests();
            requests.release(now_ns, peer, bytes);
        }
        while let Some((peer, index, transfer, bytes)) = self.memory.requests.pop_front() {
            let token = self.memory.receives.len() as u64;
            self.memory.receives.push((index, vec![0; bytes as usize]));
            let (now_ns, requests) = self.node.requests();
            requests.receive(now_ns, peer, transfer, bytes, token).unwrap();
            requests.release(now_ns, peer, 0);
        }
        came
    }

    fn is_done(&self) -> bool {
        self.memory.sends.iter().all(Option::is_none)
    }
}

fn loopback() -> Setup {
    Setup { filter: "127.0.0.1".parse().unwrap(), ..Setup::default() }
}

/// Limits a run that would never end.
const PATIENCE: Duration = Duration::from_secs(120);

fn run_until(ends: &mut [End], mut done: impl FnMut(&[End]) -> bool) {
    let start = Instant::now();
    while !done(ends) {
        let came: usize = ends.iter_mut().map(End::step).sum();
        if came == 0 {
            std::thread::yield_now();
        }
        let state = || ends.iter().map(|end| format!("{:?} {:?}\n", end.node.counters(), end.node.endpoint().counters));
        assert!(start.elapsed() < PATIENCE, "no end:\n{}", state().collect::<String>());
    }
}

const SIZES: [usize; 14] = [0, 1, 8, 100, 1400, 1500, 9000, 16384, 16385, 65536, 100_000, 1 << 20, 3, 17];

/// Reports a part of a test that this machine cannot run to tests/run, which counts it.
pub fn skipped(part: &str, reason: &str) {
    if let Some(path) = std::env::var_os("WHIMBREL_TEST_SKIPS") {
        let mut file = std::fs::OpenOptions::new().append(true).open(path).unwrap();
        std::io::Write::write_all(&mut file, format!("skip  {part}: {reason}\n").as_bytes()).unwrap();
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

fn pair(setup: &Setup, protection: Protection) -> [End; 2] {
    let mut ends = [0, 1].map(|me| End::new(me, setup, [9; 32], protection));
    let cards = [ends[0].node.card(), ends[1].node.card()];
    // By way of the text that the key-value store has.
    ends[0].connect(1, cards[1].to_string().parse().unwrap());
    ends[1].connect(0, cards[0].to_string().parse().unwrap());
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
            assert_eq!(end.node.ways(1 - end.node.me()), Some((true, 1)));
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
    let mut ends = [0, 1].map(|me| End::new(me, &loopback(), [9; 32], Protection::Auth));
    let cards = ends.each_ref().map(|end| {
        let mut card = end.node.card();
        card.offers.iter_mut().for_each(|offer| offer.mtu_bytes = 1472);
        card
    });
    for (me, end) in ends.iter_mut().enumerate() {
        end.memory.plain = true;
        end.connect(1 - me as u32, cards[1 - me].clone());
    }
    for _ in 0..5 {
        exchange(&mut ends, &SIZES);
    }
    exchange(&mut ends, &[8 << 20]);
    for end in &ends {
        let counters = end.node.counters();
        assert_eq!(counters.refused, 0);
        // Half of all datagrams at the least, where this core opens several at a time.
        let several = lanes::Lanes::new(&[0; 16], &[0; 16]).is_some();
        assert!(!several || 2 * counters.opened_together > counters.received.datagrams, "{counters:?}");
    }
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
fn two_offers(port: Option<u16>) -> [End; 2] {
    let mut ends = [0, 1].map(|me| End::new(me, &loopback(), [9; 32], Protection::Auth));
    let mut card = ends[1].node.card();
    let real = card.offers[0].clone();
    let first = Offer { ports: port.map_or(real.ports.clone(), |port| vec![port]), ..real };
    card.offers.insert(0, first);
    ends[0].connect(1, card);
    ends
}

/// The likeliest pair of addresses leads nowhere: another one is looked for, and found.
#[test]
fn the_likeliest_pair_is_dead() {
    let nobody = UdpSocket::bind("127.0.0.1:0").unwrap();
    let mut ends = two_offers(Some(nobody.local_addr().unwrap().port()));
    ends[0].send(1, 100);
    run_until(&mut ends, |ends| ends[0].is_done() && ends[0].node.ways(1) == Some((true, 1)));
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
    let mut ends = [0, 1].map(|me| End::new(me, &loopback(), [9; 32], Protection::Auth));
    let card = ends[1].node.card();
    ends[0].connect(1, card);
    for _ in 0..3 {
        ends[0].send(1, 100_000);
        ends[0].send(1, 10);
    }
    run_until(&mut ends, |ends| ends[0].is_done() && ends[1].memory.whole == 6);
    assert_eq!(ends[1].node.ways(0), Some((false, 1)));
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
            let mut kept: Vec<Vec<u8>> = Vec::new();
            while !stopped.load(Ordering::Relaxed) {
                let mut idle = true;
                for to in 0..2 {
                    let Ok(bytes) = sockets[to].recv(&mut buffer) else { continue };
                    idle = false;
                    let mut datagram = buffer[..bytes].to_vec();
                    let send = |datagram: &[u8]| sockets[1 - to].send_to(datagram, real[to]).is_ok();
                    if faults.forge > 0 {
                        kept.push(datagram.clone());
                        kept.truncate(100);
                    }
                    for _ in 0..faults.forge {
                        let mut forged = datagram.clone();
                        match random.word() % 5 {
                            0 => forged.truncate(random.word() as usize % (bytes + 1)),
                            1 => forged.iter_mut().take(200).for_each(|byte| *byte = random.word() as u8),
                            2 => forged.extend([0; 9]),
                            3 if kept.len() > 30 => forged.clone_from(&kept[random.word() as usize % 30]),
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

fn through(faults: Faults, protection: Protection) -> ([End; 2], Forwarder) {
    let mut ends = [0, 1].map(|me| End::new(me, &loopback(), [9; 32], protection));
    let mut cards = [ends[0].node.card(), ends[1].node.card()];
    let real = [0, 1].map(|at: usize| SocketAddr::new(cards[at].offers[0].ip, cards[at].offers[0].ports[0]));
    let forwarder = Forwarder::start(real, faults, 1);
    for (card, port) in cards.iter_mut().zip(forwarder.ports) {
        card.offers[0].ports = vec![port];
    }
    let [first, second] = cards;
    ends[0].connect(1, second);
    ends[1].connect(0, first);
    (ends, forwarder)
}

#[test]
fn through_every_fault() {
    let faults = Faults { lose: 3, repeat: 3, hold: 5, damage: 2, forge: 0 };
    for protection in [Protection::Auth, Protection::Crc, Protection::Encrypt] {
        let (mut ends, forwarder) = through(faults, protection);
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
    let (mut ends, _forwarder) = through(Faults { forge: 5, ..Faults::default() }, Protection::Auth);
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

/// A process with the address and not the key is not heard, and nothing is kept of it.
#[test]
fn another_job_is_not_heard() {
    let mut ends = [End::new(0, &loopback(), [9; 32], Protection::Auth), End::new(1, &loopback(), [8; 32], Protection::Auth)];
    let card = ends[0].node.card();
    ends[1].connect(0, card);
    ends[1].send(0, 10);
    run_until(&mut ends, |ends| ends[0].node.counters().refused >= 5);
    assert_eq!(ends[0].memory.whole, 0);
    assert_eq!(ends[0].node.ways(1), None);
    assert_eq!(ends[0].node.endpoint().counters.packets_arrived, 0);
}

/// A sleeper wakes for a datagram, for the bell, and for what is due.
#[test]
fn wakes() {
    let mut ends = pair(&loopback(), Protection::Auth);
    exchange(&mut ends, &[8]);
    let [mut one, mut two] = ends;
    let bell = one.node.bell();
    let watch = one.node.watch().unwrap();
    let watch_bell = watch.bell();
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
        bell.ring();
        std::thread::sleep(Duration::from_millis(1));
    }
    sleeper.join().unwrap();
    watch_bell.ring();
    assert!(watch.wait(None));
    assert!(!watch.wait(Some(1_000_000)));
}

/// A socket that is full keeps what it has, without the program's memory.
#[test]
fn full_sockets() {
    let at: SocketAddr = "127.0.0.1:0".parse().unwrap();
    let [to, mut from] = [(); 2].map(|()| Sockets::open(at, 4 << 20).unwrap());
    let (to_address, mut outbox) = (to.own().local_addr().unwrap(), Outbox::new());
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

/// Who is talked to alone gets a line, and so does the next; nobody else can have the port, and everything is heard.
#[test]
fn lines_to_those_that_are_talked_to() {
    let at: SocketAddr = "127.0.0.1:0".parse().unwrap();
    let mut sockets = Sockets::open(at, 1 << 20).unwrap();
    let here = sockets.own().local_addr().unwrap();
    let peers: Vec<UdpSocket> = (0..LINES + 2).map(|_| open(at)).collect();
    let mut outbox = Outbox::new();
    let mut send = |sockets: &mut Sockets, to: usize, count: u32| {
        for _ in 0..count {
            let address = peers[to].local_addr().unwrap();
            assert!(outbox.push_copied(sockets, address, 8, |out| out.extend_from_slice(&[to as u8; 8])) && outbox.flush(sockets));
            let (mut bytes, mut from) = ([0; 9], None);
            while from.is_none() {
                from = peers[to].recv_from(&mut bytes).ok();
            }
            assert_eq!((from, bytes[0]), (Some((8, here)), to as u8), "peers see one address");
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
    let (mut sockets, mut outbox) = (Sockets::open(at, 1 << 20).unwrap(), Outbox::new());
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
