//! Whether long bytes that another core has in its caches are copied in order or in several streams. Several streams keep more lines under way; where a processor
//! fetches ahead far enough by itself, from one piece into the next, they only disturb it. Neither is known of a machine before it is tried, and where a virtual
//! machine's processors run changes while a program does: so both are timed again and again, and the faster is used in between. What counts is the time in which some
//! copies follow each other, not what each takes: a copy that takes lines from the other core sooner may make that one slower.

use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU32, AtomicU64, Ordering::Relaxed};

/// So many copies go in one order. A block is timed from the end of its first copy on.
const BLOCK: u32 = 8;
/// Of the first blocks, every fourth and the one behind it are timed, one in each order.
const EARLY_BLOCKS: u32 = 64;
const EARLY_PERIOD: u32 = 4;
/// A block that takes more than so many times as long as its copies tells of other things than copies.
const TIMES_BUSY_MAX: u64 = 4;
/// Difference of two times, of their sum, of which one is counted: [`WHOLE`] is all. More is a disturbance.
const WHOLE: i64 = 1024;
const DIFFERENCE_MAX: i64 = WHOLE / 8;
/// The mean is of so many trials, and must pass so much (in [`WHOLE`]ths) before the order changes.
const TRIALS_IN_MEAN: i32 = 16;
const LEAD_MIN: i32 = TRIALS_IN_MEAN * 8;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Order {
    InOrder,
    Abreast,
}

/// What is known about copies of one kind in one process. Threads share it without any order among them: what one misses, the next trial tells.
pub(super) struct Trial {
    /// Later, two of so many blocks are timed. Those who write and those who read have different ones, lest their trials stay together.
    period: u32,
    copies: AtomicU32,
    /// The end of the first copy of this block, ticks; since then, ticks within copies, and bytes.
    began: AtomicU64,
    busy: AtomicU64,
    bytes: AtomicU64,
    /// What the first block of this pair took; 0: not known.
    first: AtomicU64,
    /// By how much copies in streams are faster: the mean times [`TRIALS_IN_MEAN`].
    lead: AtomicI32,
    abreast: AtomicBool,
}

impl Trial {
    pub const fn new(period: u32) -> Trial {
        let (began, busy, bytes, first) = (AtomicU64::new(0), AtomicU64::new(0), AtomicU64::new(0), AtomicU64::new(0));
        Trial { period, copies: AtomicU32::new(0), began, busy, bytes, first, lead: AtomicI32::new(0), abreast: AtomicBool::new(false) }
    }

    fn period_of(&self, block: u32) -> u32 {
        if block < EARLY_BLOCKS { EARLY_PERIOD } else { self.period }
    }

    /// The order of the next copy, and its number, where a trial needs [to be told](Trial::took) what it takes.
    #[inline]
    pub fn next(&self) -> (Order, Option<u32>) {
        let number = self.copies.load(Relaxed);
        self.copies.store(number.wrapping_add(1), Relaxed);
        let block = number / BLOCK;
        let period = self.period_of(block);
        if block % period < 2 {
            return (order_of(block, period), Some(number));
        }
        (if self.abreast.load(Relaxed) { Order::Abreast } else { Order::InOrder }, None)
    }

    /// The copy of `bytes` of that number began and ended at these ticks.
    #[cold]
    pub fn took(&self, number: u32, bytes: usize, from: u64, to: u64) {
        if number.is_multiple_of(BLOCK) {
            self.began.store(to, Relaxed);
            self.busy.store(0, Relaxed);
            return self.bytes.store(0, Relaxed);
        }
        let busy = self.busy.load(Relaxed).saturating_add(to.saturating_sub(from));
        let bytes = self.bytes.load(Relaxed) + bytes as u64;
        self.busy.store(busy, Relaxed);
        self.bytes.store(bytes, Relaxed);
        if number % BLOCK == BLOCK - 1 {
            let all = to.saturating_sub(self.began.load(Relaxed));
            // Of 1 MiB, so that blocks of somewhat different lengths can be compared.
            let scaled = (all.min(1 << 32) << 20) / bytes.max(1);
            self.block_took(number / BLOCK, if all > TIMES_BUSY_MAX.saturating_mul(busy) { 0 } else { scaled });
        }
    }

    /// A block took so long; 0: nobody knows.
    fn block_took(&self, block: u32, ticks: u64) {
        let period = self.period_of(block);
        if block.is_multiple_of(period) {
            return self.first.store(ticks, Relaxed);
        }
        let first = self.first.swap(0, Relaxed);
        if first == 0 || ticks == 0 {
            return;
        }
        let (in_order, abreast) = match order_of(block, period) {
            Order::Abreast => (first, ticks),
            Order::InOrder => (ticks, first),
        };
        let (in_order, abreast) = (in_order as i64, abreast as i64);
        let difference = ((in_order - abreast) * WHOLE / (in_order + abreast)).clamp(-DIFFERENCE_MAX, DIFFERENCE_MAX) as i32;
        let lead = self.lead.load(Relaxed);
        let lead = lead - lead / TRIALS_IN_MEAN + difference;
        self.lead.store(lead, Relaxed);
        if lead.abs() > LEAD_MIN {
            self.abreast.store(lead > 0, Relaxed);
        }
    }
}

/// The order in which a block is timed: each comes first as often as the other.
fn order_of(block: u32, period: u32) -> Order {
    let turned = block / period % 2 == 1;
    if block.is_multiple_of(period) == turned { Order::Abreast } else { Order::InOrder }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PERIOD: u32 = 32;

    /// Copies of 16 KiB, which take what `ticks` says of the number of the block and the order, and `between` ticks from one to the next; tells how many of the last
    /// half went in streams.
    fn abreast_of(copies: u32, between: u64, ticks: impl Fn(u32, Order) -> u64) -> u32 {
        let trial = Trial::new(PERIOD);
        let (mut now, mut seen) = (1, 0);
        for number in 0..copies {
            let (order, timed) = trial.next();
            let end = now + ticks(number / BLOCK, order);
            if let Some(timed) = timed {
                trial.took(timed, 16 << 10, now, end);
            }
            now = end + between;
            seen += u32::from(number >= copies / 2 && order == Order::Abreast);
        }
        seen
    }

    fn takes(in_order: u64, abreast: u64) -> impl Fn(u32, Order) -> u64 {
        move |_, order| if order == Order::Abreast { abreast } else { in_order }
    }

    #[test]
    fn the_faster_order_is_used_all_but_always() {
        let few = 20_000 / PERIOD + 2 * BLOCK;
        assert!(abreast_of(40_000, 0, takes(1000, 900)) > 20_000 - few);
        assert!(abreast_of(40_000, 0, takes(900, 1000)) < few);
        // Equal: as at the beginning.
        assert!(abreast_of(40_000, 0, takes(1000, 1000)) < few);
        // With some other work in between, and with so much that copies do not matter.
        assert!(abreast_of(40_000, 1000, takes(1000, 900)) > 20_000 - few);
        assert!(abreast_of(40_000, 10_000, takes(1000, 900)) < few);
    }

    /// One of sixteen blocks takes thirty times as long, and the first one of each pair always a bit longer.
    #[test]
    fn disturbances_do_not_decide() {
        let disturbed = |better: Order| {
            move |block: u32, order| {
                let takes = if order == better { 900 } else { 1000 };
                let takes = if block.is_multiple_of(PERIOD) { takes + 70 } else { takes };
                if block.wrapping_mul(2_654_435_761) >> 28 == 0 { 30 * takes } else { takes }
            }
        };
        let most = 200_000 - 200_000 / 12;
        assert!(abreast_of(400_000, 0, disturbed(Order::Abreast)) > most);
        assert!(abreast_of(400_000, 0, disturbed(Order::InOrder)) < 200_000 - most);
    }

    #[test]
    fn a_change_of_the_machine_is_followed() {
        let changed = |first: Order| move |block: u32, order| if (order == first) == (block < 20_000) { 900 } else { 1000 };
        let most = 200_000 - 200_000 / 8;
        assert!(abreast_of(400_000, 0, changed(Order::InOrder)) > most);
        assert!(abreast_of(400_000, 0, changed(Order::Abreast)) < 200_000 - most);
    }
}
