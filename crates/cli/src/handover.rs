//! Who starts ranks on other machines? A process manager that clusters have; this module finds one and gives the job to it.
//!
//! | engine | is asked as |
//! | --- | --- |
//! | PRRTE (Open MPI's `mpirun` is one) | `prterun --host a:2,b:2 -n 4 program` |
//! | Hydra (MPICH, Intel MPI) | `mpiexec.hydra -hosts a:2,b:2 -n 4 program` |
//! | Slurm, within an allocation | `srun --mpi=pmix --nodelist=a,b --ntasks=4 program` |

use crate::args::{Engine, Host, Inherit, Job, Stdin};
use crate::placement::{Bind, RankBy};
use crate::topology::Unit;
use std::ffi::{OsStr, OsString};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Most hosts of one job, and the longest file that names them, bytes.
pub const HOSTS_MAX: usize = 4096;
pub const HOSTFILE_BYTES_MAX: u64 = 1024 * 1024;

/// What there is to choose from.
pub struct Found {
    pub engine: Engine,
    pub path: PathBuf,
    /// Slurm: the kind of PMI.
    pub pmi: &'static str,
}

/// Becomes the engine that starts `job`. Returns the exit status if that fails.
pub fn run(job: &Job) -> i32 {
    let found = match find(job.engine, &Surroundings::real()) {
        Ok(found) => found,
        Err(line) => return fail(&line),
    };
    let arguments = match arguments(job, &found, rustix::process::geteuid().is_root()) {
        Ok(arguments) => arguments,
        Err(line) => return fail(&line),
    };
    let hosts: Vec<&str> = job.hosts.iter().map(|host| host.name.as_str()).take(8).collect();
    let more = if job.hosts.len() > hosts.len() { format!(" and {} more", job.hosts.len() - hosts.len()) } else { String::new() };
    eprintln!("mpiexec: {} ranks on {}{more}: handed over to {} ({})", job.size(), hosts.join(", "), found.engine.name(), found.path.display());
    let mut command = Command::new(&found.path);
    command.args(arguments);
    for name in launch::environment::OWN {
        command.env_remove(name);
    }
    if job.report {
        command.env("WHIMBREL_REPORT", "1");
    }
    if let (Engine::Hydra, Some(timeout)) = (found.engine, job.timeout) {
        command.env("MPIEXEC_TIMEOUT", timeout.as_secs().to_string());
    }
    let error = command.exec();
    fail(&format!("cannot start {}: {error}", found.path.display()))
}

fn fail(line: &str) -> i32 {
    eprintln!("mpiexec: {line}");
    1
}

/// What a search looks at.
pub struct Surroundings<'a> {
    pub path: OsString,
    pub in_slurm: bool,
    /// Whether `libpmix` can be loaded, without which ranks cannot speak to a PMIx server.
    pub pmix: &'a dyn Fn() -> Result<(), String>,
    /// Runs a program with one argument; what it prints.
    pub ask: &'a dyn Fn(&Path, &str) -> String,
}

impl Surroundings<'_> {
    fn real() -> Surroundings<'static> {
        Surroundings {
            path: std::env::var_os("PATH").unwrap_or_default(),
            in_slurm: std::env::var_os("SLURM_JOB_ID").is_some(),
            pmix: &launch::pmix::available,
            ask: &|program, argument| {
                let output = Command::new(program).arg(argument).stdin(std::process::Stdio::null()).output();
                output.map_or(String::new(), |output| String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned())
            },
        }
    }

    fn program(&self, name: &str) -> Option<PathBuf> {
        std::env::split_paths(&self.path)
            .map(|folder| folder.join(name))
            .find(|path| path.is_file() && rustix::fs::access(path, rustix::fs::Access::EXEC_OK).is_ok())
    }
}

/// The engine that is wanted, or else the first that is there: within a Slurm allocation `srun`, then `prterun`, then Hydra.
///
/// Errors: one line.
pub fn find(wanted: Option<Engine>, around: &Surroundings) -> Result<Found, String> {
    let order = match wanted {
        Some(engine) => vec![engine],
        None if around.in_slurm => vec![Engine::Slurm, Engine::Prrte, Engine::Hydra],
        None => vec![Engine::Prrte, Engine::Hydra],
    };
    let mut reasons = Vec::new();
    for engine in order {
        let found = match engine {
            Engine::Prrte => {
                let path = around.program("prterun").ok_or_else(|| "no prterun in PATH".to_owned());
                path.and_then(|path| (around.pmix)().map(|()| path).map_err(|why| format!("prterun, but no libpmix: {why}"))).map(|path| (path, ""))
            }
            Engine::Hydra => hydra(around).ok_or_else(|| "no mpiexec.hydra in PATH".to_owned()).map(|path| (path, "")),
            Engine::Slurm => around.program("srun").ok_or_else(|| "no srun in PATH".to_owned()).and_then(|path| {
                let kinds = (around.ask)(&path, "--mpi=list");
                let has = |kind| kinds.split_whitespace().any(|word| word == kind);
                match (has("pmix"), (around.pmix)()) {
                    (true, Ok(())) => Ok((path, "pmix")),
                    _ if has("pmi2") => Ok((path, "pmi2")),
                    _ => Err("srun, but it speaks neither PMI-2 nor PMIx here".to_owned()),
                }
            }),
        };
        match found {
            Ok((path, pmi)) => return Ok(Found { engine, path, pmi }),
            Err(reason) => reasons.push(reason),
        }
    }
    Err(format!("ranks on other machines are started by PRRTE's prterun, Hydra's mpiexec or Slurm's srun, and none can be used here: {}", reasons.join("; ")))
}

/// Hydra under its own name, or as an `mpiexec` that says so and is not this one.
fn hydra(around: &Surroundings) -> Option<PathBuf> {
    around.program("mpiexec.hydra").or_else(|| {
        std::env::split_paths(&around.path)
            .map(|folder| folder.join("mpiexec"))
            .filter(|path| path.is_file())
            .find(|path| (around.ask)(path, "--version").contains("HYDRA"))
    })
}

/// The command line that asks `found` for `job`.
///
/// Errors: one line naming an option that the engine has no equivalent of.
pub fn arguments(job: &Job, found: &Found, root: bool) -> Result<Vec<OsString>, String> {
    let mut line = Line::default();
    let written = match (without_equivalent(job, found.engine), found.engine) {
        (Some(option), _) => Err(option),
        (None, Engine::Prrte) => prrte_line(&mut line, job, root),
        (None, Engine::Hydra) => hydra_line(&mut line, job),
        (None, Engine::Slurm) => slurm_line(&mut line, job, found.pmi),
    };
    written.map_err(|option| format!("{option} cannot be handed over to {}", found.engine.name()))?;
    Ok(line.words)
}

/// The first option of `job` that `engine` never takes, whatever its value.
fn without_equivalent(job: &Job, engine: Engine) -> Option<&'static str> {
    let (prrte, slurm, wanted) = (engine == Engine::Prrte, engine == Engine::Slurm, &job.placement);
    let own = |of: fn(&crate::args::Program) -> bool| job.programs.iter().any(of);
    let options = [
        (job.output.is_some(), "--output"),
        (job.errors.is_some(), "-errfile-pattern"),
        (job.prepend.is_some(), "-prepend-pattern"),
        (job.cpus.is_some(), "--cpu-list"),
        (job.memory_kinds.is_some(), "-memory-alloc-kinds"),
        (job.shared_heap, "--shared-heap"),
        (job.timestamp && !prrte, "--timestamp-output"),
        (job.merge && !prrte, "--merge-stderr-to-stdout"),
        (job.report_bindings && !prrte, "--report-bindings"),
        (job.display_map && !prrte, "--display-map"),
        (wanted.asked.is_some() && wanted.map != Some(Unit::Machine) && slurm, "--map-by"),
        (wanted.elements.is_some() && slurm, "--map-by with PE"),
        (wanted.per_object.is_some() && wanted.map != Some(Unit::Machine) && !prrte, "--map-by ppr"),
        (wanted.rank.is_some_and(|rank| rank != RankBy::Slot) && !prrte, "--rank-by"),
        (wanted.hwthreads && wanted.bind != Bind::To(Unit::Hwthread) && !prrte, "--use-hwthread-cpus"),
        (wanted.no_oversubscribe && !prrte, "--nooversubscribe"),
        (own(|program| program.inherit != Inherit::All), "-genvnone or -genvlist"),
        (own(|program| program.path.is_some()), "-path"),
    ];
    options.into_iter().find(|(asked, _)| *asked).map(|(_, option)| option)
}

/// Writes the words after `prterun`.
///
/// Errors: the option whose value it has no equivalent of.
fn prrte_line(line: &mut Line, job: &Job, root: bool) -> Result<(), &'static str> {
    if root {
        line.word("--allow-run-as-root");
    }
    line.option("--host", list(&job.hosts, job.size()));
    line.option("--map-by", mapping(job));
    match job.placement.rank {
        None | Some(RankBy::Slot) => {}
        Some(RankBy::Fill) => line.option("--rank-by", "fill"),
        Some(RankBy::Unit(_)) => return Err("--rank-by of a kind of objects"),
    }
    let shown = [(job.display_map, "map"), (job.report_bindings, "bind")];
    line.list("--display", &shown);
    match job.placement.bind {
        Bind::Share => {}
        Bind::To(unit) => line.option("--bind-to", format!("{}:overload-allowed", unit.name())),
        Bind::None => line.option("--bind-to", "none"),
    }
    line.list("--output", &[(job.label, "tag"), (job.timestamp, "timestamp"), (job.merge, "merge-stderr-to-stdout")]);
    match job.stdin {
        Stdin::Rank(0) => {}
        Stdin::Rank(rank) => line.option("--stdin", rank.to_string()),
        Stdin::All => line.option("--stdin", "all"),
        Stdin::None => line.option("--stdin", "none"),
    }
    if let Some(timeout) = job.timeout {
        line.option("--timeout", timeout.as_secs().to_string());
    }
    // It hands its environment to no other host by itself.
    let handed_on = |name: &OsStr| {
        let name = name.to_string_lossy();
        name == "LD_LIBRARY_PATH" || name == "PATH" || name.starts_with(params::PREFIX)
    };
    let own = launch::environment::OWN;
    for (name, _) in std::env::vars_os().filter(|(name, _)| handed_on(name)) {
        if !own.iter().any(|own| name == *own) {
            line.option("-x", name);
        }
    }
    if job.report {
        line.option("-x", "WHIMBREL_REPORT=1");
    }
    line.programs(
        job,
        |line, name, value| {
            let mut pair = name.to_owned();
            pair.push("=");
            pair.push(value);
            line.option("-x", pair);
        },
        "--wdir",
    );
    Ok(())
}

/// Writes the words after `mpiexec.hydra`.
///
/// Errors: the option whose value it has no equivalent of.
fn hydra_line(line: &mut Line, job: &Job) -> Result<(), &'static str> {
    line.option("-hosts", list(&job.hosts, job.size()));
    if let Some(count) = job.per_host {
        line.option("-ppn", count.to_string());
    }
    match (job.placement.bind, job.placement.elements) {
        (Bind::Share, None) => {}
        (Bind::Share, Some(each)) => line.option("-bind-to", format!("core:{each}")),
        (Bind::To(unit @ (Unit::Core | Unit::Hwthread)), Some(each)) => line.option("-bind-to", format!("{}:{each}", unit.name())),
        (Bind::To(Unit::Package), _) => line.option("-bind-to", "socket"),
        (Bind::To(unit), _) => line.option("-bind-to", unit.name()),
        (Bind::None, _) => line.option("-bind-to", "none"),
    }
    match job.placement.map {
        None | Some(Unit::Machine) => {}
        Some(Unit::Package) => line.option("-map-by", "socket"),
        Some(unit) => line.option("-map-by", unit.name()),
    }
    if job.label {
        line.word("-prepend-rank");
    }
    if job.stdin != Stdin::Rank(0) {
        return Err("--stdin");
    }
    if let Some(size) = job.universe_size {
        line.option("-usize", size.to_string());
    }
    line.programs(
        job,
        |line, name, value| {
            line.option("-env", name);
            line.word(value);
        },
        "-wdir",
    );
    Ok(())
}

/// Writes the words after `srun`.
///
/// Errors: the option whose value it has no equivalent of.
fn slurm_line(line: &mut Line, job: &Job, pmi: &str) -> Result<(), &'static str> {
    let [program] = job.programs.as_slice() else { return Err("more than one program") };
    line.word(format!("--mpi={}", pmi));
    line.word(format!("--ntasks={}", program.count));
    let names: Vec<&str> = job.hosts.iter().map(|host| host.name.as_str()).collect();
    line.word(format!("--nodelist={}", names.join(",")));
    line.word(format!("--nodes={}", names.len()));
    line.word("--overcommit");
    if let Some(count) = job.per_host {
        line.word(format!("--ntasks-per-node={count}"));
    }
    match job.placement.bind {
        Bind::Share => {}
        Bind::To(Unit::Core) => line.word("--cpu-bind=cores"),
        Bind::To(Unit::Hwthread) => line.word("--cpu-bind=threads"),
        Bind::To(Unit::Numa) => line.word("--cpu-bind=ldoms"),
        Bind::To(Unit::Package) => line.word("--cpu-bind=sockets"),
        Bind::To(_) => return Err("--bind-to a cache"),
        Bind::None => line.word("--cpu-bind=none"),
    }
    if job.label {
        line.word("--label");
    }
    match job.stdin {
        Stdin::Rank(0) => line.word("--input=0"),
        Stdin::Rank(rank) => line.word(format!("--input={rank}")),
        Stdin::All => line.word("--input=all"),
        Stdin::None => line.word("--input=none"),
    }
    if job.timeout.is_some() {
        return Err("--timeout");
    }
    if let Some(folder) = &program.wdir {
        line.word("--chdir");
        line.word(folder);
    }
    // It hands its whole environment on, and its own option cannot hold commas.
    line.word("env");
    for (name, value) in &program.env {
        let mut pair = name.clone();
        pair.push("=");
        pair.push(value);
        line.word(pair);
    }
    line.word(&program.program);
    program.args.iter().for_each(|word| line.word(word));
    Ok(())
}

/// What PRRTE is asked for by `--map-by`: more ranks than cores are allowed unless they are refused by name.
fn mapping(job: &Job) -> String {
    let wanted = &job.placement;
    let mut text = match (&wanted.asked, job.per_host) {
        (Some(asked), _) => asked.replace("socket", "package"),
        (None, Some(count)) => format!("ppr:{count}:node"),
        (None, None) => "slot".to_owned(),
    };
    let lower = text.to_ascii_lowercase();
    if wanted.hwthreads && !lower.contains("hwtcpus") {
        text += ":HWTCPUS";
    }
    if !lower.contains("oversubscribe") {
        text += if wanted.no_oversubscribe { ":NOOVERSUBSCRIBE" } else { ":OVERSUBSCRIBE" };
    }
    text
}

/// `a:2,b:1`: hosts with as many slots as were asked for, or else an equal share of the ranks.
fn list(hosts: &[Host], ranks: u32) -> String {
    let share = ranks.div_ceil(hosts.len() as u32).max(1);
    let hosts: Vec<String> = hosts.iter().map(|host| format!("{}:{}", host.name, host.slots.unwrap_or(share))).collect();
    hosts.join(",")
}

/// Hosts of a file: a line for each, `name`, `name:slots` or `name slots=N`; `#` begins a comment.
///
/// Errors: one line with the line's number.
pub fn hosts_of_file(text: &str) -> Result<Vec<Host>, String> {
    let mut hosts = Vec::new();
    for (at, line) in text.lines().enumerate() {
        let mut words = line.split('#').next().unwrap_or_default().split_whitespace();
        let Some(word) = words.next() else { continue };
        let mut host = Host::parse(word).map_err(|why| format!("line {}: {why}", at + 1))?;
        for word in words {
            match word.split_once('=') {
                Some(("slots", slots)) => {
                    let slots = slots.parse().ok().filter(|slots| *slots > 0);
                    host.slots = Some(slots.ok_or_else(|| format!("line {}: {word:?} is no number of slots", at + 1))?);
                }
                // Others' files say more than is of use here.
                Some(_) => {}
                None => return Err(format!("line {}: {word:?} is not understood", at + 1)),
            }
        }
        hosts.push(host);
        if hosts.len() > HOSTS_MAX {
            return Err(format!("more than {HOSTS_MAX} hosts"));
        }
    }
    if hosts.is_empty() { Err("it names no host".to_owned()) } else { Ok(hosts) }
}

#[derive(Default)]
struct Line {
    words: Vec<OsString>,
}

impl Line {
    fn word(&mut self, word: impl AsRef<OsStr>) {
        self.words.push(word.as_ref().to_owned());
    }

    fn option(&mut self, name: &str, value: impl AsRef<OsStr>) {
        self.word(name);
        self.word(value);
    }

    /// `name` with those of `words` that are wanted, and commas between.
    fn list(&mut self, name: &str, words: &[(bool, &str)]) {
        let words: Vec<&str> = words.iter().filter(|(wanted, _)| *wanted).map(|(_, word)| *word).collect();
        if !words.is_empty() {
            self.option(name, words.join(","));
        }
    }

    fn programs(&mut self, job: &Job, variable: impl Fn(&mut Line, &OsStr, &OsStr), wdir: &str) {
        for (at, program) in job.programs.iter().enumerate() {
            if at > 0 {
                self.word(":");
            }
            self.option("-n", program.count.to_string());
            for (name, value) in &program.env {
                variable(self, name, value);
            }
            if let Some(folder) = &program.wdir {
                self.option(wdir, folder);
            }
            self.word(&program.program);
            program.args.iter().for_each(|word| self.word(word));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::{self, Command};
    use std::os::unix::fs::PermissionsExt;

    fn job(line: &str) -> Job {
        match args::parse(line.split_whitespace().map(OsString::from)) {
            Ok(Command::Run(job)) => *job,
            other => panic!("{line}: {other:?}"),
        }
    }

    fn asked(line: &str, engine: Engine, pmi: &'static str) -> Result<String, String> {
        let found = Found { engine, path: "x".into(), pmi };
        // What is handed on of the test's own environment is of no interest.
        let words = arguments(&job(line), &found, true)?;
        let text = words.join(OsStr::new(" ")).into_string().unwrap();
        let mut words: Vec<&str> = text.split(' ').collect();
        while let Some(at) = (1..words.len()).find(|at| words[at - 1] == "-x" && !words[*at].contains('=')) {
            words.drain(at - 1..=at);
        }
        Ok(words.join(" "))
    }

    #[test]
    fn each_engine_is_asked_in_its_own_words() {
        let line = "--hosts far:2,away --label --bind core -n 3 -x A=1 -wdir /w one a : -n 2 two";
        assert_eq!(
            asked(line, Engine::Prrte, "").unwrap(),
            "--allow-run-as-root --host far:2,away:3 --map-by slot:OVERSUBSCRIBE --bind-to core:overload-allowed --output tag \
             -n 3 -x A=1 --wdir /w one a : -n 2 two"
        );
        assert_eq!(asked(line, Engine::Hydra, "").unwrap(), "-hosts far:2,away:3 -bind-to core -prepend-rank -n 3 -env A 1 -wdir /w one a : -n 2 two");
        assert!(asked(line, Engine::Slurm, "pmix").unwrap_err().contains("more than one program"));
        assert_eq!(
            asked("--hosts far,away --stdin none -n 4 -x A=1,2 one a", Engine::Slurm, "pmi2").unwrap(),
            "--mpi=pmi2 --ntasks=4 --nodelist=far,away --nodes=2 --overcommit --input=none env A=1,2 one a"
        );
        assert_eq!(
            asked("--hosts far -ppn 2 --output tag,merge --display-map p", Engine::Prrte, "").unwrap(),
            "--allow-run-as-root --host far:2 --map-by ppr:2:node:OVERSUBSCRIBE --display map --output tag,merge-stderr-to-stdout -n 2 p"
        );
        assert_eq!(asked("--hosts far -ppn 2 p", Engine::Hydra, "").unwrap(), "-hosts far:2 -ppn 2 -n 2 p");
        for option in ["-errfile-pattern %r", "-prepend-pattern x", "--cpu-list 0", "-genvnone", "-path /", "--timestamp-output", "--report-bindings"] {
            assert!(asked(&format!("--hosts far {option} p"), Engine::Hydra, "").unwrap_err().contains("cannot be handed over"), "{option}");
        }
        for (line, engine) in
            [("--hosts far --output d p", Engine::Prrte), ("--hosts far --stdin none p", Engine::Hydra), ("--hosts far --timeout 3 p", Engine::Slurm)]
        {
            assert!(asked(line, engine, "").unwrap_err().contains("cannot be handed over"), "{line}");
        }
    }

    #[test]
    fn placement_is_handed_over_or_refused() {
        let line = |options: &str| format!("--hosts far:4 {options} -n 4 p");
        for (options, expected) in [
            ("--map-by socket:PE=2 --bind-to core", "--map-by package:PE=2:OVERSUBSCRIBE --bind-to core:overload-allowed"),
            ("--rank-by fill --nooversubscribe", "--map-by slot:NOOVERSUBSCRIBE --rank-by fill"),
            ("--use-hwthread-cpus --bind-to numa", "--map-by slot:HWTCPUS:OVERSUBSCRIBE --bind-to numa:overload-allowed"),
            ("--map-by ppr:2:package", "--map-by ppr:2:package:OVERSUBSCRIBE"),
        ] {
            let words = asked(&line(options), Engine::Prrte, "").unwrap();
            assert!(words.contains(&format!("--host far:4 {expected} -n 4 p")), "{options}: {words}");
        }
        let hydra = |options: &str| asked(&line(options), Engine::Hydra, "");
        assert!(hydra("--map-by socket --bind-to numa").unwrap().contains("-bind-to numa -map-by socket -n 4 p"));
        assert!(hydra("--bind-to core:2").unwrap().contains("-bind-to core:2 -n 4 p"));
        assert!(asked(&line("--bind-to socket"), Engine::Slurm, "pmix").unwrap().contains("--cpu-bind=sockets"));
        for option in ["--map-by ppr:2:package", "--rank-by fill", "--use-hwthread-cpus", "--nooversubscribe"] {
            assert!(hydra(option).unwrap_err().contains("cannot be handed over"), "{option}");
        }
        for option in ["--map-by socket", "--bind-to l3cache", "--map-by slot:PE=2"] {
            assert!(asked(&line(option), Engine::Slurm, "pmix").unwrap_err().contains("cannot be handed over"), "{option}");
        }
    }

    #[test]
    fn the_first_engine_that_works_is_taken() {
        let folder = std::env::temp_dir().join(format!("whimbrel-handover-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let make = |name: &str| {
            std::fs::write(folder.join(name), "").unwrap();
            std::fs::set_permissions(folder.join(name), PermissionsExt::from_mode(0o755)).unwrap();
        };
        let search = |wanted, in_slurm, pmix: Result<(), String>, says: &str| {
            let path = folder.clone().into_os_string();
            let around = Surroundings { path, in_slurm, pmix: &|| pmix.clone(), ask: &|_, _| says.to_owned() };
            find(wanted, &around).map(|found| (found.engine, found.path.file_name().unwrap().to_owned(), found.pmi))
        };
        let none = search(None, true, Ok(()), "").unwrap_err();
        assert!(none.contains("no srun") && none.contains("no prterun") && none.contains("no mpiexec.hydra"), "{none}");
        assert!(!search(None, false, Ok(()), "").unwrap_err().contains("srun in PATH"));
        make("mpiexec");
        assert!(search(None, false, Ok(()), "Whimbrel").is_err(), "this mpiexec is no engine");
        assert_eq!(search(None, false, Ok(()), "HYDRA build").unwrap(), (Engine::Hydra, "mpiexec".into(), ""));
        make("mpiexec.hydra");
        make("prterun");
        make("srun");
        assert_eq!(search(None, false, Ok(()), "").unwrap(), (Engine::Prrte, "prterun".into(), ""));
        assert_eq!(search(None, false, Err("no".into()), "").unwrap(), (Engine::Hydra, "mpiexec.hydra".into(), ""));
        assert_eq!(search(None, true, Ok(()), "none\npmi2 pmix").unwrap(), (Engine::Slurm, "srun".into(), "pmix"));
        assert_eq!(search(None, true, Err("no".into()), "none\npmi2").unwrap(), (Engine::Slurm, "srun".into(), "pmi2"));
        assert_eq!(search(None, true, Ok(()), "none").unwrap().0, Engine::Prrte);
        let refused = search(Some(Engine::Prrte), false, Err("not found".into()), "").unwrap_err();
        assert!(refused.contains("not found"), "{refused}");
        std::fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn files_of_hosts_are_read() {
        let hosts = hosts_of_file("# two\na slots=2 max_slots=4\n\nb:3 # here\nc\n").unwrap();
        let hosts: Vec<_> = hosts.iter().map(|host| (host.name.as_str(), host.slots)).collect();
        assert_eq!(hosts, [("a", Some(2)), ("b", Some(3)), ("c", None)]);
        for (text, words) in [("", "no host"), ("a slots=0", "line 1"), ("a\nb c", "line 2"), ("a:x", "line 1"), ("-a", "line 1")] {
            assert!(hosts_of_file(text).unwrap_err().contains(words), "{text}");
        }
    }
}
