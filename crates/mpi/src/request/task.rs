//! Operations of several steps: each has a future, which whoever makes progress polls.

use super::object::{Flagged, Kind, Object, Starter, State, Task, publish};
use crate::comm;
use crate::error::Result;
use crate::handle::{self, Status};
use crate::world;
use engine::order::{Level, Ordered};
use engine::{Cell, Engine, Line};
use smallvec::SmallVec;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::task::{Context, Poll, Waker};

/// Objects with a running task: progress looks after them.
static TASKS: Ordered<Vec<Arc<Object>>> = Ordered::new(Level::Table, Vec::new());
static TASK_COUNT: AtomicUsize = AtomicUsize::new(0);
/// Of them, those that are [`Flagged`].
static FLAGGED_COUNT: AtomicUsize = AtomicUsize::new(0);

/// A request for an operation of several steps; its first steps are taken at once.
pub fn start_task(comm: Option<handle::Comm>, task: impl Future<Output = Result<Status>> + Send + 'static) -> Result<handle::Request> {
    start_boxed(comm, Task::WithStatus(Box::pin(task)))
}

/// As [`start_task`], for a nonblocking collective.
#[inline]
pub fn start_collective(comm: Option<handle::Comm>, operated: impl Future<Output = Result<()>> + Send + 'static) -> Result<handle::Request> {
    start_boxed(comm, Task::collective(operated))
}

/// A request for a collective that waits for flags, and has taken the steps that it could take.
pub fn start_flagged(comm: Option<handle::Comm>, operation: Box<dyn Flagged>) -> Result<handle::Request> {
    let object = Arc::new(Object::new(comm, vci_of(comm), Kind::Task, State::Polled));
    let request = Object::publish_shared(object.clone())?;
    FLAGGED_COUNT.fetch_add(1, Release);
    enlist(&object, Task::Flagged(operation));
    Ok(request)
}

/// The engine that the messages of a communicator go through.
fn vci_of(comm: Option<handle::Comm>) -> Option<u8> {
    comm.and_then(|handle| comm::find(handle).ok()).map(|comm| comm.context.vci())
}

fn start_boxed(comm: Option<handle::Comm>, task: Task) -> Result<handle::Request> {
    let object = Arc::new(Object::new(comm, vci_of(comm), Kind::Task, State::Polled));
    let request = Object::publish_shared(object.clone())?;
    run(&object, task);
    Ok(request)
}

/// A persistent request for an operation of several steps.
pub fn task_init(comm: Option<handle::Comm>, starter: Starter) -> Result<handle::Request> {
    let vci = vci_of(comm);
    publish(|| Object::new(comm, vci, Kind::PersistentTask(starter), State::Inactive))
}

pub(super) fn run(object: &Arc<Object>, mut task: Task) {
    match step(&mut task) {
        Some(result) => finish(object, result),
        None => enlist(object, task),
    }
}

fn enlist(object: &Arc<Object>, task: Task) {
    *object.state.lock() = State::Running(task);
    TASKS.lock().push(object.clone());
    TASK_COUNT.fetch_add(1, Release);
}

fn step(task: &mut Task) -> Option<Result<Status>> {
    let mut context = Context::from_waker(Waker::noop());
    let polled = match task {
        Task::WithStatus(task) => task.as_mut().poll(&mut context),
        Task::Collective(task) => task.as_mut().poll(&mut context).map(|ended| ended.map(|()| Status::EMPTY)),
        Task::Flagged(operation) => return operation.step().map(|ended| ended.map(|()| Status::EMPTY)),
    };
    match polled {
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
    TASK_COUNT.load(Acquire) > 0
}

fn running() -> SmallVec<[Arc<Object>; 4]> {
    TASKS.lock().iter().cloned().collect()
}

/// Whether an operation that waits for flags can take a step.
#[inline]
pub(super) fn flags_ready(engine: &Engine) -> bool {
    FLAGGED_COUNT.load(Acquire) > 0 && any_flag_ready(engine)
}

#[cold]
fn any_flag_ready(engine: &Engine) -> bool {
    running().iter().any(|object| flag_ready(object, engine) == Some(true))
}

/// Whether an operation that waits for flags can take a step. `None`: it does not wait for flags, or another thread has it.
pub(super) fn flag_ready(object: &Object, engine: &Engine) -> Option<bool> {
    match &*object.state.lock() {
        State::Running(Task::Flagged(operation)) => Some(operation.ready(engine)),
        _ => None,
    }
}

/// Where this thread notes that it sleeps, as long as it may do so while operations wait for flags.
pub(super) struct FlagsWatched<'c> {
    cell: &'c Cell<Engine>,
    flags: SmallVec<[(&'static Line, usize); 4]>,
}

impl<'c> FlagsWatched<'c> {
    /// Of those under way. `None`: none waits for flags.
    #[inline]
    pub(super) fn new(cell: &'c Cell<Engine>) -> Option<FlagsWatched<'c>> {
        if FLAGGED_COUNT.load(Acquire) > 0 { Some(FlagsWatched::of_all(cell)) } else { None }
    }

    #[cold]
    fn of_all(cell: &'c Cell<Engine>) -> FlagsWatched<'c> {
        let of = |object: &Arc<Object>| match &*object.state.lock() {
            State::Running(Task::Flagged(operation)) => operation.flag(),
            _ => None,
        };
        let flags = running().iter().filter_map(of).collect();
        let watched = FlagsWatched { cell, flags };
        let mut engine = cell.lock();
        watched.flags.iter().for_each(|(line, member)| engine.watch(line, *member, None));
        watched
    }
}

impl Drop for FlagsWatched<'_> {
    fn drop(&mut self) {
        let mut engine = self.cell.lock();
        self.flags.iter().for_each(|(line, member)| engine.unwatch(line, *member));
    }
}

/// Whether exactly one is.
pub(super) fn lone_task() -> bool {
    TASK_COUNT.load(Acquire) == 1
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
    let mut any = false;
    for object in running() {
        any |= poll(&object);
    }
    if any && let Ok(world) = world::get() {
        world.engine().lock().completed();
    }
    any
}

/// Takes the steps that one operation can take now, unless another thread does. Whether it has come to its end.
pub(super) fn poll(object: &Object) -> bool {
    let mut state = object.state.lock();
    let mut task = match std::mem::replace(&mut *state, State::Polled) {
        State::Running(task) => task,
        other => {
            if matches!(other, State::Polled) {
                // Another thread has it, and may have looked before what was just seen.
                object.again.store(true, Relaxed);
            }
            *state = other;
            return false;
        }
    };
    drop(state);
    loop {
        if let Some(result) = step(&mut task) {
            if let Task::Flagged(_) = task {
                FLAGGED_COUNT.fetch_sub(1, Release);
            }
            finish(object, result);
            let mut tasks = TASKS.lock();
            if let Some(at) = tasks.iter().position(|other| std::ptr::eq(&**other, object)) {
                let ended = tasks.swap_remove(at);
                TASK_COUNT.fetch_sub(1, Release);
                // Whoever waits for it may drop the last count but this one.
                drop(tasks);
                drop(ended);
            }
            return true;
        }
        let mut state = object.state.lock();
        if !object.again.swap(false, Relaxed) {
            *state = State::Running(task);
            return false;
        }
    }
}
