//! Requests: what is under way.

use super::ports::Buffer;
use std::hash::{Hash, Hasher};
use std::num::NonZeroU64;

/// How a send to a process that shares memory with this one goes.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default, Debug)]
pub enum Manner {
    /// With its header up to the limit for that process; a longer one may go through the ring where its receiver waits.
    #[default]
    ByLength,
    /// Long, and it crosses others, and may wait for its receiver.
    Crosses,
    /// Long, and offered, though it might go with its header.
    Offered,
    /// As its receiver has announced; with its header where that has not.
    Announced,
    /// Long, and with its header, though others of its length might be offered.
    WithHeader,
}

/// Names a request; a request that is over is never named again by an old identifier.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct RequestId(u64);

impl RequestId {
    // One number, not two: written in halves and read as a whole, it would wait in the store buffer behind a message that has just been sent.
    #[inline(always)]
    fn new(index: u32, generation: u32) -> RequestId {
        RequestId(index as u64 | (generation as u64) << 32)
    }

    #[inline(always)]
    pub(crate) fn index(self) -> u32 {
        self.0 as u32
    }

    #[inline(always)]
    pub(crate) fn generation(self) -> u32 {
        (self.0 >> 32) as u32
    }

    /// As one number, for packets and handles.
    #[inline]
    pub fn to_raw(self) -> u64 {
        self.0
    }

    #[inline]
    pub fn from_raw(raw: u64) -> RequestId {
        RequestId(raw)
    }

    /// Place in the table, and generation.
    #[inline]
    pub fn parts(self) -> (u32, u32) {
        (self.index(), self.generation())
    }

    /// The engine of this process that the request is under way in.
    #[inline]
    pub fn vci(self) -> u8 {
        (self.generation() / GENERATIONS) as u8
    }
}

/// Generations repeat after this many uses of one place. The bits above are the engine's number.
const GENERATIONS: u32 = 1 << 24;

/// The generation of a place's next use.
#[inline]
fn next(generation: u32) -> u32 {
    (generation & !(GENERATIONS - 1)) | ((generation + 1) & (GENERATIONS - 1))
}

/// A message that has been received, and of which there is nothing else to say. Two numbers, which a call returns in registers: what is written to memory in
/// parts and read as a whole waits in the store buffer behind a message that has just been sent.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Received {
    /// Rank of the sender in the communicator, and above it the tag.
    envelope: u64,
    /// Its bytes, and one.
    length: NonZeroU64,
}

impl Received {
    #[inline(always)]
    pub fn new(source: i32, tag: i32, bytes: u64) -> Received {
        Received { envelope: source as u32 as u64 | (tag as u32 as u64) << 32, length: NonZeroU64::MIN.saturating_add(bytes) }
    }

    #[inline(always)]
    pub fn source(self) -> i32 {
        self.envelope as i32
    }

    #[inline(always)]
    pub fn tag(self) -> i32 {
        (self.envelope >> 32) as i32
    }

    #[inline(always)]
    pub fn bytes(self) -> u64 {
        self.length.get() - 1
    }
}

/// How a receive or send came out.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct Outcome {
    /// Rank of the sender in the communicator; of what has failed, the process for lack of which it did.
    pub source: u32,
    pub tag: i32,
    /// Bytes received.
    pub bytes: u64,
    /// Bytes of the message for which the buffer had no room.
    pub cut_bytes: u64,
    pub cancelled: bool,
    /// The process that it needed has failed.
    pub failed: bool,
    /// Which of the engine's completions it was; the count wraps around.
    pub order: u32,
}

impl Outcome {
    /// The message was longer than the buffer.
    #[inline]
    pub fn truncated(&self) -> bool {
        self.cut_bytes != 0
    }
}

/// How a message of `bytes` into `room` bytes comes out.
#[inline]
pub fn outcome(source: u32, tag: i32, bytes: usize, room: usize) -> Outcome {
    let cut_bytes = bytes.saturating_sub(room) as u64;
    Outcome { source, tag, bytes: bytes as u64 - cut_bytes, cut_bytes, cancelled: false, failed: false, order: 0 }
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum State {
    Free,
    /// A receive in the posted queue.
    Posted {
        context: u32,
        place: u32,
        /// Announcing it may pay, as far as its length and its envelope say.
        announces: bool,
    },
    /// A receive whose message is being fetched.
    Fetching,
    /// A send that waits for room or credit, in its peer's queue.
    Queued,
    /// A send that waits for the receiver.
    Offered,
    /// A synchronous send of which a copy has left as a datagram: its receiver says when it is matched.
    Unmatched,
    /// A send to this process itself that no receive has taken.
    OfferedHere,
    /// A send whose bytes are on their way.
    Streaming,
    Complete,
}

/// The sender's request, of a message whose receiver has to know it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Origin {
    pub request: u64,
    /// The sender waits for a [`crate::wire::Kind::Fin`] that says that the message was matched; otherwise it may only want to cancel.
    pub synchronous: bool,
}

/// A posted receive that its sender was told of.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Announced {
    /// The descriptor of its copy, on shared memory.
    pub slot: u8,
    pub generation: u32,
    /// The window that is offered to a remote sender; 0 on shared memory.
    pub window: u32,
    /// The sender.
    pub process: u32,
    /// Where its usage is counted.
    pub envelope: (u64, u32, i32),
}

/// What is looked at to see whether it is complete, and how it came out, lies in its first cache line; what else an arriving message needs in the second.
#[derive(Clone)]
#[repr(C, align(64))]
pub struct Request<B: Buffer> {
    pub generation: u32,
    pub state: State,
    pub outcome: Outcome,
    pub head: [u64; 2],
    pub buffer: B,
    /// Wants to know that it was matched.
    pub synchronous: bool,
    /// Nobody will ask for it: freed when complete.
    pub detached: bool,
    /// A send to a process that has failed: a queued datagram still reads its buffer, so that it is complete only when that has left. Only then is it ever true.
    pub in_use: bool,
    /// A send whose call returns only when it is complete.
    pub blocking: bool,
    /// How a send goes, as was decided when it was posted.
    pub manner: Manner,
    pub peer: u32,
    /// The caller's.
    pub owner: u32,
    pub announced: Option<Announced>,
    /// Bytes still to come, of a receive.
    pub missing: u64,
    /// A receive whose message has begun to come: more is on its way, with others, than this process' caches hold.
    pub past_caches: bool,
    /// Where the bytes of a send lie, for the receiver to read.
    pub list: Option<B::List>,
}

impl<B: Buffer> Request<B> {
    const LINES: () = assert!(std::mem::offset_of!(Self, buffer) == 64);
}

/// Places at which [`Requests::all_under_way`] looks: who has more requests seldom waits for one of them alone.
const LOOKED_AT: usize = 32;

/// All requests of one engine.
pub(crate) struct Requests<B: Buffer> {
    all: Vec<Request<B>>,
    free: Vec<u32>,
    first_generation: u32,
}

impl<B: Buffer> Requests<B> {
    pub fn of_vci(vci: u8) -> Requests<B> {
        let () = Request::<B>::LINES;
        Requests { all: Vec::new(), free: Vec::new(), first_generation: vci as u32 * GENERATIONS }
    }

    #[inline]
    pub fn insert(&mut self, buffer: B, peer: u32, state: State, head: [u64; 2]) -> RequestId {
        match self.free.pop() {
            Some(index) => {
                let r = &mut self.all[index as usize];
                r.state = state;
                r.buffer = buffer;
                r.peer = peer;
                r.synchronous = false;
                r.owner = 0;
                r.detached = false;
                r.blocking = false;
                r.manner = Manner::ByLength;
                r.announced = None;
                r.head = head;
                r.list = None;
                r.missing = 0;
                r.outcome = Outcome::default();
                RequestId::new(index, r.generation)
            }
            None => {
                let index = self.all.len() as u32;
                let outcome = Outcome::default();
                let generation = self.first_generation;
                self.all.push(Request {
                    generation,
                    state,
                    buffer,
                    peer,
                    synchronous: false,
                    owner: 0,
                    detached: false,
                    in_use: false,
                    blocking: false,
                    manner: Manner::ByLength,
                    announced: None,
                    head,
                    list: None,
                    missing: 0,
                    past_caches: false,
                    outcome,
                });
                RequestId::new(index, generation)
            }
        }
    }

    /// A receive into what `set` makes of a buffer that was used before, field by field.
    #[inline(always)]
    pub fn insert_receive(&mut self, set: impl FnOnce(&mut B), owner: u32) -> RequestId {
        let Some(index) = self.free.pop() else {
            let mut buffer = B::EMPTY;
            set(&mut buffer);
            let id = self.insert(buffer, u32::MAX, State::Complete, [0; 2]);
            self.at(id.index()).owner = owner;
            return id;
        };
        let r = &mut self.all[index as usize];
        set(&mut r.buffer);
        r.peer = u32::MAX;
        r.synchronous = false;
        r.owner = owner;
        r.detached = false;
        r.head = [0; 2];
        r.missing = 0;
        r.outcome.cancelled = false;
        r.outcome.failed = false;
        RequestId::new(index, r.generation)
    }

    /// The place and generation that `low` bits of a generation name, if that request has ended well; it is removed. What it has received: `sent`, if it is a
    /// send.
    #[inline(always)]
    pub fn take_well(&mut self, index: u32, low: u32, mask: u32, sent: Received) -> Option<Received> {
        let r = self.all.get_mut(index as usize)?;
        if r.state != State::Complete || r.generation & mask != low || r.outcome.cut_bytes != 0 || r.outcome.cancelled || r.outcome.failed {
            return None;
        }
        let received = match r.head {
            [0, 0] => Received::new(r.outcome.source as i32, r.outcome.tag, r.outcome.bytes),
            _ => {
                r.list = None;
                sent
            }
        };
        r.state = State::Free;
        r.generation = next(r.generation);
        r.buffer.forget_layout();
        self.free.push(index);
        Some(received)
    }

    /// Whether request `id`, which is in the table, is complete.
    #[inline(always)]
    pub fn is_complete(&self, id: RequestId) -> bool {
        let r = &self.all[id.index() as usize];
        debug_assert!(r.generation == id.generation() && r.state != State::Free);
        r.state == State::Complete
    }

    /// Whether request `id`, a receive which is in the table and complete, has got `bytes` bytes and no more.
    #[inline(always)]
    pub fn is_well(&self, id: RequestId, bytes: u64) -> bool {
        let outcome = &self.all[id.index() as usize].outcome;
        outcome.bytes == bytes && outcome.cut_bytes == 0 && !outcome.failed && !outcome.cancelled
    }

    /// Takes out request `id`, which is in the table and complete.
    #[inline(always)]
    pub fn take_complete(&mut self, id: RequestId) -> Outcome {
        let r = &mut self.all[id.index() as usize];
        debug_assert!(r.generation == id.generation() && r.state == State::Complete);
        r.state = State::Free;
        r.generation = next(r.generation);
        r.buffer.forget_layout();
        let outcome = r.outcome;
        if r.list.is_some() {
            r.list = None;
        }
        self.free.push(id.index());
        outcome
    }

    /// Whether what is at a place is complete, or nothing is there.
    #[inline(always)]
    pub fn at_rest(&self, index: u32) -> bool {
        self.all.get(index as usize).is_none_or(|r| matches!(r.state, State::Complete | State::Free))
    }

    #[inline]
    pub fn find(&mut self, id: RequestId) -> Option<&mut Request<B>> {
        self.all.get_mut(id.index() as usize).filter(|r| r.generation == id.generation() && r.state != State::Free)
    }

    /// The buffer of a request that is in the table.
    pub fn buffer_of(&self, id: RequestId) -> Option<&B> {
        let r = self.all.get(id.index() as usize)?;
        (r.generation == id.generation() && r.state != State::Free).then_some(&r.buffer)
    }

    #[inline]
    pub fn at(&mut self, index: u32) -> &mut Request<B> {
        &mut self.all[index as usize]
    }

    /// Which of the engine's completions the request was that `low` bits of a generation name: `None` where there is no such request, or it is not complete.
    #[inline(always)]
    pub fn order_of(&self, index: u32, low: u32, mask: u32) -> Option<Option<u32>> {
        let r = self.all.get(index as usize).filter(|r| r.state != State::Free && r.generation & mask == low)?;
        Some((r.state == State::Complete).then_some(r.outcome.order))
    }

    /// Whether the request is not complete that `low` bits of a generation name.
    #[inline(always)]
    pub fn is_under_way(&self, index: u32, low: u32, mask: u32) -> bool {
        self.all.get(index as usize).is_some_and(|r| r.generation & mask == low && !matches!(r.state, State::Complete | State::Free))
    }

    #[inline]
    pub fn named(&self, index: u32, generation: u32, mask: u32) -> Option<RequestId> {
        let r = self.all.get(index as usize)?;
        (r.state != State::Free && r.generation & mask == generation).then_some(RequestId::new(index, r.generation))
    }

    pub fn id(&self, index: u32) -> RequestId {
        RequestId::new(index, self.all[index as usize].generation)
    }

    #[inline]
    pub fn remove(&mut self, id: RequestId) {
        let r = &mut self.all[id.index() as usize];
        r.state = State::Free;
        r.generation = next(r.generation);
        r.buffer = B::EMPTY;
        r.list = None;
        self.free.push(id.index());
    }

    /// Most requests that there were at once.
    pub fn most(&self) -> u64 {
        self.all.len() as u64
    }

    /// The requests that are not complete.
    pub fn under_way(&self) -> Vec<RequestId> {
        let named = (0..).zip(&self.all).filter(|(_, r)| !matches!(r.state, State::Free | State::Complete));
        named.map(|(index, r)| RequestId::new(index, r.generation)).collect()
    }

    /// Whether one of them is as asked for.
    pub fn any_under_way(&self, asked: impl Fn(&Request<B>) -> bool) -> bool {
        self.all.iter().any(|r| !matches!(r.state, State::Free | State::Complete) && asked(r))
    }

    /// Whether there is one in the first [`LOOKED_AT`] places, and all that are there are as asked for.
    pub fn all_under_way(&self, mut asked: impl FnMut(&Request<B>) -> bool) -> bool {
        let mut any = false;
        for r in self.all.iter().take(LOOKED_AT).filter(|r| !matches!(r.state, State::Free | State::Complete)) {
            any = true;
            if !asked(r) {
                return false;
            }
        }
        any
    }

    /// Their number.
    pub fn active(&self) -> usize {
        self.all.iter().filter(|r| !matches!(r.state, State::Free | State::Complete)).count()
    }
}

impl<B: Buffer> Clone for Requests<B>
where
    B::List: Clone,
{
    fn clone(&self) -> Self {
        Requests { all: self.all.clone(), free: self.free.clone(), first_generation: self.first_generation }
    }
}

impl<B: Buffer + Hash> Requests<B>
where
    B::List: Hash,
{
    /// Feeds `hasher` with what is known of the requests that are in the table, and with the names that others will get.
    pub fn hash_state(&self, hasher: &mut impl Hasher) {
        for r in &self.all {
            (r.generation, std::mem::discriminant(&r.state)).hash(hasher);
            if r.state == State::Free {
                continue;
            }
            (r.outcome.source, r.outcome.tag, r.outcome.bytes, r.outcome.cut_bytes, r.outcome.cancelled, r.outcome.failed).hash(hasher);
            (r.head, &r.buffer, r.synchronous, r.detached, r.in_use, (r.blocking, r.manner), r.peer, r.announced, r.missing, &r.list).hash(hasher);
        }
        self.free.hash(hasher);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// No bytes.
    #[derive(Clone)]
    struct B;

    impl Buffer for B {
        type Body = ();
        type List = ();
        const EMPTY: B = B;
        fn len(&self) -> usize {
            0
        }
        fn is_contiguous(&self) -> bool {
            true
        }
        fn straight(&self) -> bool {
            true
        }
        fn tellable(&self) -> bool {
            true
        }
        fn list(&self) -> Option<()> {
            None
        }
        fn told(&self, _: Option<&()>) -> Option<(u64, u64)> {
            None
        }
        fn body_bytes((): &()) -> usize {
            0
        }
        fn keep((): &()) -> Box<[u8]> {
            Box::default()
        }
        fn place(&self, _: usize, (): &()) {}
        fn place_unexpected(&self, _: &[u8]) {}
        fn place_words(&self, _: &[u64], _: usize) {}
        fn copy_from(&self, _: &B) {}
        fn to_vec(&self) -> Vec<u8> {
            Vec::new()
        }
        fn append_to(&self, _: &mut Vec<u8>) {}
        fn forget_layout(&mut self) {}
    }

    #[test]
    fn a_complete_request_is_taken_once_and_its_name_is_over() {
        let mut requests = Requests::of_vci(0);
        let id = requests.insert(B::EMPTY, 0, State::Queued, [0; 2]);
        assert!(!requests.at_rest(id.index()));
        assert!(!requests.is_complete(id));
        requests.at(id.index()).state = State::Complete;
        requests.at(id.index()).outcome.bytes = 8;
        assert!(requests.at_rest(id.index()));
        assert!(requests.is_complete(id));
        assert_eq!(requests.take_complete(id).bytes, 8);
        assert!(requests.at_rest(id.index()) && requests.find(id).is_none());
        let next = requests.insert(B::EMPTY, 0, State::Queued, [0; 2]);
        assert!(next.index() == id.index() && next != id);
        assert!(requests.at_rest(next.index() + 1), "there is no such place");
    }

    #[test]
    fn a_vci_keeps_its_number_through_all_generations() {
        let mut requests = Requests::of_vci(3);
        let mut id = requests.insert(B::EMPTY, 0, State::Queued, [0; 2]);
        assert_eq!((id.vci(), RequestId::from_raw(id.to_raw())), (3, id));
        requests.at(0).generation |= GENERATIONS - 2;
        id = requests.id(0);
        for _ in 0..4 {
            requests.remove(id);
            let used_again = requests.insert(B::EMPTY, 0, State::Queued, [0; 2]);
            assert!(used_again.vci() == 3 && used_again != id && requests.find(id).is_none());
            id = used_again;
        }
    }
}
