//! What does the command line of `mpiexec` ask for?
//!
//! Options are those of the standard (MPI-5.0 §11.5), plus the usual ones of MPICH and Open MPI, whose long names take
//! one hyphen or two; that is why no parser crate is used.

mod others;

use crate::handover::{self, HOSTFILE_BYTES_MAX, HOSTS_MAX};
use crate::placement::Placement;
use crate::topology::{self, Unit};
use others::{HAPPENS_ANYWAY, WITHOUT_EFFECT};
use std::collections::VecDeque;
use std::ffi::{OsStr, OsString};
use std::io::Read;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Most programs on one command line.
pub const PROGRAMS_MAX: usize = launch::RANKS_MAX as usize;

pub const HELP: &str = "\
Usage: mpiexec [-n N] [options] program [arguments] [: [-n M] [options] program2 [arguments] ...]

Starts N ranks of a program (default 1), and those of further programs behind a colon, on this machine, or through an engine
of others on several.

Ranks
  -n N, -np N               number of ranks of this program, at most 1024 in all
  -soft LIST                fewer of them: the largest number of LIST up to N, such as 1:8:2 (first:last:step) or 2,4
  -ppn N, -N N              ranks of each machine, for programs without -n
  --bind KIND, --bind-to KIND
                            processors of a rank: share, an equal share of the cores (default); one core or hwthread; all of
                            a larger object: l1cache, l2cache, l3cache, numa, package (socket); none. Nobody is bound to
                            less where there are more ranks than cores (core:no-overload: then it is an error)
  --map-by KIND[:PE=N]      ranks go in turn to the objects of a kind (or hwthread, core; slot, node: one after the other), to
                            share each; N cores for each; ppr:N:KIND: N ranks for each; pe-list=LIST: as --cpu-list
  --rank-by KIND            number the mapped ranks in turn over objects of a kind, or fill: object by object
  --use-hwthread-cpus       hardware threads count as cores
  --nooversubscribe         refuse more ranks than cores
  --cpu-list LIST           the processors that the job may use, such as 0-3,8
  --wdir DIR, -path DIRS    working directory of this program; where to look for it before PATH
  -initial-errhandler NAME  mpi_errors_are_fatal (default), mpi_errors_abort or mpi_errors_return, for this program
  -x NAME[=VALUE], --env NAME=VALUE, -env NAME VALUE
                            set a variable for this program (-x NAME alone: hand on the present value)
  -genv NAME VALUE          set a variable for all programs
  -genvnone, -genvlist A,B  hand on nothing of this environment, or these variables alone, to all programs; -envnone,
                            -envlist: to this program
  --usize N                 MPI_UNIVERSE_SIZE (default: the processors of this host, or the ranks where these are more)
  -configfile FILE, --app FILE
                            programs and their options from FILE, one per line

Machines
  -H, --hosts A,B[:SLOTS]   start the ranks there: hands the job over to PRRTE's prterun, Hydra's mpiexec or, within a Slurm
                            allocation, srun, and says to which
  --hostfile FILE           the same, a host per line: A, A:SLOTS or A slots=N
  --engine NAME             the one to hand over to: prterun, hydra or srun

Input and output
  -l, --label               begin each line with its rank: [3] text
  -prepend-pattern TEXT     begin each line with TEXT, in which %r is the rank and %h the host
  --timestamp-output        begin each line with the time (UTC)
  --output DIR|PATTERN      write the ranks' output to files: DIR/rank.3.out and DIR/rank.3.err, or PATTERN with %r
                            replaced by the rank and %s by out or err (without %s, both go to one file); or, as Open MPI
                            has it, of tag, timestamp, merge, dir=DIR and file=NAME, with commas between
  -errfile-pattern PATTERN  the same for standard error alone
  --merge-stderr-to-stdout  both go to standard output
  --stdin RANK|all|none     who reads mpiexec's standard input (default: rank 0)

Run
  --timeout SECONDS         end the job after this time with status 124, and say what each rank was doing
                            (without it: MPIEXEC_TIMEOUT)
  --net IFACE|ADDRESS/LEN   the interfaces or networks that ranks use between hosts, with commas between (WHIMBREL_NET)
  -memory-alloc-kinds LIST  ask for kinds of memory; ranks have system and mpi
  -arch NAME                refuse to run this program on another architecture
  --shared-heap             let malloc take blocks from 64 KiB on from memory that the ranks of this machine map: messages from and
                            to them are copied by load and store (libwhimbrel-heap.so, WHIMBREL_MAP_MEMORY=on)
  --report                  let the library print what it did at the end (WHIMBREL_REPORT=1)
  --display-map, --report-bindings
                            say where programs run, and which processors each rank is bound to
  --verbose                 print where each rank runs
  -q, --quiet               no warnings
  --version, --help

Exit status: 0 if every rank's was; else that of the first rank that failed, 128 + signal if it was killed, or the code
given to MPI_Abort. SIGINT, SIGTERM, SIGHUP, SIGTSTP and others are passed on to the ranks; a second SIGINT kills them.
SIGINT and SIGQUIT first say what each rank is doing; whimbrel where says it of a job that goes on.

Accepted, since they ask for what happens anyway: --oversubscribe, --allow-run-as-root, --report-state-on-timeout,
-enable-auto-cleanup. Options that concern another launcher or library alone (--mca NAME VALUE and its kin, --tune, --prefix,
--personality, -launcher, -rmk, -demux, -membind, -topolib, ...) are taken with a warning that they have no effect, and what to use
instead; -q suppresses it. Options that ask for what this launcher does not do (--rankfile, -gdb, --xterm, --get-stack-traces,
-disable-auto-cleanup, -nolocal, ...) are refused with what to use instead.";

/// What is to be done.
#[derive(Debug, PartialEq, Eq)]
pub enum Command {
    Run(Box<Job>),
    Help,
    Version,
}

/// A job as asked for.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Job {
    /// At least one; the ranks of each follow those of the one before.
    pub programs: Vec<Program>,
    pub label: bool,
    /// What each line of output begins with: `%r` is the rank, `%h` the host.
    pub prepend: Option<String>,
    /// Each line of output begins with the time.
    pub timestamp: bool,
    /// Standard error goes where standard output does.
    pub merge: bool,
    pub output: Option<Output>,
    /// Where standard error goes, if not by `output`.
    pub errors: Option<String>,
    /// Which processors each rank gets.
    pub placement: Placement,
    /// Say nothing that is no error.
    pub quiet: bool,
    /// Lines on options that have no effect here.
    pub notes: Vec<String>,
    pub stdin: Stdin,
    pub timeout: Option<Duration>,
    pub universe_size: Option<u32>,
    pub verbose: bool,
    pub report: bool,
    /// Programs get an allocator whose blocks peers can map.
    pub shared_heap: bool,
    /// Say which processors each rank is bound to.
    pub report_bindings: bool,
    /// Say which program runs where.
    pub display_map: bool,
    /// The processors that the job may use; `None`: those that `mpiexec` may use.
    pub cpus: Option<Vec<usize>>,
    /// Kinds of memory that are asked for, with commas between.
    pub memory_kinds: Option<String>,
    /// Ranks of each machine.
    pub per_host: Option<u32>,
    /// Where the ranks are to run, if not all on this machine.
    pub hosts: Vec<Host>,
    /// Who is to start them there; `None`: whoever is found.
    pub engine: Option<Engine>,
}

/// A machine that is to run ranks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Host {
    /// Letters, digits, dots, hyphens, underscores and colons in brackets; not beginning with a hyphen.
    pub name: String,
    /// Ranks there, at least 1; `None`: a share of them.
    pub slots: Option<u32>,
}

/// Who starts ranks on other machines.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Engine {
    Prrte,
    Hydra,
    Slurm,
}

impl Engine {
    /// In words.
    pub fn name(self) -> &'static str {
        match self {
            Engine::Prrte => "PRRTE's prterun",
            Engine::Hydra => "Hydra's mpiexec",
            Engine::Slurm => "Slurm's srun",
        }
    }
}

impl Host {
    /// Reads `name` or `name:slots`.
    ///
    /// Errors: one line.
    pub fn parse(word: &str) -> Result<Host, String> {
        // An address of IPv6 stands in brackets.
        let at = word.rfind(']').map_or(0, |at| at + 1);
        let (name, slots) = match word[at..].find(':') {
            Some(colon) => (&word[..at + colon], Some(&word[at + colon + 1..])),
            None => (word, None),
        };
        let good = |byte: u8| byte.is_ascii_alphanumeric() || b".-_[]:%".contains(&byte);
        if name.is_empty() || name.starts_with('-') || name.len() > 255 || !name.bytes().all(good) {
            return Err(format!("{word:?} is no name of a host"));
        }
        let slots = match slots {
            None => None,
            Some(slots) => Some(slots.parse().ok().filter(|slots| *slots > 0).ok_or_else(|| format!("{word:?}: {slots:?} is no number of slots"))?),
        };
        Ok(Host { name: name.to_owned(), slots })
    }

    fn is_here(&self) -> bool {
        let here = rustix::system::uname();
        ["localhost", "127.0.0.1", "[::1]"].contains(&self.name.as_str()) || here.nodename().to_bytes() == self.name.as_bytes()
    }
}

/// One program of a job.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Program {
    /// Ranks, at least 1.
    pub count: u32,
    pub program: OsString,
    pub args: Vec<OsString>,
    pub env: Vec<(OsString, OsString)>,
    pub wdir: Option<PathBuf>,
    /// Where the program is looked for before `PATH`, directories with colons between.
    pub path: Option<OsString>,
    pub inherit: Inherit,
}

/// Which variables of `mpiexec`'s own environment a program gets.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub enum Inherit {
    #[default]
    All,
    /// These alone; perhaps none.
    These(Vec<OsString>),
}

/// Where the ranks' output goes instead of `mpiexec`'s own.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Output {
    Directory(PathBuf),
    /// Contains `%r`, and perhaps `%s`.
    Pattern(String),
}

/// Who reads `mpiexec`'s standard input.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stdin {
    Rank(u32),
    All,
    None,
}

impl Default for Stdin {
    fn default() -> Stdin {
        Stdin::Rank(0)
    }
}

impl Job {
    /// Ranks of all programs together.
    pub fn size(&self) -> u32 {
        self.programs.iter().map(|program| program.count).sum()
    }
}

/// What `-initial-errhandler` takes (MPI-5.0 §11.5).
const ERRHANDLERS: [&str; 3] = ["mpi_errors_are_fatal", "mpi_errors_abort", "mpi_errors_return"];

/// What is said of the environment of all programs.
#[derive(Default)]
struct Common {
    env: Vec<(OsString, OsString)>,
    inherit: Option<Inherit>,
}

/// Reads the arguments after the command's name.
///
/// Errors: one line that names the argument.
pub fn parse(args: impl IntoIterator<Item = OsString>) -> Result<Command, String> {
    let mut job = Job::default();
    let mut common = Common::default();
    // Of each program, whether its number of ranks was given.
    let mut counted = Vec::new();
    let mut left: VecDeque<(Vec<OsString>, bool)> = sections(args).into_iter().map(|words| (words, false)).collect();
    'programs: while let Some((section, of_file)) = left.pop_front() {
        let mut words = section.into_iter();
        let mut program = Program { count: 1, ..Program::default() };
        let (mut named, mut count_given, mut soft, mut inherit) = (false, false, None, None);
        while let Some(word) = words.next() {
            let Some(option) = Flag::of(&word) else {
                program.program = word;
                program.args = words.by_ref().collect();
                named = true;
                break;
            };
            if option.name.is_empty() {
                if let Some(word) = words.next() {
                    program.program = word;
                    program.args = words.by_ref().collect();
                    named = true;
                }
                break;
            }
            let mut option = Values { option, words: &mut words };
            let done = output_option(&mut job, &mut option)?
                || placement_option(&mut job, &mut option)?
                || job_option(&mut job, &mut option)?
                || environment_option(&mut common, &mut program, &mut inherit, &mut option)?;
            match option.option.name.as_str() {
                _ if done => {}
                "h" | "help" => return Ok(Command::Help),
                "V" | "version" => return Ok(Command::Version),
                "n" | "np" => {
                    program.count = option.number(1..=u64::from(launch::RANKS_MAX))? as u32;
                    count_given = true;
                }
                "soft" => soft = Some((option.option.word.clone(), option.text()?)),
                "configfile" | "app" => {
                    let file = option.value()?;
                    let word = option.option.word.clone();
                    if of_file || words.next().is_some() || program != (Program { count: 1, ..Program::default() }) || count_given || soft.is_some() {
                        return Err(format!("{word}: programs and their options come from the file, and none can stand beside it"));
                    }
                    let lines = others::lines_of(Path::new(&file)).map_err(|why| format!("{word} {}: {why}", file.display()))?;
                    for line in lines.into_iter().rev() {
                        left.push_front((line.into_iter().map(OsString::from).collect(), true));
                    }
                    continue 'programs;
                }
                "path" => program.path = Some(option.value()?),
                "wdir" | "wd" => program.wdir = Some(option.value()?.into()),
                _ => other_option(&mut job, &mut option)?,
            }
            if let Some(value) = option.option.value {
                return Err(format!("{} takes no value, but got {}", option.option.word, value.display()));
            }
        }
        if !named {
            return Err("no program to start (see mpiexec --help)".to_owned());
        }
        if let Some((word, list)) = soft {
            program.count = others::soft(&list, program.count).map_err(|why| format!("{word}: {why}"))?;
            count_given = true;
        }
        // What is said of this program alone stays; what is said of all may come later.
        let own = inherit.is_some();
        program.inherit = inherit.unwrap_or_default();
        counted.push((count_given, own));
        job.programs.push(program);
        if job.programs.len() > PROGRAMS_MAX {
            return Err(format!("too many programs (limit {PROGRAMS_MAX})"));
        }
    }
    settle(&mut job, &counted, &common)?;
    Ok(Command::Run(Box::new(job)))
}

/// Options about output, input and reports.
///
/// False: `option` is none of them. Errors: one line that names the argument.
fn output_option(job: &mut Job, option: &mut Values<'_>) -> Result<bool, String> {
    match option.option.name.as_str() {
        "l" | "label" | "prepend-rank" | "tag-output" => job.label = true,
        "prepend-pattern" => job.prepend = Some(option.text()?),
        "timestamp-output" => job.timestamp = true,
        "merge-stderr-to-stdout" => job.merge = true,
        "output" => {
            let value = option.text()?;
            output(job, &value).map_err(|why| format!("{} {value}: {why}", option.option.word))?;
        }
        "output-filename" | "outfile-pattern" => job.output = Some(destination(option.text()?)),
        "errfile-pattern" => {
            let pattern = option.text()?;
            if !pattern.contains("%r") {
                return Err(format!("{} {pattern}: %r is missing, for which each rank's number is put", option.option.word));
            }
            job.errors = Some(pattern);
        }
        "report-bindings" => job.report_bindings = true,
        "display-map" | "display-allocation" => job.display_map = true,
        "display" => {
            for word in option.text()?.split(',') {
                match word {
                    "map" | "allocation" => job.display_map = true,
                    "bind" | "bindings" => job.report_bindings = true,
                    _ => return Err(format!("{}: {word:?} is none of map, allocation, bind", option.option.word)),
                }
            }
        }
        "q" | "quiet" => job.quiet = true,
        "stdin" | "s" => {
            job.stdin = match option.text()?.as_str() {
                "all" => Stdin::All,
                "none" => Stdin::None,
                rank => Stdin::Rank(rank.parse().map_err(|_| format!("{}: {rank:?} is no rank, nor all, nor none", option.option.word))?),
            }
        }
        "v" | "verbose" => job.verbose = true,
        _ => return Ok(false),
    }
    Ok(true)
}

/// Options about hosts, processors and where ranks go.
///
/// False: `option` is none of them. Errors: one line that names the argument.
fn placement_option(job: &mut Job, option: &mut Values<'_>) -> Result<bool, String> {
    match option.option.name.as_str() {
        "ppn" | "N" | "perhost" | "npernode" => job.per_host = Some(option.number(1..=u64::from(launch::RANKS_MAX))? as u32),
        "cpu-list" | "cpu-set" => {
            let list = option.text()?;
            let cpus = topology::parse_list(&list).ok_or_else(|| format!("{}: {list:?} is no list of processors such as 0-3,8", option.option.word))?;
            job.cpus = Some(cpus);
        }
        "bind" | "bind-to" => option.given(|text| job.placement.bind_to(text))?,
        "map-by" => {
            let mut processors = None;
            option.given(|text| job.placement.map_by(text).map(|list| processors = list))?;
            if let Some(list) = processors {
                job.cpus = Some(topology::parse_list(&list).ok_or_else(|| format!("--map-by pe-list={list}: no list of processors such as 0-3,8"))?);
            }
        }
        "rank-by" | "ranks-by" => option.given(|text| job.placement.rank_by(text))?,
        "npersocket" => option.given(|number| job.placement.map_by(&format!("ppr:{number}:package")).map(|_| ()))?,
        "use-hwthread-cpus" => job.placement.hwthreads = true,
        "nooversubscribe" => job.placement.no_oversubscribe = true,
        "H" | "host" | "hosts" => {
            for word in option.text()?.split(',') {
                job.hosts.push(Host::parse(word).map_err(|why| format!("{}: {why}", option.option.word))?);
            }
        }
        "hostfile" | "machinefile" | "f" => {
            let file = option.value()?;
            let hosts = hosts_of(Path::new(&file));
            job.hosts.extend(hosts.map_err(|why| format!("{} {}: {why}", option.option.word, file.display()))?);
        }
        _ => return Ok(false),
    }
    Ok(true)
}

/// Options about the job as a whole: the machine, its time, its universe and who starts it.
///
/// False: `option` is none of them. Errors: one line that names the argument.
fn job_option(job: &mut Job, option: &mut Values<'_>) -> Result<bool, String> {
    match option.option.name.as_str() {
        "arch" => {
            let name = option.text()?;
            if !others::is_here(&name) {
                return Err(format!("{} {name}: this machine's architecture is {}", option.option.word, std::env::consts::ARCH));
            }
        }
        "memory-alloc-kinds" => {
            let kinds = option.text()?;
            if kinds.is_empty() {
                return Err(format!("{}: no kind is named", option.option.word));
            }
            job.memory_kinds = Some(kinds);
        }
        "timeout" => job.timeout = Some(Duration::from_secs(option.number(1..=u64::from(u32::MAX))?)),
        "usize" => {
            let value = option.text()?;
            job.universe_size = match value.as_str() {
                "SYSTEM" | "INFINITE" => None,
                number => {
                    Some(number.parse().ok().filter(|size| *size > 0).ok_or_else(|| format!("{}: {number:?} is no number of processes", option.option.word))?)
                }
            }
        }
        "report" => job.report = true,
        "shared-heap" => job.shared_heap = true,
        "engine" => {
            let name = option.text()?;
            job.engine = Some(match name.as_str() {
                "prterun" | "prrte" => Engine::Prrte,
                "hydra" => Engine::Hydra,
                "srun" | "slurm" => Engine::Slurm,
                _ => return Err(format!("{}: {name:?} is none of prterun, hydra, srun", option.option.word)),
            });
        }
        _ => return Ok(false),
    }
    Ok(true)
}

/// Options that others have: some say what happens anyway, some have no effect, which is noted.
///
/// Errors: one line; the option is not supported, or not known.
fn other_option(job: &mut Job, option: &mut Values<'_>) -> Result<(), String> {
    match option.option.name.as_str() {
        name if others::instead(name).is_some() => {
            return Err(format!("{} is not supported: {}", option.option.word, others::instead(name).unwrap_or_default()));
        }
        name if HAPPENS_ANYWAY.contains(&name) => {}
        name => match WITHOUT_EFFECT.iter().find(|option| option.names.contains(&name)) {
            Some(known) => {
                let values = (0..known.values).map(|_| option.text()).collect::<Result<Vec<_>, _>>()?;
                let words = [std::slice::from_ref(&option.option.word), &values].concat().join(" ");
                let note = format!("{words} has no effect: {}", known.why);
                if !job.notes.contains(&note) {
                    job.notes.push(note);
                }
            }
            None => return Err(format!("unknown option {} (see mpiexec --help)", option.option.word)),
        },
    }
    Ok(())
}

/// Options about the environment: of all programs, and of this one.
///
/// False: `option` is none of them. Errors: one line that names the argument.
fn environment_option(common: &mut Common, program: &mut Program, inherit: &mut Option<Inherit>, option: &mut Values<'_>) -> Result<bool, String> {
    match option.option.name.as_str() {
        "initial-errhandler" => {
            let name = option.text()?;
            if !ERRHANDLERS.contains(&name.as_str()) {
                return Err(format!("{}: {name:?} is none of {}", option.option.word, ERRHANDLERS.join(", ")));
            }
            program.env.push(("WHIMBREL_INITIAL_ERRHANDLER".into(), name.into()));
        }
        "x" => {
            let word = option.value()?;
            let (name, value) = split(&word);
            let value = value.or_else(|| std::env::var_os(&name));
            let value = value.ok_or_else(|| format!("-x: {} is not set", name.display()))?;
            program.env.push((variable(name)?, value));
        }
        "env" => {
            let word = option.value()?;
            let (name, value) = split(&word);
            let value = value.map_or_else(|| option.value(), Ok)?;
            program.env.push((variable(name)?, value));
        }
        "net" | "iface" => {
            let value = option.value()?;
            common.env.push(("WHIMBREL_NET".into(), value));
        }
        "genvall" => common.inherit = Some(Inherit::All),
        "genvnone" => common.inherit = Some(Inherit::These(Vec::new())),
        "genvlist" => common.inherit = Some(Inherit::These(names(&option.value()?))),
        "envall" => *inherit = Some(Inherit::All),
        "envnone" => *inherit = Some(Inherit::These(Vec::new())),
        "envlist" => *inherit = Some(Inherit::These(names(&option.value()?))),
        "genv" => {
            let word = option.value()?;
            let (name, value) = split(&word);
            let value = value.map_or_else(|| option.value(), Ok)?;
            common.env.push((variable(name)?, value));
        }
        _ => return Ok(false),
    }
    Ok(true)
}

/// Brings what was said of all programs to each of them, and checks what depends on all. `counted`: of each program, whether its number of ranks was
/// given, and whether its environment was.
fn settle(job: &mut Job, counted: &[(bool, bool)], common: &Common) -> Result<(), String> {
    if job.per_host.is_none() && job.placement.per_object.is_some() {
        job.per_host = per_host(job, counted.iter().all(|(count_given, _)| *count_given))?;
    }
    let hosts = job.hosts.len().max(1) as u32;
    for (program, (count_given, own)) in job.programs.iter_mut().zip(counted.iter().copied()) {
        // A program's own variables come later, and so win.
        program.env.splice(0..0, common.env.iter().cloned());
        if let (false, Some(inherit)) = (own, &common.inherit) {
            program.inherit = inherit.clone();
        }
        if let (false, Some(per_host)) = (count_given, job.per_host) {
            program.count = per_host.saturating_mul(hosts);
        }
    }
    let size = job.programs.iter().map(|program| u64::from(program.count)).sum::<u64>();
    if size > u64::from(launch::RANKS_MAX) {
        return Err(format!("{size} ranks are too many (limit {})", launch::RANKS_MAX));
    }
    if job.hosts.len() > HOSTS_MAX {
        return Err(format!("{} hosts are too many (limit {HOSTS_MAX})", job.hosts.len()));
    }
    if job.hosts.iter().all(Host::is_here) && job.engine.is_none() {
        job.hosts.clear();
    } else if job.hosts.is_empty() {
        return Err("--engine: hosts are missing (--hosts or --hostfile)".to_owned());
    }
    match job.stdin {
        Stdin::Rank(rank) if u64::from(rank) >= size => Err(format!("--stdin {rank}: there are {size} ranks")),
        _ => Ok(()),
    }
}

/// Ranks of each machine where `ppr` says how many each of its objects gets.
///
/// Errors: one line; they are not known of other machines.
fn per_host(job: &Job, counted: bool) -> Result<Option<u32>, String> {
    match job.placement.map {
        Some(Unit::Machine) | None => Ok(job.placement.per_object),
        _ if job.hosts.iter().all(Host::is_here) => Ok(job.placement.ranks(&topology::cpus())),
        _ if counted => Ok(None),
        _ => Err(format!("{}: other machines' objects are not counted: give the number of ranks with -n", job.placement.asked.as_deref().unwrap_or_default())),
    }
}

fn hosts_of(file: &Path) -> Result<Vec<Host>, String> {
    let mut text = String::new();
    let file = std::fs::File::open(file).map_err(|error| error.to_string())?;
    file.take(HOSTFILE_BYTES_MAX + 1).read_to_string(&mut text).map_err(|error| error.to_string())?;
    if text.len() as u64 > HOSTFILE_BYTES_MAX {
        return Err(format!("longer than {HOSTFILE_BYTES_MAX} bytes"));
    }
    handover::hosts_of_file(&text)
}

/// The words between colons.
fn sections(args: impl IntoIterator<Item = OsString>) -> Vec<Vec<OsString>> {
    let mut sections = vec![Vec::new()];
    for word in args {
        if word == ":" {
            sections.push(Vec::new());
        } else if let Some(section) = sections.last_mut() {
            section.push(word);
        }
    }
    sections
}

struct Flag {
    /// As written, for messages.
    word: String,
    /// Without hyphens; empty for `--`.
    name: String,
    /// What stood behind `=`.
    value: Option<OsString>,
}

impl Flag {
    /// `None` if `word` is no option.
    fn of(word: &OsStr) -> Option<Flag> {
        let text = word.to_string_lossy();
        if text == "--" {
            return Some(Flag { word: text.into_owned(), name: String::new(), value: None });
        }
        let name = text.strip_prefix("--").or_else(|| text.strip_prefix('-')).filter(|name| !name.is_empty())?;
        let name = name.split('=').next().unwrap_or_default().to_owned();
        let (head, value) = split(word);
        Some(Flag { word: head.to_string_lossy().into_owned(), name, value })
    }
}

struct Values<'a> {
    option: Flag,
    words: &'a mut std::vec::IntoIter<OsString>,
}

impl Values<'_> {
    /// The next value: what stands behind `=`, then the words that follow.
    fn value(&mut self) -> Result<OsString, String> {
        let value = self.option.value.take().or_else(|| self.words.next());
        value.ok_or_else(|| format!("{} needs a value", self.option.word))
    }

    fn text(&mut self) -> Result<String, String> {
        let value = self.value()?;
        value.into_string().map_err(|value| format!("{}: {} is not UTF-8", self.option.word, value.display()))
    }

    /// Hands the next value to `take`, whose error gets the option's name.
    fn given(&mut self, take: impl FnOnce(&str) -> Result<(), String>) -> Result<(), String> {
        let text = self.text()?;
        take(&text).map_err(|why| format!("{}: {why}", self.option.word))
    }

    fn number(&mut self, range: std::ops::RangeInclusive<u64>) -> Result<u64, String> {
        let text = self.text()?;
        text.parse()
            .ok()
            .filter(|number| range.contains(number))
            .ok_or_else(|| format!("{} {text}: expected a number from {} to {}", self.option.word, range.start(), range.end()))
    }
}

/// `word` at its first `=`.
fn split(word: &OsStr) -> (OsString, Option<OsString>) {
    use std::os::unix::ffi::OsStrExt;
    let bytes = word.as_bytes();
    match bytes.iter().position(|byte| *byte == b'=') {
        Some(at) => (OsStr::from_bytes(&bytes[..at]).to_owned(), Some(OsStr::from_bytes(&bytes[at + 1..]).to_owned())),
        None => (word.to_owned(), None),
    }
}

fn variable(name: OsString) -> Result<OsString, String> {
    if name.is_empty() { Err("a variable without a name".to_owned()) } else { Ok(name) }
}

/// The names in a list with commas between.
fn names(list: &OsStr) -> Vec<OsString> {
    use std::os::unix::ffi::OsStrExt;
    let names = list.as_bytes().split(|byte| *byte == b',').filter(|name| !name.is_empty());
    names.map(|name| OsStr::from_bytes(name).to_owned()).collect()
}

fn destination(value: String) -> Output {
    if value.contains("%r") { Output::Pattern(value) } else { Output::Directory(value.into()) }
}

/// `--output`: a directory or a pattern of ours, or Open MPI's words with commas between.
///
/// Errors: what it takes.
fn output(job: &mut Job, value: &str) -> Result<(), String> {
    const TAKES: &str = "expected a directory (./tag, if it is called so), a pattern with %r for the rank and %s for out or err, or some of \
                         tag, timestamp, merge, dir=DIR, file=NAME with commas between";
    let is_word = |word: &str| {
        let name = word.split(['=', ':']).next().unwrap_or_default();
        matches!(
            name,
            "tag" | "tag-detailed" | "tag-fullname" | "rank" | "timestamp" | "merge" | "merge-stderr-to-stdout" | "xml" | "raw" | "dir" | "directory" | "file"
        )
    };
    if value.is_empty() {
        return Err(TAKES.to_owned());
    }
    if !value.split(',').any(is_word) {
        job.output = Some(destination(value.to_owned()));
        return Ok(());
    }
    for word in value.split(',') {
        match (word, word.split_once('=')) {
            ("tag" | "tag-detailed" | "tag-fullname" | "rank", _) => job.label = true,
            ("timestamp", _) => job.timestamp = true,
            ("merge" | "merge-stderr-to-stdout", _) => job.merge = true,
            (_, Some(("dir" | "directory", directory))) if !directory.is_empty() => job.output = Some(Output::Directory(directory.into())),
            (_, Some(("file", name))) if !name.is_empty() => job.output = Some(Output::Pattern(format!("{name}.%r.%s"))),
            _ => return Err(format!("{word:?} is not known: {TAKES}")),
        }
    }
    Ok(())
}

/// Takes the time limit from `MPIEXEC_TIMEOUT`, seconds, where the command line has none.
///
/// Errors: one line; the variable is no number of seconds.
pub fn take_timeout(job: &mut Job, variable: Option<OsString>) -> Result<(), String> {
    let Some(value) = variable.filter(|_| job.timeout.is_none()) else { return Ok(()) };
    let seconds = value.to_str().and_then(|text| text.trim().parse().ok()).filter(|seconds| (1..=u64::from(u32::MAX)).contains(seconds));
    let seconds = seconds.ok_or_else(|| format!("MPIEXEC_TIMEOUT={}: expected a number of seconds from 1 to {}", value.display(), u32::MAX))?;
    job.timeout = Some(Duration::from_secs(seconds));
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::placement::{Bind, RankBy};
    use proptest::prelude::*;

    fn run(line: &str) -> Job {
        match parse(line.split_whitespace().map(OsString::from)) {
            Ok(Command::Run(job)) => *job,
            other => panic!("{line}: {other:?}"),
        }
    }

    fn refused(line: &str) -> String {
        match parse(line.split_whitespace().map(OsString::from)) {
            Err(error) => error,
            other => panic!("{line}: {other:?}"),
        }
    }

    #[test]
    fn one_program() {
        let job = run("-n 4 prog -n 5 --label :x");
        assert_eq!(job.size(), 4);
        assert_eq!(job.programs[0].program, "prog");
        assert_eq!(job.programs[0].args, ["-n", "5", "--label", ":x"]);
        assert!(!job.label);
        assert_eq!(run("prog").size(), 1);
        assert_eq!(run("-np 3 -- -odd").programs[0].program, "-odd");
        assert_eq!(run("--np=3 prog").size(), 3);
    }

    #[test]
    fn several_programs_with_their_own_and_common_variables() {
        let job = run("-genv A 1 -l -n 2 -env B 2 -wdir /tmp one a : -n 3 -x A=9 --env C=3=4 two");
        assert_eq!(job.size(), 5);
        assert!(job.label);
        assert_eq!(job.programs[0].env, [("A".into(), "1".into()), ("B".into(), "2".into())]);
        assert_eq!(job.programs[0].wdir, Some("/tmp".into()));
        assert_eq!(job.programs[1].env, [("A".into(), "1".into()), ("A".into(), "9".into()), ("C".into(), "3=4".into())]);
        assert_eq!(job.programs[1].wdir, None);
    }

    #[test]
    fn options() {
        let job = run("--output out --stdin all --timeout 7 --bind core --report --shared-heap -v --usize 9 p");
        assert_eq!(job.output, Some(Output::Directory("out".into())));
        assert_eq!((job.stdin, job.timeout, job.placement.bind), (Stdin::All, Some(Duration::from_secs(7)), Bind::To(Unit::Core)));
        assert!(job.report && job.verbose && job.shared_heap);
        assert_eq!(job.universe_size, Some(9));
        assert_eq!(run("--output f.%r p").output, Some(Output::Pattern("f.%r".into())));
        assert_eq!(run("-n 2 --stdin 1 p").stdin, Stdin::Rank(1));
        assert_eq!(run("--stdin none p").stdin, Stdin::None);
        let handler = ("WHIMBREL_INITIAL_ERRHANDLER".into(), "mpi_errors_return".into());
        assert_eq!(run("-initial-errhandler mpi_errors_return p : q").programs.iter().map(|p| p.env.clone()).collect::<Vec<_>>(), [vec![handler], vec![]]);
        assert!(refused("-initial-errhandler none p").contains("mpi_errors_abort"));
        assert_eq!(run("--net eth0,10.0.0.0/8 p").programs[0].env, [("WHIMBREL_NET".into(), "eth0,10.0.0.0/8".into())]);
    }

    #[test]
    fn options_of_other_launchers_take_their_arguments_along() {
        let line = "--oversubscribe --allow-run-as-root --bind-to socket --map-by slot --rank-by fill --mca btl self,vader -n 2 p";
        let job = run(line);
        assert_eq!((job.size(), job.placement.bind, job.placement.map), (2, Bind::To(Unit::Package), Some(Unit::Machine)));
        assert_eq!((job.placement.rank, &job.programs[0].program), (Some(RankBy::Fill), &"p".into()));
        assert_eq!(run("--bind-to none p").placement.bind, Bind::None);
        assert_eq!(run("-host localhost:4 p").hosts, []);
        assert_eq!((run("--map-by ppr:3:node p").size(), run("--map-by ppr:3:node -n 2 p").size()), (3, 2));
        assert_eq!(run("--map-by pe-list=0,2 p").cpus, Some(vec![0, 2]));
        let job = run("--use-hwthread-cpus --nooversubscribe -q p");
        assert!(job.placement.hwthreads && job.placement.no_oversubscribe && job.quiet);
        assert_eq!(run("--npersocket 2 -n 1 p").placement.per_object, Some(2));
    }

    /// None is silently ignored: each is done, noted with what to use instead, refused, or asks for what happens anyway.
    #[test]
    fn what_has_no_effect_is_noted() {
        let job = run("--mca btl self,vader --mca btl self,vader -gmca a b -tune f -launcher ssh -membind numa -pmi-port p");
        assert_eq!(job.notes.len(), 6, "{:?}", job.notes);
        assert!(job.notes[0].starts_with("--mca btl self,vader has no effect: ") && job.notes[0].contains("whimbrel info --params"), "{:?}", job.notes);
        for known in &WITHOUT_EFFECT {
            for name in known.names {
                let values = " v".repeat(known.values);
                let job = run(&format!("--{name}{values} p"));
                assert!(job.notes.len() == 1 && job.notes[0].starts_with(&format!("--{name}{values} has no effect: ")), "{:?}", job.notes);
                assert_eq!(job.programs[0].program, "p");
            }
        }
        for name in HAPPENS_ANYWAY {
            assert_eq!(run(&format!("--{name} p")).notes, Vec::<String>::new());
        }
    }

    #[test]
    fn what_other_launchers_users_ask_for_is_done() {
        assert_eq!(run("-ppn 3 p").size(), 3);
        assert_eq!(run("-N 3 -n 5 p : q").programs.iter().map(|program| program.count).collect::<Vec<_>>(), [5, 3]);
        assert_eq!(run("-ppn 2 -H far,away p").size(), 4);
        assert_eq!(run("-soft 2:9:2 -n 7 p").size(), 6);
        assert_eq!(run("--cpu-list 0-1,3 p").cpus, Some(vec![0, 1, 3]));
        let job = run("-prepend-pattern <%r> --timestamp-output --merge-stderr-to-stdout -errfile-pattern e.%r --report-bindings --display-map p");
        assert_eq!((job.prepend.as_deref(), job.errors.as_deref()), (Some("<%r>"), Some("e.%r")));
        assert!(job.timestamp && job.merge && job.report_bindings && job.display_map);
        let job = run("--output tag,timestamp,merge,dir=d p");
        assert!(job.label && job.timestamp && job.merge && job.output == Some(Output::Directory("d".into())));
        assert_eq!(run("--output file=x p").output, Some(Output::Pattern("x.%r.%s".into())));
        assert_eq!(run("--output ./tag p").output, Some(Output::Directory("./tag".into())));
        let job = run("-genvnone -envall p : -envlist A,B q : r");
        let these = |names: &[&str]| Inherit::These(names.iter().map(OsString::from).collect());
        assert_eq!(job.programs.iter().map(|program| program.inherit.clone()).collect::<Vec<_>>(), [Inherit::All, these(&["A", "B"]), these(&[])]);
        assert_eq!(run("-genvlist A p").programs[0].inherit, these(&["A"]));
        assert_eq!(run("-path /a:/b p").programs[0].path, Some("/a:/b".into()));
        assert_eq!(run(&format!("-arch {} p", std::env::consts::ARCH)).size(), 1);
        assert_eq!(run("--display map,bind p").display_map, run("--display bind p").report_bindings);
        assert_eq!(run("-memory-alloc-kinds system,mpi p").memory_kinds.as_deref(), Some("system,mpi"));
    }

    #[test]
    fn programs_come_from_a_file() {
        let file = std::env::temp_dir().join(format!("whimbrel-configfile-{}", std::process::id()));
        std::fs::write(&file, "# two\n-n 2 -wdir '/a b' one \\\n x\n\n  three : -n 4 four\n").unwrap();
        for name in ["-configfile", "--app"] {
            let job = run(&format!("-l {name} {}", file.display()));
            let programs: Vec<_> = job.programs.iter().map(|program| (program.count, program.program.to_str().unwrap(), program.args.len())).collect();
            assert_eq!((programs, job.label), (vec![(2, "one", 1), (1, "three", 0), (4, "four", 0)], true));
            assert_eq!(job.programs[0].wdir, Some("/a b".into()));
        }
        assert!(refused(&format!("-n 2 -configfile {}", file.display())).contains("none can stand beside it"));
        assert!(refused(&format!("-configfile {} p", file.display())).contains("none can stand beside it"));
        std::fs::write(&file, format!("-configfile {}", file.display())).unwrap();
        assert!(refused(&format!("-configfile {}", file.display())).contains("none can stand beside it"));
        for (text, words) in [("-n 2 'p", "line 1: a quote"), ("# p\n", "names no program")] {
            std::fs::write(&file, text).unwrap();
            assert!(refused(&format!("-configfile {}", file.display())).contains(words), "{text}");
        }
        std::fs::remove_file(&file).unwrap();
        assert!(refused(&format!("--app {}", file.display())).contains("No such file"));
    }

    #[test]
    fn a_variable_limits_the_time() {
        let with = |line: &str, value: &str| {
            let mut job = run(line);
            take_timeout(&mut job, Some(value.into())).map(|()| job.timeout.map(|timeout| timeout.as_secs()))
        };
        assert_eq!(with("p", "7"), Ok(Some(7)));
        assert_eq!(with("--timeout 3 p", "x"), Ok(Some(3)));
        for wrong in ["", "x", "0", "-1", "1.5"] {
            assert!(with("p", wrong).unwrap_err().starts_with("MPIEXEC_TIMEOUT="), "{wrong}");
        }
    }

    #[test]
    fn hosts_elsewhere_are_kept_with_their_slots() {
        let job = run("--hosts far.example:2,localhost,[fe80::1]:3 -n 4 p");
        let hosts: Vec<_> = job.hosts.iter().map(|host| (host.name.as_str(), host.slots)).collect();
        assert_eq!(hosts, [("far.example", Some(2)), ("localhost", None), ("[fe80::1]", Some(3))]);
        assert_eq!(job.engine, None);
        assert_eq!(run("--engine hydra --hosts localhost p").engine, Some(Engine::Hydra));
    }

    #[test]
    fn what_cannot_be_is_refused_by_name() {
        for (line, words) in [
            ("", "no program"),
            ("-n 4", "no program"),
            ("a :", "no program"),
            ("-n 0 p", "-n 0"),
            ("-n x p", "-n x"),
            ("-n", "-n needs"),
            ("-n 1025 p", "1024"),
            ("-n 1000 p : -n 25 q", "1025 ranks"),
            ("--frobnicate p", "--frobnicate"),
            ("--label=3 p", "--label takes no value"),
            ("--bind chair p", "\"chair\" is none of none, share"),
            ("-n 2 --stdin 2 p", "there are 2 ranks"),
            ("--stdin x p", "\"x\""),
            ("-x WHIMBREL_TEST_SURELY_UNSET p", "WHIMBREL_TEST_SURELY_UNSET"),
            ("--env =3 p", "without a name"),
            ("-host a,,b p", "no name of a host"),
            ("-host a:0 p", "no number of slots"),
            ("--hosts -oProxyCommand=x p", "no name of a host"),
            ("--hostfile /nowhere/at/all p", "/nowhere/at/all"),
            ("--engine ssh p", "ssh"),
            ("--engine hydra p", "hosts are missing"),
            ("--timeout 0 p", "--timeout 0"),
            ("--mca a", "--mca needs"),
            ("--output= p", "expected a directory"),
            ("--output tag,xml p", "\"xml\" is not known: expected"),
            ("--output dir= p", "expected a directory"),
            ("--display topo p", "none of map"),
            ("-errfile-pattern e p", "%r is missing"),
            ("--cpu-list 3-1 p", "no list of processors"),
            ("-soft 9 -n 4 p", "-soft: \"9\" allows no number"),
            ("-arch pdp11 p", "this machine's architecture is"),
            ("-memory-alloc-kinds= p", "no kind"),
            ("--bind-to user:0,1 p", "--cpu-list"),
            ("--bind-to board:x p", "\"x\" is none of"),
            ("--map-by rack p", "--map-by: \"rack\": \"rack\" is none of"),
            ("--map-by pe-list=x p", "no list of processors"),
            ("--rank-by colour p", "--rank-by"),
            ("--npersocket x p", "expected ppr:N:KIND"),
            ("--map-by ppr:2:socket -H far p", "give the number of ranks"),
            ("-nolocal p", "--hosts"),
            ("--rankfile f p", "--rankfile is not supported: ranks are not placed one by one: use"),
            ("-gdb p", "xterm -e gdb"),
            ("--xterm 0 p", "xterm -hold"),
            ("--get-stack-traces p", "gdb -p PID"),
            ("-disable-auto-cleanup p", "--engine"),
            ("--enable-recovery p", "--engine"),
            ("-file f p", "-configfile"),
        ] {
            let error = refused(line);
            assert!(error.contains(words) && !error.contains('\n'), "{line}: {error}");
        }
    }

    #[test]
    fn help_and_version_need_no_program() {
        assert_eq!(parse(["--help".into()]), Ok(Command::Help));
        assert_eq!(parse(["-n".into(), "2".into(), "--version".into()]), Ok(Command::Version));
    }

    proptest! {
        #[test]
        fn no_line_panics(words in prop::collection::vec("[-=:a-z0-9]{0,6}", 0..8)) {
            let _ = parse(words.into_iter().map(OsString::from));
        }
    }
}
