//! Buffered sends (MPI-5.0 §3.6): the message leaves at once, or is copied to the buffer that the program attached.

use crate::comm::Comm;
use crate::consts::*;
use crate::error::{Error, Result};
use crate::handle;
use crate::p2p::Sending;
use crate::session::{self, Session};
use crate::world::{self, fault};
use engine::order::{Level, Ordered, OrderedGuard};
use engine::{Buffer, Doing, Engine, Mode, RequestId};
use std::ffi::c_void;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// An attached buffer and the messages in it.
pub struct Attached {
    base: *mut u8,
    /// `None`: the library provides what is needed (`MPI_BUFFER_AUTOMATIC`).
    bytes: Option<usize>,
    messages: Vec<Stored>,
}

// SAFETY: the program hands the buffer over until it is detached (MPI-5.0 §3.6.1).
unsafe impl Send for Attached {}

struct Stored {
    /// Range of the buffer, overhead included.
    start: usize,
    end: usize,
    request: RequestId,
    /// Memory of an automatic buffer.
    _own: Option<Vec<u8>>,
}

/// The buffer attached to the process, used where neither a communicator nor its session has one.
static PROCESS: Ordered<Option<Attached>> = Ordered::new(Level::ProcessBuffer, None);

/// A buffer is attached to the process, and nothing is in it.
static PROCESS_EMPTY: AtomicBool = AtomicBool::new(false);

/// Whether a buffered send may leave without a look at any buffer, where it leaves at once: one is attached to the process, of which nothing is to be given
/// back.
#[inline(always)]
pub fn needs_no_look() -> bool {
    PROCESS_EMPTY.load(Ordering::Relaxed)
}

/// What a buffer is attached to.
#[derive(Clone)]
pub enum Holder<'a> {
    Process,
    Comm(&'a Comm),
    Session(Arc<Session>),
}

impl Holder<'_> {
    fn slot(&self) -> OrderedGuard<'_, Option<Attached>> {
        match self {
            Holder::Process => PROCESS.lock(),
            Holder::Comm(comm) => comm.buffer.lock(),
            Holder::Session(session) => session.buffer.lock(),
        }
    }

    /// Whether a buffer is attached and nothing is in it. Called with its lock held.
    fn say_empty(&self, empty: bool) {
        if let Holder::Process = self {
            PROCESS_EMPTY.store(empty, Ordering::Relaxed);
        }
    }
}

/// Attaches a buffer.
pub fn attach(holder: &Holder<'_>, base: *mut c_void, bytes: i64) -> Result<()> {
    let automatic = base as usize == MPI_BUFFER_AUTOMATIC;
    if !automatic && bytes < 0 {
        return Err(Error::new(MPI_ERR_ARG, format!("size = {bytes} is negative")));
    }
    if base.is_null() && bytes > 0 && crate::checks::on() {
        return Err(Error::new(MPI_ERR_BUFFER, format!("the buffer is null and size = {bytes}")));
    }
    let mut slot = holder.slot();
    if slot.is_some() {
        return Err(Error::new(MPI_ERR_BUFFER, "a buffer is attached already"));
    }
    *slot = Some(Attached { base: base.cast(), bytes: (!automatic).then_some(bytes as usize), messages: Vec::new() });
    holder.say_empty(true);
    Ok(())
}

/// Waits until the messages in the buffer have left, and gives it back: address and size.
pub fn detach(holder: &Holder<'_>, function: &'static str) -> Result<(*mut c_void, usize)> {
    flush(holder, function)?;
    let mut slot = holder.slot();
    holder.say_empty(false);
    match slot.take() {
        Some(attached) => Ok(match attached.bytes {
            Some(bytes) => (attached.base.cast(), bytes),
            None => (MPI_BUFFER_AUTOMATIC as *mut c_void, 0),
        }),
        None => Err(Error::new(MPI_ERR_BUFFER, "no buffer is attached")),
    }
}

/// Waits until the messages in the buffer have left.
pub fn flush(holder: &Holder<'_>, function: &'static str) -> Result<()> {
    let pending = pending(holder);
    if pending.is_empty() {
        return Ok(());
    }
    let world = world::get()?;
    for cell in world.engines.all() {
        crate::request::wait_for(world, cell, Doing::call(function), |e| gone(e, &pending).then_some(()))?;
    }
    Ok(())
}

/// The messages that are in the buffer now.
pub fn pending(holder: &Holder<'_>) -> Vec<RequestId> {
    holder.slot().as_ref().map_or(Vec::new(), |a| a.messages.iter().map(|m| m.request).collect())
}

/// Whether those messages that leave through `engine` have left.
pub fn gone(engine: &mut Engine, pending: &[RequestId]) -> bool {
    let vci = engine.vci();
    pending.iter().filter(|id| id.vci() == vci).all(|id| engine.peek(*id).is_some() || !engine.knows(*id))
}

/// Before a session goes: its buffered messages leave.
pub fn flush_session(session: &Arc<Session>, function: &'static str) -> Result<()> {
    flush(&Holder::Session(session.clone()), function)
}

/// `MPI_Bsend`.
pub fn send(comm: &Comm, sending: &Sending) -> Result<()> {
    // Nothing is sent to MPI_PROC_NULL, so that no buffer is needed.
    let Some(target) = &sending.target else { return Ok(()) };
    // The communicator's own buffer, else that of its session, else that of the process (MPI-5.0 §3.6).
    let session = session::of(&comm.group).map(Holder::Session);
    let holders = [Some(Holder::Comm(comm)), session, Some(Holder::Process)];
    let mut slots = holders.iter().flatten().map(|holder| (holder, holder.slot())).filter(|(_, slot)| slot.is_some());
    let mut found = slots.next();
    let Some((holder, Some(attached))) = found.as_mut().map(|(holder, slot)| (holder, slot.as_mut())) else {
        return Err(Error::new(MPI_ERR_BUFFER, "no buffer is attached for buffered sends"));
    };
    for cell in world::get()?.engines.all() {
        let mut engine = cell.lock();
        if engine.vci() == comm.context.vci() {
            engine.progress().map_err(fault)?;
        }
        attached.messages.retain(|m| m.request.vci() != engine.vci() || engine.take(m.request).is_none());
    }
    holder.say_empty(attached.messages.is_empty());
    if comm.engine().send_now(target, &sending.buffer).map_err(fault)? {
        return Ok(());
    }
    // The copy is made while the engine is free for others.
    let bytes = sending.buffer.len();
    let need = bytes + MPI_BSEND_OVERHEAD;
    let (start, own, copy) = match attached.bytes {
        None => {
            let mut own = crate::p2p::packed_copy(&sending.buffer)?;
            // SAFETY: the memory stays until the message has left: `own` is kept with its request.
            let copy = unsafe { Buffer::contiguous(own.as_mut_ptr(), bytes) };
            (0, Some(own), copy)
        }
        Some(size) => {
            let start = attached.room(size, need).ok_or_else(|| {
                Error::new(MPI_ERR_BUFFER, format!("the message needs {need} bytes of the attached buffer of {size}, and there is no such room"))
            })?;
            // SAFETY: inside the attached buffer, with room for `bytes` that is unused until the message has left.
            let copy = unsafe { Buffer::contiguous(attached.base.add(start), bytes) };
            copy.copy_from(&sending.buffer);
            (start, None, copy)
        }
    };
    let sent = comm.engine().send(target, &copy, Mode::Standard).map_err(fault)?;
    if let Some(request) = sent {
        attached.messages.push(Stored { start, end: start + need, request, _own: own });
        attached.messages.sort_by_key(|m| m.start);
        holder.say_empty(false);
    }
    Ok(())
}

impl Attached {
    /// The first gap of `need` bytes.
    fn room(&self, size: usize, need: usize) -> Option<usize> {
        let mut start = 0;
        for message in &self.messages {
            if message.start.saturating_sub(start) >= need {
                return Some(start);
            }
            start = message.end;
        }
        (size.saturating_sub(start) >= need).then_some(start)
    }
}

/// `MPI_Buffer_iflush`: a request that is complete when the messages that are in the buffer now have left.
pub fn iflush(holder: &Holder<'_>, comm: Option<handle::Comm>) -> Result<handle::Request> {
    let (world, pending) = (world::get()?, pending(holder));
    let task = async move {
        std::future::poll_fn(|_| match world.engines.all().all(|cell| gone(&mut cell.lock(), &pending)) {
            true => std::task::Poll::Ready(Ok(handle::Status::EMPTY)),
            false => std::task::Poll::Pending,
        })
        .await
    };
    crate::request::start_task(comm, task)
}
