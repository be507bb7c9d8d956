//! The simulated network of one rank: some peers are reached by reliable datagrams, some by a connection of their own.

use super::field::{Carried, Event, Field, Kind, Shared};
use super::worker::{Error, Rank};
use crate::network::Fate;
use proto::credits::{Allowed, Credits};
use proto::p2p::{Header, Network, RequestId, Window};
use proto::reliability::seal;
use proto::reliability::{Delivery, Endpoint, Failure, Outside, PeerId, Placement, Refused, Route, Sent, Slice};
use std::collections::HashMap;

/// Marks the copy of a short message among the tokens of sends.
const COPY: u64 = 1 << 63;
/// The token of a message without a body.
const NOBODY: u64 = u64::MAX;
/// Copies that are kept at once, bytes.
const COPIES_BYTES_MAX: usize = 1 << 20;

/// This side of a connection.
pub struct Connected {
    credits: Credits,
    released: u64,
    /// Transfers that wait here: tokens of the sender, and their bytes. By what the machine calls them.
    waiting: HashMap<u32, (u64, u64)>,
    next_transfer: u32,
    /// Windows that are offered: receives.
    windows: HashMap<u32, u64>,
}

pub struct Peers {
    me: u32,
    shared: Shared,
    kinds: Vec<Kind>,
    short_bytes_max: usize,
    pub endpoint: Endpoint,
    copies: HashMap<u64, Vec<u8>>,
    copies_bytes: usize,
    next_copy: u64,
    connections: HashMap<u32, Connected>,
    next_window: u32,
}

/// What the reliability layer of a rank sees of it.
struct Edge<'a> {
    shared: &'a Shared,
    copies: &'a mut HashMap<u64, Vec<u8>>,
    copies_bytes: &'a mut usize,
    rank: &'a mut Rank,
}

/// Bytes of the body of a send.
fn body_of(rank: &Rank, copies: &HashMap<u64, Vec<u8>>, token: u64, from: usize, bytes: usize) -> Vec<u8> {
    match copies.get(&token) {
        Some(copy) => copy[from..from + bytes].to_vec(),
        None => rank.buffer_of(RequestId::from_raw(token)).expect("the body of a send that has ended").get(from, bytes),
    }
}

impl Outside for Edge<'_> {
    fn transmit(&mut self, route: Route, header: &mut [u8], payload: &[Slice]) -> Sent {
        let parts: Vec<Vec<u8>> =
            payload.iter().map(|slice| body_of(self.rank, self.copies, slice.send, slice.offset_bytes as usize, slice.length_bytes as usize)).collect();
        let mut bytes = [header.to_vec(), parts.concat()].concat();
        let me = self.rank.config.me;
        let fate = {
            let Field { now_ns, wires, random, seal, .. } = &mut *self.shared.borrow_mut();
            let (head, body) = bytes.split_at_mut(header.len());
            seal::seal_datagram(seal, head, &[body]);
            wires.send(me, route.peer, route.rail, &mut bytes, *now_ns, random)
        };
        match fate {
            Fate::Refused(until_ns) => {
                self.later(until_ns, Event::Writable { rank: me, rail: route.rail });
                Sent::Busy
            }
            Fate::Sent { arrivals, .. } => {
                for at_ns in arrivals.into_iter().flatten() {
                    self.later(at_ns, Event::Datagram { to: route.peer, rail: route.rail, bytes: bytes.clone() });
                }
                Sent::Done
            }
        }
    }

    fn place(&mut self, placement: &Placement, payload: &[u8]) -> bool {
        let Some(buffer) = self.rank.room(placement.receive, placement.offset_bytes, payload.len() as u64) else { return false };
        buffer.put(placement.offset_bytes as usize, payload);
        true
    }

    fn deliver(&mut self, peer: PeerId, delivery: Delivery) {
        let parsed = |envelope| Some(Header::parse(envelope).expect("a header of a rank"));
        let done = match delivery {
            Delivery::Eager { envelope, payload } => self.rank.arrive_message(peer, parsed(envelope), &payload.to_vec()),
            Delivery::Request { envelope, transfer, bytes } => self.rank.arrive_waiting(peer, parsed(envelope), transfer, bytes),
            Delivery::Offer { envelope, window, granted_bytes, capacity_bytes } => {
                self.rank.arrive_window(peer, parsed(envelope), Window { number: window, granted_bytes, capacity_bytes })
            }
            Delivery::Push { envelope, receive, bytes } => {
                assert!(self.rank.arrive_put(peer, parsed(envelope), RequestId::from_raw(receive), bytes), "a put into nothing");
                Ok(())
            }
        };
        done.unwrap_or_else(|error| panic!("rank {}: {error:?}", self.rank.config.me));
    }

    fn complete(&mut self, send: u64, result: Result<(), Failure>) {
        if send == NOBODY {
            return;
        }
        match self.copies.remove(&send) {
            Some(copy) => *self.copies_bytes -= copy.len(),
            None => self.rank.sent(send, result.is_ok()),
        }
    }

    fn received(&mut self, receive: u64, result: Result<(), Failure>) {
        self.rank.fetched_in_datagrams(receive, result.is_ok());
    }

    fn peer_failed(&mut self, peer: PeerId, _: &[u64]) {
        panic!("rank {} has given up {peer}", self.rank.config.me);
    }
}

impl Edge<'_> {
    fn later(&self, at_ns: u64, event: Event) {
        self.shared.borrow_mut().at(at_ns, event);
    }
}

impl Peers {
    /// `kinds`: how each rank is reached. `credits`: what a peer may leave unmatched, as the reliability layer's configuration says for datagrams.
    pub fn new(me: u32, shared: Shared, kinds: Vec<Kind>, short_bytes_max: usize, endpoint: Endpoint, credits: (u64, u64)) -> Peers {
        let connection =
            |_| Connected { credits: Credits::new(credits.0, credits.1), released: 0, waiting: HashMap::new(), next_transfer: 0, windows: HashMap::new() };
        let connected = (0..).zip(&kinds).filter(|(_, kind)| **kind == Kind::Connection);
        let connections = connected.map(|(peer, _)| (peer, connection(peer))).collect();
        let (copies, copies_bytes) = (HashMap::new(), 0);
        Peers { me, shared, kinds, short_bytes_max, endpoint, copies, copies_bytes, next_copy: COPY, connections, next_window: 1 }
    }

    fn split<'a>(&'a mut self, rank: &'a mut Rank) -> (&'a mut Endpoint, Edge<'a>) {
        let Peers { endpoint, shared, copies, copies_bytes, .. } = self;
        (endpoint, Edge { shared, copies, copies_bytes, rank })
    }

    /// Lets datagrams leave.
    pub fn flush(&mut self, rank: &mut Rank) {
        let now_ns = self.now_ns();
        let (endpoint, mut edge) = self.split(rank);
        endpoint.flush(now_ns, &mut edge);
    }

    pub fn tick(&mut self, rank: &mut Rank) {
        let now_ns = self.now_ns();
        let (endpoint, mut edge) = self.split(rank);
        endpoint.tick(now_ns, &mut edge);
    }

    pub fn datagram(&mut self, rank: &mut Rank, rail: u8, mut bytes: Vec<u8>) {
        let (now_ns, seal) = (self.now_ns(), self.shared.borrow().seal);
        let (endpoint, mut edge) = self.split(rank);
        if let Some(packet) = seal::open_datagram(&seal, &mut bytes) {
            endpoint.arrived(now_ns, rail, &packet, &mut edge);
        }
    }

    fn carry(&self, to: u32, after_ns: u64, what: Carried) {
        self.shared.borrow_mut().carry(self.me, to, after_ns, what);
    }

    fn connection(&mut self, peer: u32) -> &mut Connected {
        self.connections.get_mut(&peer).expect("a connection")
    }

    /// Takes credit for a message over a connection: eager, header, or nothing now.
    fn credit(&mut self, peer: u32, bytes: u64, eager: bool) -> Allowed {
        let credits = &mut self.connection(peer).credits;
        if eager && credits.take_eager(bytes) {
            Allowed::Eager
        } else if credits.take_header() {
            Allowed::Header
        } else {
            Allowed::Wait
        }
    }

    fn keep(&mut self, write: impl FnOnce(&mut Vec<u8>)) -> u64 {
        let mut copy = Vec::new();
        write(&mut copy);
        self.copies_bytes += copy.len();
        self.next_copy += 1;
        self.copies.insert(self.next_copy, copy);
        self.next_copy
    }

    fn drop_copy(&mut self, token: u64) {
        let copy = self.copies.remove(&token).expect("a copy");
        self.copies_bytes -= copy.len();
    }

    /// Offers a window for the receive `token`. 0 where that is not possible now.
    pub fn offer(&mut self, peer: u32, header: Header, capacity_bytes: u64, token: u64) -> u32 {
        if self.kinds[peer as usize] == Kind::Datagrams {
            let (bytes, length) = header.to_bytes();
            let now_ns = self.now_ns();
            return self.endpoint.offer(now_ns, peer, &bytes[..length], capacity_bytes, token).unwrap_or(0);
        }
        if self.credit(peer, 0, false) == Allowed::Wait {
            return 0;
        }
        let number = self.next_window;
        self.next_window += 1;
        self.connection(peer).windows.insert(number, token);
        let register_ns = self.shared.borrow_mut().register(capacity_bytes);
        let after_ns = self.now_ns() + register_ns;
        self.carry(peer, after_ns, Carried::Offer { header, window: Window { number, granted_bytes: capacity_bytes, capacity_bytes } });
        number
    }

    /// Carries out what arrivals have given rise to.
    pub fn carry_out(&mut self, rank: &mut Rank) {
        let now_ns = self.now_ns();
        for (peer, bytes) in std::mem::take(&mut rank.actions.releases) {
            match self.kinds[peer as usize] {
                Kind::Datagrams => self.endpoint.release(now_ns, peer, bytes),
                _ => {
                    let connection = self.connection(peer);
                    connection.released += bytes + proto::credits::OVERHEAD_BYTES;
                    let bytes = connection.released;
                    self.carry(peer, 0, Carried::Released { bytes });
                }
            }
        }
        for (peer, window) in std::mem::take(&mut rank.actions.withdrawals) {
            match self.kinds[peer as usize] {
                Kind::Datagrams => self.endpoint.withdraw(peer, window),
                _ => drop(self.connection(peer).windows.remove(&window)),
            }
        }
        for (peer, id, window) in std::mem::take(&mut rank.actions.fills) {
            // Over a connection the receiver reads.
            if self.kinds[peer as usize] == Kind::Datagrams {
                self.endpoint.fill(peer, id.to_raw(), window.number, window.granted_bytes, window.capacity_bytes);
            }
        }
        while let Some((pull, id, window)) = rank.actions.fetches.front().copied() {
            let bytes = id.map_or(0, |id| rank.bytes_to_fetch(id));
            let token = id.map_or(0, RequestId::to_raw);
            let done = match (self.kinds[pull.peer as usize], window) {
                (Kind::Datagrams, 0) => self.endpoint.receive(now_ns, pull.peer, pull.transfer, bytes, token),
                (Kind::Datagrams, window) => self.endpoint.adopt(now_ns, pull.peer, window, pull.transfer, bytes),
                (_, window) => {
                    self.read(pull.peer, pull.transfer, id.map(|_| (token, bytes)), window);
                    Ok(())
                }
            };
            if done == Err(Refused::Full) {
                break;
            }
            assert_eq!(done, Ok(()), "rank {} fetches of {}", self.me, pull.peer);
            rank.actions.fetches.pop_front();
        }
        assert!(rank.actions.abandoned.is_empty(), "nobody fails here");
    }

    /// Reads the body of a transfer of `peer` into a receive, or says that nobody wants it.
    fn read(&mut self, peer: u32, transfer: u32, into: Option<(u64, u64)>, window: u32) {
        let connection = self.connection(peer);
        connection.windows.remove(&window);
        let (token, _) = connection.waiting.remove(&transfer).expect("a transfer that waits");
        let Some((receive, bytes)) = into else { return self.carry(peer, 0, Carried::Done { token }) };
        let me = self.me;
        let field = &mut *self.shared.borrow_mut();
        let register_ns = field.register(bytes);
        let at_ns = field.now_ns + register_ns + 2 * field.connection.latency_ns;
        field.at(at_ns, Event::Read { from: peer, to: me, token, receive, bytes });
    }

    /// The body of a send, for whoever reads it.
    pub fn body(&self, rank: &Rank, token: u64, bytes: u64) -> Vec<u8> {
        body_of(rank, &self.copies, token, 0, bytes as usize)
    }

    /// A read has ended: the sender may go on.
    pub fn read_done(&mut self, peer: u32, token: u64) {
        self.shared.borrow_mut().reads += 1;
        self.carry(peer, 0, Carried::Done { token });
    }

    /// Something that a connection has brought.
    pub fn carried(&mut self, rank: &mut Rank, from: u32, what: Carried) -> Result<(), Error> {
        match what {
            Carried::Message { header, body } => rank.arrive_message(from, Some(header), &body),
            Carried::Waiting { header, token, bytes } => {
                let connection = self.connection(from);
                connection.next_transfer += 1;
                let transfer = connection.next_transfer;
                connection.waiting.insert(transfer, (token, bytes));
                rank.arrive_waiting(from, Some(header), transfer, bytes)
            }
            Carried::Offer { header, window } => rank.arrive_window(from, Some(header), window),
            Carried::Put { header, window, token, bytes } => {
                let receive = self.connection(from).windows.remove(&window).expect("a window that is offered");
                assert!(rank.arrive_put(from, Some(header), RequestId::from_raw(receive), bytes), "a put into nothing");
                let me = self.me;
                let field = &mut *self.shared.borrow_mut();
                field.puts += 1;
                let at_ns = field.now_ns;
                field.at(at_ns, Event::Read { from, to: me, token, receive, bytes });
                Ok(())
            }
            Carried::Done { token } => {
                match token & COPY {
                    0 => rank.sent(token, true),
                    _ => self.drop_copy(token),
                }
                Ok(())
            }
            Carried::Released { bytes } => {
                assert!(self.connection(from).credits.released(bytes), "a release past what was sent");
                Ok(())
            }
            Carried::Widen => {
                self.connection(from).credits.widen();
                Ok(())
            }
        }
    }

    /// Nothing is under way, and all credit has come back.
    pub fn is_quiet(&self) -> bool {
        let idle = |one: &Connected| one.waiting.is_empty() && one.credits.outstanding_bytes() == 0;
        self.endpoint.is_quiet() && self.copies.is_empty() && self.connections.values().all(idle)
    }
}

impl Network for Peers {
    fn short_bytes_max(&self) -> usize {
        self.short_bytes_max
    }
    fn has_room(&self, bytes: usize) -> bool {
        self.copies_bytes + bytes <= COPIES_BYTES_MAX
    }
    fn now_ns(&self) -> u64 {
        self.shared.borrow().now_ns
    }
    fn known(&self) -> usize {
        self.kinds.len() - 1
    }
    fn knows(&self, _: u32) -> bool {
        true
    }

    fn send_header(&mut self, now_ns: u64, process: u32, header: Header) -> Result<(), Refused> {
        if self.kinds[process as usize] == Kind::Datagrams {
            let (bytes, length) = header.to_bytes();
            return self.endpoint.send(now_ns, process, &bytes[..length], NOBODY, 0, false);
        }
        if self.credit(process, 0, true) == Allowed::Wait {
            return Err(Refused::Full);
        }
        self.carry(process, 0, Carried::Message { header, body: Vec::new() });
        Ok(())
    }

    fn send_copy(&mut self, now_ns: u64, process: u32, header: Header, bytes: usize, write: impl FnOnce(&mut Vec<u8>)) -> Result<(), Refused> {
        if self.kinds[process as usize] == Kind::Datagrams {
            let copy = self.keep(write);
            let (head, length) = header.to_bytes();
            let sent = self.endpoint.send(now_ns, process, &head[..length], copy, bytes as u64, false);
            if sent.is_err() {
                self.drop_copy(copy);
            }
            return sent;
        }
        match self.credit(process, bytes as u64, true) {
            Allowed::Wait => return Err(Refused::Full),
            Allowed::Eager => {
                let mut body = Vec::new();
                write(&mut body);
                self.carry(process, 0, Carried::Message { header, body });
            }
            Allowed::Header => {
                let token = self.keep(write);
                self.carry(process, 0, Carried::Waiting { header, token, bytes: bytes as u64 });
            }
        }
        Ok(())
    }

    fn send(&mut self, now_ns: u64, process: u32, header: Header, token: u64, bytes: u64, waits: bool) -> Result<(), Refused> {
        if self.kinds[process as usize] == Kind::Datagrams {
            let (head, length) = header.to_bytes();
            return self.endpoint.send(now_ns, process, &head[..length], token, bytes, waits);
        }
        if self.credit(process, 0, false) == Allowed::Wait {
            return Err(Refused::Full);
        }
        let register_ns = self.shared.borrow_mut().register(bytes);
        self.carry(process, now_ns + register_ns, Carried::Waiting { header, token, bytes });
        Ok(())
    }

    fn put(&mut self, now_ns: u64, process: u32, header: Header, window: Window, token: u64, bytes: u64) -> Result<(), Refused> {
        if self.kinds[process as usize] == Kind::Datagrams {
            let (head, length) = header.to_bytes();
            return self.endpoint.push(now_ns, process, &head[..length], window.number, window.granted_bytes, token, bytes);
        }
        if self.credit(process, 0, false) == Allowed::Wait {
            return Err(Refused::Full);
        }
        let register_ns = self.shared.borrow_mut().register(bytes);
        self.carry(process, now_ns + register_ns, Carried::Put { header, window: window.number, token, bytes });
        Ok(())
    }

    fn widen(&mut self, process: u32) {
        match self.kinds[process as usize] {
            Kind::Datagrams => {
                let now_ns = self.now_ns();
                self.endpoint.widen(now_ns, process);
            }
            _ => self.carry(process, 0, Carried::Widen),
        }
    }
}
