//! Datagrams of the reliability layer: any bytes, and any frames of a peer that has the key.

use std::collections::HashSet;

use proto::reliability::seal::{TestSeal, open_datagram, seal_datagram};
use proto::reliability::wire::{FIXED_BYTES, Frame, HEADER_BYTES, Header, Packet, RUN_HEAD_BYTES, Run, begin, finish};
use proto::reliability::{Begun, Config, Counters, Delivery, Endpoint, Failure, Outside, PeerId, Placement, RailConfig, SendPath, Sent, Slice};

pub const SEAL: TestSeal = TestSeal(1);
pub const ME: u32 = 1;
pub const PEER: u32 = 2;
/// Frames before a long payload, bytes, at most.
const FRAMES_BYTES_MAX: usize = 256;

/// What parses must say again what was read; whatever an authentic peer says, the endpoint keeps its limits and its promises.
pub fn run(data: &[u8]) {
    if let Some(packet) = Packet::parse(data) {
        let mut again = Vec::new();
        begin(&mut again, &packet.header);
        let mut frames = packet.frames();
        while let Some((frame, _)) = frames.next() {
            frame.write(&mut again);
        }
        finish(&mut again);
        again.extend_from_slice(packet.payload);
        assert_eq!(again[..FIXED_BYTES], data[..FIXED_BYTES]);
        // What follows is padding, where that may be: after the only message, one of several segments.
        let rest = data[HEADER_BYTES..].strip_prefix(&again[HEADER_BYTES..]);
        let (mut frames, mut messages, mut several) = (packet.frames(), 0, false);
        while let Some((frame, _)) = frames.next() {
            if let Frame::Message(message) = frame {
                (messages, several) = (messages + 1, message.segments() > 1);
            }
        }
        assert!(rest.is_some_and(|rest| rest.is_empty() || packet.header.direct || messages == 1 && several));
    }
    assert!(open_datagram(&SEAL, &mut data.to_vec()).is_none() || data.len() >= HEADER_BYTES);
    for each_bytes in [RUN_HEAD_BYTES + 1, data.len().div_ceil(2).max(1)] {
        let count = Run::length(data, each_bytes);
        let run = Run::parse(&data[..data.len().min(count * each_bytes)], each_bytes);
        assert_eq!(run.map_or(0, |run| run.payloads().count()), count);
    }
    converse(data, |_, _| ());
}

pub fn config() -> Config {
    let rail = RailConfig { mtu_bytes: 1472, endpoints: 1, queue_packets_max: 8 };
    Config { rails: vec![rail; 2], waiting_max: 16, grant_bytes_max: 128 << 10, ..Config::default() }
}

/// An endpoint with some operations under way, and a peer whose datagrams hold whatever is in `data`: what the endpoint counted. `hears` is
/// told what it sends, before the first datagram comes and after each.
pub fn converse(data: &[u8], mut hears: impl FnMut(u64, Vec<(u8, Vec<u8>)>)) -> Counters {
    let mut endpoint = Endpoint::new(config(), ME, 3);
    endpoint.connect(PEER, 4);
    let mut engine = Engine::default();
    let (mut now_ns, mut numbers) = (1_000_000, [0u64; 2]);
    for (bytes, pulled) in [(0, false), (5000, false), (300_000, true)] {
        if endpoint.send(now_ns, PEER, b"envelope", engine.token(), bytes, pulled).is_err() {
            return endpoint.counters;
        }
    }
    let offered = engine.token();
    let window = endpoint.offer(now_ns, PEER, b"offer", 200_000, offered);
    endpoint.flush(now_ns, &mut engine);
    hears(now_ns, std::mem::take(&mut engine.sent));
    let mut rest = data;
    // Each datagram: a byte of choices, two of length, frames and payload.
    while let [choice, low, high, tail @ ..] = rest {
        let length = (u16::from_le_bytes([*low, *high]) as usize % 1500).min(tail.len());
        let (body, after) = tail.split_at(length);
        rest = after;
        let rail = choice & 1;
        let jump = if choice & 2 == 0 { 1 } else { 5 };
        numbers[rail as usize] += jump;
        now_ns += 1 << (choice >> 3 & 31).min(28);
        let header = Header {
            direct: choice & 4 != 0,
            rail,
            source: PEER,
            destination: ME,
            source_epoch: 4,
            destination_epoch: 3,
            sent_us: (now_ns / 1000) as u32,
            number: numbers[rail as usize],
        };
        let mut bytes = Vec::new();
        begin(&mut bytes, &header);
        // How much of the body is frames: as much as makes a sound datagram, with a short payload or few frames.
        for frames in (0..=body.len()).rev().take(64).chain(0..=body.len().min(FRAMES_BYTES_MAX)) {
            bytes.truncate(HEADER_BYTES);
            bytes.extend_from_slice(&body[..frames]);
            finish(&mut bytes);
            bytes.extend_from_slice(&body[frames..]);
            if Packet::parse(&bytes).is_some() {
                break;
            }
        }
        if Packet::parse(&bytes).is_some() {
            let (head, payload) = bytes.split_at_mut(HEADER_BYTES);
            let frames = u16::from_le_bytes([head[2], head[3]]) as usize;
            let payload = payload[frames..].to_vec();
            seal_datagram(&SEAL, &mut bytes[..HEADER_BYTES + frames], &[&payload]);
            if let Some(packet) = open_datagram(&SEAL, &mut bytes) {
                endpoint.arrived(now_ns, rail, &packet, &mut engine);
            }
        }
        engine.act(&mut endpoint, PEER, now_ns);
        endpoint.flush(now_ns, &mut engine);
        endpoint.tick(now_ns, &mut engine);
        assert!(endpoint.within_limits(), "{:?}", endpoint.high);
        hears(now_ns, std::mem::take(&mut engine.sent));
    }
    let counters = endpoint.counters;
    // Whatever has been said, silence ends everything.
    for _ in 0..2000 {
        let Some(at_ns) = endpoint.deadline_ns() else { break };
        now_ns = now_ns.max(at_ns) + 1;
        endpoint.tick(now_ns, &mut engine);
        engine.act(&mut endpoint, PEER, now_ns);
    }
    assert!(endpoint.deadline_ns().is_none(), "timers without end");
    // But what nobody has begun is nobody's failure.
    if let Ok(window) = window
        && !engine.pushed.contains(&offered)
    {
        endpoint.withdraw(PEER, window);
        engine.open.remove(&offered);
    }
    assert!(engine.open.is_empty(), "operations without end: {:?}", engine.open);
    counters
}

#[derive(Default)]
pub struct Engine {
    pub next: u64,
    open: HashSet<u64>,
    requests: Vec<(u32, u64)>,
    offers: Vec<(u32, u64, u64)>,
    releases: Vec<u64>,
    /// Datagrams by rail.
    pub sent: Vec<(u8, Vec<u8>)>,
    pushed: HashSet<u64>,
}

impl Engine {
    pub fn token(&mut self) -> u64 {
        self.next += 1;
        self.open.insert(self.next);
        self.next
    }

    /// Takes every request and every offer.
    pub fn act(&mut self, endpoint: &mut Endpoint, peer: PeerId, now_ns: u64) {
        for bytes in std::mem::take(&mut self.releases) {
            endpoint.release(now_ns, peer, bytes);
        }
        for (transfer, bytes) in std::mem::take(&mut self.requests) {
            let token = self.token();
            if bytes == 0 || endpoint.receive(now_ns, peer, transfer, bytes.min(1 << 20), token).is_err() {
                self.open.remove(&token);
            }
        }
        for (window, granted_bytes, capacity_bytes) in std::mem::take(&mut self.offers) {
            let token = self.token();
            let bytes = capacity_bytes.min(100_000);
            if endpoint.push(now_ns, peer, b"push", window, granted_bytes, token, bytes).is_err() {
                self.open.remove(&token);
            }
        }
    }
}

impl Outside for Engine {
    fn transmit(&mut self, route: SendPath, header: &mut [u8], payload: &[Slice]) -> Sent {
        let payload = vec![0; payload.iter().map(|slice| slice.length_bytes as usize).sum()];
        assert!(header.len() + payload.len() <= 1472);
        seal_datagram(&SEAL, header, &[&payload]);
        self.sent.push((route.rail, [&*header, &payload].concat()));
        Sent::Done
    }
    fn place(&mut self, placement: &Placement, payload: &[u8]) -> bool {
        assert!(self.open.contains(&placement.receive));
        assert!(placement.offset_bytes + payload.len() as u64 <= 1 << 20);
        true
    }
    fn begin(&mut self, _: PeerId, _: &[u8], bytes: u64) -> Option<Begun> {
        (bytes % 2 == 1).then(|| Begun { receive: self.token(), room_bytes: bytes / 3 * 2 })
    }
    fn deliver(&mut self, _: PeerId, delivery: Delivery) {
        match delivery {
            Delivery::Eager { payload, .. } => self.releases.push(payload.len() as u64),
            Delivery::Placed { receive, bytes, .. } => {
                assert!(self.open.remove(&receive), "a message ended twice");
                self.releases.push(bytes);
            }
            Delivery::Request { transfer, bytes, .. } => {
                self.requests.push((transfer, bytes));
                self.releases.push(0);
            }
            Delivery::Offer { window, granted_bytes, capacity_bytes, .. } => {
                self.offers.push((window, granted_bytes, capacity_bytes));
                self.releases.push(0);
            }
            Delivery::Push { receive, .. } => {
                assert!(self.open.contains(&receive));
                self.pushed.insert(receive);
                self.releases.push(0);
            }
        }
    }
    fn complete(&mut self, send: u64, _: Result<(), Failure>) {
        assert!(self.open.remove(&send), "a send ended twice");
    }
    fn received(&mut self, receive: u64, _: Result<(), Failure>) {
        assert!(self.open.remove(&receive), "a receive ended twice");
    }
    fn peer_failed(&mut self, peer: PeerId, _in_use: &[u64]) {
        assert!([ME, PEER].contains(&peer));
    }
}
