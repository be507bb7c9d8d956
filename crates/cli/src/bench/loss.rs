//! What does a lost datagram cost? Goodput and latency between two hosts against the share of datagrams that are lost.

use super::chart::{Chart, Panel, Series, Shape};
use super::hosts::{self, HostPlan};
use super::lines::{Latency, Line};
use super::rounds::Session;
use super::statistics::median;
use super::{Findings, size_label, table, told};
use serde_json::json;
use std::collections::BTreeMap;

/// Percent.
const LOSSES: [f64; 4] = [0.0, 0.1, 1.0, 5.0];
const LOSSES_QUICK: [f64; 2] = [0.0, 1.0];
const BYTES: u64 = 64 << 10;
/// Messages of the stream under way: 2 MiB.
const WINDOW: u32 = 32;
/// Share of the lossless goodput that is wanted at each loss, percent.
const GOALS: [(f64, f64); 3] = [(0.1, 90.0), (1.0, 80.0), (5.0, 50.0)];

/// Runs the experiment.
///
/// Errors: hosts of our own could neither be made nor said to be impossible.
pub fn run(session: &mut Session) -> Result<Findings, String> {
    let options = session.options;
    let own = if options.quick { LOSSES_QUICK.to_vec() } else { LOSSES.to_vec() };
    let losses = if options.losses.is_empty() { own } else { options.losses.clone() };
    let bytes = options.sizes.first().copied().unwrap_or(BYTES);
    let plan = |&loss: &f64| HostPlan {
        name: name(loss),
        program: "network/pair",
        args: vec![format!("bytes={bytes}"), format!("window={WINDOW}"), format!("budget_ms={}", if options.quick { 200 } else { 1000 })],
        rails: vec![0],
        wire: BTreeMap::from([("loss", loss / 100.0)]),
    };
    let plans: Vec<HostPlan> = losses.iter().map(plan).collect();
    if let Some(why) = hosts::measure(session, &plans)? {
        let notes = vec![format!("skipped: {why}")];
        return Ok(Findings { notes, ..Findings::default() });
    }
    Ok(findings(session, &losses, bytes))
}

fn name(loss: f64) -> String {
    format!("{loss} % lost")
}

/// One number of each run of a library at a loss.
fn values(session: &Session, subject: usize, loss: f64, of: impl Fn(&Line) -> Option<f64>) -> Vec<f64> {
    let (library, plan) = (&session.subjects[subject].name, name(loss));
    let chosen = session.samples.iter().filter(|it| it.library == *library && it.plan == plan);
    chosen.filter_map(|it| of(&it.line)).collect()
}

fn findings(session: &Session, losses: &[f64], bytes: u64) -> Findings {
    let mut found = Findings::default();
    let headings = ["lost %", "library", "goodput MB/s", "of lossless %", "wanted %", "latency µs: median", "mean", "99 of 100", "longest"];
    let mut table = table(headings.map(str::to_owned).to_vec(), 2);
    let empty = || -> Vec<Series> { session.subjects.iter().map(|it| Series { name: it.name.clone(), points: Vec::new() }).collect() };
    let (mut goodputs, mut shares, mut means, mut tails) = (empty(), empty(), empty(), empty());
    for (place, &loss) in losses.iter().enumerate() {
        for (at, subject) in session.subjects.iter().enumerate() {
            let goodput = |loss: f64| {
                median(&values(session, at, loss, |line| match line {
                    Line::Goodput(line) => Some(line.mb_s),
                    _ => None,
                }))
            };
            let latency = |of: fn(&Latency) -> f64| {
                median(&values(session, at, loss, |line| match line {
                    Line::Latency(line) => Some(of(line)),
                    _ => None,
                }))
            };
            let (mb_s, lossless) = (goodput(loss), goodput(0.0));
            if mb_s.is_nan() {
                continue;
            }
            let share = mb_s / lossless * 100.0;
            let [middle, mean, p99, longest] = [latency(|it| it.median_us), latency(|it| it.mean_us), latency(|it| it.p99_us), latency(|it| it.longest_us)];
            let goal = GOALS.iter().find(|goal| goal.0 == loss && subject.ours).map(|goal| goal.1);
            table.add_row(vec![
                loss.to_string(),
                subject.name.clone(),
                format!("{mb_s:.1}"),
                told(share, 0),
                goal.map_or(String::new(), |goal| format!("{goal:.0}")),
                format!("{middle:.1}"),
                format!("{mean:.1}"),
                format!("{p99:.1}"),
                format!("{longest:.0}"),
            ]);
            for (series, value) in [(&mut goodputs, mb_s), (&mut shares, share), (&mut means, mean), (&mut tails, p99)] {
                series[at].points.push((place as f64, value));
            }
            found.rows.push(json!({
                "loss_percent": loss, "library": subject.name, "bytes": bytes, "goodput_mb_s": mb_s, "of_lossless_percent": share,
                "wanted_percent": goal, "latency_median_us": middle, "latency_mean_us": mean, "latency_p99_us": p99,
                "latency_longest_us": longest,
            }));
        }
    }
    found.tables.push((
        format!("Two hosts, one wire that loses datagrams both ways: stream of {} messages, half round trips of 8 B; median of the rounds", size_label(bytes)),
        table,
    ));
    found.notes.push(
        "All libraries pass the same forwarding process, one frame at a time, on this machine's processors: what goes without loss is what it can forward.\n\
         Peers over TCP, by the kernel's congestion control."
            .to_owned(),
    );
    let panel = |title: &str, y_label: &str, series: Vec<Series>| Panel {
        title: title.to_owned(),
        x_label: "datagrams lost, %".to_owned(),
        y_label: y_label.to_owned(),
        categories: losses.iter().map(f64::to_string).collect(),
        series,
        shape: Shape::Lines,
    };
    let panels = vec![
        panel("Goodput", "MB/s", goodputs),
        panel("Goodput over the lossless one", "%", shares),
        panel("Latency, mean", "µs", means),
        panel("Latency, 99 of 100", "µs", tails),
    ];
    found.charts.push(("loss".to_owned(), Chart { columns: 2, panels }));
    found
}
