//! What the ranks of a mixed world share: the clock, what is under way between them, and memory that several of them reach.

use crate::network::{Network, Wires};
use crate::random::Random;
use proto::p2p::{Descriptor, Header, Side, Window};
use proto::reliability::seal::TestSeal;
use std::cell::{Cell, RefCell};
use std::cmp::{Ordering, Reverse};
use std::collections::{BinaryHeap, HashMap, VecDeque};
use std::rc::Rc;

pub type Shared = Rc<RefCell<Field>>;

/// How two ranks reach each other.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    Memory,
    Connection,
    Datagrams,
}

/// What comes over a connection.
#[derive(Debug)]
pub enum Carried {
    Message {
        header: Header,
        body: Vec<u8>,
    },
    /// `bytes` wait at the sender under its `token`.
    Waiting {
        header: Header,
        token: u64,
        bytes: u64,
    },
    Offer {
        header: Header,
        window: Window,
    },
    /// A write into window number `window`, with what it is as immediate data.
    Put {
        header: Header,
        window: u32,
        token: u64,
        bytes: u64,
    },
    /// The body of the sender's `token` has been read, or is not wanted.
    Done {
        token: u64,
    },
    Released {
        bytes: u64,
    },
    Widen,
}

#[derive(Debug)]
pub enum Event {
    /// The rank looks for what has come, and goes on.
    Look {
        rank: u32,
    },
    Datagram {
        to: u32,
        rail: u8,
        bytes: Vec<u8>,
    },
    /// A timer of the rank's reliability layer.
    Wake {
        rank: u32,
    },
    Writable {
        rank: u32,
        rail: u8,
    },
    /// Something comes over connection number `epoch`.
    Carried {
        from: u32,
        to: u32,
        what: Carried,
        epoch: u32,
    },
    /// A remote read of the body that `from` offers under `token`, into the receive of `to`.
    Read {
        from: u32,
        to: u32,
        token: u64,
        receive: u64,
        bytes: u64,
        epoch: u32,
    },
    /// New messages of `rank` to `peer` take another route.
    Switch {
        rank: u32,
        peer: u32,
        route: u8,
    },
    /// The connection between two ranks breaks, which each of them notices in its own time.
    Break {
        one: u32,
        other: u32,
    },
    Broken {
        rank: u32,
        peer: u32,
    },
}

#[derive(Debug)]
pub struct Entry(pub u64, pub u64, pub Event);

impl PartialEq for Entry {
    fn eq(&self, other: &Entry) -> bool {
        (self.0, self.1) == (other.0, other.1)
    }
}
impl Eq for Entry {}
impl PartialOrd for Entry {
    fn partial_cmp(&self, other: &Entry) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}
impl Ord for Entry {
    fn cmp(&self, other: &Entry) -> Ordering {
        (self.0, self.1).cmp(&(other.0, other.1))
    }
}

/// A packet in a ring.
#[derive(Debug)]
pub struct Packet {
    pub visible_ns: u64,
    /// When its sender has written all of it.
    pub whole_ns: u64,
    /// The request that takes it meanwhile, and the bytes that it has taken.
    pub begun: Option<(u64, usize)>,
    pub head: [u64; 2],
    pub words: Vec<u64>,
    pub body: Vec<u8>,
}

/// From one rank to another of the same host.
#[derive(Debug, Default)]
pub struct Ring {
    pub packets: VecDeque<Packet>,
    pub bytes: usize,
    /// Its sender has found it full since the last packet was taken.
    pub refused: bool,
    /// What the receiver has released of the sender's messages, and what it has not told yet, bytes.
    pub released: u64,
    pub untold: u64,
}

/// Memory that others may read by its number.
#[derive(Debug)]
pub struct Region {
    pub number: u64,
    pub bytes: RefCell<Vec<u8>>,
}

/// A descriptor of a cooperative copy. Lives as long as the test.
#[derive(Debug, Default)]
pub struct Copying {
    generation: Cell<u32>,
    state: Cell<State>,
    front: Cell<u32>,
    back: Cell<u32>,
    done: Cell<u32>,
    failed: Cell<bool>,
    through_ring: Cell<bool>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
enum State {
    #[default]
    Void,
    Open,
    Begun,
}

impl Copying {
    fn set(&self, generation: u32, state: State) {
        self.generation.set(generation);
        self.state.set(state);
        [&self.front, &self.back, &self.done].iter().for_each(|count| count.set(0));
        self.failed.set(false);
    }

    /// From one state of the copy under `generation` to another; false where it is not in that state.
    fn turn(&self, generation: u32, from: State, to: State) -> bool {
        let is = self.generation.get() == generation && self.state.get() == from;
        if is {
            self.state.set(to);
        }
        is
    }
}

impl Descriptor for &'static Copying {
    fn say_through_ring(self, through_ring: bool) {
        self.through_ring.set(through_ring);
    }
    fn goes_through_ring(self) -> bool {
        self.through_ring.get()
    }
    fn open(self, generation: u32) {
        self.set(generation, State::Open);
    }
    fn begin(self, generation: u32) {
        self.set(generation, State::Begun);
    }
    fn begin_open(self, generation: u32) -> bool {
        self.turn(generation, State::Open, State::Begun)
    }
    fn begun(self, generation: u32) -> bool {
        self.generation.get() == generation && self.state.get() == State::Begun
    }
    fn reopen(self, generation: u32) {
        self.turn(generation, State::Begun, State::Open);
    }
    fn withdraw(self, generation: u32) -> bool {
        self.turn(generation, State::Open, State::Void)
    }
    fn claim(self, generation: u32, pieces: u32, side: Side) -> Option<u32> {
        let (front, back) = (self.front.get(), self.back.get());
        if !self.begun(generation) || front + back >= pieces {
            return None;
        }
        Some(match side {
            Side::Receiver => self.front.replace(front + 1),
            Side::Sender => pieces - 1 - self.back.replace(back + 1),
        })
    }
    fn finish(self) -> u32 {
        self.done.set(self.done.get() + 1);
        self.done.get()
    }
    fn fail(self) {
        self.failed.set(true);
    }
    fn failed(self) -> bool {
        self.failed.get()
    }
    fn finished(self) -> u32 {
        self.done.get()
    }
    fn finished_under(self, generation: u32) -> Option<u32> {
        (self.generation.get() == generation).then(|| self.done.get())
    }
}

/// What a connection does.
#[derive(Clone, Copy, Debug)]
pub struct Connection {
    pub latency_ns: u64,
    /// Each message takes up to this much longer, in order.
    pub jitter_ns: u64,
    pub set_up_ns: u64,
    /// To register memory for a read or a write, for each KiB of it.
    pub register_ns: u64,
}

pub struct Field {
    pub now_ns: u64,
    order: u64,
    pub events: BinaryHeap<Reverse<Entry>>,
    pub wires: Wires,
    pub random: Random,
    pub seal: TestSeal,
    pub connection: Connection,
    pub rings: HashMap<(u32, u32), Ring>,
    pub ring_packets_max: usize,
    pub ring_bytes_max: usize,
    /// A packet is seen up to this much later.
    pub ring_ns: u64,
    pub descriptors: HashMap<(u32, u64), &'static Copying>,
    pub regions: HashMap<u64, Rc<Region>>,
    next_region: u64,
    /// Chance that a copy between memories is refused from then on between two ranks, millionths.
    pub forbid_ppm: u32,
    /// When the last that was sent over a connection arrives, by sender and receiver.
    carried_ns: HashMap<(u32, u32), u64>,
    epochs: HashMap<(u32, u32), u32>,
    /// Messages that were read, and put, over connections.
    pub reads: u64,
    pub puts: u64,
    pub registered_bytes: u64,
}

impl Field {
    pub fn new(network: Network, ranks: u32, connection: Connection, seed: u64) -> Field {
        Field {
            now_ns: 0,
            order: 0,
            events: BinaryHeap::new(),
            wires: Wires::new(network, ranks),
            random: Random::new(seed),
            seal: TestSeal(seed),
            connection,
            rings: HashMap::new(),
            ring_packets_max: 64,
            ring_bytes_max: 64 << 10,
            ring_ns: 2000,
            descriptors: HashMap::new(),
            regions: HashMap::new(),
            next_region: 1,
            forbid_ppm: 0,
            carried_ns: HashMap::new(),
            epochs: HashMap::new(),
            reads: 0,
            puts: 0,
            registered_bytes: 0,
        }
    }

    pub fn at(&mut self, at_ns: u64, event: Event) {
        self.order += 1;
        self.events.push(Reverse(Entry(at_ns, self.order, event)));
    }

    /// Memory of `bytes` that others may read by its number.
    pub fn region(&mut self, bytes: Vec<u8>) -> Rc<Region> {
        let region = Rc::new(Region { number: self.next_region, bytes: RefCell::new(bytes) });
        self.next_region += 1;
        self.regions.insert(region.number, region.clone());
        region
    }

    /// Sends something over connection number `epoch` between two ranks, whose messages stay in order. `after_ns`: not before that.
    pub fn carry(&mut self, (from, to): (u32, u32), epoch: u32, after_ns: u64, what: Carried) {
        let Connection { latency_ns, jitter_ns, set_up_ns, .. } = self.connection;
        let first_ns = self.now_ns + set_up_ns;
        let jitter_ns = self.random.below(jitter_ns + 1);
        let last_ns = self.carried_ns.entry((from, to)).or_insert(first_ns);
        *last_ns = (*last_ns).max(self.now_ns.max(after_ns) + latency_ns + jitter_ns);
        let at_ns = *last_ns;
        self.at(at_ns, Event::Carried { from, to, what, epoch });
    }

    /// Which connection between two ranks it is by now.
    pub fn epoch(&self, one: u32, other: u32) -> u32 {
        self.epochs.get(&(one.min(other), one.max(other))).copied().unwrap_or(0)
    }

    /// The connection between two ranks is another one from now on.
    pub fn break_connection(&mut self, one: u32, other: u32) {
        *self.epochs.entry((one.min(other), one.max(other))).or_default() += 1;
        self.carried_ns.remove(&(one, other));
        self.carried_ns.remove(&(other, one));
    }

    /// How long it takes to register so much memory.
    pub fn register(&mut self, bytes: u64) -> u64 {
        self.registered_bytes += bytes;
        self.connection.register_ns * bytes.div_ceil(1024)
    }
}
