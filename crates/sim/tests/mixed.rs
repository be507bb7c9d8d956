//! The protocol machine on random mixes of memory, connections and datagrams.

use proto::p2p::DataPath;
use sim::Random;
use sim::mixed::{Outcome, Setup, World};

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}

/// Messages of one world, about; and worlds at scale 1.
const MESSAGES: u32 = 1500;
const WORLDS: u64 = 40;

#[test]
fn nothing_is_lost_doubled_overtaken_or_damaged() {
    let seeds = match number("WHIMBREL_TEST_SEED") {
        Some(seed) => seed..seed + 1,
        None => 0..WORLDS * number("WHIMBREL_TEST_SCALE").unwrap_or(1),
    };
    let mut sum = Outcome::default();
    for seed in seeds.clone() {
        let setup = Setup::draw(&mut Random::new(seed), MESSAGES);
        sum.add(&World::new(setup, seed).run());
    }
    println!("seeds {seeds:?}: {sum:?}");
    if seeds.end - seeds.start >= WORLDS {
        // All of it was played.
        assert!(sum.routes.iter().all(|messages| *messages > 0), "{:?}", sum.routes);
        assert!(
            [
                sum.reads,
                sum.puts,
                sum.cancelled,
                sum.taken,
                sum.announced,
                sum.answered,
                sum.crossed,
                sum.lost,
                sum.switches,
                sum.breaks,
                sum.resent,
                sum.doubled,
                sum.in_parts
            ]
            .iter()
            .all(|count| *count > 0),
            "{sum:?}"
        );
        assert_eq!(sum.messages, sum.routes.iter().sum::<u64>(), "{:?} as {:?}", sum.routes, DataPath::Own);
    }
}

#[test]
fn a_seed_plays_the_same_world_again() {
    let play = || World::new(Setup::draw(&mut Random::new(7), 300), 7).run();
    assert_eq!(play(), play());
}
