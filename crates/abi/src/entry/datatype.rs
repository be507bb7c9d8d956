//! Datatypes (MPI-5.0 chapter 5, §19.1.9) and counts in statuses (§3.2.5, §13.3).

use crate::args::{Number, bytes, load, numbers, numbers_into, slice, store, store_text};
use crate::finish;
use mpi::consts::*;
use mpi::datatype::{self, Form, Grid, Parameters, SharedLayout, Type};
use mpi::error::{Error, Result};
use mpi::handle::{Datatype, Status};
use smallvec::SmallVec;
use std::ffi::{c_char, c_int};

fn length(count: i64) -> Result<usize> {
    usize::try_from(count).map_err(|_| Error::new(MPI_ERR_COUNT, format!("count is {count}, which is negative")))
}

fn dimensions(ndims: c_int) -> Result<usize> {
    let positive = usize::try_from(ndims).ok().filter(|&ndims| ndims > 0);
    positive.ok_or_else(|| Error::new(MPI_ERR_ARG, format!("ndims is {ndims}, which is not positive")))
}

/// Stores a new datatype; it is freed again when there is no place for it.
pub(super) unsafe fn give(function: &str, made: Result<Datatype>, newtype: *mut Datatype) -> c_int {
    if newtype.is_null()
        && let Ok(made) = made
    {
        // A datatype without attributes is always freed, and a predefined one stays.
        let _ = datatype::free(made);
    }
    finish(function, made.and_then(|made| store(newtype, "newtype", made)))
}

/// A count, or `MPI_UNDEFINED` where it is none or too large.
fn number<N: Number>(count: Option<usize>) -> N {
    N::or_undefined(count.and_then(|count| count.try_into().ok()).unwrap_or(MPI_UNDEFINED.into()))
}

pub unsafe fn MPI_Type_commit(datatype: *mut Datatype) -> c_int {
    finish("MPI_Type_commit", load(datatype, "datatype").and_then(datatype::commit))
}

pub unsafe fn MPI_Type_free(datatype: *mut Datatype) -> c_int {
    let freed = load(datatype, "datatype").and_then(datatype::free);
    finish("MPI_Type_free", freed.and_then(|()| store(datatype, "datatype", MPI_DATATYPE_NULL)))
}

pub unsafe fn MPI_Type_dup(oldtype: Datatype, newtype: *mut Datatype) -> c_int {
    give("MPI_Type_dup", datatype::dup(oldtype), newtype)
}

pub unsafe fn MPI_Type_contiguous<N: Number>(function: &'static str, count: N, oldtype: Datatype, newtype: *mut Datatype) -> c_int {
    give(function, datatype::contiguous(N::FORM, count.wide(), oldtype), newtype)
}

pub unsafe fn MPI_Type_vector<N: Number>(function: &'static str, count: N, blocklength: N, stride: N, oldtype: Datatype, newtype: *mut Datatype) -> c_int {
    let made = datatype::vector(N::FORM, count.wide(), blocklength.wide(), stride.wide(), oldtype);
    give(function, made, newtype)
}

pub unsafe fn MPI_Type_create_hvector<N: Number, A: Number>(
    function: &'static str,
    count: N,
    blocklength: N,
    stride: A,
    oldtype: Datatype,
    newtype: *mut Datatype,
) -> c_int {
    let made = datatype::hvector(N::FORM, count.wide(), blocklength.wide(), stride.wide(), oldtype);
    give(function, made, newtype)
}

/// Arguments of most datatypes: they need no memory of their own.
type Few = SmallVec<[i64; 8]>;

unsafe fn few<N: Number>(array: *const N, length: usize, name: &str) -> Result<Few> {
    numbers(array, length, name)
}

pub(super) type Blocks = fn(Form, &[i64], &[i64], Datatype) -> Result<Datatype>;

pub(super) unsafe fn blocks<L: Number, D: Number>(
    make: Blocks,
    form: Form,
    count: i64,
    lengths: *const L,
    displacements: *const D,
    oldtype: Datatype,
) -> Result<Datatype> {
    let count = length(count)?;
    let lengths = few(lengths, count, "array_of_blocklengths")?;
    make(form, &lengths, &few(displacements, count, "array_of_displacements")?, oldtype)
}

pub unsafe fn MPI_Type_indexed<N: Number>(
    function: &'static str,
    count: N,
    array_of_blocklengths: *const N,
    array_of_displacements: *const N,
    oldtype: Datatype,
    newtype: *mut Datatype,
) -> c_int {
    let (lengths, displacements) = (array_of_blocklengths, array_of_displacements);
    let made = blocks(datatype::indexed, N::FORM, count.wide(), lengths, displacements, oldtype);
    give(function, made, newtype)
}

pub unsafe fn MPI_Type_create_hindexed<N: Number, A: Number>(
    function: &'static str,
    count: N,
    array_of_blocklengths: *const N,
    array_of_displacements: *const A,
    oldtype: Datatype,
    newtype: *mut Datatype,
) -> c_int {
    let (lengths, displacements) = (array_of_blocklengths, array_of_displacements);
    let made = blocks(datatype::hindexed, N::FORM, count.wide(), lengths, displacements, oldtype);
    give(function, made, newtype)
}

type EvenBlocks = fn(Form, i64, &[i64], Datatype) -> Result<Datatype>;

unsafe fn even_blocks<D: Number>(make: EvenBlocks, form: Form, count: i64, blocklength: i64, displacements: *const D, oldtype: Datatype) -> Result<Datatype> {
    make(form, blocklength, &few(displacements, length(count)?, "array_of_displacements")?, oldtype)
}

pub unsafe fn MPI_Type_create_indexed_block<N: Number>(
    function: &'static str,
    count: N,
    blocklength: N,
    array_of_displacements: *const N,
    oldtype: Datatype,
    newtype: *mut Datatype,
) -> c_int {
    let (count, blocklength) = (count.wide(), blocklength.wide());
    let made = even_blocks(datatype::indexed_block, N::FORM, count, blocklength, array_of_displacements, oldtype);
    give(function, made, newtype)
}

pub unsafe fn MPI_Type_create_hindexed_block<N: Number, A: Number>(
    function: &'static str,
    count: N,
    blocklength: N,
    array_of_displacements: *const A,
    oldtype: Datatype,
    newtype: *mut Datatype,
) -> c_int {
    let (count, blocklength) = (count.wide(), blocklength.wide());
    let made = even_blocks(datatype::hindexed_block, N::FORM, count, blocklength, array_of_displacements, oldtype);
    give(function, made, newtype)
}

pub(super) unsafe fn structure<L: Number, D: Number>(
    form: Form,
    count: i64,
    lengths: *const L,
    displacements: *const D,
    types: *const Datatype,
) -> Result<Datatype> {
    let count = length(count)?;
    let (mut lengths_few, mut displacements_few) = (Few::new(), Few::new());
    numbers_into(&mut lengths_few, lengths, count, "array_of_blocklengths")?;
    numbers_into(&mut displacements_few, displacements, count, "array_of_displacements")?;
    let types = slice(types, count, "array_of_types")?;
    let make = if types.iter().any(|one| MARKERS.contains(one)) { marked } else { datatype::structure };
    make(form, &lengths_few, &displacements_few, types)
}

/// `MPI_LB` and `MPI_UB` of `mpi.h`, which the standard has removed: a structure's markers of its bounds.
const MARKERS: [Datatype; 2] = [Datatype(0x400), Datatype(0x401)];

/// A structure whose bounds are where its markers are: the least `MPI_LB`, the greatest `MPI_UB`.
fn marked(form: Form, lengths: &[i64], displacements: &[i64], types: &[Datatype]) -> Result<Datatype> {
    let at = |marker: Datatype| types.iter().zip(displacements).filter(move |(one, _)| **one == marker).map(|(_, place)| *place);
    let (mut inner_lengths, mut inner_displacements, mut inner) = (Vec::new(), Vec::new(), Vec::new());
    for (index, one) in types.iter().enumerate().filter(|(_, one)| !MARKERS.contains(one)) {
        inner_lengths.push(lengths[index]);
        inner_displacements.push(displacements[index]);
        inner.push(*one);
    }
    let made = datatype::structure(form, &inner_lengths, &inner_displacements, &inner)?;
    let bounded = datatype::lookup(made).and_then(|found| {
        let lb = at(MARKERS[0]).min().unwrap_or(found.lb() as i64);
        let ub = at(MARKERS[1]).max().unwrap_or((found.lb() + found.extent()) as i64);
        datatype::resized(form, made, lb, ub - lb)
    });
    datatype::free(made)?;
    bounded
}

pub unsafe fn MPI_Type_create_struct<N: Number, A: Number>(
    function: &'static str,
    count: N,
    array_of_blocklengths: *const N,
    array_of_displacements: *const A,
    array_of_types: *const Datatype,
    newtype: *mut Datatype,
) -> c_int {
    let made = structure(N::FORM, count.wide(), array_of_blocklengths, array_of_displacements, array_of_types);
    give(function, made, newtype)
}

pub unsafe fn MPI_Type_create_resized<A: Number>(function: &'static str, oldtype: Datatype, lb: A, extent: A, newtype: *mut Datatype) -> c_int {
    give(function, datatype::resized(A::FORM, oldtype, lb.wide(), extent.wide()), newtype)
}

unsafe fn subarray<T: Number>(
    form: Form,
    ndims: c_int,
    sizes: *const T,
    subsizes: *const T,
    starts: *const T,
    order: c_int,
    oldtype: Datatype,
) -> Result<Datatype> {
    let ndims = dimensions(ndims)?;
    let (sizes, subsizes) = (few(sizes, ndims, "array_of_sizes")?, few(subsizes, ndims, "array_of_subsizes")?);
    datatype::subarray(form, &sizes, &subsizes, &few(starts, ndims, "array_of_starts")?, order, oldtype)
}

pub unsafe fn MPI_Type_create_subarray<N: Number>(
    function: &'static str,
    ndims: c_int,
    array_of_sizes: *const N,
    array_of_subsizes: *const N,
    array_of_starts: *const N,
    order: c_int,
    oldtype: Datatype,
    newtype: *mut Datatype,
) -> c_int {
    let made = subarray(N::FORM, ndims, array_of_sizes, array_of_subsizes, array_of_starts, order, oldtype);
    give(function, made, newtype)
}

unsafe fn darray<T: Number>(
    form: Form,
    (size, rank, ndims): (c_int, c_int, c_int),
    gsizes: *const T,
    distribs: *const c_int,
    dargs: *const c_int,
    psizes: *const c_int,
    order: c_int,
    oldtype: Datatype,
) -> Result<Datatype> {
    let ndims = dimensions(ndims)?;
    let grid = Grid {
        size,
        rank,
        distributions: slice(distribs, ndims, "array_of_distribs")?,
        arguments: slice(dargs, ndims, "array_of_dargs")?,
        processes: slice(psizes, ndims, "array_of_psizes")?,
    };
    datatype::darray(form, grid, &few(gsizes, ndims, "array_of_gsizes")?, order, oldtype)
}

pub unsafe fn MPI_Type_create_darray<N: Number>(
    function: &'static str,
    size: c_int,
    rank: c_int,
    ndims: c_int,
    array_of_gsizes: *const N,
    array_of_distribs: *const c_int,
    array_of_dargs: *const c_int,
    array_of_psizes: *const c_int,
    order: c_int,
    oldtype: Datatype,
    newtype: *mut Datatype,
) -> c_int {
    let (grid, dargs) = ((size, rank, ndims), array_of_dargs);
    let made = darray(N::FORM, grid, array_of_gsizes, array_of_distribs, dargs, array_of_psizes, order, oldtype);
    give(function, made, newtype)
}

pub unsafe fn MPI_Type_create_f90_real(p: c_int, r: c_int, newtype: *mut Datatype) -> c_int {
    give("MPI_Type_create_f90_real", datatype::f90(Parameters::Real(p, r)), newtype)
}

pub unsafe fn MPI_Type_create_f90_complex(p: c_int, r: c_int, newtype: *mut Datatype) -> c_int {
    give("MPI_Type_create_f90_complex", datatype::f90(Parameters::Complex(p, r)), newtype)
}

pub unsafe fn MPI_Type_create_f90_integer(r: c_int, newtype: *mut Datatype) -> c_int {
    give("MPI_Type_create_f90_integer", datatype::f90(Parameters::Integer(r)), newtype)
}

pub unsafe fn MPI_Type_match_size(typeclass: c_int, size: c_int, datatype: *mut Datatype) -> c_int {
    give("MPI_Type_match_size", datatype::match_size(typeclass, size), datatype)
}

pub unsafe fn MPI_Type_get_value_index(value_type: Datatype, index_type: Datatype, pair_type: *mut Datatype) -> c_int {
    let found = datatype::value_index(value_type, index_type);
    finish("MPI_Type_get_value_index", found.and_then(|found| store(pair_type, "pair_type", found)))
}

pub unsafe fn MPI_Type_size<N: Number>(function: &'static str, datatype: Datatype, size: *mut N) -> c_int {
    let found = datatype::lookup(datatype).map(|found| number(Some(found.size())));
    finish(function, found.and_then(|bytes| store(size, "size", bytes)))
}

unsafe fn bounds<A: Number>(
    function: &str,
    datatype: Datatype,
    what: fn(&Type) -> (isize, isize),
    (lb, lb_name): (*mut A, &str),
    (extent, extent_name): (*mut A, &str),
) -> c_int {
    let get = || -> Result<()> {
        let (low, span) = what(datatype::lookup(datatype)?);
        store(lb, lb_name, A::or_undefined(low as i64))?;
        store(extent, extent_name, A::or_undefined(span as i64))
    };
    finish(function, get())
}

fn extent_of(datatype: &Type) -> (isize, isize) {
    (datatype.lb(), datatype.extent())
}

fn true_extent_of(datatype: &Type) -> (isize, isize) {
    (datatype.true_lb(), datatype.true_extent())
}

pub unsafe fn MPI_Type_get_extent<A: Number>(function: &'static str, datatype: Datatype, lb: *mut A, extent: *mut A) -> c_int {
    bounds(function, datatype, extent_of, (lb, "lb"), (extent, "extent"))
}

pub unsafe fn MPI_Type_get_true_extent<A: Number>(function: &'static str, datatype: Datatype, true_lb: *mut A, true_extent: *mut A) -> c_int {
    let (lb, extent) = ((true_lb, "true_lb"), (true_extent, "true_extent"));
    bounds(function, datatype, true_extent_of, lb, extent)
}

/// The name of `MPI_DATATYPE_NULL` is its constant's (MPI-5.0 §7.8).
pub unsafe fn MPI_Type_get_name(datatype: Datatype, type_name: *mut c_char, resultlen: *mut c_int) -> c_int {
    let get = || -> Result<()> {
        let name = match datatype {
            MPI_DATATYPE_NULL => b"MPI_DATATYPE_NULL".to_vec(),
            _ => datatype::lookup(datatype)?.name(),
        };
        store_text(type_name, "type_name", &name, MPI_MAX_OBJECT_NAME)?;
        store(resultlen, "resultlen", name.len() as c_int)
    };
    finish("MPI_Type_get_name", get())
}

/// A name of more than `MPI_MAX_OBJECT_NAME - 1` bytes is cut.
pub unsafe fn MPI_Type_set_name(datatype: Datatype, type_name: *const c_char) -> c_int {
    let set = || -> Result<()> {
        let found = datatype::lookup(datatype)?;
        found.set_name(bytes(type_name, MPI_ERR_ARG, "type_name")?);
        Ok(())
    };
    finish("MPI_Type_set_name", set())
}

pub unsafe fn MPI_Type_get_envelope(
    datatype: Datatype,
    num_integers: *mut c_int,
    num_addresses: *mut c_int,
    num_datatypes: *mut c_int,
    combiner: *mut c_int,
) -> c_int {
    let get = || -> Result<()> {
        let envelope = datatype::envelope(Form::Small, datatype)?;
        store(num_integers, "num_integers", envelope.integers as c_int)?;
        store(num_addresses, "num_addresses", envelope.addresses as c_int)?;
        store(num_datatypes, "num_datatypes", envelope.datatypes as c_int)?;
        store(combiner, "combiner", envelope.combiner)
    };
    finish("MPI_Type_get_envelope", get())
}

pub unsafe fn MPI_Type_get_envelope_c(
    datatype: Datatype,
    num_integers: *mut i64,
    num_addresses: *mut i64,
    num_large_counts: *mut i64,
    num_datatypes: *mut i64,
    combiner: *mut c_int,
) -> c_int {
    let get = || -> Result<()> {
        let envelope = datatype::envelope(Form::Large, datatype)?;
        store(num_integers, "num_integers", envelope.integers as i64)?;
        store(num_addresses, "num_addresses", envelope.addresses as i64)?;
        store(num_large_counts, "num_large_counts", envelope.large_counts as i64)?;
        store(num_datatypes, "num_datatypes", envelope.datatypes as i64)?;
        store(combiner, "combiner", envelope.combiner)
    };
    finish("MPI_Type_get_envelope_c", get())
}

/// Copies one kind of argument out, if the caller's array has room for all.
unsafe fn copy_out<T: Copy>(from: &[T], max: i64, to: *mut T, name: &str) -> Result<()> {
    if max < from.len() as i64 {
        return Err(Error::new(MPI_ERR_ARG, format!("max_{name} is {max}, but there are {}", from.len())));
    }
    if from.is_empty() {
        return Ok(());
    }
    if to.is_null() {
        return Err(Error::new(MPI_ERR_ARG, format!("array_of_{name} is null")));
    }
    // SAFETY: the caller's array has `max` entries.
    unsafe { to.copy_from_nonoverlapping(from.as_ptr(), from.len()) };
    Ok(())
}

unsafe fn datatypes_out(from: &[SharedLayout], max: i64, to: *mut Datatype) -> Result<()> {
    // Checked before handles are made.
    copy_out(&vec![MPI_DATATYPE_NULL; from.len()], max, to, "datatypes")?;
    for (place, layout) in from.iter().enumerate() {
        let revealed = datatype::reveal(layout).inspect_err(|_| {
            (0..place).for_each(|made| drop(datatype::free(*to.add(made))));
        })?;
        // SAFETY: as many entries as were just written.
        unsafe { to.add(place).write(revealed) };
    }
    Ok(())
}

pub unsafe fn MPI_Type_get_contents(
    datatype: Datatype,
    max_integers: c_int,
    max_addresses: c_int,
    max_datatypes: c_int,
    array_of_integers: *mut c_int,
    array_of_addresses: *mut isize,
    array_of_datatypes: *mut Datatype,
) -> c_int {
    let get = || -> Result<()> {
        let recipe = datatype::contents(Form::Small, datatype)?;
        copy_out(&recipe.integers, max_integers.into(), array_of_integers, "integers")?;
        copy_out(&recipe.addresses, max_addresses.into(), array_of_addresses, "addresses")?;
        datatypes_out(&recipe.types, max_datatypes.into(), array_of_datatypes)
    };
    finish("MPI_Type_get_contents", get())
}

pub unsafe fn MPI_Type_get_contents_c(
    datatype: Datatype,
    max_integers: i64,
    max_addresses: i64,
    max_large_counts: i64,
    max_datatypes: i64,
    array_of_integers: *mut c_int,
    array_of_addresses: *mut isize,
    array_of_large_counts: *mut i64,
    array_of_datatypes: *mut Datatype,
) -> c_int {
    let get = || -> Result<()> {
        let recipe = datatype::contents(Form::Large, datatype)?;
        copy_out(&recipe.integers, max_integers, array_of_integers, "integers")?;
        copy_out(&recipe.addresses, max_addresses, array_of_addresses, "addresses")?;
        copy_out(&recipe.counts, max_large_counts, array_of_large_counts, "large_counts")?;
        datatypes_out(&recipe.types, max_datatypes, array_of_datatypes)
    };
    finish("MPI_Type_get_contents_c", get())
}

/// `MPI_UNDEFINED` where the message has no whole number of elements, or the number does not fit, here and below.
pub unsafe fn MPI_Get_count<N: Number>(function: &'static str, status: *const Status, datatype: Datatype, count: *mut N) -> c_int {
    let found = received(status, datatype, |datatype, bytes| datatype.count_in(bytes));
    finish(function, found.and_then(|found| store(count, "count", number(found))))
}

pub unsafe fn MPI_Get_elements<N: Number>(function: &'static str, status: *const Status, datatype: Datatype, count: *mut N) -> c_int {
    let found = received(status, datatype, Type::elements);
    finish(function, found.and_then(|found| store(count, "count", number(found))))
}

unsafe fn received(status: *const Status, datatype: Datatype, count: fn(&Type, usize) -> Option<usize>) -> Result<Option<usize>> {
    let bytes = load(status, "status")?.count_bytes();
    Ok(count(datatype::lookup(datatype)?, bytes as usize))
}

pub unsafe fn MPI_Status_set_elements<N: Number>(function: &'static str, status: *mut Status, datatype: Datatype, count: N) -> c_int {
    finish(function, set_elements(status, datatype, count.wide()))
}

unsafe fn set_elements(status: *mut Status, datatype: Datatype, count: i64) -> Result<()> {
    let mut changed = load(status, "status")?;
    changed.set_count_bytes(datatype::lookup(datatype)?.bytes_of(length(count)?)? as u64);
    store(status, "status", changed)
}
