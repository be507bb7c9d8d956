//! The memory fabric: processes of one host, through memory that they share.
//!
//! Every process has one segment, an anonymous file. A sender maps the receiver's segment when it first has something to say,
//! takes a ring in it and leaves the ring's place in the directory; pairs that never talk cost eight bytes.
//! Pages are reserved before they are used.

mod abreast;
pub mod area;
pub mod copier;
#[cfg(test)]
mod hostile;
mod mapped;
pub mod requests;
pub mod ring;
mod segment;
mod shared;
mod sleep;
pub mod slots;
mod stores;
pub(crate) mod sys;
mod told;

use crate::{Body, Capabilities, Error, Fabric, Kind, Refused};
use copier::Secret;
use mapped::{Mapped, PeerMemory};
use ring::{Consumer, Long, Producer, Returns, Slot, Taken};
use segment::{ConnectionDirectory, Geometry, Header, REFUSED};
use std::ops::Range;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering, compiler_fence, fence};
use std::time::{Duration, Instant};
use sys::{Area, Mapping};

pub use segment::{COOPERATIVES, VCIS};
pub use shared::{SharedMemory, SharedName};

/// What other libraries over shared memory are built of: anonymous files, words that processes sleep on, fences, and hints to the caches.
pub mod parts {
    pub use super::sleep::{SleepWord as Waiting, arm, disarm, wake};
    pub use super::sys::{Atomics, futex_wait, futex_wake, heavy_fence, memfd, prefetch_for_store, random, register_for_fences, reserve};
}

pub use sleep::Sleepers;
pub use sys::{Area as SharedBytes, PIECES_PER_CALL, copy_brought, copy_from_end, copy_streaming, switches, yield_core};

type Sender = Producer<&'static [Slot], &'static Returns, Area>;
type Receiver = Consumer<&'static [Slot], &'static Returns, Area>;

/// Gives the segments of other processes that are talked to. It waits for them no longer than it is told: `None` says that the process has not answered
/// yet, and is to be asked about again.
pub type Resolver = Box<dyn FnMut(u32, Duration) -> Result<Option<OwnedFd>, String> + Send>;

/// What the memory fabric needs to know at the start.
pub struct Config {
    /// This process, `0..processes`.
    pub index: u32,
    /// Processes of this host in the job.
    pub processes: u32,
    /// What all rings into this process may take together when everybody talks to it, bytes.
    pub memory_bytes: u64,
    /// Off: never copy straight between processes.
    pub single_copy: bool,
    /// Off: never map memory that peers give out.
    pub map_memory: bool,
    /// How long the first need of a process's segment may wait for its answer, once for each process: [`ANSWER_WITHIN`] but in tests.
    pub answer_within: Duration,
}

struct Peer {
    mapping: Mapping,
    header: &'static Header,
    connections: ConnectionDirectory,
    fd: OwnedFd,
    sender: Option<Sender>,
    /// Where its ring lies.
    ring_at: u64,
    /// A full fence is needed between sending and looking whether the peer sleeps.
    fence: bool,
    pid: u32,
    /// Whether the trial read of its nonce succeeded; `None` before it was tried.
    readable: Option<bool>,
    /// When it last did.
    verified: Instant,
    mapped: Mapped,
}

impl Peer {
    /// Wakes it if it sleeps, after a packet was put into its ring.
    #[inline(always)]
    fn announce(&self) {
        if self.fence {
            fence(Ordering::SeqCst);
        } else {
            // The sleeper's heavy fence makes the order real.
            compiler_fence(Ordering::SeqCst);
        }
        wake(self);
    }

    /// Gives the ring twice its memory. Where there is none, or other rings in that segment have grown by all that they may, it stays as it is.
    #[cold]
    fn grow(&mut self, geometry: &Geometry) {
        let Some(sender) = &mut self.sender else { return };
        let bulk = sender.bulk_bytes()..sender.grown_bytes();
        let (more, grown) = (bulk.len() as u64, &self.header.grown);
        let allowed = |grown: u64| grown.checked_add(more).filter(|all| *all <= geometry.growth_bytes);
        if grown.fetch_update(Ordering::Relaxed, Ordering::Relaxed, allowed).is_err() {
            return sender.stay();
        }
        match reserve_growth(Some(self.header), self.fd.as_fd(), geometry, self.ring_at, &bulk, "the growth of a ring in a peer's segment") {
            Ok(()) => {
                sender.grow();
                map_ring_ahead(geometry, &self.mapping, self.ring_at, &bulk);
            }
            Err(_) => {
                grown.fetch_sub(more, Ordering::Relaxed);
                sender.stay();
            }
        }
    }

    /// Whether the process of that number has this peer's secret where it belongs.
    fn is_itself(&self) -> bool {
        Secret::of(self.header, self.pid).is_there()
    }
}

struct Incoming {
    peer: u32,
    ring_at: u64,
    /// Bytes beside its slots that were seen to have pages.
    reserved_bytes: usize,
    receiver: Receiver,
    begun: Option<Begun>,
    /// Bytes that were there of a packet that was put off.
    put_off_bytes: usize,
}

/// A packet that is taken while its sender writes it: what its taker calls it, and the bytes of its body that have been taken.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Begun {
    pub token: u64,
    pub done_bytes: usize,
}

/// The shared-memory endpoint of one process, or of one of its VCIs.
pub struct Shm {
    capabilities: Capabilities,
    index: u32,
    vci: u8,
    geometry: Geometry,
    /// Whether rings can become longer than the cache of a core: they are faster then, and not before.
    grows: bool,
    resolver: Resolver,
    fd: OwnedFd,
    mapping: Mapping,
    header: &'static Header,
    connections: ConnectionDirectory,
    peers: Vec<Option<Box<Peer>>>,
    incoming: Vec<Incoming>,
    /// To whom bodies were written beside the slots since this process waited last: some of them at least, and some maybe twice.
    written: Vec<u32>,
    /// Where in `incoming` a peer's ring is; `u32::MAX` without one.
    incoming_of: Vec<u32>,
    /// Processes whose segments this one has waited for once.
    awaited: Vec<u32>,
    answer_within: Duration,
    /// The ring that is looked at next, and how many packets in a row came from it.
    turn: usize,
    run: u32,
    connects_seen: u64,
    /// Other processes' heavy fences do not reach this one: it must fence after each packet.
    must_fence: bool,
    single_copy: bool,
    map_memory: bool,
    /// Copied by load and store from or to mapped memory of peers.
    mapped_bytes: u64,
    /// What the trial read looks for; its address is published, its place never moves.
    _nonce: Arc<[u64; 2]>,
}

/// A packet in the ring of [`Packet::peer`].
pub struct Packet {
    pub peer: u32,
    ring: u32,
    pub taken: Taken,
}

/// Looks for more of a packet that is being written: several times as long as a piece takes.
const LOOKS_FOR_MORE: u32 = 64;
/// Packets taken from one ring before the next one is looked at.
const RUN_MAX: u32 = 32;
/// Rings that are made ready in one wait.
const WRITTEN_MAX: usize = 8;

/// For so long a process that was found by its number is taken to be the same: too short for the system to give all other numbers away meanwhile, long
/// beside the copy of a piece.
const VERIFIED_FOR: Duration = Duration::from_millis(5);

/// Whoever lives and has a core hands its segment out in that time. A message to a process that is stopped, or not there yet, waits in its queue.
pub const ANSWER_WITHIN: Duration = Duration::from_millis(1);

impl Shm {
    /// Makes this process' segment. Others reach it through [`Shm::segment`].
    pub fn new(config: Config, resolver: Resolver) -> Result<Shm, Error> {
        let geometry = Geometry::new(config.processes, config.memory_bytes);
        let fd = sys::memfd(geometry.segment_bytes())?;
        sys::reserve(fd.as_fd(), 0, geometry.head_bytes(), "the head of a shared-memory segment")?;
        let mapping = Mapping::new(fd.as_fd())?;
        let header = Header::of(&mapping).ok_or(Error::System { call: "mmap", errno: libc::EINVAL })?;
        let mut bytes = [0u8; 16];
        sys::random(&mut bytes)?;
        let nonce = Arc::new([u64::from_ne_bytes(bytes[..8].try_into().unwrap()), u64::from_ne_bytes(bytes[8..].try_into().unwrap())]);
        let registered = sys::register_for_fences();
        header.publish(&geometry, sys::process(), &nonce, !(registered && sys::heavy_fence()));
        let connections = ConnectionDirectory::first(&mapping, header, &geometry).ok_or(Error::System { call: "mmap", errno: libc::EINVAL })?;
        Ok(Shm {
            capabilities: Capabilities {
                kind: Kind::Memory,
                body_bytes_max: geometry.bulk_bytes as usize / 2,
                inline_bytes_max: ring::INLINE_BYTES,
                gather_max: 1,
                remote_read: config.single_copy,
                remote_write: config.single_copy,
                needs_registration: false,
                ordered: true,
                reliable: true,
            },
            index: config.index,
            vci: 0,
            geometry,
            grows: sys::core_cache_bytes() < geometry.bulk_bytes_max as u64,
            resolver,
            fd,
            mapping,
            header,
            connections,
            peers: (0..config.processes).map(|_| None).collect(),
            incoming: Vec::new(),
            written: Vec::with_capacity(WRITTEN_MAX),
            incoming_of: vec![u32::MAX; config.processes as usize],
            awaited: Vec::new(),
            answer_within: config.answer_within,
            turn: 0,
            run: 0,
            connects_seen: 0,
            must_fence: !registered,
            single_copy: config.single_copy,
            map_memory: config.map_memory,
            mapped_bytes: 0,
            _nonce: nonce,
        })
    }

    /// A further endpoint, `1..VCIS`, in the same segment. It has rings of its own, and shares the doorbell: whoever sleeps for one sleeps for all.
    pub fn vci(&self, vci: u8, resolver: Resolver) -> Result<Shm, Error> {
        let fd = self.fd.try_clone().map_err(|e| Error::System { call: "dup", errno: e.raw_os_error().unwrap_or(0) })?;
        let (mapping, header, processes) = (self.mapping, self.header, self.geometry.processes);
        let connections = connections(self.index, vci, &mapping, header, fd.as_fd(), &self.geometry)?;
        Ok(Shm {
            capabilities: self.capabilities,
            index: self.index,
            vci,
            geometry: self.geometry,
            grows: self.grows,
            resolver,
            fd,
            mapping,
            header,
            connections,
            peers: (0..processes).map(|_| None).collect(),
            incoming: Vec::new(),
            written: Vec::with_capacity(WRITTEN_MAX),
            incoming_of: vec![u32::MAX; processes as usize],
            awaited: Vec::new(),
            answer_within: self.answer_within,
            turn: 0,
            run: 0,
            connects_seen: 0,
            must_fence: self.must_fence,
            single_copy: self.single_copy,
            map_memory: self.map_memory,
            mapped_bytes: 0,
            _nonce: self._nonce.clone(),
        })
    }

    /// The descriptor to hand to the other processes.
    pub fn segment(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }

    /// Shared memory that is reserved in this process' segment now, bytes.
    pub fn reserved_bytes(&self) -> u64 {
        self.header.cursor.load(Ordering::Relaxed).saturating_sub(self.header.unreserved.load(Ordering::Relaxed))
    }

    /// The mapped segment of `peer`, `None` while that process has not answered.
    fn map(&mut self, peer: u32) -> Result<Option<&mut Peer>, Error> {
        let at = peer as usize;
        if self.peers[at].is_none() {
            let Some(fd) = self.resolve(peer)? else { return Ok(None) };
            let mapping = Mapping::new(fd.as_fd())?;
            let corrupt = |what, value| Error::Corrupt { peer, what, value };
            let header = Header::of(&mapping).ok_or(corrupt("the size of the segment", mapping.len() as u64))?;
            header.check(&self.geometry).map_err(|(what, value)| corrupt(what, value))?;
            if (mapping.len() as u64) < self.geometry.segment_bytes() {
                return Err(corrupt("the size of the segment", mapping.len() as u64));
            }
            let fence = self.must_fence || header.fence.load(Ordering::Relaxed) != 0;
            let pid = header.pid.load(Ordering::Relaxed) as u32;
            let connections = connections(peer, self.vci, &mapping, header, fd.as_fd(), &self.geometry)?;
            self.peers[at] = Some(Box::new(Peer {
                mapping,
                header,
                connections,
                fd,
                sender: None,
                ring_at: 0,
                fence,
                pid,
                readable: None,
                verified: Instant::now(),
                mapped: Mapped::Unasked,
            }));
        }
        Ok(self.peers[at].as_deref_mut())
    }

    /// Asks for the segment of `peer`; the first time for as long as [`Config::answer_within`] says.
    #[cold]
    fn resolve(&mut self, peer: u32) -> Result<Option<OwnedFd>, Error> {
        let within = if self.awaited.contains(&peer) { Duration::ZERO } else { self.answer_within };
        if !within.is_zero() {
            self.awaited.push(peer);
        }
        (self.resolver)(peer, within).map_err(|why| Error::Peer { peer, why })
    }

    /// The segment of `peer`, where an earlier step has needed it already.
    fn segment_of(&mut self, peer: u32) -> Result<&mut Peer, Error> {
        self.map(peer)?.ok_or_else(|| Error::Peer { peer, why: "it has not handed out its shared memory yet".into() })
    }

    /// Takes a ring in the peer's segment and tells it. False: the peer has not answered yet.
    #[cold]
    fn connect(&mut self, peer: u32) -> Result<bool, Error> {
        let (index, geometry) = (self.index as usize, self.geometry);
        let Some(p) = self.map(peer)? else { return Ok(false) };
        if p.sender.is_some() {
            return Ok(true);
        }
        let offset = allocate(peer, p.header, p.fd.as_fd(), &geometry, geometry.ring_bytes(), geometry.ring_bytes_max(), "a ring in a peer's segment")?;
        let (slots, returns, bulk) = geometry.ring(&p.mapping, offset).expect("allocated inside the segment");
        (p.sender, p.ring_at) = (Some(Producer::new(slots, returns, bulk, geometry.bulk_bytes as usize)), offset);
        if p.connections.rings[index].compare_exchange(0, offset, Ordering::AcqRel, Ordering::Acquire).is_err() {
            p.sender = None;
            return Err(Error::Peer { peer, why: "it has no memory, or no descriptors, left to answer".into() });
        }
        p.connections.connects.fetch_add(1, Ordering::SeqCst);
        fence(Ordering::SeqCst);
        wake(p);
        Ok(true)
    }

    /// Looks for processes that have connected since the last time.
    #[cold]
    fn accept(&mut self, connects: u64) -> Result<(), Error> {
        for (peer, entry) in self.connections.rings.iter().enumerate() {
            let offset = entry.load(Ordering::Acquire);
            if offset == 0 || offset == REFUSED || self.incoming_of[peer] != u32::MAX {
                continue;
            }
            if peer as u32 == self.index {
                return Err(Error::Corrupt { peer: peer as u32, what: "its place in its own directory", value: offset });
            }
            let (slots, returns, bulk) =
                self.geometry.ring(&self.mapping, offset).ok_or(Error::Corrupt { peer: peer as u32, what: "the place of its ring", value: offset })?;
            // Its pages should be there already; where they are not, touching them could be SIGBUS.
            if let Err(error) = sys::reserve(self.fd.as_fd(), offset, self.geometry.ring_bytes(), "a ring that a peer has made") {
                self.refuse(peer as u32);
                return Err(Error::Peer { peer: peer as u32, why: error.to_string() });
            }
            self.incoming_of[peer] = self.incoming.len() as u32;
            let reserved_bytes = self.geometry.bulk_bytes as usize;
            let receiver = Consumer::new(slots, returns, bulk, reserved_bytes);
            self.incoming.push(Incoming { peer: peer as u32, ring_at: offset, reserved_bytes, receiver, begun: None, put_off_bytes: 0 });
        }
        self.connects_seen = connects;
        Ok(())
    }

    /// As [`Fabric::receive`], from those that have connected as well. Who sleeps after a look in vain is not woken for what was there before it.
    #[cold]
    #[inline(never)]
    fn receive_newly(&mut self, connects: u64) -> Result<Option<Packet>, Error> {
        self.accept(connects)?;
        self.look_into_rings()
    }

    /// Whether nothing has come of the long packet at hand in this ring since it was put off.
    #[inline]
    fn has_no_more(&mut self, at: usize) -> Result<bool, Error> {
        let incoming = &self.incoming[at];
        if incoming.receiver.bulk_bytes() > incoming.reserved_bytes {
            self.grown(at)?;
        }
        let incoming = &self.incoming[at];
        Ok(incoming.receiver.long().is_some_and(|long| !long.is_whole() && long.present_bytes == incoming.put_off_bytes))
    }

    /// A ring has grown. Its pages should be there already; where they are not, touching them could be SIGBUS.
    #[cold]
    fn grown(&mut self, at: usize) -> Result<(), Error> {
        let Incoming { peer, ring_at, reserved_bytes, ref receiver, .. } = self.incoming[at];
        let bulk = reserved_bytes..receiver.bulk_bytes();
        if let Err(error) = reserve_growth(None, self.fd.as_fd(), &self.geometry, ring_at, &bulk, "the growth of a ring that a peer has made") {
            self.refuse(peer);
            return Err(Error::Peer { peer, why: error.to_string() });
        }
        self.incoming[at].reserved_bytes = bulk.end;
        map_ring_ahead(&self.geometry, &self.mapping, ring_at, &bulk);
        Ok(())
    }

    /// Tells `peer`, which may have sent something or may send, that this process can answer nothing. It copies nothing of that peer's any more.
    pub fn refuse(&mut self, peer: u32) {
        if let Some(p) = &mut self.peers[peer as usize] {
            p.mapped = Mapped::Refused;
        }
        self.connections.rings[peer as usize].store(REFUSED, Ordering::Release);
    }

    /// A process that shares no memory with this one has the number after all that there are.
    pub fn add_foreign(&mut self) {
        self.peers.push(None);
    }

    /// Whether `peer` has said that it can answer nothing.
    pub fn is_refused(&self, peer: u32) -> bool {
        self.peers[peer as usize].as_deref().is_some_and(|p| p.connections.rings[self.index as usize].load(Ordering::Acquire) == REFUSED)
    }

    /// What `peer` says it has released of what this process sent it, bytes since the start.
    pub fn credit(&self, peer: u32) -> u64 {
        match &self.peers[peer as usize] {
            Some(p) => p.sender.as_ref().map_or(0, |s| s.credit()),
            None => 0,
        }
    }

    /// Tells `peer` that `bytes` more of what it sent are released.
    #[inline]
    pub fn give_credit(&mut self, peer: u32, bytes: u64, step_bytes: u64) {
        let at = self.incoming_of[peer as usize] as usize;
        if let Some(i) = self.incoming.get_mut(at) {
            i.receiver.give_credit(bytes, step_bytes);
        }
    }

    /// Whether this process can read and write the peer's memory: a trial read of a secret decides.
    pub fn reachable(&mut self, peer: u32) -> bool {
        if !self.single_copy {
            return false;
        }
        let Ok(Some(p)) = self.map(peer) else { return false };
        if let Some(known) = p.readable {
            return known;
        }
        let good = p.is_itself();
        (p.readable, p.verified) = (Some(good), Instant::now());
        good
    }

    /// The process that copies to and from `peer` are made with. Where that was last sure too long ago, the secret is read again: the system may have
    /// given the number of a process that has ended to another one.
    fn target(&mut self, peer: u32) -> Result<u32, Error> {
        let p = self.segment_of(peer)?;
        if p.verified.elapsed() > VERIFIED_FOR {
            if !p.is_itself() {
                p.readable = Some(false);
                return Err(Error::Peer { peer, why: format!("process {} of the system is not it any more", p.pid) });
            }
            p.verified = Instant::now();
        }
        Ok(p.pid)
    }

    /// Tells the peers of the range in which this process gives memory out: they may map it.
    ///
    /// # Errors
    /// Its descriptor is none.
    pub fn give_out(&self, range: memory::arena::Range) -> Result<(), Error> {
        self.header.mapped.tell(range)
    }

    /// Whether memory that is given out is mapped.
    pub fn maps(&self) -> bool {
        self.single_copy && self.map_memory
    }

    /// Copied by load and store from and to mapped memory of peers, bytes.
    pub fn mapped_bytes(&self) -> u64 {
        self.mapped_bytes
    }

    /// The memory of `peer` in which `remote` lies, where this process maps it.
    fn memory_at(&mut self, peer: u32, remote: u64) -> Result<Option<&Arc<PeerMemory>>, Error> {
        if !self.map_memory {
            return Ok(None);
        }
        let p = self.segment_of(peer)?;
        let (header, secret) = (p.header, Secret::of(p.header, p.pid));
        Ok(p.mapped.of(header, remote, || secret.is_there()))
    }

    /// Where `bytes` at `remote` of the peer lie in this process, if they do.
    fn here(&mut self, peer: u32, remote: u64, bytes: usize) -> Result<Option<*mut u8>, Error> {
        Ok(self.memory_at(peer, remote)?.and_then(|memory| memory.at(remote, bytes)))
    }

    /// Whether this process maps `bytes` at `remote` of the peer.
    pub fn maps_at(&mut self, peer: u32, remote: u64, bytes: usize) -> bool {
        self.here(peer, remote, bytes).is_ok_and(|there| there.is_some())
    }

    /// Copies pieces of `peer` that lie in mapped memory, from the first on, as far as both reach; gives the bytes copied, and how many pieces of
    /// the peer come before the next in mapped memory where the first lies in none.
    ///
    /// # Safety
    /// As [`Shm::read_pieces`] and [`Shm::write_pieces`].
    unsafe fn copy_pieces_here(&mut self, peer: u32, remote: &[(u64, usize)], local: &[(*mut u8, usize)], write: bool) -> Result<Result<usize, usize>, Error> {
        let (mut done, mut taken) = (0, 0);
        let mut ours = local.iter().copied().filter(|(_, bytes)| *bytes > 0);
        let (mut start, mut left) = ours.next().unwrap_or((std::ptr::null_mut(), 0));
        for (address, bytes) in remote.iter().copied().filter(|(_, bytes)| *bytes > 0) {
            let Some(there) = self.here(peer, address, bytes)? else {
                if taken > 0 {
                    break;
                }
                let mut outside = 0;
                for (address, bytes) in remote {
                    if self.here(peer, *address, *bytes)?.is_some() && *bytes > 0 {
                        break;
                    }
                    outside += 1;
                }
                return Ok(Err(outside));
            };
            taken += 1;
            let mut at = 0;
            while at < bytes && left > 0 {
                let now = left.min(bytes - at);
                match write {
                    true => sys::copy_mapped(start, there.add(at), now),
                    false => sys::copy_mapped(there.add(at), start, now),
                }
                (at, done, start, left) = (at + now, done + now, start.add(now), left - now);
                if left == 0 {
                    (start, left) = ours.next().unwrap_or((std::ptr::null_mut(), 0));
                }
            }
            if left == 0 {
                break;
            }
        }
        self.mapped_bytes += done as u64;
        Ok(if done > 0 { Ok(done) } else { Err(remote.len()) })
    }

    /// The number that the system has given to `peer`, where that has answered.
    pub fn pid(&self, peer: u32) -> Option<u32> {
        self.peers[peer as usize].as_ref().map(|p| p.pid)
    }

    /// Longest body of a packet to `peer`, bytes; 0 before there is a ring.
    pub fn body_bytes_max_to(&self, peer: u32) -> usize {
        self.peers[peer as usize].as_ref().and_then(|p| p.sender.as_ref()).map_or(0, |sender| sender.body_bytes_max())
    }

    /// Whether the ring to `peer` would take a body of `bytes` now. A ring that is about to grow will.
    pub fn has_room(&mut self, peer: u32, bytes: usize) -> bool {
        let sender = self.peers[peer as usize].as_mut().and_then(|p| p.sender.as_mut());
        sender.is_some_and(|sender| sender.should_grow() || sender.takes(bytes))
    }

    /// Whether `peer` has said lately that it waits; a hint.
    pub fn waits(&self, peer: u32) -> bool {
        self.peers[peer as usize].as_ref().is_some_and(|p| p.header.waiting.load(Ordering::Relaxed) != 0)
    }

    /// What tells whether `peer` looks for what comes, where that has answered.
    pub fn looker(&self, peer: u32) -> Option<Looker> {
        self.peers[peer as usize].as_ref().map(|p| Looker { header: p.header })
    }

    /// Says that a thread of this process waits in a call and looks into its rings, or that it does no more.
    #[inline]
    pub fn say_waiting(&self, waits: bool) {
        self.header.waiting.store(waits as u64, Ordering::Relaxed);
    }

    /// Says that a thread of this process gives its core to others, or that it has it back.
    #[inline]
    pub fn say_away(&self, away: bool) {
        self.header.away.store(away as u64, Ordering::Relaxed);
    }

    /// Whether `peer` has a core, as far as it has said: it has not given it away and does not sleep. One whose core the kernel has taken has said nothing.
    #[inline]
    pub fn has_core(&self, peer: u32) -> bool {
        let header = self.peers.get(peer as usize).and_then(Option::as_ref).map(|p| p.header);
        header.is_some_and(|header| header.away.load(Ordering::Relaxed) == 0 && header.sleeping.load(Ordering::Relaxed) == 0)
    }

    /// The peer's memory turned out not to be reachable after all.
    pub fn unreachable(&mut self, peer: u32) {
        if let Some(p) = &mut self.peers[peer as usize] {
            p.readable = Some(false);
            p.mapped = Mapped::Refused;
        }
    }

    /// Reads `bytes` at `remote` in the peer to `local`. The peer must be [`Shm::reachable`].
    ///
    /// # Safety
    /// `local..local + bytes` must be writable.
    pub unsafe fn read(&mut self, peer: u32, remote: u64, local: *mut u8, bytes: usize) -> Result<(), Error> {
        if let Some(from) = self.here(peer, remote, bytes)? {
            sys::copy_mapped(from, local, bytes);
            self.mapped_bytes += bytes as u64;
            return Ok(());
        }
        let pid = self.target(peer)?;
        sys::read_process(pid, remote, local, bytes).map_err(|errno| Error::System { call: "process_vm_readv", errno })
    }

    /// Writes `bytes` at `local` to `remote` in the peer.
    ///
    /// # Safety
    /// `local..local + bytes` must be readable, and the peer must have offered the remote range.
    pub unsafe fn write(&mut self, peer: u32, remote: u64, local: *const u8, bytes: usize) -> Result<(), Error> {
        if let Some(to) = self.here(peer, remote, bytes)? {
            sys::copy_mapped(local, to, bytes);
            self.mapped_bytes += bytes as u64;
            return Ok(());
        }
        let pid = self.target(peer)?;
        sys::write_process(pid, remote, local, bytes).map_err(|errno| Error::System { call: "process_vm_writev", errno })
    }

    /// Reads the peer's pieces into this process' own, one after the other, as far as both reach; gives the bytes read, at least 1.
    /// At most [`PIECES_PER_CALL`] pieces of each. The peer must be [`Shm::reachable`].
    ///
    /// # Safety
    /// The local pieces must be writable.
    pub unsafe fn read_pieces(&mut self, peer: u32, remote: &[(u64, usize)], local: &[(*mut u8, usize)]) -> Result<usize, Error> {
        let remote = match self.copy_pieces_here(peer, remote, local, false)? {
            Ok(done) => return Ok(done),
            Err(outside) => &remote[..outside],
        };
        let pid = self.target(peer)?;
        sys::read_pieces(pid, remote, local).map_err(|errno| Error::System { call: "process_vm_readv", errno })
    }

    /// The other way round.
    ///
    /// # Safety
    /// The local pieces must be readable, and the peer must have offered the remote ones.
    pub unsafe fn write_pieces(&mut self, peer: u32, remote: &[(u64, usize)], local: &[(*mut u8, usize)]) -> Result<usize, Error> {
        let remote = match self.copy_pieces_here(peer, remote, local, true)? {
            Ok(done) => return Ok(done),
            Err(outside) => &remote[..outside],
        };
        let pid = self.target(peer)?;
        sys::write_pieces(pid, remote, local).map_err(|errno| Error::System { call: "process_vm_writev", errno })
    }

    /// The descriptor `slot` of copies that are done cooperatively, in `owner`'s segment.
    pub fn cooperative(&mut self, owner: u32, slot: u64) -> Result<&'static area::Cooperative, Error> {
        let connections = if owner == self.index { self.connections } else { self.segment_of(owner)?.connections };
        if slot >= COOPERATIVES as u64 {
            return Err(Error::Corrupt { peer: owner, what: "the number of a cooperative copy", value: slot });
        }
        Ok(&connections.cooperative_copies[slot as usize])
    }

    /// Reserves `bytes` of this process' segment for a structure that several processes share; returns its place.
    ///
    /// # Errors
    /// There is no memory, or such structures would leave none to rings.
    pub fn share(&mut self, bytes: u64) -> Result<u64, Error> {
        self.share_in_parts(bytes, bytes)
    }

    /// As [`Shm::share`], with pages for the first `begin` bytes alone: each of those that share the rest reserves a [part](Shm::lines_in_parts) of it, so that
    /// all do at the same time what takes long.
    ///
    /// # Errors
    /// As there.
    pub fn share_in_parts(&mut self, bytes: u64, begin: u64) -> Result<u64, Error> {
        const WHAT: &str = "a collective area";
        let (bytes, begin) = (bytes.next_multiple_of(segment::PAGE), begin.next_multiple_of(segment::PAGE));
        let before = self.header.shared.fetch_add(bytes, Ordering::Relaxed);
        let place = if before.saturating_add(bytes) > segment::SHARED_BYTES_MAX {
            Err(Error::Memory { what: WHAT, bytes, errno: libc::ENOSPC })
        } else {
            allocate(self.index, self.header, self.fd.as_fd(), &self.geometry, begin, bytes, WHAT)
        };
        if place.is_ok() {
            // All of it will be.
            self.header.unreserved.fetch_sub(bytes - begin, Ordering::Relaxed);
        }
        place.inspect_err(|_| _ = self.header.shared.fetch_sub(bytes, Ordering::Relaxed))
    }

    /// The lines that `count` processes share at `place` of `owner`'s segment. `None` while that process has not answered.
    pub fn lines(&mut self, owner: u32, place: u64, count: usize) -> Result<Option<&'static [area::Line]>, Error> {
        self.lines_in_parts(owner, place, count, 0..count)
    }

    /// As [`Shm::lines`], of an area whose pages are reserved [in parts](Shm::share_in_parts): this process reserves those of the lines `own`, and of the first
    /// ones. It may touch others once those to whom they belong have said that they are there.
    ///
    /// # Errors
    /// As there.
    pub fn lines_in_parts(&mut self, owner: u32, place: u64, count: usize, own: Range<usize>) -> Result<Option<&'static [area::Line]>, Error> {
        let (mapping, fd) = if owner == self.index {
            (self.mapping, self.fd.as_fd())
        } else {
            match self.map(owner)? {
                Some(p) => (p.mapping, p.fd.as_fd()),
                None => return Ok(None),
            }
        };
        let lines = mapping.slice(place as usize, count).ok_or(Error::Corrupt { peer: owner, what: "the place of a collective area", value: place })?;
        let line = size_of::<area::Line>() as u64;
        let first = if own.start > 0 { 0..1 } else { 0..0 };
        for part in [first, own] {
            if !part.is_empty() {
                sys::reserve(fd, place + part.start as u64 * line, part.len() as u64 * line, "a collective area")?;
            }
        }
        Ok(Some(lines))
    }

    /// Says that this process is about to sleep: from here on senders wake it. `note` leaves its name in other places where it wants
    /// to be woken from. What came before must be looked for once more after this, then comes [`Shm::sleep`] or [`Shm::disarm`].
    pub fn arm(&self, note: impl FnOnce()) -> u32 {
        sleep::arm(self.header, note)
    }

    /// Sleeps until woken or `timeout`. `seen` is what [`Shm::arm`] returned.
    pub fn sleep(&self, seen: u32, timeout: Duration) {
        sys::futex_wait(self.header.futex(), seen, timeout);
        self.disarm();
    }

    pub fn disarm(&self) {
        sleep::disarm(self.header);
    }

    /// The part of sleeping that other threads of this process may do without the endpoint.
    pub fn doorbell(&self) -> Doorbell {
        Doorbell { header: self.header }
    }

    /// Wakes `peer` if it sleeps, after something was written elsewhere than in its rings. False: it has not answered yet.
    pub fn wake(&mut self, peer: u32) -> Result<bool, Error> {
        if peer != self.index {
            let Some(p) = self.map(peer)? else { return Ok(false) };
            fence(Ordering::SeqCst);
            wake(p);
        }
        Ok(true)
    }

    /// Whether a barrier between what this process wrote and what it reads next must be a real one.
    pub fn must_fence(&self) -> bool {
        self.must_fence || self.header.fence.load(Ordering::Relaxed) != 0
    }
}

/// Tells whether a peer looks for what comes, and makes it look.
#[derive(Clone, Copy)]
pub struct Looker {
    header: &'static Header,
}

impl Looker {
    /// Whether the peer has said that it waits in a call, and does not sleep there; a hint.
    #[inline]
    pub fn looks(&self) -> bool {
        self.header.waiting.load(Ordering::Relaxed) != 0 && self.header.sleeping.load(Ordering::Relaxed) == 0
    }

    /// Wakes the peer if it is seen to sleep, so that it looks; whether it was. One that is just about to sleep may be overlooked.
    #[inline]
    pub fn wake(&self) -> bool {
        let sleeps = self.header.sleeping.load(Ordering::Relaxed) != 0;
        if sleeps {
            sleep::wake(self.header);
        }
        sleeps
    }
}

/// Rings this process' own doorbell.
#[derive(Clone, Copy)]
pub struct Doorbell {
    header: &'static Header,
}

impl Doorbell {
    /// Wakes all threads of this process that sleep.
    pub fn ring(&self) {
        self.header.futex().fetch_add(1, Ordering::Release);
        sys::futex_wake(self.header.futex());
    }

    /// Sleeps until woken or `timeout`.
    pub fn sleep(&self, seen: u32, timeout: Duration) {
        sys::futex_wait(self.header.futex(), seen, timeout);
    }
}

#[inline]
fn wake(peer: &Peer) {
    sleep::wake(peer.header);
}

impl sleep::SleepWord for Header {
    #[inline]
    fn sleeping(&self) -> &AtomicU64 {
        &self.sleeping
    }
    #[inline]
    fn futex(&self) -> &AtomicU32 {
        Header::futex(self)
    }
    fn heavy_fence(&self) {
        // Where it does not work, senders fence.
        if self.fence.load(Ordering::Relaxed) == 0 {
            sys::heavy_fence();
        }
    }
    fn wake_all(&self) {
        sys::futex_wake(Header::futex(self));
    }
}

/// Where `vci` of `owner` is found. Whoever needs a further VCI first makes its connection directory, be it the owner or another process.
fn connections(owner: u32, vci: u8, mapping: &Mapping, header: &'static Header, fd: BorrowedFd, geometry: &Geometry) -> Result<ConnectionDirectory, Error> {
    let corrupt = |value| Error::Corrupt { peer: owner, what: "the place of a VCI's connections", value };
    let Some(further) = vci.checked_sub(1) else { return ConnectionDirectory::first(mapping, header, geometry).ok_or(corrupt(0)) };
    let place = &header.directories[further as usize];
    let mut offset = place.load(Ordering::Acquire);
    if offset == 0 {
        let made = allocate(owner, header, fd, geometry, geometry.connections_bytes(), geometry.connections_bytes(), "a VCI's connections")?;
        // Who comes second leaves a page or two unused.
        offset = place.compare_exchange(0, made, Ordering::AcqRel, Ordering::Acquire).err().unwrap_or(made);
    }
    let connections = ConnectionDirectory::at(mapping, geometry, offset).ok_or(corrupt(offset))?;
    sys::reserve(fd, offset, geometry.connections_bytes(), "a VCI's connections")?;
    Ok(connections)
}

/// Takes `room` bytes of `owner`'s segment and reserves the pages of the first `bytes`.
fn allocate(owner: u32, header: &Header, fd: BorrowedFd, geometry: &Geometry, bytes: u64, room: u64, what: &'static str) -> Result<u64, Error> {
    let (bytes, room) = (bytes.next_multiple_of(segment::PAGE), room.next_multiple_of(segment::PAGE));
    let limit = geometry.segment_bytes();
    let offset = header
        .cursor
        .fetch_update(Ordering::AcqRel, Ordering::Relaxed, |at| at.checked_add(room).filter(|end| *end <= limit))
        .map_err(|_| Error::Memory { what, bytes, errno: libc::ENOSPC })?;
    if offset % segment::PAGE != 0 || offset < geometry.head_bytes() {
        return Err(Error::Corrupt { peer: owner, what: "the segment's cursor", value: offset });
    }
    sys::reserve(fd, offset, bytes, what).inspect_err(|_| {
        // Whoever tries again finds the same place, unless another has taken one behind it.
        let _ = header.cursor.compare_exchange(offset + room, offset, Ordering::AcqRel, Ordering::Relaxed);
    })?;
    header.unreserved.fetch_add(room - bytes, Ordering::Relaxed);
    Ok(offset)
}

/// These bytes beside the slots of the ring at `ring_at`, which have their pages, are going to be used.
fn map_ring_ahead(geometry: &Geometry, mapping: &Mapping, ring_at: u64, bytes: &Range<usize>) {
    if let Some((_, _, bulk)) = geometry.ring(mapping, ring_at) {
        sys::map_ahead(bulk.part(bytes.start, bytes.len()).as_ptr(), bytes.len());
    }
}

/// Reserves the pages of the bytes beside the slots that the ring at `ring_at` grows by.
fn reserve_growth(header: Option<&Header>, fd: BorrowedFd, geometry: &Geometry, ring_at: u64, bulk: &Range<usize>, what: &'static str) -> Result<(), Error> {
    let [had, has] = [bulk.start, bulk.end].map(|bulk| geometry.ring_bytes_with(bulk as u64).next_multiple_of(segment::PAGE));
    let more = has - had;
    sys::reserve(fd, ring_at + had, more, what)?;
    if let Some(header) = header {
        header.unreserved.fetch_sub(more, Ordering::Relaxed);
    }
    Ok(())
}

impl Fabric for Shm {
    type Packet = Packet;

    fn capabilities(&self) -> &Capabilities {
        &self.capabilities
    }

    #[inline]
    fn send(&mut self, peer: u32, head: [u64; 2], words: &[u64], body: Body) -> Result<(), Refused> {
        let Some(p) = self.peers[peer as usize].as_deref_mut().filter(|p| p.sender.is_some()) else {
            return if self.connect(peer)? { self.send(peer, head, words, body) } else { Err(Refused::Full) };
        };
        let sender = p.sender.as_mut().expect("checked above");
        // SAFETY: `Body` promises that its bytes are readable until this returns.
        let sent = unsafe { sender.push(head, words, body) };
        match sent {
            Ok(true) => {
                p.announce();
                self.has_written(peer, body.len());
                Ok(())
            }
            Ok(false) if sender.should_grow() => {
                match self.grows {
                    true => p.grow(&self.geometry),
                    false => sender.stay(),
                }
                self.send(peer, head, words, body)
            }
            Ok(false) => Err(Refused::Full),
            Err(c) => Err(Refused::Failed(Error::Corrupt { peer, what: c.what, value: c.value })),
        }
    }

    #[inline]
    fn receive(&mut self) -> Result<Option<Packet>, Error> {
        if let Some(packet) = self.look_into_rings()? {
            return Ok(Some(packet));
        }
        let connects = self.connections.connects.load(Ordering::Acquire);
        if connects == self.connects_seen { Ok(None) } else { self.receive_newly(connects) }
    }

    #[inline]
    fn release(&mut self, packet: &Packet) {
        let incoming = &mut self.incoming[packet.ring as usize];
        if packet.taken.is_long {
            (incoming.begun, incoming.put_off_bytes) = (None, 0);
        }
        incoming.receiver.release(&packet.taken);
    }
}

impl Shm {
    /// The next packet of those that have connected and were seen to.
    #[inline(always)]
    fn look_into_rings(&mut self) -> Result<Option<Packet>, Error> {
        let count = self.incoming.len();
        for _ in 0..count {
            let at = self.turn;
            let incoming = &mut self.incoming[at];
            match incoming.receiver.peek() {
                // No more of it has come: what comes after it in this ring cannot be there, but others' may, and others may connect.
                Ok(Some(taken)) if taken.is_long && self.has_no_more(at)? => self.next_turn(count),
                Ok(Some(taken)) => {
                    let incoming = &mut self.incoming[at];
                    self.run += 1;
                    if self.run > 1 {
                        // A stream of packets: the next lines come while this one is dealt with.
                        incoming.receiver.prefetch();
                    }
                    let packet = Packet { peer: incoming.peer, ring: at as u32, taken };
                    if self.run >= RUN_MAX {
                        self.next_turn(count);
                    }
                    return Ok(Some(packet));
                }
                Ok(None) => self.next_turn(count),
                Err(c) => return Err(Error::Corrupt { peer: self.incoming[at].peer, what: c.what, value: c.value }),
            }
        }
        Ok(None)
    }

    /// Whether no packet is there, and nobody has connected since the latest [`Fabric::receive`] that gave nothing.
    #[inline(always)]
    pub fn is_silent(&self) -> bool {
        self.incoming.iter().all(|incoming| incoming.receiver.is_silent()) && self.connections.connects.load(Ordering::Acquire) == self.connects_seen
    }

    /// The header of the next packet of `peer`, if it has begun to come and has not been looked at, and the bytes of its body where they lie beside the slot.
    /// A hint: nobody has checked what it says.
    pub fn comes(&self, peer: u32) -> Option<([u64; 2], usize)> {
        self.incoming.iter().find(|incoming| incoming.peer == peer)?.receiver.comes()
    }

    /// As [`Fabric::send`] without words, where a ring is there and has room; otherwise nothing happens.
    #[inline(always)]
    pub fn send_connected(&mut self, peer: u32, head: [u64; 2], body: Body) -> bool {
        let Some(p) = self.peers[peer as usize].as_deref_mut() else { return false };
        let Some(sender) = p.sender.as_mut() else { return false };
        // SAFETY: `Body` promises that its bytes are readable until this returns.
        if !matches!(unsafe { sender.push(head, &[], body) }, Ok(true)) {
            return false;
        }
        p.announce();
        self.has_written(peer, body.len());
        true
    }

    #[inline(always)]
    fn has_written(&mut self, peer: u32, body_bytes: usize) {
        if body_bytes > ring::INLINE_BYTES && self.written.last() != Some(&peer) && self.written.len() < WRITTEN_MAX {
            self.written.push(peer);
        }
    }

    /// Makes use of a moment in which this process waits, not much longer than a pause: the rings are made ready for what it writes next. `false`: there is nothing
    /// to be done.
    #[inline]
    pub fn use_wait(&mut self) -> bool {
        let Some(&peer) = self.written.last() else { return false };
        let owned = self.peers[peer as usize].as_deref_mut().and_then(|p| p.sender.as_mut()).is_some_and(Sender::own_ahead);
        if !owned {
            self.written.pop();
        }
        owned
    }

    /// The body of a long packet, where all of it is there and nothing was said of it by [`Shm::put_off`].
    #[inline]
    pub fn whole(&self, packet: &Packet) -> Option<&Long<Area>> {
        let incoming = &self.incoming[packet.ring as usize];
        let long = incoming.receiver.long()?;
        (incoming.begun.is_none() && long.is_whole()).then_some(long)
    }

    /// The body of a long packet, and what [`Shm::put_off`] was told of it.
    pub fn long(&self, packet: &Packet) -> Option<(Long<Area>, Option<Begun>)> {
        let incoming = &self.incoming[packet.ring as usize];
        Some((*incoming.receiver.long().filter(|_| packet.taken.is_long)?, incoming.begun))
    }

    /// Waits for more of a long packet, of which not all was there, for a moment: its sender writes it now, unless the system has stopped that.
    pub fn await_more(&mut self, packet: &Packet) -> Option<Long<Area>> {
        let receiver = &mut self.incoming[packet.ring as usize].receiver;
        for _ in 0..LOOKS_FOR_MORE {
            if receiver.look_again() {
                return receiver.long().copied();
            }
            std::hint::spin_loop();
        }
        None
    }

    /// Leaves a packet where it is, of which `present_bytes` are there and not all: it comes again, with what is said here, when more of it is.
    pub fn put_off(&mut self, packet: &Packet, present_bytes: usize, begun: Option<Begun>) {
        let incoming = &mut self.incoming[packet.ring as usize];
        (incoming.begun, incoming.put_off_bytes) = (begun, present_bytes);
        self.next_turn(self.incoming.len());
    }

    #[inline]
    fn next_turn(&mut self, count: usize) {
        self.run = 0;
        self.turn += 1;
        if self.turn >= count {
            self.turn = 0;
        }
    }
}
