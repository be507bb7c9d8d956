//! Reliable messages over a datagram device: a process on the network, with its device, its paths, its key and the reliability layer together.
//!
//! Whoever drives it calls [`Reliable::poll`] again and again, and [`Reliable::wait`] when there is nothing else to do. Requests go to
//! [`Reliable::requests`]; nothing of them leaves before the next poll or [`Reliable::flush`]. A poll is [`Reliable::take_in`] and, where
//! [`Reliable::is_due`] or something came, [`Reliable::flush`].

mod beside;
mod card;
mod device;
mod edge;
mod events;
mod foreign;
pub(crate) mod lanes;
mod protection;
pub(crate) mod search;
mod sys;
#[cfg(test)]
pub(crate) mod tests;

pub use beside::Beside;
pub use card::{Card, NoCard};
pub use device::{
    Arrival, Arrivals, Batch, Candidate, DATAGRAM_BYTES_MAX, DatagramDevice, Offer, Path, ReceiveCounters, SOURCES_MAX, SendCounters, SendQueue, Stamp, Trigger,
};
pub use events::{Doorbell, Watch};
pub use protection::{Guard, JobKey, Protection, SEALED_MORE_BYTES};

use std::hash::RandomState;
use std::os::fd::BorrowedFd;
use std::sync::{Arc, Mutex};
use std::time::Instant;

use proto::reliability::wire::{DIRECT, FOREIGN, HEADER_BYTES, Packet, Run, VERSION};
use proto::reliability::{Begun, Config, Delivery, Endpoint, Failure, MTU_BYTES_MIN, PeerId, Slice};

use crate::Error;
use edge::{Around, Arrived, Edge, PeerPaths, State, spares_of};
use events::{Watched, watched};
use lanes::LANES;
use protection::{Opened, Place};
use search::{Ends, Probe, Search};

/// The program's side: its memory, and what it is told.
///
/// # Safety
/// What [`Program::gather`] gives and [`Program::place`] is told must be as they say.
pub unsafe trait Program {
    /// Puts the memory of a piece of a send into `out`, which asks for exactly `slice.length_bytes`. It must stay readable until the send is complete
    /// ([`Program::complete`]), or where [`Sink::push_passing`] says so.
    fn gather(&self, slice: &Slice, out: &mut Sink);
    /// Copies `payload`, which is authentic, to `offset_bytes` of a receive, and says whether what is in memory then is the same: `check` compares
    /// the whole. A receive that lies in several pieces is filled, and may be compared, piece by piece.
    fn place(&mut self, receive: u64, offset_bytes: u64, payload: &[u8], check: &dyn Fn(&[u8]) -> bool) -> bool;
    /// The same for the payloads of a run that are not there yet, which follow each other from `offset_bytes` on.
    fn place_run(&mut self, receive: u64, offset_bytes: u64, run: &Run) -> bool {
        run.rest(offset_bytes).all(|(offset_bytes, payload)| self.place(receive, offset_bytes, payload, &|placed| placed == payload))
    }
    /// As [`Outside::begin`].
    fn begin(&mut self, peer: PeerId, envelope: &[u8], bytes: u64) -> Option<Begun> {
        let _ = (peer, envelope, bytes);
        None
    }
    fn deliver(&mut self, peer: PeerId, delivery: Delivery);
    fn complete(&mut self, send: u64, result: Result<(), Failure>);
    fn received(&mut self, receive: u64, result: Result<(), Failure>);
    /// The whole body of a send, `bytes` long, has been copied on its way, and may be lost yet where what it goes over breaks.
    fn left(&mut self, send: u64, bytes: u32) {
        let _ = bytes;
        self.complete(send, Ok(()));
    }
    /// `in_use`: sends that have not ended, since datagrams on their way out still read their payload ([`Outside::peer_failed`]).
    fn peer_failed(&mut self, peer: PeerId, in_use: &[u64]);
    /// As [`Program::peer_failed`], where the transport knows why.
    fn peer_lost(&mut self, peer: PeerId, why: &str) {
        let _ = why;
        self.peer_failed(peer, &[]);
    }
    fn rail_changed(&mut self, peer: PeerId, rail: u8, alive: bool) {
        let _ = (peer, rail, alive);
    }
    /// Where the whole body of a send lies, if it lies in one piece, for a device that reads it there: as [`Program::gather`] says.
    fn body(&self, send: u64) -> Option<*const u8> {
        let _ = send;
        None
    }
    /// Where the first `bytes` of a receive lie, if they lie in one piece, for a device to write, or for what may yet turn out not to be authentic: nobody
    /// else touches them until [`Program::received`].
    fn room(&mut self, receive: u64, bytes: u64) -> Option<*mut u8> {
        let _ = (receive, bytes);
        None
    }
    /// The card of a connected peer ([`Reliable::card`] there), asked for when the paths to it are to be searched for: it is not kept here.
    fn card(&mut self, peer: PeerId) -> Option<String>;
}

/// Where the payloads of a run belong, in memory of the program that nothing reads before they have arrived.
fn place_of(run: &Run, endpoint: &Endpoint, program: &mut impl Program) -> Option<Place> {
    let (placement, bytes) = (endpoint.placement(run)?, run.payload_bytes() as usize);
    let start = program.room(placement.receive, placement.offset_bytes + bytes as u64)?.wrapping_add(placement.offset_bytes as usize);
    Some(Place { start, bytes, segment_bytes: run.segment_bytes(), head_bytes: run.head_bytes() })
}

/// Takes the pieces of a payload.
#[derive(Debug, Default)]
pub struct Sink {
    pieces: Vec<(*const u8, usize)>,
    /// Some of them do not last as long as their send.
    passing: bool,
}

// SAFETY: it is empty between calls.
unsafe impl Send for Sink {}

impl Sink {
    /// # Safety
    /// `start..start + bytes` must be readable as [`Program::gather`] says.
    pub unsafe fn push(&mut self, start: *const u8, bytes: usize) {
        if bytes > 0 {
            self.pieces.push((start, bytes));
        }
    }

    /// As [`Sink::push`] of memory that may be gone before its send is complete.
    ///
    /// # Safety
    /// `start..start + bytes` must be readable until [`Reliable::poll`] or [`Reliable::flush`], in which this is called, has returned.
    pub unsafe fn push_passing(&mut self, start: *const u8, bytes: usize) {
        self.passing = true;
        self.push(start, bytes);
    }

    /// Copies the pieces to `out`, which is as long as they are together, and forgets them. To be called before the call returns in which they were
    /// put in.
    ///
    /// # Panics
    /// Where the lengths differ.
    pub(crate) fn empty_into(&mut self, mut out: &mut [u8]) {
        for &(start, bytes) in &self.pieces {
            let part;
            (part, out) = out.split_at_mut(bytes);
            // SAFETY: whoever put it in has promised that it may be read.
            part.copy_from_slice(unsafe { std::slice::from_raw_parts(start, bytes) });
        }
        assert!(out.is_empty(), "pieces are missing");
        self.clear();
    }

    fn clear(&mut self) {
        self.pieces.clear();
        self.passing = false;
    }
}

/// What has happened at this edge since the start; what arrived sound is counted by the reliability layer.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct NetworkCounters {
    /// Not of this job, not for this process, or damaged on the way.
    pub refused: u64,
    /// Datagrams to peers that no way is known to: they count as lost.
    pub unroutable: u64,
    /// Datagrams whose authenticators were checked several at a time.
    pub opened_together: u64,
    pub probes_sent: u64,
    pub probes_answered: u64,
    pub sent: SendCounters,
    pub received: ReceiveCounters,
    /// Nothing where no device registers memory.
    pub registrations: trace::Registrations,
    /// Nothing where they do not come and go.
    pub connections: trace::Connections,
}

/// The token of a message without a body, whose end nobody waits for.
pub const NOBODY: u64 = u64::MAX;
/// Shorter sleeps take much longer than asked for: the kernel's timers have 50 µs of slack.
const NAP_NS_MIN: u64 = 100_000;
/// Searches that are on at the same time; others wait for their end.
const SEARCHES_MAX: usize = 256;
/// Between looks whether this host's addresses have changed.
const RENEW_EACH_NS: u64 = 1_000_000_000;

fn since_ns(start: Instant) -> u64 {
    start.elapsed().as_nanos() as u64 + 1
}

/// Segments of a message that are taken in as one rather than opened together with what is before them.
const RUN_LEAST: usize = 3;

/// How many datagrams at the start of `bytes`, two or more and not more than are opened at once, may be opened
/// together: those of messages, as long as each other.
fn several_alike<D: DatagramDevice>(edge: &Edge<D>, bytes: &[u8], each_bytes: usize, lead_bytes: usize) -> Option<usize> {
    let foreign = bytes.get(1)? & FOREIGN != 0;
    if lead_bytes > 0 || each_bytes < HEADER_BYTES || edge.opens(foreign)?.encrypts() {
        return None;
    }
    let alike = |one: &[u8]| one[0] == VERSION && one[1] & DIRECT == 0 && one[1] == bytes[1];
    let count = bytes.chunks_exact(each_bytes).take(LANES).take_while(|one| alike(one)).count();
    (count > 1).then_some(count)
}

#[derive(Debug)]
pub struct Reliable<D: DatagramDevice> {
    device: D,
    edge: Edge<D>,
    endpoint: Endpoint,
    card: Card<D::Offer>,
    doorbell: Doorbell,
    watched: Watched,
    /// How often the card has changed, and when the device is asked next whether it has to.
    revision: u16,
    renew_ns: u64,
    me: PeerId,
    epoch: u32,
    start: Instant,
    /// When something came last, and looks since.
    came_ns: u64,
    looks: u32,
    /// About when the sockets were last looked at.
    looked_ns: u64,
    /// Until then what is taken in may have come while nobody looked, unless a look finds nothing before.
    late_ns: u64,
}

/// For a thread that sleeps until something comes to `device`, while nobody looks at it.
///
/// # Errors
/// The system has no descriptor left.
pub(crate) fn watch_of(device: &impl DatagramDevice) -> Result<Watch, Error> {
    Watch::new(Watched::new(Mutex::new(events::copies(device)?)))
}

/// The same of descriptors that are readable as long as there is something, or are armed before each sleep.
///
/// # Errors
/// The system has no descriptor left.
pub(crate) fn watch_over(sources: &[BorrowedFd]) -> Result<Watch, Error> {
    Watch::new(Watched::new(Mutex::new(events::copied(sources)?)))
}

impl<D: DatagramDevice> Reliable<D> {
    /// Process `me`, incarnation `epoch` (not 0), on `device`. `adjust` may change the reliability layer's limits.
    pub fn over(device: D, me: PeerId, epoch: u32, key: &JobKey, protection: Protection, adjust: impl FnOnce(&mut Config)) -> Result<Self, Error> {
        let mut config = Config { rails: device.rails(), ..Config::default() };
        config.window_initial_bytes = config.window_initial_bytes.max(8 * device.longest_bytes() as u64);
        adjust(&mut config);
        let rails = config.rails.len();
        Ok(Reliable {
            card: Card { epoch, rails, offers: device.offers() },
            revision: 0,
            renew_ns: RENEW_EACH_NS,
            device,
            edge: Edge::new(Guard::new(key, protection), rails),
            endpoint: Endpoint::new(config, me, epoch),
            doorbell: Doorbell::new()?,
            watched: Watched::new(Mutex::new(Arc::default())),
            me,
            epoch,
            start: Instant::now(),
            came_ns: 0,
            looks: 0,
            looked_ns: 0,
            late_ns: 0,
        })
    }

    /// Takes the job's key, where it was not known when the sockets were opened. Before the first datagram.
    pub fn set_key(&mut self, key: &JobKey, protection: Protection) {
        self.edge.guard = Guard::new(key, protection);
    }

    /// What to tell the others: opaque to all but [`Reliable::connect`].
    pub fn card(&self) -> String {
        self.card.to_string()
    }

    /// Names a peer and where it listens; needed before the first request towards it. It costs no datagram: the likeliest pair of addresses is
    /// used until there is a reason to look for others.
    ///
    /// # Errors
    /// Where `card` is none: nothing has happened then.
    pub fn connect(&mut self, peer: PeerId, card: &str) -> Result<(), NoCard> {
        let card: Card<D::Offer> = card.parse()?;
        self.endpoint.connect(peer, card.epoch);
        let card = self.edge.changed.get(&peer).map_or(card, |(_, card)| card.clone());
        let search = self.search_for(peer, &card);
        let (rails, now_ns) = (self.card.rails.max(card.rails), self.now_ns());
        let (paths, mtu_bytes) = search.paths(1);
        let Some(&likeliest) = paths.first() else { return Ok(()) };
        self.endpoint.set_paths(peer, rails, mtu_bytes);
        let paths: Box<[D::Path]> = vec![likeliest; rails].into();
        self.endpoint.set_spares(peer, spares_of(&paths));
        *self.edge.peer_paths.place(peer) = Some(PeerPaths { paths, state: State::Guessed, wanted: false, sent_bytes: 0 });
        self.edge.unheard.push_back((now_ns, peer));
        Ok(())
    }

    /// Takes the key for what processes of other jobs send to this one ([`Reliable::add_foreign`]).
    pub fn set_foreign_key(&mut self, key: &JobKey, protection: Protection) {
        self.edge.foreign.set_key(Guard::new(key, protection));
    }

    /// From now on `peer`, the number after those that are there, is process `number` of another job, whose card, key and protection are these.
    /// [`Reliable::connect`] is to follow. False where `card` is none, or a process of that number and incarnation is known already.
    pub fn add_foreign(&mut self, peer: PeerId, number: u32, card: &str, key: &JobKey, protection: Protection) -> bool {
        let card: Result<Card<D::Offer>, NoCard> = card.parse();
        card.is_ok_and(|card| self.edge.foreign.add(peer, number, card.epoch, Guard::new(key, protection)))
    }

    fn search_for(&self, peer: PeerId, card: &Card<D::Offer>) -> Search<D::Path> {
        let foreign = self.edge.foreign.seals(peer).map(|(number, _)| number);
        let ends = Ends { source: self.me, source_epoch: self.epoch, destination: foreign.unwrap_or(peer), destination_epoch: card.epoch };
        Search::new::<D>(ends, &self.card, card, RandomState::new(), self.now_ns()).between_jobs(foreign.is_some())
    }

    /// Begins the searches for which there is a reason.
    fn begin_searches(&mut self, program: &mut impl Program, now_ns: u64) {
        let patience_ns = self.endpoint.patience_ns();
        if now_ns >= self.renew_ns {
            self.renew_ns = now_ns + RENEW_EACH_NS;
            if self.device.renew() {
                self.revision += 1;
                self.card = Card { epoch: self.epoch, rails: self.device.rails().len(), offers: self.device.offers() };
                if let Ok(sources) = events::copies(&self.device) {
                    *watched(&self.watched) = sources;
                }
                let all: Vec<PeerId> = self.edge.peer_paths.numbers().collect();
                all.into_iter().for_each(|peer| self.edge.want(peer));
            }
        }
        while let Some(&(_, peer)) = self.edge.unheard.front().filter(|(since_ns, _)| since_ns + patience_ns <= now_ns) {
            self.edge.unheard.pop_front();
            if self.edge.peer_paths.get(peer).is_some_and(|peer_paths| peer_paths.state == State::Guessed) {
                self.edge.want(peer);
            }
        }
        while self.edge.searches.len() < SEARCHES_MAX
            && let Some(peer) = self.edge.wanted.pop()
        {
            let Some(peer_paths) = self.edge.peer_paths.get_mut(peer) else { continue };
            peer_paths.wanted = false;
            // One that has not found the first paths begins anew.
            let first = matches!(peer_paths.state, State::Guessed | State::Heard) || self.edge.searches.get(&peer).is_some_and(|search| !search.adds);
            peer_paths.state = State::Searched;
            let changed = self.edge.changed.get(&peer).map(|(_, card)| card.clone());
            let Some(card) = changed.or_else(|| program.card(peer)?.parse().ok()) else { continue };
            let search = self.search_for(peer, &card).patient(patience_ns).telling(&self.card.to_string(), self.revision);
            let mut search = search.carrying(self.endpoint.mtu_bytes(peer));
            search.adds = !first;
            if search.is_worth_it() {
                self.edge.searches.insert(peer, search);
            } else if let Some(peer_paths) = self.edge.peer_paths.get_mut(peer) {
                peer_paths.state = State::Lone;
            }
        }
    }

    /// Time as the reliability layer counts it.
    pub fn now_ns(&self) -> u64 {
        since_ns(self.start)
    }

    /// The reliability layer, for requests, with the time of now.
    pub fn requests(&mut self) -> (u64, &mut Endpoint) {
        (self.now_ns(), &mut self.endpoint)
    }

    /// The reliability layer, for requests.
    pub fn endpoint_mut(&mut self) -> &mut Endpoint {
        &mut self.endpoint
    }

    /// The device, for its tests.
    #[cfg(test)]
    pub(crate) fn device_mut(&mut self) -> &mut D {
        &mut self.device
    }

    pub fn me(&self) -> PeerId {
        self.me
    }

    pub fn endpoint(&self) -> &Endpoint {
        &self.endpoint
    }

    pub fn counters(&self) -> NetworkCounters {
        let (pool_bytes, queue_pairs) = self.device.footprint();
        let registrations = trace::Registrations { pool_bytes: pool_bytes as u64, queue_pairs: queue_pairs as u64, ..Default::default() };
        NetworkCounters { sent: self.device.send_counters(), received: self.device.receive_counters(), registrations, ..self.edge.counters }
    }

    /// Takes in what has arrived, does what is due, and lets everything leave that may. How many datagrams came.
    pub fn poll(&mut self, program: &mut impl Program) -> usize {
        let came = self.take_in(program);
        self.flush(self.now_ns(), program);
        came
    }

    /// Takes in what has arrived. How many datagrams came.
    ///
    /// What came may want a [`Reliable::flush`] at once ([`Reliable::is_pressing`]).
    pub fn take_in(&mut self, program: &mut impl Program) -> usize {
        if D::QUEUES {
            self.complete_locally(program);
        }
        let (mut now_ns, mut came, mut turn) = (0, 0, 0);
        while let Some(mut arrivals) = self.device.receive(&mut turn) {
            if now_ns == 0 {
                now_ns = since_ns(self.start);
                let away_ns = now_ns - self.looked_ns;
                if away_ns > self.endpoint.config().queueing_ns {
                    self.late_ns = now_ns + away_ns;
                }
                self.endpoint.set_late(now_ns < self.late_ns);
            }
            let mut datagrams = 0;
            for index in 0..arrivals.count() {
                if let Some(arrival) = arrivals.get(index) {
                    datagrams += self.arrived(arrival, program, now_ns);
                }
            }
            self.device.recycle(arrivals, datagrams);
            came += datagrams;
        }
        self.looks = if came > 0 { 0 } else { self.looks.wrapping_add(1) };
        self.came_ns = self.came_ns.max(now_ns);
        if came == 0 {
            self.late_ns = 0;
        }
        self.looked_ns = match came {
            0 if self.looks.is_multiple_of(D::LOOKS_PER_TIME) => self.now_ns(),
            0 => self.looked_ns,
            _ => now_ns,
        };
        came
    }

    /// Takes in the datagrams of one buffer. How many there were.
    fn arrived(&mut self, arrival: Arrival<D::Source>, program: &mut impl Program, now_ns: u64) -> usize {
        let Arrival { from, local, bytes, stride_bytes, lead_bytes } = arrival;
        let (edge, endpoint, device) = (&mut self.edge, &mut self.endpoint, &mut self.device);
        let (from, ends) = ((local, from), (self.me, self.epoch));
        let (mut start, mut count) = (0, 0);
        // How long a run begins at the next datagram, where that has been looked at.
        let mut next_run = None;
        while start < bytes.len() {
            let rest = &mut bytes[start..];
            // Those of a run follow each other without anything between.
            let foreign = rest.get(lead_bytes + 1).is_some_and(|flags| flags & FOREIGN != 0);
            let run = match next_run.take() {
                Some(run) => run,
                None if lead_bytes > 0 || edge.guard.encrypts() || foreign && edge.foreign.opens().is_none() => 0,
                None => Run::length(rest, stride_bytes),
            };
            // Where most of a message follows its first datagram, that is opened alone.
            let several = if run > 1 { None } else { several_alike::<D>(edge, rest, stride_bytes, lead_bytes) };
            let several = several.filter(|_| {
                let run = Run::length(&rest[stride_bytes..], stride_bytes);
                next_run = Some(run).filter(|&run| run >= RUN_LEAST);
                next_run.is_none()
            });
            let taken = if run > 1 {
                let end = rest.len().min(run * stride_bytes);
                let place = Run::parse(&rest[..end], stride_bytes).filter(|_| !foreign).and_then(|run| place_of(&run, endpoint, program));
                // SAFETY: the program lets it be written to, and nothing that has arrived lies there.
                let opened = edge.opens(foreign).map(|guard| unsafe { guard.open_run(&mut rest[..end], stride_bytes, place) });
                let Opened { good, placed } = opened.unwrap_or_default();
                edge.counters.opened_together += good as u64;
                if let Some(mut run) = Run::parse(&rest[..end.min(good * stride_bytes)], stride_bytes)
                    && edge.foreign.translate(foreign, &mut run.header)
                {
                    run.placed = placed as u32;
                    edge.arrived(device, from, Arrived::Run(&run), ends, endpoint, program, now_ns);
                }
                edge.counters.refused += (good < run) as u64;
                run.min(good + 1)
            } else if let Some(several) = several {
                let datagrams = &mut rest[..several * stride_bytes];
                let good = edge.opens(foreign).map_or(0, |guard| guard.open_alike(datagrams, stride_bytes));
                edge.counters.opened_together += good.count_ones() as u64;
                for (index, datagram) in datagrams.chunks_exact(stride_bytes).enumerate() {
                    if good >> index & 1 == 1
                        && let Some(mut packet) = Packet::parse(datagram)
                        && edge.foreign.translate(foreign, &mut packet.header)
                    {
                        edge.arrived(device, from, Arrived::One(&packet), ends, endpoint, program, now_ns);
                    } else {
                        edge.counters.refused += 1;
                    }
                }
                several
            } else {
                let end = stride_bytes.min(rest.len());
                let datagram = &mut rest[lead_bytes.min(end)..end];
                if Probe::is_one(datagram) {
                    edge.probed(device, from, datagram, ends, now_ns);
                } else if let Some(mut packet) = edge.opens(foreign).and_then(|guard| guard.open_datagram(datagram))
                    && edge.foreign.translate(foreign, &mut packet.header)
                {
                    edge.arrived(device, from, Arrived::One(&packet), ends, endpoint, program, now_ns);
                } else {
                    edge.counters.refused += 1;
                }
                1
            };
            (start, count) = (start + taken * stride_bytes, count + taken);
        }
        count
    }

    /// Ends what queued datagrams do not use any more.
    fn complete_locally(&mut self, program: &mut impl Program) {
        let mut completed = std::mem::take(&mut self.edge.completed);
        self.device.completions(|queue, count| {
            if queue != SendQueue::UNTOLD {
                completed.push((queue, count));
            }
        });
        if !completed.is_empty() {
            let now_ns = self.now_ns();
            let mut around = Around { edge: &mut self.edge, device: &mut self.device, program, at_once: false };
            for (SendQueue { rail, endpoint }, count) in completed.drain(..) {
                self.endpoint.local_completion(now_ns, rail, endpoint, count, &mut around);
            }
        }
        self.edge.completed = completed;
    }

    /// Makes the rails anew whose datagrams have not left for too long: nothing uses the memory of the program then.
    fn reset_stuck(&mut self, now_ns: u64, program: &mut impl Program) {
        while let Some(rail) = self.edge.stuck.pop() {
            self.device.reset(rail);
            let mut around = Around { edge: &mut self.edge, device: &mut self.device, program, at_once: false };
            self.endpoint.rail_reset(now_ns, rail, &mut around);
        }
    }

    /// Whether there may be something to do although nothing came at the last look. The clock is looked at now and then only.
    pub fn is_due(&self) -> bool {
        self.edge.full
            || self.endpoint.is_runnable()
            || self.looks.is_multiple_of(D::LOOKS_PER_TIME) && self.deadline_ns().unwrap_or(u64::MAX).min(self.renew_ns) <= self.looked_ns
    }

    /// Whether something that came last wants [`Reliable::flush`] at once; otherwise that can wait for the next look.
    pub fn is_pressing(&self) -> bool {
        self.edge.full || self.endpoint.is_pressing(self.came_ns)
    }

    /// Lets what was requested leave, and does what is due at `now_ns`.
    pub fn flush(&mut self, now_ns: u64, program: &mut impl Program) {
        self.flush_by(now_ns, false, program);
    }

    /// Gives up peers of which nothing is expected any more ([`Endpoint::abandon`]).
    pub fn abandon(&mut self, now_ns: u64, peers: &[PeerId], program: &mut impl Program) {
        let mut around = Around { edge: &mut self.edge, device: &mut self.device, program, at_once: false };
        peers.iter().for_each(|&peer| self.endpoint.abandon(now_ns, peer, &mut around));
    }

    /// As [`Reliable::flush`] of a single short message: it leaves before its accounts are settled.
    pub fn flush_one(&mut self, now_ns: u64, program: &mut impl Program) {
        self.flush_by(now_ns, true, program);
    }

    fn flush_by(&mut self, now_ns: u64, at_once: bool, program: &mut impl Program) {
        if D::QUEUES {
            self.complete_locally(program);
        }
        if !(self.edge.unheard.is_empty() && self.edge.wanted.is_empty()) || now_ns >= self.renew_ns {
            self.begin_searches(program, now_ns);
        }
        if !self.edge.searches.is_empty() {
            self.search(now_ns);
        }
        if self.edge.full {
            self.edge.full = !self.device.flush();
            if !self.edge.full {
                (0..self.endpoint.config().rails.len()).for_each(|rail| self.endpoint.writable(rail as u8));
            }
        }
        if self.device.lends() {
            let endpoint = &self.endpoint;
            self.device.reclaim(|Stamp { peer, rail, sent_us }| endpoint.has_passed(peer, rail, sent_us));
        }
        let mut around = Around { edge: &mut self.edge, device: &mut self.device, program, at_once };
        if self.endpoint.deadline_ns().is_some_and(|at_ns| at_ns <= now_ns) {
            self.endpoint.tick(now_ns, &mut around);
        } else {
            self.endpoint.flush(now_ns, &mut around);
        }
        if !self.edge.stuck.is_empty() {
            self.reset_stuck(now_ns, program);
        }
        // What is not queued holds no memory of the program after this, also where the device is full.
        self.edge.flush(&mut self.device);
    }

    fn search(&mut self, now_ns: u64) {
        let (edge, device, endpoint) = (&mut self.edge, &mut self.device, &mut self.endpoint);
        let Edge { searches, peer_paths, counters, guard, foreign, .. } = edge;
        searches.retain(|&peer, search| {
            let guard = foreign.seals(peer).map_or(&*guard, |(_, guard)| guard);
            let ended = search.poll(guard, now_ns, |path, bytes| {
                counters.probes_sent += 1;
                device.post_copied(&path, SendQueue::UNTOLD, bytes.len(), |out| out.extend_from_slice(&bytes));
            });
            if ended {
                let present = peer_paths.get(peer).map_or(&[][..], |peer_paths| &peer_paths.paths);
                // A spare path is a rail of its own behind the others: so the peer answers there, too, whatever it knows of them.
                let adds = search.adds || search.found_spares_alone() && present.iter().any(|path| !path.is_spare());
                let (paths, mtu_bytes) = match adds {
                    true => (search.added_to(present), endpoint.mtu_bytes(peer).max(MTU_BYTES_MIN)),
                    false => search.paths(present.len().max(1)),
                };
                endpoint.set_paths(peer, paths.len(), mtu_bytes);
                endpoint.set_spares(peer, spares_of(&paths));
                let changed = |&(rail, path): &(usize, &D::Path)| present.get(rail) != Some(path);
                endpoint.paths_changed(peer, paths.iter().enumerate().filter(changed).fold(0, |changed, (rail, _)| changed | 1 << rail));
                let wanted = peer_paths.get(peer).is_some_and(|peer_paths| peer_paths.wanted);
                *peer_paths.place(peer) = Some(PeerPaths { paths: paths.into(), state: State::Searched, wanted, sent_bytes: 0 });
            }
            !ended
        });
    }

    /// When [`Reliable::poll`] has something to do although nothing arrives.
    pub fn deadline_ns(&self) -> Option<u64> {
        let searches = self.edge.searches.values().map(Search::deadline_ns);
        let unheard = self.edge.unheard.front().map(|(since_ns, _)| since_ns + self.endpoint.patience_ns());
        self.endpoint.deadline_ns().into_iter().chain(searches).chain(unheard).min()
    }

    /// Sleeps in the kernel until something arrives or is due, the doorbell rings, or `timeout_ns` have passed.
    pub fn wait(&mut self, timeout_ns: Option<u64>) {
        let due_ns = self.deadline_ns().map(|at_ns| at_ns.saturating_sub(self.now_ns()));
        let timeout_ns = due_ns.into_iter().chain(timeout_ns).min();
        if due_ns.is_some_and(|due_ns| due_ns < NAP_NS_MIN) {
            // As when a datagram waits for its pace: the kernel would sleep several times as long.
            std::thread::yield_now();
        } else if timeout_ns != Some(0) && self.arm() {
            events::wait(&self.device, &self.doorbell, timeout_ns);
            self.looked_ns = self.now_ns();
        }
    }

    /// Before a sleep on the device's descriptors, here or by [`Watch`]: false where something has come since the last look, and nobody may sleep before
    /// the next.
    pub fn arm(&mut self) -> bool {
        D::TRIGGER == Trigger::Level || self.device.arm()
    }

    /// Ends a [`Reliable::wait`] from another thread.
    pub fn doorbell(&self) -> Doorbell {
        self.doorbell.clone()
    }

    /// For a thread that sleeps while the owner computes.
    pub fn watch(&self) -> Result<Watch, Error> {
        *watched(&self.watched) = events::copies(&self.device)?;
        Watch::new(self.watched.clone())
    }

    /// Whether datagrams to `peer` take a path that is not spare, as far as is known.
    pub(crate) fn is_on_own_path(&self, peer: PeerId) -> bool {
        let paths = self.edge.peer_paths.get(peer).map_or(&[][..], |peer_paths| &peer_paths.paths);
        let alive = self.endpoint.rails_alive(peer);
        paths.iter().enumerate().any(|(rail, path)| !path.is_spare() && alive >> rail & 1 == 1)
    }

    /// Whether the paths to `peer` have been searched for, and how many different ones there are.
    pub fn paths_to(&self, peer: PeerId) -> Option<(bool, usize)> {
        let peer_paths = self.edge.peer_paths.get(peer)?;
        let different = (0..peer_paths.paths.len()).filter(|&at| !peer_paths.paths[..at].contains(&peer_paths.paths[at]));
        Some((matches!(peer_paths.state, State::Searched | State::Lone) && !self.edge.searches.contains_key(&peer), different.count()))
    }
}
