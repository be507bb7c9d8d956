//! Collectives of two ranks: a rank sends the other something, receives something, or both, which is what every algorithm comes to there, without the
//! steps that it takes among many.
//!
//! Short ones go by [messages](Pair), one each way at most. A rank whose memory is not in one piece takes those steps, and its messages are the same.

use crate::call::Call;
use crate::coll::{self, Reducer};
use crate::comm::Comm;
use crate::error::Result;
use crate::link::{Transfer, block};
use crate::mismatch::{self, About};
use crate::request;
use crate::world::{self, fault};
use engine::{Buffer, Mode, Pattern, Target};

/// Longest message, bytes. Up to here all algorithms chosen for two ranks send each message whole.
pub const BYTES_MAX: usize = coll::WHOLE_BETWEEN_TWO_BYTES;

/// What a rank sends where it combines what it receives.
#[derive(Clone, Copy)]
pub enum Sends<'a> {
    Nothing,
    These(&'a [u8]),
    /// What it combines with.
    Own,
}

/// What two ranks send each other in one collective: one of these once.
pub trait Exchange {
    /// Longest that a rank sends or receives, bytes, all in one piece. `None`: whatever its memory is.
    const BYTES_MAX: Option<usize>;

    /// This process' rank.
    fn rank(&self) -> usize;

    /// Sends `data` to the other rank and receives `into` from it, each unless it is empty.
    fn run(&self, data: &[u8], into: &mut [u8]) -> Result<()>;

    /// Receives the other rank's vector and combines it with `mine`, which may be `into`, in rank order.
    fn combine(&self, op: &(impl Reducer + ?Sized), sends: Sends<'_>, mine: Option<&[u8]>, into: &mut [u8]) -> Result<()>;

    /// This rank's half of `all`, and the other's.
    #[inline]
    fn blocks<'b>(&self, all: &'b mut [u8]) -> (&'b mut [u8], &'b mut [u8]) {
        let (low, high) = all.split_at_mut(all.len() / 2);
        if self.rank() == 0 { (low, high) } else { (high, low) }
    }

    #[inline]
    fn send(&self, data: &[u8]) -> Result<()> {
        self.run(data, &mut [])
    }

    #[inline]
    fn receive(&self, into: &mut [u8]) -> Result<()> {
        self.run(&[], into)
    }
}

/// The collective `call` of a communicator of two ranks, as long as nothing of it has begun.
pub struct Pair<'a> {
    comm: &'a Comm,
    function: &'static str,
    call: Call,
}

impl<'a> Pair<'a> {
    /// `None` where `comm` has another number of ranks, or two groups.
    #[inline(always)]
    pub fn of(comm: &'a Comm, function: &'static str, call: Call) -> Option<Pair<'a>> {
        (comm.size() == 2 && comm.remote.is_none()).then_some(Pair { comm, function, call })
    }

    /// Waits for what is under way.
    #[cold]
    #[inline(never)]
    fn end(&self, receive: Option<Transfer<'_>>, send: Transfer<'_>) -> Result<()> {
        block(self.comm.cell, self.function, async move {
            send.await?;
            match receive {
                Some(receive) => receive.await,
                None => Ok(()),
            }
        })
    }
}

impl Exchange for Pair<'_> {
    const BYTES_MAX: Option<usize> = Some(BYTES_MAX);

    #[inline]
    fn rank(&self) -> usize {
        self.comm.rank as usize
    }

    /// Begins the collective and ends it.
    fn run(&self, data: &[u8], into: &mut [u8]) -> Result<()> {
        let (comm, world) = (self.comm, world::get()?);
        let begun = comm.calls.begin(self.call);
        mismatch::check(comm, begun.tag)?;
        let about = About { context: comm.context, rank: comm.rank, begun };
        let other = 1 - comm.rank;
        let process = comm.group.process(other);
        let mut engine = comm.cell.lock();
        let mut incoming = None;
        if !into.is_empty() {
            // SAFETY: the memory is borrowed until the receive is complete, or cancelled by the transfer that is made of it below.
            let posted = unsafe { engine.receive_quickly(comm.coll, Pattern { source: other, tag: begun.tag }, into.as_mut_ptr(), into.len(), 0) };
            incoming = Some(posted.map_err(fault)?);
        }
        let mut outgoing = Ok(None);
        if !data.is_empty() {
            let target = Target { process, context: comm.context.collective(), source: comm.rank, tag: begun.tag };
            // SAFETY: the memory is borrowed for longer than the call.
            let left = !engine.has_failures() && unsafe { engine.send_quickly(target, data.as_ptr(), data.len()) };
            if !left {
                outgoing = match engine.has_failures().then(|| engine.context_failed(comm.coll)).flatten() {
                    Some(why) => Err(why),
                    // SAFETY: the memory is borrowed until the send is complete, or cancelled by the transfer that is made of it below.
                    None => engine.send(&target, &unsafe { Buffer::contiguous(data.as_ptr().cast_mut(), data.len()) }, Mode::Standard),
                };
            }
        }
        let Some(id) = incoming else {
            if let Ok(None) = outgoing {
                return Ok(());
            }
            drop(engine);
            return self.end(None, Transfer::started(world, comm.cell, outgoing.map_err(fault), None, &about, process));
        };
        engine.flush_coalesced();
        let mut looked = Ok(None);
        if let Ok(None) = outgoing
            && !request::tasks_running()
        {
            looked = engine.look_briefly(|e| e.own_request_is_complete(id).then_some(()));
            if let Ok(Some(())) = looked
                && engine.own_request_is_well(id, into.len())
            {
                engine.take_own_request(id);
                return Ok(());
            }
        }
        drop(engine);
        let receive = Transfer::started(world, comm.cell, Ok(Some(id)), Some(into.len()), &about, process);
        let send = Transfer::started(world, comm.cell, outgoing.map_err(fault), None, &about, process);
        looked.map_err(fault)?;
        self.end(Some(receive), send)
    }

    #[inline]
    fn combine(&self, op: &(impl Reducer + ?Sized), sends: Sends<'_>, mine: Option<&[u8]>, into: &mut [u8]) -> Result<()> {
        let mut theirs = coll::scratch(into.len())?;
        let out = match sends {
            Sends::Nothing => &[],
            Sends::These(data) => data,
            Sends::Own => mine.unwrap_or(into),
        };
        self.run(out, &mut theirs)?;
        if self.rank() == 0 {
            op.reduce(mine.unwrap_or(into), &mut theirs)?;
            into.copy_from_slice(&theirs);
            return Ok(());
        }
        if let Some(mine) = mine {
            into.copy_from_slice(mine);
        }
        op.reduce(&theirs, into)
    }
}
