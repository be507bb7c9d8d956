//! MPI-5.0 §6.6.

use super::choose::{Case, Scatter};
use super::work::{Batch, after, before, block, block_bytes, recv, scratch};
use super::{Link, Tuning};
use crate::error::Result;

/// Hands block `i` of `send` of `root` to rank `i`, in `mine`; all blocks have equal length. `mine: None` is
/// `MPI_IN_PLACE`, at the root only; `send` matters at the root only.
pub async fn scatter<L: Link>(link: &L, tuning: &Tuning, send: &[u8], mine: Option<&mut [u8]>, root: usize) -> Result<()> {
    let mine = mine.unwrap_or_default();
    let Some(bytes) = own_block(link, send, mine, root) else { return Ok(()) };
    match tuning.scatter.pick(&Case::new(link, bytes)) {
        Scatter::Binomial => binomial(link, send, mine, bytes, root).await,
        Scatter::Linear | Scatter::Hosts => linear(link, send, mine, bytes, root).await,
    }
}

/// Gives the root its own block. Bytes of a block; `None` where nothing is left to be done.
pub(super) fn own_block<L: Link>(link: &L, send: &[u8], mine: &mut [u8], root: usize) -> Option<usize> {
    let (rank, ranks) = (link.rank(), link.size());
    let bytes = if rank == root { block_bytes(send.len(), ranks) } else { mine.len() };
    if rank == root && !mine.is_empty() {
        mine.copy_from_slice(&send[block(rank, bytes)]);
    }
    (ranks > 1 && bytes > 0).then_some(bytes)
}

/// Down a binomial tree. Temporary: the blocks of the rank's subtree; at a root that is not rank 0, those of all others.
async fn binomial<L: Link>(link: &L, all: &[u8], mine: &mut [u8], bytes: usize, root: usize) -> Result<()> {
    let (rank, ranks) = (link.rank(), link.size());
    let place = before(rank, root, ranks);
    if rank == root {
        if root == 0 {
            return send_subtrees(link, &all[bytes..], bytes, 0).await;
        }
        let mut others = scratch((ranks - 1) * bytes)?;
        let (high, low) = others.split_at_mut((ranks - 1 - root) * bytes);
        high.copy_from_slice(&all[(root + 1) * bytes..]);
        low.copy_from_slice(&all[..root * bytes]);
        return send_subtrees(link, &others, bytes, root).await;
    }
    let mask = 1 << place.trailing_zeros();
    let parent = after(place - mask, root, ranks);
    let held = mask.min(ranks - place);
    if held == 1 {
        return recv(link, parent, mine).await;
    }
    let mut subtree = scratch(held * bytes)?;
    recv(link, parent, &mut subtree).await?;
    mine.copy_from_slice(&subtree[..bytes]);
    send_subtrees(link, &subtree[bytes..], bytes, rank).await
}

/// Sends the subtrees of the places after `rank`, which lie one after the other in `data`; the largest first.
async fn send_subtrees<L: Link>(link: &L, data: &[u8], bytes: usize, rank: usize) -> Result<()> {
    let mut sends = Batch::new();
    let mut rest = data;
    while !rest.is_empty() {
        // Places 1..=n: the last subtree starts at the highest power of two.
        let child = 1 << (rest.len() / bytes).ilog2();
        let (head, subtree) = rest.split_at((child - 1) * bytes);
        sends.send(link, after(rank, child, link.size()), subtree).await?;
        rest = head;
    }
    sends.finish().await
}

/// The root sends to everyone.
async fn linear<L: Link>(link: &L, all: &[u8], mine: &mut [u8], bytes: usize, root: usize) -> Result<()> {
    if link.rank() != root {
        return recv(link, root, mine).await;
    }
    let mut sends = Batch::new();
    for (to, data) in all.chunks_exact(bytes).enumerate().filter(|&(to, _)| to != root) {
        sends.send(link, to, data).await?;
    }
    sends.finish().await
}

/// Hands `send[i]` of `root` to rank `i`, in `mine`. `mine: None` is `MPI_IN_PLACE`, at the root only;
/// `send` matters at the root only, where it has one slice per rank. No temporaries.
pub async fn scatterv<L: Link>(link: &L, send: &[&[u8]], mine: Option<&mut [u8]>, root: usize) -> Result<()> {
    let rank = link.rank();
    if rank != root {
        return recv(link, root, mine.unwrap_or_default()).await;
    }
    assert_eq!(send.len(), link.size(), "one block per rank");
    if let Some(mine) = mine {
        mine.copy_from_slice(send[rank]);
    }
    let mut sends = Batch::new();
    for (to, data) in send.iter().enumerate().filter(|&(to, _)| to != root) {
        sends.send(link, to, data).await?;
    }
    sends.finish().await
}
