//! What does a message cost on this machine, and how does it go? The tables of `whimbrel info --costs` and `--protocols`.

use comfy_table::{CellAlignment, Table, presets};
use engine::costs::measure::{Curves, measure};
use engine::costs::{self, EAGER_BYTES_MAX, Missing, Obtained, Origin, UNASKED_BYTES_MAX};
use memory::usage::{MessageCosts, Thresholds};
use proto::costs::{Costs, PeerKind, SIZES, size};
use proto::protocols::{self, Abilities, Limits, Protocol};
use std::fmt::Write;

/// Longest message that goes with its header by datagrams, and longest that is not pulled.
const DATAGRAM_EAGER_BYTES_MAX: u64 = proto::reliability::EAGER_BYTES_MAX as u64;

/// What is known of this machine, and how that came about.
enum Known {
    Costs(Box<Obtained>),
    /// In words, why nothing is.
    Nothing(String),
}

/// Runs `work` in a thread of its own, which it may bind to other processors.
fn apart<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> Result<T, String> {
    let thread = std::thread::Builder::new().spawn(work).map_err(|error| format!("a thread: {error}"))?;
    thread.join().map_err(|_| "measuring failed".to_owned())
}

fn obtain() -> Result<Known, String> {
    let Some(setting) = costs::setting()? else {
        return Ok(Known::Nothing("not measured: WHIMBREL_COSTS is off".to_owned()));
    };
    Ok(match apart(move || costs::obtain(&setting, true))? {
        Ok(obtained) => Known::Costs(Box::new(obtained)),
        Err(Missing::Busy) => Known::Nothing("not measured: another process is at it, or has found the cores busy within the last minute".to_owned()),
        Err(Missing::Unmeasurable) => Known::Nothing("not measured: there are no two cores, or they are busy".to_owned()),
    })
}

/// Where the costs are from, in lines.
fn origin(known: &Known) -> String {
    let obtained = match known {
        Known::Costs(obtained) => obtained,
        Known::Nothing(why) => return format!("costs      {why}; assumed\n"),
    };
    let mut out = format!("machine    {}\n", obtained.machine);
    let _ = match &obtained.origin {
        Origin::File(path) => writeln!(out, "costs      from {}", path.display()),
        Origin::Measured { left, before, took } => {
            let _ = writeln!(out, "costs      measured now, in {:.0} ms", took.as_secs_f64() * 1e3);
            if let Some(before) = before {
                let _ = writeln!(out, "file       {before} before");
            }
            match left {
                Ok(path) => writeln!(out, "file       left in {}", path.display()),
                Err(why) => writeln!(out, "file       none left: {why}"),
            }
        }
    };
    out
}

fn us(ps: Option<u64>) -> String {
    ps.map_or_else(|| "-".to_owned(), |ps| format!("{:.2}", ps as f64 / 1e6))
}

pub(crate) fn bytes(count: u64) -> String {
    match count {
        0..1024 => format!("{count} B"),
        1024..0x10_0000 => format!("{} KiB", count >> 10),
        _ => format!("{} MiB", count >> 20),
    }
}

pub(crate) fn table(headings: &[&str], numbers: std::ops::Range<usize>) -> Table {
    let mut table = Table::new();
    table.load_preset(presets::NOTHING).set_header(headings);
    for at in numbers {
        if let Some(column) = table.column_mut(at) {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    table
}

/// The kinds of peers that something is known of, with their names. What is assumed is so of all of them.
fn kinds(costs: &Costs, measured: bool) -> Vec<(PeerKind, &'static str)> {
    if !measured {
        return vec![(PeerKind::SharedCache, "any peer on shared memory")];
    }
    PeerKind::ALL.into_iter().filter(|kind| costs.curve(*kind, Protocol::Eager).is_some()).map(|kind| (kind, kind.name())).collect()
}

/// What `whimbrel info --costs` prints: for each kind of peer, size and protocol, the time of one message one way, µs.
///
/// Errors: a parameter does not parse.
pub fn costs() -> Result<String, String> {
    let known = obtain()?;
    let assumed = Costs::assumed();
    let costs = if let Known::Costs(obtained) = &known { &obtained.costs } else { &assumed };
    let mut out = origin(&known);
    let headings: Vec<&str> = ["size"].into_iter().chain(Protocol::ALL.map(Protocol::name)).collect();
    for (kind, name) in kinds(costs, matches!(known, Known::Costs(_))) {
        let mut table = table(&headings, 0..headings.len());
        for at in 0..SIZES {
            let cost = |protocol| us(costs.expected_ps(kind, protocol, size(at)));
            table.add_row([bytes(size(at))].into_iter().chain(Protocol::ALL.map(cost)));
        }
        let _ = writeln!(out, "\n{}: one message one way, us\n{}", name, table.trim_fmt());
    }
    if let Some((port, rows)) = engine::registration_costs().map_err(|error| error.to_string())? {
        let _ = writeln!(out, "\n{port}, connections: registering the buffer of a short message, ns\n{}", registering(&rows).trim_fmt());
    }
    Ok(out)
}

/// Table 2 of paper 000, and what it is made of: after how many messages the registration of a buffer has paid.
fn registering(rows: &[(usize, MessageCosts)]) -> Table {
    let headings = ["size", "register (R)", "copy (C)", "search (V)", "pays after n messages", "sent in place after"];
    let mut table = table(&headings, 0..headings.len());
    for (size, costs) in rows {
        let pays = costs.messages_to_pay();
        let words = |count: Option<u64>| count.map_or_else(|| "never".to_owned(), |count| count.to_string());
        let tried = Thresholds::new(*size, Thresholds::FRACTION_PERCENT, |_| pays).of(*size).map(u64::from);
        let ns = |ns: f64| format!("{ns:.0}");
        table.add_row([bytes(*size as u64), ns(costs.register_ns), ns(costs.copy_ns), ns(costs.search_ns), words(pays), words(tried)]);
    }
    table
}

/// What is seen now of each kind of peer, in the order of the topology.
fn seen(known: &Known) -> Result<Vec<(PeerKind, Curves)>, String> {
    let Known::Costs(obtained) = known else { return Ok(Vec::new()) };
    let pairs = obtained.topology.pairs();
    apart(move || pairs.into_iter().filter_map(|(kind, ours, theirs)| Some((kind, measure(&ours, &theirs)?))).collect())
}

/// What `whimbrel info --protocols` prints: how a message goes whose receiver waits for it, for each kind of peer and size.
///
/// Errors: a parameter does not parse.
pub fn protocols() -> Result<String, String> {
    let known = obtain()?;
    let seen = seen(&known)?;
    let assumed = Costs::assumed();
    let (costs, measured) = match &known {
        Known::Costs(obtained) => (&obtained.costs, true),
        Known::Nothing(_) => (&assumed, false),
    };
    let refused = |error: params::Error| error.to_string();
    let announced = params::SPECULATION.value().map_err(refused)? != "off";
    let abilities = Abilities { remote_read: params::SINGLE_COPY.value().map_err(refused)?, cooperative_copy: true };
    let (eager, set) = (params::EAGER_MAX.value().map_err(refused)? as u64, params::EAGER_MAX.is_set().map_err(refused)?);
    let both_wait_bytes_max = if set { 0 } else { params::UNEXPECTED_MAX.value().map_err(refused)? as u64 / 2 };
    let mut out = origin(&known);
    for (kind, name) in kinds(costs, measured) {
        let by_costs = protocols::eager_bytes_max(&abilities, costs, kind, announced, UNASKED_BYTES_MAX as u64, EAGER_BYTES_MAX);
        let limit = by_costs.filter(|_| measured && !set).unwrap_or(eager);
        let now = seen.iter().find(|(other, _)| *other == kind).map(|(_, curves)| curves);
        let mut table = table(&["size", "protocol", "expected", "seen", "why"], 0..1);
        for at in 2..4 {
            if let Some(column) = table.column_mut(at) {
                column.set_cell_alignment(CellAlignment::Right);
            }
        }
        for size in (0..SIZES).map(size) {
            let protocol = protocols::way(&abilities, costs, kind, announced, Limits { eager_bytes_max: limit, both_wait_bytes_max }, size);
            let why = match protocol {
                Protocol::Eager if size > limit && !measured => "both sides wait".to_owned(),
                Protocol::Eager if set => "WHIMBREL_EAGER_MAX is set".to_owned(),
                Protocol::Eager if !measured => "default of WHIMBREL_EAGER_MAX".to_owned(),
                Protocol::Eager if size <= UNASKED_BYTES_MAX as u64 => "on any machine".to_owned(),
                _ if !abilities.remote_read => "WHIMBREL_SINGLE_COPY is off".to_owned(),
                _ => {
                    let others = Protocol::ALL.into_iter().filter(|other| *other != protocol);
                    let costs: Vec<String> = others.map(|other| format!("{} {}", other.name(), us(costs.expected_ps(kind, other, size)))).collect();
                    costs.join(", ")
                }
            };
            let seen = now.and_then(|curves| curves[protocol as usize]).map(|curve| curve.at(size));
            let expected = costs.expected_ps(kind, protocol, size);
            table.add_row([bytes(size), protocol.name().to_owned(), us(expected), us(seen), why]);
        }
        let _ = writeln!(out, "\n{}: one message one way, us; both sides wait for it\n{}", name, table.trim_fmt());
    }
    let maps = params::MAP_MEMORY.value().map_err(refused)?;
    let mapped = match (abilities.remote_read, maps) {
        (false, _) => "WHIMBREL_SINGLE_COPY is off",
        (_, false) => "WHIMBREL_MAP_MEMORY is off",
        _ => "read, cooperative and announced go by load and store there; not measured",
    };
    let _ = writeln!(out, "\nmemory of MPI_Alloc_mem, or of a shared heap, that both ranks map, from 64 KiB on: {mapped}");
    let above = if announced { "announced by receivers that come first, else pulled" } else { "pulled" };
    let _ = writeln!(out, "\ndatagrams: not measured\n up to {} eager, above {above}: a fixed length", bytes(DATAGRAM_EAGER_BYTES_MAX));
    Ok(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_never_pays_is_said() {
        let costs = |copy_ns| MessageCosts { register_ns: 5000.0, copy_ns, search_ns: 40.0 };
        let text = registering(&[(256, costs(40.0)), (8192, costs(165.0))]).trim_fmt();
        let words: Vec<Vec<&str>> = text.lines().map(|line| line.split_whitespace().collect()).collect();
        assert_eq!(words[1], ["256", "B", "5000", "40", "40", "never", "never"]);
        // 5000 / 125 messages are not enough; a quarter of 41 is 10.
        assert_eq!(words[2], ["8", "KiB", "5000", "165", "40", "41", "10"]);
    }
}
