//! Changing the elements of a window (MPI-5.0 §12.3.4, §12.7.1).
//!
//! One rule decides how an element is changed, wherever it is done: of 1, 2, 4 or 8 bytes where it is aligned, and no pair or complex number, by the
//! processor's own atomic instructions; any other while the target's elements are locked.

use super::runs::Run;
use crate::op::{self, Basic, Class, Predefined};
use std::sync::atomic::{AtomicU8, AtomicU16, AtomicU32, AtomicU64, Ordering};

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

/// Whether the elements of a run at `base` are changed by atomic instructions.
pub fn is_atomic(kind: Basic, base: *mut u8, run: &Run) -> bool {
    let bytes = kind.bytes();
    let fits = matches!(bytes, 1 | 2 | 4 | 8) && !matches!(kind.class(), Class::Pair | Class::Complex);
    fits && base.wrapping_add(run.at as usize).addr().is_multiple_of(bytes) && (run.count == 1 || run.stride.unsigned_abs().is_multiple_of(bytes as u64))
}

macro_rules! atomically {
    ($at:expr, $change:expr, $kind:expr, $origin:expr, $atomic:ty, $number:ty) => {{
        const BYTES: usize = size_of::<$number>();
        // SAFETY: the caller's promise, and the element is aligned.
        let cell = unsafe { &*$at.cast::<$atomic>() };
        let given = |at: usize| <$number>::from_ne_bytes($origin[at..at + BYTES].try_into().expect("the bytes of an element"));
        let whole = matches!($kind.class(), Class::CInteger | Class::FortranInteger | Class::MultiLanguage);
        let old = match $change {
            Change::CompareAndSwap => {
                let (compare, new) = (given(0), given(BYTES));
                match cell.compare_exchange(compare, new, Ordering::AcqRel, Ordering::Acquire) {
                    Ok(old) | Err(old) => old,
                }
            }
            Change::Operation(Predefined::NoOp) => cell.load(Ordering::Acquire),
            Change::Operation(Predefined::Replace) => cell.swap(given(0), Ordering::AcqRel),
            Change::Operation(Predefined::Sum) if whole => cell.fetch_add(given(0), Ordering::AcqRel),
            Change::Operation(Predefined::Band) => cell.fetch_and(given(0), Ordering::AcqRel),
            Change::Operation(Predefined::Bor) => cell.fetch_or(given(0), Ordering::AcqRel),
            Change::Operation(Predefined::Bxor) => cell.fetch_xor(given(0), Ordering::AcqRel),
            Change::Operation(op) => {
                let mut old = cell.load(Ordering::Acquire);
                loop {
                    let mut new = old.to_ne_bytes();
                    op::apply(op, $kind, &$origin[..BYTES], &mut new).expect("allowed operations alone come here");
                    match cell.compare_exchange_weak(old, <$number>::from_ne_bytes(new), Ordering::AcqRel, Ordering::Acquire) {
                        Ok(_) => break old,
                        Err(found) => old = found,
                    }
                }
            }
        };
        old.to_ne_bytes()
    }};
}

/// Changes one element by atomic instructions; writes what was there to `old` if that has room.
///
/// # Safety
/// The element at `at` must be mapped and aligned, and of 1, 2, 4 or 8 bytes.
unsafe fn atomic(at: *mut u8, change: Change, kind: Basic, origin: &[u8], old: &mut [u8]) {
    let mut found = [0u8; 8];
    match kind.bytes() {
        1 => found[..1].copy_from_slice(&atomically!(at, change, kind, origin, AtomicU8, u8)),
        2 => found[..2].copy_from_slice(&atomically!(at, change, kind, origin, AtomicU16, u16)),
        4 => found[..4].copy_from_slice(&atomically!(at, change, kind, origin, AtomicU32, u32)),
        _ => found[..8].copy_from_slice(&atomically!(at, change, kind, origin, AtomicU64, u64)),
    }
    let bytes = old.len();
    old.copy_from_slice(&found[..bytes]);
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

/// Changes one element that nobody else changes meanwhile.
///
/// # Safety
/// The element must be mapped.
unsafe fn alone(at: *mut u8, change: Change, kind: Basic, origin: &[u8], old: &mut [u8]) {
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

/// Who else may change the elements of a window meanwhile.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Others {
    /// Anybody, but those that are not [atomic](is_atomic).
    Some,
    None,
}

/// Changes `items`, elements without gaps that follow each other and that nobody else changes meanwhile.
fn alone_at_once(items: &mut [u8], op: Predefined, kind: Basic, origin: &[u8], old: &mut [u8]) {
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
/// All elements must be mapped, and `others` must be true.
pub unsafe fn change(base: *mut u8, runs: &[Run], change: Change, kind: Basic, others: Others, origin: &[u8], old: &mut [u8]) {
    let (bytes, step) = (kind.size_bytes(), change.origin_bytes(kind.size_bytes()));
    let (mut origin, mut old) = (origin, old);
    for run in runs {
        if let (Others::None, Change::Operation(op), None) = (others, change, parts(kind))
            && run.stride == bytes as i64
        {
            let whole = run.count as usize * bytes;
            let (given, later) = origin.split_at(run.count as usize * step);
            let wanted = whole.min(old.len());
            let (found, rest) = std::mem::take(&mut old).split_at_mut(wanted);
            // SAFETY: the caller's promise; the elements follow each other.
            let items = unsafe { std::slice::from_raw_parts_mut(base.wrapping_offset(run.at as isize), whole) };
            alone_at_once(items, op, kind, given, found);
            (origin, old) = (later, rest);
            continue;
        }
        let directly = others == Others::Some && is_atomic(kind, base, run);
        for item in 0..run.count as usize {
            let at = base.wrapping_offset(run.at as isize).wrapping_offset((run.stride as isize).wrapping_mul(item as isize));
            let (given, later) = origin.split_at(step);
            let taken = bytes.min(old.len());
            let (found, rest) = std::mem::take(&mut old).split_at_mut(taken);
            // SAFETY: the caller's promise, and what is done directly is aligned.
            unsafe {
                match directly {
                    true => atomic(at, change, kind, given, found),
                    false => alone(at, change, kind, given, found),
                }
            }
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
    fn the_same_numbers_come_of_atomic_and_locked_elements() {
        for (offset, others) in [(0, Others::Some), (1, Others::Some), (0, Others::None), (1, Others::None)] {
            let mut words = [0u64; 4];
            let base = words.as_mut_ptr().cast::<u8>();
            let runs = [run(offset, Basic::Float64, 2)];
            assert_eq!(is_atomic(Basic::Float64, base, &runs[0]), offset == 0);
            let mut old = [0u8; 16];
            let ones: Vec<u8> = [1.5f64, 2.0].iter().flat_map(|x| x.to_ne_bytes()).collect();
            for _ in 0..2 {
                // SAFETY: 17 of 32 bytes.
                unsafe { change(base, &runs, Change::Operation(Predefined::Sum), Basic::Float64, others, &ones, &mut old) };
            }
            assert_eq!(old, ones[..]);
            // SAFETY: as above.
            unsafe { change(base, &runs, Change::Operation(Predefined::NoOp), Basic::Float64, others, &[], &mut old) };
            assert_eq!(old[..8], 3.0f64.to_ne_bytes());
            let swap: Vec<u8> = [4.0f64, 9.0].iter().flat_map(|x| x.to_ne_bytes()).collect();
            // SAFETY: as above. The second element is 4.
            unsafe { change(base, &[run(offset + 8, Basic::Float64, 1)], Change::CompareAndSwap, Basic::Float64, others, &swap, &mut old[..8]) };
            // SAFETY: as above.
            unsafe { change(base, &runs, Change::Operation(Predefined::NoOp), Basic::Float64, others, &[], &mut old) };
            assert_eq!(old[8..], 9.0f64.to_ne_bytes());
        }
    }

    #[test]
    fn gaps_of_pairs_stay_as_they_are() {
        let mut bytes = [0xa5u8; 16];
        let pair = |value: i16, index: i32| [&value.to_ne_bytes()[..], &index.to_ne_bytes()[..]].concat();
        let origin = [pair(7, 1), pair(3, 2)].concat();
        let runs = [run(0, Basic::ShortInt, 2)];
        // SAFETY: 16 bytes.
        unsafe { change(bytes.as_mut_ptr(), &runs, Change::Operation(Predefined::Replace), Basic::ShortInt, Others::Some, &origin, &mut []) };
        assert_eq!((bytes[2..4] == [0xa5; 2], bytes[10..12] == [0xa5; 2]), (true, true));
        let mut old = [0u8; 12];
        let other = [pair(7, 0), pair(9, 9)].concat();
        // SAFETY: as above.
        unsafe { change(bytes.as_mut_ptr(), &runs, Change::Operation(Predefined::Maxloc), Basic::ShortInt, Others::None, &other, &mut old) };
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
