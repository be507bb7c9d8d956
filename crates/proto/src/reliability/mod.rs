//! Reliable messages over datagrams that may be lost, repeated, reordered or damaged, after paper 003 (§2.2, §4) and what it
//! left as future work: a scheme made for datagrams, and flow control.
//!
//! One [`Endpoint`] talks to all peers. It is a state machine: packets, requests and the time go in, calls of
//! [`Outside`] come out. It knows of a fabric only what [`RailConfig`] says, so that it drives UDP and InfiniBand UD alike.
//!
//! - The unit of acknowledgement is the virtual fragment (VFRAG, paper 003 §4.2): up to [`VFRAG_BYTES`], cut into at most 64 segments
//!   of one datagram each. A short message is one VFRAG; a long one is pulled by the receiver's grants.
//! - Segments are cut so that they fit every rail to their peer, and may move from one to another.
//! - Two processes may have different numbers of rails: both use as many as the one that has more.
//! - A segment finds its place by (message, offset) whenever it comes; order is restored only where messages are delivered.
//! - A peer that is quiet costs a few hundred bytes; all else is allocated while something is under way.
//!
//! # Driving it
//!
//! For each datagram of a rail: [`seal::open_datagram`], then [`Endpoint::arrived`]. For each completion of the fabric:
//! [`Endpoint::local_completion`] or [`Endpoint::writable`]. When [`Endpoint::deadline_ns`] has passed: [`Endpoint::tick`]. After any number of those
//! and of requests ([`Endpoint::send`], [`Endpoint::receive`], …): [`Endpoint::flush`], without which nothing leaves; several requests before one
//! flush share datagrams. Calls of [`Outside`] come from within these and must not call back; what they give rise to is requested afterwards.
//! Before a process ends, it goes on until [`Endpoint::is_quiet`], and a while longer to acknowledge again what a peer sends again.

mod ahead;
mod endpoint;
mod incoming;
mod local;
mod local_rail;
mod losses;
mod outgoing;
mod peer;
mod rail;
mod replay;
mod rtt;
pub mod seal;
mod slab;
mod sparse;
#[cfg(test)]
mod tests;
mod transfer;
mod vfrag;
mod window;
pub mod wire;

pub use endpoint::{Counters, Endpoint, HighWater};
pub use sparse::Sparse;

use crate::credits::SHORT_BYTES_MAX;
use wire::Run;

/// Processes of one job, at most.
pub const PEERS_MAX: u32 = 1 << 20;
/// Rails (pairs of addresses) between two processes, at most.
pub const RAILS_MAX: usize = 4;
/// The unit of acknowledgement, bytes, at most; it spans several datagrams. Those of a transfer are what leaves in one run ([`wire::stride_bytes`]).
pub const VFRAG_BYTES: u32 = 64 << 10;
/// Segments of one VFRAG, at most.
pub const SEGMENTS_MAX: usize = 64;
/// Least payload of a segment, bytes, so that a VFRAG has at most [`SEGMENTS_MAX`].
pub const SEGMENT_BYTES_MIN: u32 = VFRAG_BYTES / SEGMENTS_MAX as u32;
/// Messages to one peer that may be unacknowledged at once.
pub const MESSAGES_MAX: usize = 1024;
/// VFRAGs of one transfer that may be unacknowledged at once.
pub const VFRAGS_MAX: usize = 64;
/// Longest payload that goes without being asked for, bytes, unless a fabric says otherwise: what one VFRAG takes.
pub const EAGER_BYTES_MAX: u32 = VFRAG_BYTES;
/// A message of more bytes may be read from the memory of a program that waits until it is acknowledged.
pub const COPIED_BYTES_MAX: u32 = 16 << 10;
/// A datagram must not be limited to less, bytes.
pub const MTU_BYTES_MIN: u32 = SEGMENT_BYTES_MIN + (wire::HEADER_BYTES + wire::MESSAGE_BYTES_MAX + wire::ENVELOPE_BYTES_MAX) as u32;
/// Slices of payload in one datagram, at most.
pub const SLICES_MAX: usize = 64;
/// Incoming or outgoing transfers of one process at once, at most.
pub const TRANSFERS_MAX: usize = slab::SLOTS_MAX;

/// After that long without an answer on any rail, other paths are worth looking for; longer where peers take long to answer.
pub const SILENT_NS: u64 = 250_000_000;

/// What a fabric says of one of its rails.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RailConfig {
    /// Longest datagram that surely gets through, bytes, all headers of this layer included; [`Endpoint::set_paths`] may allow longer ones.
    pub mtu_bytes: u32,
    /// Sending endpoints (UDP sockets, queue pairs) over which packets are striped; paper 003 Fig. 2 finds four enough.
    pub endpoints: u8,
    /// Packets in one endpoint's queue that may lack their local completion.
    pub queue_packets_max: u16,
}

/// Limits and times. [`Config::default`] suits a cluster's network; what must hold is checked by [`Endpoint::new`].
#[derive(Clone, Debug)]
pub struct Config {
    pub rails: Vec<RailConfig>,
    /// Longest payload that goes without being asked for, bytes, at most [`VFRAG_BYTES`].
    pub eager_bytes_max: u32,
    /// What one sender may leave unmatched here with its payload, bytes, and as headers, bytes ([`crate::credits`]).
    pub credit_bytes: u64,
    pub credit_header_bytes: u64,
    /// Bytes of all incoming transfers that may be granted and not here, at most; at least [`VFRAG_BYTES`].
    pub grant_bytes_max: u64,
    /// Messages that wait for their turn at the sender, to one peer; past it, [`Refused::Full`].
    pub waiting_max: usize,
    /// An acknowledgement waits this long for something to ride on, or for this many packets.
    pub ack_delay_ns: u64,
    pub ack_packets: u32,
    /// That of a message of more than [`COPIED_BYTES_MAX`] waits no longer than this.
    pub ack_long_ns: u64,
    /// Round trip before any has been measured.
    pub rtt_initial_ns: u64,
    /// Bounds of the timer that answers silence.
    pub timeout_min_ns: u64,
    pub timeout_max_ns: u64,
    /// The way to a peer may lengthen by this, and by a quarter of it, before a window stops growing.
    pub queueing_ns: u64,
    /// Bytes in flight to one peer on one rail: at first and at most.
    pub window_initial_bytes: u64,
    pub window_bytes_max: u64,
    /// Silences in a row after which a rail is dead, if another one answers.
    pub strikes_max: u8,
    /// A send whose local completion takes longer makes its rail dead for all peers (paper 003 §4.2, first timeout).
    pub local_timeout_ns: u64,
    /// A dead rail is probed after this time, then after twice as long, …, up to the second.
    pub probe_min_ns: u64,
    pub probe_max_ns: u64,
    /// While something is wanted from a silent peer, it is asked for a sign of life this often.
    pub keepalive_ns: u64,
    /// A peer that has answered on no rail for this long has failed.
    pub peer_timeout_ns: u64,
    /// A peer with which nothing is under way keeps its working state this long.
    pub idle_ns: u64,
}

impl Default for Config {
    fn default() -> Self {
        const MS: u64 = 1_000_000;
        Config {
            rails: vec![RailConfig { mtu_bytes: 1472, endpoints: 1, queue_packets_max: 256 }],
            eager_bytes_max: EAGER_BYTES_MAX,
            credit_bytes: 256 << 10,
            credit_header_bytes: 512 << 10,
            grant_bytes_max: 2 << 20,
            waiting_max: 1 << 16,
            ack_delay_ns: 100_000,
            ack_packets: 8,
            ack_long_ns: 10_000,
            rtt_initial_ns: 2 * MS,
            timeout_min_ns: MS / 2,
            timeout_max_ns: 500 * MS,
            queueing_ns: MS / 5,
            window_initial_bytes: 64 << 10,
            window_bytes_max: 8 << 20,
            strikes_max: 3,
            local_timeout_ns: 200 * MS,
            probe_min_ns: 10 * MS,
            probe_max_ns: 1000 * MS,
            keepalive_ns: 500 * MS,
            peer_timeout_ns: 20_000 * MS,
            idle_ns: 50 * MS,
        }
    }
}

impl Config {
    /// Bytes of one peer's messages that may be here before their turn, at most: what its credit allows, and short messages beyond.
    fn ahead_bytes_max(&self) -> u64 {
        self.credit_bytes + MESSAGES_MAX as u64 * SHORT_BYTES_MAX
    }
}

/// A peer's process number in the job.
pub type PeerId = u32;

/// A piece of a payload that the outside knows by the token of its send.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Slice {
    pub send: u64,
    pub offset_bytes: u64,
    pub length_bytes: u32,
}

/// Where a datagram goes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SendPath {
    pub peer: PeerId,
    pub rail: u8,
    /// Which of the rail's sending endpoints.
    pub endpoint: u8,
}

/// What became of a datagram.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Sent {
    /// Its payload may be overwritten.
    Done,
    /// Its payload is in use until [`Endpoint::local_completion`].
    Queued,
    /// It was not taken; nothing more goes to this rail until [`Endpoint::writable`].
    Busy,
}

/// How many datagrams of a run were taken, from the first on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Taken {
    pub datagrams: u32,
    /// Their payload is in use until a local completion of each; otherwise it may be overwritten.
    pub queued: bool,
}

/// A message, in the order in which its sender sent it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Delivery<'a> {
    /// The whole message. Once its memory is free, [`Endpoint::release`] says so.
    Eager { envelope: &'a [u8], payload: &'a [u8] },
    /// As [`Delivery::Eager`] of a message that [`Outside::begin`] gave a place: its `bytes` are there, as far as there is room.
    Placed { envelope: &'a [u8], receive: u64, bytes: u64 },
    /// `bytes` wait at the sender; [`Endpoint::receive`] fetches them.
    Request { envelope: &'a [u8], transfer: u32, bytes: u64 },
    /// A receiver is there before its sender; [`Endpoint::push`] fills its window.
    Offer { envelope: &'a [u8], window: u32, granted_bytes: u64, capacity_bytes: u64 },
    /// An offered window is being filled with `bytes`; `receive` is the token of [`Endpoint::offer`].
    Push { envelope: &'a [u8], receive: u64, bytes: u64 },
}

/// Where a segment belongs.
#[derive(Clone, Copy, Debug)]
pub struct Placement {
    /// The token of the receive.
    pub receive: u64,
    pub offset_bytes: u64,
}

/// Where a message belongs whose first segment has come.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Begun {
    /// As [`Placement::receive`].
    pub receive: u64,
    /// How much of its payload is placed there, bytes; the rest is dropped.
    pub room_bytes: u64,
}

/// Why an operation ended without success.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Failure {
    /// The peer has answered on no rail for [`Config::peer_timeout_ns`], or is another incarnation by now.
    Peer,
}

/// Why a request was not taken.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Refused {
    /// The peer has failed.
    Peer,
    /// A table is full; try again when something has completed.
    Full,
    /// No such thing, or longer than allowed.
    Argument,
}

/// How what leaves in a run of datagrams is cut, and how they are made.
#[derive(Clone, Copy, Debug)]
pub struct Cut {
    /// Of each segment but the last, which has the rest.
    pub segment_bytes: u32,
    pub count: u32,
    /// Of each datagram but the last, which may be shorter; those that would be shorter end in zeroes.
    pub each_bytes: usize,
    /// They are better made by stores that go past the caches ([`crate::costs::making`]).
    pub streams: bool,
}

/// What the machine has done: carried out by the engine, or by a simulated world.
pub trait Outside {
    /// Sends a datagram: `header`, sealed first ([`seal::seal_datagram`]), then the slices.
    fn transmit(&mut self, path: SendPath, header: &mut [u8], payload: &[Slice]) -> Sent;
    /// Sends segments of a transfer: as [`Outside::transmit`] of each with `header`, which [`wire::advance`] makes that of the next. How many were taken;
    /// all others are [`Sent::Busy`]. `None`: one by one, please; nothing has been touched.
    fn transmit_run(&mut self, path: SendPath, header: &mut [u8], payload: &Slice, cut: Cut) -> Option<Taken> {
        let _ = (path, header, payload, cut);
        None
    }
    /// Sends segments of a message, two or more, as [`Outside::transmit_run`] those of a transfer: the first behind `first`, the second behind `next`, which
    /// [`wire::advance_message`] makes that of the third. `lone`: next to nothing else is under way to that peer.
    fn transmit_message(&mut self, path: SendPath, heads: (&mut [u8], &mut [u8]), payload: &Slice, cut: Cut, lone: bool) -> Option<Taken> {
        let _ = (path, heads, payload, cut, lone);
        None
    }
    /// Copies a segment to its place in the memory of a receive, and compares what is there then. False if it differs; the segment then
    /// counts as lost.
    fn place(&mut self, placement: &Placement, payload: &[u8]) -> bool;
    /// The same for the segments of a run that are not there yet; the first of all belongs at `placement`. False if any differs; all then count as lost.
    fn place_run(&mut self, placement: &Placement, run: &Run) -> bool {
        run.rest(placement.offset_bytes).all(|(offset_bytes, payload)| self.place(&Placement { offset_bytes, ..*placement }, payload))
    }
    /// The first segment of the next message of `peer` has come, and not yet all others: `bytes` with its payload in all. Where it belongs, if that
    /// is known already; each segment is placed there as it comes, and the last makes it [`Delivery::Placed`]; where its peer fails before, it ends
    /// with [`Outside::received`].
    fn begin(&mut self, peer: PeerId, envelope: &[u8], bytes: u64) -> Option<Begun> {
        let _ = (peer, envelope, bytes);
        None
    }
    /// The next message of `peer`.
    fn deliver(&mut self, peer: PeerId, delivery: Delivery);
    /// A send has ended; its payload may be overwritten: no datagram that was [`Sent::Queued`] uses it.
    fn complete(&mut self, send: u64, result: Result<(), Failure>);
    /// A receive has ended: all its bytes are in place.
    fn received(&mut self, receive: u64, result: Result<(), Failure>);
    /// A peer has failed. All operations with it have ended already, but for the sends in `in_use`: queued datagrams still read their payload, and each ends
    /// ([`Outside::complete`]) with the local completion of the last of them.
    fn peer_failed(&mut self, peer: PeerId, in_use: &[u64]);
    /// Datagrams on one of this process's own rails have lacked their local completion for [`Config::local_timeout_ns`]; it is dead for all peers until it answers
    /// again. Its endpoints should be made anew, and [`Endpoint::rail_reset`] told of it. Said again and again.
    fn stuck(&mut self, rail: u8) {
        let _ = rail;
    }
    /// `peer` has been asked for longer than [`SILENT_NS`], and has answered on no rail: there may be other paths to it. Said again and again.
    fn silent(&mut self, peer: PeerId) {
        let _ = peer;
    }
    /// A rail to `peer` has died or returned.
    fn rail_changed(&mut self, peer: PeerId, rail: u8, alive: bool) {
        let _ = (peer, rail, alive);
    }
}
