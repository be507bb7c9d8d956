//! Who is measured, and how are its programs built and run?

use super::lines::{self, Line};
use super::options::Options;
use std::ffi::OsString;
use std::fs::{self, DirBuilder};
use std::hash::{BuildHasher, RandomState};
use std::io::Read;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

/// Longest time of one run unless the command line says otherwise; a run that takes longer is ended and counts as failed.
const RUN_LIMIT: Duration = Duration::from_secs(60);
/// What a job gets to end its ranks after it was asked to.
const GRACE: Duration = Duration::from_secs(5);

/// What would lead one library's program to another's files.
const UNWANTED: [&str; 4] = ["LD_LIBRARY_PATH", "LD_PRELOAD", "OPAL_PREFIX", "MPI_HOME"];

/// Files of the programs, laid out as in the sources.
const SOURCES: [(&str, &str); 15] = [
    ("programs/measure.h", include_str!("../../../../bench/programs/measure.h")),
    ("overlap/work.h", include_str!("../../../../bench/overlap/work.h")),
    ("overlap/overlap.c", include_str!("../../../../bench/overlap/overlap.c")),
    ("overlap/exchange.c", include_str!("../../../../bench/overlap/exchange.c")),
    ("overlap/crossing.c", include_str!("../../../../bench/overlap/crossing.c")),
    ("patterns/pattern.h", include_str!("../../../../bench/patterns/pattern.h")),
    ("patterns/cg.c", include_str!("../../../../bench/patterns/cg.c")),
    ("patterns/bt.c", include_str!("../../../../bench/patterns/bt.c")),
    ("patterns/lu.c", include_str!("../../../../bench/patterns/lu.c")),
    ("network/allconn.c", include_str!("../../../../bench/network/allconn.c")),
    ("network/pallas.c", include_str!("../../../../bench/network/pallas.c")),
    ("network/pair.c", include_str!("../../../../bench/network/pair.c")),
    ("patterns/radix.c", include_str!("../../../../bench/patterns/radix.c")),
    ("patterns/smg.c", include_str!("../../../../bench/patterns/smg.c")),
    ("patterns/abinit.c", include_str!("../../../../bench/patterns/abinit.c")),
];

/// A library as it is measured: ours counts once for each way to speculate.
#[derive(Debug, Clone)]
pub struct Subject {
    pub name: String,
    pub ours: bool,
    prefix: PathBuf,
    /// Options of its `mpiexec` where every rank has a core, and where not.
    bound: &'static [&'static str],
    unbound: &'static [&'static str],
    environment: Vec<(OsString, OsString)>,
    /// Longest time of one run.
    limit: Duration,
}

/// Name and folder of each peer, and its `mpiexec`'s options as in [`Subject`].
const PEERS: [(&str, &str, &[&str], &[&str]); 2] = [
    ("MPICH", "mpich", &["-bind-to", "core"], &[]),
    ("Open MPI", "openmpi", &["--allow-run-as-root", "--oversubscribe", "--bind-to", "core"], &["--allow-run-as-root", "--oversubscribe", "--bind-to", "none"]),
];

/// Our library's variants, as the tables name them, with the variables that make them.
pub const VARIANTS: [(&str, &[(&str, &str)]); 6] = [
    (ORDINARY, &[(SPECULATION, "off"), (PROGRESS, "inline")]),
    (OFF, &[(SPECULATION, "off")]),
    ("always", &[(SPECULATION, "always")]),
    (ADAPTIVE, &[(SPECULATION, "adaptive")]),
    ("acks", &[(SPECULATION, "adaptive"), (RENDEZVOUS, "acks")]),
    ("acks-always", &[(SPECULATION, "always"), (RENDEZVOUS, "acks")]),
];
/// What other libraries do: the sender asks, and only calls of MPI move anything.
pub const ORDINARY: &str = "ordinary";
/// Without speculation, with what else goes on while the program computes.
pub const OFF: &str = "off";
pub const ADAPTIVE: &str = "adaptive";
/// The variants measured unless others are asked for.
pub const VARIANTS_USUAL: [&str; 4] = [ORDINARY, OFF, "always", ADAPTIVE];
/// Our library where there is one variant of it.
pub const WHIMBREL: &str = "whimbrel";

const SPECULATION: &str = "WHIMBREL_SPECULATION";
const PROGRESS: &str = "WHIMBREL_PROGRESS";
const RENDEZVOUS: &str = "WHIMBREL_RENDEZVOUS";

/// The prefix of our library: the one asked for, else the one this command lies in.
///
/// Errors: where this command lies is unknown.
pub fn own_prefix(options: &Options) -> Result<PathBuf, String> {
    let beside = || std::env::current_exe().ok().and_then(|exe| Some(exe.canonicalize().ok()?.parent()?.parent()?.into()));
    let prefix: PathBuf = options.ours.clone().or_else(beside).ok_or("where is this command installed? Say --ours PREFIX")?;
    // A relative name would mean another prefix elsewhere.
    Ok(prefix.canonicalize().unwrap_or(prefix))
}

/// The libraries to measure, ours first, and what the reader should know of those that are not there.
///
/// Errors: our own library is not where it should be.
pub fn find(options: &Options) -> Result<(Vec<Subject>, Vec<String>), String> {
    let prefix = own_prefix(options)?;
    if !is_mpi(&prefix) {
        return Err(format!("{} has no bin/mpicc and bin/mpiexec; say --ours PREFIX", prefix.display()));
    }
    let mut notes = Vec::new();
    let variants: Vec<(&str, Vec<(OsString, OsString)>)> = if speculates(&prefix) {
        let wanted = options.variants.iter().filter_map(|name| VARIANTS.iter().find(|(known, _)| known == name));
        wanted.map(|(name, set)| (*name, set.iter().map(|(key, value)| (key.into(), value.into())).collect())).collect()
    } else {
        notes.push("this library has no parameter `speculation`; it is measured as it is".to_owned());
        vec![(WHIMBREL, Vec::new())]
    };
    let mut subjects: Vec<Subject> = variants
        .into_iter()
        .map(|(name, environment)| Subject {
            name: name.to_owned(),
            ours: true,
            prefix: prefix.clone(),
            bound: &[],
            unbound: &[],
            environment: options.set.iter().cloned().chain(environment).collect(),
            limit: options.limit.unwrap_or(RUN_LIMIT),
        })
        .collect();
    if options.no_peers {
        return Ok((subjects, notes));
    }
    let folder = options.peers.clone().or_else(peers_folder);
    for (name, home, bound, unbound) in PEERS {
        match folder.as_ref().map(|folder| folder.join(home)).filter(|prefix| is_mpi(prefix)) {
            Some(prefix) => {
                subjects.push(Subject {
                    name: name.to_owned(),
                    ours: false,
                    prefix,
                    bound,
                    unbound,
                    environment: Vec::new(),
                    limit: options.limit.unwrap_or(RUN_LIMIT),
                });
            }
            None => notes.push(format!("{name} is not installed, going on without it (bench/run installs the peers)")),
        }
    }
    Ok((subjects, notes))
}

impl Subject {
    /// Compiles a program of [`SOURCES`] with this library's compiler, into the user's cache.
    ///
    /// Errors: the compiler's first words.
    pub fn build(&self, program: &str) -> Result<PathBuf, String> {
        // Of each prefix apart: the programs name the library that they were built for.
        let folder = cache().join(self.prefix.to_string_lossy().replace('/', "%"));
        let sources = folder.join("sources");
        for (name, text) in SOURCES {
            let path = sources.join(name);
            if fs::read_to_string(&path).is_ok_and(|present| present == text) {
                continue;
            }
            let written = path.parent().map_or(Ok(()), fs::create_dir_all).and_then(|()| fs::write(&path, text));
            written.map_err(|error| format!("{}: {error}", path.display()))?;
        }
        let name = program.rsplit('/').next().unwrap_or(program);
        let home = folder.join(self.name.replace(' ', ""));
        fs::create_dir_all(&home).map_err(|error| format!("{}: {error}", home.display()))?;
        // Under a name of its own first, since another bench may be running the program now.
        let fresh = home.join(format!("{name}.{}", std::process::id()));
        let mut command = self.command(&self.prefix.join("bin/mpicc"));
        command.arg("-O2").arg(sources.join(format!("{program}.c"))).arg("-o").arg(&fresh);
        let output = command.output().map_err(|error| format!("{}'s mpicc: {error}", self.name))?;
        if !output.status.success() {
            let words = String::from_utf8_lossy(&output.stderr);
            return Err(format!("{} cannot build {program}: {}", self.name, words.trim()));
        }
        let path = home.join(name);
        fs::rename(&fresh, &path).map_err(|error| format!("{}: {error}", path.display()))?;
        Ok(path)
    }

    /// Runs a program and reads its lines.
    ///
    /// Errors: it could not be started, did not end well or in time, or printed what is not understood.
    pub fn run(&self, program: &Path, ranks: u32, args: &[String]) -> Result<Vec<Line>, String> {
        let placing = if ranks <= crate::topology::processors() { self.bound } else { self.unbound };
        let mut command = self.command(&self.prefix.join("bin/mpiexec"));
        command.args(placing).arg("-n").arg(ranks.to_string()).arg(program).args(args);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().map_err(|error| format!("mpiexec: {error}"))?;
        let output = drain(child.stdout.take());
        let errors = drain(child.stderr.take());
        let status = wait(&mut child, self.limit)?;
        let (output, errors) = (output.join().unwrap_or_default(), errors.join().unwrap_or_default());
        if !status.success() {
            let words = if errors.trim().is_empty() { &output } else { &errors };
            return Err(format!("{status}: {}", words.trim().lines().next_back().unwrap_or("no output")));
        }
        lines::parse(&output)
    }

    /// This library on a network although all ranks share a host: ours by datagrams with so many sockets an address, a peer by TCP.
    pub fn over_network(&self, name: &str, endpoints: u32) -> Self {
        let variables: Vec<(&str, String)> = match self.home() {
            None => vec![("WHIMBREL_FABRIC", "udp".to_owned()), ("WHIMBREL_ENDPOINTS", endpoints.to_string())],
            Some("mpich") => {
                [("MPIR_CVAR_NOLOCAL", "1"), ("UCX_TLS", "tcp,self"), ("FI_PROVIDER", "tcp")].map(|(name, value)| (name, value.to_owned())).to_vec()
            }
            Some(_) => [("pml", "ob1"), ("btl", "tcp,self"), ("btl_tcp_if_include", "lo")].map(|(name, value)| (name, value.to_owned())).to_vec(),
        };
        let prefix = if self.home() == Some("openmpi") { "OMPI_MCA_" } else { "" };
        self.with(name, variables.into_iter().map(|(name, value)| (format!("{prefix}{name}"), value)))
    }

    /// This library under another name, with these variables of the environment. What the command line sets has the last word.
    pub fn with(&self, name: &str, variables: impl Iterator<Item = (String, String)>) -> Self {
        let added = variables.map(|(name, value)| (name.into(), value.into()));
        Self { name: name.to_owned(), environment: added.chain(self.environment.iter().cloned()).collect(), ..self.clone() }
    }

    /// The folder of a peer; `None` for our library.
    pub fn home(&self) -> Option<&'static str> {
        PEERS.iter().map(|peer| peer.1).find(|home| !self.ours && self.prefix.ends_with(home))
    }

    pub fn prefix(&self) -> &Path {
        &self.prefix
    }

    pub fn environment(&self) -> &[(OsString, OsString)] {
        &self.environment
    }

    pub fn limit(&self) -> Duration {
        self.limit
    }

    fn command(&self, program: &Path) -> Command {
        let mut command = Command::new(program);
        for name in UNWANTED {
            command.env_remove(name);
        }
        command.envs(self.environment.iter().cloned());
        command
    }
}

fn is_mpi(prefix: &Path) -> bool {
    prefix.join("bin/mpicc").exists() && prefix.join("bin/mpiexec").exists()
}

/// Whether the library of this prefix can be told how to speculate.
fn speculates(prefix: &Path) -> bool {
    let told = Command::new(prefix.join("bin/whimbrel")).args(["info", "--params"]).output();
    told.is_ok_and(|told| String::from_utf8_lossy(&told.stdout).contains(SPECULATION))
}

/// `.cache/bench-venv` here or above, or above this command.
pub fn peers_folder() -> Option<PathBuf> {
    above(".cache/bench-venv")
}

/// A folder or file of this name here or above, or above this command.
pub fn above(name: &str) -> Option<PathBuf> {
    let starts = [std::env::current_dir().ok(), std::env::current_exe().ok()];
    let mut starts = starts.into_iter().flatten();
    starts.find_map(|start| start.ancestors().map(|folder| folder.join(name)).find(|it| it.exists()))
}

/// A folder of this run's own, of a name that nobody knows ahead and that only this user may enter.
fn private_folder() -> &'static PathBuf {
    static FOLDER: OnceLock<PathBuf> = OnceLock::new();
    FOLDER.get_or_init(|| {
        let random = RandomState::new().hash_one(std::process::id());
        let folder = std::env::temp_dir().join(format!("whimbrel-{random:016x}"));
        make_private(&folder).unwrap_or_else(|error| {
            eprintln!("whimbrel: cannot make {}: {error}; set HOME or XDG_CACHE_HOME", folder.display());
            std::process::exit(1)
        });
        folder
    })
}

/// Makes a folder that only this user may enter.
///
/// Errors: one is there already, which is somebody else's.
fn make_private(folder: &Path) -> std::io::Result<()> {
    DirBuilder::new().mode(0o700).create(folder)
}

/// Where built programs lie.
pub fn cache() -> PathBuf {
    let named = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    let home = || named("HOME").map(|home| home.join(".cache"));
    named("XDG_CACHE_HOME").or_else(home).unwrap_or_else(|| private_folder().clone()).join("whimbrel/bench")
}

/// Reads to the end in a thread, so that neither stream can fill up.
fn drain(stream: Option<impl Read + Send + 'static>) -> std::thread::JoinHandle<String> {
    std::thread::spawn(move || {
        let mut bytes = Vec::new();
        if let Some(mut stream) = stream {
            // What was read before an error is still worth telling.
            let _ = stream.read_to_end(&mut bytes);
        }
        String::from_utf8_lossy(&bytes).into_owned()
    })
}

/// Waits for a job, at most `limit`.
fn wait(child: &mut Child, limit: Duration) -> Result<std::process::ExitStatus, String> {
    let ended_within = |child: &mut Child, limit: Duration| {
        let start = Instant::now();
        loop {
            match child.try_wait() {
                Ok(None) if start.elapsed() < limit => std::thread::sleep(Duration::from_millis(5)),
                other => return other.map_err(|error| error.to_string()),
            }
        }
    };
    if let Some(status) = ended_within(child, limit)? {
        return Ok(status);
    }
    // The launcher first gets the chance to take its ranks down.
    if let Some(pid) = i32::try_from(child.id()).ok().and_then(rustix::process::Pid::from_raw) {
        let _ = rustix::process::kill_process(pid, rustix::process::Signal::TERM);
    }
    if ended_within(child, GRACE)?.is_none() {
        let _ = child.kill();
        let _ = child.wait();
    }
    Err(format!("did not end within {} s", limit.as_secs()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::MetadataExt;

    #[test]
    fn the_folder_of_a_run_is_its_own() {
        let folder = std::env::temp_dir().join(format!("whimbrel-test-{}-{:016x}", std::process::id(), RandomState::new().hash_one(0)));
        make_private(&folder).unwrap();
        let mode = fs::metadata(&folder).unwrap().mode() & 0o777;
        let again = make_private(&folder).map_err(|error| error.kind());
        fs::remove_dir(&folder).unwrap();
        assert_eq!((mode, again), (0o700, Err(std::io::ErrorKind::AlreadyExists)));
    }
}
