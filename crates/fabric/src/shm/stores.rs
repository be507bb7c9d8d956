//! With which stores a sender writes a body into a ring: ordinary ones, which take each line from the receiver's cache first, or streaming ones, which
//! go past the caches. Ordinary ones are several times as fast where both cores share a cache, and several times as slow where they are far apart; and
//! where a virtual machine's processors run changes while a program does. So both are tried again and again, and the faster is used in between.

/// Shortest body that may go by streaming stores, bytes.
pub const STREAMING_BYTES_MIN: usize = 512;
/// Longest part of a body that a trial is made with, bytes.
const TRIAL_BYTES_MAX: usize = 4 << 10;
/// Of so many bodies of about the same length two begin with a trial, one of each: a trial takes up to a microsecond, and where processors run changes within tens
/// of milliseconds. The first bodies find a ring whose pages are not mapped yet, which tells nothing: some more trials come soon after them.
const TRIAL_PERIOD: u32 = 256;
const TRIALS_EARLY: [u32; 2] = [32, 96];
const CLASSES: usize = (TRIAL_BYTES_MAX / STREAMING_BYTES_MIN).ilog2() as usize + 1;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Stores {
    Ordinary,
    Streaming,
}

#[derive(Clone, Copy, Default)]
struct Class {
    bodies: u32,
    /// What the last trials took until all was written, ticks for [`TRIAL_BYTES_MAX`].
    ordinary: u64,
    streaming: u64,
}

/// What the trials on one ring said, for four classes of lengths; the last is for all longer bodies.
#[derive(Default)]
pub struct Trials {
    classes: [Class; CLASSES],
}

impl Trials {
    fn class(&mut self, bytes: usize) -> &mut Class {
        let class = (bytes / STREAMING_BYTES_MIN).max(1).ilog2() as usize;
        &mut self.classes[class.min(CLASSES - 1)]
    }

    /// The stores for a body of `bytes`, which is at least [`STREAMING_BYTES_MIN`] long, and whether it begins with a trial of others.
    #[inline]
    fn next(&mut self, bytes: usize) -> (Stores, Option<Stores>) {
        let class = self.class(bytes);
        let number = class.bodies;
        class.bodies = number.wrapping_add(1);
        let best = if class.streaming < class.ordinary { Stores::Streaming } else { Stores::Ordinary };
        let since = TRIALS_EARLY.iter().map(|early| number.wrapping_sub(*early)).chain([number % TRIAL_PERIOD]).min();
        let trial = match since {
            Some(0) => Some(Stores::Ordinary),
            Some(1) => Some(Stores::Streaming),
            _ => None,
        };
        (best, trial)
    }

    /// The stores for a body of `bytes`, of which `available` are written next, and how many of these a trial has written already: by `write`, which gets the
    /// stores and a number of bytes. `ticks` waits until all that was written can be seen, and tells the time.
    #[inline]
    pub fn begin(&mut self, bytes: usize, available: usize, ticks: impl Fn() -> u64, write: impl FnOnce(Stores, usize)) -> (Stores, usize) {
        let (stores, trial) = self.next(bytes);
        let Some(tried) = trial else { return (stores, 0) };
        let part = available.min(TRIAL_BYTES_MAX);
        let before = ticks();
        write(tried, part);
        self.took(bytes, tried, part, ticks().wrapping_sub(before));
        (stores, part)
    }

    /// A trial with the first `part` bytes of a body of `bytes` took so many ticks.
    fn took(&mut self, bytes: usize, stores: Stores, part: usize, ticks: u64) {
        let class = self.class(bytes);
        let ticks = ticks.saturating_mul(TRIAL_BYTES_MAX as u64) / part.max(1) as u64;
        match stores {
            Stores::Ordinary => class.ordinary = ticks,
            Stores::Streaming => class.streaming = ticks,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Plays `bodies` of one length; each part of a trial costs what `cost` says. Gives how many went by streaming stores.
    fn play(trials: &mut Trials, bytes: usize, bodies: u32, cost: impl Fn(Stores) -> u64) -> u32 {
        let mut streamed = 0;
        for _ in 0..bodies {
            let (best, trial) = trials.next(bytes);
            if let Some(stores) = trial {
                trials.took(bytes, stores, bytes.min(TRIAL_BYTES_MAX), cost(stores));
            }
            streamed += (best == Stores::Streaming) as u32;
        }
        streamed
    }

    #[test]
    fn the_faster_stores_are_used_and_a_change_is_noticed() {
        for bytes in [512, 700, 1024, 4096, 4097, 100_000] {
            let mut trials = Trials::default();
            let near = |stores| if stores == Stores::Ordinary { 100 } else { 900 };
            let apart = |stores| if stores == Stores::Ordinary { 3000 } else { 900 };
            assert_eq!(play(&mut trials, bytes, 2 * TRIAL_PERIOD, near), 1, "the second one, before both are known");
            // It is noticed with the next trials.
            assert!(play(&mut trials, bytes, TRIAL_PERIOD, apart) >= TRIAL_PERIOD - 2);
            assert!(play(&mut trials, bytes, TRIAL_PERIOD, near) <= 2);
        }
    }

    #[test]
    fn what_the_first_bodies_say_is_soon_corrected() {
        let mut trials = Trials::default();
        for number in 0..40 {
            let (_, trial) = trials.next(4096);
            if let Some(stores) = trial {
                // Pages that have to be mapped.
                let cold = if number < 2 && stores == Stores::Ordinary { 50_000 } else { 0 };
                trials.took(4096, stores, 4096, cold + if stores == Stores::Ordinary { 100 } else { 900 });
            }
        }
        assert_eq!(trials.next(4096).0, Stores::Ordinary);
    }

    #[test]
    fn lengths_learn_apart() {
        let mut trials = Trials::default();
        play(&mut trials, 512, 64, |stores| if stores == Stores::Ordinary { 1 } else { 2 });
        play(&mut trials, 8192, 64, |stores| if stores == Stores::Ordinary { 2 } else { 1 });
        assert_eq!(trials.next(600).0, Stores::Ordinary);
        assert_eq!(trials.next(65536).0, Stores::Streaming);
    }
}
