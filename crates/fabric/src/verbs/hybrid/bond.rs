//! What is known of each peer: what it has earned, how far its connection is, and since when messages are numbered.

use proto::reliability::PeerId;
use rustc_hash::FxHashMap;

use super::earning::{Earned, Earning};
use super::handshake::Handshake;

#[derive(Debug, Default)]
pub struct Bond {
    pub earned: Earned,
    pub handshake: Handshake,
    /// Messages to it, and messages of it, are numbered.
    pub numbers: bool,
    pub numbered: bool,
    /// How often it has been allowed to leave more here.
    pub widened: u32,
    /// Of another job, which has connections to nobody here.
    pub foreign: bool,
    /// It stands among those that are to get a connection.
    pub wanted: bool,
    /// It matters whether it lives.
    pub watched: bool,
}

#[derive(Debug)]
pub struct Bonds {
    pub all: FxHashMap<PeerId, Bond>,
    pub earning: Earning,
    /// Peers that have earned a connection.
    pub wanted: Vec<PeerId>,
    /// Peers with a pair, and how many there may be.
    pub pairs: u32,
    pub pairs_max: u32,
    /// About now.
    pub now_ns: u64,
}

impl Bonds {
    pub fn new(earning: Earning, pairs_max: u32) -> Bonds {
        Bonds { all: FxHashMap::default(), earning, wanted: Vec::new(), pairs: 0, pairs_max, now_ns: 0 }
    }

    pub fn of(&mut self, peer: PeerId) -> &mut Bond {
        self.all.entry(peer).or_default()
    }

    /// Whether messages to `peer` are numbered.
    #[inline]
    pub fn numbers(&self, peer: PeerId) -> bool {
        self.all.get(&peer).is_some_and(|bond| bond.numbers)
    }

    /// Whether messages of `peer` are numbered.
    #[inline]
    pub fn is_numbered(&self, peer: PeerId) -> bool {
        self.all.get(&peer).is_some_and(|bond| bond.numbered)
    }

    /// Messages of `peer` are numbered from now on.
    pub fn number(&mut self, peer: PeerId) {
        self.of(peer).numbered = true;
    }

    /// Whether messages to `peer` take a connection.
    #[inline]
    pub fn is_open(&self, peer: PeerId) -> bool {
        self.all.get(&peer).is_some_and(|bond| bond.handshake.is_open() && bond.numbers)
    }

    /// A message of `bytes` has come.
    pub fn came(&mut self, peer: PeerId, bytes: u64) {
        self.count(peer, bytes, 0);
    }

    /// A message of `bytes` has gone or come, or is fetched, which counts `more`.
    #[inline]
    pub fn count(&mut self, peer: PeerId, bytes: u64, more: u32) {
        let (earning, now_ns) = (self.earning, self.now_ns);
        let bond = self.all.entry(peer).or_default();
        let earned = bond.earned.add(&earning, now_ns, bytes, more);
        if earned && !bond.handshake.is_begun() && !bond.foreign && !std::mem::replace(&mut bond.wanted, true) {
            self.wanted.push(peer);
        }
    }

    /// Whose connection has to make room for another one: the one that has earned least, if that is less than half of `weight`.
    pub fn least(&self, weight: u32) -> Option<PeerId> {
        let open = self.all.iter().filter(|(_, bond)| bond.handshake.is_open());
        let (least, peer) = open.map(|(&peer, bond)| (bond.earned.weight(&self.earning, self.now_ns), peer)).min()?;
        (least < weight / 2).then_some(peer)
    }

    /// Connections that nobody earns any more.
    pub fn idle(&self) -> Vec<PeerId> {
        let idle = self.all.iter().filter(|(_, bond)| bond.handshake.is_open() && !bond.earned.keeps(&self.earning, self.now_ns));
        let mut idle: Vec<PeerId> = idle.map(|(&peer, _)| peer).collect();
        idle.sort_unstable();
        idle
    }
}
