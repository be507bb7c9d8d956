//! Making and freeing windows (MPI-5.0 §12.2), and the memory of shared and dynamic ones.

use super::hints::Hints;
use super::memory::{HERE, Memory, Part, arrange, lines_bytes};
use super::{SERVED, WINDOWS, Window, find, lock, message, request_lines, service};
use crate::attributes::{self, Object};
use crate::call::Kind;
use crate::collective;
use crate::comm::{self, Comm};
use crate::consts::*;
use crate::creation;
use crate::error::{Error, Result};
use crate::errors;
use crate::exchange::{agree, allgather_bytes};
use crate::handle::{self, Errhandler, Win};
use crate::info;
use crate::world::{self, fault};
use engine::{SharedMemory, SharedName};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

/// Regions that one process may have attached to a dynamic window at once.
pub const ATTACHED_MAX: usize = 65_536;

/// What a process gives for its part of a window.
#[derive(Clone, Copy, Debug)]
pub struct Given {
    pub flavor: i32,
    /// Where the program's memory begins, for `MPI_WIN_FLAVOR_CREATE`.
    pub base: usize,
    pub size: i64,
    pub unit: i64,
}

impl Given {
    fn check(&self) -> Result<()> {
        if self.size < 0 {
            return Err(Error::new(MPI_ERR_SIZE, format!("size = {} is negative", self.size)));
        }
        if !(1..=i32::MAX as i64).contains(&self.unit) {
            return Err(Error::new(MPI_ERR_DISP, format!("disp_unit = {} is not in 1..={}", self.unit, i32::MAX)));
        }
        if self.flavor == MPI_WIN_FLAVOR_CREATE && self.base == 0 && self.size > 0 {
            return Err(Error::new(MPI_ERR_BASE, format!("base is null and size = {}", self.size)));
        }
        if self.base.checked_add(self.size as usize).is_none() {
            return Err(Error::new(MPI_ERR_SIZE, format!("size = {} reaches past the end of memory", self.size)));
        }
        Ok(())
    }

    /// The library makes the memory.
    fn allocates(&self) -> bool {
        matches!(self.flavor, MPI_WIN_FLAVOR_ALLOCATE | MPI_WIN_FLAVOR_SHARED)
    }
}

/// The sizes and units that all ranks gave.
fn gather(function: &'static str, comm: &Comm, given: &Given) -> Result<Vec<[u64; 3]>> {
    let mine = [given.base as u64, given.size as u64, given.unit as u64];
    let bytes: Vec<u8> = mine.iter().flat_map(|word| word.to_ne_bytes()).collect();
    let all = allgather_bytes(function, comm, &bytes)?;
    let words: Vec<u64> = all.chunks_exact(8).map(|word| u64::from_ne_bytes(word.try_into().expect("eight bytes"))).collect();
    Ok(words.chunks_exact(3).map(|row| [row[0], row[1], row[2]]).collect())
}

/// Memory that all ranks have opened: rank 0 makes it. `None` where one of them cannot open it, for the reason that the error of this rank tells, if it is one.
fn open_all(function: &'static str, comm: &Comm, bytes: usize) -> Result<(Option<SharedMemory>, Option<Box<Error>>)> {
    let made = if comm.rank == 0 { Some(SharedMemory::create(bytes)) } else { None };
    let name = made.as_ref().map_or(Ok([0; SharedName::WORDS]), |made| made.as_ref().map_err(Clone::clone)?.name().map(SharedName::to_words));
    let mut mine = vec![u8::from(name.is_ok())];
    mine.extend(name.clone().unwrap_or_default().iter().flat_map(|word| word.to_ne_bytes()));
    let all = allgather_bytes(function, comm, &mine)?;
    let opened = match made {
        Some(made) => made,
        None if all[0] == 0 => return Ok((None, None)),
        None => {
            let word = |at: usize| u64::from_ne_bytes(all[1 + 8 * at..9 + 8 * at].try_into().expect("eight bytes"));
            SharedMemory::open(SharedName::from_words(std::array::from_fn(word))).and_then(|opened| match opened.len() == bytes {
                true => Ok(opened),
                false => Err(engine::FabricError::Corrupt { peer: comm.group.process(0), what: "the length of a window's memory", value: opened.len() as u64 }),
            })
        }
    };
    if all[0] == 0 {
        return Ok((None, opened.err().map(|error| fault(error.into()))));
    }
    let every = allgather_bytes(function, comm, &[u8::from(opened.is_ok())])?.iter().all(|good| *good == 1);
    match opened {
        Ok(opened) => Ok((every.then_some(opened), None)),
        Err(error) => Ok((None, Some(fault(error.into())))),
    }
}

/// The memory of a window, and whether all ranks share what it gives out.
fn memory(function: &'static str, comm: &Comm, given: &Given, apart: bool) -> Result<(Memory, bool)> {
    let table = gather(function, comm, given)?;
    let ranks = table.len();
    let together = world::get()?.shares_memory(comm.group.processes()) && ranks > 1;
    if given.flavor == MPI_WIN_FLAVOR_SHARED && !together && ranks > 1 {
        return Err(Error::new(MPI_ERR_RMA_SHARED, "the processes of the communicator do not share memory"));
    }
    let contiguous = given.flavor == MPI_WIN_FLAVOR_SHARED && !apart;
    let sizes = table.iter().map(|row| if given.allocates() { row[1] } else { 0 });
    let too_large = || Error::new(MPI_ERR_SIZE, "the sizes of all ranks together are more than 63 bits hold");
    let (bytes, offsets) = arrange(sizes, ranks, contiguous).ok_or_else(too_large)?;
    let (shared, why) = if together { open_all(function, comm, bytes)? } else { (None, None) };
    if given.flavor == MPI_WIN_FLAVOR_SHARED && shared.is_none() && ranks > 1 {
        let text = why.map_or_else(|| "another rank cannot map it".into(), |why| why.detail.clone());
        return Err(Error::new(MPI_ERR_RMA_SHARED, format!("the memory cannot be shared: {text}")));
    }
    let reserved = shared.as_ref().map_or(Ok(()), |shared| {
        let mine = if given.allocates() { given.size as usize } else { 0 };
        // Rank 0's part begins with all lines.
        let head = if comm.rank == 0 { lines_bytes(ranks) } else { 0 };
        shared.reserve(0, head).and_then(|()| shared.reserve(offsets[comm.rank as usize] as usize, mine)).map_err(|error| fault(error.into()))
    });
    agree(function, comm, reserved)?;
    let mut memory = Memory::new(shared, ranks);
    let loaded = given.allocates() && memory.is_shared() || ranks == 1;
    let base = match memory.is_shared() {
        _ if !given.allocates() => Ok(given.base),
        true => Ok(memory_of(&memory, offsets[comm.rank as usize])),
        false => memory.allocate(given.size as usize).map(|start| start as usize),
    };
    let base = if memory.is_shared() { base? } else { agree(function, comm, base)? };
    let starts: Vec<u64> = match given.allocates() {
        true if loaded && ranks > 1 => offsets.iter().map(|offset| memory_of(&memory, *offset) as u64).collect(),
        true => {
            let all = allgather_bytes(function, comm, &(base as u64).to_ne_bytes())?;
            all.chunks_exact(8).map(|word| u64::from_ne_bytes(word.try_into().expect("eight bytes"))).collect()
        }
        false => table.iter().map(|row| row[0]).collect(),
    };
    memory.set_parts(starts.iter().zip(&table).enumerate().map(|(rank, (start, row))| {
        let here = if loaded || rank == comm.rank as usize { HERE } else { 0 };
        Part { start: *start as usize, size: row[1], unit: row[2] as u32, state: AtomicU32::new(here) }
    }));
    // All have opened it.
    memory.shared_mut().into_iter().for_each(SharedMemory::close);
    Ok((memory, loaded))
}

fn memory_of(memory: &Memory, offset: u64) -> usize {
    memory.start().map_or(0, |start| start.wrapping_add(offset as usize) as usize)
}

/// `MPI_Win_create`, `_allocate`, `_allocate_shared` and `_create_dynamic`: the window, and where this process' part of it begins.
///
/// # Errors
/// `MPI_ERR_COMM`, `MPI_ERR_SIZE`, `MPI_ERR_DISP`, `MPI_ERR_BASE`, `MPI_ERR_INFO`, `MPI_ERR_RMA_SHARED`, `MPI_ERR_NO_MEM`, on all ranks.
pub fn create(function: &'static str, given: Given, given_info: handle::Info, comm: handle::Comm) -> Result<(Win, usize)> {
    let duplicate = creation::dup(function, comm::find_intra(comm)?)?;
    duplicate.set_errhandler(MPI_ERRORS_RETURN)?;
    let mut hints = Hints::default();
    let checked = given.check().and_then(|()| info::hints(given_info)).map(|pairs| hints.update(&pairs));
    agree(function, &duplicate, checked)?;
    let (memory, elements_shared) = memory(function, &duplicate, &given, hints.apart())?;
    let comm = comm::publish(duplicate.clone())?;
    let (rank, locks_shared) = (duplicate.rank, memory.is_shared() || duplicate.size() == 1);
    let messages = if elements_shared { None } else { Some(message::Side::open(&duplicate)?) };

    let has_request_lines = messages.is_some() && memory.is_shared() && request_lines::reach_all(function, &duplicate)?;
    let base = memory.part(rank).start;
    let window = Arc::new(Window {
        handle: AtomicUsize::new(MPI_WIN_NULL.0),
        comm: comm::find(comm)?,
        flavor: given.flavor,
        base,
        size_bytes: given.size as isize,
        unit_bytes: given.unit as i32,
        memory,
        locks_shared,
        elements_shared,
        messages,
        has_request_lines,
        epochs: Default::default(),
        serving: Mutex::default(),
        unfinished: AtomicBool::new(false),
        attached: Mutex::new(BTreeMap::new()),
        errhandler: AtomicUsize::new(MPI_ERRORS_ARE_FATAL.0),
        name: Mutex::default(),
        hints: Mutex::new(hints),
    });
    window.epochs.set_no_locks(lock(&window.hints).no_locks());
    let handle = WINDOWS.insert_shared(window.clone()).ok_or_else(|| Error::new(MPI_ERR_OTHER, "too many windows exist"))?;
    window.handle.store(handle, Ordering::Relaxed);
    if window.messages.is_some() {
        SERVED.lock().push(window);
        service::begin()?;
    }
    // Nobody asks this process before it can answer.
    collective::barrier(comm::find(comm)?, function, Kind::Barrier)?;
    Ok((Win(handle), base))
}

/// `MPI_Win_free`, collective.
///
/// # Errors
/// `MPI_ERR_WIN`; `MPI_ERR_RMA_SYNC` inside an epoch other than a fence's; the code of a callback that deletes an attribute.
pub fn free(win: Win) -> Result<()> {
    let function = "MPI_Win_free";
    let window = find(win)?;
    window.epochs.may_end()?;
    attributes::delete_all(Object::Win(win))?;
    window.flush_all(function)?;
    collective::barrier(window.comm, function, Kind::Barrier)?;
    if window.messages.is_some() {
        window.end_service(function)?;
        SERVED.lock().retain(|served| !std::ptr::eq(&**served, window));
        service::end_if_idle()?;
    }
    let comm = window.comm.handle();
    errors::release_handler(Errhandler(window.errhandler.load(Ordering::Relaxed)))?;
    let removed = WINDOWS.remove(win.0);
    // Its parts may be mapped by others; each unmaps its own.
    drop(removed);
    comm::free(comm)
}

/// `MPI_Win_attach`.
///
/// # Errors
/// `MPI_ERR_WIN`, `MPI_ERR_RMA_FLAVOR`, `MPI_ERR_SIZE`, `MPI_ERR_BASE`; `MPI_ERR_RMA_ATTACH` where regions overlap or past [`ATTACHED_MAX`].
pub fn attach(win: Win, base: usize, size: i64) -> Result<()> {
    let window = dynamic(win)?;
    Given { flavor: MPI_WIN_FLAVOR_CREATE, base, size, unit: 1 }.check()?;
    let mut attached = lock(&window.attached);
    let end = base + size as usize;
    let below = attached.range(..end).next_back();
    if let Some((start, bytes)) = below.filter(|(start, bytes)| **start + **bytes > base) {
        return Err(Error::new(MPI_ERR_RMA_ATTACH, format!("{size} bytes at {base:#x} overlap {bytes} bytes at {start:#x}, which are attached")));
    }
    if attached.len() >= ATTACHED_MAX {
        return Err(Error::new(MPI_ERR_RMA_ATTACH, format!("{ATTACHED_MAX} regions are attached")));
    }
    attached.insert(base, size as usize);
    Ok(())
}

/// `MPI_Win_detach`.
///
/// # Errors
/// `MPI_ERR_WIN`, `MPI_ERR_RMA_FLAVOR`; `MPI_ERR_RMA_ATTACH` where nothing is attached that begins there.
pub fn detach(win: Win, base: usize) -> Result<()> {
    let window = dynamic(win)?;
    let removed = lock(&window.attached).remove(&base);
    removed.map(drop).ok_or_else(|| Error::new(MPI_ERR_RMA_ATTACH, format!("base = {base:#x} is not the begin of an attached region")))
}

fn dynamic(win: Win) -> Result<&'static Window> {
    let window = find(win)?;
    if !window.dynamic() {
        return Err(Error::new(MPI_ERR_RMA_FLAVOR, "the window was not made by MPI_Win_create_dynamic"));
    }
    Ok(window)
}

/// `MPI_Win_shared_query`: bytes, unit and address here of the memory of `rank`; of `MPI_PROC_NULL`, of the first rank that has any. Memory that this
/// process cannot load from has no bytes.
///
/// # Errors
/// `MPI_ERR_WIN`, `MPI_ERR_RANK`; `MPI_ERR_RMA_FLAVOR` for a dynamic window.
pub fn shared_query(win: Win, rank: i32) -> Result<(i64, i32, usize)> {
    let window = find(win)?;
    if window.dynamic() {
        return Err(Error::new(MPI_ERR_RMA_FLAVOR, "a dynamic window has no memory to ask for"));
    }
    let here = |rank: u32| if window.elements_shared && window.ranks() > 1 { true } else { rank == window.comm.rank };
    let asked = match rank {
        MPI_PROC_NULL => (0..window.ranks()).find(|rank| window.size_of(*rank) > 0),
        _ => Some(u32::try_from(rank).ok().filter(|rank| *rank < window.ranks()).ok_or_else(|| window.no_rank(rank))?),
    };
    let Some(asked) = asked.filter(|rank| here(*rank)) else { return Ok((0, asked.map_or(1, |rank| window.memory.part(rank).unit as i32), 0)) };
    let part = window.memory.part(asked);
    // As other libraries have it: what has no bytes begins nowhere.
    let start = if part.size == 0 { 0 } else { part.start };
    Ok((part.size as i64, part.unit as i32, start))
}
