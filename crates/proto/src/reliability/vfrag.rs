//! A virtual fragment at its sender: which of its segments are where (paper 003 §4.2).

use super::RAILS_MAX;
use crate::costs::making::{Block, Making};

/// What a segment costs beside its payload, bytes.
pub const PACKET_BYTES: u64 = 64;

#[derive(Clone, Debug)]
pub struct Vfrag {
    bytes: u32,
    segment_bytes: u32,
    acked: u64,
    /// Segments that have ever left.
    left: u64,
    /// Segments under way, by rail.
    flight: [u64; RAILS_MAX],
    /// When the last of them left.
    sent_ns: [u64; RAILS_MAX],
    /// It stands in a queue of things to send.
    pub queued: bool,
    /// By which stores its datagrams are made where that is chosen, and when the first ones were.
    made: Option<(Block, u64)>,
}

impl Vfrag {
    pub fn new(bytes: u32, segment_bytes: u32) -> Vfrag {
        debug_assert!(bytes.div_ceil(segment_bytes) <= super::SEGMENTS_MAX as u32);
        Vfrag { bytes, segment_bytes, acked: 0, left: 0, flight: [0; RAILS_MAX], sent_ns: [0; RAILS_MAX], queued: false, made: None }
    }

    pub fn bytes(&self) -> u32 {
        self.bytes
    }

    pub fn segment_bytes(&self) -> u32 {
        self.segment_bytes
    }

    /// A message without payload has one segment, too.
    pub fn segments(&self) -> u32 {
        self.bytes.div_ceil(self.segment_bytes).max(1)
    }

    fn all(&self) -> u64 {
        u64::MAX >> (64 - self.segments())
    }

    pub fn is_acked(&self) -> bool {
        self.acked == self.all()
    }

    /// The first of its datagrams are made now, of a message or a transfer of `bytes`, or others of them: whether by streaming stores.
    pub fn streams(&mut self, making: &Making, bytes: u64, now_ns: u64) -> bool {
        if self.left == 0 {
            self.made = making.begin(bytes).map(|block| (block, now_ns));
        }
        self.made.is_some_and(|(block, _)| block.streams)
    }

    /// All of it has been acknowledged.
    pub fn arrived(&self, making: &mut Making, now_ns: u64) {
        if let Some((block, begun_ns)) = self.made {
            making.took(block, self.bytes as u64, begun_ns, now_ns);
        }
    }

    pub fn in_flight(&self) -> u64 {
        self.flight.iter().fold(0, |all, one| all | one)
    }

    /// The first segment that should leave: a new one or one that was lost.
    pub fn pending(&self) -> Option<u8> {
        let pending = self.all() & !self.acked & !self.in_flight();
        (pending != 0).then(|| pending.trailing_zeros() as u8)
    }

    /// How many segments from `first` on should leave, at most `max`.
    pub fn run(&self, first: u8, max: u32) -> u32 {
        let pending = self.all() & !self.acked & !self.in_flight();
        (pending >> first).trailing_ones().min(max)
    }

    /// The last segment that is not acknowledged: what a tail probe sends again.
    pub fn tail(&self) -> Option<u8> {
        let open = self.left & !self.acked;
        (open != 0).then(|| 63 - open.leading_zeros() as u8)
    }

    /// Offset and length of a segment, bytes.
    pub fn range(&self, segment: u8) -> (u32, u32) {
        let start = segment as u32 * self.segment_bytes;
        (start, (self.bytes - start).min(self.segment_bytes))
    }

    /// What the segments in `mask` weigh on a rail, bytes.
    pub fn weight(&self, mask: u64) -> u64 {
        let count = mask.count_ones() as u64;
        if count == 0 {
            return 0;
        }
        let last = self.segments() - 1;
        let short = if mask >> last & 1 == 1 { self.segment_bytes - self.range(last as u8).1 } else { 0 };
        count * (PACKET_BYTES + self.segment_bytes as u64) - short as u64
    }

    /// Notes that `count` segments from `first` on leave: what that adds to the rail, and how many of them had left before.
    pub fn sent(&mut self, first: u8, count: u32, rail: usize, now_ns: u64) -> (u64, u32) {
        let mask = (u64::MAX >> (64 - count)) << first;
        let again = (self.left & mask).count_ones();
        let weight = self.weight(mask & !self.flight[rail]);
        self.left |= mask;
        self.flight[rail] |= mask;
        self.sent_ns[rail] = now_ns;
        (weight, again)
    }

    /// Takes a segment that leaves no more (the rail was busy) back; its weight.
    pub fn unsent(&mut self, segment: u8, rail: usize) -> u64 {
        let weight = self.weight(self.flight[rail] & 1 << segment);
        self.flight[rail] &= !(1 << segment);
        weight
    }

    /// Notes what has arrived; what left each rail thereby, as weights, and whether a segment arrived that had been given up.
    pub fn acknowledge(&mut self, mask: u64) -> ([u64; RAILS_MAX], bool) {
        let new = mask & self.all() & !self.acked;
        let mut weights = [0; RAILS_MAX];
        if new == 0 {
            return (weights, false);
        }
        let given_up = new & !self.in_flight() != 0;
        self.acked |= new;
        for (flight, weight) in self.flight.iter().zip(&mut weights) {
            if flight & new != 0 {
                *weight = self.weight(flight & new);
            }
        }
        self.flight.iter_mut().for_each(|flight| *flight &= !new);
        (weights, given_up)
    }

    pub fn acknowledge_all(&mut self) -> ([u64; RAILS_MAX], bool) {
        self.acknowledge(u64::MAX)
    }

    /// When its last segment left on a rail where any is under way.
    pub fn sent_on(&self, rail: usize) -> Option<u64> {
        (self.flight[rail] != 0).then_some(self.sent_ns[rail])
    }

    /// Gives up what is under way on a rail; its weight.
    pub fn lose(&mut self, rail: usize) -> u64 {
        let lost = std::mem::take(&mut self.flight[rail]);
        self.weight(lost)
    }

    /// Gives up one segment, wherever it is under way, so that it leaves again; what that takes from each rail.
    pub fn lose_segment(&mut self, segment: u8) -> [u64; RAILS_MAX] {
        let mut weights = [0; RAILS_MAX];
        for (rail, weight) in weights.iter_mut().enumerate() {
            *weight = self.unsent(segment, rail);
        }
        weights
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// Whatever is sent, lost and acknowledged, the weights on each rail return to zero, and it ends.
        #[test]
        fn weights_balance(bytes in 0u32..=65536, cut in 1024u32..9000, steps in proptest::collection::vec((0u8..3, 0usize..RAILS_MAX, any::<u64>()), 0..200)) {
            let mut vfrag = Vfrag::new(bytes, cut);
            let mut on_rail = [0u64; RAILS_MAX];
            for (what, rail, mask) in steps {
                match what {
                    0 => if let Some(segment) = vfrag.pending() {
                        on_rail[rail] += vfrag.sent(segment, vfrag.run(segment, 1 + mask as u32 % 8), rail, 1).0;
                    },
                    1 => on_rail[rail] -= vfrag.lose(rail),
                    _ => {
                        let (weights, _) = vfrag.acknowledge(mask & vfrag.left);
                        on_rail.iter_mut().zip(weights).for_each(|(held, gone)| *held -= gone);
                    }
                }
                prop_assert_eq!(vfrag.tail().is_none(), vfrag.left & !vfrag.acked == 0);
            }
            while let Some(segment) = vfrag.pending() {
                on_rail[0] += vfrag.sent(segment, 1, 0, 2).0;
            }
            let (weights, _) = vfrag.acknowledge_all();
            on_rail.iter_mut().zip(weights).for_each(|(held, gone)| *held -= gone);
            prop_assert!(vfrag.is_acked());
            prop_assert_eq!(on_rail, [0; RAILS_MAX]);
        }
    }
}
