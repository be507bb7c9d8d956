//! Start and end of MPI (MPI-5.0 chapter 11), and what is known of the environment (chapter 9).

use crate::args::{room, store, store_text};
use crate::finish;
use mpi::attributes::{self, Object};
use mpi::consts::*;
use mpi::handle::*;
use mpi::world;
use std::ffi::{c_char, c_int};

pub unsafe fn MPI_Init(_argc: *mut c_int, _argv: *mut *mut *mut c_char) -> c_int {
    finish("MPI_Init", world::init(MPI_THREAD_SINGLE).map(|_| ()))
}

pub unsafe fn MPI_Init_thread(_argc: *mut c_int, _argv: *mut *mut *mut c_char, required: c_int, provided: *mut c_int) -> c_int {
    let started = room(provided, "provided").and_then(|()| world::init(required));
    finish("MPI_Init_thread", started.and_then(|level| store(provided, "provided", level)))
}

pub unsafe fn MPI_Finalize() -> c_int {
    // Attributes of MPI_COMM_SELF go first: their callbacks may still communicate (MPI-5.0 §11.2.4).
    let finalize = || {
        if world::initialized() && !world::finalized() {
            attributes::delete_all(Object::Comm(MPI_COMM_SELF))?;
        }
        world::finalize()
    };
    finish("MPI_Finalize", finalize())
}

pub unsafe fn MPI_Initialized(flag: *mut c_int) -> c_int {
    finish("MPI_Initialized", store(flag, "flag", world::initialized() as c_int))
}

pub unsafe fn MPI_Finalized(flag: *mut c_int) -> c_int {
    finish("MPI_Finalized", store(flag, "flag", world::finalized() as c_int))
}

pub unsafe fn MPI_Query_thread(provided: *mut c_int) -> c_int {
    let level = world::get().map(|w| w.thread_level.load(std::sync::atomic::Ordering::Relaxed));
    finish("MPI_Query_thread", level.and_then(|level| store(provided, "provided", level)))
}

pub unsafe fn MPI_Is_thread_main(flag: *mut c_int) -> c_int {
    finish("MPI_Is_thread_main", world::get().and_then(|w| store(flag, "flag", w.is_main_thread() as c_int)))
}

pub unsafe fn MPI_Abort(comm: Comm, errorcode: c_int) -> c_int {
    let _ = comm;
    world::abort(errorcode, &format!("rank {} called MPI_Abort with code {errorcode}", world::me()))
}

pub unsafe fn MPI_Get_processor_name(name: *mut c_char, resultlen: *mut c_int) -> c_int {
    let told = world::processor_name().and_then(|text| {
        store_text(name, "name", &text, MPI_MAX_PROCESSOR_NAME)?;
        store(resultlen, "resultlen", text.len() as c_int)
    });
    finish("MPI_Get_processor_name", told)
}
