//! What a C program sees: `MPI_*` and `PMPI_*` of the MPI-5.0 standard ABI, as `libmpi_abi.so.1`.
//!
//! The exported symbols are generated from `abi/functions.tsv`. Each calls what a file of `src/entry/` has for it, and raises
//! `MPI_ERR_UNSUPPORTED_OPERATION` where none has anything: `pub unsafe fn MPI_X(` is the function itself, `pub unsafe fn MPI_X<` it
//! and its forms with other widths of counts (`MPI_X_c`, `MPI_X_x`), `pub unsafe fn MPI_X_plan` the blocking, nonblocking and persistent
//! forms of a collective in all widths.
//! Entry points convert and check arguments; what they mean is the `mpi` crate's.

pub mod args;
pub mod entry;
mod fail;

pub use fail::{fail, fail_on, finish, finish_making, finish_on, unsupported, unsupported_tool};

/// The exported symbols.
#[allow(non_snake_case, clippy::missing_safety_doc, clippy::too_many_arguments, clippy::type_complexity)]
mod exports {
    use mpi::handle::*;
    use std::ffi::{c_char, c_int, c_void};

    include!(concat!(env!("OUT_DIR"), "/exports.rs"));
}
