//! A message that is on its way to a granted window.

use super::VFRAGS_MAX;
use super::vfrag::Vfrag;
use super::wire;
use std::collections::VecDeque;

/// An outgoing transfer.
#[derive(Debug)]
pub struct Transfer {
    pub peer: u32,
    pub send: u64,
    pub bytes: u64,
    /// Of every segment and every VFRAG but the last.
    pub segment_bytes: u32,
    pub stride_bytes: u32,
    /// The receiver's window; 0 before it is known.
    pub window: u32,
    pub granted_bytes: u64,
    /// VFRAGs from `base` on that are not acknowledged; those before are.
    pub base: u32,
    pub vfrags: VecDeque<Vfrag>,
    /// VFRAGs of which something should leave.
    pub ready: VecDeque<u32>,
    /// In the peer's list of transfers of which something should leave.
    pub queued: bool,
    /// Datagrams of it whose local completion is missing.
    pub references: u32,
    pub done: bool,
}

impl Transfer {
    pub fn new(peer: usize, send: u64, bytes: u64, segment_bytes: u32) -> Transfer {
        Transfer {
            peer: peer as u32,
            send,
            bytes,
            segment_bytes,
            stride_bytes: wire::stride_bytes(segment_bytes),
            window: 0,
            granted_bytes: 0,
            base: 0,
            vfrags: VecDeque::new(),
            ready: VecDeque::new(),
            queued: false,
            references: 0,
            done: false,
        }
    }

    pub fn open(&mut self, window: u32, granted_bytes: u64) {
        self.window = window;
        self.granted_bytes = self.granted_bytes.max(granted_bytes);
    }

    /// Fills an offered window, unless its window is known already.
    pub fn fill(&mut self, window: u32, granted_bytes: u64, capacity_bytes: u64) -> bool {
        if self.window != 0 || self.done {
            return false;
        }
        self.bytes = self.bytes.min(capacity_bytes);
        self.open(window, granted_bytes);
        true
    }

    /// Makes VFRAGs of what has been granted; the first of which something should leave. The first one is cut into segments of `segment_bytes`, and so are all.
    pub fn next(&mut self, segment_bytes: u32) -> Option<u32> {
        if self.base == 0 && self.vfrags.is_empty() {
            (self.segment_bytes, self.stride_bytes) = (segment_bytes, wire::stride_bytes(segment_bytes));
        }
        while let Some(&first) = self.ready.front() {
            if let Some(vfrag) = self.vfrag(first) {
                if vfrag.pending().is_some() {
                    return Some(first);
                }
                vfrag.queued = false;
            }
            self.ready.pop_front();
        }
        let next = self.base + self.vfrags.len() as u32;
        let start = next as u64 * self.stride_bytes as u64;
        let end = (start + self.stride_bytes as u64).min(self.bytes);
        if start >= end || end > self.granted_bytes || self.vfrags.len() == VFRAGS_MAX || self.done {
            return None;
        }
        let mut vfrag = Vfrag::new((end - start) as u32, self.segment_bytes);
        vfrag.queued = true;
        self.vfrags.push_back(vfrag);
        self.ready.push_back(next);
        Some(next)
    }

    pub fn vfrag(&mut self, index: u32) -> Option<&mut Vfrag> {
        self.vfrags.get_mut(index.checked_sub(self.base)? as usize)
    }
}
