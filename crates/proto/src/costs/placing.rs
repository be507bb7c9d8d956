//! With which stores does what comes go to its place, where more of it is on its way than the caches hold?
//!
//! Ordinary stores fetch each line from memory first, and bring it back there once the caches are full; streaming stores do neither. Which of the two is
//! faster depends on the processor, and on how many others share its memory: both are tried, and timed.

/// What a time counts for, beside those before it: one part in so many.
const PART: u64 = 8;
/// Whatever disturbs a copy counts as so many times of what it took before at most; and what was taken for the mean, as so many times of what one takes now.
const DISTURBED: u64 = 2;
/// Copies with each before there is a choice; and the next trial of the other one comes after so many.
const FIRST: u32 = 8;
const PERIOD: u32 = 64;

/// Times of a KiB, ps; 0: none yet.
#[derive(Clone, Copy, Default, Debug)]
pub struct Placing {
    ordinary: u64,
    streaming: u64,
    copies: u32,
}

impl Placing {
    /// Whether the next copy should be made by streaming stores.
    pub fn streams(&mut self) -> bool {
        self.copies = self.copies.wrapping_add(1);
        if self.copies <= 2 * FIRST {
            return self.copies.is_multiple_of(2);
        }
        let better = self.streaming < self.ordinary;
        if self.copies.is_multiple_of(PERIOD) { !better } else { better }
    }

    /// A copy of `bytes` took `ns`.
    pub fn took(&mut self, streaming: bool, bytes: u64, ns: u64) {
        let ps = ((1000 * ns.min(1 << 40)).saturating_mul(1024) / bytes.max(1)).max(1);
        let mean = if streaming { &mut self.streaming } else { &mut self.ordinary };
        *mean = if *mean == 0 { ps } else { ((*mean).min(DISTURBED * ps) * (PART - 1) + ps.min(DISTURBED * *mean)).div_ceil(PART) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Of so many copies, those by streaming stores.
    fn play(placing: &mut Placing, copies: u32, mut ns: impl FnMut(bool) -> u64) -> u32 {
        let mut streamed = 0;
        for _ in 0..copies {
            let streaming = placing.streams();
            placing.took(streaming, 8 << 10, ns(streaming));
            streamed += streaming as u32;
        }
        streamed
    }

    proptest! {
        /// Though one copy of every eight is disturbed, unless both are about equally good.
        #[test]
        fn the_faster_stores_are_taken(ordinary_ns in 100..10_000u64, streaming_ns in 100..10_000u64, seed: u64) {
            let mut random = seed | 1;
            let streamed = play(&mut Placing::default(), 1000, |streaming| {
                random ^= random << 13;
                random ^= random >> 7;
                random ^= random << 17;
                let ns = if streaming { streaming_ns } else { ordinary_ns };
                if random.is_multiple_of(8) { ns * (1 + random / 8 % 10) } else { ns }
            });
            if 3 * streaming_ns < ordinary_ns {
                prop_assert!(streamed > 900, "{streamed}");
            } else if streaming_ns > 3 * ordinary_ns {
                prop_assert!(streamed < 100, "{streamed}");
            }
        }
    }

    #[test]
    fn a_change_is_followed() {
        let mut placing = Placing::default();
        assert!(play(&mut placing, 1000, |streaming| if streaming { 500 } else { 1000 }) > 950);
        assert!(play(&mut placing, 4000, |streaming| if streaming { 1500 } else { 1000 }) < 1000);
        assert!(play(&mut placing, 1000, |streaming| if streaming { 1500 } else { 1000 }) < 50);
    }
}
