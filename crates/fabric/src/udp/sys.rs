//! The system calls of this fabric, and all its unsafe code.

use std::ffi::CStr;
use std::mem::{self, MaybeUninit};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4, SocketAddrV6, UdpSocket};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::ptr::NonNull;

use super::groups::{Group, Piece, below_bytes};
use crate::Error;
use crate::reliable::DATAGRAM_BYTES_MAX;

/// Buffers of one receiving call, at most.
pub const BATCH_MAX: usize = 8;
/// Groups of one sending call, at most.
pub const GROUPS_MAX: usize = 16;

pub fn errno() -> i32 {
    std::io::Error::last_os_error().raw_os_error().unwrap_or(0)
}

fn set(fd: RawFd, level: i32, name: i32, value: i32) -> Result<(), i32> {
    // SAFETY: a plain system call on an open descriptor; the value is an int, as all these options are.
    let r = unsafe { libc::setsockopt(fd, level, name, (&raw const value).cast(), size_of::<i32>() as u32) };
    if r == 0 { Ok(()) } else { Err(errno()) }
}

pub fn failed(call: &'static str) -> impl Fn(std::io::Error) -> Error {
    move |e| Error::System { call, errno: e.raw_os_error().unwrap_or(0) }
}

/// A non-blocking socket for addresses like `at`, without a port.
pub fn socket(at: SocketAddr) -> Result<UdpSocket, Error> {
    let family = if at.is_ipv4() { libc::AF_INET } else { libc::AF_INET6 };
    // SAFETY: a plain system call; the descriptor is new and ours.
    unsafe {
        let fd = libc::socket(family, libc::SOCK_DGRAM | libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK, 0);
        if fd < 0 {
            return Err(Error::System { call: "socket", errno: errno() });
        }
        Ok(UdpSocket::from_raw_fd(fd))
    }
}

/// For so long a look that finds nothing may poll the device's queue, µs. One that does not wait, as ours do not, polls it once.
const BUSY_POLL_US: i32 = 50;

/// Gives a socket its address, and buffers of up to `buffer_bytes`. It does not fragment ([`set_fragments`]). With `joins`, the kernel may join what arrives.
/// Where the system lets this process, looks at it also poll the device (`SO_BUSY_POLL`, socket(7)): nobody waits for an interrupt then.
pub fn bind(socket: &UdpSocket, at: SocketAddr, buffer_bytes: u32, joins: bool) -> Result<(), Error> {
    let fd = socket.as_raw_fd();
    for (name, force) in [(libc::SO_SNDBUF, libc::SO_SNDBUFFORCE), (libc::SO_RCVBUF, libc::SO_RCVBUFFORCE)] {
        // The second one goes past the system's limit, where that is allowed; less than wanted works too.
        if set(fd, libc::SOL_SOCKET, force, buffer_bytes as i32).is_err() {
            let _ = set(fd, libc::SOL_SOCKET, name, buffer_bytes as i32);
        }
    }
    fragments(fd, at.is_ipv4(), false).map_err(|errno| Error::System { call: "setsockopt(MTU_DISCOVER)", errno })?;
    // More than net.core.busy_read takes CAP_NET_ADMIN; not every device has such a queue.
    let _ = set(fd, libc::SOL_SOCKET, libc::SO_BUSY_POLL, BUSY_POLL_US);
    if joins {
        // Where this is not known, datagrams come one by one.
        let _ = set(fd, libc::SOL_UDP, libc::UDP_GRO, 1);
    }
    // SAFETY: all zeroes are an address.
    let mut name: libc::sockaddr_storage = unsafe { mem::zeroed() };
    let length = to_raw(at, &mut name);
    // SAFETY: a name of that length.
    match unsafe { libc::bind(fd, (&raw const name).cast(), length) } {
        0 => Ok(()),
        _ => Err(Error::System { call: "bind of a UDP socket", errno: errno() }),
    }
}

fn fragments(fd: RawFd, is_ipv4: bool, fragments: bool) -> Result<(), i32> {
    let (level, name, how) = match (is_ipv4, fragments) {
        (true, false) => (libc::IPPROTO_IP, libc::IP_MTU_DISCOVER, libc::IP_PMTUDISC_PROBE),
        (true, true) => (libc::IPPROTO_IP, libc::IP_MTU_DISCOVER, libc::IP_PMTUDISC_DONT),
        (false, false) => (libc::IPPROTO_IPV6, libc::IPV6_MTU_DISCOVER, libc::IPV6_PMTUDISC_PROBE),
        (false, true) => (libc::IPPROTO_IPV6, libc::IPV6_MTU_DISCOVER, libc::IPV6_PMTUDISC_DONT),
    };
    set(fd, level, name, how)
}

/// Whether datagrams that are longer than the link takes leave in several packets, until the next call; where the system refuses, they do not leave.
pub fn set_fragments(socket: &UdpSocket, allowed: bool) {
    let is_ipv4 = socket.local_addr().is_ok_and(|at| at.is_ipv4());
    let _ = fragments(socket.as_raw_fd(), is_ipv4, allowed);
}

/// Whether another socket may be bound to the same port, if that says so too.
pub fn share_port(socket: &UdpSocket, shares: bool) -> Result<(), Error> {
    let done = set(socket.as_raw_fd(), libc::SOL_SOCKET, libc::SO_REUSEADDR, shares as i32);
    done.map_err(|errno| Error::System { call: "setsockopt(SO_REUSEADDR)", errno })
}

fn to_raw(address: SocketAddr, out: &mut libc::sockaddr_storage) -> u32 {
    let at = (&raw mut *out).cast::<u8>();
    match address {
        SocketAddr::V4(v4) => {
            let raw = libc::sockaddr_in {
                sin_family: libc::AF_INET as u16,
                sin_port: v4.port().to_be(),
                sin_addr: libc::in_addr { s_addr: u32::from_ne_bytes(v4.ip().octets()) },
                sin_zero: [0; 8],
            };
            // SAFETY: a storage has room for every address, and is aligned for it.
            unsafe { at.cast::<libc::sockaddr_in>().write(raw) };
            size_of::<libc::sockaddr_in>() as u32
        }
        SocketAddr::V6(v6) => {
            let raw = libc::sockaddr_in6 {
                sin6_family: libc::AF_INET6 as u16,
                sin6_port: v6.port().to_be(),
                sin6_flowinfo: 0,
                sin6_addr: libc::in6_addr { s6_addr: v6.ip().octets() },
                sin6_scope_id: v6.scope_id(),
            };
            // SAFETY: as above.
            unsafe { at.cast::<libc::sockaddr_in6>().write(raw) };
            size_of::<libc::sockaddr_in6>() as u32
        }
    }
}

/// # Safety
/// `raw` must point to an address of the family that it says.
unsafe fn from_raw(raw: *const libc::sockaddr) -> Option<SocketAddr> {
    match (*raw).sa_family as i32 {
        libc::AF_INET => {
            let raw = raw.cast::<libc::sockaddr_in>().read_unaligned();
            let ip = Ipv4Addr::from(raw.sin_addr.s_addr.to_ne_bytes());
            Some(SocketAddrV4::new(ip, u16::from_be(raw.sin_port)).into())
        }
        libc::AF_INET6 => {
            let raw = raw.cast::<libc::sockaddr_in6>().read_unaligned();
            let ip = Ipv6Addr::from(raw.sin6_addr.s6_addr);
            Some(SocketAddrV6::new(ip, u16::from_be(raw.sin6_port), 0, raw.sin6_scope_id).into())
        }
        _ => None,
    }
}

/// What a socket sends is cut into datagrams of `bytes` each from now on, where a call does not say otherwise.
pub fn set_segment(socket: &UdpSocket, bytes: u16) -> Result<(), i32> {
    set(socket.as_raw_fd(), libc::SOL_UDP, libc::UDP_SEGMENT, bytes as i32)
}

/// Whole pages of memory, which the kernel may go on reading after they have been given back.
#[derive(Debug)]
pub struct Pages {
    start: NonNull<u8>,
    bytes: usize,
}

// SAFETY: it owns its memory.
unsafe impl Send for Pages {}

impl Pages {
    /// In huge pages, as far as they fit and the system gives some: it then handles a run as one piece. `None` where it has no memory left.
    pub fn new(bytes: usize) -> Option<Pages> {
        const HUGE_BYTES: usize = 2 << 20;
        let odd_bytes = if bytes >= HUGE_BYTES { HUGE_BYTES } else { 0 };
        let (how, kind) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
        // SAFETY: new memory, of which what is not needed is given back.
        unsafe {
            let mapped = libc::mmap(std::ptr::null_mut(), bytes + odd_bytes, how, kind, -1, 0);
            let mapped = NonNull::new(mapped.cast::<u8>()).filter(|_| mapped != libc::MAP_FAILED)?;
            let before = if odd_bytes > 0 { mapped.align_offset(HUGE_BYTES) } else { 0 };
            let start = mapped.add(before);
            for (from, bytes) in [(mapped, before), (start.add(bytes), odd_bytes - before)] {
                if bytes > 0 {
                    libc::munmap(from.as_ptr().cast(), bytes);
                }
            }
            // Where it is refused, there are small ones.
            libc::madvise(start.as_ptr().cast(), bytes, libc::MADV_HUGEPAGE);
            Some(Pages { start, bytes })
        }
    }

    /// # Panics
    /// Where there are fewer bytes.
    pub fn part(&mut self, from: usize, bytes: usize) -> &mut [MaybeUninit<u8>] {
        assert!(from + bytes <= self.bytes, "no more than there are");
        // SAFETY: mapped, and borrowed with this.
        unsafe { std::slice::from_raw_parts_mut(self.start.as_ptr().add(from).cast(), bytes) }
    }
}

impl Drop for Pages {
    fn drop(&mut self) {
        // SAFETY: mapped by `new`, and nothing borrows it.
        unsafe { libc::munmap(self.start.as_ptr().cast(), self.bytes) };
    }
}

/// Pages pass through it on their way to a socket.
#[derive(Debug)]
pub struct Pipe {
    read: OwnedFd,
    write: OwnedFd,
}

impl Pipe {
    pub fn new() -> Result<Pipe, i32> {
        let mut fds = [0; 2];
        // SAFETY: two descriptors are written, new and ours.
        unsafe {
            match libc::pipe2(fds.as_mut_ptr(), libc::O_CLOEXEC | libc::O_NONBLOCK) {
                0 => Ok(Pipe { read: OwnedFd::from_raw_fd(fds[0]), write: OwnedFd::from_raw_fd(fds[1]) }),
                _ => Err(errno()),
            }
        }
    }

    /// Gives a part of `pages`, which begins with a whole one, to a connected socket, without copying it: it leaves with what is there when it is read.
    ///
    /// # Errors
    /// The system's: nothing has left, and this pipe may hold something.
    ///
    /// # Panics
    /// Where there are fewer bytes.
    pub fn send(&self, pages: &mut Pages, from: usize, bytes: usize, socket: &UdpSocket) -> Result<(), i32> {
        let piece = libc::iovec { iov_base: pages.part(from, bytes).as_mut_ptr().cast(), iov_len: bytes };
        let null = std::ptr::null_mut();
        // SAFETY: readable memory; the kernel keeps its pages for as long as it reads them.
        let given = unsafe { libc::vmsplice(self.write.as_raw_fd(), &piece, 1, libc::SPLICE_F_NONBLOCK) };
        if given != bytes as isize {
            return Err(if given < 0 { errno() } else { libc::ENOBUFS });
        }
        // SAFETY: no offsets are given, as a pipe and a socket want it.
        let sent = unsafe { libc::splice(self.read.as_raw_fd(), null, socket.as_raw_fd(), null, bytes, libc::SPLICE_F_NONBLOCK) };
        match sent {
            sent if sent == bytes as isize => Ok(()),
            ..0 => Err(errno()),
            _ => Err(libc::EMSGSIZE),
        }
    }
}

/// Whether a run of datagrams leaves cut, and whole, when it is given to a socket page by page: older kernels do not do that.
pub fn splices_datagrams() -> std::io::Result<bool> {
    const EACH_BYTES: usize = 1000;
    const BYTES: usize = 9 * EACH_BYTES + EACH_BYTES / 2;
    let [from, to] = [UdpSocket::bind("127.0.0.1:0")?, UdpSocket::bind("127.0.0.1:0")?];
    from.connect(to.local_addr()?)?;
    from.set_nonblocking(true)?;
    to.set_read_timeout(Some(std::time::Duration::from_millis(20)))?;
    let Some(mut pages) = Pages::new(BYTES.next_multiple_of(4096)) else { return Ok(false) };
    pages.part(0, BYTES).iter_mut().zip(0u32..).for_each(|(byte, at)| *byte = MaybeUninit::new((at / 7) as u8));
    let sent = set_segment(&from, EACH_BYTES as u16).and_then(|()| Pipe::new()?.send(&mut pages, 0, BYTES, &from));
    let mut came = 0;
    while sent.is_ok() && came < BYTES {
        let mut bytes = [0; 2 * EACH_BYTES];
        let length = to.recv(&mut bytes)?;
        let right = bytes[..length].iter().zip(came as u32..).all(|(&byte, at)| byte == (at / 7) as u8);
        if length != EACH_BYTES.min(BYTES - came) || !right {
            return Ok(false);
        }
        came += length;
    }
    Ok(sent.is_ok())
}

/// Room for one control message with an integer.
#[repr(C, align(8))]
#[derive(Clone, Copy)]
struct Control([u8; 32]);

/// What a sending call is made of, kept between calls.
pub struct SendSpace {
    headers: [libc::mmsghdr; GROUPS_MAX],
    names: [libc::sockaddr_storage; GROUPS_MAX],
    controls: [Control; GROUPS_MAX],
    pieces: Vec<libc::iovec>,
}

// SAFETY: its pointers are written and read within one call.
unsafe impl Send for SendSpace {}

impl SendSpace {
    pub fn new() -> Box<SendSpace> {
        // SAFETY: all zeroes are valid for these plain structures.
        let (headers, names) = unsafe { (mem::zeroed(), mem::zeroed()) };
        Box::new(SendSpace { headers, names, controls: [Control([0; 32]); GROUPS_MAX], pieces: Vec::new() })
    }
}

/// How a socket sends.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Through {
    /// It is not connected.
    Any,
    /// It knows where, and cuts what it sends into so many bytes each where it is told nothing ([`set_segment`]); 0: it does not cut.
    Line { segment_bytes: usize },
}

/// Sends `groups`, whose pieces follow each other in `pieces`; how many of the groups left, or why the first did not.
///
/// # Safety
/// Every foreign piece must be readable.
pub unsafe fn send(socket: &UdpSocket, through: Through, space: &mut SendSpace, groups: &[Group], pieces: &[Piece], own: &[u8]) -> Result<usize, i32> {
    space.pieces.clear();
    space.pieces.extend(pieces.iter().map(|piece| match *piece {
        Piece::Own { start, bytes } => libc::iovec { iov_base: own[start..start + bytes].as_ptr().cast_mut().cast(), iov_len: bytes },
        Piece::Foreign { start, bytes } => libc::iovec { iov_base: start.cast_mut().cast(), iov_len: bytes },
    }));
    let groups = &groups[..groups.len().min(GROUPS_MAX)];
    let mut at = 0;
    let cut_bytes = if let Through::Line { segment_bytes } = through { segment_bytes } else { 0 };
    for (index, group) in groups.iter().enumerate() {
        let header = &mut space.headers[index].msg_hdr;
        (header.msg_name, header.msg_namelen) = (std::ptr::null_mut(), 0);
        if through == Through::Any {
            header.msg_namelen = to_raw(group.to, &mut space.names[index]);
            header.msg_name = (&raw mut space.names[index]).cast();
        }
        header.msg_iov = space.pieces[at..at + group.pieces].as_mut_ptr();
        header.msg_iovlen = group.pieces;
        at += group.pieces;
        (header.msg_control, header.msg_controllen) = (std::ptr::null_mut(), 0);
        if group.segments > 1 || cut_bytes > 0 && group.bytes > cut_bytes {
            header.msg_control = space.controls[index].0.as_mut_ptr().cast();
            header.msg_controllen = libc::CMSG_SPACE(2) as usize;
            let control = libc::CMSG_FIRSTHDR(header);
            (*control).cmsg_level = libc::SOL_UDP;
            (*control).cmsg_type = libc::UDP_SEGMENT;
            (*control).cmsg_len = libc::CMSG_LEN(2) as usize;
            libc::CMSG_DATA(control).cast::<u16>().write_unaligned(group.segment_bytes as u16);
        }
    }
    loop {
        let r = if groups.len() == 1 {
            // One message at a time is the shorter way in.
            let header: *const libc::msghdr = &space.headers[0].msg_hdr;
            libc::syscall(libc::SYS_sendmsg, socket.as_raw_fd(), header, libc::MSG_DONTWAIT).min(1) as i32
        } else {
            libc::sendmmsg(socket.as_raw_fd(), space.headers.as_mut_ptr(), groups.len() as u32, libc::MSG_DONTWAIT as _)
        };
        match (r, if r < 0 { errno() } else { 0 }) {
            (_, libc::EINTR) => {}
            (r, 0) => return Ok(r as usize),
            (_, errno) => return Err(errno),
        }
    }
}

/// What arrives is received into these, the same ones for all sockets of the process.
pub struct Pool {
    bytes: Box<[u8]>,
    each_bytes: usize,
    headers: [libc::mmsghdr; BATCH_MAX],
    names: [libc::sockaddr_storage; BATCH_MAX],
    controls: [Control; BATCH_MAX],
    pieces: [libc::iovec; BATCH_MAX],
}

// SAFETY: its pointers are written and read within one call.
unsafe impl Send for Pool {}

impl std::fmt::Debug for Pool {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Pool({BATCH_MAX} of {} bytes)", self.each_bytes)
    }
}

/// One or several datagrams of one sender.
pub struct Arrival {
    pub from: SocketAddr,
    pub bytes: usize,
    /// All but the last are as long.
    pub segment_bytes: usize,
    /// It did not fit.
    pub cut: bool,
}

impl Pool {
    pub fn new() -> Box<Pool> {
        let each_bytes = 1 << 16;
        // SAFETY: all zeroes are valid for these plain structures.
        let (headers, names, pieces) = unsafe { (mem::zeroed(), mem::zeroed(), mem::zeroed()) };
        let bytes = vec![0; each_bytes * BATCH_MAX].into();
        Box::new(Pool { bytes, each_bytes, headers, names, controls: [Control([0; 32]); BATCH_MAX], pieces })
    }

    /// Receives into up to `count` buffers; how many were filled, 0 when nothing is there.
    pub fn receive(&mut self, socket: &UdpSocket, count: usize) -> Result<usize, i32> {
        let count = count.clamp(1, BATCH_MAX);
        for index in 0..count {
            let header = &mut self.headers[index].msg_hdr;
            let start = index * self.each_bytes;
            self.pieces[index] = libc::iovec { iov_base: self.bytes[start..start + self.each_bytes].as_mut_ptr().cast(), iov_len: self.each_bytes };
            header.msg_iov = &raw mut self.pieces[index];
            header.msg_iovlen = 1;
            header.msg_name = (&raw mut self.names[index]).cast();
            header.msg_namelen = size_of::<libc::sockaddr_storage>() as u32;
            header.msg_control = self.controls[index].0.as_mut_ptr().cast();
            header.msg_controllen = self.controls[index].0.len();
            header.msg_flags = 0;
        }
        loop {
            // SAFETY: all pointers were just set, to memory of this pool.
            let r = unsafe {
                if count == 1 {
                    // The library's function would first make ready for the thread's cancellation.
                    let header: *mut libc::msghdr = &mut self.headers[0].msg_hdr;
                    let r = libc::syscall(libc::SYS_recvmsg, socket.as_raw_fd(), header, libc::MSG_DONTWAIT);
                    self.headers[0].msg_len = r.max(0) as u32;
                    r.min(0) as i32 + (r >= 0) as i32
                } else {
                    libc::recvmmsg(socket.as_raw_fd(), self.headers.as_mut_ptr(), count as u32, libc::MSG_DONTWAIT as _, std::ptr::null_mut())
                }
            };
            match (r, if r < 0 { errno() } else { 0 }) {
                (_, libc::EINTR) => {}
                (r, 0) => return Ok(r as usize),
                (_, libc::EAGAIN) => return Ok(0),
                (_, errno) => return Err(errno),
            }
        }
    }

    /// What the last call put into buffer `index`.
    pub fn arrival(&mut self, index: usize) -> Option<(Arrival, &mut [u8])> {
        let header = &self.headers[index];
        let bytes = (header.msg_len as usize).min(self.each_bytes);
        let mut segment_bytes = bytes;
        // SAFETY: the kernel has filled the header's name and control; the macros stay within their lengths.
        let from = unsafe {
            let mut control = libc::CMSG_FIRSTHDR(&header.msg_hdr);
            while !control.is_null() {
                if (*control).cmsg_level == libc::SOL_UDP && (*control).cmsg_type == libc::UDP_GRO {
                    segment_bytes = libc::CMSG_DATA(control).cast::<i32>().read_unaligned().max(1) as usize;
                }
                control = libc::CMSG_NXTHDR(&header.msg_hdr, control);
            }
            from_raw((&raw const self.names[index]).cast())?
        };
        let cut = header.msg_hdr.msg_flags & libc::MSG_TRUNC != 0;
        let start = index * self.each_bytes;
        Some((Arrival { from, bytes, segment_bytes, cut }, &mut self.bytes[start..start + bytes]))
    }
}

/// An address of an interface of this host.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Interface {
    pub name: String,
    pub ip: IpAddr,
    /// Length of the network's prefix, bits.
    pub prefix: u8,
    pub loopback: bool,
    pub mtu_bytes: u32,
}

impl Interface {
    /// Longest datagram that it takes and that is worth sending, bytes.
    pub fn datagram_bytes(&self) -> u32 {
        self.mtu_bytes.saturating_sub(below_bytes(self.ip)).min(DATAGRAM_BYTES_MAX)
    }
}

/// Every address of every interface that is up.
pub fn interfaces() -> Result<Vec<Interface>, Error> {
    let mut found = Vec::new();
    // SAFETY: the list is walked while it lives, then given back; names are C strings, addresses say their family.
    unsafe {
        let mut list = std::ptr::null_mut();
        if libc::getifaddrs(&mut list) != 0 {
            return Err(Error::System { call: "getifaddrs", errno: errno() });
        }
        let mut next = list;
        while let Some(entry) = next.as_ref() {
            next = entry.ifa_next;
            let up = libc::IFF_UP as u32 | libc::IFF_RUNNING as u32;
            if entry.ifa_addr.is_null() || entry.ifa_flags & up != up {
                continue;
            }
            let Some(address) = from_raw(entry.ifa_addr) else { continue };
            let mask = if entry.ifa_netmask.is_null() { None } else { from_raw(entry.ifa_netmask) };
            let prefix = match mask.map(|mask| mask.ip()) {
                Some(IpAddr::V4(mask)) => u32::from(mask).leading_ones() as u8,
                Some(IpAddr::V6(mask)) => u128::from(mask).leading_ones() as u8,
                None => {
                    if address.is_ipv4() {
                        32
                    } else {
                        128
                    }
                }
            };
            let name = CStr::from_ptr(entry.ifa_name);
            found.push(Interface {
                name: name.to_string_lossy().into_owned(),
                ip: address.ip(),
                prefix,
                loopback: entry.ifa_flags & libc::IFF_LOOPBACK as u32 != 0,
                mtu_bytes: mtu_bytes(name).unwrap_or(1500),
            });
        }
        libc::freeifaddrs(list);
    }
    Ok(found)
}

/// What the kernel says of changes of links and addresses.
#[derive(Debug)]
pub struct Links(Option<OwnedFd>);

impl Links {
    pub fn open() -> Links {
        // SAFETY: plain system calls on an address of this frame.
        let socket = unsafe {
            let fd = libc::socket(libc::AF_NETLINK, libc::SOCK_RAW | libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK, libc::NETLINK_ROUTE);
            if fd < 0 {
                return Links(None);
            }
            let fd = OwnedFd::from_raw_fd(fd);
            let mut address: libc::sockaddr_nl = mem::zeroed();
            address.nl_family = libc::AF_NETLINK as u16;
            address.nl_groups = (libc::RTMGRP_LINK | libc::RTMGRP_IPV4_IFADDR | libc::RTMGRP_IPV6_IFADDR) as u32;
            let bound = libc::bind(fd.as_raw_fd(), (&raw const address).cast(), size_of_val(&address) as u32);
            (bound == 0).then_some(fd)
        };
        Links(socket)
    }

    /// Whether something has changed since the last call, or may have: where the kernel does not say so, always.
    pub fn changed(&self) -> bool {
        let Some(fd) = &self.0 else { return true };
        let mut changed = false;
        loop {
            let mut bytes = [0u8; 512];
            // SAFETY: writes into the array of this frame; the rest of a message is dropped.
            let read = unsafe { libc::recv(fd.as_raw_fd(), bytes.as_mut_ptr().cast(), bytes.len(), 0) };
            match read {
                // Some have been dropped, since nobody has read them.
                ..0 if errno() == libc::ENOBUFS => changed = true,
                ..=0 => return changed,
                _ => changed = true,
            }
        }
    }
}

fn mtu_bytes(interface: &CStr) -> Option<u32> {
    // SAFETY: plain system calls on a request of this frame; names are shorter than its field, or cut.
    unsafe {
        let fd = libc::socket(libc::AF_INET, libc::SOCK_DGRAM | libc::SOCK_CLOEXEC, 0);
        if fd < 0 {
            return None;
        }
        let fd = OwnedFd::from_raw_fd(fd);
        let mut request: libc::ifreq = mem::zeroed();
        for (to, &from) in request.ifr_name[..libc::IFNAMSIZ - 1].iter_mut().zip(interface.to_bytes()) {
            *to = from as libc::c_char;
        }
        let r = libc::ioctl(fd.as_raw_fd(), libc::SIOCGIFMTU as _, &mut request);
        (r == 0).then_some(request.ifr_ifru.ifru_mtu as u32)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A socket polls its device wherever the system takes that from anybody.
    #[test]
    fn looks_poll_the_device() {
        let at = SocketAddr::from(([127, 0, 0, 1], 0));
        let (ours, bare) = (socket(at).unwrap(), socket(at).unwrap());
        bind(&ours, at, 1 << 20, true).unwrap();
        let allowed = set(bare.as_raw_fd(), libc::SOL_SOCKET, libc::SO_BUSY_POLL, BUSY_POLL_US).is_ok();
        let (mut polls_us, mut length) = (0i32, size_of::<i32>() as u32);
        // SAFETY: an int and its length, on an open descriptor.
        let read = unsafe { libc::getsockopt(ours.as_raw_fd(), libc::SOL_SOCKET, libc::SO_BUSY_POLL, (&raw mut polls_us).cast(), &mut length) };
        assert_eq!((read, polls_us), (0, if allowed { BUSY_POLL_US } else { 0 }));
    }
}
