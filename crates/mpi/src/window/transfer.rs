//! Put and get (MPI-5.0 §12.3.1, §12.3.2) and their request forms (§12.3.5).

pub use super::call::Direction;

use super::message::{Ask, Rest};
use super::target::{Remote, Target, Way};
use super::{Window, find, request_lines, short};
use crate::collective::{Data, buffer};
use crate::consts::*;
use crate::error::{Error, Result};
use crate::handle::{self, Win};
use crate::request;
use crate::world::{self, fault};
use engine::{Buffer, FabricError, Fault};

/// Bytes that are copied between two processes while the engine is held.
const ACROSS_BYTES: usize = 256 << 10;
const EFAULT: i32 = 14;

impl Window {
    /// Checks both sides of a call, and begins it.
    fn transfer(&self, function: &'static str, direction: Direction, origin: &Data, remote: &Remote) -> Result<Rest> {
        let local = buffer(origin)?;
        let Some(target) = self.target(remote)? else { return Ok(None) };
        if local.len() != target.bytes {
            let (here, there) = (local.len(), target.bytes);
            return Err(Error::new(MPI_ERR_TYPE, format!("the origin's data has {here} bytes and the target's {there}: their type signatures differ")));
        }
        if target.bytes == 0 {
            return Ok(None);
        }
        self.begin(function, direction, &local, origin, &target)
    }

    /// Begins a checked put or get of data on both sides.
    pub(super) fn begin(&self, function: &'static str, direction: Direction, local: &Buffer, origin: &Data, target: &Target) -> Result<Rest> {
        match self.way(target.rank)? {
            Way::Here(base) => {
                let start = base.wrapping_offset(target.place.at as isize);
                // SAFETY: inside the window, which the program has given or the library made; of a dynamic one the program says so.
                let there = unsafe { target.place.datatype.buffer(start, target.place.count)? };
                match direction {
                    Direction::Put => {
                        there.copy_from(local);
                        self.epochs.has_stored();
                    }
                    Direction::Get => local.copy_from(&there),
                }
                Ok(None)
            }
            Way::Across(process, base) => self.across(direction, local, origin, process, base, target).map(|()| None),
            Way::Ask if direction == Direction::Put => self.ask(function, target, Ask::Put, Some(local), None),
            Way::Ask => self.ask(function, target, Ask::Get, None, Some(local)),
        }
    }

    /// Copies between this process and another one of the host.
    fn across(&self, direction: Direction, local: &Buffer, origin: &Data, process: u32, base: u64, target: &Target) -> Result<()> {
        let here = crate::datatype::lookup(origin.datatype)?;
        let place = target.place;
        let start = std::ptr::without_provenance_mut((base as usize).wrapping_add(place.at as usize));
        let (mut ours, mut theirs) = (Vec::new(), Vec::new());
        for offset in (0..target.bytes).step_by(ACROSS_BYTES) {
            let bytes = ACROSS_BYTES.min(target.bytes - offset);
            ours.clear();
            theirs.clear();
            match local.address() {
                Some(address) => ours.push((address.wrapping_add(offset), bytes)),
                None => drop(here.pieces(origin.start.cast(), origin.count as usize, offset, bytes, usize::MAX, &mut ours)),
            }
            place.datatype.pieces(start, place.count, offset, bytes, usize::MAX, &mut theirs);
            // SAFETY: the pieces of the program's buffer, and those of a window that the other process has made.
            let copied = unsafe { world::get()?.engine().lock().copy_across(process, &ours, &theirs, direction == Direction::Put) };
            copied.map_err(|why| match why {
                Fault::Fabric(FabricError::System { errno: EFAULT, .. }) => {
                    Error::new(MPI_ERR_RMA_RANGE, format!("rank {} has no memory at displacement {}", target.rank, place.at))
                }
                why => fault(why),
            })?;
        }
        Ok(())
    }
}

/// `MPI_Put` and `MPI_Get`.
///
/// # Errors
/// `MPI_ERR_WIN`, `MPI_ERR_RANK`, `MPI_ERR_COUNT`, `MPI_ERR_TYPE`, `MPI_ERR_BUFFER`, `MPI_ERR_DISP`, `MPI_ERR_RMA_SYNC`, `MPI_ERR_RMA_RANGE`.
#[inline(always)]
pub fn run(function: &'static str, win: Win, direction: Direction, origin: Data, remote: Remote) -> Result<()> {
    let window = find(win)?;
    if short::transfer(window, direction, &origin, &remote).is_some() {
        return Ok(());
    }
    run_generally(function, window, direction, &origin, &remote)
}

#[inline(never)]
fn run_generally(function: &'static str, window: &Window, direction: Direction, origin: &Data, remote: &Remote) -> Result<()> {
    match request_lines::transfer(window, function, direction, origin, remote) {
        Some(done) => done,
        None => window.transfer(function, direction, origin, remote).map(drop),
    }
}

/// `MPI_Rput` and `MPI_Rget`.
///
/// # Errors
/// As [`run`]; `MPI_ERR_RMA_SYNC` outside of a passive target epoch.
pub fn start(function: &'static str, win: Win, direction: Direction, origin: Data, remote: Remote) -> Result<handle::Request> {
    let window = find(win)?;
    window.must_be_passive(remote.rank)?;
    if short::transfer(window, direction, &origin, &remote).is_some() {
        return Ok(request::DONE);
    }
    requested(window.transfer(function, direction, &origin, &remote)?)
}

/// The request for what is still under way.
pub(super) fn requested(rest: Rest) -> Result<handle::Request> {
    match rest {
        None => Ok(request::DONE),
        Some(flight) => request::start_task(None, flight.landed()),
    }
}
