//! Does speculation pay? The RTR usage factor of each envelope (§3.6 of the paper), which learns and forgets.

use rustc_hash::FxHashMap;

/// Envelopes that are remembered; past that, all are forgotten.
const ENVELOPES_MAX: usize = 1024;
/// A factor of one.
const ONE: u32 = 1 << 16;
/// Receives without an RTR before speculation is tried again: at first, and at most.
const PAUSE_MIN: u32 = 16;
const PAUSE_MAX: u32 = 4096;

/// Whom a receive names: context, source and tag (any tag has a number of its own).
pub type Envelope = (u64, u32, i32);

#[derive(Clone, Copy, Debug)]
struct Entry {
    /// Share of the last RTRs that were used, a moving average.
    factor: u32,
    /// Receives still to go without RTR.
    pause: u32,
    next_pause: u32,
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
#[derive(Debug)]
pub struct Usage {
    speculation: Speculation,
    threshold: u32,
    entries: FxHashMap<Envelope, Entry>,
}

impl Usage {
    /// `threshold_percent`: RTRs of an envelope pause while fewer are used (the paper's 80).
    pub fn new(speculation: Speculation, threshold_percent: u32) -> Usage {
        Usage { speculation, threshold: ONE * threshold_percent.min(100) / 100, entries: FxHashMap::default() }
    }

    pub fn speculation(&self) -> Speculation {
        self.speculation
    }

    /// Whether a receive of this envelope should send an RTR. Counts the receive.
    pub fn allows(&mut self, envelope: Envelope) -> bool {
        match self.speculation {
            Speculation::Off => false,
            Speculation::Always => true,
            Speculation::Adaptive => match self.entries.get_mut(&envelope) {
                Some(entry) if entry.pause > 0 => {
                    entry.pause -= 1;
                    false
                }
                _ => true,
            },
        }
    }

    /// An RTR of this envelope was used by its sender, or was sent in vain.
    pub fn learn(&mut self, envelope: Envelope, used: bool) {
        if self.speculation != Speculation::Adaptive {
            return;
        }
        if self.entries.len() >= ENVELOPES_MAX && !self.entries.contains_key(&envelope) {
            self.entries.clear();
        }
        let entry = self.entries.entry(envelope).or_insert(Entry { factor: ONE, pause: 0, next_pause: PAUSE_MIN });
        entry.factor = entry.factor - entry.factor / 8 + if used { ONE / 8 } else { 0 };
        if entry.factor < self.threshold {
            entry.pause = entry.next_pause;
            entry.next_pause = (entry.next_pause * 2).min(PAUSE_MAX);
            // After the pause, the next one in vain begins another.
            entry.factor = self.threshold + ONE / 64;
        } else if used {
            // The way back: two in a row make the next pause short again.
            entry.next_pause = (entry.next_pause / 2).max(PAUSE_MIN);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const E: Envelope = (1, 2, 3);

    /// RTRs sent in `receives` receives of which the sender uses those that `used` says.
    fn sent(usage: &mut Usage, receives: u32, mut used: impl FnMut(u32) -> bool) -> u32 {
        (0..receives)
            .filter(|i| {
                let allowed = usage.allows(E);
                if allowed {
                    usage.learn(E, used(*i));
                }
                allowed
            })
            .count() as u32
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
    fn envelopes_are_apart_and_bounded() {
        let mut usage = Usage::new(Speculation::Adaptive, 80);
        sent(&mut usage, 100, |_| false);
        assert!(usage.allows((1, 2, 4)));
        for tag in 0..10 * ENVELOPES_MAX as i32 {
            usage.learn((9, 9, tag), false);
        }
        assert!(usage.entries.len() <= ENVELOPES_MAX);
    }

    #[test]
    fn switches_hold() {
        assert_eq!(sent(&mut Usage::new(Speculation::Off, 80), 100, |_| true), 0);
        assert_eq!(sent(&mut Usage::new(Speculation::Always, 80), 100, |_| false), 100);
    }
}
