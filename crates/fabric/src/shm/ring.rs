//! One direction between two processes: a ring of cache lines, and a ring of bytes beside it for what does not fit in a line.
//!
//! A slot is one line: header, up to 48 bytes of payload, and the phase bit that says it is there. The phase of a lap differs from that
//! of the lap before, so nothing has to be cleared. The receiver polls the line that it will read; the sender looks at the receiver's
//! counters only when the ring seems full. Everything read from the peer is checked before it is used.
//!
//! A long body has a slot for each of its pieces, all but the first of them empty: the phase of such a slot says that its piece is there, so that
//! the receiver copies one piece while the sender writes the next.

use super::stores::{self, Begun, Reading, STREAMING_BYTES_MIN, Stores, Trials};
use crate::Body;
#[cfg(loom)]
use loom::sync::atomic::{AtomicU64, Ordering};
#[cfg(not(loom))]
use std::sync::atomic::{AtomicU64, Ordering};

/// Payload bytes in a slot.
pub const INLINE_BYTES: usize = 48;
/// Words before a body that is not inline.
pub const WORDS_WITH_BULK: usize = 4;

/// The word with a body's length has this part above it: 0, or with which stores a trial has written its beginning; and below that whether streaming stores have
/// written the rest.
const TRIAL_SHIFT: u32 = 62;
const STREAMED: u64 = 1 << 61;
const TRIED: [Stores; 2] = [Stores::Ordinary, Stores::Streaming];

/// How far ahead of the packet at hand lines are asked for in a stream of packets.
const PREFETCH_SLOTS: u64 = 4;

const PHASE: u64 = 1;
const BULK: u64 = 2;
/// With a body beside the slots, the bits of the low byte from here on count the slots that follow for its other pieces.
const FURTHER_SHIFT: u32 = 2;
const FURTHER_MAX: usize = 63;

/// Bodies of at least two of these go in pieces of about that size: long beside what one more line costs (two transfers between cores), and short beside
/// what lies between the caches of the two.
const PIECE_BYTES: usize = if cfg!(any(test, loom)) { 64 } else { 8 << 10 };
/// Of longer bodies a quarter, up to this: long pieces are copied in more streams.
const LONG_PIECE_BYTES: usize = 2 * PIECE_BYTES;
/// A shorter body is read as it comes: what would be fetched ahead of it is little.
const FROM_END_BYTES_MIN: u64 = 768;
/// Of a body, the last lines are asked for as soon as it is seen, those of so many bytes: about as many as can be under way.
const FETCHED_BYTES_MAX: u64 = 1 << 10;
/// A body that long at most, for which its receiver waits, is moved out of its writer's cache towards that of its reader.
const DEMOTED_BYTES_MAX: usize = 1 << 10;
/// A process that waits asks for the lines that its next bodies go to: so many between two looks, about as many as can be under way; for so many times
/// what it has written since it waited last, for what follows that may be more; and at most so many bytes, which a core's caches hold.
const OWNED_PER_LOOK: u64 = 16;
const OWNED_TIMES: u64 = 4;
const OWNED_BYTES_MAX: u64 = 64 << 10;
/// Of the ring's slots, one body takes at most this share.
const SLOTS_SHARE: usize = 4;

/// A ring whose sender has filled it so often is given twice its memory: a pair that uses it. Once it has grown, so many laps more are enough.
const LAPS_BEFORE_GROWTH: u64 = 16;
const LAPS_BETWEEN: u64 = 4;

/// Where the first body lies after a ring of `small` bytes, of whose bytes so many have been used since the start, has grown to `big`: behind all that lay
/// in the small one, which may not have been read yet. Both sides compute the same.
#[inline]
fn position_after_growth(used: u64, small: u64, big: u64) -> u64 {
    used.next_multiple_of(big) + small
}

/// Length of the pieces of a body, but for the last one. Both sides compute the same.
#[inline]
fn piece_bytes(bytes: usize, pieces: usize) -> usize {
    bytes.div_ceil(pieces).next_multiple_of(64)
}

/// One cache line.
#[repr(C, align(64))]
#[derive(Debug)]
#[cfg_attr(loom, derive(Default))]
pub struct Slot {
    words: [AtomicU64; 8],
}

/// What the receiver tells the sender: how far it has read. One cache line, written by the receiver only.
#[repr(C, align(64))]
#[derive(Debug)]
#[cfg_attr(loom, derive(Default))]
pub struct Returns {
    slots: AtomicU64,
    bulk: AtomicU64,
    credit: AtomicU64,
    /// A [`Reading`] for each class of lengths.
    readings: [AtomicU64; stores::CLASSES],
    unused: AtomicU64,
}

#[cfg(not(loom))]
// SAFETY: made of atomics only.
unsafe impl super::sys::Atomics for Slot {}
#[cfg(not(loom))]
// SAFETY: made of atomics only.
unsafe impl super::sys::Atomics for Returns {}

/// The bytes beside the slots. `offset` is always within `len()`; ranges do not wrap.
#[allow(clippy::len_without_is_empty)]
pub trait Bulk {
    type Part;
    fn len(&self) -> usize;
    /// Copies bytes `from..from + bytes` of the body to place `offset`.
    ///
    /// # Safety
    /// The range must be inside the body.
    unsafe fn write(&self, offset: usize, body: &Body, from: usize, bytes: usize);
    /// As [`Bulk::write`], by streaming stores where there are some. `offset` is a multiple of 64.
    ///
    /// # Safety
    /// As there.
    unsafe fn stream(&self, offset: usize, body: &Body, from: usize, bytes: usize) {
        // SAFETY: the caller's promise.
        unsafe { self.write(offset, body, from, bytes) }
    }
    /// Waits until all that was written can be seen, and tells the time, ticks of any length; always 0 where nothing can be measured.
    fn ticks(&self) -> u64 {
        0
    }
    /// Looks at each line of a range, and tells how many ticks that takes.
    fn touch(&self, offset: usize, bytes: usize) -> u64 {
        let _ = (offset, bytes);
        0
    }
    /// Asks for the lines of a range that is going to be read. A hint.
    #[inline(always)]
    fn fetch(&self, offset: usize, bytes: usize) {
        let _ = (offset, bytes);
    }
    /// Asks for the line at `offset`, which is going to be written. A hint.
    #[inline(always)]
    fn own(&self, offset: usize) {
        let _ = offset;
    }
    /// Moves the lines of a range, which have been written, towards other cores' caches. A hint.
    #[inline(always)]
    fn demote(&self, offset: usize, bytes: usize) {
        let _ = (offset, bytes);
    }
    fn part(&self, offset: usize, bytes: usize) -> Self::Part;
}

#[cfg(not(loom))]
impl Bulk for super::sys::Area {
    type Part = super::sys::Area;
    fn len(&self) -> usize {
        super::sys::Area::len(self)
    }
    #[inline]
    unsafe fn write(&self, offset: usize, body: &Body, from: usize, bytes: usize) {
        self.part(offset, bytes).fill(body, from);
    }
    #[inline]
    unsafe fn stream(&self, offset: usize, body: &Body, from: usize, bytes: usize) {
        self.part(offset, bytes).stream(body, from);
    }
    fn ticks(&self) -> u64 {
        super::sys::ticks()
    }
    #[cold]
    fn touch(&self, offset: usize, bytes: usize) -> u64 {
        self.part(offset, bytes).touch()
    }
    #[inline(always)]
    fn fetch(&self, offset: usize, bytes: usize) {
        self.part(offset, bytes).fetch();
    }
    #[inline(always)]
    fn own(&self, offset: usize) {
        self.part(offset, 0).own();
    }
    #[inline(always)]
    fn demote(&self, offset: usize, bytes: usize) {
        self.part(offset, bytes).demote();
    }
    fn part(&self, offset: usize, bytes: usize) -> Self::Part {
        super::sys::Area::part(self, offset, bytes)
    }
}

/// A counter that cannot be, read from the peer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Corrupt {
    pub what: &'static str,
    pub value: u64,
}

/// The sender's end.
pub struct Producer<M: std::ops::Deref<Target = [Slot]>, R: std::ops::Deref<Target = Returns>, B: Bulk> {
    slots: M,
    returns: R,
    bulk: B,
    /// Slots written since the start; and how many of them the receiver was seen to have read.
    tail: u64,
    head_seen: u64,
    bulk_tail: u64,
    bulk_head_seen: u64,
    /// Bytes of `bulk` that are in use, from its beginning: a power of two, at first less than all.
    size: u64,
    /// Where the first body lay after the ring had grown, and how large the ring was before.
    grown_at: u64,
    small: u64,
    /// [`Producer::should_grow`] from this `bulk_tail` on.
    grows_at: u64,
    trials: Trials,
    /// `bulk_tail` when this process waited last; and the lines ahead of it that have been asked for since, and those that are going to be.
    waited_at: u64,
    owned: u64,
    owned_until: u64,
}

impl<M: std::ops::Deref<Target = [Slot]>, R: std::ops::Deref<Target = Returns>, B: Bulk> Producer<M, R, B> {
    /// The first `first_bytes` of `bulk` are used until [`Producer::grow`]. These, `slots.len()` and `bulk.len()` must be powers of two.
    pub fn new(slots: M, returns: R, bulk: B, first_bytes: usize) -> Self {
        assert!(slots.len().is_power_of_two() && bulk.len().is_power_of_two() && first_bytes.is_power_of_two() && first_bytes <= bulk.len());
        let (size, trials) = (first_bytes as u64, Trials::default());
        let grows_at = if first_bytes < bulk.len() { LAPS_BEFORE_GROWTH * size } else { u64::MAX };
        Producer {
            slots,
            returns,
            bulk,
            tail: 0,
            head_seen: 0,
            bulk_tail: 0,
            bulk_head_seen: 0,
            size,
            grown_at: 0,
            small: size,
            grows_at,
            trials,
            waited_at: 0,
            owned: 0,
            owned_until: 0,
        }
    }

    /// Largest body of one packet, bytes.
    pub fn body_bytes_max(&self) -> usize {
        self.size as usize / 2
    }

    /// Whether this ring has been used so much that it should have [twice](Producer::grown_bytes) its memory: it takes no body until [`Producer::grow`] or
    /// [`Producer::stay`].
    #[inline]
    pub fn should_grow(&self) -> bool {
        self.bulk_tail >= self.grows_at
    }

    /// Bytes beside the slots that are used now.
    pub fn bulk_bytes(&self) -> usize {
        self.size as usize
    }

    /// Bytes beside the slots that are used after [`Producer::grow`].
    pub fn grown_bytes(&self) -> usize {
        self.bulk.len().min(2 * self.size as usize)
    }

    /// Twice as much of the memory beside the slots is used from here on, as far as there is more. Its pages must be there. Nothing happens where no body has
    /// gone since the last time: the receiver would not see both.
    pub fn grow(&mut self) {
        if self.size == self.bulk.len() as u64 || (self.grown_at > 0 && self.bulk_tail == self.grown_at) {
            return;
        }
        (self.small, self.size) = (self.size, self.grown_bytes() as u64);
        self.grown_at = position_after_growth(self.bulk_tail, self.small, self.size);
        self.bulk_tail = self.grown_at;
        self.grows_at = if self.size < self.bulk.len() as u64 { self.bulk_tail + LAPS_BETWEEN * self.size } else { u64::MAX };
    }

    /// There is no memory to grow by: the ring stays as it is.
    pub fn stay(&mut self) {
        self.grows_at = u64::MAX;
    }

    /// Whether there is room for `need` bytes, as far as the receiver was seen to have read.
    #[inline]
    fn has_room(&self, need: u64) -> bool {
        if self.bulk_head_seen >= self.grown_at {
            self.bulk_tail + need - self.bulk_head_seen <= self.size
        } else {
            // What lay in the small ring may not have been read.
            self.bulk_tail + need - self.grown_at <= self.size - self.small
        }
    }

    /// The address of the slot that the next packet goes to.
    #[inline(always)]
    pub fn next_slot(&self) -> usize {
        let slot: *const Slot = &self.slots[(self.tail & (self.slots.len() as u64 - 1)) as usize];
        slot as usize
    }

    /// Puts a packet of whole words in, at most as many as fit in a slot, if there is room.
    #[inline(always)]
    pub fn push_words(&mut self, head: [u64; 2], words: &[u64]) -> Result<bool, Corrupt> {
        let mask = self.slots.len() as u64 - 1;
        if self.tail - self.head_seen > mask && !self.slots_freed(0)? {
            return Ok(false);
        }
        let phase = if self.tail & (mask + 1) == 0 { PHASE } else { 0 };
        let slot = &self.slots[(self.tail & mask) as usize].words;
        for (place, word) in slot[2..].iter().zip(words) {
            place.store(*word, Ordering::Relaxed);
        }
        slot[1].store(head[1], Ordering::Relaxed);
        // Release: who sees the phase sees the rest.
        slot[0].store((head[0] & !0xff) | phase | (8 * words.len().min(INLINE_BYTES / 8) as u64) << 2, Ordering::Release);
        self.tail += 1;
        Ok(true)
    }

    /// Puts a packet in, if there is room.
    ///
    /// # Safety
    /// The body must be readable, as it promises.
    #[inline(always)]
    pub unsafe fn push(&mut self, head: [u64; 2], words: &[u64], body: Body) -> Result<bool, Corrupt> {
        let bytes = body.len();
        if words.len() * 8 + bytes > INLINE_BYTES {
            return self.push_bulk(head, words, body);
        }
        let mut gathered = [0u8; INLINE_BYTES];
        let body = match body.start() {
            Some(start) => start,
            None => {
                body.copy_to(0, gathered.as_mut_ptr(), bytes);
                gathered.as_ptr()
            }
        };
        let mask = self.slots.len() as u64 - 1;
        if self.tail - self.head_seen > mask && !self.slots_freed(0)? {
            return Ok(false);
        }
        let phase = if self.tail & (mask + 1) == 0 { PHASE } else { 0 };
        let prefix = words.len() * 8;
        let place = (self.tail & mask) as usize;
        let slot = &self.slots[place].words;
        let mut at = 2;
        for word in words {
            slot[at].store(*word, Ordering::Relaxed);
            at += 1;
        }
        let mut done = 0;
        while done + 8 <= bytes {
            slot[at].store(body.add(done).cast::<u64>().read_unaligned(), Ordering::Relaxed);
            at += 1;
            done += 8;
        }
        if done < bytes {
            let mut last = [0u8; 8];
            std::ptr::copy_nonoverlapping(body.add(done), last.as_mut_ptr(), bytes - done);
            slot[at].store(u64::from_ne_bytes(last), Ordering::Relaxed);
        }
        slot[1].store(head[1], Ordering::Relaxed);
        // Release: who sees the phase sees the rest.
        slot[0].store((head[0] & !0xff) | phase | ((prefix + bytes) as u64) << 2, Ordering::Release);
        self.tail += 1;
        Ok(true)
    }

    /// As [`Producer::push`], for a body that does not fit in the line.
    ///
    /// # Safety
    /// As there.
    unsafe fn push_bulk(&mut self, head: [u64; 2], words: &[u64], body: Body) -> Result<bool, Corrupt> {
        if self.should_grow() {
            // The owner of the memory sees to that, and tries again.
            return Ok(false);
        }
        let (mask, bytes) = (self.slots.len() as u64 - 1, body.len());
        assert!(words.len() <= WORDS_WITH_BULK && bytes <= self.body_bytes_max(), "packet larger than the fabric carries");
        // All of it has its place before the first piece is shown: the receiver waits for the others only while they are written.
        let further = self.further(bytes);
        if self.tail + further as u64 - self.head_seen > mask && !self.slots_freed(further as u64)? {
            return Ok(false);
        }
        let need = (bytes as u64).next_multiple_of(64);
        if !self.has_room(need) && !self.bulk_freed(need)? {
            return Ok(false);
        }
        let piece = if further == 0 { bytes } else { piece_bytes(bytes, further + 1).min(bytes) };
        let Begun { stores, written, trial } = self.begin(&body, piece);
        let place = (self.size, self.bulk_tail);
        write(&self.bulk, place, &body, written, piece - written, stores);
        if bytes <= DEMOTED_BYTES_MAX && self.waited_at == self.bulk_tail && stores == Stores::Ordinary && trial.is_none() {
            // Behind another body it would be in the way of the next: its reader is busy.
            let offset = (self.bulk_tail & (self.size - 1)) as usize;
            self.bulk.demote(offset, bytes.min(self.size as usize - offset));
        }
        let slot = &self.slots[(self.tail & mask) as usize].words;
        let streamed = if stores == Stores::Streaming { STREAMED } else { 0 };
        slot[2].store(bytes as u64 | streamed | trial.map_or(0, |tried| 1 + tried as u64) << TRIAL_SHIFT, Ordering::Relaxed);
        slot[3].store(self.bulk_tail, Ordering::Relaxed);
        for (i, word) in words.iter().enumerate() {
            slot[4 + i].store(*word, Ordering::Relaxed);
        }
        slot[1].store(head[1], Ordering::Relaxed);
        let phase = if self.tail & (mask + 1) == 0 { PHASE } else { 0 };
        slot[0].store((head[0] & !0xff) | phase | BULK | (further as u64) << FURTHER_SHIFT, Ordering::Release);
        for number in 1..=further {
            let from = (number * piece).min(bytes);
            write(&self.bulk, place, &body, from, piece.min(bytes - from), stores);
            let at = self.tail + number as u64;
            let phase = if at & (mask + 1) == 0 { PHASE } else { 0 };
            self.slots[(at & mask) as usize].words[0].store(phase, Ordering::Release);
        }
        self.bulk_tail += need;
        self.tail += 1 + further as u64;
        Ok(true)
    }

    /// Slots besides the first that a body of `bytes` takes.
    #[inline]
    fn further(&self, bytes: usize) -> usize {
        let piece = (bytes / 4).clamp(PIECE_BYTES, LONG_PIECE_BYTES);
        if bytes < 2 * PIECE_BYTES { 0 } else { (bytes / piece - 1).min(FURTHER_MAX).min(self.slots.len() / SLOTS_SHARE) }
    }

    /// Makes use of a time in which this process waits: asks for some of the lines that its next bodies go to, if it has written any since it waited last. Their
    /// reader's cache has them, and to take them from there is most of what it takes to write them. Those that are owned already come closer.
    /// Whether there was anything to be asked for.
    #[inline]
    pub fn own_ahead(&mut self) -> bool {
        if self.waited_at != self.bulk_tail {
            self.begin_to_own();
        }
        if self.owned >= self.owned_until {
            return false;
        }
        let until = self.owned_until.min(self.owned + OWNED_PER_LOOK * 64);
        while self.owned < until {
            self.bulk.own((self.owned & (self.size - 1)) as usize);
            self.owned += 64;
        }
        true
    }

    fn begin_to_own(&mut self) {
        let ahead = (OWNED_TIMES * (self.bulk_tail - self.waited_at)).min(OWNED_BYTES_MAX).min(self.size / 2);
        (self.waited_at, self.owned, self.owned_until) = (self.bulk_tail, self.bulk_tail, self.bulk_tail + ahead);
        // What has not been read is not to be taken away.
        if !self.has_room(ahead) && !self.bulk_freed(ahead).unwrap_or(false) {
            self.owned_until = self.owned;
        }
    }

    /// Whether there is room for a body of `bytes`. What the receiver tells that cannot be, the next [`Producer::push`] finds.
    pub fn takes(&mut self, bytes: usize) -> bool {
        let (mask, further, need) = (self.slots.len() as u64 - 1, self.further(bytes) as u64, (bytes as u64).next_multiple_of(64));
        bytes <= self.body_bytes_max()
            && (self.tail + further - self.head_seen <= mask || self.slots_freed(further).unwrap_or(true))
            && (self.has_room(need) || self.bulk_freed(need).unwrap_or(true))
    }

    /// How a body goes whose first piece is so long.
    ///
    /// # Safety
    /// The body must be readable.
    #[inline]
    unsafe fn begin(&mut self, body: &Body, piece: usize) -> Begun {
        if piece < STREAMING_BYTES_MIN {
            return Begun::ORDINARY;
        }
        let Producer { trials, bulk, size, bulk_tail, returns, .. } = self;
        let reading = || Reading::from_word(returns.readings[stores::class_of(body.len())].load(Ordering::Relaxed));
        // SAFETY: the caller's promise.
        let packs = body.start().is_none();
        trials.begin((body.len(), packs), piece, reading, || bulk.ticks(), |stores, bytes| unsafe { write(bulk, (*size, *bulk_tail), body, 0, bytes, stores) })
    }

    /// Whether there is room for a slot and `further` ones, as far as the receiver has read.
    #[cold]
    fn slots_freed(&mut self, further: u64) -> Result<bool, Corrupt> {
        let head = self.returns.slots.load(Ordering::Acquire);
        if head < self.head_seen || head > self.tail {
            return Err(Corrupt { what: "the count of slots read", value: head });
        }
        self.head_seen = head;
        Ok(self.tail + further - head < self.slots.len() as u64)
    }

    #[cold]
    fn bulk_freed(&mut self, need: u64) -> Result<bool, Corrupt> {
        let head = self.returns.bulk.load(Ordering::Acquire);
        if head < self.bulk_head_seen || head > self.bulk_tail {
            return Err(Corrupt { what: "the count of bytes read", value: head });
        }
        self.bulk_head_seen = head;
        Ok(self.has_room(need))
    }

    /// What the receiver says it has released for this sender since the start, bytes.
    pub fn credit(&self) -> u64 {
        self.returns.credit.load(Ordering::Relaxed)
    }
}

/// Writes bytes `from..from + bytes` of a body to its place in `bulk`, of which the first `size` bytes are a ring; the body begins at `tail`. `from` is a multiple of 64, or all that is left is nothing.
///
/// # Safety
/// The body must be readable and have them.
#[inline]
unsafe fn write<B: Bulk>(bulk: &B, (size, tail): (u64, u64), body: &Body, from: usize, bytes: usize, stores: Stores) {
    let size = size as usize;
    let offset = (tail as usize + from) & (size - 1);
    let first = bytes.min(size - offset);
    match stores {
        Stores::Ordinary => {
            bulk.write(offset, body, from, first);
            if first < bytes {
                bulk.write(0, body, from + first, bytes - first);
            }
        }
        Stores::Streaming => {
            bulk.stream(offset, body, from, first);
            if first < bytes {
                bulk.stream(0, body, from + first, bytes - first);
            }
        }
    }
}

/// A packet as it lies in the ring.
#[derive(Clone, Copy, Debug)]
pub struct Taken {
    pub head: [u64; 2],
    /// Inline payload, or the words before the body.
    pub words: [u64; 6],
    /// Bytes of inline payload, words included. 0 of a long packet.
    pub inline_bytes: usize,
    /// Its body lies beside the slots, where [`Consumer::long`] says.
    pub is_long: bool,
}

/// In which order a body is to be read. As wide as what lies beside it: who copies all of it at once would wait for a narrower store.
#[repr(u64)]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Order {
    /// No packet is behind it: its writer's cache holds, or soon wants, the lines that a processor would fetch ahead.
    FromEnd,
    /// What is fetched ahead will be read next.
    Followed,
    /// It has gone past the caches, and comes from memory the sooner the more is fetched ahead.
    Streamed,
}

/// The body of a packet that does not fit in a slot.
#[derive(Clone, Copy, Debug)]
pub struct Long<P> {
    /// Its place, in up to two parts.
    pub parts: (P, P),
    /// Bytes of it that are there, from its beginning: less than all while its sender writes it.
    pub present_bytes: usize,
    order: Order,
    bytes: usize,
    bulk_bytes: u64,
    slots: u32,
    /// Of these, those that are not there yet.
    slots_missing: u32,
}

impl<P> Long<P> {
    /// Whether all of it is there.
    #[inline]
    pub fn is_whole(&self) -> bool {
        self.slots_missing == 0
    }

    /// Whether it is read the soonest from its end.
    #[inline]
    pub fn is_read_from_end(&self) -> bool {
        self.order == Order::FromEnd
    }
}

/// The receiver's end.
pub struct Consumer<M: std::ops::Deref<Target = [Slot]>, R: std::ops::Deref<Target = Returns>, B: Bulk> {
    slots: M,
    returns: R,
    bulk: B,
    head: u64,
    /// Slots of the packet at hand that were seen to be there.
    seen: u32,
    /// The body of the packet at hand, if that is long; what was checked is not read again.
    long: Option<Long<B::Part>>,
    /// So many slots are told together: the sender may always use the rest meanwhile.
    quarter: u64,
    /// The packet at whose body it has looked for a trial.
    touched: Option<u64>,
    /// Bytes of `bulk` that its sender uses.
    size: u64,
    bulk_head: u64,
    bulk_told: u64,
    credit: u64,
    credit_told: u64,
}

impl<M: std::ops::Deref<Target = [Slot]>, R: std::ops::Deref<Target = Returns>, B: Bulk> Consumer<M, R, B> {
    /// As [`Producer::new`].
    pub fn new(slots: M, returns: R, bulk: B, first_bytes: usize) -> Self {
        assert!(slots.len().is_power_of_two() && bulk.len().is_power_of_two() && first_bytes.is_power_of_two() && first_bytes <= bulk.len());
        let size = first_bytes as u64;
        let quarter = (slots.len() as u64 / 4).max(1);
        Consumer { slots, returns, bulk, head: 0, seen: 1, long: None, quarter, touched: None, size, bulk_head: 0, bulk_told: 0, credit: 0, credit_told: 0 }
    }

    /// The next packet, if it or the first piece of it is there. Its place stays taken until [`Consumer::release`].
    #[inline]
    pub fn peek(&mut self) -> Result<Option<Taken>, Corrupt> {
        let size = self.slots.len() as u64;
        let slot = &self.slots[(self.head & (size - 1)) as usize].words;
        let phase = if self.head & size == 0 { PHASE } else { 0 };
        let first = slot[0].load(Ordering::Acquire);
        if first & PHASE != phase {
            return Ok(None);
        }
        let word = |i: usize| slot[i].load(Ordering::Relaxed);
        let head = [first, word(1)];
        if first & BULK == 0 {
            let inline_bytes = ((first & 0xff) >> 2) as usize;
            if inline_bytes > INLINE_BYTES {
                return Err(Corrupt { what: "the inline length of a packet", value: inline_bytes as u64 });
            }
            let words = [word(2), word(3), word(4), word(5), word(6), word(7)];
            return Ok(Some(Taken { head, words, inline_bytes, is_long: false }));
        }
        let (length, position) = (word(2), word(3));
        let words = [word(4), word(5), word(6), word(7), 0, 0];
        self.look(first, length, position)?;
        Ok(Some(Taken { head, words, inline_bytes: 0, is_long: true }))
    }

    /// Tells the sender what it takes to read the beginning of a body, which a trial has written.
    #[cold]
    #[inline(never)]
    fn touch(&mut self, trial: u64, position: u64, long: &Long<B::Part>) {
        if self.touched.replace(self.head) == Some(self.head) {
            return;
        }
        let offset = (position & (self.size - 1)) as usize;
        let part = stores::trial_bytes(long.present_bytes).min(self.size as usize - offset);
        let Some(tried) = TRIED.get(trial as usize - 1).filter(|_| part > 0) else { return };
        let ticks = self.bulk.touch(offset, part);
        let word = &self.returns.readings[stores::class_of(long.bytes)];
        word.store(Reading::from_word(word.load(Ordering::Relaxed)).took(*tried, part, ticks).to_word(), Ordering::Relaxed);
    }

    /// The header of the next packet, if it has begun to come, and the bytes of a body beside its slot: as it says, which nobody has checked.
    pub fn comes(&self) -> Option<([u64; 2], usize)> {
        if self.is_silent() {
            return None;
        }
        let slot = &self.slots[(self.head & (self.slots.len() as u64 - 1)) as usize].words;
        let head = [slot[0].load(Ordering::Relaxed), slot[1].load(Ordering::Relaxed)];
        Some((head, if head[0] & BULK == 0 { 0 } else { (slot[2].load(Ordering::Relaxed) & !STREAMED) as usize }))
    }

    /// Whether no piece of the next packet is there.
    #[inline(always)]
    pub fn is_silent(&self) -> bool {
        !self.is_there(self.head)
    }

    /// Looks at what is there of the body of the packet at hand, of this length at `position`, with `first` as the slot's first word.
    #[inline]
    fn look(&mut self, first: u64, length: u64, position: u64) -> Result<(), Corrupt> {
        let (size, offset) = (self.size, position & (self.size - 1));
        // More than any packet has where a trial has written its beginning.
        let (is_streamed, bytes) = (length & STREAMED != 0, length & !STREAMED);
        if (first & 0xff) >> FURTHER_SHIFT == 0 && position == self.bulk_head && bytes <= size / 2 && offset + bytes <= size {
            // Of most: all in one piece.
            // Its end, which is read first, comes while the packet is looked at.
            let before = bytes.saturating_sub(FETCHED_BYTES_MAX);
            self.bulk.fetch((offset + before) as usize, (bytes - before) as usize);
            let order = self.order(bytes, is_streamed, self.head + 1);
            let (bytes, bulk_bytes) = (bytes as usize, bytes.next_multiple_of(64));
            let parts = (self.bulk.part(offset as usize, bytes), self.bulk.part(0, 0));
            self.long = Some(Long { parts, present_bytes: bytes, order, bytes, bulk_bytes, slots: 1, slots_missing: 0 });
            return Ok(());
        }
        self.long = Some(self.look_closely(first, length, position)?);
        Ok(())
    }

    #[inline(never)]
    fn look_closely(&mut self, first: u64, length: u64, position: u64) -> Result<Long<B::Part>, Corrupt> {
        let (trial, is_streamed, bytes) = (length >> TRIAL_SHIFT, length & STREAMED != 0, length & (STREAMED - 1));
        let size = self.slots.len() as u64;
        let slots = 1 + ((first & 0xff) >> FURTHER_SHIFT) as u32;
        if slots as u64 > size {
            return Err(Corrupt { what: "the number of pieces of a packet", value: slots as u64 });
        }
        self.count_seen(slots);
        let grown = 2 * self.size;
        let grows = grown <= self.bulk.len() as u64 && position == position_after_growth(self.bulk_head, self.size, grown);
        let size = if grows { grown } else { self.size };
        if bytes > size / 2 {
            return Err(Corrupt { what: "the length of a packet", value: bytes });
        }
        if grows {
            // All before has been read: the sender may use it again.
            (self.size, self.bulk_head, self.bulk_told) = (size, position, position);
            self.returns.bulk.store(position, Ordering::Release);
        } else if position != self.bulk_head {
            return Err(Corrupt { what: "the position of a packet", value: position });
        }
        let offset = (position & (size - 1)) as usize;
        let first = (bytes as usize).min(size as usize - offset);
        let parts = (self.bulk.part(offset, first), self.bulk.part(0, bytes as usize - first));
        let present_bytes = (self.seen as usize * piece_bytes(bytes as usize, slots as usize)).min(bytes as usize);
        let slots_missing = slots.saturating_sub(self.seen);
        let order = self.order(bytes, is_streamed, self.head + slots as u64);
        let long = Long { parts, present_bytes, order, bytes: bytes as usize, bulk_bytes: bytes.next_multiple_of(64), slots, slots_missing };
        if trial != 0 {
            self.touch(trial, position, &long);
        }
        Ok(long)
    }

    /// Whether the slot that is the `number`th since the start is there.
    #[inline(always)]
    fn is_there(&self, number: u64) -> bool {
        let size = self.slots.len() as u64;
        let phase = if number & size == 0 { PHASE } else { 0 };
        self.slots[(number & (size - 1)) as usize].words[0].load(Ordering::Acquire) & PHASE == phase
    }

    /// The order of a body behind which the slot of this number comes, which is not there before all of the body is. Of a short one it is not even asked: to look at
    /// that slot may take a transfer between cores.
    #[inline]
    fn order(&self, bytes: u64, is_streamed: bool, next: u64) -> Order {
        match is_streamed {
            true => Order::Streamed,
            false if bytes < FROM_END_BYTES_MIN || self.is_there(next) => Order::Followed,
            false => Order::FromEnd,
        }
    }

    /// Counts the pieces of the packet at hand that are there, of `slots`.
    #[inline]
    fn count_seen(&mut self, slots: u32) {
        while self.seen < slots && self.is_there(self.head + self.seen as u64) {
            self.seen += 1;
        }
    }

    /// Looks whether more has come of the packet at hand, a long one of which not all was there.
    pub fn look_again(&mut self) -> bool {
        let Some(slots) = self.long.as_ref().map(|long| long.slots) else { return false };
        let before = self.seen;
        self.count_seen(slots);
        let seen = self.seen;
        let is_followed = self.is_there(self.head + slots as u64);
        if let Some(long) = &mut self.long {
            if is_followed && long.order == Order::FromEnd {
                long.order = Order::Followed;
            }
            let bytes = long.bytes;
            long.present_bytes = (seen as usize * piece_bytes(bytes, slots as usize)).min(bytes);
            long.slots_missing = slots.saturating_sub(seen);
        }
        seen > before
    }

    /// The body of the packet that was last peeked at, if that is long.
    #[inline]
    pub fn long(&self) -> Option<&Long<B::Part>> {
        self.long.as_ref()
    }

    /// Bytes beside the slots that its sender uses.
    pub fn bulk_bytes(&self) -> usize {
        self.size as usize
    }

    /// Whether all of the packet that was last peeked at is there.
    #[inline]
    pub fn is_whole(&self) -> bool {
        self.long().is_none_or(Long::is_whole)
    }

    /// Asks for the line of a packet some places ahead.
    #[inline]
    pub fn prefetch(&self) {
        let ahead = (self.head + PREFETCH_SLOTS) & (self.slots.len() as u64 - 1);
        #[cfg(all(target_arch = "x86_64", not(loom)))]
        // SAFETY: prefetching touches nothing; the address is inside the ring.
        unsafe {
            let line: *const Slot = &self.slots[ahead as usize];
            std::arch::x86_64::_mm_prefetch::<{ std::arch::x86_64::_MM_HINT_T0 }>(line.cast());
        }
        #[cfg(not(all(target_arch = "x86_64", not(loom))))]
        let _ = ahead;
    }

    /// Frees the place of the packet that was last peeked at.
    #[inline]
    pub fn release(&mut self, taken: &Taken) {
        let before = self.head;
        self.head += 1;
        if taken.is_long {
            self.release_long();
        }
        if before ^ self.head >= self.quarter {
            self.returns.slots.store(self.head, Ordering::Release);
        }
    }

    #[inline(never)]
    fn release_long(&mut self) {
        let Some(long) = self.long.take() else { return };
        self.head += long.slots as u64 - 1;
        self.seen = 1;
        self.bulk_head += long.bulk_bytes;
        if self.bulk_head - self.bulk_told >= self.size / 4 {
            self.bulk_told = self.bulk_head;
            self.returns.bulk.store(self.bulk_head, Ordering::Release);
        }
    }

    /// Tells the sender that `bytes` more have been released; told at the latest when `step_bytes` have come together.
    #[inline]
    pub fn give_credit(&mut self, bytes: u64, step_bytes: u64) {
        self.credit += bytes;
        if self.credit - self.credit_told >= step_bytes {
            self.credit_told = self.credit;
            self.returns.credit.store(self.credit, Ordering::Relaxed);
        }
    }
}

#[cfg(all(test, not(loom)))]
#[path = "ring_tests.rs"]
mod tests;
