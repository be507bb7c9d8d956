//! Communicators whose members run on several hosts: the first collective that asks tells all members who shares a host with whom, since a process knows that of
//! its own host alone.

use crate::call::Begun;
use crate::coll::{self, Hosts};
use crate::comm::Comm;
use crate::consts::MPI_ERR_OTHER;
use crate::error::{Error, Result};
use crate::link::Channel;
use crate::world;
use engine::{Cell, Engine};
use std::future::poll_fn;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::task::Poll;

/// What the members of a communicator that reaches several hosts know of where they run.
#[derive(Default)]
pub struct Spread {
    /// The collective that asks has begun: on each member the first one there.
    asked: AtomicBool,
    /// What it has found: `None` where nobody shares a host with another member.
    known: OnceLock<Option<Hosts>>,
    failed: AtomicBool,
}

impl Spread {
    /// Where the members of `comm` do not all share memory; of one job, since those of others are on no list of hosts. All members see the same.
    pub fn of(comm: &Comm) -> Option<Arc<Spread>> {
        (comm.remote.is_none() && comm.size() > 2 && !comm.reaches_beyond && comm.is_networked()).then(Arc::default)
    }

    /// What all members know; `None` before they have asked.
    #[inline]
    pub fn hosts(&self) -> Option<&Hosts> {
        self.known.get()?.as_ref()
    }
}

/// What a collective does first on a communicator of several hosts, whose members have not asked yet.
pub enum Ask {
    /// It asks.
    Here(Arc<Spread>, Box<Channel>),
    /// Another one, which has begun before it, asks.
    Elsewhere(Arc<Spread>),
}

impl Ask {
    /// For the next collective on `comm`. `None`: there is nothing to be asked.
    pub fn next(comm: &Comm, begun: Begun) -> Result<Option<Ask>> {
        let Some(spread) = comm.spread().filter(|spread| spread.known.get().is_none()) else { return Ok(None) };
        if spread.asked.load(Ordering::Relaxed) {
            return Ok(Some(Ask::Elsewhere(spread.clone())));
        }
        let channel = Box::new(Channel::asking(comm, begun)?);
        spread.asked.store(true, Ordering::Relaxed);
        Ok(Some(Ask::Here(spread.clone(), channel)))
    }

    /// All members know, or none of them goes on.
    pub async fn settle(self) -> Result<()> {
        match self {
            Ask::Here(spread, channel) => {
                let asking = Asking { spread: &spread, cell: channel.cell() };
                let known = ask(&channel).await?;
                asking.spread.known.get_or_init(|| known);
                Ok(())
            }
            Ask::Elsewhere(spread) => {
                poll_fn(|_| match (spread.known.get(), spread.failed.load(Ordering::Acquire)) {
                    (Some(_), _) => Poll::Ready(Ok(())),
                    (None, true) => Poll::Ready(Err(Error::new(MPI_ERR_OTHER, "the first collective on the communicator has failed"))),
                    (None, false) => Poll::Pending,
                })
                .await
            }
        }
    }
}

/// However the asking ends, collectives that have begun since go on.
struct Asking<'s> {
    spread: &'s Spread,
    cell: &'static Cell<Engine>,
}

impl Drop for Asking<'_> {
    fn drop(&mut self) {
        if self.spread.known.get().is_none() {
            self.spread.failed.store(true, Ordering::Release);
        }
        self.cell.lock().completed();
    }
}

/// Everybody tells the lowest process that it shares memory with, and whether its host has more ranks than cores.
async fn ask(channel: &Channel) -> Result<Option<Hosts>> {
    let world = world::get()?;
    let mine = [world.process.memory_ranks()[0], world.crowded as u32];
    let mut all = coll::zeros(8 * coll::Link::size(channel))?;
    let words: Vec<u8> = mine.iter().flat_map(|word| word.to_ne_bytes()).collect();
    coll::allgather(channel, channel.tuning(), Some(&words), &mut all).await?;
    let word = |bytes: &[u8]| u32::from_ne_bytes(bytes.try_into().expect("four bytes"));
    let numbers: Vec<u32> = all.chunks_exact(8).map(|one| word(&one[..4])).collect();
    Ok(Hosts::new(&numbers, all.chunks_exact(8).any(|one| word(&one[4..]) != 0)))
}
