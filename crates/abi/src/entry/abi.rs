//! The ABI chapter (MPI-5.0 chapter 20): what is known of the ABI and of Fortran, and handles as integers.
//!
//! Every handle of this library, predefined or not, is at most `i32::MAX`, so that its integer is its value.

use crate::args::store;
use crate::finish;
use mpi::consts::*;
use mpi::error::{Error, Result};
use mpi::handle::*;
use mpi::info::{self, Pairs};
use std::ffi::{c_int, c_void};
use std::sync::{Mutex, MutexGuard};

/// Largest Fortran `LOGICAL`, in bytes.
const LOGICAL_BYTES_MAX: usize = 16;

/// Sizes of the ABI's integers, in bytes.
pub unsafe fn MPI_Abi_get_info(info: *mut Info) -> c_int {
    let create = || -> Result<()> {
        let mut pairs = Pairs::new();
        pairs.set(b"mpi_aint_size", size_of::<isize>().to_string().as_bytes())?;
        pairs.set(b"mpi_count_size", size_of::<i64>().to_string().as_bytes())?;
        pairs.set(b"mpi_offset_size", size_of::<i64>().to_string().as_bytes())?;
        store(info, "info", info::create(pairs)?)
    };
    finish("MPI_Abi_get_info", create())
}

/// A copy of what `MPI_Abi_set_fortran_info` was given, or `MPI_INFO_NULL` while the Fortran compiler is unknown.
pub unsafe fn MPI_Abi_get_fortran_info(info: *mut Info) -> c_int {
    let known = fortran().pairs.clone();
    let copy = known.map_or(Ok(MPI_INFO_NULL), info::create);
    finish("MPI_Abi_get_fortran_info", copy.and_then(|copy| store(info, "info", copy)))
}

/// Only the first call counts; later ones give `MPI_ERR_ABI`.
pub unsafe fn MPI_Abi_set_fortran_info(info: Info) -> c_int {
    let set = || -> Result<()> {
        let pairs = info::read(info, |pairs| Ok(pairs.clone()))?;
        let mut fortran = fortran();
        if fortran.pairs.is_some() {
            return Err(Error::new(MPI_ERR_ABI, "the Fortran properties are already set"));
        }
        fortran.pairs = Some(pairs);
        Ok(())
    };
    finish("MPI_Abi_set_fortran_info", set())
}

/// The values last set for a `LOGICAL` of this size; `is_set` is false when there are none.
pub unsafe fn MPI_Abi_get_fortran_booleans(logical_size: c_int, logical_true: *mut c_void, logical_false: *mut c_void, is_set: *mut c_int) -> c_int {
    let get = || -> Result<()> {
        let bytes = logical_bytes(logical_size)?;
        let known = fortran().booleans.filter(|known| known.bytes == bytes);
        if let Some(known) = known {
            copy_out(&known.truth[..bytes], logical_true, "logical_true")?;
            copy_out(&known.falsehood[..bytes], logical_false, "logical_false")?;
        }
        store(is_set, "is_set", c_int::from(known.is_some()))
    };
    finish("MPI_Abi_get_fortran_booleans", get())
}

/// Only the first call counts; later ones give `MPI_ERR_ABI`.
pub unsafe fn MPI_Abi_set_fortran_booleans(logical_size: c_int, logical_true: *mut c_void, logical_false: *mut c_void) -> c_int {
    let set = || -> Result<()> {
        let bytes = logical_bytes(logical_size)?;
        let mut booleans = Booleans { bytes, truth: [0; LOGICAL_BYTES_MAX], falsehood: [0; LOGICAL_BYTES_MAX] };
        copy_in(logical_true, &mut booleans.truth[..bytes], "logical_true")?;
        copy_in(logical_false, &mut booleans.falsehood[..bytes], "logical_false")?;
        let mut fortran = fortran();
        if fortran.booleans.is_some() {
            return Err(Error::new(MPI_ERR_ABI, "the Fortran booleans are already set"));
        }
        fortran.booleans = Some(booleans);
        Ok(())
    };
    finish("MPI_Abi_set_fortran_booleans", set())
}

pub unsafe fn MPI_Comm_toint(comm: Comm) -> c_int {
    to_int(comm.0)
}

pub unsafe fn MPI_Comm_fromint(comm: c_int) -> Comm {
    Comm(from_int(comm))
}

pub unsafe fn MPI_Errhandler_toint(errhandler: Errhandler) -> c_int {
    to_int(errhandler.0)
}

pub unsafe fn MPI_Errhandler_fromint(errhandler: c_int) -> Errhandler {
    Errhandler(from_int(errhandler))
}

pub unsafe fn MPI_File_toint(file: File) -> c_int {
    to_int(file.0)
}

pub unsafe fn MPI_File_fromint(file: c_int) -> File {
    File(from_int(file))
}

pub unsafe fn MPI_Group_toint(group: Group) -> c_int {
    to_int(group.0)
}

pub unsafe fn MPI_Group_fromint(group: c_int) -> Group {
    Group(from_int(group))
}

pub unsafe fn MPI_Info_toint(info: Info) -> c_int {
    to_int(info.0)
}

pub unsafe fn MPI_Info_fromint(info: c_int) -> Info {
    Info(from_int(info))
}

pub unsafe fn MPI_Message_toint(message: Message) -> c_int {
    to_int(message.0)
}

pub unsafe fn MPI_Message_fromint(message: c_int) -> Message {
    Message(from_int(message))
}

pub unsafe fn MPI_Op_toint(op: Op) -> c_int {
    to_int(op.0)
}

pub unsafe fn MPI_Op_fromint(op: c_int) -> Op {
    Op(from_int(op))
}

pub unsafe fn MPI_Request_toint(request: Request) -> c_int {
    to_int(request.0)
}

pub unsafe fn MPI_Request_fromint(request: c_int) -> Request {
    Request(from_int(request))
}

pub unsafe fn MPI_Session_toint(session: Session) -> c_int {
    to_int(session.0)
}

pub unsafe fn MPI_Session_fromint(session: c_int) -> Session {
    Session(from_int(session))
}

pub unsafe fn MPI_Type_toint(datatype: Datatype) -> c_int {
    to_int(datatype.0)
}

pub unsafe fn MPI_Type_fromint(datatype: c_int) -> Datatype {
    Datatype(from_int(datatype))
}

pub unsafe fn MPI_Win_toint(win: Win) -> c_int {
    to_int(win.0)
}

pub unsafe fn MPI_Win_fromint(win: c_int) -> Win {
    Win(from_int(win))
}

fn to_int(handle: usize) -> c_int {
    debug_assert!(handle <= c_int::MAX as usize);
    handle as c_int
}

fn from_int(integer: c_int) -> usize {
    integer as u32 as usize
}

/// What a Fortran binding has told about its compiler.
struct Fortran {
    pairs: Option<Pairs>,
    booleans: Option<Booleans>,
}

#[derive(Clone, Copy)]
struct Booleans {
    bytes: usize,
    truth: [u8; LOGICAL_BYTES_MAX],
    falsehood: [u8; LOGICAL_BYTES_MAX],
}

static FORTRAN: Mutex<Fortran> = Mutex::new(Fortran { pairs: None, booleans: None });

fn fortran() -> MutexGuard<'static, Fortran> {
    FORTRAN.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
}

fn logical_bytes(logical_size: c_int) -> Result<usize> {
    let bytes = usize::try_from(logical_size).ok().filter(|bytes| bytes.is_power_of_two() && *bytes <= LOGICAL_BYTES_MAX);
    bytes.ok_or_else(|| Error::new(MPI_ERR_ARG, format!("logical_size is {logical_size}, not 1, 2, 4, 8 or 16")))
}

unsafe fn copy_out(value: &[u8], place: *mut c_void, name: &str) -> Result<()> {
    if place.is_null() {
        return Err(Error::new(MPI_ERR_ARG, format!("{name} is null")));
    }
    // SAFETY: the caller's LOGICAL has as many bytes as it said.
    unsafe { place.cast::<u8>().copy_from_nonoverlapping(value.as_ptr(), value.len()) };
    Ok(())
}

unsafe fn copy_in(place: *const c_void, value: &mut [u8], name: &str) -> Result<()> {
    if place.is_null() {
        return Err(Error::new(MPI_ERR_ARG, format!("{name} is null")));
    }
    // SAFETY: the caller's LOGICAL has as many bytes as it said.
    unsafe { place.cast::<u8>().copy_to_nonoverlapping(value.as_mut_ptr(), value.len()) };
    Ok(())
}
