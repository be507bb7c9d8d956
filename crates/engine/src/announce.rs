//! Speculation: receives that come first are announced to their senders, whose late sends then begin to copy at once.
//!
//! What an announcement is for is decided in [`proto::rendezvous`]. On shared memory it names a descriptor of the copy in the
//! receiver's segment, which is *open*: whoever comes first, the late sender or a receiver that finds the sender's offer,
//! begins it, and then both may copy. A receive that is matched in another way, or cancelled, takes its descriptor back,
//! which fails if the sender has begun.

use crate::pieces::Remote;
use crate::request::{Announced, RequestId, State};
use crate::send::outcome;
use crate::transfer::Job;
use crate::{Engine, Fault};
use fabric::Fabric;
use proto::matching::Pattern;
use proto::rendezvous::sequence::{Sender, Verdict};
use proto::rendezvous::{Rtr, usage};
use proto::wire::{self, Context, Envelope, Kind, Start};
use trace::events::{Happening, note};

/// Descriptors that are left for copies that were not announced.
const SLOTS_RESERVED: usize = 4;

/// What an announcement has cost when it was for nothing, bytes on the way.
const RTR_BYTES: u64 = 64;

/// What this process knows of one peer's announcements, and has announced to it.
#[derive(Default)]
pub(crate) struct Speculation {
    /// This side sends: what the peer has announced. Not there before the first announcement.
    pub sender: Option<Box<Sender>>,
    /// This side receives: announced receives that are posted, oldest first.
    announced: Vec<RequestId>,
    /// Resets of the peer that this side has heard of.
    epoch: u32,
    /// An announcement was taken back, and the peer has not answered yet.
    forgetting: bool,
}

/// Whose usage is counted together. Collectives give every message a tag of its own.
fn envelope_of(context: Context, source: u32, tag: i32) -> usage::Envelope {
    (context.raw(), source, if context.raw() & 1 == 1 { 0 } else { tag })
}

impl Engine {
    /// Announces a posted receive to `process`, the only one that can send to it, where that may pay.
    #[inline]
    pub fn announce(&mut self, id: RequestId, process: u32) {
        let r = self.requests.at(id.index);
        if let State::Posted { context, place } = r.state
            && r.buffer.len() > self.config.eager_bytes_max
        {
            self.announce_large(id, process, context, place);
        }
    }

    #[inline(never)]
    fn announce_large(&mut self, id: RequestId, process: u32, context: u32, place: u32) {
        let r = self.requests.at(id.index);
        let (Some(address), room) = (r.buffer.address(), r.buffer.len()) else { return };
        let Some(shm) = &mut self.shm else { return };
        let peer = &self.peers[process as usize];
        if process == self.config.me || peer.far || self.joints_free.len() <= SLOTS_RESERVED || peer.speculation.forgetting {
            return;
        }
        if !self.matcher.may_announce(context, place) || !shm.reachable(process) {
            return;
        }
        let (key, pattern) = self.matcher.posted(context, place);
        let envelope = envelope_of(key, pattern.source, pattern.tag);
        if !self.usage.allows(envelope) {
            return;
        }
        let Ok(Some((slot, generation, joint))) = self.take_slot() else { return };
        joint.open(generation);
        self.requests.at(id.index).announced = Some(Announced { slot, generation, process, envelope });
        self.matcher.announce(place, true);
        let peer = &mut self.peers[process as usize];
        peer.speculation.announced.push(id);
        let rtr = Rtr {
            request: id.to_raw(),
            slot: slot as u32,
            generation,
            address: address as u64,
            room_bytes: room as u64,
            seen: peer.seen,
            epoch: peer.speculation.epoch,
            context: key.raw(),
            tag: pattern.tag,
        };
        let tag = if pattern.tag == Pattern::ANY_TAG { 0 } else { pattern.tag };
        self.counters.rtr_sent += 1;
        // A fabric that fails says so at the next progress.
        let _ = self.control(process, wire::header(Kind::Rtr, Envelope { context: key, source: pattern.source, tag }), &rtr.to_words());
    }

    /// The announcement of request `id` is over. Returns its descriptor, which the caller gives back when the copy is over.
    fn end_announcement(&mut self, id: RequestId, used: bool) -> Option<Announced> {
        let announced = self.requests.at(id.index).announced.take()?;
        self.peers[announced.process as usize].speculation.announced.retain(|other| *other != id);
        self.usage.learn(announced.envelope, used);
        Some(announced)
    }

    /// An announced receive was matched by a message that needs no copying between the two.
    #[cold]
    pub(crate) fn mispredicted(&mut self, id: RequestId) -> Result<(), Fault> {
        let Some(announced) = self.end_announcement(id, false) else { return Ok(()) };
        self.counters.rtr_mispredicted += 1;
        self.counters.rtr_wasted_bytes += RTR_BYTES;
        let withdrawn = self.joint_of(&announced)?.withdraw(announced.generation);
        self.joints_free.push(announced.slot);
        if withdrawn { Ok(()) } else { Err(overtaken(announced.process)) }
    }

    fn joint_of(&mut self, announced: &Announced) -> Result<&'static fabric::shm::area::Joint, Fault> {
        let me = self.config.me;
        let shm = self.shm.as_mut().expect("announced through it");
        Ok(shm.joint(me, announced.slot as u64)?)
    }

    /// An announced receive was matched by an offer: announcement and offer have crossed, and the descriptor serves for the copy, if
    /// this side can read the peer's memory.
    pub(crate) fn crossed(&mut self, id: RequestId, reads: bool) -> Result<Option<(u8, u32)>, Fault> {
        // Between memories an announcement that crossed its offer still pays: the copy begins at once on both sides, with no word more.
        let Some(announced) = self.end_announcement(id, reads) else { return Ok(None) };
        self.counters.rtr_crossed += 1;
        self.counters.rtr_wasted_bytes += if reads { 0 } else { RTR_BYTES };
        let joint = self.joint_of(&announced)?;
        if !reads && joint.withdraw(announced.generation) {
            self.joints_free.push(announced.slot);
            return Ok(None);
        }
        if !joint.begin_open(announced.generation) && !joint.begun(announced.generation) {
            return Err(overtaken(announced.process));
        }
        Ok(Some((announced.slot, announced.generation)))
    }

    /// The peer has announced a receive.
    pub(crate) fn arrive_rtr(&mut self, peer: u32, rtr: Rtr) -> Result<(), Fault> {
        let p = &mut self.peers[peer as usize];
        let sent = p.sent;
        match p.sender().arrived(rtr, sent) {
            Verdict::Kept | Verdict::Void | Verdict::Crossed { request: None } => Ok(()),
            Verdict::Crossed { request: Some(raw) } => self.begin_crossed(peer, rtr, RequestId::from_raw(raw)),
            Verdict::Reset { epoch } => self.control(peer, wire::control(Kind::Reset), &[epoch as u64]),
        }
    }

    /// The announcement crossed the offer of request `id`: this side begins to copy if the receiver has not.
    fn begin_crossed(&mut self, peer: u32, rtr: Rtr, id: RequestId) -> Result<(), Fault> {
        let shm = self.shm.as_mut().expect("the announcement came through it");
        if !shm.reachable(peer) {
            return Ok(());
        }
        let Some(r) = self.requests.find(id) else { return Ok(()) };
        if r.state != State::Offered || r.peer != peer || r.buffer.address().is_none() {
            return Ok(());
        }
        let bytes = r.buffer.len();
        let joint = shm.joint(peer, rtr.slot as u64)?;
        if bytes.min(rtr.room_bytes as usize) > 0 && (joint.begin_open(rtr.generation) || joint.begun(rtr.generation)) {
            self.copy_to(peer, id, &rtr, bytes);
        }
        Ok(())
    }

    /// This side copies the message of request `id` to an announced receive, whose copy has begun.
    fn copy_to(&mut self, peer: u32, id: RequestId, rtr: &Rtr, bytes: usize) {
        self.jobs.push_back(Job::JointOut {
            request: id,
            peer,
            receiver: rtr.request,
            remote: Remote::At(rtr.address),
            bytes: bytes.min(rtr.room_bytes as usize),
            slot: rtr.slot as u64,
            generation: rtr.generation,
            share: None,
        });
    }

    /// Whether the send `id`, the next to leave for `peer`, answers an announcement; if so, it has left. `None`: there is no room now.
    pub(crate) fn answer(&mut self, peer: u32, id: RequestId) -> Result<Option<bool>, Fault> {
        let r = self.requests.at(id.index);
        let Some((_, envelope)) = wire::parse(r.head) else { return Ok(Some(false)) };
        let (Some(address), bytes) = (r.buffer.address(), r.buffer.len()) else { return Ok(Some(false)) };
        let shm = self.shm.as_mut().expect("sends go through it");
        let p = &mut self.peers[peer as usize];
        let Some(sender) = &mut p.speculation.sender else { return Ok(Some(false)) };
        let (context, tag) = (envelope.context.raw(), envelope.tag);
        while let Some(&rtr) = sender.find(context, tag) {
            if !shm.reachable(peer) {
                return Ok(Some(false));
            }
            let joint = shm.joint(peer, rtr.slot as u64)?;
            if !joint.begin_open(rtr.generation) {
                // It was taken back.
                sender.withdrawn(context, tag);
                continue;
            }
            let start = Start { request: id.to_raw(), bytes: bytes as u64, address: address as u64, receiver: rtr.request };
            match shm.send(peer, wire::header(Kind::Start, envelope), &start.to_words(), fabric::Body::EMPTY) {
                Ok(()) => {}
                Err(fabric::Refused::Full) => {
                    joint.reopen(rtr.generation);
                    return Ok(None);
                }
                Err(fabric::Refused::Failed(error)) => return Err(error.into()),
            }
            p.count_sent(envelope.context, tag, Some(id.to_raw()));
            p.offers += 1;
            self.counters.rtr_answered += 1;
            self.requests.at(id.index).state = State::Offered;
            self.copy_to(peer, id, &rtr, bytes);
            return Ok(Some(true));
        }
        Ok(Some(false))
    }

    /// A message answers an announcement of this side.
    pub(crate) fn arrive_start(&mut self, peer: u32, envelope: Envelope, start: Start) -> Result<bool, Fault> {
        let id = RequestId::from_raw(start.receiver);
        let Some(r) = self.requests.find(id) else { return Ok(false) };
        let State::Posted { context, place } = r.state else { return Ok(false) };
        let Some(announced) = r.announced.filter(|a| a.process == peer) else { return Ok(false) };
        let (key, pattern) = self.matcher.posted(context, place);
        if key != envelope.context || !pattern.accepts(envelope.source, envelope.tag) || !self.joint_of(&announced)?.begun(announced.generation) {
            return Ok(false);
        }
        self.peers[peer as usize].count_seen();
        self.matcher.withdraw(context, place);
        self.end_announcement(id, true);
        self.counters.rtr_used += 1;
        let r = self.requests.at(id.index);
        r.peer = peer;
        r.state = State::Fetching;
        r.outcome = outcome(envelope.source, envelope.tag, start.bytes.min(usize::MAX as u64) as usize, r.buffer.len());
        let bytes = r.outcome.bytes as usize;
        note(Happening::Announced, || [peer as i64, envelope.tag as i64, bytes as i64]);
        self.jobs.push_back(Job::JointIn {
            request: id,
            peer,
            sender: start.request,
            remote: Remote::At(start.address),
            bytes,
            slot: announced.slot,
            generation: announced.generation,
            share: None,
            _list: None,
        });
        Ok(true)
    }

    /// The peer has forgotten what this side announced to it.
    pub(crate) fn arrive_reset(&mut self, peer: u32, epoch: u32) -> Result<(), Fault> {
        let speculation = &mut self.peers[peer as usize].speculation;
        speculation.epoch = epoch;
        speculation.forgetting = false;
        for id in std::mem::take(&mut speculation.announced) {
            if !self.silence(id)? {
                return Err(overtaken(peer));
            }
        }
        Ok(())
    }

    /// Takes the announcement of a posted receive back; the receive stays posted. False: the sender has begun.
    fn silence(&mut self, id: RequestId) -> Result<bool, Fault> {
        let r = self.requests.at(id.index);
        let (Some(announced), State::Posted { place, .. }) = (r.announced, r.state) else { return Ok(true) };
        if !self.joint_of(&announced)?.withdraw(announced.generation) {
            return Ok(false);
        }
        self.requests.at(id.index).announced = None;
        self.matcher.announce(place, false);
        self.joints_free.push(announced.slot);
        self.counters.rtr_wasted_bytes += RTR_BYTES;
        Ok(true)
    }

    /// Cancels a posted receive, now or as soon as it is known that no message is under way to it. One that was announced is taken back
    /// together with all that were announced to its sender after it, from the newest on: a copy that has begun shows that messages
    /// are under way, perhaps also to this one, and they are dealt with first.
    pub(crate) fn cancel_receive(&mut self, id: RequestId) -> Result<(), Fault> {
        let Some(State::Posted { context, place }) = self.requests.find(id).map(|r| r.state) else { return Ok(()) };
        if let Some(announced) = self.requests.at(id.index).announced {
            let peer = announced.process;
            let mut taken = false;
            while self.requests.at(id.index).announced.is_some()
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
            if self.requests.at(id.index).announced.is_some() {
                if !self.cancels.contains(&id) {
                    self.cancels.push(id);
                }
                return Ok(());
            }
        }
        self.matcher.withdraw(context, place);
        self.cancelled(id);
        Ok(())
    }

    /// Tries the cancellations again that had to wait.
    #[cold]
    pub(crate) fn cancel_again(&mut self) -> Result<(), Fault> {
        for id in std::mem::take(&mut self.cancels) {
            self.cancel_receive(id)?;
        }
        Ok(())
    }

    /// The receiver has taken an announcement back.
    pub(crate) fn arrive_forget(&mut self, peer: u32) -> Result<(), Fault> {
        let p = &mut self.peers[peer as usize];
        let sent = p.sent;
        let epoch = p.sender().forget(sent);
        self.control(peer, wire::control(Kind::Reset), &[epoch as u64])
    }
}

impl crate::Peer {
    /// What this side knows, as a sender, of the receives that the peer announces.
    fn sender(&mut self) -> &mut Sender {
        let sent = self.sent;
        self.speculation.sender.get_or_insert_with(|| Box::new(Sender::new(sent)))
    }
}

fn overtaken(peer: u32) -> Fault {
    fabric::Error::Corrupt { peer, what: "a copy into a receive that another message has matched", value: 0 }.into()
}
