//! Making communicators (MPI-5.0 §7.4.2, §7.6.2). A context is given out by one member of the new groups, so that no agreement
//! is needed beyond telling it to the others.

use crate::call::Call;
use crate::coll::inter::{self, InterLink};
use crate::coll::{self, Link};
use crate::comm::{self, Comm, fresh_context};
use crate::consts::*;
use crate::dynamic;
use crate::error::{Error, Result};
use crate::exchange::{allgather_bytes, alltoall_bytes};
use crate::group::Group;
use crate::handle;
use crate::hardware::{self, Resource};
use crate::link::{Channel, block};
use crate::placement::{self, Edge, Machine};
use crate::topology::Dist;
use crate::world;
use engine::Context;
use engine::connected::Identity;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

/// Tells all members of a communicator, of both groups of an intercommunicator, a context that one of them gives out.
async fn agree(channel: &Channel, intra: bool, first: bool) -> Result<Context> {
    let mut bytes = [0; 8];
    if Link::rank(channel) == 0 && (intra || first) {
        bytes = fresh_context()?.raw().to_ne_bytes();
    }
    if !intra && Link::rank(channel) == 0 {
        if first {
            InterLink::send(channel, 0, &bytes).await?;
        } else {
            InterLink::recv(channel, 0, &mut bytes).await?;
        }
    }
    coll::bcast(channel, channel.tuning(), &mut bytes, 0).await?;
    Ok(Context::from_raw(u64::from_ne_bytes(bytes)))
}

/// Which of two disjoint groups gives out contexts: both sides find the same.
fn comes_first(group: &Group, other: &Group) -> bool {
    precedes(group.process(0), other.process(0))
}

/// Whether one process stands before another in an order that all jobs have in common.
fn precedes(one: u32, other: u32) -> bool {
    match world::get() {
        Ok(world) if one.max(other) >= world.size => world.process.identity(one) < world.process.identity(other),
        _ => one < other,
    }
}

/// A communicator of the same groups and topology as `old`, once the future is complete. Attributes are the caller's.
pub fn duplicate(old: &Comm, channel: Channel) -> impl Future<Output = Result<Arc<Comm>>> + Send + use<> {
    let (group, remote, errhandler) = (old.group.clone(), old.remote.clone(), old.errhandler());
    let topology = old.topology.get().cloned();
    async move {
        let first = remote.as_ref().is_some_and(|remote| comes_first(&group, remote));
        let context = agree(&channel, remote.is_none(), first).await?;
        let new = Comm::new(context, group, remote, errhandler)?;
        if let Some(topology) = topology {
            new.topology.get_or_init(|| topology);
        }
        Ok(new)
    }
}

/// `MPI_Comm_dup`, without attributes.
pub fn dup(function: &'static str, old: &Comm) -> Result<Arc<Comm>> {
    block(old.cell, function, duplicate(old, Channel::new(old, Call::named(function))?))
}

/// What every member tells all others when a communicator is divided.
#[derive(Clone, Copy)]
struct Row {
    color: i32,
    key: i32,
    context: u64,
}

const ROW_BYTES: usize = 16;

impl Row {
    fn to_bytes(self) -> [u8; ROW_BYTES] {
        let mut bytes = [0; ROW_BYTES];
        bytes[..4].copy_from_slice(&self.color.to_ne_bytes());
        bytes[4..8].copy_from_slice(&self.key.to_ne_bytes());
        bytes[8..].copy_from_slice(&self.context.to_ne_bytes());
        bytes
    }

    fn parse(bytes: &[u8]) -> Row {
        let int = |at: usize| i32::from_ne_bytes(bytes[at..at + 4].try_into().expect("four bytes"));
        Row { color: int(0), key: int(4), context: u64::from_ne_bytes(bytes[8..16].try_into().expect("eight bytes")) }
    }
}

/// The members of `group` that have `color`, by key, then by rank; and the context that the first of them gives out.
fn members(group: &Group, rows: &[u8], color: i32) -> Option<(Arc<Group>, u64)> {
    let rows = rows.chunks_exact(ROW_BYTES).map(Row::parse);
    let mut chosen: Vec<(i32, u32, u64)> =
        rows.enumerate().filter(|(_, row)| row.color == color).map(|(rank, row)| (row.key, rank as u32, row.context)).collect();
    chosen.sort_unstable();
    let first = chosen.first()?.2;
    let processes = chosen.iter().map(|(_, rank, _)| group.process(*rank)).collect();
    Some((Group::new(processes, world::me()).of_session(group.session()), first))
}

/// Divides `old`: `None` for members without a colour, and where an intercommunicator's other group has nobody of the colour.
fn divide(function: &'static str, old: &Comm, color: i32, key: i32) -> Result<Option<Arc<Comm>>> {
    let mine = Row { color, key, context: fresh_context()?.raw() }.to_bytes();
    let channel = Channel::new(old, Call::named(function))?;
    let mut rows = coll::zeros(ROW_BYTES * old.size() as usize)?;
    let mut remote_rows = coll::zeros(old.remote.as_ref().map_or(0, |r| ROW_BYTES * r.size() as usize))?;
    block(channel.cell(), function, async {
        coll::allgather(&channel, channel.tuning(), Some(&mine), &mut rows).await?;
        if remote_rows.is_empty() { Ok(()) } else { inter::allgather(&channel, channel.tuning(), &mine, &mut remote_rows).await }
    })?;
    if color == MPI_UNDEFINED {
        return Ok(None);
    }
    let (group, context) = members(&old.group, &rows, color).expect("this process has the colour");
    let Some(remote) = &old.remote else {
        return Comm::new(Context::from_raw(context), group, None, old.errhandler()).map(Some);
    };
    let Some((remote, remote_context)) = members(remote, &remote_rows, color) else { return Ok(None) };
    let context = if comes_first(&group, &remote) { context } else { remote_context };
    Comm::new(Context::from_raw(context), group, Some(remote), old.errhandler()).map(Some)
}

/// `MPI_Comm_split`: `None` for members without a colour.
pub fn split(function: &'static str, old: &Comm, color: i32, key: i32) -> Result<Option<Arc<Comm>>> {
    if color < 0 && color != MPI_UNDEFINED {
        return Err(Error::new(MPI_ERR_ARG, format!("color = {color} is negative and not MPI_UNDEFINED")));
    }
    divide(function, old, color, key)
}

fn check_members(group: &Group, old: &Comm) -> Result<()> {
    match group.processes().find(|p| old.group.rank_of(*p).is_none()) {
        None => Ok(()),
        Some(stranger) => Err(Error::new(MPI_ERR_GROUP, format!("the group has process {stranger}, which is not in the communicator"))),
    }
}

/// `MPI_Comm_create`: `None` for those that are not in their group. Disjoint groups may be given at once: the old rank of a group's
/// first member tells them apart.
pub fn create(function: &'static str, old: &Comm, group: &Arc<Group>) -> Result<Option<Arc<Comm>>> {
    check_members(group, old)?;
    let (color, key) = match group.rank() {
        None => (MPI_UNDEFINED, 0),
        // In an intercommunicator the two groups name no members in common: all that are named belong together.
        Some(rank) if old.remote.is_some() => (0, rank as i32),
        Some(rank) => (old.group.rank_of(group.process(0)).map_or(MPI_UNDEFINED, |r| r as i32), rank as i32),
    };
    divide(function, old, color, key)
}

/// `MPI_Comm_create_group`: collective over `group` only, of which this process is one.
pub fn create_group(function: &'static str, old: &Comm, group: &Arc<Group>, tag: i32) -> Result<Option<Arc<Comm>>> {
    check_tag(tag)?;
    check_members(group, old)?;
    if group.rank().is_none() {
        return Ok(None);
    }
    let channel = Channel::among(old, group, tag)?;
    let context = block(channel.cell(), function, agree(&channel, true, true))?;
    Comm::new(context, group.clone(), None, old.errhandler()).map(Some)
}

fn check_tag(tag: i32) -> Result<()> {
    if tag >= 0 { Ok(()) } else { Err(Error::new(MPI_ERR_TAG, format!("tag = {tag} is negative"))) }
}

/// The tag under which processes without a communicator meet: what they have in common is the string and the groups.
fn meeting_tag(string_tag: &[u8], groups: &[&Group]) -> i32 {
    let mut hasher = DefaultHasher::new();
    string_tag.hash(&mut hasher);
    for group in groups {
        group.processes().collect::<Vec<u32>>().hash(&mut hasher);
    }
    (hasher.finish() >> 33) as i32
}

/// `MPI_Comm_create_from_group`.
pub fn create_from_group(function: &'static str, group: &Arc<Group>, string_tag: &[u8], errhandler: handle::Errhandler) -> Result<Option<Arc<Comm>>> {
    if group.size() == 0 {
        return Ok(None);
    }
    let channel = Channel::bootstrap(group, None, meeting_tag(string_tag, &[group]))?;
    let context = block(channel.cell(), function, agree(&channel, true, true))?;
    Comm::new(context, group.clone(), None, errhandler).map(Some)
}

fn check_disjoint(group: &Group, remote: &Group) -> Result<()> {
    match remote.processes().find(|p| group.rank_of(*p).is_some()) {
        None => Ok(()),
        Some(both) => Err(Error::new(MPI_ERR_GROUP, format!("process {both} is in both groups"))),
    }
}

fn check_leader(what: &str, leader: i32, size: u32, class: i32) -> Result<u32> {
    match u32::try_from(leader) {
        Ok(rank) if rank < size => Ok(rank),
        _ => Err(Error::new(class, format!("{what} = {leader} is not a rank among {size}"))),
    }
}

/// `MPI_Intercomm_create`. `peer` matters at the leader: the communicator that has both leaders, and the other one's rank there.
pub fn intercomm(function: &'static str, local: &Comm, local_leader: i32, peer: Option<(&Comm, i32)>, tag: i32) -> Result<Arc<Comm>> {
    let leader = check_leader("local_leader", local_leader, local.size(), MPI_ERR_RANK)? as usize;
    check_tag(tag)?;
    // What a leader tells the other one, and then its group: how many members, a context, and who they are.
    let mut head = [0u64; 2];
    let mut others: Vec<u8> = Vec::new();
    let mut leaders = None;
    if local.rank as usize == leader {
        let (peer_comm, remote_leader) = peer.ok_or_else(|| Error::new(MPI_ERR_COMM, "the leader has no peer_comm"))?;
        let remote_leader = check_leader("remote_leader", remote_leader, peer_comm.peers().size(), MPI_ERR_RANK)? as usize;
        let channel = Channel::between_leaders(peer_comm, tag)?;
        let own = [local.size() as u64, fresh_context()?.raw()];
        let members = dynamic::identities(&local.group)?;
        head = block(channel.cell(), function, async {
            let (mut bytes, mine) = ([0; 16], pair_to_bytes(own));
            swap(&channel, remote_leader, &mine, &mut bytes).await?;
            let theirs = pair_from_bytes(bytes);
            others = coll::zeros(Identity::BYTES * theirs[0] as usize)?;
            swap(&channel, remote_leader, &members, &mut others).await?;
            Ok(theirs)
        })?;
        let first_of_theirs = Identity::from_bytes(others.first_chunk().ok_or_else(|| Error::new(MPI_ERR_INTERN, "the other group is empty"))?);
        if world::get()?.process.identity(local.group.process(0)) < first_of_theirs {
            head[1] = own[1];
        }
        leaders = Some((channel, remote_leader));
    }
    let channel = Channel::new(local, Call::named(function))?;
    let (head, others) = block(channel.cell(), function, async {
        let mut bytes = pair_to_bytes(head);
        coll::bcast(&channel, channel.tuning(), &mut bytes, leader).await?;
        let head = pair_from_bytes(bytes);
        if others.is_empty() {
            others = coll::zeros(Identity::BYTES * head[0] as usize)?;
        }
        coll::bcast(&channel, channel.tuning(), &mut others, leader).await?;
        Ok((head, others))
    })?;
    let numbers = match dynamic::are_of_several_jobs(&dynamic::identities(&local.group)?, &others) {
        false => dynamic::numbers(&others)?,
        true => dynamic::swap_business_cards(function, local, leader as u32, |mine| {
            let (channel, remote_leader) = leaders.as_ref().ok_or_else(|| Error::new(MPI_ERR_INTERN, "only leaders speak with leaders"))?;
            block(channel.cell(), function, async {
                let mut length = [0; 8];
                swap(channel, *remote_leader, &(mine.len() as u64).to_ne_bytes(), &mut length).await?;
                let mut theirs = coll::zeros(u64::from_ne_bytes(length) as usize)?;
                swap(channel, *remote_leader, mine, &mut theirs).await?;
                Ok(theirs)
            })
        })?,
    };
    let remote = Group::new(numbers, world::me()).of_session(local.group.session());
    check_disjoint(&local.group, &remote).map_err(|e| Error::new(MPI_ERR_COMM, e.detail))?;
    Comm::new(Context::from_raw(head[1]), local.group.clone(), Some(remote), local.errhandler())
}

fn pair_to_bytes(pair: [u64; 2]) -> [u8; 16] {
    ((pair[1] as u128) << 64 | pair[0] as u128).to_ne_bytes()
}

fn pair_from_bytes(bytes: [u8; 16]) -> [u64; 2] {
    let both = u128::from_ne_bytes(bytes);
    [both as u64, (both >> 64) as u64]
}

/// Sends to and receives from one rank of the other side, at once.
async fn swap(channel: &Channel, peer: usize, mine: &[u8], theirs: &mut [u8]) -> Result<()> {
    let heard = InterLink::recv(channel, peer, theirs);
    InterLink::send(channel, peer, mine).await?;
    heard.await
}

/// `MPI_Intercomm_create_from_groups`: `group` has this process.
#[allow(clippy::too_many_arguments)]
pub fn intercomm_from_groups(
    function: &'static str,
    group: &Arc<Group>,
    local_leader: i32,
    remote: &Arc<Group>,
    remote_leader: i32,
    string_tag: &[u8],
    errhandler: handle::Errhandler,
) -> Result<Option<Arc<Comm>>> {
    if group.size() == 0 || remote.size() == 0 {
        return Ok(None);
    }
    let leader = check_leader("local_leader", local_leader, group.size(), MPI_ERR_ARG)?;
    let remote_leader = check_leader("remote_leader", remote_leader, remote.size(), MPI_ERR_ARG)?;
    check_disjoint(group, remote)?;
    let first = group.process(leader) < remote.process(remote_leader);
    let both = if first { [&**group, &**remote] } else { [&**remote, &**group] };
    let channel = Channel::bootstrap(group, Some(remote), meeting_tag(string_tag, &both))?;
    let context = block(channel.cell(), function, async {
        let mut bytes = [0; 8];
        if Link::rank(&channel) == leader as usize {
            if first {
                bytes = fresh_context()?.raw().to_ne_bytes();
                InterLink::send(&channel, remote_leader as usize, &bytes).await?;
            } else {
                InterLink::recv(&channel, remote_leader as usize, &mut bytes).await?;
            }
        }
        coll::bcast(&channel, channel.tuning(), &mut bytes, leader as usize).await?;
        Ok(Context::from_raw(u64::from_ne_bytes(bytes)))
    })?;
    Comm::new(context, group.clone(), Some(remote.clone()), errhandler).map(Some)
}

/// `MPI_Intercomm_merge`: the group that says `high` comes last.
pub fn merge(function: &'static str, old: &Comm, high: bool) -> Result<Arc<Comm>> {
    let remote = old.remote.as_ref().ok_or_else(|| Error::new(MPI_ERR_COMM, "the communicator is an intracommunicator"))?;
    let first = comes_first(&old.group, remote);
    let channel = Channel::new(old, Call::named(function))?;
    let own = [high as u64, fresh_context()?.raw()];
    let theirs = block(channel.cell(), function, async {
        let (mine, mut bytes) = (pair_to_bytes(own), [0; 16]);
        let mut context = own[1].to_ne_bytes();
        if Link::rank(&channel) == 0 {
            swap(&channel, 0, &mine, &mut bytes).await?;
        }
        coll::bcast(&channel, channel.tuning(), &mut bytes, 0).await?;
        coll::bcast(&channel, channel.tuning(), &mut context, 0).await?;
        Ok([pair_from_bytes(bytes), [0, u64::from_ne_bytes(context)]])
    })?;
    let [[their_high, their_context], [_, context]] = theirs;
    let before = if high as u64 == their_high { first } else { !high };
    let (low, last) = if before { (&old.group, remote) } else { (remote, &old.group) };
    let group = Group::new(low.processes().chain(last.processes()).collect(), world::me()).of_session(old.group.session());
    Comm::new(Context::from_raw(if first { context } else { their_context }), group, None, old.errhandler())
}

/// A communicator of the first `order.len()` ranks, in that order: `None` for the others.
pub fn placed(function: &'static str, old: &Comm, order: &[u32]) -> Result<Option<Arc<Comm>>> {
    let channel = Channel::new(old, Call::named(function))?;
    let context = block(channel.cell(), function, agree(&channel, true, true))?;
    if old.rank as usize >= order.len() {
        return Ok(None);
    }
    let own = order.len() == old.size() as usize && order.iter().enumerate().all(|(place, rank)| place as u32 == *rank);
    let group = if own {
        old.group.clone()
    } else {
        Group::new(order.iter().map(|rank| old.group.process(*rank)).collect(), world::me()).of_session(old.group.session())
    };
    Comm::new(context, group, None, old.errhandler()).map(Some)
}

/// Which of the first `size` ranks takes which place of a virtual topology. Where the program allows another order than theirs,
/// all members find the same one by where each of them runs; `edges`, and an order as [`placement::arrange`] takes it, are asked for where
/// that may help.
pub fn order(function: &'static str, old: &Comm, size: u32, reorder: bool, edges: impl FnOnce() -> Result<(Vec<Edge>, Vec<u32>)>) -> Result<Vec<u32>> {
    let own = || (0..size).collect();
    if !reorder || old.size() as usize > placement::RANKS_MAX {
        return Ok(own());
    }
    // The same numbers on another host are other parts.
    let host = [host()?];
    let mine: Vec<u8> = host.iter().chain(&hardware::place()).flat_map(|n| n.to_ne_bytes()).collect();
    let all = allgather_bytes(function, old, &mine)?;
    let parts = |bytes: &[u8]| bytes.chunks_exact(4).map(|n| i32::from_ne_bytes(n.try_into().expect("four bytes"))).collect();
    let machine = Machine::new(&all.chunks_exact(mine.len()).take(size as usize).map(parts).collect::<Vec<Vec<i32>>>());
    if machine.flat() {
        return Ok(own());
    }
    let (edges, blocks) = edges()?;
    Ok(placement::arrange(&machine, &edges, &blocks).unwrap_or_else(own))
}

/// What each rank says of its edges in a distributed graph.
pub fn gather_dists(function: &'static str, comm: &Comm, mine: &Dist) -> Result<Vec<Dist>> {
    let words: Vec<u8> = mine.to_words().iter().flat_map(|n| n.to_ne_bytes()).collect();
    let outgoing = (0..comm.size()).map(|_| coll::copy(&words)).collect::<Result<Vec<_>>>()?;
    let all = alltoall_bytes(function, comm, &outgoing)?;
    let dist = |bytes: &Vec<u8>| {
        let words: Vec<i32> = bytes.chunks_exact(4).map(|n| i32::from_ne_bytes(n.try_into().expect("four bytes"))).collect();
        Dist::from_words(&words).ok_or_else(|| Error::new(MPI_ERR_INTERN, "a rank's edges came incomplete"))
    };
    all.iter().map(dist).collect()
}

/// `MPI_Dist_graph_create`: every rank brings any edges (source, destination, weight) and gets those that concern it, in the order
/// of the ranks that brought them.
pub fn gather_edges(function: &'static str, comm: &Comm, edges: &[[i32; 3]], weighted: bool) -> Result<Dist> {
    // Each edge goes to both of its ends, marked with the end that it is for.
    let mut outgoing = vec![Vec::new(); comm.size() as usize];
    for [source, destination, weight] in edges {
        for (to, row) in [(*source, [0, *destination, *weight]), (*destination, [1, *source, *weight])] {
            let outgoing: &mut Vec<u8> = &mut outgoing[to as usize];
            outgoing.try_reserve(12).map_err(|_| coll::no_memory(outgoing.len() + 12))?;
            outgoing.extend(row.iter().flat_map(|n| n.to_ne_bytes()));
        }
    }
    let mut dist = Dist { sources: vec![], source_weights: vec![], destinations: vec![], destination_weights: vec![], weighted };
    for row in alltoall_bytes(function, comm, &outgoing)?.iter().flat_map(|bytes| bytes.chunks_exact(12)) {
        let int = |at: usize| i32::from_ne_bytes(row[at..at + 4].try_into().expect("four bytes"));
        let (ranks, weights) = match int(0) {
            0 => (&mut dist.destinations, &mut dist.destination_weights),
            _ => (&mut dist.sources, &mut dist.source_weights),
        };
        ranks.push(int(4));
        if weighted {
            weights.push(int(8));
        }
    }
    Ok(dist)
}

/// The handle of a new communicator, or null.
pub fn publish(comm: Option<Arc<Comm>>) -> Result<handle::Comm> {
    comm.map_or(Ok(MPI_COMM_NULL), comm::publish)
}

/// The info key that names a kind of hardware (MPI-5.0 §7.4.2).
const RESOURCE_KEY: &[u8] = b"mpi_hw_resource_type";
const PSET_KEY: &[u8] = b"mpi_pset_name";
/// The kind of resource that `MPI_COMM_TYPE_SHARED` means.
const SHARED_MEMORY: &[u8] = b"mpi_shared_memory";

/// `MPI_Comm_split_type` (MPI-5.0 §7.4.2).
pub fn split_type(function: &'static str, old: &Comm, split_type: i32, key: i32, info: handle::Info) -> Result<Option<Arc<Comm>>> {
    let hints = crate::info::hints(info)?;
    let color = match split_type {
        MPI_COMM_TYPE_SHARED => memory_of(old)?,
        MPI_UNDEFINED => MPI_UNDEFINED,
        MPI_COMM_TYPE_HW_GUIDED | MPI_COMM_TYPE_RESOURCE_GUIDED => {
            match (hints.value(RESOURCE_KEY)?, hints.value(PSET_KEY)?) {
                (Some(SHARED_MEMORY), _) => memory_of(old)?,
                (Some(kind), _) => Resource::named(kind).map_or(Ok(None), instance_used)?.unwrap_or(MPI_UNDEFINED),
                (None, Some(name)) if split_type == MPI_COMM_TYPE_RESOURCE_GUIDED => {
                    match crate::session::members_of(name) {
                        // One process set is one resource; sets of one process each differ by process.
                        Some(group) if group.size() == 1 => world::me() as i32,
                        Some(_) => 0,
                        None => MPI_UNDEFINED,
                    }
                }
                (None, _) => MPI_UNDEFINED,
            }
        }
        // Two groups share no instance that is smaller than what they have in common already.
        MPI_COMM_TYPE_HW_UNGUIDED if old.remote.is_some() => MPI_UNDEFINED,
        MPI_COMM_TYPE_HW_UNGUIDED => return split_hardware(function, old, key, info),
        other => return Err(Error::new(MPI_ERR_ARG, format!("split_type = {other} is none of the standard's"))),
    };
    split(function, old, color, key)
}

/// The colour of those who share memory with this process: the lowest process that is reached through memory.
fn shared_memory() -> Result<i32> {
    Ok(world::get()?.process.memory_ranks()[0] as i32)
}

/// A number that tells this host from others: its lowest process.
fn host() -> Result<i32> {
    Ok(world::get()?.process.local_ranks()[0] as i32)
}

/// The same among the members of `comm`, who may be of several jobs: only those of one job share memory.
fn memory_of(comm: &Comm) -> Result<i32> {
    if !comm.reaches_beyond {
        return shared_memory();
    }
    let local = world::get()?.process.memory_ranks();
    let first = (0..).zip(comm.group.processes()).find(|(_, process)| local.binary_search(process).is_ok());
    let own = first.map_or(comm.rank, |(rank, _)| rank) as i32;
    // Ranks of both groups of an intercommunicator are the same numbers, but no colour is one of both then.
    Ok(if comm.remote.as_ref().is_some_and(|remote| comes_first(remote, &comm.group)) { own + comm.peers().size() as i32 } else { own })
}

/// The one instance of `kind` that this process may run on, as a number that no instance on another host has.
fn instance_used(kind: Resource) -> Result<Option<i32>> {
    let host = host()?;
    Ok(hardware::used(kind).map(|n| host * hardware::CPUS_MAX as i32 + n as i32))
}

/// Splits by the largest resource whose users are fewer than all members; says which in `info`.
fn split_hardware(function: &'static str, old: &Comm, key: i32, info: handle::Info) -> Result<Option<Arc<Comm>>> {
    let mine: Result<Vec<_>> = Resource::ALL.into_iter().map(|kind| Ok(instance_used(kind)?.unwrap_or(-1).to_ne_bytes())).collect();
    let mine = mine?.concat();
    let all = allgather_bytes(function, old, &mine)?;
    let instance = |rank: usize, kind: usize| {
        let at = rank * mine.len() + 4 * kind;
        i32::from_ne_bytes(all[at..at + 4].try_into().expect("four bytes"))
    };
    let ranks = old.size() as usize;
    // A strict subset for everybody: nobody's instance has all members.
    let kind = (0..Resource::ALL.len()).find(|kind| (0..ranks).any(|r| instance(r, *kind) != instance(0, *kind)));
    let color = match kind.map(|kind| instance(old.rank as usize, kind)) {
        Some(instance) if instance >= 0 => instance,
        _ => MPI_UNDEFINED,
    };
    let made = split(function, old, color, key)?;
    if let (Some(kind), true, true) = (kind, made.is_some(), info != MPI_INFO_NULL) {
        crate::info::change(info, |pairs| pairs.set(RESOURCE_KEY, Resource::ALL[kind].name().as_bytes()))?;
    }
    Ok(made)
}
