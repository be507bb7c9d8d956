//! Peers that share no memory with this process: their messages go through [`fabric::remote`].
//!
//! Matching is the same as on shared memory. Short messages are copied, so that their sends are complete at once; all others keep the program's memory
//! until the receiver has acknowledged them.

use crate::announce::Ended;
use crate::progress::NOTHING;
use crate::receive::{Origin, Unexpected};
use crate::request::{RequestId, State};
use crate::send::outcome;
use crate::{Buffer, Engine, Fault, Mode, Speculation, Target};
use fabric::reliable::{NetworkCounters, Sink, Watch};
use fabric::remote::{Arrived, Cards, Events, Header, NetworkThread, Refused, RemotePeers, Window};
use fabric::{Network, remote};
use proto::reliability::Slice;
use proto::reliability::wire::Run;
use proto::rendezvous::Rtr;
use proto::wire::{self, Envelope, Kind};
use std::cell::RefCell;
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;
use trace::Route;
use trace::events::{Happening, note};

/// What the header of a message counts for in the bytes that may share a datagram.
const HEADER_BYTES: usize = 64;

/// A message that waits at its sender.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pull {
    pub peer: u32,
    pub transfer: u32,
    pub bytes: u64,
    /// `None` where it sent a copy, which it cannot take back.
    pub origin: Option<Origin>,
}

/// What arrivals have given rise to, and the reliability layer is asked for afterwards.
#[derive(Default)]
pub(crate) struct Deferred {
    /// Memory that is free again: whose message's, and bytes of its payload.
    releases: Vec<(u32, u64)>,
    /// Which receive fetches how much, into which offered window if not 0; `None` declines.
    fetches: VecDeque<(Pull, Option<RequestId>, u32)>,
    /// Windows of announced receives that nothing comes to: whose, and which.
    withdrawals: Vec<(u32, u32)>,
    /// Announcements that have crossed the messages of these requests: whose, and which window.
    fills: Vec<(u32, RequestId, Window)>,
    /// Processes of which nothing is expected any more, and what has been said of them.
    abandoned: Vec<(u32, Said)>,
}

/// Why nothing is expected of a process any more that may still answer.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Said {
    /// It has ended itself, for want of another.
    Left { lost: u64 },
    /// Another one takes it for failed.
    Lost { by: u32 },
}

impl Deferred {
    fn is_empty(&self) -> bool {
        self.releases.is_empty() && self.fetches.is_empty() && self.withdrawals.is_empty() && self.fills.is_empty() && self.abandoned.is_empty()
    }
}

/// What the engine hears of the network.
struct Upcalls<'a> {
    engine: &'a mut Engine,
    /// Bytes that do not lie in one piece, packed for the datagrams that are about to leave.
    packed: RefCell<Vec<Box<[u8]>>>,
}

impl Upcalls<'_> {
    /// The buffer of a receive, if it takes `bytes` at that place.
    fn room(&mut self, receive: u64, offset_bytes: u64, bytes: u64) -> Option<&Buffer> {
        let r = self.engine.requests.find(RequestId::from_raw(receive))?;
        let room_bytes = match (r.state, &r.announced) {
            (State::Fetching, _) => r.outcome.bytes,
            // Its sender has begun, and what says so is still under way.
            (State::Posted { .. }, Some(announced)) if announced.window != 0 => r.buffer.len() as u64,
            _ => return None,
        };
        offset_bytes.checked_add(bytes).is_some_and(|end| end <= room_bytes).then_some(&r.buffer)
    }
}

// SAFETY: the buffers of requests that are under way keep their place and may be read; receives write inside their buffers.
unsafe impl Events for Upcalls<'_> {
    fn gather(&self, slice: &Slice, out: &mut Sink) {
        let (from, bytes) = (slice.offset_bytes as usize, slice.length_bytes as usize);
        let mut pack = |fill: &dyn Fn(&mut [u8])| {
            let mut piece = vec![0; bytes].into_boxed_slice();
            fill(&mut piece);
            // SAFETY: kept until the network's call has returned.
            unsafe { out.push_passing(piece.as_ptr(), bytes) };
            self.packed.borrow_mut().push(piece);
        };
        match self.engine.requests.buffer_of(RequestId::from_raw(slice.send)) {
            Some(buffer) if from + bytes <= buffer.len() => match buffer.address() {
                // SAFETY: inside the buffer of a send that is not complete.
                Some(start) => unsafe { out.push(start.add(from), bytes) },
                None => pack(&|piece| buffer.get(from, piece)),
            },
            // Taken back meanwhile: whoever still asks for it has it already.
            _ => pack(&|_| {}),
        }
    }

    fn place(&mut self, receive: u64, offset_bytes: u64, payload: &[u8], check: &dyn Fn(&[u8]) -> bool) -> bool {
        let Some(buffer) = self.room(receive, offset_bytes, payload.len() as u64) else { return false };
        buffer.put_checked(offset_bytes as usize, payload, check)
    }

    fn place_of(&self, receive: u64, offset_bytes: u64) -> Option<*const u8> {
        let start = self.engine.requests.buffer_of(RequestId::from_raw(receive))?.address()?;
        Some(start.wrapping_add(offset_bytes as usize).cast_const())
    }

    fn place_run(&mut self, receive: u64, mut offset_bytes: u64, run: &Run) -> bool {
        let Some(buffer) = self.room(receive, offset_bytes, run.payload_bytes() as u64) else { return false };
        run.payloads().all(|payload| {
            let placed = buffer.put_checked(offset_bytes as usize, payload, &|placed| placed == payload);
            offset_bytes += payload.len() as u64;
            placed
        })
    }

    fn arrived(&mut self, peer: u32, arrived: Arrived) -> bool {
        let done = match arrived {
            Arrived::Message { header, body } => self.engine.arrive_message(peer, header, body),
            Arrived::Waiting { header, transfer, bytes } => self.engine.arrive_waiting(peer, header, transfer, bytes),
            Arrived::Offer { header, window } => self.engine.arrive_window(peer, header, window),
            Arrived::Put { header, receive, bytes } => return self.engine.arrive_put(peer, header, RequestId::from_raw(receive), bytes),
        };
        if let Err(fault) = done {
            self.engine.fault.get_or_insert(fault);
        }
        true
    }

    fn complete(&mut self, send: u64, ended_well: bool) {
        // What has failed is ended all together, when the peer is said to have failed.
        let id = RequestId::from_raw(send);
        let Some(r) = self.engine.requests.find(id) else { return };
        if std::mem::take(&mut r.in_use) {
            // Its peer has failed before; now nothing reads its buffer any more.
            return self.engine.complete(id);
        }
        if !ended_well {
            return;
        }
        match r.state {
            State::Offered => self.engine.complete(id),
            // It is being taken back: the receiver will say whether it was.
            _ => r.missing = 1,
        }
    }

    fn received(&mut self, receive: u64, ended_well: bool) -> bool {
        let id = RequestId::from_raw(receive);
        // A window that nothing has come to is not under way.
        let Some(r) = self.engine.requests.find(id).filter(|r| r.state == State::Fetching) else { return false };
        if ended_well {
            let bytes = r.outcome.bytes;
            self.engine.complete(id);
            self.engine.counters.received(Route::Pulled, bytes);
        }
        true
    }

    fn peer_failed(&mut self, peer: u32, in_use: &[u64], host: &str) {
        for &send in in_use {
            if let Some(r) = self.engine.requests.find(RequestId::from_raw(send)) {
                r.in_use = true;
            }
        }
        let silent = format!("it runs on host {host} and has not answered on any network for {} ms", self.engine.config.peer_timeout_ms);
        let said = self.engine.deferred.abandoned.iter().find(|(process, _)| *process == peer).map(|(_, said)| *said);
        let why = match said {
            None => silent,
            Some(Said::Left { lost }) => format!("it has finalized without the others, since it could not reach rank {lost}"),
            Some(Said::Lost { by }) => format!("{silent}, says rank {by}"),
        };
        self.engine.lose_peer(peer, fabric::Error::Peer { peer, why }.into());
        if let Some(Said::Left { .. }) = said {
            self.engine.keep_to_itself(peer);
        }
    }
}

/// A header of the engine's, and the words after it.
fn read(header: Option<Header>) -> Option<(Kind, Envelope, Header)> {
    let header = header?;
    let (kind, envelope) = wire::parse(header.head)?;
    Some((kind, envelope, header))
}

impl Engine {
    /// From now on the processes that are not in `near` (ascending) are reached through `node`; `cards` says where they listen.
    ///
    /// # Errors
    /// The system has no descriptor left for the network's event.
    pub fn reach_remote(&mut self, node: Network, near: &[u32], cards: Cards) -> Result<(), fabric::Error> {
        for process in 0..self.config.processes {
            let peer = &mut self.peers[process as usize];
            peer.remote = process != self.config.me && near.binary_search(&process).is_err();
            if peer.remote {
                // Between hosts, announcements are told apart by counting only.
                peer.speculation = crate::announce::Speculation::default();
            }
        }
        self.remote = Some(Box::new(RemotePeers::new(node, self.config.processes, cards)?));
        self.announce_above();
        Ok(())
    }

    /// Does something with the transport and with what hears of it.
    #[inline]
    fn with_remote<T>(&mut self, act: impl FnOnce(&mut RemotePeers, &mut Upcalls) -> T) -> Option<T> {
        // From within an arrival it is not there: what is wanted then happens after that.
        let mut remote = self.remote.take()?;
        let done = act(&mut remote, &mut Upcalls { engine: self, packed: RefCell::default() });
        self.remote = Some(remote);
        Some(done)
    }

    /// Sets from which length on receives may be announced: above what goes with its header, to node-local or to remote processes. None is where
    /// speculation is off.
    pub(crate) fn announce_above(&mut self) {
        let remote = self.remote.as_ref().map_or(usize::MAX, |remote| remote.short_bytes_max());
        let announces = self.config.speculation != Speculation::Off;
        self.announce_above_bytes = if announces { self.config.eager_bytes_max.min(remote) } else { usize::MAX };
    }

    /// Learns where every remote process listens: whoever started them may not say so later.
    pub(crate) fn connect_all(&mut self) -> Result<(), Fault> {
        let Some(remote) = &mut self.remote else { return Ok(()) };
        let mut processes = (0..).zip(&self.peers).filter(|(_, peer)| peer.remote).map(|(process, _)| process);
        Ok(processes.try_for_each(|process| remote.connect(process))?)
    }

    /// The processes that this one may have spoken with, or they with it, itself not among them.
    pub(crate) fn acquainted(&self) -> Vec<u32> {
        let knows = |process: u32| self.remote.as_ref().is_some_and(|remote| remote.knows(process));
        (0..self.config.processes).filter(|&process| process != self.config.me && (self.near(process) || knows(process))).collect()
    }

    /// Whether `process` shares memory with this one.
    pub fn near(&self, process: u32) -> bool {
        !self.peers[process as usize].remote
    }

    /// Whether some process is reached through the network only.
    pub fn networked(&self) -> bool {
        self.remote.is_some()
    }

    /// What has happened at the network's edge, and in the reliability layer.
    pub fn network_counters(&self) -> Option<(NetworkCounters, proto::reliability::Counters)> {
        self.remote.as_ref().map(|remote| remote.counters())
    }

    /// Nothing sent is unacknowledged, and nothing that came.
    pub(crate) fn remote_quiet(&self) -> bool {
        self.remote.as_ref().is_none_or(|remote| remote.is_quiet())
    }

    pub(crate) fn remote_open(&self) -> bool {
        self.remote.as_ref().is_some_and(|remote| remote.is_open())
    }

    /// Looks at the network, where it is this look's turn.
    #[inline]
    pub(crate) fn look_remote(&mut self) -> Result<bool, Fault> {
        let Some(remote) = &mut self.remote else { return Ok(false) };
        match remote.takes_turn(self.local.is_some() && self.asleep == 0) {
            true => self.poll_remote(),
            false => Ok(false),
        }
    }

    #[inline(never)]
    fn poll_remote(&mut self) -> Result<bool, Fault> {
        if let Some(fault) = &self.fault {
            return Err(fault.clone());
        }
        let came = self.with_remote(|remote, upcalls| {
            let came = remote.poll(upcalls);
            let engine = &mut *upcalls.engine;
            // Of what has just come, what can wait is done at the next look: the program may have waited for it.
            let flushes = match came {
                0 => engine.held || !engine.deferred.is_empty() || remote.is_due(),
                _ => engine.held || engine.asleep > 0 || !engine.deferred.fetches.is_empty() || engine.fault.is_some() || remote.is_pressing(),
            };
            if flushes {
                upcalls.flush_all(remote);
            }
            came
        });
        if self.has_failures() {
            self.spread();
        }
        match &self.fault {
            Some(fault) => Err(fault.clone()),
            None => Ok(came.is_some_and(|came| came > 0)),
        }
    }

    /// Nothing is expected of a remote process any more.
    pub(crate) fn abandon_remote(&mut self, process: u32, said: Said) {
        if !self.peers[process as usize].gone && self.deferred.abandoned.iter().all(|(other, _)| *other != process) {
            self.deferred.abandoned.push((process, said));
        }
    }

    /// What `act` sends does not wait for others.
    #[inline]
    pub fn promptly<T>(&mut self, act: impl FnOnce(&mut Engine) -> T) -> T {
        let before = std::mem::replace(&mut self.prompt, true);
        let result = act(self);
        self.prompt = before;
        result
    }

    /// Lets short messages leave that have waited for others: the program waits for something, or may compute for long.
    #[inline]
    pub fn let_go(&mut self) {
        if self.held {
            self.hurry_remote();
        }
    }

    /// As a look at the network, without looking for what has come.
    #[inline(never)]
    pub(crate) fn hurry_remote(&mut self) {
        self.with_remote(|remote, upcalls| upcalls.flush_all(remote));
    }

    /// The memory of a message of a remote peer is free: `bytes` of payload.
    pub(crate) fn release_remote(&mut self, peer: u32, bytes: u64) {
        self.deferred.releases.push((peer, bytes));
    }

    /// Sends to a remote peer. `None`: it is complete already.
    pub(crate) fn send_remote(&mut self, to: &Target, buffer: &Buffer, mode: Mode) -> Result<Option<RequestId>, Fault> {
        if mode == Mode::Standard && self.send_copy(to, buffer)? {
            return Ok(None);
        }
        let id = self.requests.insert(buffer.clone(), to.process, State::Queued, wire::header(Kind::Eager, to.envelope()));
        self.requests.at(id.index).synchronous = mode == Mode::Synchronous;
        self.peers[to.process as usize].queue.push_back(id);
        self.flush(to.process)?;
        Ok(Some(id))
    }

    /// Sends a copy of a short message, if nothing waits before it and there is room for the copy.
    pub(crate) fn send_copy(&mut self, to: &Target, buffer: &Buffer) -> Result<bool, Fault> {
        let bytes = buffer.len();
        if self.peers[to.process as usize].listed {
            return Ok(false);
        }
        let sent = self.with_remote(|remote, upcalls| {
            if bytes > remote.short_bytes_max() || !remote.has_room(bytes) {
                return Ok(false);
            }
            remote.connect(to.process)?;
            let (now_ns, unanswered) = (remote.now_ns(), remote.is_unanswered(to.process));
            let header = Header::new(wire::header(Kind::Eager, to.envelope()), &[]);
            match remote.send_copy(now_ns, to.process, header, bytes, |copy| buffer.append_to(copy)) {
                Ok(()) => {}
                Err(Refused::Full) => return Ok(false),
                Err(_) => return Err(upcalls.engine.reasons.of(to.process)),
            }
            if !upcalls.engine.may_wait(remote, bytes, unanswered, now_ns) {
                match upcalls.engine.held {
                    true => upcalls.flush(remote, now_ns),
                    false => remote.flush_one(now_ns, bytes, upcalls),
                }
            }
            Ok(true)
        });
        let sent = sent.unwrap_or(Ok(false));
        if sent == Ok(true) {
            self.peers[to.process as usize].count_sent(to.context, to.tag, None);
        }
        sent
    }

    /// Sends what waits for a remote peer: controls first, then messages in order.
    pub(crate) fn flush_remote(&mut self, process: u32) -> Result<bool, Fault> {
        let moved_bytes = self.with_remote(|remote, upcalls| {
            let unanswered = remote.is_unanswered(process);
            let moved_bytes = match remote.connect(process) {
                Ok(()) => upcalls.engine.queue_remote(remote, process),
                Err(why) => {
                    upcalls.engine.lose_peer(process, why.into());
                    0
                }
            };
            let now_ns = remote.now_ns();
            if moved_bytes == 0 || !upcalls.engine.may_wait(remote, moved_bytes, unanswered, now_ns) {
                upcalls.flush(remote, now_ns);
            }
            moved_bytes
        });
        Ok(moved_bytes.is_some_and(|bytes| bytes > 0))
    }

    /// Whether what was just requested may wait for more of its kind, so that they share a datagram.
    fn may_wait(&mut self, remote: &mut RemotePeers, bytes: usize, unanswered: bool, now_ns: u64) -> bool {
        let waits = !self.prompt && self.asleep == 0 && remote.may_wait(bytes, unanswered, !self.held, now_ns);
        self.held |= waits;
        waits
    }

    /// Requests what waits for a remote peer, as far as it is taken. Returns its bytes in datagrams, about.
    fn queue_remote(&mut self, remote: &mut RemotePeers, process: u32) -> usize {
        let mut moved_bytes = 0;
        let now_ns = remote.now_ns();
        let peer = &mut self.peers[process as usize];
        loop {
            let mut after = State::Offered;
            let (sent, id) = if let Some(control) = peer.control.front() {
                (remote.send_header(now_ns, process, Header::new(control.head, &control.words[..control.count])), None)
            } else if let Some(&id) = peer.queue.front() {
                let r = self.requests.at(id.index);
                let (bytes, long) = (r.buffer.len(), r.buffer.len() > remote.short_bytes_max());
                let Some((_, head)) = wire::parse(r.head) else { return moved_bytes };
                let named = Header::new(r.head, &[id.to_raw()]);
                let sent = match peer.speculation.awaits(head.context, head.tag).filter(|_| long) {
                    Some(rtr) => {
                        let header = Header::new(r.head, &[id.to_raw(), bytes as u64]);
                        let window = Window { number: rtr.slot, granted_bytes: rtr.address, capacity_bytes: rtr.room_bytes };
                        let put = remote.put(now_ns, process, header, window, id.to_raw(), (bytes as u64).min(rtr.room_bytes));
                        self.counters.rtr_answered += put.is_ok() as u64;
                        put
                    }
                    None if r.synchronous && !long && remote.has_room(bytes) => {
                        after = State::Unmatched;
                        let header = Header::new(wire::header(Kind::EagerSync, head), &[id.to_raw()]);
                        remote.send_copy(now_ns, process, header, bytes, |copy| r.buffer.append_to(copy))
                    }
                    None => remote.send(now_ns, process, named, id.to_raw(), bytes as u64, r.synchronous),
                };
                if sent.is_ok() {
                    peer.count_sent(head.context, head.tag, long.then_some(id.to_raw()));
                }
                (sent, Some(id))
            } else {
                return moved_bytes;
            };
            match (sent, id) {
                (Ok(()), None) => drop(peer.control.pop_front()),
                (Ok(()), Some(id)) => {
                    peer.queue.pop_front();
                    peer.offers += (after == State::Offered) as u32;
                    self.requests.at(id.index).state = after;
                    moved_bytes += if after == State::Unmatched { self.requests.at(id.index).buffer.len() } else { 0 };
                }
                (Err(Refused::Full), _) => return moved_bytes,
                (Err(_), _) => {
                    self.lose_peer(process, self.reasons.of(process));
                    return moved_bytes;
                }
            }
            moved_bytes += HEADER_BYTES;
        }
    }

    /// A whole message of a remote peer, or a control packet.
    fn arrive_message(&mut self, peer: u32, header: Option<Header>, payload: &[u8]) -> Result<(), Fault> {
        let Some((kind, envelope, header)) = read(header) else { return self.refuse_remote(peer, payload) };
        let body = [(payload.as_ptr(), payload.len()), NOTHING];
        match self.arrive(peer, kind, envelope, header.words(), body, Route::Datagrams)? {
            // Matching says what becomes of its memory.
            true if matches!(kind, Kind::Eager | Kind::EagerSync) => {}
            true => self.release_remote(peer, payload.len() as u64),
            false => self.refuse_remote(peer, payload)?,
        }
        Ok(())
    }

    fn refuse_remote(&mut self, peer: u32, payload: &[u8]) -> Result<(), Fault> {
        self.refused(peer);
        self.release_remote(peer, payload.len() as u64);
        Ok(())
    }

    /// A message of a remote peer that waits to be fetched.
    fn arrive_waiting(&mut self, peer: u32, header: Option<Header>, transfer: u32, bytes: u64) -> Result<(), Fault> {
        let known = read(header).and_then(|(kind, envelope, header)| match (kind, header.words()) {
            (Kind::Eager, []) => Some((envelope, None)),
            (Kind::Eager | Kind::EagerSync, &[request]) => Some((envelope, Some(Origin { request, synchronous: kind == Kind::EagerSync }))),
            _ => None,
        });
        let Some((envelope, origin)) = known else {
            self.deferred.fetches.push_back((Pull { peer, transfer, bytes, origin: None }, None, 0));
            return self.refuse_remote(peer, &[]);
        };
        let pull = Pull { peer, transfer, bytes, origin };
        let context = self.matcher.open(envelope.context);
        self.peers[peer as usize].count_seen();
        match self.matcher.arrive(context, envelope.source, envelope.tag) {
            Some(index) => {
                let id = self.requests.id(index);
                self.release_remote(peer, 0);
                self.pull(id, envelope, pull)
            }
            None => {
                self.hold(peer, 0)?;
                self.matcher.keep(context, envelope.source, envelope.tag, Unexpected::Pull(pull));
                Ok(())
            }
        }
    }

    /// Begins to fetch a message for request `id`, and tells its sender that it is matched where that waits for this alone.
    pub(crate) fn pull(&mut self, id: RequestId, envelope: Envelope, pull: Pull) -> Result<(), Fault> {
        let r = self.requests.at(id.index);
        r.peer = pull.peer;
        r.state = State::Fetching;
        r.outcome = outcome(envelope.source, envelope.tag, pull.bytes.min(usize::MAX as u64) as usize, r.buffer.len());
        if self.peers[pull.peer as usize].gone {
            self.fail_request(id, pull.peer);
            return Ok(());
        }
        let bytes = r.outcome.bytes;
        let window = self.crossed_remote(id, bytes > 0);
        if bytes > 0 {
            self.deferred.fetches.push_back((pull, Some(id), window));
        } else {
            self.decline(pull);
            self.complete(id);
            self.counters.received(Route::Pulled, 0);
        }
        match pull.origin {
            Some(Origin { request, synchronous: true }) => self.control(pull.peer, wire::control(Kind::Fin), &[request]),
            _ => Ok(()),
        }
    }

    /// A message that fills the offered window of an announced receive. Whether it is one.
    fn arrive_put(&mut self, peer: u32, header: Option<Header>, id: RequestId, bytes: u64) -> bool {
        self.release_remote(peer, 0);
        if let Some((Kind::Eager, envelope, header)) = read(header)
            && let [_, whole_bytes] = *header.words()
            && let Some(r) = self.requests.find(id)
            && let (State::Posted { context, place }, Some(announced)) = (r.state, r.announced)
            && announced.process == peer
            && announced.window != 0
        {
            let (key, pattern) = self.matcher.posted(context, place);
            let room = self.requests.at(id.index).buffer.len();
            let outcome = outcome(envelope.source, envelope.tag, whole_bytes.min(usize::MAX as u64) as usize, room);
            if key == envelope.context && pattern.accepts(envelope.source, envelope.tag) && outcome.bytes == bytes {
                self.peers[peer as usize].count_seen();
                self.matcher.withdraw(context, place);
                self.end_announcement(id, Ended::Answered);
                self.counters.rtr_used += 1;
                note(Happening::Announced, || [peer as i64, envelope.tag as i64, bytes as i64]);
                let r = self.requests.at(id.index);
                (r.peer, r.state, r.outcome) = (peer, State::Fetching, outcome);
                return true;
            }
        }
        self.refused(peer);
        false
    }

    /// A remote peer has announced a receive.
    fn arrive_window(&mut self, peer: u32, header: Option<Header>, window: Window) -> Result<(), Fault> {
        self.release_remote(peer, 0);
        match read(header) {
            Some((Kind::Rtr, envelope, header)) if let Some(rtr) = header.words().get(..6).and_then(|words| Rtr::parse(envelope, words)) => {
                let (slot, address, room_bytes) = (window.number, window.granted_bytes, window.capacity_bytes);
                self.arrive_rtr(peer, Rtr { slot, address, room_bytes, ..rtr })
            }
            _ => {
                self.refused(peer);
                Ok(())
            }
        }
    }

    /// Offers a window for a receive to its remote sender, and says what for. 0 where that is not possible now.
    pub(crate) fn offer_remote(&mut self, process: u32, rtr: Rtr, envelope: Envelope) -> u32 {
        let offered = self.with_remote(|remote, upcalls| {
            if remote.connect(process).is_err() {
                return 0;
            }
            let now_ns = remote.now_ns();
            let header = Header::new(wire::header(Kind::Rtr, envelope), &rtr.to_words());
            let window = remote.offer(now_ns, process, header, rtr.room_bytes, rtr.request);
            upcalls.flush(remote, now_ns);
            window
        });
        offered.unwrap_or(0)
    }

    /// Nothing comes to the window of an announced receive.
    pub(crate) fn withdraw_remote(&mut self, process: u32, window: u32) {
        self.deferred.withdrawals.push((process, window));
    }

    /// An announcement has crossed the message of request `id`.
    pub(crate) fn fill_remote(&mut self, process: u32, id: RequestId, window: Window) {
        self.deferred.fills.push((process, id, window));
    }

    /// Nobody will fetch the message: its sender may go on.
    pub(crate) fn decline(&mut self, pull: Pull) {
        self.deferred.fetches.push_back((pull, None, 0));
    }

    /// What the process waits for may be behind what remote peers hold back.
    pub(crate) fn widen_remote(&mut self, peer: u32) {
        if let Some(remote) = &mut self.remote {
            remote.widen(peer);
        }
    }

    /// This process is about to sleep: a remote peer that fails matters from now on, also one with which nothing is under way.
    /// `awaited`: the process that is waited for, if it is one.
    pub(crate) fn watch_remote(&mut self, awaited: Option<u32>) {
        if self.remote.as_ref().is_none_or(|remote| remote.is_watching()) {
            return;
        }
        let awaited = awaited.filter(|process| self.peers[*process as usize].remote);
        let mut watched = Vec::new();
        for process in awaited.map_or_else(|| self.awaited_remote(), |process| vec![process]) {
            let Some(remote) = &mut self.remote else { return };
            match remote.connect(process) {
                Ok(()) => watched.push(process),
                Err(why) => self.lose_peer(process, why.into()),
            }
        }
        match &mut self.remote {
            Some(remote) if awaited.is_some() => remote.watch(watched),
            _ => self.watch_all(),
        }
    }

    /// From now on it matters whether those live that this process has spoken with, or they with it.
    pub(crate) fn watch_all(&mut self) {
        if let Some(remote) = &mut self.remote {
            let known = (0..self.config.processes).filter(|&process| remote.knows(process)).collect();
            remote.watch(known);
        }
    }

    /// This process waits no more.
    pub(crate) fn unwatch_remote(&mut self) {
        if let Some(remote) = &mut self.remote {
            remote.unwatch();
        }
    }

    /// How to sleep until something comes from the network, for at most so long. `None`: it does not take part.
    pub(crate) fn sleep_remote(&mut self) -> Option<(Arc<Watch>, Option<Duration>)> {
        self.remote.as_mut().map(|remote| remote.sleep())
    }

    /// Says how this process sleeps.
    pub(crate) fn set_asleep_remote(&self, asleep: bool) {
        if let Some(remote) = &self.remote {
            remote.set_asleep(asleep, self.local.is_some());
        }
    }

    /// Rings for threads of this process that sleep on the network's descriptors.
    pub(crate) fn wake_remote(&self) {
        if let Some(remote) = &self.remote {
            remote.wake();
        }
    }

    /// For a thread that deals with datagrams while the program computes for long, if `helps`, and rings for a process that sleeps on shared memory. `None`
    /// where there is no network.
    pub fn network_thread(&self, helps: bool) -> Option<NetworkThread> {
        let doorbell = self.local.as_ref().map(fabric::local::LocalPeers::doorbell);
        self.remote.as_ref().map(|remote| remote.network_thread(doorbell, self.oversubscribed(), helps))
    }

    /// `thread` has been made for that, and looks at once when it gets to run: messages may wait for it from now on.
    pub fn network_thread_started(&mut self, thread: std::thread::Thread, helps: bool) {
        let coalesces = helps && !self.oversubscribed();
        if let Some(remote) = &mut self.remote {
            remote.started(thread, coalesces);
        }
    }
}

impl Upcalls<'_> {
    /// Asks the transport for what arrivals have given rise to, and lets leave what may.
    fn flush_all(&mut self, remote: &mut RemotePeers) {
        let now_ns = remote.now_ns();
        let engine = &mut *self.engine;
        for (peer, bytes) in engine.deferred.releases.drain(..) {
            remote.release(now_ns, peer, bytes);
        }
        for (peer, window) in engine.deferred.withdrawals.drain(..) {
            remote.withdraw(peer, window);
        }
        for (peer, id, window) in engine.deferred.fills.drain(..) {
            remote.fill(peer, id.to_raw(), window);
        }
        while let Some((pull, id, window)) = engine.deferred.fetches.front() {
            let done = match id {
                Some(id) => remote.get(now_ns, pull.peer, pull.transfer, engine.requests.at(id.index).outcome.bytes, id.to_raw(), *window),
                None => remote.decline(now_ns, pull.peer, pull.transfer),
            };
            // A peer that has failed says so at the next look.
            if done == Err(Refused::Full) {
                break;
            }
            engine.deferred.fetches.pop_front();
        }
        if !engine.deferred.abandoned.is_empty() {
            let peers: Vec<u32> = engine.deferred.abandoned.iter().map(|(process, _)| *process).collect();
            remote.abandon(now_ns, &peers, self);
            self.engine.deferred.abandoned.clear();
        }
        self.flush(remote, now_ns);
    }

    fn flush(&mut self, remote: &mut RemotePeers, now_ns: u64) {
        if !std::mem::take(&mut self.engine.held) {
            remote.none_waits();
        }
        remote.flush(now_ns, self);
    }
}

/// What the network's thread does. It touches the engine only while nobody else has looked at the network for a while. Never returns.
pub fn run_network_thread(cell: &crate::Cell<Engine>, thread: NetworkThread) {
    remote::run(thread, |before_letting_go| {
        let mut engine = cell.lock();
        // A fault is for the program to hear of.
        engine.poll_remote().ok()?;
        let _ = engine.progress();
        before_letting_go();
        engine.sleep_remote().map(|(_, due)| due).or(Some(None))
    });
}
