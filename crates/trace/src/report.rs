//! In plain words, what the library did.

use crate::{Counters, DATA_PATHS, SIZE_CLASSES, Tally, class_range};
use std::fmt::Write;

/// What the report knows besides counters.
pub struct Summary {
    pub ranks: usize,
    /// From initialization to finalization, ns, the longest of all ranks.
    pub elapsed_ns: u64,
    /// Shared memory reserved, bytes, largest of all ranks.
    pub shared_bytes_max: u64,
}

/// What became of the announcements (RTRs) of the receives of one envelope.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Announcements {
    pub context: u64,
    /// Rank in the communicator; `None`: any source.
    pub source: Option<u32>,
    pub tags: Tags,
    /// Announcements that were used and those in vain, of which so many were void.
    pub used: u64,
    pub in_vain: u64,
    pub voided: u64,
    /// Receives that were not announced because of a pause, and pauses.
    pub suppressed: u64,
    pub pauses: u64,
}

/// The tags of an envelope.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Tags {
    One(i32),
    Any,
    /// All that had not been seen yet.
    New,
}

impl Announcements {
    /// Words of one envelope.
    pub const WORDS: usize = 9;

    /// Receives that were announced, or would have been without a pause.
    pub fn receives(&self) -> u64 {
        self.used + self.in_vain + self.suppressed
    }

    /// As words, for sending to the rank that prints.
    pub fn to_words(&self) -> [u64; Announcements::WORDS] {
        let (kind, tag) = match self.tags {
            Tags::One(tag) => (0, tag as u32 as u64),
            Tags::Any => (1, 0),
            Tags::New => (2, 0),
        };
        let source = self.source.map_or(u64::MAX, u64::from);
        [self.context, source, kind, tag, self.used, self.in_vain, self.voided, self.suppressed, self.pauses]
    }

    /// The other way round. `None` when the words are none of [`Announcements::to_words`].
    pub fn from_words(words: &[u64]) -> Option<Announcements> {
        let &[context, source, kind, tag, used, in_vain, voided, suppressed, pauses] = words else { return None };
        let tags = match kind {
            0 => Tags::One(u32::try_from(tag).ok()? as i32),
            1 => Tags::Any,
            2 => Tags::New,
            _ => return None,
        };
        Some(Announcements { context, source: u32::try_from(source).ok(), tags, used, in_vain, voided, suppressed, pauses })
    }
}

/// The report's lines about the envelopes of `rank`.
pub fn report_envelopes(rank: usize, envelopes: &[Announcements]) -> String {
    let mut out = String::new();
    for it in envelopes {
        let source = it.source.map_or("any source".to_owned(), |source| format!("source {source}"));
        let tags = match it.tags {
            Tags::One(tag) => format!("tag {tag}"),
            Tags::Any => "any tag".to_owned(),
            Tags::New => "tags seen first".to_owned(),
        };
        let _ = writeln!(
            out,
            "  rank {rank}, context {:#x}, {source}, {tags}: {} announcements used, {} in vain, {} of them void; {} pauses for {} receives",
            it.context, it.used, it.in_vain, it.voided, it.pauses, it.suppressed
        );
    }
    out
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
    for (path, name) in DATA_PATHS {
        for class in 0..SIZE_CLASSES {
            let sum = all
                .iter()
                .map(|c| c.received[path as usize][class])
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
        let _ = writeln!(
            out,
            "  announcing paused {} times, for {} receives; {} announcements were void when their senders saw them, or were taken back",
            sum(|c| c.rtr_pauses),
            sum(|c| c.rtr_suppressed),
            sum(|c| c.rtr_voided)
        );
    }
    let by = [sum(|c| c.collectives_by_slots), sum(|c| c.collectives_by_lines), sum(|c| c.collectives_by_messages)];
    if by != [0; 3] {
        let _ = writeln!(out, "  collectives, on all ranks together: {} through slots, {} through lines, {} by messages", by[0], by[1], by[2]);
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
    let mapped_bytes = sum(|c| c.mapped_bytes);
    if mapped_bytes > 0 {
        let _ = writeln!(out, "  {} were copied by load and store, from or to memory that both processes have mapped", size(mapped_bytes));
    }
    let [posted, withdrawn] = [sum(|c| c.request_lines_posted), sum(|c| c.request_lines_withdrawn)];
    if posted > 0 {
        let _ =
            writeln!(out, "  {posted} short one-sided calls asked a target that waited; {withdrawn} of these were not answered at once and went another way");
    }
    let most = |of: fn(&crate::Registrations) -> u64| all.iter().map(|c| of(&c.registrations)).max().unwrap_or(0);
    if most(|of| of.queue_pairs) > 0 {
        let (pool_bytes, pairs) = (most(|of| of.pool_bytes), most(|of| of.queue_pairs));
        let _ = writeln!(out, "  of RDMA devices a rank had at most {} of the library's own memory registered; queue pairs: {pairs}", size(pool_bytes));
    }
    if sum(|c| c.registrations.hits + c.registrations.made + c.registrations.refused) > 0 {
        let _ = writeln!(
            out,
            "  memory of messages was found registered {} times, registered {} times, and not to be registered {} times; at most {} were kept in a rank",
            sum(|c| c.registrations.hits),
            sum(|c| c.registrations.made),
            sum(|c| c.registrations.refused),
            size(most(|of| of.kept_bytes_most))
        );
        let _ = writeln!(
            out,
            "  registrations were given up {} times for room and {} times since their memory had changed; {} were used once only",
            sum(|c| c.registrations.evicted),
            sum(|c| c.registrations.invalidated),
            sum(|c| c.registrations.unpaid)
        );
        let _ = writeln!(
            out,
            "  {} short messages ({}) left from buffers that are used often, without a copy; {} pieces of long ones were registered while they were under way",
            sum(|c| c.registrations.in_place),
            size(sum(|c| c.registrations.in_place_bytes)),
            sum(|c| c.registrations.overlapped)
        );
    }
    if sum(|c| c.connections.made + c.connections.broken) > 0 {
        let _ = writeln!(
            out,
            "  connections were made {} times, given back {} times and broken {} times, after which {} messages were sent again",
            sum(|c| c.connections.made),
            sum(|c| c.connections.given_back),
            sum(|c| c.connections.broken),
            sum(|c| c.connections.resent)
        );
    }
    let _ = writeln!(out, "  shared memory: at most {} in a rank", size(summary.shared_bytes_max));
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::DataPath;

    #[test]
    fn envelopes_survive_and_are_told() {
        let one = Announcements { context: 16, source: Some(3), tags: Tags::One(-7), used: 1, in_vain: 2, voided: 1, suppressed: 40, pauses: 1 };
        for it in [one, Announcements { source: None, tags: Tags::Any, ..one }, Announcements { tags: Tags::New, ..one }] {
            assert_eq!(Announcements::from_words(&it.to_words()), Some(it));
        }
        assert_eq!((Announcements::from_words(&[0; 8]), Announcements::from_words(&[0, 0, 3, 0, 0, 0, 0, 0, 0])), (None, None));
        let told = report_envelopes(5, &[one]);
        assert_eq!(told, "  rank 5, context 0x10, source 3, tag -7: 1 announcements used, 2 in vain, 1 of them void; 1 pauses for 40 receives\n");
    }

    #[test]
    fn says_what_was_counted() {
        let mut a = Counters::default();
        a.received(DataPath::Inline, 8);
        a.received(DataPath::Cooperative, 1 << 20);
        let mut b = Counters { waiting_ns: 500_000_000, collectives_by_slots: 5, collectives_by_messages: 2, ..Default::default() };
        b.received(DataPath::Inline, 8);
        let text = report(&[a, b], &Summary { ranks: 2, elapsed_ns: 1_000_000_000, shared_bytes_max: 300_000 });
        assert!(text.contains("eager, one cache line        1 to 15 B                       2         16 B"), "{text}");
        assert!(text.contains("rendezvous, both copy        1.0 MiB to 16.0 MiB             1      1.0 MiB"), "{text}");
        assert!(!text.contains("mapped"), "{text}");
        let registrations = crate::Registrations { hits: 41, made: 2, in_place: 40, in_place_bytes: 40 << 10, ..Default::default() };
        let registrations = crate::Registrations { pool_bytes: 2 << 20, queue_pairs: 3, ..registrations };
        let kept = report(&[Counters { registrations, ..Default::default() }], &Summary { ranks: 1, elapsed_ns: 1, shared_bytes_max: 0 });
        assert!(kept.contains("found registered 41 times, registered 2 times") && kept.contains("  40 short messages (40.0 KiB) left"), "{kept}");
        assert!(kept.contains("a rank had at most 2.0 MiB of the library's own memory registered; queue pairs: 3") && !text.contains("RDMA"), "{kept}");
        let connections = crate::Connections { made: 9, given_back: 5, broken: 2, resent: 31 };
        let made = report(&[Counters { connections, ..Default::default() }], &Summary { ranks: 1, elapsed_ns: 1, shared_bytes_max: 0 });
        assert!(made.contains("  connections were made 9 times, given back 5 times and broken 2 times, after which 31 messages were sent again"), "{made}");
        assert!(!text.contains("connections"), "{text}");
        let mapped = report(&[Counters { mapped_bytes: 1 << 20, ..Default::default() }], &Summary { ranks: 1, elapsed_ns: 1, shared_bytes_max: 0 });
        let asked = Counters { request_lines_posted: 12, request_lines_withdrawn: 3, ..Default::default() };
        let asked = report(&[asked], &Summary { ranks: 1, elapsed_ns: 1, shared_bytes_max: 0 });
        assert!(asked.contains("  12 short one-sided calls asked a target that waited; 3 of these were not answered"), "{asked}");
        assert!(mapped.contains("  1.0 MiB were copied by load and store,"), "{mapped}");
        assert!(text.contains("collectives, on all ranks together: 5 through slots, 0 through lines, 2 by messages"), "{text}");
        assert!(text.contains("0.500 s over all ranks (25.0 % of their time), most on rank 1"), "{text}");
    }
}
