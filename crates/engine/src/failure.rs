//! Far peers that have failed. What only they could bring to a good end ends in failure; all else goes on.
//!
//! That is every send to such a peer, every receive from it, and every receive from any source in a context in which it could send. In contexts of
//! collectives it is every receive: whoever waits there for one that lives may wait for something that comes from the dead.

use crate::request::{RequestId, State};
use crate::{Engine, Fault};
use proto::matching::{ContextIndex, Pattern};
use proto::wire::{self, Kind};
use std::sync::{Arc, Mutex, PoisonError};

/// Who may send in a context.
pub trait Senders: Send + Sync {
    /// The process whose messages `pattern` accepts, if it is one.
    fn process(&self, pattern: Pattern) -> Option<u32>;
    /// Whether `process` may send here.
    fn contains(&self, process: u32) -> bool;
    /// Whether all that happens here is one another's condition.
    fn together(&self) -> bool;
}

/// Why processes have failed, for whoever tells of it without the engine.
#[derive(Clone, Debug, Default)]
pub struct Reasons(Arc<Mutex<Vec<(u32, Fault)>>>);

impl Reasons {
    /// Why nothing can be expected of `process` any more.
    pub fn of(&self, process: u32) -> Fault {
        let all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let known = all.iter().find(|(failed, _)| *failed == process).map(|(_, why)| why.clone());
        known.unwrap_or_else(|| fabric::Error::Peer { peer: process, why: "it has failed".into() }.into())
    }

    fn add(&self, process: u32, why: Fault) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push((process, why));
    }
}

impl Engine {
    /// Says who may send in a context that is open, where that may ever matter.
    pub fn expect(&mut self, index: ContextIndex, senders: impl FnOnce() -> Arc<dyn Senders>) {
        if self.networked() {
            self.senders.resize_with(self.senders.len().max(index as usize + 1), || None);
            self.senders[index as usize] = Some(senders());
        }
    }

    /// Whether a process has failed.
    pub fn bereft(&self) -> bool {
        !self.failures.is_empty()
    }

    /// Why processes have failed, now and later.
    pub fn reasons(&self) -> Reasons {
        self.reasons.clone()
    }

    fn senders(&self, index: ContextIndex) -> Option<&dyn Senders> {
        self.senders.get(index as usize)?.as_deref()
    }

    /// Why nothing that `pattern` accepts is sure to come any more: who could send it has failed.
    pub fn hopeless(&self, index: ContextIndex, pattern: Pattern) -> Option<Fault> {
        self.lost(index, pattern).map(|process| self.reasons.of(process))
    }

    /// The process that has failed and that what `pattern` accepts may need.
    fn lost(&self, index: ContextIndex, pattern: Pattern) -> Option<u32> {
        let senders = self.senders(index).filter(|_| self.bereft())?;
        match senders.process(pattern) {
            Some(process) if !senders.together() || self.peers[process as usize].failed => self.peers[process as usize].failed.then_some(process),
            _ => self.failures.iter().copied().find(|process| senders.contains(*process)),
        }
    }

    /// Ends everything that needs `process`, and refuses it from now on.
    #[cold]
    pub(crate) fn fail_peer(&mut self, process: u32, why: Fault) {
        let peer = &mut self.peers[process as usize];
        if std::mem::replace(&mut peer.failed, true) {
            return;
        }
        (peer.control, peer.queue) = Default::default();
        self.reasons.add(process, why);
        self.failures.push(process);
        if !self.near(process) {
            self.forget_far(process);
        }
        for id in self.requests.under_way() {
            let r = self.requests.at(id.index);
            let lost = match r.state {
                State::Posted { context, place } => {
                    let pattern = self.matcher.posted(context, place).1;
                    self.lost(context, pattern)
                }
                _ => (r.peer == process).then_some(process),
            };
            if let Some(process) = lost {
                self.fail_request(id, process);
            }
        }
        self.rouse();
    }

    /// Tells all that this process knows that it ends without them, for want of one that has failed: they may not have heard of that, and would wait for
    /// this one. They end in the same way, so that all hear of it who are not cut off by those that have failed.
    pub fn part(&mut self) {
        let Some(&lost) = self.failures.first() else { return };
        for process in self.acquainted() {
            // Those that have ended before need not hear of it.
            let _ = self.control(process, wire::control(Kind::Left), &[lost as u64]);
        }
    }

    /// A process has ended without this one. All that it had sent has come before. False where that cannot be.
    pub(crate) fn arrive_left(&mut self, peer: u32, lost: u64) -> bool {
        // Whoever still copies has not ended.
        let busy = self.requests.under_way().into_iter().any(|id| {
            let r = self.requests.at(id.index);
            r.peer == peer && !matches!(r.state, State::Posted { .. } | State::Queued)
        });
        if busy && self.near(peer) {
            return false;
        }
        let why = format!("it has finalized without the others, since it could not reach rank {lost}");
        self.fail_peer(peer, fabric::Error::Peer { peer, why }.into());
        true
    }

    /// A receive that has just been posted ends at once where nobody can bring it to a good end.
    #[cold]
    pub(crate) fn doubt(&mut self, id: RequestId) {
        if let State::Posted { context, place } = self.requests.at(id.index).state
            && let Some(process) = self.lost(context, self.matcher.posted(context, place).1)
        {
            self.fail_request(id, process);
        }
    }

    /// Ends a request in failure, for the lack of `process`.
    pub(crate) fn fail_request(&mut self, id: RequestId, process: u32) {
        let r = self.requests.at(id.index);
        (r.outcome.failed, r.outcome.source) = (true, process);
        match r.state {
            // As a cancelled one: whom it was announced to may have begun to fill it, and then it ends well.
            State::Posted { .. } => {
                if let Err(fault) = self.cancel_receive(id) {
                    self.fault.get_or_insert(fault);
                }
            }
            _ => self.complete(id),
        }
    }

    /// The far processes that posted receives wait for.
    pub(crate) fn awaited_far(&mut self) -> Vec<u32> {
        let mut all = Vec::new();
        for id in self.requests.under_way() {
            if let State::Posted { context, place } = self.requests.at(id.index).state
                && let Some(process) = self.senders(context).and_then(|senders| senders.process(self.matcher.posted(context, place).1))
            {
                all.push(process);
            }
        }
        all.sort_unstable();
        all.dedup();
        all.retain(|process| self.peers[*process as usize].far && !self.peers[*process as usize].failed);
        all
    }
}
