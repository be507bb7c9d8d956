//! The queues of the process's own rails: what has been handed to a device and not left the memory it is gathered from.

use super::Failure;
use std::collections::VecDeque;

#[derive(Debug)]
pub struct LocalRail {
    /// Nothing was taken; waits for [`super::Endpoint::writable`].
    pub busy: bool,
    /// By endpoint: what the datagrams without local completion refer to, in order.
    pub queues: Vec<PendingQueue>,
    pub next_queue: u8,
    /// When the last completion came, or the first datagram of those that wait.
    pub moved_ns: u64,
}

#[derive(Debug, Default)]
pub struct PendingQueue {
    pub packets: u32,
    pub references: VecDeque<(u32, Option<Reference>, bool)>,
}

/// A send that ends with the last local completion of its datagrams.
#[derive(Clone, Copy, Debug)]
pub struct Orphan {
    pub send: u64,
    pub references: u32,
    pub result: Result<(), Failure>,
}

/// What a datagram without local completion carries.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Reference {
    Message(u32),
    Transfer(u32),
}

impl LocalRail {
    pub fn waits(&self) -> bool {
        self.queues.iter().any(|queue| queue.packets > 0)
    }

    /// The endpoint whose turn it is, of those whose queues have room, and for how many datagrams. `None`, until a local completion, where all are full.
    pub fn take_queue(&mut self, queue_packets_max: u32) -> Option<(u8, u32)> {
        let count = self.queues.len() as u8;
        let mut queues = (0..count).map(|ahead| (self.next_queue + ahead) % count);
        let found = queues.find(|&queue| self.queues[queue as usize].packets < queue_packets_max);
        match found {
            Some(queue) => self.next_queue = (queue + 1) % count,
            None => self.busy = true,
        }
        found.map(|queue| (queue, queue_packets_max - self.queues[queue as usize].packets))
    }
}
