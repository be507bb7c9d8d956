//! The connection to a PMI process manager: whole messages out of a stream socket, with deadlines.

use crate::Error;
use crate::fields::{self, Fields, MESSAGE_BYTES_MAX, Malformed};
use rustix::event::{PollFd, PollFlags};
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags};
use std::os::fd::{AsFd, OwnedFd};
use std::time::{Duration, Instant};

/// How long a process manager may think about a question that needs no other rank.
pub(crate) const ANSWER_WITHIN: Duration = Duration::from_secs(60);

/// One end of the connection; blocks while it waits.
pub(crate) struct Stream {
    socket: OwnedFd,
    buffer: Vec<u8>,
}

impl Stream {
    pub(crate) fn new(socket: OwnedFd) -> Stream {
        Stream { socket, buffer: Vec::new() }
    }

    /// Sends all of `bytes`.
    pub(crate) fn send(&mut self, mut bytes: &[u8]) -> Result<(), Error> {
        while !bytes.is_empty() {
            // No SIGPIPE: a process manager that is gone is an error like others.
            match rustix::net::send(&self.socket, bytes, SendFlags::NOSIGNAL) {
                Ok(sent) => bytes = &bytes[sent..],
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => self.wait(PollFlags::OUT, Some(Instant::now() + ANSWER_WITHIN))?,
                Err(error) => return Err(lost(error)),
            }
        }
        Ok(())
    }

    /// The next PMI-1 line. Without a deadline this waits for as long as the process manager lives.
    pub(crate) fn line(&mut self, deadline: Option<Instant>) -> Result<Fields, Error> {
        let mut searched = 0;
        loop {
            if let Some(end) = self.buffer[searched..].iter().position(|byte| *byte == b'\n') {
                let line: Vec<u8> = self.buffer.drain(..=searched + end).collect();
                return Fields::of_line(&line).map_err(malformed);
            }
            searched = self.buffer.len();
            if searched > MESSAGE_BYTES_MAX {
                return Err(malformed(Malformed::TooLong));
            }
            self.fill(deadline)?;
        }
    }

    /// The next PMI-2 message; see [`Stream::line`].
    pub(crate) fn message(&mut self, deadline: Option<Instant>) -> Result<Fields, Error> {
        while self.buffer.len() < 6 {
            self.fill(deadline)?;
        }
        let head = self.buffer.first_chunk().expect("six bytes");
        let end = 6 + fields::length(head).map_err(malformed)?;
        while self.buffer.len() < end {
            self.fill(deadline)?;
        }
        let message: Vec<u8> = self.buffer.drain(..end).collect();
        Fields::of_message(&message[6..]).map_err(malformed)
    }

    fn fill(&mut self, deadline: Option<Instant>) -> Result<(), Error> {
        let mut bytes = [0; 4096];
        loop {
            self.wait(PollFlags::IN, deadline)?;
            match rustix::net::recv(&self.socket, &mut bytes, RecvFlags::empty()) {
                Ok((0, _)) => return Err(Error::new("the process manager has ended")),
                Ok((count, _)) => {
                    self.buffer.extend(&bytes[..count]);
                    return Ok(());
                }
                Err(Errno::INTR | Errno::AGAIN) => {}
                Err(error) => return Err(lost(error)),
            }
        }
    }

    fn wait(&self, flags: PollFlags, deadline: Option<Instant>) -> Result<(), Error> {
        loop {
            let timeout = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
            let timeout = timeout.map(TryInto::try_into).transpose().map_err(|_| Error::new("timeout too long"))?;
            match rustix::event::poll(&mut [PollFd::from_borrowed_fd(self.socket.as_fd(), flags)], timeout.as_ref()) {
                Ok(0) => return Err(Error::new("the process manager does not answer")),
                Ok(_) => return Ok(()),
                Err(Errno::INTR) => {}
                Err(error) => return Err(lost(error)),
            }
        }
    }
}

fn lost(error: Errno) -> Error {
    match error {
        Errno::PIPE | Errno::CONNRESET => Error::new("the process manager has ended"),
        error => Error::new(format!("lost the connection to the process manager: {error}")),
    }
}

pub(crate) fn malformed(malformed: Malformed) -> Error {
    Error::new(format!("the process manager sent {malformed}"))
}
