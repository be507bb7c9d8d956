//! Partitioned communication (MPI-5.0 chapter 4).

use crate::args::{Number, store};
use crate::{finish, finish_on};
use mpi::comm;
use mpi::consts::*;
use mpi::error::{Error, Result};
use mpi::handle::*;
use mpi::p2p::Side;
use mpi::{info, partitioned};
use std::ffi::{c_int, c_void};

unsafe fn init(function: &'static str, sends: bool, side: Side, partitions: c_int, comm: Comm, info: Info, request: *mut Request) -> c_int {
    let make = || -> Result<()> {
        let found = comm::find(comm)?;
        info::hints(info)?;
        let new = match sends {
            true => partitioned::send_init(found, &side, partitions)?,
            false => partitioned::receive_init(found, &side, partitions)?,
        };
        store(request, "request", new)
    };
    finish_on(comm, function, make())
}

/// A call on a request, whose communicator the error is raised on.
fn finish_request(request: Request, function: &'static str, result: Result<()>) -> c_int {
    match result {
        Ok(()) => finish(function, Ok(())),
        Err(error) => match mpi::request::comm_of(request) {
            Some(comm) => finish_on(comm.handle(), function, Err(error)),
            None => finish(function, Err(error)),
        },
    }
}

pub unsafe fn MPI_Psend_init<N: Number>(
    function: &'static str,
    buf: *const c_void,
    partitions: c_int,
    count: N,
    datatype: Datatype,
    dest: c_int,
    tag: c_int,
    comm: Comm,
    info: Info,
    request: *mut Request,
) -> c_int {
    let side = Side { buffer: buf.cast_mut(), count: count.wide(), datatype, peer: dest, tag };
    init(function, true, side, partitions, comm, info, request)
}

pub unsafe fn MPI_Precv_init<N: Number>(
    function: &'static str,
    buf: *mut c_void,
    partitions: c_int,
    count: N,
    datatype: Datatype,
    source: c_int,
    tag: c_int,
    comm: Comm,
    info: Info,
    request: *mut Request,
) -> c_int {
    let side = Side { buffer: buf, count: count.wide(), datatype, peer: source, tag };
    init(function, false, side, partitions, comm, info, request)
}

pub unsafe fn MPI_Pready(partition: c_int, request: Request) -> c_int {
    finish_request(request, "MPI_Pready", partitioned::ready(request, std::iter::once(partition)))
}

/// Both ends count.
pub unsafe fn MPI_Pready_range(partition_low: c_int, partition_high: c_int, request: Request) -> c_int {
    let ready = match partition_low <= partition_high {
        true => partitioned::ready(request, partition_low..=partition_high),
        false => Err(Error::new(MPI_ERR_ARG, format!("the range of partitions from {partition_low} to {partition_high} is empty"))),
    };
    finish_request(request, "MPI_Pready_range", ready)
}

pub unsafe fn MPI_Pready_list(length: c_int, array_of_partitions: *const c_int, request: Request) -> c_int {
    let ready = || -> Result<()> {
        let length = usize::try_from(length).map_err(|_| Error::new(MPI_ERR_ARG, format!("length = {length} is negative")))?;
        if length == 0 {
            return partitioned::ready(request, std::iter::empty());
        }
        if array_of_partitions.is_null() {
            return Err(Error::new(MPI_ERR_ARG, "array_of_partitions is null"));
        }
        // SAFETY: not null, and the caller vouches for `length` entries.
        let list = unsafe { std::slice::from_raw_parts(array_of_partitions, length) };
        partitioned::ready(request, list.iter().copied())
    };
    finish_request(request, "MPI_Pready_list", ready())
}

pub unsafe fn MPI_Parrived(request: Request, partition: c_int, flag: *mut c_int) -> c_int {
    let arrived = partitioned::arrived(request, partition);
    finish_request(request, "MPI_Parrived", arrived.and_then(|here| store(flag, "flag", c_int::from(here))))
}
