//! Long collectives whose ranks bring equally much in [rounds](crate::turn::rounds): in reductions each combines a slice of what all bring in a round.

use super::shared::{Order, Source, Vectors, apart, copied, others, scan_piece, slice_beside, taken};
use super::*;
use crate::coll::Reducer;
use crate::turn::PIECE_BYTES;
use crate::turn::rounds::{Outgoing, Rounds};
use engine::slots::take_brought;
use std::iter::once;
use std::ops::Range;

/// Goes through all rounds: `bring` brings one, ahead of `combine`, which combines this rank's slice of what all have brought in the one before. `take` takes what it
/// needs of a round into `into`, of rounds that are combined (with a lag of 2) behind the next one's slice, so that the others have had time for theirs.
fn run(
    rounds: Rounds,
    into: &mut [u8],
    mut bring: impl FnMut(&Rounds, usize, &[u8]) -> Result<()>,
    mut combine: impl FnMut(&Rounds, usize, &[u8]) -> Result<()>,
    mut take: impl FnMut(&Rounds, usize, &mut [u8]) -> Result<()>,
) -> Result<()> {
    let (count, lag) = (rounds.count(), rounds.lag());
    for step in 0..count + lag {
        if step < count {
            bring(&rounds, step, into)?;
        }
        if let Some(round) = step.checked_sub(1).filter(|round| *round < count) {
            combine(&rounds, round, into)?;
        }
        if let Some(round) = step.checked_sub(lag) {
            take(&rounds, round, into)?;
            rounds.end(round)?;
        }
    }
    Ok(())
}

/// In place of a slice, where nothing is combined before it is taken.
fn nothing(_: &Rounds, _: usize, _: &[u8]) -> Result<()> {
    Ok(())
}

/// Combines `into.len()` bytes at `from` of what all ranks `but` one have brought in `round`, of which `own` are this rank's, where they are not read there.
#[allow(clippy::too_many_arguments)]
fn combine(turn: &Turn, rounds: &Rounds, round: usize, op: &Operation, but: Option<usize>, from: usize, own: Option<&[u8]>, into: &mut [u8]) -> Result<()> {
    let (vectors, order) = (Vectors::of(turn, Source::Rounds(rounds, round), op, into.len(), from, own), Order::of(turn, Order::Halves));
    vectors.combine_all(order, but, into)
}

/// `mine`: the own vector, unless it is in place in `into`.
pub(super) fn allreduce(stream: &Stream, op: &Operation, mine: Option<&[u8]>, into: &mut [u8]) -> Result<()> {
    by_slices(stream, op, mine, into, None, true)
}

/// `mine`: the own vector, unless it is in place in `into`, which is there at the root only.
pub(super) fn reduce(stream: &Stream, op: &Operation, mine: Option<&[u8]>, into: &mut [u8], root: usize) -> Result<()> {
    let turn = stream.turn();
    // Where ranks share cores, the root combines all: each other one would wait once more.
    match turn.crowded() {
        true => reduce_at_root(stream, op, mine, into, root),
        false => by_slices(stream, op, mine, into, apart(turn, op, root), turn.rank() == root),
    }
}

/// Each rank but the one that is [`apart`] combines a slice. `takes`: this rank takes what the others have combined.
fn by_slices(stream: &Stream, op: &Operation, mine: Option<&[u8]>, into: &mut [u8], apart: Option<usize>, takes: bool) -> Result<()> {
    let turn = stream.turn();
    let (me, ranks, bytes) = (turn.rank(), turn.ranks(), mine.map_or(into.len(), <[u8]>::len));
    let brings = apart != Some(me);
    let slice = |range: &Range<usize>, rank: usize| slice_beside(op, range.len(), rank, ranks, apart);
    let rounds = Rounds::new(stream, bytes, (1, op.element_bytes()), 2, if brings { Readers::All } else { Readers::Nobody })?;
    let bring = |rounds: &Rounds, round: usize, into: &[u8]| {
        let range = rounds.range(round);
        if brings { rounds.bring(once(&mine.unwrap_or(into)[range])) } else { Ok(()) }
    };
    let combined = |rounds: &Rounds, round: usize, into: &[u8]| {
        if !brings {
            return Ok(());
        }
        let range = rounds.range(round);
        let slice = slice(&range, me);
        let own = &mine.unwrap_or(into)[range][slice.clone()];
        rounds.bring_second(round, slice.clone(), |out| combine(turn, rounds, round, op, apart, slice.start, Some(own), out))
    };
    run(rounds, into, bring, combined, |rounds, round, into| {
        if !takes {
            return Ok(());
        }
        let range = rounds.range(round);
        let into = &mut into[range.clone()];
        for (rank, slice) in others(me, ranks).chain(once(me)).map(|rank| (rank, slice(&range, rank))).filter(|(_, slice)| !slice.is_empty()) {
            let (theirs, into) = (rounds.second_part(round, rank, slice.clone())?, &mut into[slice.clone()]);
            if brings {
                take_brought(into, theirs);
                continue;
            }
            if let Some(mine) = mine {
                into.copy_from_slice(&mine[range.clone()][slice]);
            }
            op.reduce(theirs, into)?;
        }
        Ok(())
    })
}

/// As [`reduce`], where only the root combines.
fn reduce_at_root(stream: &Stream, op: &Operation, mine: Option<&[u8]>, into: &mut [u8], root: usize) -> Result<()> {
    let turn = stream.turn();
    let (me, bytes) = (turn.rank(), mine.map_or(into.len(), <[u8]>::len));
    let rounds = Rounds::new(stream, bytes, (1, op.element_bytes()), 1, if me == root { Readers::Nobody } else { Readers::One(root) })?;
    let bring = |rounds: &Rounds, round: usize, into: &[u8]| {
        let range = rounds.range(round);
        // In place, the own vector is read where it was brought.
        if me != root || mine.is_none() { rounds.bring(once(&mine.unwrap_or(into)[range])) } else { Ok(()) }
    };
    run(rounds, into, bring, nothing, |rounds, round, into| {
        let range = rounds.range(round);
        let own = mine.map(|mine| &mine[range.clone()]);
        if me == root { combine(turn, rounds, round, op, None, 0, own, &mut into[range]) } else { Ok(()) }
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
    let rounds = Rounds::new(stream, whole.len(), (ranks, op.element_bytes()), 1, Readers::All)?;
    let bring = |rounds: &Rounds, round: usize, _: &[u8]| {
        let range = of_each(rounds, round, ranks);
        rounds.bring(whole.chunks(block).map(|block| &block[range.clone()]))
    };
    run(rounds, into, bring, nothing, |rounds, round, into| {
        let range = of_each(rounds, round, ranks);
        let own = &whole[me * block..][range.clone()];
        combine(turn, rounds, round, op, None, me * range.len(), Some(own), &mut into[range])
    })
}

/// Copies the bytes from `from` on that `into` takes of what `rank` has brought in `round`, as they come.
fn take(rounds: &Rounds, round: usize, rank: usize, from: usize, into: &mut [u8]) -> Result<()> {
    let pieces = into.chunks_mut(PIECE_BYTES).enumerate();
    pieces.map(|(number, piece)| (from + number * PIECE_BYTES, piece)).try_for_each(|(at, piece)| taken(piece, rounds.part(round, rank, at..at + piece.len())?))
}

/// `mine`: the own block, unless it is in place in `all`.
pub(super) fn allgather(stream: &Stream, mine: Option<&[u8]>, all: &mut [u8]) -> Result<()> {
    let (me, ranks) = (stream.turn().rank(), stream.turn().ranks());
    let block = all.len() / ranks;
    if let Some(mine) = mine {
        copied(&mut all[me * block..][..block], mine)?;
    }
    let rounds = Rounds::new(stream, block, (1, 1), 1, Readers::All)?;
    let bring = |rounds: &Rounds, round: usize, all: &[u8]| {
        let range = rounds.range(round);
        rounds.bring(once(&mine.unwrap_or(&all[me * block..][..block])[range]))
    };
    run(rounds, all, bring, nothing, |rounds, round, all| {
        let range = rounds.range(round);
        others(me, ranks).try_for_each(|rank| take(rounds, round, rank, 0, &mut all[rank * block..][range.clone()]))
    })
}

/// `from`: all blocks, unless they are in place in `into`, where each round goes over what it has brought.
pub(super) fn alltoall(stream: &Stream, from: Option<&[u8]>, into: &mut [u8]) -> Result<()> {
    let (me, ranks) = (stream.turn().rank(), stream.turn().ranks());
    let block = into.len() / ranks;
    if let Some(from) = from {
        copied(&mut into[me * block..][..block], &from[me * block..][..block])?;
    }
    let rounds = Rounds::new(stream, into.len(), (ranks, 1), 1, Readers::All)?;
    let bring = |rounds: &Rounds, round: usize, into: &[u8]| {
        let range = of_each(rounds, round, ranks);
        rounds.bring(from.unwrap_or(into).chunks(block).map(|block| &block[range.clone()]))
    };
    run(rounds, into, bring, nothing, |rounds, round, into| {
        let range = of_each(rounds, round, ranks);
        others(me, ranks).try_for_each(|rank| take(rounds, round, rank, me * range.len(), &mut into[rank * block..][range.clone()]))
    })
}

/// Each rank combines what the one before it brings with its own vector, piece by piece, and brings that to the next. `mine` as in [`allreduce`]; the first
/// rank's `into` stays as it is where `exclusive`.
pub(super) fn scan(stream: &Stream, op: &Operation, mine: Option<&[u8]>, into: &mut [u8], exclusive: bool) -> Result<()> {
    let turn = stream.turn();
    let (me, unit, last) = (turn.rank(), op.element_bytes(), turn.rank() + 1 == turn.ranks());
    let rounds = Rounds::new(stream, into.len(), (1, unit), 1, if last { Readers::Nobody } else { Readers::One(me + 1) })?;
    // Ranks that share cores wait once a round.
    let step = if turn.crowded() { rounds.range(0).len() } else { (PIECE_BYTES / unit).max(1) * unit };
    let mut apart = coll::scratch(if exclusive && !last { step } else { 0 })?;
    for round in 0..rounds.count() {
        let range = rounds.range(round);
        let own = mine.map(|mine| &mine[range.clone()]);
        let mut outgoing = if last { None } else { Some(rounds.begin()?) };
        for (at, into) in into[range].chunks_mut(step).enumerate().map(|(number, piece)| (number * step, piece)) {
            let place = at..at + into.len();
            let own = own.map(|own| &own[place.clone()]);
            let theirs = if me > 0 { Some(rounds.part(round, me - 1, place)?) } else { None };
            let mut out = (exclusive && !last).then(|| &mut apart[..into.len()]);
            scan_piece(op, theirs, own, into, out.as_deref_mut(), exclusive)?;
            if let Some(outgoing) = &mut outgoing {
                outgoing.bring(out.as_deref().unwrap_or(into));
            }
        }
        outgoing.into_iter().for_each(Outgoing::end);
        rounds.end(round)?;
    }
    Ok(())
}

/// What a round takes of each block, where a rank brings one for each rank.
fn of_each(rounds: &Rounds, round: usize, ranks: usize) -> Range<usize> {
    rounds.range(round).start / ranks..rounds.range(round).end / ranks
}
