#![allow(unsafe_code)]

use super::*;
use crate::cache::Failure;
use proptest::prelude::*;
use std::cell::RefCell;
use std::io::Write;
use std::rc::Rc;
use std::sync::atomic::AtomicUsize;
use std::sync::mpsc::channel;

const PAGE: usize = 4096;
const PAGES: usize = 32;

/// The monitor; where there is none, the test says so and is skipped.
fn monitor(test: &str) -> Option<&'static Monitor> {
    let why = match Monitor::get(|run| std::thread::Builder::new().spawn(run).is_ok()) {
        Ok(monitor) => return Some(monitor),
        Err(why) => why,
    };
    println!("skip  memory::monitor, {test}: {why}");
    if let Some(path) = std::env::var_os("WHIMBREL_TEST_SKIPS") {
        let mut file = std::fs::File::options().append(true).create(true).open(path).unwrap();
        writeln!(file, "skip  memory::monitor, {test}: {why}").unwrap();
    }
    None
}

/// Memory of the program, each page of which has a number that changes when other memory is there.
struct Memory {
    start: usize,
    pages: RefCell<Vec<u32>>,
    changes: RefCell<u32>,
}

/// How memory changes.
#[derive(Clone, Copy, Debug)]
enum Change {
    Unmap,
    MapOver,
    Move,
    Drop,
    /// A System V segment over it, and other memory over that: no event tells of either.
    Attach,
}

const CHANGES: [Change; 5] = [Change::Unmap, Change::MapOver, Change::Move, Change::Drop, Change::Attach];

impl Memory {
    fn new() -> Rc<Memory> {
        // Far from where the kernel puts what other threads of the tests map: nothing of theirs comes into a gap.
        static NEXT: AtomicUsize = AtomicUsize::new(0x2000_0000_0000);
        let start = map(NEXT.fetch_add(2 * PAGES * PAGE, Ordering::Relaxed), PAGES * PAGE, libc::MAP_FIXED_NOREPLACE);
        Rc::new(Memory { start, pages: RefCell::new(vec![0; PAGES]), changes: RefCell::new(0) })
    }

    fn range(&self, first: usize, count: usize) -> Range<usize> {
        self.start + first * PAGE..self.start + (first + count) * PAGE
    }

    fn change(&self, how: Change, first: usize, count: usize) {
        change(how, self.range(first, count));
        self.changed(first, count);
    }

    /// There is other memory now.
    fn changed(&self, first: usize, count: usize) {
        *self.changes.borrow_mut() += 1;
        self.pages.borrow_mut()[first..first + count].fill(*self.changes.borrow());
    }

    fn of(&self, range: &Range<usize>) -> Vec<u32> {
        self.pages.borrow()[(range.start - self.start) / PAGE..(range.end - self.start).div_ceil(PAGE)].to_vec()
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        // SAFETY: the test's own mapping.
        unsafe { libc::munmap(self.start as *mut libc::c_void, PAGES * PAGE) };
    }
}

fn map(at: usize, bytes: usize, flags: i32) -> usize {
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | flags;
    // SAFETY: a new mapping, or one over the test's own.
    let start = unsafe { libc::mmap(at as *mut libc::c_void, bytes, libc::PROT_READ | libc::PROT_WRITE, flags, -1, 0) };
    assert_ne!(start, libc::MAP_FAILED, "{}", std::io::Error::last_os_error());
    start as usize
}

fn change(how: Change, range: Range<usize>) {
    let (at, bytes) = (range.start as *mut libc::c_void, range.len());
    // SAFETY: pages of the test's own mapping, in which nothing lives.
    unsafe {
        match how {
            Change::Unmap => {
                assert_eq!(libc::munmap(at, bytes), 0);
                assert_eq!(map(range.start, bytes, libc::MAP_FIXED_NOREPLACE), range.start);
            }
            Change::MapOver => assert_eq!(map(range.start, bytes, libc::MAP_FIXED), range.start),
            Change::Move => {
                let room = map(0, bytes, 0);
                let moved = libc::mremap(at, bytes, bytes, libc::MREMAP_MAYMOVE | libc::MREMAP_FIXED, room as *mut libc::c_void);
                if moved == libc::MAP_FAILED {
                    // Several mappings by now, with or without a monitor.
                    assert_eq!(libc::munmap(room as *mut libc::c_void, bytes), 0);
                    return change(Change::Unmap, range);
                }
                assert_eq!(moved as usize, room);
                assert_eq!(map(range.start, bytes, libc::MAP_FIXED_NOREPLACE), range.start);
                assert_eq!(libc::munmap(room as *mut libc::c_void, bytes), 0);
            }
            Change::Drop => assert_eq!(libc::madvise(at, bytes, libc::MADV_DONTNEED), 0),
            Change::Attach => {
                let segment = libc::shmget(libc::IPC_PRIVATE, bytes, 0o600);
                if segment < 0 {
                    return change(Change::MapOver, range);
                }
                let there = libc::shmat(segment, at, libc::SHM_REMAP);
                assert_eq!((libc::shmctl(segment, libc::IPC_RMID, std::ptr::null_mut()), there), (0, at));
                assert_eq!(map(range.start, bytes, libc::MAP_FIXED), range.start);
            }
        }
    }
}

/// A device whose key is what lay there.
struct Device(Rc<Memory>, Vec<Option<(Range<usize>, Vec<u32>)>>);

impl Device {
    /// Whether the pages of `range` are still those that the key was made for.
    fn is_current(&self, key: usize, range: &Range<usize>) -> bool {
        let (registered, pages) = self.1[key].as_ref().expect("a key that is given out");
        let skipped = (range.start - registered.start) / PAGE;
        let now = self.0.of(range);
        pages[skipped..skipped + now.len()] == now
    }
}

impl Registrar for Device {
    type Key = usize;

    fn register(&mut self, range: Range<usize>) -> Result<usize, Failure> {
        let pages = self.0.of(&range);
        self.1.push(Some((range, pages)));
        Ok(self.1.len() - 1)
    }

    fn deregister(&mut self, key: usize, range: Range<usize>) {
        assert_eq!(self.1[key].take().expect("each key is given back once").0, range);
    }
}

const LIMITS: Limits = Limits { bytes_max: 1 << 30, entries_max: 1 << 20, page_bytes: PAGE };

/// Each change is found at the next search; without the monitor the same cache gives out keys of memory that is gone.
#[test]
fn what_has_changed_is_not_found() {
    let Some(monitor) = monitor("changes") else { return };
    for how in CHANGES {
        let memory = Memory::new();
        let mut cache = Watched::new(Device(memory.clone(), Vec::new()), LIMITS, monitor);
        let mut blind = PinDownCache::new(Device(memory.clone(), Vec::new()), LIMITS);
        let whole = memory.range(0, PAGES);
        for _ in 0..3 {
            let (lease, other) = (cache.acquire(whole.clone()).unwrap(), blind.acquire(whole.clone()).unwrap());
            memory.change(how, 3, 2);
            assert!(!cache.is_valid(&lease), "{how:?}: in use");
            assert!(blind.is_valid(&other));
            cache.release(lease);
            blind.release(other);
            let (lease, other) = (cache.acquire(whole.clone()).unwrap(), blind.acquire(whole.clone()).unwrap());
            assert!(cache.registrar().is_current(lease.key(), &whole), "{how:?}");
            assert!(!blind.registrar().is_current(other.key(), &whole), "{how:?}");
            cache.release(lease);
            blind.release(other);
        }
        assert!(cache.counters().invalidations >= 3, "{how:?}");
        let again = cache.acquire(memory.range(7, 1)).unwrap();
        assert_eq!(cache.counters().misses, cache.counters().registrations, "{how:?}");
        cache.release(again);
    }
}

/// Another thread changes the memory, and says so.
#[test]
fn another_thread_s_changes_are_found() {
    let Some(monitor) = monitor("threads") else { return };
    let memory = Memory::new();
    let mut cache = Watched::new(Device(memory.clone(), Vec::new()), LIMITS, monitor);
    let (ask, asked) = channel::<Range<usize>>();
    let (tell, told) = channel();
    let other = std::thread::spawn(move || {
        for (round, range) in asked.into_iter().enumerate() {
            change(CHANGES[round % 4], range);
            tell.send(()).unwrap();
        }
    });
    for round in 0..400 {
        let (first, count) = (round % 20, 1 + round % 11);
        let whole = memory.range(round % 5, 27);
        let lease = cache.acquire(whole.clone()).unwrap();
        cache.release(lease);
        ask.send(memory.range(first, count)).unwrap();
        told.recv().unwrap();
        memory.changed(first, count);
        let lease = cache.acquire(whole.clone()).unwrap();
        assert!(cache.registrar().is_current(lease.key(), &whole), "round {round}");
        cache.release(lease);
    }
    drop(ask);
    other.join().unwrap();
}

/// Watching splits no mapping, so that the program can still move what it could.
#[test]
fn what_is_watched_in_part_can_be_moved() {
    let Some(monitor) = monitor("mappings") else { return };
    let memory = Memory::new();
    monitor.watch(&memory.range(5, 2)).unwrap();
    let whole = memory.range(0, PAGES);
    assert!(monitor.watches(&whole));
    let mut cursor = monitor.cursor();
    let room = map(0, PAGES * PAGE, 0);
    let flags = libc::MREMAP_MAYMOVE | libc::MREMAP_FIXED;
    let (here, there, bytes) = (whole.start as *mut libc::c_void, room as *mut libc::c_void, PAGES * PAGE);
    for (from, to) in [(here, there), (there, here)] {
        // SAFETY: the test's own mappings, which are moved there and back.
        assert_eq!(unsafe { libc::mremap(from, bytes, bytes, flags, to) }, to);
        // Other tests change memory as well: it may be told as one change of everything.
        let mut is_told = false;
        monitor.changes(&mut cursor, |range| is_told |= range.start <= whole.start && whole.end <= range.end);
        assert!(is_told, "{from:?} to {to:?}");
    }
}

#[test]
fn memory_with_files_is_not_kept() {
    let Some(monitor) = monitor("files") else { return };
    let file = crate::create("test", (PAGES * PAGE) as u64).unwrap();
    for flags in [libc::MAP_SHARED, libc::MAP_PRIVATE] {
        use std::os::fd::AsRawFd;
        // SAFETY: a new mapping.
        let start = unsafe { libc::mmap(std::ptr::null_mut(), PAGES * PAGE, libc::PROT_READ | libc::PROT_WRITE, flags, file.as_raw_fd(), 0) } as usize;
        assert_ne!(start, libc::MAP_FAILED as usize, "{}", std::io::Error::last_os_error());
        assert!(monitor.watch(&(start..start + PAGES * PAGE)).is_err(), "{flags}");
        let memory = Rc::new(Memory { start, pages: RefCell::new(vec![0; PAGES]), changes: RefCell::new(0) });
        let mut cache = Watched::new(Device(memory, Vec::new()), LIMITS, monitor);
        assert_eq!(cache.acquire(start..start + PAGE).map(|_| ()), Err(Refused::Unwatched));
    }
}

#[test]
fn a_fork_changes_everything() {
    let Some(monitor) = monitor("fork") else { return };
    let memory = Memory::new();
    let mut cache = Watched::new(Device(memory.clone(), Vec::new()), LIMITS, monitor);
    let lease = cache.acquire(memory.range(0, 4)).unwrap();
    // SAFETY: the child ends at once, by a call that runs nothing of this process.
    let child = unsafe { libc::fork() };
    if child == 0 {
        // SAFETY: as above.
        unsafe { libc::_exit(0) };
    }
    assert!(child > 0);
    // SAFETY: the child from above.
    unsafe { libc::waitpid(child, std::ptr::null_mut(), 0) };
    assert!(!cache.is_valid(&lease));
    cache.release(lease);
    let lease = cache.acquire(memory.range(0, 4)).unwrap();
    memory.change(Change::Unmap, 1, 1);
    assert!(!cache.is_valid(&lease), "it is watched as before");
    cache.release(lease);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 40, ..ProptestConfig::default() })]

    /// Any changes and searches in any order: no key of memory that is gone.
    #[test]
    fn no_key_is_of_memory_that_is_gone(steps in proptest::collection::vec((0..7u8, 0..PAGES, 1..PAGES), 1..60), entries_max in 1..6usize) {
        if let Some(monitor) = monitor("random") {
            let memory = Memory::new();
            let mut cache = Watched::new(Device(memory.clone(), Vec::new()), Limits { entries_max, ..LIMITS }, monitor);
            let mut held: Vec<(Lease<usize>, Range<usize>)> = Vec::new();
            for (what, first, count) in steps {
                let count = count.min(PAGES - first);
                let range = memory.range(first, count);
                match what {
                    0..=4 => {
                        for (lease, of) in &held {
                            prop_assert!(!cache.is_valid(lease) || cache.registrar().is_current(lease.key(), of));
                        }
                        memory.change(CHANGES[what as usize], first, count);
                        for (lease, of) in &held {
                            prop_assert!(!cache.is_valid(lease) || cache.registrar().is_current(lease.key(), of));
                        }
                    }
                    _ => match cache.acquire(range.clone()) {
                        Ok(lease) => {
                            prop_assert!(cache.registrar().is_current(lease.key(), &range));
                            if what == 5 { cache.release(lease) } else { held.push((lease, range)) }
                        }
                        Err(refused) => {
                            prop_assert_eq!(refused, Refused::Busy);
                            held.drain(..).for_each(|(lease, _)| cache.release(lease));
                        }
                    },
                }
            }
            held.into_iter().for_each(|(lease, _)| cache.release(lease));
        }
    }
}
