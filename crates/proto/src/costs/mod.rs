//! What does a message cost, by protocol, size and kind of peer? Curves that are measured, never typed in for one machine.
//!
//! A [`Curve`] gives the time of one message one way at every power of two, in picoseconds; between these it is interpolated.
//! [`Costs`] holds one curve for each kind of peer and protocol. Measuring, and the file that keeps the result, are the engine's;
//! [`text`] is what such a file says.

mod least;
pub mod making;
pub mod pieces;
pub mod placing;
pub mod seen;
pub mod text;
pub mod two;
pub mod ways;

use crate::protocol::{PROTOCOLS, Protocol};

/// Sizes at which a curve is given: 0 B, then each power of two from 1 B to 4 MiB.
pub const SIZES: usize = 24;

/// Longest time of a curve, ps: 1,000 s.
pub const PS_MAX: u64 = 1_000_000_000_000_000;

/// The size number `at`, bytes. `at` must be below [`SIZES`].
pub const fn size(at: usize) -> u64 {
    if at == 0 { 0 } else { 1 << (at - 1) }
}

/// The number of the largest size that is at most `bytes`.
pub const fn size_below(bytes: u64) -> usize {
    let at = (u64::BITS - bytes.leading_zeros()) as usize;
    if at < SIZES { at } else { SIZES - 1 }
}

/// Where a peer is, as far as the cost of a message depends on it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PeerKind {
    /// Another hardware thread of the same core.
    SameCore,
    /// Another core under the same last-level cache.
    SharedCache,
    /// Another core of the same package, under another last-level cache.
    SamePackage,
    OtherPackage,
    /// It is reached by datagrams.
    Datagrams,
}

pub const KINDS: usize = 5;

impl PeerKind {
    pub const ALL: [PeerKind; KINDS] = [PeerKind::SameCore, PeerKind::SharedCache, PeerKind::SamePackage, PeerKind::OtherPackage, PeerKind::Datagrams];

    pub fn name(self) -> &'static str {
        match self {
            PeerKind::SameCore => "same-core",
            PeerKind::SharedCache => "shared-cache",
            PeerKind::SamePackage => "same-package",
            PeerKind::OtherPackage => "other-package",
            PeerKind::Datagrams => "datagrams",
        }
    }
}

/// The time of one message one way, by size.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Curve {
    ps: [u64; SIZES],
}

impl Curve {
    /// Errors (`None`): a time is 0 or above [`PS_MAX`], or falls as the size grows.
    pub fn new(ps: [u64; SIZES]) -> Option<Curve> {
        let sound = ps.iter().all(|ps| (1..=PS_MAX).contains(ps)) && ps.is_sorted();
        sound.then_some(Curve { ps })
    }

    /// The curve through measured `points` of size (bytes) and time (ps), sizes ascending. A time that is longer than that of a larger size was disturbed, and
    /// is taken to be that one. Below the first point the time is that of the first; beyond the last it goes on as between the last two.
    ///
    /// Errors (`None`): there is no point, a size comes twice, or a time is 0 or above [`PS_MAX`].
    pub fn through(points: &[(u64, u64)]) -> Option<Curve> {
        let sound = points.windows(2).all(|pair| pair[0].0 < pair[1].0) && points.iter().all(|(_, ps)| (1..=PS_MAX).contains(ps));
        let (_, last_ps) = points.last().copied().filter(|_| sound)?;
        let mut smooth = points.to_vec();
        let mut least_ps = last_ps;
        for (_, ps) in smooth.iter_mut().rev() {
            least_ps = least_ps.min(*ps);
            *ps = least_ps;
        }
        let mut ps = [0; SIZES];
        for (at, ps) in ps.iter_mut().enumerate() {
            *ps = along(&smooth, size(at)).min(PS_MAX);
        }
        Curve::new(ps)
    }

    /// The time of a message of `bytes`, ps.
    pub fn at(&self, bytes: u64) -> u64 {
        let below = size_below(bytes);
        if size(below) == bytes {
            return self.ps[below];
        }
        let first = below.min(SIZES - 2);
        along(&[(size(first), self.ps[first]), (size(first + 1), self.ps[first + 1])], bytes)
    }

    /// The time at each size, ps.
    pub fn ps(&self) -> &[u64; SIZES] {
        &self.ps
    }
}

/// The value at `bytes` of the line through `points`, which do not fall; flat before the first, and after the only one.
fn along(points: &[(u64, u64)], bytes: u64) -> u64 {
    let next = points.partition_point(|(size, _)| *size < bytes);
    if next == 0 || points.len() == 1 {
        return points[0].1;
    }
    let ((from, from_ps), (to, to_ps)) = (points[next.min(points.len() - 1) - 1], points[next.min(points.len() - 1)]);
    let rise = u128::from(to_ps - from_ps) * u128::from(bytes - from) / u128::from(to - from);
    from_ps.saturating_add(u64::try_from(rise).unwrap_or(u64::MAX))
}

/// What messages cost on one machine.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Costs {
    curves: Box<[[Option<Curve>; PROTOCOLS]; KINDS]>,
    measured: bool,
}

impl Default for Costs {
    fn default() -> Self {
        Costs::assumed()
    }
}

impl Costs {
    /// Nothing is known.
    pub fn unknown() -> Costs {
        Costs { curves: Box::new([[None; PROTOCOLS]; KINDS]), measured: false }
    }

    /// What is assumed of a machine before it is measured: a packet takes 0.2 µs, a copy through the ring 60 ns a KiB on each side, a copy by the system 0.9 µs
    /// and 55 ns a KiB, and sharing one between two 2.5 µs more. Only the order of these figures matters, and only until the machine is measured.
    pub fn assumed() -> Costs {
        let curve = |start_ns: u64, ns_per_kib: u64| {
            let points = [0, 11, 23].map(|at| (size(at), 1000 * start_ns + size(at) * ns_per_kib * 1000 / 1024));
            Curve::through(&points).expect("three points that rise")
        };
        let mut costs = Costs::unknown();
        for kind in PeerKind::ALL.into_iter().filter(|kind| *kind != PeerKind::Datagrams) {
            costs.set(kind, Protocol::Eager, curve(200, 120));
            costs.set(kind, Protocol::Read, curve(1100, 55));
            costs.set(kind, Protocol::Cooperative, curve(3800, 28));
            costs.set(kind, Protocol::Pipelined, curve(400, 120));
        }
        costs.measured = false;
        costs
    }

    /// Costs by which `protocol` is chosen wherever it applies. For tests, and to measure that protocol alone.
    pub fn preferring(protocol: Protocol) -> Costs {
        let mut costs = Costs::assumed();
        for kind in PeerKind::ALL {
            costs.set(kind, protocol, Curve { ps: [1; SIZES] });
        }
        costs
    }

    pub fn curve(&self, kind: PeerKind, protocol: Protocol) -> Option<&Curve> {
        self.curves[kind as usize][protocol as usize].as_ref()
    }

    pub fn set(&mut self, kind: PeerKind, protocol: Protocol, curve: Curve) {
        self.curves[kind as usize][protocol as usize] = Some(curve);
        self.measured = true;
    }

    /// Whether it was measured, not assumed.
    pub fn measured(&self) -> bool {
        self.measured
    }

    /// What a message of `bytes` costs, ps. `None` where that is not known.
    pub fn expected_ps(&self, kind: PeerKind, protocol: Protocol, bytes: u64) -> Option<u64> {
        self.curve(kind, protocol).map(|curve| curve.at(bytes))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn sizes_and_their_numbers_agree() {
        for at in 0..SIZES {
            assert_eq!(size_below(size(at)), at);
            assert_eq!(size_below(size(at) + size(at) / 2), at);
        }
        assert_eq!(size(SIZES - 1), 4 << 20);
        assert_eq!(size_below(u64::MAX), SIZES - 1);
    }

    #[test]
    fn curves_that_fall_or_stand_still_in_time_are_refused() {
        let mut ps = [5; SIZES];
        assert!(Curve::new(ps).is_some());
        ps[3] = 6;
        assert_eq!(Curve::new(ps), None);
        assert_eq!(Curve::new([0; SIZES]), None);
        assert_eq!(Curve::new([PS_MAX + 1; SIZES]), None);
        for points in [&[][..], &[(1, 1), (1, 2)], &[(2, 1), (1, 2)], &[(1, 0)], &[(1, PS_MAX + 1)]] {
            assert_eq!(Curve::through(points), None);
        }
    }

    #[test]
    fn what_is_assumed_prefers_reading_short_messages_and_sharing_long_ones() {
        let costs = Costs::default();
        let at = |protocol, bytes| costs.expected_ps(PeerKind::SharedCache, protocol, bytes).unwrap();
        assert!(at(Protocol::Read, 64 << 10) < at(Protocol::Cooperative, 64 << 10));
        assert!(at(Protocol::Cooperative, 256 << 10) < at(Protocol::Read, 256 << 10));
        assert!(!costs.measured());
    }

    proptest! {
        /// Whatever was measured: a curve never falls, meets undisturbed points exactly, and has a time for any length.
        #[test]
        fn a_curve_never_falls_and_never_exceeds_what_was_measured(times in prop::collection::vec(1..=PS_MAX, 1..SIZES), first in 0..4usize, bytes: u64) {
            let points: Vec<(u64, u64)> = times.iter().zip(first..SIZES).map(|(ps, at)| (size(at), *ps)).collect();
            let curve = Curve::through(&points).unwrap();
            prop_assert!(curve.ps().is_sorted());
            for (size, ps) in &points {
                prop_assert!(curve.at(*size) <= *ps);
                let undisturbed = points.iter().filter(|(larger, _)| larger > size).all(|(_, later)| later >= ps);
                prop_assert!(!undisturbed || curve.at(*size) == *ps);
            }
            let at = curve.at(bytes);
            prop_assert!(at >= curve.at(0));
            prop_assert!(bytes == u64::MAX || curve.at(bytes + 1) >= at);
        }
    }
}
