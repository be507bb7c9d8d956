//! Addresses of queue pairs: what a process offers, the pairs of addresses that may be a path, and where a datagram
//! says that it comes from.

use std::fmt;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::str::FromStr;

use proto::reliability::MTU_BYTES_MIN;

use super::sys::{Came, Destination};
use crate::reliable::{Candidate, NoCard};

/// Longest datagram of any port, bytes.
pub const MTU_BYTES_MAX: u32 = 4096;
/// LIDs from here on are of groups.
const LID_GROUPS: u16 = 0xc000;
/// Queue pairs have numbers of 24 bits; the first two are not for programs.
const NUMBERS: std::ops::RangeInclusive<u32> = 2..=0xff_ffff;
/// What a packet of an Ethernet of 1500 bytes has room for between RoCE's headers and checksum.
const ETHERNET_BYTES: u32 = 1408;

/// What ports speak to each other by; two of different kinds do not.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Wire {
    InfiniBand,
    RoceV1,
    /// RoCE v2 over IPv4, where addresses are such in IPv6's clothes, and over IPv6.
    RoceV2,
    /// Over TCP: connections alone, so that no offer names it.
    Iwarp,
}

const WIRES: [(Wire, &str); 3] = [(Wire::InfiniBand, "ib"), (Wire::RoceV1, "roce1"), (Wire::RoceV2, "roce2")];

impl fmt::Display for Wire {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(WIRES.iter().find(|(wire, _)| wire == self).map_or("", |(_, name)| name))
    }
}

/// The queue pair of one port of a process. As text: `roce2/0/::ffff:192.0.2.2/17/1b873593/4096`, which is what it
/// speaks, its LID, its GID, its number, its Q_Key in hexadecimal digits, and its longest datagram, bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Offer {
    pub wire: Wire,
    pub lid: u16,
    pub gid: Ipv6Addr,
    pub number: u32,
    pub qkey: u32,
    pub mtu_bytes: u32,
}

impl fmt::Display for Offer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Offer { wire, lid, gid, number, qkey, mtu_bytes } = self;
        write!(f, "{wire}/{lid}/{gid}/{number}/{qkey:x}/{mtu_bytes}")
    }
}

impl FromStr for Offer {
    type Err = NoCard;

    fn from_str(text: &str) -> Result<Offer, NoCard> {
        let parse = || {
            let mut fields = text.split('/');
            let wire = fields.next()?;
            let wire = WIRES.iter().find(|(_, name)| *name == wire)?.0;
            let lid = fields.next()?.parse().ok()?;
            let gid: Ipv6Addr = fields.next()?.parse().ok()?;
            let number = fields.next()?.parse().ok()?;
            let qkey = u32::from_str_radix(fields.next()?, 16).ok()?;
            let mtu_bytes = fields.next()?.parse().ok()?;
            let addressed = match wire {
                Wire::InfiniBand => (1..LID_GROUPS).contains(&lid),
                _ => lid == 0 && !gid.is_unspecified(),
            };
            let sound = addressed && !gid.is_multicast() && NUMBERS.contains(&number) && (MTU_BYTES_MIN..=MTU_BYTES_MAX).contains(&mtu_bytes);
            (fields.next().is_none() && sound).then_some(Offer { wire, lid, gid, number, qkey, mtu_bytes })
        };
        parse().ok_or(NoCard)
    }
}

impl crate::reliable::Offer for Offer {}

/// From one of our ports to a queue pair of a peer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Path {
    /// Which of our ports.
    pub local: u8,
    pub to: Destination,
    pub number: u32,
    pub qkey: u32,
}

impl crate::reliable::Path for Path {
    fn local(&self) -> u8 {
        self.local
    }

    fn ends_with(&self, other: &Path) -> bool {
        self.to == other.to
    }
}

/// The pair of `ours`, which is number `local`, and `theirs`, if they speak the same and over the same Internet
/// protocol. Those with more of their addresses in common are likelier.
pub fn candidate(local: u8, ours: &Offer, theirs: &Offer) -> Option<Candidate<Path>> {
    if ours.wire != theirs.wire || ours.gid.to_ipv4_mapped().is_some() != theirs.gid.to_ipv4_mapped().is_some() {
        return None;
    }
    let common_bits = (u128::from(ours.gid) ^ u128::from(theirs.gid)).leading_zeros();
    let most_bytes = ours.mtu_bytes.min(theirs.mtu_bytes);
    let (is_global, distance) = match ours.wire {
        // The first half of a GID is its subnet, and within that the LID is enough.
        Wire::InfiniBand => (common_bits < 64, (common_bits < 64) as u8),
        _ => (true, (128 - common_bits) as u8),
    };
    // Within a host nothing is in between.
    let sure_bytes = if common_bits == 128 { most_bytes } else { sure_bytes(ours.wire, most_bytes) };
    let to = Destination { lid: theirs.lid, gid: if is_global { theirs.gid } else { Ipv6Addr::UNSPECIFIED }, is_global };
    let path = Path { local, to, number: theirs.number, qkey: theirs.qkey };
    Some(Candidate { path, distance, most_bytes, sure_bytes, in_parts_bytes: most_bytes })
}

/// What surely passes from a port to one of another host, bytes, if both take `mtu_bytes`.
pub fn sure_bytes(wire: Wire, mtu_bytes: u32) -> u32 {
    match wire {
        // A subnet's switches are set up for its ports' datagrams.
        Wire::InfiniBand => mtu_bytes,
        // Nothing is known of the switches.
        _ => mtu_bytes.min(ETHERNET_BYTES),
    }
}

/// Where a datagram came from that came to the port `own`, whose address says whether the first bytes of the buffer
/// hold a header of IPv6's form or, in their second half, one of IPv4: what a device does not fill may look like
/// anything.
pub fn source(wire: Wire, own: Ipv6Addr, came: &Came, lead: &[u8]) -> Option<Destination> {
    Some(match (wire, came.has_grh) {
        (Wire::InfiniBand, false) => Destination { lid: came.lid, gid: Ipv6Addr::UNSPECIFIED, is_global: false },
        (Wire::InfiniBand, true) => Destination { lid: came.lid, gid: sender(lead, false)?, is_global: true },
        _ => Destination { lid: 0, gid: sender(lead, own.to_ipv4_mapped().is_some())?, is_global: true },
    })
}

/// The sender's address in the 40 bytes that a device puts before a datagram.
fn sender(lead: &[u8], is_ipv4: bool) -> Option<Ipv6Addr> {
    let header: &[u8; 40] = lead.first_chunk()?;
    let found = match is_ipv4 {
        true if header[20] >> 4 == 4 => Ipv4Addr::from(*header[32..].first_chunk::<4>()?).to_ipv6_mapped(),
        false if header[0] >> 4 == 6 => Ipv6Addr::from(*header[8..].first_chunk::<16>()?),
        _ => return None,
    };
    let nobody = found.is_unspecified() || found.is_multicast() || found.to_ipv4_mapped().is_some_and(|ip| ip.is_unspecified() || ip.is_multicast());
    (!nobody).then_some(found)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn offer(text: &str) -> Offer {
        text.parse().unwrap()
    }

    #[test]
    fn offers_refused() {
        let good = "roce2/0/::ffff:10.0.0.1/17/1b873593/4096";
        assert_eq!(offer(good).to_string(), good);
        assert_eq!(offer("ib/3/fe80::1/17/0/2048").lid, 3);
        for bad in [
            "",
            "roce2",
            "siw/0/::ffff:10.0.0.1/17/1b873593/4096",
            "roce2/1/::ffff:10.0.0.1/17/1b873593/4096",
            "roce2/0/::/17/1b873593/4096",
            "roce2/0/ff02::1/17/1b873593/4096",
            "roce2/0/10.0.0.1/17/1b873593/4096",
            "roce2/0/::ffff:10.0.0.1/1/1b873593/4096",
            "roce2/0/::ffff:10.0.0.1/16777216/1b873593/4096",
            "roce2/0/::ffff:10.0.0.1/17/1b87359311/4096",
            "roce2/0/::ffff:10.0.0.1/17/1b873593/1024",
            "roce2/0/::ffff:10.0.0.1/17/1b873593/8192",
            "roce2/0/::ffff:10.0.0.1/17/1b873593/4096/",
            "roce2/0/::ffff:10.0.0.1/17/1b873593",
            "ib/0/fe80::1/17/0/2048",
            "ib/49152/fe80::1/17/0/2048",
        ] {
            assert_eq!(bad.parse::<Offer>(), Err(NoCard), "{bad:?}");
        }
    }

    #[test]
    fn pairs() {
        let (one, two) = (offer("roce2/0/::ffff:10.0.0.1/17/7/4096"), offer("roce2/0/::ffff:10.0.0.2/18/7/2048"));
        let found = candidate(1, &one, &two).unwrap();
        assert_eq!((found.most_bytes, found.sure_bytes), (2048, ETHERNET_BYTES));
        assert_eq!((found.path.local, found.path.number, found.path.to.gid), (1, 18, two.gid));
        assert!(found.distance < candidate(0, &one, &offer("roce2/0/::ffff:10.1.0.2/18/7/2048")).unwrap().distance);
        let own = candidate(0, &one, &Offer { number: 19, ..one }).unwrap();
        assert_eq!((own.distance, own.sure_bytes), (0, 4096));
        for other in ["roce1/0/::ffff:10.0.0.2/18/7/2048", "roce2/0/fd00::2/18/7/2048", "ib/1/::ffff:10.0.0.2/18/7/2048"] {
            assert!(candidate(0, &one, &offer(other)).is_none(), "{other}");
        }
        let (near, behind_router) = (offer("ib/2/fe80::2/18/7/4096"), offer("ib/2/fe81::2/18/7/4096"));
        let to = |theirs| candidate(0, &offer("ib/1/fe80::1/17/7/4096"), theirs).unwrap().path.to;
        assert_eq!(to(&near), Destination { lid: 2, gid: Ipv6Addr::UNSPECIFIED, is_global: false });
        assert_eq!(to(&behind_router), Destination { lid: 2, gid: behind_router.gid, is_global: true });
    }

    #[test]
    fn senders() {
        let mut lead = [0x60; 40];
        assert_eq!(sender(&lead, true), None);
        lead[20] = 0x45;
        lead[32..36].copy_from_slice(&[10, 0, 0, 1]);
        assert_eq!(sender(&lead, true), Some("::ffff:10.0.0.1".parse().unwrap()));
        lead[32..36].copy_from_slice(&[224, 0, 0, 1]);
        assert_eq!(sender(&lead, true), None, "from a group");
        lead[8..24].copy_from_slice(&Ipv6Addr::from(0xfd00_u128 << 112 | 9).octets());
        assert_eq!(sender(&lead, false), Some("fd00::9".parse().unwrap()));
        lead[8] = 0xff;
        assert_eq!(sender(&lead, false), None, "from a group");
        lead[8..24].fill(0);
        assert_eq!(sender(&lead, false), None, "from nowhere");
        assert_eq!(sender(&[0x60; 39], false), None);
    }

    proptest! {
        #[test]
        fn offers(wire in 0..3usize, lid in 1..LID_GROUPS, gid in 1u128..0xff << 120, number in NUMBERS, qkey: u32, mtu_bytes in MTU_BYTES_MIN..=MTU_BYTES_MAX) {
            let wire = WIRES[wire].0;
            let lid = if wire == Wire::InfiniBand { lid } else { 0 };
            let one = Offer { wire, lid, gid: gid.into(), number, qkey, mtu_bytes };
            let text = one.to_string();
            prop_assert!(text.len() <= 150 && !text.contains([' ', ';']));
            prop_assert_eq!(text.parse(), Ok(one));
        }

        #[test]
        fn any_text(text: String) {
            let _ = text.parse::<Offer>();
        }

        /// Texts that are nearly offers: what is read is written as a text that is read as the same.
        #[test]
        fn nearly_offers(text in "(ib|roce1|roce2)(/[0-9a-f:.+-]{0,12}){4,6}/?") {
            if let Ok(one) = text.parse::<Offer>() {
                prop_assert_eq!(one.to_string().parse(), Ok(one));
            }
        }

        #[test]
        fn any_lead(lead in proptest::collection::vec(any::<u8>(), 0..60), is_ipv4: bool) {
            if let Some(found) = sender(&lead, is_ipv4) {
                prop_assert!(!found.is_unspecified() && !found.is_multicast());
                prop_assert!(!is_ipv4 || found.to_ipv4_mapped().is_some());
            }
        }
    }
}
