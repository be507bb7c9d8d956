//! Addresses (MPI-5.0 §5.1.5) and memory (§9.2).

use std::ffi::{c_int, c_void};

/// `base + disp`, wrapping as C's pointer-sized integers do here.
pub unsafe fn MPI_Aint_add(base: isize, disp: isize) -> isize {
    base.wrapping_add(disp)
}

/// `addr1 - addr2`.
pub unsafe fn MPI_Aint_diff(addr1: isize, addr2: isize) -> isize {
    addr1.wrapping_sub(addr2)
}

/// The address of `location` as an integer; `MPI_BOTTOM` is 0.
pub unsafe fn MPI_Get_address(location: *const c_void, address: *mut isize) -> c_int {
    // SAFETY: the caller gives a valid place for the result (MPI-5.0 §5.1.5).
    unsafe { *address = location as isize };
    mpi::consts::MPI_SUCCESS
}
