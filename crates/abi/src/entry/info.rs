//! The info object (MPI-5.0 chapter 10).

use crate::args::{bytes, load, store, store_text};
use crate::finish;
use mpi::consts::*;
use mpi::error::{Error, Result};
use mpi::handle::Info;
use mpi::info::{self, Pairs};
use std::ffi::{c_char, c_int};

pub unsafe fn MPI_Info_create(info: *mut Info) -> c_int {
    finish("MPI_Info_create", info::create(Pairs::new()).and_then(|new| store(info, "info", new)))
}

pub unsafe fn MPI_Info_create_env(argc: c_int, argv: *mut *mut c_char, info: *mut Info) -> c_int {
    let create = || -> Result<()> {
        let pairs = if argc > 0 && !argv.is_null() {
            let arguments: Result<Vec<Vec<u8>>> = (0..argc as usize).map(|n| Ok(bytes(*argv.add(n), MPI_ERR_ARG, "argv")?.to_vec())).collect();
            info::environment_with(&arguments?)
        } else {
            info::environment()
        };
        store(info, "info", info::create(pairs)?)
    };
    finish("MPI_Info_create_env", create())
}

pub unsafe fn MPI_Info_dup(info: Info, newinfo: *mut Info) -> c_int {
    let copy = info::read(info, |pairs| Ok(pairs.clone())).and_then(info::create);
    finish("MPI_Info_dup", copy.and_then(|new| store(newinfo, "newinfo", new)))
}

pub unsafe fn MPI_Info_free(info: *mut Info) -> c_int {
    let freed = load(info, "info").and_then(info::free).and_then(|()| store(info, "info", MPI_INFO_NULL));
    finish("MPI_Info_free", freed)
}

pub unsafe fn MPI_Info_set(info: Info, key: *const c_char, value: *const c_char) -> c_int {
    let set = || -> Result<()> {
        let (key, value) = (bytes(key, MPI_ERR_INFO_KEY, "key")?, bytes(value, MPI_ERR_INFO_VALUE, "value")?);
        info::change(info, |pairs| pairs.set(key, value))
    };
    finish("MPI_Info_set", set())
}

pub unsafe fn MPI_Info_delete(info: Info, key: *const c_char) -> c_int {
    let deleted = bytes(key, MPI_ERR_INFO_KEY, "key").and_then(|key| info::change(info, |pairs| pairs.delete(key)));
    finish("MPI_Info_delete", deleted)
}

/// Deprecated by [`MPI_Info_get_string`]. `valuelen` leaves out the end of the string, so `value` has `valuelen + 1` bytes.
pub unsafe fn MPI_Info_get(info: Info, key: *const c_char, valuelen: c_int, value: *mut c_char, flag: *mut c_int) -> c_int {
    let get = || -> Result<()> {
        let capacity = usize::try_from(valuelen).map_err(|_| Error::new(MPI_ERR_ARG, format!("valuelen is {valuelen}")))?;
        look_up(info, key, flag, |text| store_text(value, "value", text, capacity + 1))
    };
    finish("MPI_Info_get", get())
}

/// Deprecated by [`MPI_Info_get_string`].
pub unsafe fn MPI_Info_get_valuelen(info: Info, key: *const c_char, valuelen: *mut c_int, flag: *mut c_int) -> c_int {
    finish("MPI_Info_get_valuelen", look_up(info, key, flag, |text| store(valuelen, "valuelen", text.len() as c_int)))
}

/// `buflen` counts the end of the string, on entry (the room) and on return (the need); a room of 0 only asks for the need.
pub unsafe fn MPI_Info_get_string(info: Info, key: *const c_char, buflen: *mut c_int, value: *mut c_char, flag: *mut c_int) -> c_int {
    let get = || -> Result<()> {
        let room = load(buflen, "buflen")?;
        let capacity = usize::try_from(room).map_err(|_| Error::new(MPI_ERR_ARG, format!("buflen is {room}")))?;
        look_up(info, key, flag, |text| {
            if capacity > 0 {
                store_text(value, "value", text, capacity)?;
            }
            store(buflen, "buflen", text.len() as c_int + 1)
        })
    };
    finish("MPI_Info_get_string", get())
}

pub unsafe fn MPI_Info_get_nkeys(info: Info, nkeys: *mut c_int) -> c_int {
    let count = info::read(info, |pairs| Ok(pairs.len() as c_int));
    finish("MPI_Info_get_nkeys", count.and_then(|count| store(nkeys, "nkeys", count)))
}

pub unsafe fn MPI_Info_get_nthkey(info: Info, n: c_int, key: *mut c_char) -> c_int {
    let found = info::read(info, |pairs| Ok(pairs.nth_key(n)?.to_vec()));
    finish("MPI_Info_get_nthkey", found.and_then(|text| store_text(key, "key", &text, MPI_MAX_INFO_KEY)))
}

/// Gives the value of a key to `found`, and to the caller whether there is one.
unsafe fn look_up(info: Info, key: *const c_char, flag: *mut c_int, found: impl FnOnce(&[u8]) -> Result<()>) -> Result<()> {
    let key = bytes(key, MPI_ERR_INFO_KEY, "key")?;
    let there = info::read(info, |pairs| match pairs.value(key)? {
        Some(value) => found(value).map(|()| true),
        None => Ok(false),
    })?;
    store(flag, "flag", c_int::from(there))
}
