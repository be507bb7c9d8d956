//! Requests (MPI-5.0 §3.7, §3.9) and generalized requests (§13.2).
//!
//! A handle of a plain receive or send names a request of the engine: no object is made. Persistent, generalized and other
//! requests are objects in a table. Sends that are complete when they return share one handle.

mod look;
mod next;
mod object;
mod one;
mod several;
mod task;
mod wait;

pub use look::Completion;
pub use object::{DONE, DONE_PROC_NULL, Flagged, Generalized, Starter, Task, handle_of};
pub use one::{test_one, test_quickly, wait_one, wait_quickly};
pub use several::{Any, Complete, test_all, test_any, test_some, wait_all, wait_any, wait_some};
pub use task::{poll_tasks, start_collective, start_flagged, start_task, task_init, task_of, tasks_running};
pub use wait::{Pauses, wait_asking, wait_for};
pub(crate) use wait::{poll_tasks_asking, try_for};

use crate::buffered;
use crate::comm::{self, Comm};
use crate::consts::*;
use crate::error::{Error, Result};
use crate::handle::{self, Status};
use crate::p2p::{self, Mode, Receiving, Sending, Side};
use crate::partitioned::Partitioned;
use crate::slots::Slots;
use crate::world::{self, fault};
use engine::order::{Level, Ordered};
use object::{Kind, OBJECT, OBJECTS, Object, State, cell_of, object, object_here, plain};
use std::sync::Arc;

/// `MPI_Send_init` and its modes.
#[inline(always)]
pub fn send_init(comm: &'static Comm, side: &Side, mode: Mode) -> Result<handle::Request> {
    match p2p::plain_sending(comm, side) {
        Some(sending) => sends(comm, sending, mode),
        None => send_init_otherwise(comm, *side, mode),
    }
}

/// As [`send_init`], where the data is not bytes in one piece, or something is not in order. Apart, so that the rest has what it found in registers.
#[inline(never)]
fn send_init_otherwise(comm: &'static Comm, side: Side, mode: Mode) -> Result<handle::Request> {
    sends(comm, p2p::check_send(comm, &side)?, mode)
}

#[inline(always)]
fn sends(comm: &'static Comm, sending: Sending, mode: Mode) -> Result<handle::Request> {
    // What is buffered leaves from the program's own buffer, another part of it each time.
    if let (Some(target), false) = (&sending.target, matches!(mode, Mode::Buffered)) {
        comm.engine().prefer(target.process, &sending.buffer);
    }
    let kept = comm.keep();
    object::publish(|| Object::on(comm, Kind::Send { comm: kept, sending, mode }, State::Inactive))
}

/// `MPI_Recv_init`.
#[inline(always)]
pub fn recv_init(comm: &'static Comm, side: &Side) -> Result<handle::Request> {
    match p2p::plain_receiving(comm, side) {
        Some(receiving) => receives(comm, receiving),
        None => recv_init_otherwise(comm, *side),
    }
}

/// As [`recv_init`], apart as [`send_init_otherwise`].
#[inline(never)]
fn recv_init_otherwise(comm: &'static Comm, side: Side) -> Result<handle::Request> {
    receives(comm, p2p::check_receive(comm, &side)?)
}

#[inline(always)]
fn receives(comm: &'static Comm, receiving: Receiving) -> Result<handle::Request> {
    let kept = comm.keep();
    object::publish(|| Object::on(comm, Kind::Receive { comm: kept, receiving }, State::Inactive))
}

/// `MPI_Psend_init` and `MPI_Precv_init`.
pub fn partitioned_init(partitioned: Partitioned) -> Result<handle::Request> {
    let partitioned = Arc::new(partitioned);
    object::publish(|| Object::on(&partitioned.comm, Kind::Partitioned(partitioned.clone()), State::Inactive))
}

/// The partitioned operation behind a request.
pub fn partitioned(request: handle::Request) -> Result<Arc<Partitioned>> {
    match &object(request)?.kind {
        Kind::Partitioned(partitioned) => Ok(partitioned.clone()),
        _ => Err(Error::new(MPI_ERR_REQUEST, "the request is not a partitioned one")),
    }
}

/// `MPI_Grequest_start`.
pub fn grequest_start(callbacks: Generalized) -> Result<handle::Request> {
    object::publish(|| Object::new(None, None, Kind::Generalized(callbacks), State::Polled))
}

/// `MPI_Grequest_complete`.
pub fn grequest_complete(request: handle::Request) -> Result<()> {
    let object = object(request)?;
    let Kind::Generalized(callbacks) = &object.kind else {
        return Err(Error::new(MPI_ERR_REQUEST, "the request is not a generalized one"));
    };
    let before = std::mem::replace(&mut *object.state.lock(), State::Done(Status::EMPTY, None));
    if matches!(before, State::Freed) {
        OBJECTS.remove(request.0);
        return callbacks.release();
    }
    world::get()?.engine().lock().completed();
    Ok(())
}

/// `MPI_Start`.
pub fn start(request: handle::Request) -> Result<()> {
    let object = object_here(request)?;
    if !object.persistent() {
        return Err(Error::new(MPI_ERR_REQUEST, "the request is not persistent"));
    }
    {
        let mut state = object.state.lock();
        if !matches!(*state, State::Inactive) {
            return Err(Error::new(MPI_ERR_REQUEST, "the request is active"));
        }
        // From here on it is this thread's to start. The engine is entered without the state, which threads that are in the engine take.
        *state = State::Started;
    }
    let started = start_object(request, object);
    if started.is_err() {
        object.becomes(State::Inactive);
    }
    started
}

/// Starts a persistent operation.
#[inline(always)]
fn start_object(request: handle::Request, object: &'static Object) -> Result<()> {
    match &object.kind {
        Kind::Partitioned(partitioned) => return partitioned.start(),
        Kind::Send { comm, sending, mode: Mode::Buffered } => {
            buffered::send(comm, sending)?;
            object.becomes(State::Sent);
        }
        Kind::Send { comm, sending, mode } => {
            let sent = p2p::start_send_again(comm, sending, *mode)?;
            match sent {
                Some(id) => object.becomes(State::Plain(id)),
                None => object.becomes(State::Sent),
            }
        }
        Kind::Receive { comm, receiving } => match receiving.pattern {
            Some(pattern) => {
                let id = p2p::start_receive_again(comm, pattern, &receiving.buffer)?;
                object.becomes(State::Plain(id));
            }
            None => object.becomes(State::Done(Status::PROC_NULL, None)),
        },
        Kind::PersistentTask(starter) => task::run(&object::object(request)?, starter()?),
        Kind::Generalized(_) | Kind::Task => return Err(Error::new(MPI_ERR_REQUEST, "the request is not persistent")),
    }
    Ok(())
}

/// `MPI_Request_free`.
pub fn free(request: &mut handle::Request) -> Result<()> {
    let kept = if request.0 & OBJECT != 0 { OBJECTS.end(request.0, at_rest) } else { None };
    if kept.is_some() {
        *request = MPI_REQUEST_NULL;
        return Ok(());
    }
    free_otherwise(request)
}

/// What keeps the communicator of a persistent send or receive that is inactive, of which the engine has nothing: it goes where no lock is held.
fn at_rest(object: &mut Object) -> Option<Option<Arc<Comm>>> {
    match (&mut object.kind, object.state.get_mut()) {
        (Kind::Send { comm, .. } | Kind::Receive { comm, .. }, State::Inactive) => Some(comm.give_count()),
        _ => None,
    }
}

fn free_otherwise(request: &mut handle::Request) -> Result<()> {
    let mut engine = cell_of(world::get()?, *request).lock();
    if let Some(id) = plain(&mut engine, *request) {
        engine.detach(id);
    } else if *request != DONE && *request != DONE_PROC_NULL {
        let object = object_here(*request)?;
        let mut state = object.state.lock();
        if let State::Plain(id) = *state {
            engine.detach(id);
            *state = State::Inactive;
        }
        let done = matches!(*state, State::Done(..));
        if let Kind::Generalized(callbacks) = &object.kind {
            // Its state is the program's until it is complete (MPI-5.0 §13.2).
            if !done {
                *state = State::Freed;
            }
            drop(state);
            drop(engine);
            if done {
                // The callbacks are part of it.
                let _removed = OBJECTS.remove(request.0);
                callbacks.release()?;
            }
        } else {
            if let Kind::Partitioned(partitioned) = &object.kind {
                partitioned.release(&mut engine)?;
            }
            drop(state);
            // What goes with it may enter the engine.
            drop(engine);
            OBJECTS.remove(request.0);
        }
    }
    *request = MPI_REQUEST_NULL;
    Ok(())
}

/// `MPI_Cancel`.
pub fn cancel(request: handle::Request) -> Result<()> {
    if request == DONE || request == DONE_PROC_NULL {
        return Ok(());
    }
    let mut engine = cell_of(world::get()?, request).lock();
    if let Some(id) = plain(&mut engine, request) {
        return engine.cancel(id).map_err(fault);
    }
    let object = object(request)?;
    let state = object.state.lock();
    match (&*state, &object.kind) {
        (State::Plain(id), _) => engine.cancel(*id).map_err(fault),
        (_, Kind::Generalized(callbacks)) => {
            let complete = matches!(*state, State::Done(..));
            // The callback may complete the request.
            drop(state);
            drop(engine);
            callbacks.ask_to_cancel(complete)
        }
        (State::Inactive, _) => Err(Error::new(MPI_ERR_REQUEST, "the request is inactive")),
        (_, Kind::Partitioned(_)) => Err(Error::new(MPI_ERR_REQUEST, "a partitioned operation cannot be cancelled")),
        (_, Kind::Task | Kind::PersistentTask(_)) => Err(Error::new(MPI_ERR_REQUEST, "a collective operation cannot be cancelled")),
        _ => Ok(()),
    }
}

/// The communicator on which an error of a request is raised.
pub fn comm_of(request: handle::Request) -> Option<&'static Comm> {
    let owner = match world::get() {
        Ok(world) => {
            let mut engine = cell_of(world, request).lock();
            plain(&mut engine, request).map(|id| handle::Comm(engine.owner(id) as usize))
        }
        Err(_) => None,
    };
    let handle = owner.or_else(|| object(request).ok().and_then(|o| o.comm))?;
    comm::find(handle).ok()
}

static MESSAGES: Ordered<Slots<(handle::Comm, engine::Message)>> = Ordered::new(Level::Table, Slots::new());

/// A handle for a message that was taken by a matched probe.
#[inline]
pub fn keep_message(comm: handle::Comm, message: engine::Message) -> Result<handle::Message> {
    MESSAGES.lock().insert((comm, message)).map(handle::Message).map_err(|_| Error::new(MPI_ERR_OTHER, "too many messages are probed and not received"))
}

pub fn comm_of_message(message: handle::Message) -> Option<handle::Comm> {
    MESSAGES.lock().get(message.0).map(|(comm, _)| *comm)
}

/// The message behind a handle, which is not valid any more.
#[inline]
pub fn take_message(message: handle::Message) -> Result<(handle::Comm, engine::Message)> {
    MESSAGES.lock().remove(message.0).ok_or_else(|| no_message(message))
}

#[cold]
fn no_message(message: handle::Message) -> Box<Error> {
    match message {
        MPI_MESSAGE_NULL => Error::new(MPI_ERR_REQUEST, "the message is MPI_MESSAGE_NULL"),
        _ => Error::new(MPI_ERR_REQUEST, format!("{:#x} is no message", message.0)),
    }
}
