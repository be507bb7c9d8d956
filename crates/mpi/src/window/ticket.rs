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
        // In one order with what `MPI_Win_lock_all` does ([`enter_all`]).
        match word.compare_exchange_weak(found, new, Ordering::SeqCst, Ordering::Relaxed) {
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

/// Whether nobody has the lock alone, or waits for it: who shared it now would wait for nobody.
#[inline]
fn is_open(word: &AtomicU64) -> bool {
    let found = word.load(Ordering::SeqCst);
    next(found) == turn(found)
}

/// Takes the locks of a window's ranks, to share them, by a count that stands for all; says whether that could be. If not, nothing is held, and the caller
/// wakes who waits for the count.
///
/// Where nobody has a lock alone or waits for one, the count stands for all locks, and the locks are only read. Whoever wants a lock alone takes its ticket
/// and then looks at the count ([`nobody`]); who counts then looks at the tickets. All four are in one order, so one of both sees the other. Who counts gives
/// way, and takes the locks one by one, in the order of tickets. Who wants the lock alone waits until it has once seen a count of zero: who counts after that
/// sees the ticket.
#[inline]
pub fn enter_all<'a>(everyone: &AtomicU64, mut locks: impl Iterator<Item = &'a AtomicU64>) -> bool {
    everyone.fetch_add(1, Ordering::SeqCst);
    if locks.all(is_open) {
        return true;
    }
    leave_all(everyone);
    false
}

/// Gives back what [`enter_all`] has taken. The caller wakes who waits for the count.
#[inline]
pub fn leave_all(everyone: &AtomicU64) {
    everyone.fetch_sub(1, Ordering::SeqCst);
}

/// Whether nobody has all locks by the count: asked by who has a lock alone but for that, until it is so.
#[inline]
pub fn nobody(everyone: &AtomicU64) -> bool {
    everyone.load(Ordering::SeqCst) == 0
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
        assert!(has_turn(&word, writer, true) && !has_turn(&word, reader, false) && !is_open(&word));
        leave(&word, true);
        assert!(has_turn(&word, reader, false));
        assert_eq!(enter(&word, false), None);
        assert!(is_open(&word));
        leave(&word, false);
        leave(&word, false);
        assert_eq!(word.load(Ordering::Relaxed), 1 << NEXT_SHIFT | 1 << TURN_SHIFT);
        assert_eq!(enter(&word, true), None);
    }

    /// Takes a lock as `Window::acquire` does.
    fn take(lock: &AtomicU64, everyone: &AtomicU64, exclusive: bool) {
        if let Some(ticket) = enter(lock, exclusive) {
            while !has_turn(lock, ticket, exclusive) {
                std::thread::yield_now();
            }
        }
        while exclusive && !nobody(everyone) {
            std::thread::yield_now();
        }
    }

    #[test]
    fn who_has_a_lock_alone_is_alone() {
        const LOCKS: usize = 3;
        let (locks, everyone): ([AtomicU64; LOCKS], _) = (Default::default(), AtomicU64::new(0));
        let [alone, together]: [[AtomicU32; LOCKS]; 2] = Default::default();
        let (by_count, one_by_one) = (AtomicU32::new(0), AtomicU32::new(0));
        let share = |at: usize| {
            together[at].fetch_add(1, Ordering::Relaxed);
            assert_eq!(alone[at].load(Ordering::Relaxed), 0);
            together[at].fetch_sub(1, Ordering::Relaxed);
        };
        std::thread::scope(|scope| {
            for thread in 0..4usize {
                let (locks, everyone, alone, together, share, by_count, one_by_one) = (&locks, &everyone, &alone, &together, &share, &by_count, &one_by_one);
                scope.spawn(move || {
                    for round in 0..3000 {
                        let at = (thread + round / 2) % LOCKS;
                        match (thread + round) % 4 {
                            0 => {
                                let counted = enter_all(everyone, locks.iter());
                                if !counted {
                                    locks.iter().for_each(|lock| take(lock, everyone, false));
                                }
                                (0..LOCKS).for_each(share);
                                (if counted { by_count } else { one_by_one }).fetch_add(1, Ordering::Relaxed);
                                match counted {
                                    true => leave_all(everyone),
                                    false => locks.iter().for_each(|lock| leave(lock, false)),
                                }
                            }
                            1 => {
                                take(&locks[at], everyone, true);
                                assert_eq!(alone[at].fetch_add(1, Ordering::Relaxed), 0);
                                assert_eq!(together[at].load(Ordering::Relaxed), 0);
                                alone[at].fetch_sub(1, Ordering::Relaxed);
                                leave(&locks[at], true);
                            }
                            _ => {
                                take(&locks[at], everyone, false);
                                share(at);
                                leave(&locks[at], false);
                            }
                        }
                    }
                });
            }
        });
        assert_eq!(by_count.into_inner() + one_by_one.into_inner(), 3000);
        assert_eq!(everyone.into_inner(), 0);
        for lock in locks {
            let end = lock.into_inner();
            assert_eq!((end & SHARERS, next(end)), (0, turn(end)));
        }
    }
}
