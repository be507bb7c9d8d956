//! What C holds of the library's objects: handle values, `MPI_Status` and callback types, generated from `abi/types.tsv`.

use std::ffi::{c_int, c_void};

include!(concat!(env!("OUT_DIR"), "/handles.rs"));

/// `MPI_Status` as the ABI lays it out, 32 bytes. `internal` is the library's: see [`crate::status`].
#[repr(C)]
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Status {
    /// Rank of the sender, `MPI_ANY_SOURCE` or `MPI_PROC_NULL`.
    pub source: c_int,
    /// Tag of the message or `MPI_ANY_TAG`.
    pub tag: c_int,
    /// Error code of this operation; calls that return one status leave it as it was.
    pub error: c_int,
    pub internal: [c_int; 5],
}

const _: () = assert!(size_of::<Status>() == 32 && align_of::<Status>() == 4);
