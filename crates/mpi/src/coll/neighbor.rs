//! Neighbourhood collectives (MPI-5.0 §8.6): every rank talks to the neighbours of a topology only.
//!
//! All operations of a call are under way at once, one for each source and each destination: in a general graph a
//! window could make neighbours wait for each other. No temporaries. Blocks of no bytes are never sent.

use super::Link;
use super::work::{block_bytes, equal_blocks};
use crate::error::Result;

/// The neighbours of this rank. `None` is `MPI_PROC_NULL`, whose blocks are neither read nor written. A rank may be its
/// own neighbour, and the same neighbour several times: then blocks match in order.
#[derive(Clone, Copy, Debug)]
pub struct Neighbors<'a> {
    /// Where block `i` to receive comes from.
    pub sources: &'a [Option<usize>],
    /// Where block `i` to send goes.
    pub destinations: &'a [Option<usize>],
    /// Neighbours come in pairs, negative and positive direction of a dimension. What goes in one direction arrives
    /// from the opposite one, even where both neighbours are the same rank (MPI-5.0 §8.6, periodic dimensions of 1 and 2).
    pub cartesian: bool,
}

impl Neighbors<'_> {
    /// Indices of the destinations in the order in which they are served, so that equal neighbours match.
    pub fn sending_order(&self) -> impl Iterator<Item = (usize, usize)> {
        let turn = usize::from(self.cartesian);
        assert!(!self.cartesian || self.destinations.len().is_multiple_of(2), "directions come in pairs");
        (0..self.destinations.len()).filter_map(move |i| Some((i ^ turn, self.destinations[i ^ turn]?)))
    }
}

/// `mine` goes to every destination; block `i` of `recv` comes from source `i`; all blocks have equal length.
pub async fn neighbor_allgather<L: Link>(link: &L, around: Neighbors<'_>, mine: &[u8], recv: &mut [u8]) -> Result<()> {
    all_at_once(link, around, |_| mine, equal_blocks(recv, around.sources.len())).await
}

/// `mine` goes to every destination; `recv[i]` comes from source `i`.
pub async fn neighbor_allgatherv<L: Link>(link: &L, around: Neighbors<'_>, mine: &[u8], recv: &mut [&mut [u8]]) -> Result<()> {
    all_at_once(link, around, |_| mine, recv.iter_mut().map(|block| &mut **block)).await
}

/// Block `i` of `send` goes to destination `i`, block `i` of `recv` comes from source `i`; all blocks have equal length.
pub async fn neighbor_alltoall<L: Link>(link: &L, around: Neighbors<'_>, send: &[u8], recv: &mut [u8]) -> Result<()> {
    let bytes = block_bytes(send.len(), around.destinations.len().max(1));
    let block = |i| &send[i * bytes..(i + 1) * bytes];
    all_at_once(link, around, block, equal_blocks(recv, around.sources.len())).await
}

/// `send[i]` goes to destination `i`, `recv[i]` comes from source `i`. Serves `MPI_Neighbor_alltoallw` too: the caller packs.
pub async fn neighbor_alltoallv<L: Link>(link: &L, around: Neighbors<'_>, send: &[&[u8]], recv: &mut [&mut [u8]]) -> Result<()> {
    all_at_once(link, around, |i| send[i], recv.iter_mut().map(|block| &mut **block)).await
}

async fn all_at_once<'a, L: Link>(
    link: &'a L,
    around: Neighbors<'_>,
    outgoing: impl Fn(usize) -> &'a [u8],
    incoming: impl Iterator<Item = &'a mut [u8]>,
) -> Result<()> {
    let rank = link.rank();
    let mut to_self = around.sending_order().filter(|&(_, to)| to == rank).map(|(i, _)| outgoing(i));
    let mut started = Vec::with_capacity(around.sources.len() + around.destinations.len());
    for (&source, into) in around.sources.iter().zip(incoming) {
        match source {
            Some(from) if from == rank => into.copy_from_slice(to_self.next().unwrap_or_default()),
            Some(from) if !into.is_empty() => started.push(link.recv(from, into)),
            _ => {}
        }
    }
    for (i, to) in around.sending_order().filter(|&(_, to)| to != rank) {
        let data = outgoing(i);
        if !data.is_empty() {
            started.push(link.send(to, data));
        }
    }
    for op in started {
        op.await?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::super::sim::{Conditions, Layout, run};
    use super::super::tests::{Setting, brought, settings};
    use super::*;
    use proptest::prelude::*;

    /// A directed multigraph: edge `(from, to)`; a rank's sources and destinations are in this order.
    fn edges(setting: &Setting) -> Vec<(usize, usize)> {
        let mut state = setting.conditions.seed;
        let mut draw = || {
            state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            (state >> 33) as usize % setting.ranks
        };
        (0..2 * setting.ranks).map(|_| (draw(), draw())).collect()
    }

    /// Indices of the edges that leave or enter `rank`.
    fn of(edges: &[(usize, usize)], rank: usize, end: impl Fn(&(usize, usize)) -> usize) -> Vec<usize> {
        (0..edges.len()).filter(|&i| end(&edges[i]) == rank).collect()
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(400))]

        #[test]
        fn blocks_follow_the_edges_of_a_graph(setting in settings(), gather in any::<bool>(), even in any::<bool>()) {
            let edges = &edges(&setting);
            let setting = &setting;
            let length = |i: usize| if even { setting.length } else { setting.uneven(if gather { edges[i].0 } else { i }) };
            let sent = |i: usize| brought(if gather { edges[i].0 } else { i }, length(i));
            let results = run(setting.conditions, setting.ranks, |link| async move {
                let leaving = of(edges, link.rank(), |edge| edge.0);
                let entering = of(edges, link.rank(), |edge| edge.1);
                let destinations: Vec<_> = leaving.iter().map(|&i| Some(edges[i].1)).collect();
                let sources: Vec<_> = entering.iter().map(|&i| Some(edges[i].0)).collect();
                let around = Neighbors { sources: &sources, destinations: &destinations, cartesian: false };
                let data: Vec<Vec<u8>> = leaving.iter().map(|&i| sent(i)).collect();
                let mine = brought(link.rank(), if even { setting.length } else { setting.uneven(link.rank()) });
                let mut got: Vec<Vec<u8>> = entering.iter().map(|&i| vec![0; length(i)]).collect();
                let mut flat = got.concat();
                let mut blocks: Vec<&mut [u8]> = got.iter_mut().map(|block| &mut block[..]).collect();
                match (gather, even) {
                    (true, true) => neighbor_allgather(&link, around, &mine, &mut flat).await?,
                    (false, true) => neighbor_alltoall(&link, around, &data.concat(), &mut flat).await?,
                    (true, false) => neighbor_allgatherv(&link, around, &mine, &mut blocks).await?,
                    (false, false) => {
                        let data: Vec<&[u8]> = data.iter().map(|block| &block[..]).collect();
                        neighbor_alltoallv(&link, around, &data, &mut blocks).await?;
                    }
                }
                Ok(if even { flat } else { got.concat() })
            });
            for (rank, result) in results.into_iter().enumerate() {
                let expected: Vec<u8> = of(edges, rank, |edge| edge.1).into_iter().flat_map(sent).collect();
                prop_assert_eq!(result, expected);
            }
        }

        /// On a grid of 2 dimensions, each periodic or not, what goes right arrives from the left, for any extents.
        #[test]
        fn directions_hold_on_a_grid(
            setting in settings(), extents in (1..=4usize, 1..=4usize), periodic in any::<(bool, bool)>()
        ) {
            let (length, extents, periodic) = (setting.length, [extents.0, extents.1], [periodic.0, periodic.1]);
            let neighbors = |rank: usize| {
                let at = [rank / extents[1], rank % extents[1]];
                let mut neighbors = Vec::new();
                for dimension in 0..2 {
                    for step in [-1, 1] {
                        let moved = at[dimension] as isize + step;
                        let wrapped = moved.rem_euclid(extents[dimension] as isize);
                        let mut to = at;
                        to[dimension] = wrapped as usize;
                        let exists = periodic[dimension] || moved == wrapped;
                        neighbors.push(exists.then_some(to[0] * extents[1] + to[1]));
                    }
                }
                neighbors
            };
            let results = run(setting.conditions, extents[0] * extents[1], |link| async move {
                let around = neighbors(link.rank());
                let around = Neighbors { sources: &around, destinations: &around, cartesian: true };
                let mut got = vec![7; 4 * length];
                neighbor_alltoall(&link, around, &brought(link.rank(), 4 * length), &mut got).await?;
                Ok(got)
            });
            for (rank, result) in results.into_iter().enumerate() {
                for (i, from) in neighbors(rank).into_iter().enumerate() {
                    let opposite = i ^ 1;
                    let expected = match from {
                        Some(from) => brought(from, 4 * length)[opposite * length..][..length].to_vec(),
                        None => vec![7; length],
                    };
                    prop_assert_eq!(&result[i * length..][..length], expected);
                }
            }
        }
    }

    #[test]
    fn a_rank_without_neighbours_does_nothing() {
        let conditions = Conditions { seed: 1, eager_bytes: 0, crowded: false, layout: Layout::Together, failing: None };
        run(conditions, 2, |link| async move {
            let around = Neighbors { sources: &[], destinations: &[], cartesian: false };
            neighbor_alltoall(&link, around, &[], &mut []).await?;
            neighbor_allgather(&link, around, &[1, 2], &mut []).await
        });
    }
}
