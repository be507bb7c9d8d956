//! How much a sender may leave at a receiver that has not asked for it (bounded unexpected messages).
//!
//! Each message costs its bytes plus [`OVERHEAD_BYTES`] of the receiver's memory until it is matched. The sender counts
//! what it has sent, the receiver what it has released; both only ever add, so that a lost update of
//! the released count delays, and never corrupts. Past the allowance a message goes as a header only, past
//! the allowance for headers the sender holds it back.

/// What one queued message costs the receiver besides its payload.
pub const OVERHEAD_BYTES: u64 = 128;

/// A message of at most so many bytes costs its receiver little more than its header would, and less than to fetch it later.
pub const SHORT_BYTES_MAX: u64 = OVERHEAD_BYTES;

/// How a message may leave.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Allowed {
    /// With its payload.
    Eager,
    /// As a header; the payload is fetched when it is matched.
    Header,
    /// Not now.
    Wait,
}

/// The sender's account with one receiver.
#[derive(Clone, Hash, Debug)]
pub struct Credits {
    sent_bytes: u64,
    released_bytes: u64,
    eager_bytes_max: u64,
    header_bytes_max: u64,
}

impl Credits {
    /// `eager_bytes_max`: payloads and overheads outstanding at once. Headers may go on past it, up to `header_bytes_max`
    /// (each counted as [`OVERHEAD_BYTES`]).
    pub fn new(eager_bytes_max: u64, header_bytes_max: u64) -> Credits {
        Credits { sent_bytes: 0, released_bytes: 0, eager_bytes_max, header_bytes_max: header_bytes_max.max(eager_bytes_max) }
    }

    /// What the receiver has not released, bytes.
    #[inline]
    pub fn outstanding_bytes(&self) -> u64 {
        self.sent_bytes - self.released_bytes
    }

    /// Whether a message of `bytes` may go with its payload; counts it if so.
    #[inline]
    pub fn take_eager(&mut self, bytes: u64) -> bool {
        let after = self.outstanding_bytes() + bytes + OVERHEAD_BYTES;
        if after <= self.eager_bytes_max {
            self.sent_bytes += bytes + OVERHEAD_BYTES;
            return true;
        }
        false
    }

    /// Whether a message of at most [`SHORT_BYTES_MAX`] may go with its payload where only headers still may; counts it if so.
    #[inline]
    pub fn take_short(&mut self, bytes: u64) -> bool {
        let cost = bytes + OVERHEAD_BYTES;
        let fits = bytes <= SHORT_BYTES_MAX && self.outstanding_bytes() + cost <= self.header_bytes_max;
        if fits {
            self.sent_bytes += cost;
        }
        fits
    }

    /// Whether a header may go; counts it if so.
    #[inline]
    pub fn take_header(&mut self) -> bool {
        if self.outstanding_bytes() + OVERHEAD_BYTES <= self.header_bytes_max {
            self.sent_bytes += OVERHEAD_BYTES;
            return true;
        }
        false
    }

    /// How a message of `bytes` may leave now; counts it.
    pub fn take(&mut self, bytes: u64) -> Allowed {
        if self.take_eager(bytes) {
            Allowed::Eager
        } else if self.take_header() {
            Allowed::Header
        } else {
            Allowed::Wait
        }
    }

    /// How a message of `bytes`, which [`Credits::take`] has allowed a header, leaves: with its payload where that is short enough to cost its receiver
    /// less than to fetch it later.
    pub fn payload_instead(&mut self, bytes: u64) -> Allowed {
        self.put_back(0);
        if self.take_short(bytes) {
            return Allowed::Eager;
        }
        let header = self.take_header();
        debug_assert!(header, "what was put back can be taken again");
        Allowed::Header
    }

    /// Undoes a `take`: the message did not leave after all.
    #[inline]
    pub fn put_back(&mut self, bytes: u64) {
        self.sent_bytes -= bytes + OVERHEAD_BYTES;
    }

    /// The receiver says that it has released `total_bytes` since the start. A count that goes backwards or
    /// past what was sent is refused.
    pub fn released(&mut self, total_bytes: u64) -> bool {
        if total_bytes < self.released_bytes || total_bytes > self.sent_bytes {
            return false;
        }
        self.released_bytes = total_bytes;
        true
    }

    /// The receiver waits for a message that may be held back here: more headers may go.
    /// Memory still grows no faster than the sender's own requests.
    pub fn widen(&mut self) {
        self.header_bytes_max = self.header_bytes_max.saturating_mul(2);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// Whatever is sent and released, what lies at the receiver stays within the allowances.
        #[test]
        fn never_past_the_allowance(sizes in proptest::collection::vec((0u64..5000, any::<bool>()), 1..400)) {
            let (eager_max, header_max) = (20_000, 40_000);
            let mut credits = Credits::new(eager_max, header_max);
            let (mut at_receiver, mut released) = (std::collections::VecDeque::new(), 0);
            for (bytes, consume) in sizes {
                let before = credits.outstanding_bytes();
                if credits.clone().take_eager(bytes) || !credits.take_short(bytes) {
                    prop_assert_eq!(credits.outstanding_bytes(), before);
                } else {
                    at_receiver.push_back(bytes + OVERHEAD_BYTES);
                    continue;
                }
                let mut how = credits.take(bytes);
                if how == Allowed::Header && bytes % 2 == 0 {
                    how = credits.payload_instead(bytes);
                    prop_assert!(how == Allowed::Header || bytes <= SHORT_BYTES_MAX);
                }
                match how {
                    Allowed::Eager => at_receiver.push_back(bytes + OVERHEAD_BYTES),
                    Allowed::Header => at_receiver.push_back(OVERHEAD_BYTES),
                    Allowed::Wait => {}
                }
                let held: u64 = at_receiver.iter().sum();
                prop_assert_eq!(held, credits.outstanding_bytes());
                prop_assert!(held <= header_max);
                if consume && let Some(cost) = at_receiver.pop_front() {
                    released += cost;
                    prop_assert!(credits.released(released));
                }
            }
            // Everything released: the account is whole again.
            released += at_receiver.iter().sum::<u64>();
            prop_assert!(credits.released(released));
            prop_assert_eq!(credits.take(eager_max - OVERHEAD_BYTES), Allowed::Eager);
        }
    }

    #[test]
    fn a_short_message_keeps_its_payload_where_only_headers_may_go() {
        let mut credits = Credits::new(OVERHEAD_BYTES + 8, 4 * OVERHEAD_BYTES + 8);
        assert_eq!(credits.take(8), Allowed::Eager);
        assert_eq!(credits.take(8), Allowed::Header);
        assert_eq!(credits.payload_instead(8), Allowed::Eager);
        assert_eq!(credits.outstanding_bytes(), 2 * OVERHEAD_BYTES + 16);
        assert_eq!(credits.take(SHORT_BYTES_MAX + 1), Allowed::Header);
        assert_eq!(credits.payload_instead(SHORT_BYTES_MAX + 1), Allowed::Header);
        assert_eq!(credits.outstanding_bytes(), 3 * OVERHEAD_BYTES + 16);
        assert_eq!(credits.take(8), Allowed::Wait);
    }

    #[test]
    fn refuses_counts_that_cannot_be() {
        let mut credits = Credits::new(1000, 1000);
        assert_eq!(credits.take(10), Allowed::Eager);
        assert!(!credits.released(139));
        assert!(credits.released(138));
        assert!(!credits.released(137));
    }
}
