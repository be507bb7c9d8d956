//! Long reductions whose ranks bring their vectors in [rounds](crate::turn::rounds): each combines a slice of what all bring in a round.

use super::shared::{Order, Source, Vectors, copied, others, slice_of};
use super::*;
use crate::coll::Reducer;
use crate::turn::PIECE_BYTES;
use crate::turn::rounds::{Rounds, bytes_of};
use std::iter::once;

/// Combines `into.len()` bytes at `from` of what all ranks have brought in this round, of which `own` are this rank's.
fn combine(turn: &Turn, rounds: &Rounds, op: &Operation, from: usize, own: &[u8], into: &mut [u8]) -> Result<()> {
    let (vectors, order) = (Vectors::of(turn, Source::Rounds(rounds), op, own.len(), from, own), Order::of(turn, Order::Halves));
    let step = (PIECE_BYTES / op.element_bytes()).max(1) * op.element_bytes();
    into.chunks_mut(step).enumerate().try_for_each(|(at, piece)| vectors.combine(order, 0..turn.ranks(), at * step, piece))
}

/// `mine`: the own vector, unless it is in place in `into`.
pub(super) fn allreduce(stream: &Stream, op: &Operation, mine: Option<&[u8]>, into: &mut [u8]) -> Result<()> {
    let (turn, bytes) = (stream.turn(), into.len());
    let (me, ranks) = (turn.rank(), turn.ranks());
    let mut rounds = Rounds::new(stream, bytes, bytes_of(ranks, 1, op.element_bytes()))?;
    rounds.bring(once(&mine.unwrap_or(into)[rounds.range(0)]))?;
    for round in 0..rounds.count() {
        if round + 1 < rounds.count() {
            let next = rounds.range(round + 1);
            rounds.bring(once(&mine.unwrap_or(into)[next]))?;
        }
        let range = rounds.range(round);
        let slice = |rank: usize| slice_of(op, range.len(), rank, ranks);
        let own = &mine.unwrap_or(into)[range.clone()][slice(me)];
        rounds.bring_second(slice(me), |out| combine(turn, &rounds, op, slice(me).start, own, out))?;
        let into = &mut into[range.clone()];
        others(me, ranks).chain(once(me)).try_for_each(|rank| copied(&mut into[slice(rank)], rounds.second_part(rank, slice(rank))?))?;
        rounds.end();
    }
    Ok(())
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
    let mut rounds = Rounds::new(stream, whole.len(), bytes_of(ranks, ranks, op.element_bytes()))?;
    // What a round takes of each block.
    let range = |rounds: &Rounds, round: usize| rounds.range(round).start / ranks..rounds.range(round).end / ranks;
    for brought in 0..=rounds.count() {
        if brought < rounds.count() {
            let range = range(&rounds, brought);
            rounds.bring(whole.chunks(block).map(|block| &block[range.clone()]))?;
        }
        if let Some(round) = brought.checked_sub(1) {
            let range = range(&rounds, round);
            let own = &whole[me * block..][range.clone()];
            combine(turn, &rounds, op, me * range.len(), own, &mut into[range])?;
            rounds.end();
        }
    }
    Ok(())
}
