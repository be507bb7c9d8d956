//! Conversions of C arguments, with the checks that a null pointer allows.

use mpi::checks;
use mpi::consts::{MPI_ERR_ARG, MPI_UNDEFINED};
use mpi::datatype::Form;
use mpi::error::{Error, Result};
use std::ffi::{CStr, c_char, c_int};

/// A count, size or displacement of the width that a function has it in: `int` or `MPI_Aint`, and `MPI_Count` in functions with large counts
/// (MPI-5.0 §2.5.8).
pub trait Number: Copy {
    /// Which of the two forms of a function has this width.
    const FORM: Form;
    fn wide(self) -> i64;
    /// `MPI_UNDEFINED` where this width does not hold `number`.
    fn or_undefined(number: i64) -> Self;
}

impl Number for c_int {
    const FORM: Form = Form::Small;
    #[inline(always)]
    fn wide(self) -> i64 {
        self.into()
    }
    fn or_undefined(number: i64) -> Self {
        number.try_into().unwrap_or(MPI_UNDEFINED)
    }
}

impl Number for isize {
    const FORM: Form = Form::Small;
    #[inline(always)]
    fn wide(self) -> i64 {
        self as i64
    }
    fn or_undefined(number: i64) -> Self {
        number as isize
    }
}

impl Number for i64 {
    const FORM: Form = Form::Large;
    #[inline(always)]
    fn wide(self) -> i64 {
        self
    }
    fn or_undefined(number: i64) -> Self {
        number
    }
}

/// The bytes of a C string without its end, or `class` when it is null.
///
/// # Safety
/// `text` is null or points to a string that ends, and lives for `'a`.
pub unsafe fn bytes<'a>(text: *const c_char, class: i32, name: &str) -> Result<&'a [u8]> {
    if text.is_null() && checks::on() {
        return Err(Error::new(class, format!("{name} is null")));
    }
    // SAFETY: not null, and the caller vouches for the rest.
    Ok(unsafe { CStr::from_ptr(text) }.to_bytes())
}

/// Stores a result.
///
/// # Errors
/// `MPI_ERR_ARG` when `place` is null.
///
/// # Safety
/// `place` is null or writable and aligned.
#[inline]
pub unsafe fn store<T>(place: *mut T, name: &str, value: T) -> Result<()> {
    if place.is_null() && checks::on() {
        return Err(null(name));
    }
    // SAFETY: not null, and the caller vouches for the rest.
    unsafe { place.write(value) };
    Ok(())
}

/// Checks that there is a place for a result, before work is begun whose result would otherwise be lost.
///
/// # Errors
/// `MPI_ERR_ARG` when `place` is null.
#[inline(always)]
pub fn room<T>(place: *const T, name: &str) -> Result<()> {
    if place.is_null() && checks::on() {
        return Err(null(name));
    }
    Ok(())
}

/// Reads an argument that is passed by address.
///
/// # Errors
/// `MPI_ERR_ARG` when `place` is null.
///
/// # Safety
/// `place` is null or readable, aligned and initialized.
#[inline]
pub unsafe fn load<T: Copy>(place: *const T, name: &str) -> Result<T> {
    if place.is_null() && checks::on() {
        return Err(null(name));
    }
    // SAFETY: not null, and the caller vouches for the rest.
    Ok(unsafe { place.read() })
}

/// Copies `text` and its end into a C buffer, cut to `capacity_bytes` with the end counted.
///
/// # Errors
/// `MPI_ERR_ARG` when `place` is null.
///
/// # Safety
/// `place` is null or has `capacity_bytes` (at least 1) writable bytes.
pub unsafe fn store_text(place: *mut c_char, name: &str, text: &[u8], capacity_bytes: usize) -> Result<()> {
    if place.is_null() && checks::on() {
        return Err(null(name));
    }
    let length = text.len().min(capacity_bytes - 1);
    // SAFETY: `length + 1` bytes fit; `text` is the library's own, so it does not overlap.
    unsafe {
        place.cast::<u8>().copy_from_nonoverlapping(text.as_ptr(), length);
        place.add(length).write(0);
    }
    Ok(())
}

/// An array argument, which may be null when it is empty.
///
/// # Errors
/// `MPI_ERR_ARG` when `array` is null and has a length.
///
/// # Safety
/// `array` is null or has `length` readable entries for `'a`.
pub unsafe fn slice<'a, T>(array: *const T, length: usize, name: &str) -> Result<&'a [T]> {
    if length == 0 {
        return Ok(&[]);
    }
    if array.is_null() {
        return Err(null(name));
    }
    // SAFETY: not null, and the caller vouches for the rest.
    Ok(unsafe { std::slice::from_raw_parts(array, length) })
}

/// As [`slice`], of numbers of any width. `L`: a list that holds them.
///
/// # Errors
/// As [`slice`].
///
/// # Safety
/// As [`slice`].
pub unsafe fn numbers<N: Number, L: Default + Extend<i64>>(array: *const N, length: usize, name: &str) -> Result<L> {
    let mut list = L::default();
    // SAFETY: the caller vouches for it.
    unsafe { numbers_into(&mut list, array, length, name) }?;
    Ok(list)
}

/// As [`numbers`], appended to a list: what holds some without memory of its own is large, and moving two of them costs a short structure a twentieth of its
/// time.
///
/// # Errors
/// As [`slice`].
///
/// # Safety
/// As [`slice`].
#[inline(always)]
pub unsafe fn numbers_into<N: Number>(list: &mut impl Extend<i64>, array: *const N, length: usize, name: &str) -> Result<()> {
    // SAFETY: the caller vouches for it.
    list.extend(unsafe { slice(array, length, name) }?.iter().map(|number| number.wide()));
    Ok(())
}

#[cold]
fn null(name: &str) -> Box<Error> {
    Error::new(MPI_ERR_ARG, format!("{name} is null"))
}
