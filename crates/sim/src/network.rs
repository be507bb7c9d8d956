//! The network between the ranks: each rank has a link per rail, in and out.

use crate::random::Random;

/// What a link does to datagrams. Chances in millionths.
#[derive(Clone, Debug)]
pub struct Link {
    pub latency_ns: u64,
    /// Each datagram takes up to this much longer.
    pub jitter_ns: u64,
    pub bytes_per_second: u64,
    /// What may wait in front of the link; more is dropped, or refused when `backpressure`.
    pub queue_bytes: u64,
    pub backpressure: bool,
    pub loss_ppm: u32,
    pub duplicate_ppm: u32,
    pub corrupt_ppm: u32,
    /// Chance of, and time by which, a datagram is held up and overtaken.
    pub reorder_ppm: u32,
    pub reorder_ns: u64,
}

impl Default for Link {
    fn default() -> Self {
        Link {
            latency_ns: 10_000,
            jitter_ns: 0,
            bytes_per_second: 1_250_000_000,
            queue_bytes: 1 << 20,
            backpressure: true,
            loss_ppm: 0,
            duplicate_ppm: 0,
            corrupt_ppm: 0,
            reorder_ppm: 0,
            reorder_ns: 0,
        }
    }
}

/// A time in which a rail carries nothing.
#[derive(Clone, Copy, Debug)]
pub struct Cut {
    pub rail: u8,
    /// Of one rank only, or of all; `outgoing` or incoming only, or both.
    pub rank: Option<u32>,
    pub outgoing: bool,
    pub incoming: bool,
    pub from_ns: u64,
    pub to_ns: u64,
}

#[derive(Clone, Debug)]
pub struct Network {
    /// One per rail.
    pub links: Vec<Link>,
    pub cuts: Vec<Cut>,
}

/// When what has been queued will have left.
#[derive(Clone, Debug, Default)]
struct Port {
    out_ns: u64,
    in_ns: u64,
}

#[derive(Debug)]
pub(crate) struct Wires {
    network: Network,
    ports: Vec<Port>,
    pub lost: u64,
    pub dropped: u64,
    pub duplicated: u64,
    pub corrupted: u64,
}

/// What the network does with a datagram.
pub(crate) enum Fate {
    /// Its sender may try again at this time.
    Refused(u64),
    /// It leaves the sender at the first time and arrives at the others.
    Sent { left_ns: u64, arrivals: [Option<u64>; 2] },
}

impl Wires {
    pub fn new(network: Network, ranks: u32) -> Wires {
        let ports = vec![Port::default(); ranks as usize * network.links.len()];
        Wires { network, ports, lost: 0, dropped: 0, duplicated: 0, corrupted: 0 }
    }

    fn is_cut(&self, from: u32, to: u32, rail: u8, now_ns: u64) -> bool {
        self.network.cuts.iter().any(|cut| {
            let hits = |rank: u32, way: bool| way && cut.rank.is_none_or(|one| one == rank);
            cut.rail == rail && (cut.from_ns..cut.to_ns).contains(&now_ns) && (hits(from, cut.outgoing) || hits(to, cut.incoming))
        })
    }

    pub fn send(&mut self, from: u32, to: u32, rail: u8, bytes: &mut [u8], now_ns: u64, random: &mut Random) -> Fate {
        let rails = self.network.links.len();
        let link = &self.network.links[rail as usize];
        // Preamble, Ethernet, IP and UDP headers, and the gap between frames.
        let wire_ns = (bytes.len() as u64 + 66) * 1_000_000_000 / link.bytes_per_second;
        let queue_ns = link.queue_bytes * 1_000_000_000 / link.bytes_per_second;
        let (latency_ns, backpressure) = (link.latency_ns, link.backpressure);
        let port = &mut self.ports[from as usize * rails + rail as usize];
        let start_ns = port.out_ns.max(now_ns);
        if start_ns - now_ns > queue_ns {
            if backpressure {
                return Fate::Refused(start_ns - queue_ns / 2);
            }
            self.dropped += 1;
            return Fate::Sent { left_ns: now_ns, arrivals: [None, None] };
        }
        port.out_ns = start_ns + wire_ns;
        let left_ns = port.out_ns;
        if self.is_cut(from, to, rail, now_ns) || random.chance(link.loss_ppm) {
            self.lost += 1;
            return Fate::Sent { left_ns, arrivals: [None, None] };
        }
        if random.chance(link.corrupt_ppm) {
            let bit = random.below(bytes.len() as u64 * 8);
            bytes[bit as usize / 8] ^= 1 << (bit % 8);
            self.corrupted += 1;
        }
        let copies = 1 + random.chance(link.duplicate_ppm) as usize;
        self.duplicated += copies as u64 - 1;
        let mut arrivals = [None, None];
        for arrival in &mut arrivals[..copies] {
            // The receiver's link is as fast and has a queue of its own (incast).
            let port = &mut self.ports[to as usize * rails + rail as usize];
            let front_ns = left_ns + latency_ns;
            let start_ns = port.in_ns.max(front_ns - wire_ns.min(front_ns));
            if start_ns > front_ns + queue_ns {
                self.dropped += 1;
                continue;
            }
            port.in_ns = start_ns + wire_ns;
            let held_ns = if random.chance(link.reorder_ppm) { random.below(link.reorder_ns + 1) } else { 0 };
            *arrival = Some(port.in_ns + random.below(link.jitter_ns + 1) + held_ns);
        }
        Fate::Sent { left_ns, arrivals }
    }
}
