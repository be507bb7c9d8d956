//! What does it cost when both sides speak at once, and how much more is said? (Paper 002 §4.4, Fig. 19.)

use super::chart::{Chart, Panel, Series, Shape};
use super::library::{OFF, ORDINARY, VARIANTS};
use super::lines::{Counters, Line};
use super::patterns;
use super::rounds::{Plan, Session, Who};
use super::statistics::{improvement, least, median, paired_improvement};
use super::{Findings, size_label, table};
use serde_json::json;

const SIZES: [u64; 9] = [8, 1 << 10, 4 << 10, 16 << 10, 64 << 10, 128 << 10, 256 << 10, 1 << 20, 4 << 20];
const SIZES_QUICK: [u64; 4] = [8, 4 << 10, 128 << 10, 1 << 20];

/// Runs the experiment.
///
/// Errors: none of its own; runs that fail are told by the session.
pub fn run(session: &mut Session) -> Result<Findings, String> {
    let options = session.options;
    let own = if options.quick { SIZES_QUICK.to_vec() } else { SIZES.to_vec() };
    let sizes = if options.sizes.is_empty() { own } else { options.sizes.clone() };
    let list: Vec<String> = sizes.iter().map(u64::to_string).collect();
    let mut plans = vec![Plan {
        name: "crossing".to_owned(),
        program: "overlap/crossing",
        ranks: 2,
        args: vec![format!("bytes={}", list.join(",")), format!("budget_ms={}", if options.quick { 60 } else { 150 })],
        who: Who::All,
    }];
    if super::ours(session.subjects).any(|(_, it)| speculates(&it.name)) {
        plans.extend(patterns::plans(options, &[0.0], 1, Who::Ours));
    }
    session.measure(&plans);
    let mut found = Findings::default();
    latency(session, &sizes, &mut found);
    volume(session, &mut found);
    Ok(found)
}

/// Whether a variant of our library announces anything.
fn speculates(name: &str) -> bool {
    VARIANTS.iter().any(|(known, _)| *known == name) && ![ORDINARY, OFF].contains(&name)
}

fn latency(session: &Session, sizes: &[u64], found: &mut Findings) {
    let subjects = session.subjects;
    let mut headings = vec!["size".to_owned(), format!("{} µs", subjects[0].name)];
    headings.extend(subjects[1..].iter().map(|it| if it.ours { format!("{}, overhead %", it.name) } else { format!("{} µs", it.name) }));
    headings.extend(super::ours(subjects).skip(1).map(|(_, it)| format!("{}: RTRs crossed", it.name)));
    headings.push("paper %".to_owned());
    let mut table = table(headings, 0);
    let mut series: Vec<Series> = super::ours(subjects).skip(1).map(|(_, it)| Series { name: it.name.clone(), points: Vec::new() }).collect();
    for (place, &bytes) in sizes.iter().enumerate() {
        let pick = |subject: usize, best: bool| {
            session.values(subject, |line| match line {
                Line::Crossing(line) if line.bytes == bytes => Some(if best { line.best_us } else { line.median_us }),
                _ => None,
            })
        };
        let base = pick(0, false);
        let mut row = vec![size_label(bytes), format!("{:.3}", median(&base))];
        let mut crossed = Vec::new();
        for (at, subject) in subjects.iter().enumerate().skip(1) {
            let values = pick(at, false);
            let overhead = -paired_improvement(&base, &values);
            let overhead_best = -improvement(least(&pick(0, true)), least(&pick(at, true)));
            let mut counters = Counters::default();
            let mut messages = 0.0;
            for sample in session.samples.iter().filter(|sample| sample.library == subject.name) {
                if let Line::Crossing(line) = &sample.line
                    && line.bytes == bytes
                {
                    counters.add(&line.counters);
                    messages += line.messages;
                }
            }
            if subject.ours {
                row.push(format!("{:+.1} ({:+.1})", overhead * 100.0, overhead_best * 100.0));
                let rtrs = counters.rtr_sent.map(|sent| sent / messages);
                crossed.push(counters.crossed().zip(rtrs).map_or("–".to_owned(), |(share, rtrs)| format!("{:.0} % of {rtrs:.2} a message", share * 100.0)));
                series[at - 1].points.push((place as f64, overhead * 100.0));
            } else {
                row.push(format!("{:.3}", median(&values)));
            }
            found.rows.push(json!({
                "figure": "19a", "bytes": bytes, "library": subject.name, "median_us": median(&values),
                "best_us": least(&pick(at, true)), "baseline": subjects[0].name, "baseline_us": median(&base),
                "overhead": overhead, "overhead_of_best": overhead_best, "counters": counters,
            }));
        }
        row.extend(crossed);
        row.push("< 1 eager, < 3 rendezvous; adaptive < 1".to_owned());
        table.add_row(row);
    }
    found.tables.push(("Latency when both sides call at the same moment, median of the rounds (of the best times)".to_owned(), table));
    if !series.is_empty() {
        let categories = sizes.iter().map(|&bytes| size_label(bytes)).collect();
        let panel = Panel {
            title: "Latency overhead of crossing RTR and RTS".to_owned(),
            x_label: "message size".to_owned(),
            y_label: format!("overhead over {}, %", subjects[0].name),
            categories,
            series,
            shape: Shape::Lines,
        };
        found.charts.push(("crossing-fig19a".to_owned(), Chart { columns: 1, panels: vec![panel] }));
    }
}

fn volume(session: &Session, found: &mut Findings) {
    let variants: Vec<(usize, &str)> = super::ours(session.subjects).filter(|(_, it)| speculates(&it.name)).map(|(at, it)| (at, it.name.as_str())).collect();
    if variants.is_empty() {
        return;
    }
    let mut headings = vec!["pattern".to_owned()];
    headings.extend(variants.iter().map(|(_, name)| format!("{name} %")));
    headings.push("paper %".to_owned());
    let mut table = table(headings, 1);
    let mut series: Vec<Series> = variants.iter().map(|(_, name)| Series { name: (*name).to_owned(), points: Vec::new() }).collect();
    let mut told = false;
    for (place, (_, name)) in patterns::ALL.iter().enumerate() {
        let mut row = vec![(*name).to_owned()];
        for (at, &(variant, variant_name)) in variants.iter().enumerate() {
            let extra = patterns::counters(session, variant, name, 0.0).extra_volume();
            told |= extra.is_some();
            row.push(extra.map_or("–".to_owned(), |extra| format!("{:.4}", extra * 100.0)));
            series[at].points.extend(extra.map(|extra| (place as f64, extra * 100.0)));
            found.rows.push(json!({"figure": "19b", "pattern": name, "library": variant_name, "extra_volume": extra}));
        }
        row.push("< 0.04".to_owned());
        table.add_row(row);
    }
    if !told {
        found.notes.push("This library does not count announcements in vain: no extra volume to tell.".to_owned());
        return;
    }
    found.tables.push(("Extra volume: announcements in vain over the bytes of all messages".to_owned(), table));
    let panel = Panel {
        title: "Communication volume overhead".to_owned(),
        x_label: String::new(),
        y_label: "extra volume, %".to_owned(),
        categories: patterns::ALL.iter().map(|(_, name)| (*name).to_owned()).collect(),
        series,
        shape: Shape::Bars,
    };
    found.charts.push(("volume-fig19b".to_owned(), Chart { columns: 1, panels: vec![panel] }));
}
