//! Parts of arrays: subarray and distributed array (MPI-5.0 §5.1.3, §5.1.4).
#![forbid(unsafe_code)]

use super::layout::{Block, Layout, SharedLayout};
use crate::consts::*;
use crate::error::{Error, Result};

/// A grid of processes and how an array is spread over it. All slices have one entry for each dimension.
#[derive(Clone, Copy, Debug)]
pub struct Grid<'a> {
    /// Processes in the grid.
    pub size: i32,
    /// The one that is asked about, in row-major order.
    pub rank: i32,
    /// `MPI_DISTRIBUTE_*` along each dimension.
    pub distributions: &'a [i32],
    /// Block sizes, or `MPI_DISTRIBUTE_DFLT_DARG`.
    pub arguments: &'a [i32],
    /// Processes along each dimension.
    pub processes: &'a [i32],
}

/// What of one dimension belongs to the part: blocks of `length` indices, `stride` indices apart, and a shorter last one.
struct Share {
    start: i64,
    count: i64,
    length: i64,
    stride: i64,
    rest: i64,
}

pub fn subarray(sizes: &[i64], subsizes: &[i64], starts: &[i64], order: i32, child: &SharedLayout) -> Result<Layout> {
    check_dimensions(sizes, "sizes")?;
    let mut shares = Vec::with_capacity(sizes.len());
    for (dimension, &size) in sizes.iter().enumerate() {
        let (length, start) = (subsizes[dimension], starts[dimension]);
        if !(1..=size).contains(&length) {
            return Err(argument(&format!("subsizes[{dimension}] is {length}, not from 1 to {size}")));
        }
        if !(0..=size - length).contains(&start) {
            return Err(argument(&format!("starts[{dimension}] is {start}, not from 0 to {}", size - length)));
        }
        shares.push(Share { start, count: 1, length, stride: 0, rest: 0 });
    }
    assemble(sizes, &shares, order, child)
}

pub fn darray(grid: &Grid, gsizes: &[i64], order: i32, child: &SharedLayout) -> Result<Layout> {
    check_dimensions(gsizes, "gsizes")?;
    let mut processes = 1i64;
    for (dimension, &along) in grid.processes.iter().enumerate() {
        if along < 1 {
            return Err(argument(&format!("psizes[{dimension}] is {along}, which is less than 1")));
        }
        processes = processes.saturating_mul(along as i64);
    }
    if processes != grid.size as i64 {
        return Err(argument(&format!("size is {}, but the product of psizes is {processes}", grid.size)));
    }
    if !(0..grid.size).contains(&grid.rank) {
        return Err(argument(&format!("rank is {}, not from 0 to {}", grid.rank, grid.size - 1)));
    }
    let mut shares = Vec::with_capacity(gsizes.len());
    let (mut behind, mut rank) = (grid.size, grid.rank);
    for (dimension, &size) in gsizes.iter().enumerate() {
        behind /= grid.processes[dimension];
        let coordinate = rank / behind;
        rank %= behind;
        shares.push(share(grid, dimension, size, coordinate as i64)?);
    }
    assemble(gsizes, &shares, order, child)
}

fn share(grid: &Grid, dimension: usize, size: i64, coordinate: i64) -> Result<Share> {
    let (processes, wanted) = (grid.processes[dimension] as i64, grid.arguments[dimension]);
    let asked = (wanted != MPI_DISTRIBUTE_DFLT_DARG).then_some(wanted as i64);
    if let Some(block) = asked
        && block < 1
        && grid.distributions[dimension] != MPI_DISTRIBUTE_NONE
    {
        return Err(argument(&format!("dargs[{dimension}] is {block}, which is less than 1")));
    }
    let block = match grid.distributions[dimension] {
        MPI_DISTRIBUTE_NONE if processes == 1 => size,
        MPI_DISTRIBUTE_NONE => {
            return Err(argument(&format!("psizes[{dimension}] is {processes} in a dimension with MPI_DISTRIBUTE_NONE")));
        }
        MPI_DISTRIBUTE_BLOCK => {
            let block = asked.unwrap_or((size + processes - 1) / processes);
            if (block as i128) * (processes as i128) < size as i128 {
                let text = format!("dargs[{dimension}] is {block}, too small for {size} indices on {processes} processes");
                return Err(argument(&text));
            }
            block
        }
        MPI_DISTRIBUTE_CYCLIC => asked.unwrap_or(1),
        other => return Err(argument(&format!("distribs[{dimension}] is {other}, which is no distribution"))),
    };
    // Both factors fit 31 bits, or the block is at most `size` and the coordinate 0 where it comes from `size`.
    let (start, stride) = (coordinate.saturating_mul(block), processes.saturating_mul(block));
    let left = (size - start).max(0);
    Ok(Share {
        start: if left > 0 { start } else { 0 },
        count: left / stride + i64::from(left % stride >= block),
        length: block,
        stride,
        rest: if left % stride >= block { 0 } else { left % stride },
    })
}

/// Puts the dimensions together, the fastest first. Each step is as large as the whole array in the dimensions that it has.
fn assemble(sizes: &[i64], shares: &[Share], order: i32, child: &SharedLayout) -> Result<Layout> {
    let fastest_first: Vec<usize> = match order {
        MPI_ORDER_FORTRAN => (0..sizes.len()).collect(),
        MPI_ORDER_C => (0..sizes.len()).rev().collect(),
        _ => return Err(argument(&format!("order is {order}, neither MPI_ORDER_C nor MPI_ORDER_FORTRAN"))),
    };
    let (mut whole, mut made) = (child.clone(), None);
    for dimension in fastest_first {
        if let Some(made) = made.take() {
            whole = SharedLayout::from(made);
        }
        let (share, extent) = (&shares[dimension], whole.extent() as i128);
        let bytes = |indices: i64| {
            let bytes = isize::try_from(indices as i128 * extent);
            bytes.map_err(|_| Error::new(MPI_ERR_COUNT, "the array has more bytes than 63 bits hold"))
        };
        // MPI-5.0 §5.1.3: the array's bounds, which hold in all that is made of it.
        let total = bytes(sizes[dimension])?;
        let blocks = SharedLayout::from(Layout::strided(share.count as usize, share.length as usize, bytes(share.stride)?, &whole)?);
        let mut parts = vec![(Block { displacement: bytes(share.start)?, length: 1 }, blocks)];
        if share.rest > 0 {
            let displacement = bytes(share.start + share.count * share.stride)?;
            parts.push((Block { displacement, length: share.rest as usize }, whole.clone()));
        }
        let part = Layout::structure(parts)?;
        made = Some(Layout::bounded(0, &part.into(), 0, total as i128)?);
    }
    made.ok_or_else(|| argument("ndims is 0"))
}

fn check_dimensions(sizes: &[i64], name: &str) -> Result<()> {
    if sizes.is_empty() {
        return Err(argument("ndims is not positive"));
    }
    match sizes.iter().position(|&size| size < 1) {
        Some(place) => Err(argument(&format!("{name}[{place}] is {}, which is less than 1", sizes[place]))),
        None => Ok(()),
    }
}

#[cold]
fn argument(text: &str) -> Box<Error> {
    Error::new(MPI_ERR_ARG, text)
}
