//! Collectives that do not match: how ranks find out, and how all of them get an error.
//!
//! A message of another call has another tag ([`crate::call`]), so that it is never taken for one of this; the ranks wait. Who has
//! waited for some time in a collective tells the rank that it waits for what it has called, and that one compares, once it waits
//! in some call itself. Where the two differ, both calls and both ranks go to all members of the communicator: the
//! collective ends in that error on each rank that has not ended it, and later ones go on. Where it is not certain that
//! all ranks are in step behind it, each collective on the communicator fails from then on.

use crate::call::{self, Begun, Call, Calls, Form, Remembered};
use crate::comm::{self, Comm};
use crate::error::{Error, Result};
use crate::world::{self, World};
use engine::{Buffer, Context, Pattern, Target};
use std::cell::Cell;
use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Tag of these messages, in the context of processes that have no communicator in common.
const TAG: i32 = -2;
/// Longest text of an error that is told to others, bytes.
const TEXT_BYTES_MAX: usize = 512;
/// First word of a message: context in the low 48 bits, then what it is.
const CONTEXT_BITS: u32 = 48;
const QUESTION: u64 = 1;
const VERDICT: u64 = 2;
const ENDED: u64 = 3;
/// Third word of a verdict about all collectives on the communicator, instead of one's number.
const ALL: u64 = u64::MAX;
/// Bit of that word: [`Failing::Ended`].
const ENDED_BIT: u64 = 1 << 32;
const VERDICT_WORDS: usize = 3;
/// Earlier calls that a question tells, too.
const EARLIER: u32 = 7;
/// The second word of a question has the rank, and above it whether that rank waits for nothing else; then come its numbers of calls.
const STUCK_SHIFT: u32 = 32;
const QUESTION_WORDS: usize = 2 + call::SERIES;
/// Words of a question for each call: tag and, above it, [`Remembered::others`]; then the call.
const CALL_WORDS: usize = 1 + Call::WORDS;
/// Most failures that are remembered; a further one replaces the oldest.
const FAILED_MAX: usize = 4096;
/// Most collectives of one communicator that fail alone; with a further one the communicator fails.
const FAILED_ALONE_MAX: usize = 1024;
/// Most answers that a collective is over that are remembered; a further one replaces the oldest.
const ENDED_MAX: usize = 256;
/// Unexpected messages that are looked at for those of another call.
const LEFTOVERS_MAX: usize = 64;

struct Failed {
    context: Context,
    /// `None`: all collectives on the communicator.
    one: Option<One>,
    class: i32,
    text: String,
}

/// The collective that has failed.
#[derive(Clone, Copy)]
struct One {
    /// [`call::place_of`] its tag.
    place: i32,
    number: u32,
    /// The program has had the error on this rank, or gets it on another one that waits in the collective.
    raised: bool,
}

impl Failed {
    fn error(&self) -> Box<Error> {
        Error::new(self.class, self.text.clone())
    }
}

static FAILED: Mutex<Vec<Failed>> = Mutex::new(Vec::new());
static ANY_FAILED: AtomicBool = AtomicBool::new(false);

/// A process has answered that it has ended a collective.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Over {
    context: Context,
    place: i32,
    number: u32,
    process: u32,
}

static OVER: Mutex<Vec<Over>> = Mutex::new(Vec::new());

/// Communicators that this process has freed, the latest.
static FREED: Mutex<VecDeque<Context>> = Mutex::new(VecDeque::new());
const FREED_MAX: usize = 1024;

/// This process comes to no collective on this communicator any more.
pub fn freed(context: Context) {
    let mut freed = FREED.lock().unwrap_or_else(PoisonError::into_inner);
    if freed.len() == FREED_MAX {
        freed.pop_front();
    }
    freed.push_back(context);
}

fn failures() -> MutexGuard<'static, Vec<Failed>> {
    FAILED.lock().unwrap_or_else(PoisonError::into_inner)
}

thread_local! {
    /// Whether operations that are polled now, and must wait, shall ask whom they wait for.
    static ASKING: Cell<bool> = const { Cell::new(false) };
    /// Whether these are all that this thread waits for.
    static NOTHING_ELSE: Cell<bool> = const { Cell::new(false) };
    /// The collective, by context and tag, without which this thread does not go on.
    static STUCK_IN: Cell<Option<(Context, i32)>> = const { Cell::new(None) };
}

/// The communicator that a collective runs on, and what was called there.
#[derive(Clone, Copy)]
pub struct About {
    pub context: Context,
    pub rank: u32,
    pub begun: Begun,
}

/// Whether whoever waits now is to ask.
#[inline]
pub fn asking() -> bool {
    ASKING.get()
}

/// Runs `f`, in which operations that must wait ask whom they wait for. `nothing_else`: this thread waits for nothing else.
pub fn while_asking<T>(nothing_else: bool, f: impl FnOnce() -> T) -> T {
    ASKING.set(true);
    NOTHING_ELSE.set(nothing_else);
    let result = f();
    ASKING.set(false);
    result
}

/// This thread has ended its wait.
#[cold]
pub fn goes_on() {
    STUCK_IN.set(None);
}

/// This thread waits within a collective, for something of which others cannot be asked.
#[cold]
pub fn waits_within(context: Context, tag: i32) {
    STUCK_IN.set(Some((context, tag)));
}

/// Whether any collective has not matched.
#[inline]
pub fn any_at_all() -> bool {
    ANY_FAILED.load(Ordering::Relaxed)
}

/// # Errors
/// That of the collective with `tag` on `comm`, which has not matched on all ranks; or of an earlier one behind which
/// the communicator cannot go on.
#[inline]
pub fn check(comm: &Comm, tag: i32) -> Result<()> {
    if ANY_FAILED.load(Ordering::Relaxed) { known(comm.context, Some(&comm.calls), tag) } else { Ok(()) }
}

#[cold]
fn known(context: Context, calls: Option<&Calls>, tag: i32) -> Result<()> {
    for f in failures().iter_mut().filter(|f| f.context == context) {
        let Some(one) = &mut f.one else { return Err(f.error()) };
        if call::series_of(one.place) != call::series_of(tag) {
            continue;
        }
        match calls.map_or(one.number, |calls| calls.full_number(tag)).wrapping_sub(one.number) as i32 {
            0 if one.place == call::place_of(tag) => {
                one.raised = true;
                return Err(f.error());
            }
            call::AFTER_MISMATCH_MAX.. => {
                let later = call::AFTER_MISMATCH_MAX;
                return Err(Error::new(f.class, format!("{}; {later} collectives later its messages could be taken for new ones", f.text)));
            }
            _ => {}
        }
    }
    Ok(())
}

/// Whether collectives on the communicator have not matched.
pub fn any(context: Context) -> bool {
    failures().iter().any(|f| f.context == context)
}

/// Whether all of them fail.
fn all_fail(context: Context) -> bool {
    failures().iter().any(|f| f.context == context && f.one.is_none())
}

/// Which collectives of a communicator fail.
#[derive(Clone, Copy)]
pub enum Failing {
    All,
    /// The one of this place.
    One(i32),
    /// The same, and perhaps no rank waits in it that would say so.
    Ended(i32),
}

impl Failing {
    fn place(self) -> Option<i32> {
        match self {
            Failing::All => None,
            Failing::One(place) | Failing::Ended(place) => Some(place),
        }
    }

    fn to_word(self) -> u64 {
        match self {
            Failing::All => ALL,
            Failing::One(place) => place as u64,
            Failing::Ended(place) => place as u64 | ENDED_BIT,
        }
    }

    fn from_word(word: u64) -> Failing {
        match word {
            ALL => Failing::All,
            word if word & ENDED_BIT != 0 => Failing::Ended(word as i32),
            word => Failing::One(word as i32),
        }
    }
}

/// Whether it was not known yet.
fn remember(context: Context, failing: Failing, class: i32, text: String) -> bool {
    let place = failing.place();
    let number = |place: i32| comm::of_context(context).map_or(call::number_of(place), |comm| comm.calls.full_number(place));
    let one = place.map(|place| One { place, number: number(place), raised: !matches!(failing, Failing::Ended(_)) });
    let mut failed = failures();
    let of_comm = || failed.iter().filter(|f| f.context == context);
    if of_comm().any(|f| f.one.is_none_or(|known| Some(known.place) == place)) {
        return false;
    }
    let one = one.filter(|_| of_comm().count() < FAILED_ALONE_MAX);
    if failed.len() == FAILED_MAX {
        failed.remove(0);
    }
    failed.push(Failed { context, one, class, text });
    ANY_FAILED.store(true, Ordering::Relaxed);
    true
}

/// Sends if that can be done at once; what cannot is said again at the next look.
fn tell(world: &World, process: u32, words: &[u64], text: &[u8]) {
    if process >= world.size {
        // One of another job knows this process by another number.
        return;
    }
    let mut bytes: Vec<u8> = words.iter().flat_map(|word| word.to_ne_bytes()).collect();
    bytes.extend_from_slice(text);
    let target = Target { process, context: comm::bootstrap(), source: world.me, tag: TAG };
    // SAFETY: the bytes outlive the call, and a send that is not complete at once does not begin.
    let buffer = unsafe { Buffer::contiguous(bytes.as_mut_ptr(), bytes.len()) };
    let mut engine = world.engine().lock();
    // Nobody may ever look at it: what waited at this process for that would keep it from its end.
    if engine.leaves_whole(process, bytes.len()) {
        // A fabric that fails says so at the next progress.
        let _ = engine.send_now(&target, &buffer);
    }
}

/// Tells `process`, for which this one waits, what it has called.
///
/// # Errors
/// What is known by now of the collective: that it does not match, or that `process` has ended it without what this one
/// waits for.
#[cold]
pub fn ask(world: &World, about: &About, process: u32) -> Result<()> {
    let tag = about.begun.tag;
    // Its handle may have been freed.
    let comm = comm::of_context(about.context);
    known(about.context, comm.as_ref().map(|comm| &comm.calls), tag)?;
    if let Some(comm) = &comm
        && is_over(Over { context: about.context, place: call::place_of(tag), number: comm.calls.full_number(tag), process })
    {
        let (number, mine) = (call::number_of(tag), about.begun.call);
        let (place, class) = (call::place_of(tag), crate::consts::MPI_ERR_COUNT);
        let text = format!(
            "rank {} called {mine} as collective {number} on {} and waits for {}, which has ended it: arguments differ, or it failed there",
            about.rank,
            comm::describe(comm),
            who(comm, process)
        );
        let failing = if mine.parts_alone(mine) { Failing::One(place) } else { Failing::All };
        fail(world, comm, failing, class, text);
        return check(comm, tag);
    }
    let stuck = NOTHING_ELSE.get();
    if stuck {
        waits_within(about.context, tag);
    }
    let mut words = vec![about.context.raw() | QUESTION << CONTEXT_BITS, about.rank as u64 | (stuck as u64) << STUCK_SHIFT];
    words.extend(comm.as_ref().map_or([0; call::SERIES], |comm| comm.calls.counts()).map(u64::from));
    let mut add = |tag: i32, remembered: Remembered| {
        words.push(tag as u64 | (remembered.others as u64) << 32);
        words.extend(remembered.call.to_words());
    };
    let forgotten = Remembered { call: about.begun.call, others: u32::MAX };
    add(tag, comm.as_ref().and_then(|comm| comm.calls.at(tag)).unwrap_or(forgotten));
    // Where an earlier call has not matched, both may have ended it and be in later ones that do match.
    if let Some(comm) = comm {
        comm.calls.before(tag, EARLIER).for_each(|(tag, remembered)| add(tag, remembered));
    }
    tell(world, process, &words, &[]);
    Ok(())
}

/// Whether a process has answered that it has ended the collective. Its answer came behind all its messages; this
/// process has looked for messages since.
fn is_over(over: Over) -> bool {
    OVER.lock().unwrap_or_else(PoisonError::into_inner).contains(&over)
}

/// Lets collectives on `comm` fail from now on, on all ranks that have not ended them.
#[cold]
pub fn fail(world: &World, comm: &Comm, failing: Failing, class: i32, text: String) {
    if !remember(comm.context, failing, class, text.clone()) {
        return;
    }
    let groups = [Some(&comm.group), comm.remote.as_ref()];
    for process in groups.into_iter().flatten().flat_map(|group| group.processes()).filter(|process| *process != world.me) {
        tell_verdict(world, process, comm.context, failing, class, &text);
    }
    world.engine().lock().completed();
}

/// The error of a part that has another length than this rank has it, which all ranks get.
#[cold]
pub fn wrong_length(world: &World, about: Option<&About>, source: u32, sent: u64, expected: usize) -> Box<Error> {
    let class = crate::consts::MPI_ERR_TRUNCATE;
    let found = format!("rank {source} sent {sent} bytes where {expected} were expected: counts or datatypes differ among the ranks");
    let Some((about, comm)) = about.and_then(|about| Some((about, comm::of_context(about.context)?))) else {
        return Error::new(class, found);
    };
    let (number, call) = (call::number_of(about.begun.tag), about.begun.call);
    let text = format!("rank {} called {call} as collective {number} on {}: {found}", about.rank, comm::describe(&comm));
    // Both have called it as the same tag says.
    let failing = if call.parts_alone(call) { Failing::One(call::place_of(about.begun.tag)) } else { Failing::All };
    fail(world, &comm, failing, class, text.clone());
    check(&comm, about.begun.tag).err().unwrap_or_else(|| Error::new(class, text))
}

fn tell_verdict(world: &World, process: u32, context: Context, failing: Failing, class: i32, text: &str) {
    let mut end = text.len().min(TEXT_BYTES_MAX);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    let words = [context.raw() | VERDICT << CONTEXT_BITS, class as u64, failing.to_word()];
    tell(world, process, &words, &text.as_bytes()[..end]);
}

/// Deals with all that others have asked or found out. Whether collectives have failed by that. Whoever waits in a
/// collective asks first, which says so. Nothing is left for the next look: ranks that wait ask about each collective
/// that they have under way, so that thousands of questions wait for one that comes late.
#[cold]
pub fn look(world: &World) -> bool {
    let mut failed = false;
    while let Some((process, bytes)) = take(world) {
        failed |= hear(world, process, &bytes);
    }
    failed
}

/// Deals with what `process` has asked or found out. Whether collectives have failed by that.
fn hear(world: &World, process: u32, bytes: &[u8]) -> bool {
    let mut failed = false;
    let word = |at: usize| bytes.get(8 * at..8 * at + 8).map_or(0, |word| u64::from_ne_bytes(word.try_into().expect("eight bytes")));
    let context = Context::from_raw(word(0));
    match word(0) >> CONTEXT_BITS {
        QUESTION => {
            let calls = (bytes.len() / 8).saturating_sub(QUESTION_WORDS) / CALL_WORDS;
            let counts = std::array::from_fn(|form| word(2 + form) as u32);
            let stuck = (word(1) >> STUCK_SHIFT != 0).then_some(counts);
            // Read so late that its numbers have come again, it would be taken for one about other collectives. Who has freed the communicator tells none.
            if counts != [0; call::SERIES]
                && let Some(comm) = comm::of_context(context)
                && comm.calls.full_number(word(QUESTION_WORDS) as i32) != asked_number(word(QUESTION_WORDS) as i32, counts)
            {
                return false;
            }
            // Oldest first.
            for at in (0..calls).rev().map(|at| QUESTION_WORDS + at * CALL_WORDS) {
                let asked = Asked {
                    process,
                    tag: word(at) as i32,
                    number: asked_number(word(at) as i32, counts),
                    others: (word(at) >> 32) as u32,
                    call: Call::from_words(std::array::from_fn(|i| word(at + 1 + i))),
                    waiting: at == QUESTION_WORDS,
                    stuck,
                };
                if compare(world, context, &asked) {
                    failed = true;
                    break;
                }
            }
        }
        VERDICT if bytes.len() >= 8 * VERDICT_WORDS => {
            remember(context, Failing::from_word(word(2)), word(1) as i32, String::from_utf8_lossy(&bytes[8 * VERDICT_WORDS..]).into_owned());
            world.engine().lock().completed();
            failed = true;
        }
        ENDED => {
            let ended = Over { context, place: word(1) as i32, number: (word(1) >> 32) as u32, process };
            let mut over = OVER.lock().unwrap_or_else(PoisonError::into_inner);
            if over.len() == ENDED_MAX {
                over.remove(0);
            }
            over.push(ended);
        }
        _ => {}
    }
    failed
}

/// The number of a call that a rank with these numbers of calls asks about, modulo 2^32.
fn asked_number(tag: i32, counts: [u32; call::SERIES]) -> u32 {
    call::nearest_number(tag, counts[call::series_of(tag)])
}

fn take(world: &World) -> Option<(u32, Vec<u8>)> {
    let mut engine = world.engine().lock();
    let index = engine.open(comm::bootstrap());
    let any = Pattern { source: Pattern::ANY_SOURCE, tag: TAG };
    let seen = engine.probe(index, any)?;
    let mut bytes = vec![0; seen.bytes as usize];
    // SAFETY: the bytes outlive the receive, which is complete at once: what was sent went with its header.
    let buffer = unsafe { Buffer::contiguous(bytes.as_mut_ptr(), bytes.len()) };
    let id = engine.receive(index, any, &buffer).ok()?;
    match engine.take(id) {
        Some(outcome) => Some((outcome.source, bytes)),
        None => {
            // Never freed: the message may still come.
            std::mem::forget(bytes);
            engine.detach(id);
            None
        }
    }
}

/// What another process has told about one call of its.
struct Asked {
    process: u32,
    tag: i32,
    /// Of the call, modulo 2^32.
    number: u32,
    others: u32,
    call: Call,
    /// It waits in this call; not one of those before.
    waiting: bool,
    /// It waits for nothing else, and has begun as many calls of each form.
    stuck: Option<[u32; call::SERIES]>,
}

/// Compares what another rank has called with what this process has. Whether there is nothing more to compare.
fn compare(world: &World, context: Context, asked: &Asked) -> bool {
    let comm = comm::of_context(context);
    let place = call::place_of(asked.tag);
    {
        let failed = failures();
        // Who has freed the communicator behind a failure comes to no call on it any more.
        let about = |f: &&Failed| f.context == context && f.one.is_none_or(|one| comm.is_none() || one.place == place);
        if let Some(f) = failed.iter().find(about) {
            let failing = f.one.filter(|_| comm.is_some()).map_or(Failing::All, |one| Failing::One(one.place));
            let (class, text, all) = (f.class, f.text.clone(), matches!(failing, Failing::All));
            drop(failed);
            // What it has ended without an error, it has ended.
            if asked.waiting || all {
                tell_verdict(world, asked.process, context, failing, class, &text);
            }
            return asked.waiting || all;
        }
    }
    let Some(comm) = comm else {
        let freed = FREED.lock().unwrap_or_else(PoisonError::into_inner).contains(&context);
        // Nonblocking ones that are under way outlast the handle.
        if freed && asked.waiting && !world.may_have_threads() && !crate::request::tasks_running() {
            tell_ended(world, asked, context);
        }
        return asked.waiting;
    };
    let found = match comm.calls.at(asked.tag) {
        Some(mine) => mine.call.mismatch(asked.call).map(|class| {
            // In step: where as many calls of other forms have gone before, and no line of one can be taken for one of
            // the other.
            let alone = mine.call.parts_alone(asked.call) && mine.others == asked.others && mine.call.summary() != asked.call.summary();
            let failing = match (alone, asked.waiting) {
                (false, _) => Failing::All,
                (true, true) => Failing::One(place),
                (true, false) => Failing::Ended(place),
            };
            (asked.tag, mine.call, class, failing)
        }),
        None => deadlock(world, &comm, asked).map(|(tag, mine)| (tag, mine, crate::consts::MPI_ERR_OTHER, Failing::All)),
    };
    let Some((tag, mine, class, failing)) = found else {
        if asked.waiting && has_ended(world, &comm, asked.tag) {
            tell_ended(world, asked, context);
        }
        return false;
    };
    let (number, other) = (call::number_of(tag), who(&comm, asked.process));
    let text = format!("rank {} called {mine} as collective {number} on {}, {other} called {}", comm.rank, comm::describe(&comm), asked.call);
    fail(world, &comm, failing, class, text);
    true
}

fn tell_ended(world: &World, asked: &Asked, context: Context) {
    let one = call::place_of(asked.tag) as u32 as u64 | (asked.number as u64) << 32;
    tell(world, asked.process, &[context.raw() | ENDED << CONTEXT_BITS, one], &[]);
}

/// Whether this process, which waits now, has ended its collective with `tag`; in doubt not.
fn has_ended(world: &World, comm: &Comm, tag: i32) -> bool {
    // Another thread may be in it.
    if world.may_have_threads() || !comm.calls.has_begun(tag) {
        return false;
    }
    const BLOCKING: usize = Form::Blocking as usize;
    const NONBLOCKING: usize = Form::Nonblocking as usize;
    match call::series_of(tag) {
        BLOCKING => STUCK_IN.get().is_none_or(|(context, stuck)| context != comm.context || call::place_of(stuck) != call::place_of(tag)),
        NONBLOCKING => !crate::request::tasks_running(),
        _ => false,
    }
}

/// The call in which this thread waits, where neither it nor the rank that has asked will ever come to the call of the other. With several
/// threads another one may.
fn deadlock(world: &World, comm: &Comm, asked: &Asked) -> Option<(i32, Call)> {
    // What it has told may be long ago: this process may have come to that call since, and have forgotten it.
    let counts = asked.stuck.filter(|_| asked.waiting && !comm.calls.has_begun(asked.tag))?;
    let (context, tag) = STUCK_IN.get()?;
    let certain = context == comm.context && call::wait_for_each_other(tag, asked.tag, counts) && !world.may_have_threads();
    certain.then(|| Some((tag, comm.calls.at(tag)?.call))).flatten()
}

fn who(comm: &Comm, process: u32) -> String {
    match (comm.group.rank_of(process), comm.remote.as_ref().and_then(|remote| remote.rank_of(process))) {
        (Some(rank), _) => format!("rank {rank}"),
        (None, Some(rank)) => format!("rank {rank} of the remote group"),
        (None, None) => format!("process {process}"),
    }
}

/// Whether the collective of `place` has failed. Its error, where the program has not had it on this rank; from then on
/// the program has been told of all on the communicator.
fn untold(context: Context, place: i32) -> Option<Result<()>> {
    let mut failed = failures();
    let of_comm = || failed.iter().filter(|f| f.context == context);
    let found = of_comm().find(|f| f.one.is_some_and(|one| one.place == place))?;
    if found.one.is_some_and(|one| one.raised) {
        return Some(Ok(()));
    }
    let error = found.error();
    failed.iter_mut().filter(|f| f.context == context).filter_map(|f| f.one.as_mut()).for_each(|one| one.raised = true);
    Some(Err(error))
}

/// Looks for messages of other calls than this process has called, which nobody will receive.
///
/// # Errors
/// What was called where, if there are some of which the program has not been told.
pub fn leftovers(comm: &Comm) -> Result<()> {
    if all_fail(comm.context) {
        return Ok(());
    }
    let tags = {
        let mut engine = comm.engine();
        // What a failed process was to receive, or to go on with, is left behind by collectives that have ended in errors.
        if engine.has_failures() {
            return Ok(());
        }
        // A fabric that fails says so at the next call.
        let _ = engine.progress();
        if engine.queued_in(comm.coll).1 == 0 {
            return Ok(());
        }
        engine.unexpected_in(comm.coll, LEFTOVERS_MAX)
    };
    for (source, tag) in tags {
        if let Some(raised) = untold(comm.context, call::place_of(tag)) {
            raised?;
            continue;
        }
        let Some(mine) = comm.calls.at(tag).map(|mine| mine.call).filter(|mine| mine.summary() != call::summary_of(tag)) else { continue };
        let (theirs, number) = (Call::name_of_summary(call::summary_of(tag)), call::number_of(tag));
        let text = format!(
            "rank {} called {mine} as collective {number} on {}, rank {source} called {theirs} with other arguments or in another form",
            comm.rank,
            comm::describe(comm)
        );
        let world = world::get()?;
        fail(world, comm, Failing::All, crate::consts::MPI_ERR_OTHER, text);
        return check(comm, tag);
    }
    Ok(())
}
