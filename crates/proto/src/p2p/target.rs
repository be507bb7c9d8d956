//! Whom a message goes to, and how.

use crate::wire::{Context, Envelope};

/// Whom a message goes to, and what it is matched by there.
#[derive(Clone, Copy, Debug)]
pub struct Target {
    pub process: u32,
    pub context: Context,
    /// This process' rank in the communicator.
    pub source: u32,
    pub tag: i32,
}

impl Target {
    #[inline]
    pub fn envelope(&self) -> Envelope {
        Envelope { context: self.context, source: self.source, tag: self.tag }
    }
}

/// Communication modes (MPI-5.0 §3.4). Buffered sends are standard sends of a copy.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Mode {
    Standard,
    Synchronous,
}
