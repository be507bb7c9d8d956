//! What a process keeps for each peer that it has talked to, counted at the allocator.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::time::{Duration, Instant};

use fabric::reliable::{JobKey, Program, Protection, Reliable, Sink};
use fabric::udp::{Setup, Udp};
use proto::reliability::{Delivery, Failure, PeerId, Slice};

thread_local! {
    static COUNTED: Cell<bool> = const { Cell::new(false) };
    static HELD_BYTES: Cell<i64> = const { Cell::new(0) };
}

/// The system's, and counts while it is told to.
struct Counting;

fn count(bytes: i64) {
    if COUNTED.get() {
        HELD_BYTES.set(HELD_BYTES.get() + bytes);
    }
}

// SAFETY: all is passed on to the system's allocator.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(layout.size() as i64);
        System.alloc(layout)
    }
    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        count(-(layout.size() as i64));
        System.dealloc(at, layout);
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

#[derive(Default)]
struct Memory {
    arrived: Vec<PeerId>,
    released: Vec<PeerId>,
    complete: u64,
}

// SAFETY: no send has a payload, and no receive is placed.
unsafe impl Program for Memory {
    fn gather(&self, _: &Slice, _: &mut Sink) {}
    fn place(&mut self, _: u64, _: u64, _: &[u8], _: &dyn Fn(&[u8]) -> bool) -> bool {
        false
    }
    fn deliver(&mut self, peer: PeerId, _: Delivery) {
        self.arrived.push(peer);
    }
    fn complete(&mut self, _: u64, _: Result<(), Failure>) {
        self.complete += 1;
    }
    fn received(&mut self, _: u64, _: Result<(), Failure>) {}
    fn peer_failed(&mut self, _: PeerId, _: &[u64]) {}
    fn card(&mut self, _: PeerId) -> Option<String> {
        None
    }
}

const PEERS: u32 = 512;
/// Most private memory of a quiet peer, bytes.
const PEER_BYTES_MAX: i64 = 512;

fn open(me: PeerId) -> Reliable<Udp> {
    let setup = Setup { filter: "127.0.0.1".parse().unwrap(), buffer_bytes: 1 << 16, ..Setup::default() };
    Reliable::over(Udp::open(&setup).unwrap(), me, 1, &JobKey::new([5; 32]), Protection::Auth, |_| {}).unwrap()
}

fn message(node: &mut Reliable<Udp>, peer: PeerId) {
    let (now_ns, requests) = node.requests();
    requests.send(now_ns, peer, b"hello", 0, 0, false).unwrap();
}

#[test]
fn peers_cost_little() {
    let (mut node, mut memory) = (open(0), Memory::default());
    memory.arrived.reserve(PEERS as usize);
    memory.released.reserve(PEERS as usize);
    for peer in 1..=PEERS {
        let (mut other, mut others) = (open(peer), Memory::default());
        other.connect(0, &node.card()).unwrap();
        message(&mut other, 0);
        COUNTED.set(true);
        node.connect(peer, &other.card()).unwrap();
        message(&mut node, peer);
        COUNTED.set(false);
        let end = Instant::now() + Duration::from_secs(20);
        while memory.complete < peer as u64 || others.complete < 1 || memory.arrived.len() < peer as usize {
            COUNTED.set(true);
            node.poll(&mut memory);
            COUNTED.set(false);
            other.poll(&mut others);
            assert!(Instant::now() < end, "peer {peer} does not answer");
        }
        COUNTED.set(true);
        let (now_ns, requests) = node.requests();
        requests.release(now_ns, peer, 0);
        COUNTED.set(false);
    }
    // Until what serves traffic under way has been given back.
    let idle_ns = 20 * node.endpoint().config().idle_ns;
    let end = Instant::now() + Duration::from_nanos(idle_ns);
    while Instant::now() < end {
        COUNTED.set(true);
        node.poll(&mut memory);
        node.wait(Some(10_000_000));
        COUNTED.set(false);
    }
    let each = HELD_BYTES.get() / PEERS as i64;
    println!("{each} bytes for each of {PEERS} peers");
    assert!((1..PEER_BYTES_MAX).contains(&each), "{each} bytes");
}
