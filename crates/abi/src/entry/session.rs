//! Sessions (MPI-5.0 §11.3), their error handlers and buffers.

use super::p2p::detach;
use crate::args::{Number, bytes, load, store, store_text};
use crate::{finish, finish_making};
use mpi::buffered::{self, Holder};
use mpi::consts::*;
use mpi::error::{Error, Result};
use mpi::handle::*;
use mpi::{errors, group, info, session};
use std::ffi::{c_char, c_int, c_void};

/// The code of a finished call on a session: `MPI_SUCCESS`, or what raising the error gives.
#[allow(clippy::boxed_local)]
fn finish_in(session: Session, function: &str, result: Result<()>) -> c_int {
    match result {
        Ok(()) => MPI_SUCCESS,
        Err(error) => session::raise(session, function, &error),
    }
}

pub unsafe fn MPI_Session_init(info: Info, errhandler: Errhandler, session: *mut Session) -> c_int {
    finish_making(errhandler, "MPI_Session_init", session::init(info, errhandler).and_then(|s| store(session, "session", s)))
}

pub unsafe fn MPI_Session_finalize(session: *mut Session) -> c_int {
    let handle = match load(session, "session") {
        Ok(handle) => handle,
        Err(error) => return finish("MPI_Session_finalize", Err(error)),
    };
    finish_in(handle, "MPI_Session_finalize", session::finalize(handle).and_then(|()| store(session, "session", MPI_SESSION_NULL)))
}

pub unsafe fn MPI_Session_get_info(session: Session, info_used: *mut Info) -> c_int {
    let made = session::find(session).and_then(|s| info::create(s.info()?));
    finish_in(session, "MPI_Session_get_info", made.and_then(|i| store(info_used, "info_used", i)))
}

pub unsafe fn MPI_Session_get_num_psets(session: Session, info: Info, npset_names: *mut c_int) -> c_int {
    let counted = session::find(session).and_then(|_| info::hints(info));
    let stored = counted.and_then(|_| store(npset_names, "npset_names", session::PSETS.len() as c_int));
    finish_in(session, "MPI_Session_get_num_psets", stored)
}

/// `pset_len` of 0 asks for the length that is needed, the end included.
pub unsafe fn MPI_Session_get_nth_pset(session: Session, info: Info, n: c_int, pset_len: *mut c_int, pset_name: *mut c_char) -> c_int {
    let get = || -> Result<()> {
        info::hints(info)?;
        let name = session::nth_pset(session, n)?;
        let room = load(pset_len, "pset_len")?;
        if room > 0 {
            store_text(pset_name, "pset_name", name.as_bytes(), room as usize)?;
        }
        store(pset_len, "pset_len", name.len() as c_int + 1)
    };
    finish_in(session, "MPI_Session_get_nth_pset", get())
}

pub unsafe fn MPI_Session_get_pset_info(session: Session, pset_name: *const c_char, info: *mut Info) -> c_int {
    let made = bytes(pset_name, MPI_ERR_ARG, "pset_name").and_then(|name| info::create(session::pset_info(session, name)?));
    finish_in(session, "MPI_Session_get_pset_info", made.and_then(|i| store(info, "info", i)))
}

pub unsafe fn MPI_Group_from_session_pset(session: Session, pset_name: *const c_char, newgroup: *mut Group) -> c_int {
    let made = bytes(pset_name, MPI_ERR_ARG, "pset_name").and_then(|name| group::publish(session::group(session, name)?));
    finish_in(session, "MPI_Group_from_session_pset", made.and_then(|g| store(newgroup, "newgroup", g)))
}

pub unsafe fn MPI_Session_set_errhandler(session: Session, errhandler: Errhandler) -> c_int {
    finish_in(session, "MPI_Session_set_errhandler", session::find(session).and_then(|s| s.set_errhandler(errhandler)))
}

pub unsafe fn MPI_Session_get_errhandler(session: Session, errhandler: *mut Errhandler) -> c_int {
    let got = session::find(session).and_then(|s| errors::retain_handler(s.errhandler()).map(|_| s.errhandler()));
    finish_in(session, "MPI_Session_get_errhandler", got.and_then(|h| store(errhandler, "errhandler", h)))
}

pub unsafe fn MPI_Session_call_errhandler(session: Session, errorcode: c_int) -> c_int {
    match session::find(session) {
        Ok(_) => {
            let called = Error { class: errorcode, detail: format!("called with code {errorcode}") };
            session::raise(session, "MPI_Session_call_errhandler", &called);
            MPI_SUCCESS
        }
        Err(error) => finish_in(session, "MPI_Session_call_errhandler", Err(error)),
    }
}

pub unsafe fn MPI_Session_attach_buffer<N: Number>(function: &'static str, session: Session, buffer: *mut c_void, size: N) -> c_int {
    finish_in(session, function, session::find(session).and_then(|s| buffered::attach(&Holder::Session(s), buffer, size.wide())))
}

/// `buffer_addr` is the address of a pointer.
pub unsafe fn MPI_Session_detach_buffer<N: Number>(function: &'static str, session: Session, buffer_addr: *mut c_void, size: *mut N) -> c_int {
    finish_in(session, function, session::find(session).and_then(|s| detach(&Holder::Session(s), function, buffer_addr, size)))
}

pub unsafe fn MPI_Session_flush_buffer(session: Session) -> c_int {
    let flushed = session::find(session).and_then(|s| buffered::flush(&Holder::Session(s), "MPI_Session_flush_buffer"));
    finish_in(session, "MPI_Session_flush_buffer", flushed)
}

pub unsafe fn MPI_Session_iflush_buffer(session: Session, request: *mut Request) -> c_int {
    let started = session::find(session).and_then(|s| buffered::iflush(&Holder::Session(s), None));
    finish_in(session, "MPI_Session_iflush_buffer", started.and_then(|r| store(request, "request", r)))
}
