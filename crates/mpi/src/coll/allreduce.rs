//! MPI-5.0 §6.9.6. Every algorithm gives every rank the same bits: an element is computed by one rank alone, or by
//! several with the same operands in the same order.

use super::choose::{Allreduce, Case};
use super::work::{Fold, Part, Work, after, before, bytes_of, combine, exchange, halve, halved, recv, scratch, send, split};
use super::{Link, Reducer, Tuning, bcast, reduce};
use crate::error::Result;

/// Combines the vectors of all ranks, in rank order, in `recv` of every rank. `mine: None` is `MPI_IN_PLACE`.
pub async fn allreduce<L: Link, R: Reducer + ?Sized>(link: &L, tuning: &Tuning, op: &R, mine: Option<&[u8]>, recv: &mut [u8]) -> Result<()> {
    if let Some(mine) = mine {
        recv.copy_from_slice(mine);
    }
    if link.size() == 1 || recv.is_empty() {
        return Ok(());
    }
    match tuning.allreduce.pick(&Case::reducing(link, op, recv.len())) {
        Allreduce::RecursiveDoubling | Allreduce::Hosts => recursive_doubling(link, op, recv).await,
        // Memory of their own, so that the future of most short collectives is small.
        Allreduce::Flat => Box::pin(flat(link, op, recv)).await,
        Allreduce::ReduceBcast => Box::pin(reduce_bcast(link, op, recv)).await,
        Allreduce::Rabenseifner => Box::pin(rabenseifner(link, op, recv)).await,
        Allreduce::Ring => Box::pin(ring(link, op, recv)).await,
    }
}

/// log2 n exchanges of the whole vector, two steps more where n is no power of two. Temporary: one vector.
async fn recursive_doubling<L: Link, R: Reducer + ?Sized>(link: &L, op: &R, all: &mut [u8]) -> Result<()> {
    let rank = link.rank();
    let fold = Fold::new(link.size(), None);
    let (number, aside) = match fold.part(rank) {
        Part::Aside(survivor) => {
            send(link, survivor, all).await?;
            return recv(link, survivor, all).await;
        }
        Part::Member { number, aside } => (number, aside),
    };
    let mut operand = scratch(all.len())?;
    let mut work = Work::new(all, &mut operand);
    if let Some(aside) = aside {
        recv(link, aside, work.operand).await?;
        work.lower(op)?;
    }
    let mut mask = 1;
    while mask < fold.members {
        let peer = number ^ mask;
        let to = fold.rank(peer);
        exchange(link, to, work.value, to, work.operand).await?;
        if peer < number {
            work.lower(op)?;
        } else {
            work.higher(op)?;
        }
        mask <<= 1;
    }
    if let Some(aside) = aside {
        send(link, aside, work.value).await?;
    }
    work.finish();
    Ok(())
}

/// Rank 0 combines what everyone sends and answers: each rank but one wakes once. Temporary: n - 1 vectors at rank 0.
async fn flat<L: Link, R: Reducer + ?Sized>(link: &L, op: &R, all: &mut [u8]) -> Result<()> {
    if link.rank() == 0 {
        reduce::flat_root(link, op, all).await?;
        return bcast::flat(link, all, 0).await;
    }
    send(link, 0, all).await?;
    recv(link, 0, all).await
}

/// Up a binomial tree and down again: 2 (n - 1) messages. Temporary: two vectors.
async fn reduce_bcast<L: Link, R: Reducer + ?Sized>(link: &L, op: &R, all: &mut [u8]) -> Result<()> {
    if link.rank() == 0 {
        reduce::binomial(link, op, &[], all, 0, 0).await?;
    } else {
        reduce::binomial(link, op, all, &mut [], 0, 0).await?;
    }
    bcast::binomial(link, all, 0).await
}

/// Reduce-scatter by recursive halving, then allgather back along the same butterfly (Rabenseifner 2004).
/// Temporary: half a vector, one vector on ranks that stand for two.
async fn rabenseifner<L: Link, R: Reducer + ?Sized>(link: &L, op: &R, all: &mut [u8]) -> Result<()> {
    let rank = link.rank();
    let fold = Fold::new(link.size(), None);
    let (number, aside) = match fold.part(rank) {
        Part::Aside(survivor) => {
            send(link, survivor, all).await?;
            return recv(link, survivor, all).await;
        }
        Part::Member { number, aside } => (number, aside),
    };
    let size = op.element_bytes();
    let elements = all.len() / size;
    let mut operand = scratch(if aside.is_some() { all.len() } else { elements.div_ceil(2) * size })?;
    if let Some(aside) = aside {
        recv(link, aside, &mut operand).await?;
        combine(op, all, &mut operand, true)?;
    }
    halve(link, op, &fold, number, all, &mut operand).await?;
    let mut mask = fold.members;
    while mask > 1 {
        mask >>= 1;
        let peer = number ^ mask;
        let mine = bytes_of(halved(elements, number, 2 * mask), size);
        let theirs = bytes_of(halved(elements, peer, 2 * mask), size);
        let (data, into) = split(all, mine, theirs);
        exchange(link, fold.rank(peer), data, fold.rank(peer), into).await?;
    }
    if let Some(aside) = aside {
        send(link, aside, all).await?;
    }
    Ok(())
}

/// Pieces travel around a ring and grow, then travel once more, complete: the least volume for any n, but operands
/// come in rotated order, so commutative operations only. Temporary: one piece.
async fn ring<L: Link, R: Reducer + ?Sized>(link: &L, op: &R, all: &mut [u8]) -> Result<()> {
    let (rank, ranks) = (link.rank(), link.size());
    let (left, right) = (before(rank, 1, ranks), after(rank, 1, ranks));
    let size = op.element_bytes();
    let elements = all.len() / size;
    let (share, longer) = (elements / ranks, elements % ranks);
    let start = |i: usize| i * share + i.min(longer);
    let piece = |i: usize| bytes_of(start(i)..start(i + 1), size);
    let mut operand = scratch(elements.div_ceil(ranks) * size)?;
    for step in 0..ranks - 1 {
        let given = piece(before(rank, step, ranks));
        let grown = piece(before(rank, step + 1, ranks));
        let operand = &mut operand[..grown.len()];
        exchange(link, right, &all[given], left, operand).await?;
        combine(op, &mut all[grown], operand, true)?;
    }
    for step in 0..ranks - 1 {
        let (have, want) = (after(rank, 1 + ranks - step, ranks), before(rank, step, ranks));
        let (data, into) = split(all, piece(have), piece(want));
        exchange(link, right, data, left, into).await?;
    }
    Ok(())
}
