//! The type map of a datatype (MPI-5.0 §5.1): sizes, bounds, and how it is put together from others.
#![forbid(unsafe_code)]

use super::external;
use super::program::Program;
use super::recipe::{Form, Recipe};
use crate::consts::*;
use crate::error::{Error, Result};
use crate::handle::Datatype;
use crate::op::Basic;
use crate::spare::{Pool, Poolable, Pooled};
use std::ops::{Add, Deref, Mul, Sub};
use std::sync::{Arc, OnceLock};

/// How deep datatypes may be built upon each other.
pub const NESTING_MAX: u32 = 1000;

/// Elements that follow each other at the distance of their extent.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Block {
    /// Bytes from the start of the whole.
    pub displacement: isize,
    pub length: usize,
}

/// Where the parts of a datatype lie.
pub enum Shape {
    /// A basic element: not a pair.
    Basic(Datatype),
    /// `child`, with other bounds or in another place.
    Same(isize, SharedLayout),
    /// `count` blocks of `length` children, `stride` bytes apart.
    Strided { count: usize, length: usize, stride: isize, child: SharedLayout },
    /// Blocks of one child.
    Indexed(Box<[Block]>, SharedLayout),
    /// Blocks of different children.
    Struct(Box<[(Block, SharedLayout)]>),
}

/// What does not change about a datatype, shared by all that is made of it.
pub struct Layout {
    /// Bytes of data.
    pub size: usize,
    pub lb: isize,
    pub ub: isize,
    /// Bounds of the data alone; both 0 where there is none.
    pub true_lb: isize,
    pub true_ub: isize,
    /// Whether the bounds were set by hand: then they hold in types made of this one too (MPI-5.0 §5.1.7).
    pub marked: bool,
    /// Largest alignment of its elements, bytes.
    pub alignment: usize,
    /// Whether the data of one is a single piece, in order.
    pub dense: bool,
    /// Basic elements.
    pub elements: usize,
    /// Bytes of each basic element; 0 where they differ.
    pub element_bytes: usize,
    /// Bytes of data in "external32".
    pub external_bytes: usize,
    pub depth: u32,
    /// What a reduction sees: a predefined type, or a duplicate of one.
    pub basic: Option<Basic>,
    pub shape: Shape,
    /// The handle of a predefined type.
    pub named: Option<Datatype>,
    program: OnceLock<Arc<Program>>,
}

/// A layout, and how it was made.
pub struct Made {
    layout: Layout,
    /// `None` for what exists inside of others only.
    recipe: Option<Recipe>,
}

/// A share of a layout. The layouts of predefined datatypes are there for ever, and need no count.
#[derive(Clone)]
pub enum SharedLayout {
    Predefined(&'static Layout),
    Counted(Pooled<Made>),
}

impl Poolable for Made {
    fn pool() -> &'static Pool<Made> {
        static LAYOUTS: Pool<Made> = Pool::new();
        &LAYOUTS
    }
}

impl SharedLayout {
    /// With how it was made, which `fill` writes where it stays: it is large.
    #[inline(always)]
    pub fn made_by(layout: Layout, combiner: i32, form: Form, fill: impl FnOnce(&mut Recipe)) -> SharedLayout {
        let mut made = Pooled::place(|| Made { layout, recipe: Some(Recipe::new(combiner, form)) });
        if let Some(recipe) = made.own().and_then(|made| made.recipe.as_mut()) {
            fill(recipe);
        }
        SharedLayout::Counted(made)
    }

    /// How it was made. `None` for predefined datatypes and what exists inside of others only.
    pub fn recipe(&self) -> Option<&Recipe> {
        match self {
            SharedLayout::Predefined(_) => None,
            SharedLayout::Counted(made) => made.recipe.as_ref(),
        }
    }

    /// For a predefined datatype.
    pub fn predefined(layout: Layout) -> SharedLayout {
        SharedLayout::Predefined(Box::leak(Box::new(layout)))
    }

    /// The same arrangement of elements that have other sizes, as in a file of another representation: displacements that are
    /// multiples of what they step over grow and shrink with it (MPI-5.0 §14.5, portable datatypes); others stay.
    ///
    /// # Errors
    /// What `bytes_of` says about an element; `MPI_ERR_COUNT` past 63 bits.
    pub fn resized_elements(&self, bytes_of: &dyn Fn(Datatype, &Layout) -> Result<usize>) -> Result<SharedLayout> {
        let scaled = |displacement: isize, old: &Layout, new: &Layout| match old.extent() {
            0 => displacement,
            extent if displacement % extent == 0 => displacement / extent * new.extent(),
            _ => displacement,
        };
        let block = |block: &Block, old: &Layout, new: &Layout| Block { displacement: scaled(block.displacement, old, new), length: block.length };
        let made = match &self.shape {
            Shape::Basic(handle) => {
                let bytes = bytes_of(*handle, self)?;
                if bytes == self.size {
                    return Ok(self.clone());
                }
                Layout::contiguous(bytes, super::lookup(MPI_BYTE)?.layout())?
            }
            Shape::Same(displacement, child) => {
                let new = child.resized_elements(bytes_of)?;
                let (lb, ub) = (scaled(self.lb, child, &new), scaled(self.ub, child, &new));
                Layout::bounded(scaled(*displacement, child, &new), &new, lb as i128, ub as i128 - lb as i128)?
            }
            Shape::Strided { count, length, stride, child } => {
                let new = child.resized_elements(bytes_of)?;
                Layout::strided(*count, *length, scaled(*stride, child, &new), &new)?
            }
            Shape::Indexed(blocks, child) => {
                let new = child.resized_elements(bytes_of)?;
                Layout::indexed(blocks.iter().map(|old| block(old, child, &new)).collect(), &new)?
            }
            Shape::Struct(parts) => {
                let new = parts.iter().map(|(old, child)| {
                    let new = child.resized_elements(bytes_of)?;
                    Ok((block(old, child, &new), new))
                });
                Layout::structure(new.collect::<Result<Vec<_>>>()?)?
            }
        };
        let same = made.size == self.size && made.lb == self.lb && made.ub == self.ub && made.true_lb == self.true_lb && made.true_ub == self.true_ub;
        Ok(if same { self.clone() } else { made.into() })
    }
}

impl From<Layout> for SharedLayout {
    #[inline]
    fn from(layout: Layout) -> SharedLayout {
        SharedLayout::Counted(Pooled::place(|| Made { layout, recipe: None }))
    }
}

impl Deref for SharedLayout {
    type Target = Layout;
    #[inline]
    fn deref(&self) -> &Layout {
        match self {
            SharedLayout::Predefined(layout) => layout,
            SharedLayout::Counted(made) => &made.layout,
        }
    }
}

impl Layout {
    /// An element that no other is part of; `alignment` in bytes.
    pub fn element(handle: Datatype, kind: Basic, alignment: usize) -> Layout {
        let size = kind.size_bytes();
        Layout {
            size,
            lb: 0,
            ub: size as isize,
            true_lb: 0,
            true_ub: size as isize,
            marked: false,
            alignment,
            dense: true,
            elements: 1,
            element_bytes: size,
            external_bytes: external::element_bytes(handle, kind),
            depth: 0,
            basic: Some(kind),
            shape: Shape::Basic(handle),
            named: Some(handle),
            program: OnceLock::new(),
        }
    }

    /// `count` blocks of `length` children, `stride` bytes apart.
    ///
    /// # Errors
    /// `MPI_ERR_COUNT` where sizes or bounds do not fit 63 bits, here and below; `MPI_ERR_TYPE` past [`NESTING_MAX`].
    pub fn strided(count: usize, length: usize, stride: isize, child: &SharedLayout) -> Result<Layout> {
        let shape = Shape::Strided { count, length, stride, child: child.clone() };
        let few = count < FEW && length < FEW && near(stride) && child.is_small();
        if few { Layout::strided_by::<i64>(count, length, stride, child, shape) } else { Layout::strided_by::<i128>(count, length, stride, child, shape) }
    }

    fn strided_by<N: Wide>(count: usize, length: usize, stride: isize, child: &Layout, shape: Shape) -> Result<Layout> {
        let mut sum = Sum::<N>::new();
        let total = N::of(count) * N::of(length);
        if total > N::ZERO {
            let (along, inside) = ((N::of(count) - N::ONE) * N::at(stride), (N::of(length) - N::ONE) * N::at(child.extent()));
            let low = along.min(N::ZERO) + inside.min(N::ZERO);
            let high = along.max(N::ZERO) + inside.max(N::ZERO);
            sum.add(low, high, total, child);
        }
        let piece = child.repeats_dense(length) && (count <= 1 || N::at(stride) == N::of(length) * N::of(child.size));
        sum.dense = total == N::ZERO || (child.dense && piece);
        sum.into_layout(shape, child.depth)
    }

    pub fn contiguous(count: usize, child: &SharedLayout) -> Result<Layout> {
        Layout::strided(1, count, 0, child)
    }

    pub fn indexed(blocks: Vec<Block>, child: &SharedLayout) -> Result<Layout> {
        let mut sum = Sum::<i128>::new();
        for block in &blocks {
            sum.block(*block, child);
        }
        sum.into_layout(Shape::Indexed(blocks.into(), child.clone()), child.depth)
    }

    pub fn structure(parts: Vec<(Block, SharedLayout)>) -> Result<Layout> {
        let few = parts.len() < FEW && parts.iter().all(|(block, child)| block.length < FEW && near(block.displacement) && child.is_small());
        if few { Layout::structure_by::<i64>(parts) } else { Layout::structure_by::<i128>(parts) }
    }

    fn structure_by<N: Wide>(parts: Vec<(Block, SharedLayout)>) -> Result<Layout> {
        let mut sum = Sum::<N>::new();
        for (block, child) in &parts {
            sum.block(*block, child);
        }
        let depth = parts.iter().map(|(_, child)| child.depth).max().unwrap_or(0);
        sum.into_layout(Shape::Struct(parts.into()), depth)
    }

    /// Whether [`FEW`] times [`FEW`] of it, [`FEW`] times over, have sizes and bounds that 64 bits hold.
    fn is_small(&self) -> bool {
        let bounds = [self.lb, self.ub, self.true_lb, self.true_ub];
        (self.size | self.external_bytes | self.elements) < NEAR && bounds.into_iter().all(near)
    }

    /// `child` moved by `displacement` bytes, with bounds set by hand.
    pub fn bounded(displacement: isize, child: &SharedLayout, lb: i128, extent: i128) -> Result<Layout> {
        let mut sum = Sum::<i128>::new();
        sum.block(Block { displacement, length: 1 }, child);
        sum.marks = Some((lb, lb + extent));
        sum.into_layout(Shape::Same(displacement, child.clone()), child.depth)
    }

    /// The same again: what `MPI_Type_dup` makes.
    pub fn same(child: &SharedLayout) -> Result<Layout> {
        let mut sum = Sum::<i128>::new();
        sum.block(Block { displacement: 0, length: 1 }, child);
        let mut layout = sum.into_layout(Shape::Same(0, child.clone()), child.depth)?;
        layout.basic = child.basic;
        Ok(layout)
    }

    pub fn extent(&self) -> isize {
        self.ub - self.lb
    }

    /// Whether `count` of it are one piece when one is.
    fn repeats_dense(&self, count: usize) -> bool {
        count <= 1 || self.extent() as i128 == self.size as i128
    }

    /// The program that moves its data; made at the first call.
    pub fn program(&self) -> &Arc<Program> {
        self.program.get_or_init(|| Arc::new(Program::compile(self)))
    }

    /// The kind of all basic elements, pairs among them, where they are of one kind.
    pub fn element_kind(&self) -> Option<Basic> {
        match &self.shape {
            _ if self.basic.is_some() => self.basic,
            Shape::Basic(_) => None,
            Shape::Same(_, child) | Shape::Strided { child, .. } | Shape::Indexed(_, child) => child.element_kind(),
            Shape::Struct(parts) => {
                let mut kinds = parts.iter().filter(|(block, child)| block.length > 0 && child.size > 0).map(|(_, child)| child.element_kind());
                let first = kinds.next()??;
                kinds.all(|kind| kind == Some(first)).then_some(first)
            }
        }
    }

    /// Basic elements in the first `bytes` of the packed data of any number of them; `None` where an element would be cut.
    pub fn elements_in(&self, bytes: usize) -> Option<usize> {
        if bytes == 0 || self.size == 0 {
            return (bytes == 0).then_some(0);
        }
        if self.element_bytes > 0 {
            return bytes.is_multiple_of(self.element_bytes).then(|| bytes / self.element_bytes);
        }
        let whole = bytes / self.size * self.elements;
        let mut rest = bytes % self.size;
        let inside = self.find(|child, length| {
            // The block in which the bytes end.
            let size = child.size as u128 * length as u128;
            if rest as u128 >= size {
                rest -= size as usize;
                return Step::Over(child.elements * length);
            }
            Step::Into(rest)
        });
        Some(whole + inside.0 + inside.1.map_or(Some(0), |(child, rest)| child.elements_in(rest))?)
    }

    /// Packed bytes of the first `elements` basic elements of any number of them; `None` past 63 bits.
    pub fn bytes_of(&self, elements: usize) -> Option<usize> {
        if elements == 0 || self.elements == 0 {
            return Some(0);
        }
        if self.element_bytes > 0 {
            return elements.checked_mul(self.element_bytes);
        }
        let whole = (elements / self.elements).checked_mul(self.size)?;
        let mut rest = elements % self.elements;
        let inside = self.find(|child, length| {
            let count = child.elements as u128 * length as u128;
            if rest as u128 >= count {
                rest -= count as usize;
                return Step::Over(child.size * length);
            }
            Step::Into(rest)
        });
        whole.checked_add(inside.0)?.checked_add(inside.1.map_or(Some(0), |(child, rest)| child.bytes_of(rest))?)
    }

    /// Steps over blocks in order, adding up, until one has to be looked into.
    fn find(&self, mut step: impl FnMut(&SharedLayout, usize) -> Step) -> (usize, Option<(&SharedLayout, usize)>) {
        let mut sum = 0;
        let mut look = |child, length| match step(child, length) {
            Step::Over(add) => {
                sum += add;
                None
            }
            Step::Into(rest) => Some((child, rest)),
        };
        let found = match &self.shape {
            Shape::Basic(_) => None,
            Shape::Same(_, child) => look(child, 1),
            Shape::Strided { count, length, child, .. } => look(child, count * length),
            Shape::Indexed(blocks, child) => blocks.iter().find_map(|block| look(child, block.length)),
            Shape::Struct(parts) => parts.iter().find_map(|(block, child)| look(child, block.length)),
        };
        (sum, found)
    }
}

enum Step {
    Over(usize),
    Into(usize),
}

/// Blocks, and elements of a block, of which there are fewer, and bytes that are nearer, can be summed up in 64 bits: a sum of `FEW` products of `FEW` and
/// `FEW * NEAR` at most.
const FEW: usize = 1 << 12;
const NEAR: usize = 1 << 24;
const _: () = assert!((FEW as u128) * (FEW as u128) * 4 * (NEAR as u128) < 1 << 63);

fn near(bytes: isize) -> bool {
    bytes.unsigned_abs() < NEAR
}

/// An integer that holds the sums of a [`Sum`].
trait Wide: Copy + Ord + Add<Output = Self> + Sub<Output = Self> + Mul<Output = Self> + Into<i128> {
    const ZERO: Self;
    const ONE: Self;
    /// A size or count.
    fn of(value: usize) -> Self;
    /// A displacement.
    fn at(value: isize) -> Self;
    /// With `count` times `each` more, or the largest value where that is larger.
    fn plus(self, each: Self, count: Self) -> Self;
    /// As displacement, where 64 bits hold it.
    fn narrow(self) -> Option<isize>;
    /// Rounded up to a multiple of a power of two.
    fn rounded_up(self, alignment: usize) -> Self;
}

macro_rules! wide {
    ($type:ty) => {
        impl Wide for $type {
            const ZERO: Self = 0;
            const ONE: Self = 1;
            #[inline(always)]
            fn of(value: usize) -> Self {
                value as Self
            }
            #[inline(always)]
            fn at(value: isize) -> Self {
                value as Self
            }
            #[inline(always)]
            fn plus(self, each: Self, count: Self) -> Self {
                self.saturating_add(each.saturating_mul(count))
            }
            #[inline(always)]
            fn narrow(self) -> Option<isize> {
                isize::try_from(self).ok()
            }
            #[inline(always)]
            fn rounded_up(self, alignment: usize) -> Self {
                debug_assert!(alignment.is_power_of_two());
                let below = alignment as Self - 1;
                (self + below) & !below
            }
        }
    };
}
wide!(i64);
wide!(i128);

/// Adds up a type map from blocks in order. 128 bits hold every place that 64-bit arguments lead to; 64 bits those of [`FEW`] things that are small.
struct Sum<N> {
    size: N,
    elements: N,
    external_bytes: N,
    data: Option<(N, N)>,
    /// Bounds of its children, with what rounds each of them up.
    bounds: Option<(N, N)>,
    marks: Option<(N, N)>,
    alignment: usize,
    dense: bool,
    /// Bytes of each element; 0 where they differ, `None` before the first.
    element_bytes: Option<usize>,
}

impl<N: Wide> Sum<N> {
    fn new() -> Sum<N> {
        let (size, elements, external_bytes) = (N::ZERO, N::ZERO, N::ZERO);
        Sum { size, elements, external_bytes, data: None, bounds: None, marks: None, alignment: 1, dense: true, element_bytes: None }
    }

    fn block(&mut self, block: Block, child: &Layout) {
        if block.length == 0 {
            return;
        }
        let first = N::at(block.displacement);
        let last = first + (N::of(block.length) - N::ONE) * N::at(child.extent());
        if child.size > 0 {
            let follows = self.data.is_none_or(|(_, end)| end == first + N::at(child.true_lb));
            self.dense &= child.dense && child.repeats_dense(block.length) && follows;
        }
        self.add(first.min(last), first.max(last), N::of(block.length), child);
    }

    /// `count` children, the lowest moved by `low` bytes, the highest by `high`.
    fn add(&mut self, low: N, high: N, count: N, child: &Layout) {
        if child.size > 0 {
            join(&mut self.data, low + N::at(child.true_lb), high + N::at(child.true_ub));
            join(&mut self.bounds, low + N::at(child.lb), high + N::at(child.ub));
            self.size = self.size.plus(N::of(child.size), count);
            self.elements = self.elements.plus(N::of(child.elements), count);
            self.external_bytes = self.external_bytes.plus(N::of(child.external_bytes), count);
            self.alignment = self.alignment.max(child.alignment);
            self.element_bytes = match self.element_bytes {
                Some(bytes) if bytes != child.element_bytes => Some(0),
                _ => Some(child.element_bytes),
            };
        }
        if child.marked {
            join(&mut self.marks, low + N::at(child.lb), high + N::at(child.ub));
        }
    }

    fn into_layout(self, shape: Shape, depth: u32) -> Result<Layout> {
        if depth >= NESTING_MAX {
            return Err(Error::new(MPI_ERR_TYPE, format!("the datatype is nested deeper than {NESTING_MAX}")));
        }
        let (true_lb, true_ub) = self.data.unwrap_or((N::ZERO, N::ZERO));
        let (lb, ub) = self.marks.unwrap_or_else(|| {
            // MPI-5.0 §5.1.6: the extent is rounded up so that the next element is aligned, to a power of two, as all alignments of the ABI's types are.
            // A child's own padding is kept, as others do: it matters for strides that break the alignment only, and n elements then have n extents.
            let (lb, ub) = self.bounds.unwrap_or((N::ZERO, N::ZERO));
            (lb, lb + (ub - lb).rounded_up(self.alignment))
        });
        let size = fit("size", self.size)? as usize;
        fit("extent", ub - lb)?;
        fit("true extent", true_ub - true_lb)?;
        Ok(Layout {
            size,
            lb: fit("lower bound", lb)?,
            ub: fit("upper bound", ub)?,
            true_lb: fit("true lower bound", true_lb)?,
            true_ub: fit("true upper bound", true_ub)?,
            marked: self.marks.is_some(),
            alignment: self.alignment,
            dense: self.dense,
            elements: self.elements.into() as usize,
            element_bytes: self.element_bytes.unwrap_or(0),
            external_bytes: self.external_bytes.into() as usize,
            depth: depth + 1,
            basic: None,
            shape,
            named: None,
            program: OnceLock::new(),
        })
    }
}

fn join<N: Wide>(bounds: &mut Option<(N, N)>, low: N, high: N) {
    let (a, b) = bounds.unwrap_or((low, high));
    *bounds = Some((a.min(low), b.max(high)));
}

#[inline]
fn fit<N: Wide>(what: &str, value: N) -> Result<isize> {
    value.narrow().ok_or_else(|| too_large(what, value.into()))
}

#[cold]
fn too_large(what: &str, value: i128) -> Box<Error> {
    Error::new(MPI_ERR_COUNT, format!("the datatype's {what} would be {value} bytes, which 64 bits do not hold"))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Small datatypes are summed up in 64 bits, all others in 128: both give the same.
    #[test]
    fn sums_of_both_widths_are_the_same() {
        let numbers = |layout: &Layout| {
            let Layout { size, lb, ub, true_lb, true_ub, marked, alignment, dense, elements, element_bytes, external_bytes, depth, .. } = *layout;
            (size, [lb, ub, true_lb, true_ub], marked, alignment, dense, elements, element_bytes, external_bytes, depth)
        };
        let children: [SharedLayout; 3] = [MPI_CHAR, MPI_INT, MPI_DOUBLE].map(|handle| super::super::lookup(handle).unwrap().layout().clone());
        let moved = SharedLayout::from(Layout::bounded(-3, &children[1], -5, 7).unwrap());
        let empty = SharedLayout::from(Layout::contiguous(0, &children[2]).unwrap());
        let all = [&children[0], &children[1], &children[2], &moved, &empty];
        for child in all {
            for count in [0, 1, 2, 7, FEW - 1] {
                for length in [0, 1, 3, FEW - 1] {
                    for stride in [-(NEAR as isize) + 1, -8, 0, 1, 4, 12, NEAR as isize - 1] {
                        let shape = || Shape::Strided { count, length, stride, child: child.clone() };
                        let narrow = Layout::strided_by::<i64>(count, length, stride, child, shape()).unwrap();
                        let wide = Layout::strided_by::<i128>(count, length, stride, child, shape()).unwrap();
                        assert_eq!(numbers(&narrow), numbers(&wide), "{count} {length} {stride}");
                    }
                }
            }
        }
        for first in all {
            for second in all {
                for (displacement, length) in [(0, 1), (-8, 2), (4, 0), (1, 5), (NEAR as isize - 1, FEW - 1)] {
                    let block = |displacement, length, child: &SharedLayout| (Block { displacement, length }, child.clone());
                    let parts = || vec![block(0, 2, first), block(displacement, length, second), block(16, 1, first)];
                    let (narrow, wide) = (Layout::structure_by::<i64>(parts()).unwrap(), Layout::structure_by::<i128>(parts()).unwrap());
                    assert_eq!(numbers(&narrow), numbers(&wide), "{displacement} {length}");
                }
            }
        }
    }
}
