//! What ranks ask of each other where the origin cannot do it alone: requests and answers, as messages in a context of the window's own.
//!
//! A request is eight words, the runs that it is about, and its data. Requests of one rank to another are answered in order. Long transfers are cut into
//! many, so that neither side needs memory by their length.

use super::elements::Change;
use super::runs::Run;
use super::target::Target;
use super::{Window, lock};
use crate::comm::Comm;
use crate::consts::*;
use crate::error::{Error, Result};
use crate::group::Group;
use crate::handle::Status;
use crate::op::Basic;
use crate::p2p::check_outcome;
use crate::world::{self, World, fault};
use engine::{Buffer, Cell, Context, ContextIndex, Doing, Engine, Mode, Pattern, RequestId, Senders};
use std::collections::BTreeMap;
use std::future::{Future, poll_fn};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::task::Poll;

/// Requests have this tag; answers have the one that their request names.
pub(super) const REQUEST_TAG: i32 = 0;
/// Bytes of data in a request or an answer, and runs in a request.
const DATA_BYTES: usize = 32 << 10;
pub(super) const RUNS_MAX: usize = 512;
pub(super) const HEAD_WORDS: usize = 8;
/// Bytes of the longest request.
pub(super) const REQUEST_BYTES_MAX: usize = 8 * (HEAD_WORDS + RUNS_MAX * Run::WORDS) + 2 * DATA_BYTES;
/// Calls that a target has answered, or not yet: past that a call waits until half of them are over.
const FLIGHTS_MAX: usize = 1024;
/// Bytes of requests that may be on their way; past that a call waits until some have left.
const LEAVING_BYTES_MAX: usize = 4 << 20;

/// What a request asks for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u64)]
pub(super) enum Code {
    /// No answer.
    Put = 1,
    /// The answer is the data.
    Get = 2,
    /// The answer is what was there, if a tag is named.
    Change = 3,
    /// The answer, a word, says that all requests before it have been done, and the first error among them.
    Confirm = 4,
    /// The answer, a word, comes when the lock is granted.
    Lock = 5,
    /// As [`Code::Confirm`]; the lock is given back.
    Unlock = 6,
}

impl Code {
    pub fn from_word(word: u64) -> Option<Code> {
        [Code::Put, Code::Get, Code::Change, Code::Confirm, Code::Lock, Code::Unlock].into_iter().find(|code| *code as u64 == word)
    }
}

/// The first words of a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Head {
    pub code: Code,
    /// Of the answer; 0 for none.
    pub tag: i32,
    /// Of a [`Code::Change`].
    pub change: u64,
    pub kind: u64,
    pub exclusive: bool,
    pub runs: usize,
}

impl Head {
    fn new(code: Code, tag: i32) -> Head {
        Head { code, tag, change: 0, kind: 0, exclusive: false, runs: 0 }
    }

    fn to_words(self) -> [u64; HEAD_WORDS] {
        [self.code as u64, self.tag as u64, self.change, self.kind, self.exclusive as u64, self.runs as u64, 0, 0]
    }

    pub fn parse(words: &[u64]) -> Option<Head> {
        let &[code, tag, change, kind, exclusive, runs, 0, 0] = words else { return None };
        let (tag, runs) = (i32::try_from(tag).ok()?, usize::try_from(runs).ok().filter(|runs| *runs <= RUNS_MAX)?);
        Some(Head { code: Code::from_word(code)?, tag, change, kind, exclusive: exclusive == 1, runs })
    }
}

/// What [`Window::ask`] asks for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Ask {
    Put,
    Get,
    Change(Change, Basic),
}

/// Where the requests of a window go and the answers come from.
pub(super) struct Side {
    pub context: Context,
    pub index: ContextIndex,
    serial: AtomicU32,
    leaving: Mutex<Leaving>,
    asked: Mutex<BTreeMap<u32, Asked>>,
    /// Something in `asked` is not over: answers are to come, or targets have not confirmed what they were asked for. Changed with `asked` held.
    open: AtomicBool,
}

/// Requests that have not left: the engine reads them.
#[derive(Default)]
struct Leaving {
    messages: Vec<(RequestId, Vec<u8>)>,
    bytes: usize,
}

/// What one target has been asked for.
#[derive(Default)]
struct Asked {
    flights: Vec<Arc<Flight>>,
    /// Requests without an answer, and how many of them it has said to have done.
    asked: u64,
    confirmed: u64,
}

/// Answers of one call that are still to come, straight into the program's memory.
pub struct Flight {
    /// Each with the bytes that it must have.
    answers: Mutex<Vec<(RequestId, usize)>>,
    error: Mutex<Option<Box<Error>>>,
}

/// Who sends in the context of a window's messages.
struct Ranks(Arc<Group>);

impl Senders for Ranks {
    fn process(&self, pattern: Pattern) -> Option<u32> {
        (pattern.source < self.0.size()).then(|| self.0.process(pattern.source))
    }

    fn contains(&self, process: u32) -> bool {
        self.0.rank_of(process).is_some()
    }

    fn together(&self) -> bool {
        false
    }
}

impl Side {
    pub fn open(comm: &Comm) -> Result<Side> {
        let context = comm.companion().of_first_vci();
        let mut engine = world::get()?.engine().lock();
        let index = engine.open(context);
        engine.expect(index, || Arc::new(Ranks(comm.group.clone())));
        Ok(Side { context, index, serial: AtomicU32::new(0), leaving: Mutex::default(), asked: Mutex::default(), open: AtomicBool::new(false) })
    }

    /// These ranks have done as many requests without an answer as stand beside them; other threads may have sent more meanwhile.
    fn confirm(&self, done: Vec<(u32, u64)>) {
        let mut asked = lock(&self.asked);
        for (target, done) in done {
            let of_target = asked.entry(target).or_default();
            of_target.confirmed = of_target.confirmed.max(done);
        }
        let over = |of_target: &Asked| of_target.flights.is_empty() && of_target.confirmed == of_target.asked;
        self.open.store(!asked.values().all(over), Ordering::Relaxed);
    }

    /// Whether messages of this window may not have been answered or confirmed.
    #[inline]
    pub fn has_open(&self) -> bool {
        self.open.load(Ordering::Relaxed)
    }

    /// A tag for an answer, used again after 2^30 others.
    fn tag(&self) -> i32 {
        1 + (self.serial.fetch_add(1, Ordering::Relaxed) % (1 << 30)) as i32
    }
}

impl Leaving {
    /// Forgets what has left.
    fn reap(&mut self, engine: &mut Engine) {
        let mut left = 0;
        self.messages.retain(|(id, message)| {
            let leaves = engine.take(*id).is_none() && engine.knows(*id);
            left += if leaves { 0 } else { message.len() };
            leaves
        });
        self.bytes -= left;
    }
}

/// What of a call is still under way when it returns.
pub(super) type Rest = Option<Arc<Flight>>;

impl Flight {
    fn new() -> Arc<Flight> {
        Arc::new(Flight { answers: Mutex::default(), error: Mutex::default() })
    }

    /// Takes the answers that have come.
    fn reap(&self, engine: &mut Engine) {
        let mut answers = lock(&self.answers);
        answers.retain(|(id, bytes)| {
            let Some(outcome) = engine.take(*id) else { return engine.knows(*id) };
            let ended = check_outcome(&outcome).and_then(|()| match outcome.bytes as usize {
                found if found == *bytes => Ok(()),
                _ => Err(Error::new(MPI_ERR_RMA_RANGE, "the target has no memory there: it is outside of the window, or not attached")),
            });
            if let Err(error) = ended {
                lock(&self.error).get_or_insert(error);
            }
            false
        });
    }

    /// Looks whether all answers have come. An error is told once.
    fn look(&self, engine: &mut Engine) -> Option<Result<()>> {
        self.reap(engine);
        if !lock(&self.answers).is_empty() {
            return None;
        }
        Some(lock(&self.error).take().map_or(Ok(()), Err))
    }

    /// Whether there is nothing more to wait for or to tell.
    fn is_over(&self) -> bool {
        lock(&self.answers).is_empty() && lock(&self.error).is_none()
    }

    /// The end of the call, for its request.
    pub fn landed(self: Arc<Flight>) -> impl Future<Output = Result<Status>> + Send {
        poll_fn(move |_| match world::get() {
            Ok(world) => self.look(&mut world.engine().lock()).map_or(Poll::Pending, |ended| Poll::Ready(ended.map(|()| Status::EMPTY))),
            Err(error) => Poll::Ready(Err(error)),
        })
    }

    /// Nobody waits for it any more: the program's memory must not be touched from now on.
    fn abandon(&self, world: &World) {
        for (id, _) in lock(&self.answers).drain(..) {
            let _ = world.engine().lock().cancel(id);
            let _ =
                engine::wait(
                    world.engine(),
                    world.board(),
                    Doing::call("a failed one-sided call"),
                    |e| if e.knows(id) { e.take(id).map(drop) } else { Some(()) },
                );
        }
    }
}

fn bytes_of(words: &[u64]) -> impl Iterator<Item = u8> + '_ {
    words.iter().flat_map(|word| word.to_ne_bytes())
}

impl Window {
    fn side(&self) -> Result<&Side> {
        self.messages.as_ref().ok_or_else(|| Error::new(MPI_ERR_INTERN, "this window needs no messages"))
    }

    fn cell(&self) -> Result<&'static Cell<Engine>> {
        Ok(world::get()?.engine())
    }

    fn pattern(&self, rank: u32, tag: i32) -> Pattern {
        Pattern { source: rank, tag }
    }

    /// Sends a request. Whether it has left decides when its memory goes.
    fn send(&self, engine: &mut Engine, rank: u32, message: Vec<u8>, at_once: bool) -> Result<()> {
        if let Some(why) = self.failed(engine) {
            return Err(why);
        }
        let side = self.side()?;
        let to = engine::Target { process: self.comm.group.process(rank), context: side.context, source: self.comm.rank, tag: REQUEST_TAG };
        // SAFETY: the message is kept until it has left.
        let buffer = unsafe { Buffer::contiguous(message.as_ptr().cast_mut(), message.len()) };
        let sent =
            if at_once { engine.without_coalescing(|engine| engine.send(&to, &buffer, Mode::Standard)) } else { engine.send(&to, &buffer, Mode::Standard) };
        if let Some(id) = sent.map_err(fault)? {
            let mut leaving = lock(&side.leaving);
            leaving.bytes += message.len();
            leaving.messages.push((id, message));
        }
        Ok(())
    }

    /// Waits while too many requests have not left.
    fn make_room(&self, function: &'static str) -> Result<()> {
        let side = self.side()?;
        if lock(&side.leaving).messages.is_empty() {
            return Ok(());
        }
        self.wait(self.cell()?, function, |engine| {
            let mut leaving = lock(&side.leaving);
            leaving.reap(engine);
            (leaving.bytes < LEAVING_BYTES_MAX).then_some(Ok(()))
        })
    }

    /// Waits while too many calls are on their way to `rank`. Errors are kept for whoever waits for all.
    fn await_some(&self, function: &'static str, rank: u32) -> Result<()> {
        let side = self.side()?;
        if lock(&side.asked).get(&rank).is_none_or(|of_target| of_target.flights.len() < FLIGHTS_MAX) {
            return Ok(());
        }
        self.wait(self.cell()?, function, |engine| {
            let mut asked = lock(&side.asked);
            let of_target = asked.entry(rank).or_default();
            // Answers come in order: the newest of the older half says it for all before it.
            if let Some(at) = of_target.flights.len().checked_sub(FLIGHTS_MAX / 2) {
                of_target.flights[at].reap(engine);
                if !lock(&of_target.flights[at].answers).is_empty() {
                    return None;
                }
            }
            of_target.flights.iter().for_each(|flight| flight.reap(engine));
            // Of those that failed one tells it.
            let mut failed = false;
            of_target.flights.retain(|flight| !flight.is_over() && (!lock(&flight.answers).is_empty() || !std::mem::replace(&mut failed, true)));
            Some(Ok(()))
        })
    }

    /// Asks the target to put, get or change elements. `origin` is what goes there, `result` what comes from there; gives what is still to come.
    pub(super) fn ask(&self, function: &'static str, target: &Target, ask: Ask, origin: Option<&Buffer>, result: Option<&Buffer>) -> Result<Rest> {
        self.finish_requests(function, Some(target.rank))?;
        let side = self.side()?;
        self.await_some(function, target.rank)?;
        let flight = result.map(|_| Flight::new());
        let asked = self.ask_in_parts(function, target, ask, origin, result.zip(flight.as_deref()));
        if let (Err(_), Some(flight)) = (&asked, &flight) {
            flight.abandon(world::get()?);
        }
        // Told last: another thread that waits for all would take a call for ended that has asked for nothing yet.
        let mut all = lock(&side.asked);
        let of_target = all.entry(target.rank).or_default();
        match &flight {
            None => of_target.asked += 1,
            Some(flight) => of_target.flights.push(flight.clone()),
        }
        side.open.store(true, Ordering::Relaxed);
        drop(all);
        asked.map(|()| flight)
    }

    fn ask_in_parts(&self, function: &'static str, target: &Target, ask: Ask, origin: Option<&Buffer>, result: Option<(&Buffer, &Flight)>) -> Result<()> {
        let (side, cell) = (self.side()?, self.cell()?);
        let (element, factor) = match ask {
            Ask::Put => (1, 1),
            Ask::Get => (1, 0),
            Ask::Change(change, kind) => (kind.size_bytes(), change.origin_bytes(kind.size_bytes()) / kind.size_bytes()),
        };
        let mut offset = 0;
        while offset < target.bytes {
            let wanted = (DATA_BYTES - DATA_BYTES % element).min(target.bytes - offset);
            let (runs, bytes) = match ask {
                Ask::Change(..) => target.place.elements(offset, wanted, element, RUNS_MAX),
                _ => target.place.runs(offset, wanted, RUNS_MAX),
            };
            let tag = if result.is_some() { side.tag() } else { 0 };
            let mut head = match ask {
                Ask::Put => Head::new(Code::Put, tag),
                Ask::Get => Head::new(Code::Get, tag),
                Ask::Change(change, kind) => Head { change: change.to_word(), kind: kind as u64, ..Head::new(Code::Change, tag) },
            };
            head.runs = runs.len();
            let mut message: Vec<u8> = bytes_of(&head.to_words()).collect();
            runs.iter().for_each(|run| message.extend(bytes_of(&run.to_words())));
            if let Some(origin) = origin.filter(|_| factor > 0) {
                message.extend(origin.part(offset * factor, bytes * factor).to_vec());
            }
            self.make_room(function)?;
            let mut engine = cell.lock();
            if let Some((result, flight)) = result {
                let id = engine.receive(side.index, self.pattern(target.rank, tag), &result.part(offset, bytes)).map_err(fault)?;
                lock(&flight.answers).push((id, bytes));
            }
            self.send(&mut engine, target.rank, message, result.is_some())?;
            offset += bytes;
        }
        Ok(())
    }

    /// Asks for an answer of one word, and waits for it: the class of an error, or 0.
    fn ask_words(&self, function: &'static str, ranks: &[u32], head: impl Fn(i32) -> Head) -> Result<i32> {
        let (side, world) = (self.side()?, world::get()?);
        let mut words = vec![0u64; ranks.len()];
        let flight = Flight::new();
        let start = words.as_mut_ptr();
        let asked = ranks.iter().enumerate().try_for_each(|(at, rank)| {
            let tag = side.tag();
            let mut engine = world.engine().lock();
            // SAFETY: a word of its own for each, which lives until the flight has landed or is abandoned.
            let place = unsafe { Buffer::contiguous(start.wrapping_add(at).cast(), 8) };
            let id = engine.receive(side.index, self.pattern(*rank, tag), &place).map_err(fault)?;
            lock(&flight.answers).push((id, 8));
            self.send(&mut engine, *rank, bytes_of(&head(tag).to_words()).collect(), true)
        });
        let landed = asked.and_then(|()| self.wait(world.engine(), function, |engine| flight.look(engine)));
        if landed.is_err() {
            flight.abandon(world);
        }
        landed?;
        // SAFETY: the vector's own words, written through the pointer that it gave.
        Ok((0..words.len()).map(|at| unsafe { start.add(at).read() }).find(|class| *class != 0).unwrap_or(0) as i32)
    }

    /// Waits until all answers of `rank`, or of all, have come.
    pub(super) fn land(&self, function: &'static str, rank: Option<u32>) -> Result<()> {
        let Some(side) = &self.messages else { return Ok(()) };
        self.end_requests(function, rank)?;
        if !side.has_open() {
            return Ok(());
        }
        let chosen = |target: u32| rank.is_none_or(|rank| rank == target);
        let flights: Vec<Arc<Flight>> =
            lock(&side.asked).iter().filter(|(target, _)| chosen(**target)).flat_map(|(_, of_target)| of_target.flights.iter().cloned()).collect();
        let mut first = None;
        for flight in &flights {
            if let Err(error) = self.wait(self.cell()?, function, |engine| flight.look(engine)) {
                flight.abandon(world::get()?);
                first.get_or_insert(error);
            }
        }
        if !flights.is_empty() {
            // Another thread may wait for the same ones, or have begun others.
            lock(&side.asked).values_mut().for_each(|of_target| of_target.flights.retain(|flight| !flight.is_over()));
        }
        first.map_or(Ok(()), Err)
    }

    /// Waits until `rank`, or all, have done all that this process has asked for.
    pub(super) fn confirm(&self, function: &'static str, rank: Option<u32>) -> Result<()> {
        let Some(side) = &self.messages else { return Ok(()) };
        let landed = self.land(function, rank);
        if !side.has_open() {
            return landed;
        }
        let open: Vec<(u32, u64)> = {
            let asked = lock(&side.asked);
            let chosen = asked.iter().filter(|(target, of_target)| rank.is_none_or(|rank| rank == **target) && of_target.asked > of_target.confirmed);
            chosen.map(|(target, of_target)| (*target, of_target.asked)).collect()
        };
        if open.is_empty() {
            side.confirm(open);
            return landed;
        }
        let ranks: Vec<u32> = open.iter().map(|(target, _)| *target).collect();
        let class = self.ask_words(function, &ranks, |tag| Head::new(Code::Confirm, tag))?;
        side.confirm(open);
        landed.and(self.confirmed(class))
    }

    pub(super) fn confirmed(&self, class: i32) -> Result<()> {
        match class {
            0 => Ok(()),
            MPI_ERR_RMA_RANGE => Err(Error::new(class, "a target has no memory where it was to be changed: outside of the window, or not attached")),
            _ => Err(Error::new(class, "a target could not do what it was asked for")),
        }
    }

    /// Asks `rank` for its lock, and waits for it.
    pub(super) fn ask_lock(&self, function: &'static str, rank: u32, exclusive: bool) -> Result<()> {
        self.ask_words(function, &[rank], |tag| Head { exclusive, ..Head::new(Code::Lock, tag) }).map(drop)
    }

    /// Gives the locks of `ranks` back, after all that they were asked for.
    pub(super) fn give_back(&self, function: &'static str, ranks: &[u32]) -> Result<()> {
        let Some(side) = &self.messages else { return Ok(()) };
        let mut landed = Ok(());
        for rank in ranks {
            landed = landed.and(self.land(function, Some(*rank)));
        }
        let before: Vec<(u32, u64)> = {
            let asked = lock(&side.asked);
            ranks.iter().filter_map(|rank| Some((*rank, asked.get(rank)?.asked))).collect()
        };
        let class = self.ask_words(function, ranks, |tag| Head::new(Code::Unlock, tag))?;
        side.confirm(before);
        landed.and(self.confirmed(class))
    }

    /// Before the window goes: nothing of it is in the engine any more.
    pub(super) fn close_side(&self, function: &'static str) -> Result<()> {
        let side = self.side()?;
        self.wait(self.cell()?, function, |engine| {
            let mut leaving = lock(&side.leaving);
            leaving.reap(engine);
            leaving.messages.is_empty().then_some(Ok(()))
        })?;
        self.cell()?.lock().close(side.index);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn heads_survive_and_others_are_refused() {
        for code in 1..=6 {
            let head = Head { change: 0x3c, kind: 7, exclusive: code == 5, runs: 3, ..Head::new(Code::from_word(code).unwrap(), 9) };
            assert_eq!(Head::parse(&head.to_words()), Some(head));
        }
        let good = Head::new(Code::Put, 0).to_words();
        for (at, value) in [(0, 0), (0, 7), (1, u64::MAX), (5, RUNS_MAX as u64 + 1), (6, 1), (7, 1)] {
            let mut words = good;
            words[at] = value;
            assert_eq!(Head::parse(&words), None, "word {at} is {value}");
        }
        assert_eq!(Head::parse(&good[..7]), None);
    }
}
