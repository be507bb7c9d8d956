//! Sending: straight into the ring when nothing is in the way, else by a request.

use super::crossing::{self, Crossing};
use super::machine::{Control, Machine, Peer, Worker};
use super::ports::{Buffer, Count, DataPath, Event, Memory, Refused};
use super::request::{Manner, RequestId, State, outcome};
use super::target::{Mode, Target};
use super::unexpected::Unexpected;
use crate::costs::ways::Ways;
use crate::credits::Allowed;
use crate::matching::ContextIndex;
use crate::rendezvous::usage::Speculation;
use crate::wire::{self, Context, Envelope, Kind, Rts};

/// Longest message that goes with its header where its bytes do not lie in one piece.
const PACKED_EAGER_BYTES_MAX: usize = 16 << 10;
/// The same from memory that the receiver maps: longer messages are copied once, straight from there.
const LENT_EAGER_BYTES_MAX: usize = 16 << 10;
/// Long messages of one class to a peer, of those that always go with their header, until the quick way is left once.
const UNASKED: u16 = 255;

impl<W: Worker> Machine<W> {
    /// The quick way: a standard send of bytes in one piece that leaves at once. Otherwise nothing happens, and [`Machine::send`] does it.
    ///
    /// Everything stays in registers here: a value that is stored and loaded again in another width would wait for all
    /// stores before it, and those go to lines that the receiver holds.
    ///
    /// `leave` sends a packet with `bytes` of payload to a process that is connected, where there is room.
    #[inline(always)]
    pub fn send_quickly(&mut self, to: Target, bytes: usize, leave: impl FnOnce(&mut W::Memory, u32, [u64; 2]) -> bool) -> bool {
        if bytes > self.config.quick_bytes_max || to.process == self.config.me || (bytes > crossing::SHORT_BYTES_MAX && self.asks(to.process, bytes)) {
            return false;
        }
        let peer = &mut self.peers[to.process as usize];
        let Some(memory) = &mut self.memory else { return false };
        if peer.listed || !peer.credits.take_eager(bytes as u64) {
            return false;
        }
        let sent = leave(memory, to.process, wire::header(Kind::Eager, to.envelope()));
        match sent {
            true => peer.count_sent(to.context, to.tag, None),
            false => peer.credits.put_back(bytes as u64),
        }
        if bytes > crossing::SHORT_BYTES_MAX {
            self.has_put_quickly(to.process, bytes, sent);
        }
        sent
    }

    /// Of long messages of the class of `bytes` to `process`, how many may go with their header before it is asked how they go.
    fn unasked(&mut self, process: u32, bytes: usize) -> &mut u16 {
        let at = process as usize;
        if at >= self.unasked.len() {
            self.unasked.resize(at + 1, [0; Ways::CLASSES]);
        }
        &mut self.unasked[at][Ways::class_of(bytes).min(Ways::CLASSES - 1)]
    }

    /// Whether a long message is not one for the quick way.
    #[inline(never)]
    fn asks(&mut self, process: u32, bytes: usize) -> bool {
        self.crossing > 0 || (bytes > LENT_EAGER_BYTES_MAX && self.lent.1 > 0) || *self.unasked(process, bytes) == 0
    }

    /// A long message has been `sent` the quick way, or not.
    #[inline(never)]
    fn has_put_quickly(&mut self, process: u32, bytes: usize, sent: bool) {
        if sent {
            *self.unasked(process, bytes) -= 1;
            self.has_put(process);
        }
    }

    /// A long message has gone into the ring to `process`: looks whether one of that process has begun to come meanwhile.
    #[inline(never)]
    fn has_put(&mut self, process: u32) {
        let next = self.memory.as_ref().and_then(|memory| memory.comes(process));
        let comes = next.is_some_and(|(head, bytes)| match wire::parse(head) {
            Some((Kind::Eager | Kind::EagerSync, _)) => bytes > crossing::SHORT_BYTES_MAX,
            Some((kind, _)) => matches!(kind, Kind::Rts | Kind::RtsStop | Kind::RtsResume),
            None => false,
        });
        self.note_crossing(process, |crossing| crossing.note(comes));
    }

    /// Notes something, which says whether it has changed how the next messages to `process` go.
    fn note_crossing(&mut self, process: u32, note: impl FnOnce(&mut Crossing) -> bool) {
        let crossing = &mut self.peers[process as usize].crossing;
        if note(crossing) {
            self.crossing = if crossing.is_on() { self.crossing + 1 } else { self.crossing - 1 };
        }
    }

    /// A message of `bytes` of `process` has come, or is `offered`.
    #[inline]
    pub(super) fn has_come(&mut self, process: u32, bytes: u64, offered: bool) {
        if bytes > crossing::SHORT_BYTES_MAX as u64 {
            self.has_come_long(process, bytes, offered);
        }
    }

    #[inline(never)]
    fn has_come_long(&mut self, process: u32, bytes: u64, offered: bool) {
        if self.peers[process as usize].remote {
            return;
        }
        let limit = W::eager_limit(self, process) as u64;
        let peer = &mut self.peers[process as usize];
        peer.crossing.came((bytes <= limit).then_some(offered));
        let crossed = peer.offers > 0 || !peer.queue.is_empty();
        // Nothing is said where sends end when they have gone into the ring.
        if crossed || peer.crossing.is_on() {
            self.note_crossing(process, |crossing| crossing.note(crossed));
        }
    }

    /// This process gives out the memory from `start` on, which those that share memory with it map.
    pub fn lend(&mut self, start: u64, bytes: u64) {
        self.lent = (start, bytes);
    }

    /// Whether a buffer lies in one piece in memory that is given out.
    #[inline]
    fn is_lent(&self, buffer: &W::Buffer) -> bool {
        let (start, bytes) = self.lent;
        bytes > 0 && buffer.is_contiguous() && buffer.told(None).is_some_and(|(address, _)| address.wrapping_sub(start) < bytes)
    }

    /// Whether the sender's pieces of a message of about `bytes` that request `id` receives should go through the ring: not into memory that is given out, to
    /// which its sender copies by load and store.
    pub(super) fn through_ring(&mut self, id: RequestId, process: u32, bytes: u64, exchange: bool) -> bool {
        let lent = self.requests.buffer_of(id).is_some_and(|buffer| self.is_lent(buffer));
        !lent && W::through_ring(self, process, bytes, exchange)
    }

    /// Longest message that goes with its header where `limit` is that of one in one piece: shorter where it is packed, so that packing and unpacking go on at
    /// the same time, and where it is lent.
    #[inline]
    fn longest_eager(&self, buffer: &W::Buffer, limit: usize) -> usize {
        match buffer.is_contiguous() {
            true if self.is_lent(buffer) => limit.min(LENT_EAGER_BYTES_MAX),
            true => limit,
            false => limit.min(PACKED_EAGER_BYTES_MAX),
        }
    }

    /// Longest message that [crosses](Machine::crosses) others and goes to `process` with its header, bytes: less than `bytes` where one of these does not.
    #[inline]
    pub(super) fn limit_to(&mut self, process: u32, bytes: usize) -> usize {
        let limit = W::eager_limit(self, process);
        let crosses = self.peers[process as usize].crossing.is_on();
        // One of two decides, and the other does the same: where they differ, both lose.
        let reads = crosses && if self.config.me < process { W::reads_crossing(self, process, bytes) } else { self.peers[process as usize].crossing.reads() };
        if reads { limit.min(crossing::SHORT_BYTES_MAX) } else { limit }
    }

    /// Longest message of `bytes` that goes to `process` with its header, in the given manner, bytes.
    fn limit_of(&mut self, process: u32, bytes: usize, manner: Manner) -> usize {
        match manner {
            Manner::ByLength => W::eager_limit(self, process),
            Manner::Crosses => self.limit_to(process, bytes),
            Manner::Offered | Manner::Announced => crossing::SHORT_BYTES_MAX,
            Manner::WithHeader => self.memory.as_ref().map_or(0, Memory::body_bytes_max),
        }
    }

    /// How a long message goes that crosses no others. One that might go with its header is not kept waiting for its receiver where its sender may count on its
    /// leaving at once: it is offered only where the receiver has announced that it waits for it.
    #[inline(never)]
    fn manner(&mut self, to: &Target, buffer: &W::Buffer) -> Manner {
        let (process, bytes) = (to.process, buffer.len());
        let Some(memory) = &self.memory else { return Manner::ByLength };
        if process == self.config.me || self.peers[process as usize].remote || bytes > Ways::BYTES_MAX || !buffer.is_contiguous() || self.is_lent(buffer) {
            return Manner::ByLength;
        }
        // A longer one goes into the ring only if its receiver waits.
        let longer = bytes > memory.body_bytes_max();
        if longer && !(self.prompt && self.config.longer_while_both_wait) {
            return Manner::ByLength;
        }
        let unasked = self.unasked(process, bytes);
        if !longer && *unasked > 0 {
            *unasked -= 1;
            return Manner::WithHeader;
        }
        W::settle_costs(self);
        let expected = !longer && bytes > W::eager_limit(self, process);
        let counts = !longer && !self.may_wait(to.context);
        if counts && !expected {
            *self.unasked(process, bytes) = UNASKED;
            return Manner::WithHeader;
        }
        let Some((offers, unasked)) = W::offers(self, process, bytes, expected) else {
            if !longer && !expected {
                *self.unasked(process, bytes) = UNASKED;
            }
            return Manner::ByLength;
        };
        if !longer {
            *self.unasked(process, bytes) = unasked;
        }
        match offers {
            true if counts => Manner::Announced,
            true => Manner::Offered,
            false if longer => Manner::ByLength,
            false => Manner::WithHeader,
        }
    }

    /// Whether a long message may wait for its receiver: not one that the program waits for before it does anything else, or where it expects nothing.
    fn may_wait(&mut self, context: Context) -> bool {
        !self.sends_blocking && {
            let context = self.matcher.open(context);
            self.matcher.awaits(context)
        }
    }

    /// Starts a send. `None`: it is complete already.
    #[inline]
    pub fn send(&mut self, to: &Target, buffer: &W::Buffer, mode: Mode) -> Result<Option<RequestId>, W::Fault> {
        let bytes = buffer.len();
        let crosses = self.crossing > 0 && bytes > crossing::SHORT_BYTES_MAX && self.crosses(to);
        if crosses && self.config.me < to.process && bytes <= W::eager_limit(self, to.process) {
            W::crosses(self, to.process, bytes);
        }
        let manner = match crosses {
            true => Manner::Crosses,
            false if bytes > crossing::SHORT_BYTES_MAX => self.manner(to, buffer),
            false => Manner::ByLength,
        };
        let limit = match bytes <= crossing::SHORT_BYTES_MAX || to.process == self.config.me || self.peers[to.process as usize].remote {
            true => self.config.eager_bytes_max,
            false => self.limit_of(to.process, bytes, manner),
        };
        if bytes <= self.longest_eager(buffer, limit) && to.process != self.config.me {
            let peer = &mut self.peers[to.process as usize];
            if !(peer.listed || peer.remote)
                && let Some(memory) = &mut self.memory
                && peer.credits.take_eager(bytes as u64)
            {
                // A synchronous one is complete when its receiver says so.
                let id = (mode == Mode::Synchronous)
                    .then(|| self.requests.insert(buffer.clone(), to.process, State::Offered, wire::header(Kind::Rts, to.envelope())));
                let sent = match id {
                    None => W::send_body(memory, to.process, wire::header(Kind::Eager, to.envelope()), &[], buffer, (0, bytes)),
                    Some(id) => W::send_body(memory, to.process, wire::header(Kind::EagerSync, to.envelope()), &[id.to_raw()], buffer, (0, bytes)),
                };
                if sent.is_ok() {
                    peer.count_sent(to.context, to.tag, None);
                    peer.offers += id.is_some() as u32;
                    if bytes > crossing::SHORT_BYTES_MAX {
                        self.has_put(to.process);
                    }
                    return Ok(id);
                }
                peer.credits.put_back(bytes as u64);
                if let Some(id) = id {
                    self.requests.remove(id);
                }
                if let Err(Refused::Failed(error)) = sent {
                    return Err(error.into());
                }
            }
        }
        self.send_slowly(to, buffer, mode, manner)
    }

    /// Whether a message that is longer than [short](crossing::SHORT_BYTES_MAX) crosses others, and may wait for its receiver.
    fn crosses(&mut self, to: &Target) -> bool {
        to.process != self.config.me && self.peers[to.process as usize].crossing.is_on() && self.may_wait(to.context)
    }

    /// Sends if that is possible at once; otherwise nothing happens.
    pub fn send_now(&mut self, to: &Target, buffer: &W::Buffer) -> Result<bool, W::Fault> {
        let bytes = buffer.len();
        if bytes > self.config.eager_bytes_max {
            return Ok(false);
        }
        if to.process == self.config.me {
            // Matched or queued as unexpected: either way it is complete if there is credit for keeping it.
            if !self.peers[to.process as usize].credits.clone().take_eager(bytes as u64) {
                return Ok(false);
            }
            if !self.own_order(to)? {
                return Ok(false);
            }
            let sent = self.send_to_self(to, buffer, Mode::Standard).is_none();
            W::wake_threads(self);
            return Ok(sent);
        }
        if self.peers[to.process as usize].remote {
            return W::send_copy(self, to, buffer);
        }
        let peer = &mut self.peers[to.process as usize];
        let Some(memory) = &mut self.memory else { return Ok(false) };
        if peer.listed {
            return Ok(false);
        }
        // The account may be out of date: nobody else may ever look, where nothing waits.
        let mut takes = || peer.credits.take_eager(bytes as u64) || (peer.credits.released(memory.credit(to.process)) && peer.credits.take_eager(bytes as u64));
        if !takes() {
            return Ok(false);
        }
        match W::send_body(memory, to.process, wire::header(Kind::Eager, to.envelope()), &[], buffer, (0, bytes)) {
            Ok(()) => {
                peer.count_sent(to.context, to.tag, None);
                Ok(true)
            }
            Err(Refused::Full) => {
                peer.credits.put_back(bytes as u64);
                Ok(false)
            }
            Err(Refused::Failed(error)) => {
                peer.credits.put_back(bytes as u64);
                Err(error.into())
            }
        }
    }

    #[inline(never)]
    fn send_slowly(&mut self, to: &Target, buffer: &W::Buffer, mode: Mode, manner: Manner) -> Result<Option<RequestId>, W::Fault> {
        if let Some(fault) = &self.fault {
            return Err(fault.clone());
        }
        if to.process == self.config.me {
            if !self.own_order(to)? {
                let id = self.requests.insert(buffer.clone(), to.process, State::Queued, wire::header(Kind::Rts, to.envelope()));
                self.peers[to.process as usize].queue.push_back(id);
                self.postponed = true;
                return Ok(Some(id));
            }
            let sent = self.send_to_self(to, buffer, mode);
            W::wake_threads(self);
            return Ok(sent);
        }
        if self.peers[to.process as usize].failed {
            return Err(self.reason(to.process));
        }
        if self.peers[to.process as usize].remote {
            return self.send_remote(to, buffer, mode);
        }
        if self.memory.is_none() {
            return Err(W::program_fault(format!("process {} cannot be reached: this process is alone", to.process)));
        }
        if buffer.len() > self.config.eager_bytes_max {
            W::settle_costs(self);
        }
        let peer = &self.peers[to.process as usize];
        let announced = self.config.speculation != Speculation::Off && peer.may_be_announced();
        if announced && buffer.len() > self.limit_of(to.process, buffer.len(), manner) {
            // Its receive may have been announced: look before it is offered (§3.2.2 of the paper on speculation).
            W::look(self)?;
            if self.peers[to.process as usize].failed {
                return Err(self.reason(to.process));
            }
        }
        let head = wire::header(Kind::Rts, to.envelope());
        let id = self.requests.insert(buffer.clone(), to.process, State::Queued, head);
        let r = self.requests.at(id.index());
        (r.synchronous, r.blocking) = (mode == Mode::Synchronous, self.prompt && self.config.longer_while_both_wait);
        r.manner = manner;
        self.peers[to.process as usize].queue.push_back(id);
        if let Err(fault) = self.flush(to.process) {
            // The buffer is the program's again. What else waits for that process fails with it.
            let queue = &mut self.peers[to.process as usize].queue;
            queue.retain(|queued| *queued != id);
            self.requests.remove(id);
            return Err(fault);
        }
        if self.requests.at(id.index()).state == State::Queued {
            self.worker.count(Count::HeldBack, 1);
            self.worker.note(Event::HeldBack, || [to.process as i64, to.tag as i64, buffer.len() as i64]);
        }
        Ok(match self.take(id) {
            Some(_) => None,
            None => Some(id),
        })
    }

    /// Whether a message of this process to itself may be matched now.
    fn own_order(&mut self, to: &Target) -> Result<bool, W::Fault> {
        let context = self.matcher.open(to.context);
        Ok(self.peers[to.process as usize].queue.is_empty() && self.recall(context, to.source, to.tag)?)
    }

    /// A message of this process to itself and the receive of it, both at once, by `copy`, where nothing else is queued in their context that could be
    /// matched with either. Otherwise nothing happens.
    #[inline(always)]
    pub fn exchange_own(&mut self, context: ContextIndex, to: &Target, bytes: usize, copy: impl FnOnce()) -> bool {
        let alone = to.process == self.config.me
            && self.peers[to.process as usize].queue.is_empty()
            && self.matcher.queued_in(context) == (0, 0)
            && self.matcher.key(context) == to.context;
        if alone {
            copy();
            self.worker.received(DataPath::Own, bytes as u64);
        }
        alone
    }

    /// Gives this process' own messages that had to wait to their receives, or keeps them, in order.
    pub(super) fn send_own(&mut self) -> Result<(), W::Fault> {
        let me = self.config.me as usize;
        while let Some(&id) = self.peers[me].queue.front() {
            let Some((_, envelope)) = wire::parse(self.requests.at(id.index()).head) else { break };
            let context = self.matcher.open(envelope.context);
            if !self.recall(context, envelope.source, envelope.tag)? {
                self.postponed = true;
                break;
            }
            self.peers[me].queue.pop_front();
            match self.matcher.arrive(context, envelope.source, envelope.tag) {
                Some(index) => {
                    let receive = self.requests.id(index);
                    self.take_own(receive, id, envelope);
                    self.complete(id);
                }
                None => {
                    self.requests.at(id.index()).state = State::OfferedHere;
                    self.matcher.keep(context, envelope.source, envelope.tag, Unexpected::Here { request: id.index() });
                }
            }
        }
        W::wake_threads(self);
        Ok(())
    }

    /// A receive takes the message of this process' own send `from`.
    fn take_own(&mut self, receive: RequestId, from: RequestId, envelope: Envelope) {
        let from = self.requests.at(from.index()).buffer.clone();
        let r = self.requests.at(receive.index());
        r.buffer.copy_from(&from);
        r.outcome = outcome(envelope.source, envelope.tag, from.len(), r.buffer.len());
        self.complete(receive);
        self.worker.received(DataPath::Own, from.len() as u64);
    }

    fn send_to_self(&mut self, to: &Target, buffer: &W::Buffer, mode: Mode) -> Option<RequestId> {
        let context = self.matcher.open(to.context);
        let bytes = buffer.len();
        if let Some(index) = self.matcher.arrive(context, to.source, to.tag) {
            let r = self.requests.at(index);
            r.buffer.copy_from(buffer);
            r.outcome = outcome(to.source, to.tag, bytes, r.buffer.len());
            let id = self.requests.id(index);
            self.complete(id);
            self.worker.received(DataPath::Own, bytes as u64);
            return None;
        }
        self.count_unexpected();
        let me = self.config.me;
        self.worker.note(Event::Unexpected, || [me as i64, to.tag as i64, bytes as i64]);
        if mode == Mode::Standard && bytes <= self.worker.own_bytes_max() && self.peers[me as usize].credits.take_eager(bytes as u64) {
            let unexpected = Unexpected::Bytes { peer: me, data: buffer.to_vec().into_boxed_slice(), origin: None };
            self.matcher.keep(context, to.source, to.tag, unexpected);
            return None;
        }
        let id = self.requests.insert(buffer.clone(), me, State::OfferedHere, wire::header(Kind::Rts, to.envelope()));
        self.matcher.keep(context, to.source, to.tag, Unexpected::Here { request: id.index() });
        Some(id)
    }

    /// Sends what waits for `process`: controls first, then messages in order.
    pub fn flush(&mut self, process: u32) -> Result<bool, W::Fault> {
        let mut moved = false;
        if self.peers[process as usize].remote {
            moved = W::flush_datagrams(self, process)?;
        }
        while !self.peers[process as usize].remote {
            let peer = &mut self.peers[process as usize];
            let Some(memory) = &mut self.memory else { break };
            if let Some(control) = peer.control.front() {
                match memory.send(process, control.head, &control.words[..control.count]) {
                    Ok(()) => {
                        peer.control.pop_front();
                        moved = true;
                        continue;
                    }
                    Err(Refused::Full) => break,
                    Err(Refused::Failed(error)) => return Err(error.into()),
                }
            }
            let Some(&id) = peer.queue.front() else { break };
            let r = self.requests.at(id.index());
            let (bytes, manner) = (r.buffer.len(), r.manner);
            let limit = self.limit_of(process, bytes, manner);
            let buffer = self.requests.buffer_of(id).expect("a send that is queued");
            let (limit, lent) = (self.longest_eager(buffer, limit), self.is_lent(buffer));
            let peer = &mut self.peers[process as usize];
            let r = self.requests.at(id.index());
            let mut eager = match r.buffer.is_contiguous() {
                // Both are here: one copies in while the other copies out.
                true if r.blocking && bytes > limit && !lent && matches!(manner, Manner::ByLength) => {
                    // More would often find no credit, and not be looked for among the receives that are announced either.
                    bytes as u64 <= self.config.unexpected_bytes_max / 2
                        && self.memory.as_ref().is_some_and(|memory| bytes <= memory.body_bytes_max_to(process) && memory.waits(process))
                }
                _ => bytes <= limit,
            };
            if !eager && peer.speculation.known.is_some() {
                match self.answer(process, id)? {
                    Some(true) => {
                        self.peers[process as usize].queue.pop_front();
                        moved = true;
                        continue;
                    }
                    Some(false) => {}
                    None => break,
                }
            }
            eager |= manner == Manner::Announced;
            let (peer, r) = (&mut self.peers[process as usize], self.requests.at(id.index()));
            let Some(memory) = &mut self.memory else { break };
            let allowed = |peer: &mut Peer<W>| match eager {
                true => peer.credits.take(bytes as u64),
                false if peer.credits.take_header() => Allowed::Header,
                false => Allowed::Wait,
            };
            let mut how = allowed(peer);
            if how != Allowed::Eager {
                // The account may be out of date: look, and ask again.
                let cost = if how == Allowed::Header { Some(0) } else { None };
                if peer.credits.released(memory.credit(process)) {
                    if let Some(bytes) = cost {
                        peer.credits.put_back(bytes);
                    }
                    how = allowed(peer);
                }
            }
            if how == Allowed::Header && eager {
                how = peer.credits.payload_instead(bytes as u64);
            }
            let (head, envelope_head) = (r.head, r.head[0] & !0xff00);
            let sent = match how {
                Allowed::Wait => break,
                Allowed::Eager => {
                    let kind = if r.synchronous { Kind::EagerSync } else { Kind::Eager };
                    let word = [id.to_raw()];
                    let words: &[u64] = if r.synchronous { &word } else { &[] };
                    (W::send_body(memory, process, [envelope_head | (kind as u64) << 8, head[1]], words, &r.buffer, (0, bytes)), bytes)
                }
                Allowed::Header => {
                    if r.list.is_none() && memory.remote_read() {
                        r.list = r.buffer.list();
                    }
                    let (address, pieces) = r.buffer.told(r.list.as_ref()).unwrap_or_default();
                    let rts = Rts { request: id.to_raw(), bytes: bytes as u64, address, pieces };
                    let kind = match (&peer.speculation.known, wire::parse(head)) {
                        (Some(known), Some((_, envelope))) => known.offer(envelope),
                        _ => Kind::Rts,
                    };
                    (memory.send(process, [envelope_head | (kind as u64) << 8, head[1]], &rts.to_words()), 0)
                }
            };
            match sent {
                (Ok(()), _) => {
                    moved = true;
                    let done = how == Allowed::Eager && !r.synchronous;
                    r.state = State::Offered;
                    peer.offers += 1;
                    peer.exchanging |= how == Allowed::Header && self.jobs.iter().any(|job| job.fetches_from(process));
                    peer.queue.pop_front();
                    if let Some((_, envelope)) = wire::parse(head) {
                        peer.count_sent(envelope.context, envelope.tag, (how == Allowed::Header).then_some(id.to_raw()));
                    }
                    if eager && how == Allowed::Header {
                        self.worker.count(Count::HeldToHeader, 1);
                        self.worker.note(Event::HeldToHeader, || [process as i64, head[1] as u32 as i32 as i64, bytes as i64]);
                    }
                    if bytes > crossing::SHORT_BYTES_MAX {
                        match how {
                            Allowed::Eager => self.has_put(process),
                            _ => self.note_crossing(process, Crossing::offered),
                        }
                    }
                    if done {
                        self.complete(id);
                    }
                }
                (Err(Refused::Full), bytes) => {
                    peer.credits.put_back(bytes as u64);
                    break;
                }
                (Err(Refused::Failed(error)), bytes) => {
                    peer.credits.put_back(bytes as u64);
                    return Err(error.into());
                }
            }
        }
        let peer = &mut self.peers[process as usize];
        let waiting = !peer.queue.is_empty() || !peer.control.is_empty();
        if waiting && !peer.listed {
            peer.listed = true;
            self.backlog.push(process);
        }
        Ok(moved)
    }

    /// Sends a control packet, now or as soon as there is room.
    pub fn control(&mut self, process: u32, head: [u64; 2], words: &[u64]) -> Result<(), W::Fault> {
        let peer = &mut self.peers[process as usize];
        if peer.gone {
            return Ok(());
        }
        if peer.control.is_empty()
            && !peer.remote
            && let Some(memory) = &mut self.memory
        {
            match memory.send(process, head, words) {
                Ok(()) => return Ok(()),
                Err(Refused::Full) => {}
                Err(Refused::Failed(error)) => return self.unreached(process, error),
            }
        }
        let mut control = Control { head, words: [0; 6], count: words.len() };
        control.words[..words.len()].copy_from_slice(words);
        peer.control.push_back(control);
        if !peer.listed {
            peer.listed = true;
            self.backlog.push(process);
        }
        Ok(())
    }

    /// Tries to take a send or receive back (MPI-5.0 §3.8.4). It completes either way.
    pub fn cancel(&mut self, id: RequestId) -> Result<(), W::Fault> {
        let Some(r) = self.requests.find(id) else { return Ok(()) };
        let (state, peer, head) = (r.state, r.peer, r.head);
        match state {
            State::Posted { .. } => self.cancel_receive(id)?,
            State::Queued => {
                self.peers[peer as usize].queue.retain(|queued| *queued != id);
                self.cancelled(id);
            }
            State::OfferedHere => {
                let Some((_, envelope)) = wire::parse(head) else { return Ok(()) };
                let context = self.matcher.open(envelope.context);
                let found = self.matcher.extract_where(context, |_, unexpected| matches!(unexpected, Unexpected::Here { request } if *request == id.index()));
                if found.is_some() {
                    self.cancelled(id);
                }
            }
            State::Offered => {
                let head = [(head[0] & !0xff00) | (Kind::Cancel as u64) << 8, head[1]];
                if self.peers[peer as usize].remote {
                    // Whatever is acknowledged from here on, the receiver decides.
                    self.requests.at(id.index()).state = State::Streaming;
                    self.peers[peer as usize].offers -= 1;
                }
                self.control(peer, head, &[id.to_raw()])?;
            }
            State::Unmatched => self.control(peer, [(head[0] & !0xff00) | (Kind::Cancel as u64) << 8, head[1]], &[id.to_raw()])?,
            State::Free | State::Fetching | State::Streaming | State::Complete => {}
        }
        Ok(())
    }

    pub(super) fn cancelled(&mut self, id: RequestId) {
        self.requests.at(id.index()).outcome.cancelled = true;
        self.complete(id);
    }
}

impl<W: Worker> Peer<W> {
    /// A message has left for this peer. `request` names it while it waits to be fetched.
    #[inline(always)]
    pub(super) fn count_sent(&mut self, context: Context, tag: i32, request: Option<u64>) {
        let number = self.sent;
        self.sent = number.wrapping_add(1);
        if let Some(known) = &mut self.speculation.known {
            known.sent(number, context, tag, request);
        }
    }

    /// A message of this peer has come, to be matched or queued as unexpected.
    #[inline(always)]
    pub(super) fn count_seen(&mut self) {
        self.seen = self.seen.wrapping_add(1);
    }
}
