//! What do two connected VIs share? Each side has a segment: the ring into it, its receive descriptors, and how far it has come.

use crate::handed::{ENTRIES, Giver, Taker};
use crate::region::Attributes;
use crate::segment::{Locator, Segment, SegmentProvider};
use crate::status::{Refusal, Result};
use crate::sys::{Line, Map, NoBulk, One, RingReceiver, RingSender, Shared, random_word};
use fabric::shm::ring::{Consumer, Producer};
use std::sync::Arc;
use std::sync::atomic::Ordering;

const MAGIC: u64 = u64::from_le_bytes(*b"whvipl\x01C");
const POSTED_AT: usize = 64;
const PROCESSED_AT: usize = 128;
const RETURNS_AT: usize = 192;
const SLOTS_AT: usize = 4096;
/// Twice what receive queues hold, so that messages always find room beside other packets.
const SLOTS: usize = 2 * ENTRIES;
const ENTRIES_AT: usize = SLOTS_AT + SLOTS * 64;
const BYTES: u64 = (ENTRIES_AT + ENTRIES * 512) as u64;

/// What a line of the ring carries, bits 8..16 of its first word.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum Kind {
    /// A message in the line itself.
    Inline = 1,
    /// A message that lies where the receive descriptor says.
    Placed = 2,
    /// A message that is longer than its receive descriptor.
    TooLong = 3,
    /// Bytes were written to a shadow segment: which.
    Written = 4,
    /// As `Written`, or with nothing to copy; takes a receive descriptor.
    WrittenImmediate = 5,
    /// Asks for bytes to be copied to a shadow segment.
    Read = 6,
    /// They are there.
    ReadDone = 7,
    /// The connection is over, and why.
    Over = 8,
}

pub const IMMEDIATE: u64 = 1 << 16;

impl Kind {
    #[inline]
    pub fn of(head: u64) -> Option<Kind> {
        use Kind::*;
        Some(match (head >> 8) as u8 {
            1 => Inline,
            2 => Placed,
            3 => TooLong,
            4 => Written,
            5 => WrittenImmediate,
            6 => Read,
            7 => ReadDone,
            8 => Over,
            _ => return None,
        })
    }
}

/// A line's first word: what it carries, and how many receive descriptors its sender has posted.
#[inline]
pub fn head(kind: Kind, immediate: bool, posted: u64) -> u64 {
    (kind as u64) << 8 | if immediate { IMMEDIATE } else { 0 } | posted << 32
}

/// This side's segment.
pub struct Channel {
    pub segment: Segment,
    pub nonce: u64,
}

impl Channel {
    pub fn new(provider: &dyn SegmentProvider, attributes: Attributes) -> Result<Channel> {
        let segment = provider.create(BYTES)?;
        let nonce = random_word()?;
        let head: One<Line> = segment.map.at(0).ok_or(Refusal::Resource)?;
        head.0[1].store(nonce, Ordering::Relaxed);
        head.0[2].store(attributes.bits(), Ordering::Relaxed);
        head.0[0].store(MAGIC, Ordering::Release);
        Ok(Channel { segment, nonce })
    }

    /// The receiving half.
    pub fn receiver(&self) -> Result<(RingReceiver, OwnGiver, One<Line>)> {
        let map = &self.segment.map;
        let parts = (|| {
            let ring = Consumer::new(map.slice(SLOTS_AT, SLOTS)?, map.at(RETURNS_AT)?, NoBulk, 1);
            Some((ring, Giver::new(map.slice(ENTRIES_AT, ENTRIES)?, map.at(POSTED_AT)?), map.at(PROCESSED_AT)?))
        })();
        parts.ok_or(Refusal::Resource)
    }

    pub fn posted(&self) -> Result<One<crate::handed::Posted>> {
        self.segment.map.at(POSTED_AT).ok_or(Refusal::Resource)
    }
}

pub type OwnGiver = Giver<Shared<crate::handed::Entry>, One<crate::handed::Posted>>;
pub type PeerTaker = Taker<Shared<crate::handed::Entry>, One<crate::handed::Posted>>;

/// The peer's segment: the sending half.
pub struct PeerChannel {
    pub ring: RingSender,
    pub taker: PeerTaker,
    pub processed: One<Line>,
    head: One<Line>,
}

impl PeerChannel {
    pub fn attach(provider: &dyn SegmentProvider, pid: u32, locator: Locator, nonce: u64) -> Result<PeerChannel> {
        let map: Arc<Map> = provider.attach(pid, locator)?;
        let parts = (|| {
            let ring = Producer::new(map.slice(SLOTS_AT, SLOTS)?, map.at(RETURNS_AT)?, NoBulk, 1);
            let taker = Taker::new(map.slice(ENTRIES_AT, ENTRIES)?, map.at(POSTED_AT)?);
            Some(PeerChannel { ring, taker, processed: map.at(PROCESSED_AT)?, head: map.at(0)? })
        })();
        let peer = parts.ok_or(Refusal::Resource)?;
        if peer.head.0[0].load(Ordering::Acquire) != MAGIC || peer.head.0[1].load(Ordering::Relaxed) != nonce {
            return Err(Refusal::Resource);
        }
        Ok(peer)
    }

    /// Tag and RDMA attributes of the peer's VI.
    pub fn bits(&self) -> u64 {
        self.head.0[2].load(Ordering::Relaxed)
    }
}
