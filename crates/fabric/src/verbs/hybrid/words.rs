//! What hybrids say to each other beside messages, as headers of kinds that no message has.

use std::net::Ipv6Addr;

use proto::p2p::Header;

use super::handshake::Word;
use crate::verbs::connections::Own;
use crate::verbs::{Offer, Wire};

/// Kinds from here on are none of messages; 0xff is one of [`proto::routes`].
const KINDS: u64 = 0xf0;
const CONNECT: u64 = 0xf0;
const READY: u64 = 0xf1;
const ENDED: u64 = 0xf2;
const ROUTED: u64 = 0xf3;

/// The pair that goes with [`Word::Connect`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Told {
    pub own: Own,
    /// Its port.
    pub offer: Offer,
    /// How often its process has widened the allowance of the receiver.
    pub widened: u32,
}

const WIRES: [Wire; 3] = [Wire::InfiniBand, Wire::RoceV1, Wire::RoceV2];

fn kind(head: &Header) -> u64 {
    head.head[0] >> 8
}

/// Whether a header is none of a message, as it lies in an envelope.
#[inline]
pub fn is_one(envelope: &[u8]) -> bool {
    envelope.len() >= 16 && u64::from(envelope[1]) >= KINDS && envelope[2..8] == [0; 6]
}

/// From here on messages are numbered: the first number itself.
pub fn routed() -> Header {
    Header::new([ROUTED << 8, 0], &[])
}

pub fn is_routed(header: &Header) -> bool {
    kind(header) == ROUTED
}

fn two(low: u32, high: u32) -> u64 {
    u64::from(low) | u64::from(high) << 32
}

fn halves(word: u64) -> (u32, u32) {
    (word as u32, (word >> 32) as u32)
}

/// A word, [`Word::Connect`] with `told`.
pub fn header(word: Word, told: Option<&Told>) -> Header {
    match (word, told) {
        (Word::Connect { mine, answers }, Some(Told { own, offer, widened })) => {
            let wire = WIRES.iter().position(|wire| *wire == offer.wire).unwrap_or(0) as u32;
            let mtu = own.mtu_bytes.trailing_zeros() << 8 | u32::from(own.reads);
            let gid = u128::from(offer.gid);
            let words = [two(own.number, own.psn), two(mtu, *widened), two(u32::from(offer.lid), wire), gid as u64, (gid >> 64) as u64];
            Header::new([CONNECT << 8, two(mine, answers)], &words)
        }
        (Word::Ready { mine, theirs }, _) => Header::new([READY << 8, two(mine, theirs)], &[]),
        (Word::Ended { mine, theirs }, _) => Header::new([ENDED << 8, two(mine, theirs)], &[]),
        (Word::Connect { .. }, None) => unreachable!("a connection to no pair"),
    }
}

/// What a header says. `None` where it says nothing that can be.
pub fn parse(header: &Header) -> Option<(Word, Option<Told>)> {
    let (first, second) = halves(header.head[1]);
    match (kind(header), header.words()) {
        (CONNECT, &[pair, mtu, port, low, high]) => {
            let ((number, psn), (mtu, widened), (lid, wire)) = (halves(pair), halves(mtu), halves(port));
            let own = Own { number, psn, mtu_bytes: 1u32.checked_shl(mtu >> 8)?, reads: mtu as u8 };
            let gid = Ipv6Addr::from(u128::from(high) << 64 | u128::from(low));
            let offer = Offer { wire: *WIRES.get(wire as usize)?, lid: lid.try_into().ok()?, gid, number, qkey: 0, mtu_bytes: own.mtu_bytes };
            let sound = first != 0 && (2..1 << 24).contains(&number) && (256..=4096).contains(&own.mtu_bytes);
            sound.then_some((Word::Connect { mine: first, answers: second }, Some(Told { own, offer, widened })))
        }
        (READY, []) => Some((Word::Ready { mine: first, theirs: second }, None)),
        (ENDED, []) => Some((Word::Ended { mine: first, theirs: second }, None)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn words_come_back(
            kind in 0..3, mine in 1u32.., theirs: u32, number in 2u32..1 << 24, psn in 0u32..1 << 24, mtu in 8u32..13, reads: u8, lid: u16, wire in 0..3usize,
            gid: u128, widened: u32,
        ) {
            let own = Own { number, psn, mtu_bytes: 1 << mtu, reads };
            let offer = Offer { wire: WIRES[wire], lid, gid: gid.into(), number, qkey: 0, mtu_bytes: 1 << mtu };
            let (word, told) = match kind {
                0 => (Word::Connect { mine, answers: theirs }, Some(Told { own, offer, widened })),
                1 => (Word::Ready { mine, theirs }, None),
                _ => (Word::Ended { mine, theirs }, None),
            };
            let header = header(word, told.as_ref());
            let (bytes, length) = header.to_bytes();
            prop_assert!(is_one(&bytes[..length]) && !is_routed(&header));
            prop_assert_eq!(parse(&header), Some((word, told)));
        }

        #[test]
        fn any_header(kind in 0xefu64..0x100, first: u64, words in proptest::collection::vec(any::<u64>(), 0..7)) {
            if let Some((_, Some(told))) = parse(&Header::new([kind << 8, first], &words)) {
                prop_assert!((256..=4096).contains(&told.own.mtu_bytes));
            }
        }
    }

    #[test]
    fn messages_are_none() {
        let (bytes, length) = routed().to_bytes();
        assert!(is_one(&bytes[..length]) && is_routed(&routed()) && parse(&routed()).is_none());
        for kind in 0..KINDS {
            // As high as a context may be.
            for context in [0, 1, (1 << 48) - 1] {
                let (bytes, length) = Header::new([context << 16 | kind << 8, 7], &[1]).to_bytes();
                assert!(!is_one(&bytes[..length]));
            }
        }
    }
}
