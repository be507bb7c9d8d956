//! A short collective through the slots that the members of a communicator share ([`engine::slots`]): a rank brings
//! its part and goes on, and waits only for those whose parts it needs. One that is nonblocking ([`crate::later`]) does
//! not wait at all: it takes the parts of others once they are there.

pub mod lend;
pub mod rounds;
pub mod stream;

use crate::call::{Begun, Way};
use crate::comm::Comm;
use crate::error::{Error, Result};
use crate::lines::{self, Shared, look_quickly};
use crate::link::{self, Channel};
use crate::mismatch::{self, About};
use crate::request::{self, Pauses};
use crate::turn::lend::Lending;
use crate::world::{self, World, fault};
use engine::slots::{Behind, Brought, Corrupt, INLINE_BYTES, Readers, Room, Slots, take_brought};
use engine::{Doing, Line};
use std::cell::Cell;
use std::ops::Range;

/// Longer bytes are published in pieces of about so many, so that others read the first while the last are written.
pub const PIECE_BYTES: usize = 16 << 10;

/// One collective of a communicator, in which this rank takes part.
pub struct Turn<'c> {
    comm: &'c Comm,
    world: &'static World,
    function: &'static str,
    begun: Begun,
    slots: &'c Slots<'static>,
    room: Option<Room>,
    number: u32,
    mark: u64,
    /// It waits for others. If not, what it would have waited for.
    waits: bool,
    behind: Cell<Option<Behind>>,
}

/// The part of one rank.
pub struct Part<'a> {
    turn: &'a Turn<'a>,
    rank: usize,
    brought: Brought<'static>,
}

/// The number of the collective that has `begun` on `comm` among those that go through slots, and the mark of its parts.
#[inline]
pub fn numbers(comm: &Comm, begun: Begun) -> (u32, u64) {
    let number = comm.calls.full_number(begun.tag).wrapping_add(1);
    (number, number as u64 | (begun.tag as u64) << 32)
}

impl<'c> Turn<'c> {
    /// The collective that has `begun` on `comm`, in which no rank brings more bytes than a line of `shared` or `room` has.
    ///
    /// # Errors
    /// That of a collective that has not matched.
    #[inline]
    pub fn new(comm: &'c Comm, function: &'static str, begun: Begun, (shared, room): (&'c Shared, Option<Room>)) -> Result<Turn<'c>> {
        let turn = Turn::unchecked(comm, world::get()?, function, begun, shared, room);
        turn.check()?;
        Ok(turn)
    }

    /// As [`Turn::new`]; first of all it is [checked](Turn::check).
    // Inlined, so that it is made where it stays: moving what has just been written waits for earlier stores.
    #[inline(always)]
    pub fn unchecked(comm: &'c Comm, world: &'static World, function: &'static str, begun: Begun, shared: &'c Shared, room: Option<Room>) -> Turn<'c> {
        let (number, mark) = numbers(comm, begun);
        Turn { comm, world, function, begun, slots: &shared.slots, room, number, mark, waits: true, behind: Cell::new(None) }
    }

    /// # Errors
    /// As [`Turn::new`].
    #[inline]
    pub fn check(&self) -> Result<()> {
        if mismatch::any_at_all() {
            // An earlier one may have ended elsewhere than in its turn.
            self.slots.end(self.number.wrapping_sub(1));
            mismatch::check(self.comm, self.begun.tag)?;
        }
        Ok(())
    }

    /// As [`Turn::new`], of a collective that has its `numbers` already and does not wait.
    #[inline]
    pub fn later(comm: &'c Comm, world: &'static World, function: &'static str, begun: Begun, shared: &'c Shared, (number, mark): (u32, u64)) -> Turn<'c> {
        let (slots, room) = (&shared.slots, shared.room());
        Turn { comm, world, function, begun, slots, room, number, mark, waits: false, behind: Cell::new(None) }
    }

    /// Whether it waits for others.
    #[inline]
    pub fn waits(&self) -> bool {
        self.waits
    }

    /// Who must end which collective before this rank can bring its part, where it could not.
    #[inline]
    pub fn behind(&self) -> Option<Behind> {
        self.behind.get()
    }

    #[inline]
    pub fn rank(&self) -> usize {
        self.comm.rank as usize
    }

    /// The messages of the same collective, for what goes by them.
    ///
    /// # Errors
    /// As [`Turn::new`].
    pub fn channel(&self) -> Result<Channel> {
        Channel::begun(self.comm, self.begun)
    }

    /// Drives what goes by messages to its end.
    ///
    /// # Errors
    /// Those of `messages`.
    pub fn block(&self, messages: impl Future<Output = Result<()>>) -> Result<()> {
        link::block(self.comm.cell, self.function, messages)
    }

    #[inline]
    pub fn ranks(&self) -> usize {
        self.slots.ranks()
    }

    /// Whether there are fewer cores than ranks, as all of them say, in a turn that waits and has room.
    #[inline]
    pub fn crowded(&self) -> bool {
        lines::slots_of(self.comm).is_some_and(Shared::crowded)
    }

    /// When members lend, of a communicator whose members can read each other's memory.
    #[inline]
    pub fn lending(&self) -> Option<&'c Lending> {
        lines::slots_of(self.comm).and_then(Shared::lending)
    }

    /// Whether reductions combine in the order of [`crate::coll::Tuning::reproducible`].
    pub fn reproducible(&self) -> bool {
        self.world.tuning.reproducible
    }

    fn room_each(&self) -> usize {
        self.room.as_ref().map_or(0, Room::each)
    }

    /// Brings `data`. False: that has to wait for [others](Turn::behind), in a turn that does not.
    ///
    /// # Errors
    /// Of processes that fail, or collectives that do not match.
    #[inline]
    pub fn bring(&self, data: &[u8], readers: Readers) -> Result<bool> {
        if data.len() <= INLINE_BYTES {
            if self.take(data.len(), readers)?.is_none() {
                return Ok(false);
            }
            self.slots.publish_short(self.number, self.mark, data);
            return Ok(true);
        }
        Ok(self.bring_blocks(data.len(), readers, std::iter::once(data))?.is_some())
    }

    /// Takes a line and room for `bytes`. Gives the offset there; `None` as [`Turn::bring`] says false.
    #[inline]
    fn take(&self, bytes: usize, readers: Readers) -> Result<Option<usize>> {
        let (slots, number, each) = (self.slots, self.number, self.room_each());
        let taken = match self.waits {
            true => Some(slots.take(number, bytes, each, readers, |rank, ready: &dyn Fn() -> bool| self.wait(rank, ready))?),
            false => {
                let taken = slots.try_take(number, bytes, each, readers);
                self.behind.set(taken.err());
                taken.ok()
            }
        };
        if bytes > INLINE_BYTES
            && let (Some(offset), Some(room)) = (taken, &self.room)
        {
            slots.prepare(room, offset + bytes).map_err(|error| fault(error.into()))?;
        }
        Ok(taken)
    }

    /// Brings `blocks`, `bytes` in all, one behind the other. Gives the offset of longer bytes in this rank's room; `None` as
    /// [`Turn::bring`] says false.
    ///
    /// # Errors
    /// As [`Turn::bring`].
    #[inline]
    pub fn bring_blocks<'a>(&self, bytes: usize, readers: Readers, blocks: impl Iterator<Item = &'a [u8]>) -> Result<Option<usize>> {
        let (slots, number, mark) = (self.slots, self.number, self.mark);
        let Some(offset) = self.take(bytes, readers)? else { return Ok(None) };
        if bytes <= INLINE_BYTES {
            let (mut line, mut at) = ([0u8; INLINE_BYTES], 0);
            for block in blocks {
                line[at..at + block.len()].copy_from_slice(block);
                at += block.len();
            }
            slots.publish_short(number, mark, &line[..bytes]);
            return Ok(Some(0));
        }
        let room = self.room.as_ref().expect("longer parts come where there is room");
        let (mut at, mut ready) = (0, 0);
        for piece in blocks.flat_map(|block| block.chunks(PIECE_BYTES)) {
            // SAFETY: this rank has taken the room, and publishes each piece after it was written.
            unsafe { slots.write(room, offset + at, piece) };
            at += piece.len();
            if at - ready >= PIECE_BYTES || at == bytes {
                if ready == 0 {
                    slots.publish(number, mark, offset, bytes, at)
                } else {
                    slots.publish_more(number, at)
                }
                ready = at;
            }
        }
        Ok(Some(offset))
    }

    /// Brings `bytes` that `make` writes, and publishes them in pieces of `step`: `make` gets the place of each among them, and
    /// its memory, of any content. `bytes` are more than fit into a line. In a turn that waits.
    ///
    /// # Errors
    /// As [`Turn::bring`], and those of `make`.
    pub fn bring_made(&self, bytes: usize, step: usize, readers: Readers, mut make: impl FnMut(Range<usize>, &mut [u8]) -> Result<()>) -> Result<()> {
        assert!(bytes > INLINE_BYTES && self.waits);
        let (slots, number, mark) = (self.slots, self.number, self.mark);
        let offset = self.take(bytes, readers)?.expect("a turn that waits");
        let room = self.room.as_ref().expect("longer parts come where there is room");
        for from in (0..bytes).step_by(step) {
            let to = bytes.min(from + step);
            // SAFETY: this rank has taken the room, and publishes each piece after it was written.
            make(from..to, unsafe { room.bytes_mut(self.rank(), offset + from, to - from) })?;
            if from == 0 { slots.publish(number, mark, offset, bytes, to) } else { slots.publish_more(number, to) }
        }
        Ok(())
    }

    /// Lets `change` write over `range` of what this rank has brought, at `offset` of its room, and publishes it for
    /// the second time. No other rank reads that range before.
    ///
    /// # Errors
    /// Those of `change`.
    pub fn bring_second(&self, offset: usize, range: Range<usize>, change: impl FnOnce(&mut [u8]) -> Result<()>) -> Result<()> {
        let room = self.room.as_ref().expect("longer parts come where there is room");
        // SAFETY: this rank has taken the room, and nobody else reads the range before it is published once more.
        change(unsafe { room.bytes_mut(self.rank(), offset + range.start, range.len()) })?;
        self.slots.publish_second(self.number, self.mark);
        Ok(())
    }

    /// Copies `range` of what `rank` has brought the second time, of `bytes`.
    ///
    /// # Errors
    /// As [`Turn::bring`].
    pub fn second_part(&self, rank: usize, bytes: usize, range: Range<usize>, into: &mut [u8]) -> Result<()> {
        self.with_second_part(rank, bytes, range, |theirs| {
            take_brought(into, theirs);
            Ok(())
        })
    }

    /// Gives `range` of what `rank` has brought the second time, of `bytes`, to `then`.
    ///
    /// # Errors
    /// As [`Turn::bring`], and those of `then`.
    pub fn with_second_part(&self, rank: usize, bytes: usize, range: Range<usize>, then: impl FnOnce(&[u8]) -> Result<()>) -> Result<()> {
        let part = self.part(rank, bytes)?;
        let slots = self.slots;
        if !slots.brought_second(rank, self.number, self.mark) {
            self.wait(rank, &|| slots.brought_second(rank, self.number, self.mark))?;
        }
        then(part.bytes(range.start, range.end)?)
    }

    /// Waits for the part of `rank`, which must have `bytes`: its first piece, where it is long.
    ///
    /// # Errors
    /// As [`Turn::bring`]; where it has another length.
    #[inline]
    pub fn part(&self, rank: usize, bytes: usize) -> Result<Part<'_>> {
        let part = self.any_part(rank)?;
        if part.brought.len() != bytes { Err(self.wrong_length(rank, part.brought.len(), bytes)) } else { Ok(part) }
    }

    /// Copies the bytes from `from` on that `into` takes of the part of `rank`, which must have `bytes`.
    ///
    /// # Errors
    /// As [`Turn::part`].
    #[inline]
    pub fn take_part(&self, rank: usize, bytes: usize, from: usize, into: &mut [u8]) -> Result<()> {
        if bytes > INLINE_BYTES || !from.is_multiple_of(8) {
            return self.part(rank, bytes)?.copy_range(from, into);
        }
        self.await_part(rank)?;
        self.slots.take_short(rank, self.number, bytes, from / 8, into).map_err(|brought| self.wrong_length(rank, brought, bytes))
    }

    /// Waits for the part of `rank`: its first piece, where it is long.
    #[inline]
    fn await_part(&self, rank: usize) -> Result<()> {
        let slots = self.slots;
        if slots.brought(rank, self.number, self.mark) {
            slots.foresee(rank, self.number);
            return Ok(());
        }
        self.wait(rank, &|| slots.brought(rank, self.number, self.mark))
    }

    /// As [`Turn::part`], of any length.
    #[inline]
    pub fn any_part(&self, rank: usize) -> Result<Part<'_>> {
        self.await_part(rank)?;
        let brought = self.slots.read(rank, self.number, self.room_each()).map_err(|wrong| self.corrupt(&wrong))?;
        Ok(Part { turn: self, rank, brought })
    }

    /// Hears what the first member says with what it brings, where it brings longer bytes or lends them, and this rank has not ended the collective.
    ///
    /// # Errors
    /// As [`Turn::bring`].
    pub fn hear_first(&self) -> Result<()> {
        self.await_part(0)?;
        self.slots.hear(0, self.number);
        Ok(())
    }

    /// Waits until `ready`, which something that `rank` does makes true.
    #[inline(never)]
    fn wait(&self, rank: usize, ready: &dyn Fn() -> bool) -> Result<()> {
        let (comm, world) = (self.comm, self.world);
        if !self.waits {
            return Err(Error::new(crate::consts::MPI_ERR_INTERN, format!("a nonblocking collective would wait for rank {rank}")));
        }
        // What this rank has brought so far, others may sleep for.
        self.wake()?;
        if world.crowded {
            if lines::give_way(comm, &ready, |has_core| has_core(rank))? {
                return Ok(());
            }
        } else if look_quickly(ready) {
            return Ok(());
        }
        let over = |engine: &mut engine::Engine| if ready() { Some(None) } else { engine.context_failed(comm.coll).map(|why| Some(fault(why))) };
        let asked = || {
            request::poll_tasks_asking(false);
            let about = About { context: comm.context, rank: comm.rank, begun: self.begun };
            (!ready()).then(|| mismatch::while_asking(true, || mismatch::ask(world, &about, comm.group.process(rank as u32))).err()).flatten().map(Some)
        };
        self.watching(rank, || request::wait_asking(world, comm.cell, Doing::call(self.function), &mut Pauses::new(world, comm.cell), over, asked))?
            .map_or(Ok(()), Err)
    }

    /// Waits until `ready`, which something that `rank` does makes true, or its process has failed: also where another member has failed before.
    #[cold]
    fn wait_for_one(&self, rank: usize, ready: &dyn Fn() -> bool) -> Result<()> {
        let (comm, world, process) = (self.comm, self.world, self.comm.group.process(rank as u32));
        self.wake()?;
        let over = |engine: &mut engine::Engine| (ready() || engine.lost_among(|other| other == process).is_some()).then_some(());
        self.watching(rank, || request::wait_asking(world, comm.cell, Doing::call(self.function), &mut Pauses::new(world, comm.cell), over, || None))
    }

    /// Waits as `wait` does, woken by `rank`.
    fn watching<T>(&self, rank: usize, wait: impl FnOnce() -> Result<T>) -> Result<T> {
        let (comm, sleepers, me) = (self.comm, self.slots.state(rank), self.rank());
        comm.engine().watch(sleepers, me, Some(comm.group.process(rank as u32)));
        let waited = wait();
        comm.engine().unwatch(sleepers, me);
        waited
    }

    /// Wakes those who sleep until this rank does something.
    #[inline]
    fn wake(&self) -> Result<()> {
        lines::wake(self.comm, self.world, self.own_state())
    }

    fn own_state(&self) -> &'static Line {
        self.slots.state(self.rank())
    }

    /// Ends this rank's part with `result`: it reads nothing any more.
    #[inline]
    pub fn end(&self, result: Result<()>) -> Result<()> {
        self.slots.end(self.number);
        self.comm.calls.went(Way::Slots);
        self.wake()?;
        result
    }

    #[cold]
    fn corrupt(&self, wrong: &Corrupt) -> Box<Error> {
        Error::new(crate::consts::MPI_ERR_INTERN, format!("rank {} has published {:#x} as the place of its part", wrong.rank, wrong.value))
    }

    /// The error of a part that has another length than this rank has it, which all ranks get.
    #[cold]
    pub fn wrong_length(&self, rank: usize, bytes: usize, expected: usize) -> Box<Error> {
        let about = About { context: self.comm.context, rank: self.comm.rank, begun: self.begun };
        mismatch::wrong_length(self.world, Some(&about), rank as u32, bytes as u64, expected)
    }
}

impl Part<'_> {
    /// Where longer bytes begin in their rank's room.
    pub fn offset(&self) -> usize {
        self.brought.offset()
    }

    #[inline]
    pub fn len(&self) -> usize {
        self.brought.len()
    }

    /// Bytes `from..to`, once they are there.
    ///
    /// # Errors
    /// As [`Turn::bring`].
    #[inline]
    pub fn bytes(&self, from: usize, to: usize) -> Result<&[u8]> {
        if self.brought.ready() < to {
            self.turn.wait(self.rank, &|| self.brought.ready() >= to)?;
        }
        // SAFETY: they are ready; the turn ends after the part.
        Ok(unsafe { self.brought.bytes(self.turn.room, self.rank, from, to) })
    }

    /// All of it, to `into`.
    ///
    /// # Errors
    /// As [`Turn::bring`].
    #[inline]
    pub fn copy_to(&self, into: &mut [u8]) -> Result<()> {
        self.copy_range(0, into)
    }

    /// The bytes from `from` on that `into` takes.
    ///
    /// # Errors
    /// As [`Turn::bring`].
    #[inline]
    pub fn copy_range(&self, from: usize, into: &mut [u8]) -> Result<()> {
        let mut at = 0;
        while at < into.len() {
            let end = into.len().min(((from + at) / PIECE_BYTES + 1) * PIECE_BYTES - from);
            take_brought(&mut into[at..end], self.bytes(from + at, from + end)?);
            at = end;
        }
        Ok(())
    }
}
