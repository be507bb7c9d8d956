//! Versions and hardware (MPI-5.0 §9.1, chapter 20) and profiling control (§15.2.4). All may be called at any time, from any
//! thread.

use crate::args::{store, store_text};
use crate::finish;
use mpi::consts::*;
use mpi::error::Result;
use mpi::handle::Info;
use mpi::{hardware, info};
use std::ffi::{c_char, c_int};

pub unsafe fn MPI_Get_version(version: *mut c_int, subversion: *mut c_int) -> c_int {
    let stored = store(version, "version", MPI_VERSION).and_then(|()| store(subversion, "subversion", MPI_SUBVERSION));
    finish("MPI_Get_version", stored)
}

pub unsafe fn MPI_Abi_get_version(abi_major: *mut c_int, abi_minor: *mut c_int) -> c_int {
    let stored = store(abi_major, "abi_major", MPI_ABI_VERSION).and_then(|()| store(abi_minor, "abi_minor", MPI_ABI_SUBVERSION));
    finish("MPI_Abi_get_version", stored)
}

pub unsafe fn MPI_Get_library_version(version: *mut c_char, resultlen: *mut c_int) -> c_int {
    let text = format!("Whimbrel {} (MPI-{MPI_VERSION}.{MPI_SUBVERSION}, standard ABI {MPI_ABI_VERSION}.{MPI_ABI_SUBVERSION})", env!("CARGO_PKG_VERSION"));
    let describe = || -> Result<()> {
        store_text(version, "version", text.as_bytes(), MPI_MAX_LIBRARY_VERSION_STRING)?;
        store(resultlen, "resultlen", text.len() as c_int)
    };
    finish("MPI_Get_library_version", describe())
}

/// A new info object with the resource types as keys.
pub unsafe fn MPI_Get_hw_resource_info(hw_info: *mut Info) -> c_int {
    let described = hardware::resources().and_then(info::create);
    finish("MPI_Get_hw_resource_info", described.and_then(|new| store(hw_info, "hw_info", new)))
}

/// Profiling has no levels here: a tool library that intercepts the calls gives `level` its meaning.
pub unsafe fn MPI_Pcontrol(_level: c_int) -> c_int {
    MPI_SUCCESS
}
