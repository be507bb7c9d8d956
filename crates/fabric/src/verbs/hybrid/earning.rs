//! Which peers have a connection: those whose traffic has earned it of late.
//!
//! A message counts 1, and as much again for each 8 KiB of it; one that has to be fetched counts 16 more. What a peer has earned halves with each period, so that it is
//! a measure of the last ones. A connection is made for what [`Earning::price`] says, and goes back below an eighth of that: a peer at the edge does not get and
//! lose it again and again. After one that has broken the next one waits, longer each time.

/// Bytes of a message that count as much as the message itself, and how many of these count at most.
const STEP_BYTES: u64 = 8 << 10;
const STEPS_MAX: u64 = 128;
/// What a message counts beside that has to be fetched.
pub const FETCH: u32 = 16;
/// What is kept costs this part of what is new.
const KEPT_PART: u32 = 8;
/// Nobody has more than so many prices: who stops sending loses a connection soon.
const PRICES_MAX: u32 = 4;
/// After a connection that broke, the next one waits for one period, then for twice as many each time, up to two to the power of this.
const BREAKS_MAX: u32 = 7;

/// What holds for all peers.
#[derive(Clone, Copy, Debug)]
pub struct Earning {
    pub price: u32,
    pub period_ns: u64,
}

/// One peer's.
#[derive(Clone, Copy, Default, Debug)]
pub struct Earned {
    weight: u32,
    period: u32,
    breaks: u32,
    /// No connection is made before.
    until_ns: u64,
}

impl Earning {
    fn period(&self, now_ns: u64) -> u32 {
        (now_ns / self.period_ns) as u32
    }
}

impl Earned {
    /// What is left of it now.
    pub fn weight(&self, earning: &Earning, now_ns: u64) -> u32 {
        self.weight.checked_shr(earning.period(now_ns).wrapping_sub(self.period)).unwrap_or(0)
    }

    /// A message of `bytes` has gone or come. Whether it is time for a connection.
    #[inline]
    pub fn add(&mut self, earning: &Earning, now_ns: u64, bytes: u64, more: u32) -> bool {
        self.weight = (self.weight(earning, now_ns) + 1 + more + (bytes / STEP_BYTES).min(STEPS_MAX) as u32).min(earning.price.saturating_mul(PRICES_MAX));
        self.period = earning.period(now_ns);
        self.weight >= earning.price && self.may_begin(now_ns)
    }

    /// Whether a connection may be made, if it is wanted.
    pub fn may_begin(&self, now_ns: u64) -> bool {
        now_ns >= self.until_ns
    }

    /// Whether a connection stays.
    pub fn keeps(&self, earning: &Earning, now_ns: u64) -> bool {
        self.weight(earning, now_ns) >= earning.price.div_ceil(KEPT_PART)
    }

    /// A connection has broken.
    pub fn broke(&mut self, earning: &Earning, now_ns: u64) {
        self.until_ns = now_ns + (earning.period_ns << self.breaks);
        self.breaks = (self.breaks + 1).min(BREAKS_MAX);
    }

    /// There is none to be had now.
    pub fn refused(&mut self, earning: &Earning, now_ns: u64) {
        self.until_ns = now_ns + earning.period_ns;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const EARNING: Earning = Earning { price: 64, period_ns: 1000 };

    /// Messages of `bytes` that it takes, all at `now_ns`.
    fn messages(one: &mut Earned, now_ns: u64, bytes: u64, more: u32) -> u32 {
        1 + (0..1000).take_while(|_| !one.add(&EARNING, now_ns, bytes, more)).count() as u32
    }

    #[test]
    fn messages_bytes_and_fetches_count() {
        assert_eq!(messages(&mut Earned::default(), 0, 8, 0), 64);
        assert_eq!(messages(&mut Earned::default(), 0, 8 << 10, 0), 32);
        assert_eq!(messages(&mut Earned::default(), 0, 0, FETCH), 4);
        assert_eq!(messages(&mut Earned::default(), 0, 1 << 30, 0), 1);
    }

    /// A peer that sends a little less than it takes, in each period, never gets one; and who has one keeps it with a good eighth of that.
    #[test]
    fn what_was_earned_fades_and_what_one_has_stays() {
        let mut one = Earned::default();
        for period in 0..100 {
            assert!((0..31).all(|_| !one.add(&EARNING, 1000 * period, 8, 0)), "in period {period}");
        }
        messages(&mut one, 100_000, 8, 0);
        for period in 101..200 {
            assert!(one.keeps(&EARNING, 1000 * period), "in period {period}");
            (0..9).for_each(|_| _ = one.add(&EARNING, 1000 * period, 8, 0));
        }
        (0..1000).for_each(|_| _ = one.add(&EARNING, 200_000, 8, 0));
        assert!(one.keeps(&EARNING, 204_999) && !one.keeps(&EARNING, 206_000) && !one.keeps(&EARNING, 1 << 50), "nobody lives on the past for long");
    }

    #[test]
    fn breaks_make_the_next_one_wait() {
        let mut one = Earned::default();
        messages(&mut one, 0, 8, 0);
        let mut now_ns = 0;
        for breaks in 0..20 {
            one.broke(&EARNING, now_ns);
            let wait_ns = 1000 << u32::min(breaks, BREAKS_MAX);
            assert!(!one.may_begin(now_ns + wait_ns - 1) && one.may_begin(now_ns + wait_ns));
            now_ns += wait_ns;
        }
    }
}
