//! How do bytes get from `mpiexec`'s standard input to the ranks that read it?
//!
//! Only where it must pass through here: from a terminal (ranks are in the background of it), or to all ranks. Otherwise a
//! rank has the descriptor itself, and what it does not read stays unread.

use rustix::event::{PollFd, PollFlags, Timespec, epoll};
use rustix::io::Errno;
use std::io;
use std::os::fd::OwnedFd;

/// Standard input on its way to some ranks, at the pace of the slowest that still reads.
pub struct Input {
    targets: Vec<Target>,
    buffer: Vec<u8>,
    /// Bytes of `buffer` that hold input.
    length: usize,
    /// Regular files are always ready, and cannot be polled.
    pollable: bool,
    added: bool,
}

struct Target {
    token: u64,
    pipe: OwnedFd,
    /// Bytes of the buffer that it has got.
    done: usize,
}

impl Input {
    /// Reads on behalf of `targets`: each one's pipe and its token in `epoll`.
    pub fn new(epoll: &OwnedFd, targets: Vec<(u64, OwnedFd)>) -> io::Result<Input> {
        let mut input = Input { targets: Vec::new(), buffer: vec![0; 64 * 1024], length: 0, pollable: true, added: false };
        for (token, pipe) in targets {
            rustix::io::ioctl_fionbio(&pipe, true)?;
            epoll::add(epoll, &pipe, epoll::EventData::new_u64(token), epoll::EventFlags::ONESHOT)?;
            input.targets.push(Target { token, pipe, done: 0 });
        }
        Ok(input)
    }

    /// Asks to be told, by `token`, when there is input; also after a stay in a terminal's background.
    pub fn arm(&mut self, epoll: &OwnedFd, token: u64) {
        let stdin = rustix::stdio::stdin();
        let (data, flags) = (epoll::EventData::new_u64(token), epoll::EventFlags::IN | epoll::EventFlags::ONESHOT);
        while self.length == 0 && !self.targets.is_empty() {
            let armed = match (self.pollable, self.added) {
                (false, _) => false,
                (true, false) => epoll::add(epoll, stdin, data, flags).is_ok(),
                (true, true) => epoll::modify(epoll, stdin, data, flags).is_ok(),
            };
            self.added = armed;
            self.pollable = armed;
            if armed {
                return;
            }
            self.read(epoll);
        }
    }

    /// There is input. `token` is that of standard input.
    pub fn readable(&mut self, epoll: &OwnedFd, token: u64) {
        // In a terminal's background, a read would stop the job; SIGCONT comes when that changes.
        if self.length == 0 && !in_background() {
            self.read(epoll);
            self.arm(epoll, token);
        }
    }

    /// A rank takes more, or no more at all. `token` is that of standard input.
    pub fn writable(&mut self, epoll: &OwnedFd, token: u64) {
        let gone = |pipe: &OwnedFd| {
            let mut state = [PollFd::new(pipe, PollFlags::empty())];
            let now = Timespec { tv_sec: 0, tv_nsec: 0 };
            rustix::event::poll(&mut state, Some(&now)).is_ok() && state[0].revents().contains(PollFlags::ERR)
        };
        self.targets.retain(|target| !gone(&target.pipe));
        self.give(epoll);
        self.arm(epoll, token);
    }

    fn read(&mut self, epoll: &OwnedFd) {
        match rustix::io::read(rustix::stdio::stdin(), &mut self.buffer[..]) {
            Ok(0) => self.targets.clear(),
            Ok(length) => {
                self.length = length;
                self.give(epoll);
            }
            Err(Errno::INTR | Errno::AGAIN) => {}
            // Dropping the pipes tells the ranks.
            Err(_) => self.targets.clear(),
        }
    }

    fn give(&mut self, epoll: &OwnedFd) {
        let input = &self.buffer[..self.length];
        let mut waiting = false;
        self.targets.retain_mut(|target| {
            while target.done < input.len() {
                match rustix::io::write(&target.pipe, &input[target.done..]) {
                    Ok(length) => target.done += length,
                    Err(Errno::INTR) => {}
                    Err(Errno::AGAIN) => {
                        let flags = epoll::EventFlags::OUT | epoll::EventFlags::ONESHOT;
                        let armed = epoll::modify(epoll, &target.pipe, epoll::EventData::new_u64(target.token), flags);
                        waiting |= armed.is_ok();
                        return armed.is_ok();
                    }
                    // It reads no more.
                    Err(_) => return false,
                }
            }
            true
        });
        if !waiting {
            self.length = 0;
            self.targets.iter_mut().for_each(|target| target.done = 0);
        }
    }
}

fn in_background() -> bool {
    let own = || crate::processes::own().map(|process| process.group);
    rustix::termios::tcgetpgrp(rustix::stdio::stdin()).is_ok_and(|group| own() != Some(group.as_raw_nonzero().get()))
}
