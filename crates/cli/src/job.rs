//! What happens to the ranks of a job, from start to end?
//!
//! One thread sleeps in `epoll` and never blocks elsewhere. Each rank is the leader of a process group of its own, so that
//! signals reach what a wrapper has started. The launcher adopts orphans (`PR_SET_CHILD_SUBREAPER`), so that at the end it
//! finds, and kills, all that descend from its ranks.

use crate::args::{self, Bind, Job, Program, Stdin};
use crate::exchange::{Answer, Effect, Exchange};
use crate::guardian::Guardian;
use crate::input::Input;
use crate::output::{Output, Stream, Tokens};
use crate::verdict::{self, Exit, Stage};
use crate::{processes, sys, topology};
use launch::board::{Board, State};
use launch::channel::{self, Received};
use launch::environment;
use launch::wire::{DESCRIPTORS_MAX, PACKET_BYTES_MAX, Reply, Request, SECRET_BYTES, VERSION, Welcome};
use rustix::event::{Timespec, epoll};
use rustix::io::Errno;
use rustix::net::SocketFlags;
use rustix::process::{Pid, PidfdFlags, Resource, Rlimit, Signal, WaitOptions};
use rustix::rand::GetRandomFlags;
use std::collections::{HashMap, VecDeque};
use std::fs;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::rc::Rc;
use std::time::{Duration, Instant};

/// Connections beyond one per rank that may wait to be told that they are not wanted.
const SPARE_CONNECTIONS: usize = 64;
/// How long a wrapper may take to collect the program that it wraps, and to report its end.
const WRAPPER_GRACE: Duration = Duration::from_millis(300);
/// How long processes that ranks left behind may take to end by themselves after the last rank.
const LEFTOVER_GRACE: Duration = Duration::from_millis(200);
/// How long the launcher goes on killing such processes.
const LEFTOVER_KILL_MAX: Duration = Duration::from_secs(5);
/// How long ranks may live on after another died of the signal that all were sent.
const INTERRUPTED_GRACE: Duration = Duration::from_secs(1);
/// How often processes are killed again before the launcher gives up on them, once a second.
const KILL_ROUNDS_MAX: u32 = 5;
/// Most events taken from the kernel in one go.
const EVENTS_AT_ONCE: usize = 256;
/// Ranks whose doings are told when time is up.
const TOLD_RANKS_MAX: u32 = 16;
/// Exit status when time is up, as `timeout` has it.
const STATUS_TIMEOUT: i32 = 124;

const WATCHED: [Signal; 10] =
    [Signal::CHILD, Signal::INT, Signal::TERM, Signal::HUP, Signal::QUIT, Signal::TSTP, Signal::TTIN, Signal::CONT, Signal::USR1, Signal::USR2];

/// Runs `job` to its end. The exit status for the whole.
pub fn run(job: Job) -> i32 {
    match Launcher::new(job) {
        Err(line) => {
            eprintln!("mpiexec: {line}");
            1
        }
        Ok(mut launcher) => {
            if let Err((status, line)) = launcher.spawn() {
                launcher.output.say(&line);
                launcher.end(status);
            }
            launcher.attend();
            launcher.finish()
        }
    }
}

struct Launcher {
    job: Job,
    size: u32,
    host: String,
    name: String,
    secret: [u8; SECRET_BYTES],
    processors: u32,
    epoll: OwnedFd,
    signals: OwnedFd,
    listener: OwnedFd,
    board: Board,
    board_memory: Rc<OwnedFd>,
    exchange: Exchange,
    ranks: Vec<Rank>,
    connections: HashMap<u32, Connection>,
    connections_made: u32,
    /// Connections with something to send.
    dirty: Vec<u32>,
    output: Output,
    input: Option<Input>,
    guardian: Option<Guardian>,
    /// Children that this process had before it became `mpiexec`.
    earlier_children: Vec<i32>,
    phase: Phase,
    /// Exit status of the first rank that failed.
    status: Option<i32>,
    timeout_at: Option<Instant>,
    kill_at: Option<Instant>,
    kill_rounds: u32,
    /// Whether a rank has ended without calling `MPI_Init`.
    some_absent: bool,
    /// When to judge ranks whose wrappers have not ended yet.
    verdict_at: Option<Instant>,
    /// When to send again what the kernel had no room for.
    retry_at: Option<Instant>,
    interrupt_grace: Duration,
    abort_grace: Duration,
    buffer: Vec<u8>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    Running,
    /// The ranks were sent this signal, and decide themselves what to do.
    Interrupted(Signal),
    /// The ranks are to die.
    Ending,
}

struct Rank {
    /// The process that was started, leader of its group.
    pid: Pid,
    appnum: i32,
    /// How that process ended.
    exit: Option<Exit>,
    /// The process that said hello as this rank; usually the same.
    claim: Option<Claim>,
    finalized: bool,
    /// It has ended, and what that means is settled.
    over: bool,
    /// No process of its group is left.
    group_gone: bool,
}

struct Claim {
    /// 0 if out of sight, such as in an outer namespace.
    pid: i32,
    connection: Option<u32>,
    pidfd: Option<OwnedFd>,
    ended: bool,
    exit: Option<Exit>,
    verdict_at: Option<Instant>,
}

struct Connection {
    socket: OwnedFd,
    pid: i32,
    /// Once it has said hello.
    rank: Option<u32>,
    outbox: VecDeque<Outgoing>,
    /// Waits for room in the socket, and is not read meanwhile.
    blocked: bool,
    /// To be closed once the outbox is empty.
    last: bool,
}

enum Outgoing {
    Segments(Vec<(u32, Rc<OwnedFd>)>),
    Packet(Vec<u8>, Option<Rc<OwnedFd>>),
}

/// What an event in `epoll` is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Token {
    Signals,
    Listener,
    Connection(u32),
    Pipe(u32, Stream),
    Sink(Stream),
    Stdin,
    RankStdin,
    Pidfd(u32),
}

impl Token {
    const fn encode(self) -> u64 {
        let (kind, index) = match self {
            Token::Signals => (0, 0),
            Token::Listener => (1, 0),
            Token::Connection(id) => (2, id),
            Token::Pipe(rank, Stream::Out) => (3, rank),
            Token::Pipe(rank, Stream::Err) => (4, rank),
            Token::Sink(Stream::Out) => (5, 0),
            Token::Sink(Stream::Err) => (6, 0),
            Token::Stdin => (7, 0),
            Token::RankStdin => (8, 0),
            Token::Pidfd(rank) => (9, rank),
        };
        (kind << 32) | index as u64
    }

    fn decode(number: u64) -> Option<Token> {
        let index = number as u32;
        Some(match number >> 32 {
            0 => Token::Signals,
            1 => Token::Listener,
            2 => Token::Connection(index),
            3 => Token::Pipe(index, Stream::Out),
            4 => Token::Pipe(index, Stream::Err),
            5 => Token::Sink(Stream::Out),
            6 => Token::Sink(Stream::Err),
            7 => Token::Stdin,
            8 => Token::RankStdin,
            9 => Token::Pidfd(index),
            _ => return None,
        })
    }
}

impl Tokens for Token {
    fn stream(rank: usize, stream: Stream) -> u64 {
        Token::Pipe(rank as u32, stream).encode()
    }

    fn sink(stream: Stream) -> u64 {
        Token::Sink(stream).encode()
    }
}

impl Launcher {
    fn new(job: Job) -> Result<Launcher, String> {
        params::check().map_err(|error| error.to_string())?;
        let milliseconds = |param: &'static params::Param<usize>| param.value().map(|ms| Duration::from_millis(ms as u64)).map_err(|error| error.to_string());
        let failed = |what: &'static str| move |error: Errno| format!("cannot {what}: {error}");
        let size = job.size();
        raise_file_limit(size)?;
        let mut random = [0; SECRET_BYTES + 8];
        rustix::rand::getrandom(&mut random, GetRandomFlags::empty()).map_err(failed("get random bytes"))?;
        let (secret, name) = random.split_at(SECRET_BYTES);
        let name: String = name.iter().map(|byte| format!("{byte:02x}")).collect();
        let name = format!("whimbrel-{name}");
        let signals = sys::watch_signals(&WATCHED).map_err(|error| format!("cannot watch signals: {error}"))?;
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC).map_err(failed("create an epoll set"))?;
        let listener = channel::listen(&name).map_err(failed("listen for the ranks"))?;
        for (descriptor, token) in [(&signals, Token::Signals), (&listener, Token::Listener)] {
            epoll::add(&epoll, descriptor, epoll::EventData::new_u64(token.encode()), epoll::EventFlags::IN).map_err(failed("wait for events"))?;
        }
        rustix::process::set_child_subreaper(Pid::from_raw(1)).map_err(failed("adopt orphans"))?;
        let earlier_children = processes::children().unwrap_or_default();
        let (board, board_memory) = Board::create(size).map_err(|error| error.to_string())?;
        let guardian = Guardian::start(&name, Vec::new());
        if let (Err(error), true) = (&guardian, job.verbose) {
            eprintln!("mpiexec: no guardian, so ranks may survive a kill -9 of mpiexec: {error}");
        }
        Ok(Launcher {
            size,
            host: rustix::system::uname().nodename().to_string_lossy().into_owned(),
            name,
            secret: secret.try_into().map_err(|_| "the secret has another length".to_owned())?,
            processors: topology::processors(),
            epoll,
            signals,
            listener,
            board,
            board_memory: Rc::new(board_memory),
            exchange: Exchange::new(size),
            ranks: Vec::with_capacity(size as usize),
            connections: HashMap::new(),
            connections_made: 0,
            dirty: Vec::new(),
            output: Output::new(size as usize, job.label, milliseconds(&params::PARTIAL_LINE_WAIT)?),
            input: None,
            guardian: guardian.ok(),
            earlier_children,
            phase: Phase::Running,
            status: None,
            timeout_at: job.timeout.map(|timeout| Instant::now() + timeout),
            kill_at: None,
            kill_rounds: 0,
            some_absent: false,
            verdict_at: None,
            retry_at: None,
            interrupt_grace: milliseconds(&params::INTERRUPT_GRACE)?,
            abort_grace: milliseconds(&params::ABORT_GRACE)?,
            buffer: vec![0; PACKET_BYTES_MAX],
            job,
        })
    }

    // ---- Starting -------------------------------------------------------------------------------------------------

    /// Starts all ranks.
    ///
    /// Errors: exit status and one line, for the first that cannot be started.
    fn spawn(&mut self) -> Result<(), (i32, String)> {
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

    fn command(&self, at: usize, path: &Path, rank: u32, key: &str) -> Command {
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
    fn connect_output(&self, command: &mut Command, rank: u32) -> Result<bool, (i32, String)> {
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

    fn unstartable(&self, at: usize, error: &io::Error) -> (i32, String) {
        let program = &self.job.programs[at];
        let wdir = program.wdir.as_ref().filter(|wdir| !wdir.is_dir());
        let what = match wdir {
            Some(wdir) => format!("cannot start {} in {}: {error}", program.program.display(), wdir.display()),
            None => format!("cannot start {}: {error}", program.program.display()),
        };
        (if error.kind() == io::ErrorKind::NotFound { 127 } else { 126 }, what)
    }

    // ---- The event loop -------------------------------------------------------------------------------------------

    /// Until every rank has ended.
    fn attend(&mut self) {
        while !self.is_over() {
            self.turn(None);
        }
    }

    /// Waits for events, at most for `limit`, and acts on them.
    fn turn(&mut self, limit: Option<Duration>) {
        self.write();
        let left = self.deadline().map(|at| at.saturating_duration_since(Instant::now()));
        // Rounded up, lest the loop turn in the last fraction of a millisecond.
        let timeout = left.into_iter().chain(limit).min().map(|left| left + Duration::from_millis(1));
        let timeout = timeout.map(|left| Timespec { tv_sec: left.as_secs() as i64, tv_nsec: left.subsec_nanos().into() });
        let mut events = Vec::with_capacity(EVENTS_AT_ONCE);
        match epoll::wait(&self.epoll, rustix::buffer::spare_capacity(&mut events), timeout.as_ref()) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(error) => {
                self.output.say(&format!("cannot wait for events: {error}"));
                self.end(1);
            }
        }
        let tokens: Vec<Token> = events.iter().filter_map(|event: &epoll::Event| Token::decode({ event.data }.u64())).collect();
        // Deaths first: they explain what other ranks then complain of.
        if tokens.contains(&Token::Signals) {
            self.read_signals();
        }
        for token in tokens {
            self.dispatch(token);
        }
        self.send_all();
        self.tick();
    }

    /// Writes what ranks have written, as far as it can be done now.
    fn write(&mut self) {
        self.output.write::<Token>(&self.epoll);
        if let (Some(error), Phase::Running) = (self.output.broken(), self.phase) {
            if error == Errno::PIPE {
                // As if it had written itself: nobody is told.
                self.end(128 + Signal::PIPE.as_raw());
            } else {
                self.output.say(&format!("cannot write standard output: {error}"));
                self.output.write::<Token>(&self.epoll);
                self.end(1);
            }
        }
    }

    fn is_over(&self) -> bool {
        match self.phase {
            Phase::Ending => self.ranks.iter().all(|rank| rank.exit.is_some()) || self.kill_rounds > KILL_ROUNDS_MAX,
            _ => self.ranks.iter().all(|rank| rank.over),
        }
    }

    fn deadline(&self) -> Option<Instant> {
        [self.timeout_at, self.kill_at, self.verdict_at, self.retry_at, self.output.deadline()].into_iter().flatten().min()
    }

    fn dispatch(&mut self, token: Token) {
        match token {
            Token::Signals => {}
            Token::Listener => self.accept(),
            Token::Connection(id) => {
                if let Some(connection) = self.connections.get_mut(&id) {
                    if connection.blocked {
                        self.dirty.push(id);
                    } else {
                        self.receive(id);
                    }
                }
            }
            Token::Pipe(rank, stream) => self.output.readable(&self.epoll, rank as usize, stream),
            Token::Sink(stream) => self.output.writable(&self.epoll, stream),
            Token::Stdin => {
                if let Some(input) = &mut self.input {
                    input.readable(&self.epoll, Token::Stdin.encode());
                }
            }
            Token::RankStdin => {
                if let Some(input) = &mut self.input {
                    input.writable(&self.epoll, Token::Stdin.encode());
                }
            }
            Token::Pidfd(rank) => {
                let pidfd = self.ranks[rank as usize].claim.as_ref().and_then(|claim| claim.pidfd.as_ref());
                if let Some(pidfd) = pidfd {
                    let _ = epoll::delete(&self.epoll, pidfd);
                }
                self.program_ended(rank, None);
            }
        }
    }

    fn tick(&mut self) {
        let now = Instant::now();
        self.output.tick(now);
        if self.retry_at.is_some_and(|at| at <= now) {
            self.retry_at = None;
            self.dirty.extend(self.connections.keys());
            self.send_all();
        }
        if self.verdict_at.is_some_and(|at| at <= now) {
            self.verdict_at = None;
            (0..self.ranks.len()).for_each(|rank| self.judge(rank as u32));
        }
        if self.timeout_at.is_some_and(|at| at <= now) {
            self.timeout_at = None;
            if self.phase != Phase::Ending {
                self.tell_timeout();
                self.end(STATUS_TIMEOUT);
            }
        }
        if self.kill_at.is_some_and(|at| at <= now) {
            if let Phase::Interrupted(signal) = self.phase {
                let name = verdict::signal_name(signal.as_raw()).unwrap_or("a signal");
                let late = self.interrupt_grace.as_millis();
                self.output.say(&format!("ranks were still there {late} ms after {name}, and are killed"));
                self.status.get_or_insert(128 + signal.as_raw());
            }
            self.kill();
        }
    }

    fn tell_timeout(&mut self) {
        let seconds = self.job.timeout.unwrap_or_default().as_secs();
        let mut line = format!("time is up after {seconds} s");
        let left: Vec<u32> = (0..self.ranks.len() as u32).filter(|rank| !self.ranks[*rank as usize].over).collect();
        for (at, rank) in left.iter().take(TOLD_RANKS_MAX as usize).enumerate() {
            let doing = match self.stage(*rank) {
                Stage::Outside => "has not called MPI_Init".to_owned(),
                Stage::Inside(doing) => doing.to_string(),
                Stage::Finalized => "is past MPI_Finalize".to_owned(),
            };
            line.push_str(&format!("{} rank {rank} {doing}", if at == 0 { ":" } else { ";" }));
        }
        if left.len() > TOLD_RANKS_MAX as usize {
            line.push_str(&format!("; and {} more", left.len() - TOLD_RANKS_MAX as usize));
        }
        self.output.say(&line);
    }

    // ---- Signals --------------------------------------------------------------------------------------------------

    fn read_signals(&mut self) {
        while let Some(signal) = sys::next_signal(&self.signals) {
            match signal {
                Signal::CHILD => self.reap(),
                Signal::INT | Signal::TERM | Signal::HUP | Signal::QUIT => self.interrupt(signal),
                Signal::TSTP => {
                    self.signal_ranks(Signal::TSTP);
                    self.write();
                    let _ = rustix::process::kill_process(rustix::process::getpid(), Signal::STOP);
                }
                // A read of the terminal from its background, which then fails instead of stopping the job.
                Signal::TTIN => {}
                Signal::CONT => {
                    self.signal_ranks(Signal::CONT);
                    if let Some(input) = &mut self.input {
                        input.arm(&self.epoll, Token::Stdin.encode());
                    }
                }
                other => self.signal_ranks(other),
            }
        }
    }

    fn interrupt(&mut self, signal: Signal) {
        if self.phase == Phase::Running {
            self.phase = Phase::Interrupted(signal);
            self.signal_ranks(signal);
            // A stopped rank could not hear it.
            self.signal_ranks(Signal::CONT);
            self.kill_at = Some(Instant::now() + self.interrupt_grace);
        } else {
            self.status.get_or_insert(128 + signal.as_raw());
            self.kill();
        }
    }

    fn signal_ranks(&self, signal: Signal) {
        for rank in self.ranks.iter().filter(|rank| !rank.group_gone) {
            let _ = rustix::process::kill_process_group(rank.pid, signal);
        }
    }

    /// Ends the job with `status`, unless a rank has failed before: asks the ranks to end, and kills them soon.
    fn end(&mut self, status: i32) {
        self.status.get_or_insert(status);
        if self.phase == Phase::Ending {
            return;
        }
        self.phase = Phase::Ending;
        self.signal_ranks(Signal::TERM);
        self.signal_ranks(Signal::CONT);
        self.kill_at = Some(Instant::now() + self.abort_grace);
    }

    fn kill(&mut self) {
        self.phase = Phase::Ending;
        self.signal_ranks(Signal::KILL);
        self.kill_rounds += 1;
        self.kill_at = Some(Instant::now() + Duration::from_secs(1));
        if self.kill_rounds > KILL_ROUNDS_MAX {
            let left = self.ranks.iter().filter(|rank| rank.exit.is_none()).count();
            self.output.say(&format!("{left} ranks cannot be killed, and are left alone"));
        }
    }

    // ---- Deaths ---------------------------------------------------------------------------------------------------

    fn reap(&mut self) {
        while let Ok(Some((pid, status))) = rustix::process::wait(WaitOptions::NOHANG) {
            let exit = Exit::of(status.as_raw());
            if self.guardian.as_ref().is_some_and(|guardian| guardian.pid() == pid.as_raw_nonzero().get()) {
                // One that has ended by itself would do so again.
                let killed = matches!(exit, Exit::Signal(..));
                self.guardian = self.guardian.take().filter(|_| killed).and_then(|guardian| guardian.again().ok());
                if self.guardian.is_none() {
                    let code = exit.code();
                    self.output.say(&format!("its guardian ended with {code}; kill -9 of mpiexec may leave ranks behind"));
                }
            } else if let Some(rank) = self.ranks.iter().position(|rank| rank.pid == pid && rank.exit.is_none()) {
                self.ranks[rank].exit = Some(exit);
                self.hear_out(rank as u32);
                self.some_absent |= self.ranks[rank].claim.is_none();
                self.judge(rank as u32);
                self.judge_absence();
            } else {
                let of_claim = |rank: &Rank| rank.claim.as_ref().is_some_and(|c| c.pid == pid.as_raw_nonzero().get());
                if let Some(rank) = self.ranks.iter().position(of_claim) {
                    // A wrapper has ended before its program, which thus became a child of the launcher.
                    self.program_ended(rank as u32, Some(exit));
                }
            }
        }
        for rank in self.ranks.iter_mut().filter(|rank| rank.exit.is_some() && !rank.group_gone) {
            if rustix::process::test_kill_process_group(rank.pid) == Err(Errno::SRCH) {
                rank.group_gone = true;
                if let Some(guardian) = &mut self.guardian {
                    guardian.remove(rank.pid.as_raw_nonzero().get());
                }
            }
        }
    }

    /// The process that was `rank`, but not its leader, has ended.
    fn program_ended(&mut self, rank: u32, exit: Option<Exit>) {
        self.hear_out(rank);
        if let Some(claim) = &mut self.ranks[rank as usize].claim {
            claim.ended = true;
            claim.exit = claim.exit.or(exit);
        }
        self.judge(rank);
    }

    /// Reads what a rank that has ended said before.
    fn hear_out(&mut self, rank: u32) {
        self.accept();
        if let Some(id) = self.ranks[rank as usize].claim.as_ref().and_then(|claim| claim.connection) {
            self.receive(id);
        }
    }

    fn stage(&self, rank: u32) -> Stage {
        let of = &self.ranks[rank as usize];
        if of.claim.is_none() {
            return Stage::Outside;
        }
        let doing = self.board.read(rank);
        if of.finalized || doing.state == State::Finalized { Stage::Finalized } else { Stage::Inside(doing) }
    }

    /// Settles whether `rank` has ended, and what that means for the job.
    fn judge(&mut self, number: u32) {
        let stage = self.stage(number);
        let rank = &mut self.ranks[number as usize];
        if rank.over {
            return;
        }
        let leader = rank.pid.as_raw_nonzero().get();
        let exit = match &mut rank.claim {
            Some(claim) if claim.pid != leader => match (claim.ended, &stage) {
                (false, _) => return,
                (true, Stage::Inside(_)) => {
                    let told = claim.pidfd.as_ref().and_then(sys::exit_status).map(Exit::of);
                    let exit = claim.exit.or(told).or(rank.exit.and_then(Exit::unwrap_shell));
                    if exit.is_none() {
                        let at = *claim.verdict_at.get_or_insert_with(|| Instant::now() + WRAPPER_GRACE);
                        if at > Instant::now() {
                            self.verdict_at = Some(self.verdict_at.map_or(at, |other| other.min(at)));
                            return;
                        }
                    }
                    exit
                }
                (true, _) if rank.exit.is_none() => return,
                (true, _) => rank.exit,
            },
            _ if rank.exit.is_none() => return,
            _ => rank.exit,
        };
        rank.over = true;
        let code = exit.map_or(1, Exit::code);
        let (failed, ends_job) = match stage {
            Stage::Inside(_) => (true, true),
            Stage::Outside => (code != 0, code != 0),
            Stage::Finalized => (code != 0, false),
        };
        if !failed {
            return;
        }
        let status = if code == 0 { 1 } else { code };
        match self.phase {
            Phase::Running => {
                let line = format!("{} {}", self.who(number), verdict::sentence(exit, &stage));
                self.output.say(&line);
                self.status.get_or_insert(status);
                if ends_job {
                    self.end(status);
                }
            }
            Phase::Interrupted(_) => {
                self.status.get_or_insert(status);
                if ends_job {
                    let at = Instant::now() + INTERRUPTED_GRACE;
                    self.kill_at = Some(self.kill_at.map_or(at, |other| other.min(at)));
                }
            }
            Phase::Ending => {}
        }
    }

    /// Ends the job if a rank waits for one that has ended without ever calling `MPI_Init`.
    fn judge_absence(&mut self) {
        if self.phase != Phase::Running || !self.some_absent {
            return;
        }
        let absent = |rank: &Rank| rank.exit.is_some() && rank.claim.is_none();
        let found = (0..self.ranks.len() as u32)
            .filter(|rank| absent(&self.ranks[*rank as usize]))
            .find_map(|rank| self.exchange.waits_for(rank).map(|waiter| (rank, waiter)));
        if let Some((absent, waiter)) = found {
            let line = format!("{} exited with status 0 without calling MPI_Init, but rank {waiter} waits for it", self.who(absent));
            self.output.say(&line);
            self.end(1);
        }
    }

    /// `rank 3 (host, pid 1234)`
    fn who(&self, rank: u32) -> String {
        let of = &self.ranks[rank as usize];
        let pid = of.claim.as_ref().map(|claim| claim.pid).filter(|pid| *pid > 0);
        format!("rank {rank} ({}, pid {})", self.host, pid.unwrap_or(of.pid.as_raw_nonzero().get()))
    }

    // ---- Connections ----------------------------------------------------------------------------------------------

    fn accept(&mut self) {
        loop {
            let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
            let socket = match rustix::net::accept_with(&self.listener, flags) {
                Ok(socket) => socket,
                Err(Errno::INTR | Errno::CONNABORTED) => continue,
                Err(Errno::AGAIN) => return,
                Err(error) => {
                    if self.phase != Phase::Ending {
                        self.output.say(&format!("cannot accept a rank's connection: {error}"));
                        self.end(1);
                    }
                    return;
                }
            };
            let Ok(peer) = channel::peer(socket.as_fd()) else { continue };
            // The name in the abstract namespace is open to all users.
            if peer.uid != rustix::process::geteuid().as_raw() || self.connections.len() >= self.size as usize + SPARE_CONNECTIONS {
                continue;
            }
            let id = self.connections_made;
            self.connections_made = self.connections_made.wrapping_add(1);
            let token = epoll::EventData::new_u64(Token::Connection(id).encode());
            if epoll::add(&self.epoll, &socket, token, epoll::EventFlags::IN).is_err() {
                continue;
            }
            let connection = Connection { socket, pid: peer.pid, rank: None, outbox: VecDeque::new(), blocked: false, last: false };
            self.connections.insert(id, connection);
            self.receive(id);
        }
    }

    /// Takes what a connection has to say, until it falls silent or does not take its answers.
    fn receive(&mut self, id: u32) {
        loop {
            let Some(connection) = self.connections.get(&id) else { return };
            // Answers are bounded by not listening to who does not take them.
            if connection.blocked || connection.last || connection.outbox.len() > DESCRIPTORS_MAX {
                return;
            }
            let (length, descriptors) = match channel::receive(connection.socket.as_fd(), &mut self.buffer) {
                Ok(Received::Packet { length, descriptors }) => (length, descriptors),
                Err(Errno::AGAIN) => return,
                Ok(Received::End) | Err(_) => return self.disconnect(id),
            };
            match (Request::parse(&self.buffer[..length]), connection.rank) {
                (Ok(Request::Hello { version, rank, secret }), None) => self.hello(id, version, rank, secret),
                (Ok(request), Some(rank)) => self.request(rank, request, descriptors),
                (Ok(_), None) => return self.disconnect(id),
                (Err(_), None) => return self.disconnect(id),
                (Err(malformed), Some(rank)) => {
                    self.misbehaved(rank, &format!("sent what cannot be read: {malformed}"));
                    return self.disconnect(id);
                }
            }
        }
    }

    fn hello(&mut self, id: u32, version: u16, rank: u32, secret: [u8; SECRET_BYTES]) {
        if self.phase == Phase::Ending {
            // It is about to be killed, and needs no words.
            return;
        }
        let claim = match self.examine(version, rank, &secret) {
            Err(text) => {
                if let Some(connection) = self.connections.get_mut(&id) {
                    connection.outbox.push_back(Outgoing::Packet(Reply::Refused { text }.encode(), None));
                    connection.last = true;
                    self.dirty.push(id);
                }
                return;
            }
            Ok(()) => {
                let Some(connection) = self.connections.get_mut(&id) else { return };
                connection.rank = Some(rank);
                let pid = connection.pid;
                let mut claim = Claim { pid, connection: Some(id), pidfd: None, ended: false, exit: None, verdict_at: None };
                if pid != self.ranks[rank as usize].pid.as_raw_nonzero().get() {
                    claim.pidfd = Pid::from_raw(pid).and_then(|pid| rustix::process::pidfd_open(pid, PidfdFlags::empty()).ok()).filter(|pidfd| {
                        let token = epoll::EventData::new_u64(Token::Pidfd(rank).encode());
                        epoll::add(&self.epoll, pidfd, token, epoll::EventFlags::IN).is_ok()
                    });
                }
                claim
            }
        };
        let appnum = self.ranks[rank as usize].appnum;
        self.ranks[rank as usize].claim = Some(claim);
        let welcome = Welcome { size: self.size, appnum, universe_size: self.job.universe_size.unwrap_or(self.size), cores: self.processors };
        let packet = Outgoing::Packet(Reply::Welcome(welcome).encode(), Some(self.board_memory.clone()));
        if let Some(connection) = self.connections.get_mut(&id) {
            connection.outbox.push_back(packet);
            self.dirty.push(id);
        }
    }

    /// Whether a process that says hello may be `rank`; else why not, in one line.
    fn examine(&self, version: u16, rank: u32, secret: &[u8; SECRET_BYTES]) -> Result<(), String> {
        // All bytes are looked at, so that time tells nothing.
        let differs = secret.iter().zip(&self.secret).fold(0, |differs, (a, b)| differs | (a ^ b));
        if differs != 0 {
            return Err("this process is no rank of the job that it names".to_owned());
        }
        if version != VERSION {
            return Err(format!("mpiexec speaks version {VERSION} of its protocol, but the library speaks {version}"));
        }
        let Some(of) = self.ranks.get(rank as usize) else {
            return Err(format!("mpiexec has started no rank {rank}"));
        };
        if let Some(claim) = &of.claim {
            let (pid, ended) = (claim.pid, if claim.ended || of.exit.is_some() { ", which has ended" } else { "" });
            return Err(format!(
                "rank {rank} of this job is process {pid}{ended}: a program that a rank starts cannot join the job \
                 (start it with its own mpiexec, or without WHIMBREL_JOB in its environment)"
            ));
        }
        Ok(())
    }

    fn request(&mut self, rank: u32, request: Request, descriptors: Vec<OwnedFd>) {
        let mut answers = Vec::new();
        let may_wait = matches!(request, Request::Fetch { .. } | Request::Fence { .. });
        match self.exchange.handle(rank, request, descriptors, &mut answers) {
            Ok(Effect::Nothing) => {}
            Ok(Effect::Finalized) => self.ranks[rank as usize].finalized = true,
            Ok(Effect::Abort { code, text }) => self.abort(rank, code, &text),
            Err(what) => self.misbehaved(rank, &what),
        }
        for answer in answers {
            self.answer(answer);
        }
        if may_wait {
            self.judge_absence();
        }
    }

    fn answer(&mut self, answer: Answer) {
        let to = match &answer {
            Answer::Segment { to, .. } | Answer::Reply { to, .. } => *to,
        };
        let Some(id) = self.ranks[to as usize].claim.as_ref().and_then(|claim| claim.connection) else { return };
        let Some(connection) = self.connections.get_mut(&id) else { return };
        match answer {
            Answer::Segment { of, descriptor, .. } => match connection.outbox.back_mut() {
                Some(Outgoing::Segments(batch)) if batch.len() < DESCRIPTORS_MAX => batch.push((of, descriptor)),
                _ => connection.outbox.push_back(Outgoing::Segments(vec![(of, descriptor)])),
            },
            Answer::Reply { reply, .. } => connection.outbox.push_back(Outgoing::Packet(reply.encode(), None)),
        }
        self.dirty.push(id);
    }

    fn abort(&mut self, rank: u32, code: i32, text: &str) {
        // A rank that died may be why this one gives up, and is then what to tell.
        self.reap();
        if self.phase == Phase::Ending {
            return;
        }
        let says = if text.is_empty() { String::new() } else { format!(": {text}") };
        let line = format!("{} aborted the job with code {code}{says}", self.who(rank));
        self.output.say(&line);
        self.status.get_or_insert(if code != 0 && code & 0xff == 0 { 1 } else { code & 0xff });
        self.end(1);
    }

    fn misbehaved(&mut self, rank: u32, what: &str) {
        if self.phase != Phase::Ending {
            let line = format!("{} {what}", self.who(rank));
            self.output.say(&line);
            self.end(1);
        }
    }

    fn disconnect(&mut self, id: u32) {
        let Some(connection) = self.connections.remove(&id) else { return };
        let Some(rank) = connection.rank else { return };
        let leader = self.ranks[rank as usize].pid.as_raw_nonzero().get();
        let Some(claim) = &mut self.ranks[rank as usize].claim else { return };
        claim.connection = None;
        // Where nothing else tells of the program's end, the end of its connection does.
        if claim.pid != leader && claim.pidfd.is_none() && !claim.ended {
            claim.ended = true;
            self.judge(rank);
        }
    }

    fn send_all(&mut self) {
        while let Some(id) = self.dirty.pop() {
            self.send(id);
        }
    }

    fn send(&mut self, id: u32) {
        let Some(connection) = self.connections.get_mut(&id) else { return };
        let mut lost = false;
        let mut full = false;
        while let Some(outgoing) = connection.outbox.front() {
            match outgoing.send(connection.socket.as_fd()) {
                Ok(()) => drop(connection.outbox.pop_front()),
                Err(Errno::AGAIN) => {
                    full = true;
                    break;
                }
                Err(Errno::TOOMANYREFS) => {
                    self.retry_at.get_or_insert_with(|| Instant::now() + Duration::from_millis(5));
                    break;
                }
                Err(_) => {
                    lost = true;
                    break;
                }
            }
        }
        if lost || connection.last && connection.outbox.is_empty() {
            return self.disconnect(id);
        }
        if full != connection.blocked {
            connection.blocked = full;
            let flags = if full { epoll::EventFlags::OUT } else { epoll::EventFlags::IN };
            let token = epoll::EventData::new_u64(Token::Connection(id).encode());
            let _ = epoll::modify(&self.epoll, &connection.socket, token, flags);
        }
    }

    // ---- The end --------------------------------------------------------------------------------------------------

    /// Leaves nothing behind. The job's exit status.
    fn finish(mut self) -> i32 {
        let patience = Instant::now() + LEFTOVER_GRACE;
        let end = patience + LEFTOVER_KILL_MAX;
        // What was to happen to the ranks has happened.
        (self.timeout_at, self.kill_at, self.verdict_at) = (None, None, None);
        loop {
            self.reap();
            let left = self.leftovers();
            if left.is_empty() || Instant::now() >= end {
                break;
            }
            if self.phase != Phase::Running || Instant::now() >= patience {
                left.iter().for_each(|pid| processes::kill(*pid));
            }
            // Their ends arrive as signals; the limit covers those whose parents are yet to die.
            self.turn(Some(Duration::from_millis(20)));
        }
        self.output.drain(&self.signals);
        if let Some(guardian) = self.guardian {
            guardian.dismiss();
        }
        self.status.unwrap_or(0)
    }

    /// Processes that descend from the ranks and are still there.
    fn leftovers(&self) -> Vec<i32> {
        let own = std::process::id() as i32;
        let mut except = self.earlier_children.clone();
        except.extend(self.guardian.as_ref().map(Guardian::pid));
        if processes::children().is_some_and(|children| children.iter().all(|pid| except.contains(pid))) {
            return Vec::new();
        }
        processes::descendants(&processes::all(), own, &except).iter().map(|process| process.pid).collect()
    }
}

impl Outgoing {
    fn send(&self, socket: BorrowedFd) -> Result<(), Errno> {
        match self {
            Outgoing::Packet(packet, descriptor) => {
                let descriptors: Vec<BorrowedFd> = descriptor.iter().map(|descriptor| descriptor.as_fd()).collect();
                channel::send(socket, packet, &descriptors)
            }
            Outgoing::Segments(batch) => {
                let packet = Reply::Segments { ranks: batch.iter().map(|(rank, _)| *rank).collect() }.encode();
                let descriptors: Vec<BorrowedFd> = batch.iter().map(|(_, descriptor)| descriptor.as_fd()).collect();
                channel::send(socket, &packet, &descriptors)
            }
        }
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
fn raise_file_limit(size: u32) -> Result<(), String> {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_survive_epoll() {
        for token in [
            Token::Signals,
            Token::Listener,
            Token::Connection(u32::MAX),
            Token::Pipe(3, Stream::Out),
            Token::Pipe(3, Stream::Err),
            Token::Sink(Stream::Out),
            Token::Sink(Stream::Err),
            Token::Stdin,
            Token::RankStdin,
            Token::Pidfd(1023),
        ] {
            assert_eq!(Token::decode(token.encode()), Some(token));
        }
        assert_eq!(Token::decode(99 << 32), None);
    }
}
