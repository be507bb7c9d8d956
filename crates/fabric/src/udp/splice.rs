//! Runs of datagrams that leave from the memory they are made in: its pages are given to the kernel (vmsplice(2), splice(2)), which would otherwise
//! copy them. That copy takes more time than all else of a long run's way out, and what does not lie in the kernel's memory need not be brought there.
//!
//! What the kernel has been given it reads as late as when the receiver takes it in. So memory is used again once its datagrams have been
//! acknowledged, or are not expected to arrive any more ([`DatagramDevice::reclaim`](crate::reliable::DatagramDevice::reclaim)). One that arrives
//! still later is damaged, and refused by its tag, as a datagram that was damaged on its way.

use std::mem::MaybeUninit;
use std::net::UdpSocket;
use std::sync::OnceLock;

use super::sys::{self, Pages, Pipe};
use crate::reliable::Stamp;
use crate::stores::Stores;

/// Shorter runs are copied: two calls, and the care for each page, take longer than that.
pub const LEAST_BYTES: usize = 8 << 10;
/// A run: what one group takes, in as many whole pages as one call gives away.
const RUN_BYTES: usize = 1 << 16;
/// Runs that are on their way at the same time from one socket's memory, at most; others are copied.
const SLOTS_MAX: usize = 32;
/// Runs in a row that leave one way before it is judged again which one is faster, the first of them not counted, in which memory is still as the other
/// way has left it.
const BLOCK: u32 = 24;
const BLOCK_FIRST: u32 = 8;
/// Blocks of the faster way for each of the other.
const TRIED_EACH: u32 = 16;
/// Failures after which it is not tried any more.
const FAILURES_MAX: u32 = 4;

#[derive(Debug)]
enum Use {
    Free,
    /// A run is made there, or waits to leave.
    Open(Stamp),
    /// The kernel has it.
    Lent(Stamp),
}

#[derive(Debug)]
struct Slot {
    used: Use,
    /// By which stores the run is made.
    stores: Stores,
    /// Time that making the run has taken, ns.
    made_ns: u64,
}

/// Copying against splicing: what a run takes from its making until it has left.
#[derive(Clone, Copy, Default, Debug)]
struct Ways {
    /// ns for each KiB, smoothed; 0 before any has been counted.
    took: [u32; 2],
    splices: bool,
    /// Runs that have left this way since the last judgement, and judgements.
    runs: u32,
    judged: u32,
}

impl Ways {
    fn took(&mut self, spliced: bool, ns: u64, bytes: usize) {
        if spliced != self.splices {
            // It had to be copied.
            return;
        }
        self.runs += 1;
        if self.runs > BLOCK_FIRST {
            let ns = (ns * 1024 / bytes.max(1) as u64).clamp(1, u32::MAX as u64 / 16) as u32;
            let took = &mut self.took[spliced as usize];
            // One that was interrupted says little.
            *took = if *took == 0 { ns } else { *took - *took / 16 + ns.min(2 * *took) / 16 };
        }
        if self.runs == BLOCK {
            (self.runs, self.judged) = (0, self.judged.wrapping_add(1));
            let [copied, spliced] = self.took;
            self.splices = match (copied, spliced) {
                (0, _) => false,
                (_, 0) => true,
                _ => (spliced < copied) != self.judged.is_multiple_of(TRIED_EACH),
            };
        }
    }
}

/// The memory that runs are made in, and how they have left.
#[derive(Debug)]
pub struct Slots {
    /// All of it, once any is used: [`RUN_BYTES`] for each.
    pages: Option<Pages>,
    slots: Vec<Slot>,
    lent: usize,
    pipe: Option<Pipe>,
    /// By the length of the run: from [`LEAST_BYTES`], and from twice and four times that on.
    ways: [Ways; 3],
    failures: u32,
}

/// Whether this system splices datagrams, each with what it was given: found out once.
fn works() -> bool {
    static WORKS: OnceLock<bool> = OnceLock::new();
    *WORKS.get_or_init(|| sys::splices_datagrams().unwrap_or(false))
}

impl Slots {
    pub fn new() -> Slots {
        Slots { pages: None, slots: Vec::new(), lent: 0, pipe: None, ways: [Ways::default(); 3], failures: 0 }
    }

    /// Memory for a run that is made by these stores. `None` where all of it is in use, or runs cannot be spliced.
    pub fn open(&mut self, stamp: Stamp, stores: Stores) -> Option<usize> {
        if self.failures >= FAILURES_MAX {
            return None;
        }
        let free = self.slots.iter().position(|slot| matches!(slot.used, Use::Free));
        let at = match free {
            Some(at) => at,
            None if self.slots.len() == SLOTS_MAX || !works() => return None,
            None => {
                if self.pages.is_none() {
                    self.pages = Some(Pages::new(SLOTS_MAX * RUN_BYTES)?);
                }
                self.slots.push(Slot { used: Use::Free, stores, made_ns: 0 });
                self.slots.len() - 1
            }
        };
        let slot = &mut self.slots[at];
        (slot.used, slot.stores, slot.made_ns) = (Use::Open(stamp), stores, 0);
        Some(at)
    }

    /// What joins an open run is made later: the whole has passed when that has.
    pub fn join(&mut self, at: usize, stamp: Stamp) {
        debug_assert!(matches!(self.slots[at].used, Use::Open(_)), "no run is made there");
        self.slots[at].used = Use::Open(stamp);
    }

    /// The memory of an open run, which begins there.
    pub fn room(&mut self, at: usize) -> &mut [MaybeUninit<u8>] {
        debug_assert!(matches!(self.slots[at].used, Use::Open(_)), "no run is made there");
        self.pages.as_mut().expect("a run is made there").part(at * RUN_BYTES, RUN_BYTES)
    }

    /// A run that has not been sent from there need not stay.
    pub fn end(&mut self, at: usize) {
        if let Use::Open(_) = self.slots[at].used {
            self.slots[at].used = Use::Free;
        }
    }

    /// By which stores an open run is made.
    pub fn stores(&self, at: usize) -> Stores {
        self.slots[at].stores
    }

    /// Whether an open run of `bytes` is better spliced than copied. One that has gone past the caches is: a copy would bring it back.
    pub fn splices(&self, at: usize, bytes: usize) -> bool {
        self.failures < FAILURES_MAX && (self.slots[at].stores == Stores::Streaming || self.ways[class(bytes)].splices)
    }

    /// Making a part of an open run has taken so long.
    pub fn made(&mut self, at: usize, ns: u64) {
        self.slots[at].made_ns += ns;
    }

    /// How long the call took that sent a run of `bytes`.
    pub fn took(&mut self, at: usize, spliced: bool, ns: u64, bytes: usize) {
        if self.slots[at].stores == Stores::Ordinary {
            self.ways[class(bytes)].took(spliced, self.slots[at].made_ns + ns, bytes);
        }
    }

    /// Sends the first `bytes` of an open run through a connected socket, which cuts them.
    ///
    /// # Errors
    /// The system's; the run is still there then, and has not left.
    pub fn send(&mut self, socket: &UdpSocket, at: usize, bytes: usize) -> Result<(), i32> {
        let slot = &mut self.slots[at];
        let Use::Open(stamp) = slot.used else { unreachable!("only an open run leaves") };
        if self.pipe.is_none() {
            self.pipe = Some(Pipe::new()?);
        }
        let (pipe, pages) = (self.pipe.as_ref().expect("just made"), self.pages.as_mut().expect("a run is made there"));
        let sent = pipe.send(pages, at * RUN_BYTES, bytes, socket);
        match sent {
            Ok(()) => {
                slot.used = Use::Lent(stamp);
                (self.lent, self.failures) = (self.lent + 1, 0);
            }
            Err(errno) => {
                // What is in it would leave with the next run.
                self.pipe = None;
                self.failures += (errno != libc::EAGAIN) as u32;
            }
        }
        sent
    }

    pub fn lends(&self) -> bool {
        self.lent > 0
    }

    pub fn reclaim(&mut self, mut passed: impl FnMut(Stamp) -> bool) {
        for slot in &mut self.slots {
            if let Use::Lent(stamp) = slot.used
                && passed(stamp)
            {
                slot.used = Use::Free;
                self.lent -= 1;
            }
        }
    }
}

fn class(bytes: usize) -> usize {
    (bytes / LEAST_BYTES).max(1).ilog2().min(2) as usize
}
