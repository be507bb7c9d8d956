//! Engines in one process, on real shared memory, stepped in random order by one thread.
//!
//! `SEEDS=N` plays N worlds (1,000 otherwise), `WHIMBREL_TEST_SEED=N` the world N alone.

mod batch;
mod order;
mod play;
mod random;

use batch::number;
use play::Tally;
use std::sync::atomic::{AtomicU64, Ordering};

const SEEDS: u64 = 1_000;
/// Worlds of one child process: what they map stays mapped until it ends.
const BATCH: u64 = 100;

#[test]
fn every_message_arrives_once_whole_and_in_order() {
    if let Some(seed) = number("WHIMBREL_TEST_SEED") {
        return play::World::new(seed).run(&mut Tally::default());
    }
    let seeds = number("SEEDS").unwrap_or(SEEDS);
    if let Some(first) = batch::first() {
        let mut tally = Tally::default();
        batch::play(first..seeds.min(first + BATCH), |seed| play::World::new(seed).run(&mut tally));
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
                    batch::run("every_message_arrives_once_whole_and_in_order", first);
                }
            });
        }
    });
}
