//! Every interleaving of small worlds, and random runs of large ones.

use crate::explore::{Model, Seen, explore, fingerprint, sweep};
use crate::sequence::{AnySource, Config, Kind, World};
use crate::{STATES_MAX, acks, holds, runs, scale};
use std::collections::HashSet;

const ALL_KINDS: &[Kind] = &[Kind::Eager, Kind::Synchronous, Kind::Large, Kind::Scattered];

/// Everything that counting can lead to.
const SEQUENCE_EVENTS: &[&str] = &[
    "RTR",
    "answered",
    "stored",
    "mispredicted",
    "crossed a large message",
    "crossed a short message",
    "crossed, the receiver begins",
    "crossed, the sender began",
    "used up by another protocol",
];

#[test]
fn sequence_one_envelope() {
    let all = Config { kinds: ALL_KINDS, ..Config::SMALL };
    holds("sequence: 1 envelope, 3+3, all kinds", World::<4, 8>::new(&all), &all).must_have(SEQUENCE_EVENTS);
    let config = Config { cancels: 1, ..Config::SMALL };
    holds("sequence: 1 envelope, 3+3, a cancel", World::<4, 8>::new(&config), &config).must_have(&["cancelled", "a cancel waits", "withdrawn"]);
    if scale() >= 4 {
        let config = Config { cancels: 2, ..all };
        holds("sequence: 1 envelope, 3+3, all kinds, 2 cancels", World::<4, 8>::new(&config), &config);
    }
}

/// The very first RTRs, and histories and lists that are too short.
#[test]
fn sequence_resets() {
    let cold = Config { warm: false, cancels: 1, ..Config::SMALL };
    holds("sequence: 1 envelope, 3+3, first contact, a cancel", World::<4, 8>::new(&cold), &cold).must_have(&["reset", "void"]);
    let short = Config { sends: (4, 4), ..Config::SMALL };
    holds("sequence: 1 envelope, 4+3, remembers 1, keeps 2", World::<1, 2>::new(&short), &short).must_have(&["reset", "void"]);
    let slots = Config { slots: 1, any_tag: true, ..Config::SMALL };
    holds("sequence: 1 envelope, 3+3, 1 descriptor, any tag", World::<4, 8>::new(&slots), &slots);
}

#[test]
fn sequence_pieces() {
    let torn = Config { pieces: 2, torn: true, sends: (2, 2), receives: (2, 2), cancels: 1, ..Config::SMALL };
    holds("sequence: 1 envelope, 2+2, 2 torn pieces, a cancel", World::<4, 8>::new(&torn), &torn).must_have(&["crossed, the sender began"]);
}

#[test]
fn sequence_two_envelopes() {
    let two = Config { tags: 2, any_tag: true, pieces: 0, ..Config::SMALL };
    holds("sequence: 2 envelopes, 3+3, any tag", World::<4, 8>::new(&two), &two).must_have(SEQUENCE_EVENTS);
    if scale() >= 4 {
        let cancel = Config { cancels: 1, ..two };
        holds("sequence: 2 envelopes, 3+3, any tag, a cancel", World::<4, 8>::new(&cancel), &cancel);
        let four = Config { sends: (3, 4), receives: (3, 4), ..two };
        holds("sequence: 2 envelopes, 4+4, any tag", World::<4, 8>::new(&four), &four);
        let five = Config { receives: (3, 5), any_tag: false, ..four };
        holds("sequence: 2 envelopes, 4+5", World::<4, 8>::new(&five), &five);
    }
}

/// Between hosts: windows instead of words that both sides can look at.
#[test]
fn sequence_apart() {
    let all = Config { apart: true, kinds: ALL_KINDS, cancels: 1, any_tag: true, pieces: 0, ..Config::SMALL };
    let events = [SEQUENCE_EVENTS, &["a cancel waits", "cancelled", "reset"]].concat();
    holds("apart: 1 envelope, 3+3, all kinds, any tag, a cancel", World::<4, 8>::new(&all), &all).must_have(&events);
    let cold = Config { warm: false, kinds: Config::SMALL.kinds, cancels: 2, ..all };
    holds("apart: 1 envelope, 3+3, first contact, 2 cancels", World::<4, 8>::new(&cold), &cold).must_have(&["reset", "void"]);
    let short = Config { sends: (4, 4), cancels: 0, warm: true, ..cold };
    holds("apart: 1 envelope, 4+3, remembers 1, keeps 2", World::<1, 2>::new(&short), &short).must_have(&["reset", "void"]);
    if scale() >= 4 {
        let two = Config { tags: 2, ..cold };
        holds("apart: 2 envelopes, 3+3, any tag, 2 cancels", World::<4, 8>::new(&two), &two);
    }
}

/// An answer that finds no room in the ring, between everything else.
#[test]
fn sequence_narrow() {
    let config = Config { narrow: true, cancels: 1, pieces: 0, any_tag: true, ..Config::SMALL };
    holds("sequence: 1 envelope, 3+3, any tag, no room, a cancel", World::<4, 8>::new(&config), &config).must_have(&[
        "opened again",
        "a cancel waits",
        "answered",
    ]);
}

/// What the models leave out of a state cannot matter: the exact states are as many worlds.
#[test]
fn states_that_count_as_one_are_one() {
    let small = Config { kinds: ALL_KINDS, cancels: 1, warm: false, any_tag: true, sends: (3, 3), receives: (2, 2), ..Config::SMALL };
    let sources = Config { senders: 2, sends: (1, 1), any_source: AnySource::AllClaim, kinds: Config::SMALL.kinds, ..small };
    for config in [small, Config { narrow: true, warm: true, kinds: Config::SMALL.kinds, ..small }, sources] {
        let start = World::<2, 4>::new(&config);
        let (mut exact, mut merged) = (HashSet::new(), HashSet::from([fingerprint(&start)]));
        let (mut left, mut steps) = (vec![start.clone()], Vec::new());
        while let Some(world) = left.pop() {
            steps.clear();
            world.steps(&config, &mut steps);
            for &step in &steps {
                let mut child = world.clone();
                child.take(&config, step, &mut Seen::default()).expect("it holds");
                merged.insert(fingerprint(&child));
                child.exact = true;
                if exact.insert(fingerprint(&child)) {
                    child.exact = false;
                    left.push(child);
                }
            }
        }
        let report = explore(start, &config, STATES_MAX);
        assert_eq!(report.states, merged.len());
        assert!(exact.len() > merged.len(), "{} exact states are {} worlds", exact.len(), merged.len());
    }
}

#[test]
fn sequence_any_source() {
    let silent = Config { senders: 2, sends: (2, 2), receives: (2, 2), any_source: AnySource::Silent, ..Config::SMALL };
    holds("sequence: 2 senders, 2+2, silent any source", World::<4, 8>::new(&silent), &silent).must_have(SEQUENCE_EVENTS);
    let claims = Config { any_source: AnySource::AllClaim, pieces: 0, ..silent };
    holds("sequence: 2 senders, 2+2, any source, all claim", World::<4, 8>::new(&claims), &claims).must_have(&[
        "goes on to the next receive",
        "a short message had claimed",
        "crossed, but another has it",
        "crossed, but who had it?",
    ]);
    if scale() >= 4 {
        let config = Config { receives: (3, 3), ..claims };
        holds("sequence: 2 senders, 2+3, any source, all claim", World::<4, 8>::new(&config), &config);
    }
}

#[test]
fn acks_small_worlds() {
    let small = acks::Config::SMALL;
    let one = acks::Config { sends: (4, 4), receives: (4, 4), scattered: true, ..small };
    holds("acks: 1 envelope, 4+4", acks::World::<4, 4>::new(&one), &one).must_have(&[
        "RTR",
        "RTS-ACK",
        "answered",
        "answered after an eager message",
        "crossed",
        "mispredicted",
        "stop",
        "resume",
        "stored",
        "dropped: crossed",
        "dropped: ambiguous",
    ]);
    let cancel = acks::Config { cancels: 2, ..small };
    holds("acks: 1 envelope, 3+3, 2 cancels", acks::World::<4, 4>::new(&cancel), &cancel).must_have(&["cancelled"]);
    holds("acks: 1 envelope, 4+4, keeps 1 RTR", acks::World::<1, 4>::new(&one), &one);
    let two = acks::Config { tags: 2, wildcards: true, ..small };
    holds("acks: 2 envelopes, 3+3, any tag", acks::World::<4, 4>::new(&two), &two);
    holds("acks: 2 envelopes, 3+3, any tag, remembers 1", acks::World::<4, 1>::new(&two), &two);
    if scale() >= 4 {
        let four = acks::Config { sends: (3, 4), receives: (3, 4), wildcards: false, ..two };
        holds("acks: 2 envelopes, 4+4", acks::World::<4, 4>::new(&four), &four);
    }
    let receives = if scale() >= 4 { 3 } else { 2 };
    let sources = acks::Config { senders: 2, sends: (2, 2), receives: (receives, receives), wildcards: true, ..small };
    holds(&format!("acks: 2 senders, 2+{receives}, any source"), acks::World::<4, 4>::new(&sources), &sources);
}

/// What is not announced when it is posted may be announced as soon as the rule allows it, with what has been seen by then.
#[test]
fn sequence_late_announcements() {
    let late = Config { late: true, cancels: 1, ..Config::SMALL };
    holds("sequence: 1 envelope, 3+3, announced later, a cancel", World::<4, 8>::new(&late), &late).must_have(&["announced later", "cancelled"]);
    let cold = Config { warm: false, any_tag: true, pieces: 0, cancels: 0, ..late };
    holds("sequence: 1 envelope, 3+3, announced later, first contact", World::<2, 8>::new(&cold), &cold).must_have(&["announced later", "reset"]);
}

#[test]
fn random_runs() {
    let config = Config {
        senders: 3,
        tags: 3,
        sends: (100, 200),
        receives: (200, 600),
        cancels: 30,
        kinds: ALL_KINDS,
        pieces: 3,
        torn: true,
        slots: 12,
        warm: false,
        late: true,
        crowd: Some(4),
        predicts: &[true, true, true, true, true, false],
        ..Config::SMALL
    };
    let number = if scale() >= 4 { 40 } else { 5 };
    let all = [SEQUENCE_EVENTS, &["a cancel waits", "withdrawn", "void", "reset", "announced later"]].concat();
    runs("sequence: 3 senders, 9 envelopes, 600+600", &World::<64, 64>::new(&config), &config, number).must_have(&all);
    // Where a list is too short for what is announced, announcing again what was forgotten would never end.
    let short = Config { late: false, ..config };
    runs("sequence: the same, remembers 2, keeps 2", &World::<2, 2>::new(&short), &short, number).must_have(&["reset", "void", "cancelled"]);
    let apart = Config { apart: true, any_tag: true, any_source: AnySource::Silent, pieces: 0, late: false, ..config };
    runs("apart: the same, any tag, silent any source", &World::<64, 64>::new(&apart), &apart, number).must_have(&[
        "answered",
        "a cancel waits",
        "reset",
        "crossed, the sender began",
    ]);
    runs("apart: the same, remembers 2, keeps 2", &World::<2, 2>::new(&apart), &apart, number).must_have(&["void", "cancelled"]);
    let any = Config { any_tag: true, any_source: AnySource::Silent, late: false, ..config };
    runs("sequence: the same, any tag, silent any source", &World::<64, 64>::new(&any), &any, number).must_have(&["answered"]);
    let claims = Config { any_source: AnySource::AllClaim, any_tag: false, cancels: 0, ..any };
    runs("sequence: the same, any source, all claim", &World::<64, 64>::new(&claims), &claims, number).must_have(&["goes on to the next receive"]);
    let paper = acks::Config {
        senders: 3,
        tags: 3,
        sends: (100, 200),
        receives: (200, 600),
        cancels: 30,
        scattered: true,
        pieces: 3,
        crowd: Some(4),
        ..acks::Config::SMALL
    };
    runs("acks: 3 senders, 9 envelopes, 600+600", &acks::World::<64, 64>::new(&paper), &paper, number).must_have(&["answered after an eager message"]);
    runs("acks: the same, keeps 2, remembers 3", &acks::World::<2, 3>::new(&paper), &paper, number);
}

/// As the issue has it: two envelopes, three messages and three receives of each. Minutes, and gigabytes.
#[test]
fn sequence_two_full_envelopes() {
    if scale() < 16 {
        return;
    }
    let config = Config { tags: 2, sends: (3, 6), receives: (3, 6), pieces: 0, ..Config::SMALL };
    let begun = std::time::Instant::now();
    let report = sweep(World::<8, 8>::new(&config), &config);
    println!("sequence: 2 envelopes, 3+3 each: {} states, {} steps, {} settled, {:?}", report.states, report.transitions, report.settled, begun.elapsed());
    assert!(report.found.is_none(), "{:?}", report.found);
}
