//! What do messages over RDMA devices cost? The figures of papers 001 (part 2, Figs. 5 to 9), 002 (Figs. 13 and 14) and 003 (Figs. 2 to 8): measured over
//! this machine's RDMA device, where it has one that can be used, and on the model of papers' and of today's adapters. Each table and plot says which.
//!
//! | module | question |
//! | --- | --- |
//! | [`device`] | What is measured here? |
//! | [`perftest`] | What does the device do without an MPI library? |
//! | [`model`] | What does the model say? |
//! | [`thresholds`] | Which way of a message is the cheapest from which length or number on: as found by measuring, and as reckoned? |

mod device;
mod model;
mod perftest;
mod thresholds;

use super::library::Subject;
use super::rounds::Session;
use super::{Findings, chart::Chart};

/// The RDMA port that is measured.
pub struct Port {
    /// As `rxe0 port 1`.
    pub name: String,
    /// As `whimbrel info --fabrics` has it.
    facts: String,
    /// Not of iWARP.
    has_datagrams: bool,
}

/// Messages over connections: long ones in pieces with two copies; written, with and without a cache of registrations; and read. Messages in datagrams, with
/// an authenticator, and with a checksum instead.
const PIECES: &str = "RC in pieces";
const WRITE_EACH: &str = "RC, write, no cache";
const WRITE: &str = "RC, write";
const READ: &str = "RC";
const DATAGRAMS: &str = "UD";
const CHECKSUM: &str = "UD, checksum";

const CONNECTED: (&str, &str) = ("WHIMBREL_VERBS", "rc");
const WRITES: (&str, &str) = ("WHIMBREL_VERBS_RENDEZVOUS", "write");
const UNCONNECTED: (&str, &str) = ("WHIMBREL_VERBS", "ud");
const WAYS: [(&str, &[(&str, &str)]); 6] = [
    (PIECES, &[CONNECTED, ("WHIMBREL_VERBS_RENDEZVOUS", "pieces")]),
    (WRITE_EACH, &[CONNECTED, WRITES, ("WHIMBREL_REGISTERED_MAX", "0")]),
    (WRITE, &[CONNECTED, WRITES]),
    (READ, &[CONNECTED, ("WHIMBREL_VERBS_RENDEZVOUS", "read")]),
    (DATAGRAMS, &[UNCONNECTED]),
    (CHECKSUM, &[UNCONNECTED, ("WHIMBREL_PROTECTION", "crc")]),
];

/// The port that connections would use; `None` where there is none.
///
/// Errors: a parameter has a value that is none of its own.
pub fn port() -> Result<Option<Port>, String> {
    let reports = engine::fabrics().map_err(|error| error.to_string())?;
    let ports = reports.iter().flat_map(|report| report.usable_ports());
    let mut ports: Vec<Port> =
        ports.map(|(name, facts)| Port { name: name.to_owned(), facts: facts.to_owned(), has_datagrams: !facts.starts_with("iWARP") }).collect();
    // As the library chooses.
    ports.sort_by_key(|port| !port.has_datagrams);
    Ok(ports.into_iter().next())
}

/// Our library in each of the ways that the port has.
pub fn subjects(ours: &Subject, port: &Port) -> Vec<Subject> {
    let fabric = ("WHIMBREL_FABRIC", "verbs");
    let named = |(name, set): &(&str, &[(&str, &str)])| {
        let variables = set.iter().chain([&fabric]).map(|&(name, value)| (name.to_owned(), value.to_owned()));
        ours.with(name, variables)
    };
    WAYS.iter().filter(|(_, set)| port.has_datagrams || set.contains(&CONNECTED)).map(named).collect()
}

/// Runs the experiment, over the port where there is one.
///
/// Errors: none of its own; runs that fail are told by the session.
pub fn run(session: &mut Session, port: Option<&Port>) -> Result<Findings, String> {
    let mut found = Findings::default();
    match port {
        Some(port) => device::run(session, port, &mut found)?,
        None => {
            found.notes.push("No RDMA port can be used here (`whimbrel info --fabrics` says why): what follows is the model's alone.".to_owned());
        }
    }
    model::run(session.options, &mut found);
    thresholds::run(&mut found);
    Ok(found)
}

/// Adds findings with a word for where they are from: to titles of tables and panels, and to names of plots.
fn add(found: &mut Findings, part: Findings, paper: &str, source: &str) {
    let short = if source == MODEL { "model" } else { "measured" };
    found.tables.extend(part.tables.into_iter().map(|(title, table)| (format!("{source}: {title} (paper {paper})"), table)));
    found.notes.extend(part.notes);
    for (name, Chart { columns, panels }) in part.charts {
        let panels = panels.into_iter().map(|panel| super::chart::Panel { title: format!("{} ({source})", panel.title), ..panel });
        found.charts.push((format!("rdma-{short}-{paper}-{name}"), Chart { columns, panels: panels.collect() }));
    }
    for mut row in part.rows {
        if let Some(row) = row.as_object_mut() {
            row.insert("paper".to_owned(), paper.into());
            row.insert("model".to_owned(), (source == MODEL).into());
            row.insert("source".to_owned(), source.into());
        }
        found.rows.push(row);
    }
}

/// What is said of figures that were not measured.
const MODEL: &str = "model";

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::options::Options;
    use serde_json::json;

    #[test]
    fn what_was_found_says_where() {
        let part = || Findings { tables: vec![("Bandwidth".to_owned(), Default::default())], rows: vec![json!({ "mb_s": 1 })], ..Findings::default() };
        let mut found = Findings::default();
        add(&mut found, part(), "003", "measured on rxe0 port 1");
        add(&mut found, part(), "003", MODEL);
        assert_eq!(found.tables[0].0, "measured on rxe0 port 1: Bandwidth (paper 003)");
        assert_eq!((found.rows[0]["model"].as_bool(), found.rows[1]["model"].as_bool()), (Some(false), Some(true)));
    }

    #[test]
    fn without_a_device_all_is_the_model() {
        let options = Options { quick: true, rounds: 1, ..Options::default() };
        let mut session = Session::new(&options, &[]);
        let found = run(&mut session, None).unwrap();
        assert!(found.tables.iter().all(|(title, _)| title.starts_with("model: ")), "{:?}", found.tables.iter().map(|it| &it.0).collect::<Vec<_>>());
        let titles = found.charts.iter().flat_map(|(_, chart)| &chart.panels).map(|panel| &panel.title);
        assert!(titles.clone().count() > 10 && titles.clone().all(|title| title.ends_with("(model)")));
        assert!(found.rows.iter().all(|row| row["model"] == true), "{:?}", found.rows);
        assert!(found.notes[0].starts_with("No RDMA port"));
    }
}
