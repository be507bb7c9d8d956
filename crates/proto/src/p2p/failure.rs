//! Processes that have failed. What only they could bring to a good end ends in failure; all else goes on.
//!
//! That is every send to such a peer, every receive from it, and every receive from any source in a context in which it could send. In contexts of
//! collectives it is every receive: whoever waits there for one that lives may wait for something that comes from the dead.

use super::actions::Said;
use super::machine::{Machine, Worker};
use super::ports::{Error, Memory, Network};
use super::reasons::{Reasons, Senders};
use super::request::{RequestId, State};
use crate::credits::Credits;
use crate::matching::{ContextIndex, Pattern};
use crate::wire::{self, Kind};
use std::sync::Arc;

impl<W: Worker> Machine<W> {
    /// Says who may send in a context that is open, where that may ever matter.
    pub fn expect(&mut self, index: ContextIndex, senders: impl FnOnce() -> Arc<dyn Senders>) {
        if self.config.processes > 1 || self.network.is_some() {
            self.senders.resize_with(self.senders.len().max(index as usize + 1), || None);
            self.senders[index as usize] = Some(senders());
        }
    }

    /// Whether a process has failed.
    pub fn has_failures(&self) -> bool {
        !self.failures.is_empty()
    }

    /// Why processes have failed, now and later.
    pub fn reasons(&self) -> Reasons<W::Fault> {
        self.reasons.clone()
    }

    /// Why nothing can be expected of `process` any more.
    pub fn reason(&self, process: u32) -> W::Fault {
        self.reasons.of::<W::Error>(process)
    }

    fn senders(&self, index: ContextIndex) -> Option<&dyn Senders> {
        self.senders.get(index as usize)?.as_deref()
    }

    /// The one process that may send what `pattern` accepts, where that is known.
    pub(super) fn expected(&self, index: ContextIndex, pattern: Pattern) -> Option<u32> {
        self.senders(index)?.process(pattern)
    }

    /// Why nothing that `pattern` accepts is sure to come any more: who could send it has failed.
    #[inline]
    pub fn source_failed(&self, index: ContextIndex, pattern: Pattern) -> Option<W::Fault> {
        if !self.has_failures() {
            return None;
        }
        self.lost(index, pattern).map(|process| self.reason(process))
    }

    /// The process that has failed and that what `pattern` accepts may need.
    fn lost(&self, index: ContextIndex, pattern: Pattern) -> Option<u32> {
        let senders = self.senders(index)?;
        match senders.process(pattern) {
            Some(process) if !senders.together() || self.peers[process as usize].failed => self.peers[process as usize].failed.then_some(process),
            _ => self.failures.iter().copied().find(|process| senders.contains(*process)),
        }
    }

    /// Why all that happens in a context is lost: what happens there is one another's condition, and a process has failed that takes part.
    pub fn context_failed(&self, index: ContextIndex) -> Option<W::Fault> {
        self.missed(index).map(|process| self.reason(process))
    }

    /// Why those that `contains` names can agree on nothing: one of them has failed.
    pub fn lost_among(&self, contains: impl Fn(u32) -> bool) -> Option<W::Fault> {
        self.failures.iter().find(|process| contains(**process)).map(|process| self.reason(*process))
    }

    fn missed(&self, index: ContextIndex) -> Option<u32> {
        let senders = self.senders(index).filter(|senders| self.has_failures() && senders.together())?;
        self.failures.iter().copied().find(|process| senders.contains(*process))
    }

    /// Refuses `process` from now on, and ends what needs it; but what one of this host has under way with this process goes on until that has ended: it
    /// may be copying.
    #[cold]
    pub fn fail_peer(&mut self, process: u32, why: W::Fault) {
        let peer = &mut self.peers[process as usize];
        if std::mem::replace(&mut peer.failed, true) {
            return;
        }
        // For the short paths of sending.
        peer.credits = Credits::new(0, 0);
        self.reasons.add(process, why);
        // One of another job that no communicator has any more is missed by nobody, and nobody else in this job knows it by that number.
        if !self.is_foreign(process) {
            self.news.push(process);
        } else if self.peers[process as usize].links == 0 {
            return;
        }
        self.failures.push(process);
        for id in self.requests.under_way() {
            let r = self.requests.at(id.index());
            let lost = match (r.state, wire::parse(r.head)) {
                (State::Posted { context, place, .. }, _) => {
                    let pattern = self.matcher.posted(context, place).1;
                    self.lost(context, pattern)
                }
                _ if r.peer == process => Some(process),
                // A send whose receiver lives, and may have given up what it is part of.
                (_, Some((_, envelope))) if r.head != [0; 2] => {
                    let index = self.matcher.open(envelope.context);
                    self.missed(index)
                }
                _ => None,
            };
            if let Some(process) = lost {
                self.fail_request(id, process);
            }
        }
        // Also what waits for those that live may be over.
        self.completed();
        W::tell_failed(self, process);
    }

    /// `process` has ended, or there is nothing between it and this one any more: also what was under way between them is over.
    #[cold]
    pub fn lose_peer(&mut self, process: u32, why: W::Fault) {
        let peer = &mut self.peers[process as usize];
        if std::mem::replace(&mut peer.gone, true) {
            return;
        }
        (peer.control, peer.queue) = Default::default();
        self.end_copies(process);
        self.end_announcements(process);
        self.fail_peer(process, why);
        for id in self.requests.under_way() {
            let r = self.requests.at(id.index());
            if r.peer == process && !matches!(r.state, State::Posted { .. }) {
                self.fail_request(id, process);
            }
        }
        W::wake_threads(self);
        W::tell_failed(self, process);
    }

    /// Nothing can be sent to `process` of this host, since there is no memory or it has ended. Whoever is deep in something goes on; that process fails
    /// within the next look. Other errors are no process's own.
    #[cold]
    pub fn unreached(&mut self, process: u32, error: W::Error) -> Result<(), W::Fault> {
        if error.is_corrupt() {
            return Err(error.into());
        }
        self.unreached.push((process, error));
        self.postponed = true;
        Ok(())
    }

    #[cold]
    pub(super) fn lose_unreached(&mut self) {
        for (process, error) in std::mem::take(&mut self.unreached) {
            if self.peers[process as usize].gone {
                continue;
            }
            self.lose_peer(process, error.of_peer(process).into());
            // It lives, perhaps, and others reach it.
            self.keep_to_itself(process);
            if let Some(memory) = &mut self.memory {
                memory.refuse(process);
            }
        }
    }

    /// Tells all that this process knows which have failed: they may have had nothing to do with those, and wait for this one, or for one that it keeps waiting.
    pub fn spread(&mut self) {
        let words = self.news.len() + self.parting as usize;
        let known = self.network.as_ref().map_or(0, |network| network.known());
        if std::mem::replace(&mut self.told_last, (words, known)) == (words, known) {
            return;
        }
        self.told.resize(self.config.processes as usize, 0);
        for process in self.known_peers() {
            for word in std::mem::replace(&mut self.told[process as usize], words)..words {
                let (kind, lost) = self.news.get(word).map_or((Kind::Left, self.failures[0]), |lost| (Kind::Lost, *lost));
                // Those that have ended need not hear of it.
                let _ = self.control(process, wire::control(kind), &[lost as u64]);
            }
        }
    }

    /// The processes that this one may have spoken with, or they with it, itself not among them.
    pub fn known_peers(&self) -> Vec<u32> {
        let knows = |process: u32| self.network.as_ref().is_some_and(|network| network.knows(process));
        (0..self.config.processes).filter(|&process| process != self.config.me && (self.shares_memory(process) || knows(process))).collect()
    }

    /// The processes that have failed, in the order in which that was learned.
    pub fn failures(&self) -> &[u32] {
        &self.failures
    }

    /// Whether peers have left so much here that they may hold more back.
    #[inline]
    pub fn is_crowded(&self) -> bool {
        !self.crowding.is_empty()
    }

    /// This process ends without those that have failed, and tells all that it knows: they may wait for it.
    pub fn part(&mut self) {
        self.parting = self.has_failures();
        self.spread();
    }

    /// A process has ended without this one. All that it had sent has come before, and it copies no more.
    pub(super) fn arrive_left(&mut self, peer: u32, lost: u64) {
        if self.shares_memory(peer) {
            let why = format!("it has finalized without the others, since it could not reach rank {lost}");
            self.lose_peer(peer, W::Error::peer(peer, why).into());
            return self.keep_to_itself(peer);
        }
        self.abandon(peer, Said::Left { lost });
    }

    /// A process that has just been lost tells the others itself.
    pub fn keep_to_itself(&mut self, process: u32) {
        self.news.pop_if(|last| *last == process);
    }

    /// `peer` takes a process for failed, and whatever the three were to do together will not be. False where that cannot be.
    pub(super) fn arrive_lost(&mut self, peer: u32, lost: u64) -> bool {
        // What processes of other jobs call others by means nothing here.
        let known = u32::try_from(lost).ok().filter(|lost| *lost < self.config.processes && !self.is_foreign(peer));
        let Some(lost) = known else { return false };
        if lost == self.config.me {
            return true;
        }
        if self.shares_memory(lost) {
            // Whether that has ended shows here.
            self.fail_peer(lost, W::Error::peer(lost, format!("rank {peer} cannot reach it")).into());
        } else {
            self.abandon(lost, Said::Lost { by: peer });
        }
        true
    }

    /// A receive that has just been posted ends at once where nobody can bring it to a good end.
    #[cold]
    pub(super) fn doubt(&mut self, id: RequestId) {
        if let State::Posted { context, place, .. } = self.requests.at(id.index()).state
            && let Some(process) = self.lost(context, self.matcher.posted(context, place).1)
        {
            self.fail_request(id, process);
        }
    }

    /// Ends a request in failure, for the lack of `process`, as soon as nobody copies for it.
    pub(super) fn fail_request(&mut self, id: RequestId, process: u32) {
        let r = self.requests.at(id.index());
        let (state, gone) = (r.state, self.peers.get(r.peer as usize).is_some_and(|peer| peer.gone));
        if gone || matches!(state, State::Posted { .. } | State::Queued | State::Offered | State::Unmatched) {
            (r.outcome.failed, r.outcome.source) = (true, process);
        }
        let ended = match state {
            // As a cancelled one: whom it was announced to may have begun to fill it, and then it ends well.
            State::Posted { .. } => self.cancel_receive(id),
            // The transport ends it ([`fabric::reliable::Program::peer_failed`]).
            _ if r.in_use => Ok(()),
            _ if gone => {
                let peer = r.peer as usize;
                self.peers[peer].queue.retain(|queued| *queued != id);
                self.complete(id);
                Ok(())
            }
            // Unless the receiver, which lives, has begun to fetch it.
            State::Queued | State::Offered | State::Unmatched => self.cancel(id),
            _ => Ok(()),
        };
        if let Err(fault) = ended {
            self.fault.get_or_insert(fault);
        }
    }

    /// The remote processes that posted receives and synchronous sends wait for. (Other sends have something under way with theirs.)
    pub fn awaited_remote(&mut self) -> Vec<u32> {
        let mut all = Vec::new();
        for id in self.requests.under_way() {
            let r = self.requests.at(id.index());
            match (r.state, r.peer) {
                (State::Unmatched, peer) => all.push(peer),
                (State::Posted { context, place, .. }, _) => {
                    all.extend(self.senders(context).and_then(|senders| senders.process(self.matcher.posted(context, place).1)));
                }
                _ => {}
            }
        }
        all.sort_unstable();
        all.dedup();
        all.retain(|process| self.peers[*process as usize].remote && !self.peers[*process as usize].failed);
        all
    }
}
