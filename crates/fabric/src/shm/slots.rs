//! Slots through which the members of a group hand each other what they bring to short collectives. Each member has a
//! few lines of its own, used in turn, and room for longer bytes beside them; all others read there. Nobody waits for
//! more than it needs: whoever brings something goes on at once, as long as it has a line and room left, and whoever
//! takes something waits only for the member that brings it.
//!
//! A collective has a number, the same for all members, that only grows. A member says which number it has ended
//! last; a line, and the room behind it, are written again once everybody who may read them has ended the collective
//! of that line.
//!
//! Bytes for which there is no room pass as a *stream* from one member to another: through a window of the sender's room,
//! whose bytes are written again once the reader has said how far it has read. Or they are *lent*: the line tells where they lie in
//! the member's own memory, and the member leaves the collective once all who read there have ended it, or says that it has withdrawn them.

use super::area::{LINE_WORDS, Line};
#[cfg(not(loom))]
use super::stores::{Begun, Reading, STREAMING_BYTES_MIN, Stores, Trials};
#[cfg(not(loom))]
use super::sys;
#[cfg(not(loom))]
use crate::Error;
#[cfg(loom)]
use loom::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};
#[cfg(not(loom))]
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};

/// Longest bytes that fit into a line.
pub const INLINE_BYTES: usize = (LINE_WORDS - 1) * 8;
const INLINE_WORDS: usize = LINE_WORDS - 1;

/// Places of a line's payload words.
const HEADER: usize = 0;
/// Of longer bytes: how many are there by now.
const READY: usize = 1;
/// Of longer bytes: the mark, once the second part of the collective is there.
const SECOND: usize = 2;
/// Of lent bytes: where they lie in the member's memory; and where the second part lies.
const ADDRESS: usize = 3;
const SECOND_ADDRESS: usize = 4;
/// Of longer bytes and lent ones: a word that the member says to all who read them.
const NEXT: usize = 5;
/// Of bytes that pass in rounds: in how many of these the second part is there.
const SECOND_ROUNDS: usize = 6;
/// The place in its room that a member says of bytes that it lends: no room is so long.
const LENT: u64 = u32::MAX as u64;
/// Place in a member's state, behind the names of sleepers: a collective's number, and how many bytes of a stream the member has read in it.
const STREAMED: usize = 1;

/// Lines of a member, a power of two: collectives that it may be ahead of the others. The more, the less often ranks that
/// share a core hand it over.
pub const fn depth(ranks: usize) -> usize {
    match ranks {
        ..=4 => 64,
        5..=16 => 32,
        _ => 8,
    }
}

/// Lines that the slots of `ranks` take.
pub const fn lines_of(ranks: usize) -> usize {
    ranks + ranks * depth(ranks)
}

/// Who reads what a member brings.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Readers {
    All,
    One(usize),
    /// Only the member itself.
    Nobody,
}

/// So many collectives before a member writes a line, it [fetches](Line::foresee_write) it: less than the fewest lines of a member.
const FORESEEN: u32 = 4;

const ALL: u32 = u32::MAX;
const NOBODY: u32 = u32::MAX - 1;

/// What a member has brought and others may still read.
#[derive(Default)]
struct Published {
    number: AtomicU32,
    readers: AtomicU32,
    /// Where its room begins, counted since the group was made.
    begin: AtomicU64,
}

/// Raw bytes that processes share, divided among the members.
#[cfg(not(loom))]
#[derive(Clone, Copy)]
pub struct Room {
    start: *mut u8,
    each: usize,
}

#[cfg(not(loom))]
impl Room {
    /// The lines, as raw bytes for `ranks` members.
    pub fn of(lines: &'static [Line], ranks: usize) -> Room {
        Room { start: lines.as_ptr().cast_mut().cast(), each: lines.len() / ranks * size_of::<Line>() }
    }
}

// SAFETY: shared memory for the life of the process; who reads and writes where, and when, `Slots` says.
#[cfg(not(loom))]
unsafe impl Send for Room {}
// SAFETY: as above.
#[cfg(not(loom))]
unsafe impl Sync for Room {}

/// The slots of one group, seen by one member. One thread at a time brings its parts and says what it has ended, while
/// others may look at the parts of the other members; what it keeps are atomics only so that others may come after it.
pub struct Slots<'a> {
    states: &'a [Line],
    lines: &'a [Line],
    me: usize,
    /// Lines of each member, less one: a power of two less one.
    mask: usize,
    /// What may still be read, a ring in the order of its numbers: how many have been put in, and taken out.
    published: Box<[Published]>,
    put: AtomicU32,
    taken: AtomicU32,
    /// Room used since the group was made, bytes.
    head: AtomicU64,
    /// What this member says with the next longer or lent bytes that it brings.
    next: AtomicU64,
    /// What another one has said so that this member has kept it.
    heard: AtomicU64,
    /// What each member has ended, as seen last, and the least of these.
    ended: Box<[AtomicU32]>,
    ended_by_all: AtomicU32,
    /// Of this member's room, the first so many bytes have been [prepared](Slots::prepare).
    #[cfg(not(loom))]
    prepared: std::sync::atomic::AtomicUsize,
    /// With which stores longer bytes are written.
    #[cfg(not(loom))]
    trials: std::sync::Mutex<Trials>,
}

/// What a member has brought.
#[repr(C, align(16))]
pub struct Brought<'a> {
    inline: [u64; INLINE_WORDS],
    line: &'a Line,
    bytes: usize,
    /// Where longer bytes lie in the member's room.
    offset: usize,
}

/// What does not fit together: bytes that another process has written there.
#[derive(Debug)]
pub struct Corrupt {
    pub rank: usize,
    pub value: u64,
}

/// Where a member has lent bytes of its own memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Lent {
    pub bytes: usize,
    pub address: u64,
    /// Where the second part lies.
    pub second_address: u64,
}

/// Whoever brings something must wait until this member has ended this collective.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Behind {
    pub rank: usize,
    pub number: u32,
}

fn reached(ended: u32, number: u32) -> bool {
    ended.wrapping_sub(number) as i32 >= 0
}

impl<'a> Slots<'a> {
    /// `lines` are [`lines_of`] the members, all 0 before the first of them begins.
    pub fn new(lines: &'a [Line], ranks: usize, me: usize) -> Slots<'a> {
        let (states, lines) = lines.split_at(ranks);
        let depth = lines.len() / ranks;
        assert!(depth.is_power_of_two(), "{depth} lines a member");
        Slots {
            states,
            lines,
            me,
            mask: depth - 1,
            published: (0..depth).map(|_| Published::default()).collect(),
            put: AtomicU32::new(0),
            taken: AtomicU32::new(0),
            head: AtomicU64::new(0),
            next: AtomicU64::new(0),
            heard: AtomicU64::new(0),
            ended: (0..ranks).map(|_| AtomicU32::new(0)).collect(),
            ended_by_all: AtomicU32::new(0),
            #[cfg(not(loom))]
            prepared: Default::default(),
            #[cfg(not(loom))]
            trials: std::sync::Mutex::default(),
        }
    }

    #[inline]
    pub fn ranks(&self) -> usize {
        self.states.len()
    }

    /// Where it says what it has ended, and where those leave their names who sleep until `rank` does something.
    #[inline]
    pub fn state(&self, rank: usize) -> &'a Line {
        &self.states[rank]
    }

    #[inline]
    fn line(&self, rank: usize, number: u32) -> &'a Line {
        &self.lines[rank * (self.mask + 1) + (number as usize & self.mask)]
    }

    /// Whether `rank` has brought its part under `mark`.
    #[inline]
    pub fn brought(&self, rank: usize, number: u32, mark: u64) -> bool {
        self.line(rank, number).holds(mark)
    }

    /// Whether `rank` has brought its part under `mark`, and all of that is there.
    #[inline]
    pub fn brought_whole(&self, rank: usize, number: u32, mark: u64) -> bool {
        let line = self.line(rank, number);
        line.holds(mark) && {
            let bytes = line.payload(HEADER) as u32 as usize;
            bytes <= INLINE_BYTES || line.word(READY) as usize >= bytes
        }
    }

    /// Fetches the line for the collective after next of `rank`, which has brought its part of `number` before it was
    /// asked for: it is ahead.
    #[inline]
    pub fn foresee(&self, rank: usize, number: u32) {
        #[cfg(all(target_arch = "x86_64", not(loom)))]
        // SAFETY: fetching a line into the cache changes nothing.
        unsafe {
            std::arch::x86_64::_mm_prefetch::<{ std::arch::x86_64::_MM_HINT_T0 }>(std::ptr::from_ref(self.line(rank, number.wrapping_add(2))).cast());
        }
        #[cfg(not(all(target_arch = "x86_64", not(loom))))]
        let _ = (rank, number);
    }

    /// Whether `rank` has brought the second part under `mark`; it has brought the first.
    #[inline]
    pub fn brought_second(&self, rank: usize, number: u32, mark: u64) -> bool {
        self.line(rank, number).word(SECOND) == mark
    }

    /// Publishes the second part under `mark`, of longer bytes.
    #[inline]
    pub fn publish_second(&self, number: u32, mark: u64) {
        self.line(self.me, number).set_word(SECOND, mark);
    }

    /// Whether `rank` has brought the second part of `round`; it has brought the first.
    #[inline]
    pub fn brought_second_of(&self, rank: usize, number: u32, round: usize) -> bool {
        self.line(rank, number).word(SECOND_ROUNDS) > round as u64
    }

    /// Publishes the second part of `round`, and so of all rounds before.
    #[inline]
    pub fn publish_second_of(&self, number: u32, round: usize) {
        self.line(self.me, number).set_word(SECOND_ROUNDS, round as u64 + 1);
    }

    /// Publishes under `mark` that this member lends `lent`, less than 2^32 bytes. The line is taken as for [short](Slots::take) bytes.
    #[inline]
    pub fn lend(&self, number: u32, mark: u64, lent: Lent) {
        let line = self.line(self.me, number);
        line.set_payload(HEADER, lent.bytes as u64 | LENT << 32);
        line.set_payload(SECOND, 0);
        line.set_payload(ADDRESS, lent.address);
        line.set_payload(SECOND_ADDRESS, lent.second_address);
        line.set_payload(NEXT, self.next.load(Ordering::Relaxed));
        line.write(mark, &[]);
    }

    /// With longer or lent bytes that this member brings from here on, it says `word` to all who read them.
    #[inline]
    pub fn say_next(&self, word: u64) {
        self.next.store(word, Ordering::Relaxed);
    }

    /// Keeps what `rank` has [said](Slots::say_next) with what it has brought, after [`Slots::brought`] and before this member has ended the collective.
    #[inline]
    pub fn hear(&self, rank: usize, number: u32) {
        self.heard.store(self.line(rank, number).payload(NEXT), Ordering::Relaxed);
    }

    /// What was [heard](Slots::hear) last.
    #[inline]
    pub fn heard(&self) -> u64 {
        self.heard.load(Ordering::Relaxed)
    }

    /// What `rank` has lent, after [`Slots::brought`].
    ///
    /// # Errors
    /// How many bytes it has brought in another way.
    #[inline]
    pub fn lent(&self, rank: usize, number: u32) -> Result<Lent, usize> {
        let line = self.line(rank, number);
        let header = line.payload(HEADER);
        let bytes = header as u32 as usize;
        if header >> 32 != LENT {
            return Err(bytes);
        }
        Ok(Lent { bytes, address: line.payload(ADDRESS), second_address: line.payload(SECOND_ADDRESS) })
    }

    /// Says under `mark` that what this member has lent may change from here on, and that no second part follows. `failed`: a member has failed.
    #[inline]
    pub fn withdraw(&self, number: u32, mark: u64, failed: bool) {
        self.line(self.me, number).set_word(SECOND, !mark ^ failed as u64);
        // The word is written before the bytes change, and before this member looks who may write them.
        fence(Ordering::SeqCst);
    }

    /// Whether this member, which has published its own line under `number`, may write to what `rank` has lent: then `rank`, where it withdraws that, sees that
    /// line, and waits until the second part of it is there, or has been withdrawn.
    #[inline]
    pub fn may_write(&self, rank: usize, number: u32, mark: u64) -> bool {
        fence(Ordering::SeqCst);
        !self.has_withdrawn(rank, number, mark)
    }

    #[inline]
    fn has_withdrawn(&self, rank: usize, number: u32, mark: u64) -> bool {
        self.line(rank, number).word(SECOND) | 1 == !mark | 1
    }

    /// Whether `rank`, which has [withdrawn](Slots::withdrawn) what it has lent, has said that a member has failed.
    #[inline]
    pub fn withdrawn_since_one_failed(&self, rank: usize, number: u32, mark: u64) -> bool {
        self.line(rank, number).word(SECOND) == !mark ^ 1
    }

    /// Whether `rank` has [withdrawn](Slots::withdraw) what it has lent under `mark`. If not, what was read there before this look is what was lent.
    #[inline]
    pub fn withdrawn(&self, rank: usize, number: u32, mark: u64) -> bool {
        // The bytes are read before the word.
        fence(Ordering::Acquire);
        self.has_withdrawn(rank, number, mark)
    }

    /// This member has ended the collective `number`, and reads nothing of it or of earlier ones any more.
    #[inline]
    pub fn end(&self, number: u32) {
        self.states[self.me].write(number as u64, &[]);
    }

    /// Of a stream: this member has read so many bytes under `number`, less than 2^32, and reads none of these any more.
    #[inline]
    pub fn say_streamed(&self, number: u32, bytes: usize) {
        self.states[self.me].set_word(STREAMED, (number as u64) << 32 | bytes as u64);
    }

    /// How many bytes of a stream `rank` has read under `number`.
    #[inline]
    pub fn streamed(&self, rank: usize, number: u32) -> usize {
        let word = self.states[rank].word(STREAMED);
        if (word >> 32) as u32 == number { word as u32 as usize } else { 0 }
    }

    /// Whether `rank` has ended the collective `number`.
    #[inline]
    pub fn has_ended(&self, rank: usize, number: u32) -> bool {
        if reached(self.ended[rank].load(Ordering::Relaxed), number) {
            return true;
        }
        let now = self.states[rank].sequence() as u32;
        self.ended[rank].store(now, Ordering::Relaxed);
        reached(now, number)
    }

    /// The first member beside this one that has not ended the collective `number`.
    fn first_behind(&self, number: u32) -> Option<usize> {
        if reached(self.ended_by_all.load(Ordering::Relaxed), number) {
            return None;
        }
        if let Some(rank) = (0..self.ranks()).find(|rank| *rank != self.me && !self.has_ended(*rank, number)) {
            return Some(rank);
        }
        let least = (0..self.ranks()).filter(|rank| *rank != self.me).map(|rank| self.ended[rank].load(Ordering::Relaxed));
        let least = least.min_by_key(|ended| ended.wrapping_sub(number)).unwrap_or(number);
        self.ended_by_all.store(least, Ordering::Relaxed);
        None
    }

    /// Whom this member must wait for, before it may bring `bytes` under `number` with `room` for its longer bytes;
    /// `None`: nobody. What nobody reads any more is taken out meanwhile.
    #[inline]
    fn must_wait_for(&self, number: u32, bytes: usize, room: usize) -> Option<usize> {
        let put = self.put.load(Ordering::Relaxed);
        loop {
            let taken = self.taken.load(Ordering::Relaxed);
            if taken == put {
                return None;
            }
            let first = &self.published[taken as usize & self.mask];
            let first_number = first.number.load(Ordering::Relaxed);
            let line_free = number.wrapping_sub(first_number) as usize <= self.mask;
            let room_free = bytes <= INLINE_BYTES || self.place(bytes, room) + bytes as u64 <= first.begin.load(Ordering::Relaxed) + room as u64;
            if line_free && room_free {
                return None;
            }
            let behind = match first.readers.load(Ordering::Relaxed) {
                ALL => self.first_behind(first_number),
                NOBODY => None,
                rank => (!self.has_ended(rank as usize, first_number)).then_some(rank as usize),
            };
            if behind.is_some() {
                return behind;
            }
            self.taken.store(taken.wrapping_add(1), Ordering::Relaxed);
        }
    }

    /// Where the next `bytes` go, counted since the group was made: all in one piece.
    #[inline]
    fn place(&self, bytes: usize, room: usize) -> u64 {
        let head = self.head.load(Ordering::Relaxed);
        let at = head % room.max(1) as u64;
        if at + bytes as u64 > room as u64 { head - at + room as u64 } else { head }
    }

    /// Takes a line, and room where `bytes` are longer than [`INLINE_BYTES`]: gives the offset. `wait` waits until
    /// `rank` has ended a collective: it looks by what it is given. Called at most once under a number.
    ///
    /// # Errors
    /// Those of `wait`.
    #[inline]
    pub fn take<E>(
        &self,
        number: u32,
        bytes: usize,
        room: usize,
        readers: Readers,
        mut wait: impl FnMut(usize, &dyn Fn() -> bool) -> Result<(), E>,
    ) -> Result<usize, E> {
        loop {
            match self.try_take(number, bytes, room, readers) {
                Ok(offset) => return Ok(offset),
                Err(behind) => wait(behind.rank, &|| self.has_ended(behind.rank, behind.number))?,
            }
        }
    }

    /// As [`Slots::take`], without waiting. Not of a number before one that was taken already.
    ///
    /// # Errors
    /// Who must end which collective first; nothing is taken then.
    #[inline]
    pub fn try_take(&self, number: u32, bytes: usize, room: usize, readers: Readers) -> Result<usize, Behind> {
        if let Some(rank) = self.must_wait_for(number, bytes, room) {
            // Until half of what was brought has been read, not one part: ranks that share a core hand it over less
            // often.
            let (taken, put) = (self.taken.load(Ordering::Relaxed), self.put.load(Ordering::Relaxed));
            let middle = taken.wrapping_add(put.wrapping_sub(taken) / 2);
            return Err(Behind { rank, number: self.published[middle as usize & self.mask].number.load(Ordering::Relaxed) });
        }
        let put = self.put.load(Ordering::Relaxed);
        let published = &self.published[put as usize & self.mask];
        let mut begin = self.head.load(Ordering::Relaxed);
        if bytes > INLINE_BYTES {
            begin = self.place(bytes, room);
            self.head.store((begin + bytes as u64).next_multiple_of(64), Ordering::Relaxed);
        }
        published.number.store(number, Ordering::Relaxed);
        published.begin.store(begin, Ordering::Relaxed);
        let readers = match readers {
            Readers::All => ALL,
            Readers::One(rank) => rank as u32,
            Readers::Nobody => NOBODY,
        };
        published.readers.store(readers, Ordering::Relaxed);
        self.put.store(put.wrapping_add(1), Ordering::Relaxed);
        self.line(self.me, number.wrapping_add(FORESEEN)).foresee_write();
        Ok(if bytes <= INLINE_BYTES { 0 } else { (begin % room as u64) as usize })
    }

    /// Publishes `data`, which fits into a line, under `mark`.
    #[inline]
    pub fn publish_short(&self, number: u32, mark: u64, data: &[u8]) {
        let line = self.line(self.me, number);
        line.set_payload(HEADER, data.len() as u64);
        let words = data.chunks_exact(8);
        let rest = words.remainder();
        let mut at = HEADER + 1;
        for word in words {
            line.set_payload(at, u64::from_ne_bytes(*word.first_chunk().expect("eight bytes")));
            at += 1;
        }
        if !rest.is_empty() {
            let mut word = [0; 8];
            word[..rest.len()].copy_from_slice(rest);
            line.set_payload(at, u64::from_ne_bytes(word));
        }
        line.write(mark, &[]);
    }

    /// Copies the bytes from word `from` on that `into` takes of the `bytes` that `rank` has brought, which fit into a line, after
    /// [`Slots::brought`]. Word by word from the line to their place: what passes through memory in between in words and is read there in longer pieces
    /// waits until all earlier stores are done.
    ///
    /// # Errors
    /// How many it has brought instead.
    #[inline]
    pub fn take_short(&self, rank: usize, number: u32, bytes: usize, from: usize, into: &mut [u8]) -> Result<(), usize> {
        assert!(bytes <= INLINE_BYTES && 8 * from + into.len() <= bytes);
        let line = self.line(rank, number);
        let brought = line.payload(HEADER) as u32 as usize;
        if brought != bytes {
            return Err(brought);
        }
        let mut words = into.chunks_exact_mut(8);
        let mut at = HEADER + 1 + from;
        for word in words.by_ref() {
            word.copy_from_slice(&line.payload(at).to_ne_bytes());
            at += 1;
        }
        let rest = words.into_remainder();
        if !rest.is_empty() {
            rest.copy_from_slice(&line.payload(at).to_ne_bytes()[..rest.len()]);
        }
        Ok(())
    }

    /// Publishes under `mark` that `bytes` lie at `offset` of this member's room, the first `ready` of them now.
    #[inline]
    pub fn publish(&self, number: u32, mark: u64, offset: usize, bytes: usize, ready: usize) {
        let line = self.line(self.me, number);
        line.set_payload(HEADER, bytes as u64 | (offset as u64) << 32);
        line.set_payload(READY, ready as u64);
        line.set_payload(SECOND_ROUNDS, 0);
        line.set_payload(NEXT, self.next.load(Ordering::Relaxed));
        line.write(mark, &[]);
    }

    /// Publishes more of the same bytes: the first `ready`.
    #[inline]
    pub fn publish_more(&self, number: u32, ready: usize) {
        self.line(self.me, number).set_word(READY, ready as u64);
    }

    /// The stream that `rank` brings, after [`Slots::brought`]: its bytes pass through a window of `window` bytes.
    ///
    /// # Errors
    /// Where it says a window outside of its room.
    #[inline]
    pub fn read_stream(&self, rank: usize, number: u32, window: usize, room: usize) -> Result<Brought<'a>, Corrupt> {
        let line = self.line(rank, number);
        let header = line.payload(HEADER);
        let (bytes, offset) = (header as u32 as usize, (header >> 32) as usize);
        if offset + window > room { Err(Corrupt { rank, value: header }) } else { Ok(Brought { inline: [0; INLINE_WORDS], line, bytes, offset }) }
    }

    /// What `rank` has brought, after [`Slots::brought`].
    ///
    /// # Errors
    /// Where it says a place outside of its room.
    #[inline]
    pub fn read(&self, rank: usize, number: u32, room: usize) -> Result<Brought<'a>, Corrupt> {
        let line = self.line(rank, number);
        let header = line.payload(HEADER);
        let (bytes, offset) = (header as u32 as usize, (header >> 32) as usize);
        let mut inline = [0; INLINE_WORDS];
        if bytes <= INLINE_BYTES {
            let words = bytes.div_ceil(8);
            for (at, word) in inline.iter_mut().enumerate().take(words) {
                *word = line.payload(HEADER + 1 + at);
            }
        } else if offset + bytes > room {
            return Err(Corrupt { rank, value: header });
        }
        Ok(Brought { inline, line, bytes, offset })
    }
}

impl Brought<'_> {
    #[inline]
    pub fn len(&self) -> usize {
        self.bytes
    }

    #[inline]
    pub fn is_empty(&self) -> bool {
        self.bytes == 0
    }

    /// How many of the bytes are there by now.
    #[inline]
    pub fn ready(&self) -> usize {
        if self.bytes <= INLINE_BYTES { self.bytes } else { self.streamed() }
    }

    /// Of a stream: how many of the bytes have come by now.
    #[inline]
    pub fn streamed(&self) -> usize {
        self.line.word(READY) as usize
    }

    /// Where longer bytes, or a stream's window, begin in the member's room.
    #[inline]
    pub fn offset(&self) -> usize {
        self.offset
    }

    #[cfg(loom)]
    pub fn words(&self) -> &[u64] {
        &self.inline[..self.bytes.div_ceil(8)]
    }
}

#[cfg(not(loom))]
impl Brought<'_> {
    /// Bytes `from..to`.
    ///
    /// # Safety
    /// They are [ready](Brought::ready), `rank` has brought them, and the caller's member has not ended the collective while they are read.
    #[inline]
    pub unsafe fn bytes(&self, room: Option<Room>, rank: usize, from: usize, to: usize) -> &[u8] {
        assert!(from <= to && to <= self.bytes);
        match room {
            // SAFETY: nobody writes there, as the caller promises.
            Some(room) if self.bytes > INLINE_BYTES => unsafe { room.bytes(rank, self.offset + from, to - from) },
            // SAFETY: at most that many bytes are in the line.
            _ => unsafe { std::slice::from_raw_parts(self.inline.as_ptr().cast::<u8>().add(from), to - from) },
        }
    }
}

/// How much of a member's room is prepared at first, bytes; then twice as much each time.
#[cfg(not(loom))]
const PREPARED_BYTES: usize = 128 << 10;

/// Bytes of a member's room, of `each`, whose pages are to be reserved before it is used. The others get theirs when they are needed, where the system can say
/// whether there is memory for them.
#[cfg(not(loom))]
pub fn reserved_bytes(each: usize) -> usize {
    if sys::can_populate() { 0 } else { each }
}

#[cfg(not(loom))]
impl Slots<'_> {
    /// Sees to the pages of the first `end` bytes of this member's `room`, which it has taken and is going to write.
    ///
    /// # Errors
    /// There is no memory for them.
    #[inline]
    pub fn prepare(&self, room: &Room, end: usize) -> Result<(), Error> {
        if end <= self.prepared.load(Ordering::Relaxed) { Ok(()) } else { self.prepare_more(room, end) }
    }

    /// How much of this member's room has been prepared, bytes.
    pub fn prepared(&self) -> usize {
        self.prepared.load(Ordering::Relaxed)
    }

    /// This process has prepared so many bytes of the same room before.
    pub fn assume_prepared(&self, bytes: usize) {
        self.prepared.store(bytes, Ordering::Relaxed);
    }

    #[cold]
    fn prepare_more(&self, room: &Room, end: usize) -> Result<(), Error> {
        assert!(end <= room.each, "{end} of {} bytes", room.each);
        let had = self.prepared.load(Ordering::Relaxed);
        let has = match sys::can_populate() {
            true => {
                let has = end.max(2 * had).max(PREPARED_BYTES).min(room.each);
                // SAFETY: in bounds of the room, which is mapped for the life of the process.
                let from = unsafe { room.start.add(self.me * room.each + had) };
                sys::populate(from, has - had).map_err(|errno| Error::Memory { what: "room for collectives", bytes: (has - had) as u64, errno })?;
                has
            }
            // They are all [reserved](reserved_bytes).
            false => room.each,
        };
        self.prepared.store(has, Ordering::Relaxed);
        Ok(())
    }

    /// Writes `data` at `offset` of this member's room, by the stores that trials have found to be the faster ones.
    ///
    /// # Safety
    /// This member has taken that room and not published it yet.
    #[inline]
    pub unsafe fn write(&self, room: &Room, offset: usize, data: &[u8]) {
        assert!(offset + data.len() <= room.each);
        // SAFETY: in bounds; nobody else reads or writes there, as the caller promises.
        let to = unsafe { room.start.add(self.me * room.each + offset) };
        let write = |stores, from: usize, bytes: usize| {
            // SAFETY: a part of `data`, to the same part of the room.
            unsafe {
                match stores {
                    Stores::Ordinary => sys::copy_written(data.as_ptr().add(from), to.add(from), bytes),
                    Stores::Streaming => sys::copy_streaming(data.as_ptr().add(from), to.add(from), bytes),
                }
            }
        };
        if data.len() < STREAMING_BYTES_MIN {
            return write(Stores::Ordinary, 0, data.len());
        }
        let mut trials = self.trials.lock().unwrap_or_else(|e| e.into_inner());
        // Members do not tell what it takes them to read.
        let Begun { stores, written, .. } =
            trials.begin((data.len(), false), data.len(), Reading::default, sys::ticks, |stores, bytes| write(stores, 0, bytes));
        drop(trials);
        write(stores, written, data.len() - written);
    }
}

/// Copies `from`, which another member has brought, to `into`, of the same length.
#[cfg(not(loom))]
#[inline]
pub fn take_brought(into: &mut [u8], from: &[u8]) {
    assert_eq!(into.len(), from.len());
    // SAFETY: of one length, and apart.
    unsafe { sys::copy_brought(from.as_ptr(), into.as_mut_ptr(), from.len()) }
}

#[cfg(not(loom))]
impl Room {
    /// Bytes of each member's room.
    #[inline]
    pub fn each(&self) -> usize {
        self.each
    }

    /// Bytes of `rank`'s room.
    ///
    /// # Safety
    /// That member has published them, and does not write there for as long as they are borrowed.
    #[inline]
    pub unsafe fn bytes<'a>(self, rank: usize, offset: usize, bytes: usize) -> &'a [u8] {
        assert!(offset + bytes <= self.each);
        // SAFETY: in bounds; nobody writes there, as the caller promises.
        unsafe { std::slice::from_raw_parts(self.start.add(rank * self.each + offset), bytes) }
    }

    /// Bytes of `rank`'s room, to be changed.
    ///
    /// # Safety
    /// `rank` is the caller's member, which has taken that room and not published it yet; for as long as they are borrowed.
    #[inline]
    #[allow(clippy::mut_from_ref)]
    pub unsafe fn bytes_mut(&self, rank: usize, offset: usize, bytes: usize) -> &mut [u8] {
        assert!(offset + bytes <= self.each);
        // SAFETY: in bounds; nobody else reads or writes there, as the caller promises.
        unsafe { std::slice::from_raw_parts_mut(self.start.add(rank * self.each + offset), bytes) }
    }
}
