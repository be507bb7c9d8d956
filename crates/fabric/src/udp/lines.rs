//! The sockets of one address and port: one that hears everybody, and lines, which are connected to the peers that datagrams go to one after another.
//!
//! The kernel looks up the way of every datagram of a socket that is not connected, on both ends; a line knows it. Peers notice nothing of lines: all
//! have the same address and port, and what comes from a peer comes through its line. There are [`LINES`], however many peers there are.

use std::net::{SocketAddr, UdpSocket};

use super::groups::Group;
use super::splice::LEAST_BYTES;
use super::sys::{self, Through};
use crate::Error;

/// Connected sockets of one port, at most.
pub const LINES: usize = 2;
/// Sockets of one port.
pub const SOCKETS_EACH: usize = 1 + LINES;
/// Datagrams and runs that leave alone, one after another, before their peer gets a line: connecting takes as long as lines save with about ten.
pub const STREAK: u32 = 32;

#[derive(Debug)]
pub struct Sockets {
    /// The one that hears everybody, and lines; those have no port before they are used for the first time, but threads may sleep on them.
    all: Vec<UdpSocket>,
    /// Whom each line is connected to, and how many have been bound.
    to: [Option<SocketAddr>; LINES],
    bound: usize,
    /// The line that was used last.
    last: usize,
    /// What each cuts into pieces of so many bytes; 0 for nothing.
    segments: [u16; LINES],
    /// Whom something left for last, and how often in a row.
    streak: (SocketAddr, u32),
    buffer_bytes: u32,
}

impl Sockets {
    /// The socket on `at`, as [`sys::bind`] makes it.
    pub fn open(at: SocketAddr, buffer_bytes: u32) -> Result<Sockets, Error> {
        let all = (0..SOCKETS_EACH).map(|_| sys::socket(at)).collect::<Result<Vec<_>, _>>()?;
        sys::bind(&all[0], at, buffer_bytes, true)?;
        Ok(Sockets { all, to: [None; LINES], segments: [0; LINES], bound: 0, last: 0, streak: (at, 0), buffer_bytes })
    }

    /// The one that hears everybody.
    pub fn own(&self) -> &UdpSocket {
        &self.all[0]
    }

    /// All of them, to sleep on.
    pub fn all(&self) -> &[UdpSocket] {
        &self.all
    }

    /// Socket `at` if something may come there.
    pub fn heard(&self, at: usize) -> Option<&UdpSocket> {
        (at <= self.bound).then(|| &self.all[at])
    }

    /// The line for what waits, if all of it goes to one peer that has one, or gets one now.
    pub fn line(&mut self, groups: &[Group]) -> Option<usize> {
        // What waits alone counts towards a line: once, and a run that a line may splice more often.
        let (to, weight) = match *groups {
            [Group { to, bytes, .. }] => (to, 1 + (bytes / LEAST_BYTES) as u32),
            _ => {
                let to = groups.first()?.to;
                let line = self.to.iter().position(|line| *line == Some(to)).filter(|_| groups.iter().all(|group| group.to == to));
                return line.map(|line| 1 + line);
            }
        };
        if self.to[self.last] != Some(to) {
            match self.to.iter().position(|line| *line == Some(to)) {
                Some(line) => self.last = line,
                None => {
                    self.streak = (to, if self.streak.0 == to { self.streak.1 + weight } else { weight });
                    if self.streak.1 < STREAK {
                        return None;
                    }
                    self.streak.1 = 0;
                    self.connect(to).ok()?;
                }
            }
        }
        Some(1 + self.last)
    }

    /// How to send through a line.
    pub fn through(&self, line: usize) -> Through {
        Through::Line { segment_bytes: self.segments[line - 1] as usize }
    }

    /// A line that cuts what it sends into `bytes` each where it is told nothing.
    ///
    /// # Errors
    /// The system cannot cut.
    pub fn cutting(&mut self, line: usize, bytes: usize) -> Result<&UdpSocket, i32> {
        let bytes = u16::try_from(bytes).map_err(|_| libc::EMSGSIZE)?;
        if self.segments[line - 1] != bytes {
            sys::set_segment(&self.all[line], bytes)?;
            self.segments[line - 1] = bytes;
        }
        Ok(&self.all[line])
    }

    /// Connects a line: a new one, or the one before last.
    fn connect(&mut self, to: SocketAddr) -> Result<(), Error> {
        let line = if self.bound < LINES { self.bind()? } else { (self.last + 1) % LINES };
        // What came from its last peer is still there to be received; the rest goes to the socket that hears everybody.
        self.all[1 + line].connect(to).map_err(sys::failed("connect"))?;
        (self.to[line], self.last) = (Some(to), line);
        Ok(())
    }

    fn bind(&mut self) -> Result<usize, Error> {
        let at = self.own().local_addr().map_err(sys::failed("getsockname"))?;
        self.all.iter().try_for_each(|socket| sys::share_port(socket, true))?;
        let bound = sys::bind(&self.all[1 + self.bound], at, self.buffer_bytes, true);
        self.all.iter().try_for_each(|socket| sys::share_port(socket, false))?;
        bound?;
        self.bound += 1;
        Ok(self.bound - 1)
    }
}
