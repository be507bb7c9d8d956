//! Packets and the descriptors beside them, over a `SOCK_SEQPACKET` Unix socket. Used by both ends.

use crate::wire::{DESCRIPTORS_MAX, PACKET_BYTES_MAX};
use rustix::event::{PollFd, PollFlags};
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SendAncillaryBuffer, SendAncillaryMessage, SendFlags, SocketAddrUnix,
    SocketFlags, SocketType,
};
use std::io::{IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};
use std::time::Instant;

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

/// Waits for a packet, or the end, until `deadline`: whether there is one.
pub fn wait(socket: BorrowedFd, deadline: Instant) -> Result<bool, Errno> {
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        let timeout = left.try_into().map_err(|_| Errno::INVAL)?;
        match rustix::event::poll(&mut [PollFd::new(&socket, PollFlags::IN)], Some(&timeout)) {
            Err(Errno::INTR) => {}
            ready => return ready.map(|ready| ready > 0),
        }
    }
}

/// Receives one packet into `buffer`, which must hold [`PACKET_BYTES_MAX`] bytes. Descriptors are close-on-exec.
///
/// Errors: those of `recvmsg`; `EMFILE` where this process may have no more descriptors; `EMSGSIZE` when packet or descriptors were cut.
pub fn receive(socket: BorrowedFd, buffer: &mut [u8]) -> Result<Received, Errno> {
    look_twice(|| receive_once(socket, buffer))
}

/// Linux looks first for a packet and then whether the other end is gone: one that sends and closes in between looks as if it had sent nothing. What it has
/// sent is there at the next look.
fn look_twice(mut look: impl FnMut() -> Result<Received, Errno>) -> Result<Received, Errno> {
    match look()? {
        Received::End => look(),
        packet => Ok(packet),
    }
}

fn receive_once(socket: BorrowedFd, buffer: &mut [u8]) -> Result<Received, Errno> {
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

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::AsFd;

    #[test]
    fn an_end_is_looked_at_twice() {
        let packet = || Ok(Received::Packet { length: 1, descriptors: Vec::new() });
        let mut looks = [Ok(Received::End), packet(), packet()].into_iter();
        assert!(matches!(look_twice(|| looks.next().unwrap()), Ok(Received::Packet { .. })));
        assert_eq!(looks.len(), 1);
        let mut looks = [Ok(Received::End), Ok(Received::End), packet()].into_iter();
        assert!(matches!(look_twice(|| looks.next().unwrap()), Ok(Received::End)));
    }

    /// Without the second look, about one end in twenty thousand came instead of the packet before it.
    #[test]
    fn what_is_sent_before_the_end_is_received() {
        const ROUNDS: usize = 2_000;
        let (give, take) = std::sync::mpsc::sync_channel::<OwnedFd>(0);
        let sender = std::thread::spawn(move || {
            for socket in take {
                send(socket.as_fd(), b"last words", &[]).unwrap();
            }
        });
        let mut buffer = vec![0; PACKET_BYTES_MAX];
        for round in 0..ROUNDS {
            let (theirs, mine) =
                rustix::net::socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC | SocketFlags::NONBLOCK, None).unwrap();
            give.send(theirs).unwrap();
            let received = loop {
                match receive(mine.as_fd(), &mut buffer) {
                    Err(Errno::AGAIN) => std::hint::spin_loop(),
                    other => break other.unwrap(),
                }
            };
            assert!(matches!(received, Received::Packet { length: 10, .. }), "round {round}: {received:?}");
        }
        drop(give);
        sender.join().unwrap();
    }
}
