//! In plain words, what the library did.

use crate::{Counters, ROUTES, SIZE_CLASSES, Tally, class_range};
use std::fmt::Write;

/// What the report knows besides counters.
pub struct Summary {
    pub ranks: usize,
    /// From initialization to finalization, ns, the longest of all ranks.
    pub elapsed_ns: u64,
    /// Shared memory reserved, bytes, largest of all ranks.
    pub shared_bytes_max: u64,
}

fn size(bytes: u64) -> String {
    const UNITS: [&str; 5] = ["B", "KiB", "MiB", "GiB", "TiB"];
    let mut value = bytes as f64;
    let mut unit = 0;
    while value >= 1024.0 && unit + 1 < UNITS.len() {
        value /= 1024.0;
        unit += 1;
    }
    if unit == 0 { format!("{bytes} B") } else { format!("{value:.1} {}", UNITS[unit]) }
}

fn range(class: usize) -> String {
    match class_range(class) {
        (0, 0) => "0 B".into(),
        (low, u64::MAX) => format!("{} or more", size(low)),
        (low, high) if high < 1024 => format!("{low} to {high} B"),
        (low, high) => format!("{} to {}", size(low), size(high + 1)),
    }
}

/// The report over the counters of all ranks, several lines.
pub fn report(all: &[Counters], summary: &Summary) -> String {
    let mut out = String::new();
    let mut total = Tally::default();
    let seconds = summary.elapsed_ns as f64 / 1e9;
    let _ = writeln!(out, "whimbrel: {} ranks, {:.3} s between initialization and finalization", summary.ranks, seconds);
    let _ = writeln!(out, "  {:<28} {:<20} {:>12} {:>12}", "messages received", "size", "count", "bytes");
    for (route, name) in ROUTES {
        for class in 0..SIZE_CLASSES {
            let sum = all
                .iter()
                .map(|c| c.received[route as usize][class])
                .fold(Tally::default(), |a, t| Tally { messages: a.messages + t.messages, bytes: a.bytes + t.bytes });
            if sum.messages > 0 {
                let _ = writeln!(out, "  {:<28} {:<20} {:>12} {:>12}", name, range(class), sum.messages, size(sum.bytes));
                total.messages += sum.messages;
                total.bytes += sum.bytes;
            }
        }
    }
    let _ = writeln!(out, "  {:<28} {:<20} {:>12} {:>12}", "all", "", total.messages, size(total.bytes));
    let sum = |of: fn(&Counters) -> u64| all.iter().map(of).sum::<u64>();
    let unexpected = sum(|c| c.unexpected);
    let _ = writeln!(
        out,
        "  {} came before their receive was posted; {} went as a header for lack of credit, {} waited for room",
        unexpected,
        sum(|c| c.held_to_header),
        sum(|c| c.held_back)
    );
    if sum(|c| c.rtr_sent) > 0 {
        let _ = writeln!(
            out,
            "  {} receives were announced to their senders: {} used, {} crossed an offer, {} for messages that needed none",
            sum(|c| c.rtr_sent),
            sum(|c| c.rtr_used),
            sum(|c| c.rtr_crossed),
            sum(|c| c.rtr_mispredicted)
        );
    }
    let waiting = sum(|c| c.waiting_ns) as f64 / 1e9;
    let share = if seconds > 0.0 { 100.0 * waiting / (seconds * summary.ranks as f64) } else { 0.0 };
    let most = all.iter().enumerate().max_by_key(|(_, c)| c.waiting_ns).map_or((0, 0), |(r, c)| (r, c.waiting_ns));
    let _ = writeln!(
        out,
        "  time waiting: {waiting:.3} s over all ranks ({share:.1} % of their time), most on rank {} ({:.3} s); cores given away {} times, slept {} times",
        most.0,
        most.1 as f64 / 1e9,
        sum(|c| c.yields),
        sum(|c| c.sleeps)
    );
    let _ = writeln!(out, "  shared memory: at most {} in a rank", size(summary.shared_bytes_max));
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Route;

    #[test]
    fn says_what_was_counted() {
        let mut a = Counters::default();
        a.received(Route::Inline, 8);
        a.received(Route::Joint, 1 << 20);
        let mut b = Counters { waiting_ns: 500_000_000, ..Default::default() };
        b.received(Route::Inline, 8);
        let text = report(&[a, b], &Summary { ranks: 2, elapsed_ns: 1_000_000_000, shared_bytes_max: 300_000 });
        assert!(text.contains("eager, one cache line        1 to 15 B                       2         16 B"), "{text}");
        assert!(text.contains("rendezvous, both copy        1.0 MiB to 16.0 MiB             1      1.0 MiB"), "{text}");
        assert!(text.contains("0.500 s over all ranks (25.0 % of their time), most on rank 1"), "{text}");
    }
}
