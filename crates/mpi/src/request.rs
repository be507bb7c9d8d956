//! Requests (MPI-5.0 §3.7, §3.9) and generalized requests (§13.2).
//!
//! A handle of a plain receive or send names a request of the engine: no object is made. Persistent, generalized and other
//! requests are objects in a table. Sends that are complete when they return share one handle.

use crate::comm::{self, Comm};
use crate::consts::*;
use crate::error::{Error, Result};
use crate::handle::{self, Status};
use crate::mismatch;
use crate::p2p::{self, Mode, Receiving, Sending, check_outcome, status_of};
use crate::partitioned::Partitioned;
use crate::slots::Slots;
use crate::table::Table;
use crate::world::{self, World, fault};
use engine::order::{Level, Ordered, before_callback};
use engine::{Cell, Doing, Engine, Glances, Guard, Heed, RequestId, VCIS, Vcis};
use std::ffi::c_void;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

/// A request that is complete: a send that left at once.
pub const DONE: handle::Request = handle::Request(0x1000_0001);
/// A receive from `MPI_PROC_NULL`, complete.
pub const DONE_PROC_NULL: handle::Request = handle::Request(0x1000_0002);

/// Plain requests: this bit, 5 bits of generation, 2 of the engine that it goes through, 22 of its place there.
const PLAIN: usize = 1 << 29;
const PLACE_BITS: u32 = 22;
const GENERATION_SHIFT: u32 = 24;
const GENERATION_MASK: u32 = 0x1f;
const _: () = assert!(VCIS <= 1 << (GENERATION_SHIFT - PLACE_BITS));
/// Objects of the table carry this bit.
const OBJECT: usize = 1 << 30;

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
fn vci_of(request: handle::Request) -> Option<u8> {
    if request.0 >> 29 == 1 {
        return Some((request.0 >> PLACE_BITS) as u8 & ((1 << (GENERATION_SHIFT - PLACE_BITS)) - 1));
    }
    object_here(request).ok().and_then(|object| object.vci)
}

/// The engine to enter for a request.
#[inline]
fn cell_of(world: &'static World, request: handle::Request) -> &'static Cell<Engine> {
    // Looking an object up for its VCI is not needed where there is only one.
    if request.0 & OBJECT != 0 && !world.engines.several() {
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
fn place_of(request: handle::Request) -> u32 {
    (request.0 & ((1 << PLACE_BITS) - 1)) as u32
}

#[inline]
fn plain(engine: &mut Engine, request: handle::Request) -> Option<RequestId> {
    if request.0 >> 29 != 1 {
        return None;
    }
    engine.named(place_of(request), (request.0 >> GENERATION_SHIFT) as u32 & GENERATION_MASK, GENERATION_MASK)
}

/// A future that belongs to a request: a nonblocking collective, or another operation of several steps.
pub type Task = Pin<Box<dyn Future<Output = Result<Status>> + Send>>;

/// Starts a persistent operation anew.
pub type Starter = Box<dyn Fn() -> Result<Task> + Send + Sync>;

/// A request that is more than one of the engine's.
pub struct Object {
    comm: Option<handle::Comm>,
    /// The engine that it goes through, if it goes through one.
    vci: Option<u8>,
    state: Ordered<State>,
    /// The task was asked to go on while a thread polled it.
    again: std::sync::atomic::AtomicBool,
    kind: Kind,
}

enum Kind {
    /// The communicator stays for as long as the request may be started, whatever becomes of its handle.
    Send {
        comm: Arc<Comm>,
        sending: Sending,
        mode: Mode,
    },
    Receive {
        comm: Arc<Comm>,
        receiving: Receiving,
    },
    Generalized(Generalized),
    /// One operation of several steps.
    Task,
    /// The same, startable again and again.
    PersistentTask(Starter),
    Partitioned(Arc<Partitioned>),
}

enum State {
    Inactive,
    Plain(RequestId),
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
    fn release(&self) -> Result<()> {
        before_callback();
        // SAFETY: the program's callback, called as MPI-5.0 §13.2 says.
        match self.free.map_or(MPI_SUCCESS, |free| unsafe { free(self.extra_state) }) {
            MPI_SUCCESS => Ok(()),
            code => Err(Error::new(code, format!("the free function of a generalized request returned {code}"))),
        }
    }

    /// Calls the program's cancel function; `complete` says whether the request is complete already.
    fn ask_to_cancel(&self, complete: bool) -> Result<()> {
        before_callback();
        // SAFETY: as above.
        match self.cancel.map_or(MPI_SUCCESS, |cancel| unsafe { cancel(self.extra_state, complete as i32) }) {
            MPI_SUCCESS => Ok(()),
            code => Err(Error::new(code, format!("the cancel function of a generalized request returned {code}"))),
        }
    }
}

static OBJECTS: Table<Object> = Table::new();
/// Objects with a running task: progress looks after them.
static TASKS: Ordered<Vec<Arc<Object>>> = Ordered::new(Level::Table, Vec::new());
static TASK_COUNT: std::sync::atomic::AtomicUsize = std::sync::atomic::AtomicUsize::new(0);
static MESSAGES: Ordered<Slots<(handle::Comm, engine::Message)>> = Ordered::new(Level::Table, Slots::new());

impl Object {
    fn publish(comm: Option<handle::Comm>, kind: Kind, state: State) -> Result<handle::Request> {
        let vci = comm.and_then(|handle| comm::find(handle).ok()).map(|comm| comm.context.vci());
        let again = std::sync::atomic::AtomicBool::new(false);
        let object = Arc::new(Object { comm, vci, kind, state: Ordered::new(Level::Request, state), again });
        OBJECTS.insert(object).map(handle::Request).map_err(|_| too_many())
    }

    fn persistent(&self) -> bool {
        matches!(self.kind, Kind::Send { .. } | Kind::Receive { .. } | Kind::PersistentTask(_) | Kind::Partitioned(_))
    }
}

/// The object behind a request, for as long as the call lasts that was given the request. No lock and no count: every `MPI_Start` and `MPI_Wait` does it.
#[inline]
fn object_here(request: handle::Request) -> Result<&'static Object> {
    // SAFETY: a program that completes or frees a request in one thread while another thread's call uses it is erroneous (MPI-5.0 §3.7.5, §11.6.2); the
    // library itself frees it only in such a call, and uses it no more after that.
    let found = if request.0 & OBJECT != 0 { unsafe { OBJECTS.get(request.0) } } else { None };
    found.ok_or_else(|| unknown(request))
}

fn object(request: handle::Request) -> Result<Arc<Object>> {
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

/// `MPI_Send_init` and its modes.
pub fn send_init(comm: &'static Comm, sending: Sending, mode: Mode) -> Result<handle::Request> {
    Object::publish(Some(comm.handle()), Kind::Send { comm: comm.share(), sending, mode }, State::Inactive)
}

/// `MPI_Recv_init`.
pub fn recv_init(comm: &'static Comm, receiving: Receiving) -> Result<handle::Request> {
    Object::publish(Some(comm.handle()), Kind::Receive { comm: comm.share(), receiving }, State::Inactive)
}

/// `MPI_Psend_init` and `MPI_Precv_init`.
pub fn partitioned_init(partitioned: Partitioned) -> Result<handle::Request> {
    Object::publish(Some(partitioned.comm.handle()), Kind::Partitioned(Arc::new(partitioned)), State::Inactive)
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
    Object::publish(None, Kind::Generalized(callbacks), State::Polled)
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

/// A request for an operation of several steps; its first steps are taken at once.
pub fn start_task(comm: Option<handle::Comm>, task: Task) -> Result<handle::Request> {
    let request = Object::publish(comm, Kind::Task, State::Polled)?;
    let object = object(request)?;
    run(&object, task);
    Ok(request)
}

/// A persistent request for an operation of several steps.
pub fn task_init(comm: Option<handle::Comm>, starter: Starter) -> Result<handle::Request> {
    Object::publish(comm, Kind::PersistentTask(starter), State::Inactive)
}

fn run(object: &Arc<Object>, mut task: Task) {
    match step(&mut task) {
        Some(result) => finish(object, result),
        None => {
            *object.state.lock() = State::Running(task);
            TASKS.lock().push(object.clone());
            TASK_COUNT.fetch_add(1, std::sync::atomic::Ordering::Release);
        }
    }
}

fn step(task: &mut Task) -> Option<Result<Status>> {
    match task.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(result) => Some(result),
        Poll::Pending => None,
    }
}

fn finish(object: &Object, result: Result<Status>) {
    *object.state.lock() = match result {
        Ok(status) => State::Done(status, None),
        Err(error) => State::Done(Status { error: error.class, ..Status::EMPTY }, Some(error)),
    };
}

/// Whether operations of several steps are under way.
#[inline]
pub fn tasks_running() -> bool {
    TASK_COUNT.load(std::sync::atomic::Ordering::Acquire) > 0
}

/// Whether an operation of several steps is under way on a communicator.
pub fn task_of(comm: handle::Comm) -> bool {
    tasks_running() && TASKS.lock().iter().any(|object| object.comm == Some(comm))
}

/// Takes the steps that operations of several steps can take now. Never called with the engine held.
pub fn poll_tasks() -> bool {
    if !tasks_running() {
        return false;
    }
    let objects: Vec<Arc<Object>> = TASKS.lock().clone();
    let mut any = false;
    for object in objects {
        let mut state = object.state.lock();
        let mut task = match std::mem::replace(&mut *state, State::Polled) {
            State::Running(task) => task,
            other => {
                if matches!(other, State::Polled) {
                    // Another thread has it, and may have looked before what was just seen.
                    object.again.store(true, std::sync::atomic::Ordering::Relaxed);
                }
                *state = other;
                continue;
            }
        };
        drop(state);
        loop {
            if let Some(result) = step(&mut task) {
                finish(&object, result);
                let mut tasks = TASKS.lock();
                if let Some(at) = tasks.iter().position(|t| Arc::ptr_eq(t, &object)) {
                    tasks.swap_remove(at);
                    TASK_COUNT.fetch_sub(1, std::sync::atomic::Ordering::Release);
                }
                any = true;
                break;
            }
            let mut state = object.state.lock();
            if !object.again.swap(false, std::sync::atomic::Ordering::Relaxed) {
                *state = State::Running(task);
                break;
            }
        }
    }
    if any && let Ok(world) = world::get() {
        world.engine().lock().completed();
    }
    any
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
    let (state, result) = match start_object(request, object) {
        Ok(None) => return Ok(()),
        Ok(Some(state)) => (state, Ok(())),
        Err(error) => (State::Inactive, Err(error)),
    };
    *object.state.lock() = state;
    result
}

/// Starts a persistent operation; gives what its request is in from now on, unless it knows that itself.
fn start_object(request: handle::Request, object: &'static Object) -> Result<Option<State>> {
    let done = |status| Ok(Some(State::Done(status, None)));
    match &object.kind {
        Kind::Partitioned(partitioned) => partitioned.start().map(|()| None),
        Kind::Send { comm, sending, mode: Mode::Buffered } => {
            crate::buffered::send(comm, sending)?;
            done(Status::EMPTY)
        }
        Kind::Send { comm, sending, mode } => match p2p::start_send(&mut comm.engine(), comm, sending, *mode)? {
            Some(id) => Ok(Some(State::Plain(id))),
            None => done(Status::EMPTY),
        },
        Kind::Receive { comm, receiving } => match receiving.pattern {
            Some(pattern) => Ok(Some(State::Plain(p2p::start_receive(&mut comm.engine(), comm, pattern, &receiving.buffer)?))),
            None => done(Status::PROC_NULL),
        },
        Kind::PersistentTask(starter) => {
            run(&self::object(request)?, starter()?);
            Ok(None)
        }
        Kind::Generalized(_) | Kind::Task => Err(Error::new(MPI_ERR_REQUEST, "the request is not persistent")),
    }
}

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
    fn of(status: Status) -> Completion {
        Completion { status, comm: None, error: None }
    }
}

/// Completions ago that a plain request completed: `None` inside where it has not, outside where there is no such request.
#[inline(always)]
fn plain_age(engine: &Engine, request: handle::Request) -> Option<Option<u32>> {
    if request.0 >> 29 != 1 {
        return None;
    }
    engine.age_of(place_of(request), (request.0 >> GENERATION_SHIFT) as u32 & GENERATION_MASK, GENERATION_MASK)
}

/// Whether it is a plain request that is not complete.
#[inline(always)]
fn under_way(engine: &Engine, request: handle::Request) -> bool {
    plain_age(engine, request) == Some(None)
}

/// What is left to do, outside the engine, for a request that is complete.
enum Found {
    Completion(Completion),
    Object(Arc<Object>),
}

/// Looks whether a request is complete. `consume` takes it out, and makes its handle null unless it is persistent.
#[inline]
fn look(engine: &mut Engine, request: &mut handle::Request, consume: bool) -> Result<Option<Found>> {
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
fn plain_completion(outcome: &engine::Outcome, receive: bool, comm: handle::Comm) -> Completion {
    let mut status = if receive { status_of(outcome) } else { Status::EMPTY };
    status.set_cancelled(outcome.cancelled);
    let error = check_outcome(outcome).err();
    if let Some(error) = &error {
        status.error = error.class;
    }
    Completion { status, comm: Some(comm), error }
}

/// Takes out a plain receive that has ended well, or a send that was complete at once: the way of most requests.
#[inline(always)]
fn look_quickly(engine: &mut Engine, request: &mut handle::Request) -> Option<Status> {
    if request.0 >> 29 == 1 {
        let place = place_of(*request);
        let outcome = engine.take_well(place, (request.0 >> GENERATION_SHIFT) as u32 & GENERATION_MASK, GENERATION_MASK)?;
        *request = MPI_REQUEST_NULL;
        return Some(Status::received(outcome.source as i32, outcome.tag, outcome.bytes));
    }
    if *request == DONE {
        *request = MPI_REQUEST_NULL;
        return Some(Status::EMPTY);
    }
    None
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
fn settle(found: Found, consume: bool) -> Completion {
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

/// Waits until `ready` says something; operations of several steps go on meanwhile.
#[inline]
pub fn wait_for<T>(world: &World, cell: &Cell<Engine>, doing: Doing, mut ready: impl FnMut(&mut Engine) -> Option<T>) -> Result<T> {
    if !tasks_running() {
        let mut engine = cell.lock();
        engine.let_go();
        if let Some(value) = engine.look_briefly(&mut ready).map_err(fault)? {
            return Ok(value);
        }
    }
    let asked = || {
        poll_tasks_asking(false);
        None
    };
    wait_asking(world, cell, doing, &mut Pauses::new(world, cell), ready, asked)
}

/// As [`poll_tasks`]; operations that must wait ask whom they wait for. `alone`: this thread waits for nothing else.
#[cold]
#[inline(never)]
pub(crate) fn poll_tasks_asking(alone: bool) {
    if tasks_running() {
        mismatch::while_asking(alone, poll_tasks);
    }
}

/// Longest pause between looks whether collectives match, as a multiple of the first.
const CHECK_PAUSES_MAX: u64 = 16;

/// Tries of a wait between readings of the clock.
const TRIES_PER_READING: u32 = 8;

/// When a wait is to look whether collectives match. Whatever else completes lets a wait try anew, and puts the look
/// off by no more than [`TRIES_PER_READING`] pauses.
pub struct Pauses<'c> {
    /// For whose failure it looks meanwhile.
    heed: Heed<'c>,
    pause_ns: u64,
    longest_ns: u64,
    tries: u32,
    /// When the pause began, as far as the clock has been read.
    since_ns: Option<u64>,
    /// Others have been asked.
    long: bool,
}

impl<'c> Pauses<'c> {
    #[inline]
    pub fn new(world: &World, cell: &'c Cell<Engine>) -> Pauses<'c> {
        let pause_ns = world.collective_check_ns;
        Pauses { heed: Heed::new(cell), pause_ns, longest_ns: pause_ns.saturating_mul(CHECK_PAUSES_MAX), tries: 0, since_ns: None, long: false }
    }

    /// How long the next try may last, ns; 0 where the pause is over.
    #[inline]
    fn left_ns(&mut self) -> u64 {
        self.tries = self.tries.wrapping_add(1);
        if self.tries % TRIES_PER_READING == 2 { self.read() } else { self.pause_ns }
    }

    /// As [`Pauses::left_ns`], by the clock.
    fn read(&mut self) -> u64 {
        if self.pause_ns == u64::MAX {
            return u64::MAX;
        }
        let now_ns = trace::now_ns();
        let since_ns = *self.since_ns.get_or_insert(now_ns);
        self.pause_ns.saturating_sub(now_ns - since_ns)
    }

    /// A look is over.
    fn next(&mut self) {
        self.pause_ns = self.pause_ns.saturating_mul(2).min(self.longest_ns);
        self.since_ns = Some(trace::now_ns());
    }
}

impl Drop for Pauses<'_> {
    fn drop(&mut self) {
        if self.long {
            goes_on();
        }
    }
}

/// Apart, so that a short wait does not look up the thread's own storage.
#[cold]
#[inline(never)]
fn goes_on() {
    mismatch::goes_on();
}

/// As [`wait_for`]. Now and then `asked` is called too, without the engine: collectives that have waited for long ask whether they
/// [match](mismatch). `pauses` are those of a wait that goes on over several of these calls.
pub fn wait_asking<T>(
    world: &World,
    cell: &Cell<Engine>,
    doing: Doing,
    pauses: &mut Pauses,
    mut ready: impl FnMut(&mut Engine) -> Option<T>,
    mut asked: impl FnMut() -> Option<T>,
) -> Result<T> {
    let mut limit_ns = pauses.left_ns();
    loop {
        let before = if tasks_running() {
            let before = cell.lock().completions_anywhere();
            poll_tasks();
            Some(before)
        } else {
            None
        };
        let found = engine::wait_for(cell, world.board(), doing, limit_ns, &mut pauses.heed, |e| {
            if let Some(value) = ready(e) {
                return Some(Some(value));
            }
            // Anything that completes may let a task go on; another thread may have started one.
            let idle = match before {
                None => !tasks_running(),
                Some(before) => e.completions_anywhere() == before && tasks_running(),
            };
            if idle { None } else { Some(None) }
        })
        .map_err(fault)?;
        match found {
            Some(Some(value)) => return Ok(value),
            Some(None) => limit_ns = pauses.left_ns(),
            None => limit_ns = 0,
        }
        if limit_ns == 0 {
            pauses.long = true;
            // Whoever asks says which collective this thread is in, which answers to others depend on.
            if let Some(value) = asked() {
                return Ok(value);
            }
            if mismatch::look(world)
                && let Some(value) = asked()
            {
                return Ok(value);
            }
            pauses.next();
            limit_ns = pauses.pause_ns;
        }
    }
}

/// `MPI_Wait`.
#[inline]
pub fn wait_one(function: &'static str, request: &mut handle::Request) -> Result<Completion> {
    let world = world::get()?;
    let cell = cell_of(world, *request);
    let mut engine = cell.lock();
    engine.let_go();
    if request.0 >> 29 == 1 && !tasks_running() {
        let place = place_of(*request);
        // Nothing but a receive that has ended well is taken here.
        let looked = engine.look_briefly(|e| e.at_rest(place).then(|| look_quickly(e, request))).map_err(fault)?;
        if let Some(Some(status)) = looked {
            return Ok(Completion::of(status));
        }
    } else if let Some(status) = look_quickly(&mut engine, request) {
        return Ok(Completion::of(status));
    }
    drop(engine);
    let mut failed = None;
    let object = request.0 & OBJECT != 0;
    let ready = |e: &mut Engine| ready_or(look(e, request, true), &mut failed);
    // A lone collective is all that this thread waits for.
    let asked = || {
        poll_tasks_asking(object && TASK_COUNT.load(std::sync::atomic::Ordering::Acquire) == 1);
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

/// One look at what may need progress: asks, makes progress if there is nothing, and asks again; gives the core away where others need it.
pub(crate) fn try_for<T>(cell: &Cell<Engine>, mut ask: impl FnMut(&mut Engine) -> Result<Option<T>>) -> Result<Option<T>> {
    let world = world::get()?;
    let mut engine = cell.lock();
    engine.let_go();
    if let Some(found) = ask(&mut engine)? {
        engine.polled(true);
        return Ok(Some(found));
    }
    let before = engine.completions();
    let moved = engine.progress().map_err(fault)?;
    let siblings = engine.siblings();
    if !moved && engine.completions() == before && !tasks_running() && siblings.is_none() && !engine.has_failures() {
        // Nothing has come that could be another answer.
        engine.polled(false);
        drop(engine);
        pause(world, cell);
        return Ok(None);
    }
    if tasks_running() || siblings.is_some() {
        let vci = engine.vci();
        drop(engine);
        if let Some(siblings) = siblings {
            help(siblings, vci);
        }
        poll_tasks();
        engine = cell.lock();
    }
    let found = ask(&mut engine)?;
    engine.polled(found.is_some());
    drop(engine);
    if found.is_none() {
        pause(world, cell);
    }
    Ok(found)
}

/// Looks after the engines that the one of `vci`, which is looked at, does not stand for: now and then only where other threads may be at it.
fn help(siblings: &Vcis, vci: u8) {
    const LOOKS: u32 = 16;
    thread_local!(static LOOKED: std::cell::Cell<(u32, Glances)> = std::cell::Cell::new((0, Glances::default())));
    let (looks, mut glances) = LOOKED.get();
    if looks.is_multiple_of(LOOKS) {
        siblings.help(vci, &mut glances);
    } else {
        siblings.help_own(vci);
    }
    LOOKED.set((looks.wrapping_add(1), glances));
}

/// After a look that found nothing: gives the core away where another rank needs it, and now and then where another thread may.
fn pause(world: &World, cell: &Cell<Engine>) {
    /// A look costs a tenth of what giving the core away does.
    const LOOKS: u32 = 16;
    thread_local!(static LOOKED: std::cell::Cell<u32> = const { std::cell::Cell::new(0) });
    if world.crowded {
        engine::yield_core();
    } else if cell.shared() {
        LOOKED.set(LOOKED.get() + 1);
        if LOOKED.get() == LOOKS {
            LOOKED.set(0);
            engine::yield_core();
        }
    }
}

/// `MPI_Test`; with `consume` off, `MPI_Request_get_status`.
pub fn test_one(request: &mut handle::Request, consume: bool) -> Result<Option<Completion>> {
    let found = try_for(cell_of(world::get()?, *request), |e| look(e, request, consume))?;
    Ok(found.map(|f| settle(f, consume)))
}

/// Whether a request takes part in waiting for one of several: not if it is null, or persistent and inactive.
fn active(request: handle::Request) -> bool {
    match request {
        MPI_REQUEST_NULL => false,
        DONE | DONE_PROC_NULL => true,
        r if r.0 & OBJECT != 0 => object_here(r).map_or(true, |o| !matches!(*o.state.lock(), State::Inactive)),
        _ => true,
    }
}

/// `MPI_Waitall`: each request is given to `well` if its operation ended well and has nothing more to say, else to `each`.
#[inline(always)]
pub fn wait_all(
    function: &'static str,
    requests: &mut [handle::Request],
    mut well: impl FnMut(usize, Status),
    mut each: impl FnMut(usize, Completion),
) -> Result<()> {
    let world = world::get()?;
    let (mut next, mut failed) = (0, None);
    let several = world.engines.several();
    while next < requests.len() {
        let mut later: Vec<(usize, Found)> = Vec::new();
        let (each, well) = (&mut each, &mut well);
        let cell = cell_of(world, requests[next]);
        wait_for(world, cell, Doing::call(function), |e| {
            while next < requests.len() {
                if several && vci_of(requests[next]).is_some_and(|vci| vci != e.vci()) {
                    // Those that are under way elsewhere go on meanwhile.
                    return Some(());
                }
                if let Some(status) = look_quickly(e, &mut requests[next]) {
                    well(next, status);
                    next += 1;
                    continue;
                }
                match look(e, &mut requests[next], true) {
                    Ok(Some(Found::Completion(completion))) => each(next, completion),
                    Ok(Some(found)) => later.push((next, found)),
                    Ok(None) => return (!later.is_empty()).then_some(()),
                    Err(error) => {
                        failed = Some(error);
                        return Some(());
                    }
                }
                next += 1;
            }
            Some(())
        })?;
        for (at, found) in later {
            each(at, settle(found, true));
        }
        if let Some(error) = failed {
            return Err(error);
        }
    }
    Ok(())
}

/// The engines that several requests go through, entered.
struct Held<'a> {
    home: &'a mut Engine,
    /// All others, where requests go through several.
    others: Vec<Guard<'static, Engine>>,
}

impl Held<'_> {
    fn of(&mut self, request: handle::Request) -> &mut Engine {
        if self.others.is_empty() {
            return self.home;
        }
        let vci = vci_of(request).unwrap_or(0);
        self.others.iter_mut().map(|guard| &mut **guard).find(|engine| engine.vci() == vci).unwrap_or(self.home)
    }

    fn look(&mut self, request: &mut handle::Request, consume: bool) -> Result<Option<Found>> {
        look(self.of(*request), request, consume)
    }
}

/// Which engine to enter for all of `requests`, and whether the others have to be entered, too. That is done in the order of their numbers, so that
/// threads that do it at once do not wait for each other.
fn cells_of(world: &'static World, requests: &[handle::Request]) -> (&'static Cell<Engine>, bool) {
    if !world.engines.several() {
        return (world.engine(), false);
    }
    let mut vcis = requests.iter().filter_map(|request| vci_of(*request));
    let first = vcis.next().unwrap_or(0);
    if vcis.all(|vci| vci == first) { (world.engines.of(first), false) } else { (world.engine(), true) }
}

fn hold<'a>(world: &'static World, home: &'a mut Engine, all: bool) -> Held<'a> {
    Held { home, others: if all { world.engines.all().skip(1).map(Cell::lock).collect() } else { Vec::new() } }
}

/// `MPI_Testall`; with `consume` off, `MPI_Request_get_status_all`. `None` when not all are complete.
pub fn test_all(requests: &mut [handle::Request], consume: bool) -> Result<Option<Vec<Completion>>> {
    let world = world::get()?;
    let (cell, several) = cells_of(world, requests);
    let all = try_for(cell, |e| {
        let mut held = hold(world, e, several);
        for request in requests.iter_mut() {
            if held.look(&mut request.clone(), false)?.is_none() {
                return Ok(None);
            }
        }
        requests.iter_mut().map(|r| Ok(held.look(r, consume)?.expect("just seen complete"))).collect::<Result<Vec<Found>>>().map(Some)
    })?;
    Ok(all.map(|founds| founds.into_iter().map(|f| settle(f, consume)).collect()))
}

/// One of several requests.
pub enum Any {
    /// There is no active request.
    NoneActive,
    One(usize, Completion),
}

/// Completions ago that a request completed, if it has; outside `None` where it takes no part.
#[inline(always)]
fn active_age(held: &mut Held, request: &mut handle::Request) -> Result<Option<Option<u32>>> {
    if *request == MPI_REQUEST_NULL {
        return Ok(None);
    }
    if let Some(age) = plain_age(held.of(*request), *request) {
        return Ok(Some(age));
    }
    if active(*request) { age(held.of(*request), request).map(Some) } else { Ok(None) }
}

/// Completions ago that a request completed, if it has. What is no request of the engine counts as the oldest.
fn age(e: &mut Engine, request: &mut handle::Request) -> Result<Option<u32>> {
    let id = match plain(e, *request) {
        Some(id) => Some(id),
        None if request.0 & OBJECT != 0 => object_here(*request).ok().and_then(|o| match *o.state.lock() {
            State::Plain(id) => Some(id),
            _ => None,
        }),
        None => None,
    };
    match id {
        Some(id) => Ok(e.peek(id).map(|outcome| (e.completions() as u32).wrapping_sub(outcome.order))),
        None => Ok(look(e, &mut request.clone(), false)?.map(|_| u32::MAX)),
    }
}

/// The complete request that completed first: programs count on messages of one sender coming in order (MPI-5.0 §3.5).
fn find_any(held: &mut Held, requests: &mut [handle::Request], consume: bool) -> Result<Option<Option<(usize, Found)>>> {
    let (mut any_active, mut oldest) = (false, None);
    for (at, request) in requests.iter_mut().enumerate() {
        let Some(age) = active_age(held, request)? else { continue };
        any_active = true;
        if let Some(age) = age
            && oldest.is_none_or(|(_, best)| age > best)
        {
            oldest = Some((at, age));
        }
    }
    let Some((at, _)) = oldest else { return Ok(if any_active { None } else { Some(None) }) };
    Ok(held.look(&mut requests[at], consume)?.map(|found| Some((at, found))))
}

fn any_of(found: Option<(usize, Found)>, consume: bool) -> Any {
    found.map_or(Any::NoneActive, |(at, f)| Any::One(at, settle(f, consume)))
}

/// Which looks at several requests may find something new: the first, and those after further completions. In a process of several engines, all, since a
/// request may be complete before the others have told of it.
struct News {
    world: &'static World,
    completions: Option<u64>,
}

impl News {
    fn new(world: &'static World) -> News {
        News { world, completions: None }
    }

    #[inline(always)]
    fn any(&mut self, engine: &Engine) -> bool {
        let now = Some(engine.completions());
        std::mem::replace(&mut self.completions, now) != now || self.world.engines.several()
    }
}

/// `MPI_Waitany`.
pub fn wait_any(function: &'static str, requests: &mut [handle::Request]) -> Result<Any> {
    let world = world::get()?;
    let (cell, several) = cells_of(world, requests);
    let (mut failed, mut news) = (None, News::new(world));
    let found = wait_for(world, cell, Doing::call(function), |e| {
        if !news.any(e) {
            return None;
        }
        match find_any(&mut hold(world, e, several), requests, true) {
            Ok(found) => found,
            Err(error) => {
                failed = Some(error);
                Some(None)
            }
        }
    })?;
    failed.map_or(Ok(any_of(found, true)), Err)
}

/// `MPI_Testany`; with `consume` off, `MPI_Request_get_status_any`.
pub fn test_any(requests: &mut [handle::Request], consume: bool) -> Result<Option<Any>> {
    let world = world::get()?;
    let (cell, several) = cells_of(world, requests);
    let found = try_for(cell, |e| find_any(&mut hold(world, e, several), requests, consume))?;
    Ok(found.map(|f| any_of(f, consume)))
}

/// Several requests that are complete, each with its place among those asked for, in the order in which they completed.
pub type Complete = Vec<(usize, Completion)>;

/// The complete requests, and which of them are left to [`settle`], by their place in the list.
struct SomeFound {
    list: Complete,
    unsettled: Vec<(usize, Found)>,
}

/// The complete requests in the order in which they completed; `Some(None)` where none is active.
fn find_some(held: &mut Held, requests: &mut [handle::Request], consume: bool) -> Result<Option<Option<SomeFound>>> {
    let (mut any_active, mut complete) = (false, Vec::new());
    for (at, request) in requests.iter_mut().enumerate() {
        let Some(age) = active_age(held, request)? else { continue };
        any_active = true;
        if let Some(age) = age {
            complete.push((at, age));
        }
    }
    if complete.is_empty() {
        return Ok(if any_active { None } else { Some(None) });
    }
    complete.sort_by_key(|(_, age)| std::cmp::Reverse(*age));
    let mut founds = SomeFound { list: Vec::with_capacity(complete.len()), unsettled: Vec::new() };
    for (at, _) in complete {
        let request = &mut requests[at];
        if consume && let Some(status) = look_quickly(held.of(*request), request) {
            founds.list.push((at, Completion::of(status)));
            continue;
        }
        match held.look(request, consume)? {
            Some(Found::Completion(completion)) => founds.list.push((at, completion)),
            Some(found) => {
                founds.unsettled.push((founds.list.len(), found));
                founds.list.push((at, Completion::of(Status::EMPTY)));
            }
            None => {}
        }
    }
    Ok(if founds.list.is_empty() { None } else { Some(Some(founds)) })
}

fn some_of(founds: Option<SomeFound>, consume: bool) -> Option<Complete> {
    let mut founds = founds?;
    for (at, found) in founds.unsettled {
        founds.list[at].1 = settle(found, consume);
    }
    Some(founds.list)
}

/// `MPI_Waitsome`. `None` when there is no active request.
pub fn wait_some(function: &'static str, requests: &mut [handle::Request]) -> Result<Option<Complete>> {
    let world = world::get()?;
    let (cell, several) = cells_of(world, requests);
    let (mut failed, mut news) = (None, News::new(world));
    let founds = wait_for(world, cell, Doing::call(function), |e| {
        if !news.any(e) {
            return None;
        }
        match find_some(&mut hold(world, e, several), requests, true) {
            Ok(found) => found,
            Err(error) => {
                failed = Some(error);
                Some(None)
            }
        }
    })?;
    failed.map_or(Ok(some_of(founds, true)), Err)
}

/// `MPI_Testsome`; with `consume` off, `MPI_Request_get_status_some`. The outer `None`: none is complete.
pub fn test_some(requests: &mut [handle::Request], consume: bool) -> Result<Option<Option<Complete>>> {
    let world = world::get()?;
    let (cell, several) = cells_of(world, requests);
    let founds = try_for(cell, |e| find_some(&mut hold(world, e, several), requests, consume))?;
    Ok(founds.map(|f| some_of(f, consume)))
}

/// `MPI_Request_free`.
pub fn free(request: &mut handle::Request) -> Result<()> {
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

/// A handle for a message that was taken by a matched probe.
pub fn keep_message(comm: handle::Comm, message: engine::Message) -> Result<handle::Message> {
    MESSAGES.lock().insert((comm, message)).map(handle::Message).map_err(|_| Error::new(MPI_ERR_OTHER, "too many messages are probed and not received"))
}

pub fn comm_of_message(message: handle::Message) -> Option<handle::Comm> {
    MESSAGES.lock().get(message.0).map(|(comm, _)| *comm)
}

/// The message behind a handle, which is not valid any more.
pub fn take_message(message: handle::Message) -> Result<(handle::Comm, engine::Message)> {
    MESSAGES.lock().remove(message.0).ok_or_else(|| match message {
        MPI_MESSAGE_NULL => Error::new(MPI_ERR_REQUEST, "the message is MPI_MESSAGE_NULL"),
        _ => Error::new(MPI_ERR_REQUEST, format!("{:#x} is no message", message.0)),
    })
}
