//! Round-trip time of one peer on one rail (RFC 6298 §2, without its lower bound of a second).

/// Times in ns; 0 while nothing has been measured.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Rtt {
    smoothed_ns: u32,
    variation_ns: u32,
    /// The shortest of late, and of the time before.
    least_ns: u32,
    least_before_ns: u32,
}

impl Rtt {
    pub fn sample(&mut self, rtt_ns: u64) {
        let rtt_ns = rtt_ns.clamp(1, u32::MAX as u64 / 8) as u32;
        if self.smoothed_ns == 0 {
            let [least_ns, least_before_ns] = [rtt_ns; 2];
            *self = Rtt { smoothed_ns: rtt_ns, variation_ns: rtt_ns / 2, least_ns, least_before_ns };
            return;
        }
        let off_ns = self.smoothed_ns.abs_diff(rtt_ns);
        self.variation_ns = self.variation_ns - self.variation_ns / 4 + off_ns / 4;
        self.smoothed_ns = (self.smoothed_ns - self.smoothed_ns / 8 + rtt_ns / 8).max(1);
        self.least_ns = self.least_ns.min(rtt_ns);
    }

    /// Begins to forget the shortest: paths change.
    pub fn age(&mut self) {
        self.least_before_ns = std::mem::replace(&mut self.least_ns, self.smoothed_ns);
    }

    /// Smoothed, or `initial_ns` while nothing has been measured.
    pub fn smoothed_ns(&self, initial_ns: u64) -> u64 {
        if self.smoothed_ns == 0 { initial_ns } else { self.smoothed_ns as u64 }
    }

    pub fn variation_ns(&self) -> u64 {
        self.variation_ns as u64
    }

    pub fn least_ns(&self) -> u64 {
        self.least_ns.min(self.least_before_ns) as u64
    }

    /// Silence for longer than this wants an answer, apart from the peer's delay of acknowledgements.
    pub fn timeout_ns(&self, initial_ns: u64) -> u64 {
        if self.smoothed_ns == 0 { 2 * initial_ns } else { self.smoothed_ns as u64 + 4 * self.variation_ns as u64 }
    }

    /// How much later than its successors a packet may come and still not be lost.
    pub fn reordering_ns(&self, initial_ns: u64) -> u64 {
        (self.smoothed_ns(initial_ns) / 4).max(self.variation_ns() * 2)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn follows_the_samples() {
        let mut rtt = Rtt::default();
        assert_eq!(rtt.timeout_ns(1000), 2000);
        rtt.sample(8000);
        assert_eq!((rtt.smoothed_ns(1), rtt.timeout_ns(1)), (8000, 24000));
        for _ in 0..200 {
            rtt.sample(16000);
        }
        assert!(rtt.smoothed_ns(1).abs_diff(16000) < 100);
        assert!(rtt.timeout_ns(1) < 17000);
        assert_eq!(rtt.least_ns(), 8000);
        rtt.age();
        assert_eq!(rtt.least_ns(), 8000);
        rtt.age();
        assert!(rtt.least_ns() > 15900);
        rtt.sample(u64::MAX);
        rtt.sample(0);
        assert_eq!(rtt.least_ns(), 1);
    }
}
