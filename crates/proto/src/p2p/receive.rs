//! Receiving: what has come already is taken, else the receive is posted.

use super::machine::{Machine, Worker};
use super::ports::{Buffer, DataPath, Memory};
use super::request::{Outcome, RequestId, Requests, State, outcome};
use super::speculation::envelope_of;
use super::unexpected::{Message, Unexpected};
use crate::credits::OVERHEAD_BYTES;
use crate::matching::{Aside, ContextIndex, Pattern};
use crate::wire::{self, Envelope, Kind};

/// Credit is told in steps of this share of the allowance.
const CREDIT_STEPS: u64 = 8;

impl<W: Worker> Machine<W> {
    /// Starts a receive, which may be complete at once.
    #[inline]
    pub fn receive(&mut self, context: ContextIndex, pattern: Pattern, buffer: &W::Buffer) -> Result<RequestId, W::Fault> {
        let announces = self.look_first(context, pattern, buffer.len())?;
        let id = self.requests.insert(buffer.clone(), u32::MAX, State::Free, [0; 2]);
        self.post(id, context, pattern, announces)
    }

    /// The quick way: as [`Machine::receive`] into what `set` makes of a buffer that was used before, `bytes` long, for `owner`.
    #[inline(always)]
    pub fn receive_quickly(
        &mut self,
        context: ContextIndex,
        pattern: Pattern,
        bytes: usize,
        owner: u32,
        set: impl FnOnce(&mut W::Buffer),
    ) -> Result<RequestId, W::Fault> {
        let announces = self.look_first(context, pattern, bytes)?;
        let id = self.requests.insert_receive(set, owner);
        self.post(id, context, pattern, announces)
    }

    /// Gives request `id` the oldest message that it accepts, or lets it wait for one.
    #[inline(always)]
    fn post(&mut self, id: RequestId, context: ContextIndex, pattern: Pattern, announces: bool) -> Result<RequestId, W::Fault> {
        match self.matcher.post(context, pattern, id.index()) {
            Err(place) => {
                self.requests.at(id.index()).state = State::Posted { context, place, announces };
                if self.has_failures() {
                    self.doubt(id);
                }
                Ok(id)
            }
            Ok(aside) => self.receive_unexpected(id, aside).map(|()| id),
        }
    }

    /// The message of a long receive may have come: looks before it is announced (§3.2.1 of the paper on speculation).
    /// Not where it is not going to be announced. Returns whether it may be.
    #[inline(always)]
    fn look_first(&mut self, context: ContextIndex, pattern: Pattern, bytes: usize) -> Result<bool, W::Fault> {
        if bytes > self.announce_above_bytes { self.look_before_announcing(context, pattern) } else { Ok(false) }
    }

    #[inline(never)]
    fn look_before_announcing(&mut self, context: ContextIndex, pattern: Pattern) -> Result<bool, W::Fault> {
        if self.matcher.peek(context, pattern).is_some() {
            return Ok(false);
        }
        let envelope = envelope_of(self.matcher.key(context), pattern.source, pattern.tag);
        if !self.may_pay(envelope) {
            return Ok(false);
        }
        W::look(self)?;
        Ok(true)
    }

    /// Gives a message that came before to request `id`.
    #[inline]
    fn receive_unexpected(&mut self, id: RequestId, aside: Aside) -> Result<(), W::Fault> {
        let Unexpected::Words { peer, words, bytes } = self.matcher.at(&aside) else { return self.receive_other(id, aside) };
        // The way of most, from where it lies.
        let (peer, bytes) = (*peer, *bytes as u64);
        self.requests.at(id.index()).buffer.place_words(words, bytes as usize);
        let envelope = aside.envelope;
        self.matcher.drop(aside);
        self.give_back_bytes(peer, bytes);
        self.end_unexpected(id, envelope, Some(peer), bytes as usize);
        Ok(())
    }

    /// As [`Machine::receive_unexpected`], of what is not short.
    #[inline(never)]
    fn receive_other(&mut self, id: RequestId, aside: Aside) -> Result<(), W::Fault> {
        let envelope = aside.envelope;
        let unexpected = self.matcher.take(aside);
        self.give_back(&unexpected);
        let kept_of = unexpected.peer();
        let buffer = &self.requests.at(id.index()).buffer;
        let (bytes, origin) = match unexpected {
            Unexpected::Words { .. } => unreachable!("dealt with where it lies"),
            Unexpected::Bytes { data, origin, peer } => {
                buffer.place_unexpected(&data);
                (data.len(), origin.filter(|origin| origin.synchronous).map(|origin| (peer, origin.request)))
            }
            Unexpected::Here { request } => {
                let from = self.requests.at(request).buffer.clone();
                self.requests.at(id.index()).buffer.copy_from(&from);
                let sender = self.requests.id(request);
                self.complete(sender);
                (from.len(), None)
            }
            Unexpected::Offer { peer, rts } => {
                self.requests.at(id.index()).peer = peer;
                return self.fetch(id, envelope, rts);
            }
            Unexpected::Pull(pull) => {
                self.pull(id, envelope, pull)?;
                if pull.origin.is_some_and(|origin| origin.synchronous) {
                    self.flush(pull.peer)?;
                }
                W::hurry(self);
                return Ok(());
            }
        };
        self.end_unexpected(id, envelope, kept_of, bytes);
        if let Some((peer, request)) = origin {
            self.control(peer, wire::control(Kind::Fin), &[request])?;
            if self.peers[peer as usize].remote {
                // The program may compute from here on. More of its receives may find messages that want the same: these share a datagram.
                self.flush(peer)?;
            }
        }
        Ok(())
    }

    /// Request `id` has got an unexpected message; `peer`: of another process.
    #[inline(always)]
    fn end_unexpected(&mut self, id: RequestId, envelope: Envelope, peer: Option<u32>, bytes: usize) {
        let r = self.requests.at(id.index());
        r.outcome = outcome(envelope.source, envelope.tag, bytes, r.buffer.len());
        self.complete(id);
        let path = if peer.is_some_and(|peer| self.peers[peer as usize].remote) {
            DataPath::Datagrams
        } else if bytes <= 48 {
            DataPath::Inline
        } else {
            DataPath::Eager
        };
        self.worker.received(path, bytes as u64);
    }

    /// The memory that an unexpected message took is free again: its sender may use it.
    pub(super) fn give_back(&mut self, unexpected: &Unexpected) {
        let (peer, bytes) = match unexpected {
            Unexpected::Words { peer, bytes, .. } => (*peer, *bytes as u64),
            Unexpected::Bytes { peer, data, .. } => (*peer, data.len() as u64),
            Unexpected::Offer { peer, .. } => (*peer, 0),
            Unexpected::Pull(pull) => (pull.peer, 0),
            Unexpected::Here { .. } => return,
        };
        self.give_back_bytes(peer, bytes);
    }

    #[inline]
    fn give_back_bytes(&mut self, peer: u32, bytes: u64) {
        if peer == self.config.me {
            self.peers[peer as usize].credits.put_back(bytes);
        } else {
            self.peers[peer as usize].held_bytes -= bytes + OVERHEAD_BYTES;
            self.give_credit(peer, bytes + OVERHEAD_BYTES);
        }
    }

    #[inline]
    pub(super) fn give_credit(&mut self, peer: u32, bytes: u64) {
        if self.peers[peer as usize].remote {
            return self.release_datagram(peer, bytes - OVERHEAD_BYTES);
        }
        self.give_memory_credit(peer, bytes);
    }

    /// As [`Machine::give_credit`], for a message that came through memory.
    #[inline]
    pub(super) fn give_memory_credit(&mut self, peer: u32, bytes: u64) {
        let step = self.config.unexpected_bytes_max / CREDIT_STEPS;
        if let Some(memory) = &mut self.memory {
            memory.give_credit(peer, bytes, step);
        }
    }

    /// What a receive with this pattern would get now (`MPI_Iprobe`).
    pub fn probe(&mut self, context: ContextIndex, pattern: Pattern) -> Option<Outcome> {
        let (envelope, unexpected) = self.matcher.peek(context, pattern)?;
        let bytes = bytes_of(&mut self.requests, unexpected);
        Some(Outcome { source: envelope.source, tag: envelope.tag, bytes, ..Outcome::default() })
    }

    /// Takes the message that a receive with this pattern would get (`MPI_Improbe`).
    #[inline]
    pub fn probe_taking(&mut self, context: ContextIndex, pattern: Pattern) -> Option<Message> {
        let aside = self.matcher.set_aside(context, pattern)?;
        let unexpected = self.matcher.at(&aside);
        let bytes = bytes_of(&mut self.requests, unexpected);
        if let Unexpected::Offer { peer, rts } = unexpected {
            let (peer, request) = (*peer, rts.request);
            // A fabric that fails says so at the next progress. Fetching acknowledges it once more, which changes nothing.
            let _ = self.acknowledge(peer, aside.envelope, request);
        }
        Some(Message { aside, bytes })
    }

    /// Starts the receive of a message that was taken before (`MPI_Imrecv`).
    pub fn receive_message(&mut self, message: Message, buffer: &W::Buffer) -> Result<RequestId, W::Fault> {
        let id = self.requests.insert(buffer.clone(), u32::MAX, State::Fetching, [0; 2]);
        self.receive_unexpected(id, message.aside).map(|()| id)
    }

    /// The quick way: as [`Machine::receive_message`] into what `set` makes of a buffer that was used before, for `owner`.
    #[inline(always)]
    pub fn receive_message_quickly(&mut self, message: Message, owner: u32, set: impl FnOnce(&mut W::Buffer)) -> Result<RequestId, W::Fault> {
        let id = self.requests.insert_receive(set, owner);
        self.requests.at(id.index()).state = State::Fetching;
        self.receive_unexpected(id, message.aside).map(|()| id)
    }
}

fn bytes_of<B: Buffer>(requests: &mut Requests<B>, unexpected: &Unexpected) -> u64 {
    match unexpected {
        Unexpected::Words { bytes, .. } => *bytes as u64,
        Unexpected::Bytes { data, .. } => data.len() as u64,
        Unexpected::Offer { rts, .. } => rts.bytes,
        Unexpected::Pull(pull) => pull.bytes,
        Unexpected::Here { request } => requests.at(*request).buffer.len() as u64,
    }
}
