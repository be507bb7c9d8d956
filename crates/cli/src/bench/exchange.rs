//! What does an iteration of neighbours that produce, exchange and consume gain? (Paper 002 §4.2.3, Figs. 15, 16.)

use super::chart::{Chart, Panel, Series, Shape};
use super::library::{ADAPTIVE, OFF};
use super::lines::{Exchange, ExchangePoint, Line};
use super::options::Compute;
use super::rounds::{Plan, Session, Who};
use super::statistics::{improvement, least, median, paired_improvement};
use super::{Findings, size_label, table};
use serde_json::json;
use std::collections::HashMap;

const SIZES: [u64; 2] = [128 << 10, 1 << 20];
/// Communication over computation.
const RATIOS: [f64; 7] = [0.1, 0.2, 0.5, 0.8, 1.0, 2.0, 4.0];
const RATIOS_QUICK: [f64; 4] = [0.1, 0.5, 1.0, 4.0];
const IMBALANCE: f64 = 50.0;
/// Runs from which the communication time of the baseline is taken, before all others.
const CALIBRATIONS: usize = 3;

type Setting = (u32, u64);

/// Runs the experiment.
///
/// Errors: the baseline cannot be measured.
pub fn run(session: &mut Session) -> Result<Findings, String> {
    let options = session.options;
    let sizes = if options.sizes.is_empty() { SIZES.to_vec() } else { options.sizes.clone() };
    let ratios = if options.quick { RATIOS_QUICK.to_vec() } else { RATIOS.to_vec() };
    let imbalances = options.imbalances(IMBALANCE);
    let (work_ns, comm_us) = calibrate(session, &sizes)?;

    let mut plans = Vec::new();
    for &bytes in &sizes {
        for model in [1, 2] {
            for &imbalance in &imbalances {
                let lengths = lengths_us(comm_us[&(model, bytes)], &ratios);
                let lengths: Vec<String> = lengths.iter().map(|us| format!("{us:.3}")).collect();
                plans.push(Plan {
                    name: format!("exchange {model}, {}, {imbalance} %", size_label(bytes)),
                    program: "overlap/exchange",
                    ranks: 2,
                    args: vec![
                        format!("model={model}"),
                        format!("bytes={bytes}"),
                        format!("comp_us={}", lengths.join(",")),
                        format!("imbalance={imbalance}"),
                        format!("turns={}", options.turns.name()),
                        format!("work_ns={work_ns}"),
                        format!("compute={}", options.compute.name()),
                        format!("pack={}", !options.no_pack as u8),
                        format!("budget_ms={}", if options.quick { 60 } else { 150 }),
                    ],
                    who: Who::All,
                });
            }
        }
    }
    session.measure(&plans);
    Ok(findings(session, &sizes, &ratios, &imbalances))
}

/// The shortest an iteration can be, µs. With computing on the cores: two ranks on two cores are busy all the time, so that each copy
/// adds its time. With an accelerator: a transfer can pass while the next data are produced, not while its own are consumed or packed.
pub fn bound_us(compute: Compute, comp_us: f64, comm_us: f64, pack_us: f64) -> f64 {
    match compute {
        Compute::Cpu => comp_us + comm_us,
        Compute::Device => comp_us / 2.0 + pack_us + (comm_us - pack_us).max(comp_us / 2.0),
    }
}

/// No computing, then as much as makes each ratio.
fn lengths_us(comm_us: f64, ratios: &[f64]) -> Vec<f64> {
    std::iter::once(0.0).chain(ratios.iter().map(|ratio| comm_us / ratio)).collect()
}

/// The length of an iteration of computing, the same for all, and the baseline's iteration without any, by model and size.
fn calibrate(session: &mut Session, sizes: &[u64]) -> Result<(f64, HashMap<Setting, f64>), String> {
    let list: Vec<String> = sizes.iter().map(u64::to_string).collect();
    let plan = Plan {
        name: "calibration".to_owned(),
        program: "overlap/exchange",
        ranks: 2,
        args: vec!["comp_us=0".to_owned(), format!("bytes={}", list.join(",")), format!("pack={}", !session.options.no_pack as u8), "budget_ms=60".to_owned()],
        who: Who::Ours,
    };
    let mut work_ns = Vec::new();
    let mut comm_us: HashMap<Setting, Vec<f64>> = HashMap::new();
    for _ in 0..CALIBRATIONS {
        for line in session.once(0, &plan) {
            match line {
                Line::Work { work_ns: length } => work_ns.push(length),
                Line::Exchange(line) => {
                    comm_us.entry((line.model, line.bytes)).or_default().extend(line.points.first().map(|point| point.quartile_us));
                }
                _ => {}
            }
        }
    }
    let comm_us: HashMap<Setting, f64> = comm_us.into_iter().map(|(key, values)| (key, median(&values))).collect();
    let complete = sizes.iter().all(|&bytes| [1, 2].iter().all(|&model| comm_us.contains_key(&(model, bytes))));
    if work_ns.is_empty() || !complete {
        return Err(session.failures.last().cloned().unwrap_or_else(|| "the calibration printed nothing".to_owned()));
    }
    Ok((median(&work_ns), comm_us))
}

fn findings(session: &Session, sizes: &[u64], ratios: &[f64], imbalances: &[f64]) -> Findings {
    let mut found = Findings::default();
    let subjects = session.subjects;
    let mut headings: Vec<String> = ["model", "size", "imbalance", "comm/comp", "comp µs"].map(str::to_owned).to_vec();
    headings.push(format!("{} µs", subjects[0].name));
    headings.extend(subjects[1..].iter().map(|subject| format!("{} %", subject.name)));
    let both = session.subject(OFF).zip(session.subject(ADAPTIVE));
    headings.extend(both.map(|_| format!("{ADAPTIVE} over {OFF} %")));
    headings.extend(["bound %".to_owned(), "paper %".to_owned()]);
    let mut table = table(headings, 1);
    let mut chart = Chart { columns: 2, panels: Vec::new() };

    for &bytes in sizes {
        for &imbalance in imbalances {
            for model in [1, 2] {
                let drawn = session.compared();
                let mut series: Vec<Series> = drawn.iter().map(|(_, it)| Series { name: it.name.clone(), points: Vec::new() }).collect();
                series.push(Series { name: "bound".to_owned(), points: Vec::new() });
                for (place, ratio) in std::iter::once(f64::INFINITY).chain(ratios.iter().copied()).enumerate() {
                    let pick = |subject: usize, of: fn(&ExchangePoint) -> f64| {
                        session.values(subject, |line| match line {
                            Line::Exchange(line) if chosen(line, model, bytes, imbalance) => line.points.get(place).map(of),
                            _ => None,
                        })
                    };
                    type Of = fn(&ExchangePoint) -> f64;
                    let (time, best): (Of, Of) = (|point| point.quartile_us, |point| point.best_us);
                    let (base, base_best) = (pick(0, time), pick(0, best));
                    let comp_us = median(&pick(0, |point| point.comp_us));
                    let pack_us = median(&pick(0, |point| point.pack_us));
                    let comm_us = super::ours(subjects).map(|(at, _)| median(&bare(session, at, model, bytes, imbalance)));
                    let shortest_us = bound_us(session.options.compute, comp_us, least(&comm_us.collect::<Vec<_>>()), pack_us);
                    let bound = improvement(median(&base), shortest_us).max(0.0);
                    let paper = match (model, place) {
                        (1, _) if ratio == 0.8 => "up to 32",
                        (2, _) if ratio == 0.5 => "up to 20",
                        _ => "",
                    };
                    let ratio_text = if ratio.is_finite() { format!("{ratio}") } else { "no comp".to_owned() };
                    let mut row = vec![
                        model.to_string(),
                        size_label(bytes),
                        format!("{imbalance} %"),
                        ratio_text,
                        format!("{comp_us:.1}"),
                        format!("{:.1}", median(&base)),
                    ];
                    for at in 1..subjects.len() {
                        let gain = paired_improvement(&base, &pick(at, time));
                        let gain_best = improvement(least(&base_best), least(&pick(at, best)));
                        row.push(format!("{:+.1} ({:+.1})", gain * 100.0, gain_best * 100.0));
                        if let Some(line) = drawn.iter().position(|&(drawn, _)| drawn == at)
                            && ratio.is_finite()
                        {
                            series[line].points.push(((place - 1) as f64, gain * 100.0));
                        }
                        found.rows.push(json!({
                            "model": model, "bytes": bytes, "imbalance": imbalance, "ratio": ratio.is_finite().then_some(ratio),
                            "comp_us": comp_us, "library": subjects[at].name, "time_us": median(&pick(at, time)),
                            "best_us": least(&pick(at, best)), "baseline": subjects[0].name, "baseline_us": median(&base),
                            "baseline_best_us": least(&base_best), "pack_us": pack_us, "improvement": gain, "improvement_of_best": gain_best,
                            "bound": bound, "paper": paper,
                        }));
                    }
                    if ratio.is_finite() {
                        series[drawn.len()].points.push(((place - 1) as f64, bound * 100.0));
                    }
                    row.extend(both.map(|(off, adaptive)| format!("{:+.1}", paired_improvement(&pick(off, time), &pick(adaptive, time)) * 100.0)));
                    row.extend([format!("{:+.1}", bound * 100.0), paper.to_owned()]);
                    table.add_row(row);
                }
                chart.panels.push(Panel {
                    title: format!("Exchange model {model}, {}, imbalance {imbalance} %", size_label(bytes)),
                    x_label: "communication / computation".to_owned(),
                    y_label: format!("improvement over {}, %", subjects[0].name),
                    categories: ratios.iter().map(f64::to_string).collect(),
                    series,
                    shape: Shape::Lines,
                });
            }
        }
    }
    found.tables.push((
        format!(
            "Iteration of the exchange models: {} in µs, the others' improvement over it, median of the rounds' lower quartiles (of the best times)",
            subjects[0].name
        ),
        table,
    ));
    found.notes.push(match session.options.compute {
        Compute::Cpu => "bound: two ranks compute on two cores and copy on the same, so that an iteration takes at least computing and\n\
             communication together; what the ranks wait for each other can be saved. Smaller differences than 1 % want more rounds."
            .to_owned(),
        Compute::Device => "bound: a transfer can pass while the next data are produced, not while its own are packed or consumed.".to_owned(),
    });
    found.charts.push((format!("exchange-fig16-{}", session.options.compute.name()), chart));
    found
}

fn chosen(line: &Exchange, model: u32, bytes: u64, imbalance: f64) -> bool {
    line.model == model && line.bytes == bytes && line.imbalance == imbalance
}

/// The iteration without computing, by round.
fn bare(session: &Session, subject: usize, model: u32, bytes: u64, imbalance: f64) -> Vec<f64> {
    session.values(subject, |line| match line {
        Line::Exchange(line) if chosen(line, model, bytes, imbalance) => line.points.first().map(|point| point.quartile_us),
        _ => None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn computing_is_communication_over_the_ratio() {
        assert_eq!(lengths_us(40.0, &[0.1, 1.0, 4.0]), [0.0, 400.0, 40.0, 10.0]);
    }

    #[test]
    fn cores_that_copy_cannot_compute_and_accelerators_can() {
        assert_eq!(bound_us(Compute::Cpu, 100.0, 40.0, 10.0), 140.0);
        assert_eq!(bound_us(Compute::Device, 100.0, 40.0, 10.0), 110.0);
        assert_eq!(bound_us(Compute::Device, 20.0, 40.0, 10.0), 50.0);
        assert_eq!(bound_us(Compute::Device, 0.0, 40.0, 10.0), 40.0);
    }
}
