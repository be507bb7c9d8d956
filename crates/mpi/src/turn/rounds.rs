//! Long collectives in which all ranks that share memory bring equally much: round by round, each through a window of a few rounds of its own room, so that what
//! passes stays in the caches, and each rank may be some rounds ahead of the others. What it has combined, a rank may bring once more in the same round.

use super::stream::Stream;
use super::{PIECE_BYTES, Turn};
use crate::error::Result;
use crate::lines;
use engine::slots::{Brought, Readers, Room};
use smallvec::SmallVec;
use std::cell::{Cell, RefCell};
use std::ops::Range;

/// Rounds that a window holds where each rank has a core. A rank brings one, combines a slice of the one before, and takes what has been combined of that before
/// it: so it needs what others have done while it did as much itself, and nobody waits for those that are a little late. Ranks that share cores wait anyhow, and
/// have a window of as many rounds as are under way: it stays in the caches.
const WINDOW: usize = 4;

/// Where each rank has a core, a round is half of the longest part of a rank, but for slices that would be shorter than this, bytes: what comes before the first
/// round is combined, and after the last, is short so. Ranks that share cores hand them over in each round.
const SLICE_BYTES_MIN: usize = 4 << 10;

/// The rounds of one collective.
pub struct Rounds<'t> {
    turn: &'t Turn<'t>,
    room: Room,
    /// Bytes of all rounds together, and of one, but for a shorter last one.
    bytes: usize,
    each: usize,
    /// Rounds in a window, and those that are brought before one is taken.
    window: usize,
    lag: usize,
    /// Who reads what this rank brings.
    readers: Readers,
    /// Where the window begins in this rank's room.
    offset: usize,
    /// Rounds that have been brought.
    brought: Cell<usize>,
    theirs: RefCell<SmallVec<[Option<Brought<'static>>; 8]>>,
}

impl<'t> Rounds<'t> {
    /// `bytes` of each rank in all; in a round `blocks` of them, equal ones of whole elements of `unit` bytes. A round is taken when `lag` more have been brought.
    ///
    /// # Errors
    /// As [`Turn::bring`].
    pub fn new(stream: &Stream<'t>, bytes: usize, (blocks, unit): (usize, usize), lag: usize, readers: Readers) -> Result<Rounds<'t>> {
        let (turn, room) = (stream.turn, stream.room);
        let (ranks, part) = (turn.ranks(), lines::part_of(turn.ranks()));
        let (round, most) = match turn.crowded() {
            true => (part, lag + 1),
            false => ((part / 2).max(part.min(ranks * SLICE_BYTES_MIN)), WINDOW),
        };
        let each = (round / blocks / unit).max(1) * unit * blocks;
        let window = bytes.div_ceil(each).min(most);
        let offset = turn.take(window * each, readers)?.expect("a turn that waits");
        let theirs = (0..turn.ranks()).map(|_| None).collect();
        Ok(Rounds { turn, room, bytes, each, window, lag, readers, offset, brought: Cell::new(0), theirs: RefCell::new(theirs) })
    }

    /// How many there are.
    pub fn count(&self) -> usize {
        self.bytes.div_ceil(self.each)
    }

    /// How many are brought before one is taken.
    pub fn lag(&self) -> usize {
        self.lag
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
    fn place(&self, round: usize) -> usize {
        round % self.window * self.each
    }

    /// Brings `blocks`, the bytes of the next round, once those who read them have done so with what was there a window before.
    ///
    /// # Errors
    /// As [`Turn::bring`].
    pub fn bring<'a>(&self, blocks: impl Iterator<Item = &'a [u8]>) -> Result<()> {
        let mut outgoing = self.begin()?;
        blocks.for_each(|block| outgoing.bring(block));
        outgoing.end();
        Ok(())
    }

    /// Begins to bring the next round, as [`Rounds::bring`] does.
    ///
    /// # Errors
    /// As [`Turn::bring`].
    pub fn begin(&self) -> Result<Outgoing<'_, 't>> {
        let (turn, round) = (self.turn, self.brought.get());
        if let Some(before) = round.checked_sub(self.window) {
            let read = self.range(before).end;
            for rank in self.readers() {
                let has_read = || turn.slots.streamed(rank, turn.number) >= read;
                if !has_read() {
                    turn.wait(rank, &has_read)?;
                }
            }
        }
        Ok(Outgoing { rounds: self, range: self.range(round), place: self.offset + self.place(round), at: 0, ready: 0 })
    }

    /// Bytes `range` of what `rank` has brought in `round`, as soon as they are there.
    ///
    /// # Errors
    /// As [`Turn::part`].
    pub fn part(&self, round: usize, rank: usize, range: Range<usize>) -> Result<&[u8]> {
        let (turn, slots) = (self.turn, self.turn.slots);
        let mut all = self.theirs.borrow_mut();
        let theirs = match &mut all[rank] {
            Some(theirs) => theirs,
            none => {
                turn.await_part(rank)?;
                let theirs = slots.read_stream(rank, turn.number, self.window * self.each, self.room.each()).map_err(|wrong| turn.corrupt(&wrong))?;
                if theirs.len() != self.bytes {
                    return Err(turn.wrong_length(rank, theirs.len(), self.bytes));
                }
                none.insert(theirs)
            }
        };
        let needed = self.range(round).start + range.end;
        if theirs.streamed() < needed {
            turn.wait(rank, &|| theirs.streamed() >= needed)?;
        }
        // SAFETY: those have come, and are written again after this rank has said that it has read the round.
        Ok(unsafe { self.room.bytes(rank, theirs.offset() + self.place(round) + range.start, range.len()) })
    }

    /// Lets `change` write over `range` of what this rank has brought in `round`, and publishes it for the second time. No other rank reads that range before.
    ///
    /// # Errors
    /// Those of `change`.
    pub fn bring_second(&self, round: usize, range: Range<usize>, change: impl FnOnce(&mut [u8]) -> Result<()>) -> Result<()> {
        // SAFETY: this rank has brought it, and nobody else reads the range before it is published once more.
        change(unsafe { self.room.bytes_mut(self.turn.rank(), self.offset + self.place(round) + range.start, range.len()) })?;
        self.turn.slots.publish_second_of(self.turn.number, round);
        Ok(())
    }

    /// As [`Rounds::part`], of what `rank` has brought the second time.
    ///
    /// # Errors
    /// As [`Turn::part`].
    pub fn second_part(&self, round: usize, rank: usize, range: Range<usize>) -> Result<&[u8]> {
        let (turn, slots) = (self.turn, self.turn.slots);
        let bytes = self.part(round, rank, range)?;
        let is_there = || slots.brought_second_of(rank, turn.number, round);
        if !is_there() {
            turn.wait(rank, &is_there)?;
        }
        Ok(bytes)
    }

    /// Ends `round`: this rank reads nothing of it or of those before any more.
    ///
    /// # Errors
    /// Of a process that cannot be woken.
    pub fn end(&self, round: usize) -> Result<()> {
        self.turn.slots.say_streamed(self.turn.number, self.range(round).end);
        // Who waits to write where this rank has read may sleep.
        self.turn.wake()
    }
}

/// A round that this rank brings, block by block.
pub struct Outgoing<'r, 't> {
    rounds: &'r Rounds<'t>,
    range: Range<usize>,
    /// Where it lies in this rank's room.
    place: usize,
    /// Bytes of it that have been written, and published.
    at: usize,
    ready: usize,
}

impl Outgoing<'_, '_> {
    /// Brings the next block of it.
    pub fn bring(&mut self, block: &[u8]) {
        let (Rounds { turn, room, offset, bytes, .. }, Range { start, end }) = (self.rounds, self.range.clone());
        for piece in block.chunks(PIECE_BYTES) {
            assert!(start + self.at + piece.len() <= end, "more than a round");
            // SAFETY: this rank has taken the window, and all others have read what was there; published below.
            unsafe { turn.slots.write(room, self.place + self.at, piece) };
            self.at += piece.len();
            if self.at - self.ready >= PIECE_BYTES || start + self.at == end {
                if start + self.ready == 0 {
                    turn.slots.publish(turn.number, turn.mark, *offset, *bytes, self.at)
                } else {
                    turn.slots.publish_more(turn.number, start + self.at)
                }
                self.ready = self.at;
            }
        }
    }

    /// All of it has been brought.
    pub fn end(self) {
        assert!(self.range.start + self.at == self.range.end, "less than a round");
        self.rounds.brought.set(self.rounds.brought.get() + 1);
    }
}
