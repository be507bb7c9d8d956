//! What the machine asks for and is told of: users' memory, transports, and what it counts.

use super::header::Header;
use crate::reliability;

/// Why a packet did not leave.
#[derive(Debug)]
pub enum Refused<E> {
    /// No room at the moment; later there will be.
    Full,
    Failed(E),
}

impl<E> From<E> for Refused<E> {
    fn from(error: E) -> Self {
        Refused::Failed(error)
    }
}

/// Who copies. The receiver claims from the front, where its program will read first, and the sender from the back: so the same side gets the
/// same pieces of a buffer that is used again, and finds them in its cache.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Side {
    Receiver,
    Sender,
}

/// Which way bytes go between the peer's memory and this process' own.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Way {
    Read,
    Write,
}

/// Most pieces of a cooperative copy.
pub const COOPERATIVE_PIECES_MAX: u32 = u16::MAX as u32 - 1;

/// A window for a message that is to come, as its receiver offers it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Window {
    pub number: u32,
    pub granted_bytes: u64,
    pub capacity_bytes: u64,
}

/// Why a transport cannot go on.
pub trait Error: Clone {
    /// What a peer says cannot be, so that nothing that it says can be relied on.
    fn corrupt(peer: u32, what: &'static str, value: u64) -> Self;
    /// `peer` cannot be reached.
    fn peer(peer: u32, why: String) -> Self;
    fn is_corrupt(&self) -> bool;
    /// The same as an error of `peer` alone.
    fn of_peer(self, peer: u32) -> Self;
}

/// Users' memory: of a send, or of a receive.
pub trait Buffer: Clone {
    /// The bytes of a message that has come, while its packet is here.
    type Body;
    /// Where the bytes lie, for the peer to read: kept as long as it may.
    type List;
    const EMPTY: Self;

    /// Bytes as they travel.
    fn len(&self) -> usize;
    fn is_empty(&self) -> bool {
        self.len() == 0
    }
    /// The bytes lie in one piece.
    fn is_contiguous(&self) -> bool;
    /// They lie in pieces long enough to be copied straight from or to another process' memory.
    fn straight(&self) -> bool;
    /// The peer can be told where they lie: in one piece, or in a list that may be made.
    fn tellable(&self) -> bool;
    /// The list for the peer, where its copying straight would pay.
    fn list(&self) -> Option<Self::List>;
    /// What a peer is told of where the bytes lie: an address, and so many pieces in a list there; 0: the bytes themselves. `None`: in pieces of
    /// which there is no list.
    fn told(&self, list: Option<&Self::List>) -> Option<(u64, u64)>;
    fn body_bytes(body: &Self::Body) -> usize;
    /// A copy of a message that nobody has asked for.
    fn keep(body: &Self::Body) -> Box<[u8]>;
    /// Copies what has come to place `offset`; what does not fit is left out.
    fn place(&self, offset: usize, body: &Self::Body);
    /// As [`Buffer::place`], of bytes that were kept.
    fn place_unexpected(&self, data: &[u8]);
    /// As [`Buffer::place`], of at most 48 bytes that lie in words.
    fn place_words(&self, words: &[u64], bytes: usize);
    /// Copies `from` here, as far as both reach.
    fn copy_from(&self, from: &Self);
    /// A copy of all bytes.
    fn to_vec(&self) -> Vec<u8>;
    /// Puts a copy of all bytes behind what is in `out`.
    fn append_to(&self, out: &mut Vec<u8>);
    /// Lets go of what describes the layout.
    fn forget_layout(&mut self);
}

/// The descriptor of a cooperative copy: both sides claim pieces, and say when they are copied.
pub trait Descriptor: Copy {
    /// Whether the sender's pieces are to come through the ring, said before the copy is announced or begun: a hint.
    fn say_through_ring(self, through_ring: bool);
    fn goes_through_ring(self) -> bool;
    fn open(self, generation: u32);
    fn begin(self, generation: u32);
    fn begin_open(self, generation: u32) -> bool;
    fn begun(self, generation: u32) -> bool;
    fn reopen(self, generation: u32);
    fn withdraw(self, generation: u32) -> bool;
    fn claim(self, generation: u32, pieces: u32, side: Side) -> Option<u32>;
    fn finish(self) -> u32;
    fn fail(self);
    fn failed(self) -> bool;
    fn finished(self) -> u32;
    fn finished_under(self, generation: u32) -> Option<u32>;
}

/// A transport of kind memory.
pub trait Memory {
    type Error: Error;
    type Descriptor: Descriptor;
    /// Sends a packet without a body: `words` are at most 6.
    fn send(&mut self, peer: u32, head: [u64; 2], words: &[u64]) -> Result<(), Refused<Self::Error>>;
    /// Longest body of one packet, bytes.
    fn body_bytes_max(&self) -> usize;
    /// Processes may read each other's memory, where the system allows it.
    fn remote_read(&self) -> bool;
    /// The memory of `peer` can be read and written.
    fn reachable(&mut self, peer: u32) -> bool;
    /// It cannot any more.
    fn unreachable(&mut self, peer: u32);
    /// Whether this process maps `bytes` at `address` of `peer`: then they are copied by load and store.
    fn maps(&mut self, peer: u32, address: u64, bytes: usize) -> bool;
    /// Longest body of a packet to `peer`, bytes: at least [`Memory::body_bytes_max`] once there is a ring.
    fn body_bytes_max_to(&self, peer: u32) -> usize;
    /// Whether `peer` waits in a call and looks at what comes: a hint.
    fn waits(&self, peer: u32) -> bool;
    /// Whether a packet with a body of `bytes` could leave for `peer` now: a hint.
    fn has_room(&mut self, peer: u32, bytes: usize) -> bool;
    /// The header of the next packet of `peer`, if it has begun to come and has not been looked at, and the bytes of its body, unless that is short: a hint.
    fn comes(&self, peer: u32) -> Option<([u64; 2], usize)>;
    /// Nothing is exchanged with `peer` any more.
    fn refuse(&mut self, peer: u32);
    /// What `peer` has released of this process' messages since the start, bytes.
    fn credit(&self, peer: u32) -> u64;
    /// Releases `bytes` of the messages of `peer`, which is told in steps.
    fn give_credit(&mut self, peer: u32, bytes: u64, step_bytes: u64);
    /// Descriptor `slot` of `owner`.
    fn cooperative(&mut self, owner: u32, slot: u64) -> Result<Self::Descriptor, Self::Error>;
}

/// A transport to processes that share no memory with this one, reliable and in order: over datagrams, or a connection to each. Tokens name requests of
/// this side.
pub trait Network {
    /// Longest message that goes as a copy with its header, bytes.
    fn short_bytes_max(&self) -> usize;
    /// Whether a copy of so many bytes may be kept until it is acknowledged.
    fn has_room(&self, bytes: usize) -> bool;
    fn now_ns(&self) -> u64;
    /// Processes that this one may have spoken with; and whether `process` is one.
    fn known(&self) -> usize;
    fn knows(&self, process: u32) -> bool;
    fn send_header(&mut self, now_ns: u64, process: u32, header: Header) -> Result<(), reliability::Refused>;
    /// Sends a header and a copy of what `write` appends, `bytes` of them. It is complete when this returns.
    fn send_copy(&mut self, now_ns: u64, process: u32, header: Header, bytes: usize, write: impl FnOnce(&mut Vec<u8>)) -> Result<(), reliability::Refused>;
    /// Offers a message whose bytes stay where they are until the peer has all of them. `waits`: its sender waits for the match.
    fn send(&mut self, now_ns: u64, process: u32, header: Header, token: u64, bytes: u64, waits: bool) -> Result<(), reliability::Refused>;
    /// Sends a message into a window that its receiver has offered.
    fn put(&mut self, now_ns: u64, process: u32, header: Header, window: Window, token: u64, bytes: u64) -> Result<(), reliability::Refused>;
    /// How many accounts a peer has of what it leaves unmatched here: one for each way in which its messages come.
    fn accounts(&self) -> u64 {
        1
    }
    /// What waits for its receiver past the allowance may come.
    fn widen(&mut self, process: u32);
}

/// What the machine counts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Count {
    Unexpected,
    HeldToHeader,
    HeldBack,
    Refused,
    RtrSent,
    RtrUsed,
    RtrCrossed,
    RtrMispredicted,
    RtrAnswered,
    RtrVoided,
    RtrSuppressed,
    RtrPauses,
    /// Bytes that announcements took which were for nothing.
    RtrWastedBytes,
}

/// How a message came.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum DataPath {
    /// From this process itself.
    Own,
    /// In the cache line of its header.
    Inline,
    /// With its header, through the ring.
    Eager,
    /// Read by the receiver from the sender's memory.
    Read,
    /// Copied by both sides together.
    Cooperative,
    /// Piece by piece through the ring, most of it.
    Pipelined,
    /// In datagrams, with its header.
    Datagrams,
    /// In datagrams, pulled by the receiver.
    Pulled,
}

/// What somebody may want to be told of, with the process, the tag and the bytes that it is about.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Event {
    Unexpected,
    HeldBack,
    HeldToHeader,
    Refused,
    Announced,
}
