//! Datagrams over UDP, IPv4 and IPv6: the sockets, and what waits in front of them. A member of [`crate::reliable`]'s devices.
//!
//! - Every usable address of the host has up to [`ENDPOINTS_MAX`] ports; an address is a rail of `proto::reliability`.
//! - Datagrams are gathered from header and user memory and go to the kernel in groups, which it cuts (GSO); what arrives comes joined (GRO).

mod address;
mod groups;
mod lines;
mod net;
mod outbox;
mod splice;
mod sys;
#[cfg(test)]
mod tests;

pub use address::{ENDPOINTS_MAX, Offer, Path};
pub use net::{NetError, NetFilter};

use std::mem::MaybeUninit;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};

use proto::reliability::{MTU_BYTES_MIN, RAILS_MAX, RailConfig, Sent, Taken};

use crate::Error;
use crate::reliable::{Arrival, Arrivals, Batch, Candidate, DatagramDevice, ReceiveCounters, SOURCES_MAX, SendCounters, SendQueue, Stamp, Trigger};
use crate::stores::Stores;
use groups::below_bytes;
use lines::{SOCKETS_EACH, Sockets};
use outbox::{COPIED_BYTES_MAX, Outbox};
use sys::{BATCH_MAX, Links, Pool};

/// Sockets of a process fit what may be slept on.
const _: () = assert!(RAILS_MAX * ENDPOINTS_MAX * SOCKETS_EACH <= SOURCES_MAX);

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
    /// The sockets of an address, whose link takes datagrams of up to `whole_bytes`.
    fn ports(&self, ip: IpAddr, whole_bytes: u32) -> Result<Vec<Port>, Error> {
        let open = |_| Ok(Port { sockets: Sockets::open(SocketAddr::new(ip, 0), self.buffer_bytes)?, outbox: Outbox::new(whole_bytes) });
        (0..self.endpoints).map(open).collect()
    }
}

struct Port {
    sockets: Sockets,
    outbox: Outbox,
}

/// The sockets of all addresses, as a device.
pub struct Udp {
    setup: Setup,
    /// What says that addresses may have come.
    links: Links,
    /// Our addresses, their networks' prefixes, and the longest datagram of each link, bytes.
    addresses: Vec<(IpAddr, u8, u32)>,
    /// How many of them are rails of their own: the first ones.
    rails: usize,
    ports: Vec<Port>,
    /// `None` while a look's buffers are lent.
    pool: Option<Box<Pool>>,
    /// The socket that something came from last, and looks since.
    hot: usize,
    looks: usize,
    /// Datagrams joined in one buffer fill it, and are dealt with while they are in the cache; single ones come in many buffers.
    expect: usize,
    /// Datagrams of this look.
    came: usize,
    counters: ReceiveCounters,
}

/// A buffer with so much in it is received alone.
const LONG_BYTES: usize = 16 << 10;
/// Looks at the busiest socket for each look at the others.
const LOOKS_EACH: usize = 8;

/// What one call has received.
#[derive(Debug)]
pub struct Received {
    pool: Box<Pool>,
    buffers: usize,
    local: u8,
    cut: u64,
    bytes_each: usize,
}

impl Arrivals for Received {
    type Source = SocketAddr;

    fn count(&self) -> usize {
        self.buffers
    }

    fn get(&mut self, index: usize) -> Option<Arrival<'_, SocketAddr>> {
        let (arrival, bytes) = self.pool.arrival(index)?;
        self.bytes_each += arrival.bytes / self.buffers;
        if arrival.cut {
            self.cut += 1;
            return None;
        }
        Some(Arrival { from: arrival.from, local: self.local, bytes: &mut bytes[..arrival.bytes], stride_bytes: arrival.segment_bytes.max(1), lead_bytes: 0 })
    }
}

/// Addresses of this host that others may know it by, each with its interface's name, IPv4 first.
///
/// # Errors
/// The system does not tell.
pub(crate) fn named_addresses() -> Result<Vec<(String, IpAddr)>, Error> {
    let mut all = sys::interfaces()?;
    all.retain(|one| !one.loopback && !matches!(one.ip, IpAddr::V6(ip) if ip.is_unicast_link_local()));
    all.sort_by_key(|one| one.ip.is_ipv6());
    Ok(all.into_iter().map(|one| (one.name, one.ip)).collect())
}

/// Addresses of this host that fit `filter`, those that would be used.
///
/// # Errors
/// The system does not tell.
pub fn addresses(filter: &NetFilter) -> Result<Vec<IpAddr>, Error> {
    Ok(filter.choose(sys::interfaces()?, RAILS_MAX).iter().map(|one| one.ip).collect())
}

impl Udp {
    pub fn open(setup: &Setup) -> Result<Udp, Error> {
        let setup = Setup { endpoints: setup.endpoints.clamp(1, ENDPOINTS_MAX as u8), rails_max: setup.rails_max.clamp(1, RAILS_MAX as u8), ..setup.clone() };
        let links = Links::open();
        let chosen = setup.filter.choose(sys::interfaces()?, setup.rails_max as usize);
        if chosen.is_empty() {
            return Err(Error::System { call: "the search for a network interface that may be used", errno: libc::ENETDOWN });
        }
        let mut ports = Vec::new();
        for interface in &chosen {
            ports.extend(setup.ports(interface.ip, interface.datagram_bytes())?);
        }
        Ok(Udp {
            addresses: chosen.iter().map(|one| (one.ip, one.prefix, one.datagram_bytes())).collect(),
            rails: setup.filter.rails(&chosen),
            ports,
            pool: Some(Pool::new()),
            setup,
            links,
            hot: 0,
            looks: 0,
            expect: 1,
            came: 0,
            counters: ReceiveCounters::default(),
        })
    }

    fn place(&self, path: &Path, queue: SendQueue) -> usize {
        let endpoints = self.setup.endpoints;
        path.local as usize * endpoints as usize + (queue.endpoint % endpoints) as usize
    }

    fn port(&mut self, path: &Path, queue: SendQueue) -> (SocketAddr, &mut Port) {
        let at = self.place(path, queue);
        (path.remote(queue.endpoint % self.setup.endpoints), &mut self.ports[at])
    }
}

/// Until the next flush a payload is in use in any case.
fn sent(taken: bool) -> Sent {
    if taken { Sent::Done } else { Sent::Busy }
}

impl DatagramDevice for Udp {
    type Offer = Offer;
    type Path = Path;
    type Source = SocketAddr;
    type Arrivals = Received;

    // What a full socket does not take at once is copied.
    const QUEUES: bool = false;
    const COPIED_BYTES_MAX: usize = COPIED_BYTES_MAX;
    const TRIGGER: Trigger = Trigger::Level;

    fn offers(&self) -> Vec<Offer> {
        let each = self.ports.chunks(self.setup.endpoints as usize);
        let port = |port: &Port| port.sockets.own().local_addr().map_or(0, |at| at.port());
        let offers = self.addresses.iter().zip(each);
        offers.map(|(&(ip, prefix, mtu_bytes), ports)| Offer { ip, prefix, ports: ports.iter().map(port).collect(), mtu_bytes }).collect()
    }

    fn rails(&self) -> Vec<RailConfig> {
        let sure = self.addresses.iter().map(|&(ip, _, bytes)| bytes.min(address::sure_bytes(ip)));
        let mtu_bytes = sure.min().unwrap_or(MTU_BYTES_MIN);
        vec![RailConfig { mtu_bytes, endpoints: self.setup.endpoints, queue_packets_max: 256 }; self.rails]
    }

    fn longest_bytes(&self) -> u32 {
        self.addresses.iter().map(|&(_, _, bytes)| bytes).max().unwrap_or(MTU_BYTES_MIN)
    }

    /// Opens sockets for addresses that have come since, as far as there is room for them.
    fn renew(&mut self) -> bool {
        if !self.links.changed() {
            return false;
        }
        let chosen = self.setup.filter.choose(sys::interfaces().unwrap_or_default(), self.setup.rails_max as usize);
        let before = self.addresses.len();
        for one in &chosen {
            if self.addresses.len() < self.setup.rails_max as usize
                && !self.addresses.iter().any(|(ip, ..)| *ip == one.ip)
                && let Ok(ports) = self.setup.ports(one.ip, one.datagram_bytes())
            {
                // Rails of their own are the first of all.
                let own = self.rails == self.addresses.len() && self.setup.filter.rails(&chosen) == chosen.len();
                self.rails += own as usize;
                self.addresses.push((one.ip, one.prefix, one.datagram_bytes()));
                self.ports.extend(ports);
            }
        }
        self.addresses.len() > before
    }

    fn candidate(local: u8, ours: &Offer, theirs: &Offer) -> Option<Candidate<Path>> {
        address::candidate(local, ours, theirs)
    }

    fn back(local: u8, from: SocketAddr) -> Path {
        Path::back(local, from)
    }

    #[inline]
    fn cuts_runs(_: &Path) -> bool {
        true
    }

    fn pieces_of(_: &Path, each_bytes: usize, count: usize) -> usize {
        outbox::groups_of(each_bytes, count)
    }

    unsafe fn post<'a>(&mut self, to: &Path, queue: SendQueue, header: &[u8], payload: impl Iterator<Item = &'a [u8]> + Clone) -> Sent {
        let (remote, port) = self.port(to, queue);
        sent(port.outbox.push(&mut port.sockets, remote, header, payload))
    }

    fn post_copied(&mut self, to: &Path, queue: SendQueue, bytes: usize, write: impl FnOnce(&mut Vec<u8>)) -> Sent {
        let (remote, port) = self.port(to, queue);
        sent(port.outbox.push_copied(&mut port.sockets, remote, bytes, write))
    }

    unsafe fn post_run(&mut self, to: &Path, queue: SendQueue, batch: Batch, write: impl FnMut(&mut [MaybeUninit<u8>], Stores)) -> Taken {
        let (remote, port) = self.port(to, queue);
        let taken = port.outbox.push_run(&mut port.sockets, remote, batch, write);
        Taken { datagrams: taken as u32, queued: false }
    }

    fn lends(&self) -> bool {
        self.ports.iter().any(|port| port.outbox.slots.lends())
    }

    fn reclaim(&mut self, mut passed: impl FnMut(Stamp) -> bool) {
        self.ports.iter_mut().for_each(|port| port.outbox.slots.reclaim(&mut passed));
    }

    fn continues(&self, to: &Path, queue: SendQueue, bytes: usize) -> bool {
        let port = &self.ports[self.place(to, queue)];
        port.outbox.continues(to.remote(queue.endpoint % self.setup.endpoints), bytes)
    }

    fn flush(&mut self) -> bool {
        let mut free = true;
        for port in &mut self.ports {
            if !port.outbox.is_empty() {
                free &= port.outbox.flush(&mut port.sockets);
            }
        }
        free
    }

    fn completions(&mut self, _: impl FnMut(SendQueue, u32)) {}

    fn reset(&mut self, _: u8) {}

    fn receive(&mut self, turn: &mut usize) -> Option<Received> {
        if *turn == 0 {
            self.looks += 1;
            self.came = 0;
        }
        let all = self.looks.is_multiple_of(LOOKS_EACH);
        while *turn < self.ports.len() * SOCKETS_EACH {
            let at = *turn;
            *turn += 1;
            if at != self.hot && !all {
                continue;
            }
            let (port, socket) = (at / SOCKETS_EACH, at % SOCKETS_EACH);
            let Some(socket) = self.ports[port].sockets.heard(socket) else { continue };
            let Some(pool) = &mut self.pool else { break };
            let buffers = pool.receive(socket, self.expect).unwrap_or(0);
            if buffers == 0 {
                self.counters.empty_calls += 1;
                continue;
            }
            self.counters.calls += 1;
            self.hot = at;
            let local = (port / self.setup.endpoints as usize) as u8;
            return self.pool.take().map(|pool| Received { pool, buffers, local, cut: 0, bytes_each: 0 });
        }
        if self.came == 0 {
            self.expect = 1;
        }
        None
    }

    fn recycle(&mut self, received: Received, datagrams: usize) {
        let Received { pool, buffers, cut, bytes_each, .. } = received;
        self.expect = if bytes_each >= LONG_BYTES { 1 } else { (2 * buffers).min(BATCH_MAX) };
        self.pool = Some(pool);
        self.came += datagrams;
        self.counters.cut += cut;
        self.counters.datagrams += datagrams as u64;
    }

    fn sources<'a>(&'a self, mut each: impl FnMut(BorrowedFd<'a>, bool)) {
        for port in &self.ports {
            for (at, socket) in port.sockets.all().iter().enumerate() {
                each(socket.as_fd(), at == 0 && port.outbox.is_parked());
            }
        }
    }

    fn arm(&mut self) -> bool {
        true
    }

    fn send_counters(&self) -> SendCounters {
        self.ports.iter().fold(SendCounters::default(), |sum, port| sum + port.outbox.counters)
    }

    fn receive_counters(&self) -> ReceiveCounters {
        self.counters
    }
}

impl std::fmt::Debug for Udp {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let fds: Vec<i32> = self.ports.iter().map(|port| port.sockets.own().as_raw_fd()).collect();
        f.debug_struct("Udp").field("addresses", &self.addresses).field("sockets", &fds).finish()
    }
}
