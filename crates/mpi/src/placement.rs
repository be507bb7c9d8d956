//! Which rank takes which place of a virtual topology, so that neighbours are near each other on the machine (MPI-5.0 §8.5.1, `reorder`).
//!
//! Every rank computes the same from the same numbers. Ranks are given out greedily, then exchanged in pairs while that helps.
#![forbid(unsafe_code)]

/// Ranks that are reordered, at most: the work grows with their square. More keep their order.
pub const RANKS_MAX: usize = 1024;
/// Rounds of exchanges, at most.
const ROUNDS_MAX: usize = 8;

/// An edge of a virtual topology: two of its places, and how much goes between them.
pub type Edge = (u32, u32, u64);

/// How far the ranks are from each other.
pub struct Machine {
    ranks: usize,
    /// `ranks` × `ranks`.
    distances: Vec<u8>,
    /// Ranks ordered by where they run.
    along: Vec<u32>,
}

impl Machine {
    /// `parts[rank]`: the numbers of the ever smaller parts of the machine that the rank runs in, largest first; negative where
    /// it runs in several or nobody knows. Ranks are as far apart as the largest known part that they do not share is large.
    pub fn new(parts: &[Vec<i32>]) -> Machine {
        let ranks = parts.len();
        let distance = |a: &[i32], b: &[i32]| {
            let apart = a.iter().zip(b).position(|(a, b)| *a >= 0 && *b >= 0 && a != b);
            apart.map_or(0, |level| (a.len() - level) as u8)
        };
        let distances = parts.iter().flat_map(|a| parts.iter().map(|b| distance(a, b))).collect();
        let mut along: Vec<u32> = (0..ranks as u32).collect();
        along.sort_by(|a, b| parts[*a as usize].cmp(&parts[*b as usize]));
        Machine { ranks, distances, along }
    }

    /// Whether all ranks are equally far apart, so that no order is better than another.
    pub fn flat(&self) -> bool {
        let mut between = (0..self.ranks).flat_map(|a| (0..a).map(move |b| self.distances[a * self.ranks + b]));
        between.next().is_none_or(|first| between.all(|d| d == first))
    }

    #[inline]
    fn distance(&self, a: u32, b: u32) -> u64 {
        self.distances[a as usize * self.ranks + b as usize] as u64
    }
}

/// The places that each place exchanges something with.
struct Neighbors(Vec<Vec<(u32, u64)>>);

impl Neighbors {
    fn new(places: usize, edges: &[Edge]) -> Neighbors {
        let mut all = vec![Vec::new(); places];
        for (a, b, weight) in edges.iter().filter(|(a, b, _)| a != b) {
            all[*a as usize].push((*b, *weight));
            all[*b as usize].push((*a, *weight));
        }
        Neighbors(all)
    }

    /// What the neighbours of `place` cost when `rank` has it.
    fn cost(&self, machine: &Machine, ranks: &[u32], place: usize, rank: u32) -> u64 {
        self.0[place].iter().map(|(other, weight)| weight.saturating_mul(machine.distance(rank, ranks[*other as usize]))).fold(0, u64::saturating_add)
    }

    fn total(&self, machine: &Machine, ranks: &[u32]) -> u64 {
        (0..ranks.len()).map(|place| self.cost(machine, ranks, place, ranks[place])).fold(0, u64::saturating_add)
    }
}

/// The rank for each place, or `None` where the ranks' own order is as good. `blocks` names all places, near ones one after another, if
/// the topology knows of such an order.
pub fn arrange(machine: &Machine, edges: &[Edge], blocks: &[u32]) -> Option<Vec<u32>> {
    if machine.ranks > RANKS_MAX || machine.flat() {
        return None;
    }
    let neighbors = Neighbors::new(machine.ranks, edges);
    let identity: Vec<u32> = (0..machine.ranks as u32).collect();
    let before = neighbors.total(machine, &identity);
    let mut candidates = vec![grown(machine, &neighbors), identity];
    if blocks.len() == machine.ranks {
        let mut ranks = vec![0; machine.ranks];
        blocks.iter().zip(&machine.along).for_each(|(place, rank)| ranks[*place as usize] = *rank);
        candidates.push(ranks);
    }
    candidates.iter_mut().for_each(|ranks| exchange(machine, &neighbors, ranks));
    let best = candidates.into_iter().min_by_key(|ranks| neighbors.total(machine, ranks)).expect("two at least");
    (neighbors.total(machine, &best) < before).then_some(best)
}

/// Goes along the machine, and gives each rank the place that has most to do with places whose ranks are near.
fn grown(machine: &Machine, neighbors: &Neighbors) -> Vec<u32> {
    const FREE: u32 = u32::MAX;
    let past_farthest = machine.distances.iter().max().map_or(0, |d| *d as u64) + 1;
    let mut ranks = vec![FREE; machine.ranks];
    for &rank in &machine.along {
        let pull = |place: usize| {
            let placed = neighbors.0[place].iter().filter(|(other, _)| ranks[*other as usize] != FREE);
            placed.map(|(other, weight)| weight.saturating_mul(past_farthest - machine.distance(rank, ranks[*other as usize]))).fold(0, u64::saturating_add)
        };
        let free = (0..ranks.len()).filter(|place| ranks[*place] == FREE);
        let best = free.max_by_key(|place| (pull(*place), std::cmp::Reverse(*place))).expect("as many places as ranks");
        ranks[best] = rank;
    }
    ranks
}

/// Exchanges the ranks of two places wherever that costs less.
fn exchange(machine: &Machine, neighbors: &Neighbors, ranks: &mut [u32]) {
    for _ in 0..ROUNDS_MAX {
        let mut better = false;
        for a in 0..ranks.len() {
            for b in a + 1..ranks.len() {
                if machine.distance(ranks[a], ranks[b]) == 0 {
                    continue;
                }
                let before = neighbors.cost(machine, ranks, a, ranks[a]).saturating_add(neighbors.cost(machine, ranks, b, ranks[b]));
                ranks.swap(a, b);
                let after = neighbors.cost(machine, ranks, a, ranks[a]).saturating_add(neighbors.cost(machine, ranks, b, ranks[b]));
                if after < before {
                    better = true;
                } else {
                    ranks.swap(a, b);
                }
            }
        }
        if !better {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::topology::Cart;
    use proptest::prelude::*;

    /// Hosts of two packages of two caches of two cores: where `core` is.
    fn core(core: i32) -> Vec<i32> {
        vec![core / 8, core / 4, core / 2, core]
    }

    fn cart(dims: &[i32], periodic: bool) -> Cart {
        Cart::new(dims, &vec![periodic; dims.len()], dims.iter().product::<i32>() as u32).unwrap()
    }

    fn grid(dims: &[i32], periodic: bool) -> Vec<Edge> {
        cart(dims, periodic).edges()
    }

    fn cost(machine: &Machine, edges: &[Edge], ranks: &[u32]) -> u64 {
        edges.iter().map(|(a, b, weight)| weight * machine.distance(ranks[*a as usize], ranks[*b as usize])).sum()
    }

    #[test]
    fn distance_is_the_largest_part_that_is_not_shared() {
        let machine = Machine::new(&[core(0), core(1), core(3), core(7), core(9), vec![0, -1, -1, -1]]);
        let from_first: Vec<u64> = (0..6).map(|rank| machine.distance(0, rank)).collect();
        assert_eq!(from_first, [0, 1, 2, 3, 4, 0]);
        assert_eq!(machine.distance(4, 5), 4);
    }

    #[test]
    fn a_flat_machine_keeps_its_order() {
        let apart: Vec<Vec<i32>> = (0..8).map(|core| vec![0, core]).collect();
        assert_eq!(arrange(&Machine::new(&apart), &grid(&[2, 4], true), &[]), None);
        assert_eq!(arrange(&Machine::new(&vec![vec![-1; 4]; 8]), &grid(&[8], false), &[]), None);
        assert_eq!(arrange(&Machine::new(&[core(0)]), &[], &[]), None);
    }

    #[test]
    fn an_order_that_fits_stays() {
        let machine = Machine::new(&(0..16).map(core).collect::<Vec<_>>());
        assert_eq!(arrange(&machine, &grid(&[16], false), &[]), None);
        assert_eq!(arrange(&machine, &[], &[]), None);
    }

    #[test]
    fn a_line_over_ranks_dealt_out_in_turn_crosses_once() {
        // Ranks 0, 2, 4… are on one host, 1, 3, 5… on the other.
        let machine = Machine::new(&(0..8).map(|rank| vec![rank % 2]).collect::<Vec<_>>());
        let edges = grid(&[8], false);
        let ranks = arrange(&machine, &edges, &[]).unwrap();
        assert_eq!(cost(&machine, &edges, &ranks), 1, "{ranks:?}");
    }

    #[test]
    fn a_grid_is_cut_into_blocks() {
        // Four hosts of four: 4 × 4 in rows cuts 12 edges, in squares 8.
        let machine = Machine::new(&(0..16).map(|rank| vec![rank / 4]).collect::<Vec<_>>());
        let edges = grid(&[4, 4], false);
        let identity: Vec<u32> = (0..16).collect();
        assert_eq!(cost(&machine, &edges, &identity), 12);
        let ranks = arrange(&machine, &edges, &cart(&[4, 4], false).blocks()).unwrap();
        assert_eq!(cost(&machine, &edges, &ranks), 8, "{ranks:?}");
    }

    #[test]
    fn heavy_edges_come_first() {
        let machine = Machine::new(&[vec![0], vec![0], vec![1], vec![1]]);
        let edges = [(0, 1, 1), (0, 2, 100), (1, 3, 100), (2, 3, 1)];
        let ranks = arrange(&machine, &edges, &[]).unwrap();
        assert_eq!(cost(&machine, &edges, &ranks), 2);
    }

    proptest! {
        #[test]
        fn an_arrangement_is_a_permutation_that_costs_less(
            cores in prop::collection::vec(-1..16i32, 1..24),
            edges in prop::collection::vec((0..24u32, 0..24u32, 0..100u64), 0..80),
        ) {
            let parts: Vec<Vec<i32>> = cores.iter().map(|c| if *c < 0 { vec![-1; 4] } else { core(*c) }).collect();
            let machine = Machine::new(&parts);
            let n = cores.len() as u32;
            let edges: Vec<Edge> = edges.into_iter().map(|(a, b, weight)| (a % n, b % n, weight)).collect();
            if let Some(ranks) = arrange(&machine, &edges, &[]) {
                let identity: Vec<u32> = (0..n).collect();
                let mut sorted = ranks.clone();
                sorted.sort_unstable();
                prop_assert_eq!(&sorted, &identity);
                prop_assert!(cost(&machine, &edges, &ranks) < cost(&machine, &edges, &identity));
            }
        }
    }
}
