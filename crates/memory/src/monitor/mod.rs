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
//! - *Mappings that are replaced without an event*: `shmat` over them (`SHM_REMAP`) is the one way that is known. So what is found is looked at once more: a
//!   call says whether its mapping is still one that is watched. One that was not counts as changed when it is watched.
//! - *Mappings* are watched whole, so that they stay as many as they were.
//! - Protection by `mprotect` changes no page, and what was sent from there before may be sent again.

mod log;
#[allow(unsafe_code)]
mod sys;

use crate::arena::Lock;
use crate::cache::{Counters, Lease, Limits, PinDownCache, Refused, Registrar};
pub use log::Cursor;
use log::{EVERYTHING, Log};
use rustix::fd::{AsFd, OwnedFd};
use rustix::io::Errno;
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
        if first && !(crate::arena::at_fork(around_fork, around_fork, in_child) && spawn(Box::new(|| monitor.run()))) {
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

    /// Changes of the memory of `range`, whole pages, and of the mappings it lies in, are told from now on until they are unmapped. Whole mappings, since
    /// watching a part would split them, and `mremap` does not move two at once. A mapping that was not watched counts as changed now: what was found there
    /// before was other memory.
    ///
    /// Errors: it is not private memory without a file, or there is none: what is registered there must not be kept.
    pub fn watch(&self, range: &Range<usize>) -> Result<(), Errno> {
        if self.gives_events(range) {
            return Ok(());
        }
        sys::private_mappings(self.maps.as_fd(), range, |mapping| {
            if self.gives_events(&common(&mapping, range)) {
                return Ok(());
            }
            // Noted before it is watched: whoever finds it watched, and looks then, finds it changed.
            self.tell(mapping.clone());
            sys::register(self.events.as_fd(), &mapping)
        })?;
        // What has come there in between may be other memory; what comes after this is told.
        sys::private_mappings(self.maps.as_fd(), range, |_| Ok(()))
    }

    /// Whether the memory of `range`, whole pages, is watched.
    fn watches(&self, range: &Range<usize>) -> bool {
        let each = |mapping: Range<usize>| match mapping.start <= range.start && mapping.end >= range.end {
            false if self.gives_events(&common(&mapping, range)) => Ok(()),
            // It is one mapping, of which the answer is known; or a part is not watched.
            _ => Err(Errno::INVAL),
        };
        self.gives_events(range) || sys::private_mappings(self.maps.as_fd(), range, each).is_ok()
    }

    /// The same, where it lies in one mapping.
    fn gives_events(&self, range: &Range<usize>) -> bool {
        for _ in 0..LOOKS_MAX {
            match sys::gives_events(self.events.as_fd(), range) {
                Some(answer) => return answer,
                // Until the event has been read.
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

    /// A change that this thread knows of. No signal comes in between, since a handler that unmaps something would wait for the monitor's thread, which waits
    /// for this one.
    fn tell(&self, range: Range<usize>) {
        crate::without_signals(|| {
            self.writing.lock();
            self.log.begin();
            self.log.note(range);
            self.log.end();
            self.writing.unlock();
        });
    }
}

fn made() -> Option<&'static Monitor> {
    MONITOR.get()?.as_ref().ok()
}

/// Pages that are pinned stay the parent's (Linux 5.12), or may become the child's (before): what is registered is registered again. Nothing is held from
/// before a fork until after it, since the fork waits for malloc's locks: another thread may have one of them that waits for the monitor's thread, in a call
/// that drops memory.
extern "C" fn around_fork() {
    if let Some(monitor) = made() {
        monitor.tell(EVERYTHING);
    }
}

/// The child has neither the thread nor events.
extern "C" fn in_child() {}

/// A pin-down cache of memory that the program may change.
pub struct Watched<R: Registrar> {
    cache: PinDownCache<R>,
    monitor: &'static Monitor,
    cursor: Cursor,
}

impl<R: Registrar> Watched<R> {
    pub fn new(registrar: R, limits: Limits, monitor: &'static Monitor) -> Watched<R> {
        Watched { cache: PinDownCache::new(registrar, limits), monitor, cursor: monitor.cursor() }
    }

    /// As [`PinDownCache::acquire`]. No key is given out of before a change of its memory that was over when this was called.
    ///
    /// Errors: as there; [`Refused::Unwatched`] where changes of the memory would not be told: register it for one transfer, or copy.
    #[inline]
    pub fn acquire(&mut self, range: Range<usize>) -> Result<Lease<R::Key>, Refused> {
        let pages = self.cache.pages(&range);
        if self.cache.has(range.clone()) && !self.monitor.watches(&pages) {
            self.cache.invalidate(range.clone());
        }
        self.look();
        if self.cache.has(range.clone()) || pages.is_empty() {
            return self.cache.acquire(range);
        }
        // It is watched before it is pinned, so that any change after that is told; and what watching finds changed is forgotten before.
        if self.monitor.watch(&pages).is_err() {
            return Err(Refused::Unwatched);
        }
        self.look();
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
        if self.cache.is_valid(lease) {
            let range = self.cache.range_of(lease);
            if !self.monitor.watches(&range) {
                self.cache.invalidate(range);
            }
        }
        self.look();
        self.cache.is_valid(lease)
    }

    /// As [`PinDownCache::shrink`].
    pub fn shrink(&mut self, bytes: usize) -> usize {
        self.cache.shrink(bytes)
    }

    pub fn counters(&self) -> &Counters {
        self.cache.counters()
    }

    pub fn registrar(&self) -> &R {
        self.cache.registrar()
    }

    #[inline]
    fn look(&mut self) {
        let cache = &mut self.cache;
        self.monitor.changes(&mut self.cursor, |range| cache.invalidate(range));
    }
}

fn common(one: &Range<usize>, other: &Range<usize>) -> Range<usize> {
    one.start.max(other.start)..one.end.min(other.end)
}

#[cfg(test)]
mod tests;
