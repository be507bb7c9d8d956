//! The least of the last few times of something: whatever disturbs it makes it longer.

/// The last `N` times, in units of the caller's, at least 1.
#[derive(Clone, Copy, Debug)]
pub struct Least<const N: usize> {
    /// The newest first; 0: none.
    last: [u32; N],
    least: u32,
}

impl<const N: usize> Default for Least<N> {
    fn default() -> Self {
        Least { last: [0; N], least: 0 }
    }
}

impl<const N: usize> Least<N> {
    pub fn learn(&mut self, time: u32) {
        self.last.rotate_right(1);
        self.last[0] = time;
        self.least = self.last.iter().copied().filter(|time| *time > 0).min().unwrap_or(0);
    }

    /// The least of those that there are.
    pub fn get(&self) -> Option<u64> {
        (self.least > 0).then_some(u64::from(self.least))
    }

    /// Whether there are at least `count` of them, which is at most `N`.
    pub fn has(&self, count: usize) -> bool {
        count == 0 || self.last[count - 1] > 0
    }
}
