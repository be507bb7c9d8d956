//! Reductions (MPI-5.0 §6.9 to §6.11).

use super::*;
use crate::coll::Reducer;
use crate::op;
use crate::pair::Sends;

/// The memory of a vector that is reduced, and how its elements must lie for the operation.
#[derive(Clone)]
struct VectorPlace {
    buffer: Buffer,
    count: usize,
    /// For a user's function on a type with gaps: elements one after the other, each in this many bytes.
    spread: Option<(SharedLayout, usize)>,
}

impl VectorPlace {
    const NONE: VectorPlace = VectorPlace { buffer: Buffer::EMPTY, count: 0, spread: None };

    #[inline]
    fn new(data: &Data, op: &Operation) -> Result<VectorPlace> {
        let buffer = buffer(data)?;
        let t = datatype::lookup(data.datatype)?;
        let spread = (op.keeps_layout() && !t.contiguous()).then(|| (t.layout().clone(), op.element_bytes()));
        Ok(VectorPlace { buffer, count: data.count as usize, spread })
    }

    /// Its bytes, where it is not empty and can be reduced in shared memory.
    #[inline]
    fn shared_bytes(&self) -> Option<usize> {
        (self.spread.is_none() && !self.buffer.is_empty()).then_some(self.buffer.len())
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
        let place = self.spread.is_some().then(|| Box::new(self.clone()));
        Ok(Vector { packed, memory, place })
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

/// As [`exchanged`], of a vector.
#[inline]
fn exchanged_vector(exchange: &impl Exchange, place: &VectorPlace, sending: bool, receiving: bool) -> Result<Option<Packed>> {
    if place.spread.is_none() { exchanged(exchange, &place.buffer, sending, receiving) } else { Ok(None) }
}

/// As [`exchanged_or_in_place`], of a vector.
#[inline]
fn exchanged_vector_or_in_place(exchange: &impl Exchange, place: &Option<VectorPlace>) -> Result<Option<Option<Packed>>> {
    match place {
        Some(place) => Ok(exchanged_vector(exchange, place, true, false)?.map(Some)),
        None => Ok(Some(None)),
    }
}

/// A vector that is reduced: packed, or as it lies in memory where a user's function must see it so.
struct Vector {
    packed: Packed,
    memory: Option<Vec<u8>>,
    /// Where `memory` is needed.
    place: Option<Box<VectorPlace>>,
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
        if let (Some(memory), Some(place)) = (&mut self.memory, &self.place) {
            let (each, packed) = (place.spread_over(memory), self.packed.write());
            let size = packed.len() / each.len().max(1);
            for (buffer, to) in each.zip(packed.chunks_mut(size.max(1))) {
                // SAFETY: the bytes are writable, and outlive the copy.
                unsafe { Buffer::contiguous(to.as_mut_ptr(), to.len()) }.copy_from(&buffer);
            }
        }
        self.packed.unpack();
    }
}

fn there<T>(loaded: &Result<T>) -> Result<&T> {
    loaded.as_ref().map_err(Box::clone)
}

fn there_mut<T>(loaded: &mut Result<T>) -> Result<&mut T> {
    loaded.as_mut().map_err(|error| error.clone())
}

#[inline]
fn operation(op: handle::Op, data: &Data) -> Result<Operation> {
    Operation::new(op, data.datatype, datatype::committed(data.datatype)?)
}

/// Whether input and result of a reduction, which have the same datatype, are the same memory.
#[inline]
fn aliased(send: *mut c_void, recv: &Data) -> bool {
    send == recv.start && !send.is_null() && recv.count > 0 && datatype::lookup(recv.datatype).is_ok_and(|t| t.size() > 0)
}

/// Refuses input that lies where the result goes (MPI-5.0 §2.3): reading it while the result is written has no defined outcome.
#[inline]
fn apart(send: *mut c_void, recv: &Data) -> Result<()> {
    if aliased(send, recv) && checks::on() {
        return Err(Error::new(MPI_ERR_BUFFER, "input and result are the same memory; where that is possible, MPI_IN_PLACE says so"));
    }
    Ok(())
}

/// The input of a reduction: `None` for `MPI_IN_PLACE`.
#[inline]
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
#[inline]
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
    const TWO_STEPS: bool = true;

    fn call(&self) -> Call {
        self.call
    }

    #[inline]
    fn longest(&self, _comm: &Comm, tuning: &coll::Tuning) -> Option<usize> {
        let place = self.mine.as_ref().unwrap_or(&self.into);
        if tuning.reduce.forced.is_none() && self.op.is_some() { place.shared_bytes() } else { None }
    }

    #[inline]
    fn share(&self, turn: &Turn) -> Result<()> {
        if let (Rooted::Intra { root, .. }, Some(op)) = (self.root, &self.op)
            && shared::reduced_by_slices(turn, op, self.mine.as_ref().unwrap_or(&self.into).buffer.len())
        {
            return with_packed(self.mine.as_ref().map(|mine| &mine.buffer), &self.into.buffer, |mine, into| {
                shared::reduce_by_slices(turn, op, mine, into, root)
            });
        }
        self.offer(turn)?;
        self.collect(turn)
    }

    #[inline]
    fn needs(&self, _rank: usize) -> bool {
        self.root.here()
    }

    #[inline]
    fn offer(&self, turn: &Turn) -> Result<bool> {
        let Rooted::Intra { root, .. } = self.root else { return Ok(true) };
        // The root brings what is in place only.
        if self.root.here() && self.mine.is_some() {
            return Ok(true);
        }
        shared::reduce_offer(turn, Packed::sent(&self.mine.as_ref().unwrap_or(&self.into).buffer)?.read(), self.mine.is_none(), root)
    }

    #[inline]
    fn collect(&self, turn: &Turn) -> Result<()> {
        let (Rooted::Intra { here: true, .. }, Some(op)) = (self.root, &self.op) else { return Ok(()) };
        with_packed(self.mine.as_ref().map(|mine| &mine.buffer), &self.into.buffer, |mine, into| shared::reduce(turn, op, mine, into))
    }

    #[inline]
    fn streams(&self) -> Option<usize> {
        self.op.as_ref().filter(|op| !op.keeps_layout()).map(Operation::element_bytes)
    }

    #[inline]
    fn streams_among_many(&self) -> bool {
        true
    }

    fn among_many(&self, stream: &Stream) -> Result<()> {
        let (Rooted::Intra { root, .. }, Some(op)) = (self.root, &self.op) else { return Ok(()) };
        with_packed(self.mine.as_ref().map(|mine| &mine.buffer), &self.into.buffer, |mine, into| in_rounds::reduce(stream, op, mine, into, root))
    }

    #[inline]
    fn between_two<E: Exchange>(&self, exchange: &E) -> Result<Option<()>> {
        let (Rooted::Intra { here, .. }, Some(op)) = (self.root, &self.op) else { return Ok(None) };
        if !op.commutative() {
            return Ok(None);
        }
        let Some(mine) = exchanged_vector_or_in_place(exchange, &self.mine)? else { return Ok(None) };
        let mine = mine.as_ref().map(Packed::read);
        if !here {
            return exchange.send(mine.unwrap_or_default()).map(Some);
        }
        let Some(mut into) = exchanged_vector(exchange, &self.into, mine.is_none(), true)? else { return Ok(None) };
        exchange.combine(op, Sends::Nothing, mine, into.write())?;
        into.unpack();
        Ok(Some(()))
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
                Rooted::Inter(root) => Box::pin(inter::reduce(&channel, channel.tuning(), &op, mine.unwrap_or_default(), into.write(), root)).await?,
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

    #[inline]
    fn longest(&self, _comm: &Comm, tuning: &coll::Tuning) -> Option<usize> {
        if tuning.allreduce.forced.is_none() { self.into.shared_bytes() } else { None }
    }

    #[inline]
    fn longest_later(&self, comm: &Comm, tuning: &coll::Tuning) -> Option<usize> {
        self.longest(comm, tuning)
    }

    #[inline]
    fn combines_slices(&self, ranks: usize) -> bool {
        !shared::whole(&self.op, self.into.buffer.len(), ranks)
    }

    fn bring_slice(&self, turn: &Turn) -> Result<Vec<u8>> {
        shared::bring_slice_later(turn, &self.op, Packed::sent(&self.mine.as_ref().unwrap_or(&self.into).buffer)?.read())
    }

    fn collect_slices(&self, turn: &Turn, own: &[u8]) -> Result<()> {
        // Nothing of the own vector is needed any more.
        with_packed(self.mine.as_ref().map(|mine| &mine.buffer), &self.into.buffer, |_, into| shared::collect_slices(turn, &self.op, own, into))
    }

    #[inline]
    fn share(&self, turn: &Turn) -> Result<()> {
        if shared::whole(&self.op, self.into.buffer.len(), turn.ranks()) {
            self.offer(turn)?;
            return self.collect(turn);
        }
        with_packed(self.mine.as_ref().map(|mine| &mine.buffer), &self.into.buffer, |mine, into| shared::allreduce_by_slices(turn, &self.op, mine, into))
    }

    #[inline]
    fn offer(&self, turn: &Turn) -> Result<bool> {
        shared::allreduce_offer(turn, Packed::sent(&self.mine.as_ref().unwrap_or(&self.into).buffer)?.read())
    }

    #[inline]
    fn collect(&self, turn: &Turn) -> Result<()> {
        with_packed(self.mine.as_ref().map(|mine| &mine.buffer), &self.into.buffer, |mine, into| shared::allreduce(turn, &self.op, mine, into))
    }

    #[inline]
    fn reads(&self, ranks: usize) -> Option<Reads> {
        self.streams().and_then(|_| Reads::of(Kind::Allreduce, self.into.buffer.len(), ranks))
    }

    fn share_lent(&self, turn: &Turn) -> Result<()> {
        with_packed(self.mine.as_ref().map(|mine| &mine.buffer), &self.into.buffer, |mine, into| lent::allreduce(turn, &self.op, mine, into))
    }

    #[inline]
    fn streams(&self) -> Option<usize> {
        (!self.op.keeps_layout()).then(|| self.op.element_bytes())
    }

    #[inline]
    fn streams_among_many(&self) -> bool {
        true
    }

    fn among_many(&self, stream: &Stream) -> Result<()> {
        with_packed(self.mine.as_ref().map(|mine| &mine.buffer), &self.into.buffer, |mine, into| in_rounds::allreduce(stream, &self.op, mine, into))
    }

    #[inline]
    fn between_two<E: Exchange>(&self, exchange: &E) -> Result<Option<()>> {
        // By messages, the other rank may take steps in which it gets the result.
        if E::BYTES_MAX.is_some() {
            return Ok(None);
        }
        let Some(mine) = exchanged_vector_or_in_place(exchange, &self.mine)? else { return Ok(None) };
        let Some(mut into) = exchanged_vector(exchange, &self.into, mine.is_none(), true)? else { return Ok(None) };
        exchange.combine(&self.op, Sends::Own, mine.as_ref().map(Packed::read), into.write())?;
        into.unpack();
        Ok(Some(()))
    }

    fn run(&self, channel: Channel) -> impl Operated + use<> {
        let (inter, op) = (self.inter, self.op.clone());
        let mine = self.mine.as_ref().map(|mine| mine.load(true, false)).transpose();
        let mut into = self.into.load(self.mine.is_none(), true);
        async move {
            // By reference: what a future moves from one of its variables to another it holds twice.
            let (mine, into) = (there(&mine)?.as_ref().map(Vector::read), there_mut(&mut into)?);
            if inter {
                Box::pin(inter::allreduce(&channel, channel.tuning(), &op, mine.unwrap_or_default(), into.write())).await?;
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
    // Lines are combined from the last rank down.
    let ordered = comm.size() > 2 && world::get()?.tuning.reproducible;
    if ordered || bytes > lines::BYTES_MAX || bytes == 0 || comm.size() == 1 || comm.remote.is_some() || !t.contiguous() || aliased(send, &recv) {
        return blocking(function, comm, allreduce(comm, send, recv, op));
    }
    let operation = operation(op, &recv)?;
    let own = buffer(&if in_place(send) { recv } else { Data { start: send, ..recv } })?;
    let into = buffer(&recv)?;
    // Both are in one piece, of `bytes`.
    let (Some(from), Some(to)) = (own.address(), into.address()) else { return blocking(function, comm, allreduce(comm, send, recv, op)) };
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

impl ReduceScatter {
    /// All ranks get equally much.
    fn even(&self) -> bool {
        self.counts.iter().all(|count| *count == self.counts[0])
    }
}

impl Plan for ReduceScatter {
    const TWO_STEPS: bool = true;

    fn call(&self) -> Call {
        self.call
    }

    #[inline]
    fn longest(&self, _comm: &Comm, tuning: &coll::Tuning) -> Option<usize> {
        if tuning.reduce_scatter.forced.is_none() { self.whole.shared_bytes() } else { None }
    }

    #[inline]
    fn offer(&self, turn: &Turn) -> Result<bool> {
        shared::reduce_scatter_offer(turn, Packed::sent(&self.whole.buffer)?.read())
    }

    #[inline]
    fn collect(&self, turn: &Turn) -> Result<()> {
        let bytes = self.whole.buffer.len();
        let unit = bytes / self.whole.count.max(1);
        let before: i64 = self.counts[..self.me].iter().sum();
        let from = before as usize * unit;
        let range = from..from + self.counts[self.me] as usize * unit;
        if self.replaced {
            // The vector begins where the result goes, and what has been brought of it stays only in a turn that waits.
            let own = if turn.waits() { None } else { Some(coll::copy(&Packed::sent(&self.whole.buffer)?.read()[range])?) };
            let mut into = Packed::received(&self.into.buffer)?;
            shared::reduce_scatter(turn, &self.op, own.as_deref(), bytes, from, into.write())?;
            into.unpack();
            return Ok(());
        }
        let (whole, mut into) = (Packed::sent(&self.whole.buffer)?, Packed::received(&self.into.buffer)?);
        shared::reduce_scatter(turn, &self.op, Some(&whole.read()[range]), bytes, from, into.write())?;
        into.unpack();
        Ok(())
    }

    #[inline]
    fn reads(&self, ranks: usize) -> Option<Reads> {
        let kind = if self.even() { Kind::ReduceScatterBlock } else { Kind::ReduceScatter };
        self.streams().and_then(|_| Reads::of(kind, self.whole.buffer.len(), ranks))
    }

    fn share_lent(&self, turn: &Turn) -> Result<()> {
        let unit = self.whole.buffer.len() / self.whole.count.max(1);
        let from = self.counts[..self.me].iter().sum::<i64>() as usize * unit;
        let (whole, mut into) = (Packed::sent(&self.whole.buffer)?, Packed::received(&self.into.buffer)?);
        lent::reduce_scatter(turn, &self.op, whole.read(), self.replaced, from, into.write())?;
        into.unpack();
        Ok(())
    }

    #[inline]
    fn streams(&self) -> Option<usize> {
        (!self.op.keeps_layout()).then(|| self.op.element_bytes())
    }

    #[inline]
    fn streams_among_many(&self) -> bool {
        self.even()
    }

    fn among_many(&self, stream: &Stream) -> Result<()> {
        let (whole, mut into) = (Packed::sent(&self.whole.buffer)?, Packed::received(&self.into.buffer)?);
        in_rounds::reduce_scatter_block(stream, &self.op, whole.read(), self.replaced, into.write())?;
        into.unpack();
        Ok(())
    }

    #[inline]
    fn between_two<E: Exchange>(&self, exchange: &E) -> Result<Option<()>> {
        let Some(mut into) = exchanged_vector(exchange, &self.into, false, true)? else { return Ok(None) };
        let Some(whole) = exchanged_vector(exchange, &self.whole, true, false)? else { return Ok(None) };
        // Where the vector is in place, it lies where the result goes: a copy keeps them apart.
        let copy = if self.replaced { Some(coll::copy(whole.read())?) } else { None };
        let whole = copy.as_deref().unwrap_or(whole.read());
        let (low, high) = whole.split_at(whole.len() / self.whole.count * self.counts[0] as usize);
        let (mine, out) = if self.me == 0 { (low, high) } else { (high, low) };
        exchange.combine(&self.op, Sends::These(out), Some(mine), into.write())?;
        into.unpack();
        Ok(Some(()))
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
                Box::pin(inter::reduce_scatter(&channel, tuning, &op, whole.read(), into.write(), &counts_bytes)).await?;
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
    me: usize,
}

impl Scan {
    /// An exclusive scan leaves the first rank's buffer as it is.
    #[inline]
    fn has_result(&self) -> bool {
        !(self.exclusive && self.me == 0)
    }

    /// Gives `scan` the own vector, unless it is in place, and where the result goes.
    #[inline]
    fn combine_with(&self, scan: impl FnOnce(Option<&[u8]>, &mut [u8]) -> Result<()>) -> Result<()> {
        let mine = self.mine.as_ref().map(|mine| Packed::sent(&mine.buffer)).transpose()?;
        let mut into = Packed::of(&self.into.buffer, true, true)?;
        scan(mine.as_ref().map(Packed::read), into.write())?;
        if self.has_result() {
            into.unpack();
        }
        Ok(())
    }
}

/// `MPI_Scan`, or `MPI_Exscan` where `exclusive`.
#[inline]
pub fn scan(comm: &Comm, send: *mut c_void, recv: Data, op: handle::Op, exclusive: bool) -> Result<impl Plan + use<>> {
    if comm.remote.is_some() {
        return Err(Error::new(MPI_ERR_COMM, "the communicator is an intercommunicator, which has no scans"));
    }
    let (handle, op) = (op, operation(op, &recv)?);
    let mine = input(comm, send, &recv, &op)?;
    let into = VectorPlace::new(&recv, &op)?;
    let kind = if exclusive { Kind::Exscan } else { Kind::Scan };
    let call = Call::new(kind).bytes(into.buffer.len()).of(&recv).operation(handle.0, op.element());
    Ok(Scan { call, op, mine, into, exclusive, me: comm.rank as usize })
}

impl Plan for Scan {
    fn call(&self) -> Call {
        self.call
    }

    #[inline]
    fn longest(&self, _comm: &Comm, tuning: &coll::Tuning) -> Option<usize> {
        let choice = if self.exclusive { &tuning.exscan } else { &tuning.scan };
        if choice.forced.is_none() { self.into.shared_bytes() } else { None }
    }

    #[inline]
    fn longest_later(&self, comm: &Comm, tuning: &coll::Tuning) -> Option<usize> {
        self.longest(comm, tuning).filter(|bytes| *bytes <= shared::scan_whole_max(comm.size() as usize))
    }

    #[inline]
    fn needs(&self, rank: usize) -> bool {
        rank < self.me
    }

    #[inline]
    fn share(&self, turn: &Turn) -> Result<()> {
        if self.into.buffer.len() <= shared::scan_whole_max(turn.ranks()) {
            self.offer(turn)?;
            return self.collect(turn);
        }
        self.combine_with(|mine, into| shared::scan_along(turn, &self.op, mine, into, self.exclusive))
    }

    #[inline]
    fn offer(&self, turn: &Turn) -> Result<bool> {
        let own = self.mine.as_ref().unwrap_or(&self.into);
        shared::scan_offer(turn, Packed::sent(&own.buffer)?.read(), self.mine.is_none(), self.exclusive)
    }

    #[inline]
    fn collect(&self, turn: &Turn) -> Result<()> {
        self.combine_with(|mine, into| shared::scan(turn, &self.op, mine, into, self.exclusive))
    }

    #[inline]
    fn streams(&self) -> Option<usize> {
        (!self.op.keeps_layout()).then(|| self.op.element_bytes())
    }

    #[inline]
    fn streams_among_many(&self) -> bool {
        true
    }

    fn among_many(&self, stream: &Stream) -> Result<()> {
        self.combine_with(|mine, into| in_rounds::scan(stream, &self.op, mine, into, self.exclusive))
    }

    #[inline]
    fn between_two<E: Exchange>(&self, exchange: &E) -> Result<Option<()>> {
        let Some(mut into) = exchanged_vector(exchange, &self.into, true, true)? else { return Ok(None) };
        let Some(mine) = exchanged_vector_or_in_place(exchange, &self.mine)? else { return Ok(None) };
        let mine = mine.as_ref().map(Packed::read);
        match (self.me == 0, self.exclusive) {
            (true, true) => return exchange.send(mine.unwrap_or(into.read())).map(Some),
            (true, false) => {
                exchange.send(mine.unwrap_or(into.read()))?;
                if let Some(mine) = mine {
                    into.write().copy_from_slice(mine);
                }
            }
            (false, true) => exchange.receive(into.write())?,
            (false, false) => exchange.combine(&self.op, Sends::Nothing, mine, into.write())?,
        }
        into.unpack();
        Ok(Some(()))
    }

    fn run(&self, channel: Channel) -> impl Operated + use<> {
        let (op, exclusive, has_result) = (self.op.clone(), self.exclusive, self.has_result());
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
            if has_result {
                into.unpack();
            }
            Ok(())
        }
    }
}

/// `MPI_Reduce_local`.
#[inline]
pub fn reduce_local(input: *mut c_void, inout: Data, op: handle::Op) -> Result<()> {
    let t = datatype::committed(inout.datatype)?;
    if let Some((predefined, kind)) = Operation::predefined(op, t)
        && ![input, inout.start].into_iter().any(|start| start.is_null() || in_place(start))
        && input != inout.start
        && let Some(bytes) = usize::try_from(inout.count).ok().and_then(|count| count.checked_mul(kind.bytes()))
    {
        // SAFETY: the program's buffers of so many elements of a predefined datatype, which do not overlap (MPI-5.0 §2.3).
        let (from, into) = unsafe { (std::slice::from_raw_parts(input.cast(), bytes), std::slice::from_raw_parts_mut(inout.start.cast(), bytes)) };
        return op::apply(predefined, kind, from, into);
    }
    reduce_local_otherwise(input, inout, op, t)
}

/// As [`reduce_local`], of other than a predefined operation on elements of a predefined datatype, or where something is not in order.
#[inline(never)]
fn reduce_local_otherwise(input: *mut c_void, inout: Data, op: handle::Op, t: &'static Type) -> Result<()> {
    let op = Operation::new(op, inout.datatype, t)?;
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
