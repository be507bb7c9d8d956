//! Copies of short bodies under way: their sends are complete at once.

use proto::reliability::Slice;

/// Marks the copy of a short message among the tokens of sends.
const COPY: u64 = 1 << 63;
/// Copies of up to [`LEAST_BYTES`] whose memory is used again: the first so many.
const COPIES_KEPT: usize = 1024;
/// Memory of longer copies comes in powers of two from this on.
const LEAST_BYTES: usize = 64;
const CLASSES: usize = 11;
/// Of which so many bytes are used again: given back to the system, they would come as fresh pages each time.
const SPARE_BYTES_MAX: usize = 1 << 20;

/// Short messages under way.
#[derive(Default)]
pub(super) struct Copies {
    all: Vec<Vec<u8>>,
    free: Vec<u32>,
    bytes: usize,
    /// Memory of longer copies that is not in use, by class.
    spare: [Vec<Vec<u8>>; CLASSES],
    spare_bytes: usize,
}

/// Which class holds copies of `bytes`; `None` for those that no class holds.
fn class_of(bytes: usize) -> Option<usize> {
    let class = bytes.div_ceil(LEAST_BYTES).next_power_of_two().trailing_zeros() as usize;
    (1..CLASSES).contains(&class).then_some(class)
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

    /// Keeps a copy of what `write` appends, `bytes`.
    pub fn keep(&mut self, bytes: usize, write: impl FnOnce(&mut Vec<u8>)) -> u64 {
        let index = self.free.pop().unwrap_or_else(|| {
            self.all.push(Vec::new());
            self.all.len() as u32 - 1
        });
        let copy = &mut self.all[index as usize];
        if let Some(class) = class_of(bytes) {
            *copy = match self.spare[class].pop() {
                Some(spare) => {
                    self.spare_bytes -= spare.capacity();
                    spare
                }
                None => Vec::with_capacity(LEAST_BYTES << class),
            };
        }
        write(copy);
        debug_assert_eq!(copy.len(), bytes);
        self.bytes += copy.len();
        COPY | index as u64
    }

    pub fn drop(&mut self, token: u64) {
        let index = token as u32;
        let copy = &mut self.all[index as usize];
        self.bytes -= copy.len();
        copy.clear();
        let capacity = copy.capacity();
        if capacity > LEAST_BYTES || index as usize >= COPIES_KEPT {
            let spare = std::mem::take(copy);
            if let Some(class) = class_of(capacity).filter(|&class| capacity == LEAST_BYTES << class && self.spare_bytes + capacity <= SPARE_BYTES_MAX) {
                self.spare_bytes += capacity;
                self.spare[class].push(spare);
            }
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
        let keep = |copies: &mut Copies, bytes| copies.keep(bytes, |copy| copy.resize(bytes, 1));
        let (a, b) = (keep(&mut copies, 100), keep(&mut copies, 50));
        assert_eq!(copies.bytes, 150);
        copies.drop(a);
        assert_eq!((copies.bytes, keep(&mut copies, 7)), (50, a));
        copies.drop(b);
        assert_eq!((copies.bytes, keep(&mut copies, 3)), (7, b));
        assert_eq!(copies.all[b as u32 as usize], [1; 3], "nothing of the last one");
    }

    #[test]
    fn memory_of_long_copies_is_used_again_within_bounds() {
        let mut copies = Copies::default();
        let keep = |copies: &mut Copies, bytes| copies.keep(bytes, |copy| copy.resize(bytes, 1));
        let start = |copies: &Copies, token: u64| copies.all[token as u32 as usize].as_ptr();
        let long = keep(&mut copies, 10_000);
        let at = start(&copies, long);
        copies.drop(long);
        let short = keep(&mut copies, 65);
        let again = keep(&mut copies, 16_384);
        assert_eq!((start(&copies, again), copies.spare_bytes), (at, 0));
        assert!(copies.all[short as u32 as usize].capacity() < 10_000);
        // Those that are longer than any class, too, and more of them than are kept.
        let many: Vec<u64> = (0..200).flat_map(|_| [64 << 10, 200_000, 3]).map(|bytes| keep(&mut copies, bytes)).collect();
        for token in many {
            copies.drop(token);
        }
        assert!(copies.spare_bytes <= SPARE_BYTES_MAX && copies.spare_bytes > SPARE_BYTES_MAX / 2);
        assert_eq!(copies.spare_bytes, copies.spare.iter().flatten().map(Vec::capacity).sum());
        assert_eq!(copies.bytes, 65 + 16_384);
    }
}
