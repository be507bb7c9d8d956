//! One-sided communication (MPI-5.0 chapter 12), and what windows have of chapters 7 and 9.

use super::attributes::store_value;
use super::coll::data;
use crate::args::{Number, bytes, load, room, store, store_text};
use crate::finish_on;
use mpi::attributes::{self, Object};
use mpi::collective::Data;
use mpi::consts::*;
use mpi::error::{Error, Result};
use mpi::handle::*;
use mpi::window::accumulate::{self, Accumulate};
use mpi::window::create::{self, Given};
use mpi::window::epoch::{self, Flush};
use mpi::window::exposure;
use mpi::window::target::Remote;
use mpi::window::transfer::{self, Direction};
use mpi::window::{self, hints};
use std::ffi::{c_char, c_int, c_void};

#[inline(always)]
fn finish(win: Win, function: &str, result: Result<()>) -> c_int {
    mpi::tool::settle();
    match result {
        Ok(()) => MPI_SUCCESS,
        Err(error) => raise(win, function, error),
    }
}

#[cold]
#[inline(never)]
fn raise(win: Win, function: &str, error: Box<Error>) -> c_int {
    window::raise(win, function, &error)
}

/// Makes a window; `baseptr` is the address of a pointer, where the library gives memory out.
unsafe fn make(function: &'static str, given: Given, info: Info, comm: Comm, baseptr: Option<*mut c_void>, win: *mut Win) -> c_int {
    let checked = room(win, "win").and_then(|()| baseptr.map_or(Ok(()), |place| room(place, "baseptr")));
    let made = checked.and_then(|()| create::create(function, given, info, comm)).map(|(made, base)| {
        if let Some(place) = baseptr {
            place.cast::<usize>().write(base);
        }
        *win = made;
    });
    finish_on(comm, function, made)
}

pub unsafe fn MPI_Win_create<N: Number>(function: &'static str, base: *mut c_void, size: isize, disp_unit: N, info: Info, comm: Comm, win: *mut Win) -> c_int {
    let given = Given { flavor: MPI_WIN_FLAVOR_CREATE, base: base as usize, size: size as i64, unit: disp_unit.wide() };
    make(function, given, info, comm, None, win)
}

pub unsafe fn MPI_Win_allocate<N: Number>(
    function: &'static str,
    size: isize,
    disp_unit: N,
    info: Info,
    comm: Comm,
    baseptr: *mut c_void,
    win: *mut Win,
) -> c_int {
    let given = Given { flavor: MPI_WIN_FLAVOR_ALLOCATE, base: 0, size: size as i64, unit: disp_unit.wide() };
    make(function, given, info, comm, Some(baseptr), win)
}

pub unsafe fn MPI_Win_allocate_shared<N: Number>(
    function: &'static str,
    size: isize,
    disp_unit: N,
    info: Info,
    comm: Comm,
    baseptr: *mut c_void,
    win: *mut Win,
) -> c_int {
    let given = Given { flavor: MPI_WIN_FLAVOR_SHARED, base: 0, size: size as i64, unit: disp_unit.wide() };
    make(function, given, info, comm, Some(baseptr), win)
}

pub unsafe fn MPI_Win_create_dynamic(info: Info, comm: Comm, win: *mut Win) -> c_int {
    let given = Given { flavor: MPI_WIN_FLAVOR_DYNAMIC, base: 0, size: 0, unit: 1 };
    make("MPI_Win_create_dynamic", given, info, comm, None, win)
}

pub unsafe fn MPI_Win_free(win: *mut Win) -> c_int {
    let function = "MPI_Win_free";
    match load(win, "win") {
        Ok(handle) => {
            let freed = create::free(handle);
            if freed.is_ok() {
                *win = MPI_WIN_NULL;
            }
            finish(handle, function, freed)
        }
        Err(error) => finish(MPI_WIN_NULL, function, Err(error)),
    }
}

pub unsafe fn MPI_Win_attach(win: Win, base: *mut c_void, size: isize) -> c_int {
    finish(win, "MPI_Win_attach", create::attach(win, base as usize, size as i64))
}

pub unsafe fn MPI_Win_detach(win: Win, base: *const c_void) -> c_int {
    finish(win, "MPI_Win_detach", create::detach(win, base as usize))
}

pub unsafe fn MPI_Win_shared_query<N: Number>(
    function: &'static str,
    win: Win,
    rank: c_int,
    size: *mut isize,
    disp_unit: *mut N,
    baseptr: *mut c_void,
) -> c_int {
    let checked = room(size, "size").and_then(|()| room(disp_unit, "disp_unit")).and_then(|()| room(baseptr, "baseptr"));
    let told = checked.and_then(|()| create::shared_query(win, rank)).map(|(bytes, unit, start)| {
        *size = bytes as isize;
        *disp_unit = N::or_undefined(unit.into());
        baseptr.cast::<usize>().write(start);
    });
    finish(win, function, told)
}

pub unsafe fn MPI_Win_get_group(win: Win, group: *mut Group) -> c_int {
    let got = room(group, "group").and_then(|()| window::group(win));
    finish(win, "MPI_Win_get_group", got.map(|got| *group = got))
}

pub unsafe fn MPI_Win_set_info(win: Win, info: Info) -> c_int {
    finish(win, "MPI_Win_set_info", hints::set_info(win, info))
}

pub unsafe fn MPI_Win_get_info(win: Win, info_used: *mut Info) -> c_int {
    let got = room(info_used, "info_used").and_then(|()| hints::info(win));
    finish(win, "MPI_Win_get_info", got.map(|got| *info_used = got))
}

// ---- names, attributes, error handlers

pub unsafe fn MPI_Win_set_name(win: Win, win_name: *const c_char) -> c_int {
    let set = window::find(win).and_then(|window| bytes(win_name, MPI_ERR_ARG, "win_name").map(|name| window.set_name(name)));
    finish(win, "MPI_Win_set_name", set)
}

pub unsafe fn MPI_Win_get_name(win: Win, win_name: *mut c_char, resultlen: *mut c_int) -> c_int {
    // The null handle has its name, too (MPI-5.0 §7.8).
    let known = if win == MPI_WIN_NULL { Ok(b"MPI_WIN_NULL".to_vec()) } else { window::find(win).map(window::Window::name) };
    let told = known.and_then(|name| {
        store_text(win_name, "win_name", &name, MPI_MAX_OBJECT_NAME)?;
        store(resultlen, "resultlen", name.len() as c_int)
    });
    finish(win, "MPI_Win_get_name", told)
}

pub unsafe fn MPI_Win_set_attr(win: Win, win_keyval: c_int, attribute_val: *mut c_void) -> c_int {
    let set = window::find(win).and_then(|_| attributes::set(Object::Win(win), win_keyval, attribute_val as usize));
    finish(win, "MPI_Win_set_attr", set)
}

/// `attribute_val` is the address of a pointer. The base of a window is that pointer; of other predefined keys it points to a number.
pub unsafe fn MPI_Win_get_attr(win: Win, win_keyval: c_int, attribute_val: *mut c_void, flag: *mut c_int) -> c_int {
    let get = || -> Result<()> {
        let value = match window::attribute(window::find(win)?, win_keyval) {
            Some(place) => Some(place),
            None => attributes::value(Object::Win(win), win_keyval)?,
        };
        store_value(value, attribute_val, flag)
    };
    finish(win, "MPI_Win_get_attr", get())
}

pub unsafe fn MPI_Win_delete_attr(win: Win, win_keyval: c_int) -> c_int {
    let deleted = window::find(win).and_then(|_| attributes::delete(Object::Win(win), win_keyval));
    finish(win, "MPI_Win_delete_attr", deleted)
}

pub unsafe fn MPI_Win_set_errhandler(win: Win, errhandler: Errhandler) -> c_int {
    finish(win, "MPI_Win_set_errhandler", window::find(win).and_then(|window| window.set_errhandler(errhandler)))
}

pub unsafe fn MPI_Win_get_errhandler(win: Win, errhandler: *mut Errhandler) -> c_int {
    let got = room(errhandler, "errhandler").and_then(|()| window::find(win)?.errhandler());
    finish(win, "MPI_Win_get_errhandler", got.map(|got| *errhandler = got))
}

pub unsafe fn MPI_Win_call_errhandler(win: Win, errorcode: c_int) -> c_int {
    let function = "MPI_Win_call_errhandler";
    let called = window::find(win).map(|_| {
        window::raise(win, function, &Error { class: errorcode, detail: format!("called with code {errorcode}") });
    });
    finish(win, function, called)
}

// ---- put and get

fn remote(rank: c_int, displacement: isize, count: impl Number, datatype: Datatype) -> Remote {
    Remote { rank, displacement: displacement as i64, count: count.wide(), datatype }
}

unsafe fn request_for(win: Win, function: &str, request: *mut Request, start: impl FnOnce() -> Result<Request>) -> c_int {
    let started = room(request, "request").and_then(|()| start());
    finish(win, function, started.map(|started| *request = started))
}

pub unsafe fn MPI_Put<N: Number>(
    function: &'static str,
    origin_addr: *const c_void,
    origin_count: N,
    origin_datatype: Datatype,
    target_rank: c_int,
    target_disp: isize,
    target_count: N,
    target_datatype: Datatype,
    win: Win,
) -> c_int {
    let origin = data(origin_addr, origin_count, origin_datatype);
    finish(win, function, transfer::run(function, win, Direction::Put, origin, remote(target_rank, target_disp, target_count, target_datatype)))
}

pub unsafe fn MPI_Get<N: Number>(
    function: &'static str,
    origin_addr: *mut c_void,
    origin_count: N,
    origin_datatype: Datatype,
    target_rank: c_int,
    target_disp: isize,
    target_count: N,
    target_datatype: Datatype,
    win: Win,
) -> c_int {
    let origin = data(origin_addr, origin_count, origin_datatype);
    finish(win, function, transfer::run(function, win, Direction::Get, origin, remote(target_rank, target_disp, target_count, target_datatype)))
}

pub unsafe fn MPI_Rput<N: Number>(
    function: &'static str,
    origin_addr: *const c_void,
    origin_count: N,
    origin_datatype: Datatype,
    target_rank: c_int,
    target_disp: isize,
    target_count: N,
    target_datatype: Datatype,
    win: Win,
    request: *mut Request,
) -> c_int {
    let (origin, target) = (data(origin_addr, origin_count, origin_datatype), remote(target_rank, target_disp, target_count, target_datatype));
    request_for(win, function, request, || transfer::start(function, win, Direction::Put, origin, target))
}

pub unsafe fn MPI_Rget<N: Number>(
    function: &'static str,
    origin_addr: *mut c_void,
    origin_count: N,
    origin_datatype: Datatype,
    target_rank: c_int,
    target_disp: isize,
    target_count: N,
    target_datatype: Datatype,
    win: Win,
    request: *mut Request,
) -> c_int {
    let (origin, target) = (data(origin_addr, origin_count, origin_datatype), remote(target_rank, target_disp, target_count, target_datatype));
    request_for(win, function, request, || transfer::start(function, win, Direction::Get, origin, target))
}

// ---- accumulation

pub unsafe fn MPI_Accumulate<N: Number>(
    function: &'static str,
    origin_addr: *const c_void,
    origin_count: N,
    origin_datatype: Datatype,
    target_rank: c_int,
    target_disp: isize,
    target_count: N,
    target_datatype: Datatype,
    op: Op,
    win: Win,
) -> c_int {
    let call = Accumulate { op, origin: data(origin_addr, origin_count, origin_datatype), result: None };
    finish(win, function, accumulate::run(function, win, call, remote(target_rank, target_disp, target_count, target_datatype)))
}

pub unsafe fn MPI_Raccumulate<N: Number>(
    function: &'static str,
    origin_addr: *const c_void,
    origin_count: N,
    origin_datatype: Datatype,
    target_rank: c_int,
    target_disp: isize,
    target_count: N,
    target_datatype: Datatype,
    op: Op,
    win: Win,
    request: *mut Request,
) -> c_int {
    let call = Accumulate { op, origin: data(origin_addr, origin_count, origin_datatype), result: None };
    let target = remote(target_rank, target_disp, target_count, target_datatype);
    request_for(win, function, request, || accumulate::start(function, win, call, target))
}

pub unsafe fn MPI_Get_accumulate<N: Number>(
    function: &'static str,
    origin_addr: *const c_void,
    origin_count: N,
    origin_datatype: Datatype,
    result_addr: *mut c_void,
    result_count: N,
    result_datatype: Datatype,
    target_rank: c_int,
    target_disp: isize,
    target_count: N,
    target_datatype: Datatype,
    op: Op,
    win: Win,
) -> c_int {
    let result = Some(data(result_addr, result_count, result_datatype));
    let call = Accumulate { op, origin: data(origin_addr, origin_count, origin_datatype), result };
    finish(win, function, accumulate::run(function, win, call, remote(target_rank, target_disp, target_count, target_datatype)))
}

pub unsafe fn MPI_Rget_accumulate<N: Number>(
    function: &'static str,
    origin_addr: *const c_void,
    origin_count: N,
    origin_datatype: Datatype,
    result_addr: *mut c_void,
    result_count: N,
    result_datatype: Datatype,
    target_rank: c_int,
    target_disp: isize,
    target_count: N,
    target_datatype: Datatype,
    op: Op,
    win: Win,
    request: *mut Request,
) -> c_int {
    let result = Some(data(result_addr, result_count, result_datatype));
    let call = Accumulate { op, origin: data(origin_addr, origin_count, origin_datatype), result };
    let target = remote(target_rank, target_disp, target_count, target_datatype);
    request_for(win, function, request, || accumulate::start(function, win, call, target))
}

/// One element.
fn one(start: *const c_void, datatype: Datatype) -> Data {
    data(start, 1 as c_int, datatype)
}

pub unsafe fn MPI_Fetch_and_op(
    origin_addr: *const c_void,
    result_addr: *mut c_void,
    datatype: Datatype,
    target_rank: c_int,
    target_disp: isize,
    op: Op,
    win: Win,
) -> c_int {
    let call = Accumulate { op, origin: one(origin_addr, datatype), result: Some(one(result_addr, datatype)) };
    let target = remote(target_rank, target_disp, 1 as c_int, datatype);
    finish(win, "MPI_Fetch_and_op", accumulate::fetch_and_op(win, call, target))
}

pub unsafe fn MPI_Compare_and_swap(
    origin_addr: *const c_void,
    compare_addr: *const c_void,
    result_addr: *mut c_void,
    datatype: Datatype,
    target_rank: c_int,
    target_disp: isize,
    win: Win,
) -> c_int {
    let [origin, compare, result] = [origin_addr, compare_addr, result_addr.cast_const()].map(|start| one(start, datatype));
    finish(win, "MPI_Compare_and_swap", accumulate::compare_and_swap(win, origin, compare, result, target_rank, target_disp as i64))
}

// ---- synchronization

pub unsafe fn MPI_Win_fence(assert: c_int, win: Win) -> c_int {
    finish(win, "MPI_Win_fence", epoch::fence_all(win, assert))
}

pub unsafe fn MPI_Win_post(group: Group, assert: c_int, win: Win) -> c_int {
    finish(win, "MPI_Win_post", exposure::post(win, group, assert))
}

pub unsafe fn MPI_Win_start(group: Group, assert: c_int, win: Win) -> c_int {
    finish(win, "MPI_Win_start", exposure::start(win, group, assert))
}

pub unsafe fn MPI_Win_complete(win: Win) -> c_int {
    finish(win, "MPI_Win_complete", exposure::complete(win))
}

pub unsafe fn MPI_Win_wait(win: Win) -> c_int {
    finish(win, "MPI_Win_wait", exposure::wait(win))
}

pub unsafe fn MPI_Win_test(win: Win, flag: *mut c_int) -> c_int {
    let tested = room(flag, "flag").and_then(|()| exposure::test(win));
    finish(win, "MPI_Win_test", tested.map(|over| *flag = c_int::from(over)))
}

pub unsafe fn MPI_Win_lock(lock_type: c_int, rank: c_int, assert: c_int, win: Win) -> c_int {
    finish(win, "MPI_Win_lock", epoch::lock_one(win, lock_type, rank, assert))
}

pub unsafe fn MPI_Win_unlock(rank: c_int, win: Win) -> c_int {
    finish(win, "MPI_Win_unlock", epoch::unlock_one(win, rank))
}

pub unsafe fn MPI_Win_lock_all(assert: c_int, win: Win) -> c_int {
    finish(win, "MPI_Win_lock_all", epoch::lock_all(win, assert))
}

pub unsafe fn MPI_Win_unlock_all(win: Win) -> c_int {
    finish(win, "MPI_Win_unlock_all", epoch::unlock_all(win))
}

#[inline(always)]
fn flush(function: &'static str, win: Win, rank: Option<c_int>, local: bool) -> c_int {
    finish(win, function, epoch::flush(function, win, Flush { rank, local }))
}

pub unsafe fn MPI_Win_flush(rank: c_int, win: Win) -> c_int {
    flush("MPI_Win_flush", win, Some(rank), false)
}

pub unsafe fn MPI_Win_flush_all(win: Win) -> c_int {
    flush("MPI_Win_flush_all", win, None, false)
}

pub unsafe fn MPI_Win_flush_local(rank: c_int, win: Win) -> c_int {
    flush("MPI_Win_flush_local", win, Some(rank), true)
}

pub unsafe fn MPI_Win_flush_local_all(win: Win) -> c_int {
    flush("MPI_Win_flush_local_all", win, None, true)
}

pub unsafe fn MPI_Win_sync(win: Win) -> c_int {
    finish(win, "MPI_Win_sync", epoch::sync(win))
}
