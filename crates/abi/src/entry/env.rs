//! Start and end of MPI (MPI-5.0 chapter 11), and what is known of the environment (chapter 9).

use crate::{fail, finish};
use mpi::attributes::{self, Object};
use mpi::consts::*;
use mpi::handle::*;
use mpi::world;
use std::ffi::{c_char, c_int};

pub unsafe fn MPI_Init(_argc: *mut c_int, _argv: *mut *mut *mut c_char) -> c_int {
    finish("MPI_Init", world::init(MPI_THREAD_SINGLE).map(|_| ()))
}

pub unsafe fn MPI_Init_thread(_argc: *mut c_int, _argv: *mut *mut *mut c_char, required: c_int, provided: *mut c_int) -> c_int {
    finish("MPI_Init_thread", world::init(required).map(|level| *provided = level))
}

pub unsafe fn MPI_Finalize() -> c_int {
    // Attributes of MPI_COMM_SELF go first: their callbacks may still communicate (MPI-5.0 §11.2.4).
    let finalized = world::get().and_then(|_| {
        if !world::finalized() {
            attributes::delete_all(Object::Comm(MPI_COMM_SELF))?;
        }
        world::finalize()
    });
    finish("MPI_Finalize", finalized)
}

pub unsafe fn MPI_Initialized(flag: *mut c_int) -> c_int {
    *flag = world::initialized() as c_int;
    MPI_SUCCESS
}

pub unsafe fn MPI_Finalized(flag: *mut c_int) -> c_int {
    *flag = world::finalized() as c_int;
    MPI_SUCCESS
}

pub unsafe fn MPI_Query_thread(provided: *mut c_int) -> c_int {
    finish("MPI_Query_thread", world::get().map(|w| *provided = w.thread_level.load(std::sync::atomic::Ordering::Relaxed)))
}

pub unsafe fn MPI_Is_thread_main(flag: *mut c_int) -> c_int {
    finish("MPI_Is_thread_main", world::get().map(|w| *flag = w.is_main_thread() as c_int))
}

pub unsafe fn MPI_Abort(comm: Comm, errorcode: c_int) -> c_int {
    let _ = comm;
    world::abort(errorcode, &format!("rank {} called MPI_Abort with code {errorcode}", world::me()))
}

pub unsafe fn MPI_Get_processor_name(name: *mut c_char, resultlen: *mut c_int) -> c_int {
    match world::processor_name() {
        Ok(bytes) => {
            std::ptr::copy_nonoverlapping(bytes.as_ptr().cast(), name, bytes.len());
            *name.add(bytes.len()) = 0;
            *resultlen = bytes.len() as c_int;
            MPI_SUCCESS
        }
        Err(error) => fail("MPI_Get_processor_name", error),
    }
}
