//! Collective communication (MPI-5.0 chapter 6). A call is checked once and becomes a [`Plan`], which keeps all that it needs of
//! datatypes and operations; running a plan turns memory into packed bytes and drives one of the algorithms of [`crate::coll`].
//! Blocking calls run a plan to its end, nonblocking ones make a request of it, persistent ones run it again and again.

mod in_rounds;
mod lent;
mod movement;
mod reduction;
mod shared;
mod short;
pub mod ways;

pub use movement::*;
pub use reduction::*;
pub use short::*;

use crate::call::{Begun, Call, Form, Kind, Way};
use crate::checks;
use crate::coll;
use crate::coll::inter::{self, Root};
use crate::comm::Comm;
use crate::consts::*;
use crate::datatype::{self, SharedLayout, Type};
use crate::error::{Error, Result};
use crate::handle;
use crate::lines::{self, Ready, Shared, Short};
use crate::link::{Channel, block};
use crate::operation::Operation;
use crate::pair::{Exchange, Pair};
use crate::request;
use crate::spread::Ask;
use crate::turn::Turn;
use crate::turn::lend::{self, Lending, Otherwise, Reads};
use crate::turn::stream::{self, Stream};
use crate::world;
use engine::Buffer;
use engine::slots::Readers;
use smallvec::SmallVec;
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

/// One of something for each rank or neighbour: for few of them without memory of its own.
pub type PerRank<T> = SmallVec<[T; 4]>;

/// One block for each rank or neighbour: counts, and places relative to the start. Displacements in elements, or bytes for the `w` forms.
pub struct Blocks {
    pub start: *mut c_void,
    pub counts: PerRank<i64>,
    pub displacements: PerRank<i64>,
    pub datatypes: Types,
}

/// Datatypes of blocks.
pub enum Types {
    /// The same for all, displacements in its extent.
    Same(handle::Datatype),
    /// One each, displacements in bytes.
    Each(PerRank<handle::Datatype>),
}

/// A collective as a future.
pub trait Operated: Future<Output = Result<()>> + Send + 'static {}
impl<F: Future<Output = Result<()>> + Send + 'static> Operated for F {}

/// Bytes that a rank brings at most where all of a collective among `ranks` goes through [memory that all share](shared): `bytes` are those of
/// a block, or of a vector. Of blocks whose lengths not all ranks know, as many as there may be.
pub(crate) fn longest_part(kind: Kind, bytes: usize, ranks: usize) -> usize {
    match kind {
        Kind::Scatter | Kind::Alltoall => bytes.saturating_mul(ranks - 1),
        Kind::Gatherv | Kind::Scatterv | Kind::Alltoallv | Kind::Alltoallw => lines::part_of(ranks),
        Kind::NeighborAllgather | Kind::NeighborAllgatherv | Kind::NeighborAlltoall | Kind::NeighborAlltoallv | Kind::NeighborAlltoallw => {
            lines::part_of(ranks)
        }
        _ => bytes,
    }
}

/// A checked collective operation that can be run, also more than once.
pub trait Plan: Send + Sync + Sized + 'static {
    /// What it is, as a blocking call.
    fn call(&self) -> Call;

    fn run(&self, channel: Channel) -> impl Operated + use<Self>;

    /// Bytes that any rank brings at most where the whole collective goes through [memory that all share](shared): all
    /// ranks say the same. `None`: it does not go there.
    #[inline]
    fn longest(&self, _comm: &Comm, _tuning: &coll::Tuning) -> Option<usize> {
        None
    }

    /// This rank's part of it there: by default it first [offers](Plan::offer), then it [collects](Plan::collect).
    #[inline]
    fn share(&self, turn: &Turn) -> Result<()> {
        self.offer(turn)?;
        self.collect(turn)
    }

    /// Whether neither of these two steps waits for others, whatever its length.
    const TWO_STEPS: bool = false;

    /// As [`Plan::longest`], where it goes through [slots of nonblocking collectives](later), in those two steps.
    #[inline]
    fn longest_later(&self, comm: &Comm, tuning: &coll::Tuning) -> Option<usize> {
        if Self::TWO_STEPS { self.longest(comm, tuning) } else { None }
    }

    /// Brings what others need of this rank. False as [`Turn::bring`] says.
    #[inline]
    fn offer(&self, _turn: &Turn) -> Result<bool> {
        Err(Error::new(MPI_ERR_INTERN, "a collective without a form for shared memory"))
    }

    /// Whether it takes something that another `rank` brings.
    #[inline]
    fn needs(&self, _rank: usize) -> bool {
        true
    }

    /// Takes what others have brought.
    #[inline]
    fn collect(&self, _turn: &Turn) -> Result<()> {
        Err(Error::new(MPI_ERR_INTERN, "a collective without a form for shared memory"))
    }

    /// Whether something of a [nonblocking](later) one goes by messages beside the parts that fit: both ends of each message say the same.
    #[inline]
    fn has_rest(&self) -> bool {
        false
    }

    /// That.
    fn run_rest(&self, channel: Channel) -> impl Operated + use<Self> {
        self.run(channel)
    }

    /// Whether a [nonblocking](later) one, once all have brought their parts, combines a slice of them and brings that for the second time: all ranks say the same.
    #[inline]
    fn combines_slices(&self, _ranks: usize) -> bool {
        false
    }

    /// Does that; gives the own slice.
    fn bring_slice(&self, _turn: &Turn) -> Result<Vec<u8>> {
        Err(Error::new(MPI_ERR_INTERN, "a collective that is not combined in slices"))
    }

    /// As [`Plan::collect`], of what all have brought for the second time, and the `own` slice.
    fn collect_slices(&self, _turn: &Turn, _own: &[u8]) -> Result<()> {
        Err(Error::new(MPI_ERR_INTERN, "a collective that is not combined in slices"))
    }

    /// Of what may pass as a [stream] between two ranks, where it is too long for [memory that all share](shared), the bytes that must come together: the same
    /// on both.
    #[inline]
    fn streams(&self) -> Option<usize> {
        None
    }

    /// What its members read at once where they [lend](lent) what they bring: all say the same. `None`: it does not go so.
    #[inline]
    fn reads(&self, _ranks: usize) -> Option<Reads> {
        None
    }

    /// This rank's part of it, where they do.
    fn share_lent(&self, _turn: &Turn) -> Result<()> {
        Err(Error::new(MPI_ERR_INTERN, "a collective in which nothing is lent"))
    }

    /// Whether it may pass as a [stream] among more than two ranks, too, by [`Plan::among_many`].
    #[inline]
    fn streams_among_many(&self) -> bool {
        false
    }

    /// All of it, where it passes so.
    fn among_many(&self, _stream: &Stream) -> Result<()> {
        Err(Error::new(MPI_ERR_INTERN, "a collective without a stream among many ranks"))
    }

    /// All of it, between two ranks. `None`: it has not begun, since it is [not short or not in one piece](Exchange::BYTES_MAX) here, or takes more than a
    /// message each way.
    #[inline]
    fn between_two<E: Exchange>(&self, _exchange: &E) -> Result<Option<()>> {
        Ok(None)
    }
}

/// How a collective goes in its turn; with the times of those that may be lent, where members lend.
#[derive(Clone, Copy)]
enum Through {
    Room(Option<Timed>),
    /// As a [stream]; bytes that must come together.
    Stream(usize, Option<Timed>),
    /// Members [lend](lent) what they bring.
    Loan(Timed),
}

/// What decides whether members lend.
#[derive(Clone, Copy)]
struct Timed {
    lending: &'static Lending,
    reads: Reads,
    otherwise: Otherwise,
}

/// Runs a plan to its end, as the next collective on `comm`: through shared memory, if it is short and there is some.
#[inline]
pub fn blocking(function: &'static str, comm: &'static Comm, plan: Result<impl Plan>) -> Result<()> {
    let plan = plan?;
    if comm.remote.is_none()
        && let Some(longest) = plan.longest(comm, &world::get()?.tuning)
    {
        if longest >= lend::BYTES_MIN {
            return long(function, comm, longest, plan);
        }
        match lines::ready(comm, longest) {
            Ready::Yes(shared, room) => {
                let turn = Turn::new(comm, function, comm.calls.begin(plan.call()), (shared, room))?;
                return turn.end(plan.share(&turn));
            }
            Ready::NotYet => return first(function, comm, longest, plan, |_| Some(Through::Room(None))),
            Ready::No => {}
        }
    }
    now(function, comm, Ok(plan))
}

/// As [`blocking`], where a rank brings so much that it may be lent.
#[inline(never)]
fn long(function: &'static str, comm: &'static Comm, longest: usize, plan: impl Plan) -> Result<()> {
    let ranks = comm.size() as usize;
    let (most, reads) = (lines::part_of(ranks), plan.reads(ranks));
    let streamed = if longest > most && stream::fits(ranks, longest, plan.streams_among_many()) { plan.streams() } else { None };
    let otherwise = if longest > most && streamed.is_none() { Otherwise::Messages } else { Otherwise::TwoCopies };
    let through = |shared: &'static Shared| {
        let timed = reads.and_then(|reads| shared.lending().map(|lending| Timed { lending, reads, otherwise }));
        // Rounds are at their best in an allreduce, and where ranks share cores, unless each reads other blocks.
        let in_rounds = |kind| kind == Kind::Allreduce || (shared.crowded() && kind != Kind::Alltoall);
        let lent_first = ranks > 2 && streamed.is_some() && reads.is_some_and(|reads| !in_rounds(reads.kind));
        match (timed, streamed) {
            (Some(timed), _) if timed.lending.lends(&timed.reads, otherwise, lent_first) => Some(Through::Loan(timed)),
            (_, Some(together)) => Some(Through::Stream(together, timed)),
            _ => (otherwise == Otherwise::TwoCopies).then_some(Through::Room(timed)),
        }
    };
    let needed = if streamed.is_some() || reads.is_some() { longest.min(most) } else { longest };
    match lines::ready(comm, needed) {
        Ready::Yes(shared, room) => {
            if let Some(through) = through(shared) {
                return take_turn(&Turn::new(comm, function, comm.calls.begin(plan.call()), (shared, room))?, &plan, through);
            }
        }
        Ready::NotYet => return first(function, comm, needed, plan, through),
        Ready::No => {}
    }
    now(function, comm, Ok(plan))
}

/// As [`blocking`], and the members agree first on what they share.
#[cold]
fn first(function: &'static str, comm: &'static Comm, longest: usize, plan: impl Plan, through: impl FnOnce(&'static Shared) -> Option<Through>) -> Result<()> {
    let begun = comm.calls.begin(plan.call());
    if let Some(made) = lines::make(comm, function, begun, longest)?
        && let Some(through) = through(made.0)
    {
        return take_turn(&Turn::new(comm, function, begun, made)?, &plan, through);
    }
    without_lines(function, comm, begun, Ok(plan))
}

/// This rank's part of a plan in its turn, from begin to end.
fn take_turn(turn: &Turn, plan: &impl Plan, through: Through) -> Result<()> {
    turn.end(match through {
        Through::Room(None) => plan.share(turn),
        Through::Stream(together, None) => by_stream(turn, plan, together),
        Through::Room(Some(timed)) => timed.run(turn, || plan.share(turn)),
        Through::Stream(together, Some(timed)) => timed.run(turn, || by_stream(turn, plan, together)),
        Through::Loan(timed) => timed.lending.timed(turn, &timed.reads, timed.otherwise, || plan.share_lent(turn)),
    })
}

impl Timed {
    /// Runs `part`, which goes in two copies.
    fn run(self, turn: &Turn, part: impl FnOnce() -> Result<()>) -> Result<()> {
        let heard = |()| if self.reads.may(self.otherwise) { turn.hear_first() } else { Ok(()) };
        self.lending.timed(turn, &self.reads, self.otherwise, || part().and_then(heard))
    }
}

#[inline(never)]
fn by_stream(turn: &Turn, plan: &impl Plan, together: usize) -> Result<()> {
    let stream = Stream::new(turn, together)?;
    if turn.ranks() > 2 {
        return plan.among_many(&stream);
    }
    plan.between_two(&stream)?.ok_or_else(|| Error::new(MPI_ERR_INTERN, "a collective without a form for two ranks"))
}

/// Runs a plan to its end by messages, as the next collective on `comm`.
pub fn now(function: &'static str, comm: &Comm, plan: Result<impl Plan>) -> Result<()> {
    let plan = plan?;
    comm.calls.went(Way::Messages);
    if let Some(pair) = Pair::of(comm, function, plan.call())
        && let Some(()) = plan.between_two(&pair)?
    {
        return Ok(());
    }
    let begun = comm.calls.begin(plan.call());
    block(comm.cell, function, operate(&plan, comm, begun, Channel::begun(comm, begun)?)?)
}

/// A plan by messages, as the collective on `comm` that has `begun` and whose channel this is: on several hosts after what has to be [asked](Ask) first.
pub(crate) fn operate<P: Plan>(plan: &P, comm: &Comm, begun: Begun, channel: Channel) -> Result<impl Operated + use<P>> {
    let ask = Ask::next(comm, begun)?;
    let operated = plan.run(channel.knowing_hosts(comm));
    Ok(async move {
        if let Some(ask) = ask {
            Box::pin(ask.settle()).await?;
        }
        operated.await
    })
}

/// A plan that is made once and started again and again: how it goes by messages. What has to be [asked](Ask) is, in this call (MPI-5.0 §6.13: it may wait for
/// others).
pub fn starter(function: &'static str, comm: &Comm, plan: impl Plan) -> Result<request::Starter> {
    let (shared, begun) = (comm.share(), comm.calls.begin(plan.call().form(Form::Persistent)));
    if let Some(ask) = Ask::next(comm, begun)? {
        block(comm.cell, function, ask.settle())?;
    }
    Ok(Box::new(move || Ok(request::Task::collective(plan.run(Channel::lasting(&shared, begun)?.knowing_hosts(&shared))))))
}

/// A program's memory as packed bytes: in place where it is contiguous, else a copy.
pub(crate) enum Packed {
    There(*mut u8, usize),
    Copy(Vec<u8>, Option<Box<Buffer>>),
}

// SAFETY: as `Data`.
unsafe impl Send for Packed {}

impl Packed {
    /// `receiving`: the bytes are put back into the program's memory by [`Packed::unpack`].
    ///
    /// # Errors
    /// `MPI_ERR_NO_MEM`.
    #[inline]
    pub(crate) fn of(buffer: &Buffer, sending: bool, receiving: bool) -> Result<Packed> {
        if let Some(start) = buffer.address() {
            return Ok(Packed::There(start, buffer.len()));
        }
        let bytes = if sending { buffer.try_to_vec().ok_or_else(|| coll::no_memory(buffer.len()))? } else { coll::zeros(buffer.len())? };
        Ok(Packed::Copy(bytes, receiving.then(|| Box::new(buffer.clone()))))
    }

    #[inline]
    pub(crate) fn sent(buffer: &Buffer) -> Result<Packed> {
        Packed::of(buffer, true, false)
    }

    #[inline]
    pub(crate) fn received(buffer: &Buffer) -> Result<Packed> {
        Packed::of(buffer, false, true)
    }

    #[inline]
    pub(crate) fn read(&self) -> &[u8] {
        match self {
            Packed::There(_, 0) => &[],
            // SAFETY: the program's memory, which nobody writes while the collective sends from it.
            Packed::There(start, bytes) => unsafe { std::slice::from_raw_parts(*start, *bytes) },
            Packed::Copy(bytes, _) => bytes,
        }
    }

    #[inline]
    pub(crate) fn write(&mut self) -> &mut [u8] {
        match self {
            Packed::There(_, 0) => &mut [],
            // SAFETY: the program's memory, which is the collective's alone.
            Packed::There(start, bytes) => unsafe { std::slice::from_raw_parts_mut(*start, *bytes) },
            Packed::Copy(bytes, _) => bytes,
        }
    }

    #[inline]
    pub(crate) fn unpack(&self) {
        if let Packed::Copy(bytes, Some(buffer)) = self {
            buffer.fill(bytes);
        }
    }
}

/// Gives `with` the packed bytes that a rank brings, `None` where they are in place in `all`, and those of `all`, which go back into the program's memory.
#[inline(always)]
fn with_packed(mine: Option<&Buffer>, all: &Buffer, with: impl FnOnce(Option<&[u8]>, &mut [u8]) -> Result<()>) -> Result<()> {
    let (mine, mut all) = (mine.map(Packed::sent).transpose()?, Packed::of(all, mine.is_none(), true)?);
    with(mine.as_ref().map(Packed::read), all.write())?;
    all.unpack();
    Ok(())
}

/// The bytes of a buffer for an exchange between two ranks, as [`Packed::of`]. `None`: they cannot [go so](Exchange::BYTES_MAX).
#[inline]
fn exchanged<E: Exchange>(_: &E, buffer: &Buffer, sending: bool, receiving: bool) -> Result<Option<Packed>> {
    let fits = |longest: usize| buffer.address().is_some() && (1..=longest).contains(&buffer.len());
    if E::BYTES_MAX.is_none_or(fits) { Packed::of(buffer, sending, receiving).map(Some) } else { Ok(None) }
}

/// As [`exchanged`], of what may be in place: `Some(None)`.
#[inline]
fn exchanged_or_in_place<E: Exchange>(exchange: &E, buffer: &Option<Buffer>, sending: bool, receiving: bool) -> Result<Option<Option<Packed>>> {
    match buffer {
        Some(buffer) => Ok(exchanged(exchange, buffer, sending, receiving)?.map(Some)),
        None => Ok(Some(None)),
    }
}

/// All blocks of a rank, packed one by one.
pub(crate) struct PackedBlocks(PerRank<Packed>);

impl PackedBlocks {
    #[inline]
    pub(crate) fn of(blocks: &[Buffer], sending: bool, receiving: bool) -> Result<PackedBlocks> {
        blocks.iter().map(|block| Packed::of(block, sending, receiving)).collect::<Result<_>>().map(PackedBlocks)
    }

    #[inline]
    pub(crate) fn read(&self) -> PerRank<&[u8]> {
        self.0.iter().map(Packed::read).collect()
    }

    #[inline]
    pub(crate) fn write(&mut self) -> PerRank<&mut [u8]> {
        self.0.iter_mut().map(Packed::write).collect()
    }

    #[inline]
    pub(crate) fn unpack(&self) {
        self.0.iter().for_each(Packed::unpack);
    }
}

#[inline]
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
#[inline]
pub(crate) fn buffer(data: &Data) -> Result<Buffer> {
    let t = usable(data)?;
    if in_place(data.start) {
        return Err(Error::new(MPI_ERR_BUFFER, "a buffer is MPI_IN_PLACE where that is not possible"));
    }
    // SAFETY: the program handed its memory over for the collective.
    unsafe { t.buffer(data.start.cast(), data.count as usize) }
}

/// The memory of each block of an argument.
pub(crate) fn buffers(blocks: &Blocks) -> Result<PerRank<Buffer>> {
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

#[inline]
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
    #[inline]
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
    #[inline]
    fn of(self, call: Call) -> Call {
        match self {
            Rooted::Intra { root, .. } => call.root(root as u32),
            Rooted::Inter(_) => call.inter(true),
        }
    }

    /// Whether this process has what all bring or get.
    #[inline]
    fn here(self) -> bool {
        matches!(self, Rooted::Intra { here: true, .. } | Rooted::Inter(Root::Here))
    }

    /// Whether this process has a block of its own.
    #[inline]
    fn brings(self) -> bool {
        matches!(self, Rooted::Intra { .. } | Rooted::Inter(Root::Remote(_)))
    }

    /// Of what comes from the root, whether this process takes it from another `rank`. Between groups nothing goes so.
    #[inline]
    fn needs(self, rank: usize) -> bool {
        matches!(self, Rooted::Intra { root, here: false } if root == rank)
    }

    /// Whether `MPI_IN_PLACE` may stand for this process' own block.
    #[inline]
    fn may_be_in_place(self) -> bool {
        matches!(self, Rooted::Intra { here: true, .. })
    }
}

fn misplaced(what: &str) -> Box<Error> {
    Error::new(MPI_ERR_BUFFER, format!("{what} cannot be MPI_IN_PLACE here"))
}

/// Where what this process sends may be in place: everywhere in one group, nowhere between two.
#[inline]
fn replaced(comm: &Comm, start: *const c_void) -> Result<bool> {
    if in_place(start) && comm.remote.is_some() { Err(misplaced("sendbuf")) } else { Ok(in_place(start)) }
}

#[inline]
fn same_bytes(sent: usize, received: usize) -> Result<()> {
    if sent == received {
        return Ok(());
    }
    Err(Error::new(MPI_ERR_TRUNCATE, format!("this rank sends itself {sent} bytes and receives {received}")))
}

/// `count` elements for each of `blocks`.
#[inline]
pub(crate) fn times(data: &Data, blocks: usize) -> Result<Data> {
    if data.count < 0 {
        return Err(Error::new(MPI_ERR_COUNT, format!("count = {} is negative", data.count)));
    }
    let count = data.count.checked_mul(blocks as i64);
    count.map(|count| Data { count, ..*data }).ok_or_else(|| Error::new(MPI_ERR_COUNT, format!("count = {} is too large", data.count)))
}

#[inline]
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
    comm.calls.went(Way::Messages);
    block(comm.cell, function, operate(&plan?, comm, begun, Channel::begun(comm, begun)?)?)?;
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

    #[inline]
    fn longest_later(&self, _comm: &Comm, tuning: &coll::Tuning) -> Option<usize> {
        tuning.barrier.forced.is_none().then_some(0)
    }

    #[inline]
    fn offer(&self, turn: &Turn) -> Result<bool> {
        turn.bring(&[], Readers::All)
    }

    #[inline]
    fn collect(&self, _turn: &Turn) -> Result<()> {
        Ok(())
    }

    fn run(&self, channel: Channel) -> impl Operated + use<> {
        let inter = self.inter;
        async move { if inter { Box::pin(inter::barrier(&channel, channel.tuning())).await } else { coll::barrier(&channel, channel.tuning()).await } }
    }
}
