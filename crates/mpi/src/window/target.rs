//! What a call names at its target, and how this process gets there.

use super::memory::HERE;
use super::runs::Place;
use super::{Window, lock};
use crate::checks;
use crate::consts::*;
use crate::datatype::{self, Type};
use crate::error::{Error, Result};
use crate::handle;
use crate::world;
use std::sync::atomic::Ordering;

/// The target as the program gives it.
#[derive(Clone, Copy, Debug)]
pub struct Remote {
    pub rank: i32,
    /// In units of the target.
    pub displacement: i64,
    pub count: i64,
    pub datatype: handle::Datatype,
}

/// A checked target.
#[derive(Clone, Copy)]
pub(super) struct Target {
    pub rank: u32,
    pub place: Place,
    /// Bytes of data.
    pub bytes: usize,
}

/// How this process changes the memory of another one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Way {
    /// By loads and stores; the window begins here.
    Here(*mut u8),
    /// By copies between the two processes; the other's number, and where the window begins there.
    Across(u32, u64),
    /// By asking it.
    Ask,
}

/// Bytes from the first byte of `count` elements to behind the last, both seen from where they are said to lie. `None` past 63 bits; no data: (0, 0).
fn span(datatype: &Type, count: usize) -> Option<(i64, i64)> {
    if count == 0 || datatype.size() == 0 {
        return Some((0, 0));
    }
    let (low, extent) = (datatype.true_lb() as i64, datatype.extent() as i64);
    let last = i64::try_from(count - 1).ok()?.checked_mul(extent)?;
    let end = low.checked_add(datatype.true_extent() as i64)?;
    Some((low.checked_add(last.min(0))?, end.checked_add(last.max(0))?))
}

impl Window {
    #[cold]
    pub(super) fn no_rank(&self, rank: i32) -> Box<Error> {
        Error::new(MPI_ERR_RANK, format!("rank = {rank} is not a rank of a window of {} ranks", self.ranks()))
    }

    /// A rank of the window; `None` for `MPI_PROC_NULL`.
    ///
    /// # Errors
    /// `MPI_ERR_RANK`.
    #[inline]
    pub(super) fn rank(&self, rank: i32) -> Result<Option<u32>> {
        match u32::try_from(rank).ok().filter(|rank| *rank < self.ranks()) {
            Some(rank) => Ok(Some(rank)),
            None if rank == MPI_PROC_NULL => Ok(None),
            None => Err(self.no_rank(rank)),
        }
    }

    /// Checks a target; `None` for `MPI_PROC_NULL`.
    ///
    /// # Errors
    /// `MPI_ERR_RANK`, `MPI_ERR_COUNT`, `MPI_ERR_TYPE`, `MPI_ERR_DISP`, `MPI_ERR_RMA_SYNC`, `MPI_ERR_RMA_RANGE`.
    pub(super) fn target(&self, given: &Remote) -> Result<Option<Target>> {
        let count = usize::try_from(given.count).map_err(|_| Error::new(MPI_ERR_COUNT, format!("target_count = {} is negative", given.count)))?;
        let datatype = if checks::on() { datatype::committed(given.datatype)? } else { datatype::lookup(given.datatype)? };
        let Some(rank) = self.rank(given.rank)? else { return Ok(None) };
        self.may_access(rank)?;
        let bytes = datatype.bytes(count)?;
        let outside = || Error::new(MPI_ERR_RMA_RANGE, format!("target_disp = {}, target_count = {count}: past 63 bits", given.displacement));
        let at = if self.dynamic() {
            given.displacement
        } else {
            if given.displacement < 0 {
                return Err(Error::new(MPI_ERR_DISP, format!("target_disp = {} is negative", given.displacement)));
            }
            given.displacement.checked_mul(self.memory.part(rank).unit.into()).ok_or_else(outside)?
        };
        let (low, high) = span(datatype, count).and_then(|(low, high)| Some((low.checked_add(at)?, high.checked_add(at)?))).ok_or_else(outside)?;
        // What another rank has attached, that rank looks for.
        let inside = match self.dynamic() {
            true => rank != self.comm.rank || self.is_attached(low as usize, high as usize),
            false => low >= 0 && high as u64 <= self.size_of(rank),
        };
        if bytes > 0 && !inside {
            return Err(self.out_of_range(rank, low, high));
        }
        Ok(Some(Target { rank, place: Place { datatype, at, count }, bytes }))
    }

    #[cold]
    fn out_of_range(&self, rank: u32, low: i64, high: i64) -> Box<Error> {
        if self.dynamic() {
            return Error::new(MPI_ERR_RMA_RANGE, format!("{} bytes at {low:#x} are not attached to the window", high - low));
        }
        let size = self.size_of(rank);
        Error::new(MPI_ERR_RMA_RANGE, format!("bytes {low} to {high} are not inside the window of rank {rank}, which has {size} bytes"))
    }

    /// Whether the bytes from `low` to before `high` of this process are attached, in regions that follow each other without a gap.
    pub(super) fn is_attached(&self, low: usize, high: usize) -> bool {
        let attached = lock(&self.attached);
        let mut from = low;
        while let Some((start, bytes)) = attached.range(..=from).next_back() {
            let end = start + bytes;
            if high <= end {
                return true;
            }
            if end <= from {
                return false;
            }
            from = end;
        }
        false
    }

    /// How to move data to and from the memory of `rank`.
    pub(super) fn way(&self, rank: u32) -> Result<Way> {
        let part = self.memory.part(rank);
        if part.state.load(Ordering::Relaxed) & HERE != 0 {
            return Ok(Way::Here(part.start as *mut u8));
        }
        let process = self.comm.group.process(rank);
        let across = world::get()?.engine().lock().reaches_memory_of(process);
        Ok(if across { Way::Across(process, part.start as u64) } else { Way::Ask })
    }
}
