//! A process on the network: sockets, ways, key and reliability together.
//!
//! Whoever drives it calls [`Node::poll`] again and again, and [`Node::wait`] when there is nothing else to do. Requests go to
//! [`Node::requests`]; nothing of them leaves before the next poll or [`Node::flush`]. A poll is [`Node::take_in`] and, where [`Node::is_due`] or
//! something came, [`Node::flush`].

use std::collections::{HashMap, VecDeque};
use std::hash::RandomState;
use std::mem::MaybeUninit;
use std::net::SocketAddr;
use std::time::Instant;

use rustc_hash::FxHashMap;

use proto::reliability::wire::{DIRECT, Packet, RUN_HEAD_BYTES, Run};
use proto::reliability::{Config, Delivery, Endpoint, Failure, MTU_BYTES_MIN, Outside, PEERS_MAX, PeerId, Placement, Route, Sent, Slice, Sparse, Taken};

use super::outbox::COPIED_BYTES_MAX;
use super::path::{Card, Ends, Knock, Path, Search};
use super::protection::{Guard, JobKey, Protection};
use super::sys::Links;
use super::{Bell, Ports, ReceiveCounters, SendCounters, Setup, Udp, Watch};
use crate::Error;

/// The program's side: its memory, and what it is told.
///
/// # Safety
/// What [`Program::gather`] gives and [`Program::place`] is told must be as they say.
pub unsafe trait Program {
    /// Puts the memory of a piece of a send into `out`, which asks for exactly `slice.length_bytes`. It must stay readable until
    /// [`Node::poll`] or [`Node::flush`], in which this is called, has returned.
    fn gather(&self, slice: &Slice, out: &mut Sink);
    /// Copies `payload`, which is authentic, to `offset_bytes` of a receive, and says whether what is in memory then is the same: `check` compares
    /// the whole. A receive that lies in several pieces is filled, and may be compared, piece by piece.
    fn place(&mut self, receive: u64, offset_bytes: u64, payload: &[u8], check: &dyn Fn(&[u8]) -> bool) -> bool;
    /// Where that will be, if it lies in one piece: a hint, of what nobody has vouched for yet.
    fn place_of(&self, receive: u64, offset_bytes: u64) -> Option<*const u8> {
        let _ = (receive, offset_bytes);
        None
    }
    /// The same for the payloads of a run, which follow each other from `offset_bytes` on.
    fn place_run(&mut self, receive: u64, mut offset_bytes: u64, run: &Run) -> bool {
        run.payloads().all(|payload| {
            let placed = self.place(receive, offset_bytes, payload, &|placed| placed == payload);
            offset_bytes += payload.len() as u64;
            placed
        })
    }
    fn deliver(&mut self, peer: PeerId, delivery: Delivery);
    fn complete(&mut self, send: u64, result: Result<(), Failure>);
    fn received(&mut self, receive: u64, result: Result<(), Failure>);
    /// `in_use`: sends that have not ended, since datagrams on their way out still read their payload ([`Outside::peer_failed`]).
    fn peer_failed(&mut self, peer: PeerId, in_use: &[u64]);
    fn rail_changed(&mut self, peer: PeerId, rail: u8, alive: bool) {
        let _ = (peer, rail, alive);
    }
    /// Where a connected peer listens, asked for when the ways to it are to be searched for: the node does not keep it.
    fn card(&mut self, peer: PeerId) -> Option<Card>;
}

/// Takes the pieces of a payload.
#[derive(Debug, Default)]
pub struct Sink {
    pieces: Vec<(*const u8, usize)>,
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
}

/// What has happened at this edge since the start; what arrived sound is counted by the reliability layer.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct NodeCounters {
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
}

/// The ways to one peer, one for each rail.
#[derive(Debug)]
struct Ways {
    paths: Box<[Path]>,
    state: State,
    /// They are to be searched for.
    wanted: bool,
    /// What has left to it before its ways were searched for, bytes.
    sent_bytes: u32,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum State {
    /// All that is known is where something came from.
    Back,
    /// The likeliest pair of addresses, for all rails.
    Guessed,
    /// It has answered there.
    Heard,
    /// The search is on, or over. What is found later is added.
    Searched,
    /// There was nothing to search for.
    Lone,
}

/// Datagrams by themselves, and such as follow each other.
#[derive(Clone, Copy)]
enum Arrived<'a> {
    One(&'a Packet<'a>),
    Run(&'a Run<'a>),
}

/// All but the reliability layer.
#[derive(Debug)]
struct Edge {
    guard: Guard,
    ways: Sparse<Ways>,
    searches: FxHashMap<PeerId, Search>,
    /// Cards of peers that have changed since the start, and how often each had.
    changed: FxHashMap<PeerId, (u16, Card)>,
    /// Peers whose ways are to be searched for now, and those that should have answered, and since when.
    wanted: Vec<PeerId>,
    unheard: VecDeque<(u64, PeerId)>,
    sink: Sink,
    counters: NodeCounters,
    full: bool,
}

/// Shorter sleeps take much longer than asked for: the kernel's timers have 50 µs of slack.
const NAP_NS_MIN: u64 = 100_000;
/// Other ways than the likeliest are looked for when so much has gone to a peer, or nothing has come from it for longer than peers take.
const SEARCH_BYTES: u32 = 256 << 10;
/// Payloads in more pieces are put together before they leave.
const PIECES_MAX: usize = 16;

/// Searches that are on at the same time; others wait for their end.
const SEARCHES_MAX: usize = 256;
/// Between looks whether this host's addresses have changed.
const LINKS_EACH_NS: u64 = 1_000_000_000;

/// Looks without success for each look at the clock.
const LOOKS_PER_TIME: u32 = 4;

fn since_ns(start: Instant) -> u64 {
    start.elapsed().as_nanos() as u64 + 1
}

#[derive(Debug)]
pub struct Node {
    udp: Udp,
    edge: Edge,
    endpoint: Endpoint,
    card: Card,
    /// How often the card has changed, and what says that it may have to, looked at next at `links_ns`.
    revision: u16,
    links: Links,
    links_ns: u64,
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

impl Node {
    /// Opens the sockets of process `me`, incarnation `epoch` (not 0). `adjust` may change the reliability layer's limits.
    pub fn open(setup: &Setup, me: PeerId, epoch: u32, key: &JobKey, protection: Protection, adjust: impl FnOnce(&mut Config)) -> Result<Node, Error> {
        let links = Links::open();
        let udp = Udp::open(setup)?;
        let mut config = Config { rails: udp.rails(), ..Config::default() };
        config.window_initial_bytes = config.window_initial_bytes.max(8 * udp.longest_bytes() as u64);
        adjust(&mut config);
        let edge = Edge {
            guard: Guard::new(key, protection),
            ways: Sparse::default(),
            searches: HashMap::default(),
            changed: HashMap::default(),
            wanted: Vec::new(),
            unheard: VecDeque::new(),
            sink: Sink::default(),
            counters: NodeCounters::default(),
            full: false,
        };
        let endpoint = Endpoint::new(config, me, epoch);
        Ok(Node {
            card: udp.card(epoch),
            revision: 0,
            links,
            links_ns: LINKS_EACH_NS,
            udp,
            edge,
            endpoint,
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

    /// What to tell the others.
    pub fn card(&self) -> Card {
        self.card.clone()
    }

    /// Names a peer and where it listens; needed before the first request towards it. It costs no datagram: the likeliest pair of addresses is
    /// used until there is a reason to look for others.
    pub fn connect(&mut self, peer: PeerId, card: &Card) {
        self.endpoint.connect(peer, card.epoch);
        let changed = self.edge.changed.get(&peer).map(|(_, card)| card.clone());
        let card = changed.as_ref().unwrap_or(card);
        let search = self.search_for(peer, card);
        let (rails, now_ns) = (self.udp.rails.max(card.rails), self.now_ns());
        let (paths, mtu_bytes) = search.paths(1);
        let Some(&likeliest) = paths.first() else { return };
        self.endpoint.set_ways(peer, rails, mtu_bytes);
        *self.edge.ways.place(peer) = Some(Ways { paths: vec![likeliest; rails].into(), state: State::Guessed, wanted: false, sent_bytes: 0 });
        self.edge.unheard.push_back((now_ns, peer));
    }

    fn search_for(&self, peer: PeerId, card: &Card) -> Search {
        let ends = Ends { source: self.me, source_epoch: self.epoch, destination: peer, destination_epoch: card.epoch };
        Search::new(ends, &self.card, card, RandomState::new(), self.now_ns())
    }

    /// Begins the searches for which there is a reason.
    fn begin_searches(&mut self, program: &mut impl Program, now_ns: u64) {
        let patience_ns = self.endpoint.patience_ns();
        if now_ns >= self.links_ns {
            self.links_ns = now_ns + LINKS_EACH_NS;
            if self.links.changed() && self.udp.widen() {
                self.revision += 1;
                self.card = self.udp.card(self.epoch);
                let all: Vec<PeerId> = self.edge.ways.numbers().collect();
                all.into_iter().for_each(|peer| self.edge.want(peer));
            }
        }
        while let Some(&(_, peer)) = self.edge.unheard.front().filter(|(since_ns, _)| since_ns + patience_ns <= now_ns) {
            self.edge.unheard.pop_front();
            if self.edge.ways.get(peer).is_some_and(|ways| ways.state == State::Guessed) {
                self.edge.want(peer);
            }
        }
        while self.edge.searches.len() < SEARCHES_MAX
            && let Some(peer) = self.edge.wanted.pop()
        {
            let Some(ways) = self.edge.ways.get_mut(peer) else { continue };
            ways.wanted = false;
            // One that has not found the first ways begins anew.
            let first = matches!(ways.state, State::Guessed | State::Heard) || self.edge.searches.get(&peer).is_some_and(|search| !search.adds);
            ways.state = State::Searched;
            let changed = self.edge.changed.get(&peer).map(|(_, card)| card.clone());
            let Some(card) = changed.or_else(|| program.card(peer)) else { continue };
            let search = self.search_for(peer, &card).patient(patience_ns).telling(&self.card, self.revision);
            let mut search = search.carrying(self.endpoint.mtu_bytes(peer));
            search.adds = !first;
            if search.is_worth_it() {
                self.edge.searches.insert(peer, search);
            } else if let Some(ways) = self.edge.ways.get_mut(peer) {
                ways.state = State::Lone;
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

    pub fn me(&self) -> PeerId {
        self.me
    }

    pub fn endpoint(&self) -> &Endpoint {
        &self.endpoint
    }

    pub fn counters(&self) -> NodeCounters {
        NodeCounters { sent: self.udp.send_counters(), received: self.udp.counters, ..self.edge.counters }
    }

    /// Takes in what has arrived, does what is due, and lets everything leave that may. How many datagrams came.
    pub fn poll(&mut self, program: &mut impl Program) -> usize {
        let came = self.take_in(program);
        self.flush(self.now_ns(), program);
        came
    }

    /// Takes in what has arrived. How many datagrams came.
    ///
    /// What came may want a [`Node::flush`] at once ([`Node::is_pressing`]).
    pub fn take_in(&mut self, program: &mut impl Program) -> usize {
        let (edge, endpoint, start) = (&mut self.edge, &mut self.endpoint, self.start);
        let (me, epoch) = (self.me, self.epoch);
        let (looked_ns, late_ns) = (self.looked_ns, &mut self.late_ns);
        let mut now_ns = 0;
        let came = self.udp.receive(|ports, port, from, bytes, each_bytes| {
            if now_ns == 0 {
                now_ns = since_ns(start);
                let away_ns = now_ns - looked_ns;
                if away_ns > endpoint.config().queueing_ns {
                    *late_ns = now_ns + away_ns;
                }
                endpoint.set_late(now_ns < *late_ns);
            }
            let (mut start, mut count) = (0, 0);
            while start < bytes.len() {
                let rest = &mut bytes[start..];
                let run = if edge.guard.encrypts() { 0 } else { Run::length(rest, each_bytes) };
                let taken = if run > 1 {
                    let end = rest.len().min(run * each_bytes);
                    let belongs = Run::parse(&rest[..end], each_bytes).and_then(|run| endpoint.placement(&run.data));
                    let place = belongs.and_then(|at| program.place_of(at.receive, at.offset_bytes));
                    let good = edge.guard.open_run(&mut rest[..end], each_bytes, place);
                    edge.counters.opened_together += good as u64;
                    if let Some(run) = Run::parse(&rest[..end.min(good * each_bytes)], each_bytes) {
                        edge.arrived(ports, port, from, Arrived::Run(&run), (me, epoch), endpoint, program, now_ns);
                    }
                    edge.counters.refused += (good < run) as u64;
                    run.min(good + 1)
                } else {
                    let end = each_bytes.min(rest.len());
                    let datagram = &mut rest[..end];
                    if Knock::is_one(datagram) {
                        edge.knocked(ports, port, from, datagram, (me, epoch), now_ns);
                    } else if let Some(packet) = edge.guard.open_datagram(datagram) {
                        edge.arrived(ports, port, from, Arrived::One(&packet), (me, epoch), endpoint, program, now_ns);
                    } else {
                        edge.counters.refused += 1;
                    }
                    1
                };
                (start, count) = (start + taken * each_bytes, count + taken);
            }
            count
        });
        self.looks = if came > 0 { 0 } else { self.looks.wrapping_add(1) };
        self.came_ns = self.came_ns.max(now_ns);
        if came == 0 {
            self.late_ns = 0;
        }
        self.looked_ns = match came {
            0 if self.looks.is_multiple_of(LOOKS_PER_TIME) => self.now_ns(),
            0 => self.looked_ns,
            _ => now_ns,
        };
        came
    }

    /// Whether there may be something to do although nothing came at the last look. The clock is looked at now and then only.
    pub fn is_due(&self) -> bool {
        self.edge.full
            || self.endpoint.is_runnable()
            || self.looks.is_multiple_of(LOOKS_PER_TIME) && self.deadline_ns().unwrap_or(u64::MAX).min(self.links_ns) <= self.now_ns()
    }

    /// Whether something that came last wants [`Node::flush`] at once; otherwise that can wait for the next look.
    pub fn is_pressing(&self) -> bool {
        self.edge.full || self.endpoint.is_pressing(self.came_ns)
    }

    /// Lets what was requested leave, and does what is due at `now_ns`.
    pub fn flush(&mut self, now_ns: u64, program: &mut impl Program) {
        self.flush_by(now_ns, false, program);
    }

    /// Gives up peers of which nothing is expected any more ([`Endpoint::abandon`]).
    pub fn abandon(&mut self, now_ns: u64, peers: &[PeerId], program: &mut impl Program) {
        let mut around = Around { edge: &mut self.edge, ports: &mut self.udp.ports, program, at_once: false };
        peers.iter().for_each(|&peer| self.endpoint.abandon(now_ns, peer, &mut around));
    }

    /// As [`Node::flush`] of a single short message: it leaves before its accounts are settled.
    pub fn flush_one(&mut self, now_ns: u64, program: &mut impl Program) {
        self.flush_by(now_ns, true, program);
    }

    fn flush_by(&mut self, now_ns: u64, at_once: bool, program: &mut impl Program) {
        if !(self.edge.unheard.is_empty() && self.edge.wanted.is_empty()) || now_ns >= self.links_ns {
            self.begin_searches(program, now_ns);
        }
        if !self.edge.searches.is_empty() {
            self.search(now_ns);
        }
        if self.edge.full {
            self.edge.full = !self.udp.ports.flush();
            if !self.edge.full {
                (0..self.endpoint.config().rails.len()).for_each(|rail| self.endpoint.writable(rail as u8));
            }
        }
        let mut around = Around { edge: &mut self.edge, ports: &mut self.udp.ports, program, at_once };
        if self.endpoint.deadline_ns().is_some_and(|at_ns| at_ns <= now_ns) {
            self.endpoint.tick(now_ns, &mut around);
        } else {
            self.endpoint.flush(now_ns, &mut around);
        }
        // Also what is full holds no memory of the program after this.
        self.edge.full |= !self.udp.ports.flush();
    }

    fn search(&mut self, now_ns: u64) {
        let (edge, ports, endpoint) = (&mut self.edge, &mut self.udp.ports, &mut self.endpoint);
        let Edge { searches, ways, counters, guard, .. } = edge;
        searches.retain(|&peer, search| {
            let ended = search.poll(guard, now_ns, |path, bytes| {
                counters.probes_sent += 1;
                ports.send_copied(&path, 0, bytes.len(), |out| out.extend_from_slice(&bytes));
            });
            if ended {
                let present = ways.get(peer).map_or(&[][..], |ways| &ways.paths);
                let (paths, mtu_bytes) = match search.adds {
                    true => (search.added_to(present), endpoint.mtu_bytes(peer).max(MTU_BYTES_MIN)),
                    false => search.paths(present.len().max(1)),
                };
                endpoint.set_ways(peer, paths.len(), mtu_bytes);
                let wanted = ways.get(peer).is_some_and(|ways| ways.wanted);
                *ways.place(peer) = Some(Ways { paths: paths.into(), state: State::Searched, wanted, sent_bytes: 0 });
            }
            !ended
        });
    }

    /// When [`Node::poll`] has something to do although nothing arrives.
    pub fn deadline_ns(&self) -> Option<u64> {
        let searches = self.edge.searches.values().map(Search::deadline_ns);
        let unheard = self.edge.unheard.front().map(|(since_ns, _)| since_ns + self.endpoint.patience_ns());
        self.endpoint.deadline_ns().into_iter().chain(searches).chain(unheard).min()
    }

    /// Sleeps in the kernel until something arrives or is due, the bell rings, or `timeout_ns` have passed.
    pub fn wait(&mut self, timeout_ns: Option<u64>) {
        let due_ns = self.deadline_ns().map(|at_ns| at_ns.saturating_sub(self.now_ns()));
        let timeout_ns = due_ns.into_iter().chain(timeout_ns).min();
        if due_ns.is_some_and(|due_ns| due_ns < NAP_NS_MIN) {
            // As when a datagram waits for its pace: the kernel would sleep several times as long.
            std::thread::yield_now();
        } else if timeout_ns != Some(0) {
            self.udp.wait(timeout_ns);
            self.looked_ns = self.now_ns();
        }
    }

    /// Ends a [`Node::wait`] from another thread.
    pub fn bell(&self) -> Bell {
        self.udp.bell()
    }

    /// For a thread that sleeps while this node's owner computes.
    pub fn watch(&self) -> Result<Watch, Error> {
        self.udp.watch()
    }

    /// Whether the ways to `peer` have been searched for, and how many different ones there are.
    pub fn ways(&self, peer: PeerId) -> Option<(bool, usize)> {
        let ways = self.edge.ways.get(peer)?;
        let different = (0..ways.paths.len()).filter(|&at| !ways.paths[..at].contains(&ways.paths[at]));
        Some((matches!(ways.state, State::Searched | State::Lone) && !self.edge.searches.contains_key(&peer), different.count()))
    }
}

impl Edge {
    /// Where a datagram with so much payload goes; `None` where no way is known, and it counts as lost.
    fn path(&mut self, route: Route, payload_bytes: u32) -> Option<Path> {
        let ways = self.ways.get_mut(route.peer);
        let Some((ways, path)) = ways.and_then(|ways| ways.paths.get(route.rail as usize).copied().map(|path| (ways, path))) else {
            self.counters.unroutable += 1;
            return None;
        };
        if matches!(ways.state, State::Guessed | State::Heard) {
            ways.sent_bytes = ways.sent_bytes.saturating_add(payload_bytes);
            if ways.sent_bytes >= SEARCH_BYTES {
                ways.sent_bytes = 0;
                self.want(route.peer);
            }
        }
        Some(path)
    }

    /// Ways to `peer` are to be searched for, once more if that has been done.
    fn want(&mut self, peer: PeerId) {
        if let Some(ways) = self.ways.get_mut(peer)
            && !std::mem::replace(&mut ways.wanted, true)
        {
            self.wanted.push(peer);
        }
    }

    /// Something authentic has come.
    #[allow(clippy::too_many_arguments)]
    fn arrived(
        &mut self,
        ports: &mut Ports,
        port: usize,
        from: SocketAddr,
        arrived: Arrived,
        (me, epoch): (PeerId, u32),
        endpoint: &mut Endpoint,
        program: &mut impl Program,
        now_ns: u64,
    ) {
        let header = match arrived {
            Arrived::One(packet) => packet.header,
            Arrived::Run(run) => run.header,
        };
        if header.destination != me || header.destination_epoch != epoch || header.source >= PEERS_MAX {
            self.counters.refused += 1;
            return;
        }
        let rails = endpoint.config().rails.len().max(header.rail as usize + 1);
        let ways = self.ways.place(header.source);
        let ways = ways.get_or_insert_with(|| Ways { paths: [].into(), state: State::Back, wanted: false, sent_bytes: 0 });
        if ways.paths.len() < rails {
            // Who is not known, or has more rails than we knew of.
            let mut paths = std::mem::take(&mut ways.paths).into_vec();
            paths.resize(rails, Path::back(ports.local(port), from));
            ways.paths = paths.into();
        }
        if ways.state == State::Guessed {
            ways.state = State::Heard;
        }
        let mut around = Around { edge: self, ports, program, at_once: false };
        match arrived {
            Arrived::One(packet) => endpoint.arrived(now_ns, header.rail, packet, &mut around),
            Arrived::Run(run) => endpoint.arrived_run(now_ns, header.rail, run, &mut around),
        }
    }

    /// A peer says where it listens now.
    fn changed(&mut self, knock: &Knock, card: &[u8]) {
        let source = knock.ends.source;
        let known = self.changed.get(&source).map_or(0, |(revision, _)| *revision);
        let card: Option<Card> = std::str::from_utf8(card).ok().and_then(|text| text.parse().ok());
        if let Some(card) = card
            && source < PEERS_MAX
            && knock.revision > known
            && card.epoch == knock.ends.source_epoch
        {
            self.changed.insert(source, (knock.revision, card));
            self.want(source);
        }
    }

    fn knocked(&mut self, ports: &mut Ports, port: usize, from: SocketAddr, bytes: &[u8], (me, epoch): (PeerId, u32), now_ns: u64) {
        let knock = Knock::read(&self.guard, bytes);
        let Some((knock, card)) = knock.filter(|(knock, _)| knock.ends.destination == me && knock.ends.destination_epoch == epoch) else {
            self.counters.refused += 1;
            return;
        };
        if let Some(answer) = knock.answer(&self.guard) {
            self.counters.probes_answered += 1;
            let path = Path::back(ports.local(port), from);
            ports.send_copied(&path, 0, answer.len(), |out| out.extend_from_slice(&answer));
            if !card.is_empty() {
                self.changed(&knock, card);
            }
        } else if !self.searches.get_mut(&knock.ends.source).is_some_and(|search| search.answered(&knock, now_ns)) {
            self.counters.refused += 1;
        }
    }
}

/// What the reliability layer acts upon.
struct Around<'a, P> {
    edge: &'a mut Edge,
    ports: &'a mut Ports,
    program: &'a mut P,
    /// Each datagram leaves as soon as it is made.
    at_once: bool,
}

impl<P: Program> Outside for Around<'_, P> {
    fn transmit(&mut self, route: Route, header: &mut [u8], payload: &[Slice]) -> Sent {
        let edge = &mut *self.edge;
        let payload_bytes = payload.iter().fold(0u32, |sum, slice| sum.saturating_add(slice.length_bytes));
        let Some(path) = edge.path(route, payload_bytes) else { return Sent::Done };
        let sink = &mut edge.sink;
        sink.pieces.clear();
        payload.iter().for_each(|slice| self.program.gather(slice, sink));
        // SAFETY: `gather` promises that the pieces are readable until this node's call has returned, at whose end all that
        // waits has left or been copied.
        let slices = sink.pieces.iter().map(|&(start, bytes)| unsafe { std::slice::from_raw_parts(start, bytes) });
        let guard = &edge.guard;
        let direct = header[1] & DIRECT != 0;
        let short = !direct && payload_bytes as usize <= COPIED_BYTES_MAX;
        let taken = if short || guard.encrypts() || sink.pieces.len() > PIECES_MAX {
            let bytes = header.len() + payload_bytes as usize;
            self.ports.send_copied(&path, route.endpoint, bytes, |out| {
                let start = out.len();
                out.extend_from_slice(header);
                slices.for_each(|slice| out.extend_from_slice(slice));
                if guard.encrypts() {
                    guard.encrypt(&mut out[start..]);
                } else {
                    let (header, payload) = out[start..].split_at_mut(header.len());
                    guard.seal_datagram(header, &[payload]);
                }
            })
        } else {
            let mut few: [&[u8]; PIECES_MAX] = [&[]; PIECES_MAX];
            few.iter_mut().zip(slices).for_each(|(to, slice)| *to = slice);
            let few = &few[..sink.pieces.len()];
            guard.seal_datagram(header, few);
            // SAFETY: as above.
            unsafe { self.ports.send(&path, route.endpoint, header, few.iter().copied()) }
        };
        if taken {
            if self.at_once {
                edge.full |= !self.ports.flush();
            }
            // Before this node's call returns, the pieces have left or been copied.
            return Sent::Done;
        }
        edge.full = true;
        Sent::Busy
    }

    fn transmit_run(&mut self, route: Route, header: &mut [u8], payload: &Slice, segment_bytes: u32, count: u32) -> Option<Taken> {
        let edge = &mut *self.edge;
        let mut head: [u8; RUN_HEAD_BYTES] = (&*header).try_into().ok()?;
        edge.sink.pieces.clear();
        self.program.gather(payload, &mut edge.sink);
        let &[(start, bytes)] = &edge.sink.pieces[..] else { return None };
        let Some(path) = edge.path(route, payload.length_bytes) else { return Some(Taken { datagrams: count, queued: false }) };
        // SAFETY: as in `transmit`.
        let mut rest = unsafe { std::slice::from_raw_parts(start, bytes) };
        let (segment_bytes, count) = (segment_bytes as usize, count as usize);
        let whole_bytes = head.len() + segment_bytes;
        // What is shorter would end the group that the kernel cuts, and is made as long: another group costs more than the padding.
        let pads = segment_bytes <= COPIED_BYTES_MAX && (count > 1 || self.ports.continues(&path, route.endpoint, whole_bytes));
        let whole = if pads || bytes == count * segment_bytes { count } else { count - 1 };
        let (guard, ports) = (&edge.guard, &mut self.ports);
        let mut send = |count: usize, each_bytes: usize| {
            let write = |out: &mut [MaybeUninit<u8>]| {
                let part;
                (part, rest) = rest.split_at(rest.len().min(out.len() / each_bytes * segment_bytes));
                guard.seal_run(&mut head, part, each_bytes - RUN_HEAD_BYTES, out);
            };
            // SAFETY: `seal_run` fills what it is given.
            unsafe { ports.send_run(&path, route.endpoint, each_bytes, count, write) }
        };
        let mut taken = send(whole, whole_bytes);
        if taken == whole && whole < count {
            taken += send(1, RUN_HEAD_BYTES + bytes - whole * segment_bytes);
        }
        edge.full |= taken < count;
        Some(Taken { datagrams: taken as u32, queued: false })
    }

    fn place(&mut self, placement: &Placement, payload: &[u8]) -> bool {
        self.program.place(placement.receive, placement.offset_bytes, payload, &|placed| placed == payload)
    }

    fn place_run(&mut self, placement: &Placement, run: &Run) -> bool {
        self.program.place_run(placement.receive, placement.offset_bytes, run)
    }

    fn deliver(&mut self, peer: PeerId, delivery: Delivery) {
        self.program.deliver(peer, delivery);
    }

    fn complete(&mut self, send: u64, result: Result<(), Failure>) {
        self.program.complete(send, result);
    }

    fn received(&mut self, receive: u64, result: Result<(), Failure>) {
        self.program.received(receive, result);
    }

    fn peer_failed(&mut self, peer: PeerId, in_use: &[u64]) {
        self.program.peer_failed(peer, in_use);
    }

    fn silent(&mut self, peer: PeerId) {
        let lone = self.edge.ways.get(peer).is_none_or(|ways| ways.state == State::Lone);
        if !lone && !self.edge.searches.contains_key(&peer) {
            self.edge.want(peer);
        }
    }

    fn rail_changed(&mut self, peer: PeerId, rail: u8, alive: bool) {
        self.program.rail_changed(peer, rail, alive);
    }
}
