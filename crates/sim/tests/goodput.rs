//! Goodput under loss, in simulated time: the same numbers on every machine.

use sim::{Link, Load, Outcome, Setup, World};

fn stream(sizes: u64, messages: u64, outstanding: usize, link: Link, rails: usize) -> Outcome {
    let load = Load::plain(messages, vec![0], vec![1], outstanding, sizes);
    let setup = Setup { limit_ns: 100_000_000_000, ..Setup::new(2, vec![link; rails], load) };
    World::new(setup, 1).run()
}

#[test]
fn loss_costs_little() {
    for (sizes, messages, outstanding) in [(1 << 20, 64, 4), (4096, 10_000, 64), (64, 100_000, 512)] {
        let lossless = stream(sizes, messages, outstanding, Link::default(), 1).goodput_bytes_per_second();
        println!("{sizes} bytes without loss: {:.1} MB/s", lossless / 1e6);
        for (loss_ppm, least) in [(1_000, 0.9), (10_000, 0.8), (50_000, 0.5)] {
            let outcome = stream(sizes, messages, outstanding, Link { loss_ppm, ..Link::default() }, 1);
            let share = outcome.goodput_bytes_per_second() / lossless;
            let again = outcome.sum(|c| c.segments_again);
            let needless = outcome.sum(|c| c.segments_needless);
            println!("{sizes} bytes at {loss_ppm} ppm: {share:.3}; {again} segments again, {needless} needlessly; {:?}", outcome.counters[0]);
            assert!(share >= least, "{sizes} bytes at {loss_ppm} ppm: {share:.3} of lossless");
        }
    }
}

/// One in a hundred datagrams lost, doubled, damaged and held up each, on paths of several lengths.
#[test]
fn all_faults_cost_little() {
    for latency_ns in [2_000, 50_000] {
        let link = Link { latency_ns, ..Link::default() };
        let faulty = Link { loss_ppm: 10_000, duplicate_ppm: 10_000, corrupt_ppm: 10_000, reorder_ppm: 10_000, reorder_ns: 100_000, ..link.clone() };
        let whole = stream(1 << 20, 64, 4, link, 1).goodput_bytes_per_second();
        let share = stream(1 << 20, 64, 4, faulty, 1).goodput_bytes_per_second() / whole;
        println!("way of {latency_ns} ns: {share:.3} of {:.1} MB/s", whole / 1e6);
        assert!(share >= 0.8);
    }
}
