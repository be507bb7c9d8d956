//! What is known of a peer, and what is under way with it.

use std::collections::VecDeque;

use proto::credits::Credits;
use rustc_hash::FxHashMap;

use super::allowance::Allowance;
use super::contact::Way;
use super::frame::{ENVELOPE_BYTES_MAX, Place};
use super::pieces::Sources;
use super::registrations::{Held, Hold};
use super::tie::Tie;
use crate::verbs::sys::PairId;

/// A message that has not left.
#[derive(Clone, Copy, Debug)]
pub struct Waiting {
    pub envelope: [u8; ENVELOPE_BYTES_MAX],
    pub envelope_bytes: u8,
    /// It waits to be asked for in any case.
    pub pulled: bool,
    pub send: u64,
    pub bytes: u64,
}

/// What is to be told beside messages.
#[derive(Clone, Copy, Debug)]
pub enum Control {
    Fetch {
        transfer: u32,
        bytes: u64,
    },
    /// The next `bytes` of a body that the peer is to read or to write are there; without a place no more will be.
    Registered {
        way: Direction,
        transfer: u32,
        bytes: u64,
        place: Option<Place>,
    },
    Written {
        transfer: u32,
    },
    Done {
        transfer: u32,
    },
    Widen,
}

/// A body that its receiver may read, or may ask for.
#[derive(Debug)]
pub struct Offered {
    pub send: u64,
    pub bytes: u64,
    /// Where it begins, if it lies in one piece.
    pub start: Option<u64>,
    /// It goes, or has gone, in frames.
    pub framed: bool,
    /// Until the receiver has it.
    pub held: Held,
}

/// A body of the peer that nobody has asked for yet.
#[derive(Debug)]
pub struct Requested {
    pub bytes: u64,
    pub sources: Sources,
}

/// A body that is being sent through the connection, since its receiver cannot read it.
#[derive(Clone, Copy, Debug)]
pub struct Outgoing {
    pub transfer: u32,
    pub send: u64,
    pub offset: u64,
    pub bytes: u64,
}

/// A body that comes through the connection.
#[derive(Clone, Copy, Debug)]
pub struct Incoming {
    pub receive: u64,
    pub came_bytes: u64,
    pub bytes: u64,
}

/// A body that its sender may write here.
#[derive(Debug)]
pub struct Granted {
    pub receive: u64,
    pub bytes: u64,
    pub start: u64,
    pub held: Held,
}

/// How a device moves a body from one process to the other.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Direction {
    Read,
    Write,
}

/// A body that this process' device reads from the peer's memory, or writes there.
#[derive(Debug)]
pub struct Moving {
    pub way: Direction,
    pub peer: u32,
    /// Its sender's number.
    pub transfer: u32,
    /// The receive, where it is read.
    pub receive: u64,
    /// The whole body is longer where the receive is short.
    pub whole_bytes: u64,
    pub bytes: u64,
    /// Where the peer has it, or wants it.
    pub there: Sources,
    /// Where this process wants it, or has it.
    pub start: u64,
    pub held: Held,
    /// What has been asked for, bytes, and how many answers are to come.
    pub asked_bytes: u64,
    pub pending: u32,
    /// It stands in [`Peer::moving`].
    pub queued: bool,
    /// The rest cannot be moved so: when the answers are there, the whole goes in frames.
    pub gives_up: bool,
}

impl Moving {
    /// A whole body, of which nothing has been asked for yet, among those of its peer.
    pub fn new(way: Direction, peer: u32, transfer: u32, whole_bytes: u64, there: Sources, start: u64) -> Moving {
        Moving {
            way,
            peer,
            transfer,
            receive: 0,
            whole_bytes,
            bytes: whole_bytes,
            there,
            start,
            held: Held::default(),
            asked_bytes: 0,
            pending: 0,
            queued: true,
            gives_up: false,
        }
    }
}

/// A short message that the device takes from where the program has it.
#[derive(Debug)]
pub struct InPlace {
    pub peer: u32,
    pub send: u64,
    pub hold: Hold,
}

/// A queue pair, and how far its tie is.
#[derive(Debug)]
pub struct Link {
    pub pair: PairId,
    pub psn: u32,
    pub tie: Tie,
    pub allowance: Allowance,
}

#[derive(Debug)]
pub struct Peer {
    pub epoch: u32,
    pub way: Way,
    pub link: Option<Link>,
    /// It can be reached no more.
    pub failed: bool,
    pub watched: bool,
    /// It stands among those that may have something to send.
    pub runnable: bool,
    /// Bodies that came in frames, or were written, are confirmed too: their senders have them until then.
    pub confirms: bool,
    pub waiting: VecDeque<Waiting>,
    pub controls: VecDeque<Control>,
    pub outgoing: VecDeque<Outgoing>,
    /// It is the turn of [`Peer::outgoing`].
    pub data_next: bool,
    pub offered: FxHashMap<u32, Offered>,
    pub next_transfer: u32,
    /// Bodies of the peer that nobody has asked for yet.
    pub requests: FxHashMap<u32, Requested>,
    pub incoming: FxHashMap<u32, Incoming>,
    /// Bodies that this process may be written.
    pub granted: FxHashMap<u32, Granted>,
    /// Bodies that are being registered piece by piece: those that are offered and that the peer is to read, and those that it is granted to write.
    pub registering: VecDeque<(Direction, u32)>,
    /// Those of which something has not been asked for, and all.
    pub moving: VecDeque<u32>,
    pub moves: u32,
    /// Messages that leave from where the program has them.
    pub in_place: u32,
    /// What this process has left unmatched there; and what that one has left here that is free again, and of which it has been told.
    pub unmatched: Credits,
    pub released_bytes: u64,
    pub told_bytes: u64,
}

impl Peer {
    pub fn new(epoch: u32, way: Way, unmatched: Credits) -> Peer {
        Peer {
            epoch,
            way,
            link: None,
            failed: false,
            watched: false,
            runnable: false,
            confirms: false,
            waiting: VecDeque::new(),
            controls: VecDeque::new(),
            outgoing: VecDeque::new(),
            data_next: false,
            offered: FxHashMap::default(),
            next_transfer: 0,
            requests: FxHashMap::default(),
            incoming: FxHashMap::default(),
            granted: FxHashMap::default(),
            registering: VecDeque::new(),
            moving: VecDeque::new(),
            moves: 0,
            in_place: 0,
            unmatched,
            released_bytes: 0,
            told_bytes: 0,
        }
    }

    /// Something of the program has not ended.
    pub fn has_open(&self) -> bool {
        !(self.waiting.is_empty() && self.outgoing.is_empty() && self.offered.is_empty() && self.incoming.is_empty() && self.granted.is_empty())
            || self.moves + self.in_place > 0
    }

    /// There is nothing to be sent to it.
    pub fn is_idle(&self) -> bool {
        let Peer { waiting, controls, outgoing, moving, registering, .. } = self;
        waiting.is_empty() && controls.is_empty() && outgoing.is_empty() && moving.is_empty() && registering.is_empty()
    }

    /// It matters whether the peer lives.
    pub fn matters(&self) -> bool {
        self.watched || self.has_open() || !self.requests.is_empty()
    }
}
