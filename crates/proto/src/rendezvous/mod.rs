//! The speculative, adaptive rendezvous: a receiver that comes first may say so (*request to receive*, RTR), and its late
//! sender begins to copy at once ("A Speculative and Adaptive MPI Rendezvous Protocol Over RDMA-enabled Interconnects", §3).
//!
//! Which send does an RTR answer? The paper cannot tell, and cures the races (its Figs. 7 to 11) by acknowledgements, an
//! Eager flag and stop-RTR/resume-RTR. Here both sides count the messages from one to the other, and an RTR says how many
//! its receiver had matched when it was posted ([`sequence`]). That decides every case without an answer:
//!
//! * A message that was matched before cannot be the RTR's.
//! * Messages that were on their way are in the sender's [history](sequence::Sender): the first that the RTR accepts and
//!   that no earlier RTR has taken is its message. The two have crossed.
//! * Otherwise it is for the next message that it accepts, whatever protocol that one takes.
//!
//! This needs one rule of the receiver, which is the paper's: no RTR while an earlier receive is posted that could take the
//! same messages and has sent none. Where the sender cannot decide, it forgets all RTRs of that receiver and says so
//! ([`sequence::Verdict::Reset`]); the receiver counts those resets, and an RTR that was sent before one is void.

pub mod acks;
mod recent;
pub mod sequence;
pub mod usage;

use crate::envelope::Pattern;

/// How a sender finds out which of its messages an RTR is for.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Variant {
    /// By counting ([`sequence`]).
    #[default]
    Sequence,
    /// By the paper's acknowledgements and flags ([`acks`]).
    Acks,
}

/// A posted receive, as its sender may learn of it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Rtr {
    /// The receiver's request.
    pub request: u64,
    /// Number of the descriptor of the copy, in the receiver's segment, and its generation.
    pub slot: u32,
    pub generation: u32,
    /// Where the message goes in the receiver's memory, and how much fits.
    pub address: u64,
    pub room_bytes: u64,
    /// Pieces in the list that lies at `address`, as in [`Rts`](crate::wire::Rts); 0: the memory is one piece.
    pub pieces: u32,
    /// Messages of this sender that the receiver had matched or queued as unexpected when it posted the receive, modulo 2^32.
    pub seen: u32,
    /// Resets of this sender that the receiver knew of, modulo 2^31.
    pub epoch: u32,
    pub context: u64,
    /// A tag, or [`Pattern::ANY_TAG`].
    pub tag: i32,
}

impl Rtr {
    #[inline]
    pub fn accepts(&self, context: u64, tag: i32) -> bool {
        self.context == context && (self.tag == tag || self.tag == Pattern::ANY_TAG)
    }
}
