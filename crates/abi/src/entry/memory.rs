//! Addresses (MPI-5.0 §5.1.5) and memory (§9.2).

use crate::args::store;
use crate::finish;
use mpi::allocation;
use mpi::consts::*;
use mpi::error::{Error, Result};
use mpi::handle::Info;
use mpi::info;
use std::ffi::{c_int, c_void};

/// Alignment of memory that the caller asks nothing about: a cache line.
const ALIGNMENT_BYTES: usize = 64;
/// Largest alignment that may be asked for by the info key `mpi_minimum_memory_alignment`.
const ALIGNMENT_BYTES_MAX: usize = 1 << 30;

/// `base + disp`, wrapping as pointer-sized integers do.
pub unsafe fn MPI_Aint_add(base: isize, disp: isize) -> isize {
    base.wrapping_add(disp)
}

/// `addr1 - addr2`, wrapping as pointer-sized integers do.
pub unsafe fn MPI_Aint_diff(addr1: isize, addr2: isize) -> isize {
    addr1.wrapping_sub(addr2)
}

/// The address of `location` as an integer; `MPI_BOTTOM` is 0.
pub unsafe fn MPI_Get_address(location: *const c_void, address: *mut isize) -> c_int {
    finish("MPI_Get_address", store(address, "address", location as isize))
}

/// `baseptr` is the address of a pointer of any type. Memory of no bytes has an address too.
pub unsafe fn MPI_Alloc_mem(size: isize, info: Info, baseptr: *mut c_void) -> c_int {
    let allocate = || -> Result<()> {
        let size_bytes = usize::try_from(size).map_err(|_| Error::new(MPI_ERR_ARG, format!("size is {size}")))?;
        let alignment_bytes = alignment_wanted(info)?;
        let mut memory = std::ptr::null_mut();
        if let Some(block) = allocation::allocate(size_bytes, alignment_bytes) {
            return store(baseptr.cast::<*mut c_void>(), "baseptr", block.cast()).inspect_err(|_| drop(allocation::free(block)));
        }
        // SAFETY: the alignment is a power of two and a multiple of a pointer's size.
        let status = unsafe { libc::posix_memalign(&mut memory, alignment_bytes, size_bytes.max(1)) };
        if status != 0 {
            return Err(Error::new(MPI_ERR_NO_MEM, format!("no memory of {size_bytes} bytes aligned to {alignment_bytes}")));
        }
        // SAFETY: `memory` came from posix_memalign and has no other owner when storing its address fails.
        store(baseptr.cast::<*mut c_void>(), "baseptr", memory).inspect_err(|_| unsafe { libc::free(memory) })
    };
    finish("MPI_Alloc_mem", allocate())
}

pub unsafe fn MPI_Free_mem(base: *mut c_void) -> c_int {
    let free = || -> Result<()> {
        if !allocation::free(base.cast())? {
            // SAFETY: the program gives what MPI_Alloc_mem gave it, or null.
            unsafe { libc::free(base) };
        }
        Ok(())
    };
    finish("MPI_Free_mem", free())
}

fn alignment_wanted(info: Info) -> Result<usize> {
    let hints = info::hints(info)?;
    let Some(text) = hints.value(b"mpi_minimum_memory_alignment")? else { return Ok(ALIGNMENT_BYTES) };
    let wanted = std::str::from_utf8(text).ok().and_then(|text| text.parse::<usize>().ok());
    match wanted.filter(|bytes| bytes.is_power_of_two() && *bytes <= ALIGNMENT_BYTES_MAX) {
        Some(bytes) => Ok(bytes.max(ALIGNMENT_BYTES)),
        None => {
            let text = String::from_utf8_lossy(text);
            Err(Error::new(MPI_ERR_INFO_VALUE, format!("mpi_minimum_memory_alignment is {text:?}, not a power of two up to {ALIGNMENT_BYTES_MAX}")))
        }
    }
}
