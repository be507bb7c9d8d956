//! Random worlds with every fault at once: nothing lost, doubled, overtaken or damaged, no queue past its limit.
//!
//! `WHIMBREL_TEST_SCALE=N` (default 1) plays N × 100,000 messages, 100 of them ten million, in the worlds from
//! seed `WHIMBREL_TEST_FIRST` (default 0) on; `WHIMBREL_TEST_SEED=N` plays the world N alone.

use proto::reliability::{Config, RailConfig};
use sim::{Cut, Link, Load, Network, Random, Setup, Sizes, World};

const MESSAGES: u64 = 100_000;
const MS: u64 = 1_000_000;

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok().map(|value| value.parse().expect(name))
}

/// All about a world but its play, from its seed.
fn setup(seed: u64, messages: u64) -> Setup {
    let mut random = Random::new(seed);
    let ranks = random.pick(&[2, 2, 3, 4, 5, 8, 13, 16, 32, 64]);
    let rails = random.between(1, 4) as usize;
    let faulty = random.below(8) > 0;
    let mut up_to = |ppm: u64| if faulty { random.below(ppm + 1) as u32 } else { 0 };
    let faults = [up_to(50_000), up_to(20_000), up_to(10_000), up_to(50_000), up_to(1_000)];
    let links: Vec<Link> = (0..rails)
        .map(|_| Link {
            latency_ns: random.between(1_000, 200_000),
            jitter_ns: random.below(20_000),
            bytes_per_second: random.between(50_000_000, 5_000_000_000),
            queue_bytes: random.between(64 << 10, 2 << 20),
            backpressure: random.chance(700_000),
            loss_ppm: faults[0],
            duplicate_ppm: faults[1],
            corrupt_ppm: faults[2],
            reorder_ppm: faults[3],
            reorder_ns: random.below(500_000),
        })
        .collect();
    let mut cuts = Vec::new();
    if faulty {
        let mut from_ns = 0;
        for _ in 0..random.below(12) {
            from_ns += random.below(40 * MS);
            let way = random.below(3);
            cuts.push(Cut {
                rail: random.below(rails as u64) as u8,
                rank: random.chance(700_000).then(|| random.below(ranks as u64) as u32),
                outgoing: way != 1,
                incoming: way != 2,
                from_ns,
                to_ns: from_ns + random.between(MS, 300 * MS),
            });
        }
    }
    let rails = (0..rails)
        .map(|_| RailConfig {
            mtu_bytes: random.pick(&[1472, 1472, 2048, 4096, 8972]) as u32,
            endpoints: random.between(1, 4) as u8,
            queue_packets_max: random.pick(&[4, 64, 256]) as u16,
        })
        .collect();
    let everyone: Vec<u32> = (0..ranks as u32).collect();
    let senders = if random.chance(800_000) { everyone.clone() } else { vec![0] };
    // All to one now and then.
    let receivers = if random.chance(850_000) { everyone } else { vec![ranks as u32 - 1, ranks as u32 / 2 - 1] };
    let eager_bytes_max = random.pick(&[1024, 4096, 16 << 10, 64 << 10]) as u32;
    Setup {
        ranks: ranks as u32,
        config: Config {
            rails,
            eager_bytes_max,
            credit_bytes: random.pick(&[32 << 10, 64 << 10, 256 << 10]).max(2 * eager_bytes_max as u64),
            credit_header_bytes: random.pick(&[32 << 10, 512 << 10]),
            grant_bytes_max: random.pick(&[96 << 10, 256 << 10, 2 << 20]),
            waiting_max: random.pick(&[8, 64, 1 << 16]) as usize,
            ..Config::default()
        },
        network: Network { links, cuts },
        load: Load {
            messages: (messages / senders.len() as u64).max(1),
            senders,
            receivers,
            outstanding: random.between(1, 64) as usize,
            sizes: Sizes::Mixed,
            offer_ppm: random.pick(&[0, 10_000]) as u32,
            pull_ppm: random.pick(&[0, 10_000]) as u32,
            match_ns: random.pick(&[0, 10_000, MS]),
        },
        rails: vec![],
        spares: 0,
        paths_ns: 0,
        zero_copy: random.chance(500_000),
        completion_ns: 0,
        memory_ppm: faults[4],
        death: None,
        may_fail: false,
        replay_ppm: if faulty { 20_000 } else { 0 },
        forge_ppm: if faulty { 20_000 } else { 0 },
        joins_ns: 0,
        limit_ns: 3_600_000 * MS,
    }
}

/// The same with ranks of different numbers of rails, which learn late what those carry, in three of four worlds, joined datagrams in two of three, and spare rails
/// in half of them.
fn uneven(seed: u64, messages: u64) -> Setup {
    let mut setup = setup(seed, messages);
    let mut random = Random::new(seed ^ 1 << 63);
    if random.chance(750_000) {
        let most = setup.config.rails.len() as u64;
        setup.rails = (0..setup.ranks).map(|_| random.between(1, most) as u8).collect();
        setup.paths_ns = random.below(MS);
    }
    setup.joins_ns = [0, 2_000, 50_000][seed as usize % 3];
    setup.completion_ns = [0, 20_000, 400_000, 5 * MS][seed as usize % 4];
    if random.chance(500_000) {
        setup.spares = random.below(16) as u8;
    }
    setup
}

#[test]
fn every_fault_at_once() {
    if let Some(seed) = number("WHIMBREL_TEST_SEED") {
        println!("{:#?}", uneven(seed, MESSAGES / 10));
        let outcome = World::new(uneven(seed, MESSAGES / 10), seed).run();
        println!("{outcome:#?}");
        return;
    }
    let wanted = MESSAGES * number("WHIMBREL_TEST_SCALE").unwrap_or(1);
    let first = number("WHIMBREL_TEST_FIRST").unwrap_or(0);
    let (mut played, mut seed) = (0, first);
    let (mut unsealed, mut replayed, mut joined) = (0, 0, 0);
    let (mut lost, mut duplicated, mut corrupted, mut died, mut returned, mut damaged, mut ended) = (0, 0, 0, 0, 0, 0, 0);
    while played < wanted {
        let outcome = World::new(uneven(seed, MESSAGES / 10), seed).run();
        played += outcome.messages;
        lost += outcome.lost + outcome.dropped;
        duplicated += outcome.duplicated;
        corrupted += outcome.corrupted;
        died += outcome.sum(|c| c.rails_died);
        returned += outcome.sum(|c| c.rails_returned);
        damaged += outcome.sum(|c| c.damaged_in_memory);
        assert_eq!(outcome.sum(|c| c.refused_frames), 0, "seed {seed}: honest ranks contradict each other");
        (unsealed, joined) = (unsealed + outcome.unsealed, joined + outcome.joined);
        replayed += outcome.sum(|c| c.refused_replayed);
        ended += outcome.end_ns;
        seed += 1;
    }
    println!("{played} messages in the worlds with seeds {first} to {}, {} s of their time", seed - 1, ended / 1_000_000_000);
    println!(
        "datagrams: {lost} lost, {duplicated} doubled, {corrupted} corrupted, {unsealed} not authentic, {replayed} refused as replays, {joined} taken in as runs"
    );
    println!("{damaged} copies damaged in memory; rails died {died} times and returned {returned} times");
    let faults = [lost, duplicated, corrupted, unsealed, replayed, damaged, died, returned, joined];
    assert!(faults.iter().all(|&count| count > 0), "faults that never came: {faults:?}");
}

/// A grant that was larger than all that may be granted never came; it took a sender of short VFRAGs and the smallest allowance.
#[test]
fn a_grant_fits_the_allowance() {
    let outcome = World::new(setup(89, 2_000), 89).run();
    assert_eq!(outcome.sum(|c| c.refused_frames), 0);
}

#[test]
fn a_seed_is_a_world() {
    let play = |seed| World::new(setup(seed, 2000), seed).run();
    for seed in 0..3 {
        assert_eq!(play(seed), play(seed));
    }
    assert_ne!(play(0), play(1));
}

/// Ranks die or are cut off for longer than their peers wait, amid all other faults: every operation ends, one way or the other, and
/// what was delivered was in order.
#[test]
fn peers_that_fail() {
    let worlds = 40 * number("WHIMBREL_TEST_SCALE").unwrap_or(1);
    let (mut failed_sends, mut failed_receives, mut failed_peers) = (0, 0, 0);
    // In 946 what a failed peer had been granted was kept from the others; in 2736 a dead rail's timer ran on for a peer of whom nothing was wanted.
    // In 2668 what came to an offer that nobody took was counted for ever. In 206 an acknowledgement that was not due yet was forgotten while a rail was busy.
    for seed in (0..worlds).chain([206, 946, 2668, 2736]) {
        let mut setup = setup(seed, 400);
        let mut random = Random::new(!seed);
        if setup.ranks > 16 {
            continue;
        }
        setup.config.peer_timeout_ns = random.between(50, 400) * MS;
        setup.config.keepalive_ns = 20 * MS;
        setup.may_fail = true;
        setup.load.offer_ppm = 50_000;
        // Datagrams may read their payloads for longer than it takes to give their peer up.
        setup.completion_ns = [0, MS, 150 * MS][seed as usize % 3];
        let from_ns = random.below(5 * MS);
        let victim = random.below(setup.ranks as u64) as u32;
        if random.chance(500_000) {
            setup.death = Some((victim, from_ns));
        } else {
            let to_ns = from_ns + random.below(1000 * MS);
            for rail in 0..setup.config.rails.len() as u8 {
                let rank = Some(victim);
                setup.network.cuts.push(Cut { rail, rank, outgoing: true, incoming: true, from_ns, to_ns });
            }
        }
        let outcome = World::new(setup, seed).run();
        failed_sends += outcome.failed_sends.iter().sum::<u64>();
        failed_receives += outcome.failed_receives.iter().sum::<u64>();
        failed_peers += outcome.failed_peers.iter().map(Vec::len).sum::<usize>();
    }
    println!("{failed_peers} peers failed, {failed_sends} sends and {failed_receives} receives with them");
    assert!(failed_peers > 0 && failed_sends > 0 && failed_receives > 0);
}
