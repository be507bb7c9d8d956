//! What is known of a peer: a little always, more while something is under way.

use std::collections::VecDeque;
use std::ops::{Index, IndexMut};

use super::rail::{Rail, RailMemory};
use super::vfrag::Vfrag;
use super::wire::{self, Ack, Class, ENVELOPE_BYTES_MAX};
use super::{Begun, Config, Outside, PeerId, Placement, VFRAG_BYTES};
use crate::credits::Credits;

/// Everything that a quiet peer costs.
#[derive(Debug)]
pub struct Peer {
    pub id: PeerId,
    /// 0 while it is not known.
    pub epoch: u32,
    pub failed: bool,
    /// In the queue of peers that may have something to send.
    pub runnable: bool,
    /// How often the peer has asked for a wider allowance, and how often we have.
    pub widened_by_peer: u8,
    pub widened: u8,
    /// Sequence of the next message to it, and of the next one to be delivered from it.
    pub send_next: u32,
    pub deliver_next: u32,
    pub credits: Credits,
    /// What has been delivered and released, bytes with overheads.
    pub delivered_bytes: u64,
    pub released_bytes: u64,
    pub rails: Box<[RailMemory]>,
    /// Bit `r`: rail `r` is used only while no other one answers; bits of rails that there are not say nothing yet.
    pub spares: u8,
    /// Longest datagram that passes all of them.
    pub mtu_bytes: u32,
    /// The timer that is set, `u64::MAX` for none.
    pub timer_ns: u64,
    pub active: Option<Box<Active>>,
}

impl Peer {
    pub fn new(id: PeerId, epoch: u32, config: &Config) -> Peer {
        Peer {
            id,
            epoch,
            failed: false,
            runnable: false,
            widened_by_peer: 0,
            widened: 0,
            send_next: 0,
            deliver_next: 0,
            credits: Credits::new(config.credit_bytes, config.credit_header_bytes),
            delivered_bytes: 0,
            released_bytes: 0,
            rails: vec![RailMemory::default(); config.rails.len()].into(),
            spares: 0,
            mtu_bytes: config.rails.iter().map(|rail| rail.mtu_bytes).min().unwrap_or(0),
            timer_ns: u64::MAX,
            active: None,
        }
    }

    /// Bit `r`: rail `r` is not dead.
    pub fn alive(&self) -> u8 {
        self.rails.iter().enumerate().fold(0, |alive, (r, rail)| alive | (!rail.dead as u8) << r)
    }

    /// How many rails are not spare.
    pub fn own_rails(&self) -> usize {
        (0..self.rails.len()).filter(|r| self.spares >> r & 1 == 0).count()
    }

    /// There are at least `rails` rails.
    pub fn widen(&mut self, rails: usize, config: &Config) {
        if rails <= self.rails.len() {
            return;
        }
        let mut memories = std::mem::take(&mut self.rails).into_vec();
        memories.resize(rails, RailMemory::default());
        self.rails = memories.into();
        if let Some(active) = &mut self.active {
            let mut all = std::mem::take(&mut active.rails).into_vec();
            all.extend(self.rails[all.len()..].iter().map(|memory| Rail::new(config, memory, active.busy_ns)));
            active.rails = all.into();
        }
    }

    /// Payload of a segment of a message, bytes.
    pub fn segment_bytes(&self) -> u32 {
        self.cut(wire::MESSAGE_BYTES_MAX + wire::ENVELOPE_BYTES_MAX)
    }

    /// Payload of a segment of a transfer, bytes.
    pub fn data_segment_bytes(&self) -> u32 {
        self.cut(wire::DATA_BYTES).min(VFRAG_BYTES / 2)
    }

    fn cut(&self, frame_bytes: usize) -> u32 {
        (self.mtu_bytes - (wire::HEADER_BYTES + frame_bytes) as u32).min(u16::MAX as u32)
    }

    pub fn activate(&mut self, config: &Config, now_ns: u64) -> &mut Active {
        let rails = &self.rails;
        let base = self.send_next;
        self.active.get_or_insert_with(|| {
            Box::new(Active {
                rails: rails.iter().map(|rail| Rail::new(config, rail, now_ns)).collect(),
                base,
                messages: VecDeque::new(),
                ready: VecDeque::new(),
                waiting: VecDeque::new(),
                transfers: Vec::new(),
                sending: VecDeque::new(),
                ahead: VecDeque::new(),
                ahead_bytes: 0,
                windows: Vec::new(),
                dirty: VecDeque::new(),
                done: VecDeque::new(),
                told: None,
                ack_packets: 0,
                ack_ns: u64::MAX,
                acknowledged_ns: now_ns,
                ack_batch: config.ack_packets,
                ended_ns: 0,
                replies: false,
                ack_rail: 0,
                told_released_bytes: 0,
                pings: 0,
                pongs: 0,
                pinged: false,
                probe: 0,
                unanswered_ns: u64::MAX,
                asked_ns: now_ns,
                ask_wait_ns: config.keepalive_ns,
                blocked: false,
                held_ns: u64::MAX,
                impatient: false,
                stall_ns: u64::MAX,
                stall_wait_ns: 0,
                busy_ns: now_ns,
                watched: false,
            })
        })
    }
}

/// Which rails to a peer may be used.
#[derive(Clone, Copy, Debug)]
pub struct Answering {
    /// Bit `r`: rail `r` is dead, or spare while another one answers.
    left_out: u8,
    /// Silences in a row that those have had that answer best.
    strikes: u8,
}

impl Answering {
    /// A rail that has been silent once may have lost the last datagram of several, which leaves again; spares stand by.
    const STRIKES_BORNE: u8 = 1;

    /// `None` where all are dead.
    #[inline]
    pub fn of(memories: &[RailMemory], rails: &[Rail], spares: u8) -> Option<Answering> {
        let mut dead = 0;
        // The least silences of all that are alive, and of those that are not spare.
        let (mut all, mut own) = (None, None);
        for (r, (memory, rail)) in memories.iter().zip(rails).enumerate() {
            if memory.dead {
                dead |= 1 << r;
                continue;
            }
            let least = |other: Option<u8>| Some(other.map_or(rail.strikes, |other| other.min(rail.strikes)));
            all = least(all);
            own = if spares >> r & 1 == 0 { least(own) } else { own };
        }
        match own {
            Some(strikes) if strikes <= Self::STRIKES_BORNE => Some(Answering { left_out: dead | spares, strikes }),
            _ => all.map(|strikes| Answering { left_out: dead, strikes }),
        }
    }

    #[inline]
    pub fn takes(&self, r: usize, rail: &Rail) -> bool {
        self.left_out >> r & 1 == 0 && rail.strikes <= self.strikes
    }
}

/// All peers, by the order in which they became known. In chunks: a table that moves when it grows leaves its old places behind.
#[derive(Debug, Default)]
pub struct Peers {
    chunks: Vec<Vec<Peer>>,
}

const CHUNK: usize = 32;

impl Peers {
    pub fn len(&self) -> usize {
        self.chunks.last().map_or(0, |last| (self.chunks.len() - 1) * CHUNK + last.len())
    }

    pub fn push(&mut self, peer: Peer) {
        match self.chunks.last_mut().filter(|last| last.len() < CHUNK) {
            Some(last) => last.push(peer),
            None => {
                let mut chunk = Vec::with_capacity(CHUNK);
                chunk.push(peer);
                self.chunks.push(chunk);
            }
        }
    }

    pub fn iter(&self) -> impl Iterator<Item = &Peer> {
        self.chunks.iter().flatten()
    }

    /// Memory, bytes.
    pub fn bytes(&self) -> usize {
        self.chunks.len() * CHUNK * size_of::<Peer>()
    }
}

impl Index<usize> for Peers {
    type Output = Peer;
    #[inline]
    fn index(&self, at: usize) -> &Peer {
        &self.chunks[at / CHUNK][at % CHUNK]
    }
}

impl IndexMut<usize> for Peers {
    #[inline]
    fn index_mut(&mut self, at: usize) -> &mut Peer {
        &mut self.chunks[at / CHUNK][at % CHUNK]
    }
}

/// A message without a sequence number yet.
#[derive(Clone, Copy, Debug)]
pub struct Waiting {
    pub kind: WaitingKind,
    pub envelope: Envelope,
}

#[derive(Clone, Copy, Debug)]
pub enum WaitingKind {
    /// As payload or as a request to send.
    Send { send: u64, bytes: u64, eager: bool },
    /// Decided already.
    Ready { class: Class, send: Option<u64> },
}

#[derive(Clone, Copy, Debug)]
pub struct Envelope {
    bytes: [u8; ENVELOPE_BYTES_MAX],
    length: u8,
}

impl Envelope {
    /// `None` when it is too long.
    pub fn new(from: &[u8]) -> Option<Envelope> {
        let mut envelope = Envelope { bytes: [0; ENVELOPE_BYTES_MAX], length: from.len().try_into().ok()? };
        envelope.bytes.get_mut(..from.len())?.copy_from_slice(from);
        Some(envelope)
    }

    pub fn as_slice(&self) -> &[u8] {
        &self.bytes[..self.length as usize]
    }
}

/// A message that is not acknowledged.
#[derive(Debug)]
pub struct Outgoing {
    pub vfrag: Vfrag,
    pub class: Class,
    pub envelope: Envelope,
    /// What ends with the acknowledgement.
    pub send: Option<u64>,
    /// Datagrams of it whose local completion is missing.
    pub references: u16,
}

/// A message that came in part or too early.
#[derive(Debug)]
pub struct Assembly {
    pub class: Class,
    pub envelope: Envelope,
    pub total_bytes: u32,
    /// Where the segments go, where that is known.
    pub place: Option<Begun>,
    /// Otherwise they are here, as far as the last that has arrived; zeroes where one is missing before it.
    pub payload: Vec<u8>,
    pub segment_bytes: u16,
    pub segments: u64,
}

impl Assembly {
    pub fn is_complete(&self) -> bool {
        let count = self.total_bytes.div_ceil(self.segment_bytes as u32).max(1);
        self.segments == u64::MAX >> (64 - count)
    }

    /// Whether a segment of `message` is one of this.
    pub fn is_of(&self, message: &wire::Message) -> bool {
        self.total_bytes == message.total_bytes && self.segment_bytes == message.segment_bytes && self.class == message.class
    }

    /// A segment is at its place.
    pub fn placed(&mut self, segment: u8) {
        debug_assert!(self.place.is_some());
        self.segments |= 1 << segment;
    }

    /// Puts a segment to its place. False where it is not there then.
    pub fn put(&mut self, segment: u8, bytes: &[u8], outside: &mut impl Outside) -> bool {
        let start = segment as usize * self.segment_bytes as usize;
        if let Some(place) = self.place {
            let bytes = &bytes[..bytes.len().min((place.room_bytes as usize).saturating_sub(start))];
            let placement = Placement { receive: place.receive, offset_bytes: start as u64 };
            if !bytes.is_empty() && !outside.place(&placement, bytes) {
                return false;
            }
            self.segments |= 1 << segment;
            return true;
        }
        self.segments |= 1 << segment;
        if start < self.payload.len() {
            self.payload[start..start + bytes.len()].copy_from_slice(bytes);
        } else {
            self.payload.resize(start, 0);
            self.payload.extend_from_slice(bytes);
        }
        debug_assert!(self.payload.len() <= self.total_bytes as usize);
        true
    }
}

#[derive(Debug)]
pub struct Active {
    pub rails: Box<[Rail]>,
    /// Sequence of the first of `messages`.
    pub base: u32,
    pub messages: VecDeque<Outgoing>,
    /// Sequences of messages of which something should leave.
    pub ready: VecDeque<u32>,
    pub waiting: VecDeque<Waiting>,
    /// All outgoing transfers, and those of which something should leave.
    pub transfers: Vec<u32>,
    pub sending: VecDeque<u32>,
    /// From the peer's `deliver_next` on.
    pub ahead: VecDeque<Option<Assembly>>,
    pub ahead_bytes: u64,
    /// All incoming transfers, those whose state should be told, and those that ended.
    pub windows: Vec<u32>,
    pub dirty: VecDeque<u32>,
    pub done: VecDeque<(u32, u32)>,
    /// Said along with a message, which was delivered first.
    pub told: Option<Told>,
    /// Datagrams that want an acknowledgement, and when it leaves at the latest.
    pub ack_packets: u32,
    pub ack_ns: u64,
    /// When the last one left, and after how many datagrams the next one does.
    pub acknowledged_ns: u64,
    pub ack_batch: u32,
    /// When a transfer of the peer has ended last; whether the program sends something back at once, so that its acknowledgement waits for that.
    pub ended_ns: u64,
    pub replies: bool,
    pub ack_rail: u8,
    pub told_released_bytes: u64,
    /// Rails on which a sign of life is to be asked for, or given.
    pub pings: u8,
    pub pongs: u8,
    /// A sign of life has been asked for, and nothing was answered since.
    pub pinged: bool,
    /// Datagrams that may leave in spite of window and pace: tail probes.
    pub probe: u8,
    /// Since when nothing has been answered; `u64::MAX` while nothing is asked.
    pub unanswered_ns: u64,
    pub asked_ns: u64,
    /// After that long without a question, one is asked.
    pub ask_wait_ns: u64,
    /// Everything waits for credit.
    pub blocked: bool,
    /// Until then the first message that waits is held back for room at the receiver (`u64::MAX`: none is); which has made none for that long, or waits for
    /// what may be held back.
    pub held_ns: u64,
    pub impatient: bool,
    /// When granted windows that stand still are told again; the wait before.
    pub stall_ns: u64,
    pub stall_wait_ns: u64,
    /// When something was last under way.
    pub busy_ns: u64,
    /// The engine waits for something from this peer.
    pub watched: bool,
}

/// What the peer has said of our messages, when that left by its clock, and when it came.
#[derive(Debug)]
pub struct Told {
    pub ack: Ack,
    pub sent_us: u32,
    pub came_ns: u64,
}

impl Active {
    /// Whether a message has come before one that was sent earlier, which may be lost.
    pub fn is_outrun(&self) -> bool {
        self.messages.iter().skip(1).any(|message| message.vfrag.is_acked())
    }

    /// Whether a message for which the receiver has no room is held back, for `hold_ns` after room was last made.
    pub fn holds(&mut self, now_ns: u64, hold_ns: u64) -> bool {
        if self.held_ns == u64::MAX && !self.impatient {
            self.held_ns = now_ns + hold_ns;
        }
        let holds = !self.impatient && now_ns < self.held_ns;
        if !holds {
            self.stop_holding();
        }
        holds
    }

    /// What finds no room goes as headers until room is made.
    pub fn stop_holding(&mut self) {
        (self.impatient, self.held_ns) = (true, u64::MAX);
    }

    /// Nothing would be lost if it were forgotten.
    pub fn is_quiet(&self) -> bool {
        !self.wants() && !self.owes() && self.ahead.is_empty()
    }

    /// The peer is still to be told of something.
    pub fn owes(&self) -> bool {
        !self.dirty.is_empty() || !self.done.is_empty() || self.ack_ns != u64::MAX || self.pings | self.pongs != 0
    }

    pub fn has_to_send(&self) -> bool {
        !self.ready.is_empty() || !self.sending.is_empty()
    }

    /// Something is wanted from the peer.
    pub fn wants(&self) -> bool {
        self.has_open() || self.watched
    }

    /// Something is under way with the peer.
    pub fn has_open(&self) -> bool {
        !self.messages.is_empty() || !self.waiting.is_empty() || !self.transfers.is_empty() || !self.windows.is_empty() || self.has_begun()
    }

    /// A receive waits for the rest of the next message ([`Outside::begin`]).
    fn has_begun(&self) -> bool {
        self.ahead.front().and_then(Option::as_ref).is_some_and(|first| first.place.is_some())
    }

    pub fn message(&mut self, sequence: u32) -> Option<&mut Outgoing> {
        self.messages.get_mut(sequence.wrapping_sub(self.base) as usize)
    }

    /// Whether an answer is asked for, from now on if it was not before.
    pub fn count_unanswered(&mut self, now_ns: u64) {
        let asking = self.pinged || self.rails.iter().any(|rail| rail.in_flight_bytes > 0);
        self.unanswered_ns = if asking { self.unanswered_ns.min(now_ns) } else { u64::MAX };
    }

    pub fn acknowledge_soon(&mut self, by_ns: u64) {
        self.ack_ns = self.ack_ns.min(by_ns);
    }

    /// Forgets messages that have ended, from the first on.
    pub fn retire(&mut self) {
        while self.messages.front().is_some_and(|first| first.vfrag.is_acked() && first.references == 0) {
            self.messages.pop_front();
            self.base = self.base.wrapping_add(1);
        }
    }

    pub fn mark_dirty(&mut self, id: u32, window: &mut super::window::Window) {
        if !window.dirty {
            window.dirty = true;
            self.dirty.push_back(id);
        }
    }
}
