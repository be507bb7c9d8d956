//! Messages whose bytes lie in several long pieces: each side leaves a list of its own where the other can read it, and
//! the bytes are copied straight between both.

use crate::buffer::{Buffer, List};
use fabric::local::{LocalPeers, PIECES_PER_CALL};
use proto::p2p::Way;

/// Mean length of the pieces of a peer's memory from which copying straight pays, bytes: the kernel looks up pages for each of them.
const REMOTE_BYTES_MIN: usize = 4096;

/// The same for this process' own memory, where a piece costs little.
const LOCAL_BYTES_MIN: usize = 512;

/// Pieces of one message; one that has more goes through the ring.
pub(crate) const PIECES_MAX: usize = 1 << 16;

/// Where the bytes of a message lie in the peer's memory.
pub enum Remote {
    /// In one piece.
    At(u64),
    Pieces(Box<[Piece]>),
}

/// A piece of the peer's memory.
pub struct Piece {
    address: u64,
    /// Where it starts and ends in the message.
    from: usize,
    to: usize,
}

impl Buffer {
    /// Whether the bytes lie in pieces long enough to be copied straight from or to another process' memory.
    #[inline]
    pub(crate) fn straight(&self) -> bool {
        self.piece_bytes() >= LOCAL_BYTES_MIN
    }

    /// Whether the peer can be told where the bytes lie: in one piece, or in a list that may be made.
    #[inline]
    pub(crate) fn tellable(&self) -> bool {
        self.piece_bytes() >= REMOTE_BYTES_MIN
    }

    /// What a peer is told of where the bytes lie: an address, and so many pieces in a list there; 0: the bytes themselves. `list` is
    /// [`Buffer::list`] or nothing. `None`: they lie in pieces of which there is no list.
    pub(crate) fn told(&self, list: Option<&List>) -> Option<(u64, u64)> {
        match list {
            Some(list) => Some((list.as_ptr() as u64, list.len() as u64)),
            None => self.address().map(|address| (address as u64, 0)),
        }
    }

    /// The list for the peer, where its copying straight would pay.
    pub(crate) fn list(&self) -> Option<List> {
        let pieces_about = self.len() / self.piece_bytes().max(1);
        if self.address().is_some() || self.piece_bytes() < REMOTE_BYTES_MIN || pieces_about > PIECES_MAX {
            return None;
        }
        let mut pieces = Vec::with_capacity(pieces_about + 1);
        let covered = self.pieces(0, self.len(), PIECES_MAX, &mut pieces);
        (covered == self.len()).then(|| pieces.iter().map(|(start, bytes)| [*start as u64, *bytes as u64]).collect())
    }
}

impl Remote {
    /// What the peer says about `bytes` of its memory: `address` is theirs, or that of a list of so many pieces. `None` where that
    /// cannot be read or does not fit together.
    pub(crate) fn learn(local: &mut LocalPeers, peer: u32, address: u64, pieces: u64, bytes: u64) -> Option<Remote> {
        if pieces == 0 {
            return Some(Remote::At(address));
        }
        let count = usize::try_from(pieces).ok().filter(|count| *count <= PIECES_MAX)?;
        let mut list = vec![[0u64; 2]; count];
        // SAFETY: the list is writable, 16 bytes for each piece.
        unsafe { local.read(peer, address, list.as_mut_ptr().cast(), count * 16) }.ok()?;
        let mut to = 0u64;
        let pieces: Option<Box<[Piece]>> = list
            .iter()
            .map(|[address, length]| {
                let from = to;
                to = from.checked_add(*length).filter(|to| *to <= bytes)?;
                Some(Piece { address: *address, from: from as usize, to: to as usize })
            })
            .collect();
        (to == bytes).then(|| pieces.map(Remote::Pieces))?
    }

    /// Appends address and length of the pieces of bytes `at..at + bytes`, at most `pieces_max` of them.
    fn pieces(&self, at: usize, bytes: usize, pieces_max: usize, out: &mut Vec<(u64, usize)>) {
        match self {
            Remote::At(address) => out.push((address.wrapping_add(at as u64), bytes)),
            Remote::Pieces(pieces) => {
                let first = pieces.partition_point(|piece| piece.to <= at);
                for piece in pieces[first..].iter().take_while(|piece| piece.from < at + bytes).take(pieces_max) {
                    let (from, to) = (piece.from.max(at), piece.to.min(at + bytes));
                    if from < to {
                        out.push((piece.address.wrapping_add((from - piece.from) as u64), to - from));
                    }
                }
            }
        }
    }

    /// Copies bytes `at..at + bytes` of the message between `local` and the peer's memory.
    ///
    /// # Safety
    /// The memory of `local` must be the engine's to use, and to write the peer must have offered its own.
    pub(crate) unsafe fn copy(&self, local: &mut LocalPeers, peer: u32, buffer: &Buffer, at: usize, bytes: usize, way: Way) -> Result<(), fabric::Error> {
        if let (Remote::At(address), Some(start)) = (self, buffer.address()) {
            let (there, here) = (address.wrapping_add(at as u64), start.add(at));
            return match way {
                Way::Read => local.read(peer, there, here, bytes),
                Way::Write => local.write(peer, there, here, bytes),
            };
        }
        let (mut here, mut there) = (Vec::with_capacity(PIECES_PER_CALL), Vec::with_capacity(PIECES_PER_CALL));
        let mut done = 0;
        while done < bytes {
            here.clear();
            there.clear();
            let covered = buffer.pieces(at + done, bytes - done, PIECES_PER_CALL, &mut here);
            self.pieces(at + done, covered, PIECES_PER_CALL, &mut there);
            // As much is copied as both lists hold.
            done += match way {
                Way::Read => local.read_pieces(peer, &there, &here)?,
                Way::Write => local.write_pieces(peer, &there, &here)?,
            };
        }
        Ok(())
    }
}
