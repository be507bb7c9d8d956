//! Neighbourhood collectives through the memory that the members of a communicator share: each brings its blocks in its [turn](Turn), and takes those of its
//! neighbours. What finds no room there goes by messages, in the same call.

use crate::coll::neighbor::{self, Neighbors};
use crate::collective::PerRank;
use crate::consts::MPI_ERR_TRUNCATE;
use crate::error::{Error, Result};
use crate::lines;
use crate::turn::Turn;
use engine::slots::Readers;
use smallvec::SmallVec;
use std::iter::once;

/// What stands in front of the blocks of a rank, 32 bits for each that goes to another one, in the order in which they are sent: whether it is the last one (1
/// bit), the rank that it is for (6 bits) and its bytes (25 bits).
#[derive(Clone, Copy)]
struct Entry(u32);

impl Entry {
    const BYTES: usize = 4;
    const LENGTH_BITS: u32 = 25;
    const LAST: u32 = 1 << 31;
    /// Instead of bytes: it goes by a message. For the rank itself: all blocks do, and there is no table.
    const BY_MESSAGE: u32 = (1 << Entry::LENGTH_BITS) - 1;

    fn new(rank: usize, bytes: u32, last: bool) -> Entry {
        Entry((rank as u32) << Entry::LENGTH_BITS | bytes | if last { Entry::LAST } else { 0 })
    }

    fn is_last(self) -> bool {
        self.0 & Entry::LAST != 0
    }

    fn rank(self) -> usize {
        (self.0 & !Entry::LAST) as usize >> Entry::LENGTH_BITS
    }

    /// `None`: by a message.
    fn bytes(self) -> Option<usize> {
        let bytes = self.0 & Entry::BY_MESSAGE;
        (bytes != Entry::BY_MESSAGE).then_some(bytes as usize)
    }
}

const _: () = assert!(lines::RANKS_MAX <= 1 << (31 - Entry::LENGTH_BITS) && lines::part_of(2) < Entry::BY_MESSAGE as usize);

/// Longest block of so many that a rank sends to others which goes with all of them, among `ranks`. `None`: all go by messages.
pub fn longest_block(ranks: usize, blocks: usize) -> Option<usize> {
    (lines::part_of(ranks) / blocks).checked_sub(Entry::BYTES)
}

/// Who reads what this rank brings. `None`: nobody.
fn readers(turn: &Turn, around: &Neighbors<'_>) -> Option<Readers> {
    let mut others = around.destinations.iter().flatten().copied().filter(|rank| *rank != turn.rank());
    let first = others.next()?;
    Some(if others.all(|rank| rank == first) { Readers::One(first) } else { Readers::All })
}

/// Copies a block whole.
fn copy(from: &[u8], into: &mut [u8]) -> Result<()> {
    if from.len() != into.len() {
        return Err(Error::new(MPI_ERR_TRUNCATE, format!("this rank sends itself {} bytes and receives {}", from.len(), into.len())));
    }
    into.copy_from_slice(from);
    Ok(())
}

/// Exchanges those blocks by messages that are not empty.
fn exchange_long(turn: &Turn, around: Neighbors<'_>, outgoing: &PerRank<&[u8]>, mut incoming: PerRank<&mut [u8]>) -> Result<()> {
    if outgoing.iter().all(|block| block.is_empty()) && incoming.iter().all(|block| block.is_empty()) {
        return Ok(());
    }
    let channel = turn.channel()?;
    turn.block(neighbor::neighbor_alltoallv(&channel, around, outgoing, &mut incoming))
}

/// `mine` goes to every destination; `into[i]` comes from source `i`. Both ends of an edge know by its length how a block goes.
pub(super) fn allgather(turn: &Turn, around: Neighbors<'_>, mine: &[u8], into: &mut [&mut [u8]]) -> Result<()> {
    let (me, longest) = (turn.rank(), lines::part_of(turn.ranks()));
    if let Some(readers) = readers(turn, &around).filter(|_| (1..=longest).contains(&mine.len())) {
        turn.bring(mine, readers)?;
    }
    let mut long = PerRank::new();
    for (source, block) in around.sources.iter().zip(into) {
        match source {
            Some(rank) if *rank == me => copy(mine, block)?,
            Some(rank) if (1..=longest).contains(&block.len()) => turn.take_part(*rank, block.len(), 0, block)?,
            _ => {}
        }
        let by_message = *source != Some(me) && block.len() > longest;
        long.push(if by_message { &mut **block } else { &mut [] });
    }
    let each = around.destinations.iter().map(|rank| if *rank != Some(me) && mine.len() > longest { mine } else { &[] });
    exchange_long(turn, around, &each.collect(), long)
}

/// `block(i)` goes to destination `i`, `into[i]` comes from source `i`. The sender says how a block goes.
pub(super) fn alltoall<'a>(turn: &Turn, around: Neighbors<'_>, block: impl Fn(usize) -> &'a [u8], into: &mut [&mut [u8]]) -> Result<()> {
    let me = turn.rank();
    let own = around.sending_order().filter(|(_, to)| *to == me).map(|(i, _)| block(i)).collect::<PerRank<_>>();
    let longest = bring(turn, &around, &block)?;
    let (mut own, mut long) = (own.into_iter(), PerRank::new());
    for (i, (source, block)) in around.sources.iter().zip(into).enumerate() {
        let comes = match source {
            Some(rank) if *rank == me => copy(own.next().unwrap_or_default(), block).map(|()| true)?,
            Some(rank) if !block.is_empty() => {
                let before = around.sources[..i].iter().filter(|other| *other == source).count();
                take(turn, *rank, before, block)?
            }
            _ => true,
        };
        long.push(if comes { &mut [] } else { &mut **block });
    }
    let by_message = |(i, to): (usize, &Option<usize>)| if *to != Some(me) && block(i).len() > longest { block(i) } else { &[] };
    exchange_long(turn, around, &around.destinations.iter().enumerate().map(by_message).collect(), long)
}

/// Brings the blocks for others with a table of them, but those that are longer than an equal part of the room has place for. Gives that length.
fn bring<'a>(turn: &Turn, around: &Neighbors<'_>, block: &impl Fn(usize) -> &'a [u8]) -> Result<usize> {
    let me = turn.rank();
    let outgoing: PerRank<(usize, &[u8])> = around.sending_order().filter(|(_, to)| *to != me).map(|(i, to)| (to, block(i))).collect();
    let Some(readers) = readers(turn, around).filter(|_| outgoing.iter().any(|(_, block)| !block.is_empty())) else { return Ok(0) };
    let Some(longest) = longest_block(turn.ranks(), outgoing.len()) else {
        turn.bring(&Entry::new(me, Entry::BY_MESSAGE, true).0.to_ne_bytes(), readers)?;
        return Ok(0);
    };
    let mut table: SmallVec<[u8; 8 * Entry::BYTES]> = SmallVec::new();
    for (at, (to, block)) in outgoing.iter().enumerate() {
        let bytes = if block.len() > longest { Entry::BY_MESSAGE } else { block.len() as u32 };
        table.extend_from_slice(&Entry::new(*to, bytes, at + 1 == outgoing.len()).0.to_ne_bytes());
    }
    let short = || outgoing.iter().map(|(_, block)| *block).filter(|block| block.len() <= longest);
    let bytes = table.len() + short().map(<[u8]>::len).sum::<usize>();
    turn.bring_blocks(bytes, readers, once(&table[..]).chain(short()))?;
    Ok(longest)
}

/// Takes the block for this rank behind so many others for it that `rank` [brings](bring). False: it comes by a message.
fn take(turn: &Turn, rank: usize, before: usize, into: &mut [u8]) -> Result<bool> {
    let part = turn.any_part(rank)?;
    let entry = |at: usize| -> Result<Entry> {
        let mut word = [0; Entry::BYTES];
        if (at + 1) * Entry::BYTES > part.len() {
            return Err(turn.wrong_length(rank, 0, into.len()));
        }
        part.copy_range(at * Entry::BYTES, &mut word)?;
        Ok(Entry(u32::from_ne_bytes(word)))
    };
    let (mut at, mut from, mut left, mut found) = (0, 0, before, None);
    loop {
        let one = entry(at)?;
        if one.rank() == rank {
            return Ok(false);
        }
        if one.rank() == turn.rank() && found.is_none() {
            match left {
                0 => found = Some((from, one.bytes())),
                _ => left -= 1,
            }
        }
        from += one.bytes().unwrap_or(0);
        at += 1;
        if one.is_last() {
            break;
        }
    }
    let (from, bytes) = match found {
        Some((_, None)) => return Ok(false),
        Some((from, Some(bytes))) => (at * Entry::BYTES + from, bytes),
        None => (0, 0),
    };
    if bytes != into.len() || from + bytes > part.len() {
        return Err(turn.wrong_length(rank, bytes, into.len()));
    }
    part.copy_range(from, into)?;
    Ok(true)
}
