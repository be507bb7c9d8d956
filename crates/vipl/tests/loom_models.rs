//! Every interleaving of the lock-free parts that loom reaches.
#![cfg(loom)]

#[allow(dead_code)]
#[path = "../src/handed.rs"]
mod handed;
#[path = "../src/sys/lock.rs"]
mod lock;

use crate::handed::{Entry, Giver, Posted, Taker, Target};
use crate::lock::Lock;
use loom::thread;
use std::sync::Arc;

fn target(n: u64) -> Target {
    Target { handle: n as u32 + 1, bytes: 10, offset: n * 100 }
}

/// Two entries, three descriptors: what is taken over is what was written, also in an entry that is used again. The receiver writes an
/// entry again only after the message that used it has come, as the flag says here.
#[test]
fn handed_descriptors_are_whole() {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(3);
    builder.check(|| {
        let entries: Arc<[Entry]> = (0..crate::handed::ENTRIES).map(|_| Entry::default()).collect();
        let posted = Arc::new(Posted::default());
        let used = loom::sync::Arc::new(loom::sync::atomic::AtomicU64::new(0));
        let (mut giver, mut taker) = (Giver::new(entries.clone(), posted.clone()), Taker::new(entries, posted));
        taker.batch = 2;
        let told = used.clone();
        let receiver = thread::spawn(move || {
            for n in 0..3 {
                while n >= 2 && told.load(loom::sync::atomic::Ordering::Acquire) + 1 < n {
                    thread::yield_now();
                }
                giver.give([target(n)].into_iter());
            }
        });
        for n in 0..3 {
            while !taker.available(0) {
                thread::yield_now();
            }
            assert_eq!(taker.targets(), [target(n)]);
            taker.pass(true);
            used.store(n + 1, loom::sync::atomic::Ordering::Release);
        }
        receiver.join().unwrap();
    });
}

/// What one thread has done with the value, the next one sees.
#[test]
fn lock_excludes() {
    let mut builder = loom::model::Builder::new();
    // Who waits for the lock tries again and again.
    (builder.preemption_bound, builder.max_branches) = (Some(3), 100_000);
    builder.check(|| {
        let lock = loom::sync::Arc::new(Lock::new(0u64));
        let other = lock.clone();
        let thread = thread::spawn(move || other.with(|value| *value += 1));
        lock.with(|value| *value += 1);
        if lock.try_with(|value| *value += 1).is_some() {
            lock.with(|value| *value -= 1);
        }
        thread.join().unwrap();
        assert_eq!(lock.with(|value| *value), 2);
    });
}
