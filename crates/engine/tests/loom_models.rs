//! Every interleaving of an owner that enters freely and threads that end its ownership, and every stale value that the memory model lets them load.
#![cfg(loom)]

#[path = "../src/owner.rs"]
#[allow(dead_code)]
mod owner;

use loom::cell::UnsafeCell;
use loom::sync::atomic::{AtomicBool, Ordering};
use loom::sync::{Arc, Mutex};
use loom::thread;
use owner::{FENCED, Owner, pause_until};

/// Threads are named by numbers from 1 on.
const FIRST: usize = 1;

/// As the cell of an engine is entered ([`engine::Cell`]): whoever ends the ownership waits for the owner.
struct Cell {
    owner: Owner,
    inside: AtomicBool,
    /// In place of a word that threads swap until it is free: loom follows such looks without end.
    held: Mutex<()>,
    value: UnsafeCell<u32>,
}

// SAFETY: what the models check: loom reports two threads that are inside together.
unsafe impl Sync for Cell {}

impl Cell {
    fn add(&self, me: usize) {
        // SAFETY: as above.
        let add = || self.value.with_mut(|value| unsafe { *value += 1 });
        if self.owner.enter(me, &self.inside) {
            add();
            return Owner::leave(&self.inside);
        }
        assert!(!self.owner.settle(me, || pause_until(|| !self.inside.load(Ordering::Acquire))));
        let _held = self.held.lock().unwrap();
        add();
    }
}

/// As a table is entered (`bias.rs`): many locks have one owner, and whoever takes the mutex of one waits until the owner is outside of it.
struct Table {
    inside: AtomicBool,
    mutex: Mutex<()>,
    value: UnsafeCell<u32>,
}

// SAFETY: as of the cell.
unsafe impl Sync for Table {}

impl Table {
    fn new() -> Table {
        Table { inside: AtomicBool::new(false), mutex: Mutex::new(()), value: UnsafeCell::new(0) }
    }

    fn add(&self, owner: &Owner, me: usize) {
        // SAFETY: as of the cell.
        let add = || self.value.with_mut(|value| unsafe { *value += 1 });
        loop {
            if owner.enter(me, &self.inside) {
                add();
                return Owner::leave(&self.inside);
            }
            if !owner.settle(me, || ()) {
                let _shared = self.mutex.lock().unwrap();
                pause_until(|| !self.inside.load(Ordering::Acquire));
                return add();
            }
        }
    }
}

fn explore(fenced: bool, model: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(3);
    builder.max_branches = 100_000;
    FENCED.set(fenced);
    builder.check(model);
}

/// One other thread: loom lets two threads that wait for a third one go on in turn without end.
fn cell_with_an_owner(fenced: bool) {
    explore(fenced, || {
        let cell = Arc::new(Cell { owner: Owner::given(Some(FIRST)), inside: AtomicBool::new(false), held: Mutex::new(()), value: UnsafeCell::new(0) });
        let theirs = cell.clone();
        let other = thread::spawn(move || {
            theirs.add(2);
            theirs.add(2);
        });
        cell.add(FIRST);
        cell.add(FIRST);
        other.join().unwrap();
        assert!(cell.owner.is_shared());
        // SAFETY: the other has ended.
        assert_eq!(cell.value.with(|value| unsafe { *value }), 4);
    });
}

#[test]
fn nobody_is_in_a_cell_together_with_its_owner() {
    cell_with_an_owner(true);
}

/// A model that cannot fail proves nothing.
#[test]
#[should_panic(expected = "Causality violation")]
fn without_barriers_two_are_in_a_cell() {
    cell_with_an_owner(false);
}

fn tables_with_one_owner(fenced: bool) {
    explore(fenced, || {
        let all = Arc::new((Owner::first_to_come(), [Table::new(), Table::new()]));
        let theirs = all.clone();
        let other = thread::spawn(move || {
            for table in theirs.1.iter().rev() {
                table.add(&theirs.0, 2);
            }
        });
        for table in &all.1 {
            table.add(&all.0, FIRST);
        }
        other.join().unwrap();
        // SAFETY: the other has ended.
        let sums = all.1.each_ref().map(|table| table.value.with(|value| unsafe { *value }));
        assert_eq!(sums, [2, 2]);
    });
}

#[test]
fn nobody_is_in_a_table_together_with_the_owner_of_all() {
    tables_with_one_owner(true);
}

#[test]
#[should_panic(expected = "Causality violation")]
fn without_barriers_two_are_in_a_table() {
    tables_with_one_owner(false);
}
