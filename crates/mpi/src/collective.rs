//! Collective communication (MPI-5.0 chapter 6): arguments are checked and turned into packed bytes, then one of the algorithms of
//! [`crate::coll`] runs. Each operation is made as a future once: blocking calls drive it to its end.

use crate::coll::{self, Reducer};
use crate::comm::Comm;
use crate::consts::*;
use crate::datatype::{self, Type};
use crate::error::{Error, Result};
use crate::handle;
use crate::lines::{self, Lines};
use crate::link::{Channel, block};
use crate::operation::Operation;
use crate::world;
use engine::Buffer;
use std::ffi::c_void;
use std::future::Future;

/// Some elements of a program's memory.
#[derive(Clone, Copy)]
pub struct Data {
    pub start: *mut c_void,
    pub count: i64,
    pub datatype: handle::Datatype,
}

// SAFETY: handed over by the program until the collective is complete.
unsafe impl Send for Data {}

/// One block for each rank: counts, and places relative to the start. Displacements in elements, or bytes for `MPI_Alltoallw`.
pub struct Blocks {
    pub start: *mut c_void,
    pub counts: Vec<i64>,
    pub displacements: Vec<i64>,
    pub datatypes: Types,
}

/// Datatypes of blocks.
pub enum Types {
    /// The same for all, displacements in its extent.
    Same(handle::Datatype),
    /// One each, displacements in bytes.
    Each(Vec<handle::Datatype>),
}

/// A program's memory as packed bytes: in place where it is contiguous, else a copy.
enum Packed {
    There(*mut u8, usize),
    Copy(Vec<u8>, Option<Buffer>),
}

// SAFETY: as `Data`.
unsafe impl Send for Packed {}

fn usable(t: &Type, data: &Data) -> Result<()> {
    if data.count < 0 {
        return Err(Error::new(MPI_ERR_COUNT, format!("count = {} is negative", data.count)));
    }
    if !t.committed() {
        return Err(Error::new(MPI_ERR_TYPE, format!("the datatype {:#x} is not committed", data.datatype.0)));
    }
    if data.start.is_null() && data.count > 0 && t.predefined() && t.size() > 0 {
        return Err(Error::new(MPI_ERR_BUFFER, format!("the buffer is null and count = {}", data.count)));
    }
    Ok(())
}

impl Packed {
    const NOTHING: Packed = Packed::There(std::ptr::null_mut(), 0);

    /// `receiving`: the bytes are put back into the program's memory by [`Packed::unpack`].
    fn new(data: &Data, sending: bool, receiving: bool) -> Result<Packed> {
        let t = datatype::lookup(data.datatype)?;
        usable(t, data)?;
        // SAFETY: the program handed its memory over for the collective.
        let buffer = unsafe { t.buffer(data.start.cast(), data.count as usize)? };
        Ok(match buffer.address() {
            Some(start) => Packed::There(start, buffer.len()),
            None => {
                let bytes = if sending { buffer.to_vec() } else { vec![0; buffer.len()] };
                Packed::Copy(bytes, receiving.then_some(buffer))
            }
        })
    }

    fn read(&self) -> &[u8] {
        match self {
            Packed::There(_, 0) => &[],
            // SAFETY: the program's memory, which nobody writes while the collective sends from it.
            Packed::There(start, bytes) => unsafe { std::slice::from_raw_parts(*start, *bytes) },
            Packed::Copy(bytes, _) => bytes,
        }
    }

    fn write(&mut self) -> &mut [u8] {
        match self {
            Packed::There(_, 0) => &mut [],
            // SAFETY: the program's memory, which is the collective's alone.
            Packed::There(start, bytes) => unsafe { std::slice::from_raw_parts_mut(*start, *bytes) },
            Packed::Copy(bytes, _) => bytes,
        }
    }

    fn unpack(&self) {
        if let Packed::Copy(bytes, Some(buffer)) = self {
            buffer.fill(bytes);
        }
    }
}

/// All blocks of a rank, packed one by one.
struct PackedBlocks(Vec<Packed>);

impl PackedBlocks {
    fn new(blocks: &Blocks, sending: bool, receiving: bool) -> Result<PackedBlocks> {
        (0..blocks.counts.len())
            .map(|at| {
                let (datatype, unit) = match &blocks.datatypes {
                    Types::Same(datatype) => (*datatype, datatype::lookup(*datatype)?.extent() as i64),
                    Types::Each(all) => (all[at], 1),
                };
                let count = blocks.counts[at];
                if count == 0 {
                    datatype::lookup(datatype)?;
                    return Ok(Packed::NOTHING);
                }
                let start = blocks.start.cast::<u8>().wrapping_offset((blocks.displacements[at] * unit) as isize).cast();
                Packed::new(&Data { start, count, datatype }, sending, receiving)
            })
            .collect::<Result<Vec<Packed>>>()
            .map(PackedBlocks)
    }

    fn read(&self) -> Vec<&[u8]> {
        self.0.iter().map(Packed::read).collect()
    }

    fn write(&mut self) -> Vec<&mut [u8]> {
        self.0.iter_mut().map(Packed::write).collect()
    }

    fn unpack(&self) {
        self.0.iter().for_each(Packed::unpack);
    }
}

pub fn in_place(start: *const c_void) -> bool {
    start as usize == MPI_IN_PLACE as usize
}

fn check_root(comm: &Comm, root: i32) -> Result<usize> {
    if root >= 0 && (root as u32) < comm.size() {
        Ok(root as usize)
    } else {
        Err(Error::new(MPI_ERR_ROOT, format!("root = {root} is not a rank of a communicator of {} ranks", comm.size())))
    }
}

fn misplaced(what: &str) -> Box<Error> {
    Error::new(MPI_ERR_BUFFER, format!("{what} cannot be MPI_IN_PLACE here"))
}

fn same_bytes(sent: usize, received: usize) -> Result<()> {
    if sent == received {
        return Ok(());
    }
    Err(Error::new(MPI_ERR_TRUNCATE, format!("this rank sends itself {sent} bytes and receives {received}")))
}

/// A collective as a future.
pub trait Operated: Future<Output = Result<()>> + Send + 'static {}
impl<F: Future<Output = Result<()>> + Send + 'static> Operated for F {}

/// Where a collective gets its messages' tag from.
pub type Open = dyn Fn(&Comm) -> Result<Channel>;

/// `MPI_Barrier`.
pub fn barrier(comm: &'static Comm, function: &'static str) -> Result<()> {
    if comm.size() > 1
        && comm.remote.is_none()
        && let Some(lines) = Lines::of(comm, function)?
    {
        return lines.exchange(comm, function, &[], |_| ());
    }
    block(function, barrier_on(Channel::new(comm)?)?)
}

pub fn barrier_on(channel: Channel) -> Result<impl Operated + use<>> {
    let tuning = &world::get()?.tuning;
    Ok(async move { coll::barrier(&channel, tuning).await })
}

/// `MPI_Bcast`.
pub fn bcast(comm: &'static Comm, data: &Data, root: i32, channel: Channel) -> Result<impl Operated + use<>> {
    let root = check_root(comm, root)?;
    let sending = root == comm.rank as usize;
    let mut packed = Packed::new(data, sending, !sending)?;
    let tuning = &world::get()?.tuning;
    Ok(async move {
        coll::bcast(&channel, tuning, packed.write(), root).await?;
        packed.unpack();
        Ok(())
    })
}

/// `MPI_Gather`.
pub fn gather(comm: &'static Comm, send: &Data, recv: &Data, root: i32, channel: Channel) -> Result<impl Operated + use<>> {
    let root = check_root(comm, root)?;
    let at_root = root == comm.rank as usize;
    let mut into = if at_root { Packed::new(&times(recv, comm)?, in_place(send.start), true)? } else { Packed::NOTHING };
    let mine = match in_place(send.start) {
        true if at_root => None,
        true => return Err(misplaced("sendbuf")),
        false => Some(Packed::new(send, true, false)?),
    };
    if at_root && let Some(mine) = &mine {
        same_bytes(mine.read().len(), into.read().len() / comm.size() as usize)?;
    }
    let tuning = &world::get()?.tuning;
    Ok(async move {
        coll::gather(&channel, tuning, mine.as_ref().map(Packed::read), into.write(), root).await?;
        into.unpack();
        Ok(())
    })
}

/// One block for each rank.
fn times(data: &Data, comm: &Comm) -> Result<Data> {
    if data.count < 0 {
        return Err(Error::new(MPI_ERR_COUNT, format!("count = {} is negative", data.count)));
    }
    let count = data.count.checked_mul(comm.size() as i64);
    count.map(|count| Data { count, ..*data }).ok_or_else(|| Error::new(MPI_ERR_COUNT, format!("count = {} is too large", data.count)))
}

/// `MPI_Gatherv`. `recv` matters at the root only.
pub fn gatherv(comm: &'static Comm, send: &Data, recv: Option<&Blocks>, root: i32, channel: Channel) -> Result<impl Operated + use<>> {
    let root = check_root(comm, root)?;
    let at_root = root == comm.rank as usize;
    let mine = match in_place(send.start) {
        true if at_root => None,
        true => return Err(misplaced("sendbuf")),
        false => Some(Packed::new(send, true, false)?),
    };
    let mut into = match recv {
        Some(blocks) if at_root => PackedBlocks::new(blocks, mine.is_none(), true)?,
        _ => PackedBlocks(Vec::new()),
    };
    if at_root && let Some(mine) = &mine {
        same_bytes(mine.read().len(), into.0[root].read().len())?;
    }
    Ok(async move {
        coll::gatherv(&channel, mine.as_ref().map(Packed::read), &mut into.write(), root).await?;
        into.unpack();
        Ok(())
    })
}

/// `MPI_Scatter`.
pub fn scatter(comm: &'static Comm, send: &Data, recv: &Data, root: i32, channel: Channel) -> Result<impl Operated + use<>> {
    let root = check_root(comm, root)?;
    let at_root = root == comm.rank as usize;
    let from = if at_root { Packed::new(&times(send, comm)?, true, false)? } else { Packed::NOTHING };
    let mut mine = match in_place(recv.start) {
        true if at_root => None,
        true => return Err(misplaced("recvbuf")),
        false => Some(Packed::new(recv, false, true)?),
    };
    if at_root && let Some(mine) = &mine {
        same_bytes(from.read().len() / comm.size() as usize, mine.read().len())?;
    }
    let tuning = &world::get()?.tuning;
    Ok(async move {
        coll::scatter(&channel, tuning, from.read(), mine.as_mut().map(Packed::write), root).await?;
        if let Some(mine) = &mine {
            mine.unpack();
        }
        Ok(())
    })
}

/// `MPI_Scatterv`. `send` matters at the root only.
pub fn scatterv(comm: &'static Comm, send: Option<&Blocks>, recv: &Data, root: i32, channel: Channel) -> Result<impl Operated + use<>> {
    let root = check_root(comm, root)?;
    let at_root = root == comm.rank as usize;
    let from = match send {
        Some(blocks) if at_root => PackedBlocks::new(blocks, true, false)?,
        _ => PackedBlocks(Vec::new()),
    };
    let mut mine = match in_place(recv.start) {
        true if at_root => None,
        true => return Err(misplaced("recvbuf")),
        false => Some(Packed::new(recv, false, true)?),
    };
    if at_root && let Some(mine) = &mine {
        same_bytes(from.0[root].read().len(), mine.read().len())?;
    }
    Ok(async move {
        coll::scatterv(&channel, &from.read(), mine.as_mut().map(Packed::write), root).await?;
        if let Some(mine) = &mine {
            mine.unpack();
        }
        Ok(())
    })
}

/// `MPI_Allgather`.
pub fn allgather(comm: &'static Comm, send: &Data, recv: &Data, channel: Channel) -> Result<impl Operated + use<>> {
    let mine = if in_place(send.start) { None } else { Some(Packed::new(send, true, false)?) };
    let mut into = Packed::new(&times(recv, comm)?, mine.is_none(), true)?;
    if let Some(mine) = &mine {
        same_bytes(mine.read().len(), into.read().len() / comm.size() as usize)?;
    }
    let tuning = &world::get()?.tuning;
    Ok(async move {
        coll::allgather(&channel, tuning, mine.as_ref().map(Packed::read), into.write()).await?;
        into.unpack();
        Ok(())
    })
}

/// `MPI_Allgatherv`.
pub fn allgatherv(comm: &'static Comm, send: &Data, recv: &Blocks, channel: Channel) -> Result<impl Operated + use<>> {
    let mine = if in_place(send.start) { None } else { Some(Packed::new(send, true, false)?) };
    let mut into = PackedBlocks::new(recv, mine.is_none(), true)?;
    if let Some(mine) = &mine {
        same_bytes(mine.read().len(), into.0[comm.rank as usize].read().len())?;
    }
    let tuning = &world::get()?.tuning;
    Ok(async move {
        coll::allgatherv(&channel, tuning, mine.as_ref().map(Packed::read), &mut into.write()).await?;
        into.unpack();
        Ok(())
    })
}

/// `MPI_Alltoall`.
pub fn alltoall(comm: &'static Comm, send: &Data, recv: &Data, channel: Channel) -> Result<impl Operated + use<>> {
    let from = if in_place(send.start) { None } else { Some(Packed::new(&times(send, comm)?, true, false)?) };
    let mut into = Packed::new(&times(recv, comm)?, from.is_none(), true)?;
    if let Some(from) = &from {
        same_bytes(from.read().len(), into.read().len())?;
    }
    let tuning = &world::get()?.tuning;
    Ok(async move {
        coll::alltoall(&channel, tuning, from.as_ref().map(Packed::read), into.write()).await?;
        into.unpack();
        Ok(())
    })
}

/// `MPI_Alltoallv` and `MPI_Alltoallw`. `send: None` is `MPI_IN_PLACE`.
pub fn alltoallv(comm: &'static Comm, send: Option<&Blocks>, recv: &Blocks, channel: Channel) -> Result<impl Operated + use<>> {
    let from = send.map(|blocks| PackedBlocks::new(blocks, true, false)).transpose()?;
    let mut into = PackedBlocks::new(recv, from.is_none(), true)?;
    if let Some(from) = &from {
        let me = comm.rank as usize;
        same_bytes(from.0[me].read().len(), into.0[me].read().len())?;
    }
    let tuning = &world::get()?.tuning;
    Ok(async move {
        let send = from.as_ref().map(PackedBlocks::read);
        coll::alltoallv(&channel, tuning, send.as_deref(), &mut into.write()).await?;
        into.unpack();
        Ok(())
    })
}

/// A vector that is reduced: packed, or as it lies in memory where a user's function must see it so.
struct Vector {
    packed: Packed,
    /// For user functions on types with gaps: elements as they lie in memory, and the type that they have.
    laid_out: Option<(Vec<u8>, Data)>,
}

impl Vector {
    fn new(data: &Data, op: &Operation, sending: bool, receiving: bool) -> Result<Vector> {
        let packed = Packed::new(data, sending, receiving)?;
        let t = datatype::lookup(data.datatype)?;
        if !op.keeps_layout() || t.contiguous() {
            return Ok(Vector { packed, laid_out: None });
        }
        // Elements side by side at their extent; what a type holds before and after that is kept, too.
        let mut memory = vec![0u8; op.element_bytes() * data.count as usize];
        if t.true_lb() < 0 || t.true_lb() + t.true_extent() > t.extent().max(0) {
            return Err(Error::new(MPI_ERR_TYPE, format!("a user's operation on the datatype {:#x}, whose elements reach past their extent", data.datatype.0)));
        }
        if sending {
            // SAFETY: `memory` holds `count` elements of the type.
            unsafe { t.buffer(memory.as_mut_ptr(), data.count as usize)? }.fill(packed.read());
        }
        Ok(Vector { packed, laid_out: Some((memory, *data)) })
    }

    fn read(&self) -> &[u8] {
        self.laid_out.as_ref().map_or_else(|| self.packed.read(), |(memory, _)| memory)
    }

    fn write(&mut self) -> &mut [u8] {
        match &mut self.laid_out {
            Some((memory, _)) => memory,
            None => self.packed.write(),
        }
    }

    fn unpack(&mut self) -> Result<()> {
        if let Some((memory, data)) = &mut self.laid_out {
            let t = datatype::lookup(data.datatype)?;
            // SAFETY: `memory` holds `count` elements of the type.
            let packed = unsafe { t.buffer(memory.as_mut_ptr(), data.count as usize)? }.to_vec();
            self.packed.write().copy_from_slice(&packed);
        }
        self.packed.unpack();
        Ok(())
    }
}

fn operation(op: handle::Op, data: &Data) -> Result<Operation> {
    Operation::new(op, data.datatype, datatype::lookup(data.datatype)?)
}

/// The input of a reduction: `None` for `MPI_IN_PLACE`.
fn input(send: *mut c_void, recv: &Data, op: &Operation) -> Result<Option<Vector>> {
    if in_place(send) { Ok(None) } else { Vector::new(&Data { start: send, ..*recv }, op, true, false).map(Some) }
}

/// `MPI_Reduce`.
pub fn reduce(comm: &'static Comm, send: *mut c_void, recv: &Data, op: handle::Op, root: i32, channel: Channel) -> Result<impl Operated + use<>> {
    let root = check_root(comm, root)?;
    let op = operation(op, recv)?;
    let at_root = root == comm.rank as usize;
    if in_place(send) && !at_root {
        return Err(misplaced("sendbuf"));
    }
    let mine = input(send, recv, &op)?;
    let mut into = if at_root { Vector::new(recv, &op, mine.is_none(), true)? } else { Vector { packed: Packed::NOTHING, laid_out: None } };
    let tuning = &world::get()?.tuning;
    Ok(async move {
        coll::reduce(&channel, tuning, &op, mine.as_ref().map(Vector::read), into.write(), root).await?;
        if at_root { into.unpack() } else { Ok(()) }
    })
}

/// `MPI_Allreduce`.
pub fn allreduce(comm: &'static Comm, send: *mut c_void, recv: &Data, op: handle::Op, channel: Channel) -> Result<impl Operated + use<>> {
    let _ = comm;
    let op = operation(op, recv)?;
    let mine = input(send, recv, &op)?;
    let mut into = Vector::new(recv, &op, mine.is_none(), true)?;
    let tuning = &world::get()?.tuning;
    Ok(async move {
        coll::allreduce(&channel, tuning, &op, mine.as_ref().map(Vector::read), into.write()).await?;
        into.unpack()
    })
}

/// Blocking `MPI_Allreduce`: short vectors through shared lines, where each rank combines them for itself, in the same order.
pub fn allreduce_now(function: &'static str, comm: &'static Comm, send: *mut c_void, recv: &Data, op: handle::Op) -> Result<()> {
    let t = datatype::lookup(recv.datatype)?;
    let bytes = t.size().saturating_mul(recv.count.max(0) as usize);
    if bytes > lines::BYTES_MAX || bytes == 0 || comm.size() == 1 || !t.contiguous() {
        return block(function, allreduce(comm, send, recv, op, Channel::new(comm)?)?);
    }
    let operation = operation(op, recv)?;
    let mine = input(send, recv, &operation)?;
    let mut into = Vector::new(recv, &operation, true, true)?;
    let Some(lines) = Lines::of(comm, function)? else {
        return block(function, allreduce(comm, send, recv, op, Channel::new(comm)?)?);
    };
    let own = match &mine {
        Some(mine) => mine.read(),
        None => into.read(),
    };
    let (mut words, count) = ([0u64; engine::LINE_WORDS], bytes.div_ceil(8));
    for (word, chunk) in words.iter_mut().zip(own.chunks(8)) {
        let mut padded = [0; 8];
        padded[..chunk.len()].copy_from_slice(chunk);
        *word = u64::from_ne_bytes(padded);
    }
    lines.exchange(comm, function, &words[..count], |all| {
        // From the last rank down, so that the lower rank's value is always on the left.
        let out = into.write();
        let mut line = [0u64; engine::LINE_WORDS];
        let mut left = [0u8; lines::BYTES_MAX];
        for (at, rank) in (0..all.len()).rev().enumerate() {
            all[rank].read(&mut line[..count]);
            for (chunk, word) in left.chunks_exact_mut(8).zip(&line[..count]) {
                chunk.copy_from_slice(&word.to_ne_bytes());
            }
            if at == 0 {
                out.copy_from_slice(&left[..bytes]);
            } else {
                operation.reduce(&left[..bytes], out)?;
            }
        }
        Ok(())
    })?
}

/// `MPI_Reduce_scatter`.
pub fn reduce_scatter(comm: &'static Comm, send: *mut c_void, recv: &Data, counts: &[i64], op: handle::Op, channel: Channel) -> Result<impl Operated + use<>> {
    if let Some(count) = counts.iter().find(|c| **c < 0) {
        return Err(Error::new(MPI_ERR_COUNT, format!("recvcounts holds {count}, which is negative")));
    }
    let op = operation(op, recv)?;
    let total: i64 = counts.iter().sum();
    let whole = Data { start: if in_place(send) { recv.start } else { send }, count: total, datatype: recv.datatype };
    let mut vector = Vector::new(&whole, &op, true, false)?;
    let mut out = Vector::new(&Data { count: counts[comm.rank as usize], ..*recv }, &op, false, true)?;
    let unit = if total == 0 { 0 } else { vector.read().len() / total as usize };
    let counts_bytes: Vec<usize> = counts.iter().map(|c| *c as usize * unit).collect();
    let tuning = &world::get()?.tuning;
    let me = comm.rank as usize;
    let replaced = in_place(send);
    Ok(async move {
        if replaced {
            // The vector lies where the result goes: a copy keeps them apart.
            let mut copy = vector.read().to_vec();
            coll::reduce_scatter(&channel, tuning, &op, None, &mut copy, &counts_bytes).await?;
            out.write().copy_from_slice(&copy[..counts_bytes[me]]);
        } else {
            coll::reduce_scatter(&channel, tuning, &op, Some(vector.write()), out.write(), &counts_bytes).await?;
        }
        out.unpack()
    })
}

/// `MPI_Scan`, or `MPI_Exscan` where `exclusive`.
pub fn scan(comm: &'static Comm, send: *mut c_void, recv: &Data, op: handle::Op, exclusive: bool, channel: Channel) -> Result<impl Operated + use<>> {
    let op = operation(op, recv)?;
    let mine = input(send, recv, &op)?;
    // An exclusive scan leaves the first rank's buffer as it is.
    let keep = exclusive && comm.rank == 0;
    let mut into = Vector::new(recv, &op, true, true)?;
    let tuning = &world::get()?.tuning;
    Ok(async move {
        let from = mine.as_ref().map(Vector::read);
        if exclusive {
            coll::exscan(&channel, tuning, &op, from, into.write()).await?;
        } else {
            coll::scan(&channel, tuning, &op, from, into.write()).await?;
        }
        if keep { Ok(()) } else { into.unpack() }
    })
}

/// The bytes of all ranks, in order, on every rank. All give the same number.
pub fn allgather_bytes(function: &'static str, comm: &'static Comm, mine: &[u8]) -> Result<Vec<u8>> {
    let mut all = vec![0; mine.len() * comm.size() as usize];
    block(function, coll::allgather(&Channel::new(comm)?, &world::get()?.tuning, Some(mine), &mut all))?;
    Ok(all)
}

/// The bytes of all ranks, in order, on rank 0; nothing elsewhere.
pub fn gather_bytes(comm: &'static Comm, mine: &[u8]) -> Result<Vec<u8>> {
    let mut all = if comm.rank == 0 { vec![0; mine.len() * comm.size() as usize] } else { Vec::new() };
    block("MPI_Finalize", coll::gather(&Channel::new(comm)?, &world::get()?.tuning, Some(mine), &mut all, 0))?;
    Ok(all)
}

/// `bytes` of rank 0, on every rank.
pub fn bcast_bytes(function: &'static str, comm: &'static Comm, bytes: &mut [u8]) -> Result<()> {
    block(function, coll::bcast(&Channel::new(comm)?, &world::get()?.tuning, bytes, 0))
}

/// `MPI_Ibarrier`.
pub fn barrier_of(_comm: &'static Comm, channel: Channel) -> Result<impl Operated + use<>> {
    barrier_on(channel)
}

/// `MPI_Reduce_local`.
pub fn reduce_local(input: *mut c_void, inout: &Data, op: handle::Op) -> Result<()> {
    let op = operation(op, inout)?;
    let from = Vector::new(&Data { start: input, ..*inout }, &op, true, false)?;
    let mut into = Vector::new(inout, &op, true, true)?;
    if into.read().is_empty() {
        return Ok(());
    }
    op.reduce(from.read(), into.write())?;
    into.unpack()
}
