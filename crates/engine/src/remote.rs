//! Peers that share no memory with this process: carries out what the machine asks of [`fabric::remote`], and tells it what that says.

use crate::buffer::Body;
use crate::state::Machine;
use crate::{Buffer, Engine, Fault};
use fabric::reliable::{Sink, Watch};
use fabric::remote::{Arrived, Cards, Events, Header, NetworkThread, Refused, RemotePeers};
use fabric::{Network, remote};
use proto::p2p::{Network as _, RequestId, Target};
use proto::reliability::wire::Run;
use proto::reliability::{Begun, Slice};
use proto::rendezvous::Rtr;
use proto::wire::{self, Envelope, Kind};
use std::cell::RefCell;
use std::sync::Arc;
use std::time::Duration;

/// What the machine hears of the network.
struct Upcalls<'a> {
    machine: &'a mut Machine,
    /// Bytes that do not lie in one piece, packed for the datagrams that are about to leave.
    packed: RefCell<Vec<Box<[u8]>>>,
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
        match self.machine.buffer_of(RequestId::from_raw(slice.send)) {
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
        let Some(buffer) = self.machine.room(receive, offset_bytes, payload.len() as u64) else { return false };
        buffer.put_checked(offset_bytes as usize, payload, check)
    }

    fn place_run(&mut self, receive: u64, offset_bytes: u64, run: &Run) -> bool {
        let Some(buffer) = self.machine.room(receive, offset_bytes, run.payload_bytes() as u64) else { return false };
        run.rest(offset_bytes).all(|(offset_bytes, payload)| buffer.put_checked(offset_bytes as usize, payload, &|placed| placed == payload))
    }

    fn begin(&mut self, peer: u32, header: Option<Header>, bytes: u64) -> Option<Begun> {
        self.machine.begin_message(peer, header, bytes)
    }

    fn arrived(&mut self, peer: u32, arrived: Arrived) -> bool {
        let done = match arrived {
            Arrived::Message { header, body } => self.machine.arrive_message(peer, header, &Body::of([(body.as_ptr(), body.len()), Body::NOTHING])),
            Arrived::Placed { header, receive, bytes } => self.machine.end_message(peer, header, RequestId::from_raw(receive), bytes),
            Arrived::Waiting { header, transfer, bytes } => self.machine.arrive_waiting(peer, header, transfer, bytes),
            Arrived::Offer { header, window } => self.machine.arrive_window(peer, header, window),
            Arrived::Put { header, receive, bytes } => return self.machine.arrive_put(peer, header, RequestId::from_raw(receive), bytes),
        };
        if let Err(fault) = done {
            self.machine.break_down(fault);
        }
        true
    }

    fn complete(&mut self, send: u64, ended_well: bool) {
        self.machine.sent(send, ended_well);
    }

    fn received(&mut self, receive: u64, ended_well: bool) -> bool {
        self.machine.fetched_in_datagrams(receive, ended_well)
    }

    fn body(&self, send: u64) -> Option<*const u8> {
        Some(self.machine.buffer_of(RequestId::from_raw(send))?.address()?.cast_const())
    }

    fn room(&mut self, receive: u64, bytes: u64) -> Option<*mut u8> {
        self.machine.room(receive, 0, bytes)?.address()
    }

    fn peer_failed(&mut self, peer: u32, in_use: &[u64], host: &str, why: Option<&str>) {
        let timeout_ms = self.machine.worker.config.peer_timeout_ms;
        let silence = || format!("has not answered on any network for {timeout_ms} ms");
        let why = why.map_or_else(silence, |why| format!("cannot be reached any more: {why}"));
        self.machine.datagram_peer_failed(peer, in_use, format!("it runs on host {host} and {why}"));
    }
}

impl Engine {
    /// From now on the processes that are not in `local` (ascending) are reached through `node`; `cards` says where they listen.
    ///
    /// # Errors
    /// The system has no descriptor left for the network's event.
    pub fn reach_remote(&mut self, node: Network, local: &[u32], cards: Cards) -> Result<(), fabric::Error> {
        let remote = RemotePeers::new(node, self.config.processes, cards)?;
        (**self).reach_remote(Box::new(remote), local);
        Ok(())
    }

    /// Learns where every remote process listens: whoever started them may not say so later.
    pub(crate) fn connect_all(&mut self) -> Result<(), Fault> {
        let machine = &mut self.0;
        let Some(remote) = &mut machine.network else { return Ok(()) };
        let mut processes = (0..).zip(&machine.peers).filter(|(_, peer)| peer.remote).map(|(process, _)| process);
        Ok(processes.try_for_each(|process| remote.connect(process))?)
    }

    /// The program will send from `buffer` to `process` again and again (a persistent or partitioned request): a device may take the bytes from there from
    /// the first time on.
    #[inline(always)]
    pub fn prefer(&mut self, process: u32, buffer: &Buffer) {
        if self.network.is_some()
            && let Some(start) = buffer.address()
        {
            self.prefer_bytes(process, start, buffer.len());
        }
    }

    fn prefer_bytes(&mut self, process: u32, start: *const u8, bytes: usize) {
        let machine = &mut self.0;
        if machine.peers[process as usize].remote
            && let Some(remote) = &mut machine.network
        {
            remote.prefer(start, bytes);
        }
    }

    /// Whether some process is reached through the network only.
    pub fn networked(&self) -> bool {
        self.network.is_some()
    }

    /// Whether a message of `bytes` to `process` would end by itself, also where nobody ever receives it.
    pub fn leaves_whole(&self, process: u32, bytes: usize) -> bool {
        !self.peers[process as usize].remote || self.network.as_ref().is_some_and(|remote| remote.leaves_whole(process, bytes))
    }

    /// The program's memory, as it has been registered for the network's device.
    pub fn registrations(&self) -> trace::Registrations {
        self.network.as_ref().map(|remote| remote.registrations()).unwrap_or_default()
    }

    /// Connections of the network's device that come and go.
    pub fn connections(&self) -> trace::Connections {
        self.network.as_ref().map(|remote| remote.connections()).unwrap_or_default()
    }

    /// Nothing sent is unacknowledged, and nothing that came.
    pub(crate) fn remote_quiet(&self) -> bool {
        self.network.as_ref().is_none_or(|remote| remote.is_quiet())
    }

    pub(crate) fn remote_open(&self) -> bool {
        self.network.as_ref().is_some_and(|remote| remote.is_open())
    }

    /// What `act` sends does not wait for others.
    #[inline]
    pub fn without_coalescing<T>(&mut self, act: impl FnOnce(&mut Engine) -> T) -> T {
        let before = std::mem::replace(&mut self.prompt, true);
        let result = act(self);
        self.prompt = before;
        result
    }

    /// As [`Engine::without_coalescing`], of a send that the program waits for before it does anything else: it may count on its leaving at once.
    #[inline]
    pub fn blocking<T>(&mut self, act: impl FnOnce(&mut Engine) -> T) -> T {
        self.sends_blocking = true;
        let result = self.without_coalescing(act);
        self.sends_blocking = false;
        result
    }

    /// As [`Engine::send`] of a part of a collective, of which the next one waits for the end: to a remote peer what is not long is copied, rather than read
    /// until it is acknowledged. Short ones may wait for others all the same.
    #[inline]
    pub fn send_part(&mut self, to: &Target, buffer: &Buffer) -> Result<Option<RequestId>, Fault> {
        if buffer.len() <= proto::reliability::COPIED_BYTES_MAX as usize {
            return self.send(to, buffer, crate::Mode::Standard);
        }
        self.without_coalescing(|engine| engine.send(to, buffer, crate::Mode::Standard))
    }

    /// Lets short messages leave that have waited for others: the program waits for something, or may compute for long.
    #[inline]
    pub fn flush_coalesced(&mut self) {
        if self.held {
            hurry(self);
        }
    }

    /// How to sleep until something comes from the network, for at most so long. `None`: it does not take part.
    pub(crate) fn sleep_remote(&mut self) -> Option<(Arc<Watch>, Option<Duration>)> {
        self.network.as_mut().map(|remote| remote.sleep())
    }

    /// Says how this process sleeps.
    pub(crate) fn set_asleep_remote(&self, asleep: bool) {
        if let Some(remote) = &self.network {
            remote.set_asleep(asleep, self.memory.is_some());
        }
    }

    /// For a thread that deals with datagrams while the program computes for long, if `helps`, and rings for a process that sleeps on shared memory. `None`
    /// where there is no network.
    pub fn network_thread(&self, helps: bool) -> Option<NetworkThread> {
        let doorbell = self.memory.as_ref().map(fabric::local::LocalPeers::doorbell);
        self.network.as_ref().map(|remote| remote.network_thread(doorbell, self.oversubscribed(), helps))
    }

    /// `thread` has been made for that, and looks at once when it gets to run: messages may wait for it from now on.
    pub fn network_thread_started(&mut self, thread: std::thread::Thread, helps: bool) {
        let coalesces = helps && !self.oversubscribed();
        if let Some(remote) = &mut self.network {
            remote.started(thread, coalesces);
        }
    }
}

/// Does something with the transport and with what hears of it.
#[inline]
fn with<T>(machine: &mut Machine, act: impl FnOnce(&mut RemotePeers, &mut Upcalls) -> T) -> Option<T> {
    // From within an arrival it is not there: what is wanted then happens after that.
    let mut remote = machine.network.take()?;
    let done = act(&mut remote, &mut Upcalls { machine, packed: RefCell::default() });
    machine.network = Some(remote);
    Some(done)
}

/// Looks at the network, where it is this look's turn.
#[inline]
pub(crate) fn look(machine: &mut Machine) -> Result<bool, Fault> {
    let Some(remote) = &mut machine.network else { return Ok(false) };
    match remote.takes_turn(machine.memory.is_some() && machine.worker.asleep == 0) {
        true => poll(machine),
        false => Ok(false),
    }
}

#[inline(never)]
fn poll(machine: &mut Machine) -> Result<bool, Fault> {
    if let Some(fault) = &machine.fault {
        return Err(fault.clone());
    }
    let came = with(machine, |remote, upcalls| {
        let came = remote.poll(upcalls);
        let machine = &mut *upcalls.machine;
        // Of what has just come, what can wait is done at the next look: the program may have waited for it.
        let flushes = match came {
            0 => machine.held || !machine.actions.is_empty() || remote.is_due(),
            _ => machine.held || machine.worker.asleep > 0 || !machine.actions.fetches.is_empty() || machine.fault.is_some() || remote.is_pressing(),
        };
        if flushes {
            upcalls.flush_all(remote);
        }
        came
    });
    if machine.has_failures() {
        machine.spread();
    }
    match &machine.fault {
        Some(fault) => Err(fault.clone()),
        None => Ok(came.is_some_and(|came| came > 0)),
    }
}

/// As a look at the network, without looking for what has come.
#[inline(never)]
pub(crate) fn hurry(machine: &mut Machine) {
    with(machine, |remote, upcalls| upcalls.flush_all(remote));
}

/// Sends a copy of a short message, if nothing waits before it and there is room for the copy.
pub(crate) fn send_copy(machine: &mut Machine, to: &Target, buffer: &Buffer) -> Result<bool, Fault> {
    let bytes = buffer.len();
    if machine.is_listed(to.process) {
        return Ok(false);
    }
    // A program that sends again and again, and never waits, hears in no other way that its receiver has made room.
    if machine.network.as_ref().is_some_and(|remote| remote.lacks_room(to.process)) {
        poll(machine)?;
    }
    let sent = with(machine, |remote, upcalls| {
        // Who does not wait for the end of the send does without the copy.
        let longest = if upcalls.machine.prompt { remote.short_bytes_max() } else { remote.short_bytes_max().min(remote.copied_bytes_max()) };
        if bytes > longest || !remote.has_room(bytes) {
            return Ok(false);
        }
        remote.connect(to.process)?;
        let header = Header::new(wire::header(Kind::Eager, to.envelope()), &[]);
        if remote.send_now(to.process, header, bytes, |body| buffer.append_to(body)) {
            return Ok(true);
        }
        let (now_ns, unanswered) = (remote.now_ns(), remote.is_unanswered(to.process));
        match remote.send_copy(now_ns, to.process, header, bytes, |copy| buffer.append_to(copy)) {
            Ok(()) => {}
            Err(Refused::Full) => return Ok(false),
            Err(_) => return Err(upcalls.machine.reason(to.process)),
        }
        if !may_wait(upcalls.machine, remote, bytes, unanswered, now_ns) {
            match upcalls.machine.held {
                true => upcalls.flush(remote, now_ns),
                false => remote.flush_one(now_ns, bytes, upcalls),
            }
        }
        Ok(true)
    });
    let sent = sent.unwrap_or(Ok(false));
    if sent == Ok(true) {
        machine.count_copy(to);
    }
    sent
}

/// Sends what waits for a remote peer: controls first, then messages in order.
pub(crate) fn flush_process(machine: &mut Machine, process: u32) -> Result<bool, Fault> {
    let moved_bytes = with(machine, |remote, upcalls| {
        let unanswered = remote.is_unanswered(process);
        let moved_bytes = match remote.connect(process) {
            Ok(()) => upcalls.machine.queue_datagrams(remote, process),
            Err(why) => {
                upcalls.machine.lose_peer(process, why.into());
                0
            }
        };
        let now_ns = remote.now_ns();
        if moved_bytes == 0 || !may_wait(upcalls.machine, remote, moved_bytes, unanswered, now_ns) {
            upcalls.flush(remote, now_ns);
        }
        moved_bytes
    });
    Ok(moved_bytes.is_some_and(|bytes| bytes > 0))
}

/// Whether what was just requested may wait for more of its kind, so that they share a datagram.
fn may_wait(machine: &mut Machine, remote: &mut RemotePeers, bytes: usize, unanswered: bool, now_ns: u64) -> bool {
    let waits = !machine.prompt && machine.worker.asleep == 0 && remote.may_wait(bytes, unanswered, !machine.held, now_ns);
    machine.held |= waits;
    waits
}

/// Offers a window for a receive to its remote sender, and says what for. 0 where that is not possible now.
pub(crate) fn offer_window(machine: &mut Machine, process: u32, rtr: Rtr, envelope: Envelope) -> u32 {
    let offered = with(machine, |remote, upcalls| {
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

/// A remote peer that fails matters from now on, also one with which nothing is under way: `awaited`, if that is one, else all that this process has spoken
/// with, or they with it. `begins` as in [`RemotePeers::watch`]. Whether there is a network.
pub(crate) fn watch(machine: &mut Machine, awaited: Option<u32>, begins: bool) -> bool {
    let awaited = awaited.filter(|process| machine.peers[*process as usize].remote);
    let mut watched = Vec::new();
    for process in awaited.map_or_else(|| machine.awaited_remote(), |process| vec![process]) {
        let Some(remote) = &mut machine.network else { return false };
        match remote.connect(process) {
            Ok(()) => watched.push(process),
            Err(why) => machine.lose_peer(process, why.into()),
        }
    }
    let linked: Vec<u32> = machine.linked().filter(|_| awaited.is_none()).collect();
    let Some(remote) = &mut machine.network else { return false };
    if awaited.is_none() {
        watched.extend((0..machine.config.processes).filter(|&process| remote.knows(process)).chain(linked));
    }
    remote.watch(watched, begins);
    true
}

/// Rings for threads of this process that sleep on the network's descriptors.
pub(crate) fn wake(machine: &Machine) {
    if let Some(remote) = &machine.network {
        remote.wake();
    }
}

/// One of those that have begun to [`watch`] waits no more.
pub(crate) fn unwatch(machine: &mut Machine) {
    if let Some(remote) = &mut machine.network {
        remote.unwatch();
    }
}

impl Upcalls<'_> {
    /// Asks the transport for what arrivals have given rise to, and lets leave what may.
    fn flush_all(&mut self, remote: &mut RemotePeers) {
        let now_ns = remote.now_ns();
        let machine = &mut *self.machine;
        for (peer, bytes) in machine.actions.releases.drain(..) {
            remote.release(now_ns, peer, bytes);
        }
        for (peer, window) in machine.actions.withdrawals.drain(..) {
            remote.withdraw(peer, window);
        }
        for (peer, id, window) in machine.actions.fills.drain(..) {
            remote.fill(peer, id.to_raw(), window);
        }
        while let Some((pull, id, window)) = machine.actions.fetches.front().copied() {
            let done = match id {
                Some(id) => remote.get(now_ns, pull.peer, pull.transfer, machine.bytes_to_fetch(id), id.to_raw(), window),
                None => remote.decline(now_ns, pull.peer, pull.transfer),
            };
            // A peer that has failed says so at the next look.
            if done == Err(Refused::Full) {
                break;
            }
            machine.actions.fetches.pop_front();
        }
        if !machine.actions.abandoned.is_empty() {
            let peers: Vec<u32> = machine.actions.abandoned.iter().map(|(process, _)| *process).collect();
            remote.abandon(now_ns, &peers, self);
            self.machine.actions.abandoned.clear();
        }
        self.flush(remote, now_ns);
    }

    fn flush(&mut self, remote: &mut RemotePeers, now_ns: u64) {
        if !std::mem::take(&mut self.machine.held) {
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
        poll(&mut engine).ok()?;
        let _ = engine.progress();
        before_letting_go();
        engine.sleep_remote().map(|(_, due)| due).or(Some(None))
    });
}
