//! What does a program gain whose frequent buffers are sent from without a copy? Paper 000, Figs. 1, 4, 5 and 6, on models of
//! adapters; what decides is `memory::usage` and `memory::cache`. And a program that changes its buffers all the time.

use super::chart::{Chart, Panel, Series, Shape};
use super::eager_model::{PAPER, PLATFORMS, Platform, Process};
use super::eager_trees::{self, Collective};
use super::options::Options;
use super::{Findings, reuse_profiles, size_label, table};
use memory::usage::{Settings, UsageTable};
use serde_json::json;

const SIZES: [u64; 10] = [128, 256, 512, 1 << 10, 2 << 10, 4 << 10, 8 << 10, 16 << 10, 32 << 10, 64 << 10];
const SIZES_QUICK: [u64; 4] = [128, 1 << 10, 8 << 10, 64 << 10];
/// Blocks of the collectives, close around half of the paper's switch to rendezvous.
const BLOCKS: [u64; 11] = [128, 256, 512, 1 << 10, 2 << 10, 3 << 10, 4 << 10, 4608, 5 << 10, 6 << 10, 8 << 10];
const BLOCKS_QUICK: [u64; 3] = [1 << 10, 4 << 10, 8 << 10];
/// Messages of a hot buffer (§5.1.1) and calls of a collective (§5.1.3).
const MESSAGES: usize = 10_000;
const CALLS_QUICK: usize = 1_000;
/// Buffers of the spectrum; buffer `i` is used `i` times (§5.1.2).
const SPECTRUM: usize = 1_000;
/// Messages without any reuse.
const ONCE: usize = 100_000;
/// Messages that a program sends, until it changes its buffers, how many it has and how long they are.
const CHANGING: usize = 10_000_000;
const CHANGING_QUICK: usize = 500_000;
const CHANGE_EVERY: usize = 10_000;
const HOT: usize = 16;
const HOT_BYTES: usize = 4096;
/// Most registered bytes and entries of that program: far fewer than it ever sends from.
const REGISTERED_MAX: (usize, usize) = (1 << 20, 256);
/// Messages after a change that are plotted one by one, in groups of so many.
const AFTER_CHANGE: (usize, usize) = (500, 10);
/// Where buffers begin.
const START: usize = 1 << 30;

/// Runs the experiment.
///
/// Errors: none.
pub fn run(options: &Options) -> Result<Findings, String> {
    let own = if options.quick { SIZES_QUICK.to_vec() } else { SIZES.to_vec() };
    let sizes = if options.sizes.is_empty() { own } else { options.sizes.iter().copied().filter(|&bytes| bytes > 0).collect() };
    let mut found = Findings::default();
    let (mut messages, mut trees) = (Vec::new(), Vec::new());
    for platform in &PLATFORMS {
        messages.extend(one_way(platform, &sizes, &mut found));
        messages.push(spectra(platform, &sizes, &mut found));
        trees.push(collectives(platform, options.quick, &mut found));
        let (device, limit) = (&platform.device, size_label(platform.eager_bytes_max() as u64));
        found.notes.push(format!("{}: {};\n{}. Eager up to {limit} by its costs.", device.name, device.source, platform.search_source));
    }
    found.charts.push(("buffer-reuse-fig1-4-5".to_owned(), Chart { columns: 3, panels: messages }));
    found.charts.push(("buffer-reuse-fig6".to_owned(), Chart { columns: 2, panels: trees }));
    changes(if options.quick { CHANGING_QUICK } else { CHANGING }, &mut found);
    reuse_profiles::add(&mut found);
    found.notes.push(
        "All times are the models'. What the paper's platform was fitted to proves nothing: n, 15 % and 14 % at 8 KiB, and eager messages up to\n\
         9 KiB. The other sizes of Fig. 4, and Figs. 5 and 6, follow. Paper: 12.7 % at 8 KiB in Fig. 5; broadcast up to 19 % on 4 processes, and\n\
         scatter around 0 above 4.5 KiB. Behind the limit of eager messages, Figs. 1, 4 and 5 have what they would gain if they went on."
            .to_owned(),
    );
    Ok(found)
}

/// Improvement of the mean one-way latency of messages from these addresses, percent, and registrations.
fn improvement(platform: &Platform, bytes: usize, addresses: impl ExactSizeIterator<Item = usize>) -> (f64, u64) {
    let mut process = Process::new(platform, Some(Settings::default()));
    let (copied_ns, messages) = (platform.copied_ns(bytes), addresses.len() as f64);
    let spared_ns: f64 = addresses.map(|address| copied_ns - process.message_ns(address, bytes).0).sum();
    (spared_ns / (copied_ns * messages) * 100.0, process.cache().counters().registrations)
}

/// Of messages from one buffer.
fn hot(platform: &Platform, bytes: usize, messages: usize) -> f64 {
    improvement(platform, bytes, (0..messages).map(|_| START)).0
}

/// Of messages that have a buffer each.
fn once(platform: &Platform, bytes: usize, messages: usize) -> (f64, u64) {
    let stride = Layout::Apart.stride(bytes, platform.device.page_bytes);
    improvement(platform, bytes, (0..messages).map(|message| START + message * stride))
}

/// Fig. 1, Table 2 and Fig. 4.
fn one_way(platform: &Platform, sizes: &[u64], found: &mut Findings) -> [Panel; 2] {
    let name = platform.device.name;
    let headings = ["size", "latency µs", "copy µs", "possible %", "n", "paper's n", "direct after", "hot buffer %", "hot, of possible", "each buffer once %"];
    let mut table = table(headings.map(str::to_owned).to_vec(), 1);
    let [mut latency, mut copy, mut possible, mut seen, mut without] =
        ["latency", "copy", "possible", "hot buffer", "each buffer once"].map(|name| Series { name: name.to_owned(), points: Vec::new() });
    let thresholds = platform.thresholds();
    for (place, &size) in sizes.iter().enumerate() {
        let bytes = size as usize;
        let (latency_ns, copy_ns) = (platform.copied_ns(bytes), platform.device.copying_ns(bytes));
        let bound = platform.theoretical(bytes) * 100.0;
        let (gain, (loss, _)) = (hot(platform, bytes, MESSAGES), once(platform, bytes, ONCE));
        let number = |value: Option<u64>| value.map_or("–".to_owned(), |value| value.to_string());
        let (model_n, paper_n) = (platform.modelled_messages_to_pay(bytes), platform.given_messages_to_pay(bytes));
        table.add_row([
            size_label(size),
            format!("{:.2}", latency_ns / 1e3),
            format!("{:.2}", copy_ns / 1e3),
            format!("{bound:.1}"),
            number(model_n),
            number(paper_n),
            number(thresholds.of(bytes).map(u64::from)),
            format!("{gain:+.1}"),
            format!("{:.2}", gain / bound),
            format!("{loss:+.2}"),
        ]);
        for (series, y) in [(&mut latency, latency_ns / 1e3), (&mut copy, copy_ns / 1e3), (&mut possible, bound), (&mut seen, gain), (&mut without, loss)] {
            series.points.push((place as f64, y));
        }
        found.rows.push(json!({
            "figure": "1, 4", "model": true, "adapter": name, "bytes": bytes, "latency_ns": latency_ns, "copy_ns": copy_ns,
            "possible_percent": bound, "n": model_n, "paper_n": paper_n, "threshold": thresholds.of(bytes), "hot_percent": gain,
            "once_percent": loss,
        }));
    }
    found.tables.push((
        format!("Model: an eager message one way, {name}; what it gains when it leaves from its buffer, {MESSAGES} from one buffer, and {ONCE} from as many"),
        table,
    ));
    let panel = |title: String, y_label: &str, series: Vec<Series>| sized(title, sizes, y_label, series);
    [
        panel(format!("Latency and copy, {name} (model)"), "µs", vec![latency, copy]),
        panel(format!("Improvement, {name} (model)"), "%", vec![possible, seen, without]),
    ]
}

fn sized(title: String, sizes: &[u64], y_label: &str, series: Vec<Series>) -> Panel {
    let categories = sizes.iter().map(|&bytes| size_label(bytes)).collect();
    Panel { title, x_label: "message size".to_owned(), y_label: y_label.to_owned(), categories, series, shape: Shape::Lines }
}

/// How the buffers of the spectrum lie.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Layout {
    /// No byte is between two.
    BackToBack,
    /// Each begins on a page of its own; their pages touch.
    OneToAPage,
    /// A page is between two, so that no registration joins them.
    Apart,
}

impl Layout {
    const ALL: [(Layout, &'static str); 3] = [(Layout::BackToBack, "back to back"), (Layout::OneToAPage, "one to a page"), (Layout::Apart, "a page apart")];

    fn stride(self, bytes: usize, page_bytes: usize) -> usize {
        match self {
            Layout::BackToBack => bytes,
            Layout::OneToAPage => bytes.next_multiple_of(page_bytes),
            Layout::Apart => bytes.next_multiple_of(page_bytes) + page_bytes,
        }
    }
}

/// In which order the spectrum's messages come, which the paper does not say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Order {
    /// All of a buffer's, then the next buffer's.
    OneByOne,
    /// One of each buffer that has any left, again and again.
    InTurn,
}

struct Spectrum {
    percent: f64,
    registrations: u64,
    direct: u64,
    messages: u64,
}

fn spectrum(platform: &Platform, bytes: usize, layout: Layout, order: Order) -> Spectrum {
    let mut process = Process::new(platform, Some(Settings::default()));
    let stride = layout.stride(bytes, platform.device.page_bytes);
    let copied_ns = platform.copied_ns(bytes);
    let (mut spared_ns, mut direct, mut messages) = (0.0, 0, 0);
    let mut send = |buffer: usize| {
        let (ns, is_direct) = process.message_ns(START + buffer * stride, bytes);
        spared_ns += copied_ns - ns;
        direct += u64::from(is_direct);
        messages += 1;
    };
    match order {
        Order::OneByOne => (1..=SPECTRUM).for_each(|buffer| (0..buffer).for_each(|_| send(buffer))),
        Order::InTurn => (1..=SPECTRUM).for_each(|round| (round..=SPECTRUM).for_each(&mut send)),
    }
    let registrations = process.cache().counters().registrations;
    Spectrum { percent: spared_ns / (copied_ns * messages as f64) * 100.0, registrations, direct, messages }
}

/// Fig. 5.
fn spectra(platform: &Platform, sizes: &[u64], found: &mut Findings) -> Panel {
    const IN_TURN: &str = "a page apart, in turn";
    let ways: Vec<(Layout, Order, &str)> = Layout::ALL.into_iter().map(|(layout, name)| (layout, Order::OneByOne, name)).collect();
    let ways = [ways, vec![(Layout::Apart, Order::InTurn, IN_TURN)]].concat();
    let name = platform.device.name;
    let columns = ways.iter().flat_map(|way| [format!("{} %", way.2), "registrations".to_owned()]);
    let mut table = table(["size".to_owned(), "possible %".to_owned()].into_iter().chain(columns).collect(), 1);
    let mut series: Vec<Series> = ways.iter().map(|way| Series { name: way.2.to_owned(), points: Vec::new() }).collect();
    let mut possible = Series { name: "possible".to_owned(), points: Vec::new() };
    for (place, &size) in sizes.iter().enumerate() {
        let bound = platform.theoretical(size as usize) * 100.0;
        possible.points.push((place as f64, bound));
        let mut row = vec![size_label(size), format!("{bound:.1}")];
        for (&(layout, order, way), series) in ways.iter().zip(&mut series) {
            let it = spectrum(platform, size as usize, layout, order);
            row.extend([format!("{:+.1}", it.percent), it.registrations.to_string()]);
            series.points.push((place as f64, it.percent));
            found.rows.push(json!({
                "figure": "5", "model": true, "adapter": name, "bytes": size, "layout": way, "percent": it.percent,
                "registrations": it.registrations, "direct": it.direct, "messages": it.messages,
            }));
        }
        table.add_row(row);
    }
    found
        .tables
        .push((format!("Model: {SPECTRUM} buffers, of which buffer i is used i times, {name}; improvement, and registrations of the real cache"), table));
    series.push(possible);
    sized(format!("Spectrum of reuse, {name} (model)"), sizes, "%", series)
}

/// Fig. 6.
fn collectives(platform: &Platform, quick: bool, found: &mut Findings) -> Panel {
    let (blocks, calls) = if quick { (&BLOCKS_QUICK[..], CALLS_QUICK) } else { (&BLOCKS[..], MESSAGES) };
    let ways = [
        (Collective::Broadcast, "broadcast"),
        (Collective::Scatter { temporary_moves: true }, "scatter"),
        (Collective::Scatter { temporary_moves: false }, "scatter, temporary memory stays"),
    ];
    let name = platform.device.name;
    let headings = ["size"].into_iter().chain(ways.map(|way| way.1)).chain(["scatter's first message", "is sent"]);
    let mut table = table(headings.map(str::to_owned).collect(), 1);
    let mut series = ways.map(|way| Series { name: way.1.to_owned(), points: Vec::new() });
    for (place, &bytes) in blocks.iter().enumerate() {
        let gains = ways.map(|way| eager_trees::improvement(platform, way.0, bytes as usize, calls) * 100.0);
        let first = bytes as usize * eager_trees::PROCESSES / 2;
        let how = if first > platform.eager_bytes_max() { "by rendezvous" } else { "eagerly" };
        let words = [size_label(bytes)].into_iter().chain(gains.map(|gain| format!("{gain:+.1}")));
        table.add_row(words.chain([size_label(first as u64), how.to_owned()]));
        for ((way, gain), series) in ways.iter().zip(gains).zip(&mut series) {
            series.points.push((place as f64, gain));
            found.rows.push(json!({
                "figure": "6", "model": true, "adapter": name, "collective": way.1, "bytes": bytes, "percent": gain,
                "first_message_bytes": first, "eager_bytes_max": platform.eager_bytes_max(),
            }));
        }
    }
    let title = format!("Model: binomial trees of {} processes, {name}; improvement of the mean time of all processes, %", eager_trees::PROCESSES);
    found.tables.push((title, table));
    sized(format!("Collectives, {name} (model)"), blocks, "%", series.into())
}

/// What became of a program that changes its buffers.
struct Changed {
    /// At the end of each phase, bytes of the table and registered bytes.
    table_bytes: Vec<usize>,
    registered_bytes: Vec<usize>,
    /// Share of the messages of each phase that left directly, percent.
    direct_percent: Vec<f64>,
    /// The same of each group of messages after a change, of all phases.
    after_change_percent: Vec<f64>,
    /// Buffers that the program has sent from.
    buffers: usize,
    counters: memory::usage::Counters,
}

/// [`HOT`] buffers in turn, and others after every [`CHANGE_EVERY`] messages.
fn change(messages: usize) -> Changed {
    let mut process = Process::with_limits(&PAPER, Some(Settings::default()), REGISTERED_MAX.0, REGISTERED_MAX.1);
    let phases = messages / CHANGE_EVERY;
    let mut groups = vec![0usize; AFTER_CHANGE.0 / AFTER_CHANGE.1];
    let (mut table_bytes, mut registered_bytes, mut direct_percent) = (Vec::new(), Vec::new(), Vec::new());
    for phase in 0..phases {
        let mut direct = 0;
        for message in 0..CHANGE_EVERY {
            let buffer = phase * HOT + message % HOT;
            let prepared = process.prepare(START + buffer * 2 * HOT_BYTES, HOT_BYTES);
            direct += usize::from(prepared.is_direct);
            if let Some(group) = groups.get_mut(message / AFTER_CHANGE.1) {
                *group += usize::from(prepared.is_direct);
            }
        }
        table_bytes.push(process.table().map_or(0, UsageTable::bytes));
        registered_bytes.push(process.cache().counters().bytes);
        direct_percent.push(direct as f64 * 100.0 / CHANGE_EVERY as f64);
    }
    let of_all = (phases * AFTER_CHANGE.1).max(1) as f64;
    Changed {
        table_bytes,
        registered_bytes,
        direct_percent,
        after_change_percent: groups.into_iter().map(|direct| direct as f64 * 100.0 / of_all).collect(),
        buffers: phases * HOT,
        counters: process.table().map(|table| *table.counters()).unwrap_or_default(),
    }
}

fn changes(messages: usize, found: &mut Findings) {
    let changed = change(messages);
    let most = |bytes: &[usize]| bytes.iter().copied().max().unwrap_or(0);
    let least = changed.direct_percent.iter().copied().fold(f64::INFINITY, f64::min);
    let mean = changed.direct_percent.iter().sum::<f64>() / changed.direct_percent.len() as f64;
    let headings =
        ["messages", "changes", "buffers", "table most KiB", "may have KiB", "registered most KiB", "forgotten", "direct %", "least after a change %"];
    let mut table = table(headings.map(str::to_owned).to_vec(), 0);
    let kib = |bytes: usize| format!("{:.0}", bytes as f64 / 1024.0);
    table.add_row([
        messages.to_string(),
        (changed.direct_percent.len() - 1).to_string(),
        changed.buffers.to_string(),
        kib(most(&changed.table_bytes)),
        kib(UsageTable::bytes_max(&Settings::default())),
        kib(most(&changed.registered_bytes)),
        changed.counters.forgotten.to_string(),
        format!("{mean:.2}"),
        format!("{least:.2}"),
    ]);
    found.rows.push(json!({
        "program": "changes its buffers", "model": false, "messages": messages, "change_every": CHANGE_EVERY, "buffers": changed.buffers,
        "table_bytes": changed.table_bytes, "registered_bytes": changed.registered_bytes, "direct_percent": changed.direct_percent,
        "after_change_percent": changed.after_change_percent, "after_change_messages": AFTER_CHANGE.1, "forgotten": changed.counters.forgotten,
    }));
    found.tables.push((format!("Counted: {HOT} buffers of {} in turn, and others after every {CHANGE_EVERY} messages", size_label(HOT_BYTES as u64)), table));
    let lines = |title: &str, x_label: &str, y_label: &str, series: Vec<Series>| Panel {
        title: format!("{title} (counted)"),
        x_label: x_label.to_owned(),
        y_label: y_label.to_owned(),
        categories: Vec::new(),
        series,
        shape: Shape::Lines,
    };
    let phases = |name: &str, values: Vec<f64>| {
        let points = values.into_iter().enumerate().map(|(phase, value)| (((phase + 1) * CHANGE_EVERY) as f64 / 1e6, value)).collect();
        Series { name: name.to_owned(), points }
    };
    let in_kib = |bytes: &[usize]| bytes.iter().map(|&bytes| bytes as f64 / 1024.0).collect();
    let groups = changed.after_change_percent.iter().enumerate().map(|(group, &percent)| (((group + 1) * AFTER_CHANGE.1) as f64, percent));
    let after = Series { name: "direct after a change".to_owned(), points: groups.collect() };
    let panels = vec![
        lines("The usage table", "million messages", "KiB", vec![phases("usage table", in_kib(&changed.table_bytes))]),
        lines("Messages that leave from their buffers", "million messages", "% since the last change", vec![phases("direct", changed.direct_percent)]),
        lines("Messages that leave from their buffers", "messages since a change", "%, mean of all changes", vec![after]),
    ];
    found.charts.push(("buffer-reuse-changes".to_owned(), Chart { columns: 3, panels }));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_message_gains_more_than_its_copy() {
        for platform in &PLATFORMS {
            for bytes in SIZES {
                let (gain, bound) = (hot(platform, bytes as usize, MESSAGES), platform.theoretical(bytes as usize) * 100.0);
                assert!(gain < bound, "{}, {bytes} bytes: {gain} of {bound}", platform.device.name);
            }
        }
        // "around 14% for 8KB messages, very close to the 15% theoretical improvement"
        assert!((hot(&PAPER, 8192, MESSAGES) - 14.0).abs() < 0.25);
        assert_eq!(hot(&PAPER, 64, MESSAGES), 0.0, "off below 128 bytes");
    }

    #[test]
    fn a_spectrum_is_the_sum_over_its_buffers() {
        for platform in &PLATFORMS {
            for bytes in [1024, 8192] {
                let device = &platform.device;
                let threshold = platform.thresholds().of(bytes).unwrap() as usize;
                let copied = platform.copied_ns(bytes);
                let direct = copied - device.copying_ns(bytes) + platform.table_ns + platform.cache_ns + device.gather_ns;
                let buffer_ns = |uses: usize| {
                    let registers = if uses > threshold { device.registering_ns(bytes) } else { 0.0 };
                    uses.min(threshold) as f64 * (copied + platform.table_ns) + uses.saturating_sub(threshold) as f64 * direct + registers
                };
                let sum_ns: f64 = (1..=SPECTRUM).map(buffer_ns).sum();
                let messages = SPECTRUM * (SPECTRUM + 1) / 2;
                let it = spectrum(platform, bytes, Layout::Apart, Order::OneByOne);
                assert_eq!((it.messages, it.registrations), (messages as u64, (SPECTRUM - threshold) as u64));
                // Ageing halves what some buffers have been counted.
                let expected = 100.0 - sum_ns / messages as f64 / copied * 100.0;
                assert!((it.percent - expected).abs() < 0.02, "{}, {bytes} bytes: {}, as a sum {expected}", device.name, it.percent);
            }
        }
    }

    #[test]
    fn without_reuse_less_than_a_percent_is_lost_and_nothing_registered() {
        for platform in &PLATFORMS {
            for bytes in SIZES {
                let (gain, registrations) = once(platform, bytes as usize, ONCE);
                assert!(gain > -1.0, "{}, {bytes} bytes: {gain}", platform.device.name);
                // Where registering costs less than copying, the first message pays.
                if platform.modelled_messages_to_pay(bytes as usize) != Some(1) {
                    assert!(gain <= 0.0 && registrations == 0, "{}, {bytes} bytes: {gain}, {registrations}", platform.device.name);
                }
            }
        }
    }

    #[test]
    fn a_program_that_changes_its_buffers_is_followed_in_bounded_memory() {
        let changed = change(1_500_000);
        // Forgotten after log2(2 × 14) + 2 half-lives at most; a table grows when more than half of three quarters of its slots are taken.
        let half_life = Settings::default().half_life_uses as usize;
        let alive = (7 * half_life).div_ceil(CHANGE_EVERY) * HOT;
        let bound = (alive * 8 / 3).next_power_of_two() * 16;
        assert!(changed.table_bytes.iter().all(|&bytes| bytes <= bound), "{:?}, at most {bound}", changed.table_bytes);
        assert!(changed.buffers > 2 * alive, "far more buffers than the table has room for");
        assert!(changed.registered_bytes.iter().all(|&bytes| bytes <= REGISTERED_MAX.0));
        // All but the first messages of each buffer, after each change.
        let threshold = PAPER.thresholds().of(HOT_BYTES).unwrap() as usize;
        let expected = 100.0 - (HOT * threshold) as f64 * 100.0 / CHANGE_EVERY as f64;
        for (phase, percent) in changed.direct_percent.iter().enumerate() {
            // A half-life that ends in between makes them be counted again in part.
            assert!((expected - 2.3..=expected).contains(percent), "phase {phase}: {percent}, {expected}");
        }
        assert_eq!((changed.after_change_percent[0], *changed.after_change_percent.last().unwrap()), (0.0, 100.0));
    }

    #[test]
    fn all_tables_are_there_and_say_what_is_the_model() {
        let options = Options { quick: true, rounds: 1, sizes: vec![8192], ..Options::default() };
        let found = run(&options).unwrap();
        assert_eq!(found.tables.len(), 3 * PLATFORMS.len() + 2);
        let starts = |word: &str| found.tables.iter().filter(|(title, _)| title.starts_with(word)).count();
        assert_eq!((starts("Model: "), starts("Counted: ")), (3 * PLATFORMS.len(), 2));
        assert_eq!(found.charts.len(), 3);
    }
}
