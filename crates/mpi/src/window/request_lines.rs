//! Short calls that the target does, where it waits in MPI itself: a request in a line that both processes map ([`engine::Asker`]) and its answer take less
//! time than a copy by the system, and than a message. Only memory that this process cannot load from is reached so.
//!
//! Data that has no place in a line lies in a room of the line's own, which both processes map as well; it goes through caches twice, which takes less time than
//! the system's copy of as many bytes, up to [`ROOM_BYTES`]. Elements that have no place there either stay in the origin's memory: the target, which alone changes
//! elements of its part, copies them from there, and what was there before to where the origin wants it. Of a put or get that long both sides copy pieces: the
//! origin from the front, while the target takes requests for pieces from the end; what it has not taken when the origin gets there, the origin takes back.
//!
//! Nothing depends on the target's help. The origin goes on after it has posted a request, and looks for the answer when it has to (a flush, an unlock, a
//! fence). What the target has not taken by then, nor within [`ANSWER_NS`] (longer, where it slept and is
//! woken), the origin takes back, and it goes the general way: a put or get by a copy that the
//! origin makes alone. A target that has not answered is not asked by the next calls: [`CALLS_UNASKED`].
//!
//! Order: requests of one process to another are done in order, and those that were taken back, which are the youngest, go the general way in order. A call
//! that goes by messages waits until no request to its target is pending, and no request is posted while something was asked by messages that has not been
//! confirmed. So accumulates are done in the order of their calls, and all of them by the target with its engine held, whichever way they came.

use super::call::{Accumulate, Direction, PART_BYTES};
use super::elements::{self, Change};
use super::memory::HERE;
use super::message::Ask;
use super::runs::Place;
use super::short::{is_address, is_alike, piece};
use super::target::{Remote, Target, Way};
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
use engine::{Answerer, Asker, Buffer, Engine, Line, LivenessWatch, Looker, REQUEST_WORDS, REQUESTS_PENDING_MAX};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

/// Bytes of data, of the origin or of the answer.
const DATA_BYTES: usize = 32;
/// Words of a request: what is asked for, the window's context, the place in bytes from the window's begin; then the data. An answer has the class of an error
/// in the first word, or 0, and the data that was there at the same place.
const DATA_AT: usize = 3;
const _: () = assert!(8 * (REQUEST_WORDS - DATA_AT) == DATA_BYTES);
/// An answer also says whether the target reads and writes the origin's memory.
const REACHES_AT: usize = 1;
/// Longest room of a request. Rooms follow each other in a part of the asker's segment, which is longer than the caches of a core where there are few processes:
/// a line that is written again while its reader's cache has it costs several times as much. Who has wanted one so often
/// gets them: to make them takes as long as so many calls lose without.
const ROOM_BYTES: usize = 16 << 10;
const ROOMS_BYTES: [usize; 2] = [512 << 10, 2 << 20];
const ROOMS_BYTES_IN_ALL: usize = 32 << 20;
const CALLS_BEFORE_ROOMS: u32 = 256;
const _: () = assert!(ROOMS_BYTES[0] >= 2 * ROOM_BYTES * REQUESTS_PENDING_MAX);
/// A put or get that is not longer goes through several rooms.
const ROOMY_BYTES: usize = 2 * ROOM_BYTES;
/// Pieces of a long put or get: two, or of at least so many bytes, since each costs a system call, and at most; of what lies between, so many.
const SHARED_PIECE_BYTES: [usize; 2] = [64 << 10, 256 << 10];
const SHARED_PIECES: usize = 12;
/// How long an origin waits for an answer: about as long as a copy by the system takes.
const ANSWER_NS: u64 = 3_000;
/// The same where the target has to copy elements, which it alone can do anyway.
const ANSWER_WITH_COPIES_NS: u64 = 30_000;
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
    /// The address, and where what was there goes, or 0: neither is where a put or get has none.
    AtOrigin(u64, u64),
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
            Lies::AtOrigin(given, found) => [what | 2 << 48, self.context, self.at as u64, given, found, self.bytes as u64, 0],
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
            2 if inside == 0 => (Lies::AtOrigin(words[3], words[4]), words[5], if code == 3 { PART_BYTES } else { SHARED_PIECE_BYTES[1] }),
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
    /// It reads and writes this process' memory.
    reaches: bool,
    /// Used in turn.
    requests: [Posted; REQUESTS_PENDING_MAX],
    /// Calls that have wanted rooms, and the rooms, and where the next one begins there.
    wanted_rooms: u32,
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
            (self.answers, self.reaches) = (true, words[REACHES_AT] != 0);
            ANSWERS.store(ANSWERS.load(Ordering::Relaxed).wrapping_add(1), Ordering::Relaxed);
            if words[0] != 0 {
                wrong.push((context, words[0] as i32));
            } else if landing.bytes > 0 {
                let data = bytes_of(&words);
                let found = self.room(room).map_or(data.as_ptr(), <*mut u8>::cast_const);
                // SAFETY: memory of the program, which it has handed over for as many bytes, at most as the answer has.
                unsafe { std::ptr::copy_nonoverlapping(found, landing.start, landing.bytes) };
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
    /// As bits: askers whose memory this process reads and writes.
    reaches: u64,
    /// What was copied from an origin, and what was there before.
    copies: Vec<u8>,
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
/// How long an answer to one of those that are pending is waited for.
static PATIENCE_NS: AtomicU64 = AtomicU64::new(ANSWER_NS);
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
    LINES.lock().own = Some(Own { place, askers: &lines[0], answerers, rooms: vec![None; processes as usize], reaches: 0, copies: Vec::new() });
    let _ = crate::lines::ANSWER.set(answer_askers);
    Ok(place)
}

/// Makes lines of this process, and finds those of the others of a window that shares memory; whether there are any. Collective.
pub(super) fn reach_all(function: &'static str, comm: &Comm) -> Result<bool> {
    let place = own_place()?;
    let reached = if place == NO_LINES { 0 } else { reached(comm)? };
    let all = allgather_bytes(function, comm, [place, reached].map(u64::to_ne_bytes).as_flattened())?;
    let mut any = false;
    for (rank, told) in (0..).zip(all.chunks_exact(16)) {
        let [place, reached] = [0, 8].map(|at| u64::from_ne_bytes(told[at..at + 8].try_into().expect("eight bytes")));
        any |= reach(comm.group.process(rank), place, reached)?;
    }
    Ok(any)
}

/// As bits: the processes of a communicator whose memory this one reads and writes.
fn reached(comm: &Comm) -> Result<u64> {
    let mut engine = world::get()?.engine().lock();
    let mut reaches = |process: u32| process < PROCESSES_MAX && engine.reaches_memory_of(process);
    Ok(comm.group.processes().filter(|process| reaches(*process)).fold(0, |bits, process| bits | 1 << process))
}

/// From now on this process may ask `process`, whose lines lie at `place` of its segment: not where that has not handed its segment out yet.
/// `reached`: whose memory it reads and writes.
fn reach(process: u32, place: u64, reached: u64) -> Result<bool> {
    let mut engine = world::get()?.engine().lock();
    let (me, processes) = (engine.me(), engine.processes());
    if place == NO_LINES || process == me || me >= processes {
        return Ok(false);
    }
    let reaches = reached >> me & 1 != 0;
    if let Some(known) = LINES.lock().peers.iter_mut().find(|peer| peer.process == process) {
        known.reaches |= reaches;
        return Ok(true);
    }
    let count = 1 + processes as usize * REQUESTS_PENDING_MAX;
    let Some(lines) = engine.lines(process, place, count).map_err(fault)? else { return Ok(false) };
    let Some(looker) = engine.looker(process) else { return Ok(false) };
    lines[0].add(me as usize);
    let asker = Asker::new(&lines[1 + me as usize * REQUESTS_PENDING_MAX..][..REQUESTS_PENDING_MAX]);
    let requests = [Posted { landing: Landing::NONE, room: None, context: 0 }; REQUESTS_PENDING_MAX];
    let (wanted_rooms, rooms, next_room) = (0, None, 0);
    let peer =
        Peer { process, asker, looker, reaches, requests, wanted_rooms, rooms, next_room, posted: 0, answered: 0, answers: false, unasked: CALLS_UNASKED[0] };
    LINES.lock().peers.push(peer);
    Ok(true)
}

/// Whether there are rooms for requests to `process`, which are made once they have been wanted for a while.
#[inline]
fn has_rooms(process: u32) -> bool {
    let wanted = {
        let lines = &mut *LINES.lock();
        let Some(peer) = lines.peers.iter_mut().find(|peer| peer.process == process) else { return false };
        if peer.rooms.is_some() {
            return true;
        }
        peer.wanted_rooms = peer.wanted_rooms.saturating_add(1);
        peer.wanted_rooms
    };
    wanted == CALLS_BEFORE_ROOMS && make_rooms(process).is_some()
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
        words[REACHES_AT] = reaches(engine, asker as u32) as u64;
        if let Some(own) = &mut LINES.lock().own {
            own.answerers[asker].answer(&words);
        }
        moved = true;
    }
    moved
}

/// Whether this process reads and writes the memory of `asker`.
#[inline]
fn reaches(engine: &mut Engine, asker: u32) -> bool {
    let known = |own: &Own| own.reaches >> asker & 1 != 0;
    if LINES.lock().own.as_ref().is_some_and(known) {
        return true;
    }
    let found = engine.reaches_memory_of(asker);
    if let Some(own) = &mut LINES.lock().own {
        own.reaches |= (found as u64) << asker;
    }
    found
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
        Lies::AtOrigin(given, found) => {
            let there = |address: u64| [(std::ptr::without_provenance_mut(address as usize), head.bytes)];
            // SAFETY: as below; the system finds out whether the asker has memory there.
            let done = unsafe {
                match head.wanted {
                    Wanted::Put => engine.copy_across(asker, &[(start, head.bytes)], &there(given), false),
                    Wanted::Get => engine.copy_across(asker, &[(start, head.bytes)], &there(found), true),
                    Wanted::Change(Change::Operation(op), kind) => change_there(engine, asker, start, head.bytes, (op, kind), [given, found]),
                    Wanted::Change(Change::CompareAndSwap, _) => return MPI_ERR_INTERN,
                }
            };
            return if done.is_ok() { 0 } else { MPI_ERR_BUFFER };
        }
    };
    let (given, mut found) = (bytes_of(words), [0; DATA_BYTES]);
    // SAFETY: as many bytes of the window, as was found just now. All that changes its elements comes here or to `Window::serve`, with the engine held. A room
    // has as many bytes, and is this side's until it has answered.
    unsafe {
        match (head.wanted, room) {
            (Wanted::Put, _) => std::ptr::copy_nonoverlapping(room.map_or(given.as_ptr(), <*mut u8>::cast_const), start, head.bytes),
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

/// Two copies of [`PART_BYTES`] at least, for what was given and what was there.
fn with_copies<R>(work: impl FnOnce(&mut [u8], &mut [u8]) -> R) -> R {
    let mut copies = LINES.lock().own.as_mut().map(|own| std::mem::take(&mut own.copies)).unwrap_or_default();
    copies.resize(copies.len().max(2 * PART_BYTES), 0);
    let (given, found) = copies.split_at_mut(PART_BYTES);
    let done = work(given, found);
    if let Some(own) = &mut LINES.lock().own {
        own.copies = copies;
    }
    done
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
    with_copies(|_, found| {
        // SAFETY: the caller's promise.
        unsafe {
            elements::at_once(start, op, kind, given(), &mut found[..bytes]);
            std::ptr::copy_nonoverlapping(found.as_ptr(), room, bytes);
        }
    });
}

/// Changes elements by others in the memory of process `asker`: those and where what was there goes, or 0, are `places`.
///
/// # Safety
/// The elements are as many bytes of a window of this process, and nobody else changes them meanwhile.
unsafe fn change_there(
    engine: &mut Engine,
    asker: u32,
    start: *mut u8,
    bytes: usize,
    (op, kind): (Predefined, Basic),
    [given, found]: [u64; 2],
) -> std::result::Result<(), engine::Fault> {
    let there = |address: u64| [(std::ptr::without_provenance_mut(address as usize), bytes)];
    let (read, wanted) = if op == Predefined::NoOp { (0, bytes) } else { (bytes, if found == 0 { 0 } else { bytes }) };
    with_copies(|given_here, found_here| {
        if read > 0 {
            // SAFETY: this process' own copies; the system finds out whether the asker has memory there.
            unsafe { engine.copy_across(asker, &[(given_here.as_mut_ptr(), bytes)], &there(given), false)? };
        }
        // SAFETY: the caller's promise.
        unsafe { elements::at_once(start, op, kind, &given_here[..read], &mut found_here[..wanted]) };
        match found {
            0 => Ok(()),
            // SAFETY: as above; the asker has handed this memory over until it has been answered.
            _ => unsafe { engine.copy_across(asker, &[(found_here.as_mut_ptr(), bytes)], &there(found), true) },
        }
    })
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
        PATIENCE_NS.store(ANSWER_NS, Ordering::Relaxed);
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

/// Something is pending that may take `ns`.
fn be_patient(ns: u64) {
    PATIENCE_NS.store(PATIENCE_NS.load(Ordering::Relaxed).max(ns), Ordering::Relaxed);
}

/// Whether a request to `process` could be posted without waiting.
fn has_free_line(process: u32) -> bool {
    let lines = &mut *LINES.lock();
    let Some(peer) = lines.peers.iter_mut().find(|peer| peer.process == process) else { return false };
    peer.take_in(&mut lines.wrong);
    peer.asker.pending() < REQUESTS_PENDING_MAX
}

/// Whether `process` has said that it reads and writes this process' memory.
fn is_reached_by(process: u32) -> bool {
    LINES.lock().peers.iter().any(|peer| peer.process == process && peer.reaches)
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
    let (mut looks, mut since_ns, mut answers) = (0u32, None, 0);
    loop {
        if ready() {
            return Ok(true);
        }
        looks += 1;
        // Two that ask each other would wait in vain.
        answer_askers();
        if looks.is_multiple_of(LOOKS_PER_READING) {
            let (now_ns, limit_ns) = (trace::now_ns(), PATIENCE_NS.load(Ordering::Relaxed));
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

/// As [`Peer::take_back`], of requests to `process`.
fn take_back(process: u32) -> Option<Withdrawn> {
    LINES.lock().peers.iter_mut().find(|peer| peer.process == process)?.take_back()
}

/// The next calls do not ask `process`.
fn does_not_answer(process: u32) {
    if let Some(peer) = LINES.lock().peers.iter_mut().find(|peer| peer.process == process) {
        (peer.answers, peer.unasked) = (false, 0);
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
    fn place(&self, remote: &Remote, bytes: usize, most: usize) -> Option<i64> {
        let part = self.memory.part_of(remote.rank)?;
        let state = part.state.load(Ordering::Relaxed);
        let at = if self.dynamic() { remote.displacement } else { remote.displacement.checked_mul(part.unit.into())? };
        let inside = self.dynamic() || (at >= 0 && at as u64 <= part.size.checked_sub(bytes as u64)?);
        ((1..=most).contains(&bytes) && inside && state & HERE == 0 && self.epochs.may_access(state)).then_some(at)
    }

    /// Posts a request, unless the target is not likely to answer soon, or other calls have to be over before. `given`: the origin's data. Of
    /// elements that have no place in a room it stays there, and `landing` is told the target, too.
    #[inline]
    fn post(&self, rank: i32, wanted: Wanted, at: i64, bytes: usize, given: &[(*const u8, usize)], landing: Landing) -> Option<()> {
        let (world, side) = (world::get().ok()?, self.messages.as_ref()?);
        // One thread would have to wait for the calls that another one has taken back.
        if world.may_have_threads() || side.has_open() {
            return None;
        }
        let process = self.comm.group.process(rank as u32);
        let in_room = bytes > DATA_BYTES && bytes <= ROOM_BYTES && has_rooms(process);
        let at_origin = bytes > DATA_BYTES && !in_room;
        // A copy by the origin is as fast as one by the target.
        if at_origin && bytes <= ROOM_BYTES && !matches!(wanted, Wanted::Change(..)) {
            return None;
        }
        if !has_room(process)? && !await_answers(|| has_room(process) == Some(true)).ok()? {
            return None;
        }
        let mut lines = LINES.lock();
        let lines = &mut *lines;
        let peer = lines.peers.iter_mut().find(|peer| peer.process == process)?;
        if at_origin && !peer.reaches {
            return None;
        }
        let (context, which) = (side.context.raw(), peer.posted % REQUESTS_PENDING_MAX);
        let mut line = [0; DATA_BYTES];
        let (lies, room, mut into) = match &peer.rooms {
            _ if at_origin => (Lies::AtOrigin(given.first().map_or(0, |(start, _)| start.addr() as u64), landing.start.addr() as u64), None, line.as_mut_ptr()),
            Some(rooms) if in_room => {
                let (from, room) = [peer.next_room, 0].into_iter().find_map(|from| Some((from, rooms.room(from)?)))?;
                peer.next_room = from + bytes.next_multiple_of(size_of::<Line>());
                (Lies::InRoom(rooms.place, from, landing.bytes > 0), Some(from), room)
            }
            _ => (Lies::InLine, None, line.as_mut_ptr()),
        };
        let mut words = Head { wanted, context, at, bytes, lies }.to_words();
        if !at_origin {
            for (start, bytes) in given {
                // SAFETY: the origin's buffers, which are readable; together they have no more than the bytes of a line, or of a room, as the callers see to.
                unsafe { std::ptr::copy_nonoverlapping(*start, into, *bytes) };
                into = into.wrapping_add(*bytes);
            }
        }
        match lies {
            Lies::InLine => set_bytes(&mut words, &line),
            Lies::InRoom(..) => {}
            Lies::AtOrigin(..) => be_patient(ANSWER_WITH_COPIES_NS),
        }
        peer.requests[which] = Posted { landing: if at_origin { Landing::NONE } else { landing }, room, context };
        peer.posted += 1;
        peer.asker.post(&words);
        if peer.looker.wake() {
            be_patient(ANSWER_WOKEN_NS);
        }
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
        let (datatype, count) = (datatype::lookup(MPI_BYTE)?, head.bytes);
        let target = Target { rank, place: Place { datatype, at: head.at, count }, bytes: head.bytes };
        // SAFETY: this call's own bytes, which are copied before it returns.
        let given = unsafe { Buffer::contiguous(data, head.given_bytes()) };
        // SAFETY: memory of the program, which it leaves alone, or has handed over, until it flushes.
        let there = |address: u64| (address != 0).then(|| unsafe { Buffer::contiguous(std::ptr::with_exposed_provenance_mut(address as usize), head.bytes) });
        // SAFETY: memory that the program has handed over until it flushes, which comes after this call.
        let landing = (self.landing.bytes > 0).then(|| unsafe { Buffer::contiguous(self.landing.start, self.landing.bytes) });
        let moved = |start: *mut u8| Data { start: start.cast(), count: head.bytes as i64, datatype: MPI_BYTE };
        match (head.wanted, &landing) {
            (wanted, _) if let Lies::AtOrigin(given_at, found_at) = head.lies => {
                let address = |at: u64| std::ptr::with_exposed_provenance_mut(at as usize);
                match (wanted, there(given_at), there(found_at)) {
                    (Wanted::Put, Some(given), _) => window.begin(function, Direction::Put, &given, &moved(address(given_at)), &target)?,
                    (Wanted::Get, _, Some(found)) => window.begin(function, Direction::Get, &found, &moved(address(found_at)), &target)?,
                    (Wanted::Change(change, kind), given, found) => window.ask(function, &target, Ask::Change(change, kind), given.as_ref(), found.as_ref())?,
                    _ => None,
                }
            }
            (Wanted::Put, _) => window.begin(function, Direction::Put, &given, &moved(data), &target)?,
            (Wanted::Get, Some(landing)) => window.begin(function, Direction::Get, landing, &moved(self.landing.start), &target)?,
            (Wanted::Get, None) => None,
            (Wanted::Change(change, kind), landing) => window.ask(function, &target, Ask::Change(change, kind), Some(&given), landing.as_ref())?,
        };
        Ok(())
    }
}

/// A put or get: `Some` where the target does it, or a part of it.
pub(super) fn transfer(window: &Window, direction: Direction, origin: &Data, remote: &Remote) -> Option<Result<()>> {
    if !window.has_request_lines {
        return None;
    }
    let (_, bytes) = piece(remote.count, remote.datatype)?;
    let same = origin.datatype == remote.datatype && origin.count == remote.count;
    if !is_address(origin) || !(same || piece(origin.count, origin.datatype)?.1 == bytes) {
        return None;
    }
    let at = window.place(remote, bytes, usize::MAX)?;
    let start = origin.start.cast::<u8>();
    if bytes > ROOM_BYTES {
        return window.share(direction, start, remote.rank, at, bytes);
    }
    window.post_transfer(direction, start, remote.rank, at, bytes).map(Ok)
}

/// Bytes of a piece of a long put or get.
fn shared_piece(bytes: usize) -> usize {
    let half = bytes.div_ceil(2);
    (bytes / SHARED_PIECES).clamp(half.min(SHARED_PIECE_BYTES[0]), SHARED_PIECE_BYTES[1]).next_multiple_of(64)
}

impl Window {
    fn post_transfer(&self, direction: Direction, start: *mut u8, rank: i32, at: i64, bytes: usize) -> Option<()> {
        match direction {
            Direction::Put => self.post(rank, Wanted::Put, at, bytes, &[(start, bytes)], Landing::NONE),
            Direction::Get => self.post(rank, Wanted::Get, at, bytes, &[], Landing { start, bytes }),
        }
    }

    /// A long put or get, of which both sides copy pieces. `None` where the target is not likely to, or only it could.
    #[inline(never)]
    fn share(&self, direction: Direction, start: *mut u8, rank: i32, at: i64, bytes: usize) -> Option<Result<()>> {
        let Way::Across(process, base) = self.way(rank as u32).ok()? else { return None };
        // Pieces that have place in rooms are all the target's. Who has not said yet whether it reads this process' memory gets one of those, and says so.
        let (piece, most, kept) = match is_reached_by(process) {
            _ if bytes <= ROOMY_BYTES => (ROOM_BYTES, usize::MAX, 0),
            true => (shared_piece(bytes), usize::MAX, 1),
            false => (ROOM_BYTES, 1, 1),
        };
        let span = |index: usize| (index * piece, piece.min(bytes - index * piece));
        let post = |index: usize| {
            let (from, length) = span(index);
            self.post_transfer(direction, start.wrapping_add(from), rank, at + from as i64, length)
        };
        // Pieces before `front` have been copied here, those from `back` on are the target's.
        let (mut front, mut back, mut posted, mut taken_back) = (0, bytes.div_ceil(piece), 0, 0);
        loop {
            while back > front + kept && posted < most && has_free_line(process) && post(back - 1).is_some() {
                (back, posted) = (back - 1, posted + 1);
            }
            if posted == 0 {
                return None;
            }
            let copied = if front < back {
                let (from, length) = span(front);
                front += 1;
                self.copy_across(direction, start.wrapping_add(from), length, (process, base), (rank as u32, at + from as i64))
            } else if kept > 0
                && taken_back < posted
                && let Some(request) = take_back(process)
            {
                (front, back, taken_back) = (front + 1, back + 1, taken_back + 1);
                Head::parse(&request.words).map_or(Ok(()), |head| request.go_on_in(self, if direction == Direction::Put { "MPI_Put" } else { "MPI_Get" }, head))
            } else {
                break;
            };
            if let Err(error) = copied {
                return Some(Err(error));
            }
        }
        if taken_back == posted {
            does_not_answer(process);
        }
        Some(Ok(()))
    }
}

/// An accumulate of elements without gaps of one predefined datatype, which all sides name: `Some` where the target does it.
pub(super) fn accumulate(window: &Window, call: &Accumulate, remote: &Remote) -> Option<()> {
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
    let at = window.place(remote, bytes, PART_BYTES)?;
    let landing = call.result.map_or(Landing::NONE, |result| Landing { start: result.start.cast(), bytes });
    let given = [(call.origin.start.cast_const().cast::<u8>(), if changes { bytes } else { 0 })];
    let wanted = Wanted::Change(Change::Operation(op), kind);
    window.post(remote.rank, wanted, at, bytes, if changes { &given } else { &[] }, landing)
}

/// A compare and swap: `Some` where the target does it.
pub(super) fn compare_and_swap(window: &Window, origin: &Data, compare: &Data, result: &Data, remote: &Remote, kind: Basic) -> Option<()> {
    let bytes = kind.bytes();
    if !window.has_request_lines || 2 * bytes > DATA_BYTES || ![origin, compare, result].into_iter().all(is_address) {
        return None;
    }
    let at = window.place(remote, bytes, DATA_BYTES)?;
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
            (sums(Basic::Float64), Lies::AtOrigin(0x1234, 0), PART_BYTES),
            (Wanted::Put, Lies::AtOrigin(0x1234, 0), SHARED_PIECE_BYTES[1]),
            (Wanted::Get, Lies::AtOrigin(0, 0x1234), SHARED_PIECE_BYTES[1]),
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
