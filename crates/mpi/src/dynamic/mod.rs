//! Groups of processes that become connected while they run (MPI-5.0 §11.9, §11.10).
//!
//! Accept and connect, join and spawn are one mechanism: the roots of two groups speak over one socket ([`engine::port`]), exchange who their processes are
//! and where they listen, and each tells its group. Every process then knows the others by numbers of its own, and the two groups have an intercommunicator.

pub mod name;
pub mod spawn;
pub mod words;

use crate::call::Call;
use crate::coll;
use crate::comm::{self, Comm};
use crate::consts::*;
use crate::error::{Error, Result};
use crate::exchange::allgather_bytes;
use crate::group::Group;
use crate::handle;
use crate::info;
use crate::link::{Channel, block};
use crate::request;
use crate::world::{self, World};
use engine::connected::{BusinessCard, Identity};
use engine::order::{Level, Ordered};
use engine::port::{self, Conversation, Missed, Patience, Port};
use engine::{Context, Doing, Engine};
use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use words::{decode, encode};

/// Most ports that a process may have open at once.
const PORTS_MAX: usize = 1024;
/// How long `MPI_Comm_connect` tries a port where the info key `timeout` (whole seconds) says nothing else.
const CONNECT_WITHIN: Duration = Duration::from_secs(60);
/// How long a spawned process tries to reach those that have spawned it.
const SPAWNED_WITHIN: Duration = Duration::from_secs(60);
const TIMEOUT_KEY: &[u8] = b"timeout";
/// Longest time that key may ask for, s.
const TIMEOUT_S_MAX: u64 = 1_000_000;

static PORTS: Ordered<Vec<Arc<Port>>> = Ordered::new(Level::Table, Vec::new());
/// The communicator with the processes that have started this one.
static PARENT: AtomicUsize = AtomicUsize::new(MPI_COMM_NULL.0);

/// `MPI_Comm_get_parent`: null for a process that was not spawned, and once the communicator has been freed.
pub fn parent() -> handle::Comm {
    let parent = handle::Comm(PARENT.load(Ordering::Acquire));
    if comm::find(parent).is_ok() { parent } else { MPI_COMM_NULL }
}

/// A communicator goes: if it is the parents', there are none any more.
pub fn freed(handle: handle::Comm) {
    let _ = PARENT.compare_exchange(handle.0, MPI_COMM_NULL.0, Ordering::AcqRel, Ordering::Relaxed);
}

/// `MPI_Open_port`: the name of a port that other jobs reach.
///
/// # Errors
/// `MPI_ERR_OTHER` where this process has too many ports, or the system refuses one.
pub fn open_port() -> Result<String> {
    world::get()?;
    let addresses = engine::addresses().map_err(|error| Error::new(MPI_ERR_OTHER, error.to_string()))?;
    let port = Port::open(&addresses).map_err(missed)?;
    let name = port.name().to_owned();
    let mut ports = PORTS.lock();
    if ports.len() >= PORTS_MAX {
        return Err(Error::new(MPI_ERR_OTHER, format!("this process has {PORTS_MAX} ports open: there may be no more")));
    }
    ports.push(Arc::new(port));
    Ok(name)
}

/// `MPI_Close_port`.
///
/// # Errors
/// `MPI_ERR_PORT` where this process has no such port.
pub fn close_port(name: &[u8]) -> Result<()> {
    world::get()?;
    let mut ports = PORTS.lock();
    let at = ports.iter().position(|port| port.name().as_bytes() == name).ok_or_else(|| no_port(name))?;
    ports.swap_remove(at);
    Ok(())
}

fn no_port(name: &[u8]) -> Box<Error> {
    Error::new(MPI_ERR_PORT, format!("port_name = {:?} is no port that this process has opened", String::from_utf8_lossy(name)))
}

fn missed(missed: Missed) -> Box<Error> {
    let class = match missed {
        Missed::NoPort(_) | Missed::Late(_) => MPI_ERR_PORT,
        Missed::NotStarted(_) => MPI_ERR_SPAWN,
        _ => MPI_ERR_OTHER,
    };
    Error::new(class, missed.to_string())
}

/// How a root gets to the other one.
type Begin = Box<dyn FnOnce(Patience) -> std::result::Result<Conversation, Missed> + Send>;

/// What the caller has given is one of its communicator's ranks.
fn check_root(comm: &Comm, root: i32) -> Result<u32> {
    match u32::try_from(root) {
        Ok(rank) if rank < comm.size() => Ok(rank),
        _ => Err(Error::new(MPI_ERR_ROOT, format!("root = {root} is not a rank among {}", comm.size()))),
    }
}

/// `MPI_Comm_accept`. `port_name` matters at the root.
///
/// # Errors
/// `MPI_ERR_PORT` on all ranks where the root has no such port; otherwise as [`establish`].
pub fn accept(comm: &'static Comm, root: i32, port_name: impl FnOnce() -> Result<Vec<u8>>, given: handle::Info) -> Result<Arc<Comm>> {
    let root = check_root(comm, root)?;
    info::hints(given)?;
    let begin = || -> Result<Begin> {
        let name = port_name()?;
        let port = PORTS.lock().iter().find(|port| port.name().as_bytes() == name).cloned().ok_or_else(|| no_port(&name))?;
        Ok(Box::new(move |patience| port.accept(patience)))
    };
    establish("MPI_Comm_accept", comm, root, begin)
}

/// `MPI_Comm_connect`. `port_name` and `given` matter at the root.
///
/// # Errors
/// `MPI_ERR_PORT` on all ranks where `port_name` is none, nobody listens there, or nobody accepts in time; otherwise as [`establish`].
pub fn connect(comm: &'static Comm, root: i32, port_name: impl FnOnce() -> Result<Vec<u8>>, given: handle::Info) -> Result<Arc<Comm>> {
    let root = check_root(comm, root)?;
    let hints = info::hints(given)?;
    let within = move || match hints.value(TIMEOUT_KEY)? {
        None => Ok(CONNECT_WITHIN),
        Some(text) => {
            let seconds = std::str::from_utf8(text).ok().and_then(|text| text.trim().parse().ok()).filter(|seconds| *seconds <= TIMEOUT_S_MAX);
            let wrong = || Error::new(MPI_ERR_INFO_VALUE, format!("the info value timeout = {:?} is no number of seconds", String::from_utf8_lossy(text)));
            seconds.map(Duration::from_secs).ok_or_else(wrong)
        }
    };
    let begin = || -> Result<Begin> {
        let name = String::from_utf8(port_name()?).map_err(|_| Error::new(MPI_ERR_PORT, "port_name is not UTF-8"))?;
        Ok(going_to(name, within()?))
    };
    establish("MPI_Comm_connect", comm, root, begin)
}

fn going_to(name: String, within: Duration) -> Begin {
    let until = Instant::now() + within;
    Box::new(move |patience| {
        port::connect(&name, Patience { until: Some(until), ..patience }).map_err(|missed| match missed {
            Missed::Late(_) => Missed::Late(format!("nobody has accepted at {name:?} within {} s", within.as_secs())),
            missed => missed,
        })
    })
}

/// `MPI_Comm_join` over the connected stream socket `fd`, which is left as it was.
///
/// # Errors
/// `MPI_ERR_ARG` where `fd` is no open descriptor; otherwise as [`establish`].
pub fn join(fd: i32) -> Result<Arc<Comm>> {
    let wrong = |error: std::io::Error| Error::new(MPI_ERR_ARG, format!("fd = {fd}: {error}"));
    if fd < 0 {
        return Err(Error::new(MPI_ERR_ARG, format!("fd = {fd} is no descriptor")));
    }
    // SAFETY: the program owns the descriptor, and keeps it open during the call (MPI-5.0 §11.10.4); a wrong number is refused by the system.
    let socket: OwnedFd = unsafe { BorrowedFd::borrow_raw(fd) }.try_clone_to_owned().map_err(wrong)?;
    let before = rustix::fs::fcntl_getfl(&socket).map_err(|error| wrong(error.into()))?;
    let kept = socket.try_clone().map_err(wrong)?;
    let begin = || -> Result<Begin> { Ok(Box::new(move |patience| Conversation::over(socket, patience))) };
    let joined = establish("MPI_Comm_join", comm::find(MPI_COMM_SELF)?, 0, begin);
    rustix::fs::fcntl_setfl(&kept, before).map_err(|error| wrong(error.into()))?;
    joined
}

/// Makes the intercommunicator of `comm`'s group with the one that the root meets. Every rank calls this; `begin` matters at the root.
///
/// # Errors
/// The same class and text on all ranks of both groups, once these have met.
fn establish(function: &'static str, comm: &'static Comm, root: u32, begin: impl FnOnce() -> Result<Begin>) -> Result<Arc<Comm>> {
    let world = world::get()?;
    let own = world.process.identity(world.me);
    let mut meeting = None;
    // The roots meet, and tell each other of which jobs they are, and whether their groups have processes of others.
    let head = [&own.job[..], &[comm.reaches_beyond as u8]].concat();
    let heard = if comm.rank == root {
        let head = head.clone();
        begin().and_then(|begin| {
            let (conversation, heard) = background(world, comm, function, move |patience| {
                let mut conversation = begin(patience)?;
                let heard = conversation.swap(&head, patience)?;
                Ok((conversation, heard))
            })?;
            meeting = Some(conversation);
            Ok(heard)
        })
    } else {
        Ok(Vec::new())
    };
    let theirs = share(function, comm, root, heard)?;
    // Who each process is: where all are of the same job, nobody needs a card.
    let mine = match !comm.reaches_beyond && theirs == head {
        true => Ok(BusinessCard::within(own)),
        false => business_card(world),
    };
    let all = collect(function, comm, root, mine.map(|mine| mine.to_bytes()))?;
    let list = match meeting.take() {
        None => Ok(Vec::new()),
        Some(conversation) => {
            let first = conversation.is_first();
            let context = comm::connected_context()?.raw().to_le_bytes();
            let (conversation, theirs) = swap(world, comm, function, conversation, all.map(|all| [&context[..], &all].concat()));
            meeting = conversation;
            theirs.map(|mut theirs| {
                if first && theirs.len() >= context.len() {
                    theirs[..context.len()].copy_from_slice(&context);
                }
                theirs
            })
        }
    };
    let list = share(function, comm, root, list)?;
    let known = connect_foreign(world, &comm.group, &list);
    // Both groups go on only where all of both know all.
    let failed = known.as_ref().err().cloned();
    let all = collect(function, comm, root, failed.map_or(Ok(Vec::new()), Err))?;
    let agreed = match meeting.take() {
        None => Ok(Vec::new()),
        Some(conversation) => swap(world, comm, function, conversation, all).1,
    };
    share(function, comm, root, agreed)?;
    let (context, numbers) = known?;
    let remote = Group::new(numbers, world.me).of_session(comm.group.session());
    Comm::new(context, comm.group.clone(), Some(remote), comm.errhandler())
}

/// What the other root has to tell for `mine`, or the error that either side has met; and the conversation, where it goes on.
fn swap(
    world: &'static World,
    comm: &'static Comm,
    function: &'static str,
    mut conversation: Conversation,
    mine: Result<Vec<u8>>,
) -> (Option<Conversation>, Result<Vec<u8>>) {
    let failed = mine.as_ref().err().cloned();
    let mine = encode(mine);
    let swapped = background(world, comm, function, move |patience| {
        let heard = conversation.swap(&mine, patience)?;
        Ok((conversation, heard))
    });
    match (swapped, failed) {
        // What went wrong here is told first.
        (_, Some(error)) => (None, Err(error)),
        (Err(error), _) => (None, Err(error)),
        (Ok((conversation, heard)), None) => (Some(conversation), decode(&heard)),
    }
}

fn business_card(world: &'static World) -> Result<BusinessCard> {
    let card = world.process.business_card(world.engine()).map_err(world::failed)?;
    world::attend_network(world)?;
    Ok(card)
}

/// The context that a list of processes begins with, and the numbers by which this process knows those.
fn connect_foreign(world: &World, own: &Group, list: &[u8]) -> Result<(Context, Vec<u32>)> {
    let broken = || Error::new(MPI_ERR_OTHER, "the other side says who its processes are in a way that this library does not know");
    let (context, rest) = list.split_first_chunk().ok_or_else(broken)?;
    let all = BusinessCard::parse_all(rest).filter(|all| !all.is_empty()).ok_or_else(broken)?;
    let numbers = all.iter().map(|one| world.process.connect_foreign(world.engine(), one).map_err(world::failed)).collect::<Result<Vec<u32>>>()?;
    let twice = |at: usize| own.rank_of(numbers[at]).is_some() || numbers[..at].contains(&numbers[at]);
    match (0..numbers.len()).find(|at| twice(*at)) {
        None => Ok((Context::from_raw(u64::from_le_bytes(*context)), numbers)),
        Some(at) => Err(Error::new(MPI_ERR_COMM, format!("rank {at} of the other group is in both groups"))),
    }
}

/// What the root has, or the error that it has met, on all ranks.
fn share(function: &'static str, comm: &Comm, root: u32, mine: Result<Vec<u8>>) -> Result<Vec<u8>> {
    let mut bytes = encode(mine);
    let mut length = (bytes.len() as u64).to_ne_bytes();
    let call = Call::named(function).root(root);
    let (first, second) = (Channel::new(comm, call)?, Channel::new(comm, call)?);
    block(comm.cell, function, async {
        coll::bcast(&first, first.tuning(), &mut length, root as usize).await?;
        if comm.rank != root {
            bytes = coll::zeros(u64::from_ne_bytes(length) as usize)?;
        }
        coll::bcast(&second, second.tuning(), &mut bytes, root as usize).await
    })?;
    decode(&bytes)
}

/// At the root: what all ranks have, one after the other, or the first error that one of them has met; nothing elsewhere.
fn collect(function: &'static str, comm: &Comm, root: u32, mine: Result<Vec<u8>>) -> Result<Result<Vec<u8>>> {
    let mut mine = encode(mine);
    let lengths = allgather_bytes(function, comm, &(mine.len() as u64).to_ne_bytes())?;
    let lengths: Vec<usize> = lengths.chunks_exact(8).map(|n| u64::from_ne_bytes(n.try_into().expect("eight bytes")) as usize).collect();
    let most = lengths.iter().copied().max().unwrap_or(0);
    mine.resize(most, 0);
    let mut all = if comm.rank == root { coll::zeros(most * lengths.len())? } else { Vec::new() };
    let channel = Channel::new(comm, Call::named(function).root(root))?;
    block(comm.cell, function, coll::gather(&channel, channel.tuning(), Some(&mine), &mut all, root as usize))?;
    let parts: Result<Vec<Vec<u8>>> = all.chunks(most.max(1)).zip(&lengths).map(|(part, length)| decode(&part[..*length])).collect();
    Ok(parts.map(|parts| parts.concat()))
}

/// Does `work`, which may wait for another process, in a thread of its own, while this one makes progress. It is given up where a rank of `comm` fails.
fn background<T: Send + 'static>(
    world: &'static World,
    comm: &'static Comm,
    function: &'static str,
    work: impl FnOnce(Patience) -> std::result::Result<T, Missed> + Send + 'static,
) -> Result<T> {
    // Nobody else is inside: without locking this is the only thread that calls MPI now.
    world.engines.set_locking();
    let (given_up, done) = (Arc::new(AtomicBool::new(false)), Arc::new(Mutex::new(None)));
    let (cell, index) = (comm.cell, comm.coll);
    let run = {
        let (given_up, done) = (given_up.clone(), done.clone());
        move || {
            let worked = work(Patience { until: None, given_up: &given_up });
            *done.lock().unwrap_or_else(|e| e.into_inner()) = Some(worked);
            cell.lock().completed();
        }
    };
    let thread = background_thread("mpi-connect", run)?;
    let ready = |engine: &mut Engine| {
        let worked = done.lock().unwrap_or_else(|e| e.into_inner()).take();
        worked.map(|worked| worked.map_err(missed)).or_else(|| engine.context_failed(index).map(|why| Err(world::fault(why))))
    };
    let result = request::wait_for(world, cell, Doing::call(function), ready);
    given_up.store(true, Ordering::Relaxed);
    let _ = thread.join();
    result?
}

fn background_thread(name: &str, run: impl FnOnce() + Send + 'static) -> Result<std::thread::JoinHandle<()>> {
    let thread = engine::without_signals(|| std::thread::Builder::new().name(name.into()).spawn(run));
    thread.map_err(|e| Error::new(MPI_ERR_OTHER, format!("no thread could be started to meet other processes: {e}")))
}

/// A spawned process meets its parents, as a part of its initialization.
pub fn begin() -> Result<()> {
    if let Some(parent) = spawn::meet_parents()? {
        PARENT.store(parent.0, Ordering::Release);
    }
    Ok(())
}

/// The processes of a communicator that belong to other jobs.
pub(crate) fn foreign<'a>(group: &'a Group, remote: Option<&'a Group>) -> impl Iterator<Item = u32> + use<'a> {
    let size = world::joined().map_or(u32::MAX, |world| world.size);
    let both = [Some(group), remote].into_iter().flatten().filter(move |group| group.reaches_beyond(size));
    both.flat_map(|group| group.processes()).filter(move |process| *process >= size)
}

/// Before a communicator with processes of other jobs is disconnected: all have come here, and nothing is under way to those (MPI-5.0 §11.10.4).
pub fn part(handle: handle::Comm) -> Result<()> {
    let comm = comm::find(handle)?;
    if !comm.reaches_beyond {
        return Ok(());
    }
    // Those that live disconnect without those that have failed.
    match crate::collective::barrier(comm, "MPI_Comm_disconnect", crate::call::Kind::CommDisconnect) {
        Err(error) if error.class != MPI_ERR_PROC_ABORTED => return Err(error),
        _ => {}
    }
    let left = |engine: &mut Engine| (!foreign(&comm.group, comm.remote.as_deref()).any(|process| engine.is_unanswered(process))).then_some(());
    request::wait_for(world::get()?, comm.cell, Doing::call("MPI_Comm_disconnect"), left)
}

/// Who the processes of a group are, for others that may know them by other numbers.
pub fn identities(group: &Group) -> Result<Vec<u8>> {
    let process = &world::get()?.process;
    Ok(group.processes().flat_map(|number| process.identity(number).to_bytes()).collect())
}

/// Whether processes of several jobs are among those of two groups, by their identities.
pub fn are_of_several_jobs(one: &[u8], other: &[u8]) -> bool {
    let mut jobs = one.chunks_exact(Identity::BYTES).chain(other.chunks_exact(Identity::BYTES)).map(|identity| &identity[..16]);
    jobs.next().is_some_and(|first| jobs.any(|job| job != first))
}

/// Lets the processes of two groups that one communicator connects know each other, and gives the numbers of the others' (MPI-5.0 §11.10.4: who is connected
/// to one is connected to all that this one is connected to). Every member of `comm` calls this; `swap` matters at `leader`: it tells the other leader.
///
/// # Errors
/// The same class and text on all members of both groups.
pub fn swap_business_cards(function: &'static str, comm: &Comm, leader: u32, swap: impl Fn(&[u8]) -> Result<Vec<u8>>) -> Result<Vec<u32>> {
    let world = world::get()?;
    let all = collect(function, comm, leader, business_card(world).map(|mine| mine.to_bytes()))?;
    let tell = |mine: Result<Vec<u8>>| -> Result<Vec<u8>> {
        let failed = mine.as_ref().err().cloned();
        let theirs = swap(&encode(mine))?;
        failed.map_or_else(|| decode(&theirs), Err)
    };
    let leads = comm.rank == leader;
    let list = share(function, comm, leader, if leads { tell(all.map(|all| [&[0; 8][..], &all].concat())) } else { Ok(Vec::new()) })?;
    let known = connect_foreign(world, &comm.group, &list);
    let failed = known.as_ref().err().cloned();
    let all = collect(function, comm, leader, failed.map_or(Ok(Vec::new()), Err))?;
    share(function, comm, leader, if leads { tell(all) } else { Ok(Vec::new()) })?;
    known.map(|(_, numbers)| numbers)
}

/// The numbers by which this process knows those.
///
/// # Errors
/// `MPI_ERR_GROUP` where one of them is not connected to this process.
pub fn numbers(identities: &[u8]) -> Result<Vec<u32>> {
    let process = &world::get()?.process;
    let number = |bytes: &[u8]| {
        let identity = Identity::from_bytes(bytes.try_into().expect("as many bytes as asked for"));
        let unknown = || Error::new(MPI_ERR_GROUP, format!("rank {} of another job is not connected to this process", identity.rank));
        process.number_of(identity).ok_or_else(unknown)
    };
    identities.chunks_exact(Identity::BYTES).map(number).collect()
}
