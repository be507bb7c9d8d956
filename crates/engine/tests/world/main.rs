//! Engines in one process, on real shared memory, stepped in random order by one thread.
//!
//! `SEEDS=N` plays N worlds (1,000 otherwise), `WHIMBREL_TEST_SEED=N` the world N alone.

mod order;
mod play;
mod random;

use play::Tally;
use std::process::Command;
use std::sync::atomic::{AtomicU64, Ordering};

const SEEDS: u64 = 1_000;
/// Worlds of one child process: what they map stays mapped until it ends.
const BATCH: u64 = 100;
const BATCH_VARIABLE: &str = "WHIMBREL_TEST_BATCH";

fn number(variable: &str) -> Option<u64> {
    std::env::var(variable).ok().filter(|v| !v.is_empty()).map(|v| v.parse().expect("a number"))
}

#[test]
fn every_message_arrives_once_whole_and_in_order() {
    if let Some(seed) = number("WHIMBREL_TEST_SEED") {
        return play::World::new(seed).run(&mut Tally::default());
    }
    let seeds = number("SEEDS").unwrap_or(SEEDS);
    if let Some(first) = number(BATCH_VARIABLE) {
        let mut tally = Tally::default();
        for seed in first..seeds.min(first + BATCH) {
            // The last line tells the seed, however the process ends.
            println!("seed {seed}");
            play::World::new(seed).run(&mut tally);
        }
        println!("{tally:?}");
        assert!(tally.all() || seeds < first + BATCH, "a case that no world came to: {tally:?}");
        return;
    }
    let next = AtomicU64::new(0);
    let workers = std::thread::available_parallelism().map_or(1, usize::from);
    std::thread::scope(|scope| {
        for _ in 0..workers {
            scope.spawn(|| {
                loop {
                    let first = next.fetch_add(BATCH, Ordering::Relaxed);
                    if first >= seeds {
                        break;
                    }
                    batch(first);
                }
            });
        }
    });
}

fn batch(first: u64) {
    let me = std::env::current_exe().unwrap();
    let child = Command::new(me)
        .args(["--exact", "every_message_arrives_once_whole_and_in_order", "--nocapture", "--test-threads=1"])
        .env(BATCH_VARIABLE, first.to_string())
        .output()
        .unwrap();
    if !child.status.success() {
        let (out, err) = (String::from_utf8_lossy(&child.stdout), String::from_utf8_lossy(&child.stderr));
        let seed = out.lines().rev().find_map(|l| l.split("seed ").nth(1)).unwrap_or("?");
        panic!("{}: repeat with WHIMBREL_TEST_SEED={}\n{err}", child.status, seed.trim());
    }
}
