//! Long collectives of ranks that share memory: what two ranks send each other, or one sends to all others, passes through a window of the sender's
//! room, piece by piece, so that others read a piece while it writes the next, and all of it stays in the caches. Where all send to all, [rounds](super::rounds)
//! keep them together.

use super::Turn;
use crate::coll::{self, Reducer};
use crate::error::{Error, Result};
use crate::pair::{Exchange, Sends};
use engine::slots::{Brought, Readers, Room, take_brought};
use std::ops::Range;

/// Longest that passes from one rank to the other, bytes.
pub const BYTES_MAX: usize = 1 << 30;
/// What a stream takes of a rank's room, bytes at most: less than all of it, so that the next one can begin while the last is still read.
const WINDOW_BYTES: usize = 1 << 20;
/// Bytes that are published at once, at most.
const PIECE_BYTES: usize = 16 << 10;

/// Whether `ranks` that share memory pass what none of them has more than `longest` bytes of so. `among_many`: where there are more than two, too.
#[inline]
pub fn fits(ranks: usize, longest: usize, among_many: bool) -> bool {
    longest <= BYTES_MAX && (ranks == 2 || among_many)
}

/// A turn in which bytes pass so: of two ranks an exchange.
pub struct Stream<'t> {
    pub(super) turn: &'t Turn<'t>,
    pub(super) room: Room,
    /// Bytes of a piece.
    step: usize,
}

/// What a rank sends, and what it does with what comes.
trait Ends {
    fn outgoing(&self, range: Range<usize>) -> &[u8];
    /// `theirs` are the bytes of `range` of what comes; those of the same place have gone out before, if there are any.
    fn incoming(&mut self, range: Range<usize>, theirs: &[u8]) -> Result<()>;
}

/// Bytes that are moved.
struct Moved<'a> {
    data: &'a [u8],
    into: &'a mut [u8],
}

impl Ends for Moved<'_> {
    fn outgoing(&self, range: Range<usize>) -> &[u8] {
        &self.data[range]
    }

    fn incoming(&mut self, range: Range<usize>, theirs: &[u8]) -> Result<()> {
        take_brought(&mut self.into[range], theirs);
        Ok(())
    }
}

/// Vectors that are combined, the lower rank's on the left.
struct Combined<'a, R: ?Sized> {
    op: &'a R,
    sends: Sends<'a>,
    mine: Option<&'a [u8]>,
    into: &'a mut [u8],
    lower: bool,
    /// Room for a piece, where the right operand is in place.
    piece: coll::Scratch,
}

impl<R: Reducer + ?Sized> Ends for Combined<'_, R> {
    fn outgoing(&self, range: Range<usize>) -> &[u8] {
        match self.sends {
            Sends::Nothing => &[],
            Sends::These(data) => &data[range],
            Sends::Own => &self.mine.unwrap_or(self.into)[range],
        }
    }

    fn incoming(&mut self, range: Range<usize>, theirs: &[u8]) -> Result<()> {
        let into = &mut self.into[range.clone()];
        match (self.mine, self.lower) {
            (Some(mine), true) => {
                take_brought(into, theirs);
                self.op.reduce(&mine[range], into)
            }
            (None, true) => {
                let combined = &mut self.piece[..range.len()];
                combined.copy_from_slice(theirs);
                self.op.reduce(into, combined)?;
                into.copy_from_slice(combined);
                Ok(())
            }
            (mine, false) => {
                if let Some(mine) = mine {
                    into.copy_from_slice(&mine[range]);
                }
                self.op.reduce(theirs, into)
            }
        }
    }
}

impl<'t> Stream<'t> {
    /// `together`: bytes that must come together, the same on both ranks.
    ///
    /// # Errors
    /// `MPI_ERR_INTERN` where the turn has no room.
    pub fn new(turn: &'t Turn<'t>, together: usize) -> Result<Stream<'t>> {
        let room = turn.room.ok_or_else(|| Error::new(crate::consts::MPI_ERR_INTERN, "a stream without room"))?;
        Ok(Stream { turn, room, step: PIECE_BYTES / together * together })
    }

    /// Where its bytes pass.
    pub fn turn(&self) -> &'t Turn<'t> {
        self.turn
    }

    /// Bytes of a window, a multiple of those of a piece.
    fn window(&self) -> usize {
        WINDOW_BYTES.min(self.room.each() / 2) / self.step * self.step
    }

    fn others(&self) -> impl Iterator<Item = usize> {
        let me = self.turn.rank();
        (0..self.turn.ranks()).filter(move |rank| *rank != me)
    }

    /// Sends `data` to all other ranks.
    ///
    /// # Errors
    /// As [`Turn::bring`].
    pub fn send_to_all(&self, data: &[u8]) -> Result<()> {
        let (turn, slots, window) = (self.turn, self.turn.slots, self.window());
        let offset = turn.take(window, Readers::All)?.expect("a turn that waits");
        // Up to where all others have read, as seen last.
        let mut read = 0;
        for (at, piece) in data.chunks(self.step).enumerate().map(|(number, piece)| (number * self.step, piece)) {
            let end = at + piece.len();
            if end > read + window {
                for rank in self.others() {
                    let has_read = || slots.streamed(rank, turn.number) + window >= end;
                    if !has_read() {
                        turn.wait(rank, &has_read)?;
                    }
                }
                read = self.others().map(|rank| slots.streamed(rank, turn.number)).min().unwrap_or(0);
            }
            // SAFETY: this rank has taken the window, and all others have read what was there; published below.
            unsafe { slots.write(&self.room, offset + at % window, piece) };
            if at == 0 { slots.publish(turn.number, turn.mark, offset, data.len(), end) } else { slots.publish_more(turn.number, end) }
        }
        Ok(())
    }

    /// Receives what `root` sends to all.
    ///
    /// # Errors
    /// As [`Turn::part`].
    pub fn receive_from(&self, root: usize, into: &mut [u8]) -> Result<()> {
        let (turn, slots, window, bytes) = (self.turn, self.turn.slots, self.window(), into.len());
        turn.await_part(root)?;
        let theirs = slots.read_stream(root, turn.number, window, self.room.each()).map_err(|wrong| turn.corrupt(&wrong))?;
        if theirs.len() != bytes {
            return Err(turn.wrong_length(root, theirs.len(), bytes));
        }
        for (at, piece) in into.chunks_mut(self.step).enumerate().map(|(number, piece)| (number * self.step, piece)) {
            let end = at + piece.len();
            if theirs.streamed() < end {
                turn.wait(root, &|| theirs.streamed() >= end)?;
            }
            // SAFETY: those have come, and are written again after this rank has said that it has read them.
            take_brought(piece, unsafe { self.room.bytes(root, theirs.offset() + at % window, piece.len()) });
            slots.say_streamed(turn.number, end);
        }
        Ok(())
    }

    /// Sends `outgoing` bytes and receives `incoming`.
    fn pass(&self, outgoing: usize, incoming: usize, ends: &mut impl Ends) -> Result<()> {
        let (turn, step, other) = (self.turn, self.step, 1 - self.turn.rank());
        let window = self.window();
        let offset = if outgoing > 0 { turn.take(window, Readers::One(other))?.expect("a turn that waits") } else { 0 };
        let mut passing = Passing { turn, room: self.room, other, window, step, offset, outgoing, incoming, sent: 0, received: 0, theirs: None };
        while passing.sent < outgoing || passing.received < incoming {
            let (receives, sends) = (passing.may_receive(), passing.may_send());
            if receives {
                passing.receive(ends)?;
            }
            if sends {
                passing.send(ends);
            }
            if !receives && !sends {
                turn.wait(other, &|| passing.may_send() || passing.may_receive())?;
            }
        }
        Ok(())
    }
}

/// A stream each way.
struct Passing<'t> {
    turn: &'t Turn<'t>,
    room: Room,
    other: usize,
    /// Bytes of the window, a multiple of those of a piece, and where it begins in this rank's room.
    window: usize,
    step: usize,
    offset: usize,
    outgoing: usize,
    incoming: usize,
    sent: usize,
    received: usize,
    /// The other rank's, once it has begun.
    theirs: Option<Brought<'static>>,
}

impl Passing<'_> {
    #[inline]
    fn may_send(&self) -> bool {
        self.sent < self.outgoing && self.sent + self.step <= self.window + self.turn.slots.streamed(self.other, self.turn.number)
    }

    /// Whether a piece has come, and what it may be written over has gone out.
    #[inline]
    fn may_receive(&self) -> bool {
        let over_sent = self.sent > self.received || self.sent == self.outgoing;
        self.received < self.incoming
            && over_sent
            && match &self.theirs {
                None => self.turn.slots.brought(self.other, self.turn.number, self.turn.mark),
                Some(theirs) => theirs.streamed() >= self.incoming.min(self.received + self.step),
            }
    }

    fn send(&mut self, ends: &impl Ends) {
        let (slots, number) = (self.turn.slots, self.turn.number);
        let range = self.sent..self.outgoing.min(self.sent + self.step);
        // SAFETY: this rank has taken the window, and the other one has read what was there; published below.
        unsafe { slots.write(&self.room, self.offset + self.sent % self.window, ends.outgoing(range.clone())) };
        if self.sent == 0 {
            slots.publish(number, self.turn.mark, self.offset, self.outgoing, range.end);
        } else {
            slots.publish_more(number, range.end);
        }
        self.sent = range.end;
    }

    fn receive(&mut self, ends: &mut impl Ends) -> Result<()> {
        let Some(theirs) = &self.theirs else {
            let theirs = self.turn.slots.read_stream(self.other, self.turn.number, self.window, self.room.each());
            let theirs = self.theirs.insert(theirs.map_err(|wrong| self.turn.corrupt(&wrong))?);
            let wrong = theirs.len() != self.incoming;
            return if wrong { Err(self.turn.wrong_length(self.other, theirs.len(), self.incoming)) } else { Ok(()) };
        };
        let range = self.received..self.incoming.min(self.received + self.step);
        // SAFETY: those have come, and are written again after this rank has said that it has read them.
        ends.incoming(range.clone(), unsafe { self.room.bytes(self.other, theirs.offset() + range.start % self.window, range.len()) })?;
        self.received = range.end;
        self.turn.slots.say_streamed(self.turn.number, self.received);
        Ok(())
    }
}

impl Exchange for Stream<'_> {
    const BYTES_MAX: Option<usize> = None;

    fn rank(&self) -> usize {
        self.turn.rank()
    }

    fn run(&self, data: &[u8], into: &mut [u8]) -> Result<()> {
        self.pass(data.len(), into.len(), &mut Moved { data, into })
    }

    fn combine(&self, op: &(impl Reducer + ?Sized), sends: Sends<'_>, mine: Option<&[u8]>, into: &mut [u8]) -> Result<()> {
        let outgoing = match sends {
            Sends::Nothing => 0,
            Sends::These(data) => data.len(),
            Sends::Own => into.len(),
        };
        let (incoming, lower, piece) = (into.len(), self.rank() == 0, coll::scratch(self.step)?);
        self.pass(outgoing, incoming, &mut Combined { op, sends, mine, into, lower, piece })
    }
}
