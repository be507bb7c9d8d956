//! What happens to a descriptor in the receive queue, and to what comes from the peer.

use crate::board::{PeerBoard, permits};
use crate::channel::{Channel, IMMEDIATE as LINE_IMMEDIATE, Kind, OwnGiver};
use crate::descriptor::{self, Piece, Pieces, Side};
use crate::handed::{ENTRIES, Target};
use crate::nic::Nic;
use crate::queue::Cq;
use crate::region::{Attributes, Cache};
use crate::send::posted_descriptor;
use crate::status::*;
use crate::sys::{INLINE_WORDS, Line, One, Packet, RingReceiver, UserRange};
use crate::vi::{After, Ending, Owner, RELIABLE_RECEPTION, State, Vi, ViNotify};
use fabric::shm::parts;
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::Ordering;

struct Entry {
    head: UserRange,
    pieces: Pieces,
    bytes: u64,
    done: bool,
    failed: bool,
}

/// This side's half of a connection.
pub struct Receiver {
    ring: RingReceiver,
    giver: OwnGiver,
    processed: One<Line>,
    count: u64,
    board: Option<Arc<PeerBoard>>,
}

#[derive(Default)]
pub struct RecvSide {
    owner: Option<Owner>,
    cq: Option<&'static Cq>,
    queue: VecDeque<Entry>,
    /// Entries from the front that are complete and announced.
    completed: usize,
    link: Option<Box<Receiver>>,
    cache: Cache,
    pub notifies: VecDeque<ViNotify>,
    copied_bytes: u64,
    /// Why the connection ends: whoever hears of its end in another way meanwhile uses this.
    ending: Option<Ending>,
}

impl RecvSide {
    pub fn new(owner: Owner, cq: Option<&'static Cq>) -> RecvSide {
        RecvSide { owner: Some(owner), cq, ..RecvSide::default() }
    }

    pub fn set_owner(&mut self, owner: Owner) {
        self.owner = Some(owner);
    }

    pub fn nic(&self) -> Option<Arc<Nic>> {
        self.owner.as_ref().map(|owner| owner.nic.clone())
    }

    #[inline]
    pub fn check(&self, generation: u32) -> Result<()> {
        match &self.owner {
            Some(owner) if owner.generation == generation => Ok(()),
            _ => Err(Refusal::InvalidParameter),
        }
    }

    pub fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }

    pub fn on_cq(&self) -> bool {
        self.cq.is_some()
    }

    pub fn copied_bytes(&self) -> u64 {
        self.copied_bytes
    }

    /// Begins to receive: what has been posted is handed over.
    pub fn link(&mut self, channel: &Channel) -> Result<()> {
        let (ring, giver, processed) = channel.receiver()?;
        let mut link = Box::new(Receiver { ring, giver, processed, count: 0, board: None });
        let owner = self.owner.as_ref().ok_or(Refusal::InvalidState)?;
        for entry in self.queue.iter().filter(|entry| !entry.done) {
            hand_over(owner, &mut self.cache, &mut link.giver, &entry.pieces).ok_or(Refusal::InvalidState)?;
        }
        self.link = Some(link);
        self.ending = None;
        Ok(())
    }

    /// What the peer has said of the connection's end.
    pub fn ending(&self) -> Option<Ending> {
        self.ending
    }

    pub fn set_peer(&mut self, board: Arc<PeerBoard>) {
        if let Some(link) = &mut self.link {
            link.board = Some(board);
        }
    }

    pub fn unlink(&mut self) -> Option<Box<Receiver>> {
        self.link.take()
    }

    #[inline(always)]
    fn announce(&mut self, vi: &Vi) {
        while self.queue.get(self.completed).is_some_and(|entry| entry.done) {
            self.completed += 1;
            if let Some(cq) = self.cq {
                cq.add(vi.handle(), true);
            }
        }
    }

    pub fn flush(&mut self, vi: &Vi) {
        for entry in self.queue.iter_mut().filter(|entry| !entry.done) {
            descriptor::complete(&entry.head, OP_RECEIVE | FLUSHED_ERROR, Some(0), None);
            (entry.done, entry.failed) = (true, true);
        }
        self.announce(vi);
    }

    fn add(&mut self, vi: &Vi, head: UserRange, pieces: Pieces, bytes: u64, status: Option<u32>) {
        if let Some(status) = status {
            descriptor::complete(&head, status, Some(0), None);
        }
        self.queue.push_back(Entry { head, pieces, bytes, done: status.is_some(), failed: status.is_some() });
        self.announce(vi);
    }

    /// Completes the first descriptor that waits.
    #[inline(always)]
    fn complete(&mut self, vi: &Vi, status: u32, bytes: u64, immediate: Option<u32>) {
        let Some(entry) = self.queue.get_mut(self.completed) else { return };
        descriptor::complete(&entry.head, status, Some(bytes), immediate);
        (entry.done, entry.failed) = (true, status & ERROR_MASK != 0);
        self.announce(vi);
    }

    /// Takes up to `limit` lines from the ring; gives how many.
    #[inline(always)]
    fn take(&mut self, vi: &Vi, limit: usize, after: &mut After) -> usize {
        let mut taken = 0;
        while taken < limit && after.ending().is_none() {
            let Some(link) = &mut self.link else { break };
            let packet = match link.ring.peek() {
                Ok(Some(packet)) => packet,
                Ok(None) => break,
                Err(_) => {
                    after.end(Ending { tell: true, ..Ending::lost() });
                    break;
                }
            };
            parts::prefetch_for_store(std::ptr::without_provenance::<Line>(vi.next_line.load(Ordering::Relaxed)));
            let old = vi.told.load(Ordering::Relaxed);
            let told = old + (packet.head[0] >> 32).wrapping_sub(old) as u32 as u64;
            if told != old && told - old <= ENTRIES as u64 {
                vi.told.store(told, Ordering::Release);
            }
            self.accept(vi, &packet, after);
            let Some(link) = &mut self.link else { break };
            link.ring.release(&packet);
            link.count += 1;
            if self.owner.as_ref().is_some_and(|owner| owner.level == RELIABLE_RECEPTION) && after.ending().is_none() {
                link.processed.0[0].store(link.count, Ordering::Release);
                if let Some(board) = &link.board {
                    board.signal(true, true);
                }
            }
            taken += 1;
        }
        if let (None, Some(ending)) = (self.ending, after.ending()) {
            self.ending = Some(ending);
        }
        taken
    }

    #[inline(always)]
    fn accept(&mut self, vi: &Vi, packet: &Packet, after: &mut After) {
        let (bytes, immediate) = (packet.head[1] & 0xffff_ffff, (packet.head[1] >> 32) as u32);
        let immediate = (packet.head[0] & LINE_IMMEDIATE != 0).then_some(immediate);
        match Kind::of(packet.head[0]) {
            Some(Kind::Inline) => self.inline(vi, packet, bytes, immediate, after),
            Some(Kind::Placed) => self.placed(vi, bytes, immediate, after),
            kind => self.accept_rare(vi, kind, packet, bytes, immediate, after),
        }
    }

    #[inline(always)]
    fn inline(&mut self, vi: &Vi, packet: &Packet, bytes: u64, immediate: Option<u32>, after: &mut After) {
        let owner = self.owner.as_ref().expect("a linked side has an owner");
        let Some(entry) = self.queue.get(self.completed) else { return self.nothing_posted(after) };
        if bytes > packet.inline_bytes as u64 {
            return after.end(Ending { tell: true, ..Ending::lost() });
        }
        if entry.bytes < bytes {
            return self.too_long(vi, true, after);
        }
        let good = match &*entry.pieces {
            [piece] => match self.cache.find(&owner.nic, piece.handle).and_then(|region| region.window(owner.ptag, piece.address, bytes)) {
                Some(part) => {
                    part.set_words(&packet.words);
                    true
                }
                None => false,
            },
            pieces => scatter(owner, &mut self.cache, pieces, &packet.words, bytes as usize).is_some(),
        };
        if !good {
            return self.unprotected(vi, after);
        }
        self.complete(vi, OP_RECEIVE, bytes, immediate);
    }

    /// A message that the peer has written to where the descriptor says; what went to shadow segments is copied from there.
    fn placed(&mut self, vi: &Vi, bytes: u64, immediate: Option<u32>, after: &mut After) {
        let owner = self.owner.as_ref().expect("a linked side has an owner");
        let Some(entry) = self.queue.get(self.completed) else { return self.nothing_posted(after) };
        if entry.bytes < bytes {
            return self.too_long(vi, true, after);
        }
        let (mut left, mut good, mut copied) = (bytes, true, 0);
        for piece in entry.pieces.iter() {
            let part_bytes = left.min(piece.bytes as u64);
            left -= part_bytes;
            let Some(region) = self.cache.find(&owner.nic, piece.handle) else {
                good = false;
                break;
            };
            let Some(part) = region.window(owner.ptag, piece.address, part_bytes) else {
                good = false;
                break;
            };
            if let Some(shadow) = region.shadow() {
                match shadow.bytes(piece.address - region.user.start(), part_bytes) {
                    Some(from) => part.copy_from(from),
                    None => good = false,
                }
                copied += part_bytes;
            }
            if left == 0 {
                break;
            }
        }
        self.copied_bytes += copied;
        if !good {
            return self.unprotected(vi, after);
        }
        self.complete(vi, OP_RECEIVE, bytes, immediate);
    }

    #[cold]
    fn accept_rare(&mut self, vi: &Vi, kind: Option<Kind>, packet: &Packet, bytes: u64, immediate: Option<u32>, after: &mut After) {
        let range = (packet.words[0] as u32, packet.words[0] >> 32, packet.words[1]);
        match kind {
            Some(Kind::TooLong) => self.too_long(vi, false, after),
            Some(Kind::Written) => {
                if packet.inline_bytes != 16 || !self.copy_shadow(range, true) {
                    after.end(Ending { tell: true, ..Ending::of(ErrorCode::RdmaWriteProtection, 0, OP_REMOTE_RDMA_WRITE, true) });
                }
            }
            Some(Kind::WrittenImmediate) => {
                if packet.inline_bytes != 0 && (packet.inline_bytes != 16 || !self.copy_shadow(range, true)) {
                    after.end(Ending { tell: true, ..Ending::of(ErrorCode::RdmaWriteProtection, 0, OP_REMOTE_RDMA_WRITE, true) });
                } else if self.queue.len() == self.completed {
                    self.nothing_posted(after);
                } else {
                    self.complete(vi, OP_REMOTE_RDMA_WRITE, bytes, immediate);
                }
            }
            Some(Kind::Read) => {
                if packet.inline_bytes != 24 || !self.copy_shadow(range, false) {
                    after.end(Ending::of(ErrorCode::RdmaReadProtection, 0, OP_RDMA_READ, true));
                } else {
                    after.reply(packet.words[2]);
                }
            }
            Some(Kind::ReadDone) => vi.reads.store(packet.words[0], Ordering::Release),
            Some(Kind::Over) => {
                let unfinished = if packet.head[1] as u32 == ErrorCode::ConnectionLost as u32 { TRANSPORT_ERROR } else { REMOTE_DESC_ERROR };
                let code = match packet.head[1] as u32 {
                    2 => ErrorCode::ReceiveQueueEmpty,
                    4 => ErrorCode::RdmaWriteProtection,
                    7 => ErrorCode::RdmaReadProtection,
                    _ => ErrorCode::ConnectionLost,
                };
                after.end(Ending { code, unfinished, ..Ending::lost() });
            }
            _ => after.end(Ending { tell: true, ..Ending::lost() }),
        }
    }

    /// Copies between a shadow segment and the program's memory, after the checks that RDMA asks for. The peer's range is not trusted.
    fn copy_shadow(&mut self, (handle, bytes, offset): (u32, u64, u64), write: bool) -> bool {
        let Some(owner) = &self.owner else { return false };
        let own = Attributes { ptag: owner.ptag, write: owner.write, read: owner.read }.bits();
        let Some(region) = self.cache.find(&owner.nic, handle) else { return false };
        let Some(shadow) = region.shadow() else { return false };
        let address = region.user.start().checked_add(offset);
        let part = address.and_then(|address| region.window(owner.ptag, address, bytes));
        let (Some(part), Some(raw)) = (part, shadow.bytes(offset, bytes)) else { return false };
        if !permits(region.attributes.bits(), own, write) {
            return false;
        }
        if write {
            part.copy_from(raw)
        } else {
            part.copy_to(raw)
        }
        self.copied_bytes += bytes;
        true
    }

    /// A message without a descriptor: senders look first, so that only one that breaks the rules gets here.
    #[cold]
    fn nothing_posted(&mut self, after: &mut After) {
        after.end(Ending { tell: true, code: ErrorCode::ReceiveQueueEmpty, ..Ending::lost() });
    }

    /// The descriptor's memory is not registered any more, or has another tag.
    #[cold]
    fn unprotected(&mut self, vi: &Vi, after: &mut After) {
        let address = self.queue.get(self.completed).map_or(0, |entry| entry.head.start());
        self.complete(vi, OP_RECEIVE | PROTECTION_ERROR, 0, None);
        after.end(Ending::of(ErrorCode::CompletionProtection, address, OP_RECEIVE, true));
    }

    #[cold]
    fn too_long(&mut self, vi: &Vi, tell: bool, after: &mut After) {
        let Some(entry) = self.queue.get(self.completed) else { return self.nothing_posted(after) };
        let address = entry.head.start();
        self.complete(vi, OP_RECEIVE | LENGTH_ERROR, 0, None);
        if self.owner.as_ref().is_some_and(|owner| owner.reliable()) {
            after.end(Ending::of(ErrorCode::PostDescriptor, address, OP_RECEIVE, tell));
        }
    }
}

/// Writes the first `bytes` of a line's words to the pieces of a list. `None`: it reaches outside of what is registered.
fn scatter(owner: &Owner, cache: &mut Cache, pieces: &[Piece], words: &[u64; INLINE_WORDS], bytes: usize) -> Option<()> {
    let mut body = [0u8; 8 * INLINE_WORDS];
    body.chunks_exact_mut(8).zip(words).for_each(|(to, word)| to.copy_from_slice(&word.to_ne_bytes()));
    let mut at = 0;
    for piece in pieces {
        if at == bytes {
            break;
        }
        let end = (at + piece.bytes as usize).min(bytes);
        let part = cache.find(&owner.nic, piece.handle)?.window(owner.ptag, piece.address, (end - at) as u64)?;
        part.store(&body[at..end]);
        at = end;
    }
    Some(())
}

/// Hands a descriptor to the sender, as regions and offsets. `None`: it reaches outside of what is registered.
#[inline]
fn hand_over(owner: &Owner, cache: &mut Cache, giver: &mut OwnGiver, pieces: &Pieces) -> Option<()> {
    let mut few = [Target::default(); 2];
    let mut many = Vec::new();
    for (at, piece) in pieces.iter().enumerate() {
        let region = cache.find(&owner.nic, piece.handle)?;
        region.window(owner.ptag, piece.address, piece.bytes as u64)?;
        let target = Target { handle: piece.handle, bytes: piece.bytes, offset: piece.address - region.user.start() };
        if pieces.len() <= 2 { few[at] = target } else { many.push(target) }
    }
    let targets = if pieces.len() <= 2 { &few[..pieces.len()] } else { &many[..] };
    giver.give(targets.iter().copied());
    Some(())
}

impl Vi {
    /// Posts a descriptor to the receive queue.
    #[inline]
    pub fn post_recv(&'static self, generation: u32, address: u64, handle: u32) -> Result<()> {
        let (mut after, mut connection) = (After::default(), 0);
        let posted = self.recv.with(|side| {
            side.check(generation)?;
            let owner = side.owner.as_ref().expect("checked");
            let (whole, allowed) = posted_descriptor(owner, &mut side.cache, address, handle)?;
            if side.queue.len() >= ENTRIES {
                return Err(Refusal::Resource);
            }
            let state = self.state();
            if state == State::Error {
                side.add(self, whole, Pieces::default(), 0, Some(OP_RECEIVE | FLUSHED_ERROR));
                return Ok(());
            }
            connection = self.connection.load(Ordering::Relaxed);
            descriptor::begin(&whole);
            let work = if allowed { descriptor::read(&whole, Side::Receive) } else { Err(OP_RECEIVE | PROTECTION_ERROR) };
            let failed = match work {
                Ok(work) => {
                    let known = match &mut side.link {
                        Some(link) => hand_over(owner, &mut side.cache, &mut link.giver, &work.pieces),
                        None => work
                            .pieces
                            .iter()
                            .try_for_each(|piece| side.cache.find(&owner.nic, piece.handle)?.window(owner.ptag, piece.address, piece.bytes as u64).map(|_| ())),
                    };
                    let status = known.is_none().then_some(OP_RECEIVE | PROTECTION_ERROR);
                    side.add(self, whole, work.pieces, work.bytes, status);
                    status.is_some()
                }
                Err(status) => {
                    side.add(self, whole, Pieces::default(), 0, Some(status));
                    true
                }
            };
            if failed && state == State::Connected {
                after.end(Ending::of(ErrorCode::PostDescriptor, address, OP_RECEIVE, true));
            }
            Ok(())
        });
        after.settle(self, connection);
        posted
    }

    /// Takes a completed descriptor from the receive queue: its address, and whether it failed. An empty queue is a descriptor error.
    #[inline]
    pub fn recv_done(&'static self, generation: u32) -> Result<(u64, bool)> {
        let (mut after, mut connection) = (After::default(), 0);
        let done = self.recv.with(|side| {
            side.check(generation)?;
            if side.completed == 0 && self.state() == State::Connected {
                connection = self.connection.load(Ordering::Relaxed);
                while side.completed == 0 && side.take(self, 1, &mut after) > 0 {}
            }
            if side.completed == 0 {
                return Err(if side.queue.is_empty() { Refusal::DescriptorError } else { Refusal::NotDone });
            }
            side.completed -= 1;
            let entry = side.queue.pop_front().expect("counted");
            Ok((entry.head.start(), entry.failed))
        });
        after.settle(self, connection);
        done
    }

    /// Takes what has come, up to `limit` lines. True: something had.
    pub fn receive(&'static self, limit: usize) -> bool {
        let (mut after, mut connection) = (After::default(), 0);
        let taken = self.recv.with(|side| {
            if self.state() != State::Connected {
                return 0;
            }
            connection = self.connection.load(Ordering::Relaxed);
            side.take(self, limit, &mut after)
        });
        after.settle(self, connection);
        taken > 0
    }
}
