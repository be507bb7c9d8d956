//! Events (MPI-5.0 §15.3.8): what this process notes, told to callbacks when the call ends during which it happened.
//!
//! Callbacks run where anything may be called, in the thread whose call ends, one at a time; so of the callbacks of a
//! registration the one with the least safety is called. Events wait in a bounded log ([`trace::events::LOG_MAX`]).

use super::{Datum, bad_handle, out_of_handles, tools};
use crate::consts::*;
use crate::error::{Error, Result};
use crate::handle::*;
use crate::info::Pairs;
use crate::slots::Slots;
use std::ffi::c_void;
use std::sync::{Mutex, MutexGuard, TryLockError};
use trace::events::{self, EVENT_KINDS, Event, EventKind};

/// One kind of event.
pub struct Type {
    pub kind: EventKind,
    pub name: &'static str,
    pub text: &'static str,
    pub category: &'static str,
    pub elements: &'static [Element],
}

/// One value of an event: an `MPI_INT`, or an `MPI_COUNT` where `wide`.
pub struct Element {
    pub name: &'static str,
    pub wide: bool,
    /// Where it lies in the event's data, bytes.
    pub place: isize,
}

const SENDER: [Element; 3] = [element("source_process", false, 0), element("tag", false, 4), element("bytes", true, 8)];
const RECEIVER: [Element; 3] = [element("destination_process", false, 0), element("tag", false, 4), element("bytes", true, 8)];

const fn element(name: &'static str, wide: bool, place: isize) -> Element {
    Element { name, wide, place }
}

/// Kinds of events, in order of their index.
pub static TYPES: [Type; EVENT_KINDS] = [
    Type {
        kind: EventKind::Unexpected,
        name: "message_unexpected",
        text: "A message came before its receive was posted: number of the sending process, tag, bytes.",
        category: "matching",
        elements: &SENDER,
    },
    Type {
        kind: EventKind::HeldBack,
        name: "send_held_back",
        text: "A send has to wait for room or credit: number of the receiving process, tag, bytes.",
        category: "flow_control",
        elements: &RECEIVER,
    },
    Type {
        kind: EventKind::HeldToHeader,
        name: "send_held_to_header",
        text: "A send went as a header because the receiver's credit was used up: number of the receiving process, tag, bytes.",
        category: "flow_control",
        elements: &RECEIVER,
    },
    Type {
        kind: EventKind::Slept,
        name: "slept",
        text: "A waiting call has slept in the kernel: duration in nanoseconds.",
        category: "waiting",
        elements: &[element("duration_ns", true, 0)],
    },
    Type {
        kind: EventKind::Refused,
        name: "packet_refused",
        text: "A packet was refused because it made no sense: number of the sending process.",
        category: "flow_control",
        elements: &[element("source_process", false, 0)],
    },
    Type {
        kind: EventKind::Announced,
        name: "receive_announced_used",
        text: "A sender used the announcement of a receive that came first: number of the sending process, tag, bytes.",
        category: "speculation",
        elements: &SENDER,
    },
];

/// The one source of all events: this process, in order, on a clock of nanoseconds.
pub const SOURCE_NAME: &str = "process";
pub const SOURCE_TEXT: &str = "What this process notes, in the order in which it happened.";
pub const TICKS_PER_SECOND: i64 = 1_000_000_000;

/// Safety levels, least first (MPI-5.0 §15.3.8).
const LEVELS: [TCbSafety; 4] = [MPI_T_CB_REQUIRE_NONE, MPI_T_CB_REQUIRE_MPI_RESTRICTED, MPI_T_CB_REQUIRE_THREAD_SAFE, MPI_T_CB_REQUIRE_ASYNC_SIGNAL_SAFE];

/// The wish of a tool to be told of one kind of events.
pub struct Registration {
    event: usize,
    hints: Pairs,
    callbacks: [Option<Callback>; LEVELS.len()],
    dropped: Option<TEventDroppedCbFunction>,
}

#[derive(Clone)]
struct Callback {
    function: TEventCbFunction,
    user_data: UserData,
    hints: Pairs,
    /// Events before this number happened before it was registered.
    since: u64,
}

/// The tool's own pointer, handed back as it came.
#[derive(Clone, Copy)]
struct UserData(*mut c_void);

// SAFETY: the library only hands it back to the tool, which gave it for callbacks in any thread.
unsafe impl Send for UserData {}

/// A registration that was freed, and whom to tell when no callback of it runs any more.
struct Freed {
    registration: TEventRegistration,
    user_data: UserData,
    function: TEventFreeCbFunction,
}

static INSTANCES: Mutex<Slots<Event>> = Mutex::new(Slots::new());
static FREED: Mutex<Vec<Freed>> = Mutex::new(Vec::new());
/// Held by the thread that calls back.
static DELIVERING: Mutex<()> = Mutex::new(());

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
}

/// # Errors
/// `MPI_T_ERR_NOT_INITIALIZED`, `MPI_T_ERR_INVALID_INDEX`.
pub fn find(index: i32) -> Result<&'static Type> {
    super::check()?;
    super::at(&TYPES, index, "event")
}

/// # Errors
/// `MPI_T_ERR_NOT_INITIALIZED`, `MPI_T_ERR_INVALID_NAME`.
pub fn index(name: &[u8]) -> Result<i32> {
    super::check()?;
    super::find(&TYPES, "event", name, |event| event.name.as_bytes() == name)
}

/// Checks the number of a source.
///
/// # Errors
/// `MPI_T_ERR_NOT_INITIALIZED`, `MPI_T_ERR_INVALID_INDEX`.
pub fn check_source(index: i32) -> Result<()> {
    super::check()?;
    super::at(&[()], index, "source").map(|_| ())
}

/// Time on the clock of the source, ns.
pub fn timestamp_ns() -> i64 {
    trace::now_ns() as i64
}

/// # Errors
/// `MPI_T_ERR_NOT_INITIALIZED`, `MPI_T_ERR_INVALID_INDEX`, `MPI_T_ERR_OUT_OF_HANDLES`.
pub fn register(index: i32, hints: Pairs) -> Result<TEventRegistration> {
    let mut tools = tools()?;
    super::at(&TYPES, index, "event")?;
    let new = Registration { event: index as usize, hints, callbacks: [const { None }; LEVELS.len()], dropped: None };
    tools.registrations.insert(new).map(TEventRegistration).map_err(out_of_handles)
}

/// Reads or changes a registration.
fn with<T>(handle: TEventRegistration, act: impl FnOnce(&mut Registration) -> Result<T>) -> Result<T> {
    let mut tools = tools()?;
    let found = tools.registrations.get_mut(handle.0).ok_or_else(|| bad_handle("event registration", handle.0))?;
    act(found)
}

/// # Errors
/// `MPI_T_ERR_NOT_INITIALIZED`, `MPI_T_ERR_INVALID_HANDLE`.
pub fn hints(handle: TEventRegistration) -> Result<Pairs> {
    with(handle, |found| Ok(found.hints.clone()))
}

/// # Errors
/// As [`hints`].
pub fn set_hints(handle: TEventRegistration, hints: Pairs) -> Result<()> {
    with(handle, |found| {
        found.hints = hints;
        Ok(())
    })
}

fn level(safety: TCbSafety) -> Result<usize> {
    LEVELS.iter().position(|level| *level == safety).ok_or_else(|| Error::new(MPI_T_ERR_INVALID, format!("cb_safety = {safety} is no callback safety level")))
}

/// Registers a callback for a safety level, or takes it away.
///
/// # Errors
/// As [`hints`]; `MPI_T_ERR_INVALID` for an unknown safety level.
pub fn set_callback(handle: TEventRegistration, safety: TCbSafety, hints: Pairs, user_data: *mut c_void, function: Option<TEventCbFunction>) -> Result<()> {
    let level = level(safety)?;
    let since = events::next_number();
    with(handle, |found| {
        found.callbacks[level] = function.map(|function| Callback { function, user_data: UserData(user_data), hints, since });
        Ok(())
    })?;
    want()
}

/// The hints of the callback of a safety level, which `change` may replace.
///
/// # Errors
/// As [`set_callback`]; `MPI_T_ERR_INVALID` where there is no callback.
pub fn callback_hints(handle: TEventRegistration, safety: TCbSafety, change: Option<Pairs>) -> Result<Pairs> {
    let level = level(safety)?;
    with(handle, |found| {
        let none = || Error::new(MPI_T_ERR_INVALID, format!("no callback is registered for safety level {safety}"));
        let callback = found.callbacks[level].as_mut().ok_or_else(none)?;
        if let Some(new) = change {
            callback.hints = new;
        }
        Ok(callback.hints.clone())
    })
}

/// # Errors
/// As [`hints`].
pub fn set_dropped(handle: TEventRegistration, function: Option<TEventDroppedCbFunction>) -> Result<()> {
    with(handle, |found| {
        found.dropped = function;
        Ok(())
    })
}

/// Frees a registration; `function` is called when no callback of it runs any more.
///
/// # Errors
/// As [`hints`].
pub fn free(handle: TEventRegistration, user_data: *mut c_void, function: Option<TEventFreeCbFunction>) -> Result<()> {
    tools()?.registrations.remove(handle.0).ok_or_else(|| bad_handle("event registration", handle.0))?;
    want()?;
    if let Some(function) = function {
        lock(&FREED).push(Freed { registration: handle, user_data: UserData(user_data), function });
    }
    tell_freed();
    Ok(())
}

/// Asks for the kinds of events that have a callback.
fn want() -> Result<()> {
    let tools = tools()?;
    let kinds = tools.registrations.iter().filter(|(_, r)| r.callbacks.iter().any(Option::is_some));
    events::want(kinds.fold(0, |bits, (_, r)| bits | 1 << TYPES[r.event].kind as u32));
    Ok(())
}

/// The registrations that are told of a kind of event, each with its callback and what to do about dropped events.
fn told(kind: EventKind) -> Vec<TEventRegistration> {
    let Ok(tools) = tools() else { return Vec::new() };
    let of_kind = tools.registrations.iter().filter(|(_, r)| TYPES[r.event].kind == kind);
    of_kind.map(|(handle, _)| TEventRegistration(handle)).collect()
}

/// The callback with the least safety.
fn callback(found: &Registration) -> Option<(TCbSafety, Callback)> {
    found.callbacks.iter().zip(LEVELS).find_map(|(callback, level)| callback.clone().map(|c| (level, c)))
}

/// Calls back for what has happened so far. Nothing happens where another thread, or a caller of this one, does it already.
#[cold]
pub fn deliver() {
    let Some(one) = try_deliver() else { return };
    let (events, dropped) = events::take();
    for event in events {
        for registration in told(event.kind) {
            call(registration, event);
        }
    }
    for (kind, count) in TYPES.iter().zip(dropped).filter(|(_, count)| *count > 0) {
        for registration in told(kind.kind) {
            let Ok((Some(function), at)) = with(registration, |found| Ok((found.dropped, callback(found)))) else {
                continue;
            };
            let (level, user_data) = at.map_or((MPI_T_CB_REQUIRE_NONE, std::ptr::null_mut()), |(level, c)| (level, c.user_data.0));
            // SAFETY: the tool's function, called as MPI-5.0 §15.3.8 says.
            unsafe { function(count as i64, registration, 0, level, user_data) };
        }
    }
    drop(one);
    tell_freed();
}

fn try_deliver() -> Option<MutexGuard<'static, ()>> {
    match DELIVERING.try_lock() {
        Ok(guard) => Some(guard),
        Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
        Err(TryLockError::WouldBlock) => None,
    }
}

fn call(registration: TEventRegistration, event: Event) {
    let Ok(Some((level, callback))) = with(registration, |found| Ok(callback(found))) else { return };
    if event.number < callback.since {
        return;
    }
    let Ok(instance) = lock(&INSTANCES).insert(event) else { return };
    // SAFETY: the tool's function, called as MPI-5.0 §15.3.8 says; nothing of the library is held.
    unsafe { (callback.function)(TEventInstance(instance), registration, level, callback.user_data.0) };
    lock(&INSTANCES).remove(instance);
}

/// Tells of freed registrations, unless callbacks run: then whoever runs them does it after.
fn tell_freed() {
    loop {
        if lock(&FREED).is_empty() {
            return;
        }
        let Some(_one) = try_deliver() else { return };
        let freed = std::mem::take(&mut *lock(&FREED));
        for Freed { registration, user_data, function } in freed {
            // SAFETY: the tool's function, called as MPI-5.0 §15.3.8 says.
            unsafe { function(registration, MPI_T_CB_REQUIRE_NONE, user_data.0) };
        }
    }
}

/// An event while its callback runs.
///
/// # Errors
/// `MPI_T_ERR_NOT_INITIALIZED`, `MPI_T_ERR_INVALID_HANDLE`.
pub fn instance(handle: TEventInstance) -> Result<Event> {
    super::check()?;
    lock(&INSTANCES).get(handle.0).copied().ok_or_else(|| bad_handle("event whose callback runs", handle.0))
}

/// The kind of an event.
pub fn type_of(event: &Event) -> &'static Type {
    &TYPES[event.kind as usize]
}

/// Element `index` of an event.
///
/// # Errors
/// `MPI_T_ERR_INVALID_INDEX`.
pub fn value(event: &Event, index: i32) -> Result<Datum> {
    let element = super::at(type_of(event).elements, index, "element")?;
    let value = event.values[index as usize];
    Ok(if element.wide { Datum::Count(value) } else { Datum::Int(value as i32) })
}
