//! Where data lies in a window: runs of items at equal distances, made of the pieces of a datatype.

use crate::datatype::Type;
use smallvec::SmallVec;

/// `count` items of `bytes` bytes, `stride` bytes apart; the first is `at` bytes from the window's begin.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Run {
    pub at: i64,
    pub bytes: u64,
    pub stride: i64,
    pub count: u64,
}

pub type Runs = SmallVec<[Run; 2]>;

impl Run {
    pub const WORDS: usize = 4;

    pub fn to_words(self) -> [u64; Self::WORDS] {
        [self.at as u64, self.bytes, self.stride as u64, self.count]
    }

    pub fn from_words(words: [u64; Self::WORDS]) -> Run {
        Run { at: words[0] as i64, bytes: words[1], stride: words[2] as i64, count: words[3] }
    }

    /// Bytes of data. `None` past 63 bits.
    pub fn size(&self) -> Option<u64> {
        self.bytes.checked_mul(self.count).filter(|size| *size <= i64::MAX as u64)
    }

    /// The first byte, and the one behind the last, seen from the window's begin; each item taken to reach `item_bytes`. `None` past 63 bits.
    pub fn span(&self, item_bytes: u64) -> Option<(i64, i64)> {
        let steps = i64::try_from(self.count.checked_sub(1)?).ok()?;
        let last = self.at.checked_add(self.stride.checked_mul(steps)?)?;
        let end = self.at.max(last).checked_add(i64::try_from(item_bytes).ok()?)?;
        Some((self.at.min(last), end))
    }
}

/// Adds one item, to the last run where it follows the distance there.
fn push(runs: &mut Runs, at: i64, bytes: u64) {
    if let Some(last) = runs.last_mut().filter(|last| last.bytes == bytes) {
        let stride = at.wrapping_sub(last.at);
        if last.count == 1 || stride == last.stride.wrapping_mul(last.count as i64) {
            if last.count == 1 {
                last.stride = stride;
            }
            last.count += 1;
            return;
        }
    }
    runs.push(Run { at, bytes, stride: bytes as i64, count: 1 });
}

/// Elements of a window that one call names: `count` of a datatype, `at` bytes from the window's begin.
#[derive(Clone, Copy)]
pub struct Place {
    pub datatype: &'static Type,
    pub at: i64,
    pub count: usize,
}

impl Place {
    /// The pieces of the packed bytes `offset..offset + bytes`, at most `pieces_max`; gives the bytes that they cover.
    fn pieces(&self, offset: usize, bytes: usize, pieces_max: usize, out: &mut Vec<(*mut u8, usize)>) -> usize {
        self.datatype.pieces(std::ptr::without_provenance_mut(self.at as usize), self.count, offset, bytes, pieces_max, out)
    }

    /// The runs of the packed bytes `offset..offset + bytes`, of at most `runs_max` pieces; gives the bytes that they cover too.
    pub fn runs(&self, offset: usize, bytes: usize, runs_max: usize) -> (Runs, usize) {
        let mut runs = Runs::new();
        if self.datatype.contiguous() {
            push(&mut runs, self.at.wrapping_add(offset as i64), bytes as u64);
            return (runs, bytes);
        }
        let mut pieces = Vec::new();
        let covered = self.pieces(offset, bytes, runs_max, &mut pieces);
        for (start, length) in pieces {
            push(&mut runs, start.addr() as i64, length as u64);
        }
        (runs, covered)
    }

    /// The same, of whole elements that have `element_bytes` bytes of data each: an item is an element, whose data may have gaps.
    pub fn elements(&self, offset: usize, bytes: usize, element_bytes: usize, runs_max: usize) -> (Runs, usize) {
        let mut runs = Runs::new();
        if self.datatype.contiguous() {
            let count = (bytes / element_bytes) as u64;
            runs.push(Run { at: self.at.wrapping_add(offset as i64), bytes: element_bytes as u64, stride: element_bytes as i64, count });
            return (runs, bytes);
        }
        let mut pieces = Vec::new();
        let covered = self.pieces(offset, bytes, runs_max, &mut pieces);
        let whole = covered - covered % element_bytes;
        // Bytes of the present element that are still to come.
        let (mut missing, mut left) = (0, whole);
        for (start, length) in pieces {
            let (mut at, mut length) = (start.addr() as i64, length.min(left));
            left -= length;
            let rest = missing.min(length);
            (at, length, missing) = (at.wrapping_add(rest as i64), length - rest, missing - rest);
            if length >= element_bytes {
                let count = length / element_bytes;
                let run = Run { at, bytes: element_bytes as u64, stride: element_bytes as i64, count: count as u64 };
                match count {
                    1 => push(&mut runs, at, element_bytes as u64),
                    _ => runs.push(run),
                }
                (at, length) = (at.wrapping_add((count * element_bytes) as i64), length - count * element_bytes);
            }
            if length > 0 {
                push(&mut runs, at, element_bytes as u64);
                missing = element_bytes - length;
            }
        }
        (runs, whole)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::consts::*;
    use crate::datatype;

    fn run(at: i64, bytes: u64, stride: i64, count: u64) -> Run {
        Run { at, bytes, stride, count }
    }

    #[test]
    fn a_vector_is_one_run() {
        let vector = datatype::vector(datatype::Form::Small, 4, 1, 3, MPI_INT).unwrap();
        datatype::commit(vector).unwrap();
        let place = Place { datatype: datatype::lookup(vector).unwrap(), at: 8, count: 1 };
        assert_eq!(place.runs(0, 16, usize::MAX), (Runs::from_slice(&[run(8, 4, 12, 4)]), 16));
        assert_eq!(place.elements(4, 12, 4, usize::MAX), (Runs::from_slice(&[run(20, 4, 12, 3)]), 12));
        assert_eq!(place.elements(0, 16, 4, 2).1, 8);
        assert_eq!(run(8, 4, 12, 4).span(4), Some((8, 48)));
        assert_eq!(run(8, 4, -12, 4).span(4), Some((-28, 12)));
        assert_eq!(run(8, 4, i64::MAX, 4).span(4), None);
    }

    #[test]
    fn elements_with_gaps_are_told_by_their_first_bytes() {
        let pairs = Place { datatype: datatype::lookup(MPI_SHORT_INT).unwrap(), at: 0, count: 3 };
        assert_eq!(pairs.elements(0, 18, 6, usize::MAX), (Runs::from_slice(&[run(0, 6, 8, 3)]), 18));
        assert_eq!(pairs.elements(6, 12, 6, usize::MAX), (Runs::from_slice(&[run(8, 6, 8, 2)]), 12));
    }
}
