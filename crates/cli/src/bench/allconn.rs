//! What does a job cost in which everybody has spoken to everybody? Time and memory against the number of peers. (Paper 003 §5.2.2, Figs. 5, 6.)

use super::chart::{Chart, Panel, Series, Shape};
use super::lines::{Allconn, AllconnPoint, Line};
use super::rounds::{Plan, Session, Who};
use super::statistics::median;
use super::{Findings, table};
use serde_json::json;

const JOBS: [u32; 3] = [64, 256, 512];
const JOBS_QUICK: [u32; 3] = [8, 16, 32];
/// Private memory that a peer may cost a rank, bytes.
const PEER_BYTES_MAX: f64 = 512.0;

fn jobs(session: &Session) -> Vec<u32> {
    let options = session.options;
    let own = if options.quick { JOBS_QUICK } else { JOBS };
    let mut jobs = if options.jobs.is_empty() { own.to_vec() } else { options.jobs.clone() };
    jobs.sort_unstable();
    jobs.dedup();
    jobs
}

/// Runs the jobs, unless the session has their samples already. A library that fails at one size is not tried at the next.
pub fn measure(session: &mut Session) {
    if !session.samples.is_empty() {
        return;
    }
    for ranks in jobs(session) {
        let plan = Plan {
            name: format!("{ranks} ranks"),
            program: "network/allconn",
            ranks,
            args: vec![format!("pause_ms={}", if session.options.quick { 100 } else { 200 })],
            who: Who::All,
        };
        session.measure(std::slice::from_ref(&plan));
        for (at, subject) in session.subjects.iter().enumerate() {
            let ran = session.samples.iter().any(|it| it.library == subject.name && it.plan == plan.name);
            if !ran && !session.left_out.contains(&at) {
                session.left_out.push(at);
            }
        }
    }
}

/// What remains of a library's rounds at one number of ranks: medians.
struct Summary {
    ranks: u32,
    init_us: f64,
    again_us: f64,
    before_bytes: f64,
    descriptors: f64,
    points: Vec<AllconnPoint>,
}

impl Summary {
    /// `None` where every run failed.
    fn of(session: &Session, subject: usize, ranks: u32) -> Option<Self> {
        let name = &session.subjects[subject].name;
        let chosen = session.samples.iter().filter(|it| it.library == *name).filter_map(|it| match &it.line {
            Line::Allconn(line) if line.ranks == ranks => Some(line),
            _ => None,
        });
        let lines: Vec<&Allconn> = chosen.collect();
        let middle = |of: &dyn Fn(&Allconn) -> f64| median(&lines.iter().map(|line| of(line)).collect::<Vec<_>>());
        let count = lines.iter().map(|line| line.points.len()).min().filter(|&count| count > 0)?;
        let point = |at: usize| AllconnPoint {
            peers: lines[0].points[at].peers,
            elapsed_us: middle(&|line| line.points[at].elapsed_us),
            private_bytes: middle(&|line| line.points[at].private_bytes),
            private_bytes_max: middle(&|line| line.points[at].private_bytes_max),
        };
        Some(Self {
            ranks,
            init_us: middle(&|line| line.init_us),
            again_us: middle(&|line| line.again_us),
            before_bytes: middle(&|line| line.private_before_bytes),
            descriptors: middle(&|line| line.descriptors),
            points: (0..count).map(point).collect(),
        })
    }

    fn last(&self) -> &AllconnPoint {
        &self.points[self.points.len() - 1]
    }

    fn us_per_peer(&self) -> f64 {
        self.last().elapsed_us / f64::from(self.last().peers)
    }

    /// What one more peer costs, once there is one; from the first point to the last.
    fn growth_bytes_per_peer(&self) -> f64 {
        let (first, last) = (&self.points[0], self.last());
        (last.private_bytes - first.private_bytes) / f64::from(last.peers - first.peers)
    }

    /// All that was added since the start of the ring, over the peers.
    fn added_bytes_per_peer(&self) -> f64 {
        (self.last().private_bytes - self.before_bytes) / f64::from(self.last().peers)
    }
}

/// By subject and number of ranks, with the subject's place and name.
fn summaries<'a>(session: &Session<'a>) -> Vec<(usize, &'a str, Vec<Summary>)> {
    let of = |(at, name): (usize, &'a str)| (at, name, jobs(session).into_iter().filter_map(|ranks| Summary::of(session, at, ranks)).collect());
    session.subjects.iter().enumerate().map(|(at, subject)| of((at, subject.name.as_str()))).collect()
}

/// Time against the number of ranks.
///
/// Errors: none of its own; runs that fail are told by the session.
pub fn startup(session: &mut Session) -> Result<Findings, String> {
    measure(session);
    let mut found = Findings::default();
    let headings = ["ranks", "library", "all to all ms", "µs a peer", "again, µs a peer", "MPI_Init ms", "descriptors a rank"];
    let mut table = table(headings.map(str::to_owned).to_vec(), 2);
    let summaries = summaries(session);
    for ranks in jobs(session) {
        for (_, name, all) in &summaries {
            let Some(it) = all.iter().find(|it| it.ranks == ranks) else { continue };
            let (last, again_us) = (it.last(), it.again_us / f64::from(it.last().peers));
            table.add_row(vec![
                ranks.to_string(),
                (*name).to_owned(),
                format!("{:.1}", last.elapsed_us / 1e3),
                format!("{:.1}", it.us_per_peer()),
                format!("{again_us:.1}"),
                format!("{:.1}", it.init_us / 1e3),
                format!("{:.0}", it.descriptors),
            ]);
            found.rows.push(json!({
                "figure": "5", "ranks": ranks, "library": name, "alltoall_us": last.elapsed_us, "us_per_peer": it.us_per_peer(),
                "again_us_per_peer": again_us, "init_us": it.init_us, "descriptors": it.descriptors,
            }));
        }
    }
    let processors = crate::topology::processors();
    found.tables.push((format!("Every rank sends to every other, mean over the ranks, {processors} processors for all of them"), table));
    found.notes.push(
        "Ranks share the processors, so that a rank's time per peer is that of all ranks that compute at once: it grows with their number where the work per\n\
         peer stays the same. µs a peer × processors / ranks is the work of one message. again: the same ring over known peers."
            .to_owned(),
    );
    let panel = |title: &str, y_label: &str, y: &dyn Fn(&Summary) -> f64| Panel {
        title: title.to_owned(),
        x_label: "ranks".to_owned(),
        y_label: y_label.to_owned(),
        categories: Vec::new(),
        series: series(&summaries, |all| all.iter().map(|it| (f64::from(it.ranks), y(it))).collect()),
        shape: Shape::Lines,
    };
    let panels = vec![
        panel("Every rank sends to every other", "ms", &|it| it.last().elapsed_us / 1e3),
        panel("Processor time per peer", "µs × processors / ranks", &|it| it.us_per_peer() * f64::from(processors.min(it.ranks)) / f64::from(it.ranks)),
    ];
    found.charts.push(("startup-fig5".to_owned(), Chart { columns: 2, panels }));
    Ok(found)
}

/// Memory against the number of ranks and of peers spoken to.
///
/// Errors: none of its own; runs that fail are told by the session.
pub fn memory(session: &mut Session) -> Result<Findings, String> {
    measure(session);
    let mut found = Findings::default();
    let headings = ["ranks", "library", "before KiB", "after KiB", "most of a rank KiB", "added, B a peer", "next peers, B each", "from job to job, B a peer"];
    let mut table = table(headings.map(str::to_owned).to_vec(), 2);
    let summaries = summaries(session);
    let kib = |bytes: f64| format!("{:.0}", bytes / 1024.0);
    for ranks in jobs(session) {
        for (at, name, all) in &summaries {
            let Some(it) = all.iter().find(|it| it.ranks == ranks) else { continue };
            let last = it.last();
            let slope = all
                .first()
                .filter(|first| first.ranks < ranks)
                .map(|first| (last.private_bytes - first.last().private_bytes) / f64::from(last.peers - first.last().peers));
            table.add_row(vec![
                ranks.to_string(),
                (*name).to_owned(),
                kib(it.before_bytes),
                kib(last.private_bytes),
                kib(last.private_bytes_max),
                format!("{:.0}", it.added_bytes_per_peer()),
                if it.points.len() > 1 { format!("{:.0}", it.growth_bytes_per_peer()) } else { "–".to_owned() },
                slope.map_or("–".to_owned(), |slope| format!("{slope:.0}")),
            ]);
            found.rows.push(json!({
                "figure": "6", "ranks": ranks, "library": name, "private_before_bytes": it.before_bytes,
                "private_bytes": last.private_bytes, "private_bytes_max": last.private_bytes_max,
                "added_bytes_per_peer": it.added_bytes_per_peer(), "growth_bytes_per_peer": it.growth_bytes_per_peer(),
                "job_bytes_per_peer": slope, "points": it.points,
            }));
            if session.subjects[*at].ours && it.added_bytes_per_peer() >= PEER_BYTES_MAX {
                found.notes.push(format!("{ranks} ranks: {:.0} bytes a peer, wanted are less than {PEER_BYTES_MAX}.", it.added_bytes_per_peer()));
            }
        }
    }
    found.tables.push(("Private memory of a rank (Private_* of smaps_rollup), mean over the ranks".to_owned(), table));
    found.notes.push(
        "added: from before the ring to its end, over all peers. next peers: from after the first peer on. from job to job: end of this job against end of the\n\
         smallest. Memory that the kernel keeps for sockets is not in it; TCP has two sockets a pair. Paper, 1024 ranks: UD 8.8 MiB, RC 14.75 with and\n\
         25.0 MiB without a shared queue."
            .to_owned(),
    );
    let largest = |all: &[Summary]| match all.last() {
        Some(it) => std::iter::once((0.0, it.before_bytes / 1024.0))
            .chain(it.points.iter().map(|point| (f64::from(point.peers), point.private_bytes / 1024.0)))
            .collect(),
        None => Vec::new(),
    };
    let panel = |title: &str, x_label: &str, series: Vec<Series>| Panel {
        title: title.to_owned(),
        x_label: x_label.to_owned(),
        y_label: "private memory of a rank, KiB".to_owned(),
        categories: Vec::new(),
        series,
        shape: Shape::Lines,
    };
    let ends = series(&summaries, |all| all.iter().map(|it| (f64::from(it.ranks), it.last().private_bytes / 1024.0)).collect());
    let panels =
        vec![panel("After every rank has sent to every other", "ranks", ends), panel("In the largest job", "peers spoken to", series(&summaries, largest))];
    found.charts.push(("memory-fig6".to_owned(), Chart { columns: 2, panels }));
    Ok(found)
}

fn series(summaries: &[(usize, &str, Vec<Summary>)], points: impl Fn(&[Summary]) -> Vec<(f64, f64)>) -> Vec<Series> {
    summaries.iter().map(|(_, name, all)| Series { name: (*name).to_owned(), points: points(all) }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_peer_costs_what_was_added_over_the_peers() {
        let point = |peers: u32, elapsed_us: f64, private_bytes: f64| AllconnPoint { peers, elapsed_us, private_bytes, private_bytes_max: private_bytes };
        let it = Summary {
            ranks: 12,
            init_us: 0.0,
            again_us: 0.0,
            before_bytes: 1000.0,
            descriptors: 9.0,
            points: vec![point(1, 10.0, 2100.0), point(11, 55.0, 3200.0)],
        };
        assert_eq!((it.us_per_peer(), it.growth_bytes_per_peer(), it.added_bytes_per_peer()), (5.0, 110.0, 200.0));
    }
}
