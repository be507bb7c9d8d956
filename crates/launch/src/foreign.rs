//! A rank that another MPI's or a cluster's process manager has started.
//!
//! Such a manager keeps a store of values. Each rank leaves its [`Card`] there, rank 0 the job's key too; after the one
//! fence of a start, each rank reads the cards of those that the manager put on its node. Who shares its host as well is
//! local; cards of others are read when they are wanted.

use crate::host::{self, Card, Host};
use crate::segment_server::{self, SegmentRequest, SegmentServer};
use crate::store::{Job, Store};
use crate::wire::{KEY_BYTES_MAX, SECRET_BYTES, VALUE_BYTES_MAX};
use crate::{Error, last_line, secret, sys};
use std::collections::HashMap;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// How long a value may take that another rank left before the fence.
const VALUE_WITHIN: Duration = Duration::from_secs(60);
const CARD: &str = "card";
const KEY: &str = "key";
/// Longest name of a value, bytes.
pub const NAME_BYTES_MAX: usize = 32;

/// One rank's connection to a foreign process manager.
pub struct Foreign {
    store: Box<dyn Store>,
    manager: &'static str,
    job: Job,
    key: Option<[u8; SECRET_BYTES]>,
    server: Option<SegmentServer>,
    here: Host,
    cards: HashMap<u32, Card>,
    local_ranks: Vec<u32>,
    cores: u32,
    yielding_reaches: bool,
    finalized: bool,
    requests: Arc<Mutex<HashMap<u32, SegmentRequest>>>,
}

/// The ranks of this host, as far as their segments go: those are had without a word to the manager, which may be waiting for others.
#[derive(Clone)]
pub struct Neighbours {
    key: [u8; SECRET_BYTES],
    sockets: HashMap<u32, String>,
    /// Ranks that have been asked and have not answered.
    requests: Arc<Mutex<HashMap<u32, SegmentRequest>>>,
}

impl Neighbours {
    /// The segment of `rank`; `None` where that rank lives and has not answered `within` that time: the answer comes to a later call.
    ///
    /// Errors: the rank is not on this host, or is gone.
    pub fn fetch(&self, rank: u32, within: Duration) -> Result<Option<OwnedFd>, Error> {
        let socket = self.sockets.get(&rank).ok_or_else(|| Error::new(format!("rank {rank} shares no memory with this one")))?;
        let mut requests = self.requests.lock().unwrap_or_else(PoisonError::into_inner);
        let request = match requests.remove(&rank) {
            Some(request) => request,
            None => match SegmentRequest::begin(socket, rank, &self.key)? {
                Some(request) => request,
                None => return Ok(None),
            },
        };
        let answer = request.answer(within)?;
        if answer.is_none() {
            requests.insert(rank, request);
        }
        Ok(answer)
    }

    /// Whether `rank`, which is on this host, has ended. Does not block.
    pub fn has_ended(&self, rank: u32) -> bool {
        self.sockets.get(&rank).is_some_and(|socket| segment_server::is_closed(socket))
    }
}

/// How long all ranks may take to come to their `MPI_Init`; `None`: as long as they like.
fn start_within() -> Result<Option<Duration>, Error> {
    let seconds = params::START_TIMEOUT.value().map_err(|error| Error::new(error.to_string()))?;
    Ok((seconds > 0).then(|| Duration::from_secs(seconds as u64)))
}

/// How long a manager has to tell what a rank has left. It has all of it after the fence, unless that rank has ended.
fn value_within() -> Result<Duration, Error> {
    Ok(start_within()?.map_or(VALUE_WITHIN, |limit| limit.min(VALUE_WITHIN)))
}

/// How long a manager has to read a rank's last line.
const LAST_WORDS: Duration = Duration::from_millis(100);

impl Foreign {
    /// `manager` names it in messages.
    pub(crate) fn new(store: Box<dyn Store>, job: Job, manager: &'static str) -> Foreign {
        let local_ranks = vec![job.rank];
        let (here, cards) = (Host::here(), HashMap::new());
        Foreign {
            store,
            manager,
            job,
            key: None,
            server: None,
            here,
            cards,
            local_ranks,
            cores: 1,
            yielding_reaches: true,
            finalized: false,
            requests: Arc::default(),
        }
    }

    pub(crate) fn rank(&self) -> u32 {
        self.job.rank
    }

    pub(crate) fn size(&self) -> u32 {
        self.job.size
    }

    pub(crate) fn appnum(&self) -> i32 {
        self.job.appnum.max(0)
    }

    pub(crate) fn universe_size(&self) -> u32 {
        self.job.universe_size.max(self.job.size)
    }

    pub(crate) fn local_ranks(&self) -> &[u32] {
        &self.local_ranks
    }

    pub(crate) fn cores(&self) -> u32 {
        self.cores
    }

    pub(crate) fn yielding_reaches(&self) -> bool {
        self.yielding_reaches
    }

    pub(crate) fn manager(&self) -> &'static str {
        self.manager
    }

    pub(crate) fn key(&self) -> Option<&[u8; SECRET_BYTES]> {
        self.key.as_ref()
    }

    pub(crate) fn publish(&mut self, segment: BorrowedFd) -> Result<(), Error> {
        let server = SegmentServer::bind(self.job.rank, segment)?;
        let card = Card::here(server.name().to_owned());
        self.server = Some(server);
        self.put(CARD, &card.encode())?;
        self.here = card.host.clone();
        self.cards.insert(self.job.rank, card);
        Ok(())
    }

    pub(crate) fn put(&mut self, name: &str, value: &[u8]) -> Result<(), Error> {
        if name.is_empty() || name.len() > NAME_BYTES_MAX || !name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-') {
            return Err(Error::new(format!("{name:?} is no name of a value")));
        }
        const { assert!(NAME_BYTES_MAX < KEY_BYTES_MAX) };
        if value.len() > VALUE_BYTES_MAX {
            return Err(Error::new(format!("a value of {} bytes is too long (limit {VALUE_BYTES_MAX})", value.len())));
        }
        self.store.put(name, value)
    }

    pub(crate) fn get(&mut self, rank: u32, name: &str, timeout: Duration) -> Result<Vec<u8>, Error> {
        if rank >= self.job.size {
            return Err(Error::new(format!("there is no rank {rank}")));
        }
        if self.finalized {
            return Err(Error::new(format!("{} has been told that this process is done", self.manager)));
        }
        let value = self.store.get(rank, name, timeout)?;
        value.ok_or_else(|| Error::new(format!("rank {rank} left no {name:?} with {}", self.manager)))
    }

    /// See [`crate::Launcher::meet`].
    pub(crate) fn meet(&mut self) -> Result<(), Error> {
        let rank = self.job.rank;
        let own = if rank == 0 { Some(sys::random()?) } else { None };
        if let Some(key) = own.as_ref().filter(|_| self.job.size > 1) {
            self.put(KEY, &secret::written(key)?)?;
        }
        self.store.fence(start_within()?)?;
        let key = match own {
            Some(key) => key,
            None => secret::read(&self.get(0, KEY, value_within()?)?)?,
        };
        self.key = Some(key);
        let candidates = self.job.local_ranks.clone().unwrap_or_else(|| (0..self.job.size).collect());
        let mut local = Vec::new();
        for other in candidates {
            let here = self.here.clone();
            if other == rank || self.card(other)?.host.shares_memory_with(&here) {
                local.push(other);
            }
        }
        self.cores = host::processors(local.iter().filter_map(|rank| self.cards.get(rank)));
        self.yielding_reaches = host::yielding_reaches(local.iter().filter_map(|rank| self.cards.get(rank)));
        self.local_ranks = local;
        match self.server.take() {
            Some(server) if self.local_ranks.len() > 1 => server.serve(rank, key),
            _ => Ok(()),
        }
    }

    /// See [`crate::Launcher::fence`].
    pub(crate) fn fence(&mut self) -> Result<(), Error> {
        self.store.fence(None)
    }

    pub(crate) fn host(&mut self, rank: u32) -> Result<Host, Error> {
        Ok(self.card(rank)?.host.clone())
    }

    pub(crate) fn fetch(&mut self, rank: u32, within: Duration) -> Result<Option<OwnedFd>, Error> {
        if self.local_ranks.binary_search(&rank).is_err() {
            let there = self.host(rank)?;
            return Err(Error::new(format!("rank {rank} shares no memory with this one: it runs on host {}", there.name)));
        }
        self.neighbours().ok_or_else(|| Error::new("the job has no key yet"))?.fetch(rank, within)
    }

    /// See [`crate::Launcher::neighbours`].
    pub(crate) fn neighbours(&self) -> Option<Neighbours> {
        let sockets = self.local_ranks.iter().filter_map(|rank| Some((*rank, self.cards.get(rank)?.socket.clone())));
        Some(Neighbours { key: self.key?, sockets: sockets.collect(), requests: self.requests.clone() })
    }

    pub(crate) fn finalized(&mut self) -> Result<(), Error> {
        // The last of several sessions may end more than once.
        if std::mem::replace(&mut self.finalized, true) { Ok(()) } else { self.store.finalize() }
    }

    pub(crate) fn abort(&mut self, code: i32, message: &str) -> ! {
        // The manager may end this process before the line below it is written.
        last_line::print(&format!("whimbrel: {message}"));
        // It reads that line through a pipe, and may drop what it has not read when it ends the job.
        std::thread::sleep(LAST_WORDS);
        if !self.finalized {
            self.store.abort(if code & 0xff == 0 { 1 } else { code }, message);
        }
        std::process::exit(if code & 0xff == 0 { 1 } else { code })
    }

    fn card(&mut self, rank: u32) -> Result<&Card, Error> {
        if !self.cards.contains_key(&rank) {
            let card = Card::parse(&self.get(rank, CARD, value_within()?)?)?;
            self.cards.insert(rank, card);
        }
        Ok(&self.cards[&rank])
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::AsFd;
    use std::sync::{Arc, Barrier, Mutex};

    type Values = Arc<Mutex<HashMap<(u32, String), Vec<u8>>>>;

    struct Memory {
        rank: u32,
        values: Values,
        barrier: Arc<Barrier>,
        /// Replaces what this rank says of itself.
        pretend: fn(Card) -> Card,
        finalized: Arc<Mutex<u32>>,
    }

    impl Store for Memory {
        fn put(&mut self, name: &str, value: &[u8]) -> Result<(), Error> {
            let value = if name == CARD { (self.pretend)(Card::parse(value)?).encode() } else { value.to_vec() };
            self.values.lock().unwrap().insert((self.rank, name.to_owned()), value);
            Ok(())
        }
        fn fence(&mut self, _: Option<Duration>) -> Result<(), Error> {
            self.barrier.wait();
            Ok(())
        }
        fn get(&mut self, rank: u32, name: &str, _: Duration) -> Result<Option<Vec<u8>>, Error> {
            Ok(self.values.lock().unwrap().get(&(rank, name.to_owned())).cloned())
        }
        fn finalize(&mut self) -> Result<(), Error> {
            *self.finalized.lock().unwrap() += 1;
            Ok(())
        }
        fn abort(&mut self, _: i32, _: &str) {}
    }

    /// Ranks whose manager puts those of `nodes` together, each on a thread.
    fn world<T: Send>(local: [Option<Vec<u32>>; 3], pretend: [fn(Card) -> Card; 3], run: impl Fn(Foreign) -> T + Sync) -> Vec<T> {
        let (values, barrier) = (Values::default(), Arc::new(Barrier::new(3)));
        let ranks = local.into_iter().zip(pretend).enumerate().map(|(rank, (local_ranks, pretend))| {
            let rank = rank as u32;
            let store = Memory { rank, values: values.clone(), barrier: barrier.clone(), pretend, finalized: Arc::default() };
            Foreign::new(Box::new(store), Job { rank, size: 3, appnum: -1, universe_size: 0, local_ranks }, "the test")
        });
        let ranks: Vec<Foreign> = ranks.collect();
        std::thread::scope(|scope| {
            let run = &run;
            let threads: Vec<_> = ranks.into_iter().map(|rank| scope.spawn(move || run(rank))).collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).collect()
        })
    }

    fn met(mut rank: Foreign) -> Foreign {
        let memory = rustix::fs::memfd_create("test", rustix::fs::MemfdFlags::CLOEXEC).unwrap();
        rustix::io::write(&memory, &rank.rank().to_le_bytes()).unwrap();
        rank.publish(memory.as_fd()).unwrap();
        rank.meet().unwrap();
        rank
    }

    fn elsewhere(card: Card) -> Card {
        Card { host: Host { network: (0, 0), name: "far".into(), ..card.host }, ..card }
    }

    #[test]
    fn ranks_of_one_host_get_each_others_segments_and_one_key() {
        let keys = world([None, Some(vec![0, 1, 2]), None], [|c| c; 3], |rank| {
            let mut rank = met(rank);
            assert_eq!(rank.local_ranks(), [0, 1, 2]);
            assert!(rank.cores() >= 1);
            let own = rank.rank();
            for other in (0..3).filter(|other| *other != own) {
                let mut found = [0; 4];
                let segment = loop {
                    match rank.fetch(other, Duration::ZERO).unwrap() {
                        Some(segment) => break segment,
                        None => std::thread::yield_now(),
                    }
                };
                rustix::io::pread(segment, &mut found, 0).unwrap();
                assert_eq!(u32::from_le_bytes(found), other);
            }
            rank.put("more", &[own as u8]).unwrap();
            rank.store.fence(None).unwrap();
            assert_eq!(rank.get(2, "more", VALUE_WITHIN), Ok(vec![2]));
            assert!(rank.get(2, "nothing", VALUE_WITHIN).unwrap_err().to_string().contains("rank 2"));
            assert!(rank.get(3, "more", VALUE_WITHIN).is_err());
            *rank.key().unwrap()
        });
        assert!(keys.iter().all(|key| *key == keys[0] && *key != [0; SECRET_BYTES]));
    }

    #[test]
    fn both_manager_and_host_decide_who_is_local() {
        let own: fn(Card) -> Card = |card| card;
        let local = world([None, None, None], [own, elsewhere, own], |rank| met(rank).local_ranks().to_vec());
        assert_eq!((local[0].as_slice(), local[2].as_slice()), (&[0, 2][..], &[0, 2][..]));
        let split = [Some(vec![0]), Some(vec![1, 2]), Some(vec![1, 2])];
        let told = world(split, [own; 3], |rank| {
            let mut rank = met(rank);
            let error = if rank.rank() == 0 { Some(rank.fetch(2, Duration::ZERO).unwrap_err().to_string()) } else { None };
            (rank.local_ranks().to_vec(), error)
        });
        assert_eq!((told[0].0.as_slice(), told[1].0.as_slice()), (&[0][..], &[1, 2][..]));
        assert!(told[0].1.as_ref().unwrap().contains("rank 2 shares no memory"));
    }

    #[test]
    fn finalizing_twice_tells_once() {
        let count = Arc::new(Mutex::new(0));
        let store = Memory { rank: 0, values: Values::default(), barrier: Arc::new(Barrier::new(1)), pretend: |card| card, finalized: count.clone() };
        let job = Job { rank: 0, size: 1, appnum: 2, universe_size: 7, local_ranks: None };
        let mut rank = met(Foreign::new(Box::new(store), job, "the test"));
        assert_eq!((rank.appnum(), rank.universe_size()), (2, 7));
        rank.finalized().unwrap();
        rank.finalized().unwrap();
        assert_eq!(*count.lock().unwrap(), 1);
        assert!(rank.get(0, CARD, VALUE_WITHIN).is_err());
        assert!(rank.put("a b", b"").is_err() && rank.put("a", &vec![0; VALUE_BYTES_MAX + 1]).is_err());
    }
}
