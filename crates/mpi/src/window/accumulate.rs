//! Accumulate, get-accumulate, fetch-and-op and compare-and-swap (MPI-5.0 §12.3.4) and their request forms (§12.3.5).

pub use super::call::Accumulate;

use super::call::PART_BYTES;
use super::elements::{self, Change};
use super::message::{Ask, Rest};
use super::target::{Remote, Target, Way};
use super::transfer::requested;
use super::{Window, find, request_lines, short};
use crate::collective::{Data, buffer};
use crate::consts::*;
use crate::datatype;
use crate::error::{Error, Result};
use crate::handle::{self, Win};
use crate::op::{self, Basic, Class, Predefined};
use engine::Buffer;
use std::sync::atomic::Ordering;

fn kind_of(name: &str, handle: handle::Datatype) -> Result<Basic> {
    let kind = datatype::lookup(handle)?.element_kind();
    kind.ok_or_else(|| Error::new(MPI_ERR_TYPE, format!("{name} is {:#x}, whose elements are not of one predefined datatype", handle.0)))
}

fn predefined(call: &Accumulate) -> Result<Predefined> {
    let op = Predefined::of(call.op.0).ok_or_else(|| Error::new(MPI_ERR_OP, format!("op = {:#x} is no predefined operation", call.op.0)))?;
    if op == Predefined::NoOp && call.result.is_none() {
        return Err(Error::new(MPI_ERR_OP, "op is MPI_NO_OP, which changes nothing and gets nothing here"));
    }
    Ok(op)
}

fn same_bytes(what: &str, bytes: usize, target: &Target) -> Result<()> {
    if bytes == target.bytes {
        return Ok(());
    }
    Err(Error::new(MPI_ERR_TYPE, format!("the {what}'s data has {bytes} bytes and the target's {}: their type signatures differ", target.bytes)))
}

impl Window {
    fn accumulate(&self, function: &'static str, call: &Accumulate, remote: &Remote) -> Result<Rest> {
        let op = predefined(call)?;
        let origin = if op == Predefined::NoOp { None } else { Some(buffer(&call.origin)?) };
        let result = call.result.as_ref().map(buffer).transpose()?;
        let Some(target) = self.target(remote)? else { return Ok(None) };
        for (what, side) in [("origin", &origin), ("result", &result)] {
            side.as_ref().map_or(Ok(()), |side| same_bytes(what, side.len(), &target))?;
        }
        // Where there is no data, datatypes may differ, and have no elements.
        if target.bytes == 0 {
            return Ok(None);
        }
        let kind = kind_of("target_datatype", remote.datatype)?;
        if !op::allowed(op, kind) {
            return Err(Error::new(MPI_ERR_OP, format!("{} is not defined on the target's datatype", op.name())));
        }
        for (name, data) in [("origin_datatype", origin.as_ref().map(|_| &call.origin)), ("result_datatype", call.result.as_ref())] {
            let Some(data) = data else { continue };
            if kind_of(name, data.datatype)?.alike() != kind.alike() {
                return Err(Error::new(MPI_ERR_TYPE, format!("the elements of {name} and target_datatype are of different kinds")));
            }
        }
        self.change(function, &target, Change::Operation(op), kind, origin.as_ref(), result.as_ref())
    }

    /// Changes the elements of a checked target.
    fn change(&self, function: &'static str, target: &Target, change: Change, kind: Basic, origin: Option<&Buffer>, result: Option<&Buffer>) -> Result<Rest> {
        if target.bytes == 0 {
            return Ok(None);
        }
        let base = match self.way(target.rank)? {
            Way::Here(base) if self.elements_shared => base,
            _ => return self.ask(function, target, Ask::Change(change, kind), origin, result),
        };
        let (size, factor) = (kind.size_bytes(), change.origin_bytes(kind.size_bytes()) / kind.size_bytes());
        let part_bytes = PART_BYTES - PART_BYTES % size;
        let mut found = Vec::new();
        let alone = self.excludes_others(self.memory.part(target.rank).state.load(Ordering::Relaxed));
        for offset in (0..target.bytes).step_by(part_bytes) {
            let bytes = part_bytes.min(target.bytes - offset);
            let (runs, _) = target.place.elements(offset, bytes, size, usize::MAX);
            let packed;
            let given = match origin.filter(|_| factor > 0).map(|origin| origin.part(offset * factor, bytes * factor)) {
                None => &[][..],
                Some(part) => match part.address() {
                    // SAFETY: the program's buffer, which it leaves alone until the call returns.
                    Some(start) => unsafe { std::slice::from_raw_parts(start.cast_const(), part.len()) },
                    None => {
                        packed = part.to_vec();
                        &packed
                    }
                },
            };
            let part = result.map(|result| result.part(offset, bytes));
            let old = match part.as_ref().map(|part| (part, part.address())) {
                None => &mut [][..],
                // SAFETY: as above; it must not overlap the origin's (MPI-5.0 §12.3.4).
                Some((part, Some(start))) => unsafe { std::slice::from_raw_parts_mut(start, part.len()) },
                Some((part, None)) => {
                    found.resize(part.len(), 0);
                    &mut found[..]
                }
            };
            let locked = if alone { None } else { Some(self.lock_elements(target.rank)?) };
            // SAFETY: the elements lie inside the window, as was checked, and nobody else changes them.
            unsafe { elements::change(base, &runs, change, kind, given, old) };
            drop(locked);
            self.epochs.has_stored();
            if let Some(part) = part.filter(|part| part.address().is_none()) {
                part.fill(&found);
            }
        }
        Ok(None)
    }
}

/// `MPI_Accumulate` and `MPI_Get_accumulate`; `MPI_Fetch_and_op` is that of one element.
///
/// # Errors
/// `MPI_ERR_OP` for what is no predefined operation on the datatype; `MPI_ERR_TYPE` for elements of several kinds; others as for `MPI_Put`.
#[inline(always)]
pub fn run(function: &'static str, win: Win, call: Accumulate, remote: Remote) -> Result<()> {
    let window = find(win)?;
    short::one(window, &call, &remote).unwrap_or_else(|| run_generally(function, window, &call, &remote))
}

#[inline(never)]
fn run_generally(function: &'static str, window: &Window, call: &Accumulate, remote: &Remote) -> Result<()> {
    match short::many(window, call, remote).or_else(|| request_lines::accumulate(window, function, call, remote)) {
        Some(done) => done,
        None => window.accumulate(function, call, remote).map(drop),
    }
}

/// `MPI_Raccumulate` and `MPI_Rget_accumulate`.
///
/// # Errors
/// As [`run`]; `MPI_ERR_RMA_SYNC` outside of a passive target epoch.
pub fn start(function: &'static str, win: Win, call: Accumulate, remote: Remote) -> Result<handle::Request> {
    let window = find(win)?;
    window.must_be_passive(remote.rank)?;
    match short::one(window, &call, &remote).or_else(|| short::many(window, &call, &remote)) {
        Some(done) => requested(done.map(|()| None)?),
        None => requested(window.accumulate(function, &call, &remote)?),
    }
}

/// `MPI_Fetch_and_op`, which takes predefined datatypes alone.
///
/// # Errors
/// As [`run`].
#[inline(always)]
pub fn fetch_and_op(win: Win, call: Accumulate, remote: Remote) -> Result<()> {
    let window = find(win)?;
    short::one(window, &call, &remote).unwrap_or_else(|| fetch_generally(window, &call, &remote))
}

#[inline(never)]
fn fetch_generally(window: &Window, call: &Accumulate, remote: &Remote) -> Result<()> {
    if datatype::lookup(remote.datatype)?.basic().is_none() {
        return Err(Error::new(MPI_ERR_TYPE, format!("datatype is {:#x}, which is no predefined one", remote.datatype.0)));
    }
    run_generally("MPI_Fetch_and_op", window, call, remote)
}

/// `MPI_Compare_and_swap`.
///
/// # Errors
/// `MPI_ERR_TYPE` for datatypes that are not of integers, logical values or bytes; others as for `MPI_Put`.
pub fn compare_and_swap(win: Win, origin: Data, compare: Data, result: Data, rank: i32, displacement: i64) -> Result<()> {
    let function = "MPI_Compare_and_swap";
    let window = find(win)?;
    if let Some(done) = short::compare_and_swap(window, &origin, &compare, &result, &Remote { rank, displacement, count: 1, datatype: origin.datatype }) {
        return done;
    }
    let [new, old, into] = [buffer(&origin)?, buffer(&compare)?, buffer(&result)?];
    let kind = datatype::lookup(origin.datatype)?.basic();
    let classes = [Class::CInteger, Class::FortranInteger, Class::Logical, Class::MultiLanguage, Class::Byte];
    let Some(kind) = kind.filter(|kind| classes.contains(&kind.class())) else {
        return Err(Error::new(MPI_ERR_TYPE, "datatype is not one of integers, logical values or bytes"));
    };
    let remote = Remote { rank, displacement, count: 1, datatype: origin.datatype };
    if request_lines::compare_and_swap(window, &origin, &compare, &result, &remote, kind).is_some() {
        return Ok(());
    }
    let Some(target) = window.target(&remote)? else { return Ok(()) };
    let mut bytes = old.to_vec();
    bytes.extend(new.to_vec());
    // SAFETY: `bytes` lives until the call has copied them.
    let both = unsafe { Buffer::contiguous(bytes.as_mut_ptr(), bytes.len()) };
    window.change(function, &target, Change::CompareAndSwap, kind, Some(&both), Some(&into)).map(drop)
}
