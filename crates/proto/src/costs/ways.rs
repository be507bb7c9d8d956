//! Which of two ways long messages go that cross those of the peer ([`crate::p2p`]): copied into the ring and out of it, or read by their receiver. Neither
//! what one message takes that is waited for, nor the length of a copy tells; so both are tried, some blocks of messages each, and the one is taken by which
//! a block has passed in the least time. Whatever else a program does makes a block longer, never shorter.

use super::two::Took;

/// Messages whose time is taken together: those of more than one window of a program that starts many before it waits.
const BLOCK: u32 = 128;
/// Blocks of a trial, of which the first does not count: messages of the other way are still under way.
const TRIAL: u32 = 4;
/// Blocks that go the faster way, before the other one is tried again; and so many times more where that took half as long again.
const PERIOD: u32 = 64;
const RARE: u32 = 8;
/// Classes of lengths: each is twice as long as the one before.
const LENGTHS: usize = 4;

/// One class of lengths.
#[derive(Clone, Copy, Debug)]
struct Class {
    reads: bool,
    trying: bool,
    messages: u32,
    blocks: u32,
    since_ns: u64,
    /// Of the blocks that go on now, ns.
    least: u64,
    /// Of the last ones through the ring, and read.
    took: Took,
}

impl Default for Class {
    fn default() -> Class {
        Class { reads: false, trying: true, messages: 0, blocks: 0, since_ns: 0, least: u64::MAX, took: Took::default() }
    }
}

impl Class {
    fn count(&mut self, now_ns: impl FnOnce() -> u64) {
        self.messages += 1;
        if self.messages < BLOCK {
            return;
        }
        let now_ns = now_ns();
        let took = now_ns.saturating_sub(std::mem::replace(&mut self.since_ns, now_ns));
        self.messages = 0;
        self.blocks += 1;
        if self.blocks > 1 {
            self.least = self.least.min(took.max(1));
        }
        if self.blocks < if self.trying { TRIAL } else { PERIOD * if self.took.are_far_apart() { RARE } else { 1 } } {
            return;
        }
        (self.reads, self.trying) = self.took.next(self.reads, self.least, self.trying);
        (self.blocks, self.least) = (0, u64::MAX);
    }
}

/// The ways of the messages to one peer.
#[derive(Clone, Copy, Debug, Default)]
pub struct Ways([Class; LENGTHS]);

impl Ways {
    /// Longest message of the shortest class, bytes.
    const FIRST_BYTES: u64 = 16 << 10;

    fn class(&mut self, bytes: u64) -> &mut Class {
        let at = bytes.max(1).div_ceil(Ways::FIRST_BYTES).next_power_of_two().ilog2();
        &mut self.0[(at as usize).min(LENGTHS - 1)]
    }

    /// Whether a message of `bytes` is to be read by its receiver.
    pub fn reads(&mut self, bytes: u64) -> bool {
        self.class(bytes).reads
    }

    /// A message of `bytes` is about to go.
    pub fn count(&mut self, bytes: u64, now_ns: impl FnOnce() -> u64) {
        self.class(bytes).count(now_ns);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Which of so many messages were read, where each takes so long through the ring and read, ns.
    fn messages(ways: &mut Ways, now_ns: &mut u64, many: u32, took: [u64; 2]) -> Vec<bool> {
        (0..many)
            .map(|_| {
                let reads = ways.reads(60 << 10);
                *now_ns += took[reads as usize];
                ways.count(60 << 10, || *now_ns);
                reads
            })
            .collect()
    }

    #[test]
    fn the_faster_way_is_taken_after_both_were_tried_and_again_when_it_has_changed() {
        for (took, faster) in [([9000, 5000], true), ([5000, 6000], false)] {
            let (mut ways, mut now_ns) = (Ways::default(), 7);
            let trial = messages(&mut ways, &mut now_ns, 2 * TRIAL * BLOCK, took);
            assert_eq!(trial.iter().filter(|reads| **reads).count(), (TRIAL * BLOCK) as usize);
            assert!(messages(&mut ways, &mut now_ns, PERIOD * BLOCK, took).iter().all(|reads| *reads == faster));
            let rest = messages(&mut ways, &mut now_ns, RARE * PERIOD * BLOCK, [took[1], took[0]]);
            assert!(rest.last() == Some(&!faster), "{took:?}");
        }
    }

    #[test]
    fn classes_end_at_powers_of_two_and_know_nothing_of_each_other() {
        let (mut ways, mut now_ns) = (Ways::default(), 0);
        messages(&mut ways, &mut now_ns, 2 * TRIAL * BLOCK, [2000, 1000]);
        let reads = [9, 16, 17, 32, 33, 64, 65, 128, 1024].map(|kib| ways.reads(kib << 10));
        assert_eq!(reads, [false, false, false, false, true, true, false, false, false]);
    }
}
