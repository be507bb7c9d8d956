//! Blocking collectives whose parts fit into lines, where a rank's memory is in one piece: its part of the [turn](Turn) without a plan, which takes longer to
//! make than the bytes take to the other ranks. What is not so, and every wrong argument, is left to the plan; other ranks do not see which way this one takes.
//!
//! What is written in words and read in longer pieces, as values are that functions return by memory, waits until all earlier stores are done, and those to
//! lines take as long as a message. So what is needed here is small enough for registers, or made where it stays.

use super::*;
use crate::datatype::Type;
use engine::slots::INLINE_BYTES;
use std::ptr::NonNull;

/// Some of the program's memory, in one piece.
#[derive(Clone, Copy)]
struct Piece {
    start: NonNull<u8>,
    bytes: usize,
}

impl Piece {
    #[inline]
    fn read<'a>(self) -> &'a [u8] {
        // SAFETY: the program's memory, which nobody writes while the collective sends from it.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.bytes) }
    }

    #[inline]
    fn write<'a>(self) -> &'a mut [u8] {
        // SAFETY: the program's memory, which is the collective's alone.
        unsafe { std::slice::from_raw_parts_mut(self.start.as_ptr(), self.bytes) }
    }
}

/// The datatype, where its elements lie without gaps.
#[inline]
fn plain(datatype: handle::Datatype) -> Option<&'static Type> {
    datatype::lookup(datatype).ok().filter(|t| t.contiguous() && t.committed())
}

/// The bytes of `blocks` times an argument, if they are in one piece and nothing is wrong with them.
#[inline]
fn piece(data: &Data, blocks: usize) -> Option<Piece> {
    let bytes = usize::try_from(data.count).ok()?.checked_mul(plain(data.datatype)?.size())?.checked_mul(blocks)?;
    let start = NonNull::new(data.start.cast())?;
    (bytes > 0 && !in_place(data.start)).then_some(Piece { start, bytes })
}

/// The root of one group.
#[inline]
fn rank_of_root(comm: &Comm, root: i32) -> Option<usize> {
    usize::try_from(root).ok().filter(|root| *root < comm.size() as usize && comm.remote.is_none())
}

/// This rank's `part` of a collective that has begun as a `turn`.
#[inline(always)]
fn take(turn: &Turn, part: impl FnOnce(&Turn) -> Result<()>) -> Result<()> {
    turn.check()?;
    turn.end(part(turn))
}

/// `MPI_Bcast`.
pub fn bcast_now(function: &'static str, comm: &'static Comm, data: Data, root: i32) -> Result<()> {
    short_bcast(function, comm, &data, root).unwrap_or_else(|| blocking(function, comm, bcast(comm, data, root)))
}

#[inline]
fn short_bcast(function: &'static str, comm: &'static Comm, data: &Data, root: i32) -> Option<Result<()>> {
    let (root, data_bytes, world) = (rank_of_root(comm, root)?, piece(data, 1)?, world::get().ok()?);
    if data_bytes.bytes > INLINE_BYTES || world.tuning.bcast.forced.is_some() {
        return None;
    }
    let shared = lines::slots_of(comm)?;
    let call = Call::new(Kind::Bcast).bytes(data_bytes.bytes).of(data).root(root as u32);
    let turn = Turn::unchecked(comm, world, function, comm.calls.begin(call), shared, None);
    Some(take(&turn, |turn| match root == turn.rank() {
        true => shared::bcast_offer(turn, data_bytes.read(), root).map(|_| ()),
        false => shared::bcast(turn, data_bytes.write(), root),
    }))
}

/// `MPI_Gather`.
pub fn gather_now(function: &'static str, comm: &'static Comm, send: Data, recv: Data, root: i32) -> Result<()> {
    short_gather(function, comm, &send, &recv, root).unwrap_or_else(|| blocking(function, comm, gather(comm, send, recv, root)))
}

#[inline]
fn short_gather(function: &'static str, comm: &'static Comm, send: &Data, recv: &Data, root: i32) -> Option<Result<()>> {
    let (root, ranks, mine, world) = (rank_of_root(comm, root)?, comm.size() as usize, piece(send, 1)?, world::get().ok()?);
    let here = root == comm.rank as usize;
    if mine.bytes > INLINE_BYTES || world.tuning.gather.forced.is_some() {
        return None;
    }
    let all = if here { piece(recv, ranks).filter(|all| all.bytes == mine.bytes * ranks)? } else { mine };
    let shared = lines::slots_of(comm)?;
    let call = Call::new(Kind::Gather).bytes(mine.bytes).of(send).root(root as u32);
    let turn = Turn::unchecked(comm, world, function, comm.calls.begin(call), shared, None);
    Some(take(&turn, |turn| match here {
        true => shared::gather(turn, Some(mine.read()), all.write()),
        false => shared::gather_offer(turn, mine.read(), root).map(|_| ()),
    }))
}

/// `MPI_Scatter`.
pub fn scatter_now(function: &'static str, comm: &'static Comm, send: Data, recv: Data, root: i32) -> Result<()> {
    short_scatter(function, comm, &send, &recv, root).unwrap_or_else(|| blocking(function, comm, scatter(comm, send, recv, root)))
}

#[inline]
fn short_scatter(function: &'static str, comm: &'static Comm, send: &Data, recv: &Data, root: i32) -> Option<Result<()>> {
    let (root, ranks, mine, world) = (rank_of_root(comm, root)?, comm.size() as usize, piece(recv, 1)?, world::get().ok()?);
    let (here, longest) = (root == comm.rank as usize, longest_part(Kind::Scatter, mine.bytes, ranks));
    if longest == 0 || longest > INLINE_BYTES || world.tuning.scatter.forced.is_some() {
        return None;
    }
    let all = if here { piece(send, ranks).filter(|all| all.bytes == mine.bytes * ranks)? } else { mine };
    let shared = lines::slots_of(comm)?;
    let call = Call::new(Kind::Scatter).bytes(mine.bytes).of(recv).root(root as u32);
    let turn = Turn::unchecked(comm, world, function, comm.calls.begin(call), shared, None);
    Some(take(&turn, |turn| match here {
        true => shared::scatter_offer(turn, all.read()).and_then(|_| shared::scatter(turn, all.read(), Some(mine.write()), root)),
        false => shared::scatter(turn, &[], Some(mine.write()), root),
    }))
}

/// `MPI_Alltoallv`, with a [plan](alltoallv) of the same where it takes one.
pub fn alltoallv_now<P: Plan>(
    function: &'static str,
    comm: &'static Comm,
    send: Option<Each<impl Fn(usize) -> (i64, i64)>>,
    recv: Option<Each<impl Fn(usize) -> (i64, i64)>>,
    plan: impl FnOnce() -> Result<P>,
) -> Result<()> {
    short_alltoallv(function, comm, send, recv).unwrap_or_else(|| blocking(function, comm, plan()))
}

/// A block for each rank or from it: `of` tells how many elements it has, and where it lies, in the datatype's extent.
pub struct Each<F> {
    pub start: *mut c_void,
    pub datatype: handle::Datatype,
    pub of: F,
}

impl<F: Fn(usize) -> (i64, i64)> Each<F> {
    /// As [`piece`], of the block of `rank`, whose elements have the datatype `t`; it may be empty.
    #[inline]
    fn piece(&self, t: &Type, rank: usize) -> Option<Piece> {
        let (count, displacement) = (self.of)(rank);
        let bytes = usize::try_from(count).ok()?.checked_mul(t.size())?;
        if bytes == 0 {
            return Some(Piece { start: NonNull::dangling(), bytes });
        }
        let offset = displacement.wrapping_mul(t.extent() as i64) as isize;
        let start = NonNull::new(self.start)?.as_ptr().cast::<u8>().wrapping_offset(offset);
        Some(Piece { start: NonNull::new(start)?, bytes })
    }
}

#[inline]
fn short_alltoallv(
    function: &'static str,
    comm: &'static Comm,
    send: Option<Each<impl Fn(usize) -> (i64, i64)>>,
    recv: Option<Each<impl Fn(usize) -> (i64, i64)>>,
) -> Option<Result<()>> {
    let (send, recv, world, ranks) = (send?, recv?, world::get().ok()?, comm.size() as usize);
    if ranks < 2 || comm.remote.is_some() || world.tuning.alltoallv.forced.is_some() || in_place(send.start) || in_place(recv.start) {
        return None;
    }
    let (from, mut into) = (outgoing(&send, ranks)?, incoming(&recv, ranks)?);
    let me = comm.rank as usize;
    if from[me].len() != into[me].len() {
        return None;
    }
    let Ready::Yes(shared, room) = ready_for_blocks(comm, Kind::Alltoallv)? else { return None };
    let turn = Turn::unchecked(comm, world, function, comm.calls.begin(Call::new(Kind::Alltoallv)), shared, room);
    Some(take(&turn, |turn| shared::alltoallv(turn, Some(&from), &mut into)))
}

/// As [`Each::piece`], of all ranks, for what a rank sends; and for what it receives.
#[inline]
fn outgoing<'a>(blocks: &Each<impl Fn(usize) -> (i64, i64)>, ranks: usize) -> Option<PerRank<&'a [u8]>> {
    let t = plain(blocks.datatype)?;
    (0..ranks).map(|rank| blocks.piece(t, rank).map(Piece::read)).collect()
}

#[inline]
fn incoming<'a>(blocks: &Each<impl Fn(usize) -> (i64, i64)>, ranks: usize) -> Option<PerRank<&'a mut [u8]>> {
    let t = plain(blocks.datatype)?;
    (0..ranks).map(|rank| blocks.piece(t, rank).map(Piece::write)).collect()
}

/// `MPI_Gatherv`, with a [plan](gatherv) of the same where it takes one. `recv` matters at the root only.
pub fn gatherv_now<P: Plan>(
    function: &'static str,
    comm: &'static Comm,
    send: Data,
    recv: Option<Each<impl Fn(usize) -> (i64, i64)>>,
    root: i32,
    plan: impl FnOnce() -> Result<P>,
) -> Result<()> {
    short_gatherv(function, comm, &send, recv, root).unwrap_or_else(|| blocking(function, comm, plan()))
}

#[inline]
fn short_gatherv(function: &'static str, comm: &'static Comm, send: &Data, recv: Option<Each<impl Fn(usize) -> (i64, i64)>>, root: i32) -> Option<Result<()>> {
    let (root, ranks, mine, world) = (rank_of_root(comm, root)?, comm.size() as usize, piece(send, 1)?, world::get().ok()?);
    let mut all = PerRank::new();
    if root == comm.rank as usize {
        all = incoming(&recv?, ranks)?;
        if all[root].len() != mine.bytes {
            return None;
        }
    }
    let Ready::Yes(shared, room) = ready_for_blocks(comm, Kind::Gatherv)? else { return None };
    let call = Call::new(Kind::Gatherv).root(root as u32);
    let turn = Turn::unchecked(comm, world, function, comm.calls.begin(call), shared, room);
    Some(take(&turn, |turn| shared::gatherv(turn, Some(mine.read()), &mut all, root)))
}

/// `MPI_Scatterv`, with a [plan](scatterv) of the same where it takes one. `send` matters at the root only.
pub fn scatterv_now<P: Plan>(
    function: &'static str,
    comm: &'static Comm,
    send: Option<Each<impl Fn(usize) -> (i64, i64)>>,
    recv: Data,
    root: i32,
    plan: impl FnOnce() -> Result<P>,
) -> Result<()> {
    short_scatterv(function, comm, send, &recv, root).unwrap_or_else(|| blocking(function, comm, plan()))
}

#[inline]
fn short_scatterv(function: &'static str, comm: &'static Comm, send: Option<Each<impl Fn(usize) -> (i64, i64)>>, recv: &Data, root: i32) -> Option<Result<()>> {
    let (root, ranks, mine, world) = (rank_of_root(comm, root)?, comm.size() as usize, piece(recv, 1)?, world::get().ok()?);
    let mut all = PerRank::new();
    if root == comm.rank as usize {
        all = outgoing(&send?, ranks)?;
        if all[root].len() != mine.bytes {
            return None;
        }
    }
    let Ready::Yes(shared, room) = ready_for_blocks(comm, Kind::Scatterv)? else { return None };
    let call = Call::new(Kind::Scatterv).root(root as u32);
    let turn = Turn::unchecked(comm, world, function, comm.calls.begin(call), shared, room);
    Some(take(&turn, |turn| shared::scatterv(turn, &all, Some(mine.write()), root)))
}

/// Whether what a collective of blocks whose lengths not all ranks know goes through is there. `None`: the communicator has one rank.
#[inline]
fn ready_for_blocks(comm: &'static Comm, kind: Kind) -> Option<Ready> {
    let ranks = comm.size() as usize;
    (ranks > 1).then(|| lines::ready(comm, longest_part(kind, 0, ranks)))
}

/// `MPI_Allgatherv`, with a [plan](allgatherv) of the same where it takes one.
pub fn allgatherv_now<P: Plan>(
    function: &'static str,
    comm: &'static Comm,
    send: Data,
    recv: Option<Each<impl Fn(usize) -> (i64, i64)>>,
    plan: impl FnOnce() -> Result<P>,
) -> Result<()> {
    short_allgatherv(function, comm, &send, recv).unwrap_or_else(|| blocking(function, comm, plan()))
}

#[inline]
fn short_allgatherv(function: &'static str, comm: &'static Comm, send: &Data, recv: Option<Each<impl Fn(usize) -> (i64, i64)>>) -> Option<Result<()>> {
    let (ranks, mine, world) = (comm.size() as usize, piece(send, 1)?, world::get().ok()?);
    if ranks < 2 || comm.remote.is_some() || world.tuning.allgatherv.forced.is_some() {
        return None;
    }
    let mut all = incoming(&recv?, ranks)?;
    let longest = lent::longest(&all);
    if all[comm.rank as usize].len() != mine.bytes || longest >= lend::BYTES_MIN {
        return None;
    }
    let Ready::Yes(shared, room) = lines::ready(comm, longest) else { return None };
    let call = Call::new(Kind::Allgatherv).blocks(all.iter().map(|block| block.len()));
    let turn = Turn::unchecked(comm, world, function, comm.calls.begin(call), shared, room);
    Some(take(&turn, |turn| {
        shared::allgatherv_offer(turn, mine.read())?;
        shared::allgatherv(turn, Some(mine.read()), &mut all)
    }))
}

/// `MPI_Reduce`.
pub fn reduce_now(function: &'static str, comm: &'static Comm, send: *mut c_void, recv: Data, op: handle::Op, root: i32) -> Result<()> {
    short_reduce(function, comm, send, &recv, op, root).unwrap_or_else(|| blocking(function, comm, reduce(comm, send, recv, op, root)))
}

#[inline]
fn short_reduce(function: &'static str, comm: &'static Comm, send: *mut c_void, recv: &Data, op: handle::Op, root: i32) -> Option<Result<()>> {
    let (root, mine, world) = (rank_of_root(comm, root)?, piece(&Data { start: send, ..*recv }, 1)?, world::get().ok()?);
    let here = root == comm.rank as usize;
    if mine.bytes > INLINE_BYTES || world.tuning.reduce.forced.is_some() || (here && send == recv.start) {
        return None;
    }
    let (predefined, basic) = Operation::predefined(op, plain(recv.datatype)?)?;
    let operation = Operation::Predefined(predefined, basic);
    let into = if here { piece(recv, 1)? } else { mine };
    let shared = lines::slots_of(comm)?;
    let call = Call::new(Kind::Reduce).bytes(mine.bytes).of(recv).operation(op.0, operation.element()).root(root as u32);
    let turn = Turn::unchecked(comm, world, function, comm.calls.begin(call), shared, None);
    Some(take(&turn, |turn| match here {
        true => shared::reduce(turn, &operation, Some(mine.read()), into.write()),
        false => shared::reduce_offer(turn, mine.read(), false, root).map(|_| ()),
    }))
}

/// `MPI_Scan`, or `MPI_Exscan` where `exclusive`.
pub fn scan_now(function: &'static str, comm: &'static Comm, send: *mut c_void, recv: Data, op: handle::Op, exclusive: bool) -> Result<()> {
    short_scan(function, comm, send, &recv, op, exclusive).unwrap_or_else(|| blocking(function, comm, scan(comm, send, recv, op, exclusive)))
}

#[inline]
fn short_scan(function: &'static str, comm: &'static Comm, send: *mut c_void, recv: &Data, op: handle::Op, exclusive: bool) -> Option<Result<()>> {
    let (mine, into, world) = (piece(&Data { start: send, ..*recv }, 1)?, piece(recv, 1)?, world::get().ok()?);
    let choice = if exclusive { &world.tuning.exscan } else { &world.tuning.scan };
    if mine.bytes > INLINE_BYTES || choice.forced.is_some() || comm.remote.is_some() || send == recv.start {
        return None;
    }
    let (predefined, basic) = Operation::predefined(op, plain(recv.datatype)?)?;
    let operation = Operation::Predefined(predefined, basic);
    let shared = lines::slots_of(comm)?;
    let kind = if exclusive { Kind::Exscan } else { Kind::Scan };
    let call = Call::new(kind).bytes(mine.bytes).of(recv).operation(op.0, operation.element());
    let turn = Turn::unchecked(comm, world, function, comm.calls.begin(call), shared, None);
    Some(take(&turn, |turn| {
        shared::scan_offer(turn, mine.read(), false, exclusive)?;
        shared::scan(turn, &operation, Some(mine.read()), into.write(), exclusive)
    }))
}

/// `MPI_Reduce_scatter`, or `MPI_Reduce_scatter_block`: `count_of` tells what each rank gets; `recv.count` does not matter.
pub fn reduce_scatter_now(
    function: &'static str,
    comm: &'static Comm,
    send: *mut c_void,
    recv: Data,
    count_of: impl Fn(usize) -> i64,
    op: handle::Op,
    block: bool,
) -> Result<()> {
    short_reduce_scatter(function, comm, send, &recv, &count_of, op, block).unwrap_or_else(|| {
        let counts = (0..comm.size() as usize).map(count_of).collect();
        blocking(function, comm, reduce_scatter(comm, send, recv, counts, op, block))
    })
}

#[inline]
fn short_reduce_scatter(
    function: &'static str,
    comm: &'static Comm,
    send: *mut c_void,
    recv: &Data,
    count_of: &impl Fn(usize) -> i64,
    op: handle::Op,
    block: bool,
) -> Option<Result<()>> {
    let (me, ranks, t, world) = (comm.rank as usize, comm.size() as usize, plain(recv.datatype)?, world::get().ok()?);
    if comm.remote.is_some() || world.tuning.reduce_scatter.forced.is_some() || send == recv.start || in_place(recv.start) {
        return None;
    }
    let count = (0..ranks).try_fold(0i64, |sum, rank| sum.checked_add(Some(count_of(rank)).filter(|count| *count >= 0)?))?;
    let whole = piece(&Data { start: send, count, ..*recv }, 1).filter(|whole| whole.bytes <= INLINE_BYTES)?;
    let from = (0..me).map(count_of).sum::<i64>() as usize * t.size();
    let into = Each { start: recv.start, datatype: recv.datatype, of: |rank| (count_of(rank), 0) }.piece(t, me)?;
    let (predefined, basic) = Operation::predefined(op, t)?;
    let operation = Operation::Predefined(predefined, basic);
    let shared = lines::slots_of(comm)?;
    let kind = if block { Kind::ReduceScatterBlock } else { Kind::ReduceScatter };
    let call = Call::new(kind).blocks((0..ranks).map(|rank| count_of(rank) as usize * t.size()));
    let call = call.of(&Data { count, ..*recv }).operation(op.0, operation.element());
    let turn = Turn::unchecked(comm, world, function, comm.calls.begin(call), shared, None);
    Some(take(&turn, |turn| {
        shared::reduce_scatter_offer(turn, whole.read())?;
        shared::reduce_scatter(turn, &operation, Some(&whole.read()[from..from + into.bytes]), whole.bytes, from, into.write())
    }))
}
