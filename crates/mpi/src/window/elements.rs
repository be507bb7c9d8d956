//! Changing the elements of a window (MPI-5.0 §12.3.4, §12.7.1).
//!
//! Whoever changes elements is the only one who does so meanwhile: it has locked the elements of the target ([`super::lock`]), or the target's part, or is the
//! target of a window whose elements no other process changes. So elements that follow each other are changed at once, as in a reduction.

use super::runs::Run;
use crate::op::{self, Basic, Predefined};

/// Bytes of the longest element, gaps included.
pub const ELEMENT_BYTES_MAX: usize = 32;

/// What is done with elements.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Change {
    /// `target = target op origin`; gives what was there.
    Operation(Predefined),
    /// The origin's data is what to compare with, then what to store where that is there.
    CompareAndSwap,
}

impl Change {
    /// Bytes of the origin's data for an element of `bytes`.
    pub fn origin_bytes(self, bytes: usize) -> usize {
        match self {
            Change::Operation(Predefined::NoOp) => 0,
            Change::Operation(_) => bytes,
            Change::CompareAndSwap => 2 * bytes,
        }
    }

    pub fn to_word(self) -> u64 {
        match self {
            Change::Operation(op) => op.handle() as u64,
            Change::CompareAndSwap => u16::MAX as u64,
        }
    }

    pub fn from_word(word: u64) -> Option<Change> {
        if word == u16::MAX as u64 { Some(Change::CompareAndSwap) } else { Predefined::of(word as usize).map(Change::Operation) }
    }
}

/// Bytes of the value of a pair, place and bytes of its index; of other elements `None`.
fn parts(kind: Basic) -> Option<(usize, usize, usize)> {
    Some(match kind {
        Basic::FloatInt | Basic::IntInt | Basic::FloatFloat => (4, 4, 4),
        Basic::DoubleInt | Basic::LongInt => (8, 8, 4),
        Basic::ShortInt => (2, 4, 4),
        Basic::Float80Int | Basic::Float128Int => (16, 16, 4),
        Basic::DoubleDouble => (8, 8, 8),
        _ => return None,
    })
}

/// Bytes from the first byte of an element's data to behind its last.
pub fn reach_bytes(kind: Basic) -> usize {
    parts(kind).map_or(kind.bytes(), |(_, place, bytes)| place + bytes)
}

/// Copies the data of an element, without its gaps.
///
/// # Safety
/// The element must be mapped, and `data` have as many bytes as its data.
unsafe fn load(at: *const u8, kind: Basic, data: &mut [u8]) {
    match parts(kind) {
        None => std::ptr::copy_nonoverlapping(at, data.as_mut_ptr(), data.len()),
        Some((value, place, index)) => {
            std::ptr::copy_nonoverlapping(at, data.as_mut_ptr(), value);
            std::ptr::copy_nonoverlapping(at.add(place), data[value..].as_mut_ptr(), index);
        }
    }
}

/// The other way round.
///
/// # Safety
/// As [`load`].
unsafe fn store(at: *mut u8, kind: Basic, data: &[u8]) {
    match parts(kind) {
        None => std::ptr::copy_nonoverlapping(data.as_ptr(), at, data.len()),
        Some((value, place, index)) => {
            std::ptr::copy_nonoverlapping(data.as_ptr(), at, value);
            std::ptr::copy_nonoverlapping(data[value..].as_ptr(), at.add(place), index);
        }
    }
}

/// Changes one element that nobody else changes meanwhile; writes what was there to `old` if that has room.
///
/// # Safety
/// The element must be mapped.
pub unsafe fn alone(at: *mut u8, change: Change, kind: Basic, origin: &[u8], old: &mut [u8]) {
    let bytes = kind.size_bytes();
    let (mut room, mut room_new) = ([0u8; ELEMENT_BYTES_MAX], [0u8; ELEMENT_BYTES_MAX]);
    let (found, new) = (&mut room[..bytes], &mut room_new[..bytes]);
    load(at, kind, found);
    match change {
        Change::CompareAndSwap => {
            if *found == origin[..bytes] {
                store(at, kind, &origin[bytes..2 * bytes]);
            }
        }
        Change::Operation(Predefined::NoOp) => {}
        Change::Operation(Predefined::Replace) => store(at, kind, &origin[..bytes]),
        Change::Operation(op) => {
            new.copy_from_slice(found);
            op::apply_packed(op, kind, &origin[..bytes], new).expect("allowed operations alone come here");
            store(at, kind, new);
        }
    }
    let wanted = old.len();
    old.copy_from_slice(&found[..wanted]);
}

/// The commonest operations on one element of 8 bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum OfWord {
    SumOfIntegers,
    SumOfDoubles,
    Replace,
}

impl OfWord {
    /// `None` for others.
    #[inline(always)]
    pub fn find(op: Predefined, kind: Basic) -> Option<OfWord> {
        Some(match (op, kind) {
            (Predefined::Sum, Basic::Int64 | Basic::Uint64 | Basic::Integer8 | Basic::Address) => OfWord::SumOfIntegers,
            (Predefined::Sum, Basic::Float64) => OfWord::SumOfDoubles,
            (Predefined::Replace, _) if kind.bytes() == 8 => OfWord::Replace,
            _ => return None,
        })
    }

    /// What is there afterwards, as of [`op::apply`].
    #[inline(always)]
    pub fn after(self, given: u64, found: u64) -> u64 {
        match self {
            OfWord::SumOfIntegers => given.wrapping_add(found),
            OfWord::SumOfDoubles => (f64::from_bits(given) + f64::from_bits(found)).to_bits(),
            OfWord::Replace => given,
        }
    }
}

/// Changes elements without gaps that follow each other and that nobody else changes meanwhile; writes what was there to `old` if that has room.
///
/// # Safety
/// As many bytes as `origin` has, or `old` for `MPI_NO_OP`, must be mapped from `at` on.
pub unsafe fn at_once(at: *mut u8, op: Predefined, kind: Basic, origin: &[u8], old: &mut [u8]) {
    let items = std::slice::from_raw_parts_mut(at, origin.len().max(old.len()));
    let wanted = old.len();
    old.copy_from_slice(&items[..wanted]);
    if op != Predefined::NoOp {
        op::apply(op, kind, origin, items).expect("allowed operations alone come here");
    }
}

/// Changes the elements of `runs` in the window that begins at `base`, in order. `origin` has their data one after the other, `old` room for what was
/// there, or none.
///
/// # Safety
/// All elements must be mapped, and nobody else must change them meanwhile.
pub unsafe fn change(base: *mut u8, runs: &[Run], change: Change, kind: Basic, origin: &[u8], old: &mut [u8]) {
    let (bytes, step) = (kind.size_bytes(), change.origin_bytes(kind.size_bytes()));
    let (mut origin, mut old) = (origin, old);
    for run in runs {
        let start = base.wrapping_offset(run.at as isize);
        if let (Change::Operation(op), None) = (change, parts(kind))
            && run.stride == bytes as i64
        {
            let (given, later) = origin.split_at(run.count as usize * step);
            let wanted = (run.count as usize * bytes).min(old.len());
            let (found, rest) = std::mem::take(&mut old).split_at_mut(wanted);
            // SAFETY: the caller's promise; the elements follow each other.
            unsafe { at_once(start, op, kind, given, found) };
            (origin, old) = (later, rest);
            continue;
        }
        for item in 0..run.count as usize {
            let at = start.wrapping_offset((run.stride as isize).wrapping_mul(item as isize));
            let (given, later) = origin.split_at(step);
            let taken = bytes.min(old.len());
            let (found, rest) = std::mem::take(&mut old).split_at_mut(taken);
            // SAFETY: the caller's promise.
            unsafe { alone(at, change, kind, given, found) };
            (origin, old) = (later, rest);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(at: i64, kind: Basic, count: u64) -> Run {
        Run { at, bytes: kind.size_bytes() as u64, stride: kind.bytes() as i64, count }
    }

    #[test]
    fn the_same_numbers_come_of_elements_aligned_or_not_one_by_one_or_at_once() {
        for (offset, single) in [(0, true), (1, true), (0, false), (1, false)] {
            let mut words = [0u64; 4];
            let base = words.as_mut_ptr().cast::<u8>();
            let both = [run(offset, Basic::Float64, 2)];
            let each = [run(offset, Basic::Float64, 1), run(offset + 8, Basic::Float64, 1)];
            let runs = if single { &each[..] } else { &both[..] };
            let mut old = [0u8; 16];
            let ones: Vec<u8> = [1.5f64, 2.0].iter().flat_map(|x| x.to_ne_bytes()).collect();
            for _ in 0..2 {
                // SAFETY: 17 of 32 bytes.
                unsafe { change(base, runs, Change::Operation(Predefined::Sum), Basic::Float64, &ones, &mut old) };
            }
            assert_eq!(old, ones[..]);
            // SAFETY: as above.
            unsafe { change(base, runs, Change::Operation(Predefined::NoOp), Basic::Float64, &[], &mut old) };
            assert_eq!(old[..8], 3.0f64.to_ne_bytes());
            let swap: Vec<u8> = [4.0f64, 9.0].iter().flat_map(|x| x.to_ne_bytes()).collect();
            // SAFETY: as above. The second element is 4.
            unsafe { change(base, &[run(offset + 8, Basic::Float64, 1)], Change::CompareAndSwap, Basic::Float64, &swap, &mut old[..8]) };
            // SAFETY: as above.
            unsafe { change(base, runs, Change::Operation(Predefined::NoOp), Basic::Float64, &[], &mut old) };
            assert_eq!(old[8..], 9.0f64.to_ne_bytes());
        }
    }

    #[test]
    fn every_operation_gives_what_was_there_and_changes_as_a_reduction() {
        for kind in Basic::ALL.iter().copied().filter(|kind| parts(*kind).is_none()) {
            for op in Predefined::ALL.into_iter().filter(|op| op::allowed(*op, kind)) {
                for count in [1, 3] {
                    let bytes = count * kind.bytes();
                    let given: Vec<u8> = (0..bytes).map(|at| at as u8 % 3).collect();
                    let before: Vec<u8> = (0..bytes).map(|at| at as u8 % 5).collect();
                    let (mut expected, mut items, mut old) = (before.clone(), before.clone(), vec![9; bytes]);
                    op::apply(op, kind, &given, &mut expected).unwrap();
                    let origin = if op == Predefined::NoOp { &[][..] } else { &given[..] };
                    // SAFETY: all of `items`.
                    unsafe { at_once(items.as_mut_ptr(), op, kind, origin, &mut old) };
                    assert_eq!((&items, &old), (&expected, &before), "{op:?} {kind:?} {count}");
                    if let (Some(quick), 1) = (OfWord::find(op, kind), count) {
                        let [given, before] = [&given, &before].map(|bytes| u64::from_ne_bytes(bytes[..].try_into().unwrap()));
                        assert_eq!(quick.after(given, before).to_ne_bytes(), expected[..], "{op:?} {kind:?}");
                    }
                }
            }
        }
    }

    #[test]
    fn gaps_of_pairs_stay_as_they_are() {
        let mut bytes = [0xa5u8; 16];
        let pair = |value: i16, index: i32| [&value.to_ne_bytes()[..], &index.to_ne_bytes()[..]].concat();
        let origin = [pair(7, 1), pair(3, 2)].concat();
        let runs = [run(0, Basic::ShortInt, 2)];
        // SAFETY: 16 bytes.
        unsafe { change(bytes.as_mut_ptr(), &runs, Change::Operation(Predefined::Replace), Basic::ShortInt, &origin, &mut []) };
        assert_eq!((bytes[2..4] == [0xa5; 2], bytes[10..12] == [0xa5; 2]), (true, true));
        let mut old = [0u8; 12];
        let other = [pair(7, 0), pair(9, 9)].concat();
        // SAFETY: as above.
        unsafe { change(bytes.as_mut_ptr(), &runs, Change::Operation(Predefined::Maxloc), Basic::ShortInt, &other, &mut old) };
        assert_eq!(old, origin[..]);
        assert_eq!((&bytes[4..8], &bytes[12..16]), (&0i32.to_ne_bytes()[..], &9i32.to_ne_bytes()[..]));
        assert_eq!(reach_bytes(Basic::ShortInt), 8);
    }

    #[test]
    fn words_name_changes() {
        for op in Predefined::ALL {
            assert_eq!(Change::from_word(Change::Operation(op).to_word()), Some(Change::Operation(op)));
        }
        assert_eq!(Change::from_word(Change::CompareAndSwap.to_word()), Some(Change::CompareAndSwap));
        assert_eq!(Change::from_word(0), None);
    }
}
