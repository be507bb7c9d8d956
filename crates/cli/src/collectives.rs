//! Which way does each collective go? The tables of `whimbrel info --collectives`.

use crate::costs::{bytes, table};
use crate::topology;
use mpi::call::Form;
use mpi::coll::Tuning;
use mpi::collective::ways::{LISTED, Place, longest_later, name, rows};
use mpi::later::CALLS_BEFORE;
use std::fmt::Write;

/// Numbers of ranks that are listed.
const RANKS: [usize; 5] = [2, 4, 16, 64, 1024];

/// Ranks of each host in the last of its tables.
const EACH: usize = 4;

/// What `whimbrel info --collectives` prints: for each collective, number of ranks and length the way that a blocking call takes, and why.
///
/// Errors: a parameter does not parse.
pub fn collectives() -> Result<String, String> {
    let refused = |error: params::Error| error.to_string();
    let (slots, reproducible) = (params::COLLECTIVE_SLOTS.value().map_err(refused)?, params::REPRODUCIBLE.value().map_err(refused)?);
    let (lending, reads) = (params::COLLECTIVE_LENDING.value().map_err(refused)?, params::SINGLE_COPY.value().map_err(refused)?);
    let (mut tuning, processors) = (Tuning::of(reproducible), topology::processors());
    let forced = params::ALGORITHMS.value().map_err(refused)?;
    tuning.force_all(forced.as_ref()).map_err(|why| format!("{}ALGORITHMS: {why}", params::PREFIX))?;
    let switch = |name, on| format!("{}{name} is {}", params::PREFIX, if on { "on" } else { "off" });
    let mut out = format!("{}, {}\n", switch("COLLECTIVE_SLOTS", slots), switch("REPRODUCIBLE", reproducible));
    let _ = writeln!(out, "{}ALGORITHMS forces some of these, which go by messages then:", params::PREFIX);
    for (collective, algorithms) in Tuning::list() {
        let _ = writeln!(out, "  {collective}: {}", algorithms.iter().map(|(name, _)| *name).collect::<Vec<_>>().join(", "));
    }
    let _ = writeln!(out, "Blocking calls first; persistent ones go by messages. Lengths by powers of two; memory in one piece.");
    let _ = writeln!(out, "A communicator has slots for what is longer than a line from its ninth blocking collective on.");
    let places = [
        (true, 1, format!("all ranks on this host, {processors} processors")),
        (false, 1, "ranks on several hosts, one on each".to_owned()),
        (false, EACH, format!("ranks on several hosts, {EACH} on each, one after the other")),
    ];
    for (together, each, title) in places {
        let mut table = table(&["collective", "ranks", "bytes of a", "from", "to", "way", "why"], 3..5);
        for (kind, of) in LISTED {
            for ranks in RANKS.into_iter().filter(|ranks| together || *ranks > each) {
                let place = Place { ranks, together, each, crowded: together && ranks > processors as usize, lending: lending != "off" && reads };
                for row in rows(kind, place, &tuning, slots) {
                    let (from, to) = if of == "-" { (String::new(), String::new()) } else { (bytes(row.from as u64), bytes(row.to as u64)) };
                    table.add_row([name(kind, Form::Blocking), ranks.to_string(), of.to_owned(), from, to, row.way.to_owned(), row.why]);
                }
            }
        }
        let _ = writeln!(out, "\n{title}\n{}", table.trim_fmt());
    }
    let _ =
        writeln!(out, "\nNonblocking calls go by messages, but on one host through slots of their own from the {}th of a communicator on", CALLS_BEFORE + 2);
    let mut table = table(&["collective", "ranks", "bytes of a", "up to"], 3..4);
    for (kind, of) in LISTED {
        for (ranks, longest) in RANKS.into_iter().filter_map(|ranks| Some((ranks, longest_later(kind, ranks).filter(|_| slots)?))) {
            let longest = if of == "-" { String::new() } else { bytes(longest as u64) };
            table.add_row([name(kind, Form::Nonblocking), ranks.to_string(), of.to_owned(), longest]);
        }
    }
    let _ = writeln!(out, "{}", table.trim_fmt());
    Ok(out)
}
