//! `MPI_Pack` and its relatives (MPI-5.0 §5.2, §5.3). Packed data has no header: it is the data.

use super::{Type, external};
use crate::consts::*;
use crate::error::{Error, Result};
use engine::Plan;

/// How packed data is written.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Representation {
    /// As in memory.
    Native,
    /// "external32".
    External,
}

impl Representation {
    /// Packed bytes of `count` elements.
    ///
    /// # Errors
    /// `MPI_ERR_COUNT` past 63 bits.
    pub fn bytes(self, datatype: &Type, count: usize) -> Result<usize> {
        match self {
            Representation::Native => datatype.bytes(count),
            Representation::External => external::size_external(datatype, count),
        }
    }
}

/// A buffer of packed data, and how far it has been used. Sizes in bytes.
#[derive(Clone, Copy, Debug)]
pub struct Packed {
    pub start: *mut u8,
    pub size: i64,
    pub position: i64,
    pub representation: Representation,
}

impl Packed {
    /// Appends `count` elements at `from`; gives the new position.
    ///
    /// # Errors
    /// `MPI_ERR_ARG` for a negative size and a position outside of the buffer, `MPI_ERR_TRUNCATE` where there is no room,
    /// `MPI_ERR_BUFFER` for a null pointer, `MPI_ERR_CONVERSION` for a number that "external32" cannot hold.
    ///
    /// # Safety
    /// The elements must be readable and `size` bytes writable at `start`.
    pub unsafe fn pack(&self, from: *const u8, count: usize, datatype: &Type) -> Result<i64> {
        let bytes = self.room("outbuf", count, datatype)?;
        if bytes > 0 {
            check(from, "inbuf", datatype)?;
            let out = self.start.wrapping_offset(self.position as isize);
            match self.representation {
                Representation::External => external::pack_external(datatype, from, count, out)?,
                Representation::Native if datatype.contiguous() => from.copy_to_nonoverlapping(out, bytes),
                Representation::Native => datatype.layout().program().pack(from, count, 0, out, bytes),
            }
        }
        Ok(self.position + bytes as i64)
    }

    /// Takes `count` elements out, to `to`; gives the new position.
    ///
    /// # Errors
    /// As [`Packed::pack`].
    ///
    /// # Safety
    /// The elements must be writable and `size` bytes readable at `start`.
    pub unsafe fn unpack(&self, to: *mut u8, count: usize, datatype: &Type) -> Result<i64> {
        let bytes = self.room("inbuf", count, datatype)?;
        if bytes > 0 {
            check(to, "outbuf", datatype)?;
            let from = self.start.wrapping_offset(self.position as isize);
            match self.representation {
                Representation::External => external::unpack_external(datatype, to, count, from)?,
                Representation::Native if datatype.contiguous() => from.copy_to_nonoverlapping(to, bytes),
                Representation::Native => datatype.layout().program().unpack(to, count, 0, from, bytes),
            }
        }
        Ok(self.position + bytes as i64)
    }

    /// The packed bytes of the elements, if the buffer has as many left.
    fn room(&self, name: &str, count: usize, datatype: &Type) -> Result<usize> {
        let (size, position) = (self.size, self.position);
        if size < 0 {
            return Err(Error::new(MPI_ERR_ARG, format!("the size of {name} is {size}, which is negative")));
        }
        if !(0..=size).contains(&position) {
            return Err(Error::new(MPI_ERR_ARG, format!("position is {position}, outside of the {size} bytes of {name}")));
        }
        let bytes = self.representation.bytes(datatype, count)?;
        if bytes as i64 > size - position {
            let text = format!("{bytes} bytes at position {position} do not fit the {size} bytes of {name}");
            return Err(Error::new(MPI_ERR_TRUNCATE, text));
        }
        if bytes > 0 && self.start.is_null() {
            return Err(Error::new(MPI_ERR_BUFFER, format!("{name} is null")));
        }
        Ok(bytes)
    }
}

/// A null pointer is `MPI_BOTTOM`, which only derived datatypes may have.
fn check(memory: *const u8, name: &str, datatype: &Type) -> Result<()> {
    if memory.is_null() && datatype.predefined() {
        return Err(Error::new(MPI_ERR_BUFFER, format!("{name} is null")));
    }
    Ok(())
}
