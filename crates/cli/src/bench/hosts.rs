//! Two hosts on one machine: network namespaces whose wires lose what they are told to, by `bench/network/hosts.py` of the sources.

use super::Sample;
use super::library::{WHIMBREL, above, cache, peers_folder};
use super::lines;
use super::rounds::{Session, order, progress};
use serde::Deserialize;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, IsTerminal, Read};
use std::path::Path;
use std::process::{Command, Stdio};

const SCRIPT: &str = "bench/network/hosts.py";
/// Exit status by which the script says that such hosts cannot be made here.
const SKIPPED: i32 = 77;

/// One program on both hosts, to be run by every library in every round.
#[derive(Debug, Clone)]
pub struct HostPlan {
    pub name: String,
    pub program: &'static str,
    pub args: Vec<String>,
    /// From 0.
    pub rails: Vec<u8>,
    /// What is set for both ways of each rail (tests/netns/forward).
    pub wire: BTreeMap<&'static str, f64>,
}

#[derive(Deserialize)]
struct Done {
    status: Option<i32>,
    output: String,
}

/// Runs every plan with every library in each round; adds to the samples. `Some`: why there can be no such hosts here.
///
/// Errors: the script could not be run.
pub fn measure(session: &mut Session, plans: &[HostPlan]) -> Result<Option<String>, String> {
    let Some(script) = above(SCRIPT) else {
        return Ok(Some(format!("no {SCRIPT} here or above: it belongs to the sources")));
    };
    let mut places = Vec::new();
    let mut runs: Vec<Value> = Vec::new();
    for (round, at, subject) in order(session.options.rounds, plans.len(), session.subjects.len()) {
        if session.left_out.contains(&subject) {
            continue;
        }
        let (plan, it) = (&plans[at], &session.subjects[subject]);
        let Some(program) = session.program(subject, plan.program) else { continue };
        let words: Vec<String> = std::iter::once(program.display().to_string()).chain(plan.args.clone()).collect();
        let told = |text: &std::ffi::OsString| text.to_string_lossy().into_owned();
        // Between these hosts there is no shared memory; what was set for one host would only be in the way.
        let variables: Vec<(String, String)> =
            it.environment().iter().map(|(name, value)| (told(name), told(value))).filter(|it| it.0 != "WHIMBREL_FABRIC").collect();
        runs.push(json!({
            "library": it.home().unwrap_or(WHIMBREL), "home": it.prefix(), "program": words, "rails": plan.rails, "wire": plan.wire,
            "variables": if it.ours { variables } else { Vec::new() }, "limit_s": it.limit().as_secs(),
        }));
        places.push((round, at, subject));
    }
    let folder = cache().join(format!("hosts.{}", std::process::id()));
    std::fs::create_dir_all(&folder).map_err(|error| format!("{}: {error}", folder.display()))?;
    let result = drive(session, plans, &script, &folder, runs, &places);
    let _ = std::fs::remove_dir_all(&folder);
    result
}

fn drive(
    session: &mut Session,
    plans: &[HostPlan],
    script: &Path,
    folder: &Path,
    runs: Vec<Value>,
    places: &[(usize, usize, usize)],
) -> Result<Option<String>, String> {
    let rails = plans.iter().flat_map(|plan| &plan.rails).max().map_or(1, |last| last + 1);
    let peers = session.options.peers.clone().or_else(peers_folder).map(|folder| folder.join("mpich"));
    let hydra = peers.filter(|home| home.join("bin/mpiexec.hydra").exists());
    let path = folder.join("plan.json");
    let failed = |error: &dyn std::fmt::Display| format!("{SCRIPT}: {error}");
    std::fs::write(&path, json!({"rails": rails, "hydra": hydra, "runs": runs}).to_string()).map_err(|error| failed(&error))?;
    let prefix = session.subjects.iter().find(|it| it.ours).map(|it| it.prefix().to_owned()).unwrap_or_default();
    let mut command = Command::new("python3");
    command.arg(script).arg(&path).env("SCRATCH", folder).env("WHIMBREL_TEST_PREFIX", prefix);
    let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().map_err(|error| failed(&error))?;
    let errors = child.stderr.take().map(|mut stream| {
        std::thread::spawn(move || {
            let mut text = String::new();
            let _ = stream.read_to_string(&mut text);
            text
        })
    });
    let bar = progress(places.len());
    let shown = std::io::stderr().is_terminal();
    let mut last = String::new();
    let mut places = places.iter();
    for line in child.stdout.take().map(BufReader::new).into_iter().flat_map(BufRead::lines).map_while(Result::ok) {
        let Ok(done) = serde_json::from_str::<Done>(&line) else {
            last = line;
            continue;
        };
        let Some(&(round, at, subject)) = places.next() else { break };
        let (plan, name) = (&plans[at], session.subjects[subject].name.clone());
        bar.set_message(format!("round {}: {}, {name}", round + 1, plan.name));
        if !shown {
            eprintln!("round {}: {}, {name}", round + 1, plan.name);
        }
        bar.inc(1);
        match (done.status, lines::parse(&done.output)) {
            (Some(0), Ok(lines)) => {
                let sample = |line| Sample { library: name.clone(), plan: plan.name.clone(), round, line };
                session.samples.extend(lines.into_iter().map(sample));
            }
            (status, _) => {
                let limit = session.subjects[subject].limit().as_secs();
                let why = match status {
                    None => format!("did not end within {limit} s"),
                    Some(_) => done.output.trim().lines().next_back().unwrap_or("no output").to_owned(),
                };
                session.fail(subject, format!("{name}, {}: {why}", plan.name));
            }
        }
    }
    bar.finish_and_clear();
    let status = child.wait().map_err(|error| failed(&error))?;
    let errors = errors.and_then(|thread| thread.join().ok()).unwrap_or_default();
    match status.code() {
        Some(0) => Ok(None),
        Some(SKIPPED) => Ok(Some(last.trim_start_matches("skipped: ").to_owned())),
        _ => Err(failed(&errors.trim().lines().next_back().unwrap_or("it ended early"))),
    }
}
