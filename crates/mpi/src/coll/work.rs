//! What the algorithms share: bounded batches, exchanges, splits, working vectors, the fold to a power of two.

use super::{IN_FLIGHT, Link, Reducer};
use crate::error::{Error, Result};
use std::cell::RefCell;
use std::collections::VecDeque;
use std::ops::{Deref, DerefMut, Range};

const MPI_ERR_NO_MEM: i32 = 39;

/// Temporary bytes as short as this stay off the heap.
const INLINE_BYTES: usize = 32;
/// Temporaries that a thread keeps for the next collective: their number, and the length of each, at most.
const SPARES: usize = 2;
const SPARE_BYTES_MAX: usize = 4 << 20;

thread_local! {
    // Fresh memory costs a page fault for each page; a steady program uses the same lengths again and again.
    static SPARE: RefCell<Vec<Vec<u8>>> = const { RefCell::new(Vec::new()) };
}

/// Temporary bytes with any content.
pub(crate) struct Scratch {
    inline: [u8; INLINE_BYTES],
    long: Vec<u8>,
    bytes: usize,
}

/// `bytes` bytes with any content, or `MPI_ERR_NO_MEM`.
pub(crate) fn scratch(bytes: usize) -> Result<Scratch> {
    let mut temp = Scratch { inline: [0; INLINE_BYTES], long: Vec::new(), bytes };
    if bytes > INLINE_BYTES {
        temp.long = SPARE
            .with_borrow_mut(|spare| {
                let fits = spare.iter().position(|buffer| buffer.len() >= bytes)?;
                Some(spare.swap_remove(fits))
            })
            .unwrap_or_default();
        if temp.long.is_empty() {
            temp.long = zeros(bytes)?;
        }
    }
    Ok(temp)
}

impl Deref for Scratch {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        if self.long.is_empty() { &self.inline[..self.bytes] } else { &self.long[..self.bytes] }
    }
}

impl DerefMut for Scratch {
    fn deref_mut(&mut self) -> &mut [u8] {
        if self.long.is_empty() { &mut self.inline[..self.bytes] } else { &mut self.long[..self.bytes] }
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        if self.long.is_empty() || self.long.len() > SPARE_BYTES_MAX {
            return;
        }
        let long = std::mem::take(&mut self.long);
        // A thread that ends has no spares any more.
        let _ = SPARE.try_with(|spare| {
            let mut spare = spare.borrow_mut();
            if spare.len() < SPARES {
                spare.push(long);
            } else if let Some(shortest) = spare.iter_mut().min_by_key(|buffer| buffer.len())
                && shortest.len() < long.len()
            {
                *shortest = long;
            }
        });
    }
}

/// `MPI_ERR_NO_MEM`.
#[cold]
pub fn no_memory(bytes: usize) -> Box<Error> {
    Error::new(MPI_ERR_NO_MEM, format!("no memory for {bytes} temporary bytes of a collective operation"))
}

/// Room for `bytes`, or `MPI_ERR_NO_MEM`.
pub fn reserve(bytes: usize) -> Result<Vec<u8>> {
    let mut room = Vec::new();
    room.try_reserve_exact(bytes).map_err(|_| no_memory(bytes))?;
    Ok(room)
}

/// `bytes` zeros, or `MPI_ERR_NO_MEM`.
pub fn zeros(bytes: usize) -> Result<Vec<u8>> {
    let mut room = reserve(bytes)?;
    room.resize(bytes, 0);
    Ok(room)
}

/// The same bytes again, or `MPI_ERR_NO_MEM`.
pub fn copy(bytes: &[u8]) -> Result<Vec<u8>> {
    let mut room = reserve(bytes.len())?;
    room.extend_from_slice(bytes);
    Ok(room)
}

/// Operations of one batch, so that an exchange beside it stays within [`IN_FLIGHT`].
const BATCH: usize = IN_FLIGHT - 2;

/// Started operations, at most [`BATCH`]: past that, a new one waits for the oldest.
pub(super) struct Batch<'a, L: Link + 'a> {
    ops: VecDeque<L::Op<'a>>,
}

impl<'a, L: Link> Batch<'a, L> {
    pub(super) fn new() -> Self {
        Batch { ops: VecDeque::new() }
    }

    async fn room(&mut self) -> Result<()> {
        if self.ops.len() >= BATCH
            && let Some(oldest) = self.ops.pop_front()
        {
            oldest.await?;
        }
        Ok(())
    }

    /// Starts a send; nothing where `data` is empty.
    pub(super) async fn send(&mut self, link: &'a L, to: usize, data: &'a [u8]) -> Result<()> {
        if !data.is_empty() {
            self.room().await?;
            self.ops.push_back(link.send(to, data));
        }
        Ok(())
    }

    /// Starts a receive; nothing where `into` is empty.
    pub(super) async fn recv(&mut self, link: &'a L, from: usize, into: &'a mut [u8]) -> Result<()> {
        if !into.is_empty() {
            self.room().await?;
            self.ops.push_back(link.recv(from, into));
        }
        Ok(())
    }

    /// Waits for all.
    pub(super) async fn finish(self) -> Result<()> {
        for op in self.ops {
            op.await?;
        }
        Ok(())
    }
}

/// Sends `data` unless empty, and waits.
pub(super) async fn send<L: Link>(link: &L, to: usize, data: &[u8]) -> Result<()> {
    if data.is_empty() { Ok(()) } else { link.send(to, data).await }
}

/// Receives into `into` unless empty, and waits.
pub(super) async fn recv<L: Link>(link: &L, from: usize, into: &mut [u8]) -> Result<()> {
    if into.is_empty() { Ok(()) } else { link.recv(from, into).await }
}

/// Sends and receives at once; empty sides are skipped.
pub(super) async fn exchange<L: Link>(link: &L, to: usize, data: &[u8], from: usize, into: &mut [u8]) -> Result<()> {
    let receive = (!into.is_empty()).then(|| link.recv(from, into));
    let transmit = (!data.is_empty()).then(|| link.send(to, data));
    if let Some(op) = transmit {
        op.await?;
    }
    match receive {
        Some(op) => op.await,
        None => Ok(()),
    }
}

/// The bytes of `shared` for reading and those of `own`, disjoint from them, for writing.
pub(super) fn split(buf: &mut [u8], shared: Range<usize>, own: Range<usize>) -> (&[u8], &mut [u8]) {
    if shared.is_empty() {
        return (&[], &mut buf[own]);
    }
    if own.is_empty() {
        return (&buf[shared], &mut []);
    }
    if shared.end <= own.start {
        let (low, high) = buf.split_at_mut(own.start);
        (&low[shared], &mut high[..own.end - own.start])
    } else {
        assert!(own.end <= shared.start, "ranges {shared:?} and {own:?} overlap");
        let (low, high) = buf.split_at_mut(shared.start);
        (&high[..shared.end - shared.start], &mut low[own])
    }
}

/// Block `i` of equal blocks.
pub(super) fn block(i: usize, block_bytes: usize) -> Range<usize> {
    i * block_bytes..(i + 1) * block_bytes
}

/// Bytes of one of `ranks` equal blocks that fill `buf_bytes`.
pub(super) fn block_bytes(buf_bytes: usize, ranks: usize) -> usize {
    assert!(buf_bytes.is_multiple_of(ranks), "{buf_bytes} bytes are not {ranks} equal blocks");
    buf_bytes / ranks
}

/// `blocks` equal parts of `buf`, empty ones if it is empty.
pub(super) fn equal_blocks(buf: &mut [u8], blocks: usize) -> impl Iterator<Item = &mut [u8]> {
    let bytes = block_bytes(buf.len(), blocks.max(1));
    parts(buf, std::iter::repeat_n(bytes, blocks))
}

/// Consecutive parts of `buf` of the given lengths.
pub(super) fn parts(buf: &mut [u8], lengths: impl Iterator<Item = usize>) -> impl Iterator<Item = &mut [u8]> {
    let mut rest = buf;
    lengths.map(move |bytes| {
        let (part, tail) = std::mem::take(&mut rest).split_at_mut(bytes);
        rest = tail;
        part
    })
}

/// Rank `rank - step` around the ring.
pub(super) fn before(rank: usize, step: usize, ranks: usize) -> usize {
    (rank + ranks - step % ranks) % ranks
}

/// Rank `rank + step` around the ring.
pub(super) fn after(rank: usize, step: usize, ranks: usize) -> usize {
    (rank + step) % ranks
}

/// Starts of consecutive parts of the given lengths, and the end of the last.
pub(super) fn starts(lengths: impl Iterator<Item = usize>) -> Vec<usize> {
    let mut starts = vec![0];
    let mut end = 0;
    starts.extend(lengths.map(|length| {
        end += length;
        end
    }));
    starts
}

/// The value so far and the place where the next operand arrives. Combining keeps rank order exactly:
/// the value of the lower ranks is always the operation's first operand.
pub(super) struct Work<'a> {
    pub(super) value: &'a mut [u8],
    pub(super) operand: &'a mut [u8],
    at_home: bool,
}

impl<'a> Work<'a> {
    /// `home` holds the first value and, after [`Work::finish`], the last.
    pub(super) fn new(home: &'a mut [u8], operand: &'a mut [u8]) -> Self {
        Work { value: home, operand, at_home: true }
    }

    /// The operand comes from lower ranks.
    pub(super) fn lower<R: Reducer + ?Sized>(&mut self, op: &R) -> Result<()> {
        op.reduce(self.operand, self.value)
    }

    /// The operand comes from higher ranks.
    pub(super) fn higher<R: Reducer + ?Sized>(&mut self, op: &R) -> Result<()> {
        op.reduce(self.value, self.operand)?;
        std::mem::swap(&mut self.value, &mut self.operand);
        self.at_home = !self.at_home;
        Ok(())
    }

    pub(super) fn finish(self) {
        if !self.at_home {
            self.operand.copy_from_slice(self.value);
        }
    }
}

/// `value = operand op value` if the operand is `lower`, else `value op operand`. A commutative operation never
/// copies, so use this only where one rank alone computes the element: elsewhere results could differ in their last bit.
pub(super) fn combine<R: Reducer + ?Sized>(op: &R, value: &mut [u8], operand: &mut [u8], lower: bool) -> Result<()> {
    if value.is_empty() {
        Ok(())
    } else if lower || op.commutative() {
        op.reduce(operand, value)
    } else {
        op.reduce(value, operand)?;
        value.copy_from_slice(operand);
        Ok(())
    }
}

/// The largest power of two of ranks that takes part in a butterfly: of the first `2 * extra` ranks each pair
/// `(2i, 2i + 1)` is one member, numbered `i`; of a pair the odd rank survives, or `keep` if it is in the pair.
/// Members stay in rank order, so combining neighbours first keeps the order of operands.
#[derive(Clone, Copy)]
pub(super) struct Fold {
    pub(super) members: usize,
    extra: usize,
    keep: Option<usize>,
}

/// The part of this rank in a [`Fold`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Part {
    /// Gives its value to this rank and awaits the result.
    Aside(usize),
    /// Takes part as member `number`, for the rank `aside` too.
    Member { number: usize, aside: Option<usize> },
}

impl Fold {
    pub(super) fn new(ranks: usize, keep: Option<usize>) -> Self {
        let members = 1 << ranks.ilog2();
        Fold { members, extra: ranks - members, keep }
    }

    fn survivor(&self, pair: usize) -> usize {
        match self.keep {
            Some(rank) if rank == 2 * pair => rank,
            _ => 2 * pair + 1,
        }
    }

    pub(super) fn part(&self, rank: usize) -> Part {
        if rank >= 2 * self.extra {
            return Part::Member { number: rank - self.extra, aside: None };
        }
        let survivor = self.survivor(rank / 2);
        if rank == survivor { Part::Member { number: rank / 2, aside: Some(rank ^ 1) } } else { Part::Aside(survivor) }
    }

    /// The rank that is member `number`.
    pub(super) fn rank(&self, number: usize) -> usize {
        if number < self.extra { self.survivor(number) } else { number + self.extra }
    }

    /// The ranks that member `number` stands for.
    pub(super) fn ranks(&self, number: usize) -> Range<usize> {
        if number < self.extra { 2 * number..2 * number + 2 } else { number + self.extra..number + self.extra + 1 }
    }
}

/// The elements that member `number` holds before step `mask` of recursive halving over `elements`.
pub(super) fn halved(elements: usize, number: usize, mask: usize) -> Range<usize> {
    let (mut low, mut high) = (0, elements);
    let mut bit = 1;
    while bit < mask {
        let middle = low + (high - low) / 2;
        if number & bit == 0 {
            high = middle;
        } else {
            low = middle;
        }
        bit <<= 1;
    }
    low..high
}

/// A range of elements as bytes.
pub(super) fn bytes_of(elements: Range<usize>, element_bytes: usize) -> Range<usize> {
    elements.start * element_bytes..elements.end * element_bytes
}

/// Recursive halving among the members of `fold`, nearest first (Rabenseifner 2004): afterwards member `number` holds
/// the combined elements `halved(elements, number, fold.members)` of `value`. `operand` has at least half the bytes, rounded up.
pub(super) async fn halve<L: Link, R: Reducer + ?Sized>(link: &L, op: &R, fold: &Fold, number: usize, value: &mut [u8], operand: &mut [u8]) -> Result<()> {
    let size = op.element_bytes();
    let elements = value.len() / size;
    let mut mask = 1;
    while mask < fold.members {
        let peer = number ^ mask;
        let kept = bytes_of(halved(elements, number, 2 * mask), size);
        let given = bytes_of(halved(elements, peer, 2 * mask), size);
        let operand = &mut operand[..kept.len()];
        let to = fold.rank(peer);
        exchange(link, to, &value[given], to, operand).await?;
        combine(op, &mut value[kept], operand, peer < number)?;
        mask <<= 1;
    }
    Ok(())
}
