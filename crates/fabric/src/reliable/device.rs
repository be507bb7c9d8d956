//! What a datagram device is: sockets, or a queue pair, and nothing of reliability, of keys, of peers.

use std::fmt;
use std::mem::MaybeUninit;
use std::ops::Add;
use std::os::fd::BorrowedFd;
use std::str::FromStr;

use proto::reliability::wire::{ENVELOPE_BYTES_MAX, HEADER_BYTES, MESSAGE_BYTES_MAX};
use proto::reliability::{PeerId, RailConfig, Sent, Taken, VFRAG_BYTES};

use crate::stores::Stores;

/// Longest datagram worth sending: half a VFRAG with all headers. More would cut VFRAGs into one long and one tiny segment.
pub const DATAGRAM_BYTES_MAX: u32 = VFRAG_BYTES / 2 + (HEADER_BYTES + MESSAGE_BYTES_MAX + ENVELOPE_BYTES_MAX) as u32;
/// Descriptors that a device may be slept on, at most.
pub const SOURCES_MAX: usize = 64;

/// One address of this process, as others are told of it. The text has no spaces and no semicolons, and at most 150 bytes; what comes from others is
/// checked when it is parsed.
pub trait Offer: Clone + PartialEq + fmt::Debug + fmt::Display + FromStr {
    /// Whether a text is an address of a device of another kind, which means nothing to this one.
    fn is_of_other_kind(text: &str) -> bool {
        let _ = text;
        false
    }
}

/// From one of this process's addresses to one of a peer's.
pub trait Path: Copy + Eq + fmt::Debug {
    /// Which of [`DatagramDevice::offers`] it begins at.
    fn local(&self) -> u8;
    /// Whether it ends at the same address as another one.
    fn ends_with(&self, other: &Self) -> bool;
    /// It is used only while no other path to its peer answers.
    fn is_spare(&self) -> bool {
        false
    }
}

/// A pair of addresses that may be a path.
#[derive(Clone, Copy, Debug)]
pub struct Candidate<P> {
    pub path: P,
    /// The likeliest pairs have the least; 0 to 255, without a unit.
    pub distance: u8,
    /// Longest datagram that both links take, and that surely passes between them, bytes.
    pub most_bytes: u32,
    pub sure_bytes: u32,
    /// Longest datagram that the links would carry in several packets, which costs more than shorter ones, bytes; at least `most_bytes`.
    pub in_parts_bytes: u32,
}

/// Where a datagram is queued, and its local completion told of: one of the reliability layer's own rails and sending endpoints.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SendQueue {
    pub rail: u8,
    pub endpoint: u8,
}

impl SendQueue {
    /// Of a datagram whose local completion nobody waits for.
    pub const UNTOLD: SendQueue = SendQueue { rail: u8::MAX, endpoint: 0 };
}

/// Of which peer's rail a datagram is, and when it was made, as [`wire::sent_us`](proto::reliability::wire::sent_us) says.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Stamp {
    pub peer: PeerId,
    pub rail: u8,
    pub sent_us: u32,
}

/// Datagrams of one length that are made and posted together.
#[derive(Clone, Copy, Debug)]
pub struct Batch {
    pub stamp: Stamp,
    pub each_bytes: usize,
    pub count: usize,
    /// By which stores they are best made, where their memory is read where it lies.
    pub stores: Stores,
}

/// How the descriptors of a device wake a sleeper.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Trigger {
    /// While something is there (sockets).
    Level,
    /// Once for the next thing that comes after [`DatagramDevice::arm`] (completion channels).
    Edge,
}

/// Datagrams of one sender that have arrived in one buffer: each lies `lead_bytes` after the end of the one before, or after the start. Those bytes are the
/// device's (40 with an InfiniBand GRH).
#[derive(Debug)]
pub struct Arrival<'a, S> {
    pub from: S,
    /// Which of [`DatagramDevice::offers`] they came to.
    pub local: u8,
    pub bytes: &'a mut [u8],
    /// From the start of one datagram's lead to that of the next, bytes; the last may be shorter. At least 1.
    pub stride_bytes: usize,
    pub lead_bytes: usize,
}

/// What one look has brought. The buffers are the caller's until [`DatagramDevice::recycle`].
pub trait Arrivals {
    /// Where something came from.
    type Source: Copy;
    fn count(&self) -> usize;
    /// The buffer `index`; `None` where it holds nothing sound.
    fn get(&mut self, index: usize) -> Option<Arrival<'_, Self::Source>>;
}

/// What became of the datagrams that were sent.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct SendCounters {
    pub datagrams: u64,
    pub calls: u64,
    /// Refused by the system for good, as when there is no way to an address: they count as lost.
    pub dropped: u64,
    /// Datagrams that left from the memory they were made in, without being copied into the system's.
    pub spliced: u64,
    /// How often the device was full.
    pub full: u64,
}

impl Add for SendCounters {
    type Output = SendCounters;

    fn add(self, other: SendCounters) -> SendCounters {
        SendCounters {
            datagrams: self.datagrams + other.datagrams,
            calls: self.calls + other.calls,
            dropped: self.dropped + other.dropped,
            spliced: self.spliced + other.spliced,
            full: self.full + other.full,
        }
    }
}

/// What arrived, by what became of it before anybody looked into it.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct ReceiveCounters {
    pub datagrams: u64,
    /// Calls that brought something, and calls that brought nothing.
    pub calls: u64,
    pub empty_calls: u64,
    /// Longer than any of ours.
    pub cut: u64,
}

impl Add for ReceiveCounters {
    type Output = ReceiveCounters;

    fn add(self, other: ReceiveCounters) -> ReceiveCounters {
        ReceiveCounters {
            datagrams: self.datagrams + other.datagrams,
            calls: self.calls + other.calls,
            empty_calls: self.empty_calls + other.empty_calls,
            cut: self.cut + other.cut,
        }
    }
}

/// Sends and receives datagrams that may be lost, repeated, reordered and damaged. One thread at a time drives it.
///
/// What a datagram is gathered from stays in use after [`DatagramDevice::post`]: where that answered [`Sent::Done`], until the next
/// [`DatagramDevice::flush`] has returned; where it answered [`Sent::Queued`], until [`DatagramDevice::completions`] has told of it or
/// [`DatagramDevice::reset`] has returned. Nothing is in use once it has been dropped.
pub trait DatagramDevice: fmt::Debug {
    type Offer: Offer;
    type Path: Path;
    type Source: Copy;
    type Arrivals: Arrivals<Source = Self::Source>;

    /// Posts that are taken answer [`Sent::Queued`]; otherwise [`Sent::Done`].
    const QUEUES: bool;
    /// Payloads up to so many bytes cost less when they are copied behind their headers.
    const COPIED_BYTES_MAX: usize;
    const TRIGGER: Trigger;
    /// Looks without success for each look at the clock: few where a look takes longer than the clock does.
    const LOOKS_PER_TIME: u32 = 4;

    /// This process's addresses, at most `proto::reliability::RAILS_MAX`: those that are rails of their own first.
    fn offers(&self) -> Vec<Self::Offer>;
    /// What the reliability layer has to know of the addresses that are rails of their own. Longer datagrams are used once they have been found to pass.
    fn rails(&self) -> Vec<RailConfig>;
    /// Length of the longest datagram that may ever leave, bytes.
    fn longest_bytes(&self) -> u32;
    /// Takes up addresses that this process has got since. Whether there are any; asked about once a second.
    fn renew(&mut self) -> bool;
    /// Whether datagrams may pass from `ours`, which is number `local` of [`DatagramDevice::offers`], to `theirs`.
    fn candidate(local: u8, ours: &Self::Offer, theirs: &Self::Offer) -> Option<Candidate<Self::Path>>;
    /// Back to where something came from.
    fn back(local: u8, from: Self::Source) -> Self::Path;

    /// Whether a run of datagrams of one length costs less when it is posted as one long piece of memory ([`DatagramDevice::post_run`]).
    fn cuts_runs(to: &Self::Path) -> bool;
    /// In how many pieces a run of `count` datagrams of `each_bytes` leaves at the least.
    fn pieces_of(to: &Self::Path, each_bytes: usize, count: usize) -> usize {
        let _ = (to, each_bytes, count);
        1
    }

    /// Posts a datagram: `header`, then `payload`. [`Sent::Busy`]: not taken, until [`DatagramDevice::flush`] answers true.
    ///
    /// # Safety
    /// `payload` must stay readable as long as it is in use; see above.
    unsafe fn post<'a>(&mut self, to: &Self::Path, queue: SendQueue, header: &[u8], payload: impl Iterator<Item = &'a [u8]> + Clone) -> Sent;
    /// Posts a datagram of `bytes` that `write` appends to memory of the device.
    fn post_copied(&mut self, to: &Self::Path, queue: SendQueue, bytes: usize, write: impl FnOnce(&mut Vec<u8>)) -> Sent;
    /// Posts a batch of datagrams, which `write` makes one after the other in memory of the device for one or several of them, by the stores
    /// that suit it. How many were taken. To be called where [`DatagramDevice::cuts_runs`].
    ///
    /// # Safety
    /// `write` must initialize all that it is given.
    unsafe fn post_run(&mut self, to: &Self::Path, queue: SendQueue, batch: Batch, write: impl FnMut(&mut [MaybeUninit<u8>], Stores)) -> Taken;
    /// Whether datagrams of runs may lie, on their way, in the memory they were made in, so that [`DatagramDevice::reclaim`] is to be called.
    fn lends(&self) -> bool {
        false
    }
    /// Uses the memory of runs again of whose stamps `passed` says that they are not expected to arrive any more. One that arrives nevertheless is damaged.
    fn reclaim(&mut self, passed: impl FnMut(Stamp) -> bool) {
        let _ = passed;
    }
    /// Whether a datagram of `bytes` would join others that wait.
    fn continues(&self, to: &Self::Path, queue: SendQueue, bytes: usize) -> bool;
    /// Lets everything leave. True when it takes more.
    fn flush(&mut self) -> bool;
    /// Tells `each` of queued datagrams that have left the memory they were gathered from: how many more of a queue, in the order of their posting on that queue,
    /// whichever of the device's queues they went through.
    fn completions(&mut self, each: impl FnMut(SendQueue, u32));
    /// Makes the endpoints of a rail anew: what they had queued is gone, its completions with it, and nothing is in use any more.
    fn reset(&mut self, rail: u8);

    /// Looks for what has arrived. One look is: calls with the same `turn`, 0 at first, until `None`.
    fn receive(&mut self, turn: &mut usize) -> Option<Self::Arrivals>;
    /// Takes the buffers back, in which `datagrams` were.
    fn recycle(&mut self, arrivals: Self::Arrivals, datagrams: usize);

    /// Tells `each` of the descriptors to sleep on, at most [`SOURCES_MAX`], and whether for room to send as well.
    fn sources<'a>(&'a self, each: impl FnMut(BorrowedFd<'a>, bool));
    /// With [`Trigger::Edge`]: the next thing to come wakes a sleeper. False where something has come since the last look: nobody may sleep before the next.
    fn arm(&mut self) -> bool;

    fn send_counters(&self) -> SendCounters;
    fn receive_counters(&self) -> ReceiveCounters;
    /// Memory that is registered for datagrams, bytes, and queue pairs: of a device that has such.
    fn footprint(&self) -> (usize, usize) {
        (0, 0)
    }
}
