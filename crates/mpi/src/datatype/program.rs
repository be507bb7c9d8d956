//! The program of a datatype: its type map as runs, strides and nested loops. Built once, at its first use; it starts at any packed
//! byte in time that grows with the nesting, and with the logarithm of the number of irregular blocks.

use super::copy::{Collect, Mover, Packer, Run};
use super::layout::{Layout, Shape};
use std::collections::HashMap;
use std::sync::Arc;

/// Loops over this many runs or fewer are written out.
pub(super) const UNROLL_RUNS_MAX: usize = 16;

/// A step of a program. All but a run hold at least two non-empty things, so that a program is at most 63 deep.
#[derive(Debug)]
pub enum Node {
    Run(usize),
    /// `body`, of `size` packed bytes, every `stride` bytes.
    Loop {
        count: usize,
        stride: isize,
        size: usize,
        body: Arc<Node>,
    },
    /// Runs of the same length.
    Even {
        bytes: usize,
        places: Box<[isize]>,
    },
    Runs(Box<[Run]>),
    Each {
        size: usize,
        places: Box<[isize]>,
        body: Arc<Node>,
    },
    Parts(Box<[Part]>),
}

#[derive(Clone, Debug)]
pub struct Part {
    pub at: isize,
    pub packed: usize,
    pub size: usize,
    pub node: Arc<Node>,
}

/// Moves the data of one datatype.
#[derive(Debug)]
pub struct Program {
    /// From an element's address to the node's start, bytes.
    at: isize,
    /// From one element to the next.
    extent: isize,
    size: usize,
    node: Arc<Node>,
}

/// A node in its place, while a program is built.
#[derive(Clone)]
struct Piece {
    at: isize,
    size: usize,
    node: Arc<Node>,
}

impl Program {
    pub fn compile(layout: &Layout) -> Program {
        let piece = compile(layout);
        Program { at: piece.at, extent: layout.extent(), size: piece.size, node: piece.node }
    }

    #[inline]
    unsafe fn walk(&self, start: *mut u8, count: usize, offset: usize, bytes: usize, mover: &mut impl Mover) {
        assert!(
            count.checked_mul(self.size).is_some_and(|size| offset <= size && bytes <= size - offset),
            "packed bytes {offset} and {bytes} more are outside of {count} elements of {} bytes",
            self.size
        );
        if bytes > 0 {
            range_of_loop(self.extent, self.size, &self.node, start.wrapping_offset(self.at), offset, offset + bytes, mover);
        }
    }
}

// SAFETY: the walk visits the bytes of the type map, each once for each packed byte, in the range asked for and no others.
unsafe impl engine::Plan for Program {
    unsafe fn pack(&self, start: *const u8, count: usize, offset: usize, out: *mut u8, bytes: usize) {
        self.walk(start.cast_mut(), count, offset, bytes, &mut Packer::<true>::new(out));
    }

    unsafe fn unpack(&self, start: *mut u8, count: usize, offset: usize, from: *const u8, bytes: usize) {
        self.walk(start, count, offset, bytes, &mut Packer::<false>::new(from.cast_mut()));
    }

    /// At least 1.
    fn runs(&self) -> usize {
        runs(&self.node)
    }

    #[allow(clippy::not_unsafe_ptr_arg_deref)]
    fn io_vectors(&self, start: *mut u8, count: usize, offset: usize, bytes: usize, pieces_max: usize, out: &mut Vec<(*mut u8, usize)>) -> usize {
        // Neighbours are joined.
        let mut collect = Collect::new(out, pieces_max);
        // SAFETY: addresses are collected, not used.
        unsafe { self.walk(start, count, offset, bytes, &mut collect) };
        collect.covered()
    }
}

fn compile(layout: &Layout) -> Piece {
    if layout.size == 0 {
        return empty();
    }
    match &layout.shape {
        Shape::Basic(_) => Piece { at: 0, size: layout.size, node: Arc::new(Node::Run(layout.size)) },
        Shape::Same(displacement, child) => moved(child, *displacement),
        Shape::Strided { count, length, stride, child } => repeat(*count, *stride, repeat(*length, child.extent(), moved(child, 0))),
        Shape::Indexed(blocks, child) => {
            let one = moved(child, 0);
            let mut by_length: HashMap<usize, Piece> = HashMap::new();
            let pieces = blocks.iter().filter(|block| block.length > 0).map(|block| {
                let make = || repeat(block.length, child.extent(), one.clone());
                let piece = by_length.entry(block.length).or_insert_with(make).clone();
                Piece { at: piece.at + block.displacement, ..piece }
            });
            sequence(pieces.collect())
        }
        Shape::Struct(parts) => {
            let pieces = parts.iter().filter(|(block, child)| block.length > 0 && child.size > 0).map(|(block, child)| {
                let piece = repeat(block.length, child.extent(), moved(child, 0));
                Piece { at: piece.at + block.displacement, ..piece }
            });
            sequence(pieces.collect())
        }
    }
}

fn moved(child: &Layout, displacement: isize) -> Piece {
    if child.size == 0 {
        return empty();
    }
    let program = child.program();
    Piece { at: program.at + displacement, size: program.size, node: program.node.clone() }
}

fn empty() -> Piece {
    Piece { at: 0, size: 0, node: Arc::new(Node::Run(0)) }
}

fn repeat(count: usize, stride: isize, body: Piece) -> Piece {
    if count == 0 || body.size == 0 {
        return empty();
    }
    if count == 1 {
        return body;
    }
    let (at, size) = (body.at, count * body.size);
    let node = match &*body.node {
        Node::Run(bytes) if stride as i128 == *bytes as i128 => Node::Run(size),
        Node::Loop { count: inner, stride: step, size, body } if stride as i128 == *inner as i128 * *step as i128 => {
            Node::Loop { count: count * inner, stride: *step, size: *size, body: body.clone() }
        }
        node if runs(node).saturating_mul(count) <= UNROLL_RUNS_MAX => {
            let mut list = List::new();
            (0..count).for_each(|i| list.node(node, at + i as isize * stride));
            return list.into_piece();
        }
        node => {
            let inner = if runs(node) <= UNROLL_RUNS_MAX && !matches!(node, Node::Run(_)) {
                let mut list = List::new();
                list.node(node, 0);
                Arc::new(Node::Runs(list.runs.into()))
            } else {
                body.node.clone()
            };
            Node::Loop { count, stride, size: body.size, body: inner }
        }
    };
    Piece { at, size, node: Arc::new(node) }
}

fn sequence(mut pieces: Vec<Piece>) -> Piece {
    pieces.retain(|piece| piece.size > 0);
    if pieces.len() <= 1 {
        return pieces.pop().unwrap_or_else(empty);
    }
    let total = pieces.iter().fold(0usize, |sum, piece| sum.saturating_add(runs(&piece.node)));
    if total <= UNROLL_RUNS_MAX || pieces.iter().all(|piece| matches!(*piece.node, Node::Run(_))) {
        let mut list = List::new();
        pieces.iter().for_each(|piece| list.node(&piece.node, piece.at));
        return list.into_piece();
    }
    let (at, size) = (pieces[0].at, pieces.iter().map(|piece| piece.size).sum());
    let first = &pieces[0];
    if pieces.iter().all(|piece| Arc::ptr_eq(&piece.node, &first.node)) {
        let (size_of_one, body) = (first.size, first.node.clone());
        let places: Vec<isize> = pieces.iter().map(|piece| piece.at - at).collect();
        if let Some(stride) = even_stride(&places) {
            return Piece { at, size, ..repeat(places.len(), stride, first.clone()) };
        }
        return Piece { at, size, node: Arc::new(Node::Each { size: size_of_one, places: places.into(), body }) };
    }
    let mut packed = 0;
    let parts = pieces.iter().map(|piece| {
        packed += piece.size;
        Part { at: piece.at - at, packed: packed - piece.size, size: piece.size, node: piece.node.clone() }
    });
    Piece { at, size, node: Arc::new(Node::Parts(parts.collect())) }
}

/// The distance of places that all have the same one.
fn even_stride(places: &[isize]) -> Option<isize> {
    let stride = places[1].checked_sub(places[0])?;
    places.windows(2).all(|pair| pair[1].checked_sub(pair[0]) == Some(stride)).then_some(stride)
}

/// Runs written out; each that continues the one before is joined to it.
struct List {
    runs: Vec<Run>,
    packed: usize,
}

impl List {
    fn new() -> List {
        List { runs: Vec::new(), packed: 0 }
    }

    fn push(&mut self, at: isize, bytes: usize) {
        match self.runs.last_mut() {
            Some(last) if last.at as i128 + last.bytes as i128 == at as i128 => last.bytes += bytes,
            _ => self.runs.push(Run { at, packed: self.packed, bytes }),
        }
        self.packed += bytes;
    }

    fn node(&mut self, node: &Node, at: isize) {
        match node {
            Node::Run(bytes) => self.push(at, *bytes),
            Node::Loop { count, stride, body, .. } => {
                (0..*count).for_each(|i| self.node(body, at + i as isize * stride));
            }
            Node::Even { bytes, places } => places.iter().for_each(|place| self.push(at + place, *bytes)),
            Node::Runs(runs) => runs.iter().for_each(|run| self.push(at + run.at, run.bytes)),
            Node::Each { places, body, .. } => places.iter().for_each(|place| self.node(body, at + place)),
            Node::Parts(parts) => parts.iter().for_each(|part| self.node(&part.node, at + part.at)),
        }
    }

    fn into_piece(self) -> Piece {
        let List { mut runs, packed } = self;
        let at = runs[0].at;
        runs.iter_mut().for_each(|run| run.at -= at);
        let bytes = runs[0].bytes;
        let node = if runs.len() == 1 {
            Node::Run(bytes)
        } else if runs.iter().all(|run| run.bytes == bytes) {
            let places: Vec<isize> = runs.iter().map(|run| run.at).collect();
            match even_stride(&places) {
                Some(stride) => Node::Loop { count: places.len(), stride, size: bytes, body: Arc::new(Node::Run(bytes)) },
                None => Node::Even { bytes, places: places.into() },
            }
        } else {
            Node::Runs(runs.into())
        };
        Piece { at, size: packed, node: Arc::new(node) }
    }
}

/// Runs of a node, saturating.
fn runs(node: &Node) -> usize {
    match node {
        Node::Run(_) => 1,
        Node::Loop { count, body, .. } => count.saturating_mul(runs(body)),
        Node::Even { places, .. } => places.len(),
        Node::Runs(runs) => runs.len(),
        Node::Each { places, body, .. } => places.len().saturating_mul(runs(body)),
        // Its children are written out where they are few, so that it has more than a loop may write out.
        Node::Parts(parts) => parts.iter().fold(0, |sum: usize, part| sum.saturating_add(runs(&part.node))),
    }
}

/// Moves all of a node at `at`. Gives `false` when the mover has had enough, here and below.
///
/// # Safety
/// As the mover's functions, for all memory of the node.
unsafe fn whole(node: &Node, at: *mut u8, mover: &mut impl Mover) -> bool {
    match node {
        Node::Run(bytes) => mover.run(at, *bytes),
        Node::Loop { count, stride, size, body } => whole_loop(*count, *stride, *size, body, at, mover),
        Node::Even { bytes, places } => mover.even(at, places, *bytes),
        Node::Runs(runs) => listed(runs, at, mover),
        Node::Each { places, body, .. } => places.iter().all(|place| whole(body, at.wrapping_offset(*place), mover)),
        Node::Parts(parts) => parts.iter().all(|part| whole(&part.node, at.wrapping_offset(part.at), mover)),
    }
}

#[inline]
unsafe fn listed(runs: &[Run], at: *mut u8, mover: &mut impl Mover) -> bool {
    runs.iter().enumerate().all(|(i, run)| {
        if let Some(next) = runs.get(i + 1) {
            mover.soon(at.wrapping_offset(next.at), run.bytes, next.bytes);
        }
        mover.run(at.wrapping_offset(run.at), run.bytes)
    })
}

#[inline]
unsafe fn whole_loop(count: usize, stride: isize, size: usize, body: &Node, at: *mut u8, mover: &mut impl Mover) -> bool {
    match body {
        Node::Run(bytes) => mover.strided(at, stride, *bytes, count),
        Node::Runs(runs) if runs.len() <= UNROLL_RUNS_MAX => mover.table(at, stride, runs, size, count),
        _ => (0..count).all(|i| whole(body, at.wrapping_offset(stride.wrapping_mul(i as isize)), mover)),
    }
}

/// Moves packed bytes `from..to` of a node at `at`; `from < to`.
unsafe fn range(node: &Node, at: *mut u8, from: usize, to: usize, mover: &mut impl Mover) -> bool {
    match node {
        Node::Run(_) => mover.run(at.wrapping_add(from), to - from),
        Node::Loop { stride, size, body, .. } => range_of_loop(*stride, *size, body, at, from, to, mover),
        Node::Even { bytes, places } => {
            let place = |i: usize| at.wrapping_offset(places[i]);
            let (first, cut) = (from / bytes, from % bytes);
            let head = if cut > 0 { (bytes - cut).min(to - from) } else { 0 };
            if head > 0 && !mover.run(place(first).wrapping_add(cut), head) {
                return false;
            }
            let next = first + usize::from(head > 0);
            let (full, tail) = ((to - from - head) / bytes, (to - from - head) % bytes);
            mover.even(at, &places[next..next + full], *bytes) && (tail == 0 || mover.run(place(next + full), tail))
        }
        Node::Runs(runs) => {
            let run = |i: usize| (at.wrapping_offset(runs[i].at), runs[i].packed, runs[i].bytes);
            let first = runs.partition_point(|run| run.packed + run.bytes <= from);
            let end = runs.partition_point(|run| run.packed + run.bytes <= to);
            let (place, packed, bytes) = run(first);
            if first == end {
                return mover.run(place.wrapping_add(from - packed), to - from);
            }
            mover.run(place.wrapping_add(from - packed), packed + bytes - from)
                && listed(&runs[first + 1..end], at, mover)
                && (end == runs.len() || to == run(end).1 || mover.run(run(end).0, to - run(end).1))
        }
        Node::Each { size, places, body } => {
            let (first, last) = (from / size, (to - 1) / size);
            places[first..=last].iter().zip(first..).all(|(place, i)| {
                let (low, high) = (from.max(i * size) - i * size, to.min((i + 1) * size) - i * size);
                part(body, *size, at.wrapping_offset(*place), low, high, mover)
            })
        }
        Node::Parts(parts) => {
            let first = parts.partition_point(|part| part.packed + part.size <= from);
            parts[first..].iter().take_while(|part| part.packed < to).all(|one| {
                let (low, high) = (from.max(one.packed) - one.packed, to.min(one.packed + one.size) - one.packed);
                part(&one.node, one.size, at.wrapping_offset(one.at), low, high, mover)
            })
        }
    }
}

#[inline]
unsafe fn part(node: &Node, size: usize, at: *mut u8, from: usize, to: usize, mover: &mut impl Mover) -> bool {
    if to - from == size { whole(node, at, mover) } else { range(node, at, from, to, mover) }
}

unsafe fn range_of_loop(stride: isize, size: usize, body: &Node, at: *mut u8, from: usize, to: usize, mover: &mut impl Mover) -> bool {
    // Most messages start at the front.
    let (first, cut) = if from < size { (0, from) } else { (from / size, from % size) };
    let place = |i: usize| at.wrapping_offset(stride.wrapping_mul(i as isize));
    let head = if cut > 0 { (size - cut).min(to - from) } else { 0 };
    if head > 0 && !range(body, place(first), cut, cut + head, mover) {
        return false;
    }
    let next = first + usize::from(head > 0);
    let left = to - from - head;
    let (full, tail) = if left < size { (0, left) } else { (left / size, left % size) };
    (full == 0 || whole_loop(full, stride, size, body, place(next), mover)) && (tail == 0 || range(body, place(next + full), 0, tail, mover))
}
