//! What can a rank ask of the `mpiexec` of this library?

use crate::board::{Board, State};
use crate::channel::{self, Received};
use crate::environment::{self, Address};
use crate::host::Host;
use crate::wire::{FETCH_RANKS_MAX, KEY_BYTES_MAX, Malformed, PACKET_BYTES_MAX, Reply, Request, SECRET_BYTES, VALUE_BYTES_MAX, VERSION, Welcome};
use crate::{Error, RANKS_MAX, last_line};
use rustix::io::Errno;
use rustix::process::Signal;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

/// One rank's connection to `mpiexec`. Every call but [`Client::board`] may block; none is for the fast path.
pub struct Client {
    socket: OwnedFd,
    board: Board,
    welcome: Welcome,
    rank: u32,
    secret: [u8; SECRET_BYTES],
    local_ranks: Vec<u32>,
    sequence: u32,
    /// Segments that came while this rank waited for another answer.
    segments: Vec<(u32, OwnedFd)>,
    /// Whose segments it has asked for by [`Client::try_fetch`].
    asked: Vec<u32>,
    buffer: Vec<u8>,
}

/// Why the `mpiexec` of `job` is not reached.
fn unreachable(job: &str, error: Errno) -> Error {
    let own = Host::here().network.1.to_string();
    match std::env::var(environment::NETWORK) {
        Ok(theirs) if error == Errno::CONNREFUSED && own != "0" && own != theirs => Error::new(format!(
            "this rank is in a network namespace of its own ({own}; mpiexec's is {theirs}), where mpiexec cannot be reached: start the rank in that of mpiexec \
             (docker or podman run --network=host, no unshare -n), or run mpiexec inside as well"
        )),
        _ => Error::new(format!("cannot reach the mpiexec that {} names ({job}): {error}", environment::JOB)),
    }
}

impl Client {
    /// Rank of this process in the world.
    pub fn rank(&self) -> u32 {
        self.rank
    }

    /// Ranks in the world.
    pub fn size(&self) -> u32 {
        self.welcome.size
    }

    /// Ranks on this host, ascending; this rank is one of them.
    pub fn local_ranks(&self) -> &[u32] {
        &self.local_ranks
    }

    /// Index of this rank's program among those of the command line (`MPI_APPNUM`).
    pub fn appnum(&self) -> i32 {
        self.welcome.appnum
    }

    /// `MPI_UNIVERSE_SIZE`.
    pub fn universe_size(&self) -> u32 {
        self.welcome.universe_size
    }

    /// Processors that the job may use on this host. With more local ranks than these, a waiting rank should give its
    /// processor away at once.
    pub fn cores(&self) -> u32 {
        self.welcome.cores
    }

    /// The job's secret, known to its ranks and launcher only.
    pub fn key(&self) -> &[u8; SECRET_BYTES] {
        &self.secret
    }

    /// What this rank is doing, for the launcher's messages.
    pub fn board(&self) -> &Board {
        &self.board
    }

    /// Hands this rank's shared-memory segment to the launcher, for peers to [fetch](Client::fetch). Only once.
    pub fn publish(&mut self, segment: BorrowedFd) -> Result<(), Error> {
        self.send(&Request::Publish, &[segment])
    }

    /// The segment of `rank`; blocks until that rank has published it.
    pub fn fetch(&mut self, rank: u32) -> Result<OwnedFd, Error> {
        let mut segments = self.fetch_many(&[rank])?;
        segments.pop().ok_or_else(|| Error::new(format!("the launcher sent no segment of rank {rank}")))
    }

    /// The segment of `rank`; `None` where that rank has not published it `within` that time: the answer comes to a later call.
    pub fn try_fetch(&mut self, rank: u32, within: Duration) -> Result<Option<OwnedFd>, Error> {
        let deadline = Instant::now() + within;
        if !self.asked.contains(&rank) {
            self.send(&Request::Fetch { ranks: vec![rank] }, &[])?;
            self.asked.push(rank);
        }
        loop {
            if let Some(at) = self.segments.iter().position(|(from, _)| *from == rank) {
                self.asked.retain(|asked| *asked != rank);
                return Ok(Some(self.segments.swap_remove(at).1));
            }
            match self.receive(Some(deadline)) {
                Ok(Some(Reply::Segments { .. } | Reply::Value { .. })) => {}
                Ok(None) => return Ok(None),
                Ok(other) => return Err(unexpected(other)),
                Err(error) => {
                    // It may be asked for once more.
                    self.asked.retain(|asked| *asked != rank);
                    return Err(error);
                }
            }
        }
    }

    /// The segments of `ranks`, in their order, in far fewer packets than one by one; blocks until all have published.
    /// A rank must not be named twice.
    pub fn fetch_many(&mut self, ranks: &[u32]) -> Result<Vec<OwnedFd>, Error> {
        for ranks in ranks.chunks(FETCH_RANKS_MAX) {
            self.send(&Request::Fetch { ranks: ranks.to_vec() }, &[])?;
        }
        ranks
            .iter()
            .map(|rank| {
                loop {
                    if let Some(at) = self.segments.iter().position(|(from, _)| from == rank) {
                        return Ok(self.segments.swap_remove(at).1);
                    }
                    match self.receive(None)? {
                        Some(Reply::Segments { .. }) | Some(Reply::Value { .. }) => {}
                        other => return Err(unexpected(other)),
                    }
                }
            })
            .collect()
    }

    /// Tells the launcher that `MPI_Finalize` is done: from now on this process may exit. An exit status other than 0
    /// still becomes the job's.
    pub fn finalized(&mut self) -> Result<(), Error> {
        self.send(&Request::Finalized, &[])?;
        self.board.leave();
        self.board.set(State::Finalized);
        Ok(())
    }

    /// `MPI_Abort`: the launcher ends all ranks, prints `message` (one line), and exits with `code`.
    pub fn abort(&mut self, code: i32, message: &str) -> ! {
        if self.send(&Request::Abort { code, text: message.to_owned() }, &[]).is_ok() {
            // The launcher's signal is on its way; whatever it still sends is of no interest.
            while let Ok(Received::Packet { .. }) = channel::receive(self.socket.as_fd(), &mut self.buffer) {}
        }
        last_line::print(message);
        std::process::exit(if code & 0xff == 0 { 1 } else { code })
    }

    /// Stores `value` under `key` for all ranks. The first value of a key stays.
    ///
    /// Errors: key or value longer than [`KEY_BYTES_MAX`] or [`VALUE_BYTES_MAX`].
    pub fn kv_put(&mut self, key: &[u8], value: &[u8]) -> Result<(), Error> {
        if value.len() > VALUE_BYTES_MAX {
            return Err(Error::new(format!("a value of {} bytes is too long (limit {VALUE_BYTES_MAX})", value.len())));
        }
        self.send(&Request::Put { key: checked(key)?, value: value.to_vec() }, &[])
    }

    /// The value under `key`; blocks until some rank has stored it, at most for `timeout`.
    ///
    /// Errors: key too long; timeout.
    pub fn kv_get(&mut self, key: &[u8], timeout: Duration) -> Result<Vec<u8>, Error> {
        let deadline = Instant::now() + timeout;
        let sequence = self.next_sequence();
        self.send(&Request::Get { sequence, key: checked(key)? }, &[])?;
        loop {
            match self.receive(Some(deadline))? {
                Some(Reply::Value { sequence: of, value }) if of == sequence => return Ok(value),
                // An answer to a question whose time was up, or segments for later.
                Some(Reply::Value { .. } | Reply::Segments { .. }) => {}
                None => {
                    let key = String::from_utf8_lossy(key);
                    return Err(Error::new(format!("no rank stored {key:?} within {} ms", timeout.as_millis())));
                }
                other => return Err(unexpected(other)),
            }
        }
    }

    /// Blocks until every rank of the job has called this.
    pub fn fence(&mut self) -> Result<(), Error> {
        let sequence = self.next_sequence();
        self.send(&Request::Fence { sequence }, &[])?;
        loop {
            match self.receive(None)? {
                Some(Reply::Fenced { sequence: of }) if of == sequence => return Ok(()),
                Some(Reply::Value { .. } | Reply::Segments { .. }) => {}
                other => return Err(unexpected(other)),
            }
        }
    }

    /// Says hello, as the rank that the environment names; `None` where that rank itself has started this process, which thus is none.
    ///
    /// Errors: `mpiexec` is gone, belongs to another user, or refuses (another process is this rank already).
    pub(crate) fn hello(address: Address) -> Result<Option<Client>, Error> {
        let Address { job, secret, rank } = address;
        let socket = channel::connect(&job).map_err(|error| unreachable(&job, error))?;
        let launcher = channel::peer(socket.as_fd()).map_err(|error| Error::new(format!("cannot tell who is behind the job's socket: {error}")))?;
        // Another user may take the name of a job that has ended: the secret is not for him.
        let ours = rustix::process::geteuid().as_raw();
        if launcher.uid != ours {
            let theirs = launcher.uid;
            return Err(Error::new(format!("the job's socket belongs to user {theirs}, this process to user {ours}")));
        }
        die_with(launcher.pid)?;
        let mut buffer = vec![0; PACKET_BYTES_MAX];
        channel::send(socket.as_fd(), &Request::Hello { version: VERSION, rank, secret }.encode(), &[]).map_err(lost)?;
        let (welcome, descriptors) = match channel::receive(socket.as_fd(), &mut buffer).map_err(lost)? {
            Received::End => return Err(Error::new(ENDED)),
            Received::Packet { length, descriptors } => match Reply::parse(&buffer[..length]).map_err(malformed)? {
                Reply::Welcome(welcome) => (welcome, descriptors),
                Reply::Taken => return Ok(None),
                Reply::Refused { text } => return Err(Error::new(text)),
                other => return Err(unexpected(Some(other))),
            },
        };
        let Ok([memory]) = <[OwnedFd; 1]>::try_from(descriptors) else {
            return Err(Error::new("the launcher sent no board"));
        };
        let board = Board::map(memory.as_fd(), welcome.size, rank)?;
        board.set(State::Started);
        let local_ranks = (0..welcome.size).collect();
        Ok(Some(Client { socket, board, welcome, rank, secret, local_ranks, sequence: 0, segments: Vec::new(), asked: Vec::new(), buffer }))
    }

    fn next_sequence(&mut self) -> u32 {
        self.sequence = self.sequence.wrapping_add(1);
        self.sequence
    }

    fn send(&self, request: &Request, descriptors: &[BorrowedFd]) -> Result<(), Error> {
        let packet = request.encode();
        for _ in 0..RANKS_MAX {
            match channel::send(self.socket.as_fd(), &packet, descriptors) {
                // Too many descriptors of this user are in flight; the launcher is taking them off.
                Err(Errno::TOOMANYREFS) => std::thread::sleep(Duration::from_millis(5)),
                done => return done.map_err(lost),
            }
        }
        Err(Error::new("too many descriptors in flight: raise the limit of open files (ulimit -n)"))
    }

    /// The next reply, or `None` at the deadline. Segments are kept aside as well as reported.
    fn receive(&mut self, deadline: Option<Instant>) -> Result<Option<Reply>, Error> {
        if let Some(deadline) = deadline
            && !channel::wait(self.socket.as_fd(), deadline).map_err(lost)?
        {
            return Ok(None);
        }
        let Received::Packet { length, descriptors } = channel::receive(self.socket.as_fd(), &mut self.buffer).map_err(lost)? else {
            return Err(Error::new(ENDED));
        };
        let reply = Reply::parse(&self.buffer[..length]).map_err(malformed)?;
        if let Reply::Segments { ranks } = &reply {
            if ranks.len() != descriptors.len() || self.segments.len() + ranks.len() > RANKS_MAX as usize {
                return Err(Error::new("the launcher sent segments that do not match their ranks"));
            }
            self.segments.extend(ranks.iter().copied().zip(descriptors));
        }
        Ok(Some(reply))
    }
}

const ENDED: &str = "mpiexec has ended";

/// Lets the kernel kill this process when the launcher dies. Only where the launcher itself is the parent: the signal
/// follows the parent's *thread*, and a wrapper's thread may end while the program is wanted.
fn die_with(launcher: i32) -> Result<(), Error> {
    let parent = || rustix::process::getppid().map(|pid| pid.as_raw_pid());
    if parent() != Some(launcher) {
        return Ok(());
    }
    rustix::process::set_parent_process_death_signal(Some(Signal::KILL)).map_err(|error| Error::new(format!("cannot tie this process to mpiexec: {error}")))?;
    // It may have died before the kernel knew.
    if parent() == Some(launcher) { Ok(()) } else { Err(Error::new(ENDED)) }
}

fn checked(key: &[u8]) -> Result<Vec<u8>, Error> {
    if key.len() > KEY_BYTES_MAX {
        return Err(Error::new(format!("a key of {} bytes is too long (limit {KEY_BYTES_MAX})", key.len())));
    }
    Ok(key.to_vec())
}

fn lost(error: Errno) -> Error {
    match error {
        Errno::PIPE | Errno::CONNRESET => Error::new(ENDED),
        Errno::MFILE => Error::new("mpiexec hands out a segment, and this process may have no more open files (ulimit -n)"),
        error => Error::new(format!("lost the connection to mpiexec: {error}")),
    }
}

fn malformed(malformed: Malformed) -> Error {
    Error::new(format!("mpiexec sent what this library cannot read: {malformed}"))
}

fn unexpected(reply: Option<Reply>) -> Error {
    Error::new(format!("mpiexec sent an answer that nobody asked for: {reply:?}"))
}
