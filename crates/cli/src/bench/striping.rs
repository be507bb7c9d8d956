//! Do several sockets, or several rails, carry more than one? (Paper 003 §4, Fig. 2.)

use super::chart::{Chart, Panel, Series, Shape};
use super::hosts::{self, HostPlan};
use super::lines::Line;
use super::rounds::{Plan, Session, Who};
use super::statistics::median;
use super::{Findings, size_label, table, told};
use serde_json::json;
use std::collections::BTreeMap;

const SIZES: [u64; 5] = [4 << 10, 16 << 10, 64 << 10, 256 << 10, 1 << 20];
const SIZES_QUICK: [u64; 2] = [16 << 10, 1 << 20];
/// Sockets of an address, at most.
pub const SOCKETS_MAX: u32 = 4;
/// Each way of a rail: less than the processors can do, so that the rail is what limits.
const RAIL_MB_S: f64 = 40.0;
const RAIL_BYTES: u64 = 1 << 20;

/// What the variant with so many sockets is called.
pub fn sockets(count: u32) -> String {
    if count == 1 { "1 socket".to_owned() } else { format!("{count} sockets") }
}

/// Runs the experiment.
///
/// Errors: hosts of our own could neither be made nor said to be impossible.
pub fn run(session: &mut Session) -> Result<Findings, String> {
    let options = session.options;
    let own = if options.quick { SIZES_QUICK.to_vec() } else { SIZES.to_vec() };
    let sizes = if options.sizes.is_empty() { own } else { options.sizes.clone() };
    let list: Vec<String> = sizes.iter().map(u64::to_string).collect();
    let budget = format!("budget_ms={}", if options.quick { 100 } else { 400 });
    session.measure(&[Plan {
        name: "sockets".to_owned(),
        program: "network/pair",
        ranks: 2,
        args: vec![format!("bytes={}", list.join(",")), "window=32".to_owned(), "latency=0".to_owned(), budget.clone()],
        who: Who::All,
    }]);
    let mut found = Findings::default();
    over_sockets(session, &sizes, &mut found);

    let plan = |rails: u8| HostPlan {
        name: format!("rails: {rails}"),
        program: "network/pair",
        args: vec![format!("bytes={RAIL_BYTES}"), "window=8".to_owned(), "latency=0".to_owned(), budget.clone()],
        rails: (0..rails).collect(),
        wire: BTreeMap::from([("rate_mb_s", RAIL_MB_S)]),
    };
    // More sockets change nothing about the rails.
    session.left_out = (0..session.subjects.len()).filter(|&at| (1..SOCKETS_MAX as usize).contains(&at)).collect();
    match hosts::measure(session, &[plan(1), plan(2)])? {
        Some(why) => found.notes.push(format!("rails skipped: {why}")),
        None => over_rails(session, &mut found),
    }
    Ok(found)
}

/// Each round's bandwidth; NaN where it failed.
fn mb_s(session: &Session, subject: usize, plan: &str, bytes: u64) -> Vec<f64> {
    let name = &session.subjects[subject].name;
    let mut values = vec![f64::NAN; session.options.rounds];
    for sample in session.samples.iter().filter(|it| it.library == *name && it.plan == plan) {
        if let Line::Goodput(line) = &sample.line
            && line.bytes == bytes
        {
            values[sample.round] = line.mb_s;
        }
    }
    values
}

fn over_sockets(session: &Session, sizes: &[u64], found: &mut Findings) {
    let names = session.subjects.iter().map(|subject| subject.name.clone());
    let mut table = table(std::iter::once("size".to_owned()).chain(names.clone()).collect(), 1);
    let mut series: Vec<Series> = names.map(|name| Series { name, points: Vec::new() }).collect();
    for (place, &bytes) in sizes.iter().enumerate() {
        let mut row = vec![size_label(bytes)];
        for (at, subject) in session.subjects.iter().enumerate() {
            let rounds = mb_s(session, at, "sockets", bytes);
            let value = median(&rounds);
            row.push(told(value, 0));
            series[at].points.push((place as f64, value));
            let sockets = subject.ours.then_some(at + 1);
            found.rows.push(json!({
                "figure": "2", "over": "sockets", "bytes": bytes, "library": subject.name, "sockets": sockets, "mb_s": value,
                "rounds": rounds,
            }));
        }
        table.add_row(row);
    }
    found.tables.push(("Bandwidth over the sockets of one address (loopback), MB/s, median of the rounds; peers over TCP".to_owned(), table));
    found.notes.push(
        "Paper: a device works on several queues at once; four are near the best, and more receiving queues gain nothing. Sockets of loopback\n\
         have no device behind them: the sender's core does all the work of the way."
            .to_owned(),
    );
    let panel = Panel {
        title: "Bandwidth over the sockets of an address".to_owned(),
        x_label: "message size".to_owned(),
        y_label: "MB/s".to_owned(),
        categories: sizes.iter().map(|&bytes| size_label(bytes)).collect(),
        series,
        shape: Shape::Bars,
    };
    found.charts.push(("striping-fig2".to_owned(), Chart { columns: 1, panels: vec![panel] }));
}

fn over_rails(session: &Session, found: &mut Findings) {
    let headings = ["library", "1 rail MB/s", "2 rails MB/s", "ratio"];
    let mut table = table(headings.map(str::to_owned).to_vec(), 1);
    let here: Vec<(usize, &str)> = session
        .subjects
        .iter()
        .enumerate()
        .filter(|(at, _)| !session.left_out.contains(at))
        .map(|(at, subject)| (at, if subject.ours { super::library::WHIMBREL } else { subject.name.as_str() }))
        .collect();
    let mut series = [1, 2].map(|rails| Series { name: format!("{rails} rail{}", if rails == 1 { "" } else { "s" }), points: Vec::new() });
    for (place, &(at, name)) in here.iter().enumerate() {
        let [one, two] = [1, 2].map(|rails| median(&mb_s(session, at, &format!("rails: {rails}"), RAIL_BYTES)));
        table.add_row(vec![name.to_owned(), told(one, 0), told(two, 0), format!("{:.2}", two / one)]);
        for (rails, value) in [one, two].into_iter().enumerate() {
            series[rails].points.push((place as f64, value));
            found.rows.push(json!({
                "over": "rails", "bytes": RAIL_BYTES, "library": name, "rails": rails + 1, "mb_s": value, "rail_mb_s": RAIL_MB_S,
            }));
        }
    }
    found.tables.push((format!("Bandwidth over rails of {RAIL_MB_S} MB/s each between two hosts, 1 MiB messages"), table));
    let panel = Panel {
        title: format!("Bandwidth over rails of {RAIL_MB_S} MB/s"),
        x_label: String::new(),
        y_label: "MB/s".to_owned(),
        categories: here.iter().map(|(_, name)| (*name).to_owned()).collect(),
        series: series.to_vec(),
        shape: Shape::Bars,
    };
    found.charts.push(("striping-rails".to_owned(), Chart { columns: 1, panels: vec![panel] }));
}
