//! What waits to leave through one socket: datagrams of equal length to one address go to the kernel in one piece, which cuts
//! them again (GSO), and several such groups in one call.

use std::mem::MaybeUninit;
use std::net::SocketAddr;
use std::time::Instant;

use proto::reliability::SEGMENTS_MAX;
use proto::reliability::wire::{RUN_BYTES_MAX, run_datagrams};

use super::groups::{Group, Piece};
use super::lines::Sockets;
use super::splice::{LEAST_BYTES, Slots};
use super::sys::{self, GROUPS_MAX, SendSpace, Through};
use crate::reliable::{Batch, SendCounters};
use crate::stores::Stores;

/// Bytes of one group, at most.
const GROUP_BYTES_MAX: usize = RUN_BYTES_MAX as usize;
/// Pieces of one group, at most: the kernel's UIO_MAXIOV.
const PIECES_MAX: usize = 1024;
/// Payloads up to so many bytes are copied behind their headers: the kernel takes one long piece in less time than many short ones,
/// and the authenticator has just brought them into the cache.
pub const COPIED_BYTES_MAX: usize = 4 << 10;

const LINE_BYTES: usize = 64;

/// How many more of `each_bytes` that one takes.
fn room(group: &Group, each_bytes: usize) -> usize {
    ((GROUP_BYTES_MAX - group.bytes) / each_bytes).min(SEGMENTS_MAX - group.segments)
}

/// How many groups a run of `count` datagrams of `each_bytes` makes at the least, if it makes groups.
pub fn groups_of(each_bytes: usize, count: usize) -> usize {
    count.div_ceil(run_datagrams(each_bytes))
}

pub struct Outbox {
    groups: Vec<Group>,
    pieces: Vec<Piece>,
    own: Vec<u8>,
    /// Where long runs are made.
    pub slots: Slots,
    /// Runs in them that something else has joined, so that they are copied.
    mixed: Vec<usize>,
    /// What waits, payloads included.
    waiting_bytes: usize,
    space: Box<SendSpace>,
    /// Longest datagram that leaves in one packet, bytes.
    whole_bytes: usize,
    /// Joining datagrams has not been refused.
    joins: bool,
    /// The socket is full; all pieces are our own.
    parked: bool,
    pub counters: SendCounters,
}

// SAFETY: foreign pieces are used by the thread that put them there, before it does anything else.
unsafe impl Send for Outbox {}

impl Outbox {
    /// For a link that takes datagrams of up to `whole_bytes`; longer ones leave by themselves, each in several packets.
    pub fn new(whole_bytes: u32) -> Outbox {
        Outbox {
            whole_bytes: whole_bytes as usize,
            groups: Vec::new(),
            pieces: Vec::new(),
            own: Vec::new(),
            slots: Slots::new(),
            mixed: Vec::new(),
            waiting_bytes: 0,
            space: SendSpace::new(),
            joins: true,
            parked: false,
            counters: SendCounters::default(),
        }
    }

    /// Waits for the socket to have room.
    pub fn is_parked(&self) -> bool {
        self.parked
    }

    pub fn is_empty(&self) -> bool {
        self.groups.is_empty()
    }

    /// Whether the last group is one of datagrams of `bytes` to that address.
    pub fn continues(&self, to: SocketAddr, bytes: usize) -> bool {
        self.groups.last().is_some_and(|group| !group.closed && group.to == to && group.segment_bytes == bytes)
    }

    /// Adds a datagram. False when the socket is full: it was not taken.
    ///
    /// # Safety
    /// `payload` must stay readable until the next [`Outbox::flush`] has returned.
    pub unsafe fn push<'a>(&mut self, sockets: &mut Sockets, to: SocketAddr, header: &[u8], payload: impl Iterator<Item = &'a [u8]> + Clone) -> bool {
        let payload_bytes = payload.clone().map(<[u8]>::len).sum::<usize>();
        let bytes = header.len() + payload_bytes;
        if payload_bytes <= COPIED_BYTES_MAX {
            return self.push_copied(sockets, to, bytes, |own| {
                own.extend_from_slice(header);
                payload.for_each(|slice| own.extend_from_slice(slice));
            });
        }
        if !self.place(sockets, to, bytes, header.len(), payload.clone().count()) {
            return false;
        }
        self.own.extend_from_slice(header);
        let pieces = payload.map(|slice| Piece::Foreign { start: slice.as_ptr(), bytes: slice.len() });
        self.pieces.extend(pieces);
        self.placed(sockets, bytes);
        true
    }

    /// Adds a datagram of `bytes`, which `write` appends. False when the socket is full: it was not asked for.
    pub fn push_copied(&mut self, sockets: &mut Sockets, to: SocketAddr, bytes: usize, write: impl FnOnce(&mut Vec<u8>)) -> bool {
        if !self.place(sockets, to, bytes, bytes, 0) {
            return false;
        }
        write(&mut self.own);
        self.placed(sockets, bytes);
        true
    }

    /// Adds a batch of datagrams, which `write` makes one after the other in memory for one or several of them, all of which it has to fill. How many were taken: fewer when
    /// the socket is full.
    ///
    /// # Safety
    /// `write` must initialize all that it is given.
    pub unsafe fn push_run(&mut self, sockets: &mut Sockets, to: SocketAddr, batch: Batch, mut write: impl FnMut(&mut [MaybeUninit<u8>], Stores)) -> usize {
        let Batch { each_bytes, count, .. } = batch;
        let mut taken = 0;
        while taken < count {
            if self.parked && !self.flush(sockets) {
                break;
            }
            if let Some((slot, at, more)) = self.place_in_slot(to, Batch { count: count - taken, ..batch }, taken > 0) {
                let start = Instant::now();
                let stores = self.slots.stores(slot);
                write(&mut self.slots.room(slot)[at..at + more * each_bytes], stores);
                self.slots.made(slot, start.elapsed().as_nanos() as u64);
                taken += more;
                self.waiting_bytes += (more - 1) * each_bytes;
                self.placed(sockets, each_bytes);
                continue;
            }
            if self.groups.is_empty() {
                // Lines of the cache that are written whole are cheaper.
                let odd = self.own.as_ptr().align_offset(LINE_BYTES);
                self.own.resize(odd.min(LINE_BYTES), 0);
            }
            if !self.place(sockets, to, each_bytes, each_bytes, 0) {
                break;
            }
            let (Some(group), Some(Piece::Own { bytes, .. })) = (self.groups.last_mut(), self.pieces.last_mut()) else { unreachable!("has just been placed") };
            let more = if self.joins && !group.closed && each_bytes <= self.whole_bytes { room(group, each_bytes).min(count - taken - 1) } else { 0 };
            group.segments += more;
            group.bytes += more * each_bytes;
            *bytes += more * each_bytes;
            let (start, run_bytes) = (self.own.len(), (1 + more) * each_bytes);
            self.own.reserve(run_bytes);
            write(&mut self.own.spare_capacity_mut()[..run_bytes], Stores::Ordinary);
            // SAFETY: reserved, and written as the caller promises.
            unsafe { self.own.set_len(start + run_bytes) };
            taken += 1 + more;
            self.waiting_bytes += more * each_bytes;
            self.placed(sockets, each_bytes);
        }
        taken
    }

    /// Makes room for up to `count` datagrams of `each_bytes` where runs are made that may be spliced: where, from which byte on, and how many. Behind those
    /// of the last run, or in memory of their own; so also the `rest` of a long run, which the next one may join.
    fn place_in_slot(&mut self, to: SocketAddr, Batch { stamp, each_bytes, count, stores }: Batch, rest: bool) -> Option<(usize, usize, usize)> {
        if !self.joins || each_bytes > self.whole_bytes {
            return None;
        }
        if let Some(group) = self.groups.last_mut()
            && let Some(slot) = group.slot
            && !group.closed
            && group.to == to
            && each_bytes <= group.segment_bytes
        {
            let shorter = each_bytes < group.segment_bytes;
            let more = room(group, each_bytes).min(if shorter { 1 } else { count });
            if more > 0 {
                let (start, bytes) = (group.bytes, more * each_bytes);
                (group.segments, group.bytes, group.closed) = (group.segments + more, start + bytes, shorter);
                let Some(Piece::Foreign { bytes: whole, .. }) = self.pieces.last_mut() else { unreachable!("its only piece") };
                *whole += bytes;
                self.slots.join(slot, stamp);
                return Some((slot, start, more));
            }
        }
        let more = run_datagrams(each_bytes).min(count);
        let bytes = more * each_bytes;
        if bytes < LEAST_BYTES && !rest || self.groups.len() == GROUPS_MAX {
            return None;
        }
        let slot = self.slots.open(stamp, stores)?;
        let start = self.slots.room(slot)[..bytes].as_ptr().cast();
        self.groups.push(Group { to, pieces: 1, segments: more, segment_bytes: each_bytes, bytes, closed: false, slot: Some(slot) });
        self.pieces.push(Piece::Foreign { start, bytes });
        Some((slot, 0, more))
    }

    /// Makes room for a datagram of `bytes`, the first `own` of them here and the rest in foreign `pieces`.
    fn place(&mut self, sockets: &mut Sockets, to: SocketAddr, bytes: usize, own: usize, foreign: usize) -> bool {
        if self.parked && !self.flush(sockets) {
            return false;
        }
        let pieces = 1 + foreign;
        let joins = self.joins;
        let fits = |group: &&mut Group| {
            joins
                && !group.closed
                && group.to == to
                && bytes <= group.segment_bytes
                && group.segment_bytes <= self.whole_bytes
                && group.segments < SEGMENTS_MAX
                && group.bytes + bytes <= GROUP_BYTES_MAX
                && group.pieces + pieces <= PIECES_MAX
        };
        let mut joined = false;
        match self.groups.last_mut().filter(fits) {
            Some(group) => {
                group.segments += 1;
                group.bytes += bytes;
                group.closed = bytes < group.segment_bytes;
                if let Some(slot) = group.slot.take() {
                    self.mixed.push(slot);
                }
                joined = matches!(self.pieces.last(), Some(Piece::Own { .. }));
                group.pieces += pieces - joined as usize;
            }
            None => {
                if self.groups.len() == GROUPS_MAX && !self.flush(sockets) {
                    return false;
                }
                self.groups.push(Group { to, pieces, segments: 1, segment_bytes: bytes, bytes, closed: false, slot: None });
            }
        }
        match self.pieces.last_mut() {
            Some(Piece::Own { bytes, .. }) if joined => *bytes += own,
            _ => self.pieces.push(Piece::Own { start: self.own.len(), bytes: own }),
        }
        true
    }

    fn placed(&mut self, sockets: &mut Sockets, bytes: usize) {
        self.waiting_bytes += bytes;
        if self.waiting_bytes + bytes > GROUP_BYTES_MAX {
            // While it is in the cache, and so that the receiver can begin. If the socket is full, that is said next time.
            self.flush(sockets);
        }
    }

    /// Hands everything to the kernel. False when the socket is full: what is left has been copied, and no foreign piece is
    /// used any more.
    pub fn flush(&mut self, sockets: &mut Sockets) -> bool {
        let (mut groups, mut pieces) = (0, 0);
        // What the socket did not take leaves through it as soon as it does.
        let mut line = if std::mem::take(&mut self.parked) { None } else { sockets.line(&self.groups) };
        self.waiting_bytes = 0;
        while groups < self.groups.len() {
            self.counters.calls += 1;
            let first = self.groups[groups];
            let spliced = first.slot.filter(|&slot| line.is_some() && self.slots.splices(slot, first.bytes));
            let start = first.slot.map(|_| Instant::now());
            let sent = match (spliced, line) {
                (Some(slot), Some(line)) => self.splice(sockets, line, slot, &first),
                _ => self.send(sockets, line, groups, pieces),
            };
            match sent {
                // It may be full, or tell of an earlier datagram.
                Err(_) if line.is_some() => line = None,
                Ok(count) => {
                    if let Some((start, slot)) = start.zip(first.slot).filter(|_| line.is_some()) {
                        self.slots.took(slot, spliced.is_some(), start.elapsed().as_nanos() as u64, first.bytes);
                    }
                    for group in &self.groups[groups..groups + count] {
                        self.counters.datagrams += group.segments as u64;
                        pieces += group.pieces;
                    }
                    groups += count;
                }
                Err(libc::EAGAIN | libc::ENOBUFS) => {
                    self.counters.full += 1;
                    self.park(groups, pieces);
                    return false;
                }
                Err(libc::EIO | libc::EINVAL) if first.segments > 1 => {
                    // The device cannot cut. What waits here counts as lost and leaves again in single datagrams.
                    self.joins = false;
                    self.counters.dropped += first.segments as u64;
                    pieces += first.pieces;
                    groups += 1;
                }
                Err(_) => {
                    self.counters.dropped += first.segments as u64;
                    pieces += first.pieces;
                    groups += 1;
                }
            }
        }
        self.end_slots();
        self.groups.clear();
        self.pieces.clear();
        self.own.clear();
        true
    }

    /// Sends groups from number `groups` on, whose pieces are those from `pieces` on, in one call: those that are alike in what it takes. How many.
    fn send(&mut self, sockets: &mut Sockets, line: Option<usize>, groups: usize, pieces: usize) -> Result<usize, i32> {
        let rest = &self.groups[groups..];
        let is_long = |group: &Group| group.segment_bytes > self.whole_bytes;
        let long = is_long(&rest[0]);
        // One that may be spliced has a call of its own.
        let alike = if rest[0].slot.is_some() { 1 } else { rest.iter().take_while(|group| is_long(group) == long && group.slot.is_none()).count() };
        let line = line.filter(|_| !long);
        let (socket, through) = line.map_or((sockets.own(), Through::Any), |line| (&sockets.all()[line], sockets.through(line)));
        if long {
            sys::set_fragments(socket, true);
        }
        // SAFETY: foreign pieces are readable until this returns, as `push` demands, or in memory of this.
        let sent = unsafe { sys::send(socket, through, &mut self.space, &rest[..alike], &self.pieces[pieces..], &self.own) };
        if long {
            sys::set_fragments(socket, false);
        }
        sent
    }

    /// Sends a run from where it was made.
    fn splice(&mut self, sockets: &mut Sockets, line: usize, slot: usize, group: &Group) -> Result<usize, i32> {
        let socket = sockets.cutting(line, group.segment_bytes)?;
        self.slots.send(socket, slot, group.bytes)?;
        self.counters.spliced += group.segments as u64;
        Ok(1)
    }

    /// What waited in them has left, or been copied.
    fn end_slots(&mut self) {
        for slot in self.groups.iter().filter_map(|group| group.slot).chain(self.mixed.drain(..)) {
            self.slots.end(slot);
        }
    }

    /// Keeps what has not left, without the program's memory.
    pub(super) fn park(&mut self, groups: usize, pieces: usize) {
        self.end_slots();
        self.groups.drain(..groups);
        self.groups.iter_mut().for_each(|group| group.slot = None);
        self.pieces.drain(..pieces);
        let mut own = Vec::new();
        for piece in &mut self.pieces {
            let start = own.len();
            let bytes = match *piece {
                Piece::Own { start, bytes } => {
                    own.extend_from_slice(&self.own[start..start + bytes]);
                    bytes
                }
                Piece::Foreign { start, bytes } => {
                    // SAFETY: readable until `flush` returns, as `push` demands.
                    own.extend_from_slice(unsafe { std::slice::from_raw_parts(start, bytes) });
                    bytes
                }
            };
            *piece = Piece::Own { start, bytes };
        }
        self.own = own;
        self.parked = true;
    }
}
