//! Which datagrams of a peer have been here: a window of the newest numbers; everything older is refused.

/// Numbers that are remembered behind the highest.
pub const REPLAY_WINDOW: u64 = 1024;
const WORDS: usize = (REPLAY_WINDOW / 64) as usize;

/// The window of one rail; the highest number itself lives with the peer, since it outlasts quiet times.
#[derive(Clone, Debug, Default)]
pub struct Replay {
    /// Bit `n % REPLAY_WINDOW`: number `n` has been here.
    seen: [u64; WORDS],
}

impl Replay {
    /// A window behind `highest` in which all counts as seen: it was forgotten which was.
    pub fn closed() -> Replay {
        Replay { seen: [u64::MAX; WORDS] }
    }

    /// Whether `number` is new; notes it.
    pub fn fresh(&mut self, highest: &mut u64, number: u64) -> bool {
        let (word, bit) = ((number / 64) as usize % WORDS, 1u64 << (number % 64));
        if number > *highest {
            if number - *highest >= REPLAY_WINDOW {
                self.seen = [0; WORDS];
            } else {
                for skipped in *highest + 1..number {
                    self.seen[(skipped / 64) as usize % WORDS] &= !(1 << (skipped % 64));
                }
            }
            *highest = number;
            self.seen[word] |= bit;
            return true;
        }
        if *highest - number >= REPLAY_WINDOW || self.seen[word] & bit != 0 {
            return false;
        }
        self.seen[word] |= bit;
        true
    }

    /// Whether `count` numbers from `number` on are newer than all others; notes them.
    pub fn newer(&mut self, highest: &mut u64, number: u64, count: u32) -> bool {
        number > *highest && (number..number + count as u64).all(|number| self.fresh(highest, number))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// No number passes twice, and each one within the window passes once.
        #[test]
        fn once(steps in proptest::collection::vec((0u64..3000, 1u64..40), 1..400)) {
            let (mut replay, mut highest) = (Replay::closed(), 0);
            let mut passed = std::collections::HashSet::new();
            let mut top = 0u64;
            for (back, on) in steps {
                let number = (top + on).saturating_sub(back).max(1);
                let expected = !passed.contains(&number) && (number > top || top - number < REPLAY_WINDOW);
                prop_assert_eq!(replay.fresh(&mut highest, number), expected, "{} of {}", number, top);
                if expected {
                    passed.insert(number);
                }
                top = top.max(number);
                prop_assert_eq!(highest, top);
            }
        }
    }

    #[test]
    fn closed_refuses_what_was() {
        let (mut replay, mut highest) = (Replay::closed(), 100);
        assert!(!replay.fresh(&mut highest, 100) && !replay.fresh(&mut highest, 50));
        assert!(replay.fresh(&mut highest, 105) && replay.fresh(&mut highest, 102));
        assert!(!replay.fresh(&mut highest, 99));
    }
}
