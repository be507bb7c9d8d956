//! What can a rank ask of whoever started it? The same calls whoever that is.

use crate::environment::{self, Launched, Pmi as Address};
use crate::foreign::{Foreign, Neighbours};
use crate::host::Host;
use crate::pmi::Pmi;
use crate::wire::SECRET_BYTES;
use crate::{Board, Client, Error, pmix, sys};
use std::net::TcpStream;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::time::Duration;

/// How this process was started.
pub enum Start {
    /// Without a launcher: a world of one.
    Singleton,
    /// As a rank of a job.
    Job(Launcher),
}

/// One rank's connection to who started it. Every call but those that say otherwise may block; none is for the fast path.
///
/// A start goes: [`publish`](Launcher::publish), any number of [`put`](Launcher::put), one [`meet`](Launcher::meet), and
/// from then on everything else.
pub enum Launcher {
    /// `mpiexec` of this library.
    Own(Client),
    /// A process manager of others.
    Foreign(Box<Foreign>),
}

/// Finds out how this process was started, and says hello to its launcher if it has one.
///
/// Errors, each one line for the user: the process stands under a launcher that this library cannot speak to; the
/// launcher is gone, belongs to another user, or refuses.
pub fn start() -> Result<Start, Error> {
    join().map_err(|error| match copies(&std::fs::read_to_string("/proc/self/maps").unwrap_or_default(), join as *const () as u64) {
        Some(all) => Error::new(format!("{error}; this process has loaded {all}: see to it that only one of these is linked or loaded")),
        None => error,
    })
}

/// The files of this library that a process with these `maps` has loaded, where there are several: that which `own` is an address of comes first.
fn copies(maps: &str, own: u64) -> Option<String> {
    let mut files: Vec<&str> = Vec::new();
    let mut mine = None;
    for line in maps.lines() {
        let Some(file) = line.find('/').map(|at| &line[at..]) else { continue };
        let bounds = line.split(' ').next().and_then(|range| range.split_once('-'));
        let bounds = bounds.and_then(|(start, end)| Some(u64::from_str_radix(start, 16).ok()?..u64::from_str_radix(end, 16).ok()?));
        if bounds.is_some_and(|bounds| bounds.contains(&own)) {
            mine = Some(file);
        }
        if file.rsplit('/').next().is_some_and(|name| name.starts_with("libmpi_abi.so")) && !files.contains(&file) {
            files.push(file);
        }
    }
    files.sort_by_key(|file| Some(*file) != mine);
    (files.len() > 1).then(|| format!("{} copies of libmpi_abi ({})", files.len(), files.join(", ")))
}

fn join() -> Result<Start, Error> {
    let (foreign, manager) = match environment::read()? {
        Launched::Alone => return Ok(Start::Singleton),
        Launched::Here(address) => return Ok(Client::hello(address)?.map_or(Start::Singleton, |client| Start::Job(Launcher::Own(client)))),
        Launched::Pmix => (pmix::hello().map(|(store, job)| (Box::new(store) as _, job)), "the PMIx server"),
        Launched::Pmi(address) => (reach(&address).map(|(store, job)| (Box::new(store) as _, job)), "the PMI process manager"),
    };
    let (store, job) = foreign?;
    Ok(Start::Job(Launcher::Foreign(Box::new(Foreign::new(store, job, manager)))))
}

impl Launcher {
    /// Rank of this process in the world. Does not block.
    pub fn rank(&self) -> u32 {
        match self {
            Launcher::Own(client) => client.rank(),
            Launcher::Foreign(foreign) => foreign.rank(),
        }
    }

    /// Ranks in the world, `1..=`[`crate::JOB_RANKS_MAX`]. Does not block.
    pub fn size(&self) -> u32 {
        match self {
            Launcher::Own(client) => client.size(),
            Launcher::Foreign(foreign) => foreign.size(),
        }
    }

    /// Ranks that share this host's memory, ascending; this rank is one of them. Known after [`Launcher::meet`]. Does not block.
    pub fn local_ranks(&self) -> &[u32] {
        match self {
            Launcher::Own(client) => client.local_ranks(),
            Launcher::Foreign(foreign) => foreign.local_ranks(),
        }
    }

    /// The lowest rank that shares no memory with this one, if there is one. Known after [`Launcher::meet`]. Does not block.
    pub fn remote_rank(&self) -> Option<u32> {
        let local = self.local_ranks();
        (0..self.size()).find(|rank| local.binary_search(rank).is_err())
    }

    /// Index of this rank's program among those of the command line (`MPI_APPNUM`). Does not block.
    pub fn appnum(&self) -> i32 {
        match self {
            Launcher::Own(client) => client.appnum(),
            Launcher::Foreign(foreign) => foreign.appnum(),
        }
    }

    /// `MPI_UNIVERSE_SIZE`. Does not block.
    pub fn universe_size(&self) -> u32 {
        match self {
            Launcher::Own(client) => client.universe_size(),
            Launcher::Foreign(foreign) => foreign.universe_size(),
        }
    }

    /// Processors that the ranks of this host may use together, at least 1. With more local ranks than these, a waiting rank
    /// should give its processor away at once. Known after [`Launcher::meet`]. Does not block.
    pub fn cores(&self) -> u32 {
        match self {
            Launcher::Own(client) => client.cores(),
            Launcher::Foreign(foreign) => foreign.cores(),
        }
    }

    /// Whether a rank that gives its core away gives it to other local ranks: Hydra starts each in a session, and so in a
    /// scheduler's group, of its own. Known after [`Launcher::meet`]. Does not block.
    pub fn yielding_reaches(&self) -> bool {
        match self {
            Launcher::Own(_) => true,
            Launcher::Foreign(foreign) => foreign.yielding_reaches(),
        }
    }

    /// The job's key of 256 bits, known to its ranks and launcher only; `None` before [`Launcher::meet`] where rank 0 makes it.
    /// Does not block.
    pub fn key(&self) -> Option<&[u8; SECRET_BYTES]> {
        match self {
            Launcher::Own(client) => Some(client.key()),
            Launcher::Foreign(foreign) => foreign.key(),
        }
    }

    /// Where this rank says what it is doing, if its launcher wants to know. Does not block.
    pub fn board(&self) -> Option<&Board> {
        match self {
            Launcher::Own(client) => Some(client.board()),
            Launcher::Foreign(_) => None,
        }
    }

    /// The port of the processes that have spawned this job, if any have. Does not block.
    pub fn parent_port(&self) -> Option<String> {
        match self {
            Launcher::Own(_) => std::env::var(crate::environment::PARENT).ok().filter(|port| !port.is_empty()),
            Launcher::Foreign(_) => None,
        }
    }

    /// The launcher in words. Does not block.
    pub fn name(&self) -> &'static str {
        match self {
            Launcher::Own(_) => "mpiexec",
            Launcher::Foreign(foreign) => foreign.manager(),
        }
    }

    /// Makes this rank's shared-memory segment known, for local ranks to [fetch](Launcher::fetch). Only once.
    pub fn publish(&mut self, segment: BorrowedFd) -> Result<(), Error> {
        match self {
            Launcher::Own(client) => client.publish(segment),
            Launcher::Foreign(foreign) => foreign.publish(segment),
        }
    }

    /// Leaves `value` under `name` for the other ranks to [get](Launcher::get), before [`Launcher::meet`]. Each rank has names
    /// of its own.
    ///
    /// Errors: `name` is longer than [`crate::foreign::NAME_BYTES_MAX`] or not of letters, digits and hyphens, or `value`
    /// longer than [`crate::wire::VALUE_BYTES_MAX`].
    pub fn put(&mut self, name: &str, value: &[u8]) -> Result<(), Error> {
        match self {
            Launcher::Own(client) => client.kv_put(format!("{name}/{}", client.rank()).as_bytes(), value),
            Launcher::Foreign(foreign) => foreign.put(name, value),
        }
    }

    /// From here on all that ranks have put can be got, and who is local is known. Every rank calls this once, after
    /// [`Launcher::publish`]. Under `mpiexec` nobody waits: getting does.
    pub fn meet(&mut self) -> Result<(), Error> {
        match self {
            Launcher::Own(_) => Ok(()),
            Launcher::Foreign(foreign) => foreign.meet(),
        }
    }

    /// Whether ranks of this job may share no memory with this one. Before [`Launcher::meet`] a foreign manager's word is not enough: it may take
    /// two namespaces for one host. Does not block.
    pub fn may_be_remote(&self) -> bool {
        matches!(self, Launcher::Foreign(_)) && self.size() > 1
    }

    /// Blocks until every rank of the job has called this.
    pub fn fence(&mut self) -> Result<(), Error> {
        match self {
            Launcher::Own(client) => client.fence(),
            Launcher::Foreign(foreign) => foreign.fence(),
        }
    }

    /// What `rank` put under `name`.
    ///
    /// Errors: nothing, or nothing within `timeout`.
    pub fn get(&mut self, rank: u32, name: &str, timeout: Duration) -> Result<Vec<u8>, Error> {
        match self {
            Launcher::Own(client) => client.kv_get(format!("{name}/{rank}").as_bytes(), timeout),
            Launcher::Foreign(foreign) => foreign.get(rank, name, timeout),
        }
    }

    /// The host of `rank`.
    pub fn host(&mut self, rank: u32) -> Result<Host, Error> {
        match self {
            // It starts ranks on this host only.
            Launcher::Own(_) => Ok(Host::here()),
            Launcher::Foreign(foreign) => foreign.host(rank),
        }
    }

    /// The segment of the local rank `rank`; `None` where that rank has not made it known `within` that time: the answer comes to a later call.
    pub fn fetch(&mut self, rank: u32, within: Duration) -> Result<Option<OwnedFd>, Error> {
        match self {
            Launcher::Own(client) => client.try_fetch(rank, within),
            Launcher::Foreign(foreign) => foreign.fetch(rank, within),
        }
    }

    /// The ranks of this host, to be had while this one waits at the launcher for others. `None` under `mpiexec`, which hands segments out itself, and
    /// before [`Launcher::meet`]. Does not block.
    pub fn neighbours(&self) -> Option<Neighbours> {
        match self {
            Launcher::Own(_) => None,
            Launcher::Foreign(foreign) => foreign.neighbours(),
        }
    }

    /// Tells the launcher that `MPI_Finalize` is done: from now on this process may exit. An exit status other than 0
    /// still becomes the job's.
    pub fn finalized(&mut self) -> Result<(), Error> {
        match self {
            Launcher::Own(client) => client.finalized(),
            Launcher::Foreign(foreign) => foreign.finalized(),
        }
    }

    /// `MPI_Abort`: ends all ranks with exit status `code`; `message` (one line) is printed. Never returns.
    pub fn abort(&mut self, code: i32, message: &str) -> ! {
        match self {
            Launcher::Own(client) => client.abort(code, message),
            Launcher::Foreign(foreign) => foreign.abort(code, message),
        }
    }
}

/// Connects to a PMI process manager and greets it.
fn reach(address: &Address) -> Result<(Pmi, crate::store::Job), Error> {
    match address {
        Address::Inherited { descriptor, rank, size, job, version } => {
            let socket = sys::inherited_socket(*descriptor).ok_or_else(|| {
                Error::new(format!(
                    "PMI_FD={descriptor} is no open socket: this process was started by an MPI process rather than by its \
                     launcher, or a wrapper closed it; WHIMBREL_FOREIGN_LAUNCHER=ignore runs it as a world of one"
                ))
            })?;
            Pmi::hello(socket, *version, job.as_deref(), Some((*rank, *size)))
        }
        Address::Port { host, port, id } => {
            let socket = TcpStream::connect((host.as_str(), *port))
                .map_err(|error| Error::new(format!("cannot reach the process manager that PMI_PORT names ({host}:{port}): {error}")))?;
            let _ = socket.set_nodelay(true);
            Pmi::hello_to_port(socket.into(), id)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn copies_of_the_library_are_found() {
        let line = |start: u64, file: &str| format!("{start:x}-{:x} r-xp 00000000 00:01 7                          {file}\n", start + 0x1000);
        let maps = line(0x1000, "/a b/lib/libmpi_abi.so.1")
            + &line(0x2000, "/a b/lib/libmpi_abi.so.1")
            + &line(0x5000, "/c/libmpi_abi.so.1.0")
            + "7000-8000 rw-p 0 00:00 0 \n";
        assert_eq!(copies(&maps, 0x5010).unwrap(), "2 copies of libmpi_abi (/c/libmpi_abi.so.1.0, /a b/lib/libmpi_abi.so.1)");
        assert_eq!(copies(&line(0x1000, "/a/libmpi_abi.so.1"), 0x1010), None);
        assert_eq!(copies("nonsense", 0), None);
    }
}
