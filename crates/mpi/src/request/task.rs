//! Operations of several steps: each has a future, which whoever makes progress polls.

use super::object::{Kind, Object, Starter, State, Task};
use crate::error::Result;
use crate::handle::{self, Status};
use crate::world;
use engine::order::{Level, Ordered};
use smallvec::SmallVec;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::task::{Context, Poll, Waker};

/// Objects with a running task: progress looks after them.
static TASKS: Ordered<Vec<Arc<Object>>> = Ordered::new(Level::Table, Vec::new());
static TASK_COUNT: AtomicUsize = AtomicUsize::new(0);

/// A request for an operation of several steps; its first steps are taken at once.
pub fn start_task(comm: Option<handle::Comm>, task: impl Future<Output = Result<Status>> + Send + 'static) -> Result<handle::Request> {
    start_boxed(comm, Task::WithStatus(Box::pin(task)))
}

/// As [`start_task`], for a nonblocking collective.
#[inline]
pub fn start_collective(comm: Option<handle::Comm>, operated: impl Future<Output = Result<()>> + Send + 'static) -> Result<handle::Request> {
    start_boxed(comm, Task::collective(operated))
}

fn start_boxed(comm: Option<handle::Comm>, task: Task) -> Result<handle::Request> {
    let object = Object::new(comm, Kind::Task, State::Polled);
    let request = Object::publish(object.clone())?;
    run(&object, task);
    Ok(request)
}

/// A persistent request for an operation of several steps.
pub fn task_init(comm: Option<handle::Comm>, starter: Starter) -> Result<handle::Request> {
    Object::new(comm, Kind::PersistentTask(starter), State::Inactive).publish()
}

pub(super) fn run(object: &Arc<Object>, mut task: Task) {
    match step(&mut task) {
        Some(result) => finish(object, result),
        None => {
            *object.state.lock() = State::Running(task);
            TASKS.lock().push(object.clone());
            TASK_COUNT.fetch_add(1, Release);
        }
    }
}

fn step(task: &mut Task) -> Option<Result<Status>> {
    let mut context = Context::from_waker(Waker::noop());
    let polled = match task {
        Task::WithStatus(task) => task.as_mut().poll(&mut context),
        Task::Collective(task) => task.as_mut().poll(&mut context).map(|ended| ended.map(|()| Status::EMPTY)),
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
    let objects: SmallVec<[Arc<Object>; 4]> = TASKS.lock().iter().cloned().collect();
    let mut any = false;
    for object in objects {
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
