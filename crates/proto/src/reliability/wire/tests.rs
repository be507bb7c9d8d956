//! What is written is read back, whatever comes is parsed or refused, and runs are what their datagrams are.

use super::*;
use proptest::prelude::*;

/// Segments are no shorter, bytes: a VFRAG in shorter ones would have more than there can be.
const SEGMENT_MIN: u16 = crate::reliability::SEGMENT_BYTES_MIN as u16;

fn header() -> impl Strategy<Value = Header> {
    (any::<[u32; 5]>(), 1..NUMBER_MAX, 0..RAILS_MAX as u8).prop_map(|(words, number, rail)| Header {
        direct: false,
        rail,
        source: words[0],
        destination: words[1],
        source_epoch: words[2],
        destination_epoch: words[3],
        sent_us: words[4],
        number,
    })
}

#[derive(Clone, Debug)]
enum Owned {
    Plain(Frame<'static>),
    Ack(Box<Ack>),
    Window(Box<Window>),
    Message(u32, Class, u32, u8, u16, Vec<u8>),
}

fn frame() -> impl Strategy<Value = Owned> {
    let ack = (any::<u32>(), any::<[u64; SEEN_WORDS]>(), 0..=SEEN_WORDS, any::<u64>(), any::<u8>(), 0..=PARTIALS_MAX, 0..5u8).prop_map(
        |(next, mut seen, words, released_bytes, widened, partials, echoes)| {
            seen[words..].fill(0);
            let mut ack = Ack { next, seen, released_bytes, widened, ..Ack::default() };
            for at in 0..partials {
                ack.partial.push(PartialMessage { sequence: next + at as u32, segments: released_bytes });
            }
            for rail in 0..echoes.min(RAILS_MAX as u8) {
                ack.echoes.push(Echo { rail, sent_us: next, came_us: !next, late: next & 1 == 0 });
            }
            Owned::Ack(Box::new(ack))
        },
    );
    let window = (1u32.., any::<[u32; 2]>(), 0..BULK_BYTES_MAX, any::<u64>(), any::<bool>(), 0..=PARTIALS_MAX as u8).prop_map(
        |(window, [transfer, base], granted_bytes, complete, done, partials)| {
            let mut frame = Window { transfer, window, granted_bytes, base, complete, done, last: !done && base % 2 == 0, partial: List::default() };
            for index in 0..partials {
                frame.partial.push(PartialVfrag { index, segment_bytes: 1400, segments: complete });
            }
            Owned::Window(Box::new(frame))
        },
    );
    let eager = (any::<u32>(), 0..VFRAG_BYTES, SEGMENT_MIN..=u16::MAX, any::<u16>(), 0..ENVELOPE_BYTES_MAX).prop_map(|(sequence, total, cut, at, envelope)| {
        let segment = (at as u32 % total.div_ceil(cut as u32).max(1)) as u8;
        let envelope = if segment == 0 { vec![7; envelope] } else { vec![] };
        Owned::Message(sequence, Class::Eager, total, segment, cut, envelope)
    });
    let other = (any::<u32>(), 1u32.., 1u32.., 0..BULK_BYTES_MAX, 0..4).prop_map(|(sequence, a, b, bytes, which)| {
        let class = match which {
            0 => Class::Request { transfer: a, bytes },
            1 => Class::Offer { window: a, granted_bytes: bytes / 2, capacity_bytes: bytes },
            2 => Class::Push { window: a, transfer: b, bytes },
            _ => Class::Decline { transfer: a },
        };
        Owned::Message(sequence, class, 0, 0, 1, vec![1, 2, 3])
    });
    prop_oneof![ack, window, eager, other, Just(Owned::Plain(Frame::Ping)), Just(Owned::Plain(Frame::Pong))]
}

impl Owned {
    fn frame(&self) -> Frame<'_> {
        match self {
            Owned::Plain(frame) => *frame,
            Owned::Ack(ack) => Frame::Ack(ack),
            Owned::Window(window) => Frame::Window(window),
            Owned::Message(sequence, class, total_bytes, segment, segment_bytes, envelope) => Frame::Message(Message {
                sequence: *sequence,
                class: *class,
                total_bytes: *total_bytes,
                segment: *segment,
                segment_bytes: *segment_bytes,
                envelope,
            }),
        }
    }
}

/// The first of `segments` (number, and how many) and those behind it make a run, as read one by one; and it ends where header or frame of a datagram
/// is changed, which have `head_bytes`.
fn is_run_of(mut bytes: Vec<u8>, each_bytes: usize, head_bytes: usize, segments: (usize, usize), at: usize) -> Result<(), TestCaseError> {
    let (first, expected) = segments;
    let run = Run::parse(&bytes, each_bytes).unwrap();
    prop_assert_eq!(run.payload_bytes() as usize, run.payloads().map(<[u8]>::len).sum::<usize>());
    for ((index, one), datagram) in run.packets().enumerate().zip(bytes.chunks(each_bytes)) {
        let alone = Packet::parse(datagram).unwrap();
        prop_assert_eq!((alone.header, alone.lone, alone.payload), (one.header, one.lone, one.payload));
        prop_assert_eq!(run.segments() >> (first + index) & 1, 1);
    }
    prop_assert_eq!(run.segments().count_ones() as usize, expected);
    let changed = at % bytes.len();
    bytes[changed] ^= 1;
    let (datagram, within) = (changed / each_bytes, changed % each_bytes);
    let unseen = within >= head_bytes || (FIXED_BYTES..HEADER_BYTES).contains(&within);
    let length = Run::length(&bytes, each_bytes);
    prop_assert!(
        if unseen {
            length == expected
        } else if datagram > 0 {
            length == datagram
        } else {
            length <= expected
        },
        "{} of {}",
        length,
        expected
    );
    Ok(())
}

/// A VFRAG of a transfer is as many whole segments as leave in one run.
#[test]
fn vfrags_of_transfers_fill_runs() {
    for segment_bytes in crate::reliability::SEGMENT_BYTES_MIN..=VFRAG_BYTES / 2 {
        let segments = stride_bytes(segment_bytes) / segment_bytes;
        let run_bytes = |segments: u32| segments * (segment_bytes + RUN_HEAD_BYTES as u32);
        assert_eq!(stride_bytes(segment_bytes), segments * segment_bytes);
        assert!((2..=SEGMENTS_MAX as u32).contains(&segments) && stride_bytes(segment_bytes) <= VFRAG_BYTES, "{segment_bytes}");
        assert!(segments == 2 || run_bytes(segments) <= RUN_BYTES_MAX, "{segment_bytes}");
        assert!(run_bytes(segments + 1) > RUN_BYTES_MAX, "{segment_bytes}");
    }
}

proptest! {
    /// What is written is read back, and no prefix of it is taken for a whole.
    #[test]
    fn round_trip(header in header(), frames in proptest::collection::vec(frame(), 0..6), cut in any::<u16>()) {
        let mut bytes = Vec::new();
        begin(&mut bytes, &header);
        let mut payload = 0;
        for frame in &frames {
            let before = bytes.len();
            frame.frame().write(&mut bytes);
            let written = bytes.len() - before;
            match frame.frame() {
                Frame::Ack(_) => prop_assert!(written <= ACK_BYTES_MAX),
                Frame::Window(_) => prop_assert!(written <= WINDOW_BYTES_MAX),
                Frame::Message(message) => {
                    prop_assert!(written <= MESSAGE_BYTES_MAX + message.envelope.len());
                    payload += message.length_bytes();
                }
                _ => {}
            }
        }
        finish(&mut bytes);
        bytes.resize(bytes.len() + payload, 9);
        let packet = Packet::parse(&bytes).unwrap();
        prop_assert_eq!(packet.header, header);
        let mut read = packet.frames();
        for frame in &frames {
            prop_assert_eq!(read.next().unwrap().0, frame.frame());
        }
        prop_assert!(read.next().is_none());
        let shorter = cut as usize % bytes.len();
        prop_assert!(Packet::parse(&bytes[..shorter]).is_none());
    }

    #[test]
    fn data_round_trip(window in 1u32.., vfrag in any::<u32>(), long in any::<u32>(), cut in SEGMENT_MIN..=32768, at in any::<u16>()) {
        let vfrag_bytes = long % stride_bytes(cut as u32) + 1;
        let segment = (at as u32 % vfrag_bytes.div_ceil(cut as u32)) as u8;
        let data = Data { window, vfrag, vfrag_bytes, segment, segment_bytes: cut };
        let header = Header {
            direct: true, rail: 1, source: 1, destination: 2, source_epoch: 3, destination_epoch: 4, sent_us: 5, number: 6,
        };
        let mut bytes = Vec::new();
        begin(&mut bytes, &header);
        Frame::Data(data).write(&mut bytes);
        prop_assert_eq!(bytes.len(), HEADER_BYTES + DATA_BYTES);
        finish(&mut bytes);
        bytes.resize(bytes.len() + data.length_bytes(), 1);
        let packet = Packet::parse(&bytes).unwrap();
        let mut frames = packet.frames();
        prop_assert_eq!(frames.next().unwrap().0, Frame::Data(data));
        prop_assert!(data.offset_bytes() + data.length_bytes() as u64 <= (vfrag as u64 + 1) * stride_bytes(cut as u32) as u64);
    }

    /// A segment of a message that has several may be padded where it is the only one, and nothing else; that of the next one's datagram has a header made of it.
    #[test]
    fn segments_of_messages(header in header(), total in 2u32..=VFRAG_BYTES, cut in SEGMENT_MIN..=1400, at in any::<u16>(), padding in 1usize..100, after: bool, told: bool) {
        let count = total.div_ceil(cut as u32);
        let message = |segment: u32| Message {
            sequence: 7, class: Class::Eager, total_bytes: total, segment: segment as u8, segment_bytes: cut, envelope: &[],
        };
        let datagram = |number: u64, segment: u32, padding: usize| {
            let mut bytes = Vec::new();
            begin(&mut bytes, &Header { number, ..header });
            Frame::Message(message(segment)).write(&mut bytes);
            finish(&mut bytes);
            let head_bytes = bytes.len();
            bytes.resize(head_bytes + message(segment).length_bytes(), 3);
            bytes.resize(bytes.len() + padding, 0);
            (bytes, head_bytes)
        };
        let number = header.number.min(NUMBER_MAX - 1);
        let segment = at as u32 % count;
        let (mut bytes, head_bytes) = datagram(number, segment, padding);
        let packet = Packet::parse(&bytes);
        prop_assert_eq!(packet.map(|packet| packet.payload.len()), (count > 1).then(|| message(segment).length_bytes()));
        if let Some(packet) = packet {
            let mut frames = packet.frames();
            prop_assert_eq!(frames.next().map(|(frame, payload)| (frame, payload.len())), Some((Frame::Message(message(segment)), message(segment).length_bytes())));
            prop_assert!(frames.next().is_none());
        }
        prop_assert!(Packet::parse(&bytes[..bytes.len() - padding - 1]).is_none());
        if after {
            // Two messages in one datagram fill it.
            let empty = Message { sequence: 8, class: Class::Eager, total_bytes: 0, segment: 0, segment_bytes: cut, envelope: &[] };
            let mut two = bytes[..head_bytes].to_vec();
            Frame::Message(empty).write(&mut two);
            finish(&mut two);
            two.extend_from_slice(&bytes[head_bytes..]);
            prop_assert!(Packet::parse(&two).is_none());
            prop_assert!(Packet::parse(&two[..two.len() - padding]).is_some());
        }
        if told {
            // What there is to tell goes before it, and fills its datagram alone.
            let mut frames = Vec::new();
            begin(&mut frames, &header);
            Frame::Ack(&Ack::default()).write(&mut frames);
            let mut alone = frames.clone();
            finish(&mut alone);
            prop_assert!(Packet::parse(&alone).is_some());
            alone.resize(alone.len() + padding, 0);
            prop_assert!(Packet::parse(&alone).is_none());
            Frame::Message(message(segment)).write(&mut frames);
            finish(&mut frames);
            frames.extend_from_slice(&bytes[head_bytes..]);
            prop_assert_eq!(Packet::parse(&frames).map(|packet| packet.payload.len()), (count > 1).then(|| message(segment).length_bytes()));
        }
        if segment + 1 < count {
            advance_message(&mut bytes[..head_bytes]);
            prop_assert_eq!(&bytes[..head_bytes], &datagram(number + 1, segment + 1, 0).0[..head_bytes]);
        }
    }

    /// Any bytes parse or do not; none of them panics.
    #[test]
    fn any_bytes(mut bytes in proptest::collection::vec(any::<u8>(), 0..300), kind in 0u8..8) {
        if bytes.len() > HEADER_BYTES {
            (bytes[0], bytes[1], bytes[31]) = (VERSION, bytes[1] & 1, bytes[31] & 1);
            let frames = (bytes.len() - HEADER_BYTES) as u16;
            bytes[2..4].copy_from_slice(&frames.to_le_bytes());
            bytes[HEADER_BYTES] = kind;
        }
        if let Some(packet) = Packet::parse(&bytes) {
            let mut frames = packet.frames();
            while frames.next().is_some() {}
        }
    }
}

proptest! {
    /// A run is what its datagrams are one by one, as far as each follows the one before; a byte changed in a head ends it there, or makes it no run.
    #[test]
    fn runs(header in header(), segment_bytes in SEGMENT_MIN..9000, vfrag_bytes in 1u32..=VFRAG_BYTES, first: u8, count in 1usize..70, padded: bool, at: usize) {
        let vfrag_bytes = vfrag_bytes.min(stride_bytes(segment_bytes as u32));
        let segments = vfrag_bytes.div_ceil(segment_bytes as u32) as usize;
        let first = first as usize % segments;
        let expected = count.min(segments - first);
        let data = Data { window: 7, vfrag: 3, vfrag_bytes, segment: first as u8, segment_bytes };
        let mut head = Vec::new();
        begin(&mut head, &Header { direct: true, number: header.number.min(NUMBER_MAX - 100), ..header });
        Frame::Data(data).write(&mut head);
        finish(&mut head);
        let each_bytes = RUN_HEAD_BYTES + if first + 1 < segments || padded { segment_bytes as usize } else { data.length_bytes() };
        let mut bytes = Vec::new();
        for index in 0..expected {
            let one = Data { segment: (first + index) as u8, ..data };
            let length = if padded { each_bytes - RUN_HEAD_BYTES } else { one.length_bytes() };
            bytes.extend_from_slice(&head);
            bytes.extend((0..length).map(|at| (at + index) as u8));
            advance(&mut head);
        }
        prop_assert_eq!(Run::length(&bytes, each_bytes), expected);
        let run = Run::parse(&bytes, each_bytes).unwrap();
        prop_assert_eq!(run.count() as usize, expected);
        is_run_of(bytes, each_bytes, RUN_HEAD_BYTES, (first, expected), at)?;
    }

    /// The same of a message, the first segment of which is no part of a run.
    #[test]
    fn runs_of_messages(header in header(), segment_bytes in SEGMENT_MIN..9000, total_bytes in 2u32..=VFRAG_BYTES, first: u8, count in 1usize..70, more in 0usize..50, at: usize) {
        // Fewer make no run.
        let total_bytes = total_bytes.max(segment_bytes as u32 + 1);
        let segments = total_bytes.div_ceil(segment_bytes as u32) as usize;
        let first = first as usize % segments;
        let expected = count.min(segments - first);
        let message = Message { sequence: 9, class: Class::Eager, total_bytes, segment: first as u8, segment_bytes, envelope: &[] };
        let mut head = Vec::new();
        begin(&mut head, &Header { number: header.number.min(NUMBER_MAX - 100), ..header });
        Frame::Message(message).write(&mut head);
        finish(&mut head);
        let each_bytes = head.len() + segment_bytes as usize + more;
        let mut bytes = Vec::new();
        for index in 0..expected {
            bytes.extend_from_slice(&head);
            bytes.extend((0..each_bytes - head.len()).map(|at| (at + index) as u8));
            advance_message(&mut head);
        }
        if first == 0 {
            prop_assert_eq!(Run::length(&bytes, each_bytes), 0);
            return Ok(());
        }
        prop_assert_eq!(Run::length(&bytes, each_bytes), expected);
        let run = Run::parse(&bytes, each_bytes).unwrap();
        prop_assert_eq!((run.count() as usize, run.first), (expected, Lone::Message(message)));
        is_run_of(bytes, each_bytes, head.len(), (first, expected), at)?;
    }

    /// Whatever comes, a run stays inside its bytes and its VFRAG.
    #[test]
    fn no_run_is_too_long(bytes in proptest::collection::vec(any::<u8>(), 0..3000), each_bytes in 1usize..1500, of_message: bool) {
        let mut bytes = bytes;
        for at in (0..bytes.len()).step_by(each_bytes) {
            let head = if of_message { [VERSION, 0, EAGER_BYTES as u8, 0] } else { [VERSION, DIRECT, DATA_BYTES as u8, 0] };
            bytes[at..].iter_mut().zip(head).for_each(|(to, from)| *to = from);
            let frame = if of_message { [MESSAGE, 0, 1, 0] } else { [DATA, 0, 0, 4] };
            bytes[at..].iter_mut().skip(HEADER_BYTES).zip(frame).for_each(|(to, from)| *to = from);
        }
        let count = Run::length(&bytes, each_bytes);
        if count > 0 {
            let run = Run::parse(&bytes[..bytes.len().min(count * each_bytes)], each_bytes).unwrap();
            prop_assert_eq!(run.payloads().count(), count);
            prop_assert!(run.payload_bytes() <= VFRAG_BYTES);
        }
    }
}
