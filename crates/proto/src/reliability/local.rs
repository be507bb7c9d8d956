//! What has been handed to a device and not left the memory it is gathered from: the queues of the process's own rails, and what they refer to.

use super::Outside;
use super::endpoint::Endpoint;
use super::local_rail::{Orphan, Reference};

impl Endpoint {
    /// `count` datagrams of an endpoint have left the memory they were gathered from, in the order of their sending.
    pub fn local_completion(&mut self, now_ns: u64, rail: u8, endpoint: u8, count: u32, outside: &mut impl Outside) {
        let local = self.local_of(rail as usize);
        self.local[local].moved_ns = now_ns;
        self.local[local].busy = false;
        for _ in 0..count {
            let queue = &mut self.local[local].queues[endpoint as usize];
            queue.packets = queue.packets.saturating_sub(1);
            loop {
                let queue = &mut self.local[local].queues[endpoint as usize];
                let Some((p, reference, last)) = queue.references.pop_front() else { break };
                if let Some(reference) = reference {
                    self.unreference(p as usize, reference, now_ns, outside);
                }
                if last {
                    break;
                }
            }
        }
    }

    /// The endpoints of a rail have been made anew: what they had not sent is gone, and they read no memory any more. Without this, sends that never
    /// complete locally keep their payload for ever.
    pub fn rail_reset(&mut self, now_ns: u64, rail: u8, outside: &mut impl Outside) {
        for endpoint in 0..self.local[rail as usize].queues.len() {
            let count = self.local[rail as usize].queues[endpoint].packets;
            self.local_completion(now_ns, rail, endpoint as u8, count, outside);
        }
        self.local[rail as usize].busy = false;
    }

    /// A rail that was [`Sent::Busy`](super::Sent::Busy) takes datagrams again.
    pub fn writable(&mut self, rail: u8) {
        let local = self.local_of(rail as usize);
        self.local[local].busy = false;
    }

    /// A datagram has been queued on a queue of the process's own rail `at`: the payload of `references` stays in use until its local completion.
    pub(super) fn queued(&mut self, p: usize, at: usize, endpoint: u8, references: impl ExactSizeIterator<Item = Reference>, now_ns: u64) {
        let local = &mut self.local[at];
        if !local.waits() {
            local.moved_ns = now_ns;
        }
        let queue = &mut local.queues[endpoint as usize];
        queue.packets += 1;
        let count = references.len();
        if count == 0 {
            queue.references.push_back((p as u32, None, true));
        }
        for (index, reference) in references.enumerate() {
            let queue = &mut self.local[at].queues[endpoint as usize];
            queue.references.push_back((p as u32, Some(reference), index + 1 == count));
            self.reference(p, reference);
        }
    }

    fn reference(&mut self, p: usize, reference: Reference) {
        match reference {
            Reference::Message(sequence) => {
                let active = self.peers[p].active.as_deref_mut();
                if let Some(message) = active.and_then(|active| active.message(sequence)) {
                    message.references += 1;
                }
            }
            Reference::Transfer(id) => {
                if let Some(transfer) = self.transfers.get_mut(id) {
                    transfer.references += 1;
                }
            }
        }
    }

    /// A datagram has left the memory it was gathered from.
    fn unreference(&mut self, p: usize, reference: Reference, now_ns: u64, outside: &mut impl Outside) {
        if self.peers[p].failed {
            let key = (p as u32, reference);
            if let Some(orphan) = self.orphans.get_mut(&key) {
                orphan.references -= 1;
                if orphan.references == 0 {
                    let Orphan { send, result, .. } = *orphan;
                    self.orphans.remove(&key);
                    outside.complete(send, result);
                }
            }
            return;
        }
        match reference {
            Reference::Message(sequence) => {
                let Some(active) = self.peers[p].active.as_deref_mut() else { return };
                let Some(message) = active.message(sequence) else { return };
                message.references -= 1;
                message.end_if_whole(outside);
                if message.references == 0 && message.vfrag.is_acked() {
                    active.retire();
                    self.wake(p);
                }
            }
            Reference::Transfer(id) => {
                let Some(transfer) = self.transfers.get_mut(id) else { return };
                transfer.references -= 1;
                if transfer.references == 0 && transfer.done {
                    self.finish_transfer(p, id, now_ns, outside);
                    self.wake(p);
                }
            }
        }
    }
}
