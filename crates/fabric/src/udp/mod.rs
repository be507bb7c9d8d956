//! Datagrams over UDP, IPv4 and IPv6: the sockets, what waits in front of them, and the ways to peers.
//!
//! - Every usable address of the host has up to [`ENDPOINTS_MAX`] ports; an address is a rail of `proto::reliability`.
//! - Datagrams are gathered from header and user memory and go to the kernel in groups, which it cuts (GSO); what arrives comes joined (GRO).
//! - [`Node`] joins this with the reliability layer and the job's key: that is what an engine drives.

mod lanes;
mod lines;
mod net;
mod node;
mod outbox;
mod path;
mod protection;
mod sys;
#[cfg(test)]
mod tests;

pub use net::{NetError, NetFilter};
pub use node::{Node, NodeCounters, Program, Sink};
pub use outbox::SendCounters;
pub use path::{Card, ENDPOINTS_MAX, NoCard, Offer};
pub use protection::{Guard, JobKey, Protection};

use std::mem::MaybeUninit;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::sync::{Arc, Mutex, PoisonError};

use proto::reliability::wire::{ENVELOPE_BYTES_MAX, HEADER_BYTES, MESSAGE_BYTES_MAX};
use proto::reliability::{MTU_BYTES_MIN, RAILS_MAX, RailConfig, VFRAG_BYTES};

use crate::Error;
use lines::{SOCKETS_EACH, Sockets};
use outbox::Outbox;
use path::Path;
use sys::{BATCH_MAX, Pool};

/// Sockets of a process, at most.
pub const SOCKETS_MAX: usize = RAILS_MAX * ENDPOINTS_MAX * SOCKETS_EACH;

#[derive(Clone, Debug)]
pub struct Setup {
    pub filter: NetFilter,
    /// Ports of each address, 1 to [`ENDPOINTS_MAX`]. Several help where a network card spreads flows over its queues.
    pub endpoints: u8,
    /// Addresses that are used at once, 1 to [`RAILS_MAX`].
    pub rails_max: u8,
    /// Wanted for each socket and direction; the system may give less.
    pub buffer_bytes: u32,
}

impl Default for Setup {
    fn default() -> Self {
        Setup { filter: NetFilter::default(), endpoints: 1, rails_max: RAILS_MAX as u8, buffer_bytes: 4 << 20 }
    }
}

impl Setup {
    /// The sockets of an address.
    fn ports(&self, ip: IpAddr) -> Result<Vec<Port>, Error> {
        let open = |_| Ok(Port { sockets: Sockets::open(SocketAddr::new(ip, 0), self.buffer_bytes)?, outbox: Outbox::new() });
        (0..self.endpoints).map(open).collect()
    }
}

/// IP and UDP headers, bytes.
const fn below_bytes(ip: IpAddr) -> u32 {
    if ip.is_ipv4() { 28 } else { 48 }
}

/// Longest datagram worth sending: half a VFRAG with all headers. More would cut VFRAGs into one long and one tiny segment.
const DATAGRAM_BYTES_MAX: u32 = VFRAG_BYTES / 2 + (HEADER_BYTES + MESSAGE_BYTES_MAX + ENVELOPE_BYTES_MAX) as u32;

struct Port {
    sockets: Sockets,
    outbox: Outbox,
}

/// The sockets.
pub(crate) struct Ports {
    ports: Vec<Port>,
    endpoints: u8,
}

impl Ports {
    /// Adds a datagram to what waits in front of a socket. False when that one is full.
    ///
    /// # Safety
    /// `payload` must stay readable until the next [`Ports::flush`].
    pub unsafe fn send<'a>(&mut self, path: &Path, endpoint: u8, header: &[u8], payload: impl Iterator<Item = &'a [u8]> + Clone) -> bool {
        let remote = path.remote(endpoint % self.endpoints);
        let port = self.port(path, endpoint);
        port.outbox.push(&mut port.sockets, remote, header, payload)
    }

    /// The same for a datagram of `bytes` that `write` appends to what waits.
    pub fn send_copied(&mut self, path: &Path, endpoint: u8, bytes: usize, write: impl FnOnce(&mut Vec<u8>)) -> bool {
        let remote = path.remote(endpoint % self.endpoints);
        let port = self.port(path, endpoint);
        port.outbox.push_copied(&mut port.sockets, remote, bytes, write)
    }

    /// The same for `count` datagrams of `each_bytes`, made by `write` ([`Outbox::push_run`]). How many were taken.
    ///
    /// # Safety
    /// `write` must initialize all that it is given.
    pub unsafe fn send_run(&mut self, path: &Path, endpoint: u8, each_bytes: usize, count: usize, write: impl FnMut(&mut [MaybeUninit<u8>])) -> usize {
        let remote = path.remote(endpoint % self.endpoints);
        let port = self.port(path, endpoint);
        port.outbox.push_run(&mut port.sockets, remote, each_bytes, count, write)
    }

    fn port(&mut self, path: &Path, endpoint: u8) -> &mut Port {
        let at = self.place(path, endpoint);
        &mut self.ports[at]
    }

    fn place(&self, path: &Path, endpoint: u8) -> usize {
        path.local as usize * self.endpoints as usize + (endpoint % self.endpoints) as usize
    }

    /// Whether a datagram of `bytes` would join others that wait.
    pub fn continues(&self, path: &Path, endpoint: u8, bytes: usize) -> bool {
        let port = &self.ports[self.place(path, endpoint)];
        port.outbox.continues(path.remote(endpoint % self.endpoints), bytes)
    }

    /// Lets everything leave. True when no socket is full.
    pub fn flush(&mut self) -> bool {
        let mut free = true;
        for port in &mut self.ports {
            if !port.outbox.is_empty() {
                free &= port.outbox.flush(&mut port.sockets);
            }
        }
        free
    }

    fn copies(&self) -> Result<Arc<[OwnedFd]>, Error> {
        let all = self.ports.iter().flat_map(|port| port.sockets.all());
        let copies = all.map(|socket| socket.as_fd().try_clone_to_owned()).collect::<Result<_, _>>();
        copies.map_err(sys::failed("dup"))
    }

    /// Which address a socket belongs to.
    pub fn local(&self, port: usize) -> u8 {
        (port / self.endpoints as usize) as u8
    }
}

/// Wakes a process that sleeps in [`Udp::wait`], from any thread.
#[derive(Clone, Debug)]
pub struct Bell(Arc<OwnedFd>);

impl Bell {
    pub fn ring(&self) {
        sys::ring(self.0.as_fd());
    }
}

/// Sockets of their own, for another thread to sleep on while nobody drives the node.
#[derive(Debug)]
pub struct Watch {
    sockets: Watched,
    bell: Bell,
}

/// Who sleeps keeps those that it sleeps on; others may be added meanwhile.
type Watched = Arc<Mutex<Arc<[OwnedFd]>>>;

fn watched(sockets: &Watched) -> std::sync::MutexGuard<'_, Arc<[OwnedFd]>> {
    sockets.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Watch {
    /// Sleeps until something has arrived, the bell rings, or `timeout_ns` have passed. False for the last.
    pub fn wait(&self, timeout_ns: Option<u64>) -> bool {
        let sockets = watched(&self.sockets).clone();
        let fds = sockets.iter().map(|fd| (fd.as_fd(), false));
        let woken = sys::wait(fds.chain([(self.bell.0.as_fd(), false)]), timeout_ns);
        if woken {
            sys::silence(self.bell.0.as_fd());
        }
        woken
    }

    /// Sleeps until something has arrived, or `timeout_ns` have passed. False for the last. The bell does not end it.
    pub fn doze(&self, timeout_ns: u64) -> bool {
        let sockets = watched(&self.sockets).clone();
        sys::wait(sockets.iter().map(|fd| (fd.as_fd(), false)), Some(timeout_ns))
    }

    /// Ends the sleep of [`Watch::wait`].
    pub fn bell(&self) -> Bell {
        self.bell.clone()
    }
}

/// What arrived, by what became of it before anybody looked into it.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct ReceiveCounters {
    pub datagrams: u64,
    /// Calls that brought something, and calls that brought nothing.
    pub calls: u64,
    pub empty_calls: u64,
    /// Longer than any of ours.
    pub cut: u64,
}

pub(crate) struct Udp {
    setup: Setup,
    /// Our addresses, their networks' prefixes, and the longest datagram of each link, bytes.
    offers: Vec<(IpAddr, u8, u32)>,
    /// How many of them are rails of their own: the first ones.
    rails: usize,
    pub ports: Ports,
    pool: Pool,
    bell: Bell,
    watched: Watched,
    /// The socket that something came from last, and looks since.
    hot: usize,
    looks: usize,
    /// Datagrams joined in one buffer fill it, and are dealt with while they are in the cache; single ones come in many buffers.
    expect: usize,
    pub counters: ReceiveCounters,
}

/// A buffer with so much in it is received alone.
const LONG_BYTES: usize = 16 << 10;
/// Looks at the busiest socket for each look at the others.
const LOOKS_EACH: usize = 8;

impl Udp {
    pub fn open(setup: &Setup) -> Result<Udp, Error> {
        let setup = Setup { endpoints: setup.endpoints.clamp(1, ENDPOINTS_MAX as u8), rails_max: setup.rails_max.clamp(1, RAILS_MAX as u8), ..setup.clone() };
        let endpoints = setup.endpoints;
        let chosen = setup.filter.choose(sys::interfaces()?, setup.rails_max as usize);
        if chosen.is_empty() {
            return Err(Error::System { call: "the search for a network interface that may be used", errno: libc::ENETDOWN });
        }
        let mut ports = Vec::new();
        for interface in &chosen {
            ports.extend(setup.ports(interface.ip)?);
        }
        Ok(Udp {
            offers: chosen.iter().map(|one| (one.ip, one.prefix, one.datagram_bytes())).collect(),
            rails: setup.filter.rails(&chosen),
            ports: Ports { ports, endpoints },
            pool: Pool::new(),
            bell: Bell(Arc::new(sys::eventfd()?)),
            watched: Watched::new(Mutex::new(Arc::default())),
            setup,
            hot: 0,
            looks: 0,
            expect: 1,
            counters: ReceiveCounters::default(),
        })
    }

    /// Opens sockets for addresses that have come since, as far as there is room for them. Whether there are any.
    pub fn widen(&mut self) -> bool {
        let chosen = self.setup.filter.choose(sys::interfaces().unwrap_or_default(), self.setup.rails_max as usize);
        let before = self.offers.len();
        for one in &chosen {
            if self.offers.len() < self.setup.rails_max as usize
                && !self.offers.iter().any(|(ip, ..)| *ip == one.ip)
                && let Ok(ports) = self.setup.ports(one.ip)
            {
                // Rails of their own are the first of all.
                let own = self.rails == self.offers.len() && self.setup.filter.rails(&chosen) == chosen.len();
                self.rails += own as usize;
                self.offers.push((one.ip, one.prefix, one.datagram_bytes()));
                self.ports.ports.extend(ports);
            }
        }
        let any = self.offers.len() > before;
        if any && let Ok(sockets) = self.ports.copies() {
            *watched(&self.watched) = sockets;
        }
        any
    }

    /// What the reliability layer has to know. Longer datagrams than Ethernet's have to be found out for each peer.
    pub fn rails(&self) -> Vec<RailConfig> {
        let sure = self.offers.iter().map(|&(ip, _, bytes)| bytes.min(path::sure_bytes(ip)));
        let mtu_bytes = sure.min().unwrap_or(MTU_BYTES_MIN);
        vec![RailConfig { mtu_bytes, endpoints: self.ports.endpoints, queue_packets_max: 256 }; self.rails]
    }

    /// Length of the longest datagram that may ever leave, bytes.
    pub fn longest_bytes(&self) -> u32 {
        self.offers.iter().map(|&(_, _, bytes)| bytes).max().unwrap_or(MTU_BYTES_MIN)
    }

    pub fn card(&self, epoch: u32) -> Card {
        let each = self.ports.ports.chunks(self.ports.endpoints as usize);
        let port = |port: &Port| port.sockets.own().local_addr().map_or(0, |at| at.port());
        let offers = self.offers.iter().zip(each);
        let offers = offers.map(|(&(ip, prefix, mtu_bytes), ports)| Offer { ip, prefix, ports: ports.iter().map(port).collect(), mtu_bytes });
        Card { epoch, rails: self.rails, offers: offers.collect() }
    }

    pub fn bell(&self) -> Bell {
        self.bell.clone()
    }

    pub fn watch(&self) -> Result<Watch, Error> {
        *watched(&self.watched) = self.ports.copies()?;
        Ok(Watch { sockets: self.watched.clone(), bell: Bell(Arc::new(sys::eventfd()?)) })
    }

    /// Takes in at most one batch from each socket. `each` gets the sockets, which of them it was, the sender, datagrams that follow each other, and the
    /// length of each but the last; it says how many there were. How many came.
    pub fn receive(&mut self, mut each: impl FnMut(&mut Ports, usize, SocketAddr, &mut [u8], usize) -> usize) -> usize {
        self.looks += 1;
        let all = self.looks.is_multiple_of(LOOKS_EACH);
        let mut came = 0;
        for at in 0..self.ports.ports.len() * SOCKETS_EACH {
            if at != self.hot && !all {
                continue;
            }
            let (port, socket) = (at / SOCKETS_EACH, at % SOCKETS_EACH);
            let Some(socket) = self.ports.ports[port].sockets.heard(socket) else { continue };
            let buffers = self.pool.receive(socket, self.expect).unwrap_or(0);
            if buffers == 0 {
                self.counters.empty_calls += 1;
                continue;
            }
            self.counters.calls += 1;
            self.hot = at;
            let mut bytes_each = 0;
            for index in 0..buffers {
                let Some((arrival, bytes)) = self.pool.arrival(index) else { continue };
                bytes_each += arrival.bytes / buffers;
                if arrival.cut {
                    self.counters.cut += 1;
                    continue;
                }
                came += each(&mut self.ports, port, arrival.from, &mut bytes[..arrival.bytes], arrival.segment_bytes.max(1));
            }
            self.expect = if bytes_each >= LONG_BYTES { 1 } else { (2 * buffers).min(BATCH_MAX) };
        }
        if came == 0 {
            self.expect = 1;
        }
        self.counters.datagrams += came as u64;
        came
    }

    /// Sleeps until something arrives, a full socket has room, the bell rings, or the time has passed. False for the last.
    pub fn wait(&self, timeout_ns: Option<u64>) -> bool {
        let fds = self.ports.ports.iter().flat_map(|port| {
            let all = port.sockets.all().iter().enumerate();
            all.map(|(at, socket)| (socket.as_fd(), at == 0 && port.outbox.is_parked()))
        });
        let woken = sys::wait(fds.chain([(self.bell.0.as_fd(), false)]), timeout_ns);
        if woken {
            sys::silence(self.bell.0.as_fd());
        }
        woken
    }

    pub fn send_counters(&self) -> SendCounters {
        let mut sum = SendCounters::default();
        for port in &self.ports.ports {
            let one = port.outbox.counters;
            sum.datagrams += one.datagrams;
            sum.calls += one.calls;
            sum.dropped += one.dropped;
            sum.full += one.full;
        }
        sum
    }
}

impl std::fmt::Debug for Udp {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let fds: Vec<i32> = self.ports.ports.iter().map(|port| port.sockets.own().as_raw_fd()).collect();
        f.debug_struct("Udp").field("offers", &self.offers).field("sockets", &fds).finish()
    }
}
