//! How the sender's pieces of a copy that both sides do should go: through the ring, or by the system from memory to memory.
//!
//! Through the ring each byte is copied twice, by both sides at the same time, without a system call; the system copies it once, one side this piece and the
//! other side that one. So the ring is the faster way where a piece takes less than half as long to pass there; and in an exchange, where each side puts
//! pieces in and takes others out, where both together take less than the system's copy. Which it is depends on what caches the two cores share, and on the
//! length of the message; no constant can know it. So both ways are tried, and timed piece by piece.

use super::least::Least;

/// A message of less than twice this is in the first class, of less than four times this in the second, and so on, bytes.
const CLASS_BYTES: u64 = 64 << 10;
const CLASSES: usize = 8;
/// Times that count for one way: the least of the last few, since whatever disturbs a copy makes it longer.
const LAST: usize = 16;
/// The ring is first tried with so many bytes on end: those before the last few make it grow, map its memory and bring it to the caches; and later with less.
/// The system's way is not faster later than at first.
const RING_FIRST_TRIAL_BYTES: u64 = 16 << 20;
const RING_TRIAL_BYTES: u64 = 4 << 20;
const SYSTEM_TRIAL_BYTES: u64 = 1 << 20;
/// A trial of the one or the other comes after so many bytes that went the better way, and so many messages; where the other takes so many times as long,
/// after as many times more.
const RING_PERIOD_BYTES: u64 = 1 << 30;
const SYSTEM_PERIOD_BYTES: u64 = 256 << 20;
const PERIOD_MESSAGES: u64 = 128;
/// The first periods are shorter, by half each: a program's first messages meet memory that it has not used before.
const SHORTER_PERIODS: u8 = 3;
const RARE_RATIO: u64 = 3;
const RARE: u64 = 8;
/// A trial in which so many pieces and messages have gone the other way, since one side was not there, is over. Those that were announced before it do.
const STRAYS_MAX: u32 = 256;
const STRAY_MESSAGES_MAX: u64 = 64;

/// After an exchange of a length so many messages of it are taken for parts of exchanges, too: the one of two that comes first does not show it.
const EXCHANGES: u8 = 8;

/// What was done with a piece, for as long as it took.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Done {
    /// It was put into the ring, or taken out while the other side put it in.
    Passed,
    /// It was taken out of the ring, where all of it was.
    Taken,
    /// The system copied it.
    Copied,
}

#[derive(Clone, Copy, Debug)]
struct Class {
    /// Which way is tried: through the ring or not.
    trial: Option<bool>,
    /// Bytes and pieces that went that way, or the better one, since the trial began or ended; and pieces that went the other way in it.
    bytes: u64,
    pieces: u32,
    strays: u32,
    stray_bytes: u64,
    exchanges: u8,
    /// Periods between trials that are over, as far as they were shorter.
    periods: u8,
    /// Times of a KiB, ps.
    passed: Least<LAST>,
    taken: Least<LAST>,
    system: Least<LAST>,
}

impl Class {
    /// What the ring takes beside the system's way, and what that takes, where both are known.
    fn known(&self, exchange: bool) -> Option<(u64, u64)> {
        let (passed, system) = (self.passed.get()?, self.system.get()?);
        let with = if exchange { self.taken.get().unwrap_or(passed) } else { passed };
        Some((passed + with, system))
    }

    fn best(&self, exchange: bool) -> bool {
        self.known(exchange).map_or(self.system.get().is_none(), |(ring, system)| ring <= system)
    }

    /// A piece of `bytes` of a message of `message_bytes` has gone through the ring, or not.
    fn went(&mut self, message_bytes: u64, through_ring: bool, bytes: u64) {
        let way = self.trial.unwrap_or_else(|| self.best(false));
        if through_ring == way {
            self.bytes += bytes;
            self.pieces = self.pieces.saturating_add(1);
        } else if self.trial.is_some() {
            self.strays += 1;
            self.stray_bytes += bytes;
        }
        let over = match self.trial {
            Some(way) => {
                let first = way && self.periods == 0;
                let bytes = if first {
                    RING_FIRST_TRIAL_BYTES
                } else if way {
                    RING_TRIAL_BYTES
                } else {
                    SYSTEM_TRIAL_BYTES
                };
                let enough = self.bytes >= bytes && self.pieces >= LAST as u32;
                enough || self.strays >= STRAYS_MAX && self.stray_bytes >= STRAY_MESSAGES_MAX * message_bytes
            }
            None => {
                let rare = self.known(false).is_some_and(|(ring, system)| ring.max(system) > RARE_RATIO * ring.min(system));
                let period = if way { SYSTEM_PERIOD_BYTES } else { RING_PERIOD_BYTES }.max(PERIOD_MESSAGES * message_bytes);
                let shorter = SHORTER_PERIODS - self.periods;
                self.bytes >= (period * if rare { RARE } else { 1 }) >> shorter
            }
        };
        if over {
            self.trial = match self.trial {
                // The first of all trials: then comes the system's way.
                Some(true) if self.system.get().is_none() => Some(false),
                Some(_) => None,
                None => {
                    self.periods = (self.periods + 1).min(SHORTER_PERIODS);
                    Some(!way)
                }
            };
            (self.bytes, self.pieces, self.strays, self.stray_bytes) = (0, 0, 0, 0);
        }
    }
}

impl Default for Class {
    fn default() -> Class {
        Class {
            trial: Some(true),
            bytes: 0,
            pieces: 0,
            strays: 0,
            stray_bytes: 0,
            exchanges: 0,
            periods: 0,
            passed: Least::default(),
            taken: Least::default(),
            system: Least::default(),
        }
    }
}

/// What pieces have taken, of messages from and to one process: about 1,800 bytes.
#[derive(Clone, Default, Debug)]
pub struct Pieces {
    classes: [Class; CLASSES],
}

impl Pieces {
    fn class(&mut self, message_bytes: u64) -> &mut Class {
        let class = (message_bytes / CLASS_BYTES).max(1).ilog2() as usize;
        &mut self.classes[class.min(CLASSES - 1)]
    }

    /// Whether the sender's pieces of the next message of about `message_bytes` should go through the ring. `exchange`: this side sends such a message at the
    /// same time.
    pub fn through_ring(&mut self, message_bytes: u64, exchange: bool) -> bool {
        let class = self.class(message_bytes);
        class.exchanges = if exchange { EXCHANGES } else { class.exchanges.saturating_sub(1) };
        class.trial.unwrap_or_else(|| class.best(class.exchanges > 0))
    }

    /// A piece of `bytes` of a message of `message_bytes` took `ns`.
    pub fn took(&mut self, message_bytes: u64, done: Done, bytes: u64, ns: u64) {
        let class = self.class(message_bytes);
        let way = match done {
            Done::Passed => &mut class.passed,
            Done::Taken => &mut class.taken,
            Done::Copied => &mut class.system,
        };
        let ps = (1000 * ns.min(1 << 40)).saturating_mul(1024) / bytes.max(1);
        way.learn(ps.clamp(1, u64::from(u32::MAX)) as u32);
        class.went(message_bytes, done != Done::Copied, bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Plays `messages` of one length in two pieces each; `cost` says what a piece takes, ns. Gives how many of the last half went through the ring.
    fn play(pieces: &mut Pieces, bytes: u64, messages: u32, mut cost: impl FnMut(bool) -> u64) -> u32 {
        let mut rings = 0;
        for number in 0..messages {
            let through_ring = pieces.through_ring(bytes, false);
            for _ in 0..2 {
                pieces.took(bytes, if through_ring { Done::Passed } else { Done::Copied }, bytes / 2, cost(through_ring));
            }
            rings += (through_ring && number >= messages / 2) as u32;
        }
        rings
    }

    #[test]
    fn the_ring_is_taken_where_it_takes_less_than_half_as_long() {
        for bytes in [65_537, 128 << 10, 1 << 20, 100 << 20] {
            let near = |ring| if ring { 1_100 } else { 5_000 };
            assert!(play(&mut Pieces::default(), bytes, 1000, near) >= 450);
            let apart = |ring| if ring { 4_000 } else { 5_000 };
            assert!(play(&mut Pieces::default(), bytes, 1000, apart) <= 50);
        }
    }

    #[test]
    fn an_exchange_takes_the_ring_where_putting_in_and_taking_out_is_faster() {
        let mut pieces = Pieces::default();
        assert!(play(&mut pieces, 1 << 20, 400, |ring| if ring { 3_000 } else { 5_000 }) < 20);
        for (taken_ns, ring) in [(1_500, true), (2_500, false)] {
            (0..LAST).for_each(|_| pieces.took(1 << 20, Done::Taken, 1 << 19, taken_ns));
            assert_eq!(pieces.through_ring(1 << 20, true), ring);
            // The first of the next exchange does not know that it is one.
            assert_eq!(pieces.through_ring(1 << 20, false), ring);
            for _ in 1..EXCHANGES {
                pieces.through_ring(1 << 20, false);
            }
            assert!(!pieces.through_ring(1 << 20, false));
        }
    }

    #[test]
    fn a_ring_that_is_slow_at_first_is_taken_all_the_same() {
        let mut rings = 0;
        let cold = |ring| {
            rings += ring as u64;
            if ring { 20_000 / rings.min(16) } else { 5_000 }
        };
        assert!(play(&mut Pieces::default(), 128 << 10, 1000, cold) >= 480);
    }

    #[test]
    fn a_change_is_followed_and_lengths_learn_apart() {
        let mut pieces = Pieces::default();
        let (near, apart) = (|ring| if ring { 2_000 } else { 5_000 }, |ring| if ring { 4_000 } else { 5_000 });
        assert!(play(&mut pieces, 1 << 20, 4_000, near) > 1_900);
        assert!(play(&mut pieces, 1 << 20, 8_000, apart) < 200);
        // The next trial of the ring.
        assert!(play(&mut pieces, 1 << 20, 8_000, near) > 3_000);
        assert!(play(&mut pieces, 256 << 10, 400, near) > 180);
        assert!(play(&mut pieces, 1 << 20, 400, apart) < 20);
    }

    /// Receives that are announced, and whose messages then come in another way, are no trials.
    #[test]
    fn what_is_asked_and_never_copied_changes_nothing() {
        let mut pieces = Pieces::default();
        assert!((0..10_000).all(|_| pieces.through_ring(1 << 20, false)));
        // Nor does a trial last for ever in which the other side is never there.
        (0..STRAY_MESSAGES_MAX * 8).for_each(|_| pieces.took(1 << 20, Done::Copied, 1 << 17, 5_000));
        assert!(!pieces.through_ring(1 << 20, false));
    }

    proptest! {
        /// Though one piece of every five is disturbed: soon nearly all messages go the better way, unless both are about equally good.
        #[test]
        fn the_better_way_is_found(ring in 500..50_000u64, system in 500..50_000u64, bytes in 65_537..(1u64 << 24), seed: u64) {
            let mut random = seed | 1;
            let taken = play(&mut Pieces::default(), bytes, 2_000, |through_ring| {
                random ^= random << 13;
                random ^= random >> 7;
                random ^= random << 17;
                let ns = if through_ring { ring } else { system };
                if random % 5 == 0 { ns * (1 + random / 5 % 40) } else { ns }
            });
            if 2 * ring * 10 <= system * 9 {
                prop_assert!(taken >= 900, "{taken}");
            } else if 2 * ring * 9 >= system * 10 {
                prop_assert!(taken <= 100, "{taken}");
            }
        }
    }
}
