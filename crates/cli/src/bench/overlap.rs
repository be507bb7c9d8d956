//! Which share of a transfer passes while one side computes, and does it go on without that side? (Paper 002 §4.2.1 and §4.2.2, Figs. 13, 14.)

use super::chart::{Chart, Panel, Series, Shape};
use super::lines::{Line, Overlap, OverlapPoint};
use super::rounds::{Plan, Session, Who};
use super::statistics::median;
use super::{Findings, size_label, table, told};
use serde_json::json;

const SIZES: [u64; 11] = [4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096];
const SIZES_QUICK: [u64; 4] = [4, 64, 1024, 4096];
/// Computing over transfer time.
const RATIOS: &str = "0.5,1,1.5,2,3";
/// The same for latency over delay, and the size it is shown for.
const DELAYS: &str = "0.25,0.5,0.75,1,1.5,2,3,4";
const DELAYED_BYTES: u64 = 1 << 20;
/// From here on messages are no eager ones in any of the libraries.
const RENDEZVOUS_BYTES: u64 = 64 << 10;
const DELAYS_PLAN: &str = "latency over delay";

/// Side that computes, side that calls first, and what the paper reached with its new and its current protocol, percent.
const SCENARIOS: [(&str, &str, &str); 4] = [
    ("receiver", "receiver", "> 92 (before: < 10)"),
    ("receiver", "sender", "> 80 (before: < 10)"),
    ("sender", "sender", "as before"),
    ("sender", "receiver", "2 to 14 less than before"),
];

/// Runs the experiment.
///
/// Errors: none of its own; runs that fail are told by the session.
pub fn run(session: &mut Session) -> Result<Findings, String> {
    let options = session.options;
    let quick = options.quick;
    let own: Vec<u64> = if quick { SIZES_QUICK.to_vec() } else { SIZES.to_vec() }.iter().map(|kib| kib << 10).collect();
    let sizes = if options.sizes.is_empty() { own } else { options.sizes.clone() };
    let plan = |name: String, bytes: u64, ratios: &str| Plan {
        name,
        program: "overlap/overlap",
        ranks: 2,
        args: vec![
            format!("bytes={bytes}"),
            format!("ratios={ratios}"),
            format!("budget_ms={}", if quick { 60 } else { 150 }),
            format!("compute={}", options.compute.name()),
        ],
        who: Who::All,
    };
    let mut plans: Vec<Plan> = sizes.iter().map(|&bytes| plan(format!("overlap, {}", size_label(bytes)), bytes, RATIOS)).collect();
    plans.push(plan(DELAYS_PLAN.to_owned(), DELAYED_BYTES, DELAYS));
    session.measure(&plans);
    Ok(findings(session, &sizes))
}

/// The largest share of the transfer's time that any of the lengths of computing hid, 0 to 1.
pub fn largest_share(line: &Overlap) -> f64 {
    line.points.iter().map(|point| hidden_us(line.comm_us, point) / line.comm_us).fold(0.0, f64::max).min(1.0)
}

/// The share hidden where computing and transfer take equally long, 0 to 1: of the shorter of the two at the point that comes closest.
/// NaN without points.
pub fn share_at_equal_times(line: &Overlap) -> f64 {
    let distance = |point: &OverlapPoint| (point.comp_us / line.comm_us).ln().abs();
    let nearest = line.points.iter().min_by(|left, right| distance(left).total_cmp(&distance(right)));
    nearest.map_or(f64::NAN, |point| (hidden_us(line.comm_us, point) / line.comm_us.min(point.comp_us)).clamp(0.0, 1.0))
}

/// What [`share_at_equal_times`] can be at most, 0 to 1, when the side that computes spends nothing: the other copies alone, at one core's
/// speed, and where the bare transfer was faster, because both copied, it is not through when the computing is.
pub fn bound_at_equal_times(comm_us: f64, one_core_copy_us: f64) -> f64 {
    if one_core_copy_us > 0.0 { (comm_us / one_core_copy_us).min(1.0) } else { 1.0 }
}

fn hidden_us(comm_us: f64, point: &OverlapPoint) -> f64 {
    comm_us + point.comp_us - point.total_us
}

fn findings(session: &Session, sizes: &[u64]) -> Findings {
    let mut found = Findings::default();
    let subjects = session.subjects;
    let mut headings: Vec<String> = ["computes", "first", "size"].map(str::to_owned).to_vec();
    headings.extend(subjects.iter().map(|subject| subject.name.clone()));
    headings.extend(["bound".to_owned(), "paper".to_owned()]);
    let mut shares = table(headings, 2);
    let mut times_headings: Vec<String> = ["computes", "first", "size"].map(str::to_owned).to_vec();
    times_headings.extend(subjects.iter().map(|subject| subject.name.clone()));
    times_headings.push("one core's copy".to_owned());
    let mut times = table(times_headings, 2);
    let mut overlap = Chart { columns: 2, panels: Vec::new() };
    let mut progress = Chart { columns: 2, panels: Vec::new() };

    for (side, first, paper) in SCENARIOS {
        let mut lines: Vec<Series> = subjects.iter().map(|it| Series { name: it.name.clone(), points: Vec::new() }).collect();
        for (place, &bytes) in sizes.iter().enumerate() {
            let mut row = vec![side.to_owned(), first.to_owned(), size_label(bytes)];
            let mut time_row = row.clone();
            let (mut bound, mut copy_us) = (f64::NAN, f64::NAN);
            for (at, subject) in subjects.iter().enumerate() {
                let value = |of: &dyn Fn(&Overlap) -> f64| {
                    let chosen = session.samples.iter().filter(|it| it.library == subject.name && it.plan != DELAYS_PLAN);
                    let ours = chosen.filter_map(|it| match &it.line {
                        Line::Overlap(line) if line.side == side && line.first == first && line.bytes == bytes => Some(of(line)),
                        _ => None,
                    });
                    ours.collect::<Vec<f64>>()
                };
                let all = value(&largest_share);
                let share = median(&all);
                let equal = median(&value(&share_at_equal_times));
                let comm_us = median(&value(&|line| line.comm_us));
                if subject.ours {
                    copy_us = median(&value(&|line| line.one_core_copy_us));
                    bound = bound_at_equal_times(comm_us, copy_us);
                }
                row.push(if share.is_nan() { "–".to_owned() } else { format!("{:.0} ({:.0})", share * 100.0, equal * 100.0) });
                time_row.push(told(comm_us, 1));
                lines[at].points.push((place as f64, share * 100.0));
                found.rows.push(json!({
                    "side": side, "first": first, "bytes": bytes, "library": subject.name, "overlap": share,
                    "overlap_rounds": all, "overlap_at_equal_times": equal, "comm_us": comm_us,
                    "bound_at_equal_times": bound_at_equal_times(comm_us, copy_us), "one_core_copy_us": copy_us, "paper": paper,
                }));
            }
            let large = bytes >= RENDEZVOUS_BYTES;
            row.push(if large { format!("100 ({:.0})", bound * 100.0) } else { "eager".to_owned() });
            row.push(if large { paper.to_owned() } else { String::new() });
            time_row.push(format!("{copy_us:.1}"));
            shares.add_row(row);
            times.add_row(time_row);
        }
        overlap.panels.push(Panel {
            title: format!("{side} computes, {first} first"),
            x_label: "message size".to_owned(),
            y_label: "overlap, %".to_owned(),
            categories: sizes.iter().map(|&bytes| size_label(bytes)).collect(),
            series: lines,
            shape: Shape::Lines,
        });
        progress.panels.push(delays(session, side, first));
    }
    found.tables.push(("Overlap, %: largest share of a transfer hidden behind computing (in brackets: with as much computing as transfer)".to_owned(), shares));
    found.tables.push(("The transfer without computing, µs".to_owned(), times));
    found.notes.push(
        "bound: the side that waits can copy all, so 100; with as much computing as transfer, what one core's copy gets done in\n\
         the time of a transfer that both sides copied, for our last variant. Eager messages are copied inside the calls of each side."
            .to_owned(),
    );
    found.charts.push(("overlap-fig13".to_owned(), overlap));
    found.charts.push(("progress-fig14".to_owned(), progress));
    found
}

/// Latency over an inserted delay: at the receiver, as in the paper, until the message has arrived and been waited for.
fn delays(session: &Session, side: &str, first: &str) -> Panel {
    let mut series = Vec::new();
    let mut longest: f64 = 0.0;
    for subject in session.subjects {
        let chosen = session.samples.iter().filter(|it| it.library == subject.name && it.plan == DELAYS_PLAN);
        let lines: Vec<&Overlap> = chosen
            .filter_map(|it| match &it.line {
                Line::Overlap(line) if line.side == side && line.first == first => Some(line),
                _ => None,
            })
            .collect();
        let count = lines.iter().map(|line| line.points.len()).min().unwrap_or(0);
        let middle = |of: &dyn Fn(&Overlap) -> f64| median(&lines.iter().map(|line| of(line)).collect::<Vec<_>>());
        let latency = |point: &OverlapPoint| if side == "sender" { point.arrival_us } else { point.total_us };
        let mut points = vec![(0.0, middle(&|line| if side == "sender" { line.arrival_us } else { line.comm_us }))];
        points.extend((0..count).map(|at| (middle(&|line| line.points[at].comp_us), middle(&|line| latency(&line.points[at])))));
        longest = points.iter().map(|point| point.0).fold(longest, f64::max);
        series.push(Series { name: subject.name.clone(), points });
    }
    if side == "receiver" {
        series.push(Series { name: "the delay alone".to_owned(), points: vec![(0.0, 0.0), (longest, longest)] });
    }
    Panel {
        title: format!("{}, delay at the {side}, {first} first", size_label(DELAYED_BYTES)),
        x_label: "inserted delay, µs".to_owned(),
        y_label: "latency at the receiver, µs".to_owned(),
        categories: Vec::new(),
        series,
        shape: Shape::Lines,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(comm_us: f64, points: &[(f64, f64)]) -> Overlap {
        let points = points.iter().map(|&(comp_us, total_us)| OverlapPoint { comp_us, total_us, arrival_us: total_us });
        Overlap {
            side: "receiver".into(),
            first: "sender".into(),
            bytes: 1 << 20,
            comm_us,
            arrival_us: comm_us,
            one_core_copy_us: 0.0,
            points: points.collect(),
            counters: Default::default(),
        }
    }

    #[test]
    fn nothing_is_hidden_where_times_add_up() {
        let line = line(100.0, &[(50.0, 150.0), (100.0, 200.0), (200.0, 301.0)]);
        assert_eq!(largest_share(&line), 0.0);
        assert_eq!(share_at_equal_times(&line), 0.0);
    }

    #[test]
    fn all_is_hidden_where_the_longer_counts() {
        let line = line(100.0, &[(50.0, 100.0), (100.0, 100.0), (200.0, 200.0)]);
        assert_eq!(largest_share(&line), 1.0);
        assert_eq!(share_at_equal_times(&line), 1.0);
    }

    #[test]
    fn the_largest_share_may_need_long_computing() {
        let line = line(40.0, &[(40.0, 56.0), (80.0, 82.0)]);
        assert_eq!(largest_share(&line), 0.95);
        assert_eq!(share_at_equal_times(&line), 0.6);
    }

    #[test]
    fn noise_cannot_hide_more_than_all() {
        assert_eq!(largest_share(&line(100.0, &[(100.0, 90.0)])), 1.0);
        assert_eq!(share_at_equal_times(&line(100.0, &[(100.0, 90.0)])), 1.0);
        assert!(share_at_equal_times(&line(100.0, &[])).is_nan());
    }

    #[test]
    fn a_transfer_that_both_copied_cannot_be_hidden_in_its_own_time() {
        assert_eq!(bound_at_equal_times(40.0, 80.0), 0.5);
        assert_eq!(bound_at_equal_times(90.0, 80.0), 1.0);
        assert_eq!(bound_at_equal_times(90.0, 0.0), 1.0);
    }
}
