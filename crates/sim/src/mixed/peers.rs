//! The simulated network of one rank: all peers are reached by reliable datagrams, and some by a connection too, which comes, goes and breaks.

use super::field::{Carried, Event, Field, Kind, Shared};
use super::worker::Rank;
use crate::network::Fate;
use proto::credits::Credits;
use proto::p2p::{Header, Network, RequestId, Window};
use proto::reliability::seal;
use proto::reliability::{Begun, Delivery, Endpoint, Failure, Outside, PeerId, Placement, Refused, SendPath, Sent, Slice};
use proto::routes::{Arrived, Routes, Taker, Transports};
use std::collections::HashMap;

/// Marks the copy of a short message among the tokens of sends.
const COPY: u64 = 1 << 63;
/// The token of a message without a body.
const NOBODY: u64 = u64::MAX;
/// Copies that are kept at once, bytes.
const COPIES_BYTES_MAX: usize = 1 << 20;
/// How a rank is reached.
pub const DATAGRAMS: u8 = 0;
pub const CONNECTION: u8 = 1;

/// This side of a connection.
struct Connected {
    credits: Credits,
    released: u64,
    /// Transfers that wait at the peer: its tokens.
    waiting: HashMap<u32, u64>,
    next_transfer: u32,
    /// Windows that are offered: receives.
    windows: HashMap<u32, u64>,
    /// Which connection to the peer it is.
    epoch: u32,
}

/// What the reliability layer has told.
enum Inbox {
    Arrived(u32, Arrived),
    Received(u64),
}

pub struct Peers {
    kinds: Vec<Kind>,
    short_bytes_max: usize,
    pub routes: Routes,
    pub both: Both,
}

/// Both transports of one rank.
pub struct Both {
    me: u32,
    shared: Shared,
    pub endpoint: Endpoint,
    copies: HashMap<u64, Vec<u8>>,
    copies_bytes: usize,
    next_copy: u64,
    connections: HashMap<u32, Connected>,
    credits: (u64, u64),
    next_window: u32,
}

/// What the reliability layer of a rank sees of it.
struct Edge<'a> {
    kinds: &'a [Kind],
    shared: &'a Shared,
    copies: &'a mut HashMap<u64, Vec<u8>>,
    copies_bytes: &'a mut usize,
    routes: &'a mut Routes,
    rank: &'a mut Rank,
    inbox: Vec<Inbox>,
}

/// The machine of a rank takes what its turn has come of.
struct Program<'a>(&'a mut Rank);

impl Taker for Program<'_> {
    fn take(&mut self, peer: u32, arrived: Arrived) {
        let done = match arrived {
            Arrived::Message { header, body } => self.0.arrive_message(peer, Some(header), &body),
            Arrived::Waiting { header, transfer, bytes } => self.0.arrive_waiting(peer, Some(header), transfer, bytes),
            Arrived::Offer { header, window } => self.0.arrive_window(peer, Some(header), window),
            Arrived::Put { header, receive, bytes } => {
                assert!(self.0.arrive_put(peer, Some(header), RequestId::from_raw(receive), bytes), "rank {}: a put into nothing", self.0.config.me);
                Ok(())
            }
        };
        done.unwrap_or_else(|error| panic!("rank {}: {error:?}", self.0.config.me));
    }

    fn filled(&mut self, receive: u64) {
        assert!(self.0.fetched_in_datagrams(receive, true), "rank {}: a receive that is not under way was filled", self.0.config.me);
    }
}

/// Bytes of the body of a send.
fn body_of(rank: &Rank, copies: &HashMap<u64, Vec<u8>>, token: u64, from: usize, bytes: usize) -> Vec<u8> {
    match copies.get(&token) {
        Some(copy) => copy[from..from + bytes].to_vec(),
        None => rank.buffer_of(RequestId::from_raw(token)).expect("the body of a send that has ended").get(from, bytes),
    }
}

impl Outside for Edge<'_> {
    fn transmit(&mut self, route: SendPath, header: &mut [u8], payload: &[Slice]) -> Sent {
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

    /// What may come by a connection has its turn first.
    fn begin(&mut self, peer: PeerId, envelope: &[u8], bytes: u64) -> Option<Begun> {
        match self.kinds[peer as usize] {
            Kind::Datagrams => self.rank.begin_message(peer, Header::parse(envelope), bytes),
            _ => None,
        }
    }

    fn deliver(&mut self, peer: PeerId, delivery: Delivery) {
        let parsed = |envelope| Header::parse(envelope).expect("a header of a rank");
        let arrived = match delivery {
            Delivery::Eager { envelope, payload } => Arrived::Message { header: parsed(envelope), body: payload.to_vec() },
            Delivery::Placed { envelope, receive, bytes } => {
                let ended = self.rank.end_message(peer, Header::parse(envelope), RequestId::from_raw(receive), bytes);
                return ended.unwrap_or_else(|error| panic!("rank {}: {error:?}", self.rank.config.me));
            }
            Delivery::Request { envelope, transfer, bytes } => Arrived::Waiting { header: parsed(envelope), transfer, bytes },
            Delivery::Offer { envelope, window, granted_bytes, capacity_bytes } => {
                Arrived::Offer { header: parsed(envelope), window: Window { number: window, granted_bytes, capacity_bytes } }
            }
            Delivery::Push { envelope, receive, bytes } => Arrived::Put { header: parsed(envelope), receive, bytes },
        };
        match self.kinds[peer as usize] {
            Kind::Datagrams => Program(self.rank).take(peer, arrived),
            // Taken in its turn, when the reliability layer can be asked for things again.
            _ => self.inbox.push(Inbox::Arrived(peer, arrived)),
        }
    }

    fn complete(&mut self, send: u64, result: Result<(), Failure>) {
        if send == NOBODY {
            return;
        }
        match self.copies.remove(&send) {
            Some(copy) => *self.copies_bytes -= copy.len(),
            None => {
                self.routes.sent(send);
                self.rank.sent(send, result.is_ok());
            }
        }
    }

    fn received(&mut self, receive: u64, result: Result<(), Failure>) {
        assert!(result.is_ok());
        self.inbox.push(Inbox::Received(receive));
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
    /// `kinds`: how each rank is reached. `credits`: what a peer may leave unmatched over a connection.
    pub fn new(me: u32, shared: Shared, kinds: Vec<Kind>, short_bytes_max: usize, endpoint: Endpoint, credits: (u64, u64)) -> Peers {
        let both =
            Both { me, shared, endpoint, copies: HashMap::new(), copies_bytes: 0, next_copy: COPY, connections: HashMap::new(), credits, next_window: 1 };
        Peers { kinds, short_bytes_max, routes: Routes::default(), both }
    }

    fn routed(&self, peer: u32) -> bool {
        self.kinds[peer as usize] == Kind::Connection
    }

    /// Does something with the reliability layer, then deals with what that has told.
    fn with_endpoint(&mut self, rank: &mut Rank, act: impl FnOnce(&mut Endpoint, u64, &mut Edge)) {
        let Peers { kinds, routes, both, .. } = self;
        let now_ns = both.shared.borrow().now_ns;
        let Both { endpoint, shared, copies, copies_bytes, .. } = both;
        let mut edge = Edge { kinds, shared, copies, copies_bytes, routes, rank, inbox: Vec::new() };
        act(endpoint, now_ns, &mut edge);
        for told in edge.inbox {
            match told {
                Inbox::Arrived(peer, arrived) => self.routes.arrived(peer, DATAGRAMS, arrived, &mut self.both, &mut Program(rank)),
                Inbox::Received(token) => self.received(rank, token),
            }
        }
    }

    fn received(&mut self, rank: &mut Rank, token: u64) {
        if self.routes.got(token) {
            rank.fetched_in_datagrams(token, true);
        }
    }

    /// Lets datagrams leave. `idle`: the rank has nothing else to do.
    pub fn flush(&mut self, rank: &mut Rank, idle: bool) {
        self.routes.flush(CONNECTION, idle, &mut self.both);
        self.with_endpoint(rank, |endpoint, now_ns, edge| endpoint.flush(now_ns, edge));
    }

    pub fn tick(&mut self, rank: &mut Rank) {
        self.with_endpoint(rank, |endpoint, now_ns, edge| endpoint.tick(now_ns, edge));
    }

    pub fn datagram(&mut self, rank: &mut Rank, rail: u8, mut bytes: Vec<u8>) {
        let seal = self.both.shared.borrow().seal;
        self.with_endpoint(rank, |endpoint, now_ns, edge| {
            if let Some(packet) = seal::open_datagram(&seal, &mut bytes) {
                endpoint.arrived(now_ns, rail, &packet, edge);
            }
        });
    }

    /// New messages to `peer` take another route.
    pub fn switch(&mut self, peer: u32, route: u8) {
        self.routes.switch(peer, route);
    }

    /// The connection to `peer` is broken, if it is not one that was made after that.
    pub fn broken(&mut self, peer: u32) {
        let epoch = self.both.shared.borrow().epoch(self.both.me, peer);
        if self.both.connections.get(&peer).is_some_and(|connection| connection.epoch == epoch) {
            return;
        }
        self.both.connections.remove(&peer);
        self.routes.switch(peer, DATAGRAMS);
        self.routes.broken(peer, CONNECTION, &mut self.both);
    }

    /// Offers a window for the receive `token`. 0 where that is not possible now.
    pub fn offer(&mut self, peer: u32, header: Header, capacity_bytes: u64, token: u64) -> u32 {
        match self.routed(peer) {
            true => self.routes.offer(peer, header, capacity_bytes, token, &mut self.both),
            false => self.both.offer(DATAGRAMS, peer, header, capacity_bytes, token),
        }
    }

    /// Carries out what arrivals have given rise to.
    pub fn carry_out(&mut self, rank: &mut Rank) {
        for (peer, bytes) in std::mem::take(&mut rank.actions.releases) {
            match self.routed(peer) {
                true => self.routes.release(peer, bytes, &mut self.both),
                false => self.both.release(DATAGRAMS, peer, bytes),
            }
        }
        for (peer, window) in std::mem::take(&mut rank.actions.withdrawals) {
            match self.routed(peer) {
                true => self.routes.withdraw(peer, window, &mut self.both),
                false => self.both.withdraw(DATAGRAMS, peer, window),
            }
        }
        for (peer, id, window) in std::mem::take(&mut rank.actions.fills) {
            match self.routed(peer) {
                true => self.routes.fill(peer, id.to_raw(), window.number, &mut self.both),
                false => self.both.fill(DATAGRAMS, peer, id.to_raw(), window),
            }
        }
        while let Some((pull, id, window)) = rank.actions.fetches.front().copied() {
            let (peer, transfer) = (pull.peer, pull.transfer);
            let done = match (id, self.routed(peer)) {
                (Some(id), true) => self.routes.get(peer, transfer, rank.bytes_to_fetch(id), id.to_raw(), window, &mut self.both),
                (Some(id), false) => self.both.get(DATAGRAMS, peer, transfer, rank.bytes_to_fetch(id), id.to_raw(), window),
                (None, true) => self.routes.decline(peer, transfer, &mut self.both),
                (None, false) => self.both.decline(DATAGRAMS, peer, transfer),
            };
            if done == Err(Refused::Full) {
                break;
            }
            assert_eq!(done, Ok(()), "rank {} fetches of {peer}", self.both.me);
            rank.actions.fetches.pop_front();
        }
        assert!(rank.actions.abandoned.is_empty(), "nobody fails here");
    }

    /// The body of a send, for whoever reads it.
    pub fn body(&self, rank: &Rank, token: u64, bytes: u64) -> Vec<u8> {
        body_of(rank, &self.both.copies, token, 0, bytes as usize)
    }

    /// A read has ended: the sender may go on.
    pub fn read_done(&mut self, rank: &mut Rank, peer: u32, token: u64, receive: u64) {
        self.received(rank, receive);
        self.both.shared.borrow_mut().reads += 1;
        self.both.carry(peer, 0, Carried::Done { token });
    }

    /// Something that a connection has brought.
    pub fn carried(&mut self, rank: &mut Rank, from: u32, what: Carried) {
        // Whoever is spoken to over a new connection knows that the old one is gone.
        if self.both.connections.contains_key(&from) {
            self.broken(from);
        }
        let connection = self.both.connection(from);
        let arrived = match what {
            Carried::Message { header, body } => Arrived::Message { header, body },
            Carried::Waiting { header, token, bytes } => {
                connection.next_transfer += 1;
                connection.waiting.insert(connection.next_transfer, token);
                Arrived::Waiting { header, transfer: connection.next_transfer, bytes }
            }
            Carried::Offer { header, window } => Arrived::Offer { header, window },
            Carried::Put { header, window, token, bytes } => {
                let receive = connection.windows.remove(&window).expect("a window that is offered");
                let epoch = connection.epoch;
                let field = &mut *self.both.shared.borrow_mut();
                field.puts += 1;
                let at_ns = field.now_ns;
                field.at(at_ns, Event::Read { from, to: self.both.me, token, receive, bytes, epoch });
                Arrived::Put { header, receive, bytes }
            }
            Carried::Done { token } => {
                if self.routes.sent(token) {
                    rank.sent(token, true);
                }
                return;
            }
            Carried::Released { bytes } => {
                assert!(connection.credits.released(bytes), "a release past what was sent");
                return;
            }
            Carried::Widen => return connection.credits.widen(),
        };
        self.routes.arrived(from, CONNECTION, arrived, &mut self.both, &mut Program(rank));
    }

    /// Nothing is under way, and all memory of messages is free.
    pub fn is_quiet(&self) -> bool {
        self.both.endpoint.is_quiet() && self.both.copies.is_empty() && self.routes.is_quiet() && self.routes.unreleased() == 0
    }
}

impl Both {
    fn carry(&mut self, to: u32, after_ns: u64, what: Carried) {
        let epoch = self.connection(to).epoch;
        self.shared.borrow_mut().carry((self.me, to), epoch, after_ns, what);
    }

    fn connection(&mut self, peer: u32) -> &mut Connected {
        let (credits, epoch) = (self.credits, self.shared.borrow().epoch(self.me, peer));
        self.connections.entry(peer).or_insert_with(|| Connected {
            credits: Credits::new(credits.0, credits.1),
            released: 0,
            waiting: HashMap::new(),
            next_transfer: 0,
            windows: HashMap::new(),
            epoch,
        })
    }

    /// Takes credit for a header over a connection.
    fn header_credit(&mut self, peer: u32) -> Result<(), Refused> {
        if self.connection(peer).credits.take_header() { Ok(()) } else { Err(Refused::Full) }
    }

    fn keep(&mut self, copy: Vec<u8>) -> u64 {
        self.copies_bytes += copy.len();
        self.next_copy += 1;
        self.copies.insert(self.next_copy, copy);
        self.next_copy
    }

    fn drop_copy(&mut self, token: u64) {
        let copy = self.copies.remove(&token).expect("a copy");
        self.copies_bytes -= copy.len();
    }

    fn now_ns(&self) -> u64 {
        self.shared.borrow().now_ns
    }
}

impl Transports for Both {
    fn send_header(&mut self, route: u8, peer: u32, header: Header) -> Result<(), Refused> {
        if route == DATAGRAMS {
            let (bytes, length) = header.to_bytes();
            return self.endpoint.send(self.now_ns(), peer, &bytes[..length], NOBODY, 0, false);
        }
        self.header_credit(peer)?;
        self.carry(peer, 0, Carried::Message { header, body: Vec::new() });
        Ok(())
    }

    fn send_copy(&mut self, route: u8, peer: u32, header: Header, body: &[u8]) -> Result<(), Refused> {
        let bytes = body.len() as u64;
        if route == DATAGRAMS {
            let copy = self.keep(body.to_vec());
            let (head, length) = header.to_bytes();
            let sent = self.endpoint.send(self.now_ns(), peer, &head[..length], copy, bytes, false);
            if sent.is_err() {
                self.drop_copy(copy);
            }
            return sent;
        }
        if !self.connection(peer).credits.take_eager(bytes) {
            return Err(Refused::Full);
        }
        self.carry(peer, 0, Carried::Message { header, body: body.to_vec() });
        Ok(())
    }

    fn send(&mut self, route: u8, peer: u32, header: Header, token: u64, bytes: u64, waits: bool) -> Result<(), Refused> {
        let now_ns = self.now_ns();
        if route == DATAGRAMS {
            let (head, length) = header.to_bytes();
            return self.endpoint.send(now_ns, peer, &head[..length], token, bytes, waits);
        }
        self.header_credit(peer)?;
        let register_ns = self.shared.borrow_mut().register(bytes);
        self.carry(peer, now_ns + register_ns, Carried::Waiting { header, token, bytes });
        Ok(())
    }

    fn put(&mut self, route: u8, peer: u32, header: Header, window: Window, token: u64, bytes: u64) -> Result<(), Refused> {
        let now_ns = self.now_ns();
        if route == DATAGRAMS {
            let (head, length) = header.to_bytes();
            return self.endpoint.push(now_ns, peer, &head[..length], window.number, window.granted_bytes, token, bytes);
        }
        self.header_credit(peer)?;
        let register_ns = self.shared.borrow_mut().register(bytes);
        self.carry(peer, now_ns + register_ns, Carried::Put { header, window: window.number, token, bytes });
        Ok(())
    }

    fn offer(&mut self, route: u8, peer: u32, header: Header, capacity_bytes: u64, token: u64) -> u32 {
        let now_ns = self.now_ns();
        if route == DATAGRAMS {
            let (bytes, length) = header.to_bytes();
            return self.endpoint.offer(now_ns, peer, &bytes[..length], capacity_bytes, token).unwrap_or(0);
        }
        if self.header_credit(peer).is_err() {
            return 0;
        }
        let number = self.next_window;
        self.next_window += 1;
        self.connection(peer).windows.insert(number, token);
        let register_ns = self.shared.borrow_mut().register(capacity_bytes);
        let window = Window { number, granted_bytes: capacity_bytes, capacity_bytes };
        self.carry(peer, now_ns + register_ns, Carried::Offer { header, window });
        number
    }

    fn withdraw(&mut self, route: u8, peer: u32, window: u32) {
        match route {
            DATAGRAMS => self.endpoint.withdraw(peer, window),
            _ => drop(self.connection(peer).windows.remove(&window)),
        }
    }

    fn fill(&mut self, route: u8, peer: u32, token: u64, window: Window) {
        // Over a connection the receiver reads.
        if route == DATAGRAMS {
            self.endpoint.fill(peer, token, window.number, window.granted_bytes, window.capacity_bytes);
        }
    }

    fn get(&mut self, route: u8, peer: u32, transfer: u32, bytes: u64, token: u64, window: u32) -> Result<(), Refused> {
        let now_ns = self.now_ns();
        match (route, window) {
            (DATAGRAMS, 0) => return self.endpoint.receive(now_ns, peer, transfer, bytes, token),
            (DATAGRAMS, window) => return self.endpoint.adopt(now_ns, peer, window, transfer, bytes),
            _ => {}
        }
        let connection = self.connection(peer);
        connection.windows.remove(&window);
        let epoch = connection.epoch;
        let there = connection.waiting.remove(&transfer).expect("a transfer that waits");
        let me = self.me;
        let field = &mut *self.shared.borrow_mut();
        let register_ns = field.register(bytes);
        let at_ns = now_ns + register_ns + 2 * field.connection.latency_ns;
        field.at(at_ns, Event::Read { from: peer, to: me, token: there, receive: token, bytes, epoch });
        Ok(())
    }

    fn decline(&mut self, route: u8, peer: u32, transfer: u32) -> Result<(), Refused> {
        if route == DATAGRAMS {
            return self.endpoint.receive(self.now_ns(), peer, transfer, 0, 0);
        }
        let token = self.connection(peer).waiting.remove(&transfer).expect("a transfer that waits");
        self.carry(peer, 0, Carried::Done { token });
        Ok(())
    }

    fn release(&mut self, route: u8, peer: u32, bytes: u64) {
        if route == DATAGRAMS {
            let now_ns = self.now_ns();
            return self.endpoint.release(now_ns, peer, bytes);
        }
        let connection = self.connection(peer);
        connection.released += bytes + proto::credits::OVERHEAD_BYTES;
        let bytes = connection.released;
        self.carry(peer, 0, Carried::Released { bytes });
    }
}

impl Network for Peers {
    fn short_bytes_max(&self) -> usize {
        self.short_bytes_max
    }
    fn has_room(&self, bytes: usize) -> bool {
        self.both.copies_bytes + bytes <= COPIES_BYTES_MAX
    }
    fn now_ns(&self) -> u64 {
        self.both.now_ns()
    }
    fn known(&self) -> usize {
        self.kinds.len() - 1
    }
    fn knows(&self, _: u32) -> bool {
        true
    }

    fn send_header(&mut self, _: u64, process: u32, header: Header) -> Result<(), Refused> {
        match self.routed(process) {
            true => self.routes.send_header(process, header, &mut self.both),
            false => self.both.send_header(DATAGRAMS, process, header),
        }
    }

    fn send_copy(&mut self, _: u64, process: u32, header: Header, _: usize, write: impl FnOnce(&mut Vec<u8>)) -> Result<(), Refused> {
        let mut copy = Vec::new();
        write(&mut copy);
        match self.routed(process) {
            true => self.routes.send_copy(process, header, copy, &mut self.both),
            false => self.both.send_copy(DATAGRAMS, process, header, &copy),
        }
    }

    fn send(&mut self, _: u64, process: u32, header: Header, token: u64, bytes: u64, waits: bool) -> Result<(), Refused> {
        match self.routed(process) {
            true => self.routes.send(process, header, (token, bytes, waits), &mut self.both),
            false => self.both.send(DATAGRAMS, process, header, token, bytes, waits),
        }
    }

    fn put(&mut self, _: u64, process: u32, header: Header, window: Window, token: u64, bytes: u64) -> Result<(), Refused> {
        match self.routed(process) {
            true => self.routes.put(process, header, window.number, (token, bytes), &mut self.both),
            false => self.both.put(DATAGRAMS, process, header, window, token, bytes),
        }
    }

    fn widen(&mut self, process: u32) {
        let now_ns = self.both.now_ns();
        self.both.endpoint.widen(now_ns, process);
        if self.both.connections.contains_key(&process) {
            self.both.carry(process, 0, Carried::Widen);
        }
    }
}
