//! How do bytes get from the ranks to `mpiexec`'s own output? Never blocking, bounded, line by line.

use crate::lines::Lines;
use crate::sys;
use rustix::event::{PollFd, PollFlags, Timespec, epoll};
use rustix::io::Errno;
use rustix::process::Signal;
use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::time::{Duration, Instant, SystemTime};

/// Bytes that wait for a slow reader before the ranks' pipes are no longer read.
const QUEUE_BYTES_MAX: usize = 1024 * 1024;
/// How long ranks wait for the end of another's long line while that rank writes nothing, and in all.
const OWNER_SILENCE_MAX: Duration = Duration::from_secs(1);
const OWNER_MAX: Duration = Duration::from_secs(10);
/// Bytes that a pipe takes without blocking once it polls writable.
const PIPE_BYTES: usize = 4096;

/// Standard output or standard error.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stream {
    Out,
    Err,
}

/// What the event loop is to wait for, as numbers of its own choice.
pub trait Tokens {
    fn stream(rank: usize, stream: Stream) -> u64;
    fn sink(stream: Stream) -> u64;
}

/// Everything between the ranks' output pipes and `mpiexec`'s standard output and standard error.
pub struct Output {
    pipes: [Vec<Option<OwnedFd>>; 2],
    lines: [Lines; 2],
    sinks: [Sink; 2],
    /// Ranks whose pipe is not read while the sink's queue is full.
    paused: [Vec<usize>; 2],
    /// When each rank's unfinished line comes out, unless the rank goes on with it.
    due: [Vec<Option<Instant>>; 2],
    /// No later than the first of these.
    flush_at: Option<Instant>,
    /// Since when others wait for the end of a rank's line.
    owned: [Option<(usize, Instant)>; 2],
    partial_wait: Duration,
    timestamp: bool,
    buffer: Vec<u8>,
}

struct Sink {
    queue: Vec<u8>,
    /// False where the file never blocks and cannot be polled, such as a regular one.
    pollable: bool,
    armed: bool,
    /// Why nothing can be written any more, such as a reader that is gone.
    broken: Option<Errno>,
}

impl Output {
    /// For as many ranks as there are `labels`, with which their lines begin, after the time where `timestamp` asks for it; an unfinished line is held
    /// back until its rank has been silent for `partial_wait`.
    pub fn new(labels: Vec<String>, timestamp: bool, partial_wait: Duration) -> Output {
        let ranks = labels.len();
        let sink = || Sink { queue: Vec::new(), pollable: true, armed: false, broken: None };
        Output {
            pipes: std::array::from_fn(|_| (0..ranks).map(|_| None).collect()),
            lines: std::array::from_fn(|_| Lines::new(labels.clone())),
            sinks: [sink(), sink()],
            paused: [Vec::new(), Vec::new()],
            due: std::array::from_fn(|_| vec![None; ranks]),
            flush_at: None,
            owned: [None, None],
            partial_wait,
            timestamp,
            buffer: vec![0; 64 * 1024],
        }
    }

    /// Reads the output of `rank` from `pipe` from now on.
    pub fn add<T: Tokens>(&mut self, epoll: &OwnedFd, rank: usize, stream: Stream, pipe: OwnedFd) -> io::Result<()> {
        rustix::io::ioctl_fionbio(&pipe, true)?;
        epoll::add(epoll, &pipe, epoll::EventData::new_u64(T::stream(rank, stream)), epoll::EventFlags::IN)?;
        self.pipes[stream as usize][rank] = Some(pipe);
        Ok(())
    }

    /// `rank`'s pipe can be read.
    pub fn readable(&mut self, epoll: &OwnedFd, rank: usize, stream: Stream) {
        let at = stream as usize;
        let Some(pipe) = &self.pipes[at][rank] else { return };
        if self.sinks[at].queue.len() > QUEUE_BYTES_MAX || self.lines[at].is_full(rank) {
            let _ = epoll::delete(epoll, pipe);
            self.paused[at].push(rank);
            return;
        }
        self.read(rank, stream);
    }

    /// Lets out unfinished lines whose time has come.
    pub fn tick(&mut self, now: Instant) {
        if self.flush_at.is_none_or(|at| at > now) {
            return;
        }
        self.flush_at = None;
        for at in 0..2 {
            for rank in 0..self.due[at].len() {
                if let Some(due) = self.due[at][rank] {
                    let again = if due > now { Some(due) } else { self.lines[at].quiet(rank, &mut self.sinks[at].queue).then(|| now + self.partial_wait) };
                    self.wait_for(at, rank, again);
                    self.note_owner(at, now);
                }
            }
        }
    }

    /// Lets the unfinished line of `rank` out at `due`.
    fn wait_for(&mut self, at: usize, rank: usize, due: Option<Instant>) {
        self.due[at][rank] = due;
        self.flush_at = self.flush_at.into_iter().chain(due).min();
    }

    /// When [`Output::tick`] is to be called.
    pub fn deadline(&self) -> Option<Instant> {
        self.flush_at
    }

    /// A line of `mpiexec` itself, on standard error.
    pub fn say(&mut self, line: &str) {
        let [_, sink] = &mut self.sinks;
        self.lines[1].interrupt(&mut sink.queue);
        // A rank's text may be part of it, and must not steer the terminal or look like a line of its own.
        let line: String = line.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
        sink.queue.extend_from_slice(format!("mpiexec: {line}\n").as_bytes());
    }

    /// Why standard output cannot be written any more; `EPIPE` if its reader is gone.
    pub fn broken(&self) -> Option<Errno> {
        self.sinks[0].broken
    }

    /// `stream`'s reader has room again.
    pub fn writable(&mut self, epoll: &OwnedFd, stream: Stream) {
        if std::mem::take(&mut self.sinks[stream as usize].armed) {
            let _ = epoll::delete(epoll, own(stream));
        }
    }

    /// Writes what can be written without blocking; call it after each round of events.
    pub fn write<T: Tokens>(&mut self, epoll: &OwnedFd) {
        for stream in [Stream::Out, Stream::Err] {
            let sink = &mut self.sinks[stream as usize];
            if sink.armed {
                continue;
            }
            sink.write(stream, Some(&Timespec { tv_sec: 0, tv_nsec: 0 }));
            if !sink.queue.is_empty() {
                let token = epoll::EventData::new_u64(T::sink(stream));
                match epoll::add(epoll, own(stream), token, epoll::EventFlags::OUT) {
                    Ok(()) => sink.armed = true,
                    Err(_) => sink.pollable = false,
                }
            }
            if sink.queue.len() <= QUEUE_BYTES_MAX / 2 {
                let lines = &self.lines[stream as usize];
                let (still, free) = std::mem::take(&mut self.paused[stream as usize]).into_iter().partition(|rank| lines.is_full(*rank));
                self.paused[stream as usize] = still;
                let free: Vec<usize> = free;
                for rank in free {
                    if let Some(pipe) = &self.pipes[stream as usize][rank] {
                        let token = epoll::EventData::new_u64(T::stream(rank, stream));
                        let _ = epoll::add(epoll, pipe, token, epoll::EventFlags::IN);
                    }
                }
            }
        }
    }

    /// All ranks have ended: reads what is left in their pipes and writes it, however long the reader takes; a signal to
    /// `mpiexec` ends it.
    pub fn drain(&mut self, signals: &OwnedFd) {
        for stream in [Stream::Out, Stream::Err] {
            // What others wait for comes first.
            let owner = self.lines[stream as usize].owner();
            for rank in owner.into_iter().chain(0..self.pipes[0].len()) {
                while self.pipes[stream as usize][rank].is_some() && self.read(rank, stream) {
                    self.finish(stream, signals);
                }
                let sink = &mut self.sinks[stream as usize];
                self.lines[stream as usize].close(rank, &mut sink.queue);
            }
            self.finish(stream, signals);
        }
    }

    fn finish(&mut self, stream: Stream, signals: &OwnedFd) {
        let sink = &mut self.sinks[stream as usize];
        while !sink.queue.is_empty() {
            sink.write(stream, Some(&Timespec { tv_sec: 0, tv_nsec: 0 }));
            if sink.queue.is_empty() {
                break;
            }
            let mut ready = [PollFd::from_borrowed_fd(own(stream), PollFlags::OUT), PollFd::new(signals, PollFlags::IN)];
            let _ = rustix::event::poll(&mut ready, None);
            while let Some(signal) = sys::next_signal(signals) {
                if [Signal::INT, Signal::TERM, Signal::HUP, Signal::QUIT].contains(&signal) {
                    sink.broken = Some(Errno::INTR);
                    sink.queue.clear();
                }
            }
        }
    }

    /// After `rank` has written: when the unfinished line that is `held` comes out, and whether another's has gone on for too long.
    fn watch(&mut self, at: usize, rank: usize, held: bool) {
        let now = Instant::now();
        let owner = self.lines[at].owner();
        let wait = if owner == Some(rank) { self.partial_wait.max(OWNER_SILENCE_MAX) } else { self.partial_wait };
        self.wait_for(at, rank, held.then(|| now + wait));
        if let (Some(owner), Some((known, since))) = (owner, self.owned[at])
            && owner == known
            && since + OWNER_MAX < now
        {
            self.lines[at].quiet(owner, &mut self.sinks[at].queue);
        }
        self.note_owner(at, now);
    }

    /// A rank for the end of whose line others have begun to wait may be silent for a while, counted from now: it may not have been read until now.
    fn note_owner(&mut self, at: usize, now: Instant) {
        let owner = self.lines[at].owner();
        if owner != self.owned[at].map(|(known, _)| known) {
            self.owned[at] = owner.map(|owner| (owner, now));
            if let Some(owner) = owner {
                self.wait_for(at, owner, Some(now + OWNER_SILENCE_MAX.max(self.partial_wait)));
            }
        }
    }

    /// Reads once; false when there was nothing.
    fn read(&mut self, rank: usize, stream: Stream) -> bool {
        let at = stream as usize;
        let Some(pipe) = &self.pipes[at][rank] else { return false };
        let (lines, sink) = (&mut self.lines[at], &mut self.sinks[at]);
        match rustix::io::read(pipe, &mut self.buffer[..]) {
            Ok(0) => {
                self.pipes[at][rank] = None;
                lines.close(rank, &mut sink.queue);
                false
            }
            Ok(length) => {
                if self.timestamp {
                    lines.stamp(format!("{} ", humantime::format_rfc3339_millis(SystemTime::now())));
                }
                let held = lines.push(rank, &self.buffer[..length], &mut sink.queue);
                if sink.broken.is_some() {
                    sink.queue.clear();
                }
                self.watch(at, rank, held);
                true
            }
            Err(Errno::AGAIN | Errno::INTR) => false,
            Err(_) => {
                self.pipes[at][rank] = None;
                false
            }
        }
    }
}

impl Sink {
    /// Writes until the queue is empty or the reader has no room within `wait`.
    fn write(&mut self, stream: Stream, wait: Option<&Timespec>) {
        let mut done = 0;
        while done < self.queue.len() {
            let mut end = self.queue.len();
            if self.pollable {
                end = end.min(done + PIPE_BYTES);
                match rustix::event::poll(&mut [PollFd::from_borrowed_fd(own(stream), PollFlags::OUT)], wait) {
                    Ok(0) | Err(Errno::INTR) => break,
                    _ => {}
                }
            }
            match rustix::io::write(own(stream), &self.queue[done..end]) {
                Ok(length) => done += length,
                Err(Errno::AGAIN) => break,
                Err(Errno::INTR) => {}
                Err(error) => {
                    self.broken = Some(error);
                    done = self.queue.len();
                }
            }
        }
        self.queue.drain(..done);
    }
}

fn own(stream: Stream) -> BorrowedFd<'static> {
    match stream {
        Stream::Out => rustix::stdio::stdout(),
        Stream::Err => rustix::stdio::stderr(),
    }
}
