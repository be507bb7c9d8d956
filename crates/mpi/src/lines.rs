//! Memory that the members of a communicator share for short collectives, in the first member's segment; the first
//! short collective makes it.
//!
//! *Exchanges* (barrier, short allreduce): each rank writes its own line and reads the others'. One step, whatever
//! the number of ranks. A line is written again only when everybody has read it: a rank that writes for the
//! collective after next has seen everybody's line of the next one, and so everybody has finished this one. Hence two
//! sets of lines in turn.
//!
//! *Turns* ([`crate::turn`]) have slots of their own, which the first of them makes, and room for longer bytes, which a
//! communicator gets once it has had some collectives. So one that only ever meets in barriers, such as a window's, has
//! two lines a rank and no more. Nonblocking collectives ([`crate::later`]) are numbered apart, and have slots and room of
//! their own.

use crate::call::{Begun, Call, Way};
use crate::comm::Comm;
use crate::error::Result;
use crate::link::Channel;
use crate::mismatch::{self, About};
use crate::request::Pauses;
use crate::turn::lend::{self, Agreed, Lending};
use crate::world::{self, World, fault};
use engine::slots::{self, Room, Slots};
use engine::{Doing, FabricError, LINE_WORDS, Line};
use std::cell::Cell;
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering, compiler_fence, fence};
use std::sync::{Mutex, OnceLock};
use std::task::Poll;

/// Most ranks that share lines; more take steps between pairs.
pub const RANKS_MAX: usize = 64;
/// Most bytes of one rank's contribution.
pub const BYTES_MAX: usize = LINE_WORDS * 8;
/// Looks at a line before the engine gets its turn, where every rank has a core.
const QUICK_LOOKS: u32 = 200;

/// What answers others that ask something of this process meanwhile, where they may: it holds nothing, and takes the engine where it has to.
pub(crate) static ANSWER: OnceLock<fn()> = OnceLock::new();

/// Looks a few times whether something is `ready`; whether it is.
#[inline(always)]
pub(crate) fn look_quickly(mut ready: impl FnMut() -> bool) -> bool {
    for _ in 0..QUICK_LOOKS {
        std::hint::spin_loop();
        if ready() {
            return true;
        }
        if let Some(answer) = ANSWER.get() {
            answer();
        }
    }
    false
}

/// Times that a rank gives its core away here, where others need it, before it waits as for any message.
const WAYS_GIVEN: u64 = 32;

/// Gives the core to the ranks that are waited for, unless those that `missing` names have cores of their own and bring what is waited for before this one
/// would be had back. Whether all lines are there.
pub(crate) fn give_way(comm: &Comm, all_here: &impl Fn() -> bool, missing: impl Fn(&mut dyn FnMut(usize) -> bool) -> bool) -> Result<bool> {
    let start_ns = trace::now_ns();
    let (mut here, mut yields) = (false, 0);
    while !here && yields < WAYS_GIVEN {
        let beside_ns = comm.engine().beside_ns(yields);
        let since_ns = trace::now_ns();
        while !here && missing(&mut |rank| comm.engine().has_core(comm.group.process(rank as u32))) && trace::now_ns() < since_ns + beside_ns {
            for _ in 0..engine::LOOKS_BESIDE {
                std::hint::spin_loop();
                here |= all_here();
            }
        }
        if here {
            break;
        }
        drop(engine::give_core(comm.cell, comm.engine()));
        yields += 1;
        here = all_here();
        if !here {
            comm.engine().progress().map_err(fault)?;
        }
    }
    comm.engine().count_wait(trace::now_ns() - start_ns);
    Ok(here)
}

/// Room for longer bytes of turns, for all ranks of a communicator together, bytes; each has an equal part.
const ROOM_BYTES: usize = 4 << 20;
/// The most of it for one rank: as a ring between two processes, longer than the caches of a core, since a line that is written again while its reader's cache
/// has it costs several times as much.
const ROOM_BYTES_MAX: usize = 2 << 20;
/// Longest parts of all ranks of more than two together, bytes, and the longest of one: what is longer takes steps in which all have a share of the work.
const PARTS_BYTES: usize = 1 << 20;
const PART_BYTES_MAX: usize = 256 << 10;
/// Room that this process has made for communicators of which it is the first member, at most, bytes.
const ROOM_BYTES_IN_ALL: usize = 32 << 20;
/// Blocking collectives that a communicator has had before it gets room: one that is hardly used needs none.
const CALLS_BEFORE_ROOM: u32 = 8;

/// Room of each of `ranks`, bytes.
const fn room_of(ranks: usize) -> usize {
    let equal = ROOM_BYTES / ranks;
    let equal = if equal > ROOM_BYTES_MAX { ROOM_BYTES_MAX } else { equal };
    equal / 4096 * 4096
}

/// Longest part that one of `ranks` brings into its room, bytes.
pub const fn part_of(ranks: usize) -> usize {
    if ranks == 2 {
        return room_of(ranks) / 2;
    }
    let equal = PARTS_BYTES / ranks;
    let equal = if equal > PART_BYTES_MAX { PART_BYTES_MAX } else { equal };
    equal / 4096 * 4096
}

/// The lines of one communicator. In this order: one that names who has finished with them, one that names who sleeps
/// in an exchange, and two sets of one line a rank.
pub struct Lines {
    all: &'static [Line],
    ranks: usize,
    me: usize,
    /// Place in the first member's segment.
    place: u64,
    /// Exchanges done. One thread at a time calls collectives.
    sequence: AtomicU64,
    /// What turns need, once the members have tried to get it. `None`: there is none.
    shared: OnceLock<Option<Shared>>,
}

/// What the turns of one communicator go through: a line that names who has finished with it, then the slots.
pub struct Shared {
    lines: &'static [Line],
    place: u64,
    me: usize,
    pub slots: Slots<'static>,
    /// Room for longer bytes, once the members have tried to get some. `None`: there is none.
    room: OnceLock<Option<Roomy>>,
}

/// Room for longer bytes: a line that names who has finished with it, on a page of its own, then the bytes.
struct Roomy {
    /// In whose segment.
    owner: u32,
    lines: &'static [Line],
    place: u64,
    ranks: usize,
    me: usize,
    room: Room,
    /// Longest part of a member, bytes: [`part_of`] so many.
    part: usize,
    /// There are fewer cores than members.
    crowded: bool,
    /// Where members can read each other's memory: when they do.
    lending: Option<Box<Lending>>,
}

const FINISHED: usize = 0;
const SLEEPERS: usize = 1;
const SETS: usize = 2;
/// Lines in front of the bytes of a [`Roomy`].
const ROOM_HEAD: usize = 64;

/// What lies in this process' segment and is gone here. It is used again when all members have finished with it.
struct Retired {
    place: u64,
    all: &'static [Line],
    ranks: usize,
    /// Lines that must be 0 at the start.
    cleared: usize,
}

static RETIRED: Mutex<Vec<Retired>> = Mutex::new(Vec::new());
/// How much of its part of a room this process has [prepared](Slots::prepare), by the process in whose segment that lies, and the place there.
static PREPARED: Mutex<BTreeMap<(u32, u64), usize>> = Mutex::new(BTreeMap::new());
/// Bytes of room that this process has made.
static ROOMS_BYTES: AtomicU64 = AtomicU64::new(0);

const fn lines_of(ranks: usize) -> usize {
    SETS + 2 * ranks
}

const fn shared_lines(ranks: usize) -> usize {
    1 + slots::lines_of(ranks)
}

const fn room_lines(ranks: usize) -> usize {
    ROOM_HEAD + ranks * room_of(ranks) / size_of::<Line>()
}

/// Of the [lines of a room](room_lines), those of member `me`, the only ones that it writes, whose pages it is to see to before it does: these that it has to
/// reserve now. Of the others' it is told by what these bring, and reads them.
fn room_part(ranks: usize, me: usize) -> Range<usize> {
    let from = ROOM_HEAD + me * room_of(ranks) / size_of::<Line>();
    from..from + slots::reserved_bytes(room_of(ranks)) / size_of::<Line>()
}

/// Takes `lines` for `ranks` that everybody has finished with.
fn reuse(lines: usize, ranks: usize) -> Option<u64> {
    let mut retired = RETIRED.lock().unwrap_or_else(|e| e.into_inner());
    let fits = |r: &Retired| r.all.len() == lines && r.ranks == ranks && r.all[FINISHED].count() == ranks;
    let at = retired.iter().position(fits)?;
    let Retired { place, all, cleared, .. } = retired.swap_remove(at);
    all[..cleared].iter().for_each(Line::clear);
    Some(place)
}

/// As the first member, lets go of `all`: it is used again when all others have done so, too.
fn retire(all: &'static [Line], place: u64, ranks: usize, me: usize, cleared: usize) {
    all[FINISHED].add(me);
    if me == 0 {
        RETIRED.lock().unwrap_or_else(|e| e.into_inner()).push(Retired { place, all, ranks, cleared });
    }
}

impl Drop for Lines {
    fn drop(&mut self) {
        retire(self.all, self.place, self.ranks, self.me, self.all.len());
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        if let Some(Some(roomy)) = self.room.get() {
            PREPARED.lock().unwrap_or_else(|e| e.into_inner()).insert((roomy.owner, roomy.place), self.slots.prepared());
        }
        retire(self.lines, self.place, self.slots.ranks(), self.me, self.lines.len());
    }
}

impl Drop for Roomy {
    fn drop(&mut self) {
        retire(self.lines, self.place, self.ranks, self.me, 1);
    }
}

impl Shared {
    /// Slots in the `lines` at `place` of the first member's segment.
    fn new(lines: &'static [Line], place: u64, ranks: usize, me: usize) -> Shared {
        Shared { lines, place, me, slots: Slots::new(&lines[1..], ranks, me), room: OnceLock::new() }
    }

    /// Prepares the beginning of this member's part of `roomy`, and knows what has been prepared of it before.
    fn begin_room(&self, roomy: &Roomy) -> std::result::Result<(), FabricError> {
        let before = PREPARED.lock().unwrap_or_else(|e| e.into_inner()).get(&(roomy.owner, roomy.place)).copied();
        self.slots.assume_prepared(before.unwrap_or(0));
        self.slots.prepare(&roomy.room, 1)
    }

    /// The room for longer bytes, where there is some.
    #[inline]
    pub fn room(&self) -> Option<Room> {
        self.room.get()?.as_ref().map(|roomy| roomy.room)
    }

    /// Whether there are fewer cores than members, as all say, once they have room.
    #[inline]
    pub fn crowded(&self) -> bool {
        matches!(self.room.get(), Some(Some(roomy)) if roomy.crowded)
    }

    /// Whether members lend, once they have room.
    #[inline]
    pub fn lending(&self) -> Option<&Lending> {
        self.room.get()?.as_ref()?.lending.as_deref()
    }
}

impl Roomy {
    fn new(lines: &'static [Line], (owner, place): (u32, u64), ranks: usize, me: usize) -> Roomy {
        Roomy { owner, lines, place, ranks, me, room: Room::of(&lines[ROOM_HEAD..], ranks), part: part_of(ranks), crowded: false, lending: None }
    }
}

/// How a collective went that is short enough for lines.
pub enum Short<T> {
    Done(T),
    /// There are none: it has its number, and takes steps between pairs. Once these are over, [`settle`] is called.
    Long(Begun),
}

/// Does `call` through the lines of `comm`; the first short collective makes them. `mine` and `read` as in
/// [`Lines::exchange`].
#[inline(always)]
pub fn short<T>(comm: &'static Comm, function: &'static str, call: Call, mine: &[u64], read: impl FnOnce(&[Line]) -> T) -> Result<Short<T>> {
    let begun = comm.calls.begin(call);
    match comm.lines.get() {
        Some(Some(lines)) => lines.exchange(comm, function, begun, mine, read).map(Short::Done),
        Some(None) => Ok(Short::Long(begun)),
        None => first(comm, function, begun, mine, read),
    }
}

/// All members have the lines, or none has, once the collective is over that made them: it is over for nobody where one
/// has called another one.
#[cold]
fn first<T>(comm: &'static Comm, function: &'static str, begun: Begun, mine: &[u64], read: impl FnOnce(&[Line]) -> T) -> Result<Short<T>> {
    let Some(lines) = Lines::agree(comm, function, begun)? else { return Ok(Short::Long(begun)) };
    let result = lines.exchange(comm, function, begun, mine, read)?;
    comm.lines.get_or_init(|| Some(lines));
    Ok(Short::Done(result))
}

/// What the members of `comm` have asked for and do not have is not there for `comm`, as all members know now.
pub fn settle(comm: &Comm) {
    if let Some(lines) = comm.lines.get_or_init(|| None)
        && let Some(shared) = lines.shared.get_or_init(|| None)
    {
        shared.room.get_or_init(|| None);
    }
}

/// Whether a turn of `comm` in which no rank brings more than `longest` bytes can be, for all members alike.
pub enum Ready {
    /// With the room for longer bytes, where that is needed.
    Yes(&'static Shared, Option<Room>),
    /// First the members agree on lines, slots, or room.
    NotYet,
    No,
}

/// The slots of `comm`, once the members have some.
#[inline(always)]
pub fn slots_of(comm: &Comm) -> Option<&Shared> {
    comm.lines.get()?.as_ref()?.shared.get()?.as_ref()
}

/// As [`Ready`] says; `longest` and the calls before are the same for all members.
#[inline]
pub fn ready(comm: &'static Comm, longest: usize) -> Ready {
    let short = longest <= slots::INLINE_BYTES;
    if let Some(shared) = slots_of(comm) {
        if short {
            return Ready::Yes(shared, None);
        }
        if let Some(Some(roomy)) = shared.room.get() {
            return if longest <= roomy.part { Ready::Yes(shared, Some(roomy.room)) } else { Ready::No };
        }
    }
    not_ready(comm, longest)
}

#[cold]
fn not_ready(comm: &'static Comm, longest: usize) -> Ready {
    let ranks = comm.size() as usize;
    let early = longest > slots::INLINE_BYTES && comm.calls.counts()[0] < CALLS_BEFORE_ROOM;
    let missing = match comm.lines.get() {
        Some(None) => return Ready::No,
        Some(Some(lines)) => match lines.shared.get() {
            Some(None) => return Ready::No,
            Some(Some(shared)) => shared.room.get().is_none(),
            None => true,
        },
        None => (2..=RANKS_MAX).contains(&ranks) && comm.remote.is_none(),
    };
    if missing && !early && fits(ranks, longest) { Ready::NotYet } else { Ready::No }
}

/// Whether `ranks` that share memory may bring up to `longest` bytes each through slots.
pub fn fits(ranks: usize, longest: usize) -> bool {
    (2..=RANKS_MAX).contains(&ranks) && longest <= part_of(ranks)
}

/// Makes what a turn of `longest` bytes needs, as a part of the collective that has `begun`. All members have it once
/// the collective is over that made it, or none. `None`: there is none; once the collective is over, [`settle`] is
/// called.
#[cold]
pub fn make(comm: &'static Comm, function: &'static str, begun: Begun, longest: usize) -> Result<Option<(&'static Shared, Option<Room>)>> {
    let lines = match comm.lines.get() {
        Some(Some(lines)) => lines,
        _ => {
            let Some(lines) = Lines::agree(comm, function, begun)? else { return Ok(None) };
            lines.exchange(comm, function, begun, &[], |_| ())?;
            let Some(lines) = comm.lines.get_or_init(|| Some(lines)) else { return Ok(None) };
            lines
        }
    };
    let shared = match lines.shared.get() {
        Some(Some(shared)) => shared,
        _ => {
            let Some(shared) = lines.agree_on_slots(comm, function, begun)? else { return Ok(None) };
            lines.exchange(comm, function, begun, &[], |_| ())?;
            let Some(shared) = lines.shared.get_or_init(|| Some(shared)) else { return Ok(None) };
            shared
        }
    };
    if longest <= slots::INLINE_BYTES {
        return Ok(Some((shared, None)));
    }
    let Some(mut roomy) = lines.agree_on_room(comm, function, begun)? else { return Ok(None) };
    let words = |all: &[Line]| {
        let read = |line: &Line| {
            let mut words = [0; LINE_WORDS];
            line.read(&mut words);
            words
        };
        all.iter().map(read).collect()
    };
    let ready = shared.begin_room(&roomy).is_ok();
    let exchange = |mine: &[u64]| lines.exchange(comm, function, begun, mine, words);
    // Where there is no memory for the room of one of them, none has any.
    let Some(Agreed { crowded, lending }) = lend::agree(comm, world::get()?.lending, ready, exchange)? else { return Ok(None) };
    (roomy.crowded, roomy.lending) = (crowded, lending.map(Box::new));
    let room = roomy.room;
    shared.room.get_or_init(|| Some(roomy));
    Ok(Some((shared, Some(room))))
}

/// What the first member offers, by its place in that one's segment; 0 stands for "none", since a segment begins with
/// its head.
fn offered(comm: &Comm, function: &'static str, begun: Begun, offer: impl FnOnce() -> u64) -> Result<u64> {
    let mut bytes = if comm.rank == 0 { offer() } else { 0 }.to_ne_bytes();
    let channel = Channel::begun(comm, begun)?;
    crate::link::block(comm.cell, function, crate::coll::bcast(&channel, &world::get()?.tuning, &mut bytes, 0))?;
    Ok(u64::from_ne_bytes(bytes))
}

/// The lines at `place` of the first member's segment; this process sees to the pages of `own`.
fn mapped(comm: &'static Comm, function: &'static str, begun: Begun, place: u64, lines: usize, own: Range<usize>) -> Result<&'static [Line]> {
    let (world, owner) = (world::get()?, comm.group.process(0));
    let mapped = |engine: &mut engine::Engine| match engine.context_failed(comm.coll) {
        Some(why) => Some(Err(why)),
        None => engine.lines_in_parts(owner, place, lines, own.clone()).transpose(),
    };
    let within = || {
        mismatch::waits_within(comm.context, begun.tag);
        None
    };
    crate::request::wait_asking(world, comm.cell, Doing::call(function), &mut Pauses::new(world, comm.cell), mapped, within)?.map_err(fault)
}

/// Takes `lines` of this process' segment for the members of `comm`: some that were let go, or fresh ones. 0 where none are left.
fn place_for(comm: &Comm, lines: usize) -> u64 {
    reuse(lines, comm.size() as usize).unwrap_or_else(|| comm.engine().share(lines).unwrap_or(0))
}

/// As [`place_for`], with [room](room_lines) for longer bytes.
fn place_for_room(comm: &Comm) -> u64 {
    let ranks = comm.size() as usize;
    let (lines, bytes) = (room_lines(ranks), (ranks * room_of(ranks)) as u64);
    if let Some(place) = reuse(lines, ranks) {
        return place;
    }
    let before = ROOMS_BYTES.fetch_add(bytes, Ordering::Relaxed);
    let place = if before + bytes <= ROOM_BYTES_IN_ALL as u64 { comm.engine().share_in_parts(lines, ROOM_HEAD).unwrap_or(0) } else { 0 };
    if place == 0 {
        ROOMS_BYTES.fetch_sub(bytes, Ordering::Relaxed);
    }
    place
}

/// Whether all members of `comm` share memory, and may share lines: they all see the same, since who shares memory with one of them shares it with
/// all.
fn may_share(comm: &Comm) -> Result<bool> {
    let ranks = comm.size() as usize;
    let together = || (0..ranks as u32).all(|rank| comm.engine().shares_memory(comm.group.process(rank)));
    Ok(world::get()?.slots && comm.remote.is_none() && (2..=RANKS_MAX).contains(&ranks) && together())
}

/// So many lines that all members have, and their place in the first member's segment, which the first member `takes`; this one sees to the pages of `own`.
/// `None` where none are left.
fn shared(
    comm: &'static Comm,
    function: &'static str,
    begun: Begun,
    (lines, own): (usize, Range<usize>),
    takes: impl FnOnce() -> u64,
) -> Result<Option<(u64, &'static [Line])>> {
    let place = offered(comm, function, begun, takes)?;
    if place == 0 { Ok(None) } else { Ok(Some((place, mapped(comm, function, begun, place, lines, own)?))) }
}

/// Makes slots and room for the nonblocking collectives of `comm` together with its other members, by the messages of one
/// of them. When it is over for one member, all have them, or none has. `None`: they share no memory, or none is left.
pub async fn agree_for_later(comm: &Comm, channel: &Channel) -> Result<Option<Shared>> {
    if !may_share(comm)? {
        return Ok(None);
    }
    let (ranks, me) = (comm.size() as usize, comm.rank as usize);
    let mut bytes = [0; 16];
    if me == 0 {
        let slots = place_for(comm, shared_lines(ranks));
        let room = if slots == 0 { 0 } else { place_for_room(comm) };
        bytes[..8].copy_from_slice(&slots.to_ne_bytes());
        bytes[8..].copy_from_slice(&room.to_ne_bytes());
    }
    crate::coll::bcast(channel, channel.tuning(), &mut bytes, 0).await?;
    let [slots, room] = [0, 8].map(|at| u64::from_ne_bytes(*bytes[at..].first_chunk().expect("eight bytes")));
    if slots == 0 {
        return Ok(None);
    }
    let shared = Shared::new(mapped_later(comm, slots, shared_lines(ranks), 0..shared_lines(ranks)).await?, slots, ranks, me);
    let roomy = match room {
        0 => None,
        _ => {
            let lines = mapped_later(comm, room, room_lines(ranks), room_part(ranks, me)).await?;
            Some(Roomy::new(lines, (comm.group.process(0), room), ranks, me))
        }
    };
    // Where there is no memory for the room of one of them, none has any.
    let (mine, mut ready) = ([roomy.as_ref().is_none_or(|roomy| shared.begin_room(roomy).is_ok()) as u8], vec![0; ranks]);
    crate::coll::allgather(channel, channel.tuning(), Some(&mine), &mut ready).await?;
    shared.room.get_or_init(|| roomy.filter(|_| ready.iter().all(|theirs| *theirs == 1)));
    Ok(Some(shared))
}

/// As [`mapped`].
async fn mapped_later(comm: &Comm, place: u64, lines: usize, own: Range<usize>) -> Result<&'static [Line]> {
    let owner = comm.group.process(0);
    std::future::poll_fn(|_| {
        let mut engine = comm.engine();
        match engine.lines_in_parts(owner, place, lines, own.clone()).map_err(fault).transpose() {
            Some(mapped) => Poll::Ready(mapped),
            None => {
                // The owner hands its segment out soon: another look.
                engine.completed();
                Poll::Pending
            }
        }
    })
    .await
}

impl Lines {
    /// Makes the lines of `comm` together with its other members, as a part of the short collective that has `begun`.
    /// `None` when they share no memory, or none is left.
    fn agree(comm: &'static Comm, function: &'static str, begun: Begun) -> Result<Option<Lines>> {
        if !may_share(comm)? {
            return Ok(None);
        }
        let (ranks, me) = (comm.size() as usize, comm.rank as usize);
        let lines = lines_of(ranks);
        let all = shared(comm, function, begun, (lines, 0..lines), || place_for(comm, lines))?;
        Ok(all.map(|(place, all)| Lines { all, ranks, me, place, sequence: AtomicU64::new(0), shared: OnceLock::new() }))
    }

    /// As [`Lines::agree`], the slots of turns.
    fn agree_on_slots(&self, comm: &'static Comm, function: &'static str, begun: Begun) -> Result<Option<Shared>> {
        let lines = shared_lines(self.ranks);
        let all = shared(comm, function, begun, (lines, 0..lines), || place_for(comm, lines))?;
        Ok(all.map(|(place, lines)| Shared::new(lines, place, self.ranks, self.me)))
    }

    /// As [`Lines::agree`], the room for longer bytes.
    fn agree_on_room(&self, comm: &'static Comm, function: &'static str, begun: Begun) -> Result<Option<Roomy>> {
        let lines = (room_lines(self.ranks), room_part(self.ranks, self.me));
        let all = shared(comm, function, begun, lines, || place_for_room(comm))?;
        Ok(all.map(|(place, lines)| Roomy::new(lines, (comm.group.process(0), place), self.ranks, self.me)))
    }

    /// Publishes `mine` as this rank's part of the call that has `begun` and waits until everybody has published
    /// theirs; then `read` is called with the lines in order of rank. A line's mark holds number and summary of the
    /// call, so that another call's line is never taken for one of this.
    // Inlined: where a call is known when the library is built, so is the summary in its mark.
    #[inline(always)]
    fn exchange<T>(&self, comm: &'static Comm, function: &'static str, begun: Begun, mine: &[u64], read: impl FnOnce(&[Line]) -> T) -> Result<T> {
        let world = world::get()?;
        mismatch::check(comm, begun.tag)?;
        // Counted when it is over: where one rank calls another collective, its line stays away, and it is over for
        // nobody.
        let now = self.sequence.load(Ordering::Relaxed) + 1;
        let from = SETS + if now.is_multiple_of(2) { self.ranks } else { 0 };
        let (lines, sleepers) = (&self.all[from..from + self.ranks], &self.all[SLEEPERS]);
        let mark = now & u32::MAX as u64 | (begun.tag as u64) << 32;
        lines[self.me].write(mark, mine);
        let seen = Cell::new(0);
        let all_here = || {
            let mut at = seen.get();
            while at < self.ranks && lines[at].holds(mark) {
                at += 1;
            }
            seen.set(at);
            at == self.ranks
        };
        let mut here = all_here();
        if !here && world.crowded {
            here = give_way(comm, &all_here, |has_core| (seen.get()..self.ranks).all(|rank| lines[rank].holds(mark) || has_core(rank)))?;
        } else if !here {
            here = look_quickly(all_here);
        }
        if !here {
            let me = self.me;
            comm.engine().watch(sleepers, me, None);
            let over = |engine: &mut engine::Engine| if all_here() { Some(None) } else { engine.context_failed(comm.coll).map(|why| Some(fault(why))) };
            let asked = || {
                crate::request::poll_tasks_asking(false);
                let about = About { context: comm.context, rank: comm.rank, begun };
                let missing = seen.get();
                (missing < self.ranks)
                    .then(|| mismatch::while_asking(true, || mismatch::ask(world, &about, comm.group.process(missing as u32))).err())
                    .flatten()
                    .map(Some)
            };
            let waited = crate::request::wait_asking(world, comm.cell, Doing::call(function), &mut Pauses::new(world, comm.cell), over, asked);
            comm.engine().unwatch(sleepers, me);
            if let Some(why) = waited? {
                return Err(why);
            }
        }
        let result = read(lines);
        // All have read this rank's line of the other set, which comes next.
        self.all[SETS + self.me + if now.is_multiple_of(2) { 0 } else { self.ranks }].foresee_write();
        self.sequence.store(now, Ordering::Relaxed);
        comm.calls.went(Way::Lines);
        wake(comm, world, sleepers)?;
        Ok(result)
    }
}

/// Whoever sees all lines wakes those that sleep for them; and whoever has published something those that sleep for it.
#[inline]
pub(crate) fn wake(comm: &Comm, world: &World, sleepers: &'static Line) -> Result<()> {
    if world.must_fence {
        fence(Ordering::SeqCst);
    } else {
        // A sleeper's heavy fence makes the order of our line and this look real.
        compiler_fence(Ordering::SeqCst);
    }
    let mut failed = None;
    sleepers.take_low(|member| {
        if let Err(e) = comm.engine().wake(comm.group.process(member as u32)) {
            failed = Some(fault(e));
        }
    });
    failed.map_or(Ok(()), Err)
}
