//! Datagrams that leave in one call: of one length and to one address, and what they are gathered from.

use std::net::{IpAddr, SocketAddr};

/// A part of a group.
#[derive(Clone, Copy, Debug)]
pub enum Piece {
    /// In the outbox.
    Own { start: usize, bytes: usize },
    /// In the program's memory.
    Foreign { start: *const u8, bytes: usize },
}

/// Datagrams to one address, all of one length but the last.
#[derive(Clone, Copy, Debug)]
pub struct Group {
    pub to: SocketAddr,
    pub pieces: usize,
    pub segments: usize,
    /// Of every datagram but the last, which may be shorter.
    pub segment_bytes: usize,
    pub bytes: usize,
    /// A shorter datagram ended it.
    pub closed: bool,
    /// All of it lies there, one foreign piece ([`Slots`](super::splice::Slots)).
    pub slot: Option<usize>,
}

/// IP and UDP headers, bytes.
pub const fn below_bytes(ip: IpAddr) -> u32 {
    if ip.is_ipv4() { 28 } else { 48 }
}
