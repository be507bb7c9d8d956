//! Processes of other jobs that this one may speak with (MPI-5.0 §11.9, §11.10). They are reached by datagrams, and have process numbers beyond those of
//! this job, which other processes know nothing of: to each other, processes name them by their [`Identity`].
//!
//! A process that is known stays known under its number for as long as this one lives, whether communicators with it come and go; so it is the same process
//! in all groups. [`FOREIGN_MAX`] limits how many there may be.

use crate::failed::Failed;
use crate::{Engine, Fault};
use fabric::Network;
use fabric::reliable::{JobKey, Protection};
use fabric::remote::RemotePeers;
use std::collections::HashMap;
use std::fmt;

/// Most processes of other jobs that one process may get to know while it lives.
pub const FOREIGN_MAX: usize = 1 << 16;
/// Longest card and name of a host that are read, bytes.
const CARD_BYTES_MAX: usize = 4096;
const HOST_BYTES_MAX: usize = 256;
/// Job, rank, protection, key, and the lengths of two texts.
const FIXED_BYTES: usize = 16 + 4 + 1 + 32 + 2 + 2;

/// Who a process is, among those of all jobs.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Identity {
    /// What all processes of its job have in common, and no other job has.
    pub job: [u8; 16],
    pub rank: u32,
}

impl Identity {
    pub const BYTES: usize = 20;

    pub fn to_bytes(self) -> [u8; Self::BYTES] {
        let mut bytes = [0; Self::BYTES];
        bytes[..16].copy_from_slice(&self.job);
        bytes[16..].copy_from_slice(&self.rank.to_le_bytes());
        bytes
    }

    pub fn from_bytes(bytes: &[u8; Self::BYTES]) -> Identity {
        let (job, rank) = bytes.split_first_chunk().expect("twenty bytes");
        Identity { job: *job, rank: u32::from_le_bytes(rank.try_into().expect("four bytes")) }
    }
}

/// What a process tells those of other jobs, so that they can reach it.
#[derive(Clone, PartialEq, Eq)]
pub struct BusinessCard {
    pub identity: Identity,
    /// Where it listens, and the name of its host. Empty where it is known to belong to the same job.
    pub card: String,
    pub host: String,
    /// What seals datagrams to it, and how.
    key: [u8; 32],
    protection: Protection,
}

impl fmt::Debug for BusinessCard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "BusinessCard({:?}, {:?}, {:?})", self.identity, self.card, self.host)
    }
}

impl BusinessCard {
    /// One of a process to others of its own job.
    pub fn within(identity: Identity) -> BusinessCard {
        BusinessCard { identity, card: String::new(), host: String::new(), key: [0; 32], protection: Protection::Auth }
    }

    pub fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = self.identity.to_bytes().to_vec();
        bytes.push(self.protection as u8);
        bytes.extend(self.key);
        for text in [&self.card, &self.host] {
            bytes.extend((text.len() as u16).to_le_bytes());
            bytes.extend(text.as_bytes());
        }
        bytes
    }

    /// Reads introductions that follow each other, at most [`FOREIGN_MAX`]. `None` where they are none.
    pub fn parse_all(mut bytes: &[u8]) -> Option<Vec<BusinessCard>> {
        let mut all = Vec::new();
        while !bytes.is_empty() {
            if all.len() == FOREIGN_MAX {
                return None;
            }
            let (one, rest) = BusinessCard::parse(bytes)?;
            all.push(one);
            bytes = rest;
        }
        Some(all)
    }

    fn parse(bytes: &[u8]) -> Option<(BusinessCard, &[u8])> {
        let (identity, rest) = bytes.split_first_chunk()?;
        let (&protection, rest) = rest.split_first()?;
        let protection = [Protection::Auth, Protection::Crc, Protection::Encrypt].into_iter().find(|known| *known as u8 == protection)?;
        let (key, rest) = rest.split_first_chunk()?;
        let text = |rest: &'_ [u8], most: usize| -> Option<(String, usize)> {
            let (length, rest) = rest.split_first_chunk()?;
            let length = u16::from_le_bytes(*length) as usize;
            let text = std::str::from_utf8(rest.get(..length)?).ok()?;
            (length <= most).then(|| (text.to_owned(), 2 + length))
        };
        let (card, taken) = text(rest, CARD_BYTES_MAX)?;
        let rest = &rest[taken..];
        let (host, taken) = text(rest, HOST_BYTES_MAX)?;
        Some((BusinessCard { identity: Identity::from_bytes(identity), card, host, key: *key, protection }, &rest[taken..]))
    }

    /// Longest of one in bytes.
    pub const BYTES_MAX: usize = FIXED_BYTES + CARD_BYTES_MAX + HOST_BYTES_MAX;
}

/// What this process is to those of other jobs, and which of them it knows.
#[derive(Debug)]
pub(crate) struct Connected {
    own: Identity,
    /// Processes of this job, to which numbers up to here belong.
    size: u32,
    /// The key for what others send to this process, once that is wanted.
    key: Option<JobKey>,
    /// In the order of their numbers, which begin with `size`.
    foreign: Vec<Identity>,
    numbers: HashMap<Identity, u32>,
}

impl Connected {
    pub fn new(own: Identity, size: u32) -> Connected {
        Connected { own, size, key: None, foreign: Vec::new(), numbers: HashMap::new() }
    }

    pub fn knows_any(&self) -> bool {
        !self.foreign.is_empty()
    }

    /// Who the process with a number is.
    pub fn identity(&self, process: u32) -> Identity {
        match process.checked_sub(self.size) {
            None => Identity { rank: process, ..self.own },
            Some(index) => self.foreign[index as usize],
        }
    }

    /// The number of a process, if it is known.
    pub fn number(&self, identity: Identity) -> Option<u32> {
        match identity.job == self.own.job {
            true => (identity.rank < self.size).then_some(identity.rank),
            false => self.numbers.get(&identity).copied(),
        }
    }

    /// Lets others send to this process through `engine`, whose network is open. What to tell them.
    pub fn business_card(&mut self, engine: &mut Engine, host: String, protection: Protection) -> Result<BusinessCard, Failed> {
        let remote = engine.network.as_mut().ok_or_else(|| launch::Error::new("the network is not open"))?;
        let key = match &self.key {
            Some(key) => key.clone(),
            None => {
                let key = JobKey::random().map_err(|error| launch::Error::new(format!("cannot get random bytes: {error}")))?;
                remote.set_foreign_key(&key, protection);
                self.key.insert(key).clone()
            }
        };
        let own_card = BusinessCard { identity: self.own, card: remote.card(), host, key: *key.bytes(), protection };
        match own_card.card.len() <= CARD_BYTES_MAX && own_card.host.len() <= HOST_BYTES_MAX {
            true => Ok(own_card),
            false => Err(launch::Error::new(format!("this process has too many addresses ({:?}): WHIMBREL_NET chooses some", own_card.card)).into()),
        }
    }

    /// The number of the process that has said this of itself; it gets one if it has none.
    pub fn connect_foreign(&mut self, engine: &mut Engine, one: &BusinessCard) -> Result<u32, Failed> {
        if let Some(number) = self.number(one.identity) {
            return match engine.peers[number as usize].failed {
                true => Err(launch::Error::new(format!("{} was connected to before and has failed", Named(one))).into()),
                false => Ok(number),
            };
        }
        if one.identity.job == self.own.job {
            return Err(launch::Error::new(format!("rank {} of this job is none of its {}", one.identity.rank, self.size)).into());
        }
        if self.foreign.len() == FOREIGN_MAX {
            return Err(launch::Error::new(format!("this process knows {FOREIGN_MAX} processes of other jobs: there may be no more")).into());
        }
        let remote = engine.network.as_mut().ok_or_else(|| launch::Error::new("the network is not open"))?;
        let number = remote.add_foreign(one.identity.rank, &one.card, &one.host, &JobKey::new(one.key), one.protection)?;
        let same = engine.add_foreign();
        debug_assert_eq!(number, same);
        if let Some(memory) = &mut engine.memory {
            memory.add_foreign();
        }
        self.foreign.push(one.identity);
        self.numbers.insert(one.identity, number);
        Ok(number)
    }
}

/// As messages call a process of another job.
struct Named<'a>(&'a BusinessCard);

impl fmt::Display for Named<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "rank {} of another job, on host {},", self.0.identity.rank, self.0.host)
    }
}

impl Engine {
    /// Opens the way to processes of other jobs, where there is no network yet: all processes of this job share memory.
    pub(crate) fn reach_foreign(&mut self, node: Network) -> Result<(), fabric::Error> {
        if self.network.is_none() {
            let nobody = Box::new(|process, _| Err(format!("process {process} shares this host's memory")));
            let remote = RemotePeers::new(node, self.config.processes, nobody)?;
            (**self).reach_foreign(Box::new(remote));
        }
        Ok(())
    }

    /// A communicator that has `process`, of another job, comes or goes: while there is none, it does not matter whether that process lives.
    pub fn link(&mut self, process: u32, comes: bool) {
        match comes {
            true => self.0.link(process),
            false => self.0.unlink(process),
        }
    }

    /// Whether something that `process` was sent has not arrived.
    pub fn is_unanswered(&self, process: u32) -> bool {
        let peer = &self.peers[process as usize];
        !peer.failed && (self.is_listed(process) || self.network.as_ref().is_some_and(|remote| remote.is_unanswered(process)))
    }

    /// Why `process` has failed, if it has.
    pub fn failure_of(&self, process: u32) -> Option<Fault> {
        self.peers[process as usize].failed.then(|| self.reason(process))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn card_of(rank: u32) -> BusinessCard {
        let identity = Identity { job: [9; 16], rank };
        BusinessCard { identity, card: "7 1 192.0.2.2/24:4711-1472".into(), host: "h".into(), key: [3; 32], protection: Protection::Encrypt }
    }

    #[test]
    fn introductions_survive_and_wrong_ones_are_refused() {
        let both = [card_of(1), card_of(2)];
        let bytes: Vec<u8> = both.iter().flat_map(BusinessCard::to_bytes).collect();
        assert_eq!(BusinessCard::parse_all(&bytes).unwrap(), both);
        for cut in 1..bytes.len() {
            let parsed = BusinessCard::parse_all(&bytes[..cut]);
            assert!(parsed.is_none_or(|some| some.len() == 1 && cut * 2 == bytes.len()), "{cut}");
        }
        let mut wrong = card_of(1).to_bytes();
        wrong[20] = 9;
        assert!(BusinessCard::parse_all(&wrong).is_none(), "an unknown protection");
        let long = BusinessCard { card: "x".repeat(CARD_BYTES_MAX + 1), ..card_of(1) };
        assert!(BusinessCard::parse_all(&long.to_bytes()).is_none(), "too long a card");
        assert!(BusinessCard { card: "x".repeat(CARD_BYTES_MAX), host: "y".repeat(HOST_BYTES_MAX), ..card_of(1) }.to_bytes().len() == BusinessCard::BYTES_MAX);
    }

    #[test]
    fn a_process_is_one_whatever_tells_of_it() {
        let own = Identity { job: [1; 16], rank: 0 };
        let mut connected = Connected::new(own, 2);
        assert_eq!((connected.number(Identity { rank: 1, ..own }), connected.number(Identity { rank: 2, ..own })), (Some(1), None));
        let other = Identity { job: [2; 16], rank: 1 };
        assert_eq!(connected.number(other), None);
        connected.foreign.push(other);
        connected.numbers.insert(other, 2);
        assert_eq!((connected.number(other), connected.identity(2), connected.identity(1).rank), (Some(2), other, 1));
    }

    proptest! {
        #[test]
        fn no_bytes_panic(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
            let _ = BusinessCard::parse_all(&bytes);
        }
    }
}
