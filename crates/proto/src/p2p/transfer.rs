//! Moving large messages after matching: read by the receiver, copied by both, or piece by piece through the ring.
//!
//! In a copy that both do, the sender writes its pieces to the receiver's memory, or puts them into the ring, from which the receiver takes them while the
//! sender copies on. The second way has two copies and no system call; it is taken while both wait, where that turns out to be faster. Pieces are claimed
//! all the same: when one of the two goes away, the other does what is left by itself.

use super::copies::{Job, Ring, Stream, piece_range, pieces};
use super::machine::{JobOf, Machine, Worker};
use super::ports::{Buffer, COOPERATIVE_PIECES_MAX, DataPath, Descriptor, Memory, Refused, Side, Way};
use super::request::{RequestId, State, outcome};
use crate::costs::pieces::Done;
use crate::protocols::{Abilities, Protocol, Transfer};
use crate::rendezvous::Variant;
use crate::wire::{self, Cooperative, Cts, Envelope, Kind, Rts};
use std::collections::VecDeque;

/// Longest piece of a streamed message: short enough to stay in a core's own cache on both sides.
const STREAM_PIECE_BYTES_MAX: usize = 32 << 10;

/// Bytes read before other things get a turn.
const READ_PIECE_BYTES: usize = 512 << 10;

/// Number and generation of a descriptor of this process, and the descriptor.
pub(super) type Slot<W> = (u8, u32, <<W as Worker>::Memory as Memory>::Descriptor);

/// A cooperative copy in which others of this process may take part.
pub struct Shareable<'a, W: Worker> {
    pub memory: &'a mut W::Memory,
    pub worker: &'a mut W,
    /// This side's memory, and the peer's.
    pub buffer: &'a W::Buffer,
    pub remote: &'a W::Remote,
    pub share: &'a mut Option<W::Share>,
    pub peer: u32,
    pub bytes: usize,
    /// Whose descriptor it is, which, and the copy's generation there.
    pub owner: u32,
    pub slot: u64,
    pub generation: u32,
    /// From here to the peer.
    pub out: bool,
}

impl<W: Worker> Machine<W> {
    /// Begins to fetch an offered message for request `id`, whose peer is set.
    pub(super) fn fetch(&mut self, id: RequestId, envelope: Envelope, rts: Rts) -> Result<(), W::Fault> {
        let r = self.requests.at(id.index());
        let (peer, room) = (r.peer, r.buffer.len());
        let straight = rts.address != 0 && r.buffer.straight();
        let in_pieces = rts.pieces > 0 || !r.buffer.is_contiguous();
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
            let memory = self.memory.as_mut().expect("an offer came through it");
            let counts = self.config.rendezvous == Variant::Sequence;
            let reads = counts && straight && bytes > 0 && memory.reachable(peer);
            let remote = if reads { W::learn(memory, peer, rts.address, rts.pieces, rts.bytes) } else { None };
            if let Some((slot, generation)) = self.crossed(id, remote.is_some())? {
                let remote = match remote {
                    Some(remote) => remote,
                    None if rts.pieces == 0 => W::at(rts.address),
                    None => self.leave_to_sender(slot, generation, bytes)?,
                };
                return self.copy_in(id, peer, rts.request, remote, slot, generation, None);
            }
        }
        if bytes == 0 {
            self.worker.received(DataPath::Read, 0);
            return self.fetched(id, peer, rts.request);
        }
        // A peer that has something to fetch from here is, or will be, busy with that; and sharing many pieces costs more than one.
        let p = &mut self.peers[peer as usize];
        let exchange = p.offers > 0 || std::mem::replace(&mut p.exchanging, false);
        p.exchanging |= p.offers > 0;
        let memory = self.memory.as_mut().expect("an offer came through it");
        let abilities = Abilities {
            remote_read: straight && memory.reachable(peer),
            cooperative_copy: self.worker.shares_copies(bytes as u64) && !(in_pieces && exchange),
        };
        let transfer = Transfer { bytes: bytes as u64, contiguous: straight };
        // The system has no part in a copy of memory that is mapped, so that each side's half is the sooner done however short it is.
        let mapped = abilities.remote_read && abilities.cooperative_copy && rts.pieces == 0 && memory.maps(peer, rts.address, bytes);
        let protocol = if mapped { Protocol::Cooperative } else { W::fetching(self, id, peer, &abilities, &transfer) };
        if protocol == Protocol::Pipelined {
            return self.ask_for_stream(id, peer, rts.request, bytes);
        }
        let through_ring = abilities.remote_read && abilities.cooperative_copy && self.through_ring(id, peer, bytes as u64, exchange);
        let memory = self.memory.as_mut().expect("an offer came through it");
        let Some(remote) = W::learn(memory, peer, rts.address, rts.pieces, rts.bytes) else {
            return self.ask_for_stream(id, peer, rts.request, bytes);
        };
        // The sender writes to this side's pieces only where that pays.
        let together = through_ring || protocol == Protocol::Cooperative;
        let job = Job::Read { request: id, peer, sender: rts.request, remote, done: 0, bytes, together };
        let Some(job) = self.fetch_together(job, through_ring)? else { return Ok(()) };
        if bytes <= READ_PIECE_BYTES && self.jobs.is_empty() {
            if let Some(rest) = self.step(job)?.1 {
                self.jobs.push_back(rest);
            }
        } else {
            self.jobs.push_back(job);
        }
        Ok(())
    }

    /// Begins what `job` reads as a copy that both do, if it should be one and there is a descriptor for it; else gives it back.
    fn fetch_together(&mut self, job: JobOf<W>, through_ring: bool) -> Result<Option<JobOf<W>>, W::Fault> {
        let Job::Read { request, peer, sender, remote, done: 0, bytes, together: true } = job else { return Ok(Some(job)) };
        let buffer = &self.requests.at(request.index()).buffer;
        let list = buffer.list();
        let Some((address, pieces)) = buffer.told(list.as_ref()) else {
            return Ok(Some(Job::Read { request, peer, sender, remote, done: 0, bytes, together: false }));
        };
        let Some((slot, generation, cooperative)) = self.take_slot()? else {
            return Ok(Some(Job::Read { request, peer, sender, remote, done: 0, bytes, together: true }));
        };
        cooperative.say_through_ring(through_ring);
        cooperative.begin(generation);
        let slot_and_generation = slot as u64 | (generation as u64) << 32;
        let offer = Cooperative { request: sender, receiver: request.to_raw(), slot: slot_and_generation, address, bytes: bytes as u64, pieces };
        self.control(peer, wire::control(Kind::Cooperative), &offer.to_words())?;
        self.copy_in(request, peer, sender, remote, slot, generation, list)?;
        Ok(None)
    }

    /// Both copy the message of `peer` that request `id` receives, under a descriptor of this process.
    #[allow(clippy::too_many_arguments)]
    pub(super) fn copy_in(
        &mut self,
        request: RequestId,
        peer: u32,
        sender: u64,
        remote: W::Remote,
        slot: u8,
        generation: u32,
        list: Option<<W::Buffer as Buffer>::List>,
    ) -> Result<(), W::Fault> {
        let bytes = self.requests.at(request.index()).outcome.bytes as usize;
        let memory = self.memory.as_mut().expect("the message came through it");
        let ring = self.config.ring(memory.cooperative(self.config.me, slot as u64)?);
        self.choose_stores(request, bytes);
        self.jobs.push_back(Job::CooperativeIn { request, peer, sender, remote, bytes, slot, generation, share: None, _list: list, ring });
        W::copies_begin(self);
        Ok(())
    }

    /// The same of this side's message, under a descriptor of `peer`.
    #[allow(clippy::too_many_arguments)]
    pub(super) fn copy_out(
        &mut self,
        request: RequestId,
        peer: u32,
        receiver: u64,
        remote: W::Remote,
        bytes: usize,
        slot: u64,
        generation: u32,
    ) -> Result<(), W::Fault> {
        let memory = self.memory.as_mut().expect("the offer came through it");
        let ring = self.config.ring(memory.cooperative(peer, slot)?);
        self.jobs.push_back(Job::CooperativeOut { request, peer, receiver, remote, bytes, slot, generation, share: None, ring });
        W::copies_begin(self);
        Ok(())
    }

    /// A descriptor for a copy to this process, and the copy's generation. `None` when all are in use.
    pub(super) fn take_slot(&mut self) -> Result<Option<Slot<W>>, W::Fault> {
        let (Some(memory), Some(&slot)) = (&mut self.memory, self.descriptors_free.last()) else { return Ok(None) };
        let cooperative = memory.cooperative(self.config.me, slot as u64)?;
        self.descriptors_free.pop();
        self.cooperative_generation = self.cooperative_generation.wrapping_add(1);
        Ok(Some((slot, self.cooperative_generation, cooperative)))
    }

    fn ask_for_stream(&mut self, id: RequestId, peer: u32, sender: u64, bytes: usize) -> Result<(), W::Fault> {
        self.choose_stores(id, bytes);
        self.requests.at(id.index()).missing = bytes as u64;
        self.asked_bytes += bytes as u64;
        let cts = Cts { request: sender, receiver: id.to_raw(), bytes: bytes as u64 };
        self.control(peer, wire::control(Kind::Cts), &cts.to_words())
    }

    /// Where more of what request `id` and others receive is on its way than the caches hold, that of `id` need not go through them.
    fn choose_stores(&mut self, id: RequestId, bytes: usize) {
        let of = |job: &JobOf<W>| match job {
            Job::Read { bytes, .. } | Job::CooperativeIn { bytes, .. } => *bytes as u64,
            Job::CooperativeOut { .. } => 0,
        };
        let coming_bytes = bytes as u64 + self.asked_bytes + self.jobs.iter().map(of).sum::<u64>();
        self.requests.at(id.index()).past_caches = !self.worker.caches_hold(coming_bytes);
    }

    /// A fetched message is whole: the sender may go on.
    fn fetched(&mut self, id: RequestId, peer: u32, sender: u64) -> Result<(), W::Fault> {
        self.complete(id);
        self.control(peer, wire::control(Kind::Fin), &[sender])
    }

    /// Does a piece of the copies that are under way. Returns whether anything was done.
    pub(super) fn work(&mut self) -> Result<bool, W::Fault> {
        let mut moved = false;
        self.stalled = true;
        // What comes here first: in an exchange each side then reads, and finds what it reads in its own core's cache later.
        for out in [false, true] {
            // Whose oldest copy, of those that go through the ring, is left to the other side for now.
            let mut awaited = None;
            for _ in 0..self.jobs.len() {
                let Some(job) = self.jobs.pop_front() else { break };
                if matches!(job, Job::CooperativeOut { .. }) != out {
                    self.jobs.push_back(job);
                    continue;
                }
                // One that now looks in vain for the last time has something to do in the next look.
                let patient = job.is_patient();
                if patient && awaited == Some(job.peer()) {
                    // It comes behind that one.
                    self.jobs.push_back(job);
                    continue;
                }
                let (did, mut rest) = self.step(job)?;
                // Into the ring goes as much as it takes: the other side takes it out meanwhile.
                let mut goes_on = did && out;
                while goes_on && let Some(job) = rest.take_if(|job| job.is_patient()) {
                    (goes_on, rest) = self.step(job)?;
                }
                moved |= did;
                self.stalled &= !did && !patient;
                if let Some(rest) = rest {
                    // The oldest goes on first; one that only waits for the peer lets the next one work.
                    if did {
                        self.jobs.push_front(rest);
                        return Ok(true);
                    }
                    if rest.is_patient() {
                        awaited = Some(rest.peer());
                    }
                    self.jobs.push_back(rest);
                }
            }
        }
        Ok(moved)
    }

    /// `peer` has dropped announcements that crossed its offers: of copies from there that no piece has come of, it may know nothing.
    pub(super) fn end_patience(&mut self, from: u32) {
        for job in &mut self.jobs {
            if let Job::CooperativeIn { peer, ring, .. } = job
                && *peer == from
                && ring.pieces == 0
            {
                ring.patience = 0;
            }
        }
    }

    /// A piece of a copy to or from `peer` has gone through the ring: others that are to go there come behind it.
    fn renew_patience(&mut self, peer: u32, out: bool) {
        let patience = self.config.patience;
        for job in self.jobs.iter_mut().filter(|job| job.is_patient() && job.peer() == peer) {
            match job {
                Job::CooperativeIn { ring, .. } if !out => ring.patience = patience,
                Job::CooperativeOut { ring, .. } if out => ring.patience = patience,
                _ => {}
            }
        }
    }

    /// Copies to and from `process`, which copies no more, end as they are.
    pub(super) fn end_copies(&mut self, process: u32) {
        let (over, on) = std::mem::take(&mut self.jobs).into_iter().partition(|job| job.peer() == process);
        self.jobs = on;
        let over: VecDeque<JobOf<W>> = over;
        for job in over {
            match job {
                Job::CooperativeIn { slot, generation, .. } => self.void(self.config.me, slot as u64, generation),
                Job::CooperativeOut { slot, generation, .. } => self.void(process, slot, generation),
                Job::Read { .. } => {}
            }
            if let Job::CooperativeIn { slot, .. } = job {
                self.descriptors_free.push(slot);
            }
        }
        self.streams.retain(|stream| stream.peer != process);
        self.asked_bytes = 0;
        // The piece that it has begun is its last.
        self.worker.await_helper();
    }

    /// No piece of a cooperative copy can be claimed any more.
    pub(super) fn void(&mut self, owner: u32, slot: u64, generation: u32) {
        if let Some(Ok(cooperative)) = self.memory.as_mut().map(|memory| memory.cooperative(owner, slot)) {
            cooperative.withdraw(generation);
            (0..=COOPERATIVE_PIECES_MAX).find(|_| cooperative.claim(generation, COOPERATIVE_PIECES_MAX, Side::Receiver).is_none());
        }
    }

    /// One piece of a job: whether something was done, and the job if it is not over.
    fn step(&mut self, job: JobOf<W>) -> Result<(bool, Option<JobOf<W>>), W::Fault> {
        if let Job::Read { request, peer, bytes, done: 0, together: true, .. } = job
            && !self.descriptors_free.is_empty()
        {
            let through_ring = self.through_ring(request, peer, bytes as u64, false);
            let Some(job) = self.fetch_together(job, through_ring)? else {
                // In its own place among the others.
                self.jobs.rotate_right(1);
                return Ok((true, None));
            };
            return self.step(job);
        }
        // Pieces of another one are on their way through the ring, which must not fill: then there will be a descriptor.
        if matches!(job, Job::Read { done: 0, together: true, .. }) && !self.stalled && !self.jobs.is_empty() {
            return Ok((false, Some(job)));
        }
        let memory = self.memory.as_mut().expect("jobs come through it");
        match job {
            Job::Read { request, peer, sender, remote, done, bytes, together } => {
                let now = (bytes - done).min(READ_PIECE_BYTES);
                match W::copy(memory, peer, &remote, &self.requests.at(request.index()).buffer, (done, now), Way::Read) {
                    Ok(()) if done + now == bytes => {
                        self.worker.received(DataPath::Read, bytes as u64);
                        self.worker.fetched(request, Protocol::Read, done == 0);
                        self.fetched(request, peer, sender)?;
                        Ok((true, None))
                    }
                    Ok(()) => Ok((true, Some(Job::Read { request, peer, sender, remote, done: done + now, bytes, together }))),
                    Err(_) => {
                        // Whatever the reason: the ring always works.
                        memory.unreachable(peer);
                        self.ask_for_stream(request, peer, sender, bytes)?;
                        Ok((true, None))
                    }
                }
            }
            Job::CooperativeIn { request, peer, sender, remote, bytes, slot, generation, share, _list, mut ring } => {
                let cooperative = memory.cooperative(self.config.me, slot as u64)?;
                let mut did = false;
                if ring.patience > 0 && cooperative.finished() < pieces(bytes) {
                    ring.look_in_vain(memory.waits(peer));
                } else if let Some(piece) = cooperative.claim(generation, pieces(bytes), Side::Receiver) {
                    did = true;
                    let (at, now) = piece_range(bytes, piece);
                    let to = &self.requests.at(request.index()).buffer;
                    let start_ns = self.worker.now_ns();
                    if !cooperative.failed() && W::copy(memory, peer, &remote, to, (at, now), Way::Read).is_err() {
                        memory.unreachable(peer);
                        cooperative.fail();
                    }
                    cooperative.finish();
                    self.worker.piece_took(peer, bytes, Done::Copied, now, start_ns);
                }
                if cooperative.finished() >= pieces(bytes) {
                    self.descriptors_free.push(slot);
                    if cooperative.failed() {
                        // Whatever the reason: the ring always works.
                        self.ask_for_stream(request, peer, sender, bytes)?;
                        return Ok((true, None));
                    }
                    let through_ring = 2 * ring.pieces >= pieces(bytes);
                    self.worker.received(if through_ring { DataPath::Pipelined } else { DataPath::Cooperative }, bytes as u64);
                    self.worker.fetched(request, Protocol::Cooperative, false);
                    self.judge_share(share.as_ref());
                    if ring.pieces == pieces(bytes) {
                        // The sender knows that it has put all of them in.
                        self.complete(request);
                        return Ok((true, None));
                    }
                    // The sender may know already. It is told in any case: which thread of the two copied last, nobody can say for sure.
                    self.fetched(request, peer, sender)?;
                    return Ok((true, None));
                }
                Ok((did, Some(Job::CooperativeIn { request, peer, sender, remote, bytes, slot, generation, share, _list, ring })))
            }
            Job::CooperativeOut { request, peer, receiver, remote, bytes, slot, generation, share, mut ring } => {
                let cooperative = memory.cooperative(peer, slot)?;
                let longest = piece_range(bytes, 0).1;
                let waits = memory.waits(peer);
                let through_ring = ring.patience > 0 && longest <= memory.body_bytes_max_to(peer);
                // A receiver that does not wait is about to, or computes.
                if through_ring && !(waits && memory.has_room(peer, longest)) {
                    ring.look_in_vain(waits);
                    return Ok((false, Some(Job::CooperativeOut { request, peer, receiver, remote, bytes, slot, generation, share, ring })));
                }
                let Some(piece) = cooperative.claim(generation, pieces(bytes), Side::Sender) else {
                    // All pieces are taken: over when all are copied.
                    let Some(finished) = cooperative.finished_under(generation) else { return Ok((false, None)) };
                    if finished < pieces(bytes) {
                        // Nothing is left that it could wait with.
                        ring.patience = 0;
                        return Ok((false, Some(Job::CooperativeOut { request, peer, receiver, remote, bytes, slot, generation, share, ring })));
                    }
                    self.cooperative_sent(request, cooperative.failed(), share.as_ref());
                    return Ok((true, None));
                };
                let (at, now) = piece_range(bytes, piece);
                // A send that is over: its memory is the program's again.
                let offered = self.requests.find(request).filter(|r| r.state == State::Offered);
                let Some(from) = offered.map(|r| &r.buffer) else { return Ok((false, None)) };
                let start_ns = self.worker.now_ns();
                if through_ring {
                    let words = [receiver, piece as u64 | (generation as u64) << 32];
                    match W::send_body(memory, peer, wire::control(Kind::Piece), &words, from, (at, now)) {
                        Ok(()) => {
                            self.worker.piece_took(peer, bytes, Done::Passed, now, start_ns);
                            (ring.pieces, ring.patience) = (ring.pieces + 1, self.config.patience);
                            self.renew_patience(peer, true);
                            if ring.pieces == pieces(bytes) {
                                self.cooperative_sent(request, false, share.as_ref());
                                return Ok((true, None));
                            }
                            return Ok((true, Some(Job::CooperativeOut { request, peer, receiver, remote, bytes, slot, generation, share, ring })));
                        }
                        Err(Refused::Full) => {}
                        Err(Refused::Failed(error)) => return Err(error.into()),
                    }
                }
                // The receiver has offered its own.
                if W::copy(memory, peer, &remote, from, (at, now), Way::Write).is_err() {
                    memory.unreachable(peer);
                    cooperative.fail();
                }
                self.worker.piece_took(peer, bytes, Done::Copied, now, start_ns);
                if cooperative.finish() >= pieces(bytes) {
                    self.cooperative_sent(request, cooperative.failed(), share.as_ref());
                    self.control(peer, wire::control(Kind::CooperativeDone), &[receiver])?;
                    return Ok((true, None));
                }
                Ok((true, Some(Job::CooperativeOut { request, peer, receiver, remote, bytes, slot, generation, share, ring })))
            }
        }
    }

    /// The job whose copy piece `word` (its number, and the copy's generation above it) belongs to: its request, where the piece is in the message, and how
    /// long that is. `None`: there is no such piece of `bytes`.
    fn job_of_piece(&mut self, peer: u32, receiver: u64, word: u64, bytes: usize) -> Option<(RequestId, usize, usize, u8, &mut Ring)> {
        let (number, generation) = (word as u32, (word >> 32) as u32);
        self.jobs.iter_mut().find_map(|job| match job {
            Job::CooperativeIn { request, peer: from, bytes: all, slot, generation: of, ring, .. }
                if request.to_raw() == receiver && *from == peer && *of == generation && number < pieces(*all) =>
            {
                let (at, length) = piece_range(*all, number);
                (length == bytes).then_some((*request, at, *all, *slot, ring))
            }
            _ => None,
        })
    }

    /// The first bytes of a piece of `bytes` have come whose sender writes the others now, or more of them: the receive that it belongs to, and where it is in
    /// the message. `timed`: what it takes from now on counts.
    pub fn begin_piece(&mut self, peer: u32, receiver: u64, word: u64, bytes: usize, timed: bool) -> Option<(RequestId, usize)> {
        // While this side puts pieces in as well, the time tells about that, too; those are timed themselves.
        let timed = timed && !self.jobs.iter().any(|job| matches!(job, Job::CooperativeOut { .. }));
        let now_ns = if timed { self.worker.now_ns() } else { 0 };
        let (id, at, .., ring) = self.job_of_piece(peer, receiver, word, bytes)?;
        if timed {
            ring.begun_ns = now_ns;
        }
        Some((id, at))
    }

    /// All of a piece of `bytes` has come and is where it belongs.
    pub fn end_piece(&mut self, peer: u32, receiver: u64, word: u64, bytes: usize) -> Result<(), W::Fault> {
        let patience = self.config.patience;
        // Otherwise the copy has ended meanwhile, with its peer.
        let Some((.., all, slot, ring)) = self.job_of_piece(peer, receiver, word, bytes) else { return Ok(()) };
        let begun_ns = ring.begun_ns;
        *ring = Ring { pieces: ring.pieces + 1, begun_ns: 0, patience };
        if begun_ns > 0 {
            self.worker.piece_took(peer, all, Done::Passed, bytes, begun_ns);
        }
        let memory = self.memory.as_mut().expect("the piece came through it");
        memory.cooperative(self.config.me, slot as u64)?.finish();
        self.renew_patience(peer, false);
        Ok(())
    }

    /// A whole piece has come.
    pub(super) fn arrive_piece(&mut self, peer: u32, receiver: u64, word: u64, body: &<W::Buffer as Buffer>::Body) -> Result<(), W::Fault> {
        let bytes = W::Buffer::body_bytes(body);
        if let Some((id, at, all, ..)) = self.job_of_piece(peer, receiver, word, bytes) {
            let start_ns = self.worker.now_ns();
            self.more_bytes(id, at, body);
            self.worker.piece_took(peer, all, Done::Taken, bytes, start_ns);
            self.end_piece(peer, receiver, word, bytes)?;
        }
        Ok(())
    }

    /// All pieces of a cooperative copy of this side's message have been dealt with.
    fn cooperative_sent(&mut self, request: RequestId, failed: bool, share: Option<&W::Share>) {
        self.judge_share(share);
        if !failed && self.requests.find(request).is_some_and(|r| r.state == State::Offered) {
            self.complete(request);
        }
    }

    fn judge_share(&mut self, share: Option<&W::Share>) {
        if let Some(share) = share {
            self.worker.judge_share(share);
        }
    }

    /// Copies that are under way, and whether the newest goes to another process.
    pub fn copies(&self) -> (usize, bool) {
        (self.jobs.len(), matches!(self.jobs.back(), Some(Job::CooperativeOut { .. })))
    }

    /// Copy number `at`, if both sides copy it and nobody else has been asked to.
    pub fn shareable(&mut self, at: usize) -> Option<Shareable<'_, W>> {
        let me = self.config.me;
        let (request, peer, remote, bytes, owner, slot, generation, share, out) = match self.jobs.get_mut(at)? {
            Job::CooperativeIn { request, peer, remote, bytes, slot, generation, share, .. } => {
                (*request, *peer, remote, *bytes, me, *slot as u64, *generation, share, false)
            }
            Job::CooperativeOut { request, peer, remote, bytes, slot, generation, share, .. } => {
                (*request, *peer, remote, *bytes, *peer, *slot, *generation, share, true)
            }
            Job::Read { .. } => return None,
        };
        let buffer = self.requests.buffer_of(request).filter(|_| share.is_none())?;
        let (memory, worker) = (self.memory.as_mut()?, &mut self.worker);
        Some(Shareable { memory, worker, buffer, remote, share, peer, bytes, owner, slot, generation, out })
    }

    /// Whether this side has pieces to put into a ring.
    pub fn puts_pieces(&self) -> bool {
        self.jobs.iter().any(|job| matches!(job, Job::CooperativeOut { ring, .. } if ring.patience > 0))
    }

    /// Whether copies that both sides do are under way, or announced.
    #[inline]
    pub fn copies_may_come(&self) -> bool {
        self.descriptors_free.len() < self.config.descriptors as usize || !self.jobs.is_empty()
    }

    /// Whether this process can only wait for pieces that others have claimed.
    pub fn stuck(&self) -> bool {
        !self.jobs.is_empty() && self.stalled
    }

    /// The receiver offers to copy cooperatively.
    pub(super) fn join(&mut self, peer: u32, offer: Cooperative) -> Result<(), W::Fault> {
        let id = RequestId::from_raw(offer.request);
        let memory = self.memory.as_mut().expect("the offer came through it");
        // Not reachable from here: the receiver copies alone.
        if !memory.reachable(peer) {
            return Ok(());
        }
        let Some(r) = self.requests.find(id) else { return Ok(()) };
        if r.state != State::Offered || r.peer != peer || offer.bytes > r.buffer.len() as u64 || !r.buffer.straight() {
            return Ok(());
        }
        // The receiver may have copied all of it already; then its list can be gone, and there is nothing left to claim.
        let Some(remote) = W::learn(memory, peer, offer.address, offer.pieces, offer.bytes) else { return Ok(()) };
        self.copy_out(id, peer, offer.receiver, remote, offer.bytes as usize, offer.slot & u32::MAX as u64, (offer.slot >> 32) as u32)
    }

    /// The receiver wants the bytes through the ring.
    pub(super) fn begin_stream(&mut self, peer: u32, cts: Cts) -> bool {
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
    pub(super) fn pump(&mut self) -> Result<bool, W::Fault> {
        let mut moved = false;
        let mut at = 0;
        while at < self.streams.len() {
            let memory = self.memory.as_mut().expect("streams go through it");
            let piece_max = (memory.body_bytes_max() / 2).clamp(1, STREAM_PIECE_BYTES_MAX);
            let s = &mut self.streams[at];
            let mut full = false;
            while s.offset < s.end {
                let now = (s.end - s.offset).min(piece_max);
                let buffer = &self.requests.at(s.request.index()).buffer;
                match W::send_body(memory, s.peer, wire::control(Kind::Data), &[s.receiver, s.offset as u64], buffer, (s.offset, now)) {
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
    pub(super) fn stream_piece(&mut self, peer: u32, receiver: u64, offset: u64, body: &<W::Buffer as Buffer>::Body) -> bool {
        let id = RequestId::from_raw(receiver);
        let Some(r) = self.requests.find(id) else { return false };
        let bytes = W::Buffer::body_bytes(body) as u64;
        let inside = offset.checked_add(bytes).is_some_and(|end| end <= r.outcome.bytes);
        // An empty piece would end a receive that is copied in another way.
        if r.state != State::Fetching || r.peer != peer || bytes == 0 || bytes > r.missing || !inside {
            return false;
        }
        r.missing -= bytes;
        let whole_bytes = (r.missing == 0).then_some(r.outcome.bytes);
        self.asked_bytes = self.asked_bytes.saturating_sub(bytes);
        self.more_bytes(id, offset as usize, body);
        if let Some(bytes) = whole_bytes {
            self.worker.received(DataPath::Pipelined, bytes);
            self.worker.fetched(id, Protocol::Pipelined, false);
            self.complete(id);
        }
        true
    }
}
