//! Speculation: receives that come first are announced to their senders, whose late sends then begin to copy at once.
//!
//! What an announcement is for is decided in [`crate::rendezvous`]. On shared memory it names a descriptor of the copy in the
//! receiver's segment, which is *open*: whoever comes first, the late sender or a receiver that finds the sender's offer,
//! begins it, and then both may copy. A receive that is matched in another way, or cancelled, takes its descriptor back,
//! which fails if the sender has begun.
//!
//! By acknowledgements ([`crate::rendezvous::acks`]) only the sender begins an open copy: an announcement that has crossed its offer is dropped.

use super::copies::pieces;
use super::machine::{Machine, Peer, Worker};
use super::ports::{Buffer, Count, Descriptor, Error, Event, Memory, Refused, Side, Window};
use super::request::{Announced, RequestId, State, outcome};
use super::speculation::{Ended, Known, collective, envelope_of};
use crate::matching::Pattern;
use crate::rendezvous::sequence::{Sender, Verdict};
use crate::rendezvous::usage::End;
use crate::rendezvous::{Rtr, Variant, usage};
use crate::wire::{self, Context, Envelope, Kind, Start};

/// Descriptors that are left for copies that were not announced.
const SLOTS_RESERVED: usize = 4;

/// Receives that may be announced to one remote process at once; what each of them grants at most, and all together, bytes: that much may come at once.
const REMOTE_MAX: usize = 32;
const REMOTE_EACH_BYTES: u64 = 256 << 10;
const REMOTE_BYTES_MAX: u64 = 1 << 20;

/// What an announcement has cost when it was for nothing, bytes on the way.
const RTR_BYTES: u64 = 64;

/// Announcements to one process that crossed their offers and may still turn out to be void. Past these the oldest counts as used.
const CROSSED_MAX: usize = 256;

/// Messages to a process after its last announcement from which on sends no longer look for another one first.
const QUIET_AFTER: u32 = 64;

/// What became of the announcements of an envelope: source and tag may be any.
#[derive(Clone, Copy, Debug)]
pub struct Speculated {
    pub context: u64,
    pub source: u32,
    /// `None`: of all tags that were new when they were announced.
    pub tag: Option<i32>,
    pub sums: usage::Sums,
}

impl<W: Worker> Machine<W> {
    /// Announces a posted receive to `process`, the only other one that can send to it, where that may pay.
    #[inline]
    pub fn announce(&mut self, id: RequestId, process: u32) {
        let r = self.requests.at(id.index());
        if let State::Posted { context, place, announces: true } = r.state {
            self.announce_large(id, process, context, place);
        }
    }

    #[inline(never)]
    fn announce_large(&mut self, id: RequestId, process: u32, context: u32, place: u32) {
        if self.peers[process as usize].remote {
            return self.announce_remote(id, process, context, place);
        }
        if !self.announces_on_memory() {
            return;
        }
        W::settle_costs(self);
        let limit = W::eager_limit(self, process);
        let r = self.requests.at(id.index());
        let (tellable, room) = (r.buffer.tellable(), r.buffer.len());
        let Some(memory) = self.memory.as_mut().filter(|_| tellable) else { return };
        let peer = &self.peers[process as usize];
        if room <= limit || process == self.config.me || self.descriptors_free.len() <= SLOTS_RESERVED || peer.speculation.forgetting {
            return;
        }
        if !self.matcher.may_announce(context, place) || !memory.reachable(process) {
            return;
        }
        let (key, pattern) = self.matcher.posted(context, place);
        if let Some(Known::Acks(_, receiver)) = peer.speculation.known.as_deref()
            && (!pattern.exact() || collective(key.raw()) || !receiver.may_announce(key.raw(), pattern.tag))
        {
            return;
        }
        let envelope = envelope_of(key, pattern.source, pattern.tag);
        let buffer = &self.requests.at(id.index()).buffer;
        let list = buffer.list();
        let Some((address, pieces)) = buffer.told(list.as_ref()) else { return };
        let exchange = self.peers[process as usize].offers > 0 || self.peers[process as usize].exchanging;
        let through_ring = self.worker.shares_copies(room as u64) && self.through_ring(id, process, room as u64, exchange);
        let Ok(Some((slot, generation, cooperative))) = self.take_slot() else { return };
        cooperative.say_through_ring(through_ring);
        cooperative.open(generation);
        // The sender reads it, to know where to write, until the copy is over.
        self.requests.at(id.index()).list = list;
        let announced = Announced { slot, generation, window: 0, process, envelope };
        self.wild_announced += announced.wild() as u32;
        self.requests.at(id.index()).announced = Some(announced);
        self.matcher.announce(place, true);
        let peer = &mut self.peers[process as usize];
        peer.speculation.announced.push(id);
        let rtr = Rtr {
            request: id.to_raw(),
            slot: slot as u32,
            generation,
            address,
            room_bytes: room as u64,
            pieces: pieces as u32,
            seen: peer.seen,
            epoch: peer.speculation.epoch,
            context: key.raw(),
            tag: pattern.tag,
        };
        let tag = if pattern.tag == Pattern::ANY_TAG { 0 } else { pattern.tag };
        self.worker.count(Count::RtrSent, 1);
        // A fabric that fails says so at the next progress.
        let _ = self.control(process, wire::header(Kind::Rtr, Envelope { context: key, source: pattern.source, tag }), &rtr.to_words());
    }

    /// As on shared memory, with a window of the reliability layer for a descriptor.
    fn announce_remote(&mut self, id: RequestId, process: u32, context: u32, place: u32) {
        let peer = &self.peers[process as usize];
        let busy = peer.failed || peer.speculation.forgetting || peer.speculation.announced.len() >= REMOTE_MAX;
        let bytes = self.requests.at(id.index()).buffer.len() as u64;
        if busy || self.config.rendezvous == Variant::Acks || self.ahead_bytes + bytes.min(REMOTE_EACH_BYTES) > REMOTE_BYTES_MAX {
            return;
        }
        let (key, pattern) = self.matcher.posted(context, place);
        let envelope = envelope_of(key, pattern.source, pattern.tag);
        if !self.matcher.may_announce(context, place) {
            return;
        }
        let (seen, epoch) = (self.peers[process as usize].seen, self.peers[process as usize].speculation.epoch);
        let (request, context, tag) = (id.to_raw(), key.raw(), pattern.tag);
        let rtr = Rtr { request, slot: 0, generation: 0, address: 0, room_bytes: bytes, pieces: 0, seen, epoch, context, tag };
        let shown = if tag == Pattern::ANY_TAG { 0 } else { tag };
        let window = W::offer_window(self, process, rtr, Envelope { context: key, source: pattern.source, tag: shown });
        if window == 0 {
            return;
        }
        let announced = Announced { slot: 0, generation: 0, window, process, envelope };
        self.wild_announced += announced.wild() as u32;
        self.ahead_bytes += bytes.min(REMOTE_EACH_BYTES);
        self.requests.at(id.index()).announced = Some(announced);
        self.matcher.announce(place, true);
        self.peers[process as usize].speculation.announced.push(id);
        self.worker.count(Count::RtrSent, 1);
    }

    /// A remote message that waits at its sender was matched by request `id`: the window that was offered for that, if one was and it serves.
    pub(super) fn crossed_remote(&mut self, id: RequestId, serves: bool) -> u32 {
        let Some(announced) = self.end_announcement(id, if serves { Ended::Crossed } else { Ended::Unused }) else { return 0 };
        self.worker.count(Count::RtrCrossed, 1);
        if !serves {
            self.withdraw_remote(announced.process, announced.window);
        }
        announced.window
    }

    /// Nothing comes of what was announced to `process`, and nobody there can begin it any more.
    pub(super) fn end_announcements(&mut self, process: u32) {
        for id in std::mem::take(&mut self.peers[process as usize].speculation.announced) {
            if let (Some(announced), State::Posted { place, .. }) = (self.requests.at(id.index()).announced, self.requests.at(id.index()).state) {
                self.matcher.announce(place, false);
                self.end_announcement(id, Ended::Unused);
                if announced.window == 0 {
                    self.void(self.config.me, announced.slot as u64, announced.generation);
                    self.descriptors_free.push(announced.slot);
                }
            }
        }
        self.postponed |= !self.cancels.is_empty();
    }

    /// The announcement of request `id` is over. Returns its descriptor, which the caller gives back when the copy is over.
    pub(super) fn end_announcement(&mut self, id: RequestId, ended: Ended) -> Option<Announced> {
        let announced = self.requests.at(id.index()).announced.take()?;
        self.wild_announced -= announced.wild() as u32;
        self.uncount(id, &announced);
        let speculation = &mut self.peers[announced.process as usize].speculation;
        speculation.announced.retain(|other| *other != id);
        match ended {
            Ended::Answered => {
                // Announcements come to the sender in order: those before this one were not void either.
                self.settle_crossed(announced.process, End::Used);
                self.learn(announced.envelope, End::Used);
            }
            Ended::Crossed => {
                speculation.crossed.push_back(announced.envelope);
                if speculation.crossed.len() > CROSSED_MAX
                    && let Some(oldest) = speculation.crossed.pop_front()
                {
                    self.learn(oldest, End::Used);
                }
            }
            Ended::Unused => self.learn(announced.envelope, End::Unused),
        }
        Some(announced)
    }

    /// Whether announcing a receive may pay: not while its envelope pauses. Counts the receive.
    pub(super) fn may_pay(&mut self, envelope: usage::Envelope) -> bool {
        let allowed = self.usage.allows(envelope);
        self.worker.count(Count::RtrSuppressed, !allowed as u64);
        allowed
    }

    /// What became of the announcements of the envelopes that are remembered, and of those that were new when they were announced.
    pub fn announcements(&self) -> Vec<Speculated> {
        let own = self.usage.sums().map(|((context, source, tag), sums)| Speculated { context, source, tag: Some(tag), sums });
        own.chain(self.usage.sums_of_new().map(|((context, source), sums)| Speculated { context, source, tag: None, sums })).collect()
    }

    /// Learns how an announcement ended.
    fn learn(&mut self, envelope: usage::Envelope, end: End) {
        if end == End::Voided {
            self.worker.count(Count::RtrVoided, 1);
            self.worker.count(Count::RtrWastedBytes, RTR_BYTES);
        }
        self.worker.count(Count::RtrPauses, self.usage.learn(envelope, end) as u64);
    }

    /// It is known how the announcements to `process` ended that crossed their offers.
    fn settle_crossed(&mut self, process: u32, end: End) {
        while let Some(envelope) = self.peers[process as usize].speculation.crossed.pop_front() {
            self.learn(envelope, end);
        }
    }

    /// An announced receive was matched by a message that needs no copying between the two.
    #[cold]
    pub(super) fn mispredicted(&mut self, id: RequestId) -> Result<(), W::Fault> {
        let Some(announced) = self.end_announcement(id, Ended::Unused) else { return Ok(()) };
        self.worker.count(Count::RtrMispredicted, 1);
        self.worker.count(Count::RtrWastedBytes, RTR_BYTES);
        if announced.window != 0 {
            self.withdraw_remote(announced.process, announced.window);
            return Ok(());
        }
        let withdrawn = self.cooperative_of(&announced)?.withdraw(announced.generation);
        self.descriptors_free.push(announced.slot);
        if withdrawn { Ok(()) } else { Err(overtaken::<W>(announced.process)) }
    }

    fn uncount(&mut self, id: RequestId, announced: &Announced) {
        if announced.window != 0 {
            self.ahead_bytes -= (self.requests.at(id.index()).buffer.len() as u64).min(REMOTE_EACH_BYTES);
        }
    }

    fn cooperative_of(&mut self, announced: &Announced) -> Result<<W::Memory as Memory>::Descriptor, W::Fault> {
        let me = self.config.me;
        let memory = self.memory.as_mut().expect("announced through it");
        Ok(memory.cooperative(me, announced.slot as u64)?)
    }

    /// An announced receive was matched by an offer: announcement and offer have crossed, and the descriptor serves for the copy, if
    /// this side can read the peer's memory.
    pub(super) fn crossed(&mut self, id: RequestId, reads: bool) -> Result<Option<(u8, u32)>, W::Fault> {
        // Between memories an announcement that crossed its offer still pays: the copy begins at once on both sides, with no word more.
        let Some(announced) = self.end_announcement(id, if reads { Ended::Crossed } else { Ended::Unused }) else { return Ok(None) };
        self.worker.count(Count::RtrCrossed, 1);
        self.worker.count(Count::RtrWastedBytes, if reads { 0 } else { RTR_BYTES });
        let cooperative = self.cooperative_of(&announced)?;
        if !reads && cooperative.withdraw(announced.generation) {
            self.descriptors_free.push(announced.slot);
            return Ok(None);
        }
        if self.config.rendezvous == Variant::Acks {
            return Err(overtaken::<W>(announced.process));
        }
        if !cooperative.begin_open(announced.generation) && !cooperative.begun(announced.generation) {
            return Err(overtaken::<W>(announced.process));
        }
        Ok(Some((announced.slot, announced.generation)))
    }

    /// The peer has announced a receive.
    pub(super) fn arrive_rtr(&mut self, peer: u32, rtr: Rtr) -> Result<(), W::Fault> {
        let p = &mut self.peers[peer as usize];
        let sent = p.sent;
        p.speculation.heard = sent;
        let sender = match p.known() {
            Known::Sequence(sender) => sender,
            Known::Acks(sender, _) => {
                sender.arrived(rtr);
                return Ok(());
            }
        };
        match sender.arrived(rtr, sent) {
            Verdict::Stored | Verdict::Void | Verdict::Crossed { request: None } => Ok(()),
            Verdict::Crossed { request: Some(raw) } => self.begin_crossed(peer, rtr, RequestId::from_raw(raw)),
            Verdict::Reset { epoch } => self.control(peer, wire::control(Kind::Reset), &[epoch as u64]),
        }
    }

    /// The announcement crossed the offer of request `id`: this side begins to copy if the receiver has not.
    fn begin_crossed(&mut self, peer: u32, rtr: Rtr, id: RequestId) -> Result<(), W::Fault> {
        if self.peers[peer as usize].remote {
            self.fill_remote(peer, id, Window { number: rtr.slot, granted_bytes: rtr.address, capacity_bytes: rtr.room_bytes });
            return Ok(());
        }
        let memory = self.memory.as_mut().expect("the announcement came through it");
        if !memory.reachable(peer) {
            return Ok(());
        }
        let Some(r) = self.requests.find(id) else { return Ok(()) };
        if r.state != State::Offered || r.peer != peer || !r.buffer.straight() {
            return Ok(());
        }
        let bytes = r.buffer.len();
        let cooperative = memory.cooperative(peer, rtr.slot as u64)?;
        if bytes.min(rtr.room_bytes as usize) > 0 && (cooperative.begin_open(rtr.generation) || cooperative.begun(rtr.generation)) {
            self.copy_to(peer, id, &rtr, bytes)?;
        }
        Ok(())
    }

    /// This side copies the message of request `id` to an announced receive, whose copy has begun.
    fn copy_to(&mut self, peer: u32, id: RequestId, rtr: &Rtr, bytes: usize) -> Result<(), W::Fault> {
        let memory = self.memory.as_mut().expect("the announcement came through it");
        // The receiver may have copied all of it already; then its list can be gone, and there is nothing left to claim. It copies alone also where it
        // cannot be read for another reason.
        let Some(remote) = W::learn(memory, peer, rtr.address, rtr.pieces.into(), rtr.room_bytes) else { return Ok(()) };
        self.copy_out(id, peer, rtr.request, remote, bytes.min(rtr.room_bytes as usize), rtr.slot as u64, rtr.generation)
    }

    /// Whether the send `id`, the next to leave for `peer`, answers an announcement; if so, it has left. `None`: there is no room now.
    pub(super) fn answer(&mut self, peer: u32, id: RequestId) -> Result<Option<bool>, W::Fault> {
        let r = self.requests.at(id.index());
        let Some((_, envelope)) = wire::parse(r.head) else { return Ok(Some(false)) };
        let memory = self.memory.as_mut().expect("sends go through it");
        if r.list.is_none() && memory.remote_read() {
            r.list = r.buffer.list();
        }
        let bytes = r.buffer.len();
        let Some((address, pieces)) = r.buffer.told(r.list.as_ref()) else { return Ok(Some(false)) };
        let p = &mut self.peers[peer as usize];
        let Some(known) = p.speculation.known.as_deref_mut() else { return Ok(Some(false)) };
        let (context, tag) = (envelope.context.raw(), envelope.tag);
        loop {
            let found = match &*known {
                Known::Sequence(sender) => sender.find(context, tag),
                Known::Acks(sender, _) => sender.find(context, tag),
            };
            let Some(&rtr) = found else { break };
            if !memory.reachable(peer) {
                return Ok(Some(false));
            }
            let cooperative = memory.cooperative(peer, rtr.slot as u64)?;
            if !cooperative.begin_open(rtr.generation) {
                match known {
                    // It was taken back.
                    Known::Sequence(sender) => sender.withdrawn(context, tag),
                    // Not without a word: then it is another's whom nobody should trust.
                    Known::Acks(..) => break,
                }
                continue;
            }
            let start = Start { request: id.to_raw(), bytes: bytes as u64, address, receiver: rtr.request, pieces };
            match memory.send(peer, wire::header(Kind::Start, envelope), &start.to_words()) {
                Ok(()) => {}
                Err(Refused::Full) => {
                    cooperative.reopen(rtr.generation);
                    return Ok(None);
                }
                Err(Refused::Failed(error)) => {
                    cooperative.reopen(rtr.generation);
                    return Err(error.into());
                }
            }
            p.count_sent(envelope.context, tag, Some(id.to_raw()));
            p.offers += 1;
            self.worker.count(Count::RtrAnswered, 1);
            self.requests.at(id.index()).state = State::Offered;
            self.copy_to(peer, id, &rtr, bytes)?;
            return Ok(Some(true));
        }
        Ok(Some(false))
    }

    /// This side cannot read where the message of a copy lies: the sender may have copied all of it, so that its list is gone. If it has not, this side
    /// claims what is left, so that the copy fails and the message goes through the ring.
    pub(super) fn leave_to_sender(&mut self, slot: u8, generation: u32, bytes: usize) -> Result<W::Remote, W::Fault> {
        let memory = self.memory.as_mut().expect("the message came through it");
        let cooperative = memory.cooperative(self.config.me, slot as u64)?;
        while cooperative.claim(generation, pieces(bytes), Side::Receiver).is_some() {
            cooperative.fail();
            cooperative.finish();
        }
        Ok(W::at(0))
    }

    /// A message answers an announcement of this side.
    pub(super) fn arrive_start(&mut self, peer: u32, envelope: Envelope, start: Start) -> Result<bool, W::Fault> {
        let id = RequestId::from_raw(start.receiver);
        let Some(r) = self.requests.find(id) else { return Ok(false) };
        let State::Posted { context, place, .. } = r.state else { return Ok(false) };
        let Some(announced) = r.announced.filter(|a| a.process == peer) else { return Ok(false) };
        let (key, pattern) = self.matcher.posted(context, place);
        if key != envelope.context || !pattern.accepts(envelope.source, envelope.tag) || !self.cooperative_of(&announced)?.begun(announced.generation) {
            return Ok(false);
        }
        let p = &mut self.peers[peer as usize];
        p.count_seen();
        p.exchanging = p.offers > 0;
        self.matcher.withdraw(context, place);
        self.end_announcement(id, Ended::Answered);
        self.worker.count(Count::RtrUsed, 1);
        let r = self.requests.at(id.index());
        r.peer = peer;
        r.state = State::Fetching;
        r.outcome = outcome(envelope.source, envelope.tag, start.bytes.min(usize::MAX as u64) as usize, r.buffer.len());
        let bytes = r.outcome.bytes as usize;
        self.worker.note(Event::Announced, || [peer as i64, envelope.tag as i64, bytes as i64]);
        let memory = self.memory.as_mut().expect("the message came through it");
        let remote = match W::learn(memory, peer, start.address, start.pieces, start.bytes) {
            Some(remote) => remote,
            None => self.leave_to_sender(announced.slot, announced.generation, bytes)?,
        };
        self.copy_in(id, peer, start.request, remote, announced.slot, announced.generation, None)?;
        Ok(true)
    }

    /// The peer has forgotten what this side announced to it; by acknowledgements, under this envelope.
    pub(super) fn arrive_reset(&mut self, peer: u32, envelope: Envelope, epoch: u32) -> Result<(), W::Fault> {
        let speculation = &mut self.peers[peer as usize].speculation;
        if let Some(Known::Acks(_, receiver)) = speculation.known.as_deref_mut() {
            receiver.forgotten(envelope.context.raw(), envelope.tag);
            return self.silence_envelope(peer, envelope);
        }
        speculation.epoch = epoch;
        // The answer to this side's own word says that the sender had dropped nothing before. Otherwise it has dropped what came last.
        let end = if std::mem::take(&mut speculation.forgetting) { End::Used } else { End::Voided };
        self.settle_crossed(peer, end);
        if end == End::Voided {
            self.end_patience(peer);
        }
        let speculation = &mut self.peers[peer as usize].speculation;
        for id in std::mem::take(&mut speculation.announced) {
            if !self.silence(id)? {
                return Err(overtaken::<W>(peer));
            }
        }
        Ok(())
    }

    /// Takes the announcement of a posted receive back, which its sender has dropped or is to drop; the receive stays posted. False: the sender has begun.
    fn silence(&mut self, id: RequestId) -> Result<bool, W::Fault> {
        let r = self.requests.at(id.index());
        let (Some(announced), State::Posted { place, .. }) = (r.announced, r.state) else { return Ok(true) };
        if announced.window != 0 {
            self.withdraw_remote(announced.process, announced.window);
            self.uncount(id, &announced);
        } else if self.cooperative_of(&announced)?.withdraw(announced.generation) {
            self.descriptors_free.push(announced.slot);
        } else {
            return Ok(false);
        }
        self.requests.at(id.index()).announced = None;
        self.wild_announced -= announced.wild() as u32;
        self.matcher.announce(place, false);
        self.learn(announced.envelope, End::Voided);
        Ok(true)
    }

    /// Takes back all announcements to `peer` under an envelope.
    fn silence_envelope(&mut self, peer: u32, envelope: Envelope) -> Result<(), W::Fault> {
        let mut announced = std::mem::take(&mut self.peers[peer as usize].speculation.announced);
        for at in (0..announced.len()).rev() {
            let under = self.requests.at(announced[at].index()).announced.map(|a| (a.envelope.0, a.envelope.2));
            if under != Some((envelope.context.raw(), envelope.tag)) {
                continue;
            }
            if !self.silence(announced.swap_remove(at))? {
                return Err(overtaken::<W>(peer));
            }
        }
        self.peers[peer as usize].speculation.announced = announced;
        Ok(())
    }

    /// An offer has come, with *stop-RTR* or *resume-RTR* or none of them, after its message has been matched or queued as unexpected.
    pub(super) fn arrive_flags(&mut self, peer: u32, envelope: Envelope, kind: Kind) -> Result<(), W::Fault> {
        let (stop, resume) = (kind == Kind::RtsStop, kind == Kind::RtsResume);
        if let Some(Known::Acks(_, receiver)) = self.peers[peer as usize].speculation.known.as_deref_mut()
            && (stop || resume)
        {
            receiver.offered(envelope.context.raw(), envelope.tag, stop, resume);
            if stop {
                return self.silence_envelope(peer, envelope);
            }
        }
        Ok(())
    }

    /// By acknowledgements: tells the sender of an offer that no announcement of the receive that it has found is on its way.
    #[inline]
    pub(super) fn acknowledge(&mut self, peer: u32, envelope: Envelope, request: u64) -> Result<(), W::Fault> {
        if self.config.rendezvous == Variant::Sequence || collective(envelope.context.raw()) {
            return Ok(());
        }
        self.control(peer, wire::header(Kind::RtsAck, envelope), &[request])
    }

    /// The receiver has found this side's offer.
    pub(super) fn arrive_acknowledgement(&mut self, peer: u32, envelope: Envelope, request: u64) {
        if let Some(Known::Acks(sender, _)) = self.peers[peer as usize].speculation.known.as_deref_mut() {
            sender.acknowledged(envelope.context.raw(), envelope.tag, request);
        }
    }

    /// Takes the announcement of a posted receive back, together with all that were made to its sender after it, from the newest on. False: a copy
    /// has begun, which shows that messages are under way, perhaps also to this receive; they are to be dealt with first.
    fn unannounce(&mut self, id: RequestId) -> Result<bool, W::Fault> {
        let Some(announced) = self.requests.at(id.index()).announced else { return Ok(true) };
        let peer = announced.process;
        if announced.window != 0 {
            // Whether a remote sender has begun, its answer tells.
            if !std::mem::replace(&mut self.peers[peer as usize].speculation.forgetting, true) {
                self.control(peer, wire::control(Kind::Forget), &[])?;
            }
            return Ok(false);
        }
        let mut taken = false;
        while self.requests.at(id.index()).announced.is_some()
            && let Some(newest) = self.peers[peer as usize].speculation.announced.last().copied()
            && self.silence(newest)?
        {
            self.peers[peer as usize].speculation.announced.pop();
            taken = true;
        }
        // Nothing is announced until the sender has forgotten what it knows.
        if taken && !std::mem::replace(&mut self.peers[peer as usize].speculation.forgetting, true) {
            self.control(peer, wire::control(Kind::Forget), &[])?;
        }
        Ok(self.requests.at(id.index()).announced.is_none())
    }

    /// Whether a message of this process to itself can be matched now: as far as others may not have begun to copy into its receive. For them
    /// it is as if that receive were cancelled.
    pub(super) fn recall(&mut self, context: u32, source: u32, tag: i32) -> Result<bool, W::Fault> {
        if self.wild_announced == 0 {
            return Ok(true);
        }
        match self.matcher.awaiting(context, source, tag) {
            Some(index) => self.unannounce(self.requests.id(index)),
            None => Ok(true),
        }
    }

    /// Cancels a posted receive, now or as soon as it is known that no message is under way to it.
    pub(super) fn cancel_receive(&mut self, id: RequestId) -> Result<(), W::Fault> {
        let Some(State::Posted { context, place, .. }) = self.requests.find(id).map(|r| r.state) else { return Ok(()) };
        if let Some(announced) = self.requests.at(id.index()).announced {
            let peer = announced.process;
            if let Some(Known::Acks(_, receiver)) = self.peers[peer as usize].speculation.known.as_deref_mut() {
                let (context, source, tag) = announced.envelope;
                if receiver.forget(context, tag) {
                    let envelope = Envelope { context: Context::from_raw(context), source, tag };
                    self.control(peer, wire::header(Kind::Forget, envelope), &[])?;
                }
            } else if self.unannounce(id)? {
                return self.cancel_now(id, context, place);
            }
            if !self.cancels.contains(&id) {
                self.cancels.push(id);
            }
            self.postponed = true;
            return Ok(());
        }
        self.cancel_now(id, context, place)
    }

    fn cancel_now(&mut self, id: RequestId, context: u32, place: u32) -> Result<(), W::Fault> {
        self.matcher.withdraw(context, place);
        self.cancelled(id);
        Ok(())
    }

    /// Tries again what had to wait for messages under way: cancellations, and messages of this process to itself.
    #[cold]
    pub fn try_postponed(&mut self) -> Result<(), W::Fault> {
        self.postponed = false;
        self.lose_unreached();
        for id in std::mem::take(&mut self.cancels) {
            self.cancel_receive(id)?;
        }
        self.send_own()
    }

    /// The receiver has taken an announcement back, or wants to.
    pub(super) fn arrive_forget(&mut self, peer: u32, envelope: Envelope) -> Result<(), W::Fault> {
        let p = &mut self.peers[peer as usize];
        let sent = p.sent;
        match p.known() {
            Known::Sequence(sender) => {
                let epoch = sender.forget(sent);
                self.control(peer, wire::control(Kind::Reset), &[epoch as u64])
            }
            Known::Acks(sender, _) => {
                sender.forget(envelope.context.raw(), envelope.tag);
                self.control(peer, wire::header(Kind::Reset, envelope), &[0])
            }
        }
    }
}

impl<W: Worker> Peer<W> {
    /// Whether a long message should look for the peer's announcement before it is offered (§3.2.2 of the paper): not where the peer
    /// has announced receives and has stopped doing so.
    pub(super) fn may_be_announced(&self) -> bool {
        self.speculation.known.is_none() || self.sent.wrapping_sub(self.speculation.heard) < QUIET_AFTER
    }

    /// What this side knows, as a sender, of the receives that the peer announces.
    fn known(&mut self) -> &mut Known {
        let sent = self.sent;
        self.speculation.known.get_or_insert_with(|| Box::new(Known::Sequence(Sender::new(sent))))
    }
}

fn overtaken<W: Worker>(peer: u32) -> W::Fault {
    W::Error::corrupt(peer, "a copy into a receive that another message has matched", 0).into()
}
