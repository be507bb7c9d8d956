//! MPI-5.0 §6.4.

use super::choose::{Bcast, Case};
use super::work::{Batch, after, before, exchange, recv, send, split};
use super::{Link, Tuning};
use crate::error::Result;
use std::ops::Range;

/// Copies `buf` of `root` into `buf` of every rank; its length is the same everywhere. No temporaries.
pub async fn bcast<L: Link>(link: &L, tuning: &Tuning, buf: &mut [u8], root: usize) -> Result<()> {
    if link.size() == 1 || buf.is_empty() {
        return Ok(());
    }
    match tuning.bcast.pick(&Case::new(link, buf.len())) {
        Bcast::Binomial | Bcast::Hosts => binomial(link, buf, root).await,
        Bcast::Flat => flat(link, buf, root).await,
        // Memory of their own, so that the future of a short collective is small.
        Bcast::ScatterDoubling => Box::pin(scatter_doubling(link, buf, root)).await,
        Bcast::ScatterRing => Box::pin(scatter_ring(link, buf, root)).await,
        Bcast::Chain => Box::pin(chain(link, buf, root, tuning.segment_bytes)).await,
    }
}

/// ceil(log2 n) steps; the farthest subtree is served first.
pub(super) async fn binomial<L: Link>(link: &L, buf: &mut [u8], root: usize) -> Result<()> {
    let ranks = link.size();
    let place = before(link.rank(), root, ranks);
    let mut mask = 1;
    while mask < ranks && place & mask == 0 {
        mask <<= 1;
    }
    if place != 0 {
        recv(link, after(place - mask, root, ranks), buf).await?;
    }
    let buf = &*buf;
    let mut sends = Batch::new();
    while mask > 1 {
        mask >>= 1;
        if place + mask < ranks {
            sends.send(link, after(place + mask, root, ranks), buf).await?;
        }
    }
    sends.finish().await
}

/// The root sends to everyone.
pub(super) async fn flat<L: Link>(link: &L, buf: &mut [u8], root: usize) -> Result<()> {
    if link.rank() != root {
        return recv(link, root, buf).await;
    }
    let buf = &*buf;
    let mut sends = Batch::new();
    for to in (0..link.size()).filter(|&to| to != root) {
        sends.send(link, to, buf).await?;
    }
    sends.finish().await
}

/// How a long message is cut: piece `place` of nearly equal pieces, places counted from the root.
struct Pieces {
    bytes: usize,
    piece: usize,
}

impl Pieces {
    fn new(bytes: usize, ranks: usize) -> Self {
        Pieces { bytes, piece: bytes.div_ceil(ranks) }
    }

    fn range(&self, places: Range<usize>) -> Range<usize> {
        (places.start * self.piece).min(self.bytes)..(places.end * self.piece).min(self.bytes)
    }
}

/// Down a binomial tree each place gets the pieces of its subtree.
async fn scatter_pieces<L: Link>(link: &L, buf: &mut [u8], root: usize, pieces: &Pieces) -> Result<()> {
    let ranks = link.size();
    let place = before(link.rank(), root, ranks);
    let mut mask = 1;
    while mask < ranks && place & mask == 0 {
        mask <<= 1;
    }
    if place != 0 {
        let subtree = pieces.range(place..ranks.min(place + mask));
        recv(link, after(place - mask, root, ranks), &mut buf[subtree]).await?;
    }
    let buf = &*buf;
    let mut sends = Batch::new();
    while mask > 1 {
        mask >>= 1;
        if place + mask < ranks {
            let subtree = pieces.range(place + mask..ranks.min(place + 2 * mask));
            sends.send(link, after(place + mask, root, ranks), &buf[subtree]).await?;
        }
    }
    sends.finish().await
}

/// Scatter, then allgather by recursive doubling (van de Geijn); a power of two of ranks.
async fn scatter_doubling<L: Link>(link: &L, buf: &mut [u8], root: usize) -> Result<()> {
    let ranks = link.size();
    let place = before(link.rank(), root, ranks);
    let pieces = Pieces::new(buf.len(), ranks);
    scatter_pieces(link, buf, root, &pieces).await?;
    let mut mask = 1;
    while mask < ranks {
        let mine = place & !(mask - 1);
        let theirs = mine ^ mask;
        let (data, into) = split(buf, pieces.range(mine..mine + mask), pieces.range(theirs..theirs + mask));
        let peer = after(place ^ mask, root, ranks);
        exchange(link, peer, data, peer, into).await?;
        mask <<= 1;
    }
    Ok(())
}

/// Scatter, then allgather around a ring.
async fn scatter_ring<L: Link>(link: &L, buf: &mut [u8], root: usize) -> Result<()> {
    let ranks = link.size();
    let rank = link.rank();
    let place = before(rank, root, ranks);
    let pieces = Pieces::new(buf.len(), ranks);
    scatter_pieces(link, buf, root, &pieces).await?;
    let (left, right) = (before(rank, 1, ranks), after(rank, 1, ranks));
    for step in 0..ranks - 1 {
        let have = before(place, step, ranks);
        let want = before(place, step + 1, ranks);
        let (data, into) = split(buf, pieces.range(have..have + 1), pieces.range(want..want + 1));
        exchange(link, right, data, left, into).await?;
    }
    Ok(())
}

/// Segments travel along a chain, each forwarded while the next one arrives.
async fn chain<L: Link>(link: &L, buf: &mut [u8], root: usize, segment_bytes: usize) -> Result<()> {
    let ranks = link.size();
    let place = before(link.rank(), root, ranks);
    let (left, right) = (before(link.rank(), 1, ranks), after(link.rank(), 1, ranks));
    let mut forwarded: &mut [u8] = &mut [];
    for segment in buf.chunks_mut(segment_bytes.max(1)) {
        let last = place == ranks - 1;
        if place == 0 {
            send(link, right, segment).await?;
        } else {
            exchange(link, right, if last { &[] } else { forwarded }, left, segment).await?;
        }
        forwarded = segment;
    }
    if place != 0 && place != ranks - 1 {
        send(link, right, forwarded).await?;
    }
    Ok(())
}
