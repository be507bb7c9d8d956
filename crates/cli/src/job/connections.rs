//! What do ranks ask over their connections, and what do they get?

use super::{Claim, Connection, Launcher, Outgoing, Phase, Rank, SPARE_CONNECTIONS, Token};
use crate::exchange::{Answer, Effect};
use crate::processes;
use launch::channel::{self, Received};
use launch::wire::{DESCRIPTORS_MAX, Reply, Request, SECRET_BYTES, VERSION, Welcome};
use rustix::event::epoll;
use rustix::io::Errno;
use rustix::net::SocketFlags;
use rustix::process::{Pid, PidfdFlags};
use std::collections::VecDeque;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

impl Launcher {
    pub(super) fn accept(&mut self) {
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
    pub(super) fn receive(&mut self, id: u32) {
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
                // Anybody of this user may ask; nothing secret is told.
                (Ok(Request::Where), None) => {
                    let packet = Reply::Value { sequence: 0, value: self.account().into_bytes() }.encode();
                    if let Some(connection) = self.connections.get_mut(&id) {
                        connection.outbox.push_back(Outgoing::Packet(packet, None));
                        connection.last = true;
                        self.dirty.push(id);
                    }
                }
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

    pub(super) fn hello(&mut self, id: u32, version: u16, rank: u32, secret: [u8; SECRET_BYTES]) {
        if self.phase == Phase::Ending {
            // It is about to be killed, and needs no words.
            return;
        }
        let asker = self.connections.get(&id).map_or(0, |connection| connection.pid);
        let claim = match self.joined_already(asker).map_or_else(|| self.examine(version, rank, &secret), Err) {
            Err(text) => {
                let reply = if version == VERSION && self.is_helper(asker, rank) { Reply::Taken } else { Reply::Refused { text } };
                if let Some(connection) = self.connections.get_mut(&id) {
                    connection.outbox.push_back(Outgoing::Packet(reply.encode(), None));
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
        let welcome =
            Welcome { size: self.size, appnum, universe_size: self.job.universe_size.unwrap_or(self.size.max(self.processors)), cores: self.processors };
        let packet = Outgoing::Packet(Reply::Welcome(welcome).encode(), Some(self.board_memory.clone()));
        if let Some(connection) = self.connections.get_mut(&id) {
            connection.outbox.push_back(packet);
            self.dirty.push(id);
        }
    }

    /// Words for process `pid`, where that is a rank already and says hello once more.
    fn joined_already(&self, pid: i32) -> Option<String> {
        let is = |rank: &Rank| rank.claim.as_ref().is_some_and(|claim| claim.pid == pid && pid > 0 && !claim.ended && claim.connection.is_some());
        let rank = self.ranks.iter().position(is)?;
        Some(format!("this process has joined the job already, as rank {rank}: a second copy of the library in it cannot"))
    }

    /// Whether process `pid` descends from the living process that is `rank` already: a helper that it has started, such as
    /// one of Python's `multiprocessing`, which inherits the launcher's variables and is a world of one.
    fn is_helper(&self, pid: i32, rank: u32) -> bool {
        let claim = self.ranks.get(rank as usize).and_then(|of| of.claim.as_ref());
        claim.is_some_and(|claim| !claim.ended && claim.pid > 0 && processes::descends(pid, claim.pid))
    }

    /// Whether a process that says hello may be `rank`; else why not, in one line.
    pub(super) fn examine(&self, version: u16, rank: u32, secret: &[u8; SECRET_BYTES]) -> Result<(), String> {
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

    pub(super) fn request(&mut self, rank: u32, request: Request, descriptors: Vec<OwnedFd>) {
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

    pub(super) fn answer(&mut self, answer: Answer) {
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

    pub(super) fn abort(&mut self, rank: u32, code: i32, text: &str) {
        // A rank that died may be why this one gives up, and is then what to tell.
        self.reap();
        if self.phase == Phase::Ending {
            return;
        }
        let says = if text.is_empty() { String::new() } else { format!(": {text}") };
        let line = format!("{} aborted the job with code {code}{says}", self.who(rank));
        self.output.say(&line);
        self.status.get_or_insert(if code != 0 && code & 0xff == 0 { 1 } else { code & 0xff });
        self.end_soon(1);
        // It has said what it had to say, and waits for this.
        let _ = rustix::process::kill_process_group(self.ranks[rank as usize].pid, rustix::process::Signal::TERM);
    }

    pub(super) fn misbehaved(&mut self, rank: u32, what: &str) {
        if self.phase != Phase::Ending {
            let line = format!("{} {what}", self.who(rank));
            self.output.say(&line);
            self.end(1);
        }
    }

    pub(super) fn disconnect(&mut self, id: u32) {
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

    pub(super) fn send_all(&mut self) {
        while let Some(id) = self.dirty.pop() {
            self.send(id);
        }
    }

    pub(super) fn send(&mut self, id: u32) {
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
