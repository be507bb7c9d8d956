//! What a call to a target asks for.

use crate::collective::Data;
use crate::handle::Op;

/// Which way the data goes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Direction {
    Put,
    Get,
}

/// Bytes that are changed at a time: copies of the data of both sides are made of them.
pub(super) const PART_BYTES: usize = 64 << 10;

/// A call that changes elements: operation, data, and where what was there goes.
#[derive(Clone, Copy)]
pub struct Accumulate {
    pub op: Op,
    /// Not looked at for `MPI_NO_OP`.
    pub origin: Data,
    /// What is to be got; `None` for `MPI_Accumulate`.
    pub result: Option<Data>,
}
