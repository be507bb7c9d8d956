//! MPI-5.0 §6.5.

use super::choose::{Case, Gather};
use super::work::{Batch, after, before, block, block_bytes, scratch, send};
use super::{Link, Tuning};
use crate::error::Result;

/// Collects one block of equal length from each rank in `recv` of `root`, in rank order. `mine: None` is
/// `MPI_IN_PLACE`, at the root only; `recv` matters at the root only.
pub async fn gather<L: Link>(link: &L, tuning: &Tuning, mine: Option<&[u8]>, recv: &mut [u8], root: usize) -> Result<()> {
    let Some(bytes) = own_block(link, mine, recv, root) else { return Ok(()) };
    let mine = mine.unwrap_or_default();
    match tuning.gather.pick(&Case::new(link, bytes)) {
        Gather::Binomial => binomial(link, mine, recv, bytes, root).await,
        Gather::Linear | Gather::Hosts => linear(link, mine, recv, bytes, root).await,
    }
}

/// Puts the root's own block in its place. Bytes of a block; `None` where nothing is left to be done.
pub(super) fn own_block<L: Link>(link: &L, mine: Option<&[u8]>, recv: &mut [u8], root: usize) -> Option<usize> {
    let (rank, ranks) = (link.rank(), link.size());
    let bytes = if rank == root { block_bytes(recv.len(), ranks) } else { mine.map_or(0, <[u8]>::len) };
    if rank == root
        && let Some(mine) = mine
    {
        recv[block(rank, bytes)].copy_from_slice(mine);
    }
    (ranks > 1 && bytes > 0).then_some(bytes)
}

/// Up a binomial tree. Temporary: the blocks of the rank's subtree; at a root that is not rank 0, those of all others.
pub(super) async fn binomial<L: Link>(link: &L, mine: &[u8], all: &mut [u8], bytes: usize, root: usize) -> Result<()> {
    let (rank, ranks) = (link.rank(), link.size());
    let place = before(rank, root, ranks);
    if rank == root {
        if root == 0 {
            return receive_subtrees(link, &mut all[bytes..], bytes, 0).await;
        }
        let mut others = scratch((ranks - 1) * bytes)?;
        receive_subtrees(link, &mut others, bytes, root).await?;
        let (high, low) = others.split_at((ranks - 1 - root) * bytes);
        all[(root + 1) * bytes..].copy_from_slice(high);
        all[..root * bytes].copy_from_slice(low);
        return Ok(());
    }
    let mask = 1 << place.trailing_zeros();
    let parent = after(place - mask, root, ranks);
    let held = mask.min(ranks - place);
    if held == 1 {
        return send(link, parent, mine).await;
    }
    let mut subtree = scratch(held * bytes)?;
    subtree[..bytes].copy_from_slice(mine);
    receive_subtrees(link, &mut subtree[bytes..], bytes, rank).await?;
    send(link, parent, &subtree).await
}

/// Receives the subtrees of the places after `rank`, one after the other, until `into` is full.
async fn receive_subtrees<L: Link>(link: &L, into: &mut [u8], bytes: usize, rank: usize) -> Result<()> {
    let mut receives = Batch::new();
    let mut rest = into;
    let mut child = 1;
    while !rest.is_empty() {
        let (subtree, tail) = rest.split_at_mut(rest.len().min(child * bytes));
        receives.recv(link, after(rank, child, link.size()), subtree).await?;
        rest = tail;
        child <<= 1;
    }
    receives.finish().await
}

/// The root receives from everyone.
async fn linear<L: Link>(link: &L, mine: &[u8], all: &mut [u8], bytes: usize, root: usize) -> Result<()> {
    if link.rank() != root {
        return send(link, root, mine).await;
    }
    let mut receives = Batch::new();
    for (from, into) in all.chunks_exact_mut(bytes).enumerate().filter(|&(from, _)| from != root) {
        receives.recv(link, from, into).await?;
    }
    receives.finish().await
}

/// Collects a block from each rank in `recv[rank]` of `root`. `mine: None` is `MPI_IN_PLACE`, at the root only;
/// `recv` matters at the root only, where it has one slice per rank. No temporaries.
pub async fn gatherv<L: Link>(link: &L, mine: Option<&[u8]>, recv: &mut [&mut [u8]], root: usize) -> Result<()> {
    let rank = link.rank();
    if rank != root {
        return send(link, root, mine.unwrap_or_default()).await;
    }
    assert_eq!(recv.len(), link.size(), "one block per rank");
    if let Some(mine) = mine {
        recv[rank].copy_from_slice(mine);
    }
    let mut receives = Batch::new();
    for (from, into) in recv.iter_mut().enumerate().filter(|&(from, _)| from != root) {
        receives.recv(link, from, into).await?;
    }
    receives.finish().await
}
