//! What a target does for others: it takes their requests in order and answers them, in whatever thread makes progress, the network's included.

use super::elements::{self, Change};
use super::message::{Code, HEAD_WORDS, Head, REQUEST_BYTES_MAX, REQUEST_TAG};
use super::runs::{Run, Runs};
use super::{SERVED, Window, index_of, lock, request_lines};
use crate::consts::*;
use crate::error::Result;
use crate::op::{self, Basic};
use crate::world;
use engine::{Buffer, Engine, FabricError, Fault, Mode, Pattern, RequestId, Service};
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// Requests of one window that are being received or wait for those before them.
const PENDING_MAX: usize = 64;

struct Answers;

static ANSWERS: Answers = Answers;

/// From now on this process answers.
pub(super) fn begin() -> Result<()> {
    world::get()?.engine().lock().answer_with(Some(&ANSWERS));
    Ok(())
}

/// Where no window is left that others ask something of, progress looks for none.
pub(super) fn end_if_idle() -> Result<()> {
    let mut engine = world::get()?.engine().lock();
    if SERVED.lock().is_empty() {
        engine.answer_with(None);
    }
    Ok(())
}

impl Service for Answers {
    fn serve(&self, engine: &mut Engine) -> std::result::Result<bool, Fault> {
        let mut moved = request_lines::answer_all(engine);
        let windows: smallvec::SmallVec<[Arc<Window>; 4]> = SERVED.lock().iter().filter(|window| window.has_work(engine)).cloned().collect();
        for window in windows {
            moved |= window.serve(engine)?;
        }
        Ok(moved)
    }
}

/// A request of `source`.
struct Pending {
    source: u32,
    /// While it is being received.
    receiving: Option<RequestId>,
    message: Vec<u8>,
}

/// Who waits for this process' lock.
struct Waiting {
    source: u32,
    exclusive: bool,
    tag: i32,
}

/// The target's side of a window. It is entered with the engine held.
#[derive(Default)]
pub(super) struct Serving {
    pending: VecDeque<Pending>,
    /// Answers that have not left: the engine reads them.
    leaving: Vec<(RequestId, Vec<u8>)>,
    waiting: VecDeque<Waiting>,
    /// Who holds the lock alone; how many hold it together.
    exclusive: Option<u32>,
    readers: u32,
    /// The first error of each origin that it has not been told.
    wrong: BTreeMap<u32, i32>,
}

/// What came of a request.
enum Done {
    Yes,
    /// There is no memory for the answer now.
    Later,
    /// An error that the origin hears of later.
    Wrong(i32),
}

impl Window {
    /// Whether there is anything to serve. With many windows that is all that progress asks of most of them.
    fn has_work(&self, engine: &Engine) -> bool {
        self.unfinished.load(Ordering::Relaxed) || index_of(self).is_some_and(|index| engine.queued_in(index).1 > 0)
    }

    fn serve(&self, engine: &mut Engine) -> std::result::Result<bool, Fault> {
        let Some(index) = index_of(self) else { return Ok(false) };
        let mut serving = lock(&self.serving);
        let serving = &mut *serving;
        let mut moved = false;
        let asked = Pattern { source: Pattern::ANY_SOURCE, tag: REQUEST_TAG };
        while serving.pending.len() < PENDING_MAX
            && let Some(found) = engine.probe(index, asked)
        {
            let bytes = (found.bytes as usize).min(REQUEST_BYTES_MAX);
            let mut message = Vec::new();
            // Without memory it stays where it is, and so does what follows it: its sender waits.
            if message.try_reserve_exact(bytes).is_err() {
                break;
            }
            message.resize(bytes, 0);
            let Some(taken) = engine.probe_taking(index, asked) else { break };
            // SAFETY: the message's own memory, which does not move until it has been received.
            let buffer = unsafe { Buffer::contiguous(message.as_mut_ptr(), bytes) };
            let id = engine.receive_message(taken, &buffer)?;
            serving.pending.push_back(Pending { source: found.source, receiving: Some(id), message });
            moved = true;
        }
        if !serving.leaving.is_empty() {
            serving.leaving.retain(|(id, _)| engine.take(*id).is_none() && engine.knows(*id));
        }
        if !serving.pending.is_empty() {
            moved |= self.answer_all(engine, serving)?;
        }
        self.unfinished.store(!serving.pending.is_empty() || !serving.leaving.is_empty(), Ordering::Relaxed);
        Ok(moved)
    }

    /// Answers the requests that have come, each origin's in order.
    fn answer_all(&self, engine: &mut Engine, serving: &mut Serving) -> std::result::Result<bool, Fault> {
        let (mut later, mut held_up, mut moved) = (VecDeque::new(), Vec::new(), false);
        for mut pending in std::mem::take(&mut serving.pending) {
            if let Some(outcome) = pending.receiving.and_then(|id| engine.take(id)) {
                pending.receiving = None;
                if outcome.failed || outcome.truncated() {
                    moved = true;
                    continue;
                }
            }
            if pending.receiving.is_some() || held_up.contains(&pending.source) {
                held_up.push(pending.source);
                later.push_back(pending);
                continue;
            }
            match self.answer(engine, serving, &pending)? {
                Done::Later => {
                    held_up.push(pending.source);
                    later.push_back(pending);
                    continue;
                }
                Done::Wrong(class) => drop(serving.wrong.entry(pending.source).or_insert(class)),
                Done::Yes => {}
            }
            moved = true;
        }
        serving.pending = later;
        Ok(moved)
    }

    fn answer(&self, engine: &mut Engine, serving: &mut Serving, pending: &Pending) -> std::result::Result<Done, Fault> {
        let source = pending.source;
        let Some((head, runs, data)) = parse(&pending.message) else { return Ok(Done::Wrong(MPI_ERR_INTERN)) };
        let told = |serving: &mut Serving| serving.wrong.remove(&source).unwrap_or(0) as u64;
        Ok(match head.code {
            Code::Put => self.store(&runs, data),
            Code::Get => return self.load(engine, serving, source, head.tag, &runs),
            Code::Change => return self.alter(engine, serving, source, &head, &runs, data),
            Code::Confirm => {
                let class = told(serving);
                self.reply(engine, serving, source, head.tag, class.to_ne_bytes().to_vec())?;
                Done::Yes
            }
            Code::Lock => {
                serving.waiting.push_back(Waiting { source, exclusive: head.exclusive, tag: head.tag });
                self.grant(engine, serving)?;
                Done::Yes
            }
            Code::Unlock => {
                match serving.exclusive == Some(source) {
                    true => serving.exclusive = None,
                    false => serving.readers = serving.readers.saturating_sub(1),
                }
                let class = told(serving);
                self.reply(engine, serving, source, head.tag, class.to_ne_bytes().to_vec())?;
                self.grant(engine, serving)?;
                Done::Yes
            }
        })
    }

    /// Gives the lock to those whose turn it is: first come, first served.
    fn grant(&self, engine: &mut Engine, serving: &mut Serving) -> std::result::Result<(), Fault> {
        while let Some(first) = serving.waiting.front() {
            if serving.exclusive.is_some() || (first.exclusive && serving.readers > 0) {
                break;
            }
            let Some(Waiting { source, exclusive, tag }) = serving.waiting.pop_front() else { break };
            match exclusive {
                true => serving.exclusive = Some(source),
                false => serving.readers += 1,
            }
            self.reply(engine, serving, source, tag, 0u64.to_ne_bytes().to_vec())?;
        }
        Ok(())
    }

    fn reply(&self, engine: &mut Engine, serving: &mut Serving, source: u32, tag: i32, message: Vec<u8>) -> std::result::Result<(), Fault> {
        let Some(side) = &self.messages else { return Ok(()) };
        let to = engine::Target { process: self.comm.group.process(source), context: side.context, source: self.comm.rank, tag };
        // SAFETY: the message is kept until it has left.
        let buffer = unsafe { Buffer::contiguous(message.as_ptr().cast_mut(), message.len()) };
        match engine.without_coalescing(|engine| engine.send(&to, &buffer, Mode::Standard)) {
            Ok(None) => Ok(()),
            Ok(Some(id)) => {
                serving.leaving.push((id, message));
                Ok(())
            }
            // Nobody waits for the answer any more.
            Err(Fault::Fabric(FabricError::Peer { .. })) => Ok(()),
            Err(fault) => Err(fault),
        }
    }

    /// Where the window begins here, if it has all of `runs`, whose items reach `item_bytes` (or as many as they say).
    fn within(&self, runs: &[Run], item_bytes: Option<u64>) -> Option<*mut u8> {
        let size = self.size_of(self.comm.rank) as i64;
        let inside = |(low, high): (i64, i64)| match self.dynamic() {
            false => low >= 0 && high <= size,
            true => self.is_attached(low as usize, high as usize),
        };
        let good = runs.iter().all(|run| run.count == 0 || run.span(item_bytes.unwrap_or(run.bytes)).is_some_and(inside));
        good.then(|| if self.dynamic() { std::ptr::null_mut() } else { self.base as *mut u8 })
    }

    fn store(&self, runs: &[Run], data: &[u8]) -> Done {
        if total(runs) != Some(data.len() as u64) {
            return Done::Wrong(MPI_ERR_INTERN);
        }
        let Some(base) = self.within(runs, None) else { return Done::Wrong(MPI_ERR_RMA_RANGE) };
        let mut rest = data;
        for (at, bytes) in items(base, runs) {
            let (piece, later) = rest.split_at(bytes);
            // SAFETY: inside the window, as was checked.
            unsafe { std::ptr::copy_nonoverlapping(piece.as_ptr(), at, bytes) };
            rest = later;
        }
        Done::Yes
    }

    fn load(&self, engine: &mut Engine, serving: &mut Serving, source: u32, tag: i32, runs: &[Run]) -> std::result::Result<Done, Fault> {
        let bytes = total(runs).filter(|bytes| *bytes as usize <= REQUEST_BYTES_MAX);
        let (Some(bytes), Some(base)) = (bytes, self.within(runs, None)) else {
            self.reply(engine, serving, source, tag, Vec::new())?;
            return Ok(Done::Yes);
        };
        let mut answer: Vec<u8> = Vec::new();
        if answer.try_reserve_exact(bytes as usize).is_err() {
            return Ok(Done::Later);
        }
        for (at, bytes) in items(base, runs) {
            // SAFETY: inside the window, as was checked; the vector has room.
            unsafe {
                std::ptr::copy_nonoverlapping(at, answer.as_mut_ptr().add(answer.len()), bytes);
                answer.set_len(answer.len() + bytes);
            }
        }
        self.reply(engine, serving, source, tag, answer)?;
        Ok(Done::Yes)
    }

    fn alter(&self, engine: &mut Engine, serving: &mut Serving, source: u32, head: &Head, runs: &[Run], data: &[u8]) -> std::result::Result<Done, Fault> {
        let (Some(change), Some(kind)) = (Change::from_word(head.change), Basic::ALL.get(head.kind as usize).copied()) else {
            return Ok(Done::Wrong(MPI_ERR_INTERN));
        };
        let size = kind.size_bytes();
        let allowed = match change {
            Change::Operation(op) => op::allowed(op, kind),
            Change::CompareAndSwap => true,
        };
        let elements = runs.iter().try_fold(0u64, |sum, run| sum.checked_add(run.count)).filter(|count| *count <= REQUEST_BYTES_MAX as u64);
        let Some(elements) = elements.filter(|count| allowed && *count as usize * change.origin_bytes(size) == data.len()) else {
            return Ok(Done::Wrong(MPI_ERR_INTERN));
        };
        let Some(base) = self.within(runs, Some(elements::reach_bytes(kind) as u64)) else {
            if head.tag == 0 {
                return Ok(Done::Wrong(MPI_ERR_RMA_RANGE));
            }
            self.reply(engine, serving, source, head.tag, Vec::new())?;
            return Ok(Done::Yes);
        };
        let mut old = Vec::new();
        if head.tag != 0 {
            if old.try_reserve_exact(elements as usize * size).is_err() {
                return Ok(Done::Later);
            }
            old.resize(elements as usize * size, 0);
        }
        // SAFETY: the elements lie inside the window, as was checked. All that changes elements of this window comes here, with the engine held.
        unsafe { elements::change(base, runs, change, kind, data, &mut old) };
        if head.tag != 0 {
            self.reply(engine, serving, source, head.tag, old)?;
        }
        Ok(Done::Yes)
    }

    /// Before the window goes, after all ranks have ended what they asked for: what is answered leaves.
    pub(super) fn end_service(&self, function: &'static str) -> Result<()> {
        self.wait(world::get()?.engine(), function, |engine| {
            let mut serving = lock(&self.serving);
            serving.leaving.retain(|(id, _)| engine.take(*id).is_none() && engine.knows(*id));
            serving.leaving.is_empty().then_some(Ok(()))
        })?;
        self.close_side(function)
    }
}

/// Head, runs and data of a request; `None` for what is none.
fn parse(message: &[u8]) -> Option<(Head, Runs, &[u8])> {
    let word = |bytes: &[u8]| u64::from_ne_bytes(bytes.try_into().expect("eight bytes"));
    let (head, rest) = message.split_at_checked(8 * HEAD_WORDS)?;
    let words: Vec<u64> = head.chunks_exact(8).map(word).collect();
    let head = Head::parse(&words)?;
    let (runs, data) = rest.split_at_checked(8 * Run::WORDS * head.runs)?;
    let runs: Runs = runs.chunks_exact(8 * Run::WORDS).map(|run| Run::from_words(std::array::from_fn(|at| word(&run[8 * at..8 * at + 8])))).collect();
    // Items without bytes could be more than there is time for.
    runs.iter().all(|run| run.bytes > 0).then_some((head, runs, data))
}

/// Bytes of the data of all runs. `None` past 63 bits.
fn total(runs: &[Run]) -> Option<u64> {
    runs.iter().try_fold(0u64, |sum, run| sum.checked_add(run.size()?)).filter(|sum| *sum <= i64::MAX as u64)
}

/// Address and bytes of each item.
fn items(base: *mut u8, runs: &[Run]) -> impl Iterator<Item = (*mut u8, usize)> + '_ {
    runs.iter().flat_map(move |run| {
        let start = base.wrapping_offset(run.at as isize);
        (0..run.count as usize).map(move |item| (start.wrapping_offset((run.stride as isize).wrapping_mul(item as isize)), run.bytes as usize))
    })
}
