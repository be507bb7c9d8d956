//! How does a rank hand its segment to others, where the launcher carries no descriptors?
//!
//! Each rank listens on a socket of the abstract namespace, whose name stands on its card. Who comes says the job's key and
//! gets the descriptor; a thread answers, so that a rank that computes is reachable too.

use crate::channel::{self, Received};
use crate::wire::{PACKET_BYTES_MAX, Reply, Request, SECRET_BYTES, VERSION};
use crate::{Error, sys};
use rustix::event::{PollFd, PollFlags};
use rustix::io::Errno;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

/// How long one client may keep others waiting.
const REQUEST_WITHIN: Duration = Duration::from_secs(5);
/// How long the thread rests where the system has no room for a connection.
const REST: Duration = Duration::from_millis(10);
const STACK_BYTES: usize = 128 * 1024;

/// Listens, and does not answer yet: who asks waits.
pub(crate) struct SegmentServer {
    socket: OwnedFd,
    name: String,
    segment: OwnedFd,
}

impl SegmentServer {
    /// Takes a name that nobody else has.
    pub(crate) fn bind(rank: u32, segment: BorrowedFd) -> Result<SegmentServer, Error> {
        let failed = |error| Error::new(format!("cannot listen for the job's other ranks: {error}"));
        let name: String = sys::random::<16>()?.iter().map(|byte| format!("{byte:02x}")).collect();
        let name = format!("whimbrel-{name}-{rank}");
        let socket = channel::listen(&name).map_err(failed)?;
        let segment = rustix::io::fcntl_dupfd_cloexec(segment, 0).map_err(failed)?;
        Ok(SegmentServer { socket, name, segment })
    }

    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// Lets in who knows `key`, until the process ends.
    pub(crate) fn serve(self, rank: u32, key: [u8; SECRET_BYTES]) -> Result<(), Error> {
        let answer = move || {
            let mut buffer = vec![0; PACKET_BYTES_MAX];
            loop {
                let ready = rustix::event::poll(&mut [PollFd::new(&self.socket, PollFlags::IN)], None);
                let client = ready.and_then(|_| rustix::net::accept_with(&self.socket, rustix::net::SocketFlags::CLOEXEC));
                match client {
                    // A client that does not know the key, or leaves, gets nothing.
                    Ok(client) => drop(admit(&client, rank, &key, self.segment.as_fd(), &mut buffer)),
                    Err(Errno::AGAIN | Errno::INTR | Errno::CONNABORTED) => {}
                    Err(_) => std::thread::sleep(REST),
                }
            }
        };
        // Signals are the program's: none is to be handled on this thread.
        memory::without_signals(|| std::thread::Builder::new().name("whimbrel-segments".into()).stack_size(STACK_BYTES).spawn(answer))
            .map(|_| ())
            .map_err(|error| Error::new(format!("cannot start the thread that hands out this rank's segment: {error}")))
    }
}

/// What is said of a rank of this host that is not there any more, whichever way that shows.
pub const HAS_ENDED: &str = "it ran on this host and has ended";

/// A question for the segment of a rank that is under way.
pub(crate) struct SegmentRequest {
    socket: OwnedFd,
    rank: u32,
    name: String,
}

impl SegmentRequest {
    /// Asks at the socket `name`. `None`: too many others wait there. Does not block.
    ///
    /// Errors: the rank is gone, or somebody else took its name.
    pub(crate) fn begin(name: &str, rank: u32, key: &[u8; SECRET_BYTES]) -> Result<Option<SegmentRequest>, Error> {
        let socket = match channel::try_connect(name) {
            Ok(socket) => socket,
            Err(Errno::AGAIN) => return Ok(None),
            Err(error) => return Err(failed(name, rank, error)),
        };
        let owner = channel::peer(socket.as_fd()).map_err(|error| Error::new(error.to_string()))?;
        // Another user may take the name of a rank that has ended: the key is not for him.
        if owner.uid != rustix::process::geteuid().as_raw() {
            return Err(Error::new(format!("the socket of rank {rank} belongs to user {}", owner.uid)));
        }
        channel::send(socket.as_fd(), &Request::Hello { version: VERSION, rank, secret: *key }.encode(), &[]).map_err(|error| failed(name, rank, error))?;
        Ok(Some(SegmentRequest { socket, rank, name: name.to_owned() }))
    }

    /// The segment; `None` where that rank has not answered `within` that time.
    ///
    /// Errors: the rank is gone, or does not let this process in.
    pub(crate) fn answer(&self, within: Duration) -> Result<Option<OwnedFd>, Error> {
        let rank = self.rank;
        if !channel::wait(self.socket.as_fd(), Instant::now() + within).map_err(|error| failed(&self.name, rank, error))? {
            return Ok(None);
        }
        let mut buffer = vec![0; PACKET_BYTES_MAX];
        let (length, descriptors) = match channel::receive(self.socket.as_fd(), &mut buffer) {
            Ok(Received::Packet { length, descriptors }) => (length, descriptors),
            Ok(Received::End) if is_closed(&self.name) => return Err(Error::new(HAS_ENDED)),
            Ok(Received::End) => return Err(Error::new(format!("rank {rank} does not let this process in: one of them is none of this job"))),
            Err(Errno::AGAIN) => return Ok(None),
            Err(error) => return Err(failed(&self.name, rank, error)),
        };
        let good = Reply::parse(&buffer[..length]) == Ok(Reply::Segments { ranks: vec![rank] });
        match <[OwnedFd; 1]>::try_from(descriptors) {
            Ok([segment]) if good => Ok(Some(segment)),
            _ => Err(Error::new(format!("rank {rank} sent no segment"))),
        }
    }
}

/// Why `rank`, which listens at the socket `name`, cannot be asked. One that ends meanwhile resets the connection or breaks it: its socket tells.
fn failed(name: &str, rank: u32, error: Errno) -> Error {
    match error {
        Errno::CONNREFUSED => Error::new(HAS_ENDED),
        Errno::CONNRESET | Errno::PIPE if is_closed(name) => Error::new(HAS_ENDED),
        error => Error::new(format!("rank {rank} does not hand out its segment: {error}")),
    }
}

/// Whether nobody listens at the socket `name` any more: its rank has ended. A rank that is stopped has not.
pub(crate) fn is_closed(name: &str) -> bool {
    channel::try_connect(name).is_err_and(|error| error == Errno::CONNREFUSED)
}

/// Gives the client the segment if he knows the key and means this rank.
fn admit(client: &OwnedFd, own: u32, key: &[u8; SECRET_BYTES], segment: BorrowedFd, buffer: &mut [u8]) -> Result<(), Errno> {
    let who = channel::peer(client.as_fd()).map_err(|_| Errno::IO)?;
    if who.uid != rustix::process::geteuid().as_raw() {
        return Err(Errno::PERM);
    }
    rustix::net::sockopt::set_socket_timeout(client, rustix::net::sockopt::Timeout::Recv, Some(REQUEST_WITHIN))?;
    rustix::net::sockopt::set_socket_timeout(client, rustix::net::sockopt::Timeout::Send, Some(REQUEST_WITHIN))?;
    let Received::Packet { length, .. } = channel::receive(client.as_fd(), buffer)? else { return Err(Errno::PIPE) };
    match Request::parse(&buffer[..length]) {
        Ok(Request::Hello { version: VERSION, rank, secret }) if rank == own && same(&secret, key) => {
            channel::send(client.as_fd(), &Reply::Segments { ranks: vec![own] }.encode(), &[segment])
        }
        _ => Err(Errno::PERM),
    }
}

/// Compares in a time that does not depend on where they differ.
fn same(a: &[u8; SECRET_BYTES], b: &[u8; SECRET_BYTES]) -> bool {
    a.iter().zip(b).fold(0, |differs, (a, b)| differs | (a ^ b)) == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ask(name: &str, rank: u32, key: &[u8; SECRET_BYTES]) -> Result<OwnedFd, Error> {
        let request = SegmentRequest::begin(name, rank, key)?.expect("nobody else waits");
        loop {
            match request.answer(Duration::ZERO)? {
                Some(segment) => return Ok(segment),
                None => std::thread::yield_now(),
            }
        }
    }

    fn segment(content: &[u8]) -> OwnedFd {
        let memory = rustix::fs::memfd_create("test", rustix::fs::MemfdFlags::CLOEXEC).unwrap();
        rustix::io::write(&memory, content).unwrap();
        memory
    }

    #[test]
    fn who_knows_the_key_gets_the_segment() {
        let server = SegmentServer::bind(3, segment(b"three").as_fd()).unwrap();
        let name = server.name().to_owned();
        let key = [7; SECRET_BYTES];
        // Comes before the server answers, and waits.
        let early = std::thread::spawn({
            let name = name.clone();
            move || ask(&name, 3, &[7; SECRET_BYTES]).unwrap()
        });
        server.serve(3, key).unwrap();
        let mut found = [0; 5];
        rustix::io::pread(early.join().unwrap(), &mut found, 0).unwrap();
        assert_eq!(&found, b"three");
        assert!(ask(&name, 3, &[8; SECRET_BYTES]).unwrap_err().to_string().contains("none of this job"));
        assert!(ask(&name, 4, &key).is_err());
        // Nonsense and hang-ups do not end the server.
        let stranger = channel::connect(&name).unwrap();
        channel::send(stranger.as_fd(), b"what?", &[]).unwrap();
        drop(channel::connect(&name).unwrap());
        assert!(ask(&name, 3, &key).is_ok());
        drop(stranger);
    }

    #[test]
    fn nobody_waits_for_a_rank_that_is_stopped() {
        let server = SegmentServer::bind(2, segment(b"").as_fd()).unwrap();
        let waiting = SegmentRequest::begin(server.name(), 2, &[1; SECRET_BYTES]).unwrap().unwrap();
        assert!(waiting.answer(Duration::ZERO).unwrap().is_none());
        drop(server);
        assert_eq!(waiting.answer(Duration::ZERO).unwrap_err().to_string(), HAS_ENDED, "it has ended meanwhile");
    }

    #[test]
    fn a_rank_that_is_gone_is_named() {
        let server = SegmentServer::bind(5, segment(b"").as_fd()).unwrap();
        let name = server.name().to_owned();
        assert!(!is_closed(&name), "it is there, and nobody opens");
        drop(server);
        assert!(is_closed(&name));
        assert_eq!(ask(&name, 5, &[0; SECRET_BYTES]).unwrap_err().to_string(), HAS_ENDED);
    }
}
