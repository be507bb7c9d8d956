//! Short collectives through the memory that the members of a communicator share: each brings its part in its
//! [turn](Turn) and takes what it needs from those of the others. Every part is read at most once by each, and nobody
//! waits for ranks whose parts it does not need.

use super::*;
use crate::coll::Reducer;
use crate::turn::lend::{BYTES_MIN, Loan};
use crate::turn::rounds::Rounds;
use crate::turn::{PIECE_BYTES, Part, Turn};
use engine::slots::{INLINE_BYTES, Readers, take_brought};
use std::iter::once;
use std::ops::Range;

/// Up to so many bytes every rank combines the whole vectors of all, or of all before it; longer ones are combined in
/// slices, one a rank, or along the ranks, unless there are only two.
const WHOLE_BYTES_MAX: usize = 4 << 10;

/// Where the block for `to` lies among those that `from` brings, which are those for the ranks behind it, in a circle.
#[inline]
fn place(from: usize, to: usize, ranks: usize) -> usize {
    (to + ranks - from - 1) % ranks
}

/// The ranks behind `me`, in a circle.
#[inline]
pub(super) fn others(me: usize, ranks: usize) -> impl Iterator<Item = usize> {
    (1..ranks).map(move |step| if me + step < ranks { me + step } else { me + step - ranks })
}

/// What a rank brings to a broadcast. False, here and below: that has to wait ([`Turn::bring`]).
#[inline]
pub(super) fn bcast_offer(turn: &Turn, data: &[u8], root: usize) -> Result<bool> {
    if turn.rank() == root { turn.bring(data, Readers::All) } else { Ok(true) }
}

#[inline]
pub(super) fn bcast(turn: &Turn, into: &mut [u8], root: usize) -> Result<()> {
    turn.take_part(root, into.len(), 0, into)
}

#[inline]
pub(super) fn gather_offer(turn: &Turn, mine: &[u8], root: usize) -> Result<bool> {
    if turn.rank() == root { Ok(true) } else { turn.bring(mine, Readers::One(root)) }
}

/// At the root. `mine`: the own block, unless it is in place in `all`.
#[inline]
pub(super) fn gather(turn: &Turn, mine: Option<&[u8]>, all: &mut [u8]) -> Result<()> {
    let (me, ranks) = (turn.rank(), turn.ranks());
    let block = all.len() / ranks;
    if let Some(mine) = mine {
        all[me * block..][..block].copy_from_slice(mine);
    }
    others(me, ranks).try_for_each(|rank| turn.take_part(rank, block, 0, &mut all[rank * block..][..block]))
}

/// Brings the blocks for the other ranks, of `all`.
#[inline]
fn bring_others(turn: &Turn, all: &[u8]) -> Result<bool> {
    let (me, ranks) = (turn.rank(), turn.ranks());
    let block = all.len() / ranks;
    let of = |rank: usize| &all[rank * block..][..block];
    if ranks == 2 {
        return turn.bring(of(1 - me), Readers::All);
    }
    Ok(turn.bring_blocks((ranks - 1) * block, Readers::All, others(me, ranks).map(of))?.is_some())
}

/// At the root.
#[inline]
pub(super) fn scatter_offer(turn: &Turn, all: &[u8]) -> Result<bool> {
    bring_others(turn, all)
}

/// `mine`: where the own block goes, unless it is in place in `all`.
#[inline]
pub(super) fn scatter(turn: &Turn, all: &[u8], mine: Option<&mut [u8]>, root: usize) -> Result<()> {
    let (me, ranks) = (turn.rank(), turn.ranks());
    if me == root {
        if let Some(mine) = mine {
            mine.copy_from_slice(&all[me * mine.len()..][..mine.len()]);
        }
        return Ok(());
    }
    let mine = mine.unwrap_or_default();
    turn.take_part(root, (ranks - 1) * mine.len(), place(root, me, ranks) * mine.len(), mine)
}

#[inline]
pub(super) fn allgather_offer(turn: &Turn, mine: &[u8]) -> Result<bool> {
    turn.bring(mine, Readers::All)
}

/// `mine` as in [`gather`].
#[inline]
pub(super) fn allgather(turn: &Turn, mine: Option<&[u8]>, all: &mut [u8]) -> Result<()> {
    gather(turn, mine, all)
}

#[inline]
pub(super) fn alltoall_offer(turn: &Turn, blocks: &[u8]) -> Result<bool> {
    bring_others(turn, blocks)
}

/// `from`: all blocks, unless they are in place in `into`.
#[inline]
pub(super) fn alltoall(turn: &Turn, from: Option<&[u8]>, into: &mut [u8]) -> Result<()> {
    let (me, ranks) = (turn.rank(), turn.ranks());
    let block = into.len() / ranks;
    let bytes = (ranks - 1) * block;
    if let Some(from) = from {
        into[me * block..][..block].copy_from_slice(&from[me * block..][..block]);
    }
    others(me, ranks).try_for_each(|rank| turn.take_part(rank, bytes, place(rank, me, ranks) * block, &mut into[rank * block..][..block]))
}

/// Longest block of one rank to one that goes with the others' in a part of [`lines::part_of`]; among more than two, those
/// with a length have a table in front.
pub(super) fn block_bytes_max(ranks: usize) -> usize {
    (lines::part_of(ranks) - table_bytes(ranks)) / (ranks - 1)
}

/// Where each rank's block begins and ends in a part, four bytes each. Between two there is one block, and no table.
pub(super) fn table_bytes(ranks: usize) -> usize {
    if ranks == 2 { 0 } else { 4 * (ranks + 1) }
}

/// Whether a block goes through the memory that all share: sender and receiver say the same. Others go by messages.
pub(super) fn short(bytes: usize, ranks: usize) -> bool {
    bytes <= block_bytes_max(ranks)
}

/// Brings a block for each rank, in their order, but those that are not [`short`], and `me`'s own.
fn bring_each<'a>(turn: &Turn, block: impl Fn(usize) -> &'a [u8]) -> Result<bool> {
    let (me, ranks) = (turn.rank(), turn.ranks());
    if ranks == 2 {
        let block = block(1 - me);
        return turn.bring(if short(block.len(), ranks) { block } else { &[] }, Readers::One(1 - me));
    }
    bring_with_table(turn, &[], |rank| rank != me && short(block(rank).len(), ranks), &block)
}

/// Among more than two, brings the blocks that `goes` says, behind a table of where each begins and ends, and `more`.
pub(super) fn bring_with_table<'a>(turn: &Turn, more: &[u8], goes: impl Fn(usize) -> bool, block: impl Fn(usize) -> &'a [u8]) -> Result<bool> {
    let ranks = turn.ranks();
    let mut table = [0u8; 4 * (lines::RANKS_MAX + 1)];
    let mut end = table_bytes(ranks) + more.len();
    for rank in 0..=ranks {
        table[4 * rank..4 * rank + 4].copy_from_slice(&(end as u32).to_ne_bytes());
        end += if rank < ranks && goes(rank) { block(rank).len() } else { 0 };
    }
    #[expect(clippy::redundant_closure, reason = "the blocks live longer than the table beside them, and must be allowed not to")]
    let each = (0..ranks).filter(|rank| goes(*rank)).map(|rank| block(rank));
    turn.bring_blocks(end, Readers::All, once(&table[..table_bytes(ranks)]).chain(once(more)).chain(each)).map(|offset| offset.is_some())
}

/// Copies a block whole; both have one length.
#[inline]
pub(super) fn copied(into: &mut [u8], from: &[u8]) -> Result<()> {
    into.copy_from_slice(from);
    Ok(())
}

/// As [`copied`], of what another rank has brought.
#[inline]
pub(super) fn taken(into: &mut [u8], from: &[u8]) -> Result<()> {
    take_brought(into, from);
    Ok(())
}

/// Where the block of `rank` begins and ends in a part with a [table](table_bytes).
pub(super) fn place_in(part: &Part, rank: usize) -> Result<(usize, usize)> {
    let mut ends = [0; 8];
    part.copy_range(4 * rank, &mut ends)?;
    let at = |place: usize| u32::from_ne_bytes(*ends[place..].first_chunk().expect("four bytes")) as usize;
    Ok((at(0), at(4)))
}

/// Takes this rank's block of those that `rank` [brings](bring_each); of no bytes, or one that is not [`short`], it
/// does not wait.
pub(super) fn take_own(turn: &Turn, rank: usize, into: &mut [u8]) -> Result<()> {
    let (me, ranks) = (turn.rank(), turn.ranks());
    if into.is_empty() || !short(into.len(), ranks) {
        return Ok(());
    }
    if ranks == 2 {
        return turn.take_part(rank, into.len(), 0, into);
    }
    let part = turn.any_part(rank)?;
    let (from, to) = place_in(&part, me)?;
    if to.wrapping_sub(from) != into.len() || to > part.len() {
        return Err(turn.wrong_length(rank, to.wrapping_sub(from), into.len()));
    }
    part.copy_range(from, into)
}

/// Whether one of the blocks of all ranks, of so many bytes, goes by messages: one that is longer than `most`, but for this rank's own.
pub(super) fn any_long(turn: &Turn, most: usize, bytes: impl Iterator<Item = usize>) -> bool {
    bytes.enumerate().any(|(rank, bytes)| rank != turn.rank() && bytes > most)
}

/// Exchanges the blocks that [go by messages](any_long): `from` has those for each rank, unless they are in place in `into`,
/// which has those from each.
pub(super) fn exchange_long(turn: &Turn, most: usize, mut from: Option<PerRank<&[u8]>>, mut into: PerRank<&mut [u8]>) -> Result<()> {
    let stays = |rank: usize, bytes: usize| rank == turn.rank() || bytes <= most;
    for (_, block) in from.iter_mut().flatten().enumerate().filter(|(rank, block)| stays(*rank, block.len())) {
        *block = &[];
    }
    for (_, block) in into.iter_mut().enumerate().filter(|(rank, block)| stays(*rank, block.len())) {
        *block = &mut [];
    }
    let channel = turn.channel()?;
    turn.block(coll::alltoallv(&channel, channel.tuning(), from.as_deref(), &mut into))
}

/// No block for any rank.
fn none<T: Default>(ranks: usize) -> PerRank<T> {
    (0..ranks).map(|_| T::default()).collect()
}

/// The same blocks, borrowed for a call.
fn again<'a>(blocks: &'a mut [&mut [u8]]) -> PerRank<&'a mut [u8]> {
    blocks.iter_mut().map(|block| &mut **block).collect()
}

/// `mine` as in [`gather`].
pub(super) fn gatherv(turn: &Turn, mine: Option<&[u8]>, all: &mut [&mut [u8]], root: usize) -> Result<()> {
    let (me, ranks) = (turn.rank(), turn.ranks());
    let most = block_bytes_max(ranks);
    if me != root {
        let mine = mine.unwrap_or_default();
        if !short(mine.len(), ranks) {
            let from = (0..ranks).map(|rank| if rank == root { mine } else { &[] }).collect();
            return exchange_long(turn, most, Some(from), none(ranks));
        }
        return if mine.is_empty() { Ok(()) } else { turn.bring(mine, Readers::One(root)).map(|_| ()) };
    }
    if let Some(mine) = mine {
        all[me].copy_from_slice(mine);
    }
    for rank in others(me, ranks) {
        let bytes = all[rank].len();
        if bytes > 0 && short(bytes, ranks) {
            turn.take_part(rank, bytes, 0, all[rank])?;
        }
    }
    if any_long(turn, most, all.iter().map(|block| block.len())) { exchange_long(turn, most, Some(none(ranks)), again(all)) } else { Ok(()) }
}

/// `mine` as in [`scatter`].
pub(super) fn scatterv(turn: &Turn, all: &[&[u8]], mine: Option<&mut [u8]>, root: usize) -> Result<()> {
    let (me, ranks) = (turn.rank(), turn.ranks());
    let most = block_bytes_max(ranks);
    if me == root {
        bring_each(turn, |rank| all[rank])?;
        if let Some(mine) = mine {
            mine.copy_from_slice(all[root]);
        }
        let any = any_long(turn, most, all.iter().map(|block| block.len()));
        return if any { exchange_long(turn, most, Some(all.iter().copied().collect()), none(ranks)) } else { Ok(()) };
    }
    let mine = mine.unwrap_or_default();
    if short(mine.len(), ranks) {
        return take_own(turn, root, mine);
    }
    let mut into: PerRank<&mut [u8]> = none(ranks);
    into[root] = mine;
    exchange_long(turn, most, Some(none(ranks)), into)
}

pub(super) fn allgatherv_offer(turn: &Turn, mine: &[u8]) -> Result<bool> {
    if mine.is_empty() { Ok(true) } else { turn.bring(mine, Readers::All) }
}

/// `mine` as in [`gather`].
pub(super) fn allgatherv(turn: &Turn, mine: Option<&[u8]>, all: &mut [&mut [u8]]) -> Result<()> {
    let (me, ranks) = (turn.rank(), turn.ranks());
    if let Some(mine) = mine {
        all[me].copy_from_slice(mine);
    }
    for rank in others(me, ranks) {
        let bytes = all[rank].len();
        if bytes > 0 {
            turn.take_part(rank, bytes, 0, all[rank])?;
        }
    }
    Ok(())
}

/// `from` as in [`alltoall`].
pub(super) fn alltoallv(turn: &Turn, from: Option<&[&[u8]]>, into: &mut [&mut [u8]]) -> Result<()> {
    let (me, ranks) = (turn.rank(), turn.ranks());
    let longest = from.map_or(0, lent::longest).max(lent::longest(into));
    if longest >= BYTES_MIN
        && let Some(lending) = turn.lending()
    {
        return lent::alltoallv(turn, lending, from, into);
    }
    match from {
        Some(from) => {
            bring_each(turn, |rank| from[rank])?;
            into[me].copy_from_slice(from[me]);
        }
        None => {
            bring_each(turn, |rank| &*into[rank])?;
        }
    }
    others(me, ranks).try_for_each(|rank| take_own(turn, rank, into[rank]))?;
    rest_by_messages(turn, block_bytes_max(ranks), from, into)
}

/// Of a nonblocking alltoallv: brings the short ones of `blocks`.
pub(super) fn alltoallv_offer(turn: &Turn, blocks: &[&[u8]]) -> Result<bool> {
    bring_each(turn, |rank| blocks[rank])
}

/// And takes them: into those of `into` that are not empty, and this rank's `own`, unless that is in place.
pub(super) fn alltoallv_collect(turn: &Turn, own: Option<&[u8]>, into: &mut [&mut [u8]]) -> Result<()> {
    if let Some(own) = own {
        into[turn.rank()].copy_from_slice(own);
    }
    others(turn.rank(), turn.ranks()).try_for_each(|rank| take_own(turn, rank, into[rank]))
}

/// Of an alltoallv, exchanges the blocks that are longer than `most` by messages, if there are some.
pub(super) fn rest_by_messages(turn: &Turn, most: usize, from: Option<&[&[u8]]>, into: &mut [&mut [u8]]) -> Result<()> {
    let outgoing = |from: &[&[u8]]| any_long(turn, most, from.iter().map(|block| block.len()));
    if !from.is_some_and(outgoing) && !any_long(turn, most, into.iter().map(|block| block.len())) {
        return Ok(());
    }
    exchange_long(turn, most, from.map(|from| from.iter().copied().collect()), again(into))
}

/// Of a vector of `bytes`, how many are combined at once.
#[inline]
fn step_of(op: &Operation, bytes: usize) -> usize {
    // What the program takes for one value may be several elements: its operation gets the whole vector.
    if bytes <= PIECE_BYTES || op.keeps_layout() { bytes.max(1) } else { (PIECE_BYTES / op.element_bytes()).max(1) * op.element_bytes() }
}

/// In which order values of several ranks are combined; between two it is the same.
#[derive(Clone, Copy, PartialEq)]
pub(super) enum Order {
    /// From the last rank down: no value has to be kept.
    Down,
    /// That of [`coll::Tuning::reproducible`], as reductions by messages have it then.
    Halves,
    /// From the first rank up, as scans by messages along the ranks have it.
    Up,
}

impl Order {
    pub(super) fn of(turn: &Turn, reproducible: Order) -> Order {
        if turn.reproducible() { reproducible } else { Order::Down }
    }
}

/// What fits into a line, aligned for every element that a user's operation may be given.
#[repr(align(16))]
struct OnLine([u8; INLINE_BYTES]);

/// Where ranks find the vectors of others.
#[derive(Clone, Copy)]
pub(super) enum Source<'a> {
    Room,
    /// Members lend them.
    Loan(&'a Loan<'a>),
    /// In this one of the rounds.
    Rounds(&'a Rounds<'a>, usize),
}

/// The vectors of several ranks, of `bytes` each. `own`: the part of this rank's that is combined, where it is not read from
/// what it has brought.
pub(super) struct Vectors<'a> {
    turn: &'a Turn<'a>,
    source: Source<'a>,
    op: &'a Operation,
    bytes: usize,
    /// Where the part begins that is combined.
    from: usize,
    own: Option<&'a [u8]>,
}

impl<'a> Vectors<'a> {
    /// Vectors that members lend, or bring in a round.
    pub(super) fn of(turn: &'a Turn<'a>, source: Source<'a>, op: &'a Operation, bytes: usize, from: usize, own: Option<&'a [u8]>) -> Vectors<'a> {
        Vectors { turn, source, op, bytes, from, own }
    }

    /// Gives bytes `at..end` of the part of `rank` to `then`.
    fn with<T>(&self, rank: usize, at: usize, end: usize, then: impl FnOnce(&[u8]) -> Result<T>) -> Result<T> {
        if let Some(own) = self.own.filter(|_| rank == self.turn.rank()) {
            return then(&own[at..end]);
        }
        match self.source {
            Source::Room => {}
            Source::Loan(loan) => {
                let mut theirs = coll::scratch(end - at)?;
                loan.read(rank, self.bytes, self.from + at, &mut theirs)?;
                return then(&theirs);
            }
            Source::Rounds(rounds, round) => return then(rounds.part(round, rank, self.from + at..self.from + end)?),
        }
        if self.bytes <= INLINE_BYTES {
            let mut line = OnLine([0; INLINE_BYTES]);
            let theirs = &mut line.0[..end - at];
            self.turn.take_part(rank, self.bytes, self.from + at, theirs)?;
            return then(theirs);
        }
        then(self.turn.part(rank, self.bytes)?.bytes(self.from + at, self.from + end)?)
    }

    /// Copies the bytes from `at` on that `out` takes of the part of `rank`.
    #[inline]
    fn copy(&self, rank: usize, at: usize, out: &mut [u8]) -> Result<()> {
        match (self.own, self.source) {
            (Some(own), _) if rank == self.turn.rank() => copied(out, &own[at..at + out.len()]),
            (_, Source::Loan(loan)) => loan.read(rank, self.bytes, self.from + at, out),
            (_, Source::Rounds(rounds, round)) => taken(out, rounds.part(round, rank, self.from + at..self.from + at + out.len())?),
            (_, Source::Room) => self.turn.take_part(rank, self.bytes, self.from + at, out),
        }
    }

    /// Combines the whole part of all ranks, or of all `but` one, which no order forbids, piece by piece.
    pub(super) fn combine_all(&self, order: Order, but: Option<usize>, out: &mut [u8]) -> Result<()> {
        self.in_pieces(out, |at, piece| match but {
            Some(but) => self.combine_but(but, at, piece),
            None => self.combine(order, 0..self.turn.ranks(), at, piece),
        })
    }

    /// Lets `combine` combine the part that `out` takes, piece by piece.
    #[inline]
    fn in_pieces(&self, out: &mut [u8], mut combine: impl FnMut(usize, &mut [u8]) -> Result<()>) -> Result<()> {
        let step = step_of(self.op, out.len());
        out.chunks_mut(step).enumerate().try_for_each(|(at, piece)| combine(at * step, piece))
    }

    /// As [`Vectors::combine`], of all ranks `but` one, in the order [`Order::Down`].
    fn combine_but(&self, but: usize, at: usize, out: &mut [u8]) -> Result<()> {
        let mut ranks = (0..self.turn.ranks()).rev().filter(|rank| *rank != but);
        let last = ranks.next().expect("more than two ranks");
        self.combine_down(last, ranks, at, out)
    }

    /// Combines what `last` has with what `ranks` have, each lower than the one before: the lower rank's value is always on the left.
    #[inline]
    fn combine_down(&self, last: usize, mut ranks: impl Iterator<Item = usize>, at: usize, out: &mut [u8]) -> Result<()> {
        let end = at + out.len();
        self.copy(last, at, out)?;
        ranks.try_for_each(|rank| self.with(rank, at, end, |theirs| self.op.reduce(theirs, out)))
    }

    /// Combines bytes `at..` of the part, as many as `out` takes, of `ranks`.
    #[inline]
    pub(super) fn combine(&self, order: Order, ranks: Range<usize>, at: usize, out: &mut [u8]) -> Result<()> {
        if order == Order::Down || ranks.len() <= 2 {
            return self.combine_down(ranks.end - 1, (ranks.start..ranks.end - 1).rev(), at, out);
        }
        let lower = if order == Order::Up { ranks.len() - 1 } else { 1 << (ranks.len() - 1).ilog2() };
        let middle = ranks.start + lower;
        let mut left = coll::scratch(out.len())?;
        self.combine(order, ranks.start..middle, at, &mut left)?;
        self.combine(order, middle..ranks.end, at, out)?;
        self.op.reduce(&left, out)
    }
}

/// Combines `into.len()` bytes at `from` of the parts of `ranks`, which have `bytes` each, in the order of the ranks.
/// `own`: the same bytes of this rank, where they are not read from its part.
#[allow(clippy::too_many_arguments)]
#[inline]
fn combine(turn: &Turn, op: &Operation, order: Order, ranks: Range<usize>, bytes: usize, from: usize, own: Option<&[u8]>, into: &mut [u8]) -> Result<()> {
    let vectors = Vectors { turn, source: Source::Room, op, bytes, from, own };
    vectors.in_pieces(into, |at, piece| vectors.combine(order, ranks.clone(), at, piece))
}

/// Gives the own vector to `then`: `mine`, unless it is in place in `into`. What this rank has brought may be written again before a turn that
/// does not wait comes to it, so that it is kept apart.
#[inline]
fn with_own<T>(turn: &Turn, mine: Option<&[u8]>, into: &mut [u8], then: impl FnOnce(Option<&[u8]>, &mut [u8]) -> Result<T>) -> Result<T> {
    if mine.is_some() || turn.waits() {
        return then(mine, into);
    }
    let mut own = coll::scratch(into.len())?;
    own.copy_from_slice(into);
    then(Some(&own[..]), into)
}

/// `own`: the own vector; at the root whether it is `in_place`.
#[inline]
pub(super) fn reduce_offer(turn: &Turn, own: &[u8], in_place: bool, root: usize) -> Result<bool> {
    match turn.rank() == root {
        false => turn.bring(own, Readers::One(root)),
        true if in_place && turn.waits() => turn.bring(own, Readers::Nobody),
        true => Ok(true),
    }
}

/// At the root. `mine`: the own vector, unless it is in place in `into`.
#[inline]
pub(super) fn reduce(turn: &Turn, op: &Operation, mine: Option<&[u8]>, into: &mut [u8]) -> Result<()> {
    let order = Order::of(turn, Order::Halves);
    with_own(turn, mine, into, |mine, into| combine(turn, op, order, 0..turn.ranks(), into.len(), 0, mine, into))
}

#[inline]
pub(super) fn allreduce_offer(turn: &Turn, own: &[u8]) -> Result<bool> {
    turn.bring(own, Readers::All)
}

/// `mine` as in [`reduce`]; each rank combines whole vectors.
#[inline]
pub(super) fn allreduce(turn: &Turn, op: &Operation, mine: Option<&[u8]>, into: &mut [u8]) -> Result<()> {
    reduce(turn, op, mine, into)
}

/// Longest vector of an allreduce of `ranks` in which each combines whole vectors, bytes; of longer ones a slice, where the operation lets it.
#[inline]
pub(super) fn whole_max(ranks: usize) -> usize {
    if ranks == 2 { usize::MAX } else { WHOLE_BYTES_MAX }
}

/// Whether ranks combine whole vectors in an allreduce.
#[inline]
pub(super) fn whole(op: &Operation, bytes: usize, ranks: usize) -> bool {
    bytes <= whole_max(ranks) || op.keeps_layout()
}

/// Of a vector of `bytes`, the slice that `rank` combines.
pub(super) fn slice_of(op: &Operation, bytes: usize, rank: usize, ranks: usize) -> Range<usize> {
    let unit = op.element_bytes();
    bytes / unit * rank / ranks * unit..bytes / unit * (rank + 1) / ranks * unit
}

/// The root of a reduction in which the other ranks combine slices: it takes these, which is its share of the work, and brings nothing. `None`: where the order
/// matters, it has a slice as all others.
pub(super) fn apart(turn: &Turn, op: &Operation, root: usize) -> Option<usize> {
    (op.commutative() && !turn.reproducible()).then_some(root)
}

/// As [`slice_of`], where the rank that is `apart` has none.
pub(super) fn slice_beside(op: &Operation, bytes: usize, rank: usize, ranks: usize, apart: Option<usize>) -> Range<usize> {
    match apart {
        Some(root) if rank == root => 0..0,
        Some(root) => slice_of(op, bytes, rank - usize::from(rank > root), ranks - 1),
        None => slice_of(op, bytes, rank, ranks),
    }
}

/// All of an allreduce in which each rank combines a slice. `mine` as in [`reduce`].
pub(super) fn allreduce_by_slices(turn: &Turn, op: &Operation, mine: Option<&[u8]>, into: &mut [u8]) -> Result<()> {
    let (me, ranks, bytes) = (turn.rank(), turn.ranks(), into.len());
    let own = mine.unwrap_or(into);
    let offset = turn.bring_blocks(bytes, Readers::All, once(own))?.expect("a turn that waits");
    bring_slice(turn, op, own, offset)?;
    let slice = |rank: usize| slice_of(op, bytes, rank, ranks);
    others(me, ranks).chain(once(me)).try_for_each(|rank| turn.second_part(rank, bytes, slice(rank), &mut into[slice(rank)]))
}

/// Combines this rank's slice over its `own` vector, which it has brought at `offset` of its room, and brings that for the second time.
fn bring_slice(turn: &Turn, op: &Operation, own: &[u8], offset: usize) -> Result<()> {
    let (bytes, range) = (own.len(), slice_of(op, own.len(), turn.rank(), turn.ranks()));
    let (order, mine) = (Order::of(turn, Order::Halves), &own[range.clone()]);
    turn.bring_second(offset, range.clone(), |out| combine(turn, op, order, 0..turn.ranks(), bytes, range.start, Some(mine), out))
}

/// As [`bring_slice`], in a turn that does not wait, once all have brought their vectors. Gives the slice, which may be written over once the others have it.
pub(super) fn bring_slice_later(turn: &Turn, op: &Operation, own: &[u8]) -> Result<Vec<u8>> {
    let range = slice_of(op, own.len(), turn.rank(), turn.ranks());
    let part = turn.part(turn.rank(), own.len())?;
    bring_slice(turn, op, own, part.offset())?;
    Ok(part.bytes(range.start, range.end)?.to_vec())
}

/// The slices that all have brought for the second time, of which this rank's is its `own`.
pub(super) fn collect_slices(turn: &Turn, op: &Operation, own: &[u8], into: &mut [u8]) -> Result<()> {
    let (me, ranks, bytes) = (turn.rank(), turn.ranks(), into.len());
    let slice = |rank: usize| slice_of(op, bytes, rank, ranks);
    into[slice(me)].copy_from_slice(own);
    others(me, ranks).try_for_each(|rank| turn.second_part(rank, bytes, slice(rank), &mut into[slice(rank)]))
}

/// From so many bytes times the ranks beyond three on, and from so many bytes, each rank combines a slice in a reduction, and the root copies these: of less the
/// root combines all sooner than ranks have waited for each other.
const SLICED_BYTES: usize = 64 << 10;
const SLICED_BYTES_MIN: usize = 8 << 10;

/// Whether each rank combines a slice of vectors of `bytes` in a reduction: not where ranks share cores, which would wait for each other once more.
#[inline]
pub(super) fn reduced_by_slices(turn: &Turn, op: &Operation, bytes: usize) -> bool {
    let ranks = turn.ranks();
    ranks > 3 && bytes >= SLICED_BYTES_MIN && bytes.saturating_mul(ranks - 3) >= SLICED_BYTES && !op.keeps_layout() && !turn.crowded()
}

/// All of a reduction in which each rank combines a slice. `mine` as in [`reduce`]; elsewhere than at the root `into` is empty.
pub(super) fn reduce_by_slices(turn: &Turn, op: &Operation, mine: Option<&[u8]>, into: &mut [u8], root: usize) -> Result<()> {
    let (me, ranks, bytes) = (turn.rank(), turn.ranks(), mine.map_or(into.len(), <[u8]>::len));
    let (order, apart) = (Order::of(turn, Order::Halves), apart(turn, op, root));
    let slice = |rank: usize| slice_beside(op, bytes, rank, ranks, apart);
    let range = slice(me);
    if apart == Some(me) {
        if let Some(mine) = mine {
            into.copy_from_slice(mine);
        }
        return others(me, ranks)
            .map(|rank| (rank, slice(rank)))
            .filter(|(_, slice)| !slice.is_empty())
            .try_for_each(|(rank, slice)| turn.with_second_part(rank, bytes, slice.clone(), |theirs| op.reduce(theirs, &mut into[slice])));
    }
    let own = mine.unwrap_or(into);
    let offset = turn.bring_blocks(bytes, Readers::All, once(own))?.expect("a turn that waits");
    if me != root {
        let vectors = Vectors { turn, source: Source::Room, op, bytes, from: range.start, own: Some(&own[range.clone()]) };
        return turn.bring_second(offset, range, |out| vectors.combine_all(order, apart, out));
    }
    // In place, the own vector is read where it was brought.
    combine(turn, op, order, 0..ranks, bytes, range.start, mine.map(|mine| &mine[range.clone()]), &mut into[range.clone()])?;
    others(me, ranks).try_for_each(|rank| turn.second_part(rank, bytes, slice(rank), &mut into[slice(rank)]))
}

/// Longest vector of a scan of `ranks` in which each combines whole vectors, bytes.
#[inline]
pub(super) fn scan_whole_max(ranks: usize) -> usize {
    if ranks == 2 { usize::MAX } else { WHOLE_BYTES_MAX }
}

/// `own`: the own vector; `in_place`: it is where the result goes.
#[inline]
pub(super) fn scan_offer(turn: &Turn, own: &[u8], in_place: bool, exclusive: bool) -> Result<bool> {
    // The last rank's is read by itself alone.
    match turn.rank() + 1 < turn.ranks() {
        true => turn.bring(own, Readers::All),
        false if in_place && !exclusive && turn.waits() => turn.bring(own, Readers::Nobody),
        false => Ok(true),
    }
}

/// Each rank combines whole vectors. `mine` as in [`reduce`]. The first rank's `into` stays as it is where `exclusive`.
#[inline]
pub(super) fn scan(turn: &Turn, op: &Operation, mine: Option<&[u8]>, into: &mut [u8], exclusive: bool) -> Result<()> {
    let (me, bytes, order) = (turn.rank(), into.len(), Order::of(turn, Order::Up));
    match (exclusive, me) {
        (true, 0) => Ok(()),
        (true, _) => combine(turn, op, order, 0..me, bytes, 0, None, into),
        (false, _) => with_own(turn, mine, into, |mine, into| combine(turn, op, order, 0..me + 1, bytes, 0, mine, into)),
    }
}

/// What a rank of a scan along the ranks does with a piece: combines `theirs`, what the one before it brings, with its `own`, unless that is in place in `into`.
/// Leaves the rank's result in `into`, or on the first rank, where `exclusive`, what was there, and in `out` what it brings to the next.
pub(super) fn scan_piece(op: &Operation, theirs: Option<&[u8]>, own: Option<&[u8]>, into: &mut [u8], out: Option<&mut [u8]>, exclusive: bool) -> Result<()> {
    let combined = |value: &mut [u8]| theirs.map_or(Ok(()), |theirs| op.reduce(theirs, value));
    if exclusive {
        if let Some(out) = out {
            copied(out, own.unwrap_or(into))?;
            combined(out)?;
        }
        return theirs.map_or(Ok(()), |theirs| taken(into, theirs));
    }
    if let Some(own) = own {
        copied(into, own)?;
    }
    combined(into)?;
    out.map_or(Ok(()), |out| copied(out, into))
}

/// All of a scan in which each rank combines what the one before it brings with its own, piece by piece, and brings that to the next.
/// Arguments as in [`scan`].
pub(super) fn scan_along(turn: &Turn, op: &Operation, mine: Option<&[u8]>, into: &mut [u8], exclusive: bool) -> Result<()> {
    let (me, bytes) = (turn.rank(), into.len());
    let step = step_of(op, bytes);
    let before = if me > 0 { Some(turn.part(me - 1, bytes)?) } else { None };
    let mut piece = |range: Range<usize>, out: Option<&mut [u8]>| {
        let theirs = before.as_ref().map(|before| before.bytes(range.start, range.end)).transpose()?;
        scan_piece(op, theirs, mine.map(|mine| &mine[range.clone()]), &mut into[range], out, exclusive)
    };
    if me + 1 < turn.ranks() {
        return turn.bring_made(bytes, step, Readers::One(me + 1), |range, out| piece(range, Some(out)));
    }
    (0..bytes).step_by(step).try_for_each(|from| piece(from..bytes.min(from + step), None))
}

#[inline]
pub(super) fn reduce_scatter_offer(turn: &Turn, whole: &[u8]) -> Result<bool> {
    turn.bring(whole, Readers::All)
}

/// `own`: this rank's part of its own vector, of `bytes`, from `from` on. `None`: the vector is in place, and begins where `into` does.
#[inline]
pub(super) fn reduce_scatter(turn: &Turn, op: &Operation, own: Option<&[u8]>, bytes: usize, from: usize, into: &mut [u8]) -> Result<()> {
    combine(turn, op, Order::of(turn, Order::Halves), 0..turn.ranks(), bytes, from, own, into)
}
