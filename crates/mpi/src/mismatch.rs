//! Collectives that do not match: how ranks find out, and how all of them get an error.
//!
//! A message of another call has another tag ([`crate::call`]), so that it is never taken for one of this; the ranks wait. Who has
//! waited for some time in a collective tells the rank that it waits for what it has called, and that one compares, once it waits
//! in some call itself. Where the two differ, both calls and both ranks go to all members of the communicator. From then on each
//! collective on it ends in that error.

use crate::call::{self, Begun, Call};
use crate::comm::{self, Comm};
use crate::error::{Error, Result};
use crate::world::{self, World};
use engine::{Buffer, Context, Pattern, Target};
use std::cell::Cell;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};

/// Tag of these messages, in the context of processes that have no communicator in common.
const TAG: i32 = -2;
/// Longest text of an error that is told to others, bytes.
const TEXT_BYTES_MAX: usize = 512;
/// First word of a message: context in the low 48 bits, then what it is.
const CONTEXT_BITS: u32 = 48;
const QUESTION: u64 = 1;
const VERDICT: u64 = 2;
/// Earlier calls that a question tells, too.
const EARLIER: u32 = 7;
/// The second word of a question has the rank, and above it whether that rank waits for nothing else; then come its numbers of calls.
const STUCK_SHIFT: u32 = 32;
const QUESTION_WORDS: usize = 2 + call::SERIES;
/// Words of a question for each call: tag and call.
const CALL_WORDS: usize = 1 + Call::WORDS;
/// Questions answered at one look.
const QUESTIONS_PER_LOOK: usize = 64;
/// Most communicators whose collectives have failed that are remembered; a further one replaces the oldest.
const FAILED_MAX: usize = 4096;
/// Unexpected messages that are looked at for those of another call.
const LEFTOVERS_MAX: usize = 64;

struct Failed {
    context: Context,
    class: i32,
    text: String,
}

static FAILED: Mutex<Vec<Failed>> = Mutex::new(Vec::new());
static ANY_FAILED: AtomicBool = AtomicBool::new(false);

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

/// # Errors
/// That of an earlier collective on the communicator, which did not match on all ranks.
#[inline]
pub fn check(context: Context) -> Result<()> {
    if ANY_FAILED.load(Ordering::Relaxed) { known(context) } else { Ok(()) }
}

#[cold]
fn known(context: Context) -> Result<()> {
    let failed = FAILED.lock().unwrap_or_else(PoisonError::into_inner);
    match failed.iter().find(|f| f.context == context) {
        Some(f) => Err(Error::new(f.class, f.text.clone())),
        None => Ok(()),
    }
}

fn remember(context: Context, class: i32, text: String) -> bool {
    let mut failed = FAILED.lock().unwrap_or_else(PoisonError::into_inner);
    if failed.iter().any(|f| f.context == context) {
        return false;
    }
    if failed.len() == FAILED_MAX {
        failed.remove(0);
    }
    failed.push(Failed { context, class, text });
    ANY_FAILED.store(true, Ordering::Relaxed);
    true
}

/// Sends if that can be done at once; what cannot is said again at the next look.
fn tell(world: &World, process: u32, words: &[u64], text: &[u8]) {
    let mut bytes: Vec<u8> = words.iter().flat_map(|word| word.to_ne_bytes()).collect();
    bytes.extend_from_slice(text);
    let target = Target { process, context: comm::bootstrap(), source: world.me, tag: TAG };
    // SAFETY: the bytes outlive the call, and a send that is not complete at once does not begin.
    let buffer = unsafe { Buffer::contiguous(bytes.as_mut_ptr(), bytes.len()) };
    // A fabric that fails says so at the next progress.
    let _ = world.engine().lock().send_now(&target, &buffer);
}

/// Tells `process`, for which this one waits, what it has called.
#[cold]
pub fn ask(world: &World, about: &About, process: u32) -> Result<()> {
    known(about.context)?;
    let stuck = NOTHING_ELSE.get();
    if stuck {
        STUCK_IN.set(Some((about.context, about.begun.tag)));
    }
    let comm = comm::of_context(about.context);
    let mut words = vec![about.context.raw() | QUESTION << CONTEXT_BITS, about.rank as u64 | (stuck as u64) << STUCK_SHIFT];
    words.extend(comm.as_ref().map_or([0; call::SERIES], |comm| comm.calls.counts()).map(u64::from));
    let mut add = |tag: i32, call: Call| {
        words.push(tag as u64);
        words.extend(call.to_words());
    };
    add(about.begun.tag, about.begun.call);
    // Where an earlier call has not matched, both may have ended it and be in later ones that do match.
    if let Some(comm) = comm {
        comm.calls.before(about.begun.tag, EARLIER).for_each(|(tag, call)| add(tag, call));
    }
    tell(world, process, &words, &[]);
    Ok(())
}

/// All collectives on a communicator fail from now on, on all its ranks.
#[cold]
pub fn fail(world: &World, comm: &Comm, class: i32, text: String) {
    if !remember(comm.context, class, text.clone()) {
        return;
    }
    let groups = [Some(&comm.group), comm.remote.as_ref()];
    for process in groups.into_iter().flatten().flat_map(|group| group.processes()).filter(|process| *process != world.me) {
        tell_verdict(world, process, comm.context, class, &text);
    }
    world.engine().lock().completed();
}

fn tell_verdict(world: &World, process: u32, context: Context, class: i32, text: &str) {
    let mut end = text.len().min(TEXT_BYTES_MAX);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    tell(world, process, &[context.raw() | VERDICT << CONTEXT_BITS, class as u64], &text.as_bytes()[..end]);
}

/// Deals with what others have asked or found out.
#[cold]
pub fn look(world: &World) {
    for _ in 0..QUESTIONS_PER_LOOK {
        let Some((process, bytes)) = take(world) else { return };
        let word = |at: usize| bytes.get(8 * at..8 * at + 8).map_or(0, |word| u64::from_ne_bytes(word.try_into().expect("eight bytes")));
        let context = Context::from_raw(word(0));
        match word(0) >> CONTEXT_BITS {
            QUESTION => {
                let calls = (bytes.len() / 8).saturating_sub(QUESTION_WORDS) / CALL_WORDS;
                let counts = std::array::from_fn(|form| word(2 + form) as u32);
                let stuck = (word(1) >> STUCK_SHIFT != 0).then_some(counts);
                // Oldest first.
                for at in (0..calls).rev().map(|at| QUESTION_WORDS + at * CALL_WORDS) {
                    let asked = Asked {
                        process,
                        rank: word(1) as u32,
                        tag: word(at) as i32,
                        call: Call::from_words(std::array::from_fn(|i| word(at + 1 + i))),
                        // Of the call in which it waits, not of those before.
                        stuck: stuck.filter(|_| at == QUESTION_WORDS),
                    };
                    if compare(world, context, &asked) {
                        break;
                    }
                }
            }
            VERDICT if bytes.len() >= 16 => {
                remember(context, word(1) as i32, String::from_utf8_lossy(&bytes[16..]).into_owned());
                world.engine().lock().completed();
            }
            _ => {}
        }
    }
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
    rank: u32,
    tag: i32,
    call: Call,
    /// It waits for nothing else, and has begun as many calls of each form.
    stuck: Option<[u32; call::SERIES]>,
}

/// Compares what another rank has called with what this process has. Whether there is nothing more to compare.
fn compare(world: &World, context: Context, asked: &Asked) -> bool {
    {
        let failed = FAILED.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(f) = failed.iter().find(|f| f.context == context) {
            let (class, text) = (f.class, f.text.clone());
            drop(failed);
            tell_verdict(world, asked.process, context, class, &text);
            return true;
        }
    }
    let Some(comm) = comm::of_context(context) else { return true };
    let (tag, mine, class) = match comm.calls.at(asked.tag) {
        Some(mine) => (asked.tag, mine, mine.mismatch(asked.call)),
        None => match deadlock(world, &comm, asked) {
            Some((tag, mine)) => (tag, mine, Some(crate::consts::MPI_ERR_OTHER)),
            None => return false,
        },
    };
    if let Some(class) = class {
        let (number, other) = (call::number_of(tag), who(&comm, asked.rank, asked.process));
        let text = format!("rank {} called {mine} as collective {number} on {}, {other} called {}", comm.rank, comm::describe(&comm), asked.call);
        fail(world, &comm, class, text);
    }
    class.is_some()
}

/// The call in which this thread waits, where neither it nor the rank that has asked will ever come to the call of the other. With several
/// threads another one may.
fn deadlock(world: &World, comm: &Comm, asked: &Asked) -> Option<(i32, Call)> {
    let counts = asked.stuck?;
    let (context, tag) = STUCK_IN.get()?;
    let certain = context == comm.context && call::wait_for_each_other(tag, asked.tag, counts) && !world.may_have_threads();
    certain.then(|| Some((tag, comm.calls.at(tag)?))).flatten()
}

fn who(comm: &Comm, rank: u32, process: u32) -> String {
    match comm.group.rank_of(process) {
        Some(_) => format!("rank {rank}"),
        None => format!("rank {rank} of the remote group"),
    }
}

/// Looks for messages of other calls than this process has called, which nobody will receive.
///
/// # Errors
/// What was called where, if there are some.
pub fn leftovers(comm: &Comm) -> Result<()> {
    if check(comm.context).is_err() {
        return Ok(());
    }
    let tags = {
        let mut engine = comm.engine();
        // What a failed process was to receive, or to go on with, is left behind by collectives that have ended in errors.
        if engine.bereft() {
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
        let Some(mine) = comm.calls.at(tag).filter(|mine| mine.summary() != call::summary_of(tag)) else { continue };
        let (theirs, number) = (Call::name_of_summary(call::summary_of(tag)), call::number_of(tag));
        let text = format!(
            "rank {} called {mine} as collective {number} on {}, rank {source} called {theirs} with other arguments or in another form",
            comm.rank,
            comm::describe(comm)
        );
        let world = world::get()?;
        fail(world, comm, crate::consts::MPI_ERR_OTHER, text);
        return check(comm.context);
    }
    Ok(())
}
