//! What each rule is for: without it there is a counterexample. Counting lacks the rules of the paper's variant, and holds.

use crate::sequence::{AnySource, Config, Without, World};
use crate::{acks, fails, holds};

const WRONG: &str = "wrong match";

fn without(rule: Without, config: Config) -> String {
    let config = Config { without: rule, pieces: 0, ..config };
    fails(&format!("sequence without {rule:?}"), World::<4, 8>::new(&config), &config)
}

const TWO: Config = Config { tags: 2, any_tag: true, ..Config::SMALL };

#[test]
fn no_rtr_behind_an_unannounced_receive() {
    assert!(without(Without::MayAnnounce, Config::SMALL).contains(WRONG));
}

#[test]
fn an_rtr_says_what_its_receiver_had_seen() {
    assert!(without(Without::Counting, Config::SMALL).contains("no message comes"));
    let config = Config { without: Without::Counting, ..Config::SMALL };
    assert!(fails("sequence without Counting, remembers 1", World::<1, 8>::new(&config), &config).contains(WRONG));
}

#[test]
fn the_sender_remembers_what_it_sent() {
    assert!(without(Without::History, Config::SMALL).contains(WRONG));
}

#[test]
fn what_is_forgotten_resets() {
    let config = Config { without: Without::Reset, ..Config::SMALL };
    assert!(fails("sequence without Reset, remembers 1", World::<1, 8>::new(&config), &config).contains(WRONG));
    let cold = Config { warm: false, ..config };
    assert!(fails("sequence without Reset, first contact", World::<4, 8>::new(&cold), &cold).contains(WRONG));
}

#[test]
fn an_rtr_from_before_a_reset_is_void() {
    let config = Config { without: Without::Epochs, pieces: 0, ..TWO };
    assert!(fails("sequence without Epochs, remembers 1", World::<1, 8>::new(&config), &config).contains("a reset meets"));
}

#[test]
fn a_cancel_takes_newer_receives_back_and_tells() {
    let cancel = Config { cancels: 1, ..Config::SMALL };
    assert!(without(Without::Forget, cancel).contains(WRONG));
    assert!(without(Without::NewestFirst, cancel).contains(WRONG));
    // A newer receive has begun, but not with a message for the cancelled one.
    assert!(without(Without::PatientCancel, Config { cancels: 1, ..TWO }).contains("waits for ever"));
}

/// An RTR that is sent before the sender has answered bears the old epoch: keeping silent only saves it.
#[test]
fn silence_after_a_cancel_only_saves_rtrs() {
    let config = Config { without: Without::Silence, cancels: 1, ..Config::SMALL };
    holds("sequence without Silence", World::<4, 8>::new(&config), &config).must_have(&["cancelled", "void"]);
}

/// Between hosts nobody sees that a window is closed: the sender's answer must be awaited, and each rule of counting is needed.
#[test]
fn between_hosts_each_rule_is_needed() {
    let config = Config { apart: true, cancels: 1, pieces: 0, ..Config::SMALL };
    for rule in [Without::MayAnnounce, Without::Counting, Without::History, Without::Forget] {
        let config = Config { without: rule, ..config };
        fails(&format!("apart without {rule:?}"), World::<4, 8>::new(&config), &config);
    }
}

/// A receive from any source cannot be left to whoever claims it first: what its other senders had meant for it then belongs to a
/// receive that they have begun for something later.
#[test]
fn the_first_claim_alone_does_not_decide_any_source() {
    let config = Config { senders: 2, sends: (2, 2), receives: (2, 2), any_source: AnySource::FirstClaims, pieces: 0, ..Config::SMALL };
    assert!(fails("sequence, any source, first claims", World::<4, 8>::new(&config), &config).contains(WRONG));
}

fn acks_without(rule: acks::Without, config: acks::Config) -> String {
    let config = acks::Config { without: rule, ..config };
    fails(&format!("acks without {rule:?}"), acks::World::<4, 4>::new(&config), &config)
}

const FOUR: acks::Config = acks::Config { sends: (4, 4), receives: (4, 4), ..acks::Config::SMALL };

/// Each of these is a rule of the paper that [`World`] does without.
#[test]
fn the_paper_s_answers_and_flags_are_needed_without_counting() {
    use acks::Without;
    for rule in [Without::RtrAck, Without::RtsAck, Without::RtsAckOfPosted, Without::MayAnnounce, Without::EagerFlag, Without::Stop] {
        assert!(acks_without(rule, FOUR).contains(WRONG), "{rule:?}");
    }
    // These take five messages or five receives to go wrong.
    assert!(acks_without(Without::OwnAnswer, acks::Config { sends: (5, 5), ..FOUR }).contains(WRONG));
    assert!(acks_without(Without::StopUnannounces, acks::Config { receives: (5, 5), ..FOUR }).contains(WRONG));
}

#[test]
fn a_cancel_waits_for_the_sender_s_answer_without_counting() {
    let config = acks::Config { cancels: 1, ..acks::Config::SMALL };
    assert!(acks_without(acks::Without::Forget, config).contains("RTR-ACK"));
    assert!(acks_without(acks::Without::Silence, config).contains("forgotten"));
}

/// Without the way back nothing goes wrong, but nothing is answered any more.
#[test]
fn without_resume_speculation_ends_at_the_first_eager_message() {
    let config = acks::Config { without: acks::Without::Resume, ..FOUR };
    let seen = holds("acks without Resume", acks::World::<4, 4>::new(&config), &config);
    assert!(!seen.0.contains_key("answered after an eager message"));
}
