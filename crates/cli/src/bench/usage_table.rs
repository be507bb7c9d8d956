//! How long does it take to look a buffer up? The buffer-usage table of `memory` beside the paper's buckets and a balanced tree
//! (paper 000 §3.2.1, Fig. 3).

use super::chart::{Chart, Panel, Series, Shape};
use super::options::Options;
use super::statistics::median;
use super::{Findings, table};
use memory::usage::{Settings, Thresholds, UsageTable, Way};
use serde_json::json;
use sim::Random;
use std::collections::BTreeMap;
use std::hint::black_box;
use std::time::Instant;

/// Buffers in the table.
const BUFFERS: [usize; 7] = [1_000, 3_000, 10_000, 30_000, 100_000, 300_000, 1_000_000];
const BUFFERS_QUICK: [usize; 3] = [1_000, 10_000, 100_000];
const SEARCHES: usize = 1 << 18;
const SEARCHES_QUICK: usize = 1 << 14;
/// All buffers have this size, and are frequent after so many uses.
const BYTES: usize = 4096;
const THRESHOLD: u32 = 14;
/// What is wanted of the table of `memory` with a million buffers, ns.
const SEARCH_NS_MAX: f64 = 40.0;
const SEED: u64 = 3;
/// A line of the cache.
const LINE_BYTES: usize = 64;

/// A structure that counts the uses of buffers.
trait Usage {
    /// Counts a use; whether the buffer is frequent.
    fn used(&mut self, address: usize) -> bool;
    fn bytes(&self) -> Option<usize>;
}

impl Usage for UsageTable {
    fn used(&mut self, address: usize) -> bool {
        UsageTable::used(self, address, BYTES) == Way::Direct
    }

    fn bytes(&self) -> Option<usize> {
        Some(UsageTable::bytes(self))
    }
}

/// The paper's table: 2^20 buckets, each a linked list, and a multiplicative hash.
struct Buckets {
    /// One more than the place of the first buffer, 0 for none.
    heads: Vec<u32>,
    buffers: Vec<Chained>,
}

struct Chained {
    address: usize,
    count: u32,
    next: u32,
}

const BUCKETS_LOG2: u32 = 20;

impl Buckets {
    fn new() -> Buckets {
        Buckets { heads: vec![0; 1 << BUCKETS_LOG2], buffers: Vec::new() }
    }
}

impl Usage for Buckets {
    #[inline]
    fn used(&mut self, address: usize) -> bool {
        let head = &mut self.heads[((address as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> (64 - BUCKETS_LOG2)) as usize];
        let mut at = *head;
        while at != 0 {
            let buffer = &mut self.buffers[at as usize - 1];
            if buffer.address == address {
                buffer.count = buffer.count.saturating_add(1);
                return buffer.count > THRESHOLD;
            }
            at = buffer.next;
        }
        self.buffers.push(Chained { address, count: 1, next: *head });
        *head = self.buffers.len() as u32;
        false
    }

    fn bytes(&self) -> Option<usize> {
        Some(self.heads.len() * size_of::<u32>() + self.buffers.len() * size_of::<Chained>())
    }
}

/// A balanced tree: the standard library's B-tree, which is faster than a binary one.
struct Tree(BTreeMap<usize, u32>);

impl Usage for Tree {
    #[inline]
    fn used(&mut self, address: usize) -> bool {
        let count = self.0.entry(address).or_default();
        *count = count.saturating_add(1);
        *count > THRESHOLD
    }

    /// The standard library does not tell.
    fn bytes(&self) -> Option<usize> {
        None
    }
}

/// The table of `memory` for a million buffers, without ageing while it is measured, and growing whatever its buffers are.
fn open() -> UsageTable {
    let thresholds = Thresholds::new(BYTES, 100, |_| Some(u64::from(THRESHOLD)));
    UsageTable::new(thresholds, Settings { buffers_max: 1_000_000, frequent_percent_min: 0, half_life_uses: u32::MAX })
}

const NAMES: [&str; 3] = ["open addressing", "2^20 buckets", "balanced tree"];

/// Runs the experiment.
///
/// Errors: none.
pub fn run(options: &Options) -> Result<Findings, String> {
    let (buffers, searches) = if options.quick { (&BUFFERS_QUICK[..], SEARCHES_QUICK) } else { (&BUFFERS[..], SEARCHES) };
    let mut found = Findings::default();
    let headings = ["buffers", NAMES[0], NAMES[1], NAMES[2], "a load", "open, MiB", "buckets, MiB", "open at once", "buckets at once", "tree at once"];
    let mut table = table(headings.map(str::to_owned).to_vec(), 0);
    let mut series = NAMES.map(|name| Series { name: name.to_owned(), points: Vec::new() });
    for (place, &count) in buffers.iter().enumerate() {
        let measured = [
            measure(open(), count, searches, options.rounds),
            measure(Buckets::new(), count, searches, options.rounds),
            measure(Tree(BTreeMap::new()), count, searches, options.rounds),
        ];
        let a_load_ns = load_ns(measured[0].bytes.unwrap_or(0), searches, options.rounds);
        let ns = |value: f64| format!("{value:.1}");
        let mib = |bytes: Option<usize>| bytes.map_or("–".to_owned(), |bytes| format!("{:.1}", bytes as f64 / f64::from(1 << 20)));
        let [one, two, three] = &measured;
        table.add_row([
            count.to_string(),
            ns(one.each_ns),
            ns(two.each_ns),
            ns(three.each_ns),
            ns(a_load_ns),
            mib(one.bytes),
            mib(two.bytes),
            ns(one.together_ns),
            ns(two.together_ns),
            ns(three.together_ns),
        ]);
        for ((name, it), series) in NAMES.iter().zip(&measured).zip(&mut series) {
            series.points.push((place as f64, it.each_ns));
            found.rows.push(json!({
                "figure": "3", "structure": name, "buffers": count, "search_ns": it.each_ns, "search_together_ns": it.together_ns,
                "bytes": it.bytes, "load_ns": a_load_ns,
            }));
        }
        if count == 1_000_000 {
            let says = if measured[0].each_ns < SEARCH_NS_MAX { "yes" } else { "no" };
            found.notes.push(format!("a million buffers in under {SEARCH_NS_MAX} ns, open addressing: {:.1}, {says}", measured[0].each_ns));
        }
    }
    found.tables.push(("A use of one of so many buffers, by chance, is looked up and counted: ns, median of the rounds".to_owned(), table));
    found.notes.push(
        "Each search begins when the one before has ended; on the right, the processor may begin many at once, as it cannot between sends.\n\
         a load: of one line of as much memory as open addressing has, by chance, each behind the one before.\n\
         Paper, Fig. 3: the time in 2^20 buckets grows slowly, that in a binary tree much faster. memory::usage has open addressing."
            .to_owned(),
    );
    let label = |count: &usize| if count.is_multiple_of(1000) { format!("{}k", count / 1000) } else { count.to_string() };
    let panel = Panel {
        title: "Time of a search (measured here)".to_owned(),
        x_label: "buffers in the table".to_owned(),
        y_label: "ns".to_owned(),
        categories: buffers.iter().map(label).collect(),
        series: series.into(),
        shape: Shape::Lines,
    };
    found.charts.push(("usage-table-fig3".to_owned(), Chart { columns: 1, panels: vec![panel] }));
    Ok(found)
}

struct Measured {
    /// A search that waits for the one before, and one of many under way.
    each_ns: f64,
    together_ns: f64,
    bytes: Option<usize>,
}

/// Medians over `rounds` of the mean over `searches`, in a structure with `count` buffers.
fn measure(mut usage: impl Usage, count: usize, searches: usize, rounds: usize) -> Measured {
    let mut random = Random::new(SEED);
    // Buffers of a page, some apart and in no order.
    let mut addresses: Vec<usize> = (0..count).map(|buffer| (1 << 40) + buffer * 2 * BYTES).collect();
    for at in (1..count).rev() {
        addresses.swap(at, random.below(at as u64 + 1) as usize);
    }
    for &address in &addresses {
        usage.used(address);
    }
    let order: Vec<usize> = (0..searches).map(|_| addresses[random.below(count as u64) as usize]).collect();
    // The compiler does not know that it is 0, and the processor must wait for what it is multiplied with.
    let nothing = black_box(0);
    let (mut each, mut together) = (Vec::new(), Vec::new());
    for _ in 0..rounds {
        let began = Instant::now();
        let mut last = false;
        for &address in &order {
            last = usage.used(address + usize::from(last) * nothing);
        }
        black_box(last);
        each.push(began.elapsed().as_nanos() as f64 / searches as f64);
        let began = Instant::now();
        let mut frequent = 0;
        for &address in &order {
            frequent += usize::from(usage.used(address));
        }
        black_box(frequent);
        together.push(began.elapsed().as_nanos() as f64 / searches as f64);
    }
    Measured { each_ns: median(&each), together_ns: median(&together), bytes: usage.bytes() }
}

/// How long a load takes that goes to a line by chance of so many bytes, once the one before has ended; median of the rounds.
fn load_ns(bytes: usize, loads: usize, rounds: usize) -> f64 {
    let mut random = Random::new(SEED);
    let mut lines = memory::in_huge_pages([0u64; LINE_BYTES / size_of::<u64>()], (bytes / LINE_BYTES).max(1));
    // Each line says which comes next, and all of them are one circle (Sattolo).
    (0..lines.len()).for_each(|at| lines[at][0] = at as u64);
    for at in (1..lines.len()).rev() {
        let other = random.below(at as u64) as usize;
        let (next, others) = (lines[at][0], lines[other][0]);
        (lines[at][0], lines[other][0]) = (others, next);
    }
    let mut at = 0;
    let mut each = Vec::new();
    for _ in 0..rounds {
        let began = Instant::now();
        for _ in 0..loads {
            at = lines[at][0] as usize;
        }
        black_box(at);
        each.push(began.elapsed().as_nanos() as f64 / loads as f64);
    }
    median(&each)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_three_count_the_same() {
        let (mut one, mut two, mut three) = (open(), Buckets::new(), Tree(BTreeMap::new()));
        let mut random = Random::new(7);
        let mut frequent = 0;
        for _ in 0..100_000 {
            let address = (1 << 20) + random.below(4000) as usize * BYTES;
            let known = Usage::used(&mut one, address);
            assert_eq!((known, known), (two.used(address), three.used(address)));
            frequent += usize::from(known);
        }
        assert!(frequent > 10_000 && frequent < 90_000, "{frequent}");
    }
}
