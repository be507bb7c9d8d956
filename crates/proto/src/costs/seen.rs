//! What transfers really took, and how that corrects what was expected of them.
//!
//! Whoever fetches a message asks [`Seen::choose`] how, and tells [`Seen::learn`] what it took. For each kind of peer, class of sizes and protocol the last few
//! times count as ratios to what was expected; a protocol's time is then what was expected times the least of these, since whatever disturbs a transfer makes
//! it longer. Each protocol that applies is tried twice soon after the first message of a class, so
//! that one whose expected time is too long gets its chance, and now and then later, since where processes run changes.

use super::least::Least;
use super::{Costs, KINDS, PeerKind, SIZES, size_below};
use crate::protocol::{PROTOCOLS, Protocol};
use crate::protocols::{Abilities, RENDEZVOUS, Transfer};

/// Ratios are in units of 1/1024.
const ONE: u64 = 1 << 10;
/// Ratios beyond these say no more than these.
const RATIO_MIN: u64 = ONE / 64;
const RATIO_MAX: u64 = ONE * 64;
/// Times that count for one protocol.
const LAST: usize = 8;
/// The message of a class from which on others than the one that is expected to be the cheapest are tried, twice each. Those before find cold caches.
const FIRST_TRIAL: u32 = 4;
/// Every so many messages another protocol is tried, if it is expected to take at most twice as long as the cheapest: so trials cost less than 1 %.
const TRIAL_PERIOD: u32 = 128;
/// Any other is tried as seldom as this, but for the first few: what was disturbed at its first trials gets others soon.
const RARE_TRIAL_PERIOD: u32 = 4096;
const EARLY_TRIALS: u32 = 9;
/// Of what is no trial one in so many is timed.
const TIMED_PERIOD: u32 = 8;

/// How a message is to be fetched.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Choice {
    pub protocol: Protocol,
    /// [`Seen::learn`] should be told what it takes.
    pub timed: bool,
}

#[derive(Clone, Copy, Default, Debug)]
struct Class {
    messages: u32,
    /// The last ratios to what was expected.
    cells: [Least<LAST>; PROTOCOLS],
}

/// What this process has seen: about 20 KiB.
#[derive(Clone, Debug)]
pub struct Seen {
    classes: Box<[[Class; SIZES]; KINDS]>,
}

impl Default for Seen {
    fn default() -> Seen {
        Seen { classes: Box::new([[Class::default(); SIZES]; KINDS]) }
    }
}

impl Seen {
    /// What a message of `bytes` takes, ps: what is expected, corrected by what was seen. `None` where nothing is expected.
    pub fn expected_ps(&self, costs: &Costs, kind: PeerKind, protocol: Protocol, bytes: u64) -> Option<u64> {
        let ratio = self.classes[kind as usize][size_below(bytes)].cells[protocol as usize].get().unwrap_or(ONE);
        let expected_ps = costs.expected_ps(kind, protocol, bytes)?;
        Some(u64::try_from(u128::from(expected_ps) * u128::from(ratio) / u128::from(ONE)).unwrap_or(u64::MAX))
    }

    /// How a matched message is fetched: by the protocol that takes least of those that apply, or by another one to see what that takes.
    pub fn choose(&mut self, abilities: &Abilities, costs: &Costs, kind: PeerKind, transfer: &Transfer) -> Choice {
        let applies = RENDEZVOUS.iter().filter(|record| (record.applies)(abilities, transfer)).map(|record| record.protocol);
        let mut known = [(Protocol::Pipelined, u64::MAX); RENDEZVOUS.len()];
        let mut count = 0;
        for protocol in applies {
            known[count] = (protocol, self.expected_ps(costs, kind, protocol, transfer.bytes).unwrap_or(u64::MAX));
            count += 1;
        }
        let known = &mut known[..count];
        known.sort_by_key(|(_, ps)| *ps);
        let Some(&(best, best_ps)) = known.first() else { return Choice { protocol: Protocol::Pipelined, timed: false } };
        let class = &mut self.classes[kind as usize][size_below(transfer.bytes)];
        let number = class.messages;
        class.messages = class.messages.wrapping_add(1);
        // One whose time is not known is no match for others.
        let others: &[(Protocol, u64)] = &known[1..][..known[1..].partition_point(|(_, ps)| *ps < u64::MAX)];
        if let Some(early) = number.checked_sub(FIRST_TRIAL)
            && let Some((protocol, _)) = others.iter().find(|(other, _)| !class.cells[*other as usize].has(2))
            && early < 4 * RENDEZVOUS.len() as u32
        {
            return Choice { protocol: *protocol, timed: true };
        }
        if number.is_multiple_of(TRIAL_PERIOD) && number > 0 && !others.is_empty() {
            let trial = number / TRIAL_PERIOD;
            let (protocol, ps) = others[trial as usize % others.len()];
            let rare = trial < EARLY_TRIALS || trial % (RARE_TRIAL_PERIOD / TRIAL_PERIOD) < others.len() as u32;
            if ps / 2 <= best_ps || rare {
                return Choice { protocol, timed: true };
            }
        }
        Choice { protocol: best, timed: number < FIRST_TRIAL || number.is_multiple_of(TIMED_PERIOD) }
    }

    /// A message of `bytes` took `ps`, and nothing but its transfer was waited for.
    pub fn learn(&mut self, costs: &Costs, kind: PeerKind, protocol: Protocol, bytes: u64, ps: u64) {
        let Some(expected_ps) = costs.expected_ps(kind, protocol, bytes) else { return };
        let ratio = u128::from(ps) * u128::from(ONE) / u128::from(expected_ps.max(1));
        self.classes[kind as usize][size_below(bytes)].cells[protocol as usize].learn(ratio.clamp(u128::from(RATIO_MIN), u128::from(RATIO_MAX)) as u32);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::costs::{Curve, size};
    use proptest::prelude::*;

    const ALL: Abilities = Abilities { remote_read: true, cooperative_copy: true };
    const NEAR: PeerKind = PeerKind::SharedCache;
    const FETCHING: [Protocol; 3] = [Protocol::Read, Protocol::Cooperative, Protocol::Pipelined];

    fn costs(start_and_per_kib_ns: [(u64, u64); 3]) -> Costs {
        let mut costs = Costs::unknown();
        for (protocol, (start, per_kib)) in FETCHING.into_iter().zip(start_and_per_kib_ns) {
            let points = [0, 23].map(|at| (size(at), 1000 * start.max(1) + size(at) * per_kib * 1000 / 1024));
            costs.set(NEAR, protocol, Curve::through(&points).unwrap());
        }
        costs
    }

    /// Fetches `messages` of `bytes` where the truth is `truth`, and `disturbed` says by how much each takes longer. How often each way was taken in the last half.
    fn play(seen: &mut Seen, believed: &Costs, truth: &Costs, bytes: u64, messages: u32, mut disturbed: impl FnMut(Protocol) -> u64) -> [u32; PROTOCOLS] {
        let mut taken = [0; PROTOCOLS];
        for number in 0..messages {
            let transfer = Transfer { bytes, contiguous: true };
            let choice = seen.choose(&ALL, believed, NEAR, &transfer);
            if choice.timed {
                let ps = truth.expected_ps(NEAR, choice.protocol, bytes).unwrap() * disturbed(choice.protocol);
                seen.learn(believed, NEAR, choice.protocol, bytes, ps);
            }
            if number >= messages / 2 {
                taken[choice.protocol as usize] += 1;
            }
        }
        taken
    }

    /// Two-vCPU machines with a shared last-level cache and with private second-level ones, as their cache files had it: start (ns) and time of a KiB (ns) to read, to
    /// copy together, and piece by piece.
    const SHARED: [(u64, u64); 3] = [(1_300, 72), (2_600, 40), (500, 38)];
    const PRIVATE: [(u64, u64); 3] = [(1_000, 60), (2_900, 34), (700, 130)];

    #[test]
    fn a_cache_of_another_machine_is_corrected_within_a_thousand_messages() {
        for (believed, truth) in [(SHARED, PRIVATE), (PRIVATE, SHARED)] {
            let (believed, truth) = (costs(believed), costs(truth));
            for at in 14..SIZES {
                let best = |costs: &Costs| FETCHING.into_iter().min_by_key(|way| costs.expected_ps(NEAR, *way, size(at))).unwrap();
                let mut seen = Seen::default();
                let taken = play(&mut seen, &believed, &truth, size(at), 1000, |_| 1);
                assert!(taken[best(&truth) as usize] >= 490, "{} B: {taken:?}, the best is {:?}", size(at), best(&truth));
            }
        }
    }

    #[test]
    fn nothing_is_tried_that_does_not_apply_and_nothing_where_there_is_no_choice() {
        let mut seen = Seen::default();
        for _ in 0..2 * RARE_TRIAL_PERIOD {
            let choice = seen.choose(&ALL, &costs(SHARED), NEAR, &Transfer { bytes: 1 << 20, contiguous: false });
            assert_eq!(choice.protocol, Protocol::Pipelined);
            let alone = Abilities { cooperative_copy: false, ..ALL };
            assert_ne!(seen.choose(&alone, &costs(SHARED), NEAR, &Transfer { bytes: 1 << 19, contiguous: true }).protocol, Protocol::Cooperative);
        }
        // Nothing is known of any: reading, always.
        for _ in 0..2 * TRIAL_PERIOD {
            assert_eq!(seen.choose(&ALL, &Costs::unknown(), NEAR, &Transfer { bytes: 1 << 18, contiguous: true }).protocol, Protocol::Read);
        }
    }

    #[test]
    fn what_changes_later_is_followed() {
        let (before, after) = (costs([(1000, 50), (1000, 40), (1000, 90)]), costs([(1000, 20), (1000, 40), (1000, 90)]));
        let mut seen = Seen::default();
        let taken = play(&mut seen, &before, &before, 1 << 20, 4_000, |_| 1);
        assert!(taken[Protocol::Cooperative as usize] > 1_900, "{taken:?}");
        let taken = play(&mut seen, &before, &after, 1 << 20, 4_000, |_| 1);
        assert!(taken[Protocol::Read as usize] > 1_900, "{taken:?}");
    }

    proptest! {
        /// Whatever was believed, and though one transfer of every five that a way takes is disturbed, no matter which: soon nearly all messages go a way that takes at most 1.1 times the best, and trials are few.
        #[test]
        fn the_best_way_is_found(
            believed in prop::array::uniform3((500..20_000u64, 10..400u64)),
            truth in prop::array::uniform3((500..20_000u64, 10..400u64)),
            at in 13..SIZES,
            seed: u64,
        ) {
            let (believed, truth) = (costs(believed), costs(truth));
            let mut random = seed | 1;
            // For each way, how many of its five are over, and which is disturbed. Were each drawn for itself, a way's trials could all be disturbed now and then.
            let mut fives = [(0, 0); PROTOCOLS];
            let disturbed = |way: Protocol| {
                random ^= random << 13;
                random ^= random >> 7;
                random ^= random << 17;
                let (over, which) = &mut fives[way as usize];
                if *over == 0 {
                    *which = random % 5;
                }
                let now = *over == *which;
                *over = (*over + 1) % 5;
                if now { 1 + random / 5 % 40 } else { 1 }
            };
            let taken = play(&mut Seen::default(), &believed, &truth, size(at), 4_000, disturbed);
            let ps = |way: Protocol| truth.expected_ps(NEAR, way, size(at)).unwrap();
            let best = FETCHING.into_iter().map(ps).min().unwrap();
            let good: u32 = FETCHING.into_iter().filter(|way| 10 * ps(*way) <= 11 * best).map(|way| taken[way as usize]).sum();
            prop_assert!(good >= 1_700, "{taken:?}");
        }
    }
}
