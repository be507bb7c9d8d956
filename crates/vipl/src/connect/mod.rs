//! How do two VIs find each other? Connection management over TCP (paper 001 §1.4.1): a client's request meets a server that waits; of two
//! peers, the first request is kept until a matching one comes. The socket of a connection stays open: when its process dies, the kernel
//! closes it, and the other side knows at once.
//!
//! A NIC listens on the first free port of a fixed range, so that a request to port 0 finds any process of the host that waits for the
//! discriminator. Nothing is left behind by a process that is killed.

mod model;
pub mod wire;

pub use model::{Attempt as PeerAttempt, accept, peer_done, peer_request, peer_wait, reject, request, wait};

use crate::handles::Table;
use crate::nic::Nic;
use crate::status::{Refusal, Result};
use crate::vi::{Ending, State, Vi};
use rustix::event::{PollFd, PollFlags, Timespec};
use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddrV4, TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};
use wire::{Address, Frame, HEAD_BYTES};

/// Ports that NICs of one address listen on: the first, and how many.
pub const PORT_FIRST: u16 = 24_800;
pub const PORTS: u16 = 64;
/// Requests that are being dealt with at a time, at most; further ones find no match.
const REQUESTS_MAX: usize = 128;
/// How long a process may take to say the next thing of the protocol.
const PATIENCE: Duration = Duration::from_secs(5);

/// A request of a client that has met a server.
pub struct Request {
    pub socket: TcpStream,
    pub offer: wire::Offer,
    pub card: wire::Card,
    pub from: Address,
}

/// A server that waits for requests to a discriminator.
pub struct Waiter {
    pub number: u64,
    pub discriminator: Vec<u8>,
    pub request: Option<Request>,
}

#[derive(Default)]
pub struct Meeting {
    pub waiters: Vec<Waiter>,
    /// Peers' requests of this process that are not answered.
    pub attempts: Vec<Arc<PeerAttempt>>,
    next: u64,
}

/// A socket whose end means the end of a connection.
struct Watch {
    socket: TcpStream,
    vi: &'static Vi,
    connection: u64,
}

pub struct Connector {
    listener: TcpListener,
    address: SocketAddrV4,
    wake: OwnedFd,
    watches: Mutex<Vec<Watch>>,
    pub meeting: Mutex<Meeting>,
    pub changed: Condvar,
    /// Requests that servers have been told of and not answered.
    pub requests: Mutex<Table<(Arc<Nic>, Request)>>,
    busy: AtomicUsize,
}

impl Connector {
    pub fn new(ip: Ipv4Addr) -> Result<Connector> {
        let wake = rustix::event::eventfd(0, rustix::event::EventfdFlags::CLOEXEC | rustix::event::EventfdFlags::NONBLOCK).map_err(|_| Refusal::Resource)?;
        for port in PORT_FIRST..PORT_FIRST + PORTS {
            let Ok(listener) = TcpListener::bind((ip, port)) else { continue };
            listener.set_nonblocking(true).map_err(|_| Refusal::Resource)?;
            return Ok(Connector {
                listener,
                address: SocketAddrV4::new(ip, port),
                wake,
                watches: Mutex::default(),
                meeting: Mutex::default(),
                changed: Condvar::new(),
                requests: Mutex::new(Table::new(REQUESTS_MAX)),
                busy: AtomicUsize::new(0),
            });
        }
        Err(Refusal::Resource)
    }

    pub fn address(&self) -> SocketAddrV4 {
        self.address
    }

    pub fn stop(&self) {
        self.poke();
        let meeting = self.meeting.lock().unwrap_or_else(PoisonError::into_inner);
        drop(meeting);
        self.changed.notify_all();
    }

    fn poke(&self) {
        let _ = rustix::io::write(&self.wake, &1u64.to_ne_bytes());
    }

    /// Ends the connection when its socket does.
    fn watch(&self, socket: TcpStream, vi: &'static Vi, connection: u64) {
        self.watches.lock().unwrap_or_else(PoisonError::into_inner).push(Watch { socket, vi, connection });
        self.poke();
    }

    /// A number for a waiter.
    fn number(meeting: &mut Meeting) -> u64 {
        meeting.next += 1;
        meeting.next
    }
}

/// The thread of a NIC that takes requests, and watches the sockets of connections.
pub fn run(nic: &Arc<Nic>) {
    let connector = &nic.connector;
    while !nic.closing() {
        let sockets: Vec<(TcpStream, &'static Vi, u64)> = {
            let mut watches = connector.watches.lock().unwrap_or_else(PoisonError::into_inner);
            watches.retain(|it| it.vi.connection.load(Ordering::Relaxed) == it.connection && it.vi.state() == State::Connected);
            watches.iter().filter_map(|it| Some((it.socket.try_clone().ok()?, it.vi, it.connection))).collect()
        };
        let mut polled = vec![PollFd::new(&connector.wake, PollFlags::IN), PollFd::new(&connector.listener, PollFlags::IN)];
        polled.extend(sockets.iter().map(|it| PollFd::new(&it.0, PollFlags::IN | PollFlags::RDHUP)));
        let limit = Timespec { tv_sec: 1, tv_nsec: 0 };
        let _ = rustix::event::poll(&mut polled, Some(&limit));
        let ready: Vec<bool> = polled.iter().map(|it| !it.revents().is_empty()).collect();
        drop(polled);
        if ready[0] {
            let _ = rustix::io::read(&connector.wake, &mut [0; 8]);
        }
        for ((_, vi, connection), _) in sockets.iter().zip(&ready[2..]).filter(|(_, ready)| **ready) {
            // What the peer had sent before is taken first: it has arrived.
            vi.receive(usize::MAX);
            let said = vi.recv.with(|side| side.ending());
            vi.end(*connection, State::Error, said.unwrap_or(Ending::lost()));
        }
        if ready[1] {
            while let Ok((socket, _)) = connector.listener.accept() {
                take_request(nic, socket);
            }
        }
    }
}

/// Deals with one request in a thread of its own: its sender may be slow.
fn take_request(nic: &Arc<Nic>, socket: TcpStream) {
    if nic.connector.busy.fetch_add(1, Ordering::Relaxed) >= REQUESTS_MAX {
        nic.connector.busy.fetch_sub(1, Ordering::Relaxed);
        return;
    }
    let nic = nic.clone();
    let run = move || {
        if socket.set_nonblocking(false).is_ok() {
            model::answer(&nic, socket);
        }
        nic.connector.busy.fetch_sub(1, Ordering::Relaxed);
    };
    let _ = std::thread::Builder::new().name("vipl-request".into()).spawn(run);
}

/// Reads one frame within `limit`.
fn hear(socket: &mut TcpStream, limit: Instant) -> Result<Frame> {
    let mut head = [0; HEAD_BYTES];
    read_all(socket, &mut head, limit)?;
    let bytes = Frame::body_bytes(&head).ok_or(Refusal::NotReachable)?;
    let mut whole = vec![0; HEAD_BYTES + bytes];
    whole[..HEAD_BYTES].copy_from_slice(&head);
    read_all(socket, &mut whole[HEAD_BYTES..], limit)?;
    Frame::parse(&whole).ok_or(Refusal::NotReachable)
}

fn read_all(socket: &mut TcpStream, mut to: &mut [u8], limit: Instant) -> Result<()> {
    while !to.is_empty() {
        let left = limit.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(Refusal::Timeout);
        }
        socket.set_read_timeout(Some(left)).map_err(|_| Refusal::Resource)?;
        match socket.read(to) {
            Ok(0) => return Err(Refusal::NotReachable),
            Ok(count) => to = &mut to[count..],
            Err(error) if matches!(error.kind(), std::io::ErrorKind::Interrupted | std::io::ErrorKind::WouldBlock | std::io::ErrorKind::TimedOut) => {}
            Err(_) => return Err(Refusal::NotReachable),
        }
    }
    Ok(())
}

fn say(socket: &mut TcpStream, frame: &Frame) -> Result<()> {
    socket.write_all(&frame.write()).map_err(|_| Refusal::NotReachable)
}

/// When a time limit of the program is over; those without an end last a year.
fn limit(timeout_ms: u64) -> Instant {
    crate::wait::deadline(timeout_ms).unwrap_or_else(|| Instant::now() + Duration::from_secs(365 * 86400))
}
