//! MPI-5.0 §6.9.1.

use super::choose::{Case, Reduce};
use super::work::{Batch, Fold, Part, Work, after, before, bytes_of, combine, halve, halved, recv, scratch, send};
use super::{Link, Reducer, Tuning};
use crate::error::Result;

/// Combines the vectors of all ranks, in rank order, in `recv` of `root`. `mine: None` is `MPI_IN_PLACE`, at the root
/// only; `recv` matters at the root only.
pub async fn reduce<L: Link, R: Reducer + ?Sized>(link: &L, tuning: &Tuning, op: &R, mine: Option<&[u8]>, recv: &mut [u8], root: usize) -> Result<()> {
    let (rank, ranks) = (link.rank(), link.size());
    let bytes = if rank == root { recv.len() } else { mine.map_or(0, <[u8]>::len) };
    if rank == root
        && let Some(mine) = mine
    {
        recv.copy_from_slice(mine);
    }
    if ranks == 1 || bytes == 0 {
        return Ok(());
    }
    let mine = mine.unwrap_or_default();
    match tuning.reduce.pick(&Case::reducing(link, op, bytes)) {
        Reduce::Binomial | Reduce::Hosts => binomial(link, op, mine, recv, root, if op.commutative() && !tuning.reproducible { root } else { 0 }).await,
        Reduce::Flat => flat(link, op, mine, recv, root).await,
        // Memory of its own, so that the future of a short collective is small.
        Reduce::Rabenseifner => Box::pin(rabenseifner(link, op, mine, recv, root)).await,
    }
}

/// Up a binomial tree of places counted from `top`, and from there to the root; `top` is the root, of an operation that commutes, or
/// rank 0. The root's value lies in `recv`, the others' in `mine`. Temporary: at most two vectors.
pub(super) async fn binomial<L: Link, R: Reducer + ?Sized>(link: &L, op: &R, mine: &[u8], recv_buf: &mut [u8], root: usize, top: usize) -> Result<()> {
    let (rank, ranks) = (link.rank(), link.size());
    let place = before(rank, top, ranks);
    if place == 0 && rank == root {
        let mut operand = scratch(recv_buf.len())?;
        let mut work = Work::new(recv_buf, &mut operand);
        let mut mask = 1;
        while mask < ranks {
            recv(link, after(mask, top, ranks), work.operand).await?;
            work.higher(op)?;
            mask <<= 1;
        }
        work.finish();
        return Ok(());
    }
    let mine = if rank == root { &*recv_buf } else { mine };
    let mut value = None;
    let mut spare = None;
    let mut mask = 1;
    while mask < ranks && place & mask == 0 {
        if place + mask < ranks {
            let mut operand = match spare.take() {
                Some(spare) => spare,
                None => scratch(mine.len())?,
            };
            recv(link, after(place + mask, top, ranks), &mut operand).await?;
            op.reduce(value.as_deref().unwrap_or(mine), &mut operand)?;
            spare = value.replace(operand);
        }
        mask <<= 1;
    }
    let parent = if place == 0 { root } else { after(place - mask, top, ranks) };
    send(link, parent, value.as_deref().unwrap_or(mine)).await?;
    if rank == root {
        recv(link, top, recv_buf).await?;
    }
    Ok(())
}

/// The root combines what everyone sends. Temporary: the vectors of all others, at the root.
async fn flat<L: Link, R: Reducer + ?Sized>(link: &L, op: &R, mine: &[u8], value: &mut [u8], root: usize) -> Result<()> {
    if link.rank() == root { flat_root(link, op, value).await } else { send(link, root, mine).await }
}

/// Combines the vectors of all others with `value`, in rank order.
pub(super) async fn flat_root<L: Link, R: Reducer + ?Sized>(link: &L, op: &R, value: &mut [u8]) -> Result<()> {
    let (root, ranks) = (link.rank(), link.size());
    let bytes = value.len();
    let mut others = scratch((ranks - 1) * bytes)?;
    let mut receives = Batch::new();
    for (i, into) in others.chunks_exact_mut(bytes).enumerate() {
        receives.recv(link, if i < root { i } else { i + 1 }, into).await?;
    }
    receives.finish().await?;
    let (low, high) = others.split_at_mut(root * bytes);
    for operand in low.rchunks_exact(bytes) {
        op.reduce(operand, value)?;
    }
    let mut sum: Option<&mut [u8]> = None;
    for operand in high.chunks_exact_mut(bytes) {
        op.reduce(sum.as_deref().unwrap_or(value), operand)?;
        sum = Some(operand);
    }
    if let Some(sum) = sum {
        value.copy_from_slice(sum);
    }
    Ok(())
}

/// Reduce-scatter by recursive halving, then gather up the same butterfly (Rabenseifner 2004).
/// Temporary: one and a half vectors, half a vector at the root.
async fn rabenseifner<L: Link, R: Reducer + ?Sized>(link: &L, op: &R, mine: &[u8], recv_buf: &mut [u8], root: usize) -> Result<()> {
    let (rank, ranks) = (link.rank(), link.size());
    let fold = Fold::new(ranks, Some(root));
    let (number, aside) = match fold.part(rank) {
        Part::Aside(survivor) => return send(link, survivor, mine).await,
        Part::Member { number, aside } => (number, aside),
    };
    let mut copy;
    let value = if rank == root {
        recv_buf
    } else {
        copy = scratch(mine.len())?;
        copy.copy_from_slice(mine);
        &mut copy[..]
    };
    let size = op.element_bytes();
    let elements = value.len() / size;
    let mut operand = scratch(if aside.is_some() { value.len() } else { elements.div_ceil(2) * size })?;
    if let Some(aside) = aside {
        recv(link, aside, &mut operand).await?;
        combine(op, value, &mut operand, aside < rank)?;
    }
    halve(link, op, &fold, number, value, &mut operand).await?;
    let Part::Member { number: top, .. } = fold.part(root) else { unreachable!("the fold keeps the root") };
    let distance = number ^ top;
    let mut mask = fold.members;
    while mask > 1 {
        mask >>= 1;
        let peer = fold.rank(number ^ mask);
        if distance & mask != 0 {
            return send(link, peer, &value[bytes_of(halved(elements, number, 2 * mask), size)]).await;
        }
        recv(link, peer, &mut value[bytes_of(halved(elements, number ^ mask, 2 * mask), size)]).await?;
    }
    Ok(())
}
