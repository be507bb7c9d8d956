//! Communicators (MPI-5.0 §7.4), their names, infos and error handlers.

use crate::finish_on;
use mpi::attributes::{self, Object};
use mpi::comm::{self, find, find_intra};
use mpi::consts::*;
use mpi::creation;
use mpi::error::{Error, Result};
use mpi::errors;
use mpi::group;
use mpi::handle::*;
use mpi::info;
use std::ffi::{CStr, c_char, c_int};

#[inline(always)]
pub unsafe fn MPI_Comm_size(comm: Comm, size: *mut c_int) -> c_int {
    finish_on(comm, "MPI_Comm_size", find(comm).map(|c| *size = c.size() as c_int))
}

#[inline(always)]
pub unsafe fn MPI_Comm_rank(comm: Comm, rank: *mut c_int) -> c_int {
    finish_on(comm, "MPI_Comm_rank", find(comm).map(|c| *rank = c.rank as c_int))
}

pub unsafe fn MPI_Comm_remote_size(comm: Comm, size: *mut c_int) -> c_int {
    let remote = find(comm).and_then(|c| c.remote.as_ref().ok_or_else(not_inter));
    finish_on(comm, "MPI_Comm_remote_size", remote.map(|g| *size = g.size() as c_int))
}

fn not_inter() -> Box<Error> {
    Error::new(MPI_ERR_COMM, "the communicator is an intracommunicator")
}

pub unsafe fn MPI_Comm_test_inter(comm: Comm, flag: *mut c_int) -> c_int {
    finish_on(comm, "MPI_Comm_test_inter", find(comm).map(|c| *flag = c.remote.is_some() as c_int))
}

pub unsafe fn MPI_Comm_group(comm: Comm, group: *mut Group) -> c_int {
    finish_on(comm, "MPI_Comm_group", find(comm).and_then(|c| group::publish(c.group.clone())).map(|g| *group = g))
}

pub unsafe fn MPI_Comm_remote_group(comm: Comm, group: *mut Group) -> c_int {
    let remote = find(comm).and_then(|c| c.remote.clone().ok_or_else(not_inter));
    finish_on(comm, "MPI_Comm_remote_group", remote.and_then(group::publish).map(|g| *group = g))
}

pub unsafe fn MPI_Comm_compare(comm1: Comm, comm2: Comm, result: *mut c_int) -> c_int {
    let compared = find(comm1).and_then(|a| {
        let b = find(comm2)?;
        if comm1 == comm2 {
            return Ok(MPI_IDENT);
        }
        let same_kind = a.remote.is_some() == b.remote.is_some();
        let groups = match (&a.remote, &b.remote) {
            (Some(x), Some(y)) => a.group.compare(&b.group).max(x.compare(y)),
            _ => a.group.compare(&b.group),
        };
        Ok(match groups {
            _ if !same_kind => MPI_UNEQUAL,
            MPI_IDENT => MPI_CONGRUENT,
            other => other,
        })
    });
    finish_on(comm1, "MPI_Comm_compare", compared.map(|r| *result = r))
}

fn dup(function: &'static str, old: Comm, hints: Option<Info>) -> Result<Comm> {
    let parent = find(old)?;
    let hints = match hints {
        Some(given) => info::hints(given)?,
        None => parent.info.lock().unwrap_or_else(|e| e.into_inner()).clone(),
    };
    let new = creation::dup(function, parent)?;
    *new.info.lock().unwrap_or_else(|e| e.into_inner()) = hints;
    let new = comm::publish(new)?;
    // A copy callback that fails: the new communicator is not made (MPI-5.0 §7.7.2).
    if let Err(error) = attributes::copy_all(Object::Comm(old), Object::Comm(new)) {
        comm::free(new)?;
        return Err(error);
    }
    Ok(new)
}

pub unsafe fn MPI_Comm_dup(comm: Comm, newcomm: *mut Comm) -> c_int {
    finish_on(comm, "MPI_Comm_dup", dup("MPI_Comm_dup", comm, None).map(|c| *newcomm = c))
}

pub unsafe fn MPI_Comm_dup_with_info(comm: Comm, info: Info, newcomm: *mut Comm) -> c_int {
    finish_on(comm, "MPI_Comm_dup_with_info", dup("MPI_Comm_dup_with_info", comm, Some(info)).map(|c| *newcomm = c))
}

pub unsafe fn MPI_Comm_create(comm: Comm, group: Group, newcomm: *mut Comm) -> c_int {
    let made = find_intra(comm).and_then(|c| creation::publish(creation::create("MPI_Comm_create", c, &group::find(group)?)?));
    finish_on(comm, "MPI_Comm_create", made.map(|c| *newcomm = c))
}

pub unsafe fn MPI_Comm_split(comm: Comm, color: c_int, key: c_int, newcomm: *mut Comm) -> c_int {
    let made = find_intra(comm).and_then(|c| creation::publish(creation::split("MPI_Comm_split", c, color, key)?));
    finish_on(comm, "MPI_Comm_split", made.map(|c| *newcomm = c))
}

pub unsafe fn MPI_Comm_split_type(comm: Comm, split_type: c_int, key: c_int, info: Info, newcomm: *mut Comm) -> c_int {
    let made = find_intra(comm).and_then(|c| creation::publish(creation::split_type("MPI_Comm_split_type", c, split_type, key, info)?));
    finish_on(comm, "MPI_Comm_split_type", made.map(|c| *newcomm = c))
}

unsafe fn free(function: &'static str, comm: *mut Comm) -> c_int {
    let handle = *comm;
    let freed = find(handle).and_then(|_| {
        if handle == MPI_COMM_WORLD || handle == MPI_COMM_SELF {
            return Err(Error::new(MPI_ERR_COMM, "a predefined communicator cannot be freed"));
        }
        attributes::delete_all(Object::Comm(handle))?;
        comm::free(handle)
    });
    finish_on(handle, function, freed.map(|()| *comm = MPI_COMM_NULL))
}

pub unsafe fn MPI_Comm_free(comm: *mut Comm) -> c_int {
    free("MPI_Comm_free", comm)
}

/// All of its communication is complete: on this process the same as freeing it.
pub unsafe fn MPI_Comm_disconnect(comm: *mut Comm) -> c_int {
    free("MPI_Comm_disconnect", comm)
}

pub unsafe fn MPI_Comm_set_name(comm: Comm, comm_name: *const c_char) -> c_int {
    let named = find(comm).and_then(|c| {
        if comm_name.is_null() {
            return Err(Error::new(MPI_ERR_ARG, "comm_name is null"));
        }
        let name = CStr::from_ptr(comm_name).to_bytes();
        let length = name.len().min(MPI_MAX_OBJECT_NAME as usize - 1);
        *c.name.lock().unwrap_or_else(|e| e.into_inner()) = name[..length].to_vec();
        Ok(())
    });
    finish_on(comm, "MPI_Comm_set_name", named)
}

pub unsafe fn MPI_Comm_get_name(comm: Comm, comm_name: *mut c_char, resultlen: *mut c_int) -> c_int {
    if comm == MPI_COMM_NULL {
        // Its name is that of the handle (MPI-5.0 §7.8).
        let name = c"MPI_COMM_NULL".to_bytes_with_nul();
        std::ptr::copy_nonoverlapping(name.as_ptr().cast(), comm_name, name.len());
        *resultlen = name.len() as c_int - 1;
        return MPI_SUCCESS;
    }
    let got = find(comm).map(|c| {
        let name = c.name.lock().unwrap_or_else(|e| e.into_inner());
        std::ptr::copy_nonoverlapping(name.as_ptr().cast(), comm_name, name.len());
        *comm_name.add(name.len()) = 0;
        *resultlen = name.len() as c_int;
    });
    finish_on(comm, "MPI_Comm_get_name", got)
}

pub unsafe fn MPI_Comm_set_info(comm: Comm, info: Info) -> c_int {
    let set = find(comm).and_then(|c| {
        let new = info::hints(info)?;
        *c.info.lock().unwrap_or_else(|e| e.into_inner()) = new;
        Ok(())
    });
    finish_on(comm, "MPI_Comm_set_info", set)
}

pub unsafe fn MPI_Comm_get_info(comm: Comm, info_used: *mut Info) -> c_int {
    let got = find(comm).and_then(|c| info::create(c.info.lock().unwrap_or_else(|e| e.into_inner()).clone()));
    finish_on(comm, "MPI_Comm_get_info", got.map(|i| *info_used = i))
}

pub unsafe fn MPI_Comm_set_errhandler(comm: Comm, errhandler: Errhandler) -> c_int {
    let set = find(comm).and_then(|c| match errors::handler(errhandler)? {
        errors::Handler::Win(_) | errors::Handler::File(_) | errors::Handler::Session(_) => {
            Err(Error::new(MPI_ERR_ERRHANDLER, "the error handler is not one of communicators"))
        }
        _ => c.set_errhandler(errhandler),
    });
    finish_on(comm, "MPI_Comm_set_errhandler", set)
}

pub unsafe fn MPI_Comm_get_errhandler(comm: Comm, errhandler: *mut Errhandler) -> c_int {
    let got = find(comm).and_then(|c| errors::retain_handler(c.errhandler()).map(|_| c.errhandler()));
    finish_on(comm, "MPI_Comm_get_errhandler", got.map(|h| *errhandler = h))
}

pub unsafe fn MPI_Comm_call_errhandler(comm: Comm, errorcode: c_int) -> c_int {
    match find(comm) {
        Ok(c) => {
            mpi::world::raise(Some(c), "MPI_Comm_call_errhandler", &Error { class: errorcode, detail: format!("called with code {errorcode}") });
            MPI_SUCCESS
        }
        Err(error) => finish_on(comm, "MPI_Comm_call_errhandler", Err(error)),
    }
}
