//! Peers that share no memory with this process: their messages go as reliable datagrams.
//!
//! A message is a header of ours before the program's bytes. The reliability layer decides whether it goes at once or waits to be pulled, and
//! delivers in order, so that matching is the same as on shared memory. Short messages are copied, so that their sends are
//! complete at once; all others keep the program's memory until the receiver has acknowledged them.

use crate::announce::Ended;
use crate::receive::{Origin, Unexpected};
use crate::request::{RequestId, State};
use crate::send::outcome;
use crate::{Buffer, Engine, Fault, Mode, Speculation, Target};
use fabric::Network;
use fabric::reliable::{NetworkCounters, Program, Sink, Watch};
use proto::reliability::wire::Run;
use proto::reliability::{Delivery, Failure, PeerId, Refused, Slice};
use proto::rendezvous::Rtr;
use proto::wire::{self, Envelope, Kind};
use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};
use std::time::Duration;
use trace::Route;
use trace::events::{Happening, note};

/// Short sends that the engine keeps a copy of, bytes; past it they wait for their acknowledgement as long ones do.
const COPIES_BYTES_MAX: usize = 8 << 20;
/// Looks at shared memory for each look at the network, while nothing is under way there.
const LOOKS_EACH: u32 = 16;
/// What the reliability layer calls a control packet, which nobody waits for.
const NOBODY: u64 = u64::MAX;
/// Marks the copy of a short message among the names of sends.
const COPY: u64 = 1 << 63;
/// Short messages that wait at the same time to share datagrams, their bytes, and how long, ns, while the program sends on.
const HELD_MAX: u32 = 32;
const HELD_BYTES_MAX: usize = 8 << 10;
const HELD_NS: u64 = 10_000;
/// What an announcement counts for, bytes.
const ANNOUNCEMENT_BYTES: usize = 64;
/// Messages that have waited for longer have waited in vain, unless their process just lost its core: after two such waits with few others
/// between them, so many sends leave at once.
const LATE_NS: u64 = 50_000;
const LATE_WEIGHT: u32 = 16;
const AT_ONCE: u32 = 32;
/// A message up to so many bytes fits in one datagram.
const LONE_BYTES_MAX: usize = 512;
/// Header, and up to six words.
const ENVELOPE_BYTES_MAX: usize = 64;

/// Says where a process listens (its card), and the name of its host; where nobody may wait for that, perhaps not.
pub type Cards = Box<dyn FnMut(u32, bool) -> Result<(String, String), String> + Send>;

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
    fills: Vec<(u32, RequestId, Ahead)>,
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

/// What a far receiver offers with an announcement.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ahead {
    pub window: u32,
    pub granted_bytes: u64,
    pub capacity_bytes: u64,
}

impl Deferred {
    fn is_empty(&self) -> bool {
        self.releases.is_empty() && self.fetches.is_empty() && self.withdrawals.is_empty() && self.fills.is_empty() && self.abandoned.is_empty()
    }
}

/// What the network's thread knows of the others, without the engine's lock.
pub(crate) struct Signs {
    /// Looks at the network.
    looks: AtomicU64,
    /// How often messages have begun to wait for others to share a datagram with.
    holds: AtomicU64,
    /// How the network's thread sleeps.
    thread: AtomicU32,
    doing: AtomicU32,
}

impl Default for Signs {
    fn default() -> Signs {
        // What waits before the thread is there is not allowed to; and it looks as soon as it runs.
        Signs { looks: AtomicU64::new(0), holds: AtomicU64::new(0), thread: AtomicU32::new(NEAR), doing: AtomicU32::new(AWAKE) }
    }
}

/// Only datagrams end its sleep, or it is not there.
const DEAF: u32 = 0;
/// It sleeps long, and can be woken.
const AWAY: u32 = 1;
/// It looks again within [`TICK`].
const NEAR: u32 = 2;

impl Signs {
    /// Whether messages may begin to wait: `thread` then sees to it that they leave.
    fn hold(&self, thread: Option<&std::thread::Thread>) -> bool {
        self.holds.store(self.holds.load(Ordering::Relaxed).wrapping_add(1), Ordering::Relaxed);
        // The thread says how it will sleep and then looks whether something waits: one of both sees the other.
        fence(Ordering::SeqCst);
        let how = self.thread.load(Ordering::Relaxed);
        if how == AWAY {
            thread.into_iter().for_each(std::thread::Thread::unpark);
        }
        how != DEAF
    }

    /// The thread is about to sleep. Whether no messages have begun to wait since `holds`.
    fn sleep(&self, how: u32, holds: &mut u64) -> bool {
        self.thread.store(how, Ordering::Relaxed);
        fence(Ordering::SeqCst);
        let now = self.holds.load(Ordering::Relaxed);
        let calm = std::mem::replace(holds, now) == now;
        if !calm && how == AWAY {
            self.thread.store(NEAR, Ordering::Relaxed);
        }
        calm
    }
}

/// Nobody sleeps in MPI.
const AWAKE: u32 = 0;
/// A thread sleeps on the sockets itself.
const ON_SOCKETS: u32 = 1;
/// A thread sleeps on shared memory's doorbell, which has to ring for datagrams too.
const ON_DOORBELL: u32 = 2;

/// Copies whose memory is used again: the first so many, where they are short.
const COPIES_KEPT: usize = 1024;
const COPY_KEPT_BYTES: usize = 64;

/// Short messages under way.
#[derive(Default)]
struct Copies {
    all: Vec<Vec<u8>>,
    free: Vec<u32>,
    bytes: usize,
}

impl Copies {
    /// Keeps a copy of what `write` appends.
    fn keep(&mut self, write: impl FnOnce(&mut Vec<u8>)) -> u64 {
        let index = self.free.pop().unwrap_or_else(|| {
            self.all.push(Vec::new());
            self.all.len() as u32 - 1
        });
        let copy = &mut self.all[index as usize];
        write(copy);
        self.bytes += copy.len();
        COPY | index as u64
    }

    fn drop(&mut self, name: u64) {
        let index = name as u32;
        let copy = &mut self.all[index as usize];
        self.bytes -= copy.len();
        if copy.capacity() <= COPY_KEPT_BYTES && (index as usize) < COPIES_KEPT {
            copy.clear();
        } else {
            *copy = Vec::new();
        }
        self.free.push(index);
    }
}

/// Short messages that have been sent and have not left: what the program sends next may share their datagrams.
#[derive(Default)]
struct Held {
    /// Somebody lets them leave if the program computes.
    allowed: bool,
    messages: u32,
    bytes: usize,
    since_ns: u64,
    /// How much of late has waited in vain; and sends that leave at once, since it did not pay.
    late: u32,
    at_once: u32,
}

impl Held {
    /// Whether one more message waits, after something that `unanswered` says is still under way.
    fn add(&mut self, bytes: usize, unanswered: bool, now_ns: u64) -> bool {
        if !self.allowed || !unanswered {
            return false;
        }
        if self.at_once > 0 {
            self.at_once -= 1;
            return false;
        }
        if self.messages == 0 {
            (self.since_ns, self.bytes) = (now_ns, 0);
        }
        self.messages += 1;
        self.bytes += bytes;
        self.messages < HELD_MAX && self.bytes < HELD_BYTES_MAX && now_ns < self.since_ns + HELD_NS
    }

    /// All of them leave.
    fn end(&mut self, now_ns: u64) {
        if std::mem::take(&mut self.messages) == 0 {
            return;
        }
        if now_ns <= self.since_ns + LATE_NS {
            self.late = self.late.saturating_sub(1);
            return;
        }
        self.late += LATE_WEIGHT;
        if self.late > LATE_WEIGHT {
            (self.late, self.at_once) = (LATE_WEIGHT / 2, AT_ONCE);
        }
    }
}

/// The network's side of the engine.
pub(crate) struct Far {
    pub(crate) node: Network,
    watch: Arc<Watch>,
    cards: Cards,
    /// Of each process 0 before it was first asked for, then its host, which `hosts` names.
    connected: Vec<u32>,
    hosts: HashMap<String, u32>,
    copies: Copies,
    /// Sends that are not acknowledged, and receives that are not whole.
    open: u64,
    held: Held,
    looks: u32,
    signs: Arc<Signs>,
    /// The network's thread, once there is one.
    thread: Option<std::thread::Thread>,
    /// Peers whose failure matters although nothing is under way with them.
    heeded: Vec<u32>,
}

impl Far {
    fn upcalls<'a>(&'a mut self, engine: &'a mut Engine) -> (&'a mut Network, Upcalls<'a>) {
        let Far { node, copies, cards, connected, hosts, open, .. } = self;
        (node, Upcalls { engine, copies, cards, connected, hosts, open, packed: Vec::new().into() })
    }

    fn heed(&mut self, on: bool) {
        let (now_ns, requests) = self.node.requests();
        for process in &self.heeded {
            // One that has failed says so at the next look.
            let _ = requests.watch(now_ns, *process, on);
        }
    }

    /// Learns where `process` listens, at the first message to it.
    fn connect(&mut self, process: u32) -> Result<(), Fault> {
        if self.connected[process as usize] == 0 {
            match (self.cards)(process, true) {
                Ok((card, host)) => {
                    if self.node.connect(process, &card).is_err() {
                        return Err(fabric::Error::Peer { peer: process, why: format!("it says that it listens at {card:?}") }.into());
                    }
                    let next = self.hosts.len() as u32 + 1;
                    self.connected[process as usize] = *self.hosts.entry(host).or_insert(next);
                }
                // The launcher does not say so now, but that process has spoken: what goes to it goes where that came from.
                Err(_) if self.node.endpoint().knows(process) => {}
                Err(why) => return Err(fabric::Error::Peer { peer: process, why }.into()),
            }
        }
        Ok(())
    }

    /// How many processes may have spoken with this one.
    pub(crate) fn known(&self) -> usize {
        self.node.endpoint().known()
    }

    /// Whether this process may have spoken with `process`, or that one with it.
    fn knows(&self, process: u32) -> bool {
        self.connected[process as usize] > 0 || self.node.endpoint().knows(process)
    }
}

/// What the engine hears of the network.
struct Upcalls<'a> {
    engine: &'a mut Engine,
    copies: &'a mut Copies,
    cards: &'a mut Cards,
    connected: &'a [u32],
    hosts: &'a HashMap<String, u32>,
    open: &'a mut u64,
    /// Bytes that do not lie in one piece, packed for the datagrams that are about to leave.
    packed: std::cell::RefCell<Vec<Box<[u8]>>>,
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

// SAFETY: copies and the buffers of requests that are under way keep their place and may be read; receives write inside their buffers.
unsafe impl Program for Upcalls<'_> {
    fn gather(&self, slice: &Slice, out: &mut Sink) {
        let (from, bytes) = (slice.offset_bytes as usize, slice.length_bytes as usize);
        let mut pack = |fill: &dyn Fn(&mut [u8])| {
            let mut piece = vec![0; bytes].into_boxed_slice();
            fill(&mut piece);
            // SAFETY: kept until the network's call has returned.
            unsafe { out.push_passing(piece.as_ptr(), bytes) };
            self.packed.borrow_mut().push(piece);
        };
        if slice.send & COPY != 0 {
            match self.copies.all.get(slice.send as u32 as usize).and_then(|copy| copy.get(from..from + bytes)) {
                // SAFETY: kept until the send is complete.
                Some(part) => unsafe { out.push(part.as_ptr(), bytes) },
                None => pack(&|_| {}),
            }
            return;
        }
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

    fn deliver(&mut self, peer: PeerId, delivery: Delivery) {
        let done = match delivery {
            Delivery::Eager { envelope, payload } => self.engine.arrive_datagram(peer, envelope, payload),
            Delivery::Request { envelope, transfer, bytes } => self.engine.arrive_request(peer, envelope, transfer, bytes),
            Delivery::Offer { envelope, window, granted_bytes, capacity_bytes } => {
                self.engine.arrive_far_rtr(peer, envelope, Ahead { window, granted_bytes, capacity_bytes })
            }
            Delivery::Push { envelope, receive, bytes } => {
                *self.open += self.engine.arrive_push(peer, envelope, RequestId::from_raw(receive), bytes) as u64;
                Ok(())
            }
        };
        if let Err(fault) = done {
            self.engine.fault.get_or_insert(fault);
        }
    }

    fn complete(&mut self, send: u64, result: Result<(), Failure>) {
        if send == NOBODY {
            return;
        }
        *self.open -= 1;
        if send & COPY != 0 {
            return self.copies.drop(send);
        }
        // What has failed is ended all together, when the peer is said to have failed.
        let id = RequestId::from_raw(send);
        let Some(r) = self.engine.requests.find(id) else { return };
        if std::mem::take(&mut r.in_use) {
            // Its peer has failed before; now nothing reads its buffer any more.
            return self.engine.complete(id);
        }
        if result.is_err() {
            return;
        }
        match r.state {
            State::Offered => self.engine.complete(id),
            // It is being taken back: the receiver will say whether it was.
            _ => r.missing = 1,
        }
    }

    fn received(&mut self, receive: u64, result: Result<(), Failure>) {
        let id = RequestId::from_raw(receive);
        // Offered windows are not open until something comes to them.
        let Some(r) = self.engine.requests.find(id).filter(|r| r.state == State::Fetching) else { return };
        *self.open -= 1;
        if result.is_err() {
            return;
        }
        let bytes = r.outcome.bytes;
        self.engine.complete(id);
        self.engine.counters.received(Route::Pulled, bytes);
    }

    fn card(&mut self, peer: PeerId) -> Option<String> {
        // The ways that are known are enough for now; and whoever waits for the launcher may be waiting for this process.
        (self.cards)(peer, false).ok().map(|(card, _)| card)
    }

    fn peer_failed(&mut self, peer: PeerId, in_use: &[u64]) {
        for &send in in_use.iter().filter(|&&send| send & COPY == 0) {
            if let Some(r) = self.engine.requests.find(RequestId::from_raw(send)) {
                r.in_use = true;
            }
        }
        let host = self.hosts.iter().find(|(_, number)| **number == self.connected[peer as usize]).map_or("unknown", |(name, _)| name);
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

fn envelope_of(head: [u64; 2], words: &[u64]) -> ([u8; ENVELOPE_BYTES_MAX], usize) {
    let mut bytes = [0; ENVELOPE_BYTES_MAX];
    let all = head.iter().chain(words);
    all.zip(bytes.chunks_exact_mut(8)).for_each(|(word, to)| to.copy_from_slice(&word.to_le_bytes()));
    (bytes, 16 + 8 * words.len())
}

/// Header and words; `None` where it is none of ours.
fn read_envelope(bytes: &[u8]) -> Option<(Kind, Envelope, [u64; 6], usize)> {
    let (words, []) = bytes.as_chunks::<8>() else { return None };
    let [first, second, rest @ ..] = words else { return None };
    let mut after = [0; 6];
    after.iter_mut().zip(rest).for_each(|(to, word)| *to = u64::from_le_bytes(*word));
    let (kind, envelope) = wire::parse([u64::from_le_bytes(*first), u64::from_le_bytes(*second)])?;
    (rest.len() <= after.len()).then_some((kind, envelope, after, rest.len()))
}

impl Engine {
    /// From now on the processes that are not in `near` (ascending) are reached through `node`; `cards` says where they listen.
    ///
    /// # Errors
    /// The system has no descriptor left for the network's event.
    pub fn reach_far(&mut self, node: Network, near: &[u32], cards: Cards) -> Result<(), fabric::Error> {
        let watch = Arc::new(node.watch()?);
        for process in 0..self.config.processes {
            let peer = &mut self.peers[process as usize];
            peer.far = process != self.config.me && near.binary_search(&process).is_err();
            if peer.far {
                // Between hosts, announcements are told apart by counting only.
                peer.speculation = crate::announce::Speculation::default();
            }
        }
        let connected = vec![0; self.config.processes as usize];
        let copies = Copies::default();
        let far = Far {
            node,
            watch,
            cards,
            connected,
            hosts: HashMap::new(),
            copies,
            open: 0,
            held: Held::default(),
            looks: 0,
            signs: Arc::default(),
            thread: None,
            heeded: Vec::new(),
        };
        self.far = Some(Box::new(far));
        self.announce_above();
        Ok(())
    }

    /// Sets from which length on receives may be announced: above what goes with its header, to near or to far processes. None is where
    /// speculation is off.
    pub(crate) fn announce_above(&mut self) {
        let far = self.far.as_ref().map_or(usize::MAX, |far| far.node.endpoint().config().eager_bytes_max as usize);
        let announces = self.config.speculation != Speculation::Off;
        self.announce_above_bytes = if announces { self.config.eager_bytes_max.min(far) } else { usize::MAX };
    }

    /// Learns where every far process listens: whoever started them may not say so later.
    pub(crate) fn connect_all(&mut self) -> Result<(), Fault> {
        let Some(mut far) = self.far.take() else { return Ok(()) };
        let mut processes = (0..).zip(&self.peers).filter(|(_, peer)| peer.far).map(|(process, _)| process);
        let done = processes.try_for_each(|process| far.connect(process));
        self.far = Some(far);
        done
    }

    /// The processes that this one may have spoken with, or they with it, itself not among them.
    pub(crate) fn acquainted(&self) -> Vec<u32> {
        let knows = |process: u32| self.far.as_ref().is_some_and(|far| far.knows(process));
        (0..self.config.processes).filter(|&process| process != self.config.me && (self.near(process) || knows(process))).collect()
    }

    /// Whether `process` shares memory with this one.
    pub fn near(&self, process: u32) -> bool {
        !self.peers[process as usize].far
    }

    /// Whether some process is reached by datagrams only.
    pub fn networked(&self) -> bool {
        self.far.is_some()
    }

    /// What has happened at the network's edge, and in the reliability layer.
    pub fn network_counters(&self) -> Option<(NetworkCounters, proto::reliability::Counters)> {
        self.far.as_ref().map(|far| (far.node.counters(), far.node.endpoint().counters))
    }

    /// Nothing sent is unacknowledged, and nothing that came.
    pub(crate) fn far_quiet(&self) -> bool {
        self.far.as_ref().is_none_or(|far| far.open == 0 && far.node.endpoint().is_quiet())
    }

    pub(crate) fn far_open(&self) -> bool {
        self.far.as_ref().is_some_and(|far| far.open > 0)
    }

    /// Looks at the network, where it is this look's turn.
    #[inline]
    pub(crate) fn look_far(&mut self) -> Result<bool, Fault> {
        let Some(far) = &mut self.far else { return Ok(false) };
        far.looks = far.looks.wrapping_add(1);
        if self.shm.is_some() && far.open == 0 && !far.looks.is_multiple_of(LOOKS_EACH) && self.asleep == 0 {
            return Ok(false);
        }
        self.poll_far()
    }

    #[inline(never)]
    fn poll_far(&mut self) -> Result<bool, Fault> {
        if let Some(fault) = &self.fault {
            return Err(fault.clone());
        }
        let Some(mut far) = self.far.take() else { return Ok(false) };
        let looks = &far.signs.looks;
        looks.store(looks.load(Ordering::Relaxed).wrapping_add(1), Ordering::Relaxed);
        let (node, mut upcalls) = far.upcalls(self);
        let came = node.take_in(&mut upcalls);
        // Of what has just come, what can wait is done at the next look: the program may have waited for it.
        let flushes = match came {
            0 => self.held || !self.deferred.is_empty() || far.node.is_due(),
            _ => self.held || self.asleep > 0 || !self.deferred.fetches.is_empty() || self.fault.is_some() || far.node.is_pressing(),
        };
        if flushes {
            self.flush_all_far(&mut far);
        }
        self.far = Some(far);
        if self.has_failures() {
            self.spread();
        }
        match &self.fault {
            Some(fault) => Err(fault.clone()),
            None => Ok(came > 0),
        }
    }

    /// Asks the reliability layer for what arrivals have given rise to, and lets leave what may.
    fn flush_all_far(&mut self, far: &mut Far) {
        let (now_ns, requests) = far.node.requests();
        for (peer, bytes) in self.deferred.releases.drain(..) {
            requests.release(now_ns, peer, bytes);
        }
        for (peer, window) in self.deferred.withdrawals.drain(..) {
            requests.withdraw(peer, window);
        }
        for (peer, id, ahead) in self.deferred.fills.drain(..) {
            requests.fill(peer, id.to_raw(), ahead.window, ahead.granted_bytes, ahead.capacity_bytes);
        }
        while let Some((pull, id, window)) = self.deferred.fetches.front() {
            let done = match id {
                Some(id) => {
                    let bytes = self.requests.at(id.index).outcome.bytes;
                    match window {
                        0 => requests.receive(now_ns, pull.peer, pull.transfer, bytes, id.to_raw()),
                        window => requests.adopt(now_ns, pull.peer, *window, pull.transfer, bytes),
                    }
                }
                None => requests.receive(now_ns, pull.peer, pull.transfer, 0, 0),
            };
            match done {
                Err(Refused::Full) => break,
                // A peer that has failed says so at the next look.
                Err(_) => {}
                Ok(()) => far.open += id.is_some() as u64,
            }
            self.deferred.fetches.pop_front();
        }
        if !self.deferred.abandoned.is_empty() {
            let peers: Vec<u32> = self.deferred.abandoned.iter().map(|(process, _)| *process).collect();
            let (node, mut upcalls) = far.upcalls(self);
            node.abandon(now_ns, &peers, &mut upcalls);
            // Also those with which nothing had been spoken.
            peers.into_iter().for_each(|peer| upcalls.peer_failed(peer, &[]));
            self.deferred.abandoned.clear();
        }
        self.flush_node(far, now_ns);
    }

    /// Nothing is expected of a far process any more.
    pub(crate) fn abandon_far(&mut self, process: u32, said: Said) {
        if !self.peers[process as usize].gone && self.deferred.abandoned.iter().all(|(other, _)| *other != process) {
            self.deferred.abandoned.push((process, said));
        }
    }

    fn flush_node(&mut self, far: &mut Far, now_ns: u64) {
        if !std::mem::take(&mut self.held) {
            far.held.messages = 0;
        }
        far.held.end(now_ns);
        let (node, mut upcalls) = far.upcalls(self);
        node.flush(now_ns, &mut upcalls);
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
            self.hurry_far();
        }
    }

    /// As a look at the network, without looking for what has come.
    #[inline(never)]
    pub(crate) fn hurry_far(&mut self) {
        let Some(mut far) = self.far.take() else { return };
        self.flush_all_far(&mut far);
        self.far = Some(far);
    }

    /// The memory of a message of a far peer is free: `bytes` of payload.
    pub(crate) fn release_far(&mut self, peer: u32, bytes: u64) {
        self.deferred.releases.push((peer, bytes));
    }

    /// Sends to a far peer. `None`: it is complete already.
    pub(crate) fn send_far(&mut self, to: &Target, buffer: &Buffer, mode: Mode) -> Result<Option<RequestId>, Fault> {
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
        let peer = &self.peers[to.process as usize];
        let Some(mut far) = self.far.take() else { return Ok(false) };
        let short = bytes <= far.node.endpoint().config().eager_bytes_max as usize;
        if !short || peer.listed || far.copies.bytes + bytes > COPIES_BYTES_MAX {
            self.far = Some(far);
            return Ok(false);
        }
        let sent = far.connect(to.process).and_then(|()| {
            let name = far.copies.keep(|copy| buffer.append_to(copy));
            let (envelope, length) = envelope_of(wire::header(Kind::Eager, to.envelope()), &[]);
            let (now_ns, requests) = far.node.requests();
            let unanswered = requests.is_unanswered(to.process);
            match requests.send(now_ns, to.process, &envelope[..length], name, bytes as u64, false) {
                Ok(()) => {
                    far.open += 1;
                    let holds = self.may_hold(&mut far, bytes, unanswered, now_ns);
                    if !holds && !self.held && bytes <= LONE_BYTES_MAX {
                        // Nothing has waited.
                        far.held.messages = 0;
                        let (node, mut upcalls) = far.upcalls(self);
                        node.flush_one(now_ns, &mut upcalls);
                    } else if !holds {
                        self.flush_node(&mut far, now_ns);
                    }
                    Ok(true)
                }
                Err(refused) => {
                    far.copies.drop(name);
                    if refused == Refused::Full { Ok(false) } else { Err(self.reasons.of(to.process)) }
                }
            }
        });
        self.far = Some(far);
        if sent == Ok(true) {
            self.peers[to.process as usize].count_sent(to.context, to.tag, None);
        }
        sent
    }

    /// Sends what waits for a far peer: controls first, then messages in order.
    pub(crate) fn flush_far(&mut self, process: u32) -> Result<bool, Fault> {
        // From within an arrival: it leaves after it.
        let Some(mut far) = self.far.take() else { return Ok(false) };
        let unanswered = far.node.endpoint().is_unanswered(process);
        let moved_bytes = match far.connect(process) {
            Ok(()) => self.queue_far(&mut far, process),
            Err(why) => {
                self.lose_peer(process, why);
                0
            }
        };
        let now_ns = far.node.now_ns();
        if moved_bytes == 0 || !self.may_hold(&mut far, moved_bytes, unanswered, now_ns) {
            self.flush_node(&mut far, now_ns);
        }
        self.far = Some(far);
        Ok(moved_bytes > 0)
    }

    /// Whether what was just requested may wait for more of its kind, so that they share a datagram.
    fn may_hold(&mut self, far: &mut Far, bytes: usize, unanswered: bool, now_ns: u64) -> bool {
        let waits = !self.prompt && self.asleep == 0 && far.held.add(bytes, unanswered, now_ns);
        let holds = waits && (self.held || far.signs.hold(far.thread.as_ref()));
        self.held |= holds;
        holds
    }

    /// Requests what waits for a far peer, as far as it is taken. Returns its bytes in datagrams, about.
    fn queue_far(&mut self, far: &mut Far, process: u32) -> usize {
        let mut moved_bytes = 0;
        let Far { node, copies, open, .. } = far;
        let (now_ns, requests) = node.requests();
        let eager_bytes_max = requests.config().eager_bytes_max as usize;
        let peer = &mut self.peers[process as usize];
        loop {
            let mut after = State::Offered;
            let (sent, id) = if let Some(control) = peer.control.front() {
                let (envelope, length) = envelope_of(control.head, &control.words[..control.count]);
                (requests.send(now_ns, process, &envelope[..length], NOBODY, 0, false), None)
            } else if let Some(&id) = peer.queue.front() {
                let r = self.requests.at(id.index);
                let (bytes, long) = (r.buffer.len(), r.buffer.len() > eager_bytes_max);
                let Some((_, head)) = wire::parse(r.head) else { return moved_bytes };
                let sent = match peer.speculation.awaits(head.context, head.tag).filter(|_| long) {
                    Some(rtr) => {
                        let (envelope, length) = envelope_of(r.head, &[id.to_raw(), bytes as u64]);
                        let bytes = (bytes as u64).min(rtr.room_bytes);
                        let pushed = requests.push(now_ns, process, &envelope[..length], rtr.slot, rtr.address, id.to_raw(), bytes);
                        self.counters.rtr_answered += pushed.is_ok() as u64;
                        pushed
                    }
                    None if r.synchronous && !long && copies.bytes + bytes <= COPIES_BYTES_MAX => {
                        after = State::Unmatched;
                        let name = copies.keep(|copy| r.buffer.append_to(copy));
                        let (envelope, length) = envelope_of(wire::header(Kind::EagerSync, head), &[id.to_raw()]);
                        let sent = requests.send(now_ns, process, &envelope[..length], name, bytes as u64, false);
                        if sent.is_err() {
                            copies.drop(name);
                        }
                        sent
                    }
                    None => {
                        let (envelope, length) = envelope_of(r.head, &[id.to_raw()]);
                        requests.send(now_ns, process, &envelope[..length], id.to_raw(), bytes as u64, r.synchronous)
                    }
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
                    *open += 1;
                    moved_bytes += if after == State::Unmatched { self.requests.at(id.index).buffer.len() } else { 0 };
                }
                (Err(Refused::Full), _) => return moved_bytes,
                (Err(_), _) => {
                    self.lose_peer(process, self.reasons.of(process));
                    return moved_bytes;
                }
            }
            moved_bytes += ANNOUNCEMENT_BYTES;
        }
    }

    /// A whole message of a far peer, or a control packet.
    fn arrive_datagram(&mut self, peer: u32, envelope: &[u8], payload: &[u8]) -> Result<(), Fault> {
        let Some((kind, envelope, words, count)) = read_envelope(envelope) else {
            return self.refuse_far(peer, payload);
        };
        match (kind, count) {
            (Kind::Eager, 0 | 1) | (Kind::EagerSync, 1) => {
                let parts = [(payload.as_ptr(), payload.len()), (std::ptr::null(), 0)];
                let origin = Origin { request: words[0], synchronous: kind == Kind::EagerSync };
                return self.arrive_bytes(peer, envelope, parts, (count == 1).then_some(origin), Route::Datagrams);
            }
            (Kind::Fin, 1) if self.matched_far(peer, RequestId::from_raw(words[0])) => {}
            (Kind::Cancel, 1) => self.take_back(peer, envelope, words[0])?,
            (Kind::Cancelled, 2) => self.taken_back(peer, RequestId::from_raw(words[0]), words[1] == 1),
            (Kind::Forget, 0) => self.arrive_forget(peer, envelope)?,
            (Kind::Reset, 1) => self.arrive_reset(peer, envelope, words[0] as u32)?,
            (Kind::Left, 1) => self.arrive_left(peer, words[0]),
            (Kind::Lost, 1) if self.arrive_lost(peer, words[0]) => {}
            _ => return self.refuse_far(peer, payload),
        }
        self.release_far(peer, payload.len() as u64);
        Ok(())
    }

    fn refuse_far(&mut self, peer: u32, payload: &[u8]) -> Result<(), Fault> {
        self.counters.refused += 1;
        self.release_far(peer, payload.len() as u64);
        Ok(())
    }

    /// A message of a far peer that waits to be fetched.
    fn arrive_request(&mut self, peer: u32, envelope: &[u8], transfer: u32, bytes: u64) -> Result<(), Fault> {
        let (envelope, origin) = match read_envelope(envelope) {
            Some((Kind::Eager, envelope, _, 0)) => (envelope, None),
            Some((kind @ (Kind::Eager | Kind::EagerSync), envelope, [request, ..], 1)) => {
                (envelope, Some(Origin { request, synchronous: kind == Kind::EagerSync }))
            }
            _ => {
                self.deferred.fetches.push_back((Pull { peer, transfer, bytes, origin: None }, None, 0));
                return self.refuse_far(peer, &[]);
            }
        };
        let pull = Pull { peer, transfer, bytes, origin };
        let context = self.matcher.open(envelope.context);
        self.peers[peer as usize].count_seen();
        match self.matcher.arrive(context, envelope.source, envelope.tag) {
            Some(index) => {
                let id = self.requests.id(index);
                self.release_far(peer, 0);
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
        let window = self.crossed_far(id, bytes > 0);
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

    /// A synchronous send of which a copy had left has been matched. False where there is none.
    fn matched_far(&mut self, peer: u32, id: RequestId) -> bool {
        let matched = self.requests.find(id).is_some_and(|r| r.peer == peer && r.state == State::Unmatched);
        if matched {
            self.complete(id);
        }
        matched
    }

    /// A message that fills the offered window of an announced receive. Whether it is one.
    fn arrive_push(&mut self, peer: u32, envelope: &[u8], id: RequestId, bytes: u64) -> bool {
        self.release_far(peer, 0);
        if let Some((Kind::Eager, envelope, [_, whole_bytes, ..], 2)) = read_envelope(envelope)
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
        self.counters.refused += 1;
        false
    }

    /// A far peer has announced a receive.
    fn arrive_far_rtr(&mut self, peer: u32, envelope: &[u8], ahead: Ahead) -> Result<(), Fault> {
        self.release_far(peer, 0);
        match read_envelope(envelope) {
            Some((Kind::Rtr, envelope, words, 6)) if let Some(rtr) = Rtr::parse(envelope, &words) => {
                let (slot, address, room_bytes) = (ahead.window, ahead.granted_bytes, ahead.capacity_bytes);
                self.arrive_rtr(peer, Rtr { slot, address, room_bytes, ..rtr })
            }
            _ => {
                self.counters.refused += 1;
                Ok(())
            }
        }
    }

    /// Offers a window for a receive to its far sender, and says what for. 0 where that is not possible now.
    pub(crate) fn offer_far(&mut self, process: u32, rtr: Rtr, envelope: Envelope) -> u32 {
        let Some(mut far) = self.far.take() else { return 0 };
        let mut window = 0;
        if far.connect(process).is_ok() {
            let (bytes, length) = envelope_of(wire::header(Kind::Rtr, envelope), &rtr.to_words());
            let (now_ns, requests) = far.node.requests();
            window = requests.offer(now_ns, process, &bytes[..length], rtr.room_bytes, rtr.request).unwrap_or(0);
            self.flush_node(&mut far, now_ns);
        }
        self.far = Some(far);
        window
    }

    /// Nothing comes to the window of an announced receive.
    pub(crate) fn withdraw_far(&mut self, process: u32, window: u32) {
        self.deferred.withdrawals.push((process, window));
    }

    /// An announcement has crossed the message of request `id`.
    pub(crate) fn fill_far(&mut self, process: u32, id: RequestId, ahead: Ahead) {
        self.deferred.fills.push((process, id, ahead));
    }

    /// Nobody will fetch the message: its sender may go on.
    pub(crate) fn decline(&mut self, pull: Pull) {
        self.deferred.fetches.push_back((pull, None, 0));
    }

    /// The receiver says whether a send that is to be cancelled was taken back.
    fn taken_back(&mut self, peer: u32, id: RequestId, done: bool) {
        let Some(r) = self.requests.find(id).filter(|r| r.peer == peer && matches!(r.state, State::Streaming | State::Unmatched)) else { return };
        if r.state == State::Unmatched {
            // Otherwise it has been matched, and what says so has come before.
            if done {
                self.cancelled(id);
            }
            return;
        }
        let over = r.missing == 1;
        if done {
            self.cancelled(id);
        } else if over {
            self.complete(id);
        } else {
            r.state = State::Offered;
            self.peers[peer as usize].offers += 1;
        }
    }

    /// What the process waits for may be behind what far peers hold back.
    pub(crate) fn widen_far(&mut self, peer: u32) {
        if let Some(far) = &mut self.far {
            let (now_ns, requests) = far.node.requests();
            requests.widen(now_ns, peer);
        }
    }

    /// This process is about to sleep: a far peer that fails matters from now on, also one with which nothing is under way.
    /// `awaited`: the process that is waited for, if it is one.
    pub(crate) fn heed_far(&mut self, awaited: Option<u32>) {
        if self.far.as_ref().is_none_or(|far| !far.heeded.is_empty()) {
            return;
        }
        let awaited = awaited.filter(|process| self.peers[*process as usize].far);
        for process in awaited.map_or_else(|| self.awaited_far(), |process| vec![process]) {
            let Some(far) = &mut self.far else { return };
            match far.connect(process) {
                Ok(()) => far.heeded.push(process),
                Err(why) => self.lose_peer(process, why),
            }
        }
        match &mut self.far {
            Some(far) if awaited.is_some() => far.heed(true),
            _ => self.heed_all(),
        }
    }

    /// From now on it matters whether those live that this process has spoken with, or they with it.
    pub(crate) fn heed_all(&mut self) {
        if let Some(far) = &mut self.far {
            far.heeded = (0..self.config.processes).filter(|&process| far.knows(process)).collect();
            far.heed(true);
        }
    }

    /// This process waits no more.
    pub(crate) fn unheed_far(&mut self) {
        if let Some(far) = self.far.as_mut().filter(|far| !far.heeded.is_empty()) {
            far.heed(false);
            far.heeded.clear();
        }
    }

    /// How to sleep until something comes from the network, for at most so long. `None`: it does not take part.
    pub(crate) fn far_sleep(&mut self) -> Option<(Arc<Watch>, Option<Duration>)> {
        let far = self.far.as_mut()?;
        if !far.node.arm() {
            return Some((far.watch.clone(), Some(Duration::ZERO)));
        }
        let due = far.node.deadline_ns().map(|at_ns| Duration::from_nanos(at_ns.saturating_sub(far.node.now_ns())));
        Some((far.watch.clone(), due))
    }

    /// Says how this process sleeps, and wakes the network's thread where it has to ring the doorbell.
    pub(crate) fn far_asleep(&self, asleep: bool) {
        let Some(far) = &self.far else { return };
        let doing = match (asleep, self.shm.is_some()) {
            (false, _) => AWAKE,
            (true, false) => ON_SOCKETS,
            (true, true) => ON_DOORBELL,
        };
        far.signs.doing.store(doing, Ordering::Release);
        if doing == ON_DOORBELL
            && let Some(thread) = &far.thread
        {
            thread.unpark();
        }
    }

    /// Rings for threads of this process that sleep on the sockets.
    pub(crate) fn rouse_far(&self) {
        if let Some(far) = &self.far {
            far.watch.doorbell().ring();
        }
    }
}

/// Between looks at a program that calls MPI: at first, where ranks share cores, and when that has gone on for a while or the program sleeps in MPI.
const TICK: Duration = Duration::from_millis(1);
const TICK_CROWDED: Duration = Duration::from_millis(20);
const TICK_MAX: Duration = Duration::from_millis(50);
/// Longest sleep on the sockets.
const DOZE_NS: u64 = 1_000_000_000;

/// What the network's thread has from its engine: on busy cores it may not get to run for long, and then find the engine taken.
pub struct Attendant {
    signs: Arc<Signs>,
    watch: Arc<Watch>,
    doorbell: Option<fabric::shm::Doorbell>,
    least: Duration,
    helps: bool,
}

impl Engine {
    /// For a thread that deals with datagrams while the program computes for long, if `helps`, and rings for a process that sleeps on shared memory. `None`
    /// where there is no network.
    pub fn attendant(&self, helps: bool) -> Option<Attendant> {
        let far = self.far.as_ref()?;
        let least = if self.oversubscribed() { TICK_CROWDED } else { TICK };
        Some(Attendant { signs: far.signs.clone(), watch: far.watch.clone(), doorbell: self.shm.as_ref().map(fabric::shm::Shm::doorbell), least, helps })
    }

    /// `thread` has been made for that, and looks at once when it gets to run: messages may wait for it from now on.
    pub fn attended(&mut self, thread: std::thread::Thread, helps: bool) {
        let allowed = helps && !self.oversubscribed();
        if let Some(far) = &mut self.far {
            (far.thread, far.held.allowed) = (Some(thread), allowed);
        }
    }
}

/// What the network's thread does. It touches the engine only while nobody else has looked at the network for a while. Never returns.
pub fn attend(cell: &crate::Cell<Engine>, attendant: Attendant) {
    let Attendant { signs, watch, doorbell, least, helps } = attendant;
    let (mut seen, mut tick, mut holds) = (0, least, 0);
    loop {
        match (signs.doing.load(Ordering::Acquire), &doorbell) {
            (ON_DOORBELL, Some(doorbell)) => {
                if signs.sleep(DEAF, &mut holds) {
                    watch.doze(DOZE_NS);
                }
                if signs.doing.load(Ordering::Acquire) == ON_DOORBELL {
                    doorbell.ring();
                    // It looks at the sockets before it sleeps again.
                    std::thread::park_timeout(TICK);
                }
                continue;
            }
            (AWAKE, _) if helps => {}
            _ => {
                std::thread::park_timeout(if signs.sleep(AWAY, &mut holds) { TICK_MAX } else { least });
                continue;
            }
        }
        let looks = signs.looks.load(Ordering::Relaxed);
        if looks != seen {
            // Somebody looks; less and less often while that goes on and no messages wait in between.
            seen = looks;
            if !signs.sleep(if tick > least { AWAY } else { NEAR }, &mut holds) {
                tick = least;
            }
            std::thread::park_timeout(tick);
            tick = (2 * tick).min(TICK_MAX);
            continue;
        }
        tick = least;
        let due = {
            let mut engine = cell.lock();
            // A fault is for the program to hear of.
            if engine.poll_far().is_err() {
                return;
            }
            let _ = engine.progress();
            // Nothing waits now, and nothing will while this thread does not look.
            signs.sleep(DEAF, &mut holds);
            engine.far_sleep().and_then(|(_, due)| due)
        };
        seen = signs.looks.load(Ordering::Relaxed);
        watch.doze(due.map_or(DOZE_NS, |due| (due.as_nanos() as u64).clamp(100_000, DOZE_NS)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proto::wire::Context;

    #[test]
    fn envelopes_come_back() {
        let envelope = Envelope { context: Context::new(3, 5).unwrap(), source: 7, tag: -2 };
        for words in [&[][..], &[1], &[1, 2, 3, 4, 5, u64::MAX]] {
            let (bytes, length) = envelope_of(wire::header(Kind::Eager, envelope), words);
            let (kind, read, after, count) = read_envelope(&bytes[..length]).unwrap();
            assert_eq!((kind, read, &after[..count]), (Kind::Eager, envelope, words));
        }
    }

    #[test]
    fn envelopes_of_others_are_refused() {
        let (bytes, length) = envelope_of(wire::header(Kind::Eager, Envelope { context: Context::from_raw(1), source: 0, tag: 0 }), &[9]);
        assert!(read_envelope(&bytes[..length - 1]).is_none(), "not whole words");
        assert!(read_envelope(&bytes[..8]).is_none(), "too short");
        assert!(read_envelope(&[bytes.as_slice(), &[0; 8]].concat()).is_none(), "too long");
        assert!(read_envelope(&[0xff; 16]).is_none(), "no kind");
    }

    fn held() -> Held {
        Held { allowed: true, ..Held::default() }
    }

    #[test]
    fn messages_wait_for_so_many_so_much_and_so_long() {
        assert!(!held().add(8, false, 0), "nothing is under way");
        assert!(!Held::default().add(8, true, 0), "nobody would let it leave");
        let mut many = held();
        assert_eq!((0..100).take_while(|_| many.add(8, true, 5)).count(), HELD_MAX as usize - 1);
        many.end(5);
        assert!(many.add(8, true, 6), "the next ones wait again");
        let mut much = held();
        assert_eq!((0..100).take_while(|_| much.add(1000, true, 5)).count(), HELD_BYTES_MAX / 1000);
        let mut long = held();
        assert!(long.add(8, true, 5) && long.add(8, true, 4 + HELD_NS) && !long.add(8, true, 5 + HELD_NS));
    }

    #[test]
    fn what_waits_in_vain_waits_no_more() {
        let mut one = held();
        let mut wait = |for_ns| {
            let waits = one.add(8, true, 0);
            one.end(for_ns);
            waits
        };
        assert!(wait(LATE_NS + 1));
        (0..LATE_WEIGHT).for_each(|_| assert!(wait(LATE_NS)));
        assert!(wait(LATE_NS + 1), "the first was long ago");
        assert!(wait(LATE_NS + 1));
        (0..AT_ONCE).for_each(|_| assert!(!wait(LATE_NS + 1)));
        assert!(wait(0), "it is tried again");
    }

    #[test]
    fn copies_are_counted() {
        let mut copies = Copies::default();
        let keep = |copies: &mut Copies, bytes| copies.keep(|copy| copy.resize(bytes, 1));
        let (a, b) = (keep(&mut copies, 100), keep(&mut copies, 50));
        assert_eq!(copies.bytes, 150);
        copies.drop(a);
        assert_eq!((copies.bytes, keep(&mut copies, 7)), (50, a));
        copies.drop(b);
        assert_eq!((copies.bytes, keep(&mut copies, 3)), (7, b));
        assert_eq!(copies.all[b as u32 as usize], [1; 3], "nothing of the last one");
    }

    #[test]
    fn messages_wait_before_the_thread_has_run() {
        let signs = Signs::default();
        assert!(signs.hold(None));
        signs.sleep(DEAF, &mut 0);
        assert!(!signs.hold(None), "it would not hear of them");
    }
}
