//! Groups that run on several hosts, some of which have several members: what the members of a host can pass on through memory crosses to another host once.
//! In each host one rank leads; the root leads its own. Leaders do among themselves what all would do, members of a host the rest.

use super::choose::{Algorithm, Allgather, Allreduce, Alltoall, Barrier, Bcast, Case, Gather, Reduce, ReduceScatter, Scatter, Selector};
use super::place::{Hosts, Place};
use super::work::{Batch, block, block_bytes, parts, recv, scratch, starts};
use super::{Link, Reducer, Scratch, Tuning};
use crate::error::Result;
use smallvec::SmallVec;

/// Past this many hosts a long broadcast goes among leaders as it would among all.
const TREE_HOSTS_MAX: usize = 3;

/// The hosts, where a collective goes by them.
fn chosen<'l, L: Link, A: Algorithm>(link: &'l L, selector: &Selector<A>, by_host: A, case: impl FnOnce() -> Case) -> Option<&'l Hosts> {
    let hosts = link.hosts()?;
    let case = case();
    (case.bytes > 0 && selector.pick(&case) == by_host).then_some(hosts)
}

/// Returns once every rank of the group has called it. No temporaries.
pub async fn barrier<L: Link>(link: &L, tuning: &Tuning) -> Result<()> {
    match link.hosts() {
        Some(hosts) if tuning.barrier.pick(&Case::new(link, 0)) == Barrier::Hosts => Box::pin(barrier_by_host(link, hosts, tuning)).await,
        _ => super::barrier::barrier(link, tuning).await,
    }
}

/// Copies `buf` of `root` into `buf` of every rank; its length is the same everywhere. No temporaries.
pub async fn bcast<L: Link>(link: &L, tuning: &Tuning, buf: &mut [u8], root: usize) -> Result<()> {
    match chosen(link, &tuning.bcast, Bcast::Hosts, || Case::new(link, buf.len())) {
        Some(hosts) => Box::pin(bcast_by_host(link, hosts, tuning, buf, root)).await,
        None => super::bcast::bcast(link, tuning, buf, root).await,
    }
}

/// Collects one block of equal length from each rank in `recv` of `root`, in rank order. `mine: None` is
/// `MPI_IN_PLACE`, at the root only; `recv` matters at the root only.
pub async fn gather<L: Link>(link: &L, tuning: &Tuning, mine: Option<&[u8]>, recv: &mut [u8], root: usize) -> Result<()> {
    let case = || Case::new(link, if link.rank() == root { block_bytes(recv.len(), link.size()) } else { mine.map_or(0, <[u8]>::len) });
    match chosen(link, &tuning.gather, Gather::Hosts, case) {
        Some(hosts) => Box::pin(gather_by_host(link, hosts, tuning, mine, recv, root)).await,
        None => super::gather::gather(link, tuning, mine, recv, root).await,
    }
}

/// Hands block `i` of `send` of `root` to rank `i`, in `mine`; all blocks have equal length. `mine: None` is
/// `MPI_IN_PLACE`, at the root only; `send` matters at the root only.
pub async fn scatter<L: Link>(link: &L, tuning: &Tuning, send: &[u8], mine: Option<&mut [u8]>, root: usize) -> Result<()> {
    let case = || Case::new(link, if link.rank() == root { block_bytes(send.len(), link.size()) } else { mine.as_deref().map_or(0, <[u8]>::len) });
    match chosen(link, &tuning.scatter, Scatter::Hosts, case) {
        Some(hosts) => Box::pin(scatter_by_host(link, hosts, tuning, send, mine, root)).await,
        None => super::scatter::scatter(link, tuning, send, mine, root).await,
    }
}

/// Collects one block of equal length from each rank in `recv` of every rank. `mine: None` is `MPI_IN_PLACE`.
pub async fn allgather<L: Link>(link: &L, tuning: &Tuning, mine: Option<&[u8]>, recv: &mut [u8]) -> Result<()> {
    match chosen(link, &tuning.allgather, Allgather::Hosts, || Case::new(link, recv.len())) {
        Some(hosts) => Box::pin(allgather_by_host(link, hosts, tuning, mine, recv)).await,
        None => super::allgather::allgather(link, tuning, mine, recv).await,
    }
}

/// Block `j` of `send` of rank `i` goes to block `i` of `recv` of rank `j`; all blocks have equal length.
/// `send: None` is `MPI_IN_PLACE`, everywhere or nowhere: `recv` holds the data and is replaced.
pub async fn alltoall<L: Link>(link: &L, tuning: &Tuning, send: Option<&[u8]>, recv: &mut [u8]) -> Result<()> {
    match chosen(link, &tuning.alltoall, Alltoall::Hosts, || Case::new(link, block_bytes(recv.len(), link.size()))) {
        Some(hosts) => Box::pin(alltoall_by_host(link, hosts, tuning, send, recv)).await,
        None => super::alltoall::alltoall(link, tuning, send, recv).await,
    }
}

/// Combines the vectors of all ranks, in rank order, in `recv` of `root`. `mine: None` is `MPI_IN_PLACE`, at the root
/// only; `recv` matters at the root only.
pub async fn reduce<L: Link, R: Reducer + ?Sized>(link: &L, tuning: &Tuning, op: &R, mine: Option<&[u8]>, recv: &mut [u8], root: usize) -> Result<()> {
    let case = || Case::reducing(link, op, if link.rank() == root { recv.len() } else { mine.map_or(0, <[u8]>::len) });
    match chosen(link, &tuning.reduce, Reduce::Hosts, case) {
        Some(hosts) => Box::pin(reduce_by_host(link, hosts, tuning, op, mine, recv, root)).await,
        None => super::reduce::reduce(link, tuning, op, mine, recv, root).await,
    }
}

/// Combines the vectors of all ranks, in rank order, in `recv` of every rank. `mine: None` is `MPI_IN_PLACE`.
pub async fn allreduce<L: Link, R: Reducer + ?Sized>(link: &L, tuning: &Tuning, op: &R, mine: Option<&[u8]>, recv: &mut [u8]) -> Result<()> {
    match chosen(link, &tuning.allreduce, Allreduce::Hosts, || Case::reducing(link, op, recv.len())) {
        Some(hosts) => Box::pin(allreduce_by_host(link, hosts, tuning, op, mine, recv)).await,
        None => super::allreduce::allreduce(link, tuning, op, mine, recv).await,
    }
}

/// Combines the vectors of all ranks, in rank order, and leaves block `rank`, of `counts_bytes[rank]`, at the start of
/// `recv`. `mine: None` is `MPI_IN_PLACE`: the whole vector lies in `recv`. `counts_bytes` is the same on every rank.
pub async fn reduce_scatter<L: Link, R: Reducer + ?Sized>(
    link: &L,
    tuning: &Tuning,
    op: &R,
    mine: Option<&[u8]>,
    recv: &mut [u8],
    counts_bytes: &[usize],
) -> Result<()> {
    assert_eq!(counts_bytes.len(), link.size(), "one count per rank");
    scattered(link, tuning, op, mine, recv, starts(counts_bytes.iter().copied())).await
}

/// As [`reduce_scatter`] with blocks of equal length `block_bytes`.
pub async fn reduce_scatter_block<L: Link, R: Reducer + ?Sized>(
    link: &L,
    tuning: &Tuning,
    op: &R,
    mine: Option<&[u8]>,
    recv: &mut [u8],
    block_bytes: usize,
) -> Result<()> {
    scattered(link, tuning, op, mine, recv, starts(std::iter::repeat_n(block_bytes, link.size()))).await
}

async fn scattered<L: Link, R: Reducer + ?Sized>(link: &L, tuning: &Tuning, op: &R, mine: Option<&[u8]>, recv: &mut [u8], starts: Vec<usize>) -> Result<()> {
    match chosen(link, &tuning.reduce_scatter, ReduceScatter::Hosts, || Case::reducing(link, op, starts[link.size()])) {
        Some(hosts) => Box::pin(reduce_scatter_by_host(link, hosts, tuning, op, mine, recv, &starts)).await,
        None => super::reduce_scatter::reduce_scatter(link, tuning, op, mine, recv, &starts).await,
    }
}

/// This rank's place among hosts and leaders.
struct View<'a, L> {
    link: &'a L,
    hosts: &'a Hosts,
    /// The own host, and the own place there.
    host: usize,
    place: usize,
    /// The leader of each host, and the place of this host's leader.
    leaders: SmallVec<[u32; 8]>,
    leader: usize,
    /// The host that the root leads.
    root: usize,
}

impl<'a, L: Link> View<'a, L> {
    /// `root`: who leads its host; elsewhere the lowest rank does.
    fn new(link: &'a L, hosts: &'a Hosts, root: usize) -> View<'a, L> {
        let host = hosts.of(link.rank());
        let mut leaders: SmallVec<[u32; 8]> = (0..hosts.count()).map(|host| hosts.members(host)[0]).collect();
        leaders[hosts.of(root)] = root as u32;
        let place = |rank: u32| hosts.members(host).binary_search(&rank).expect("a rank of this host");
        let (place, leader) = (place(link.rank() as u32), place(leaders[host]));
        View { link, hosts, host, place, leaders, leader, root: hosts.of(root) }
    }

    fn leads(&self) -> bool {
        self.place == self.leader
    }

    /// The members of this host.
    fn here(&self) -> L {
        self.link.part(self.hosts.members(self.host), self.place, if self.hosts.crowded() { Place::Crowded } else { Place::Host })
    }

    /// The leaders; for them alone.
    fn among_leaders(&self) -> L {
        self.link.part(&self.leaders, self.host, Place::Hosts)
    }

    /// Members of this host.
    fn members(&self) -> usize {
        self.hosts.places(self.host).len()
    }
}

/// Of a binomial tree of `size` places, those above and below `place`; the largest subtree first.
fn binomial(place: usize, size: usize) -> (Option<usize>, impl Iterator<Item = usize>) {
    let mask = if place == 0 { size.next_power_of_two() } else { 1 << place.trailing_zeros() };
    let below = std::iter::successors(Some(mask >> 1), |mask| Some(mask >> 1)).take_while(|mask| *mask > 0);
    ((place != 0).then(|| place - mask), below.map(move |mask| place + mask).filter(move |child| *child < size))
}

/// Up a binomial tree in each host, among the leaders, and down again. No temporaries.
async fn barrier_by_host<L: Link>(link: &L, hosts: &Hosts, tuning: &Tuning) -> Result<()> {
    let view = View::new(link, hosts, 0);
    let here = view.here();
    let (above, below) = binomial(view.place, here.size());
    let below: SmallVec<[usize; 8]> = below.collect();
    for child in below.iter().rev() {
        here.recv(*child, &mut []).await?;
    }
    match above {
        Some(above) => {
            let answer = here.recv(above, &mut []);
            here.send(above, &[]).await?;
            answer.await?;
        }
        None => super::barrier::barrier(&view.among_leaders(), tuning).await?,
    }
    for child in below {
        here.send(child, &[]).await?;
    }
    Ok(())
}

/// Down a tree that reaches each host once. A long message to many hosts goes among the leaders as it would among all, since the root of a tree would send it
/// too often; within a host it takes little time beside that. No temporaries.
async fn bcast_by_host<L: Link>(link: &L, hosts: &Hosts, tuning: &Tuning, buf: &mut [u8], root: usize) -> Result<()> {
    let view = View::new(link, hosts, root);
    if buf.len() >= 2 * tuning.segment_bytes && hosts.count() > TREE_HOSTS_MAX {
        if view.leads() {
            super::bcast::bcast(&view.among_leaders(), tuning, buf, view.root).await?;
        }
        return super::bcast::bcast(&view.here(), tuning, buf, view.leader).await;
    }
    // Places are counted from the root's host, and from the leader.
    let (count, members) = (hosts.count(), view.members());
    let turned = |place: usize, first: usize, size: usize| (place + size - first) % size;
    let (above, below) = binomial(turned(view.place, view.leader, members), members);
    let member = |place: usize| hosts.members(view.host)[(place + view.leader) % members] as usize;
    let leader = |place: usize| view.leaders[(place + view.root) % count] as usize;
    let (mut parent, mut children) = (above.map(member), SmallVec::<[usize; 8]>::new());
    if view.leads() {
        let (above, below) = binomial(turned(view.host, view.root, count), count);
        parent = above.map(leader);
        children.extend(below.map(leader));
    }
    children.extend(below.map(member));
    if let Some(parent) = parent {
        recv(link, parent, buf).await?;
    }
    let mut sends = Batch::new();
    for child in children {
        sends.send(link, child, buf).await?;
    }
    sends.finish().await
}

/// In each host to its leader, then among the leaders to the root. Temporary: one vector at leaders, and what the parts take.
async fn reduce_by_host<L: Link, R: Reducer + ?Sized>(
    link: &L,
    hosts: &Hosts,
    tuning: &Tuning,
    op: &R,
    mine: Option<&[u8]>,
    recv: &mut [u8],
    root: usize,
) -> Result<()> {
    let view = View::new(link, hosts, root);
    let here = view.here();
    if !view.leads() {
        return super::reduce::reduce(&here, tuning, op, mine, &mut [], view.leader).await;
    }
    if link.rank() == root {
        super::reduce::reduce(&here, tuning, op, mine, recv, view.leader).await?;
        return super::reduce::reduce(&view.among_leaders(), tuning, op, None, recv, view.root).await;
    }
    if view.members() == 1 {
        return super::reduce::reduce(&view.among_leaders(), tuning, op, mine, &mut [], view.root).await;
    }
    let mut value = scratch(mine.map_or(0, <[u8]>::len))?;
    super::reduce::reduce(&here, tuning, op, mine, &mut value, view.leader).await?;
    super::reduce::reduce(&view.among_leaders(), tuning, op, Some(&value), &mut [], view.root).await
}

/// Short, or where hosts have different numbers of members: in each host to its leader, among the leaders, and down. From half a segment on: each member of
/// a host combines a part, with its likes on other hosts. Temporary: what the parts take; where divided, a part.
async fn allreduce_by_host<L: Link, R: Reducer + ?Sized>(link: &L, hosts: &Hosts, tuning: &Tuning, op: &R, mine: Option<&[u8]>, all: &mut [u8]) -> Result<()> {
    if let Some(mine) = mine {
        all.copy_from_slice(mine);
    }
    let view = View::new(link, hosts, 0);
    let here = view.here();
    if all.len() >= tuning.segment_bytes / 2 && hosts.shape().even {
        let each = view.members();
        let (size, elements) = (op.element_bytes(), all.len() / op.element_bytes());
        let counts: Vec<usize> = (0..each).map(|part| (elements * (part + 1) / each - elements * part / each) * size).collect();
        let starts = starts(counts.iter().copied());
        let mut part = scratch(counts[view.place])?;
        super::reduce_scatter::reduce_scatter(&here, tuning, op, Some(all), &mut part, &starts).await?;
        let likes: SmallVec<[u32; 8]> = (0..hosts.count()).map(|host| hosts.members(host)[view.place]).collect();
        let across = link.part(&likes, view.host, Place::Hosts);
        super::allreduce::allreduce(&across, tuning, op, None, &mut part).await?;
        all[starts[view.place]..starts[view.place + 1]].copy_from_slice(&part);
        let mut blocks: SmallVec<[&mut [u8]; 8]> = parts(all, counts.into_iter()).collect();
        return super::allgather::allgatherv(&here, tuning, None, &mut blocks).await;
    }
    if view.leads() {
        super::reduce::reduce(&here, tuning, op, None, all, view.leader).await?;
        super::allreduce::allreduce(&view.among_leaders(), tuning, op, None, all).await?;
    } else {
        super::reduce::reduce(&here, tuning, op, Some(all), &mut [], view.leader).await?;
    }
    super::bcast::bcast(&here, tuning, all, view.leader).await
}

/// In each host to its leader, from there to the root. Temporary: the blocks of a host at leaders; all of them at the root where ranks of a host do not follow
/// one another.
async fn gather_by_host<L: Link>(link: &L, hosts: &Hosts, tuning: &Tuning, mine: Option<&[u8]>, all: &mut [u8], root: usize) -> Result<()> {
    let view = View::new(link, hosts, root);
    let here = view.here();
    if !view.leads() {
        return super::gather::gather(&here, tuning, mine, &mut [], view.leader).await;
    }
    let Some(bytes) = super::gather::own_block(link, mine, all, root) else { return Ok(()) };
    if link.rank() != root {
        let mut blocks = scratch(view.members() * bytes)?;
        super::gather::gather(&here, tuning, mine, &mut blocks, view.leader).await?;
        return super::gather::gatherv(&view.among_leaders(), Some(&blocks), &mut [], view.root).await;
    }
    let (places, mut by_host) = (hosts.places(view.host), None);
    if !hosts.shape().in_order {
        let mut blocks = scratch(all.len())?;
        blocks[block(places.start + view.place, bytes)].copy_from_slice(&all[block(root, bytes)]);
        by_host = Some(blocks);
    }
    let blocks: &mut [u8] = by_host.as_deref_mut().unwrap_or(all);
    super::gather::gather(&here, tuning, None, &mut blocks[places.start * bytes..places.end * bytes], view.leader).await?;
    super::gather::gatherv(&view.among_leaders(), None, &mut of_hosts(hosts, blocks, bytes), view.root).await?;
    if let Some(blocks) = by_host {
        hosts.in_rank_order(&blocks, all, bytes);
    }
    Ok(())
}

/// The blocks of each host.
fn of_hosts<'b>(hosts: &Hosts, blocks: &'b mut [u8], bytes: usize) -> SmallVec<[&'b mut [u8]; 8]> {
    parts(blocks, (0..hosts.count()).map(|host| hosts.places(host).len() * bytes)).collect()
}

/// From the root to the leaders, and in each host to its members. Temporary: as of [`gather_by_host`].
async fn scatter_by_host<L: Link>(link: &L, hosts: &Hosts, tuning: &Tuning, all: &[u8], mine: Option<&mut [u8]>, root: usize) -> Result<()> {
    let view = View::new(link, hosts, root);
    let here = view.here();
    if !view.leads() {
        return super::scatter::scatter(&here, tuning, &[], mine, view.leader).await;
    }
    let mine = mine.unwrap_or_default();
    let Some(bytes) = super::scatter::own_block(link, all, mine, root) else { return Ok(()) };
    if link.rank() != root {
        let mut blocks = scratch(view.members() * bytes)?;
        super::scatter::scatterv(&view.among_leaders(), &[], Some(&mut blocks), view.root).await?;
        return super::scatter::scatter(&here, tuning, &blocks, Some(mine), view.leader).await;
    }
    let mut by_host: Option<Scratch> = None;
    if !hosts.shape().in_order {
        let mut blocks = scratch(all.len())?;
        hosts.ranks.iter().zip(blocks.chunks_exact_mut(bytes)).for_each(|(rank, into)| into.copy_from_slice(&all[block(*rank as usize, bytes)]));
        by_host = Some(blocks);
    }
    let blocks = by_host.as_deref().unwrap_or(all);
    let of = |host: usize| &blocks[hosts.places(host).start * bytes..hosts.places(host).end * bytes];
    let each: SmallVec<[&[u8]; 8]> = (0..hosts.count()).map(of).collect();
    super::scatter::scatterv(&view.among_leaders(), &each, None, view.root).await?;
    super::scatter::scatter(&here, tuning, each[view.host], None, view.leader).await
}

/// In each host to its leader, among the leaders, and down. Temporary: all blocks where ranks of a host do not follow one another; what the parts take.
async fn allgather_by_host<L: Link>(link: &L, hosts: &Hosts, tuning: &Tuning, mine: Option<&[u8]>, all: &mut [u8]) -> Result<()> {
    let bytes = block_bytes(all.len(), link.size());
    if let Some(mine) = mine {
        all[block(link.rank(), bytes)].copy_from_slice(mine);
    }
    let view = View::new(link, hosts, 0);
    let (here, places) = (view.here(), hosts.places(view.host));
    let mut by_host: Option<Scratch> = None;
    if !hosts.shape().in_order {
        let mut blocks = scratch(all.len())?;
        blocks[block(places.start + view.place, bytes)].copy_from_slice(&all[block(link.rank(), bytes)]);
        by_host = Some(blocks);
    }
    let blocks = by_host.as_deref_mut().unwrap_or(all);
    if view.leads() {
        super::gather::gather(&here, tuning, None, &mut blocks[places.start * bytes..places.end * bytes], view.leader).await?;
        super::allgather::allgatherv(&view.among_leaders(), tuning, None, &mut of_hosts(hosts, blocks, bytes)).await?;
    } else {
        let own = block(places.start + view.place, bytes);
        super::gather::gather(&here, tuning, Some(&blocks[own]), &mut [], view.leader).await?;
    }
    super::bcast::bcast(&here, tuning, blocks, view.leader).await?;
    if let Some(blocks) = by_host {
        hosts.in_rank_order(&blocks, all, bytes);
    }
    Ok(())
}

/// In each host to its leader, among the leaders, and from them. `given` may be what `recv` holds. Temporary: at leaders three times all blocks of the host's members.
async fn alltoall_by_host<L: Link>(link: &L, hosts: &Hosts, tuning: &Tuning, given: Option<&[u8]>, recv: &mut [u8]) -> Result<()> {
    let view = View::new(link, hosts, 0);
    let (here, row, bytes) = (view.here(), recv.len(), block_bytes(recv.len(), link.size()));
    if !view.leads() {
        super::gather::gather(&here, tuning, Some(given.unwrap_or(recv)), &mut [], view.leader).await?;
        return super::scatter::scatter(&here, tuning, &[], Some(recv), view.leader).await;
    }
    let members = view.members();
    // Rows of the members, each with a block for every rank; and what goes to and comes from each host.
    let mut rows = scratch(members * row)?;
    super::gather::gather(&here, tuning, Some(given.unwrap_or(recv)), &mut rows, view.leader).await?;
    let mut crossing = scratch(2 * members * row)?;
    let (out, into) = crossing.split_at_mut(members * row);
    let lengths = starts((0..hosts.count()).map(|host| hosts.places(host).len() * members * bytes));
    let mut next = out.chunks_exact_mut(bytes);
    for host in 0..hosts.count() {
        for of_member in rows.chunks_exact(row) {
            for rank in hosts.members(host) {
                next.next().expect("a block for each pair").copy_from_slice(&of_member[block(*rank as usize, bytes)]);
            }
        }
    }
    let sent: SmallVec<[&[u8]; 8]> = lengths.windows(2).map(|pair| &out[pair[0]..pair[1]]).collect();
    let mut comes = of_hosts(hosts, into, members * bytes);
    super::alltoall::alltoallv(&view.among_leaders(), tuning, Some(&sent), &mut comes).await?;
    drop(comes);
    let mut come = into.chunks_exact(bytes);
    for host in 0..hosts.count() {
        for rank in hosts.members(host) {
            for of_member in rows.chunks_exact_mut(row) {
                of_member[block(*rank as usize, bytes)].copy_from_slice(come.next().expect("a block for each pair"));
            }
        }
    }
    super::scatter::scatter(&here, tuning, &rows, Some(recv), view.leader).await
}

/// In each host to its leader, scattered among the leaders, and in each host. Ranks of a host follow one another. Temporary: one vector at leaders, and what the
/// parts take.
async fn reduce_scatter_by_host<L: Link, R: Reducer + ?Sized>(
    link: &L,
    hosts: &Hosts,
    tuning: &Tuning,
    op: &R,
    mine: Option<&[u8]>,
    recv: &mut [u8],
    starts_of: &[usize],
) -> Result<()> {
    let view = View::new(link, hosts, 0);
    let (here, total) = (view.here(), starts_of[link.size()]);
    let own_bytes = starts_of[link.rank() + 1] - starts_of[link.rank()];
    let given = mine.unwrap_or_else(|| &recv[..total]);
    if !view.leads() {
        super::reduce::reduce(&here, tuning, op, Some(given), &mut [], view.leader).await?;
        return super::scatter::scatterv(&here, &[], Some(&mut recv[..own_bytes]), view.leader).await;
    }
    let mut sum = scratch(total)?;
    super::reduce::reduce(&here, tuning, op, Some(given), &mut sum, view.leader).await?;
    let places = |host: usize| hosts.places(host);
    let of_hosts = starts((0..hosts.count()).map(|host| starts_of[places(host).end] - starts_of[places(host).start]));
    let mut part = scratch(of_hosts[view.host + 1] - of_hosts[view.host])?;
    super::reduce_scatter::reduce_scatter(&view.among_leaders(), tuning, op, Some(&sum), &mut part, &of_hosts).await?;
    let first = starts_of[places(view.host).start];
    let blocks: SmallVec<[&[u8]; 8]> = places(view.host).map(|rank| &part[starts_of[rank] - first..starts_of[rank + 1] - first]).collect();
    super::scatter::scatterv(&here, &blocks, Some(&mut recv[..own_bytes]), view.leader).await
}
