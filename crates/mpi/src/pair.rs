//! Short collectives of two ranks, in which a rank sends the other one message, receives one, or both: what every algorithm comes to there, without the
//! steps that it takes among many. A rank whose memory is not in one piece takes those steps, and its messages are the same.

use crate::call::Call;
use crate::coll;
use crate::comm::Comm;
use crate::error::Result;
use crate::link::{Transfer, block};
use crate::mismatch::{self, About};
use crate::request;
use crate::world::{self, fault};
use engine::{Buffer, Mode, Pattern, Target};

/// Longest message, bytes. Up to here all algorithms chosen for two ranks send each message whole.
pub const BYTES_MAX: usize = coll::WHOLE_BETWEEN_TWO_BYTES;

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

    /// This process' rank.
    #[inline]
    pub fn rank(&self) -> usize {
        self.comm.rank as usize
    }

    /// This rank's half of `all`, and the other's.
    #[inline]
    pub fn blocks<'b>(&self, all: &'b mut [u8]) -> (&'b mut [u8], &'b mut [u8]) {
        let (low, high) = all.split_at_mut(all.len() / 2);
        if self.comm.rank == 0 { (low, high) } else { (high, low) }
    }

    #[inline]
    pub fn send(&self, data: &[u8]) -> Result<()> {
        self.run(data, &mut [])
    }

    #[inline]
    pub fn receive(&self, into: &mut [u8]) -> Result<()> {
        self.run(&[], into)
    }

    /// Begins the collective and ends it: sends `data` to the other rank and receives `into` from it, each unless it is empty.
    pub fn run(&self, data: &[u8], into: &mut [u8]) -> Result<()> {
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
