//! Which of many complete requests come next, for programs that ask for any of them again and again: a look at each finds several at once.

use super::look::{plain_age, under_way};
use super::object::DONE;
use crate::consts::MPI_REQUEST_NULL;
use crate::handle::Request;
use engine::Engine;
use std::cell::RefCell;

/// Requests of which this is worth its time.
const MANY: usize = 32;
/// Requests that a look finds at most.
const FOUND_MAX: usize = 16;

/// Those of a list that completed first, in that order, as a look at all of them found it. What completes afterwards comes after them.
struct Next {
    /// The list that was looked at, by its place and length.
    list: (usize, usize),
    found: [(u32, Request, u32); FOUND_MAX],
    count: usize,
    given: usize,
}

thread_local!(static NEXT: RefCell<Next> = const { RefCell::new(Next { list: (0, 0), found: [(0, Request(0), 0); FOUND_MAX], count: 0, given: 0 }) });

/// The quick way through a list of plain requests of one engine, complete sends and null requests: whether one of them is active, and the one that completed
/// first. `None`: others are among them.
#[inline]
pub(super) fn oldest(engine: &Engine, requests: &[Request]) -> Option<(bool, Option<usize>)> {
    if requests.len() < MANY {
        return oldest_by_looking(engine, requests, |_, _| ());
    }
    Next::find(engine, requests).map_or_else(|| Next::look(engine, requests), |at| Some((true, Some(at))))
}

/// As [`oldest`]; `complete` is told of each that is complete, and completions ago that it was.
#[inline(always)]
fn oldest_by_looking(engine: &Engine, requests: &[Request], mut complete: impl FnMut(usize, u32)) -> Option<(bool, Option<usize>)> {
    let (mut any_active, mut oldest, mut best) = (false, None, 0);
    for (at, request) in requests.iter().enumerate() {
        if under_way(engine, *request) {
            any_active = true;
            continue;
        }
        if *request == MPI_REQUEST_NULL {
            continue;
        }
        any_active = true;
        let age = match plain_age(engine, *request) {
            Some(age) => age,
            // As old as can be: it was complete when it was made.
            None if *request == DONE => Some(u32::MAX),
            None => return None,
        };
        if let Some(age) = age {
            complete(at, age);
            if oldest.is_none() || age > best {
                (oldest, best) = (Some(at), age);
            }
        }
    }
    Some((any_active, oldest))
}

fn list_of(requests: &[Request]) -> (usize, usize) {
    (requests.as_ptr().addr(), requests.len())
}

impl Next {
    /// The request of a list that completed first, if an earlier look has found it and it is still there.
    fn find(engine: &Engine, requests: &[Request]) -> Option<usize> {
        NEXT.with_borrow_mut(|next| {
            if next.list != list_of(requests) {
                return None;
            }
            // Those that have been taken out are gone from the list.
            while let Some(&(at, request, _)) = next.found[..next.count].get(next.given) {
                let there = requests.get(at as usize) == Some(&request);
                if there && (request == DONE || matches!(plain_age(engine, request), Some(Some(_)))) {
                    return Some(at as usize);
                }
                next.given += 1;
            }
            None
        })
    }

    /// Looks at a whole list, as [`oldest`], and keeps what it finds.
    #[inline(never)]
    fn look(engine: &Engine, requests: &[Request]) -> Option<(bool, Option<usize>)> {
        NEXT.with_borrow_mut(|next| {
            (next.list, next.count, next.given) = (list_of(requests), 0, 0);
            let looked = oldest_by_looking(engine, requests, |at, age| next.note(at, requests[at], age));
            if looked.is_none() {
                next.count = 0;
            }
            looked
        })
    }

    /// Puts a request where it belongs by its age, after those that are as old.
    fn note(&mut self, at: usize, request: Request, age: u32) {
        let older = |found: &(u32, Request, u32)| found.2 >= age;
        if self.count == FOUND_MAX && older(&self.found[FOUND_MAX - 1]) {
            return;
        }
        let place = self.found[..self.count].iter().rposition(older).map_or(0, |place| place + 1);
        self.count = (self.count + 1).min(FOUND_MAX);
        self.found[place..self.count].rotate_right(1);
        self.found[place] = (at as u32, request, age);
    }
}
