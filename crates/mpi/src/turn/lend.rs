//! Long collectives whose members lend what they bring: others read it where it lies, in one copy, and a member leaves its turn only when all who read
//! its memory have done so. Whether each can read the memory of all others, the members find out when they get [room](crate::lines).

use super::Turn;
use crate::call::Kind;
use crate::comm::Comm;
use crate::consts::{MPI_ERR_BUFFER, MPI_ERR_OTHER, MPI_ERR_PROC_ABORTED};
use crate::error::{Error, Result};
use crate::lines;
use crate::world::{self, fault};
use engine::slots::{Lent, Readers};
use engine::{FabricError, Took};
use std::cell::Cell;
use std::sync::Mutex;
use std::sync::atomic::AtomicU64;
use std::time::{Duration, Instant};

/// Bytes that are read and combined at once, at most: with what they are combined with they stay in a second-level cache.
pub const STEP_BYTES: usize = 256 << 10;
/// Bytes that one system call reads at most: others may need the engine.
const CALL_BYTES_MAX: usize = 1 << 20;
/// Shortest bytes that are lent: a system call alone takes as long as a copy of less.
pub const BYTES_MIN: usize = 16 << 10;
/// Longest that one member lends, bytes.
pub const BYTES_MAX: usize = 1 << 30;

/// What `WHIMBREL_COLLECTIVE_LENDING` says.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Use {
    /// Where timed copies say that it is faster.
    Timed,
    Always,
    Never,
}

impl Use {
    pub fn of(word: &str) -> Use {
        match word {
            "always" => Use::Always,
            "off" => Use::Never,
            _ => Use::Timed,
        }
    }
}

/// What a collective reads at once where its members lend.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Reads {
    pub kind: Kind,
    /// Bytes that a member reads of another one, or writes to it.
    pub bytes: usize,
    /// Bytes that a member lends.
    pub lent: usize,
    /// All members read what the first one brings, however it goes.
    pub in_step: bool,
}

impl Reads {
    /// What `kind` reads among `ranks`, where its members lend: `bytes` are those of a block, or of a vector. `None`: they do not.
    pub fn of(kind: Kind, bytes: usize, ranks: usize) -> Option<Reads> {
        let slice = bytes / ranks;
        let (bytes, lent, in_step) = match kind {
            Kind::Gather | Kind::Scatter => (bytes, bytes.saturating_mul(ranks), false),
            Kind::Allgather => (bytes, bytes, true),
            Kind::Alltoall => (bytes, bytes.saturating_mul(ranks), true),
            Kind::Allreduce if ranks == 2 => (bytes, bytes, true),
            Kind::Allreduce | Kind::ReduceScatterBlock => (slice, bytes, true),
            // Who gets nothing reads nothing.
            Kind::ReduceScatter => (slice, bytes, false),
            _ => return None,
        };
        Some(Reads { kind, bytes, lent, in_step })
    }

    /// Whether members may lend. `otherwise`: how it goes where they do not.
    pub fn may(&self, otherwise: Otherwise) -> bool {
        (BYTES_MIN..=BYTES_MAX).contains(&self.bytes) && self.lent <= BYTES_MAX && (self.in_step || otherwise == Otherwise::Messages)
    }
}

/// How a collective goes where its members do not lend.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Otherwise {
    /// Through room, in two copies.
    TwoCopies,
    /// By messages, which the system copies, too.
    Messages,
}

/// Calls of a trial. The first ones map pages and fill caches, and do not count.
const TRIAL: u32 = 10;
const UNCOUNTED: u32 = 2;
/// Calls that count after which a trial is over where the other way has taken less than two thirds of the shortest of them.
const ENOUGH: u32 = 2;
/// Calls that go the faster way, before the other one is tried again: where that took half as long again, so many times more.
const PERIOD: u32 = 512;
const RARE: u32 = 8;
/// Kinds of collectives whose members are in step, and those in which each decides by itself; and classes of lengths: each is twice as long as the one before.
const KINDS: usize = 5;
const LENGTHS: usize = 16;

/// One kind and class of lengths: which of two ways its calls go. All members take the way that the first one has said in the call before; that one times its
/// calls, of which the shortest of the last few count: whatever disturbs a call makes it longer.
#[derive(Clone, Copy, Debug)]
struct Class {
    /// It has been decided how the first call goes.
    begun: bool,
    lends: bool,
    next: bool,
    trial: bool,
    calls: u32,
    /// Of the calls that go on now, ns.
    least: u64,
    /// Of the last ones in two copies, and lent.
    took: Took,
}

impl Default for Class {
    fn default() -> Class {
        Class { begun: false, lends: false, next: false, trial: true, calls: 0, least: u64::MAX, took: Took::default() }
    }
}

impl Class {
    /// At the first member, as a call begins: whether the next one is lent.
    fn begin(&mut self) -> bool {
        let length = if self.trial { TRIAL } else { PERIOD * if self.took.are_far_apart() { RARE } else { 1 } };
        self.calls += 1;
        if !self.trial && self.calls + TRIAL == length {
            self.least = u64::MAX;
        }
        let other = self.took.of(!self.lends);
        let slower = self.trial && other > 0 && self.calls > UNCOUNTED + ENOUGH && self.least / 3 > other / 2;
        if self.calls < length && !slower {
            return self.next;
        }
        (self.next, self.trial) = self.took.next(self.lends, self.least, self.trial);
        (self.calls, self.least) = (0, u64::MAX);
        self.next
    }

    /// As a call ends that took `ns`, or went elsewhere than at the first member.
    fn end(&mut self, ns: Option<u64>, next: bool) {
        if let Some(ns) = ns.filter(|_| self.lends == next && (!self.trial || self.calls > UNCOUNTED)) {
            self.least = self.least.min(ns.max(1));
        }
        (self.lends, self.next) = (next, next);
    }

    /// Whether this call is lent; the first one where `first` says so.
    fn lends(&mut self, first: bool) -> bool {
        if !self.begun {
            (self.begun, self.lends, self.next) = (true, first, first);
        }
        self.lends
    }
}

/// Of a communicator whose members can read each other's memory: when they lend.
#[derive(Debug)]
pub struct Lending {
    always: bool,
    /// Members can write to each other's memory, too.
    writes: bool,
    classes: Mutex<[[Class; LENGTHS]; KINDS]>,
}

impl Lending {
    fn class<T>(&self, reads: &Reads, then: impl FnOnce(&mut Class) -> T) -> T {
        let kind = match reads.kind {
            Kind::Allgather => 0,
            Kind::Alltoall => 1,
            Kind::Allreduce => 2,
            _ => 3,
        };
        self.class_of(kind, reads.bytes, then)
    }

    fn class_of<T>(&self, kind: usize, bytes: usize, then: impl FnOnce(&mut Class) -> T) -> T {
        let length = (bytes / BYTES_MIN).max(1).ilog2() as usize;
        then(&mut self.classes.lock().unwrap_or_else(|e| e.into_inner())[kind][length.min(LENGTHS - 1)])
    }

    /// This rank's part of a collective in which each member decides by itself whether it lends, and says so with what it brings: `part` is told. The longest
    /// that it may lend has `bytes`; its own calls are timed.
    ///
    /// # Errors
    /// Those of `part`.
    pub fn alone(&self, bytes: usize, part: impl FnOnce(bool) -> Result<()>) -> Result<()> {
        const ALONE: usize = KINDS - 1;
        if self.always || bytes < BYTES_MIN {
            return part(self.always);
        }
        let start_ns = trace::now_ns();
        let (lends, next) = self.class_of(ALONE, bytes, |class| (class.lends(false), class.begin()));
        let done = part(lends);
        let took_ns = trace::now_ns() - start_ns;
        self.class_of(ALONE, bytes, |class| class.end(done.is_ok().then_some(took_ns), next));
        done
    }

    /// Whether members lend now: all say the same. `first`: where nothing is known yet.
    pub fn lends(&self, reads: &Reads, otherwise: Otherwise, first: bool) -> bool {
        (self.writes || reads.kind != Kind::Gather)
            && reads.may(otherwise)
            && (self.always || otherwise == Otherwise::Messages || self.class(reads, |class| class.lends(first)))
    }

    /// This rank's part of a collective, `part`, that goes in two copies or is lent, as [`Lending::lends`] has said. Its members [hear](Turn::hear_first) of the
    /// first one which way the next one like this goes.
    ///
    /// # Errors
    /// Those of `part`; then the next one goes as the first of all, on all members that have got an error.
    pub fn timed(&self, turn: &Turn, reads: &Reads, otherwise: Otherwise, part: impl FnOnce() -> Result<()>) -> Result<()> {
        if self.always || otherwise == Otherwise::Messages || !reads.may(otherwise) {
            return part();
        }
        let (first, start_ns) = (turn.rank() == 0, trace::now_ns());
        if first {
            turn.slots.say_next(self.class(reads, Class::begin) as u64);
        }
        let done = part();
        self.class(reads, |class| match &done {
            Ok(()) => class.end(first.then(|| trace::now_ns() - start_ns), turn.slots.heard() & 1 == 1),
            Err(_) => *class = Class::default(),
        });
        done
    }
}

/// What the members of a communicator have found out together.
pub(crate) struct Agreed {
    /// There are fewer cores than they are.
    pub crowded: bool,
    /// Where they lend. `None`: they do not, since one of them cannot read another's memory.
    pub lending: Option<Lending>,
}

/// Finds out with the other members of `comm`, each of which is `ready` or not, what they all have to know. `exchange` gives all members a few words of each, and
/// waits for them. `None`: one of them is not ready.
///
/// # Errors
/// Those of `exchange`.
pub(crate) fn agree(
    comm: &Comm,
    lending: Use,
    ready: bool,
    mut exchange: impl FnMut(&[u64]) -> Result<Vec<[u64; engine::LINE_WORDS]>>,
) -> Result<Option<Agreed>> {
    let others = || (0..comm.size()).filter(|rank| *rank != comm.rank);
    let reads = lending != Use::Never && others().all(|rank| comm.engine().may_read(comm.group.process(rank)));
    // A word of each member for each other one to write to.
    let words: Vec<AtomicU64> = (0..comm.size()).map(|_| AtomicU64::new(0)).collect();
    let crowded = world::get()?.crowded;
    let all = exchange(&[reads as u64, words.as_ptr() as u64, (lending == Use::Always) as u64, crowded as u64, ready as u64])?;
    let [reads, always, crowded, ready] = [0, 2, 3, 4].map(|at| all.iter().all(|theirs| theirs[at] == 1));
    if !(ready && reads) {
        return Ok(ready.then_some(Agreed { crowded, lending: None }));
    }
    let word = 1u64;
    let write = |rank: u32| {
        let address = all[rank as usize][1] + comm.rank as u64 * size_of::<AtomicU64>() as u64;
        // SAFETY: that word is for this member, and stays until all have written.
        unsafe { comm.engine().write_to(comm.group.process(rank), address, std::ptr::from_ref(&word).cast(), size_of::<u64>()) }.is_ok()
    };
    let all = exchange(&[others().all(write) as u64])?;
    let writes = all.iter().all(|theirs| theirs[0] == 1);
    Ok(Some(Agreed { crowded, lending: Some(Lending { always, writes, classes: Mutex::default() }) }))
}

/// A turn in which members lend.
pub struct Loan<'t> {
    turn: &'t Turn<'t>,
    lent: Cell<bool>,
}

impl<'t> Loan<'t> {
    /// All of this rank's part of a `turn`, `part`; before this returns, all `readers` have read what it has lent. Where something has gone wrong, they learn
    /// that what they have read may have changed.
    ///
    /// # Errors
    /// Those of `part`; of processes that fail.
    pub fn run(turn: &'t Turn<'t>, readers: Readers, part: impl FnOnce(&Loan<'t>) -> Result<()>) -> Result<()> {
        let loan = Loan { turn, lent: Cell::new(false) };
        let result = part(&loan).and_then(|()| loan.take_back(readers));
        if let Err(error) = &result {
            loan.withdraw(error.class == MPI_ERR_PROC_ABORTED);
        }
        result
    }

    /// As [`Loan::run`], of a collective in which all members lend and read.
    ///
    /// # Errors
    /// As there.
    pub fn run_in_step(turn: &'t Turn<'t>, part: impl FnOnce(&Loan<'t>) -> Result<()>) -> Result<()> {
        Loan::run(turn, Readers::All, |loan| part(loan).and_then(|()| turn.hear_first()))
    }

    /// All of this rank's part of a turn in which each member lends what it likes of what it brings; before this returns, all have ended the turn that it has
    /// [lent](Loan::has_lent) something to, also where `part` has failed: what is wrong between two members does not keep a third one from reading.
    ///
    /// # Errors
    /// As [`Loan::run`].
    pub fn run_alone(turn: &'t Turn<'t>, part: impl FnOnce(&Loan<'t>) -> Result<()>, borrows: impl Fn(usize) -> bool) -> Result<()> {
        let loan = Loan { turn, lent: Cell::new(false) };
        let result = part(&loan);
        turn.slots.end(turn.number);
        if !loan.lent.get() {
            return result;
        }
        let ended = loan.await_end(borrows);
        if let Err(error) = &ended {
            loan.withdraw(error.class == MPI_ERR_PROC_ABORTED);
        }
        result.and(ended)
    }

    /// Says that what this rank has just brought tells where it lends more.
    pub fn has_lent(&self) {
        self.lent.set(true);
    }

    /// What `rank` lends, once its part is there. `None`: it has brought that part in another way.
    ///
    /// # Errors
    /// As [`Turn::bring`]; where it lends another length than `bytes`, or has withdrawn it.
    pub fn address(&self, rank: usize, bytes: usize) -> Result<Option<u64>> {
        let turn = self.turn;
        turn.await_part(rank)?;
        if turn.slots.lent(rank, turn.number).is_err() {
            return Ok(None);
        }
        self.lent_by(rank, bytes).map(|lent| Some(lent.address))
    }

    /// Lends `bytes` at `start`, and says that a second part will be at `second`.
    ///
    /// # Errors
    /// As [`Turn::bring`].
    pub fn lend(&self, start: *const u8, bytes: usize, second: *const u8) -> Result<()> {
        let turn = self.turn;
        turn.take(0, Readers::All)?;
        turn.slots.lend(turn.number, turn.mark, Lent { bytes, address: start as u64, second_address: second as u64 });
        self.lent.set(true);
        self.wake()
    }

    /// Wakes those that sleep until this rank does something: copies take long, and they could go on.
    fn wake(&self) -> Result<()> {
        lines::wake(self.turn.comm, self.turn.world, self.turn.own_state())
    }

    /// Lends the second part: its bytes are there.
    ///
    /// # Errors
    /// Of the engine.
    pub fn lend_second(&self) -> Result<()> {
        self.turn.slots.publish_second(self.turn.number, self.turn.mark);
        self.wake()
    }

    /// Reads from place `from` on of the `bytes` that `rank` lends, as many as `into` takes.
    ///
    /// # Errors
    /// As [`Turn::bring`]; where it lends another length; `MPI_ERR_BUFFER` where there is no memory; where it has withdrawn them.
    pub fn read(&self, rank: usize, bytes: usize, from: usize, into: &mut [u8]) -> Result<()> {
        let lent = self.lent_by(rank, bytes)?;
        self.read_at(rank, lent.address + from as u64, into)
    }

    /// As [`Loan::read`], of the second part, once that is there.
    ///
    /// # Errors
    /// As there.
    pub fn read_second(&self, rank: usize, bytes: usize, from: usize, into: &mut [u8]) -> Result<()> {
        let (turn, lent) = (self.turn, self.lent_by(rank, bytes)?);
        let there = || turn.slots.brought_second(rank, turn.number, turn.mark) || turn.slots.withdrawn(rank, turn.number, turn.mark);
        if !there() {
            turn.wait(rank, &there)?;
        }
        self.read_at(rank, lent.second_address + from as u64, into)
    }

    /// Writes `data` to place `from` on of the `bytes` that `rank` lends to be written to, [as far as it does](Loan::await_writers).
    ///
    /// # Errors
    /// As [`Loan::read`].
    pub fn write(&self, rank: usize, bytes: usize, from: usize, data: &[u8]) -> Result<()> {
        let (turn, lent) = (self.turn, self.lent_by(rank, bytes)?);
        self.lend(std::ptr::null(), data.len(), std::ptr::null())?;
        if !turn.slots.may_write(rank, turn.number, turn.mark) {
            return Err(self.withdrawn(rank));
        }
        let (process, mut address) = (turn.comm.group.process(rank as u32), lent.address + from as u64);
        for piece in data.chunks(CALL_BYTES_MAX) {
            // SAFETY: `rank` has offered that memory, and waits until this rank says below that it has written, or withdraws its line.
            unsafe { turn.comm.engine().write_to(process, address, piece.as_ptr(), piece.len()) }.map_err(|why| self.unread(rank, why))?;
            address += piece.len() as u64;
        }
        self.lend_second()
    }

    /// Waits until all other ranks have [written](Loan::write) `bytes` to what this one lends. Where that goes wrong, withdraws it, and waits until none
    /// is writing there.
    ///
    /// # Errors
    /// Of ranks that fail, or could not write.
    pub fn await_writers(&self, bytes: usize) -> Result<()> {
        let turn = self.turn;
        let (slots, number, mark) = (turn.slots, turn.number, turn.mark);
        let others = || (0..turn.ranks()).filter(|rank| *rank != turn.rank());
        let has_written = |rank| slots.brought(rank, number, mark) && slots.brought_second(rank, number, mark);
        let is_over = |rank| {
            slots.brought(rank, number, mark) && (slots.brought_second(rank, number, mark) || slots.withdrawn(rank, number, mark))
                || slots.has_ended(rank, number)
        };
        let written = others().try_for_each(|rank| {
            if !is_over(rank) {
                turn.wait(rank, &|| is_over(rank))?;
            }
            if !has_written(rank) {
                return Err(self.withdrawn(rank));
            }
            self.lent_by(rank, bytes).map(|_| ())
        });
        if written.is_err() {
            slots.withdraw(number, mark, written.as_ref().is_err_and(|error| error.class == MPI_ERR_PROC_ABORTED));
            let writing = |rank: &usize| slots.brought(*rank, number, mark) && !is_over(*rank);
            others().filter(writing).try_for_each(|rank| turn.wait_for_one(rank, &|| is_over(rank)))?;
        }
        written
    }

    /// What `rank` lends, which must have `bytes`.
    fn lent_by(&self, rank: usize, bytes: usize) -> Result<Lent> {
        let turn = self.turn;
        turn.await_part(rank)?;
        match turn.slots.lent(rank, turn.number) {
            Ok(lent) if lent.bytes == bytes => Ok(lent),
            Ok(_) if turn.slots.withdrawn(rank, turn.number, turn.mark) => Err(self.withdrawn(rank)),
            Ok(Lent { bytes: other, .. }) | Err(other) => Err(turn.wrong_length(rank, other, bytes)),
        }
    }

    /// Reads what `rank`, whose part is there, lends at `address`, as that says.
    ///
    /// # Errors
    /// As [`Loan::read`].
    pub fn read_at(&self, rank: usize, mut address: u64, into: &mut [u8]) -> Result<()> {
        let (turn, comm) = (self.turn, self.turn.comm);
        let process = comm.group.process(rank as u32);
        // The engine is let go of in between: other threads may need it.
        for piece in into.chunks_mut(CALL_BYTES_MAX) {
            // SAFETY: the piece is writable.
            unsafe { comm.engine().read_from(process, address, piece.as_mut_ptr(), piece.len()) }.map_err(|why| self.unread(rank, why))?;
            address += piece.len() as u64;
        }
        if turn.slots.withdrawn(rank, turn.number, turn.mark) { Err(self.withdrawn(rank)) } else { Ok(()) }
    }

    #[cold]
    fn unread(&self, rank: usize, why: engine::Fault) -> Box<Error> {
        if self.turn.slots.withdrawn(rank, self.turn.number, self.turn.mark) {
            return self.withdrawn(rank);
        }
        if why.is_bad_address() {
            return Error::new(MPI_ERR_BUFFER, format!("rank {rank} lends memory that cannot be read, or the buffer here cannot be written: {why}"));
        }
        if matches!(why, engine::Fault::Fabric(FabricError::Peer { .. })) { self.failed(rank, || fault(why)) } else { fault(why) }
    }

    /// Why a member has failed, once this process has found that out by itself: what it does next may depend on who it was. `otherwise`, where it does not
    /// in twice the time in which it should.
    #[cold]
    fn failed(&self, rank: usize, otherwise: impl FnOnce() -> Box<Error>) -> Box<Error> {
        let (start, within_ms) = (Instant::now(), 2 * params::PEER_TIMEOUT.value().unwrap_or_default() as u64);
        self.turn.wait(rank, &|| start.elapsed() > Duration::from_millis(within_ms)).err().unwrap_or_else(otherwise)
    }

    /// The error of all that read what `rank` has withdrawn, or wait for it.
    #[cold]
    fn withdrawn(&self, rank: usize) -> Box<Error> {
        let other = || Error::new(MPI_ERR_OTHER, format!("rank {rank} has ended the collective with an error while others needed its memory"));
        let (slots, number, mark) = (self.turn.slots, self.turn.number, self.turn.mark);
        if slots.withdrawn_since_one_failed(rank, number, mark) { self.failed(rank, other) } else { other() }
    }

    /// Withdraws what this rank has lent, or was to lend. `failed`: since a member has failed.
    #[cold]
    fn withdraw(&self, failed: bool) {
        let (slots, number, mark) = (self.turn.slots, self.turn.number, self.turn.mark);
        if !self.lent.get() {
            if slots.try_take(number, 0, 0, Readers::All).is_err() {
                return;
            }
            slots.lend(number, mark, Lent { bytes: 0, address: 0, second_address: 0 });
        }
        slots.withdraw(number, mark, failed);
    }

    /// Says how far this rank has read what the other one of two lends.
    pub fn say_read(&self, bytes: usize) {
        self.turn.slots.say_streamed(self.turn.number, bytes);
    }

    /// Waits until the other one of two has read so many bytes of what this rank lends.
    ///
    /// # Errors
    /// As [`Turn::bring`]; where it has ended before.
    pub fn await_read(&self, bytes: usize) -> Result<()> {
        let (turn, other) = (self.turn, 1 - self.turn.rank());
        let has_read = || turn.slots.streamed(other, turn.number) >= bytes;
        let over = || has_read() || turn.slots.has_ended(other, turn.number);
        if !over() {
            turn.wait(other, &over)?;
        }
        if has_read() { Ok(()) } else { Err(self.withdrawn(other)) }
    }

    /// This rank has read all that it needs, and waits until `readers` have read what it has lent.
    fn take_back(&self, readers: Readers) -> Result<()> {
        let turn = self.turn;
        turn.slots.end(turn.number);
        if !self.lent.get() {
            return Ok(());
        }
        self.await_end(|rank| match readers {
            Readers::All => true,
            Readers::One(one) => rank == one,
            Readers::Nobody => false,
        })
    }

    /// Waits until those have ended the turn that `borrows` says.
    fn await_end(&self, borrows: impl Fn(usize) -> bool) -> Result<()> {
        let turn = self.turn;
        for rank in (0..turn.ranks()).filter(|rank| *rank != turn.rank() && borrows(*rank)) {
            let has_ended = || turn.slots.has_ended(rank, turn.number);
            if !has_ended() {
                turn.wait(rank, &has_ended)?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Calls of which those in two copies and those that are lent take so long, ns; which of them were lent.
    fn calls(class: &mut Class, many: usize, took: [u64; 2]) -> Vec<bool> {
        (0..many)
            .map(|_| {
                let (lends, next) = (class.lends, class.begin());
                class.end(Some(took[lends as usize]), next);
                lends
            })
            .collect()
    }

    #[test]
    fn members_lend_where_that_is_the_faster_way() {
        for (took, faster) in [([900, 1000], false), ([1000, 900], true)] {
            let mut class = Class::default();
            let trials = calls(&mut class, 2 * TRIAL as usize, took);
            assert!(trials[..TRIAL as usize].iter().all(|lends| !lends) && trials[TRIAL as usize..].iter().all(|lends| *lends));
            let period = calls(&mut class, PERIOD as usize, took);
            assert!(period.iter().all(|lends| *lends == faster));
            // The other way is tried again, and taken if it has become the faster one.
            assert!(calls(&mut class, TRIAL as usize, [1000, 1000]).iter().all(|lends| *lends != faster));
            let [two, lent] = took;
            assert_eq!(class.lends, if faster { 1000 > lent } else { two > 1000 });
        }
    }

    #[test]
    fn the_first_trial_is_that_of_the_way_that_the_caller_expects_to_be_faster() {
        let mut class = Class::default();
        assert!(class.lends(true) && class.lends(false));
        let trials = calls(&mut class, 2 * TRIAL as usize, [900, 1000]);
        assert!(trials[..TRIAL as usize].iter().all(|lends| *lends) && trials[TRIAL as usize..].iter().all(|lends| !lends));
        assert!(calls(&mut class, 3, [900, 1000]).iter().all(|lends| !lends));
    }

    #[test]
    fn a_way_that_takes_much_longer_is_tried_rarely() {
        let mut class = Class::default();
        let lent = calls(&mut class, (TRIAL + RARE * PERIOD) as usize, [1000, 2000]).iter().filter(|lends| **lends).count();
        assert_eq!(lent, (UNCOUNTED + ENOUGH + 1) as usize, "and its trial ends as soon as that is known");
        let mut class = Class::default();
        let lent = calls(&mut class, (2 * TRIAL) as usize, [1000, 1400]).iter().filter(|lends| **lends).count();
        assert_eq!(lent, TRIAL as usize);
    }

    #[test]
    fn what_members_take_in_step_is_lent_before_it_goes_by_messages() {
        let of = |kind, bytes| Reads::of(kind, bytes, 4).unwrap();
        assert!(of(Kind::Scatter, BYTES_MIN).may(Otherwise::Messages) && !of(Kind::Scatter, BYTES_MIN).may(Otherwise::TwoCopies));
        assert!(of(Kind::Allgather, BYTES_MIN).may(Otherwise::TwoCopies) && !of(Kind::Allgather, BYTES_MIN - 1).may(Otherwise::Messages));
        assert!(of(Kind::Allreduce, 4 * BYTES_MIN).may(Otherwise::TwoCopies) && !of(Kind::Allreduce, 3 * BYTES_MIN).may(Otherwise::TwoCopies));
        assert!(!of(Kind::Alltoall, BYTES_MAX / 2).may(Otherwise::Messages) && Reads::of(Kind::Scan, 1 << 20, 2).is_none());
    }
}
