//! Two devices as one: the first reaches a peer wherever both have it, the second wherever the first does not, or does not answer.
//!
//! - The addresses of the first are rails of their own. Those of the second are spare ([`Path::is_spare`]): a path between two of them is used where there is no
//!   other one, and while no other one answers. So a peer without the first device is reached at once, and one behind a link that has gone down within the time that
//!   it takes to look for other paths.
//! - Datagrams may be longer than the second one's links take: a path is not given up for that, they are carried in several packets.
//! - There may be no second one.

use std::fmt;
use std::mem::MaybeUninit;
use std::os::fd::BorrowedFd;
use std::str::FromStr;

use proto::reliability::{RAILS_MAX, RailConfig, Sent, Taken};

use super::card::NoCard;
use super::device::{
    Arrival, Arrivals, Batch, Candidate, DATAGRAM_BYTES_MAX, DatagramDevice, Offer, Path, ReceiveCounters, SendCounters, SendQueue, Stamp, Trigger,
};
use crate::stores::Stores;

/// Added to the distance of pairs of the second device's addresses.
const FARTHER: u8 = 128;
/// Looks at the first device for each look at the second, while nothing comes there.
const LOOKS_EACH: u32 = 64;
/// Looks at both, after something has come to the second or left from it.
const LOOKS_AFTER: u32 = 4096;

/// An address of either.
#[derive(Clone, PartialEq, Debug)]
pub enum EitherOffer<A, B> {
    First(A),
    /// And which of its device's it is, where it is one of ours.
    Second(B, u8),
}

impl<A: fmt::Display, B: fmt::Display> fmt::Display for EitherOffer<A, B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            EitherOffer::First(offer) => offer.fmt(f),
            EitherOffer::Second(offer, _) => offer.fmt(f),
        }
    }
}

impl<A: FromStr, B: FromStr> FromStr for EitherOffer<A, B> {
    type Err = NoCard;

    fn from_str(text: &str) -> Result<Self, NoCard> {
        let second = |_| text.parse().map(|offer| EitherOffer::Second(offer, 0)).map_err(|_| NoCard);
        text.parse().map(EitherOffer::First).or_else(second)
    }
}

impl<A: Offer, B: Offer> Offer for EitherOffer<A, B> {}

/// A path of either.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum EitherPath<A, B> {
    First(A),
    /// And which of all offers it begins at.
    Second(B, u8),
}

impl<A: Path, B: Path> Path for EitherPath<A, B> {
    fn local(&self) -> u8 {
        match self {
            EitherPath::First(path) => path.local(),
            EitherPath::Second(_, local) => *local,
        }
    }

    fn ends_with(&self, other: &Self) -> bool {
        match (self, other) {
            (EitherPath::First(path), EitherPath::First(other)) => path.ends_with(other),
            (EitherPath::Second(path, _), EitherPath::Second(other, _)) => path.ends_with(other),
            _ => false,
        }
    }

    fn is_spare(&self) -> bool {
        matches!(self, EitherPath::Second(..))
    }
}

/// What one look at either has brought.
#[derive(Debug)]
pub enum EitherArrivals<A, B> {
    First(A),
    /// And how many offers the first device has.
    Second(B, u8),
}

/// Where something came from.
#[derive(Clone, Copy, Debug)]
pub enum EitherSource<A, B> {
    First(A),
    /// And which of its device's offers it came to.
    Second(B, u8),
}

impl<A: Arrivals, B: Arrivals> Arrivals for EitherArrivals<A, B> {
    type Source = EitherSource<A::Source, B::Source>;

    fn count(&self) -> usize {
        match self {
            EitherArrivals::First(arrivals) => arrivals.count(),
            EitherArrivals::Second(arrivals, _) => arrivals.count(),
        }
    }

    fn get(&mut self, index: usize) -> Option<Arrival<'_, Self::Source>> {
        match self {
            EitherArrivals::First(arrivals) => {
                let Arrival { from, local, bytes, stride_bytes, lead_bytes } = arrivals.get(index)?;
                Some(Arrival { from: EitherSource::First(from), local, bytes, stride_bytes, lead_bytes })
            }
            EitherArrivals::Second(arrivals, before) => {
                let Arrival { from, local, bytes, stride_bytes, lead_bytes } = arrivals.get(index)?;
                Some(Arrival { from: EitherSource::Second(from, local), local: *before + local, bytes, stride_bytes, lead_bytes })
            }
        }
    }
}

/// The two as one device.
#[derive(Debug)]
pub struct Beside<A, B> {
    pub first: A,
    second: Option<B>,
    /// How many addresses the first one has.
    before: u8,
    /// How many looks there have been, and in how many more the second one is looked at in any case.
    looks: u32,
    awake: u32,
    /// The second one's turn, once the first has been looked at in this look.
    turn: Option<usize>,
}

impl<A: DatagramDevice, B: DatagramDevice> Beside<A, B> {
    /// At most [`RAILS_MAX`] addresses of both count.
    pub fn new(first: A, second: Option<B>) -> Beside<A, B> {
        let before = first.offers().len() as u8;
        Beside { first, second, before, looks: 0, awake: 0, turn: None }
    }

    fn second(&mut self) -> &mut B {
        self.awake = LOOKS_AFTER;
        self.second.as_mut().expect("a path of the second device is there with it alone")
    }
}

impl<A: DatagramDevice, B: DatagramDevice> DatagramDevice for Beside<A, B> {
    type Offer = EitherOffer<A::Offer, B::Offer>;
    type Path = EitherPath<A::Path, B::Path>;
    type Source = EitherSource<A::Source, B::Source>;
    type Arrivals = EitherArrivals<A::Arrivals, B::Arrivals>;

    const QUEUES: bool = A::QUEUES || B::QUEUES;
    const COPIED_BYTES_MAX: usize = A::COPIED_BYTES_MAX;
    const TRIGGER: Trigger = match (A::TRIGGER, B::TRIGGER) {
        (Trigger::Level, Trigger::Level) => Trigger::Level,
        _ => Trigger::Edge,
    };
    const LOOKS_PER_TIME: u32 = A::LOOKS_PER_TIME;

    fn offers(&self) -> Vec<Self::Offer> {
        let second = self.second.as_ref().map_or(Vec::new(), DatagramDevice::offers).into_iter().zip(0..);
        let all = self.first.offers().into_iter().map(EitherOffer::First).chain(second.map(|(offer, at)| EitherOffer::Second(offer, at)));
        all.take(RAILS_MAX).collect()
    }

    /// Those of the first; at first no datagram is longer than both take.
    fn rails(&self) -> Vec<RailConfig> {
        let mut rails = self.first.rails();
        let second = self.second.as_ref().map_or(Vec::new(), DatagramDevice::rails);
        for rail in &mut rails {
            rail.mtu_bytes = second.iter().map(|other| other.mtu_bytes).fold(rail.mtu_bytes, u32::min);
        }
        rails
    }

    fn longest_bytes(&self) -> u32 {
        self.second.as_ref().map_or(0, DatagramDevice::longest_bytes).max(self.first.longest_bytes())
    }

    fn renew(&mut self) -> bool {
        let second = self.second.as_mut().is_some_and(DatagramDevice::renew);
        self.first.renew() || second
    }

    fn candidate(local: u8, ours: &Self::Offer, theirs: &Self::Offer) -> Option<Candidate<Self::Path>> {
        match (ours, theirs) {
            (EitherOffer::First(ours), EitherOffer::First(theirs)) => {
                let Candidate { path, distance, most_bytes, sure_bytes, in_parts_bytes } = A::candidate(local, ours, theirs)?;
                Some(Candidate { path: EitherPath::First(path), distance, most_bytes, sure_bytes, in_parts_bytes })
            }
            (EitherOffer::Second(ours, at), EitherOffer::Second(theirs, _)) => {
                let Candidate { path, distance, most_bytes, sure_bytes, .. } = B::candidate(*at, ours, theirs)?;
                let (path, distance) = (EitherPath::Second(path, local), distance.saturating_add(FARTHER));
                Some(Candidate { path, distance, most_bytes, sure_bytes, in_parts_bytes: DATAGRAM_BYTES_MAX })
            }
            _ => None,
        }
    }

    fn back(local: u8, from: Self::Source) -> Self::Path {
        match from {
            EitherSource::First(from) => EitherPath::First(A::back(local, from)),
            EitherSource::Second(from, at) => EitherPath::Second(B::back(at, from), local),
        }
    }

    fn cuts_runs(to: &Self::Path) -> bool {
        match to {
            EitherPath::First(path) => A::cuts_runs(path),
            EitherPath::Second(path, _) => B::cuts_runs(path),
        }
    }

    fn pieces_of(to: &Self::Path, each_bytes: usize, count: usize) -> usize {
        match to {
            EitherPath::First(path) => A::pieces_of(path, each_bytes, count),
            EitherPath::Second(path, _) => B::pieces_of(path, each_bytes, count),
        }
    }

    unsafe fn post<'a>(&mut self, to: &Self::Path, queue: SendQueue, header: &[u8], payload: impl Iterator<Item = &'a [u8]> + Clone) -> Sent {
        match to {
            EitherPath::First(path) => self.first.post(path, queue, header, payload),
            EitherPath::Second(path, _) => self.second().post(path, queue, header, payload),
        }
    }

    fn post_copied(&mut self, to: &Self::Path, queue: SendQueue, bytes: usize, write: impl FnOnce(&mut Vec<u8>)) -> Sent {
        match to {
            EitherPath::First(path) => self.first.post_copied(path, queue, bytes, write),
            EitherPath::Second(path, _) => self.second().post_copied(path, queue, bytes, write),
        }
    }

    unsafe fn post_run(&mut self, to: &Self::Path, queue: SendQueue, batch: Batch, write: impl FnMut(&mut [MaybeUninit<u8>], Stores)) -> Taken {
        match to {
            EitherPath::First(path) => self.first.post_run(path, queue, batch, write),
            EitherPath::Second(path, _) => self.second().post_run(path, queue, batch, write),
        }
    }

    fn lends(&self) -> bool {
        self.first.lends() || self.second.as_ref().is_some_and(DatagramDevice::lends)
    }

    fn reclaim(&mut self, mut passed: impl FnMut(Stamp) -> bool) {
        self.first.reclaim(&mut passed);
        if let Some(second) = &mut self.second {
            second.reclaim(passed);
        }
    }

    fn continues(&self, to: &Self::Path, queue: SendQueue, bytes: usize) -> bool {
        match (to, &self.second) {
            (EitherPath::First(path), _) => self.first.continues(path, queue, bytes),
            (EitherPath::Second(path, _), Some(second)) => second.continues(path, queue, bytes),
            _ => false,
        }
    }

    fn flush(&mut self) -> bool {
        let second = self.second.as_mut().is_none_or(DatagramDevice::flush);
        self.first.flush() && second
    }

    fn completions(&mut self, mut each: impl FnMut(SendQueue, u32)) {
        self.first.completions(&mut each);
        if let Some(second) = &mut self.second {
            second.completions(each);
        }
    }

    /// A rail is one of the first device, and what goes to a spare path is queued as one of its.
    fn reset(&mut self, rail: u8) {
        self.first.reset(rail);
        if let Some(second) = &mut self.second {
            second.reset(rail);
        }
    }

    fn receive(&mut self, turn: &mut usize) -> Option<Self::Arrivals> {
        if *turn == 0 {
            self.turn = None;
        }
        if self.turn.is_none() {
            match self.first.receive(turn) {
                Some(arrivals) => return Some(EitherArrivals::First(arrivals)),
                None => {
                    *turn = (*turn).max(1);
                    self.turn = Some(0);
                    self.awake = self.awake.saturating_sub(1);
                    self.looks = self.looks.wrapping_add(1);
                }
            }
        }
        if self.awake == 0 && !self.looks.is_multiple_of(LOOKS_EACH) {
            return None;
        }
        let (second, at) = (self.second.as_mut()?, self.turn.as_mut()?);
        let arrivals = second.receive(at)?;
        self.awake = LOOKS_AFTER;
        Some(EitherArrivals::Second(arrivals, self.before))
    }

    fn recycle(&mut self, arrivals: Self::Arrivals, datagrams: usize) {
        match (arrivals, &mut self.second) {
            (EitherArrivals::First(arrivals), _) => self.first.recycle(arrivals, datagrams),
            (EitherArrivals::Second(arrivals, _), Some(second)) => second.recycle(arrivals, datagrams),
            (EitherArrivals::Second(..), None) => {}
        }
    }

    fn sources<'a>(&'a self, mut each: impl FnMut(BorrowedFd<'a>, bool)) {
        self.first.sources(&mut each);
        if let Some(second) = &self.second {
            second.sources(each);
        }
    }

    /// Whoever wakes looks at both.
    fn arm(&mut self) -> bool {
        self.awake = LOOKS_AFTER;
        let second = match &mut self.second {
            Some(second) if B::TRIGGER == Trigger::Edge => second.arm(),
            _ => true,
        };
        (A::TRIGGER == Trigger::Level || self.first.arm()) && second
    }

    fn send_counters(&self) -> SendCounters {
        self.first.send_counters() + self.second.as_ref().map_or(SendCounters::default(), DatagramDevice::send_counters)
    }

    fn receive_counters(&self) -> ReceiveCounters {
        self.first.receive_counters() + self.second.as_ref().map_or(ReceiveCounters::default(), DatagramDevice::receive_counters)
    }

    fn footprint(&self) -> (usize, usize) {
        let (one, other) = (self.first.footprint(), self.second.as_ref().map_or((0, 0), DatagramDevice::footprint));
        (one.0 + other.0, one.1 + other.1)
    }
}
