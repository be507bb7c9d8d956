//! Constants of the MPI-5.0 standard ABI, under their C names; generated from `abi/constants.tsv`.
//!
//! `int` constants are `i32`; handles are the newtypes of [`crate::handle`]; lengths (`MPI_MAX_*`) and address
//! constants (`MPI_IN_PLACE`, `MPI_COMM_DUP_FN`, …) are `usize`.

use crate::handle::*;

include!(concat!(env!("OUT_DIR"), "/consts.rs"));

/// Handle values up to this one are the standard's, for predefined objects.
pub const LAST_PREDEFINED_HANDLE: usize = 0x3ff;

/// Addresses below this one are never mapped, so that a handle given out by the library is at least this large.
pub const FIRST_FREE_HANDLE: usize = 0x1000;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn error_classes_are_complete_and_ascending() {
        assert_eq!(ERROR_CLASSES[0], (MPI_SUCCESS, "MPI_SUCCESS"));
        assert!(ERROR_CLASSES.is_sorted_by(|a, b| a.0 < b.0));
        assert!(ERROR_CLASSES.contains(&(MPI_ERR_ABI, "MPI_ERR_ABI")));
        assert!(ERROR_CLASSES.iter().all(|(value, _)| *value < MPI_ERR_LASTCODE));
    }

    #[test]
    fn predefined_handles_are_small() {
        assert!(DATATYPE_NAMES.iter().all(|(handle, _)| handle.0 <= LAST_PREDEFINED_HANDLE));
        assert_eq!(DATATYPE_NAMES.iter().find(|(handle, _)| *handle == MPI_INT).unwrap().1, "MPI_INT");
    }
}
