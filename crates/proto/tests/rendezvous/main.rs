//! The speculative rendezvous, model-checked: every interleaving of small worlds, random runs of large ones, in both variants.
//! `WHIMBREL_TEST_SCALE` 4 explores larger worlds and plays more random ones, 16 the largest; `SEED` plays one random run again.

mod acks;
mod explore;
mod figures;
mod machine;
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
fn run<M: Model>(name: &str, world: M, config: &M::Config, must_hold: bool) -> Report {
    let begun = Instant::now();
    let report = explore(world, config, STATES_MAX);
    let result = match (&report.found, must_hold) {
        (None, true) => "holds",
        (Some(_), false) => "fails, as it must",
        _ => "WRONG",
    };
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
    let report = run(name, world, config, true);
    assert!(report.found.is_none(), "{name}: {:?}", report.found);
    assert!(report.settled > 0, "{name} never comes to rest");
    report.seen
}

/// A world in which something must go wrong. Returns what.
fn fails<M: Model>(name: &str, world: M, config: &M::Config) -> String {
    run(name, world, config, false).found.unwrap_or_else(|| panic!("{name}: no counterexample")).why
}

/// Random runs with `count` seeds. One that fails can be played again: `SEED=n`.
fn runs<M: Model>(name: &str, world: &M, config: &M::Config, count: u64) -> Seen {
    let one = std::env::var("SEED").ok().and_then(|seed| seed.parse::<u64>().ok());
    let (first, last) = one.map_or((0, count - 1), |seed| (seed, seed));
    let (mut seen, mut steps) = (Seen::default(), 0);
    for seed in first..=last {
        match walk(world.clone(), config, seed, &mut seen) {
            Ok(taken) => steps += taken,
            Err(why) => panic!("{name}: seed {seed}: {why}"),
        }
    }
    println!("{name:<58} seeds {first} to {last}, {steps} steps  holds");
    seen
}
