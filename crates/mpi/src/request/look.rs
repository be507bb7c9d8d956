//! Looking whether a request is complete.

use super::object::*;
use crate::consts::*;
use crate::error::{Error, Result};
use crate::handle::{self, Status};
use crate::p2p::{check_outcome, status_of};
use crate::status;
use engine::order::before_callback;
use engine::{Engine, Outcome, Received};
use std::sync::Arc;

/// A request that has come to its end.
#[derive(Clone, Debug)]
pub struct Completion {
    /// Its error field is the code of the operation.
    pub status: Status,
    /// Where the error is raised.
    pub comm: Option<handle::Comm>,
    pub error: Option<Box<Error>>,
}

impl Completion {
    pub(super) fn of(status: Status) -> Completion {
        Completion { status, comm: None, error: None }
    }
}

/// Completions ago that a plain request completed: `None` inside where it has not, outside where there is no such request.
#[inline(always)]
pub(super) fn plain_age(engine: &Engine, request: handle::Request) -> Option<Option<u32>> {
    if request.0 >> 29 != 1 {
        return None;
    }
    engine.age_of(place_of(request), (request.0 >> GENERATION_SHIFT) as u32 & GENERATION_MASK, GENERATION_MASK)
}

/// Whether it is a plain request that is not complete.
#[inline(always)]
pub(super) fn under_way(engine: &Engine, request: handle::Request) -> bool {
    request.0 >> 29 == 1 && engine.is_under_way(place_of(request), (request.0 >> GENERATION_SHIFT) as u32 & GENERATION_MASK, GENERATION_MASK)
}

/// What is left to do, outside the engine, for a request that is complete.
pub(super) enum Found {
    Completion(Completion),
    Object(Arc<Object>),
}

/// Looks whether a request is complete. `consume` takes it out, and makes its handle null unless it is persistent.
#[inline]
pub(super) fn look(engine: &mut Engine, request: &mut handle::Request, consume: bool) -> Result<Option<Found>> {
    if under_way(engine, *request) {
        return Ok(None);
    }
    if let Some(id) = plain(engine, *request) {
        let owner = engine.owner(id);
        let receive = engine.is_receive(id);
        let outcome = if consume { engine.take(id) } else { engine.peek(id) };
        let Some(outcome) = outcome else { return Ok(None) };
        if consume {
            *request = MPI_REQUEST_NULL;
        }
        return Ok(Some(Found::Completion(plain_completion(&outcome, receive, handle::Comm(owner as usize)))));
    }
    look_further(engine, request, consume)
}

#[inline]
fn plain_completion(outcome: &Outcome, receive: bool, comm: handle::Comm) -> Completion {
    let mut status = if receive { status_of(outcome) } else { Status::EMPTY };
    status.set_cancelled(outcome.cancelled);
    let error = check_outcome(outcome).err();
    if let Some(error) = &error {
        status.error = error.class;
    }
    Completion { status, comm: Some(comm), error }
}

/// Takes out a plain request that has ended well, or a send that was complete at once: the way of most requests.
#[inline(always)]
pub(super) fn look_quickly(engine: &mut Engine, request: &mut handle::Request) -> Option<Received> {
    if request.0 >> 29 == 1 {
        let place = place_of(*request);
        let received = engine.take_well(place, (request.0 >> GENERATION_SHIFT) as u32 & GENERATION_MASK, GENERATION_MASK, status::sent())?;
        *request = MPI_REQUEST_NULL;
        return Some(received);
    }
    if *request == DONE {
        *request = MPI_REQUEST_NULL;
        return Some(status::sent());
    }
    if request.0 & OBJECT != 0 { look_quickly_at_object(engine, *request) } else { None }
}

/// As [`look_quickly`], of a persistent request.
fn look_quickly_at_object(engine: &mut Engine, request: handle::Request) -> Option<Received> {
    let object = object_here(request).ok()?;
    let mut state = object.state.lock();
    let received = match (&*state, &object.kind) {
        (State::Sent, _) => status::sent(),
        (State::Plain(id), _) => {
            let (place, generation) = id.parts();
            engine.take_well(place, generation, u32::MAX, status::sent())?
        }
        _ => return None,
    };
    *state = State::Inactive;
    Some(received)
}

/// The place in the engine's table that a request has there, be it plain or started again and again.
#[inline(always)]
pub(super) fn place_of_any(request: handle::Request) -> Option<u32> {
    if request.0 >> 29 == 1 {
        return Some(place_of(request));
    }
    if request.0 & OBJECT != 0 { place_of_object(request) } else { None }
}

fn place_of_object(request: handle::Request) -> Option<u32> {
    let object = object_here(request).ok()?;
    match *object.state.lock() {
        State::Plain(id) => Some(id.parts().0),
        _ => None,
    }
}

fn look_further(engine: &mut Engine, request: &mut handle::Request, consume: bool) -> Result<Option<Found>> {
    let status = match *request {
        MPI_REQUEST_NULL => return Ok(Some(Found::Completion(Completion::of(Status::EMPTY)))),
        DONE => Status::EMPTY,
        DONE_PROC_NULL => Status::PROC_NULL,
        _ => {
            let object = object_here(*request)?;
            let mut state = object.state.lock();
            match &*state {
                State::Inactive => return Ok(Some(Found::Completion(Completion::of(Status::EMPTY)))),
                State::Running(_) | State::Polled | State::Freed => return Ok(None),
                State::Sent => {
                    if consume {
                        *state = State::Inactive;
                    }
                    return Ok(Some(Found::Completion(Completion { status: Status::EMPTY, comm: object.comm, error: None })));
                }
                State::Started => {
                    let Kind::Partitioned(partitioned) = &object.kind else { return Ok(None) };
                    let Some(ended) = partitioned.look(engine, consume) else { return Ok(None) };
                    if consume {
                        *state = State::Inactive;
                    }
                    let (status, error) = match ended {
                        Ok(status) => (status, None),
                        Err(error) => (Status { error: error.class, ..Status::EMPTY }, Some(error)),
                    };
                    return Ok(Some(Found::Completion(Completion { status, comm: object.comm, error })));
                }
                State::Plain(id) => {
                    let (id, receive) = (*id, matches!(object.kind, Kind::Receive { .. }));
                    let outcome = if consume { engine.take(id) } else { engine.peek(id) };
                    let Some(outcome) = outcome else { return Ok(None) };
                    if consume {
                        *state = State::Inactive;
                    }
                    return Ok(Some(Found::Completion(plain_completion(&outcome, receive, object.comm.unwrap_or(MPI_COMM_NULL)))));
                }
                State::Done(status, error) => {
                    let completion = Completion { status: *status, comm: object.comm, error: error.clone() };
                    if matches!(object.kind, Kind::Generalized(_)) {
                        drop(state);
                        let object = self::object(*request)?;
                        if consume {
                            OBJECTS.remove(request.0);
                            *request = MPI_REQUEST_NULL;
                        }
                        return Ok(Some(Found::Object(object)));
                    }
                    if consume {
                        *state = State::Inactive;
                        drop(state);
                        if !object.persistent() {
                            OBJECTS.remove(request.0);
                            *request = MPI_REQUEST_NULL;
                        }
                    }
                    return Ok(Some(Found::Completion(completion)));
                }
            }
        }
    };
    if consume {
        *request = MPI_REQUEST_NULL;
    }
    Ok(Some(Found::Completion(Completion::of(status))))
}

/// Calls what the program wants to be called when its request is looked at. Not with the engine held.
pub(super) fn settle(found: Found, consume: bool) -> Completion {
    let object = match found {
        Found::Completion(completion) => return completion,
        Found::Object(object) => object,
    };
    let Kind::Generalized(callbacks) = &object.kind else { return Completion::of(Status::EMPTY) };
    let mut completion = Completion::of(Status::EMPTY);
    if let Some(query) = callbacks.query {
        before_callback();
        // SAFETY: the program's callback, called as MPI-5.0 §13.2 says.
        let code = unsafe { query(callbacks.extra_state, &mut completion.status) };
        note(&mut completion, code, "the query function of a generalized request");
    }
    if consume && let Err(error) = callbacks.release() {
        completion.status.error = error.class;
        completion.error = Some(error);
    }
    completion
}

fn note(completion: &mut Completion, code: i32, what: &str) {
    if code != MPI_SUCCESS {
        completion.status.error = code;
        completion.error = Some(Error::new(code, format!("{what} returned {code}")));
    }
}
