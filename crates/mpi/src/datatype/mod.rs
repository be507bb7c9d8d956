//! Datatypes (MPI-5.0 chapter 5).
//!
//! A [`Layout`] is what a datatype means, shared by all that is made of it; a [`Type`] is what a handle names: a layout with a
//! name, a committed state and attributes. A layout's [`Program`] moves the data.

mod array;
mod build;
mod copy;
mod external;
mod layout;
mod pack;
mod predefined;
mod program;
mod recipe;
#[cfg(test)]
mod tests;

pub use array::Grid;
pub use build::*;
pub use external::{pack_external, size_external, unpack_external, unpack_external_part};
pub use layout::{Layout, NESTING_MAX, SharedLayout};
pub use pack::{Packed, Representation};
pub use predefined::{Parameters, f90, match_size, name as predefined_name, value_index};
pub use program::Program;
pub use recipe::{Form, Recipe};

use crate::attributes::{self, Object};
use crate::consts::*;
use crate::error::{Error, Result};
use crate::handle::Datatype;
use crate::op::Basic;
use crate::table::Table;
use engine::Buffer;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicPtr, Ordering};

static TABLE: Table<Type> = Table::new();
/// Those of [`predefined::TYPES`] that calls have used: found without asking whether they have been made.
static PREDEFINED: [AtomicPtr<Type>; predefined::PLACES] = [const { AtomicPtr::new(std::ptr::null_mut()) }; predefined::PLACES];

/// What a handle names.
pub struct Type {
    size: usize,
    extent: isize,
    contiguous: bool,
    /// The data of one is a single piece.
    dense: bool,
    predefined: bool,
    committed: AtomicBool,
    basic: Option<Basic>,
    layout: SharedLayout,
    /// Set by the program; `None` for the name that it has from the start.
    name: Mutex<Option<Vec<u8>>>,
}

/// The datatype of a handle. It stays valid until the program frees the handle.
///
/// # Errors
/// `MPI_ERR_TYPE` for `MPI_DATATYPE_NULL` and handles that are not in use.
#[inline]
pub fn lookup(handle: Datatype) -> Result<&'static Type> {
    let found = match handle.0.wrapping_sub(predefined::FIRST) {
        // SAFETY: what is not null is one of `predefined::TYPES`, which stay.
        place if place < predefined::PLACES => unsafe { PREDEFINED[place].load(Ordering::Acquire).as_ref() },
        // SAFETY: a program that frees a datatype while another thread's call uses it is erroneous.
        _ => unsafe { TABLE.get(handle.0) },
    };
    match found {
        Some(found) => Ok(found),
        None => predefined_at_first(handle),
    }
}

/// Finds a predefined datatype that no call has used before.
#[cold]
#[inline(never)]
fn predefined_at_first(handle: Datatype) -> Result<&'static Type> {
    let place = handle.0.wrapping_sub(predefined::FIRST);
    let found = predefined::TYPES.get(place).and_then(Option::as_ref).ok_or_else(|| unknown(handle))?;
    PREDEFINED[place].store(std::ptr::from_ref(found).cast_mut(), Ordering::Release);
    Ok(found)
}

/// As [`lookup`], for communication: the datatype must be committed.
///
/// # Errors
/// `MPI_ERR_TYPE`.
#[inline]
pub fn committed(handle: Datatype) -> Result<&'static Type> {
    let found = lookup(handle)?;
    if found.committed() { Ok(found) } else { Err(uncommitted(handle)) }
}

impl Type {
    #[inline(always)]
    fn new(layout: SharedLayout, predefined: bool) -> Type {
        Type {
            size: layout.size,
            extent: layout.extent(),
            contiguous: layout.size == 0 || (layout.dense && layout.true_lb == 0 && layout.extent() as i128 == layout.size as i128),
            dense: layout.dense,
            predefined,
            committed: AtomicBool::new(predefined),
            basic: layout.basic,
            layout,
            name: Mutex::new(None),
        }
    }

    /// Bytes of data.
    #[inline]
    pub fn size(&self) -> usize {
        self.size
    }

    /// Bytes from one element to the next; may be negative.
    #[inline]
    pub fn extent(&self) -> isize {
        self.extent
    }

    /// Lower bound, bytes from an element's address.
    pub fn lb(&self) -> isize {
        self.layout.lb
    }

    /// Lower bound of the data alone.
    pub fn true_lb(&self) -> isize {
        self.layout.true_lb
    }

    /// Bytes that the data alone spans.
    pub fn true_extent(&self) -> isize {
        self.layout.true_ub - self.layout.true_lb
    }

    /// Whether any number of elements are one piece that starts at the buffer's address, in order.
    #[inline]
    pub fn contiguous(&self) -> bool {
        self.contiguous
    }

    #[inline]
    pub fn committed(&self) -> bool {
        self.committed.load(Ordering::Relaxed)
    }

    /// Whether it was there from the start or has Fortran parameters: it cannot be freed.
    #[inline]
    pub fn predefined(&self) -> bool {
        self.predefined
    }

    /// The predefined kind of its elements, also of a duplicate.
    #[inline]
    pub fn basic(&self) -> Option<Basic> {
        self.basic
    }

    pub fn layout(&self) -> &SharedLayout {
        &self.layout
    }

    /// Whole elements in `bytes` of data: `MPI_Get_count`. `None` where an element would be cut, or where there is data of a
    /// datatype without any.
    #[inline]
    pub fn count_in(&self, bytes: usize) -> Option<usize> {
        match self.size {
            0 => (bytes == 0).then_some(0),
            // Most are powers of two, and a division takes longer than all the rest of a call.
            size if size.is_power_of_two() => (bytes & (size - 1) == 0).then(|| bytes >> size.trailing_zeros()),
            size => bytes.is_multiple_of(size).then(|| bytes / size),
        }
    }

    /// Basic elements in `bytes` of data: `MPI_Get_elements`. `None` where one would be cut.
    pub fn elements(&self, bytes: usize) -> Option<usize> {
        self.layout.elements_in(bytes)
    }

    /// Bytes of the first `elements` basic elements of any number of it: `MPI_Status_set_elements`.
    ///
    /// # Errors
    /// `MPI_ERR_COUNT` past 63 bits.
    pub fn bytes_of(&self, elements: usize) -> Result<usize> {
        let bytes = self.layout.bytes_of(elements).filter(|&bytes| bytes <= isize::MAX as usize);
        bytes.ok_or_else(|| Error::new(MPI_ERR_COUNT, format!("count is {elements}, whose bytes 63 bits do not hold")))
    }

    /// Packed bytes of `count` elements.
    ///
    /// # Errors
    /// `MPI_ERR_COUNT` past 63 bits.
    #[inline]
    pub fn bytes(&self, count: usize) -> Result<usize> {
        match count.checked_mul(self.size) {
            Some(bytes) if bytes <= isize::MAX as usize => Ok(bytes),
            _ => Err(too_many(count, self.size)),
        }
    }

    /// The memory of `count` elements at `start`, for the engine.
    ///
    /// # Errors
    /// `MPI_ERR_COUNT` where the data has more bytes than 63 bits hold.
    ///
    /// # Safety
    /// The memory of the elements must stay valid, and for receives writable and otherwise unused, until the operation that
    /// the buffer is given to is complete.
    #[inline]
    pub unsafe fn buffer(&self, start: *mut u8, count: usize) -> Result<Buffer> {
        let bytes = self.bytes(count)?;
        if self.contiguous {
            // SAFETY: the caller's promise, and the elements are one piece.
            return Ok(unsafe { Buffer::contiguous(start, bytes) });
        }
        // SAFETY: the caller's promise.
        Ok(unsafe { self.scattered(start, count, bytes) })
    }

    #[cold]
    unsafe fn scattered(&self, start: *mut u8, count: usize, bytes: usize) -> Buffer {
        if bytes == 0 {
            // SAFETY: no byte is touched.
            return unsafe { Buffer::contiguous(start, 0) };
        }
        if self.dense && (count == 1 || self.extent as i128 == self.size as i128) {
            // SAFETY: the caller's promise; the data is one piece there.
            return unsafe { Buffer::contiguous(start.wrapping_offset(self.layout.true_lb), bytes) };
        }
        // SAFETY: the caller's promise, for all that the program touches.
        unsafe { Buffer::planned(start, count, bytes, self.layout.program().clone()) }
    }

    /// Appends address and length of the pieces of the packed bytes `offset..offset + bytes` of `count` elements at `start`, at most `pieces_max` of them;
    /// gives the bytes that they cover. No memory is touched.
    pub fn pieces(&self, start: *mut u8, count: usize, offset: usize, bytes: usize, pieces_max: usize, out: &mut Vec<(*mut u8, usize)>) -> usize {
        if bytes == 0 {
            return 0;
        }
        if self.contiguous {
            out.push((start.wrapping_add(offset), bytes));
            return bytes;
        }
        engine::Plan::io_vectors(&**self.layout.program(), start, count, offset, bytes, pieces_max, out)
    }

    /// The kind of all its basic elements, where they are of one kind (MPI-5.0 §12.3.4).
    pub fn element_kind(&self) -> Option<Basic> {
        self.layout.element_kind()
    }

    /// The name set by the program, or the predefined one, or none.
    pub fn name(&self) -> Vec<u8> {
        let set = self.name.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        let given = || self.layout.named.and_then(predefined::name).unwrap_or_default().as_bytes().to_vec();
        set.clone().unwrap_or_else(given)
    }

    /// At most `MPI_MAX_OBJECT_NAME - 1` bytes are kept.
    pub fn set_name(&self, name: &[u8]) {
        let name = &name[..name.len().min(MPI_MAX_OBJECT_NAME - 1)];
        *self.name.lock().unwrap_or_else(|poisoned| poisoned.into_inner()) = Some(name.to_vec());
    }
}

/// `MPI_Type_commit`. The program that moves the data is made where it is first needed: many datatypes only serve to make others.
///
/// # Errors
/// `MPI_ERR_TYPE`.
pub fn commit(handle: Datatype) -> Result<()> {
    let datatype = lookup(handle)?;
    datatype.committed.store(true, Ordering::Relaxed);
    Ok(())
}

/// `MPI_Type_free`. Pending operations and datatypes made of it keep what they need.
///
/// # Errors
/// `MPI_ERR_TYPE` for handles not in use and predefined datatypes; what deleting an attribute gives.
pub fn free(handle: Datatype) -> Result<()> {
    if lookup(handle)?.predefined {
        return Err(Error::new(MPI_ERR_TYPE, format!("datatype is {}, which is predefined", describe(handle))));
    }
    attributes::delete_all(Object::Type(handle))?;
    TABLE.end(handle.0, |_| Some(())).ok_or_else(|| unknown(handle))
}

/// Datatypes made by the program and not freed.
pub fn handles() -> Vec<Datatype> {
    TABLE.handles().into_iter().map(Datatype).collect()
}

/// Gives a datatype its handle.
#[inline]
fn insert(layout: SharedLayout, predefined: bool) -> Result<Datatype> {
    TABLE.insert_made(|| Type::new(layout, predefined)).map(Datatype).ok_or_else(|| Error::new(MPI_ERR_OTHER, "too many datatypes exist"))
}

fn describe(handle: Datatype) -> String {
    predefined::name(handle).map_or_else(|| format!("{:#x}", handle.0), str::to_owned)
}

#[cold]
fn unknown(handle: Datatype) -> Box<Error> {
    match handle {
        MPI_DATATYPE_NULL => Error::new(MPI_ERR_TYPE, "datatype is MPI_DATATYPE_NULL"),
        _ => Error::new(MPI_ERR_TYPE, format!("datatype is {:#x}, which is no datatype", handle.0)),
    }
}

#[cold]
fn uncommitted(handle: Datatype) -> Box<Error> {
    Error::new(MPI_ERR_TYPE, format!("datatype is {:#x}, which is not committed", handle.0))
}

#[cold]
fn too_many(count: usize, size: usize) -> Box<Error> {
    Error::new(MPI_ERR_COUNT, format!("count is {count}, with {size} bytes each: more bytes than 63 bits hold"))
}
