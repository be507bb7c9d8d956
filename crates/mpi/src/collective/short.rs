//! Blocking collectives whose parts fit into lines, where a rank's memory is in one piece: its part of the [turn](Turn) without a plan, which takes longer to
//! make than the bytes take to the other ranks. What is not so, and every wrong argument, is left to the plan; other ranks do not see which way this one takes.

use super::*;
use engine::slots::INLINE_BYTES;

/// The bytes of `blocks` times an argument, if they are in one piece and nothing is wrong with them.
#[inline]
fn piece(data: &Data, blocks: usize) -> Option<Packed> {
    let t = datatype::lookup(data.datatype).ok()?;
    let bytes = usize::try_from(data.count).ok()?.checked_mul(t.size())?.checked_mul(blocks)?;
    let plain = t.contiguous() && t.committed() && bytes > 0 && !data.start.is_null() && !in_place(data.start);
    plain.then_some(Packed::There(data.start.cast(), bytes))
}

/// The turn of `call` on `comm`, in which no rank brings more than `longest` bytes. `None`: it has not begun, since there are no slots yet.
#[inline]
fn turn<'c>(function: &'static str, comm: &'static Comm, longest: usize, call: Call) -> Option<Result<Turn<'c>>> {
    match lines::ready(comm, longest) {
        Ready::Yes(shared, None) => Some(Turn::new(comm, function, comm.calls.begin(call), (shared, None))),
        _ => None,
    }
}

/// The root of one group.
#[inline]
fn rank_of_root(comm: &Comm, root: i32) -> Option<usize> {
    usize::try_from(root).ok().filter(|root| *root < comm.size() as usize && comm.remote.is_none())
}

/// `MPI_Bcast`.
pub fn bcast_now(function: &'static str, comm: &'static Comm, data: Data, root: i32) -> Result<()> {
    short_bcast(function, comm, &data, root).unwrap_or_else(|| blocking(function, comm, bcast(comm, data, root)))
}

#[inline]
fn short_bcast(function: &'static str, comm: &'static Comm, data: &Data, root: i32) -> Option<Result<()>> {
    let (root, mut bytes) = (rank_of_root(comm, root)?, piece(data, 1)?);
    let longest = bytes.read().len();
    if longest > INLINE_BYTES || world::get().ok()?.tuning.bcast.forced.is_some() {
        return None;
    }
    let call = Call::new(Kind::Bcast).bytes(longest).of(data).root(root as u32);
    Some(turn(function, comm, longest, call)?.and_then(|turn| {
        let here = root == turn.rank();
        turn.end(if here { shared::bcast_offer(&turn, bytes.read(), root).map(|_| ()) } else { shared::bcast(&turn, bytes.write(), root) })
    }))
}

/// `MPI_Gather`.
pub fn gather_now(function: &'static str, comm: &'static Comm, send: Data, recv: Data, root: i32) -> Result<()> {
    short_gather(function, comm, &send, &recv, root).unwrap_or_else(|| blocking(function, comm, gather(comm, send, recv, root)))
}

#[inline]
fn short_gather(function: &'static str, comm: &'static Comm, send: &Data, recv: &Data, root: i32) -> Option<Result<()>> {
    let (root, ranks, mine) = (rank_of_root(comm, root)?, comm.size() as usize, piece(send, 1)?);
    let (here, longest) = (root == comm.rank as usize, mine.read().len());
    if longest > INLINE_BYTES || world::get().ok()?.tuning.gather.forced.is_some() {
        return None;
    }
    let all = if here { Some(piece(recv, ranks).filter(|all| all.read().len() == longest * ranks)?) } else { None };
    let call = Call::new(Kind::Gather).bytes(longest).of(send).root(root as u32);
    Some(turn(function, comm, longest, call)?.and_then(|turn| {
        turn.end(match all {
            Some(mut all) => shared::gather(&turn, Some(mine.read()), all.write()),
            None => shared::gather_offer(&turn, mine.read(), root).map(|_| ()),
        })
    }))
}

/// `MPI_Scatter`.
pub fn scatter_now(function: &'static str, comm: &'static Comm, send: Data, recv: Data, root: i32) -> Result<()> {
    short_scatter(function, comm, &send, &recv, root).unwrap_or_else(|| blocking(function, comm, scatter(comm, send, recv, root)))
}

#[inline]
fn short_scatter(function: &'static str, comm: &'static Comm, send: &Data, recv: &Data, root: i32) -> Option<Result<()>> {
    let (root, ranks, mut mine) = (rank_of_root(comm, root)?, comm.size() as usize, piece(recv, 1)?);
    let (here, block) = (root == comm.rank as usize, mine.read().len());
    let longest = longest_part(Kind::Scatter, block, ranks);
    if longest == 0 || longest > INLINE_BYTES || world::get().ok()?.tuning.scatter.forced.is_some() {
        return None;
    }
    let all = if here { Some(piece(send, ranks).filter(|all| all.read().len() == block * ranks)?) } else { None };
    let call = Call::new(Kind::Scatter).bytes(block).of(recv).root(root as u32);
    Some(turn(function, comm, longest, call)?.and_then(|turn| {
        turn.end(match all {
            Some(all) => shared::scatter_offer(&turn, all.read()).and_then(|_| shared::scatter(&turn, all.read(), Some(mine.write()), root)),
            None => shared::scatter(&turn, &[], Some(mine.write()), root),
        })
    }))
}

/// `MPI_Reduce`.
pub fn reduce_now(function: &'static str, comm: &'static Comm, send: *mut c_void, recv: Data, op: handle::Op, root: i32) -> Result<()> {
    short_reduce(function, comm, send, &recv, op, root).unwrap_or_else(|| blocking(function, comm, reduce(comm, send, recv, op, root)))
}

#[inline]
fn short_reduce(function: &'static str, comm: &'static Comm, send: *mut c_void, recv: &Data, op: handle::Op, root: i32) -> Option<Result<()>> {
    let (root, mine) = (rank_of_root(comm, root)?, piece(&Data { start: send, ..*recv }, 1)?);
    let (here, longest) = (root == comm.rank as usize, mine.read().len());
    if longest > INLINE_BYTES || world::get().ok()?.tuning.reduce.forced.is_some() || (here && send == recv.start) {
        return None;
    }
    let operation = Operation::new(op, recv.datatype, datatype::lookup(recv.datatype).ok()?).ok()?;
    let into = if here { Some(piece(recv, 1)?) } else { None };
    let call = Call::new(Kind::Reduce).bytes(longest).of(recv).operation(op.0, operation.element()).root(root as u32);
    Some(turn(function, comm, longest, call)?.and_then(|turn| {
        turn.end(match into {
            Some(mut into) => shared::reduce(&turn, &operation, Some(mine.read()), into.write()),
            None => shared::reduce_offer(&turn, mine.read(), false, root).map(|_| ()),
        })
    }))
}

/// `MPI_Scan`, `MPI_Exscan`.
pub fn scan_now(function: &'static str, comm: &'static Comm, send: *mut c_void, recv: Data, op: handle::Op, exclusive: bool) -> Result<()> {
    short_scan(function, comm, send, &recv, op, exclusive).unwrap_or_else(|| blocking(function, comm, scan(comm, send, recv, op, exclusive)))
}

#[inline]
fn short_scan(function: &'static str, comm: &'static Comm, send: *mut c_void, recv: &Data, op: handle::Op, exclusive: bool) -> Option<Result<()>> {
    let (mine, mut into) = (piece(&Data { start: send, ..*recv }, 1)?, piece(recv, 1)?);
    let (longest, tuning) = (mine.read().len(), &world::get().ok()?.tuning);
    let (kind, choice) = if exclusive { (Kind::Exscan, &tuning.exscan) } else { (Kind::Scan, &tuning.scan) };
    if longest > INLINE_BYTES.min(shared::scan_whole_max(comm.size() as usize)) || choice.forced.is_some() || send == recv.start {
        return None;
    }
    let operation = Operation::new(op, recv.datatype, datatype::lookup(recv.datatype).ok()?).ok()?;
    let call = Call::new(kind).bytes(longest).of(recv).operation(op.0, operation.element());
    Some(turn(function, comm, longest, call)?.and_then(|turn| {
        let offered = shared::scan_offer(&turn, mine.read(), false, exclusive);
        turn.end(offered.and_then(|_| shared::scan(&turn, &operation, Some(mine.read()), into.write(), exclusive)))
    }))
}
