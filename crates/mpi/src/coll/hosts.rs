//! Groups that run on several hosts, some of which have several members: what the members of a host can pass on through memory crosses to another host once.
//! In each host one rank leads; the root leads its own. Leaders do among themselves what all would do, members of a host the rest.

use super::work::{Batch, block, recv, scratch, starts};
use super::{Link, Place, Reducer, Scratch, Tuning};
use crate::error::Result;
use smallvec::SmallVec;
use std::ops::Range;

/// Past this many hosts a long broadcast goes among leaders as it would among all.
const TREE_HOSTS_MAX: usize = 3;

/// Where the members of a group run. Equal on every rank of the group.
#[derive(Debug, PartialEq, Eq)]
pub struct Hosts {
    /// The host of each rank; hosts are numbered in the order of their lowest ranks.
    of: Box<[u32]>,
    /// All ranks, host by host.
    ranks: Box<[u32]>,
    /// Where each host begins there, and the end.
    starts: Box<[u32]>,
    in_order: bool,
    crowded: bool,
}

impl Hosts {
    /// `numbers`: for each rank one that it has in common with those of its host alone. `crowded`: a host has more ranks than cores.
    /// `None` where all ranks are on one host, or each on its own: then there is nothing to be gained.
    pub fn new(numbers: &[u32], crowded: bool) -> Option<Hosts> {
        let mut first = std::collections::HashMap::new();
        let of: Box<[u32]> = numbers
            .iter()
            .map(|number| {
                let next = first.len() as u32;
                *first.entry(*number).or_insert(next)
            })
            .collect();
        let count = first.len();
        if count <= 1 || count == numbers.len() {
            return None;
        }
        let mut ranks: Vec<u32> = (0..numbers.len() as u32).collect();
        ranks.sort_by_key(|rank| of[*rank as usize]);
        let starts = (0..=count as u32).map(|host| ranks.partition_point(|rank| of[*rank as usize] < host) as u32).collect();
        let in_order = ranks.iter().enumerate().all(|(at, rank)| at as u32 == *rank);
        Some(Hosts { of, ranks: ranks.into(), starts, in_order, crowded })
    }

    /// At least 2.
    pub fn count(&self) -> usize {
        self.starts.len() - 1
    }

    /// What the choice of an algorithm depends on.
    pub fn shape(&self) -> Shape {
        let halves = self.each().is_some_and(usize::is_power_of_two);
        Shape { in_order: self.in_order, halves: halves && self.in_order, most: (0..self.count()).map(|host| self.places(host).len()).max().unwrap_or(0) }
    }

    pub fn crowded(&self) -> bool {
        self.crowded
    }

    fn of(&self, rank: usize) -> usize {
        self.of[rank] as usize
    }

    /// Where the ranks of a host are, host by host.
    fn places(&self, host: usize) -> Range<usize> {
        self.starts[host] as usize..self.starts[host + 1] as usize
    }

    /// The ranks of a host, ascending.
    fn members(&self, host: usize) -> &[u32] {
        &self.ranks[self.places(host)]
    }

    /// As many members on each host.
    fn each(&self) -> Option<usize> {
        let each = self.places(0).len();
        (0..self.count()).all(|host| self.places(host).len() == each).then_some(each)
    }

    /// The blocks of all ranks, host by host, in rank order.
    fn in_rank_order(&self, by_host: &[u8], all: &mut [u8], bytes: usize) {
        self.ranks.iter().zip(by_host.chunks_exact(bytes)).for_each(|(rank, from)| all[block(*rank as usize, bytes)].copy_from_slice(from));
    }
}

/// What matters of [`Hosts`] to the choice of an algorithm.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    /// Ranks of a host follow one another, as do hosts.
    pub in_order: bool,
    /// They do, and each host has the same power of two of them: the first steps of recursive halving and doubling stay within hosts.
    pub halves: bool,
    /// Members of a host, at most.
    pub most: usize,
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
        self.link.part(self.hosts.members(self.host), self.place, if self.hosts.crowded { Place::Crowded } else { Place::Host })
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
pub(super) async fn barrier<L: Link>(link: &L, hosts: &Hosts, tuning: &Tuning) -> Result<()> {
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
        None => super::barrier::among(&view.among_leaders(), tuning).await?,
    }
    for child in below {
        here.send(child, &[]).await?;
    }
    Ok(())
}

/// Down a tree that reaches each host once. A long message to many hosts goes among the leaders as it would among all, since the root of a tree would send it
/// too often; within a host it takes little time beside that. No temporaries.
pub(super) async fn bcast<L: Link>(link: &L, hosts: &Hosts, tuning: &Tuning, buf: &mut [u8], root: usize) -> Result<()> {
    let view = View::new(link, hosts, root);
    if buf.len() >= 2 * tuning.segment_bytes && hosts.count() > TREE_HOSTS_MAX {
        if view.leads() {
            super::bcast::among(&view.among_leaders(), tuning, buf, view.root).await?;
        }
        return super::bcast::among(&view.here(), tuning, buf, view.leader).await;
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

/// In each host to its leader, then among the leaders to the root. As [`reduce`](super::reduce), but that the root's value is in `recv`. Temporary: one
/// vector at leaders, and what the parts take.
pub(super) async fn reduce<L: Link, R: Reducer + ?Sized>(
    link: &L,
    hosts: &Hosts,
    tuning: &Tuning,
    op: &R,
    mine: &[u8],
    recv: &mut [u8],
    root: usize,
) -> Result<()> {
    let view = View::new(link, hosts, root);
    let (here, at_root) = (view.here(), link.rank() == root);
    if !view.leads() {
        return super::reduce::among(&here, tuning, op, mine, &mut [], view.leader).await;
    }
    let mut value;
    let all = match (at_root, view.members()) {
        (true, _) => recv,
        (false, 1) => return super::reduce::among(&view.among_leaders(), tuning, op, mine, &mut [], view.root).await,
        _ => {
            value = scratch(mine.len())?;
            value.copy_from_slice(mine);
            &mut value[..]
        }
    };
    super::reduce::among(&here, tuning, op, &[], all, view.leader).await?;
    let leaders = view.among_leaders();
    if at_root {
        super::reduce::among(&leaders, tuning, op, &[], all, view.root).await
    } else {
        super::reduce::among(&leaders, tuning, op, all, &mut [], view.root).await
    }
}

/// Short, or where hosts have different numbers of members: in each host to its leader, among the leaders, and down. From half a segment on: each member of a host combines a part, with its likes on other hosts. In place in
/// `all`. Temporary: what the parts take; where divided, a part.
pub(super) async fn allreduce<L: Link, R: Reducer + ?Sized>(link: &L, hosts: &Hosts, tuning: &Tuning, op: &R, all: &mut [u8]) -> Result<()> {
    let view = View::new(link, hosts, 0);
    let here = view.here();
    if all.len() >= tuning.segment_bytes / 2
        && let Some(each) = hosts.each()
    {
        let (size, elements) = (op.element_bytes(), all.len() / op.element_bytes());
        let counts: Vec<usize> = (0..each).map(|part| (elements * (part + 1) / each - elements * part / each) * size).collect();
        let starts = starts(counts.iter().copied());
        let mut part = scratch(counts[view.place])?;
        super::reduce_scatter::among(&here, tuning, op, Some(all), &mut part, &starts).await?;
        let likes: SmallVec<[u32; 8]> = (0..hosts.count()).map(|host| hosts.members(host)[view.place]).collect();
        let across = link.part(&likes, view.host, Place::Hosts);
        super::allreduce::among(&across, tuning, op, &mut part).await?;
        all[starts[view.place]..starts[view.place + 1]].copy_from_slice(&part);
        let mut rest = all;
        let mut blocks: SmallVec<[&mut [u8]; 8]> = SmallVec::new();
        for count in counts {
            let (block, tail) = rest.split_at_mut(count);
            blocks.push(block);
            rest = tail;
        }
        return super::allgather::allgatherv(&here, tuning, None, &mut blocks).await;
    }
    if view.leads() {
        super::reduce::among(&here, tuning, op, &[], all, view.leader).await?;
        super::allreduce::among(&view.among_leaders(), tuning, op, all).await?;
    } else {
        super::reduce::among(&here, tuning, op, all, &mut [], view.leader).await?;
    }
    super::bcast::among(&here, tuning, all, view.leader).await
}

/// In each host to its leader, from there to the root. As [`gather`](super::gather), but that the root's block is in `all`. Temporary: the blocks of a host at
/// leaders; all of them at the root where ranks of a host do not follow one another.
pub(super) async fn gather<L: Link>(link: &L, hosts: &Hosts, tuning: &Tuning, mine: &[u8], all: &mut [u8], bytes: usize, root: usize) -> Result<()> {
    let view = View::new(link, hosts, root);
    let here = view.here();
    if !view.leads() {
        return super::gather::among(&here, tuning, Some(mine), &mut [], view.leader).await;
    }
    if link.rank() != root {
        let mut blocks = scratch(view.members() * bytes)?;
        super::gather::among(&here, tuning, Some(mine), &mut blocks, view.leader).await?;
        return super::gather::gatherv(&view.among_leaders(), Some(&blocks), &mut [], view.root).await;
    }
    let (places, mut by_host) = (hosts.places(view.host), None);
    if !hosts.in_order {
        let mut blocks = scratch(all.len())?;
        blocks[block(places.start + view.place, bytes)].copy_from_slice(&all[block(root, bytes)]);
        by_host = Some(blocks);
    }
    let blocks: &mut [u8] = by_host.as_deref_mut().unwrap_or(all);
    super::gather::among(&here, tuning, None, &mut blocks[places.start * bytes..places.end * bytes], view.leader).await?;
    super::gather::gatherv(&view.among_leaders(), None, &mut of_hosts(hosts, blocks, bytes), view.root).await?;
    if let Some(blocks) = by_host {
        hosts.in_rank_order(&blocks, all, bytes);
    }
    Ok(())
}

/// The blocks of each host.
fn of_hosts<'b>(hosts: &Hosts, blocks: &'b mut [u8], bytes: usize) -> SmallVec<[&'b mut [u8]; 8]> {
    let mut rest = blocks;
    (0..hosts.count())
        .map(|host| {
            let (these, tail) = std::mem::take(&mut rest).split_at_mut(hosts.places(host).len() * bytes);
            rest = tail;
            these
        })
        .collect()
}

/// From the root to the leaders, and in each host to its members. As [`scatter`](super::scatter), but that the root has its block. Temporary: as for [`gather`].
pub(super) async fn scatter<L: Link>(link: &L, hosts: &Hosts, tuning: &Tuning, all: &[u8], mine: &mut [u8], bytes: usize, root: usize) -> Result<()> {
    let view = View::new(link, hosts, root);
    let here = view.here();
    if !view.leads() {
        return super::scatter::among(&here, tuning, &[], Some(mine), view.leader).await;
    }
    if link.rank() != root {
        let mut blocks = scratch(view.members() * bytes)?;
        super::scatter::scatterv(&view.among_leaders(), &[], Some(&mut blocks), view.root).await?;
        return super::scatter::among(&here, tuning, &blocks, Some(mine), view.leader).await;
    }
    let mut by_host: Option<Scratch> = None;
    if !hosts.in_order {
        let mut blocks = scratch(all.len())?;
        hosts.ranks.iter().zip(blocks.chunks_exact_mut(bytes)).for_each(|(rank, into)| into.copy_from_slice(&all[block(*rank as usize, bytes)]));
        by_host = Some(blocks);
    }
    let blocks = by_host.as_deref().unwrap_or(all);
    let of = |host: usize| &blocks[hosts.places(host).start * bytes..hosts.places(host).end * bytes];
    let each: SmallVec<[&[u8]; 8]> = (0..hosts.count()).map(of).collect();
    super::scatter::scatterv(&view.among_leaders(), &each, None, view.root).await?;
    super::scatter::among(&here, tuning, each[view.host], None, view.leader).await
}

/// In each host to its leader, among the leaders, and down. In place in `all`. Temporary: all blocks where ranks of a host do not follow one another; what the
/// parts take.
pub(super) async fn allgather<L: Link>(link: &L, hosts: &Hosts, tuning: &Tuning, all: &mut [u8], bytes: usize) -> Result<()> {
    let view = View::new(link, hosts, 0);
    let (here, places) = (view.here(), hosts.places(view.host));
    let mut by_host: Option<Scratch> = None;
    if !hosts.in_order {
        let mut blocks = scratch(all.len())?;
        blocks[block(places.start + view.place, bytes)].copy_from_slice(&all[block(link.rank(), bytes)]);
        by_host = Some(blocks);
    }
    let blocks = by_host.as_deref_mut().unwrap_or(all);
    if view.leads() {
        super::gather::among(&here, tuning, None, &mut blocks[places.start * bytes..places.end * bytes], view.leader).await?;
        super::allgather::allgatherv(&view.among_leaders(), tuning, None, &mut of_hosts(hosts, blocks, bytes)).await?;
    } else {
        let own = block(places.start + view.place, bytes);
        super::gather::among(&here, tuning, Some(&blocks[own]), &mut [], view.leader).await?;
    }
    super::bcast::among(&here, tuning, blocks, view.leader).await?;
    if let Some(blocks) = by_host {
        hosts.in_rank_order(&blocks, all, bytes);
    }
    Ok(())
}

/// In each host to its leader, among the leaders, and from them. `given` may be what `recv` holds. Temporary: at leaders three times all blocks of the host's members.
pub(super) async fn alltoall<L: Link>(link: &L, hosts: &Hosts, tuning: &Tuning, given: Option<&[u8]>, recv: &mut [u8], bytes: usize) -> Result<()> {
    let view = View::new(link, hosts, 0);
    let (here, row) = (view.here(), recv.len());
    if !view.leads() {
        super::gather::among(&here, tuning, Some(given.unwrap_or(recv)), &mut [], view.leader).await?;
        return super::scatter::among(&here, tuning, &[], Some(recv), view.leader).await;
    }
    let members = view.members();
    // Rows of the members, each with a block for every rank; and what goes to and comes from each host.
    let mut rows = scratch(members * row)?;
    super::gather::among(&here, tuning, Some(given.unwrap_or(recv)), &mut rows, view.leader).await?;
    let mut crossing = scratch(2 * members * row)?;
    let (out, into) = crossing.split_at_mut(members * row);
    let lengths = || starts((0..hosts.count()).map(|host| hosts.places(host).len() * members * bytes));
    let mut next = out.chunks_exact_mut(bytes);
    for host in 0..hosts.count() {
        for of_member in rows.chunks_exact(row) {
            for rank in hosts.members(host) {
                next.next().expect("a block for each pair").copy_from_slice(&of_member[block(*rank as usize, bytes)]);
            }
        }
    }
    let lengths = lengths();
    let sent: SmallVec<[&[u8]; 8]> = lengths.windows(2).map(|pair| &out[pair[0]..pair[1]]).collect();
    let mut rest = &mut *into;
    let mut comes: SmallVec<[&mut [u8]; 8]> = SmallVec::new();
    for pair in lengths.windows(2) {
        let (these, tail) = rest.split_at_mut(pair[1] - pair[0]);
        comes.push(these);
        rest = tail;
    }
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
    super::scatter::among(&here, tuning, &rows, Some(recv), view.leader).await
}

/// In each host to its leader, scattered among the leaders, and in each host. Ranks of a host follow one another. Temporary: one vector at leaders, and what the
/// parts take.
pub(super) async fn reduce_scatter<L: Link, R: Reducer + ?Sized>(
    link: &L,
    hosts: &Hosts,
    tuning: &Tuning,
    op: &R,
    given: &[u8],
    own: &mut [u8],
    starts_of: &[usize],
) -> Result<()> {
    let view = View::new(link, hosts, 0);
    let here = view.here();
    if !view.leads() {
        super::reduce::among(&here, tuning, op, given, &mut [], view.leader).await?;
        return super::scatter::scatterv(&here, &[], Some(own), view.leader).await;
    }
    let mut sum = scratch(given.len())?;
    sum.copy_from_slice(given);
    super::reduce::among(&here, tuning, op, &[], &mut sum, view.leader).await?;
    let places = |host: usize| hosts.places(host);
    let of_hosts = starts((0..hosts.count()).map(|host| starts_of[places(host).end] - starts_of[places(host).start]));
    let mut part = scratch(of_hosts[view.host + 1] - of_hosts[view.host])?;
    super::reduce_scatter::among(&view.among_leaders(), tuning, op, Some(&sum), &mut part, &of_hosts).await?;
    let first = starts_of[places(view.host).start];
    let blocks: SmallVec<[&[u8]; 8]> = places(view.host).map(|rank| &part[starts_of[rank] - first..starts_of[rank + 1] - first]).collect();
    super::scatter::scatterv(&here, &blocks, Some(own), view.leader).await
}
