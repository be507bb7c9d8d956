//! The tool information interface (MPI-5.0 §15.3): control variables are the table of parameters, performance variables the
//! counters of this process, events what it notes.
//!
//! All of it works before initialization and after finalization, from any thread, and no error calls an error handler. Until
//! MPI is initialized every counter is 0.

pub mod category;
pub mod cvar;
pub mod enumeration;
pub mod event;
pub mod pvar;

use crate::consts::*;
use crate::error::{Error, Result};
use crate::handle::Datatype;
use crate::slots::Slots;
use crate::world;
use std::sync::atomic::{AtomicI32, Ordering};
use std::sync::{Mutex, MutexGuard};

/// A value of a variable or of an event's element.
#[derive(Clone, PartialEq, Debug)]
pub enum Datum {
    /// `MPI_INT`, often of an enumeration.
    Int(i32),
    /// `MPI_UNSIGNED_LONG_LONG`.
    Unsigned(u64),
    /// `MPI_COUNT`.
    Count(i64),
    /// `MPI_DOUBLE`.
    Double(f64),
    /// `MPI_CHAR`, as many as the variable has, with an end.
    Text(String),
}

impl Datum {
    pub fn datatype(&self) -> Datatype {
        match self {
            Datum::Int(_) => MPI_INT,
            Datum::Unsigned(_) => MPI_UNSIGNED_LONG_LONG,
            Datum::Count(_) => MPI_COUNT,
            Datum::Double(_) => MPI_DOUBLE,
            Datum::Text(_) => MPI_CHAR,
        }
    }
}

/// What there is while the interface is initialized.
struct Tools {
    /// Calls of `MPI_T_init_thread` less calls of `MPI_T_finalize`.
    references: usize,
    cvars: Slots<cvar::Handle>,
    sessions: Slots<pvar::Session>,
    pvars: Slots<pvar::Handle>,
    registrations: Slots<event::Registration>,
}

static TOOLS: Mutex<Tools> = Mutex::new(Tools::new());
/// Highest thread level given out.
static LEVEL: AtomicI32 = AtomicI32::new(MPI_THREAD_SINGLE);

impl Tools {
    const fn new() -> Tools {
        Tools { references: 0, cvars: Slots::new(), sessions: Slots::new(), pvars: Slots::new(), registrations: Slots::new() }
    }
}

/// The state, if the interface is initialized.
fn tools() -> Result<MutexGuard<'static, Tools>> {
    let tools = TOOLS.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    match tools.references {
        0 => Err(Error::new(MPI_T_ERR_NOT_INITIALIZED, "MPI_T_init_thread has not been called")),
        _ => Ok(tools),
    }
}

/// Whether the interface is initialized.
///
/// # Errors
/// `MPI_T_ERR_NOT_INITIALIZED`.
pub fn check() -> Result<()> {
    tools().map(drop)
}

/// `MPI_T_init_thread`; gives the level provided. It is less than `required` only while MPI runs at a lower level itself, since its
/// counters are then read without a lock.
///
/// # Errors
/// `MPI_T_ERR_INVALID` when `required` is no thread level.
pub fn init(required: i32) -> Result<i32> {
    if ![MPI_THREAD_SINGLE, MPI_THREAD_FUNNELED, MPI_THREAD_SERIALIZED, MPI_THREAD_MULTIPLE].contains(&required) {
        return Err(Error::new(MPI_T_ERR_INVALID, format!("required = {required} is no thread level")));
    }
    let mut tools = TOOLS.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    tools.references += 1;
    let provided = match world::get() {
        Ok(world) if !world.engine().locking() && !world::finalized() => required.min(world.thread_level.load(Ordering::Relaxed)),
        _ => required,
    };
    LEVEL.fetch_max(provided, Ordering::Relaxed);
    Ok(provided)
}

/// `MPI_T_finalize`; the last one frees whatever is left.
///
/// # Errors
/// `MPI_T_ERR_NOT_INITIALIZED`.
pub fn finalize() -> Result<()> {
    let mut tools = tools()?;
    tools.references -= 1;
    if tools.references == 0 {
        *tools = Tools::new();
        trace::events::want(0);
    }
    Ok(())
}

/// Whether a tool may come from other threads than those that the program promised to MPI.
pub fn wants_threads() -> bool {
    LEVEL.load(Ordering::Relaxed) == MPI_THREAD_MULTIPLE
}

/// Calls back for events that have happened. At the end of every call, with nothing held.
#[inline(always)]
pub fn settle() {
    if is_unsettled() {
        event::deliver();
    }
}

/// Whether there are such events.
#[inline(always)]
pub fn is_unsettled() -> bool {
    trace::events::pending()
}

/// Item `index` of a table.
fn at<'a, T>(table: &'a [T], index: i32, what: &str) -> Result<&'a T> {
    usize::try_from(index)
        .ok()
        .and_then(|index| table.get(index))
        .ok_or_else(|| Error::new(MPI_T_ERR_INVALID_INDEX, format!("{what} {index} of {} does not exist", table.len())))
}

/// The index of the item that `is` accepts.
fn find<T>(table: &[T], what: &str, name: &[u8], is: impl Fn(&T) -> bool) -> Result<i32> {
    table
        .iter()
        .position(is)
        .map(|index| index as i32)
        .ok_or_else(|| Error::new(MPI_T_ERR_INVALID_NAME, format!("no {what} is called {:?}", String::from_utf8_lossy(name))))
}

fn bad_handle(what: &str, handle: usize) -> Box<Error> {
    Error::new(MPI_T_ERR_INVALID_HANDLE, format!("{handle:#x} is no {what}"))
}

fn out_of_handles<T>(_: T) -> Box<Error> {
    Error::new(MPI_T_ERR_OUT_OF_HANDLES, format!("{} handles exist already", crate::slots::SLOTS_MAX))
}

#[cfg(test)]
mod tests;
