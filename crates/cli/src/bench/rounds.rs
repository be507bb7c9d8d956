//! In which order do they run?

use super::Sample;
use super::library::Subject;
use super::lines::Line;
use super::options::Options;
use indicatif::{ProgressBar, ProgressStyle};
use std::collections::HashMap;
use std::io::IsTerminal;
use std::path::PathBuf;

/// One program with its arguments, to be run by every library in every round.
#[derive(Debug, Clone)]
pub struct Plan {
    /// Told beside the progress, and kept with each sample.
    pub name: String,
    /// Its folder and name, without ending.
    pub program: &'static str,
    pub ranks: u32,
    pub args: Vec<String>,
    pub who: Who,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Who {
    All,
    Ours,
}

/// All that an experiment has measured.
pub struct Session<'a> {
    pub options: &'a Options,
    pub subjects: &'a [Subject],
    pub samples: Vec<Sample>,
    pub failures: Vec<String>,
    pub ours_failed: bool,
    /// Subjects that take no further part.
    pub left_out: Vec<usize>,
    /// By subject and program; `None` where it could not be built.
    programs: HashMap<(usize, &'static str), Option<PathBuf>>,
}

impl<'a> Session<'a> {
    pub fn new(options: &'a Options, subjects: &'a [Subject]) -> Self {
        let (samples, failures, programs) = (Vec::new(), Vec::new(), HashMap::new());
        Self { options, subjects, samples, failures, ours_failed: false, left_out: Vec::new(), programs }
    }

    /// Runs one program once with one library; its lines, none where it failed.
    pub fn once(&mut self, subject: usize, plan: &Plan) -> Vec<Line> {
        let Some(program) = self.program(subject, plan.program) else { return Vec::new() };
        match self.subjects[subject].run(&program, plan.ranks, &plan.args) {
            Ok(lines) => lines,
            Err(reason) => {
                self.fail(subject, format!("{}, {}: {reason}", self.subjects[subject].name, plan.name));
                Vec::new()
            }
        }
    }

    /// Runs every plan with every library it is for, in each round; adds to the samples.
    pub fn measure(&mut self, plans: &[Plan]) {
        let runs: Vec<(usize, usize, usize)> = order(self.options.rounds, plans.len(), self.subjects.len())
            .filter(|&(_, plan, subject)| plans[plan].who == Who::All || self.subjects[subject].ours)
            .filter(|(_, _, subject)| !self.left_out.contains(subject))
            .collect();
        let bar = progress(runs.len());
        let shown = std::io::stderr().is_terminal();
        let mut last_round = None;
        for (round, plan, subject) in runs {
            let name = self.subjects[subject].name.clone();
            bar.set_message(format!("round {}: {}, {name}", round + 1, plans[plan].name));
            if !shown && last_round != Some(round) {
                eprintln!("round {} of {}", round + 1, self.options.rounds);
            }
            last_round = Some(round);
            for line in self.once(subject, &plans[plan]) {
                self.samples.push(Sample { library: name.clone(), plan: plans[plan].name.clone(), round, line });
            }
            bar.inc(1);
        }
        bar.finish_and_clear();
    }

    /// The number that `pick` finds first in each round; NaN in rounds where it finds none.
    pub fn values(&self, subject: usize, pick: impl Fn(&Line) -> Option<f64>) -> Vec<f64> {
        let name = &self.subjects[subject].name;
        let mut values = vec![f64::NAN; self.options.rounds];
        for sample in self.samples.iter().filter(|sample| sample.library == *name) {
            if values[sample.round].is_nan()
                && let Some(value) = pick(&sample.line)
            {
                values[sample.round] = value;
            }
        }
        values
    }

    /// Those that are compared with the first subject in plots: our other variants, or the peers where there are none.
    pub fn compared(&self) -> Vec<(usize, &'a Subject)> {
        let others = || self.subjects.iter().enumerate().skip(1);
        let ours: Vec<_> = others().filter(|(_, subject)| subject.ours).collect();
        if ours.is_empty() { others().collect() } else { ours }
    }

    /// The subject of this name.
    pub fn subject(&self, name: &str) -> Option<usize> {
        self.subjects.iter().position(|subject| subject.name == name)
    }

    /// Where a program lies that the subject's library has built; `None` where it could not.
    pub fn program(&mut self, subject: usize, program: &'static str) -> Option<PathBuf> {
        if let Some(known) = self.programs.get(&(subject, program)) {
            return known.clone();
        }
        let built = self.subjects[subject].build(program);
        let path = built.map_err(|reason| self.fail(subject, reason)).ok();
        self.programs.insert((subject, program), path.clone());
        path
    }

    pub fn fail(&mut self, subject: usize, reason: String) {
        self.ours_failed |= self.subjects[subject].ours;
        self.failures.push(reason);
    }
}

/// A bar for so many runs.
pub fn progress(runs: usize) -> ProgressBar {
    let bar = ProgressBar::new(runs as u64);
    let style = ProgressStyle::with_template("{msg:44} {wide_bar} {pos}/{len} {elapsed}, {eta} left");
    bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
    bar
}

/// Round, plan and subject of each run: within a round plan by plan, and who begins rotates.
pub fn order(rounds: usize, plans: usize, subjects: usize) -> impl Iterator<Item = (usize, usize, usize)> {
    let turns = move |round, plan| (0..subjects).map(move |turn| (round, plan, (turn + round + plan) % subjects));
    (0..rounds).flat_map(move |round| (0..plans).flat_map(move |plan| turns(round, plan)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn everyone_runs_once_a_round_and_takes_turns_to_begin() {
        let runs: Vec<_> = order(3, 1, 3).collect();
        assert_eq!(runs.iter().map(|run| run.2).collect::<Vec<_>>(), [0, 1, 2, 1, 2, 0, 2, 0, 1]);
        let mut all: Vec<_> = order(2, 3, 4).collect();
        assert_eq!(all.len(), 24);
        all.sort_unstable();
        all.dedup();
        assert_eq!(all.len(), 24);
    }
}
