//! What has come: messages and control packets, by their kind; and what may go on after that.

use super::machine::{Machine, Worker};
use super::ports::{Buffer, Count, DataPath, Error, Event};
use super::request::{Origin, RequestId, State, outcome};
use super::unexpected::Unexpected;
use crate::credits::OVERHEAD_BYTES;
use crate::rendezvous::Rtr;
use crate::wire::{self, Cooperative, Cts, Envelope, Kind, Rts, Start};

/// Looks in vain, by calls that do not wait, after which a program is taken to wait for what it looks for.
const VAIN_POLLS: u32 = 64;

impl<W: Worker> Machine<W> {
    #[inline(never)]
    pub fn advance(&mut self) -> Result<bool, W::Fault> {
        let mut moved = false;
        for at in (0..self.backlog.len()).rev() {
            let peer = self.backlog[at];
            // What lies here has waited already.
            let prompt = std::mem::replace(&mut self.prompt, true);
            let flushed = self.flush(peer);
            self.prompt = prompt;
            match flushed {
                Ok(did) => moved |= did,
                Err(fault) => self.unreached(peer, W::transport_error(fault)?)?,
            }
            let p = &mut self.peers[peer as usize];
            if p.queue.is_empty() && p.control.is_empty() {
                p.listed = false;
                self.backlog.swap_remove(at);
            }
        }
        moved |= self.pump()?;
        moved |= self.work()?;
        Ok(moved)
    }

    /// Deals with a packet of `peer`, most of which are short messages: false where it is none, and [`Machine::arrive`] takes it.
    #[inline]
    pub fn arrive_quickly(&mut self, peer: u32, head: [u64; 2], words: &[u64; 6], bytes: usize) -> Result<bool, W::Fault> {
        let Some((Kind::Eager, envelope)) = wire::parse(head) else { return Ok(false) };
        let place = |buffer: &W::Buffer| buffer.place_words(words, bytes);
        self.arrive_eager(peer, envelope, bytes, DataPath::Inline, place, || Unexpected::Words { peer, words: *words, bytes: bytes as u8 })?;
        Ok(true)
    }

    /// As [`Machine::arrive_quickly`], of a short message whose sender waits for its match, where its receive is posted, and of what tells that sender.
    #[inline(never)]
    pub fn arrive_synchronous(&mut self, peer: u32, head: [u64; 2], words: &[u64; 6], bytes: usize) -> Result<bool, W::Fault> {
        let (request, body) = (words[0], &words[1..]);
        match wire::parse(head) {
            Some((Kind::EagerSync, envelope)) if (8..=48).contains(&bytes) && !self.peers[peer as usize].remote => {
                let context = self.matcher.open(envelope.context);
                let bytes = bytes - 8;
                let Some(index) = self.matcher.arrive(context, envelope.source, envelope.tag) else { return Ok(false) };
                self.peers[peer as usize].count_seen();
                self.end_eager(peer, index, envelope, bytes, DataPath::Inline, |buffer| buffer.place_words(body, bytes))?;
                self.control(peer, wire::control(Kind::Fin), &[request])?;
                Ok(true)
            }
            Some((Kind::Fin, _)) if bytes >= 8 && !self.peers[peer as usize].remote => Ok(self.arrive_fin(peer, RequestId::from_raw(request))),
            _ => Ok(false),
        }
    }

    /// As [`Machine::arrive_quickly`], of a packet whose whole body lies elsewhere.
    #[inline]
    pub fn arrive_quickly_beside(&mut self, peer: u32, head: [u64; 2], body: &<W::Buffer as Buffer>::Body) -> Result<bool, W::Fault> {
        let Some((Kind::Eager, envelope)) = wire::parse(head) else { return Ok(false) };
        self.arrive_whole(peer, envelope, body, DataPath::Eager)?;
        Ok(true)
    }

    /// As [`Machine::arrive_eager`], of a body wherever it lies.
    #[inline(always)]
    fn arrive_whole(&mut self, peer: u32, envelope: Envelope, body: &<W::Buffer as Buffer>::Body, path: DataPath) -> Result<(), W::Fault> {
        let place = |buffer: &W::Buffer| buffer.place(0, body);
        let keep = || Unexpected::Bytes { peer, data: W::Buffer::keep(body), origin: None };
        self.arrive_eager(peer, envelope, W::Buffer::body_bytes(body), path, place, keep)
    }

    /// A whole message has come of whose fate its sender needs to know nothing: to the receive that accepts it by `place`, or to the unexpected ones as what
    /// `keep` makes of it.
    #[inline(always)]
    fn arrive_eager(
        &mut self,
        peer: u32,
        envelope: Envelope,
        bytes: usize,
        path: DataPath,
        place: impl FnOnce(&W::Buffer),
        keep: impl FnOnce() -> Unexpected,
    ) -> Result<(), W::Fault> {
        let context = self.matcher.open(envelope.context);
        self.peers[peer as usize].count_seen();
        self.has_come(peer, bytes as u64, false);
        let Some(index) = self.matcher.arrive(context, envelope.source, envelope.tag) else {
            self.hold(peer, bytes as u64)?;
            self.worker.note(Event::Unexpected, || [peer as i64, envelope.tag as i64, bytes as i64]);
            self.matcher.keep(context, envelope.source, envelope.tag, keep());
            return Ok(());
        };
        self.end_eager(peer, index, envelope, bytes, path, place)
    }

    /// The receive at `index` gets a whole message, by `place`.
    #[inline(always)]
    fn end_eager(&mut self, peer: u32, index: u32, envelope: Envelope, bytes: usize, path: DataPath, place: impl FnOnce(&W::Buffer)) -> Result<(), W::Fault> {
        let r = self.requests.at(index);
        place(&r.buffer);
        r.outcome = outcome(envelope.source, envelope.tag, bytes, r.buffer.len());
        r.state = State::Complete;
        self.completions += 1;
        r.outcome.order = self.completions as u32;
        if r.detached || r.announced.is_some() {
            self.end_specially(index)?;
        }
        self.worker.received(path, bytes as u64);
        let held = bytes as u64 + OVERHEAD_BYTES;
        match path {
            DataPath::Datagrams => self.give_credit(peer, held),
            _ => self.give_memory_credit(peer, held),
        }
        Ok(())
    }

    /// A receive is complete that nobody will ask for, or that was announced.
    #[cold]
    fn end_specially(&mut self, index: u32) -> Result<(), W::Fault> {
        let id = self.requests.id(index);
        self.mispredicted(id)?;
        if self.requests.at(index).detached {
            self.requests.remove(id);
        }
        Ok(())
    }

    /// Counts a packet that no correct peer sends.
    pub fn refused(&mut self, peer: u32) {
        self.worker.count(Count::Refused, 1);
        self.worker.note(Event::Refused, || [peer as i64, 0, 0]);
    }

    /// Deals with a message or a control packet of `peer`: the words of its kind, and its body. Whether a correct peer may have sent it.
    pub fn arrive(
        &mut self,
        peer: u32,
        kind: Kind,
        envelope: Envelope,
        words: &[u64],
        body: &<W::Buffer as Buffer>::Body,
        path: DataPath,
    ) -> Result<bool, W::Fault> {
        if self.peers[peer as usize].remote && kind.needs_shared_memory() {
            return Ok(false);
        }
        match (kind, words) {
            (Kind::Eager, []) => self.arrive_bytes(peer, envelope, body, None, path)?,
            (Kind::Eager, &[request]) => self.arrive_bytes(peer, envelope, body, Some(Origin { request, synchronous: false }), path)?,
            (Kind::EagerSync, &[request]) => self.arrive_bytes(peer, envelope, body, Some(Origin { request, synchronous: true }), path)?,
            (Kind::Rts | Kind::RtsStop | Kind::RtsResume, words) => match words.get(..Rts::WORDS).and_then(Rts::parse) {
                Some(rts) => {
                    self.arrive_offer(peer, envelope, rts, kind == Kind::RtsStop)?;
                    self.arrive_flags(peer, envelope, kind)?;
                }
                None => return Ok(false),
            },
            (Kind::Cts, words) => return Ok(words.get(..3).and_then(Cts::parse).is_some_and(|cts| self.begin_stream(peer, cts))),
            (Kind::Data, &[receiver, offset]) => return Ok(self.stream_piece(peer, receiver, offset, body)),
            (Kind::Piece, &[receiver, piece]) => self.arrive_piece(peer, receiver, piece, body)?,
            (Kind::Fin, &[request, ..]) => return Ok(self.arrive_fin(peer, RequestId::from_raw(request))),
            (Kind::Cancel, &[request, ..]) => self.take_back(peer, envelope, request)?,
            (Kind::Cancelled, &[request, done, ..]) => self.taken_back(peer, RequestId::from_raw(request), done == 1),
            (Kind::Cooperative, words) => match words.get(..6).and_then(Cooperative::parse) {
                Some(offer) => self.join(peer, offer)?,
                None => return Ok(false),
            },
            // The job itself sees that it is whole; this only woke us.
            (Kind::CooperativeDone, _) => {}
            (Kind::Rtr, words) => match words.get(..6).and_then(|words| Rtr::parse(envelope, words)) {
                Some(rtr) => self.arrive_rtr(peer, rtr)?,
                None => return Ok(false),
            },
            (Kind::Start, words) => match words.get(..Start::WORDS).and_then(Start::parse) {
                Some(start) => return self.arrive_start(peer, envelope, start),
                None => return Ok(false),
            },
            (Kind::RtsAck, &[request, ..]) => self.arrive_acknowledgement(peer, envelope, request),
            (Kind::Reset, &[epoch, ..]) => match u32::try_from(epoch) {
                Ok(epoch) => self.arrive_reset(peer, envelope, epoch)?,
                Err(_) => return Ok(false),
            },
            (Kind::Forget, _) => self.arrive_forget(peer, envelope)?,
            (Kind::Left, &[lost, ..]) => self.arrive_left(peer, lost),
            (Kind::Lost, &[lost, ..]) => return Ok(self.arrive_lost(peer, lost)),
            (Kind::Widen, _) => self.peers[peer as usize].credits.widen(),
            _ => return Ok(false),
        }
        Ok(true)
    }

    /// The receiver has all of a message, or has matched it where the sender waits for that alone.
    fn arrive_fin(&mut self, peer: u32, id: RequestId) -> bool {
        let remote = self.peers[peer as usize].remote;
        match self.requests.find(id).filter(|r| r.peer == peer) {
            // A remote peer's acknowledgement ends what was offered to it.
            Some(r) if r.state == if remote { State::Unmatched } else { State::Offered } => {
                self.complete(id);
                true
            }
            // A cooperative copy may have been seen to be over here before.
            Some(_) => !remote,
            None => !remote && self.requests.find(id).is_none(),
        }
    }

    /// The receiver says whether a send that is to be cancelled was taken back.
    fn taken_back(&mut self, peer: u32, id: RequestId, done: bool) {
        let remote = self.peers[peer as usize].remote;
        let Some(r) = self.requests.find(id).filter(|r| r.peer == peer) else { return };
        match r.state {
            State::Offered if done && !remote => self.cancelled(id),
            // Otherwise it has been matched, and what says so has come before.
            State::Unmatched if done => self.cancelled(id),
            State::Streaming if remote && done => self.cancelled(id),
            // All of it has been acknowledged meanwhile.
            State::Streaming if remote && r.missing == 1 => self.complete(id),
            State::Streaming if remote => {
                r.state = State::Offered;
                self.peers[peer as usize].offers += 1;
            }
            _ => {}
        }
    }

    /// A whole message has come; its bytes lie in `parts`.
    pub(super) fn arrive_bytes(
        &mut self,
        peer: u32,
        envelope: Envelope,
        body: &<W::Buffer as Buffer>::Body,
        origin: Option<Origin>,
        path: DataPath,
    ) -> Result<(), W::Fault> {
        let bytes = W::Buffer::body_bytes(body);
        let Some(origin) = origin else {
            // The way of most.
            return self.arrive_whole(peer, envelope, body, path);
        };
        let Some(id) = self.begin_bytes(peer, envelope, bytes)? else {
            self.peers[peer as usize].count_seen();
            self.has_come(peer, bytes as u64, false);
            self.hold(peer, bytes as u64)?;
            self.worker.note(Event::Unexpected, || [peer as i64, envelope.tag as i64, bytes as i64]);
            let unexpected = Unexpected::Bytes { peer, data: W::Buffer::keep(body), origin: Some(origin) };
            let context = self.matcher.open(envelope.context);
            self.matcher.keep(context, envelope.source, envelope.tag, unexpected);
            return Ok(());
        };
        self.more_bytes(id, 0, body);
        self.end_bytes(peer, id, bytes, origin.synchronous.then_some(origin.request), path)
    }

    /// The first bytes of a message have come whose sender writes the others now, `bytes` in all. The receive that takes it, if there is one;
    /// otherwise nothing happens, and it is asked again, or told when all have come ([`Machine::arrive`]).
    pub fn begin_bytes(&mut self, peer: u32, envelope: Envelope, bytes: usize) -> Result<Option<RequestId>, W::Fault> {
        let context = self.matcher.open(envelope.context);
        let Some(index) = self.matcher.arrive(context, envelope.source, envelope.tag) else { return Ok(None) };
        self.peers[peer as usize].count_seen();
        self.has_come(peer, bytes as u64, false);
        let id = self.requests.id(index);
        self.mispredicted(id)?;
        let r = self.requests.at(index);
        r.outcome = outcome(envelope.source, envelope.tag, bytes, r.buffer.len());
        (r.state, r.peer, r.past_caches) = (State::Fetching, peer, false);
        Ok(Some(id))
    }

    /// More of the message that [`Machine::begin_bytes`] gave to `id` has come, to be placed at `offset`.
    pub fn more_bytes(&mut self, id: RequestId, offset: usize, body: &<W::Buffer as Buffer>::Body) {
        // Otherwise it has failed meanwhile, and the buffer is the program's.
        if let Some(r) = self.requests.find(id).filter(|r| r.state == State::Fetching) {
            match r.past_caches {
                true => self.worker.place_past_caches(&r.buffer, offset, body),
                false => r.buffer.place(offset, body),
            }
        }
    }

    /// The last of it has come, `bytes` in all; `request` is its sender's, where that waits for the match.
    pub fn end_bytes(&mut self, peer: u32, id: RequestId, bytes: usize, request: Option<u64>, path: DataPath) -> Result<(), W::Fault> {
        if self.requests.find(id).is_some_and(|r| r.state == State::Fetching) {
            self.complete(id);
            self.worker.received(path, bytes as u64);
        }
        self.give_credit(peer, bytes as u64 + OVERHEAD_BYTES);
        match request {
            Some(request) => self.control(peer, wire::control(Kind::Fin), &[request]),
            None => Ok(()),
        }
    }

    /// `stop`: it carries *stop-RTR*.
    fn arrive_offer(&mut self, peer: u32, envelope: Envelope, rts: Rts, stop: bool) -> Result<(), W::Fault> {
        let context = self.matcher.open(envelope.context);
        self.peers[peer as usize].count_seen();
        self.has_come(peer, rts.bytes, true);
        match self.matcher.arrive(context, envelope.source, envelope.tag) {
            Some(index) => {
                let id = self.requests.id(index);
                self.requests.at(index).peer = peer;
                self.give_credit(peer, OVERHEAD_BYTES);
                // Otherwise the announcement that crosses it is the answer.
                if stop && self.requests.at(index).announced.is_some() {
                    self.acknowledge(peer, envelope, rts.request)?;
                }
                self.fetch(id, envelope, rts)
            }
            None => {
                self.hold(peer, 0)?;
                self.worker.note(Event::Unexpected, || [peer as i64, envelope.tag as i64, rts.bytes as i64]);
                self.matcher.keep(context, envelope.source, envelope.tag, Unexpected::Offer { peer, rts });
                Ok(())
            }
        }
    }

    /// Counts a message of `peer` that nobody has asked for, against the credit that it has.
    #[inline]
    pub(super) fn hold(&mut self, peer: u32, bytes: u64) -> Result<(), W::Fault> {
        let p = &mut self.peers[peer as usize];
        let held_bytes = p.held_bytes + bytes + OVERHEAD_BYTES;
        if held_bytes > p.held_bytes_max {
            return Err(W::Error::corrupt(peer, "what it sent past its credit, bytes,", held_bytes).into());
        }
        p.held_bytes = held_bytes;
        if held_bytes >= p.widen_at_bytes && !std::mem::replace(&mut p.crowding, true) {
            self.crowding.push(peer);
        }
        self.count_unexpected();
        Ok(())
    }

    /// The sender would like to have a message back that may still be unmatched here.
    pub(super) fn take_back(&mut self, peer: u32, envelope: Envelope, request: u64) -> Result<(), W::Fault> {
        let known = self.matcher.known(envelope.context);
        let found = known.and_then(|context| {
            self.matcher.extract_where(context, |_, unexpected| match unexpected {
                Unexpected::Bytes { peer: p, origin: Some(origin), .. } => *p == peer && origin.request == request,
                Unexpected::Offer { peer: p, rts } => *p == peer && rts.request == request,
                Unexpected::Pull(pull) => pull.peer == peer && pull.origin.is_some_and(|origin| origin.request == request),
                _ => false,
            })
        });
        self.control(peer, wire::control(Kind::Cancelled), &[request, found.is_some() as u64])?;
        if let Some((_, unexpected)) = &found {
            self.give_back(unexpected);
            match unexpected {
                Unexpected::Pull(pull) => self.decline(*pull),
                Unexpected::Offer { .. } => self.acknowledge(peer, envelope, request)?,
                _ => {}
            }
        }
        Ok(())
    }

    /// A program that polls never sleeps, and what it asks for may be behind what its peers hold back all the same.
    #[cold]
    pub fn polled_in_vain(&mut self) {
        self.vain_polls += 1;
        if self.vain_polls >= VAIN_POLLS {
            self.vain_polls = 0;
            if let Err(fault) = self.widen() {
                self.break_down(fault);
            }
        }
    }

    /// This process is about to wait with nothing to do: peers whose headers fill their allowance may send more, since what it waits for may be behind them.
    pub fn widen(&mut self) -> Result<(), W::Fault> {
        while let Some(peer) = self.crowding.pop() {
            let p = &mut self.peers[peer as usize];
            p.crowding = false;
            if p.held_bytes >= p.widen_at_bytes {
                p.widen_at_bytes *= 2;
                p.held_bytes_max *= 2;
                if p.remote {
                    self.widen_remote(peer);
                    continue;
                }
                self.control(peer, wire::control(Kind::Widen), &[])?;
            }
        }
        Ok(())
    }
}
