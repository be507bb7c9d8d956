//! Groups (MPI-5.0 §7.3).

use crate::args::{load, store};
use crate::finish;
use mpi::consts::*;
use mpi::error::{Error, Result};
use mpi::group::{self, here};
use mpi::handle::*;
use std::ffi::c_int;

#[inline]
unsafe fn ranks<'a>(n: c_int, from: *const c_int) -> Result<&'a [c_int]> {
    match n {
        0 => Ok(&[]),
        n if n < 0 => Err(Error::new(MPI_ERR_ARG, format!("n = {n} is negative"))),
        _ if from.is_null() => Err(Error::new(MPI_ERR_ARG, "the array of ranks is null")),
        n => Ok(std::slice::from_raw_parts(from, n as usize)),
    }
}

unsafe fn ranges<'a>(n: c_int, from: *mut [c_int; 3]) -> Result<&'a [[c_int; 3]]> {
    match n {
        0 => Ok(&[]),
        n if n < 0 => Err(Error::new(MPI_ERR_ARG, format!("n = {n} is negative"))),
        _ if from.is_null() => Err(Error::new(MPI_ERR_ARG, "the array of ranges is null")),
        n => Ok(std::slice::from_raw_parts(from, n as usize)),
    }
}

pub unsafe fn MPI_Group_size(group: Group, size: *mut c_int) -> c_int {
    finish("MPI_Group_size", here(group).and_then(|g| store(size, "size", g.size() as c_int)))
}

pub unsafe fn MPI_Group_rank(group: Group, rank: *mut c_int) -> c_int {
    finish("MPI_Group_rank", here(group).and_then(|g| store(rank, "rank", g.rank().map_or(MPI_UNDEFINED, |r| r as c_int))))
}

pub unsafe fn MPI_Group_translate_ranks(group1: Group, n: c_int, ranks1: *const c_int, group2: Group, ranks2: *mut c_int) -> c_int {
    let translated = here(group1).and_then(|a| {
        let (from, b) = (ranks(n, ranks1)?, here(group2)?);
        if ranks2.is_null() && n > 0 {
            return Err(Error::new(MPI_ERR_ARG, "ranks2 is null"));
        }
        group::translate(a, from, b, |at, rank| ranks2.add(at).write(rank))
    });
    finish("MPI_Group_translate_ranks", translated)
}

pub unsafe fn MPI_Group_compare(group1: Group, group2: Group, result: *mut c_int) -> c_int {
    finish(
        "MPI_Group_compare",
        here(group1).and_then(|a| {
            let found = a.compare(here(group2)?);
            store(result, "result", found)
        }),
    )
}

unsafe fn combine(name: &'static str, a: Group, b: Group, new: *mut Group, how: fn(&group::Group, &group::Group) -> std::sync::Arc<group::Group>) -> c_int {
    let made = here(a).and_then(|a| group::publish(how(a, here(b)?)));
    finish(name, made.and_then(|g| store(new, "new", g)))
}

pub unsafe fn MPI_Group_union(group1: Group, group2: Group, newgroup: *mut Group) -> c_int {
    combine("MPI_Group_union", group1, group2, newgroup, group::union)
}

pub unsafe fn MPI_Group_intersection(group1: Group, group2: Group, newgroup: *mut Group) -> c_int {
    combine("MPI_Group_intersection", group1, group2, newgroup, group::intersection)
}

pub unsafe fn MPI_Group_difference(group1: Group, group2: Group, newgroup: *mut Group) -> c_int {
    combine("MPI_Group_difference", group1, group2, newgroup, group::difference)
}

pub unsafe fn MPI_Group_incl(group: Group, n: c_int, ranks_: *const c_int, newgroup: *mut Group) -> c_int {
    let made = here(group).and_then(|g| group::publish(group::incl(g, ranks(n, ranks_)?)?));
    finish("MPI_Group_incl", made.and_then(|g| store(newgroup, "newgroup", g)))
}

pub unsafe fn MPI_Group_excl(group: Group, n: c_int, ranks_: *const c_int, newgroup: *mut Group) -> c_int {
    let made = here(group).and_then(|g| group::publish(group::excl(g, ranks(n, ranks_)?)?));
    finish("MPI_Group_excl", made.and_then(|g| store(newgroup, "newgroup", g)))
}

pub unsafe fn MPI_Group_range_incl(group: Group, n: c_int, ranges_: *mut [c_int; 3], newgroup: *mut Group) -> c_int {
    let made = here(group).and_then(|g| group::publish(group::incl(g, &group::expand(g, ranges(n, ranges_)?)?)?));
    finish("MPI_Group_range_incl", made.and_then(|g| store(newgroup, "newgroup", g)))
}

pub unsafe fn MPI_Group_range_excl(group: Group, n: c_int, ranges_: *mut [c_int; 3], newgroup: *mut Group) -> c_int {
    let made = here(group).and_then(|g| group::publish(group::excl(g, &group::expand(g, ranges(n, ranges_)?)?)?));
    finish("MPI_Group_range_excl", made.and_then(|g| store(newgroup, "newgroup", g)))
}

pub unsafe fn MPI_Group_free(group: *mut Group) -> c_int {
    let freed = load(group, "group").and_then(group::free);
    finish("MPI_Group_free", freed.and_then(|()| store(group, "group", MPI_GROUP_NULL)))
}
