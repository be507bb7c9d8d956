//! Packing and unpacking, native and in "external32" (MPI-5.0 §5.2, §5.3).

use crate::args::{Number, bytes, load, store};
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

pub unsafe fn MPI_Pack<N: Number>(
    function: &'static str,
    inbuf: *const c_void,
    incount: N,
    datatype: Datatype,
    outbuf: *mut c_void,
    outsize: N,
    position: *mut N,
    comm: Comm,
) -> c_int {
    let run = || -> Result<()> {
        comm::find(comm)?;
        let packed = native(outbuf, outsize.wide(), load(position, "position")?.wide());
        // It is at most `outsize`.
        store(position, "position", N::or_undefined(pack(inbuf, incount.wide(), datatype, packed)?))
    };
    finish_on(comm, function, run())
}

pub unsafe fn MPI_Unpack<N: Number>(
    function: &'static str,
    inbuf: *const c_void,
    insize: N,
    position: *mut N,
    outbuf: *mut c_void,
    outcount: N,
    datatype: Datatype,
    comm: Comm,
) -> c_int {
    let run = || -> Result<()> {
        comm::find(comm)?;
        let packed = native(inbuf.cast_mut(), insize.wide(), load(position, "position")?.wide());
        store(position, "position", N::or_undefined(unpack(packed, outbuf, outcount.wide(), datatype)?))
    };
    finish_on(comm, function, run())
}

fn native(start: *mut c_void, size: i64, position: i64) -> Packed {
    Packed { start: start.cast(), size, position, representation: Representation::Native }
}

fn size(representation: Representation, incount: i64, datatype: Datatype) -> Result<i64> {
    let datatype: &Type = datatype::lookup(datatype)?;
    Ok(representation.bytes(datatype, elements("incount", incount)?)? as i64)
}

/// `MPI_UNDEFINED` where an `int` does not hold the size.
pub unsafe fn MPI_Pack_size<N: Number>(function: &'static str, incount: N, datatype: Datatype, comm: Comm, size_out: *mut N) -> c_int {
    let run = || -> Result<()> {
        comm::find(comm)?;
        let bytes = size(Representation::Native, incount.wide(), datatype)?;
        store(size_out, "size", N::or_undefined(bytes))
    };
    finish_on(comm, function, run())
}

unsafe fn packed_external(datarep: *const c_char, start: *mut c_void, size: i64, position: i64) -> Result<Packed> {
    Ok(Packed { start: start.cast(), size, position, representation: external(datarep)? })
}

pub unsafe fn MPI_Pack_external<N: Number, A: Number>(
    function: &'static str,
    datarep: *const c_char,
    inbuf: *const c_void,
    incount: N,
    datatype: Datatype,
    outbuf: *mut c_void,
    outsize: A,
    position: *mut A,
) -> c_int {
    let run = || -> Result<()> {
        let packed = packed_external(datarep, outbuf, outsize.wide(), load(position, "position")?.wide())?;
        store(position, "position", A::or_undefined(pack(inbuf, incount.wide(), datatype, packed)?))
    };
    finish(function, run())
}

pub unsafe fn MPI_Unpack_external<A: Number, N: Number>(
    function: &'static str,
    datarep: *const c_char,
    inbuf: *const c_void,
    insize: A,
    position: *mut A,
    outbuf: *mut c_void,
    outcount: N,
    datatype: Datatype,
) -> c_int {
    let run = || -> Result<()> {
        let packed = packed_external(datarep, inbuf.cast_mut(), insize.wide(), load(position, "position")?.wide())?;
        store(position, "position", A::or_undefined(unpack(packed, outbuf, outcount.wide(), datatype)?))
    };
    finish(function, run())
}

pub unsafe fn MPI_Pack_external_size<N: Number, A: Number>(
    function: &'static str,
    datarep: *const c_char,
    incount: N,
    datatype: Datatype,
    size_out: *mut A,
) -> c_int {
    let found = external(datarep).and_then(|form| size(form, incount.wide(), datatype));
    finish(function, found.and_then(|bytes| store(size_out, "size", A::or_undefined(bytes))))
}
