//! The pin-down cache: memory stays registered after its transfer, since it will likely be sent from again.
//!
//! After the Dynamic Memory Engine of paper 001 (§2.4.2): reference counts, deregistration put off until the room is needed, the
//! entry unused for the longest time first. What the paper names as its limit is lifted: a buffer anywhere inside a registered
//! one hits.
//!
//! - *Search*: entries that can be found are kept by their start, and none lies within another. Then their ends are in the same
//!   order, and the entry that contains a range, if there is one, is the last that begins at or before it: one search in a
//!   B-tree. The entry of the last hit is tried first.
//! - *Neighbours* (touching or overlapping) that nobody uses are registered anew together with a range that was not found, where
//!   they are not longer than what they join. So a page is registered again at most log2(pages of the whole) times, however an
//!   array is walked through.
//! - *Limits*: bytes and entries, those in use included. Where entries in use leave no room, [`Refused::Busy`] says so, and
//!   nothing is evicted in vain: the caller copies, or waits for a release.
//! - *Invalidation* ([`PinDownCache::invalidate`]): entries that overlap a range are not found any more when the call returns.
//!   Unused ones are deregistered at once; of those in use [`PinDownCache::is_valid`] tells, and their last release deregisters
//!   them.
//!
//! Whoever is told that memory goes away calls `invalidate` before the memory can be used otherwise: [`crate::monitor::Watched`].

#![forbid(unsafe_code)]

use crate::lru::Lru;
use std::collections::BTreeMap;
use std::fmt;
use std::ops::Range;

/// Why a registrar did not register.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Failure {
    /// Too much is registered already (locked memory, entries of the device).
    NoRoom,
    /// There is no memory there, or none that may be used so.
    BadMemory,
}

/// What makes memory accessible to a device: an adapter, the kernel's `mlock`, a simulated device.
pub trait Registrar {
    type Key: Copy;

    /// Pins the pages of `range` (whole pages) until the key is given back. Ranges may overlap, and each counts on its own: giving
    /// back one key leaves the pages of the others pinned. (`mlock` does not count, so that a registrar upon it must.)
    fn register(&mut self, range: Range<usize>) -> Result<Self::Key, Failure>;

    /// Called once for each key, with the range it was made for. The memory may be gone.
    fn deregister(&mut self, key: Self::Key, range: Range<usize>);
}

/// Why there is no key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refused {
    /// The range alone is more than all that may be pinned.
    TooLong,
    /// Entries in use leave no room: copy, or try again after a release.
    Busy,
    /// The device has no room, although all unused entries have been given up.
    DeviceFull,
    /// The range is empty, or no memory.
    BadMemory,
    /// Nobody would tell that this memory has changed: it can be registered for one transfer, and must not be kept.
    Unwatched,
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Refused::TooLong => "longer than all memory that may be registered",
            Refused::Busy => "all memory that may be registered is in use",
            Refused::DeviceFull => "the device registers no more memory",
            Refused::BadMemory => "no memory there that can be registered",
            Refused::Unwatched => "memory whose changes nobody tells of",
        })
    }
}

impl std::error::Error for Refused {}

/// What a cache may hold. Its own memory is about 150 bytes an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Registered bytes, in whole pages.
    pub bytes_max: usize,
    pub entries_max: usize,
    /// A power of two.
    pub page_bytes: usize,
}

/// Everything since the cache was made, but for the last three.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Ranges found, those in the entry of the last hit among them, and ranges not found.
    pub hits: u64,
    pub front_hits: u64,
    pub misses: u64,
    /// Keys made and given back.
    pub registrations: u64,
    pub deregistrations: u64,
    /// Keys given back: for room, joined with a neighbour, invalidated, within a longer entry that was made since.
    pub evictions: u64,
    pub joined: u64,
    pub invalidations: u64,
    pub superseded: u64,
    /// Registrations of which no second use was made before they were given back: they did not pay. Joined ones are not judged.
    pub used_once: u64,
    /// Ranges for which there was no key.
    pub refused: u64,
    /// Bytes registered now and at most, and those of them in use.
    pub bytes: usize,
    pub bytes_most: usize,
    pub bytes_in_use: usize,
}

/// A use of an entry. Give it back with [`PinDownCache::release`].
#[derive(Debug)]
#[must_use = "an entry that is not released stays in use for ever"]
pub struct Lease<K> {
    entry: u32,
    serial: u64,
    key: K,
}

impl<K: Copy> Lease<K> {
    /// What the device wants to see beside an address of the range.
    pub fn key(&self) -> K {
        self.key
    }
}

struct Entry<K> {
    range: Range<usize>,
    key: K,
    /// Leases that are out.
    users: u32,
    /// Leases that were ever given.
    uses: u64,
    /// Told apart from others that had its place.
    serial: u64,
    /// It is in `by_start`.
    is_found: bool,
    /// Its memory may be gone.
    is_stale: bool,
}

impl<K> Entry<K> {
    fn contains(&self, range: &Range<usize>) -> bool {
        self.range.start <= range.start && range.end <= self.range.end
    }
}

/// Registered memory of one process and one device.
pub struct PinDownCache<R: Registrar> {
    registrar: R,
    limits: Limits,
    entries: Vec<Option<Entry<R::Key>>>,
    free: Vec<u32>,
    /// Entries that can be found, by the start of their range.
    by_start: BTreeMap<usize, u32>,
    /// Those of them that nobody uses.
    unused: Lru,
    /// Entries in use that cannot be found: stale, or within a longer one.
    hidden: Vec<u32>,
    front: u32,
    /// Entries with a key, and those of them in use.
    registered: usize,
    in_use: usize,
    serial: u64,
    counters: Counters,
}

impl<R: Registrar> PinDownCache<R> {
    pub fn new(registrar: R, limits: Limits) -> PinDownCache<R> {
        debug_assert!(limits.page_bytes.is_power_of_two());
        PinDownCache {
            registrar,
            limits,
            entries: Vec::new(),
            free: Vec::new(),
            by_start: BTreeMap::new(),
            unused: Lru::new(),
            hidden: Vec::new(),
            front: 0,
            registered: 0,
            in_use: 0,
            serial: 0,
            counters: Counters::default(),
        }
    }

    pub fn counters(&self) -> &Counters {
        &self.counters
    }

    pub fn registrar(&self) -> &R {
        &self.registrar
    }

    /// A key for the addresses of `range`, registered now if no entry contains them.
    ///
    /// Errors: there is no room, or no memory; nothing that is in use has changed.
    #[inline]
    pub fn acquire(&mut self, range: Range<usize>) -> Result<Lease<R::Key>, Refused> {
        if let Some(Some(entry)) = self.entries.get(self.front as usize)
            && entry.is_found
            && entry.contains(&range)
            && !range.is_empty()
        {
            self.counters.front_hits += 1;
            self.counters.hits += 1;
            return Ok(self.lease(self.front));
        }
        self.search(range)
    }

    fn search(&mut self, range: Range<usize>) -> Result<Lease<R::Key>, Refused> {
        let Some(pages) = self.whole_pages(&range) else {
            self.counters.refused += 1;
            return Err(Refused::BadMemory);
        };
        if let Some(at) = self.containing(&pages) {
            self.counters.hits += 1;
            self.front = at;
            return Ok(self.lease(at));
        }
        self.counters.misses += 1;
        match self.register(pages) {
            Ok(at) => {
                self.front = at;
                Ok(self.lease(at))
            }
            Err(refused) => {
                self.counters.refused += 1;
                Err(refused)
            }
        }
    }

    /// Whether an entry contains the addresses of `range`. Nothing is counted.
    pub fn has(&self, range: Range<usize>) -> bool {
        self.whole_pages(&range).is_some_and(|pages| self.containing(&pages).is_some())
    }

    /// The entry that contains these pages.
    fn containing(&self, pages: &Range<usize>) -> Option<u32> {
        let before = self.by_start.range(..=pages.start).next_back();
        before.map(|(_, &at)| at).filter(|&at| self.entry(at).contains(pages))
    }

    /// The transfer is over. The memory stays registered until its room is needed or it is invalidated.
    pub fn release(&mut self, lease: Lease<R::Key>) {
        let entry = self.entries[lease.entry as usize].as_mut().expect("a leased entry");
        assert_eq!(entry.serial, lease.serial, "a lease of another cache");
        entry.users -= 1;
        if entry.users > 0 {
            return;
        }
        self.in_use -= 1;
        self.counters.bytes_in_use -= entry.range.len();
        if entry.is_found {
            self.unused.touch(lease.entry);
        } else {
            self.hidden.retain(|&at| at != lease.entry);
            self.give_back(lease.entry, true);
        }
    }

    /// False once the memory of the lease has been invalidated: what a transfer has brought there since is nobody's data.
    pub fn is_valid(&self, lease: &Lease<R::Key>) -> bool {
        let entry = self.entry(lease.entry);
        entry.serial == lease.serial && !entry.is_stale
    }

    /// What the lease's entry has registered.
    pub(crate) fn range_of(&self, lease: &Lease<R::Key>) -> Range<usize> {
        self.entry(lease.entry).range.clone()
    }

    /// The whole pages of a range that has been found.
    pub(crate) fn pages(&self, range: &Range<usize>) -> Range<usize> {
        self.whole_pages(range).unwrap_or_else(|| range.clone())
    }

    /// The pages of `range` may be other ones from now on, or none: no key from before is given out for them again.
    pub fn invalidate(&mut self, range: Range<usize>) {
        let Some(pages) = self.whole_pages(&range) else { return };
        for &at in &self.hidden {
            let entry = self.entries[at as usize].as_mut().expect("an entry in use");
            if overlap(&entry.range, &pages) && !entry.is_stale {
                entry.is_stale = true;
                self.counters.invalidations += 1;
            }
        }
        // Ends are in the order of starts.
        let found = self.by_start.range(..pages.end).rev().map(|(_, &at)| at);
        let all: Vec<u32> = found.take_while(|&at| self.entry(at).range.end > pages.start).collect();
        for at in all {
            self.counters.invalidations += 1;
            self.entries[at as usize].as_mut().expect("an entry that was found").is_stale = true;
            self.hide(at);
        }
    }

    /// Gives up entries that nobody uses, the one unused for the longest time first, until so many bytes are no longer registered
    /// or there are no more. The bytes that were given up.
    pub fn shrink(&mut self, bytes: usize) -> usize {
        let before = self.counters.bytes;
        while before - self.counters.bytes < bytes && self.evict() {}
        before - self.counters.bytes
    }

    fn entry(&self, at: u32) -> &Entry<R::Key> {
        self.entries[at as usize].as_ref().expect("an entry that is named")
    }

    /// `None` where the range is empty or ends behind all addresses.
    fn whole_pages(&self, range: &Range<usize>) -> Option<Range<usize>> {
        let mask = self.limits.page_bytes - 1;
        let end = range.end.checked_add(mask)? & !mask;
        (range.start < range.end).then_some(range.start & !mask..end)
    }

    fn lease(&mut self, at: u32) -> Lease<R::Key> {
        let entry = self.entries[at as usize].as_mut().expect("an entry that was found");
        if entry.users == 0 {
            self.unused.remove(at);
            self.in_use += 1;
            self.counters.bytes_in_use += entry.range.len();
        }
        entry.users += 1;
        entry.uses += 1;
        Lease { entry: at, serial: entry.serial, key: entry.key }
    }

    /// Registers `pages`, with neighbours where that pays, and enters them.
    fn register(&mut self, pages: Range<usize>) -> Result<u32, Refused> {
        if pages.len() > self.limits.bytes_max {
            return Err(Refused::TooLong);
        }
        let room = self.limits.bytes_max - self.counters.bytes_in_use;
        if pages.len() > room || self.in_use >= self.limits.entries_max {
            return Err(Refused::Busy);
        }
        let mut range = pages.clone();
        while let Some(at) = self.neighbour(&range, room) {
            range = hull(&range, &self.entry(at).range);
            self.counters.joined += 1;
            self.forget(at, false);
        }
        while self.counters.bytes + range.len() > self.limits.bytes_max || self.registered >= self.limits.entries_max {
            assert!(self.evict(), "entries in use leave room");
        }
        let key = loop {
            match self.registrar.register(range.clone()) {
                Ok(key) => break key,
                Err(Failure::NoRoom) if self.evict() => {}
                // It may be a neighbour's memory that is gone.
                Err(_) if range != pages => range = pages.clone(),
                Err(Failure::NoRoom) => return Err(Refused::DeviceFull),
                Err(Failure::BadMemory) => return Err(Refused::BadMemory),
            }
        };
        self.counters.registrations += 1;
        self.counters.bytes += range.len();
        self.counters.bytes_most = self.counters.bytes_most.max(self.counters.bytes);
        self.registered += 1;
        // All of them are in use: the others have joined.
        let begin_there = self.by_start.range(range.start..range.end).map(|(_, &at)| at);
        let within: Vec<u32> = begin_there.filter(|&at| self.entry(at).range.end <= range.end).collect();
        for at in within {
            self.counters.superseded += 1;
            self.hide(at);
        }
        self.serial += 1;
        let entry = Entry { range: range.clone(), key, users: 0, uses: 0, serial: self.serial, is_found: true, is_stale: false };
        let at = self.free.pop().unwrap_or(self.entries.len() as u32);
        match self.entries.get_mut(at as usize) {
            Some(place) => *place = Some(entry),
            None => self.entries.push(Some(entry)),
        }
        self.by_start.insert(range.start, at);
        self.unused.touch(at);
        Ok(at)
    }

    /// An unused entry that touches `range`, is not longer, and makes with it no more than `room`.
    fn neighbour(&self, range: &Range<usize>, room: usize) -> Option<u32> {
        let before = self.by_start.range(..range.start).next_back().filter(|&(_, &at)| self.entry(at).range.end >= range.start);
        before.into_iter().chain(self.by_start.range(range.start..=range.end)).map(|(_, &at)| at).find(|&at| {
            let entry = self.entry(at);
            entry.users == 0 && entry.range.len() <= range.len() && hull(range, &entry.range).len() <= room
        })
    }

    /// Gives up the entry that was unused for the longest time. False where there is none.
    fn evict(&mut self) -> bool {
        let Some(at) = self.unused.oldest() else { return false };
        self.counters.evictions += 1;
        self.forget(at, true);
        true
    }

    /// Not found from now on; given back at once where nobody uses it.
    fn hide(&mut self, at: u32) {
        if self.entry(at).users == 0 {
            return self.forget(at, true);
        }
        let entry = self.entries[at as usize].as_mut().expect("an entry that was found");
        entry.is_found = false;
        self.by_start.remove(&entry.range.start);
        self.hidden.push(at);
    }

    /// Gives back an entry that nobody uses and that can be found.
    fn forget(&mut self, at: u32, is_judged: bool) {
        let start = self.entry(at).range.start;
        self.by_start.remove(&start);
        self.unused.remove(at);
        self.give_back(at, is_judged);
    }

    fn give_back(&mut self, at: u32, is_judged: bool) {
        let entry = self.entries[at as usize].take().expect("an entry that is registered");
        self.free.push(at);
        self.registered -= 1;
        self.counters.bytes -= entry.range.len();
        self.counters.deregistrations += 1;
        self.counters.used_once += u64::from(is_judged && entry.uses <= 1);
        self.registrar.deregister(entry.key, entry.range);
    }
}

impl<R: Registrar> Drop for PinDownCache<R> {
    /// Gives back all keys, those in use too: who drops the cache has closed the device.
    fn drop(&mut self) {
        for entry in self.entries.drain(..).flatten() {
            self.registrar.deregister(entry.key, entry.range);
        }
    }
}

fn overlap(one: &Range<usize>, other: &Range<usize>) -> bool {
    one.start < other.end && other.start < one.end
}

fn hull(one: &Range<usize>, other: &Range<usize>) -> Range<usize> {
    one.start.min(other.start)..one.end.max(other.end)
}

#[cfg(test)]
pub mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::cell::RefCell;
    use std::collections::{HashMap, HashSet};
    use std::rc::Rc;

    pub const PAGE: usize = 4096;

    /// Keys that are registered and what they were made for: a range, and which memory lay there then.
    #[derive(Default)]
    pub struct Device {
        pub keys: HashMap<u64, (Range<usize>, Vec<u32>)>,
        /// Those that lie within one that was made later.
        superseded: HashSet<u64>,
        pub made: u64,
        /// Each page's memory has a number, which changes when it is unmapped; `None`: nothing is mapped there.
        pub pages: Vec<Option<u32>>,
        /// Bytes that the device can have registered.
        pub room: usize,
    }

    impl Device {
        pub fn new(pages: usize, room: usize) -> Rc<RefCell<Device>> {
            Rc::new(RefCell::new(Device { pages: vec![Some(0); pages], room, ..Device::default() }))
        }

        pub fn bytes(&self) -> usize {
            self.keys.values().map(|(range, _)| range.len()).sum()
        }

        fn memory(&self, range: &Range<usize>) -> Option<Vec<u32>> {
            self.pages.get(range.start / PAGE..range.end / PAGE)?.iter().copied().collect()
        }

        /// Whether the memory behind a key is still what the program has there.
        pub fn is_current(&self, key: u64, range: &Range<usize>) -> bool {
            let (registered, memory) = &self.keys[&key];
            let pages = range.start / PAGE * PAGE..range.end.next_multiple_of(PAGE);
            let from = (range.start - registered.start) / PAGE;
            registered.start <= range.start && range.end <= registered.end && self.memory(&pages).is_some_and(|now| memory[from..from + now.len()] == now)
        }

        /// Whether memory that no invalidation has touched is registered and contains the range.
        fn has(&self, range: &Range<usize>) -> bool {
            self.keys.iter().filter(|(key, _)| !self.superseded.contains(key)).any(|(_, (registered, memory))| {
                registered.start <= range.start && range.end <= registered.end && self.memory(registered).as_ref() == Some(memory)
            })
        }
    }

    impl Registrar for Rc<RefCell<Device>> {
        type Key = u64;

        fn register(&mut self, range: Range<usize>) -> Result<u64, Failure> {
            assert!(range.start.is_multiple_of(PAGE) && range.end.is_multiple_of(PAGE) && !range.is_empty());
            let device = &mut *self.borrow_mut();
            let memory = device.memory(&range).ok_or(Failure::BadMemory)?;
            if device.bytes() + range.len() > device.room {
                return Err(Failure::NoRoom);
            }
            device.made += 1;
            let within = device.keys.iter().filter(|(_, (other, _))| range.start <= other.start && other.end <= range.end);
            device.superseded.extend(within.map(|(&key, _)| key));
            device.keys.insert(device.made, (range, memory));
            Ok(device.made)
        }

        fn deregister(&mut self, key: u64, range: Range<usize>) {
            let (registered, _) = self.borrow_mut().keys.remove(&key).expect("each key is given back once");
            assert_eq!(registered, range);
        }
    }

    pub fn cache(pages: usize, bytes_max: usize, entries_max: usize) -> (Rc<RefCell<Device>>, PinDownCache<Rc<RefCell<Device>>>) {
        let device = Device::new(pages, usize::MAX);
        (device.clone(), PinDownCache::new(device, Limits { bytes_max, entries_max, page_bytes: PAGE }))
    }

    fn pages(first: usize, count: usize) -> Range<usize> {
        first * PAGE..(first + count) * PAGE
    }

    #[test]
    fn a_buffer_inside_a_registered_one_hits() {
        let (device, mut cache) = cache(64, 64 * PAGE, 64);
        let whole = cache.acquire(pages(0, 16)).unwrap();
        let key = whole.key();
        cache.release(whole);
        // Paper 001 §2.4.2: "the second memory region begins for instance at the third page of the first".
        let inside = cache.acquire(2 * PAGE + 100..5 * PAGE + 1).unwrap();
        assert_eq!(inside.key(), key);
        cache.release(inside);
        assert_eq!((device.borrow().made, cache.counters().hits, cache.counters().front_hits), (1, 1, 1));
    }

    #[test]
    fn neighbours_become_one_entry_and_no_page_is_registered_too_often() {
        let (device, mut cache) = cache(1024, 1024 * PAGE, 64);
        let mut registered = 0;
        for page in 0..1024 {
            let lease = cache.acquire(pages(page, 1)).unwrap();
            registered += device.borrow().keys[&lease.key()].0.len() / PAGE;
            cache.release(lease);
        }
        assert_eq!(device.borrow().keys.len(), 1);
        // log2(1024) + 1 times each.
        assert!(registered <= 1024 * 11, "{registered}");
        assert_eq!(cache.counters().joined, 1023);
    }

    #[test]
    fn who_finds_everything_in_use_is_told_and_nothing_is_evicted_in_vain() {
        let (device, mut cache) = cache(64, 8 * PAGE, 64);
        let held = cache.acquire(pages(0, 4)).unwrap();
        let unused = cache.acquire(pages(20, 4)).unwrap();
        cache.release(unused);
        assert_eq!(cache.acquire(pages(40, 5)).unwrap_err(), Refused::Busy);
        assert_eq!(cache.acquire(pages(40, 9)).unwrap_err(), Refused::TooLong);
        assert_eq!(cache.acquire(pages(63, 2)).unwrap_err(), Refused::BadMemory);
        assert_eq!(cache.acquire(5..5).unwrap_err(), Refused::BadMemory);
        assert_eq!(cache.acquire(PAGE..usize::MAX).unwrap_err(), Refused::BadMemory);
        let counters = *cache.counters();
        assert_eq!((counters.refused, device.borrow().keys.len()), (5, 1), "for memory that is not there, room was made");
        cache.release(held);
        let lease = cache.acquire(pages(40, 5)).unwrap();
        cache.release(lease);
    }

    #[test]
    fn a_device_without_room_makes_unused_entries_go() {
        let device = Device::new(64, 4 * PAGE);
        let mut cache = PinDownCache::new(device.clone(), Limits { bytes_max: 64 * PAGE, entries_max: 64, page_bytes: PAGE });
        let held = cache.acquire(pages(0, 2)).unwrap();
        let unused = cache.acquire(pages(10, 2)).unwrap();
        cache.release(unused);
        let lease = cache.acquire(pages(20, 2)).unwrap();
        assert_eq!(cache.counters().evictions, 1);
        assert_eq!(cache.acquire(pages(30, 1)).unwrap_err(), Refused::DeviceFull);
        cache.release(held);
        cache.release(lease);
        drop(cache);
        assert!(device.borrow().keys.is_empty());
    }

    #[test]
    fn what_is_invalidated_in_use_is_told_and_goes_with_its_last_user() {
        let (device, mut cache) = cache(64, 64 * PAGE, 64);
        let lease = cache.acquire(pages(0, 4)).unwrap();
        assert!(cache.is_valid(&lease));
        cache.invalidate(3 * PAGE + 5..3 * PAGE + 6);
        assert!(!cache.is_valid(&lease));
        let again = cache.acquire(pages(0, 1)).unwrap();
        assert!(again.key() != lease.key() && cache.is_valid(&again));
        cache.release(lease);
        assert_eq!(device.borrow().keys.len(), 1);
        cache.release(again);
        assert_eq!((cache.shrink(1), cache.counters().bytes), (PAGE, 0));
        assert_eq!(cache.counters().registrations, cache.counters().deregistrations);
    }

    #[derive(Clone, Debug)]
    enum Step {
        Acquire(Range<usize>),
        Release(usize),
        /// Memory is unmapped, and something else mapped there, or nothing.
        Unmap(Range<usize>, bool),
        Shrink(usize),
    }

    fn step() -> impl Strategy<Value = Step> {
        let range = |pages: usize| (0usize..40 * PAGE, 1usize..pages * PAGE).prop_map(|(start, bytes)| start..start + bytes);
        prop_oneof![
            6 => range(6).prop_map(Step::Acquire),
            1 => range(24).prop_map(Step::Acquire),
            5 => (0usize..100).prop_map(Step::Release),
            2 => (range(4), prop::bool::weighted(0.8)).prop_map(|(range, mapped)| Step::Unmap(range, mapped)),
            1 => (1usize..20 * PAGE).prop_map(Step::Shrink),
        ]
    }

    proptest! {
        #[test]
        fn no_key_is_wrong_whatever_a_program_does(
            program in prop::collection::vec(step(), 1..300),
            pages_max in 1usize..40,
            entries_max in 1usize..12,
            room in 4usize..60,
        ) {
            let device = Device::new(60, room * PAGE);
            let limits = Limits { bytes_max: pages_max * PAGE, entries_max, page_bytes: PAGE };
            let mut cache = PinDownCache::new(device.clone(), limits);
            // Leases that are out, and whether their memory was invalidated.
            let mut leases: Vec<(Lease<u64>, Range<usize>, bool)> = Vec::new();
            let mut number = 0;
            for step in program {
                match step {
                    Step::Acquire(range) => {
                        let whole = range.start / PAGE * PAGE..range.end.next_multiple_of(PAGE);
                        let (known, made) = (device.borrow().has(&whole), device.borrow().made);
                        match cache.acquire(range.clone()) {
                            Ok(lease) => {
                                prop_assert!(device.borrow().is_current(lease.key(), &range), "gone, or too short");
                                prop_assert_eq!(device.borrow().made == made, known, "what is registered hits, and nothing else");
                                leases.push((lease, range, true));
                            }
                            Err(refused) => {
                                prop_assert!(!known);
                                let keys: HashSet<u64> = leases.iter().map(|lease| lease.0.key()).collect();
                                let held: usize = keys.iter().map(|key| device.borrow().keys[key].0.len()).sum();
                                match refused {
                                    Refused::TooLong => prop_assert!(whole.len() > limits.bytes_max),
                                    Refused::Busy => prop_assert!(held + whole.len() > limits.bytes_max || keys.len() >= entries_max),
                                    Refused::DeviceFull => prop_assert!(held + whole.len() > room * PAGE),
                                    Refused::Unwatched => prop_assert!(false, "nothing is watched here"),
                                    Refused::BadMemory => prop_assert!(device.borrow().memory(&whole).is_none()),
                                }
                            }
                        }
                    }
                    Step::Release(which) => {
                        if !leases.is_empty() {
                            let (lease, _, _) = leases.swap_remove(which % leases.len());
                            cache.release(lease);
                        }
                    }
                    Step::Unmap(range, mapped) => {
                        let whole = range.start / PAGE..range.end.div_ceil(PAGE);
                        number += 1;
                        for page in whole.clone() {
                            device.borrow_mut().pages[page] = mapped.then_some(number);
                        }
                        cache.invalidate(range);
                        for (lease, _, valid) in &mut leases {
                            let (registered, _) = &device.borrow().keys[&lease.key()];
                            *valid &= !(registered.start < whole.end * PAGE && whole.start * PAGE < registered.end);
                        }
                    }
                    Step::Shrink(bytes) => {
                        cache.shrink(bytes);
                    }
                }
                for (lease, _, valid) in &leases {
                    prop_assert!(device.borrow().keys.contains_key(&lease.key()), "in use and deregistered");
                    prop_assert_eq!(cache.is_valid(lease), *valid);
                }
                let (counters, device) = (*cache.counters(), device.borrow());
                prop_assert!(device.bytes() <= limits.bytes_max.min(room * PAGE) && device.keys.len() <= entries_max);
                prop_assert_eq!(device.bytes(), counters.bytes);
                prop_assert_eq!(device.keys.len() as u64, counters.registrations - counters.deregistrations);
                prop_assert_eq!(counters.registrations, device.made);
                prop_assert!(counters.bytes_in_use <= counters.bytes && counters.bytes <= counters.bytes_most);
            }
            for (lease, _, _) in leases {
                cache.release(lease);
            }
            prop_assert_eq!(cache.counters().bytes_in_use, 0);
            cache.shrink(usize::MAX);
            prop_assert!(device.borrow().keys.is_empty());
        }
    }
}
