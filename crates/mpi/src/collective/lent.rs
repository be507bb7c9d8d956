//! Long collectives whose members [lend](crate::turn::lend) what they bring: each reads what it needs where it lies. Reductions are combined in pieces that
//! stay in the caches; among more than two ranks each combines a slice, and those who need the result read the slices of the others where they have been
//! combined.

use super::shared::{Order, Source, Vectors, bring_with_table, copied, others, place_in, rest_by_messages, short, slice_of, table_bytes, take_own};
use super::*;
use crate::coll::Reducer;
use crate::turn::lend::{BYTES_MAX, BYTES_MIN, Loan, STEP_BYTES};
use std::ops::Range;

/// Where no second part is.
const NOWHERE: *const u8 = std::ptr::null();

/// `mine`: the own block, unless it is in place in `all`, which is there at the root only: that lends it to be written to by all others at the same time.
pub(super) fn gather(turn: &Turn, mine: Option<&[u8]>, all: &mut [u8], root: usize) -> Result<()> {
    let (me, ranks) = (turn.rank(), turn.ranks());
    Loan::run(turn, Readers::Nobody, |loan| {
        if me != root {
            let mine = mine.unwrap_or_default();
            return loan.write(root, ranks * mine.len(), me * mine.len(), mine);
        }
        let block = all.len() / ranks;
        loan.lend(all.as_mut_ptr(), all.len(), NOWHERE)?;
        if let Some(mine) = mine {
            all[me * block..][..block].copy_from_slice(mine);
        }
        loan.await_writers(block)
    })
}

/// Reads the blocks that the other ranks lend.
fn take_blocks(turn: &Turn, loan: &Loan, mine: Option<&[u8]>, all: &mut [u8]) -> Result<()> {
    let (me, ranks) = (turn.rank(), turn.ranks());
    let block = all.len() / ranks;
    if let Some(mine) = mine {
        all[me * block..][..block].copy_from_slice(mine);
    }
    others(me, ranks).try_for_each(|rank| loan.read(rank, block, 0, &mut all[rank * block..][..block]))
}

/// `all` is there at the root only; `mine`: where the own block goes, unless it is in place in `all`.
pub(super) fn scatter(turn: &Turn, all: &[u8], mine: Option<&mut [u8]>, root: usize) -> Result<()> {
    let (me, ranks) = (turn.rank(), turn.ranks());
    Loan::run(turn, Readers::All, |loan| {
        if me == root {
            loan.lend(all.as_ptr(), all.len(), NOWHERE)?;
            return mine.map_or(Ok(()), |mine| copied(mine, &all[me * (all.len() / ranks)..][..all.len() / ranks]));
        }
        let mine = mine.unwrap_or_default();
        loan.read(root, ranks * mine.len(), me * mine.len(), mine)
    })
}

/// `mine`: the own block, unless it is in place in `all`.
pub(super) fn allgather(turn: &Turn, mine: Option<&[u8]>, all: &mut [u8]) -> Result<()> {
    let block = all.len() / turn.ranks();
    Loan::run_in_step(turn, |loan| {
        let own = mine.unwrap_or(&all[turn.rank() * block..][..block]);
        loan.lend(own.as_ptr(), block, NOWHERE)?;
        take_blocks(turn, loan, mine, all)
    })
}

/// `from`: all blocks, unless they are in place in `into`; then a copy of them is lent.
pub(super) fn alltoall(turn: &Turn, from: Option<&[u8]>, into: &mut [u8]) -> Result<()> {
    let (me, ranks, bytes) = (turn.rank(), turn.ranks(), into.len());
    let block = bytes / ranks;
    let mut copy = None;
    Loan::run_in_step(turn, |loan| {
        if from.is_none() {
            copy = Some(coll::copy(into)?);
        }
        let from = from.or(copy.as_deref()).unwrap_or_default();
        loan.lend(from.as_ptr(), bytes, NOWHERE)?;
        into[me * block..][..block].copy_from_slice(&from[me * block..][..block]);
        others(me, ranks).try_for_each(|rank| loan.read(rank, bytes, me * block, &mut into[rank * block..][..block]))
    })
}

/// The longest of some blocks, bytes.
pub(super) fn longest(blocks: &[impl AsRef<[u8]>]) -> usize {
    blocks.iter().map(|block| block.as_ref().len()).max().unwrap_or(0)
}

/// How a block goes in an [`alltoallv`] of members that can read each other's memory.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Goes {
    Room,
    Lent,
    Messages,
}

/// Of a block of so many bytes. `lends`: its sender lends where it has the choice.
fn goes(bytes: usize, ranks: usize, lends: bool) -> Goes {
    match bytes {
        ..BYTES_MIN => Goes::Room,
        BYTES_MIN..=BYTES_MAX if lends || !short(bytes, ranks) => Goes::Lent,
        BYTES_MIN..=BYTES_MAX => Goes::Room,
        _ => Goes::Messages,
    }
}

/// Behind the [table](table_bytes) of a part whose member lends blocks, too: where that of each rank lies, and its length, 8 bytes each.
const PLACE_BYTES: usize = 16;

fn places_end(ranks: usize) -> usize {
    table_bytes(ranks) + PLACE_BYTES * ranks
}

/// `from` as in [`alltoall`]. Each rank decides by itself which of its blocks it lends, of those of a length that may go either way, and says so with what it
/// brings. Those that fit no room are lent; what is lent of blocks in place is a copy.
pub(super) fn alltoallv(turn: &Turn, lending: &Lending, from: Option<&[&[u8]]>, into: &mut [&mut [u8]]) -> Result<()> {
    let (me, ranks) = (turn.rank(), turn.ranks());
    let sent: PerRank<usize> = (0..ranks).map(|rank| from.map_or(into[rank].len(), |from| from[rank].len())).collect();
    let either = |(rank, bytes): (usize, &usize)| if rank != me && short(*bytes, ranks) { *bytes } else { 0 };
    let longest = sent.iter().enumerate().map(either).max().unwrap_or(0);
    lending.alone(if from.is_some() { longest } else { 0 }, |lends| {
        let goes_to = |rank: usize| if rank == me { Goes::Room } else { goes(sent[rank], ranks, lends) };
        let mut copies: PerRank<Vec<u8>> = PerRank::new();
        let part = |loan: &Loan| {
            if from.is_none() {
                for (rank, block) in into.iter().enumerate() {
                    copies.push(if goes_to(rank) == Goes::Lent { coll::copy(block)? } else { Vec::new() });
                }
            }
            let block = |rank: usize| match from {
                Some(from) => from[rank],
                None if goes_to(rank) == Goes::Lent => &copies[rank],
                None => &*into[rank],
            };
            bring_or_lend(turn, loan, block, goes_to)?;
            if let Some(from) = from {
                into[me].copy_from_slice(from[me]);
            }
            others(me, ranks).try_for_each(|rank| take_or_read(turn, loan, rank, into[rank]))?;
            rest_by_messages(turn, BYTES_MAX, from, into)
        };
        Loan::run_alone(turn, part, |rank| goes_to(rank) == Goes::Lent)
    })
}

/// Brings a block for each other rank, or lends it.
fn bring_or_lend<'a>(turn: &Turn, loan: &Loan, block: impl Fn(usize) -> &'a [u8], goes_to: impl Fn(usize) -> Goes) -> Result<()> {
    let (me, ranks) = (turn.rank(), turn.ranks());
    if ranks == 2 {
        let other = 1 - me;
        return match goes_to(other) {
            Goes::Lent => loan.lend(block(other).as_ptr(), block(other).len(), NOWHERE),
            Goes::Room => turn.bring(block(other), Readers::One(other)).map(|_| ()),
            Goes::Messages => turn.bring(&[], Readers::One(other)).map(|_| ()),
        };
    }
    let lends = (0..ranks).any(|rank| goes_to(rank) == Goes::Lent);
    let mut places = [0u8; PLACE_BYTES * lines::RANKS_MAX];
    for rank in (0..ranks).filter(|rank| goes_to(*rank) == Goes::Lent) {
        let place = &mut places[PLACE_BYTES * rank..][..PLACE_BYTES];
        place[..8].copy_from_slice(&(block(rank).as_ptr() as u64).to_ne_bytes());
        place[8..].copy_from_slice(&(block(rank).len() as u64).to_ne_bytes());
    }
    let places = if lends { &places[..PLACE_BYTES * ranks] } else { &[] };
    bring_with_table(turn, places, |rank| rank != me && goes_to(rank) == Goes::Room, block)?;
    if lends {
        loan.has_lent();
    }
    Ok(())
}

/// Takes this rank's block of those that `rank` [brings or lends](bring_or_lend); of no bytes, or one that goes by messages, it does not wait.
fn take_or_read(turn: &Turn, loan: &Loan, rank: usize, into: &mut [u8]) -> Result<()> {
    let (me, ranks) = (turn.rank(), turn.ranks());
    match goes(into.len(), ranks, true) {
        Goes::Room => return take_own(turn, rank, into),
        Goes::Lent => {}
        Goes::Messages => return Ok(()),
    }
    if ranks == 2 {
        return match loan.address(rank, into.len())? {
            Some(address) => loan.read_at(rank, address, into),
            None => turn.take_part(rank, into.len(), 0, into),
        };
    }
    let part = turn.any_part(rank)?;
    let (from, to) = place_in(&part, me)?;
    if from != to || place_in(&part, 0)?.0 != places_end(ranks) || part.len() < places_end(ranks) {
        // It lies in the room, or has another length.
        return if short(into.len(), ranks) { take_own(turn, rank, into) } else { Err(turn.wrong_length(rank, to.wrapping_sub(from), into.len())) };
    }
    let (mut address, mut bytes) = ([0; 8], [0; 8]);
    let place = table_bytes(ranks) + PLACE_BYTES * me;
    part.copy_range(place, &mut address)?;
    part.copy_range(place + 8, &mut bytes)?;
    let bytes = u64::from_ne_bytes(bytes) as usize;
    if bytes != into.len() {
        return Err(turn.wrong_length(rank, bytes, into.len()));
    }
    loan.read_at(rank, u64::from_ne_bytes(address), into)
}

/// Of a vector of `bytes`, how many are combined at once.
fn step_of(op: &Operation) -> usize {
    (STEP_BYTES / op.element_bytes()).max(1) * op.element_bytes()
}

/// Combines `into.len()` bytes at `from` of the vectors of all ranks, of `bytes` each, of which `own` are this rank's.
fn combine(turn: &Turn, loan: &Loan, op: &Operation, bytes: usize, from: usize, own: &[u8], into: &mut [u8]) -> Result<()> {
    let (vectors, order) = (Vectors::of(turn, Source::Loan(loan), op, bytes, from, Some(own)), Order::of(turn, Order::Halves));
    into.chunks_mut(step_of(op)).enumerate().try_for_each(|(at, piece)| vectors.combine(order, 0..turn.ranks(), at * step_of(op), piece))
}

/// `mine`: the own vector, unless it is in place in `into`.
pub(super) fn allreduce(turn: &Turn, op: &Operation, mine: Option<&[u8]>, into: &mut [u8]) -> Result<()> {
    if turn.ranks() == 2 {
        return allreduce_of_two(turn, op, mine, into);
    }
    let (me, ranks, bytes) = (turn.rank(), turn.ranks(), into.len());
    let slice = |rank: usize| slice_of(op, bytes, rank, ranks);
    Loan::run_in_step(turn, |loan| {
        let (start, second) = (mine.unwrap_or(into).as_ptr(), into.as_ptr());
        loan.lend(start, bytes, second)?;
        combine_slice(turn, loan, op, mine, into, slice(me))?;
        loan.lend_second()?;
        // What is in place in the slice of another rank has been read by that rank once it lends the result.
        others(me, ranks).try_for_each(|rank| loan.read_second(rank, bytes, slice(rank).start, &mut into[slice(rank)]))
    })
}

/// Combines the slice `range` of all vectors, in its place in `into`. `mine` as in [`allreduce`].
fn combine_slice(turn: &Turn, loan: &Loan, op: &Operation, mine: Option<&[u8]>, into: &mut [u8], range: Range<usize>) -> Result<()> {
    let (bytes, from) = (into.len(), range.start);
    if let Some(mine) = mine {
        return combine(turn, loan, op, bytes, from, &mine[range.clone()], &mut into[range]);
    }
    let mut own = coll::scratch(range.len())?;
    own.copy_from_slice(&into[range.clone()]);
    combine(turn, loan, op, bytes, from, &own, &mut into[range])
}

/// Each of two ranks combines whole vectors. Where the own one is in place, it is written over once the other rank has read as far.
fn allreduce_of_two(turn: &Turn, op: &Operation, mine: Option<&[u8]>, into: &mut [u8]) -> Result<()> {
    let (me, bytes, step) = (turn.rank(), into.len(), step_of(op));
    Loan::run_in_step(turn, |loan| {
        loan.lend(mine.unwrap_or(into).as_ptr(), bytes, NOWHERE)?;
        let mut theirs = coll::scratch(step.min(bytes))?;
        for range in (0..bytes).step_by(step).map(|from| from..bytes.min(from + step)) {
            let out = &mut into[range.clone()];
            if let (Some(mine), 0) = (mine, me) {
                loan.read(1, bytes, range.start, out)?;
                loan.say_read(range.end);
                op.reduce(&mine[range], out)?;
                continue;
            }
            let theirs = &mut theirs[..range.len()];
            loan.read(1 - me, bytes, range.start, theirs)?;
            loan.say_read(range.end);
            match mine {
                Some(mine) => out.copy_from_slice(&mine[range]),
                None => loan.await_read(range.end)?,
            }
            if me == 0 {
                op.reduce(out, theirs)?;
                out.copy_from_slice(theirs);
            } else {
                op.reduce(theirs, out)?;
            }
        }
        Ok(())
    })
}

/// `whole`: the own vector, of which this rank gets the part from `from` on. `in_place`: it begins where `into` does.
pub(super) fn reduce_scatter(turn: &Turn, op: &Operation, whole: &[u8], in_place: bool, from: usize, into: &mut [u8]) -> Result<()> {
    let (bytes, own, mut kept) = (whole.len(), from..from + into.len(), None);
    Loan::run_in_step(turn, |loan| {
        loan.lend(whole.as_ptr(), bytes, NOWHERE)?;
        if in_place {
            let mut apart = coll::scratch(into.len())?;
            combine(turn, loan, op, bytes, from, &whole[own], &mut apart)?;
            kept = Some(apart);
            return Ok(());
        }
        combine(turn, loan, op, bytes, from, &whole[own], into)
    })?;
    if let Some(kept) = kept {
        into.copy_from_slice(&kept);
    }
    Ok(())
}
