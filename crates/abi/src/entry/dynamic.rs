//! Processes made while the program runs (MPI-5.0 §11.8).

use crate::args::store;
use crate::finish;
use mpi::consts::MPI_COMM_NULL;
use mpi::handle::Comm;
use std::ffi::c_int;

/// A process that the launcher started, not another process, has no parent.
pub unsafe fn MPI_Comm_get_parent(parent: *mut Comm) -> c_int {
    finish("MPI_Comm_get_parent", mpi::world::get().and_then(|_| store(parent, "parent", MPI_COMM_NULL)))
}
