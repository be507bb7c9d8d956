//! The data representation "external32" (MPI-5.0 §14.5.2): big endian, two's complement, IEEE 754, no padding.

use super::Type;
use super::layout::{Layout, Shape};
use crate::consts::*;
use crate::error::{Error, Result};
use crate::handle::Datatype;
use crate::op::Basic;
use rustc_apfloat::ieee::{Quad, X87DoubleExtended};
use rustc_apfloat::{Float, FloatConvert, Status};

/// How an element is written.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Coding {
    /// `parts` numbers of `bytes` each, turned around.
    Turned { parts: usize, bytes: usize },
    /// An integer that has fewer bytes outside.
    Narrowed { native: usize, external: usize, signed: bool },
    /// x87 extended precision, 16 bytes each, as binary128.
    Widened { parts: usize },
}

fn coding(handle: Datatype, kind: Basic) -> Coding {
    use Basic::*;
    match (handle, kind) {
        (MPI_LONG, _) => Coding::Narrowed { native: kind.bytes(), external: 4, signed: true },
        (MPI_UNSIGNED_LONG, _) => Coding::Narrowed { native: kind.bytes(), external: 4, signed: false },
        (MPI_WCHAR, _) => Coding::Narrowed { native: kind.bytes(), external: 2, signed: false },
        (_, ComplexFloat16 | ComplexFloat32 | ComplexFloat64 | ComplexFloat128) => Coding::Turned { parts: 2, bytes: kind.bytes() / 2 },
        (_, Float80) => Coding::Widened { parts: 1 },
        (_, ComplexFloat80) => Coding::Widened { parts: 2 },
        _ => Coding::Turned { parts: 1, bytes: kind.bytes() },
    }
}

impl Coding {
    fn bytes(self) -> usize {
        match self {
            Coding::Turned { parts, bytes } => parts * bytes,
            Coding::Narrowed { external, .. } => external,
            Coding::Widened { parts } => parts * 16,
        }
    }

    /// Bytes in memory.
    fn native_bytes(self) -> usize {
        match self {
            Coding::Narrowed { native, .. } => native,
            other => other.bytes(),
        }
    }
}

/// Bytes of a basic element in "external32".
pub(super) fn element_bytes(handle: Datatype, kind: Basic) -> usize {
    coding(handle, kind).bytes()
}

/// Bytes of `count` elements in "external32": `MPI_Pack_external_size`.
///
/// # Errors
/// `MPI_ERR_COUNT` past 63 bits.
pub fn size_external(datatype: &Type, count: usize) -> Result<usize> {
    let bytes = datatype.layout().external_bytes.checked_mul(count).filter(|&bytes| bytes <= isize::MAX as usize);
    bytes.ok_or_else(|| Error::new(MPI_ERR_COUNT, format!("count is {count}, whose bytes in external32 63 bits do not hold")))
}

/// Writes `count` elements at `start` to `out` in "external32".
///
/// # Errors
/// `MPI_ERR_CONVERSION` for a number that its external form does not hold; what is before it is written.
///
/// # Safety
/// The elements must be readable, and [`size_external`] bytes writable at `out`.
pub unsafe fn pack_external(datatype: &Type, start: *const u8, count: usize, out: *mut u8) -> Result<()> {
    let mut cursor = out;
    let mut write = |coding: Coding, at: *mut u8, count: usize| convert::<true>(coding, at, &mut cursor, count);
    visit_each(datatype.layout(), start.cast_mut(), count, &mut write)
}

/// Reads `count` elements from `input` in "external32" to `start`.
///
/// # Errors
/// `MPI_ERR_CONVERSION` for a number that its native form does not hold.
///
/// # Safety
/// The elements must be writable, and [`size_external`] bytes readable at `input`.
pub unsafe fn unpack_external(datatype: &Type, start: *mut u8, count: usize, input: *const u8) -> Result<()> {
    let mut cursor = input.cast_mut();
    let mut read = |coding: Coding, at: *mut u8, count: usize| convert::<false>(coding, at, &mut cursor, count);
    visit_each(datatype.layout(), start, count, &mut read)
}

/// As [`unpack_external`], for as many basic elements as `input` has whole, which may end within a datatype; gives the bytes that they have in memory.
///
/// # Errors
/// As [`unpack_external`].
///
/// # Safety
/// The elements must be writable.
pub unsafe fn unpack_external_part(datatype: &Type, start: *mut u8, count: usize, input: &[u8]) -> Result<usize> {
    let (mut cursor, mut left, mut native) = (input.as_ptr().cast_mut(), input.len(), 0);
    let mut read = |coding: Coding, at: *mut u8, count: usize| {
        let whole = count.min(left / coding.bytes());
        // Whatever follows an element that is not whole is not there.
        left = if whole < count { 0 } else { left - whole * coding.bytes() };
        native += whole * coding.native_bytes();
        convert::<false>(coding, at, &mut cursor, whole)
    };
    visit_each(datatype.layout(), start, count, &mut read)?;
    Ok(native)
}

type Visit<'a> = &'a mut dyn FnMut(Coding, *mut u8, usize) -> Result<()>;

/// Calls `visit` for the basic elements in order, as arrays of them.
fn visit_each(layout: &Layout, at: *mut u8, count: usize, visit: Visit) -> Result<()> {
    if layout.size == 0 {
        return Ok(());
    }
    if let (Shape::Basic(handle), Some(kind)) = (&layout.shape, layout.basic) {
        return visit(coding(*handle, kind), at, count);
    }
    for i in 0..count {
        let at = at.wrapping_offset(layout.extent().wrapping_mul(i as isize));
        match &layout.shape {
            Shape::Basic(_) => {}
            Shape::Same(displacement, child) => visit_each(child, at.wrapping_offset(*displacement), 1, visit)?,
            Shape::Strided { count, length, stride, child } => {
                for block in 0..*count {
                    visit_each(child, at.wrapping_offset(stride.wrapping_mul(block as isize)), *length, visit)?;
                }
            }
            Shape::Indexed(blocks, child) => {
                for block in blocks {
                    visit_each(child, at.wrapping_offset(block.displacement), block.length, visit)?;
                }
            }
            Shape::Struct(parts) => {
                for (block, child) in parts {
                    visit_each(child, at.wrapping_offset(block.displacement), block.length, visit)?;
                }
            }
        }
    }
    Ok(())
}

/// Converts `count` elements at `at` from (`PACK`) or to native form; the external side is at `cursor`, which moves on.
unsafe fn convert<const PACK: bool>(coding: Coding, at: *mut u8, cursor: &mut *mut u8, count: usize) -> Result<()> {
    let external = *cursor;
    *cursor = external.wrapping_add(coding.bytes() * count);
    match coding {
        Coding::Turned { parts, bytes } => {
            let (from, to) = if PACK { (at, external) } else { (external, at) };
            match bytes {
                1 => from.copy_to_nonoverlapping(to, parts * count),
                2 => turn::<2>(from, to, parts * count),
                4 => turn::<4>(from, to, parts * count),
                8 => turn::<8>(from, to, parts * count),
                16 => turn::<16>(from, to, parts * count),
                _ => unreachable!("numbers have a power of two of bytes"),
            }
        }
        Coding::Narrowed { native, external: width, signed } => {
            for i in 0..count {
                let (inside, outside) = (at.wrapping_add(i * native), external.wrapping_add(i * width));
                if PACK {
                    store_big(outside, width, narrow(load_native(inside, native, signed), width, signed)?);
                } else {
                    let bits = 8 * width as u32;
                    let mut value = load_big(outside, width);
                    if signed && value >> (bits - 1) & 1 == 1 {
                        value |= u64::MAX << bits;
                    }
                    inside.copy_from_nonoverlapping(value.to_le_bytes().as_ptr(), native);
                }
            }
        }
        Coding::Widened { parts } => {
            for i in 0..parts * count {
                let (inside, outside) = (at.wrapping_add(16 * i).cast::<u128>(), external.wrapping_add(16 * i).cast::<u128>());
                let mut loses = false;
                if PACK {
                    let value = X87DoubleExtended::from_bits(inside.read_unaligned() & ((1 << 80) - 1));
                    let wide: Quad = value.convert(&mut loses).value;
                    outside.write_unaligned(wide.to_bits().to_be());
                } else {
                    let value = Quad::from_bits(u128::from_be(outside.read_unaligned()));
                    let narrow = FloatConvert::<X87DoubleExtended>::convert(value, &mut loses);
                    if narrow.status.contains(Status::OVERFLOW) {
                        return Err(Error::new(MPI_ERR_CONVERSION, format!("the number {value} does not fit a long double")));
                    }
                    inside.write_unaligned(narrow.value.to_bits());
                }
            }
        }
    }
    Ok(())
}

unsafe fn turn<const BYTES: usize>(from: *const u8, to: *mut u8, count: usize) {
    for i in 0..count {
        let mut bytes = from.wrapping_add(i * BYTES).cast::<[u8; BYTES]>().read();
        bytes.reverse();
        to.wrapping_add(i * BYTES).cast::<[u8; BYTES]>().write(bytes);
    }
}

/// A little-endian integer of at most 8 bytes, its sign carried on.
unsafe fn load_native(at: *const u8, bytes: usize, signed: bool) -> u64 {
    let mut value = [0; 8];
    value.as_mut_ptr().copy_from_nonoverlapping(at, bytes);
    let unused = 64 - 8 * bytes as u32;
    let value = u64::from_le_bytes(value) << unused;
    if signed { (value as i64 >> unused) as u64 } else { value >> unused }
}

fn narrow(value: u64, bytes: usize, signed: bool) -> Result<u64> {
    let unused = 64 - 8 * bytes as u32;
    let back = if signed { ((value << unused) as i64 >> unused) as u64 } else { value << unused >> unused };
    if back == value {
        return Ok(value);
    }
    let text = if signed { (value as i64).to_string() } else { value.to_string() };
    Err(Error::new(MPI_ERR_CONVERSION, format!("the number {text} does not fit {bytes} bytes, which external32 has for its type")))
}

unsafe fn store_big(at: *mut u8, bytes: usize, value: u64) {
    at.copy_from_nonoverlapping(value.to_be_bytes().as_ptr().add(8 - bytes), bytes);
}

unsafe fn load_big(at: *const u8, bytes: usize) -> u64 {
    let mut value = [0; 8];
    value.as_mut_ptr().add(8 - bytes).copy_from_nonoverlapping(at, bytes);
    u64::from_be_bytes(value)
}
