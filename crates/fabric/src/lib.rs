//! How bytes move: one folder per fabric, each with its foreign calls fenced in one `sys` module.
//!
//! A fabric carries packets: two header words (the low byte of the first belongs to the fabric), a few words, and a
//! body gathered from where it lies. What else it can do is stated in [`Capabilities`].

// The rest of this room is not used there.
#![cfg_attr(loom, allow(dead_code))]

#[cfg(not(loom))]
pub mod shm;
/// Only what loom checks.
#[cfg(loom)]
#[path = "shm/loom.rs"]
pub mod shm;

#[cfg(not(loom))]
pub mod local;
#[cfg(not(loom))]
mod network;
#[cfg(not(loom))]
pub mod reliable;
#[cfg(not(loom))]
pub mod remote;
#[cfg(not(loom))]
pub mod udp;
#[cfg(not(loom))]
pub mod verbs;

mod stores;

#[cfg(not(loom))]
pub use network::Network;

use std::fmt;

/// How bytes move, in principle.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// Load and store into a peer's memory.
    Memory,
    /// Ordered, reliable; remote read and write; immediate data.
    Connection,
    /// One endpoint for all peers; may lose, repeat, reorder, corrupt.
    Datagram,
}

/// What a fabric can do. Protocols are chosen by these, never by a fabric's name.
#[derive(Clone, Copy, Debug)]
pub struct Capabilities {
    pub kind: Kind,
    /// Largest body of one packet, bytes.
    pub body_bytes_max: usize,
    /// Largest body that travels with its header at no extra cost, bytes.
    pub inline_bytes_max: usize,
    /// Most pieces that a body may be gathered from.
    pub gather_max: usize,
    pub remote_read: bool,
    pub remote_write: bool,
    /// Memory must be registered before the device may touch it.
    pub needs_registration: bool,
    /// Packets between two peers arrive in the order in which they were sent.
    pub ordered: bool,
    /// No packet is lost, repeated or damaged.
    pub reliable: bool,
}

/// Why a fabric cannot go on.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Error {
    /// Shared memory or descriptors are used up: what was asked for, bytes, and the system's error number.
    Memory { what: &'static str, bytes: u64, errno: i32 },
    /// This process may not make a segment: its size, bytes, the system's error number, and what to do, one line.
    Segment { bytes: u64, errno: i32, why: String },
    /// A peer's shared memory says something that cannot be.
    Corrupt { peer: u32, what: &'static str, value: u64 },
    /// The system refused a call.
    System { call: &'static str, errno: i32 },
    /// The peer cannot be found.
    Peer { peer: u32, why: String },
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::Memory { what, bytes, errno } => {
                write!(f, "no memory for {what}: {bytes} bytes refused ({})", std::io::Error::from_raw_os_error(*errno))
            }
            Error::Segment { bytes, why, .. } => write!(f, "no shared-memory segment of {bytes} bytes: {why}"),
            Error::Corrupt { peer, what, value } => {
                write!(f, "shared memory of process {peer} is corrupt: {what} is {value}")
            }
            Error::System { call, errno } => write!(f, "{call} failed: {}", std::io::Error::from_raw_os_error(*errno)),
            Error::Peer { peer, why } => write!(f, "process {peer} cannot be reached: {why}"),
        }
    }
}

impl std::error::Error for Error {}

impl proto::p2p::Error for Error {
    fn corrupt(peer: u32, what: &'static str, value: u64) -> Error {
        Error::Corrupt { peer, what, value }
    }

    fn peer(peer: u32, why: String) -> Error {
        Error::Peer { peer, why }
    }

    fn is_corrupt(&self) -> bool {
        matches!(self, Error::Corrupt { .. })
    }

    fn of_peer(self, peer: u32) -> Error {
        match self {
            error @ Error::Peer { .. } => error,
            error => Error::Peer { peer, why: error.to_string() },
        }
    }
}

/// Why a packet did not leave.
pub type Refused = proto::p2p::Refused<Error>;

/// The part that all fabrics share. One value serves all peers; it is driven by one thread at a time.
pub trait Fabric {
    /// A packet that has arrived and not been released.
    type Packet;
    fn capabilities(&self) -> &Capabilities;
    /// Sends a packet: `words` (at most 6; at most 4 with a body that is not inline), then `body`.
    /// The body may be reused when this returns.
    fn send(&mut self, peer: u32, head: [u64; 2], words: &[u64], body: Body) -> Result<(), Refused>;
    /// The next packet that has come, if there is one. It must be released before the next call.
    fn receive(&mut self) -> Result<Option<Self::Packet>, Error>;
    /// Gives its place back to its sender, once. By reference, since a packet is a line long and would be copied.
    fn release(&mut self, packet: &Self::Packet);
}

/// Bytes that do not lie in one piece: they are written where they are wanted.
///
/// # Safety
/// `write` must write exactly `bytes` bytes at `to`.
pub unsafe trait Scattered {
    /// Writes bytes `offset..offset + bytes` of the body to `to`.
    ///
    /// # Safety
    /// `to..to + bytes` must be writable, and the range inside the body.
    unsafe fn write(&self, offset: usize, to: *mut u8, bytes: usize);
}

/// Bytes of this process, to be sent. Made from a user's buffer by the engine.
#[derive(Clone, Copy)]
pub struct Body<'a> {
    start: *const u8,
    bytes: usize,
    scattered: Option<&'a dyn Scattered>,
}

impl<'a> Body<'a> {
    pub const EMPTY: Body<'static> = Body { start: std::ptr::null(), bytes: 0, scattered: None };

    /// # Safety
    /// `start..start + bytes` must be readable until the call that this is given to returns.
    #[inline]
    pub unsafe fn new(start: *const u8, bytes: usize) -> Body<'a> {
        Body { start, bytes, scattered: None }
    }

    /// `bytes` that `from` writes.
    pub fn scattered(from: &'a dyn Scattered, bytes: usize) -> Body<'a> {
        Body { start: std::ptr::null(), bytes, scattered: Some(from) }
    }

    #[inline]
    pub fn len(&self) -> usize {
        self.bytes
    }

    pub fn is_empty(&self) -> bool {
        self.bytes == 0
    }

    /// Where the bytes lie when they lie in one piece.
    #[inline]
    pub(crate) fn start(&self) -> Option<*const u8> {
        if self.scattered.is_none() { Some(self.start) } else { None }
    }

    /// Copies bytes `offset..offset + bytes` to `to`.
    ///
    /// # Safety
    /// `to..to + bytes` must be writable, and the range inside the body.
    #[inline]
    pub unsafe fn copy_to(&self, offset: usize, to: *mut u8, bytes: usize) {
        match self.scattered {
            None => std::ptr::copy_nonoverlapping(self.start.add(offset), to, bytes),
            Some(from) => from.write(offset, to, bytes),
        }
    }
}
