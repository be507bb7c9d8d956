//! Memory of the program that the device may touch: for one transfer, or kept for the next ones from there.
//!
//! - *Kept* ([`memory::monitor::Watched`]): after the pin-down cache of paper 001 (§2.4.2), where changes of memory are told of. An entry may be read by
//!   peers and written by the device, so that one serves sends and receives.
//! - *For one transfer*: memory that is not watched, is longer than all that may be kept, or may not be written.
//! - *Frequent buffers* (paper 000): which short messages are worth sending from where they lie is decided by [`memory::usage`], by what registering,
//!   copying and searching were measured to cost when the device was opened.

use std::hint::black_box;
use std::ops::Range;
use std::time::Instant;

use memory::cache::{self, Failure, Limits, Refused};
use memory::monitor::{Monitor, Unavailable, Watched};
use memory::usage::{MessageCosts, Settings, Thresholds, UsageTable, Way};

use super::pieces::{PIECE_BYTES_MIN, next_piece};
use super::{EAGER_BYTES_MAX, InPlaceUse, Keeps};
use crate::Error;
use crate::verbs::sys::{Access, Keys, Lease, Registered, Registrar};

/// Registrations that are kept, at most.
const ENTRIES_MAX: usize = 4096;
/// What is kept is at most this part of the machine's memory.
const MEMORY_SHARE: usize = 16;
/// Shorter messages are given to the device by value.
pub const IN_PLACE_BYTES_MIN: usize = 256;
/// Pages of the longer of two registrations whose times say what a registration and a page of it cost.
const PAGES_TIMED: usize = 16;
/// Each time is the least of so many rounds, of so many copies or searches each, all of other buffers: together they are longer than a first-level cache,
/// as a program's are.
const ROUNDS: usize = 4;
const BUFFERS: usize = 64;

/// What a [`Watched`] cache keeps registrations with.
struct Keeper {
    registrar: Registrar,
    leases: Vec<Option<Lease>>,
    free: Vec<u32>,
}

/// A registration that is kept.
#[derive(Clone, Copy, Debug)]
struct Kept {
    keys: Keys,
    place: u32,
}

impl cache::Registrar for Keeper {
    type Key = Kept;

    fn register(&mut self, range: Range<usize>) -> Result<Kept, Failure> {
        // SAFETY: peers touch what they have been told of, while they have. When the program's memory changes the monitor tells, and no later transfer
        // uses this one.
        let lease = unsafe { self.registrar.lease(range.start as *mut u8, range.len(), Access::All) }.map_err(|error| match error {
            Error::Memory { errno: libc::EFAULT | libc::EACCES | libc::EPERM | libc::EINVAL, .. } => Failure::BadMemory,
            _ => Failure::NoRoom,
        })?;
        let place = self.free.pop().unwrap_or_else(|| {
            self.leases.push(None);
            self.leases.len() as u32 - 1
        });
        let keys = lease.keys();
        self.leases[place as usize] = Some(lease);
        Ok(Kept { keys, place })
    }

    fn deregister(&mut self, key: Kept, _: Range<usize>) {
        self.leases[key.place as usize] = None;
        self.free.push(key.place);
    }
}

#[derive(Debug)]
enum For {
    Later(cache::Lease<Kept>),
    One { _lease: Lease },
}

/// Memory that the device may touch until [`Registrations::release`].
#[derive(Debug)]
#[must_use = "what is not released stays in use for ever"]
pub struct Hold {
    pub memory: Registered,
    lasts: For,
}

/// Memory of this process that is registered piece by piece: pieces follow each other.
#[derive(Debug, Default)]
pub struct Held {
    holds: Vec<Hold>,
    bytes: u64,
}

impl Held {
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    pub fn add(&mut self, hold: Hold) {
        self.bytes += hold.memory.bytes as u64;
        self.holds.push(hold);
    }

    /// The piece that has byte `offset`, and how far in it that is.
    pub fn at(&self, offset: u64) -> Option<(&Hold, usize)> {
        let mut start = 0;
        self.holds.iter().find_map(|hold| {
            let from = offset - start;
            start += hold.memory.bytes as u64;
            (offset < start).then_some((hold, from as usize))
        })
    }
}

impl IntoIterator for Held {
    type Item = Hold;
    type IntoIter = std::vec::IntoIter<Hold>;

    fn into_iter(self) -> Self::IntoIter {
        self.holds.into_iter()
    }
}

/// All that is registered of the program.
pub struct Registrations {
    registrar: Registrar,
    kept: Option<Watched<Keeper>>,
    /// Where there are kept ones alone.
    frequent: Option<UsageTable>,
    overlaps: bool,
    counters: trace::Registrations,
}

impl std::fmt::Debug for Registrations {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Registrations").field("keeps", &self.kept.is_some()).field("counters", &self.counters()).finish()
    }
}

impl Registrations {
    /// What is kept is kept only where changes of memory are told of.
    pub fn new(registrar: Registrar, keeps: Keeps) -> Registrations {
        let (pages, page_bytes) = (system(libc::_SC_PHYS_PAGES), page_bytes());
        let limits = Limits { bytes_max: keeps.bytes_max.min(pages * page_bytes / MEMORY_SHARE), entries_max: ENTRIES_MAX, page_bytes };
        let monitor = if limits.bytes_max == 0 { None } else { monitor().ok() };
        let thresholds = monitor.and_then(|monitor| match keeps.in_place {
            InPlaceUse::Never => None,
            InPlaceUse::Measured => Some(Costs::measured(&registrar, monitor)?.thresholds()),
            InPlaceUse::Always => Some(thresholds(|_| Some(2))),
        });
        let keeper = Keeper { registrar: registrar.clone(), leases: Vec::new(), free: Vec::new() };
        let kept = monitor.map(|monitor| Watched::new(keeper, limits, monitor));
        let frequent = thresholds.map(|thresholds| UsageTable::new(thresholds, Settings::default()));
        Registrations { registrar, kept, frequent, overlaps: keeps.overlaps, counters: trace::Registrations::default() }
    }

    /// Whether messages of frequent buffers may leave from there.
    pub fn in_place(&self) -> bool {
        self.frequent.is_some()
    }

    pub fn counters(&self) -> trace::Registrations {
        let Some(kept) = &self.kept else { return self.counters };
        let of = kept.counters();
        trace::Registrations {
            hits: of.hits,
            misses: of.misses,
            made: self.counters.made + of.registrations,
            evicted: of.evictions,
            invalidated: of.invalidations,
            unpaid: of.used_once,
            kept_bytes_most: of.bytes_most as u64,
            ..self.counters
        }
    }

    /// Whether a body is to be registered in one piece: it is short, or registered already, or its first piece is: what comes again is worth a registration
    /// of its own.
    pub fn at_once(&mut self, start: u64, bytes: u64) -> bool {
        let mut has = |bytes: u64| self.kept.as_mut().is_some_and(|kept| kept.has(start as usize..start.saturating_add(bytes) as usize));
        !self.overlaps || bytes <= PIECE_BYTES_MIN || has(bytes) || has(PIECE_BYTES_MIN)
    }

    /// The piece of a body that follows its first `before` bytes, which are registered.
    ///
    /// # Safety
    /// As [`Registrations::hold`], of the whole body: `bytes` from `start` on.
    pub unsafe fn hold_next(&mut self, start: u64, before: u64, bytes: u64, access: Access) -> Option<Hold> {
        let piece = if before == 0 && self.at_once(start, bytes) { bytes } else { next_piece(before, bytes) };
        let hold = self.hold((start + before) as *mut u8, piece as usize, access)?;
        self.counters.overlapped += u64::from(before > 0);
        Some(hold)
    }

    /// Registers memory for a transfer, or finds it registered. `None`: it cannot be now; the transfer goes another way.
    ///
    /// # Safety
    /// `start..start + bytes` must be the transport's until the hold is released, to read for [`Access::RemoteRead`], to write for the others.
    pub unsafe fn hold(&mut self, start: *mut u8, bytes: usize, access: Access) -> Option<Hold> {
        let memory = |keys| Registered { address: start as u64, bytes, keys };
        if let Some(kept) = &mut self.kept {
            match kept.acquire(start as usize..(start as usize).checked_add(bytes)?) {
                Ok(lease) => return Some(Hold { memory: memory(lease.key().keys), lasts: For::Later(lease) }),
                Err(Refused::Busy | Refused::DeviceFull) => {
                    self.counters.refused += 1;
                    return None;
                }
                Err(Refused::TooLong | Refused::BadMemory | Refused::Unwatched) => {}
            }
        }
        let mut lease = self.registrar.lease(start, bytes, access);
        // What nobody uses may take the place that is wanted.
        if lease.is_err() && self.kept.as_mut().is_some_and(|kept| kept.shrink(bytes) > 0) {
            lease = self.registrar.lease(start, bytes, access);
        }
        match lease {
            Ok(lease) => {
                self.counters.made += 1;
                Some(Hold { memory: memory(lease.keys()), lasts: For::One { _lease: lease } })
            }
            Err(_) => {
                self.counters.refused += 1;
                None
            }
        }
    }

    /// Counts a short message, and registers where it lies if it should leave from there.
    ///
    /// # Safety
    /// As [`Registrations::hold`].
    pub unsafe fn in_place_of(&mut self, start: *const u8, bytes: usize) -> Option<Hold> {
        let (Some(frequent), Some(kept)) = (&mut self.frequent, &mut self.kept) else { return None };
        if frequent.used(start as usize, bytes) == Way::Copy {
            return None;
        }
        let lease = kept.acquire(start as usize..(start as usize).checked_add(bytes)?).ok()?;
        self.counters.in_place += 1;
        self.counters.in_place_bytes += bytes as u64;
        Some(Hold { memory: Registered { address: start as u64, bytes, keys: lease.key().keys }, lasts: For::Later(lease) })
    }

    /// A buffer that the program has said that it will send from again and again: its messages leave from there, beginning with the first, if any of their
    /// length do.
    pub fn prefer(&mut self, start: *const u8, bytes: usize) {
        if let Some(frequent) = &mut self.frequent {
            frequent.prefer(start as usize, bytes);
        }
    }

    /// The device is done with it.
    pub fn release(&mut self, hold: Hold) {
        if let (For::Later(lease), Some(kept)) = (hold.lasts, &mut self.kept) {
            kept.release(lease);
        }
    }
}

/// The monitor of this process' memory, on a thread of its own.
///
/// # Errors
/// There is none here.
fn monitor() -> Result<&'static Monitor, Unavailable> {
    Monitor::get(|run| {
        let builder = std::thread::Builder::new().name("mpi-monitor".into()).stack_size(64 << 10);
        memory::without_signals(|| builder.spawn(run)).is_ok()
    })
}

/// A number that the system says; 0 where it does not.
fn system(name: libc::c_int) -> usize {
    // SAFETY: a plain call.
    unsafe { libc::sysconf(name) }.max(0) as usize
}

fn page_bytes() -> usize {
    system(libc::_SC_PAGESIZE).max(1)
}

/// Lengths of messages that may leave from where the program has them: those that begin a size class.
fn lengths() -> impl Iterator<Item = usize> {
    std::iter::successors(Some(IN_PLACE_BYTES_MIN), |bytes| Some(2 * bytes)).take_while(|bytes| *bytes <= EAGER_BYTES_MAX)
}

/// Thresholds of these lengths, by the messages after which a registration has paid.
fn thresholds(messages_to_pay: impl Fn(usize) -> Option<u64>) -> Thresholds {
    let pays = |bytes| if bytes < IN_PLACE_BYTES_MIN { None } else { messages_to_pay(bytes) };
    Thresholds::new(EAGER_BYTES_MAX, Thresholds::FRACTION_PERCENT, pays)
}

/// What registering, copying and searching cost here (Table 2 of paper 000 for this device).
#[derive(Clone, Copy, Debug)]
struct Costs {
    page_bytes: usize,
    register_ns: f64,
    register_page_ns: f64,
    search_ns: f64,
    /// For each power of two up to [`EAGER_BYTES_MAX`].
    copy_ns: [f64; EAGER_BYTES_MAX.ilog2() as usize + 1],
}

/// What a device's registrations cost, by the length of a message.
///
/// # Errors
/// Why the device's registrations cannot be kept, or that it registers nothing.
pub fn costs_of(registrar: &Registrar) -> Result<Vec<(usize, MessageCosts)>, String> {
    let monitor = monitor().map_err(|why| format!("keeps no registration: {why}"))?;
    let costs = Costs::measured(registrar, monitor).ok_or("registers no memory now (ulimit -l)")?;
    Ok(lengths().map(|bytes| (bytes, costs.of(bytes))).collect())
}

/// The least time of a round of `act`, ns.
fn least_ns(mut act: impl FnMut()) -> f64 {
    let times = (0..ROUNDS).map(|_| {
        let start = Instant::now();
        act();
        start.elapsed().as_nanos() as f64
    });
    times.fold(f64::INFINITY, f64::min)
}

/// A device that does nothing.
struct Nothing;

impl cache::Registrar for Nothing {
    type Key = ();

    fn register(&mut self, _: Range<usize>) -> Result<(), Failure> {
        Ok(())
    }

    fn deregister(&mut self, (): (), _: Range<usize>) {}
}

impl Costs {
    /// `None` where the device registers nothing now.
    fn measured(registrar: &Registrar, monitor: &'static Monitor) -> Option<Costs> {
        let page_bytes = page_bytes();
        // Buffers that share no pages and do not touch each other, each begun in another line of its page.
        let each_bytes = EAGER_BYTES_MAX.next_multiple_of(page_bytes) + 2 * page_bytes;
        let place = |index: usize| index * (each_bytes + 64);
        let mut from = vec![0u8; BUFFERS * (each_bytes + 64)];
        (0..BUFFERS).for_each(|index| from[place(index)..][..EAGER_BYTES_MAX].fill(1));
        let mut failed = false;
        let mut register = |pages: usize| {
            // SAFETY: memory of this function; nobody is told of the key.
            least_ns(|| failed |= unsafe { registrar.lease(from.as_mut_ptr(), pages * page_bytes, Access::All) }.is_err())
        };
        let (one_ns, many_ns) = (register(1), register(PAGES_TIMED));
        if failed {
            return None;
        }
        let register_page_ns = ((many_ns - one_ns) / (PAGES_TIMED - 1) as f64).max(0.0);
        let mut to = vec![1u8; EAGER_BYTES_MAX];
        let mut copy_ns = [0.0; EAGER_BYTES_MAX.ilog2() as usize + 1];
        for (class, time_ns) in copy_ns.iter_mut().enumerate() {
            let (bytes, mut round) = (1 << class, 0);
            let copies = || {
                // Short ones are other parts of the buffers each round; what they go to is the pool's slot that was free last.
                let offset = round * bytes % EAGER_BYTES_MAX;
                (0..BUFFERS).for_each(|index| black_box(&mut to)[..bytes].copy_from_slice(&black_box(&from)[place(index) + offset..][..bytes]));
                round += 1;
            };
            *time_ns = least_ns(copies) / BUFFERS as f64;
        }
        let mut table = UsageTable::new(thresholds(|_| Some(1)), Settings::default());
        let mut cache = Watched::new(Nothing, Limits { bytes_max: usize::MAX / 2, entries_max: 2 * BUFFERS, page_bytes }, monitor);
        let start = from.as_ptr() as usize;
        let mut search = || {
            for index in 0..BUFFERS {
                let range = start + place(index)..start + place(index) + EAGER_BYTES_MAX;
                black_box(table.used(range.start, range.len()));
                if let Ok(lease) = cache.acquire(range) {
                    cache.release(lease);
                }
            }
        };
        search();
        Some(Costs { page_bytes, register_ns: (one_ns - register_page_ns).max(0.0), register_page_ns, search_ns: least_ns(search) / BUFFERS as f64, copy_ns })
    }

    fn of(&self, bytes: usize) -> MessageCosts {
        MessageCosts {
            register_ns: self.register_ns + self.register_page_ns * bytes.div_ceil(self.page_bytes) as f64,
            copy_ns: self.copy_ns[bytes.ilog2() as usize],
            search_ns: self.search_ns,
        }
    }

    fn thresholds(&self) -> Thresholds {
        thresholds(|bytes| self.of(bytes).messages_to_pay())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn thresholds_are_those_of_the_costs() {
        let mut copy_ns = [0.0; EAGER_BYTES_MAX.ilog2() as usize + 1];
        (0..copy_ns.len()).for_each(|class| copy_ns[class] = (1 << class) as f64 / 16.0);
        let costs = Costs { page_bytes: 4096, register_ns: 10_000.0, register_page_ns: 500.0, search_ns: 32.0, copy_ns };
        // 8 KiB: 11,000 / (512 - 32) is 22.9, a quarter of 23 is 5. 1 KiB: 10,500 / 32 is 328.1, a quarter of 329 is 82.
        let thresholds = costs.thresholds();
        assert_eq!((thresholds.of(8192), thresholds.of(1024)), (Some(5), Some(82)));
        // The copy costs as much as the search, or the device takes it by value, or it is no short message.
        assert_eq!((thresholds.of(512), thresholds.of(128), thresholds.of(16 << 10)), (None, None, None));
    }
}
