//! How long do applications wait? Small programs with their patterns. (Paper 002 §4.3, Figs. 17, 18.)

use super::chart::{Chart, Panel, Series, Shape};
use super::library::OFF;
use super::lines::{Counters, Line, Pattern};
use super::options::Options;
use super::rounds::{Plan, Session, Who};
use super::statistics::{median, paired_improvement, quartile};
use super::{Findings, table};
use serde_json::json;

/// Program and name of each pattern.
pub const ALL: [(&str, &str); 4] = [("patterns/cg", "CG.B"), ("patterns/bt", "BT.A"), ("patterns/lu", "LU.A"), ("patterns/radix", "RADIX")];
/// The paper's improvement of the waiting time in percent, without and with adaptation, in the order of [`ALL`].
const PAPER: [&str; 4] = ["−21, −4", "+30, slightly less", "+5, +5", "+4, +4"];
const IMBALANCE: f64 = 10.0;

/// Runs the experiment.
///
/// Errors: none of its own; runs that fail are told by the session.
pub fn run(session: &mut Session) -> Result<Findings, String> {
    let imbalances = session.options.imbalances(IMBALANCE);
    let repeats = if session.options.quick { 6 } else { 15 };
    session.measure(&plans(session.options, &imbalances, repeats, Who::All));
    Ok(findings(session, &imbalances))
}

/// Every pattern at every imbalance (percent), each run `repeats` times after a warm-up.
pub fn plans(options: &Options, imbalances: &[f64], repeats: u32, who: Who) -> Vec<Plan> {
    let plan = |&(program, name): &(&'static str, &str), imbalance: f64| Plan {
        name: format!("{name}, {imbalance} %"),
        program,
        ranks: options.ranks,
        args: vec![
            format!("repeats={repeats}"),
            format!("imbalance={imbalance}"),
            format!("shorten={}", options.shorten),
            format!("compute={}", options.compute.name()),
        ],
        who,
    };
    ALL.iter().flat_map(|pattern| imbalances.iter().map(move |&imbalance| plan(pattern, imbalance))).collect()
}

/// What a library counted in all runs of a pattern.
pub fn counters(session: &Session, subject: usize, name: &str, imbalance: f64) -> Counters {
    let mut sum = Counters::default();
    for sample in session.samples.iter().filter(|sample| sample.library == session.subjects[subject].name) {
        if let Line::Pattern(line) = &sample.line
            && line.name == name
            && line.imbalance == imbalance
        {
            sum.add(&line.counters);
        }
    }
    sum
}

/// Lower quartile of each round's repeats, by round; NaN where the run failed.
fn by_round(session: &Session, subject: usize, name: &str, imbalance: f64, of: fn(&Pattern) -> f64) -> Vec<f64> {
    let library = &session.subjects[subject].name;
    let rounds = (0..session.options.rounds).map(|round| {
        let here = session.samples.iter().filter(|it| it.round == round && it.library == *library);
        let values = here.filter_map(|it| match &it.line {
            Line::Pattern(line) if line.name == name && line.imbalance == imbalance && line.repeat > 0 => Some(of(line)),
            _ => None,
        });
        quartile(&values.collect::<Vec<_>>())
    });
    rounds.collect()
}

fn findings(session: &Session, imbalances: &[f64]) -> Findings {
    let mut found = Findings::default();
    let subjects = session.subjects;
    let headings = [
        "pattern",
        "imbalance",
        "library",
        "total ms",
        "waiting ms",
        "in MPI ms",
        "less total %",
        "less waiting %",
        "less in MPI %",
        "less waiting than off %",
        "RTRs",
        "used %",
        "paper, waiting %",
    ];
    let mut table = table(headings.map(str::to_owned).to_vec(), 3);
    let mut panels = Vec::new();
    for &imbalance in imbalances {
        let others = || session.compared().into_iter().map(|(_, it)| Series { name: it.name.clone(), points: Vec::new() });
        let (mut waiting_bars, mut mpi_bars): (Vec<Series>, Vec<Series>) = (others().collect(), others().collect());
        let mut usage_bars: Vec<Series> = super::ours(subjects).map(|(_, it)| Series { name: it.name.clone(), points: Vec::new() }).collect();
        for (place, (_, name)) in ALL.iter().enumerate() {
            let measures: [fn(&Pattern) -> f64; 3] = [|line| line.total_us, |line| line.wait_us, |line| line.mpi_us];
            let base = measures.map(|of| by_round(session, 0, name, imbalance, of));
            for (at, subject) in subjects.iter().enumerate() {
                let values = measures.map(|of| by_round(session, at, name, imbalance, of));
                let middles = [0, 1, 2].map(|which| median(&values[which]));
                let gains = [0, 1, 2].map(|which| paired_improvement(&base[which], &values[which]) * 100.0);
                let counted = counters(session, at, name, imbalance);
                let usage = counted.usage();
                let mut row = vec![(*name).to_owned(), format!("{imbalance} %"), subject.name.clone()];
                row.extend(middles.iter().map(|us| format!("{:.2}", us / 1e3)));
                row.extend(gains.iter().map(|gain| if at == 0 { String::new() } else { format!("{gain:+.1}") }));
                let off = session.subject(OFF).filter(|&off| off != at && subject.ours);
                let off_wait = off.map(|off| by_round(session, off, name, imbalance, measures[1]));
                let less = off_wait.map(|wait| paired_improvement(&wait, &values[1]) * 100.0);
                row.push(less.map_or(String::new(), |less| format!("{less:+.1}")));
                row.push(counted.rtr_sent.map_or("–".to_owned(), |sent| format!("{sent:.0}")));
                row.push(usage.map_or("–".to_owned(), |usage| format!("{:.0}", usage * 100.0)));
                row.push(if subject.ours && at > 0 { PAPER[place].to_owned() } else { String::new() });
                table.add_row(row);
                if let Some(bar) = session.compared().iter().position(|&(compared, _)| compared == at) {
                    waiting_bars[bar].points.push((place as f64, gains[1]));
                    mpi_bars[bar].points.push((place as f64, gains[2]));
                }
                if let Some(bars) = usage_bars.get_mut(at) {
                    bars.points.extend(usage.map(|usage| (place as f64, usage * 100.0)));
                }
                found.rows.push(json!({
                    "pattern": name, "imbalance": imbalance, "library": subject.name, "total_us": middles[0],
                    "wait_us": middles[1], "mpi_us": middles[2], "baseline": subjects[0].name, "less_total_percent": gains[0],
                    "less_wait_percent": gains[1], "less_mpi_percent": gains[2], "less_wait_than_off_percent": less, "rtr_usage": usage, "counters": counted,
                    "paper": PAPER[place],
                }));
            }
        }
        let over = format!("improvement over {}, %", subjects[0].name);
        let bars = |title: &str, y_label: &str, series: Vec<Series>| Panel {
            title: format!("{title}, imbalance {imbalance} %"),
            x_label: String::new(),
            y_label: y_label.to_owned(),
            categories: ALL.iter().map(|(_, name)| (*name).to_owned()).collect(),
            series,
            shape: Shape::Bars,
        };
        panels.push(bars("Time in MPI_Wait and MPI_Waitall", &over, waiting_bars));
        panels.push(bars("Time in MPI", &over, mpi_bars));
        panels.push(bars("RTR usage", "RTRs used, %", usage_bars));
    }
    found.tables.push((
        format!(
            "Application patterns, mean over {} ranks, median of the rounds' lower quartiles; improvements over {}",
            session.options.ranks, subjects[0].name
        ),
        table,
    ));
    found.notes.push(format!(
        "waiting: inside MPI_Wait and MPI_Waitall, as in the paper; CG.B and LU.A wait in MPI_Send, so that their time in MPI says more.\n\
         Computing is the class's at 1 Gflop/s divided by {}.",
        session.options.shorten
    ));
    found.charts.push(("patterns-fig17".to_owned(), Chart { columns: 3, panels }));
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_pattern_runs_at_every_imbalance() {
        let options = Options { shorten: 10.0, ranks: 2, rounds: 1, ..Options::default() };
        let plans = plans(&options, &[0.0, 25.0], 4, Who::All);
        assert_eq!(plans.len(), 8);
        assert_eq!(plans[3].name, "BT.A, 25 %");
        assert!(plans[3].args.contains(&"imbalance=25".to_owned()) && plans[3].args.contains(&"shorten=10".to_owned()));
    }
}
