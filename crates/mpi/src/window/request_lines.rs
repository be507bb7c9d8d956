//! Short calls that the target does, where it waits in MPI itself: a request in a line that both processes map ([`engine::Asker`]) and its answer take less
//! time than a copy by the system, and than a message. Only memory that this process cannot load from is reached so.
//!
//! Data that has no place in a line lies in a room, which both processes map as well: one side fills rooms while the other one empties them. That takes less
//! time than the system's copy of as many bytes, which one side makes alone, and for every piece of 16 KiB there is a request of its own.
//!
//! Nothing depends on the target's help. The origin goes on after it has posted a request, and looks for the answer when it has to (a flush, an unlock, a
//! fence). What the target has not taken by then, nor within [`ANSWER_NS`] (longer, where it slept and is woken), the origin takes back, and it goes the
//! general way: a put or get by a copy that the origin makes alone. A target that has not answered is not asked by the next calls: [`CALLS_UNASKED`].
//!
//! Order: requests of one process to another are done in order, and those that were taken back, which are the youngest, go the general way in order. A call
//! that goes by messages waits until no request to its target is pending, and no request is posted while something was asked by messages that has not been
//! confirmed. So accumulates are done in the order of their calls, and all of them by the target with its engine held, whichever way they came.

use super::call::{Accumulate, Direction};
use super::elements::{self, Change};
use super::memory::HERE;
use super::message::Ask;
use super::runs::Place;
use super::short::{is_address, is_alike, piece};
use super::target::{Remote, Target};
use super::{SERVED, Window};
use crate::collective::Data;
use crate::comm::Comm;
use crate::consts::*;
use crate::counts::{REQUESTS_POSTED, REQUESTS_WITHDRAWN};
use crate::datatype;
use crate::error::Result;
use crate::exchange::allgather_bytes;
use crate::op::{self, Basic, Predefined};
use crate::world::{self, fault};
use engine::order::{Level, Ordered};
use engine::{Answerer, Asker, Buffer, Engine, Line, LivenessWatch, Looker, REQUEST_WORDS, REQUESTS_PENDING_MAX, copy_from_end};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

/// Bytes of data, of the origin or of the answer.
const DATA_BYTES: usize = 32;
/// Words of a request: what is asked for, the window's context, the place in bytes from the window's begin; then the data. An answer has the class of an error
/// in the first word, or 0, and the data that was there at the same place.
const DATA_AT: usize = 3;
const _: () = assert!(8 * (REQUEST_WORDS - DATA_AT) == DATA_BYTES);
/// Longest room of a request. Rooms follow each other in a part of the asker's segment, which is longer than the caches of a core where there are few processes:
/// a line that is written again while its reader's cache has it costs several times as much. Who has wanted so many
/// gets them: to make them takes as long as so many pieces lose without.
const ROOM_BYTES: usize = 16 << 10;
const ROOMS_BYTES: [usize; 2] = [512 << 10, 2 << 20];
const ROOMS_BYTES_IN_ALL: usize = 32 << 20;
const PIECES_BEFORE_ROOMS: usize = 256;
const _: () = assert!(ROOMS_BYTES[0] >= 2 * ROOM_BYTES * REQUESTS_PENDING_MAX);
/// How long an origin waits for an answer: about as long as a copy by the system takes.
const ANSWER_NS: u64 = 3_000;
/// The same where the target slept in a call: it is woken, and looks for more once it has answered.
const ANSWER_WOKEN_NS: u64 = 100_000;
/// Looks for an answer between readings of the clock.
const LOOKS_PER_READING: u32 = 32;
/// Calls before a target that has not answered is tried again, where it says that it waits in a call, and where it does not.
const CALLS_UNASKED: [u32; 2] = [8, 64];
/// Rounds of answers before other work gets its turn, and looks for further requests after one.
const ROUNDS_MAX: u32 = 64;
const LOOKS_FOR_MORE: u32 = 16;
/// After that long it matters whether those live that are waited for.
const LIVENESS_AFTER_NS: u64 = 1_000_000_000;
/// Processes of a job among which request lines are used: each has lines for all others.
const PROCESSES_MAX: u32 = 64;
/// Bytes of a page, of which the place of lines is a multiple: 0 is none.
const NO_LINES: u64 = 0;

type Words = [u64; REQUEST_WORDS];

/// What a request asks for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Wanted {
    Put,
    Get,
    Change(Change, Basic),
}

/// Where the data of a request lies, and that of its answer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Lies {
    InLine,
    /// The place of the rooms in the asker's segment, which byte of them, and whether what was there is wanted, too.
    InRoom(u64, usize, bool),
}

/// What a request says but for its data.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Head {
    wanted: Wanted,
    /// Of the window's messages.
    context: u64,
    at: i64,
    /// Of the target's data.
    bytes: usize,
    lies: Lies,
}

impl Head {
    #[inline]
    fn to_words(self) -> Words {
        let (code, change, kind) = match self.wanted {
            Wanted::Put => (1, 0, 0),
            Wanted::Get => (2, 0, 0),
            Wanted::Change(change, kind) => (3, change.to_word(), kind as u64),
        };
        let what = code | change << 16 | kind << 32;
        match self.lies {
            Lies::InLine => [what | (self.bytes as u64) << 8, self.context, self.at as u64, 0, 0, 0, 0],
            Lies::InRoom(rooms, from, told) => [what | 1 << 48, self.context, self.at as u64, rooms, from as u64, self.bytes as u64, told as u64],
        }
    }

    #[inline]
    fn parse(words: &Words) -> Option<Head> {
        let (code, inside, change, kind) = (words[0] & 0xff, words[0] >> 8 & 0xff, words[0] >> 16 & 0xffff, words[0] >> 32 & 0xffff);
        let (lies, bytes, most) = match words[0] >> 48 {
            0 => (Lies::InLine, inside, DATA_BYTES),
            1 if inside == 0 && words[4] <= (ROOMS_BYTES[1] - ROOM_BYTES) as u64 => {
                (Lies::InRoom(words[3], words[4] as usize, words[6] != 0), words[5], ROOM_BYTES)
            }
            _ => return None,
        };
        let bytes = usize::try_from(bytes).ok().filter(|bytes| (1..=most).contains(bytes))?;
        let wanted = match code {
            1 if change == 0 && kind == 0 => Wanted::Put,
            2 if change == 0 && kind == 0 => Wanted::Get,
            3 => {
                let (change, kind) = (Change::from_word(change)?, *Basic::ALL.get(kind as usize)?);
                let allowed = match change {
                    Change::Operation(op) => op::allowed(op, kind) && bytes.is_multiple_of(kind.bytes()),
                    Change::CompareAndSwap => lies == Lies::InLine && bytes == kind.bytes() && 2 * bytes <= DATA_BYTES,
                };
                (allowed && kind.size_bytes() == kind.bytes()).then_some(Wanted::Change(change, kind))?
            }
            _ => return None,
        };
        Some(Head { wanted, context: words[1], at: words[2] as i64, bytes, lies })
    }

    /// Bytes of the origin's data.
    fn given_bytes(self) -> usize {
        match self.wanted {
            Wanted::Put => self.bytes,
            Wanted::Get => 0,
            Wanted::Change(change, kind) => self.bytes / kind.bytes() * change.origin_bytes(kind.bytes()),
        }
    }
}

#[inline]
fn bytes_of(words: &Words) -> [u8; DATA_BYTES] {
    let mut bytes = [0; DATA_BYTES];
    bytes.chunks_exact_mut(8).zip(&words[DATA_AT..]).for_each(|(bytes, word)| bytes.copy_from_slice(&word.to_ne_bytes()));
    bytes
}

#[inline]
fn set_bytes(words: &mut Words, bytes: &[u8; DATA_BYTES]) {
    words[DATA_AT..].iter_mut().zip(bytes.chunks_exact(8)).for_each(|(word, bytes)| *word = u64::from_ne_bytes(bytes.try_into().expect("eight bytes")));
}

/// Where the data of an answer goes: an address of the program's, and how many bytes.
#[derive(Clone, Copy)]
struct Landing {
    start: *mut u8,
    bytes: usize,
}

// SAFETY: memory that the program has handed over until the call is flushed.
unsafe impl Send for Landing {}

impl Landing {
    const NONE: Landing = Landing { start: std::ptr::null_mut(), bytes: 0 };
}

/// What this process has posted, and what is to be done when the answer comes.
#[derive(Clone, Copy)]
struct Posted {
    landing: Landing,
    /// Where in the rooms the data lies, if it does.
    room: Option<usize>,
    /// The window's.
    context: u64,
}

/// The rooms of all lines between two processes.
#[derive(Clone, Copy)]
struct RoomsOf {
    /// In the asker's segment.
    place: u64,
    lines: &'static [Line],
}

impl RoomsOf {
    /// The rooms at `place` of the segment of process `asker`; `None` where there are none.
    #[cold]
    fn find(engine: &mut Engine, asker: u32, place: u64) -> Option<RoomsOf> {
        let lines = engine.lines(asker, place, rooms_bytes(engine) / size_of::<Line>()).ok()??;
        Some(RoomsOf { place, lines })
    }

    /// [`ROOM_BYTES`] from byte `from` on, which belong to the side whose turn it is.
    #[inline]
    fn room(&self, from: usize) -> Option<*mut u8> {
        (from + ROOM_BYTES <= size_of_val(self.lines)).then(|| self.lines.as_ptr().cast::<u8>().cast_mut().wrapping_add(from))
    }
}

/// Bytes of the rooms of one process for another one.
fn rooms_bytes(engine: &Engine) -> usize {
    (ROOMS_BYTES_IN_ALL / engine.processes() as usize).clamp(ROOMS_BYTES[0], ROOMS_BYTES[1]) / 4096 * 4096
}

/// A process that this one asks.
struct Peer {
    process: u32,
    asker: Asker<'static>,
    looker: Looker,
    /// Used in turn.
    requests: [Posted; REQUESTS_PENDING_MAX],
    /// How many rooms have been wanted; the rooms, and where the next one begins there.
    wanted_rooms: usize,
    rooms: Option<RoomsOf>,
    next_room: usize,
    posted: usize,
    answered: usize,
    /// The last request has been answered; if not, calls since then that have gone another way.
    answers: bool,
    unasked: u32,
}

impl Peer {
    /// The room that begins at this byte.
    #[inline]
    fn room(&self, from: Option<usize>) -> Option<*mut u8> {
        self.rooms.as_ref()?.room(from?)
    }

    /// Whether it is likely to answer soon.
    #[inline]
    fn is_near(&mut self) -> bool {
        if self.answers {
            return true;
        }
        let asks = self.unasked >= CALLS_UNASKED[if self.looker.looks() { 0 } else { 1 }];
        self.unasked = if asks { 0 } else { self.unasked + 1 };
        asks
    }

    /// Takes in the answers that have come; whether none is missing.
    #[inline]
    fn take_in(&mut self, wrong: &mut Vec<(u64, i32)>) -> bool {
        while let Some(words) = self.asker.answer() {
            let at = self.answered % REQUESTS_PENDING_MAX;
            let Posted { landing, room, context } = self.requests[at];
            self.answered += 1;
            self.answers = true;
            ANSWERS.store(ANSWERS.load(Ordering::Relaxed).wrapping_add(1), Ordering::Relaxed);
            if words[0] != 0 {
                wrong.push((context, words[0] as i32));
            } else if landing.bytes > 0 {
                let data = bytes_of(&words);
                // SAFETY: memory of the program, which it has handed over for as many bytes, at most as the answer has.
                unsafe {
                    match self.room(room) {
                        Some(room) => copy_from_end(room, landing.start, landing.bytes),
                        None => std::ptr::copy_nonoverlapping(data.as_ptr(), landing.start, landing.bytes),
                    }
                }
            }
        }
        self.asker.pending() == 0
    }
}

/// A request that the target has not taken.
struct Withdrawn {
    process: u32,
    words: Words,
    landing: Landing,
    /// The origin's, of a request that is not in its line.
    data: Vec<u8>,
}

/// What this process is asked.
struct Own {
    place: u64,
    /// As a set: who has lines here and may have posted.
    askers: &'static Line,
    answerers: Vec<Answerer<'static>>,
    /// Of each asker.
    rooms: Vec<Option<RoomsOf>>,
    /// What was there before, until it is in a room.
    found: Vec<u8>,
}

struct Lines {
    own: Option<Own>,
    peers: Vec<Peer>,
    /// Errors of calls that have been answered, by the window's context.
    wrong: Vec<(u64, i32)>,
}

static LINES: Ordered<Lines> = Ordered::new(Level::Table, Lines { own: None, peers: Vec::new(), wrong: Vec::new() });
/// Requests are pending, or errors have not been told: changed with [`LINES`] held.
static PENDING: AtomicBool = AtomicBool::new(false);
/// Answers that have been taken in.
static ANSWERS: AtomicUsize = AtomicUsize::new(0);

/// The place of this process' lines in its segment, which are made when they are first wanted; [`NO_LINES`] where there are none.
fn own_place() -> Result<u64> {
    let world = world::get()?;
    let wanted = match params::REQUEST_LINES.value().map_err(|error| world::failed(engine::process::Failed::Parameter(error)))? {
        "always" => true,
        "off" => false,
        _ => !world.crowded,
    };
    let mut engine = world.engine().lock();
    let (me, processes) = (engine.me(), engine.processes());
    if !wanted || !engine.has_memory() || !(2..=PROCESSES_MAX).contains(&processes) {
        return Ok(NO_LINES);
    }
    if let Some(own) = &LINES.lock().own {
        return Ok(own.place);
    }
    let count = 1 + processes as usize * REQUESTS_PENDING_MAX;
    // Without memory for them they are not used.
    let Ok(place) = engine.share(count) else { return Ok(NO_LINES) };
    let Some(lines) = engine.lines(me, place, count).map_err(fault)? else { return Ok(NO_LINES) };
    let answerers = lines[1..].chunks_exact(REQUESTS_PENDING_MAX).map(Answerer::new).collect();
    LINES.lock().own = Some(Own { place, askers: &lines[0], answerers, rooms: vec![None; processes as usize], found: Vec::new() });
    let _ = crate::lines::ANSWER.set(answer_askers);
    Ok(place)
}

/// Makes lines of this process, and finds those of the others of a window that shares memory; whether there are any. Collective.
pub(super) fn reach_all(function: &'static str, comm: &Comm) -> Result<bool> {
    let all = allgather_bytes(function, comm, &own_place()?.to_ne_bytes())?;
    let mut any = false;
    for (rank, place) in (0..).zip(all.chunks_exact(8)) {
        any |= reach(comm.group.process(rank), u64::from_ne_bytes(place.try_into().expect("eight bytes")))?;
    }
    Ok(any)
}

/// From now on this process may ask `process`, whose lines lie at `place` of its segment: not where that has not handed its segment out yet.
fn reach(process: u32, place: u64) -> Result<bool> {
    let mut engine = world::get()?.engine().lock();
    let (me, processes) = (engine.me(), engine.processes());
    if place == NO_LINES || process == me || me >= processes {
        return Ok(false);
    }
    if LINES.lock().peers.iter().any(|peer| peer.process == process) {
        return Ok(true);
    }
    let count = 1 + processes as usize * REQUESTS_PENDING_MAX;
    let Some(lines) = engine.lines(process, place, count).map_err(fault)? else { return Ok(false) };
    let Some(looker) = engine.looker(process) else { return Ok(false) };
    lines[0].add(me as usize);
    let asker = Asker::new(&lines[1 + me as usize * REQUESTS_PENDING_MAX..][..REQUESTS_PENDING_MAX]);
    let requests = [Posted { landing: Landing::NONE, room: None, context: 0 }; REQUESTS_PENDING_MAX];
    let (wanted_rooms, rooms, next_room) = (0, None, 0);
    let peer = Peer { process, asker, looker, requests, wanted_rooms, rooms, next_room, posted: 0, answered: 0, answers: false, unasked: CALLS_UNASKED[0] };
    LINES.lock().peers.push(peer);
    Ok(true)
}

/// Whether there are rooms for requests to `process`, which are made once enough have been wanted; `pieces` more are.
#[inline]
fn has_rooms(process: u32, pieces: usize) -> bool {
    let (before, now) = {
        let lines = &mut *LINES.lock();
        let Some(peer) = lines.peers.iter_mut().find(|peer| peer.process == process) else { return false };
        if peer.rooms.is_some() {
            return true;
        }
        let before = peer.wanted_rooms;
        peer.wanted_rooms = before.saturating_add(pieces);
        (before, peer.wanted_rooms)
    };
    before < PIECES_BEFORE_ROOMS && now >= PIECES_BEFORE_ROOMS && make_rooms(process).is_some()
}

#[cold]
fn make_rooms(process: u32) -> Option<()> {
    let mut engine = world::get().ok()?.engine().lock();
    let lines = rooms_bytes(&engine) / size_of::<Line>();
    let (me, place) = (engine.me(), engine.share(lines).ok()?);
    let rooms = RoomsOf::find(&mut engine, me, place);
    LINES.lock().peers.iter_mut().find(|peer| peer.process == process)?.rooms = rooms;
    rooms.map(drop)
}

/// The room of a request of process `asker`.
#[inline]
fn room_of(engine: &mut Engine, asker: u32, place: u64, from: usize) -> Option<*mut u8> {
    let known = LINES.lock().own.as_ref().and_then(|own| *own.rooms.get(asker as usize)?).filter(|rooms| rooms.place == place);
    if let Some(rooms) = known {
        return rooms.room(from);
    }
    let rooms = RoomsOf::find(engine, asker, place)?;
    *LINES.lock().own.as_mut()?.rooms.get_mut(asker as usize)? = Some(rooms);
    rooms.room(from)
}

/// Answers what has been asked; whether anything was. The engine is held: nobody else changes elements of windows that this process answers for.
pub(super) fn answer_all(engine: &mut Engine) -> bool {
    let (mut moved, mut looks, mut rounds) = (false, 0, 0);
    while rounds < ROUNDS_MAX {
        if answer_round(engine) {
            (moved, looks, rounds) = (true, 0, rounds + 1);
        } else if !moved || looks == LOOKS_FOR_MORE {
            break;
        } else {
            // Who has been answered is likely to ask again.
            looks += 1;
            std::hint::spin_loop();
        }
    }
    moved
}

/// Answers one request of each process that asks; whether any does.
#[inline]
fn answer_round(engine: &mut Engine) -> bool {
    let mut moved = false;
    let mut bits = LINES.lock().own.as_ref().map_or(0, |own| own.askers.word(0));
    while bits != 0 {
        let asker = bits.trailing_zeros() as usize;
        bits &= bits - 1;
        let Some(mut words) = LINES.lock().own.as_ref().and_then(|own| own.answerers.get(asker)?.take()) else { continue };
        words[0] = answer(engine, asker as u32, &mut words) as u64;
        if let Some(own) = &mut LINES.lock().own {
            own.answerers[asker].answer(&words);
        }
        moved = true;
    }
    moved
}

/// Does what a request of process `asker` asks for, and leaves what was there in it; gives the class of an error, or 0.
fn answer(engine: &mut Engine, asker: u32, words: &mut Words) -> i32 {
    let Some(head) = Head::parse(words) else { return MPI_ERR_INTERN };
    let windows = SERVED.lock();
    let asked = windows.iter().find(|window| window.messages.as_ref().is_some_and(|side| side.context.raw() == head.context));
    let Some(start) = asked.and_then(|window| window.piece(head.at, head.bytes)) else { return MPI_ERR_RMA_RANGE };
    let (room, told) = match head.lies {
        Lies::InLine => (None, true),
        Lies::InRoom(place, from, told) => match room_of(engine, asker, place, from) {
            Some(room) => (Some(room), told),
            None => return MPI_ERR_INTERN,
        },
    };
    let (given, mut found) = (bytes_of(words), [0; DATA_BYTES]);
    // SAFETY: as many bytes of the window, as was found just now. All that changes its elements comes here or to `Window::serve`, with the engine held. A room
    // has as many bytes, and is this side's until it has answered.
    unsafe {
        match (head.wanted, room) {
            (Wanted::Put, Some(room)) => copy_from_end(room, start, head.bytes),
            (Wanted::Put, None) => std::ptr::copy_nonoverlapping(given.as_ptr(), start, head.bytes),
            (Wanted::Get, _) => std::ptr::copy_nonoverlapping(start, room.unwrap_or(found.as_mut_ptr()), head.bytes),
            (Wanted::Change(Change::Operation(op), kind), Some(room)) => change_from_room(start, head.bytes, (op, kind), room, told),
            (Wanted::Change(Change::Operation(op), kind), None) => {
                elements::at_once(start, op, kind, &given[..head.given_bytes()], &mut found[..head.bytes]);
            }
            (Wanted::Change(Change::CompareAndSwap, kind), _) => {
                elements::alone(start, Change::CompareAndSwap, kind, &given[..2 * head.bytes], &mut found[..head.bytes]);
            }
        }
    }
    if room.is_none() {
        set_bytes(words, &found);
    }
    0
}

/// Changes elements by others in a room, and leaves there what was there before, if that is `wanted`.
///
/// # Safety
/// The elements are as many bytes of a window of this process, and nobody else changes them, or what is in the room, meanwhile.
unsafe fn change_from_room(start: *mut u8, bytes: usize, (op, kind): (Predefined, Basic), room: *mut u8, wanted: bool) {
    // SAFETY: the caller's promise.
    let given = || unsafe { std::slice::from_raw_parts(room, if op == Predefined::NoOp { 0 } else { bytes }) };
    if !wanted {
        // SAFETY: the caller's promise.
        return unsafe { elements::at_once(start, op, kind, given(), &mut []) };
    }
    let mut found = LINES.lock().own.as_mut().map(|own| std::mem::take(&mut own.found)).unwrap_or_default();
    found.resize(ROOM_BYTES, 0);
    // SAFETY: the caller's promise; a room has no more bytes.
    unsafe {
        elements::at_once(start, op, kind, given(), &mut found[..bytes]);
        std::ptr::copy_nonoverlapping(found.as_ptr(), room, bytes);
    }
    if let Some(own) = &mut LINES.lock().own {
        own.found = found;
    }
}

/// Takes in what the processes that `which` chooses have answered; whether nothing of them is pending.
#[inline]
fn take_in(which: impl Fn(u32) -> bool) -> bool {
    let lines = &mut *LINES.lock();
    let mut all = true;
    for peer in lines.peers.iter_mut().filter(|peer| peer.asker.pending() > 0) {
        let none = peer.take_in(&mut lines.wrong);
        all &= none || !which(peer.process);
    }
    if all && lines.wrong.is_empty() && lines.peers.iter().all(|peer| peer.asker.pending() == 0) {
        PENDING.store(false, Ordering::Relaxed);
    }
    all
}

/// Whether another request to `process` can be posted. `None`: that process has no lines, or is not likely to answer soon.
#[inline]
fn has_room(process: u32) -> Option<bool> {
    let lines = &mut *LINES.lock();
    let peer = lines.peers.iter_mut().find(|peer| peer.process == process)?;
    if peer.asker.pending() == REQUESTS_PENDING_MAX {
        peer.take_in(&mut lines.wrong);
        return Some(peer.asker.pending() < REQUESTS_PENDING_MAX);
    }
    peer.is_near().then_some(true)
}

/// Wakes those that have been asked and sleep; whether any did.
fn wake_asked() -> bool {
    let mut woken = false;
    for peer in LINES.lock().peers.iter().filter(|peer| peer.asker.pending() > 0) {
        woken |= peer.looker.wake();
    }
    woken
}

/// Answers a request of each process that asks. For who looks for something else, again and again, and holds no engine.
#[inline]
fn answer_askers() {
    if is_asked()
        && let Ok(world) = world::get()
    {
        answer_round(&mut world.engine().lock());
    }
}

/// Whether somebody asks this process.
#[inline]
fn is_asked() -> bool {
    let lines = LINES.lock();
    let Some(own) = &lines.own else { return false };
    let bits = own.askers.word(0);
    bits != 0 && own.answerers.iter().enumerate().any(|(at, answerer)| bits >> at & 1 != 0 && answerer.is_asked())
}

/// Waits for answers until `ready` takes in those that it wants, as long as one comes sooner than by the general way; whether it has.
fn await_answers(ready: impl Fn() -> bool) -> Result<bool> {
    let (mut looks, mut since_ns, mut answers, mut limit_ns) = (0u32, None, 0, ANSWER_NS);
    loop {
        if ready() {
            return Ok(true);
        }
        looks += 1;
        // Two that ask each other would wait in vain.
        answer_askers();
        if looks.is_multiple_of(LOOKS_PER_READING) {
            if wake_asked() {
                limit_ns = ANSWER_WOKEN_NS;
            }
            let now_ns = trace::now_ns();
            if std::mem::replace(&mut answers, ANSWERS.load(Ordering::Relaxed)) != answers {
                since_ns = None;
            }
            if now_ns > *since_ns.get_or_insert(now_ns) + limit_ns {
                return Ok(false);
            }
        }
        std::hint::spin_loop();
    }
}

impl Peer {
    /// Takes the youngest request back, if it has not been taken.
    fn take_back(&mut self) -> Option<Withdrawn> {
        let words = self.asker.withdraw()?;
        self.posted -= 1;
        let at = self.posted % REQUESTS_PENDING_MAX;
        let data = match (Head::parse(&words), self.room(self.requests[at].room)) {
            // SAFETY: a room has as many bytes, and is this side's again.
            (Some(head), Some(room)) => unsafe { std::slice::from_raw_parts(room, head.given_bytes()) }.to_vec(),
            _ => Vec::new(),
        };
        Some(Withdrawn { process: self.process, words, landing: self.requests[at].landing, data })
    }
}

/// Takes back what has not been taken, oldest first.
fn withdraw(which: impl Fn(u32) -> bool) -> Vec<Withdrawn> {
    let mut all = Vec::new();
    for peer in LINES.lock().peers.iter_mut().filter(|peer| which(peer.process)) {
        let first = all.len();
        all.extend(std::iter::from_fn(|| peer.take_back()));
        if all.len() > first {
            (peer.answers, peer.unasked) = (false, 0);
        }
        all[first..].reverse();
    }
    REQUESTS_WITHDRAWN.fetch_add(all.len() as u64, Ordering::Relaxed);
    all
}

impl Window {
    /// The bytes of this process' part, where they are all inside.
    fn piece(&self, at: i64, bytes: usize) -> Option<*mut u8> {
        let end = at.checked_add(bytes as i64)?;
        match self.dynamic() {
            true => self.is_attached(at as usize, end as usize).then(|| std::ptr::with_exposed_provenance_mut(at as usize)),
            false => (at >= 0 && end <= self.size_bytes as i64).then(|| (self.base as *mut u8).wrapping_add(at as usize)),
        }
    }

    /// A place at a target that may be accessed now, bytes from the window's begin there.
    #[inline]
    fn place(&self, remote: &Remote, bytes: usize) -> Option<i64> {
        let part = self.memory.part_of(remote.rank)?;
        let state = part.state.load(Ordering::Relaxed);
        let at = if self.dynamic() { remote.displacement } else { remote.displacement.checked_mul(part.unit.into())? };
        let inside = self.dynamic() || (at >= 0 && at as u64 <= part.size.checked_sub(bytes as u64)?);
        (bytes > 0 && inside && state & HERE == 0 && self.epochs.may_access(state)).then_some(at)
    }

    /// Posts a request, unless the target is not likely to answer soon, or other calls have to be over before. `given`: the origin's data, in all no longer than
    /// a room.
    #[inline]
    fn post(&self, rank: i32, wanted: Wanted, at: i64, bytes: usize, given: &[(*const u8, usize)], landing: Landing) -> Option<()> {
        let (world, side) = (world::get().ok()?, self.messages.as_ref()?);
        // One thread would have to wait for the calls that another one has taken back.
        if world.may_have_threads() || side.has_open() {
            return None;
        }
        let process = self.comm.group.process(rank as u32);
        let in_room = bytes > DATA_BYTES;
        if in_room && !has_rooms(process, 1) {
            return None;
        }
        if !has_room(process)? && !await_answers(|| has_room(process) == Some(true)).ok()? {
            return None;
        }
        let mut lines = LINES.lock();
        let lines = &mut *lines;
        let peer = lines.peers.iter_mut().find(|peer| peer.process == process)?;
        let (context, which) = (side.context.raw(), peer.posted % REQUESTS_PENDING_MAX);
        let mut line = [0; DATA_BYTES];
        let (lies, room, mut into) = match &peer.rooms {
            Some(rooms) if in_room => {
                let (from, room) = [peer.next_room, 0].into_iter().find_map(|from| Some((from, rooms.room(from)?)))?;
                peer.next_room = from + bytes.next_multiple_of(size_of::<Line>());
                (Lies::InRoom(rooms.place, from, landing.bytes > 0), Some(from), room)
            }
            _ => (Lies::InLine, None, line.as_mut_ptr()),
        };
        let mut words = Head { wanted, context, at, bytes, lies }.to_words();
        for (start, bytes) in given {
            // SAFETY: the origin's buffers, which are readable; together they have no more than the bytes of a line, or of a room, as the callers see to.
            unsafe { std::ptr::copy_nonoverlapping(*start, into, *bytes) };
            into = into.wrapping_add(*bytes);
        }
        if lies == Lies::InLine {
            set_bytes(&mut words, &line);
        }
        peer.requests[which] = Posted { landing, room, context };
        peer.posted += 1;
        peer.asker.post(&words);
        PENDING.store(true, Ordering::Relaxed);
        REQUESTS_POSTED.store(REQUESTS_POSTED.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
        Some(())
    }

    /// Requests to `rank`, or to all, are over: by their targets, or the general way. What went wrong is told by [`Window::end_requests`].
    ///
    /// # Errors
    /// A process of the window has failed.
    #[inline]
    pub(super) fn finish_requests(&self, function: &'static str, rank: Option<u32>) -> Result<()> {
        match PENDING.load(Ordering::Relaxed) {
            false => Ok(()),
            true => self.finish_pending(function, rank),
        }
    }

    /// Waits for what has been taken, and so is being done. The target may have lost its core meanwhile, or ended.
    fn await_taken(&self, which: impl Fn(u32) -> bool) -> Result<()> {
        let (world, start_ns) = (world::get()?, trace::now_ns());
        let mut liveness = LivenessWatch::new(world.engine());
        while !take_in(&which) {
            engine::yield_core();
            let mut first = world.engine().lock();
            first.progress().map_err(fault)?;
            if trace::now_ns() > start_ns + LIVENESS_AFTER_NS {
                liveness.look(&mut first, None);
            }
            if let Some(why) = self.failed(&first) {
                return Err(why);
            }
        }
        Ok(())
    }

    #[inline(never)]
    fn finish_pending(&self, function: &'static str, rank: Option<u32>) -> Result<()> {
        let asked = rank.map(|rank| self.comm.group.process(rank));
        let which = |process: u32| asked.map_or_else(|| self.comm.group.rank_of(process).is_some(), |asked| asked == process);
        if await_answers(|| take_in(which))? {
            return Ok(());
        }
        let withdrawn = withdraw(which);
        self.await_taken(which)?;
        withdrawn.iter().try_for_each(|request| request.go_on(function))
    }

    /// As [`Window::finish_requests`].
    ///
    /// # Errors
    /// Also those of what was asked: `MPI_ERR_RMA_RANGE`, and what the general way meets.
    #[inline]
    pub(super) fn end_requests(&self, function: &'static str, rank: Option<u32>) -> Result<()> {
        if !PENDING.load(Ordering::Relaxed) {
            return Ok(());
        }
        self.finish_pending(function, rank)?;
        match PENDING.load(Ordering::Relaxed) {
            false => Ok(()),
            true => self.tell_wrong(),
        }
    }

    #[cold]
    fn tell_wrong(&self) -> Result<()> {
        let Some(side) = &self.messages else { return Ok(()) };
        let (context, mut first) = (side.context.raw(), 0);
        LINES.lock().wrong.retain(|(of, class)| {
            if *of == context && first == 0 {
                first = *class;
            }
            *of != context
        });
        self.confirmed(first)
    }
}

impl Withdrawn {
    /// The general way. Errors belong to the window of the call.
    fn go_on(&self, function: &'static str) -> Result<()> {
        let Some(head) = Head::parse(&self.words) else { return Ok(()) };
        let found = SERVED.lock().iter().find(|window| window.messages.as_ref().is_some_and(|side| side.context.raw() == head.context)).cloned();
        let Some(window) = found else { return Ok(()) };
        if let Err(error) = self.go_on_in(&window, function, head) {
            LINES.lock().wrong.push((head.context, error.class));
            PENDING.store(true, Ordering::Relaxed);
        }
        Ok(())
    }

    fn go_on_in(&self, window: &Window, function: &'static str, head: Head) -> Result<()> {
        let Some(rank) = window.comm.group.rank_of(self.process) else { return Ok(()) };
        let mut line = bytes_of(&self.words);
        // What is given is only read.
        let data = if head.lies == Lies::InLine { line.as_mut_ptr() } else { self.data.as_ptr().cast_mut() };
        window.go_generally(function, rank, head.wanted, (head.at, head.bytes), (data, head.given_bytes()), self.landing)
    }
}

impl Window {
    /// The general way of what could be asked for by requests; of `given` bytes, which are only read.
    fn go_generally(
        &self,
        function: &'static str,
        rank: u32,
        wanted: Wanted,
        (at, bytes): (i64, usize),
        (given, given_bytes): (*mut u8, usize),
        landing: Landing,
    ) -> Result<()> {
        let target = Target { rank, place: Place { datatype: datatype::lookup(MPI_BYTE)?, at, count: bytes }, bytes };
        let moved = |start: *mut u8| Data { start: start.cast(), count: bytes as i64, datatype: MPI_BYTE };
        // SAFETY: bytes that the caller leaves alone until this returns, or until the program flushes.
        let origin = unsafe { Buffer::contiguous(given, given_bytes) };
        // SAFETY: memory that the program has handed over until it flushes, which comes after this call.
        let result = (landing.bytes > 0).then(|| unsafe { Buffer::contiguous(landing.start, landing.bytes) });
        match (wanted, &result) {
            (Wanted::Put, _) => self.begin(function, Direction::Put, &origin, &moved(given), &target)?,
            (Wanted::Get, Some(result)) => self.begin(function, Direction::Get, result, &moved(landing.start), &target)?,
            (Wanted::Get, None) => None,
            (Wanted::Change(change, kind), result) => self.ask(function, &target, Ask::Change(change, kind), Some(&origin), result.as_ref())?,
        };
        Ok(())
    }

    /// A call of any length, whose data goes through a line, or through rooms, one after the other. `None` where the target is not likely to do it.
    #[inline]
    fn request(&self, function: &'static str, rank: i32, wanted: Wanted, at: i64, given: (*mut u8, usize), landing: Landing) -> Option<Result<()>> {
        let bytes = given.1.max(landing.bytes);
        if bytes <= ROOM_BYTES {
            let given = [(given.0.cast_const(), given.1)];
            return self.post(rank, wanted, at, bytes, if given[0].1 == 0 { &[] } else { &given }, landing).map(Ok);
        }
        self.stream(function, rank, wanted, at, given, landing)
    }

    #[inline(never)]
    fn stream(&self, function: &'static str, rank: i32, wanted: Wanted, at: i64, given: (*mut u8, usize), landing: Landing) -> Option<Result<()>> {
        let bytes = given.1.max(landing.bytes);
        // An element is never divided.
        let step = match wanted {
            Wanted::Change(_, kind) => ROOM_BYTES / kind.bytes() * kind.bytes(),
            _ => ROOM_BYTES,
        };
        if !has_rooms(self.comm.group.process(rank as u32), bytes.div_ceil(step)) {
            return None;
        }
        let from = |start: *mut u8, had: usize, done: usize| if had == 0 { (start, 0) } else { (start.wrapping_add(done), had - done) };
        for done in (0..bytes).step_by(step) {
            let (at, length) = (at + done as i64, step.min(bytes - done));
            let (mine, rest) = from(given.0, given.1, done);
            let (start, left) = from(landing.start, landing.bytes, done);
            let piece = [(mine.cast_const(), length)];
            let into = Landing { start, bytes: length.min(left) };
            if self.post(rank, wanted, at, length, if rest == 0 { &[] } else { &piece }, into).is_some() {
                continue;
            }
            // The target has stopped answering.
            return (done > 0).then(|| self.go_generally(function, rank as u32, wanted, (at, bytes - done), (mine, rest), Landing { start, bytes: left }));
        }
        Some(Ok(()))
    }
}

/// A put or get: `Some` where the target does it.
pub(super) fn transfer(window: &Window, function: &'static str, direction: Direction, origin: &Data, remote: &Remote) -> Option<Result<()>> {
    if !window.has_request_lines {
        return None;
    }
    let (_, bytes) = piece(remote.count, remote.datatype)?;
    let same = origin.datatype == remote.datatype && origin.count == remote.count;
    if !is_address(origin) || !(same || piece(origin.count, origin.datatype)?.1 == bytes) {
        return None;
    }
    let at = window.place(remote, bytes)?;
    let start = origin.start.cast::<u8>();
    match direction {
        Direction::Put => window.request(function, remote.rank, Wanted::Put, at, (start, bytes), Landing::NONE),
        Direction::Get => window.request(function, remote.rank, Wanted::Get, at, (start, 0), Landing { start, bytes }),
    }
}

/// An accumulate of elements without gaps of one predefined datatype, which all sides name: `Some` where the target does it.
pub(super) fn accumulate(window: &Window, function: &'static str, call: &Accumulate, remote: &Remote) -> Option<Result<()>> {
    if !window.has_request_lines {
        return None;
    }
    let (datatype, bytes) = piece(remote.count, remote.datatype)?;
    let (kind, op) = (datatype.basic()?, Predefined::of(call.op.0)?);
    let changes = op != Predefined::NoOp;
    if !op::allowed(op, kind) || (changes && !is_alike(&call.origin, remote)) || !(changes || call.result.is_some()) {
        return None;
    }
    if call.result.as_ref().is_some_and(|result| !is_alike(result, remote)) {
        return None;
    }
    let at = window.place(remote, bytes)?;
    let landing = call.result.map_or(Landing::NONE, |result| Landing { start: result.start.cast(), bytes });
    let given = (call.origin.start.cast::<u8>(), if changes { bytes } else { 0 });
    window.request(function, remote.rank, Wanted::Change(Change::Operation(op), kind), at, given, landing)
}

/// A compare and swap: `Some` where the target does it.
pub(super) fn compare_and_swap(window: &Window, origin: &Data, compare: &Data, result: &Data, remote: &Remote, kind: Basic) -> Option<()> {
    let bytes = kind.bytes();
    if !window.has_request_lines || 2 * bytes > DATA_BYTES || ![origin, compare, result].into_iter().all(is_address) {
        return None;
    }
    let at = window.place(remote, bytes)?;
    let given = [compare, origin].map(|data| (data.start.cast_const().cast::<u8>(), bytes));
    let landing = Landing { start: result.start.cast(), bytes };
    window.post(remote.rank, Wanted::Change(Change::CompareAndSwap, kind), at, bytes, &given, landing)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_survive_and_others_are_refused() {
        let sums = |kind| Wanted::Change(Change::Operation(Predefined::Sum), kind);
        let cases = [
            (Wanted::Put, Lies::InLine, DATA_BYTES),
            (Wanted::Get, Lies::InLine, DATA_BYTES),
            (sums(Basic::Float64), Lies::InLine, DATA_BYTES),
            (Wanted::Change(Change::Operation(Predefined::NoOp), Basic::Int64), Lies::InLine, DATA_BYTES),
            (Wanted::Change(Change::CompareAndSwap, Basic::Uint64), Lies::InLine, 8),
            (Wanted::Put, Lies::InRoom(4096, 448, false), ROOM_BYTES),
            (Wanted::Get, Lies::InRoom(0, 0, true), ROOM_BYTES),
            (sums(Basic::Float64), Lies::InRoom(8192, ROOMS_BYTES[1] - ROOM_BYTES, true), ROOM_BYTES),
        ];
        for (wanted, lies, most) in cases {
            let head = Head { wanted, context: 1 << 40 | 7, at: -8, bytes: 8, lies };
            let mut words = head.to_words();
            if lies == Lies::InLine {
                set_bytes(&mut words, &std::array::from_fn(|at| at as u8));
                assert_eq!(bytes_of(&words)[31], 31);
            }
            assert_eq!(Head::parse(&words), Some(head));
            assert_eq!(Head::parse(&Head { bytes: most, ..head }.to_words()).map(|head| head.bytes), Some(most));
            for bytes in [0, most + 8, usize::MAX & !7] {
                let parsed = Head::parse(&Head { bytes, ..head }.to_words());
                assert_eq!(parsed, None, "{wanted:?} of {bytes} bytes");
            }
        }
        let sum = Head { wanted: sums(Basic::Float64), context: 1, at: 0, bytes: 8, lies: Lies::InLine };
        // A room that is none, and elements of an exchange that are not in the line.
        for (wanted, lies) in [
            (Wanted::Put, Lies::InRoom(0, ROOMS_BYTES[1] - ROOM_BYTES + 1, false)),
            (Wanted::Change(Change::CompareAndSwap, Basic::Uint64), Lies::InRoom(0, 1, true)),
        ] {
            assert_eq!(Head::parse(&Head { wanted, lies, ..sum }.to_words()), None, "{wanted:?} {lies:?}");
        }
        let refused = |change: fn(&mut Words)| {
            let mut words = sum.to_words();
            change(&mut words);
            assert_eq!(Head::parse(&words), None, "{:#x}", words[0]);
        };
        refused(|words| words[0] = 0);
        refused(|words| words[0] |= 0xff);
        refused(|words| words[0] |= 0x4000 << 16);
        refused(|words| words[0] |= 0xffff_ffff << 32);
        // Part of an element.
        refused(|words| words[0] += 1 << 8);
        // Logical operations on floating-point numbers.
        assert_eq!(Head::parse(&Head { wanted: Wanted::Change(Change::Operation(Predefined::Band), Basic::Float64), ..sum }.to_words()), None);
        // Elements with gaps, and two elements to compare.
        assert_eq!(Head::parse(&Head { wanted: Wanted::Change(Change::Operation(Predefined::Replace), Basic::DoubleInt), bytes: 16, ..sum }.to_words()), None);
        assert_eq!(Head::parse(&Head { wanted: Wanted::Change(Change::CompareAndSwap, Basic::Uint64), bytes: 16, ..sum }.to_words()), None);
    }
}
