//! Two ends over a device of this machine: `tests/rdma/device.py` runs these in a guest that has one; skipped
//! elsewhere.

use std::time::{Duration, Instant};

use super::*;
use crate::reliable::Protection;
use crate::reliable::tests::{End, SIZES, exchange, run_until, skipped, wakes};

fn ends(protection: Protection) -> Option<[End<Verbs>; 2]> {
    let mut ends = Vec::new();
    for me in [0, 1] {
        match Verbs::open(&|_, _| true, true, RAILS_MAX) {
            Ok(device) => ends.push(End::new(me, device, [9; 32], protection, |_| {})),
            Err(why) => {
                skipped("verbs::tests", &format!("no device here: {why}"));
                return None;
            }
        }
    }
    let mut ends: [End<Verbs>; 2] = ends.try_into().ok()?;
    let cards = [ends[0].node.card(), ends[1].node.card()];
    ends[0].connect(1, cards[1].clone());
    ends[1].connect(0, cards[0].clone());
    Some(ends)
}

/// Messages of all lengths, with each protection, and what the device counts of them.
#[test]
fn messages() {
    for protection in [Protection::Auth, Protection::Crc, Protection::Encrypt] {
        let Some(mut ends) = ends(protection) else { return };
        for plain in [true, false] {
            ends.iter_mut().for_each(|end| end.memory.plain = plain);
            exchange(&mut ends, &SIZES);
        }
        for end in &ends {
            let counters = end.node.counters();
            assert_eq!((counters.refused, counters.unroutable, counters.sent.dropped), (0, 0, 0), "{protection:?}");
            assert!(counters.sent.datagrams > 300 && counters.sent.calls < counters.sent.datagrams, "{counters:?}");
            let registered = counters.registrations;
            assert!(registered.queue_pairs >= 1 && registered.pool_bytes >= registered.queue_pairs * u64::from(SENDS + RECEIVES) * 2048, "{registered:?}");
        }
    }
}

/// A queue pair that the device gives up in the middle of messages is made anew, and nothing of the messages is lost.
#[test]
fn a_queue_pair_that_fails() {
    let Some(mut ends) = ends(Protection::Auth) else { return };
    exchange(&mut ends, &SIZES);
    for bytes in [1 << 20, 100_000, 8, 0, 1 << 20] {
        ends[0].send(1, bytes);
        ends[1].send(0, bytes);
    }
    let before = [ends[0].memory.whole, ends[1].memory.whole];
    ends.iter_mut().for_each(|end| _ = end.step());
    for end in &mut ends {
        end.node.device_mut().rails[0].pair.fail();
    }
    run_until(&mut ends, |ends| ends.iter().zip(before).all(|(end, before)| end.is_done() && end.memory.whole >= before + 5));
    assert!(ends.iter_mut().all(|end| end.node.device_mut().rails[0].restarted.is_some()));
}

/// What comes wakes who sleeps, also just after it has looked.
#[test]
fn sleepers_wake() {
    let Some([one, two]) = ends(Protection::Auth) else { return };
    wakes(one, two, Duration::from_secs(60));
}

/// The way to a host that does not answer is looked for beside the messages to others. `WHIMBREL_TEST_UNANSWERED`: the
/// GID of one, which a guest has.
#[test]
fn a_host_that_does_not_answer() {
    let Ok(text) = std::env::var("WHIMBREL_TEST_UNANSWERED") else { return };
    let Some(mut ends) = ends(Protection::Auth) else { return };
    let to = Destination { lid: 0, gid: text.parse().unwrap(), is_global: true };
    let path = Path { local: 0, to, number: 17, qkey: QKEY };
    let device = ends[0].node.device_mut();
    assert_eq!(device.post_copied(&path, SendQueue::UNTOLD, 8, |out| out.extend([0; 8])), Sent::Done);
    assert_eq!(device.sent.dropped, 1, "it counts as lost");
    let rail = &mut device.rails[0];
    assert_eq!(rail.pair.handle(&to, false), Ok(None), "the search goes on");
    exchange(&mut ends, &[8, 100_000]);
    let start = Instant::now();
    while ends[0].node.device_mut().rails[0].pair.handle(&to, false) == Ok(None) {
        std::thread::sleep(Duration::from_millis(10));
        assert!(start.elapsed() < Duration::from_secs(60), "the search has no end");
    }
    let rail = &mut ends[0].node.device_mut().rails[0];
    rail.unreachable.insert(to, Instant::now());
    assert_eq!(rail.handle(&to), None, "it is not looked for again at once");
}
