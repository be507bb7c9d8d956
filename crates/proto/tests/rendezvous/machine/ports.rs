//! What the machines of a world stand on: rings, descriptors and memory, of which a state is a value that can be copied.
//!
//! A machine calls its transports without a name for the world that it is in: [`enter`] says which.

use proto::costs::pieces::Done;
use proto::p2p::{self, Count, DataPath, Descriptor, Machine, Memory, Network, Refused, Side, Target, Way, Window, Worker};
use proto::protocols::{Abilities, Protocol, Transfer};
use proto::reliability;
use proto::rendezvous::Rtr;
use proto::wire::Envelope;
use std::cell::RefCell;
use std::collections::{BTreeMap, VecDeque};
use std::mem::swap;

pub type Rank = Machine<One>;

/// Memory is told apart by pieces of this length, bytes: of each only whose message it holds.
pub const BLOCK_BYTES: usize = 32 << 10;
/// Longest message that goes with its header, and the lengths of those that are fetched in one way each.
pub const EAGER_BYTES: usize = 64;
pub const READ_BYTES: usize = 1000;
pub const STREAMED_BYTES: usize = 2 * BLOCK_BYTES - 16;
/// Copied by both sides, in one piece and in two.
pub const COPIED_BYTES: usize = 2000;
pub const COPIED_TWICE_BYTES: usize = 2 * BLOCK_BYTES;
/// The same in two pieces, those of the sender through the ring.
pub const RINGED_BYTES: usize = COPIED_TWICE_BYTES - 8;

thread_local! {
    static FIELD: RefCell<Field> = RefCell::default();
    static SEEN: RefCell<Vec<&'static str>> = const { RefCell::new(Vec::new()) };
}

/// What lies between the ranks.
#[derive(Clone, Hash, Default)]
pub struct Field {
    /// By sender and receiver.
    pub rings: BTreeMap<(u32, u32), VecDeque<Packet>>,
    pub packets_max: usize,
    /// The senders' pieces of announced messages come through the rings.
    pub ringed: bool,
    descriptors: BTreeMap<(u32, u64), Copying>,
    /// Memory that others may reach: whose message each block holds.
    regions: BTreeMap<u64, Vec<u16>>,
    /// Ranks that the system lets reach no other's memory any more.
    pub barred: Vec<u32>,
    /// What happened that must not.
    pub wrong: Option<String>,
}

/// Does something with a world's field in reach of its machines. What happened is told to `note`.
pub fn enter<T>(field: &mut Field, act: impl FnOnce() -> T, mut note: impl FnMut(&'static str)) -> T {
    FIELD.with_borrow_mut(|there| swap(there, field));
    let done = act();
    FIELD.with_borrow_mut(|there| swap(there, field));
    SEEN.with_borrow_mut(|seen| seen.drain(..).for_each(&mut note));
    done
}

fn with<T>(act: impl FnOnce(&mut Field) -> T) -> T {
    FIELD.with_borrow_mut(act)
}

fn saw(what: &'static str) {
    SEEN.with_borrow_mut(|seen| seen.push(what));
}

#[derive(Clone, Hash, Debug)]
pub struct Packet {
    pub head: [u64; 2],
    pub words: Vec<u64>,
    pub body: Body,
}

/// Bytes of a message: whose, by block.
#[derive(Clone, Hash, Default, Debug)]
pub struct Body {
    pub bytes: usize,
    pub blocks: Vec<u16>,
}

fn blocks(bytes: usize) -> usize {
    bytes.div_ceil(BLOCK_BYTES)
}

/// Memory of a rank's program.
#[derive(Clone, Hash)]
pub struct Buffer {
    pub region: u64,
    pub bytes: usize,
    pub contiguous: bool,
}

impl Buffer {
    /// With message `name` in all of it.
    pub fn new(region: u64, bytes: usize, contiguous: bool, name: u16) -> Buffer {
        with(|field| field.regions.insert(region, vec![name; blocks(bytes)]));
        Buffer { region, bytes, contiguous }
    }

    /// It is the program's again: nobody may read or write it from here on. Returns what it holds.
    pub fn end(&self) -> Vec<u16> {
        with(|field| field.regions.remove(&self.region)).expect("memory is given back once")
    }

    fn get(&self, from: usize, bytes: usize) -> Body {
        Body { bytes, blocks: copy_out(self.region, from, bytes) }
    }

    fn put(&self, offset: usize, body: &[u16]) {
        copy_in(self.region, offset, body);
    }
}

fn copy_out(region: u64, from: usize, bytes: usize) -> Vec<u16> {
    with(|field| match field.regions.get(&region) {
        Some(all) => all[from / BLOCK_BYTES..blocks(from + bytes).min(all.len())].to_vec(),
        None => {
            field.wrong.get_or_insert_with(|| format!("region {region:x} is read, which is the program's again"));
            vec![0; blocks(bytes)]
        }
    })
}

fn copy_in(region: u64, offset: usize, from: &[u16]) {
    with(|field| match field.regions.get_mut(&region) {
        Some(all) => all[offset / BLOCK_BYTES..].iter_mut().zip(from).for_each(|(to, from)| *to = *from),
        None => {
            field.wrong.get_or_insert_with(|| format!("region {region:x} is written, which is the program's again"));
        }
    })
}

impl p2p::Buffer for Buffer {
    type Body = Body;
    type List = ();
    const EMPTY: Buffer = Buffer { region: 0, bytes: 0, contiguous: true };

    fn len(&self) -> usize {
        self.bytes
    }
    fn is_contiguous(&self) -> bool {
        self.contiguous
    }
    fn straight(&self) -> bool {
        self.contiguous
    }
    fn tellable(&self) -> bool {
        self.contiguous
    }
    fn list(&self) -> Option<()> {
        None
    }
    fn told(&self, _: Option<&()>) -> Option<(u64, u64)> {
        self.contiguous.then_some((self.region, 0))
    }
    fn body_bytes(body: &Body) -> usize {
        body.bytes
    }
    fn keep(body: &Body) -> Box<[u8]> {
        let mut bytes = vec![0; body.bytes];
        bytes[..2].copy_from_slice(&body.blocks[0].to_le_bytes());
        bytes.into()
    }
    fn place(&self, offset: usize, body: &Body) {
        self.put(offset, &body.blocks);
    }
    fn place_unexpected(&self, data: &[u8]) {
        self.put(0, &[u16::from_le_bytes([data[0], data[1]])]);
    }
    fn place_words(&self, words: &[u64], _: usize) {
        self.put(0, &[words[0] as u16]);
    }
    fn copy_from(&self, from: &Buffer) {
        self.put(0, &from.get(0, from.bytes).blocks);
    }
    fn to_vec(&self) -> Vec<u8> {
        <Buffer as p2p::Buffer>::keep(&self.get(0, self.bytes)).into()
    }
    fn append_to(&self, out: &mut Vec<u8>) {
        out.extend(self.to_vec());
    }
    fn forget_layout(&mut self) {}
}

/// A descriptor of a cooperative copy, as it lies in shared memory.
#[derive(Clone, Hash, Default)]
struct Copying {
    generation: u32,
    phase: Phase,
    front: u32,
    back: u32,
    done: u32,
    failed: bool,
    through_ring: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Default)]
enum Phase {
    #[default]
    Void,
    Open,
    Begun,
}

/// Number of a descriptor, and whose it is.
#[derive(Clone, Copy)]
pub struct Place(u32, u64);

impl Place {
    fn with<T>(self, act: impl FnOnce(&mut Copying) -> T) -> T {
        with(|field| act(field.descriptors.entry((self.0, self.1)).or_default()))
    }

    fn set(self, generation: u32, phase: Phase) {
        self.with(|copying| *copying = Copying { generation, phase, through_ring: copying.through_ring, ..Copying::default() });
    }

    fn turn(self, generation: u32, from: Phase, to: Phase) -> bool {
        self.with(|copying| {
            let is = copying.generation == generation && copying.phase == from;
            if is {
                copying.phase = to;
            }
            is
        })
    }
}

impl Descriptor for Place {
    fn say_through_ring(self, through_ring: bool) {
        self.with(|copying| copying.through_ring = through_ring);
    }
    fn goes_through_ring(self) -> bool {
        self.with(|copying| copying.through_ring)
    }
    fn open(self, generation: u32) {
        self.set(generation, Phase::Open);
    }
    fn begin(self, generation: u32) {
        self.set(generation, Phase::Begun);
    }
    fn begin_open(self, generation: u32) -> bool {
        self.turn(generation, Phase::Open, Phase::Begun)
    }
    fn begun(self, generation: u32) -> bool {
        self.with(|copying| copying.generation == generation && copying.phase == Phase::Begun)
    }
    fn reopen(self, generation: u32) {
        saw("opened again");
        self.turn(generation, Phase::Begun, Phase::Open);
    }
    fn withdraw(self, generation: u32) -> bool {
        self.turn(generation, Phase::Open, Phase::Void)
    }
    fn claim(self, generation: u32, pieces: u32, side: Side) -> Option<u32> {
        self.with(|copying| {
            let is = copying.generation == generation && copying.phase == Phase::Begun;
            if !is || copying.front + copying.back >= pieces {
                return None;
            }
            let count = if side == Side::Receiver { &mut copying.front } else { &mut copying.back };
            *count += 1;
            Some(if side == Side::Receiver { *count - 1 } else { pieces - *count })
        })
    }
    fn finish(self) -> u32 {
        self.with(|copying| {
            copying.done += 1;
            copying.done
        })
    }
    fn fail(self) {
        saw("a copy failed");
        self.with(|copying| copying.failed = true);
    }
    fn failed(self) -> bool {
        self.with(|copying| copying.failed)
    }
    fn finished(self) -> u32 {
        self.with(|copying| copying.done)
    }
    fn finished_under(self, generation: u32) -> Option<u32> {
        self.with(|copying| (copying.generation == generation).then_some(copying.done))
    }
}

/// Why a transport cannot go on.
#[derive(Clone, Debug)]
pub struct Error(pub String);

impl p2p::Error for Error {
    fn corrupt(peer: u32, what: &'static str, value: u64) -> Error {
        Error(format!("{peer} sent what cannot be: {what}, {value}"))
    }
    fn peer(peer: u32, why: String) -> Error {
        Error(format!("{peer}: {why}"))
    }
    fn is_corrupt(&self) -> bool {
        false
    }
    fn of_peer(self, _: u32) -> Error {
        self
    }
}

/// The rings and the memory of one rank.
#[derive(Clone)]
pub struct Rings {
    pub me: u32,
    /// Whose memory it knows that it cannot reach.
    pub out_of_reach: Vec<u32>,
}

impl Rings {
    fn push(&self, peer: u32, packet: Packet) -> Result<(), Refused<Error>> {
        with(|field| {
            let ring = field.rings.entry((self.me, peer)).or_default();
            if ring.len() >= field.packets_max {
                return Err(Refused::Full);
            }
            ring.push_back(packet);
            Ok(())
        })
        .inspect_err(|_| saw("no room"))
    }
}

impl Memory for Rings {
    type Error = Error;
    type Descriptor = Place;

    fn send(&mut self, peer: u32, head: [u64; 2], words: &[u64]) -> Result<(), Refused<Error>> {
        self.push(peer, Packet { head, words: words.to_vec(), body: Body::default() })
    }
    fn body_bytes_max(&self) -> usize {
        2 * BLOCK_BYTES
    }
    fn remote_read(&self) -> bool {
        true
    }
    fn reachable(&mut self, peer: u32) -> bool {
        !self.out_of_reach.contains(&peer)
    }
    fn maps(&mut self, _: u32, _: u64, _: usize) -> bool {
        false
    }
    fn unreachable(&mut self, peer: u32) {
        if self.reachable(peer) {
            self.out_of_reach.push(peer);
        }
    }
    fn body_bytes_max_to(&self, _: u32) -> usize {
        self.body_bytes_max()
    }
    fn waits(&self, _: u32) -> bool {
        true
    }
    fn has_room(&mut self, peer: u32, _: usize) -> bool {
        with(|field| field.rings.entry((self.me, peer)).or_default().len() < field.packets_max)
    }
    fn comes(&self, _: u32) -> Option<([u64; 2], usize)> {
        None
    }
    fn refuse(&mut self, _: u32) {}
    /// Messages are few: nobody waits for credit.
    fn credit(&self, _: u32) -> u64 {
        0
    }
    fn give_credit(&mut self, _: u32, _: u64, _: u64) {}
    fn cooperative(&mut self, owner: u32, slot: u64) -> Result<Place, Error> {
        Ok(Place(owner, slot))
    }
}

/// One rank's worker: there is nothing that it does by itself.
#[derive(Clone)]
pub struct One;

impl Worker for One {
    type Error = Error;
    type Fault = Error;
    type Buffer = Buffer;
    type Memory = Rings;
    type Network = Nothing;
    type Remote = u64;
    type Share = ();

    fn program_fault(why: String) -> Error {
        Error(why)
    }
    fn transport_error(fault: Error) -> Result<Error, Error> {
        Ok(fault)
    }
    fn count(&mut self, what: Count, _: u64) {
        saw(match what {
            Count::RtrSent => "RTR",
            Count::RtrUsed => "used",
            Count::RtrCrossed => "crossed",
            Count::RtrMispredicted => "mispredicted",
            Count::RtrAnswered => "answered",
            Count::RtrVoided => "void",
            Count::Unexpected => "unexpected",
            Count::Refused => "refused",
            _ => "counted",
        });
    }
    fn received(&mut self, path: DataPath, _: u64) {
        saw(match path {
            DataPath::Inline => "inline",
            DataPath::Eager => "eager",
            DataPath::Read => "read",
            DataPath::Cooperative => "copied by both",
            DataPath::Pipelined => "through the ring",
            _ => "another way",
        });
    }
    fn note(&self, _: p2p::Event, _: impl FnOnce() -> [i64; 3]) {}

    fn send_body(rings: &mut Rings, peer: u32, head: [u64; 2], words: &[u64], from: &Buffer, (at, bytes): (usize, usize)) -> Result<(), Refused<Error>> {
        rings.push(peer, Packet { head, words: words.to_vec(), body: from.get(at, bytes) })
    }
    fn learn(_: &mut Rings, _: u32, address: u64, pieces: u64, _: u64) -> Option<u64> {
        (pieces == 0).then_some(address)
    }
    fn at(address: u64) -> u64 {
        address
    }
    fn copy(rings: &mut Rings, peer: u32, remote: &u64, own: &Buffer, (at, bytes): (usize, usize), way: Way) -> Result<(), Error> {
        if with(|field| field.barred.contains(&rings.me)) {
            return Err(Error(format!("the memory of {peer} cannot be reached")));
        }
        match way {
            Way::Read => own.put(at, &copy_out(*remote, at, bytes)),
            Way::Write => copy_in(*remote, at, &own.get(at, bytes).blocks),
        }
        Ok(())
    }

    fn eager_limit(rank: &mut Rank, _: u32) -> usize {
        rank.config.eager_bytes_max
    }
    fn crosses(_: &mut Rank, _: u32, _: usize) {}
    fn reads_crossing(_: &mut Rank, _: u32, _: usize) -> bool {
        false
    }
    fn offers(_: &mut Rank, _: u32, _: usize, _: bool) -> Option<(bool, u16)> {
        None
    }
    fn own_bytes_max(&self) -> usize {
        EAGER_BYTES
    }
    fn settle_costs(_: &mut Rank) {}
    /// By the length, so that worlds can name what they want.
    fn fetching(_: &mut Rank, _: p2p::RequestId, _: u32, abilities: &Abilities, transfer: &Transfer) -> Protocol {
        match transfer.bytes as usize {
            _ if !abilities.remote_read || !transfer.contiguous => Protocol::Pipelined,
            STREAMED_BYTES => Protocol::Pipelined,
            COPIED_BYTES | COPIED_TWICE_BYTES | RINGED_BYTES if abilities.cooperative_copy => Protocol::Cooperative,
            _ => Protocol::Read,
        }
    }
    /// By the length where that is known, as the world says where a receive is announced.
    fn through_ring(_: &mut Rank, _: u32, bytes: u64, _: bool) -> bool {
        bytes as usize == RINGED_BYTES || bytes as usize == COPIED_TWICE_BYTES && with(|field| field.ringed)
    }
    fn now_ns(&self) -> u64 {
        0
    }
    fn piece_took(&mut self, _: u32, _: usize, _: Done, _: usize, _: u64) {}
    fn fetched(&mut self, _: p2p::RequestId, _: Protocol, _: bool) {}
    fn shares_copies(&self, _: u64) -> bool {
        true
    }
    fn judge_share(&mut self, (): &()) {}
    fn await_helper(&mut self) {}

    /// What has come is taken in by steps of its own.
    fn look(_: &mut Rank) -> Result<bool, Error> {
        Ok(false)
    }
    fn wake_threads(_: &Rank) {}
    fn tell_failed(_: &Rank, _: u32) {}
    fn flush_datagrams(_: &mut Rank, _: u32) -> Result<bool, Error> {
        Ok(false)
    }
    fn send_copy(_: &mut Rank, _: &Target, _: &Buffer) -> Result<bool, Error> {
        Ok(false)
    }
    fn offer_window(_: &mut Rank, _: u32, _: Rtr, _: Envelope) -> u32 {
        0
    }
    fn hurry(_: &mut Rank) {}
}

/// There is no network.
#[derive(Clone)]
pub enum Nothing {}

impl Network for Nothing {
    fn short_bytes_max(&self) -> usize {
        match *self {}
    }
    fn has_room(&self, _: usize) -> bool {
        match *self {}
    }
    fn now_ns(&self) -> u64 {
        match *self {}
    }
    fn known(&self) -> usize {
        match *self {}
    }
    fn knows(&self, _: u32) -> bool {
        match *self {}
    }
    fn send_header(&mut self, _: u64, _: u32, _: p2p::Header) -> Result<(), reliability::Refused> {
        match *self {}
    }
    fn send_copy(&mut self, _: u64, _: u32, _: p2p::Header, _: usize, _: impl FnOnce(&mut Vec<u8>)) -> Result<(), reliability::Refused> {
        match *self {}
    }
    fn send(&mut self, _: u64, _: u32, _: p2p::Header, _: u64, _: u64, _: bool) -> Result<(), reliability::Refused> {
        match *self {}
    }
    fn put(&mut self, _: u64, _: u32, _: p2p::Header, _: Window, _: u64, _: u64) -> Result<(), reliability::Refused> {
        match *self {}
    }
    fn widen(&mut self, _: u32) {
        match *self {}
    }
}

/// The next packet of `from` to `to`, taken out.
pub fn next(from: u32, to: u32) -> Packet {
    with(|field| field.rings.get_mut(&(from, to)).and_then(VecDeque::pop_front)).expect("a packet")
}

/// `rank` reaches no other's memory any more.
pub fn bar(rank: u32) {
    saw("memory out of reach");
    with(|field| field.barred.push(rank));
}
