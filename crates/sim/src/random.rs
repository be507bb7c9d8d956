//! Seeded randomness (SplitMix64: Steele, Lea, Flood, "Fast splittable pseudorandom number generators", 2014).

#[derive(Clone, Debug)]
pub struct Random(u64);

/// A well mixed function of one word.
pub fn mix(word: u64) -> u64 {
    let word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    word ^ (word >> 31)
}

impl Random {
    pub fn new(seed: u64) -> Random {
        Random(mix(seed ^ 0x9e37_79b9_7f4a_7c15))
    }

    pub fn word(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        mix(self.0)
    }

    /// 0 to `end - 1`; `end` is not 0.
    pub fn below(&mut self, end: u64) -> u64 {
        ((self.word() as u128 * end as u128) >> 64) as u64
    }

    pub fn between(&mut self, first: u64, last: u64) -> u64 {
        first + self.below(last - first + 1)
    }

    /// True `ppm` times in a million.
    pub fn chance(&mut self, ppm: u32) -> bool {
        ppm > 0 && self.below(1_000_000) < ppm as u64
    }

    pub fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[self.below(from.len() as u64) as usize]
    }
}
