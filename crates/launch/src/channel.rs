//! Packets and the descriptors beside them, over a `SOCK_SEQPACKET` Unix socket. Used by both ends.

use crate::wire::{DESCRIPTORS_MAX, PACKET_BYTES_MAX};
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SendAncillaryBuffer, SendAncillaryMessage, SendFlags, SocketAddrUnix,
    SocketFlags, SocketType,
};
use std::io::{IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};

/// What arrived.
#[derive(Debug)]
pub enum Received {
    /// `length` bytes now stand at the buffer's start.
    Packet { length: usize, descriptors: Vec<OwnedFd> },
    /// The other end is gone.
    End,
}

/// Who is at the other end of a socket.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Peer {
    /// 0 if the process cannot be seen from this one's namespace. For a socket that was connected to: who listened.
    pub pid: i32,
    pub uid: u32,
}

/// Who is at the other end, as the kernel knows it.
pub fn peer(socket: BorrowedFd) -> std::io::Result<Peer> {
    let mut credentials = libc::ucred { pid: 0, uid: u32::MAX, gid: u32::MAX };
    let mut length = size_of::<libc::ucred>() as libc::socklen_t;
    // rustix's call takes a process out of sight for an error.
    // SAFETY: the kernel writes at most `length` bytes, which `credentials` has.
    let result = unsafe { libc::getsockopt(socket.as_raw_fd(), libc::SOL_SOCKET, libc::SO_PEERCRED, (&raw mut credentials).cast(), &mut length) };
    if result != 0 {
        return Err(std::io::Error::last_os_error());
    }
    Ok(Peer { pid: credentials.pid, uid: credentials.uid })
}

/// Connects to the socket `job` of the abstract namespace.
pub fn connect(job: &str) -> Result<OwnedFd, Errno> {
    let address = SocketAddrUnix::new_abstract_name(job.as_bytes())?;
    let socket = rustix::net::socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)?;
    rustix::io::retry_on_intr(|| rustix::net::connect(&socket, &address))?;
    Ok(socket)
}

/// As [`connect`], for the sake of the outcome: does not wait where many others wait to be let in.
pub fn try_connect(job: &str) -> Result<OwnedFd, Errno> {
    let address = SocketAddrUnix::new_abstract_name(job.as_bytes())?;
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = rustix::net::socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)?;
    rustix::net::connect(&socket, &address)?;
    Ok(socket)
}

/// Listens on the socket `job` of the abstract namespace; accepting never blocks.
pub fn listen(job: &str) -> Result<OwnedFd, Errno> {
    let address = SocketAddrUnix::new_abstract_name(job.as_bytes())?;
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = rustix::net::socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)?;
    rustix::net::bind(&socket, &address)?;
    rustix::net::listen(&socket, 4096)?;
    Ok(socket)
}

/// Sends one packet with its descriptors, all or nothing.
///
/// Errors: those of `sendmsg`; `ETOOMANYREFS` when too many descriptors of this user are in flight, which passes.
pub fn send(socket: BorrowedFd, packet: &[u8], descriptors: &[BorrowedFd]) -> Result<(), Errno> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTORS_MAX))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if !descriptors.is_empty() && !control.push(SendAncillaryMessage::ScmRights(descriptors)) {
        return Err(Errno::INVAL);
    }
    rustix::io::retry_on_intr(|| rustix::net::sendmsg(socket, &[IoSlice::new(packet)], &mut control, SendFlags::NOSIGNAL))?;
    Ok(())
}

/// Receives one packet into `buffer`, which must hold [`PACKET_BYTES_MAX`] bytes. Descriptors are close-on-exec.
///
/// Errors: those of `recvmsg`; `EMFILE` where this process may have no more descriptors; `EMSGSIZE` when packet or descriptors were cut.
pub fn receive(socket: BorrowedFd, buffer: &mut [u8]) -> Result<Received, Errno> {
    assert!(buffer.len() >= PACKET_BYTES_MAX, "a packet would be cut");
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTORS_MAX))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let message = rustix::io::retry_on_intr(|| rustix::net::recvmsg(socket, &mut [IoSliceMut::new(buffer)], &mut control, RecvFlags::CMSG_CLOEXEC))?;
    let mut descriptors = Vec::new();
    for control in control.drain() {
        if let RecvAncillaryMessage::ScmRights(rights) = control {
            descriptors.extend(rights);
        }
    }
    if message.flags.contains(ReturnFlags::CTRUNC) && descriptors.len() < DESCRIPTORS_MAX {
        // The system drops descriptors that find no place here.
        return Err(Errno::MFILE);
    }
    if message.flags.intersects(ReturnFlags::TRUNC | ReturnFlags::CTRUNC) {
        return Err(Errno::MSGSIZE);
    }
    // No packet of the protocol is empty, so nothing received means that the other end is gone.
    Ok(if message.bytes == 0 { Received::End } else { Received::Packet { length: message.bytes, descriptors } })
}
