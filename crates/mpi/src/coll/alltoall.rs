//! MPI-5.0 §6.8.

use super::choose::{Alltoall, Alltoallv, Case};
use super::work::{Batch, after, before, block, block_bytes, exchange, scratch};
use super::{Link, Tuning};
use crate::error::Result;

/// Block `j` of `send` of rank `i` goes to block `i` of `recv` of rank `j`; all blocks have equal length.
/// `send: None` is `MPI_IN_PLACE`, everywhere or nowhere: `recv` holds the data and is replaced.
pub async fn alltoall<L: Link>(link: &L, tuning: &Tuning, send: Option<&[u8]>, recv: &mut [u8]) -> Result<()> {
    let (rank, ranks) = (link.rank(), link.size());
    let bytes = block_bytes(recv.len(), ranks);
    if bytes == 0 {
        return Ok(());
    }
    if let Some(send) = send {
        recv[block(rank, bytes)].copy_from_slice(&send[block(rank, bytes)]);
    }
    if ranks == 1 {
        return Ok(());
    }
    match (tuning.alltoall.pick(&Case::new(link, bytes)), send) {
        (Alltoall::Bruck, send) => bruck(link, send, recv, bytes).await,
        (_, None) => in_place(link, recv, bytes).await,
        (Alltoall::Spread, Some(send)) => spread(link, send, recv, bytes).await,
        (Alltoall::Pairwise | Alltoall::Hosts, Some(send)) => pairwise(link, send, recv, bytes).await,
    }
}

/// ceil(log2 n) steps, half the blocks in each (Bruck et al. 1997). Temporary: twice all blocks.
async fn bruck<L: Link>(link: &L, send: Option<&[u8]>, recv: &mut [u8], bytes: usize) -> Result<()> {
    let (rank, ranks) = (link.rank(), link.size());
    let mut blocks = scratch(ranks * bytes)?;
    // Block i is i ranks away from its goal.
    blocks.copy_from_slice(send.unwrap_or(recv));
    blocks.rotate_left(rank * bytes);
    let half = ranks.div_ceil(2) * bytes;
    let mut packed = scratch(2 * half)?;
    let (outgoing, incoming) = packed.split_at_mut(half);
    let mut hop = 1;
    while hop < ranks {
        let travelling = || (hop..ranks).filter(|i| i & hop != 0);
        let mut length = 0;
        for i in travelling() {
            outgoing[length..length + bytes].copy_from_slice(&blocks[block(i, bytes)]);
            length += bytes;
        }
        let (to, from) = (after(rank, hop, ranks), before(rank, hop, ranks));
        exchange(link, to, &outgoing[..length], from, &mut incoming[..length]).await?;
        for (i, arrived) in travelling().zip(incoming.chunks_exact(bytes)) {
            blocks[block(i, bytes)].copy_from_slice(arrived);
        }
        hop <<= 1;
    }
    for (i, arrived) in blocks.chunks_exact(bytes).enumerate() {
        recv[block(before(rank, i, ranks), bytes)].copy_from_slice(arrived);
    }
    Ok(())
}

/// Everything under way at once, bounded by the batch. No temporaries.
async fn spread<L: Link>(link: &L, send: &[u8], recv: &mut [u8], bytes: usize) -> Result<()> {
    let (rank, ranks) = (link.rank(), link.size());
    let (low, high) = recv.split_at_mut(rank * bytes);
    let mut batch = Batch::new();
    // The blocks of ranks rank-1, rank-2, … around the ring: at each step all ranks talk to different peers.
    let incoming = low.rchunks_exact_mut(bytes).chain(high[bytes..].rchunks_exact_mut(bytes));
    for (step, into) in (1..ranks).zip(incoming) {
        let to = after(rank, step, ranks);
        batch.recv(link, before(rank, step, ranks), into).await?;
        batch.send(link, to, &send[block(to, bytes)]).await?;
    }
    batch.finish().await
}

/// n - 1 steps, one exchange at a time. No temporaries.
async fn pairwise<L: Link>(link: &L, send: &[u8], recv: &mut [u8], bytes: usize) -> Result<()> {
    let (rank, ranks) = (link.rank(), link.size());
    for step in 1..ranks {
        let (to, from) = (after(rank, step, ranks), before(rank, step, ranks));
        exchange(link, to, &send[block(to, bytes)], from, &mut recv[block(from, bytes)]).await?;
    }
    Ok(())
}

/// Pairs swap their blocks: at step `s` those whose ranks add up to `s` modulo n. Temporary: one block.
async fn in_place<L: Link>(link: &L, all: &mut [u8], bytes: usize) -> Result<()> {
    let (rank, ranks) = (link.rank(), link.size());
    let mut outgoing = scratch(bytes)?;
    for step in 0..ranks {
        let peer = before(step, rank, ranks);
        if peer != rank {
            let swapped = &mut all[block(peer, bytes)];
            outgoing.copy_from_slice(swapped);
            exchange(link, peer, &outgoing, peer, swapped).await?;
        }
    }
    Ok(())
}

/// `send[j]` of rank `i` goes to `recv[i]` of rank `j`, one slice per rank. Serves `MPI_Alltoallw` too: the caller packs.
/// `send: None` is `MPI_IN_PLACE`, everywhere or nowhere: `recv` holds the data and is replaced.
///
/// Each rank may choose its own algorithm, for lengths differ among ranks: between each pair it is one message each way.
pub async fn alltoallv<L: Link>(link: &L, tuning: &Tuning, send: Option<&[&[u8]]>, recv: &mut [&mut [u8]]) -> Result<()> {
    let (rank, ranks) = (link.rank(), link.size());
    assert_eq!(recv.len(), ranks, "one block per rank");
    let Some(send) = send else {
        return in_place_blocks(link, recv).await;
    };
    assert_eq!(send.len(), ranks, "one block per rank");
    recv[rank].copy_from_slice(send[rank]);
    // A rank that gets nothing has nothing to exchange, and sends all at once.
    let one_way = recv.iter().all(|block| block.is_empty());
    let longest = send.iter().map(|block| block.len()).max().filter(|_| !one_way).unwrap_or(0);
    match tuning.alltoallv.pick(&Case::new(link, longest)) {
        Alltoallv::Spread => spread_blocks(link, send, recv).await,
        Alltoallv::Pairwise => pairwise_blocks(link, send, recv).await,
    }
}

/// As [`spread`].
async fn spread_blocks<L: Link>(link: &L, send: &[&[u8]], recv: &mut [&mut [u8]]) -> Result<()> {
    let (rank, ranks) = (link.rank(), link.size());
    let (low, high) = recv.split_at_mut(rank);
    let mut batch = Batch::new();
    let incoming = low.iter_mut().rev().chain(high[1..].iter_mut().rev());
    for (step, into) in (1..ranks).zip(incoming) {
        let to = after(rank, step, ranks);
        batch.recv(link, before(rank, step, ranks), into).await?;
        batch.send(link, to, send[to]).await?;
    }
    batch.finish().await
}

/// As [`pairwise`].
async fn pairwise_blocks<L: Link>(link: &L, send: &[&[u8]], recv: &mut [&mut [u8]]) -> Result<()> {
    let (rank, ranks) = (link.rank(), link.size());
    for step in 1..ranks {
        let (to, from) = (after(rank, step, ranks), before(rank, step, ranks));
        exchange(link, to, send[to], from, recv[from]).await?;
    }
    Ok(())
}

/// As [`in_place`]; what comes back has the length of what went. Temporary: the longest block.
async fn in_place_blocks<L: Link>(link: &L, blocks: &mut [&mut [u8]]) -> Result<()> {
    let (rank, ranks) = (link.rank(), link.size());
    let others = blocks.iter().enumerate().filter(|&(i, _)| i != rank);
    let mut outgoing = scratch(others.map(|(_, block)| block.len()).max().unwrap_or(0))?;
    for step in 0..ranks {
        let peer = before(step, rank, ranks);
        if peer != rank {
            let swapped = &mut *blocks[peer];
            let outgoing = &mut outgoing[..swapped.len()];
            outgoing.copy_from_slice(swapped);
            exchange(link, peer, outgoing, peer, swapped).await?;
        }
    }
    Ok(())
}
