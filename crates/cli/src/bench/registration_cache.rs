//! What does registration cost remote access, and what does the pin-down cache win back? Paper 001, part 2, Figs. 5 and 6, on the
//! model of its adapter; the cache is the real one.

use super::chart::{Chart, Panel, Series, Shape};
use super::options::Options;
use super::{Findings, size_label, table};
use memory::cache::{Counters, Limits, PinDownCache};
use memory::regions::{self, Regions};
use serde_json::json;
use sim::device::{Adapter, INFINIHOST, Profile, TODAY};
use std::collections::HashMap;

const SIZES: [u64; 11] = [1 << 10, 4 << 10, 16 << 10, 32 << 10, 64 << 10, 128 << 10, 256 << 10, 512 << 10, 1 << 20, 2 << 20, 4 << 20];
const SIZES_QUICK: [u64; 4] = [4 << 10, 64 << 10, 1 << 20, 4 << 20];
/// From so many bytes on, the paper's device used remote access (`IBVAPI_RDMA_MIN_PCK_SIZE`).
const REMOTE_ACCESS_BYTES_MIN: u64 = 32_000;
/// Transfers of a size, of which the first finds an empty cache.
const TRANSFERS: u64 = 1000;
/// What is wanted of the cache, percent of the rate with buffers that are registered for good.
const SHARE_MIN: f64 = 97.0;
pub const NAMES: [&str; 4] = ["without remote access", "with remote access", "with remote access and cache", "registered for good"];
/// Messages of the pieces of a buffer that are sent one by one.
const PIECE_BYTES: usize = 64 << 10;
const WHOLE_BYTES: usize = 1 << 20;

/// Runs the experiment.
///
/// Errors: none.
pub fn run(options: &Options) -> Result<Findings, String> {
    let own = if options.quick { SIZES_QUICK.to_vec() } else { SIZES.to_vec() };
    let sizes = if options.sizes.is_empty() { own } else { options.sizes.clone() };
    let mut found = Findings::default();
    let mut panels = Vec::new();
    for (profile, figures) in [(INFINIHOST, ["5", "6"]), (TODAY[0], ["as 5", "as 6"])] {
        for (is_exchange, figure) in [false, true].into_iter().zip(figures) {
            panels.push(curves(&profile, is_exchange, figure, &sizes, &mut found));
        }
        found.notes.push(format!("{}: {}.", profile.name, profile.source));
    }
    found.charts.push(("registration-cache-fig5-6".to_owned(), Chart { columns: 2, panels }));
    pieces(&mut found);
    found.notes.push(
        "All times are the model's. Paper: with remote access and without the cache, about two thirds of the bandwidth are lost in PingPong\n\
         and more in SendReceive; with the cache, nothing is. The model's registration costs were fitted to the first; the others follow."
            .to_owned(),
    );
    Ok(found)
}

/// A cache for one process.
fn cache(profile: Profile) -> PinDownCache<Adapter> {
    PinDownCache::new(Adapter::new(profile), Limits { bytes_max: 64 << 20, entries_max: 256, page_bytes: profile.page_bytes })
}

/// Time of one transfer, ns, in each of the four ways.
pub fn ways(profile: &Profile, is_exchange: bool, bytes: u64) -> [f64; 4] {
    let length = bytes as usize;
    let data = |pieces: usize| if is_exchange { profile.exchange_ns(length, pieces) } else { profile.transfer_ns(length, pieces) };
    // A copy into the sender's registered blocks and one out of the receiver's; an exchange copies both ways on each side.
    let copies = if is_exchange { 4.0 } else { 2.0 };
    let copied = data(2) + copies * profile.copying_ns(length);
    if bytes < REMOTE_ACCESS_BYTES_MIN {
        return [copied; 4];
    }
    // Header, then address and key of the receiver's buffer (§2.4.1), then the data.
    let good = 2.0 * profile.transfer_ns(0, 1) + data(1);
    // Sender and receiver register at the same time, and each has two buffers in an exchange.
    let buffers = if is_exchange { 2.0 } else { 1.0 };
    let each = good + buffers * (profile.registering_ns(length) + profile.deregistering_ns(length));
    // The real cache and regions of each process, whose registrations take the model's time.
    let mut processes = [0, 1].map(|_| (cache(*profile), Regions::new(regions::Limits::default())));
    let mut sum_ns = 0.0;
    for _ in 0..TRANSFERS {
        let mut longest_ns = 0.0f64;
        for (cache, regions) in &mut processes {
            let before_ns = cache.registrar().spent_ns;
            for buffer in 0..buffers as usize {
                let start = (1 << 30) + buffer * (64 << 20);
                let segment = start..start + length;
                let region = regions.declare(std::slice::from_ref(&segment)).expect("few regions");
                let pinned = regions.pin(region, cache).expect("less memory than the cache may hold");
                let may = pinned.keys().all(|key| cache.registrar().may_touch(key, &segment));
                assert!(may, "a key that does not open its buffer");
                regions.unpin(pinned, cache);
            }
            longest_ns = longest_ns.max(cache.registrar().spent_ns - before_ns);
        }
        sum_ns += good + longest_ns;
    }
    [copied, each, sum_ns / TRANSFERS as f64, good]
}

fn curves(profile: &Profile, is_exchange: bool, figure: &str, sizes: &[u64], found: &mut Findings) -> Panel {
    let title = format!("{}, {}", if is_exchange { "SendReceive" } else { "PingPong" }, profile.name);
    let mut table = table(["size"].into_iter().chain(NAMES).chain(["cache, % of for good"]).map(str::to_owned).collect(), 1);
    let mut series = NAMES.map(|name| Series { name: name.to_owned(), points: Vec::new() });
    let mut least = f64::INFINITY;
    for (place, &bytes) in sizes.iter().enumerate() {
        // The benchmark counts what goes both ways of an exchange.
        let data = bytes as f64 * if is_exchange { 2.0 } else { 1.0 };
        let rates = ways(profile, is_exchange, bytes).map(|ns| data / ns * 1e3);
        let share = rates[2] / rates[3] * 100.0;
        least = least.min(share);
        table.add_row(std::iter::once(size_label(bytes)).chain(rates.map(|rate| format!("{rate:.0}"))).chain([format!("{share:.1}")]));
        for ((name, rate), series) in NAMES.iter().zip(rates).zip(&mut series) {
            series.points.push((place as f64, rate));
            found.rows.push(json!({
                "figure": figure, "model": true, "adapter": profile.name, "exchange": is_exchange, "bytes": bytes, "way": name, "mb_s": rate,
            }));
        }
    }
    found.tables.push((format!("Model: {title}, MB/s"), table));
    let says = if least >= SHARE_MIN { "yes" } else { "no" };
    found.notes.push(format!("{title}: the cache at {SHARE_MIN} % of buffers registered for good, at all sizes: {least:.1}, {says}"));
    Panel {
        title: format!("{title} (model)"),
        x_label: "message size".to_owned(),
        y_label: "MB/s".to_owned(),
        categories: sizes.iter().map(|&bytes| size_label(bytes)).collect(),
        series: series.into(),
        shape: Shape::Lines,
    }
}

/// The search of paper 001's engine: a hash table of first pages, so that an entry is found by the page it begins with, and by no
/// other (§2.4.2).
#[derive(Default)]
struct FirstPages {
    pages: HashMap<usize, usize>,
    hits: u64,
    misses: u64,
}

impl FirstPages {
    fn acquire(&mut self, start: usize, bytes: usize, page_bytes: usize) {
        let (first, end) = (start / page_bytes, (start + bytes).div_ceil(page_bytes));
        match self.pages.get_mut(&first) {
            Some(pages) if *pages >= end - first => self.hits += 1,
            known => {
                self.misses += 1;
                match known {
                    Some(pages) => *pages = end - first,
                    None => drop(self.pages.insert(first, end - first)),
                }
            }
        }
    }
}

/// A whole buffer is sent, and then its pieces again and again.
fn send_pieces(profile: Profile) -> (Counters, FirstPages) {
    let (mut cache, mut engine) = (cache(profile), FirstPages::default());
    let start = 1 << 30;
    let pieces = (0..WHOLE_BYTES / PIECE_BYTES).map(|piece| (start + piece * PIECE_BYTES, PIECE_BYTES));
    for (start, bytes) in std::iter::once((start, WHOLE_BYTES)).chain(pieces) {
        let lease = cache.acquire(start..start + bytes).expect("less memory than the cache may hold");
        cache.release(lease);
        engine.acquire(start, bytes, profile.page_bytes);
    }
    (*cache.counters(), engine)
}

fn pieces(found: &mut Findings) {
    let (ours, engine) = send_pieces(INFINIHOST);
    let mut table = table(["search", "hits", "registrations"].map(str::to_owned).to_vec(), 1);
    for (name, hits, misses) in [("by first page, as in paper 001", engine.hits, engine.misses), ("by interval", ours.hits, ours.misses)] {
        table.add_row([name.to_owned(), hits.to_string(), misses.to_string()]);
        found.rows.push(json!({ "section": "2.4.2", "search": name, "hits": hits, "registrations": misses }));
    }
    let title = format!("Counted: a buffer of {}, then its pieces of {}", size_label(WHOLE_BYTES as u64), size_label(PIECE_BYTES as u64));
    found.tables.push((title, table));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cache_wins_back_what_registration_loses() {
        let losses = [false, true].map(|is_exchange| {
            let [copied, each, cached, good] = ways(&INFINIHOST, is_exchange, 4 << 20);
            assert!(good / cached > SHARE_MIN / 100.0 && good < copied);
            1.0 - copied / each
        });
        // "about two third of the bandwidth in case of PingPong and even more in case of SendReceive"
        assert!((losses[0] - 2.0 / 3.0).abs() < 0.02 && losses[1] > losses[0], "{losses:?}");
        assert_eq!(ways(&INFINIHOST, false, 16 << 10)[0], ways(&INFINIHOST, false, 16 << 10)[3]);
    }

    #[test]
    fn copies_reach_the_rate_of_the_paper() {
        let rate = (4 << 20) as f64 / ways(&INFINIHOST, false, 4 << 20)[0] * 1e3;
        assert!((rate - 429.0).abs() < 10.0, "{rate}");
    }

    #[test]
    fn pieces_hit_where_the_engine_of_the_paper_missed() {
        let (ours, engine) = send_pieces(INFINIHOST);
        let pieces = (WHOLE_BYTES / PIECE_BYTES) as u64;
        assert_eq!((ours.hits, ours.misses, ours.registrations), (pieces, 1, 1));
        assert_eq!((engine.hits, engine.misses), (1, pieces), "the first piece alone begins where the whole does");
    }
}
