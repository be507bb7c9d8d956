//! The hazards of the paper's §3.3 and its figures, each in both variants: the orders that it draws, and whatever may follow.

use crate::acks;
use crate::explore::{Model, Seen, explore};
use crate::queue::ANY;
use crate::sequence::{Config, Kind, Step, Without, World};

/// Takes `steps`, then whatever may follow.
fn play<M: Model>(mut world: M, config: &M::Config, steps: &[M::Step]) -> Result<Seen, String> {
    let mut seen = Seen::default();
    for &step in steps {
        world.take(config, step, &mut seen)?;
    }
    let report = explore(world, config, 1 << 20);
    match report.found {
        Some(found) => Err(found.why),
        None => {
            report.seen.0.into_iter().for_each(|(event, _)| seen.note(event));
            Ok(seen)
        }
    }
}

/// So many messages of one envelope, or of two, and so many receives.
fn sequence(sends: u16, receives: u16, without: Without, steps: &[Step]) -> Result<Seen, String> {
    let config = Config { tags: 2, sends: (sends, sends), receives: (receives, receives), cancels: 1, without, ..Config::SMALL };
    play(World::<4, 8>::new(&config), &config, steps)
}

fn by_acks(sends: u16, receives: u16, without: acks::Without, steps: &[acks::Step]) -> Result<Seen, String> {
    let config = acks::Config { tags: 2, sends: (sends, sends), receives: (receives, receives), wildcards: true, without, ..acks::Config::SMALL };
    play(acks::World::<4, 4>::new(&config), &config, steps)
}

fn holds(result: Result<Seen, String>) -> Seen {
    result.unwrap_or_else(|why| panic!("{why}"))
}

fn is_wrong(result: Result<Seen, String>) {
    let why = result.err().expect("the rule is needed");
    assert!(why.contains("wrong match"), "{why}");
}

const NOTHING: Without = Without::Nothing;
const ALL_ACKS: acks::Without = acks::Without::Nothing;

fn post(large: bool) -> Step {
    Step::Post { source: 0, tag: 0, large }
}
fn send(kind: Kind) -> Step {
    Step::Send { peer: 0, tag: 0, kind }
}
const UP: Step = Step::Up { peer: 0 };
const DOWN: Step = Step::Down { peer: 0 };

fn a_post(large: bool) -> acks::Step {
    acks::Step::Post { source: 0, tag: 0, large }
}
const A_LARGE: acks::Step = acks::Step::Large { peer: 0, tag: 0 };
const A_EAGER: acks::Step = acks::Step::Eager { peer: 0, tag: 0 };
const A_UP: acks::Step = acks::Step::Up { peer: 0 };
const A_DOWN: acks::Step = acks::Step::Down { peer: 0 };

/// The RTS is the second message's (the first has found the RTR), or the first's (it has not).
#[test]
fn fig_07_rts_race() {
    let case_1 = [post(true), UP, send(Kind::Large), send(Kind::Large), DOWN, post(true)];
    holds(sequence(2, 2, NOTHING, &case_1)).must_have(&["answered"]);
    let case_2 = [post(true), send(Kind::Large), UP, send(Kind::Large), post(true)];
    let seen = holds(sequence(2, 2, NOTHING, &case_2));
    seen.must_have(&["crossed a large message"]);

    let case_1 = [a_post(true), A_UP, A_LARGE, A_LARGE];
    holds(by_acks(2, 2, ALL_ACKS, &case_1)).must_have(&["answered"]);
    is_wrong(by_acks(3, 2, acks::Without::RtrAck, &[a_post(true), A_UP, A_LARGE, A_EAGER]));
    let case_2 = [a_post(true), A_LARGE, A_UP, A_LARGE, a_post(true)];
    holds(by_acks(2, 2, ALL_ACKS, &case_2)).must_have(&["crossed", "dropped: crossed"]);
}

/// The same race of RTRs: the second receive's RTR is not for the message that the first has found.
#[test]
fn fig_08_acknowledgements() {
    let found = [a_post(true), A_UP, A_LARGE, A_DOWN, a_post(true), A_LARGE];
    holds(by_acks(2, 2, ALL_ACKS, &found)).must_have(&["answered", "crossed"]);
    // The receive finds the RTS: two RTRs follow, of which the first is the second receive's.
    let rtrs = [A_LARGE, A_DOWN, a_post(true), A_UP, a_post(true), A_UP, a_post(true), A_UP, A_LARGE];
    holds(by_acks(2, 3, ALL_ACKS, &rtrs)).must_have(&["RTS-ACK", "answered"]);
    let unanswered = [A_LARGE, A_DOWN, a_post(true), a_post(true), A_UP, a_post(true), A_UP, A_LARGE, A_DOWN];
    is_wrong(by_acks(2, 3, acks::Without::RtsAck, &unanswered));
    // A receive that is posted first and sends no RTR must answer as well.
    let posted_first = [A_LARGE, a_post(false), A_DOWN, a_post(true), A_UP, a_post(true), A_UP, A_LARGE, A_DOWN];
    is_wrong(by_acks(2, 3, acks::Without::RtsAckOfPosted, &posted_first));

    // Counting needs no answer: the RTR says that the first message has been seen.
    let rtrs = [send(Kind::Large), DOWN, post(true), post(true), UP, post(true), UP, send(Kind::Large), DOWN];
    holds(sequence(2, 3, NOTHING, &rtrs)).must_have(&["answered"]);
    is_wrong(sequence(2, 2, Without::History, &[post(true), send(Kind::Large), UP, send(Kind::Large), DOWN]));
}

/// An RTR of the second receive must not be taken for one of the first, which has sent none: it was predicted eager, or is from
/// any source.
#[test]
fn fig_09_eager_prediction() {
    let silent_first = [post(false), post(true), send(Kind::Large), DOWN, send(Kind::Large)];
    let seen = holds(sequence(2, 2, NOTHING, &silent_first));
    assert!(!seen.0.contains_key("RTR"));
    is_wrong(sequence(2, 2, Without::MayAnnounce, &[post(false), post(true), UP, send(Kind::Large), DOWN]));
    let announced_first = [post(true), post(true), UP, UP, send(Kind::Large), send(Kind::Large)];
    holds(sequence(2, 2, NOTHING, &announced_first)).must_have(&["answered"]);

    let any = acks::Step::Post { source: 0, tag: ANY, large: true };
    for first in [a_post(false), any] {
        let seen = holds(by_acks(2, 2, ALL_ACKS, &[first, a_post(true), A_LARGE, A_DOWN, A_LARGE]));
        assert!(!seen.0.contains_key("RTR"));
        is_wrong(by_acks(2, 2, acks::Without::MayAnnounce, &[first, a_post(true), A_UP, A_LARGE, A_DOWN]));
    }
}

/// The RTR is for the large message (its receive was posted after the eager one had come), or for the eager one, mispredicted.
#[test]
fn fig_10_mispredicted_rtr() {
    let predicted = [send(Kind::Eager), DOWN, post(false), post(true), UP, send(Kind::Large)];
    holds(sequence(2, 2, NOTHING, &predicted)).must_have(&["stored", "answered"]);
    let mispredicted = [post(true), send(Kind::Eager), UP, send(Kind::Large), DOWN, post(true)];
    let seen = holds(sequence(2, 2, NOTHING, &mispredicted));
    seen.must_have(&["crossed a short message", "mispredicted"]);
    assert!(!seen.0.contains_key("answered"));
    is_wrong(sequence(2, 2, Without::History, &mispredicted));
    let arrived_before = [post(true), UP, send(Kind::Eager), send(Kind::Large)];
    holds(sequence(2, 2, NOTHING, &arrived_before)).must_have(&["used up by another protocol"]);

    let predicted = [A_EAGER, A_DOWN, a_post(false), a_post(true), A_UP, A_LARGE];
    holds(by_acks(2, 2, ALL_ACKS, &predicted)).must_have(&["dropped: ambiguous", "stop"]);
    let mispredicted = [a_post(true), A_EAGER, A_UP, A_LARGE, A_DOWN, a_post(true)];
    holds(by_acks(2, 2, ALL_ACKS, &mispredicted)).must_have(&["dropped: ambiguous", "stop", "mispredicted"]);
    is_wrong(by_acks(2, 2, acks::Without::EagerFlag, &mispredicted));
}

/// The whole flow of a send: an eager message, *stop-RTR*, its answer, *resume-RTR*, and an RTR that is used again. Counting answers
/// the very next RTR.
#[test]
fn fig_11_eager_flag() {
    let read = |receive| acks::Step::Read { receive };
    let flow = [
        a_post(true), // RTR 0, for the eager message
        A_EAGER,
        A_LARGE, // stop
        A_UP,    // RTR 0 is dropped
        A_DOWN,
        A_DOWN,
        a_post(true), // finds the RTS, no RTR
        A_UP,         // RTS-ACK
        A_LARGE,      // resume
        A_DOWN,
        a_post(true),
        read(1),
        read(2),
        a_post(true), // RTR 3
        A_UP,
        A_UP,
        A_UP,
        A_UP,
        A_LARGE,
    ];
    holds(by_acks(4, 4, ALL_ACKS, &flow)).must_have(&["mispredicted", "dropped: ambiguous", "stop", "RTS-ACK", "resume", "answered after an eager message"]);

    let flow = [post(true), send(Kind::Eager), UP, DOWN, post(true), UP, send(Kind::Large)];
    holds(sequence(2, 2, NOTHING, &flow)).must_have(&["mispredicted", "answered"]);
}

/// The receiver waits in a circle only until the sender comes, who either answers or offers: also if no RTR was sent, it was
/// dropped, or there is none any more.
#[test]
fn fig_12_no_deadlock() {
    for (posts, large) in [(1, true), (2, true), (1, false), (2, false)] {
        let posted = vec![post(large); posts];
        for kind in [Kind::Eager, Kind::Synchronous, Kind::Large, Kind::Scattered] {
            // Receiver first, with and without its RTRs come; sender first.
            let sent = vec![send(kind); posts];
            let orders: [Vec<Step>; 3] = [
                posted.iter().chain(&sent).copied().collect(),
                posted.iter().chain(&vec![UP; if large { posts } else { 0 }]).chain(&sent).copied().collect(),
                sent.iter().chain(&posted).copied().collect(),
            ];
            for steps in orders {
                holds(sequence(posts as u16, posts as u16, NOTHING, &steps));
            }
        }
        let posted = vec![a_post(large); posts];
        for message in [A_EAGER, A_LARGE] {
            let sent = vec![message; posts];
            let orders: [Vec<acks::Step>; 3] = [
                posted.iter().chain(&sent).copied().collect(),
                posted.iter().chain(&vec![A_UP; if large { posts } else { 0 }]).chain(&sent).copied().collect(),
                sent.iter().chain(&posted).copied().collect(),
            ];
            for steps in orders {
                holds(by_acks(posts as u16, posts as u16, ALL_ACKS, &steps));
            }
        }
    }
}

/// §3.3.3: RTRs that no message answers do not pile up.
#[test]
fn rtrs_do_not_accumulate() {
    let config = Config { sends: (1, 1), receives: (6, 6), ..Config::SMALL };
    let posts: Vec<Step> = [post(true), UP].repeat(6);
    holds(play(World::<4, 2>::new(&config), &config, &posts)).must_have(&["stored", "void", "reset"]);
    let config = acks::Config { sends: (5, 5), receives: (6, 6), ..acks::Config::SMALL };
    let posts: Vec<acks::Step> = [a_post(true), A_UP].repeat(6);
    holds(play(acks::World::<2, 2>::new(&config), &config, &posts)).must_have(&["stored", "dropped: ambiguous", "stop", "resume"]);
    let config = acks::Config { sends: (4, 4), receives: (4, 4), ..config };
    let mispredicted: Vec<acks::Step> = [a_post(true), A_EAGER, A_UP, A_DOWN].repeat(4);
    holds(play(acks::World::<2, 2>::new(&config), &config, &mispredicted)).must_have(&["dropped: ambiguous"]);
}

/// A cancelled receive of tag 0, behind it one of any tag and one of tag 1, which has begun: what is on its way to the first goes
/// to the second now, and what was for the second must not go to the third.
#[test]
fn a_cancel_shifts_what_is_on_its_way() {
    let at = |tag, kind| Step::Send { peer: 0, tag, kind };
    let large = |tag| Step::Post { source: 0, tag, large: true };
    let steps = [at(0, Kind::Eager), at(1, Kind::Eager), large(0), large(ANY), large(1), UP, UP, UP, at(1, Kind::Large), Step::Cancel { receive: 0 }];
    holds(sequence(3, 3, NOTHING, &steps)).must_have(&["a cancel waits"]);
    let why = sequence(3, 3, Without::PatientCancel, &steps).err().expect("the rule is needed");
    assert!(why.contains("wrong match") || why.contains("has begun"), "{why}");
}
