//! Packing and unpacking, native and in "external32" (MPI-5.0 §5.2, §5.3).

use crate::args::{bytes, load, store};
use crate::{finish, finish_on};
use mpi::comm;
use mpi::consts::*;
use mpi::datatype::{self, Packed, Representation, Type};
use mpi::error::{Error, Result};
use mpi::handle::{Comm, Datatype};
use std::ffi::{c_char, c_int, c_void};

fn elements(name: &str, count: i64) -> Result<usize> {
    usize::try_from(count).map_err(|_| Error::new(MPI_ERR_COUNT, format!("{name} is {count}, which is negative")))
}

unsafe fn external(datarep: *const c_char) -> Result<Representation> {
    match bytes(datarep, MPI_ERR_ARG, "datarep")? {
        b"external32" => Ok(Representation::External),
        other => {
            let other = String::from_utf8_lossy(other);
            Err(Error::new(MPI_ERR_ARG, format!("datarep is {other:?}, not \"external32\"")))
        }
    }
}

/// Packs `incount` elements; gives the new position.
unsafe fn pack(inbuf: *const c_void, incount: i64, datatype: Datatype, packed: Packed) -> Result<i64> {
    packed.pack(inbuf.cast(), elements("incount", incount)?, datatype::committed(datatype)?)
}

unsafe fn unpack(packed: Packed, outbuf: *mut c_void, outcount: i64, datatype: Datatype) -> Result<i64> {
    packed.unpack(outbuf.cast(), elements("outcount", outcount)?, datatype::committed(datatype)?)
}

pub unsafe fn MPI_Pack(
    inbuf: *const c_void,
    incount: c_int,
    datatype: Datatype,
    outbuf: *mut c_void,
    outsize: c_int,
    position: *mut c_int,
    comm: Comm,
) -> c_int {
    let run = || -> Result<()> {
        comm::find(comm)?;
        let packed = native(outbuf, outsize.into(), load(position, "position")?.into());
        // It is at most `outsize`.
        store(position, "position", pack(inbuf, incount.into(), datatype, packed)? as c_int)
    };
    finish_on(comm, "MPI_Pack", run())
}

pub unsafe fn MPI_Pack_c(inbuf: *const c_void, incount: i64, datatype: Datatype, outbuf: *mut c_void, outsize: i64, position: *mut i64, comm: Comm) -> c_int {
    let run = || -> Result<()> {
        comm::find(comm)?;
        let packed = native(outbuf, outsize, load(position, "position")?);
        store(position, "position", pack(inbuf, incount, datatype, packed)?)
    };
    finish_on(comm, "MPI_Pack_c", run())
}

pub unsafe fn MPI_Unpack(
    inbuf: *const c_void,
    insize: c_int,
    position: *mut c_int,
    outbuf: *mut c_void,
    outcount: c_int,
    datatype: Datatype,
    comm: Comm,
) -> c_int {
    let run = || -> Result<()> {
        comm::find(comm)?;
        let packed = native(inbuf.cast_mut(), insize.into(), load(position, "position")?.into());
        store(position, "position", unpack(packed, outbuf, outcount.into(), datatype)? as c_int)
    };
    finish_on(comm, "MPI_Unpack", run())
}

pub unsafe fn MPI_Unpack_c(inbuf: *const c_void, insize: i64, position: *mut i64, outbuf: *mut c_void, outcount: i64, datatype: Datatype, comm: Comm) -> c_int {
    let run = || -> Result<()> {
        comm::find(comm)?;
        let packed = native(inbuf.cast_mut(), insize, load(position, "position")?);
        store(position, "position", unpack(packed, outbuf, outcount, datatype)?)
    };
    finish_on(comm, "MPI_Unpack_c", run())
}

fn native(start: *mut c_void, size: i64, position: i64) -> Packed {
    Packed { start: start.cast(), size, position, representation: Representation::Native }
}

fn size(representation: Representation, incount: i64, datatype: Datatype) -> Result<i64> {
    let datatype: &Type = datatype::lookup(datatype)?;
    Ok(representation.bytes(datatype, elements("incount", incount)?)? as i64)
}

/// `MPI_UNDEFINED` where an `int` does not hold the size.
pub unsafe fn MPI_Pack_size(incount: c_int, datatype: Datatype, comm: Comm, size_out: *mut c_int) -> c_int {
    let run = || -> Result<()> {
        comm::find(comm)?;
        let bytes = size(Representation::Native, incount.into(), datatype)?;
        store(size_out, "size", c_int::try_from(bytes).unwrap_or(MPI_UNDEFINED))
    };
    finish_on(comm, "MPI_Pack_size", run())
}

pub unsafe fn MPI_Pack_size_c(incount: i64, datatype: Datatype, comm: Comm, size_out: *mut i64) -> c_int {
    let run = || -> Result<()> {
        comm::find(comm)?;
        store(size_out, "size", size(Representation::Native, incount, datatype)?)
    };
    finish_on(comm, "MPI_Pack_size_c", run())
}

unsafe fn packed_external(datarep: *const c_char, start: *mut c_void, size: i64, position: i64) -> Result<Packed> {
    Ok(Packed { start: start.cast(), size, position, representation: external(datarep)? })
}

pub unsafe fn MPI_Pack_external(
    datarep: *const c_char,
    inbuf: *const c_void,
    incount: c_int,
    datatype: Datatype,
    outbuf: *mut c_void,
    outsize: isize,
    position: *mut isize,
) -> c_int {
    let run = || -> Result<()> {
        let packed = packed_external(datarep, outbuf, outsize as i64, load(position, "position")? as i64)?;
        store(position, "position", pack(inbuf, incount.into(), datatype, packed)? as isize)
    };
    finish("MPI_Pack_external", run())
}

pub unsafe fn MPI_Pack_external_c(
    datarep: *const c_char,
    inbuf: *const c_void,
    incount: i64,
    datatype: Datatype,
    outbuf: *mut c_void,
    outsize: i64,
    position: *mut i64,
) -> c_int {
    let run = || -> Result<()> {
        let packed = packed_external(datarep, outbuf, outsize, load(position, "position")?)?;
        store(position, "position", pack(inbuf, incount, datatype, packed)?)
    };
    finish("MPI_Pack_external_c", run())
}

pub unsafe fn MPI_Unpack_external(
    datarep: *const c_char,
    inbuf: *const c_void,
    insize: isize,
    position: *mut isize,
    outbuf: *mut c_void,
    outcount: c_int,
    datatype: Datatype,
) -> c_int {
    let run = || -> Result<()> {
        let packed = packed_external(datarep, inbuf.cast_mut(), insize as i64, load(position, "position")? as i64)?;
        store(position, "position", unpack(packed, outbuf, outcount.into(), datatype)? as isize)
    };
    finish("MPI_Unpack_external", run())
}

pub unsafe fn MPI_Unpack_external_c(
    datarep: *const c_char,
    inbuf: *const c_void,
    insize: i64,
    position: *mut i64,
    outbuf: *mut c_void,
    outcount: i64,
    datatype: Datatype,
) -> c_int {
    let run = || -> Result<()> {
        let packed = packed_external(datarep, inbuf.cast_mut(), insize, load(position, "position")?)?;
        store(position, "position", unpack(packed, outbuf, outcount, datatype)?)
    };
    finish("MPI_Unpack_external_c", run())
}

pub unsafe fn MPI_Pack_external_size(datarep: *const c_char, incount: c_int, datatype: Datatype, size_out: *mut isize) -> c_int {
    let found = external(datarep).and_then(|form| size(form, incount.into(), datatype));
    finish("MPI_Pack_external_size", found.and_then(|bytes| store(size_out, "size", bytes as isize)))
}

pub unsafe fn MPI_Pack_external_size_c(datarep: *const c_char, incount: i64, datatype: Datatype, size_out: *mut i64) -> c_int {
    let found = external(datarep).and_then(|form| size(form, incount, datatype));
    finish("MPI_Pack_external_size_c", found.and_then(|bytes| store(size_out, "size", bytes)))
}
