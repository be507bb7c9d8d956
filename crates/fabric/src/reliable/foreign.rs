//! Processes of other jobs, which know neither this job's key nor its process numbers.
//!
//! Each process has a key of its own for what such processes send to it ([`ForeignPeers::set_key`]); they learn it with its card. Their datagrams are
//! marked [`FOREIGN`], go to the number that the receiver has in its own job, and name the sender by its number and incarnation there. Here every such
//! process has a number beyond those of this job; [`ForeignPeers`] translates between the two.

use rustc_hash::FxHashMap;

use proto::reliability::PeerId;
use proto::reliability::wire::{FOREIGN, Header};

use super::protection::Guard;

/// Where the destination stands in a datagram's header.
const DESTINATION: std::ops::Range<usize> = 8..12;

/// One process of another job.
#[derive(Debug)]
struct ForeignPeer {
    /// Its number in its own job.
    number: u32,
    guard: Guard,
}

/// The processes of other jobs that this one may speak with.
#[derive(Debug)]
pub struct ForeignPeers {
    /// The first number beyond this job's own; `u32::MAX` while there are none.
    first: PeerId,
    /// The process of number `first + index`.
    all: Vec<ForeignPeer>,
    /// The same by number and incarnation in their own jobs.
    senders: FxHashMap<(u32, u32), PeerId>,
    /// Opens what they send to this process.
    own: Option<Guard>,
}

impl Default for ForeignPeers {
    fn default() -> ForeignPeers {
        ForeignPeers { first: u32::MAX, all: Vec::new(), senders: FxHashMap::default(), own: None }
    }
}

impl ForeignPeers {
    /// What opens the datagrams of processes of other jobs.
    pub fn set_key(&mut self, own: Guard) {
        self.own = Some(own);
    }

    /// Adds a process: number `number` and incarnation `epoch` in its own job, whose datagrams `guard` seals. Numbers `peer` follow each other. False where
    /// they do not, or another process has the same number and incarnation.
    pub fn add(&mut self, peer: PeerId, number: u32, epoch: u32, guard: Guard) -> bool {
        let follows = self.all.is_empty() || peer == self.first + self.all.len() as u32;
        if !follows || self.senders.contains_key(&(number, epoch)) {
            return false;
        }
        self.first = self.first.min(peer);
        self.senders.insert((number, epoch), peer);
        self.all.push(ForeignPeer { number, guard });
        true
    }

    #[inline]
    fn find(&self, peer: PeerId) -> Option<&ForeignPeer> {
        self.all.get(peer.checked_sub(self.first)? as usize)
    }

    /// What seals datagrams to `peer`, if that is a process of another job, and its number there.
    pub fn seals(&self, peer: PeerId) -> Option<(u32, &Guard)> {
        self.find(peer).map(|peer| (peer.number, &peer.guard))
    }

    /// Addresses a datagram to `peer` as its own job does, if that is a process of another job, and gives what seals it.
    #[inline]
    pub fn address(&self, peer: PeerId, header: &mut [u8]) -> Option<&Guard> {
        let peer = self.find(peer)?;
        header[1] |= FOREIGN;
        header[DESTINATION].copy_from_slice(&peer.number.to_le_bytes());
        Some(&peer.guard)
    }

    /// What opens datagrams of processes of other jobs, once there may be such.
    pub fn opens(&self) -> Option<&Guard> {
        self.own.as_ref()
    }

    /// Who has sent a datagram, by its sender's number and incarnation in its own job; `foreign`: it is marked so.
    #[inline]
    pub fn sender(&self, foreign: bool, (source, epoch): (u32, u32)) -> Option<PeerId> {
        match foreign {
            true => self.senders.get(&(source, epoch)).copied(),
            // A process of this job has no number beyond those.
            false => (source < self.first).then_some(source),
        }
    }

    /// Puts the number that the sender has here into the header of an authentic datagram. False where nobody knows the sender.
    #[inline]
    pub fn translate(&self, foreign: bool, header: &mut Header) -> bool {
        let sender = self.sender(foreign, (header.source, header.source_epoch));
        header.source = sender.unwrap_or(header.source);
        sender.is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::super::protection::{JobKey, Protection};
    use super::*;

    fn guard() -> Guard {
        Guard::new(&JobKey::new([7; 32]), Protection::Auth)
    }

    #[test]
    fn numbers_of_two_jobs_do_not_meet() {
        let mut peers = ForeignPeers::default();
        assert_eq!(peers.sender(false, (2, 9)), Some(2));
        assert_eq!(peers.sender(true, (2, 9)), None);
        assert!(peers.add(4, 2, 9, guard()) && peers.add(5, 2, 10, guard()));
        assert!(!peers.add(6, 2, 9, guard()), "the same number and incarnation");
        assert!(!peers.add(8, 3, 9, guard()), "numbers follow each other");
        assert_eq!((peers.sender(true, (2, 9)), peers.sender(true, (2, 10)), peers.sender(false, (2, 9))), (Some(4), Some(5), Some(2)));
        assert_eq!(peers.sender(false, (4, 9)), None, "no process of this job has that number");
        let mut header = [0; 48];
        assert!(peers.address(3, &mut header).is_none() && header == [0; 48]);
        assert!(peers.address(5, &mut header).is_some());
        assert_eq!((header[1], header[8]), (FOREIGN, 2));
    }
}
