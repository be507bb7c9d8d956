//! Kinds of memory that a program may hand over (MPI-5.0 §12.4.3).
#![forbid(unsafe_code)]

use crate::consts::MPI_MAX_INFO_VAL;
use params::kinds;

/// Tells which kinds of memory a program may hand over (MPI-5.0 §12.4.3). Read only.
pub const MEMORY_KINDS: &str = "mpi_memory_alloc_kinds";

/// Kinds that are supported where `asked` was asked for.
pub fn memory_kinds(asked: &[u8]) -> String {
    kinds::supported(&String::from_utf8_lossy(asked), MPI_MAX_INFO_VAL)
}

/// The kinds of the World model, as the launcher was asked for.
pub fn memory_kinds_of_world() -> String {
    memory_kinds(params::MEMORY_ALLOC_KINDS.value().unwrap_or_default().as_bytes())
}
