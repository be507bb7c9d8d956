//! Every interleaving of small worlds, and random runs of large ones.

use crate::sequence::{AnySource, Config, Kind, World};
use crate::{acks, holds, runs, scale};

const ALL_KINDS: &[Kind] = &[Kind::Eager, Kind::Synchronous, Kind::Large, Kind::Scattered];

/// Everything that counting can lead to.
const SEQUENCE_EVENTS: &[&str] = &[
    "RTR",
    "answered",
    "kept",
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
    holds("sequence: 1 envelope, 3+3, a cancel", World::<4, 8>::new(&config), &config).must_have(&[
        "cancelled",
        "a cancel waits",
        "withdrawn",
    ]);
    if scale() >= 4 {
        let config = Config { cancels: 2, ..all };
        holds("sequence: 1 envelope, 3+3, all kinds, 2 cancels", World::<4, 8>::new(&config), &config);
    }
}

/// The very first RTRs, and histories and lists that are too short.
#[test]
fn sequence_resets() {
    let cold = Config { warm: false, cancels: 1, ..Config::SMALL };
    holds("sequence: 1 envelope, 3+3, first contact, a cancel", World::<4, 8>::new(&cold), &cold)
        .must_have(&["reset", "void"]);
    let short = Config { sends: (4, 4), ..Config::SMALL };
    holds("sequence: 1 envelope, 4+3, remembers 1, keeps 2", World::<1, 2>::new(&short), &short)
        .must_have(&["reset", "void"]);
    let slots = Config { slots: 1, any_tag: true, ..Config::SMALL };
    holds("sequence: 1 envelope, 3+3, 1 descriptor, any tag", World::<4, 8>::new(&slots), &slots);
}

#[test]
fn sequence_pieces() {
    let torn = Config { pieces: 2, torn: true, sends: (2, 2), receives: (2, 2), cancels: 1, ..Config::SMALL };
    holds("sequence: 1 envelope, 2+2, 2 torn pieces, a cancel", World::<4, 8>::new(&torn), &torn)
        .must_have(&["crossed, the sender began"]);
}

#[test]
fn sequence_two_envelopes() {
    let two = Config { tags: 2, any_tag: true, pieces: 0, ..Config::SMALL };
    holds("sequence: 2 envelopes, 3+3, any tag", World::<4, 8>::new(&two), &two).must_have(SEQUENCE_EVENTS);
    if scale() >= 4 {
        let cancel = Config { cancels: 1, ..two };
        holds("sequence: 2 envelopes, 3+3, any tag, a cancel", World::<4, 8>::new(&cancel), &cancel);
    }
}

#[test]
fn sequence_any_source() {
    let silent = Config { senders: 2, sends: (2, 2), receives: (2, 2), any_source: AnySource::Silent, ..Config::SMALL };
    holds("sequence: 2 senders, 2+2, silent any source", World::<4, 8>::new(&silent), &silent)
        .must_have(SEQUENCE_EVENTS);
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
        "kept",
        "dropped: crossed",
        "dropped: ambiguous",
    ]);
    let cancel = acks::Config { cancels: 2, ..small };
    holds("acks: 1 envelope, 3+3, 2 cancels", acks::World::<4, 4>::new(&cancel), &cancel).must_have(&["cancelled"]);
    holds("acks: 1 envelope, 4+4, keeps 1 RTR", acks::World::<1, 4>::new(&one), &one);
    let two = acks::Config { tags: 2, wildcards: true, ..small };
    holds("acks: 2 envelopes, 3+3, any tag", acks::World::<4, 4>::new(&two), &two);
    holds("acks: 2 envelopes, 3+3, any tag, remembers 1", acks::World::<4, 1>::new(&two), &two);
    let sources = acks::Config { senders: 2, sends: (2, 2), wildcards: true, ..small };
    holds("acks: 2 senders, 2+3, any source", acks::World::<4, 4>::new(&sources), &sources);
}

#[test]
fn random_runs() {
    let config = Config {
        senders: 4,
        tags: 4,
        sends: (60, 200),
        receives: (250, 800),
        cancels: 60,
        kinds: ALL_KINDS,
        any_tag: true,
        any_source: AnySource::Silent,
        pieces: 3,
        torn: true,
        slots: 12,
        warm: false,
        ..Config::SMALL
    };
    runs("sequence: 4 senders, 4 envelopes, 800+800", &World::<64, 64>::new(&config), &config, 20)
        .must_have(SEQUENCE_EVENTS);
    runs("sequence: the same, remembers 2, keeps 2", &World::<2, 2>::new(&config), &config, 20).must_have(&[
        "reset",
        "void",
        "cancelled",
    ]);
    let claims = Config { any_source: AnySource::AllClaim, cancels: 0, ..config };
    runs("sequence: the same, any source, all claim", &World::<64, 64>::new(&claims), &claims, 20);
    let paper = acks::Config {
        senders: 4,
        tags: 4,
        sends: (60, 200),
        receives: (250, 800),
        cancels: 60,
        wildcards: true,
        scattered: true,
        pieces: 3,
        ..acks::Config::SMALL
    };
    runs("acks: 4 senders, 4 envelopes, 800+800", &acks::World::<64, 64>::new(&paper), &paper, 20)
        .must_have(&["answered after an eager message"]);
    runs("acks: the same, keeps 2, remembers 3", &acks::World::<2, 3>::new(&paper), &paper, 20);
}
