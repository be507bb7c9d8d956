//! MPI-5.0 §6.7.

use super::choose::{Allgather, Allgatherv, Case};
use super::work::{after, before, block, block_bytes, exchange, scratch, split, starts};
use super::{Link, Tuning, bcast, gather};
use crate::error::Result;

/// Collects one block of equal length from each rank in `recv` of every rank. `mine: None` is `MPI_IN_PLACE`.
/// No temporaries but those of [`gather`](super::gather) where it is a part.
pub async fn allgather<L: Link>(link: &L, tuning: &Tuning, mine: Option<&[u8]>, recv: &mut [u8]) -> Result<()> {
    let (rank, ranks) = (link.rank(), link.size());
    let bytes = block_bytes(recv.len(), ranks);
    if let Some(mine) = mine {
        recv[block(rank, bytes)].copy_from_slice(mine);
    }
    if ranks == 1 || bytes == 0 {
        return Ok(());
    }
    match tuning.allgather.pick(&Case::new(link, recv.len())) {
        Allgather::RecursiveDoubling => recursive_doubling(link, recv, bytes).await,
        Allgather::Bruck => bruck(link, recv, bytes).await,
        Allgather::Ring | Allgather::Hosts => ring(link, recv, bytes).await,
        Allgather::GatherBcast => gather_bcast(link, recv, bytes).await,
    }
}

/// log2 n exchanges of doubling length; a power of two of ranks.
async fn recursive_doubling<L: Link>(link: &L, all: &mut [u8], bytes: usize) -> Result<()> {
    let (rank, ranks) = (link.rank(), link.size());
    let mut mask = 1;
    while mask < ranks {
        let mine = rank & !(mask - 1);
        let theirs = mine ^ mask;
        let (data, into) = split(all, mine * bytes..(mine + mask) * bytes, theirs * bytes..(theirs + mask) * bytes);
        exchange(link, rank ^ mask, data, rank ^ mask, into).await?;
        mask <<= 1;
    }
    Ok(())
}

/// ceil(log2 n) steps for any n (Bruck et al. 1997): blocks gather behind the own one and are rotated home at the end.
async fn bruck<L: Link>(link: &L, all: &mut [u8], bytes: usize) -> Result<()> {
    let (rank, ranks) = (link.rank(), link.size());
    all.copy_within(block(rank, bytes), 0);
    let mut have = 1;
    while have < ranks {
        let more = have.min(ranks - have);
        let (data, into) = split(all, 0..more * bytes, have * bytes..(have + more) * bytes);
        exchange(link, before(rank, have, ranks), data, after(rank, have, ranks), into).await?;
        have += more;
    }
    all.rotate_right(rank * bytes);
    Ok(())
}

/// n - 1 steps, each block one hop further.
pub(super) async fn ring<L: Link>(link: &L, all: &mut [u8], bytes: usize) -> Result<()> {
    let (rank, ranks) = (link.rank(), link.size());
    let (left, right) = (before(rank, 1, ranks), after(rank, 1, ranks));
    for step in 0..ranks - 1 {
        let have = before(rank, step, ranks);
        let want = before(rank, step + 1, ranks);
        let (data, into) = split(all, block(have, bytes), block(want, bytes));
        exchange(link, right, data, left, into).await?;
    }
    Ok(())
}

/// Binomial gather to rank 0 and broadcast: 2 (n - 1) messages.
async fn gather_bcast<L: Link>(link: &L, all: &mut [u8], bytes: usize) -> Result<()> {
    let rank = link.rank();
    if rank == 0 {
        gather::binomial(link, &[], all, bytes, 0).await?;
    } else {
        gather::binomial(link, &all[block(rank, bytes)], &mut [], bytes, 0).await?;
    }
    bcast::binomial(link, all, 0).await
}

/// Collects a block from each rank in `blocks[rank]` of every rank; lengths are the same everywhere.
/// `mine: None` is `MPI_IN_PLACE`.
pub async fn allgatherv<L: Link>(link: &L, tuning: &Tuning, mine: Option<&[u8]>, blocks: &mut [&mut [u8]]) -> Result<()> {
    let (rank, ranks) = (link.rank(), link.size());
    assert_eq!(blocks.len(), ranks, "one block per rank");
    if let Some(mine) = mine {
        blocks[rank].copy_from_slice(mine);
    }
    let total = blocks.iter().map(|block| block.len()).sum();
    if ranks == 1 || total == 0 {
        return Ok(());
    }
    match tuning.allgatherv.pick(&Case::new(link, total)) {
        Allgatherv::Bruck => bruck_blocks(link, blocks).await,
        Allgatherv::GatherBcast => gather_bcast_blocks(link, tuning, blocks).await,
        Allgatherv::Ring => ring_blocks(link, blocks).await,
    }
}

/// As [`bruck`]. Temporary: all blocks.
async fn bruck_blocks<L: Link>(link: &L, blocks: &mut [&mut [u8]]) -> Result<()> {
    let (rank, ranks) = (link.rank(), link.size());
    let starts = starts((0..ranks).map(|step| blocks[after(rank, step, ranks)].len()));
    let mut all = scratch(starts[ranks])?;
    all[..starts[1]].copy_from_slice(blocks[rank]);
    let mut have = 1;
    while have < ranks {
        let more = have.min(ranks - have);
        let (data, into) = split(&mut all, 0..starts[more], starts[have]..starts[have + more]);
        exchange(link, before(rank, have, ranks), data, after(rank, have, ranks), into).await?;
        have += more;
    }
    for step in 1..ranks {
        blocks[after(rank, step, ranks)].copy_from_slice(&all[starts[step]..starts[step + 1]]);
    }
    Ok(())
}

/// 2 (n - 1) messages where the broadcast has n - 1. Temporary: all blocks.
async fn gather_bcast_blocks<L: Link>(link: &L, tuning: &Tuning, blocks: &mut [&mut [u8]]) -> Result<()> {
    let rank = link.rank();
    if rank == 0 {
        gather::gatherv(link, None, blocks, 0).await?;
    } else {
        gather::gatherv(link, Some(&*blocks[rank]), &mut [], 0).await?;
    }
    let starts = starts(blocks.iter().map(|block| block.len()));
    let mut all = scratch(starts[blocks.len()])?;
    if rank == 0 {
        blocks.iter().zip(&starts).for_each(|(block, start)| all[*start..start + block.len()].copy_from_slice(block));
    }
    bcast::bcast(link, tuning, &mut all, 0).await?;
    if rank != 0 {
        blocks.iter_mut().zip(&starts).for_each(|(block, start)| block.copy_from_slice(&all[*start..start + block.len()]));
    }
    Ok(())
}

/// As [`ring`]. No temporaries.
async fn ring_blocks<L: Link>(link: &L, blocks: &mut [&mut [u8]]) -> Result<()> {
    let (rank, ranks) = (link.rank(), link.size());
    let (left, right) = (before(rank, 1, ranks), after(rank, 1, ranks));
    for step in 0..ranks - 1 {
        let have = before(rank, step, ranks);
        let want = before(rank, step + 1, ranks);
        let [data, into] = blocks.get_disjoint_mut([have, want]).expect("neighbouring places differ");
        exchange(link, right, data, left, into).await?;
    }
    Ok(())
}
