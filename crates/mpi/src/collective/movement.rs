//! Collectives that move data (MPI-5.0 §6.4 to §6.8).

use super::*;
use std::borrow::Cow;

struct Bcast {
    call: Call,
    root: Rooted,
    data: Buffer,
}

/// `MPI_Bcast`.
#[inline]
pub fn bcast(comm: &Comm, data: Data, root: i32) -> Result<impl Plan + use<>> {
    let root = Rooted::new(comm, root)?;
    let arguments = data;
    let data = if root.here() || root.brings() { buffer(&data)? } else { Buffer::EMPTY };
    Ok(Bcast { call: root.of(Call::new(Kind::Bcast).bytes(data.len()).of(&arguments)), root, data })
}

impl Plan for Bcast {
    const TWO_STEPS: bool = true;

    fn call(&self) -> Call {
        self.call
    }

    #[inline]
    fn longest(&self, _comm: &Comm, tuning: &coll::Tuning) -> Option<usize> {
        (tuning.bcast.forced.is_none() && !self.data.is_empty()).then_some(self.data.len())
    }

    #[inline]
    fn needs(&self, rank: usize) -> bool {
        self.root.needs(rank)
    }

    #[inline]
    fn offer(&self, turn: &Turn) -> Result<bool> {
        let Rooted::Intra { root, here: true } = self.root else { return Ok(true) };
        shared::bcast_offer(turn, Packed::sent(&self.data)?.read(), root)
    }

    #[inline]
    fn collect(&self, turn: &Turn) -> Result<()> {
        let Rooted::Intra { root, here: false } = self.root else { return Ok(()) };
        let mut data = Packed::received(&self.data)?;
        shared::bcast(turn, data.write(), root)?;
        data.unpack();
        Ok(())
    }

    #[inline]
    fn streams(&self) -> Option<usize> {
        Some(1)
    }

    #[inline]
    fn streams_among_many(&self) -> bool {
        true
    }

    fn among_many(&self, stream: &Stream) -> Result<()> {
        let Rooted::Intra { root, here } = self.root else { return Ok(()) };
        let mut data = Packed::of(&self.data, here, !here)?;
        if here {
            return stream.send_to_all(data.read());
        }
        stream.receive_from(root, data.write())?;
        data.unpack();
        Ok(())
    }

    #[inline]
    fn between_two<E: Exchange>(&self, exchange: &E) -> Result<Option<()>> {
        let Rooted::Intra { here, .. } = self.root else { return Ok(None) };
        let Some(mut data) = exchanged(exchange, &self.data, here, !here)? else { return Ok(None) };
        if here {
            exchange.send(data.read())?;
        } else {
            exchange.receive(data.write())?;
            data.unpack();
        }
        Ok(Some(()))
    }

    fn run(&self, channel: Channel) -> impl Operated + use<> {
        let root = self.root;
        let packed = Packed::of(&self.data, root.here(), !root.here());
        async move {
            let mut packed = packed?;
            match root {
                Rooted::Intra { root, .. } => coll::bcast(&channel, channel.tuning(), packed.write(), root).await?,
                Rooted::Inter(root) => Box::pin(inter::bcast(&channel, channel.tuning(), packed.write(), root)).await?,
            }
            packed.unpack();
            Ok(())
        }
    }
}

/// The block that a process gives to, or gets from, a root. `None`: in place.
#[inline]
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
#[inline]
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
    const TWO_STEPS: bool = true;

    fn call(&self) -> Call {
        self.call
    }

    #[inline]
    fn longest(&self, comm: &Comm, tuning: &coll::Tuning) -> Option<usize> {
        let block = self.mine.as_ref().map_or(self.all.len() / comm.size() as usize, Buffer::len);
        (tuning.gather.forced.is_none() && block > 0).then_some(block)
    }

    #[inline]
    fn needs(&self, _rank: usize) -> bool {
        self.root.here()
    }

    #[inline]
    fn offer(&self, turn: &Turn) -> Result<bool> {
        let (Rooted::Intra { root, here: false }, Some(mine)) = (self.root, &self.mine) else { return Ok(true) };
        shared::gather_offer(turn, Packed::sent(mine)?.read(), root)
    }

    #[inline]
    fn collect(&self, turn: &Turn) -> Result<()> {
        if !self.root.here() {
            return Ok(());
        }
        with_packed(self.mine.as_ref(), &self.all, |mine, all| shared::gather(turn, mine, all))
    }

    #[inline]
    fn reads(&self, ranks: usize) -> Option<Reads> {
        Reads::of(Kind::Gather, self.mine.as_ref().map_or(self.all.len() / ranks, Buffer::len), ranks)
    }

    fn share_lent(&self, turn: &Turn) -> Result<()> {
        let Rooted::Intra { root, .. } = self.root else { return Ok(()) };
        with_packed(self.mine.as_ref(), &self.all, |mine, all| lent::gather(turn, mine, all, root))
    }

    #[inline]
    fn streams(&self) -> Option<usize> {
        Some(1)
    }

    #[inline]
    fn between_two<E: Exchange>(&self, exchange: &E) -> Result<Option<()>> {
        let Rooted::Intra { here, .. } = self.root else { return Ok(None) };
        let Some(mine) = exchanged_or_in_place(exchange, &self.mine, true, false)? else { return Ok(None) };
        if !here {
            return exchange.send(mine.as_ref().map_or(&[], Packed::read)).map(Some);
        }
        let Some(mut all) = exchanged(exchange, &self.all, mine.is_none(), true)? else { return Ok(None) };
        let (own, other) = exchange.blocks(all.write());
        if let Some(mine) = mine {
            own.copy_from_slice(mine.read());
        }
        exchange.receive(other)?;
        all.unpack();
        Ok(Some(()))
    }

    fn run(&self, channel: Channel) -> impl Operated + use<> {
        let (root, mine) = (self.root, self.mine.as_ref().map(Packed::sent).transpose());
        let all = Packed::of(&self.all, self.mine.is_none(), true);
        async move {
            let (mine, mut all) = (mine?, all?);
            let mine = mine.as_ref().map(Packed::read);
            match root {
                Rooted::Intra { root, .. } => coll::gather(&channel, channel.tuning(), mine, all.write(), root).await?,
                Rooted::Inter(root) => Box::pin(inter::gather(&channel, channel.tuning(), mine.unwrap_or_default(), all.write(), root)).await?,
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
    all: PerRank<Buffer>,
}

/// `MPI_Gatherv`. `recv` is there at the root only.
pub fn gatherv(comm: &Comm, send: Data, recv: Option<Blocks>, root: i32) -> Result<impl Plan + use<>> {
    let root = Rooted::new(comm, root)?;
    let mine = own_block(root, &send, "sendbuf")?;
    let all = match &recv {
        Some(blocks) if root.here() => buffers(blocks)?,
        _ => PerRank::new(),
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

    fn longest(&self, comm: &Comm, _tuning: &coll::Tuning) -> Option<usize> {
        (comm.size() > 1).then(|| longest_part(Kind::Gatherv, 0, comm.size() as usize))
    }

    fn share(&self, turn: &Turn) -> Result<()> {
        let Rooted::Intra { root, .. } = self.root else { return Ok(()) };
        let mine = self.mine.as_ref().map(Packed::sent).transpose()?;
        let mut all = PackedBlocks::of(&self.all, self.mine.is_none(), true)?;
        shared::gatherv(turn, mine.as_ref().map(Packed::read), &mut all.write(), root)?;
        all.unpack();
        Ok(())
    }

    fn run(&self, channel: Channel) -> impl Operated + use<> {
        let (root, mine) = (self.root, self.mine.as_ref().map(Packed::sent).transpose());
        let all = PackedBlocks::of(&self.all, self.mine.is_none(), true);
        async move {
            let (mine, mut all) = (mine?, all?);
            let mine = mine.as_ref().map(Packed::read);
            match root {
                Rooted::Intra { root, .. } => coll::gatherv(&channel, mine, &mut all.write(), root).await?,
                Rooted::Inter(root) => Box::pin(inter::gatherv(&channel, mine.unwrap_or_default(), &mut all.write(), root)).await?,
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
#[inline]
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
    const TWO_STEPS: bool = true;

    fn call(&self) -> Call {
        self.call
    }

    #[inline]
    fn longest(&self, comm: &Comm, tuning: &coll::Tuning) -> Option<usize> {
        let ranks = comm.size() as usize;
        let block = self.mine.as_ref().map_or(self.all.len() / ranks, Buffer::len);
        (tuning.scatter.forced.is_none() && block > 0).then_some(longest_part(Kind::Scatter, block, ranks)).filter(|longest| *longest > 0)
    }

    #[inline]
    fn needs(&self, rank: usize) -> bool {
        self.root.needs(rank)
    }

    #[inline]
    fn offer(&self, turn: &Turn) -> Result<bool> {
        if self.root.here() { shared::scatter_offer(turn, Packed::sent(&self.all)?.read()) } else { Ok(true) }
    }

    #[inline]
    fn collect(&self, turn: &Turn) -> Result<()> {
        let (Rooted::Intra { root, .. }, Some(mine)) = (self.root, &self.mine) else { return Ok(()) };
        let (all, mut mine) = (Packed::sent(&self.all)?, Packed::received(mine)?);
        shared::scatter(turn, all.read(), Some(mine.write()), root)?;
        mine.unpack();
        Ok(())
    }

    #[inline]
    fn reads(&self, ranks: usize) -> Option<Reads> {
        Reads::of(Kind::Scatter, self.mine.as_ref().map_or(self.all.len() / ranks, Buffer::len), ranks)
    }

    fn share_lent(&self, turn: &Turn) -> Result<()> {
        let Rooted::Intra { root, .. } = self.root else { return Ok(()) };
        let (all, mut mine) = (Packed::sent(&self.all)?, self.mine.as_ref().map(Packed::received).transpose()?);
        lent::scatter(turn, all.read(), mine.as_mut().map(Packed::write), root)?;
        mine.iter().for_each(Packed::unpack);
        Ok(())
    }

    #[inline]
    fn streams(&self) -> Option<usize> {
        Some(1)
    }

    #[inline]
    fn between_two<E: Exchange>(&self, exchange: &E) -> Result<Option<()>> {
        let Rooted::Intra { here, .. } = self.root else { return Ok(None) };
        let Some(mut mine) = exchanged_or_in_place(exchange, &self.mine, false, true)? else { return Ok(None) };
        if here {
            let Some(mut all) = exchanged(exchange, &self.all, true, false)? else { return Ok(None) };
            let (own, other) = exchange.blocks(all.write());
            exchange.send(other)?;
            if let Some(mine) = &mut mine {
                mine.write().copy_from_slice(own);
            }
        } else if let Some(mine) = &mut mine {
            exchange.receive(mine.write())?;
        }
        mine.iter().for_each(Packed::unpack);
        Ok(Some(()))
    }

    fn run(&self, channel: Channel) -> impl Operated + use<> {
        let (root, all, mine) = (self.root, Packed::sent(&self.all), self.mine.as_ref().map(Packed::received).transpose());
        async move {
            let (all, mut mine) = (all?, mine?);
            let own = mine.as_mut().map(Packed::write);
            match root {
                Rooted::Intra { root, .. } => coll::scatter(&channel, channel.tuning(), all.read(), own, root).await?,
                Rooted::Inter(root) => Box::pin(inter::scatter(&channel, channel.tuning(), all.read(), own.unwrap_or_default(), root)).await?,
            }
            mine.iter().for_each(Packed::unpack);
            Ok(())
        }
    }
}

struct Scatterv {
    call: Call,
    root: Rooted,
    all: PerRank<Buffer>,
    mine: Option<Buffer>,
}

/// `MPI_Scatterv`. `send` is there at the root only.
pub fn scatterv(comm: &Comm, send: Option<Blocks>, recv: Data, root: i32) -> Result<impl Plan + use<>> {
    let root = Rooted::new(comm, root)?;
    let mine = own_block(root, &recv, "recvbuf")?;
    let all = match &send {
        Some(blocks) if root.here() => buffers(blocks)?,
        _ => PerRank::new(),
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

    fn longest(&self, comm: &Comm, _tuning: &coll::Tuning) -> Option<usize> {
        (comm.size() > 1).then(|| longest_part(Kind::Scatterv, 0, comm.size() as usize))
    }

    fn share(&self, turn: &Turn) -> Result<()> {
        let Rooted::Intra { root, .. } = self.root else { return Ok(()) };
        let (all, mut mine) = (PackedBlocks::of(&self.all, true, false)?, self.mine.as_ref().map(Packed::received).transpose()?);
        shared::scatterv(turn, &all.read(), mine.as_mut().map(Packed::write), root)?;
        mine.iter().for_each(Packed::unpack);
        Ok(())
    }

    fn run(&self, channel: Channel) -> impl Operated + use<> {
        let (root, all) = (self.root, PackedBlocks::of(&self.all, true, false));
        let mine = self.mine.as_ref().map(Packed::received).transpose();
        async move {
            let (all, mut mine) = (all?, mine?);
            let own = mine.as_mut().map(Packed::write);
            match root {
                Rooted::Intra { root, .. } => coll::scatterv(&channel, &all.read(), own, root).await?,
                Rooted::Inter(root) => Box::pin(inter::scatterv(&channel, &all.read(), own.unwrap_or_default(), root)).await?,
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
#[inline]
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
    const TWO_STEPS: bool = true;

    fn call(&self) -> Call {
        self.call
    }

    #[inline]
    fn longest(&self, comm: &Comm, tuning: &coll::Tuning) -> Option<usize> {
        (tuning.allgather.forced.is_none() && !self.all.is_empty()).then_some(self.all.len() / comm.size() as usize)
    }

    #[inline]
    fn offer(&self, turn: &Turn) -> Result<bool> {
        match &self.mine {
            Some(mine) => shared::allgather_offer(turn, Packed::sent(mine)?.read()),
            None => {
                let all = Packed::sent(&self.all)?;
                let block = all.read().len() / turn.ranks();
                shared::allgather_offer(turn, &all.read()[turn.rank() * block..][..block])
            }
        }
    }

    #[inline]
    fn collect(&self, turn: &Turn) -> Result<()> {
        with_packed(self.mine.as_ref(), &self.all, |mine, all| shared::allgather(turn, mine, all))
    }

    #[inline]
    fn reads(&self, ranks: usize) -> Option<Reads> {
        Reads::of(Kind::Allgather, self.all.len() / ranks, ranks)
    }

    fn share_lent(&self, turn: &Turn) -> Result<()> {
        with_packed(self.mine.as_ref(), &self.all, |mine, all| lent::allgather(turn, mine, all))
    }

    #[inline]
    fn streams(&self) -> Option<usize> {
        Some(1)
    }

    #[inline]
    fn streams_among_many(&self) -> bool {
        true
    }

    fn among_many(&self, stream: &Stream) -> Result<()> {
        with_packed(self.mine.as_ref(), &self.all, |mine, all| in_rounds::allgather(stream, mine, all))
    }

    #[inline]
    fn between_two<E: Exchange>(&self, exchange: &E) -> Result<Option<()>> {
        let Some(mine) = exchanged_or_in_place(exchange, &self.mine, true, false)? else { return Ok(None) };
        let Some(mut all) = exchanged(exchange, &self.all, mine.is_none(), true)? else { return Ok(None) };
        let (own, other) = exchange.blocks(all.write());
        match mine {
            Some(mine) => {
                exchange.run(mine.read(), other)?;
                own.copy_from_slice(mine.read());
            }
            None => exchange.run(own, other)?,
        }
        all.unpack();
        Ok(Some(()))
    }

    fn run(&self, channel: Channel) -> impl Operated + use<> {
        let (inter, mine) = (self.inter, self.mine.as_ref().map(Packed::sent).transpose());
        let all = Packed::of(&self.all, self.mine.is_none(), true);
        async move {
            let (mine, mut all) = (mine?, all?);
            let mine = mine.as_ref().map(Packed::read);
            if inter {
                Box::pin(inter::allgather(&channel, channel.tuning(), mine.unwrap_or_default(), all.write())).await?;
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
    all: PerRank<Buffer>,
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
    const TWO_STEPS: bool = true;

    fn call(&self) -> Call {
        self.call
    }

    fn longest(&self, comm: &Comm, tuning: &coll::Tuning) -> Option<usize> {
        let longest = self.all.iter().map(Buffer::len).max().filter(|longest| *longest > 0 && comm.size() > 1);
        if tuning.allgatherv.forced.is_none() { longest } else { None }
    }

    fn needs(&self, rank: usize) -> bool {
        !self.all[rank].is_empty()
    }

    fn offer(&self, turn: &Turn) -> Result<bool> {
        shared::allgatherv_offer(turn, Packed::sent(self.mine.as_ref().unwrap_or(&self.all[turn.rank()]))?.read())
    }

    fn collect(&self, turn: &Turn) -> Result<()> {
        let mine = self.mine.as_ref().map(Packed::sent).transpose()?;
        let mut all = PackedBlocks::of(&self.all, self.mine.is_none(), true)?;
        shared::allgatherv(turn, mine.as_ref().map(Packed::read), &mut all.write())?;
        all.unpack();
        Ok(())
    }

    fn run(&self, channel: Channel) -> impl Operated + use<> {
        let (inter, mine) = (self.inter, self.mine.as_ref().map(Packed::sent).transpose());
        let all = PackedBlocks::of(&self.all, self.mine.is_none(), true);
        async move {
            let (mine, mut all) = (mine?, all?);
            let mine = mine.as_ref().map(Packed::read);
            if inter {
                Box::pin(inter::allgatherv(&channel, mine.unwrap_or_default(), &mut all.write())).await?;
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
#[inline]
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
    const TWO_STEPS: bool = true;

    fn call(&self) -> Call {
        self.call
    }

    #[inline]
    fn longest(&self, comm: &Comm, tuning: &coll::Tuning) -> Option<usize> {
        let ranks = comm.size() as usize;
        (tuning.alltoall.forced.is_none() && !self.into.is_empty())
            .then_some(longest_part(Kind::Alltoall, self.into.len() / ranks, ranks))
            .filter(|longest| *longest > 0)
    }

    #[inline]
    fn offer(&self, turn: &Turn) -> Result<bool> {
        shared::alltoall_offer(turn, Packed::sent(self.from.as_ref().unwrap_or(&self.into))?.read())
    }

    #[inline]
    fn collect(&self, turn: &Turn) -> Result<()> {
        with_packed(self.from.as_ref(), &self.into, |from, into| shared::alltoall(turn, from, into))
    }

    #[inline]
    fn reads(&self, ranks: usize) -> Option<Reads> {
        Reads::of(Kind::Alltoall, self.into.len() / ranks, ranks)
    }

    fn share_lent(&self, turn: &Turn) -> Result<()> {
        with_packed(self.from.as_ref(), &self.into, |from, into| lent::alltoall(turn, from, into))
    }

    #[inline]
    fn streams(&self) -> Option<usize> {
        Some(1)
    }

    #[inline]
    fn streams_among_many(&self) -> bool {
        true
    }

    fn among_many(&self, stream: &Stream) -> Result<()> {
        with_packed(self.from.as_ref(), &self.into, |from, into| in_rounds::alltoall(stream, from, into))
    }

    #[inline]
    fn between_two<E: Exchange>(&self, exchange: &E) -> Result<Option<()>> {
        let Some(from) = exchanged_or_in_place(exchange, &self.from, true, false)? else { return Ok(None) };
        let Some(mut into) = exchanged(exchange, &self.into, from.is_none(), true)? else { return Ok(None) };
        let (own, other) = exchange.blocks(into.write());
        match from {
            Some(mut from) => {
                let (mine, out) = exchange.blocks(from.write());
                exchange.run(out, other)?;
                own.copy_from_slice(mine);
            }
            None => {
                let mut out = coll::scratch(other.len())?;
                out.copy_from_slice(other);
                exchange.run(&out, other)?;
            }
        }
        into.unpack();
        Ok(Some(()))
    }

    fn run(&self, channel: Channel) -> impl Operated + use<> {
        let (inter, from) = (self.inter, self.from.as_ref().map(Packed::sent).transpose());
        let into = Packed::of(&self.into, self.from.is_none(), true);
        async move {
            let (from, mut into) = (from?, into?);
            let from = from.as_ref().map(Packed::read);
            if inter {
                Box::pin(inter::alltoall(&channel, from.unwrap_or_default(), into.write())).await?;
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
    me: usize,
    from: Option<PerRank<Buffer>>,
    into: PerRank<Buffer>,
}

impl Alltoallv {
    /// Whether the block for `rank`, or from it, goes by a message of its own in a nonblocking one, because of its length.
    fn is_long(&self, rank: usize, block: &Buffer) -> bool {
        rank != self.me && !shared::short(block.len(), self.into.len())
    }

    fn any_is_long(&self, blocks: &PerRank<Buffer>) -> bool {
        blocks.iter().enumerate().any(|(rank, block)| self.is_long(rank, block))
    }

    /// Of one block for each rank, those that are `long`, or the others; an empty one in place of each of the rest.
    fn those<'a>(&self, blocks: &'a PerRank<Buffer>, long: bool) -> Cow<'a, [Buffer]> {
        if !long && !self.any_is_long(blocks) {
            return Cow::Borrowed(blocks);
        }
        let kept = |(rank, block): (usize, &Buffer)| if self.is_long(rank, block) == long { block.clone() } else { Buffer::EMPTY };
        Cow::Owned(blocks.iter().enumerate().map(kept).collect())
    }
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
    Ok(Alltoallv { call, inter, me, from, into })
}

impl Plan for Alltoallv {
    fn call(&self) -> Call {
        self.call
    }

    const TWO_STEPS: bool = true;

    fn longest(&self, comm: &Comm, tuning: &coll::Tuning) -> Option<usize> {
        (tuning.alltoallv.forced.is_none() && comm.size() > 1).then(|| longest_part(Kind::Alltoallv, 0, comm.size() as usize))
    }

    fn needs(&self, rank: usize) -> bool {
        !self.into[rank].is_empty() && shared::short(self.into[rank].len(), self.into.len())
    }

    fn offer(&self, turn: &Turn) -> Result<bool> {
        let short = PackedBlocks::of(&self.those(self.from.as_ref().unwrap_or(&self.into), false), true, false)?;
        shared::alltoallv_offer(turn, &short.read())
    }

    fn collect(&self, turn: &Turn) -> Result<()> {
        let own = self.from.as_ref().map(|from| Packed::sent(&from[self.me])).transpose()?;
        let mut into = PackedBlocks::of(&self.those(&self.into, false), self.from.is_none(), true)?;
        shared::alltoallv_collect(turn, own.as_ref().map(Packed::read), &mut into.write())?;
        into.unpack();
        Ok(())
    }

    fn has_rest(&self) -> bool {
        self.any_is_long(&self.into) || self.from.as_ref().is_some_and(|from| self.any_is_long(from))
    }

    fn run_rest(&self, channel: Channel) -> impl Operated + use<> {
        let rest = |blocks| self.those(blocks, true).iter().cloned().collect();
        Alltoallv { from: self.from.as_ref().map(rest), into: rest(&self.into), ..*self }.run(channel)
    }

    fn share(&self, turn: &Turn) -> Result<()> {
        let from = self.from.as_ref().map(|blocks| PackedBlocks::of(blocks, true, false)).transpose()?;
        let mut into = PackedBlocks::of(&self.into, self.from.is_none(), true)?;
        shared::alltoallv(turn, from.as_ref().map(PackedBlocks::read).as_deref(), &mut into.write())?;
        into.unpack();
        Ok(())
    }

    fn run(&self, channel: Channel) -> impl Operated + use<> {
        let inter = self.inter;
        let from = self.from.as_ref().map(|blocks| PackedBlocks::of(blocks, true, false)).transpose();
        let into = PackedBlocks::of(&self.into, self.from.is_none(), true);
        async move {
            let (from, mut into) = (from?, into?);
            let send = from.as_ref().map(PackedBlocks::read);
            if inter {
                Box::pin(inter::alltoallv(&channel, send.as_deref().unwrap_or_default(), &mut into.write())).await?;
            } else {
                coll::alltoallv(&channel, channel.tuning(), send.as_deref(), &mut into.write()).await?;
            }
            into.unpack();
            Ok(())
        }
    }
}
