//! RemotePeers peers as a transport: active messages, gets and puts over reliable datagrams ([`crate::reliable`]).
//!
//! An active message is a header of two words, up to six words, and a body. A short body is copied, so that its send is complete at once. A longer
//! one belongs to the transport until [`Events::complete`]: the receiver gets it ([`RemotePeers::get`]) when it is matched, or has offered a window for
//! it before ([`RemotePeers::offer`]), into which the sender puts it ([`RemotePeers::put`]). Messages of one peer arrive in the order in which they were sent.

mod coalescing;
mod copies;
mod network_thread;

pub use network_thread::{NetworkThread, run};
pub use proto::p2p::{Header, Window};
pub use proto::reliability::Refused;

use crate::reliable::{JobKey, NOBODY, Program, Protection, Sink, Watch};
use crate::{Error, Network};
use coalescing::Coalescing;
use copies::Copies;
use network_thread::{AWAKE, ON_DOORBELL, ON_SOCKETS, Status};
use proto::p2p::{self, Network as _};
use proto::reliability::wire::Run;
use proto::reliability::{Begun, Delivery, Failure, PeerId, Slice};
use std::cell::RefCell;
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// Says where a process listens (its card), and the name of its host. The flag: whether it may wait for the launcher; where not, it may fail.
pub type Cards = Box<dyn FnMut(u32, bool) -> Result<(String, String), String> + Send>;

/// Copies of short bodies under way, bytes at most; past that, sends wait for their acknowledgement as long ones do.
const COPIES_BYTES_MAX: usize = 8 << 20;
/// Looks at shared memory for each look at the network, while nothing is under way there.
const LOOKS_EACH: u32 = 16;
/// A message up to so many bytes fits in one datagram.
const LONE_BYTES_MAX: usize = 512;

/// What a peer has sent, in its order.
#[derive(Clone, Copy, Debug)]
pub enum Arrived<'a> {
    /// A whole message. [`RemotePeers::release`] says when its memory is free. `header` is `None` where it is none.
    Message { header: Option<Header>, body: &'a [u8] },
    /// As [`Arrived::Message`] of one that [`Events::begin`] gave a place, where it is now.
    Placed { header: Option<Header>, receive: u64, bytes: u64 },
    /// A message whose body waits at its sender: [`RemotePeers::get`] fetches it, [`RemotePeers::decline`] does not.
    Waiting { header: Option<Header>, transfer: u32, bytes: u64 },
    /// The peer has offered a window.
    Offer { header: Option<Header>, window: Window },
    /// The peer puts `bytes` into the window that was offered for `receive`.
    Put { header: Option<Header>, receive: u64, bytes: u64 },
}

/// The owner's memory, and what it is told.
///
/// # Safety
/// What [`Events::gather`] gives and [`Events::place`] is told must be as [`Program`] says.
pub unsafe trait Events {
    /// As [`Program::gather`], of a body that was given to [`RemotePeers::send`] or [`RemotePeers::put`].
    fn gather(&self, slice: &Slice, out: &mut Sink);
    /// As [`Program::place`].
    fn place(&mut self, receive: u64, offset_bytes: u64, payload: &[u8], check: &dyn Fn(&[u8]) -> bool) -> bool;
    /// As [`Program::place_run`].
    fn place_run(&mut self, receive: u64, offset_bytes: u64, run: &Run) -> bool;
    /// As [`Outside::begin`](reliability::Outside::begin).
    fn begin(&mut self, peer: u32, header: Option<Header>, bytes: u64) -> Option<Begun>;
    /// Whether a [`Arrived::Put`] was taken; of no meaning for others.
    fn arrived(&mut self, peer: u32, arrived: Arrived) -> bool;
    /// The body of `send` may be overwritten. `ended_well`: the peer has it.
    fn complete(&mut self, send: u64, ended_well: bool);
    /// All bytes of `receive` are in place, or its peer has failed. Whether it was under way; a window that nothing came to is not.
    fn received(&mut self, receive: u64, ended_well: bool) -> bool;
    /// As [`Program::body`](crate::reliable::Program::body), of a body that was given to [`RemotePeers::send`].
    fn body(&self, send: u64) -> Option<*const u8>;
    /// As [`Program::room`](crate::reliable::Program::room).
    fn room(&mut self, receive: u64, bytes: u64) -> Option<*mut u8>;
    /// A peer that runs on `host` has failed; `why`, where the transport knows. The bodies of the sends `in_use` are still being read: each ends with [`Events::complete`].
    fn peer_failed(&mut self, peer: u32, in_use: &[u64], host: &str, why: Option<&str>);
}

/// The processes that share no memory with this one, all through one endpoint.
pub struct RemotePeers {
    node: Network,
    watch: Arc<Watch>,
    cards: Cards,
    /// Per process: index into `hosts` plus one, or 0 until its card has been fetched.
    connected: Vec<u32>,
    /// Card and host of each process of another job, from number `processes` on.
    foreign: Vec<(String, String)>,
    processes: u32,
    hosts: Vec<String>,
    host_numbers: HashMap<String, u32>,
    copies: Copies,
    /// Sends that are not acknowledged, and receives that are not whole.
    open: u64,
    coalescing: Coalescing,
    looks: u32,
    status: Arc<Status>,
    /// The network's thread, once there is one.
    thread: Option<std::thread::Thread>,
    /// Peers whose failure matters although nothing is under way with them, ascending; and to how many that wait.
    watched: Vec<u32>,
    watchers: u32,
}

/// What the reliability layer sees of the program: the copies are this transport's, all other memory is the owner's.
struct Joined<'a, E> {
    events: &'a mut E,
    copies: &'a mut Copies,
    cards: &'a mut Cards,
    foreign: &'a [(String, String)],
    processes: u32,
    connected: &'a [u32],
    hosts: &'a [String],
    open: &'a mut u64,
    /// Kept until the call of the network has returned.
    packed: RefCell<Vec<Box<[u8]>>>,
}

// SAFETY: copies keep their place until their send is complete; all else is as the owner's promise ([`Events`]) says.
unsafe impl<E: Events> Program for Joined<'_, E> {
    fn gather(&self, slice: &Slice, out: &mut Sink) {
        match Copies::is_one(slice.send) {
            true => match self.copies.part(slice) {
                // SAFETY: a copy keeps its place until its send is complete.
                Some((start, bytes)) => unsafe { out.push(start, bytes) },
                None => {
                    // Nobody needs the bytes of a send that is complete.
                    let zeros = vec![0; slice.length_bytes as usize].into_boxed_slice();
                    // SAFETY: kept until the call of the network has returned.
                    unsafe { out.push_passing(zeros.as_ptr(), zeros.len()) };
                    self.packed.borrow_mut().push(zeros);
                }
            },
            false => self.events.gather(slice, out),
        }
    }

    fn place(&mut self, receive: u64, offset_bytes: u64, payload: &[u8], check: &dyn Fn(&[u8]) -> bool) -> bool {
        self.events.place(receive, offset_bytes, payload, check)
    }

    fn place_run(&mut self, receive: u64, offset_bytes: u64, run: &Run) -> bool {
        self.events.place_run(receive, offset_bytes, run)
    }

    fn begin(&mut self, peer: PeerId, envelope: &[u8], bytes: u64) -> Option<Begun> {
        let begun = self.events.begin(peer, Header::parse(envelope), bytes);
        *self.open += begun.is_some() as u64;
        begun
    }

    fn deliver(&mut self, peer: PeerId, delivery: Delivery) {
        let arrived = match delivery {
            Delivery::Eager { envelope, payload } => Arrived::Message { header: Header::parse(envelope), body: payload },
            Delivery::Placed { envelope, receive, bytes } => Arrived::Placed { header: Header::parse(envelope), receive, bytes },
            Delivery::Request { envelope, transfer, bytes } => Arrived::Waiting { header: Header::parse(envelope), transfer, bytes },
            Delivery::Offer { envelope, window, granted_bytes, capacity_bytes } => {
                Arrived::Offer { header: Header::parse(envelope), window: Window { number: window, granted_bytes, capacity_bytes } }
            }
            Delivery::Push { envelope, receive, bytes } => Arrived::Put { header: Header::parse(envelope), receive, bytes },
        };
        let taken = self.events.arrived(peer, arrived);
        *self.open += (taken && matches!(arrived, Arrived::Put { .. })) as u64;
        *self.open -= matches!(arrived, Arrived::Placed { .. }) as u64;
    }

    fn complete(&mut self, send: u64, result: Result<(), Failure>) {
        if send == NOBODY {
            return;
        }
        *self.open -= 1;
        match Copies::is_one(send) {
            true => self.copies.drop(send),
            false => self.events.complete(send, result.is_ok()),
        }
    }

    fn received(&mut self, receive: u64, result: Result<(), Failure>) {
        *self.open -= self.events.received(receive, result.is_ok()) as u64;
    }

    fn peer_failed(&mut self, peer: PeerId, in_use: &[u64]) {
        let bodies: Vec<u64> = in_use.iter().copied().filter(|&send| !Copies::is_one(send)).collect();
        self.events.peer_failed(peer, &bodies, host_of(self.connected, self.hosts, peer), None);
    }

    fn peer_lost(&mut self, peer: PeerId, why: &str) {
        self.events.peer_failed(peer, &[], host_of(self.connected, self.hosts, peer), Some(why));
    }

    fn body(&self, send: u64) -> Option<*const u8> {
        // A copy is short, and its memory another one each time.
        if Copies::is_one(send) { None } else { self.events.body(send) }
    }

    fn room(&mut self, receive: u64, bytes: u64) -> Option<*mut u8> {
        self.events.room(receive, bytes)
    }

    fn card(&mut self, peer: PeerId) -> Option<String> {
        // The paths that are known are enough for now; and whoever waits for the launcher may be waiting for this process.
        match peer.checked_sub(self.processes) {
            Some(index) => self.foreign.get(index as usize).map(|(card, _)| card.clone()),
            None => (self.cards)(peer, false).ok().map(|(card, _)| card),
        }
    }
}

fn host_of<'a>(connected: &[u32], hosts: &'a [String], peer: u32) -> &'a str {
    let number = connected[peer as usize] as usize;
    number.checked_sub(1).and_then(|at| hosts.get(at)).map_or("unknown", String::as_str)
}

impl RemotePeers {
    /// Reaches others of `processes` through `node`; `cards` says where they listen.
    ///
    /// # Errors
    /// The system has no descriptor left for the network's event.
    pub fn new(node: Network, processes: u32, cards: Cards) -> Result<RemotePeers, Error> {
        let watch = Arc::new(node.watch()?);
        Ok(RemotePeers {
            node,
            watch,
            cards,
            connected: vec![0; processes as usize],
            foreign: Vec::new(),
            processes,
            hosts: Vec::new(),
            host_numbers: HashMap::new(),
            copies: Copies::default(),
            open: 0,
            coalescing: Coalescing::default(),
            looks: 0,
            status: Arc::default(),
            thread: None,
            watched: Vec::new(),
            watchers: 0,
        })
    }

    fn joined<'a, E>(&'a mut self, events: &'a mut E) -> (&'a mut Network, Joined<'a, E>) {
        let RemotePeers { node, copies, cards, foreign, processes, connected, hosts, open, .. } = self;
        (node, Joined { events, copies, cards, foreign, processes: *processes, connected, hosts, open, packed: RefCell::default() })
    }

    /// The program's memory, as it has been registered for the device.
    pub fn registrations(&self) -> trace::Registrations {
        self.node.counters().registrations
    }

    /// Connections that come and go.
    pub fn connections(&self) -> trace::Connections {
        self.node.counters().connections
    }

    /// As [`proto::reliability::Endpoint::leaves_whole`].
    pub fn leaves_whole(&self, process: u32, bytes: usize) -> bool {
        self.node.leaves_whole(process, bytes as u64)
    }

    /// As [`proto::reliability::Endpoint::lacks_room`].
    #[inline]
    pub fn lacks_room(&self, process: u32) -> bool {
        self.node.lacks_room(process)
    }

    /// As [`Network::send_now`].
    #[inline]
    pub fn send_now(&mut self, process: u32, header: Header, bytes: usize, write: impl FnOnce(&mut Vec<u8>)) -> bool {
        if !self.node.sends_now() {
            return false;
        }
        let (header, length) = header.to_bytes();
        self.node.send_now(process, &header[..length], bytes, write)
    }

    /// As [`Network::copied_bytes_max`].
    #[inline]
    pub fn copied_bytes_max(&self) -> usize {
        self.node.copied_bytes_max()
    }

    /// Whether something sent is unacknowledged, or a receive not whole.
    #[inline]
    pub fn is_open(&self) -> bool {
        self.open > 0
    }

    /// Nothing sent is unacknowledged, and nothing that came.
    pub fn is_quiet(&self) -> bool {
        self.open == 0 && self.node.is_quiet()
    }

    /// Learns where `process` listens, at the first message to it.
    ///
    /// # Errors
    /// [`Error::Peer`] where nobody says so.
    pub fn connect(&mut self, process: u32) -> Result<(), Error> {
        if self.connected[process as usize] > 0 {
            return Ok(());
        }
        let card = match process.checked_sub(self.processes) {
            Some(index) => self.foreign.get(index as usize).cloned().ok_or_else(|| "nobody has told of it".to_owned()),
            None => (self.cards)(process, true),
        };
        match card {
            Ok((card, host)) => {
                if self.node.connect(process, &card).is_err() {
                    return Err(Error::Peer { peer: process, why: format!("it says that it listens at {card:?}") });
                }
                let hosts = &mut self.hosts;
                self.connected[process as usize] = *self.host_numbers.entry(host).or_insert_with_key(|host| {
                    hosts.push(host.clone());
                    hosts.len() as u32
                });
                Ok(())
            }
            // The launcher does not say so now, but that process has spoken: what goes to it goes where that came from.
            Err(_) if self.node.knows(process) => Ok(()),
            Err(why) => Err(Error::Peer { peer: process, why }),
        }
    }

    /// Takes the key for what processes of other jobs send to this one.
    pub fn set_foreign_key(&mut self, key: &JobKey, protection: Protection) {
        self.node.set_foreign_key(key, protection);
    }

    /// What to tell processes of other jobs: see [`Reliable::card`](crate::reliable::Reliable::card).
    pub fn card(&self) -> String {
        self.node.card()
    }

    /// Adds process `number` of another job, which listens where `card` says, on `host`: it gets the number after those that are there. What is sent to
    /// it is sealed with `key`.
    ///
    /// # Errors
    /// [`Error::Peer`] where the card is none, or another process is the same by number and incarnation.
    pub fn add_foreign(&mut self, number: u32, card: &str, host: &str, key: &JobKey, protection: Protection) -> Result<u32, Error> {
        let process = self.connected.len() as u32;
        if !self.node.add_foreign(process, number, card, key, protection) {
            return Err(Error::Peer { peer: process, why: format!("it says that it is rank {number} of another job and listens at {card:?}") });
        }
        self.connected.push(0);
        self.foreign.push((card.to_owned(), host.to_owned()));
        self.connect(process)?;
        Ok(process)
    }

    /// Whether something that `process` was sent has not been acknowledged.
    #[inline]
    pub fn is_unanswered(&self, process: u32) -> bool {
        self.node.is_unanswered(process)
    }

    /// The program will send these bytes again and again.
    pub fn prefer(&mut self, start: *const u8, bytes: usize) {
        self.node.prefer(start, bytes);
    }

    /// Fetches the body of a message that waits, into the receive `token`; through an offered window if `window` is not 0. A peer that has failed says so
    /// at the next look.
    ///
    /// # Errors
    /// [`Refused::Full`]: later there will be room.
    pub fn get(&mut self, now_ns: u64, process: u32, transfer: u32, bytes: u64, token: u64, window: u32) -> Result<(), Refused> {
        match window {
            0 => self.node.receive(now_ns, process, transfer, bytes, token)?,
            window => self.node.adopt(now_ns, process, window, transfer, bytes)?,
        }
        self.open += 1;
        Ok(())
    }

    /// Nobody will get the message: its sender may go on.
    ///
    /// # Errors
    /// [`Refused::Full`]: later there will be room.
    pub fn decline(&mut self, now_ns: u64, process: u32, transfer: u32) -> Result<(), Refused> {
        self.node.receive(now_ns, process, transfer, 0, 0)
    }

    /// Offers a window for the receive `token` to `process`. 0 where that is not possible now.
    pub fn offer(&mut self, now_ns: u64, process: u32, header: Header, capacity_bytes: u64, token: u64) -> u32 {
        let (header, length) = header.to_bytes();
        self.node.offer(now_ns, process, &header[..length], capacity_bytes, token).unwrap_or(0)
    }

    /// Nothing comes to an offered window any more.
    pub fn withdraw(&mut self, process: u32, window: u32) {
        self.node.withdraw(process, window);
    }

    /// A window has been offered for a message that has left already: `process` may be put what it has not got.
    pub fn fill(&mut self, process: u32, token: u64, window: Window) {
        self.node.fill(process, token, window.number, window.granted_bytes, window.capacity_bytes);
    }

    /// The memory of a message is free: `bytes` of its body.
    pub fn release(&mut self, now_ns: u64, process: u32, bytes: u64) {
        self.node.release(now_ns, process, bytes);
    }

    /// Nothing is expected of `processes` any more.
    pub fn abandon<E: Events>(&mut self, now_ns: u64, processes: &[u32], events: &mut E) {
        let (node, mut joined) = self.joined(events);
        node.abandon(now_ns, processes, &mut joined);
        // Also those with which nothing had been spoken.
        processes.iter().for_each(|&process| joined.peer_failed(process, &[]));
    }

    /// Whether it is this look's turn to look at the network. `memory`: there is shared memory to look at, too, and nobody sleeps.
    #[inline]
    pub fn takes_turn(&mut self, memory: bool) -> bool {
        self.looks = self.looks.wrapping_add(1);
        !memory || self.open > 0 || self.looks.is_multiple_of(LOOKS_EACH)
    }

    /// Takes in what has come. How many datagrams.
    pub fn poll<E: Events>(&mut self, events: &mut E) -> usize {
        let looks = &self.status.looks;
        looks.store(looks.load(Ordering::Relaxed).wrapping_add(1), Ordering::Relaxed);
        let (node, mut joined) = self.joined(events);
        node.take_in(&mut joined)
    }

    /// Whether there may be something to do although nothing came.
    pub fn is_due(&self) -> bool {
        self.node.is_due()
    }

    /// Whether something that has come wants [`RemotePeers::flush`] at once.
    pub fn is_pressing(&self) -> bool {
        self.node.is_pressing()
    }

    /// Lets everything leave that may.
    pub fn flush<E: Events>(&mut self, now_ns: u64, events: &mut E) {
        self.coalescing.end(now_ns);
        let (node, mut joined) = self.joined(events);
        node.flush(now_ns, &mut joined);
    }

    /// As [`RemotePeers::flush`] after a single message of `bytes`, when no others wait: a short one leaves before its accounts are settled.
    pub fn flush_one<E: Events>(&mut self, now_ns: u64, bytes: usize, events: &mut E) {
        self.coalescing.none_waits();
        if bytes > LONE_BYTES_MAX {
            return self.flush(now_ns, events);
        }
        let (node, mut joined) = self.joined(events);
        node.flush_one(now_ns, &mut joined);
    }

    /// No messages wait to share datagrams.
    pub fn none_waits(&mut self) {
        self.coalescing.none_waits();
    }

    /// Whether messages of `bytes` that were just sent may wait for more of their kind, so that they share a datagram. `unanswered`: something was under way to
    /// their peer before; `first`: no others wait already.
    pub fn may_wait(&mut self, bytes: usize, unanswered: bool, first: bool, now_ns: u64) -> bool {
        self.coalescing.add(bytes, unanswered, now_ns) && (!first || self.status.hold(self.thread.as_ref()))
    }

    /// It matters from now on whether `processes` live, too, although nothing is under way with them. `begins`: one more waits for that, who calls
    /// [`RemotePeers::unwatch`] later.
    pub fn watch(&mut self, mut processes: Vec<u32>, begins: bool) {
        self.watchers += begins as u32;
        processes.sort_unstable();
        processes.dedup();
        processes.retain(|process| self.watched.binary_search(process).is_err());
        self.set_watched(&processes, true);
        self.watched.append(&mut processes);
        self.watched.sort_unstable();
    }

    /// It does not matter any more to one of those that wait. While others do, nothing changes: a peer that is forgotten and watched anew would have all of
    /// its time again.
    pub fn unwatch(&mut self) {
        self.watchers -= 1;
        if self.watchers == 0 {
            let watched = std::mem::take(&mut self.watched);
            self.set_watched(&watched, false);
        }
    }

    fn set_watched(&mut self, processes: &[u32], on: bool) {
        let now_ns = self.now_ns();
        for process in processes {
            // One that has failed says so at the next look.
            let _ = self.node.watch_peer(now_ns, *process, on);
        }
    }

    /// How to sleep until something comes, for at most so long.
    pub fn sleep(&mut self) -> (Arc<Watch>, Option<Duration>) {
        if !self.node.arm() {
            return (self.watch.clone(), Some(Duration::ZERO));
        }
        let due = self.node.deadline_ns().map(|at_ns| Duration::from_nanos(at_ns.saturating_sub(self.node.now_ns())));
        (self.watch.clone(), due)
    }

    /// Says how the owner sleeps, and wakes the network's thread where it has to ring the doorbell of shared memory (`memory`).
    pub fn set_asleep(&self, asleep: bool, memory: bool) {
        let doing = match (asleep, memory) {
            (false, _) => AWAKE,
            (true, false) => ON_SOCKETS,
            (true, true) => ON_DOORBELL,
        };
        self.status.doing.store(doing, Ordering::Release);
        if doing == ON_DOORBELL
            && let Some(thread) = &self.thread
        {
            thread.unpark();
        }
    }

    /// Wakes a thread of this process that sleeps on the sockets.
    pub fn wake(&self) {
        self.watch.doorbell().ring();
    }

    /// For a thread that deals with datagrams while the program computes for long, if `helps`, and rings `doorbell` for a process that sleeps on shared memory.
    /// `crowded`: more ranks than cores.
    pub fn network_thread(&self, doorbell: Option<crate::shm::Doorbell>, crowded: bool, helps: bool) -> NetworkThread {
        NetworkThread::new(self.status.clone(), self.watch.clone(), doorbell, crowded, helps)
    }

    /// `thread` executes [`run`] from now on; `coalesces`: messages may wait for it.
    pub fn started(&mut self, thread: std::thread::Thread, coalesces: bool) {
        self.thread = Some(thread);
        self.coalescing.allow(coalesces);
    }
}

impl p2p::Network for RemotePeers {
    #[inline]
    fn short_bytes_max(&self) -> usize {
        self.node.config().eager_bytes_max as usize
    }

    #[inline]
    fn has_room(&self, bytes: usize) -> bool {
        self.copies.bytes() + bytes <= COPIES_BYTES_MAX
    }

    #[inline]
    fn now_ns(&self) -> u64 {
        self.node.now_ns()
    }

    fn known(&self) -> usize {
        self.node.known()
    }

    fn knows(&self, process: u32) -> bool {
        self.connected[process as usize] > 0 || self.node.knows(process)
    }

    fn send_header(&mut self, now_ns: u64, process: u32, header: Header) -> Result<(), Refused> {
        let (bytes, length) = header.to_bytes();
        self.node.send(now_ns, process, &bytes[..length], NOBODY, 0, false)
    }

    fn send_copy(&mut self, now_ns: u64, process: u32, header: Header, bytes: usize, write: impl FnOnce(&mut Vec<u8>)) -> Result<(), Refused> {
        let (header, length) = header.to_bytes();
        let copy = self.copies.keep(bytes, write);
        let sent = self.node.send(now_ns, process, &header[..length], copy, bytes as u64, false);
        match sent {
            Ok(()) => self.open += 1,
            Err(_) => self.copies.drop(copy),
        }
        sent
    }

    fn send(&mut self, now_ns: u64, process: u32, header: Header, token: u64, bytes: u64, waits: bool) -> Result<(), Refused> {
        let (header, length) = header.to_bytes();
        self.node.send(now_ns, process, &header[..length], token, bytes, waits)?;
        self.open += 1;
        Ok(())
    }

    fn put(&mut self, now_ns: u64, process: u32, header: Header, window: Window, token: u64, bytes: u64) -> Result<(), Refused> {
        let (header, length) = header.to_bytes();
        self.node.push(now_ns, process, &header[..length], window.number, window.granted_bytes, token, bytes)?;
        self.open += 1;
        Ok(())
    }

    fn accounts(&self) -> u64 {
        self.node.accounts()
    }

    fn widen(&mut self, process: u32) {
        let now_ns = self.now_ns();
        self.node.widen(now_ns, process);
    }
}
