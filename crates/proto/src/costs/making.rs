//! By which stores are the datagrams of long messages and of transfers made?
//!
//! Streaming stores go past the caches. Where the memory that datagrams are made in has been read last by a core far away (another process of the same
//! machine is the receiver), an ordinary store waits for each line to come back; where the cores share a cache, what went past it is read from memory. The
//! sender sees only the first of these, so what decides is how long it takes until all has been acknowledged. Which memory has been read by whom follows
//! from what was sent before, and where the processors of a virtual machine are changes while a program runs; so one way is used for a block of what is sent,
//! and now and then a block of the other is tried.

/// At the beginning of a block memory is still as the other way has left it: so many bytes do not count.
const FIRST_BYTES: u64 = 2 << 20;
/// Bytes that count of a block.
const BLOCK_BYTES: u64 = 2 << 20;
/// Blocks of the faster way after which the other is tried again; and after which it may be tried, if the faster way takes half as long again as it did.
const TRIED_EACH: u32 = 160;
const TRIED_EARLY: u32 = 16;
/// Blocks before the first trial: they find much else that is new.
const TRIED_FIRST: u32 = 4;
/// Streaming stores have to gain one part in so many, or they are not worth the trials' errors. Where cores are far apart transfers gain half or more; of a
/// message's time until its acknowledgement, which may come with the peer's own message, making it is a small part.
const GAIN_PART: u64 = 4;
const GAIN_PART_SHORT: u64 = 16;
/// Classes by length of message or transfer, each for lengths up to twice its own and the last for all that are longer. Those below [`SHORT_CLASSES`] are short.
const LEAST_BYTES: u64 = 8 << 10;
const CLASSES: usize = 8;
const SHORT_CLASSES: usize = 4;

/// A block of messages or transfers of about one length: what has been made in one that has ended since does not count.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Block {
    class: u8,
    number: u32,
    pub streams: bool,
}

#[derive(Clone, Copy, Default, Debug)]
struct Class {
    /// ps for each byte, ordinary and streaming stores; 0: not known yet.
    took: [u64; 2],
    /// What the faster way took at the least since the other one was tried, and blocks since.
    then: u64,
    since: u32,
    streams: bool,
    number: u32,
    passed_bytes: u64,
    counted_bytes: u64,
    counted_ns: u64,
}

impl Class {
    fn took(&mut self, bytes: u64, ns: u64, gain_part: u64) {
        if self.passed_bytes < FIRST_BYTES {
            self.passed_bytes += bytes;
            return;
        }
        (self.counted_bytes, self.counted_ns) = (self.counted_bytes + bytes, self.counted_ns + ns);
        if self.counted_bytes < BLOCK_BYTES {
            return;
        }
        let ps = (self.counted_ns.saturating_mul(1000) / self.counted_bytes).max(1);
        let mean = &mut self.took[self.streams as usize];
        // A block that was disturbed says little; what was before a way was last left, nothing where it is faster now.
        *mean = if *mean == 0 || self.since == 0 && ps < *mean { ps } else { (*mean + ps.min(2 * *mean)) / 2 };
        let (number, since) = (self.number.wrapping_add(1), self.since + 1);
        let next = Class { took: self.took, then: self.then, since, streams: self.streams, number, ..Class::default() };
        *self = match self.took {
            [ordinary, 0] => Class { then: ordinary, streams: number >= TRIED_FIRST, ..next },
            [ordinary, streaming] => {
                let faster = streaming + streaming / gain_part < ordinary;
                let now = self.took[faster as usize];
                if self.streams != faster {
                    Class { then: now, since: 0, streams: faster, ..next }
                } else if since >= TRIED_EACH || since >= TRIED_EARLY && now > self.then * 3 / 2 {
                    Class { streams: !faster, ..next }
                } else {
                    Class { then: self.then.min(now), ..next }
                }
            }
        };
    }
}

/// What a process's messages and the VFRAGs of its transfers have taken until they were acknowledged.
#[derive(Clone, Copy, Default, Debug)]
pub struct Making {
    classes: [Class; CLASSES],
    /// When the last one was: of several that are on their way one's time begins then.
    passed_ns: u64,
}

impl Making {
    /// The block that a message of `bytes`, or a VFRAG of a transfer of so many, belongs to which is made now. `None` where it is too short for that.
    pub fn begin(&self, bytes: u64) -> Option<Block> {
        let class = ((bytes / LEAST_BYTES).checked_ilog2()? as usize).min(CLASSES - 1);
        let Class { number, streams, .. } = self.classes[class];
        Some(Block { class: class as u8, number, streams })
    }

    /// A message or VFRAG of `bytes` whose first datagrams were made at `begun_ns` has arrived.
    pub fn took(&mut self, block: Block, bytes: u64, begun_ns: u64, now_ns: u64) {
        let ns = now_ns.saturating_sub(begun_ns.max(self.passed_ns));
        self.passed_ns = now_ns;
        let class = &mut self.classes[block.class as usize];
        if class.number == block.number {
            class.took(bytes, ns, if (block.class as usize) < SHORT_CLASSES { GAIN_PART_SHORT } else { GAIN_PART });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::VecDeque;

    /// Of so many VFRAGs of a transfer of `bytes`, with up to `window` on their way at a time, those by streaming stores. What one takes the core: `ps` for each byte.
    fn play(making: &mut Making, vfrags: u32, window: usize, bytes: u64, mut ps: impl FnMut(bool) -> u64) -> u32 {
        const EACH_BYTES: u64 = 61_952;
        let (mut streamed, mut now_ns) = (0, making.passed_ns + 1000);
        let mut under_way = VecDeque::new();
        for _ in 0..vfrags {
            let block = making.begin(bytes).unwrap();
            streamed += block.streams as u32;
            under_way.push_back((block, now_ns));
            if under_way.len() == window {
                // What follows is asked for when the first has arrived.
                let (block, begun_ns): (Block, u64) = under_way.pop_front().unwrap();
                now_ns += ps(block.streams) * EACH_BYTES / 1000;
                making.took(block, EACH_BYTES, begun_ns, now_ns);
            }
        }
        streamed
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        /// Though one of eight is disturbed; alone, and many at once.
        #[test]
        fn the_faster_stores_are_taken(times in prop::sample::select(vec![2u64, 3, 8]), ordinary_is_faster: bool, window in 1usize..32, bytes in 100_000u64..3_000_000, seed: u64) {
            let mut random = seed | 1;
            let mut making = Making::default();
            let mut ps = |streaming: bool| {
                let own = if streaming == ordinary_is_faster { 200 * times } else { 200 };
                random ^= random << 13;
                random ^= random >> 7;
                random ^= random << 17;
                if random.is_multiple_of(8) { own * (1 + random / 8 % 3) } else { own }
            };
            // Some blocks, until both are known.
            play(&mut making, 3000, window, bytes, &mut ps);
            let streamed = play(&mut making, 50_000, window, bytes, &mut ps);
            let slower = if ordinary_is_faster { streamed } else { 50_000 - streamed };
            prop_assert!(slower < 2000, "{slower} of 50,000");
        }
    }

    #[test]
    fn a_change_is_followed() {
        let mut making = Making::default();
        for streaming_is_faster in [true, false, true] {
            let mut ps = |streaming: bool| if streaming == streaming_is_faster { 300 } else { 700 };
            // Within as many blocks as have to lie between two trials, and those of a trial.
            play(&mut making, 100 * (TRIED_EARLY + 8), 1, 512 << 10, &mut ps);
            let streamed = play(&mut making, 5000, 1, 512 << 10, &mut ps);
            assert_eq!(streamed > 2500, streaming_is_faster, "{streamed}");
        }
    }

    #[test]
    fn lengths_have_their_own() {
        let mut making = Making::default();
        play(&mut making, 5000, 1, 128 << 10, |streaming| if streaming { 300 } else { 700 });
        let streams = |bytes: u64| making.begin(bytes).map(|block| block.streams);
        assert_eq!(
            [(8 << 10) - 1, (128 << 10) - 1, 128 << 10, (256 << 10) - 1, 256 << 10].map(streams),
            [None, Some(false), Some(true), Some(true), Some(false)]
        );
    }
}
