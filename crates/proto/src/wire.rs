//! The packets that ranks exchange: two header words, and for control packets a few words of payload.
//!
//! A header is 16 bytes, so that header and 48 bytes of payload share one cache line:
//!
//! | word | bits | meaning |
//! | --- | --- | --- |
//! | 0 | 0..8 | the fabric's own (phase, length) |
//! | 0 | 8..16 | [`Kind`] |
//! | 0 | 16..64 | [`Context`] |
//! | 1 | 0..32 | tag |
//! | 1 | 32..64 | source rank in the communicator |

use crate::envelope::Pattern;
pub use crate::envelope::{Context, Envelope};
use crate::rendezvous::Rtr;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum Kind {
    /// The payload is the message.
    Eager = 1,
    /// As eager, after one word that names the sender's request, which wants a [`Kind::Fin`] when matched. In datagrams it may also be pulled.
    EagerSync = 2,
    /// Request to send: [`Rts`].
    Rts = 3,
    /// Clear to send: [`Cts`]; the sender answers with [`Kind::Data`].
    Cts = 4,
    /// A piece of a message: two words (receiver's request, offset), then the bytes.
    Data = 5,
    /// One word: the sender's request is complete.
    Fin = 6,
    /// One word: the sender would like to take its request to send back.
    Cancel = 7,
    /// Two words: sender's request, and whether it was taken back.
    Cancelled = 8,
    /// An offer to copy together: [`Cooperative`].
    Cooperative = 9,
    /// One word: the receiver's request, all of whose pieces have been written by the sender.
    CooperativeDone = 10,
    /// No words: the sender may leave more headers, since the receiver waits for something that may be behind them.
    Widen = 11,
    /// Request to receive: an [`Rtr`](crate::rendezvous::Rtr), under the envelope that its sender would use.
    Rtr = 12,
    /// A message that answers an RTR: [`Start`].
    Start = 13,
    /// One word: the sender has forgotten all RTRs of the receiver, for the time that the word says.
    Reset = 14,
    /// No words: the receiver has taken an RTR back, and wants a [`Kind::Reset`]. By acknowledgements, both are about their envelope.
    Forget = 15,
    /// As [`Kind::Rts`], with the flags *stop-RTR* and *resume-RTR* of the rendezvous by [acknowledgements](crate::rendezvous::acks).
    RtsStop = 16,
    RtsResume = 17,
    /// One word: the sender's request has been matched, under its envelope; no RTR comes from its receive any more.
    RtsAck = 18,
    /// One word: the sender has ended without the others, for want of the process that the word names. Nothing of it follows.
    Left = 19,
    /// One word: a process that the sender takes for failed.
    Lost = 20,
    /// A piece that the sender has claimed of a copy that both do: two words (receiver's request; piece, and the copy's generation above it), then the bytes.
    Piece = 21,
}

impl Kind {
    /// Only peers that share memory say it: it is about memory that both can reach, or about credit that lies there.
    pub fn needs_shared_memory(self) -> bool {
        match self {
            Kind::Eager | Kind::EagerSync | Kind::Fin | Kind::Cancel | Kind::Cancelled | Kind::Reset | Kind::Forget | Kind::Left | Kind::Lost => false,
            Kind::Rts | Kind::RtsStop | Kind::RtsResume | Kind::RtsAck | Kind::Cts | Kind::Data | Kind::Piece | Kind::Rtr | Kind::Start => true,
            Kind::Cooperative | Kind::CooperativeDone | Kind::Widen => true,
        }
    }

    pub fn from_raw(raw: u8) -> Option<Kind> {
        Some(match raw {
            1 => Kind::Eager,
            2 => Kind::EagerSync,
            3 => Kind::Rts,
            4 => Kind::Cts,
            5 => Kind::Data,
            6 => Kind::Fin,
            7 => Kind::Cancel,
            8 => Kind::Cancelled,
            9 => Kind::Cooperative,
            10 => Kind::CooperativeDone,
            11 => Kind::Widen,
            12 => Kind::Rtr,
            13 => Kind::Start,
            14 => Kind::Reset,
            15 => Kind::Forget,
            16 => Kind::RtsStop,
            17 => Kind::RtsResume,
            18 => Kind::RtsAck,
            19 => Kind::Left,
            20 => Kind::Lost,
            21 => Kind::Piece,
            _ => return None,
        })
    }
}

/// The two header words of a message with an envelope.
#[inline]
pub fn header(kind: Kind, envelope: Envelope) -> [u64; 2] {
    [((kind as u64) << 8) | (envelope.context.0 << 16), (envelope.tag as u32 as u64) | ((envelope.source as u64) << 32)]
}

/// The two header words of a control packet.
#[inline]
pub fn control(kind: Kind) -> [u64; 2] {
    [(kind as u64) << 8, 0]
}

/// What a header says; `None` when the kind is unknown.
#[inline]
pub fn parse(head: [u64; 2]) -> Option<(Kind, Envelope)> {
    let kind = Kind::from_raw((head[0] >> 8) as u8)?;
    Some((kind, Envelope { context: Context(head[0] >> 16), source: (head[1] >> 32) as u32, tag: head[1] as u32 as i32 }))
}

/// Request to send: a message of `bytes` waits at the sender.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Rts {
    /// The sender's request.
    pub request: u64,
    /// Length of the message.
    pub bytes: u64,
    /// Where it lies in the sender's memory, or the list of its pieces; 0 where neither is told.
    pub address: u64,
    /// Pieces in the list, of two words each: address and length. 0: it lies in one piece.
    pub pieces: u64,
}

impl Rts {
    pub const WORDS: usize = 4;
    pub fn to_words(self) -> [u64; 4] {
        [self.request, self.bytes, self.address, self.pieces]
    }
    pub fn parse(words: &[u64]) -> Option<Rts> {
        let &[request, bytes, address, pieces] = words else { return None };
        (bytes <= i64::MAX as u64).then_some(Rts { request, bytes, address, pieces })
    }
}

/// Clear to send: the sender may send `bytes` of the message as [`Kind::Data`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Cts {
    /// The sender's request.
    pub request: u64,
    /// The receiver's request, to be named in the data.
    pub receiver: u64,
    /// How much the receiver takes; less than the message when its buffer is shorter.
    pub bytes: u64,
}

impl Cts {
    pub fn to_words(self) -> [u64; 3] {
        [self.request, self.receiver, self.bytes]
    }
    pub fn parse(words: &[u64]) -> Option<Cts> {
        let &[request, receiver, bytes] = words else { return None };
        Some(Cts { request, receiver, bytes })
    }
}

/// The receiver offers to copy together: pieces are claimed from the shared descriptor `slot`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Cooperative {
    pub request: u64,
    pub receiver: u64,
    /// Number of the descriptor in the receiver's segment.
    pub slot: u64,
    /// Where the message goes in the receiver's memory, or the list of its pieces there.
    pub address: u64,
    pub bytes: u64,
    /// Pieces in the list, as in [`Rts`].
    pub pieces: u64,
}

impl Cooperative {
    pub fn to_words(self) -> [u64; 6] {
        [self.request, self.receiver, self.slot, self.address, self.bytes, self.pieces]
    }
    pub fn parse(words: &[u64]) -> Option<Cooperative> {
        let &[request, receiver, slot, address, bytes, pieces] = words else { return None };
        Some(Cooperative { request, receiver, slot, address, bytes, pieces })
    }
}

/// A message whose receive the sender knows of by an RTR. The copy has begun.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Start {
    /// The sender's request.
    pub request: u64,
    /// Length of the message.
    pub bytes: u64,
    /// Where it lies in the sender's memory, or the list of its pieces.
    pub address: u64,
    /// The receiver's request.
    pub receiver: u64,
    /// Pieces in the list, as in [`Rts`].
    pub pieces: u64,
}

impl Start {
    pub const WORDS: usize = 5;
    pub fn to_words(self) -> [u64; 5] {
        [self.request, self.bytes, self.address, self.receiver, self.pieces]
    }
    pub fn parse(words: &[u64]) -> Option<Start> {
        let &[request, bytes, address, receiver, pieces] = words else { return None };
        (bytes <= i64::MAX as u64).then_some(Start { request, bytes, address, receiver, pieces })
    }
}

impl Rtr {
    /// The words under a header with the receive's context, and its tag or 0 for any.
    pub fn to_words(self) -> [u64; 6] {
        let any = (self.tag == Pattern::ANY_TAG) as u64;
        let slot = self.slot as u64 | (self.generation as u64) << 32;
        [self.request, slot, self.address, self.room_bytes, self.seen as u64, self.epoch as u64 | (self.pieces as u64) << 31 | any << 63]
    }

    pub fn parse(envelope: Envelope, words: &[u64]) -> Option<Rtr> {
        let &[request, slot, address, room_bytes, seen, epoch] = words else { return None };
        let tag = if epoch >> 63 == 1 { Pattern::ANY_TAG } else { envelope.tag };
        let (seen, pieces, epoch) = (u32::try_from(seen).ok()?, (epoch >> 31) as u32, epoch as u32 & (u32::MAX >> 1));
        let (slot, generation) = (slot as u32, (slot >> 32) as u32);
        let context = envelope.context.0;
        (room_bytes <= i64::MAX as u64).then_some(Rtr { request, slot, generation, address, room_bytes, pieces, seen, epoch, context, tag })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn header_survives(process in 0..Context::PROCESSES_MAX, counter in 0..=Context::COUNTER_MAX, coll: bool, source: u32, tag: i32) {
            let mut context = Context::new(process, counter).unwrap();
            if coll { context = context.collective(); }
            let envelope = Envelope { context, source, tag };
            for raw in 0..=255u8 {
                if let Some(kind) = Kind::from_raw(raw) {
                    prop_assert_eq!(kind as u8, raw);
                    let mut head = header(kind, envelope);
                    head[0] |= 0xff; // the fabric's bits do not matter
                    prop_assert_eq!(parse(head), Some((kind, envelope)));
                }
            }
        }

        #[test]
        fn any_words_parse_without_panic(words in proptest::collection::vec(any::<u64>(), 0..7), head: [u64; 2]) {
            let _ = (parse(head), Rts::parse(&words), Cts::parse(&words), Cooperative::parse(&words), Start::parse(&words));
            if let Some((_, envelope)) = parse(head) {
                let _ = Rtr::parse(envelope, &words);
            }
        }

        #[test]
        fn an_rtr_survives(request: u64, slot: u32, generation: u32, address: u64, room_bytes in 0..=i64::MAX as u64, pieces: u32, seen: u32, epoch in 0..=u32::MAX >> 1, tag in -1i32..) {
            for tag in [tag, Pattern::ANY_TAG] {
                let rtr = Rtr { request, slot, generation, address, room_bytes, pieces, seen, epoch, context: 77, tag };
                let head = header(Kind::Rtr, Envelope { context: Context(77), source: 3, tag: if tag == Pattern::ANY_TAG { 0 } else { tag } });
                prop_assert_eq!(Rtr::parse(parse(head).unwrap().1, &rtr.to_words()), Some(rtr));
            }
        }
    }

    #[test]
    fn contexts_are_distinct_and_bounded() {
        assert_ne!(Context::new(1, 0), Context::new(0, 1));
        assert_ne!(Context::new(1, 0).unwrap().collective(), Context::new(1, 1).unwrap());
        assert_eq!(Context::new(Context::PROCESSES_MAX, 0), None);
        assert_eq!(Context::new(0, Context::COUNTER_MAX + 1), None);
        for vci in 0..Context::VCIS {
            let context = Context::by_vci(5, vci, Context::COUNTER_MAX).unwrap();
            assert_eq!([context, context.collective(), Context::from_raw(context.raw())].map(Context::vci), [vci; 3]);
            assert_eq!(Some(context.of_first_vci()), Context::new(5, Context::COUNTER_MAX));
        }
        assert_eq!(Context::by_vci(0, Context::VCIS, 0), None);
        let top = Context::new(Context::PROCESSES_MAX - 1, Context::COUNTER_MAX).unwrap().collective();
        assert_eq!(Context::from_raw(top.raw()), top);
        // What is drawn no process gives out, and its companion is its own.
        for random in [0, u64::MAX, 0x1234_5678_9abc_def1] {
            let drawn = Context::drawn(random, 3);
            assert!(drawn.raw() > top.raw() && drawn.raw() & 3 == 0 && drawn.vci() == 3 && drawn.raw() + 3 < 1 << 48);
            assert_eq!(Context::from_raw(drawn.raw()), drawn);
        }
    }
}
