//! The verbs API, opened when the program runs, behind types that keep what they use: a memory region its protection
//! domain, a queue pair its memory, and all of them their device. All that touches its C is here.

mod abi;
mod connection;
mod manager;
mod pair;

pub use connection::{Access, Done, Ends, Hub, HubLimits, Keys, Lease, PairId, Pulse, RETRIES, Registered, Registrar};
pub use manager::{Conversation, ConversationId, Happenings, Terms, What, addresses_of};
pub use pair::{Came, Lent, Limits, QueuePair};

use std::ffi::{CStr, c_int, c_void};
use std::net::Ipv6Addr;
use std::os::fd::{BorrowedFd, RawFd};
use std::ptr::{NonNull, null_mut};
use std::sync::{Arc, mpsc};

use crate::Error;
use abi::Functions;

fn errno() -> i32 {
    std::io::Error::last_os_error().raw_os_error().unwrap_or(0)
}

fn failed(call: &'static str) -> Error {
    Error::System { call, errno: errno() }
}

/// Functions of the library answer 0 or an error number.
fn checked(call: &'static str, status: c_int) -> Result<(), Error> {
    if status == 0 { Ok(()) } else { Err(Error::System { call, errno: status.abs() }) }
}

/// An open device.
pub struct Device {
    raw: NonNull<abi::Context>,
    functions: &'static Functions,
    pub name: String,
    pub is_iwarp: bool,
    /// The kernel moves its bytes, as those of sockets.
    pub is_software: bool,
    pub ports: u8,
    /// Most requests of a queue, and most completions of a completion queue.
    pub requests_max: u32,
    pub completions_max: u32,
    /// Most receives of a shared receive queue; 0 where it has none.
    pub shared_receives_max: u32,
    /// Remote reads that a queue pair asks for, and that it answers, at once.
    pub reads_out: u8,
    pub reads_in: u8,
}

// SAFETY: the library's objects may be used from any thread.
unsafe impl Send for Device {}
// SAFETY: as above.
unsafe impl Sync for Device {}

/// What a port says of itself.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Port {
    pub active: bool,
    pub ethernet: bool,
    pub lid: u16,
    /// Longest datagram of its link, bytes.
    pub mtu_bytes: u32,
    /// Longest message of a connection, bytes.
    pub message_bytes_max: u32,
    /// Entries of the GID table.
    pub gids: u32,
}

/// The protocol that an entry of the GID table belongs to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum GidKind {
    InfiniBand,
    RoceV1,
    RoceV2,
}

/// An entry of the GID table.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Gid {
    pub index: u8,
    pub kind: GidKind,
    pub gid: Ipv6Addr,
    /// The network interface that has this address, 0 for none or an unknown one.
    pub interface: u32,
}

/// Something happened to a device.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Event {
    Fatal,
    PortDown(u8),
    PortUp(u8),
    Other,
}

/// What is said of a machine whose kernel has none.
pub const NO_DEVICE: &str = "this machine has no RDMA device (rdma link show)";

/// What devices name as their vendor that are software: nobody (soft RoCE, before Linux 5.6), soft RoCE, soft iWARP.
const SOFTWARE_VENDORS: [u32; 3] = [0, 0xff_ffff, 0x62_6d74];

/// Opens every device of this machine, or says why one cannot be opened.
///
/// # Errors
/// Words: there is no library, or the system shows no devices.
#[allow(clippy::type_complexity)]
pub fn devices() -> Result<Vec<(String, Result<Device, Error>)>, String> {
    let functions = abi::functions()?;
    let mut all = Vec::new();
    let mut count: c_int = 0;
    // SAFETY: the list is walked while it lives, then given back; an open device does not need it.
    unsafe {
        let list = (functions.get_device_list)(&mut count);
        if list.is_null() && errno() == libc::ENOSYS {
            return Err(NO_DEVICE.to_owned());
        }
        if list.is_null() {
            return Err(format!("ibv_get_device_list failed: {}", std::io::Error::last_os_error()));
        }
        for at in 0..count.max(0) as usize {
            let device = *list.add(at);
            let name = CStr::from_ptr((*device).name.as_ptr()).to_string_lossy().into_owned();
            all.push((name.clone(), Device::open(functions, device, name)));
        }
        (functions.free_device_list)(list);
    }
    Ok(all)
}

impl Device {
    /// # Safety
    /// `device` must be of a list that lives.
    unsafe fn open(functions: &'static Functions, device: *mut abi::Device, name: String) -> Result<Device, Error> {
        let is_iwarp = (*device).transport_type == abi::TRANSPORT_IWARP;
        let raw = NonNull::new((functions.open_device)(device)).ok_or_else(|| failed("ibv_open_device"))?;
        let mut opened = Device {
            raw,
            functions,
            name,
            is_iwarp,
            is_software: false,
            ports: 0,
            requests_max: 0,
            completions_max: 0,
            shared_receives_max: 0,
            reads_out: 0,
            reads_in: 0,
        };
        let mut facts: abi::DeviceAttributes = std::mem::zeroed();
        checked("ibv_query_device", (functions.query_device)(raw.as_ptr(), &mut facts))?;
        opened.ports = facts.ports;
        opened.is_software = SOFTWARE_VENDORS.contains(&facts.vendor_id);
        opened.requests_max = facts.max_qp_wr.max(0) as u32;
        opened.completions_max = facts.max_cqe.max(0) as u32;
        opened.shared_receives_max = if facts.max_srq > 0 { facts.max_srq_wr.max(0) as u32 } else { 0 };
        opened.reads_out = facts.max_qp_init_rd_atom.clamp(0, 255) as u8;
        opened.reads_in = facts.max_qp_rd_atom.clamp(0, 255) as u8;
        set_nonblocking((*raw.as_ptr()).async_fd)?;
        Ok(opened)
    }

    pub fn port(&self, port: u8) -> Result<Port, Error> {
        // SAFETY: plain numbers, which the call fills.
        let facts = unsafe {
            let mut facts: abi::PortAttributes = std::mem::zeroed();
            checked("ibv_query_port", (self.functions.query_port)(self.raw.as_ptr(), port, &mut facts))?;
            facts
        };
        Ok(Port {
            active: facts.state == abi::PORT_ACTIVE,
            ethernet: facts.link_layer == abi::LINK_ETHERNET,
            lid: facts.lid,
            mtu_bytes: if (1..=5).contains(&facts.active_mtu) { 128 << facts.active_mtu } else { 0 },
            message_bytes_max: facts.message_bytes_max,
            gids: facts.gids.max(0) as u32,
        })
    }

    /// Entry `index` of a port's GID table; `None` where it is empty.
    pub fn gid(&self, port: u8, facts: &Port, index: u8) -> Option<Gid> {
        let mut entry = abi::GidEntry { gid: [0; 16], index: 0, port: 0, kind: 0, interface: 0 };
        // SAFETY: the calls fill plain numbers of the size that is told.
        let status = unsafe {
            match self.functions.query_gid_ex {
                Some(query) => query(self.raw.as_ptr(), port.into(), index.into(), &mut entry, 0, size_of::<abi::GidEntry>()),
                None => (self.functions.query_gid)(self.raw.as_ptr(), port, index.into(), &mut entry.gid),
            }
        };
        let gid = Ipv6Addr::from(entry.gid);
        // An older library does not say the kind; the system does.
        let kind = match (facts.ethernet, self.functions.query_gid_ex.is_some()) {
            (false, _) => GidKind::InfiniBand,
            (true, true) => match entry.kind {
                abi::GID_ROCE_V2 => GidKind::RoceV2,
                abi::GID_ROCE_V1 => GidKind::RoceV1,
                _ => return None,
            },
            (true, false) => {
                let path = format!("/sys/class/infiniband/{}/ports/{port}/gid_attrs/types/{index}", self.name);
                if std::fs::read_to_string(path).is_ok_and(|text| text.trim() == "RoCE v2") { GidKind::RoceV2 } else { GidKind::RoceV1 }
            }
        };
        (status == 0 && !gid.is_unspecified()).then_some(Gid { index, kind, gid, interface: entry.interface })
    }

    /// Becomes readable when an [`Event`] has happened.
    pub fn event_source(&self) -> BorrowedFd<'_> {
        // SAFETY: it is open as long as the device is.
        unsafe { BorrowedFd::borrow_raw((*self.raw.as_ptr()).async_fd) }
    }

    /// The next event, if there is one.
    pub fn event(&self) -> Option<Event> {
        let mut event = abi::AsyncEvent { element: 0, kind: 0 };
        // SAFETY: the descriptor does not block; an event that was got is acknowledged, and only its numbers are looked
        // at.
        unsafe {
            if (self.functions.get_async_event)(self.raw.as_ptr(), &mut event) != 0 {
                return None;
            }
            (self.functions.ack_async_event)(&mut event);
        }
        let port = event.element as u32 as u8;
        Some(match event.kind {
            abi::EVENT_DEVICE_FATAL => Event::Fatal,
            abi::EVENT_PORT_ERR => Event::PortDown(port),
            abi::EVENT_PORT_ACTIVE => Event::PortUp(port),
            _ => Event::Other,
        })
    }
}

impl Drop for Device {
    fn drop(&mut self) {
        // SAFETY: nothing that was made of it is left: all of that holds it.
        unsafe { (self.functions.close_device)(self.raw.as_ptr()) };
    }
}

impl std::fmt::Debug for Device {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.name)
    }
}

fn set_nonblocking(fd: RawFd) -> Result<(), Error> {
    // SAFETY: plain system calls.
    let done = unsafe { libc::fcntl(fd, libc::F_SETFL, libc::fcntl(fd, libc::F_GETFL) | libc::O_NONBLOCK) };
    if done < 0 { Err(failed("fcntl")) } else { Ok(()) }
}

/// A protection domain: what memory, address handles and queue pairs of one device belong to.
#[derive(Debug)]
pub struct Domain {
    raw: NonNull<abi::Domain>,
    device: Arc<Device>,
}

// SAFETY: as [`Device`].
unsafe impl Send for Domain {}
// SAFETY: as [`Device`].
unsafe impl Sync for Domain {}

impl Domain {
    pub fn new(device: Arc<Device>) -> Result<Domain, Error> {
        // SAFETY: the device is open.
        let raw = unsafe { (device.functions.alloc_pd)(device.raw.as_ptr()) };
        Ok(Domain { raw: NonNull::new(raw).ok_or_else(|| failed("ibv_alloc_pd"))?, device })
    }
}

impl Drop for Domain {
    fn drop(&mut self) {
        // SAFETY: nothing that was made of it is left.
        unsafe { (self.device.functions.dealloc_pd)(self.raw.as_ptr()) };
    }
}

/// Wakes a sleeper when a completion queue that was armed gets something.
#[derive(Debug)]
pub struct Channel {
    raw: NonNull<abi::Channel>,
    device: Arc<Device>,
}

// SAFETY: as [`Device`].
unsafe impl Send for Channel {}
// SAFETY: as [`Device`].
unsafe impl Sync for Channel {}

impl Channel {
    pub fn new(device: Arc<Device>) -> Result<Channel, Error> {
        // SAFETY: the device is open; the descriptor is the channel's.
        unsafe {
            let raw = NonNull::new((device.functions.create_comp_channel)(device.raw.as_ptr())).ok_or_else(|| failed("ibv_create_comp_channel"))?;
            let channel = Channel { raw, device };
            set_nonblocking((*raw.as_ptr()).fd)?;
            Ok(channel)
        }
    }

    pub fn source(&self) -> BorrowedFd<'_> {
        // SAFETY: it is open as long as the channel is.
        unsafe { BorrowedFd::borrow_raw((*self.raw.as_ptr()).fd) }
    }

    /// Takes what it has been woken for.
    pub fn drain(&self) {
        let (mut queue, mut context) = (null_mut(), null_mut());
        // SAFETY: the descriptor does not block; what came is acknowledged to the queue that it is of, which lives: it
        // is destroyed under `&mut` of the pair that drives it.
        unsafe {
            while (self.device.functions.get_cq_event)(self.raw.as_ptr(), &mut queue, &mut context) == 0 {
                (self.device.functions.ack_cq_events)(queue, 1);
            }
        }
    }
}

impl Drop for Channel {
    fn drop(&mut self) {
        // SAFETY: no completion queue uses it any more: each holds it.
        unsafe { (self.device.functions.destroy_comp_channel)(self.raw.as_ptr()) };
    }
}

/// A completion queue.
#[derive(Debug)]
struct Completions {
    raw: NonNull<abi::CompletionQueue>,
    channel: Arc<Channel>,
}

impl Completions {
    fn new(channel: &Arc<Channel>, count: u32) -> Result<Completions, Error> {
        let device = &channel.device;
        // SAFETY: device and channel are open, and stay so.
        let raw = unsafe { (device.functions.create_cq)(device.raw.as_ptr(), count as c_int, null_mut(), channel.raw.as_ptr(), 0) };
        Ok(Completions { raw: NonNull::new(raw).ok_or_else(|| failed("ibv_create_cq"))?, channel: channel.clone() })
    }

    fn poll(&mut self, into: &mut [abi::WorkCompletion]) -> usize {
        // SAFETY: as the header's `ibv_poll_cq`; at most so many are written.
        let count = unsafe {
            let queue = self.raw.as_ptr();
            ((*(*queue).context).ops.poll_cq)(queue, into.len() as c_int, into.as_mut_ptr())
        };
        (count.max(0) as usize).min(into.len())
    }

    /// The next completion wakes whoever sleeps on the channel.
    fn arm(&mut self) -> bool {
        // SAFETY: as the header's `ibv_req_notify_cq`.
        unsafe {
            let queue = self.raw.as_ptr();
            ((*(*queue).context).ops.req_notify_cq)(queue, 0) == 0
        }
    }
}

impl Drop for Completions {
    fn drop(&mut self) {
        self.channel.drain();
        // SAFETY: its queue pair is gone.
        unsafe { (self.channel.device.functions.destroy_cq)(self.raw.as_ptr()) };
    }
}

/// Memory that a device may read and write, in slots of one size. A child of `fork` does not have it.
#[derive(Debug)]
struct Region {
    raw: NonNull<abi::MemoryRegion>,
    start: NonNull<u8>,
    bytes: usize,
    slot_bytes: usize,
    domain: Arc<Domain>,
}

// SAFETY: who may touch a slot is settled by the queue pair.
unsafe impl Send for Region {}
// SAFETY: as above.
unsafe impl Sync for Region {}

impl Region {
    fn new(domain: &Arc<Domain>, slots: usize, slot_bytes: usize) -> Result<Region, Error> {
        Region::with(domain, slots, slot_bytes, abi::ACCESS_LOCAL_WRITE)
    }

    /// Memory that peers may touch too, as `flags` say.
    fn with(domain: &Arc<Domain>, slots: usize, slot_bytes: usize, flags: c_int) -> Result<Region, Error> {
        let bytes = slots * slot_bytes;
        let refused = |errno| Error::Memory { what: "a verbs device, which locks it (ulimit -l)", bytes: bytes as u64, errno };
        // SAFETY: new memory, of this region alone, given back where it cannot be registered.
        unsafe {
            let (access, kind) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
            let start = libc::mmap(null_mut(), bytes, access, kind, -1, 0);
            if start == libc::MAP_FAILED {
                return Err(refused(errno()));
            }
            libc::madvise(start, bytes, libc::MADV_DONTFORK);
            let raw = (domain.device.functions.reg_mr)(domain.raw.as_ptr(), start, bytes, flags);
            let Some(raw) = NonNull::new(raw) else {
                let error = refused(errno());
                libc::munmap(start, bytes);
                return Err(error);
            };
            let start = NonNull::new_unchecked(start.cast::<u8>());
            Ok(Region { raw, start, bytes, slot_bytes, domain: domain.clone() })
        }
    }

    fn lkey(&self) -> u32 {
        // SAFETY: it is registered.
        unsafe { (*self.raw.as_ptr()).lkey }
    }

    fn rkey(&self) -> u32 {
        // SAFETY: it is registered.
        unsafe { (*self.raw.as_ptr()).rkey }
    }

    fn slot(&self, index: usize) -> NonNull<u8> {
        assert!((index + 1) * self.slot_bytes <= self.bytes, "slot {index} is outside the region");
        // SAFETY: inside the region, as was just checked.
        unsafe { self.start.add(index * self.slot_bytes) }
    }
}

impl Drop for Region {
    fn drop(&mut self) {
        // SAFETY: the pair that used it is gone, and whoever has a slot lent holds the region.
        unsafe {
            if (self.domain.device.functions.dereg_mr)(self.raw.as_ptr()) == 0 {
                libc::munmap(self.start.as_ptr().cast::<c_void>(), self.bytes);
            }
        }
    }
}

/// Where a port of a peer is, as a device is told of it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Destination {
    pub lid: u16,
    pub gid: Ipv6Addr,
    /// It is told by its GID; else by its LID alone.
    pub is_global: bool,
}

#[derive(Debug)]
struct AddressHandle {
    raw: NonNull<abi::AddressHandle>,
    domain: Arc<Domain>,
}

/// Routers between two subnets, at most.
const HOPS_MAX: u8 = 64;

impl Destination {
    fn attributes(&self, port: u8, own_gid_index: u8) -> abi::HandleAttributes {
        let route = match self.is_global {
            true => abi::GlobalRoute { gid: self.gid.octets(), flow_label: 0, own_gid_index, hop_limit: HOPS_MAX, traffic_class: 0 },
            false => abi::GlobalRoute { gid: [0; 16], flow_label: 0, own_gid_index: 0, hop_limit: 0, traffic_class: 0 },
        };
        abi::HandleAttributes { route, lid: self.lid, service_level: 0, path_bits: 0, rate: 0, is_global: self.is_global.into(), port }
    }
}

impl AddressHandle {
    fn new(domain: &Arc<Domain>, to: &Destination, port: u8, own_gid_index: u8) -> Result<AddressHandle, Error> {
        let mut wanted = to.attributes(port, own_gid_index);
        // SAFETY: the domain lives; the attributes are read during the call.
        let raw = unsafe { (domain.device.functions.create_ah)(domain.raw.as_ptr(), &mut wanted) };
        Ok(AddressHandle { raw: NonNull::new(raw).ok_or_else(|| failed("ibv_create_ah"))?, domain: domain.clone() })
    }
}

// SAFETY: as [`Device`].
unsafe impl Send for AddressHandle {}

/// Of a thread that asks the kernel and ends.
const STACK_BYTES: usize = 128 << 10;

impl AddressHandle {
    /// Makes a handle in a thread, which says what came of it.
    ///
    /// # Errors
    /// The system gives no thread.
    fn look_for(domain: &Arc<Domain>, to: Destination, port: u8, own_gid_index: u8) -> Result<mpsc::Receiver<Result<AddressHandle, Error>>, Error> {
        let (answer, found) = mpsc::channel();
        let domain = domain.clone();
        // Nobody may want the answer any more.
        let ask = move || drop(answer.send(AddressHandle::new(&domain, &to, port, own_gid_index)));
        let builder = std::thread::Builder::new().name("mpi-address".into()).stack_size(STACK_BYTES);
        match memory::without_signals(|| builder.spawn(ask)) {
            Ok(_) => Ok(found),
            Err(error) => Err(Error::System { call: "making a thread", errno: error.raw_os_error().unwrap_or(0) }),
        }
    }
}

impl Drop for AddressHandle {
    fn drop(&mut self) {
        // SAFETY: the pair that used it is gone.
        unsafe { (self.domain.device.functions.destroy_ah)(self.raw.as_ptr()) };
    }
}

/// The name of the network interface with this number.
pub fn interface(number: u32) -> Option<String> {
    let mut name = [0; libc::IF_NAMESIZE];
    // SAFETY: the call writes a name with a 0 at its end that fits, or nothing.
    let found = unsafe { libc::if_indextoname(number, name.as_mut_ptr()) };
    let bytes = name.map(|byte| byte as u8);
    let text = CStr::from_bytes_until_nul(&bytes).ok().filter(|_| !found.is_null());
    text.map(|name| name.to_string_lossy().into_owned())
}
