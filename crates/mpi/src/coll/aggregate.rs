//! Collective access to a file in two phases (MPI-5.0 §14.4): the file range that all ranks touch is cut into stripes, each
//! stripe belongs to one aggregator, and aggregators read or write long runs where single ranks would touch many short ones.
//!
//! Stripes go round the aggregators, and one round handles one stripe of each. A view is monotonic (MPI-5.0 §14.1.1), so every
//! rank goes through its data once, in order. Temporary memory: at an aggregator one stripe and the messages about it.
//!
//! Ranks of one host do without an aggregator where each of them can use the file's own pages for its part, however short its pieces are.
//!
//! A rank whose storage fails, or that has no memory for its part, goes on with the exchange, so that nobody waits for it. The
//! ranks tell each other of failures where data of a stated length would follow, and in the last step.

use super::{Link, Tuning, allgather, alltoall, alltoallv, no_memory};
use crate::error::{Error, Result};
use engine::MappedFile;
use std::sync::{Arc, Mutex, PoisonError};

/// Stripes begin and end at multiples of this, as pages of the page cache do.
const STRIPE_UNIT_BYTES: u64 = 4096;
/// Data for which pieces are asked from the view at once, bytes; and to see how long they are.
const WALK_BYTES: usize = 1 << 20;
const MEASURED_BYTES: usize = 256 << 10;
/// An aggregator reads a whole stretch where at least this share of it is wanted: one in so many bytes.
const SIEVE_SHARE: u64 = 8;
/// The same of a rank that reads alone, which copies what it wants out of the stretch; for pieces that are shorter than so many bytes, and stretches that
/// stay in a core's cache meanwhile.
const SIEVE_SHARE_ALONE: u64 = 4;
const SIEVED_PIECE_BYTES: u64 = 4 << 10;
const SIEVED_BYTES: u64 = 256 << 10;
/// Ranks of one host touch the file themselves where pieces are at least so long on average, bytes: then a system call for each takes less than to carry the
/// data to an aggregator. Each write goes through locks of the file that each read does not.
const READ_ALONE_BYTES: u64 = SIEVED_PIECE_BYTES;
const WRITTEN_ALONE_BYTES: u64 = 16 << 10;
/// An access of one rank alone that moves less does not ask whether the file's pages are the faster way, bytes.
const PAGES_BYTES_MIN: usize = 64 << 10;
/// Room that is kept from one access for the next, at most, bytes.
const KEPT_BYTES_MAX: usize = 16 << 20;
/// Pieces that follow each other in the file are joined to so many bytes before they are written, which stay in a core's cache meanwhile.
const JOINED_BYTES: usize = 256 << 10;
/// A further aggregator is used for each so many bytes of the range.
const BYTES_PER_AGGREGATOR: u64 = 1 << 20;

/// Bytes of the file that follow each other.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Piece {
    /// Byte of the file.
    pub at: u64,
    pub bytes: u64,
}

/// Where the data of a rank lies in the file.
pub trait Placement {
    /// Appends the pieces under the data bytes `offset..offset + bytes`, in order.
    fn pieces(&self, offset: u64, bytes: usize, out: &mut Vec<Piece>);
}

/// The file.
pub trait Storage {
    /// Writes all of `data` at byte `at`.
    fn write(&self, at: u64, data: &[u8]) -> Result<()>;
    /// Reads as much as there is at byte `at`; gives the bytes read, fewer than asked for only at the end of the file.
    fn read(&self, at: u64, into: &mut [u8]) -> Result<usize>;
    /// Where room is kept from one access for the next.
    fn rooms(&self) -> &Mutex<Rooms>;
    /// The file's own pages, where they can be used for an access that is going to move data in this range, and are likely to be the faster way. The pages may
    /// still turn out not to be there.
    fn pages(&self, _of: &Extent, _write: bool) -> Option<Arc<MappedFile>> {
        None
    }
    /// An access of this process alone, in [long](Extent::is_long) pieces, has taken `ns`.
    fn took(&self, _of: &Extent, _write: bool, _ns: u64) {}
}

/// Memory that has been used and may be used again. What the system gives anew costs a fault for every page, which takes longer than to fill it.
#[derive(Default)]
pub struct Rooms(Vec<Vec<u8>>);

impl Rooms {
    /// What has been kept, unless another access has it.
    fn of(storage: &impl Storage) -> Rooms {
        std::mem::take(&mut *storage.rooms().lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Keeps as much as may be kept.
    fn keep(mut self, storage: &impl Storage) {
        let mut kept_bytes = 0;
        self.0.retain(|room| {
            kept_bytes += room.capacity();
            kept_bytes <= KEPT_BYTES_MAX
        });
        *storage.rooms().lock().unwrap_or_else(PoisonError::into_inner) = self;
    }

    /// Room for `bytes`, with anything in it, or `MPI_ERR_NO_MEM`.
    fn any(&mut self, bytes: usize) -> Result<Vec<u8>> {
        if bytes == 0 {
            return Ok(Vec::new());
        }
        // The shortest that is long enough, else the longest.
        let fit = |room: &Vec<u8>| if room.capacity() >= bytes { (0, room.capacity()) } else { (1, usize::MAX - room.capacity()) };
        let best = (0..self.0.len()).min_by_key(|at| fit(&self.0[*at]));
        let mut room = best.map(|at| self.0.swap_remove(at)).unwrap_or_default();
        room.try_reserve_exact(bytes.saturating_sub(room.len())).map_err(|_| no_memory(bytes))?;
        room.resize(bytes, 0);
        Ok(room)
    }

    /// As [`Rooms::any`], without anything in it.
    fn empty(&mut self, bytes: usize) -> Result<Vec<u8>> {
        self.any(bytes).map(|mut room| {
            room.clear();
            room
        })
    }

    fn give_back(&mut self, rooms: impl IntoIterator<Item = Vec<u8>>) {
        self.0.extend(rooms.into_iter().filter(|room| room.capacity() > 0));
    }
}

/// What the program may say about aggregation (MPI-5.0 §14.2.8), the same on all ranks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Buffering {
    /// `collective_buffering`: without, every rank touches the file itself. `None`: as suits the data.
    pub on: Option<bool>,
    /// `cb_buffer_size`: longest stripe, bytes.
    pub stripe_bytes_max: u64,
    /// `cb_nodes`: aggregators, 0 for as many as suit the data.
    pub aggregators: usize,
}

impl Default for Buffering {
    fn default() -> Self {
        Buffering { on: None, stripe_bytes_max: 4 << 20, aggregators: 0 }
    }
}

/// One rank's part of a collective access.
pub struct Part<'a, S, V> {
    pub storage: &'a S,
    pub view: &'a V,
    /// First data byte of the view.
    pub offset: u64,
    pub buffering: Buffering,
    /// All ranks are on one host, as far as the transport knows. The same on all.
    pub near: bool,
}

/// The range of a file that one rank's access touches: what it tells all others first.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Extent {
    pub low: u64,
    pub high: u64,
    /// Bytes of data, and how long their pieces are on average, as far as the first of them tell.
    pub bytes: u64,
    pub piece_bytes: u64,
    /// The rank uses the file's pages.
    pub by_pages: bool,
}

const EXTENT_BYTES: usize = 40;

impl Extent {
    fn of(view: &impl Placement, offset: u64, bytes: usize) -> Extent {
        if bytes == 0 {
            return Extent { low: 0, high: 0, bytes: 0, piece_bytes: 0, by_pages: false };
        }
        let (mut first, mut last, some) = (Vec::new(), Vec::new(), bytes.min(MEASURED_BYTES));
        view.pieces(offset, some, &mut first);
        view.pieces(offset + bytes as u64 - 1, 1, &mut last);
        // What is cut off where the measuring ends is a part of a longer piece.
        let pieces = first.len() - (first.len() > 1 && some < bytes) as usize;
        let measured: u64 = first[..pieces].iter().map(|piece| piece.bytes).sum();
        let piece_bytes = if first.len() == 1 && some < bytes { bytes as u64 } else { measured / pieces.max(1) as u64 };
        let (low, high) = (first.first().map_or(0, |piece| piece.at), last.last().map_or(0, |piece| piece.at + 1));
        Extent { low, high, bytes: bytes as u64, piece_bytes, by_pages: false }
    }

    /// Whether a system call for each piece takes less than to carry the data to another rank of the host.
    pub fn is_long(&self, write: bool) -> bool {
        self.piece_bytes >= if write { WRITTEN_ALONE_BYTES } else { READ_ALONE_BYTES }
    }

    /// Whether the rank does best without the others, which are on the same host.
    fn suits_alone(&self, write: bool) -> bool {
        self.by_pages || self.is_long(write) || (!write && self.high - self.low <= self.bytes.saturating_mul(SIEVE_SHARE_ALONE))
    }

    fn to_bytes(self) -> [u8; EXTENT_BYTES] {
        let mut bytes = [0; EXTENT_BYTES];
        for (into, word) in bytes.chunks_exact_mut(8).zip([self.low, self.high, self.bytes, self.piece_bytes, self.by_pages as u64]) {
            into.copy_from_slice(&word.to_ne_bytes());
        }
        bytes
    }

    fn from_bytes(bytes: &[u8]) -> Extent {
        Extent { low: word(bytes, 0), high: word(bytes, 1), bytes: word(bytes, 2), piece_bytes: word(bytes, 3), by_pages: word(bytes, 4) != 0 }
    }
}

/// How the range of all ranks is divided among aggregators.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Stripes {
    base: u64,
    high: u64,
    bytes: u64,
    aggregators: usize,
    ranks: usize,
}

impl Stripes {
    /// `None` where ranks touch ranges that do not overlap, or nothing, or are all near and touch long pieces: then each does best alone.
    fn of(extents: &[Extent], buffering: Buffering, write: bool, near: bool) -> Option<Stripes> {
        let mut touched: Vec<Extent> = extents.iter().copied().filter(|extent| extent.high > extent.low).collect();
        touched.sort_by_key(|extent| extent.low);
        let alone = match buffering.on {
            Some(on) => !on,
            None => near && touched.iter().all(|extent| extent.suits_alone(write)),
        };
        if alone || touched.windows(2).all(|pair| pair[0].high <= pair[1].low) {
            return None;
        }
        let base = touched[0].low / STRIPE_UNIT_BYTES * STRIPE_UNIT_BYTES;
        let high = touched.iter().map(|extent| extent.high).max().unwrap_or(base);
        let span = high - base;
        let wanted = if buffering.aggregators == 0 { (span / BYTES_PER_AGGREGATOR) as usize } else { buffering.aggregators };
        let aggregators = wanted.clamp(1, extents.len());
        let stripe = span.div_ceil(aggregators as u64).min(buffering.stripe_bytes_max.max(1)).div_ceil(STRIPE_UNIT_BYTES) * STRIPE_UNIT_BYTES;
        Some(Stripes { base, high, bytes: stripe, aggregators, ranks: extents.len() })
    }

    fn rounds(&self) -> u64 {
        (self.high - self.base).div_ceil(self.bytes * self.aggregators as u64)
    }

    /// First byte after a round.
    fn end_of(&self, round: u64) -> u64 {
        self.base + (round + 1) * self.bytes * self.aggregators as u64
    }

    /// The aggregator of a byte, and the end of its stripe.
    fn aggregator(&self, at: u64) -> (usize, u64) {
        let stripe = (at - self.base) / self.bytes;
        ((stripe % self.aggregators as u64) as usize, self.base + (stripe + 1) * self.bytes)
    }

    /// Aggregators are spread over the ranks, and so over the hosts.
    fn rank(&self, aggregator: usize) -> usize {
        aggregator * self.ranks / self.aggregators
    }

    /// The aggregator that `rank` is.
    fn aggregator_at(&self, rank: usize) -> Option<usize> {
        (0..self.aggregators).find(|aggregator| self.rank(*aggregator) == rank)
    }
}

/// Goes through a rank's data in the order of the file.
struct Walk<'a, V> {
    view: &'a V,
    /// Next data byte of the view to ask for, and where the data ends.
    next: u64,
    end: u64,
    ready: std::collections::VecDeque<Piece>,
    /// Data bytes gone through.
    done: usize,
}

impl<'a, V: Placement> Walk<'a, V> {
    fn new(view: &'a V, offset: u64, bytes: usize) -> Self {
        Walk { view, next: offset, end: offset + bytes as u64, ready: Default::default(), done: 0 }
    }

    /// The next piece that lies before `limit`, and its place in the data.
    fn before(&mut self, limit: u64) -> Option<(Piece, usize)> {
        if self.ready.is_empty() && self.next < self.end {
            let bytes = ((self.end - self.next) as usize).min(WALK_BYTES);
            let mut pieces = Vec::new();
            self.view.pieces(self.next, bytes, &mut pieces);
            self.next += bytes as u64;
            self.ready = pieces.into();
        }
        let piece = self.ready.front_mut().filter(|piece| piece.at < limit)?;
        let bytes = piece.bytes.min(limit - piece.at);
        let taken = Piece { at: piece.at, bytes };
        piece.at += bytes;
        piece.bytes -= bytes;
        if piece.bytes == 0 {
            self.ready.pop_front();
        }
        let at = self.done;
        self.done += bytes as usize;
        Some((taken, at))
    }
}

/// What one rank asks of one aggregator in one round: pieces of the file, and their places in the rank's data.
#[derive(Default)]
struct Wanted {
    pieces: Vec<Piece>,
    places: Vec<usize>,
}

impl Wanted {
    fn bytes(&self) -> usize {
        self.pieces.iter().map(|piece| piece.bytes as usize).sum()
    }

    /// The number of pieces, the pieces, and the data where there is some.
    fn message(&self, data: Option<&[u8]>, rooms: &mut Rooms) -> Result<Vec<u8>> {
        if self.pieces.is_empty() {
            return Ok(Vec::new());
        }
        let length = 8 + 16 * self.pieces.len() + data.map_or(0, |_| self.bytes());
        let mut out = rooms.empty(length)?;
        out.extend_from_slice(&(self.pieces.len() as u64).to_ne_bytes());
        for piece in &self.pieces {
            out.extend_from_slice(&piece.at.to_ne_bytes());
            out.extend_from_slice(&piece.bytes.to_ne_bytes());
        }
        if let Some(data) = data {
            for (piece, place) in self.pieces.iter().zip(&self.places) {
                out.extend_from_slice(&data[*place..*place + piece.bytes as usize]);
            }
        }
        Ok(out)
    }
}

/// The pieces of a message, and what follows them.
fn parse(message: &[u8]) -> (impl Iterator<Item = Piece> + Clone, &[u8]) {
    let count = if message.is_empty() { 0 } else { word(message, 0) as usize };
    let pieces = (0..count).map(|i| Piece { at: word(message, 1 + 2 * i), bytes: word(message, 2 + 2 * i) });
    (pieces, message.get(8 + 16 * count..).unwrap_or(&[]))
}

/// Appends `item`, or `MPI_ERR_NO_MEM`.
fn append<T>(list: &mut Vec<T>, item: T) -> Result<()> {
    list.try_reserve(1).map_err(|_| no_memory(size_of::<T>() * (list.len() + 1)))?;
    list.push(item);
    Ok(())
}

/// Writes `data` of every rank.
///
/// # Errors
/// What the storage says, on every rank; `MPI_ERR_NO_MEM`.
pub async fn write_all<L: Link, S: Storage, V: Placement>(link: &L, tuning: &Tuning, part: Part<'_, S, V>, data: &[u8]) -> Result<()> {
    let stripes = match agree(link, tuning, &part, data.len(), true).await? {
        Agreed::Alone(how) => return write_alone(&part, &how, data),
        Agreed::Together(stripes) => stripes,
    };
    let mut walk = Walk::new(part.view, part.offset, data.len());
    let (mut failed, mut rooms, me) = (None, Rooms::of(part.storage), link.rank());
    let own = stripes.aggregator_at(me);
    for round in 0..stripes.rounds() {
        let mut wanted = collect(&mut walk, &stripes, round);
        // An aggregator has its own part where the program has it.
        let own = own.and_then(|own| Some(std::mem::take(&mut wanted.as_mut().ok()?[own]))).unwrap_or_default();
        let messages = wanted.and_then(|wanted| wanted.iter().map(|wanted| wanted.message(Some(data), &mut rooms)).collect());
        let incoming = match exchange(link, tuning, &stripes, messages, &mut rooms).await {
            Ok(incoming) => incoming,
            Err(error) => return Err(failed.unwrap_or(error)),
        };
        if let Err(error) = write_stripe(part.storage, &incoming, (me, &own, data), &mut rooms) {
            failed.get_or_insert(error);
        }
        rooms.give_back(incoming);
    }
    rooms.keep(part.storage);
    tell(link, tuning, failed).await
}

/// Reads into `into` on every rank; gives the bytes that there were, fewer than asked for only at the end of the file.
///
/// # Errors
/// As [`write_all`].
pub async fn read_all<L: Link, S: Storage, V: Placement>(link: &L, tuning: &Tuning, part: Part<'_, S, V>, into: &mut [u8]) -> Result<usize> {
    let stripes = match agree(link, tuning, &part, into.len(), false).await? {
        Agreed::Alone(how) => return read_alone(&part, &how, into),
        Agreed::Together(stripes) => stripes,
    };
    let mut walk = Walk::new(part.view, part.offset, into.len());
    let (mut read, mut ended, mut rooms) = (0, false, Rooms::of(part.storage));
    for round in 0..stripes.rounds() {
        let (wanted, messages) = match collect(&mut walk, &stripes, round) {
            Ok(wanted) => {
                let messages = wanted.iter().map(|wanted| wanted.message(None, &mut rooms)).collect();
                (wanted, messages)
            }
            Err(error) => (Vec::new(), Err(error)),
        };
        let incoming = exchange(link, tuning, &stripes, messages, &mut rooms).await?;
        let replies = read_stripe(part.storage, &incoming, &mut rooms);
        rooms.give_back(incoming);
        let answers = answer(link, tuning, &stripes, &wanted, replies, &mut rooms).await?;
        for (wanted, answer) in wanted.iter().zip(&answers) {
            if wanted.pieces.is_empty() {
                continue;
            }
            let valid = word(answer, 0) as usize;
            let mut from = 8;
            for (piece, place) in wanted.pieces.iter().zip(&wanted.places) {
                let bytes = piece.bytes as usize;
                let there = bytes.min(valid.saturating_sub(from - 8));
                into[*place..*place + there].copy_from_slice(&answer[from..from + there]);
                from += bytes;
            }
            if !ended {
                read += valid;
                ended = valid < wanted.bytes();
            }
        }
        rooms.give_back(answers);
    }
    rooms.keep(part.storage);
    Ok(read)
}

/// How one rank accesses the file by itself.
struct How {
    extent: Extent,
    pages: Option<Arc<MappedFile>>,
}

impl How {
    /// For an access together with other ranks.
    fn together<S: Storage, V: Placement>(part: &Part<'_, S, V>, bytes: usize, write: bool) -> How {
        let mut extent = Extent::of(part.view, part.offset, bytes);
        let goes_alone = part.buffering.on.map_or(part.near, |on| !on);
        let pages = if goes_alone && extent.bytes > 0 { part.storage.pages(&extent, write) } else { None };
        extent.by_pages = pages.is_some();
        How { extent, pages }
    }

    /// For an access of this rank alone.
    fn alone<S: Storage, V: Placement>(part: &Part<'_, S, V>, bytes: usize, write: bool) -> How {
        let some = if bytes < PAGES_BYTES_MIN { 0 } else { bytes };
        How::together(part, some, write)
    }

    /// When an access begins whose time matters.
    fn begins(&self, write: bool) -> Option<u64> {
        self.extent.is_long(write).then(trace::now_ns)
    }

    fn ends(&self, storage: &impl Storage, write: bool, start_ns: Option<u64>) {
        if let Some(start_ns) = start_ns {
            storage.took(&self.extent, write, trace::now_ns() - start_ns);
        }
    }
}

enum Agreed {
    /// Each goes alone.
    Alone(How),
    Together(Stripes),
}

/// Tells all ranks which range each touches; gives how they divide it.
async fn agree<L: Link, S: Storage, V: Placement>(link: &L, tuning: &Tuning, part: &Part<'_, S, V>, bytes: usize, write: bool) -> Result<Agreed> {
    let how = How::together(part, bytes, write);
    let mut all = vec![0; EXTENT_BYTES * link.size()];
    allgather(link, tuning, Some(&how.extent.to_bytes()), &mut all).await?;
    let extents: Vec<Extent> = all.chunks_exact(EXTENT_BYTES).map(Extent::from_bytes).collect();
    Ok(Stripes::of(&extents, part.buffering, write, part.near).map_or(Agreed::Alone(how), Agreed::Together))
}

/// What this rank asks of each aggregator in a round.
fn collect<V: Placement>(walk: &mut Walk<'_, V>, stripes: &Stripes, round: u64) -> Result<Vec<Wanted>> {
    let mut wanted: Vec<Wanted> = (0..stripes.aggregators).map(|_| Wanted::default()).collect();
    while let Some((mut piece, mut place)) = walk.before(stripes.end_of(round)) {
        while piece.bytes > 0 {
            let (aggregator, end) = stripes.aggregator(piece.at);
            let bytes = piece.bytes.min(end - piece.at);
            append(&mut wanted[aggregator].pieces, Piece { at: piece.at, bytes })?;
            append(&mut wanted[aggregator].places, place)?;
            piece = Piece { at: piece.at + bytes, bytes: piece.bytes - bytes };
            place += bytes as usize;
        }
    }
    Ok(wanted)
}

/// Sends `messages[a]` to aggregator `a`; gives what each rank sent here, nothing where this rank is no aggregator. An error on
/// every rank where one has no messages, or no memory for what comes: nothing is sent then. What a rank has for itself is not copied.
async fn exchange<L: Link>(link: &L, tuning: &Tuning, stripes: &Stripes, mut messages: Result<Vec<Vec<u8>>>, rooms: &mut Rooms) -> Result<Vec<Vec<u8>>> {
    let me = link.rank();
    let own = stripes.aggregator_at(me).and_then(|own| Some(std::mem::take(&mut messages.as_mut().ok()?[own])));
    let mut lengths = vec![0u8; 8 * link.size()];
    let mut send: Vec<&[u8]> = vec![&[]; link.size()];
    for (aggregator, message) in messages.iter().flatten().enumerate() {
        send[stripes.rank(aggregator)] = message;
        lengths[8 * stripes.rank(aggregator)..][..8].copy_from_slice(&(message.len() as u64).to_ne_bytes());
    }
    let mut incoming_lengths = vec![0; lengths.len()];
    alltoall(link, tuning, Some(&lengths), &mut incoming_lengths).await?;
    let room = (0..link.size()).map(|rank| rooms.any(word(&incoming_lengths, rank) as usize)).collect::<Result<Vec<_>>>();
    let (room, failed) = match (room, &messages) {
        (Ok(room), Ok(_)) => (room, None),
        (Err(error), Ok(_)) => (Vec::new(), Some(error)),
        (_, Err(_)) => (Vec::new(), messages.as_ref().err().cloned()),
    };
    tell(link, tuning, failed).await?;
    let mut incoming = room;
    let mut recv: Vec<&mut [u8]> = incoming.iter_mut().map(Vec::as_mut_slice).collect();
    alltoallv(link, tuning, Some(&send), &mut recv).await?;
    if let Some(own) = own {
        incoming[me] = own;
    }
    rooms.give_back(messages.into_iter().flatten());
    Ok(incoming)
}

/// Sends `replies[rank]` to each rank; gives the answer of each aggregator to what was wanted of it. An error on every rank where
/// one has no replies, or no memory for the answers: nothing is sent then. What a rank has for itself is not copied.
async fn answer<L: Link>(
    link: &L,
    tuning: &Tuning,
    stripes: &Stripes,
    wanted: &[Wanted],
    replies: Result<Vec<Vec<u8>>>,
    rooms: &mut Rooms,
) -> Result<Vec<Vec<u8>>> {
    let (me, own) = (link.rank(), stripes.aggregator_at(link.rank()));
    let mut room = || {
        let bytes = wanted.iter().enumerate().map(|(at, wanted)| if own == Some(at) { 0 } else { reply_bytes(wanted.pieces.iter().copied()) });
        bytes.map(|bytes| rooms.any(bytes)).collect::<Result<Vec<_>>>()
    };
    let (mut replies, mut answers, failed) = match replies.and_then(|replies| Ok((replies, room()?))) {
        Ok((replies, answers)) => (replies, answers, None),
        Err(error) => (Vec::new(), Vec::new(), Some(error)),
    };
    tell(link, tuning, failed).await?;
    let mine = std::mem::take(&mut replies[me]);
    let send: Vec<&[u8]> = replies.iter().map(Vec::as_slice).collect();
    let mut recv: Vec<&mut [u8]> = (0..link.size()).map(|_| -> &mut [u8] { &mut [] }).collect();
    for (aggregator, into) in answers.iter_mut().enumerate() {
        recv[stripes.rank(aggregator)] = into;
    }
    alltoallv(link, tuning, Some(&send), &mut recv).await?;
    if let Some(own) = own {
        answers[own] = mine;
    }
    rooms.give_back(replies);
    Ok(answers)
}

/// Bytes of the reply about `pieces`: how many bytes there were, and the bytes. None where nothing was asked.
fn reply_bytes(pieces: impl Iterator<Item = Piece>) -> usize {
    // A piece has one byte at least.
    match pieces.map(|piece| piece.bytes as usize).sum::<usize>() {
        0 => 0,
        bytes => 8 + bytes,
    }
}

/// Writes what has come and what this rank has itself, in the order of the file. `own`: this rank, what it wants of itself, and its data.
fn write_stripe(storage: &impl Storage, incoming: &[Vec<u8>], own: (usize, &Wanted, &[u8]), rooms: &mut Rooms) -> Result<()> {
    let (me, wanted, mine) = own;
    let mut all: Vec<(u64, &[u8])> = Vec::new();
    for (rank, message) in incoming.iter().enumerate() {
        let (pieces, mut data) = parse(message);
        for piece in pieces {
            let (this, rest) = data.split_at(piece.bytes as usize);
            append(&mut all, (piece.at, this))?;
            data = rest;
        }
        for (piece, place) in wanted.pieces.iter().zip(&wanted.places).filter(|_| rank == me) {
            append(&mut all, (piece.at, &mine[*place..*place + piece.bytes as usize]))?;
        }
    }
    if all.is_empty() {
        return Ok(());
    }
    all.sort_by_key(|(at, _)| *at);
    let mut joined = rooms.empty(JOINED_BYTES)?;
    let mut rest = &all[..];
    let mut written = Ok(());
    while let ([(first, _), ..], Ok(())) = (rest, &written) {
        let (mut end, mut count) = (*first, 0);
        while let Some((_, data)) = rest.get(count).filter(|(at, data)| *at == end && (count == 0 || (end - first) as usize + data.len() <= JOINED_BYTES)) {
            end += data.len() as u64;
            count += 1;
        }
        written = match &rest[..count] {
            [(at, data)] => storage.write(*at, data),
            several => {
                joined.clear();
                several.iter().for_each(|(_, data)| joined.extend_from_slice(data));
                storage.write(*first, &joined)
            }
        };
        rest = &rest[count..];
    }
    rooms.give_back([joined]);
    written
}

/// Bytes of the file that were read in one go, from `low` on, as far as the file has them; `None` where pieces are read one by one.
struct Stretch {
    low: u64,
    data: Option<Vec<u8>>,
}

impl Stretch {
    /// Fills `room`, if there is one.
    fn read(storage: &impl Storage, low: u64, mut room: Option<Vec<u8>>) -> Result<Stretch> {
        if let Some(room) = &mut room {
            let there = storage.read(low, room)?;
            room.truncate(there);
        }
        Ok(Stretch { low, data: room })
    }

    /// The bytes from byte `at` of the file on; gives how many there were.
    fn piece(&self, storage: &impl Storage, at: u64, into: &mut [u8]) -> Result<usize> {
        let Some(data) = &self.data else { return storage.read(at, into) };
        let from = ((at - self.low) as usize).min(data.len());
        let there = into.len().min(data.len() - from);
        into[..there].copy_from_slice(&data[from..from + there]);
        Ok(there)
    }
}

/// Reads what the ranks want; each reply begins with the number of bytes that there were.
fn read_stripe(storage: &impl Storage, incoming: &[Vec<u8>], rooms: &mut Rooms) -> Result<Vec<Vec<u8>>> {
    let all = || incoming.iter().flat_map(|message| parse(message).0);
    let low = all().map(|piece| piece.at).min().unwrap_or(0);
    let high = all().map(|piece| piece.at + piece.bytes).max().unwrap_or(0);
    let sum: u64 = all().map(|piece| piece.bytes).sum();
    let room = if high - low <= sum.saturating_mul(SIEVE_SHARE) { Some(rooms.any((high - low) as usize)?) } else { None };
    let stretch = Stretch::read(storage, low, room)?;
    let mut replies = Vec::with_capacity(incoming.len());
    for message in incoming {
        let (pieces, _) = parse(message);
        let mut reply = rooms.any(reply_bytes(pieces.clone()))?;
        if reply.is_empty() {
            replies.push(reply);
            continue;
        }
        let (mut valid, mut at, mut ended) = (0u64, 8, false);
        for piece in pieces {
            let into = &mut reply[at..at + piece.bytes as usize];
            let there = stretch.piece(storage, piece.at, into)?;
            if !ended {
                valid += there as u64;
                ended = there < into.len();
            }
            at += piece.bytes as usize;
        }
        reply[..8].copy_from_slice(&valid.to_ne_bytes());
        replies.push(reply);
    }
    rooms.give_back(stretch.data);
    Ok(replies)
}

/// Tells all ranks who has failed; an error on every rank where one has.
async fn tell<L: Link>(link: &L, tuning: &Tuning, failed: Option<Box<Error>>) -> Result<()> {
    let mine = failed.as_ref().map_or(0, |error| error.class).to_ne_bytes();
    let mut all = vec![0; 4 * link.size()];
    allgather(link, tuning, Some(&mine), &mut all).await?;
    if let Some(error) = failed {
        return Err(error);
    }
    let classes = all.chunks_exact(4).map(|bytes| i32::from_ne_bytes(bytes.try_into().expect("four bytes")));
    match classes.enumerate().find(|(_, class)| *class != 0) {
        Some((rank, class)) => Err(Error::new(class, format!("rank {rank} has failed in its part of the access"))),
        None => Ok(()),
    }
}

fn write_alone<S: Storage, V: Placement>(part: &Part<'_, S, V>, how: &How, data: &[u8]) -> Result<()> {
    let (mut walk, start_ns) = (Walk::new(part.view, part.offset, data.len()), how.begins(true));
    while let Some((piece, place)) = walk.before(u64::MAX) {
        let data = &data[place..place + piece.bytes as usize];
        // Where a page is gone the system finds out what is wrong.
        if !how.pages.as_ref().is_some_and(|pages| pages.write(piece.at, data)) {
            part.storage.write(piece.at, data)?;
        }
    }
    how.ends(part.storage, true, start_ns);
    Ok(())
}

fn read_alone<S: Storage, V: Placement>(part: &Part<'_, S, V>, how: &How, into: &mut [u8]) -> Result<usize> {
    let (mut walk, start_ns) = (Walk::new(part.view, part.offset, into.len()), how.begins(false));
    let (mut read, mut near, mut rooms) = (0, Vec::new(), Rooms::of(part.storage));
    while let Some(first) = walk.before(u64::MAX) {
        let (piece, place) = first;
        if let Some(pages) = &how.pages
            && pages.read(piece.at, &mut into[place..place + piece.bytes as usize])
        {
            read += piece.bytes as usize;
            continue;
        }
        near.clear();
        near.push(first);
        if piece.bytes < SIEVED_PIECE_BYTES && how.pages.is_none() {
            let limit = piece.at.saturating_add(SIEVED_BYTES);
            near.extend(std::iter::from_fn(|| walk.before(limit)));
        }
        let there = read_near(part.storage, &near, into, &mut rooms)?;
        read += there;
        if there < near.iter().map(|(piece, _)| piece.bytes as usize).sum() {
            break;
        }
    }
    rooms.keep(part.storage);
    how.ends(part.storage, false, start_ns);
    Ok(read)
}

/// Reads pieces that lie near each other in the file to their places in `into`: in one go where enough of that is wanted. Gives the bytes before the end of the
/// file.
fn read_near(storage: &impl Storage, pieces: &[(Piece, usize)], into: &mut [u8], rooms: &mut Rooms) -> Result<usize> {
    let [(first, _), .., (last, _)] = pieces else {
        return pieces.iter().map(|(piece, place)| storage.read(piece.at, &mut into[*place..*place + piece.bytes as usize])).sum();
    };
    let (low, bytes) = (first.at, last.at + last.bytes - first.at);
    let wanted: u64 = pieces.iter().map(|(piece, _)| piece.bytes).sum();
    let room = if bytes <= wanted.saturating_mul(SIEVE_SHARE_ALONE) { rooms.any(bytes as usize).ok() } else { None };
    // Without memory for a stretch pieces are read one by one.
    let stretch = Stretch::read(storage, low, room)?;
    let mut read = 0;
    for (piece, place) in pieces {
        let into = &mut into[*place..*place + piece.bytes as usize];
        let there = stretch.piece(storage, piece.at, into)?;
        read += there;
        if there < piece.bytes as usize {
            break;
        }
    }
    rooms.give_back(stretch.data);
    Ok(read)
}

/// Writes one rank's data, with no other rank.
///
/// # Errors
/// What the storage says.
pub fn write_one<S: Storage, V: Placement>(storage: &S, view: &V, offset: u64, data: &[u8]) -> Result<()> {
    let part = Part { storage, view, offset, buffering: Buffering::default(), near: true };
    write_alone(&part, &How::alone(&part, data.len(), true), data)
}

/// Reads one rank's data, with no other rank; gives the bytes that there were.
///
/// # Errors
/// What the storage says.
pub fn read_one<S: Storage, V: Placement>(storage: &S, view: &V, offset: u64, into: &mut [u8]) -> Result<usize> {
    let part = Part { storage, view, offset, buffering: Buffering::default(), near: true };
    read_alone(&part, &How::alone(&part, into.len(), false), into)
}

/// The `index`th word of `bytes`.
fn word(bytes: &[u8], index: usize) -> u64 {
    u64::from_ne_bytes(bytes[8 * index..8 * index + 8].try_into().expect("eight bytes"))
}

#[cfg(test)]
mod tests {
    use super::super::sim::{Conditions, Layout, run};
    use super::*;
    use proptest::prelude::*;
    use std::cell::RefCell;

    /// A file in memory.
    struct Memory(RefCell<Vec<u8>>, Mutex<Rooms>);

    impl Storage for Memory {
        fn write(&self, at: u64, data: &[u8]) -> Result<()> {
            let mut bytes = self.0.borrow_mut();
            let end = at as usize + data.len();
            if bytes.len() < end {
                bytes.resize(end, 0);
            }
            bytes[at as usize..end].copy_from_slice(data);
            Ok(())
        }

        fn read(&self, at: u64, into: &mut [u8]) -> Result<usize> {
            let bytes = self.0.borrow();
            let from = (at as usize).min(bytes.len());
            let there = into.len().min(bytes.len() - from);
            into[..there].copy_from_slice(&bytes[from..from + there]);
            Ok(there)
        }

        fn rooms(&self) -> &Mutex<Rooms> {
            &self.1
        }
    }

    /// A storage that refuses everything.
    #[derive(Default)]
    struct Broken(Mutex<Rooms>);

    impl Storage for Broken {
        fn write(&self, _: u64, _: &[u8]) -> Result<()> {
            Err(Error::new(39, "broken"))
        }

        fn read(&self, _: u64, _: &mut [u8]) -> Result<usize> {
            Err(Error::new(39, "broken"))
        }

        fn rooms(&self) -> &Mutex<Rooms> {
            &self.0
        }
    }

    /// Blocks of `block` bytes, one in every `every`, the first at `start`.
    #[derive(Clone, Copy, Debug)]
    struct Blocks {
        start: u64,
        block: u64,
        every: u64,
    }

    impl Placement for Blocks {
        fn pieces(&self, offset: u64, bytes: usize, out: &mut Vec<Piece>) {
            let (mut at, end) = (offset, offset + bytes as u64);
            while at < end {
                let inside = at % self.block;
                let bytes = (self.block - inside).min(end - at);
                out.push(Piece { at: self.start + at / self.block * self.every + inside, bytes });
                at += bytes;
            }
        }
    }

    fn content(rank: usize, bytes: usize) -> Vec<u8> {
        (0..bytes).map(|i| ((rank * 131 + i * 29 + i / 7) % 251) as u8 | 1).collect()
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(60))]
        #[test]
        fn interleaved_blocks_are_written_and_read_back(
            seed in any::<u64>(), ranks in 1usize..7, block in 1u64..700, blocks in 0usize..60, gap in 0u64..300,
            aggregators in 0usize..8, stripe in 1u64..20_000, on in any::<Option<bool>>(), near in any::<bool>(), cut in 0usize..3000,
        ) {
            let every = (block + gap) * ranks as u64;
            let file = Memory(RefCell::new(Vec::new()), Mutex::default());
            let view = |rank: usize| Blocks { start: 5 + (block + gap) * rank as u64, block, every };
            let bytes = block as usize * blocks;
            let buffering = Buffering { on, stripe_bytes_max: stripe, aggregators };
            let conditions = Conditions { seed, eager_bytes: 1000, crowded: false, layout: Layout::Together, failing: None };
            let tuning = Tuning::default();
            let (file_ref, tuning_ref) = (&file, &tuning);
            run(conditions, ranks, |link| async move {
                let rank = link.rank();
                let view = view(rank);
                let part = Part { storage: file_ref, view: &view, offset: 0, buffering, near };
                write_all(&link, tuning_ref, part, &content(rank, bytes)).await
            });
            // Every block where its view puts it, and nothing elsewhere.
            let mut expected = Memory(RefCell::new(Vec::new()), Mutex::default());
            for rank in 0..ranks {
                write_one(&expected, &view(rank), 0, &content(rank, bytes)).unwrap();
            }
            prop_assert_eq!(&*file.0.borrow(), expected.0.get_mut());
            // A file that ends early: what there is, and not more.
            let length = expected.0.get_mut().len();
            file.0.borrow_mut().truncate(length.saturating_sub(cut));
            let read = run(conditions, ranks, |link| async move {
                let rank = link.rank();
                let view = view(rank);
                let part = Part { storage: file_ref, view: &view, offset: 0, buffering, near };
                let mut into = vec![0xff; bytes];
                let read = read_all(&link, tuning_ref, part, &mut into).await?;
                into.truncate(read);
                Ok(into)
            });
            for (rank, read) in read.into_iter().enumerate() {
                let mut into = vec![0; bytes];
                let there = read_one(&file, &view(rank), 0, &mut into).unwrap();
                into.truncate(there);
                prop_assert_eq!(read, into);
            }
        }
    }

    #[test]
    fn room_is_used_again_and_little_of_it_kept() {
        let storage = Broken::default();
        let mut rooms = Rooms::of(&storage);
        let (long, short) = (rooms.any(5000).unwrap(), rooms.any(100).unwrap());
        let places = [long.as_ptr(), short.as_ptr()];
        rooms.give_back([long, short, Vec::new()]);
        rooms.keep(&storage);
        let mut rooms = Rooms::of(&storage);
        assert!(Rooms::of(&storage).0.is_empty());
        let (short, long) = (rooms.any(90).unwrap(), rooms.empty(4000).unwrap());
        assert_eq!([long.as_ptr(), short.as_ptr()], places);
        assert_eq!((short.len(), long.len(), rooms.any(0).unwrap().capacity(), rooms.0.len()), (90, 0, 0, 0));
        rooms.give_back([short, Vec::with_capacity(KEPT_BYTES_MAX), long]);
        rooms.keep(&storage);
        assert_eq!(Rooms::of(&storage).0.iter().map(Vec::capacity).collect::<Vec<_>>(), [100]);
    }

    #[test]
    fn ranks_of_one_host_go_alone_with_long_pieces_and_read_short_ones_in_stretches() {
        let extents = |block: u64, ranks: u64| -> Vec<Extent> {
            let view = |rank| Blocks { start: rank * block, block, every: ranks * block };
            (0..ranks).map(|rank| Extent::of(&view(rank), 0, 1 << 20)).collect()
        };
        let alone = |block, ranks, write, near| Stripes::of(&extents(block, ranks), Buffering::default(), write, near).is_none();
        assert_eq!(extents(1000, 2)[1].piece_bytes, 1000);
        assert!(alone(16 << 10, 2, true, true) && !alone(8 << 10, 2, true, true) && !alone(16 << 10, 2, true, false));
        assert!(alone(4 << 10, 16, false, true) && alone(8, 4, false, true) && !alone(8, 5, false, true) && !alone(4 << 10, 2, false, false));
        let on = |on| Buffering { on: Some(on), ..Buffering::default() };
        assert!(Stripes::of(&extents(64 << 10, 2), on(true), true, true).is_some() && Stripes::of(&extents(8, 9), on(false), true, false).is_none());
    }

    #[test]
    fn what_fails_at_an_aggregator_fails_everywhere() {
        let conditions = Conditions { seed: 7, eager_bytes: 100, crowded: false, layout: Layout::Together, failing: None };
        let tuning = &Tuning::default();
        let buffering = Buffering { on: None, stripe_bytes_max: 4096, aggregators: 1 };
        let results = run(conditions, 3, |link| async move {
            let (rank, broken) = (link.rank(), Broken::default());
            let view = Blocks { start: 4 * rank as u64, block: 4, every: 12 };
            // Several rounds.
            let bytes = 3 << 12;
            let part = || Part { storage: &broken, view: &view, offset: 0, buffering, near: false };
            let written = write_all(&link, tuning, part(), &content(rank, bytes)).await;
            let read = read_all(&link, tuning, part(), &mut vec![0; bytes]).await;
            Ok((written.map_err(|error| error.class), read.map_err(|error| error.class)))
        });
        assert_eq!(results, [(Err(39), Err(39)); 3]);
    }
}
