//! Reliable messages between hosts, over one of the devices that this build has.

use proto::reliability::{COPIED_BYTES_MAX, Config, Endpoint, PeerId, Refused};

use crate::Error;
use crate::reliable::{DatagramDevice, JobKey, NetworkCounters, NoCard, Program, Protection, Reliable, Watch};
use crate::udp::Udp;
use crate::verbs::{Connections, Hybrid, Ports};

/// A process on the network, over the device that it was opened with. All is as [`Reliable`] and [`Endpoint`] say.
#[derive(Debug)]
#[expect(clippy::large_enum_variant, reason = "sockets are the usual way: no step through a pointer for each call")]
pub enum Network {
    Udp(Reliable<Udp>),
    Rdma(Box<Rdma>),
}

/// Over RDMA devices.
#[derive(Debug)]
#[expect(clippy::large_enum_variant, reason = "a process has one of these, in a box")]
pub enum Rdma {
    Datagrams(Reliable<Ports>),
    Connections(Connections),
    Hybrid(Hybrid),
}

impl From<Reliable<Udp>> for Network {
    fn from(node: Reliable<Udp>) -> Network {
        Network::Udp(node)
    }
}

impl From<Reliable<Ports>> for Network {
    fn from(node: Reliable<Ports>) -> Network {
        Network::Rdma(Box::new(Rdma::Datagrams(node)))
    }
}

impl From<Connections> for Network {
    fn from(node: Connections) -> Network {
        Network::Rdma(Box::new(Rdma::Connections(node)))
    }
}

impl From<Hybrid> for Network {
    fn from(node: Hybrid) -> Network {
        Network::Rdma(Box::new(Rdma::Hybrid(node)))
    }
}

/// What requests go to: the reliability layer of a datagram device, connections, which need none, or both.
enum Requests<'a> {
    Datagrams(&'a mut Endpoint),
    Connections(&'a mut Connections),
    Hybrid(&'a mut Hybrid),
}

/// Of the same, what is asked.
enum Requested<'a> {
    Datagrams(&'a Endpoint),
    Connections(&'a Connections),
    Hybrid(&'a Hybrid),
}

/// Forwards each call to the device's own node.
macro_rules! forward {
    ($(fn $name:ident(&$($change:ident)? $(, $argument:ident: $kind:ty)*) $(-> $result:ty)?;)*) => {
        $(#[inline]
        pub fn $name(&$($change)? self $(, $argument: $kind)*) $(-> $result)? {
            match self {
                Network::Udp(node) => node.$name($($argument),*),
                Network::Rdma(node) => match &$($change)? **node {
                    Rdma::Datagrams(node) => node.$name($($argument),*),
                    Rdma::Connections(node) => node.$name($($argument),*),
                    Rdma::Hybrid(node) => node.$name($($argument),*),
                },
            }
        })*
    };
}

impl Network {
    /// [`Reliable::over`] `device`.
    ///
    /// # Errors
    /// The system has no descriptor left.
    pub fn over<D: DatagramDevice>(
        device: D,
        me: PeerId,
        epoch: u32,
        key: &JobKey,
        protection: Protection,
        adjust: impl FnOnce(&mut Config),
    ) -> Result<Network, Error>
    where
        Network: From<Reliable<D>>,
    {
        Ok(Reliable::over(device, me, epoch, key, protection, adjust)?.into())
    }

    #[inline]
    fn requests(&mut self) -> Requests<'_> {
        match self {
            Network::Udp(node) => Requests::Datagrams(node.endpoint_mut()),
            Network::Rdma(node) => match &mut **node {
                Rdma::Datagrams(node) => Requests::Datagrams(node.endpoint_mut()),
                Rdma::Connections(node) => Requests::Connections(node),
                Rdma::Hybrid(node) => Requests::Hybrid(node),
            },
        }
    }

    #[inline]
    fn requested(&self) -> Requested<'_> {
        match self {
            Network::Udp(node) => Requested::Datagrams(node.endpoint()),
            Network::Rdma(node) => match &**node {
                Rdma::Datagrams(node) => Requested::Datagrams(node.endpoint()),
                Rdma::Connections(node) => Requested::Connections(node),
                Rdma::Hybrid(node) => Requested::Hybrid(node),
            },
        }
    }

    forward! {
        fn set_key(&mut, key: &JobKey, protection: Protection);
        fn card(&) -> String;
        fn connect(&mut, peer: PeerId, card: &str) -> Result<(), NoCard>;
        fn set_foreign_key(&mut, key: &JobKey, protection: Protection);
        fn add_foreign(&mut, peer: PeerId, number: u32, card: &str, key: &JobKey, protection: Protection) -> bool;
        fn now_ns(&) -> u64;
        fn counters(&) -> NetworkCounters;
        fn take_in(&mut, program: &mut impl Program) -> usize;
        fn is_due(&) -> bool;
        fn is_pressing(&) -> bool;
        fn flush(&mut, now_ns: u64, program: &mut impl Program);
        fn flush_one(&mut, now_ns: u64, program: &mut impl Program);
        fn abandon(&mut, now_ns: u64, peers: &[PeerId], program: &mut impl Program);
        fn deadline_ns(&) -> Option<u64>;
        fn arm(&mut) -> bool;
        fn watch(&) -> Result<Watch, Error>;
    }

    #[inline]
    pub fn config(&self) -> &Config {
        match self.requested() {
            Requested::Datagrams(endpoint) => endpoint.config(),
            Requested::Connections(node) => node.config(),
            Requested::Hybrid(node) => node.config(),
        }
    }

    /// How many accounts a peer has of what it leaves unmatched here.
    pub fn accounts(&self) -> u64 {
        match self.requested() {
            Requested::Datagrams(_) | Requested::Connections(_) => 1,
            Requested::Hybrid(_) => Hybrid::ACCOUNTS,
        }
    }

    /// Longest message that is copied for a program that does not wait for its end, bytes.
    #[inline]
    pub fn copied_bytes_max(&self) -> usize {
        match self.requested() {
            Requested::Datagrams(_) => COPIED_BYTES_MAX as usize,
            Requested::Connections(node) => node.copied_bytes_max() as usize,
            Requested::Hybrid(node) => node.copied_bytes_max() as usize,
        }
    }

    /// As [`Connections::prefer`]; datagrams are copied in any case.
    pub fn prefer(&mut self, start: *const u8, bytes: usize) {
        match self.requests() {
            Requests::Datagrams(_) => {}
            Requests::Connections(node) => node.prefer(start, bytes),
            Requests::Hybrid(node) => node.prefer(start, bytes),
        }
    }

    pub fn known(&self) -> usize {
        match self.requested() {
            Requested::Datagrams(endpoint) => endpoint.known(),
            Requested::Connections(node) => node.known(),
            Requested::Hybrid(node) => node.known(),
        }
    }

    pub fn knows(&self, peer: PeerId) -> bool {
        match self.requested() {
            Requested::Datagrams(endpoint) => endpoint.knows(peer),
            Requested::Connections(node) => node.knows(peer),
            Requested::Hybrid(node) => node.knows(peer),
        }
    }

    /// As [`proto::reliability::Endpoint::lacks_room`].
    #[inline]
    pub fn lacks_room(&self, peer: PeerId) -> bool {
        match self.requested() {
            Requested::Datagrams(endpoint) => endpoint.lacks_room(peer),
            // Their completions are looked at with each request.
            Requested::Connections(_) | Requested::Hybrid(_) => false,
        }
    }

    pub fn leaves_whole(&self, peer: PeerId, bytes: u64) -> bool {
        match self.requested() {
            Requested::Datagrams(endpoint) => endpoint.leaves_whole(peer, bytes),
            Requested::Connections(node) => node.leaves_whole(peer, bytes),
            Requested::Hybrid(node) => node.leaves_whole(peer, bytes),
        }
    }

    pub fn is_quiet(&self) -> bool {
        match self.requested() {
            Requested::Datagrams(endpoint) => endpoint.is_quiet(),
            Requested::Connections(node) => node.is_quiet(),
            Requested::Hybrid(node) => node.is_quiet(),
        }
    }

    /// Messages over connections gain nothing by waiting for others: nothing is said to be unanswered there.
    #[inline]
    pub fn is_unanswered(&self, peer: PeerId) -> bool {
        match self.requested() {
            Requested::Datagrams(endpoint) => endpoint.is_unanswered(peer),
            Requested::Connections(_) => false,
            Requested::Hybrid(node) => node.is_unanswered(peer),
        }
    }

    #[inline]
    pub fn send(&mut self, now_ns: u64, peer: PeerId, envelope: &[u8], send: u64, bytes: u64, pulled: bool) -> Result<(), Refused> {
        match self.requests() {
            Requests::Datagrams(endpoint) => endpoint.send(now_ns, peer, envelope, send, bytes, pulled),
            Requests::Connections(node) => node.send(peer, envelope, send, bytes, pulled),
            Requests::Hybrid(node) => node.send(now_ns, peer, envelope, send, bytes, pulled),
        }
    }

    /// Whether something may go as [`Network::send_now`] sends it.
    #[inline]
    pub fn sends_now(&self) -> bool {
        !matches!(self.requested(), Requested::Datagrams(_))
    }

    /// As [`Connections::send_now`]; nothing goes so in datagrams.
    #[inline]
    pub fn send_now(&mut self, peer: PeerId, envelope: &[u8], bytes: usize, write: impl FnOnce(&mut Vec<u8>)) -> bool {
        match self.requests() {
            Requests::Datagrams(_) => false,
            Requests::Connections(node) => node.send_now(peer, envelope, bytes, write),
            Requests::Hybrid(node) => node.send_now(peer, envelope, bytes, write),
        }
    }

    pub fn receive(&mut self, now_ns: u64, peer: PeerId, transfer: u32, bytes: u64, receive: u64) -> Result<(), Refused> {
        match self.requests() {
            Requests::Datagrams(endpoint) => endpoint.receive(now_ns, peer, transfer, bytes, receive),
            Requests::Connections(node) => node.receive(peer, transfer, bytes, receive),
            Requests::Hybrid(node) => node.receive(now_ns, peer, transfer, bytes, receive),
        }
    }

    /// Where there are connections no windows are offered: [`Refused::Argument`] there.
    pub fn adopt(&mut self, now_ns: u64, peer: PeerId, window: u32, transfer: u32, bytes: u64) -> Result<(), Refused> {
        match self.requests() {
            Requests::Datagrams(endpoint) => endpoint.adopt(now_ns, peer, window, transfer, bytes),
            Requests::Connections(_) => Err(Refused::Argument),
            Requests::Hybrid(_) => Err(Refused::Argument),
        }
    }

    /// As [`Network::adopt`].
    pub fn offer(&mut self, now_ns: u64, peer: PeerId, envelope: &[u8], capacity_bytes: u64, receive: u64) -> Result<u32, Refused> {
        match self.requests() {
            Requests::Datagrams(endpoint) => endpoint.offer(now_ns, peer, envelope, capacity_bytes, receive),
            Requests::Connections(_) => Err(Refused::Argument),
            Requests::Hybrid(_) => Err(Refused::Argument),
        }
    }

    pub fn withdraw(&mut self, peer: PeerId, window: u32) {
        if let Requests::Datagrams(endpoint) = self.requests() {
            endpoint.withdraw(peer, window);
        }
    }

    pub fn fill(&mut self, peer: PeerId, send: u64, window: u32, granted_bytes: u64, capacity_bytes: u64) {
        if let Requests::Datagrams(endpoint) = self.requests() {
            endpoint.fill(peer, send, window, granted_bytes, capacity_bytes);
        }
    }

    /// As [`Network::adopt`].
    #[allow(clippy::too_many_arguments)]
    pub fn push(&mut self, now_ns: u64, peer: PeerId, envelope: &[u8], window: u32, granted_bytes: u64, send: u64, bytes: u64) -> Result<(), Refused> {
        match self.requests() {
            Requests::Datagrams(endpoint) => endpoint.push(now_ns, peer, envelope, window, granted_bytes, send, bytes),
            Requests::Connections(_) => Err(Refused::Argument),
            Requests::Hybrid(node) => node.push(now_ns, peer, envelope, window, granted_bytes, send, bytes),
        }
    }

    pub fn release(&mut self, now_ns: u64, peer: PeerId, payload_bytes: u64) {
        match self.requests() {
            Requests::Datagrams(endpoint) => endpoint.release(now_ns, peer, payload_bytes),
            Requests::Connections(node) => node.release(peer, payload_bytes),
            Requests::Hybrid(node) => node.release(now_ns, peer, payload_bytes),
        }
    }

    pub fn widen(&mut self, now_ns: u64, peer: PeerId) {
        match self.requests() {
            Requests::Datagrams(endpoint) => endpoint.widen(now_ns, peer),
            Requests::Connections(node) => node.widen(peer),
            Requests::Hybrid(node) => node.widen(now_ns, peer),
        }
    }

    /// Whether it matters if `peer` lives although nothing is under way with it.
    pub fn watch_peer(&mut self, now_ns: u64, peer: PeerId, watched: bool) -> Result<(), Refused> {
        match self.requests() {
            Requests::Datagrams(endpoint) => endpoint.watch(now_ns, peer, watched),
            Requests::Connections(node) => node.watch_peer(peer, watched),
            Requests::Hybrid(node) => node.watch_peer(now_ns, peer, watched),
        }
    }
}
