//! What happens to a descriptor in the send queue.

use crate::blocks::blocks;
use crate::board::{PeerBoard, RemoteRegion, permits};
use crate::channel::{Channel, Kind, PeerChannel, head};
use crate::descriptor::{self, CONTROL_BYTES, Op, SEGMENT_BYTES, Side, Work};
use crate::handed::{BATCH, Counts, ENTRIES, Posted, posted};
use crate::queue::Cq;
use crate::region::{CACHED, Cache, SHADOW};
use crate::status::*;
use crate::sys::{One, Raw, UserRange, push};
use crate::vi::{After, Ending, Owner, RELIABLE_RECEPTION, State, Vi, ViNotify};
use fabric::shm::ring::INLINE_BYTES;
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

enum Step {
    /// Not begun: the ring was full, or a fence holds it.
    Waiting(Box<Work>),
    /// The peer copies bytes to its shadow segment.
    Reading(u64, Box<Work>),
    /// Complete when the peer has processed so many lines.
    Acking(u64),
    Done,
}

struct Entry {
    head: UserRange,
    step: Step,
    op: u32,
    failed: bool,
}

/// The peer's side of a connection.
pub struct Link {
    pub peer: PeerChannel,
    pub board: Arc<PeerBoard>,
    /// This side's own segment, which lives as long.
    _channel: Channel,
    own_posted: One<Posted>,
    remote: [Option<Arc<RemoteRegion>>; CACHED],
    /// Lines put into the ring; reads asked for.
    pushed: u64,
    reads: u64,
    replies: VecDeque<u64>,
    pace: Pace,
}

#[derive(Default)]
pub struct SendSide {
    owner: Option<Owner>,
    cq: Option<&'static Cq>,
    queue: VecDeque<Entry>,
    /// Entries from the front that are complete and announced.
    completed: usize,
    link: Option<Box<Link>>,
    cache: Cache,
    windows: Vec<UserRange>,
    pub notifies: VecDeque<ViNotify>,
    batch: u32,
    counts: Counts,
    placed_bytes: u64,
}

/// What became of an attempt to carry a descriptor out.
enum Outcome {
    Done,
    Acking(u64),
    Reading(u64),
    Full,
    /// Status bits of the descriptor; how the connection ends, if it does.
    Failed(u32, Option<(ErrorCode, bool)>),
}

impl Link {
    /// Puts a line into the ring; false: it is full.
    #[inline(always)]
    fn push(&mut self, kind: Kind, immediate: Option<u32>, bytes: u64, body: &[u64]) -> Result<bool, ()> {
        let first = head(kind, immediate.is_some(), posted(&self.own_posted));
        let second = bytes | (immediate.unwrap_or(0) as u64) << 32;
        let done = push(&mut self.peer.ring, [first, second], body).map_err(|_| ())?;
        self.pushed += done as u64;
        Ok(done)
    }

    /// The peer's region of that handle, mapped.
    fn region(&mut self, handle: u32) -> Option<Arc<RemoteRegion>> {
        self.board.attributes(handle)?;
        let slot = &mut self.remote[handle as usize % CACHED];
        if slot.as_ref().is_none_or(|region| region.handle != handle) {
            *slot = self.board.region(handle);
        }
        slot.clone()
    }
}

/// Handle, length and offset of a range of a region, as lines carry them.
fn range_words(handle: u32, bytes: u64, offset: u64) -> [u64; 2] {
    [handle as u64 | bytes << 32, offset]
}

/// Bytes from which on the way of writing into a shadow segment is chosen by what it has cost.
const TIMED_BYTES_MIN: u64 = 16 << 10;
/// So often the way that was dearer is tried again, times how much dearer it was: that takes one part in `RETRY_EVERY` of the time.
const RETRY_EVERY: u32 = 32;
const RETRY_RATIO_MAX: u64 = 8;

/// What writing into the peer's shadow segments costs: through the caches, and past them. The peer copies from there, and so has the lines in
/// its cache; where the two cores share one that costs little, where they do not, ten times as much as writing past the caches.
#[derive(Default)]
struct Pace {
    /// Nanoseconds a MiB, of both ways; 0: not known yet.
    costs: [u64; 2],
    count: u32,
}

impl Pace {
    fn put(&mut self, from: &UserRange, to: Raw) {
        if from.bytes() < TIMED_BYTES_MIN {
            return from.copy_to(to);
        }
        let past = self.choose();
        let start = Instant::now();
        if past {
            from.stream_to(to)
        } else {
            from.copy_to(to)
        }
        self.learn(past, (start.elapsed().as_nanos() as u64 * (1 << 20) / from.bytes()).max(1));
    }

    /// Whether to write past the caches now. The dearer way is tried the more seldom the dearer it is.
    fn choose(&mut self) -> bool {
        let past = self.costs[1] < self.costs[0];
        let (cost, other) = (self.costs[past as usize], self.costs[!past as usize]);
        self.count += 1;
        if self.count < RETRY_EVERY * (other / cost.max(1)).clamp(1, RETRY_RATIO_MAX) as u32 {
            return past;
        }
        self.count = 0;
        !past
    }

    /// Takes a cost in, which may have the kernel's time in it: page faults of the first write, or another program's turn on this core. So what
    /// is lower than known counts most, and what is higher not beyond the double.
    fn learn(&mut self, past: bool, cost: u64) {
        let known = &mut self.costs[past as usize];
        *known = match *known {
            0 => cost,
            old if cost < old => (old + 3 * cost) / 4,
            old => (3 * old + cost.min(2 * old)) / 4,
        };
    }
}

/// The bytes of windows, which together fit in a line, as its words.
#[inline]
fn gathered(windows: &[UserRange]) -> [u64; INLINE_BYTES / 8] {
    if let [window] = windows {
        return window.words();
    }
    let mut body = [0u8; INLINE_BYTES];
    let mut at = 0;
    for window in windows {
        let end = at + window.bytes() as usize;
        window.load(&mut body[at..end]);
        at = end;
    }
    std::array::from_fn(|at| u64::from_ne_bytes(body[8 * at..8 * at + 8].try_into().expect("eight bytes")))
}

impl SendSide {
    pub fn new(owner: Owner, cq: Option<&'static Cq>) -> SendSide {
        SendSide { owner: Some(owner), cq, batch: BATCH, ..SendSide::default() }
    }

    pub fn set_owner(&mut self, owner: Owner) {
        self.owner = Some(owner);
    }

    #[inline]
    pub fn check(&self, generation: u32) -> Result<(), Refusal> {
        match &self.owner {
            Some(owner) if owner.generation == generation => Ok(()),
            _ => Err(Refusal::InvalidParameter),
        }
    }

    pub fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }

    pub fn linked(&self) -> bool {
        self.link.is_some()
    }

    pub fn on_cq(&self) -> bool {
        self.cq.is_some()
    }

    pub fn link(&mut self, channel: Channel, mut peer: PeerChannel, board: Arc<PeerBoard>, own_posted: One<Posted>) {
        peer.taker.batch = self.batch;
        let remote = Default::default();
        self.link =
            Some(Box::new(Link { peer, board, _channel: channel, own_posted, remote, pushed: 0, reads: 0, replies: VecDeque::new(), pace: Pace::default() }));
    }

    pub fn unlink(&mut self) -> Option<Box<Link>> {
        let link = self.link.take()?;
        let counts = link.peer.taker.counts;
        self.counts.uses += counts.uses;
        self.counts.found += counts.found;
        self.counts.batches += counts.batches;
        Some(link)
    }

    pub fn set_batch(&mut self, batch: u32) {
        self.batch = batch;
        if let Some(link) = &mut self.link {
            link.peer.taker.batch = batch;
        }
    }

    /// Counters of receive descriptors used, and bytes placed.
    pub fn counters(&self) -> (Counts, u64) {
        let more = self.link.as_ref().map_or(Counts::default(), |link| link.peer.taker.counts);
        let (a, b) = (self.counts, more);
        (Counts { uses: a.uses + b.uses, found: a.found + b.found, batches: a.batches + b.batches }, self.placed_bytes)
    }

    /// The memory of a posted descriptor, and whether the VI's tag is its region's.
    #[inline(always)]
    fn whole(&mut self, address: u64, handle: u32) -> Result<(UserRange, bool), Refusal> {
        let owner = self.owner.as_ref().expect("checked");
        posted_descriptor(owner, &mut self.cache, address, handle)
    }

    /// Completes what can be retrieved, in order.
    #[inline(always)]
    fn announce(&mut self, vi: &Vi) {
        while let Some(Entry { step: Step::Done, .. }) = self.queue.get(self.completed) {
            self.completed += 1;
            if let Some(cq) = self.cq {
                cq.add(vi.handle(), false);
            }
        }
    }

    /// Ends all that is not complete: `unfinished` is the status of what waits for the peer.
    pub fn flush(&mut self, vi: &Vi, unfinished: u32) {
        for entry in &mut self.queue {
            let bits = match entry.step {
                Step::Done => continue,
                Step::Waiting(_) => FLUSHED_ERROR,
                Step::Reading(..) | Step::Acking(_) => unfinished,
            };
            descriptor::complete(&entry.head, entry.op | bits, None, None);
            (entry.step, entry.failed) = (Step::Done, true);
        }
        self.announce(vi);
    }

    /// Adds an entry that is complete already.
    fn add_done(&mut self, vi: &Vi, head: UserRange, status: u32) {
        descriptor::complete(&head, status, None, None);
        self.queue.push_back(Entry { head, step: Step::Done, op: 0, failed: status & ERROR_MASK != 0 });
        self.announce(vi);
    }

    /// Whether entries before the newest must be carried out first.
    fn behind(&self, fence: bool) -> bool {
        // Ring order is posting order, so only what has not begun, or a fence after reads, holds an entry.
        self.queue.iter().skip(self.completed).any(|entry| match entry.step {
            Step::Waiting(_) => true,
            Step::Reading(..) => fence,
            _ => false,
        })
    }

    fn begin(&mut self, vi: &Vi, head: UserRange, work: Work, after: &mut After) {
        let op = work.op.status();
        let outcome = if self.queue.len() > self.completed && self.behind(work.fence) { Outcome::Full } else { self.execute(vi, &work) };
        let step = match outcome {
            Outcome::Done => {
                descriptor::complete(&head, op, None, None);
                Step::Done
            }
            Outcome::Acking(line) => Step::Acking(line),
            Outcome::Reading(number) => Step::Reading(number, Box::new(work)),
            Outcome::Full => Step::Waiting(Box::new(work)),
            Outcome::Failed(bits, ending) => {
                descriptor::complete(&head, op | bits, None, None);
                if let Some((code, tell)) = ending {
                    after.end(Ending::of(code, head.start(), op, tell));
                }
                self.queue.push_back(Entry { head, step: Step::Done, op, failed: bits & ERROR_MASK != 0 });
                self.announce(vi);
                return;
            }
        };
        self.queue.push_back(Entry { head, step, op, failed: false });
        self.announce(vi);
    }

    /// The whole way of a message that is one piece, fits in a line, has nothing before it and is complete when it has left, in one pass.
    /// False: nothing was done, and the general way decides.
    #[inline(always)]
    fn short(&mut self, vi: &Vi, whole: &UserRange) -> Result<bool, ()> {
        let (Some(owner), Some(link), Some(piece)) = (&self.owner, &mut self.link, descriptor::only_piece(whole)) else { return Ok(false) };
        let bytes = piece.bytes as u64;
        if bytes > INLINE_BYTES as u64 || bytes > owner.max_transfer || owner.level == RELIABLE_RECEPTION || self.queue.len() > self.completed {
            return Ok(false);
        }
        let window = self.cache.find(&owner.nic, piece.handle).and_then(|region| region.window(owner.ptag, piece.address, bytes));
        let (Some(window), told) = (window, vi.told.load(Ordering::Acquire)) else { return Ok(false) };
        let found = link.peer.taker.found() || told > link.peer.taker.used();
        if !link.peer.taker.available(told) || !link.push(Kind::Inline, None, bytes, &window.words()[..piece.bytes.div_ceil(8) as usize])? {
            return Ok(false);
        }
        vi.next_line.store(link.peer.ring.next_slot(), Ordering::Relaxed);
        link.peer.taker.pass(found);
        link.board.signal(false, false);
        descriptor::complete(whole, OP_SEND, None, None);
        self.queue.push_back(Entry { head: *whole, step: Step::Done, op: OP_SEND, failed: false });
        self.announce(vi);
        Ok(true)
    }

    fn execute(&mut self, vi: &Vi, work: &Work) -> Outcome {
        let owner = self.owner.as_ref().expect("checked");
        if work.bytes > owner.max_transfer {
            return Outcome::Failed(LENGTH_ERROR, Some((ErrorCode::PostDescriptor, true)));
        }
        self.windows.clear();
        for piece in work.pieces.iter() {
            let window = self.cache.find(&owner.nic, piece.handle).and_then(|region| region.window(owner.ptag, piece.address, piece.bytes as u64));
            match window {
                Some(window) => self.windows.push(window),
                None => return Outcome::Failed(PROTECTION_ERROR, Some((ErrorCode::PostDescriptor, true))),
            }
        }
        if self.link.is_none() {
            return Outcome::Failed(FLUSHED_ERROR, None);
        }
        let outcome = match work.op {
            Op::Send => self.send(vi, work),
            Op::RdmaWrite(address, handle) => self.rdma_write(vi, work, address, handle),
            Op::RdmaRead(address, handle) => self.rdma_read(work, address, handle),
        };
        // A ring or a region that says what cannot be: the peer's fault.
        outcome.unwrap_or(Outcome::Failed(TRANSPORT_ERROR, Some((ErrorCode::ConnectionLost, true))))
    }

    /// The status of a reliable sender whose peer cannot take a message; an unreliable one does not learn of it.
    fn refused(&self, code: ErrorCode, tell: bool) -> Outcome {
        let owner = self.owner.as_ref().expect("checked");
        if !owner.reliable() {
            return Outcome::Done;
        }
        Outcome::Failed(if owner.level == RELIABLE_RECEPTION { REMOTE_DESC_ERROR } else { TRANSPORT_ERROR }, Some((code, tell)))
    }

    #[inline]
    fn send(&mut self, vi: &Vi, work: &Work) -> Result<Outcome, ()> {
        let acked = self.owner.as_ref().expect("checked").level == RELIABLE_RECEPTION;
        let link = self.link.as_mut().ok_or(())?;
        let told = vi.told.load(Ordering::Acquire);
        let found = link.peer.taker.found() || told > link.peer.taker.used();
        if !link.peer.taker.available(told) {
            return Ok(self.refused(ErrorCode::ReceiveQueueEmpty, true));
        }
        let bytes = work.bytes as usize;
        if bytes <= INLINE_BYTES {
            let body = gathered(&self.windows);
            if !link.push(Kind::Inline, work.immediate, work.bytes, &body[..bytes.div_ceil(8)])? {
                return Ok(Outcome::Full);
            }
            link.peer.taker.pass(found);
            link.board.signal(acked, false);
            return Ok(if acked { Outcome::Acking(link.pushed) } else { Outcome::Done });
        }
        self.place(work, found, acked)
    }

    /// A message that goes straight to where the receive descriptor says.
    fn place(&mut self, work: &Work, found: bool, acked: bool) -> Result<Outcome, ()> {
        let link = self.link.as_mut().ok_or(())?;
        let targets: Vec<_> = link.peer.taker.targets().to_vec();
        let room: u64 = targets.iter().map(|target| target.bytes as u64).sum();
        if room < work.bytes {
            if !link.push(Kind::TooLong, work.immediate, work.bytes, &[])? {
                return Ok(Outcome::Full);
            }
            link.peer.taker.pass(found);
            link.board.signal(true, false);
            return Ok(self.refused(ErrorCode::PostDescriptor, false));
        }
        let mut shadow = false;
        let mut regions = Vec::with_capacity(targets.len());
        for target in &targets {
            let in_shadow = link.board.attributes(target.handle).ok_or(())? & SHADOW != 0;
            shadow |= in_shadow;
            let region = link.region(target.handle).ok_or(())?;
            region.at(target.offset, target.bytes as u64).ok_or(())?;
            regions.push((region, in_shadow));
        }
        // The line comes after the bytes; there must be room for it first.
        let walk = blocks(self.windows.iter().map(|window| window.bytes()), targets.iter().map(|target| target.bytes as u64));
        for block in walk {
            let window = self.windows[block.source];
            let from = window.at(window.start() + block.source_offset, block.bytes).ok_or(())?;
            let (region, in_shadow) = &regions[block.target];
            let to = region.at(targets[block.target].offset + block.target_offset, block.bytes).ok_or(())?;
            if *in_shadow { link.pace.put(&from, to) } else { from.copy_to(to) }
        }
        if !link.push(Kind::Placed, work.immediate, work.bytes, &[])? {
            return Ok(Outcome::Full);
        }
        link.peer.taker.pass(found);
        let acked = acked && shadow;
        link.board.signal(acked, false);
        self.placed_bytes += work.bytes;
        Ok(if acked { Outcome::Acking(link.pushed) } else { Outcome::Done })
    }

    /// The peer's region behind a remote address, if this VI may use it so: region, offset in it, whether it is a shadow.
    fn remote(&mut self, address: u64, handle: u32, bytes: u64, write: bool) -> Option<(Arc<RemoteRegion>, u64, bool)> {
        let link = self.link.as_mut()?;
        let bits = link.board.attributes(handle)?;
        if !permits(bits, link.peer.bits(), write) {
            return None;
        }
        let region = link.region(handle)?;
        let offset = region.offset_of(address)?;
        region.at(offset, bytes)?;
        Some((region, offset, bits & SHADOW != 0))
    }

    fn rdma_write(&mut self, vi: &Vi, work: &Work, address: u64, handle: u32) -> Result<Outcome, ()> {
        let Some((region, offset, shadow)) = self.remote(address, handle, work.bytes, true) else {
            return Ok(self.forbidden(ErrorCode::RdmaWriteProtection));
        };
        let acked = self.owner.as_ref().is_some_and(|owner| owner.level == RELIABLE_RECEPTION) && shadow;
        let link = self.link.as_mut().ok_or(())?;
        let told = vi.told.load(Ordering::Acquire);
        let found = link.peer.taker.found() || told > link.peer.taker.used();
        if work.immediate.is_some() && !link.peer.taker.available(told) {
            return Ok(self.refused(ErrorCode::ReceiveQueueEmpty, true));
        }
        let mut at = offset;
        for window in &self.windows {
            let to = region.at(at, window.bytes()).ok_or(())?;
            if shadow {
                link.pace.put(window, to)
            } else {
                window.copy_to(to)
            }
            at += window.bytes();
        }
        let range = range_words(handle, work.bytes, offset);
        let body: &[u64] = if shadow { &range } else { &[] };
        if shadow || work.immediate.is_some() {
            let kind = if work.immediate.is_some() { Kind::WrittenImmediate } else { Kind::Written };
            if !link.push(kind, work.immediate, work.bytes, body)? {
                return Ok(Outcome::Full);
            }
            link.board.signal(shadow, false);
        }
        if work.immediate.is_some() {
            link.peer.taker.pass(found);
        }
        self.placed_bytes += work.bytes;
        Ok(if acked { Outcome::Acking(link.pushed) } else { Outcome::Done })
    }

    fn rdma_read(&mut self, work: &Work, address: u64, handle: u32) -> Result<Outcome, ()> {
        if !self.owner.as_ref().is_some_and(|owner| owner.reliable()) {
            return Ok(Outcome::Failed(FORMAT_ERROR, Some((ErrorCode::PostDescriptor, true))));
        }
        let Some((region, offset, shadow)) = self.remote(address, handle, work.bytes, false) else {
            return Ok(self.forbidden(ErrorCode::RdmaReadProtection));
        };
        if !shadow {
            self.fetch(&region, offset).ok_or(())?;
            return Ok(Outcome::Done);
        }
        let link = self.link.as_mut().ok_or(())?;
        let number = link.reads + 1;
        let [range, start] = range_words(handle, work.bytes, offset);
        if !link.push(Kind::Read, None, work.bytes, &[range, start, number])? {
            return Ok(Outcome::Full);
        }
        link.reads = number;
        link.board.signal(true, false);
        Ok(Outcome::Reading(number))
    }

    /// Copies bytes of the peer's region to the windows.
    fn fetch(&mut self, region: &RemoteRegion, offset: u64) -> Option<()> {
        let mut at = offset;
        for window in &self.windows {
            window.copy_from(region.at(at, window.bytes())?);
            at += window.bytes();
        }
        Some(())
    }

    /// RDMA that the peer's memory or VI does not permit. Unreliable senders do not learn of it.
    fn forbidden(&self, code: ErrorCode) -> Outcome {
        match self.owner.as_ref().is_some_and(|owner| owner.reliable()) {
            true => Outcome::Failed(RDMA_PROT_ERROR, Some((code, true))),
            false => Outcome::Done,
        }
    }

    /// Goes on with what had to wait. True: something was done.
    fn pump(&mut self, vi: &Vi, after: &mut After) -> bool {
        if self.queue.len() == self.completed && self.link.as_ref().is_none_or(|link| link.replies.is_empty()) {
            return false;
        }
        let before = self.completed;
        self.push_replies();
        let Some(link) = &self.link else { return false };
        let (processed, read) = (link.peer.processed.0[0].load(Ordering::Acquire), vi.reads.load(Ordering::Acquire));
        let mut reading = false;
        for at in self.completed..self.queue.len() {
            let entry = &mut self.queue[at];
            let (head, op) = (entry.head, entry.op);
            let outcome = match &entry.step {
                Step::Done => continue,
                Step::Acking(line) if *line <= processed => Outcome::Done,
                Step::Acking(_) => continue,
                Step::Reading(number, _) if *number > read => {
                    reading = true;
                    continue;
                }
                Step::Reading(..) => {
                    let Step::Reading(_, work) = std::mem::replace(&mut entry.step, Step::Done) else { continue };
                    self.finish_read(&work)
                }
                Step::Waiting(work) if work.fence && reading => break,
                Step::Waiting(_) => {
                    let Step::Waiting(work) = std::mem::replace(&mut entry.step, Step::Done) else { continue };
                    let outcome = self.execute(vi, &work);
                    match outcome {
                        Outcome::Full => {
                            self.queue[at].step = Step::Waiting(work);
                            break;
                        }
                        Outcome::Reading(number) => {
                            self.queue[at].step = Step::Reading(number, work);
                            reading = true;
                            continue;
                        }
                        other => other,
                    }
                }
            };
            let entry = &mut self.queue[at];
            match outcome {
                Outcome::Done => {
                    descriptor::complete(&head, op, None, None);
                    entry.step = Step::Done;
                }
                Outcome::Acking(line) => entry.step = Step::Acking(line),
                Outcome::Failed(bits, ending) => {
                    descriptor::complete(&head, op | bits, None, None);
                    (entry.step, entry.failed) = (Step::Done, true);
                    if let Some((code, tell)) = ending {
                        after.end(Ending::of(code, head.start(), op, tell));
                        break;
                    }
                }
                Outcome::Full | Outcome::Reading(_) => {}
            }
        }
        self.announce(vi);
        self.completed > before
    }

    fn finish_read(&mut self, work: &Work) -> Outcome {
        let Op::RdmaRead(address, handle) = work.op else { return Outcome::Failed(FORMAT_ERROR, None) };
        let owner = self.owner.as_ref().expect("checked");
        self.windows.clear();
        for piece in work.pieces.iter() {
            let window = self.cache.find(&owner.nic, piece.handle).and_then(|region| region.window(owner.ptag, piece.address, piece.bytes as u64));
            let Some(window) = window else { return Outcome::Failed(PROTECTION_ERROR, Some((ErrorCode::CompletionProtection, true))) };
            self.windows.push(window);
        }
        let Some((region, offset, _)) = self.remote(address, handle, work.bytes, false) else { return self.forbidden(ErrorCode::RdmaReadProtection) };
        match self.fetch(&region, offset) {
            Some(()) => Outcome::Done,
            None => Outcome::Failed(TRANSPORT_ERROR, Some((ErrorCode::ConnectionLost, true))),
        }
    }

    fn push_replies(&mut self) {
        let Some(link) = &mut self.link else { return };
        while let Some(&number) = link.replies.front() {
            if !matches!(link.push(Kind::ReadDone, None, 0, &[number]), Ok(true)) {
                return;
            }
            link.replies.pop_front();
            link.board.signal(true, false);
        }
    }

    /// Sends or answers are left over.
    pub fn unfinished(&self) -> bool {
        self.queue.len() > self.completed || self.link.as_ref().is_some_and(|link| !link.replies.is_empty())
    }
}

/// The memory of a descriptor that was posted at `address`, and whether its region has the VI's tag.
#[inline(always)]
pub fn posted_descriptor(owner: &Owner, cache: &mut Cache, address: u64, handle: u32) -> Result<(UserRange, bool), Refusal> {
    if address == 0 || !address.is_multiple_of(descriptor::ALIGNMENT) {
        return Err(Refusal::InvalidParameter);
    }
    let region = cache.find(&owner.nic, handle).ok_or(Refusal::InvalidParameter)?;
    let head = region.user.at(address, CONTROL_BYTES).ok_or(Refusal::InvalidParameter)?;
    let bytes = CONTROL_BYTES + descriptor::segments(&head) * SEGMENT_BYTES;
    let whole = region.user.at(address, bytes).ok_or(Refusal::InvalidParameter)?;
    Ok((whole, region.attributes.ptag == owner.ptag))
}

impl Vi {
    /// Posts a descriptor to the send queue.
    #[inline]
    pub fn post_send(&'static self, generation: u32, address: u64, handle: u32) -> Result<(), Refusal> {
        let (mut after, mut connection, mut kick) = (After::default(), 0, None);
        let posted = self.send.with(|side| {
            side.check(generation)?;
            let (whole, allowed) = side.whole(address, handle)?;
            if side.queue.len() >= ENTRIES {
                return Err(Refusal::Resource);
            }
            match self.state() {
                State::Connected => connection = self.connection.load(Ordering::Relaxed),
                State::Error => {
                    side.add_done(self, whole, OP_SEND | FLUSHED_ERROR);
                    return Ok(());
                }
                State::Idle | State::Pending => return Err(Refusal::InvalidState),
            }
            if allowed && side.short(self, &whole) == Ok(true) {
                return Ok(());
            }
            descriptor::begin(&whole);
            let work = if allowed { descriptor::read(&whole, Side::Send) } else { Err(OP_SEND | PROTECTION_ERROR) };
            match work {
                Ok(work) => side.begin(self, whole, work, &mut after),
                Err(status) => {
                    after.end(Ending::of(ErrorCode::PostDescriptor, address, status & !ERROR_MASK, true));
                    side.add_done(self, whole, status);
                }
            }
            if side.unfinished() {
                kick = side.owner.as_ref().map(|owner| owner.nic.clone());
            }
            Ok(())
        });
        after.settle(self, connection);
        if let Some(nic) = kick {
            nic.board.wake_own(true);
        }
        posted
    }

    /// Takes a completed descriptor from the send queue: its address, and whether it failed. An empty queue is a descriptor error.
    #[inline]
    pub fn send_done(&'static self, generation: u32) -> Result<(u64, bool), Refusal> {
        let (mut after, mut connection) = (After::default(), 0);
        let done = self.send.with(|side| {
            side.check(generation)?;
            if side.completed == 0 {
                connection = self.connection.load(Ordering::Relaxed);
                side.pump(self, &mut after);
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

    /// Goes on with sends that had to wait. True: something was done.
    pub fn go_on(&'static self) -> bool {
        let (mut after, mut connection) = (After::default(), 0);
        let done = self.send.with(|side| {
            connection = self.connection.load(Ordering::Relaxed);
            side.pump(self, &mut after)
        });
        after.settle(self, connection);
        done
    }

    /// Answers RDMA reads.
    pub fn reply(&self, numbers: Vec<u64>) {
        self.send.with(|side| {
            if let Some(link) = &mut side.link {
                link.replies.extend(numbers);
            }
            side.push_replies();
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Tries of the dearer way that suffice to learn that it is not.
    const SETTLED: u32 = 3 * RETRY_EVERY * RETRY_RATIO_MAX as u32;

    /// Writes `count` times where the ways cost so much, through the caches and past them; gives how often it was past them.
    fn writes(pace: &mut Pace, costs: [u64; 2], count: u32) -> u32 {
        let mut past_count = 0;
        for _ in 0..count {
            let past = pace.choose();
            pace.learn(past, costs[past as usize]);
            past_count += past as u32;
        }
        past_count
    }

    #[test]
    fn the_cheaper_way_is_taken_from_the_start_and_after_a_change() {
        let mut pace = Pace::default();
        assert!(writes(&mut pace, [1000, 100], 64) >= 62);
        writes(&mut pace, [100, 1000], SETTLED);
        assert!(writes(&mut pace, [100, 1000], 256) <= 1);
        writes(&mut pace, [3000, 1000], SETTLED);
        assert!(writes(&mut pace, [3000, 1000], 256) >= 256 - 4);
    }

    #[test]
    fn one_delay_does_not_turn_to_the_dearer_way() {
        for dear in [0, 1] {
            let mut costs = [100, 100];
            costs[dear] = 1000;
            let mut pace = Pace::default();
            writes(&mut pace, costs, 40);
            // Another program had this core for a while.
            pace.learn(dear == 0, 1_000_000);
            let past = writes(&mut pace, costs, 128);
            let dearer = if dear == 1 { past } else { 128 - past };
            assert!(dearer <= 1, "{dearer} of 128");
        }
    }

    #[test]
    fn page_faults_of_the_first_writes_are_forgotten() {
        for costs in [[600, 100], [80, 160]] {
            let mut pace = Pace::default();
            (0..8).for_each(|_| {
                let past = pace.choose();
                pace.learn(past, if past { 6000 } else { 5000 });
            });
            writes(&mut pace, costs, SETTLED);
            let past = writes(&mut pace, costs, 256);
            let dearer = if costs[0] > costs[1] { 256 - past } else { past };
            assert!(dearer <= 8, "{dearer} of 256 where the costs are {costs:?}");
        }
    }
}
