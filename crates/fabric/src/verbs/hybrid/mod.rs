//! Datagrams for every peer, and connections for those whose traffic earns them ([`earning`]).
//!
//! - Every peer is reached in datagrams (UD, or UDP where it has no ports), and is all that it is there. Messages to it are numbered ([`proto::routes`]) from the first connection on: so they keep
//!   one order over both, whatever comes and goes.
//! - A connection (RC) is agreed on in words between the messages ([`handshake`], [`words`]), so they are as safe as these, and come in order.
//! - One that breaks, or that goes back since nobody earns it, is closed by both sides; what was on it leaves again in datagrams. Until its receiver has said
//!   that it has a message, its sender has the body, or a copy of it.
//! - Peers that fail do so in datagrams: a connection that breaks says nothing about its peer.

mod bond;
mod earning;
mod edge;
mod handshake;
#[cfg(test)]
mod tests;
mod words;

use proto::p2p::{Header, Window};
use proto::reliability::{COPIED_BYTES_MAX, Config, Failure, PeerId, Refused};
use proto::routes::{Routes, Transports};
use std::collections::VecDeque;

use super::connections::{Connections, InPlaceUse, Keeps};
use super::{Ports, Unusable};
use crate::reliable::{JobKey, NOBODY, NetworkCounters, NoCard, Program, Protection, Reliable, Watch};
use bond::Bonds;
use earning::{Earning, FETCH};
use edge::{CONNECTION, Copies, DATAGRAMS, Edge, InTurn, Told};
use handshake::{Heard, Word};

/// Who hears nothing else of a message that has come over a connection is told after this time, ns.
const TELL_NS: u64 = 200_000;
/// A process makes no connection to a peer that has left more than so much unmatched here over one that is gone, bytes.
const STALE_BYTES_MAX: u64 = 64 << 10;
/// Looks without success for each look at the clock.
const LOOKS_PER_TIME: u32 = 64;

/// When peers get connections.
#[derive(Clone, Copy, Debug)]
pub struct Terms {
    /// Most of a process.
    pub connections_max: u32,
    /// What one costs, in messages.
    pub price: u32,
    /// What a peer has earned halves in this time, ns.
    pub period_ns: u64,
}

/// Both transports.
#[derive(Debug)]
struct Both {
    datagrams: Reliable<Ports>,
    connections: Connections,
    copies: Copies,
    now_ns: u64,
}

/// A process that is reached both ways.
#[derive(Debug)]
pub struct Hybrid {
    both: Both,
    routes: Routes,
    bonds: Bonds,
    told: VecDeque<Told>,
    /// Words that have not left.
    unsaid: VecDeque<(PeerId, Header)>,
    /// Peers whose connections are open, but messages do not take them yet: there was no room to say that they are numbered.
    unopened: Vec<PeerId>,
    /// When peers are told of what has come, and when connections go back.
    tell_ns: u64,
    check_ns: u64,
    looks: u32,
    /// Since the last peer failed something of the program has ended without success.
    hurt: bool,
    counters: trace::Connections,
}

impl std::fmt::Debug for Told {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (Told::Arrived(peer, ..) | Told::Said(peer, _) | Told::Failed(peer, _)) = self;
        write!(f, "of {peer}")
    }
}

impl Hybrid {
    /// Process `me`, incarnation `epoch` (not 0), over `device`, with connections over its first RDMA port. `adjust` may change limits and times.
    ///
    /// # Errors
    /// The device can have no connections: why.
    pub fn over(
        device: Ports,
        terms: Terms,
        (me, epoch): (PeerId, u32),
        key: &JobKey,
        protection: Protection,
        keeps: Keeps,
        adjust: impl Fn(&mut Config),
    ) -> Result<Hybrid, Unusable> {
        // A body that leaves from where the program has it would have to stay there until it is known to be there.
        let keeps = Keeps { in_place: InPlaceUse::Never, ..keeps };
        let connections = Connections::beside(&device.first, terms.connections_max, (me, epoch), key, keeps, &adjust)?;
        let datagrams = Reliable::over(device, me, epoch, key, protection, &adjust)?;
        Ok(Hybrid {
            both: Both { datagrams, connections, copies: Copies::default(), now_ns: 0 },
            routes: Routes::default(),
            bonds: Bonds::new(Earning { price: terms.price, period_ns: terms.period_ns }, terms.connections_max),
            told: VecDeque::new(),
            unsaid: VecDeque::new(),
            unopened: Vec::new(),
            tell_ns: u64::MAX,
            check_ns: u64::MAX,
            looks: 0,
            hurt: false,
            counters: trace::Connections::default(),
        })
    }

    pub fn set_key(&mut self, key: &JobKey, protection: Protection) {
        self.both.datagrams.set_key(key, protection);
    }

    /// As [`Reliable::card`]: whoever speaks datagrams alone may be told of it, too.
    pub fn card(&self) -> String {
        self.both.datagrams.card()
    }

    /// As [`Reliable::connect`].
    ///
    /// # Errors
    /// As there.
    pub fn connect(&mut self, peer: PeerId, card: &str) -> Result<(), NoCard> {
        self.both.datagrams.connect(peer, card)
    }

    pub fn set_foreign_key(&mut self, key: &JobKey, protection: Protection) {
        self.both.datagrams.set_foreign_key(key, protection);
    }

    /// As [`Reliable::add_foreign`]; such a process is reached in datagrams alone.
    pub fn add_foreign(&mut self, peer: PeerId, number: u32, card: &str, key: &JobKey, protection: Protection) -> bool {
        self.bonds.of(peer).foreign = true;
        self.both.datagrams.add_foreign(peer, number, card, key, protection)
    }

    pub fn now_ns(&self) -> u64 {
        self.both.datagrams.now_ns()
    }

    pub fn config(&self) -> &Config {
        self.both.datagrams.endpoint().config()
    }

    pub fn counters(&self) -> NetworkCounters {
        let (datagrams, connections) = (self.both.datagrams.counters(), self.both.connections.counters());
        let counters = trace::Connections { resent: self.routes.resent, ..self.counters };
        let (own, theirs) = (datagrams.registrations, connections.registrations);
        let registrations =
            trace::Registrations { pool_bytes: own.pool_bytes + theirs.pool_bytes, queue_pairs: own.queue_pairs + theirs.queue_pairs, ..theirs };
        NetworkCounters { registrations, connections: counters, ..datagrams }
    }

    pub fn copied_bytes_max(&self) -> u32 {
        COPIED_BYTES_MAX
    }

    pub fn prefer(&mut self, start: *const u8, bytes: usize) {
        self.both.connections.prefer(start, bytes);
    }

    pub fn known(&self) -> usize {
        self.both.datagrams.endpoint().known()
    }

    pub fn knows(&self, peer: PeerId) -> bool {
        self.both.datagrams.endpoint().knows(peer)
    }

    /// As [`proto::reliability::Endpoint::leaves_whole`].
    pub fn leaves_whole(&self, peer: PeerId, bytes: u64) -> bool {
        match self.bonds.is_open(peer) {
            true => self.both.connections.leaves_whole(peer, bytes),
            false => self.both.datagrams.endpoint().leaves_whole(peer, bytes),
        }
    }

    /// Messages over connections gain nothing by waiting for others.
    pub fn is_unanswered(&self, peer: PeerId) -> bool {
        !self.bonds.is_open(peer) && self.both.datagrams.endpoint().is_unanswered(peer)
    }

    /// Nothing of the program is under way, all that was sent is there, and all that came is told of.
    pub fn is_quiet(&self) -> bool {
        let Both { datagrams, connections, copies, .. } = &self.both;
        self.told.is_empty()
            && self.unsaid.is_empty()
            && copies.is_empty()
            && self.routes.is_quiet()
            && datagrams.endpoint().is_quiet()
            && connections.is_quiet()
    }

    /// How many accounts a peer may have of what it leaves unmatched here: one in datagrams, one of its connection, and those of connections that are gone, which
    /// are less than two.
    pub const ACCOUNTS: u64 = 4;

    /// As [`proto::reliability::Endpoint::send`].
    ///
    /// # Errors
    /// As there.
    pub fn send(&mut self, now_ns: u64, peer: PeerId, envelope: &[u8], send: u64, bytes: u64, pulled: bool) -> Result<(), Refused> {
        (self.both.now_ns, self.bonds.now_ns) = (now_ns, now_ns);
        self.bonds.count(peer, bytes, 0);
        if !self.bonds.numbers(peer) {
            return self.both.datagrams.endpoint_mut().send(now_ns, peer, envelope, send, bytes, pulled);
        }
        let header = Header::parse(envelope).ok_or(Refused::Argument)?;
        match send {
            NOBODY => self.routes.send_header(peer, header, &mut self.both),
            _ => self.routes.send(peer, header, (send, bytes, pulled), &mut self.both),
        }
    }

    /// As [`Connections::send_now`].
    #[inline]
    pub fn send_now(&mut self, peer: PeerId, envelope: &[u8], bytes: usize, write: impl FnOnce(&mut Vec<u8>)) -> bool {
        if !self.bonds.is_open(peer) || !self.both.connections.may_send_by_value(peer, envelope.len(), bytes) {
            return false;
        }
        let Some(header) = Header::parse(envelope) else { return false };
        let mut copy = Vec::with_capacity(bytes);
        write(&mut copy);
        let sent = self.routes.send_copy(peer, header, copy, &mut self.both).is_ok();
        if sent {
            self.bonds.count(peer, bytes as u64, 0);
        }
        sent
    }

    /// As [`proto::reliability::Endpoint::receive`].
    ///
    /// # Errors
    /// As there.
    pub fn receive(&mut self, now_ns: u64, peer: PeerId, transfer: u32, bytes: u64, receive: u64) -> Result<(), Refused> {
        self.both.now_ns = now_ns;
        if !self.knows(peer) {
            return Err(Refused::Peer);
        }
        if bytes == 0 {
            return self.routes.decline(peer, transfer, &mut self.both);
        }
        self.routes.get(peer, transfer, bytes, receive, 0, &mut self.both)?;
        self.bonds.count(peer, 0, FETCH);
        Ok(())
    }

    /// As [`proto::reliability::Endpoint::push`]: a peer that knows no connections may have offered a window.
    ///
    /// # Errors
    /// As there; and messages to the peer are numbered.
    #[allow(clippy::too_many_arguments)]
    pub fn push(&mut self, now_ns: u64, peer: PeerId, envelope: &[u8], window: u32, granted_bytes: u64, send: u64, bytes: u64) -> Result<(), Refused> {
        if self.bonds.numbers(peer) {
            return Err(Refused::Argument);
        }
        self.both.datagrams.endpoint_mut().push(now_ns, peer, envelope, window, granted_bytes, send, bytes)
    }

    pub fn release(&mut self, now_ns: u64, peer: PeerId, payload_bytes: u64) {
        self.both.now_ns = now_ns;
        match self.routes.knows(peer) {
            true => self.routes.release(peer, payload_bytes, &mut self.both),
            false => self.both.release(DATAGRAMS, peer, payload_bytes),
        }
    }

    pub fn widen(&mut self, now_ns: u64, peer: PeerId) {
        self.both.datagrams.endpoint_mut().widen(now_ns, peer);
        let bond = self.bonds.of(peer);
        bond.widened += 1;
        if bond.handshake.is_begun() {
            self.both.connections.widen(peer);
        }
    }

    /// As [`proto::reliability::Endpoint::watch`].
    ///
    /// # Errors
    /// As there.
    pub fn watch_peer(&mut self, now_ns: u64, peer: PeerId, watched: bool) -> Result<(), Refused> {
        self.bonds.of(peer).watched = watched;
        self.both.datagrams.endpoint_mut().watch(now_ns, peer, watched)
    }

    /// Whether there may be something to do although nothing came at the last look.
    pub fn is_due(&self) -> bool {
        let Both { datagrams, connections, .. } = &self.both;
        let due = || self.tell_ns.min(self.check_ns) <= self.now_ns();
        datagrams.is_due()
            || self.bonds.pairs > 0 && connections.is_due()
            || self.is_busy()
            || self.tell_ns == u64::MAX && self.routes.is_untold()
            || self.looks.is_multiple_of(LOOKS_PER_TIME) && due()
    }

    fn is_busy(&self) -> bool {
        !(self.told.is_empty() && self.unsaid.is_empty() && self.bonds.wanted.is_empty()) || self.routes.is_waiting()
    }

    pub fn is_pressing(&self) -> bool {
        self.both.datagrams.is_pressing() || self.bonds.pairs > 0 && self.both.connections.is_pressing() || self.is_busy()
    }

    pub fn deadline_ns(&self) -> Option<u64> {
        if self.is_busy() || self.tell_ns == u64::MAX && self.routes.is_untold() {
            return Some(0);
        }
        let connections_ns = if self.bonds.pairs > 0 { self.both.connections.deadline_ns() } else { None };
        let own_ns = self.tell_ns.min(self.check_ns);
        [self.both.datagrams.deadline_ns(), connections_ns, (own_ns < u64::MAX).then_some(own_ns)].into_iter().flatten().min()
    }

    /// Before a sleep: false where something has come since the last look.
    pub fn arm(&mut self) -> bool {
        let calm = self.both.datagrams.arm();
        (self.bonds.pairs == 0 || self.both.connections.arm()) && calm
    }

    /// For a thread that sleeps while the owner computes: connections wake whoever sleeps on the port.
    ///
    /// # Errors
    /// The system has no descriptor left.
    pub fn watch(&self) -> Result<Watch, crate::Error> {
        self.both.datagrams.watch()
    }

    fn edge<'a, P: Program>(&'a mut self, route: u8, program: &'a mut P) -> (&'a mut Reliable<Ports>, &'a mut Connections, Edge<'a, P>) {
        let Hybrid { both: Both { datagrams, connections, copies, .. }, routes, bonds, told, hurt, .. } = self;
        (datagrams, connections, Edge { route, program, routes, bonds, copies, told, hurt })
    }

    /// Takes in what has come. How much.
    pub fn take_in(&mut self, program: &mut impl Program) -> usize {
        let (datagrams, _, mut edge) = self.edge(DATAGRAMS, program);
        let mut came = datagrams.take_in(&mut edge);
        if self.bonds.pairs > 0 {
            let (_, connections, mut edge) = self.edge(CONNECTION, program);
            came += connections.take_in(&mut edge);
        }
        self.looks = if came > 0 { 0 } else { self.looks.wrapping_add(1) };
        self.settle(program);
        came
    }

    /// Lets leave what may, and does what is due.
    pub fn flush(&mut self, now_ns: u64, program: &mut impl Program) {
        (self.both.now_ns, self.bonds.now_ns) = (now_ns, now_ns);
        self.flush_connections(now_ns, program);
        for (peer, _) in self.both.connections.take_lost() {
            self.broke(peer);
        }
        self.settle(program);
        if now_ns >= self.check_ns {
            self.give_back();
        }
        for peer in std::mem::take(&mut self.bonds.wanted) {
            if let Some(bond) = self.bonds.all.get_mut(&peer) {
                bond.wanted = false;
                self.promote(peer);
            }
        }
        self.speak();
        for peer in std::mem::take(&mut self.unopened) {
            self.switch(peer);
        }
        let idle = now_ns >= self.tell_ns;
        self.routes.flush(CONNECTION, idle, &mut self.both);
        self.tell_ns = match self.routes.is_untold() {
            true if idle => now_ns + TELL_NS,
            true => self.tell_ns.min(now_ns + TELL_NS),
            false => u64::MAX,
        };
        if self.both.connections.is_pressing() {
            self.flush_connections(now_ns, program);
        }
        let (datagrams, _, mut edge) = self.edge(DATAGRAMS, program);
        datagrams.flush(now_ns, &mut edge);
        self.settle(program);
    }

    fn flush_connections(&mut self, now_ns: u64, program: &mut impl Program) {
        if self.bonds.pairs > 0 {
            let (_, connections, mut edge) = self.edge(CONNECTION, program);
            connections.flush(now_ns, &mut edge);
        }
    }

    /// As [`Reliable::flush_one`].
    pub fn flush_one(&mut self, now_ns: u64, program: &mut impl Program) {
        let connections = self.bonds.pairs > 0 && self.both.connections.is_pressing();
        if connections || self.is_busy() || !self.unopened.is_empty() || now_ns >= self.tell_ns.min(self.check_ns) {
            return self.flush(now_ns, program);
        }
        let (datagrams, _, mut edge) = self.edge(DATAGRAMS, program);
        datagrams.flush_one(now_ns, &mut edge);
        self.settle(program);
    }

    /// As [`Reliable::abandon`]. What waits for them leaves first, as far as there is room.
    pub fn abandon(&mut self, now_ns: u64, peers: &[PeerId], program: &mut impl Program) {
        (self.both.now_ns, self.bonds.now_ns) = (now_ns, now_ns);
        for &peer in peers {
            let (_, connections, mut edge) = self.edge(CONNECTION, program);
            connections.hurry(peer, &mut edge);
        }
        let (datagrams, _, mut edge) = self.edge(DATAGRAMS, program);
        datagrams.abandon(now_ns, peers, &mut edge);
        self.settle(program);
    }

    /// Deals with what both transports have told.
    fn settle(&mut self, program: &mut impl Program) {
        if !self.told.is_empty() {
            let now_ns = self.now_ns();
            (self.both.now_ns, self.bonds.now_ns) = (now_ns, now_ns);
        }
        while let Some(told) = self.told.pop_front() {
            match told {
                Told::Arrived(peer, route, arrived) if self.bonds.all.contains_key(&peer) || self.knows(peer) => {
                    let mut taker = InTurn { program, numbered: false };
                    self.routes.arrived(peer, route, arrived, &mut self.both, &mut taker);
                    if taker.numbered {
                        self.routes.release(peer, 0, &mut self.both);
                    }
                }
                // Of one that has failed meanwhile.
                Told::Arrived(..) => {}
                Told::Said(peer, header) => self.hear(peer, &header),
                Told::Failed(peer, in_use) => self.failed(peer, &in_use, program),
            }
        }
    }

    /// A peer answers in datagrams no more. Where nothing was wanted of it, it has ended as it may: only a word that a connection has gone back found nobody.
    fn failed(&mut self, peer: PeerId, in_use: &[u64], program: &mut impl Program) {
        let bond = self.bonds.all.remove(&peer).unwrap_or_default();
        if bond.handshake.is_begun() {
            self.both.connections.close(peer);
            self.bonds.pairs -= 1;
        }
        self.unsaid.retain(|(other, _)| *other != peer);
        self.unopened.retain(|other| *other != peer);
        let (sends, receives) = self.routes.lost(peer);
        let matters = std::mem::take(&mut self.hurt) || bond.watched || !(sends.is_empty() && receives.is_empty() && in_use.is_empty());
        sends.into_iter().for_each(|send| program.complete(send, Err(Failure::Peer)));
        receives.into_iter().for_each(|receive| program.received(receive, Err(Failure::Peer)));
        if matters {
            program.peer_failed(peer, in_use);
        }
    }

    fn say(&mut self, peer: PeerId, word: Word, told: Option<&words::Told>) {
        self.unsaid.push_back((peer, words::header(word, told)));
        self.speak();
    }

    /// Sends the words that have not left.
    fn speak(&mut self) {
        while let Some((peer, header)) = self.unsaid.front() {
            if self.both.send_header(DATAGRAMS, *peer, *header) == Err(Refused::Full) {
                break;
            }
            self.unsaid.pop_front();
        }
    }

    /// A word of a peer.
    fn hear(&mut self, peer: PeerId, header: &Header) {
        self.both.release(DATAGRAMS, peer, 0);
        let Some((word, told)) = words::parse(header) else { return };
        let handshake = &mut self.bonds.of(peer).handshake;
        match (word, told) {
            (Word::Connect { mine: theirs, answers }, Some(told)) => match handshake.asked(theirs, answers) {
                Heard::Tie => self.tie(peer, theirs, &told),
                Heard::Answer if self.call(peer, theirs) => self.tie(peer, theirs, &told),
                Heard::Answer => {
                    let word = self.bonds.of(peer).handshake.refuse(theirs);
                    self.say(peer, word, None);
                }
                Heard::Refuse(word) => self.say(peer, word, None),
            },
            (Word::Ready { mine: theirs, theirs: mine }, _) if handshake.ready(theirs, mine) => self.opened(peer),
            (Word::Ended { mine: theirs, theirs: mine }, _) => {
                if let Some(word) = handshake.ended(theirs, mine) {
                    self.say(peer, word, None);
                    self.closed(peer);
                    let (earning, now_ns) = (self.bonds.earning, self.both.now_ns);
                    self.bonds.of(peer).earned.refused(&earning, now_ns);
                }
            }
            _ => {}
        }
    }

    /// Makes a pair for `peer`, and tells it of that: for its attempt `answers`, or on the own account (0). False where there is to be none.
    fn call(&mut self, peer: PeerId, answers: u32) -> bool {
        let (earning, now_ns) = (self.bonds.earning, self.both.now_ns);
        let bond = self.bonds.of(peer);
        let (weight, may) = (bond.earned.weight(&earning, now_ns), bond.earned.may_begin(now_ns) && !bond.foreign);
        // Whoever is reached over sockets alone may have no ports, and does not know what the word means.
        if !may
            || !self.both.datagrams.is_on_own_path(peer)
            || self.routes.is_resending(peer)
            || self.routes.stale_bytes(peer) > STALE_BYTES_MAX
            || !self.knows(peer)
        {
            return false;
        }
        if self.bonds.pairs >= self.bonds.pairs_max {
            match self.bonds.least(weight) {
                Some(other) => self.end(other),
                None => {
                    self.bonds.of(peer).earned.refused(&earning, now_ns);
                    return false;
                }
            }
        }
        let Some(own) = self.both.connections.begin(peer) else {
            self.bonds.of(peer).earned.refused(&earning, now_ns);
            return false;
        };
        self.bonds.pairs += 1;
        self.check_ns = self.check_ns.min(now_ns + earning.period_ns);
        let bond = self.bonds.of(peer);
        let told = words::Told { own, offer: self.both.connections.own_offer(), widened: bond.widened };
        let word = bond.handshake.call(answers);
        self.say(peer, word, Some(&told));
        true
    }

    fn promote(&mut self, peer: PeerId) {
        if !self.bonds.of(peer).handshake.is_begun() {
            self.call(peer, 0);
        }
    }

    /// Ties the own pair to that of the peer's attempt.
    fn tie(&mut self, peer: PeerId, theirs: u32, told: &words::Told) {
        if self.both.connections.tie(peer, &told.own, &told.offer, told.widened) {
            let word = self.bonds.of(peer).handshake.tied(theirs);
            self.say(peer, word, None);
        } else {
            self.broke(peer);
        }
    }

    fn opened(&mut self, peer: PeerId) {
        self.both.connections.opened(peer);
        self.counters.made += 1;
        self.switch(peer);
    }

    /// Messages to `peer` take the connection from now on, or once there is room to say that they are numbered, which it hears before the first of these.
    fn switch(&mut self, peer: PeerId) {
        if !self.bonds.numbers(peer) {
            if self.routes.send_header(peer, words::routed(), &mut self.both).is_err() {
                return self.unopened.push(peer);
            }
            self.bonds.of(peer).numbers = true;
        }
        self.routes.switch(peer, CONNECTION);
    }

    /// The pair for `peer` is no more: what was on it goes in datagrams.
    fn closed(&mut self, peer: PeerId) {
        self.both.connections.close(peer);
        self.bonds.pairs -= 1;
        self.unopened.retain(|other| *other != peer);
        // What it has brought and has not been looked at is as if it had not come.
        self.told.retain(|told| !matches!(told, Told::Arrived(of, CONNECTION, _) if *of == peer));
        if self.routes.knows(peer) {
            self.routes.switch(peer, DATAGRAMS);
            self.routes.broken(peer, CONNECTION, &mut self.both);
        }
    }

    /// The connection to `peer` has broken, or cannot be made.
    fn broke(&mut self, peer: PeerId) {
        let (earning, now_ns) = (self.bonds.earning, self.both.now_ns);
        let bond = self.bonds.of(peer);
        if !bond.handshake.is_begun() {
            return;
        }
        bond.earned.broke(&earning, now_ns);
        let word = bond.handshake.end();
        self.counters.broken += 1;
        self.say(peer, word, None);
        self.closed(peer);
    }

    /// The connection to `peer` goes back.
    fn end(&mut self, peer: PeerId) {
        let word = self.bonds.of(peer).handshake.end();
        self.counters.given_back += 1;
        self.say(peer, word, None);
        self.closed(peer);
    }

    /// Connections that nobody earns any more go back, where nothing is under way.
    fn give_back(&mut self) {
        for peer in self.bonds.idle() {
            if !self.routes.is_open(peer) {
                self.end(peer);
            }
        }
        self.check_ns = if self.bonds.pairs > 0 { self.both.now_ns + self.bonds.earning.period_ns } else { u64::MAX };
    }
}

impl Transports for Both {
    fn send_header(&mut self, route: u8, peer: PeerId, header: Header) -> Result<(), Refused> {
        self.send(route, peer, header, NOBODY, 0, false)
    }

    fn send_copy(&mut self, route: u8, peer: PeerId, header: Header, body: &[u8]) -> Result<(), Refused> {
        let (envelope, length) = header.to_bytes();
        if route == CONNECTION {
            let sent = self.connections.send_now(peer, &envelope[..length], body.len(), |out| out.extend_from_slice(body));
            return if sent { Ok(()) } else { Err(Refused::Full) };
        }
        let copy = self.copies.keep(body);
        let sent = self.datagrams.endpoint_mut().send(self.now_ns, peer, &envelope[..length], copy, body.len() as u64, false);
        if sent.is_err() {
            self.copies.forget(copy);
        }
        sent
    }

    fn send(&mut self, route: u8, peer: PeerId, header: Header, token: u64, bytes: u64, waits: bool) -> Result<(), Refused> {
        let (envelope, length) = header.to_bytes();
        match route {
            CONNECTION => self.connections.send(peer, &envelope[..length], token, bytes, waits),
            _ => self.datagrams.endpoint_mut().send(self.now_ns, peer, &envelope[..length], token, bytes, waits),
        }
    }

    fn put(&mut self, _: u8, _: PeerId, _: Header, _: Window, _: u64, _: u64) -> Result<(), Refused> {
        Err(Refused::Argument)
    }

    fn offer(&mut self, _: u8, _: PeerId, _: Header, _: u64, _: u64) -> u32 {
        0
    }

    fn withdraw(&mut self, _: u8, _: PeerId, _: u32) {}

    fn fill(&mut self, _: u8, _: PeerId, _: u64, _: Window) {}

    fn get(&mut self, route: u8, peer: PeerId, transfer: u32, bytes: u64, token: u64, _: u32) -> Result<(), Refused> {
        match route {
            CONNECTION => self.connections.receive(peer, transfer, bytes, token),
            _ => self.datagrams.endpoint_mut().receive(self.now_ns, peer, transfer, bytes, token),
        }
    }

    fn decline(&mut self, route: u8, peer: PeerId, transfer: u32) -> Result<(), Refused> {
        self.get(route, peer, transfer, 0, 0, 0)
    }

    fn release(&mut self, route: u8, peer: PeerId, bytes: u64) {
        match route {
            CONNECTION => self.connections.release(peer, bytes),
            _ => self.datagrams.endpoint_mut().release(self.now_ns, peer, bytes),
        }
    }
}
