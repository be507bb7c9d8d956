//! The connection protocol's frames: what two connection managers say to each other over TCP. Parsed once, here; nothing is trusted.
//!
//! A frame is a magic number, a version, a kind, the length of the body, and the body; all numbers are little endian.

use crate::segment::Locator;

const MAGIC: [u8; 4] = *b"VIPL";
const VERSION: u8 = 1;
pub const HEAD_BYTES: usize = 8;
/// Longest body, bytes.
pub const BODY_BYTES_MAX: usize = 512;
/// Longest address, host and discriminator, bytes.
pub const HOST_BYTES: usize = 6;
pub const DISCRIMINATOR_BYTES_MAX: usize = 64;

/// A network address: host and port, and which endpoint there.
#[derive(Clone, PartialEq, Eq, Debug, Hash, Default)]
pub struct Address {
    pub host: [u8; HOST_BYTES],
    pub discriminator: Vec<u8>,
}

impl Address {
    /// Whether a peer at `host` is meant: the same host, and the same port unless any will do.
    pub fn means(&self, host: &[u8; HOST_BYTES]) -> bool {
        self.host[..4] == host[..4] && (self.host[4..] == [0, 0] || self.host[4..] == host[4..])
    }
}

/// What a peer must know of a VI to accept it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Offer {
    pub level: u16,
    pub max_transfer: u64,
    pub qos: u64,
    pub write: bool,
    pub read: bool,
}

/// Where a process' board and a VI's segment are.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Card {
    /// Of the segment provider.
    pub kind: u8,
    pub pid: u32,
    pub board: Locator,
    pub board_nonce: u64,
    pub channel: Locator,
    pub channel_nonce: u64,
    pub address: [u8; HOST_BYTES],
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Frame {
    /// `peer`: of the peer-to-peer model; else of a client.
    Request {
        peer: bool,
        offer: Offer,
        card: Card,
        from: Address,
        to: Address,
    },
    Accept {
        offer: Offer,
        card: Card,
    },
    /// A value of `VIP_RETURN`.
    Refuse {
        code: u8,
    },
    /// Nobody waits for such a request.
    NoMatch,
    /// Both have asked: the receiver's own request will be answered.
    Later,
    /// The requester has what it needs; the connection stands.
    Confirm,
}

struct Reader<'a>(&'a [u8]);

impl Reader<'_> {
    fn bytes<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (head, rest) = self.0.split_first_chunk::<N>()?;
        self.0 = rest;
        Some(*head)
    }
    fn u8(&mut self) -> Option<u8> {
        self.bytes::<1>().map(|[byte]| byte)
    }
    fn u16(&mut self) -> Option<u16> {
        self.bytes().map(u16::from_le_bytes)
    }
    fn u32(&mut self) -> Option<u32> {
        self.bytes().map(u32::from_le_bytes)
    }
    fn u64(&mut self) -> Option<u64> {
        self.bytes().map(u64::from_le_bytes)
    }
    fn flag(&mut self) -> Option<bool> {
        self.u8().and_then(|byte| (byte < 2).then_some(byte == 1))
    }
    fn locator(&mut self) -> Option<Locator> {
        Some(Locator { place: self.u64()?, bytes: self.u64()? })
    }
    fn address(&mut self) -> Option<Address> {
        let host = self.bytes()?;
        let length = self.u8()? as usize;
        if length > DISCRIMINATOR_BYTES_MAX || length > self.0.len() {
            return None;
        }
        let (discriminator, rest) = self.0.split_at(length);
        self.0 = rest;
        Some(Address { host, discriminator: discriminator.to_vec() })
    }
    fn offer(&mut self) -> Option<Offer> {
        Some(Offer { level: self.u16()?, max_transfer: self.u64()?, qos: self.u64()?, write: self.flag()?, read: self.flag()? })
    }
    fn card(&mut self) -> Option<Card> {
        Some(Card {
            kind: self.u8()?,
            pid: self.u32()?,
            board: self.locator()?,
            board_nonce: self.u64()?,
            channel: self.locator()?,
            channel_nonce: self.u64()?,
            address: self.bytes()?,
        })
    }
}

fn put_offer(out: &mut Vec<u8>, offer: &Offer) {
    out.extend(offer.level.to_le_bytes());
    out.extend(offer.max_transfer.to_le_bytes());
    out.extend(offer.qos.to_le_bytes());
    out.extend([offer.write as u8, offer.read as u8]);
}

fn put_card(out: &mut Vec<u8>, card: &Card) {
    out.push(card.kind);
    out.extend(card.pid.to_le_bytes());
    for word in [card.board.place, card.board.bytes, card.board_nonce, card.channel.place, card.channel.bytes, card.channel_nonce] {
        out.extend(word.to_le_bytes());
    }
    out.extend(card.address);
}

fn put_address(out: &mut Vec<u8>, address: &Address) {
    out.extend(address.host);
    out.push(address.discriminator.len() as u8);
    out.extend(&address.discriminator);
}

impl Frame {
    /// The length of the body that follows this head; `None`: not of this protocol.
    pub fn body_bytes(head: &[u8; HEAD_BYTES]) -> Option<usize> {
        let bytes = u16::from_le_bytes([head[6], head[7]]) as usize;
        (head[..4] == MAGIC && head[4] == VERSION && bytes <= BODY_BYTES_MAX).then_some(bytes)
    }

    /// The frame, of which all bytes must be used.
    pub fn parse(bytes: &[u8]) -> Option<Frame> {
        let (head, body) = bytes.split_first_chunk::<HEAD_BYTES>()?;
        if Frame::body_bytes(head)? != body.len() {
            return None;
        }
        let mut reader = Reader(body);
        let frame = match head[5] {
            1 => Frame::Request { peer: reader.flag()?, offer: reader.offer()?, card: reader.card()?, from: reader.address()?, to: reader.address()? },
            2 => Frame::Accept { offer: reader.offer()?, card: reader.card()? },
            3 => Frame::Refuse { code: reader.u8()? },
            4 => Frame::NoMatch,
            5 => Frame::Later,
            6 => Frame::Confirm,
            _ => return None,
        };
        reader.0.is_empty().then_some(frame)
    }

    pub fn write(&self) -> Vec<u8> {
        let mut out = [&MAGIC[..], &[VERSION, 0, 0, 0]].concat();
        out[5] = match self {
            Frame::Request { peer, offer, card, from, to } => {
                out.push(*peer as u8);
                put_offer(&mut out, offer);
                put_card(&mut out, card);
                put_address(&mut out, from);
                put_address(&mut out, to);
                1
            }
            Frame::Accept { offer, card } => {
                put_offer(&mut out, offer);
                put_card(&mut out, card);
                2
            }
            Frame::Refuse { code } => {
                out.push(*code);
                3
            }
            Frame::NoMatch => 4,
            Frame::Later => 5,
            Frame::Confirm => 6,
        };
        let bytes = (out.len() - HEAD_BYTES) as u16;
        out[6..8].copy_from_slice(&bytes.to_le_bytes());
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn frames() -> Vec<Frame> {
        let offer = Offer { level: 2, max_transfer: 1 << 20, qos: 0, write: true, read: false };
        let locator = Locator { place: 7, bytes: 4096 };
        let card = Card { kind: 1, pid: 5, board: locator, board_nonce: 8, channel: locator, channel_nonce: 9, address: [127, 0, 0, 1, 1, 2] };
        let address = |n: usize| Address { host: [127, 0, 0, 1, 0, n as u8], discriminator: vec![n as u8; n] };
        vec![
            Frame::Request { peer: true, offer, card, from: address(0), to: address(DISCRIMINATOR_BYTES_MAX) },
            Frame::Accept { offer, card },
            Frame::Refuse { code: 6 },
            Frame::NoMatch,
            Frame::Later,
            Frame::Confirm,
        ]
    }

    #[test]
    fn frames_are_read_as_they_were_written() {
        for frame in frames() {
            let bytes = frame.write();
            assert_eq!(Frame::parse(&bytes), Some(frame));
            (0..bytes.len()).for_each(|end| assert_eq!(Frame::parse(&bytes[..end]), None));
        }
    }

    proptest! {
        #[test]
        #[cfg_attr(miri, ignore = "too many cases for an interpreter")]
        fn what_parses_says_the_same_again(which in 0usize..6, at in 0usize..300, byte: u8) {
            let mut bytes = frames()[which].write();
            let at = at % bytes.len();
            bytes[at] = byte;
            if let Some(frame) = Frame::parse(&bytes) {
                prop_assert_eq!(frame.write(), bytes);
            }
        }
    }
}
