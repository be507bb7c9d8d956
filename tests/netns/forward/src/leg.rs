//! Sockets that take and give whole frames of one interface.

use std::io;
use std::mem;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

/// Longest frame, bytes: an Ethernet's with jumbo frames.
pub const FRAME_BYTES_MAX: usize = 9216;
const BATCH: usize = 64;
const SOCKET_BYTES: libc::c_int = 32 << 20;

/// One interface, and its place: host `host` on rail `rail`.
pub struct Leg {
    pub rail: u8,
    pub host: u8,
    socket: OwnedFd,
}

impl Leg {
    /// Opens `RAIL:HOST:INTERFACE`. Errors: no such words, interface or right.
    pub fn open(words: &str) -> Result<Leg, String> {
        let mut parts = words.splitn(3, ':');
        let mut number = || parts.next()?.parse::<u8>().ok();
        let (Some(rail), Some(host)) = (number(), number()) else {
            return Err(format!("{words}: not RAIL:HOST:INTERFACE"));
        };
        let name = parts.next().ok_or_else(|| format!("{words}: no interface"))?;
        let socket = open_packet_socket(name).map_err(|error| format!("{name}: {error}"))?;
        Ok(Leg { rail, host, socket })
    }

    pub fn fd(&self) -> i32 {
        self.socket.as_raw_fd()
    }

    /// Takes frames that have come. Errors: the interface has gone.
    pub fn receive(&self, into: &mut Batch) -> io::Result<usize> {
        for header in &mut into.headers {
            header.msg_hdr.msg_flags = 0;
        }
        // SAFETY: the headers point at vectors of `into`, which point at its buffer, all as long as they say.
        let got = unsafe { libc::recvmmsg(self.fd(), into.headers.as_mut_ptr(), BATCH as u32, libc::MSG_DONTWAIT as _, std::ptr::null_mut()) };
        match got {
            0.. => Ok(got as usize),
            _ if io::Error::last_os_error().kind() == io::ErrorKind::WouldBlock => Ok(0),
            _ => Err(io::Error::last_os_error()),
        }
    }

    /// Sends frames; what the interface does not take is lost. How many it took.
    pub fn send(&self, frames: &[&[u8]]) -> usize {
        let mut taken = 0;
        for some in frames.chunks(BATCH) {
            let mut vectors: [libc::iovec; BATCH] = std::array::from_fn(|i| {
                let frame = some.get(i).copied().unwrap_or(&[]);
                libc::iovec { iov_base: frame.as_ptr() as *mut _, iov_len: frame.len() }
            });
            // SAFETY: zeros are a header without parts.
            let mut headers: [libc::mmsghdr; BATCH] = unsafe { mem::zeroed() };
            for (header, vector) in headers.iter_mut().zip(&mut vectors) {
                header.msg_hdr.msg_iov = vector;
                header.msg_hdr.msg_iovlen = 1;
            }
            let mut first = 0;
            while first < some.len() {
                // SAFETY: the headers from `first` on point at vectors, those at frames that outlive the call.
                let sent = unsafe { libc::sendmmsg(self.fd(), headers[first..].as_mut_ptr(), (some.len() - first) as u32, libc::MSG_DONTWAIT as _) };
                taken += sent.max(0) as usize;
                // Past the one that was refused.
                first += if sent < 0 { 1 } else { sent as usize };
            }
        }
        taken
    }

    /// Frames that came while this process was too slow.
    pub fn overrun(&self) -> u64 {
        #[repr(C)]
        #[derive(Default)]
        struct Statistics {
            packets: u32,
            drops: u32,
        }
        let mut found = Statistics::default();
        let mut length = mem::size_of::<Statistics>() as libc::socklen_t;
        // SAFETY: the kernel writes at most `length` bytes.
        unsafe {
            libc::getsockopt(self.fd(), libc::SOL_PACKET, libc::PACKET_STATISTICS, (&raw mut found).cast(), &mut length);
        }
        u64::from(found.drops)
    }
}

/// Room for the frames of one system call.
pub struct Batch {
    headers: Vec<libc::mmsghdr>,
    _vectors: Box<[libc::iovec]>,
    bytes: Vec<u8>,
}

impl Batch {
    pub fn new() -> Self {
        let mut bytes = vec![0; BATCH * FRAME_BYTES_MAX];
        let base = bytes.as_mut_ptr();
        let mut vectors: Box<[libc::iovec]> = (0..BATCH)
            // SAFETY: within the buffer.
            .map(|i| libc::iovec { iov_base: unsafe { base.add(i * FRAME_BYTES_MAX) }.cast(), iov_len: FRAME_BYTES_MAX })
            .collect();
        let headers = vectors
            .iter_mut()
            .map(|vector| {
                // SAFETY: zeros are a header without parts.
                let mut header: libc::mmsghdr = unsafe { mem::zeroed() };
                header.msg_hdr.msg_iov = vector;
                header.msg_hdr.msg_iovlen = 1;
                header
            })
            .collect();
        Batch { headers, _vectors: vectors, bytes }
    }

    /// The first `count` frames; those that were longer than a frame can be are empty.
    pub fn frames(&mut self, count: usize) -> impl Iterator<Item = &mut [u8]> {
        let lengths = self.headers.iter().take(count).map(|header| {
            let whole = header.msg_hdr.msg_flags & libc::MSG_TRUNC == 0;
            if whole { header.msg_len as usize } else { 0 }
        });
        self.bytes.chunks_mut(FRAME_BYTES_MAX).zip(lengths).map(|(room, length)| &mut room[..length])
    }
}

fn open_packet_socket(name: &str) -> io::Result<OwnedFd> {
    let every = (libc::ETH_P_ALL as u16).to_be();
    let name = std::ffi::CString::new(name)?;
    // SAFETY: a call with a string that ends.
    let index = unsafe { libc::if_nametoindex(name.as_ptr()) };
    if index == 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: a call without memory. Protocol 0: nothing comes before the socket is bound to its interface.
    let socket = unsafe { libc::socket(libc::AF_PACKET, libc::SOCK_RAW | libc::SOCK_CLOEXEC, 0) };
    if socket < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: fresh, and nobody else's.
    let socket = unsafe { OwnedFd::from_raw_fd(socket) };
    let option = |level, name, value: libc::c_int| {
        // SAFETY: the kernel reads one int.
        let set = unsafe { libc::setsockopt(socket.as_raw_fd(), level, name, (&raw const value).cast(), 4) };
        if set == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
    };
    option(libc::SOL_PACKET, libc::PACKET_IGNORE_OUTGOING, 1)?;
    option(libc::SOL_PACKET, libc::PACKET_QDISC_BYPASS, 1)?;
    // Beyond the system's limit only where that is allowed.
    option(libc::SOL_SOCKET, libc::SO_RCVBUFFORCE, SOCKET_BYTES).or_else(|_| option(libc::SOL_SOCKET, libc::SO_RCVBUF, SOCKET_BYTES))?;
    option(libc::SOL_SOCKET, libc::SO_SNDBUFFORCE, SOCKET_BYTES).or_else(|_| option(libc::SOL_SOCKET, libc::SO_SNDBUF, SOCKET_BYTES))?;
    // SAFETY: zeros are an address of no family.
    let mut address: libc::sockaddr_ll = unsafe { mem::zeroed() };
    address.sll_family = libc::AF_PACKET as u16;
    address.sll_protocol = every;
    address.sll_ifindex = index as i32;
    // SAFETY: the address is as long as it says.
    let bound = unsafe { libc::bind(socket.as_raw_fd(), (&raw const address).cast(), mem::size_of::<libc::sockaddr_ll>() as u32) };
    if bound == 0 { Ok(socket) } else { Err(io::Error::last_os_error()) }
}
