//! The one order in which the locks of a process are taken, and the check of it in builds with debug assertions: a thread takes a lock only while
//! all locks that it holds come before, and it calls the program back only while it holds none (`docs/design.md`, "Locks").

use crate::bias::{Biased, BiasedGuard};
use crate::owner::Owner;
use std::ops::{Deref, DerefMut};

/// The thread that takes these locks freely, as long as no other one does.
static OWNER: Owner = Owner::first_to_come();

/// A lock's place in the order; a thread that holds one takes only those with larger numbers.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
#[repr(u8)]
pub enum Level {
    /// Who uses the library: held while a process joins its job.
    Users = 0,
    /// Held while an engine is opened.
    Opening = 1,
    /// The buffers for buffered sends: of a communicator, of a session, of the process.
    CommBuffer = 2,
    SessionBuffer = 3,
    ProcessBuffer = 4,
    /// The engines, in the order of their numbers.
    Engine = 5,
    /// The state of a request that is an object, then that of a partitioned operation.
    Request = 9,
    Partitioned = 10,
    /// Tables and lists. Nothing is called or waited for while one of them is held, and nothing but the next level is taken.
    Table = 11,
    /// The memory of freed objects. Nothing is taken while it is held.
    Spare = 12,
}

impl Level {
    /// The level of the engine of `vci`.
    pub fn engine(vci: u8) -> u8 {
        Level::Engine as u8 + vci
    }
}

const _: () = assert!(Level::Engine as usize + fabric::local::VCIS == Level::Request as usize);

#[cfg(debug_assertions)]
mod check {
    use std::cell::Cell;

    // One bit for each level whose lock this thread holds.
    thread_local!(static HELD: Cell<u32> = const { Cell::new(0) });

    /// A lock's entry in the list of those that its thread holds.
    pub struct Held(u8);

    impl Held {
        #[track_caller]
        pub fn note(level: u8) -> Held {
            let held = HELD.get();
            assert!(held >> level == 0, "a lock of level {level} is taken while those of levels {held:#b} (one bit for each) are held");
            HELD.set(held | 1 << level);
            Held(level)
        }
    }

    impl Drop for Held {
        fn drop(&mut self) {
            // A thread that ends may drop guards after its own storage.
            let _ = HELD.try_with(|held| held.set(held.get() & !(1 << self.0)));
        }
    }

    #[track_caller]
    pub fn holding_nothing() {
        assert!(HELD.get() == 0, "the program is called back while locks of levels {:#b} (one bit for each) are held", HELD.get());
    }
}

#[cfg(not(debug_assertions))]
mod check {
    pub struct Held;

    impl Held {
        #[inline(always)]
        pub fn note(_: u8) -> Held {
            Held
        }
    }

    #[inline(always)]
    pub fn holding_nothing() {}
}

pub(crate) use check::Held;

/// Called before every callback of the program: it may call MPI, and may wait for another thread that does.
#[inline(always)]
#[cfg_attr(debug_assertions, track_caller)]
pub fn before_callback() {
    check::holding_nothing();
}

/// A lock that has its place in the order.
pub struct Ordered<T> {
    level: Level,
    value: Biased<T>,
}

pub struct OrderedGuard<'a, T> {
    value: BiasedGuard<'a, T>,
    _held: Held,
}

impl<T> Ordered<T> {
    pub const fn new(level: Level, value: T) -> Ordered<T> {
        Ordered { level, value: Biased::new(value) }
    }

    /// Takes the lock. What a thread that panicked has left behind is used as it is.
    #[inline]
    #[cfg_attr(debug_assertions, track_caller)]
    pub fn lock(&self) -> OrderedGuard<'_, T> {
        let held = Held::note(self.level as u8);
        OrderedGuard { value: self.value.lock(&OWNER), _held: held }
    }

    /// The value, without the lock: nobody else has it.
    #[inline]
    pub fn get_mut(&mut self) -> &mut T {
        self.value.get_mut()
    }
}

impl<T> Deref for OrderedGuard<'_, T> {
    type Target = T;
    #[inline]
    fn deref(&self) -> &T {
        &self.value
    }
}

impl<T> DerefMut for OrderedGuard<'_, T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        &mut self.value
    }
}

#[cfg(all(test, debug_assertions))]
mod tests {
    use super::*;
    use crate::Cell;

    #[test]
    fn locks_are_taken_in_order_and_dropped_in_any() {
        let (first, last) = (Ordered::new(Level::Request, 1), Ordered::new(Level::Table, 2));
        let one = first.lock();
        let two = last.lock();
        drop(one);
        assert_eq!(*two, 2);
        drop(two);
        let _one = first.lock();
    }

    #[test]
    #[should_panic(expected = "level 5 is taken while")]
    fn a_request_is_not_held_when_an_engine_is_entered() {
        let (state, engine) = (Ordered::new(Level::Request, ()), Cell::new((), false));
        let _state = state.lock();
        let _engine = engine.lock();
    }

    #[test]
    #[should_panic(expected = "level 6 is taken while")]
    fn engines_are_entered_in_the_order_of_their_numbers() {
        let (second, third) = (Cell::numbered((), true, 1), Cell::numbered((), true, 2));
        let _third = third.lock();
        let _second = second.lock();
    }

    #[test]
    #[should_panic(expected = "called back while")]
    fn the_program_is_called_with_nothing_held() {
        let engine = Cell::new((), false);
        let _engine = engine.lock();
        before_callback();
    }
}
