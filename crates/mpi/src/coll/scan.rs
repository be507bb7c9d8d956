//! MPI-5.0 §6.11.

use super::choose::{Case, Scan};
use super::work::{Batch, exchange, recv, scratch, send};
use super::{Link, Reducer, Tuning};
use crate::error::Result;

/// Combines the vectors of ranks `0..=rank`, in rank order, in `recv`. `mine: None` is `MPI_IN_PLACE`.
pub async fn scan<L: Link, R: Reducer + ?Sized>(link: &L, tuning: &Tuning, op: &R, mine: Option<&[u8]>, recv: &mut [u8]) -> Result<()> {
    if let Some(mine) = mine {
        recv.copy_from_slice(mine);
    }
    if link.size() == 1 || recv.is_empty() {
        return Ok(());
    }
    match tuning.scan.pick(&Case::reducing(link, op, recv.len())) {
        Scan::Doubling => doubling(link, op, recv, 0).await,
        Scan::Chain => chain(link, op, recv, segment_bytes(tuning, op)).await,
    }
}

/// Combines the vectors of ranks `0..rank`, in rank order, in `recv`; that of rank 0 stays as it is.
/// `mine: None` is `MPI_IN_PLACE`.
pub async fn exscan<L: Link, R: Reducer + ?Sized>(link: &L, tuning: &Tuning, op: &R, mine: Option<&[u8]>, recv: &mut [u8]) -> Result<()> {
    let (rank, ranks) = (link.rank(), link.size());
    if ranks == 1 || recv.is_empty() {
        return Ok(());
    }
    match tuning.exscan.pick(&Case::reducing(link, op, recv.len())) {
        Scan::Doubling => {
            shift(link, mine, recv).await?;
            if rank == 0 { Ok(()) } else { doubling(link, op, recv, 1).await }
        }
        Scan::Chain => exclusive_chain(link, op, mine, recv, segment_bytes(tuning, op)).await,
    }
}

/// Whole elements in one segment, in bytes.
fn segment_bytes<R: Reducer + ?Sized>(tuning: &Tuning, op: &R) -> usize {
    let size = op.element_bytes();
    (tuning.segment_bytes / size).max(1) * size
}

/// After step k a rank holds the sum of itself and the 2^k - 1 ranks before it, down to rank `first`
/// (Hillis and Steele 1986). Temporary: one vector.
async fn doubling<L: Link, R: Reducer + ?Sized>(link: &L, op: &R, value: &mut [u8], first: usize) -> Result<()> {
    let (rank, ranks) = (link.rank(), link.size());
    let mut operand = scratch(value.len())?;
    let mut step = 1;
    while step < ranks - first {
        let (to, from) = (rank + step, rank.checked_sub(step).filter(|&from| from >= first));
        let data: &[u8] = if to < ranks { value } else { &[] };
        match from {
            Some(from) => {
                exchange(link, to, data, from, &mut operand).await?;
                op.reduce(&operand, value)?;
            }
            None => send(link, to, data).await?,
        }
        step <<= 1;
    }
    Ok(())
}

/// Every rank hands its vector to the next one. Temporary: one vector if in place.
async fn shift<L: Link>(link: &L, mine: Option<&[u8]>, recv_buf: &mut [u8]) -> Result<()> {
    let (rank, ranks) = (link.rank(), link.size());
    let copy;
    let data = match mine {
        Some(mine) => mine,
        None => {
            let mut temp = scratch(recv_buf.len())?;
            temp.copy_from_slice(recv_buf);
            copy = temp;
            &copy[..]
        }
    };
    let data = if rank + 1 < ranks { data } else { &[] };
    if rank == 0 { send(link, 1, data).await } else { exchange(link, rank + 1, data, rank - 1, recv_buf).await }
}

/// Segment by segment along the ranks: a long vector passes each link once. Temporary: one segment.
async fn chain<L: Link, R: Reducer + ?Sized>(link: &L, op: &R, value: &mut [u8], segment_bytes: usize) -> Result<()> {
    let (rank, ranks) = (link.rank(), link.size());
    let mut operand = scratch(segment_bytes.min(value.len()))?;
    let mut sends = Batch::new();
    for segment in value.chunks_mut(segment_bytes) {
        if rank > 0 {
            let operand = &mut operand[..segment.len()];
            recv(link, rank - 1, operand).await?;
            op.reduce(operand, segment)?;
        }
        if rank + 1 < ranks {
            sends.send(link, rank + 1, segment).await?;
        }
    }
    sends.finish().await
}

/// As [`chain`]; what goes on includes the own value, what stays does not. Temporary: two segments.
async fn exclusive_chain<L: Link, R: Reducer + ?Sized>(link: &L, op: &R, mine: Option<&[u8]>, recv_buf: &mut [u8], segment_bytes: usize) -> Result<()> {
    let (rank, ranks) = (link.rank(), link.size());
    if rank == 0 {
        let mut sends = Batch::new();
        for segment in mine.unwrap_or(recv_buf).chunks(segment_bytes) {
            sends.send(link, 1, segment).await?;
        }
        return sends.finish().await;
    }
    let last = rank + 1 == ranks;
    let segment_bytes = segment_bytes.min(recv_buf.len());
    let mut operand = scratch(segment_bytes)?;
    let mut sum = scratch(if last { 0 } else { segment_bytes })?;
    let mut start = 0;
    for segment in recv_buf.chunks_mut(segment_bytes) {
        let operand = &mut operand[..segment.len()];
        recv(link, rank - 1, operand).await?;
        if !last {
            let sum = &mut sum[..segment.len()];
            sum.copy_from_slice(mine.map_or(segment, |mine| &mine[start..start + segment.len()]));
            op.reduce(operand, sum)?;
            send(link, rank + 1, sum).await?;
        }
        start += segment.len();
        segment.copy_from_slice(operand);
    }
    Ok(())
}
