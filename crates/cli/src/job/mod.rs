//! What happens to the ranks of a job, from start to end?
//!
//! One thread sleeps in `epoll` and never blocks elsewhere. Each rank is the leader of a process group of its own, so that
//! signals reach what a wrapper has started. The launcher adopts orphans (`PR_SET_CHILD_SUBREAPER`), so that at the end it
//! finds, and kills, all that descend from its ranks.

mod connections;
mod deaths;
mod doings;
mod signals;
mod spawned;
mod start;
mod token;

use crate::args::Job;
use crate::exchange::Exchange;
use crate::guardian::Guardian;
use crate::input::Input;
use crate::output::Output;
use crate::verdict::{self, Exit};
use crate::{info, processes, sys, topology};
use launch::board::{Board, Call};
use launch::channel;
use launch::wire::{PACKET_BYTES_MAX, SECRET_BYTES};
use rustix::event::{Timespec, epoll};
use rustix::io::Errno;
use rustix::process::{Pid, Signal};
use rustix::rand::GetRandomFlags;
use start::raise_file_limit;
use std::collections::{BTreeSet, HashMap, VecDeque};
use std::os::fd::OwnedFd;
use std::rc::Rc;
use std::time::{Duration, Instant};
use token::Token;

/// Connections beyond one per rank that may wait to be told that they are not wanted.
const SPARE_CONNECTIONS: usize = 64;
/// How long a wrapper may take to collect the program that it wraps, and to report its end.
const WRAPPER_GRACE: Duration = Duration::from_millis(300);
/// How long processes that ranks left behind may take to end by themselves after the last rank.
const LEFTOVER_GRACE: Duration = Duration::from_millis(200);
/// How long the launcher goes on killing such processes.
const LEFTOVER_KILL_MAX: Duration = Duration::from_secs(5);
/// Between looks whether jobs that ranks have spawned have ended, once the ranks have.
const SPAWNED_LOOK: Duration = Duration::from_millis(100);
/// How long ranks may live on after another died of the signal that all were sent.
const INTERRUPTED_GRACE: Duration = Duration::from_secs(1);
/// How often processes are killed again before the launcher gives up on them, once a second.
const KILL_ROUNDS_MAX: u32 = 5;
/// Most events taken from the kernel in one go.
const EVENTS_AT_ONCE: usize = 256;
/// Ranks whose doings are told when time is up.
const TOLD_RANKS_MAX: u32 = 16;
/// Between looks whether ranks wait for one that has ended early.
const LOOK_EVERY: Duration = Duration::from_millis(500);
/// Exit status when time is up, as `timeout` has it.
const STATUS_TIMEOUT: i32 = 124;

const WATCHED: [Signal; 10] =
    [Signal::CHILD, Signal::INT, Signal::TERM, Signal::HUP, Signal::QUIT, Signal::TSTP, Signal::TTIN, Signal::CONT, Signal::USR1, Signal::USR2];

/// Runs `job` to its end. The exit status for the whole.
pub fn run(job: Job) -> i32 {
    run_for(job, None)
}

/// Runs what a process of another job spawns, as descriptor `descriptor` says. The exit status for the whole.
pub fn run_spawned(descriptor: i32) -> i32 {
    match spawned::receive(descriptor) {
        Ok((job, parent)) => run_for(job, Some(parent)),
        Err(line) => {
            eprintln!("mpiexec: {line}");
            2
        }
    }
}

fn run_for(job: Job, parent: Option<spawned::Parent>) -> i32 {
    match Launcher::new(job, parent) {
        Err(line) => {
            eprintln!("mpiexec: {line}");
            1
        }
        Ok(mut launcher) => {
            if let Err((status, line)) = launcher.spawn() {
                if !launcher.tell_parent(Some(&line)) {
                    launcher.output.say(&line);
                }
                launcher.end(status);
            } else {
                launcher.tell_parent(None);
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
    /// The process of another job that has spawned this one.
    parent: Option<spawned::Parent>,
    /// Children that this process had before it became `mpiexec`.
    earlier_children: Vec<i32>,
    phase: Phase,
    /// Exit status of the first rank that failed.
    status: Option<i32>,
    timeout_at: Option<Instant>,
    /// When the ranks are told to end, after one has failed.
    term_at: Option<Instant>,
    kill_at: Option<Instant>,
    kill_rounds: u32,
    /// Whether a rank has ended without calling `MPI_Init`.
    some_absent: bool,
    /// Ranks that have ended in a way that others may wait for: with status 0 without `MPI_Finalize`, or after it with another.
    left_early: Vec<u32>,
    /// When to look whether others do, and the calls in which ranks waited at the last look.
    look_at: Option<Instant>,
    waited: Vec<(u32, Call)>,
    started: Instant,
    /// When to judge ranks whose wrappers have not ended yet.
    verdict_at: Option<Instant>,
    /// When to send again what the kernel had no room for.
    retry_at: Option<Instant>,
    interrupt_grace: Duration,
    failure_grace: Duration,
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

impl Launcher {
    fn new(job: Job, mut parent: Option<spawned::Parent>) -> Result<Launcher, String> {
        params::check().map_err(|error| error.to_string())?;
        let milliseconds = |param: &'static params::Param<usize>| param.value().map(|ms| Duration::from_millis(ms as u64)).map_err(|error| error.to_string());
        let failed = |what: &'static str| move |error: Errno| format!("cannot {what}: {error}");
        let size = job.size();
        start::prepare(&job)?;
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
        let set_here = job.programs.iter().flat_map(|program| &program.env).filter_map(|(name, _)| name.to_str());
        let misspelt: BTreeSet<String> = set_here.filter(|name| params::is_unknown(name)).map(str::to_owned).chain(params::unknown()).collect();
        let warned = !job.quiet;
        misspelt.iter().filter(|_| warned).for_each(|name| eprintln!("mpiexec: warning: {}", info::misspelt(name)));
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
            output: Output::new(start::labels(&job), job.timestamp, milliseconds(&params::PARTIAL_LINE_WAIT)?),
            input: None,
            guardian: guardian.ok(),
            parent: parent.take(),
            earlier_children,
            phase: Phase::Running,
            status: None,
            timeout_at: job.timeout.map(|timeout| Instant::now() + timeout),
            term_at: None,
            kill_at: None,
            kill_rounds: 0,
            some_absent: false,
            left_early: Vec::new(),
            look_at: None,
            waited: Vec::new(),
            started: Instant::now(),
            verdict_at: None,
            retry_at: None,
            interrupt_grace: milliseconds(&params::INTERRUPT_GRACE)?,
            failure_grace: milliseconds(&params::FAILURE_GRACE)?,
            abort_grace: milliseconds(&params::ABORT_GRACE)?,
            buffer: vec![0; PACKET_BYTES_MAX],
            job,
        })
    }

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
        [self.timeout_at, self.term_at, self.kill_at, self.verdict_at, self.look_at, self.retry_at, self.output.deadline()].into_iter().flatten().min()
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
            Token::Lifeline => self.hear_parent(),
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
        if self.look_at.is_some_and(|at| at <= now) {
            self.look_at = None;
            self.look_for_stuck();
        }
        if self.timeout_at.is_some_and(|at| at <= now) {
            self.timeout_at = None;
            if self.phase != Phase::Ending {
                let seconds = self.job.timeout.unwrap_or_default().as_secs();
                let line = format!("time is up after {seconds} s{}", self.doings());
                self.output.say(&line);
                self.end(STATUS_TIMEOUT);
            }
        }
        if self.term_at.is_some_and(|at| at <= now) {
            self.terminate();
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

    /// Leaves nothing behind. The job's exit status.
    fn finish(mut self) -> i32 {
        // What was to happen to the ranks has happened.
        (self.timeout_at, self.term_at, self.kill_at, self.verdict_at, self.look_at) = (None, None, None, None, None);
        self.warn_of_unfinalized();
        let (mut patience, mut end) = (Instant::now() + LEFTOVER_GRACE, Instant::now() + LEFTOVER_GRACE + LEFTOVER_KILL_MAX);
        loop {
            self.reap();
            if self.phase == Phase::Running && self.has_spawned() {
                // Jobs that ranks have spawned, and that live on, are waited for.
                (patience, end) = (Instant::now() + LEFTOVER_GRACE, Instant::now() + LEFTOVER_GRACE + LEFTOVER_KILL_MAX);
                self.turn(Some(SPAWNED_LOOK));
                continue;
            }
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
