//! What belongs to an open NIC? Its address, limits, protection tags, regions, VIs and completion queues.

use crate::board::{Board, PeerBoard};
use crate::connect::Connector;
use crate::connect::wire::Card;
use crate::handles::{self, Key, Table};
use crate::queue::Cq;
use crate::region::{Attributes, Memory, REGIONS_MAX, Region, mapped_file};
use crate::segment::{Anonymous, BYTES_MAX, CommonFile, Locator, SegmentProvider};
use crate::status::*;
use crate::sys::{PAGE, UserRange, random_word};
use crate::vi::{RELIABLE_DELIVERY, RELIABLE_RECEPTION, UNRELIABLE, Vi, ViAttributes};
use fabric::shm::Sleepers;
use std::collections::{HashMap, VecDeque};
use std::fmt::{self, Display, Formatter};
use std::io::Write;
use std::net::{Ipv4Addr, SocketAddrV4};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock, Weak};
use std::thread::JoinHandle;

pub const NICS_MAX: usize = 64;
pub const PTAGS_MAX: usize = 256;
pub const CQS_MAX: usize = 256;
pub const TRANSFER_BYTES_MAX: u64 = 1 << 30;
/// Events that wait for the program's error handler; older ones are dropped.
const EVENTS_MAX: usize = 1024;

/// Takes the address of an error and calls the program.
pub type ErrorHandler = Arc<dyn Fn(u64, &ErrorEvent) + Send + Sync>;

/// An asynchronous error.
#[derive(Clone, Copy, Debug)]
pub struct ErrorEvent {
    pub vi: u64,
    pub cq: u64,
    pub descriptor: u64,
    pub op: u32,
    pub resource: Resource,
    pub code: ErrorCode,
}

impl Display for ErrorEvent {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.code.text())?;
        for (what, handle) in [("VI", self.vi), ("completion queue", self.cq), ("descriptor", self.descriptor)] {
            if handle != 0 {
                write!(f, ", {what} {handle:#x}")?;
            }
        }
        Ok(())
    }
}

#[derive(Default)]
struct Regions {
    slots: Vec<Option<Arc<Region>>>,
    rounds: Vec<u32>,
}

pub struct Nic {
    pub name: String,
    handle: AtomicU64,
    pub provider: Arc<dyn SegmentProvider>,
    pub board: Board,
    /// Address and port, as in a network address.
    pub address: [u8; 6],
    regions: RwLock<Regions>,
    changes: AtomicU64,
    ptags: Mutex<Table<()>>,
    vis: Mutex<Vec<&'static Vi>>,
    pub cqs: Mutex<Vec<&'static Cq>>,
    peers: Mutex<HashMap<(u32, u64), Weak<PeerBoard>>>,
    events: Mutex<VecDeque<ErrorEvent>>,
    handler: Mutex<Option<ErrorHandler>>,
    pub sleepers: Sleepers,
    /// Handlers of the program that wait for a completion.
    pub notifies: AtomicU32,
    closing: AtomicBool,
    pub connector: Connector,
    pub names: AtomicBool,
    threads: Mutex<Vec<JoinHandle<()>>>,
}

static NICS: Mutex<Table<Arc<Nic>>> = Mutex::new(Table::new(NICS_MAX));

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

pub fn find(handle: u64) -> Result<Arc<Nic>> {
    let key = Key::of(handle, handles::Kind::Nic).ok_or(Refusal::InvalidParameter)?;
    locked(&NICS).find(key).cloned().ok_or(Refusal::InvalidParameter)
}

/// What a device name asks for: `shm`, `shm:ADDRESS`, or `file:PATH[,BYTES][@ADDRESS]`.
fn device(name: &str) -> Result<(Arc<dyn SegmentProvider>, Ipv4Addr)> {
    let address = |text: &str| text.parse().map_err(|_| Refusal::InvalidParameter);
    if let Some(rest) = name.strip_prefix("file:") {
        let (file, at) = rest.split_once('@').map_or((rest, Ipv4Addr::LOCALHOST), |(file, at)| (file, address(at).unwrap_or(Ipv4Addr::UNSPECIFIED)));
        let (path, bytes) = match file.split_once(',') {
            Some((path, bytes)) => (path, Some(bytes.parse().map_err(|_| Refusal::InvalidParameter)?)),
            None => (file, None),
        };
        if at.is_unspecified() {
            return Err(Refusal::InvalidParameter);
        }
        return Ok((Arc::new(CommonFile::new(path.into(), bytes)?), at));
    }
    match name.split_once(':') {
        None if name == "shm" || name.is_empty() => Ok((Arc::new(Anonymous), Ipv4Addr::LOCALHOST)),
        Some(("shm", at)) => Ok((Arc::new(Anonymous), address(at)?)),
        _ => Err(Refusal::InvalidParameter),
    }
}

impl Nic {
    pub fn open(name: &str) -> Result<u64> {
        let (provider, ip) = device(name)?;
        let board = Board::new(&*provider, random_word()?)?;
        let connector = Connector::new(ip)?;
        let at = connector.address();
        let mut address = [0; 6];
        address[..4].copy_from_slice(&at.ip().octets());
        address[4..].copy_from_slice(&at.port().to_be_bytes());
        let nic = Arc::new(Nic {
            name: name.to_owned(),
            handle: AtomicU64::new(0),
            provider,
            board,
            address,
            regions: RwLock::default(),
            changes: AtomicU64::new(1),
            ptags: Mutex::new(Table::new(PTAGS_MAX)),
            vis: Mutex::default(),
            cqs: Mutex::default(),
            peers: Mutex::default(),
            events: Mutex::default(),
            handler: Mutex::default(),
            sleepers: Sleepers::default(),
            notifies: AtomicU32::new(0),
            closing: AtomicBool::new(false),
            connector,
            names: AtomicBool::new(false),
            threads: Mutex::default(),
        });
        let key = locked(&NICS).add(nic.clone()).ok_or(Refusal::Resource)?;
        nic.handle.store(key.handle(handles::Kind::Nic), Ordering::Relaxed);
        let spawn = |name: &str, run: fn(&Arc<Nic>)| {
            let nic = nic.clone();
            std::thread::Builder::new().name(name.into()).spawn(move || run(&nic)).map_err(|_| Refusal::Resource)
        };
        let threads = spawn("vipl-events", crate::manager::run).and_then(|first| Ok([first, spawn("vipl-connect", crate::connect::run)?]));
        match threads {
            Ok(threads) => locked(&nic.threads).extend(threads),
            Err(refusal) => {
                nic.stop();
                locked(&NICS).remove(key);
                return Err(refusal);
            }
        }
        Ok(nic.handle())
    }

    /// Closes the NIC. Nothing that belongs to it may be left.
    pub fn close(handle: u64) -> Result<()> {
        let nic = find(handle)?;
        let regions = nic.regions.read().unwrap_or_else(PoisonError::into_inner).slots.iter().any(Option::is_some);
        if regions || !locked(&nic.vis).is_empty() || !locked(&nic.cqs).is_empty() || !locked(&nic.ptags).is_empty() {
            return Err(Refusal::Resource);
        }
        let key = Key::of(handle, handles::Kind::Nic).ok_or(Refusal::InvalidParameter)?;
        locked(&NICS).remove(key).ok_or(Refusal::InvalidParameter)?;
        nic.stop();
        let threads = std::mem::take(&mut *locked(&nic.threads));
        let this = std::thread::current().id();
        // A handler may close the NIC: its own thread ends when it returns.
        threads.into_iter().filter(|thread| thread.thread().id() != this).for_each(|thread| drop(thread.join()));
        Ok(())
    }

    fn stop(&self) {
        self.closing.store(true, Ordering::SeqCst);
        self.connector.stop();
        self.board.wake_own(true);
    }

    pub fn closing(&self) -> bool {
        self.closing.load(Ordering::SeqCst)
    }

    pub fn handle(&self) -> u64 {
        self.handle.load(Ordering::Relaxed)
    }

    /// What peers need to reach this NIC.
    pub fn card(&self) -> Card {
        Card {
            kind: self.provider.kind(),
            pid: std::process::id(),
            board: self.board.segment.locator,
            board_nonce: self.board.nonce,
            channel: Locator::default(),
            channel_nonce: 0,
            address: self.address,
        }
    }

    /// The board of a peer; one for all VIs that are connected to it.
    pub fn peer(&self, card: &Card) -> Result<Arc<PeerBoard>> {
        if card.kind != self.provider.kind() {
            return Err(Refusal::NotReachable);
        }
        let mut peers = locked(&self.peers);
        peers.retain(|_, board| board.strong_count() > 0);
        if let Some(board) = peers.get(&(card.pid, card.board_nonce)).and_then(Weak::upgrade) {
            return Ok(board);
        }
        let board = Arc::new(PeerBoard::attach(self.provider.clone(), card.pid, card.board, card.board_nonce, self.board.fence)?);
        peers.insert((card.pid, card.board_nonce), Arc::downgrade(&board));
        Ok(board)
    }

    // ---- protection tags

    pub fn create_ptag(&self) -> Result<u64> {
        locked(&self.ptags).add(()).map(|key| key.handle(handles::Kind::Ptag)).ok_or(Refusal::Resource)
    }

    pub fn destroy_ptag(&self, handle: u64) -> Result<()> {
        let key = Key::of(handle, handles::Kind::Ptag).ok_or(Refusal::InvalidParameter)?;
        let mut ptags = locked(&self.ptags);
        ptags.find(key).ok_or(Refusal::InvalidParameter)?;
        let number = ptag_number(key);
        let regions = self.regions.read().unwrap_or_else(PoisonError::into_inner);
        let in_regions = regions.slots.iter().flatten().any(|region| region.attributes.ptag == number);
        let in_vis = locked(&self.vis).iter().any(|vi| vi.admin(vi.generation()).is_ok_and(|admin| admin.owner.as_ref().is_some_and(|it| it.ptag == number)));
        if in_regions || in_vis {
            return Err(Refusal::Resource);
        }
        ptags.remove(key);
        Ok(())
    }

    /// The number of a tag, as regions and boards have it.
    pub fn ptag(&self, handle: u64) -> Result<(Key, u32)> {
        let key = Key::of(handle, handles::Kind::Ptag).ok_or(Refusal::InvalidPtag)?;
        locked(&self.ptags).find(key).ok_or(Refusal::InvalidPtag)?;
        Ok((key, ptag_number(key)))
    }

    /// Whether a VI can have these attributes; gives the number of its tag.
    pub fn check_vi(&self, attributes: &ViAttributes) -> Result<u32> {
        if ![UNRELIABLE, RELIABLE_DELIVERY, RELIABLE_RECEPTION].contains(&attributes.level) {
            return Err(Refusal::InvalidReliabilityLevel);
        }
        if attributes.max_transfer > TRANSFER_BYTES_MAX {
            return Err(Refusal::InvalidMtu);
        }
        if attributes.qos != 0 {
            return Err(Refusal::InvalidQos);
        }
        if attributes.read && attributes.level == UNRELIABLE {
            return Err(Refusal::InvalidRdmaRead);
        }
        let key = attributes.ptag.ok_or(Refusal::InvalidPtag)?;
        locked(&self.ptags).find(key).ok_or(Refusal::InvalidPtag)?;
        Ok(ptag_number(key))
    }

    // ---- regions

    #[inline]
    pub fn region_changes(&self) -> u64 {
        self.changes.load(Ordering::Acquire)
    }

    pub fn region(&self, handle: u32) -> Option<Arc<Region>> {
        let regions = self.regions.read().unwrap_or_else(PoisonError::into_inner);
        regions.slots.get(handle as usize % REGIONS_MAX)?.clone().filter(|region| region.handle == handle)
    }

    fn add_region(&self, user: UserRange, attributes: Attributes, memory: Memory) -> Result<u32> {
        let mut regions = self.regions.write().unwrap_or_else(PoisonError::into_inner);
        let index = match regions.slots.iter().position(Option::is_none) {
            Some(index) => index,
            None if regions.slots.len() < REGIONS_MAX => {
                regions.slots.push(None);
                regions.rounds.push(0);
                regions.slots.len() - 1
            }
            None => return Err(Refusal::Resource),
        };
        // A round in the upper bits: a handle of a region that is gone is not the next one's.
        let round = regions.rounds[index] % ((1 << 22) - 1) + 1;
        regions.rounds[index] = round;
        let region = Region { handle: round << 10 | index as u32, user, attributes, memory: Arc::new(memory) };
        self.board.show(&region);
        let handle = region.handle;
        regions.slots[index] = Some(Arc::new(region));
        self.changes.fetch_add(1, Ordering::Release);
        Ok(handle)
    }

    /// Registers memory of the program: where it lies, if peers can map it there, else with a shadow segment.
    pub fn register(&self, user: UserRange, attributes: Attributes) -> Result<u32> {
        if user.bytes() == 0 || user.start() == 0 {
            return Err(Refusal::InvalidParameter);
        }
        if user.bytes() > BYTES_MAX {
            return Err(Refusal::Resource);
        }
        let mapped = if self.provider.attaches_descriptors() { mapped_file(user.start(), user.bytes()) } else { None };
        let memory = match mapped {
            Some((fd, offset, bytes)) if bytes.is_multiple_of(PAGE) => Memory::Shared { locator: Locator { place: fd as u64, bytes }, offset },
            _ => Memory::Shadow(self.provider.create(user.bytes())?),
        };
        self.add_region(user, attributes, memory)
    }

    /// Allocates memory that peers map, and registers it: address and handle.
    pub fn allocate(&self, bytes: u64, attributes: Attributes) -> Result<(u64, u32)> {
        if bytes == 0 {
            return Err(Refusal::InvalidParameter);
        }
        let segment = self.provider.create(bytes)?;
        let whole = segment.map.as_user();
        // The segment is longer; what is registered is what was asked for.
        let user = whole.at(whole.start(), bytes).ok_or(Refusal::Resource)?;
        let handle = self.add_region(user, attributes, Memory::Allocated(segment))?;
        Ok((user.start(), handle))
    }

    /// The region of a handle around an address.
    fn known(&self, address: u64, handle: u32) -> Result<Arc<Region>> {
        let region = self.region(handle).ok_or(Refusal::InvalidParameter)?;
        region.user.at(address, 1).ok_or(Refusal::InvalidParameter)?;
        Ok(region)
    }

    /// Ends a registration; `allocated` says by which of the two ways it must have begun.
    pub fn deregister(&self, address: u64, handle: u32, allocated: bool) -> Result<()> {
        let region = self.known(address, handle)?;
        if region.user.start() != address || matches!(*region.memory, Memory::Allocated(_)) != allocated {
            return Err(Refusal::InvalidParameter);
        }
        self.board.hide(handle);
        let mut regions = self.regions.write().unwrap_or_else(PoisonError::into_inner);
        let gone = regions.slots[handle as usize % REGIONS_MAX].take();
        self.changes.fetch_add(1, Ordering::Release);
        drop(regions);
        drop(gone);
        Ok(())
    }

    pub fn set_region(&self, address: u64, handle: u32, attributes: Attributes) -> Result<()> {
        let region = self.known(address, handle)?;
        let changed = Region { handle, user: region.user, attributes, memory: region.memory.clone() };
        let mut regions = self.regions.write().unwrap_or_else(PoisonError::into_inner);
        self.board.show(&changed);
        regions.slots[handle as usize % REGIONS_MAX] = Some(Arc::new(changed));
        self.changes.fetch_add(1, Ordering::Release);
        Ok(())
    }

    /// Attributes of a region, the handle of its tag, and how peers reach it: 0 shadow, 1 allocated, 2 shared.
    pub fn query_region(&self, address: u64, handle: u32) -> Result<(Attributes, u64, i32)> {
        let region = self.known(address, handle)?;
        let kind = match *region.memory {
            Memory::Shadow(_) => 0,
            Memory::Allocated(_) => 1,
            Memory::Shared { .. } => 2,
        };
        Ok((region.attributes, ptag_handle(region.attributes.ptag), kind))
    }

    // ---- what is open

    pub fn add_vi(&self, vi: &'static Vi) {
        locked(&self.vis).push(vi);
    }

    pub fn remove_vi(&self, vi: &'static Vi) {
        locked(&self.vis).retain(|it| it.index != vi.index);
    }

    pub fn vis(&self) -> Vec<&'static Vi> {
        locked(&self.vis).clone()
    }

    // ---- asynchronous errors

    pub fn set_handler(&self, handler: Option<ErrorHandler>) {
        *locked(&self.handler) = handler;
    }

    pub fn report(&self, event: ErrorEvent) {
        let mut events = locked(&self.events);
        if events.len() == EVENTS_MAX {
            events.pop_front();
        }
        events.push_back(event);
    }

    /// Calls the program's error handler for what has happened. Without one, errors are logged.
    pub fn deliver_errors(&self) -> bool {
        let mut any = false;
        while let Some(event) = { locked(&self.events).pop_front() } {
            any = true;
            let handler = locked(&self.handler).clone();
            match handler {
                Some(handler) => handler(self.handle(), &event),
                // Where nobody reads the standard error output there is nobody to tell.
                None => drop(writeln!(std::io::stderr(), "libvipl: {}: {event}", self.name)),
            }
        }
        any
    }

    pub fn socket_address(&self) -> SocketAddrV4 {
        self.connector.address()
    }
}

fn ptag_number(key: Key) -> u32 {
    key.generation << 8 | key.index
}

fn ptag_handle(number: u32) -> u64 {
    Key { index: number & 0xff, generation: number >> 8 }.handle(handles::Kind::Ptag)
}
