//! What lies between the reliability layer and a device: paths to the peers, the guard, and what the one asks of the other.

use std::collections::VecDeque;
use std::mem::MaybeUninit;

use rustc_hash::FxHashMap;

use proto::reliability::wire::{self, DIRECT, Packet, RUN_HEAD_BYTES, Run};
use proto::reliability::{Begun, Cut, Delivery, Endpoint, Failure, Outside, PEERS_MAX, PeerId, Placement, SendPath, Sent, Slice, Sparse, Taken};

use super::card::Card;
use super::device::{Batch, DatagramDevice, Path, SendQueue, Stamp};
use super::foreign::ForeignPeers;
use super::protection::{Guard, fill};
use super::search::{Probe, Search};
use super::{NetworkCounters, Program, Sink};
use crate::stores::Stores;

/// The paths to one peer, one for each rail.
#[derive(Debug)]
pub struct PeerPaths<P> {
    pub paths: Box<[P]>,
    pub state: State,
    /// They are to be searched for.
    pub wanted: bool,
    /// What has left to it before its paths were searched for, bytes.
    pub sent_bytes: u32,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum State {
    /// All that is known is where something came from.
    Back,
    /// The likeliest pair of addresses, for all rails.
    Guessed,
    /// It has answered there.
    Heard,
    /// The search is on, or over. What is found later is added.
    Searched,
    /// There was nothing to search for.
    Lone,
}

/// Datagrams by themselves, and such as follow each other.
#[derive(Clone, Copy)]
pub enum Arrived<'a> {
    One(&'a Packet<'a>),
    Run(&'a Run<'a>),
}

/// All but the reliability layer and the device.
#[derive(Debug)]
pub struct Edge<D: DatagramDevice> {
    pub guard: Guard,
    pub foreign: ForeignPeers,
    /// The reliability layer's own rails; a peer may have more.
    pub rails: u8,
    pub peer_paths: Sparse<PeerPaths<D::Path>>,
    pub searches: FxHashMap<PeerId, Search<D::Path>>,
    /// Cards of peers that have changed since the start, and how often each had.
    pub changed: FxHashMap<PeerId, (u16, Card<D::Offer>)>,
    /// Peers whose paths are to be searched for now, and those that should have answered, and since when.
    pub wanted: Vec<PeerId>,
    pub unheard: VecDeque<(u64, PeerId)>,
    pub sink: Sink,
    pub counters: NetworkCounters,
    pub full: bool,
    /// Something is in use until the device is flushed.
    pub posted: bool,
    /// Local completions that are about to be told of, and rails whose datagrams do not leave.
    pub completed: Vec<(SendQueue, u32)>,
    pub stuck: Vec<u8>,
}

/// Other paths than the likeliest are looked for when so much has gone to a peer, or nothing has come from it for longer than peers take.
const SEARCH_BYTES: u32 = 256 << 10;
/// Payloads in more pieces are put together before they leave.
const PIECES_MAX: usize = 16;

/// Which of a peer's rails are spare: bit `r` for the path of rail `r`.
pub fn spares_of(paths: &[impl Path]) -> u8 {
    paths.iter().enumerate().fold(0, |spares, (rail, path)| spares | (path.is_spare() as u8) << rail)
}

impl<D: DatagramDevice> Edge<D> {
    pub fn new(guard: Guard, rails: usize) -> Edge<D> {
        Edge {
            guard,
            foreign: ForeignPeers::default(),
            rails: rails as u8,
            peer_paths: Sparse::default(),
            searches: FxHashMap::default(),
            changed: FxHashMap::default(),
            wanted: Vec::new(),
            unheard: VecDeque::new(),
            sink: Sink::default(),
            counters: NetworkCounters::default(),
            full: false,
            posted: false,
            completed: Vec::new(),
            stuck: Vec::new(),
        }
    }

    /// Where a datagram with so much payload goes; `None` where no way is known, and it counts as lost.
    fn path(&mut self, route: SendPath, payload_bytes: u32) -> Option<D::Path> {
        let peer_paths = self.peer_paths.get_mut(route.peer);
        let Some((peer_paths, path)) = peer_paths.and_then(|peer_paths| peer_paths.paths.get(route.rail as usize).copied().map(|path| (peer_paths, path)))
        else {
            self.counters.unroutable += 1;
            return None;
        };
        if matches!(peer_paths.state, State::Guessed | State::Heard) {
            peer_paths.sent_bytes = peer_paths.sent_bytes.saturating_add(payload_bytes);
            if peer_paths.sent_bytes >= SEARCH_BYTES {
                peer_paths.sent_bytes = 0;
                self.want(route.peer);
            }
        }
        Some(path)
    }

    /// As [`DatagramDevice::cuts_runs`] of the path that a datagram takes; where none is known, nothing leaves.
    #[inline]
    fn cuts_runs(&self, route: SendPath) -> bool {
        let path = self.peer_paths.get(route.peer).and_then(|peer_paths| peer_paths.paths.get(route.rail as usize));
        path.is_none_or(D::cuts_runs)
    }

    /// Lets everything leave, after which nothing is in use but what is queued.
    pub fn flush(&mut self, device: &mut D) {
        self.full |= !device.flush();
        self.posted = false;
    }

    /// Where a datagram is queued.
    fn queue(&self, route: SendPath) -> SendQueue {
        SendQueue { rail: route.rail % self.rails, endpoint: route.endpoint }
    }

    /// Paths to `peer` are to be searched for, once more if that has been done.
    pub fn want(&mut self, peer: PeerId) {
        if let Some(peer_paths) = self.peer_paths.get_mut(peer)
            && !std::mem::replace(&mut peer_paths.wanted, true)
        {
            self.wanted.push(peer);
        }
    }

    /// Something authentic has come.
    #[allow(clippy::too_many_arguments)]
    pub fn arrived(
        &mut self,
        device: &mut D,
        (local, from): (u8, D::Source),
        arrived: Arrived,
        (me, epoch): (PeerId, u32),
        endpoint: &mut Endpoint,
        program: &mut impl Program,
        now_ns: u64,
    ) {
        let header = match arrived {
            Arrived::One(packet) => packet.header,
            Arrived::Run(run) => run.header,
        };
        if header.destination != me || header.destination_epoch != epoch || header.source >= PEERS_MAX {
            self.counters.refused += 1;
            return;
        }
        let rails = endpoint.config().rails.len().max(header.rail as usize + 1);
        let mut spares = None;
        let peer_paths = self.peer_paths.place(header.source);
        let peer_paths = peer_paths.get_or_insert_with(|| PeerPaths { paths: [].into(), state: State::Back, wanted: false, sent_bytes: 0 });
        if peer_paths.paths.len() < rails {
            // Who is not known, or has more rails than we knew of.
            let mut paths = std::mem::take(&mut peer_paths.paths).into_vec();
            paths.resize(rails, D::back(local, from));
            spares = Some(spares_of(&paths));
            peer_paths.paths = paths.into();
        }
        if peer_paths.state == State::Guessed {
            peer_paths.state = State::Heard;
        }
        let mut around = Around { edge: self, device, program, at_once: false };
        match arrived {
            Arrived::One(packet) => endpoint.arrived(now_ns, header.rail, packet, &mut around),
            Arrived::Run(run) => endpoint.arrived_run(now_ns, header.rail, run, &mut around),
        }
        if let Some(spares) = spares {
            endpoint.set_spares(header.source, spares);
        }
    }

    /// What opens a datagram that is marked as one between two jobs, or is not.
    pub fn opens(&self, foreign: bool) -> Option<&Guard> {
        if foreign { self.foreign.opens() } else { Some(&self.guard) }
    }

    /// What seals datagrams to `peer`.
    pub fn seals(&self, peer: PeerId) -> &Guard {
        self.foreign.seals(peer).map_or(&self.guard, |(_, guard)| guard)
    }

    /// A peer says where it listens now.
    fn changed(&mut self, source: PeerId, probe: &Probe, card: &[u8]) {
        let known = self.changed.get(&source).map_or(0, |(revision, _)| *revision);
        let card: Option<Card<D::Offer>> = std::str::from_utf8(card).ok().and_then(|text| text.parse().ok());
        if let Some(card) = card
            && source < PEERS_MAX
            && probe.revision > known
            && card.epoch == probe.ends.source_epoch
        {
            self.changed.insert(source, (probe.revision, card));
            self.want(source);
        }
    }

    pub fn probed(&mut self, device: &mut D, (local, from): (u8, D::Source), bytes: &[u8], (me, epoch): (PeerId, u32), now_ns: u64) {
        let foreign = Probe::is_foreign(bytes);
        let probe = self.opens(foreign).and_then(|guard| Probe::read(guard, bytes));
        let probe = probe.filter(|(probe, _)| probe.ends.destination == me && probe.ends.destination_epoch == epoch);
        let known = probe.and_then(|(probe, card)| Some((probe, card, self.foreign.sender(foreign, (probe.ends.source, probe.ends.source_epoch))?)));
        let Some((probe, card, source)) = known else {
            self.counters.refused += 1;
            return;
        };
        if let Some(answer) = probe.answer(self.seals(source)) {
            self.counters.probes_answered += 1;
            let path = D::back(local, from);
            device.post_copied(&path, SendQueue::UNTOLD, answer.len(), |out| out.extend_from_slice(&answer));
            if !card.is_empty() {
                self.changed(source, &probe, card);
            }
        } else if !self.searches.get_mut(&source).is_some_and(|search| search.answered(&probe, now_ns)) {
            self.counters.refused += 1;
        }
    }
}

/// What the reliability layer acts upon.
pub struct Around<'a, D: DatagramDevice, P> {
    pub edge: &'a mut Edge<D>,
    pub device: &'a mut D,
    pub program: &'a mut P,
    /// Each datagram leaves as soon as it is made.
    pub at_once: bool,
}

fn stamp(SendPath { peer, rail, .. }: SendPath, header: &[u8]) -> Stamp {
    Stamp { peer, rail, sent_us: wire::sent_us(header) }
}

impl<D: DatagramDevice, P: Program> Outside for Around<'_, D, P> {
    fn transmit(&mut self, route: SendPath, header: &mut [u8], payload: &[Slice]) -> Sent {
        let edge = &mut *self.edge;
        let payload_bytes = payload.iter().fold(0u32, |sum, slice| sum.saturating_add(slice.length_bytes));
        let Some(path) = edge.path(route, payload_bytes) else { return Sent::Done };
        let queue = edge.queue(route);
        let guard = edge.foreign.address(route.peer, header).unwrap_or(&edge.guard);
        let sink = &mut edge.sink;
        sink.clear();
        payload.iter().for_each(|slice| self.program.gather(slice, sink));
        // SAFETY: `gather` promises that the pieces are readable until their send is complete, which is not before a queued datagram has left, or, for
        // those that pass, until this call of the transport has returned, at whose end all that is not queued has left or been copied.
        let slices = sink.pieces.iter().map(|&(start, bytes)| unsafe { std::slice::from_raw_parts(start, bytes) });
        let direct = header[1] & DIRECT != 0;
        let short = !direct && payload_bytes as usize <= D::COPIED_BYTES_MAX;
        let passing = D::QUEUES && sink.passing;
        let sent = if short || passing || guard.encrypts() || sink.pieces.len() > PIECES_MAX {
            let bytes = header.len() + payload_bytes as usize;
            self.device.post_copied(&path, queue, bytes, |out| {
                let start = out.len();
                out.extend_from_slice(header);
                slices.for_each(|slice| out.extend_from_slice(slice));
                if guard.encrypts() {
                    guard.encrypt(&mut out[start..]);
                } else {
                    let (header, payload) = out[start..].split_at_mut(header.len());
                    guard.seal_datagram(header, &[payload]);
                }
            })
        } else {
            let mut few: [&[u8]; PIECES_MAX] = [&[]; PIECES_MAX];
            few.iter_mut().zip(slices).for_each(|(to, slice)| *to = slice);
            let few = &few[..sink.pieces.len()];
            guard.seal_datagram(header, few);
            edge.posted = true;
            // SAFETY: as above.
            unsafe { self.device.post(&path, queue, header, few.iter().copied()) }
        };
        match sent {
            Sent::Busy => edge.full = true,
            _ if self.at_once => edge.flush(self.device),
            _ => {}
        }
        sent
    }

    fn transmit_run(&mut self, route: SendPath, header: &mut [u8], payload: &Slice, cut: Cut) -> Option<Taken> {
        let Cut { segment_bytes, count, each_bytes: whole_bytes, .. } = cut;
        let edge = &mut *self.edge;
        let encrypts = edge.foreign.address(route.peer, header).unwrap_or(&edge.guard).encrypts();
        let mut head: [u8; RUN_HEAD_BYTES] = (&*header).try_into().ok()?;
        let stamp = stamp(route, header);
        edge.sink.clear();
        self.program.gather(payload, &mut edge.sink);
        let &[(start, bytes)] = &edge.sink.pieces[..] else { return None };
        let cuts_runs = edge.cuts_runs(route);
        if !cuts_runs && (encrypts || edge.sink.passing) {
            return None;
        }
        let Some(path) = edge.path(route, payload.length_bytes) else { return Some(Taken { datagrams: count, queued: false }) };
        let queue = edge.queue(route);
        // SAFETY: as in `transmit`.
        let mut rest = unsafe { std::slice::from_raw_parts(start, bytes) };
        if !cuts_runs {
            return Some(self.transmit_each(route.peer, &path, queue, header, rest, (segment_bytes as usize, count)));
        }
        let (segment_bytes, count) = (segment_bytes as usize, count as usize);
        // What is shorter would end the group that the device cuts, and is made as long: another group costs more than the padding.
        let pads = segment_bytes <= D::COPIED_BYTES_MAX && (count > 1 || self.device.continues(&path, queue, whole_bytes));
        let whole = if pads || bytes == count * segment_bytes { count } else { count - 1 };
        let (guard, device) = (edge.seals(route.peer), &mut self.device);
        let stores = Stores::of(cut.streams);
        let mut send = |count: usize, each_bytes: usize| {
            let write = |out: &mut [MaybeUninit<u8>], stores: Stores| {
                let part;
                (part, rest) = rest.split_at(rest.len().min(out.len() / each_bytes * segment_bytes));
                guard.seal_each(each_bytes, segment_bytes, part, out, stores, |datagram| {
                    fill(&mut datagram[..RUN_HEAD_BYTES], &head);
                    wire::advance(&mut head);
                    RUN_HEAD_BYTES
                });
            };
            // SAFETY: `seal_each` fills what it is given.
            unsafe { device.post_run(&path, queue, Batch { stamp, each_bytes, count, stores }, write) }
        };
        let mut taken = send(whole, whole_bytes);
        if taken.datagrams as usize == whole && whole < count {
            taken.datagrams += send(1, RUN_HEAD_BYTES + bytes - whole * segment_bytes).datagrams;
        }
        edge.full |= (taken.datagrams as usize) < count;
        Some(taken)
    }

    fn transmit_message(&mut self, route: SendPath, (first, next): (&mut [u8], &mut [u8]), payload: &Slice, cut: Cut, lone: bool) -> Option<Taken> {
        let Cut { segment_bytes, count, each_bytes, .. } = cut;
        let edge = &mut *self.edge;
        if !edge.cuts_runs(route) {
            return None;
        }
        edge.sink.clear();
        self.program.gather(payload, &mut edge.sink);
        let &[(start, bytes)] = &edge.sink.pieces[..] else { return None };
        let Some(path) = edge.path(route, payload.length_bytes) else { return Some(Taken { datagrams: count, queued: false }) };
        let queue = edge.queue(route);
        let stamp = stamp(route, first);
        for header in [&mut *first, &mut *next] {
            edge.foreign.address(route.peer, header);
        }
        let (guard, device) = (edge.seals(route.peer), &mut self.device);
        // SAFETY: as in `transmit`.
        let mut rest = unsafe { std::slice::from_raw_parts(start, bytes) };
        let segment_bytes = segment_bytes as usize;
        // What the first has beside its segment, an envelope and what there is to tell, is padding in the others: a
        // shorter datagram would end the group that the device cuts.
        let stores = Stores::of(cut.streams);
        let mut first = Some(&*first);
        let mut write = |out: &mut [MaybeUninit<u8>], stores: Stores| {
            let part;
            (part, rest) = rest.split_at(rest.len().min(out.len() / each_bytes * segment_bytes));
            guard.seal_each(each_bytes, segment_bytes, part, out, stores, |datagram| {
                let Some(first) = first.take() else {
                    fill(&mut datagram[..next.len()], next);
                    wire::advance_message(next);
                    return next.len();
                };
                fill(&mut datagram[..first.len()], first);
                first.len()
            });
        };
        // A receiver that waits for nothing else takes in the first of two pieces of about one length while the second is made.
        let pieces = if lone { D::pieces_of(&path, each_bytes, count as usize) as u32 } else { 1 };
        let share = count.div_ceil(pieces);
        let mut taken = Taken { datagrams: 0, queued: false };
        while taken.datagrams < count {
            let part = share.min(count - taken.datagrams);
            // SAFETY: `seal_each` fills what it is given.
            let posted = unsafe { device.post_run(&path, queue, Batch { stamp, each_bytes, count: part as usize, stores }, &mut write) };
            taken = Taken { datagrams: taken.datagrams + posted.datagrams, queued: posted.queued };
            if posted.datagrams < part || taken.datagrams < count && !device.flush() {
                break;
            }
        }
        edge.full |= taken.datagrams < count;
        Some(taken)
    }

    fn stuck(&mut self, rail: u8) {
        self.edge.stuck.push(rail);
    }

    fn place(&mut self, placement: &Placement, payload: &[u8]) -> bool {
        self.program.place(placement.receive, placement.offset_bytes, payload, &|placed| placed == payload)
    }

    fn place_run(&mut self, placement: &Placement, run: &Run) -> bool {
        self.program.place_run(placement.receive, placement.offset_bytes, run)
    }

    fn begin(&mut self, peer: PeerId, envelope: &[u8], bytes: u64) -> Option<Begun> {
        self.program.begin(peer, envelope, bytes)
    }

    fn deliver(&mut self, peer: PeerId, delivery: Delivery) {
        self.program.deliver(peer, delivery);
    }

    fn complete(&mut self, send: u64, result: Result<(), Failure>) {
        if self.edge.posted {
            // A datagram that waits to leave may be gathered from its payload: one that was sent again, or to a peer that is given up.
            self.edge.flush(self.device);
        }
        self.program.complete(send, result);
    }

    fn received(&mut self, receive: u64, result: Result<(), Failure>) {
        self.program.received(receive, result);
    }

    fn peer_failed(&mut self, peer: PeerId, in_use: &[u64]) {
        self.program.peer_failed(peer, in_use);
    }

    fn silent(&mut self, peer: PeerId) {
        let lone = self.edge.peer_paths.get(peer).is_none_or(|peer_paths| peer_paths.state == State::Lone);
        if !lone && !self.edge.searches.contains_key(&peer) {
            self.edge.want(peer);
        }
    }

    fn rail_changed(&mut self, peer: PeerId, rail: u8, alive: bool) {
        self.program.rail_changed(peer, rail, alive);
    }
}

impl<D: DatagramDevice, P: Program> Around<'_, D, P> {
    /// Posts the `count` datagrams of a run one after the other, gathered from `payload`.
    fn transmit_each(
        &mut self,
        peer: PeerId,
        path: &D::Path,
        queue: SendQueue,
        header: &mut [u8],
        payload: &[u8],
        (segment_bytes, count): (usize, u32),
    ) -> Taken {
        let mut taken = Taken { datagrams: 0, queued: false };
        for segment in payload.chunks(segment_bytes).take(count as usize) {
            self.edge.seals(peer).seal_datagram(header, &[segment]);
            self.edge.posted = true;
            // SAFETY: as in `transmit`.
            match unsafe { self.device.post(path, queue, header, std::iter::once(segment)) } {
                Sent::Busy => {
                    self.edge.full = true;
                    break;
                }
                sent => taken.queued |= sent == Sent::Queued,
            }
            taken.datagrams += 1;
            wire::advance(header);
        }
        taken
    }
}
