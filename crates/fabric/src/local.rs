//! Node-local peers as a transport: packets through rings, cooperative copies, gets and puts in memory that processes of one host share. The member that
//! this build has is named here and nowhere above.

pub use crate::shm::area::{COOPERATIVE_PIECES_MAX, Cooperative, LINE_WORDS, Line, Side};
pub use crate::shm::copier::Copier;
pub use crate::shm::requests::{Answerer, Asker, DEPTH as REQUESTS_PENDING_MAX, REQUEST_WORDS};
pub use crate::shm::ring::Long;
pub use crate::shm::slots;
pub use crate::shm::{
    ANSWER_WITHIN, Begun, COOPERATIVES, Config, Doorbell, Looker, PIECES_PER_CALL, Packet, Resolver, SharedBytes, SharedMemory, SharedName, Sleepers, VCIS,
    copy_brought, copy_from_end, copy_streaming, switches, yield_core,
};

use crate::{Body, Error, Fabric, Refused};
use proto::p2p::{Descriptor, Memory};

/// The processes that share this host's memory.
pub type LocalPeers = crate::shm::Shm;

impl Memory for LocalPeers {
    type Error = Error;
    type Descriptor = &'static Cooperative;

    #[inline]
    fn send(&mut self, peer: u32, head: [u64; 2], words: &[u64]) -> Result<(), Refused> {
        Fabric::send(self, peer, head, words, Body::EMPTY)
    }

    #[inline]
    fn body_bytes_max(&self) -> usize {
        self.capabilities().body_bytes_max
    }

    #[inline]
    fn remote_read(&self) -> bool {
        self.capabilities().remote_read
    }

    #[inline]
    fn reachable(&mut self, peer: u32) -> bool {
        LocalPeers::reachable(self, peer)
    }

    fn unreachable(&mut self, peer: u32) {
        LocalPeers::unreachable(self, peer);
    }

    fn maps(&mut self, peer: u32, address: u64, bytes: usize) -> bool {
        LocalPeers::maps_at(self, peer, address, bytes)
    }

    #[inline]
    fn comes(&self, peer: u32) -> Option<([u64; 2], usize)> {
        LocalPeers::comes(self, peer)
    }

    #[inline]
    fn body_bytes_max_to(&self, peer: u32) -> usize {
        LocalPeers::body_bytes_max_to(self, peer)
    }

    #[inline]
    fn waits(&self, peer: u32) -> bool {
        LocalPeers::waits(self, peer)
    }

    #[inline]
    fn has_room(&mut self, peer: u32, bytes: usize) -> bool {
        LocalPeers::has_room(self, peer, bytes)
    }

    fn refuse(&mut self, peer: u32) {
        LocalPeers::refuse(self, peer);
    }

    #[inline]
    fn credit(&self, peer: u32) -> u64 {
        LocalPeers::credit(self, peer)
    }

    #[inline]
    fn give_credit(&mut self, peer: u32, bytes: u64, step_bytes: u64) {
        LocalPeers::give_credit(self, peer, bytes, step_bytes);
    }

    #[inline]
    fn cooperative(&mut self, owner: u32, slot: u64) -> Result<&'static Cooperative, Error> {
        LocalPeers::cooperative(self, owner, slot)
    }
}

/// Forwards what the machine asks of a descriptor to the one in shared memory.
macro_rules! forward {
    ($($name:ident($($argument:ident: $kind:ty),*) -> $result:ty;)*) => {
        impl Descriptor for &'static Cooperative {
            $(#[inline]
            fn $name(self, $($argument: $kind),*) -> $result {
                Cooperative::$name(self, $($argument),*)
            })*
        }
    };
}

forward! {
    say_through_ring(through_ring: bool) -> ();
    goes_through_ring() -> bool;
    open(generation: u32) -> ();
    begin(generation: u32) -> ();
    begin_open(generation: u32) -> bool;
    begun(generation: u32) -> bool;
    reopen(generation: u32) -> ();
    withdraw(generation: u32) -> bool;
    claim(generation: u32, pieces: u32, side: Side) -> Option<u32>;
    finish() -> u32;
    fail() -> ();
    failed() -> bool;
    finished() -> u32;
    finished_under(generation: u32) -> Option<u32>;
}
