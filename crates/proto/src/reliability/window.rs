//! A receive that is being filled, and how much all of them may be granted.

use super::VFRAG_BYTES;
use super::wire;
use std::collections::VecDeque;

/// A VFRAG that has arrived in part.
#[derive(Clone, Copy, Debug, Default)]
pub struct Part {
    pub vfrag_bytes: u32,
    pub segments: u64,
    pub arrived_bytes: u32,
}

impl Part {
    pub fn is_done(&self) -> bool {
        self.vfrag_bytes != 0 && self.arrived_bytes == self.vfrag_bytes
    }
}

/// An incoming transfer.
#[derive(Debug)]
pub struct Window {
    pub peer: u32,
    pub receive: u64,
    /// The sender's number; 0 until an offer is taken.
    pub transfer: u32,
    pub capacity_bytes: u64,
    /// What will come; an offer learns it late.
    pub total_bytes: Option<u64>,
    pub granted_bytes: u64,
    pub arrived_bytes: u64,
    pub base: u32,
    /// How the sender cuts; 0 until something has arrived.
    pub segment_bytes: u16,
    pub parts: VecDeque<Part>,
    pub heard_ns: u64,
    /// In the peer's list of windows to tell of.
    pub dirty: bool,
    /// In the queue for grants.
    pub queued: bool,
    /// What is granted does not count: it may not come for long.
    pub parked: bool,
    /// What of it counts in [`Grants`].
    pub counted_bytes: u64,
}

impl Window {
    pub fn new(peer: usize, receive: u64, transfer: u32, capacity_bytes: u64, total_bytes: Option<u64>, now_ns: u64) -> Window {
        Window {
            peer: peer as u32,
            receive,
            transfer,
            capacity_bytes,
            total_bytes,
            granted_bytes: 0,
            arrived_bytes: 0,
            base: 0,
            segment_bytes: 0,
            parts: VecDeque::new(),
            heard_ns: now_ns,
            dirty: false,
            queued: false,
            parked: false,
            counted_bytes: 0,
        }
    }

    /// Grants before anything is known of the sender.
    pub fn grant_ahead(&mut self, bytes: u64) {
        self.granted_bytes = bytes;
        self.parked = true;
    }

    pub fn end_bytes(&self) -> u64 {
        self.total_bytes.unwrap_or(self.capacity_bytes)
    }

    /// Bytes of a VFRAG: the longest while the sender's cut is not known.
    pub fn stride_bytes(&self) -> u64 {
        if self.segment_bytes == 0 { VFRAG_BYTES as u64 } else { wire::stride_bytes(self.segment_bytes as u32) as u64 }
    }

    /// What `bytes` of grants allow: whole VFRAGs, and all from the end on.
    pub fn usable_bytes(&self, bytes: u64) -> u64 {
        // A sender may turn out to have less than was granted.
        if bytes >= self.end_bytes() { self.end_bytes() } else { bytes - bytes % self.stride_bytes() }
    }

    pub fn outstanding_bytes(&self) -> u64 {
        self.usable_bytes(self.granted_bytes).saturating_sub(self.arrived_bytes)
    }

    pub fn is_of(&self, peer: usize) -> bool {
        self.peer as usize == peer
    }

    /// Whether it was offered to that peer, and is not taken.
    pub fn is_offered_to(&self, peer: usize) -> bool {
        self.is_of(peer) && self.total_bytes.is_none()
    }

    /// It is for a transfer of which `bytes` are wanted. False if they cannot go there.
    pub fn adopt(&mut self, transfer: u32, bytes: u64, now_ns: u64) -> bool {
        let fits = transfer != 0 && bytes <= self.capacity_bytes && self.arrived_bytes <= bytes;
        if fits {
            (self.transfer, self.total_bytes, self.parked, self.heard_ns) = (transfer, Some(bytes), false, now_ns);
        }
        fits
    }

    /// Whether a segment of `data` may be one of what this is for.
    pub fn takes(&self, data: &wire::Data) -> bool {
        let stride_bytes = wire::stride_bytes(data.segment_bytes as u32);
        let end = data.vfrag as u64 * stride_bytes as u64 + data.vfrag_bytes as u64;
        let ends_well = match self.total_bytes {
            Some(total) => end == total || data.vfrag_bytes == stride_bytes && end < total,
            None => end <= self.capacity_bytes,
        };
        let same_cut = self.segment_bytes == 0 || self.segment_bytes == data.segment_bytes;
        end <= self.granted_bytes && ends_well && same_cut
    }

    pub fn is_complete(&self) -> bool {
        self.total_bytes.is_some_and(|total| self.arrived_bytes >= total)
    }

    pub fn frame(&self, id: u32) -> wire::Window {
        let mut frame = wire::Window {
            transfer: self.transfer,
            window: id,
            granted_bytes: self.granted_bytes,
            base: self.base,
            last: self.total_bytes.is_some_and(|total| self.granted_bytes >= total),
            ..wire::Window::default()
        };
        for (index, part) in self.parts.iter().enumerate() {
            if part.is_done() {
                frame.complete |= 1 << index;
            } else if part.segments != 0 {
                let (segment_bytes, segments) = (self.segment_bytes, part.segments);
                frame.partial.push(wire::PartialVfrag { index: index as u8, segment_bytes, segments });
            }
        }
        frame
    }
}

/// Who may send how much to this process.
#[derive(Debug, Default)]
pub struct Grants {
    /// Granted and not here, of all windows that are not parked.
    pub outstanding_bytes: u64,
    /// Windows of which not all is granted.
    pub queue: VecDeque<u32>,
}

impl Grants {
    /// Follows what has changed in a window.
    pub fn recount(&mut self, window: &mut Window) {
        let now_bytes = if window.parked { 0 } else { window.outstanding_bytes() };
        self.outstanding_bytes = self.outstanding_bytes - window.counted_bytes + now_bytes;
        window.counted_bytes = now_bytes;
    }
}
