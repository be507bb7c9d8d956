//! Adapters that transfer to and from registered memory, as a model: what they cost, in simulated nanoseconds.
//!
//! A [`Profile`] has the costs of an adapter and of the processor beside it, and says where each number is from; numbers that no
//! source gives are said to be assumed or fitted. An [`Adapter`] registers memory as a [`memory::cache::Registrar`] and adds up
//! what that takes. [`pull`] plays a transfer by rendezvous whose receiver pulls packets, with the real machine of
//! [`memory::overlap`] on both sides.

use memory::cache::{Failure, Registrar};
use memory::overlap::{Access, Overlap, Transfer};
use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};
use std::ops::Range;

/// What an adapter does with a page that is not pinned.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Unpinned {
    /// The peer is told to come again, and does so after that time and a round trip.
    NotYet { again_ns: f64 },
    /// The connection breaks.
    Break,
}

/// Costs in ns, rates in bytes per ns (GB/s).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Profile {
    pub name: &'static str,
    /// Where the numbers are from.
    pub source: &'static str,
    /// Handing a transfer to the adapter, and each further piece that it gathers.
    pub post_ns: f64,
    pub gather_ns: f64,
    /// From memory to memory, one way, of the shortest message.
    pub latency_ns: f64,
    /// Data of the longest message, one way, and of both ways together.
    pub wire_bytes_per_ns: f64,
    pub bus_bytes_per_ns: f64,
    /// A copy by the processor: each time, and its rate.
    pub copy_ns: f64,
    pub copy_bytes_per_ns: f64,
    /// Longest message that is written into the adapter with its header: it needs no registered memory.
    pub inline_bytes_max: usize,
    /// Registering, and giving back: each time, and each page.
    pub register_ns: f64,
    pub register_page_ns: f64,
    pub deregister_ns: f64,
    pub deregister_page_ns: f64,
    pub page_bytes: usize,
    /// Data of a packet on the wire, and what is around it.
    pub packet_bytes: usize,
    pub packet_header_bytes: usize,
    pub unpinned: Unpinned,
}

/// The host of paper 004 with one of its processors: Table 1 gives what pinning and unpinning take together, the base in ns, and
/// ns a page.
const fn open_mx(name: &'static str, base_ns: f64, page_ns: f64) -> Profile {
    Profile {
        name,
        source: "paper 004: Table 1 (pinning and unpinning together; halves are assumed), 10G Ethernet (§4.1), round trip 10 to 20 µs \
                 (footnote 2); packets of 8 KiB and 4 GB/s of a copy are assumed",
        post_ns: 500.0,
        gather_ns: 50.0,
        latency_ns: 7_500.0,
        wire_bytes_per_ns: 1.25,
        bus_bytes_per_ns: 2.5,
        copy_ns: 0.0,
        copy_bytes_per_ns: 4.0,
        inline_bytes_max: 128,
        register_ns: base_ns / 2.0,
        register_page_ns: page_ns / 2.0,
        deregister_ns: base_ns / 2.0,
        deregister_page_ns: page_ns / 2.0,
        page_bytes: 4096,
        packet_bytes: 8192,
        packet_header_bytes: 66,
        unpinned: Unpinned::NotYet { again_ns: 1_000.0 },
    }
}

/// Paper 004, Table 1: the processors from slow to fast, with the GB/s of pinning that the table gives beside.
pub const OPEN_MX: [(Profile, f64); 4] = [
    (open_mx("Opteron 265", 4_200.0, 720.0), 5.5),
    (open_mx("Opteron 8347", 2_200.0, 330.0), 12.0),
    (open_mx("Xeon E5435", 2_300.0, 250.0), 16.0),
    (open_mx("Xeon E5460", 1_300.0, 150.0), 26.5),
];

/// The host of paper 001, part 2.
pub const INFINIHOST: Profile = Profile {
    name: "InfiniHost MT23108",
    source: "paper 001: latency 10 µs, 429 MB/s at 4 MiB by copies (§2.3.7; the copy's rate is fitted to it), PCI-X 133 (§2.5: of its \
             1.07 GB/s, 0.85 one way and 0.91 both ways are assumed); registration fitted to the loss of two thirds of the \
             bandwidth (§2.5.1)",
    post_ns: 1_000.0,
    gather_ns: 100.0,
    latency_ns: 10_000.0,
    wire_bytes_per_ns: 0.85,
    bus_bytes_per_ns: 0.91,
    copy_ns: 0.0,
    copy_bytes_per_ns: 1.73,
    inline_bytes_max: 64,
    register_ns: 60_000.0,
    register_page_ns: 14_000.0,
    deregister_ns: 40_000.0,
    deregister_page_ns: 9_000.0,
    page_bytes: 4096,
    packet_bytes: 2048,
    packet_header_bytes: 30,
    unpinned: Unpinned::Break,
};

/// The host of paper 000. The paper gives ratios of times, and no time: the rate of the wire sets the scale of all others.
pub const CONNECTX: Profile = Profile {
    name: "ConnectX DDR",
    source: "paper 000, fitted: registration and the copy's base and rate to Table 2 (least squares of n's relative error), the copy to 15 % of \
             the latency at 8 KiB (§2), post and latency to the switch to rendezvous at 9 KiB (§2); inline below 128 B (§5.1.1); 1.4 GB/s on \
             the wire (the bus: PCI Express x8) is assumed; deregistration is not given, and costs nothing here",
    post_ns: 500.0,
    // Within the time of the searches, `V`.
    gather_ns: 0.0,
    latency_ns: 1_340.0,
    wire_bytes_per_ns: 1.4,
    bus_bytes_per_ns: 1.4,
    copy_ns: 120.0,
    copy_bytes_per_ns: 5.36,
    inline_bytes_max: 127,
    register_ns: 35_760.0,
    register_page_ns: 7_500.0,
    deregister_ns: 0.0,
    deregister_page_ns: 0.0,
    page_bytes: 4096,
    packet_bytes: 2048,
    packet_header_bytes: 30,
    unpinned: Unpinned::Break,
};

/// The first of [`TODAY`].
const ADAPTER: Profile = Profile {
    name: "200 Gbit/s adapter",
    source: "assumed: 25 GB/s each way, 1 µs, a copy 10 ns and 10 GB/s, registration 2 µs and 60 ns a page",
    post_ns: 60.0,
    gather_ns: 10.0,
    latency_ns: 1_000.0,
    wire_bytes_per_ns: 24.0,
    bus_bytes_per_ns: 48.0,
    copy_ns: 10.0,
    copy_bytes_per_ns: 10.0,
    inline_bytes_max: 220,
    register_ns: 2_000.0,
    register_page_ns: 60.0,
    deregister_ns: 1_500.0,
    deregister_page_ns: 30.0,
    page_bytes: 4096,
    packet_bytes: 4096,
    packet_header_bytes: 64,
    unpinned: Unpinned::Break,
};

/// Adapters as they are sold now. No figure of a paper stands behind these: they are round numbers of the order that data sheets
/// and measurements in public give for such devices, for looking at how a mechanism scales.
pub const TODAY: [Profile; 2] = [
    ADAPTER,
    Profile {
        name: "200 Gbit/s adapter, on-demand paging",
        source: "assumed: as the one without, and 10 µs until a page that was not there is asked for again",
        unpinned: Unpinned::NotYet { again_ns: 10_000.0 },
        ..ADAPTER
    },
];

impl Profile {
    fn pages(&self, bytes: usize) -> usize {
        bytes.div_ceil(self.page_bytes)
    }

    pub fn registering_ns(&self, bytes: usize) -> f64 {
        self.register_ns + self.register_page_ns * self.pages(bytes) as f64
    }

    pub fn deregistering_ns(&self, bytes: usize) -> f64 {
        self.deregister_ns + self.deregister_page_ns * self.pages(bytes) as f64
    }

    /// A copy of so many bytes.
    pub fn copying_ns(&self, bytes: usize) -> f64 {
        self.copy_ns + bytes as f64 / self.copy_bytes_per_ns
    }

    /// Of a message of so many bytes in `pieces` of memory, from post to arrival, out of registered memory into registered memory.
    pub fn transfer_ns(&self, bytes: usize, pieces: usize) -> f64 {
        self.post_ns + self.gather_ns * pieces.saturating_sub(1) as f64 + self.latency_ns + bytes as f64 / self.wire_bytes_per_ns
    }

    /// The same while as much goes the other way.
    pub fn exchange_ns(&self, bytes: usize, pieces: usize) -> f64 {
        let both = 2.0 * bytes as f64 / self.bus_bytes_per_ns;
        self.transfer_ns(bytes, pieces) + (both - bytes as f64 / self.wire_bytes_per_ns).max(0.0)
    }
}

/// An adapter whose registrations cost simulated time.
#[derive(Clone, Debug)]
pub struct Adapter {
    pub profile: Profile,
    /// What registrations and their ends have taken.
    pub spent_ns: f64,
    keys: HashMap<u64, Range<usize>>,
    made: u64,
}

impl Adapter {
    pub fn new(profile: Profile) -> Adapter {
        Adapter { profile, spent_ns: 0.0, keys: HashMap::new(), made: 0 }
    }

    /// Whether a device that is shown this key may touch these bytes.
    pub fn may_touch(&self, key: u64, bytes: &Range<usize>) -> bool {
        self.keys.get(&key).is_some_and(|range| range.start <= bytes.start && bytes.end <= range.end)
    }
}

impl Registrar for Adapter {
    type Key = u64;

    fn register(&mut self, range: Range<usize>) -> Result<u64, Failure> {
        self.spent_ns += self.profile.registering_ns(range.len());
        self.made += 1;
        self.keys.insert(self.made, range);
        Ok(self.made)
    }

    fn deregister(&mut self, key: u64, range: Range<usize>) {
        self.spent_ns += self.profile.deregistering_ns(range.len());
        assert_eq!(self.keys.remove(&key), Some(range), "a key is given back once, with its range");
    }
}

/// What came of a transfer.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Pulled {
    /// From the call of the send to the arrival of the last packet. Unpinning comes after that, and delays nobody in a pingpong
    /// (Fig. 7: overlapped pinning, which unpins as often, gains as much as the cache).
    pub elapsed_ns: f64,
    pub packets: u64,
    /// Packets that found a page unpinned, at the sender and at the receiver.
    pub misses: u64,
    /// The adapter broke the connection there.
    pub has_broken: bool,
}

/// One side of a transfer: its buffer's pages and its processor.
struct Side<'a> {
    overlap: &'a mut Overlap,
    transfer: Transfer,
    /// Share of a processor that pinning has.
    share: f64,
    /// What it does first has been done: it has told its peer, or asked for the packets.
    has_started: bool,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Event {
    /// A piece of the sender's pages (0) or the receiver's (1) is pinned.
    Pinned(usize),
    /// The receiver has heard of the message.
    Rts,
    /// The sender is asked for this packet.
    Pull(usize),
    Arrive(usize),
}

/// A transfer that is played.
struct Play<'a> {
    profile: &'a Profile,
    bytes: usize,
    sides: [Side<'a>; 2],
    /// Times in picoseconds, so that they have an order, and places in `events`.
    queue: BinaryHeap<Reverse<(u64, usize)>>,
    events: Vec<Event>,
    /// When the sender's wire is free.
    wire_ns: f64,
    outcome: Pulled,
}

/// A transfer of `bytes` into a receive that was posted before: the sender pins and tells, the receiver pins and pulls (paper
/// 004, Fig. 2, and Fig. 5 where it overlaps). `sides`: sender's and receiver's machine, and which share of a processor each has
/// for pinning (1: all). `is_pinned`: all pages are pinned already, as by the pin-down cache.
pub fn pull(profile: &Profile, bytes: usize, sides: [(&mut Overlap, f64); 2], overlaps: bool, is_pinned: bool) -> Pulled {
    let pages = profile.pages(bytes);
    let side = |(overlap, share): (_, f64)| {
        let overlap: &mut Overlap = overlap;
        Side { transfer: overlap.begin(pages, if is_pinned { pages } else { 0 }, overlaps), overlap, share, has_started: false }
    };
    let (queue, events) = (BinaryHeap::new(), Vec::new());
    Play { profile, bytes, sides: sides.map(side), queue, events, wire_ns: 0.0, outcome: Pulled::default() }.run()
}

impl Play<'_> {
    fn run(mut self) -> Pulled {
        let packets = self.packets();
        self.begin(0, 0.0);
        while self.outcome.packets < packets as u64 && !self.outcome.has_broken {
            let Reverse((at_ps, number)) = self.queue.pop().expect("something happens until all has arrived");
            let now_ns = at_ps as f64 / 1e3;
            let event = self.events[number];
            match event {
                Event::Pinned(at) => {
                    self.sides[at].transfer.piece_pinned();
                    self.start(at, now_ns);
                    self.pin(at, now_ns, 0.0);
                }
                Event::Rts => self.begin(1, now_ns),
                Event::Pull(packet) if self.touch(0, packet, now_ns) => {
                    self.wire_ns = self.wire_ns.max(now_ns) + self.packet_ns(packet);
                    self.push(self.wire_ns + self.profile.latency_ns, Event::Arrive(packet));
                }
                Event::Arrive(packet) if self.touch(1, packet, now_ns) => {
                    self.outcome.packets += 1;
                    self.outcome.elapsed_ns = now_ns;
                }
                Event::Pull(_) | Event::Arrive(_) => {}
            }
        }
        self.outcome
    }

    fn push(&mut self, at_ns: f64, event: Event) {
        self.queue.push(Reverse(((at_ns * 1e3).round() as u64, self.events.len())));
        self.events.push(event);
    }

    fn packets(&self) -> usize {
        self.bytes.div_ceil(self.profile.packet_bytes).max(1)
    }

    fn packet_ns(&self, packet: usize) -> f64 {
        let data = self.profile.packet_bytes.min(self.bytes - packet * self.profile.packet_bytes);
        (data + self.profile.packet_header_bytes) as f64 / self.profile.wire_bytes_per_ns
    }

    /// A side comes to its buffer: its call, or what it has heard.
    fn begin(&mut self, at: usize, now_ns: f64) {
        self.start(at, now_ns);
        self.pin(at, now_ns, self.profile.register_ns);
    }

    /// Tells the receiver, or asks for all packets, once as many pages are pinned as must be first.
    fn start(&mut self, at: usize, now_ns: f64) {
        let side = &mut self.sides[at];
        if !side.transfer.may_start() || std::mem::replace(&mut side.has_started, true) {
            return;
        }
        let heard_ns = now_ns + self.profile.transfer_ns(0, 1);
        match at {
            0 => self.push(heard_ns, Event::Rts),
            // At the rate of the wire, so that requests do not wait at the sender.
            _ => (0..self.packets()).for_each(|packet| self.push(heard_ns + packet as f64 * self.packet_ns(0), Event::Pull(packet))),
        }
    }

    /// Begins with the next piece, if there is one.
    fn pin(&mut self, at: usize, now_ns: f64, base_ns: f64) {
        let side = &self.sides[at];
        if let Some(piece) = side.transfer.next_piece() {
            let ns = (base_ns + self.profile.register_page_ns * piece.len() as f64) / side.share;
            self.push(now_ns + ns, Event::Pinned(at));
        }
    }

    /// Whether the pages of a packet are pinned on this side. If not, the packet is lost and asked for again, or the connection
    /// breaks.
    fn touch(&mut self, at: usize, packet: usize, now_ns: f64) -> bool {
        let (first, end) = (packet * self.profile.packet_bytes, self.bytes.min((packet + 1) * self.profile.packet_bytes));
        let pages = first / self.profile.page_bytes..self.profile.pages(end);
        let side = &mut self.sides[at];
        if side.overlap.access(&side.transfer, pages) == Access::Ready {
            return true;
        }
        self.outcome.misses += 1;
        match self.profile.unpinned {
            Unpinned::NotYet { again_ns } => {
                // The receiver hears of the sender's refusal; its own it knows.
                let heard_ns = self.profile.latency_ns * if at == 0 { 2.0 } else { 1.0 };
                self.push(now_ns + again_ns + heard_ns, Event::Pull(packet));
            }
            Unpinned::Break => {
                self.outcome.has_broken = true;
                self.outcome.elapsed_ns = now_ns;
            }
        }
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use memory::overlap::Settings;

    const MIB: usize = 1 << 20;

    fn one_way(profile: &Profile, overlaps: bool, pinned: bool, share: f64) -> Pulled {
        let (mut sender, mut receiver) = (Overlap::new(Settings::default()), Overlap::new(Settings::default()));
        pull(profile, MIB, [(&mut sender, share), (&mut receiver, share)], overlaps, pinned)
    }

    #[test]
    fn pinning_is_as_fast_as_in_the_table() {
        for (profile, gb_s) in OPEN_MX {
            let ns = profile.registering_ns(MIB) + profile.deregistering_ns(MIB);
            let here = MIB as f64 / ns;
            // Table 1 gives two digits, of the cost of a page alone.
            assert!((here / gb_s - 1.0).abs() < 0.06, "{}: {here:.1} GB/s", profile.name);
        }
    }

    #[test]
    fn pinning_costs_5_to_20_percent_and_overlap_gains_what_the_cache_gains() {
        let mut before = f64::INFINITY;
        for (profile, _) in OPEN_MX {
            let ways = [(false, false), (true, false), (false, true)];
            let [each, overlapped, cached] = ways.map(|(overlaps, pinned)| one_way(&profile, overlaps, pinned, 1.0));
            let loss = 1.0 - cached.elapsed_ns / each.elapsed_ns;
            assert!((0.04..0.20).contains(&loss) && loss < before, "{}: {loss}", profile.name);
            before = loss;
            assert_eq!((each.misses, overlapped.misses, cached.misses), (0, 0, 0), "{}", profile.name);
            let gained = (each.elapsed_ns - overlapped.elapsed_ns) / (each.elapsed_ns - cached.elapsed_ns);
            assert!(gained > 0.9 && gained <= 1.0, "{}: {gained}", profile.name);
        }
    }

    #[test]
    fn a_processor_without_time_misses_and_then_pins_first() {
        let (profile, _) = OPEN_MX[3];
        let (mut sender, mut receiver) = (Overlap::new(Settings::default()), Overlap::new(Settings::default()));
        let mut all = Vec::new();
        for _ in 0..10 {
            all.push(pull(&profile, MIB, [(&mut sender, 0.02), (&mut receiver, 0.02)], true, false));
        }
        assert!(all[0].misses > 10, "{all:?}");
        assert_eq!(all[9].misses, 0, "{all:?}");
        assert!(sender.counters().suppressed + receiver.counters().suppressed > 0);
    }

    #[test]
    fn an_adapter_that_cannot_say_not_yet_breaks() {
        let profile = Profile { unpinned: Unpinned::Break, ..OPEN_MX[0].0 };
        assert!(one_way(&profile, true, false, 0.02).has_broken);
        assert!(!one_way(&profile, false, false, 0.02).has_broken);
    }

    #[test]
    fn keys_open_what_they_were_made_for() {
        let mut adapter = Adapter::new(INFINIHOST);
        let key = adapter.register(4096..12288).unwrap();
        assert!(adapter.may_touch(key, &(5000..12288)) && !adapter.may_touch(key, &(4000..5000)));
        assert!(!adapter.may_touch(key + 1, &(5000..5001)));
        assert_eq!(adapter.spent_ns, INFINIHOST.registering_ns(8192));
        adapter.deregister(key, 4096..12288);
        assert!(!adapter.may_touch(key, &(5000..5001)));
        assert_eq!(adapter.spent_ns, INFINIHOST.registering_ns(8192) + INFINIHOST.deregistering_ns(8192));
    }
}
