//! Protocols as records: each says its name and when it applies; of those that apply, the one that costs least is taken ([`crate::costs`]).

use crate::costs::{Costs, PeerKind, SIZES, size};
pub use crate::protocol::{PROTOCOLS, Protocol};

/// What a fabric can do, as far as the choice of a protocol needs to know.
#[derive(Clone, Copy, Debug)]
pub struct Abilities {
    /// The receiver can read the sender's memory.
    pub remote_read: bool,
    /// Both sides can copy, and share a descriptor of what is left to do.
    pub cooperative_copy: bool,
}

/// A message about to be transferred, after matching.
#[derive(Clone, Copy, Debug)]
pub struct Transfer {
    pub bytes: u64,
    /// Both buffers lie in one piece, or in pieces long enough to be copied straight.
    pub contiguous: bool,
}

/// A protocol as a record.
pub struct Record {
    pub protocol: Protocol,
    pub applies: fn(&Abilities, &Transfer) -> bool,
}

/// The protocols by which a matched message may be fetched. The last needs nothing, and is always there.
pub const RENDEZVOUS: [Record; 3] = [
    Record { protocol: Protocol::Read, applies: |a, t| a.remote_read && t.contiguous },
    Record { protocol: Protocol::Cooperative, applies: |a, t| a.remote_read && a.cooperative_copy && t.contiguous },
    Record { protocol: Protocol::Pipelined, applies: |_, _| true },
];

/// The protocol that is expected to cost least, of those that apply to a matched message. One whose cost is not known is taken only where there is no other;
/// reading, where nothing is known of any.
pub fn choose(abilities: &Abilities, costs: &Costs, kind: PeerKind, transfer: &Transfer) -> Protocol {
    let applies = RENDEZVOUS.iter().filter(|record| (record.applies)(abilities, transfer)).map(|record| record.protocol);
    let cost_ps = |protocol: &Protocol| costs.expected_ps(kind, *protocol, transfer.bytes).unwrap_or(u64::MAX);
    applies.min_by_key(cost_ps).unwrap_or(Protocol::Pipelined)
}

/// What the cheapest way costs that a message takes to `kind` when it does not go with its header, ps. `announced`: receives that come first are announced, and
/// that is the way of a message whose receiver waits for it.
pub fn rendezvous_ps(abilities: &Abilities, costs: &Costs, kind: PeerKind, announced: bool, bytes: u64) -> Option<u64> {
    let announced_ps = || costs.expected_ps(kind, Protocol::Announced, bytes).filter(|_| announced && abilities.remote_read);
    let fetched = choose(abilities, costs, kind, &Transfer { bytes, contiguous: true });
    announced_ps().or_else(|| costs.expected_ps(kind, fetched, bytes))
}

/// What a message of `bytes` costs to `kind` that goes with its header, and one that does not, ps.
pub fn ring_and_rendezvous_ps(abilities: &Abilities, costs: &Costs, kind: PeerKind, announced: bool, bytes: u64) -> Option<(u64, u64)> {
    costs.expected_ps(kind, Protocol::Eager, bytes).zip(rendezvous_ps(abilities, costs, kind, announced, bytes))
}

/// Which messages go with their header: up to one length, and up to another one where both sides wait and that costs less.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    pub eager_bytes_max: u64,
    pub both_wait_bytes_max: u64,
}

/// How a message of `bytes` in one piece goes to `kind` whose sender and receiver wait for it.
pub fn way(abilities: &Abilities, costs: &Costs, kind: PeerKind, announced: bool, limits: Limits, bytes: u64) -> Protocol {
    let costs_less = || ring_and_rendezvous_ps(abilities, costs, kind, announced, bytes).is_none_or(|(ring, other)| !costs.measured() || ring <= other);
    if bytes <= limits.eager_bytes_max || (bytes <= limits.both_wait_bytes_max && costs_less()) {
        Protocol::Eager
    } else if announced && abilities.remote_read {
        Protocol::Announced
    } else {
        choose(abilities, costs, kind, &Transfer { bytes, contiguous: true })
    }
}

/// Up to which length messages to `kind` should go with their header: the one of 0 B and the powers of two within `least..=most` bytes past which the
/// messages of all sizes together lose least by it, each beside its own best. `None` where the costs of the protocols are not known.
pub fn eager_bytes_max(abilities: &Abilities, costs: &Costs, kind: PeerKind, announced: bool, least: u64, most: u64) -> Option<u64> {
    let mut losses = Vec::with_capacity(SIZES);
    for bytes in (0..SIZES).map(size).filter(|bytes| (least..=most).contains(bytes)) {
        let eager = costs.expected_ps(kind, Protocol::Eager, bytes)? as f64;
        let other = rendezvous_ps(abilities, costs, kind, announced, bytes)? as f64;
        losses.push((bytes, eager / eager.min(other), other / eager.min(other)));
    }
    let loss = |last: u64| losses.iter().map(|(bytes, eager, other)| if *bytes <= last { *eager } else { *other }).sum::<f64>();
    let best = losses.iter().map(|(bytes, ..)| *bytes).chain([least]).min_by(|a, b| loss(*a).total_cmp(&loss(*b)));
    best.filter(|_| !losses.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::costs::{Curve, PS_MAX};
    use proptest::prelude::*;

    const ALL: Abilities = Abilities { remote_read: true, cooperative_copy: true };
    const NEAR: PeerKind = PeerKind::SharedCache;

    #[test]
    fn falls_back_to_what_needs_nothing() {
        let nothing = Abilities { remote_read: false, cooperative_copy: false };
        for costs in [Costs::default(), Costs::unknown(), Costs::preferring(Protocol::Read)] {
            for bytes in [0, 1, 1 << 20, 1 << 40] {
                for contiguous in [false, true] {
                    assert_eq!(choose(&nothing, &costs, NEAR, &Transfer { bytes, contiguous }), Protocol::Pipelined);
                }
                assert_eq!(choose(&ALL, &costs, NEAR, &Transfer { bytes, contiguous: false }), Protocol::Pipelined);
            }
        }
    }

    #[test]
    fn large_messages_are_shared_when_both_can_copy() {
        let large = Transfer { bytes: 4 << 20, contiguous: true };
        assert_eq!(choose(&ALL, &Costs::default(), NEAR, &large), Protocol::Cooperative);
        let alone = Abilities { cooperative_copy: false, ..ALL };
        assert_eq!(choose(&alone, &Costs::default(), NEAR, &large), Protocol::Read);
    }

    #[test]
    fn nothing_is_said_of_kinds_that_are_not_known() {
        assert_eq!(eager_bytes_max(&ALL, &Costs::default(), PeerKind::Datagrams, false, 4096, 1 << 17), None);
        assert_eq!(choose(&ALL, &Costs::unknown(), NEAR, &Transfer { bytes: 9, contiguous: true }), Protocol::Read);
    }

    #[test]
    fn messages_go_with_their_header_until_another_way_costs_less() {
        let mut costs = Costs::unknown();
        // They cross between 16 and 32 KiB.
        costs.set(NEAR, Protocol::Eager, Curve::through(&[(0, 100), (1 << 20, 100 + (1 << 20))]).unwrap());
        costs.set(NEAR, Protocol::Read, Curve::through(&[(0, 12_000), (1 << 20, 12_000 + (1 << 19))]).unwrap());
        let threshold = |announced, least, most| eager_bytes_max(&ALL, &costs, NEAR, announced, least, most);
        assert_eq!(threshold(false, 4096, 128 << 10), Some(16 << 10));
        assert_eq!(threshold(false, 4096, 8 << 10), Some(8 << 10));
        assert_eq!(threshold(false, 64 << 10, 128 << 10), Some(64 << 10));
        // Without a measured cost of what is announced, that of what is fetched counts.
        assert_eq!(threshold(true, 4096, 128 << 10), Some(16 << 10));
        costs.set(NEAR, Protocol::Announced, Curve::through(&[(0, 5_000), (1 << 20, 5_000 + (1 << 19))]).unwrap());
        assert_eq!(eager_bytes_max(&ALL, &costs, NEAR, true, 4096, 128 << 10), Some(8 << 10));
        assert_eq!(eager_bytes_max(&ALL, &costs, NEAR, false, 4096, 128 << 10), Some(16 << 10));
        let limits = |both_wait_bytes_max| Limits { eager_bytes_max: 8 << 10, both_wait_bytes_max };
        let chosen = |announced, bytes| way(&ALL, &costs, NEAR, announced, limits(0), bytes);
        assert_eq!([chosen(true, 8 << 10), chosen(true, 8193), chosen(false, 8193)], [Protocol::Eager, Protocol::Announced, Protocol::Read]);
        // Where both sides wait, longer ones go with their header while that costs less, and up to a length.
        let waited = |most, bytes| way(&ALL, &costs, NEAR, false, limits(most), bytes);
        assert_eq!([waited(64 << 10, 16 << 10), waited(16_383, 16 << 10), waited(64 << 10, 32 << 10)], [Protocol::Eager, Protocol::Read, Protocol::Read]);
        assert_eq!(way(&ALL, &Costs::assumed(), NEAR, true, limits(64 << 10), 64 << 10), Protocol::Eager, "nothing was measured");
    }

    fn any_curve() -> impl Strategy<Value = Curve> {
        prop::collection::vec(1..PS_MAX, SIZES).prop_map(|mut ps| {
            ps.sort_unstable();
            Curve::new(ps.try_into().unwrap()).unwrap()
        })
    }

    proptest! {
        /// What is chosen applies, and nothing that applies is expected to cost less.
        #[test]
        fn the_cheapest_that_applies(curves in prop::collection::vec(any_curve(), 5), bytes in 0..8_000_000u64, remote_read: bool, cooperative_copy: bool, contiguous: bool) {
            let mut costs = Costs::unknown();
            for (protocol, curve) in Protocol::ALL.into_iter().zip(curves) {
                costs.set(NEAR, protocol, curve);
            }
            let (abilities, transfer) = (Abilities { remote_read, cooperative_copy }, Transfer { bytes, contiguous });
            let chosen = choose(&abilities, &costs, NEAR, &transfer);
            let applying: Vec<Protocol> = RENDEZVOUS.iter().filter(|r| (r.applies)(&abilities, &transfer)).map(|r| r.protocol).collect();
            prop_assert!(applying.contains(&chosen));
            prop_assert!(applying.iter().all(|other| costs.expected_ps(NEAR, *other, bytes) >= costs.expected_ps(NEAR, chosen, bytes)));
        }

        /// The threshold lies within its bounds. Where the costs of the two protocols cross once, each size takes the cheaper one.
        #[test]
        fn thresholds_are_the_best_there_are(eager in any_curve(), read in any_curve(), least in 0..20usize, more in 0..4usize) {
            let mut costs = Costs::unknown();
            costs.set(NEAR, Protocol::Eager, eager);
            costs.set(NEAR, Protocol::Read, read);
            let (least, most) = (size(least), size(least + more));
            let threshold = eager_bytes_max(&ALL, &costs, NEAR, false, least, most).unwrap();
            prop_assert!((least..=most).contains(&threshold));
            let cheaper: Vec<(u64, bool)> = (0..SIZES).map(size).filter(|b| (least..=most).contains(b)).map(|b| (b, eager.at(b) <= read.at(b))).collect();
            let crosses_once = cheaper.windows(2).all(|pair| pair[0].1 || !pair[1].1);
            if crosses_once {
                prop_assert!(cheaper.iter().skip(1).all(|(bytes, eager_is)| (*bytes <= threshold) == *eager_is || eager.at(*bytes) == read.at(*bytes)));
            }
        }
    }
}
