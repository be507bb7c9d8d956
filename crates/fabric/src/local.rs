//! Node-local peers as a transport: packets through rings, cooperative copies, gets and puts in memory that processes of one host share. The member that
//! this build has is named here and nowhere above.

pub use crate::shm::area::{COOPERATIVE_PIECES_MAX, Cooperative, LINE_WORDS, Line, Side};
pub use crate::shm::copier::Copier;
pub use crate::shm::{ANSWER_WITHIN, COOPERATIVES, Config, Doorbell, PIECES_PER_CALL, Packet, Resolver, Sleepers, VCIS, yield_core};

/// The processes that share this host's memory.
pub type LocalPeers = crate::shm::Shm;
