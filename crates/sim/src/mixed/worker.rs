//! The simulated worker: memory of one host, and how a rank carries out what its machine decides.

use super::field::{Copying, Event, Packet, Region, Ring, Shared};
use super::peers::Peers;
use proto::costs::pieces::Done;
use proto::p2p::{self, Count, DataPath, Header, Machine, Memory, Network, Refused, Target, Way};
use proto::protocols::{Abilities, Protocol, Transfer};
use proto::rendezvous::Rtr;
use proto::wire::{self, Context, Envelope, Kind};
use std::collections::HashSet;
use std::rc::Rc;

pub type Rank = Machine<Worker>;

/// Why a simulated transport cannot go on.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Error {
    Corrupt { peer: u32, what: &'static str, value: u64 },
    Peer { peer: u32, why: String },
    Program(String),
}

impl p2p::Error for Error {
    fn corrupt(peer: u32, what: &'static str, value: u64) -> Error {
        Error::Corrupt { peer, what, value }
    }
    fn peer(peer: u32, why: String) -> Error {
        Error::Peer { peer, why }
    }
    fn is_corrupt(&self) -> bool {
        matches!(self, Error::Corrupt { .. })
    }
    fn of_peer(self, _: u32) -> Error {
        self
    }
}

/// Memory of a simulated program.
#[derive(Clone)]
pub struct Buffer {
    pub region: Option<Rc<Region>>,
    pub bytes: usize,
    /// In one piece; else nobody can be told where it lies.
    pub contiguous: bool,
}

impl Buffer {
    /// Copies of bytes `from..from + bytes`.
    pub fn get(&self, from: usize, bytes: usize) -> Vec<u8> {
        match &self.region {
            Some(region) => region.bytes.borrow()[from..from + bytes].to_vec(),
            None => Vec::new(),
        }
    }

    /// Writes at `offset`; what does not fit is left out.
    pub fn put(&self, offset: usize, from: &[u8]) {
        let bytes = from.len().min(self.bytes.saturating_sub(offset));
        if let Some(region) = self.region.as_ref().filter(|_| bytes > 0) {
            region.bytes.borrow_mut()[offset..offset + bytes].copy_from_slice(&from[..bytes]);
        }
    }
}

impl p2p::Buffer for Buffer {
    type Body = Vec<u8>;
    type List = ();
    const EMPTY: Buffer = Buffer { region: None, bytes: 0, contiguous: true };

    fn len(&self) -> usize {
        self.bytes
    }
    fn is_contiguous(&self) -> bool {
        self.contiguous
    }
    fn straight(&self) -> bool {
        self.contiguous
    }
    fn tellable(&self) -> bool {
        self.contiguous
    }
    fn list(&self) -> Option<()> {
        None
    }
    fn told(&self, _: Option<&()>) -> Option<(u64, u64)> {
        if self.contiguous { Some((self.region.as_ref().map_or(0, |region| region.number), 0)) } else { None }
    }
    fn body_bytes(body: &Vec<u8>) -> usize {
        body.len()
    }
    fn keep(body: &Vec<u8>) -> Box<[u8]> {
        body.clone().into()
    }
    fn place(&self, offset: usize, body: &Vec<u8>) {
        self.put(offset, body);
    }
    fn place_unexpected(&self, data: &[u8]) {
        self.put(0, data);
    }
    fn place_words(&self, words: &[u64], bytes: usize) {
        let all: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).take(bytes).collect();
        self.put(0, &all);
    }
    fn copy_from(&self, from: &Buffer) {
        self.put(0, &from.get(0, from.bytes));
    }
    fn to_vec(&self) -> Vec<u8> {
        self.get(0, self.bytes)
    }
    fn append_to(&self, out: &mut Vec<u8>) {
        out.extend(self.to_vec());
    }
    fn forget_layout(&mut self) {}
}

/// The rings of one host.
pub struct Rings {
    pub me: u32,
    pub shared: Shared,
    /// Ranks whose memory this one may not reach any more.
    pub forbidden: HashSet<u32>,
}

impl Rings {
    fn push(&mut self, peer: u32, head: [u64; 2], words: &[u64], body: Vec<u8>) -> Result<(), Refused<Error>> {
        let field = &mut *self.shared.borrow_mut();
        let visible_ns = field.now_ns + field.random.below(field.ring_ns + 1);
        let (packets_max, bytes_max) = (field.ring_packets_max, field.ring_bytes_max);
        let ring = field.rings.entry((self.me, peer)).or_default();
        if ring.packets.len() >= packets_max || ring.bytes + body.len() > bytes_max {
            ring.refused = true;
            return Err(Refused::Full);
        }
        ring.bytes += body.len();
        // Packets are seen in their order.
        let visible_ns = ring.packets.back().map_or(0, |last| last.whole_ns).max(visible_ns);
        let whole_ns = visible_ns + if body.len() > 48 { field.random.below(field.ring_ns + 1) } else { 0 };
        ring.packets.push_back(Packet { visible_ns, whole_ns, begun: None, head, words: words.to_vec(), body });
        field.at(visible_ns, Event::Look { rank: peer });
        Ok(())
    }

    /// Puts a packet of `peer` back, to be seen again at `later_ns`.
    fn put_back(&mut self, peer: u32, mut packet: Packet, later_ns: u64) {
        let field = &mut *self.shared.borrow_mut();
        packet.visible_ns = later_ns;
        let ring = field.rings.entry((peer, self.me)).or_default();
        ring.bytes += packet.body.len();
        ring.packets.push_front(packet);
        field.at(later_ns, Event::Look { rank: self.me });
    }

    /// The next packet that can be seen, from any of `peers`.
    pub fn pop(&mut self, peers: u32) -> Option<(u32, Packet)> {
        let field = &mut *self.shared.borrow_mut();
        let now_ns = field.now_ns;
        let first = field.random.below(peers as u64) as u32;
        for peer in (0..peers).map(|step| (first + step) % peers) {
            let Some(ring) = field.rings.get_mut(&(peer, self.me)) else { continue };
            if ring.packets.front().is_none_or(|packet| packet.visible_ns > now_ns) {
                continue;
            }
            let Some(packet) = ring.packets.pop_front() else { continue };
            ring.bytes -= packet.body.len();
            if std::mem::take(&mut ring.refused) {
                field.at(now_ns + 100, Event::Look { rank: peer });
            }
            return Some((peer, packet));
        }
        None
    }
}

impl Memory for Rings {
    type Error = Error;
    type Descriptor = &'static Copying;

    fn send(&mut self, peer: u32, head: [u64; 2], words: &[u64]) -> Result<(), Refused<Error>> {
        self.push(peer, head, words, Vec::new())
    }
    fn body_bytes_max(&self) -> usize {
        self.shared.borrow().ring_bytes_max / 2
    }
    fn remote_read(&self) -> bool {
        true
    }
    fn reachable(&mut self, peer: u32) -> bool {
        !self.forbidden.contains(&peer)
    }
    fn maps(&mut self, _: u32, _: u64, _: usize) -> bool {
        false
    }
    fn unreachable(&mut self, peer: u32) {
        self.forbidden.insert(peer);
    }
    fn body_bytes_max_to(&self, _: u32) -> usize {
        self.body_bytes_max()
    }
    fn waits(&self, _: u32) -> bool {
        self.shared.borrow_mut().random.chance(500_000)
    }
    fn has_room(&mut self, _: u32, _: usize) -> bool {
        self.shared.borrow_mut().random.chance(800_000)
    }
    fn comes(&self, _: u32) -> Option<([u64; 2], usize)> {
        let head = wire::header(Kind::Eager, Envelope { context: Context::from_raw(0), source: 0, tag: 0 });
        self.shared.borrow_mut().random.chance(700_000).then_some((head, usize::MAX))
    }
    fn refuse(&mut self, _: u32) {}
    fn credit(&self, peer: u32) -> u64 {
        self.shared.borrow().rings.get(&(self.me, peer)).map_or(0, |ring| ring.released)
    }
    fn give_credit(&mut self, peer: u32, bytes: u64, step_bytes: u64) {
        let field = &mut *self.shared.borrow_mut();
        let ring: &mut Ring = field.rings.entry((peer, self.me)).or_default();
        ring.untold += bytes;
        if ring.untold >= step_bytes {
            ring.released += std::mem::take(&mut ring.untold);
            let at_ns = field.now_ns + 100;
            field.at(at_ns, Event::Look { rank: peer });
        }
    }
    fn cooperative(&mut self, owner: u32, slot: u64) -> Result<&'static Copying, Error> {
        let descriptors = &mut self.shared.borrow_mut().descriptors;
        Ok(descriptors.entry((owner, slot)).or_insert_with(|| Box::leak(Box::default())))
    }
}

/// What a rank has besides its machine.
pub struct Worker {
    pub shared: Shared,
    pub eager_bytes_max: usize,
    pub counts: std::collections::HashMap<u8, u64>,
    pub routes: [u64; 8],
    /// Looks at messages of which not all was there, or that had been begun by one.
    pub in_parts: u64,
}

impl Worker {
    pub fn counted(&self, what: Count) -> u64 {
        self.counts.get(&(what as u8)).copied().unwrap_or(0)
    }
}

/// Does something with the network and the machine, which are apart while it lasts.
pub fn with_network<T>(rank: &mut Rank, act: impl FnOnce(&mut Peers, &mut Rank) -> T) -> Option<T> {
    let mut network = rank.network.take()?;
    let done = act(&mut network, rank);
    rank.network = Some(network);
    Some(done)
}

/// Carries out what arrivals have given rise to.
pub fn carry_out(rank: &mut Rank) {
    with_network(rank, |network, rank| {
        network.carry_out(rank);
        network.flush(rank, false);
    });
}

/// Takes in what is there of a packet that its sender writes still, as far as a receive waits for it. Gives it back where all of it is there and
/// nothing has been taken.
fn take_part(rank: &mut Rank, peer: u32, mut packet: Packet) -> Result<Option<Packet>, Error> {
    let bytes = packet.body.len();
    let rings = rank.memory.as_ref().expect("the packet came through them");
    let (present, later_ns) = {
        let field = &mut *rings.shared.borrow_mut();
        let left_ns = packet.whole_ns.saturating_sub(field.now_ns);
        let done = packet.begun.map_or(1, |(_, done)| done);
        let present = if left_ns == 0 { bytes } else { done + field.random.below((bytes - done) as u64) as usize };
        (present, field.now_ns + 1 + field.random.below(left_ns.max(1)))
    };
    let whole = present == bytes;
    if whole && packet.begun.is_none() {
        return Ok(Some(packet));
    }
    let (kind, envelope) = wire::parse(packet.head).expect("a packet of a rank");
    if packet.begun.is_none() && matches!(kind, Kind::Eager | Kind::EagerSync) {
        packet.begun = rank.begin_bytes(peer, envelope, bytes)?.map(|id| (id.to_raw(), 0));
    }
    let mut at = 0;
    if kind == Kind::Piece {
        let begun = rank.begin_piece(peer, packet.words[0], packet.words[1], bytes, packet.begun.is_none());
        let done = packet.begun.map_or(0, |(_, done)| done);
        packet.begun = begun.map(|(id, _)| (id.to_raw(), done));
        at = begun.map_or(0, |(_, at)| at);
    }
    if let Some((token, done)) = packet.begun {
        let id = p2p::RequestId::from_raw(token);
        rank.more_bytes(id, at + done, &packet.body[done..present].to_vec());
        rank.worker.in_parts += 1;
        packet.begun = Some((token, present));
        if whole && kind == Kind::Piece {
            rank.end_piece(peer, packet.words[0], packet.words[1], bytes)?;
            return Ok(None);
        }
        if whole {
            let request = if kind == Kind::EagerSync { Some(packet.words[0]) } else { None };
            rank.end_bytes(peer, id, bytes, request, DataPath::Eager)?;
            return Ok(None);
        }
    }
    rank.memory.as_mut().expect("the packet came through them").put_back(peer, packet, later_ns);
    Ok(None)
}

/// Takes in what has come through rings. Whether anything has.
pub fn take_in(rank: &mut Rank) -> Result<bool, Error> {
    let mut moved = false;
    let processes = rank.config.processes;
    while let Some((peer, packet)) = rank.memory.as_mut().and_then(|rings| rings.pop(processes)) {
        let Some(packet) = take_part(rank, peer, packet)? else { continue };
        moved = true;
        // As they lie in a line.
        let bytes = 8 * packet.words.len() + packet.body.len();
        let body = packet.body.chunks(8).map(|bytes| {
            let mut whole = [0; 8];
            whole[..bytes.len()].copy_from_slice(bytes);
            u64::from_le_bytes(whole)
        });
        let mut words = [0; 6];
        words.iter_mut().zip(packet.words.iter().copied().chain(body)).for_each(|(to, word)| *to = word);
        if bytes <= 48
            && ((packet.words.is_empty() && rank.arrive_quickly(peer, packet.head, &words, bytes)?)
                || rank.arrive_synchronous(peer, packet.head, &words, bytes)?)
        {
            continue;
        }
        let (kind, envelope) = wire::parse(packet.head).expect("a packet of a rank");
        let path = if packet.body.len() <= 48 { DataPath::Inline } else { DataPath::Eager };
        let good = rank.arrive(peer, kind, envelope, &packet.words, &packet.body, path)?;
        assert!(good, "rank {}: a packet of {peer} was refused: {kind:?} {:?}", rank.config.me, packet.words);
    }
    Ok(moved)
}

impl p2p::Worker for Worker {
    type Error = Error;
    type Fault = Error;
    type Buffer = Buffer;
    type Memory = Rings;
    type Network = Peers;
    type Remote = u64;
    type Share = ();

    fn program_fault(why: String) -> Error {
        Error::Program(why)
    }
    fn transport_error(fault: Error) -> Result<Error, Error> {
        Ok(fault)
    }
    fn count(&mut self, what: Count, more: u64) {
        *self.counts.entry(what as u8).or_default() += more;
    }
    fn received(&mut self, path: DataPath, _: u64) {
        self.routes[path as usize] += 1;
    }
    fn note(&self, _: p2p::Event, _: impl FnOnce() -> [i64; 3]) {}

    fn send_body(rings: &mut Rings, peer: u32, head: [u64; 2], words: &[u64], buffer: &Buffer, (at, bytes): (usize, usize)) -> Result<(), Refused<Error>> {
        rings.push(peer, head, words, buffer.get(at, bytes))
    }
    fn learn(_: &mut Rings, _: u32, address: u64, pieces: u64, _: u64) -> Option<u64> {
        (pieces == 0).then_some(address)
    }
    fn at(address: u64) -> u64 {
        address
    }
    fn copy(rings: &mut Rings, peer: u32, remote: &u64, buffer: &Buffer, (at, bytes): (usize, usize), way: Way) -> Result<(), Error> {
        let region = {
            let field = &mut *rings.shared.borrow_mut();
            if field.random.chance(field.forbid_ppm) {
                return Err(Error::Peer { peer, why: "its memory cannot be reached any more".into() });
            }
            field.regions.get(remote).cloned()
        };
        let region = region.ok_or(Error::Corrupt { peer, what: "a region that is gone", value: *remote })?;
        match way {
            Way::Read => buffer.put(at, &region.bytes.borrow()[at..at + bytes]),
            Way::Write => region.bytes.borrow_mut()[at..at + bytes].copy_from_slice(&buffer.get(at, bytes)),
        }
        Ok(())
    }

    fn eager_limit(rank: &mut Rank, _: u32) -> usize {
        rank.worker.eager_bytes_max
    }
    fn crosses(_: &mut Rank, _: u32, _: usize) {}
    fn reads_crossing(rank: &mut Rank, _: u32, bytes: usize) -> bool {
        bytes > rank.worker.eager_bytes_max / 2
    }
    /// One way or the other, or by its length.
    fn offers(rank: &mut Rank, _: u32, _: usize, expected: bool) -> Option<(bool, u16)> {
        let mut shared = rank.worker.shared.borrow_mut();
        if shared.random.chance(200_000) {
            return None;
        }
        let offers = expected != shared.random.chance(300_000);
        Some((offers, if offers { 0 } else { shared.random.below(4) as u16 }))
    }
    fn own_bytes_max(&self) -> usize {
        self.eager_bytes_max
    }
    fn settle_costs(_: &mut Rank) {}
    /// Any that applies.
    fn fetching(rank: &mut Rank, _: p2p::RequestId, _: u32, abilities: &Abilities, transfer: &Transfer) -> Protocol {
        let reads = abilities.remote_read && transfer.contiguous;
        match rank.worker.shared.borrow_mut().random.below(4) {
            0 => Protocol::Pipelined,
            1 if reads => Protocol::Read,
            _ if reads && abilities.cooperative_copy => Protocol::Cooperative,
            _ if reads => Protocol::Read,
            _ => Protocol::Pipelined,
        }
    }
    fn through_ring(rank: &mut Rank, _: u32, _: u64, _: bool) -> bool {
        rank.worker.shared.borrow_mut().random.chance(500_000)
    }
    fn now_ns(&self) -> u64 {
        self.shared.borrow().now_ns
    }
    fn piece_took(&mut self, _: u32, _: usize, _: Done, _: usize, _: u64) {}
    fn fetched(&mut self, _: p2p::RequestId, _: Protocol, _: bool) {}
    fn shares_copies(&self, _: u64) -> bool {
        true
    }
    fn judge_share(&mut self, (): &()) {}
    fn await_helper(&mut self) {}

    fn look(rank: &mut Rank) -> Result<bool, Error> {
        take_in(rank)
    }
    fn wake_threads(_: &Rank) {}
    fn tell_failed(_: &Rank, _: u32) {}
    fn flush_datagrams(rank: &mut Rank, process: u32) -> Result<bool, Error> {
        let moved = with_network(rank, |network, rank| {
            let moved = rank.queue_datagrams(network, process);
            network.flush(rank, false);
            moved
        });
        Ok(moved.is_some_and(|bytes| bytes > 0))
    }
    fn send_copy(rank: &mut Rank, to: &Target, buffer: &Buffer) -> Result<bool, Error> {
        if rank.is_listed(to.process) {
            return Ok(false);
        }
        let sent = with_network(rank, |network, rank| {
            if buffer.bytes > network.short_bytes_max() || !network.has_room(buffer.bytes) {
                return false;
            }
            let header = Header::new(wire::header(Kind::Eager, to.envelope()), &[]);
            let sent = network.send_copy(network.now_ns(), to.process, header, buffer.bytes, |copy| copy.extend(buffer.get(0, buffer.bytes))).is_ok();
            network.flush(rank, false);
            sent
        });
        if sent == Some(true) {
            rank.count_copy(to);
        }
        Ok(sent == Some(true))
    }
    fn offer_window(rank: &mut Rank, process: u32, rtr: Rtr, envelope: Envelope) -> u32 {
        let header = Header::new(wire::header(Kind::Rtr, envelope), &rtr.to_words());
        let offered = with_network(rank, |network, rank| {
            let window = network.offer(process, header, rtr.room_bytes, rtr.request);
            network.flush(rank, false);
            window
        });
        offered.unwrap_or(0)
    }
    fn hurry(rank: &mut Rank) {
        carry_out(rank);
    }
}
