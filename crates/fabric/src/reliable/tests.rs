//! What tests of devices share, and a device that completes late, in a simulated wire.

use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::mem::MaybeUninit;
use std::ops::{Deref, DerefMut};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::ptr::NonNull;
use std::str::FromStr;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use proto::reliability::{Begun, Config, Delivery, Failure, PeerId, RailConfig, Sent, Slice, Taken};

use super::*;
use crate::udp::{Setup, Udp};

/// Longer payloads are given back when their send ends.
const SPENT_BYTES_MAX: usize = 1 << 20;

/// Splitmix64.
pub struct Random(pub u64);

impl Random {
    pub fn word(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    pub fn chance(&mut self, percent: u64) -> bool {
        self.word() % 100 < percent
    }
}

pub fn pattern(index: u64, bytes: usize) -> Vec<u8> {
    let mut random = Random(index);
    let mut out: Vec<u8> = (0..bytes.div_ceil(8)).flat_map(|_| random.word().to_le_bytes()).collect();
    out.truncate(bytes);
    out
}

/// Memory that is mapped for itself, and unmapped when it is dropped, whatever the allocator does with other memory.
pub struct Mapped {
    start: NonNull<u8>,
    bytes: usize,
}

// SAFETY: memory that nobody else has.
unsafe impl Send for Mapped {}

impl Mapped {
    fn of(content: &[u8]) -> Mapped {
        let (access, kind) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
        // SAFETY: a new mapping.
        let start = unsafe { libc::mmap(std::ptr::null_mut(), content.len(), access, kind, -1, 0) };
        assert_ne!(start, libc::MAP_FAILED, "{}", std::io::Error::last_os_error());
        let mut mapped = Mapped { start: NonNull::new(start.cast()).expect("an address"), bytes: content.len() };
        mapped.copy_from_slice(content);
        mapped
    }
}

impl Deref for Mapped {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // SAFETY: its own mapping.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.bytes) }
    }
}

impl DerefMut for Mapped {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: its own mapping, borrowed as long as the bytes are.
        unsafe { std::slice::from_raw_parts_mut(self.start.as_ptr(), self.bytes) }
    }
}

impl Drop for Mapped {
    fn drop(&mut self) {
        // SAFETY: its own mapping, in which nothing lives.
        unsafe { libc::munmap(self.start.as_ptr().cast(), self.bytes) };
    }
}

/// What a message is sent from.
pub enum Payload {
    Allocated(Vec<u8>),
    Mapped(Mapped),
}

impl Deref for Payload {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match self {
            Payload::Allocated(bytes) => bytes,
            Payload::Mapped(bytes) => bytes,
        }
    }
}

impl DerefMut for Payload {
    fn deref_mut(&mut self) -> &mut [u8] {
        match self {
            Payload::Allocated(bytes) => bytes,
            Payload::Mapped(bytes) => bytes,
        }
    }
}

/// Counts what arrives; message `i` of length `n` must be `pattern(i, n)`.
#[derive(Default)]
pub struct Memory {
    pub cards: HashMap<PeerId, String>,
    pub sends: Vec<Option<Payload>>,
    pub receives: Vec<(u64, Vec<u8>)>,
    pub requests: VecDeque<(PeerId, u64, u32, u64)>,
    pub releases: VecDeque<(PeerId, u64)>,
    seen: u64,
    pub whole: u64,
    pub failed: Vec<PeerId>,
    /// Sends that have not ended, since datagrams read their payloads.
    pub in_use: Vec<u64>,
    /// Payloads of sends that have ended, overwritten: nobody may read them any more.
    spent: Vec<Payload>,
    /// Peers may be given up.
    pub gives_up: bool,
    /// Sends say that their memory does not last.
    pub passing: bool,
    /// Sends lie in one piece.
    pub plain: bool,
    /// Payloads are sent from where earlier ones of their length were.
    pub again: bool,
    /// Each payload is mapped for itself.
    pub mapped: bool,
}

impl Memory {
    /// What message `index` of `bytes` is to be sent from.
    pub fn payload(&mut self, index: u64, bytes: usize) -> Payload {
        let earlier = self.spent.iter().position(|spent| self.again && spent.len() == bytes);
        match earlier.map(|at| self.spent.swap_remove(at)) {
            Some(mut payload) => {
                payload.copy_from_slice(&pattern(index, bytes));
                payload
            }
            None if self.mapped => Payload::Mapped(Mapped::of(&pattern(index, bytes))),
            None => Payload::Allocated(pattern(index, bytes)),
        }
    }
}

// SAFETY: sends keep their memory until they complete.
unsafe impl Program for Memory {
    fn gather(&self, slice: &Slice, out: &mut Sink) {
        let payload = self.sends[slice.send as usize].as_deref().expect("a send under way");
        let piece = &payload[slice.offset_bytes as usize..][..slice.length_bytes as usize];
        // In several pieces, as a datatype would give them.
        for part in piece.chunks(if self.plain { piece.len().max(1) } else { (piece.len() / 3).max(1) }) {
            // SAFETY: kept until the send is complete.
            unsafe { if self.passing { out.push_passing(part.as_ptr(), part.len()) } else { out.push(part.as_ptr(), part.len()) } };
        }
    }
    fn place(&mut self, receive: u64, offset_bytes: u64, payload: &[u8], check: &dyn Fn(&[u8]) -> bool) -> bool {
        let to = &mut self.receives[receive as usize].1[offset_bytes as usize..][..payload.len()];
        to.copy_from_slice(payload);
        check(to)
    }
    fn begin(&mut self, _: PeerId, envelope: &[u8], bytes: u64) -> Option<Begun> {
        let index = u64::from_le_bytes(envelope.try_into().unwrap());
        // Some have a receive by then.
        index.is_multiple_of(2).then(|| {
            self.receives.push((index, vec![0; bytes as usize]));
            Begun { receive: self.receives.len() as u64 - 1, room_bytes: bytes }
        })
    }
    fn deliver(&mut self, peer: PeerId, delivery: Delivery) {
        let index = |envelope: &[u8]| u64::from_le_bytes(envelope.try_into().unwrap());
        match delivery {
            Delivery::Placed { envelope, receive, bytes } => {
                assert_eq!(index(envelope), self.seen);
                self.received(receive, Ok(()));
                self.releases.push_back((peer, bytes));
            }
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
        assert!(result.is_ok() || !self.failed.is_empty() || self.gives_up);
        let mut payload = self.sends[send as usize].take().expect("a send ends once");
        payload.fill(0xee);
        if payload.len() <= SPENT_BYTES_MAX {
            self.spent.push(payload);
        }
    }
    fn received(&mut self, receive: u64, result: Result<(), Failure>) {
        if result.is_ok() {
            let (index, bytes) = std::mem::take(&mut self.receives[receive as usize]);
            assert!(bytes == pattern(index, bytes.len()), "message {index}");
            self.whole += 1;
        }
    }
    fn peer_failed(&mut self, peer: PeerId, in_use: &[u64]) {
        self.failed.push(peer);
        self.in_use.extend(in_use);
    }
    fn body(&self, send: u64) -> Option<*const u8> {
        Some(self.sends[send as usize].as_deref()?.as_ptr()).filter(|_| self.plain)
    }
    fn room(&mut self, receive: u64, bytes: u64) -> Option<*mut u8> {
        let room = self.receives[receive as usize].1.get_mut(..bytes as usize)?;
        Some(room.as_mut_ptr()).filter(|_| self.plain)
    }
    fn card(&mut self, peer: PeerId) -> Option<String> {
        self.cards.get(&peer).cloned()
    }
}

/// A process: its end of the network, and its memory.
pub struct End<D: DatagramDevice> {
    pub node: Reliable<D>,
    pub memory: Memory,
    sent: u64,
}

impl<D: DatagramDevice> End<D> {
    pub fn new(me: PeerId, device: D, key: [u8; 32], protection: Protection, adjust: impl FnOnce(&mut Config)) -> End<D> {
        let node = Reliable::over(device, me, me + 1, &JobKey::new(key), protection, |config| {
            config.peer_timeout_ns = 60_000_000_000;
            adjust(config);
        });
        End { node: node.unwrap(), memory: Memory::default(), sent: 0 }
    }

    pub fn connect(&mut self, peer: PeerId, card: String) {
        self.node.connect(peer, &card).unwrap();
        self.memory.cards.insert(peer, card);
    }

    pub fn send(&mut self, peer: PeerId, bytes: usize) {
        let token = self.memory.sends.len() as u64;
        let payload = self.memory.payload(self.sent, bytes);
        self.memory.sends.push(Some(payload));
        let (now_ns, requests) = self.node.requests();
        requests.send(now_ns, peer, &self.sent.to_le_bytes(), token, bytes as u64, false).unwrap();
        self.sent += 1;
    }

    pub fn step(&mut self) -> usize {
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

    pub fn is_done(&self) -> bool {
        self.memory.sends.iter().all(Option::is_none)
    }
}

/// Limits a run that would never end.
pub const PATIENCE: Duration = Duration::from_secs(120);

pub fn run_until<D: DatagramDevice>(ends: &mut [End<D>], mut done: impl FnMut(&[End<D>]) -> bool) {
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

pub const SIZES: [usize; 14] = [0, 1, 8, 100, 1400, 1500, 9000, 16384, 16385, 65536, 100_000, 1 << 20, 3, 17];

/// Reports a part of a test that this machine cannot run to tests/run, which counts it.
pub fn skipped(part: &str, reason: &str) {
    if let Some(path) = std::env::var_os("WHIMBREL_TEST_SKIPS") {
        let mut file = std::fs::OpenOptions::new().append(true).open(path).unwrap();
        std::io::Write::write_all(&mut file, format!("skip  {part}: {reason}\n").as_bytes()).unwrap();
    }
}

/// `one` sleeps whenever it can, and `two` sends to it: each sleep ends within `most`.
pub fn wakes<D: DatagramDevice>(mut one: End<D>, mut two: End<D>, most: Duration)
where
    End<D>: Send + 'static,
{
    let sleeper = std::thread::spawn(move || {
        let mut longest = Duration::ZERO;
        while one.memory.whole < 50 || one.node.deadline_ns().is_some() {
            let start = Instant::now();
            one.node.wait(Some(most.as_nanos() as u64));
            longest = longest.max(start.elapsed());
            one.step();
        }
        longest
    });
    for sent in 1..=50 {
        two.send(0, 8);
        while two.memory.sends.len() < sent || !two.is_done() || two.node.deadline_ns().is_some() {
            two.step();
            std::thread::yield_now();
        }
    }
    assert!(sleeper.join().unwrap() < most, "nothing woke it");
}

pub fn exchange<D: DatagramDevice>(ends: &mut [End<D>; 2], sizes: &[usize]) {
    let before = [ends[0].memory.whole, ends[1].memory.whole];
    for &bytes in sizes {
        ends[0].send(1, bytes);
        ends[1].send(0, bytes);
    }
    let count = sizes.len() as u64;
    run_until(ends, |ends| ends.iter().zip(before).all(|(end, before)| end.is_done() && end.memory.whole == before + count));
}

/// What lies between models: what has come to each address, and whom it wakes.
#[derive(Default, Debug)]
struct Wire {
    /// Nothing comes through.
    cut: bool,
    boxes: HashMap<u16, VecDeque<(u16, Vec<u8>)>>,
    /// Addresses whose owners want to be woken by the next datagram, and how.
    armed: HashMap<u16, Arc<OwnedFd>>,
}

/// A device as a queue pair is one: queues what it is given and reads it late, puts 40 bytes before each datagram, wakes once, and has addresses of its
/// own.
#[derive(Debug)]
struct Model {
    number: u16,
    mtu_bytes: u32,
    wire: Arc<Mutex<Wire>>,
    queue: VecDeque<Posted>,
    /// After so many looks for completions a datagram is read and leaves.
    delay: usize,
    looks: usize,
    doorbell: Arc<OwnedFd>,
    resets: Vec<u8>,
    queued_max: usize,
    /// Datagrams gathered from memory of the program.
    gathered: u64,
    counters: (SendCounters, ReceiveCounters),
}

#[derive(Debug)]
struct Posted {
    queue: SendQueue,
    to: u16,
    own: Vec<u8>,
    foreign: Vec<(*const u8, usize)>,
    /// What lay there when it was posted.
    payload: Vec<u8>,
    due: usize,
}

#[derive(Clone, PartialEq, Debug)]
struct ModelOffer {
    number: u16,
    mtu_bytes: u32,
}

impl fmt::Display for ModelOffer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "model/{}:{}", self.number, self.mtu_bytes)
    }
}

impl FromStr for ModelOffer {
    type Err = NoCard;
    fn from_str(text: &str) -> Result<ModelOffer, NoCard> {
        let parse = || {
            let (number, bytes) = text.strip_prefix("model/")?.split_once(':')?;
            Some(ModelOffer { number: number.parse().ok()?, mtu_bytes: bytes.parse().ok()? })
        };
        parse().ok_or(NoCard)
    }
}

impl Offer for ModelOffer {}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct ModelPath(u16);

impl Path for ModelPath {
    fn local(&self) -> u8 {
        0
    }
    fn ends_with(&self, other: &ModelPath) -> bool {
        self == other
    }
}

/// Each in a buffer of its own, behind what the device puts there.
struct ModelArrivals(Vec<(u16, Vec<u8>)>);

impl Arrivals for ModelArrivals {
    type Source = u16;
    fn count(&self) -> usize {
        self.0.len()
    }
    fn get(&mut self, index: usize) -> Option<Arrival<'_, u16>> {
        let (from, bytes) = &mut self.0[index];
        let stride_bytes = bytes.len();
        Some(Arrival { from: *from, local: 0, bytes, stride_bytes, lead_bytes: LEAD.len() })
    }
}

const LEAD: [u8; 40] = [b'P'; 40];
const QUEUE_MAX: usize = 16;

impl Model {
    fn new(number: u16, mtu_bytes: u32, delay: usize, wire: &Arc<Mutex<Wire>>) -> Model {
        Model {
            number,
            mtu_bytes,
            wire: wire.clone(),
            queue: VecDeque::new(),
            delay,
            looks: 0,
            doorbell: Arc::new(sys::eventfd().unwrap()),
            resets: Vec::new(),
            queued_max: 0,
            gathered: 0,
            counters: Default::default(),
        }
    }

    fn queue(&mut self, queue: SendQueue, to: u16, own: Vec<u8>, foreign: Vec<(*const u8, usize)>, payload: Vec<u8>) -> Sent {
        assert!(own.len() + payload.len() <= self.mtu_bytes as usize, "longer than the device takes");
        if self.queue.len() == 2 * QUEUE_MAX {
            return Sent::Busy;
        }
        let due = self.looks.saturating_add(self.delay);
        self.gathered += !foreign.is_empty() as u64;
        self.queue.push_back(Posted { queue, to, own, foreign, payload, due });
        self.queued_max = self.queued_max.max(self.queue.len());
        self.counters.0.datagrams += 1;
        Sent::Queued
    }
}

impl DatagramDevice for Model {
    type Offer = ModelOffer;
    type Path = ModelPath;
    type Source = u16;
    type Arrivals = ModelArrivals;

    const QUEUES: bool = true;
    const COPIED_BYTES_MAX: usize = 100;
    const TRIGGER: Trigger = Trigger::Edge;

    fn offers(&self) -> Vec<ModelOffer> {
        vec![ModelOffer { number: self.number, mtu_bytes: self.mtu_bytes }]
    }
    fn rails(&self) -> Vec<RailConfig> {
        vec![RailConfig { mtu_bytes: self.mtu_bytes, endpoints: 2, queue_packets_max: QUEUE_MAX as u16 }]
    }
    fn longest_bytes(&self) -> u32 {
        self.mtu_bytes
    }
    fn renew(&mut self) -> bool {
        false
    }
    fn candidate(_: u8, ours: &ModelOffer, theirs: &ModelOffer) -> Option<Candidate<ModelPath>> {
        let bytes = ours.mtu_bytes.min(theirs.mtu_bytes);
        Some(Candidate { path: ModelPath(theirs.number), distance: 0, most_bytes: bytes, sure_bytes: bytes, in_parts_bytes: bytes })
    }
    fn back(_: u8, from: u16) -> ModelPath {
        ModelPath(from)
    }
    fn cuts_runs(_: &ModelPath) -> bool {
        false
    }
    unsafe fn post<'a>(&mut self, to: &ModelPath, queue: SendQueue, header: &[u8], payload: impl Iterator<Item = &'a [u8]> + Clone) -> Sent {
        let foreign = payload.clone().map(|piece| (piece.as_ptr(), piece.len())).collect();
        self.queue(queue, to.0, header.to_vec(), foreign, payload.flatten().copied().collect())
    }
    fn post_copied(&mut self, to: &ModelPath, queue: SendQueue, bytes: usize, write: impl FnOnce(&mut Vec<u8>)) -> Sent {
        let mut own = Vec::new();
        write(&mut own);
        assert_eq!(own.len(), bytes);
        self.queue(queue, to.0, own, Vec::new(), Vec::new())
    }
    unsafe fn post_run(&mut self, _: &ModelPath, _: SendQueue, _: Batch, _: impl FnMut(&mut [MaybeUninit<u8>], crate::stores::Stores)) -> Taken {
        unreachable!("it cuts no runs")
    }
    fn continues(&self, _: &ModelPath, _: SendQueue, _: usize) -> bool {
        false
    }
    fn flush(&mut self) -> bool {
        self.queue.len() < 2 * QUEUE_MAX
    }
    fn completions(&mut self, mut each: impl FnMut(SendQueue, u32)) {
        self.looks += 1;
        while let Some(posted) = self.queue.pop_front_if(|first| first.due <= self.looks) {
            let mut bytes = [&LEAD, &posted.own[..]].concat();
            let at = bytes.len();
            for (start, length) in posted.foreign {
                // SAFETY: in use until it is told below.
                bytes.extend_from_slice(unsafe { std::slice::from_raw_parts(start, length) });
            }
            assert!(bytes[at..] == posted.payload, "a payload changed while a datagram read it");
            let mut wire = self.wire.lock().unwrap();
            if !wire.cut {
                wire.boxes.entry(posted.to).or_default().push_back((self.number, bytes));
            }
            if let Some(doorbell) = wire.armed.remove(&posted.to) {
                sys::ring(doorbell.as_fd());
            }
            each(posted.queue, 1);
        }
    }
    fn reset(&mut self, rail: u8) {
        self.queue.retain(|posted| posted.queue.rail != rail);
        self.resets.push(rail);
    }
    fn receive(&mut self, turn: &mut usize) -> Option<ModelArrivals> {
        *turn += 1;
        let mut wire = self.wire.lock().unwrap();
        let come = wire.boxes.entry(self.number).or_default();
        let some: Vec<_> = come.drain(..come.len().min(8)).collect();
        (*turn == 1 && !some.is_empty()).then_some(ModelArrivals(some))
    }
    fn recycle(&mut self, _: ModelArrivals, datagrams: usize) {
        self.counters.1.datagrams += datagrams as u64;
    }
    fn sources<'a>(&'a self, mut each: impl FnMut(BorrowedFd<'a>, bool)) {
        each(self.doorbell.as_fd(), false);
    }
    fn arm(&mut self) -> bool {
        sys::silence(self.doorbell.as_fd());
        let mut wire = self.wire.lock().unwrap();
        wire.armed.insert(self.number, self.doorbell.clone());
        wire.boxes.get(&self.number).is_none_or(VecDeque::is_empty) && self.queue.is_empty()
    }
    fn send_counters(&self) -> SendCounters {
        self.counters.0
    }
    fn receive_counters(&self) -> ReceiveCounters {
        self.counters.1
    }
}

// SAFETY: what it points to is the program's, whose thread drives it.
unsafe impl Send for Model {}

/// Two models of different longest datagrams, whose completions take `delay` looks.
fn models(protection: Protection, delay: usize, adjust: impl Fn(&mut Config)) -> [End<Model>; 2] {
    let wire = Arc::default();
    let mut ends = [0, 1].map(|me| {
        let device = Model::new(7 + me as u16, [4096, 2048][me as usize], delay, &wire);
        End::new(me, device, [9; 32], protection, &adjust)
    });
    let cards = [ends[0].node.card(), ends[1].node.card()];
    assert_eq!(cards[0], "1 1 model/7:4096");
    ends[0].connect(1, cards[1].clone());
    ends[1].connect(0, cards[0].clone());
    ends
}

/// Messages of all lengths over a device that reads payloads late, has a lead in its buffers and addresses of its own; those in one piece are gathered from
/// where they lie.
#[test]
fn a_device_that_queues() {
    for (protection, plain) in [(Protection::Auth, true), (Protection::Auth, false), (Protection::Crc, true), (Protection::Encrypt, true)] {
        let mut ends = models(protection, 5, |_| {});
        ends.iter_mut().for_each(|end| end.memory.plain = plain);
        for _ in 0..3 {
            exchange(&mut ends, &SIZES);
        }
        for end in &ends {
            let counters = end.node.counters();
            assert_eq!((counters.refused, counters.unroutable), (0, 0), "{protection:?}");
            let device = &end.node.device;
            assert!(device.queued_max > QUEUE_MAX && device.resets.is_empty(), "{} queued", device.queued_max);
            assert_eq!(device.gathered > 0, protection != Protection::Encrypt, "what is encrypted is copied");
        }
    }
}

/// Memory that lasts for one call only is copied where the device reads later.
#[test]
fn passing_memory_is_copied() {
    let mut ends = models(Protection::Auth, 5, |_| {});
    ends.iter_mut().for_each(|end| end.memory.passing = true);
    exchange(&mut ends, &SIZES);
    assert!(ends.iter().all(|end| end.node.device.gathered == 0));
}

/// A peer fails while the device still reads what was sent to it.
#[test]
fn a_peer_fails_while_its_datagrams_are_queued() {
    let mut ends = models(Protection::Auth, usize::MAX, |config| config.local_timeout_ns = 60_000_000_000);
    let [one, _] = &mut ends;
    (one.memory.plain, one.memory.gives_up) = (true, true);
    one.send(1, 10_000);
    one.send(1, 1 << 20);
    one.step();
    assert!(!one.node.device.queue.is_empty());
    let now_ns = one.node.now_ns();
    one.node.abandon(now_ns, &[1], &mut one.memory);
    assert_eq!((&one.memory.failed[..], &one.memory.in_use[..]), (&[1][..], &[0][..]));
    assert_eq!(one.memory.sends.iter().map(Option::is_some).collect::<Vec<_>>(), [true, false], "the second had not begun");
    for _ in 0..100 {
        one.step();
    }
    assert!(one.memory.sends[0].is_some() && !one.node.endpoint().is_quiet());
    one.node.device.queue.iter_mut().for_each(|posted| posted.due = 0);
    one.step();
    assert!(one.is_done() && one.node.endpoint().is_quiet());
}

/// What does not leave for too long makes its rail be made anew; then nothing is in use, and all arrives.
#[test]
fn a_device_that_stands_still_is_made_anew() {
    let mut ends = models(Protection::Auth, usize::MAX, |config| config.local_timeout_ns = 1_000_000);
    ends[0].send(1, 10_000);
    run_until(&mut ends, |ends| !ends[0].node.device.resets.is_empty());
    assert_eq!(ends[1].memory.whole, 0);
    ends.iter_mut().for_each(|end| end.node.device.delay = 1);
    run_until(&mut ends, |ends| ends.iter().all(End::is_done) && ends[1].memory.whole == 1);
}

/// Who sleeps on a device that wakes once is woken, also by what came just before.
#[test]
fn an_edge_wakes() {
    let [one, two] = models(Protection::Auth, 1, |_| {});
    wakes(one, two, PATIENCE);
}

fn sockets() -> Udp {
    Udp::open(&Setup { filter: "127.0.0.0/8".parse().unwrap(), ..Setup::default() }).unwrap()
}

/// Two ends over models, and sockets beside them.
fn beside(wire: &Arc<Mutex<Wire>>) -> [End<Beside<Model, Udp>>; 2] {
    let mut ends = [0, 1].map(|me| {
        let device = Beside::new(Model::new(7 + me as u16, 4096, 1, wire), Some(sockets()));
        End::new(me, device, [9; 32], Protection::Auth, |_| {})
    });
    let cards = [ends[0].node.card(), ends[1].node.card()];
    assert!(cards[0].starts_with("1 1 model/7:4096;127.0.0.1/8:"), "{}", cards[0]);
    ends[0].connect(1, cards[1].clone());
    ends[1].connect(0, cards[0].clone());
    ends
}

/// How many datagrams have left over models, and over sockets.
fn left<const N: usize>(ends: &[End<Beside<Model, Udp>>; N]) -> [u64; 2] {
    let models = ends.iter().map(|end| end.node.device.first.counters.0.datagrams).sum();
    let all: u64 = ends.iter().map(|end| end.node.counters().sent.datagrams).sum();
    [models, all - models]
}

/// All goes over the first device where it reaches, also after other ways have been looked for, in datagrams as long as it takes.
#[test]
fn the_first_device_carries_all() {
    let mut ends = beside(&Arc::default());
    for _ in 0..3 {
        exchange(&mut ends, &SIZES);
    }
    let probes: u64 = ends.iter().map(|end| end.node.counters().probes_sent + end.node.counters().probes_answered).sum();
    let [models, sockets] = left(&ends);
    assert!(models > 1000 && sockets <= probes + models / 4, "{models} over models, {sockets} over sockets, {probes} probes");
    run_until(&mut ends, |ends| ends[0].node.paths_to(1) == Some((true, 1)));
    assert_eq!(ends[0].node.endpoint().mtu_bytes(1), 4096);
}

/// When the first device's wire is cut, all goes over sockets, in datagrams as long as before, and over the wire once it is mended.
#[test]
fn the_second_device_takes_over() {
    let wire = Arc::<Mutex<Wire>>::default();
    let mut ends = beside(&wire);
    exchange(&mut ends, &SIZES);
    run_until(&mut ends, |ends| [(0, 1), (1, 0)].iter().all(|&(at, peer)| ends[at].node.paths_to(peer) == Some((true, 1))));
    for _ in 0..2 {
        wire.lock().unwrap().cut = true;
        exchange(&mut ends, &SIZES);
        let before = left(&ends);
        exchange(&mut ends, &SIZES);
        let after = left(&ends);
        assert!(after[1] - before[1] > 500, "{before:?}, {after:?}");
        wire.lock().unwrap().cut = false;
        let start = Instant::now();
        let mut carried = [0, 1];
        while carried[1] > 0 {
            let before = left(&ends);
            exchange(&mut ends, &[100; 10]);
            let after = left(&ends);
            carried = [after[0] - before[0], after[1] - before[1]];
            assert!(start.elapsed() < PATIENCE, "the wire is not used again: {carried:?}");
        }
        let before = left(&ends);
        exchange(&mut ends, &SIZES);
        let after = left(&ends);
        assert!(after[0] - before[0] > after[1] - before[1], "{before:?}, {after:?}");
    }
}

/// A process without the first device and one with it reach each other, whoever begins.
#[test]
fn a_peer_without_the_first_device() {
    for begins in [true, false] {
        let both = Beside::new(Model::new(7, 4096, 1, &Arc::default()), Some(sockets()));
        let mut one = End::new(0, both, [9; 32], Protection::Auth, |_| {});
        let mut two = End::new(1, sockets(), [9; 32], Protection::Auth, |_| {});
        let cards = [one.node.card(), two.node.card()];
        for (before, bytes) in SIZES.into_iter().enumerate() {
            // Whoever answers learns where to only then.
            for to_two in [begins, !begins] {
                if to_two {
                    one.connect(1, cards[1].clone());
                    one.send(1, bytes);
                } else {
                    two.connect(0, cards[0].clone());
                    two.send(0, bytes);
                }
                let start = Instant::now();
                while (if to_two { two.memory.whole } else { one.memory.whole }) == before as u64 {
                    one.step();
                    two.step();
                    assert!(start.elapsed() < PATIENCE, "{:?}\n{:?}", one.node.counters(), two.node.counters());
                }
            }
        }
        let [models, sockets] = left(&[one]);
        assert!(models == 0 && sockets > 30, "{models} over the model, {sockets} over sockets");
    }
}

/// A card of both kinds means its sockets to a process that has nothing else, and nothing is let pass that is no card.
#[test]
fn cards_of_both_kinds() {
    type Sockets = Card<crate::udp::Offer>;
    let card = |text: &str| text.parse::<Sockets>();
    let both = card("7 1 roce2/0/::ffff:10.0.0.1/17/1b873593/4096;10.0.0.1/24:4711-1472;fd00::2/64:4713-1452").unwrap();
    assert_eq!((both.epoch, both.rails, both.offers.len()), (7, 0, 2));
    assert_eq!(card("7 2 10.0.0.1/24:4711-1472;ib/3/fe80::1/17/1/4096").unwrap().rails, 1);
    for bad in [
        "7 1 roce2/0/::ffff:10.0.0.1/17/1b873593/4096",
        "7 1 10.0.0.1/24:4711-1472;nothing",
        "7 1 ib/3;10.0.0.1/99:4711-1472",
        "7 3 ib/3;10.0.0.1/24:4711-1472",
    ] {
        assert_eq!(card(bad), Err(NoCard), "{bad}");
    }
}
