//! Does speculation pay? The RTR usage factor of each envelope (§3.6 of the paper), which learns and forgets.
//!
//! An envelope that has announced nothing yet goes by what the other new envelopes of its context and source came to: a
//! program that gives every message a tag of its own has no envelope that could learn twice.

use super::recent::Recent;
use std::hash::{Hash, Hasher};

/// Envelopes that are remembered, and pairs of context and source. Past that, the one used the longest ago is forgotten.
pub const ENVELOPES_MAX: usize = 1024;
/// A factor of one.
const ONE: u32 = 1 << 16;
/// Receives without an RTR before speculation is tried again: at first, and at most.
const PAUSE_MIN: u32 = 16;
const PAUSE_MAX: u32 = 4096;

/// Whom a receive names: context, source and tag (any tag has a number of its own).
pub type Envelope = (u64, u32, i32);
/// What new envelopes share: context and source.
type Origin = (u64, u32);

/// What came of the RTRs of one envelope. The sums stay where they are when they reach their largest value.
#[derive(Clone, Copy, Default, PartialEq, Eq, Hash, Debug)]
pub struct Sums {
    /// RTRs that were used, and RTRs in vain. Of the latter, so many were void.
    pub used: u32,
    pub in_vain: u32,
    pub voided: u32,
    /// Receives that sent no RTR because of a pause, and pauses that began.
    pub suppressed: u32,
    pub pauses: u32,
}

/// How an RTR ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum End {
    /// Its message made use of it.
    Used,
    /// Its message took another way.
    Unused,
    /// It was taken back, or its sender had dropped it: a reset, or *stop-RTR*.
    Voided,
}

#[derive(Clone, Copy, Hash, Debug)]
struct Entry {
    /// Share of the last RTRs that were used, a moving average.
    factor: u32,
    /// Receives still to go without RTR.
    pause: u32,
    next_pause: u32,
    sums: Sums,
}

impl Entry {
    const NEW: Entry = Entry { factor: ONE, pause: 0, next_pause: PAUSE_MIN, sums: Sums { used: 0, in_vain: 0, voided: 0, suppressed: 0, pauses: 0 } };

    /// Whether a receive may send an RTR. Counts the receive.
    fn allows(&mut self) -> bool {
        let allowed = self.pause == 0;
        if !allowed {
            self.pause -= 1;
            add(&mut self.sums.suppressed);
        }
        allowed
    }

    /// Whether a pause begins.
    fn learn(&mut self, end: End, threshold: u32) -> bool {
        let used = end == End::Used;
        add(if used { &mut self.sums.used } else { &mut self.sums.in_vain });
        if end == End::Voided {
            add(&mut self.sums.voided);
        }
        self.factor = self.factor - self.factor / 8 + if used { ONE / 8 } else { 0 };
        if self.factor < threshold {
            self.pause = self.next_pause;
            self.next_pause = (self.next_pause * 2).min(PAUSE_MAX);
            // After the pause, the next one in vain begins another.
            self.factor = threshold + ONE / 64;
            add(&mut self.sums.pauses);
            return true;
        }
        if used {
            // The way back: two in a row make the next pause short again.
            self.next_pause = (self.next_pause / 2).max(PAUSE_MIN);
        }
        false
    }
}

fn add(sum: &mut u32) {
    *sum = sum.saturating_add(1);
}

/// Whether receives may be announced.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Speculation {
    Off,
    /// Without adaptation.
    Always,
    #[default]
    Adaptive,
}

/// The usage factors of one process' receives.
#[derive(Clone, Debug)]
pub struct Usage {
    speculation: Speculation,
    threshold: u32,
    envelopes: Recent<Envelope, Entry>,
    /// For envelopes that are not in the table: what the first RTRs of others came to.
    origins: Recent<Origin, Entry>,
}

impl Usage {
    /// `threshold_percent`: RTRs of an envelope pause while fewer are used (the paper's 80).
    pub fn new(speculation: Speculation, threshold_percent: u32) -> Usage {
        Usage { speculation, threshold: ONE * threshold_percent.min(100) / 100, envelopes: Recent::new(ENVELOPES_MAX), origins: Recent::new(ENVELOPES_MAX) }
    }

    /// Feeds `hasher` with what decides which receives may send an RTR.
    pub fn hash_state(&self, hasher: &mut impl Hasher) {
        if self.speculation == Speculation::Adaptive {
            self.envelopes.iter().for_each(|entry| entry.hash(hasher));
            self.origins.iter().for_each(|entry| entry.hash(hasher));
        }
    }

    pub fn speculation(&self) -> Speculation {
        self.speculation
    }

    /// Whether a receive of this envelope should send an RTR. Counts the receive.
    pub fn allows(&mut self, envelope: Envelope) -> bool {
        match self.speculation {
            Speculation::Off => false,
            Speculation::Always => true,
            Speculation::Adaptive => match self.envelopes.find(&envelope) {
                Some(entry) => entry.allows(),
                None => self.origins.find(&origin(envelope)).is_none_or(Entry::allows),
            },
        }
    }

    /// How an RTR of this envelope ended. Returns whether a pause begins by that.
    pub fn learn(&mut self, envelope: Envelope, end: End) -> bool {
        if self.speculation == Speculation::Off {
            return false;
        }
        // Without adaptation no pause can begin; the sums are told all the same.
        let threshold = if self.speculation == Speculation::Adaptive { self.threshold } else { 0 };
        let (entry, new) = self.envelopes.find_or_insert(envelope, || Entry::NEW);
        let mut paused = entry.learn(end, threshold);
        if new {
            paused |= self.origins.find_or_insert(origin(envelope), || Entry::NEW).0.learn(end, threshold);
        }
        paused
    }

    /// What came of the RTRs of the envelopes that are remembered, in no particular order.
    pub fn sums(&self) -> impl Iterator<Item = (Envelope, Sums)> {
        self.envelopes.iter().map(|(envelope, entry)| (*envelope, entry.sums))
    }

    /// The same for new envelopes by context and source: the first RTR of each, and the receives that sent none.
    pub fn sums_of_new(&self) -> impl Iterator<Item = ((u64, u32), Sums)> {
        self.origins.iter().map(|(origin, entry)| (*origin, entry.sums))
    }
}

fn origin(envelope: Envelope) -> Origin {
    (envelope.0, envelope.1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const E: Envelope = (1, 2, 3);

    fn end(used: bool) -> End {
        if used { End::Used } else { End::Unused }
    }

    /// RTRs sent in `receives` receives of which the sender uses those that `used` says.
    fn sent(usage: &mut Usage, receives: u32, mut used: impl FnMut(u32) -> bool) -> u32 {
        (0..receives)
            .filter(|i| {
                let allowed = usage.allows(E);
                if allowed {
                    usage.learn(E, end(used(*i)));
                }
                allowed
            })
            .count() as u32
    }

    /// The same, where each receive has a tag of its own.
    fn sent_with_new_tags(usage: &mut Usage, tags: std::ops::Range<i32>, end: End) -> usize {
        tags.filter(|&tag| {
            let allowed = usage.allows((1, 2, tag));
            if allowed {
                usage.learn((1, 2, tag), end);
            }
            allowed
        })
        .count()
    }

    #[test]
    fn what_is_used_goes_on() {
        let mut usage = Usage::new(Speculation::Adaptive, 80);
        assert_eq!(sent(&mut usage, 1000, |_| true), 1000);
        // One in eight in vain is above the threshold.
        assert_eq!(sent(&mut usage, 1000, |i| i % 8 != 0), 1000);
    }

    #[test]
    fn what_is_in_vain_nearly_stops() {
        let mut usage = Usage::new(Speculation::Adaptive, 80);
        assert!(sent(&mut usage, 100_000, |_| false) < 60);
        // Half of them used: below the threshold.
        let mut usage = Usage::new(Speculation::Adaptive, 80);
        assert!(sent(&mut usage, 10_000, |i| i % 2 == 0) < 2_000);
    }

    #[test]
    fn there_is_a_way_back() {
        let mut usage = Usage::new(Speculation::Adaptive, 80);
        sent(&mut usage, 1000, |_| false);
        sent(&mut usage, 5000, |_| true);
        assert_eq!(sent(&mut usage, 1000, |_| true), 1000);
    }

    #[test]
    fn new_tags_in_vain_nearly_stop_and_used_ones_go_on() {
        for end in [End::Unused, End::Voided] {
            let mut usage = Usage::new(Speculation::Adaptive, 80);
            assert!(sent_with_new_tags(&mut usage, 0..100_000, end) < 60);
            // Another source has not shown anything yet.
            assert!(usage.allows((1, 9, 0)) && usage.allows((2, 2, 0)));
            // There is a way back for new tags, too.
            sent_with_new_tags(&mut usage, 100_000..110_000, End::Used);
            assert_eq!(sent_with_new_tags(&mut usage, 110_000..111_000, End::Used), 1000);
        }
    }

    #[test]
    fn an_envelope_of_its_own_does_not_pause_with_the_new_ones() {
        let mut usage = Usage::new(Speculation::Adaptive, 80);
        assert!(usage.allows((1, 2, 7)));
        usage.learn((1, 2, 7), End::Used);
        for round in 0..1000 {
            sent_with_new_tags(&mut usage, 1000 + 100 * round..1100 + 100 * round, End::Unused);
            assert!(usage.allows((1, 2, 7)), "round {round}");
            usage.learn((1, 2, 7), End::Used);
        }
        let sums = usage.sums().find(|(envelope, _)| *envelope == (1, 2, 7)).map(|(_, sums)| sums);
        assert_eq!(sums, Some(Sums { used: 1001, ..Sums::default() }));
        let (_, new) = usage.sums_of_new().next().unwrap();
        assert!(new.pauses > 0 && new.suppressed > 90_000 && new.in_vain < 60, "{new:?}");
    }

    #[test]
    fn envelopes_are_apart() {
        let mut usage = Usage::new(Speculation::Adaptive, 80);
        usage.learn((1, 2, 4), End::Used);
        sent(&mut usage, 100, |_| false);
        assert!(usage.allows((1, 2, 4)));
    }

    #[test]
    fn switches_hold() {
        assert_eq!(sent(&mut Usage::new(Speculation::Off, 80), 100, |_| true), 0);
        assert_eq!(sent(&mut Usage::new(Speculation::Always, 80), 100, |_| false), 100);
    }

    proptest! {
        /// Full tables forget what was used the longest ago, and nothing else: an envelope in use keeps its pause, whatever
        /// else comes, as long as fewer others than the table holds come between two of its receives.
        #[test]
        fn a_full_table_keeps_what_is_in_use(others in prop::collection::vec(1..ENVELOPES_MAX, 1..6)) {
            let mut usage = Usage::new(Speculation::Adaptive, 80);
            usage.learn(E, End::Unused);
            usage.envelopes.find(&E).unwrap().pause = PAUSE_MAX;
            let mut tag = 100;
            for count in others {
                for _ in 0..count {
                    usage.learn((1, 2, tag), End::Used);
                    tag += 1;
                }
                prop_assert!(!usage.allows(E));
                prop_assert!(usage.sums().count() <= ENVELOPES_MAX);
            }
        }
    }
}
