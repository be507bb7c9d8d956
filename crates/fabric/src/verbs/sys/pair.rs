//! A queue pair for datagrams, with the memory that it sends from and receives into.
//!
//! A slot of the send memory is the owner's until [`QueuePair::push`], and again after its completion; a slot of the
//! receive memory is the device's but while it is lent ([`Lent`]).

use std::ptr::{NonNull, null_mut};
use std::sync::{Arc, mpsc};
use std::time::Duration;

use rustc_hash::FxHashMap;

use super::abi;
use super::{AddressHandle, Channel, Completions, Destination, Domain, Region, checked, failed};
use crate::Error;

/// What a pair may hold.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Datagrams that wait or are on their way out: a power of two, at least twice [`SIGNALS_EACH`].
    pub sends: u32,
    /// Buffers for datagrams that come.
    pub receives: u32,
    /// Longest datagram, bytes, without what the device puts in front.
    pub datagram_bytes: u32,
    /// Datagrams up to so many bytes are given to the device by value, where it takes that.
    pub inline_bytes: u32,
}

/// Every so many sends one says when it is complete, and with it all before.
const SIGNALS_EACH: u32 = 32;
/// Completions that are looked at in one call.
const LOOKS: usize = 32;
/// What the device puts in front of a datagram, bytes.
pub const GRH_BYTES: usize = 40;
/// Ports of peers that datagrams go to, at most; others count as unreachable.
const HANDLES_MAX: usize = 16_384;
/// Where a thread that looks for a way says what it has found.
type Search = mpsc::Receiver<Result<AddressHandle, Error>>;

/// Threads that look for the way to a port at the same time, at most.
const SEARCHES_MAX: usize = 8;
/// How long a search is waited for: a host that answers does so in less.
const SEARCH_WAIT: Duration = Duration::from_millis(20);

/// A datagram that has come.
#[derive(Clone, Copy, Debug)]
pub struct Came {
    slot: u32,
    bytes: u32,
    /// The queue pair that sent it, and its port's LID.
    pub from: u32,
    pub lid: u16,
    /// The first [`GRH_BYTES`] say where it came from.
    pub has_grh: bool,
}

/// Buffers that the device does not touch, until they are given back to their pair. What is not given back is lost to
/// the pair.
#[derive(Debug)]
pub struct Lent {
    region: Arc<Region>,
    came: Vec<Came>,
}

impl Lent {
    pub fn count(&self) -> usize {
        self.came.len()
    }

    /// Datagram `index` and its bytes, with what the device puts in front.
    pub fn get(&mut self, index: usize) -> (Came, &mut [u8]) {
        let came = self.came[index];
        let bytes = (came.bytes as usize).min(self.region.slot_bytes);
        // SAFETY: the slot's receive is complete and it is lent only once, until it is posted anew, which takes `self`.
        (came, unsafe { std::slice::from_raw_parts_mut(self.region.slot(came.slot as usize).as_ptr(), bytes) })
    }
}

pub struct QueuePair {
    raw: NonNull<abi::Pair>,
    number: u32,
    port: u8,
    own_gid_index: u8,
    qkey: u32,
    inline_bytes: u32,
    sent: Completions,
    received: Completions,
    send_memory: Region,
    receive_memory: Arc<Region>,
    /// One for each slot; they keep their place.
    sends: Box<[abi::SendRequest]>,
    send_pieces: Box<[abi::Piece]>,
    receives: Box<[abi::ReceiveRequest]>,
    /// What the receives point to.
    _receive_pieces: Box<[abi::Piece]>,
    /// Slots that were filled, posted and freed, counted from the start.
    filled: u32,
    posted: u32,
    freed: u32,
    /// Slots of the receive memory that the device does not have, since they are lent or wait in `came`.
    away: Box<[bool]>,
    came: Vec<Came>,
    /// For the next [`Lent`].
    spare: Vec<Came>,
    looks: Box<[abi::WorkCompletion; LOOKS]>,
    numbers: FxHashMap<Destination, u32>,
    handles: Vec<AddressHandle>,
    searches: FxHashMap<Destination, Search>,
    /// Something failed that a pair does not survive.
    pub broken: bool,
}

// SAFETY: it points to memory of its own alone, and the library's objects may be used from any thread.
unsafe impl Send for QueuePair {}

impl std::fmt::Debug for QueuePair {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("QueuePair").field("number", &self.number).field("port", &self.port).field("broken", &self.broken).finish()
    }
}

fn pieces(region: &Region, slots: u32, bytes: usize) -> Box<[abi::Piece]> {
    let piece = |slot| abi::Piece { address: region.slot(slot as usize).as_ptr() as u64, bytes: bytes as u32, lkey: region.lkey() };
    (0..slots).map(piece).collect()
}

impl QueuePair {
    /// A pair on `port` whose completions wake `channel`. It receives from everyone who knows `qkey`.
    pub fn new(domain: &Arc<Domain>, channel: &Arc<Channel>, port: u8, own_gid_index: u8, qkey: u32, limits: &Limits) -> Result<QueuePair, Error> {
        assert!(limits.sends.is_power_of_two() && limits.sends >= 2 * SIGNALS_EACH, "{} sends", limits.sends);
        let sent = Completions::new(channel, limits.sends)?;
        let received = Completions::new(channel, limits.receives)?;
        let send_memory = Region::new(domain, limits.sends as usize, limits.datagram_bytes as usize)?;
        let receive_memory = Arc::new(Region::new(domain, limits.receives as usize, (GRH_BYTES + limits.datagram_bytes as usize).next_multiple_of(64))?);
        let (raw, inline_bytes) = make(domain, &sent, &received, limits)?;
        let receive_bytes = GRH_BYTES + limits.datagram_bytes as usize;
        let (mut send_pieces, mut receive_pieces) = (pieces(&send_memory, limits.sends, 0), pieces(&receive_memory, limits.receives, receive_bytes));
        let sends = send_pieces.iter_mut().map(|piece| abi::SendRequest { pieces: piece, count: 1, ..abi::SendRequest::EMPTY });
        let sends = sends.collect();
        let receives = (0..).zip(receive_pieces.iter_mut());
        let receives = receives.map(|(slot, piece)| abi::ReceiveRequest { id: slot, next: null_mut(), pieces: piece, count: 1 }).collect();
        let mut pair = QueuePair {
            // SAFETY: the pair was just made.
            number: unsafe { (*raw.as_ptr()).number },
            raw,
            port,
            own_gid_index,
            qkey,
            inline_bytes,
            sent,
            received,
            send_memory,
            receive_memory,
            sends,
            send_pieces,
            receives,
            _receive_pieces: receive_pieces,
            filled: 0,
            posted: 0,
            freed: 0,
            away: vec![true; limits.receives as usize].into(),
            came: Vec::new(),
            spare: Vec::new(),
            looks: Box::new([abi::WorkCompletion::default(); LOOKS]),
            numbers: FxHashMap::default(),
            handles: Vec::new(),
            searches: FxHashMap::default(),
            broken: false,
        };
        pair.begin()?;
        Ok(pair)
    }

    pub fn number(&self) -> u32 {
        self.number
    }

    fn change(&mut self, state: i32, mask: i32) -> Result<(), Error> {
        // SAFETY: plain numbers, for which 0 is a value.
        let mut wanted: abi::PairAttributes = unsafe { std::mem::zeroed() };
        (wanted.state, wanted.port, wanted.qkey) = (state, self.port, self.qkey);
        let functions = self.receive_memory.domain.device.functions;
        // SAFETY: the pair lives; the attributes are read during the call.
        checked("ibv_modify_qp", unsafe { (functions.modify_qp)(self.raw.as_ptr(), &mut wanted, abi::QP_STATE | mask) })
    }

    /// As if the device had given the pair up.
    #[cfg(test)]
    pub fn fail(&mut self) {
        self.change(abi::QPS_ERR, 0).unwrap();
    }

    /// Takes a pair that has nothing posted to where it sends and receives.
    fn begin(&mut self) -> Result<(), Error> {
        self.change(abi::QPS_INIT, abi::QP_PKEY_INDEX | abi::QP_PORT | abi::QP_QKEY)?;
        let all: Vec<u32> = (0..self.away.len() as u32).collect();
        self.post_receives(all.into_iter())?;
        self.change(abi::QPS_RTR, 0)?;
        self.change(abi::QPS_RTS, abi::QP_SQ_PSN)
    }

    /// Makes a pair that has failed anew: what was posted, and what has come and not been looked at, counts as lost.
    ///
    /// # Errors
    /// The device refuses.
    pub fn restart(&mut self) -> Result<(), Error> {
        self.change(abi::QPS_RESET, 0)?;
        for queue in [&mut self.sent, &mut self.received] {
            while queue.poll(&mut self.looks[..]) > 0 {}
        }
        (self.filled, self.posted, self.freed) = (0, 0, 0);
        for came in std::mem::take(&mut self.came) {
            self.away[came.slot as usize] = false;
        }
        self.change(abi::QPS_INIT, abi::QP_PKEY_INDEX | abi::QP_PORT | abi::QP_QKEY)?;
        // Those that are lent follow when they are given back.
        let here: Vec<u32> = (0..).zip(&self.away).filter(|(_, away)| !**away).map(|(slot, _)| slot).collect();
        self.post_receives(here.into_iter())?;
        self.change(abi::QPS_RTR, 0)?;
        self.change(abi::QPS_RTS, abi::QP_SQ_PSN)?;
        self.broken = false;
        Ok(())
    }

    /// A number for [`QueuePair::push`]: the way to a port of a peer. `None` while that is looked for: on an Ethernet
    /// the kernel asks for the hardware address, and waits up to a second where nobody answers, so a thread does it,
    /// unless the caller knows that the kernel does not wait (`at_once`).
    ///
    /// # Errors The system knows no way there, or there are [`HANDLES_MAX`].
    pub fn handle(&mut self, to: &Destination, at_once: bool) -> Result<Option<u32>, Error> {
        if let Some(&known) = self.numbers.get(to) {
            return Ok(Some(known));
        }
        if let Some(search) = self.searches.get(to) {
            let Some(found) = answer(search, Duration::ZERO) else { return Ok(None) };
            self.searches.remove(to);
            return Ok(Some(self.keep(to, found?)));
        }
        if self.searches.len() >= SEARCHES_MAX {
            self.end_searches();
        }
        match (self.handles.len() + self.searches.len(), self.searches.len()) {
            (HANDLES_MAX.., _) => return Err(Error::System { call: "ibv_create_ah", errno: libc::ENOSPC }),
            (_, SEARCHES_MAX..) => return Ok(None),
            _ => {}
        }
        if at_once {
            let handle = AddressHandle::new(&self.receive_memory.domain, to, self.port, self.own_gid_index)?;
            return Ok(Some(self.keep(to, handle)));
        }
        let search = AddressHandle::look_for(&self.receive_memory.domain, *to, self.port, self.own_gid_index)?;
        let Some(found) = answer(&search, SEARCH_WAIT) else {
            self.searches.insert(*to, search);
            return Ok(None);
        };
        Ok(Some(self.keep(to, found?)))
    }

    fn keep(&mut self, to: &Destination, handle: AddressHandle) -> u32 {
        let number = self.handles.len() as u32;
        self.handles.push(handle);
        self.numbers.insert(*to, number);
        number
    }

    /// Takes in what searches have found that nobody has asked for again.
    fn end_searches(&mut self) {
        for (to, search) in std::mem::take(&mut self.searches) {
            match answer(&search, Duration::ZERO) {
                None => _ = self.searches.insert(to, search),
                Some(Ok(handle)) => _ = self.keep(&to, handle),
                Some(Err(_)) => {}
            }
        }
    }

    /// Memory of its slots, bytes.
    pub fn registered_bytes(&self) -> usize {
        self.send_memory.bytes + self.receive_memory.bytes
    }

    /// Whether all slots are filled or on their way; those that have left are counted first.
    pub fn is_full(&mut self) -> bool {
        if self.filled.wrapping_sub(self.freed) >= self.sends.len() as u32 {
            self.reap();
        }
        self.filled.wrapping_sub(self.freed) >= self.sends.len() as u32
    }

    /// The slot that the next datagram is written to; `None` while all are on their way.
    pub fn slot(&mut self) -> Option<&mut [u8]> {
        if self.is_full() {
            return None;
        }
        let slot = self.filled as usize & (self.sends.len() - 1);
        // SAFETY: the device has done with it: it was never posted, or its send is complete, or the pair has been made
        // anew since.
        Some(unsafe { std::slice::from_raw_parts_mut(self.send_memory.slot(slot).as_ptr(), self.send_memory.slot_bytes) })
    }

    /// The first `bytes` of [`QueuePair::slot`] go to queue pair `number` by `handle`, at the next [`QueuePair::post`].
    pub fn push(&mut self, bytes: usize, handle: u32, number: u32, qkey: u32) {
        assert!(bytes <= self.send_memory.slot_bytes && self.filled.wrapping_sub(self.freed) < self.sends.len() as u32);
        let slot = self.filled as usize & (self.sends.len() - 1);
        let signals = if self.filled % SIGNALS_EACH == SIGNALS_EACH - 1 { abi::SEND_SIGNALED } else { 0 };
        let inline = if bytes <= self.inline_bytes as usize { abi::SEND_INLINE } else { 0 };
        let request = &mut self.sends[slot];
        (request.id, request.flags) = (self.filled.into(), signals | inline);
        (request.handle, request.number, request.qkey) = (self.handles[handle as usize].raw.as_ptr(), number, qkey);
        self.send_pieces[slot].bytes = bytes as u32;
        self.filled = self.filled.wrapping_add(1);
    }

    /// Datagrams that wait for [`QueuePair::post`].
    pub fn waiting(&self) -> u32 {
        self.filled.wrapping_sub(self.posted)
    }

    /// Lets all leave that was pushed. How many the device refused: they are lost.
    pub fn post(&mut self) -> u32 {
        if self.posted == self.filled {
            return 0;
        }
        let (mask, base) = (self.sends.len() - 1, self.sends.as_mut_ptr());
        let mut at = self.posted;
        while at != self.filled {
            let next = at.wrapping_add(1);
            let (this, after) = (at as usize & mask, next as usize & mask);
            // SAFETY: both are of the box, to which nothing else refers here.
            unsafe { (*base.add(this)).next = if next == self.filled { null_mut() } else { base.add(after) } };
            at = next;
        }
        let mut refused: *mut abi::SendRequest = null_mut();
        // SAFETY: as the header's `ibv_post_send`; requests and pieces are whole, the memory is registered and not
        // touched until the completion, handles live as long as the pair.
        let status = unsafe {
            let pair = self.raw.as_ptr();
            ((*(*pair).context).ops.post_send)(pair, base.add(self.posted as usize & mask), &mut refused)
        };
        let whole = self.filled.wrapping_sub(self.posted);
        let taken = match status {
            0 => whole,
            // SAFETY: the library names one of the list.
            _ if !refused.is_null() => (unsafe { refused.offset_from(base) } as u32).wrapping_sub(self.posted) & mask as u32,
            _ => 0,
        };
        let taken = taken.min(whole);
        self.posted = self.posted.wrapping_add(taken);
        self.filled = self.posted;
        whole - taken
    }

    /// Looks which sends are complete.
    pub fn reap(&mut self) {
        loop {
            let count = self.sent.poll(&mut self.looks[..]);
            for done in &self.looks[..count] {
                self.broken |= done.status != 0;
                self.freed = (done.id as u32).wrapping_add(1);
            }
            if count < LOOKS {
                return;
            }
        }
    }

    /// Looks for datagrams. Whether there are any for [`QueuePair::lend`].
    pub fn look(&mut self) -> bool {
        let count = self.received.poll(&mut self.looks[..]);
        for done in &self.looks[..count] {
            let slot = done.id as usize;
            if done.status != 0 || slot >= self.away.len() || self.away[slot] {
                self.broken = true;
                continue;
            }
            self.away[slot] = true;
            let has_grh = done.flags & abi::WC_GRH != 0;
            self.came.push(Came { slot: slot as u32, bytes: done.bytes, from: done.from, lid: done.lid, has_grh });
        }
        !self.came.is_empty()
    }

    /// What [`QueuePair::look`] has found.
    pub fn lend(&mut self) -> Lent {
        let came = std::mem::replace(&mut self.came, std::mem::take(&mut self.spare));
        Lent { region: self.receive_memory.clone(), came }
    }

    /// Takes buffers back, and lets the device fill them again.
    pub fn give_back(&mut self, lent: Lent) {
        assert!(Arc::ptr_eq(&lent.region, &self.receive_memory), "buffers of another pair");
        let mut came = lent.came;
        self.broken |= self.post_receives(came.drain(..).map(|one| one.slot)).is_err();
        self.spare = came;
    }

    fn post_receives(&mut self, slots: impl Iterator<Item = u32>) -> Result<(), Error> {
        let base = self.receives.as_mut_ptr();
        let mut first: *mut abi::ReceiveRequest = null_mut();
        for slot in slots {
            self.away[slot as usize] = false;
            // SAFETY: `away` is as long as the box, to which nothing else refers here.
            unsafe {
                let request = base.add(slot as usize);
                (*request).next = first;
                first = request;
            }
        }
        if first.is_null() {
            return Ok(());
        }
        let mut refused: *mut abi::ReceiveRequest = null_mut();
        // SAFETY: as the header's `ibv_post_recv`; the slots are nobody else's until their completion.
        let status = unsafe {
            let pair = self.raw.as_ptr();
            ((*(*pair).context).ops.post_recv)(pair, first, &mut refused)
        };
        checked("ibv_post_recv", status)
    }

    /// The next datagram, and the next completion of a send where the pair is full, wakes whoever sleeps on the
    /// channel. False where something has come already.
    pub fn arm(&mut self) -> bool {
        let full = self.is_full();
        let armed = self.received.arm() && (!full || self.sent.arm());
        // What has come before may have woken nobody.
        let has_come = self.look() || full && !self.is_full();
        armed && !has_come
    }
}

impl Drop for QueuePair {
    fn drop(&mut self) {
        let functions = self.receive_memory.domain.device.functions;
        // SAFETY: nothing of it is in use: slots that are lent hold their memory themselves. Queues, memory and handles
        // follow.
        unsafe { (functions.destroy_qp)(self.raw.as_ptr()) };
    }
}

/// What a search has found, within `wait`.
fn answer(search: &Search, wait: Duration) -> Option<Result<AddressHandle, Error>> {
    match search.recv_timeout(wait) {
        Ok(found) => Some(found),
        Err(mpsc::RecvTimeoutError::Timeout) => None,
        Err(mpsc::RecvTimeoutError::Disconnected) => Some(Err(Error::System { call: "ibv_create_ah", errno: libc::ECANCELED })),
    }
}

/// A pair that can take no datagrams yet, and how long those may be that are given by value, bytes.
fn make(domain: &Arc<Domain>, sent: &Completions, received: &Completions, limits: &Limits) -> Result<(NonNull<abi::Pair>, u32), Error> {
    // Devices say only by refusing how much they take by value.
    for inline_bytes in [limits.inline_bytes, limits.inline_bytes / 2, 64, 0] {
        let mut wanted = abi::PairRequest {
            context: null_mut(),
            send_queue: sent.raw.as_ptr(),
            receive_queue: received.raw.as_ptr(),
            shared_receives: null_mut(),
            limits: abi::PairLimits { sends: limits.sends, receives: limits.receives, send_pieces: 1, receive_pieces: 1, inline_bytes },
            kind: abi::QPT_UD,
            signals_all: 0,
        };
        // SAFETY: domain and queues live; the request is read and its limits are written during the call.
        if let Some(raw) = NonNull::new(unsafe { (domain.device.functions.create_qp)(domain.raw.as_ptr(), &mut wanted) }) {
            return Ok((raw, wanted.limits.inline_bytes));
        }
    }
    Err(failed("ibv_create_qp for datagrams"))
}
