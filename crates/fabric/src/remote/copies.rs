//! Copies of short bodies under way: their sends are complete at once.

use proto::reliability::Slice;

/// Marks the copy of a short message among the tokens of sends.
const COPY: u64 = 1 << 63;
/// Copies whose memory is used again: the first so many, where they are short.
const COPIES_KEPT: usize = 1024;
const COPY_KEPT_BYTES: usize = 64;

/// Short messages under way.
#[derive(Default)]
pub(super) struct Copies {
    all: Vec<Vec<u8>>,
    free: Vec<u32>,
    bytes: usize,
}

impl Copies {
    /// Whether the token of a send is that of a copy.
    #[inline]
    pub fn is_one(token: u64) -> bool {
        token & COPY != 0
    }

    /// Bytes of all of them.
    #[inline]
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Where a piece of a copy lies, and its bytes. `None` where there is no such piece.
    pub fn part(&self, slice: &Slice) -> Option<(*const u8, usize)> {
        let (from, bytes) = (slice.offset_bytes as usize, slice.length_bytes as usize);
        let part = self.all.get(slice.send as u32 as usize)?.get(from..from.checked_add(bytes)?)?;
        Some((part.as_ptr(), part.len()))
    }

    /// Keeps a copy of what `write` appends.
    pub fn keep(&mut self, write: impl FnOnce(&mut Vec<u8>)) -> u64 {
        let index = self.free.pop().unwrap_or_else(|| {
            self.all.push(Vec::new());
            self.all.len() as u32 - 1
        });
        let copy = &mut self.all[index as usize];
        write(copy);
        self.bytes += copy.len();
        COPY | index as u64
    }

    pub fn drop(&mut self, token: u64) {
        let index = token as u32;
        let copy = &mut self.all[index as usize];
        self.bytes -= copy.len();
        if copy.capacity() <= COPY_KEPT_BYTES && (index as usize) < COPIES_KEPT {
            copy.clear();
        } else {
            *copy = Vec::new();
        }
        self.free.push(index);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn copies_are_counted() {
        let mut copies = Copies::default();
        let keep = |copies: &mut Copies, bytes| copies.keep(|copy| copy.resize(bytes, 1));
        let (a, b) = (keep(&mut copies, 100), keep(&mut copies, 50));
        assert_eq!(copies.bytes, 150);
        copies.drop(a);
        assert_eq!((copies.bytes, keep(&mut copies, 7)), (50, a));
        copies.drop(b);
        assert_eq!((copies.bytes, keep(&mut copies, 3)), (7, b));
        assert_eq!(copies.all[b as u32 as usize], [1; 3], "nothing of the last one");
    }
}
