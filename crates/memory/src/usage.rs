//! Which buffers does a program send again and again? The buffer-usage table of paper 000 (§3.2, §3.3).
//!
//! A message that leaves straight from the program's buffer saves a copy (`C`), but the buffer must be registered once (`R`), and
//! each message pays for the searches (`V`). That is worth its price after `n > R / (C − V)` messages (inequality 3).
//! [`Thresholds`] has those `n` for each size, from costs that the caller has measured; [`UsageTable`] counts the messages of
//! each buffer and says [`Way::Direct`] once the count has passed a fraction of `n`.
//!
//! A buffer is an address and a size class (powers of two), so that all uses that are counted together have one threshold. The
//! table is open addressing with linear probing, 16 bytes a slot; `whimbrel bench usage-table` compares it with the paper's
//! buckets and with a balanced tree.
//!
//! *Ageing*: counts are halved every [`Settings::half_life_uses`] messages, when they are next looked at. A buffer whose count
//! has come to 0 is forgotten, and a buffer is frequent until then. Since no count exceeds twice its threshold, a buffer that is
//! no longer used is forgotten after at most `log2(2 × threshold) + 2` half-lives, however often it was used.
//!
//! *Memory*: at most [`UsageTable::bytes_max`]. The table doubles when three quarters of its slots are taken and at least
//! [`Settings::frequent_percent_min`] of its buffers are frequent (§3.3: below that, and with chains that grow, a larger table
//! only costs). Otherwise new buffers are not counted until ageing has made room. While it doubles, the old table is there too.

#![forbid(unsafe_code)]

use crate::sys::in_huge_pages;

/// Size classes: 1, 2–3, 4–7, … bytes.
const CLASSES: usize = 58;
/// Addresses have fewer bits than that; the class has the others.
const ADDRESS_BITS: u32 = 58;
/// Slots of a new table.
const SLOTS_MIN: usize = 256;
/// Most messages that a threshold can ask for: what pays later than that is not looked for.
const THRESHOLD_MAX: u32 = 1 << 24;

/// What messages of one size cost on one device, ns. Measured by the caller.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct MessageCosts {
    /// Registering a buffer of that size and giving it back, `R` (in paper 000, whose registrations stay, registering alone).
    pub register_ns: f64,
    /// Copying it, `C`.
    pub copy_ns: f64,
    /// Looking the buffer up, here and in the registration cache, `V`.
    pub search_ns: f64,
}

impl MessageCosts {
    /// The fewest messages after which a registration has paid: the least integer `n > R / (C − V)`. `None` where it never does,
    /// since the search costs as much as the copy, or where a cost is no number.
    pub fn messages_to_pay(&self) -> Option<u64> {
        let gain_ns = self.copy_ns - self.search_ns;
        let messages = self.register_ns.max(0.0) / gain_ns;
        (gain_ns > 0.0 && messages.is_finite() && messages < 1e15).then(|| messages as u64 + 1)
    }
}

/// After how many uses a buffer of each size class is registered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Thresholds([Option<u32>; CLASSES]);

impl Thresholds {
    /// The paper's choice, percent of `n` (§3.2).
    pub const FRACTION_PERCENT: u32 = 25;

    /// `messages_to_pay`: `n` for a message of so many bytes, asked for each power of two up to `bytes_max`; see
    /// [`MessageCosts`]. Longer messages and those with `None` are never registered. A class has the threshold of its shortest
    /// message, which pays last. Where the first message does not pay for itself, one use at least comes before.
    pub fn new(bytes_max: usize, fraction_percent: u32, mut messages_to_pay: impl FnMut(usize) -> Option<u64>) -> Thresholds {
        let mut thresholds = [None; CLASSES];
        for (class, threshold) in thresholds.iter_mut().enumerate().take_while(|(class, _)| 1 << class <= bytes_max) {
            let messages = messages_to_pay(1 << class);
            // A small fraction of a few messages would be none: each buffer of a program without reuse would be registered.
            let uses = messages.map(|n| (u128::from(n) * u128::from(fraction_percent) / 100).max(u128::from(n > 1)));
            *threshold = uses.filter(|&uses| uses < u128::from(THRESHOLD_MAX)).map(|uses| uses as u32);
        }
        Thresholds(thresholds)
    }

    /// A buffer of `bytes` is frequent when it has been used more often than that; `None`: never.
    #[inline]
    pub fn of(&self, bytes: usize) -> Option<u32> {
        self.0[class_of(bytes)?]
    }
}

/// `None` for 0 bytes.
#[inline]
fn class_of(bytes: usize) -> Option<usize> {
    bytes.checked_ilog2().map(|class| (class as usize).min(CLASSES - 1))
}

/// How the table grows and forgets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Buffers that are counted at once, at most.
    pub buffers_max: usize,
    /// Share of frequent buffers below which the table does not grow (§3.3: 20).
    pub frequent_percent_min: u32,
    /// Counted messages after which all counts are halved; at least as many as the table has slots, so that looking through it
    /// costs little for each.
    pub half_life_uses: u32,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings { buffers_max: 1 << 16, frequent_percent_min: 20, half_life_uses: 1 << 16 }
    }
}

/// How a message should leave.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// Through the transport's own memory.
    Copy,
    /// From the buffer itself, which is worth registering.
    Direct,
}

/// What has been counted since the table was made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Messages of a size that never pays.
    pub unfit: u64,
    /// Messages that said [`Way::Direct`], and [`Way::Copy`] of a buffer that is counted.
    pub direct: u64,
    pub copied: u64,
    /// Messages of buffers for which there was no room.
    pub uncounted: u64,
    /// Buffers that were entered, that became frequent, and that were forgotten.
    pub entered: u64,
    pub became_frequent: u64,
    pub forgotten: u64,
    /// Times that the table doubled, and that it did not since too few were frequent.
    pub doubled: u64,
    pub held_small: u64,
}

#[derive(Clone, Copy, Default)]
struct Slot {
    /// Class and address; 0 in a slot that was never taken.
    key: u64,
    /// Uses, halved as of `aged`.
    count: u32,
    /// The half-life in which `count` is true, shifted left, and in the lowest bit whether the buffer is frequent.
    aged: u32,
}

impl Slot {
    /// The count in half-life `now`.
    #[inline]
    fn count_at(&self, now: u32) -> u32 {
        // The difference is taken in 31 bits; nobody lives for 2^31 half-lives.
        self.count.checked_shr(now.wrapping_sub(self.aged >> 1) & (u32::MAX >> 1)).unwrap_or(0)
    }

    fn is_frequent(&self) -> bool {
        self.aged & 1 == 1
    }
}

/// The buffers of one process that are sent from.
#[derive(Clone)]
pub struct UsageTable {
    thresholds: Thresholds,
    settings: Settings,
    /// A power of two.
    slots: Vec<Slot>,
    /// Slots that are not empty, those of forgotten buffers among them.
    taken: usize,
    /// Which half-life it is, and counted messages until the next.
    now: u32,
    uses_left: u32,
    /// There is no room, and none will be before the next half-life.
    is_full: bool,
    counters: Counters,
}

impl UsageTable {
    pub fn new(thresholds: Thresholds, settings: Settings) -> UsageTable {
        let mut table = UsageTable {
            thresholds,
            settings,
            slots: vec![Slot::default(); SLOTS_MIN],
            taken: 0,
            now: 0,
            uses_left: 0,
            is_full: false,
            counters: Counters::default(),
        };
        table.uses_left = table.half_life();
        table
    }

    pub fn counters(&self) -> &Counters {
        &self.counters
    }

    /// Bytes of the table now.
    pub fn bytes(&self) -> usize {
        self.slots.len() * size_of::<Slot>()
    }

    /// Bytes of the largest table that `settings` allow.
    pub fn bytes_max(settings: &Settings) -> usize {
        slots_max(settings) * size_of::<Slot>()
    }

    /// Counts a message of `bytes` from `address`, and says how it should leave.
    #[inline]
    pub fn used(&mut self, address: usize, bytes: usize) -> Way {
        let Some((key, threshold)) = self.key(address, bytes) else {
            self.counters.unfit += 1;
            return Way::Copy;
        };
        self.uses_left -= 1;
        if self.uses_left == 0 {
            self.half_life_ends();
        }
        self.count(key, threshold, 1)
    }

    /// The buffer is frequent from now on, since the program has said that it will be used again (a persistent or partitioned
    /// request). Counted as a message. False where its size never pays or there is no room.
    pub fn prefer(&mut self, address: usize, bytes: usize) -> bool {
        self.key(address, bytes).is_some_and(|(key, threshold)| self.count(key, threshold, threshold + 1) == Way::Direct)
    }

    /// Looks through the table: buffers that are counted, and how many of them are frequent.
    pub fn buffers(&self) -> (usize, usize) {
        let known = self.slots.iter().filter(|slot| slot.count_at(self.now) > 0);
        known.fold((0, 0), |(all, frequent), slot| (all + 1, frequent + usize::from(slot.is_frequent())))
    }

    #[inline]
    fn key(&self, address: usize, bytes: usize) -> Option<(u64, u32)> {
        let class = class_of(bytes)?;
        let threshold = self.thresholds.0[class]?;
        // Class 0 at address 0 would look like an empty slot; nothing can be sent from there.
        let key = (class as u64) << ADDRESS_BITS | address as u64 & ((1 << ADDRESS_BITS) - 1);
        (key != 0).then_some((key, threshold))
    }

    #[inline]
    fn count(&mut self, key: u64, threshold: u32, uses: u32) -> Way {
        let mut forgotten = None;
        let mask = self.slots.len() - 1;
        let mut at = home(key, self.slots.len());
        loop {
            let slot = &mut self.slots[at];
            let count = slot.count_at(self.now);
            if slot.key == key && count > 0 {
                // At most twice the threshold, so that what is no longer used is soon forgotten.
                slot.count = count.saturating_add(uses).min(2 * threshold + 1);
                let was_frequent = slot.is_frequent();
                let is_frequent = was_frequent || slot.count > threshold;
                slot.aged = self.now << 1 | u32::from(is_frequent);
                if !is_frequent {
                    self.counters.copied += 1;
                    return Way::Copy;
                }
                self.counters.became_frequent += u64::from(!was_frequent);
                self.counters.direct += 1;
                return Way::Direct;
            }
            if slot.key == 0 {
                return self.enter(key, threshold, uses, forgotten, at);
            }
            if slot.key == key {
                return self.enter(key, threshold, uses, Some(at), at);
            }
            if count == 0 && forgotten.is_none() {
                forgotten = Some(at);
            }
            at = (at + 1) & mask;
        }
    }

    /// Enters a buffer that is not counted: in the slot of one that is forgotten, or in the `empty` one behind its chain.
    #[cold]
    fn enter(&mut self, key: u64, threshold: u32, uses: u32, forgotten: Option<usize>, mut empty: usize) -> Way {
        if forgotten.is_none() {
            if self.taken >= room(self.slots.len()) {
                if self.is_full || !self.make_room() {
                    self.counters.uncounted += 1;
                    return Way::Copy;
                }
                let mask = self.slots.len() - 1;
                empty = home(key, self.slots.len());
                while self.slots[empty].key != 0 {
                    empty = (empty + 1) & mask;
                }
            }
            self.taken += 1;
        } else {
            self.counters.forgotten += 1;
        }
        let count = uses.min(2 * threshold + 1);
        let is_frequent = count > threshold;
        self.slots[forgotten.unwrap_or(empty)] = Slot { key, count, aged: self.now << 1 | u32::from(is_frequent) };
        self.counters.entered += 1;
        self.counters.became_frequent += u64::from(is_frequent);
        *(if is_frequent { &mut self.counters.direct } else { &mut self.counters.copied }) += 1;
        if is_frequent { Way::Direct } else { Way::Copy }
    }

    /// Leaves out what is forgotten, and doubles the table where that is not enough and is worth it. False where there is no room now.
    fn make_room(&mut self) -> bool {
        let (known, frequent) = self.buffers();
        let slots = self.slots.len();
        let half_free = known <= room(slots) / 2;
        let wants_larger = !half_free && slots < slots_max(&self.settings);
        let may_grow = frequent * 100 >= known * self.settings.frequent_percent_min as usize;
        if wants_larger && may_grow {
            self.counters.doubled += 1;
            self.rebuild(slots * 2);
            return true;
        }
        self.counters.held_small += u64::from(wants_larger);
        // Fewer forgotten ones than that are not worth moving everything: their slots are taken again as they are met.
        if known <= room(slots) - room(slots) / 8 {
            self.rebuild(slots);
            return true;
        }
        self.is_full = true;
        false
    }

    /// The same buffers in a table of so many slots.
    fn rebuild(&mut self, slots: usize) {
        let old = std::mem::replace(&mut self.slots, in_huge_pages(Slot::default(), slots));
        let before = std::mem::take(&mut self.taken);
        for slot in old.into_iter().filter(|slot| slot.count_at(self.now) > 0) {
            let mut at = home(slot.key, slots);
            while self.slots[at].key != 0 {
                at = (at + 1) & (slots - 1);
            }
            self.slots[at] = slot;
            self.taken += 1;
        }
        self.counters.forgotten += (before - self.taken) as u64;
    }

    #[cold]
    fn half_life_ends(&mut self) {
        self.now = (self.now + 1) & (u32::MAX >> 1);
        self.uses_left = self.half_life();
        self.is_full = false;
    }

    fn half_life(&self) -> u32 {
        self.settings.half_life_uses.max(self.slots.len() as u32)
    }
}

/// Slots that may be taken in a table of so many.
fn room(slots: usize) -> usize {
    slots / 4 * 3
}

/// Slots of the largest table: the fewest that have room for all buffers.
fn slots_max(settings: &Settings) -> usize {
    let buffers = settings.buffers_max.clamp(1, 1 << 30);
    (buffers * 4).div_ceil(3).next_power_of_two().max(SLOTS_MIN)
}

/// Where a buffer's chain begins: the highest bits of its product with 2^64 over the golden ratio, a multiplicative hash as that
/// of the paper (its reference 7).
#[inline]
fn home(key: u64, slots: usize) -> usize {
    (key.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> (64 - slots.trailing_zeros())) as usize
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::HashMap;

    /// The paper's Table 2: bytes and `n`.
    const PAPER: [(usize, u64); 7] = [(128, 1280), (256, 755), (512, 432), (1024, 200), (2048, 109), (4096, 59), (8192, 33)];

    fn paper() -> Thresholds {
        Thresholds::new(8192, Thresholds::FRACTION_PERCENT, |bytes| PAPER.iter().find(|row| row.0 == bytes).map(|row| row.1))
    }

    fn all_after(threshold: u64) -> Thresholds {
        Thresholds::new(1 << 20, 100, |_| Some(threshold))
    }

    #[test]
    fn a_registration_pays_after_so_many_messages() {
        let costs = |register_ns: f64, copy_ns: f64, search_ns: f64| MessageCosts { register_ns, copy_ns, search_ns }.messages_to_pay();
        assert_eq!(costs(1000.0, 60.0, 10.0), Some(21), "more than 20");
        assert_eq!(costs(1010.0, 60.0, 10.0), Some(21));
        assert_eq!(costs(0.0, 60.0, 10.0), Some(1));
        for (register_ns, copy_ns, search_ns) in [(1000.0, 10.0, 10.0), (1000.0, 9.0, 10.0), (f64::NAN, 9.0, f64::NAN), (f64::INFINITY, 60.0, 10.0)] {
            assert_eq!(costs(register_ns, copy_ns, search_ns), None);
        }
    }

    #[test]
    fn thresholds_are_those_of_the_paper() {
        let thresholds = paper();
        // "a 4KB buffer is registered when it is reused 14 times (25% of 59)"
        assert_eq!(thresholds.of(4096), Some(14));
        assert_eq!((thresholds.of(128), thresholds.of(1600), thresholds.of(8192)), (Some(320), Some(50), Some(8)));
        assert_eq!((thresholds.of(0), thresholds.of(127), thresholds.of(16384), thresholds.of(usize::MAX)), (None, None, None, None));
        let mut table = UsageTable::new(thresholds, Settings::default());
        let ways: Vec<Way> = (0..16).map(|_| table.used(0x1000, 4096)).collect();
        assert_eq!(ways.iter().position(|&way| way == Way::Direct), Some(14), "the 14th reuse");
        assert!(ways[14..].iter().all(|&way| way == Way::Direct));
        assert_eq!(table.used(0x1000, 64), Way::Copy);
        assert_eq!(table.counters().unfit, 1);
    }

    #[test]
    fn one_use_alone_is_no_reuse_unless_it_pays() {
        for (messages, direct) in [(1, 0), (2, 1), (3, 1), (7, 1), (8, 2)] {
            let mut table = UsageTable::new(Thresholds::new(4096, Thresholds::FRACTION_PERCENT, |_| Some(messages)), Settings::default());
            let first = (0..9).position(|_| table.used(0x1000, 4096) == Way::Direct);
            assert_eq!(first, Some(direct), "paid after {messages} messages");
        }
    }

    #[test]
    fn what_will_be_used_again_is_frequent_from_the_first_use() {
        let mut table = UsageTable::new(paper(), Settings::default());
        assert!(table.prefer(0x1000, 1024) && !table.prefer(0x1000, 8));
        assert_eq!((table.used(0x1000, 1024), table.used(0x1000, 2048)), (Way::Direct, Way::Copy));
    }

    #[test]
    fn a_program_without_reuse_does_not_make_the_table_grow() {
        let mut table = UsageTable::new(all_after(10), Settings::default());
        let small = table.bytes();
        for message in 0..1_000_000 {
            assert_eq!(table.used(0x10000 + message * 4096, 4096), Way::Copy);
        }
        assert_eq!(table.bytes(), small);
        let counters = table.counters();
        assert!(counters.held_small > 0 && counters.uncounted > 0 && counters.doubled == 0, "{counters:?}");
    }

    #[test]
    fn frequent_buffers_make_it_grow_up_to_its_limit() {
        let settings = Settings { buffers_max: 5000, ..Settings::default() };
        let mut table = UsageTable::new(all_after(1), settings);
        for buffer in 0..20_000 {
            table.used(0x10000 + buffer * 4096, 4096);
            table.used(0x10000 + buffer * 4096, 4096);
        }
        assert_eq!(table.bytes(), UsageTable::bytes_max(&settings));
        assert_eq!(UsageTable::bytes_max(&settings), 8192 * 16);
        assert!(table.counters().uncounted > 0);
    }

    #[test]
    fn a_program_that_changes_its_buffers_is_followed_in_bounded_memory() {
        let settings = Settings::default();
        let mut table = UsageTable::new(all_after(14), settings);
        const PHASE: usize = 10_000;
        for phase in 0..200 {
            let mut direct = 0;
            for message in 0..PHASE {
                direct += usize::from(table.used((1 << 30) + (phase * 16 + message % 16) * 8192, 4096) == Way::Direct);
            }
            // All but the first 14 messages of each buffer.
            assert_eq!(direct, PHASE - 16 * 14, "phase {phase}");
        }
        assert!(table.bytes() <= 4096 * 16, "{}", table.bytes());
        let counters = table.counters();
        assert!(counters.forgotten > 0 && counters.uncounted == 0, "{counters:?}");
    }

    #[test]
    fn what_is_no_longer_used_is_forgotten_however_often_it_was_used() {
        let settings = Settings { half_life_uses: 256, ..Settings::default() };
        let mut table = UsageTable::new(all_after(14), settings);
        for _ in 0..100_000 {
            table.used(1 << 20, 4096);
        }
        // log2(2 × 14) + 2 half-lives.
        for _ in 0..7 * 256 {
            table.used(2 << 20, 4096);
        }
        assert_eq!(table.buffers(), (1, 1));
        assert_eq!(table.used(1 << 20, 4096), Way::Copy);
    }

    /// The same rules without a table: a map, and every count halved at once.
    #[derive(Default)]
    struct Model {
        known: HashMap<(usize, usize), (u32, bool)>,
        uses: u32,
    }

    proptest! {
        #[test]
        fn counts_are_those_of_a_plain_model(
            program in prop::collection::vec((0usize..600, 0usize..5, 0u32..50), 1..6000),
            threshold in 0u32..9,
            buffers_max in prop::sample::select(vec![10usize, 300, 5000]),
        ) {
            let settings = Settings { buffers_max, half_life_uses: 0, frequent_percent_min: 20 };
            let mut table = UsageTable::new(Thresholds::new(2048, 100, |bytes| (bytes >= 128).then_some(u64::from(threshold))), settings);
            let mut model = Model { known: HashMap::new(), uses: table.half_life() };
            for (buffer, size, kind) in program {
                // Half of the messages are of few buffers.
                let address = 0x7000_0000 + if kind % 2 == 0 { buffer % 20 } else { buffer } * 64;
                let bytes = 64 << size;
                let fits = bytes >= 128;
                let preferred = kind == 49;
                if fits && !preferred {
                    model.uses -= 1;
                    if model.uses == 0 {
                        model.known.retain(|_, (count, _)| { *count /= 2; *count > 0 });
                        model.uses = table.half_life();
                    }
                }
                let before = *table.counters();
                let way = if preferred {
                    if table.prefer(address, bytes) { Way::Direct } else { Way::Copy }
                } else {
                    table.used(address, bytes)
                };
                if !fits {
                    prop_assert_eq!(way, Way::Copy);
                    continue;
                }
                if table.counters().uncounted > before.uncounted {
                    // Never a buffer that is known, and never while the table is nearly empty.
                    prop_assert!(!model.known.contains_key(&(address, size)));
                    prop_assert!(model.known.len() > room(SLOTS_MIN) * 3 / 4, "{}", model.known.len());
                    prop_assert_eq!(way, Way::Copy);
                } else {
                    let (count, frequent) = model.known.entry((address, size)).or_default();
                    *count = (*count + if preferred { threshold + 1 } else { 1 }).min(2 * threshold + 1);
                    *frequent |= *count > threshold;
                    prop_assert_eq!(way == Way::Direct, *frequent);
                }
                prop_assert!(table.bytes() <= UsageTable::bytes_max(&settings));
            }
            let frequent = model.known.values().filter(|known| known.1).count();
            prop_assert_eq!(table.buffers(), (model.known.len(), frequent));
            let counters = table.counters();
            prop_assert!(counters.entered >= counters.forgotten + model.known.len() as u64);
        }
    }
}
