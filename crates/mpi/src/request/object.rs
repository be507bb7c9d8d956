//! Handles of requests, and those that are objects in a table.

use crate::comm::{Comm, Kept};
use crate::consts::*;
use crate::error::{Error, Result};
use crate::handle::{self, Status};
use crate::p2p::{Mode, Receiving, Sending};
use crate::partitioned::Partitioned;
use crate::table::Table;
use crate::world::World;
use engine::order::{Level, Ordered, before_callback};
use engine::{Cell, Engine, Line, RequestId, VCIS};
use std::ffi::c_void;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

/// A request that is complete: a send that left at once.
pub const DONE: handle::Request = handle::Request(0x1000_0001);
/// A receive from `MPI_PROC_NULL`, complete.
pub const DONE_PROC_NULL: handle::Request = handle::Request(0x1000_0002);

/// Plain requests: this bit, 5 bits of generation, 2 of the engine that it goes through, 22 of its place there.
const PLAIN: usize = 1 << 29;
const PLACE_BITS: u32 = 22;
pub(super) const GENERATION_SHIFT: u32 = 24;
pub(super) const GENERATION_MASK: u32 = 0x1f;
const _: () = assert!(VCIS <= 1 << (GENERATION_SHIFT - PLACE_BITS));
/// Objects of the table carry this bit.
pub(super) const OBJECT: usize = 1 << 30;

/// The handle of a request of the engine.
#[inline]
pub fn handle_of(id: RequestId) -> Result<handle::Request> {
    let (place, generation) = id.parts();
    if place >= 1 << PLACE_BITS {
        return Err(too_many());
    }
    let vci = (id.vci() as usize) << PLACE_BITS;
    Ok(handle::Request(PLAIN | ((generation & GENERATION_MASK) as usize) << GENERATION_SHIFT | vci | place as usize))
}

/// The engine that a request goes through. `None`: it needs none, or is none.
#[inline]
pub(super) fn vci_of(request: handle::Request) -> Option<u8> {
    if request.0 >> 29 == 1 {
        return Some(vci_of_plain(request));
    }
    // What is no object would be told with a message.
    if request.0 & OBJECT == 0 {
        return None;
    }
    object_here(request).ok().and_then(|object| object.vci)
}

#[inline(always)]
fn vci_of_plain(request: handle::Request) -> u8 {
    (request.0 >> PLACE_BITS) as u8 & ((1 << (GENERATION_SHIFT - PLACE_BITS)) - 1)
}

/// The engine to enter for a request.
#[inline(always)]
pub(super) fn cell_of(world: &'static World, request: handle::Request) -> &'static Cell<Engine> {
    if request.0 >> 29 == 1 { world.engines.of(vci_of_plain(request)) } else { cell_otherwise(world, request) }
}

fn cell_otherwise(world: &'static World, request: handle::Request) -> &'static Cell<Engine> {
    // Looking an object up for its VCI is not needed where there is only one.
    if !world.engines.several() {
        return world.engine();
    }
    world.engines.of(vci_of(request).unwrap_or(0))
}

#[cold]
fn too_many() -> Box<Error> {
    Error::new(MPI_ERR_OTHER, format!("more than {} requests are active", 1 << PLACE_BITS))
}

/// The place of a request of the engine in its table.
#[inline(always)]
pub(super) fn place_of(request: handle::Request) -> u32 {
    (request.0 & ((1 << PLACE_BITS) - 1)) as u32
}

#[inline]
pub(super) fn plain(engine: &mut Engine, request: handle::Request) -> Option<RequestId> {
    if request.0 >> 29 != 1 {
        return None;
    }
    engine.named(place_of(request), (request.0 >> GENERATION_SHIFT) as u32 & GENERATION_MASK, GENERATION_MASK)
}

/// A future that belongs to a request: a nonblocking collective, or another operation of several steps.
pub enum Task {
    WithStatus(Pin<Box<dyn Future<Output = Result<Status>> + Send>>),
    /// Its status is empty.
    Collective(Pin<Box<dyn Future<Output = Result<()>> + Send>>),
    /// The same, of a collective that waits for flags in memory.
    Flagged(Box<dyn Flagged>),
}

/// An operation of several steps that waits for flags that other processes set: nothing completes in the engine when they do.
pub trait Flagged: Send {
    /// Takes the steps that it can take now; its result once it is over. Not with the engine held.
    fn step(&mut self) -> Option<Result<()>>;

    /// Whether it can take a step, by the flags that it waits for and what `engine` knows of failures.
    fn ready(&self, engine: &Engine) -> bool;

    /// Where whoever sets such a flag looks for sleepers, and this process' number there.
    fn flag(&self) -> Option<(&'static Line, usize)>;
}

impl Task {
    /// Futures of collectives are large: this moves one once.
    #[inline]
    pub fn collective(operated: impl Future<Output = Result<()>> + Send + 'static) -> Task {
        Task::Collective(Box::pin(operated))
    }
}

/// Starts a persistent operation anew.
pub type Starter = Box<dyn Fn() -> Result<Task> + Send + Sync>;

/// A request that is more than one of the engine's.
pub(super) struct Object {
    pub(super) comm: Option<handle::Comm>,
    /// The engine that it goes through, if it goes through one.
    pub(super) vci: Option<u8>,
    pub(super) state: Ordered<State>,
    /// The task was asked to go on while a thread polled it.
    pub(super) again: std::sync::atomic::AtomicBool,
    pub(super) kind: Kind,
}

pub(super) enum Kind {
    /// The communicator stays for as long as the request may be started, whatever becomes of its handle.
    Send {
        comm: Kept,
        sending: Sending,
        mode: Mode,
    },
    Receive {
        comm: Kept,
        receiving: Receiving,
    },
    Generalized(Generalized),
    /// One operation of several steps.
    Task,
    /// The same, startable again and again.
    PersistentTask(Starter),
    Partitioned(Arc<Partitioned>),
}

pub(super) enum State {
    Inactive,
    Plain(RequestId),
    /// A send that was complete when it was started.
    Sent,
    /// A task that is under way. It is taken out while it is polled.
    Running(Task),
    Polled,
    /// A generalized request that nobody will ask for, not complete.
    Freed,
    /// Under way: its kind knows how far.
    Started,
    Done(Status, Option<Box<Error>>),
}

/// The callbacks of a generalized request.
pub struct Generalized {
    pub query: Option<handle::GrequestQueryFunction>,
    pub free: Option<handle::GrequestFreeFunction>,
    pub cancel: Option<handle::GrequestCancelFunction>,
    pub extra_state: *mut c_void,
}

// SAFETY: the program gave the callbacks and their state to the library for any thread to use (MPI-5.0 §13.2).
unsafe impl Send for Generalized {}
// SAFETY: as above.
unsafe impl Sync for Generalized {}

impl Generalized {
    /// Calls the program's free function.
    pub(super) fn release(&self) -> Result<()> {
        before_callback();
        // SAFETY: the program's callback, called as MPI-5.0 §13.2 says.
        match self.free.map_or(MPI_SUCCESS, |free| unsafe { free(self.extra_state) }) {
            MPI_SUCCESS => Ok(()),
            code => Err(Error::new(code, format!("the free function of a generalized request returned {code}"))),
        }
    }

    /// Calls the program's cancel function; `complete` says whether the request is complete already.
    pub(super) fn ask_to_cancel(&self, complete: bool) -> Result<()> {
        before_callback();
        // SAFETY: as above.
        match self.cancel.map_or(MPI_SUCCESS, |cancel| unsafe { cancel(self.extra_state, complete as i32) }) {
            MPI_SUCCESS => Ok(()),
            code => Err(Error::new(code, format!("the cancel function of a generalized request returned {code}"))),
        }
    }
}

pub(super) static OBJECTS: Table<Object> = Table::new();

/// Gives an object its handle. It is made where it stays.
#[inline(always)]
pub(super) fn publish(make: impl FnOnce() -> Object) -> Result<handle::Request> {
    OBJECTS.insert_made(make).map(handle::Request).ok_or_else(too_many)
}

impl Object {
    #[inline(always)]
    pub(super) fn new(comm: Option<handle::Comm>, vci: Option<u8>, kind: Kind, state: State) -> Object {
        let again = std::sync::atomic::AtomicBool::new(false);
        Object { comm, vci, kind, state: Ordered::new(Level::Request, state), again }
    }

    /// Of a communicator and the engine that its messages go through.
    #[inline(always)]
    pub(super) fn on(comm: &Comm, kind: Kind, state: State) -> Object {
        Object::new(Some(comm.handle()), Some(comm.context.vci()), kind, state)
    }

    /// As [`publish`], where others share the object.
    pub(super) fn publish_shared(self: Arc<Object>) -> Result<handle::Request> {
        OBJECTS.insert_shared(self).map(handle::Request).ok_or_else(too_many)
    }

    /// What the object is in from now on. Each state is written where it is named: one that is put together first and moved then would be read before it has
    /// left the store buffer, which takes until the line of a message that was sent just before has come.
    #[inline(always)]
    pub(super) fn becomes(&self, state: State) {
        *self.state.lock() = state;
    }

    pub(super) fn persistent(&self) -> bool {
        matches!(self.kind, Kind::Send { .. } | Kind::Receive { .. } | Kind::PersistentTask(_) | Kind::Partitioned(_))
    }
}

/// The object behind a request, for as long as the call lasts that was given the request. No lock and no count: every `MPI_Start` and `MPI_Wait` does it.
#[inline]
pub(super) fn object_here(request: handle::Request) -> Result<&'static Object> {
    // SAFETY: a program that completes or frees a request in one thread while another thread's call uses it is erroneous (MPI-5.0 §3.7.5, §11.6.2); the
    // library itself frees it only in such a call, and uses it no more after that.
    let found = if request.0 & OBJECT != 0 { unsafe { OBJECTS.get(request.0) } } else { None };
    found.ok_or_else(|| unknown(request))
}

pub(super) fn object(request: handle::Request) -> Result<Arc<Object>> {
    let found = if request.0 & OBJECT != 0 { OBJECTS.share(request.0) } else { None };
    found.ok_or_else(|| unknown(request))
}

#[cold]
fn unknown(request: handle::Request) -> Box<Error> {
    match request {
        MPI_REQUEST_NULL => Error::new(MPI_ERR_REQUEST, "the request is MPI_REQUEST_NULL"),
        _ => Error::new(MPI_ERR_REQUEST, format!("{:#x} is no request", request.0)),
    }
}
