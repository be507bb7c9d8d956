//! What does the VI Provider Library cost, beside what the machine gives? Paper 001, part 1: memory by shadow segments (its solution 2) against
//! memory that the library allocates (its solution 3), in one run with a cache line's transfer and one core's `memcpy`.

use super::chart::{Chart, Panel, Series, Shape};
use super::options::Options;
use super::statistics::median;
use super::{Findings, size_label, table};
use comfy_table::Table;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

const SOURCE: &str = include_str!("../../../../bench/vipl/measure.c");
/// What is asked of the library: latency of 4 bytes in transfers of a cache line, and bandwidth of 1 MiB in `memcpy`s.
const LATENCY_LINES_MAX: f64 = 1.3;
const ALLOCATED_SHARE_MIN: f64 = 0.9;
const SHADOW_SHARE_MIN: f64 = 0.45;
const MEMORY: [(&str, &str); 2] = [("shadow", "shadow segments"), ("allocated", "allocated segments")];

/// Values of each name and size, one or more for each round.
type Values = BTreeMap<(String, u64), Vec<f64>>;

/// Compiles the program against the prefix's library and runs it.
///
/// Errors: no prefix, library or compiler; the program does not build or fails.
pub fn run(options: &Options) -> Result<Findings, String> {
    let prefix = super::library::own_prefix(options)?;
    if !prefix.join("include/vipl.h").exists() || !prefix.join("lib/libvipl.so").exists() {
        return Err(format!("{} has no include/vipl.h and lib/libvipl.so; say --ours PREFIX", prefix.display()));
    }
    let program = build(&prefix)?;
    let (rounds, divide) = (options.rounds, if options.quick { 10 } else { 1 });
    let output = Command::new(&program).args([rounds.to_string(), divide.to_string()]).output().map_err(|error| format!("{}: {error}", program.display()));
    let _ = std::fs::remove_dir_all(program.parent().unwrap_or(&program));
    let output = output?;
    if !output.status.success() {
        return Err(format!("the program that measures ended with {}: {}", output.status, String::from_utf8_lossy(&output.stderr)));
    }
    let values = parse(&String::from_utf8_lossy(&output.stdout))?;
    Ok(findings(&values))
}

fn build(prefix: &Path) -> Result<PathBuf, String> {
    let folder = std::env::temp_dir().join(format!("whimbrel-bench-vipl-{}", std::process::id()));
    std::fs::create_dir_all(&folder).map_err(|error| format!("{}: {error}", folder.display()))?;
    let (source, program) = (folder.join("measure.c"), folder.join("measure"));
    std::fs::write(&source, SOURCE).map_err(|error| format!("{}: {error}", source.display()))?;
    let lib = prefix.join("lib");
    let mut compiler = Command::new(std::env::var_os("CC").unwrap_or("cc".into()));
    compiler.arg("-O2").arg(&source).arg("-o").arg(&program).arg("-I").arg(prefix.join("include"));
    compiler.arg("-L").arg(&lib).arg("-lvipl").arg(format!("-Wl,-rpath,{}", lib.display()));
    let built = compiler.output().map_err(|error| format!("cc: {error}"))?;
    if built.status.success() { Ok(program) } else { Err(String::from_utf8_lossy(&built.stderr).into_owned()) }
}

fn parse(text: &str) -> Result<Values, String> {
    let mut values = Values::new();
    for line in text.lines() {
        let mut words = line.split(' ');
        let parts = (words.next(), words.next().and_then(|word| word.parse().ok()), words.next().and_then(|word| word.parse().ok()));
        let (Some(name), Some(size), Some(value)) = parts else { return Err(format!("not understood: {line}")) };
        values.entry((name.to_owned(), size)).or_default().push(value);
    }
    Ok(values)
}

fn findings(values: &Values) -> Findings {
    let middle = |name: &str, size: u64| values.get(&(name.to_owned(), size)).map_or(f64::NAN, |all| median(all));
    let sizes = |name: &str| -> Vec<u64> { values.keys().filter(|key| key.0 == name).map(|key| key.1).collect() };
    // Each is set against what was measured just before it: the machine is not the same in all rounds.
    let ratio = |name: &str, limit: &str, size: u64, limit_size: u64| {
        let all = |name: &str, size: u64| values.get(&(name.to_owned(), size)).map_or(&[][..], |all| all);
        let ratios: Vec<f64> = all(name, size).iter().zip(all(limit, limit_size)).map(|(value, limit)| value / limit).collect();
        if ratios.is_empty() { f64::NAN } else { median(&ratios) }
    };
    let (line, lines) = (middle("line", 1), middle("lines", 1));
    let text = |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>();
    let mut latency = table(text(&["bytes", "shadow, ns", "allocated, ns", "allocated, in cache lines"]), 1);
    for size in sizes("latency-allocated") {
        let (shadow, allocated) = (middle("latency-shadow", size), middle("latency-allocated", size));
        latency.add_row([
            size_label(size),
            format!("{shadow:.0}"),
            format!("{allocated:.0}"),
            format!("{:.2}", if size == 4 { ratio("latency-allocated", "line", size, 1) } else { allocated / line }),
        ]);
    }
    let mut bandwidth = table(text(&["bytes", "memcpy, GB/s", "shadow, GB/s", "allocated, GB/s", "shadow, share", "allocated, share"]), 1);
    for size in sizes("memcpy") {
        let (copy, shadow, allocated) = (middle("memcpy", size), middle("bandwidth-shadow", size), middle("bandwidth-allocated", size));
        let shares = MEMORY.map(|(kind, _)| ratio(&format!("bandwidth-{kind}"), "memcpy", size, size));
        let numbers = [copy, shadow, allocated, shares[0], shares[1]].map(|value| format!("{value:.2}"));
        bandwidth.add_row(std::iter::once(size_label(size)).chain(numbers));
    }
    let mut batches: Table = table(text(&["descriptors taken over at a time", "sends that found theirs there"]), 0);
    for size in sizes("found") {
        batches.add_row([size.to_string(), format!("{:.1} %", 100.0 * middle("found", size))]);
    }
    let mib = 1 << 20;
    let says = |good: bool| if good { "yes" } else { "no" };
    let at_most = |what: &str, limit: &str| {
        let ratio = ratio("latency-allocated", limit, 4, 1);
        format!("4 bytes in at most {LATENCY_LINES_MAX} times a {what}: {ratio:.2}, {}", says(ratio <= LATENCY_LINES_MAX))
    };
    let share = |name: &str| ratio(name, "memcpy", mib, mib);
    let (allocated, shadow) = (share("bandwidth-allocated"), share("bandwidth-shadow"));
    let notes = vec![
        format!(
            "a cache line that goes back and forth takes {line:.0} ns from one core to the other, one of two lines, of which each core writes its own, \
             {lines:.0} ns; a handler is called {:.1} us after the message was posted",
            middle("callback", 0) / 1e3
        ),
        at_most("line that goes back and forth", "line"),
        at_most("line for each way", "lines"),
        format!("1 MiB at {ALLOCATED_SHARE_MIN} of memcpy with allocated segments: {allocated:.2}, {}", says(allocated >= ALLOCATED_SHARE_MIN)),
        format!("1 MiB at {SHADOW_SHARE_MIN} of memcpy with shadow segments: {shadow:.2}, {}", says(shadow >= SHADOW_SHARE_MIN)),
    ];
    let rows = values.iter().map(|((name, size), all)| serde_json::json!({ "name": name, "bytes": size, "median": median(all), "all": all })).collect();
    let tables = [("One way of a message", latency), ("One way, 1 sender", bandwidth), ("Receive descriptors", batches)];
    Findings {
        tables: tables.map(|(title, table)| (title.to_owned(), table)).into(),
        notes,
        charts: vec![("vipl".to_owned(), chart(values, line, lines))],
        rows,
    }
}

/// Latency and bandwidth of both solutions over sizes, with what the machine gives as guides.
fn chart(values: &Values, line: f64, lines: f64) -> Chart {
    let points = |name: &str, scale: f64| -> Vec<(f64, f64)> {
        values.iter().filter(|(key, _)| key.0 == name).map(|(key, all)| ((key.1 as f64).log2(), median(all) * scale)).collect()
    };
    let series = |kind: &str, scale: f64| MEMORY.map(|(short, name)| Series { name: name.to_owned(), points: points(&format!("{kind}-{short}"), scale) });
    let guide = |name: &str, points: Vec<(f64, f64)>| Series { name: name.to_owned(), points };
    let panel = |title: &str, y_label: &str, series: Vec<Series>| Panel {
        title: title.to_owned(),
        x_label: "message, log2 of bytes".to_owned(),
        y_label: y_label.to_owned(),
        categories: Vec::new(),
        series,
        shape: Shape::Lines,
    };
    let short = |all: Vec<Series>| -> Vec<Series> {
        all.into_iter().map(|it| Series { points: it.points.into_iter().filter(|point| point.0 <= 12.0).collect(), ..it }).collect()
    };
    let mut latency = short(series("latency", 1e-3).into());
    for (name, ns) in [("a line back and forth", line), ("a line for each way", lines)] {
        latency.push(guide(name, vec![(2.0, ns * 1e-3), (12.0, ns * 1e-3)]));
    }
    let mut bandwidth: Vec<Series> = series("bandwidth", 1.0).into();
    bandwidth.push(guide("memcpy of one core", points("memcpy", 1.0)));
    Chart { columns: 2, panels: vec![panel("Latency, one way", "us", latency), panel("Bandwidth, one way", "GB/s", bandwidth)] }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ratios_are_of_the_same_run() {
        let text = "line 1 100\nlines 1 80\nline 1 90\nlines 1 90\nline 1 99\nlines 1 85\nlatency-allocated 4 120\nlatency-allocated 4 130\nlatency-allocated 4 125\nlatency-shadow 4 150\n\
                    memcpy 1048576 10\nbandwidth-allocated 1048576 9.5\nbandwidth-shadow 1048576 4\ncallback 0 2000\nfound 32 0.96875\n";
        let found = findings(&parse(text).unwrap());
        assert_eq!(found.notes[1], "4 bytes in at most 1.3 times a line that goes back and forth: 1.26, yes");
        assert_eq!(found.notes[2], "4 bytes in at most 1.3 times a line for each way: 1.47, no");
        assert!(found.notes[3].ends_with("0.95, yes") && found.notes[4].ends_with("0.40, no"), "{:?}", found.notes);
        assert!(found.tables[2].1.to_string().contains("96.9 %"));
        assert!(parse("line 0").is_err());
    }
}
