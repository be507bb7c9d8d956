//! Engines in one process, on real shared memory or on sockets, stepped in random order by one thread.
//!
//! `SEEDS=N` plays N worlds (1,000 on shared memory and 150 on sockets otherwise), `WHIMBREL_TEST_SEED=N` the world N alone.

mod batch;
#[path = "../layout/mod.rs"]
mod layout;
mod order;
mod play;
mod random;

use batch::number;
use play::Tally;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

const SEEDS: u64 = 1_000;
/// Worlds of one child process: what they map stays mapped until it ends.
const BATCH: u64 = 100;

/// Worlds of datagrams: each has sockets of its own, and waits for real time.
const SEEDS_APART: u64 = 150;
const BATCH_APART: u64 = 75;

#[test]
fn every_message_arrives_once_whole_and_in_order() {
    let all = |tally: &Tally| tally.all();
    play_all("every_message_arrives_once_whole_and_in_order", SEEDS, BATCH, play::World::new, all);
}

/// Receives are announced over datagrams: windows, pushes, resets, and announcements that cross, miss, or are taken back.
#[test]
fn every_datagram_message_arrives_once_whole_and_in_order() {
    let all = |tally: &Tally| tally.all_apart();
    play_all("every_datagram_message_arrives_once_whole_and_in_order", SEEDS_APART, BATCH_APART, play::World::apart, all);
}

/// Plays the worlds of test `name` that `make` makes, in child processes of `batch` worlds each. `all` has to hold of what they all went through,
/// where they are no fewer than `seeds`, the usual number.
fn play_all(name: &str, seeds: u64, batch: u64, make: fn(u64) -> play::World, all: fn(&Tally) -> bool) {
    if let Some(seed) = number("WHIMBREL_TEST_SEED") {
        return make(seed).run(&mut Tally::default());
    }
    let usual = seeds;
    let seeds = number("SEEDS").unwrap_or(usual);
    let whole = Mutex::new(Tally::default());
    if let Some(first) = batch::first() {
        let mut tally = Tally::default();
        batch::play(first..seeds.min(first + batch), |seed| make(seed).run(&mut tally));
        println!("{}", tally.line());
        return;
    }
    let next = AtomicU64::new(0);
    let workers = std::thread::available_parallelism().map_or(1, usize::from);
    std::thread::scope(|scope| {
        for _ in 0..workers {
            scope.spawn(|| {
                loop {
                    let first = next.fetch_add(batch, Ordering::Relaxed);
                    if first >= seeds {
                        break;
                    }
                    let said = batch::run(name, first);
                    assert!(whole.lock().unwrap().add(&said), "the batch from seed {first} told no tally");
                }
            });
        }
    });
    let whole = whole.into_inner().unwrap();
    println!("{whole:?}");
    assert!(all(&whole) || seeds < usual, "a case that no world came to: {whole:?}");
}
