//! Virtual topologies (MPI-5.0 chapter 8).

use crate::args::store;
use crate::finish_on;
use mpi::comm;
use mpi::consts::MPI_UNDEFINED;
use mpi::handle::Comm;
use std::ffi::c_int;

/// No function that attaches a topology is built, so there is none.
pub unsafe fn MPI_Topo_test(comm: Comm, status: *mut c_int) -> c_int {
    let kind = comm::find(comm).and_then(|_| store(status, "status", MPI_UNDEFINED));
    finish_on(comm, "MPI_Topo_test", kind)
}
