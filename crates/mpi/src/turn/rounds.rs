//! Long collectives in which all ranks that share memory bring equally much: round by round, each through a window of two rounds of its own room, so that what
//! passes stays in the caches, and each rank may be a round ahead of the others. What it has combined, a rank may bring once more in the same round.

use super::stream::Stream;
use super::{PIECE_BYTES, Turn};
use crate::error::Result;
use crate::lines;
use engine::slots::{Brought, Readers, Room};
use smallvec::SmallVec;
use std::cell::RefCell;
use std::ops::Range;

/// The rounds of one collective.
pub struct Rounds<'t> {
    turn: &'t Turn<'t>,
    room: Room,
    /// Bytes of all rounds together, and of one, but for a shorter last one.
    bytes: usize,
    each: usize,
    /// Who reads what this rank brings.
    readers: Readers,
    /// Where the window begins in this rank's room.
    offset: usize,
    /// The round that is on, and rounds that have been brought.
    now: usize,
    brought: usize,
    theirs: RefCell<SmallVec<[Option<Brought<'static>>; 8]>>,
}

/// Bytes of a round in which each of `ranks` brings a number of blocks of whole elements of `unit` bytes: all of them together.
pub fn bytes_of(ranks: usize, blocks: usize, unit: usize) -> usize {
    (lines::part_of(ranks) / blocks / unit).max(1) * unit * blocks
}

impl<'t> Rounds<'t> {
    /// `bytes` of each rank in all, `each` in a round: those of [`bytes_of`].
    ///
    /// # Errors
    /// As [`Turn::bring`].
    pub fn new(stream: &Stream<'t>, bytes: usize, each: usize, readers: Readers) -> Result<Rounds<'t>> {
        let (turn, room) = (stream.turn, stream.room);
        let offset = turn.take(2 * each, readers)?.expect("a turn that waits");
        let theirs = (0..turn.ranks()).map(|_| None).collect();
        Ok(Rounds { turn, room, bytes, each, readers, offset, now: 0, brought: 0, theirs: RefCell::new(theirs) })
    }

    /// How many there are.
    pub fn count(&self) -> usize {
        self.bytes.div_ceil(self.each)
    }

    /// Where a round's bytes lie among all.
    pub fn range(&self, round: usize) -> Range<usize> {
        round * self.each..self.bytes.min((round + 1) * self.each)
    }

    /// The other ranks that read what this one brings.
    fn readers(&self) -> impl Iterator<Item = usize> + use<> {
        let (me, ranks, readers) = (self.turn.rank(), self.turn.ranks(), self.readers);
        (1..ranks).map(move |step| (me + step) % ranks).filter(move |rank| match readers {
            Readers::All => true,
            Readers::One(reader) => *rank == reader,
            Readers::Nobody => false,
        })
    }

    /// Where a round lies in a window.
    fn half(&self, round: usize) -> usize {
        round % 2 * self.each
    }

    /// Brings `blocks`, the bytes of the next round, once those who read them have done so with what was there two rounds ago.
    ///
    /// # Errors
    /// As [`Turn::bring`].
    pub fn bring<'a>(&mut self, blocks: impl Iterator<Item = &'a [u8]>) -> Result<()> {
        let (turn, slots, round) = (self.turn, self.turn.slots, self.brought);
        let Range { start, end } = self.range(round);
        if round >= 2 {
            let read = self.range(round - 2).end;
            for rank in self.readers() {
                let has_read = || slots.streamed(rank, turn.number) >= read;
                if !has_read() {
                    turn.wait(rank, &has_read)?;
                }
            }
        }
        let (mut at, mut ready) = (0, 0);
        for piece in blocks.flat_map(|block| block.chunks(PIECE_BYTES)) {
            assert!(start + at + piece.len() <= end, "more than a round");
            // SAFETY: this rank has taken the window, and all others have read what was there; published below.
            unsafe { slots.write(&self.room, self.offset + self.half(round) + at, piece) };
            at += piece.len();
            if at - ready >= PIECE_BYTES || start + at == end {
                if start + ready == 0 {
                    slots.publish(turn.number, turn.mark, self.offset, self.bytes, at)
                } else {
                    slots.publish_more(turn.number, start + at)
                }
                ready = at;
            }
        }
        assert!(start + at == end, "less than a round");
        self.brought += 1;
        Ok(())
    }

    /// Bytes `range` of what `rank` has brought in this round, as soon as they are there.
    ///
    /// # Errors
    /// As [`Turn::part`].
    pub fn part(&self, rank: usize, range: Range<usize>) -> Result<&[u8]> {
        let (turn, slots) = (self.turn, self.turn.slots);
        let mut all = self.theirs.borrow_mut();
        let theirs = match &mut all[rank] {
            Some(theirs) => theirs,
            none => {
                turn.await_part(rank)?;
                let theirs = slots.read_stream(rank, turn.number, 2 * self.each, self.room.each()).map_err(|wrong| turn.corrupt(&wrong))?;
                if theirs.len() != self.bytes {
                    return Err(turn.wrong_length(rank, theirs.len(), self.bytes));
                }
                none.insert(theirs)
            }
        };
        let needed = self.range(self.now).start + range.end;
        if theirs.streamed() < needed {
            turn.wait(rank, &|| theirs.streamed() >= needed)?;
        }
        // SAFETY: those have come, and are written again after this rank has said that it has read the round.
        Ok(unsafe { self.room.bytes(rank, theirs.offset() + self.half(self.now) + range.start, range.len()) })
    }

    /// Lets `change` write over `range` of what this rank has brought in this round, and publishes it for the second time. No other rank reads that range before.
    ///
    /// # Errors
    /// Those of `change`.
    pub fn bring_second(&self, range: Range<usize>, change: impl FnOnce(&mut [u8]) -> Result<()>) -> Result<()> {
        // SAFETY: this rank has brought it, and nobody else reads the range before it is published once more.
        change(unsafe { self.room.bytes_mut(self.turn.rank(), self.offset + self.half(self.now) + range.start, range.len()) })?;
        self.turn.slots.publish_second_of(self.turn.number, self.now);
        Ok(())
    }

    /// As [`Rounds::part`], of what `rank` has brought the second time.
    ///
    /// # Errors
    /// As [`Turn::part`].
    pub fn second_part(&self, rank: usize, range: Range<usize>) -> Result<&[u8]> {
        let (turn, slots) = (self.turn, self.turn.slots);
        let bytes = self.part(rank, range)?;
        let is_there = || slots.brought_second_of(rank, turn.number, self.now);
        if !is_there() {
            turn.wait(rank, &is_there)?;
        }
        Ok(bytes)
    }

    /// Ends this round: this rank reads nothing of it any more.
    ///
    /// # Errors
    /// Of a process that cannot be woken.
    pub fn end(&mut self) -> Result<()> {
        self.turn.slots.say_streamed(self.turn.number, self.range(self.now).end);
        self.now += 1;
        // Who waits to write where this rank has read may sleep.
        self.turn.wake()
    }
}
