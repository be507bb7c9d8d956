//! Which way collectives go, and why, as far as operation, length and number of ranks tell: what `whimbrel info --collectives` lists. It asks
//! the code that decides for real calls.

use super::longest_part;
use crate::call::{Call, Form, Kind};
use crate::coll::Tuning;
use crate::coll::choose::Case;
use crate::coll::place::Shape;
use crate::turn::lend::{self, Otherwise, Reads};
use crate::turn::stream;
use crate::{lines, neighborhood};
use engine::slots::INLINE_BYTES;

/// Where collectives run.
#[derive(Clone, Copy, Debug)]
pub struct Place {
    pub ranks: usize,
    /// All ranks share memory.
    pub together: bool,
    /// Ranks of each host, where there are several; a power of two, one after the other.
    pub each: usize,
    /// More ranks than cores.
    pub crowded: bool,
    /// Ranks that share memory may read each other's.
    pub lending: bool,
}

impl Place {
    fn shape(&self) -> Option<Shape> {
        (!self.together && self.each > 1 && self.each < self.ranks).then_some(Shape { in_order: true, halves: true, even: true, most: self.each })
    }
}

/// The way of a collective for lengths from `from` to `to` bytes, which were looked at by powers of two.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Row {
    pub from: usize,
    pub to: usize,
    pub way: &'static str,
    pub why: String,
}

/// Collectives that are listed, and what the bytes of each are.
pub const LISTED: [(Kind, &str); 17] = [
    (Kind::Barrier, "-"),
    (Kind::Bcast, "vector"),
    (Kind::Gather, "block"),
    (Kind::Gatherv, "block"),
    (Kind::Scatter, "block"),
    (Kind::Scatterv, "block"),
    (Kind::Allgather, "block"),
    (Kind::Allgatherv, "block"),
    (Kind::Alltoall, "block"),
    (Kind::Alltoallv, "block"),
    (Kind::Reduce, "vector"),
    (Kind::Allreduce, "vector"),
    (Kind::ReduceScatterBlock, "vector"),
    (Kind::ReduceScatter, "vector"),
    (Kind::Scan, "vector"),
    (Kind::Exscan, "vector"),
    (Kind::NeighborAlltoall, "block"),
];

/// Longest that is looked at, bytes.
const BYTES_MAX: usize = 4 << 20;

/// The name of a collective.
pub fn name(kind: Kind, form: Form) -> String {
    Call::new(kind).form(form).to_string()
}

/// How `kind` goes as a blocking call whose memory lies in one piece, from 8 B to 4 MiB; `slots`: they may be used.
pub fn rows(kind: Kind, place: Place, tuning: &Tuning, slots: bool) -> Vec<Row> {
    let mut rows: Vec<Row> = Vec::new();
    let lengths = std::iter::successors(Some(8), |bytes| Some(2 * bytes)).take_while(|bytes| *bytes <= BYTES_MAX);
    for bytes in lengths.take(if kind == Kind::Barrier { 1 } else { usize::MAX }) {
        let (way, why) = shared(kind, bytes, place, tuning, slots).unwrap_or_else(|| messages(kind, bytes, place, tuning));
        match rows.last_mut() {
            Some(last) if (last.way, &last.why) == (way, &why) => last.to = bytes,
            _ => rows.push(Row { from: bytes, to: bytes, way, why }),
        }
    }
    rows
}

/// Through memory that all share, where it goes so.
fn shared(kind: Kind, bytes: usize, place: Place, tuning: &Tuning, slots: bool) -> Option<(&'static str, String)> {
    let ranks = place.ranks;
    if !slots || !place.together || !lines::fits(ranks, 0) {
        return None;
    }
    let ordered = tuning.reproducible && ranks > 2;
    if kind == Kind::Barrier || (kind == Kind::Allreduce && bytes <= lines::BYTES_MAX && !ordered) {
        return Some(("lines", format!("up to {} bytes, {} ranks", lines::BYTES_MAX, lines::RANKS_MAX)));
    }
    let longest = longest_part(kind, bytes, ranks);
    let most = lines::part_of(ranks);
    let lent = |otherwise| place.lending && Reads::of(kind, bytes, ranks).is_some_and(|reads| reads.may(otherwise));
    let or_lent = || if lent(Otherwise::TwoCopies) { ", or lent, by timed calls" } else { "" };
    match kind {
        Kind::Alltoallv if place.lending && !super::shared::short(bytes, ranks) => Some(("lent", "who gets it reads it in its sender's memory".to_string())),
        Kind::Gatherv | Kind::Scatterv | Kind::Alltoallv if !super::shared::short(bytes, ranks) => None,
        Kind::Gatherv | Kind::Scatterv | Kind::Alltoallv => {
            let or_lent = if place.lending && kind == Kind::Alltoallv && bytes >= lend::BYTES_MIN { ", or lent, by its sender's timed calls" } else { "" };
            Some(("slots", format!("with its kind it is a part of at most {most} bytes{or_lent}")))
        }
        // Of a ring.
        Kind::NeighborAlltoall if neighborhood::longest_block(ranks, 2).is_none_or(|most| bytes > most) => None,
        Kind::NeighborAlltoall => Some(("slots", "behind a table of a rank's blocks".to_string())),
        _ if longest <= INLINE_BYTES => Some(("slots", format!("up to {INLINE_BYTES} bytes of a rank, in its line"))),
        _ if lines::fits(ranks, longest) => Some(("slots", format!("what a rank brings is at most {most} bytes{}", or_lent()))),
        _ if kind != Kind::Allgatherv && stream::fits(ranks, longest, streams_among_many(kind)) => {
            Some(("slots", format!("in pieces, more than {most} bytes{}", or_lent())))
        }
        _ => lent(Otherwise::Messages).then(|| ("lent", "members read it in each other's memory".to_string())),
    }
}

/// What [`super::Plan::streams_among_many`] says of a blocking call whose blocks are equal.
fn streams_among_many(kind: Kind) -> bool {
    matches!(kind, Kind::Bcast | Kind::Allgather | Kind::Alltoall | Kind::Reduce | Kind::Allreduce | Kind::ReduceScatterBlock | Kind::Scan | Kind::Exscan)
}

/// Longest part of `kind`, bytes, up to which its nonblocking form goes through slots of its own among `ranks` that share memory, of lengths that
/// were looked at by powers of two; 0 where it has no bytes. `None`: it goes by messages.
pub fn longest_later(kind: Kind, ranks: usize) -> Option<usize> {
    if !lines::fits(ranks, 0) {
        return None;
    }
    let through_slots = |bytes: &usize| {
        let whole = match kind {
            Kind::Gatherv | Kind::Scatterv | Kind::NeighborAlltoall => return false,
            Kind::Scan | Kind::Exscan => super::shared::scan_whole_max(ranks),
            // Longer blocks go by messages beside.
            Kind::Alltoallv => super::shared::block_bytes_max(ranks),
            _ => usize::MAX,
        };
        let longest = longest_part(kind, *bytes, ranks);
        *bytes <= whole && lines::fits(ranks, longest)
    };
    let lengths = std::iter::successors(Some(8), |bytes| Some(2 * bytes)).take_while(|bytes| *bytes <= BYTES_MAX);
    if kind == Kind::Barrier { Some(0).filter(through_slots) } else { lengths.filter(through_slots).last() }
}

/// By messages: the algorithm.
fn messages(kind: Kind, bytes: usize, place: Place, tuning: &Tuning) -> (&'static str, String) {
    let total = bytes.saturating_mul(place.ranks);
    let case = |bytes| Case {
        ranks: place.ranks,
        bytes,
        elements: bytes / 8,
        commutative: true,
        crowded: place.crowded,
        remote: !place.together,
        hosts: place.shape(),
    };
    match kind {
        Kind::Barrier => tuning.barrier.explain(&case(0)),
        Kind::Bcast => tuning.bcast.explain(&case(bytes)),
        Kind::Gather => tuning.gather.explain(&case(bytes)),
        Kind::Scatter => tuning.scatter.explain(&case(bytes)),
        Kind::Allgather => tuning.allgather.explain(&case(total)),
        Kind::Allgatherv => tuning.allgatherv.explain(&case(total)),
        Kind::Alltoall => tuning.alltoall.explain(&case(bytes)),
        Kind::Alltoallv => tuning.alltoallv.explain(&case(bytes)),
        Kind::Reduce => tuning.reduce.explain(&case(bytes)),
        Kind::Allreduce => tuning.allreduce.explain(&case(bytes)),
        Kind::ReduceScatterBlock | Kind::ReduceScatter => tuning.reduce_scatter.explain(&case(bytes)),
        Kind::Scan => tuning.scan.explain(&case(bytes)),
        Kind::Exscan => tuning.exscan.explain(&case(bytes)),
        Kind::Gatherv | Kind::Scatterv => ("linear", "ranks know their own block alone".to_string()),
        _ => ("spread", "the only algorithm".to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ways(kind: Kind, ranks: usize, tuning: &Tuning, slots: bool) -> Vec<(usize, &'static str)> {
        let place = Place { ranks, together: true, each: 1, crowded: false, lending: false };
        rows(kind, place, tuning, slots).into_iter().map(|row| (row.to, row.way)).collect()
    }

    #[test]
    fn nonblocking_ones_go_through_slots_up_to_what_they_take_whole() {
        assert_eq!(longest_later(Kind::Barrier, 64), Some(0));
        assert_eq!((longest_later(Kind::Bcast, 2), longest_later(Kind::Bcast, 64)), (Some(lines::part_of(2)), Some(lines::part_of(64))));
        assert_eq!(longest_later(Kind::Alltoall, 3), Some(lines::part_of(3) / 2));
        assert_eq!((longest_later(Kind::Allreduce, 2), longest_later(Kind::Allreduce, 3)), (Some(lines::part_of(2)), Some(lines::part_of(3))));
        assert_eq!((longest_later(Kind::Alltoallv, 2), longest_later(Kind::Alltoallv, 4)), (Some(lines::part_of(2)), Some(lines::part_of(4) / 4)));
        for (kind, ranks) in [(Kind::Gatherv, 2), (Kind::NeighborAlltoall, 2), (Kind::Bcast, 65), (Kind::Bcast, 1), (Kind::Alltoallv, 65), (Kind::Alltoallv, 1)]
        {
            assert_eq!(longest_later(kind, ranks), None);
        }
    }

    #[test]
    fn short_ones_of_one_host_go_through_slots_unless_these_are_off() {
        let (usual, ordered) = (Tuning::default(), Tuning::of(true));
        for (kind, _) in LISTED {
            let of = |slots| rows(kind, Place { ranks: 4, together: true, each: 1, crowded: false, lending: false }, &usual, slots);
            assert_eq!((of(true).first().unwrap().from, of(true).last().unwrap().to), (8, if kind == Kind::Barrier { 8 } else { BYTES_MAX }));
            assert!(of(false).iter().all(|row| !["slots", "lines"].contains(&row.way)), "{}", name(kind, Form::Blocking));
            assert!(["slots", "lines"].contains(&of(true)[0].way), "{}", name(kind, Form::Blocking));
        }
        assert_eq!(ways(Kind::Allreduce, 4, &usual, true)[0], (32, "lines"));
        assert_eq!(ways(Kind::Allreduce, 4, &ordered, true)[..2], [(32, "slots"), (256 << 10, "slots")]);
        assert_eq!(ways(Kind::Allreduce, 4, &ordered, false), [(BYTES_MAX, "reduce_bcast")]);
        assert_eq!(ways(Kind::Bcast, 2, &usual, true), [(32, "slots"), (1 << 20, "slots"), (BYTES_MAX, "slots")]);
        assert_eq!(ways(Kind::Bcast, 3, &usual, true), [(32, "slots"), (256 << 10, "slots"), (BYTES_MAX, "slots")]);
        assert_eq!(ways(Kind::NeighborAlltoall, 2, &usual, true), [(256 << 10, "slots"), (BYTES_MAX, "spread")]);
        assert_eq!(ways(Kind::Bcast, 65, &usual, true)[0], (64 << 10, "binomial"));
    }

    #[test]
    fn what_fits_no_room_is_lent_where_members_may_read_each_others_memory() {
        let of = |kind, ranks, crowded| rows(kind, Place { ranks, together: true, each: 1, crowded, lending: true }, &Tuning::default(), true);
        let lent = |kind, ranks, crowded| of(kind, ranks, crowded).last().is_some_and(|row| (row.to, row.way) == (BYTES_MAX, "lent"));
        for kind in [Kind::Gather, Kind::Scatter, Kind::ReduceScatter] {
            assert!(lent(kind, 3, true), "{}", name(kind, Form::Blocking));
            assert_eq!(of(kind, 2, false).last().map(|row| row.way), Some("slots"), "{}", name(kind, Form::Blocking));
            assert!(lent(kind, 3, false), "{}", name(kind, Form::Blocking));
        }
        assert!(of(Kind::Scan, 3, true).iter().chain(&of(Kind::Bcast, 65, true)).all(|row| row.way != "lent"));
        for kind in [Kind::Allgather, Kind::Alltoall, Kind::Allreduce, Kind::ReduceScatterBlock] {
            let last = of(kind, 3, true).pop().unwrap();
            assert!((last.to, last.way) == (BYTES_MAX, "slots") && last.why.ends_with("or lent, by timed calls"), "{last:?}");
        }
        for ranks in [2, 3] {
            let ways: Vec<_> = of(Kind::Alltoallv, ranks, false).into_iter().map(|row| (row.from, row.way, row.why.ends_with("timed calls"))).collect();
            let [first, either, long] = ways[..] else { panic!("{ways:?}") };
            assert_eq!((first, either, (long.1, long.2)), ((8, "slots", false), (lend::BYTES_MIN, "slots", true), ("lent", false)));
        }
        assert!(of(Kind::Allgather, 2, false).last().is_some_and(|row| row.why.ends_with("or lent, by timed calls")));
    }
}
