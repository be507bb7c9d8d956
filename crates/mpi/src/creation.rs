//! Making communicators (MPI-5.0 §7.4.2). A context is given out by one member of the new group, so that no agreement is needed.

use crate::collective::{allgather_bytes, bcast_bytes};
use crate::comm::{self, Comm, fresh_context};
use crate::consts::*;
use crate::error::{Error, Result};
use crate::group::Group;
use crate::handle;
use crate::world;
use engine::Context;
use std::sync::Arc;

/// `MPI_Comm_dup`, without attributes, which are the caller's.
pub fn dup(function: &'static str, old: &'static Comm) -> Result<Comm> {
    let mut bytes = [0; 8];
    if old.rank == 0 {
        bytes = fresh_context()?.raw().to_ne_bytes();
    }
    bcast_bytes(function, old, &mut bytes)?;
    let new = Comm::new(Context::from_raw(u64::from_ne_bytes(bytes)), old.group.clone(), old.remote.clone(), old.errhandler())?;
    Ok(new)
}

/// `MPI_Comm_split`: `None` for members without a colour.
pub fn split(function: &'static str, old: &'static Comm, color: i32, key: i32) -> Result<Option<Comm>> {
    if color < 0 && color != MPI_UNDEFINED {
        return Err(Error::new(MPI_ERR_ARG, format!("color = {color} is negative and not MPI_UNDEFINED")));
    }
    let mut mine = [0u8; 16];
    mine[..4].copy_from_slice(&color.to_ne_bytes());
    mine[4..8].copy_from_slice(&key.to_ne_bytes());
    mine[8..].copy_from_slice(&fresh_context()?.raw().to_ne_bytes());
    let all = allgather_bytes(function, old, &mine)?;
    if color == MPI_UNDEFINED {
        return Ok(None);
    }
    let number = |row: &[u8], at: usize| i32::from_ne_bytes(row[at..at + 4].try_into().expect("four bytes"));
    let mut members: Vec<(i32, u32)> =
        all.chunks_exact(16).enumerate().filter(|(_, row)| number(row, 0) == color).map(|(rank, row)| (number(row, 4), rank as u32)).collect();
    // By key, then by old rank.
    members.sort_unstable();
    let leader = &all[16 * members[0].1 as usize..][8..16];
    let context = Context::from_raw(u64::from_ne_bytes(leader.try_into().expect("eight bytes")));
    let group = Group::new(members.iter().map(|(_, rank)| old.group.process(*rank)).collect(), world::me());
    Comm::new(context, group, None, old.errhandler()).map(Some)
}

/// `MPI_Comm_create`: `None` for those that are not in their group.
pub fn create(function: &'static str, old: &'static Comm, group: &Arc<Group>) -> Result<Option<Comm>> {
    if let Some(stranger) = group.processes().find(|p| old.group.rank_of(*p).is_none()) {
        return Err(Error::new(MPI_ERR_GROUP, format!("the group has process {stranger}, which is not in the communicator")));
    }
    let all = allgather_bytes(function, old, &fresh_context()?.raw().to_ne_bytes())?;
    if group.rank().is_none() {
        return Ok(None);
    }
    let leader = old.group.rank_of(group.process(0)).expect("checked above") as usize;
    let context = Context::from_raw(u64::from_ne_bytes(all[8 * leader..8 * leader + 8].try_into().expect("eight bytes")));
    Comm::new(context, group.clone(), None, old.errhandler()).map(Some)
}

/// The handle of a new communicator, or null.
pub fn publish(comm: Option<Comm>) -> Result<handle::Comm> {
    comm.map_or(Ok(MPI_COMM_NULL), comm::publish)
}

/// `MPI_Comm_split_type` (MPI-5.0 §7.4.2).
pub fn split_type(function: &'static str, old: &'static Comm, split_type: i32, key: i32, info: handle::Info) -> Result<Option<Comm>> {
    let _ = crate::info::hints(info)?;
    let color = match split_type {
        // All ranks share this host's memory.
        MPI_COMM_TYPE_SHARED => 0,
        MPI_UNDEFINED => MPI_UNDEFINED,
        // No finer resource than the host is told apart: nobody can be in a strictly smaller group.
        MPI_COMM_TYPE_HW_UNGUIDED | MPI_COMM_TYPE_HW_GUIDED | MPI_COMM_TYPE_RESOURCE_GUIDED => MPI_UNDEFINED,
        other => return Err(Error::new(MPI_ERR_ARG, format!("split_type = {other} is none of the standard's"))),
    };
    split(function, old, color, key)
}
