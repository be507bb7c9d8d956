//! Which algorithm a collective uses: records with a name, a condition and thresholds; any of them can be forced by name.
//!
//! The choice reads only what every rank of the group knows alike, for all must choose the same.

use super::place::{Hosts, Shape};
use super::{Link, Reducer};
use std::ops::RangeInclusive;

/// What a choice depends on. Equal on every rank of the group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Case {
    pub ranks: usize,
    /// The whole vector of bcast, allgather(v), reduce_scatter and the reductions; one block of gather, scatter and alltoall(v).
    pub bytes: usize,
    /// 0 where nothing is reduced.
    pub elements: usize,
    pub commutative: bool,
    /// More ranks than cores.
    pub crowded: bool,
    /// Some of the ranks are on other hosts.
    pub remote: bool,
    /// Some of several hosts have several of the ranks.
    pub hosts: Option<Shape>,
}

impl Case {
    pub(super) fn new<L: Link>(link: &L, bytes: usize) -> Case {
        Case {
            ranks: link.size(),
            bytes,
            elements: 0,
            commutative: true,
            crowded: link.crowded(),
            remote: link.remote(),
            hosts: link.hosts().map(Hosts::shape),
        }
    }

    pub(super) fn reducing<L: Link, R: Reducer + ?Sized>(link: &L, op: &R, bytes: usize) -> Case {
        let elements = bytes / op.element_bytes();
        Case { elements, commutative: op.commutative(), ..Case::new(link, bytes) }
    }

    fn all_bytes(&self) -> usize {
        self.bytes.saturating_mul(self.ranks)
    }
}

/// The algorithms of one collective.
pub trait Algorithm: Copy + PartialEq + 'static {
    /// All of them. The last applies to every case.
    const ALL: &'static [Self];
    /// As in configuration: lower case, underscores.
    fn name(self) -> &'static str;
    /// One line: what it does.
    fn meaning(self) -> &'static str;
    /// Whether it gives right results within its stated temporaries.
    fn applies(self, case: &Case) -> bool;
    /// Whether it needs several hosts.
    fn crosses(self) -> bool {
        self.name() == HOSTS
    }
}

/// The name of algorithms that need several hosts.
const HOSTS: &str = "hosts";

/// Prefers `algorithm` where all conditions hold.
#[derive(Clone, Copy, Debug)]
pub struct Rule<A> {
    pub algorithm: A,
    pub ranks: (usize, usize),
    pub bytes: (usize, usize),
    /// `None`: crowded or not.
    pub crowded: Option<bool>,
    /// Ranks on several hosts alone.
    pub remote: bool,
    /// A host has so many ranks at least, or the first steps of recursive halving and doubling do not stay within hosts; 0: wherever they are.
    pub members: usize,
}

/// In words; empty where it is not bounded.
fn range(what: &str, (low, high): (usize, usize)) -> String {
    match (low, high) {
        (0, usize::MAX) => String::new(),
        (0, high) => format!("up to {high} {what}"),
        (low, usize::MAX) => format!("from {low} {what} on"),
        (low, high) => format!("{low} to {high} {what}"),
    }
}

impl<A: Algorithm> Rule<A> {
    /// When it holds, in words.
    fn condition(&self) -> String {
        let crowded = match self.crowded {
            Some(true) => "more ranks than cores",
            Some(false) => "a core for each rank",
            None => "",
        };
        let hosts = match (self.algorithm.crosses(), self.members) {
            (false, _) => String::new(),
            (true, 0) => "several hosts, some with several ranks".to_string(),
            (true, usize::MAX) => "several hosts, whose ranks are not in order or no power of two".to_string(),
            (true, members) => format!("several hosts with {members} ranks or more, or out of order, or no power of two"),
        };
        let remote = if self.remote { "several hosts".to_string() } else { String::new() };
        let parts = [remote, hosts, range("bytes", self.bytes), range("ranks", self.ranks), crowded.to_string()];
        let said: Vec<String> = parts.into_iter().filter(|part| !part.is_empty()).collect();
        if said.is_empty() { "where no rule before holds".to_string() } else { said.join(", ") }
    }

    fn holds(&self, case: &Case) -> bool {
        let within = |(low, high): (usize, usize), value: usize| RangeInclusive::new(low, high).contains(&value);
        within(self.ranks, case.ranks)
            && within(self.bytes, case.bytes)
            && self.crowded.is_none_or(|crowded| crowded == case.crowded)
            && (case.remote || !self.remote)
            && (self.members == 0 || case.hosts.is_some_and(|shape| !shape.halves || shape.most >= self.members))
            && self.algorithm.applies(case)
    }
}

/// The first rule that holds decides, unless an algorithm is forced and applies, or one keeps an order that is asked for.
#[derive(Clone, Debug)]
pub struct Selector<A: 'static> {
    pub forced: Option<A>,
    /// The one that combines in the order of [`Tuning::reproducible`], where that is asked for.
    pub ordered: Option<A>,
    pub rules: &'static [Rule<A>],
}

impl<A: Algorithm> Selector<A> {
    const fn new(rules: &'static [Rule<A>]) -> Self {
        Selector { forced: None, ordered: None, rules }
    }

    pub fn pick(&self, case: &Case) -> A {
        match self.forced.or(self.ordered) {
            Some(forced) if forced.applies(case) => forced,
            _ => self.rule(case).map_or(A::ALL[A::ALL.len() - 1], |rule| rule.algorithm),
        }
    }

    fn rule(&self, case: &Case) -> Option<&'static Rule<A>> {
        self.rules.iter().find(|rule| rule.holds(case))
    }

    /// Name of the choice and its reason.
    pub fn explain(&self, case: &Case) -> (&'static str, String) {
        let reason = match (self.forced, self.ordered) {
            (Some(forced), _) if forced.applies(case) => "forced".to_string(),
            (None, Some(_)) => "WHIMBREL_REPRODUCIBLE".to_string(),
            _ => self.rule(case).map_or_else(|| "no rule holds".to_string(), Rule::condition),
        };
        (self.pick(case).name(), reason)
    }

    fn force(&mut self, name: &str) -> Result<(), Vec<&'static str>> {
        self.forced = match A::ALL.iter().find(|algorithm| algorithm.name() == name) {
            None if name == "auto" => None,
            None => return Err(A::ALL.iter().map(|algorithm| algorithm.name()).collect()),
            found => found.copied(),
        };
        Ok(())
    }
}

const ANY: (usize, usize) = (0, usize::MAX);

const fn rule<A>(algorithm: A) -> Rule<A> {
    Rule { algorithm, ranks: ANY, bytes: ANY, crowded: None, remote: false, members: 0 }
}

impl<A: Copy> Rule<A> {
    const fn up_to(self, bytes: usize) -> Self {
        Rule { bytes: (self.bytes.0, bytes), ..self }
    }

    const fn ranks(self, low: usize, high: usize) -> Self {
        Rule { ranks: (low, high), ..self }
    }

    const fn remote(self) -> Self {
        Rule { remote: true, ..self }
    }

    const fn members(self, members: usize) -> Self {
        Rule { members, ..self }
    }

    const fn crowded(self) -> Self {
        Rule { crowded: Some(true), ..self }
    }
}

/// Temporaries of the flat reductions at their root, at most.
const FLAT_BYTES_MAX: usize = 256 << 10;
/// What the leader of a host takes on for all its members, of an alltoall, at most; its temporaries are three times as long.
const CROSSING_BYTES_MAX: usize = 512 << 10;
/// Temporaries of the log-step alltoall and of binomial gather and scatter, at most.
const PACKED_BYTES_MAX: usize = 16 << 20;

/// Up to this many bytes in all, what is chosen for two ranks sends one message at most from each to the other, without segments (but for reductions
/// that do not commute). Tested below.
pub const WHOLE_BETWEEN_TWO_BYTES: usize = 512;

fn always(_: &Case) -> bool {
    true
}
fn power_of_two(case: &Case) -> bool {
    case.ranks.is_power_of_two()
}
fn commutative(case: &Case) -> bool {
    case.commutative
}
fn packs(case: &Case) -> bool {
    case.all_bytes() <= PACKED_BYTES_MAX
}
fn flat(case: &Case) -> bool {
    case.all_bytes() <= FLAT_BYTES_MAX
}
fn hosts(case: &Case) -> bool {
    case.hosts.is_some()
}
fn packs_by_host(case: &Case) -> bool {
    hosts(case) && packs(case)
}
fn crosses_in_one(case: &Case) -> bool {
    case.hosts.is_some_and(|shape| case.all_bytes().saturating_mul(shape.most) <= CROSSING_BYTES_MAX)
}
fn ordered_by_host(case: &Case) -> bool {
    case.hosts.is_some_and(|shape| shape.in_order)
}
fn combines_by_host(case: &Case) -> bool {
    hosts(case) && (case.commutative || ordered_by_host(case))
}
fn short_total_by_host(case: &Case) -> bool {
    hosts(case) && short_total(case)
}
fn short_total(case: &Case) -> bool {
    case.bytes <= PACKED_BYTES_MAX
}

macro_rules! algorithms {
    ($($collective:ident { $($variant:ident $name:literal $applies:ident $meaning:literal,)+ })+) => {$(
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum $collective { $(#[doc = $meaning] $variant,)+ }

        impl Algorithm for $collective {
            const ALL: &'static [Self] = &[$($collective::$variant),+];
            fn name(self) -> &'static str {
                match self { $($collective::$variant => $name),+ }
            }
            fn meaning(self) -> &'static str {
                match self { $($collective::$variant => $meaning),+ }
            }
            fn applies(self, case: &Case) -> bool {
                match self { $($collective::$variant => $applies(case)),+ }
            }
        }
    )+};
}

algorithms! {
    Barrier {
        Hosts "hosts" hosts "up a tree in each host, dissemination among their leaders, down again",
        Flat "flat" always "all tell rank 0, which answers all",
        Tree "tree" always "up a binomial tree and down again",
        Dissemination "dissemination" always "log2 n rounds of n messages",
    }
    Bcast {
        Hosts "hosts" hosts "down a tree that reaches each host once; long ones to many hosts among their leaders first",
        Flat "flat" always "the root sends to all",
        ScatterDoubling "scatter_doubling" power_of_two "binomial scatter, allgather by recursive doubling",
        ScatterRing "scatter_ring" always "binomial scatter, allgather around a ring",
        Chain "chain" always "segments along a chain",
        Binomial "binomial" always "down a binomial tree",
    }
    Gather {
        Hosts "hosts" packs_by_host "in each host to its leader, then to the root",
        Binomial "binomial" packs "up a binomial tree",
        Linear "linear" always "all send to the root",
    }
    Scatter {
        Hosts "hosts" packs_by_host "to the leader of each host, then to its members",
        Binomial "binomial" packs "down a binomial tree",
        Linear "linear" always "the root sends to all",
    }
    Allgather {
        Hosts "hosts" short_total_by_host "in each host to its leader, among the leaders, down again",
        RecursiveDoubling "recursive_doubling" power_of_two "log2 n exchanges of doubling length",
        Bruck "bruck" always "log2 n shifts of doubling length, then a rotation",
        GatherBcast "gather_bcast" short_total "binomial gather, binomial broadcast",
        Ring "ring" always "n - 1 hops around a ring",
    }
    Allgatherv {
        Bruck "bruck" short_total "log2 n shifts of doubling length, packed",
        GatherBcast "gather_bcast" short_total "all send to rank 0, which broadcasts",
        Ring "ring" always "n - 1 hops around a ring",
    }
    Alltoall {
        Hosts "hosts" crosses_in_one "in each host to its leader, one message for each other host, down again",
        Bruck "bruck" packs "log2 n steps of half the blocks",
        Spread "spread" always "all messages at once",
        Pairwise "pairwise" always "n - 1 exchanges, one at a time",
    }
    Alltoallv {
        Spread "spread" always "all messages at once",
        Pairwise "pairwise" always "n - 1 exchanges, one at a time",
    }
    Reduce {
        Hosts "hosts" combines_by_host "in each host to its leader, then to the root",
        Flat "flat" flat "all send to the root, which combines",
        Rabenseifner "rabenseifner" always "reduce-scatter by recursive halving, gather",
        Binomial "binomial" always "up a binomial tree",
    }
    Allreduce {
        Hosts "hosts" combines_by_host "in each host, among hosts, and back; long vectors by parts, one for each member of a host",
        Flat "flat" flat "all send to rank 0, which combines and answers",
        ReduceBcast "reduce_bcast" always "up a binomial tree and down again",
        Rabenseifner "rabenseifner" always "reduce-scatter by recursive halving, allgather",
        Ring "ring" commutative "reduce-scatter and allgather around a ring",
        RecursiveDoubling "recursive_doubling" always "log2 n exchanges of the whole vector",
    }
    ReduceScatter {
        Hosts "hosts" ordered_by_host "in each host to its leader, scattered among the leaders, then in each host",
        Halving "halving" always "recursive halving of blocks in bit-reversed order",
        ReduceScatterv "reduce_scatterv" always "binomial reduce to rank 0, scatter",
        Pairwise "pairwise" always "each block straight to its owner, n - 1 steps",
    }
    Scan {
        Chain "chain" always "segments along the ranks",
        Doubling "doubling" always "log2 n steps of doubling distance",
    }
}

macro_rules! tuning {
    ($($field:ident: $algorithm:ty = [$($rule:expr),* $(,)?];)+) => {
        /// The choice for each collective. Must be the same on every rank of a group.
        #[derive(Clone, Debug)]
        pub struct Tuning {
            $(pub $field: Selector<$algorithm>,)+
            /// Length of a segment where a long message is pipelined, at least 1.
            pub segment_bytes: usize,
            /// Reductions combine the values of ranks `a..b` as those of `a..m` with those of `m..b`, `m - a` the largest power of two
            /// below `b - a`, whatever the algorithm, root and place; scans one rank after the other.
            pub reproducible: bool,
        }

        impl Default for Tuning {
            fn default() -> Self {
                Tuning {
                    $($field: Selector::new(const { &[$($rule),*] }),)+
                    segment_bytes: 128 << 10,
                    reproducible: false,
                }
            }
        }

        impl Tuning {
            /// Every collective and its algorithms: name, meaning.
            pub fn list() -> Vec<(&'static str, Vec<(&'static str, &'static str)>)> {
                vec![$((
                    stringify!($field),
                    <$algorithm>::ALL.iter().map(|algorithm| (algorithm.name(), algorithm.meaning())).collect(),
                )),+]
            }

            /// Uses `algorithm` of `collective` in every case that it applies to; `auto` undoes that.
            /// An unknown name is an error that lists the known ones.
            pub fn force(&mut self, collective: &str, algorithm: &str) -> Result<(), String> {
                match collective {
                    $(stringify!($field) => self.$field.force(algorithm).map_err(|known| {
                        format!("{collective} has no algorithm {algorithm:?}: one of auto, {}", known.join(", "))
                    }),)+
                    _ => Err(format!(
                        "no collective {collective:?}: one of {}",
                        [$(stringify!($field)),+].join(", ")
                    )),
                }
            }
        }
    };
}

tuning! {
    barrier: Barrier = [
        rule(Barrier::Hosts),
        rule(Barrier::Flat).crowded().ranks(0, 32),
        rule(Barrier::Tree).crowded(),
        rule(Barrier::Dissemination),
    ];
    bcast: Bcast = [
        rule(Bcast::Hosts),
        rule(Bcast::Binomial).remote().ranks(0, 7),
        rule(Bcast::Flat).crowded().ranks(0, 32).up_to(4 << 10),
        rule(Bcast::Binomial).up_to(64 << 10),
        rule(Bcast::Binomial).ranks(0, 3),
        rule(Bcast::ScatterDoubling).up_to(1 << 20),
        rule(Bcast::ScatterRing),
    ];
    gather: Gather = [
        rule(Gather::Hosts).up_to(64 << 10),
        rule(Gather::Binomial).up_to(2 << 10).ranks(5, usize::MAX),
        rule(Gather::Linear),
    ];
    scatter: Scatter = [
        rule(Scatter::Hosts).up_to(8 << 10),
        rule(Scatter::Binomial).up_to(2 << 10).ranks(5, usize::MAX),
        rule(Scatter::Linear),
    ];
    allgather: Allgather = [
        rule(Allgather::Hosts).up_to(64 << 10),
        rule(Allgather::GatherBcast).crowded().ranks(3, usize::MAX).up_to(8 << 10),
        rule(Allgather::RecursiveDoubling).up_to(512 << 10),
        rule(Allgather::Bruck).up_to(80 << 10),
        rule(Allgather::Ring),
    ];
    allgatherv: Allgatherv = [
        rule(Allgatherv::GatherBcast).crowded().up_to(8 << 10),
        rule(Allgatherv::Bruck).up_to(32 << 10),
        rule(Allgatherv::Ring),
    ];
    alltoall: Alltoall = [
        rule(Alltoall::Hosts).up_to(2 << 10),
        rule(Alltoall::Bruck).up_to(256).ranks(8, usize::MAX),
        rule(Alltoall::Spread).up_to(32 << 10),
        rule(Alltoall::Pairwise),
    ];
    alltoallv: Alltoallv = [
        rule(Alltoallv::Spread).up_to(32 << 10),
        rule(Alltoallv::Pairwise),
    ];
    reduce: Reduce = [
        rule(Reduce::Hosts),
        rule(Reduce::Binomial).remote().ranks(0, 7),
        rule(Reduce::Binomial).remote().up_to(64 << 10),
        rule(Reduce::Flat).crowded().ranks(0, 32).up_to(2 << 10),
        rule(Reduce::Binomial).up_to(16 << 10),
        rule(Reduce::Rabenseifner).ranks(4, usize::MAX),
        rule(Reduce::Binomial),
    ];
    allreduce: Allreduce = [
        rule(Allreduce::Hosts).up_to(8 << 10).members(4),
        rule(Allreduce::Hosts).members(usize::MAX),
        rule(Allreduce::RecursiveDoubling).remote().up_to(64 << 10),
        rule(Allreduce::Flat).crowded().ranks(3, 32).up_to(2 << 10),
        rule(Allreduce::ReduceBcast).crowded().ranks(3, usize::MAX).up_to(2 << 10),
        rule(Allreduce::RecursiveDoubling).up_to(8 << 10),
        rule(Allreduce::Rabenseifner).up_to(4 << 20),
        rule(Allreduce::Ring),
        rule(Allreduce::Rabenseifner),
    ];
    reduce_scatter: ReduceScatter = [
        rule(ReduceScatter::Hosts).up_to(64 << 10).members(4),
        rule(ReduceScatter::Halving).up_to(512 << 10),
        rule(ReduceScatter::Pairwise),
    ];
    scan: Scan = [
        rule(Scan::Doubling).up_to(32 << 10),
        rule(Scan::Chain),
    ];
    exscan: Scan = [
        rule(Scan::Doubling).up_to(32 << 10),
        rule(Scan::Chain),
    ];
}

impl Tuning {
    /// Forces what `words` name: `collective=algorithm`, between commas.
    pub fn force_all(&mut self, words: &str) -> Result<(), String> {
        words.split(',').map(str::trim).filter(|word| !word.is_empty()).try_for_each(|word| {
            let (collective, algorithm) = word.split_once('=').ok_or_else(|| format!("{word:?} is not collective=algorithm"))?;
            self.force(collective.trim(), algorithm.trim())
        })
    }

    /// The usual choice, or the one that keeps the order of `Tuning::reproducible`.
    pub fn of(reproducible: bool) -> Tuning {
        let mut tuning = Tuning { reproducible, ..Tuning::default() };
        if reproducible {
            tuning.reduce.ordered = Some(Reduce::Binomial);
            tuning.allreduce.ordered = Some(Allreduce::ReduceBcast);
            tuning.reduce_scatter.ordered = Some(ReduceScatter::ReduceScatterv);
            (tuning.scan.ordered, tuning.exscan.ordered) = (Some(Scan::Chain), Some(Scan::Chain));
        }
        tuning
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Those that send a message at most from each of two ranks to the other, without segments.
    #[test]
    fn two_ranks_send_a_short_message_whole() {
        let tuning = Tuning::default();
        for bytes in 1..=WHOLE_BETWEEN_TWO_BYTES {
            for crowded in [false, true] {
                let case = Case { ranks: 2, bytes, elements: bytes, commutative: true, crowded, remote: false, hosts: None };
                assert!(matches!(tuning.bcast.pick(&case), Bcast::Flat | Bcast::Binomial));
                assert_eq!(tuning.gather.pick(&case), Gather::Linear);
                assert_eq!(tuning.scatter.pick(&case), Scatter::Linear);
                assert_eq!(tuning.allgather.pick(&case), Allgather::RecursiveDoubling);
                assert_eq!(tuning.alltoall.pick(&case), Alltoall::Spread);
                assert!(matches!(tuning.reduce.pick(&case), Reduce::Flat | Reduce::Binomial));
                assert_eq!(tuning.reduce_scatter.pick(&case), ReduceScatter::Halving);
                assert_eq!((tuning.scan.pick(&case), tuning.exscan.pick(&case)), (Scan::Doubling, Scan::Doubling));
            }
        }
    }
}
