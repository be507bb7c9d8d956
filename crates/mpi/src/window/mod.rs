//! One-sided communication (MPI-5.0 chapter 12).
//!
//! [`create`] makes a [`Window`]; [`transfer`] puts and gets; [`accumulate`] changes elements; [`epoch`] synchronizes. Where the two processes share the
//! window's memory, or may copy to and from each other, the origin does all by itself. Otherwise it asks the target by [`message`]s, which [`service`]
//! answers there whenever that process makes progress.

pub mod accumulate;
mod call;
pub mod create;
mod elements;
pub mod epoch;
pub mod exposure;
pub mod hints;
mod lock;
mod memory;
mod message;
mod request_lines;
mod runs;
mod service;
mod short;
pub mod target;
mod ticket;
pub mod transfer;

use crate::comm::Comm;
use crate::consts::*;
use crate::error::{Error, Result};
use crate::errors::{self, Handler};
use crate::handle::{self, Errhandler, Win};
use crate::request;
use crate::table::Table;
use crate::world::{self, fault};
use engine::order::before_callback;
use engine::{Cell, ContextIndex, Doing, Engine};
use memory::Memory;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

static WINDOWS: Table<Window> = Table::new();

/// A window, seen from this process.
pub struct Window {
    handle: AtomicUsize,
    /// A duplicate of the communicator that the window was made on.
    comm: &'static Comm,
    pub flavor: i32,
    /// The attributes of this process' part; their places are what `MPI_Win_get_attr` gives.
    pub base: usize,
    pub size_bytes: isize,
    pub unit_bytes: i32,
    memory: Memory,
    /// Elements and locks are changed by whoever wants to: all ranks share the lines, and the memory where `elements` is set.
    locks_shared: bool,
    elements_shared: bool,
    /// Where requests of other ranks, and answers to this one's, are matched; in the first engine.
    messages: Option<message::Side>,
    /// Short calls may be done by targets that wait in MPI.
    has_request_lines: bool,
    epochs: epoch::Epochs,
    serving: Mutex<service::Serving>,
    /// Requests or answers of others wait in `serving`; changed with the first engine held.
    unfinished: AtomicBool,
    /// Begin and bytes of what a dynamic window has.
    attached: Mutex<BTreeMap<usize, usize>>,
    errhandler: AtomicUsize,
    name: Mutex<Vec<u8>>,
    hints: Mutex<hints::Hints>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The window of a handle, for as long as the call lasts that was given the handle.
///
/// # Errors
/// `MPI_ERR_WIN`.
#[inline]
pub fn find(win: Win) -> Result<&'static Window> {
    // SAFETY: a program that frees a window in one thread while another thread's call uses it is erroneous (MPI-5.0 §12.2.5).
    unsafe { WINDOWS.get(win.0) }.ok_or_else(|| unknown(win))
}

#[cold]
fn unknown(win: Win) -> Box<Error> {
    match win {
        MPI_WIN_NULL => Error::new(MPI_ERR_WIN, "the window is MPI_WIN_NULL"),
        _ => Error::new(MPI_ERR_WIN, format!("{:#x} is no window", win.0)),
    }
}

impl Window {
    pub fn handle(&self) -> Win {
        Win(self.handle.load(Ordering::Relaxed))
    }

    /// The window's communicator.
    pub fn comm(&self) -> &'static Comm {
        self.comm
    }

    #[inline]
    fn ranks(&self) -> u32 {
        self.comm.size()
    }

    #[inline]
    fn dynamic(&self) -> bool {
        self.flavor == MPI_WIN_FLAVOR_DYNAMIC
    }

    #[inline]
    fn size_of(&self, rank: u32) -> u64 {
        self.memory.part(rank).size
    }

    /// Drives progress until `ready` says something, or a process of the window has failed.
    fn wait<T>(&self, cell: &Cell<Engine>, function: &'static str, mut ready: impl FnMut(&mut Engine) -> Option<Result<T>>) -> Result<T> {
        request::wait_for(world::get()?, cell, Doing::call(function), |engine| ready(engine).or_else(|| self.failed(engine).map(Err)))?
    }

    /// Why nobody can rely on this window any more: a process of it has failed.
    fn failed(&self, engine: &Engine) -> Option<Box<Error>> {
        if !engine.has_failures() {
            return None;
        }
        engine.lost_among(|process| self.comm.group.rank_of(process).is_some()).map(fault)
    }

    pub fn errhandler(&self) -> Result<Errhandler> {
        let handler = Errhandler(self.errhandler.load(Ordering::Relaxed));
        errors::retain_handler(handler)?;
        Ok(handler)
    }

    /// `MPI_Win_set_errhandler`.
    ///
    /// # Errors
    /// `MPI_ERR_ERRHANDLER` when the handler is none of windows.
    pub fn set_errhandler(&self, new: Errhandler) -> Result<()> {
        if let Handler::Comm(_) | Handler::File(_) | Handler::Session(_) = errors::handler(new)? {
            return Err(Error::new(MPI_ERR_ERRHANDLER, "the error handler is not one of windows"));
        }
        errors::retain_handler(new)?;
        errors::release_handler(Errhandler(self.errhandler.swap(new.0, Ordering::Relaxed)))
    }

    pub fn name(&self) -> Vec<u8> {
        lock(&self.name).clone()
    }

    /// At most `MPI_MAX_OBJECT_NAME - 1` bytes are kept.
    pub fn set_name(&self, name: &[u8]) {
        *lock(&self.name) = name[..name.len().min(MPI_MAX_OBJECT_NAME - 1)].to_vec();
    }
}

/// Raises `error` of `function` on a window, or where no object applies, and gives the code to return (MPI-5.0 §9.3).
#[cold]
pub fn raise(mut win: Win, function: &str, error: &Error) -> i32 {
    let Ok(window) = find(win) else { return world::raise(None, function, error) };
    errors::remember(error.class, &format!("{function}: {}", error.detail));
    let mut code = error.class;
    before_callback();
    match errors::handler(Errhandler(window.errhandler.load(Ordering::Relaxed))) {
        Ok(Handler::Return) => {}
        // SAFETY: the user's handler, called as the standard says.
        Ok(Handler::Win(user)) => unsafe { user(&mut win, &mut code) },
        _ => world::abort(code, &format!("rank {}: {function} failed: {}: {}", world::me(), errors::message(error.class), error.detail)),
    }
    error.class
}

/// `MPI_Win_get_group`.
///
/// # Errors
/// `MPI_ERR_WIN`.
pub fn group(win: Win) -> Result<handle::Group> {
    crate::group::publish(find(win)?.comm.group.clone())
}

/// The place of a predefined attribute of a window (MPI-5.0 §12.2.6); `None` for other keys.
pub fn attribute(window: &'static Window, key: i32) -> Option<usize> {
    static MODEL: i32 = MPI_WIN_UNIFIED;
    Some(match key {
        // The address itself.
        MPI_WIN_BASE => window.base,
        MPI_WIN_SIZE => &raw const window.size_bytes as usize,
        MPI_WIN_DISP_UNIT => &raw const window.unit_bytes as usize,
        MPI_WIN_CREATE_FLAVOR => &raw const window.flavor as usize,
        MPI_WIN_MODEL => &raw const MODEL as usize,
        _ => return None,
    })
}

/// Where messages of a window are matched, if they are.
fn index_of(window: &Window) -> Option<ContextIndex> {
    window.messages.as_ref().map(|side| side.index)
}

/// Windows of this process that others may ask something of.
static SERVED: engine::order::Ordered<Vec<Arc<Window>>> = engine::order::Ordered::new(engine::order::Level::Table, Vec::new());
