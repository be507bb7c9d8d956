//! Collective communication (MPI-5.0 chapter 6). A call is checked once and becomes a [`Plan`], which keeps all that it needs of
//! datatypes and operations; running a plan turns memory into packed bytes and drives one of the algorithms of [`crate::coll`].
//! Blocking calls run a plan to its end, nonblocking ones make a request of it, persistent ones run it again and again.

use crate::call::{Begun, Call, Kind};
use crate::checks;
use crate::coll::inter::{self, Root};
use crate::coll::{self, Reducer};
use crate::comm::Comm;
use crate::consts::*;
use crate::datatype::{self, Layout, Type};
use crate::error::{Error, Result};
use crate::handle;
use crate::lines::{self, Short};
use crate::link::{Channel, block};
use crate::operation::Operation;
use engine::Buffer;
use std::ffi::c_void;
use std::future::Future;
use std::sync::Arc;

/// Some elements of a program's memory.
#[derive(Clone, Copy)]
pub struct Data {
    pub start: *mut c_void,
    pub count: i64,
    pub datatype: handle::Datatype,
}

// SAFETY: handed over by the program until the collective is complete.
unsafe impl Send for Data {}

/// One block for each rank or neighbour: counts, and places relative to the start. Displacements in elements, or bytes for the `w` forms.
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

/// A collective as a future.
pub trait Operated: Future<Output = Result<()>> + Send + 'static {}
impl<F: Future<Output = Result<()>> + Send + 'static> Operated for F {}

/// A checked collective operation that can be run, also more than once.
pub trait Plan: Send + Sync + Sized + 'static {
    /// What it is, as a blocking call.
    fn call(&self) -> Call;

    fn run(&self, channel: Channel) -> impl Operated + use<Self>;
}

/// Runs a plan to its end, as the next collective on `comm`.
pub fn now(function: &'static str, comm: &Comm, plan: Result<impl Plan>) -> Result<()> {
    let plan = plan?;
    block(comm.cell, function, plan.run(Channel::new(comm, plan.call())?))
}

/// A program's memory as packed bytes: in place where it is contiguous, else a copy.
pub(crate) enum Packed {
    There(*mut u8, usize),
    Copy(Vec<u8>, Option<Buffer>),
}

// SAFETY: as `Data`.
unsafe impl Send for Packed {}

impl Packed {
    /// `receiving`: the bytes are put back into the program's memory by [`Packed::unpack`].
    ///
    /// # Errors
    /// `MPI_ERR_NO_MEM`.
    pub(crate) fn of(buffer: &Buffer, sending: bool, receiving: bool) -> Result<Packed> {
        if let Some(start) = buffer.address() {
            return Ok(Packed::There(start, buffer.len()));
        }
        let bytes = if sending { buffer.try_to_vec().ok_or_else(|| coll::no_memory(buffer.len()))? } else { coll::zeros(buffer.len())? };
        Ok(Packed::Copy(bytes, receiving.then(|| buffer.clone())))
    }

    pub(crate) fn sent(buffer: &Buffer) -> Result<Packed> {
        Packed::of(buffer, true, false)
    }

    pub(crate) fn received(buffer: &Buffer) -> Result<Packed> {
        Packed::of(buffer, false, true)
    }

    pub(crate) fn read(&self) -> &[u8] {
        match self {
            Packed::There(_, 0) => &[],
            // SAFETY: the program's memory, which nobody writes while the collective sends from it.
            Packed::There(start, bytes) => unsafe { std::slice::from_raw_parts(*start, *bytes) },
            Packed::Copy(bytes, _) => bytes,
        }
    }

    pub(crate) fn write(&mut self) -> &mut [u8] {
        match self {
            Packed::There(_, 0) => &mut [],
            // SAFETY: the program's memory, which is the collective's alone.
            Packed::There(start, bytes) => unsafe { std::slice::from_raw_parts_mut(*start, *bytes) },
            Packed::Copy(bytes, _) => bytes,
        }
    }

    pub(crate) fn unpack(&self) {
        if let Packed::Copy(bytes, Some(buffer)) = self {
            buffer.fill(bytes);
        }
    }
}

/// All blocks of a rank, packed one by one.
pub(crate) struct PackedBlocks(Vec<Packed>);

impl PackedBlocks {
    pub(crate) fn of(blocks: &[Buffer], sending: bool, receiving: bool) -> Result<PackedBlocks> {
        blocks.iter().map(|block| Packed::of(block, sending, receiving)).collect::<Result<_>>().map(PackedBlocks)
    }

    pub(crate) fn read(&self) -> Vec<&[u8]> {
        self.0.iter().map(Packed::read).collect()
    }

    pub(crate) fn write(&mut self) -> Vec<&mut [u8]> {
        self.0.iter_mut().map(Packed::write).collect()
    }

    pub(crate) fn unpack(&self) {
        self.0.iter().for_each(Packed::unpack);
    }
}

fn usable(data: &Data) -> Result<&'static Type> {
    if data.count < 0 {
        return Err(Error::new(MPI_ERR_COUNT, format!("count = {} is negative", data.count)));
    }
    let t = if checks::on() { datatype::committed(data.datatype)? } else { datatype::lookup(data.datatype)? };
    if data.start.is_null() && data.count > 0 && t.predefined() && t.size() > 0 && checks::on() {
        return Err(Error::new(MPI_ERR_BUFFER, format!("the buffer is null and count = {}", data.count)));
    }
    Ok(t)
}

/// The memory of an argument.
pub(crate) fn buffer(data: &Data) -> Result<Buffer> {
    let t = usable(data)?;
    if in_place(data.start) {
        return Err(Error::new(MPI_ERR_BUFFER, "a buffer is MPI_IN_PLACE where that is not possible"));
    }
    // SAFETY: the program handed its memory over for the collective.
    unsafe { t.buffer(data.start.cast(), data.count as usize) }
}

/// The memory of each block of an argument.
pub(crate) fn buffers(blocks: &Blocks) -> Result<Vec<Buffer>> {
    let unit = match &blocks.datatypes {
        Types::Same(datatype) => datatype::committed(*datatype)?.extent() as i64,
        Types::Each(_) => 1,
    };
    let each = blocks.counts.iter().zip(&blocks.displacements).enumerate();
    each.map(|(at, (&count, &displacement))| {
        if count == 0 {
            return Ok(Buffer::EMPTY);
        }
        let datatype = match &blocks.datatypes {
            Types::Same(datatype) => *datatype,
            Types::Each(all) => all[at],
        };
        let offset = displacement.wrapping_mul(unit) as isize;
        let start = blocks.start.cast::<u8>().wrapping_offset(offset).cast();
        // A displacement may be a whole address, from MPI_BOTTOM.
        if blocks.start.is_null() && offset != 0 {
            // SAFETY: the program handed its memory over for the collective.
            return unsafe { usable(&Data { start, count, datatype })?.buffer(start.cast(), count as usize) };
        }
        buffer(&Data { start, count, datatype })
    })
    .collect()
}

pub fn in_place(start: *const c_void) -> bool {
    start as usize == MPI_IN_PLACE
}

/// Where a rooted collective has its root, seen from this process.
#[derive(Clone, Copy)]
enum Rooted {
    Intra { root: usize, here: bool },
    Inter(Root),
}

impl Rooted {
    fn new(comm: &Comm, root: i32) -> Result<Rooted> {
        let size = comm.peers().size();
        let rank = u32::try_from(root).ok().filter(|r| *r < size);
        match (rank, &comm.remote, root) {
            (Some(rank), None, _) => Ok(Rooted::Intra { root: rank as usize, here: rank == comm.rank }),
            (Some(rank), Some(_), _) => Ok(Rooted::Inter(Root::Remote(rank as usize))),
            (None, Some(_), MPI_ROOT) => Ok(Rooted::Inter(Root::Here)),
            (None, Some(_), MPI_PROC_NULL) => Ok(Rooted::Inter(Root::Beside)),
            _ => Err(Error::new(MPI_ERR_ROOT, format!("root = {root} is not a rank of a communicator of {size} ranks"))),
        }
    }

    /// The call, with its root; without what differs between two groups.
    fn of(self, call: Call) -> Call {
        match self {
            Rooted::Intra { root, .. } => call.root(root as u32),
            Rooted::Inter(_) => call.inter(true),
        }
    }

    /// Whether this process has what all bring or get.
    fn here(self) -> bool {
        matches!(self, Rooted::Intra { here: true, .. } | Rooted::Inter(Root::Here))
    }

    /// Whether this process has a block of its own.
    fn brings(self) -> bool {
        matches!(self, Rooted::Intra { .. } | Rooted::Inter(Root::Remote(_)))
    }

    /// Whether `MPI_IN_PLACE` may stand for this process' own block.
    fn may_be_in_place(self) -> bool {
        matches!(self, Rooted::Intra { here: true, .. })
    }
}

fn misplaced(what: &str) -> Box<Error> {
    Error::new(MPI_ERR_BUFFER, format!("{what} cannot be MPI_IN_PLACE here"))
}

/// Where what this process sends may be in place: everywhere in one group, nowhere between two.
fn replaced(comm: &Comm, start: *const c_void) -> Result<bool> {
    if in_place(start) && comm.remote.is_some() { Err(misplaced("sendbuf")) } else { Ok(in_place(start)) }
}

fn same_bytes(sent: usize, received: usize) -> Result<()> {
    if sent == received {
        return Ok(());
    }
    Err(Error::new(MPI_ERR_TRUNCATE, format!("this rank sends itself {sent} bytes and receives {received}")))
}

/// `count` elements for each of `blocks`.
pub(crate) fn times(data: &Data, blocks: usize) -> Result<Data> {
    if data.count < 0 {
        return Err(Error::new(MPI_ERR_COUNT, format!("count = {} is negative", data.count)));
    }
    let count = data.count.checked_mul(blocks as i64);
    count.map(|count| Data { count, ..*data }).ok_or_else(|| Error::new(MPI_ERR_COUNT, format!("count = {} is too large", data.count)))
}

fn peers(comm: &Comm) -> usize {
    comm.peers().size() as usize
}

/// `MPI_Barrier`, blocking: through shared lines where there are some.
#[inline]
pub fn barrier(comm: &'static Comm, function: &'static str, kind: Kind) -> Result<()> {
    let call = Call::new(kind);
    if comm.size() > 1 && comm.remote.is_none() {
        return match lines::short(comm, function, call, &[], |_| ())? {
            Short::Done(()) => Ok(()),
            Short::Long(begun) => without_lines(function, comm, begun, Ok(Barrier { call, inter: false })),
        };
    }
    now(function, comm, Ok(Barrier { call: call.inter(comm.remote.is_some()), inter: comm.remote.is_some() }))
}

/// As [`now`], for a short collective that has its number but no lines.
fn without_lines(function: &'static str, comm: &Comm, begun: Begun, plan: Result<impl Plan>) -> Result<()> {
    block(comm.cell, function, plan?.run(Channel::begun(comm, begun)?))?;
    lines::settle(comm);
    Ok(())
}

struct Barrier {
    call: Call,
    inter: bool,
}

/// `MPI_Barrier`.
pub fn barrier_plan(comm: &Comm) -> Result<impl Plan + use<>> {
    let inter = comm.remote.is_some();
    Ok(Barrier { call: Call::new(Kind::Barrier).inter(inter), inter })
}

impl Plan for Barrier {
    fn call(&self) -> Call {
        self.call
    }

    fn run(&self, channel: Channel) -> impl Operated + use<> {
        let inter = self.inter;
        async move { if inter { inter::barrier(&channel, channel.tuning()).await } else { coll::barrier(&channel, channel.tuning()).await } }
    }
}

struct Bcast {
    call: Call,
    root: Rooted,
    data: Buffer,
}

/// `MPI_Bcast`.
pub fn bcast(comm: &Comm, data: Data, root: i32) -> Result<impl Plan + use<>> {
    let root = Rooted::new(comm, root)?;
    let arguments = data;
    let data = if root.here() || root.brings() { buffer(&data)? } else { Buffer::EMPTY };
    Ok(Bcast { call: root.of(Call::new(Kind::Bcast).bytes(data.len()).of(&arguments)), root, data })
}

impl Plan for Bcast {
    fn call(&self) -> Call {
        self.call
    }

    fn run(&self, channel: Channel) -> impl Operated + use<> {
        let root = self.root;
        let packed = Packed::of(&self.data, root.here(), !root.here());
        async move {
            let mut packed = packed?;
            match root {
                Rooted::Intra { root, .. } => coll::bcast(&channel, channel.tuning(), packed.write(), root).await?,
                Rooted::Inter(root) => inter::bcast(&channel, channel.tuning(), packed.write(), root).await?,
            }
            packed.unpack();
            Ok(())
        }
    }
}

/// The block that a process gives to, or gets from, a root. `None`: in place.
fn own_block(root: Rooted, data: &Data, what: &str) -> Result<Option<Buffer>> {
    if !root.brings() {
        return Ok(Some(Buffer::EMPTY));
    }
    match in_place(data.start) {
        true if root.may_be_in_place() => Ok(None),
        true => Err(misplaced(what)),
        false => buffer(data).map(Some),
    }
}

struct Gather {
    call: Call,
    root: Rooted,
    mine: Option<Buffer>,
    all: Buffer,
}

/// `MPI_Gather`. `recv` matters at the root only.
pub fn gather(comm: &Comm, send: Data, recv: Data, root: i32) -> Result<impl Plan + use<>> {
    let root = Rooted::new(comm, root)?;
    let mine = own_block(root, &send, "sendbuf")?;
    let all = if root.here() { buffer(&times(&recv, peers(comm))?)? } else { Buffer::EMPTY };
    if let (Some(mine), Rooted::Intra { here: true, .. }) = (&mine, root) {
        same_bytes(mine.len(), all.len() / peers(comm))?;
    }
    let call = match &mine {
        Some(mine) => Call::new(Kind::Gather).bytes(mine.len()).of(&send),
        None => Call::new(Kind::Gather).bytes(all.len() / peers(comm)).of(&recv),
    };
    Ok(Gather { call: root.of(call), root, mine, all })
}

impl Plan for Gather {
    fn call(&self) -> Call {
        self.call
    }

    fn run(&self, channel: Channel) -> impl Operated + use<> {
        let (root, mine) = (self.root, self.mine.as_ref().map(Packed::sent).transpose());
        let all = Packed::of(&self.all, self.mine.is_none(), true);
        async move {
            let (mine, mut all) = (mine?, all?);
            let mine = mine.as_ref().map(Packed::read);
            match root {
                Rooted::Intra { root, .. } => coll::gather(&channel, channel.tuning(), mine, all.write(), root).await?,
                Rooted::Inter(root) => inter::gather(&channel, channel.tuning(), mine.unwrap_or_default(), all.write(), root).await?,
            }
            all.unpack();
            Ok(())
        }
    }
}

struct Gatherv {
    call: Call,
    root: Rooted,
    mine: Option<Buffer>,
    all: Vec<Buffer>,
}

/// `MPI_Gatherv`. `recv` is there at the root only.
pub fn gatherv(comm: &Comm, send: Data, recv: Option<Blocks>, root: i32) -> Result<impl Plan + use<>> {
    let root = Rooted::new(comm, root)?;
    let mine = own_block(root, &send, "sendbuf")?;
    let all = match &recv {
        Some(blocks) if root.here() => buffers(blocks)?,
        _ => Vec::new(),
    };
    if let (Some(mine), Rooted::Intra { here: true, root }) = (&mine, root) {
        same_bytes(mine.len(), all[root].len())?;
    }
    Ok(Gatherv { call: root.of(Call::new(Kind::Gatherv)), root, mine, all })
}

impl Plan for Gatherv {
    fn call(&self) -> Call {
        self.call
    }

    fn run(&self, channel: Channel) -> impl Operated + use<> {
        let (root, mine) = (self.root, self.mine.as_ref().map(Packed::sent).transpose());
        let all = PackedBlocks::of(&self.all, self.mine.is_none(), true);
        async move {
            let (mine, mut all) = (mine?, all?);
            let mine = mine.as_ref().map(Packed::read);
            match root {
                Rooted::Intra { root, .. } => coll::gatherv(&channel, mine, &mut all.write(), root).await?,
                Rooted::Inter(root) => inter::gatherv(&channel, mine.unwrap_or_default(), &mut all.write(), root).await?,
            }
            all.unpack();
            Ok(())
        }
    }
}

struct Scatter {
    call: Call,
    root: Rooted,
    all: Buffer,
    mine: Option<Buffer>,
}

/// `MPI_Scatter`. `send` matters at the root only.
pub fn scatter(comm: &Comm, send: Data, recv: Data, root: i32) -> Result<impl Plan + use<>> {
    let root = Rooted::new(comm, root)?;
    let mine = own_block(root, &recv, "recvbuf")?;
    let all = if root.here() { buffer(&times(&send, peers(comm))?)? } else { Buffer::EMPTY };
    if let (Some(mine), Rooted::Intra { here: true, .. }) = (&mine, root) {
        same_bytes(all.len() / peers(comm), mine.len())?;
    }
    let call = match &mine {
        Some(mine) => Call::new(Kind::Scatter).bytes(mine.len()).of(&recv),
        None => Call::new(Kind::Scatter).bytes(all.len() / peers(comm)).of(&send),
    };
    Ok(Scatter { call: root.of(call), root, all, mine })
}

impl Plan for Scatter {
    fn call(&self) -> Call {
        self.call
    }

    fn run(&self, channel: Channel) -> impl Operated + use<> {
        let (root, all, mine) = (self.root, Packed::sent(&self.all), self.mine.as_ref().map(Packed::received).transpose());
        async move {
            let (all, mut mine) = (all?, mine?);
            let own = mine.as_mut().map(Packed::write);
            match root {
                Rooted::Intra { root, .. } => coll::scatter(&channel, channel.tuning(), all.read(), own, root).await?,
                Rooted::Inter(root) => inter::scatter(&channel, channel.tuning(), all.read(), own.unwrap_or_default(), root).await?,
            }
            mine.iter().for_each(Packed::unpack);
            Ok(())
        }
    }
}

struct Scatterv {
    call: Call,
    root: Rooted,
    all: Vec<Buffer>,
    mine: Option<Buffer>,
}

/// `MPI_Scatterv`. `send` is there at the root only.
pub fn scatterv(comm: &Comm, send: Option<Blocks>, recv: Data, root: i32) -> Result<impl Plan + use<>> {
    let root = Rooted::new(comm, root)?;
    let mine = own_block(root, &recv, "recvbuf")?;
    let all = match &send {
        Some(blocks) if root.here() => buffers(blocks)?,
        _ => Vec::new(),
    };
    if let (Some(mine), Rooted::Intra { here: true, root }) = (&mine, root) {
        same_bytes(all[root].len(), mine.len())?;
    }
    Ok(Scatterv { call: root.of(Call::new(Kind::Scatterv)), root, all, mine })
}

impl Plan for Scatterv {
    fn call(&self) -> Call {
        self.call
    }

    fn run(&self, channel: Channel) -> impl Operated + use<> {
        let (root, all) = (self.root, PackedBlocks::of(&self.all, true, false));
        let mine = self.mine.as_ref().map(Packed::received).transpose();
        async move {
            let (all, mut mine) = (all?, mine?);
            let own = mine.as_mut().map(Packed::write);
            match root {
                Rooted::Intra { root, .. } => coll::scatterv(&channel, &all.read(), own, root).await?,
                Rooted::Inter(root) => inter::scatterv(&channel, &all.read(), own.unwrap_or_default(), root).await?,
            }
            mine.iter().for_each(Packed::unpack);
            Ok(())
        }
    }
}

struct Allgather {
    call: Call,
    inter: bool,
    mine: Option<Buffer>,
    all: Buffer,
}

/// `MPI_Allgather`.
pub fn allgather(comm: &Comm, send: Data, recv: Data) -> Result<impl Plan + use<>> {
    let inter = comm.remote.is_some();
    let mine = if replaced(comm, send.start)? { None } else { Some(buffer(&send)?) };
    let all = buffer(&times(&recv, peers(comm))?)?;
    if let (Some(mine), false) = (&mine, inter) {
        same_bytes(mine.len(), all.len() / peers(comm))?;
    }
    let call = Call::new(Kind::Allgather).bytes(all.len() / peers(comm)).of(&recv).inter(inter);
    Ok(Allgather { call, inter, mine, all })
}

impl Plan for Allgather {
    fn call(&self) -> Call {
        self.call
    }

    fn run(&self, channel: Channel) -> impl Operated + use<> {
        let (inter, mine) = (self.inter, self.mine.as_ref().map(Packed::sent).transpose());
        let all = Packed::of(&self.all, self.mine.is_none(), true);
        async move {
            let (mine, mut all) = (mine?, all?);
            let mine = mine.as_ref().map(Packed::read);
            if inter {
                inter::allgather(&channel, channel.tuning(), mine.unwrap_or_default(), all.write()).await?;
            } else {
                coll::allgather(&channel, channel.tuning(), mine, all.write()).await?;
            }
            all.unpack();
            Ok(())
        }
    }
}

struct Allgatherv {
    call: Call,
    inter: bool,
    mine: Option<Buffer>,
    all: Vec<Buffer>,
}

/// `MPI_Allgatherv`.
pub fn allgatherv(comm: &Comm, send: Data, recv: Blocks) -> Result<impl Plan + use<>> {
    let inter = comm.remote.is_some();
    let mine = if replaced(comm, send.start)? { None } else { Some(buffer(&send)?) };
    let all = buffers(&recv)?;
    if let (Some(mine), false) = (&mine, inter) {
        same_bytes(mine.len(), all[comm.rank as usize].len())?;
    }
    let call = Call::new(Kind::Allgatherv).blocks(all.iter().map(Buffer::len)).inter(inter);
    Ok(Allgatherv { call, inter, mine, all })
}

impl Plan for Allgatherv {
    fn call(&self) -> Call {
        self.call
    }

    fn run(&self, channel: Channel) -> impl Operated + use<> {
        let (inter, mine) = (self.inter, self.mine.as_ref().map(Packed::sent).transpose());
        let all = PackedBlocks::of(&self.all, self.mine.is_none(), true);
        async move {
            let (mine, mut all) = (mine?, all?);
            let mine = mine.as_ref().map(Packed::read);
            if inter {
                inter::allgatherv(&channel, mine.unwrap_or_default(), &mut all.write()).await?;
            } else {
                coll::allgatherv(&channel, channel.tuning(), mine, &mut all.write()).await?;
            }
            all.unpack();
            Ok(())
        }
    }
}

struct Alltoall {
    call: Call,
    inter: bool,
    from: Option<Buffer>,
    into: Buffer,
}

/// `MPI_Alltoall`.
pub fn alltoall(comm: &Comm, send: Data, recv: Data) -> Result<impl Plan + use<>> {
    let inter = comm.remote.is_some();
    let from = if replaced(comm, send.start)? { None } else { Some(buffer(&times(&send, peers(comm))?)?) };
    let into = buffer(&times(&recv, peers(comm))?)?;
    if let (Some(from), false) = (&from, inter) {
        same_bytes(from.len(), into.len())?;
    }
    let call = Call::new(Kind::Alltoall).bytes(into.len() / peers(comm)).of(&recv).inter(inter);
    Ok(Alltoall { call, inter, from, into })
}

impl Plan for Alltoall {
    fn call(&self) -> Call {
        self.call
    }

    fn run(&self, channel: Channel) -> impl Operated + use<> {
        let (inter, from) = (self.inter, self.from.as_ref().map(Packed::sent).transpose());
        let into = Packed::of(&self.into, self.from.is_none(), true);
        async move {
            let (from, mut into) = (from?, into?);
            let from = from.as_ref().map(Packed::read);
            if inter {
                inter::alltoall(&channel, from.unwrap_or_default(), into.write()).await?;
            } else {
                coll::alltoall(&channel, channel.tuning(), from, into.write()).await?;
            }
            into.unpack();
            Ok(())
        }
    }
}

struct Alltoallv {
    call: Call,
    inter: bool,
    from: Option<Vec<Buffer>>,
    into: Vec<Buffer>,
}

/// `MPI_Alltoallv` and `MPI_Alltoallw`. `send: None` is `MPI_IN_PLACE`.
pub fn alltoallv(comm: &Comm, send: Option<Blocks>, recv: Blocks) -> Result<impl Plan + use<>> {
    let (inter, me) = (comm.remote.is_some(), comm.rank as usize);
    if send.is_none() && inter {
        return Err(misplaced("sendbuf"));
    }
    let kind = match recv.datatypes {
        Types::Same(_) => Kind::Alltoallv,
        Types::Each(_) => Kind::Alltoallw,
    };
    let from = send.as_ref().map(buffers).transpose()?;
    let into = buffers(&recv)?;
    if let (Some(from), false) = (&from, inter) {
        same_bytes(from[me].len(), into[me].len())?;
    }
    let call = Call::new(kind).inter(inter);
    Ok(Alltoallv { call, inter, from, into })
}

impl Plan for Alltoallv {
    fn call(&self) -> Call {
        self.call
    }

    fn run(&self, channel: Channel) -> impl Operated + use<> {
        let inter = self.inter;
        let from = self.from.as_ref().map(|blocks| PackedBlocks::of(blocks, true, false)).transpose();
        let into = PackedBlocks::of(&self.into, self.from.is_none(), true);
        async move {
            let (from, mut into) = (from?, into?);
            let send = from.as_ref().map(PackedBlocks::read);
            if inter {
                inter::alltoallv(&channel, send.as_deref().unwrap_or_default(), &mut into.write()).await?;
            } else {
                coll::alltoallv(&channel, channel.tuning(), send.as_deref(), &mut into.write()).await?;
            }
            into.unpack();
            Ok(())
        }
    }
}

/// The memory of a vector that is reduced, and how its elements must lie for the operation.
#[derive(Clone)]
struct VectorPlace {
    buffer: Buffer,
    count: usize,
    /// For a user's function on a type with gaps: elements one after the other, each in this many bytes.
    spread: Option<(Arc<Layout>, usize)>,
}

impl VectorPlace {
    const NONE: VectorPlace = VectorPlace { buffer: Buffer::EMPTY, count: 0, spread: None };

    fn new(data: &Data, op: &Operation) -> Result<VectorPlace> {
        let buffer = buffer(data)?;
        let t = datatype::lookup(data.datatype)?;
        let spread = (op.keeps_layout() && !t.contiguous()).then(|| (t.layout().clone(), op.element_bytes()));
        Ok(VectorPlace { buffer, count: data.count as usize, spread })
    }

    /// # Errors
    /// `MPI_ERR_NO_MEM`.
    fn load(&self, sending: bool, receiving: bool) -> Result<Vector> {
        let packed = Packed::of(&self.buffer, sending, receiving)?;
        let mut memory = None;
        if let Some((_, stride)) = &self.spread {
            let spread = memory.insert(coll::zeros(stride * self.count)?);
            if sending {
                let bytes = packed.read();
                let each = self.spread_over(spread);
                let size = bytes.len() / each.len().max(1);
                each.enumerate().for_each(|(at, buffer)| buffer.fill(&bytes[at * size..(at + 1) * size]));
            }
        }
        Ok(Vector { packed, memory, place: self.clone() })
    }

    /// The elements in spread `memory`: all at once where they lie at their extent, else one by one.
    fn spread_over(&self, memory: &mut [u8]) -> impl ExactSizeIterator<Item = Buffer> {
        let (layout, stride) = self.spread.as_ref().expect("only spread elements have memory of their own");
        let at_once = if layout.extent() == *stride as isize { self.count } else { 1 };
        memory.chunks_mut(stride * at_once.max(1)).map(move |slot| {
            let start = slot.as_mut_ptr().wrapping_offset(-Operation::before(layout));
            // SAFETY: the slot holds all that so many elements of the layout touch.
            unsafe { Buffer::planned(start, at_once, at_once * layout.size, layout.program().clone()) }
        })
    }
}

/// A vector that is reduced: packed, or as it lies in memory where a user's function must see it so.
struct Vector {
    packed: Packed,
    memory: Option<Vec<u8>>,
    place: VectorPlace,
}

impl Vector {
    fn read(&self) -> &[u8] {
        self.memory.as_deref().unwrap_or_else(|| self.packed.read())
    }

    fn write(&mut self) -> &mut [u8] {
        match &mut self.memory {
            Some(memory) => memory,
            None => self.packed.write(),
        }
    }

    fn unpack(&mut self) {
        if let Some(memory) = &mut self.memory {
            let (each, packed) = (self.place.spread_over(memory), self.packed.write());
            let size = packed.len() / each.len().max(1);
            for (buffer, to) in each.zip(packed.chunks_mut(size.max(1))) {
                // SAFETY: the bytes are writable, and outlive the copy.
                unsafe { Buffer::contiguous(to.as_mut_ptr(), to.len()) }.copy_from(&buffer);
            }
        }
        self.packed.unpack();
    }
}

fn operation(op: handle::Op, data: &Data) -> Result<Operation> {
    Operation::new(op, data.datatype, datatype::committed(data.datatype)?)
}

/// Whether input and result of a reduction, which have the same datatype, are the same memory.
fn aliased(send: *mut c_void, recv: &Data) -> bool {
    send == recv.start && !send.is_null() && recv.count > 0 && datatype::lookup(recv.datatype).is_ok_and(|t| t.size() > 0)
}

/// Refuses input that lies where the result goes (MPI-5.0 §2.3): reading it while the result is written has no defined outcome.
fn apart(send: *mut c_void, recv: &Data) -> Result<()> {
    if aliased(send, recv) && checks::on() {
        return Err(Error::new(MPI_ERR_BUFFER, "input and result are the same memory; where that is possible, MPI_IN_PLACE says so"));
    }
    Ok(())
}

/// The input of a reduction: `None` for `MPI_IN_PLACE`.
fn input(comm: &Comm, send: *mut c_void, recv: &Data, op: &Operation) -> Result<Option<VectorPlace>> {
    if replaced(comm, send)? {
        return Ok(None);
    }
    apart(send, recv)?;
    VectorPlace::new(&Data { start: send, ..*recv }, op).map(Some)
}

struct Reduce {
    call: Call,
    root: Rooted,
    /// `None` where this process takes no part.
    op: Option<Operation>,
    mine: Option<VectorPlace>,
    into: VectorPlace,
}

/// `MPI_Reduce`.
pub fn reduce(comm: &Comm, send: *mut c_void, recv: Data, op: handle::Op, root: i32) -> Result<impl Plan + use<>> {
    let root = Rooted::new(comm, root)?;
    if !root.here() && !root.brings() {
        return Ok(Reduce { call: root.of(Call::new(Kind::Reduce)), root, op: None, mine: None, into: VectorPlace::NONE });
    }
    let (handle, op) = (op, operation(op, &recv)?);
    let mine = match in_place(send) {
        _ if !root.brings() => Some(VectorPlace::NONE),
        true if root.may_be_in_place() => None,
        true => return Err(misplaced("sendbuf")),
        false => {
            if root.here() {
                apart(send, &recv)?;
            }
            Some(VectorPlace::new(&Data { start: send, ..recv }, &op)?)
        }
    };
    let into = if root.here() { VectorPlace::new(&recv, &op)? } else { VectorPlace::NONE };
    let bytes = mine.as_ref().unwrap_or(&into).buffer.len();
    let call = Call::new(Kind::Reduce).bytes(bytes).of(&recv).operation(handle.0, op.element());
    Ok(Reduce { call: root.of(call), root, op: Some(op), mine, into })
}

impl Plan for Reduce {
    fn call(&self) -> Call {
        self.call
    }

    fn run(&self, channel: Channel) -> impl Operated + use<> {
        let (root, op) = (self.root, self.op.clone());
        let mine = self.mine.as_ref().map(|mine| mine.load(true, false)).transpose();
        let into = self.into.load(self.mine.is_none(), true);
        async move {
            let Some(op) = op else { return Ok(()) };
            let (mine, mut into) = (mine?, into?);
            let mine = mine.as_ref().map(Vector::read);
            match root {
                Rooted::Intra { root, .. } => coll::reduce(&channel, channel.tuning(), &op, mine, into.write(), root).await?,
                Rooted::Inter(root) => inter::reduce(&channel, channel.tuning(), &op, mine.unwrap_or_default(), into.write(), root).await?,
            }
            into.unpack();
            Ok(())
        }
    }
}

struct Allreduce {
    call: Call,
    inter: bool,
    op: Operation,
    mine: Option<VectorPlace>,
    into: VectorPlace,
}

/// `MPI_Allreduce`.
pub fn allreduce(comm: &Comm, send: *mut c_void, recv: Data, op: handle::Op) -> Result<impl Plan + use<>> {
    let (handle, op) = (op, operation(op, &recv)?);
    let mine = input(comm, send, &recv, &op)?;
    let into = VectorPlace::new(&recv, &op)?;
    let inter = comm.remote.is_some();
    let call = Call::new(Kind::Allreduce).bytes(into.buffer.len()).of(&recv).operation(handle.0, op.element()).inter(inter);
    Ok(Allreduce { call, inter, op, mine, into })
}

impl Plan for Allreduce {
    fn call(&self) -> Call {
        self.call
    }

    fn run(&self, channel: Channel) -> impl Operated + use<> {
        let (inter, op) = (self.inter, self.op.clone());
        let mine = self.mine.as_ref().map(|mine| mine.load(true, false)).transpose();
        let into = self.into.load(self.mine.is_none(), true);
        async move {
            let (mine, mut into) = (mine?, into?);
            let mine = mine.as_ref().map(Vector::read);
            if inter {
                inter::allreduce(&channel, channel.tuning(), &op, mine.unwrap_or_default(), into.write()).await?;
            } else {
                coll::allreduce(&channel, channel.tuning(), &op, mine, into.write()).await?;
            }
            into.unpack();
            Ok(())
        }
    }
}

/// Blocking `MPI_Allreduce`: short vectors through shared lines, where each rank combines them for itself, in the same order.
pub fn allreduce_now(function: &'static str, comm: &'static Comm, send: *mut c_void, recv: Data, op: handle::Op) -> Result<()> {
    let t = usable(&recv)?;
    let bytes = t.size().saturating_mul(recv.count as usize);
    if bytes > lines::BYTES_MAX || bytes == 0 || comm.size() == 1 || comm.remote.is_some() || !t.contiguous() || aliased(send, &recv) {
        return now(function, comm, allreduce(comm, send, recv, op));
    }
    let operation = operation(op, &recv)?;
    let own = buffer(&if in_place(send) { recv } else { Data { start: send, ..recv } })?;
    let into = buffer(&recv)?;
    // Both are in one piece, of `bytes`.
    let (Some(from), Some(to)) = (own.address(), into.address()) else { return now(function, comm, allreduce(comm, send, recv, op)) };
    let call = Call::new(Kind::Allreduce).bytes(bytes).of(&recv).operation(op.0, operation.element());
    let (mut words, count) = ([0u64; engine::LINE_WORDS], bytes.div_ceil(8));
    // SAFETY: the program's memory, which nobody writes while the collective sends from it.
    for (word, chunk) in words.iter_mut().zip(unsafe { std::slice::from_raw_parts(from, bytes) }.chunks(8)) {
        let mut padded = [0; 8];
        padded[..chunk.len()].copy_from_slice(chunk);
        *word = u64::from_ne_bytes(padded);
    }
    let reduced = lines::short(comm, function, call, &words[..count], |all| {
        // From the last rank down, so that the lower rank's value is always on the left.
        // SAFETY: the program's memory, which is the collective's alone; what was sent from has been read.
        let out = unsafe { std::slice::from_raw_parts_mut(to, bytes) };
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
    })?;
    match reduced {
        Short::Done(result) => result,
        Short::Long(begun) => without_lines(function, comm, begun, allreduce(comm, send, recv, op)),
    }
}

struct ReduceScatter {
    call: Call,
    inter: bool,
    op: Operation,
    /// The whole vector; in place where `replaced`.
    whole: VectorPlace,
    replaced: bool,
    into: VectorPlace,
    counts: Vec<i64>,
    me: usize,
}

/// `MPI_Reduce_scatter`, or `MPI_Reduce_scatter_block`: `recv.count` does not matter.
pub fn reduce_scatter(comm: &Comm, send: *mut c_void, recv: Data, counts: Vec<i64>, op: handle::Op, block: bool) -> Result<impl Plan + use<>> {
    if let Some(count) = counts.iter().find(|c| **c < 0) {
        return Err(Error::new(MPI_ERR_COUNT, format!("recvcounts holds {count}, which is negative")));
    }
    let total = counts.iter().try_fold(0i64, |sum, count| sum.checked_add(*count));
    let count = total.ok_or_else(|| Error::new(MPI_ERR_COUNT, "the sum of recvcounts is too large"))?;
    let (handle, op) = (op, operation(op, &Data { count: 0, ..recv })?);
    let (replaced, me) = (replaced(comm, send)?, comm.rank as usize);
    if !replaced {
        apart(send, &Data { count: counts[me], ..recv })?;
    }
    let whole = VectorPlace::new(&Data { start: if replaced { recv.start } else { send }, count, datatype: recv.datatype }, &op)?;
    let into = VectorPlace::new(&Data { count: counts[me], ..recv }, &op)?;
    let inter = comm.remote.is_some();
    let unit = whole.buffer.len() / whole.count.max(1);
    let call = Call::new(if block { Kind::ReduceScatterBlock } else { Kind::ReduceScatter }).blocks(counts.iter().map(|c| *c as usize * unit));
    let call = call.of(&Data { count, ..recv }).operation(handle.0, op.element()).inter(inter);
    Ok(ReduceScatter { call, inter, op, whole, replaced, into, counts, me })
}

impl Plan for ReduceScatter {
    fn call(&self) -> Call {
        self.call
    }

    fn run(&self, channel: Channel) -> impl Operated + use<> {
        let (inter, op, replaced, me) = (self.inter, self.op.clone(), self.replaced, self.me);
        let (whole, into) = (self.whole.load(true, false), self.into.load(false, true));
        let unit = whole.as_ref().map_or(0, |whole| whole.read().len()) / self.whole.count.max(1);
        let counts_bytes: Vec<usize> = self.counts.iter().map(|c| *c as usize * unit).collect();
        async move {
            let (whole, mut into) = (whole?, into?);
            let tuning = channel.tuning();
            if inter {
                inter::reduce_scatter(&channel, tuning, &op, whole.read(), into.write(), &counts_bytes).await?;
            } else if replaced {
                // The vector lies where the result goes: a copy keeps them apart.
                let mut copy = coll::copy(whole.read())?;
                coll::reduce_scatter(&channel, tuning, &op, None, &mut copy, &counts_bytes).await?;
                into.write().copy_from_slice(&copy[..counts_bytes[me]]);
            } else {
                coll::reduce_scatter(&channel, tuning, &op, Some(whole.read()), into.write(), &counts_bytes).await?;
            }
            into.unpack();
            Ok(())
        }
    }
}

struct Scan {
    call: Call,
    op: Operation,
    mine: Option<VectorPlace>,
    into: VectorPlace,
    exclusive: bool,
    first: bool,
}

/// `MPI_Scan`, or `MPI_Exscan` where `exclusive`.
pub fn scan(comm: &Comm, send: *mut c_void, recv: Data, op: handle::Op, exclusive: bool) -> Result<impl Plan + use<>> {
    if comm.remote.is_some() {
        return Err(Error::new(MPI_ERR_COMM, "the communicator is an intercommunicator, which has no scans"));
    }
    let (handle, op) = (op, operation(op, &recv)?);
    let mine = input(comm, send, &recv, &op)?;
    let into = VectorPlace::new(&recv, &op)?;
    let kind = if exclusive { Kind::Exscan } else { Kind::Scan };
    let call = Call::new(kind).bytes(into.buffer.len()).of(&recv).operation(handle.0, op.element());
    Ok(Scan { call, op, mine, into, exclusive, first: comm.rank == 0 })
}

impl Plan for Scan {
    fn call(&self) -> Call {
        self.call
    }

    fn run(&self, channel: Channel) -> impl Operated + use<> {
        let (op, exclusive, first) = (self.op.clone(), self.exclusive, self.first);
        let mine = self.mine.as_ref().map(|mine| mine.load(true, false)).transpose();
        let into = self.into.load(true, true);
        async move {
            let (mine, mut into) = (mine?, into?);
            let from = mine.as_ref().map(Vector::read);
            if exclusive {
                coll::exscan(&channel, channel.tuning(), &op, from, into.write()).await?;
            } else {
                coll::scan(&channel, channel.tuning(), &op, from, into.write()).await?;
            }
            // An exclusive scan leaves the first rank's buffer as it is.
            if !(exclusive && first) {
                into.unpack();
            }
            Ok(())
        }
    }
}

/// `MPI_Reduce_local`.
pub fn reduce_local(input: *mut c_void, inout: Data, op: handle::Op) -> Result<()> {
    let op = operation(op, &inout)?;
    apart(input, &inout)?;
    let from = VectorPlace::new(&Data { start: input, ..inout }, &op)?.load(true, false)?;
    let mut into = VectorPlace::new(&inout, &op)?.load(true, true)?;
    if into.read().is_empty() {
        return Ok(());
    }
    op.reduce(from.read(), into.write())?;
    into.unpack();
    Ok(())
}
