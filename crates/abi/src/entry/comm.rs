//! Communicators (MPI-5.0 §7.4), their names, infos and error handlers.

use crate::args::{bytes, load, store, store_text};
use crate::{finish, finish_making, finish_on};
use mpi::attributes::{self, Object};
use mpi::call::{Call, Form, Kind};
use mpi::comm::{self, Comm as Communicator, find, find_intra};
use mpi::consts::*;
use mpi::creation;
use mpi::error::{Error, Result};
use mpi::errors;
use mpi::group;
use mpi::handle::*;
use mpi::link::Channel;
use mpi::{info, request, session};
use std::ffi::{CStr, c_char, c_int};
use std::sync::{Arc, Mutex, MutexGuard};

#[inline(always)]
pub unsafe fn MPI_Comm_size(comm: Comm, size: *mut c_int) -> c_int {
    finish_on(comm, "MPI_Comm_size", find(comm).and_then(|c| store(size, "size", c.size() as c_int)))
}

#[inline(always)]
pub unsafe fn MPI_Comm_rank(comm: Comm, rank: *mut c_int) -> c_int {
    finish_on(comm, "MPI_Comm_rank", find(comm).and_then(|c| store(rank, "rank", c.rank as c_int)))
}

pub unsafe fn MPI_Comm_remote_size(comm: Comm, size: *mut c_int) -> c_int {
    let remote = find(comm).and_then(|c| c.remote.as_ref().ok_or_else(not_inter));
    finish_on(comm, "MPI_Comm_remote_size", remote.and_then(|g| store(size, "size", g.size() as c_int)))
}

fn not_inter() -> Box<Error> {
    Error::new(MPI_ERR_COMM, "the communicator is an intracommunicator")
}

pub unsafe fn MPI_Comm_test_inter(comm: Comm, flag: *mut c_int) -> c_int {
    finish_on(comm, "MPI_Comm_test_inter", find(comm).and_then(|c| store(flag, "flag", c.remote.is_some() as c_int)))
}

pub unsafe fn MPI_Comm_group(comm: Comm, group: *mut Group) -> c_int {
    finish_on(comm, "MPI_Comm_group", find(comm).and_then(|c| group::publish_shared(&c.group)).and_then(|g| store(group, "group", g)))
}

pub unsafe fn MPI_Comm_remote_group(comm: Comm, group: *mut Group) -> c_int {
    let remote = find(comm).and_then(|c| c.remote.clone().ok_or_else(not_inter));
    finish_on(comm, "MPI_Comm_remote_group", remote.and_then(group::publish).and_then(|g| store(group, "group", g)))
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
    finish_on(comm1, "MPI_Comm_compare", compared.and_then(|r| store(result, "result", r)))
}

/// The hints of a duplicate: what the program gave for it. Those of its parent are not handed on (MPI-5.0 §7.4.2).
fn set_hints(new: &Communicator, given: Option<Info>) -> Result<()> {
    if let Some(info) = given {
        lock(&new.info).update(&info::hints(info)?);
    }
    Ok(())
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(|e| e.into_inner())
}

fn dup(function: &'static str, old: Comm, given: Option<Info>) -> Result<Comm> {
    let parent = find(old)?;
    info::hints(given.unwrap_or(MPI_INFO_NULL))?;
    let new = creation::dup(function, parent)?;
    set_hints(&new, given)?;
    let new = comm::publish(new)?;
    // A copy callback that fails: the new communicator is not made (MPI-5.0 §7.7.2).
    if let Err(error) = attributes::copy_all(Object::Comm(old), Object::Comm(new)) {
        comm::free(new)?;
        return Err(error);
    }
    Ok(new)
}

pub unsafe fn MPI_Comm_dup(comm: Comm, newcomm: *mut Comm) -> c_int {
    finish_on(comm, "MPI_Comm_dup", dup("MPI_Comm_dup", comm, None).and_then(|c| store(newcomm, "newcomm", c)))
}

pub unsafe fn MPI_Comm_dup_with_info(comm: Comm, info: Info, newcomm: *mut Comm) -> c_int {
    finish_on(comm, "MPI_Comm_dup_with_info", dup("MPI_Comm_dup_with_info", comm, Some(info)).and_then(|c| store(newcomm, "newcomm", c)))
}

/// Hints and attributes are those of the time of the call. The handle is given out at once, for a placeholder until the
/// members have agreed.
fn idup(old: Comm, given: Option<Info>) -> Result<(Comm, Request)> {
    let parent = find(old)?;
    info::hints(given.unwrap_or(MPI_INFO_NULL))?;
    let made = creation::duplicate(parent, Channel::lasting(parent, parent.calls.begin(Call::new(Kind::CommIdup).form(Form::Nonblocking)))?);
    let placeholder = comm::publish(Communicator::placeholder(parent)?)?;
    set_hints(find(placeholder)?, given)?;
    let hints = lock(&find(placeholder)?.info).clone();
    let copied = attributes::copy_all(Object::Comm(old), Object::Comm(placeholder));
    let failed = copied.is_err();
    // The other members wait for this one, whatever its callbacks say.
    let task = async move {
        let new = made.await?;
        *lock(&new.info) = hints;
        if failed {
            comm::free(placeholder)?
        } else {
            comm::replace(placeholder, new)
        }
        Ok(Status::EMPTY)
    };
    let mut request = request::start_task(Some(old), task)?;
    if let Err(error) = copied {
        request::free(&mut request)?;
        return Err(error);
    }
    Ok((placeholder, request))
}

unsafe fn give_idup(function: &str, comm: Comm, made: Result<(Comm, Request)>, newcomm: *mut Comm, request: *mut Request) -> c_int {
    finish_on(
        comm,
        function,
        made.and_then(|(c, r)| {
            store(newcomm, "newcomm", c)?;
            store(request, "request", r)
        }),
    )
}

pub unsafe fn MPI_Comm_idup(comm: Comm, newcomm: *mut Comm, request: *mut Request) -> c_int {
    give_idup("MPI_Comm_idup", comm, idup(comm, None), newcomm, request)
}

pub unsafe fn MPI_Comm_idup_with_info(comm: Comm, info: Info, newcomm: *mut Comm, request: *mut Request) -> c_int {
    give_idup("MPI_Comm_idup_with_info", comm, idup(comm, Some(info)), newcomm, request)
}

pub unsafe fn MPI_Comm_create(comm: Comm, group: Group, newcomm: *mut Comm) -> c_int {
    let made = find(comm).and_then(|c| creation::publish(creation::create("MPI_Comm_create", c, &group::find(group)?)?));
    finish_on(comm, "MPI_Comm_create", made.and_then(|c| store(newcomm, "newcomm", c)))
}

pub unsafe fn MPI_Comm_create_group(comm: Comm, group: Group, tag: c_int, newcomm: *mut Comm) -> c_int {
    let function = "MPI_Comm_create_group";
    let made = find_intra(comm).and_then(|c| creation::publish(creation::create_group(function, c, &group::find(group)?, tag)?));
    finish_on(comm, function, made.and_then(|c| store(newcomm, "newcomm", c)))
}

pub unsafe fn MPI_Comm_create_from_group(group: Group, stringtag: *const c_char, info: Info, errhandler: Errhandler, newcomm: *mut Comm) -> c_int {
    let function = "MPI_Comm_create_from_group";
    let make = || -> Result<Comm> {
        let (members, tag) = (group::find(group)?, bytes(stringtag, MPI_ERR_ARG, "stringtag")?);
        check_handler(errhandler)?;
        with_hints(creation::create_from_group(function, &members, tag, errhandler)?, info)
    };
    finish_making(errhandler, function, make().and_then(|c| store(newcomm, "newcomm", c)))
}

pub unsafe fn MPI_Intercomm_create_from_groups(
    local_group: Group,
    local_leader: c_int,
    remote_group: Group,
    remote_leader: c_int,
    stringtag: *const c_char,
    info: Info,
    errhandler: Errhandler,
    newintercomm: *mut Comm,
) -> c_int {
    let function = "MPI_Intercomm_create_from_groups";
    let make = || -> Result<Comm> {
        let (local, remote) = (group::find(local_group)?, group::find(remote_group)?);
        let tag = bytes(stringtag, MPI_ERR_ARG, "stringtag")?;
        check_handler(errhandler)?;
        let made = creation::intercomm_from_groups(function, &local, local_leader, &remote, remote_leader, tag, errhandler)?;
        with_hints(made, info)
    };
    finish_making(errhandler, function, make().and_then(|c| store(newintercomm, "newintercomm", c)))
}

/// Gives a new communicator hints and a handle.
fn with_hints(made: Option<Arc<Communicator>>, info: Info) -> Result<Comm> {
    let given = info::hints(info)?;
    if let Some(made) = &made {
        lock(&made.info).update(&given);
    }
    creation::publish(made)
}

pub unsafe fn MPI_Intercomm_create(local_comm: Comm, local_leader: c_int, peer_comm: Comm, remote_leader: c_int, tag: c_int, newintercomm: *mut Comm) -> c_int {
    let function = "MPI_Intercomm_create";
    let made = find_intra(local_comm).and_then(|local| {
        let peer = if local.rank as c_int == local_leader { Some((find(peer_comm)?, remote_leader)) } else { None };
        comm::publish(creation::intercomm(function, local, local_leader, peer, tag)?)
    });
    finish_on(local_comm, function, made.and_then(|c| store(newintercomm, "newintercomm", c)))
}

pub unsafe fn MPI_Intercomm_merge(intercomm: Comm, high: c_int, newintracomm: *mut Comm) -> c_int {
    let made = find(intercomm).and_then(|c| comm::publish(creation::merge("MPI_Intercomm_merge", c, high != 0)?));
    finish_on(intercomm, "MPI_Intercomm_merge", made.and_then(|c| store(newintracomm, "newintracomm", c)))
}

pub unsafe fn MPI_Comm_split(comm: Comm, color: c_int, key: c_int, newcomm: *mut Comm) -> c_int {
    let made = find(comm).and_then(|c| creation::publish(creation::split("MPI_Comm_split", c, color, key)?));
    finish_on(comm, "MPI_Comm_split", made.and_then(|c| store(newcomm, "newcomm", c)))
}

pub unsafe fn MPI_Comm_split_type(comm: Comm, split_type: c_int, key: c_int, info: Info, newcomm: *mut Comm) -> c_int {
    let made = find(comm).and_then(|c| with_hints(creation::split_type("MPI_Comm_split_type", c, split_type, key, info)?, info));
    finish_on(comm, "MPI_Comm_split_type", made.and_then(|c| store(newcomm, "newcomm", c)))
}

unsafe fn free(function: &'static str, comm: *mut Comm, before: impl FnOnce(Comm) -> Result<()>) -> c_int {
    let handle = match load(comm, "comm") {
        Ok(handle) => handle,
        Err(error) => return finish(function, Err(error)),
    };
    let freed = find(handle).and_then(|_| {
        if handle == MPI_COMM_WORLD || handle == MPI_COMM_SELF {
            return Err(Error::new(MPI_ERR_COMM, "a predefined communicator cannot be freed"));
        }
        before(handle)?;
        attributes::delete_all(Object::Comm(handle))?;
        comm::free(handle)
    });
    finish_on(handle, function, freed.map(|()| *comm = MPI_COMM_NULL))
}

pub unsafe fn MPI_Comm_free(comm: *mut Comm) -> c_int {
    free("MPI_Comm_free", comm, |_| Ok(()))
}

pub unsafe fn MPI_Comm_disconnect(comm: *mut Comm) -> c_int {
    let code = free("MPI_Comm_disconnect", comm, |comm| {
        comm::settle(comm)?;
        mpi::dynamic::part(comm)
    });
    mpi::dynamic::spawn::release_disconnected();
    code
}

pub unsafe fn MPI_Comm_set_name(comm: Comm, comm_name: *const c_char) -> c_int {
    let named = find(comm).and_then(|c| {
        if comm_name.is_null() {
            return Err(Error::new(MPI_ERR_ARG, "comm_name is null"));
        }
        let name = CStr::from_ptr(comm_name).to_bytes();
        let length = name.len().min(MPI_MAX_OBJECT_NAME - 1);
        *c.name.lock().unwrap_or_else(|e| e.into_inner()) = name[..length].to_vec();
        Ok(())
    });
    finish_on(comm, "MPI_Comm_set_name", named)
}

unsafe fn give_name(name: &[u8], comm_name: *mut c_char, resultlen: *mut c_int) -> Result<()> {
    store_text(comm_name, "comm_name", name, MPI_MAX_OBJECT_NAME)?;
    store(resultlen, "resultlen", name.len() as c_int)
}

pub unsafe fn MPI_Comm_get_name(comm: Comm, comm_name: *mut c_char, resultlen: *mut c_int) -> c_int {
    if comm == MPI_COMM_NULL {
        // Its name is that of the handle (MPI-5.0 §7.8).
        let got = give_name(b"MPI_COMM_NULL", comm_name, resultlen);
        return finish_on(comm, "MPI_Comm_get_name", got);
    }
    let got = find(comm).and_then(|c| give_name(&c.name.lock().unwrap_or_else(|e| e.into_inner()), comm_name, resultlen));
    finish_on(comm, "MPI_Comm_get_name", got)
}

pub unsafe fn MPI_Comm_set_info(comm: Comm, info: Info) -> c_int {
    let set = find(comm).and_then(|c| {
        lock(&c.info).update(&info::hints(info)?);
        Ok(())
    });
    finish_on(comm, "MPI_Comm_set_info", set)
}

pub unsafe fn MPI_Comm_get_info(comm: Comm, info_used: *mut Info) -> c_int {
    let got = find(comm).and_then(|c| info::create(lock(&c.info).pairs(&session::memory_kinds_of(&c.group))?));
    finish_on(comm, "MPI_Comm_get_info", got.and_then(|i| store(info_used, "info_used", i)))
}

pub(super) fn check_handler(errhandler: Errhandler) -> Result<()> {
    match errors::handler(errhandler)? {
        errors::Handler::Win(_) | errors::Handler::File(_) | errors::Handler::Session(_) => {
            Err(Error::new(MPI_ERR_ERRHANDLER, "the error handler is not one of communicators"))
        }
        _ => Ok(()),
    }
}

pub unsafe fn MPI_Comm_set_errhandler(comm: Comm, errhandler: Errhandler) -> c_int {
    let set = find(comm).and_then(|c| {
        check_handler(errhandler)?;
        c.set_errhandler(errhandler)
    });
    finish_on(comm, "MPI_Comm_set_errhandler", set)
}

pub unsafe fn MPI_Comm_get_errhandler(comm: Comm, errhandler: *mut Errhandler) -> c_int {
    let got = find(comm).and_then(|c| errors::retain_handler(c.errhandler()).map(|_| c.errhandler()));
    finish_on(comm, "MPI_Comm_get_errhandler", got.and_then(|h| store(errhandler, "errhandler", h)))
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
