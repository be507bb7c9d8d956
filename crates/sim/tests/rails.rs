//! Several rails: they add up, one may die and return, and when all have died the peer has failed.

use sim::{Cut, Link, Load, Outcome, Setup, World};

const MS: u64 = 1_000_000;

/// Rank 0 and rank 1 send messages of 1 MiB to each other.
fn exchange(links: Vec<Link>, cuts: Vec<Cut>, messages: u64, change: impl FnOnce(&mut Setup)) -> Outcome {
    let mut setup = Setup::new(2, links, Load::plain(messages, vec![0, 1], vec![0, 1], 4, 1 << 20));
    setup.network.cuts = cuts;
    change(&mut setup);
    World::new(setup, 7).run()
}

fn slow() -> Link {
    Link { bytes_per_second: 125_000_000, latency_ns: 20_000, ..Link::default() }
}

fn cut(rail: u8, from_ns: u64, to_ns: u64) -> Cut {
    Cut { rail, rank: None, outgoing: true, incoming: true, from_ns, to_ns }
}

#[test]
fn two_rails_add_up() {
    let one = exchange(vec![slow()], vec![], 64, |_| ()).goodput_bytes_per_second();
    let two = exchange(vec![slow(), slow()], vec![], 64, |_| ()).goodput_bytes_per_second();
    let fast = Link { bytes_per_second: 375_000_000, ..slow() };
    let uneven = exchange(vec![slow(), fast], vec![], 64, |_| ()).goodput_bytes_per_second();
    println!("one rail {:.1} MB/s, two {:.3} times as much, one and a rail of three times its speed {:.3}", one / 1e6, two / one, uneven / one);
    assert!(two >= 1.7 * one && uneven >= 3.4 * one);
}

/// A spare rail adds nothing while the other one answers, takes over when that is cut, and leaves the traffic to it when it returns.
#[test]
fn a_spare_rail_stands_by() {
    let spare = |setup: &mut Setup| setup.spares = 0b10;
    let alone = exchange(vec![slow()], vec![], 64, |_| ()).goodput_bytes_per_second();
    let fast = Link { bytes_per_second: 375_000_000, ..slow() };
    let beside = exchange(vec![slow(), fast.clone()], vec![], 64, spare).goodput_bytes_per_second();
    let outcome = exchange(vec![slow(), fast], vec![cut(0, 100 * MS, 400 * MS)], 128, spare);
    println!(
        "{:.3} times as fast as without it; pauses {:?} ns, ended after {} ms; {:?}",
        beside / alone,
        outcome.pause_ns,
        outcome.end_ns / MS,
        outcome.rail_changes
    );
    assert!(beside < 1.1 * alone && beside > 0.9 * alone);
    assert!(outcome.pause_ns.iter().all(|&pause_ns| pause_ns < 100 * MS));
    for changes in &outcome.rail_changes {
        let rail = |change: &(u64, u32, u8, bool)| (change.2, change.3);
        assert_eq!((changes.first().map(rail), changes.last().map(rail)), (Some((0, false)), Some((0, true))));
    }
}

#[test]
fn a_rail_is_cut_and_returns() {
    for way in 0..3 {
        let mut cut = cut(1, 100 * MS, 400 * MS);
        (cut.outgoing, cut.incoming) = (way != 1, way != 2);
        // Of one direction of one rank only, or of both of all.
        cut.rank = (way != 0).then_some(0);
        let outcome = exchange(vec![slow(), slow()], vec![cut], 128, |_| ());
        println!("way {way}: longest pauses {:?} ns, ended after {} ms; {:?}", outcome.pause_ns, outcome.end_ns / MS, outcome.rail_changes);
        assert!(outcome.pause_ns.iter().all(|&pause_ns| pause_ns < 100 * MS));
        let changes = &outcome.rail_changes[0];
        assert!(changes.iter().any(|&(_, _, rail, alive)| rail == 1 && !alive) || way == 1, "never marked dead");
        // Whatever died is back.
        for changes in &outcome.rail_changes {
            assert!(changes.last().is_none_or(|&(_, _, _, alive)| alive));
        }
        // The rail's return is used: less than on one rail alone.
        assert!(outcome.last_ns < 2 * 128 * 1049 * MS / 125);
    }
}

#[test]
fn a_cut_of_all_rails_costs_time_only() {
    let outcome = exchange(vec![slow(), slow()], vec![cut(0, 50 * MS, 3000 * MS), cut(1, 60 * MS, 2500 * MS)], 64, |_| ());
    println!("longest pauses {:?} ns, ended after {} ms", outcome.pause_ns, outcome.end_ns / MS);
    assert_eq!(outcome.messages, 128);
    assert!(outcome.pause_ns.iter().all(|&pause_ns| pause_ns < 2440 * MS + 1000 * MS));
}

#[test]
fn a_dead_peer_ends_everything() {
    for rails in [1, 3] {
        let outcome = exchange(vec![slow(); rails], vec![], 64, |setup| {
            setup.death = Some((1, 100 * MS));
            setup.config.peer_timeout_ns = 2000 * MS;
        });
        println!(
            "{rails} rails: {:?}, {} sends and {} receives failed, ended after {} ms",
            outcome.failed_peers[0],
            outcome.failed_sends[0],
            outcome.failed_receives[0],
            outcome.end_ns / MS
        );
        assert_eq!(outcome.failed_peers[0], [1]);
        assert!(outcome.failed_sends[0] > 0 && outcome.failed_receives[0] > 0);
        assert!(outcome.end_ns < 100 * MS + 2000 * MS + 600 * MS);
    }
}

#[test]
fn rails_that_never_return_fail_the_peer() {
    let outcome = exchange(vec![slow(), slow()], vec![cut(0, 50 * MS, u64::MAX), cut(1, 70 * MS, u64::MAX)], 64, |setup| {
        setup.may_fail = true;
        setup.config.peer_timeout_ns = 2000 * MS;
    });
    println!("{:?}, ended after {} ms", outcome.failed_peers, outcome.end_ns / MS);
    assert_eq!(outcome.failed_peers, [vec![1], vec![0]]);
    assert!(outcome.end_ns < 70 * MS + 2000 * MS + 600 * MS);
}
