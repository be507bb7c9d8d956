//! Constructors (MPI-5.0 §5.1.2 to §5.1.4, §5.1.7, §5.1.10) and what they were called with (§5.1.13).
//!
//! Displacements and strides are in bytes for the constructors with an `h` and for structures, in extents of the old type for the
//! others. All give `MPI_ERR_TYPE` for an old type that is none, `MPI_ERR_COUNT` for a negative count and for types whose size or
//! bounds 64 bits do not hold, `MPI_ERR_ARG` for other arguments out of range.
#![forbid(unsafe_code)]

use super::array;
use super::layout::{Block, Layout, SharedLayout};
use super::recipe::{Form, Recipe};
use super::{TABLE, describe, insert, lookup};
use crate::attributes::{self, Object};
use crate::consts::*;
use crate::error::{Error, Result};
use crate::handle::Datatype;
use smallvec::SmallVec;

pub fn dup(old: Datatype) -> Result<Datatype> {
    let source = lookup(old)?;
    let layout = SharedLayout::made_by(Layout::same(source.layout())?, MPI_COMBINER_DUP, Form::Small, |recipe| {
        recipe.datatype(source.layout());
    });
    let handle = insert(layout, false)?;
    if source.committed() {
        super::commit(handle)?;
    }
    attributes::copy_all(Object::Type(old), Object::Type(handle)).inspect_err(|_| _ = TABLE.end(handle.0, |_| Some(())))?;
    Ok(handle)
}

pub fn contiguous(form: Form, count: i64, old: Datatype) -> Result<Datatype> {
    let child = old_type(old)?;
    finish(Layout::contiguous(counted(count)?, child), MPI_COMBINER_CONTIGUOUS, form, |recipe| recipe.count(count).datatype(child))
}

pub fn vector(form: Form, count: i64, length: i64, stride: i64, old: Datatype) -> Result<Datatype> {
    let child = old_type(old)?;
    let step = scaled("stride", stride, child)?;
    let layout = Layout::strided(counted(count)?, block_length(length)?, step, child);
    finish(layout, MPI_COMBINER_VECTOR, form, |recipe| recipe.count_list(&[count, length, stride]).datatype(child))
}

pub fn hvector(form: Form, count: i64, length: i64, stride: i64, old: Datatype) -> Result<Datatype> {
    let child = old_type(old)?;
    let layout = Layout::strided(counted(count)?, block_length(length)?, stride as isize, child);
    finish(layout, MPI_COMBINER_HVECTOR, form, |recipe| recipe.count_list(&[count, length]).address_list(&[stride]).datatype(child))
}

/// `lengths` and `displacements` have as many entries as the count says, here and below.
pub fn indexed(form: Form, lengths: &[i64], displacements: &[i64], old: Datatype) -> Result<Datatype> {
    let child = old_type(old)?;
    let blocks = blocks(lengths.iter().copied(), displacements, |displacement| scaled("displacement", displacement, child))?;
    finish(Layout::indexed(blocks, child), MPI_COMBINER_INDEXED, form, |recipe| {
        recipe.count(lengths.len() as i64).count_list(lengths).count_list(displacements).datatype(child)
    })
}

pub fn hindexed(form: Form, lengths: &[i64], displacements: &[i64], old: Datatype) -> Result<Datatype> {
    let child = old_type(old)?;
    let blocks = blocks(lengths.iter().copied(), displacements, |displacement| Ok(displacement as isize))?;
    finish(Layout::indexed(blocks, child), MPI_COMBINER_HINDEXED, form, |recipe| {
        recipe.count(lengths.len() as i64).count_list(lengths).address_list(displacements).datatype(child)
    })
}

pub fn indexed_block(form: Form, length: i64, displacements: &[i64], old: Datatype) -> Result<Datatype> {
    let child = old_type(old)?;
    let blocks = blocks(std::iter::repeat(length), displacements, |displacement| scaled("displacement", displacement, child))?;
    finish(Layout::indexed(blocks, child), MPI_COMBINER_INDEXED_BLOCK, form, |recipe| {
        recipe.count_list(&[displacements.len() as i64, length]).count_list(displacements).datatype(child)
    })
}

pub fn hindexed_block(form: Form, length: i64, displacements: &[i64], old: Datatype) -> Result<Datatype> {
    let child = old_type(old)?;
    let blocks = blocks(std::iter::repeat(length), displacements, |displacement| Ok(displacement as isize))?;
    finish(Layout::indexed(blocks, child), MPI_COMBINER_HINDEXED_BLOCK, form, |recipe| {
        recipe.count_list(&[displacements.len() as i64, length]).address_list(displacements).datatype(child)
    })
}

pub fn structure(form: Form, lengths: &[i64], displacements: &[i64], olds: &[Datatype]) -> Result<Datatype> {
    let (mut parts, mut types) = (Vec::with_capacity(olds.len()), SmallVec::with_capacity(olds.len()));
    for ((&length, &displacement), &old) in lengths.iter().zip(displacements).zip(olds) {
        let child = old_type(old)?;
        types.push(child.clone());
        parts.push((Block { displacement: displacement as isize, length: block_length(length)? }, child.clone()));
    }
    finish(Layout::structure(parts), MPI_COMBINER_STRUCT, form, |recipe| {
        recipe.types = types;
        recipe.count(lengths.len() as i64).count_list(lengths).address_list(displacements)
    })
}

pub fn resized(form: Form, old: Datatype, lb: i64, extent: i64) -> Result<Datatype> {
    let child = old_type(old)?;
    let layout = Layout::bounded(0, child, lb as i128, extent as i128);
    finish(layout, MPI_COMBINER_RESIZED, form, |recipe| recipe.address_list(&[lb, extent]).datatype(child))
}

/// A part of an array; all slices have one entry for each dimension.
pub fn subarray(form: Form, sizes: &[i64], subsizes: &[i64], starts: &[i64], order: i32, old: Datatype) -> Result<Datatype> {
    let child = old_type(old)?;
    finish(array::subarray(sizes, subsizes, starts, order, child), MPI_COMBINER_SUBARRAY, form, |recipe| {
        recipe.integer(sizes.len() as i32).count_list(sizes).count_list(subsizes).count_list(starts).integer(order).datatype(child)
    })
}

/// The part of an array that one process of a grid has.
pub fn darray(form: Form, grid: array::Grid, gsizes: &[i64], order: i32, old: Datatype) -> Result<Datatype> {
    let child = old_type(old)?;
    finish(array::darray(&grid, gsizes, order, child), MPI_COMBINER_DARRAY, form, |recipe| {
        recipe.integers(&[grid.size, grid.rank, gsizes.len() as i32]).count_list(gsizes);
        recipe.integers(grid.distributions).integers(grid.arguments).integers(grid.processes).integer(order).datatype(child)
    })
}

/// What `MPI_Type_get_envelope` tells: how many arguments of each kind there were.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Envelope {
    pub integers: usize,
    pub addresses: usize,
    pub large_counts: usize,
    pub datatypes: usize,
    /// `MPI_COMBINER_*`.
    pub combiner: i32,
}

/// How the datatype was made. The small form cannot tell of one made with large counts.
///
/// # Errors
/// `MPI_ERR_TYPE`.
pub fn envelope(form: Form, handle: Datatype) -> Result<Envelope> {
    let Some(recipe) = lookup(handle)?.layout().recipe() else {
        return Ok(Envelope { integers: 0, addresses: 0, large_counts: 0, datatypes: 0, combiner: MPI_COMBINER_NAMED });
    };
    check_form(form, handle, recipe)?;
    Ok(Envelope {
        integers: recipe.integers.len(),
        addresses: recipe.addresses.len(),
        large_counts: recipe.counts.len(),
        datatypes: recipe.types.len(),
        combiner: recipe.combiner,
    })
}

/// The arguments that the datatype was made with: its recipe.
///
/// # Errors
/// `MPI_ERR_TYPE` for predefined datatypes, and as [`envelope`].
pub fn contents(form: Form, handle: Datatype) -> Result<&'static Recipe> {
    let Some(recipe) = lookup(handle)?.layout().recipe() else {
        return Err(Error::new(MPI_ERR_TYPE, format!("datatype is {}, which is predefined and has no contents", describe(handle))));
    };
    check_form(form, handle, recipe)?;
    Ok(recipe)
}

/// A handle for a datatype that another was made of: its own where it is predefined, otherwise a new one that the caller frees.
///
/// # Errors
/// `MPI_ERR_OTHER` when too many datatypes exist.
pub fn reveal(layout: &SharedLayout) -> Result<Datatype> {
    match (layout.named, layout.recipe()) {
        (Some(handle), _) => Ok(handle),
        (None, Some(recipe)) => match *recipe.integers.as_slice() {
            [p, r] if recipe.combiner == MPI_COMBINER_F90_REAL => super::f90(super::Parameters::Real(p, r)),
            [p, r] if recipe.combiner == MPI_COMBINER_F90_COMPLEX => super::f90(super::Parameters::Complex(p, r)),
            [r] if recipe.combiner == MPI_COMBINER_F90_INTEGER => super::f90(super::Parameters::Integer(r)),
            _ => insert(layout.clone(), false),
        },
        (None, None) => insert(layout.clone(), false),
    }
}

fn check_form(form: Form, handle: Datatype, recipe: &Recipe) -> Result<()> {
    // A large-count constructor that takes no counts, as of a structure without blocks, still has its count.
    if form == Form::Small && !recipe.counts.is_empty() {
        let text = format!("datatype is {:#x}, which was made with large counts: use the function that ends in _c", handle.0);
        return Err(Error::new(MPI_ERR_TYPE, text));
    }
    Ok(())
}

/// The handle of a layout, with the arguments that `fill` puts down. It is moved once, to where it stays: all of it has just been written, and a copy waits for that.
#[inline(always)]
fn finish(layout: Result<Layout>, combiner: i32, form: Form, fill: impl FnOnce(&mut Recipe) -> &mut Recipe) -> Result<Datatype> {
    match layout {
        Ok(layout) => insert(
            SharedLayout::made_by(layout, combiner, form, |recipe| {
                fill(recipe);
            }),
            false,
        ),
        Err(error) => Err(error),
    }
}

fn old_type(old: Datatype) -> Result<&'static SharedLayout> {
    Ok(lookup(old)?.layout())
}

fn counted(count: i64) -> Result<usize> {
    usize::try_from(count).map_err(|_| Error::new(MPI_ERR_COUNT, format!("count is {count}, which is negative")))
}

fn block_length(length: i64) -> Result<usize> {
    usize::try_from(length).map_err(|_| Error::new(MPI_ERR_ARG, format!("blocklength is {length}, which is negative")))
}

/// Extents of `child` as bytes.
fn scaled(name: &str, value: i64, child: &Layout) -> Result<isize> {
    (value as isize).checked_mul(child.extent()).ok_or_else(|| {
        let extent = child.extent();
        Error::new(MPI_ERR_ARG, format!("{name} is {value}, which in extents of {extent} bytes 64 bits do not hold"))
    })
}

fn blocks(lengths: impl Iterator<Item = i64>, displacements: &[i64], bytes: impl Fn(i64) -> Result<isize>) -> Result<Vec<Block>> {
    let block = |(length, &displacement)| Ok(Block { displacement: bytes(displacement)?, length: block_length(length)? });
    lengths.zip(displacements).map(block).collect()
}
