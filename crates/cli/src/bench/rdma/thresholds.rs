//! From which length on is a rendezvous cheaper than copies, and from how many messages on a connection than datagrams? Found by measuring, as the library
//! finds such thresholds: times at powers of two become curves of [`proto::costs`], and these are compared. Beside it what arithmetic says is best.

use super::{MODEL, add};
use crate::bench::{Findings, size_label, table};
use proto::costs::{Costs, Curve, PeerKind, SIZES, size};
use proto::protocols::{self, Abilities, Protocol};
use serde_json::json;
use sim::rdma::{self, PLATFORMS, Platform, Registered, Way, one_way_ns, optimum};

/// Most that a threshold found may differ from the best one, percent.
const DIFFERENCE_MAX: f64 = 10.0;
/// Messages in which a connection must pay.
const MESSAGES_MAX: usize = 1 << 16;
/// Lengths of which a connection must pay, one datagram each.
const LENGTHS: [usize; 3] = [8, 256, 1024];

/// A threshold that was found by measuring, and the best one by arithmetic; in bytes or messages. `None`: the first way is the cheaper one for all.
struct Threshold {
    what: String,
    unit: &'static str,
    found: Option<f64>,
    best: Option<f64>,
    /// The length that the library takes, a power of two.
    taken: Option<u64>,
}

impl Threshold {
    /// Percent; `None` where both say that there is none.
    fn difference(&self) -> Option<f64> {
        match (self.found, self.best) {
            (None, None) => None,
            (Some(found), Some(best)) => Some((found / best - 1.0) * 100.0),
            _ => Some(f64::INFINITY),
        }
    }
}

fn curve(platform: &Platform, way: Way) -> Curve {
    let points: Vec<(u64, u64)> = (1..SIZES).map(size).map(|bytes| (bytes, (one_way_ns(platform, way, bytes as usize) * 1e3) as u64)).collect();
    Curve::through(&points).expect("times that rise")
}

/// The longest message that takes no longer along `short` than along `long`; `None` where no length of a curve does.
fn crossing(short: &Curve, long: &Curve) -> Option<u64> {
    let (mut low, mut high) = (0, size(SIZES - 1));
    let is_cheaper = |bytes: u64| short.at(bytes) <= long.at(bytes);
    if is_cheaper(high) {
        return None;
    }
    while high - low > 1 {
        let middle = low + (high - low) / 2;
        if is_cheaper(middle) { low = middle } else { high = middle }
    }
    Some(low)
}

fn thresholds(platform: &Platform) -> Vec<Threshold> {
    let eager = curve(platform, Way::Eager);
    let lengths = [("written", Way::Write as fn(Registered) -> Way, true), ("read", Way::Read, false)].into_iter().flat_map(|(word, way, writes)| {
        let both = [(Registered::Before, "registered before"), (Registered::EachTime, "registered each time")];
        both.map(|(registered, when)| (format!("eager or {word}, {when}"), way(registered), writes, registered))
    });
    let mut all: Vec<Threshold> = lengths
        .map(|(what, way, writes, registered)| {
            let other = curve(platform, way);
            let mut costs = Costs::unknown();
            costs.set(PeerKind::Datagrams, Protocol::Eager, eager);
            costs.set(PeerKind::Datagrams, Protocol::Read, other);
            let abilities = Abilities { remote_read: true, cooperative_copy: false };
            let taken = protocols::eager_bytes_max(&abilities, &costs, PeerKind::Datagrams, false, 1, size(SIZES - 1));
            let found = crossing(&eager, &other).map(|bytes| bytes as f64);
            Threshold { what, unit: "B", found, best: optimum::eager_bytes_max(platform, writes, registered), taken }
        })
        .collect();
    all.extend(LENGTHS.map(|bytes| Threshold {
        what: format!("datagrams or a connection, messages of {}", size_label(bytes as u64)),
        unit: "messages",
        found: rdma::messages_until_connection_pays(platform, bytes, Way::Eager, MESSAGES_MAX).map(|count| count as f64),
        best: optimum::messages_until_connection_pays(platform, bytes),
        taken: None,
    }));
    all
}

pub fn run(found: &mut Findings) {
    let mut part = Findings::default();
    let headings = ["adapter", "between", "found", "best", "", "difference %", "the library's"];
    let mut table = table(headings.map(str::to_owned).to_vec(), 2);
    let mut good = true;
    for platform in &PLATFORMS {
        for it in thresholds(platform) {
            let number = |value: Option<f64>| value.map_or("never".to_owned(), |value| format!("{value:.0}"));
            let difference = it.difference();
            good &= difference.is_none_or(|percent| percent.abs() <= DIFFERENCE_MAX);
            table.add_row([
                platform.device.name.to_owned(),
                it.what.clone(),
                number(it.found),
                number(it.best),
                it.unit.to_owned(),
                difference.map_or(String::new(), |percent| format!("{percent:+.1}")),
                it.taken.map_or(String::new(), size_label),
            ]);
            part.rows.push(json!({
                "threshold": it.what, "adapter": platform.device.name, "unit": it.unit, "found": it.found, "best": it.best, "taken_bytes": it.taken,
            }));
        }
    }
    part.tables.push(("Thresholds: as found by measuring on the model packet by packet, and the best ones by arithmetic".to_owned(), table));
    part.notes.push(format!(
        "Thresholds within {DIFFERENCE_MAX} % of the best ones: {}. never: the first way is cheaper for all. the library's: the power of two that its choice\n\
         takes from the curves, the longest message that goes with its header.",
        if good { "yes" } else { "no" }
    ));
    add(found, part, "001, 003", MODEL);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn thresholds_that_are_measured_are_the_best_ones() {
        for platform in &PLATFORMS {
            let all = thresholds(platform);
            for it in &all {
                let difference = it.difference();
                assert!(
                    difference.is_none_or(|percent| percent.abs() <= DIFFERENCE_MAX),
                    "{}: {}: {:?}, {:?}",
                    platform.device.name,
                    it.what,
                    it.found,
                    it.best
                );
                // The choice has powers of two alone: the nearest ones below and above.
                if let (Some(found), Some(taken)) = (it.found, it.taken) {
                    assert!((found / 2.0..=found * 2.0).contains(&(taken as f64)), "{}: {}: {found}, {taken}", platform.device.name, it.what);
                }
            }
            assert!(all.iter().filter(|it| it.best.is_some()).count() >= 5, "{}", platform.device.name);
        }
        // Paper 001: what registers each time is worse than copies, whatever the length.
        let never = thresholds(&PLATFORMS[0]).iter().filter(|it| it.found.is_none() && it.best.is_none()).count();
        assert_eq!(never, 2);
    }
}
