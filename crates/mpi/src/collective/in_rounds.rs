//! Long collectives whose ranks bring equally much in [rounds](crate::turn::rounds): in reductions each combines a slice of what all bring in a round.

use super::shared::{Order, Source, Vectors, copied, others, slice_of};
use super::*;
use crate::coll::Reducer;
use crate::turn::PIECE_BYTES;
use crate::turn::rounds::{Rounds, bytes_of};
use std::iter::once;
use std::ops::Range;

/// Goes through all rounds: `bring` brings one, ahead of `take`, which takes what others have brought in it, into `into`.
fn run(
    mut rounds: Rounds,
    into: &mut [u8],
    mut bring: impl FnMut(&mut Rounds, usize, &[u8]) -> Result<()>,
    mut take: impl FnMut(&Rounds, usize, &mut [u8]) -> Result<()>,
) -> Result<()> {
    for brought in 0..=rounds.count() {
        if brought < rounds.count() {
            bring(&mut rounds, brought, into)?;
        }
        if let Some(round) = brought.checked_sub(1) {
            take(&rounds, round, into)?;
            rounds.end()?;
        }
    }
    Ok(())
}

/// Combines `into.len()` bytes at `from` of what all ranks have brought in this round, of which `own` are this rank's, where they are not read there.
fn combine(turn: &Turn, rounds: &Rounds, op: &Operation, from: usize, own: Option<&[u8]>, into: &mut [u8]) -> Result<()> {
    let (vectors, order) = (Vectors::of(turn, Source::Rounds(rounds), op, into.len(), from, own), Order::of(turn, Order::Halves));
    let step = (PIECE_BYTES / op.element_bytes()).max(1) * op.element_bytes();
    into.chunks_mut(step).enumerate().try_for_each(|(at, piece)| vectors.combine(order, 0..turn.ranks(), at * step, piece))
}

/// `mine`: the own vector, unless it is in place in `into`.
pub(super) fn allreduce(stream: &Stream, op: &Operation, mine: Option<&[u8]>, into: &mut [u8]) -> Result<()> {
    let (turn, bytes) = (stream.turn(), into.len());
    let (me, ranks) = (turn.rank(), turn.ranks());
    let rounds = Rounds::new(stream, bytes, bytes_of(ranks, 1, op.element_bytes()), Readers::All)?;
    let bring = |rounds: &mut Rounds, round: usize, into: &[u8]| {
        let range = rounds.range(round);
        rounds.bring(once(&mine.unwrap_or(into)[range]))
    };
    run(rounds, into, bring, |rounds, round, into| {
        let range = rounds.range(round);
        let slice = |rank: usize| slice_of(op, range.len(), rank, ranks);
        let own = &mine.unwrap_or(into)[range.clone()][slice(me)];
        rounds.bring_second(slice(me), |out| combine(turn, rounds, op, slice(me).start, Some(own), out))?;
        let into = &mut into[range.clone()];
        others(me, ranks).chain(once(me)).try_for_each(|rank| copied(&mut into[slice(rank)], rounds.second_part(rank, slice(rank))?))
    })
}

/// `mine`: the own vector, unless it is in place in `into`, which is there at the root only. Where ranks share cores, the root combines all: each other one would
/// wait once more.
pub(super) fn reduce(stream: &Stream, op: &Operation, mine: Option<&[u8]>, into: &mut [u8], root: usize) -> Result<()> {
    let turn = stream.turn();
    let (me, ranks, bytes, in_slices) = (turn.rank(), turn.ranks(), mine.map_or(into.len(), <[u8]>::len), !turn.crowded());
    let readers = match in_slices {
        true => Readers::All,
        false if me == root => Readers::Nobody,
        false => Readers::One(root),
    };
    let rounds = Rounds::new(stream, bytes, bytes_of(ranks, 1, op.element_bytes()), readers)?;
    // In place, the own vector is read where it was brought.
    let brings = in_slices || me != root || mine.is_none();
    let bring = |rounds: &mut Rounds, round: usize, into: &[u8]| {
        let range = rounds.range(round);
        if brings { rounds.bring(once(&mine.unwrap_or(into)[range])) } else { Ok(()) }
    };
    run(rounds, into, bring, |rounds, round, into| {
        let range = rounds.range(round);
        let slice = |rank: usize| if in_slices { slice_of(op, range.len(), rank, ranks) } else { 0..range.len() };
        let own = mine.map(|mine| &mine[range.clone()][slice(me)]);
        if me != root {
            return if in_slices { rounds.bring_second(slice(me), |out| combine(turn, rounds, op, slice(me).start, own, out)) } else { Ok(()) };
        }
        let into = &mut into[range.clone()];
        combine(turn, rounds, op, slice(me).start, own, &mut into[slice(me)])?;
        if in_slices { others(me, ranks).try_for_each(|rank| copied(&mut into[slice(rank)], rounds.second_part(rank, slice(rank))?)) } else { Ok(()) }
    })
}

/// `whole`: the own vector, of which each rank gets an equal block. `in_place`: it begins where `into` does.
pub(super) fn reduce_scatter_block(stream: &Stream, op: &Operation, whole: &[u8], in_place: bool, into: &mut [u8]) -> Result<()> {
    let turn = stream.turn();
    if in_place {
        let mut apart = coll::scratch(into.len())?;
        blocks(turn, stream, op, whole, &mut apart)?;
        return copied(into, &apart);
    }
    blocks(turn, stream, op, whole, into)
}

fn blocks(turn: &Turn, stream: &Stream, op: &Operation, whole: &[u8], into: &mut [u8]) -> Result<()> {
    let (me, ranks, block) = (turn.rank(), turn.ranks(), into.len());
    let rounds = Rounds::new(stream, whole.len(), bytes_of(ranks, ranks, op.element_bytes()), Readers::All)?;
    let bring = |rounds: &mut Rounds, round: usize, _: &[u8]| {
        let range = of_each(rounds, round, ranks);
        rounds.bring(whole.chunks(block).map(|block| &block[range.clone()]))
    };
    run(rounds, into, bring, |rounds, round, into| {
        let range = of_each(rounds, round, ranks);
        let own = &whole[me * block..][range.clone()];
        combine(turn, rounds, op, me * range.len(), Some(own), &mut into[range])
    })
}

/// Copies the bytes from `from` on that `into` takes of what `rank` has brought in this round, as they come.
fn take(rounds: &Rounds, rank: usize, from: usize, into: &mut [u8]) -> Result<()> {
    let pieces = into.chunks_mut(PIECE_BYTES).enumerate();
    pieces.map(|(number, piece)| (from + number * PIECE_BYTES, piece)).try_for_each(|(at, piece)| copied(piece, rounds.part(rank, at..at + piece.len())?))
}

/// `mine`: the own block, unless it is in place in `all`.
pub(super) fn allgather(stream: &Stream, mine: Option<&[u8]>, all: &mut [u8]) -> Result<()> {
    let (me, ranks) = (stream.turn().rank(), stream.turn().ranks());
    let block = all.len() / ranks;
    if let Some(mine) = mine {
        copied(&mut all[me * block..][..block], mine)?;
    }
    let rounds = Rounds::new(stream, block, bytes_of(ranks, 1, 1), Readers::All)?;
    let bring = |rounds: &mut Rounds, round: usize, all: &[u8]| {
        let range = rounds.range(round);
        rounds.bring(once(&mine.unwrap_or(&all[me * block..][..block])[range]))
    };
    run(rounds, all, bring, |rounds, round, all| {
        let range = rounds.range(round);
        others(me, ranks).try_for_each(|rank| take(rounds, rank, 0, &mut all[rank * block..][range.clone()]))
    })
}

/// `from`: all blocks, unless they are in place in `into`, where each round goes over what it has brought.
pub(super) fn alltoall(stream: &Stream, from: Option<&[u8]>, into: &mut [u8]) -> Result<()> {
    let (me, ranks) = (stream.turn().rank(), stream.turn().ranks());
    let block = into.len() / ranks;
    if let Some(from) = from {
        copied(&mut into[me * block..][..block], &from[me * block..][..block])?;
    }
    let rounds = Rounds::new(stream, into.len(), bytes_of(ranks, ranks, 1), Readers::All)?;
    let bring = |rounds: &mut Rounds, round: usize, into: &[u8]| {
        let range = of_each(rounds, round, ranks);
        rounds.bring(from.unwrap_or(into).chunks(block).map(|block| &block[range.clone()]))
    };
    run(rounds, into, bring, |rounds, round, into| {
        let range = of_each(rounds, round, ranks);
        others(me, ranks).try_for_each(|rank| take(rounds, rank, me * range.len(), &mut into[rank * block..][range.clone()]))
    })
}

/// What a round takes of each block, where a rank brings one for each rank.
fn of_each(rounds: &Rounds, round: usize, ranks: usize) -> Range<usize> {
    rounds.range(round).start / ranks..rounds.range(round).end / ranks
}
