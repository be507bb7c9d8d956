//! What processes tell each other with a request for a connection and its answer (private data of the connection manager), sealed with
//! the job's key: whoever has not got the key makes none that another one takes, and reads none.

use std::net::{IpAddr, Ipv6Addr, SocketAddr};

use crate::reliable::{JobKey, SEALED_MORE_BYTES};
use crate::verbs::sys::Pulse;

const VERSION: u32 = 1;
const MAGIC: u32 = 0x7768_636d;
const PLAIN_BYTES: usize = 64;
/// Where an answer may be, of whatever kind.
pub const PROOF_BYTES: usize = PLAIN_BYTES + SEALED_MORE_BYTES;
// Every transport passes as many.
const _: () = assert!(PROOF_BYTES <= 148);

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Says {
    /// A request; its sender listens here, and has this word for signs of life.
    Request(SocketAddr, Pulse),
    /// The request is taken; the sender of this has this word.
    Taken(Pulse),
    /// It is not, since a connection is there, or is being made by the other side.
    Crossed,
    /// It is not, and another one will not be either: its sender counts as failed here, or takes this process for another one.
    Gone,
}

/// Who says what to whom.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Proof {
    /// Rank and incarnation.
    pub from: (u32, u32),
    pub to: (u32, u32),
    /// Of the request; they rise, so that none counts twice.
    pub attempt: u32,
    pub says: Says,
}

impl Proof {
    fn to_bytes(self) -> [u8; PLAIN_BYTES] {
        let (kind, listens, pulse) = match self.says {
            Says::Request(listens, pulse) => (0, Some(listens), pulse),
            Says::Taken(pulse) => (1, None, pulse),
            Says::Crossed => (2, None, Pulse::default()),
            Says::Gone => (3, None, Pulse::default()),
        };
        let port = listens.map_or(0, |listens| listens.port().into());
        let [low, high] = [pulse.address as u32, (pulse.address >> 32) as u32];
        let words = [MAGIC, VERSION, kind, self.from.0, self.from.1, self.to.0, self.to.1, self.attempt, port, low, high, pulse.key];
        let mut bytes = [0; PLAIN_BYTES];
        bytes.chunks_exact_mut(4).zip(words).for_each(|(to, word)| to.copy_from_slice(&word.to_le_bytes()));
        let ip = match listens.map(|listens| listens.ip()) {
            Some(IpAddr::V4(ip)) => ip.to_ipv6_mapped(),
            Some(IpAddr::V6(ip)) => ip,
            None => Ipv6Addr::UNSPECIFIED,
        };
        bytes[48..].copy_from_slice(&ip.octets());
        bytes
    }

    fn parse(bytes: &[u8]) -> Option<Proof> {
        let bytes: &[u8; PLAIN_BYTES] = bytes.try_into().ok()?;
        let word = |at: usize| u32::from_le_bytes([bytes[4 * at], bytes[4 * at + 1], bytes[4 * at + 2], bytes[4 * at + 3]]);
        let ip = Ipv6Addr::from(*bytes.last_chunk::<16>()?);
        let (port, silent) = (u16::try_from(word(8)).ok()?, word(8) == 0 && ip.is_unspecified());
        let ip = ip.to_canonical();
        let pulse = Pulse { address: u64::from(word(10)) << 32 | u64::from(word(9)), key: word(11) };
        let has_pulse = pulse != Pulse::default();
        let says = match word(2) {
            0 if port != 0 && !ip.is_unspecified() && !ip.is_multicast() => Says::Request(SocketAddr::new(ip, port), pulse),
            1 if silent => Says::Taken(pulse),
            2 if silent && !has_pulse => Says::Crossed,
            3 if silent && !has_pulse => Says::Gone,
            _ => return None,
        };
        let sound = word(0) == MAGIC && word(1) == VERSION;
        sound.then_some(Proof { from: (word(3), word(4)), to: (word(5), word(6)), attempt: word(7), says })
    }

    /// As private data; nothing where the system has no random numbers.
    pub fn sealed(self, key: &JobKey) -> Option<Vec<u8>> {
        key.seal(&self.to_bytes()).ok()
    }

    /// What private data say, if they were made with `key`. Some transports pass more bytes than were given to them.
    pub fn open(private_data: &[u8], key: &JobKey) -> Option<Proof> {
        Proof::parse(&key.open(private_data.get(..PROOF_BYTES)?)?)
    }

    /// Whether this answers `request`.
    pub fn answers(&self, request: &Proof) -> bool {
        self.from == request.to && self.to == request.from && self.attempt == request.attempt && !matches!(self.says, Says::Request(..))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn says(kind: u8, ip: u128, port: u16, pulse: Pulse) -> Says {
        match kind {
            0 => Says::Request(SocketAddr::new(Ipv6Addr::from(ip).to_canonical(), port), pulse),
            1 => Says::Taken(pulse),
            2 => Says::Crossed,
            _ => Says::Gone,
        }
    }

    proptest! {
        #[test]
        fn proofs_come_back(
            from: (u32, u32), to: (u32, u32), attempt: u32, kind in 0u8..4, ip in 1u128 << 100..0xff << 120, port in 1u16.., place: (u64, u32),
            key: [u8; 32], more in 0usize..40, at: usize, bit in 0u32..8,
        ) {
            let pulse = Pulse { address: place.0, key: place.1 };
            let proof = Proof { from, to, attempt, says: says(kind, ip, port, pulse) };
            let key = JobKey::new(key);
            let mut sealed = proof.sealed(&key).unwrap();
            prop_assert_eq!(sealed.len(), PROOF_BYTES);
            sealed.resize(PROOF_BYTES + more, 0);
            prop_assert_eq!(Proof::open(&sealed, &key), Some(proof));
            let at = at % PROOF_BYTES;
            prop_assert_eq!(Proof::open(&sealed[..at], &key), None);
            sealed[at] ^= 1 << bit;
            prop_assert_eq!(Proof::open(&sealed, &key), None);
        }

        /// IPv4 addresses are such again at the other side.
        #[test]
        fn listeners_of_ipv4(ip in 1u32..0xe000_0000, port in 1u16..) {
            let says = Says::Request(SocketAddr::new(std::net::Ipv4Addr::from(ip).into(), port), Pulse::default());
            let proof = Proof { from: (1, 2), to: (3, 4), attempt: 5, says };
            prop_assert_eq!(Proof::parse(&proof.to_bytes()), Some(proof));
        }

        #[test]
        fn any_bytes(bytes in proptest::collection::vec(any::<u8>(), 0..300), key: [u8; 32]) {
            prop_assert_eq!(Proof::open(&bytes, &JobKey::new(key)), None);
        }

        /// Whoever has the key may be mistaken all the same: what is read is written as the same bytes.
        #[test]
        fn nearly_proofs(mut bytes in proptest::collection::vec(any::<u8>(), PLAIN_BYTES), kind in 0u8..5, plain_port: bool, no_ip: bool, no_pulse: bool) {
            bytes[..4].copy_from_slice(&MAGIC.to_le_bytes());
            bytes[4..12].copy_from_slice(&[VERSION as u8, 0, 0, 0, kind, 0, 0, 0]);
            if plain_port {
                bytes[34..36].fill(0);
            }
            if no_ip {
                bytes[32..36].fill(0);
                bytes[48..].fill(0);
            }
            if no_pulse {
                bytes[36..48].fill(0);
            }
            match Proof::parse(&bytes) {
                Some(proof) => prop_assert_eq!(&proof.to_bytes()[..], &bytes[..]),
                None => prop_assert!(kind > 3 || !no_ip || kind == 0 || !no_pulse && kind > 1),
            }
        }

        #[test]
        fn sealed_nonsense(bytes in proptest::collection::vec(any::<u8>(), 0..80), key: [u8; 32]) {
            let key = JobKey::new(key);
            if let Some(proof) = Proof::open(&key.seal(&bytes).unwrap(), &key) {
                prop_assert_eq!(&proof.to_bytes()[..], &bytes[..]);
            }
        }
    }

    #[test]
    fn answers() {
        let request = Proof { from: (1, 11), to: (2, 22), attempt: 7, says: Says::Request("10.0.0.1:80".parse().unwrap(), Pulse::default()) };
        let answer = Proof { from: (2, 22), to: (1, 11), attempt: 7, says: Says::Taken(Pulse::default()) };
        assert!(answer.answers(&request));
        for wrong in [
            Proof { attempt: 8, ..answer },
            Proof { from: (2, 21), ..answer },
            Proof { from: (3, 22), ..answer },
            Proof { to: (1, 10), ..answer },
            Proof { says: request.says, ..answer },
        ] {
            assert!(!wrong.answers(&request), "{wrong:?}");
        }
    }
}
