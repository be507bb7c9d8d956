//! Every interleaving, as far as loom reaches, of a program that unmaps memory and searches, a monitor that reads the events, and a program's other thread.
#![cfg(loom)]

#[allow(dead_code)]
#[path = "../src/monitor/log.rs"]
mod log;

use crate::log::Log;
use loom::sync::atomic::{AtomicBool, Ordering};
use loom::sync::{Arc, Mutex};
use loom::thread;
use std::ops::Range;

/// The kernel's half: events that are not read, and calls that return once theirs is.
#[derive(Default)]
struct Kernel {
    events: Mutex<Vec<(Range<usize>, Arc<AtomicBool>)>>,
}

impl Kernel {
    fn unmap(&self, range: Range<usize>) {
        let read = Arc::new(AtomicBool::new(false));
        self.events.lock().unwrap().push((range, read.clone()));
        while !read.load(Ordering::Acquire) {
            thread::yield_now();
        }
    }

    /// Whether there is an event.
    fn poll(&self) -> bool {
        !self.events.lock().unwrap().is_empty()
    }

    /// One event, if there is one.
    fn read(&self) -> Option<Range<usize>> {
        let (range, read) = self.events.lock().unwrap().pop()?;
        read.store(true, Ordering::Release);
        Some(range)
    }
}

fn monitor(kernel: &Kernel, log: &Log, events: usize) {
    for _ in 0..events {
        while !kernel.poll() {
            thread::yield_now();
        }
        log.begin();
        log.note(kernel.read().expect("the event that is there"));
        log.end();
    }
}

fn model(check: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    (builder.preemption_bound, builder.max_branches) = (Some(4), 100_000);
    builder.check(check);
}

/// Whoever comes back from an unmapping call is told of it at the next look.
#[test]
fn a_change_is_told_to_who_comes_back_from_it() {
    model(|| {
        let (kernel, log) = (Arc::new(Kernel::default()), Arc::new(Log::default()));
        let reader = thread::spawn({
            let (kernel, log) = (kernel.clone(), log.clone());
            move || monitor(&kernel, &log, 1)
        });
        let mut cursor = log.cursor();
        kernel.unmap(1..2);
        let mut told = Vec::new();
        log.changes(&mut cursor, |range| told.push(range));
        assert!(told.contains(&(1..2)), "{told:?}");
        reader.join().unwrap();
    });
}

/// More changes than are remembered while a reader looks: it takes all as changed, or is given each.
#[test]
fn changes_that_are_written_over_are_not_lost() {
    model(|| {
        let log = Arc::new(Log::default());
        let mut cursor = log.cursor();
        let writer = thread::spawn({
            let log = log.clone();
            move || {
                for at in 0..log::REMEMBERED + 1 {
                    log.begin();
                    log.note(10 * at + 1..10 * at + 2);
                    log.end();
                }
            }
        });
        let mut told: Vec<Range<usize>> = Vec::new();
        log.changes(&mut cursor, |range| told.push(range));
        writer.join().unwrap();
        log.changes(&mut cursor, |range| told.push(range));
        for at in 0..log::REMEMBERED + 1 {
            let has = |range: &Range<usize>| range.start <= 10 * at + 1 && 10 * at + 2 <= range.end;
            assert!(told.iter().any(has), "{at} is not in {told:?}");
        }
    });
}

/// Memory that was replaced without an event is watched anew by one thread. Another one that finds it watched, and looks then, is told that it has changed;
/// who looks first and finds it watched then may not be (`Watched::acquire` looks last).
#[test]
fn who_finds_memory_watched_anew_is_told_of_the_change() {
    model(|| {
        let (log, is_watched) = (Arc::new(Log::default()), Arc::new(AtomicBool::new(false)));
        let mut cursor = log.cursor();
        let watcher = thread::spawn({
            let (log, is_watched) = (log.clone(), is_watched.clone());
            move || {
                log.begin();
                log.note(1..2);
                log.end();
                // The kernel's lock of the process' mappings orders both.
                is_watched.store(true, Ordering::Release);
            }
        });
        if is_watched.load(Ordering::Acquire) {
            let mut told = Vec::new();
            log.changes(&mut cursor, |range| told.push(range));
            assert!(told.contains(&(1..2)), "{told:?}");
        }
        watcher.join().unwrap();
    });
}
