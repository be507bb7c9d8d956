//! Collective algorithms on the engine: [`Link`] and [`InterLink`] for one collective, and the two ways to drive it.

use crate::call::{self, Begun, Call, Way};
use crate::coll::inter::InterLink;
use crate::coll::{Hosts, Link, Place, Tuning};
use crate::comm::{self, Comm};
use crate::error::{Error, Result};
use crate::group::Group;
use crate::mismatch::{self, About};
use crate::request::{self, Pauses};
use crate::spread::Spread;
use crate::world::{self, World, fault};
use engine::{Buffer, Cell, Context, ContextIndex, Doing, Engine, Pattern, RequestId, Target};
use smallvec::SmallVec;
use std::future::Future;
use std::marker::PhantomData;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{self, Poll, Waker};

/// The messages of one collective.
pub struct Channel {
    world: &'static World,
    cell: &'static Cell<Engine>,
    local: Side,
    /// The other group of an intercommunicator.
    remote: Option<Side>,
    /// This process' rank in the local group.
    own: u32,
    tag: i32,
    /// What was called on which communicator; `None` where there is none.
    about: Option<About>,
    crowded: bool,
    /// Some of the others are on other hosts.
    remote_members: bool,
    /// Those that take part, where not all of the group do.
    part: Option<Box<Part>>,
    /// Where the members run, once they have [agreed](crate::spread) on it.
    spread: Option<Arc<Spread>>,
    /// Keeps what a collective that outlasts its call needs of the communicator.
    _comm: Option<Arc<Comm>>,
}

/// Some members of a group: their ranks, and this process' place among them.
struct Part {
    ranks: SmallVec<[u32; 8]>,
    me: usize,
}

/// The processes that messages go to and come from, and where they are matched.
struct Side {
    group: Arc<Group>,
    context: Context,
    index: ContextIndex,
    /// Messages carry ranks in this group, which has all that meet in the context: groups of several sizes do.
    named_in: Option<Arc<Group>>,
}

impl Side {
    #[inline]
    fn source_of(&self, peer: u32) -> u32 {
        self.named(self.group.process(peer), peer)
    }

    /// What messages of `process`, which has `rank` in the group, carry.
    #[inline]
    fn named(&self, process: u32, rank: u32) -> u32 {
        self.named_in.as_ref().map_or(rank, |all| all.rank_of(process).unwrap_or(rank))
    }
}

impl Channel {
    /// The next collective on `comm`.
    #[inline]
    pub fn new(comm: &Comm, call: Call) -> Result<Channel> {
        Channel::begun(comm, comm.calls.begin(call))
    }

    /// As [`Channel::new`], for a collective that may outlast the communicator's handle.
    ///
    /// # Errors
    /// `MPI_ERR_OTHER` where too many are under way on `comm`.
    pub fn lasting(comm: &Comm, begun: Begun) -> Result<Channel> {
        let shared = comm.share();
        if Arc::strong_count(&shared) > call::UNDER_WAY_MAX {
            let most = call::UNDER_WAY_MAX;
            return Err(Error::new(crate::consts::MPI_ERR_OTHER, format!("more than {most} collectives are under way on the communicator")));
        }
        comm.calls.went(Way::Messages);
        Ok(Channel { _comm: Some(shared), ..Channel::begun(comm, begun)? })
    }

    /// A collective that has its number.
    #[inline]
    pub fn begun(comm: &Comm, begun: Begun) -> Result<Channel> {
        mismatch::check(comm, begun.tag)?;
        let about = About { context: comm.context, rank: comm.rank, begun };
        Ok(Channel { about: Some(about), ..Channel::tagged(comm, begun.tag)? })
    }

    /// The messages by which the members of `comm` learn [where they run](crate::spread), as a part of a collective: whatever form it has here.
    pub fn asking(comm: &Comm, begun: Begun) -> Result<Channel> {
        Ok(Channel { tag: call::ASKING_TAG, ..Channel::begun(comm, begun)? })
    }

    #[inline]
    fn tagged(comm: &Comm, tag: i32) -> Result<Channel> {
        let (group, context, index) = (comm.group.clone(), comm.context.collective(), comm.coll);
        let whole = Side { group, context, index, named_in: None };
        let several = comm.is_networked();
        let Some(remote) = &comm.remote else {
            let channel = Channel::over(whole, None, comm.rank, tag)?.without_crowds(several);
            return Ok(Channel { remote_members: several, ..channel });
        };
        // Ranks of both groups are the same numbers: each has a context of its own.
        let local = Side { context: comm.companion().collective(), index: comm.companions()?[1], ..whole };
        let remote = Side { group: remote.clone(), context, index, named_in: None };
        Ok(Channel::over(local, Some(remote), comm.rank, tag)?.without_crowds(several))
    }

    /// Of several jobs or hosts, one may have more ranks than cores and another not; all choose the same algorithms all the same.
    #[inline]
    fn without_crowds(self, several: bool) -> Channel {
        Channel { crowded: self.crowded && !several, ..self }
    }

    #[inline]
    fn over(local: Side, remote: Option<Side>, rank: u32, tag: i32) -> Result<Channel> {
        let world = world::get()?;
        let cell = world.engines.of(local.context.vci());
        // The same everywhere on one host: all ranks share its cores.
        Ok(Channel {
            world,
            cell,
            local,
            remote,
            own: rank,
            tag,
            about: None,
            crowded: world.crowded,
            remote_members: false,
            part: None,
            spread: None,
            _comm: None,
        })
    }

    /// Messages among those members of `comm` that are in `group`, of which this process is one.
    pub fn among(comm: &Comm, group: &Arc<Group>, tag: i32) -> Result<Channel> {
        let local = Side { group: group.clone(), context: comm.companion().collective(), index: comm.companions()?[1], named_in: Some(comm.group.clone()) };
        Ok(Channel::over(local, None, rank_in(group)?, tag)?.without_crowds(comm.is_networked()))
    }

    /// Messages between single members of two groups that have `peer_comm` in common.
    pub fn between_leaders(peer_comm: &Comm, tag: i32) -> Result<Channel> {
        let local = Side { group: peer_comm.group.clone(), context: peer_comm.companion(), index: peer_comm.companions()?[0], named_in: None };
        let remote = Side { group: peer_comm.remote.clone().unwrap_or_else(|| local.group.clone()), ..local };
        let local = Side { group: peer_comm.group.clone(), named_in: None, ..remote };
        Channel::over(local, Some(remote), peer_comm.rank, tag)
    }

    /// Messages of processes that have no communicator: `group`, of which this process is one, and perhaps another one.
    pub fn bootstrap(group: &Arc<Group>, other: Option<&Arc<Group>>, tag: i32) -> Result<Channel> {
        let (context, index) = (comm::bootstrap(), world::get()?.engine().lock().open(comm::bootstrap()));
        let world = world::get()?;
        if [Some(group), other].into_iter().flatten().any(|group| group.reaches_beyond(world.size)) {
            let why = "the group has processes of other jobs, with which only members of a communicator can agree";
            return Err(Error::new(crate::consts::MPI_ERR_GROUP, why));
        }
        let all = Group::identity(world.size, world.me);
        let side = |group: &Arc<Group>| Side { group: group.clone(), context, index, named_in: Some(all.clone()) };
        Ok(Channel::over(side(group), other.map(side), rank_in(group)?, tag)?.without_crowds(!world.shares_memory(group.processes())))
    }

    /// Of a collective that knows where the members of `comm` run, or has [asked](crate::spread::Ask) when it begins.
    #[inline]
    pub fn knowing_hosts(self, comm: &Comm) -> Channel {
        Channel { spread: comm.spread().cloned(), ..self }
    }

    /// The engine that its messages go through.
    #[inline]
    pub fn cell(&self) -> &'static Cell<Engine> {
        self.cell
    }

    #[inline]
    pub fn tuning(&self) -> &'static Tuning {
        &self.world.tuning
    }

    fn start<'a>(&'a self, side: &'a Side, peer: usize, buffer: Buffer, send: bool) -> Transfer<'a> {
        let among = side.named_in.is_some().then_some(&*side.group);
        let process = side.group.process(peer as u32);
        let about = self.about.as_ref();
        let expected = if send { None } else { Some(buffer.len()) };
        let transfer = |request, error| Transfer { world: self.world, cell: self.cell, request, error, expected, among, about, process, lends: PhantomData };
        let mut engine = self.cell.lock();
        let started = if send {
            let source = side.named(self.world.me, self.own);
            if engine.has_failures()
                && let Some(why) = engine.context_failed(side.index)
            {
                return transfer(None, Some(fault(why)));
            }
            let target = Target { process, context: side.context, source, tag: self.tag };
            engine.send_part(&target, &buffer)
        } else {
            engine.receive(side.index, Pattern { source: side.source_of(peer as u32), tag: self.tag }, &buffer).map(|id| {
                engine.announce(id, process);
                Some(id)
            })
        };
        drop(engine);
        match started {
            Ok(request) => transfer(request, None),
            Err(e) => transfer(None, Some(fault(e))),
        }
    }

    fn send_to<'a>(&'a self, side: &'a Side, to: usize, data: &'a [u8]) -> Transfer<'a> {
        // SAFETY: the transfer borrows `data` until it is complete or dropped; sending only reads.
        self.start(side, to, unsafe { Buffer::contiguous(data.as_ptr().cast_mut(), data.len()) }, true)
    }

    fn receive_from<'a>(&'a self, side: &'a Side, from: usize, into: &'a mut [u8]) -> Transfer<'a> {
        // SAFETY: the transfer borrows `into` until it is complete or dropped.
        self.start(side, from, unsafe { Buffer::contiguous(into.as_mut_ptr(), into.len()) }, false)
    }

    /// The rank in the group of who has number `rank` in what takes part.
    #[inline]
    fn member(&self, rank: usize) -> usize {
        self.part.as_ref().map_or(rank, |part| part.ranks[rank] as usize)
    }

    fn remote(&self) -> &Side {
        self.remote.as_ref().expect("only intercommunicators' collectives have a remote side")
    }
}

fn rank_in(group: &Group) -> Result<u32> {
    group.rank().ok_or_else(|| Error::new(crate::consts::MPI_ERR_GROUP, "the group does not contain this process"))
}

impl Link for Channel {
    type Op<'a> = Transfer<'a>;

    fn rank(&self) -> usize {
        self.part.as_ref().map_or(self.own as usize, |part| part.me)
    }

    fn size(&self) -> usize {
        self.part.as_ref().map_or(self.local.group.size() as usize, |part| part.ranks.len())
    }

    fn send<'a>(&'a self, to: usize, data: &'a [u8]) -> Transfer<'a> {
        self.send_to(&self.local, self.member(to), data)
    }

    fn recv<'a>(&'a self, from: usize, into: &'a mut [u8]) -> Transfer<'a> {
        self.receive_from(&self.local, self.member(from), into)
    }

    fn crowded(&self) -> bool {
        match (&self.part, self.hosts()) {
            (None, Some(hosts)) => hosts.crowded(),
            _ => self.crowded,
        }
    }

    fn part(&self, ranks: &[u32], me: usize, place: Place) -> Channel {
        let ranks = ranks.iter().map(|rank| self.member(*rank as usize) as u32).collect();
        let local = Side { group: self.local.group.clone(), named_in: self.local.named_in.clone(), ..self.local };
        Channel {
            local,
            remote: None,
            crowded: place == Place::Crowded,
            remote_members: place == Place::Hosts,
            part: Some(Box::new(Part { ranks, me })),
            spread: None,
            _comm: None,
            ..*self
        }
    }

    fn remote(&self) -> bool {
        self.remote_members
    }

    #[inline]
    fn hosts(&self) -> Option<&Hosts> {
        self.spread.as_ref()?.hosts()
    }
}

impl InterLink for Channel {
    type Local = Channel;
    type Op<'a> = Transfer<'a>;

    fn local(&self) -> &Channel {
        self
    }

    fn remote_size(&self) -> usize {
        self.remote().group.size() as usize
    }

    fn send<'a>(&'a self, to: usize, data: &'a [u8]) -> Transfer<'a> {
        self.send_to(self.remote(), to, data)
    }

    fn recv<'a>(&'a self, from: usize, into: &'a mut [u8]) -> Transfer<'a> {
        self.receive_from(self.remote(), from, into)
    }
}

/// One started send or receive of a collective.
pub struct Transfer<'a> {
    world: &'static World,
    cell: &'static Cell<Engine>,
    request: Option<RequestId>,
    error: Option<Box<Error>>,
    /// Bytes that a receive must get.
    expected: Option<usize>,
    /// Those that agree, where the context does not say it.
    among: Option<&'a Group>,
    /// The collective that it is part of, and the other process.
    about: Option<&'a About>,
    process: u32,
    lends: PhantomData<&'a mut [u8]>,
}

impl Future for Transfer<'_> {
    type Output = Result<()>;

    fn poll(mut self: Pin<&mut Self>, _: &mut task::Context<'_>) -> Poll<Result<()>> {
        if let Some(error) = self.error.take() {
            return Poll::Ready(Err(error));
        }
        let Some(id) = self.request else { return Poll::Ready(Ok(())) };
        let mut engine = self.cell.lock();
        let Some(outcome) = engine.take(id) else {
            let lost = self.among.and_then(|group| engine.lost_among(|process| group.rank_of(process).is_some()));
            drop(engine);
            if let Some(about) = self.about.filter(|_| mismatch::asking())
                && let Err(error) = mismatch::ask(self.world, about, self.process)
            {
                return Poll::Ready(Err(error));
            }
            return lost.map_or(Poll::Pending, |why| Poll::Ready(Err(fault(why))));
        };
        drop(engine);
        self.request = None;
        if outcome.failed {
            return Poll::Ready(crate::p2p::check_outcome(&outcome));
        }
        match self.expected {
            Some(expected) if outcome.truncated() || outcome.bytes as usize != expected => {
                Poll::Ready(Err(mismatch::wrong_length(self.world, self.about, outcome.source, outcome.bytes + outcome.cut_bytes, expected)))
            }
            _ => Poll::Ready(Ok(())),
        }
    }
}

impl<'a> Transfer<'a> {
    /// A transfer of the collective `about` that the engine has started, with `process`; `Ok(None)` where it is complete. `expected` as in the field.
    pub(crate) fn started(
        world: &'static World,
        cell: &'static Cell<Engine>,
        started: Result<Option<RequestId>>,
        expected: Option<usize>,
        about: &'a About,
        process: u32,
    ) -> Transfer<'a> {
        let (request, error) = match started {
            Ok(request) => (request, None),
            Err(error) => (None, Some(error)),
        };
        Transfer { world, cell, request, error, expected, among: None, about: Some(about), process, lends: PhantomData }
    }
}

impl Drop for Transfer<'_> {
    /// The memory that was lent must not be touched any more: what is not complete is cancelled, or waited for.
    fn drop(&mut self) {
        let Some(id) = self.request else { return };
        let _ = self.cell.lock().cancel(id);
        let _ = engine::wait(self.cell, self.world.board(), Doing::call("a failed collective"), |e| e.take(id));
    }
}

/// Drives a collective to its end. All its messages go through `cell`.
pub fn block<T>(cell: &Cell<Engine>, function: &'static str, future: impl Future<Output = Result<T>>) -> Result<T> {
    let mut future = pin!(future);
    let mut context = task::Context::from_waker(Waker::noop());
    let world = world::get()?;
    let mut pauses = Pauses::new(world, cell);
    loop {
        let before = cell.lock().completions();
        if let Poll::Ready(result) = future.as_mut().poll(&mut context) {
            return result;
        }
        let asked = || {
            request::poll_tasks_asking(false);
            match mismatch::while_asking(true, || future.as_mut().poll(&mut context)) {
                Poll::Ready(result) => Some(Some(result)),
                Poll::Pending => None,
            }
        };
        let moved = |e: &mut Engine| (e.completions() != before).then_some(None);
        if let Some(result) = request::wait_asking(world, cell, Doing::call(function), &mut pauses, moved, asked)? {
            return result;
        }
    }
}

/// The outcome of a request of the engine, once it is complete.
pub async fn completed(world: &'static World, id: RequestId) -> engine::Outcome {
    let cell = world.engines.of(id.vci());
    std::future::poll_fn(|_| cell.lock().take(id).map_or(Poll::Pending, Poll::Ready)).await
}
