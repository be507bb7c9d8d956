//! Moving large messages after matching: read by the receiver, copied by both, or piece by piece through the ring.

use crate::helper::{self, Helper, Share, Task};
use crate::pieces::{List, Remote, Way};
use crate::request::{RequestId, State};
use crate::send::outcome;
use crate::{Engine, Fault, Rendezvous};
use fabric::local::{COOPERATIVE_PIECES_MAX, Cooperative as Descriptor, Side};
use fabric::{Fabric, Refused};
use proto::protocols::{Abilities, Protocol, Transfer};
use proto::rendezvous::usage::{self, End};
use proto::wire::{self, Cooperative, Cts, Envelope, Kind, Rts};
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use trace::{Route, now_ns};

/// A send that goes through the ring piece by piece.
pub(crate) struct Stream {
    request: RequestId,
    peer: u32,
    receiver: u64,
    offset: usize,
    end: usize,
}

/// A copy between processes that is under way here.
pub(crate) enum Job {
    /// This side receives and reads alone.
    Read { request: RequestId, peer: u32, sender: u64, remote: Remote, done: usize, bytes: usize },
    /// This side receives; both copy.
    CooperativeIn {
        request: RequestId,
        peer: u32,
        sender: u64,
        remote: Remote,
        bytes: usize,
        slot: u8,
        generation: u32,
        share: Option<Share>,
        /// What the sender reads to know where to write.
        _list: Option<List>,
    },
    /// This side sends; both copy.
    CooperativeOut { request: RequestId, peer: u32, receiver: u64, remote: Remote, bytes: usize, slot: u64, generation: u32, share: Option<Share> },
}

impl Job {
    fn peer(&self) -> u32 {
        match self {
            Job::Read { peer, .. } | Job::CooperativeIn { peer, .. } | Job::CooperativeOut { peer, .. } => *peer,
        }
    }

    /// Whether this side fetches a message of `process`.
    pub(crate) fn fetches_from(&self, process: u32) -> bool {
        matches!(self, Job::Read { peer, .. } | Job::CooperativeIn { peer, .. } if *peer == process)
    }
}

/// Longest piece of a streamed message: short enough to stay in a core's own cache on both sides.
const STREAM_PIECE_BYTES_MAX: usize = 32 << 10;

/// Bytes read before other things get a turn.
const READ_PIECE_BYTES: usize = 512 << 10;

/// Shortest copy that waking the helper may pay for.
const HELP_BYTES_MIN: usize = 128 << 10;
/// Where it is counted whether that pays.
const HELP: usage::Envelope = (0, 0, 0);

/// Size of the pieces of a cooperative copy of `bytes`. Both sides compute the same.
fn piece_bytes(bytes: usize) -> usize {
    let size = if bytes >= 2 << 20 || bytes <= 256 << 10 { 64 << 10 } else { 128 << 10 };
    size * bytes.div_ceil(size * COOPERATIVE_PIECES_MAX as usize).max(1)
}

pub(crate) fn pieces(bytes: usize) -> u32 {
    bytes.div_ceil(piece_bytes(bytes)) as u32
}

impl Engine {
    /// Begins to fetch an offered message for request `id`, whose peer is set.
    pub(crate) fn fetch(&mut self, id: RequestId, envelope: Envelope, rts: Rts) -> Result<(), Fault> {
        let r = self.requests.at(id.index);
        let (peer, room) = (r.peer, r.buffer.len());
        let straight = rts.address != 0 && r.buffer.straight();
        let in_pieces = rts.pieces > 0 || r.buffer.address().is_none();
        r.state = State::Fetching;
        r.outcome = outcome(envelope.source, envelope.tag, rts.bytes.min(usize::MAX as u64) as usize, room);
        let bytes = r.outcome.bytes as usize;
        if self.peers[peer as usize].gone {
            self.fail_request(id, peer);
            return Ok(());
        }
        if r.announced.is_none() {
            self.acknowledge(peer, envelope, rts.request)?;
        } else {
            let local = self.local.as_mut().expect("an offer came through it");
            let counts = self.config.rendezvous == Rendezvous::Sequence;
            let reads = counts && straight && bytes > 0 && local.reachable(peer);
            let remote = if reads { Remote::learn(local, peer, rts.address, rts.pieces, rts.bytes) } else { None };
            if let Some((slot, generation)) = self.crossed(id, remote.is_some())? {
                let remote = match remote {
                    Some(remote) => remote,
                    None if rts.pieces == 0 => Remote::At(rts.address),
                    None => self.leave_to_sender(slot, generation, bytes)?,
                };
                self.jobs.push_back(Job::CooperativeIn { request: id, peer, sender: rts.request, remote, bytes, slot, generation, share: None, _list: None });
                return Ok(());
            }
        }
        if bytes == 0 {
            self.counters.received(Route::Read, 0);
            return self.fetched(id, peer, rts.request);
        }
        // A peer that has something to fetch from here is, or will be, busy with that; and sharing many pieces costs more than one.
        let p = &mut self.peers[peer as usize];
        let exchange = p.offers > 0 || std::mem::replace(&mut p.exchanging, false);
        p.exchanging |= p.offers > 0;
        let local = self.local.as_mut().expect("an offer came through it");
        let abilities = Abilities {
            remote_read: straight && local.reachable(peer),
            cooperative_copy: bytes as u64 >= self.config.cooperative_bytes_min
                && !(self.cooperative_copies_free.is_empty() || self.waiting.oversubscribed || in_pieces && exchange),
        };
        let transfer = Transfer { bytes: bytes as u64, contiguous: straight };
        let protocol = self.fetching(peer, &abilities, &transfer);
        if protocol == Protocol::Pipelined {
            return self.ask_for_stream(id, peer, rts.request, bytes);
        }
        let local = self.local.as_mut().expect("an offer came through it");
        let Some(remote) = Remote::learn(local, peer, rts.address, rts.pieces, rts.bytes) else {
            return self.ask_for_stream(id, peer, rts.request, bytes);
        };
        let buffer = &self.requests.at(id.index).buffer;
        // The sender writes to this side's pieces only where that pays.
        let list = if protocol == Protocol::Cooperative { buffer.list() } else { None };
        match (protocol, buffer.told(list.as_ref())) {
            (Protocol::Cooperative, Some((address, pieces))) => {
                let (slot, generation, cooperative) = self.take_slot()?.expect("checked above");
                cooperative.begin(generation);
                let slot_and_generation = slot as u64 | (generation as u64) << 32;
                let offer = Cooperative { request: rts.request, receiver: id.to_raw(), slot: slot_and_generation, address, bytes: bytes as u64, pieces };
                self.control(peer, wire::control(Kind::Cooperative), &offer.to_words())?;
                let job = Job::CooperativeIn { request: id, peer, sender: rts.request, remote, bytes, slot, generation, share: None, _list: list };
                self.jobs.push_back(job);
                Ok(())
            }
            _ => {
                let job = Job::Read { request: id, peer, sender: rts.request, remote, done: 0, bytes };
                if bytes <= READ_PIECE_BYTES && self.jobs.is_empty() {
                    if let Some(rest) = self.step(job)?.1 {
                        self.jobs.push_back(rest);
                    }
                } else {
                    self.jobs.push_back(job);
                }
                Ok(())
            }
        }
    }

    /// A descriptor for a copy to this process, and the copy's generation. `None` when all are in use.
    pub(crate) fn take_slot(&mut self) -> Result<Option<(u8, u32, &'static Descriptor)>, Fault> {
        let (Some(local), Some(&slot)) = (&mut self.local, self.cooperative_copies_free.last()) else { return Ok(None) };
        let cooperative = local.cooperative(self.config.me, slot as u64)?;
        self.cooperative_copies_free.pop();
        self.cooperative_generation = self.cooperative_generation.wrapping_add(1);
        Ok(Some((slot, self.cooperative_generation, cooperative)))
    }

    fn ask_for_stream(&mut self, id: RequestId, peer: u32, sender: u64, bytes: usize) -> Result<(), Fault> {
        self.requests.at(id.index).missing = bytes as u64;
        let cts = Cts { request: sender, receiver: id.to_raw(), bytes: bytes as u64 };
        self.control(peer, wire::control(Kind::Cts), &cts.to_words())
    }

    /// A fetched message is whole: the sender may go on.
    fn fetched(&mut self, id: RequestId, peer: u32, sender: u64) -> Result<(), Fault> {
        self.complete(id);
        self.control(peer, wire::control(Kind::Fin), &[sender])
    }

    /// Does a piece of the copies that are under way. Returns whether anything was done.
    pub(crate) fn work(&mut self) -> Result<bool, Fault> {
        let mut moved = false;
        self.stalled = true;
        // What comes here first: in an exchange each side then reads, and finds what it reads in its own core's cache later.
        for out in [false, true] {
            for _ in 0..self.jobs.len() {
                let Some(job) = self.jobs.pop_front() else { break };
                if matches!(job, Job::CooperativeOut { .. }) != out {
                    self.jobs.push_back(job);
                    continue;
                }
                let (did, rest) = self.step(job)?;
                moved |= did;
                self.stalled &= !did;
                if let Some(rest) = rest {
                    // The oldest goes on first; one that only waits for the peer lets the next one work.
                    if did {
                        self.jobs.push_front(rest);
                        return Ok(true);
                    }
                    self.jobs.push_back(rest);
                }
            }
        }
        Ok(moved)
    }

    /// Copies to and from `process`, which copies no more, end as they are.
    pub(crate) fn end_copies(&mut self, process: u32) {
        let (over, on) = std::mem::take(&mut self.jobs).into_iter().partition(|job| job.peer() == process);
        self.jobs = on;
        let over: VecDeque<Job> = over;
        for job in over {
            match job {
                Job::CooperativeIn { slot, generation, .. } => self.void(self.config.me, slot as u64, generation),
                Job::CooperativeOut { slot, generation, .. } => self.void(process, slot, generation),
                Job::Read { .. } => {}
            }
            if let Job::CooperativeIn { slot, .. } = job {
                self.cooperative_copies_free.push(slot);
            }
        }
        self.streams.retain(|stream| stream.peer != process);
        // The piece that it has begun is its last.
        if let Some(helper) = self.helper.as_ref().and_then(Helper::busy) {
            helper.await_piece();
        }
    }

    /// No piece of a cooperative copy can be claimed any more.
    pub(crate) fn void(&mut self, owner: u32, slot: u64, generation: u32) {
        if let Some(Ok(cooperative)) = self.local.as_mut().map(|local| local.cooperative(owner, slot)) {
            cooperative.withdraw(generation);
            (0..=COOPERATIVE_PIECES_MAX).find(|_| cooperative.claim(generation, COOPERATIVE_PIECES_MAX, Side::Receiver).is_none());
        }
    }

    /// One piece of a job: whether something was done, and the job if it is not over.
    fn step(&mut self, job: Job) -> Result<(bool, Option<Job>), Fault> {
        let local = self.local.as_mut().expect("jobs come through it");
        match job {
            Job::Read { request, peer, sender, remote, done, bytes } => {
                let now = (bytes - done).min(READ_PIECE_BYTES);
                // SAFETY: inside the receive's buffer, which MPI has handed over.
                match unsafe { remote.copy(local, peer, &self.requests.at(request.index).buffer, done, now, Way::Read) } {
                    Ok(()) if done + now == bytes => {
                        self.counters.received(Route::Read, bytes as u64);
                        self.fetched(request, peer, sender)?;
                        Ok((true, None))
                    }
                    Ok(()) => Ok((true, Some(Job::Read { request, peer, sender, remote, done: done + now, bytes }))),
                    Err(_) => {
                        // Whatever the reason: the ring always works.
                        local.unreachable(peer);
                        self.ask_for_stream(request, peer, sender, bytes)?;
                        Ok((true, None))
                    }
                }
            }
            Job::CooperativeIn { request, peer, sender, remote, bytes, slot, generation, share, _list } => {
                let cooperative = local.cooperative(self.config.me, slot as u64)?;
                let mut did = false;
                if let Some(piece) = cooperative.claim(generation, pieces(bytes), Side::Receiver) {
                    did = true;
                    let (at, now) = piece_range(bytes, piece);
                    let to = &self.requests.at(request.index).buffer;
                    // SAFETY: inside the receive's buffer.
                    if !cooperative.failed() && unsafe { remote.copy(local, peer, to, at, now, Way::Read) }.is_err() {
                        local.unreachable(peer);
                        cooperative.fail();
                    }
                    cooperative.finish();
                }
                if cooperative.finished() >= pieces(bytes) {
                    self.cooperative_copies_free.push(slot);
                    if cooperative.failed() {
                        // Whatever the reason: the ring always works.
                        self.ask_for_stream(request, peer, sender, bytes)?;
                        return Ok((true, None));
                    }
                    self.counters.received(Route::Cooperative, bytes as u64);
                    self.judge_help(share.as_ref());
                    // The sender may know already. It is told in any case: which thread of the two copied last, nobody can say for sure.
                    self.fetched(request, peer, sender)?;
                    return Ok((true, None));
                }
                Ok((did, Some(Job::CooperativeIn { request, peer, sender, remote, bytes, slot, generation, share, _list })))
            }
            Job::CooperativeOut { request, peer, receiver, remote, bytes, slot, generation, share } => {
                let cooperative = local.cooperative(peer, slot)?;
                let Some(piece) = cooperative.claim(generation, pieces(bytes), Side::Sender) else {
                    // All pieces are taken: over when all are copied.
                    let Some(finished) = cooperative.finished_under(generation) else { return Ok((false, None)) };
                    if finished < pieces(bytes) {
                        return Ok((false, Some(Job::CooperativeOut { request, peer, receiver, remote, bytes, slot, generation, share })));
                    }
                    self.cooperative_sent(request, cooperative.failed(), share.as_ref());
                    return Ok((true, None));
                };
                let (at, now) = piece_range(bytes, piece);
                // A send that is over: its memory is the program's again.
                let offered = self.requests.find(request).filter(|r| r.state == State::Offered);
                let Some(from) = offered.map(|r| &r.buffer) else { return Ok((false, None)) };
                // SAFETY: inside the send's buffer; the receiver has offered its own.
                if unsafe { remote.copy(local, peer, from, at, now, Way::Write) }.is_err() {
                    local.unreachable(peer);
                    cooperative.fail();
                }
                if cooperative.finish() >= pieces(bytes) {
                    self.cooperative_sent(request, cooperative.failed(), share.as_ref());
                    self.control(peer, wire::control(Kind::CooperativeDone), &[receiver])?;
                    return Ok((true, None));
                }
                Ok((true, Some(Job::CooperativeOut { request, peer, receiver, remote, bytes, slot, generation, share })))
            }
        }
    }

    /// All pieces of a cooperative copy of this side's message have been dealt with.
    fn cooperative_sent(&mut self, request: RequestId, failed: bool, share: Option<&Share>) {
        self.judge_help(share);
        if !failed && self.requests.find(request).is_some_and(|r| r.state == State::Offered) {
            self.complete(request);
        }
    }

    /// Learns whether the helper was of use for a copy, of which the other side, its helper and this thread may have done the most.
    fn judge_help(&mut self, share: Option<&Share>) {
        if let Some(share) = share {
            let copied = share.load(Ordering::Relaxed);
            self.counters.pieces_helped += copied as u64;
            self.helping.learn(HELP, if copied > 0 { End::Used } else { End::Unused });
        }
    }

    /// The program leaves MPI with copies under way: a helper takes part in them where a core is idle.
    #[inline]
    pub fn leave(&mut self) {
        if !self.jobs.is_empty() && self.config.help {
            let out = matches!(self.jobs.back(), Some(Job::CooperativeOut { .. }));
            if self.absences.leave(self.jobs.len(), out, now_ns()) {
                self.ask_for_help();
            }
        }
    }

    #[inline(never)]
    fn ask_for_help(&mut self) {
        let mut asked = false;
        for at in 0..self.jobs.len() {
            let (request, peer, remote, bytes, owner, slot, generation, out) = match &self.jobs[at] {
                Job::CooperativeIn { request, peer, remote: Remote::At(remote), bytes, slot, generation, share: None, .. } => {
                    (*request, *peer, *remote, *bytes, self.config.me, *slot as u64, *generation, false)
                }
                Job::CooperativeOut { request, peer, remote: Remote::At(remote), bytes, slot, generation, share: None, .. } => {
                    (*request, *peer, *remote, *bytes, *peer, *slot, *generation, true)
                }
                _ => continue,
            };
            let Some(here) = self.requests.find(request).and_then(|r| r.buffer.address()) else { continue };
            if bytes < HELP_BYTES_MIN || !self.helping.allows(HELP) {
                continue;
            }
            if self.helper.is_none() {
                // On another rank's core it would stop in the middle of a piece when that rank goes on.
                self.helper = Helper::start(self.config.processes < self.config.cores);
                if self.helper.is_none() {
                    self.config.help = false;
                    return;
                }
            }
            let local = self.local.as_mut().expect("jobs come through it");
            let (Ok(copier), Ok(cooperative)) = (local.copier(peer), local.cooperative(owner, slot)) else { continue };
            let new = Share::default();
            let task = Task { copier, cooperative, generation, bytes, remote, here, out, share: new.clone() };
            if self.helper.as_ref().is_some_and(|helper| helper.ask(task)) {
                asked = true;
                if let Job::CooperativeIn { share, .. } | Job::CooperativeOut { share, .. } = &mut self.jobs[at] {
                    *share = Some(new);
                }
            }
        }
        if asked && let Some(helper) = &self.helper {
            helper.wake();
        }
    }

    /// Where this process can only wait for pieces that others have claimed, and its helper copies one: what that can be awaited by.
    pub(crate) fn helped(&self) -> Option<Arc<helper::Shared>> {
        if self.stuck() { self.helper.as_ref()?.busy() } else { None }
    }

    /// Whether this process can only wait for pieces that others have claimed.
    pub(crate) fn stuck(&self) -> bool {
        !self.jobs.is_empty() && self.stalled
    }

    /// The receiver offers to copy cooperatively.
    pub(crate) fn join(&mut self, peer: u32, offer: Cooperative) {
        let id = RequestId::from_raw(offer.request);
        let local = self.local.as_mut().expect("the offer came through it");
        // Not reachable from here: the receiver copies alone.
        if !local.reachable(peer) {
            return;
        }
        let Some(r) = self.requests.find(id) else { return };
        if r.state != State::Offered || r.peer != peer || offer.bytes > r.buffer.len() as u64 || !r.buffer.straight() {
            return;
        }
        // The receiver may have copied all of it already; then its list can be gone, and there is nothing left to claim.
        let Some(remote) = Remote::learn(local, peer, offer.address, offer.pieces, offer.bytes) else { return };
        self.jobs.push_back(Job::CooperativeOut {
            request: id,
            peer,
            receiver: offer.receiver,
            remote,
            bytes: offer.bytes as usize,
            slot: offer.slot & u32::MAX as u64,
            generation: (offer.slot >> 32) as u32,
            share: None,
        });
    }

    /// The receiver wants the bytes through the ring.
    pub(crate) fn begin_stream(&mut self, peer: u32, cts: Cts) -> bool {
        let id = RequestId::from_raw(cts.request);
        let Some(r) = self.requests.find(id) else { return false };
        if r.state != State::Offered || r.peer != peer || cts.bytes > r.buffer.len() as u64 {
            return false;
        }
        r.state = State::Streaming;
        self.peers[peer as usize].offers -= 1;
        self.streams.push(Stream { request: id, peer, receiver: cts.receiver, offset: 0, end: cts.bytes as usize });
        true
    }

    /// Puts as much of the streams into the rings as fits.
    pub(crate) fn pump(&mut self) -> Result<bool, Fault> {
        let mut moved = false;
        let mut at = 0;
        while at < self.streams.len() {
            let local = self.local.as_mut().expect("streams go through it");
            let piece_max = (local.capabilities().body_bytes_max / 2).clamp(1, STREAM_PIECE_BYTES_MAX);
            let s = &mut self.streams[at];
            let mut full = false;
            while s.offset < s.end {
                let now = (s.end - s.offset).min(piece_max);
                let mut part = None;
                let body = self.requests.at(s.request.index).buffer.body(s.offset, now, &mut part);
                match local.send(s.peer, wire::control(Kind::Data), &[s.receiver, s.offset as u64], body) {
                    Ok(()) => {
                        s.offset += now;
                        moved = true;
                    }
                    Err(Refused::Full) => {
                        full = true;
                        break;
                    }
                    Err(Refused::Failed(error)) => return Err(error.into()),
                }
            }
            if full {
                at += 1;
            } else {
                let id = s.request;
                self.streams.swap_remove(at);
                self.complete(id);
            }
        }
        Ok(moved)
    }

    /// A piece of a streamed message has come.
    pub(crate) fn stream_piece(&mut self, peer: u32, receiver: u64, offset: u64, parts: [(*const u8, usize); 2]) -> bool {
        let id = RequestId::from_raw(receiver);
        let Some(r) = self.requests.find(id) else { return false };
        let bytes = (parts[0].1 + parts[1].1) as u64;
        let inside = offset.checked_add(bytes).is_some_and(|end| end <= r.outcome.bytes);
        // An empty piece would end a receive that is copied in another way.
        if r.state != State::Fetching || r.peer != peer || bytes == 0 || bytes > r.missing || !inside {
            return false;
        }
        r.buffer.put(offset as usize, parts[0].0, parts[0].1);
        r.buffer.put(offset as usize + parts[0].1, parts[1].0, parts[1].1);
        r.missing -= bytes;
        if r.missing == 0 {
            let bytes = r.outcome.bytes;
            self.counters.received(Route::Pipelined, bytes);
            self.complete(id);
        }
        true
    }
}

pub(crate) fn piece_range(bytes: usize, piece: u32) -> (usize, usize) {
    let size = piece_bytes(bytes);
    let at = piece as usize * size;
    (at, size.min(bytes - at))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_cover_the_message_exactly() {
        for bytes in [1, 64 << 10, (64 << 10) + 1, 300_000, 1 << 20, (4 << 20) + 17, (4 << 30) + 1, 1 << 40] {
            let mut next = 0;
            assert!(pieces(bytes) <= COOPERATIVE_PIECES_MAX);
            for piece in 0..pieces(bytes) {
                let (at, length) = piece_range(bytes, piece);
                assert_eq!(at, next);
                assert!(length > 0);
                next += length;
            }
            assert_eq!(next, bytes);
        }
    }
}
