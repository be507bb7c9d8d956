//! Point-to-point communication (MPI-5.0 chapter 3). Arguments are checked here, once, as the standard defines error classes.

use crate::checks;
use crate::comm::Comm;
use crate::consts::*;
use crate::datatype;
use crate::error::{Error, Result};
use crate::handle::{self, Status};
use crate::request::{self, DONE, DONE_PROC_NULL};
use crate::world::{self, World, fault};
use engine::{Buffer, Cell, ContextIndex, Doing, Engine, Guard, Outcome, Pattern, RequestId, Target};
use std::ffi::c_void;
use std::sync::Arc;

pub use engine::Mode as EngineMode;

/// Largest tag: `MPI_TAG_UB`.
pub const TAG_MAX: i32 = i32::MAX;

/// Communication modes (MPI-5.0 §3.4).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Mode {
    Standard,
    Buffered,
    Synchronous,
    /// The receive is posted already: nothing to gain here, so a standard send.
    Ready,
}

impl Mode {
    fn engine(self) -> EngineMode {
        if self == Mode::Synchronous { EngineMode::Synchronous } else { EngineMode::Standard }
    }
}

/// One side of a message, as the program gives it.
#[derive(Clone, Copy)]
pub struct Side {
    pub buffer: *mut c_void,
    pub count: i64,
    pub datatype: handle::Datatype,
    /// Destination or source.
    pub peer: i32,
    pub tag: i32,
}

/// A checked send: where it goes, or nowhere (`MPI_PROC_NULL`).
#[derive(Clone)]
pub struct Sending {
    pub buffer: Buffer,
    pub target: Option<Target>,
}

/// A checked receive; `None` for `MPI_PROC_NULL`.
#[derive(Clone)]
pub struct Receiving {
    pub buffer: Buffer,
    pub pattern: Option<Pattern>,
}

#[inline]
pub(crate) fn buffer(side: &Side) -> Result<Buffer> {
    if side.count < 0 {
        return Err(Error::new(MPI_ERR_COUNT, format!("count = {} is negative", side.count)));
    }
    let datatype = datatype::lookup(side.datatype)?;
    if !datatype.committed() && checks::on() {
        return Err(Error::new(MPI_ERR_TYPE, format!("the datatype {:#x} is not committed", side.datatype.0)));
    }
    if side.buffer.is_null() && side.count > 0 && datatype.predefined() && datatype.size() > 0 && checks::on() {
        return Err(Error::new(MPI_ERR_BUFFER, format!("the buffer is null and count = {}", side.count)));
    }
    // SAFETY: the program hands the buffer over until the operation is complete (MPI-5.0 §3.7.2).
    unsafe { datatype.buffer(side.buffer.cast(), side.count as usize) }
}

#[cold]
fn bad_rank(what: &str, rank: i32, comm: &Comm) -> Box<Error> {
    Error::new(MPI_ERR_RANK, format!("{what} = {rank} is not a rank of a communicator of {} ranks", comm.peers().size()))
}

#[cold]
fn bad_tag(tag: i32) -> Box<Error> {
    Error::new(MPI_ERR_TAG, format!("tag = {tag} is not in 0..={TAG_MAX}"))
}

#[inline]
pub fn check_send(comm: &Comm, side: &Side) -> Result<Sending> {
    match plain_sending(comm, side) {
        Some(sending) => Ok(sending),
        None => check_send_otherwise(comm, side),
    }
}

/// As [`check_send`], where everything is in order and the data is bytes in one piece.
#[inline(always)]
pub(crate) fn plain_sending(comm: &Comm, side: &Side) -> Option<Sending> {
    plain_send(comm, side).map(|(target, bytes)| sending_of(side, target, bytes))
}

/// What [`plain_send`] has found in order.
#[inline(always)]
fn sending_of(side: &Side, target: Target, bytes: usize) -> Sending {
    // SAFETY: the program hands the buffer over until the operation is complete (MPI-5.0 §3.7.2).
    Sending { buffer: unsafe { Buffer::contiguous(side.buffer.cast(), bytes) }, target: Some(target) }
}

#[inline(never)]
fn check_send_otherwise(comm: &Comm, side: &Side) -> Result<Sending> {
    let buffer = buffer(side)?;
    let target = match comm.peer(side.peer) {
        Some(process) => Some(Target { process, context: comm.context, source: comm.rank, tag: side.tag }),
        None if side.peer == MPI_PROC_NULL => None,
        None => return Err(bad_rank("dest", side.peer, comm)),
    };
    if side.tag < 0 {
        return Err(bad_tag(side.tag));
    }
    Ok(Sending { buffer, target })
}

#[inline]
pub fn check_pattern(comm: &Comm, source: i32, tag: i32) -> Result<Option<Pattern>> {
    let source = match source {
        MPI_ANY_SOURCE => Pattern::ANY_SOURCE,
        MPI_PROC_NULL => return Ok(None),
        rank if rank >= 0 && (rank as u32) < comm.peers().size() => rank as u32,
        rank => return Err(bad_rank("source", rank, comm)),
    };
    let tag = match tag {
        MPI_ANY_TAG => Pattern::ANY_TAG,
        tag if tag >= 0 => tag,
        tag => return Err(bad_tag(tag)),
    };
    Ok(Some(Pattern { source, tag }))
}

#[inline]
pub fn check_receive(comm: &Comm, side: &Side) -> Result<Receiving> {
    match plain_receiving(comm, side) {
        Some(receiving) => Ok(receiving),
        None => check_receive_otherwise(comm, side),
    }
}

/// As [`check_receive`], where everything is in order and the data is bytes in one piece.
#[inline(always)]
pub(crate) fn plain_receiving(comm: &Comm, side: &Side) -> Option<Receiving> {
    let (pattern, bytes) = plain_receive(comm, side)?;
    // SAFETY: the program hands the buffer over until the receive is complete (MPI-5.0 §3.7.2).
    Some(Receiving { buffer: unsafe { Buffer::contiguous(side.buffer.cast(), bytes) }, pattern: Some(pattern) })
}

#[inline(never)]
fn check_receive_otherwise(comm: &Comm, side: &Side) -> Result<Receiving> {
    let buffer = buffer(side)?;
    Ok(Receiving { buffer, pattern: check_pattern(comm, side.peer, side.tag)? })
}

/// The status of an outcome.
#[inline]
pub fn status_of(outcome: &Outcome) -> Status {
    let mut status = Status::received(outcome.source as i32, outcome.tag, outcome.bytes);
    if outcome.cancelled {
        status.set_cancelled(true);
    }
    status
}

/// The error of an outcome, if it has one.
#[inline]
pub fn check_outcome(outcome: &Outcome) -> Result<()> {
    if outcome.truncated() || outcome.failed { Err(bad_outcome(outcome)) } else { Ok(()) }
}

#[cold]
fn bad_outcome(outcome: &Outcome) -> Box<Error> {
    if outcome.failed {
        return match world::get() {
            Ok(world) => fault(world.reasons.of(outcome.source)),
            Err(error) => error,
        };
    }
    Error::new(
        MPI_ERR_TRUNCATE,
        format!(
            "the message from rank {} with tag {} has {} bytes, the receive buffer {} bytes",
            outcome.source,
            outcome.tag,
            outcome.bytes + outcome.cut_bytes,
            outcome.bytes
        ),
    )
}

#[inline]
fn doing(function: &'static str, comm: &Comm, peer: i32, tag: i32) -> Doing {
    let process = comm.peer(peer).map_or(-1, |p| p as i32);
    Doing { function, peer: process, tag }
}

/// Starts a checked send; `None` when it is complete. A short one may wait for others until the next look ([`Engine::flush_coalesced`]).
#[inline]
pub fn start_send(engine: &mut Engine, comm: &Comm, sending: &Sending, mode: Mode) -> Result<Option<RequestId>> {
    let Some(target) = &sending.target else { return Ok(None) };
    let id = engine.send(target, &sending.buffer, mode.engine()).map_err(fault)?;
    if let Some(id) = id {
        engine.set_owner(id, comm.owner());
    }
    Ok(id)
}

/// As [`start_send`], of a persistent send in standard or ready mode; the quick way first.
#[inline]
pub fn start_send_again(comm: &Comm, sending: &Sending, mode: Mode) -> Result<Option<RequestId>> {
    let mut engine = comm.engine();
    if let (Mode::Standard | Mode::Ready, Some(target), Some(start)) = (mode, &sending.target, sending.buffer.address())
        // SAFETY: the program hands the buffer over until the operation is complete (MPI-5.0 §3.7.2).
        && unsafe { engine.send_quickly(*target, start, sending.buffer.len()) }
    {
        return Ok(None);
    }
    start_send(&mut engine, comm, sending, mode)
}

/// As [`start_receive`], of a persistent receive.
#[inline]
pub fn start_receive_again(comm: &Comm, pattern: Pattern, buffer: &Buffer) -> Result<RequestId> {
    let mut engine = comm.engine();
    let Some(start) = buffer.address() else { return start_receive(&mut engine, comm, pattern, buffer) };
    // SAFETY: the program hands the buffer over until the receive is complete (MPI-5.0 §3.7.2).
    unsafe { post_quickly(&mut engine, comm, pattern, start, buffer.len()) }.map_err(fault)
}

/// Announces a posted receive where it is known who will send to it.
#[inline]
fn announce(engine: &mut Engine, comm: &Comm, source: u32, id: RequestId) {
    let process = if source == Pattern::ANY_SOURCE { comm.only_peer() } else { Some(comm.peers().process(source)) };
    if let Some(process) = process {
        engine.announce(id, process);
    }
}

/// Starts a checked receive.
#[inline]
pub fn start_receive(engine: &mut Engine, comm: &Comm, pattern: Pattern, buffer: &Buffer) -> Result<RequestId> {
    let id = engine.receive(comm.p2p, pattern, buffer).map_err(fault)?;
    engine.set_owner(id, comm.owner());
    announce(engine, comm, pattern.source, id);
    Ok(id)
}

/// Where a send of bytes in one piece goes, and how many they are, where everything is in order.
#[inline(always)]
fn plain_send(comm: &Comm, side: &Side) -> Option<(Target, usize)> {
    let (Some(process), Ok(datatype)) = (comm.peer(side.peer), datatype::lookup(side.datatype)) else { return None };
    if side.count < 0 || side.tag < 0 || !datatype.contiguous() || !datatype.committed() || side.buffer.is_null() {
        return None;
    }
    let bytes = (datatype.size() as i64).checked_mul(side.count)?;
    Some((Target { process, context: comm.context, source: comm.rank, tag: side.tag }, bytes as usize))
}

/// The quick way of standard sends: everything is in order and the message leaves at once. Otherwise nothing happens.
#[inline(always)]
fn send_quickly(comm: &'static Comm, side: &Side) -> bool {
    let Some((target, bytes)) = plain_send(comm, side) else { return false };
    // SAFETY: the program hands the buffer over for the time of the call at least.
    unsafe { comm.engine().send_quickly(target, side.buffer.cast(), bytes) }
}

/// Whether a side of a message is `MPI_PROC_NULL` and its buffer is in order: a receive is complete then, and so is a send whose tag is in order.
#[inline(always)]
fn nowhere(side: &Side) -> bool {
    side.peer == MPI_PROC_NULL
        && side.count >= 0
        && !side.buffer.is_null()
        && datatype::lookup(side.datatype).is_ok_and(|datatype| datatype.committed() && datatype.bytes(side.count as usize).is_ok())
}

/// Whether a send is over once its message has left.
#[inline(always)]
fn leaves_quickly(mode: Mode) -> bool {
    match mode {
        Mode::Standard | Mode::Ready => true,
        Mode::Buffered => crate::buffered::needs_no_look(),
        Mode::Synchronous => false,
    }
}

/// `MPI_Send` and its modes.
#[inline]
pub fn send(function: &'static str, comm: &'static Comm, side: &Side, mode: Mode) -> Result<()> {
    if leaves_quickly(mode) && send_quickly(comm, side) {
        return Ok(());
    }
    send_otherwise(function, comm, *side, mode)
}

/// As [`send`], where the quick way is not open. Apart, and with a copy of the arguments, so that the quick way keeps them in registers.
#[inline(never)]
fn send_otherwise(function: &'static str, comm: &'static Comm, side: Side, mode: Mode) -> Result<()> {
    let side = &side;
    if nowhere(side) && side.tag >= 0 {
        return Ok(());
    }
    let sending = check_send(comm, side)?;
    if mode == Mode::Buffered {
        return crate::buffered::send(comm, &sending);
    }
    let world = world::get()?;
    // The program may go on to compute, and does not expect that of its messages.
    let mut engine = comm.engine();
    let Some(id) = engine.blocking(|engine| start_send(engine, comm, &sending, mode))? else { return Ok(()) };
    engine.flush_coalesced();
    // What ends the wait for a match comes as soon as a message that is received.
    if mode == Mode::Synchronous && !request::tasks_running() && engine.look_briefly(|e| e.own_request_is_complete(id).then_some(())).map_err(fault)?.is_some()
    {
        return check_outcome(&engine.take_own_request(id));
    }
    drop(engine);
    check_outcome(&request::wait_for(world, comm.cell, doing(function, comm, side.peer, side.tag), |e| e.take(id))?)
}

/// `MPI_Isend` and its modes.
#[inline]
pub fn isend(comm: &'static Comm, side: &Side, mode: Mode) -> Result<handle::Request> {
    if leaves_quickly(mode) && send_quickly(comm, side) {
        return Ok(DONE);
    }
    isend_otherwise(comm, *side, mode)
}

/// As [`isend`], where the quick way is not open.
#[inline(never)]
fn isend_otherwise(comm: &'static Comm, side: Side, mode: Mode) -> Result<handle::Request> {
    let side = &side;
    if nowhere(side) && side.tag >= 0 {
        return Ok(DONE);
    }
    let sending = check_send(comm, side)?;
    if mode == Mode::Buffered {
        crate::buffered::send(comm, &sending)?;
        return Ok(DONE);
    }
    let mut engine = comm.engine();
    let id = start_send(&mut engine, comm, &sending, mode)?;
    engine.leave();
    drop(engine);
    id.map_or(Ok(DONE), request::handle_of)
}

/// How many bytes a receive takes that are in one piece, where everything is in order.
#[inline(always)]
fn plain_bytes(side: &Side) -> Option<usize> {
    let datatype = datatype::lookup(side.datatype).ok()?;
    if side.count < 0 || !datatype.contiguous() || !datatype.committed() || side.buffer.is_null() {
        return None;
    }
    Some((datatype.size() as i64).checked_mul(side.count)? as usize)
}

/// What a receive of bytes in one piece accepts, and how many they are, where everything is in order.
#[inline(always)]
fn plain_receive(comm: &Comm, side: &Side) -> Option<(Pattern, usize)> {
    let source = match side.peer {
        MPI_ANY_SOURCE => Pattern::ANY_SOURCE,
        rank if rank >= 0 && (rank as u32) < comm.peers().size() => rank as u32,
        _ => return None,
    };
    let tag = if side.tag == MPI_ANY_TAG { Pattern::ANY_TAG } else { side.tag };
    if side.tag < 0 && side.tag != MPI_ANY_TAG {
        return None;
    }
    Some((Pattern { source, tag }, plain_bytes(side)?))
}

/// The quick way of receives into bytes in one piece, where everything is in order. `LEAVES`: the program goes on computing.
#[inline(always)]
fn receive_quickly<const LEAVES: bool>(comm: &'static Comm, side: &Side) -> Option<(Guard<'static, Engine>, Result<RequestId>)> {
    let (pattern, bytes) = plain_receive(comm, side)?;
    let mut engine = comm.engine();
    // SAFETY: the program hands the buffer over until the receive is complete (MPI-5.0 §3.7.2).
    let started = unsafe { post_quickly(&mut engine, comm, pattern, side.buffer.cast(), bytes) };
    if LEAVES {
        engine.leave();
    }
    Some((engine, started.map_err(fault)))
}

/// Starts a receive into bytes in one piece, announced where that is worth it.
///
/// # Safety
/// As [`Buffer::contiguous`].
#[inline(always)]
unsafe fn post_quickly(engine: &mut Engine, comm: &Comm, pattern: Pattern, start: *mut u8, bytes: usize) -> std::result::Result<RequestId, engine::Fault> {
    // SAFETY: the caller's promise.
    let started = unsafe { engine.receive_quickly(comm.p2p, pattern, start, bytes, comm.owner()) };
    if bytes > engine.announce_above_bytes()
        && let Ok(id) = started
    {
        announce(engine, comm, pattern.source, id);
    }
    started
}

/// `MPI_Recv`.
#[inline]
pub fn recv(function: &'static str, comm: &'static Comm, side: &Side, give: impl FnOnce(Status)) -> Result<()> {
    let world = world::get()?;
    let Some((mut engine, started)) = receive_quickly::<false>(comm, side) else { return recv_otherwise(function, comm, *side, give) };
    let id = started?;
    engine.flush_coalesced();
    if !request::tasks_running() && engine.look_briefly(|e| e.own_request_is_complete(id).then_some(())).map_err(fault)?.is_some() {
        let outcome = engine.take_own_request(id);
        drop(engine);
        give(status_of(&outcome));
        return check_outcome(&outcome);
    }
    drop(engine);
    end_receive(function, comm, world, id, *side, give)
}

/// As [`recv`], where the quick way is not open.
#[inline(never)]
fn recv_otherwise(function: &'static str, comm: &'static Comm, side: Side, give: impl FnOnce(Status)) -> Result<()> {
    if nowhere(&side) {
        give(Status::PROC_NULL);
        return Ok(());
    }
    let receiving = check_receive(comm, &side)?;
    let Some(pattern) = receiving.pattern else {
        give(Status::PROC_NULL);
        return Ok(());
    };
    let id = start_receive(&mut comm.engine(), comm, pattern, &receiving.buffer)?;
    end_receive(function, comm, world::get()?, id, side, give)
}

/// Waits for receive `id`.
#[inline(never)]
fn end_receive(function: &'static str, comm: &'static Comm, world: &World, id: RequestId, side: Side, give: impl FnOnce(Status)) -> Result<()> {
    let outcome = request::wait_for(world, comm.cell, doing(function, comm, side.peer, side.tag), |e| e.take(id))?;
    // The status is given also where the message was too long.
    give(status_of(&outcome));
    check_outcome(&outcome)
}

#[inline]
fn finish(outcome: &Outcome) -> Result<Status> {
    check_outcome(outcome)?;
    Ok(status_of(outcome))
}

/// `MPI_Irecv`.
#[inline]
pub fn irecv(comm: &'static Comm, side: &Side) -> Result<handle::Request> {
    if let Some((engine, started)) = receive_quickly::<true>(comm, side) {
        drop(engine);
        return request::handle_of(started?);
    }
    if nowhere(side) {
        return Ok(DONE_PROC_NULL);
    }
    let receiving = check_receive(comm, side)?;
    let Some(pattern) = receiving.pattern else { return Ok(DONE_PROC_NULL) };
    let mut engine = comm.engine();
    let id = start_receive(&mut engine, comm, pattern, &receiving.buffer)?;
    engine.leave();
    drop(engine);
    request::handle_of(id)
}

/// `MPI_Sendrecv`: both at once, so that neither waits for the other.
#[inline(always)]
pub fn sendrecv(function: &'static str, comm: &'static Comm, out: Side, into: Side, give: impl FnOnce(Status)) -> Result<()> {
    if nowhere(&out) && out.tag >= 0 && nowhere(&into) {
        give(Status::PROC_NULL);
        return Ok(());
    }
    sendrecv_somewhere(function, comm, &out, &into, give)
}

/// As [`sendrecv`], where one of the two has a peer. Apart, so that what has none keeps its arguments in registers.
#[inline(never)]
fn sendrecv_somewhere(function: &'static str, comm: &'static Comm, out: &Side, into: &Side, give: impl FnOnce(Status)) -> Result<()> {
    let world = world::get()?;
    if exchange_with_self(comm, out, into) {
        give(Status::received(out.peer, out.tag, plain_bytes(out).unwrap_or(0) as u64));
        return Ok(());
    }
    if let Some((target, bytes)) = plain_send(comm, out)
        && let Some((mut engine, started)) = receive_quickly::<false>(comm, into)
    {
        let id = started?;
        // SAFETY: the program hands the buffer over for the time of the call at least.
        let sent = match unsafe { engine.send_quickly(target, out.buffer.cast(), bytes) } {
            true => Ok(None),
            false => {
                let sending = sending_of(out, target, bytes);
                engine.is_going_to_wait();
                start_beside(&mut engine, Some(id), |engine| start_send(engine, comm, &sending, Mode::Standard))
            }
        };
        engine.flush_coalesced();
        if let Ok(None) = sent
            && !request::tasks_running()
            && engine.look_briefly(|e| e.own_request_is_complete(id).then_some(())).map_err(fault)?.is_some()
        {
            let outcome = engine.take_own_request(id);
            drop(engine);
            give(status_of(&outcome));
            return check_outcome(&outcome);
        }
        drop(engine);
        return end_exchange(function, comm, world, Some(id), sent, into, give);
    }
    if nowhere(out) && out.tag >= 0 {
        return recv(function, comm, into, give);
    }
    if nowhere(into) {
        send(function, comm, out, Mode::Standard)?;
        give(Status::PROC_NULL);
        return Ok(());
    }
    let (sending, receiving) = (check_send(comm, out)?, check_receive(comm, into)?);
    exchange(function, comm, world, &sending, &receiving, into, give)
}

/// The quick way where a process exchanges with itself: both buffers are bytes in one piece, that of the receive is long enough, and nothing else is under
/// way that could match. Otherwise nothing happens.
#[inline(always)]
fn exchange_with_self(comm: &'static Comm, out: &Side, into: &Side) -> bool {
    let accepts = (into.peer == out.peer || into.peer == MPI_ANY_SOURCE) && (into.tag == out.tag || into.tag == MPI_ANY_TAG);
    if out.peer != comm.rank as i32 || !accepts || comm.remote.is_some() {
        return false;
    }
    let (Some((target, bytes)), Some(room)) = (plain_send(comm, out), plain_bytes(into)) else { return false };
    // SAFETY: the program hands both buffers over for the time of the call at least, and they have so many bytes.
    bytes <= room && unsafe { comm.engine().exchange_with_self(comm.p2p, &target, out.buffer.cast(), into.buffer.cast(), bytes) }
}

/// Starts a send beside a receive, which is taken back where there is no sending, or is being filled and ends soon.
fn start_beside(engine: &mut Engine, incoming: Option<RequestId>, send: impl FnOnce(&mut Engine) -> Result<Option<RequestId>>) -> Result<Option<RequestId>> {
    let started = engine.without_coalescing(send);
    if let (Some(id), Err(_)) = (incoming, &started) {
        engine.cancel(id).map_err(fault)?;
    }
    started
}

/// Starts a receive and a send; the program is going to wait for both.
fn start_both(comm: &Comm, sending: &Sending, receiving: &Receiving) -> Result<(Option<RequestId>, Result<Option<RequestId>>)> {
    let mut engine = comm.engine();
    engine.is_going_to_wait();
    let incoming = match receiving.pattern {
        Some(pattern) => Some(start_receive(&mut engine, comm, pattern, &receiving.buffer)?),
        None => None,
    };
    let started = start_beside(&mut engine, incoming, |engine| start_send(engine, comm, sending, Mode::Standard));
    Ok((incoming, started))
}

fn exchange(
    function: &'static str,
    comm: &'static Comm,
    world: &World,
    sending: &Sending,
    receiving: &Receiving,
    into: &Side,
    give: impl FnOnce(Status),
) -> Result<()> {
    let (incoming, started) = start_both(comm, sending, receiving)?;
    end_exchange(function, comm, world, incoming, started, into, give)
}

/// Waits for the receive `incoming` and the send `started`.
fn end_exchange(
    function: &'static str,
    comm: &'static Comm,
    world: &World,
    mut incoming: Option<RequestId>,
    started: Result<Option<RequestId>>,
    into: &Side,
    give: impl FnOnce(Status),
) -> Result<()> {
    let (mut outgoing, mut sent) = match started {
        Ok(None) if incoming.is_none() => {
            give(Status::PROC_NULL);
            return Ok(());
        }
        Ok(outgoing) => (outgoing, Ok(())),
        Err(error) => (None, Err(error)),
    };
    let mut outcome = None;
    request::wait_for(world, comm.cell, doing(function, comm, into.peer, into.tag), |e| {
        if let Some(id) = incoming
            && let Some(o) = e.take(id)
        {
            outcome = Some(o);
            incoming = None;
        }
        if let Some(o) = outgoing.and_then(|id| e.take(id)) {
            sent = check_outcome(&o);
            outgoing = None;
        }
        (incoming.is_none() && outgoing.is_none()).then_some(())
    })?;
    match &outcome {
        Some(outcome) => {
            give(status_of(outcome));
            check_outcome(outcome).and(sent)
        }
        None => {
            give(Status::PROC_NULL);
            sent
        }
    }
}

/// Longest message of `MPI_Sendrecv_replace` whose copy needs no memory but the caller's stack, bytes.
const REPLACED_ON_STACK_BYTES: usize = 256;

/// The bytes of a side that lie in one piece and are no more than `most`, where everything is in order.
fn short_piece(side: &Side, most: usize) -> Option<usize> {
    let datatype = datatype::lookup(side.datatype).ok()?;
    let bytes = datatype.size().checked_mul(usize::try_from(side.count).ok()?)?;
    (bytes <= most && datatype.contiguous() && datatype.committed() && !side.buffer.is_null()).then_some(bytes)
}

/// `MPI_Sendrecv_replace`: what is sent is copied first.
pub fn sendrecv_replace(function: &'static str, comm: &'static Comm, out: &Side, into: &Side, give: impl FnOnce(Status)) -> Result<()> {
    if let Some(bytes) = short_piece(out, REPLACED_ON_STACK_BYTES) {
        let mut copy = [0u8; REPLACED_ON_STACK_BYTES];
        // SAFETY: the program's buffer has so many bytes, which nobody writes before the exchange begins.
        unsafe { std::ptr::copy_nonoverlapping(out.buffer.cast(), copy.as_mut_ptr(), bytes) };
        return sendrecv(function, comm, Side { buffer: copy.as_mut_ptr().cast(), ..*out }, *into, give);
    }
    let (mut sending, receiving) = (check_send(comm, out)?, check_receive(comm, into)?);
    let mut copy = packed_copy(&sending.buffer)?;
    // SAFETY: `copy` outlives the exchange, which is complete when it returns.
    sending.buffer = unsafe { Buffer::contiguous(copy.as_mut_ptr(), copy.len()) };
    exchange(function, comm, world::get()?, &sending, &receiving, into, give)
}

/// The copy that `MPI_Isendrecv_replace` sends from; it lives as long as the request.
pub fn copy_for_replace(sending: &mut Sending) -> Result<Arc<Vec<u8>>> {
    let copy = Arc::new(packed_copy(&sending.buffer)?);
    // SAFETY: the request keeps the copy; only reads follow.
    sending.buffer = unsafe { Buffer::contiguous(copy.as_ptr().cast_mut(), copy.len()) };
    Ok(copy)
}

/// A copy of all bytes of a buffer, packed.
///
/// # Errors
/// `MPI_ERR_NO_MEM`.
pub fn packed_copy(buffer: &Buffer) -> Result<Vec<u8>> {
    buffer.try_to_vec().ok_or_else(|| Error::new(MPI_ERR_NO_MEM, format!("no memory for a copy of the message of {} bytes", buffer.len())))
}

/// What a look for a message finds; an error where none can come any more.
#[inline]
fn found_or_failed<T>(
    engine: &mut Engine,
    comm: &Comm,
    pattern: Pattern,
    look: impl FnOnce(&mut Engine, ContextIndex, Pattern) -> Option<T>,
) -> Result<Option<T>> {
    match look(engine, comm.p2p, pattern) {
        None => engine.source_failed(comm.p2p, pattern).map_or(Ok(None), |why| Err(fault(why))),
        found => Ok(found),
    }
}

/// `MPI_Iprobe`.
pub fn iprobe(comm: &'static Comm, source: i32, tag: i32) -> Result<Option<Status>> {
    let Some(pattern) = check_pattern(comm, source, tag)? else { return Ok(Some(Status::PROC_NULL)) };
    let found = request::try_for(comm.cell, |e| found_or_failed(e, comm, pattern, |e, context, pattern| e.probe(context, pattern)))?;
    Ok(found.map(|outcome| status_of(&outcome)))
}

/// `MPI_Probe`.
pub fn probe(function: &'static str, comm: &'static Comm, source: i32, tag: i32) -> Result<Status> {
    let Some(pattern) = check_pattern(comm, source, tag)? else { return Ok(Status::PROC_NULL) };
    await_message(function, comm, source, tag, pattern, |e, context, pattern| e.probe(context, pattern)).map(|outcome| status_of(&outcome))
}

/// Waits until a look for a message finds one.
#[inline(always)]
fn await_message<T>(
    function: &'static str,
    comm: &'static Comm,
    source: i32,
    tag: i32,
    pattern: Pattern,
    look: impl Fn(&mut Engine, ContextIndex, Pattern) -> Option<T>,
) -> Result<T> {
    let world = world::get()?;
    let mut engine = comm.engine();
    engine.flush_coalesced();
    if !request::tasks_running()
        && let Some(found) = engine.look_briefly(|e| found_or_failed(e, comm, pattern, &look).transpose()).map_err(fault)?
    {
        return found;
    }
    drop(engine);
    request::wait_for(world, comm.cell, doing(function, comm, source, tag), |e| found_or_failed(e, comm, pattern, &look).transpose())?
}

/// `MPI_Improbe`.
pub fn improbe(comm: &'static Comm, source: i32, tag: i32) -> Result<Option<(handle::Message, Status)>> {
    let Some(pattern) = check_pattern(comm, source, tag)? else {
        return Ok(Some((MPI_MESSAGE_NO_PROC, Status::PROC_NULL)));
    };
    let found = request::try_for(comm.cell, |e| found_or_failed(e, comm, pattern, |e, context, pattern| e.probe_taking(context, pattern)))?;
    found.map(|message| keep(comm, message)).transpose()
}

/// `MPI_Mprobe`.
pub fn mprobe(function: &'static str, comm: &'static Comm, source: i32, tag: i32) -> Result<(handle::Message, Status)> {
    let Some(pattern) = check_pattern(comm, source, tag)? else { return Ok((MPI_MESSAGE_NO_PROC, Status::PROC_NULL)) };
    keep(comm, await_message(function, comm, source, tag, pattern, |e, context, pattern| e.probe_taking(context, pattern))?)
}

#[inline]
fn keep(comm: &'static Comm, message: engine::Message) -> Result<(handle::Message, Status)> {
    let status = status_of(&message.outcome());
    Ok((request::keep_message(comm.handle(), message)?, status))
}

/// A request that was just started, with the engine that it goes through, entered.
type Started = (&'static Cell<Engine>, Guard<'static, Engine>, RequestId);

/// Starts the receive of a message taken by a matched probe. `None`: there is no message, since it was probed for at `MPI_PROC_NULL`. `on` becomes the
/// communicator of the message.
#[inline(always)]
fn start_matched(message: &mut handle::Message, side: &Side, on: &mut handle::Comm) -> Result<Option<Started>> {
    if *message == MPI_MESSAGE_NO_PROC {
        return start_without(message, side).map(|()| None);
    }
    let Some(bytes) = plain_bytes(side) else { return start_matched_otherwise(message, side, on).map(Some) };
    let (comm, matched) = request::take_message(*message)?;
    *message = MPI_MESSAGE_NULL;
    *on = comm;
    let cell = world::get()?.engines.of(matched.vci());
    let mut engine = cell.lock();
    // SAFETY: the program hands the buffer over until the receive is complete (MPI-5.0 §3.7.2).
    let id = unsafe { engine.receive_message_quickly(matched, side.buffer.cast(), bytes, comm.0 as u32) }.map_err(fault)?;
    Ok(Some((cell, engine, id)))
}

/// As [`start_matched`], of no message.
#[cold]
fn start_without(message: &mut handle::Message, side: &Side) -> Result<()> {
    buffer(side)?;
    *message = MPI_MESSAGE_NULL;
    Ok(())
}

/// As [`start_matched`], where the data is not bytes in one piece, or something is not in order.
#[inline(never)]
fn start_matched_otherwise(message: &mut handle::Message, side: &Side, on: &mut handle::Comm) -> Result<Started> {
    let buffer = buffer(side).inspect_err(|_| *on = request::comm_of_message(*message).unwrap_or(MPI_COMM_NULL))?;
    let (comm, matched) = request::take_message(*message)?;
    *message = MPI_MESSAGE_NULL;
    *on = comm;
    let cell = world::get()?.engines.of(matched.vci());
    let mut engine = cell.lock();
    let id = engine.receive_message(matched, &buffer).map_err(fault)?;
    engine.set_owner(id, comm.0 as u32);
    Ok((cell, engine, id))
}

/// `MPI_Imrecv`. `on` becomes the communicator on which an error is raised, if there is one.
pub fn imrecv(message: &mut handle::Message, side: &Side, on: &mut handle::Comm) -> Result<handle::Request> {
    match start_matched(message, side, on)? {
        None => Ok(DONE_PROC_NULL),
        Some((_, engine, id)) => {
            drop(engine);
            request::handle_of(id)
        }
    }
}

/// `MPI_Mrecv`. `on` as for [`imrecv`].
pub fn mrecv(function: &'static str, message: &mut handle::Message, side: &Side, on: &mut handle::Comm, give: impl FnOnce(Status)) -> Result<()> {
    let Some((cell, mut engine, id)) = start_matched(message, side, on)? else {
        give(Status::PROC_NULL);
        return Ok(());
    };
    engine.flush_coalesced();
    let outcome = if engine.own_request_is_complete(id) {
        engine.take_own_request(id)
    } else {
        drop(engine);
        request::wait_for(world::get()?, cell, Doing::call(function), |e| e.take(id))?
    };
    // The status is given also where the message was too long.
    give(status_of(&outcome));
    check_outcome(&outcome)
}

/// `MPI_Isendrecv`, or with `replace` `MPI_Isendrecv_replace`: one request for both.
pub fn isendrecv(comm: &'static Comm, out: &Side, into: &Side, replace: bool) -> Result<handle::Request> {
    let (mut sending, receiving) = (check_send(comm, out)?, check_receive(comm, into)?);
    let copy = replace.then(|| copy_for_replace(&mut sending)).transpose()?;
    let world = world::get()?;
    let (incoming, started) = start_both(comm, &sending, &receiving)?;
    let task = async move {
        let outcome = match incoming {
            Some(id) => Some(crate::link::completed(world, id).await),
            None => None,
        };
        let sent = match started {
            Ok(Some(id)) => check_outcome(&crate::link::completed(world, id).await),
            Ok(None) => Ok(()),
            Err(error) => Err(error),
        };
        drop(copy);
        sent?;
        outcome.map_or(Ok(Status::PROC_NULL), |o| finish(&o))
    };
    request::start_task(Some(comm.handle()), task)
}
