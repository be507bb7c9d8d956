//! Where the members of a group run.

use super::work::block;
use std::ops::Range;

/// Where the members of a group run. Equal on every rank of the group.
#[derive(Debug, PartialEq, Eq)]
pub struct Hosts {
    /// The host of each rank; hosts are numbered in the order of their lowest ranks.
    of: Box<[u32]>,
    /// All ranks, host by host.
    pub(super) ranks: Box<[u32]>,
    /// Where each host begins there, and the end.
    starts: Box<[u32]>,
    shape: Shape,
    crowded: bool,
}

impl Hosts {
    /// `numbers`: for each rank one that it has in common with those of its host alone. `crowded`: a host has more ranks than cores.
    /// `None` where all ranks are on one host, or each on its own: then there is nothing to be gained.
    pub fn new(numbers: &[u32], crowded: bool) -> Option<Hosts> {
        let mut first = std::collections::HashMap::new();
        let of: Box<[u32]> = numbers
            .iter()
            .map(|number| {
                let next = first.len() as u32;
                *first.entry(*number).or_insert(next)
            })
            .collect();
        let count = first.len();
        if count <= 1 || count == numbers.len() {
            return None;
        }
        let mut ranks: Vec<u32> = (0..numbers.len() as u32).collect();
        ranks.sort_by_key(|rank| of[*rank as usize]);
        let starts: Box<[u32]> = (0..=count as u32).map(|host| ranks.partition_point(|rank| of[*rank as usize] < host) as u32).collect();
        let in_order = ranks.iter().enumerate().all(|(at, rank)| at as u32 == *rank);
        let lengths = || starts.windows(2).map(|pair| (pair[1] - pair[0]) as usize);
        let (least, most) = (lengths().min().unwrap_or(0), lengths().max().unwrap_or(0));
        let shape = Shape { in_order, halves: in_order && least == most && most.is_power_of_two(), even: least == most, most };
        Some(Hosts { of, ranks: ranks.into(), starts, shape, crowded })
    }

    /// At least 2.
    pub fn count(&self) -> usize {
        self.starts.len() - 1
    }

    /// What the choice of an algorithm depends on.
    #[inline]
    pub fn shape(&self) -> Shape {
        self.shape
    }

    pub fn crowded(&self) -> bool {
        self.crowded
    }

    pub(super) fn of(&self, rank: usize) -> usize {
        self.of[rank] as usize
    }

    /// Where the ranks of a host are, host by host.
    pub(super) fn places(&self, host: usize) -> Range<usize> {
        self.starts[host] as usize..self.starts[host + 1] as usize
    }

    /// The ranks of a host, ascending.
    pub(super) fn members(&self, host: usize) -> &[u32] {
        &self.ranks[self.places(host)]
    }

    /// The blocks of all ranks, host by host, in rank order.
    pub(super) fn in_rank_order(&self, by_host: &[u8], all: &mut [u8], bytes: usize) {
        self.ranks.iter().zip(by_host.chunks_exact(bytes)).for_each(|(rank, from)| all[block(*rank as usize, bytes)].copy_from_slice(from));
    }
}

/// What matters of [`Hosts`] to the choice of an algorithm.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    /// Ranks of a host follow one another, as do hosts.
    pub in_order: bool,
    /// They do, and each host has the same power of two of them: the first steps of recursive halving and doubling stay within hosts.
    pub halves: bool,
    /// Each host has as many of them.
    pub even: bool,
    /// Members of a host, at most.
    pub most: usize,
}

/// Where the members of a part of a group run.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Place {
    /// On one host, each with a core.
    Host,
    /// On one host with more ranks than cores.
    Crowded,
    /// Each on another host.
    Hosts,
}
