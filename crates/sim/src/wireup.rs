//! What does it cost to speak to everybody for the first time? One rank of a job of any size in the ring of paper 003 §5.2.2: at each step it sends
//! to the next rank further on and waits for the message of the one as far behind. Peers exist from their first message on, and speak to this
//! rank alone: what it meets is what it would meet if everybody did the same.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};

use proto::reliability::seal::{self, TestSeal};
use proto::reliability::{Config, Counters, Delivery, Endpoint, Failure, Outside, PeerId, Placement, SendPath, Sent, Slice};

use crate::network::{Fate, Link, Network, Wires};
use crate::random::Random;

/// Incarnation of everybody.
const EPOCH: u32 = 1;
/// Header and sender's request, as the engine sends them.
const ENVELOPE_BYTES: usize = 24;
/// An answer to a probe.
const ANSWER_BYTES: usize = 48;

/// A job, and what is around it.
#[derive(Clone, Debug)]
pub struct Job {
    /// At least 2.
    pub ranks: u32,
    pub config: Config,
    pub link: Link,
    /// A read of the key-value store.
    pub store_ns: u64,
    /// Pairs of addresses that are probed with a datagram of full length at first use, 0 where there is nothing to choose.
    pub probes: u32,
}

impl Job {
    /// Ranks on a network of 10 Gbit/s and 10 µs, without loss, one address each, whose store answers at once.
    pub fn new(ranks: u32) -> Job {
        Job { ranks, config: Config::default(), link: Link::default(), store_ns: 0, probes: 0 }
    }
}

/// What the rank has paid.
#[derive(Clone, Debug, PartialEq)]
pub struct Cost {
    pub peers: u32,
    /// Until the last message of the ring was there.
    pub elapsed_ns: u64,
    pub store_reads: u64,
    pub probes_sent: u64,
    pub counters: Counters,
    /// What the reliability layer keeps for peers: after so many of them, those of the last moments still at work.
    pub at_work_bytes: Vec<(u32, usize)>,
    /// The same when all are quiet.
    pub quiet_bytes: usize,
}

#[derive(PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    /// A rank has read its peer's card.
    Speak {
        rank: u32,
        to: u32,
    },
    Wake {
        rank: u32,
    },
    Writable {
        rank: u32,
    },
    Arrive {
        to: u32,
        bytes: Vec<u8>,
    },
}

struct Member {
    endpoint: Endpoint,
    wake_ns: u64,
}

struct Around {
    now_ns: u64,
    order: u64,
    events: BinaryHeap<Reverse<(u64, u64, Event)>>,
    wires: Wires,
    random: Random,
}

impl Around {
    fn at(&mut self, at_ns: u64, event: Event) {
        self.order += 1;
        self.events.push(Reverse((at_ns, self.order, event)));
    }

    /// Puts bytes on the wire and says when they arrive; `None` if they never do. `Err`: when to try again.
    fn carry(&mut self, from: u32, to: u32, bytes: &mut [u8]) -> Result<Option<u64>, u64> {
        match self.wires.send(from, to, 0, bytes, self.now_ns, &mut self.random) {
            Fate::Refused(until_ns) => Err(until_ns),
            Fate::Sent { arrivals, .. } => Ok(arrivals[0]),
        }
    }
}

const SEAL: TestSeal = TestSeal(3);

/// A rank's way out, and what it heard.
struct Edge<'a> {
    around: &'a mut Around,
    me: u32,
    heard: Vec<PeerId>,
}

impl Outside for Edge<'_> {
    fn transmit(&mut self, route: SendPath, header: &mut [u8], _payload: &[Slice]) -> Sent {
        seal::seal_datagram(&SEAL, header, &[]);
        let mut bytes = header.to_vec();
        match self.around.carry(self.me, route.peer, &mut bytes) {
            Ok(at_ns) => {
                if let Some(at_ns) = at_ns {
                    self.around.at(at_ns, Event::Arrive { to: route.peer, bytes });
                }
                Sent::Done
            }
            Err(until_ns) => {
                self.around.at(until_ns, Event::Writable { rank: self.me });
                Sent::Busy
            }
        }
    }

    fn place(&mut self, _placement: &Placement, _payload: &[u8]) -> bool {
        unreachable!("no message has a payload")
    }

    fn deliver(&mut self, peer: PeerId, delivery: Delivery) {
        assert!(matches!(delivery, Delivery::Eager { .. }), "{delivery:?}");
        self.heard.push(peer);
    }

    fn complete(&mut self, _send: u64, result: Result<(), Failure>) {
        assert_eq!(result, Ok(()));
    }

    fn received(&mut self, _receive: u64, _result: Result<(), Failure>) {}

    fn peer_failed(&mut self, peer: PeerId, _in_use: &[u64]) {
        panic!("peer {peer} was given up");
    }
}

/// Plays the ring as rank 0 meets it, until all is quiet.
///
/// # Panics
/// Where a peer is given up, or a message does not come.
pub fn wire_up(job: &Job) -> Cost {
    assert!(job.ranks >= 2);
    let network = Network { links: vec![job.link.clone()], cuts: vec![] };
    let mut around = Around { now_ns: 0, order: 0, events: BinaryHeap::new(), wires: Wires::new(network, job.ranks), random: Random::new(1) };
    let mut members: HashMap<u32, Member> = HashMap::new();
    let mut cost =
        Cost { peers: job.ranks - 1, elapsed_ns: 0, store_reads: 0, probes_sent: 0, counters: Counters::default(), at_work_bytes: Vec::new(), quiet_bytes: 0 };
    let (mut distance, mut spoken, mut heard) = (0, 0, 0);
    step(&mut around, job, &mut distance);
    while let Some(Reverse((at_ns, _, event))) = around.events.pop() {
        around.now_ns = at_ns;
        let rank = match event {
            Event::Speak { rank, .. } | Event::Wake { rank } | Event::Writable { rank } => rank,
            Event::Arrive { to, .. } => to,
        };
        let member = members.entry(rank).or_insert_with(|| Member { endpoint: Endpoint::new(job.config.clone(), rank, EPOCH), wake_ns: u64::MAX });
        let endpoint = &mut member.endpoint;
        let mut edge = Edge { around: &mut around, me: rank, heard: Vec::new() };
        match event {
            Event::Speak { to, .. } => {
                endpoint.connect(to, EPOCH);
                if rank == 0 {
                    cost.store_reads += 1;
                    cost.probes_sent += u64::from(job.probes);
                    spoken += 1;
                }
                // Their answers are not waited for; what they take of the wires is.
                let mtu_bytes = job.config.rails[0].mtu_bytes as usize;
                for _ in 0..job.probes {
                    let _ = edge.around.carry(rank, to, &mut vec![0; mtu_bytes]);
                    let _ = edge.around.carry(to, rank, &mut [0; ANSWER_BYTES]);
                }
                let sent = endpoint.send(at_ns, to, &[0; ENVELOPE_BYTES], 0, 0, false);
                assert_eq!(sent, Ok(()));
            }
            Event::Arrive { mut bytes, .. } => {
                let packet = seal::open_datagram(&SEAL, &mut bytes).expect("a whole datagram");
                endpoint.arrived(at_ns, 0, &packet, &mut edge);
            }
            Event::Wake { .. } if member.wake_ns == at_ns => {
                member.wake_ns = u64::MAX;
                endpoint.tick(at_ns, &mut edge);
            }
            Event::Writable { .. } => endpoint.writable(0),
            Event::Wake { .. } => {}
        }
        for peer in std::mem::take(&mut edge.heard) {
            endpoint.release(at_ns, peer, 0);
            heard += u32::from(rank == 0);
        }
        endpoint.flush(at_ns, &mut edge);
        if let Some(due_ns) = endpoint.deadline_ns()
            && due_ns < member.wake_ns
        {
            member.wake_ns = due_ns.max(at_ns + 1);
            edge.around.at(member.wake_ns, Event::Wake { rank });
        }
        if rank == 0 && spoken == distance && heard == distance && cost.elapsed_ns == 0 {
            if distance.is_power_of_two() || distance == cost.peers {
                cost.at_work_bytes.push((distance, members[&0].endpoint.peer_bytes()));
            }
            if distance == cost.peers {
                cost.elapsed_ns = at_ns;
            } else {
                step(&mut around, job, &mut distance);
            }
        }
    }
    let me = &members[&0].endpoint;
    assert!(heard == cost.peers && me.is_quiet(), "the ring has not ended");
    cost.counters = me.counters;
    cost.quiet_bytes = me.peer_bytes();
    cost
}

/// The next step of the ring: both that speak in it ask the store first.
fn step(around: &mut Around, job: &Job, distance: &mut u32) {
    *distance += 1;
    let at_ns = around.now_ns + job.store_ns;
    around.at(at_ns, Event::Speak { rank: 0, to: *distance });
    around.at(at_ns, Event::Speak { rank: job.ranks - *distance, to: 0 });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_peer_costs_the_same_in_a_small_job_and_in_a_large_one() {
        let costs: Vec<Cost> = [64, 512, 4096].map(|ranks| wire_up(&Job::new(ranks))).into();
        for cost in &costs {
            let each = |count: u64| count as f64 / f64::from(cost.peers);
            assert_eq!(cost.store_reads, u64::from(cost.peers));
            assert_eq!(cost.counters.segments_again, 0, "{:?}", cost.counters);
            // A message to each peer, and at most an acknowledgement.
            assert!((1.0..=2.0).contains(&each(cost.counters.packets_sent)), "{:?}", cost.counters);
            assert!(cost.quiet_bytes / (cost.peers as usize) < 512, "{} bytes", cost.quiet_bytes);
            assert_eq!(cost.at_work_bytes.last().map(|point| point.0), Some(cost.peers));
        }
        let us_per_peer = |cost: &Cost| cost.elapsed_ns as f64 / 1e3 / f64::from(cost.peers);
        let (small, large) = (us_per_peer(&costs[0]), us_per_peer(&costs[2]));
        assert!((large / small - 1.0).abs() < 0.05, "{small} µs a peer, then {large}");
    }

    #[test]
    fn store_and_probes_add_what_they_take() {
        let plain = wire_up(&Job::new(32));
        let slow = wire_up(&Job { store_ns: 20_000, ..Job::new(32) });
        // Acknowledgements share the wire at other moments.
        assert!(slow.elapsed_ns.abs_diff(plain.elapsed_ns + 31 * 20_000) < 1_000, "{slow:?} {plain:?}");
        let probing = wire_up(&Job { probes: 4, ..Job::new(32) });
        assert_eq!(probing.probes_sent, 4 * 31);
        assert!(probing.elapsed_ns > plain.elapsed_ns, "{probing:?}");
    }
}
