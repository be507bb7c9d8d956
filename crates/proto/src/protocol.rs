//! The names of the protocols.

/// How a message goes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Protocol {
    /// With the header.
    Eager,
    /// The receiver has announced its receive, and the sender begins the copy, in which both take part.
    Announced,
    /// The receiver reads the sender's memory; from a peer that is reached by datagrams, it pulls the message.
    Read,
    /// Both claim pieces and copy them.
    Cooperative,
    /// Piece by piece through the fabric's own buffers.
    Pipelined,
}

pub const PROTOCOLS: usize = 5;

impl Protocol {
    pub const ALL: [Protocol; PROTOCOLS] = [Protocol::Eager, Protocol::Announced, Protocol::Read, Protocol::Cooperative, Protocol::Pipelined];

    pub fn name(self) -> &'static str {
        match self {
            Protocol::Eager => "eager",
            Protocol::Announced => "announced",
            Protocol::Read => "read",
            Protocol::Cooperative => "cooperative",
            Protocol::Pipelined => "pipelined",
        }
    }
}
