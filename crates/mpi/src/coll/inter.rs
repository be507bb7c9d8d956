//! Collectives over an intercommunicator: two groups, what one brings the other gets (MPI-5.0 §6.2.3).
//!
//! Each is built from the collectives of the own group and messages between the groups. There is no `MPI_IN_PLACE`.

use super::choose::{Allgather, Case, Gather, Scatter};
use super::work::{Scratch, before, block, block_bytes, equal_blocks, scratch};
use super::{Link, Reducer, Tuning};
use crate::error::Result;
use std::future::Future;

/// What a collective over two groups may do. The rules of [`Link`] hold for both kinds of messages.
pub trait InterLink {
    /// The own group.
    type Local: Link;
    /// A started operation with the other group; as [`Link::Op`].
    type Op<'a>: Future<Output = Result<()>> + Unpin
    where
        Self: 'a;
    fn local(&self) -> &Self::Local;
    /// Members of the other group, at least 1.
    fn remote_size(&self) -> usize;
    /// Starts sending `data` to rank `to` of the other group.
    fn send<'a>(&'a self, to: usize, data: &'a [u8]) -> Self::Op<'a>;
    /// Starts receiving exactly `into.len()` bytes from rank `from` of the other group.
    fn recv<'a>(&'a self, from: usize, into: &'a mut [u8]) -> Self::Op<'a>;
}

/// The `root` argument of a rank (MPI-5.0 §6.2.3).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Root {
    /// `MPI_ROOT`: this rank.
    Here,
    /// `MPI_PROC_NULL`: another rank of the own group. This rank does nothing.
    Beside,
    /// This rank of the other group.
    Remote(usize),
}

/// Rank that speaks for its group.
const LEADER: usize = 0;

/// Returns once every rank of both groups has called it.
pub async fn barrier<L: InterLink>(link: &L, tuning: &Tuning) -> Result<()> {
    super::barrier(link.local(), tuning).await?;
    if link.local().rank() == LEADER {
        let heard = link.recv(LEADER, &mut []);
        link.send(LEADER, &[]).await?;
        heard.await?;
    }
    super::barrier(link.local(), tuning).await
}

/// Copies `buf` of the root into `buf` of every rank of the other group.
pub async fn bcast<L: InterLink>(link: &L, tuning: &Tuning, buf: &mut [u8], root: Root) -> Result<()> {
    match root {
        Root::Beside => Ok(()),
        Root::Here => send(link, LEADER, buf).await,
        Root::Remote(root) => {
            if link.local().rank() == LEADER {
                recv(link, root, buf).await?;
            }
            super::bcast(link.local(), tuning, buf, LEADER).await
        }
    }
}

/// A choice between two groups reads only what both know: the size of the group that gives or gets the blocks.
fn case(ranks: usize, bytes: usize) -> Case {
    Case { ranks, bytes, elements: 0, commutative: true, crowded: false, remote: false, hosts: None }
}

/// Collects one block of equal length from each rank of the other group in `all` of the root; `mine` matters in the
/// other group only. Temporary: all blocks, at the leader of the other group, if they are short.
pub async fn gather<L: InterLink>(link: &L, tuning: &Tuning, mine: &[u8], all: &mut [u8], root: Root) -> Result<()> {
    match root {
        Root::Beside => Ok(()),
        Root::Here => {
            let bytes = block_bytes(all.len(), link.remote_size());
            if bytes == 0 {
                return Ok(());
            }
            if tuning.gather.pick(&case(link.remote_size(), bytes)) == Gather::Binomial {
                return recv(link, LEADER, all).await;
            }
            let mut blocks: Vec<&mut [u8]> = all.chunks_exact_mut(bytes).collect();
            gatherv(link, mine, &mut blocks, root).await
        }
        Root::Remote(to) => {
            let local = link.local();
            if mine.is_empty() || tuning.gather.pick(&case(local.size(), mine.len())) != Gather::Binomial {
                return send(link, to, mine).await;
            }
            if local.rank() != LEADER {
                return super::gather(local, tuning, Some(mine), &mut [], LEADER).await;
            }
            let mut gathered = scratch(mine.len() * local.size())?;
            super::gather(local, tuning, Some(mine), &mut gathered, LEADER).await?;
            send(link, to, &gathered).await
        }
    }
}

/// Collects a block from each rank of the other group in `all[rank]` of the root; `mine` matters in the other group only.
pub async fn gatherv<L: InterLink>(link: &L, mine: &[u8], all: &mut [&mut [u8]], root: Root) -> Result<()> {
    match root {
        Root::Beside => Ok(()),
        Root::Here => {
            assert_eq!(all.len(), link.remote_size(), "one block per rank");
            for (first, window) in all.chunks_mut(super::IN_FLIGHT).enumerate() {
                let blocks = window.iter_mut().enumerate().filter(|(_, into)| !into.is_empty());
                let started: Vec<_> = blocks.map(|(i, into)| link.recv(first * super::IN_FLIGHT + i, into)).collect();
                for op in started {
                    op.await?;
                }
            }
            Ok(())
        }
        Root::Remote(to) => send(link, to, mine).await,
    }
}

/// Hands block `i` of `all` of the root to rank `i` of the other group, in `mine`, which matters there only; all blocks
/// have equal length. Temporary: all blocks, at the leader of the other group, if they are short.
pub async fn scatter<L: InterLink>(link: &L, tuning: &Tuning, all: &[u8], mine: &mut [u8], root: Root) -> Result<()> {
    match root {
        Root::Beside => Ok(()),
        Root::Here => {
            let bytes = block_bytes(all.len(), link.remote_size());
            if bytes == 0 {
                return Ok(());
            }
            if tuning.scatter.pick(&case(link.remote_size(), bytes)) == Scatter::Binomial {
                return send(link, LEADER, all).await;
            }
            let blocks: Vec<&[u8]> = all.chunks_exact(bytes).collect();
            scatterv(link, &blocks, mine, root).await
        }
        Root::Remote(from) => {
            let local = link.local();
            if mine.is_empty() || tuning.scatter.pick(&case(local.size(), mine.len())) != Scatter::Binomial {
                return recv(link, from, mine).await;
            }
            if local.rank() != LEADER {
                return super::scatter(local, tuning, &[], Some(mine), LEADER).await;
            }
            let mut blocks = scratch(mine.len() * local.size())?;
            recv(link, from, &mut blocks).await?;
            super::scatter(local, tuning, &blocks, Some(mine), LEADER).await
        }
    }
}

/// Hands `all[i]` of the root to rank `i` of the other group, in `mine`, which matters there only.
pub async fn scatterv<L: InterLink>(link: &L, all: &[&[u8]], mine: &mut [u8], root: Root) -> Result<()> {
    match root {
        Root::Beside => Ok(()),
        Root::Here => {
            assert_eq!(all.len(), link.remote_size(), "one block per rank");
            for (first, window) in all.chunks(super::IN_FLIGHT).enumerate() {
                let blocks = window.iter().enumerate().filter(|(_, data)| !data.is_empty());
                let started: Vec<_> = blocks.map(|(i, data)| link.send(first * super::IN_FLIGHT + i, data)).collect();
                for op in started {
                    op.await?;
                }
            }
            Ok(())
        }
        Root::Remote(from) => recv(link, from, mine).await,
    }
}

/// Collects one block from each rank of the other group in `all` of every rank. Blocks of one group have equal length.
/// Temporary: the own group's blocks, at its leader, if they are short.
pub async fn allgather<L: InterLink>(link: &L, tuning: &Tuning, mine: &[u8], all: &mut [u8]) -> Result<()> {
    let local = link.local();
    let total = mine.len() * local.size() + all.len();
    if tuning.allgather.pick(&case(local.size() + link.remote_size(), total)) == Allgather::Ring {
        let mut blocks: Vec<&mut [u8]> = equal_blocks(all, link.remote_size()).collect();
        return meet(link, |_| mine, &mut blocks).await;
    }
    if local.rank() == LEADER {
        let mut gathered = scratch(mine.len() * local.size())?;
        super::gather(local, tuning, Some(mine), &mut gathered, LEADER).await?;
        exchange(link, &gathered, LEADER, all).await?;
    } else {
        super::gather(local, tuning, Some(mine), &mut [], LEADER).await?;
    }
    super::bcast(local, tuning, all, LEADER).await
}

/// Collects a block from each rank of the other group in `all[rank]` of every rank.
pub async fn allgatherv<L: InterLink>(link: &L, mine: &[u8], all: &mut [&mut [u8]]) -> Result<()> {
    meet(link, |_| mine, all).await
}

/// Block `j` of `send` of rank `i` goes to block `i` of `recv` of rank `j` of the other group. Blocks that travel in one
/// direction have equal length.
pub async fn alltoall<L: InterLink>(link: &L, send: &[u8], recv: &mut [u8]) -> Result<()> {
    let bytes = block_bytes(send.len(), link.remote_size());
    let mut blocks: Vec<&mut [u8]> = equal_blocks(recv, link.remote_size()).collect();
    meet(link, |to| &send[block(to, bytes)], &mut blocks).await
}

/// `send[j]` of rank `i` goes to `recv[i]` of rank `j` of the other group. Serves `MPI_Alltoallw` too: the caller packs.
pub async fn alltoallv<L: InterLink>(link: &L, send: &[&[u8]], recv: &mut [&mut [u8]]) -> Result<()> {
    assert_eq!(send.len(), link.remote_size(), "one block per rank");
    meet(link, |to| send[to], recv).await
}

/// Combines the vectors of the other group, in rank order, in `all` of the root; `mine` matters in the other group only.
/// Temporary: one vector at the leader of the other group, beside those of the reduction.
pub async fn reduce<L: InterLink, R: Reducer + ?Sized>(link: &L, tuning: &Tuning, op: &R, mine: &[u8], all: &mut [u8], root: Root) -> Result<()> {
    match root {
        Root::Beside => Ok(()),
        Root::Here => recv(link, LEADER, all).await,
        Root::Remote(to) => {
            let sum = combined(link.local(), tuning, op, mine).await?;
            if link.local().rank() == LEADER { send(link, to, &sum).await } else { Ok(()) }
        }
    }
}

/// Combines the vectors of each group, in rank order, in `all` of every rank of the other one.
/// Temporary: one vector at the leaders, beside those of the reduction.
pub async fn allreduce<L: InterLink, R: Reducer + ?Sized>(link: &L, tuning: &Tuning, op: &R, mine: &[u8], all: &mut [u8]) -> Result<()> {
    let local = link.local();
    let sum = combined(local, tuning, op, mine).await?;
    if local.rank() == LEADER {
        exchange(link, &sum, LEADER, all).await?;
    }
    super::bcast(local, tuning, all, LEADER).await
}

/// Combines the vectors of each group, in rank order, and leaves a block of the result, of `counts_bytes[rank]`, in `recv`
/// of each rank of the other one. `counts_bytes` is that of the own group; both have the same sum.
/// Temporary: two vectors at the leaders, beside those of the reduction.
pub async fn reduce_scatter<L: InterLink, R: Reducer + ?Sized>(
    link: &L,
    tuning: &Tuning,
    op: &R,
    mine: &[u8],
    recv: &mut [u8],
    counts_bytes: &[usize],
) -> Result<()> {
    let local = link.local();
    let sum = combined(local, tuning, op, mine).await?;
    if local.rank() != LEADER {
        return super::scatterv(local, &[], Some(recv), LEADER).await;
    }
    let mut theirs = scratch(mine.len())?;
    exchange(link, &sum, LEADER, &mut theirs).await?;
    let mut rest = &theirs[..];
    let blocks: Vec<&[u8]> = counts_bytes
        .iter()
        .map(|&count| {
            let (block, tail) = rest.split_at(count);
            rest = tail;
            block
        })
        .collect();
    super::scatterv(local, &blocks, Some(recv), LEADER).await
}

/// The combined vectors of the own group at its leader, nothing elsewhere.
async fn combined<L: Link, R: Reducer + ?Sized>(local: &L, tuning: &Tuning, op: &R, mine: &[u8]) -> Result<Scratch> {
    let mut sum = scratch(if local.rank() == LEADER { mine.len() } else { 0 })?;
    super::reduce(local, tuning, op, Some(mine), &mut sum, LEADER).await?;
    Ok(sum)
}

async fn send<L: InterLink>(link: &L, to: usize, data: &[u8]) -> Result<()> {
    if data.is_empty() { Ok(()) } else { link.send(to, data).await }
}

async fn recv<L: InterLink>(link: &L, from: usize, into: &mut [u8]) -> Result<()> {
    if into.is_empty() { Ok(()) } else { link.recv(from, into).await }
}

/// Sends to and receives from one rank of the other group; empty sides are skipped.
async fn exchange<L: InterLink>(link: &L, data: &[u8], peer: usize, into: &mut [u8]) -> Result<()> {
    let receive = (!into.is_empty()).then(|| link.recv(peer, into));
    let transmit = (!data.is_empty()).then(|| link.send(peer, data));
    if let Some(op) = transmit {
        op.await?;
    }
    match receive {
        Some(op) => op.await,
        None => Ok(()),
    }
}

/// Everyone exchanges with everyone of the other group, one peer at a time: at step `s` those whose ranks add up to `s`
/// modulo the size of the larger group. No temporaries.
async fn meet<'a, L: InterLink>(link: &L, outgoing: impl Fn(usize) -> &'a [u8], incoming: &mut [&mut [u8]]) -> Result<()> {
    assert_eq!(incoming.len(), link.remote_size(), "one block per rank");
    let steps = link.local().size().max(link.remote_size());
    for step in 0..steps {
        let peer = before(step, link.local().rank(), steps);
        if let Some(into) = incoming.get_mut(peer) {
            exchange(link, outgoing(peer), peer, into).await?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::super::choose;
    use super::super::sim::{Conditions, Layout, SimInterLink, run, run_two_groups};
    use super::super::tests::{Setting, brought, combined, settings};
    use super::*;
    use proptest::prelude::*;

    /// The ranks of the world in two groups.
    #[derive(Clone, Debug)]
    struct Groups {
        setting: Setting,
        sizes: [usize; 2],
    }

    fn groups() -> impl Strategy<Value = Groups> {
        (settings(), 1..=6usize, 1..=6usize).prop_map(|(setting, first, second)| Groups { setting, sizes: [first, second] })
    }

    impl Groups {
        fn root_group(&self) -> usize {
            self.setting.root % 2
        }

        fn root(&self) -> usize {
            self.setting.root / 2 % self.sizes[self.root_group()]
        }

        /// The root argument of a rank.
        fn argument(&self, group: usize, rank: usize) -> Root {
            match (group == self.root_group(), rank == self.root()) {
                (false, _) => Root::Remote(self.root()),
                (true, true) => Root::Here,
                (true, false) => Root::Beside,
            }
        }

        /// Length of a block that `group` brings.
        fn length(&self, group: usize) -> usize {
            if group == 0 { self.setting.length } else { self.setting.uneven(5) }
        }
    }

    /// What rank `rank` of `group` brings.
    fn given(group: usize, rank: usize, bytes: usize) -> Vec<u8> {
        brought(group * 20 + rank, bytes)
    }

    fn slices(blocks: &[Vec<u8>]) -> Vec<&[u8]> {
        blocks.iter().map(|block| &block[..]).collect()
    }

    fn slices_mut(blocks: &mut [Vec<u8>]) -> Vec<&mut [u8]> {
        blocks.iter_mut().map(|block| &mut block[..]).collect()
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(400))]

        #[test]
        fn barrier_holds_both_groups(groups in groups()) {
            let tuning = &groups.setting.tuning::<choose::Barrier>("barrier");
            let entered = &std::cell::Cell::new(0);
            run_two_groups(groups.setting.conditions, groups.sizes, |link: SimInterLink| async move {
                entered.set(entered.get() + 1);
                barrier(&link, tuning).await?;
                assert_eq!(entered.get(), link.local().size() + link.remote_size());
                Ok(())
            });
        }

        #[test]
        fn bcast_reaches_the_other_group(groups in groups()) {
            let (groups, tuning) = (&groups, &groups.setting.tuning::<choose::Bcast>("bcast"));
            let length = groups.setting.length;
            let results = run_two_groups(groups.setting.conditions, groups.sizes, |link| async move {
                let root = groups.argument(link.group(), link.local().rank());
                let mut buf = if root == Root::Here { brought(1, length) } else { vec![0; length] };
                bcast(&link, tuning, &mut buf, root).await?;
                Ok(buf)
            });
            for result in &results[1 - groups.root_group()] {
                prop_assert_eq!(result, &brought(1, length));
            }
        }

        #[test]
        fn gather_and_scatter_cross(groups in groups(), uneven in any::<bool>()) {
            let mut tuning = groups.setting.tuning::<choose::Gather>("gather");
            tuning.scatter = groups.setting.tuning::<choose::Scatter>("scatter").scatter;
            let (groups, tuning) = (&groups, &tuning);
            let length = |rank| if uneven { groups.setting.uneven(rank) } else { groups.setting.length };
            let theirs = 1 - groups.root_group();
            let results = run_two_groups(groups.setting.conditions, groups.sizes, |link| async move {
                let rank = link.local().rank();
                let root = groups.argument(link.group(), rank);
                if root != Root::Here {
                    let mut mine = if root == Root::Beside { Vec::new() } else { given(theirs, rank, length(rank)) };
                    if uneven {
                        gatherv(&link, &mine, &mut [], root).await?;
                        mine.fill(0);
                        scatterv(&link, &[], &mut mine, root).await?;
                    } else {
                        gather(&link, tuning, &mine, &mut [], root).await?;
                        mine.fill(0);
                        scatter(&link, tuning, &[], &mut mine, root).await?;
                    }
                    return Ok(vec![mine]);
                }
                let mut all: Vec<Vec<u8>> = (0..link.remote_size()).map(|i| vec![0; length(i)]).collect();
                if uneven {
                    gatherv(&link, &[], &mut slices_mut(&mut all), root).await?;
                    scatterv(&link, &slices(&all), &mut [], root).await?;
                } else {
                    let mut flat = all.concat();
                    gather(&link, tuning, &[], &mut flat, root).await?;
                    scatter(&link, tuning, &flat, &mut [], root).await?;
                    for (i, block) in all.iter_mut().enumerate() {
                        block.copy_from_slice(&flat[i * length(i)..][..length(i)]);
                    }
                }
                Ok(all)
            });
            let expected: Vec<Vec<u8>> =
                (0..groups.sizes[theirs]).map(|rank| given(theirs, rank, length(rank))).collect();
            prop_assert_eq!(&results[groups.root_group()][groups.root()], &expected);
            prop_assert_eq!(results[theirs].concat(), expected);
        }

        #[test]
        fn allgather_crosses(groups in groups(), uneven in any::<bool>()) {
            let (groups, tuning) = (&groups, &groups.setting.tuning::<choose::Allgather>("allgather"));
            let length =
                |group, rank| if uneven { groups.setting.uneven(rank + group) } else { groups.length(group) };
            let results = run_two_groups(groups.setting.conditions, groups.sizes, |link| async move {
                let (rank, other) = (link.local().rank(), 1 - link.group());
                let mine = given(link.group(), rank, length(link.group(), rank));
                let mut all: Vec<Vec<u8>> = (0..link.remote_size()).map(|i| vec![0; length(other, i)]).collect();
                if uneven {
                    allgatherv(&link, &mine, &mut slices_mut(&mut all)).await?;
                    return Ok(all.concat());
                }
                let mut all = all.concat();
                allgather(&link, tuning, &mine, &mut all).await?;
                Ok(all)
            });
            for (group, results) in results.into_iter().enumerate() {
                let other = 1 - group;
                let blocks = (0..groups.sizes[other]).map(|rank| given(other, rank, length(other, rank)));
                let expected = blocks.collect::<Vec<_>>().concat();
                for result in results {
                    prop_assert_eq!(&result, &expected);
                }
            }
        }

        #[test]
        fn alltoall_crosses(groups in groups(), uneven in any::<bool>()) {
            let groups = &groups;
            let length = |group: usize, from: usize, to: usize| {
                if uneven { groups.setting.uneven(group + 3 * from + to) } else { groups.length(group) }
            };
            let sent = |group, from, to| given(group, from * 7 + to, length(group, from, to));
            let results = run_two_groups(groups.setting.conditions, groups.sizes, |link| async move {
                let (rank, group, others) = (link.local().rank(), link.group(), link.remote_size());
                let data: Vec<Vec<u8>> = (0..others).map(|to| sent(group, rank, to)).collect();
                let mut all: Vec<Vec<u8>> =
                    (0..others).map(|from| vec![0; length(1 - group, from, rank)]).collect();
                if uneven {
                    alltoallv(&link, &slices(&data), &mut slices_mut(&mut all)).await?;
                    return Ok(all.concat());
                }
                let mut all = all.concat();
                alltoall(&link, &data.concat(), &mut all).await?;
                Ok(all)
            });
            for (group, results) in results.into_iter().enumerate() {
                for (rank, result) in results.into_iter().enumerate() {
                    let blocks = (0..groups.sizes[1 - group]).map(|from| sent(1 - group, from, rank));
                    prop_assert_eq!(result, blocks.collect::<Vec<_>>().concat());
                }
            }
        }

        #[test]
        fn reductions_cross(groups in groups()) {
            let mut tuning = groups.setting.tuning::<choose::Reduce>("reduce");
            tuning.bcast = groups.setting.tuning::<choose::Bcast>("bcast").bcast;
            let (groups, tuning) = (&groups, &tuning);
            let (op, bytes) = (groups.setting.op(), groups.setting.vector_bytes());
            let vector = |group: usize, rank: usize| brought(group * groups.sizes[0] + rank, bytes);
            // The blocks of a result: all but the last rank's are as long as possible and alike.
            let counts = |group: usize| {
                let elements = groups.setting.length;
                let share = elements / groups.sizes[group];
                let mut counts = vec![share; groups.sizes[group]];
                counts[groups.sizes[group] - 1] += elements % groups.sizes[group];
                counts.into_iter().map(|count| count * op.element_bytes()).collect::<Vec<_>>()
            };
            let results = run_two_groups(groups.setting.conditions, groups.sizes, |link| async move {
                let (rank, group) = (link.local().rank(), link.group());
                let mine = vector(group, rank);
                let root = groups.argument(group, rank);
                let mut at_root = vec![0; if root == Root::Here { bytes } else { 0 }];
                reduce(&link, tuning, op, &mine, &mut at_root, root).await?;
                let mut everywhere = vec![0; bytes];
                allreduce(&link, tuning, op, &mine, &mut everywhere).await?;
                let counts = counts(group);
                let mut block = vec![0; counts[rank]];
                reduce_scatter(&link, tuning, op, &mine, &mut block, &counts).await?;
                Ok((at_root, everywhere, block))
            });
            let ranks = [0..groups.sizes[0], groups.sizes[0]..groups.sizes[0] + groups.sizes[1]];
            for (group, results) in results.iter().enumerate() {
                let expected = combined(op, ranks[1 - group].clone(), bytes);
                for (at_root, everywhere, _) in results {
                    prop_assert!(at_root.is_empty() || at_root == &expected);
                    prop_assert_eq!(everywhere, &expected);
                }
                let blocks: Vec<&[u8]> = results.iter().map(|(_, _, block)| &block[..]).collect();
                prop_assert_eq!(blocks.concat(), expected);
            }
            prop_assert_eq!(results[groups.root_group()][groups.root()].0.len(), bytes);
        }
    }

    #[test]
    fn two_groups_are_one_world() {
        let conditions = Conditions { seed: 3, eager_bytes: 0, crowded: false, layout: Layout::Together, failing: None };
        let ranks = run_two_groups(conditions, [2, 3], |link| async move { Ok((link.group(), link.local().rank())) });
        assert_eq!(ranks[1], [(1, 0), (1, 1), (1, 2)]);
        assert_eq!(run(conditions, 2, |link| async move { Ok(link.rank()) }), [0, 1]);
    }
}
