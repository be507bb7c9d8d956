//! What does a NIC show its peers? One segment with its regions, which peers need to translate addresses and to check accesses, and with
//! what its threads sleep on.

use crate::region::{RDMA_READ, RDMA_WRITE, REGIONS_MAX, Region, SHADOW};
use crate::segment::{Locator, Segment, SegmentProvider};
use crate::status::{Refusal, Result};
use crate::sys::{Alarm, Line, Map, One, Shared};
use fabric::shm::parts::{self, Waiting};
use std::collections::HashMap;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};
use std::sync::{Arc, Mutex, PoisonError};

const MAGIC: u64 = u64::from_le_bytes(*b"whvipl\x01B");
const WAITERS_AT: usize = 64;
const MANAGER_AT: usize = 128;
const REGIONS_AT: usize = 4096;
const BYTES: u64 = (REGIONS_AT + REGIONS_MAX * 64) as u64;

/// One thing that threads sleep on: a flag, and the word of the alarm.
pub struct Waker<'a> {
    flag: &'a AtomicU64,
    word: &'a AtomicU32,
    fence: bool,
}

impl Waiting for Waker<'_> {
    #[inline]
    fn sleeping(&self) -> &AtomicU64 {
        self.flag
    }
    #[inline]
    fn futex(&self) -> &AtomicU32 {
        self.word
    }
    fn heavy_fence(&self) {
        // Where it does not work, senders fence.
        if !self.fence {
            parts::heavy_fence();
        }
    }
    fn wake_all(&self) {
        parts::futex_wake(self.word);
    }
}

/// The parts of a board that both its owner and its peers use.
struct View {
    head: One<Line>,
    waiters: One<Alarm>,
    manager: One<Alarm>,
    regions: Shared<Line>,
}

impl View {
    fn of(map: &Arc<Map>) -> Option<View> {
        Some(View { head: map.at(0)?, waiters: map.at(WAITERS_AT)?, manager: map.at(MANAGER_AT)?, regions: map.slice(REGIONS_AT, REGIONS_MAX)? })
    }
}

/// This process' board.
pub struct Board {
    view: View,
    pub segment: Segment,
    pub nonce: u64,
    /// The system has no barrier that reaches other processes' cores: who sends must fence.
    pub fence: bool,
}

impl Board {
    pub fn new(provider: &dyn SegmentProvider, nonce: u64) -> Result<Board> {
        let segment = provider.create(BYTES)?;
        let view = View::of(&segment.map).ok_or(Refusal::Resource)?;
        let fence = !(parts::register_for_fences() && parts::heavy_fence());
        let word = |at: usize, value: u64| view.head.0[at].store(value, Ordering::Relaxed);
        word(1, nonce);
        word(2, fence as u64);
        view.head.0[0].store(MAGIC, Ordering::Release);
        Ok(Board { view, segment, nonce, fence })
    }

    /// Shows a region in its line.
    pub fn show(&self, region: &Region) {
        let line = &self.view.regions[region.handle as usize % REGIONS_MAX].0;
        let (locator, offset) = region.place();
        let shadow = if region.shadow().is_some() { SHADOW } else { 0 };
        let words = [region.user.start(), region.user.bytes(), region.attributes.bits() | shadow, locator.place, locator.bytes, offset];
        for (word, value) in line[1..].iter().zip(words) {
            word.store(value, Ordering::Relaxed);
        }
        line[0].store(region.handle as u64, Ordering::Release);
    }

    pub fn hide(&self, handle: u32) {
        self.view.regions[handle as usize % REGIONS_MAX].0[0].store(0, Ordering::Release);
    }

    /// Threads in calls that wait.
    pub fn waiters(&self) -> Waker<'_> {
        Waker { flag: &self.view.waiters.sleeping, word: &self.view.waiters.word, fence: self.fence }
    }

    /// The event manager, for what it alone can do.
    pub fn manager(&self) -> Waker<'_> {
        Waker { flag: &self.view.manager.sleeping, word: &self.view.manager.word, fence: self.fence }
    }

    /// The event manager, for everything that comes.
    pub fn watcher(&self) -> Waker<'_> {
        Waker { flag: &self.view.manager.watching, word: &self.view.manager.word, fence: self.fence }
    }

    /// Wakes this process' own threads: those that wait, and the event manager.
    pub fn wake_own(&self, manager: bool) {
        fence(Ordering::SeqCst);
        parts::wake(&self.waiters());
        if manager {
            parts::wake(&self.manager());
        }
    }
}

/// A region of a peer, mapped.
pub struct RemoteRegion {
    pub handle: u32,
    base: u64,
    bytes: u64,
    line: usize,
    map: Arc<Map>,
    offset: u64,
}

impl RemoteRegion {
    /// Where bytes of the region lie in the mapping, by offset from the region's start.
    #[inline]
    pub fn at(&self, offset: u64, bytes: u64) -> Option<crate::sys::Raw<'_>> {
        if offset.checked_add(bytes)? > self.bytes {
            return None;
        }
        self.map.bytes(self.offset.checked_add(offset)?, bytes)
    }

    /// The offset of a virtual address of the peer.
    pub fn offset_of(&self, address: u64) -> Option<u64> {
        address.checked_sub(self.base)
    }
}

/// The board of a peer.
pub struct PeerBoard {
    view: View,
    provider: Arc<dyn SegmentProvider>,
    pid: u32,
    fence: bool,
    mapped: Mutex<HashMap<u32, Arc<RemoteRegion>>>,
}

impl PeerBoard {
    /// `own_fence`: this process' barriers do not reach others.
    pub fn attach(provider: Arc<dyn SegmentProvider>, pid: u32, locator: Locator, nonce: u64, own_fence: bool) -> Result<PeerBoard> {
        let map = provider.attach(pid, locator)?;
        let view = View::of(&map).ok_or(Refusal::Resource)?;
        if view.head.0[0].load(Ordering::Acquire) != MAGIC || view.head.0[1].load(Ordering::Relaxed) != nonce {
            return Err(Refusal::Resource);
        }
        let fence = own_fence || view.head.0[2].load(Ordering::Relaxed) != 0;
        Ok(PeerBoard { view, provider, pid, fence, mapped: Mutex::default() })
    }

    /// Wakes the peer's threads, if they sleep, after something was written for them. `urgent`: the program there need not call for it to be
    /// done. `settled`: other threads of the peer may have taken part, so that only a full fence will do.
    #[inline(always)]
    pub fn signal(&self, urgent: bool, settled: bool) {
        if self.fence || settled {
            fence(Ordering::SeqCst);
        }
        let (waiters, manager) = (&self.view.waiters, &self.view.manager);
        if waiters.sleeping.load(Ordering::Relaxed) != 0 || manager.watching.load(Ordering::Relaxed) != 0 || urgent {
            self.wake(urgent);
        }
    }

    #[cold]
    fn wake(&self, urgent: bool) {
        let (waiters, manager) = (&*self.view.waiters, &*self.view.manager);
        let waker = |flag, word| Waker { flag, word, fence: self.fence };
        parts::wake(&waker(&waiters.sleeping, &waiters.word));
        parts::wake(&waker(&manager.watching, &manager.word));
        if urgent {
            parts::wake(&waker(&manager.sleeping, &manager.word));
        }
    }

    /// Tag and attributes of the peer's region now; `None` if it has no such region.
    #[inline]
    pub fn attributes(&self, handle: u32) -> Option<u64> {
        let line = &self.view.regions[handle as usize % REGIONS_MAX].0;
        (handle != 0 && line[0].load(Ordering::Acquire) == handle as u64).then(|| line[3].load(Ordering::Relaxed))
    }

    /// The peer's region, mapped if it was not yet.
    pub fn region(&self, handle: u32) -> Option<Arc<RemoteRegion>> {
        let mut mapped = self.mapped.lock().unwrap_or_else(PoisonError::into_inner);
        if self.attributes(handle).is_none() {
            mapped.remove(&handle);
            return None;
        }
        if let Some(region) = mapped.get(&handle) {
            return Some(region.clone());
        }
        // What the peer has deregistered meanwhile is let go.
        mapped.retain(|other, region| self.view.regions[region.line].0[0].load(Ordering::Relaxed) == *other as u64);
        let at = handle as usize % REGIONS_MAX;
        let line = &self.view.regions[at].0;
        let word = |at: usize| line[at].load(Ordering::Relaxed);
        let (base, bytes, locator, offset) = (word(1), word(2), Locator { place: word(4), bytes: word(5) }, word(6));
        std::sync::atomic::fence(Ordering::Acquire);
        if word(0) != handle as u64 {
            return None;
        }
        let map = self.provider.attach(self.pid, locator).ok()?;
        let region = Arc::new(RemoteRegion { handle, base, bytes, line: at, map, offset });
        mapped.insert(handle, region.clone());
        Some(region)
    }
}

/// Whether a region of a peer may be written or read by RDMA through a VI with these bits of its own.
pub fn permits(region_bits: u64, vi_bits: u64, write: bool) -> bool {
    let wanted = if write { RDMA_WRITE } else { RDMA_READ };
    region_bits as u32 == vi_bits as u32 && region_bits & wanted != 0 && vi_bits & wanted != 0
}
