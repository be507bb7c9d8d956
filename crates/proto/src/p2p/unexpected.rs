//! Messages that nobody has asked for.

use super::actions::Pull;
use super::request::{Origin, Outcome};
use crate::matching::Aside;
use crate::wire::Rts;

/// What is kept of a message that nobody has asked for.
#[derive(Clone, Hash)]
pub(crate) enum Unexpected {
    /// Up to 48 bytes, as they lay in the line.
    Words {
        peer: u32,
        words: [u64; 6],
        bytes: u8,
    },
    Bytes {
        peer: u32,
        data: Box<[u8]>,
        origin: Option<Origin>,
    },
    /// The sender has the bytes.
    Offer {
        peer: u32,
        rts: Rts,
    },
    /// A remote sender has the bytes.
    Pull(Pull),
    /// A send of this process itself has them.
    Here {
        request: u32,
    },
}

impl Unexpected {
    /// Whose message it is; `None` for one of this process.
    pub fn peer(&self) -> Option<u32> {
        match self {
            Unexpected::Words { peer, .. } | Unexpected::Bytes { peer, .. } | Unexpected::Offer { peer, .. } => Some(*peer),
            Unexpected::Pull(pull) => Some(pull.peer),
            Unexpected::Here { .. } => None,
        }
    }
}

/// A message taken out by a matched probe (MPI-5.0 §3.8.2).
pub struct Message {
    pub(super) aside: Aside,
    pub(super) bytes: u64,
}

impl Message {
    /// The engine of this process that has it.
    pub fn vci(&self) -> u8 {
        self.aside.envelope.context.vci()
    }

    pub fn outcome(&self) -> Outcome {
        Outcome { source: self.aside.envelope.source, tag: self.aside.envelope.tag, bytes: self.bytes, ..Outcome::default() }
    }
}
