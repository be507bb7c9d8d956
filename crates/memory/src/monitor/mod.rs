//! Who tells that memory which is registered has been unmapped, moved or dropped?
//!
//! A registration outlives the memory that it was made for: a program that frees an array and gets another one at the same address has other pages there,
//! and the device still has the old ones. Other libraries put their own code before `munmap` and `free`, and miss what goes past it. Here the kernel
//! tells: `userfaultfd` gives an event for memory that is unmapped (`munmap`, `mmap` over it, the heap's end), moved (`mremap`) or dropped
//! (`madvise`), whoever asks for that and however. It is registered for write protection, and no page is ever protected, so that no access waits.
//!
//! - *Order*: the call that unmaps returns once its event has been read. [`log`] says how a look after that finds it, without a lock: that look is one load
//!   where nothing has changed. [`Watched`] looks before each search of its [cache](crate::cache).
//! - *The monitor's thread* allocates and frees nothing, since that could unmap memory, and wait for the event that this thread would have to read.
//! - *What gives no event* is not watched and so not kept: memory with a file behind it, whose file may be shortened or punched, and shared memory. A
//!   child of a fork gets no events, and calls no MPI; in the parent a fork counts as a change of everything.
//! - *Mappings that are replaced without an event*: `shmat` over them (`SHM_REMAP`) is the one way that is known. So what is found is looked at once more: one
//!   call says whether its mapping is still one that is watched. What lies in several mappings is taken as changed.
//! - *Mappings* are watched whole, so that they stay as many as they were.
//! - Protection by `mprotect` changes no page, and what was sent from there before may be sent again.

mod log;
#[allow(unsafe_code)]
mod sys;

use crate::arena::Lock;
use crate::cache::{Counters, Failure, Lease, Limits, PinDownCache, Refused, Registrar};
pub use log::Cursor;
use log::{EVERYTHING, Log};
use rustix::fd::{AsFd, OwnedFd};
use rustix::io::Errno;
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

/// Looks at a mapping while others change, at most: then it is taken as changed, too.
const LOOKS_MAX: usize = 1000;
/// Events read at once.
const EVENTS_AT_ONCE: usize = 16;

/// Why memory of this process is not watched.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Unavailable {
    /// `userfaultfd` is not there, or forbidden (`vm.unprivileged_userfaultfd`, a seccomp filter), or `/proc` is not.
    Call(Errno),
    /// There is no thread for it.
    Thread,
}

impl std::fmt::Display for Unavailable {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Unavailable::Call(errno) => write!(f, "userfaultfd is refused: {errno}"),
            Unavailable::Thread => f.write_str("no thread can be started for it"),
        }
    }
}

impl std::error::Error for Unavailable {}

/// The monitor of this process' memory.
pub struct Monitor {
    events: OwnedFd,
    maps: OwnedFd,
    log: Log,
    /// Whoever writes to the log holds it.
    writing: Lock,
    /// It has no thread.
    is_dead: AtomicBool,
}

static MONITOR: OnceLock<Result<Monitor, Unavailable>> = OnceLock::new();

impl Monitor {
    /// The monitor, started at the first call: `spawn` runs what it is given on a thread of its own, which takes no signals.
    ///
    /// Errors: there is none here, now and later.
    pub fn get(spawn: impl FnOnce(Box<dyn FnOnce() + Send>) -> bool) -> Result<&'static Monitor, Unavailable> {
        let mut first = false;
        let made = MONITOR.get_or_init(|| {
            first = true;
            Monitor::new()
        });
        let monitor = made.as_ref().map_err(Clone::clone)?;
        // Whoever is second may watch before the thread runs: an unmapping call then waits for it a little longer.
        if first && !(crate::arena::at_fork(before_fork, after_fork, after_fork) && spawn(Box::new(|| monitor.run()))) {
            monitor.is_dead.store(true, Ordering::Relaxed);
        }
        if monitor.is_dead.load(Ordering::Relaxed) { Err(Unavailable::Thread) } else { Ok(monitor) }
    }

    fn new() -> Result<Monitor, Unavailable> {
        let events = sys::open().map_err(Unavailable::Call)?;
        let maps = sys::open_maps().map_err(Unavailable::Call)?;
        Ok(Monitor { events, maps, log: Log::default(), writing: Lock::default(), is_dead: AtomicBool::new(false) })
    }

    /// Reads events until the process ends. Allocates and frees nothing.
    fn run(&self) {
        let mut messages = [sys::Message::default(); EVENTS_AT_ONCE];
        loop {
            sys::wait(self.events.as_fd());
            self.writing.lock();
            self.log.begin();
            let count = sys::read(self.events.as_fd(), &mut messages);
            for range in messages[..count].iter().flat_map(sys::Message::ranges).filter(|range| !range.is_empty()) {
                self.log.note(range);
            }
            self.log.end();
            self.writing.unlock();
        }
    }

    /// Changes of the memory of `range`, and of the mappings it lies in, are told from now on until they are unmapped. Whole mappings, since watching a
    /// part would split them, and `mremap` does not move two at once. Gives the range of these.
    ///
    /// Errors: it is not private memory without a file, or there is none: what is registered there must not be kept.
    pub fn watch(&self, range: &Range<usize>) -> Result<Range<usize>, Errno> {
        let private = || sys::private_mappings(self.maps.as_fd(), range).ok_or(Errno::INVAL);
        let mappings = private()?;
        sys::register(self.events.as_fd(), &mappings)?;
        // What has come there in between may be other memory; what comes after this is told.
        private()?;
        Ok(mappings)
    }

    /// Whether the memory of `range`, whole pages, is in one mapping that was watched before and has been since.
    fn still_watches(&self, range: &Range<usize>) -> bool {
        for _ in 0..LOOKS_MAX {
            match sys::gives_events(self.events.as_fd(), range) {
                Some(answer) => return answer,
                // Until its event has been read.
                None => std::thread::yield_now(),
            }
        }
        false
    }

    /// From now on, for [`Monitor::changes`].
    pub fn cursor(&self) -> Cursor {
        self.log.cursor()
    }

    /// Gives `apply` what has changed since `cursor`: all that had changed when a call of this thread returned, or of another one that this one has heard
    /// of.
    #[inline]
    pub fn changes(&self, cursor: &mut Cursor, apply: impl FnMut(Range<usize>)) {
        self.log.changes(cursor, apply);
    }

    fn note_everything(&self) {
        self.log.begin();
        self.log.note(EVERYTHING);
        self.log.end();
    }
}

fn made() -> Option<&'static Monitor> {
    MONITOR.get()?.as_ref().ok()
}

/// Pages that are pinned stay the parent's (Linux 5.12), or may become the child's (before): what is registered is registered again.
extern "C" fn before_fork() {
    if let Some(monitor) = made() {
        monitor.writing.lock();
        monitor.note_everything();
    }
}

extern "C" fn after_fork() {
    if let Some(monitor) = made() {
        monitor.note_everything();
        monitor.writing.unlock();
    }
}

/// A registrar whose memory is watched before it is pinned: a change at any time after that is told.
struct Watching<R> {
    inner: R,
    monitor: &'static Monitor,
    /// Ends of ranges that are watched, by their starts; none touches another.
    ranges: BTreeMap<usize, usize>,
}

impl<R> Watching<R> {
    fn is_watched(&self, range: &Range<usize>) -> bool {
        self.ranges.range(..=range.start).next_back().is_some_and(|(_, end)| *end >= range.end)
    }

    fn add(&mut self, range: Range<usize>) {
        let Range { mut start, mut end } = range;
        while let Some((&first, &last)) = self.ranges.range(..=end).next_back().filter(|(_, last)| **last >= start) {
            (start, end) = (start.min(first), end.max(last));
            self.ranges.remove(&first);
        }
        self.ranges.insert(start, end);
    }

    /// What has changed may be other memory, which is not watched.
    fn forget(&mut self, range: &Range<usize>) {
        while let Some((&first, &last)) = self.ranges.range(..range.end).next_back().filter(|(_, last)| **last > range.start) {
            self.ranges.remove(&first);
            if first < range.start {
                self.ranges.insert(first, range.start);
            }
            if last > range.end {
                self.ranges.insert(range.end, last);
            }
        }
    }
}

impl<R: Registrar> Registrar for Watching<R> {
    type Key = R::Key;

    fn register(&mut self, range: Range<usize>) -> Result<R::Key, Failure> {
        if !(self.is_watched(&range) && self.monitor.still_watches(&range)) {
            let watched = self.monitor.watch(&range).map_err(|_| Failure::Unwatched)?;
            self.add(watched);
        }
        self.inner.register(range)
    }

    fn deregister(&mut self, key: R::Key, range: Range<usize>) {
        self.inner.deregister(key, range);
    }
}

/// A pin-down cache of memory that the program may change.
pub struct Watched<R: Registrar> {
    cache: PinDownCache<Watching<R>>,
    cursor: Cursor,
}

impl<R: Registrar> Watched<R> {
    pub fn new(registrar: R, limits: Limits, monitor: &'static Monitor) -> Watched<R> {
        Watched { cache: PinDownCache::new(Watching { inner: registrar, monitor, ranges: BTreeMap::new() }, limits), cursor: monitor.cursor() }
    }

    /// As [`PinDownCache::acquire`]. No key is given out of before a change of its memory that was over when this was called.
    ///
    /// Errors: as there; [`Refused::Unwatched`] where changes of the memory would not be told: register it for one transfer, or copy.
    #[inline]
    pub fn acquire(&mut self, range: Range<usize>) -> Result<Lease<R::Key>, Refused> {
        self.look();
        let hits = self.cache.counters().hits;
        let lease = self.cache.acquire(range.clone())?;
        if self.cache.counters().hits == hits || self.monitor().still_watches(&self.cache.pages(&range)) {
            return Ok(lease);
        }
        self.cache.release(lease);
        self.changed(range.clone());
        self.cache.acquire(range)
    }

    /// As [`PinDownCache::has`], by what has changed until now.
    pub fn has(&mut self, range: Range<usize>) -> bool {
        self.look();
        self.cache.has(range)
    }

    /// As [`PinDownCache::release`].
    pub fn release(&mut self, lease: Lease<R::Key>) {
        self.cache.release(lease);
    }

    /// As [`PinDownCache::is_valid`], by what has changed until now.
    pub fn is_valid(&mut self, lease: &Lease<R::Key>) -> bool {
        self.look();
        if !self.cache.is_valid(lease) {
            return false;
        }
        let range = self.cache.range_of(lease);
        let is_watched = self.monitor().still_watches(&range);
        if !is_watched {
            self.changed(range);
        }
        is_watched
    }

    fn monitor(&self) -> &'static Monitor {
        self.cache.registrar().monitor
    }

    fn changed(&mut self, range: Range<usize>) {
        self.cache.registrar_mut().forget(&range);
        self.cache.invalidate(range);
    }

    /// As [`PinDownCache::shrink`].
    pub fn shrink(&mut self, bytes: usize) -> usize {
        self.cache.shrink(bytes)
    }

    pub fn counters(&self) -> &Counters {
        self.cache.counters()
    }

    pub fn registrar(&self) -> &R {
        &self.cache.registrar().inner
    }

    #[inline]
    fn look(&mut self) {
        let monitor = self.monitor();
        let cache = &mut self.cache;
        monitor.changes(&mut self.cursor, |range| {
            cache.registrar_mut().forget(&range);
            cache.invalidate(range);
        });
    }
}

#[cfg(test)]
mod tests;
