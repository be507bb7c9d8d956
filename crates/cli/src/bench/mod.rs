//! `whimbrel bench`: what does the program gain when nobody waits for a large message, and what does a network cost it?
//!
//! The programs measured are plain MPI in C and lie in this command; each library's own `mpicc` compiles them, so that all run the
//! same source. Every round runs every library, in an order that rotates, so that a change of the machine's mood meets all of them.
//! The experiments are those of papers 002 (§4) and 003 (§4, §5.2.2); their figures are printed beside ours.
//!
//! | module | question |
//! | --- | --- |
//! | [`options`] | What does the command line ask for? |
//! | [`library`] | Who is measured, and how are its programs built and run? |
//! | [`lines`] | What do the programs print? |
//! | [`rounds`] | In which order do they run? |
//! | [`statistics`] | Which number stands for many? |
//! | [`overlap`], [`exchange`], [`crossing`], [`patterns`] | One experiment each: its plan, its arithmetic, its table |
//! | [`allconn`], [`striping`], [`loss`] | The same, of the network |
//! | [`vipl`] | What does the VI Provider Library cost? It needs no MPI |
//! | [`usage_table`] | What does it cost to know which buffers are used often? In this process, without MPI |
//! | [`registration_cache`], [`pinning`] | What does registered memory cost, on a model of adapters? |
//! | [`buffer_reuse`] | What does sending from frequent buffers gain? With [`eager_model`], [`eager_trees`], [`reuse_profiles`] |
//! | [`rdma`] | What do messages over RDMA devices cost, on this machine's and on models? |
//! | [`hosts`] | How do programs run on two hosts, on one machine? |
//! | [`chart`] | How is it drawn? |

pub mod allconn;
pub mod buffer_reuse;
pub mod chart;
pub mod crossing;
pub mod eager_model;
pub mod eager_trees;
pub mod exchange;
pub mod hosts;
pub mod library;
pub mod lines;
pub mod loss;
pub mod options;
pub mod overlap;
pub mod patterns;
pub mod pinning;
pub mod rdma;
pub mod registration_cache;
pub mod reuse_profiles;
pub mod rounds;
pub mod statistics;
pub mod striping;
pub mod usage_table;
pub mod vipl;

use chart::Chart;
use comfy_table::{CellAlignment, Table, TableComponent, presets};
use library::Subject;
use lines::Line;
use options::{Experiment, Options};
use rounds::Session;
use serde::Serialize;
use std::ffi::OsString;
use std::io::Write;

pub use options::HELP;

/// Above this load before the first run, other programs compete for the cores.
const LOAD_QUIET: f64 = 0.5;

/// What one experiment has to say.
#[derive(Debug, Default)]
pub struct Findings {
    pub tables: Vec<(String, Table)>,
    pub notes: Vec<String>,
    /// File name without its ending, and what to draw.
    pub charts: Vec<(String, Chart)>,
    pub rows: Vec<serde_json::Value>,
}

/// One line that a program printed, and where it came from.
#[derive(Debug, Serialize)]
pub struct Sample {
    pub library: String,
    pub plan: String,
    /// From 0.
    pub round: usize,
    pub line: Line,
}

#[derive(Serialize)]
struct Document<'a> {
    experiment: &'a str,
    processors: u32,
    rounds: usize,
    compute: &'a str,
    /// Processes that wanted to run before, mean of a minute.
    load_before: f64,
    libraries: Vec<&'a str>,
    rows: &'a [serde_json::Value],
    samples: &'a [Sample],
    failures: &'a [String],
}

/// Runs `whimbrel bench` with the arguments that follow these words; true if our library did all that was asked.
///
/// Errors: a command line that means nothing; no library to measure; a file that cannot be written.
pub fn run(args: Vec<OsString>) -> Result<bool, String> {
    let Some(options) = Options::parse(args)? else {
        say(HELP);
        return Ok(true);
    };
    let port = if options.experiments.contains(&Experiment::Rdma) { rdma::port()? } else { None };
    let wants_mpi = port.is_some() || options.experiments.iter().any(|it| it.wants_mpi());
    let (subjects, notes) = if wants_mpi { library::find(&options)? } else { Default::default() };
    for note in notes {
        eprintln!("whimbrel bench: {note}");
    }
    let load = load();
    say(&format!("processors: {}  load before: {load:.2}", crate::topology::processors()));
    if load > LOAD_QUIET {
        eprintln!("whimbrel bench: the machine does other work now; figures will be far apart, and small differences mean nothing");
    }
    // Those that measure the network have other variants of each library.
    let networked = over_network(&subjects);
    let over_verbs = port.iter().flat_map(|port| ours(&subjects).last().map(|(_, it)| rdma::subjects(it, port))).flatten().collect::<Vec<Subject>>();
    let striped: Vec<Subject> = striped(&subjects).chain(networked.iter().filter(|it| !it.ours).cloned()).collect();
    // Startup and memory read different things from the same runs.
    let mut connected: (Vec<Sample>, Vec<String>) = Default::default();
    let mut documents = Vec::new();
    let mut good = true;
    for &experiment in &options.experiments {
        let subjects = match experiment {
            Experiment::Startup | Experiment::Memory | Experiment::Loss => &networked,
            Experiment::Striping => &striped,
            Experiment::Rdma => &over_verbs,
            _ => &subjects,
        };
        let mut session = Session::new(&options, subjects);
        let shares = matches!(experiment, Experiment::Startup | Experiment::Memory);
        if shares {
            (session.samples, session.failures) = std::mem::take(&mut connected);
        }
        let findings = match experiment {
            Experiment::Overlap => overlap::run(&mut session),
            Experiment::Exchange => exchange::run(&mut session),
            Experiment::Crossing => crossing::run(&mut session),
            Experiment::Patterns => patterns::run(&mut session),
            Experiment::Startup => allconn::startup(&mut session),
            Experiment::Memory => allconn::memory(&mut session),
            Experiment::Striping => striping::run(&mut session),
            Experiment::Loss => loss::run(&mut session),
            Experiment::Vipl => vipl::run(&options),
            Experiment::UsageTable => usage_table::run(&options),
            Experiment::RegistrationCache => registration_cache::run(&options),
            Experiment::Pinning => pinning::run(&options),
            Experiment::BufferReuse => buffer_reuse::run(&options),
            Experiment::Rdma => rdma::run(&mut session, port.as_ref()),
        }?;
        for (title, table) in &findings.tables {
            say(&format!("{title}\n{table}\n"));
        }
        for note in &findings.notes {
            say(note);
        }
        if let Some(folder) = &options.plots {
            std::fs::create_dir_all(folder).map_err(|error| format!("{}: {error}", folder.display()))?;
            for (name, chart) in &findings.charts {
                let path = folder.join(format!("{name}.svg"));
                chart.draw(&path)?;
                say(&format!("plot: {}", path.display()));
            }
        }
        for failure in &session.failures {
            eprintln!("whimbrel bench: {failure}");
        }
        good &= !session.ours_failed;
        let document = Document {
            experiment: experiment.name(),
            processors: crate::topology::processors(),
            rounds: options.rounds,
            compute: options.compute.name(),
            load_before: load,
            libraries: subjects.iter().map(|subject| subject.name.as_str()).collect(),
            rows: &findings.rows,
            samples: &session.samples,
            failures: &session.failures,
        };
        documents.push(serde_json::to_value(&document).map_err(|error| error.to_string())?);
        if shares {
            connected = (session.samples, session.failures);
        }
        say("");
    }
    if let Some(path) = &options.json {
        let text = serde_json::to_string_pretty(&documents).map_err(|error| error.to_string())?;
        std::fs::write(path, text + "\n").map_err(|error| format!("{}: {error}", path.display()))?;
        say(&format!("results: {}", path.display()));
    }
    Ok(good)
}

/// Whoever stops reading has read enough.
fn say(text: &str) {
    let _ = writeln!(std::io::stdout(), "{text}");
}

/// A table with these headings, numbers to the right from column `numbers_from` on.
fn table(headings: Vec<String>, numbers_from: usize) -> Table {
    let mut table = Table::new();
    table.load_preset(presets::NOTHING).set_header(headings);
    table.set_style(TableComponent::HeaderLines, '─').set_style(TableComponent::MiddleHeaderIntersections, '─');
    for (at, column) in table.column_iter_mut().enumerate() {
        column.set_padding((0, 1));
        if at >= numbers_from {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    table
}

/// Load of the machine, mean of the last minute; NaN where the kernel does not tell.
fn load() -> f64 {
    let text = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    text.split(' ').next().and_then(|word| word.parse().ok()).unwrap_or(f64::NAN)
}

/// A figure in a table: a dash where nothing was measured.
pub fn told(value: f64, digits: usize) -> String {
    if value.is_nan() { "–".to_owned() } else { format!("{value:.digits$}") }
}

/// A size with its unit, as in `64 KiB`.
pub fn size_label(bytes: u64) -> String {
    match bytes {
        _ if bytes >= 1 << 20 && bytes.is_multiple_of(1 << 20) => format!("{} MiB", bytes >> 20),
        _ if bytes >= 1 << 10 && bytes.is_multiple_of(1 << 10) => format!("{} KiB", bytes >> 10),
        _ => format!("{bytes} B"),
    }
}

/// Each library once, over the network even within this host.
fn over_network(subjects: &[Subject]) -> Vec<Subject> {
    let ours = ours(subjects).last().map(|(_, it)| it.over_network(library::WHIMBREL, 1));
    ours.into_iter().chain(subjects.iter().filter(|it| !it.ours).map(|it| it.over_network(&it.name, 1))).collect()
}

/// Our library with each number of sockets.
fn striped(subjects: &[Subject]) -> impl Iterator<Item = Subject> {
    let ours = ours(subjects).last().map(|(_, it)| it);
    ours.into_iter().flat_map(|it| (1..=striping::SOCKETS_MAX).map(|count| it.over_network(&striping::sockets(count), count)))
}

/// Our library's variants among the subjects; they come first.
fn ours(subjects: &[Subject]) -> impl Iterator<Item = (usize, &Subject)> {
    subjects.iter().enumerate().filter(|(_, subject)| subject.ours)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_told_in_the_largest_whole_unit() {
        for (bytes, label) in [(0, "0 B"), (1000, "1000 B"), (1536, "1536 B"), (4096, "4 KiB"), (3 << 20, "3 MiB")] {
            assert_eq!(size_label(bytes), label);
        }
    }
}
