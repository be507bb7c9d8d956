//! What becomes of a frame on a link that loses, doubles, holds back, damages, delays and is only so fast? No I/O, no clock.

use crate::frame::{damage, transport};
use std::collections::{BTreeMap, VecDeque};
use std::fmt;

/// Seeded random numbers (splitmix64).
#[derive(Clone, Debug)]
pub struct Random(u64);

impl Random {
    pub fn new(seed: u64) -> Self {
        Random(seed)
    }

    pub fn draw(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    pub fn chance(&mut self, share: f64) -> bool {
        share > 0.0 && ((self.draw() >> 11) as f64) < share * (1u64 << 53) as f64
    }

    pub fn below(&mut self, end: u64) -> u64 {
        self.draw() % end.max(1)
    }
}

/// Shares are from 0 to 1.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Settings {
    pub loss: f64,
    pub duplicate: f64,
    pub reorder: f64,
    pub corrupt: f64,
    pub delay_ns: u64,
    /// 0: as fast as it comes.
    pub rate_bytes_s: u64,
    /// What waits for a limited rate; the rest is dropped.
    pub queue_bytes: u64,
    pub cut: bool,
}

impl Default for Settings {
    fn default() -> Self {
        let queue_bytes = 256 << 10;
        Settings { loss: 0.0, duplicate: 0.0, reorder: 0.0, corrupt: 0.0, delay_ns: 0, rate_bytes_s: 0, queue_bytes, cut: false }
    }
}

impl Settings {
    /// Takes `name=value`. Errors: what is wrong with it.
    pub fn set(&mut self, word: &str) -> Result<(), String> {
        let (name, value) = word.split_once('=').ok_or_else(|| format!("{word}: no '='"))?;
        let number: f64 = value.parse().map_err(|_| format!("{word}: no number"))?;
        let share = matches!(name, "loss" | "duplicate" | "reorder" | "corrupt");
        if !number.is_finite() || number < 0.0 || share && number > 1.0 {
            return Err(format!("{word}: out of range"));
        }
        match name {
            "loss" => self.loss = number,
            "duplicate" => self.duplicate = number,
            "reorder" => self.reorder = number,
            "corrupt" => self.corrupt = number,
            "delay_us" => self.delay_ns = (number * 1e3) as u64,
            "rate_mb_s" => self.rate_bytes_s = (number * 1e6) as u64,
            "queue_kb" => self.queue_bytes = (number * 1e3) as u64,
            "cut" => self.cut = number != 0.0,
            _ => return Err(format!("{word}: unknown")),
        }
        Ok(())
    }
}

#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct Counters {
    pub frames: u64,
    pub bytes: u64,
    pub lost: u64,
    pub duplicated: u64,
    pub reordered: u64,
    pub damaged: u64,
    /// Past the queue of a limited rate.
    pub overflowed: u64,
    pub cut: u64,
}

impl fmt::Display for Counters {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Counters { frames, bytes, lost, duplicated, reordered, damaged, overflowed, cut } = self;
        write!(f, "frames={frames} bytes={bytes} lost={lost} duplicated={duplicated} reordered={reordered} ")?;
        write!(f, "damaged={damaged} overflowed={overflowed} cut={cut}")
    }
}

/// Later frames that pass one which is held back, at most, and for how long it waits for them.
const HELD_FRAMES_MAX: u64 = 8;
const HELD_NS: u64 = 1_000_000;
/// Frames that wait on a link, at most; the rest is dropped.
const WAITING_MAX: usize = 1 << 16;

struct Held {
    frame: Vec<u8>,
    passed_by: u64,
    until_ns: u64,
}

/// One direction: from all others of a rail to one host.
pub struct Link {
    pub settings: Settings,
    pub counters: Counters,
    random: Random,
    held: VecDeque<Held>,
    /// By when they are due, and which came first.
    waiting: BTreeMap<(u64, u64), Vec<u8>>,
    next: u64,
    /// When the last frame will have left at the limited rate.
    busy_until_ns: u64,
}

impl Link {
    pub fn new(seed: u64) -> Self {
        let (settings, counters) = Default::default();
        let (held, waiting) = Default::default();
        Link { settings, counters, random: Random::new(seed), held, waiting, next: 0, busy_until_ns: 0 }
    }

    /// Whether the frame, as it is now, leaves at once. Otherwise it is lost, or kept until it is due.
    /// Only UDP and TCP meet with accidents; the rest (ARP) stops where the link is cut.
    pub fn admit(&mut self, now_ns: u64, frame: &mut [u8]) -> bool {
        if self.settings.cut {
            self.counters.cut += 1;
            return false;
        }
        let settings = self.settings;
        if transport(frame).is_none() {
            return self.depart(now_ns, frame);
        }
        if self.random.chance(settings.loss) {
            self.counters.lost += 1;
            return false;
        }
        if self.random.chance(settings.duplicate) {
            self.counters.duplicated += 1;
            self.depart_or_keep(now_ns, frame.to_vec());
        }
        if self.random.chance(settings.corrupt) && damage(frame, self.random.draw()) {
            self.counters.damaged += 1;
        }
        if self.random.chance(settings.reorder) {
            self.counters.reordered += 1;
            let passed_by = 1 + self.random.below(HELD_FRAMES_MAX);
            self.held.push_back(Held { frame: frame.to_vec(), passed_by, until_ns: now_ns + HELD_NS });
            return false;
        }
        let at_once = self.depart(now_ns, frame);
        self.pass_held(now_ns);
        at_once
    }

    /// The next frame that is due.
    pub fn due(&mut self, now_ns: u64) -> Option<Vec<u8>> {
        while self.held.front().is_some_and(|held| held.until_ns <= now_ns) {
            let frame = self.held.pop_front()?.frame;
            self.depart_or_keep(now_ns, frame);
        }
        let first = self.waiting.first_entry()?;
        (first.key().0 <= now_ns).then(|| first.remove())
    }

    /// When something will be due.
    pub fn next_ns(&self) -> Option<u64> {
        let held = self.held.front().map(|held| held.until_ns);
        let waiting = self.waiting.keys().next().map(|(when_ns, _)| *when_ns);
        held.into_iter().chain(waiting).min()
    }

    /// A frame has passed those that are held back.
    fn pass_held(&mut self, now_ns: u64) {
        let mut index = 0;
        while index < self.held.len() {
            self.held[index].passed_by -= 1;
            if self.held[index].passed_by > 0 {
                index += 1;
            } else if let Some(held) = self.held.remove(index) {
                self.depart_or_keep(now_ns, held.frame);
            }
        }
    }

    /// Whether the frame leaves at once.
    fn depart(&mut self, now_ns: u64, frame: &[u8]) -> bool {
        let Some(when_ns) = self.departure(now_ns, frame.len()) else { return false };
        let now = when_ns <= now_ns && self.waiting.is_empty();
        if !now {
            self.keep(when_ns, frame.to_vec());
        }
        now
    }

    fn depart_or_keep(&mut self, now_ns: u64, frame: Vec<u8>) {
        if let Some(when_ns) = self.departure(now_ns, frame.len()) {
            self.keep(when_ns, frame);
        }
    }

    /// When a frame of that length will have left; `None`: the queue is full.
    fn departure(&mut self, now_ns: u64, bytes: usize) -> Option<u64> {
        let Settings { rate_bytes_s, queue_bytes, delay_ns, .. } = self.settings;
        if self.waiting.len() >= WAITING_MAX {
            self.counters.overflowed += 1;
            return None;
        }
        let mut when_ns = now_ns;
        if rate_bytes_s > 0 {
            let backlog_ns = self.busy_until_ns.saturating_sub(now_ns);
            if backlog_ns as u128 * rate_bytes_s as u128 > queue_bytes as u128 * 1_000_000_000 {
                self.counters.overflowed += 1;
                return None;
            }
            self.busy_until_ns = self.busy_until_ns.max(now_ns) + bytes as u64 * 1_000_000_000 / rate_bytes_s;
            when_ns = self.busy_until_ns;
        }
        self.counters.frames += 1;
        self.counters.bytes += bytes as u64;
        Some(when_ns + delay_ns)
    }

    fn keep(&mut self, when_ns: u64, frame: Vec<u8>) {
        self.waiting.insert((when_ns, self.next), frame);
        self.next += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::frame::UDP;
    use crate::frame::tests::{frame_of, total};

    const FRAMES: u32 = 100_000;

    /// Sends numbered frames `gap_ns` apart: what arrives, and when.
    fn play(link: &mut Link, count: u32, gap_ns: u64) -> Vec<(u64, Vec<u8>)> {
        let mut arrived = Vec::new();
        let mut now_ns = 0;
        let collect = |link: &mut Link, until_ns: u64, arrived: &mut Vec<(u64, Vec<u8>)>| {
            while let Some(next_ns) = link.next_ns().filter(|next| *next <= until_ns) {
                arrived.extend(link.due(next_ns).map(|frame| (next_ns, frame)));
            }
        };
        for number in 0..count {
            collect(link, now_ns, &mut arrived);
            let mut frame = frame_of(UDP, &[&number.to_be_bytes()[..], &[7; 96]].concat());
            if link.admit(now_ns, &mut frame) {
                arrived.push((now_ns, frame));
            }
            now_ns += gap_ns;
        }
        collect(link, u64::MAX, &mut arrived);
        arrived
    }

    fn number(frame: &[u8]) -> u32 {
        u32::from_be_bytes(frame[42..46].try_into().unwrap())
    }

    fn link(words: &str) -> Link {
        let mut link = Link::new(7);
        for word in words.split_whitespace() {
            link.settings.set(word).unwrap();
        }
        link
    }

    /// Five standard deviations of a count with that share.
    fn about(count: u64, share: f64) -> bool {
        let mean = share * f64::from(FRAMES);
        (count as f64 - mean).abs() < 5.0 * mean.sqrt() && count > 0
    }

    #[test]
    fn without_accidents_all_arrives_as_it_was_sent() {
        let mut link = link("");
        let arrived = play(&mut link, 1000, 10);
        assert!(arrived.iter().enumerate().all(|(i, (at, frame))| number(frame) == i as u32 && *at == i as u64 * 10));
        assert_eq!((arrived.len(), link.counters.frames), (1000, 1000));
    }

    #[test]
    fn losses_are_as_many_as_asked_for() {
        for share in [0.001, 0.01, 0.05, 0.5] {
            let mut link = link(&format!("loss={share}"));
            let arrived = play(&mut link, FRAMES, 10);
            assert!(about(link.counters.lost, share), "{share}: {}", link.counters);
            assert_eq!(arrived.len() as u64 + link.counters.lost, u64::from(FRAMES));
        }
    }

    #[test]
    fn doubles_are_as_many_as_asked_for() {
        let mut link = link("duplicate=0.01");
        let mut numbers: Vec<u32> = play(&mut link, FRAMES, 10).iter().map(|(_, frame)| number(frame)).collect();
        assert!(about(link.counters.duplicated, 0.01));
        assert_eq!(numbers.len() as u64, u64::from(FRAMES) + link.counters.duplicated);
        numbers.sort_unstable();
        numbers.dedup();
        assert_eq!(numbers.len(), FRAMES as usize);
    }

    #[test]
    fn some_are_passed_by_later_ones_and_none_is_lost() {
        let mut link = link("reorder=0.01");
        let numbers: Vec<u32> = play(&mut link, FRAMES, 10).iter().map(|(_, frame)| number(frame)).collect();
        assert!(about(link.counters.reordered, 0.01));
        let back = numbers.windows(2).filter(|pair| pair[1] < pair[0]).count() as u64;
        assert!(back > link.counters.reordered * 9 / 10, "{back} of {}", link.counters.reordered);
        let mut sorted = numbers;
        sorted.sort_unstable();
        assert!(sorted.iter().copied().eq(0..FRAMES));
    }

    #[test]
    fn one_that_nobody_passes_is_not_held_for_ever() {
        let mut link = link("reorder=1");
        let arrived = play(&mut link, 1, 10);
        assert_eq!(arrived.len(), 1);
        assert_eq!(arrived[0].0, HELD_NS);
    }

    #[test]
    fn damage_is_as_much_as_asked_for_and_shows_in_no_checksum() {
        let mut link = link("corrupt=0.01");
        let arrived = play(&mut link, FRAMES, 10);
        let whole = |i: usize| frame_of(UDP, &[&(i as u32).to_be_bytes()[..], &[7; 96]].concat());
        let damaged = arrived.iter().enumerate().filter(|(i, (_, frame))| *frame != whole(*i)).count();
        assert!(about(damaged as u64, 0.01));
        assert_eq!(damaged as u64, link.counters.damaged);
        assert!(arrived.iter().all(|(_, frame)| total(frame) == 0xffff));
    }

    #[test]
    fn a_delay_shifts_all_by_as_much() {
        let mut link = link("delay_us=50");
        let arrived = play(&mut link, 1000, 10);
        assert!(arrived.iter().enumerate().all(|(i, (at, frame))| number(frame) == i as u32 && *at == i as u64 * 10 + 50_000));
    }

    #[test]
    fn a_rate_holds_and_what_overflows_its_queue_is_dropped() {
        // Frames of 142 bytes every 10 us are 14.2 MB/s.
        let mut fast_enough = link("rate_mb_s=15");
        assert_eq!(play(&mut fast_enough, FRAMES, 10_000).len(), FRAMES as usize);
        let mut link = link("rate_mb_s=10 queue_kb=64");
        let arrived = play(&mut link, FRAMES, 10_000);
        let seconds = arrived.last().unwrap().0 as f64 / 1e9;
        let rate = link.counters.bytes as f64 / seconds / 1e6;
        assert!((9.9..10.1).contains(&rate), "{rate} MB/s");
        assert_eq!(arrived.len() as u64 + link.counters.overflowed, u64::from(FRAMES));
        let late = arrived.iter().map(|(at, frame)| at - u64::from(number(frame)) * 10_000).max().unwrap();
        assert!(late <= 6_500_000, "a queue of 64 KB is 6.4 ms long, not {late} ns");
    }

    #[test]
    fn nothing_passes_a_cut_until_it_is_restored() {
        let mut link = link("cut=1");
        assert!(play(&mut link, 10, 10).is_empty());
        assert_eq!(link.counters.cut, 10);
        link.settings.set("cut=0").unwrap();
        assert_eq!(play(&mut link, 10, 10).len(), 10);
    }

    #[test]
    fn a_seed_plays_the_same_again() {
        let run = |seed| {
            let mut link = Link::new(seed);
            link.settings = link_settings();
            play(&mut link, 5000, 10)
        };
        assert_eq!(run(3), run(3));
        assert_ne!(run(3), run(4));
    }

    fn link_settings() -> Settings {
        link("loss=0.05 duplicate=0.05 reorder=0.05 corrupt=0.05").settings
    }

    #[test]
    fn settings_that_are_none_are_refused() {
        for word in ["loss", "loss=2", "loss=-1", "loss=x", "rate=1", "corrupt=nan"] {
            assert!(Settings::default().set(word).is_err(), "{word}");
        }
    }
}
