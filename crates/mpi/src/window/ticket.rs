//! The lock of one rank of a window, in one word that all ranks share (MPI-5.0 §12.5.3): first come, first served, by tickets.
//!
//! From the lowest bit: how many hold the lock together (24 bits), the next ticket (20 bits), the ticket whose turn it is (20 bits). Nobody waits where
//! both tickets are equal; then who wants to share the lock needs no ticket. So a lock that nobody else wants costs one atomic instruction to take and
//! one to give back.
//!
//! Why this is a lock: only who has the ticket whose turn it is moves the turn on, once, when it shares the lock or gives it back; so two never have the
//! turn. Who wants the lock alone holds the turn until it gives the lock back, and has the lock from when it sees no sharers. New sharers take a ticket
//! then, since the tickets differ. Giving back releases, and taking acquires, through one and the same word.
#![forbid(unsafe_code)]

use std::sync::atomic::{AtomicU64, Ordering};

const SHARER: u64 = 1;
const SHARERS: u64 = (1 << 24) - 1;
const NEXT_SHIFT: u32 = 24;
/// The turn is in the highest bits: adding to it carries into nothing.
const TURN_SHIFT: u32 = 44;
const TURN: u64 = 1 << TURN_SHIFT;
/// More than ranks of one host, which are the most that can wait.
const TICKETS: u64 = 1 << 20;

#[inline]
fn next(word: u64) -> u64 {
    (word >> NEXT_SHIFT) & (TICKETS - 1)
}

#[inline]
fn turn(word: u64) -> u64 {
    word >> TURN_SHIFT
}

/// Takes the lock, or a ticket for it: `None` where the caller has the lock now.
#[inline]
pub fn enter(word: &AtomicU64, exclusive: bool) -> Option<u64> {
    let mut found = word.load(Ordering::Relaxed);
    loop {
        let ticket = next(found);
        let first = ticket == turn(found);
        let new = match first && !exclusive {
            true => found + SHARER,
            false => (found & !((TICKETS - 1) << NEXT_SHIFT)) | (((ticket + 1) & (TICKETS - 1)) << NEXT_SHIFT),
        };
        match word.compare_exchange_weak(found, new, Ordering::AcqRel, Ordering::Relaxed) {
            Ok(_) => return if first && (!exclusive || found & SHARERS == 0) { None } else { Some(ticket) },
            Err(other) => found = other,
        }
    }
}

/// Whether the holder of `ticket` has the lock now. Not to be asked again after it has said so. Who shares the lock lets the next ticket have its turn:
/// the caller wakes who waits for that.
#[inline]
pub fn has_turn(word: &AtomicU64, ticket: u64, exclusive: bool) -> bool {
    let found = word.load(Ordering::Acquire);
    if turn(found) != ticket {
        return false;
    }
    if exclusive {
        return found & SHARERS == 0;
    }
    word.fetch_add(SHARER + TURN, Ordering::SeqCst);
    true
}

/// Gives the lock back. The caller wakes who waits for it.
#[inline]
pub fn leave(word: &AtomicU64, exclusive: bool) {
    match exclusive {
        true => word.fetch_add(TURN, Ordering::SeqCst),
        false => word.fetch_sub(SHARER, Ordering::SeqCst),
    };
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicU32;

    #[test]
    fn who_comes_first_is_first_and_tickets_wrap() {
        // The last ticket before zero, and a lock that nobody has.
        let word = AtomicU64::new((TICKETS - 1) << NEXT_SHIFT | (TICKETS - 1) << TURN_SHIFT);
        assert_eq!((enter(&word, false), enter(&word, false)), (None, None));
        let writer = enter(&word, true).unwrap();
        let reader = enter(&word, false).unwrap();
        assert_eq!((writer, reader), (TICKETS - 1, 0));
        assert!(!has_turn(&word, writer, true) && !has_turn(&word, reader, false));
        leave(&word, false);
        assert!(!has_turn(&word, writer, true));
        leave(&word, false);
        assert!(has_turn(&word, writer, true) && !has_turn(&word, reader, false));
        leave(&word, true);
        assert!(has_turn(&word, reader, false));
        assert_eq!(enter(&word, false), None);
        leave(&word, false);
        leave(&word, false);
        assert_eq!(word.load(Ordering::Relaxed), 1 << NEXT_SHIFT | 1 << TURN_SHIFT);
        assert_eq!(enter(&word, true), None);
    }

    #[test]
    fn who_has_the_lock_alone_is_alone() {
        let (word, alone, together) = (AtomicU64::new(0), AtomicU32::new(0), AtomicU32::new(0));
        std::thread::scope(|scope| {
            for thread in 0..4 {
                let (word, alone, together) = (&word, &alone, &together);
                scope.spawn(move || {
                    for round in 0..2000 {
                        let exclusive = (thread + round) % 3 == 0;
                        if let Some(ticket) = enter(word, exclusive) {
                            while !has_turn(word, ticket, exclusive) {
                                std::thread::yield_now();
                            }
                        }
                        let count = if exclusive { alone } else { together };
                        let before = count.fetch_add(1, Ordering::Relaxed);
                        assert!(!exclusive || (before == 0 && together.load(Ordering::Relaxed) == 0));
                        assert!(exclusive || alone.load(Ordering::Relaxed) == 0);
                        count.fetch_sub(1, Ordering::Relaxed);
                        leave(word, exclusive);
                    }
                });
            }
        });
        let end = word.load(Ordering::Relaxed);
        assert_eq!((end & SHARERS, next(end)), (0, turn(end)));
    }
}
