//! The speculative rendezvous, model-checked: every interleaving of small worlds, random runs of large ones, in both variants.
//! `WHIMBREL_TEST_SCALE` 4 and more explores larger worlds, `SEEDS` says how many random ones are played.

mod acks;
mod explore;
mod figures;
mod queue;
mod rules;
mod sequence;
mod worlds;

use explore::{Model, Report, Seen, explore, walk};
use std::time::Instant;

/// Past these the test fails instead of filling the memory.
const STATES_MAX: usize = 100_000_000;

/// 1: what `cargo test` has time for.
fn scale() -> u32 {
    std::env::var("WHIMBREL_TEST_SCALE").ok().and_then(|scale| scale.parse().ok()).unwrap_or(1)
}

/// Explores a world, prints one line about it and, if there is one, the counterexample.
fn run<M: Model>(name: &str, world: M, config: &M::Config) -> Report {
    let begun = Instant::now();
    let report = explore(world, config, STATES_MAX);
    let result = if report.found.is_some() { "VIOLATED" } else { "holds" };
    println!(
        "{name:<58} {:>10} states {:>10} steps {:>8} settled {:>3} deep {:>6.1} s  {result}",
        report.states,
        report.transitions,
        report.settled,
        report.depth,
        begun.elapsed().as_secs_f64()
    );
    if let Some(found) = &report.found {
        println!("    {}: {}", found.why, found.steps.join("; "));
    }
    report
}

/// A world in which nothing goes wrong.
fn holds<M: Model>(name: &str, world: M, config: &M::Config) -> Seen {
    let report = run(name, world, config);
    assert!(report.found.is_none(), "{name}: {:?}", report.found);
    assert!(report.settled > 0, "{name} never comes to rest");
    report.seen
}

/// A world in which something must go wrong. Returns what.
fn fails<M: Model>(name: &str, world: M, config: &M::Config) -> String {
    run(name, world, config).found.unwrap_or_else(|| panic!("{name}: no counterexample")).why
}

/// Random runs with consecutive seeds. The first that fails can be played again: `SEED=n SEEDS=1`.
fn runs<M: Model>(name: &str, world: &M, config: &M::Config, default: u64) -> Seen {
    let number = |name: &str| std::env::var(name).ok().and_then(|n| n.parse::<u64>().ok());
    let (first, seeds) = (number("SEED").unwrap_or(0), number("SEEDS").unwrap_or(default));
    let (mut seen, mut steps) = (Seen::default(), 0);
    for seed in first..first + seeds {
        match walk(world.clone(), config, seed, &mut seen) {
            Ok(taken) => steps += taken,
            Err(why) => panic!("{name}: seed {seed}: {why}"),
        }
    }
    println!("{name:<58} seeds {first} to {}, {steps} steps  holds", first + seeds - 1);
    seen
}
