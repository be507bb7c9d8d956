//! Worlds of the protocol machine ([`proto::p2p`]): ranks of several hosts that reach each other through memory, over connections and by datagrams.
//!
//! What goes wrong is a panic that names the seed.

mod field;
mod peers;
mod program;
mod worker;

pub use field::{Connection, Kind};
pub use program::Traffic;

use crate::network::{Link, Network};
use crate::random::Random;
use crate::world::Witness;
use field::{Entry, Event, Field, Shared};
use peers::{CONNECTION, DATAGRAMS, Peers};
use program::Program;
use proto::p2p::{Config, Count, Machine};
use proto::reliability::{self, Endpoint, RailConfig};
use proto::rendezvous::Variant;
use proto::rendezvous::usage::Speculation;
use std::cell::RefCell;
use std::cmp::Reverse;
use std::collections::{BTreeMap, HashSet};
use std::rc::Rc;
use worker::{Rank, Rings, Worker};

/// All that makes a world beside its seed.
#[derive(Clone, Debug)]
pub struct Setup {
    /// The host of each rank.
    pub hosts: Vec<u32>,
    /// Chance that two ranks of different hosts have a connection, millionths; the others reach each other by datagrams.
    pub connected_ppm: u32,
    pub connection: Connection,
    pub link: Link,
    pub eager_bytes_max: usize,
    pub short_bytes_max: usize,
    pub unexpected_bytes_max: u64,
    pub headers_bytes_max: u64,
    pub speculation: Speculation,
    pub rendezvous: Variant,
    /// Chance that copies between two ranks' memories are refused from some piece on, millionths.
    pub forbid_ppm: u32,
    /// How often the messages between two ranks that have a connection take another route, and how often it breaks; and within which time, ns.
    pub switches: u64,
    pub breaks: u64,
    pub routes_ns: u64,
    pub ring_packets_max: usize,
    pub ring_bytes_max: usize,
    pub traffic: Traffic,
    /// The world must have ended by then, ns.
    pub limit_ns: u64,
}

impl Setup {
    /// A world drawn from `random`, of 2 to 16 ranks that send about `messages` in all.
    pub fn draw(random: &mut Random, messages: u32) -> Setup {
        let ranks = random.between(2, 16) as usize;
        let hosts_max = random.between(1, ranks as u64);
        let ppm = |random: &mut Random, most: u64| random.below(most) as u32;
        let faulty = random.chance(700_000);
        let fault = |random: &mut Random, most| if faulty { ppm(random, most) } else { 0 };
        let ring_bytes_max = random.pick(&[16 << 10, 128 << 10]);
        let eager_bytes_max = random.pick(&[128, 1024, 4096, 32 << 10]).min(ring_bytes_max / 2);
        let unexpected_bytes_max = random.pick(&[17 << 10, 64 << 10]);
        Setup {
            hosts: (0..ranks).map(|_| random.below(hosts_max) as u32).collect(),
            connected_ppm: random.pick(&[0, 500_000, 1_000_000]),
            connection: Connection {
                latency_ns: random.between(500, 5000),
                jitter_ns: random.below(20_000),
                set_up_ns: random.below(200_000),
                register_ns: random.below(200),
            },
            link: Link {
                jitter_ns: random.below(20_000),
                loss_ppm: fault(random, 20_000),
                duplicate_ppm: fault(random, 20_000),
                corrupt_ppm: fault(random, 5_000),
                reorder_ppm: fault(random, 50_000),
                reorder_ns: 100_000,
                backpressure: random.chance(500_000),
                ..Link::default()
            },
            eager_bytes_max,
            short_bytes_max: random.pick(&[256, 4096, 16 << 10]),
            unexpected_bytes_max,
            headers_bytes_max: unexpected_bytes_max * random.between(1, 4),
            speculation: random.pick(&[Speculation::Off, Speculation::Adaptive, Speculation::Always]),
            rendezvous: if random.chance(750_000) { Variant::Sequence } else { Variant::Acks },
            forbid_ppm: random.pick(&[0, 0, 3000]),
            switches: random.below(12),
            breaks: random.below(6),
            routes_ns: random.pick(&[1_000_000, 10_000_000, 100_000_000]),
            ring_packets_max: random.pick(&[4, 16, 64]),
            ring_bytes_max,
            traffic: Traffic {
                messages: messages / ranks as u32 + 1,
                tags: random.between(1, 4) as u32,
                longest_bytes: random.pick(&[20 << 10, 300 << 10]),
                cancel_ppm: random.pick(&[0, 20_000]),
                probe_ppm: random.pick(&[0, 100_000]),
                synchronous_ppm: random.pick(&[0, 150_000]),
            },
            limit_ns: 1_000_000_000_000,
        }
    }
}

/// What a world came to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Outcome {
    pub messages: u64,
    pub end_ns: u64,
    /// By the machine's routes ([`proto::p2p::DataPath`]).
    pub routes: [u64; 8],
    /// Messages that were read or put over connections.
    pub reads: u64,
    pub puts: u64,
    pub cancelled: u64,
    pub taken: u64,
    pub announced: u64,
    pub answered: u64,
    pub crossed: u64,
    pub lost: u64,
    pub switches: u64,
    pub breaks: u64,
    pub resent: u64,
    pub doubled: u64,
    /// Looks at messages in rings of which not all was there, or that had been begun by one.
    pub in_parts: u64,
}

impl Outcome {
    /// Adds what another world came to.
    pub fn add(&mut self, other: &Outcome) {
        self.messages += other.messages;
        self.end_ns += other.end_ns;
        self.routes.iter_mut().zip(other.routes).for_each(|(sum, one)| *sum += one);
        self.reads += other.reads;
        self.puts += other.puts;
        self.cancelled += other.cancelled;
        self.taken += other.taken;
        self.announced += other.announced;
        self.answered += other.answered;
        self.crossed += other.crossed;
        self.lost += other.lost;
        self.switches += other.switches;
        self.breaks += other.breaks;
        self.resent += other.resent;
        self.doubled += other.doubled;
        self.in_parts += other.in_parts;
    }
}

/// A rank looks again so long after something was under way that only it can bring on, ns.
const AGAIN_NS: u64 = 3000;
/// So long after the last program went on, all may have more under way, ns.
const IDLE_NS: u64 = 1_500_000_000;
/// A broken connection is noticed within that time, ns; it may be made anew after that.
const NOTICED_NS: u64 = 100_000;
/// Times that a rank goes on before others get their turn.
const TURNS: u64 = 4;

pub struct World {
    seed: u64,
    setup: Setup,
    shared: Shared,
    ranks: Vec<Rank>,
    programs: Vec<Program>,
    expected: BTreeMap<(u32, u32, u32, i32), Vec<usize>>,
    /// When each rank's timer is due, and when it looks again.
    wakes: Vec<u64>,
    looks: Vec<u64>,
    /// When a program last went on.
    moved_ns: u64,
}

impl World {
    pub fn new(setup: Setup, seed: u64) -> World {
        let ranks = setup.hosts.len() as u32;
        let mut random = Random::new(seed);
        let programs = program::programs(ranks, &setup.traffic, &mut random);
        let mut expected = BTreeMap::new();
        programs.iter().for_each(|program| program.lengths(&mut expected));
        let network = Network { links: vec![setup.link.clone()], cuts: vec![] };
        let mut field = Field::new(network, ranks, setup.connection, random.word());
        (field.ring_packets_max, field.ring_bytes_max, field.forbid_ppm) = (setup.ring_packets_max, setup.ring_bytes_max, setup.forbid_ppm);
        (0..ranks).for_each(|rank| field.at(0, Event::Look { rank }));
        let mut kinds = vec![vec![Kind::Memory; ranks as usize]; ranks as usize];
        for (one, host) in setup.hosts.iter().enumerate() {
            for (other, _) in setup.hosts[..one].iter().enumerate().filter(|(_, other)| *other != host) {
                let kind = if random.chance(setup.connected_ppm) { Kind::Connection } else { Kind::Datagrams };
                (kinds[one][other], kinds[other][one]) = (kind, kind);
                if kind == Kind::Connection {
                    plan_routes(&setup, &mut field, &mut random, one as u32, other as u32);
                }
            }
        }
        let shared: Shared = Rc::new(RefCell::new(field));
        let machines = (0..ranks).map(|me| rank(me, &setup, &kinds[me as usize], &shared)).collect();
        let (wakes, looks) = (vec![u64::MAX; ranks as usize], vec![u64::MAX; ranks as usize]);
        World { seed, setup, shared, ranks: machines, programs, expected, wakes, looks, moved_ns: 0 }
    }

    /// Plays the world until nothing is under way.
    ///
    /// # Panics
    /// When anything was lost, doubled, overtaken or damaged, when memory was used that is the program's again, or when the world does not end.
    pub fn run(mut self) -> Outcome {
        let _witness = Witness(self.seed);
        loop {
            let next = self.shared.borrow_mut().events.pop();
            let Some(Reverse(Entry(at_ns, _, event))) = next else {
                if self.programs.iter().all(Program::is_done) {
                    return self.outcome();
                }
                self.raise_limits();
                continue;
            };
            self.shared.borrow_mut().now_ns = at_ns;
            assert!(at_ns < self.setup.limit_ns, "the world does not end:\n{}", self.state());
            self.step(at_ns, event);
            if at_ns > self.moved_ns + IDLE_NS {
                self.raise_limits();
            }
        }
    }

    /// Whoever waits may wait for what another one has not posted.
    fn raise_limits(&mut self) {
        let most = self.setup.traffic.messages as usize * self.ranks.len();
        assert!(self.programs[0].limit <= 2 * most, "the world has stopped:\n{}", self.state());
        let field = &mut *self.shared.borrow_mut();
        let now_ns = field.now_ns;
        for (rank, program) in (0..).zip(&mut self.programs) {
            program.limit *= 2;
            field.at(now_ns, Event::Look { rank });
        }
        self.moved_ns = now_ns;
    }

    fn step(&mut self, now_ns: u64, event: Event) {
        let (Event::Look { rank }
        | Event::Datagram { to: rank, .. }
        | Event::Wake { rank }
        | Event::Writable { rank, .. }
        | Event::Carried { to: rank, .. }
        | Event::Read { to: rank, .. }
        | Event::Switch { rank, .. }
        | Event::Break { one: rank, .. }
        | Event::Broken { rank, .. }) = event;
        let machine = &mut self.ranks[rank as usize];
        match event {
            Event::Look { .. } => {
                if self.looks[rank as usize] <= now_ns {
                    self.looks[rank as usize] = u64::MAX;
                }
            }
            Event::Datagram { rail, bytes, .. } => {
                worker::with_network(machine, |network, machine| network.datagram(machine, rail, bytes));
            }
            Event::Wake { .. } => {
                if self.wakes[rank as usize] == now_ns {
                    self.wakes[rank as usize] = u64::MAX;
                    worker::with_network(machine, |network, machine| network.tick(machine));
                }
            }
            Event::Writable { rail, .. } => {
                worker::with_network(machine, |network, _| network.both.endpoint.writable(rail));
            }
            // What an earlier connection had is lost.
            Event::Carried { from, epoch, .. } | Event::Read { from, epoch, .. } if epoch != self.shared.borrow().epoch(from, rank) => {}
            Event::Carried { from, what, .. } => {
                worker::with_network(machine, |network, machine| network.carried(machine, from, what));
            }
            Event::Read { from, token, receive, bytes, .. } => self.read(from, rank, token, receive, bytes),
            Event::Switch { peer, route, .. } => {
                worker::with_network(machine, |network, _| network.switch(peer, route));
            }
            Event::Break { one, other } => {
                let field = &mut *self.shared.borrow_mut();
                field.break_connection(one, other);
                for (rank, peer) in [(one, other), (other, one)] {
                    let at_ns = now_ns + field.random.below(NOTICED_NS);
                    field.at(at_ns, Event::Broken { rank, peer });
                    let at_ns = now_ns + NOTICED_NS + field.random.below(NOTICED_NS);
                    field.at(at_ns, Event::Switch { rank, peer, route: CONNECTION });
                }
            }
            Event::Broken { peer, .. } => {
                worker::with_network(machine, |network, _| network.broken(peer));
            }
        }
        self.go_on(rank);
    }

    /// A remote read, or write, of `bytes` of a send of `from` into a receive of `to`.
    fn read(&mut self, from: u32, to: u32, token: u64, receive: u64, bytes: u64) {
        let sender = &mut self.ranks[from as usize];
        let body = worker::with_network(sender, |network, sender| network.body(sender, token, bytes)).expect("a network");
        let machine = &mut self.ranks[to as usize];
        machine.room(receive, 0, bytes).expect("the memory of a receive that is under way").put(0, &body);
        worker::with_network(machine, |network, machine| network.read_done(machine, from, token, receive));
    }

    /// Lets a rank do what it can.
    fn go_on(&mut self, me: u32) {
        let (machine, program) = (&mut self.ranks[me as usize], &mut self.programs[me as usize]);
        let turns = self.shared.borrow_mut().random.between(1, TURNS);
        let mut moved = true;
        for _ in 0..turns {
            let mut step = || -> Result<bool, worker::Error> {
                let mut moved = worker::take_in(machine)?;
                if machine.postponed {
                    machine.try_postponed()?;
                }
                if !machine.settled() {
                    moved |= machine.advance()?;
                }
                worker::carry_out(machine);
                Ok(moved)
            };
            moved = step().unwrap_or_else(|error| panic!("rank {me}: {error:?}"));
            if program.go_on(machine, &self.shared, &self.setup.traffic) {
                (moved, self.moved_ns) = (true, self.shared.borrow().now_ns);
            }
            if !moved {
                break;
            }
        }
        if !moved {
            machine.widen().unwrap_or_else(|error| panic!("rank {me}: {error:?}"));
            worker::with_network(machine, |network, machine| network.flush(machine, true));
        }
        let field = &mut *self.shared.borrow_mut();
        let again = moved
            || !machine.quiet()
            || machine.postponed
            || !machine.actions.is_empty()
            || machine.network.as_ref().is_some_and(|network| network.routes.is_waiting());
        if again && self.looks[me as usize] == u64::MAX {
            let at_ns = field.now_ns + 1 + field.random.below(AGAIN_NS);
            self.looks[me as usize] = at_ns;
            field.at(at_ns, Event::Look { rank: me });
        }
        if let Some(at_ns) = machine.network.as_ref().and_then(|network| network.both.endpoint.deadline_ns())
            && at_ns < self.wakes[me as usize]
        {
            let at_ns = at_ns.max(field.now_ns + 1);
            self.wakes[me as usize] = at_ns;
            field.at(at_ns, Event::Wake { rank: me });
        }
    }

    fn state(&self) -> String {
        let routes = |rank: &Rank| rank.network.as_ref().map(|network| format!("{:?}", network.routes)).unwrap_or_default();
        self.programs.iter().zip(&self.ranks).map(|(program, rank)| program.state() + "\n" + &routes(rank) + "\n").collect()
    }

    fn outcome(mut self) -> Outcome {
        let ranks = self.ranks.len() as u32;
        let mut outcome = Outcome::default();
        for (machine, program) in self.ranks.iter().zip(&mut self.programs) {
            let me = machine.config.me;
            program.judge(ranks, &self.expected);
            assert_eq!(machine.active(), 0, "rank {me}: requests that never ended");
            assert!(machine.settled(), "rank {me}: something is still to be sent or copied");
            assert!(machine.network.as_ref().is_none_or(|network| network.is_quiet()), "rank {me}: its network is not quiet");
            assert_eq!(machine.queued(), (0, 0), "rank {me}: receives or messages that nobody has matched");
            assert!((0..ranks).all(|peer| machine.held_bytes(peer) == 0), "rank {me}: credit of messages that are matched");
            outcome.messages += program.received;
            outcome.cancelled += program.cancelled;
            outcome.taken += program.taken;
            outcome.announced += machine.worker.counted(Count::RtrSent);
            outcome.answered += machine.worker.counted(Count::RtrAnswered);
            outcome.crossed += machine.worker.counted(Count::RtrCrossed);
            if let Some(network) = &machine.network {
                outcome.switches += network.routes.switches;
                outcome.breaks += network.routes.breaks;
                outcome.resent += network.routes.resent;
                outcome.doubled += network.routes.doubled;
            }
            outcome.in_parts += machine.worker.in_parts;
            outcome.routes.iter_mut().zip(machine.worker.routes).for_each(|(sum, one)| *sum += one);
        }
        let field = self.shared.borrow();
        (outcome.end_ns, outcome.reads, outcome.puts, outcome.lost) = (field.now_ns, field.reads, field.puts, field.wires.lost);
        outcome
    }
}

/// When the messages between two ranks take another route, each direction by itself, and when their connection breaks.
fn plan_routes(setup: &Setup, field: &mut Field, random: &mut Random, one: u32, other: u32) {
    for (rank, peer) in [(one, other), (other, one)] {
        field.at(random.below(setup.routes_ns), Event::Switch { rank, peer, route: CONNECTION });
        for _ in 0..setup.switches {
            field.at(random.below(setup.routes_ns), Event::Switch { rank, peer, route: random.pick(&[DATAGRAMS, CONNECTION]) });
        }
    }
    // One after the other has been noticed.
    let mut at_ns = 0;
    for _ in 0..setup.breaks {
        at_ns += 2 * NOTICED_NS + random.below(setup.routes_ns / setup.breaks);
        field.at(at_ns, Event::Break { one, other });
    }
}

/// The machine of rank `me`.
fn rank(me: u32, setup: &Setup, kinds: &[Kind], shared: &Shared) -> Rank {
    let processes = kinds.len() as u32;
    let local: Vec<u32> = (0..).zip(kinds).filter(|(_, kind)| **kind == Kind::Memory).map(|(process, _)| process).collect();
    let config = Config {
        me,
        processes,
        eager_bytes_max: setup.eager_bytes_max,
        quick_bytes_max: setup.ring_bytes_max / 2,
        unexpected_bytes_max: setup.unexpected_bytes_max,
        // What a connection has brought before it broke is here beside what the next one brings.
        headers_bytes_max: setup.headers_bytes_max * (2 + setup.breaks),
        speculation: setup.speculation,
        rtr_usage_min_percent: 50,
        longer_while_both_wait: true,
        shared_cores: false,
        rendezvous: setup.rendezvous,
        descriptors: 16,
        patience: 20,
    };
    let worker = Worker { shared: shared.clone(), eager_bytes_max: setup.eager_bytes_max, counts: Default::default(), routes: [0; 8], in_parts: 0 };
    let rings = (local.len() > 1).then(|| Rings { me, shared: shared.clone(), forbidden: HashSet::new() });
    let mut machine = Machine::new(config, 0, rings, worker);
    if local.len() < kinds.len() {
        let reliability = reliability::Config {
            rails: vec![RailConfig { mtu_bytes: 1472, endpoints: 1, queue_packets_max: 256 }],
            eager_bytes_max: setup.short_bytes_max as u32,
            credit_bytes: setup.unexpected_bytes_max,
            credit_header_bytes: setup.headers_bytes_max,
            ..reliability::Config::default()
        };
        let mut endpoint = Endpoint::new(reliability, me, me + 1);
        for peer in (0..processes).filter(|peer| kinds[*peer as usize] != Kind::Memory) {
            endpoint.connect(peer, peer + 1);
            endpoint.set_paths(peer, 1, 1472);
        }
        let credits = (setup.unexpected_bytes_max, setup.headers_bytes_max);
        let peers = Peers::new(me, shared.clone(), kinds.to_vec(), setup.short_bytes_max, endpoint, credits);
        machine.reach_remote(Box::new(peers), &local);
    }
    machine
}
