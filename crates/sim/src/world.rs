//! The world: ranks, their endpoints, the network and the clock.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};

use proto::reliability::seal::{self, TestSeal};
use proto::reliability::wire::Run;
use proto::reliability::{
    Begun, Config, Counters, Cut, Delivery, Endpoint, Failure, HighWater, Outside, PeerId, Placement, RailConfig, Refused, SendPath, Sent, Slice, Taken,
};

use crate::load::{Load, OFFER, Rank, Task, envelope};
use crate::network::{Fate, Link, Network, Wires};
use crate::random::Random;

/// All that makes a world beside its seed.
#[derive(Clone, Debug)]
pub struct Setup {
    pub ranks: u32,
    pub config: Config,
    pub network: Network,
    pub load: Load,
    /// Rails of each rank, of those in `config`; all where this is empty.
    pub rails: Vec<u8>,
    /// Bit `r`: rail `r` is used only while no other one answers.
    pub spares: u8,
    /// When each rank learns what its rails to the others carry; before that, all datagrams are as the shortest of all rails.
    pub paths_ns: u64,
    /// Payloads stay in use until a local completion.
    pub zero_copy: bool,
    /// Up to so long after a datagram has left it completes locally, ns; those of one endpoint in their order.
    pub completion_ns: u64,
    /// Chance that a copy into memory goes wrong by a bit, millionths.
    pub memory_ppm: u32,
    /// A rank that falls silent for ever, and when.
    pub death: Option<(u32, u64)>,
    /// Peers may be given up: operations may fail, and messages be missing after that.
    pub may_fail: bool,
    /// Chance that a datagram which has arrived once comes again at some time, however late, millionths.
    pub replay_ppm: u32,
    /// Chance that somebody without the key sends a datagram of its own or a changed copy with each datagram, millionths.
    pub forge_ppm: u32,
    /// Datagrams to one rail that follow each other within this time come joined, as a kernel joins them.
    pub joins_ns: u64,
    /// The world must have ended by then, ns.
    pub limit_ns: u64,
}

impl Setup {
    /// Ranks with one rail for each of `links`, of Ethernet's length, where nothing but the links goes wrong.
    pub fn new(ranks: u32, links: Vec<Link>, load: Load) -> Setup {
        let rail = RailConfig { mtu_bytes: 1472, endpoints: 1, queue_packets_max: 256 };
        Setup {
            ranks,
            config: Config { rails: vec![rail; links.len()], ..Config::default() },
            network: Network { links, cuts: vec![] },
            load,
            rails: vec![],
            spares: 0,
            paths_ns: 0,
            zero_copy: false,
            completion_ns: 0,
            memory_ppm: 0,
            death: None,
            may_fail: false,
            replay_ppm: 0,
            forge_ppm: 0,
            joins_ns: 0,
            limit_ns: 1_000_000_000_000,
        }
    }

    fn rails_of(&self, rank: u32) -> usize {
        self.rails.get(rank as usize).map_or(self.config.rails.len(), |&rails| rails as usize)
    }

    /// Rails between two ranks, and the longest datagram that all of them carry.
    fn paths(&self, one: u32, other: u32) -> (usize, u32) {
        let rails = self.rails_of(one).max(self.rails_of(other));
        (rails, self.config.rails[..rails].iter().map(|rail| rail.mtu_bytes).min().unwrap_or(0))
    }
}

/// What a world came to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outcome {
    pub messages: u64,
    pub bytes: u64,
    /// When the last message was whole.
    pub last_ns: u64,
    pub end_ns: u64,
    /// By rank: the longest time without a byte of payload.
    pub pause_ns: Vec<u64>,
    pub lost: u64,
    pub dropped: u64,
    pub duplicated: u64,
    pub corrupted: u64,
    /// Datagrams that the seal kept out.
    pub unsealed: u64,
    /// Datagrams that were taken in as runs.
    pub joined: u64,
    pub counters: Vec<Counters>,
    pub high: Vec<HighWater>,
    pub failed_sends: Vec<u64>,
    pub failed_receives: Vec<u64>,
    pub failed_peers: Vec<Vec<PeerId>>,
    /// By rank: when, which peer, which rail, alive.
    pub rail_changes: Vec<Vec<(u64, PeerId, u8, bool)>>,
    pub peer_bytes: Vec<usize>,
}

impl Outcome {
    pub fn goodput_bytes_per_second(&self) -> f64 {
        self.bytes as f64 * 1e9 / self.last_ns as f64
    }

    pub fn sum(&self, of: impl Fn(&Counters) -> u64) -> u64 {
        self.counters.iter().map(of).sum()
    }
}

/// What happens next. `Completed`: a datagram that carried payload of `sends` has left.
#[derive(Debug)]
enum Event {
    Arrive { to: u32, rail: u8, bytes: Vec<u8> },
    Wake { rank: u32 },
    Writable { rank: u32, rail: u8 },
    Completed { rank: u32, rail: u8, endpoint: u8, sends: Vec<u64> },
    Do { rank: u32, task: Task },
    PathsKnown { rank: u32 },
}

#[derive(Debug)]
struct Entry(u64, u64, Event);

impl PartialEq for Entry {
    fn eq(&self, other: &Entry) -> bool {
        (self.0, self.1) == (other.0, other.1)
    }
}
impl Eq for Entry {}
impl PartialOrd for Entry {
    fn partial_cmp(&self, other: &Entry) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}
impl Ord for Entry {
    fn cmp(&self, other: &Entry) -> std::cmp::Ordering {
        (self.0, self.1).cmp(&(other.0, other.1))
    }
}

/// Everything but the endpoints: what they act upon.
#[derive(Debug)]
struct Around {
    now_ns: u64,
    order: u64,
    events: BinaryHeap<Reverse<Entry>>,
    wires: Wires,
    random: Random,
    seal: TestSeal,
    spare: Vec<Vec<u8>>,
    zero_copy: bool,
    completion_ns: u64,
    /// By rank, rail and endpoint: the local completion of the last datagram.
    completed_ns: HashMap<(u32, u8, u8), u64>,
    memory_ppm: u32,
    replay_ppm: u32,
    forge_ppm: u32,
    joins_ns: u64,
    /// Datagrams that an attacker has captured: to whom, on which rail.
    captured: Vec<(u32, u8, Vec<u8>)>,
    match_ns: u64,
    mtu_bytes: Vec<u32>,
}

/// A kernel joins no more bytes than this.
const JOINED_BYTES_MAX: usize = 60 << 10;
/// Datagrams that an attacker keeps, at most.
const CAPTURED_MAX: usize = 64;

impl Around {
    /// What an attacker does on seeing a datagram: keeps it, sends an old one again, or one of its own making.
    fn attack(&mut self, to: u32, rail: u8, bytes: &[u8]) {
        if self.random.chance(self.replay_ppm) {
            if self.captured.len() < CAPTURED_MAX {
                self.captured.push((to, rail, bytes.to_vec()));
            } else {
                let at = self.random.below(CAPTURED_MAX as u64) as usize;
                let (to, rail, bytes) = std::mem::replace(&mut self.captured[at], (to, rail, bytes.to_vec()));
                let at_ns = self.now_ns + self.random.below(1_000_000);
                self.at(at_ns, Event::Arrive { to, rail, bytes });
            }
        }
        if self.random.chance(self.forge_ppm) {
            let mut forged = bytes.to_vec();
            match self.random.below(3) {
                0 => forged.truncate(self.random.below(forged.len() as u64) as usize),
                1 => {
                    for _ in 0..self.random.between(1, 8) {
                        let at = self.random.below(forged.len() as u64) as usize;
                        forged[at] = forged[at].wrapping_add(1 + self.random.below(255) as u8);
                    }
                }
                _ => forged.iter_mut().skip(32).for_each(|byte| *byte ^= self.random.word() as u8),
            }
            self.at(self.now_ns + 1, Event::Arrive { to, rail, bytes: forged });
        }
    }

    /// A datagram that comes right after another one to the same rail of a rank, not longer, where such are joined.
    fn joined(&mut self, rank: u32, on: u8, each_bytes: usize) -> Option<Vec<u8>> {
        let last_ns = self.now_ns + self.joins_ns;
        let Reverse(Entry(at_ns, _, Event::Arrive { to, rail, bytes })) = self.events.peek()? else { return None };
        let joins = self.joins_ns > 0 && *at_ns <= last_ns && (*to, *rail) == (rank, on) && (1..=each_bytes).contains(&bytes.len());
        let Reverse(Entry(_, _, Event::Arrive { bytes, .. })) = (if joins { self.events.pop() } else { None })? else { return None };
        Some(bytes)
    }

    fn at(&mut self, at_ns: u64, event: Event) {
        self.order += 1;
        self.events.push(Reverse(Entry(at_ns, self.order, event)));
    }
}

/// One rank's way to what is around it.
struct Edge<'a> {
    around: &'a mut Around,
    rank: &'a mut Rank,
    /// The rank's own.
    rails: u8,
}

impl Outside for Edge<'_> {
    fn transmit(&mut self, route: SendPath, header: &mut [u8], payload: &[Slice]) -> Sent {
        self.transmit_padded(route, header, payload, 0)
    }

    fn transmit_message(&mut self, route: SendPath, (first, next): (&mut [u8], &mut [u8]), payload: &Slice, cut: Cut, _: bool) -> Option<Taken> {
        let Cut { segment_bytes, count, each_bytes: least_bytes, .. } = cut;
        let queued = self.around.zero_copy;
        for (index, slice) in segments(payload, segment_bytes, count) {
            let header = if index == 0 { &mut *first } else { &mut *next };
            if self.transmit_padded(route, header, &[slice], least_bytes) == Sent::Busy {
                return Some(Taken { datagrams: index, queued });
            }
            if index > 0 {
                proto::reliability::wire::advance_message(next);
            }
        }
        Some(Taken { datagrams: count, queued })
    }

    fn transmit_run(&mut self, route: SendPath, header: &mut [u8], payload: &Slice, cut: Cut) -> Option<Taken> {
        let Cut { segment_bytes, count, .. } = cut;
        let queued = self.around.zero_copy;
        for (index, slice) in segments(payload, segment_bytes, count) {
            if self.transmit(route, header, &[slice]) == Sent::Busy {
                return Some(Taken { datagrams: index, queued });
            }
            if index + 1 < count {
                proto::reliability::wire::advance(header);
            }
        }
        Some(Taken { datagrams: count, queued })
    }

    fn place(&mut self, placement: &Placement, payload: &[u8]) -> bool {
        self.rank.hear(self.around.now_ns);
        let start = placement.offset_bytes as usize;
        let memory = &mut self.rank.memory(placement.receive)[start..start + payload.len()];
        memory.copy_from_slice(payload);
        if self.around.random.chance(self.around.memory_ppm) {
            let bit = self.around.random.below(memory.len() as u64 * 8);
            memory[bit as usize / 8] ^= 1 << (bit % 8);
        }
        memory == payload
    }

    fn begin(&mut self, peer: PeerId, envelope: &[u8], bytes: u64) -> Option<Begun> {
        self.rank.begin(peer, envelope, bytes)
    }

    fn deliver(&mut self, peer: PeerId, delivery: Delivery) {
        let match_ns = self.around.match_ns;
        let match_ns = if match_ns > 0 && self.around.random.chance(500_000) { self.around.random.below(match_ns) } else { 0 };
        self.rank.deliver(peer, delivery, self.around.now_ns, match_ns);
    }

    fn complete(&mut self, send: u64, result: Result<(), Failure>) {
        self.rank.complete(send, result);
    }

    fn received(&mut self, receive: u64, result: Result<(), Failure>) {
        self.rank.received(receive, result, self.around.now_ns);
    }

    fn peer_failed(&mut self, peer: PeerId, _in_use: &[u64]) {
        self.rank.failed_peers.push(peer);
    }

    fn rail_changed(&mut self, peer: PeerId, rail: u8, alive: bool) {
        self.rank.rail_changes.push((self.around.now_ns, peer, rail, alive));
    }
}

/// The payloads of `count` datagrams, each `segment_bytes` long but for the last, and their numbers.
fn segments(payload: &Slice, segment_bytes: u32, count: u32) -> impl Iterator<Item = (u32, Slice)> + use<> {
    let payload = *payload;
    let end_bytes = payload.offset_bytes + payload.length_bytes as u64;
    (0..count).map(move |index| {
        let offset_bytes = payload.offset_bytes + (index * segment_bytes) as u64;
        let length_bytes = segment_bytes.min((end_bytes - offset_bytes) as u32);
        (index, Slice { offset_bytes, length_bytes, ..payload })
    })
}

impl Edge<'_> {
    /// Sends a datagram, made `least_bytes` long with zeroes where it is shorter.
    fn transmit_padded(&mut self, route: SendPath, header: &mut [u8], payload: &[Slice], least_bytes: usize) -> Sent {
        let around = &mut *self.around;
        let mut bytes = around.spare.pop().unwrap_or_default();
        bytes.clear();
        bytes.extend_from_slice(header);
        for slice in payload {
            let at = bytes.len();
            bytes.resize(at + slice.length_bytes as usize, 0);
            self.rank.gather(slice.send, slice.offset_bytes, &mut bytes[at..]);
        }
        bytes.resize(bytes.len().max(least_bytes), 0);
        let (head, body) = bytes.split_at_mut(header.len());
        seal::seal_datagram(&around.seal, head, &[body]);
        let me = self.rank.me;
        // A rail that only the peer has begins at one of ours.
        let link = route.rail % self.rails;
        let passes = around.mtu_bytes[route.rail as usize].min(around.mtu_bytes[link as usize]);
        assert!(bytes.len() <= passes as usize, "{} bytes on rail {}", bytes.len(), route.rail);
        if around.replay_ppm + around.forge_ppm > 0 {
            around.attack(route.peer, route.rail, &bytes);
        }
        match around.wires.send(me, route.peer, link, &mut bytes, around.now_ns, &mut around.random) {
            Fate::Refused(until_ns) => {
                around.spare.push(bytes);
                around.at(until_ns, Event::Writable { rank: me, rail: route.rail });
                Sent::Busy
            }
            Fate::Sent { left_ns, arrivals } => {
                let [first, second] = arrivals;
                if let Some(at_ns) = second {
                    around.at(at_ns, Event::Arrive { to: route.peer, rail: route.rail, bytes: bytes.clone() });
                }
                match first {
                    Some(at_ns) => around.at(at_ns, Event::Arrive { to: route.peer, rail: route.rail, bytes }),
                    None => around.spare.push(bytes),
                }
                if !around.zero_copy {
                    return Sent::Done;
                }
                let late_ns = if around.completion_ns > 0 { around.random.below(around.completion_ns + 1) } else { 0 };
                let last_ns = around.completed_ns.entry((me, link, route.endpoint)).or_default();
                *last_ns = (left_ns + late_ns).max(*last_ns);
                let at_ns = *last_ns;
                let sends = payload.iter().map(|slice| slice.send).collect();
                around.at(at_ns, Event::Completed { rank: me, rail: route.rail, endpoint: route.endpoint, sends });
                Sent::Queued
            }
        }
    }
}

pub struct World {
    seed: u64,
    setup: Setup,
    around: Around,
    endpoints: Vec<Endpoint>,
    ranks: Vec<Rank>,
    /// When each rank will be woken.
    wakes: Vec<u64>,
    unsealed: u64,
    joined: u64,
}

/// Names the seed when a world ends by a panic.
pub(crate) struct Witness(pub u64);

impl Drop for Witness {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("the world with seed {} failed; WHIMBREL_TEST_SEED={} plays it alone", self.0, self.0);
        }
    }
}

impl World {
    pub fn new(setup: Setup, seed: u64) -> World {
        let mut around = Around {
            now_ns: 0,
            order: 0,
            events: BinaryHeap::new(),
            wires: Wires::new(setup.network.clone(), setup.ranks),
            random: Random::new(seed),
            seal: TestSeal(seed),
            spare: Vec::new(),
            zero_copy: setup.zero_copy,
            completion_ns: setup.completion_ns,
            completed_ns: HashMap::new(),
            memory_ppm: setup.memory_ppm,
            replay_ppm: setup.replay_ppm,
            forge_ppm: setup.forge_ppm,
            joins_ns: setup.joins_ns,
            captured: Vec::new(),
            match_ns: setup.load.match_ns,
            mtu_bytes: setup.config.rails.iter().map(|rail| rail.mtu_bytes).collect(),
        };
        let mut endpoints = Vec::new();
        for rank in 0..setup.ranks {
            let mut config = setup.config.clone();
            let mtu_bytes = config.rails.iter().map(|rail| rail.mtu_bytes).min().unwrap_or(0);
            config.rails.truncate(setup.rails_of(rank));
            config.rails.iter_mut().for_each(|rail| rail.mtu_bytes = mtu_bytes);
            let mut endpoint = Endpoint::new(config, rank, rank + 1);
            around.at(setup.paths_ns, Event::PathsKnown { rank });
            for peer in (0..setup.ranks).filter(|&peer| peer != rank) {
                endpoint.connect(peer, peer + 1);
                endpoint.set_spares(peer, setup.spares);
            }
            endpoints.push(endpoint);
        }
        for &rank in &setup.load.senders {
            for _ in 0..setup.load.outstanding.min(setup.load.messages as usize) {
                around.at(0, Event::Do { rank, task: Task::Send });
            }
        }
        let ranks = (0..setup.ranks).map(|rank| Rank::new(rank, setup.ranks)).collect();
        World { seed, around, endpoints, ranks, wakes: vec![u64::MAX; setup.ranks as usize], setup, unsealed: 0, joined: 0 }
    }

    fn is_dead(&self, rank: u32) -> bool {
        self.setup.death.is_some_and(|(dead, from_ns)| dead == rank && self.around.now_ns >= from_ns)
    }

    /// Plays the world until nothing is under way.
    ///
    /// # Panics
    /// When anything was lost, doubled, overtaken or damaged, when a queue outgrew its limit, or when the world does not end.
    pub fn run(mut self) -> Outcome {
        let _witness = Witness(self.seed);
        while let Some(Reverse(Entry(at_ns, _, event))) = self.around.events.pop() {
            self.around.now_ns = at_ns;
            assert!(at_ns < self.setup.limit_ns, "the world does not end:{}", self.state());
            self.step(event);
        }
        self.outcome()
    }

    fn step(&mut self, event: Event) {
        let now_ns = self.around.now_ns;
        let (Event::Arrive { to: rank, .. }
        | Event::Wake { rank }
        | Event::Writable { rank, .. }
        | Event::Completed { rank, .. }
        | Event::Do { rank, .. }
        | Event::PathsKnown { rank }) = event;
        if self.is_dead(rank) {
            return;
        }
        let endpoint = &mut self.endpoints[rank as usize];
        let rails = self.setup.rails_of(rank) as u8;
        let mut edge = Edge { around: &mut self.around, rank: &mut self.ranks[rank as usize], rails };
        match event {
            Event::Arrive { rail, mut bytes, .. } => {
                let (seal, each_bytes) = (edge.around.seal, bytes.len().max(1));
                self.unsealed += bytes.is_empty() as u64;
                while bytes.len() < JOINED_BYTES_MAX && bytes.len().is_multiple_of(each_bytes) {
                    let Some(next) = edge.around.joined(rank, rail, each_bytes) else { break };
                    bytes.extend_from_slice(&next);
                    edge.around.spare.push(next);
                }
                let mut start = 0;
                while start < bytes.len() {
                    let rest = &mut bytes[start..];
                    let run = Run::length(rest, each_bytes);
                    let end = rest.len().min(run.max(1) * each_bytes);
                    let datagrams = &mut rest[..end];
                    let taken = if run > 1 {
                        let good = datagrams.chunks_mut(each_bytes).map(|one| seal::open_datagram(&seal, one).is_some()).take_while(|&good| good).count();
                        if let Some(run) = Run::parse(&datagrams[..end.min(good * each_bytes)], each_bytes) {
                            self.joined += good as u64;
                            endpoint.arrived_run(now_ns, rail, &run, &mut edge);
                        }
                        self.unsealed += (good < run) as u64;
                        run.min(good + 1)
                    } else {
                        match seal::open_datagram(&seal, datagrams) {
                            Some(packet) => endpoint.arrived(now_ns, rail, &packet, &mut edge),
                            None => self.unsealed += 1,
                        }
                        1
                    };
                    start += taken * each_bytes;
                }
                edge.around.spare.push(bytes);
            }
            Event::Wake { .. } => {
                if self.wakes[rank as usize] == now_ns {
                    self.wakes[rank as usize] = u64::MAX;
                    endpoint.tick(now_ns, &mut edge);
                }
            }
            Event::Writable { rail, .. } => endpoint.writable(rail),
            Event::Completed { rail, endpoint: queue, sends, .. } => {
                edge.rank.assert_open(&sends);
                endpoint.local_completion(now_ns, rail, queue, 1, &mut edge);
            }
            Event::Do { task, .. } => self.perform(rank, task),
            Event::PathsKnown { .. } => {
                for peer in (0..self.setup.ranks).filter(|&peer| peer != rank) {
                    let (rails, mtu_bytes) = self.setup.paths(rank, peer);
                    endpoint.set_paths(peer, rails, mtu_bytes);
                }
            }
        }
        self.follow(rank);
        let endpoint = &mut self.endpoints[rank as usize];
        let rails = self.setup.rails_of(rank) as u8;
        let mut edge = Edge { around: &mut self.around, rank: &mut self.ranks[rank as usize], rails };
        endpoint.flush(now_ns, &mut edge);
        self.follow(rank);
        if let Some(at_ns) = self.endpoints[rank as usize].deadline_ns()
            && at_ns < self.wakes[rank as usize]
        {
            let at_ns = at_ns.max(now_ns + 1);
            self.wakes[rank as usize] = at_ns;
            self.around.at(at_ns, Event::Wake { rank });
        }
    }

    /// Does, or plans, what the rank's program wants after what has just happened.
    fn follow(&mut self, rank: u32) {
        while let Some((delay_ns, task)) = self.ranks[rank as usize].tasks.pop_front() {
            if delay_ns == 0 {
                self.perform(rank, task);
            } else {
                self.around.at(self.around.now_ns + delay_ns, Event::Do { rank, task });
            }
        }
    }

    fn perform(&mut self, me: u32, task: Task) {
        let now_ns = self.around.now_ns;
        let load = &self.setup.load;
        let random = &mut self.around.random;
        let (endpoint, rank) = (&mut self.endpoints[me as usize], &mut self.ranks[me as usize]);
        match task {
            Task::Release { peer, bytes } => endpoint.release(now_ns, peer, bytes),
            Task::Receive { peer, transfer, index, bytes } => {
                let token = rank.begin_receive(peer, Some(index), bytes, bytes);
                if bytes == 0 {
                    rank.received(token, Ok(()), now_ns);
                }
                match endpoint.receive(now_ns, peer, transfer, bytes, token) {
                    Ok(()) => endpoint.release(now_ns, peer, 0),
                    Err(Refused::Full) => {
                        rank.abandon(token);
                        self.around.at(now_ns + 100_000, Event::Do { rank: me, task });
                    }
                    Err(_) => {
                        rank.abandon(token);
                        rank.failed_receives += 1;
                    }
                }
            }
            Task::Push { peer, window, granted_bytes, capacity_bytes } => {
                let bytes = random.below(capacity_bytes + 1);
                let (token, index) = rank.begin_send(peer, bytes);
                let envelope = envelope(index, bytes);
                match endpoint.push(now_ns, peer, &envelope, window, granted_bytes, token, bytes) {
                    Ok(()) => {}
                    Err(Refused::Full) => {
                        rank.abandon(token);
                        rank.next_out[peer as usize] -= 1;
                        self.around.at(now_ns + 100_000, Event::Do { rank: me, task });
                    }
                    Err(_) => {
                        rank.abandon(token);
                        rank.failed_sends += 1;
                    }
                }
            }
            Task::Send => {
                if rank.sent == load.messages || rank.outstanding >= load.outstanding {
                    return;
                }
                let peer = random.pick(&load.receivers);
                if peer == me {
                    // Another draw; a world has at least two ranks.
                    self.around.at(now_ns + 1, Event::Do { rank: me, task });
                    return;
                }
                rank.sent += 1;
                let bytes = load.sizes.draw(random);
                let (token, index) = rank.begin_send(peer, bytes);
                let pulled = random.chance(load.pull_ppm);
                match endpoint.send(now_ns, peer, &envelope(index, bytes), token, bytes, pulled) {
                    Ok(()) => {}
                    Err(Refused::Full) => {
                        rank.abandon(token);
                        rank.sent -= 1;
                        rank.next_out[peer as usize] -= 1;
                        self.around.at(now_ns + 100_000, Event::Do { rank: me, task });
                        return;
                    }
                    Err(_) => {
                        rank.abandon(token);
                        rank.failed_sends += 1;
                        self.around.at(now_ns + 1, Event::Do { rank: me, task });
                        return;
                    }
                }
                if random.chance(load.offer_ppm) {
                    let capacity_bytes = load.sizes.draw(random) + 1;
                    let token = rank.begin_receive(peer, None, 0, capacity_bytes);
                    if endpoint.offer(now_ns, peer, &envelope(OFFER, capacity_bytes), capacity_bytes, token).is_err() {
                        rank.abandon(token);
                    }
                }
            }
        }
    }

    /// For the message of a world that does not end.
    fn state(&self) -> String {
        let one = |(rank, endpoint): (&Rank, &Endpoint)| {
            let (sends, receives) = rank.pending(true);
            format!(
                "\nrank {}: sent {}, delivered {}, open sends {sends}, open receives {receives}, {:?}",
                rank.me, rank.sent, rank.delivered, endpoint.counters
            )
        };
        self.ranks.iter().zip(&self.endpoints).map(one).collect()
    }

    fn outcome(self) -> Outcome {
        let alive = |rank: &&Rank| self.setup.death.is_none_or(|(dead, _)| dead != rank.me);
        for rank in self.ranks.iter().filter(alive) {
            // Nobody watches the peers: one that falls silent with nothing but an offer is not missed.
            assert_eq!(rank.pending(!self.setup.may_fail), (0, 0), "rank {} has operations that never ended", rank.me);
            if self.setup.load.senders.contains(&rank.me) {
                assert_eq!(rank.sent, self.setup.load.messages, "rank {} did not send all", rank.me);
            }
            let endpoint = &self.endpoints[rank.me as usize];
            assert!(endpoint.is_quiet(), "rank {} is not quiet", rank.me);
            assert!(endpoint.within_limits(), "rank {} outgrew a limit: {:?}", rank.me, endpoint.high);
            let config = &self.setup.config;
            let unreleased_max = config.credit_bytes.max(config.credit_header_bytes);
            assert!(endpoint.high.unreleased_bytes <= unreleased_max, "rank {}: {:?}", rank.me, endpoint.high);
            if self.setup.death.is_none() && !self.setup.may_fail {
                for peer in &self.ranks {
                    let sent = peer.next_out[rank.me as usize];
                    assert_eq!(rank.next_in[peer.me as usize], sent, "messages from {} to {}", peer.me, rank.me);
                }
                assert!(rank.failed_peers.is_empty(), "rank {} gave up on {:?}", rank.me, rank.failed_peers);
            }
        }
        let ranks = self.ranks.iter();
        Outcome {
            messages: ranks.clone().map(|rank| rank.delivered).sum(),
            bytes: ranks.clone().map(|rank| rank.delivered_bytes).sum(),
            last_ns: ranks.clone().map(|rank| rank.last_ns).max().unwrap_or(0),
            end_ns: self.around.now_ns,
            pause_ns: ranks.clone().map(|rank| rank.pause_ns).collect(),
            lost: self.around.wires.lost,
            dropped: self.around.wires.dropped,
            duplicated: self.around.wires.duplicated,
            corrupted: self.around.wires.corrupted,
            unsealed: self.unsealed,
            joined: self.joined,
            counters: self.endpoints.iter().map(|endpoint| endpoint.counters).collect(),
            high: self.endpoints.iter().map(|endpoint| endpoint.high).collect(),
            failed_sends: ranks.clone().map(|rank| rank.failed_sends).collect(),
            failed_receives: ranks.clone().map(|rank| rank.failed_receives).collect(),
            failed_peers: ranks.clone().map(|rank| rank.failed_peers.clone()).collect(),
            rail_changes: ranks.clone().map(|rank| rank.rail_changes.clone()).collect(),
            peer_bytes: self.endpoints.iter().map(Endpoint::peer_bytes).collect(),
        }
    }
}
