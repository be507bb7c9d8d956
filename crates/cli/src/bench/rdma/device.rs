//! The papers' figures over an RDMA device of this machine: real jobs, whose ranks share this host and reach each other through the device.

use super::perftest::Perftest;
use super::{CHECKSUM, DATAGRAMS, PIECES, Port, READ, WRITE, WRITE_EACH, add};
use crate::bench::chart::{Chart, Panel, Series, Shape};
use crate::bench::library::Subject;
use crate::bench::lines::{Line, Operation, Pattern};
use crate::bench::options::Options;
use crate::bench::rounds::{Plan, Session, Who};
use crate::bench::statistics::median;
use crate::bench::{Findings, allconn, overlap, size_label, table, told};
use serde_json::json;

const LENGTHS: [u64; 11] = [8, 64, 256, 1 << 10, 4 << 10, 16 << 10, 64 << 10, 256 << 10, 1 << 20, 2 << 20, 4 << 20];
const LENGTHS_QUICK: [u64; 4] = [8, 4 << 10, 64 << 10, 1 << 20];
/// Lengths of a rendezvous beside computing.
const LONG: [u64; 4] = [64 << 10, 256 << 10, 1 << 20, 4 << 20];
const LONG_QUICK: [u64; 1] = [1 << 20];
const JOBS: [u32; 6] = [2, 4, 8, 16, 32, 64];
const JOBS_QUICK: [u32; 2] = [2, 8];
/// What paper 001's device registers for each connection (§2.3), and for how many it counts that.
const PAPER_CONNECTION_BYTES: f64 = 1048576.0;
const PAPER_CONNECTIONS: f64 = 512.0;
/// Patterns: program, name, figure of paper 003 and what that one ran.
const PATTERNS: [(&str, &str, &str, &str); 2] = [("patterns/abinit", "ABINIT", "7", "ABINIT"), ("patterns/smg", "SMG", "8", "SMG2000")];
/// Ranks of a pattern at most: each computes, too.
const PATTERN_RANKS_MAX: u32 = 16;
const QUEUE_PAIRS: [u32; 5] = [1, 2, 3, 4, 8];
/// What is wanted beside perftest: at most so much of its latency, at least so much of its bandwidth.
const LATENCY_MAX: f64 = 1.15;
const BANDWIDTH_MIN: f64 = 0.9;
const STREAM_LENGTHS: [u64; 2] = [64 << 10, 1 << 20];

/// Runs all that is measured.
///
/// Errors: none of its own; runs that fail are told by the session.
pub fn run(session: &mut Session, port: &Port, found: &mut Findings) -> Result<(), String> {
    let source = format!("measured on {}", port.name);
    let quick = session.options.quick;
    let lengths = chosen(session.options, &LENGTHS, &LENGTHS_QUICK);
    let jobs = if session.options.jobs.is_empty() { if quick { &JOBS_QUICK[..] } else { &JOBS }.to_vec() } else { session.options.jobs.clone() };
    let options = Options { jobs, sizes: lengths, ..session.options.clone() };
    let long = Options { sizes: chosen(session.options, &LONG, &LONG_QUICK).into_iter().filter(|&bytes| bytes >= LONG[0]).collect(), ..options.clone() };

    let perftest = Perftest::over(port);
    let part = measured(session, &options, &[PIECES, WRITE_EACH, WRITE], |part| Ok(remote_access(part)))?;
    add(found, part, "001", &source);
    let part = measured(session, &options, &[READ, DATAGRAMS, CHECKSUM], |part| Ok(back_and_forth(part, perftest.as_ref().ok())))?;
    add(found, part, "003", &source);
    if let Ok(perftest) = &perftest {
        add(found, queue_pairs(perftest, &options), "003", &source);
    }
    let part = measured(session, &options, &[READ, DATAGRAMS], |part| {
        let (mut all, memory, counted) = (allconn::startup(part)?, allconn::memory(part)?, footprint(part));
        for one in [memory, counted] {
            all.tables.extend(one.tables);
            all.notes.extend(one.notes);
            all.charts.extend(one.charts);
            all.rows.extend(one.rows);
        }
        Ok(all)
    })?;
    add(found, part, "003", &source);
    let part = measured(session, &options, &[READ, DATAGRAMS], |part| Ok(patterns(part)))?;
    add(found, part, "003", &source);
    if !long.sizes.is_empty() {
        add(found, measured(session, &long, &[READ, WRITE], overlap::run)?, "002", &source);
    }
    found.notes.push(format!("{}: {}. All ranks lie on this host, and the device carries what goes between them.", port.name, port.facts));
    found.notes.extend(perftest.err());
    if !crate::sys::makes_userfaultfd(true) {
        found.notes.push("The kernel tells of no changes of memory here (userfaultfd): nothing stays registered, with a cache or without.".to_owned());
    }
    Ok(())
}

fn chosen(options: &Options, all: &[u64], quick: &[u64]) -> Vec<u64> {
    if !options.sizes.is_empty() {
        return options.sizes.clone();
    }
    if options.quick { quick } else { all }.to_vec()
}

/// Runs an experiment with these of the session's subjects.
fn measured(session: &mut Session, options: &Options, names: &[&str], run: impl FnOnce(&mut Session) -> Result<Findings, String>) -> Result<Findings, String> {
    let subjects: Vec<Subject> = session.subjects.iter().filter(|it| names.contains(&it.name.as_str())).cloned().collect();
    let mut part = Session::new(options, &subjects);
    let found = run(&mut part)?;
    session.ours_failed |= part.ours_failed;
    session.samples.append(&mut part.samples);
    session.failures.append(&mut part.failures);
    Ok(found)
}

fn plan(name: &str, program: &'static str, ranks: u32, args: Vec<String>) -> Plan {
    Plan { name: name.to_owned(), program, ranks, args, who: Who::All }
}

fn pallas(options: &Options, operations: &str, ranks: u32) -> Plan {
    let list: Vec<String> = options.sizes.iter().map(u64::to_string).collect();
    let budget_ms = if options.quick { 30 } else { 120 };
    let args = vec![format!("operations={operations}"), format!("bytes={}", list.join(",")), format!("budget_ms={budget_ms}")];
    plan(operations, "network/pallas", ranks, args)
}

/// Median of what `pick` finds in a subject's lines of all rounds; NaN where every run failed.
fn middle(session: &Session, subject: usize, pick: impl Fn(&Line) -> Option<f64>) -> f64 {
    let name = &session.subjects[subject].name;
    let values: Vec<f64> = session.samples.iter().filter(|it| it.library == *name).filter_map(|it| pick(&it.line)).collect();
    median(&values)
}

/// One measurement of one length.
fn operation_us(session: &Session, subject: usize, bytes: u64, of: fn(&Line) -> Option<&Operation>) -> f64 {
    middle(session, subject, |line| of(line).filter(|it| it.bytes == bytes).map(|it| it.median_us))
}

fn ping_pong(line: &Line) -> Option<&Operation> {
    if let Line::Pingpong(line) = line { Some(line) } else { None }
}

fn send_receive(line: &Line) -> Option<&Operation> {
    if let Line::Sendrecv(line) = line { Some(line) } else { None }
}

fn all_reduce(line: &Line) -> Option<&Operation> {
    if let Line::Allreduce(line) = line { Some(line) } else { None }
}

/// What a figure shows of a time in µs and a length in bytes.
#[derive(Clone, Copy)]
enum Shown {
    Time,
    /// MB/s, of so many times the length.
    Rate(f64),
}

impl Shown {
    fn of(self, us: f64, bytes: u64) -> f64 {
        match self {
            Shown::Time => us,
            Shown::Rate(times) => times * bytes as f64 / us,
        }
    }

    fn unit(self) -> &'static str {
        if matches!(self, Shown::Time) { "µs" } else { "MB/s" }
    }
}

/// A figure over lengths, of all subjects of the session: its panel; its table goes to the findings.
fn figure(session: &Session, title: String, number: &str, shown: Shown, of: fn(&Line) -> Option<&Operation>, part: &mut Findings) -> Panel {
    let lengths: Vec<u64> = session.options.sizes.iter().map(|bytes| bytes.next_multiple_of(8)).collect();
    let names = session.subjects.iter().map(|it| it.name.clone());
    let mut table = table(std::iter::once("message size".to_owned()).chain(names.clone()).collect(), 1);
    let mut series: Vec<Series> = names.map(|name| Series { name, points: Vec::new() }).collect();
    for (place, &bytes) in lengths.iter().enumerate() {
        let mut row = vec![size_label(bytes)];
        for (at, series) in series.iter_mut().enumerate() {
            let value = shown.of(operation_us(session, at, bytes, of), bytes);
            row.push(told(value, 1));
            series.points.push((place as f64, value));
            part.rows.push(json!({ "figure": number, "title": title, "bytes": bytes, "series": series.name, "value": value, "unit": shown.unit() }));
        }
        table.add_row(row);
    }
    part.tables.push((format!("{title}, {}", shown.unit()), table));
    let categories = lengths.iter().map(|&bytes| size_label(bytes)).collect();
    Panel { title, x_label: "message size".to_owned(), y_label: shown.unit().to_owned(), categories, series, shape: Shape::Lines }
}

/// Paper 001, Figs. 5 to 9.
fn remote_access(session: &mut Session) -> Findings {
    let (options, ranks) = (session.options, session.options.ranks);
    session.measure(&[pallas(options, "pingpong,sendrecv", 2), pallas(options, "allreduce", ranks)]);
    let mut part = Findings::default();
    let panels = vec![
        figure(session, "PingPong".to_owned(), "5, 7", Shown::Rate(1.0), ping_pong, &mut part),
        figure(session, "SendReceive".to_owned(), "6, 8", Shown::Rate(2.0), send_receive, &mut part),
        figure(session, format!("Allreduce of {ranks} ranks"), "9", Shown::Time, all_reduce, &mut part),
    ];
    part.charts.push(("fig5-9".to_owned(), Chart { columns: 3, panels }));
    part.notes.push(
        "RC in pieces is the paper's \"without RDMA\": channel semantics alone, with a copy at both ends; RC, write, no cache registers memory for each\n\
         transfer; RC, write keeps it registered. Remote access begins at 16 KiB here, at 32,000 bytes in the paper."
            .to_owned(),
    );
    part
}

/// Paper 003, Figs. 3 and 4, and perftest beside.
fn back_and_forth(session: &mut Session, perftest: Option<&Perftest>) -> Findings {
    let options = session.options;
    let list: Vec<String> = STREAM_LENGTHS.iter().map(u64::to_string).collect();
    let budget = format!("budget_ms={}", if options.quick { 100 } else { 300 });
    let stream = vec![format!("bytes={}", list.join(",")), "window=16".to_owned(), budget];
    session.measure(&[pallas(options, "pingpong", 2), plan("stream", "network/pair", 2, stream)]);
    let mut part = Findings::default();
    let panels = vec![
        figure(session, "Latency of a pingpong".to_owned(), "3", Shown::Time, ping_pong, &mut part),
        figure(session, "Bandwidth of a pingpong".to_owned(), "4", Shown::Rate(1.0), ping_pong, &mut part),
    ];
    part.charts.push(("fig3-4".to_owned(), Chart { columns: 2, panels }));
    if let Some(perftest) = perftest {
        beside(session, perftest, &mut part);
    }
    part
}

/// What the device does without us, and the share that we reach.
fn beside(session: &Session, perftest: &Perftest, part: &mut Findings) {
    let quick = session.options.quick;
    let mut table = table(["measured", "perftest", "ours", "ours / perftest", "wanted"].map(str::to_owned).to_vec(), 1);
    let mut row = |what: String, theirs: Result<f64, String>, ours: f64, wanted: Option<String>| {
        let theirs = theirs.unwrap_or_else(|why| {
            part.notes.push(why);
            f64::NAN
        });
        table.add_row([what.clone(), told(theirs, 1), told(ours, 1), format!("{:.2}", ours / theirs), wanted.unwrap_or_default()]);
        part.rows.push(json!({ "beside": "perftest", "what": what, "perftest": theirs, "ours": ours }));
    };
    for (kind, name) in [("RC", READ), ("UD", DATAGRAMS)] {
        let Some(at) = session.subject(name) else { continue };
        let ours = |line: &Line| if let Line::Latency(line) = line { Some(line.median_us) } else { None };
        let wanted = (kind == "RC").then(|| format!("at most {LATENCY_MAX}"));
        let theirs = perftest.latency_us(kind, 8, if quick { 500 } else { 2000 });
        row(format!("8 bytes one way, {kind} (ib_send_lat), µs"), theirs, middle(session, at, ours), wanted);
    }
    let Some(at) = session.subject(READ) else { return };
    for bytes in STREAM_LENGTHS {
        let ours = |line: &Line| if let Line::Goodput(line) = line { Some(line.mb_s).filter(|_| line.bytes == bytes) } else { None };
        let theirs = perftest.mb_s("RC", true, bytes, if quick { 64 } else { 256 }, 1);
        row(format!("messages of {} (ib_write_bw), MB/s", size_label(bytes)), theirs, middle(session, at, ours), Some(format!("at least {BANDWIDTH_MIN}")));
    }
    part.tables.push(("Beside perftest on the same device, medians".to_owned(), table));
}

/// Paper 003, Fig. 2: datagrams over several queue pairs, by perftest, since this library sends over one.
fn queue_pairs(perftest: &Perftest, options: &Options) -> Findings {
    let mut part = Findings::default();
    let mut table = table(["queue pairs that send", "MB/s"].map(str::to_owned).to_vec(), 1);
    let mut points = Vec::new();
    const BYTES: u64 = 2048;
    for (place, &count) in QUEUE_PAIRS.iter().enumerate() {
        let each: Vec<f64> = (0..options.rounds)
            .filter_map(|_| {
                let measured = perftest.mb_s("UD", false, BYTES, if options.quick { 500 } else { 2000 }, count);
                measured.map_err(|why| part.notes.push(why)).ok()
            })
            .collect();
        let mb_s = median(&each);
        table.add_row([count.to_string(), told(mb_s, 1)]);
        points.push((place as f64, mb_s));
        part.rows.push(json!({ "figure": "2", "queue_pairs": count, "mb_s": mb_s, "all_mb_s": each, "program": "ib_send_bw" }));
    }
    let title = format!("Datagrams of {BYTES} bytes over several queue pairs (ib_send_bw -c UD)");
    part.tables.push((title.clone(), table));
    let panel = Panel {
        title,
        x_label: "queue pairs that send".to_owned(),
        y_label: "MB/s".to_owned(),
        categories: QUEUE_PAIRS.iter().map(u32::to_string).collect(),
        series: vec![Series { name: DATAGRAMS.to_owned(), points }],
        shape: Shape::Lines,
    };
    part.charts.push(("fig2".to_owned(), Chart { columns: 1, panels: vec![panel] }));
    part.notes.dedup();
    part
}

/// Registered memory and queue pairs of a rank that has spoken to all others, as the library counts them.
fn footprint(session: &Session) -> Findings {
    let mut part = Findings::default();
    let names = session.subjects.iter().flat_map(|it| [format!("{}, MiB", it.name), format!("{}, queue pairs", it.name)]);
    let headings = std::iter::once("ranks".to_owned()).chain(names).chain(["1 MiB a connection (paper 001), MiB".to_owned()]);
    let mut table = table(headings.collect(), 1);
    let mib = |bytes: f64| format!("{:.1}", bytes / f64::from(1 << 20));
    let paper_bytes = |ranks: f64| ranks * PAPER_CONNECTION_BYTES;
    let mut registered: Vec<Series> = session.subjects.iter().map(|it| Series { name: it.name.clone(), points: Vec::new() }).collect();
    for &ranks in &session.options.jobs {
        let mut row = vec![ranks.to_string()];
        for (at, series) in registered.iter_mut().enumerate() {
            let value = |of: fn(&crate::bench::lines::Allconn) -> f64| {
                middle(session, at, |line| if let Line::Allconn(line) = line { Some(of(line)).filter(|_| line.ranks == ranks) } else { None })
            };
            let (bytes, pairs) = (value(|line| line.registered_bytes), value(|line| line.queue_pairs));
            row.extend([mib(bytes), format!("{pairs:.0}")]);
            series.points.push((f64::from(ranks), bytes / f64::from(1 << 20)));
            part.rows.push(json!({ "counted": "footprint", "ranks": ranks, "library": series.name, "registered_bytes": bytes, "queue_pairs": pairs }));
        }
        row.push(mib(paper_bytes(f64::from(ranks - 1))));
        table.add_row(row);
    }
    part.tables.push(("Registered memory of the library and queue pairs, of a rank that has spoken to all others, counted".to_owned(), table));
    part.notes.push(format!("Paper 001 (§2.3): 1 MiB for each connection, {} MiB with {PAPER_CONNECTIONS} nodes.", mib(paper_bytes(PAPER_CONNECTIONS))));
    let panel = Panel {
        title: "Registered memory of a rank".to_owned(),
        x_label: "ranks".to_owned(),
        y_label: "MiB".to_owned(),
        categories: Vec::new(),
        series: registered,
        shape: Shape::Lines,
    };
    part.charts.push(("footprint".to_owned(), Chart { columns: 1, panels: vec![panel] }));
    part
}

/// Paper 003, Figs. 7 and 8, by programs of the same kind.
fn patterns(session: &mut Session) -> Findings {
    let options = session.options;
    let repeats = if options.quick { 3 } else { 10 };
    let args = vec![format!("repeats={repeats}"), format!("shorten={}", options.shorten)];
    let plans: Vec<Plan> = options
        .jobs
        .iter()
        .filter(|&&ranks| ranks <= PATTERN_RANKS_MAX)
        .flat_map(|&ranks| PATTERNS.map(|(program, name, ..)| plan(&format!("{name}, {ranks} ranks"), program, ranks, args.clone())))
        .collect();
    session.measure(&plans);
    let mut part = Findings::default();
    let mut panels = Vec::new();
    for (_, name, number, ran) in PATTERNS {
        let names = session.subjects.iter().map(|it| it.name.clone());
        let mut table = table(std::iter::once("ranks".to_owned()).chain(names.clone()).collect(), 1);
        let mut series: Vec<Series> = names.map(|name| Series { name, points: Vec::new() }).collect();
        for &ranks in options.jobs.iter().filter(|&&ranks| ranks <= PATTERN_RANKS_MAX) {
            let mut row = vec![ranks.to_string()];
            for (at, series) in series.iter_mut().enumerate() {
                let is_meant = |line: &&Pattern| line.name == name && line.ranks == ranks as usize && line.repeat > 0;
                let pick = |line: &Line| if let Line::Pattern(line) = line { Some(line).filter(is_meant).map(|line| line.total_us / 1e3) } else { None };
                let ms = middle(session, at, pick);
                row.push(told(ms, 1));
                series.points.push((f64::from(ranks), ms));
                part.rows.push(json!({ "figure": number, "pattern": name, "ranks": ranks, "library": series.name, "ms": ms }));
            }
            table.add_row(row);
        }
        let title = format!("{name}: a program with the exchanges of {ran}");
        part.tables.push((format!("{title}, ms"), table));
        let (x_label, y_label) = ("ranks".to_owned(), "ms".to_owned());
        panels.push(Panel { title, x_label, y_label, categories: Vec::new(), series, shape: Shape::Lines });
    }
    part.charts.push(("fig7-8".to_owned(), Chart { columns: 2, panels }));
    part
}
