//! Virtual topologies (MPI-5.0 chapter 8): what a communicator knows of its members' neighbourhoods.
#![forbid(unsafe_code)]

use crate::coll::neighbor;
use crate::consts::*;
use crate::error::{Error, Result};
use crate::placement::Edge;

/// A topology, seen from one process where it is distributed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Topology {
    Cart(Cart),
    Graph(Graph),
    Dist(Dist),
}

/// A grid; ranks in row-major order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cart {
    pub dims: Vec<i32>,
    pub periods: Vec<bool>,
}

/// A graph that every process knows as a whole, as `MPI_Graph_create` takes it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Graph {
    /// Ends of the nodes' lists in `edges`.
    pub index: Vec<i32>,
    pub edges: Vec<i32>,
}

/// The edges of one process in a distributed graph.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Dist {
    pub sources: Vec<i32>,
    pub source_weights: Vec<i32>,
    pub destinations: Vec<i32>,
    pub destination_weights: Vec<i32>,
    /// Whether the program gave weights.
    pub weighted: bool,
}

/// The neighbours of one process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Around {
    sources: Vec<Option<usize>>,
    destinations: Vec<Option<usize>>,
    cartesian: bool,
}

impl Around {
    /// Blocks that come in.
    pub fn indegree(&self) -> usize {
        self.sources.len()
    }

    /// Blocks that go out.
    pub fn outdegree(&self) -> usize {
        self.destinations.len()
    }

    pub fn neighbors(&self) -> neighbor::Neighbors<'_> {
        neighbor::Neighbors { sources: &self.sources, destinations: &self.destinations, cartesian: self.cartesian }
    }
}

impl Topology {
    /// `MPI_Topo_test`.
    pub fn kind(&self) -> i32 {
        match self {
            Topology::Cart(_) => MPI_CART,
            Topology::Graph(_) => MPI_GRAPH,
            Topology::Dist(_) => MPI_DIST_GRAPH,
        }
    }

    /// The neighbours of `rank`, this process, in the order of MPI-5.0 §8.6.
    pub fn around(&self, rank: u32) -> Around {
        let ranks = |list: &[i32]| list.iter().map(|r| usize::try_from(*r).ok()).collect::<Vec<Option<usize>>>();
        match self {
            Topology::Cart(cart) => {
                let each = (0..cart.dims.len()).flat_map(|dimension| {
                    let (low, high) = cart.shift(rank, dimension, 1);
                    [low, high].map(|r| r.map(|r| r as usize))
                });
                let sources: Vec<_> = each.collect();
                Around { destinations: sources.clone(), sources, cartesian: true }
            }
            Topology::Graph(graph) => {
                let sources = ranks(graph.neighbors(rank as usize));
                Around { destinations: sources.clone(), sources, cartesian: false }
            }
            Topology::Dist(dist) => Around { sources: ranks(&dist.sources), destinations: ranks(&dist.destinations), cartesian: false },
        }
    }
}

impl Cart {
    /// # Errors
    /// `MPI_ERR_DIMS` when a dimension is not positive, or the grid has more than `size` places.
    pub fn new(dims: &[i32], periods: &[bool], size: u32) -> Result<Cart> {
        if let Some(dim) = dims.iter().find(|d| **d <= 0) {
            return Err(Error::new(MPI_ERR_DIMS, format!("dims holds {dim}, which is not positive")));
        }
        let places = dims.iter().try_fold(1i64, |product, dim| product.checked_mul(*dim as i64).filter(|p| *p <= size as i64));
        if places.is_none() {
            return Err(Error::new(MPI_ERR_DIMS, format!("the grid {dims:?} has more places than the communicator's {size} ranks")));
        }
        Ok(Cart { dims: dims.to_vec(), periods: periods.to_vec() })
    }

    /// Places of the grid.
    pub fn size(&self) -> u32 {
        self.dims.iter().map(|d| *d as u32).product()
    }

    /// Steps by one along each dimension.
    pub fn edges(&self) -> Vec<Edge> {
        let next = |rank: u32| (0..self.dims.len()).filter_map(move |dimension| Some((rank, self.shift(rank, dimension, 1).1?, 1)));
        (0..self.size()).flat_map(next).collect()
    }

    /// All ranks, block by block: the grid is halved along its longest dimension again and again.
    pub fn blocks(&self) -> Vec<u32> {
        let mut order = Vec::with_capacity(self.size() as usize);
        self.halve(vec![0; self.dims.len()], self.dims.clone(), &mut order);
        order
    }

    fn halve(&self, low: Vec<i32>, lengths: Vec<i32>, order: &mut Vec<u32>) {
        let longest = (0..lengths.len()).rev().max_by_key(|d| lengths[*d]);
        let Some(longest) = longest.filter(|d| lengths[*d] > 1) else {
            order.extend(self.rank(&low));
            return;
        };
        let half = lengths[longest] / 2;
        let (mut middle, mut first, mut second) = (low.clone(), lengths.clone(), lengths);
        middle[longest] += half;
        first[longest] = half;
        second[longest] -= half;
        self.halve(low, first, order);
        self.halve(middle, second, order);
    }

    pub fn coords(&self, rank: u32) -> Vec<i32> {
        let mut rest = rank as i32;
        let mut coords: Vec<i32> = self
            .dims
            .iter()
            .rev()
            .map(|dim| {
                let at = rest % dim;
                rest /= dim;
                at
            })
            .collect();
        coords.reverse();
        coords
    }

    /// The rank at `coords`, which wrap around in periodic dimensions.
    ///
    /// # Errors
    /// `MPI_ERR_ARG` outside of a dimension that is not periodic.
    pub fn rank(&self, coords: &[i32]) -> Result<u32> {
        let mut rank = 0;
        for ((&dim, &periodic), &at) in self.dims.iter().zip(&self.periods).zip(coords) {
            if !periodic && !(0..dim).contains(&at) {
                return Err(Error::new(MPI_ERR_ARG, format!("coordinate {at} is not in 0..{dim}, and the dimension is not periodic")));
            }
            rank = rank * dim + at.rem_euclid(dim);
        }
        Ok(rank as u32)
    }

    /// Where a shift by `steps` along `dimension` comes from and goes to, seen from `rank`; `None` past an end.
    pub fn shift(&self, rank: u32, dimension: usize, steps: i32) -> (Option<u32>, Option<u32>) {
        let (dim, at) = (self.dims[dimension] as i64, self.coords(rank)[dimension] as i64);
        let stride: i64 = self.dims[dimension + 1..].iter().map(|d| *d as i64).product();
        let moved = |by: i64| {
            let to = at + by;
            let wrapped = to.rem_euclid(dim);
            (self.periods[dimension] || to == wrapped).then_some((rank as i64 + (wrapped - at) * stride) as u32)
        };
        (moved(-(steps as i64)), moved(steps as i64))
    }

    /// The grid of the dimensions that remain, and this process' colour and key for a split into such grids.
    pub fn sub(&self, rank: u32, remain: &[bool]) -> (Cart, i32, i32) {
        let coords = self.coords(rank);
        let linear = |kept: bool| {
            let each = self.dims.iter().zip(&coords).zip(remain).filter(|(_, r)| **r == kept);
            each.fold(0, |place, ((dim, at), _)| place * dim + at)
        };
        let keep = |at: &usize| remain[*at];
        let sub = Cart {
            dims: (0..self.dims.len()).filter(keep).map(|at| self.dims[at]).collect(),
            periods: (0..self.dims.len()).filter(keep).map(|at| self.periods[at]).collect(),
        };
        (sub, linear(false), linear(true))
    }
}

impl Graph {
    /// # Errors
    /// `MPI_ERR_ARG` when the lists do not describe a graph of at most `size` nodes.
    pub fn new(index: &[i32], edges: &[i32], size: u32) -> Result<Graph> {
        let nodes = index.len();
        if nodes > size as usize {
            return Err(Error::new(MPI_ERR_ARG, format!("the graph has {nodes} nodes, the communicator {size} ranks")));
        }
        if let Some(at) = (0..nodes).find(|at| index[*at] < if *at == 0 { 0 } else { index[at - 1] }) {
            return Err(Error::new(MPI_ERR_ARG, format!("index[{at}] = {} is smaller than what precedes it", index[at])));
        }
        if let Some(edge) = edges.iter().find(|e| !(0..nodes as i32).contains(*e)) {
            return Err(Error::new(MPI_ERR_ARG, format!("edges holds {edge}, which is no node of {nodes}")));
        }
        Ok(Graph { index: index.to_vec(), edges: edges.to_vec() })
    }

    pub fn edges(&self) -> Vec<Edge> {
        let of = |node: usize| self.neighbors(node).iter().map(move |other| (node as u32, *other as u32, 1));
        (0..self.index.len()).flat_map(of).collect()
    }

    pub fn neighbors(&self, rank: usize) -> &[i32] {
        let start = if rank == 0 { 0 } else { self.index[rank - 1] as usize };
        &self.edges[start..self.index[rank] as usize]
    }
}

impl Dist {
    /// Edges that leave `node`, whose edges these are: those that come in leave another node.
    pub fn edges(&self, node: u32) -> impl Iterator<Item = Edge> {
        let weight = |at: usize| self.destination_weights.get(at).map_or(1, |w| *w as u64);
        self.destinations.iter().enumerate().map(move |(at, to)| (node, *to as u32, weight(at)))
    }

    /// As integers, for another process.
    pub fn to_words(&self) -> Vec<i32> {
        let mut words = vec![self.weighted as i32, self.sources.len() as i32, self.destinations.len() as i32];
        for list in [&self.sources, &self.source_weights, &self.destinations, &self.destination_weights] {
            words.extend(list);
        }
        words
    }

    /// From [`Dist::to_words`]; `None` when the words are fewer.
    pub fn from_words(words: &[i32]) -> Option<Dist> {
        let ([weighted, sources, destinations], mut rest) = words.split_first_chunk().map(|(head, rest)| (*head, rest))?;
        let mut take = |n: i32| {
            let (list, after) = rest.split_at_checked(usize::try_from(n).ok()?)?;
            rest = after;
            Some(list.to_vec())
        };
        let weights = |n: i32| if weighted != 0 { n } else { 0 };
        Some(Dist {
            sources: take(sources)?,
            source_weights: take(weights(sources))?,
            destinations: take(destinations)?,
            destination_weights: take(weights(destinations))?,
            weighted: weighted != 0,
        })
    }
}

/// `MPI_Dims_create` (MPI-5.0 §8.5.2): fills the zeros of `dims` so that the product is `nodes`. Of all ways the one whose largest and
/// smallest new dimensions differ least is taken, then the one with the smallest largest; new dimensions do not increase.
///
/// # Errors
/// `MPI_ERR_ARG` when `nodes` is not positive; `MPI_ERR_DIMS` when a dimension is negative or the given ones do not divide `nodes`.
pub fn dims_create(nodes: i32, dims: &mut [i32]) -> Result<()> {
    if nodes <= 0 {
        return Err(Error::new(MPI_ERR_ARG, format!("nnodes = {nodes} is not positive")));
    }
    if let Some(dim) = dims.iter().find(|d| **d < 0) {
        return Err(Error::new(MPI_ERR_DIMS, format!("dims holds {dim}, which is negative")));
    }
    let mut rest = nodes;
    for dim in dims.iter().filter(|d| **d > 0) {
        if rest % dim != 0 {
            return Err(Error::new(MPI_ERR_DIMS, format!("the given dimensions of {dims:?} do not divide nnodes = {nodes}")));
        }
        rest /= dim;
    }
    let free = dims.iter().filter(|d| **d == 0).count();
    if free == 0 {
        return if rest == 1 { Ok(()) } else { Err(Error::new(MPI_ERR_DIMS, format!("the product of {dims:?} is not nnodes = {nodes}"))) };
    }
    let mut factors = balanced(rest, free).into_iter();
    for dim in dims.iter_mut().filter(|d| **d == 0) {
        *dim = factors.next().unwrap_or(1);
    }
    Ok(())
}

/// `parts` factors of `number`, at least 1, as close together as can be, largest first.
fn balanced(number: i32, parts: usize) -> Vec<i32> {
    let root = (number as f64).sqrt() as i32 + 1;
    let mut divisors: Vec<i32> = (1..=root.min(number)).filter(|d| number % d == 0).flat_map(|d| [d, number / d]).collect();
    divisors.sort_unstable();
    divisors.dedup();
    let mut search = Search { divisors, best: vec![1; parts], spread: (i32::MAX, i32::MAX) };
    search.best[0] = number;
    search.spread = (number - i32::from(parts > 1), number);
    search.place(number, &mut Vec::with_capacity(parts), parts);
    search.best
}

/// Search for the most even factors: from the largest down, leaving out what cannot be better.
struct Search {
    divisors: Vec<i32>,
    best: Vec<i32>,
    /// Largest minus smallest, and largest, of the best.
    spread: (i32, i32),
}

impl Search {
    fn place(&mut self, rest: i32, taken: &mut Vec<i32>, left: usize) {
        let largest = taken.first().copied().unwrap_or(0);
        if left == 1 {
            if taken.last().is_some_and(|last| *last < rest) {
                return;
            }
            let largest = largest.max(rest);
            if (largest - rest, largest) < self.spread {
                self.spread = (largest - rest, largest);
                self.best = taken.clone();
                self.best.push(rest);
            }
            return;
        }
        // Every factor from here on is at most the last one, and the largest of them at least the root of what is left.
        let least = (rest as f64).powf(1.0 / left as f64);
        let most = taken.last().copied().unwrap_or(rest);
        for at in 0..self.divisors.len() {
            let factor = self.divisors[at];
            if factor > most {
                break;
            }
            if (factor as f64) < least - 1e-6 || rest % factor != 0 {
                continue;
            }
            // The smallest is at most the root of what this factor leaves.
            let smallest = ((rest / factor) as f64).powf(1.0 / (left - 1) as f64) + 1e-6;
            let spread = (largest.max(factor) as f64 - smallest).max(0.0).ceil() as i32;
            if spread > self.spread.0 {
                if taken.is_empty() {
                    break;
                }
                continue;
            }
            taken.push(factor);
            self.place(rest / factor, taken, left - 1);
            taken.pop();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// All ways to write `number` as `parts` factors that do not increase.
    fn all(number: i32, parts: usize, most: i32) -> Vec<Vec<i32>> {
        if parts == 1 {
            return if number <= most { vec![vec![number]] } else { vec![] };
        }
        let firsts = (1..=number.min(most)).filter(|f| number % f == 0);
        firsts
            .flat_map(|first| {
                all(number / first, parts - 1, first).into_iter().map(move |mut rest| {
                    rest.insert(0, first);
                    rest
                })
            })
            .collect()
    }

    proptest! {
        #[test]
        fn dims_are_as_even_as_can_be(number in 1..2000i32, parts in 1..5usize) {
            let mut dims = vec![0; parts];
            dims_create(number, &mut dims).unwrap();
            let least = all(number, parts, number).into_iter().map(|f| (f[0] - f[parts - 1], f[0])).min().unwrap();
            prop_assert_eq!((dims[0] - dims[parts - 1], dims[0]), least);
            prop_assert_eq!(dims.iter().product::<i32>(), number);
            prop_assert!(dims.is_sorted_by(|a, b| a >= b));
        }

        #[test]
        fn coordinates_and_ranks_agree(dims in prop::collection::vec(1..5i32, 0..5)) {
            let size = dims.iter().product::<i32>() as u32;
            let cart = Cart::new(&dims, &vec![true; dims.len()], size).unwrap();
            for rank in 0..size {
                let coords = cart.coords(rank);
                prop_assert_eq!(cart.rank(&coords).unwrap(), rank);
                prop_assert_eq!(cart.blocks().iter().filter(|r| **r == rank).count(), 1);
                let shifted: Vec<i32> = coords.iter().zip(&dims).map(|(at, dim)| at - 3 * dim).collect();
                prop_assert_eq!(cart.rank(&shifted).unwrap(), rank);
                for dimension in 0..dims.len() {
                    let (from, to) = cart.shift(rank, dimension, 2);
                    let moved = |by: i32| {
                        let mut coords = coords.clone();
                        coords[dimension] += by;
                        cart.rank(&coords).ok()
                    };
                    prop_assert_eq!((from, to), (moved(-2), moved(2)));
                }
            }
        }
    }

    #[test]
    fn given_dimensions_stay() {
        let mut dims = [0, 3, 0];
        dims_create(36, &mut dims).unwrap();
        assert_eq!(dims, [4, 3, 3]);
        for (nodes, mut wrong) in [(7, [0, 2]), (6, [2, 2]), (6, [-1, 0])] {
            assert_eq!(dims_create(nodes, &mut wrong).unwrap_err().class, MPI_ERR_DIMS);
        }
        assert_eq!(dims_create(0, &mut [0]).unwrap_err().class, MPI_ERR_ARG);
        let mut many = [0; 31];
        dims_create(1 << 30, &mut many).unwrap();
        assert_eq!(many[29..], [2, 1]);
        let mut composite = [0; 6];
        dims_create(735_134_400, &mut composite).unwrap();
        assert_eq!(composite.iter().product::<i32>(), 735_134_400);
    }

    #[test]
    fn ends_of_a_grid_have_no_neighbours() {
        let cart = Cart::new(&[2, 3], &[false, true], 6).unwrap();
        assert_eq!(cart.shift(4, 0, 1), (Some(1), None));
        assert_eq!(cart.shift(3, 1, -1), (Some(4), Some(5)));
        assert_eq!(cart.rank(&[2, 0]).unwrap_err().class, MPI_ERR_ARG);
        let (sub, color, key) = cart.sub(5, &[false, true]);
        assert_eq!((sub.dims, color, key), (vec![3], 1, 2));
        assert_eq!(Cart::new(&[2, 4], &[true; 2], 7).unwrap_err().class, MPI_ERR_DIMS);
    }

    #[test]
    fn edges_are_told_to_others() {
        for weighted in [false, true] {
            let weights = |list: &[i32]| if weighted { list.to_vec() } else { vec![] };
            let dist = Dist { sources: vec![3, 4], source_weights: weights(&[5, 6]), destinations: vec![1], destination_weights: weights(&[9]), weighted };
            let mut words = dist.to_words();
            assert_eq!(dist.edges(2).collect::<Vec<_>>(), [(2, 1, if weighted { 9 } else { 1 })]);
            words.push(77);
            assert_eq!(Dist::from_words(&words), Some(dist));
            assert_eq!(Dist::from_words(&words[..words.len() - 2]), None);
        }
    }

    #[test]
    fn graphs_are_checked() {
        let graph = Graph::new(&[2, 3, 4], &[1, 2, 0, 0], 3).unwrap();
        assert_eq!(graph.neighbors(0), [1, 2]);
        assert_eq!(graph.neighbors(2), [0]);
        for (index, edges) in [(&[2, 1][..], &[0, 0][..]), (&[1, 2], &[0, 2]), (&[1, 1, 1, 1], &[0])] {
            assert_eq!(Graph::new(index, edges, 3).unwrap_err().class, MPI_ERR_ARG);
        }
    }
}
