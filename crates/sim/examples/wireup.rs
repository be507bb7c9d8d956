//! Prints what the first message to everybody costs one rank: `wireup [RANKS...]`. See docs/scale.md.

use sim::wireup::{Job, wire_up};

/// A local read of the store, ns, and what a pair of addresses more is.
const STORE_NS: u64 = 20_000;
const PROBES: u32 = 4;

fn main() {
    let words = std::env::args().skip(1).map(|word| word.parse().expect("a number of ranks, at least 2"));
    let ranks: Vec<u32> = words.collect();
    let ranks = if ranks.is_empty() { vec![64, 256, 512, 4096, 100_000] } else { ranks };
    println!("ranks    µs a peer  with store  and probes  datagrams a peer: out  in  store reads  B a quiet peer  B a peer, at work  MiB in all");
    for ranks in ranks {
        let plain = wire_up(&Job::new(ranks));
        let store = wire_up(&Job { store_ns: STORE_NS, ..Job::new(ranks) });
        let probing = wire_up(&Job { store_ns: STORE_NS, probes: PROBES, ..Job::new(ranks) });
        let each = |count: u64| count as f64 / f64::from(plain.peers);
        let at_work = plain.at_work_bytes.last().map_or(0, |point| point.1);
        println!(
            "{ranks:<8} {:>9.1} {:>11.1} {:>11.1} {:>22.2} {:>3.2} {:>12} {:>15.0} {:>17.0} {:>11.1}",
            each(plain.elapsed_ns) / 1e3,
            each(store.elapsed_ns) / 1e3,
            each(probing.elapsed_ns) / 1e3,
            each(plain.counters.packets_sent),
            each(plain.counters.packets_arrived),
            plain.store_reads,
            each(plain.quiet_bytes as u64),
            each(at_work as u64),
            plain.quiet_bytes as f64 / f64::from(1 << 20),
        );
    }
}
