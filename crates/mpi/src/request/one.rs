//! Completing one request: `MPI_Wait`, `MPI_Test`.

use super::look::*;
use super::object::*;
use super::task::{flag_ready, lone_task, poll, tasks_running};
use super::wait::{Pauses, poll_tasks_asking, try_for, wait_asking};
use crate::error::{Error, Result};
use crate::handle::{self, Status};
use crate::world::{self, World, fault};
use engine::{Cell, Doing, Engine, Received};

/// Looks at the flags that an operation waits for, until it can take a step or they stay away for longer: whether it can. `None`: it waits for no flags.
fn wait_briefly_for_flags(cell: &Cell<Engine>, object: &Object) -> Option<bool> {
    if flag_ready(object, &cell.lock())? {
        return Some(true);
    }
    // What fails is noticed by the general way of waiting.
    Some(crate::lines::look_quickly(|| flag_ready(object, &cell.lock()) != Some(false)))
}

/// The quick way of waiting for an operation of several steps that is the only one under way: takes its steps whenever something has completed that it may wait
/// for, as long as that comes within a few looks. Then the general way of waiting takes over.
fn wait_briefly_for_task(world: &World, cell: &Cell<Engine>, object: &Object) -> Result<()> {
    /// Steps of the longest algorithms that are worth it.
    const STEPS: usize = 64;
    /// Rounds of looks for one of them, where every rank has a core.
    const ROUNDS: usize = 8;
    let rounds = if world.crowded { 1 } else { ROUNDS };
    for _ in 0..STEPS {
        let flags = if world.crowded { None } else { wait_briefly_for_flags(cell, object) };
        if flags == Some(false) {
            break;
        }
        let before = cell.lock().completions();
        if poll(object) {
            // Another thread may wait until nothing is under way on the communicator.
            world.engine().lock().completed();
            break;
        }
        if !matches!(*object.state.lock(), State::Running(_)) {
            break;
        }
        cell.lock().flush_coalesced();
        if flags.is_some() {
            // The next flag, of another rank perhaps: nothing completes in the engine for it.
            continue;
        }
        let mut come = None;
        for _ in 0..rounds {
            // Other threads may enter between two of them.
            come = cell.lock().look_briefly(|e| (e.completions() != before).then_some(())).map_err(fault)?;
            if come.is_some() {
                break;
            }
        }
        if come.is_none() {
            break;
        }
    }
    Ok(())
}

/// The quick way of `MPI_Wait`, for what ends well within a few looks. `None`: the general way has to be taken.
#[inline]
pub fn wait_quickly(request: &mut handle::Request) -> Result<Option<Received>> {
    let mut engine = cell_of(world::get()?, *request).lock();
    engine.flush_coalesced();
    let place = if tasks_running() { None } else { place_of_any(*request) };
    if let Some(place) = place {
        // Nothing but what has ended well is taken here.
        let mut received = None;
        engine.look_briefly(|e| e.at_rest(place).then(|| received = look_quickly(e, request))).map_err(fault)?;
        return Ok(received);
    }
    Ok(look_quickly(&mut engine, request))
}

/// `MPI_Wait`, where [`wait_quickly`] has not been enough.
#[inline(never)]
pub fn wait_one(function: &'static str, request: &mut handle::Request) -> Result<Completion> {
    let world = world::get()?;
    let cell = cell_of(world, *request);
    let mut failed = None;
    let object = request.0 & OBJECT != 0;
    if object && lone_task() {
        wait_briefly_for_task(world, cell, object_here(*request)?)?;
        let looked = look(&mut cell.lock(), request, true)?;
        if let Some(found) = looked {
            return Ok(settle(found, true));
        }
    }
    let ready = |e: &mut Engine| ready_or(look(e, request, true), &mut failed);
    // A lone collective is all that this thread waits for.
    let asked = || {
        poll_tasks_asking(object && lone_task());
        None
    };
    let found = wait_asking(world, cell, Doing::call(function), &mut Pauses::new(world, cell), ready, asked)?;
    match failed {
        Some(error) => Err(error),
        None => Ok(found.map_or_else(|| Completion::of(Status::EMPTY), |f| settle(f, true))),
    }
}

/// A found request, or the end of waiting with an error noted in `failed`.
#[inline]
fn ready_or(looked: Result<Option<Found>>, failed: &mut Option<Box<Error>>) -> Option<Option<Found>> {
    match looked {
        Ok(Some(found)) => Some(Some(found)),
        Ok(None) => None,
        Err(error) => {
            *failed = Some(error);
            Some(None)
        }
    }
}

/// The quick way of `MPI_Test`, for a plain request that is not complete where nothing has come, or one that has ended well. `None`: the general way has
/// to be taken. `None` inside: it is not complete.
#[inline(always)]
pub fn test_quickly(request: &mut handle::Request) -> Result<Option<Option<Received>>> {
    if request.0 >> 29 != 1 || tasks_running() {
        return Ok(None);
    }
    let cell = cell_of(world::get()?, *request);
    if cell.shared() {
        return Ok(None);
    }
    let mut engine = cell.lock();
    engine.flush_coalesced();
    if under_way(&engine, *request) {
        if engine.looks_in_vain() {
            return Ok(Some(None));
        }
        if engine.siblings().is_some() {
            return Ok(None);
        }
        engine.progress().map_err(fault)?;
    }
    let received = look_quickly(&mut engine, request);
    if received.is_some() {
        engine.polled(true);
    }
    Ok(received.map(Some))
}

/// `MPI_Test`; with `consume` off, `MPI_Request_get_status`.
pub fn test_one(request: &mut handle::Request, consume: bool) -> Result<Option<Completion>> {
    let found = try_for(cell_of(world::get()?, *request), |e| look(e, request, consume))?;
    Ok(found.map(|f| settle(f, consume)))
}
