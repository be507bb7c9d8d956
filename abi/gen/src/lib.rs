//! Reads the tables of the MPI-5.0 standard ABI (`abi/*.tsv`) and writes what is generated from them: `include/mpi.h`,
//! the Rust handles and constants of the `mpi` crate, the exported symbols of the `abi` crate and `docs/status.md`.
#![forbid(unsafe_code)]

pub mod ctype;
pub mod exports;
pub mod header;
pub mod rust;
pub mod status;
pub mod tables;

pub use tables::Tables;
