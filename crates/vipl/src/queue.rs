//! What has completed? Completion queues: which queue of which VI has a descriptor to be retrieved.

use crate::handles::{self, Key};
use crate::nic::{ErrorEvent, Nic};
use crate::status::{ErrorCode, Refusal, Resource, Result};
use crate::sys::Lock;
use crate::vi::Vi;
use std::collections::VecDeque;
use std::sync::atomic::Ordering;
use std::sync::{Arc, LazyLock, Mutex, PoisonError};

/// Entries of a completion queue, at most.
pub const ENTRIES_MAX: u64 = 1 << 16;

/// A handler that is called once: NIC, VI, whether it was the receive queue.
pub type CqNotify = Box<dyn FnOnce(u64, u64, bool) + Send>;

#[derive(Default)]
struct Inner {
    nic: Option<Arc<Nic>>,
    generation: u32,
    limit: usize,
    entries: VecDeque<(u64, bool)>,
    notifies: VecDeque<CqNotify>,
}

struct Member {
    vi: &'static Vi,
    generation: u32,
    receive: bool,
}

pub struct Cq {
    index: u32,
    inner: Lock<Inner>,
    members: Mutex<Vec<Member>>,
}

static CQS: LazyLock<Box<[Cq]>> =
    LazyLock::new(|| (0..crate::nic::CQS_MAX as u32).map(|index| Cq { index, inner: Lock::new(Inner::default()), members: Mutex::default() }).collect());

pub fn find(handle: u64) -> Result<(&'static Cq, u32)> {
    let key = Key::of(handle, handles::Kind::Cq).ok_or(Refusal::InvalidParameter)?;
    Ok((CQS.get(key.index as usize).ok_or(Refusal::InvalidParameter)?, key.generation))
}

impl Cq {
    pub fn create(nic: &Arc<Nic>, entries: u64) -> Result<u64> {
        if entries == 0 || entries > ENTRIES_MAX {
            return Err(if entries == 0 { Refusal::InvalidParameter } else { Refusal::Resource });
        }
        for cq in CQS.iter() {
            let handle = cq.inner.with(|inner| {
                if inner.nic.is_some() {
                    return None;
                }
                let generation = inner.generation.wrapping_add(1).max(1);
                *inner = Inner { nic: Some(nic.clone()), generation, limit: entries as usize, ..Inner::default() };
                Some(Key { index: cq.index, generation }.handle(handles::Kind::Cq))
            });
            if let Some(handle) = handle {
                nic.cqs.lock().unwrap_or_else(PoisonError::into_inner).push(cq);
                return Ok(handle);
            }
        }
        Err(Refusal::Resource)
    }

    /// The NIC, if the queue is still the one that is meant.
    pub fn nic(&self, generation: u32) -> Result<Arc<Nic>> {
        self.inner.with(|inner| match &inner.nic {
            Some(nic) if inner.generation == generation => Ok(nic.clone()),
            _ => Err(Refusal::InvalidParameter),
        })
    }

    /// Gives the queue back: no VI may be using it.
    pub fn destroy(&'static self, generation: u32) -> Result<()> {
        let nic = self.nic(generation)?;
        let members = self.members.lock().unwrap_or_else(PoisonError::into_inner);
        if !members.is_empty() {
            return Err(Refusal::Resource);
        }
        let gone = self.inner.with(|inner| std::mem::replace(inner, Inner { generation: inner.generation, ..Inner::default() }));
        drop(members);
        nic.notifies.fetch_sub(gone.notifies.len() as u32, Ordering::Relaxed);
        nic.cqs.lock().unwrap_or_else(PoisonError::into_inner).retain(|it| it.index != self.index);
        Ok(())
    }

    pub fn resize(&self, generation: u32, entries: u64) -> Result<()> {
        self.nic(generation)?;
        if entries == 0 || entries > ENTRIES_MAX {
            return Err(if entries == 0 { Refusal::InvalidParameter } else { Refusal::Resource });
        }
        self.inner.with(|inner| {
            if inner.entries.len() as u64 > entries {
                return Err(Refusal::Resource);
            }
            inner.limit = entries as usize;
            Ok(())
        })
    }

    pub fn join(&self, vi: &'static Vi, generation: u32, receive: bool) {
        self.members.lock().unwrap_or_else(PoisonError::into_inner).push(Member { vi, generation, receive });
    }

    pub fn leave(&self, vi: &'static Vi, generation: u32) {
        self.members.lock().unwrap_or_else(PoisonError::into_inner).retain(|it| it.vi.index != vi.index || it.generation != generation);
        let handle = vi.handle();
        self.inner.with(|inner| inner.entries.retain(|entry| entry.0 != handle));
    }

    /// Something has completed. A queue that is full loses the entry, never the descriptor, and its NIC reports that.
    pub fn add(&self, vi: u64, receive: bool) {
        let lost = self.inner.with(|inner| {
            if inner.entries.len() < inner.limit {
                inner.entries.push_back((vi, receive));
                return None;
            }
            let cq = Key { index: self.index, generation: inner.generation }.handle(handles::Kind::Cq);
            inner.nic.clone().map(|nic| (nic, cq))
        });
        if let Some((nic, cq)) = lost {
            nic.report(ErrorEvent { vi, cq, descriptor: 0, op: 0, resource: Resource::Cq, code: ErrorCode::Overrun });
            nic.board.wake_own(true);
        }
    }

    fn next(&self, generation: u32) -> Result<Option<(u64, bool)>> {
        self.inner
            .with(|inner| if inner.generation == generation && inner.nic.is_some() { Ok(inner.entries.pop_front()) } else { Err(Refusal::InvalidParameter) })
    }

    /// The oldest entry, after a look at all VIs of the queue if there is none.
    pub fn done(&'static self, generation: u32) -> Result<(u64, bool)> {
        if let Some(entry) = self.next(generation)? {
            return Ok(entry);
        }
        for member in self.members.lock().unwrap_or_else(PoisonError::into_inner).iter() {
            if member.receive {
                member.vi.receive(usize::MAX);
            } else {
                member.vi.go_on();
            }
        }
        self.next(generation)?.ok_or(Refusal::NotDone)
    }

    pub fn notify(&self, generation: u32, handler: CqNotify) -> Result<()> {
        let nic = self.nic(generation)?;
        nic.notifies.fetch_add(1, Ordering::Relaxed);
        self.inner.with(|inner| inner.notifies.push_back(handler));
        nic.board.wake_own(true);
        Ok(())
    }

    /// Calls handlers for entries that are there. Called by the event manager.
    pub fn deliver(&'static self) -> bool {
        let (waiting, generation) = self.inner.with(|inner| (!inner.notifies.is_empty(), inner.generation));
        if !waiting {
            return false;
        }
        let Ok((vi, receive)) = self.done(generation) else { return false };
        let handler = self.inner.with(|inner| inner.notifies.pop_front());
        match (handler, self.nic(generation)) {
            (Some(handler), Ok(nic)) => {
                nic.notifies.fetch_sub(1, Ordering::Relaxed);
                handler(nic.handle(), vi, receive);
                true
            }
            _ => false,
        }
    }
}
