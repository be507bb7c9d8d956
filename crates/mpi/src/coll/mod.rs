//! Collective algorithms (MPI-5.0 chapter 6), written once as `async` functions over [`Link`].
//! A blocking collective drives the future to its end; a nonblocking one is polled by progress.
//!
//! Buffers are packed bytes. A block that belongs to rank `i` of an equal-block collective lies at `i * block_bytes`;
//! the `v` and `w` forms take one slice per rank, so displacements are the caller's business. `mine: None` means
//! `MPI_IN_PLACE`. Lengths must agree among the ranks as the standard demands; blocks of no bytes are never sent.
//!
//! A collective has at most [`IN_FLIGHT`] operations under way at once. Temporaries are stated at each algorithm; one
//! that cannot be had is `MPI_ERR_NO_MEM`; a thread keeps up to two, of at most 4 MiB each, for its next collective.
//! Dropping a future cancels what it started.
#![forbid(unsafe_code)]

pub mod aggregate;
mod allgather;
mod allreduce;
mod alltoall;
mod barrier;
mod bcast;
pub mod choose;
mod gather;
mod hosts;
pub mod inter;
pub mod neighbor;
pub mod place;
mod reduce;
mod reduce_scatter;
mod scan;
mod scatter;
#[cfg(test)]
mod sim;
#[cfg(test)]
mod tests;
mod work;

pub use allgather::allgatherv;
pub use alltoall::alltoallv;
pub use choose::{Tuning, WHOLE_BETWEEN_TWO_BYTES};
pub use gather::gatherv;
pub use hosts::{allgather, allreduce, alltoall, barrier, bcast, gather, reduce, reduce_scatter, reduce_scatter_block, scatter};
pub use place::{Hosts, Place};
pub use scan::{exscan, scan};
pub use scatter::scatterv;
pub(crate) use work::{Scratch, copy, no_memory, scratch, zeros};

use crate::error::Result;
use std::future::Future;

/// Operations that one collective keeps under way at once, at most.
pub const IN_FLIGHT: usize = 64;

/// What a collective algorithm may do: exchange bytes with the other members of one group.
///
/// A `Link` belongs to one collective operation: its messages cannot match those of another.
/// Between one pair of ranks messages match in the order in which they were started.
pub trait Link: Sized {
    /// A started operation. It is under way from the moment it is made, whether or not it is polled;
    /// dropping it before it is complete cancels it.
    type Op<'a>: Future<Output = Result<()>> + Unpin
    where
        Self: 'a;
    /// Rank of this process, `0..size()`.
    fn rank(&self) -> usize;
    /// Members of the group, at least 1.
    fn size(&self) -> usize;
    /// Starts sending `data` to `to` (never this rank).
    fn send<'a>(&'a self, to: usize, data: &'a [u8]) -> Self::Op<'a>;
    /// Starts receiving exactly `into.len()` bytes from `from` (never this rank).
    fn recv<'a>(&'a self, from: usize, into: &'a mut [u8]) -> Self::Op<'a>;
    /// Whether more ranks than cores share a machine, so that fewer messages beat fewer steps.
    /// The answer must be the same on every rank of the group.
    fn crowded(&self) -> bool {
        false
    }
    /// Whether some of the members are on other hosts, which are farther than those of one. The same on every rank of the group.
    fn remote(&self) -> bool {
        false
    }
    /// The same collective among some of the members, of which this process is number `me`.
    fn part(&self, ranks: &[u32], me: usize, place: Place) -> Self;
    /// Where the members run, if some of several hosts have several of them. The same on every rank of the group.
    fn hosts(&self) -> Option<&Hosts> {
        None
    }
}

/// How elements are combined (MPI-5.0 §6.9). `inout[i] = input[i] op inout[i]`, element by element:
/// `input` holds the value of the lower ranks where order matters.
pub trait Reducer {
    /// Bytes of one element as they lie in the buffers given to the algorithms, at least 1.
    fn element_bytes(&self) -> usize;
    fn commutative(&self) -> bool;
    /// Both slices have the same length, a multiple of `element_bytes()`.
    fn reduce(&self, input: &[u8], inout: &mut [u8]) -> Result<()>;
}
