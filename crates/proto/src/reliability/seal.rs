//! The authenticator at the edge: keyed, and the checksum at the same time.
//!
//! A datagram has one tag over header, frames and payload, which is checked before anything else is done with it. The payload of a bulk
//! transfer is then copied to its place and compared there with what was authentic ([`super::Outside::place`]): what differs counts as lost,
//! and is overwritten by the next try.

use super::wire::{self, FIXED_BYTES, HEADER_BYTES, Packet, TAG_BYTES, Tag};

/// A keyed authenticator of 128 bits.
pub trait Seal {
    /// The tag over `header`, then `payload`. The first [`FIXED_BYTES`] bytes of `header` never repeat under one key, so that a
    /// nonce can be made of them.
    fn seal(&self, header: &[u8], payload: &[&[u8]]) -> Tag;

    /// Whether `tag` is the tag over these bytes; the time it takes does not depend on where they differ.
    fn open(&self, header: &[u8], payload: &[&[u8]], tag: &Tag) -> bool {
        same(&self.seal(header, payload), tag)
    }
}

/// Whether two tags are the same; the time it takes does not depend on where they differ.
pub fn same(one: &Tag, other: &Tag) -> bool {
    one.iter().zip(other).fold(0, |differs, (a, b)| differs | (a ^ b)) == 0
}

/// Puts the tag into `header` (all bytes of a datagram before its payload).
pub fn seal_datagram(seal: &impl Seal, header: &mut [u8], payload: &[&[u8]]) {
    header[FIXED_BYTES..HEADER_BYTES].fill(0);
    let tag = seal.seal(header, payload);
    header[FIXED_BYTES..HEADER_BYTES].copy_from_slice(&tag);
}

/// The datagram in `bytes` when it is sound and authentic.
pub fn open_datagram<'a>(seal: &impl Seal, bytes: &'a mut [u8]) -> Option<Packet<'a>> {
    let header = bytes.get_mut(FIXED_BYTES..HEADER_BYTES)?;
    let tag: Tag = (&*header).try_into().ok()?;
    header.fill(0);
    let bytes = &*bytes;
    let packet = Packet::parse(bytes)?;
    let (header, payload) = bytes.split_at(wire::bytes_before_payload(bytes));
    seal.open(header, &[payload], &tag).then_some(packet)
}

/// For tests and simulations: finds damage, keeps nobody out.
#[derive(Clone, Copy, Debug)]
pub struct TestSeal(pub u64);

impl Seal for TestSeal {
    fn seal(&self, header: &[u8], payload: &[&[u8]]) -> Tag {
        let mut sum = Mixer { state: self.0 ^ 0x9e37_79b9_7f4a_7c15, held: 0, length_bytes: 0 };
        sum.bytes(header);
        for slice in payload {
            sum.bytes(slice);
        }
        sum.finish()
    }
}

/// Multiply and rotate by words; slices count as one run of bytes, whatever their cut.
struct Mixer {
    state: u64,
    held: u64,
    length_bytes: u64,
}

impl Mixer {
    fn word(&mut self, word: u64) {
        self.state = (self.state ^ word).wrapping_mul(0xff51_afd7_ed55_8ccd).rotate_left(29);
    }

    fn bytes(&mut self, mut bytes: &[u8]) {
        while !self.length_bytes.is_multiple_of(8) {
            let Some((&first, rest)) = bytes.split_first() else { return };
            self.byte(first);
            bytes = rest;
        }
        let (words, odd) = bytes.as_chunks();
        for word in words {
            self.word(u64::from_le_bytes(*word));
        }
        self.length_bytes += words.len() as u64 * 8;
        odd.iter().for_each(|&byte| self.byte(byte));
    }

    fn byte(&mut self, byte: u8) {
        self.held = self.held << 8 | byte as u64;
        self.length_bytes += 1;
        if self.length_bytes.is_multiple_of(8) {
            let word = std::mem::take(&mut self.held).swap_bytes();
            self.word(word);
        }
    }

    fn finish(mut self) -> Tag {
        self.word(self.held);
        self.word(self.length_bytes);
        let low = self.state ^ (self.state >> 31);
        self.word(0x5bd1_e995);
        let mut tag = [0; TAG_BYTES];
        tag[..8].copy_from_slice(&low.to_le_bytes());
        tag[8..].copy_from_slice(&self.state.to_le_bytes());
        tag
    }
}

#[cfg(test)]
mod tests {
    use super::super::wire::{Data, Frame, Header, begin, finish};
    use super::*;

    fn datagram(direct: bool) -> Vec<u8> {
        let header = Header { direct, rail: 0, source: 1, destination: 2, source_epoch: 3, destination_epoch: 4, sent_us: 5, number: 6 };
        let (mut bytes, payload) = (Vec::new(), [7u8; 100]);
        begin(&mut bytes, &header);
        if direct {
            let data = Data { window: 1, vfrag: 0, vfrag_bytes: 100, segment: 0, segment_bytes: 1000 };
            Frame::Data(data).write(&mut bytes);
        } else {
            Frame::Ping.write(&mut bytes);
        }
        finish(&mut bytes);
        let carried: &[u8] = if direct { &payload } else { &[] };
        seal_datagram(&TestSeal(1), &mut bytes, &[carried]);
        bytes.extend(carried);
        bytes
    }

    #[test]
    fn the_cut_does_not_matter() {
        let bytes: Vec<u8> = (0..60).collect();
        let whole = TestSeal(3).seal(&bytes, &[]);
        for first in 0..=60 {
            for second in first..=60 {
                let cut = TestSeal(3).seal(&bytes[..first], &[&bytes[first..second], &bytes[second..]]);
                assert_eq!(cut, whole, "{first} {second}");
            }
        }
    }

    #[test]
    fn every_bit_is_covered() {
        for direct in [false, true] {
            let good = datagram(direct);
            for bit in 0..good.len() * 8 {
                let mut bad = good.clone();
                bad[bit / 8] ^= 1 << (bit % 8);
                assert!(open_datagram(&TestSeal(1), &mut bad).is_none(), "bit {bit}");
            }
            let packet = good.clone();
            assert!(open_datagram(&TestSeal(1), &mut packet.clone()).is_some());
            assert!(open_datagram(&TestSeal(2), &mut packet.clone()).is_none());
        }
    }
}
