//! Every order of events in small worlds of the machine.

use super::world::{Config, Kind, Room, Step, World};
use crate::{holds, runs, scale};
use proto::rendezvous::Variant;
use proto::rendezvous::usage::Speculation;

/// All that an announcement can come to.
const EVENTS: &[&str] = &["RTR", "answered", "mispredicted", "crossed", "unexpected"];
const ALL_KINDS: &[Kind] = &[
    Kind::Inline,
    Kind::Eager,
    Kind::InlineSynchronous,
    Kind::Synchronous,
    Kind::Read,
    Kind::Streamed,
    Kind::Copied,
    Kind::CopiedTwice,
    Kind::Ringed,
    Kind::Scattered,
];

fn check(name: &str, config: Config, events: &[&str]) {
    holds(&format!("machine: {name}"), World::new(&config), &config).must_have(events);
}

#[test]
fn machine_one_envelope() {
    let small = Config::SMALL;
    check("1 envelope, 3+3", small.clone(), EVENTS);
    let all = Config { kinds: ALL_KINDS, sends: (2, 2), receives: (2, 2), rooms: &[Room::Announced, Room::Silent, Room::Short], ..small.clone() };
    check("1 envelope, 2+2, all kinds and rooms", all.clone(), EVENTS);
    let any = Config { any_tag: true, tags: 2, sends: (2, 2), receives: (2, 2), ..small };
    check("2 envelopes, 2+2, any tag", any, EVENTS);
}

#[test]
fn machine_cancels() {
    let cancel = Config { cancels: 1, ..Config::SMALL };
    let two = Config { sends: (2, 2), ..cancel.clone() };
    check("1 envelope, 2+3, a cancel", two, &["RTR", "cancelled", "answered", "void"]);
    if scale() >= 4 {
        check("1 envelope, 3+3, a cancel", cancel, &["RTR", "cancelled", "answered", "void"]);
    }
    let sends = Config { cancels: 1, send_cancels: 1, sends: (2, 2), receives: (2, 2), kinds: &[Kind::Synchronous, Kind::Copied], ..Config::SMALL };
    check("1 envelope, 2+2, a cancel of each side", sends.clone(), &["cancelled", "a send was cancelled"]);
    let short = Config { kinds: &[Kind::InlineSynchronous, Kind::Copied], ..sends };
    check("1 envelope, 2+2, short, a cancel of each side", short, &["cancelled", "a send was cancelled"]);
}

#[test]
fn machine_first_contact() {
    let cold = Config { warm: false, ..Config::SMALL };
    if scale() >= 4 {
        check("1 envelope, 3+3, first contact", cold.clone(), EVENTS);
    }
    let cancel = Config { cancels: 1, sends: (2, 2), receives: (2, 2), any_tag: true, ..cold };
    check("1 envelope, 2+2, first contact, any tag, a cancel", cancel.clone(), &["cancelled", "void"]);
    if scale() >= 4 {
        let three = Config { receives: (3, 3), ..cancel };
        check("1 envelope, 2+3, first contact, any tag, a cancel", three, &["cancelled", "void"]);
    }
}

#[test]
fn machine_without_room() {
    let narrow = Config { packets_max: 1, sends: (2, 2), receives: (2, 2), cancels: 1, ..Config::SMALL };
    check("1 envelope, 2+2, rings of one packet, a cancel", narrow.clone(), &["no room", "opened again", "answered"]);
    let kinds = Config { kinds: &[Kind::Streamed, Kind::CopiedTwice, Kind::Scattered], cancels: 0, ..narrow };
    check("1 envelope, 2+2, rings of one packet, long messages", kinds, &["no room", "through the ring"]);
}

/// The senders' pieces come through the rings, and either side may leave a copy to the other for a while.
#[test]
fn machine_through_the_ring() {
    let ringed = Config { ringed: true, sends: (2, 2), receives: (2, 2), kinds: &[Kind::Eager, Kind::Ringed], ..Config::SMALL };
    check("1 envelope, 2+2, pieces through the ring", ringed.clone(), &["answered", "crossed", "through the ring", "copied by both"]);
    let narrow = Config { packets_max: 1, kinds: &[Kind::Ringed], ..ringed.clone() };
    check("1 envelope, 2+2, pieces through rings of one packet", narrow, &["no room", "through the ring", "copied by both"]);
    let bars = Config { bars: true, kinds: &[Kind::Ringed], sends: (1, 1), receives: (1, 1), ..ringed.clone() };
    check("1 envelope, 1+1, pieces through the ring, memory out of reach", bars, &["memory out of reach", "a copy failed"]);
    let both = Config { flows: &[(0, 1), (1, 0)], sends: (1, 1), receives: (1, 1), kinds: &[Kind::Ringed], ..ringed };
    check("1+1 both ways, pieces through the ring", both, &["answered", "crossed", "through the ring"]);
}

/// Offers have crossed announcements that their sender drops: it may know nothing of the copies that its receiver has begun, which does not wait for it.
#[test]
fn machine_copies_what_was_dropped() {
    let config = Config { ringed: true, warm: false, patience: 1000, ..Config::SMALL };
    let mut world = World::new(&config);
    for _ in 0..3 {
        world.play(&config, Step::Post { rank: 1, source: 0, tag: 0, room: Room::Announced });
        world.play(&config, Step::Send { from: 0, to: 1, tag: 0, kind: Kind::Ringed });
    }
    world.deliver(&config, 0, 1);
    assert_eq!(world.received(1), 0, "nothing was copied yet");
    world.play(&config, Step::GoOn { rank: 1 });
    assert_eq!(world.received(1), 0, "it is left to the sender");
    world.deliver(&config, 1, 0);
    world.deliver(&config, 0, 1);
    // A look copies a piece of a message, at least.
    let mut looks = 0;
    while world.received(1) < 3 {
        looks += 1;
        assert!(looks <= 6, "it waits for a sender that knows nothing");
        world.play(&config, Step::GoOn { rank: 1 });
    }
}

/// The system forbids a process at any time to reach the other's memory.
#[test]
fn machine_out_of_reach() {
    let bars = Config { bars: true, sends: (2, 2), receives: (2, 2), kinds: &[Kind::Read, Kind::CopiedTwice], ..Config::SMALL };
    check("1 envelope, 2+2, memory out of reach", bars, &["memory out of reach", "a copy failed", "through the ring"]);
}

#[test]
fn machine_both_ways() {
    let both = Config { flows: &[(0, 1), (1, 0)], sends: (1, 1), receives: (1, 1), kinds: &[Kind::Eager, Kind::CopiedTwice], ..Config::SMALL };
    check("1+1 both ways", both, &["answered", "crossed"]);
}

#[test]
fn machine_two_senders() {
    let two = Config { ranks: 3, flows: &[(0, 2), (1, 2)], sends: (1, 1), receives: (2, 2), any_source: true, ..Config::SMALL };
    check("2 senders, 1 each, any source", two, &["answered", "mispredicted"]);
}

#[test]
fn machine_by_acknowledgements() {
    let acks = Config { rendezvous: Variant::Acks, ..Config::SMALL };
    let cancel = Config { cancels: 1, sends: (2, 2), ..acks.clone() };
    check("by acknowledgements, 1 envelope, 2+3, a cancel", cancel, &["RTR", "answered", "cancelled"]);
    if scale() >= 4 {
        check("by acknowledgements, 1 envelope, 3+3", acks, &["RTR", "answered"]);
    }
}

#[test]
fn machine_random_runs() {
    let config = Config {
        ranks: 3,
        flows: &[(0, 2), (1, 2), (2, 0), (0, 1)],
        tags: 2,
        sends: (60, 100),
        receives: (200, 300),
        kinds: ALL_KINDS,
        any_tag: true,
        cancels: 20,
        send_cancels: 20,
        crowd: Some(4),
        packets_max: 4,
        ringed: true,
        warm: false,
        ..Config::SMALL
    };
    let number = if scale() >= 4 { 2000 } else { 100 };
    runs("machine: 4 flows, 100 each", &World::new(&config), &config, number).must_have(&["answered", "crossed", "cancelled", "opened again", "void"]);
    let adaptive = Config { speculation: Speculation::Adaptive, rendezvous: Variant::Acks, any_tag: false, ..config };
    runs("machine: the same, by acknowledgements, adaptive", &World::new(&adaptive), &adaptive, number).must_have(&["answered"]);
}
