//! Datagrams: a header, frames, payload. Bytes of the network become types here and nowhere else.
//!
//! | bytes | meaning |
//! | --- | --- |
//! | 0 | version, [`VERSION`] |
//! | 1 | flags: [`DIRECT`], [`FOREIGN`] |
//! | 2..4 | bytes of frames |
//! | 4..8, 8..12 | source and destination process |
//! | 12..16, 16..20 | epoch of source, epoch of destination |
//! | 20..24 | when it was sent, µs of the sender's clock, wrapping |
//! | 24..31, 31 | number of the datagram on its rail, from 1; the rail |
//! | 32..48 | authenticator over everything else |
//! | 48.. | frames, then payload; after a segment of a transfer, or of the only message where that has several, there may be padding: datagrams are of one length so, and can be made by stores that write many bytes at once |
//!
//! All integers are little-endian. The payloads of the message frames follow each other in the order of the frames.

use super::{MESSAGES_MAX, RAILS_MAX, SEGMENTS_MAX, VFRAG_BYTES};

#[cfg(test)]
mod tests;

pub const VERSION: u8 = 0x57;
/// The payload is one segment of a bulk transfer.
pub const DIRECT: u8 = 1;
/// Between processes of two jobs: source and destination are the numbers that each has in its own, and the edge translates them.
pub const FOREIGN: u8 = 2;
/// Bytes before the authenticator.
pub const FIXED_BYTES: usize = 32;
pub const TAG_BYTES: usize = 16;
/// Bytes before the frames.
pub const HEADER_BYTES: usize = FIXED_BYTES + TAG_BYTES;
/// Bytes of a data frame.
pub const DATA_BYTES: usize = 16;
/// Bytes of the frame of a message that goes with its payload, without the engine's header, and of any message frame,
/// at most.
pub const EAGER_BYTES: usize = 14;
pub const MESSAGE_BYTES_MAX: usize = 15 + 20;
/// What the engine may put before a message's payload, bytes at most.
pub const ENVELOPE_BYTES_MAX: usize = 64;
/// Words of an acknowledgement's map of messages.
pub const SEEN_WORDS: usize = MESSAGES_MAX / 64;
/// Incomplete VFRAGs that one frame describes, at most.
pub const PARTIALS_MAX: usize = 8;
/// Bytes of an acknowledgement frame, at most.
pub const ACK_BYTES_MAX: usize = 16 + 8 * SEEN_WORDS + 12 * PARTIALS_MAX + 9 * RAILS_MAX;
/// Bytes of a window frame, at most.
pub const WINDOW_BYTES_MAX: usize = 31 + 11 * PARTIALS_MAX;

/// An authenticator of a datagram or of a payload.
pub type Tag = [u8; TAG_BYTES];

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Header {
    pub direct: bool,
    pub rail: u8,
    pub source: u32,
    pub destination: u32,
    pub source_epoch: u32,
    pub destination_epoch: u32,
    pub sent_us: u32,
    /// 1 to 2^56 - 1.
    pub number: u64,
}

/// A short list without allocation.
#[derive(Clone, Copy, Debug)]
pub struct List<T, const N: usize> {
    items: [T; N],
    count: u8,
}

/// What a list held before it was emptied does not count.
impl<T: Copy + Default + PartialEq, const N: usize> PartialEq for List<T, N> {
    fn eq(&self, other: &Self) -> bool {
        self.as_slice() == other.as_slice()
    }
}

impl<T: Copy + Default + Eq, const N: usize> Eq for List<T, N> {}

impl<T: Copy + Default, const N: usize> Default for List<T, N> {
    fn default() -> Self {
        List { items: [T::default(); N], count: 0 }
    }
}

impl<T: Copy + Default, const N: usize> List<T, N> {
    /// False when it is full: the item is left out.
    pub fn push(&mut self, item: T) -> bool {
        let fits = (self.count as usize) < N;
        if fits {
            self.items[self.count as usize] = item;
            self.count += 1;
        }
        fits
    }

    pub fn as_slice(&self) -> &[T] {
        &self.items[..self.count as usize]
    }

    fn clear(&mut self) {
        self.count = 0;
    }
}

/// A message whose segments have arrived in part.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct PartialMessage {
    pub sequence: u32,
    pub segments: u64,
}

/// The newest datagram that arrived on a rail.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Echo {
    pub rail: u8,
    /// Its [`Header::sent_us`].
    pub sent_us: u32,
    /// When it came, µs of the receiver's clock.
    pub came_us: u32,
    /// It had come before, when nobody looked: the time says nothing about the network.
    pub late: bool,
}

/// Beside the rail in an echo's first byte.
const LATE: u8 = 0x80;

/// Which messages have arrived, and how much of the receiver's memory has been released.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Ack {
    /// All messages before this one have arrived.
    pub next: u32,
    /// Bit `i`: message `next + 1 + i` has arrived.
    pub seen: [u64; SEEN_WORDS],
    pub partial: List<PartialMessage, PARTIALS_MAX>,
    /// What the receiver has released since the start, bytes ([`crate::credits`]).
    pub released_bytes: u64,
    /// How often the receiver has asked for a wider allowance.
    pub widened: u8,
    pub echoes: List<Echo, RAILS_MAX>,
}

/// What a message is to the reliability layer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Class {
    /// The payload goes along.
    Eager,
    /// Request to send: the payload waits at the sender, as `transfer`.
    Request { transfer: u32, bytes: u64 },
    /// Request to receive: a window is open, and `granted_bytes` of it may be filled at once.
    Offer { window: u32, granted_bytes: u64, capacity_bytes: u64 },
    /// A window that was offered is being filled with `bytes`.
    Push { window: u32, transfer: u32, bytes: u64 },
    /// The receiver wants nothing of `transfer`. Not delivered.
    Decline { transfer: u32 },
}

/// One segment of a message.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Message<'a> {
    pub sequence: u32,
    pub class: Class,
    /// Length of the whole payload, bytes; at most [`VFRAG_BYTES`].
    pub total_bytes: u32,
    pub segment: u8,
    /// Length of all segments but the last, bytes.
    pub segment_bytes: u16,
    /// The engine's header; in segment 0 only.
    pub envelope: &'a [u8],
}

impl Message<'_> {
    /// In how many segments it goes, 1 to [`SEGMENTS_MAX`].
    pub fn segments(&self) -> u32 {
        self.total_bytes.div_ceil(self.segment_bytes as u32).max(1)
    }

    /// Bytes of payload in this segment.
    pub fn length_bytes(&self) -> usize {
        segment_length(self.total_bytes, self.segment_bytes, self.segment)
    }
}

/// One segment of a VFRAG of a bulk transfer; the whole payload of its datagram.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Data {
    pub window: u32,
    /// Which VFRAG of the transfer: it begins at `vfrag * stride_bytes(segment_bytes)`.
    pub vfrag: u32,
    /// Bytes of the whole VFRAG: as many as fit, or what is left at the end of the transfer.
    pub vfrag_bytes: u32,
    pub segment: u8,
    pub segment_bytes: u16,
}

impl Data {
    pub fn length_bytes(&self) -> usize {
        segment_length(self.vfrag_bytes, self.segment_bytes, self.segment)
    }

    /// Where in the transfer the segment belongs, bytes.
    pub fn offset_bytes(&self) -> u64 {
        self.vfrag as u64 * stride_bytes(self.segment_bytes as u32) as u64 + self.segment as u64 * self.segment_bytes as u64
    }
}

/// A VFRAG whose segments have arrived in part.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct PartialVfrag {
    /// Counted from [`Window::base`].
    pub index: u8,
    pub segment_bytes: u16,
    pub segments: u64,
}

/// The state of one incoming transfer: grant and acknowledgement in one.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Window {
    /// The sender's transfer; 0 while the receiver does not know it.
    pub transfer: u32,
    /// The receiver's window, never 0.
    pub window: u32,
    /// The sender may send up to here.
    pub granted_bytes: u64,
    /// All VFRAGs before this one have arrived.
    pub base: u32,
    /// Bit `i`: VFRAG `base + i` has arrived.
    pub complete: u64,
    /// All has arrived; nothing else in the frame counts.
    pub done: bool,
    /// More than `granted_bytes` will never be granted: no more is wanted.
    pub last: bool,
    pub partial: List<PartialVfrag, PARTIALS_MAX>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Frame<'a> {
    Ack(&'a Ack),
    Message(Message<'a>),
    Data(Data),
    Window(&'a Window),
    /// Asks for a [`Frame::Pong`] on the same rail.
    Ping,
    Pong,
}

/// A datagram whose structure is sound. Whether it is authentic is asked of [`super::seal`].
#[derive(Clone, Copy, Debug)]
pub struct Packet<'a> {
    pub header: Header,
    frames: &'a [u8],
    pub payload: &'a [u8],
    /// The only frame, where that is a segment of something longer.
    pub lone: Option<Lone>,
}

/// A frame that is alone in its datagram: a segment of a transfer, or one of a message that is not its first. Most
/// datagrams of long messages have no other.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Lone {
    Data(Data),
    Message(Message<'static>),
}

impl Lone {
    /// Bytes of header and frame.
    fn head_bytes(&self) -> usize {
        match self {
            Lone::Data(_) => RUN_HEAD_BYTES,
            Lone::Message(_) => HEADER_BYTES + EAGER_BYTES,
        }
    }

    /// Bytes of the whole, and of its segments but the last; which segment it is.
    fn cut(&self) -> (u32, u16, u8) {
        match self {
            Lone::Data(data) => (data.vfrag_bytes, data.segment_bytes, data.segment),
            Lone::Message(message) => (message.total_bytes, message.segment_bytes, message.segment),
        }
    }

    /// Makes header and frame those of the next segment in the next datagram.
    fn advance(&self, head: &mut [u8]) {
        match self {
            Lone::Data(_) => advance(head),
            Lone::Message(_) => advance_message(head),
        }
    }

    /// That of the segment `more` behind this one.
    fn behind(self, more: u8) -> Lone {
        match self {
            Lone::Data(data) => Lone::Data(Data { segment: data.segment + more, ..data }),
            Lone::Message(message) => Lone::Message(Message { segment: message.segment + more, ..message }),
        }
    }
}

impl<'a> Packet<'a> {
    /// `None` when anything about the structure is wrong.
    pub fn parse(bytes: &'a [u8]) -> Option<Packet<'a>> {
        let mut fixed = Reader(bytes.get(..FIXED_BYTES)?);
        if fixed.u8()? != VERSION {
            return None;
        }
        let flags = fixed.u8()?;
        let frames_bytes = fixed.u16()? as usize;
        let [source, destination] = [fixed.u32()?, fixed.u32()?];
        let [source_epoch, destination_epoch] = [fixed.u32()?, fixed.u32()?];
        let sent_us = fixed.u32()?;
        let last = fixed.u64()?;
        let (number, rail) = (last & NUMBER_MAX, (last >> 56) as u8);
        if flags & !(DIRECT | FOREIGN) != 0 || rail as usize >= RAILS_MAX || number == 0 {
            return None;
        }
        let direct = flags & DIRECT != 0;
        let rest = bytes.get(HEADER_BYTES..)?;
        let (frames, payload) = rest.split_at_checked(frames_bytes)?;
        let header = Header { direct, rail, source, destination, source_epoch, destination_epoch, sent_us, number };
        let (mut reader, mut room) = (Reader(frames), Room::default());
        if direct && frames_bytes == DATA_BYTES {
            let data = (reader.u8()? == DATA).then(|| reader.data())??;
            let payload = payload.get(..data.length_bytes())?;
            return Some(Packet { header, frames, payload, lone: Some(Lone::Data(data)) });
        }
        if !direct && frames_bytes == EAGER_BYTES && frames[0] == MESSAGE && frames[SEGMENT_AT] > 0 {
            let message = Reader(&frames[1..]).message()?;
            let payload = payload.get(..message.length_bytes())?;
            return Some(Packet { header, frames, payload, lone: Some(Lone::Message(Message { envelope: &[], ..message })) });
        }
        let packet = Packet { header, frames, payload, lone: None };
        let (mut expected, mut data, mut messages, mut several) = (0, 0, 0, false);
        while !reader.0.is_empty() {
            match reader.frame(&mut room)? {
                Frame::Message(message) => {
                    expected += message.length_bytes();
                    messages += 1;
                    several = message.segments() > 1;
                }
                Frame::Data(frame) => {
                    expected += frame.length_bytes();
                    data += 1;
                }
                _ => {}
            }
        }
        let sound = if direct { data == 1 && messages == 0 } else { data == 0 && (expected == payload.len() || messages == 1 && several) };
        let payload = payload.get(..expected).filter(|_| sound)?;
        Some(Packet { payload, ..packet })
    }

    /// The frames, to be read in order.
    pub fn frames(&self) -> Frames<'a> {
        Frames { reader: Reader(self.frames), payload: self.payload, room: Room::default() }
    }
}

/// Datagrams of one length that came joined, of which each carries the segment after that of the one before
/// ([`advance`], [`advance_message`]): as most of a long message come.
#[derive(Clone, Copy, Debug)]
pub struct Run<'a> {
    pub header: Header,
    /// What the first of them carries.
    pub first: Lone,
    /// The payloads of so many of them are where they belong already.
    pub placed: u32,
    datagrams: &'a [u8],
    each_bytes: usize,
}

/// Where stores that go past the caches make the datagrams of a run, each is a multiple of so many bytes if that fits: they write no less.
pub const STEP_BYTES: usize = 32;
/// What one call sends at most as a run of datagrams, bytes: an IP packet without its headers.
pub const RUN_BYTES_MAX: u32 = 65_535 - 48;
/// Header and frame of each datagram of a [`Run`] of a transfer, and at most.
pub const RUN_HEAD_BYTES: usize = HEADER_BYTES + DATA_BYTES;

impl<'a> Run<'a> {
    /// How many of the first datagrams of `each_bytes` in `bytes` make a run, by their structure alone; 0 where the first is no lone segment of a transfer.
    pub fn length(bytes: &[u8], each_bytes: usize) -> usize {
        const COMMON_BYTES: usize = HEADER_BYTES + EAGER_BYTES;
        let Some(first) = bytes.get(..each_bytes).and_then(|datagram| Packet::parse(datagram)?.lone) else { return 0 };
        let (head_bytes, (total_bytes, segment_bytes, segment)) = (first.head_bytes(), first.cut());
        // The last segment may be shorter, and its datagram with it.
        let segments = total_bytes.div_ceil(segment_bytes as u32) as usize - segment as usize;
        let (mut next, mut count) = ([0; RUN_HEAD_BYTES], 1);
        next[..head_bytes].copy_from_slice(&bytes[..head_bytes]);
        while count < segments {
            first.advance(&mut next[..head_bytes]);
            let Some(datagram) = bytes.get(count * each_bytes..) else { break };
            let datagram = &datagram[..datagram.len().min(each_bytes)];
            let payload_bytes = segment_length(total_bytes, segment_bytes, segment + count as u8);
            let follows = datagram.len() >= head_bytes + payload_bytes
                && datagram[..FIXED_BYTES] == next[..FIXED_BYTES]
                && datagram[HEADER_BYTES..COMMON_BYTES] == next[HEADER_BYTES..COMMON_BYTES]
                && datagram[COMMON_BYTES..head_bytes] == next[COMMON_BYTES..head_bytes];
            if !follows {
                break;
            }
            count += 1;
        }
        count
    }

    /// The datagrams in `bytes`, all but the last of `each_bytes`. They make a run as [`Run::length`] says.
    pub fn parse(bytes: &'a [u8], each_bytes: usize) -> Option<Run<'a>> {
        let first = Packet::parse(bytes.get(..each_bytes.min(bytes.len()))?)?;
        Some(Run { header: first.header, first: first.lone?, placed: 0, datagrams: bytes, each_bytes })
    }

    /// Where in each datagram its payload begins.
    pub fn head_bytes(&self) -> usize {
        self.first.head_bytes()
    }

    /// Of every payload but the last of the whole.
    pub fn segment_bytes(&self) -> usize {
        self.first.cut().1 as usize
    }

    /// At most [`SEGMENTS_MAX`].
    pub fn count(&self) -> u32 {
        self.datagrams.len().div_ceil(self.each_bytes) as u32
    }

    /// Segments of the VFRAG that it has.
    pub fn segments(&self) -> u64 {
        u64::MAX >> (64 - self.count()) << self.first.cut().2
    }

    /// The payloads: they follow each other in the transfer, or the message.
    pub fn payloads(&self) -> impl Iterator<Item = &'a [u8]> + Clone {
        let (head_bytes, (total_bytes, segment_bytes, segment)) = (self.first.head_bytes(), self.first.cut());
        let length = move |at: usize| segment_length(total_bytes, segment_bytes, segment + at as u8);
        self.datagrams.chunks(self.each_bytes).enumerate().map(move |(at, datagram)| &datagram[head_bytes..][..length(at)])
    }

    pub fn payload_bytes(&self) -> u32 {
        let (total_bytes, segment_bytes, segment) = self.first.cut();
        let start = segment as u32 * segment_bytes as u32;
        (total_bytes - start).min(self.count() * segment_bytes as u32)
    }

    /// The payloads that are not where they belong yet, each with its place; that of the first of all is `offset_bytes`.
    pub fn rest(&self, offset_bytes: u64) -> impl Iterator<Item = (u64, &'a [u8])> {
        let places = (offset_bytes..).step_by(self.segment_bytes());
        places.zip(self.payloads()).skip(self.placed as usize)
    }

    /// The datagrams one by one.
    pub fn packets(&self) -> impl Iterator<Item = Packet<'a>> {
        let (header, first) = (self.header, self.first);
        self.payloads().zip(0..).map(move |(payload, at)| Packet {
            header: Header { number: header.number + at as u64, ..header },
            frames: &[],
            payload,
            lone: Some(first.behind(at)),
        })
    }
}

/// Frames of a datagram that have not been read yet.
pub struct Frames<'a> {
    reader: Reader<'a>,
    payload: &'a [u8],
    room: Room,
}

impl<'a> Frames<'a> {
    /// The next frame; a message or data frame has its payload with it.
    #[allow(clippy::should_implement_trait, reason = "a frame lives until the next one is read")]
    pub fn next(&mut self) -> Option<(Frame<'_>, &'a [u8])> {
        // All frames have been read once by `parse`.
        let frame = self.reader.frame(&mut self.room)?;
        let length = match &frame {
            Frame::Message(message) => message.length_bytes(),
            Frame::Data(data) => data.length_bytes(),
            _ => 0,
        };
        let (own, rest) = self.payload.split_at_checked(length)?;
        self.payload = rest;
        Some((frame, own))
    }
}

/// What long frames are read into: they are not moved about.
#[derive(Default)]
struct Room {
    ack: Ack,
    window: Window,
}

/// Bytes of a VFRAG of a transfer that is cut in segments of `segment_bytes`: as many as leave in one run ([`RUN_BYTES_MAX`]), at least two. All datagrams of a
/// transfer but its last are of one length, and each VFRAG is sent, received and acknowledged as a whole.
pub fn stride_bytes(segment_bytes: u32) -> u32 {
    let segments = run_datagrams(segment_bytes as usize + RUN_HEAD_BYTES).max(2);
    segments as u32 * segment_bytes
}

/// How many datagrams of `each_bytes` leave in one run, at most; [`SEGMENTS_MAX`] is the kernel's UDP_MAX_SEGMENTS of old, too.
pub fn run_datagrams(each_bytes: usize) -> usize {
    (RUN_BYTES_MAX as usize / each_bytes).clamp(1, SEGMENTS_MAX)
}

const NUMBER_MAX: u64 = (1 << 56) - 1;

/// The length of a segment; its VFRAG and its cut must be sound.
fn segment_length(total_bytes: u32, segment_bytes: u16, segment: u8) -> usize {
    let start = segment as u32 * segment_bytes as u32;
    (total_bytes - start).min(segment_bytes as u32) as usize
}

/// Whether `segment` exists in a VFRAG of `total_bytes` cut in segments of `segment_bytes`.
fn sound_cut(total_bytes: u32, segment_bytes: u16, segment: u8) -> bool {
    let cut = segment_bytes as u32;
    cut > 0 && total_bytes as u64 <= SEGMENTS_MAX as u64 * cut as u64 && (segment == 0 || (segment as u32) * cut < total_bytes)
}

/// Writes a header with an empty tag; [`finish`] adds the length of the frames.
pub fn begin(out: &mut Vec<u8>, header: &Header) {
    let mut bytes = [0; HEADER_BYTES];
    (bytes[0], bytes[1]) = (VERSION, if header.direct { DIRECT } else { 0 });
    let words = [header.source, header.destination, header.source_epoch, header.destination_epoch, header.sent_us];
    for (to, word) in bytes[4..].chunks_exact_mut(4).zip(words) {
        to.copy_from_slice(&word.to_le_bytes());
    }
    bytes[24..FIXED_BYTES].copy_from_slice(&(header.number | (header.rail as u64) << 56).to_le_bytes());
    out.clear();
    out.extend_from_slice(&bytes);
}

/// Says in the header how many bytes of frames have been written after it.
pub fn finish(out: &mut [u8]) {
    let frames_bytes = (out.len() - HEADER_BYTES) as u16;
    out[2..4].copy_from_slice(&frames_bytes.to_le_bytes());
}

/// What [`finish`] has said, of a datagram of at least [`HEADER_BYTES`]: bytes of header and frames.
pub fn bytes_before_payload(datagram: &[u8]) -> usize {
    HEADER_BYTES + u16::from_le_bytes([datagram[2], datagram[3]]) as usize
}

/// The [`Header::sent_us`] of a datagram of at least [`HEADER_BYTES`].
pub fn sent_us(datagram: &[u8]) -> u32 {
    u32::from_le_bytes([datagram[20], datagram[21], datagram[22], datagram[23]])
}

/// Makes the header and frames of one segment of a transfer, of which the data frame is the last, those of the next segment in the next datagram.
pub fn advance(out: &mut [u8]) {
    advance_segment(out, out.len() - DATA_BYTES + 1);
}

/// Makes header and frame of one segment of a message, which is alone in its datagram and not the first, those of the
/// next segment in the next datagram.
pub fn advance_message(out: &mut [u8]) {
    advance_segment(out, HEADER_BYTES + SEGMENT_AT);
}

/// The next datagram's number, and the next segment at its place `segment`.
#[inline]
fn advance_segment(out: &mut [u8], segment: usize) {
    let number = out[24..FIXED_BYTES].first_chunk_mut().expect("a header");
    *number = u64::from_le_bytes(*number).wrapping_add(1).to_le_bytes();
    out[segment] = out[segment].wrapping_add(1);
}

/// Where in a message frame its segment stands.
const SEGMENT_AT: usize = 2;

const ACK: u8 = 1;
const MESSAGE: u8 = 2;
const DATA: u8 = 3;
const WINDOW: u8 = 4;
const PING: u8 = 5;
const PONG: u8 = 6;

impl Frame<'_> {
    pub fn write(&self, out: &mut Vec<u8>) {
        match self {
            Frame::Ack(ack) => {
                let words = SEEN_WORDS - ack.seen.iter().rev().take_while(|&&word| word == 0).count();
                let (partial, echoes) = (ack.partial.as_slice(), ack.echoes.as_slice());
                let mut head = [ACK, words as u8, (partial.len() | echoes.len() << 4) as u8, ack.widened, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
                head[4..8].copy_from_slice(&ack.next.to_le_bytes());
                head[8..].copy_from_slice(&ack.released_bytes.to_le_bytes());
                out.extend_from_slice(&head);
                for word in &ack.seen[..words] {
                    out.extend(word.to_le_bytes());
                }
                for one in partial {
                    out.extend(one.sequence.to_le_bytes());
                    out.extend(one.segments.to_le_bytes());
                }
                for echo in echoes {
                    let mut bytes = [echo.rail | if echo.late { LATE } else { 0 }, 0, 0, 0, 0, 0, 0, 0, 0];
                    bytes[1..5].copy_from_slice(&echo.sent_us.to_le_bytes());
                    bytes[5..].copy_from_slice(&echo.came_us.to_le_bytes());
                    out.extend_from_slice(&bytes);
                }
            }
            Frame::Message(message) => {
                let class = match message.class {
                    Class::Eager => 0,
                    Class::Request { .. } => 1,
                    Class::Offer { .. } => 2,
                    Class::Push { .. } => 3,
                    Class::Decline { .. } => 4,
                };
                let mut head = [MESSAGE, class, message.segment, message.envelope.len() as u8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
                head[4..8].copy_from_slice(&message.sequence.to_le_bytes());
                head[8..12].copy_from_slice(&message.total_bytes.to_le_bytes());
                head[12..].copy_from_slice(&message.segment_bytes.to_le_bytes());
                out.extend_from_slice(&head);
                match message.class {
                    Class::Eager => {}
                    Class::Request { transfer, bytes } => {
                        out.extend(transfer.to_le_bytes());
                        out.extend(bytes.to_le_bytes());
                    }
                    Class::Offer { window, granted_bytes, capacity_bytes } => {
                        out.extend(window.to_le_bytes());
                        out.extend(granted_bytes.to_le_bytes());
                        out.extend(capacity_bytes.to_le_bytes());
                    }
                    Class::Push { window, transfer, bytes } => {
                        out.extend(window.to_le_bytes());
                        out.extend(transfer.to_le_bytes());
                        out.extend(bytes.to_le_bytes());
                    }
                    Class::Decline { transfer } => out.extend(transfer.to_le_bytes()),
                }
                out.extend_from_slice(message.envelope);
            }
            Frame::Data(data) => {
                out.extend([DATA, data.segment]);
                out.extend(data.segment_bytes.to_le_bytes());
                for word in [data.window, data.vfrag, data.vfrag_bytes] {
                    out.extend(word.to_le_bytes());
                }
            }
            Frame::Window(window) => {
                let partial = window.partial.as_slice();
                out.extend([WINDOW, window.done as u8 | (window.last as u8) << 1, partial.len() as u8]);
                for word in [window.transfer, window.window, window.base] {
                    out.extend(word.to_le_bytes());
                }
                out.extend(window.granted_bytes.to_le_bytes());
                out.extend(window.complete.to_le_bytes());
                for one in partial {
                    out.push(one.index);
                    out.extend(one.segment_bytes.to_le_bytes());
                    out.extend(one.segments.to_le_bytes());
                }
            }
            Frame::Ping => out.push(PING),
            Frame::Pong => out.push(PONG),
        }
    }
}

struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    #[inline]
    fn take(&mut self, count: usize) -> Option<&'a [u8]> {
        let (head, rest) = self.0.split_at_checked(count)?;
        self.0 = rest;
        Some(head)
    }

    #[inline]
    fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (head, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(*head)
    }

    fn u8(&mut self) -> Option<u8> {
        self.array::<1>().map(|[byte]| byte)
    }
    fn u16(&mut self) -> Option<u16> {
        self.array().map(u16::from_le_bytes)
    }
    fn u32(&mut self) -> Option<u32> {
        self.array().map(u32::from_le_bytes)
    }
    fn u64(&mut self) -> Option<u64> {
        self.array().map(u64::from_le_bytes)
    }

    fn frame<'r>(&mut self, room: &'r mut Room) -> Option<Frame<'r>>
    where
        'a: 'r,
    {
        match self.u8()? {
            ACK => self.ack(&mut room.ack).map(|()| Frame::Ack(&room.ack)),
            MESSAGE => self.message().map(Frame::Message),
            DATA => self.data().map(Frame::Data),
            WINDOW => self.window(&mut room.window).map(|()| Frame::Window(&room.window)),
            PING => Some(Frame::Ping),
            PONG => Some(Frame::Pong),
            _ => None,
        }
    }

    #[inline]
    fn data(&mut self) -> Option<Data> {
        let (segment, segment_bytes) = (self.u8()?, self.u16()?);
        let [window, vfrag, vfrag_bytes] = [self.u32()?, self.u32()?, self.u32()?];
        let sound =
            sound_cut(vfrag_bytes, segment_bytes, segment) && segment_bytes as u32 <= VFRAG_BYTES / 2 && vfrag_bytes <= stride_bytes(segment_bytes as u32);
        (window != 0 && vfrag_bytes > 0 && sound).then_some(Data { window, vfrag, vfrag_bytes, segment, segment_bytes })
    }

    fn ack(&mut self, ack: &mut Ack) -> Option<()> {
        let (words, counts) = (self.u8()? as usize, self.u8()?);
        let (partials, echoes) = (counts & 15, counts >> 4);
        ack.widened = self.u8()?;
        ack.next = self.u32()?;
        ack.released_bytes = self.u64()?;
        if words > SEEN_WORDS {
            return None;
        }
        ack.seen[words..].fill(0);
        ack.partial.clear();
        ack.echoes.clear();
        for word in &mut ack.seen[..words] {
            *word = self.u64()?;
        }
        // One way to say a thing: no empty words at the end.
        if words > 0 && ack.seen[words - 1] == 0 {
            return None;
        }
        for _ in 0..partials {
            let one = PartialMessage { sequence: self.u32()?, segments: self.u64()? };
            if !ack.partial.push(one) {
                return None;
            }
        }
        for _ in 0..echoes {
            let rail = self.u8()?;
            let one = Echo { rail: rail & !LATE, late: rail & LATE != 0, sent_us: self.u32()?, came_us: self.u32()? };
            if one.rail as usize >= RAILS_MAX || !ack.echoes.push(one) {
                return None;
            }
        }
        Some(())
    }

    fn message(&mut self) -> Option<Message<'a>> {
        let (class, segment, envelope_bytes) = (self.u8()?, self.u8()?, self.u8()? as usize);
        let (sequence, total_bytes, segment_bytes) = (self.u32()?, self.u32()?, self.u16()?);
        let class = match class {
            0 => Class::Eager,
            1 => Class::Request { transfer: self.u32()?, bytes: self.u64()? },
            2 => Class::Offer { window: self.u32()?, granted_bytes: self.u64()?, capacity_bytes: self.u64()? },
            3 => Class::Push { window: self.u32()?, transfer: self.u32()?, bytes: self.u64()? },
            4 => Class::Decline { transfer: self.u32()? },
            _ => return None,
        };
        let sound = match class {
            Class::Eager => true,
            Class::Request { transfer, bytes } => transfer != 0 && total_bytes == 0 && bytes <= BULK_BYTES_MAX,
            Class::Offer { window, granted_bytes, capacity_bytes } => {
                window != 0 && total_bytes == 0 && granted_bytes <= capacity_bytes && capacity_bytes <= BULK_BYTES_MAX
            }
            Class::Push { window, transfer, bytes } => window != 0 && (transfer != 0 || bytes == 0) && total_bytes == 0 && bytes <= BULK_BYTES_MAX,
            Class::Decline { transfer } => transfer != 0 && total_bytes == 0,
        };
        if !sound
            || envelope_bytes > if segment == 0 { ENVELOPE_BYTES_MAX } else { 0 }
            || total_bytes > VFRAG_BYTES
            || !sound_cut(total_bytes, segment_bytes, segment)
        {
            return None;
        }
        let envelope = self.take(envelope_bytes)?;
        Some(Message { sequence, class, total_bytes, segment, segment_bytes, envelope })
    }

    fn window(&mut self, window: &mut Window) -> Option<()> {
        let (flags, partials) = (self.u8()?, self.u8()?);
        (window.done, window.last) = (flags & 1 != 0, flags & 2 != 0);
        [window.transfer, window.window, window.base] = [self.u32()?, self.u32()?, self.u32()?];
        [window.granted_bytes, window.complete] = [self.u64()?, self.u64()?];
        window.partial.clear();
        for _ in 0..partials {
            let one = PartialVfrag { index: self.u8()?, segment_bytes: self.u16()?, segments: self.u64()? };
            if one.index as usize >= super::VFRAGS_MAX || !window.partial.push(one) {
                return None;
            }
        }
        (flags < 4 && window.window != 0 && window.granted_bytes <= BULK_BYTES_MAX).then_some(())
    }
}

/// Longest bulk transfer, bytes: VFRAGs, of at least half their full length, are counted in 32 bits.
pub const BULK_BYTES_MAX: u64 = (u32::MAX as u64 - 2 * super::VFRAGS_MAX as u64) * (VFRAG_BYTES / 2) as u64;
