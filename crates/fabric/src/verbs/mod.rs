//! The verbs API: InfiniBand, RoCE and iWARP. Datagrams, as a member of [`crate::reliable`]'s devices, and [`connections`].
//!
//! Of the datagrams:
//!
//! - A port is a rail of `proto::reliability`. It has one queue pair for unreliable datagrams (UD), which receives from
//!   everyone and sends to everyone: memory and queue pairs do not grow with the number of peers.
//! - What leaves is gathered into a slot of memory that the device may read, and goes to the device in groups; short
//!   datagrams are given to it by value. A send is over for its owner then: the program's memory is not registered.
//! - What comes lies in a fixed pool of buffers, each given back to the device as soon as it has been looked at.
//! - `libibverbs.so.1` is opened when the program runs; without it there are no devices.

mod address;
mod connections;
mod hybrid;
mod ports;
mod sys;
#[cfg(test)]
mod tests;

pub use address::{Offer, Path, Wire};
pub use connections::{Connections, InPlaceUse, Keeps, Rendezvous};
pub use hybrid::{Hybrid, Terms};
pub use ports::Filter;
pub use sys::Destination;

use std::mem::MaybeUninit;
use std::net::Ipv6Addr;
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use proto::reliability::{MTU_BYTES_MIN, RAILS_MAX, RailConfig, Sent, Taken};
use rustc_hash::FxHashMap;

use crate::Error;
use crate::reliable::{Arrival, Arrivals, Batch, Beside, Candidate, DatagramDevice, ReceiveCounters, SOURCES_MAX, SendCounters, SendQueue, Trigger};
use crate::stores::Stores;
use crate::udp::{Setup, Udp};
use ports::Facts;
use sys::{Channel, Device, Domain, Event, Lent, Limits, QueuePair};

/// Descriptors of all devices fit what may be slept on.
const _: () = assert!(2 * RAILS_MAX <= SOURCES_MAX);

/// All queue pairs of the library take datagrams with this Q_Key, which is no secret: the reliability layer's
/// authenticators keep foreign ones out.
const QKEY: u32 = 0x5748_4d42;
/// Datagrams of a port that are on their way out, and buffers for those that come: 1 and 4 MiB where datagrams have
/// 4096 bytes.
const SENDS: u32 = 256;
const SENDS_MIN: u32 = 64;
const RECEIVES: u32 = 1024;
/// Buffers for those that come where connections are made by datagrams, and all else goes over these.
const GREETINGS: u32 = 128;
/// What a device puts before each datagram that comes, bytes.
const LEAD_BYTES: usize = 40;
/// Most that a device is asked to take by value, bytes.
const INLINE_BYTES: u32 = 512;
/// Datagrams that wait before a device gets them in any case.
const POST_EACH: u32 = 64;
/// Between attempts to make a queue pair anew that has failed, and to find the way to a peer's port.
const RETRY_EACH: Duration = Duration::from_secs(1);
/// Ports of peers that no way is known to, of which that is remembered.
const UNREACHABLE_MAX: usize = 64;

/// A port with its queue pair.
#[derive(Debug)]
struct Rail {
    pair: QueuePair,
    device: Arc<Device>,
    port: u8,
    facts: Facts,
    down: bool,
    /// The device has failed for good.
    dead: bool,
    restarted: Option<Instant>,
    /// The number that the last datagram's destination has in the pair.
    last: Option<(Destination, u32)>,
    unreachable: FxHashMap<Destination, Instant>,
}

impl Rail {
    /// What is posted leaves.
    fn works(&self) -> bool {
        !(self.down || self.dead || self.pair.broken)
    }

    fn handle(&mut self, to: &Destination) -> Option<u32> {
        if let Some((last, number)) = self.last
            && last == *to
        {
            return Some(number);
        }
        if self.unreachable.get(to).is_some_and(|since| since.elapsed() < RETRY_EACH) {
            return None;
        }
        // A subnet's manager has told of all ports; and nobody is asked for this host's own address.
        let at_once = self.facts.wire == Wire::InfiniBand || to.gid == self.facts.gid;
        match self.pair.handle(to, at_once) {
            Ok(None) => None,
            Ok(Some(number)) => {
                self.last = Some((*to, number));
                Some(number)
            }
            Err(_) => {
                if self.unreachable.len() >= UNREACHABLE_MAX {
                    self.unreachable.clear();
                }
                self.unreachable.insert(*to, Instant::now());
                None
            }
        }
    }

    /// Makes a pair that has failed anew, now and then.
    fn mend(&mut self) {
        if self.pair.broken && !self.dead && self.restarted.is_none_or(|at| at.elapsed() >= RETRY_EACH) {
            self.restarted = Some(Instant::now());
            self.dead = self.pair.restart().is_err();
        }
    }

    fn happened(&mut self, event: Event) {
        match event {
            Event::Fatal => self.dead = true,
            Event::PortDown(port) if port == self.port => self.down = true,
            Event::PortUp(port) if port == self.port => self.down = false,
            _ => {}
        }
    }
}

/// The queue pairs of all ports, as a device.
#[derive(Debug)]
pub struct Verbs {
    rails: Vec<Rail>,
    devices: Vec<(Arc<Device>, Arc<Channel>)>,
    /// Short datagrams are made here.
    scratch: Vec<u8>,
    sent: SendCounters,
    received: ReceiveCounters,
}

/// Ports, and sockets beside them where there are to be some.
pub type Ports = Beside<Verbs, Udp>;

impl Ports {
    /// Opens the ports that `filter` allows, those of software devices only if `software`, and beside them what `sockets` says; at most [`RAILS_MAX`] addresses of
    /// both. Where no network interface may be used, there are no sockets.
    ///
    /// # Errors
    /// No port can be used: why, of each.
    pub fn open(filter: &Filter, software: bool, sockets: Option<&Setup>) -> Result<Ports, Unusable> {
        let Some(sockets) = sockets else { return Ok(Beside::new(Verbs::open(filter, software, RAILS_MAX)?, None)) };
        let ports = Verbs::open(filter, software, RAILS_MAX - 1)?;
        let rails_max = sockets.rails_max.min((RAILS_MAX - ports.rails.len()) as u8);
        let sockets = Udp::open(&Setup { rails_max, ..sockets.clone() });
        Ok(Beside::new(ports, sockets.ok()))
    }
}

/// What one look at a port has brought.
#[derive(Debug)]
pub struct Received {
    lent: Lent,
    rail: u8,
    wire: Wire,
    own: Ipv6Addr,
}

impl Arrivals for Received {
    type Source = (Destination, u32);

    fn count(&self) -> usize {
        self.lent.count()
    }

    fn get(&mut self, index: usize) -> Option<Arrival<'_, Self::Source>> {
        let (came, bytes) = self.lent.get(index);
        let from = (address::source(self.wire, self.own, &came, bytes)?, came.from);
        let stride_bytes = bytes.len();
        (stride_bytes > LEAD_BYTES).then_some(Arrival { from, local: self.rail, bytes, stride_bytes, lead_bytes: LEAD_BYTES })
    }
}

/// A port, by device and number: what it is, or why it cannot be used.
#[derive(Debug)]
pub struct Said {
    pub name: String,
    pub facts: Result<String, String>,
    /// It is used without being asked for: hardware that has datagrams.
    pub by_itself: bool,
}

/// What `whimbrel info --fabrics` says of each port.
///
/// # Errors
/// Words: the library is not there, or there is no device.
pub fn report(filter: &Filter) -> Result<Vec<Said>, String> {
    let line = |found: ports::Found| {
        let by_itself = found.facts.as_ref().is_ok_and(|(device, facts)| !device.is_software && facts.wire != Wire::Iwarp);
        let facts = |(device, facts): (Arc<Device>, Facts)| format!("{}{}", facts.with_use(), if device.is_software { ", in software" } else { "" });
        Said { name: found.name(), by_itself, facts: found.facts.map(facts) }
    };
    Ok(ports::all(filter)?.into_iter().map(line).collect())
}

/// The first port that `filter` allows, and what registering the buffer of a short message costs there, by the message's length.
///
/// # Errors
/// No port can be used, or nothing stays registered there.
#[allow(clippy::type_complexity)]
pub fn registration_costs(filter: &Filter) -> Result<(String, Vec<(usize, memory::usage::MessageCosts)>), Unusable> {
    let (device, _, port, _) = Verbs::for_greetings(filter)?.first_port();
    let name = format!("{} port {port}", device.name);
    match connections::costs_of(&sys::Registrar::of(&device)?) {
        Ok(costs) => Ok((name, costs)),
        Err(why) => Err(Unusable::Words(format!("{name} {why}"))),
    }
}

/// Why a port is left out that could be used.
const SOFTWARE: &str = "a software device, which is slower than sockets";

/// Why there is no device: the system's refusal, or words.
#[derive(Debug)]
pub enum Unusable {
    Words(String),
    Refused(Error),
}

impl From<Error> for Unusable {
    fn from(error: Error) -> Unusable {
        Unusable::Refused(error)
    }
}

impl std::fmt::Display for Unusable {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Unusable::Words(words) => f.write_str(words),
            Unusable::Refused(error) => error.fmt(f),
        }
    }
}

impl Verbs {
    /// Opens the ports that `filter` allows, those of software devices only if `software`, at most `rails_max`.
    ///
    /// # Errors
    /// None can be used: why, of each.
    pub fn open(filter: &Filter, software: bool, rails_max: usize) -> Result<Verbs, Unusable> {
        Verbs::with(filter, software, rails_max, SENDS, RECEIVES)
    }

    /// Opens the first port that `filter` allows, for few datagrams.
    fn for_greetings(filter: &Filter) -> Result<Verbs, Unusable> {
        Verbs::with(filter, true, 1, SENDS_MIN, GREETINGS)
    }

    fn with(filter: &Filter, software: bool, rails_max: usize, sends: u32, receives: u32) -> Result<Verbs, Unusable> {
        let found = ports::all(filter).map_err(Unusable::Words)?;
        let (mut rails, mut devices, mut refused) = (Vec::<Rail>::new(), Vec::new(), Vec::new());
        for one in found {
            let name = one.name();
            match one.facts {
                Err(why) => refused.push(format!("{name}: {why}")),
                Ok((_, facts)) if facts.wire == Wire::Iwarp => refused.push(format!("{name}: {}", facts.with_use())),
                Ok((device, _)) if device.is_software && !software => refused.push(format!("{name}: {SOFTWARE}")),
                // Two devices of one network interface are one way.
                Ok((_, facts)) if rails.iter().any(|rail| rail.facts.gid == facts.gid) => {}
                Ok((device, facts)) if rails.len() < rails_max => {
                    let channel = devices.iter().find(|(known, _)| Arc::ptr_eq(known, &device)).map(|(_, channel): &(_, Arc<Channel>)| channel.clone());
                    let channel = match channel {
                        Some(channel) => channel,
                        None => {
                            let channel = Arc::new(Channel::new(device.clone())?);
                            devices.push((device.clone(), channel.clone()));
                            channel
                        }
                    };
                    rails.push(Rail::open(device, &channel, one.port, facts, sends, receives)?);
                }
                Ok(_) => {}
            }
        }
        if rails.is_empty() {
            return Err(Unusable::Words(refused.join("; ")));
        }
        Ok(Verbs { rails, devices, scratch: Vec::new(), sent: SendCounters::default(), received: ReceiveCounters::default() })
    }

    /// The first port, and its device.
    fn first_port(&self) -> (Arc<Device>, Arc<Channel>, u8, Facts) {
        let Rail { device, port, facts, .. } = &self.rails[0];
        (device.clone(), self.devices[0].1.clone(), *port, facts.clone())
    }

    /// Takes notice of what has happened to the devices.
    fn take_events(&mut self) {
        for (device, _) in &self.devices {
            while let Some(event) = device.event() {
                self.rails.iter_mut().filter(|rail| Arc::ptr_eq(&rail.device, device)).for_each(|rail| rail.happened(event));
            }
        }
    }

    /// Posts a datagram of `bytes`, which `write` makes.
    fn push(&mut self, to: &Path, bytes: usize, write: impl FnOnce(&mut [u8])) -> Sent {
        let rail = &mut self.rails[to.local as usize];
        let handle = if rail.works() && bytes <= rail.facts.mtu_bytes as usize { rail.handle(&to.to) } else { None };
        let Some(handle) = handle else {
            self.sent.dropped += 1;
            return Sent::Done;
        };
        let Some(slot) = rail.pair.slot() else {
            self.sent.full += 1;
            return Sent::Busy;
        };
        write(&mut slot[..bytes]);
        rail.pair.push(bytes, handle, to.number, to.qkey);
        self.sent.datagrams += 1;
        if rail.pair.waiting() >= POST_EACH {
            self.sent.calls += 1;
            self.sent.dropped += rail.pair.post() as u64;
        }
        Sent::Done
    }
}

impl Rail {
    fn open(device: Arc<Device>, channel: &Arc<Channel>, port: u8, facts: Facts, sends: u32, receives: u32) -> Result<Rail, Unusable> {
        let most = device.requests_max.min(device.completions_max);
        if most < SENDS_MIN {
            return Err(Unusable::Words(format!("{}: its queues hold {most} requests, and {SENDS_MIN} are needed", device.name)));
        }
        let limits = Limits { sends: sends.min(1 << most.ilog2()), receives: receives.min(most), datagram_bytes: facts.mtu_bytes, inline_bytes: INLINE_BYTES };
        let domain = Arc::new(Domain::new(device.clone())?);
        let pair = QueuePair::new(&domain, channel, port, facts.gid_index, QKEY, &limits)?;
        Ok(Rail { pair, device, port, facts, down: false, dead: false, restarted: None, last: None, unreachable: FxHashMap::default() })
    }
}

impl DatagramDevice for Verbs {
    type Offer = Offer;
    type Path = Path;
    type Source = (Destination, u32);
    type Arrivals = Received;

    // What is posted has been copied to memory of the device.
    const QUEUES: bool = false;
    const COPIED_BYTES_MAX: usize = 256;
    const TRIGGER: Trigger = Trigger::Edge;
    /// A look is at memory alone.
    const LOOKS_PER_TIME: u32 = 64;

    fn offers(&self) -> Vec<Offer> {
        let offer = |Rail { pair, facts, .. }: &Rail| Offer {
            wire: facts.wire,
            lid: facts.lid,
            gid: facts.gid,
            number: pair.number(),
            qkey: QKEY,
            mtu_bytes: facts.mtu_bytes,
        };
        self.rails.iter().map(offer).collect()
    }

    fn rails(&self) -> Vec<RailConfig> {
        let sure = self.rails.iter().map(|rail| address::sure_bytes(rail.facts.wire, rail.facts.mtu_bytes));
        let mtu_bytes = sure.min().unwrap_or(MTU_BYTES_MIN);
        vec![RailConfig { mtu_bytes, endpoints: 1, queue_packets_max: SENDS as u16 }; self.rails.len()]
    }

    fn longest_bytes(&self) -> u32 {
        self.rails.iter().map(|rail| rail.facts.mtu_bytes).max().unwrap_or(MTU_BYTES_MIN)
    }

    /// Ports that come later are not taken up.
    fn renew(&mut self) -> bool {
        self.take_events();
        false
    }

    fn candidate(local: u8, ours: &Offer, theirs: &Offer) -> Option<Candidate<Path>> {
        address::candidate(local, ours, theirs)
    }

    fn back(local: u8, (to, number): (Destination, u32)) -> Path {
        Path { local, to, number, qkey: QKEY }
    }

    fn cuts_runs(_: &Path) -> bool {
        false
    }

    unsafe fn post<'a>(&mut self, to: &Path, _: SendQueue, header: &[u8], payload: impl Iterator<Item = &'a [u8]> + Clone) -> Sent {
        let bytes = header.len() + payload.clone().map(<[u8]>::len).sum::<usize>();
        self.push(to, bytes, |slot| {
            let (head, mut rest) = slot.split_at_mut(header.len());
            head.copy_from_slice(header);
            for piece in payload {
                let part;
                (part, rest) = rest.split_at_mut(piece.len());
                part.copy_from_slice(piece);
            }
        })
    }

    fn post_copied(&mut self, to: &Path, _: SendQueue, bytes: usize, write: impl FnOnce(&mut Vec<u8>)) -> Sent {
        let mut own = std::mem::take(&mut self.scratch);
        let sent = self.push(to, bytes, |slot| {
            own.clear();
            write(&mut own);
            slot.copy_from_slice(&own);
        });
        self.scratch = own;
        sent
    }

    unsafe fn post_run(&mut self, _: &Path, _: SendQueue, _: Batch, _: impl FnMut(&mut [MaybeUninit<u8>], Stores)) -> Taken {
        unreachable!("it cuts no runs")
    }

    fn continues(&self, _: &Path, _: SendQueue, _: usize) -> bool {
        false
    }

    fn flush(&mut self) -> bool {
        let mut free = true;
        for rail in &mut self.rails {
            if rail.pair.waiting() > 0 {
                self.sent.calls += 1;
                self.sent.dropped += rail.pair.post() as u64;
            }
            rail.mend();
            free &= !rail.works() || !rail.pair.is_full();
        }
        free
    }

    fn completions(&mut self, _: impl FnMut(SendQueue, u32)) {}

    fn reset(&mut self, _: u8) {}

    fn receive(&mut self, turn: &mut usize) -> Option<Received> {
        while let Some(rail) = self.rails.get_mut(*turn) {
            let local = *turn as u8;
            *turn += 1;
            if !rail.pair.look() {
                self.received.empty_calls += 1;
                continue;
            }
            self.received.calls += 1;
            return Some(Received { lent: rail.pair.lend(), rail: local, wire: rail.facts.wire, own: rail.facts.gid });
        }
        None
    }

    fn recycle(&mut self, received: Received, datagrams: usize) {
        self.received.datagrams += datagrams as u64;
        self.rails[received.rail as usize].pair.give_back(received.lent);
    }

    fn sources<'a>(&'a self, mut each: impl FnMut(BorrowedFd<'a>, bool)) {
        for (device, channel) in &self.devices {
            each(channel.source(), false);
            each(device.event_source(), false);
        }
    }

    fn arm(&mut self) -> bool {
        self.devices.iter().for_each(|(_, channel)| channel.drain());
        self.take_events();
        // All of them, also where one has something already: that is looked at next.
        let mut calm = true;
        for rail in &mut self.rails {
            calm &= rail.dead || rail.pair.arm();
        }
        calm
    }

    fn send_counters(&self) -> SendCounters {
        self.sent
    }

    fn receive_counters(&self) -> ReceiveCounters {
        self.received
    }

    fn footprint(&self) -> (usize, usize) {
        (self.rails.iter().map(|rail| rail.pair.registered_bytes()).sum(), self.rails.len())
    }
}
