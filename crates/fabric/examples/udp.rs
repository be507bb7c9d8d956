//! Measures the UDP fabric between two processes: `udp NUMBER FOLDER [NET [auth|crc|encrypt [BYTES...]]]`, once with number 0 and once with 1.
//! They find each other through files in the folder, which both must see; NET narrows the addresses. Number 0 prints one line per figure;
//! with BYTES, only the bandwidth of messages of these lengths. Windows and buffers are those of `bench/programs/stream.c`.

use std::collections::VecDeque;
use std::path::Path;
use std::time::{Duration, Instant};

use fabric::reliable::{JobKey, Program, Reliable, Sink};
use fabric::udp::{Setup, Udp};
use proto::reliability::{Delivery, Failure, PeerId, Slice};

struct Memory {
    card: Option<String>,
    out: Vec<u8>,
    into: Vec<u8>,
    releases: VecDeque<u64>,
    requests: VecDeque<(u32, u64, u64)>,
    /// Bytes from the buffer of one message of a window to that of the next.
    stride: usize,
    window: u64,
    completed: u64,
    arrived: u64,
}

impl Memory {
    /// Where the buffer of a message begins, by its number.
    fn start(&self, number: u64) -> usize {
        (number % self.window) as usize * self.stride
    }
}

// SAFETY: both buffers live and keep their place as long as this.
unsafe impl Program for Memory {
    fn gather(&self, slice: &Slice, out: &mut Sink) {
        let start = self.start(slice.send) + slice.offset_bytes as usize;
        let piece = &self.out[start..][..slice.length_bytes as usize];
        // SAFETY: as above.
        unsafe { out.push(piece.as_ptr(), piece.len()) };
    }
    fn place(&mut self, receive: u64, offset_bytes: u64, payload: &[u8], check: &dyn Fn(&[u8]) -> bool) -> bool {
        let start = self.start(receive) + offset_bytes as usize;
        let to = &mut self.into[start..][..payload.len()];
        to.copy_from_slice(payload);
        check(to)
    }
    fn deliver(&mut self, _peer: PeerId, delivery: Delivery) {
        match delivery {
            Delivery::Eager { payload, .. } => {
                self.into[..payload.len()].copy_from_slice(payload);
                self.arrived += 1;
                self.releases.push_back(payload.len() as u64);
            }
            Delivery::Request { envelope, transfer, bytes } => {
                let number = u64::from_le_bytes(*envelope.first_chunk().expect("an envelope of send()"));
                self.requests.push_back((transfer, bytes, number));
            }
            _ => {}
        }
    }
    fn complete(&mut self, _send: u64, _result: Result<(), Failure>) {
        self.completed += 1;
    }
    fn received(&mut self, _receive: u64, _result: Result<(), Failure>) {
        self.arrived += 1;
    }
    fn card(&mut self, _peer: PeerId) -> Option<String> {
        self.card.clone()
    }
    fn peer_failed(&mut self, peer: PeerId, _in_use: &[u64]) {
        eprintln!("process {peer} does not answer");
        std::process::exit(1);
    }
}

struct Side {
    node: Reliable<Udp>,
    memory: Memory,
    peer: PeerId,
    sent: u64,
    wanted: u64,
    empty: u32,
}

/// Messages of a window, at most, and what their buffers take together.
const WINDOW: usize = 64;
const BUFFERS_BYTES: usize = 64 << 20;
/// Measured with messages of one length, at least.
const STREAMED_BYTES: usize = 1 << 30;

/// Looks without success before giving the core away.
const SPINS: u32 = 30;

impl Side {
    fn send(&mut self, bytes: usize) {
        let mut envelope = [0; 32];
        envelope[..8].copy_from_slice(&self.sent.to_le_bytes());
        let (now_ns, requests) = self.node.requests();
        requests.send(now_ns, self.peer, &envelope, self.sent, bytes as u64, false).expect("room for a message");
        self.sent += 1;
    }

    fn step(&mut self) {
        let came = self.node.poll(&mut self.memory);
        while let Some(bytes) = self.memory.releases.pop_front() {
            let (now_ns, requests) = self.node.requests();
            requests.release(now_ns, self.peer, bytes);
        }
        while let Some((transfer, bytes, number)) = self.memory.requests.pop_front() {
            let (now_ns, requests) = self.node.requests();
            requests.receive(now_ns, self.peer, transfer, bytes, number).expect("room for a transfer");
            requests.release(now_ns, self.peer, 0);
        }
        self.empty = if came > 0 { 0 } else { self.empty + 1 };
        if self.empty > SPINS {
            self.node.wait(Some(1_000_000));
        }
    }

    fn flush(&mut self) {
        let (now_ns, _) = self.node.requests();
        self.node.flush(now_ns, &mut self.memory);
    }

    fn await_messages(&mut self, count: u64) {
        self.wanted += count;
        while self.memory.arrived < self.wanted {
            self.step();
        }
    }

    fn await_sends(&mut self) {
        while self.memory.completed < self.sent {
            self.step();
        }
    }

    /// Half a round trip, ns: the median over many.
    fn latency_ns(&mut self, first: bool, bytes: usize, rounds: usize) -> f64 {
        let mut times = Vec::new();
        for _ in 0..rounds {
            let start = Instant::now();
            if first {
                self.send(bytes);
                self.flush();
                self.await_messages(1);
            } else {
                self.await_messages(1);
                self.send(bytes);
                self.flush();
            }
            times.push(start.elapsed().as_nanos() as f64 / 2.0);
        }
        self.await_sends();
        times.sort_by(f64::total_cmp);
        times[rounds / 2]
    }

    /// ns per message, with `window` at a time and a short answer after each window: the median.
    fn stream_ns(&mut self, first: bool, bytes: usize, window: usize, rounds: usize) -> f64 {
        (self.memory.stride, self.memory.window) = (bytes, window as u64);
        let mut times = Vec::new();
        for _ in 0..rounds {
            let start = Instant::now();
            if first {
                (0..window).for_each(|_| self.send(bytes));
                self.await_messages(1);
            } else {
                self.await_messages(window as u64);
                self.send(0);
                self.flush();
            }
            self.await_sends();
            times.push(start.elapsed().as_nanos() as f64 / window as f64);
        }
        times.sort_by(f64::total_cmp);
        times[rounds / 2]
    }
}

fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let [number, folder, rest @ ..] = &args[..] else { panic!("udp NUMBER FOLDER [NET [MODE]]") };
    let me: u32 = number.parse().expect("0 or 1");
    let filter = rest.first().map(|net| net.parse().expect("a network")).unwrap_or_default();
    let protection = rest.get(1).map(|mode| mode.parse().expect("a mode")).unwrap_or_default();
    let setup = Setup { filter, ..Setup::default() };
    let node = Reliable::over(Udp::open(&setup).expect("sockets"), me, me + 1, &JobKey::new([7; 32]), protection, |_| {}).expect("sockets");
    let folder = Path::new(folder);
    let (unfinished, mine) = (folder.join(format!("new{me}")), folder.join(format!("card{me}")));
    std::fs::write(&unfinished, node.card()).expect("a folder that can be written to");
    std::fs::rename(&unfinished, &mine).expect("a folder that can be written to");
    let theirs = folder.join(format!("card{}", 1 - me));
    let card = loop {
        match std::fs::read_to_string(&theirs) {
            Ok(text) => break text,
            Err(_) => std::thread::sleep(Duration::from_millis(1)),
        }
    };
    let memory = Memory {
        card: Some(card.clone()),
        out: vec![1; BUFFERS_BYTES],
        into: vec![2; BUFFERS_BYTES],
        releases: VecDeque::new(),
        requests: VecDeque::new(),
        stride: 0,
        window: 1,
        completed: 0,
        arrived: 0,
    };
    let mut side = Side { node, memory, peer: 1 - me, sent: 0, wanted: 0, empty: 0 };
    side.node.connect(1 - me, &card).expect("a card");
    let first = me == 0;
    let lengths: Vec<usize> = rest.iter().skip(2).map(|bytes| bytes.parse().expect("a length")).collect();
    if lengths.is_empty() {
        side.latency_ns(first, 8, 300);
        let latency_ns = side.latency_ns(first, 8, 5000);
        side.stream_ns(first, 8, 64, 50);
        let message_ns = side.stream_ns(first, 8, 64, 500);
        if first {
            println!("latency_us 8 {:.2}", latency_ns / 1000.0);
            println!("rate_per_s 8 {:.0}", 1e9 / message_ns);
        }
    }
    let usual = [64 << 10, 256 << 10, 1 << 20, 4 << 20];
    for &bytes in if lengths.is_empty() { &usual[..] } else { &lengths } {
        let window = (BUFFERS_BYTES / bytes).clamp(1, WINDOW);
        let rounds = (STREAMED_BYTES / (bytes * window)).max(5);
        side.stream_ns(first, bytes, window, 2);
        let ns = side.stream_ns(first, bytes, window, rounds);
        if first {
            println!("bandwidth_mb_s {bytes} {:.0}", bytes as f64 / ns * 1000.0);
        }
    }
    eprintln!("{:?}\n{:?}", side.node.counters(), side.node.endpoint().counters);
    // The other side's last acknowledgement may want an answer.
    let end = Instant::now() + Duration::from_millis(200);
    while Instant::now() < end {
        side.step();
    }
}
