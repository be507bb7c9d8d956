//! Communicators (MPI-5.0 §7.4).

use crate::buffered::{Attached, Holder};
use crate::call::{self, Calls};
use crate::consts::*;
use crate::dynamic;
use crate::error::{Error, Result};
use crate::group::Group;
use crate::handle;
use crate::hints::Hints;
use crate::later::Later;
use crate::lines::Lines;
use crate::request;
use crate::spread::Spread;
use crate::table::Table;
use crate::topology::{Around, Topology};
use crate::world;
use engine::order::{Level, Ordered};
use engine::{Cell, Context, ContextIndex, Doing, Engine, Guard, Pattern, Senders};
use std::ops::Deref;
use std::sync::atomic::{AtomicPtr, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock};

/// A communicator, seen from this process. It lives in an `Arc`, which operations that outlast their call share.
pub struct Comm {
    handle: AtomicUsize,
    pub context: Context,
    /// The engine that its messages go through.
    pub cell: &'static Cell<Engine>,
    /// Where its point-to-point and its collective messages are matched.
    pub p2p: ContextIndex,
    pub coll: ContextIndex,
    /// This process' rank in the local group.
    pub rank: u32,
    pub group: Arc<Group>,
    /// The other group of an intercommunicator.
    pub remote: Option<Arc<Group>>,
    /// Neighbourhoods, where the communicator has a topology. Set before its handle is given out.
    pub topology: OnceLock<Arc<Topology>>,
    /// This process' neighbours there, once it has been asked for them.
    pub around: OnceLock<Arc<Around>>,
    /// The contexts beside its own: for agreements among some members, and the local collectives of an intercommunicator.
    companions: OnceLock<[ContextIndex; 2]>,
    errhandler: AtomicUsize,
    pub name: Mutex<Vec<u8>>,
    pub info: Mutex<Hints>,
    /// The collectives that this process has called.
    pub calls: Calls,
    /// Lines that the members share, once a short collective has made them.
    pub lines: OnceLock<Option<Lines>>,
    /// What nonblocking collectives go through.
    pub later: Later,
    /// The buffer for buffered sends.
    pub buffer: Ordered<Option<Attached>>,
    /// Some of its processes belong to other jobs.
    pub reaches_beyond: bool,
    /// Some of its processes are reached by a network: those of another host, or job.
    networked: OnceLock<bool>,
    spread: OnceLock<Option<Arc<Spread>>>,
}

static COMMS: Table<Comm> = Table::new();
static WORLD: AtomicPtr<Comm> = AtomicPtr::new(std::ptr::null_mut());
static SELF: AtomicPtr<Comm> = AtomicPtr::new(std::ptr::null_mut());

impl Comm {
    /// A communicator of `group`, whose members all know `context` by now.
    pub fn new(context: Context, group: Arc<Group>, remote: Option<Arc<Group>>, errhandler: handle::Errhandler) -> Result<Arc<Comm>> {
        let rank = group.rank().ok_or_else(|| Error::new(MPI_ERR_INTERN, "a communicator without this process"))?;
        let world = world::get()?;
        // All members see the same: who shares memory with one of them shares it with all.
        let processes = || [Some(&group), remote.as_ref()].into_iter().flatten().flat_map(|members| members.processes());
        let by_vci = context.vci() != 0 && world.shares_memory(processes());
        let context = if by_vci { context } else { context.of_first_vci() };
        let reaches_beyond = [Some(&group), remote.as_ref()].into_iter().flatten().any(|members| members.reaches_beyond(world.size));
        if reaches_beyond && of_context(context).is_some() {
            return Err(Error::new(MPI_ERR_INTERN, format!("the context {:#x} is in use: of 8 · 10^11, another job has drawn it too", context.raw())));
        }
        let cell = world.open_vci(context.vci())?;
        let (p2p, coll) = {
            let mut engine = cell.lock();
            let (p2p, coll) = (engine.open(context), engine.open(context.collective()));
            for (index, together) in [(p2p, false), (coll, true)] {
                engine.expect(index, || Arc::new(Ranks { group: remote.as_ref().unwrap_or(&group).clone(), together }));
            }
            if reaches_beyond {
                dynamic::foreign(&group, remote.as_deref()).for_each(|process| engine.link(process, true));
            }
            (p2p, coll)
        };
        crate::errors::retain_handler(errhandler)?;
        Ok(Arc::new(Comm {
            handle: AtomicUsize::new(MPI_COMM_NULL.0),
            context,
            cell,
            p2p,
            coll,
            rank,
            group,
            remote,
            topology: OnceLock::new(),
            around: OnceLock::new(),
            companions: OnceLock::new(),
            errhandler: AtomicUsize::new(errhandler.0),
            name: Mutex::new(Vec::new()),
            info: Mutex::new(Hints::default()),
            calls: Calls::default(),
            lines: OnceLock::new(),
            later: Later::default(),
            buffer: Ordered::new(Level::CommBuffer, None),
            reaches_beyond,
            networked: OnceLock::new(),
            spread: OnceLock::new(),
        }))
    }

    /// What a handle names while a communicator like `parent` is being made: nothing can be sent on it.
    pub fn placeholder(parent: &Comm) -> Result<Arc<Comm>> {
        Comm::new(fresh_context_in(0)?, parent.group.clone(), parent.remote.clone(), parent.errhandler())
    }

    /// A count of this communicator, for an operation that may outlast its handle.
    pub fn share(&self) -> Arc<Comm> {
        let this: *const Comm = self;
        // SAFETY: `Comm::new` is the only maker and puts it into an `Arc`, of which at least one count lives while `self` does.
        unsafe {
            Arc::increment_strong_count(this);
            Arc::from_raw(this)
        }
    }

    /// Keeps this communicator for as long as what it gives is there, whatever becomes of its handle.
    #[inline]
    pub fn keep(&'static self) -> Kept {
        let count = match self.handle() {
            MPI_COMM_WORLD | MPI_COMM_SELF => None,
            _ => Some(self.share()),
        };
        Kept { comm: self, count }
    }

    /// Whether some of its processes, of either group, do not share memory with the others. All members see the same.
    #[inline]
    pub fn is_networked(&self) -> bool {
        *self.networked.get_or_init(|| {
            let all = self.group.processes().chain(self.remote.iter().flat_map(|remote| remote.processes()));
            self.reaches_beyond || world::get().is_ok_and(|world| !world.shares_memory(all))
        })
    }

    /// Of a communicator that reaches several hosts, what its members know of them.
    #[inline]
    pub fn spread(&self) -> Option<&Arc<Spread>> {
        self.spread.get_or_init(|| Spread::of(self)).as_ref()
    }

    /// The context beside this one; no other communicator has it.
    pub fn companion(&self) -> Context {
        Context::from_raw(self.context.raw() + 2)
    }

    /// Where messages of the companion and of its collective twin are matched.
    pub fn companions(&self) -> Result<[ContextIndex; 2]> {
        if let Some(both) = self.companions.get() {
            return Ok(*both);
        }
        let both = {
            let mut engine = self.engine();
            let both = [engine.open(self.companion()), engine.open(self.companion().collective())];
            let peers = || self.remote.as_ref().unwrap_or(&self.group).clone();
            engine.expect(both[0], || Arc::new(Ranks { group: peers(), together: false }));
            engine.expect(both[1], || Arc::new(Mixed { peers: peers(), local: self.group.clone() }));
            both
        };
        Ok(*self.companions.get_or_init(|| both))
    }

    /// Enters the engine that its messages go through.
    #[inline]
    pub fn engine(&self) -> Guard<'static, Engine> {
        self.cell.lock()
    }

    #[inline]
    pub fn handle(&self) -> handle::Comm {
        handle::Comm(self.handle.load(Ordering::Relaxed))
    }

    #[inline]
    pub fn size(&self) -> u32 {
        self.group.size()
    }

    /// The group that messages of this process go to.
    #[inline]
    pub fn peers(&self) -> &Group {
        self.remote.as_deref().unwrap_or(&self.group)
    }

    /// The only other process that messages come from, if there is one.
    pub fn only_peer(&self) -> Option<u32> {
        match (&self.remote, self.peers().size()) {
            (None, 2) => Some(self.group.process(1 - self.rank)),
            (Some(remote), 1) => Some(remote.process(0)),
            _ => None,
        }
    }

    /// The process of `rank` among the peers, if there is such a rank.
    #[inline]
    pub fn peer(&self, rank: i32) -> Option<u32> {
        let peers = self.peers();
        (rank >= 0 && (rank as u32) < peers.size()).then(|| peers.process(rank as u32))
    }

    pub fn errhandler(&self) -> handle::Errhandler {
        handle::Errhandler(self.errhandler.load(Ordering::Relaxed))
    }

    /// Attaches an error handler and lets the old one go.
    pub fn set_errhandler(&self, new: handle::Errhandler) -> Result<()> {
        crate::errors::retain_handler(new)?;
        let old = self.errhandler.swap(new.0, Ordering::Relaxed);
        crate::errors::release_handler(handle::Errhandler(old))
    }

    /// The number that requests carry to find their communicator again.
    #[inline]
    pub fn owner(&self) -> u32 {
        self.handle.load(Ordering::Relaxed) as u32
    }
}

/// A communicator that is kept. The predefined ones are there until no call may use them, and need no count.
pub struct Kept {
    /// There for as long as the count.
    comm: &'static Comm,
    count: Option<Arc<Comm>>,
}

impl Kept {
    /// The count, to be dropped where the end of a communicator may take its locks. The communicator is not used any more.
    pub fn give_count(&mut self) -> Option<Arc<Comm>> {
        self.count.take()
    }
}

impl Deref for Kept {
    type Target = Comm;
    #[inline]
    fn deref(&self) -> &Comm {
        self.comm
    }
}

/// Who sends to a communicator: messages carry ranks of a group.
struct Ranks {
    group: Arc<Group>,
    together: bool,
}

impl Senders for Ranks {
    fn process(&self, pattern: Pattern) -> Option<u32> {
        (pattern.source < self.group.size()).then(|| self.group.process(pattern.source))
    }

    fn contains(&self, process: u32) -> bool {
        self.group.rank_of(process).is_some()
    }

    fn together(&self) -> bool {
        self.together
    }
}

/// Who sends in the collective twin of a companion: partitions, under negative tags, by rank among the peers; members that agree among themselves, and the ranks
/// of an intercommunicator's own group in its collectives, by rank in the communicator.
struct Mixed {
    peers: Arc<Group>,
    local: Arc<Group>,
}

impl Senders for Mixed {
    fn process(&self, pattern: Pattern) -> Option<u32> {
        let group = if pattern.tag < 0 { &self.peers } else { &self.local };
        (pattern.source < group.size()).then(|| group.process(pattern.source))
    }

    fn contains(&self, process: u32) -> bool {
        [&self.peers, &self.local].into_iter().any(|group| group.rank_of(process).is_some())
    }

    fn together(&self) -> bool {
        false
    }
}

/// Makes the predefined communicators. `MPI_COMM_WORLD` has context 0 of process 0, `MPI_COMM_SELF` context 2 of this one.
pub fn begin(size: u32, me: u32) -> Result<()> {
    let context = |process, counter| Context::new(process, counter).ok_or_else(|| Error::new(MPI_ERR_OTHER, format!("process {me} is out of range")));
    for (place, handle, context, group, name) in [
        (&WORLD, MPI_COMM_WORLD, context(0, 0)?, Group::identity(size, me), "MPI_COMM_WORLD"),
        (&SELF, MPI_COMM_SELF, context(me, 2)?, Group::new(vec![me], me), "MPI_COMM_SELF"),
    ] {
        let comm = Comm::new(context, group, None, world::initial_errhandler())?;
        comm.handle.store(handle.0, Ordering::Relaxed);
        *comm.name.lock().unwrap() = name.into();
        place.store(Arc::into_raw(comm).cast_mut(), Ordering::Release);
    }
    Ok(())
}

/// Lets the predefined communicators go: the World model is finalized, and no call may use them.
pub fn end() {
    for place in [&WORLD, &SELF] {
        let comm = place.swap(std::ptr::null_mut(), Ordering::AcqRel);
        if !comm.is_null() {
            // SAFETY: the count that `begin` made; after MPI_Finalize no thread uses the communicator (MPI-5.0 §11.2.2).
            drop(unsafe { Arc::from_raw(comm) });
        }
    }
}

impl Drop for Comm {
    /// Nothing is under way on it any more that its handle or an operation stands for.
    fn drop(&mut self) {
        let mut engine = self.engine();
        for index in [self.p2p, self.coll].into_iter().chain(self.companions.get().into_iter().flatten().copied()) {
            engine.close(index);
        }
        if self.reaches_beyond {
            dynamic::foreign(&self.group, self.remote.as_deref()).for_each(|process| engine.link(process, false));
        }
    }
}

/// Contexts are given out in pairs. Those below this are taken: 0 for `MPI_COMM_WORLD`, 2 for `MPI_COMM_SELF`, 4 for [`bootstrap`].
pub const FIRST_FREE_CONTEXT: u32 = 6;

/// The context in which processes agree that have no communicator yet, the same everywhere.
pub fn bootstrap() -> Context {
    Context::new(0, 4).expect("within the limits")
}

/// The communicator behind a handle. A few loads.
///
/// # Errors
/// `MPI_ERR_COMM`.
#[inline]
pub fn find(handle: handle::Comm) -> Result<&'static Comm> {
    let predefined = match handle {
        MPI_COMM_WORLD => WORLD.load(Ordering::Acquire),
        MPI_COMM_SELF => SELF.load(Ordering::Acquire),
        // SAFETY: a program that uses a communicator in one thread while another frees it is erroneous (MPI-5.0 §7.4.3).
        _ => return unsafe { COMMS.get(handle.0) }.ok_or_else(|| unknown(handle)),
    };
    // SAFETY: made by `begin`, freed by `end` only.
    unsafe { predefined.as_ref() }.ok_or_else(|| unknown(handle))
}

#[cold]
fn unknown(handle: handle::Comm) -> Box<Error> {
    match handle {
        MPI_COMM_NULL => Error::new(MPI_ERR_COMM, "the communicator is MPI_COMM_NULL"),
        MPI_COMM_WORLD | MPI_COMM_SELF => Error::new(MPI_ERR_COMM, world::unusable().detail),
        _ => Error::new(MPI_ERR_COMM, format!("{:#x} is no communicator", handle.0)),
    }
}

/// The communicator that a request carries the number of.
pub fn of_owner(owner: u32) -> Option<&'static Comm> {
    find(handle::Comm(owner as usize)).ok()
}

/// All communicators that have a handle.
fn all() -> impl Iterator<Item = Arc<Comm>> {
    let predefined = [MPI_COMM_WORLD, MPI_COMM_SELF].into_iter().filter_map(|handle| find(handle).ok()).map(Comm::share);
    predefined.chain(COMMS.handles().into_iter().filter_map(|handle| COMMS.share(handle)))
}

/// The communicator with this context, if this process has it.
pub fn of_context(context: Context) -> Option<Arc<Comm>> {
    all().find(|comm| comm.context == context)
}

/// How many collectives have gone which [way](call::Way). Those of communicators that are being freed count once they are gone.
pub fn collectives_by_way() -> [u64; 3] {
    let all: Vec<Arc<Comm>> = all().collect();
    call::ways(all.iter().map(|comm| &comm.calls))
}

/// As messages call it.
pub fn describe(comm: &Comm) -> String {
    let name = comm.name.lock().unwrap_or_else(|e| e.into_inner());
    if name.is_empty() { format!("a communicator of {} ranks", comm.size()) } else { String::from_utf8_lossy(&name).into_owned() }
}

/// An intracommunicator.
pub fn find_intra(handle: handle::Comm) -> Result<&'static Comm> {
    let comm = find(handle)?;
    match comm.remote {
        None => Ok(comm),
        Some(_) => Err(Error::new(MPI_ERR_COMM, "the communicator is an intercommunicator")),
    }
}

/// Gives a new communicator its handle.
pub fn publish(comm: Arc<Comm>) -> Result<handle::Comm> {
    let handle = COMMS.insert_shared(comm.clone()).ok_or_else(|| Error::new(MPI_ERR_OTHER, "too many communicators exist"))?;
    comm.handle.store(handle, Ordering::Relaxed);
    Ok(handle::Comm(handle))
}

/// Frees a communicator (MPI-5.0 §7.4.3). Messages that are under way are received all the same; only those in a buffer of the communicator's own are
/// waited for, since the buffer is the program's again afterwards.
pub fn free(handle: handle::Comm) -> Result<()> {
    crate::buffered::flush(&Holder::Comm(freeable(handle)?), "MPI_Comm_free")?;
    // The communicator stays, to raise the error on; a second call frees it.
    crate::mismatch::leftovers(find(handle)?)?;
    let Some(comm) = COMMS.remove(handle.0) else { return Err(unknown(handle)) };
    dynamic::freed(handle);
    crate::mismatch::freed(comm.context);
    crate::errors::release_handler(comm.errhandler())
}

fn freeable(handle: handle::Comm) -> Result<&'static Comm> {
    match handle {
        MPI_COMM_WORLD | MPI_COMM_SELF => Err(Error::new(MPI_ERR_COMM, "a predefined communicator cannot be freed")),
        _ => find(handle),
    }
}

/// Before a communicator is disconnected: waits until no communication on it is pending (MPI-5.0 §11.10.4). What others have pending is not waited for.
pub fn settle(handle: handle::Comm) -> Result<()> {
    let comm = freeable(handle)?;
    let contexts = [comm.context, comm.companion()].map(|context| [context, context.collective()]);
    let over = |engine: &mut Engine| (!engine.pending(comm.owner(), contexts.as_flattened()) && !request::task_of(handle)).then_some(());
    request::wait_for(world::get()?, comm.cell, Doing::call("MPI_Comm_disconnect"), over)
}

/// Puts `comm` behind a handle that was given out for it before it could be made.
pub fn replace(handle: handle::Comm, comm: Arc<Comm>) {
    comm.handle.store(handle.0, Ordering::Relaxed);
    // The placeholder goes; nobody may use it before the operation that makes the communicator is complete.
    drop(COMMS.replace(handle.0, comm));
}

/// A fresh context that this process gives out, and its companion.
pub fn fresh_context() -> Result<Context> {
    if world::get()?.process.knows_foreign() {
        return connected_context();
    }
    fresh_context_in(world::get()?.next_vci())
}

/// As [`fresh_context`], for a communicator with processes of other jobs, whose numbers say nothing here: drawn among 8 · 10^11, so that no other has it that one
/// of the members knows; [`Comm::new`] looks.
pub fn connected_context() -> Result<Context> {
    let world = world::get()?;
    loop {
        let context = Context::drawn(world.process.draw().map_err(world::failed)?, world.next_vci());
        if of_context(context).is_none() {
            return Ok(context);
        }
    }
}

fn fresh_context_in(vci: u8) -> Result<Context> {
    let world = world::get()?;
    let counter = world.contexts.fetch_add(2, Ordering::Relaxed);
    Context::by_vci(world.me, vci, counter)
        .ok_or_else(|| Error::new(MPI_ERR_OTHER, format!("process {} has made {} communicators: there are no more contexts", world.me, counter / 2)))
}
