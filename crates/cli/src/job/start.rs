//! How are the ranks started?

use super::{Launcher, Rank, Token};
use crate::args::{self, Inherit, Job, Program, Stdin};
use crate::input::Input;
use crate::output::Stream;
use crate::placement::Bind;
use crate::topology;
use launch::environment;
use rustix::process::{Pid, Resource, Rlimit};
use std::ffi::OsStr;
use std::fs;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

impl Launcher {
    /// Starts all ranks.
    ///
    /// Errors: exit status and one line, for the first that cannot be started.
    pub(super) fn spawn(&mut self) -> Result<(), (i32, String)> {
        let wanted = &self.job.placement;
        let by_default = wanted.bind == Bind::Share && self.size > 1 && self.size <= self.processors;
        let asked = wanted.is_explicit() || wanted.per_object.is_some() || wanted.no_oversubscribe;
        let shown = self.job.report_bindings || self.job.display_map;
        let cpus = if by_default || asked || shown { topology::cpus() } else { Vec::new() };
        let places = if by_default || asked { wanted.place(&cpus, self.size).map_err(|line| (1, line))? } else { None };
        let cpus: Vec<usize> = cpus.iter().map(|cpu| cpu.number).collect();
        let forwards_input = match self.job.stdin {
            Stdin::None => false,
            Stdin::All => self.size > 1 || rustix::termios::isatty(rustix::stdio::stdin()),
            Stdin::Rank(_) => rustix::termios::isatty(rustix::stdio::stdin()),
        };
        let mut inputs = Vec::new();
        let key = environment::to_hex(&self.secret);
        if self.job.display_map {
            let line = self.map(&cpus);
            self.output.say(&line);
        }
        let heap = if self.job.shared_heap { Some(shared_heap().map_err(|line| (1, line))?) } else { None };
        let mut rank = 0;
        for at in 0..self.job.programs.len() {
            let path = find(&self.job.programs[at]);
            for _ in 0..self.job.programs[at].count {
                let mut command = self.command(at, &path, rank, &key);
                if let Some(heap) = &heap {
                    preload(&mut command, heap);
                }
                let reads = match self.job.stdin {
                    Stdin::None => false,
                    Stdin::All => true,
                    Stdin::Rank(reader) => reader == rank,
                };
                command.stdin(match (reads, forwards_input) {
                    (false, _) => nothing_to_read().map_err(|error| (1, format!("cannot make an empty standard input for rank {rank}: {error}")))?,
                    (true, true) => Stdio::piped(),
                    (true, false) => Stdio::inherit(),
                });
                let pipes = self.connect_output(&mut command, rank)?;
                let place = places.as_ref().map(|places| &places[rank as usize]);
                if let Some(place) = place {
                    // The child inherits it. Where the kernel refuses, the rank runs anywhere.
                    let _ = rustix::thread::sched_setaffinity(None, &topology::set(place));
                }
                let mut child = command.spawn().map_err(|error| self.unstartable(at, &error))?;
                let pid = Pid::from_raw(child.id() as i32).ok_or((1, "a process without a number".to_owned()))?;
                if let Some(guardian) = &mut self.guardian {
                    guardian.add(pid.as_raw_nonzero().get());
                }
                self.ranks.push(Rank { pid, appnum: at as i32, exit: None, claim: None, finalized: false, over: false, group_gone: false });
                if let Some(pipe) = child.stdin.take() {
                    inputs.push((Token::RankStdin.encode(), pipe.into()));
                }
                // The child has its ends of a joined pipe; this process must not keep them open.
                drop(command);
                let pipes = match pipes {
                    Pipes::Joined(pipe) => [Some(pipe), None],
                    Pipes::Own => [child.stdout.take().map(OwnedFd::from), child.stderr.take().map(OwnedFd::from)],
                };
                for (pipe, stream) in pipes.into_iter().zip([Stream::Out, Stream::Err]) {
                    if let Some(pipe) = pipe {
                        self.output
                            .add::<Token>(&self.epoll, rank as usize, stream, pipe)
                            .map_err(|error| (1, format!("cannot read the output of rank {rank}: {error}")))?;
                    }
                }
                if self.job.verbose || self.job.report_bindings {
                    let place = match (place, self.job.report_bindings) {
                        (Some(place), _) => format!(", processors {}", topology::list(place)),
                        (None, true) => format!(", not bound: processors {}", topology::list(&cpus)),
                        (None, false) => String::new(),
                    };
                    let program = self.job.programs[at].program.display();
                    let line = format!("rank {rank} ({}, pid {pid}): {program}{place}", self.host);
                    self.output.say(&line);
                }
                rank += 1;
            }
        }
        if places.is_some() {
            let _ = rustix::thread::sched_setaffinity(None, &topology::set(&cpus));
        }
        if forwards_input {
            let mut input = Input::new(&self.epoll, inputs).map_err(|error| (1, format!("cannot pass standard input on: {error}")))?;
            input.arm(&self.epoll, Token::Stdin.encode());
            self.input = Some(input);
        }
        Ok(())
    }

    pub(super) fn command(&self, at: usize, path: &Path, rank: u32, key: &str) -> Command {
        let program = &self.job.programs[at];
        let mut command = Command::new(path);
        command.arg0(&program.program).args(&program.args);
        if let Inherit::These(names) = &program.inherit {
            command.env_clear();
            command.envs(names.iter().filter_map(|name| Some((name, std::env::var_os(name)?))));
        }
        if self.job.report {
            command.env("WHIMBREL_REPORT", "1");
        }
        if let Some(kinds) = &self.job.memory_kinds {
            command.env(format!("{}{}", params::PREFIX, params::MEMORY_ALLOC_KINDS.row().name()), kinds);
        }
        command.envs(program.env.iter().map(|(name, value)| (name, value)));
        command.env(environment::JOB, &self.name);
        command.env(environment::KEY, key);
        command.env(environment::RANK, rank.to_string());
        command.env(environment::SIZE, self.size.to_string());
        match &self.parent {
            Some(parent) => command.env(environment::PARENT, &parent.port),
            None => command.env_remove(environment::PARENT),
        };
        command.env(environment::NETWORK, launch::Host::here().network.1.to_string());
        if let Some(wdir) = &program.wdir {
            command.current_dir(wdir);
        }
        command.process_group(0);
        command
    }

    /// Where the output of `rank` goes, and what of it is to be read.
    fn connect_output(&self, command: &mut Command, rank: u32) -> Result<Pipes, (i32, String)> {
        let file = |stream: &str| match (&self.job.output, &self.job.errors) {
            (_, Some(pattern)) if stream == "err" && !self.job.merge => Some(PathBuf::from(fill(pattern, rank, stream))),
            (Some(args::Output::Directory(directory)), _) => Some(directory.join(format!("rank.{rank}.{stream}"))),
            (Some(args::Output::Pattern(pattern)), _) => Some(PathBuf::from(fill(pattern, rank, stream))),
            (None, _) => None,
        };
        let (out, err) = (file("out"), file(if self.job.merge { "out" } else { "err" }));
        let create = |path: &PathBuf| {
            let failed = |error: io::Error| (1, format!("cannot write {}: {error}", path.display()));
            if let Some(directory) = path.parent() {
                fs::create_dir_all(directory).map_err(failed)?;
            }
            fs::File::create(path).map_err(failed)
        };
        if let Some(path) = &out {
            let file = create(path)?;
            if err.as_ref() == Some(path) {
                command.stderr(file.try_clone().map_err(|error| (1, format!("cannot write {}: {error}", path.display())))?);
            }
            command.stdout(file);
        }
        if let Some(path) = err.as_ref().filter(|path| out.as_ref() != Some(*path)) {
            command.stderr(create(path)?);
        }
        if self.job.merge && out.is_none() {
            let joined = io::pipe().and_then(|(read, write)| Ok((read, write.try_clone()?, write)));
            let (read, first, second) = joined.map_err(|error| (1, format!("cannot read the output of rank {rank}: {error}")))?;
            command.stdout(first).stderr(second);
            return Ok(Pipes::Joined(read.into()));
        }
        // With a single rank there is nothing to keep apart; but from a terminal's background, a program that sets the terminal
        // would be stopped.
        let terminal = [rustix::stdio::stdout(), rustix::stdio::stderr()].into_iter().any(rustix::termios::isatty);
        let changed = self.job.label || self.job.prepend.is_some() || self.job.timestamp;
        let stdio = if self.size > 1 || changed || terminal { Stdio::piped } else { Stdio::inherit };
        if out.is_none() {
            command.stdout(stdio());
        }
        if err.is_none() {
            command.stderr(stdio());
        }
        Ok(Pipes::Own)
    }

    pub(super) fn unstartable(&self, at: usize, error: &io::Error) -> (i32, String) {
        let program = &self.job.programs[at];
        let wdir = program.wdir.as_ref().filter(|wdir| !wdir.is_dir());
        let what = match wdir {
            Some(wdir) => format!("cannot start {} in {}: {error}", program.program.display(), wdir.display()),
            None => format!("cannot start {}: {error}{}", program.program.display(), self.here_instead(at, error)),
        };
        (if error.kind() == io::ErrorKind::NotFound { 127 } else { 126 }, what)
    }
}

impl Launcher {
    /// Words for a program that is not found, but lies in its working directory.
    fn here_instead(&self, at: usize, error: &io::Error) -> String {
        let program = &self.job.programs[at];
        let name = &program.program;
        let here = program.wdir.clone().unwrap_or_default().join(name);
        let bare = !name.as_encoded_bytes().contains(&b'/');
        if error.kind() == io::ErrorKind::NotFound && bare && here.is_file() { format!("; did you mean ./{}?", name.display()) } else { String::new() }
    }
}

impl Launcher {
    /// Which program runs where, in words.
    fn map(&self, cpus: &[usize]) -> String {
        let mut first = 0;
        let mut programs = Vec::new();
        for program in &self.job.programs {
            let ranks = if program.count == 1 { format!("rank {first}") } else { format!("ranks {first}-{}", first + program.count - 1) };
            programs.push(format!("{ranks} {}", program.program.display()));
            first += program.count;
        }
        format!("map: host {}, processors {}: {}", self.host, topology::list(cpus), programs.join("; "))
    }
}

/// What is to be read of a rank's output.
enum Pipes {
    /// What the child was given as pipes of its own.
    Own,
    /// One pipe for both streams.
    Joined(OwnedFd),
}

/// The library that `--shared-heap` preloads, beside the commands in their prefix.
///
/// Errors: it is not there.
fn shared_heap() -> Result<PathBuf, String> {
    let own = std::env::current_exe().map_err(|error| format!("--shared-heap: where mpiexec lies is not known: {error}"))?;
    let library = own.parent().and_then(Path::parent).map(|prefix| prefix.join("lib/libwhimbrel-heap.so")).unwrap_or_default();
    if library.is_file() { Ok(library) } else { Err(format!("--shared-heap: there is no {}", library.display())) }
}

/// Puts the library first of those that are preloaded into a program, and has memory mapped unless the user has said whether.
fn preload(command: &mut Command, library: &Path) {
    let set = |name: &str| match command.get_envs().find(|(key, _)| *key == name) {
        Some((_, value)) => value.map(OsStr::to_owned),
        None => std::env::var_os(name),
    };
    let maps = format!("{}{}", params::PREFIX, params::MAP_MEMORY.row().name());
    let (others, said) = (set("LD_PRELOAD"), set(&maps).is_some());
    let mut all = library.as_os_str().to_owned();
    if let Some(others) = others.filter(|others| !others.is_empty()) {
        all.push(":");
        all.push(others);
    }
    command.env("LD_PRELOAD", all);
    if !said {
        command.env(maps, "on");
    }
}

/// A standard input that is at its end: `/dev/null`, or, where a bare container has none, a pipe that nobody writes to.
fn nothing_to_read() -> io::Result<Stdio> {
    fs::File::open("/dev/null").map(Stdio::from).or_else(|_| io::pipe().map(|(read, _)| Stdio::from(read)))
}

/// `pattern` of a rank's `stream`.
fn fill(pattern: &str, rank: u32, stream: &str) -> String {
    pattern.replace("%r", &rank.to_string()).replace("%s", stream)
}

/// What the lines of each rank begin with.
pub(super) fn labels(job: &Job) -> Vec<String> {
    let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
    let label = |rank: u32| {
        let prepended = job.prepend.as_ref().map(|pattern| pattern.replace("%r", &rank.to_string()).replace("%h", &host));
        let label = if job.label { format!("[{rank}] ") } else { String::new() };
        label + &prepended.unwrap_or_default()
    };
    (0..job.size()).map(label).collect()
}

/// Sees to what concerns the whole job before it begins: its processors, and kinds of memory.
///
/// Errors: one line; processors that this process may not use.
pub(super) fn prepare(job: &Job) -> Result<(), String> {
    if let Some(cpus) = &job.cpus {
        let allowed = rustix::thread::sched_getaffinity(None).map_err(|error| format!("--cpu-list: cannot tell which processors there are: {error}"))?;
        if let Some(cpu) = cpus.iter().find(|cpu| !allowed.is_set(**cpu)) {
            let there: Vec<usize> = (0..topology::CPUS_MAX).filter(|cpu| allowed.is_set(*cpu)).collect();
            return Err(format!("--cpu-list: processor {cpu} is not there, or not for this process ({} are)", topology::list(&there)));
        }
        let mut set = rustix::thread::CpuSet::new();
        cpus.iter().for_each(|cpu| set.set(*cpu));
        // The ranks inherit it, and shares are shares of it.
        rustix::thread::sched_setaffinity(None, &set).map_err(|error| format!("--cpu-list: {error}"))?;
    }
    let asked = job.memory_kinds.as_deref().unwrap_or_default();
    let missing: Vec<&str> = params::kinds::list(asked).filter(|kind| !params::kinds::is_known(kind)).collect();
    if !missing.is_empty() && !job.quiet {
        eprintln!("mpiexec: warning: -memory-alloc-kinds: {} cannot be had; ranks have system and mpi", missing.join(", "));
    }
    Ok(())
}

/// Where the program is, looked up once for all its ranks; its name as given where that has a slash, or nothing is found.
fn find(program: &Program) -> PathBuf {
    let name = &program.program;
    if !name.as_encoded_bytes().contains(&b'/') {
        let own = program.env.iter().rev().find(|(variable, _)| variable == "PATH").map(|(_, path)| path.clone());
        let path = own.or_else(|| std::env::var_os("PATH")).unwrap_or_default();
        // What the option names may be relative to where mpiexec was started.
        let first = program.path.clone().unwrap_or_default();
        let first =
            std::env::split_paths(&first).filter(|directory| !directory.as_os_str().is_empty()).filter_map(|directory| std::path::absolute(directory).ok());
        let found = first
            .chain(std::env::split_paths(&path))
            // What is relative means the working directory of the rank.
            .filter(|directory| directory.is_absolute())
            .map(|directory| directory.join(name))
            .find(|path| path.is_file() && rustix::fs::access(path, rustix::fs::Access::EXEC_OK).is_ok());
        if let Some(found) = found {
            return found;
        }
    }
    name.into()
}

/// Lets this process open as many files as a job of `size` ranks needs.
///
/// Errors: the hard limit is lower.
pub(super) fn raise_file_limit(size: u32) -> Result<(), String> {
    // Two pipes, a socket and a segment for each rank, and a process descriptor where it has a wrapper; a few of its own.
    let (least, needed) = (4 * u64::from(size) + 32, 5 * u64::from(size) + 64);
    let limit = rustix::process::getrlimit(Resource::Nofile);
    if limit.maximum.is_some_and(|maximum| maximum < least) {
        let maximum = limit.maximum.unwrap_or_default();
        return Err(format!("{size} ranks need {least} open files, but the limit is {maximum} (ulimit -Hn)"));
    }
    if limit.current.is_some_and(|current| current < needed) {
        let current = limit.maximum.map_or(needed, |maximum| needed.min(maximum));
        rustix::process::setrlimit(Resource::Nofile, Rlimit { current: Some(current), ..limit })
            .map_err(|error| format!("cannot raise the limit of open files to {current}: {error}"))?;
    }
    Ok(())
}
