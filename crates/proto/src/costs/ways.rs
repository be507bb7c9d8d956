//! Which of two ways long messages to one process go ([`crate::p2p`]): copied into the ring and out of it, or offered, so that their receiver reads them or
//! both sides copy. Neither what one message takes that is waited for, nor the length of a copy tells, where several are under way; so both ways are tried,
//! some blocks of messages each, and the one is taken by which a block has passed in the least time. Whatever else a program does makes a block longer, never
//! shorter; where it does much else, both ways take about the same, and what the measured costs say ([`super::Costs`]) stays.

use super::two::Took;

/// Messages whose time is taken together: those of more than one window of a program that starts many before it waits; and of one that waits for each.
const BLOCK: u32 = 128;
const BLOCK_ALONE: u32 = 16;
/// Blocks of a trial, of which the first does not count: messages of the other way are still under way.
const TRIAL: u32 = 3;
const TRIAL_ALONE: u32 = 6;
/// Blocks that go the way that was expected to be the faster one before the other is tried for the first time, where it was expected to take half as long
/// again: then that trial costs more, and is less likely to be of use.
const FAR: u32 = 32;
/// Blocks that go the faster way, before the other one is tried again; and as many times more as that one took longer, where it took half as long again.
const PERIOD: u32 = 256;
const PERIODS_MAX: u64 = 16;
/// Classes of lengths: each is twice as long as the one before.
const LENGTHS: usize = 6;

/// One class of lengths.
#[derive(Clone, Copy, Debug)]
struct Class {
    /// It has a way.
    begun: bool,
    /// The way: offered, or through the ring.
    offers: bool,
    /// That is tried now; else it is taken until so many blocks have passed.
    trial: bool,
    rest: u32,
    /// Messages of a block, those that have gone in this one, and the blocks that have passed since the way was taken.
    length: u32,
    gone: u32,
    blocks: u32,
    since_ns: u64,
    /// The least time of a message in the last of these blocks, ps.
    least: u64,
    /// What each way took last, ps a message.
    took: Took,
}

impl Default for Class {
    fn default() -> Class {
        Class { begun: false, offers: false, trial: false, rest: TRIAL, length: BLOCK, gone: 0, blocks: 0, since_ns: 0, least: u64::MAX, took: Took::default() }
    }
}

impl Class {
    /// Takes note of the time, where that is needed, before a message goes. `alone`: the program waits for each before it goes on.
    fn pass(&mut self, alone: bool, now_ns: impl FnOnce() -> u64) {
        let length = if alone { BLOCK_ALONE } else { BLOCK };
        if length != self.length || !self.begun {
            (self.length, self.gone, self.since_ns, self.begun) = (length, 0, now_ns(), true);
        } else if self.gone >= length {
            self.end_block(now_ns());
        } else if self.trial {
            self.give_up(now_ns());
        }
        self.gone += 1;
    }

    /// Blocks of a trial.
    fn trial_blocks(&self) -> u32 {
        if self.length == BLOCK { TRIAL } else { TRIAL_ALONE }
    }

    /// What messages take of which `gone` have taken `ns`, ps; more than nothing.
    fn per_message(ns: u64, gone: u32) -> u64 {
        (ns.min(1 << 50) * 1000 / u64::from(gone.max(1))).max(1)
    }

    fn end_block(&mut self, now_ns: u64) {
        let ps = Class::per_message(now_ns.saturating_sub(std::mem::replace(&mut self.since_ns, now_ns)), self.gone);
        self.gone = 0;
        self.blocks += 1;
        let all = if self.trial { self.trial_blocks() } else { self.rest };
        if self.blocks > 1 && self.blocks + self.trial_blocks() > all + 1 {
            self.least = self.least.min(ps);
        }
        if self.blocks >= all {
            self.go_on(self.least, now_ns);
        }
    }

    /// Ends a trial that takes a quarter longer than a block of the other way; in the first block, not all of whose time need be its own, more than twice as long.
    fn give_up(&mut self, now_ns: u64) {
        let ns = now_ns.saturating_sub(self.since_ns);
        let quarters = if self.blocks == 0 && self.length == BLOCK { 9 } else { 5 };
        let longest = u128::from(self.took.of(!self.offers)) * u128::from(self.length) * quarters / 4000;
        if u128::from(ns) > longest && self.least == u64::MAX {
            self.go_on(Class::per_message(ns, self.gone), now_ns);
        }
    }

    /// The way has been gone for long enough, a message of which has taken `ps`: takes that which is next.
    fn go_on(&mut self, ps: u64, now_ns: u64) {
        self.took.set(self.offers, ps);
        let other = self.took.of(!self.offers);
        // What is tried has to be clearly the better one: else nothing changes.
        let next = if self.trial && ps.saturating_mul(16) / 15 < other { self.offers } else { !self.offers };
        let (more, less) = (ps.max(other), ps.min(other).max(1));
        self.rest = PERIOD * if self.took.are_far_apart() { more.div_ceil(less).min(PERIODS_MAX) as u32 } else { 1 };
        (self.trial, self.offers) = (!self.trial, next);
        (self.blocks, self.gone, self.least, self.since_ns) = (0, 0, u64::MAX, now_ns);
    }
}

/// What is expected of messages of which none has gone.
#[derive(Clone, Copy, Debug)]
pub struct Expected {
    /// They are to be offered.
    pub offered: bool,
    /// The other way takes half as long again.
    pub far: bool,
}

/// The ways of the messages to one process.
#[derive(Clone, Copy, Debug, Default)]
pub struct Ways([Class; LENGTHS]);

impl Ways {
    /// Longest message of the shortest class, bytes, and of the longest one.
    const FIRST_BYTES: u64 = 16 << 10;
    pub const BYTES_MAX: usize = (Ways::FIRST_BYTES as usize) << (LENGTHS - 1);
    /// Classes of messages that may go with their header to any process.
    pub const CLASSES: usize = 4;

    /// The class of messages of `bytes`.
    #[inline]
    pub fn class_of(bytes: usize) -> usize {
        let at = (bytes.max(1) as u64 - 1).checked_ilog2().unwrap_or(0).saturating_sub(Ways::FIRST_BYTES.ilog2() - 1);
        (at as usize).min(LENGTHS - 1)
    }

    fn class(&mut self, bytes: u64) -> &mut Class {
        &mut self.0[Ways::class_of(bytes as usize)]
    }

    /// Whether a message of `bytes` is to be offered.
    pub fn offers(&mut self, bytes: u64) -> bool {
        self.class(bytes).offers
    }

    /// A message of `bytes` is about to go.
    pub fn count(&mut self, bytes: u64, now_ns: impl FnOnce() -> u64) {
        self.class(bytes).pass(false, now_ns);
    }

    /// Whether a message of `bytes` that is about to go, and that the program waits for `alone` or not, is to be offered; and how many of its class may go after it
    /// without this question, through the ring. `expected` is asked once.
    pub fn ask(&mut self, bytes: u64, alone: bool, expected: impl FnOnce() -> Expected, now_ns: impl FnOnce() -> u64) -> (bool, u16) {
        let class = self.class(bytes);
        if !class.begun {
            let expected = expected();
            class.offers = expected.offered;
            class.rest = match (expected.far, alone) {
                (true, _) => FAR,
                (false, true) => TRIAL_ALONE,
                (false, false) => TRIAL,
            };
        }
        class.pass(alone, now_ns);
        // A trial may end at any message.
        let unasked = if class.offers || class.trial { 0 } else { class.length - class.gone };
        class.gone += unasked;
        (class.offers, unasked as u16)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const BYTES: u64 = 60 << 10;

    /// Which of so many messages were read, where each takes so long through the ring and read, ns.
    fn messages(ways: &mut Ways, now_ns: &mut u64, many: u32, took: [u64; 2]) -> Vec<bool> {
        (0..many)
            .map(|_| {
                ways.count(BYTES, || *now_ns);
                let reads = ways.offers(BYTES);
                *now_ns += took[reads as usize];
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
            let rest = messages(&mut ways, &mut now_ns, 3 * PERIOD * BLOCK, [took[1], took[0]]);
            assert!(rest.last() == Some(&!faster), "{took:?}");
        }
    }

    #[test]
    fn classes_end_at_powers_of_two_and_know_nothing_of_each_other() {
        let (mut ways, mut now_ns) = (Ways::default(), 0);
        messages(&mut ways, &mut now_ns, 2 * TRIAL * BLOCK + 1, [2000, 1000]);
        let reads = [9, 16, 17, 32, 33, 64, 65, 128, 1024].map(|kib| ways.offers(kib << 10));
        assert_eq!(reads, [false, false, false, false, true, true, false, false, false]);
        assert_eq!([9, 16, 17, 128, 129, 256, 257, 512, 4096].map(|kib| Ways::class_of(kib << 10)), [0, 0, 1, 3, 4, 4, 5, 5, 5]);
        assert_eq!([0, 1, 8 << 10, (16 << 10) + 1].map(Ways::class_of), [0, 0, 0, 1]);
    }

    /// Messages that ask, and those that then need not: how many were offered, of so many.
    fn ask(ways: &mut Ways, now_ns: &mut u64, many: u32, (expected, alone): (Expected, bool), mut took: impl FnMut(bool) -> u64) -> u32 {
        let (mut sent, mut offered) = (0, 0);
        while sent < many {
            let (offers, unasked) = ways.ask(BYTES, alone, || expected, || *now_ns);
            assert!(!offers || unasked == 0);
            for _ in 0..=unasked {
                *now_ns += took(offers);
                sent += 1;
                offered += offers as u32;
            }
        }
        offered
    }

    #[test]
    fn costs_of_another_machine_are_corrected_within_a_thousand_messages() {
        for (offered, alone, far) in [(false, true, true), (true, true, true), (false, false, false), (true, false, false)] {
            let question = (Expected { offered, far }, alone);
            let truth = |offers: bool| if offers == offered { 9000 } else { 3000 };
            let (mut ways, mut now_ns) = (Ways::default(), 7);
            ask(&mut ways, &mut now_ns, 1000, question, truth);
            let before = now_ns;
            ask(&mut ways, &mut now_ns, 2000, question, truth);
            assert!(now_ns - before < 2000 * 3100, "{question:?}");
        }
    }

    #[test]
    fn trials_of_what_takes_much_longer_cost_little() {
        for (alone, offered) in [(true, false), (false, false), (true, true), (false, true)] {
            let question = (Expected { offered, far: true }, alone);
            let truth = |offers: bool| if offers == offered { 1000 } else { 8000 };
            for many in [1000, 10_000, 100_000] {
                let (mut ways, mut now_ns) = (Ways::default(), 0);
                ask(&mut ways, &mut now_ns, many, question, truth);
                assert!(now_ns / 1000 <= u64::from(many) + u64::from(many / 30).max(400) * (!alone as u64 + 1) / 2, "{many} of {question:?}: {now_ns}");
            }
        }
    }

    proptest! {
        /// Whatever is expected, and though one message of every hundred is disturbed: of a million messages, six of seven go a way that takes at most a fifth longer than
        /// the better one.
        #[test]
        fn the_better_way_is_found(expected: bool, far: bool, alone: bool, ring in 500..20_000u64, offered in 500..20_000u64, seed: u64) {
            let mut random = seed | 1;
            let (mut ways, mut now_ns, mut bad) = (Ways::default(), 1, 0);
            let best = ring.min(offered);
            ask(&mut ways, &mut now_ns, 1_000_000, (Expected { offered: expected, far }, alone), |offers| {
                random ^= random << 13;
                random ^= random >> 7;
                random ^= random << 17;
                let ns = if offers { offered } else { ring };
                bad += u32::from(10 * ns > 12 * best);
                if random.is_multiple_of(100) { ns * (1 + random / 100 % 20) } else { ns }
            });
            prop_assert!(bad < 150_000, "{bad}");
        }
    }
}
