//! Copies between memories that are under way, and their pieces.

use super::ports::COOPERATIVE_PIECES_MAX;
use super::request::RequestId;

/// A send that goes through the ring piece by piece.
#[derive(Clone, Hash)]
pub(super) struct Stream {
    pub request: RequestId,
    pub peer: u32,
    pub receiver: u64,
    pub offset: usize,
    pub end: usize,
}

/// A copy between processes that is under way here.
#[derive(Clone, Hash)]
pub enum Job<R, L, S> {
    /// This side receives and reads alone. `together`: unless there is a descriptor by the time that it begins, since both would copy else.
    Read { request: RequestId, peer: u32, sender: u64, remote: R, done: usize, bytes: usize, together: bool },
    /// This side receives; both copy.
    CooperativeIn {
        request: RequestId,
        peer: u32,
        sender: u64,
        remote: R,
        bytes: usize,
        slot: u8,
        generation: u32,
        share: Option<S>,
        /// What the sender reads to know where to write.
        _list: Option<L>,
        ring: Ring,
    },
    /// This side sends; both copy.
    CooperativeOut { request: RequestId, peer: u32, receiver: u64, remote: R, bytes: usize, slot: u64, generation: u32, share: Option<S>, ring: Ring },
}

/// What a copy that both do has with the ring, where the sender's pieces go through that.
#[derive(Clone, Copy, Default, Hash)]
pub struct Ring {
    /// Pieces that have gone through it.
    pub pieces: u32,
    /// When the last piece of which not all was there began to come, ns.
    pub begun_ns: u64,
    /// Looks for which this side still leaves the copy to the other: for pieces to come, or for room in the ring. 0: it copies what it can claim.
    pub patience: u32,
}

impl Ring {
    /// One look has found nothing; one at a peer that does not wait counts for so many.
    pub fn look_in_vain(&mut self, waits: bool) {
        self.patience = self.patience.saturating_sub(if waits { 1 } else { ABSENT_LOOKS });
    }
}

/// Looks that one counts for while the peer does not say that it waits: it may be about to, or computes.
const ABSENT_LOOKS: u32 = 16;

impl<R, L, S> Job<R, L, S> {
    pub fn peer(&self) -> u32 {
        match self {
            Job::Read { peer, .. } | Job::CooperativeIn { peer, .. } | Job::CooperativeOut { peer, .. } => *peer,
        }
    }

    /// Whether this side leaves the copy to the other for some looks more: nobody wakes it after that.
    pub fn is_patient(&self) -> bool {
        matches!(self, Job::CooperativeIn { ring, .. } | Job::CooperativeOut { ring, .. } if ring.patience > 0)
    }

    /// Whether this side fetches a message of `process`.
    pub fn fetches_from(&self, process: u32) -> bool {
        matches!(self, Job::Read { peer, .. } | Job::CooperativeIn { peer, .. } if *peer == process)
    }
}

/// Size of the pieces of a cooperative copy of `bytes`. Both sides compute the same.
fn piece_bytes(bytes: usize) -> usize {
    let size = match bytes >> 10 {
        // Mostly of memory that is mapped, of which short pieces cost no system calls.
        ..128 => 32 << 10,
        128..=256 => 64 << 10,
        _ => 128 << 10,
    };
    size * bytes.div_ceil(size * COOPERATIVE_PIECES_MAX as usize).max(1)
}

pub fn pieces(bytes: usize) -> u32 {
    bytes.div_ceil(piece_bytes(bytes)) as u32
}

pub fn piece_range(bytes: usize, piece: u32) -> (usize, usize) {
    let size = piece_bytes(bytes);
    let at = piece as usize * size;
    (at, size.min(bytes - at))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_cover_the_message_exactly() {
        for bytes in [1, 64 << 10, (64 << 10) + 1, 300_000, 1 << 20, (4 << 20) + 17, (4 << 30) + 1, 1 << 40] {
            let mut next = 0;
            assert!(pieces(bytes) <= COOPERATIVE_PIECES_MAX);
            for piece in 0..pieces(bytes) {
                let (at, length) = piece_range(bytes, piece);
                assert_eq!(at, next);
                assert!(length > 0);
                next += length;
            }
            assert_eq!(next, bytes);
        }
    }
}
