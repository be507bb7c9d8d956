//! With which stores a sender writes a body into a ring: ordinary ones, which take each line from the receiver's cache first, or streaming ones, which
//! go past the caches. Ordinary ones are several times as fast where both cores share a cache, and several times as slow where they are far apart; and
//! where a virtual machine's processors run changes while a program does. So both are tried again and again, and the faster is used in between: what it
//! takes to write and to read counts, since what went past the caches is read from memory.

pub use crate::stores::Stores;

/// Shortest body that may go by streaming stores, bytes.
pub const STREAMING_BYTES_MIN: usize = 512;
/// Longest part of a body that a trial is made with, bytes.
const TRIAL_BYTES_MAX: usize = 4 << 10;
/// Of so many bodies of about the same length two begin with a trial, one of each: a trial takes up to a microsecond, and where processors run changes within tens
/// of milliseconds. The first bodies find a ring whose pages are not mapped yet, which tells nothing: some more trials come soon after them.
const TRIAL_PERIOD: u16 = 256;
const TRIALS_EARLY: [u16; 2] = [32, 96];
/// So many bodies at most are foreseen with which nothing is to be done.
const PLAIN_MAX: u16 = 64;
/// So many bodies after a trial what its reader has told is looked at: that is in a line of its, and takes a transfer between cores. Not all may have been read.
const READ_BY: [u16; 2] = [4, 24];
pub const CLASSES: usize = (TRIAL_BYTES_MAX / STREAMING_BYTES_MIN).ilog2() as usize + 1;

/// What it took to read the first part of the last bodies that began with a trial, ticks for [`TRIAL_BYTES_MAX`]; 0: not known.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct Reading {
    pub ordinary: u32,
    pub streaming: u32,
}

impl Reading {
    pub fn to_word(self) -> u64 {
        self.ordinary as u64 | (self.streaming as u64) << 32
    }

    /// Of another process: any value will do.
    pub fn from_word(word: u64) -> Reading {
        Reading { ordinary: word as u32, streaming: (word >> 32) as u32 }
    }

    /// The first `part` bytes, which a trial had written with these stores, took so many ticks.
    pub fn took(self, stores: Stores, part: usize, ticks: u64) -> Reading {
        let ticks = scaled(part, ticks).max(1);
        match stores {
            Stores::Ordinary => Reading { ordinary: ticks, ..self },
            Stores::Streaming => Reading { streaming: ticks, ..self },
        }
    }
}

/// Ticks for [`TRIAL_BYTES_MAX`].
fn scaled(part: usize, ticks: u64) -> u32 {
    (ticks.saturating_mul(TRIAL_BYTES_MAX as u64) / part.max(1) as u64).min(u32::MAX as u64) as u32
}

/// Of the `available` bytes of a body that are written first, how many a trial writes.
#[inline]
pub fn trial_bytes(available: usize) -> usize {
    available.min(TRIAL_BYTES_MAX)
}

/// The class of lengths of a body of `bytes`.
#[inline]
pub fn class_of(bytes: usize) -> usize {
    ((bytes / STREAMING_BYTES_MIN).max(1).ilog2() as usize).min(CLASSES - 1)
}

/// How a body goes.
#[derive(Clone, Copy, Debug)]
pub struct Begun {
    pub stores: Stores,
    /// Bytes of it that a trial has written already, and with which stores.
    pub written: usize,
    pub trial: Option<Stores>,
}

impl Begun {
    /// All by ordinary stores.
    pub const ORDINARY: Begun = Begun { stores: Stores::Ordinary, written: 0, trial: None };
}

/// How many bodies ago the latest trials have begun, for the body of that number.
fn since_trials(number: u16) -> u16 {
    TRIALS_EARLY.iter().map(|early| number.wrapping_sub(*early)).chain([number % TRIAL_PERIOD]).min().unwrap_or(0)
}

/// Whether with a body so long after the latest trials have begun something is done.
fn is_event(since: u16) -> bool {
    since < 2 || READ_BY.contains(&since)
}

#[derive(Clone, Copy)]
struct Class {
    /// Modulo 2^16; then the first ones come again.
    bodies: u16,
    /// So many bodies from here on nothing is to be done but to use the best stores.
    plain: u16,
    /// What the last trials took until all was written, ticks for [`TRIAL_BYTES_MAX`]; 0: there were none.
    ordinary: u32,
    streaming: u32,
    reading: Reading,
    /// The stores with which a body is sooner at its reader.
    best: Stores,
}

impl Default for Class {
    fn default() -> Class {
        Class { bodies: 0, plain: 0, ordinary: 0, streaming: 0, reading: Reading::default(), best: Stores::Ordinary }
    }
}

impl Class {
    /// As [`Trials::next`], where something may be to be done.
    #[cold]
    fn closely(&mut self, reading: impl FnOnce() -> Reading) -> (Stores, Option<Stores>) {
        let number = self.bodies;
        self.bodies = number.wrapping_add(1);
        self.plain = (1..=PLAIN_MAX).take_while(|ahead| !is_event(since_trials(number.wrapping_add(*ahead)))).count() as u16;
        let since = since_trials(number);
        let trial = match since {
            0 => Some(Stores::Ordinary),
            1 => Some(Stores::Streaming),
            _ => None,
        };
        if READ_BY.contains(&since) {
            self.reading = reading();
            self.decide();
        }
        (self.best, trial)
    }

    /// As long as the reader has told nothing, reading what went past the caches is taken to be longer by what it took to write it.
    fn decide(&mut self) {
        let (ordinary, streaming) = match self.reading {
            Reading { ordinary: 1.., streaming: 1.. } => (self.reading.ordinary, self.reading.streaming),
            _ => (0, self.streaming),
        };
        let (ordinary, streaming) = (self.ordinary as u64 + ordinary as u64, self.streaming as u64 + streaming as u64);
        // A trial waits for its last stores; else ordinary ones go on beside what comes next, and streaming ones do not. So these must be faster by half.
        let streams = self.streaming > 0 && 2 * ordinary > 3 * streaming;
        self.best = if streams { Stores::Streaming } else { Stores::Ordinary };
    }
}

/// What the trials on one ring said, for four classes of lengths, the last for all longer bodies; and for those that are packed, which takes longer.
#[derive(Default)]
pub struct Trials {
    classes: [[Class; CLASSES]; 2],
}

/// The length of a body, and whether it is packed on its way.
pub type Written = (usize, bool);

impl Trials {
    fn class(&mut self, (bytes, packs): Written) -> &mut Class {
        &mut self.classes[packs as usize][class_of(bytes)]
    }

    /// The stores for a body which is at least [`STREAMING_BYTES_MIN`] long, and whether it begins with a trial of others.
    #[inline]
    fn next(&mut self, body: Written, reading: impl FnOnce() -> Reading) -> (Stores, Option<Stores>) {
        let class = self.class(body);
        if class.plain > 0 {
            class.plain -= 1;
            class.bodies = class.bodies.wrapping_add(1);
            return (class.best, None);
        }
        class.closely(reading)
    }

    /// The stores for a body, of which `available` bytes are written next, and how many of these a trial has written already: by `write`, which gets the
    /// stores and a number of bytes. `ticks` waits until all that was written can be seen, and tells the time; `reading` is what the reader has told.
    #[inline]
    pub fn begin(
        &mut self,
        body: Written,
        available: usize,
        reading: impl FnOnce() -> Reading,
        ticks: impl Fn() -> u64,
        write: impl FnOnce(Stores, usize),
    ) -> Begun {
        let (stores, trial) = self.next(body, reading);
        let Some(tried) = trial else { return Begun { stores, written: 0, trial } };
        let part = trial_bytes(available);
        let before = ticks();
        write(tried, part);
        self.took(body, tried, part, ticks().wrapping_sub(before));
        Begun { stores, written: part, trial }
    }

    /// A trial with the first `part` bytes of a body took so many ticks.
    fn took(&mut self, body: Written, stores: Stores, part: usize, ticks: u64) {
        let (class, ticks) = (self.class(body), scaled(part, ticks));
        match stores {
            Stores::Ordinary => class.ordinary = ticks,
            Stores::Streaming => class.streaming = ticks,
        }
        class.decide();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Plays `bodies` of one length; each part of a trial costs what `cost` says. Gives how many went by streaming stores.
    fn play(trials: &mut Trials, bytes: usize, bodies: u16, cost: impl Fn(Stores) -> u64) -> u16 {
        play_told(trials, bytes, bodies, Reading::default(), cost)
    }

    /// As [`play`], where the reader has told what reading takes.
    fn play_told(trials: &mut Trials, bytes: usize, bodies: u16, reading: Reading, cost: impl Fn(Stores) -> u64) -> u16 {
        let mut streamed = 0;
        for _ in 0..bodies {
            let (best, trial) = trials.next((bytes, false), || reading);
            if let Some(stores) = trial {
                trials.took((bytes, false), stores, bytes.min(TRIAL_BYTES_MAX), cost(stores));
            }
            streamed += (best == Stores::Streaming) as u16;
        }
        streamed
    }

    #[test]
    fn the_faster_stores_are_used_and_a_change_is_noticed() {
        for bytes in [512, 700, 1024, 4096, 4097, 100_000] {
            let mut trials = Trials::default();
            let near = |stores| if stores == Stores::Ordinary { 100 } else { 900 };
            let apart = |stores| if stores == Stores::Ordinary { 3000 } else { 900 };
            assert_eq!(play(&mut trials, bytes, 2 * TRIAL_PERIOD, near), 0);
            // It is noticed with the next trials.
            assert!(play(&mut trials, bytes, TRIAL_PERIOD, apart) >= TRIAL_PERIOD - 2);
            assert!(play(&mut trials, bytes, TRIAL_PERIOD, near) <= 2);
        }
    }

    #[test]
    fn what_the_first_bodies_say_is_soon_corrected() {
        let mut trials = Trials::default();
        for number in 0..40 {
            let (_, trial) = trials.next((4096, false), Reading::default);
            if let Some(stores) = trial {
                // Pages that have to be mapped.
                let cold = if number < 2 && stores == Stores::Ordinary { 50_000 } else { 0 };
                trials.took((4096, false), stores, 4096, cold + if stores == Stores::Ordinary { 100 } else { 900 });
            }
        }
        assert_eq!(trials.next((4096, false), Reading::default).0, Stores::Ordinary);
    }

    #[test]
    fn lengths_learn_apart() {
        let mut trials = Trials::default();
        play(&mut trials, 512, 64, |stores| if stores == Stores::Ordinary { 1 } else { 2 });
        play(&mut trials, 8192, 64, |stores| if stores == Stores::Ordinary { 4 } else { 1 });
        assert_eq!(trials.next((600, false), Reading::default).0, Stores::Ordinary);
        assert_eq!(trials.next((65536, false), Reading::default).0, Stores::Streaming);
        assert_eq!(trials.next((65536, true), Reading::default).0, Stores::Ordinary, "packed bodies have their own");
    }

    /// As measured: cores that share a cache, where a line that another core has read last takes longer to write than to stream, and cores that share none.
    #[test]
    fn what_is_read_from_memory_is_not_streamed_to_a_core_nearby() {
        let write = |ordinary| move |stores| if stores == Stores::Ordinary { ordinary } else { 960 };
        let mut trials = Trials::default();
        let told = |ordinary| Reading { ordinary, streaming: 1_200 };
        assert_eq!(play_told(&mut trials, 4096, 2 * TRIAL_PERIOD, told(416), write(1_600)), 0);
        assert!(play_told(&mut trials, 4096, TRIAL_PERIOD, told(1_150), write(4_500)) >= TRIAL_PERIOD - 2);
        // What reading took before counts until the reader tells anew.
        assert!(play_told(&mut trials, 4096, TRIAL_PERIOD, told(416), write(1_600)) <= READ_BY[0]);
        // Nothing is told.
        assert_eq!(play(&mut trials, 4096, TRIAL_PERIOD, write(1_600)), 0);
        assert!(play(&mut trials, 4096, TRIAL_PERIOD, write(4_500)) >= TRIAL_PERIOD - 2);
    }

    #[test]
    fn readings_are_words() {
        let reading = Reading::default().took(Stores::Streaming, 1024, 300).took(Stores::Ordinary, 4096, u64::MAX);
        assert_eq!(reading, Reading { ordinary: u32::MAX, streaming: 1_200 });
        assert_eq!(Reading::from_word(reading.to_word()), reading);
        assert_eq!(Reading::default().took(Stores::Ordinary, 4096, 0).ordinary, 1);
    }
}
