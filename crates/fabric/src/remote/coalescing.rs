//! Coalescing: short messages that have been sent wait a little, and what the program sends next may share their datagrams.

/// Short messages that wait at the same time to share datagrams, their bytes, and how long, ns, while the program sends on.
const WAITING_MAX: u32 = 32;
const WAITING_BYTES_MAX: usize = 8 << 10;
const WAITING_NS: u64 = 10_000;
/// Messages that have waited for longer have waited in vain, unless their process just lost its core: after two such waits with few others
/// between them, so many sends leave at once.
const LATE_NS: u64 = 50_000;
const LATE_WEIGHT: u32 = 16;
const AT_ONCE: u32 = 32;
/// Short messages that have been sent and have not left: what the program sends next may share their datagrams.
#[derive(Default)]
pub(super) struct Coalescing {
    /// Somebody lets them leave if the program computes.
    allowed: bool,
    messages: u32,
    bytes: usize,
    since_ns: u64,
    /// How much of late has waited in vain; and sends that leave at once, since it did not pay.
    late: u32,
    at_once: u32,
}

impl Coalescing {
    /// Whether messages may wait.
    pub fn allow(&mut self, allowed: bool) {
        self.allowed = allowed;
    }

    /// What waited has left, and does not count as having waited in vain.
    #[inline]
    pub fn none_waits(&mut self) {
        self.messages = 0;
    }

    /// Whether one more message waits, after something that `unanswered` says is still under way.
    pub fn add(&mut self, bytes: usize, unanswered: bool, now_ns: u64) -> bool {
        if !self.allowed || !unanswered {
            return false;
        }
        if self.at_once > 0 {
            self.at_once -= 1;
            return false;
        }
        if self.messages == 0 {
            (self.since_ns, self.bytes) = (now_ns, 0);
        }
        self.messages += 1;
        self.bytes += bytes;
        self.messages < WAITING_MAX && self.bytes < WAITING_BYTES_MAX && now_ns < self.since_ns + WAITING_NS
    }

    /// All of them leave.
    pub fn end(&mut self, now_ns: u64) {
        if std::mem::take(&mut self.messages) == 0 {
            return;
        }
        if now_ns <= self.since_ns + LATE_NS {
            self.late = self.late.saturating_sub(1);
            return;
        }
        self.late += LATE_WEIGHT;
        if self.late > LATE_WEIGHT {
            (self.late, self.at_once) = (LATE_WEIGHT / 2, AT_ONCE);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn allowed() -> Coalescing {
        Coalescing { allowed: true, ..Coalescing::default() }
    }

    #[test]
    fn messages_wait_for_so_many_so_much_and_so_long() {
        assert!(!allowed().add(8, false, 0), "nothing is under way");
        assert!(!Coalescing::default().add(8, true, 0), "nobody would let it leave");
        let mut many = allowed();
        assert_eq!((0..100).take_while(|_| many.add(8, true, 5)).count(), WAITING_MAX as usize - 1);
        many.end(5);
        assert!(many.add(8, true, 6), "the next ones wait again");
        let mut much = allowed();
        assert_eq!((0..100).take_while(|_| much.add(1000, true, 5)).count(), WAITING_BYTES_MAX / 1000);
        let mut long = allowed();
        assert!(long.add(8, true, 5) && long.add(8, true, 4 + WAITING_NS) && !long.add(8, true, 5 + WAITING_NS));
    }

    #[test]
    fn what_waits_in_vain_waits_no_more() {
        let mut one = allowed();
        let mut wait = |for_ns| {
            let waits = one.add(8, true, 0);
            one.end(for_ns);
            waits
        };
        assert!(wait(LATE_NS + 1));
        (0..LATE_WEIGHT).for_each(|_| assert!(wait(LATE_NS)));
        assert!(wait(LATE_NS + 1), "the first was long ago");
        assert!(wait(LATE_NS + 1));
        (0..AT_ONCE).for_each(|_| assert!(!wait(LATE_NS + 1)));
        assert!(wait(0), "it is tried again");
    }
}
