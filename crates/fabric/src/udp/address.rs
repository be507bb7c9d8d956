//! Addresses of UDP sockets: what a process offers, and the pairs of addresses that may be a path.

use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::str::FromStr;

use proto::reliability::MTU_BYTES_MIN;

use super::below_bytes;
use super::net::same_network;
use crate::reliable::{Candidate, DATAGRAM_BYTES_MAX, NoCard};

/// Sockets of one address, at most.
pub const ENDPOINTS_MAX: usize = 4;
/// Longest packet of an Ethernet, bytes.
const ETHERNET_BYTES: u32 = 1500;

/// One address of a process.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Offer {
    pub ip: IpAddr,
    /// Length of its network's prefix, bits.
    pub prefix: u8,
    /// 1 to [`ENDPOINTS_MAX`], one for each socket.
    pub ports: Vec<u16>,
    /// Longest datagram that the link takes, without IP's and UDP's headers.
    pub mtu_bytes: u32,
}

impl fmt::Display for Offer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.ip, self.prefix)?;
        for (index, port) in self.ports.iter().enumerate() {
            write!(f, "{}{port}", if index == 0 { ':' } else { ',' })?;
        }
        write!(f, "-{}", self.mtu_bytes)
    }
}

impl FromStr for Offer {
    type Err = NoCard;

    fn from_str(text: &str) -> Result<Offer, NoCard> {
        let parse = || {
            let (ip, rest) = text.split_once('/')?;
            let (prefix, rest) = rest.split_once(':')?;
            let (ports, mtu) = rest.split_once('-')?;
            let mtu_bytes = mtu.parse().ok()?;
            let (ip, prefix): (IpAddr, u8) = (ip.parse().ok()?, prefix.parse().ok()?);
            let ports: Vec<u16> = ports.split(',').map(|port| port.parse().ok()).collect::<Option<_>>()?;
            let sound = prefix <= if ip.is_ipv4() { 32 } else { 128 }
                && (1..=ENDPOINTS_MAX).contains(&ports.len())
                && !ports.contains(&0)
                && (MTU_BYTES_MIN..=DATAGRAM_BYTES_MAX).contains(&mtu_bytes);
            sound.then_some(Offer { ip, prefix, ports, mtu_bytes })
        };
        parse().ok_or(NoCard)
    }
}

impl crate::reliable::Offer for Offer {
    /// Those of this kind begin with an IP address.
    fn is_of_other_kind(text: &str) -> bool {
        text.split_once('/').is_some_and(|(first, _)| !first.contains(['.', ':']))
    }
}

/// From one of our addresses to one of a peer's.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Path {
    /// Which of our addresses.
    pub local: u8,
    ip: IpAddr,
    scope: u32,
    ports: [u16; ENDPOINTS_MAX],
}

impl Path {
    /// Back to where something came from.
    pub fn back(local: u8, to: SocketAddr) -> Path {
        let scope = if let SocketAddr::V6(v6) = to { v6.scope_id() } else { 0 };
        Path { local, ip: to.ip(), scope, ports: [to.port(); ENDPOINTS_MAX] }
    }

    /// The peer's socket that belongs to one of ours.
    pub fn remote(&self, endpoint: u8) -> SocketAddr {
        let port = self.ports[endpoint as usize % ENDPOINTS_MAX];
        match self.ip {
            IpAddr::V4(ip) => (ip, port).into(),
            IpAddr::V6(ip) => std::net::SocketAddrV6::new(ip, port, 0, self.scope).into(),
        }
    }
}

/// What is taken for sure to pass from an address to another one, if both links take it, bytes: an Ethernet's datagram. Within a host nothing is in between.
pub fn sure_bytes(ip: IpAddr) -> u32 {
    if ip.is_loopback() { DATAGRAM_BYTES_MAX } else { ETHERNET_BYTES - below_bytes(ip) }
}

impl crate::reliable::Path for Path {
    fn local(&self) -> u8 {
        self.local
    }

    fn ends_with(&self, other: &Path) -> bool {
        self.ip == other.ip
    }
}

/// The pair of `ours`, which is number `local`, and `offer`, if they are of one family.
pub fn candidate(local: u8, ours: &Offer, offer: &Offer) -> Option<Candidate<Path>> {
    let ip = ours.ip;
    if ip.is_ipv4() != offer.ip.is_ipv4() {
        return None;
    }
    let near = same_network(ip, offer.ip, ours.prefix.min(offer.prefix));
    // Several hosts may have this address, each for itself.
    let distance = if !near { 2 } else { (ip == offer.ip) as u8 };
    let ports = std::array::from_fn(|e| offer.ports[e % offer.ports.len()]);
    let path = Path { local, ip: offer.ip, scope: 0, ports };
    let most_bytes = ours.mtu_bytes.min(offer.mtu_bytes);
    Some(Candidate { path, distance, most_bytes, sure_bytes: most_bytes.min(sure_bytes(ip)), in_parts_bytes: most_bytes })
}

#[cfg(test)]
mod tests {
    use std::hash::RandomState;

    use super::*;
    use crate::reliable::search::{Ends, PROBE_BYTES, PROBE_WAIT_NS, Probe, SETTLE_NS, Search, TRIES_MAX};
    use crate::reliable::{Guard, JobKey, Protection};
    use crate::udp::Udp;
    use proptest::prelude::*;
    use proto::reliability::RAILS_MAX;

    type Card = crate::reliable::Card<Offer>;

    fn search_for(ends: Ends, ours: &Card, card: &Card) -> Search<Path> {
        Search::new::<Udp>(ends, ours, card, RandomState::new(), 0)
    }

    fn ip(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    fn card(epoch: u32, ips: &[(&str, u8)]) -> Card {
        let offers = ips.iter().map(|&(text, prefix)| Offer { ip: ip(text), prefix, ports: vec![7], mtu_bytes: 1472 }).collect();
        Card { epoch, rails: ips.len(), offers }
    }

    const ENDS: Ends = Ends { source: 1, source_epoch: 11, destination: 2, destination_epoch: 12 };

    fn guard(key: u8) -> Guard {
        Guard::new(&JobKey::new([key; 32]), Protection::Auth)
    }

    #[test]
    fn rails_mean_the_same_to_both() {
        let one = card(11, &[("172.17.0.1", 16), ("10.0.0.1", 24), ("10.0.1.1", 24)]);
        let two = card(12, &[("10.0.1.2", 24), ("172.17.0.1", 16), ("10.0.0.2", 24)]);
        let forth = search_for(ENDS, &one, &two).paths(2).0;
        let back = search_for(ENDS.turned(), &two, &one).paths(2).0;
        let names =
            |paths: &[Path], ours: &Card| -> Vec<(IpAddr, IpAddr)> { paths.iter().map(|path| (ours.offers[path.local as usize].ip, path.ip)).collect() };
        assert_eq!(names(&forth, &one), [(ip("10.0.0.1"), ip("10.0.0.2")), (ip("10.0.1.1"), ip("10.0.1.2"))]);
        let turned: Vec<_> = names(&back, &two).into_iter().map(|(a, b)| (b, a)).collect();
        assert_eq!(names(&forth, &one), turned);
    }

    /// Pairs that do not answer drop out, however likely they looked.
    #[test]
    fn silent_pairs_drop_out() {
        let one = card(11, &[("10.0.0.1", 24), ("10.0.1.1", 24)]);
        let two = card(12, &[("10.0.0.2", 24), ("10.0.1.2", 24)]);
        let guard = guard(1);
        let mut search = search_for(ENDS, &one, &two);
        let mut probes = Vec::new();
        assert!(!search.poll(&guard, 0, |path, bytes| probes.push((path, bytes))));
        assert_eq!(probes.len(), 4);
        assert!(probes.iter().all(|(_, bytes)| bytes.len() == 1472));
        let (alive, probe) = probes.iter().find(|(path, _)| path.local == 1 && path.ip == ip("10.0.1.2")).unwrap();
        let answer = Probe::read(&guard, probe).unwrap().0.answer(&guard).unwrap();
        assert!(search.answered(&Probe::read(&guard, &answer).unwrap().0, 1000));
        assert!(!search.poll(&guard, 2000, |_, _| {}));
        assert!(search.poll(&guard, 1000 + SETTLE_NS, |_, _| {}));
        // Two rails are configured: the one way serves both.
        assert_eq!(search.paths(2), (vec![*alive, *alive], 1472));
    }

    /// A host with one rail uses each of its peer's; interfaces' second addresses only where there is nothing else.
    #[test]
    fn hosts_of_different_numbers_of_rails() {
        let (v4, v6) = (["10.0.0.1", "10.0.0.2", "10.1.0.2"], ["fd00::1", "fd00::2", "fd01::2"]);
        let one = Card { rails: 1, ..card(11, &[(v4[0], 24), (v6[0], 64)]) };
        let two = Card { rails: 2, ..card(12, &[(v4[1], 24), (v4[2], 24), (v6[1], 64), (v6[2], 64)]) };
        let names = |(paths, _): (Vec<Path>, u32), ours: &Card| -> Vec<(IpAddr, IpAddr)> {
            paths.iter().map(|path| (ours.offers[path.local as usize].ip, path.ip)).collect()
        };
        let forth = names(search_for(ENDS, &one, &two).paths(2), &one);
        assert_eq!(forth, [(ip(v4[0]), ip(v4[1])), (ip(v4[0]), ip(v4[2]))]);
        let back = names(search_for(ENDS.turned(), &two, &one).paths(2), &two);
        assert_eq!(back.into_iter().map(|(a, b)| (b, a)).collect::<Vec<_>>(), forth);
    }

    /// Longer datagrams than an Ethernet's are used once they have got through, and the shortest way in use decides.
    #[test]
    fn long_datagrams_are_found() {
        let jumbo = |mut card: Card, long: &[usize]| {
            long.iter().for_each(|&at| card.offers[at].mtu_bytes = 8972);
            card
        };
        let one = jumbo(card(11, &[("10.0.0.1", 24), ("10.0.1.1", 24)]), &[0, 1]);
        let two = card(12, &[("10.0.0.2", 24), ("10.0.1.2", 24)]);
        let guard = guard(1);
        // Which pairs (by both last octets but one) answer probes of which length, and what comes of it.
        let play = |two: &Card, passes: &dyn Fn(&Path, usize) -> bool| {
            let mut search = search_for(ENDS, &one, two);
            assert_eq!(search.paths(2).1, 1472);
            let (mut now_ns, mut answers) = (0, Vec::new());
            while !search.poll(&guard, now_ns, |path, bytes| {
                if passes(&path, bytes.len()) {
                    answers.push(bytes)
                }
            }) {
                for probe in answers.drain(..) {
                    let answer = Probe::read(&guard, &probe).unwrap().0.answer(&guard).unwrap();
                    assert!(search.answered(&Probe::read(&guard, &answer).unwrap().0, now_ns));
                }
                now_ns = search.deadline_ns().max(now_ns + 1);
            }
            let (paths, bytes) = search.paths(2);
            (paths.iter().map(|path| path.local).collect::<Vec<_>>(), bytes)
        };
        let straight = |path: &Path, _: usize| path.ip == ip(["10.0.0.2", "10.0.1.2"][path.local as usize]);
        assert_eq!(play(&jumbo(two.clone(), &[0, 1]), &straight), (vec![0, 1], 8972));
        assert_eq!(play(&jumbo(two.clone(), &[0]), &straight), (vec![0, 1], 1472), "the shorter link decides");
        assert_eq!(play(&two, &straight), (vec![0, 1], 1472));
        let both = jumbo(two, &[0, 1]);
        let narrow = |path: &Path, bytes: usize| straight(path, bytes) && (path.local == 0 || bytes <= 1472);
        assert_eq!(play(&both, &narrow), (vec![0, 1], 1472), "something between is shorter than both links");
        let first = |path: &Path, bytes: usize| straight(path, bytes) && path.local == 0;
        assert_eq!(play(&both, &first), (vec![0, 0], 8972), "a way that is dead does not decide");
    }

    #[test]
    fn forged_and_old_answers() {
        let two = card(12, &[("10.0.0.2", 24)]);
        let right = guard(1);
        let mut search = search_for(ENDS, &card(11, &[("10.0.0.1", 24)]), &two);
        let mut probes = Vec::new();
        let mut ask = |search: &mut Search<Path>, now_ns| {
            search.poll(&right, now_ns, |_, bytes| probes.push(Probe::read(&right, &bytes).unwrap().0));
            *probes.last().unwrap()
        };
        let first = ask(&mut search, 0);
        let second = ask(&mut search, PROBE_WAIT_NS);
        assert_ne!(first.nonce, second.nonce, "each probe has its own");
        let mut earlier = search_for(ENDS, &card(11, &[("10.0.0.1", 24)]), &two);
        let other = ask(&mut earlier, 0);
        let probe = Probe { ends: ENDS.turned(), answer: true, ..second };
        assert_eq!(Probe::read(&right, &probe.write(&guard(2), &[], 0)), None, "another job");
        let mut damaged = probe.write(&right, &[], 0);
        damaged[1] = 1;
        assert_eq!(Probe::read(&right, &damaged), None);
        for wrong in [
            Probe { nonce: probe.nonce ^ 1, ..probe },
            Probe { nonce: other.nonce, ..probe },
            Probe { pair: 1, ..probe },
            Probe { answer: false, ..probe },
            Probe { ends: ENDS, ..probe },
        ] {
            assert!(!search.answered(&wrong, 0), "{wrong:?}");
        }
        assert!(search.answered(&Probe { nonce: first.nonce, ..probe }, 0), "an answer may be late");
        assert!(search.answered(&probe, 0));
        assert_eq!(probe.answer(&right), None, "answers are not answered");
    }

    /// What comes with a probe is under its authenticator, and no probe is longer than its pair carries.
    #[test]
    fn cards_come_along() {
        let (ours, two) = (card(11, &[("10.0.0.1", 24), ("10.0.1.1", 24)]), card(12, &[("10.0.0.2", 24)]));
        let guard = guard(1);
        let mut search = search_for(ENDS, &ours, &two).telling(&ours.to_string(), 3);
        let mut probes = Vec::new();
        search.poll(&guard, 0, |_, bytes| probes.push(bytes));
        for mut probe in probes {
            assert_eq!(probe.len(), 1472);
            let (probe_read, text) = Probe::read(&guard, &probe).unwrap();
            assert_eq!((probe_read.revision, std::str::from_utf8(text).unwrap().parse()), (3, Ok(ours.clone())));
            let answer = probe_read.answer(&guard).unwrap();
            assert_eq!(answer.len(), PROBE_BYTES);
            assert_eq!(Probe::read(&guard, &answer).unwrap().1, b"");
            probe[PROBE_BYTES] ^= 1;
            assert_eq!(Probe::read(&guard, &probe), None);
            probe[PROBE_BYTES] ^= 1;
            assert_eq!(Probe::read(&guard, &probe[..PROBE_BYTES + 9]), None, "cut inside the card");
        }
        let long = Card {
            offers: vec![Offer { ip: ip("1111:1111:1111:1111:1111:1111:1111:1111"), prefix: 128, ports: vec![u16::MAX; 4], mtu_bytes: 9999 }; RAILS_MAX],
            ..ours
        };
        assert_eq!(search_for(ENDS, &long, &long).telling(&long.to_string(), 1).revision, 1, "the longest card fits");
    }

    /// Paths that answer later are added to those there are, in the place of doubles first; none that is shorter, none without an address of its own.
    #[test]
    fn later_paths_are_added() {
        let one = card(11, &[("10.0.0.1", 24), ("10.0.1.1", 24), ("10.0.2.1", 24)]);
        let two = card(12, &[("10.0.0.2", 24), ("10.0.1.2", 24), ("10.0.2.2", 24)]);
        let mut short = two.clone();
        short.offers[2].mtu_bytes = 1300;
        let first = search_for(ENDS, &one, &two).paths(1).0;
        let after = |two: &Card, before: &[Path]| {
            let mut search = search_for(ENDS, &one, two).carrying(1472);
            let mut probes = Vec::new();
            search.poll(&guard(1), 0, |_, bytes| probes.push(bytes));
            for probe in probes {
                let answer = Probe::read(&guard(1), &probe).unwrap().0.answer(&guard(1)).unwrap();
                assert!(search.answered(&Probe::read(&guard(1), &answer).unwrap().0, 0));
            }
            search.added_to(before).iter().map(|path| (path.local, path.ip)).collect::<Vec<_>>()
        };
        let added = [0, 1, 2].map(|at: u8| (at, two.offers[at as usize].ip));
        assert_eq!(after(&two, &first), added);
        assert_eq!(after(&two, &[first[0], first[0]]), added);
        // The short one is no end of any.
        assert_eq!(after(&short, &first), [added[0], added[1], (2, added[0].1)]);
    }

    #[test]
    fn gives_up() {
        let mut search = search_for(ENDS, &card(11, &[("10.0.0.1", 24)]), &card(12, &[("10.0.0.2", 24)]));
        let (mut now_ns, mut sent) = (0, 0);
        while !search.poll(&guard(1), now_ns, |_, _| sent += 1) {
            now_ns = search.deadline_ns();
            assert!(now_ns < 10_000_000_000);
        }
        assert_eq!(sent, TRIES_MAX as usize);
        assert_eq!(search.paths(1).0.len(), 1, "the likeliest pair stays");
    }

    #[test]
    fn cards_refused() {
        for bad in [
            "",
            "1",
            "0 1 1.2.3.4/8:1-1472",
            "1 1 1.2.3.4/33:1-1472",
            "1 1 1.2.3.4/8:0-1472",
            "1 1 1.2.3.4/8:-1472",
            "1 1 1.2.3.4/8:1,2,3,4,5-1472",
            "1 1 x/8:1-1472",
            "1 1 1.2.3.4/8:1-1472;",
            "1 0 1.2.3.4/8:1-1472",
            "1 2 1.2.3.4/8:1-1472",
            "1 1 1.2.3.4/8:1",
            "1 1 1.2.3.4/8:1-1170",
            "1 1 1.2.3.4/8:1-65000",
        ] {
            assert_eq!(bad.parse::<Card>(), Err(NoCard), "{bad:?}");
        }
    }

    proptest! {
        #[test]
        fn cards(epoch in 1u32.., offers in proptest::collection::vec((any::<std::net::IpAddr>(), 0u8..=32, proptest::collection::vec(1u16.., 1..=ENDPOINTS_MAX), MTU_BYTES_MIN..=DATAGRAM_BYTES_MAX), 1..=RAILS_MAX)) {
            let offers: Vec<Offer> = offers.into_iter().map(|(ip, prefix, ports, mtu_bytes)| Offer { ip, prefix, ports, mtu_bytes }).collect();
            let card = Card { epoch, rails: 1 + epoch as usize % offers.len(), offers };
            prop_assert_eq!(card.to_string().parse::<Card>(), Ok(card));
        }

        #[test]
        fn any_text(text: String) {
            let _ = text.parse::<Card>();
        }

        #[test]
        fn any_probe(bytes in proptest::collection::vec(any::<u8>(), 0..100)) {
            prop_assert_eq!(Probe::read(&guard(1), &bytes), None);
        }
    }
}
