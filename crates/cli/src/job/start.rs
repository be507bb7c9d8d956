//! How are the ranks started?

use super::{Launcher, Rank, Token};
use crate::args::{self, Bind, Program, Stdin};
use crate::input::Input;
use crate::output::Stream;
use crate::topology;
use launch::environment;
use rustix::process::{Pid, Resource, Rlimit};
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
        let fits = self.job.bind != Bind::None && self.size > 1 && self.size <= self.processors;
        let cores = if fits { topology::cores() } else { Vec::new() };
        let bound = fits && self.size as usize <= cores.len();
        let forwards_input = match self.job.stdin {
            Stdin::None => false,
            Stdin::All => self.size > 1 || rustix::termios::isatty(rustix::stdio::stdin()),
            Stdin::Rank(_) => rustix::termios::isatty(rustix::stdio::stdin()),
        };
        let mut inputs = Vec::new();
        let key = environment::to_hex(&self.secret);
        let mut rank = 0;
        for at in 0..self.job.programs.len() {
            let path = find(&self.job.programs[at]);
            for _ in 0..self.job.programs[at].count {
                let mut command = self.command(at, &path, rank, &key);
                let reads = match self.job.stdin {
                    Stdin::None => false,
                    Stdin::All => true,
                    Stdin::Rank(reader) => reader == rank,
                };
                command.stdin(match (reads, forwards_input) {
                    (false, _) => Stdio::null(),
                    (true, true) => Stdio::piped(),
                    (true, false) => Stdio::inherit(),
                });
                let piped = self.connect_output(&mut command, rank)?;
                let share = if bound { topology::share(&cores, rank as usize, self.size as usize) } else { &cores };
                let share = if self.job.bind == Bind::Core { &share[..share.len().min(1)] } else { share };
                if bound {
                    // The child inherits it. Where the kernel refuses, the rank runs anywhere.
                    let _ = rustix::thread::sched_setaffinity(None, &topology::set(share));
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
                if piped {
                    let pipes = [child.stdout.take().map(OwnedFd::from), child.stderr.take().map(OwnedFd::from)];
                    for (pipe, stream) in pipes.into_iter().zip([Stream::Out, Stream::Err]) {
                        if let Some(pipe) = pipe {
                            self.output
                                .add::<Token>(&self.epoll, rank as usize, stream, pipe)
                                .map_err(|error| (1, format!("cannot read the output of rank {rank}: {error}")))?;
                        }
                    }
                }
                if self.job.verbose {
                    let place = if bound { format!(", processors {}", topology::list(share)) } else { String::new() };
                    let program = self.job.programs[at].program.display();
                    let line = format!("rank {rank} ({}, pid {pid}): {program}{place}", self.host);
                    self.output.say(&line);
                }
                rank += 1;
            }
        }
        if bound {
            let _ = rustix::thread::sched_setaffinity(None, &topology::set(&cores));
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
        if self.job.report {
            command.env("WHIMBREL_REPORT", "1");
        }
        command.envs(program.env.iter().map(|(name, value)| (name, value)));
        command.env(environment::JOB, &self.name);
        command.env(environment::KEY, key);
        command.env(environment::RANK, rank.to_string());
        command.env(environment::SIZE, self.size.to_string());
        if let Some(wdir) = &program.wdir {
            command.current_dir(wdir);
        }
        command.process_group(0);
        command
    }

    /// Whether the output of `rank` comes through pipes.
    pub(super) fn connect_output(&self, command: &mut Command, rank: u32) -> Result<bool, (i32, String)> {
        let Some(output) = &self.job.output else {
            // With a single rank there is nothing to keep apart; but from a terminal's background, a program that sets the
            // terminal would be stopped.
            let terminal = [rustix::stdio::stdout(), rustix::stdio::stderr()].into_iter().any(rustix::termios::isatty);
            let piped = self.size > 1 || self.job.label || terminal;
            let stdio = if piped { Stdio::piped } else { Stdio::inherit };
            command.stdout(stdio()).stderr(stdio());
            return Ok(piped);
        };
        let path = |stream: &str| match output {
            args::Output::Directory(directory) => directory.join(format!("rank.{rank}.{stream}")),
            args::Output::Pattern(pattern) => PathBuf::from(pattern.replace("%r", &rank.to_string()).replace("%s", stream)),
        };
        let (out, err) = (path("out"), path("err"));
        let failed = |path: &PathBuf, error: io::Error| (1, format!("cannot write {}: {error}", path.display()));
        if let Some(directory) = out.parent() {
            fs::create_dir_all(directory).map_err(|error| failed(&out, error))?;
        }
        let stdout = fs::File::create(&out).map_err(|error| failed(&out, error))?;
        let stderr = if err == out { stdout.try_clone() } else { fs::File::create(&err) };
        command.stdout(stdout).stderr(stderr.map_err(|error| failed(&err, error))?);
        Ok(false)
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

/// Where the program is, looked up once for all its ranks; its name as given where that has a slash, or nothing is found.
fn find(program: &Program) -> PathBuf {
    let name = &program.program;
    if !name.as_encoded_bytes().contains(&b'/') {
        let own = program.env.iter().rev().find(|(variable, _)| variable == "PATH").map(|(_, path)| path.clone());
        let path = own.or_else(|| std::env::var_os("PATH")).unwrap_or_default();
        let found = std::env::split_paths(&path)
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
