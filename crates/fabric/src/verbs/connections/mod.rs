//! Connections over the verbs API (RC): ordered and reliable by the device, with remote reads of long bodies.
//!
//! - A connection is made when a peer is first spoken to: over a queue pair for datagrams that everyone has ([`meeting`]), or, on devices
//!   of iWARP, which have no datagrams, by the system's connection manager ([`calls`]). Messages wait meanwhile.
//! - A message and its header go as one frame into a receive that the peer has posted ([`frame`]), by value where they are short.
//!   Receives and what frames leave from lie in one pool, registered once for the process; what peers may have under way is
//!   settled by [`allowance`], and what they may leave unmatched by [`proto::credits`], as over datagrams.
//! - A longer body waits at its sender, registered where it lies in one piece. Its receiver registers its own memory, reads
//!   the body, and says so. With [`Rendezvous::Write`] the receiver says where it wants the body, and the sender writes it there and says so. Where either
//!   side lies in several pieces, or cannot be registered, the body comes in frames.
//! - What stays registered for the next message, and which short messages leave from where the program has them: [`registrations`].
//! - A connection that breaks is a peer that has failed, unless nothing was wanted of it any more. Where somebody owns the connections that can do without
//!   them ([`told`]), it is told of that.

mod allowance;
mod calls;
mod contact;
mod crossing;
mod frame;
mod maker;
mod manager;
mod meeting;
mod peer;
mod pieces;
mod proof;
mod registrations;
#[cfg(test)]
mod tests;
mod tie;
mod told;

use std::collections::VecDeque;
use std::time::Instant;

use proto::credits::{Allowed, Credits, OVERHEAD_BYTES};
use proto::reliability::{COPIED_BYTES_MAX, Config, Delivery, Failure, PEERS_MAX, PeerId, Refused, Slice};
use rustc_hash::FxHashMap;

use crate::Error;
use crate::reliable::{Arrivals, Card, DatagramDevice, JobKey, NetworkCounters, NoCard, Program, Protection, SendQueue, Sink, Watch};
use allowance::Allowance;
use contact::{Contact, Way};
use frame::{ENVELOPE_BYTES_MAX, Frame, HEAD_BYTES, Head, Kind, PLACE_BYTES, Place};
use maker::{Chosen, Maker};
use meeting::Greeting;
pub use meeting::Own;
use peer::{Control, Direction, Granted, InPlace, Incoming, Link, Moving, Offered, Outgoing, Peer, Requested, Waiting};
use pieces::{Found, Sources};
pub use registrations::costs_of;
use registrations::{Held, Hold, IN_PLACE_BYTES_MIN, Registrations};
use tie::Tie;

use super::address::Path;
use super::ports::{Facts, Filter};
use super::sys::{Access, Done, Ends, Hub, HubLimits, PairId, RETRIES};
use super::{Unusable, Verbs};

/// Longest body that goes with its header, bytes.
const EAGER_BYTES_MAX: usize = 8 << 10;
/// A slot: such a body, behind the longest envelope.
const SLOT_BYTES: usize = (EAGER_BYTES_MAX + HEAD_BYTES + ENVELOPE_BYTES_MAX).next_multiple_of(128);
/// The pool grows by so many slots, 0.5 MB.
const CHUNK_SLOTS: u32 = 64;
/// Slots for frames that leave.
const SEND_SLOTS: u32 = 64;
/// Connections of a process, at most.
const CONNECTIONS_MAX: u32 = 512;
/// Frames and reads of one connection, and of all, that are not complete.
const PAIR_SENDS: u32 = 64;
const SENDS: u32 = 1024;
/// Frames up to so many bytes are made beside the pool.
const INLINE_BYTES: usize = 256;
/// Shorter bodies are not worth registering.
const READ_BYTES_MIN: u64 = 16 << 10;
/// Longest remote read or write, bytes, and how many of one body are under way.
const SEGMENT_BYTES_MAX: u32 = 1 << 20;
const MOVES_MAX: u32 = 4;
/// Completions that are looked at before others get their turn.
const LOOKS_MAX: usize = 256;
/// Looks for each look at greetings, and without success for each look at the clock.
const LOOKS_PER_GREETING: u32 = 16;
const LOOKS_PER_TIME: u32 = 32;
/// A peer's silence ends a connection to it after this time at the latest, ns, where it is reached in another way, too.
const BREAK_NS_MAX: u64 = 2_000_000_000;
/// After so many of a device's times a peer's silence is known.
const TRIES: u64 = RETRIES as u64 + 1;

/// When short messages leave from where the program has them, where their buffers can be kept registered.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum InPlaceUse {
    Never,
    /// From when on it pays, by what was measured here.
    Measured,
    /// From the second message of a buffer on.
    Always,
}

/// How long bodies move.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Rendezvous {
    /// Receivers read them.
    Read,
    /// Senders write them.
    Write,
    /// In frames: the device touches none of the program's memory for them.
    Pieces,
}

/// What of the program's memory stays registered, where changes of it are told of, and how the device uses it.
#[derive(Clone, Copy, Debug)]
pub struct Keeps {
    /// At most, bytes; 0: nothing.
    pub bytes_max: usize,
    pub in_place: InPlaceUse,
    /// What is not registered is registered while its transfer is under way.
    pub overlaps: bool,
    pub rendezvous: Rendezvous,
}

/// A body to be fetched.
#[derive(Clone, Copy, Debug)]
struct Fetch {
    peer: PeerId,
    transfer: u32,
    bytes: u64,
    receive: u64,
}

/// All connections of a process.
#[derive(Debug)]
pub struct Connections {
    hub: Hub,
    connections_max: u32,
    registrations: Registrations,
    keeps: Keeps,
    /// What makes them.
    maker: Maker,
    name: String,
    facts: Facts,
    message_bytes_max: u32,
    reads_out: u8,
    reads_in: u8,
    card: Card<Contact>,
    me: PeerId,
    epoch: u32,
    key: JobKey,
    config: Config,
    peers: FxHashMap<PeerId, Peer>,
    /// By the number of a pair.
    owners: FxHashMap<PairId, PeerId>,
    /// Receives that are promised to peers, and those of them that no connection is entitled to.
    promised: u32,
    spare: u32,
    runnable: VecDeque<PeerId>,
    /// Those that had more to send than there was room for.
    blocked: Vec<PeerId>,
    fetches: VecDeque<Fetch>,
    moving: Vec<Option<Moving>>,
    in_place: Vec<Option<InPlace>>,
    /// A frame that leaves by value.
    short: Vec<u8>,
    broken: Vec<(PeerId, String)>,
    /// Those that have ended, where the owner makes them anew.
    lost: Vec<(PeerId, String)>,
    sink: Sink,
    start: Instant,
    looks: u32,
    /// Greetings may be there.
    listens: bool,
    /// When there is something to do although nothing comes.
    wake_ns: u64,
    counters: NetworkCounters,
}

fn psn() -> u32 {
    use std::hash::BuildHasher;
    std::hash::RandomState::new().hash_one(0) as u32 & 0xff_ffff
}

impl Connections {
    /// Process `me`, incarnation `epoch` (not 0), on the first port that `filter` allows. `adjust` may change limits and times.
    ///
    /// # Errors
    /// No port can be used, or its device has no shared receive queues: why.
    pub fn open(filter: &Filter, me: PeerId, epoch: u32, key: &JobKey, keeps: Keeps, adjust: impl FnOnce(&mut Config)) -> Result<Connections, Unusable> {
        let (maker, chosen) = Maker::open(filter)?;
        Connections::made_by(maker, chosen, CONNECTIONS_MAX, (me, epoch), key, keeps, adjust)
    }

    fn made_by(
        maker: Maker,
        chosen: Chosen,
        connections_max: u32,
        (me, epoch): (PeerId, u32),
        key: &JobKey,
        keeps: Keeps,
        adjust: impl FnOnce(&mut Config),
    ) -> Result<Connections, Unusable> {
        let Chosen { device, channel, port, facts } = chosen;
        let name = format!("{} port {port}", device.name);
        let receives = connections_max * allowance::EACH + allowance::SPARE;
        if device.shared_receives_max < receives || device.completions_max < receives + SENDS || device.requests_max < PAIR_SENDS {
            return Err(Unusable::Words(format!(
                "{name}: connections need a shared receive queue of {receives}, and its device has one of {} (WHIMBREL_VERBS=ud needs none)",
                device.shared_receives_max
            )));
        }
        let limits = HubLimits {
            pair_sends: PAIR_SENDS,
            sends: SENDS,
            receives,
            slot_bytes: SLOT_BYTES as u32,
            chunk_slots: CHUNK_SLOTS,
            inline_bytes: INLINE_BYTES as u32,
        };
        let mut hub = Hub::new(&device, &channel, port, facts.gid_index, limits)?;
        hub.grow()?;
        let message_bytes_max = device.port(port)?.message_bytes_max;
        let mut config = Config { eager_bytes_max: EAGER_BYTES_MAX as u32, ..Config::default() };
        adjust(&mut config);
        Ok(Connections {
            registrations: Registrations::new(hub.registrar(), keeps),
            keeps,
            hub,
            connections_max,
            name,
            facts,
            message_bytes_max,
            reads_out: device.reads_out.max(1),
            reads_in: device.reads_in.max(1),
            card: Card { epoch, rails: 1, offers: vec![maker.contact()] },
            maker,
            me,
            epoch,
            key: key.clone(),
            config,
            peers: FxHashMap::default(),
            owners: FxHashMap::default(),
            promised: 0,
            spare: allowance::SPARE,
            runnable: VecDeque::new(),
            blocked: Vec::new(),
            fetches: VecDeque::new(),
            moving: Vec::new(),
            in_place: Vec::new(),
            short: Vec::with_capacity(INLINE_BYTES),
            broken: Vec::new(),
            lost: Vec::new(),
            sink: Sink::default(),
            start: Instant::now(),
            looks: 0,
            listens: true,
            wake_ns: u64::MAX,
            counters: NetworkCounters::default(),
        })
    }

    /// Takes the job's key, where it was not known before. Before the first greeting.
    pub fn set_key(&mut self, key: &JobKey, _: Protection) {
        self.key = key.clone();
    }

    /// Processes of other jobs cannot be connected to.
    pub fn set_foreign_key(&mut self, _: &JobKey, _: Protection) {}

    /// As [`Connections::set_foreign_key`].
    pub fn add_foreign(&mut self, _: PeerId, _: u32, _: &str, _: &JobKey, _: Protection) -> bool {
        false
    }

    /// What to tell the others: opaque to all but [`Connections::connect`].
    pub fn card(&self) -> String {
        format!("rc {}", self.card)
    }

    /// Names a peer and where it listens; needed before the first request towards it. Nothing is sent for that.
    ///
    /// # Errors
    /// Where `card` is none, or of a port that speaks something else.
    pub fn connect(&mut self, peer: PeerId, card: &str) -> Result<(), NoCard> {
        let card: Card<Contact> = card.strip_prefix("rc ").ok_or(NoCard)?.parse()?;
        let way = Way::between(&self.card.offers[0], &card.offers[0]).ok_or(NoCard)?;
        let (unmatched, epoch) = (self.unmatched(), card.epoch);
        self.peers.entry(peer).or_insert_with(|| Peer::new(epoch, way, unmatched));
        Ok(())
    }

    fn unmatched(&self) -> Credits {
        Credits::new(self.config.credit_bytes, self.config.credit_header_bytes)
    }

    pub fn now_ns(&self) -> u64 {
        self.start.elapsed().as_nanos() as u64 + 1
    }

    pub fn config(&self) -> &Config {
        &self.config
    }

    pub fn counters(&self) -> NetworkCounters {
        let (made_in, connections) = (self.maker.footprint(), self.footprint());
        let (pool_bytes, queue_pairs) = ((made_in.0 + connections.0) as u64, (made_in.1 + connections.1) as u64);
        NetworkCounters { registrations: trace::Registrations { pool_bytes, queue_pairs, ..self.registrations.counters() }, ..self.counters }
    }

    /// Messages of more bytes are not copied for a program that does not wait for their end.
    pub fn copied_bytes_max(&self) -> u32 {
        if self.registrations.in_place() { IN_PLACE_BYTES_MIN as u32 - 1 } else { COPIED_BYTES_MAX }
    }

    /// The program has said that it will send these bytes again and again (a persistent or partitioned request).
    pub fn prefer(&mut self, start: *const u8, bytes: usize) {
        self.registrations.prefer(start, bytes);
    }

    pub fn known(&self) -> usize {
        self.peers.len()
    }

    pub fn knows(&self, peer: PeerId) -> bool {
        self.peers.get(&peer).is_some_and(|peer| !peer.failed)
    }

    /// As [`proto::reliability::Endpoint::leaves_whole`].
    pub fn leaves_whole(&self, peer: PeerId, bytes: u64) -> bool {
        let whole = |found: &Peer| bytes <= EAGER_BYTES_MAX as u64 && found.waiting.is_empty() && found.unmatched.clone().take_eager(bytes);
        self.peers.get(&peer).is_none_or(whole)
    }

    /// Nothing of the program is under way, and all that was sent is acknowledged.
    pub fn is_quiet(&self) -> bool {
        let mut pairs = self.owners.keys();
        self.fetches.is_empty()
            && self.peers.values().all(|peer| peer.failed || !peer.has_open() && peer.controls.is_empty())
            && pairs.all(|&pair| self.hub.outstanding(pair) == 0 && self.is_confirmed(pair))
    }

    /// Memory of the pool, bytes, and connections.
    pub fn footprint(&self) -> (usize, usize) {
        (self.hub.pool_bytes(), self.owners.len())
    }

    fn find(&mut self, peer: PeerId) -> Result<&mut Peer, Refused> {
        let found = self.peers.get_mut(&peer).ok_or(Refused::Argument)?;
        if found.failed { Err(Refused::Peer) } else { Ok(found) }
    }

    fn wake(&mut self, peer: PeerId) {
        if let Some(found) = self.peers.get_mut(&peer)
            && !std::mem::replace(&mut found.runnable, true)
        {
            self.runnable.push_back(peer);
        }
    }

    /// Sends a message of which `write` appends the `bytes` of its body, if nothing waits before it and the device takes it by value: it is complete then.
    /// False where it has to go the longer way.
    #[inline]
    pub fn send_now(&mut self, peer: PeerId, envelope: &[u8], bytes: usize, write: impl FnOnce(&mut Vec<u8>)) -> bool {
        let length = HEAD_BYTES + envelope.len() + bytes;
        let Some(found) = self.peers.get_mut(&peer) else { return false };
        let Some(link) = &mut found.link else { return false };
        if length > INLINE_BYTES || !link.tie.is_open() || !link.allowance.has_room() {
            return false;
        }
        let pair = link.pair;
        if !found.is_idle() || !self.hub.may_send_by_value(pair, length) || !found.unmatched.take_eager(bytes as u64) {
            return false;
        }
        let Some(link) = &mut found.link else { return false };
        link.tie.speaks();
        let (credits, released_bytes) = (link.allowance.send(), found.released_bytes);
        found.told_bytes = released_bytes;
        let head = Head { kind: Kind::Eager, envelope_bytes: envelope.len() as u8, credits, transfer: 0, bytes: bytes as u64, released_bytes };
        self.short.clear();
        self.short.extend_from_slice(&head.to_bytes());
        self.short.extend_from_slice(envelope);
        write(&mut self.short);
        if !self.hub.send_by_value(pair, &self.short) {
            self.broken.push((peer, "its device takes no requests".to_owned()));
        }
        self.counters.sent.datagrams += 1;
        self.counters.sent.calls += 1;
        true
    }

    /// As [`proto::reliability::Endpoint::send`].
    ///
    /// # Errors
    /// As there.
    pub fn send(&mut self, peer: PeerId, envelope: &[u8], send: u64, bytes: u64, pulled: bool) -> Result<(), Refused> {
        let waiting_max = self.config.waiting_max;
        let found = self.find(peer)?;
        if envelope.len() > ENVELOPE_BYTES_MAX {
            return Err(Refused::Argument);
        }
        if found.waiting.len() >= waiting_max {
            return Err(Refused::Full);
        }
        let mut waiting = Waiting { envelope: [0; ENVELOPE_BYTES_MAX], envelope_bytes: envelope.len() as u8, pulled, send, bytes };
        waiting.envelope[..envelope.len()].copy_from_slice(envelope);
        found.waiting.push_back(waiting);
        self.wake(peer);
        Ok(())
    }

    /// As [`proto::reliability::Endpoint::receive`].
    ///
    /// # Errors
    /// The peer has failed.
    pub fn receive(&mut self, peer: PeerId, transfer: u32, bytes: u64, receive: u64) -> Result<(), Refused> {
        self.find(peer)?;
        self.fetches.push_back(Fetch { peer, transfer, bytes, receive });
        Ok(())
    }

    /// As [`proto::reliability::Endpoint::release`].
    pub fn release(&mut self, peer: PeerId, payload_bytes: u64) {
        let quarter = self.config.credit_bytes / 4;
        let Ok(found) = self.find(peer) else { return };
        found.released_bytes += payload_bytes + OVERHEAD_BYTES;
        if found.released_bytes - found.told_bytes >= quarter {
            self.wake(peer);
        }
    }

    /// As [`proto::reliability::Endpoint::widen`].
    pub fn widen(&mut self, peer: PeerId) {
        if let Ok(found) = self.find(peer) {
            found.controls.push_back(Control::Widen);
            self.wake(peer);
        }
    }

    /// As [`proto::reliability::Endpoint::watch`].
    ///
    /// # Errors
    /// The peer has failed.
    pub fn watch_peer(&mut self, peer: PeerId, watched: bool) -> Result<(), Refused> {
        self.find(peer)?.watched = watched;
        if watched {
            self.wake_ns = 0;
            self.wake(peer);
        }
        Ok(())
    }

    /// Whether there may be something to do although nothing came at the last look. The clock is looked at now and then only.
    pub fn is_due(&self) -> bool {
        self.is_pressing() || self.looks.is_multiple_of(LOOKS_PER_TIME) && self.wake_ns <= self.now_ns()
    }

    pub fn is_pressing(&self) -> bool {
        !(self.runnable.is_empty() && self.fetches.is_empty() && self.broken.is_empty()) || self.maker.is_pressing()
    }

    pub fn deadline_ns(&self) -> Option<u64> {
        match self.is_pressing() {
            true => Some(0),
            false => (self.wake_ns < u64::MAX).then_some(self.wake_ns),
        }
    }

    /// Before a sleep: false where something has come since the last look.
    pub fn arm(&mut self) -> bool {
        let calm = self.maker.arm();
        self.listens |= !calm || matches!(self.maker, Maker::Manager(_));
        self.hub.arm() && calm
    }

    /// For a thread that sleeps while the owner computes.
    ///
    /// # Errors
    /// The system has no descriptor left.
    pub fn watch(&self) -> Result<Watch, Error> {
        self.maker.watch()
    }

    /// Takes in what has come. How much.
    pub fn take_in(&mut self, program: &mut impl Program) -> usize {
        let is_time = match &mut self.maker {
            Maker::Greetings(_) => self.looks.is_multiple_of(LOOKS_PER_GREETING),
            Maker::Owner(_) => false,
            Maker::Manager(manager) => manager.is_time(),
        };
        if std::mem::take(&mut self.listens) || is_time {
            self.hear(program);
        }
        let (mut came, mut happened) = (0, false);
        for _ in 0..LOOKS_MAX {
            let Some(done) = self.hub.poll() else {
                self.end_closed();
                break;
            };
            happened = true;
            match done {
                Done::Received { pair, mut slot, bytes } => {
                    came += 1;
                    if let Some(&peer) = self.owners.get(&pair) {
                        let said = self.hub.bytes(&mut slot);
                        let what = Frame::parse(&said[..bytes]);
                        let taken = what.and_then(|frame| took(&mut self.peers, &mut self.moving, &mut self.registrations, peer, &frame, program));
                        match taken {
                            None => self.broken.push((peer, "it says what cannot be".to_owned())),
                            Some(wakes) => {
                                if wakes {
                                    self.wake(peer);
                                }
                            }
                        }
                        self.settle_allowance(peer);
                    }
                    if self.hub.post_receive(slot).is_err() {
                        self.broken.extend(self.owners.get(&pair).map(|&peer| (peer, "its device takes no more receives".to_owned())));
                    }
                }
                Done::Sent => {}
                Done::Gathered { id } => {
                    if let Some(left) = self.in_place.get_mut(id as usize).and_then(Option::take) {
                        self.registrations.release(left.hold);
                        if let Some(found) = self.peers.get_mut(&left.peer) {
                            found.in_place -= 1;
                        }
                        program.complete(left.send, Ok(()));
                    }
                }
                Done::Moved { id } => {
                    came += 1;
                    self.has_moved(id, program);
                }
                Done::Failed { pair, why } => self.broken.extend(self.owners.get(&pair).map(|&peer| (peer, why.to_owned()))),
            }
        }
        if happened {
            for peer in std::mem::take(&mut self.blocked) {
                self.wake(peer);
            }
        }
        self.counters.received.datagrams += came as u64;
        self.counters.received.calls += 1;
        self.looks = if came > 0 { 1 } else { self.looks.wrapping_add(1) };
        came
    }

    /// A peer may get more credits, or others want those that it has.
    fn settle_allowance(&mut self, peer: PeerId) {
        let Some(allowance) = self.peers.get_mut(&peer).and_then(|peer| Some(&mut peer.link.as_mut()?.allowance)) else { return };
        if !allowance.wants_more() {
            return;
        }
        if self.spare == 0 {
            // Others keep what they are owed until they have proved busy themselves.
            for (_, other) in self.peers.iter_mut().filter(|(number, _)| **number != peer) {
                self.spare += other.link.as_mut().map_or(0, |link| link.allowance.shrink());
            }
        }
        let Some(allowance) = self.peers.get_mut(&peer).and_then(|peer| Some(&mut peer.link.as_mut()?.allowance)) else { return };
        let more = allowance.grow(self.spare);
        self.spare -= more;
        self.promised = self.promised.max(self.owners.len() as u32 * allowance::EACH + allowance::SPARE - self.spare);
        self.wake(peer);
        if more > 0 && self.post_promised().is_err() {
            self.broken.push((peer, "no memory for its messages that the device may lock (ulimit -l)".to_owned()));
        }
    }

    /// Posts as many receives as are promised to peers.
    fn post_promised(&mut self) -> Result<(), Error> {
        let slots = (self.promised + SEND_SLOTS) as usize * SLOT_BYTES;
        while self.hub.pool_bytes() < slots {
            self.hub.grow()?;
        }
        while self.hub.posted_receives() < self.promised
            && let Some(slot) = self.hub.take()
        {
            self.hub.post_receive(slot)?;
        }
        Ok(())
    }

    fn has_moved(&mut self, id: u32, program: &mut impl Program) {
        let Some(moving) = self.moving.get_mut(id as usize).and_then(Option::as_mut) else { return };
        moving.pending -= 1;
        let peer = moving.peer;
        if moving.pending == 0 && moving.gives_up {
            self.move_in_frames(id);
        } else if moving.pending == 0
            && moving.asked_bytes == moving.bytes
            && let Some(moving) = self.moving[id as usize].take()
            && let Some(found) = self.peers.get_mut(&peer)
        {
            // The device is done with the memory before anybody hears of it.
            moving.held.into_iter().for_each(|hold| self.registrations.release(hold));
            found.moves -= 1;
            match moving.way {
                Direction::Read => {
                    found.controls.push_back(Control::Done { transfer: moving.transfer });
                    program.received(moving.receive, Ok(()));
                }
                // The peer says when it has heard of it.
                Direction::Write if found.confirms => {}
                Direction::Write => {
                    if let Some(offered) = found.offered.remove(&moving.transfer) {
                        offered.held.into_iter().for_each(|hold| self.registrations.release(hold));
                        program.complete(offered.send, Ok(()));
                    }
                }
            }
        }
        self.wake(peer);
    }

    /// A body that cannot be moved to its end by the device, and of which nothing is under way, goes in frames.
    fn move_in_frames(&mut self, id: u32) {
        let Some(Moving { way, peer, transfer, receive, bytes, held, .. }) = self.moving.get_mut(id as usize).and_then(Option::take) else { return };
        held.into_iter().for_each(|hold| self.registrations.release(hold));
        let Some(found) = self.peers.get_mut(&peer) else { return };
        found.moves -= 1;
        match way {
            Direction::Read => {
                found.incoming.insert(transfer, Incoming { receive, came_bytes: 0, bytes });
                found.controls.push_back(Control::Fetch { transfer, bytes });
            }
            Direction::Write => {
                if let Some(offered) = found.offered.get_mut(&transfer) {
                    offered.framed = true;
                    found.outgoing.push_back(Outgoing { transfer, send: offered.send, offset: 0, bytes });
                }
            }
        }
    }

    /// Takes in greetings, or what the connection manager tells.
    fn hear(&mut self, program: &mut impl Program) {
        self.take_calls();
        let mut turn = 0;
        while let Maker::Greetings(exchange) = &mut self.maker
            && let Some(mut arrivals) = exchange.receive(&mut turn)
        {
            let mut heard = Vec::new();
            for index in 0..arrivals.count() {
                if let Some(arrival) = arrivals.get(index)
                    && let Some(greeting) = Greeting::open(&arrival.bytes[arrival.lead_bytes..], &self.key)
                {
                    heard.push((greeting, Verbs::back(0, arrival.from)));
                }
            }
            let count = arrivals.count();
            exchange.recycle(arrivals, count);
            for (greeting, back) in heard {
                self.greeted(&greeting, back, program);
            }
        }
    }

    fn greeted(&mut self, greeting: &Greeting, back: Path, program: &mut impl Program) {
        let (peer, epoch) = greeting.from;
        if greeting.to != (self.me, self.epoch) || peer >= PEERS_MAX {
            self.counters.refused += 1;
            return;
        }
        let unmatched = self.unmatched();
        let found = self.peers.entry(peer).or_insert_with(|| Peer::new(epoch, Way::Path(back), unmatched));
        if found.failed || found.epoch != epoch {
            self.counters.refused += 1;
            return;
        }
        if found.link.is_none() && !self.open_link(peer) {
            return;
        }
        let Some(link) = self.peers.get_mut(&peer).and_then(|peer| peer.link.as_mut()) else { return };
        let Tie::Meeting(meeting) = &mut link.tie else { return };
        let Some(next) = meeting.heard(greeting) else {
            self.fail(peer, "it has given the connection up", program);
            return;
        };
        let pair = link.pair;
        if let Some(theirs) = next.tie {
            let Some(ends) = self.ends(peer, &theirs) else { return };
            if let Err(error) = self.hub.receive_from(pair, &ends).and_then(|()| self.hub.send_to(pair, &ends)) {
                self.broken.push((peer, format!("no connection from {} to {}: {error}; {}", self.own_words(), ends.to.gid, self.hint())));
                return;
            }
        }
        if next.greet {
            self.greet(peer);
        }
        self.wake(peer);
    }

    fn own_words(&self) -> String {
        format!("{} ({})", self.name, self.facts)
    }

    /// What to do where a connection cannot be made.
    fn hint(&self) -> String {
        let device = self.name.split(' ').next().unwrap_or_default();
        format!(
            "see whether the peer's address answers there (ping), and /sys/class/infiniband/{device}/ports/*/gids on both hosts; WHIMBREL_NET chooses other ports"
        )
    }

    /// How both pairs are to be tied.
    fn ends(&self, peer: PeerId, theirs: &Own) -> Option<Ends> {
        let found = &self.peers[&peer];
        let Way::Path(path) = found.way else { return None };
        // Where there is another way, it need not be waited for as long as for the peer itself.
        let patience_ns = if matches!(self.maker, Maker::Owner(_)) { BREAK_NS_MAX } else { u64::MAX };
        let each_ns = self.config.peer_timeout_ns.min(patience_ns) / TRIES / 4096;
        Some(Ends {
            to: path.to,
            number: theirs.number,
            receive_psn: theirs.psn,
            send_psn: found.link.as_ref().map_or(0, |link| link.psn),
            mtu_bytes: theirs.mtu_bytes.min(self.facts.mtu_bytes),
            timeout: each_ns.max(1).ilog2().clamp(1, 31) as u8,
            reads_out: theirs.reads.min(self.reads_out),
            reads_in: self.reads_in,
        })
    }

    /// Makes a queue pair for `peer`. False where that is not possible: the peer fails.
    fn open_link(&mut self, peer: PeerId) -> bool {
        let made = match self.owners.len() as u32 {
            count if count >= self.connections_max => {
                Err(format!("this process has {count} connections, and there may be no more (WHIMBREL_VERBS=ud needs none)"))
            }
            _ => self.hub.open().map_err(|error| error.to_string()),
        };
        let made = made.and_then(|pair| {
            self.owners.insert(pair, peer);
            self.promised = self.promised.max(self.owners.len() as u32 * allowance::EACH + allowance::SPARE - self.spare);
            let posted = self.post_promised().map(|()| pair).map_err(|error| error.to_string());
            if posted.is_err() {
                self.owners.remove(&pair);
                self.hub.close(pair);
            }
            posted
        });
        let (now_ns, number) = (self.now_ns(), made.as_ref().map_or(0, |&pair| self.hub.number(pair)));
        self.wake_ns = 0;
        match (made, self.peers.get_mut(&peer)) {
            (Ok(pair), Some(found)) => {
                found.link = Some(Link { pair, psn: psn(), tie: self.maker.tie(number, self.me < peer, now_ns), allowance: Allowance::new() });
                true
            }
            (Err(why), _) => {
                self.broken.push((peer, why));
                false
            }
            _ => false,
        }
    }

    /// Sends a greeting, or calls.
    fn greet(&mut self, peer: PeerId) {
        let now_ns = self.now_ns();
        let Maker::Greetings(exchange) = &mut self.maker else { return self.call(peer) };
        let Some(found) = self.peers.get_mut(&peer) else { return };
        let (Some(link), Way::Path(path)) = (&mut found.link, found.way) else { return };
        let Tie::Meeting(meeting) = &mut link.tie else { return };
        meeting.greeted(now_ns);
        let own = Own { number: self.hub.number(link.pair), psn: link.psn, mtu_bytes: self.facts.mtu_bytes, reads: self.reads_in };
        let greeting = Greeting { from: (self.me, self.epoch), to: (peer, found.epoch), own, known: meeting.known(), met: meeting.met };
        let Some(sealed) = greeting.sealed(&self.key) else { return };
        exchange.post_copied(&path, SendQueue::UNTOLD, sealed.len(), |out| out.extend_from_slice(&sealed));
        self.counters.probes_sent += 1;
    }

    /// Lets leave what may, and does what is due.
    pub fn flush(&mut self, now_ns: u64, program: &mut impl Program) {
        while let Some((peer, why)) = self.broken.pop() {
            self.fail(peer, &why, program);
        }
        if now_ns >= self.wake_ns {
            self.tick(now_ns, program);
        }
        while let Some(fetch) = self.fetches.pop_front() {
            self.fetch(fetch, program);
        }
        let pumped = !self.runnable.is_empty();
        for _ in 0..self.runnable.len() {
            let Some(peer) = self.runnable.pop_front() else { break };
            if let Some(found) = self.peers.get_mut(&peer) {
                found.runnable = false;
                self.pump(peer, program);
            }
        }
        match &mut self.maker {
            Maker::Greetings(exchange) => _ = exchange.flush(),
            Maker::Manager(_) => self.flush_calls(pumped, now_ns),
            Maker::Owner(_) => {}
        }
    }

    /// As [`Connections::flush`], where there is something to do.
    pub fn flush_one(&mut self, now_ns: u64, program: &mut impl Program) {
        if self.is_pressing() || now_ns >= self.wake_ns {
            self.flush(now_ns, program);
        }
    }

    /// Time has passed: greetings, signs of life, and peers that do not answer.
    fn tick(&mut self, now_ns: u64, program: &mut impl Program) {
        if matches!(self.maker, Maker::Manager(_)) {
            return self.tick_calls(now_ns, program);
        }
        let (mut greets, mut silent, mut wake_ns) = (Vec::new(), Vec::new(), u64::MAX);
        for (&peer, found) in &mut self.peers {
            let Some(link) = found.link.as_mut() else { continue };
            let due_ns = match &link.tie {
                Tie::Meeting(meeting) if !meeting.met && now_ns >= meeting.since_ns + self.config.peer_timeout_ns => {
                    silent.push(peer);
                    continue;
                }
                Tie::Meeting(meeting) => meeting.due_ns(),
                Tie::Told(true) => None,
                Tie::Told(false) | Tie::Line(_) => continue,
            };
            match due_ns {
                Some(due_ns) if due_ns <= now_ns => greets.push(peer),
                Some(due_ns) => wake_ns = wake_ns.min(due_ns),
                None if found.watched || !found.offered.is_empty() => {
                    wake_ns = wake_ns.min(now_ns + self.config.keepalive_ns);
                    // Where something is under way anyway, the device says when there is no answer.
                    if self.hub.outstanding(link.pair) == 0 && self.hub.has_room(link.pair, 1) && !self.hub.ping(link.pair) {
                        self.broken.push((peer, "its device takes no requests".to_owned()));
                    }
                }
                None => {}
            }
        }
        for peer in silent {
            let why = format!("it does not answer {}; {}", self.own_words(), self.hint());
            self.fail(peer, &why, program);
        }
        for peer in greets {
            self.greet(peer);
            let due_ns = self.peers.get(&peer).and_then(|peer| match &peer.link.as_ref()?.tie {
                Tie::Meeting(meeting) => meeting.due_ns(),
                Tie::Line(_) | Tie::Told(_) => None,
            });
            wake_ns = wake_ns.min(due_ns.unwrap_or(u64::MAX));
        }
        self.wake_ns = wake_ns;
    }

    /// Begins to fetch a body, or says that nobody wants it.
    fn fetch(&mut self, fetch: Fetch, program: &mut impl Program) {
        let Fetch { peer, transfer, bytes, receive } = fetch;
        // One that has failed has ended what it was for.
        let Some(found) = self.peers.get_mut(&peer).filter(|found| !found.failed) else { return };
        let Some(Requested { bytes: whole_bytes, sources }) = found.requests.remove(&transfer) else { return };
        let bytes = bytes.min(whole_bytes);
        if bytes == 0 {
            found.controls.push_back(Control::Done { transfer });
        } else if self.keeps.rendezvous == Rendezvous::Write
            && bytes == whole_bytes
            && bytes >= READ_BYTES_MIN
            && let Some(start) = program.room(receive, bytes)
        {
            found.granted.insert(transfer, Granted { receive, bytes, start: start as u64, held: Held::default() });
            found.registering.push_back((Direction::Write, transfer));
        } else if sources.at(0) != Found::Nowhere
            && let Some(start) = program.room(receive, bytes)
        {
            let moving = Moving { receive, bytes, ..Moving::new(Direction::Read, peer, transfer, whole_bytes, sources, start as u64) };
            found.moving.push_back(put(&mut self.moving, moving));
            found.moves += 1;
        } else {
            found.incoming.insert(transfer, Incoming { receive, came_bytes: 0, bytes });
            found.controls.push_back(Control::Fetch { transfer, bytes });
        }
        self.wake(peer);
    }

    /// Lets what waits for a peer leave, as far as there is room.
    fn pump(&mut self, peer: PeerId, program: &mut impl Program) {
        let quarter = self.config.credit_bytes / 4;
        loop {
            let Some(found) = self.peers.get_mut(&peer).filter(|found| !found.failed) else { return };
            let tells = found.released_bytes - found.told_bytes >= quarter;
            let registers = !found.registering.is_empty();
            let has = registers || !(found.waiting.is_empty() && found.controls.is_empty() && found.outgoing.is_empty() && found.moving.is_empty());
            let Some(link) = &mut found.link else {
                if (has || found.watched) && self.open_link(peer) {
                    self.greet(peer);
                }
                return;
            };
            if !link.tie.is_open() {
                return;
            }
            let pair = link.pair;
            if let Some(&id) = found.moving.front() {
                self.move_on(peer, id);
                let stays = self.peers.get(&peer).is_some_and(|found| found.moving.front() == Some(&id));
                if !stays {
                    continue;
                }
                if !self.hub.has_room(pair, 2) && !self.blocked.contains(&peer) {
                    // It goes on when something is complete, also where nothing else waits for that.
                    self.blocked.push(peer);
                }
            }
            let Some(found) = self.peers.get_mut(&peer) else { return };
            let Some(link) = &mut found.link else { return };
            let presses = link.allowance.is_pressing() || tells || link.tie.owes();
            let sends = !(found.waiting.is_empty() && found.controls.is_empty() && found.outgoing.is_empty());
            if !presses && !sends {
                // What can leave has left, and is under way meanwhile.
                if registers && self.register_next(peer) {
                    continue;
                }
                return;
            }
            if !link.allowance.may_send() {
                // What comes from the peer wakes it.
                return;
            }
            if !self.hub.has_room(pair, 1) {
                self.blocked.push(peer);
                return;
            }
            link.tie.speaks();
            match self.send_frame(peer, presses, program) {
                Some(true) => {}
                Some(false) => return,
                None => {
                    self.blocked.push(peer);
                    return;
                }
            }
        }
    }

    /// Asks the device to move as much of a body as may be under way.
    fn move_on(&mut self, peer: PeerId, id: u32) {
        let Some(found) = self.peers.get_mut(&peer) else { return };
        let Some(link) = &found.link else { return };
        let Some(moving) = self.moving.get_mut(id as usize).and_then(Option::as_mut) else {
            found.moving.pop_front();
            return;
        };
        let segment_bytes = u64::from(self.message_bytes_max.clamp(1, SEGMENT_BYTES_MAX));
        let access = if moving.way == Direction::Read { Access::Local } else { Access::RemoteRead };
        let mut stalls = false;
        // One place is for what says that it is there.
        while moving.asked_bytes < moving.bytes && moving.pending < MOVES_MAX && self.hub.has_room(link.pair, 2) {
            let (there_bytes, place) = match moving.there.at(moving.asked_bytes) {
                Found::Here { bytes, at } => (bytes, at),
                Found::Later => {
                    stalls = true;
                    break;
                }
                Found::Nowhere => {
                    moving.gives_up = true;
                    break;
                }
            };
            if moving.held.bytes() == moving.asked_bytes {
                // SAFETY: the program leaves it to the transport until it is told of the end, and the hold ends before that.
                match unsafe { self.registrations.hold_next(moving.start, moving.asked_bytes, moving.bytes, access) } {
                    Some(hold) => moving.held.add(hold),
                    None => {
                        moving.gives_up = true;
                        break;
                    }
                }
            }
            let Some((hold, offset)) = moving.held.at(moving.asked_bytes) else { break };
            let here_bytes = (hold.memory.bytes - offset) as u64;
            let bytes = segment_bytes.min(there_bytes).min(here_bytes);
            let (pair, here, bytes_now) = (link.pair, &hold.memory, bytes as u32);
            let posted = match moving.way {
                // SAFETY: the hold lasts until all answers are there, or the pair is closed.
                Direction::Read => unsafe { self.hub.read(pair, id, here, offset, bytes_now, place.address, place.key) },
                // SAFETY: as above.
                Direction::Write => unsafe { self.hub.write(pair, id, here, offset, bytes_now, place.address, place.key) },
            };
            if !posted {
                self.broken.push((peer, "its device takes no remote reads and writes".to_owned()));
                return;
            }
            self.counters.sent.calls += 1;
            moving.asked_bytes += bytes;
            moving.pending += 1;
        }
        let all = moving.asked_bytes == moving.bytes;
        if all && moving.way == Direction::Write {
            // It comes after what has been written.
            found.controls.push_back(Control::Written { transfer: moving.transfer });
        }
        if all || stalls || moving.gives_up {
            moving.queued = false;
            found.moving.pop_front();
        }
        if moving.gives_up && moving.pending == 0 {
            self.move_in_frames(id);
        }
    }

    /// Registers a piece of a body that the peer is to move, and says where it lies. False where none waits for that.
    fn register_next(&mut self, peer: PeerId) -> bool {
        let Some(found) = self.peers.get_mut(&peer) else { return false };
        while let Some(&(way, transfer)) = found.registering.front() {
            // Nobody may want it any more, or it comes in frames by now.
            let body = match way {
                Direction::Read => found.offered.get_mut(&transfer).and_then(|one| Some((one.start?, one.bytes, &mut one.held, Access::RemoteRead))),
                Direction::Write => found.granted.get_mut(&transfer).map(|one| (one.start, one.bytes, &mut one.held, Access::RemoteWrite)),
            };
            if let Some((start, whole_bytes, held, access)) = body
                && held.bytes() < whole_bytes
            {
                // SAFETY: the program leaves it to the transport until it is told of the end, and the hold ends before that.
                let hold = unsafe { self.registrations.hold_next(start, held.bytes(), whole_bytes, access) };
                let place = hold.as_ref().map(|hold| Place { address: hold.memory.address, key: hold.memory.keys.rkey });
                let bytes = hold.as_ref().map_or(0, |hold| hold.memory.bytes as u64);
                hold.into_iter().for_each(|hold| held.add(hold));
                found.controls.push_back(Control::Registered { way, transfer, bytes, place });
                if place.is_none() {
                    found.registering.pop_front();
                }
                return true;
            }
            found.registering.pop_front();
        }
        false
    }

    /// Sends the next frame to a peer that may be sent one. False where nothing may leave, `None` where the pool has no slot.
    fn send_frame(&mut self, peer: PeerId, presses: bool, program: &mut impl Program) -> Option<bool> {
        // What is short is made here, else in a slot.
        let found = self.peers.get_mut(&peer)?;
        let link = found.link.as_mut()?;
        let pair = link.pair;
        let last = !link.allowance.has_room();
        let inline_bytes = self.hub.inline_bytes(pair).min(INLINE_BYTES);
        if inline_bytes < HEAD_BYTES + PLACE_BYTES && !self.hub.has_slot() {
            return None;
        }
        let mut head = Head { kind: Kind::Credit, envelope_bytes: 0, credits: 0, transfer: 0, bytes: 0, released_bytes: found.released_bytes };
        let mut envelope = [0; ENVELOPE_BYTES_MAX];
        let mut place = None;
        // What of which body goes with it, and whose end this is; or which body goes from where it lies.
        let (mut payload, mut ended, mut in_place) = (None, None, None);
        let data = found.outgoing.front().copied().filter(|_| found.data_next || found.waiting.is_empty());
        if last {
            // Credits alone.
        } else if let Some(control) = found.controls.pop_front() {
            (head.kind, head.transfer, head.bytes) = match control {
                Control::Fetch { transfer, bytes } => (Kind::Fetch, transfer, bytes),
                Control::Registered { way, transfer, bytes, place: at } => {
                    place = at;
                    (if way == Direction::Read { Kind::Pinned } else { Kind::Grant }, transfer, bytes)
                }
                Control::Written { transfer } => (Kind::Written, transfer, 0),
                Control::Done { transfer } => (Kind::Done, transfer, 0),
                Control::Widen => (Kind::Widen, 0, 0),
            };
        } else if let Some(data) = data {
            let bytes = (data.bytes - data.offset).min((SLOT_BYTES - HEAD_BYTES) as u64);
            let slot_needed = HEAD_BYTES + bytes as usize > inline_bytes;
            if slot_needed && !self.hub.has_slot() {
                return None;
            }
            found.data_next = false;
            (head.kind, head.transfer, head.bytes) = (Kind::Data, data.transfer, data.offset);
            payload = Some(Slice { send: data.send, offset_bytes: data.offset, length_bytes: bytes as u32 });
            match data.offset + bytes == data.bytes {
                true => {
                    found.outgoing.pop_front();
                    if !found.confirms {
                        let held = found.offered.remove(&data.transfer).map(|offered| offered.held);
                        held.into_iter().flatten().for_each(|hold| self.registrations.release(hold));
                        ended = Some(data.send);
                    }
                }
                false => found.outgoing[0].offset += bytes,
            }
        } else if let Some(waiting) = found.waiting.front().copied() {
            let eager = !waiting.pulled && waiting.bytes <= EAGER_BYTES_MAX as u64;
            let length = HEAD_BYTES + waiting.envelope_bytes as usize + if eager { waiting.bytes as usize } else { PLACE_BYTES };
            if length > inline_bytes && !self.hub.has_slot() {
                return None;
            }
            let mut allowed = if eager {
                found.unmatched.take(waiting.bytes)
            } else if found.unmatched.take_header() {
                Allowed::Header
            } else {
                Allowed::Wait
            };
            if eager && allowed == Allowed::Header {
                allowed = found.unmatched.payload_instead(waiting.bytes);
            }
            match allowed {
                // The peer says so when it has room.
                Allowed::Wait if !presses => return Some(false),
                Allowed::Wait => {}
                allowed => {
                    found.waiting.pop_front();
                    found.data_next = !found.outgoing.is_empty();
                    envelope = waiting.envelope;
                    (head.envelope_bytes, head.bytes) = (waiting.envelope_bytes, waiting.bytes);
                    if allowed == Allowed::Eager {
                        head.kind = Kind::Eager;
                        let bytes = waiting.bytes as usize;
                        let start = if bytes < IN_PLACE_BYTES_MIN || !self.hub.gathers(pair) { None } else { program.body(waiting.send) };
                        // SAFETY: the body belongs to the transport until its send is complete, and the hold ends before that.
                        match start.and_then(|start| unsafe { self.registrations.in_place_of(start, bytes) }) {
                            Some(hold) => in_place = Some(InPlace { peer, send: waiting.send, hold }),
                            None => {
                                payload = Some(Slice { send: waiting.send, offset_bytes: 0, length_bytes: bytes as u32 }).filter(|_| bytes > 0);
                                ended = Some(waiting.send);
                            }
                        }
                    } else {
                        head.transfer = found.next_transfer;
                        found.next_transfer = found.next_transfer.wrapping_add(1);
                        let start = program.body(waiting.send).filter(|_| waiting.bytes >= READ_BYTES_MIN).map(|start| start as u64);
                        let mut offered = Offered { send: waiting.send, bytes: waiting.bytes, start, framed: false, held: Held::default() };
                        head.kind = Kind::Request;
                        if let Some(start) = start.filter(|_| self.keeps.rendezvous == Rendezvous::Read) {
                            if self.registrations.at_once(start, waiting.bytes) {
                                // SAFETY: the body belongs to the transport until its send is complete, and the hold ends before that.
                                let hold = unsafe { self.registrations.hold(start as *mut u8, waiting.bytes as usize, Access::RemoteRead) };
                                place = hold.as_ref().map(|hold| Place { address: start, key: hold.memory.keys.rkey });
                                hold.into_iter().for_each(|hold| offered.held.add(hold));
                            } else {
                                head.kind = Kind::Announce;
                                found.registering.push_back((Direction::Read, head.transfer));
                            }
                        }
                        found.offered.insert(head.transfer, offered);
                        self.wake_ns = self.wake_ns.min(self.start.elapsed().as_nanos() as u64 + self.config.keepalive_ns);
                    }
                }
            }
        } else if !presses {
            return Some(false);
        }
        let Some(link) = &mut found.link else { return Some(false) };
        let is_whole = head.kind == Kind::Eager;
        head.credits = link.allowance.send();
        found.told_bytes = found.released_bytes;
        let head = head.to_bytes();
        let envelope = &envelope[..head[1] as usize];
        let end = place.map_or([0; PLACE_BYTES], Place::to_bytes);
        let end = if place.is_some() { &end[..] } else { &[] };
        let length = HEAD_BYTES + envelope.len() + payload.map_or(0, |slice| slice.length_bytes as usize) + end.len();
        let sink = &mut self.sink;
        let mut make = |out: &mut [u8]| {
            out[..HEAD_BYTES].copy_from_slice(&head);
            out[HEAD_BYTES..][..envelope.len()].copy_from_slice(envelope);
            let rest = &mut out[HEAD_BYTES + envelope.len()..];
            match payload {
                Some(slice) => {
                    program.gather(&slice, sink);
                    sink.empty_into(rest);
                }
                None => rest.copy_from_slice(end),
            }
        };
        let posted = if let Some(left) = in_place {
            let mut slot = self.hub.take()?;
            make(&mut self.hub.bytes(&mut slot)[..length]);
            found.in_place += 1;
            let body = left.hold.memory;
            let number = put(&mut self.in_place, left);
            // SAFETY: the hold lasts until the device says that it is done, or the pair is closed.
            unsafe { self.hub.send_gathered(pair, slot, length, &body, number) }
        } else if length <= inline_bytes {
            let mut short = [0; INLINE_BYTES];
            make(&mut short[..length]);
            self.hub.send_by_value(pair, &short[..length])
        } else {
            let mut slot = self.hub.take()?;
            make(&mut self.hub.bytes(&mut slot)[..length]);
            self.hub.send(pair, slot, length)
        };
        self.counters.sent.datagrams += 1;
        self.counters.sent.calls += 1;
        if !posted {
            self.broken.push((peer, "its device takes no requests".to_owned()));
        }
        // It has been copied, or taken by value.
        match (ended, payload) {
            (Some(send), payload) if is_whole => program.left(send, payload.map_or(0, |slice| slice.length_bytes)),
            (Some(send), _) => program.complete(send, Ok(())),
            (None, _) => {}
        }
        Some(posted)
    }

    /// Gives peers up of which nothing is expected any more. What waits for them leaves first, as far as there is room.
    pub fn abandon(&mut self, _: u64, peers: &[PeerId], program: &mut impl Program) {
        for &peer in peers {
            self.pump(peer, program);
            if let Some(found) = self.peers.get_mut(&peer) {
                found.watched = true;
            }
            self.fail(peer, "nothing is expected of it any more", program);
        }
    }

    /// A connection is no more. The peer has failed, unless nothing was wanted of it.
    fn fail(&mut self, peer: PeerId, why: &str, program: &mut impl Program) {
        let is_made_anew = matches!(self.maker, Maker::Owner(_));
        let Some(found) = self.peers.get_mut(&peer).filter(|found| !found.failed) else { return };
        if is_made_anew {
            self.close(peer);
            self.lost.push((peer, why.to_owned()));
            return;
        }
        end_link(found, &mut self.maker, &mut self.hub, &mut self.owners, &mut self.spare);
        if !found.matters() {
            // It has ended, as it may: another greeting would begin anew.
            let (epoch, way) = (found.epoch, found.way);
            let unmatched = self.unmatched();
            self.peers.insert(peer, Peer::new(epoch, way, unmatched));
            return;
        }
        found.failed = true;
        let (sends, receives) = self.let_go(peer);
        sends.into_iter().for_each(|send| program.complete(send, Err(Failure::Peer)));
        receives.into_iter().for_each(|receive| program.received(receive, Err(Failure::Peer)));
        program.peer_lost(peer, why);
    }

    /// Ends all that is under way with a peer whose link has ended: the sends and receives that had not.
    fn let_go(&mut self, peer: PeerId) -> (Vec<u64>, Vec<u64>) {
        let Some(found) = self.peers.get_mut(&peer) else { return (Vec::new(), Vec::new()) };
        let mut sends: Vec<u64> = found.waiting.drain(..).map(|waiting| waiting.send).collect();
        let mut receives: Vec<u64> = found.incoming.drain().map(|(_, incoming)| incoming.receive).collect();
        // What is being sent through the connection is among those that are offered.
        found.outgoing.clear();
        let mut holds: Vec<Hold> = Vec::new();
        for (_, offered) in found.offered.drain() {
            sends.push(offered.send);
            holds.extend(offered.held);
        }
        found.controls.clear();
        found.requests.clear();
        for (_, granted) in found.granted.drain() {
            receives.push(granted.receive);
            holds.extend(granted.held);
        }
        found.moving.clear();
        found.registering.clear();
        (found.moves, found.in_place) = (0, 0);
        for moving in self.moving.iter_mut().filter_map(|moving| moving.take_if(|moving| moving.peer == peer)) {
            receives.extend((moving.way == Direction::Read).then_some(moving.receive));
            holds.extend(moving.held);
        }
        for left in self.in_place.iter_mut().filter_map(|left| left.take_if(|left| left.peer == peer)) {
            sends.push(left.send);
            holds.push(left.hold);
        }
        holds.into_iter().for_each(|hold| self.registrations.release(hold));
        // Another connection to the same peer has numbers of its own.
        self.fetches.retain(|fetch| fetch.peer != peer);
        self.broken.retain(|(other, _)| *other != peer);
        (sends, receives)
    }
}

impl Drop for Connections {
    fn drop(&mut self) {
        if let Maker::Manager(manager) = &mut self.maker {
            manager.leave(&mut self.hub);
        }
    }
}

/// Ends the link of a peer, if there is one: from here on the device touches nothing that was posted for it.
fn end_link(found: &mut Peer, maker: &mut Maker, hub: &mut Hub, owners: &mut FxHashMap<PairId, PeerId>, spare: &mut u32) {
    if let Some(link) = found.link.take() {
        maker.end(hub, link.pair, &link.tie);
        owners.remove(&link.pair);
        *spare += link.allowance.extra();
    }
}

/// Where `one` stands in `all` from now on.
fn put<T>(all: &mut Vec<Option<T>>, one: T) -> u32 {
    let at = all.iter().position(Option::is_none).unwrap_or(all.len());
    match all.get_mut(at) {
        Some(place) => *place = Some(one),
        None => all.push(Some(one)),
    }
    at as u32
}

/// What the device moves of one transfer, and its number.
fn moving_of(all: &mut [Option<Moving>], way: Direction, peer: PeerId, transfer: u32) -> Option<(&mut Moving, u32)> {
    all.iter_mut().zip(0..).find_map(|(moving, id)| {
        let moving = moving.as_mut()?;
        (moving.way == way && moving.peer == peer && moving.transfer == transfer).then_some((moving, id))
    })
}

/// Takes in a frame of `peer`. Whether there may be something to send now; `None` where it says what cannot be.
fn took(
    peers: &mut FxHashMap<PeerId, Peer>,
    all_moving: &mut Vec<Option<Moving>>,
    registrations: &mut Registrations,
    peer: PeerId,
    frame: &Frame,
    program: &mut impl Program,
) -> Option<bool> {
    let found = peers.get_mut(&peer)?;
    let link = found.link.as_mut()?;
    // Who sends knows that both pairs are tied.
    let mut wakes = link.tie.spoken_to();
    let head = &frame.head;
    if !link.allowance.came(head.credits) || !found.unmatched.released(head.released_bytes) {
        return None;
    }
    wakes |= link.allowance.is_pressing();
    wakes |= !found.is_idle();
    match head.kind {
        Kind::Eager => program.deliver(peer, Delivery::Eager { envelope: frame.envelope, payload: frame.payload }),
        Kind::Request | Kind::Announce => {
            let sources = if head.kind == Kind::Announce { Sources::growing() } else { Sources::of(head.bytes, frame.place) };
            if found.requests.insert(head.transfer, Requested { bytes: head.bytes, sources }).is_some() {
                return None;
            }
            program.deliver(peer, Delivery::Request { envelope: frame.envelope, transfer: head.transfer, bytes: head.bytes });
        }
        Kind::Pinned => {
            let mut moving = moving_of(all_moving, Direction::Read, peer, head.transfer);
            let told = match (&mut moving, found.requests.get_mut(&head.transfer)) {
                (Some((moving, _)), _) => Some((&mut moving.there, moving.whole_bytes)),
                (None, Some(requested)) => Some((&mut requested.sources, requested.bytes)),
                // It is asked for, or not wanted.
                (None, None) => None,
            };
            if told.is_some_and(|(sources, whole_bytes)| !sources.add(head.bytes, frame.place, whole_bytes)) {
                return None;
            }
            if let Some((moving, id)) = moving
                && !std::mem::replace(&mut moving.queued, true)
            {
                found.moving.push_back(id);
                wakes = true;
            }
        }
        Kind::Grant => {
            if let Some((moving, id)) = moving_of(all_moving, Direction::Write, peer, head.transfer) {
                if !moving.there.add(head.bytes, frame.place, moving.bytes) {
                    return None;
                }
                if !std::mem::replace(&mut moving.queued, true) {
                    found.moving.push_back(id);
                }
            } else {
                // One that goes in frames needs no place, nor does one that has gone.
                let Some(offered) = found.offered.get_mut(&head.transfer).filter(|offered| !offered.framed) else { return Some(wakes) };
                let (send, bytes, mut there) = (offered.send, offered.bytes, Sources::growing());
                if !there.add(head.bytes, frame.place, bytes) {
                    return None;
                }
                match offered.start {
                    Some(start) => {
                        let moving = Moving::new(Direction::Write, peer, head.transfer, bytes, there, start);
                        found.moving.push_back(put(all_moving, moving));
                        found.moves += 1;
                    }
                    None => {
                        offered.framed = true;
                        found.outgoing.push_back(Outgoing { transfer: head.transfer, send, offset: 0, bytes });
                    }
                }
            }
            wakes = true;
        }
        Kind::Written => {
            let Granted { receive, bytes, held, .. } = found.granted.remove(&head.transfer)?;
            let all = held.bytes() == bytes;
            held.into_iter().for_each(|hold| registrations.release(hold));
            if !all {
                // The receive fails with its peer.
                found.incoming.insert(head.transfer, Incoming { receive, came_bytes: 0, bytes });
                return None;
            }
            if found.confirms {
                found.controls.push_back(Control::Done { transfer: head.transfer });
                wakes = true;
            }
            program.received(receive, Ok(()));
        }
        Kind::Fetch => {
            let offered = found.offered.get_mut(&head.transfer).filter(|offered| (1..=offered.bytes).contains(&head.bytes) && !offered.framed)?;
            offered.framed = true;
            found.registering.retain(|&one| one != (Direction::Read, head.transfer));
            found.outgoing.push_back(Outgoing { transfer: head.transfer, send: offered.send, offset: 0, bytes: head.bytes });
            wakes = true;
        }
        Kind::Data => {
            // Its sender cannot write it.
            if let Some(Granted { receive, bytes, held, .. }) = found.granted.remove(&head.transfer) {
                held.into_iter().for_each(|hold| registrations.release(hold));
                found.incoming.insert(head.transfer, Incoming { receive, came_bytes: 0, bytes });
            }
            let incoming = found.incoming.get_mut(&head.transfer)?;
            let bytes = frame.payload.len() as u64;
            if head.bytes != incoming.came_bytes || bytes > incoming.bytes - incoming.came_bytes {
                return None;
            }
            incoming.came_bytes += bytes;
            let (receive, whole) = (incoming.receive, incoming.came_bytes == incoming.bytes);
            program.place(receive, head.bytes, frame.payload, &|_| true);
            if whole {
                found.incoming.remove(&head.transfer);
                if found.confirms {
                    found.controls.push_back(Control::Done { transfer: head.transfer });
                    wakes = true;
                }
                program.received(receive, Ok(()));
            }
        }
        Kind::Done => {
            let offered = found.offered.remove(&head.transfer)?;
            offered.held.into_iter().for_each(|hold| registrations.release(hold));
            program.complete(offered.send, Ok(()));
        }
        Kind::Credit => {}
        Kind::Widen => {
            found.unmatched.widen();
            wakes = true;
        }
    }
    Some(wakes)
}
