//! Files (MPI-5.0 chapter 14) but for data access, and their error handlers (§9.3.3, §14.7).

use crate::args::{Number, bytes, load, store, store_text};
use mpi::consts::*;
use mpi::error::{Error, Result};
use mpi::file::datarep::{self, Conversion};
use mpi::file::{self, manage, open};
use mpi::handle::*;
use std::ffi::{c_char, c_int, c_void};

pub(super) fn finish(file: File, function: &str, result: Result<()>) -> c_int {
    mpi::tool::settle();
    result.map_or_else(|error| file::raise(file, function, &error), |()| MPI_SUCCESS)
}

pub unsafe fn MPI_File_set_errhandler(file: File, errhandler: Errhandler) -> c_int {
    finish(file, "MPI_File_set_errhandler", file::set_errhandler(file, errhandler))
}

pub unsafe fn MPI_File_get_errhandler(file: File, errhandler: *mut Errhandler) -> c_int {
    let got = file::errhandler(file).and_then(|handler| store(errhandler, "errhandler", handler));
    finish(file, "MPI_File_get_errhandler", got)
}

pub unsafe fn MPI_File_call_errhandler(fh: File, errorcode: c_int) -> c_int {
    let function = "MPI_File_call_errhandler";
    let called = file::check(fh).map(|()| {
        file::raise(fh, function, &Error { class: errorcode, detail: format!("called with code {errorcode}") });
    });
    finish(fh, function, called)
}

pub unsafe fn MPI_File_open(comm: Comm, filename: *const c_char, amode: c_int, info: Info, fh: *mut File) -> c_int {
    let opened = bytes(filename, MPI_ERR_ARG, "filename").and_then(|name| {
        crate::args::room(fh, "fh")?;
        open::open(comm, name, amode, info)
    });
    finish(MPI_FILE_NULL, "MPI_File_open", opened.map(|opened| *fh = opened))
}

pub unsafe fn MPI_File_close(fh: *mut File) -> c_int {
    let function = "MPI_File_close";
    match load(fh, "fh") {
        Ok(handle) => {
            let closed = open::close(handle);
            if closed.is_ok() || file::find(handle).is_err() {
                *fh = MPI_FILE_NULL;
            }
            finish(handle, function, closed)
        }
        Err(error) => finish(MPI_FILE_NULL, function, Err(error)),
    }
}

pub unsafe fn MPI_File_delete(filename: *const c_char, info: Info) -> c_int {
    let deleted = bytes(filename, MPI_ERR_ARG, "filename").and_then(|name| open::delete(name, info));
    finish(MPI_FILE_NULL, "MPI_File_delete", deleted)
}

pub unsafe fn MPI_File_set_size(fh: File, size: i64) -> c_int {
    finish(fh, "MPI_File_set_size", manage::set_size(fh, size))
}

pub unsafe fn MPI_File_preallocate(fh: File, size: i64) -> c_int {
    finish(fh, "MPI_File_preallocate", manage::preallocate(fh, size))
}

pub unsafe fn MPI_File_get_size(fh: File, size: *mut i64) -> c_int {
    finish(fh, "MPI_File_get_size", manage::size(fh).and_then(|bytes| store(size, "size", bytes)))
}

pub unsafe fn MPI_File_get_group(fh: File, group: *mut Group) -> c_int {
    let got = crate::args::room(group, "group").and_then(|()| manage::group(fh));
    finish(fh, "MPI_File_get_group", got.map(|got| *group = got))
}

pub unsafe fn MPI_File_get_amode(fh: File, amode: *mut c_int) -> c_int {
    finish(fh, "MPI_File_get_amode", manage::amode(fh).and_then(|got| store(amode, "amode", got)))
}

pub unsafe fn MPI_File_set_info(fh: File, info: Info) -> c_int {
    finish(fh, "MPI_File_set_info", manage::set_info(fh, info))
}

pub unsafe fn MPI_File_get_info(fh: File, info_used: *mut Info) -> c_int {
    let got = crate::args::room(info_used, "info_used").and_then(|()| manage::info(fh));
    finish(fh, "MPI_File_get_info", got.map(|got| *info_used = got))
}

pub unsafe fn MPI_File_set_view(fh: File, disp: i64, etype: Datatype, filetype: Datatype, datarep: *const c_char, info: Info) -> c_int {
    let set = bytes(datarep, MPI_ERR_ARG, "datarep").and_then(|name| manage::set_view(fh, disp, etype, filetype, name, info));
    finish(fh, "MPI_File_set_view", set)
}

pub unsafe fn MPI_File_get_view(fh: File, disp: *mut i64, etype: *mut Datatype, filetype: *mut Datatype, datarep: *mut c_char) -> c_int {
    let got = crate::args::room(disp, "disp")
        .and_then(|()| crate::args::room(etype, "etype"))
        .and_then(|()| crate::args::room(filetype, "filetype"))
        .and_then(|()| crate::args::room(datarep, "datarep"))
        .and_then(|()| manage::view(fh))
        .and_then(|(displacement, elementary, tile, name)| {
            *disp = displacement;
            *etype = elementary;
            *filetype = tile;
            store_text(datarep, "datarep", &name, MPI_MAX_DATAREP_STRING)
        });
    finish(fh, "MPI_File_get_view", got)
}

pub unsafe fn MPI_File_seek(fh: File, offset: i64, whence: c_int) -> c_int {
    finish(fh, "MPI_File_seek", manage::seek(fh, offset, whence))
}

pub unsafe fn MPI_File_get_position(fh: File, offset: *mut i64) -> c_int {
    finish(fh, "MPI_File_get_position", manage::position(fh).and_then(|at| store(offset, "offset", at)))
}

pub unsafe fn MPI_File_get_byte_offset(fh: File, offset: i64, disp: *mut i64) -> c_int {
    finish(fh, "MPI_File_get_byte_offset", manage::byte_offset(fh, offset).and_then(|at| store(disp, "disp", at)))
}

pub unsafe fn MPI_File_seek_shared(fh: File, offset: i64, whence: c_int) -> c_int {
    finish(fh, "MPI_File_seek_shared", manage::seek_shared(fh, offset, whence))
}

pub unsafe fn MPI_File_get_position_shared(fh: File, offset: *mut i64) -> c_int {
    finish(fh, "MPI_File_get_position_shared", manage::position_shared(fh).and_then(|at| store(offset, "offset", at)))
}

pub unsafe fn MPI_File_get_type_extent<A: Number>(function: &'static str, fh: File, datatype: Datatype, extent: *mut A) -> c_int {
    let got = manage::type_extent(fh, datatype).and_then(|bytes| store(extent, "extent", A::or_undefined(bytes)));
    finish(fh, function, got)
}

pub unsafe fn MPI_File_set_atomicity(fh: File, flag: c_int) -> c_int {
    finish(fh, "MPI_File_set_atomicity", manage::set_atomicity(fh, flag != 0))
}

pub unsafe fn MPI_File_get_atomicity(fh: File, flag: *mut c_int) -> c_int {
    finish(fh, "MPI_File_get_atomicity", manage::atomicity(fh).and_then(|atomic| store(flag, "flag", c_int::from(atomic))))
}

pub unsafe fn MPI_File_sync(fh: File) -> c_int {
    finish(fh, "MPI_File_sync", manage::sync(fh))
}

unsafe fn register(
    function: &str,
    datarep: *const c_char,
    read: Conversion,
    write: Conversion,
    extent: Option<DatarepExtentFunction>,
    extra_state: *mut c_void,
) -> c_int {
    let registered = bytes(datarep, MPI_ERR_ARG, "datarep").and_then(|name| datarep::register(name, read, write, extent, extra_state));
    finish(MPI_FILE_NULL, function, registered)
}

pub unsafe fn MPI_Register_datarep(
    datarep: *const c_char,
    read_conversion_fn: Option<DatarepConversionFunction>,
    write_conversion_fn: Option<DatarepConversionFunction>,
    dtype_file_extent_fn: Option<DatarepExtentFunction>,
    extra_state: *mut c_void,
) -> c_int {
    let (read, write) = (Conversion::Small(read_conversion_fn), Conversion::Small(write_conversion_fn));
    register("MPI_Register_datarep", datarep, read, write, dtype_file_extent_fn, extra_state)
}

pub unsafe fn MPI_Register_datarep_c(
    datarep: *const c_char,
    read_conversion_fn: Option<DatarepConversionFunctionC>,
    write_conversion_fn: Option<DatarepConversionFunctionC>,
    dtype_file_extent_fn: Option<DatarepExtentFunction>,
    extra_state: *mut c_void,
) -> c_int {
    let (read, write) = (Conversion::Large(read_conversion_fn), Conversion::Large(write_conversion_fn));
    register("MPI_Register_datarep_c", datarep, read, write, dtype_file_extent_fn, extra_state)
}
