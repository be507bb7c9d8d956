//! Completion (MPI-5.0 §3.7, §3.9) and generalized requests (§13.2).

use super::p2p::give;
use crate::args::{load, room, store};
use crate::{fail, fail_on, finish, finish_on};
use mpi::consts::*;
use mpi::error::{Error, Result};
use mpi::handle::*;
use mpi::request::{self, Any, Completion, Generalized};
use std::cell::Cell;
use std::ffi::{c_int, c_void};

/// Raises the error of one completed operation, if it has one.
#[inline(always)]
unsafe fn end_one(function: &'static str, completion: Completion, status: *mut Status) -> c_int {
    give(status, completion.status);
    match completion.error {
        None => MPI_SUCCESS,
        Some(error) => fail_on(completion.comm.unwrap_or(MPI_COMM_NULL), function, error),
    }
}

/// A request that is passed by address.
#[inline(always)]
unsafe fn place<'a>(request: *mut Request) -> Result<&'a mut Request> {
    room(request, "request")?;
    // SAFETY: not null, and the program's own.
    Ok(unsafe { &mut *request })
}

/// Raises an error that kept a call from completing any of its requests, such as a fault of the engine: on the communicator of the first request that has
/// one. A request that is none, or an array, belongs to no communicator.
#[cold]
unsafe fn fail_all(function: &'static str, count: c_int, requests: *const Request, error: Box<Error>) -> c_int {
    let known = if error.class == MPI_ERR_REQUEST { Ok(&mut [][..]) } else { array(count, requests.cast_mut()) };
    let on = known.ok().and_then(|all| all.iter().find_map(|request| request::comm_of(*request)));
    fail_on(on.map_or(MPI_COMM_NULL, |comm| comm.handle()), function, error)
}

/// The requests of an array, with its length checked.
unsafe fn array<'a>(count: c_int, requests: *mut Request) -> Result<&'a mut [Request]> {
    match count {
        0 => Ok(&mut []),
        n if n < 0 => Err(Error::new(MPI_ERR_COUNT, format!("count = {n} is negative"))),
        _ if requests.is_null() => Err(Error::new(MPI_ERR_REQUEST, "the array of requests is null")),
        n => Ok(std::slice::from_raw_parts_mut(requests, n as usize)),
    }
}

/// Writes all statuses; where one failed, all error fields, and the call as a whole is `MPI_ERR_IN_STATUS` (MPI-5.0 §3.7.5).
unsafe fn end_all<'a>(function: &'static str, completions: impl Iterator<Item = &'a Completion> + Clone, statuses: *mut Status) -> c_int {
    let failed = completions.clone().find_map(|completion| completion.error.as_ref().map(|error| (completion.comm, error)));
    if !statuses.is_null() {
        for (at, completion) in completions.enumerate() {
            let place = statuses.add(at);
            *place = if failed.is_some() { completion.status } else { completion.status.keeping_error_of(&*place) };
        }
    }
    let Some((comm, error)) = failed else { return MPI_SUCCESS };
    let whole = Error::new(MPI_ERR_IN_STATUS, format!("one of the operations failed: {}", error.detail));
    fail_on(comm.unwrap_or(MPI_COMM_NULL), function, whole)
}

#[inline(always)]
pub unsafe fn MPI_Wait(request: *mut Request, status: *mut Status) -> c_int {
    match place(request).and_then(request::wait_quickly) {
        Ok(Some(received)) => {
            give(status, received.into());
            MPI_SUCCESS
        }
        Ok(None) => wait_further(request, status),
        Err(error) => fail_all("MPI_Wait", 1, request, error),
    }
}

#[cold]
#[inline(never)]
unsafe fn wait_further(request: *mut Request, status: *mut Status) -> c_int {
    match request::wait_one("MPI_Wait", &mut *request) {
        Ok(completion) => end_one("MPI_Wait", completion, status),
        Err(error) => fail_all("MPI_Wait", 1, request, error),
    }
}

pub unsafe fn MPI_Test(request: *mut Request, flag: *mut c_int, status: *mut Status) -> c_int {
    if !request.is_null() && !flag.is_null() {
        match request::test_quickly(&mut *request) {
            Ok(Some(tested)) => {
                *flag = tested.is_some() as c_int;
                if let Some(received) = tested {
                    give(status, received.into());
                }
                return MPI_SUCCESS;
            }
            Ok(None) => {}
            Err(error) => return fail_all("MPI_Test", 1, request, error),
        }
    }
    test("MPI_Test", request, flag, status, true)
}

pub unsafe fn MPI_Request_get_status(request: Request, flag: *mut c_int, status: *mut Status) -> c_int {
    test("MPI_Request_get_status", &mut request.clone(), flag, status, false)
}

unsafe fn test(function: &'static str, request: *mut Request, flag: *mut c_int, status: *mut Status, consume: bool) -> c_int {
    match place(request).and_then(|request| room(flag, "flag").and_then(|()| request::test_one(request, consume))) {
        Ok(Some(completion)) => {
            *flag = 1;
            end_one(function, completion, status)
        }
        Ok(None) => {
            *flag = 0;
            MPI_SUCCESS
        }
        Err(error) => fail_all(function, 1, request, error),
    }
}

#[inline(always)]
pub unsafe fn MPI_Waitall(count: c_int, array_of_requests: *mut Request, array_of_statuses: *mut Status) -> c_int {
    let requests = match array(count, array_of_requests) {
        Ok(requests) => requests,
        Err(error) => return fail("MPI_Waitall", error),
    };
    // Error fields are written only if something fails (MPI-5.0 §3.7.5): then those before are mended.
    let failed: Cell<Option<Completion>> = Cell::new(None);
    let any = Cell::new(false);
    let well = |at: usize, status: Status| {
        if !array_of_statuses.is_null() {
            let place = array_of_statuses.add(at);
            *place = if any.get() { status } else { status.keeping_error_of(&*place) };
        }
    };
    let waited = request::wait_all("MPI_Waitall", requests, well, |at, completion| {
        if completion.error.is_none() {
            return well(at, completion.status);
        }
        if !any.replace(true) && !array_of_statuses.is_null() {
            for before in 0..at {
                (*array_of_statuses.add(before)).error = MPI_SUCCESS;
            }
        }
        well(at, completion.status);
        let first = failed.take().unwrap_or(completion);
        failed.set(Some(first));
    });
    match (waited, failed.take()) {
        (Err(error), _) => fail_all("MPI_Waitall", count, array_of_requests, error),
        (Ok(()), None) => MPI_SUCCESS,
        (Ok(()), Some(first)) => end_all("MPI_Waitall", std::iter::once(&first), std::ptr::null_mut()),
    }
}

pub unsafe fn MPI_Testall(count: c_int, array_of_requests: *mut Request, flag: *mut c_int, array_of_statuses: *mut Status) -> c_int {
    test_all("MPI_Testall", count, array_of_requests, flag, array_of_statuses, true)
}

pub unsafe fn MPI_Request_get_status_all(count: c_int, array_of_requests: *const Request, flag: *mut c_int, array_of_statuses: *mut Status) -> c_int {
    test_all("MPI_Request_get_status_all", count, array_of_requests.cast_mut(), flag, array_of_statuses, false)
}

unsafe fn test_all(function: &'static str, count: c_int, requests: *mut Request, flag: *mut c_int, statuses: *mut Status, consume: bool) -> c_int {
    match array(count, requests).and_then(|requests| room(flag, "flag").and_then(|()| request::test_all(requests, consume))) {
        Ok(None) => {
            *flag = 0;
            MPI_SUCCESS
        }
        Ok(Some(completions)) => {
            *flag = 1;
            end_all(function, completions.iter(), statuses)
        }
        Err(error) => fail_all(function, count, requests, error),
    }
}

unsafe fn end_any(function: &'static str, any: Any, index: *mut c_int, status: *mut Status) -> c_int {
    match any {
        Any::NoneActive => {
            *index = MPI_UNDEFINED;
            give(status, Status::EMPTY);
            MPI_SUCCESS
        }
        Any::One(at, completion) => {
            *index = at as c_int;
            end_one(function, completion, status)
        }
    }
}

pub unsafe fn MPI_Waitany(count: c_int, array_of_requests: *mut Request, index: *mut c_int, status: *mut Status) -> c_int {
    match array(count, array_of_requests).and_then(|requests| room(index, "index").and_then(|()| request::wait_any("MPI_Waitany", requests))) {
        Ok(any) => end_any("MPI_Waitany", any, index, status),
        Err(error) => fail_all("MPI_Waitany", count, array_of_requests, error),
    }
}

pub unsafe fn MPI_Testany(count: c_int, array_of_requests: *mut Request, index: *mut c_int, flag: *mut c_int, status: *mut Status) -> c_int {
    test_any("MPI_Testany", count, array_of_requests, index, flag, status, true)
}

pub unsafe fn MPI_Request_get_status_any(count: c_int, array_of_requests: *const Request, index: *mut c_int, flag: *mut c_int, status: *mut Status) -> c_int {
    test_any("MPI_Request_get_status_any", count, array_of_requests.cast_mut(), index, flag, status, false)
}

unsafe fn test_any(
    function: &'static str,
    count: c_int,
    requests: *mut Request,
    index: *mut c_int,
    flag: *mut c_int,
    status: *mut Status,
    consume: bool,
) -> c_int {
    let tested = array(count, requests).and_then(|requests| {
        room(index, "index")?;
        room(flag, "flag")?;
        request::test_any(requests, consume)
    });
    match tested {
        Ok(Some(any)) => {
            *flag = 1;
            end_any(function, any, index, status)
        }
        Ok(None) => {
            *flag = 0;
            *index = MPI_UNDEFINED;
            MPI_SUCCESS
        }
        Err(error) => fail_all(function, count, requests, error),
    }
}

fn room_for_some(requests: &[Request], outcount: *mut c_int, indices: *mut c_int) -> Result<()> {
    room(outcount, "outcount")?;
    if requests.is_empty() { Ok(()) } else { room(indices, "array_of_indices") }
}

unsafe fn end_some(function: &'static str, some: Option<request::Complete>, outcount: *mut c_int, indices: *mut c_int, statuses: *mut Status) -> c_int {
    let Some(some) = some else {
        *outcount = MPI_UNDEFINED;
        return MPI_SUCCESS;
    };
    *outcount = some.len() as c_int;
    for (at, (index, _)) in some.iter().enumerate() {
        *indices.add(at) = *index as c_int;
    }
    end_all(function, some.iter().map(|(_, completion)| completion), statuses)
}

pub unsafe fn MPI_Waitsome(
    incount: c_int,
    array_of_requests: *mut Request,
    outcount: *mut c_int,
    array_of_indices: *mut c_int,
    array_of_statuses: *mut Status,
) -> c_int {
    let waited = array(incount, array_of_requests).and_then(|requests| {
        room_for_some(requests, outcount, array_of_indices)?;
        request::wait_some("MPI_Waitsome", requests)
    });
    match waited {
        Ok(some) => end_some("MPI_Waitsome", some, outcount, array_of_indices, array_of_statuses),
        Err(error) => fail_all("MPI_Waitsome", incount, array_of_requests, error),
    }
}

pub unsafe fn MPI_Testsome(
    incount: c_int,
    array_of_requests: *mut Request,
    outcount: *mut c_int,
    array_of_indices: *mut c_int,
    array_of_statuses: *mut Status,
) -> c_int {
    test_some("MPI_Testsome", incount, array_of_requests, outcount, array_of_indices, array_of_statuses, true)
}

pub unsafe fn MPI_Request_get_status_some(
    incount: c_int,
    array_of_requests: *const Request,
    outcount: *mut c_int,
    array_of_indices: *mut c_int,
    array_of_statuses: *mut Status,
) -> c_int {
    test_some("MPI_Request_get_status_some", incount, array_of_requests.cast_mut(), outcount, array_of_indices, array_of_statuses, false)
}

unsafe fn test_some(
    function: &'static str,
    count: c_int,
    requests: *mut Request,
    outcount: *mut c_int,
    indices: *mut c_int,
    statuses: *mut Status,
    consume: bool,
) -> c_int {
    let tested = array(count, requests).and_then(|requests| {
        room_for_some(requests, outcount, indices)?;
        request::test_some(requests, consume)
    });
    match tested {
        Ok(Some(some)) => end_some(function, some, outcount, indices, statuses),
        Ok(None) => {
            *outcount = 0;
            MPI_SUCCESS
        }
        Err(error) => fail_all(function, count, requests, error),
    }
}

pub unsafe fn MPI_Request_free(request: *mut Request) -> c_int {
    finish("MPI_Request_free", place(request).and_then(request::free))
}

pub unsafe fn MPI_Cancel(request: *mut Request) -> c_int {
    let request = match load(request, "request") {
        Ok(request) => request,
        Err(error) => return fail("MPI_Cancel", error),
    };
    let on = request::comm_of(request).map_or(MPI_COMM_NULL, |c| c.handle());
    finish_on(on, "MPI_Cancel", request::cancel(request))
}

pub unsafe fn MPI_Start(request: *mut Request) -> c_int {
    match load(request, "request") {
        Ok(handle) => start("MPI_Start", handle),
        Err(error) => fail("MPI_Start", error),
    }
}

/// Starts a persistent request; an error is raised on its communicator.
fn start(function: &'static str, request: Request) -> c_int {
    let started = request::start(request);
    let on = if started.is_ok() { None } else { request::comm_of(request) };
    finish_on(on.map_or(MPI_COMM_NULL, |comm| comm.handle()), function, started)
}

pub unsafe fn MPI_Startall(count: c_int, array_of_requests: *mut Request) -> c_int {
    match array(count, array_of_requests) {
        Ok(all) => all.iter().map(|request| start("MPI_Startall", *request)).find(|code| *code != MPI_SUCCESS).unwrap_or(MPI_SUCCESS),
        Err(error) => fail("MPI_Startall", error),
    }
}

pub unsafe fn MPI_Grequest_start(
    query_fn: Option<GrequestQueryFunction>,
    free_fn: Option<GrequestFreeFunction>,
    cancel_fn: Option<GrequestCancelFunction>,
    extra_state: *mut c_void,
    request: *mut Request,
) -> c_int {
    let callbacks = Generalized { query: query_fn, free: free_fn, cancel: cancel_fn, extra_state };
    let made = room(request, "request").and_then(|()| request::grequest_start(callbacks));
    finish("MPI_Grequest_start", made.and_then(|made| store(request, "request", made)))
}

pub unsafe fn MPI_Grequest_complete(request: Request) -> c_int {
    finish("MPI_Grequest_complete", request::grequest_complete(request))
}
