//! Rendezvous over datagrams: a message that waits at its sender is pulled by its receiver, or put into a window that the receiver has offered.
//!
//! Matching is the same as between memories. Short messages are copied, so that their sends are complete at once; all others keep the program's memory
//! until the receiver has acknowledged them.

use super::actions::{Pull, Said};
use super::header::Header;
use super::machine::{Machine, Worker};
use super::ports::{Buffer, Count, DataPath, Error, Event, Network, Window};
use super::request::{Origin, RequestId, State, outcome};
use super::speculation::Ended;
use super::target::{Mode, Target};
use super::unexpected::Unexpected;
use crate::reliability::{Begun, Refused};
use crate::rendezvous::Rtr;
use crate::wire::{self, Envelope, Kind};

/// What the header of a message counts for in the bytes that may share a datagram.
const HEADER_BYTES: usize = 64;

/// A header of the engine's, and the words after it.
fn read(header: Option<Header>) -> Option<(Kind, Envelope, Header)> {
    let header = header?;
    let (kind, envelope) = wire::parse(header.head)?;
    Some((kind, envelope, header))
}

impl<W: Worker> Machine<W> {
    /// Nothing is expected of a remote process any more.
    pub fn abandon(&mut self, process: u32, said: Said) {
        if !self.peers[process as usize].gone && self.actions.abandoned.iter().all(|(other, _)| *other != process) {
            self.actions.abandoned.push((process, said));
        }
    }

    /// The memory of a message of a remote peer is free: `bytes` of payload.
    pub(super) fn release_datagram(&mut self, peer: u32, bytes: u64) {
        self.actions.releases.push((peer, bytes));
    }

    /// Sends to a remote peer. `None`: it is complete already.
    pub(super) fn send_remote(&mut self, to: &Target, buffer: &W::Buffer, mode: Mode) -> Result<Option<RequestId>, W::Fault> {
        if mode == Mode::Standard && W::send_copy(self, to, buffer)? {
            return Ok(None);
        }
        let id = self.requests.insert(buffer.clone(), to.process, State::Queued, wire::header(Kind::Eager, to.envelope()));
        self.requests.at(id.index()).synchronous = mode == Mode::Synchronous;
        self.peers[to.process as usize].queue.push_back(id);
        self.flush(to.process)?;
        Ok(Some(id))
    }

    /// Requests what waits for a remote peer, as far as it is taken. Returns its bytes in datagrams, about.
    pub fn queue_datagrams(&mut self, remote: &mut W::Network, process: u32) -> usize {
        let mut moved_bytes = 0;
        let now_ns = remote.now_ns();
        let peer = &mut self.peers[process as usize];
        loop {
            let mut after = State::Offered;
            let (sent, id) = if let Some(control) = peer.control.front() {
                (remote.send_header(now_ns, process, Header::new(control.head, &control.words[..control.count])), None)
            } else if let Some(&id) = peer.queue.front() {
                let r = self.requests.at(id.index());
                let (bytes, long) = (r.buffer.len(), r.buffer.len() > remote.short_bytes_max());
                let Some((_, head)) = wire::parse(r.head) else { return moved_bytes };
                let named = Header::new(r.head, &[id.to_raw()]);
                let sent = match peer.speculation.awaits(head.context, head.tag).filter(|_| long) {
                    Some(rtr) => {
                        let header = Header::new(r.head, &[id.to_raw(), bytes as u64]);
                        let window = Window { number: rtr.slot, granted_bytes: rtr.address, capacity_bytes: rtr.room_bytes };
                        let put = remote.put(now_ns, process, header, window, id.to_raw(), (bytes as u64).min(rtr.room_bytes));
                        self.worker.count(Count::RtrAnswered, put.is_ok() as u64);
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
                    self.requests.at(id.index()).state = after;
                    let bytes = self.requests.at(id.index()).buffer.len();
                    moved_bytes += if bytes <= remote.short_bytes_max() { bytes } else { 0 };
                }
                (Err(Refused::Full), _) => return moved_bytes,
                (Err(_), _) => {
                    let why = self.reason(process);
                    self.lose_peer(process, why);
                    return moved_bytes;
                }
            }
            moved_bytes += HEADER_BYTES;
        }
    }

    /// A whole message of a remote peer, or a control packet.
    pub fn arrive_message(&mut self, peer: u32, header: Option<Header>, body: &<W::Buffer as Buffer>::Body) -> Result<(), W::Fault> {
        let bytes = W::Buffer::body_bytes(body) as u64;
        let Some((kind, envelope, header)) = read(header) else { return self.refuse_datagram(peer, bytes) };
        match self.arrive(peer, kind, envelope, header.words(), body, DataPath::Datagrams)? {
            // Matching says what becomes of its memory.
            true if matches!(kind, Kind::Eager | Kind::EagerSync) => {}
            true => self.release_datagram(peer, bytes),
            false => self.refuse_datagram(peer, bytes)?,
        }
        Ok(())
    }

    /// The first segment of a message of a remote peer has come, `bytes` of payload in all: the receive that takes it, if there is one.
    pub fn begin_message(&mut self, peer: u32, header: Option<Header>, bytes: u64) -> Option<Begun> {
        let (Kind::Eager | Kind::EagerSync, envelope, _) = read(header)? else { return None };
        match self.begin_bytes(peer, envelope, bytes as usize) {
            Ok(id) => id.map(|id| Begun { receive: id.to_raw(), room_bytes: self.requests.at(id.index()).outcome.bytes }),
            Err(fault) => {
                self.break_down(fault);
                None
            }
        }
    }

    /// All of the message that [`Machine::begin_message`] gave to `id` is in place, `bytes` of payload.
    pub fn end_message(&mut self, peer: u32, header: Option<Header>, id: RequestId, bytes: u64) -> Result<(), W::Fault> {
        let synchronous = match read(header) {
            Some((Kind::EagerSync, _, header)) => header.words().first().copied(),
            _ => None,
        };
        self.end_bytes(peer, id, bytes as usize, synchronous, DataPath::Datagrams)
    }

    fn refuse_datagram(&mut self, peer: u32, bytes: u64) -> Result<(), W::Fault> {
        self.refused(peer);
        self.release_datagram(peer, bytes);
        Ok(())
    }

    /// A message of a remote peer that waits to be fetched.
    pub fn arrive_waiting(&mut self, peer: u32, header: Option<Header>, transfer: u32, bytes: u64) -> Result<(), W::Fault> {
        let known = read(header).and_then(|(kind, envelope, header)| match (kind, header.words()) {
            (Kind::Eager, []) => Some((envelope, None)),
            (Kind::Eager | Kind::EagerSync, &[request]) => Some((envelope, Some(Origin { request, synchronous: kind == Kind::EagerSync }))),
            _ => None,
        });
        let Some((envelope, origin)) = known else {
            self.actions.fetches.push_back((Pull { peer, transfer, bytes, origin: None }, None, 0));
            return self.refuse_datagram(peer, 0);
        };
        let pull = Pull { peer, transfer, bytes, origin };
        let context = self.matcher.open(envelope.context);
        self.peers[peer as usize].count_seen();
        match self.matcher.arrive(context, envelope.source, envelope.tag) {
            Some(index) => {
                let id = self.requests.id(index);
                self.release_datagram(peer, 0);
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
    pub(super) fn pull(&mut self, id: RequestId, envelope: Envelope, pull: Pull) -> Result<(), W::Fault> {
        let r = self.requests.at(id.index());
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
            self.actions.fetches.push_back((pull, Some(id), window));
        } else {
            self.decline(pull);
            self.complete(id);
            self.worker.received(DataPath::Pulled, 0);
        }
        match pull.origin {
            Some(Origin { request, synchronous: true }) => self.control(pull.peer, wire::control(Kind::Fin), &[request]),
            _ => Ok(()),
        }
    }

    /// A message that fills the offered window of an announced receive. Whether it is one.
    pub fn arrive_put(&mut self, peer: u32, header: Option<Header>, id: RequestId, bytes: u64) -> bool {
        self.release_datagram(peer, 0);
        if let Some((Kind::Eager, envelope, header)) = read(header)
            && let [_, whole_bytes] = *header.words()
            && let Some(r) = self.requests.find(id)
            && let (State::Posted { context, place, .. }, Some(announced)) = (r.state, r.announced)
            && announced.process == peer
            && announced.window != 0
        {
            let (key, pattern) = self.matcher.posted(context, place);
            let room = self.requests.at(id.index()).buffer.len();
            let outcome = outcome(envelope.source, envelope.tag, whole_bytes.min(usize::MAX as u64) as usize, room);
            if key == envelope.context && pattern.accepts(envelope.source, envelope.tag) && outcome.bytes == bytes {
                self.peers[peer as usize].count_seen();
                self.matcher.withdraw(context, place);
                self.end_announcement(id, Ended::Answered);
                self.worker.count(Count::RtrUsed, 1);
                self.worker.note(Event::Announced, || [peer as i64, envelope.tag as i64, bytes as i64]);
                let r = self.requests.at(id.index());
                (r.peer, r.state, r.outcome) = (peer, State::Fetching, outcome);
                return true;
            }
        }
        self.refused(peer);
        false
    }

    /// A remote peer has announced a receive.
    pub fn arrive_window(&mut self, peer: u32, header: Option<Header>, window: Window) -> Result<(), W::Fault> {
        self.release_datagram(peer, 0);
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

    /// Nothing comes to the window of an announced receive.
    pub(super) fn withdraw_remote(&mut self, process: u32, window: u32) {
        self.actions.withdrawals.push((process, window));
    }

    /// An announcement has crossed the message of request `id`.
    pub(super) fn fill_remote(&mut self, process: u32, id: RequestId, window: Window) {
        self.actions.fills.push((process, id, window));
    }

    /// Nobody will fetch the message: its sender may go on.
    pub(super) fn decline(&mut self, pull: Pull) {
        self.actions.fetches.push_back((pull, None, 0));
    }

    /// What the process waits for may be behind what remote peers hold back.
    pub(super) fn widen_remote(&mut self, peer: u32) {
        if let Some(remote) = &mut self.network {
            remote.widen(peer);
        }
    }
}

/// What the transport over datagrams says of messages under way.
impl<W: Worker> Machine<W> {
    /// The buffer of a receive, if it takes `bytes` at that place.
    pub fn room(&mut self, receive: u64, offset_bytes: u64, bytes: u64) -> Option<&W::Buffer> {
        let r = self.requests.find(RequestId::from_raw(receive))?;
        let room_bytes = match (r.state, &r.announced) {
            (State::Fetching, _) => r.outcome.bytes,
            // Its sender has begun, and what says so is still under way.
            (State::Posted { .. }, Some(announced)) if announced.window != 0 => r.buffer.len() as u64,
            _ => return None,
        };
        offset_bytes.checked_add(bytes).is_some_and(|end| end <= room_bytes).then_some(&r.buffer)
    }

    /// A message has left whole and well, or nothing reads its buffer any more.
    pub fn sent(&mut self, send: u64, ended_well: bool) {
        // What has failed is ended all together, when the peer is said to have failed.
        let id = RequestId::from_raw(send);
        let Some(r) = self.requests.find(id) else { return };
        if std::mem::take(&mut r.in_use) {
            // Its peer has failed before; now nothing reads its buffer any more.
            return self.complete(id);
        }
        if !ended_well {
            return;
        }
        match r.state {
            State::Offered => self.complete(id),
            // It is being taken back: the receiver will say whether it was.
            _ => r.missing = 1,
        }
    }

    /// A message that was fetched, or put, is whole. False: it is not under way.
    pub fn fetched_in_datagrams(&mut self, receive: u64, ended_well: bool) -> bool {
        let id = RequestId::from_raw(receive);
        // A window that nothing has come to is not under way.
        let Some(r) = self.requests.find(id).filter(|r| r.state == State::Fetching) else { return false };
        if ended_well {
            let bytes = r.outcome.bytes;
            self.complete(id);
            self.worker.received(DataPath::Pulled, bytes);
        }
        true
    }

    /// A peer answers no more. Its transport still reads the buffers of the sends `in_use`, and says when it does not; else `silent` is why.
    pub fn datagram_peer_failed(&mut self, peer: u32, in_use: &[u64], silent: String) {
        for &send in in_use {
            if let Some(r) = self.requests.find(RequestId::from_raw(send)) {
                r.in_use = true;
            }
        }
        let said = self.actions.abandoned.iter().find(|(process, _)| *process == peer).map(|(_, said)| *said);
        let why = match said {
            None => silent,
            Some(Said::Left { lost }) => format!("it has finalized without the others, since it could not reach rank {lost}"),
            Some(Said::Lost { by }) => format!("{silent}, says rank {by}"),
        };
        self.lose_peer(peer, W::Error::peer(peer, why).into());
        if let Some(Said::Left { .. }) = said {
            self.keep_to_itself(peer);
        }
    }

    /// How much of its message the receive `id` takes, bytes.
    pub fn bytes_to_fetch(&mut self, id: RequestId) -> u64 {
        self.requests.at(id.index()).outcome.bytes
    }

    /// A message has left as a copy.
    #[inline]
    pub fn count_copy(&mut self, to: &Target) {
        self.peers[to.process as usize].count_sent(to.context, to.tag, None);
    }

    /// Something waits to be sent to `process`.
    #[inline]
    pub fn is_listed(&self, process: u32) -> bool {
        self.peers[process as usize].listed
    }
}
