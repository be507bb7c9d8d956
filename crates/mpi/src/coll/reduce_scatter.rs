//! MPI-5.0 §6.10.

use super::choose::{Case, ReduceScatter};
use super::work::{Fold, Part, after, before, combine, exchange, recv, scratch, send};
use super::{Link, Reducer, Tuning, reduce, scatter::scatterv};
use crate::error::Result;

/// As [`reduce_scatter`](super::reduce_scatter); block `i` goes from `starts[i]` to the next.
pub(super) async fn reduce_scatter<L: Link, R: Reducer + ?Sized>(
    link: &L,
    tuning: &Tuning,
    op: &R,
    mine: Option<&[u8]>,
    recv: &mut [u8],
    starts: &[usize],
) -> Result<()> {
    let (rank, ranks) = (link.rank(), link.size());
    let total = starts[ranks];
    if total == 0 {
        return Ok(());
    }
    if ranks == 1 {
        if let Some(mine) = mine {
            recv[..total].copy_from_slice(mine);
        }
        return Ok(());
    }
    let algorithm = tuning.reduce_scatter.pick(&Case::reducing(link, op, total));
    if algorithm == ReduceScatter::Pairwise {
        let own = starts[rank + 1] - starts[rank];
        let segment = (SEGMENTS * tuning.segment_bytes / op.element_bytes()).max(1) * op.element_bytes();
        if let Some(mine) = mine {
            return pairwise(link, op, mine, &mut recv[..own], starts, segment).await;
        }
        return Box::pin(async move {
            let mut value = scratch(own)?;
            pairwise(link, op, &recv[..total], &mut value, starts, segment).await?;
            recv[..own].copy_from_slice(&value);
            Ok(())
        })
        .await;
    }
    if algorithm == ReduceScatter::Halving {
        return halving(link, op, mine, recv, starts).await;
    }
    Box::pin(reduce_scatterv(link, op, mine, recv, starts)).await
}

/// The whole vector of this rank, which in place lies in `recv_buf`.
fn given<'a>(mine: Option<&'a [u8]>, recv_buf: &'a [u8], total: usize) -> &'a [u8] {
    match mine {
        Some(mine) => mine,
        None => &recv_buf[..total],
    }
}

/// A block is exchanged in pieces of this many of the tuning's segments, 4 MiB, so that temporaries are no longer than that.
const SEGMENTS: usize = 32;

/// Every rank sends each block to its owner, which combines them: n - 1 steps for each segment of the longest block, the least volume.
/// Values arrive from the ranks below, downwards, then from those above, downwards: two sums keep rank order.
/// Temporary: two segments of a block.
async fn pairwise<L: Link, R: Reducer + ?Sized>(link: &L, op: &R, mine: &[u8], value: &mut [u8], starts: &[usize], segment: usize) -> Result<()> {
    let (rank, ranks) = (link.rank(), link.size());
    let longest = starts.windows(2).map(|pair| pair[1] - pair[0]).max().unwrap_or(0);
    let mut high = scratch(value.len().min(segment))?;
    let mut operand = scratch(value.len().min(segment))?;
    for first in (0..longest).step_by(segment) {
        let part = |rank: usize| (starts[rank] + first).min(starts[rank + 1])..(starts[rank] + first + segment).min(starts[rank + 1]);
        let own = part(rank);
        let (high, operand) = (&mut high[..own.len()], &mut operand[..own.len()]);
        let value = &mut value[own.start - starts[rank]..own.end - starts[rank]];
        value.copy_from_slice(&mine[own]);
        for step in 1..ranks {
            let (to, from) = (after(rank, step, ranks), before(rank, step, ranks));
            let data = &mine[part(to)];
            if from == ranks - 1 {
                exchange(link, to, data, from, high).await?;
                continue;
            }
            exchange(link, to, data, from, operand).await?;
            combine(op, if from < rank { &mut *value } else { &mut *high }, operand, true)?;
        }
        if rank != ranks - 1 {
            combine(op, value, high, false)?;
        }
    }
    Ok(())
}

/// Recursive halving, nearest first so that rank order holds, over blocks laid out in bit-reversed order so that each
/// half is contiguous. Temporary: one and a half vectors, two on ranks that stand for two.
async fn halving<L: Link, R: Reducer + ?Sized>(link: &L, op: &R, mine: Option<&[u8]>, recv_buf: &mut [u8], starts: &[usize]) -> Result<()> {
    let (rank, ranks) = (link.rank(), link.size());
    let fold = Fold::new(ranks, None);
    let count = |rank: usize| starts[rank + 1] - starts[rank];
    let (number, aside) = match fold.part(rank) {
        Part::Aside(survivor) => {
            send(link, survivor, given(mine, recv_buf, starts[ranks])).await?;
            return recv(link, survivor, &mut recv_buf[..count(rank)]).await;
        }
        Part::Member { number, aside } => (number, aside),
    };
    let bits = fold.members.ilog2();
    let reversed = |number: usize| if bits == 0 { 0 } else { number.reverse_bits() >> (usize::BITS - bits) };
    // Place p of the layout holds the blocks of member reversed(p).
    let places = super::work::starts((0..fold.members).map(|place| fold.ranks(reversed(place)).map(count).sum()));
    let mut value = scratch(starts[ranks])?;
    let mut operand = scratch(starts[ranks])?;
    let arrange = |from: &[u8], to: &mut [u8]| {
        for place in 0..fold.members {
            let ranks = fold.ranks(reversed(place));
            to[places[place]..places[place + 1]].copy_from_slice(&from[starts[ranks.start]..starts[ranks.end]]);
        }
    };
    match aside {
        None => arrange(given(mine, recv_buf, starts[ranks]), &mut value),
        Some(aside) => {
            recv(link, aside, &mut operand).await?;
            let mut sum = scratch(starts[ranks])?;
            sum.copy_from_slice(given(mine, recv_buf, starts[ranks]));
            op.reduce(&operand, &mut sum)?;
            arrange(&sum, &mut value);
        }
    }
    let (mut low, mut high) = (0, fold.members);
    let mut mask = 1;
    while mask < fold.members {
        let middle = low + (high - low) / 2;
        let peer = number ^ mask;
        let (kept, given) = if peer < number { (middle..high, low..middle) } else { (low..middle, middle..high) };
        let operand = &mut operand[..places[kept.end] - places[kept.start]];
        let to = fold.rank(peer);
        exchange(link, to, &value[places[given.start]..places[given.end]], to, operand).await?;
        combine(op, &mut value[places[kept.start]..places[kept.end]], operand, peer < number)?;
        (low, high) = (kept.start, kept.end);
        mask <<= 1;
    }
    let blocks = &value[places[low]..places[high]];
    let first = fold.ranks(number).start;
    let (lower, upper) = blocks.split_at(count(first));
    let (own, other) = if first == rank { (lower, upper) } else { (upper, lower) };
    if let Some(aside) = aside {
        send(link, aside, other).await?;
    }
    recv_buf[..own.len()].copy_from_slice(own);
    Ok(())
}

/// Reduce to rank 0 and scatter. Temporary: two vectors.
async fn reduce_scatterv<L: Link, R: Reducer + ?Sized>(link: &L, op: &R, mine: Option<&[u8]>, recv_buf: &mut [u8], starts: &[usize]) -> Result<()> {
    let (rank, ranks) = (link.rank(), link.size());
    let own = starts[rank + 1] - starts[rank];
    let total = starts[ranks];
    if rank != 0 {
        reduce::binomial(link, op, given(mine, recv_buf, total), &mut [], 0, 0).await?;
        return scatterv(link, &[], Some(&mut recv_buf[..own]), 0).await;
    }
    let mut sum = scratch(total)?;
    sum.copy_from_slice(given(mine, recv_buf, total));
    reduce::binomial(link, op, &[], &mut sum, 0, 0).await?;
    let blocks: Vec<&[u8]> = starts.windows(2).map(|pair| &sum[pair[0]..pair[1]]).collect();
    scatterv(link, &blocks, Some(&mut recv_buf[..own]), 0).await
}
