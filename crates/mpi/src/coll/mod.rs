//! Collective algorithms (MPI-5.0 chapter 6), written once as `async` functions over [`Link`].
//! A blocking collective drives the future to its end; a nonblocking one is polled by progress.
#![forbid(unsafe_code)]

use crate::error::Result;
use std::future::Future;

/// What a collective algorithm may do: exchange bytes with the other members of one group.
///
/// A `Link` belongs to one collective operation: its messages cannot match those of another.
/// Between one pair of ranks messages match in the order in which they were started.
pub trait Link {
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
}

/// How elements are combined (MPI-5.0 §6.9). `inout[i] = input[i] op inout[i]`, element by element:
/// `input` holds the value of the lower ranks where order matters.
pub trait Reducer {
    /// Bytes of one element as they lie in the buffers given to the algorithms.
    fn element_bytes(&self) -> usize;
    fn commutative(&self) -> bool;
    /// Both slices have the same length, a multiple of `element_bytes()`.
    fn reduce(&self, input: &[u8], inout: &mut [u8]) -> Result<()>;
}
