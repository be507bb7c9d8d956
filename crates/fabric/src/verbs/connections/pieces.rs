//! A body that is registered piece by piece while it is being read or written (paper 004, §3.3).
//!
//! A connection does not survive a look at memory that is not pinned. So its keys follow the pinning: whoever offers a body announces it first, registers
//! it then, and says of each piece where it may be read. Its reader registers its own memory piece by piece, too, each before it asks for what goes there.
//! Pieces grow, so that reading begins early, and a long body has few of them.

use super::frame::Place;

/// A body up to so long is registered at once; one piece of a longer one is as long, and each further one twice as long as the one before.
pub const PIECE_BYTES_MIN: u64 = 64 << 10;
/// The longest piece, bytes.
const PIECE_BYTES_MAX: u64 = 1 << 20;

/// The piece behind the first `before` bytes of a body of `bytes`.
pub fn next_piece(before: u64, bytes: u64) -> u64 {
    // Pieces of 64, 128, 256 … KiB end at 64, 192, 448 … KiB.
    (before + PIECE_BYTES_MIN).clamp(PIECE_BYTES_MIN, PIECE_BYTES_MAX).min(bytes - before)
}

/// Where the peer has the bytes of a body.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Sources {
    /// Where each piece ends, from the body's first byte on, and where it may be read.
    pieces: Vec<(u64, Place)>,
    /// More are to come.
    pub grows: bool,
}

/// What may be read at one place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Found {
    /// So many bytes, from there on.
    Here { bytes: u64, at: Place },
    /// Nothing yet.
    Later,
    /// Nothing: the body has to be asked for.
    Nowhere,
}

impl Sources {
    /// A body of `bytes` that lies at `place`, or that cannot be read.
    pub fn of(bytes: u64, place: Option<Place>) -> Sources {
        Sources { pieces: place.map(|place| (bytes, place)).into_iter().collect(), grows: false }
    }

    /// One that is being registered.
    pub fn growing() -> Sources {
        Sources { pieces: Vec::new(), grows: true }
    }

    /// The next `bytes` of a body of `whole_bytes` may be read at `place`; without one no more will. False for what cannot be.
    pub fn add(&mut self, bytes: u64, place: Option<Place>, whole_bytes: u64) -> bool {
        let before = self.end();
        let Some(place) = place else {
            return std::mem::take(&mut self.grows) && bytes == 0;
        };
        if !self.grows || bytes == 0 || bytes > whole_bytes - before {
            return false;
        }
        self.pieces.push((before + bytes, place));
        self.grows = before + bytes < whole_bytes;
        true
    }

    /// How much may be read.
    fn end(&self) -> u64 {
        self.pieces.last().map_or(0, |&(end, _)| end)
    }

    pub fn at(&self, offset: u64) -> Found {
        let index = self.pieces.partition_point(|&(end, _)| end <= offset);
        match self.pieces.get(index) {
            Some(&(end, place)) => {
                let start = index.checked_sub(1).map_or(0, |before| self.pieces[before].0);
                Found::Here { bytes: end - offset, at: Place { address: place.address.wrapping_add(offset - start), key: place.key } }
            }
            None if self.grows => Found::Later,
            None => Found::Nowhere,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn pieces_grow_and_end_with_the_body() {
        let (bytes, mut before, mut pieces) = (3 << 20, 0, Vec::new());
        while before < bytes {
            pieces.push(next_piece(before, bytes) >> 10);
            before += next_piece(before, bytes);
        }
        assert_eq!(pieces, [64, 128, 256, 512, 1024, 1024, 64]);
    }

    proptest! {
        /// Each byte is found where it was said to be, once it has been, and not before.
        #[test]
        fn bytes_are_found_where_they_are(pieces in proptest::collection::vec(1u64..100, 1..8), told in 0usize..9, given_up: bool) {
            let whole: u64 = pieces.iter().sum();
            let mut sources = Sources::growing();
            let (mut end, mut expected) = (0, Vec::new());
            for (index, &bytes) in pieces.iter().enumerate().take(told) {
                let place = Place { address: 1000 * (index as u64 + 1), key: index as u32 };
                prop_assert!(sources.add(bytes, Some(place), whole));
                expected.extend((0..bytes).map(|at| (place.address + at, place.key, bytes - at)));
                end += bytes;
            }
            let is_whole = end == whole;
            prop_assert!(!sources.clone().add(whole - end + 1, Some(Place { address: 0, key: 0 }), whole), "more than there is");
            if given_up {
                prop_assert_eq!(sources.add(0, None, whole), !is_whole);
            }
            for offset in 0..whole {
                let found = sources.at(offset);
                match expected.get(offset as usize) {
                    Some(&(address, key, bytes)) => prop_assert_eq!(found, Found::Here { bytes, at: Place { address, key } }),
                    None => prop_assert_eq!(found, if given_up { Found::Nowhere } else { Found::Later }),
                }
            }
        }
    }
}
