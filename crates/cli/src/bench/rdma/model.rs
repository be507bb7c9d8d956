//! The papers' figures on the model of adapters (`sim::rdma`, `sim::device`).

use super::{MODEL, add};
use crate::bench::chart::{Chart, Panel, Series, Shape};
use crate::bench::options::Options;
use crate::bench::{Findings, registration_cache, size_label, table};
use serde_json::json;
use sim::rdma::{DATAGRAMS, PLATFORMS, Platform, Play, Registered, Way, one_way_ns};

/// The host of paper 003 and one of today.
const SHOWN: [&Platform; 2] = [&PLATFORMS[1], &PLATFORMS[2]];
/// Nodes of paper 001's cluster.
const NODES: u32 = 6;
const LENGTHS: [u64; 11] = [8, 64, 256, 1 << 10, 4 << 10, 16 << 10, 64 << 10, 256 << 10, 1 << 20, 2 << 20, 4 << 20];
const LENGTHS_QUICK: [u64; 4] = [8, 4 << 10, 64 << 10, 1 << 20];
/// Of a row of messages, all under way.
const STREAM_BYTES: usize = 1 << 20;
const STREAM_MESSAGES: usize = 32;
const QUEUE_PAIRS: [usize; 6] = [1, 2, 3, 4, 6, 8];
const RANKS: [u32; 6] = [2, 8, 32, 128, 512, 1024];

pub fn run(options: &Options, found: &mut Findings) {
    let own = if options.quick { LENGTHS_QUICK.to_vec() } else { LENGTHS.to_vec() };
    let lengths = if options.sizes.is_empty() { own } else { options.sizes.clone() };
    add(found, remote_access(&lengths), "001", MODEL);
    add(found, queue_pairs(), "003", MODEL);
    add(found, back_and_forth(&lengths), "003", MODEL);
    add(found, startup(), "003", MODEL);
    add(found, rendezvous(&lengths), "002", MODEL);
    for platform in &PLATFORMS {
        found.notes.push(format!("Model of {}: {}. The adapter: {}.", platform.device.name, platform.source, platform.device.source));
    }
}

/// One panel, whose table goes to the findings.
struct Figure<'a> {
    title: String,
    x_label: &'a str,
    y_label: &'a str,
    places: Vec<String>,
    /// Names, and a value for each place.
    series: Vec<(String, Vec<f64>)>,
    digits: usize,
}

impl Figure<'_> {
    fn add(self, part: &mut Findings, figure: &str) -> Panel {
        let Figure { title, x_label, y_label, places, series, digits } = self;
        let mut table = table(std::iter::once(x_label.to_owned()).chain(series.iter().map(|it| it.0.clone())).collect(), 1);
        for (at, place) in places.iter().enumerate() {
            table.add_row(std::iter::once(place.clone()).chain(series.iter().map(|it| format!("{:.digits$}", it.1[at]))));
            for (name, values) in &series {
                part.rows.push(json!({ "figure": figure, "title": title, "place": place, "series": name, "value": values[at], "unit": y_label }));
            }
        }
        part.tables.push((format!("{title}, {y_label}"), table));
        let points = |values: Vec<f64>| values.into_iter().enumerate().map(|(at, value)| (at as f64, value)).collect();
        let series = series.into_iter().map(|(name, values)| Series { name, points: points(values) }).collect();
        Panel { title, x_label: x_label.to_owned(), y_label: y_label.to_owned(), categories: places, series, shape: Shape::Lines }
    }
}

fn labels(lengths: &[u64]) -> Vec<String> {
    lengths.iter().map(|&bytes| size_label(bytes)).collect()
}

/// Paper 001, Figs. 5 to 9, by `registration_cache`'s model of a transfer: an allreduce is as many exchanges as doublings reach all, each with a sum.
fn remote_access(lengths: &[u64]) -> Findings {
    let mut part = Findings::default();
    let platform = &PLATFORMS[0];
    let steps = f64::from(NODES.next_power_of_two().ilog2());
    let ways = |is_exchange: bool, bytes: u64| registration_cache::ways(&platform.device, is_exchange, bytes);
    type Time<'a> = &'a dyn Fn(u64) -> [f64; 4];
    let rate = |times: [f64; 4], bytes: u64| times.map(|ns| bytes as f64 / ns * 1e3);
    let all_reduce = |bytes: u64| ways(true, bytes).map(|ns| steps * (ns + platform.device.copying_ns(bytes as usize)) / 1e3);
    let figures: [(&str, &str, String, &str, Time); 3] = [
        ("5, 7", "pingpong", "PingPong".to_owned(), "MB/s", &|bytes| rate(ways(false, bytes), bytes)),
        ("6, 8", "sendreceive", "SendReceive".to_owned(), "MB/s", &|bytes| rate(ways(true, bytes), 2 * bytes)),
        ("9", "allreduce", format!("Allreduce of {NODES} nodes"), "µs", &all_reduce),
    ];
    let mut panels = Vec::new();
    for (figure, _, title, unit, of) in figures {
        let values: Vec<[f64; 4]> = lengths.iter().map(|&bytes| of(bytes)).collect();
        // Registered for good is a guide of the other experiment.
        let series = registration_cache::NAMES[..3].iter().enumerate().map(|(at, name)| ((*name).to_owned(), values.iter().map(|all| all[at]).collect()));
        let title = format!("{title}, {}", platform.device.name);
        let figure_of = Figure {
            title,
            x_label: "message size",
            y_label: unit,
            places: labels(lengths),
            series: series.collect(),
            digits: if unit == "µs" { 1 } else { 0 },
        };
        panels.push(figure_of.add(&mut part, figure));
    }
    part.charts.push(("fig5-9".to_owned(), Chart { columns: 3, panels }));
    part
}

/// Paper 003, Fig. 2.
fn queue_pairs() -> Findings {
    let mut part = Findings::default();
    let rate = |platform: &Platform, queue_pairs: usize, acknowledged: bool| {
        Play::new(platform).stream(STREAM_MESSAGES, STREAM_BYTES, Way::Datagrams { queue_pairs, acknowledged }) * 1e3
    };
    let mut panels = Vec::new();
    for platform in SHOWN {
        let series = |acknowledged: bool| QUEUE_PAIRS.map(|count| rate(platform, count, acknowledged)).to_vec();
        let figure = Figure {
            title: format!("Datagrams over several queue pairs, {}", platform.device.name),
            x_label: "queue pairs that send",
            y_label: "MB/s",
            places: QUEUE_PAIRS.map(|count| count.to_string()).to_vec(),
            series: vec![(RELIABLE.to_owned(), series(true)), (BARE.to_owned(), series(false))],
            digits: 0,
        };
        panels.push(figure.add(&mut part, "2"));
    }
    part.charts.push(("fig2".to_owned(), Chart { columns: 2, panels }));
    part.notes.push("Paper 003: four queue pairs come near the best bandwidth. This library sends datagrams over one.".to_owned());
    part
}

const CONNECTIONS: &str = super::READ;
const RELIABLE: &str = super::DATAGRAMS;
const BARE: &str = "UD without data reliability";

/// Over a connection the cheaper of both ways.
fn connection_ns(platform: &Platform, bytes: usize) -> f64 {
    one_way_ns(platform, Way::Eager, bytes).min(one_way_ns(platform, Way::Read(Registered::Before), bytes))
}

/// Paper 003, Figs. 3 and 4.
fn back_and_forth(lengths: &[u64]) -> Findings {
    let mut part = Findings::default();
    let mut panels = Vec::new();
    for platform in SHOWN {
        let bare = Way::Datagrams { queue_pairs: 4, acknowledged: false };
        let times = |of: &dyn Fn(usize) -> f64| lengths.iter().map(|&bytes| of(bytes as usize)).collect::<Vec<f64>>();
        let all = [
            (CONNECTIONS, times(&|bytes| connection_ns(platform, bytes))),
            (RELIABLE, times(&|bytes| one_way_ns(platform, DATAGRAMS, bytes))),
            (BARE, times(&|bytes| one_way_ns(platform, bare, bytes))),
        ];
        let named = |of: &dyn Fn(u64, f64) -> f64| -> Vec<(String, Vec<f64>)> {
            let values = |times: &Vec<f64>| lengths.iter().zip(times).map(|(&bytes, &ns)| of(bytes, ns)).collect();
            all.iter().map(|(name, times)| ((*name).to_owned(), values(times))).collect()
        };
        let figure = |title: &str, y_label, series, digits| {
            let title = format!("{title}, {}", platform.device.name);
            Figure { title, x_label: "message size", y_label, places: labels(lengths), series, digits }
        };
        panels.push(figure("Latency of a pingpong", "µs", named(&|_, ns| ns / 1e3), 1).add(&mut part, "3"));
        panels.push(figure("Bandwidth of a pingpong", "MB/s", named(&|bytes, ns| bytes as f64 / ns * 1e3), 0).add(&mut part, "4"));
    }
    part.charts.push(("fig3-4".to_owned(), Chart { columns: 2, panels }));
    part.notes.push("Without data reliability: over four queue pairs, as in paper 003; with it over one, as this library sends.".to_owned());
    part
}

/// Paper 003, Fig. 5: each rank sends to every other for the first time. (Memory is counted, where there is a device.)
fn startup() -> Findings {
    let mut part = Findings::default();
    let mut panels = Vec::new();
    for platform in SHOWN {
        let ms = |ranks: u32, way: Way, connects: bool| {
            // Behind the connection, which nothing overtakes.
            let one_ns = if connects { Play::new(platform).first_over_connection(8) } else { one_way_ns(platform, way, 8) };
            f64::from(ranks - 1) * one_ns / 1e6
        };
        let figure = Figure {
            title: format!("Every rank sends to every other, {}", platform.device.name),
            x_label: "ranks",
            y_label: "ms",
            places: RANKS.map(|ranks| ranks.to_string()).to_vec(),
            series: vec![
                (CONNECTIONS.to_owned(), RANKS.map(|ranks| ms(ranks, Way::Eager, true)).to_vec()),
                (RELIABLE.to_owned(), RANKS.map(|ranks| ms(ranks, DATAGRAMS, false)).to_vec()),
            ],
            digits: 2,
        };
        panels.push(figure.add(&mut part, "5"));
    }
    part.charts.push(("fig5".to_owned(), Chart { columns: 2, panels }));
    part
}

/// Side that computes and side that calls first, as in paper 002.
const SCENARIOS: [(usize, usize, &str); 4] = [
    (1, 1, "receiver computes, receiver first"),
    (1, 0, "receiver computes, sender first"),
    (0, 0, "sender computes, sender first"),
    (0, 1, "sender computes, receiver first"),
];

/// Paper 002, Fig. 13, over remote read and write: which share of a transfer passes while one side computes as long as the transfer takes.
fn rendezvous(lengths: &[u64]) -> Findings {
    let mut part = Findings::default();
    let lengths: Vec<u64> = lengths.iter().copied().filter(|&bytes| bytes >= 16 << 10).collect();
    if lengths.is_empty() {
        return part;
    }
    let platform = SHOWN[0];
    let mut panels = Vec::new();
    for (computes, first, title) in SCENARIOS {
        let share = |way: Way, bytes: u64| {
            let [alone_ns, both_ns] = [false, true].map(|does| {
                let compute_ns = if does { one_way_ns(platform, way, bytes as usize) } else { 0.0 };
                Play::new(platform).send_beside(way, bytes as usize, computes, first, compute_ns)
            });
            let compute_ns = one_way_ns(platform, way, bytes as usize);
            ((alone_ns + compute_ns - both_ns) / alone_ns.min(compute_ns)).clamp(0.0, 1.0) * 100.0
        };
        let series = |name: &str, way: Way| (name.to_owned(), lengths.iter().map(|&bytes| share(way, bytes)).collect());
        let figure = Figure {
            title: format!("{title}, {}", platform.device.name),
            x_label: "message size",
            y_label: "overlap, %",
            places: labels(&lengths),
            series: vec![series(super::READ, Way::Read(Registered::Before)), series(super::WRITE, Way::Write(Registered::Before))],
            digits: 0,
        };
        panels.push(figure.add(&mut part, "13"));
    }
    part.charts.push(("fig13".to_owned(), Chart { columns: 2, panels }));
    part.notes.push(
        "Rendezvous on the model: nobody helps a side that computes. A read asks nothing of the sender's processor, a write all of it; a receiver that is\n\
         computing when it is told of the message begins when it is through, as before paper 002."
            .to_owned(),
    );
    part
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_read_overlaps_the_senders_computing_and_a_write_does_not() {
        let part = rendezvous(&[1 << 20]);
        let share = |title: &str, name: &str| {
            let of = |row: &&serde_json::Value| row["title"].as_str().is_some_and(|it| it.starts_with(title)) && row["series"] == name;
            part.rows.iter().find(of).unwrap()["value"].as_f64().unwrap()
        };
        for (title, read, write) in [
            ("receiver computes, receiver first", 0.0..5.0, 0.0..5.0),
            ("receiver computes, sender first", 95.0..101.0, 0.0..101.0),
            ("sender computes, sender first", 95.0..101.0, 0.0..5.0),
            ("sender computes, receiver first", 95.0..101.0, 0.0..5.0),
        ] {
            let found = [share(title, super::super::READ), share(title, super::super::WRITE)];
            assert!(read.contains(&found[0]) && write.contains(&found[1]), "{title}: {found:?}");
        }
    }

    #[test]
    fn connections_cost_at_the_start_and_datagrams_later() {
        let part = startup();
        let value = |place: &str, name: &str| {
            let of = |row: &&serde_json::Value| row["place"] == place && row["series"] == name;
            part.rows.iter().find(of).unwrap()["value"].as_f64().unwrap()
        };
        assert!(value("1024", CONNECTIONS) > 10.0 * value("1024", RELIABLE));
        let platform = SHOWN[0];
        assert!(connection_ns(platform, 8) < one_way_ns(platform, DATAGRAMS, 8));
    }
}
