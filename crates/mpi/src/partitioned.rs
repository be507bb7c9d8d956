//! Partitioned communication (MPI-5.0 chapter 4).
//!
//! Matching happens once: the sender's initialization sends its terms, which the receiver's initialization has posted a receive for, so that
//! both sides match in the order of their initializations. From then on every partition of the sender is a message of
//! its own, under a tag that the terms name; it leaves as soon as the program says that it is ready, without waiting for the
//! receiver. The receiver posts a receive for each, straight into its buffer, and knows which of its own partitions they fill.
//!
//! Terms travel in the communicator's companion context, partitions in its collective twin, both under negative tags.

use crate::comm::Comm;
use crate::consts::*;
use crate::datatype;
use crate::error::{Error, Result};
use crate::handle::{self, Status};
use crate::p2p::{self, Side, TAG_MAX};
use crate::request;
use crate::world::{self, fault};
use engine::order::{Level, Ordered};
use engine::{Buffer, Context, ContextIndex, Engine, Mode, Outcome, Pattern, RequestId, Target};
use std::collections::BTreeMap;
use std::sync::Arc;

/// What a sender says of itself: partitions, bytes of each, and the number of its first partition.
const TERMS_WORDS: usize = 3;
const TERMS_BYTES: usize = TERMS_WORDS * 8;

/// Numbers that the partitions of all senders of a process may have at once.
const NUMBERS: u64 = (1 << 31) - 2;

/// A partitioned send or receive.
pub struct Partitioned {
    pub comm: Arc<Comm>,
    /// One for each partition of this side.
    buffers: Vec<Buffer>,
    end: End,
}

enum End {
    /// To or from `MPI_PROC_NULL`.
    Nobody {
        sends: bool,
    },
    Sender {
        process: u32,
        context: Context,
        first: u32,
        state: Ordered<Sending>,
    },
    Receiver {
        source: u32,
        process: u32,
        tag: i32,
        data: ContextIndex,
        whole: Buffer,
        state: Ordered<Receiving>,
    },
}

#[derive(Default)]
struct Sending {
    active: bool,
    /// By partition: whether the program has said that it is ready.
    ready: Vec<bool>,
    unready: usize,
    /// Partitions that have not left, and what became of those that cannot.
    leaving: Vec<RequestId>,
    error: Option<Box<Error>>,
}

struct Receiving {
    active: bool,
    terms: Terms,
    /// By partition of the sender: the receive, until it is complete.
    coming: Vec<Option<RequestId>>,
    posted: bool,
    /// Everything before is complete.
    next: usize,
    bytes: u64,
    error: Option<Box<Error>>,
}

enum Terms {
    /// The receive that waits for them, and its memory.
    Awaited(RequestId, Box<[u64; TERMS_WORDS]>),
    Known {
        partitions: usize,
        partition_bytes: usize,
        first: u32,
    },
    /// They made no sense or will not come, or the request was freed.
    Lost,
}

/// First number and count of the partitions of each sender of this process.
static TAKEN: Ordered<Numbers> = Ordered::new(Level::Table, Numbers { next: 0, taken: BTreeMap::new() });

struct Numbers {
    next: u64,
    taken: BTreeMap<u64, u64>,
}

impl Numbers {
    /// Takes `count` numbers in a row, later ones than before as long as there are any. `None` when there are no more.
    fn take(&mut self, count: u64) -> Option<u32> {
        let mut start = self.next;
        // Each taken range is passed at most twice: once on the way to the end, once from the beginning.
        for _ in 0..2 * self.taken.len() + 3 {
            if count > NUMBERS {
                return None;
            }
            if start + count > NUMBERS {
                start = 0;
            }
            match self.taken.range(..start + count).next_back() {
                Some((first, taken)) if first + taken > start => start = first + taken,
                _ => {
                    self.taken.insert(start, count);
                    self.next = start + count;
                    return Some(start as u32);
                }
            }
        }
        None
    }
}

/// The tag of partition `number`. -1 is left for the terms of the largest tag.
fn data_tag(number: u32) -> i32 {
    -2 - number as i32
}

/// Where the terms for a tag of the program are matched: which of the companion contexts, and the tag there. The smallest number stands
/// for any tag in patterns, so the largest tag has a place of its own.
fn terms_place(tag: i32) -> (usize, i32) {
    if tag == TAG_MAX { (1, -1) } else { (0, !tag) }
}

/// `count` elements of each of `partitions` partitions, which lie one after the other (MPI-5.0 §4.2.1).
fn buffers(side: &Side, partitions: i32) -> Result<(Vec<Buffer>, Buffer)> {
    if partitions <= 0 {
        return Err(Error::new(MPI_ERR_ARG, format!("partitions = {partitions} is not positive")));
    }
    let all = side
        .count
        .checked_mul(partitions as i64)
        .ok_or_else(|| Error::new(MPI_ERR_COUNT, format!("{partitions} partitions of {} elements are more than 63 bits hold", side.count)))?;
    let whole = p2p::buffer(&Side { count: all, ..*side })?;
    let datatype = datatype::lookup(side.datatype)?;
    let step = (datatype.extent() as i64)
        .checked_mul(side.count)
        .ok_or_else(|| Error::new(MPI_ERR_COUNT, format!("a partition of {} elements spans more than 63 bits", side.count)))?;
    let one = |at: i32| {
        let start = side.buffer.cast::<u8>().wrapping_offset((step * at as i64) as isize);
        // SAFETY: the program hands the whole buffer over for each time the operation is started, until it is complete (MPI-5.0 §4.2).
        unsafe { datatype.buffer(start, side.count as usize) }
    };
    Ok(((0..partitions).map(one).collect::<Result<_>>()?, whole))
}

/// `MPI_Psend_init`.
pub fn send_init(comm: &'static Comm, side: &Side, partitions: i32) -> Result<handle::Request> {
    let (buffers, _) = buffers(side, partitions)?;
    let end = match p2p::check_send(comm, &Side { count: 0, ..*side })?.target {
        None => End::Nobody { sends: true },
        Some(target) => {
            comm.companions()?;
            let first = TAKEN
                .lock()
                .take(partitions as u64)
                .ok_or_else(|| Error::new(MPI_ERR_OTHER, format!("this process' partitioned sends have more than {NUMBERS} partitions")))?;
            let context = comm.companion().collective();
            let end = End::Sender { process: target.process, context, first, state: Ordered::new(Level::Partitioned, Sending::default()) };
            let terms = [partitions as u64, buffers[0].len() as u64, first as u64];
            send_terms(comm, &target, terms)?;
            let mut engine = comm.engine();
            buffers.iter().for_each(|buffer| engine.prefer(target.process, buffer));
            drop(engine);
            end
        }
    };
    request::partitioned_init(Partitioned { comm: comm.share(), buffers, end })
}

fn send_terms(comm: &Comm, target: &Target, terms: [u64; TERMS_WORDS]) -> Result<()> {
    let world = world::get()?;
    let (twin, tag) = terms_place(target.tag);
    let context = if twin == 0 { comm.companion() } else { comm.companion().collective() };
    let terms = Box::new(terms);
    // SAFETY: the memory lives until the send is complete: see below.
    let buffer = unsafe { Buffer::contiguous(terms.as_ptr().cast_mut().cast(), TERMS_BYTES) };
    let sent = comm.engine().send(&Target { context, tag, ..*target }, &buffer, Mode::Standard).map_err(fault)?;
    if let Some(id) = sent {
        let task = async move {
            crate::link::completed(world, id).await;
            drop(terms);
            Ok(Status::EMPTY)
        };
        let mut request = request::start_task(None, task)?;
        request::free(&mut request)?;
    }
    Ok(())
}

/// `MPI_Precv_init`.
pub fn receive_init(comm: &'static Comm, side: &Side, partitions: i32) -> Result<handle::Request> {
    let (buffers, whole) = buffers(side, partitions)?;
    if side.peer == MPI_ANY_SOURCE || side.tag == MPI_ANY_TAG {
        let (class, what) = if side.tag == MPI_ANY_TAG { (MPI_ERR_TAG, "tag") } else { (MPI_ERR_RANK, "source") };
        return Err(Error::new(class, format!("the {what} of a partitioned receive cannot be any")));
    }
    let end = match p2p::check_pattern(comm, side.peer, side.tag)? {
        None => End::Nobody { sends: false },
        Some(Pattern { source, tag }) => {
            let companions = comm.companions()?;
            let (twin, terms_tag) = terms_place(tag);
            let mut memory = Box::new([0u64; TERMS_WORDS]);
            // SAFETY: the memory is boxed in the request, and the receive is taken back before it goes.
            let buffer = unsafe { Buffer::contiguous(memory.as_mut_ptr().cast(), TERMS_BYTES) };
            let posted = comm.engine().receive(companions[twin], Pattern { source, tag: terms_tag }, &buffer);
            let terms = Terms::Awaited(posted.map_err(fault)?, memory);
            let state = Receiving { active: false, terms, coming: Vec::new(), posted: false, next: 0, bytes: 0, error: None };
            End::Receiver { source, process: comm.peers().process(source), tag, data: companions[1], whole, state: Ordered::new(Level::Partitioned, state) }
        }
    };
    request::partitioned_init(Partitioned { comm: comm.share(), buffers, end })
}

impl Partitioned {
    /// `MPI_Start`.
    pub(crate) fn start(self: &Arc<Self>) -> Result<()> {
        match &self.end {
            End::Nobody { .. } => Ok(()),
            End::Sender { state, .. } => {
                let mut s = state.lock();
                let partitions = self.buffers.len();
                s.ready.clear();
                s.ready.resize(partitions, false);
                (s.active, s.unready) = (true, partitions);
                Ok(())
            }
            End::Receiver { state, .. } => {
                let mut engine = self.comm.engine();
                {
                    let mut r = state.lock();
                    (r.active, r.posted, r.next, r.bytes, r.error) = (true, false, 0, 0, None);
                }
                let posted = self.post(&mut engine);
                drop(engine);
                if !posted {
                    // The terms have not come: whatever the program does meanwhile, progress posts the receives.
                    let this = self.clone();
                    let task = std::future::poll_fn(move |_| match this.post(&mut this.comm.engine()) {
                        true => std::task::Poll::Ready(Ok(Status::EMPTY)),
                        false => std::task::Poll::Pending,
                    });
                    let mut request = request::start_task(None, task)?;
                    request::free(&mut request)?;
                }
                Ok(())
            }
        }
    }

    /// Posts the receives of a started operation, if the terms have come. Returns whether nothing is left to post.
    fn post(&self, engine: &mut Engine) -> bool {
        let End::Receiver { source, process, data, whole, state, .. } = &self.end else { return true };
        let mut r = state.lock();
        if !r.active || r.posted || r.error.is_some() {
            return true;
        }
        if let Terms::Awaited(id, memory) = &r.terms {
            let Some(outcome) = engine.take(*id) else { return false };
            r.terms = parse(&outcome, memory);
        }
        let Terms::Known { partitions, partition_bytes, first } = r.terms else {
            r.error = Some(match engine.source_failed(*data, Pattern { source: *source, tag: data_tag(0) }) {
                Some(why) => fault(why),
                None => Error::new(MPI_ERR_INTERN, "the sender of a partitioned operation has told nothing that makes sense"),
            });
            return true;
        };
        if partitions * partition_bytes > whole.len() {
            let text = format!("the sender has {} bytes in partitions, the receive buffer {}", partitions * partition_bytes, whole.len());
            r.error = Some(Error::new(MPI_ERR_TRUNCATE, text));
        }
        r.coming.clear();
        let same = partition_bytes == self.buffers[0].len();
        for at in 0..partitions {
            let start = (at * partition_bytes).min(whole.len());
            let buffer = match self.buffers.get(at).filter(|_| same) {
                Some(buffer) => buffer.clone(),
                None => whole.part(start, partition_bytes.min(whole.len() - start)),
            };
            match engine.receive(*data, Pattern { source: *source, tag: data_tag(first + at as u32) }, &buffer) {
                Ok(id) => {
                    engine.announce(id, *process);
                    r.coming.push(Some(id));
                }
                Err(broken) => {
                    r.error = Some(fault(broken));
                    break;
                }
            }
        }
        r.posted = true;
        true
    }

    /// Whether the started operation is complete, and how. `consume` makes it inactive then.
    pub(crate) fn look(&self, engine: &mut Engine, consume: bool) -> Option<Result<Status>> {
        match &self.end {
            End::Nobody { sends: true } => Some(Ok(Status::EMPTY)),
            End::Nobody { sends: false } => Some(Ok(Status::PROC_NULL)),
            End::Sender { state, .. } => {
                let mut s = state.lock();
                if s.unready > 0 {
                    return None;
                }
                while let Some(&id) = s.leaving.last() {
                    let left = p2p::check_outcome(&engine.take(id)?);
                    s.leaving.pop();
                    if let Err(error) = left {
                        s.error.get_or_insert(error);
                    }
                }
                s.active &= !consume;
                let error = if consume { s.error.take() } else { s.error.clone() };
                Some(error.map_or(Ok(Status::EMPTY), Err))
            }
            End::Receiver { source, tag, state, .. } => {
                if !self.post(engine) {
                    return None;
                }
                let mut r = state.lock();
                while r.next < r.coming.len() {
                    let at = r.next;
                    if !r.arrived(engine, at) {
                        return None;
                    }
                    r.next += 1;
                }
                r.active &= !consume;
                Some(match &r.error {
                    Some(error) => Err(error.clone()),
                    None => Ok(Status::received(*source as i32, *tag, r.bytes)),
                })
            }
        }
    }

    /// The request is freed: nobody asks for what is under way.
    pub(crate) fn release(&self, engine: &mut Engine) -> Result<()> {
        match &self.end {
            End::Nobody { .. } => {}
            End::Sender { first, state, .. } => {
                state.lock().leaving.drain(..).for_each(|id| engine.detach(id));
                TAKEN.lock().taken.remove(&u64::from(*first));
            }
            End::Receiver { state, .. } => {
                let mut r = state.lock();
                r.active = false;
                r.coming.drain(..).flatten().for_each(|id| engine.detach(id));
                if let Terms::Awaited(id, _) = &r.terms {
                    // A posted receive is taken back at once; one that is being filled belongs to a few bytes that have come with their header.
                    engine.cancel(*id).map_err(fault)?;
                    engine.take(*id);
                    r.terms = Terms::Lost;
                }
            }
        }
        Ok(())
    }

    fn check(&self, partition: i32) -> Result<usize> {
        let there = self.buffers.len();
        let inside = usize::try_from(partition).ok().filter(|at| *at < there);
        inside.ok_or_else(|| Error::new(MPI_ERR_ARG, format!("partition {partition} of an operation with {there} partitions")))
    }
}

impl Receiving {
    /// Whether partition `at` of the sender has come.
    fn arrived(&mut self, engine: &mut Engine, at: usize) -> bool {
        let Some(id) = self.coming[at] else { return true };
        let Some(outcome) = engine.take(id) else { return false };
        self.coming[at] = None;
        self.bytes += outcome.bytes;
        if let Err(error) = p2p::check_outcome(&outcome) {
            self.error.get_or_insert(error);
        }
        true
    }
}

fn parse(outcome: &Outcome, memory: &[u64; TERMS_WORDS]) -> Terms {
    let &[partitions, partition_bytes, first] = memory;
    let good = outcome.bytes as usize == TERMS_BYTES
        && !outcome.truncated()
        && (1..=NUMBERS).contains(&partitions)
        && first < NUMBERS
        && partitions.checked_mul(partition_bytes).is_some_and(|bytes| bytes <= isize::MAX as u64)
        && first + partitions <= NUMBERS;
    match good {
        true => Terms::Known { partitions: partitions as usize, partition_bytes: partition_bytes as usize, first: first as u32 },
        false => Terms::Lost,
    }
}

/// The sender's partitions that fill partition `at` of `own_bytes`, of a sender that has `partitions` of `partition_bytes`.
fn fills(at: usize, own_bytes: usize, own_partitions: usize, partitions: usize, partition_bytes: usize) -> std::ops::Range<usize> {
    if own_bytes == partition_bytes && own_partitions == partitions {
        return at..at + 1;
    }
    if own_bytes == 0 || partition_bytes == 0 {
        return 0..partitions;
    }
    let first = at * own_bytes / partition_bytes;
    let end = ((at + 1) * own_bytes).div_ceil(partition_bytes);
    first.min(partitions)..end.min(partitions)
}

/// `MPI_Pready`, `MPI_Pready_range` and `MPI_Pready_list`. Nothing leaves where a partition is wrong.
///
/// # Errors
/// `MPI_ERR_REQUEST` unless the request is an active partitioned send; `MPI_ERR_ARG` for partitions that there are not, or that are ready.
pub fn ready(request: handle::Request, mut partitions: impl Iterator<Item = i32> + Clone) -> Result<()> {
    let p = request::partitioned(request)?;
    let (process, context, first, state) = match &p.end {
        End::Nobody { sends: true } => return partitions.try_for_each(|at| p.check(at).map(drop)),
        End::Sender { process, context, first, state } => (*process, *context, *first, state),
        _ => return Err(Error::new(MPI_ERR_REQUEST, "the request is a receive")),
    };
    let mut engine = p.comm.engine();
    let mut s = state.lock();
    if !s.active {
        return Err(Error::new(MPI_ERR_REQUEST, "the request is inactive"));
    }
    let mark = |s: &mut Sending| -> Result<()> {
        for (done, partition) in partitions.clone().enumerate() {
            let refused = match p.check(partition) {
                Ok(at) if !std::mem::replace(&mut s.ready[at], true) => continue,
                Ok(_) => Error::new(MPI_ERR_ARG, format!("partition {partition} is ready already")),
                Err(error) => error,
            };
            partitions.clone().take(done).for_each(|marked| s.ready[marked as usize] = false);
            return Err(refused);
        }
        Ok(())
    };
    mark(&mut s)?;
    for at in partitions.map(|partition| partition as usize) {
        s.unready -= 1;
        let target = Target { process, context, source: p.comm.rank, tag: data_tag(first + at as u32) };
        match engine.send(&target, &p.buffers[at], Mode::Standard) {
            Ok(Some(id)) => s.leaving.push(id),
            Ok(None) => {}
            // The operation is complete all the same when every partition is ready, and whoever completes it hears of that.
            Err(broken) => {
                s.error.get_or_insert(fault(broken));
            }
        }
    }
    if s.unready == 0 {
        // Another thread may wait for the operation.
        engine.completed();
    }
    Ok(())
}

/// `MPI_Parrived`.
///
/// # Errors
/// `MPI_ERR_REQUEST` when the request is no partitioned receive; `MPI_ERR_ARG` for a partition that there is not.
pub fn arrived(request: handle::Request, partition: i32) -> Result<bool> {
    if request == MPI_REQUEST_NULL {
        return Ok(true);
    }
    let p = request::partitioned(request)?;
    let at = p.check(partition)?;
    let state = match &p.end {
        End::Nobody { sends: false } => return Ok(true),
        End::Receiver { state, .. } => state,
        _ => return Err(Error::new(MPI_ERR_REQUEST, "the request is a send")),
    };
    let look = |engine: &mut Engine| {
        if !state.lock().active {
            return true;
        }
        if !p.post(engine) {
            return false;
        }
        let mut r = state.lock();
        let Terms::Known { partitions, partition_bytes, .. } = r.terms else { return false };
        let wanted = fills(at, p.buffers[at].len(), p.buffers.len(), partitions, partition_bytes);
        wanted.into_iter().all(|of| of >= r.coming.len() || r.arrived(engine, of))
    };
    Ok(request::try_for(p.comm.cell, |engine| Ok(look(engine).then_some(())))?.is_some())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn numbers_come_round_and_pass_what_is_taken() {
        let mut numbers = Numbers { next: NUMBERS - 10, taken: BTreeMap::from([(0, 5), (7, 3)]) };
        assert_eq!(numbers.take(8), Some((NUMBERS - 10) as u32));
        assert_eq!(numbers.take(2), Some((NUMBERS - 2) as u32));
        assert_eq!(numbers.take(2), Some(5));
        assert_eq!(numbers.take(1), Some(10));
        assert_eq!(numbers.take(NUMBERS), None);
        assert_eq!(numbers.take(NUMBERS + 1), None);
        assert_eq!(numbers.take(NUMBERS - 21), Some(11));
        assert_eq!(numbers.take(1), None);
        numbers.taken.remove(&10);
        assert_eq!(numbers.take(1), Some(10));
    }

    #[test]
    fn tags_are_negative_distinct_and_never_any() {
        assert_eq!(data_tag(0), -2);
        assert_eq!(data_tag(NUMBERS as u32 - 1), i32::MIN + 1);
        assert_eq!(terms_place(0), (0, -1));
        assert_eq!(terms_place(TAG_MAX - 1), (0, i32::MIN + 1));
        assert_eq!(terms_place(TAG_MAX), (1, -1));
    }

    #[test]
    fn terms_that_make_no_sense_are_refused() {
        let outcome = |bytes| Outcome { bytes, ..Outcome::default() };
        assert!(matches!(parse(&outcome(24), &[3, 8, 5]), Terms::Known { partitions: 3, partition_bytes: 8, first: 5 }));
        for (bytes, words) in [(23, [3, 8, 5]), (24, [0, 8, 5]), (24, [NUMBERS, 8, 1]), (24, [3, u64::MAX / 2, 5]), (24, [3, 8, u64::MAX])] {
            assert!(matches!(parse(&outcome(bytes), &words), Terms::Lost), "{words:?}");
        }
    }

    proptest! {
        /// A partition of the receiver needs just the partitions of the sender that share a byte with it.
        #[test]
        fn partitions_need_those_that_overlap(own_bytes in 1usize..20, own in 1usize..20, bytes in 1usize..20, count in 1usize..20, at in 0usize..20) {
            let at = at % own;
            let needed = fills(at, own_bytes, own, count, bytes);
            for of in 0..count {
                let overlaps = of * bytes < (at + 1) * own_bytes && at * own_bytes < (of + 1) * bytes;
                prop_assert_eq!(needed.contains(&of), overlaps);
            }
        }
    }
}
