//! Collective algorithms on the engine: [`Link`] for one collective of one communicator, and the two ways to drive it.

use crate::coll::Link;
use crate::comm::Comm;
use crate::error::{Error, Result};
use crate::group::Group;
use crate::request;
use crate::world::{self, World, fault};
use engine::{Buffer, Context, ContextIndex, Doing, Mode, Pattern, RequestId, Target};
use std::future::Future;
use std::marker::PhantomData;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{self, Poll, Waker};

/// The messages of one collective.
pub struct Channel {
    world: &'static World,
    group: Arc<Group>,
    context: Context,
    index: ContextIndex,
    rank: u32,
    tag: i32,
    crowded: bool,
}

impl Channel {
    /// The next collective on `comm`, among its local group.
    pub fn new(comm: &Comm) -> Result<Channel> {
        Channel::tagged(comm, comm.next_collective())
    }

    /// A collective under a tag of the caller's.
    pub fn tagged(comm: &Comm, tag: i32) -> Result<Channel> {
        let world = world::get()?;
        Ok(Channel {
            world,
            group: comm.group.clone(),
            context: comm.context.collective(),
            index: comm.coll,
            rank: comm.rank,
            tag,
            // The same everywhere on one host: all ranks share its cores.
            crowded: world.crowded,
        })
    }

    fn start(&self, peer: usize, buffer: Buffer, send: bool) -> Transfer<'_> {
        let mut engine = self.world.engine.lock();
        let started = if send {
            let target = Target { process: self.group.process(peer as u32), context: self.context, source: self.rank, tag: self.tag };
            engine.send(&target, &buffer, Mode::Standard)
        } else {
            engine.receive(self.index, Pattern { source: peer as u32, tag: self.tag }, &buffer).map(Some)
        };
        let (request, error) = match started {
            Ok(request) => (request, None),
            Err(e) => (None, Some(fault(e))),
        };
        Transfer { world: self.world, request, error, expected: if send { None } else { Some(buffer.len()) }, lends: PhantomData }
    }
}

impl Link for Channel {
    type Op<'a> = Transfer<'a>;

    fn rank(&self) -> usize {
        self.rank as usize
    }

    fn size(&self) -> usize {
        self.group.size() as usize
    }

    fn send<'a>(&'a self, to: usize, data: &'a [u8]) -> Transfer<'a> {
        // SAFETY: the transfer borrows `data` until it is complete or dropped; sending only reads.
        self.start(to, unsafe { Buffer::contiguous(data.as_ptr().cast_mut(), data.len()) }, true)
    }

    fn recv<'a>(&'a self, from: usize, into: &'a mut [u8]) -> Transfer<'a> {
        // SAFETY: the transfer borrows `into` until it is complete or dropped.
        self.start(from, unsafe { Buffer::contiguous(into.as_mut_ptr(), into.len()) }, false)
    }

    fn crowded(&self) -> bool {
        self.crowded
    }
}

/// One started send or receive of a collective.
pub struct Transfer<'a> {
    world: &'static World,
    request: Option<RequestId>,
    error: Option<Box<Error>>,
    /// Bytes that a receive must get.
    expected: Option<usize>,
    lends: PhantomData<&'a mut [u8]>,
}

impl Future for Transfer<'_> {
    type Output = Result<()>;

    fn poll(mut self: Pin<&mut Self>, _: &mut task::Context<'_>) -> Poll<Result<()>> {
        if let Some(error) = self.error.take() {
            return Poll::Ready(Err(error));
        }
        let Some(id) = self.request else { return Poll::Ready(Ok(())) };
        let Some(outcome) = self.world.engine.lock().take(id) else { return Poll::Pending };
        self.request = None;
        match self.expected {
            Some(expected) if outcome.truncated || outcome.bytes as usize != expected => Poll::Ready(Err(Error::new(
                crate::consts::MPI_ERR_TRUNCATE,
                format!("a rank of the collective sent {} bytes where {expected} were expected: counts or types differ among the ranks", outcome.bytes),
            ))),
            _ => Poll::Ready(Ok(())),
        }
    }
}

impl Drop for Transfer<'_> {
    /// The memory that was lent must not be touched any more: what is not complete is cancelled, or waited for.
    fn drop(&mut self) {
        let Some(id) = self.request else { return };
        let _ = self.world.engine.lock().cancel(id);
        let _ = engine::wait(&self.world.engine, self.world.board(), Doing::call("a failed collective"), |e| e.take(id));
    }
}

/// Drives a collective to its end.
pub fn block<T>(function: &'static str, future: impl Future<Output = Result<T>>) -> Result<T> {
    let mut future = pin!(future);
    let mut context = task::Context::from_waker(Waker::noop());
    let world = world::get()?;
    loop {
        let before = world.engine.lock().completions();
        if let Poll::Ready(result) = future.as_mut().poll(&mut context) {
            return result;
        }
        request::wait_for(world, Doing::call(function), |e| (e.completions() != before).then_some(()))?;
    }
}

/// The outcome of a request of the engine, once it is complete.
pub async fn completed(world: &'static World, id: RequestId) -> engine::Outcome {
    std::future::poll_fn(|_| world.engine.lock().take(id).map_or(Poll::Pending, Poll::Ready)).await
}
