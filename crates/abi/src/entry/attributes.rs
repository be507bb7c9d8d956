//! Attribute keys and attributes of communicators, datatypes and windows (MPI-5.0 §7.7), and their MPI-1 names (§16.1).
//!
//! The predefined copy callbacks are the addresses 0 and 1: they are compared, never called.

use crate::args::{load, room, store};
use crate::{finish, finish_on};
use mpi::attributes::{self, CopyFn, DeleteFn, Kind, Object};
use mpi::consts::*;
use mpi::error::Result;
use mpi::handle::*;
use mpi::{comm, datatype, errors, p2p, world};
use std::ffi::{c_int, c_void};
use std::sync::atomic::{AtomicI32, Ordering};

pub unsafe fn MPI_Comm_create_keyval(
    comm_copy_attr_fn: *const c_void,
    comm_delete_attr_fn: Option<CommDeleteAttrFunction>,
    comm_keyval: *mut c_int,
    extra_state: *mut c_void,
) -> c_int {
    let copy = match comm_copy_attr_fn as usize {
        MPI_COMM_NULL_COPY_FN => CopyFn::Null,
        MPI_COMM_DUP_FN => CopyFn::Dup,
        // SAFETY: neither predefined value, so the program's function.
        _ => CopyFn::Comm(unsafe { std::mem::transmute::<*const c_void, CommCopyAttrFunction>(comm_copy_attr_fn) }),
    };
    let delete = comm_delete_attr_fn.map_or(DeleteFn::Null, DeleteFn::Comm);
    let key = attributes::create_key(Kind::Comm, copy, delete, extra_state as usize);
    finish("MPI_Comm_create_keyval", key.and_then(|key| store(comm_keyval, "comm_keyval", key)))
}

pub unsafe fn MPI_Comm_free_keyval(comm_keyval: *mut c_int) -> c_int {
    finish("MPI_Comm_free_keyval", free_key(Kind::Comm, comm_keyval, "comm_keyval"))
}

pub unsafe fn MPI_Type_create_keyval(
    type_copy_attr_fn: *const c_void,
    type_delete_attr_fn: Option<TypeDeleteAttrFunction>,
    type_keyval: *mut c_int,
    extra_state: *mut c_void,
) -> c_int {
    let copy = match type_copy_attr_fn as usize {
        MPI_TYPE_NULL_COPY_FN => CopyFn::Null,
        MPI_TYPE_DUP_FN => CopyFn::Dup,
        // SAFETY: neither predefined value, so the program's function.
        _ => CopyFn::Type(unsafe { std::mem::transmute::<*const c_void, TypeCopyAttrFunction>(type_copy_attr_fn) }),
    };
    let delete = type_delete_attr_fn.map_or(DeleteFn::Null, DeleteFn::Type);
    let key = attributes::create_key(Kind::Type, copy, delete, extra_state as usize);
    finish("MPI_Type_create_keyval", key.and_then(|key| store(type_keyval, "type_keyval", key)))
}

pub unsafe fn MPI_Type_free_keyval(type_keyval: *mut c_int) -> c_int {
    finish("MPI_Type_free_keyval", free_key(Kind::Type, type_keyval, "type_keyval"))
}

pub unsafe fn MPI_Win_create_keyval(
    win_copy_attr_fn: *const c_void,
    win_delete_attr_fn: Option<WinDeleteAttrFunction>,
    win_keyval: *mut c_int,
    extra_state: *mut c_void,
) -> c_int {
    let copy = match win_copy_attr_fn as usize {
        MPI_WIN_NULL_COPY_FN => CopyFn::Null,
        MPI_WIN_DUP_FN => CopyFn::Dup,
        // SAFETY: neither predefined value, so the program's function.
        _ => CopyFn::Win(unsafe { std::mem::transmute::<*const c_void, WinCopyAttrFunction>(win_copy_attr_fn) }),
    };
    let delete = win_delete_attr_fn.map_or(DeleteFn::Null, DeleteFn::Win);
    let key = attributes::create_key(Kind::Win, copy, delete, extra_state as usize);
    finish("MPI_Win_create_keyval", key.and_then(|key| store(win_keyval, "win_keyval", key)))
}

pub unsafe fn MPI_Win_free_keyval(win_keyval: *mut c_int) -> c_int {
    finish("MPI_Win_free_keyval", free_key(Kind::Win, win_keyval, "win_keyval"))
}

/// Deprecated by [`MPI_Comm_create_keyval`].
pub unsafe fn MPI_Keyval_create(copy_fn: *const c_void, delete_fn: Option<DeleteFunction>, keyval: *mut c_int, extra_state: *mut c_void) -> c_int {
    MPI_Comm_create_keyval(copy_fn, delete_fn, keyval, extra_state)
}

/// Deprecated by [`MPI_Comm_free_keyval`].
pub unsafe fn MPI_Keyval_free(keyval: *mut c_int) -> c_int {
    MPI_Comm_free_keyval(keyval)
}

pub unsafe fn MPI_Comm_set_attr(comm: Comm, comm_keyval: c_int, attribute_val: *mut c_void) -> c_int {
    let set = comm::find(comm).and_then(|_| attributes::set(Object::Comm(comm), comm_keyval, attribute_val as usize));
    finish_on(comm, "MPI_Comm_set_attr", set)
}

/// `attribute_val` is the address of a pointer. For a predefined key the pointer is to an `int`.
pub unsafe fn MPI_Comm_get_attr(comm: Comm, comm_keyval: c_int, attribute_val: *mut c_void, flag: *mut c_int) -> c_int {
    let get = || -> Result<()> {
        comm::find(comm)?;
        let value = match predefined(comm_keyval)? {
            Some(place) => Some(place),
            None => attributes::value(Object::Comm(comm), comm_keyval)?,
        };
        store_value(value, attribute_val, flag)
    };
    finish_on(comm, "MPI_Comm_get_attr", get())
}

pub unsafe fn MPI_Comm_delete_attr(comm: Comm, comm_keyval: c_int) -> c_int {
    let deleted = comm::find(comm).and_then(|_| attributes::delete(Object::Comm(comm), comm_keyval));
    finish_on(comm, "MPI_Comm_delete_attr", deleted)
}

pub unsafe fn MPI_Type_set_attr(datatype: Datatype, type_keyval: c_int, attribute_val: *mut c_void) -> c_int {
    let set = datatype::lookup(datatype).and_then(|_| attributes::set(Object::Type(datatype), type_keyval, attribute_val as usize));
    finish("MPI_Type_set_attr", set)
}

/// `attribute_val` is the address of a pointer.
pub unsafe fn MPI_Type_get_attr(datatype: Datatype, type_keyval: c_int, attribute_val: *mut c_void, flag: *mut c_int) -> c_int {
    let value = datatype::lookup(datatype).and_then(|_| attributes::value(Object::Type(datatype), type_keyval));
    finish("MPI_Type_get_attr", value.and_then(|value| store_value(value, attribute_val, flag)))
}

pub unsafe fn MPI_Type_delete_attr(datatype: Datatype, type_keyval: c_int) -> c_int {
    let deleted = datatype::lookup(datatype).and_then(|_| attributes::delete(Object::Type(datatype), type_keyval));
    finish("MPI_Type_delete_attr", deleted)
}

/// Deprecated by [`MPI_Comm_set_attr`].
pub unsafe fn MPI_Attr_put(comm: Comm, keyval: c_int, attribute_val: *mut c_void) -> c_int {
    MPI_Comm_set_attr(comm, keyval, attribute_val)
}

/// Deprecated by [`MPI_Comm_get_attr`].
pub unsafe fn MPI_Attr_get(comm: Comm, keyval: c_int, attribute_val: *mut c_void, flag: *mut c_int) -> c_int {
    MPI_Comm_get_attr(comm, keyval, attribute_val, flag)
}

/// Deprecated by [`MPI_Comm_delete_attr`].
pub unsafe fn MPI_Attr_delete(comm: Comm, keyval: c_int) -> c_int {
    MPI_Comm_delete_attr(comm, keyval)
}

unsafe fn free_key(kind: Kind, place: *mut c_int, name: &str) -> Result<()> {
    attributes::free_key(kind, load(place, name)?)?;
    store(place, name, MPI_KEYVAL_INVALID)
}

pub(super) unsafe fn store_value(value: Option<usize>, place: *mut c_void, flag: *mut c_int) -> Result<()> {
    room(place, "attribute_val")?;
    if let Some(value) = value {
        store(place.cast::<usize>(), "attribute_val", value)?;
    }
    store(flag, "flag", c_int::from(value.is_some()))
}

/// What the predefined keys of communicators point to (MPI-5.0 §9.1.2); `None` for any other key.
fn predefined(key: c_int) -> Result<Option<usize>> {
    static TAG_UB: c_int = p2p::TAG_MAX;
    static IO: c_int = MPI_ANY_SOURCE;
    static HOST: c_int = MPI_PROC_NULL;
    static WTIME_IS_GLOBAL: c_int = 1;
    static APPNUM: AtomicI32 = AtomicI32::new(0);
    static UNIVERSE_SIZE: AtomicI32 = AtomicI32::new(0);
    static LASTUSEDCODE: AtomicI32 = AtomicI32::new(MPI_ERR_LASTCODE);
    let current = |place: &'static AtomicI32, value: c_int| {
        place.store(value, Ordering::Relaxed);
        place.as_ptr() as usize
    };
    let world = world::get()?;
    Ok(Some(match key {
        MPI_TAG_UB => &raw const TAG_UB as usize,
        MPI_IO => &raw const IO as usize,
        MPI_HOST => &raw const HOST as usize,
        MPI_WTIME_IS_GLOBAL => &raw const WTIME_IS_GLOBAL as usize,
        MPI_APPNUM => current(&APPNUM, world.process.appnum),
        MPI_UNIVERSE_SIZE => current(&UNIVERSE_SIZE, world.process.universe_size as c_int),
        MPI_LASTUSEDCODE => current(&LASTUSEDCODE, errors::last_used_code()),
        _ => return Ok(None),
    }))
}
