//! Connections (RC): queue pairs that share one completion queue, one shared receive queue and one pool of registered
//! memory, so that memory belongs to the process and not to its connections.
//!
//! A [`Slot`] is the right to touch a piece of the pool: posting gives it to the device, a completion gives it back.
//! Memory of the program is registered for as long as a [`Lease`] on it lives, and named to the device as [`Registered`].

use std::collections::VecDeque;
use std::ffi::c_int;
use std::ptr::{NonNull, null_mut};
use std::sync::Arc;

use rustc_hash::FxHashMap;

use super::abi;
use super::{Channel, Completions, Destination, Device, Domain, Region, checked, errno, failed};
use crate::Error;

/// What a hub may hold.
#[derive(Clone, Copy, Debug)]
pub struct HubLimits {
    /// Requests of one pair, and of all of them, that have no completion yet.
    pub pair_sends: u32,
    pub sends: u32,
    /// Receives that are posted at once.
    pub receives: u32,
    /// A slot of the pool, bytes, and how many the pool grows by.
    pub slot_bytes: u32,
    pub chunk_slots: u32,
    /// Messages up to so many bytes are given to the device by value, where it takes that.
    pub inline_bytes: u32,
}

/// Completions that are looked at in one call.
const LOOKS: usize = 32;
/// How often a device sends again what is not acknowledged. Some take 7, the most that the field holds, for without end.
pub const RETRIES: u8 = 6;

/// What a work request was, in the upper half of its number; a slot or the owner's own number in the lower.
const RECEIVE: u64 = 0;
const SEND: u64 = 1 << 32;
const BY_VALUE: u64 = 2 << 32;
const MOVE: u64 = 3 << 32;
const PING: u64 = 4 << 32;
/// Pieces of memory that a message is gathered from, at most: a slot, and memory of the program.
const PIECES: u32 = 2;

/// A piece of the pool, which nobody else touches while this is held.
#[derive(PartialEq, Eq, Debug)]
pub struct Slot(u32);

/// A queue pair of a hub.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct PairId(u32);

/// Both ends of a connection, as its queue pair is told of them.
#[derive(Clone, Copy, Debug)]
pub struct Ends {
    pub to: Destination,
    /// The peer's queue pair, and the numbers that the first packets have: the peer's, and ours.
    pub number: u32,
    pub receive_psn: u32,
    pub send_psn: u32,
    /// Longest packet, bytes: a power of two, 256 to 4096.
    pub mtu_bytes: u32,
    /// What is not acknowledged is sent again after 4.096 µs times two to the power of this, at most [`RETRIES`] times.
    pub timeout: u8,
    /// Remote reads that the peer answers, and that it asks for, at once.
    pub reads_out: u8,
    pub reads_in: u8,
}

/// What has happened.
#[derive(Debug)]
pub enum Done {
    /// A message of `bytes` lies in the slot.
    Received { pair: PairId, slot: Slot, bytes: usize },
    /// What was sent is acknowledged.
    Sent,
    /// The same, of what was gathered from memory that is the program's again.
    Gathered { id: u32 },
    /// All bytes of a remote read are there, or all bytes of a remote write.
    Moved { id: u32 },
    /// The connection is broken: said once.
    Failed { pair: PairId, why: &'static str },
}

/// Who has a slot.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Holder {
    /// The pool, or whoever has the [`Slot`].
    Us,
    Receives,
    Pair(PairId),
    /// The same, with memory of the program behind it.
    Gathering(PairId, u32),
}

impl Holder {
    fn is_of(self, pair: PairId) -> bool {
        matches!(self, Holder::Pair(of) | Holder::Gathering(of, _) if of == pair)
    }
}

#[derive(Debug)]
struct Pair {
    raw: NonNull<abi::Pair>,
    number: u32,
    inline_bytes: u32,
    /// Of a message, at most.
    pieces: u32,
    outstanding: u32,
    broken: bool,
    /// Signs of life of the peer, and those of it that are asked for.
    heard: u32,
    pings: u32,
    /// Something has been sent since a sign of life was last asked for.
    unconfirmed: bool,
    /// Where it is read, on iWARP.
    pulse: Pulse,
}

/// A word that peers may read for a sign of life, where devices want one.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Pulse {
    pub address: u64,
    pub key: u32,
}

/// Bytes of such a word, and of the place that it is read into.
const PULSE_BYTES: usize = 64;
const PULSE_READ_BYTES: u32 = 8;

pub struct Hub {
    pairs: Vec<Option<Pair>>,
    numbers: FxHashMap<u32, PairId>,
    receives: NonNull<abi::SharedReceives>,
    posted_receives: u32,
    outstanding: u32,
    limits: HubLimits,
    port: u8,
    own_gid_index: u8,
    completions: Completions,
    looks: Box<[abi::WorkCompletion; LOOKS]>,
    /// Of these, so many are there, and so many have been taken.
    looked: usize,
    taken: usize,
    /// Those before them, which were there when a pair ended.
    kept: VecDeque<abi::WorkCompletion>,
    chunks: Vec<Region>,
    /// Of iWARP: the word that peers read, and where theirs is read into. Nobody looks at what is there.
    pulse: Option<Region>,
    holders: Vec<Holder>,
    free: Vec<Slot>,
    domain: Arc<Domain>,
}

// SAFETY: the library's objects may be used from any thread, and one at a time drives the hub.
unsafe impl Send for Hub {}

impl std::fmt::Debug for Hub {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Hub").field("pairs", &self.numbers.len()).field("slots", &self.holders.len()).finish()
    }
}

impl Hub {
    /// Without pairs and without memory, on `port` of a device; its completions wake `channel`.
    ///
    /// # Errors
    /// The device refuses.
    pub fn new(device: &Arc<Device>, channel: &Arc<Channel>, port: u8, own_gid_index: u8, limits: HubLimits) -> Result<Hub, Error> {
        let domain = Arc::new(Domain::new(device.clone())?);
        let pulse = match device.is_iwarp {
            true => Some(Region::with(&domain, 2, PULSE_BYTES, abi::ACCESS_LOCAL_WRITE | abi::ACCESS_REMOTE_WRITE | abi::ACCESS_REMOTE_READ)?),
            false => None,
        };
        let completions = Completions::new(channel, limits.sends + limits.receives)?;
        let mut wanted = abi::SharedReceivesRequest { context: null_mut(), receives: limits.receives, pieces: 1, limit: 0 };
        // SAFETY: the domain lives; the request is read and written during the call.
        let receives = unsafe { (device.functions.create_srq)(domain.raw.as_ptr(), &mut wanted) };
        Ok(Hub {
            pairs: Vec::new(),
            numbers: FxHashMap::default(),
            receives: NonNull::new(receives).ok_or_else(|| failed("ibv_create_srq"))?,
            posted_receives: 0,
            outstanding: 0,
            limits,
            port,
            own_gid_index,
            completions,
            looks: Box::new([abi::WorkCompletion::default(); LOOKS]),
            looked: 0,
            taken: 0,
            kept: VecDeque::new(),
            chunks: Vec::new(),
            pulse,
            holders: Vec::new(),
            free: Vec::new(),
            domain,
        })
    }

    /// Registers memory of the program.
    pub fn registrar(&self) -> Registrar {
        Registrar { domain: self.domain.clone() }
    }

    /// Adds a chunk to the pool.
    ///
    /// # Errors
    /// There is no memory that the device may lock.
    pub fn grow(&mut self) -> Result<(), Error> {
        self.chunks.push(Region::new(&self.domain, self.limits.chunk_slots as usize, self.limits.slot_bytes as usize)?);
        let first = self.holders.len() as u32;
        self.holders.resize(self.holders.len() + self.limits.chunk_slots as usize, Holder::Us);
        self.free.extend((first..first + self.limits.chunk_slots).map(Slot));
        Ok(())
    }

    /// Memory of the pool, bytes.
    pub fn pool_bytes(&self) -> usize {
        self.holders.len() * self.limits.slot_bytes as usize
    }

    /// A slot that nobody has, if the pool has one.
    pub fn take(&mut self) -> Option<Slot> {
        self.free.pop()
    }

    pub fn has_slot(&self) -> bool {
        !self.free.is_empty()
    }

    pub fn bytes(&mut self, slot: &mut Slot) -> &mut [u8] {
        let place = self.place(slot);
        // SAFETY: inside its chunk, which nothing unmaps; whoever has the slot is the only one to touch it, and it is
        // borrowed as long as the bytes are.
        unsafe { std::slice::from_raw_parts_mut(place.as_ptr(), self.limits.slot_bytes as usize) }
    }

    fn place(&self, slot: &Slot) -> NonNull<u8> {
        let each = self.limits.chunk_slots as usize;
        self.chunks[slot.0 as usize / each].slot(slot.0 as usize % each)
    }

    fn piece(&self, slot: &Slot, bytes: usize) -> abi::Piece {
        let chunk = &self.chunks[slot.0 as usize / self.limits.chunk_slots as usize];
        abi::Piece { address: self.place(slot).as_ptr() as u64, bytes: bytes as u32, lkey: chunk.lkey() }
    }

    /// Receives that are posted.
    pub fn posted_receives(&self) -> u32 {
        self.posted_receives
    }

    /// Lets the device fill a slot with what comes for any pair.
    ///
    /// # Errors
    /// It refuses, or has all that it may have.
    pub fn post_receive(&mut self, slot: Slot) -> Result<(), Error> {
        if self.posted_receives == self.limits.receives {
            self.free.push(slot);
            return Err(Error::System { call: "ibv_post_srq_recv", errno: libc::ENOMEM });
        }
        let mut piece = self.piece(&slot, self.limits.slot_bytes as usize);
        let mut request = abi::ReceiveRequest { id: RECEIVE | u64::from(slot.0), next: null_mut(), pieces: &mut piece, count: 1 };
        let mut refused = null_mut();
        // SAFETY: as the header's `ibv_post_srq_recv`; nobody has the slot until its completion.
        let status = unsafe {
            let receives = self.receives.as_ptr();
            ((*(*receives).context).ops.post_srq_recv)(receives, &mut request, &mut refused)
        };
        checked("ibv_post_srq_recv", status)?;
        self.holders[slot.0 as usize] = Holder::Receives;
        self.posted_receives += 1;
        Ok(())
    }

    /// A queue pair that speaks to nobody yet.
    ///
    /// # Errors
    /// The device refuses.
    pub fn open(&mut self) -> Result<PairId, Error> {
        let pair = self.make()?;
        let id = PairId(self.pairs.iter().position(Option::is_none).unwrap_or(self.pairs.len()) as u32);
        self.numbers.insert(pair.number, id);
        match self.pairs.get_mut(id.0 as usize) {
            Some(place) => *place = Some(pair),
            None => self.pairs.push(Some(pair)),
        }
        // The connection manager does the rest.
        let mask = if self.domain.device.is_iwarp { abi::QP_ACCESS_FLAGS } else { abi::QP_PKEY_INDEX | abi::QP_PORT | abi::QP_ACCESS_FLAGS };
        let begun = self.change(id, abi::QPS_INIT, mask, |wanted| wanted.access = abi::ACCESS_REMOTE_READ | abi::ACCESS_REMOTE_WRITE);
        if let Err(error) = begun {
            self.close(id);
            return Err(error);
        }
        Ok(id)
    }

    fn make(&self) -> Result<Pair, Error> {
        // Devices say only by refusing how much they take by value.
        let inline = [self.limits.inline_bytes, self.limits.inline_bytes / 2, 64, 0];
        for (send_pieces, inline_bytes) in [PIECES, 1].into_iter().flat_map(|pieces| inline.map(|bytes| (pieces, bytes))) {
            let mut wanted = abi::PairRequest {
                context: null_mut(),
                send_queue: self.completions.raw.as_ptr(),
                receive_queue: self.completions.raw.as_ptr(),
                shared_receives: self.receives.as_ptr(),
                limits: abi::PairLimits { sends: self.limits.pair_sends, receives: 0, send_pieces, receive_pieces: 1, inline_bytes },
                kind: abi::QPT_RC,
                signals_all: 1,
            };
            let functions = self.domain.device.functions;
            // SAFETY: domain and queues live; the request is read and its limits are written during the call.
            if let Some(raw) = NonNull::new(unsafe { (functions.create_qp)(self.domain.raw.as_ptr(), &mut wanted) }) {
                // SAFETY: the pair was just made.
                let number = unsafe { (*raw.as_ptr()).number };
                let (pieces, inline_bytes) = (wanted.limits.send_pieces, wanted.limits.inline_bytes);
                return Ok(Pair {
                    raw,
                    number,
                    inline_bytes,
                    pieces,
                    outstanding: 0,
                    broken: false,
                    heard: 0,
                    pings: 0,
                    unconfirmed: false,
                    pulse: Pulse::default(),
                });
            }
        }
        Err(failed("ibv_create_qp for a connection"))
    }

    fn pair(&self, id: PairId) -> &Pair {
        self.pairs[id.0 as usize].as_ref().expect("a pair that is open")
    }

    fn pair_mut(&mut self, id: PairId) -> &mut Pair {
        self.pairs[id.0 as usize].as_mut().expect("a pair that is open")
    }

    /// What peers know a pair by.
    pub fn number(&self, id: PairId) -> u32 {
        self.pair(id).number
    }

    /// Messages up to so many bytes may go by [`Hub::send_by_value`].
    pub fn inline_bytes(&self, id: PairId) -> usize {
        self.pair(id).inline_bytes as usize
    }

    /// Whether a message may have memory of the program behind its slot: [`Hub::send_gathered`].
    pub fn gathers(&self, id: PairId) -> bool {
        self.pair(id).pieces >= PIECES
    }

    /// Requests of a pair that have no completion yet.
    pub fn outstanding(&self, id: PairId) -> u32 {
        self.pair(id).outstanding
    }

    /// Counts what has come from the peer or its device, and wraps. What is sent is no sign of life where a device's own software
    /// stands between (TCP, for iWARP).
    pub fn heard(&self, id: PairId) -> u32 {
        self.pair(id).heard
    }

    /// A sign of life has been asked for, and has not come.
    pub fn is_pinging(&self, id: PairId) -> bool {
        self.pair(id).pings > 0
    }

    /// A sign of life that was asked for after all sends has come: they have arrived.
    pub fn is_confirmed(&self, id: PairId) -> bool {
        !self.pair(id).unconfirmed && self.pair(id).pings == 0
    }

    fn change(&mut self, id: PairId, state: i32, mask: i32, fill: impl FnOnce(&mut abi::PairAttributes)) -> Result<(), Error> {
        // SAFETY: plain numbers, for which 0 is a value.
        let mut wanted: abi::PairAttributes = unsafe { std::mem::zeroed() };
        (wanted.state, wanted.port) = (state, self.port);
        fill(&mut wanted);
        // SAFETY: the pair lives; the attributes are read during the call.
        let status = unsafe { (self.domain.device.functions.modify_qp)(self.pair(id).raw.as_ptr(), &mut wanted, abi::QP_STATE | mask) };
        checked("ibv_modify_qp of a connection", status)
    }

    /// Ties a pair to its peer's: what that sends from now on is taken in.
    ///
    /// # Errors
    /// The system knows no way there.
    pub fn receive_from(&mut self, id: PairId, ends: &Ends) -> Result<(), Error> {
        let (port, own_gid_index) = (self.port, self.own_gid_index);
        let mask = abi::QP_AV | abi::QP_PATH_MTU | abi::QP_DEST_QPN | abi::QP_RQ_PSN | abi::QP_MAX_DEST_RD_ATOMIC | abi::QP_MIN_RNR_TIMER;
        self.change(id, abi::QPS_RTR, mask, |wanted| {
            wanted.to = ends.to.attributes(port, own_gid_index);
            wanted.path_mtu = ends.mtu_bytes.ilog2() as i32 - 7;
            (wanted.destination, wanted.receive_psn, wanted.reads_in) = (ends.number, ends.receive_psn, ends.reads_in);
            // 0.01 ms.
            wanted.min_rnr_timer = 1;
        })
    }

    /// The peer's pair is tied to this one: messages may leave.
    ///
    /// # Errors
    /// The device refuses.
    pub fn send_to(&mut self, id: PairId, ends: &Ends) -> Result<(), Error> {
        let mask = abi::QP_SQ_PSN | abi::QP_TIMEOUT | abi::QP_RETRY_CNT | abi::QP_RNR_RETRY | abi::QP_MAX_QP_RD_ATOMIC;
        self.change(id, abi::QPS_RTS, mask, |wanted| {
            (wanted.send_psn, wanted.timeout, wanted.reads_out) = (ends.send_psn, ends.timeout, ends.reads_out);
            (wanted.retries, wanted.rnr_retries) = (RETRIES, 7);
        })
    }

    /// As if the device had given the pair up.
    #[cfg(test)]
    pub fn fail(&mut self, id: PairId) {
        self.change(id, abi::QPS_ERR, 0, |_| ()).unwrap();
    }

    /// Ends a pair. The device touches none of what was posted for it after this.
    pub fn close(&mut self, id: PairId) {
        if self.pairs[id.0 as usize].is_none() {
            return;
        }
        // Devices' libraries may drop the completions of a pair that ends, and with them slots of the shared receive queue. A pair that cannot be put into
        // this state has nothing more to say.
        let _ = self.change(id, abi::QPS_ERR, 0, |_| ());
        self.look_ahead();
        let Some(pair) = self.pairs[id.0 as usize].take() else { return };
        self.numbers.remove(&pair.number);
        self.outstanding -= pair.outstanding;
        // SAFETY: it is used no more; what its completions name is looked up by its number, which is gone.
        unsafe { (self.domain.device.functions.destroy_qp)(pair.raw.as_ptr()) };
        // Its number may be that of the next pair.
        self.look_ahead();
        let (own, kept) = std::mem::take(&mut self.kept).into_iter().partition(|done: &abi::WorkCompletion| done.number == pair.number);
        self.kept = kept;
        let own: VecDeque<abi::WorkCompletion> = own;
        for done in &own {
            self.completed(done);
        }
        for (index, holder) in self.holders.iter_mut().enumerate().filter(|(_, holder)| holder.is_of(id)) {
            *holder = Holder::Us;
            self.free.push(Slot(index as u32));
        }
    }

    /// Keeps all completions that are there for later.
    fn look_ahead(&mut self) {
        loop {
            self.kept.extend(&self.looks[self.taken..self.looked]);
            (self.taken, self.looked) = (0, self.completions.poll(&mut self.looks[..]));
            if self.looked == 0 {
                return;
            }
        }
    }

    /// Leaves a pair, whose end would have to be waited for, and its device to the end of the process.
    pub fn leave(&mut self, id: PairId) {
        if let Some(pair) = self.pairs[id.0 as usize].take() {
            self.numbers.remove(&pair.number);
            self.outstanding -= pair.outstanding;
            std::mem::forget(self.domain.device.clone());
        }
    }

    /// Whether a pair may be given `requests` more.
    pub fn has_room(&self, id: PairId, requests: u32) -> bool {
        let pair = self.pair(id);
        !pair.broken && pair.outstanding + requests <= self.limits.pair_sends && self.outstanding + requests <= self.limits.sends
    }

    /// Whether a pair may be given a message of so many bytes by value.
    #[inline]
    pub fn may_send_by_value(&self, id: PairId, bytes: usize) -> bool {
        bytes <= self.inline_bytes(id) && self.has_room(id, 1)
    }

    /// Whether the device took it.
    fn post(&mut self, id: PairId, mut request: abi::SendRequest, pieces: &mut [abi::Piece]) -> bool {
        assert!(self.has_room(id, 1), "a pair with all that it may have");
        if !pieces.is_empty() {
            (request.pieces, request.count) = (pieces.as_mut_ptr(), pieces.len() as c_int);
        }
        let mut refused = null_mut();
        let pair = self.pair_mut(id);
        // SAFETY: as the header's `ibv_post_send`; what it points to outlives the call, and the memory behind it is
        // registered or taken by value.
        let status = unsafe {
            let raw = pair.raw.as_ptr();
            ((*(*raw).context).ops.post_send)(raw, &mut request, &mut refused)
        };
        if status == 0 {
            pair.outstanding += 1;
            match request.operation {
                abi::WR_SEND => pair.unconfirmed = true,
                _ if request.id == PING => (pair.pings, pair.unconfirmed) = (pair.pings + 1, false),
                _ => {}
            }
            self.outstanding += 1;
        }
        status == 0
    }

    /// Sends the first `bytes` of a slot, which comes back by itself. False where the device refuses: the connection
    /// cannot go on.
    ///
    /// # Panics
    /// Where there is no room ([`Hub::has_room`]).
    pub fn send(&mut self, id: PairId, slot: Slot, bytes: usize) -> bool {
        assert!(bytes <= self.limits.slot_bytes as usize);
        let piece = self.piece(&slot, bytes);
        self.post_slot(id, slot, &mut [piece], Holder::Pair(id))
    }

    /// As [`Hub::send`], with `body` behind the slot's bytes. [`Done::Gathered`] says `number` when the body is the program's again; where the connection
    /// ends before that, it is after [`Hub::close`].
    ///
    /// # Panics
    /// Where there is no room, or the pair does not gather ([`Hub::gathers`]).
    ///
    /// # Safety
    /// `body` must stay as it is until then.
    pub unsafe fn send_gathered(&mut self, id: PairId, slot: Slot, bytes: usize, body: &Registered, number: u32) -> bool {
        assert!(bytes <= self.limits.slot_bytes as usize && self.gathers(id));
        let pieces = &mut [self.piece(&slot, bytes), body.piece(0, body.bytes)];
        self.post_slot(id, slot, pieces, Holder::Gathering(id, number))
    }

    fn post_slot(&mut self, id: PairId, slot: Slot, pieces: &mut [abi::Piece], holder: Holder) -> bool {
        let request = abi::SendRequest { id: SEND | u64::from(slot.0), flags: abi::SEND_SIGNALED, ..abi::SendRequest::EMPTY };
        let posted = self.post(id, request, pieces);
        match posted {
            true => self.holders[slot.0 as usize] = holder,
            false => self.free.push(slot),
        }
        posted
    }

    /// As [`Hub::send`], of bytes that are the caller's again when this returns.
    ///
    /// # Panics
    /// Where there is no room, or for more than [`Hub::inline_bytes`].
    pub fn send_by_value(&mut self, id: PairId, bytes: &[u8]) -> bool {
        assert!(bytes.len() <= self.inline_bytes(id));
        let piece = abi::Piece { address: bytes.as_ptr() as u64, bytes: bytes.len() as u32, lkey: 0 };
        let request = abi::SendRequest { id: BY_VALUE, flags: abi::SEND_SIGNALED | abi::SEND_INLINE, ..abi::SendRequest::EMPTY };
        self.post(id, request, &mut [piece])
    }

    /// The word that peers read for a sign of life.
    pub fn pulse(&self) -> Pulse {
        self.pulse.as_ref().map_or(Pulse::default(), |region| Pulse { address: region.slot(0).as_ptr() as u64, key: region.rkey() })
    }

    /// The word that the peer of a pair has for that.
    pub fn set_pulse(&mut self, id: PairId, pulse: Pulse) {
        self.pair_mut(id).pulse = pulse;
    }

    /// Asks the peer's device for a sign of life: a remote read of nothing, or of a word where that is not safe, which its process does not
    /// notice.
    ///
    /// # Panics
    /// Where there is no room.
    pub fn ping(&mut self, id: PairId) -> bool {
        let mut request = abi::SendRequest { id: PING, flags: abi::SEND_SIGNALED, operation: abi::WR_RDMA_READ, ..abi::SendRequest::EMPTY };
        let Pulse { address, key } = self.pair(id).pulse;
        // The kernel's soft iWARP answers a read of nothing that waits behind another one with as much as that.
        let mut word = self.pulse.as_ref().map(|own| {
            request.set_remote(address, key);
            abi::Piece { address: own.slot(1).as_ptr() as u64, bytes: PULSE_READ_BYTES, lkey: own.lkey() }
        });
        self.post(id, request, word.as_mut_slice())
    }

    /// Reads `bytes` of the peer's memory at `address` into `into`, from `offset` on; [`Done::Moved`] says `read`.
    ///
    /// # Panics
    /// Where there is no room, or past the end of `into`.
    ///
    /// # Safety
    /// `into` must be nobody else's until then, or until [`Hub::close`].
    #[allow(clippy::too_many_arguments)]
    pub unsafe fn read(&mut self, id: PairId, read: u32, into: &Registered, offset: usize, bytes: u32, address: u64, key: u32) -> bool {
        self.move_bytes(id, abi::WR_RDMA_READ, read, into.piece(offset, bytes as usize), address, key)
    }

    /// Writes `bytes` of `from`, from `offset` on, into the peer's memory at `address`; [`Done::Moved`] says `write`. What is sent after it arrives after it.
    ///
    /// # Panics
    /// Where there is no room, or past the end of `from`.
    ///
    /// # Safety
    /// `from` must stay as it is until then, or until [`Hub::close`].
    #[allow(clippy::too_many_arguments)]
    pub unsafe fn write(&mut self, id: PairId, write: u32, from: &Registered, offset: usize, bytes: u32, address: u64, key: u32) -> bool {
        self.move_bytes(id, abi::WR_RDMA_WRITE, write, from.piece(offset, bytes as usize), address, key)
    }

    fn move_bytes(&mut self, id: PairId, operation: c_int, number: u32, piece: abi::Piece, address: u64, key: u32) -> bool {
        let mut request = abi::SendRequest { id: MOVE | u64::from(number), flags: abi::SEND_SIGNALED, operation, ..abi::SendRequest::EMPTY };
        request.set_remote(address, key);
        self.post(id, request, &mut [piece])
    }

    /// The next thing that has happened, if anything has.
    pub fn poll(&mut self) -> Option<Done> {
        loop {
            let done = if let Some(done) = self.kept.pop_front() {
                done
            } else {
                if self.taken == self.looked {
                    (self.taken, self.looked) = (0, self.completions.poll(&mut self.looks[..]));
                    if self.looked == 0 {
                        return None;
                    }
                }
                self.taken += 1;
                self.looks[self.taken - 1]
            };
            if let Some(done) = self.completed(&done) {
                return Some(done);
            }
        }
    }

    fn completed(&mut self, done: &abi::WorkCompletion) -> Option<Done> {
        let (kind, index) = (done.id & !u64::from(u32::MAX), done.id as u32);
        let known = self.numbers.get(&done.number).copied();
        let well = done.status == 0;
        let mut came = None;
        if kind == RECEIVE && self.holders.get(index as usize) == Some(&Holder::Receives) {
            self.holders[index as usize] = Holder::Us;
            self.posted_receives -= 1;
            match known {
                Some(pair) if well => {
                    came = Some(Done::Received { pair, slot: Slot(index), bytes: (done.bytes as usize).min(self.limits.slot_bytes as usize) })
                }
                // Of a connection that is gone, or that is going.
                _ => _ = self.post_receive(Slot(index)),
            }
        }
        let id = known?;
        let mut gathered = None;
        if kind == SEND
            && let Some(holder) = self.holders.get_mut(index as usize)
            && holder.is_of(id)
        {
            if let Holder::Gathering(_, number) = *holder {
                gathered = Some(number);
            }
            *holder = Holder::Us;
            self.free.push(Slot(index));
        }
        let pair = self.pair_mut(id);
        if well && matches!(kind, RECEIVE | MOVE | PING) {
            pair.heard = pair.heard.wrapping_add(1);
        }
        if kind != RECEIVE {
            pair.pings -= u32::from(kind == PING);
            pair.outstanding = pair.outstanding.saturating_sub(1);
            self.outstanding = self.outstanding.saturating_sub(1);
        }
        if !well {
            let pair = self.pair_mut(id);
            return (!std::mem::replace(&mut pair.broken, true)).then_some(Done::Failed { pair: id, why: words(done.status) });
        }
        match kind {
            RECEIVE => came,
            MOVE => Some(Done::Moved { id: index }),
            _ => Some(gathered.map_or(Done::Sent, |id| Done::Gathered { id })),
        }
    }

    /// The next completion wakes whoever sleeps on the channel. False where something has happened already.
    pub fn arm(&mut self) -> bool {
        let armed = self.completions.arm();
        // What has come before may have woken nobody.
        if self.taken == self.looked {
            (self.taken, self.looked) = (0, self.completions.poll(&mut self.looks[..]));
        }
        armed && self.looked == 0 && self.kept.is_empty()
    }
}

impl Drop for Hub {
    fn drop(&mut self) {
        (0..self.pairs.len()).for_each(|index| self.close(PairId(index as u32)));
        // SAFETY: no pair uses it any more. The memory, the completion queue and the domain follow.
        unsafe { (self.domain.device.functions.destroy_srq)(self.receives.as_ptr()) };
    }
}

/// `enum ibv_wc_status`, as far as connections meet it.
fn words(status: i32) -> &'static str {
    match status {
        1..=3 | 6 => "a message does not fit its buffer, or the queue pair is not as it should be",
        4 | 8 => "memory is not registered as it should be",
        5 => "the queue pair has been given up",
        9 | 11 => "the peer's device refused a request",
        10 => "the peer's device refused access to its memory",
        12 => "the peer's device does not answer",
        13 => "the peer posts no receives",
        21 => "the device has failed",
        _ => "the device reports an error",
    }
}

/// Who may touch registered memory beside this process.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Access {
    /// The device, to put there what this process reads from a peer.
    Local,
    /// Peers may read it, and the device may send from it.
    RemoteRead,
    /// Peers may write it.
    RemoteWrite,
    /// All of these.
    All,
}

/// The one place that registers memory of the program. Each lease is a registration of its own.
#[derive(Clone, Debug)]
pub struct Registrar {
    domain: Arc<Domain>,
}

/// A registration: it ends when this is dropped.
#[derive(Debug)]
pub struct Lease {
    raw: NonNull<abi::MemoryRegion>,
    domain: Arc<Domain>,
}

// SAFETY: the library's objects may be used from any thread.
unsafe impl Send for Lease {}

/// What a registration is known by: to its device, and to peers. The device refuses both once it has ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Keys {
    lkey: u32,
    pub rkey: u32,
}

/// Memory of the program that is registered, as the device is told of it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Registered {
    pub address: u64,
    pub bytes: usize,
    pub keys: Keys,
}

impl Registered {
    /// # Panics
    /// Past its end.
    fn piece(&self, offset: usize, bytes: usize) -> abi::Piece {
        assert!(offset.checked_add(bytes).is_some_and(|end| end <= self.bytes));
        abi::Piece { address: self.address + offset as u64, bytes: bytes as u32, lkey: self.keys.lkey }
    }
}

impl Registrar {
    /// For memory that no connection uses.
    ///
    /// # Errors
    /// The device refuses.
    pub fn of(device: &Arc<Device>) -> Result<Registrar, Error> {
        Ok(Registrar { domain: Arc::new(Domain::new(device.clone())?) })
    }

    /// # Errors
    /// The system locks no more memory, or none of this kind.
    ///
    /// # Safety
    /// For as long as the lease lives peers that are told its key may read or write what is there, as `access` says. The pages are those that are there now; where the
    /// program's memory at these addresses changes meanwhile, the device has the old ones.
    pub unsafe fn lease(&self, start: *mut u8, bytes: usize, access: Access) -> Result<Lease, Error> {
        let flags = match access {
            // There what is read comes as a remote write.
            Access::Local if self.domain.device.is_iwarp => abi::ACCESS_LOCAL_WRITE | abi::ACCESS_REMOTE_WRITE,
            Access::Local => abi::ACCESS_LOCAL_WRITE,
            Access::RemoteRead => abi::ACCESS_REMOTE_READ,
            Access::RemoteWrite => abi::ACCESS_LOCAL_WRITE | abi::ACCESS_REMOTE_WRITE,
            Access::All => abi::ACCESS_LOCAL_WRITE | abi::ACCESS_REMOTE_READ | abi::ACCESS_REMOTE_WRITE,
        };
        let raw = (self.domain.device.functions.reg_mr)(self.domain.raw.as_ptr(), start.cast(), bytes, flags);
        let refused = || Error::Memory { what: "a verbs device, which locks it (ulimit -l)", bytes: bytes as u64, errno: errno() };
        Ok(Lease { raw: NonNull::new(raw).ok_or_else(refused)?, domain: self.domain.clone() })
    }
}

impl Lease {
    pub fn keys(&self) -> Keys {
        // SAFETY: it is registered.
        unsafe { Keys { lkey: (*self.raw.as_ptr()).lkey, rkey: (*self.raw.as_ptr()).rkey } }
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        // SAFETY: it is registered; the device does not touch it after this.
        unsafe { (self.domain.device.functions.dereg_mr)(self.raw.as_ptr()) };
    }
}
