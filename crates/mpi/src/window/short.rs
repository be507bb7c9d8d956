//! The short way of a call: data of one piece on both sides, to memory that this process loads from and stores into. It takes no lock but that of the
//! target's elements, allocates nothing and leaves nothing to wait for.
//!
//! Whatever is not as here goes the general way ([`super::target`]), which finds the same errors and says what is wrong: a function that gives `None` has
//! done nothing.

use super::Window;
use super::call::{Accumulate, Direction, PART_BYTES};
use super::elements::{self, Change};
use super::lock::Elements;
use super::memory::HERE;
use super::target::Remote;
use crate::collective::{Data, in_place};
use crate::datatype::{self, Type};
use crate::error::Result;
use crate::op::{self, Class, Predefined};
use std::sync::atomic::Ordering;

/// Datatype and bytes of `count` elements, which lie in one piece.
#[inline(always)]
pub(super) fn piece(count: i64, handle: crate::handle::Datatype) -> Option<(&'static Type, usize)> {
    let datatype = datatype::lookup(handle).ok()?;
    if !datatype.contiguous() || !datatype.committed() {
        return None;
    }
    Some((datatype, datatype.size().checked_mul(usize::try_from(count).ok()?)?))
}

#[inline(always)]
pub(super) fn is_address(data: &Data) -> bool {
    !data.start.is_null() && !in_place(data.start)
}

/// A piece of a rank's part, which lies in this process' memory and may be accessed now: state of the part, address.
#[inline(always)]
fn reach(window: &Window, remote: &Remote, bytes: usize) -> Option<(u32, *mut u8)> {
    let part = window.memory.part_of(remote.rank)?;
    let state = part.state.load(Ordering::Relaxed);
    // A negative displacement is one past the end.
    let offset = (remote.displacement as u64).checked_mul(part.unit.into())?;
    let inside = offset <= part.size.checked_sub(bytes as u64)?;
    if !inside || state & HERE == 0 || !window.epochs.may_access(state) {
        return None;
    }
    Some((state, (part.start as *mut u8).wrapping_add(offset as usize)))
}

/// A put or get: `Some` where it has been done.
#[inline(always)]
pub(super) fn transfer(window: &Window, direction: Direction, origin: &Data, remote: &Remote) -> Option<()> {
    let (_, bytes) = piece(remote.count, remote.datatype)?;
    let same = origin.datatype == remote.datatype && origin.count == remote.count;
    if !is_address(origin) || !(same || piece(origin.count, origin.datatype)?.1 == bytes) {
        return None;
    }
    let (_, there) = reach(window, remote, bytes)?;
    let here = origin.start.cast::<u8>();
    // SAFETY: the program's buffer, and a piece of the window that `reach` has found inside it; both may overlap.
    unsafe {
        match direction {
            Direction::Put => copy(here, there, bytes),
            Direction::Get => copy(there, here, bytes),
        }
    }
    if direction == Direction::Put {
        window.epochs.has_stored();
    }
    Some(())
}

/// # Safety
/// As `std::ptr::copy`.
#[inline(always)]
unsafe fn copy(from: *const u8, to: *mut u8, bytes: usize) {
    match bytes {
        8 => to.cast::<[u8; 8]>().write(from.cast::<[u8; 8]>().read()),
        4 => to.cast::<[u8; 4]>().write(from.cast::<[u8; 4]>().read()),
        _ => std::ptr::copy(from, to, bytes),
    }
}

/// The lock of the target's elements, unless nobody else may change them anyway.
#[inline(always)]
fn lock_elements<'a>(window: &'a Window, remote: &Remote, alone: bool) -> Result<Option<Elements<'a>>> {
    if alone { Ok(None) } else { window.lock_elements(remote.rank as u32).map(Some) }
}

/// Whether `data` are as many elements of the same datatype as the target's.
#[inline(always)]
pub(super) fn is_alike(data: &Data, remote: &Remote) -> bool {
    data.datatype == remote.datatype && data.count == remote.count && is_address(data)
}

/// The commonest accumulates of one element of 8 bytes.
#[inline(always)]
pub(super) fn one(window: &Window, call: &Accumulate, remote: &Remote) -> Option<Result<()>> {
    let (datatype, bytes) = piece(remote.count, remote.datatype)?;
    let (kind, op) = (datatype.basic()?, Predefined::of(call.op.0)?);
    if bytes != 8 || !window.elements_shared || !is_alike(&call.origin, remote) || call.result.as_ref().is_some_and(|result| !is_alike(result, remote)) {
        return None;
    }
    let quick = elements::OfWord::find(op, kind)?;
    let (state, there) = reach(window, remote, bytes)?;
    let locked = match lock_elements(window, remote, window.excludes_others(state)) {
        Ok(locked) => locked,
        Err(error) => return Some(Err(error)),
    };
    // SAFETY: an element of the program's buffers, and one of the window that nobody else changes.
    unsafe {
        let old = there.cast::<u64>().read_unaligned();
        there.cast::<u64>().write_unaligned(quick.after(call.origin.start.cast::<u64>().read_unaligned(), old));
        if let Some(result) = &call.result {
            result.start.cast::<u64>().write_unaligned(old);
        }
    }
    drop(locked);
    window.epochs.has_stored();
    Some(Ok(()))
}

/// An accumulate of elements without gaps of one predefined datatype, which all sides name.
pub(super) fn many(window: &Window, call: &Accumulate, remote: &Remote) -> Option<Result<()>> {
    let (datatype, bytes) = piece(remote.count, remote.datatype)?;
    let (kind, op) = (datatype.basic()?, Predefined::of(call.op.0)?);
    let changes = op != Predefined::NoOp;
    if !window.elements_shared || bytes == 0 || !op::allowed(op, kind) || (changes && !is_alike(&call.origin, remote)) || !(changes || call.result.is_some()) {
        return None;
    }
    if call.result.as_ref().is_some_and(|result| !is_alike(result, remote)) {
        return None;
    }
    let (state, there) = reach(window, remote, bytes)?;
    let (given, found) = (call.origin.start.cast_const().cast::<u8>(), call.result.map(|result| result.start.cast::<u8>()));
    let alone = window.excludes_others(state);
    let mut offset = 0;
    while offset < bytes {
        // As many bytes as 1, 2, 4, 8, 16 and 32 divide.
        let part = PART_BYTES.min(bytes - offset);
        let locked = match lock_elements(window, remote, alone) {
            Ok(locked) => locked,
            Err(error) => return Some(Err(error)),
        };
        // SAFETY: the program's buffers, which it leaves alone meanwhile and which do not overlap (MPI-5.0 §12.3.4), and a piece of the window that nobody else
        // changes.
        unsafe {
            let given = if changes { std::slice::from_raw_parts(given.add(offset), part) } else { &[] };
            let found = found.map_or(&mut [][..], |found| std::slice::from_raw_parts_mut(found.add(offset), part));
            elements::at_once(there.add(offset), op, kind, given, found);
        }
        drop(locked);
        offset += part;
    }
    window.epochs.has_stored();
    Some(Ok(()))
}

/// A compare and swap of an integer or a logical value.
#[inline(always)]
pub(super) fn compare_and_swap(window: &Window, origin: &Data, compare: &Data, result: &Data, remote: &Remote) -> Option<Result<()>> {
    let (datatype, bytes) = piece(1, remote.datatype)?;
    let kind = datatype.basic()?;
    let classes = matches!(kind.class(), Class::CInteger | Class::FortranInteger | Class::Logical | Class::MultiLanguage | Class::Byte);
    if !window.elements_shared || !classes || ![origin, compare, result].into_iter().all(is_address) {
        return None;
    }
    let (state, there) = reach(window, remote, bytes)?;
    let locked = match lock_elements(window, remote, window.excludes_others(state)) {
        Ok(locked) => locked,
        Err(error) => return Some(Err(error)),
    };
    let [origin, compare, result] = [origin, compare, result].map(|data| data.start.cast::<u8>());
    // SAFETY: an element each of the program's buffers, and one of the window that nobody else changes.
    unsafe {
        if bytes == 8 {
            let found = there.cast::<[u8; 8]>().read();
            if found == compare.cast::<[u8; 8]>().read() {
                there.cast::<[u8; 8]>().write(origin.cast::<[u8; 8]>().read());
            }
            result.cast::<[u8; 8]>().write(found);
        } else {
            let [mut both, mut found] = [[0; 2 * elements::ELEMENT_BYTES_MAX], [0; 2 * elements::ELEMENT_BYTES_MAX]];
            std::ptr::copy_nonoverlapping(compare, both.as_mut_ptr(), bytes);
            std::ptr::copy_nonoverlapping(origin, both.as_mut_ptr().add(bytes), bytes);
            elements::alone(there, Change::CompareAndSwap, kind, &both[..2 * bytes], &mut found[..bytes]);
            std::ptr::copy_nonoverlapping(found.as_ptr(), result, bytes);
        }
    }
    drop(locked);
    window.epochs.has_stored();
    Some(Ok(()))
}
