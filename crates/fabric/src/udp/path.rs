//! Which ways lead to a peer: cards that say where a process listens, pairs of addresses, and the handshake that finds the pairs
//! that carry datagrams of full length both ways.

use std::fmt;
use std::hash::{BuildHasher, RandomState};
use std::net::{IpAddr, SocketAddr};
use std::str::FromStr;

use proto::reliability::seal;
use proto::reliability::wire::TAG_BYTES;
use proto::reliability::{MTU_BYTES_MIN, PeerId, RAILS_MAX};

use super::net::same_network;
use super::protection::Guard;
use super::{DATAGRAM_BYTES_MAX, below_bytes};

/// Sockets of one address, at most.
pub const ENDPOINTS_MAX: usize = 4;
/// Longest packet of an Ethernet, bytes.
const ETHERNET_BYTES: u32 = 1500;
/// Pairs of addresses that are probed, at most.
const CANDIDATES_MAX: usize = 16;

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

/// Where a process listens, as the job's key-value store has it: its incarnation, how many of the offers are rails of their own, and the offers, those first:
/// `7 1 192.0.2.2/24:4711,4712-1472;fd00::2/64:4713-1452`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Card {
    pub epoch: u32,
    pub rails: usize,
    /// 1 to [`RAILS_MAX`].
    pub offers: Vec<Offer>,
}

impl fmt::Display for Card {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.epoch, self.rails)?;
        for (index, offer) in self.offers.iter().enumerate() {
            let between = if index == 0 { ' ' } else { ';' };
            write!(f, "{between}{}/{}", offer.ip, offer.prefix)?;
            for (index, port) in offer.ports.iter().enumerate() {
                write!(f, "{}{port}", if index == 0 { ':' } else { ',' })?;
            }
            write!(f, "-{}", offer.mtu_bytes)?;
        }
        Ok(())
    }
}

/// A text that is no card.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NoCard;

impl FromStr for Card {
    type Err = NoCard;

    fn from_str(text: &str) -> Result<Card, NoCard> {
        let offer = |text: &str| {
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
        let parse = || {
            let (epoch, rest) = text.split_once(' ')?;
            let (rails, offers) = rest.split_once(' ')?;
            let offers: Vec<Offer> = offers.split(';').map(offer).collect::<Option<_>>()?;
            let epoch = epoch.parse().ok().filter(|&epoch| epoch != 0)?;
            let rails = rails.parse().ok().filter(|rails| (1..=offers.len()).contains(rails))?;
            (offers.len() <= RAILS_MAX).then_some(Card { epoch, rails, offers })
        };
        parse().ok_or(NoCard)
    }
}

/// One way to a peer.
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

/// A pair of addresses that may be a way.
#[derive(Clone, Copy, Debug)]
struct Candidate {
    path: Path,
    /// Both addresses are of rails of their own.
    own: bool,
    /// What both links take, bytes, and what is sure to pass between them.
    most_bytes: u32,
    sure_bytes: u32,
}

/// Every pair of addresses that may be a way, the likeliest first. Both ends find the same order, so that a rail means the same
/// network to both as far as it can.
fn candidates(ours: &Card, card: &Card, lower: bool) -> Vec<Candidate> {
    let mut pairs = Vec::new();
    for (local, our) in ours.offers.iter().enumerate() {
        let ip = our.ip;
        for (remote, offer) in card.offers.iter().enumerate() {
            if ip.is_ipv4() != offer.ip.is_ipv4() {
                continue;
            }
            let near = same_network(ip, offer.ip, our.prefix.min(offer.prefix));
            // Several hosts may have this address, each for itself.
            let distance = if !near { 2 } else { (ip == offer.ip) as u8 };
            let (first, second) = if lower { (local, remote) } else { (remote, local) };
            let ports = std::array::from_fn(|e| offer.ports[e % offer.ports.len()]);
            let path = Path { local: local as u8, ip: offer.ip, scope: 0, ports };
            let most_bytes = our.mtu_bytes.min(offer.mtu_bytes);
            let sure_bytes = most_bytes.min(sure_bytes(ip));
            let own = local < ours.rails && remote < card.rails;
            pairs.push(((distance, first, second), Candidate { path, own, most_bytes, sure_bytes }));
        }
    }
    pairs.sort_by_key(|&(order, _)| order);
    pairs.into_iter().map(|(_, pair)| pair).take(CANDIDATES_MAX).collect()
}

/// Paths of which no two share an address, as far as there are any, then such as have an address of their own at one end, then the same again; those between
/// addresses of rails of their own first.
fn rails<'a>(candidates: impl Iterator<Item = &'a Candidate> + Clone, rails: usize) -> Vec<Path> {
    let mut chosen: Vec<Path> = Vec::new();
    for (own, apart) in [(true, true), (true, false), (false, true), (false, false)] {
        for Candidate { path, .. } in candidates.clone().filter(|one| one.own || !own) {
            let (here, there) = (chosen.iter().any(|one| one.local == path.local), chosen.iter().any(|one| one.ip == path.ip));
            if chosen.len() < rails && (!here && !there || !(apart || here && there)) {
                chosen.push(*path);
            }
        }
    }
    let found = chosen.len();
    for again in found..if found == 0 { 0 } else { rails } {
        chosen.push(chosen[again % found]);
    }
    chosen
}

const PROBE: u8 = b'P';
const ANSWER: u8 = b'A';
/// Bytes of a probe or an answer without its padding.
const PROBE_BYTES: usize = 32 + TAG_BYTES;

/// Who speaks to whom.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Ends {
    pub source: PeerId,
    pub source_epoch: u32,
    pub destination: PeerId,
    pub destination_epoch: u32,
}

impl Ends {
    fn turned(self) -> Ends {
        Ends { source: self.destination, source_epoch: self.destination_epoch, destination: self.source, destination_epoch: self.source_epoch }
    }
}

/// A sound and authentic datagram of the handshake.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Knock {
    pub ends: Ends,
    answer: bool,
    pair: u8,
    /// The probe is as long as the pair may carry, not as it surely does.
    long: bool,
    nonce: u64,
    /// Which of the prober's cards comes with it, counted from the start; 0 for none.
    pub revision: u16,
}

/// | bytes | meaning |
/// | --- | --- |
/// | 0 | `P` probe, `A` answer |
/// | 1 | which pair, by the prober's order |
/// | 2 | 1 for a probe of the longest datagram, and its answer; 0 for one of a length that surely passes |
/// | 3 | 0 |
/// | 4..6 | length of the card, 0 for none |
/// | 6..8 | how often the prober's card has changed, if it comes along |
/// | 8..24 | source, its epoch, destination, its epoch |
/// | 24..32 | the probe's nonce |
/// | 32..48 | authenticator of all before and of the card |
/// | 48.. | the card, then padding of a probe, 0 |
impl Knock {
    /// Whether bytes belong to the handshake, and not to `proto::reliability`.
    pub fn is_one(bytes: &[u8]) -> bool {
        matches!(bytes.first(), Some(&PROBE | &ANSWER))
    }

    fn write(&self, guard: &Guard, card: &[u8], bytes: usize) -> Vec<u8> {
        let mut out = vec![if self.answer { ANSWER } else { PROBE }, self.pair, self.long as u8, 0];
        out.extend((card.len() as u16).to_le_bytes());
        out.extend(self.revision.to_le_bytes());
        let ends = self.ends;
        for word in [ends.source, ends.source_epoch, ends.destination, ends.destination_epoch] {
            out.extend(word.to_le_bytes());
        }
        out.extend(self.nonce.to_le_bytes());
        let tag = guard.mark(b"knock", &[&out, card].concat());
        out.extend(tag);
        out.extend(card);
        out.resize(out.len().max(bytes), 0);
        out
    }

    /// With the card that came along, which may be empty.
    pub fn read<'a>(guard: &Guard, bytes: &'a [u8]) -> Option<(Knock, &'a [u8])> {
        let (fixed, rest) = bytes.split_first_chunk::<PROBE_BYTES>()?;
        let (said, tag) = fixed.split_at(PROBE_BYTES - TAG_BYTES);
        let half = |at: usize| u16::from_le_bytes([said[at], said[at + 1]]);
        let card = rest.get(..half(4) as usize)?;
        let right = guard.mark(b"knock", &[said, card].concat());
        let same = seal::same(&right, tag.try_into().ok()?);
        let word = |at: usize| u32::from_le_bytes([said[at], said[at + 1], said[at + 2], said[at + 3]]);
        let ends = Ends { source: word(8), source_epoch: word(12), destination: word(16), destination_epoch: word(20) };
        let nonce = word(24) as u64 | (word(28) as u64) << 32;
        let knock = Knock { ends, answer: said[0] == ANSWER, pair: said[1], long: said[2] != 0, nonce, revision: half(6) };
        (same && Knock::is_one(said) && said[1] < CANDIDATES_MAX as u8).then_some((knock, card))
    }

    /// What a probe is answered with; it is shorter, so that nobody can use us to flood others.
    pub fn answer(&self, guard: &Guard) -> Option<Vec<u8>> {
        (!self.answer).then(|| Knock { ends: self.ends.turned(), answer: true, revision: 0, ..*self }.write(guard, &[], 0))
    }
}

/// The search for ways to one peer. Until it has ended, the likeliest pairs are used.
#[derive(Debug)]
pub struct Search {
    ends: Ends,
    /// What makes the nonces of probes; no two are the same.
    random: RandomState,
    candidates: Vec<Candidate>,
    /// Bit `i`: pair `i` has answered, and has answered a probe of its full length.
    answered: u32,
    answered_long: u32,
    next_ns: u64,
    wait_ns: u64,
    /// When it ends with what has answered by then; `u64::MAX` before the first answer.
    end_ns: u64,
    tries: u8,
    /// What the peer is told of our addresses, and which of our cards that is.
    card: Vec<u8>,
    revision: u16,
    /// What it finds is added to the ways there are.
    pub adds: bool,
}

/// Time between the first two probes of a pair; it doubles.
const PROBE_WAIT_NS: u64 = 5_000_000;
/// Probes of each pair. With the doubling they span about five seconds; then the likeliest pairs stay.
const TRIES_MAX: u8 = 10;
/// After the first answer, others are waited for so long.
const SETTLE_NS: u64 = 50_000_000;

impl Search {
    /// `random`: of this search's own, so that an answer to another one is none to it.
    pub fn new(ends: Ends, ours: &Card, card: &Card, random: RandomState, now_ns: u64) -> Search {
        let candidates = candidates(ours, card, ends.source < ends.destination);
        Search {
            ends,
            random,
            candidates,
            answered: 0,
            answered_long: 0,
            next_ns: now_ns,
            wait_ns: PROBE_WAIT_NS,
            end_ns: u64::MAX,
            tries: 0,
            card: Vec::new(),
            revision: 0,
            adds: false,
        }
    }

    /// Tells the peer that `card` is ours now, which has changed `revision` times; nothing if it has not.
    pub fn telling(mut self, card: &Card, revision: u16) -> Search {
        let text = if revision > 0 { card.to_string().into_bytes() } else { Vec::new() };
        // No card is as long as that.
        if text.len() + PROBE_BYTES <= MTU_BYTES_MIN as usize {
            (self.card, self.revision) = (text, revision);
        }
        self
    }

    /// Only such pairs count as carry datagrams of `bytes`: what has been cut for other ways must pass.
    pub fn carrying(mut self, bytes: u32) -> Search {
        self.candidates.retain(|one| one.most_bytes >= bytes);
        for one in &mut self.candidates {
            one.sure_bytes = if one.sure_bytes < bytes { one.most_bytes } else { one.sure_bytes };
        }
        self
    }

    /// Answers take so long that probes wait for them for `wait_ns` at least.
    pub fn patient(self, wait_ns: u64) -> Search {
        Search { wait_ns: self.wait_ns.max(wait_ns), ..self }
    }

    /// Whether there is something to find out, or to tell.
    pub fn is_worth_it(&self) -> bool {
        self.revision > 0 || self.candidates.len() > 1 || self.candidates.iter().any(|one| one.most_bytes > one.sure_bytes)
    }

    /// What to use now, one for each of `count` rails, and the longest datagram that passes all of them, bytes. The latter grows only.
    pub fn paths(&self, count: usize) -> (Vec<Path>, u32) {
        let all = self.candidates.iter().enumerate();
        let any = self.answered == 0;
        let paths = rails(all.clone().filter(|&(pair, _)| any || self.answered >> pair & 1 == 1).map(|(_, one)| one), count);
        // Until a pair has answered, any may be used later.
        let used = all.filter(|(_, one)| any || paths.contains(&one.path));
        let passes = used.map(|(pair, one)| if self.answered_long >> pair & 1 == 1 { one.most_bytes } else { one.sure_bytes });
        let bytes = passes.min().unwrap_or(MTU_BYTES_MIN);
        (paths, bytes)
    }

    /// `paths`, and those that have answered besides and have an address of their own, in the place of doubles or as rails more.
    pub fn added_to(&self, paths: &[Path]) -> Vec<Path> {
        let mut all = paths.to_vec();
        for (_, Candidate { path, .. }) in self.candidates.iter().enumerate().filter(|(pair, _)| self.answered >> pair & 1 == 1) {
            let (here, there) = (all.iter().any(|one| one.local == path.local), all.iter().any(|one| one.ip == path.ip));
            if here && there {
                continue;
            }
            match (1..all.len()).find(|&at| all[..at].contains(&all[at])) {
                Some(double) => all[double] = *path,
                None if all.len() < RAILS_MAX => all.push(*path),
                None => {}
            }
        }
        all
    }

    /// Sends what is due. True when the search has ended.
    pub fn poll(&mut self, guard: &Guard, now_ns: u64, mut send: impl FnMut(Path, Vec<u8>)) -> bool {
        let all = self.answered_long.count_ones() as usize == self.candidates.len();
        if all || now_ns >= self.end_ns || self.tries == TRIES_MAX && now_ns >= self.next_ns {
            return true;
        }
        if now_ns >= self.next_ns {
            for (pair, one) in self.candidates.iter().enumerate() {
                let (answered, long) = (self.answered >> pair & 1 == 1, self.answered_long >> pair & 1 == 1);
                let mut knock = |long, bytes: u32| {
                    let nonce = self.nonce(self.tries, pair as u8, long);
                    let knock = Knock { ends: self.ends, answer: false, pair: pair as u8, long, nonce, revision: self.revision };
                    send(one.path, knock.write(guard, &self.card, bytes as usize));
                };
                if !long {
                    knock(true, one.most_bytes);
                }
                if !answered && one.most_bytes > one.sure_bytes {
                    knock(false, one.sure_bytes);
                }
            }
            self.tries += 1;
            self.next_ns = now_ns + self.wait_ns;
            self.wait_ns *= 2;
        }
        false
    }

    /// What nobody can know ahead of a probe: of the try `number` of a pair.
    fn nonce(&self, number: u8, pair: u8, long: bool) -> u64 {
        self.random.hash_one((number, pair, long))
    }

    pub fn deadline_ns(&self) -> u64 {
        self.next_ns.min(self.end_ns)
    }

    /// Takes in an answer. False if it is none to this search.
    pub fn answered(&mut self, knock: &Knock, now_ns: u64) -> bool {
        let asked = (0..self.tries).any(|one| knock.nonce == self.nonce(one, knock.pair, knock.long));
        let ours = knock.answer && knock.ends == self.ends.turned() && asked && (knock.pair as usize) < self.candidates.len();
        if ours {
            self.answered |= 1 << knock.pair;
            self.answered_long |= (knock.long as u32) << knock.pair;
            self.end_ns = self.end_ns.min(now_ns + SETTLE_NS);
        }
        ours
    }
}

#[cfg(test)]
mod tests {
    use super::super::protection::{JobKey, Protection};
    use super::*;
    use proptest::prelude::*;

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
        let forth = Search::new(ENDS, &one, &two, RandomState::new(), 0).paths(2).0;
        let back = Search::new(ENDS.turned(), &two, &one, RandomState::new(), 0).paths(2).0;
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
        let mut search = Search::new(ENDS, &one, &two, RandomState::new(), 0);
        let mut probes = Vec::new();
        assert!(!search.poll(&guard, 0, |path, bytes| probes.push((path, bytes))));
        assert_eq!(probes.len(), 4);
        assert!(probes.iter().all(|(_, bytes)| bytes.len() == 1472));
        let (alive, probe) = probes.iter().find(|(path, _)| path.local == 1 && path.ip == ip("10.0.1.2")).unwrap();
        let answer = Knock::read(&guard, probe).unwrap().0.answer(&guard).unwrap();
        assert!(search.answered(&Knock::read(&guard, &answer).unwrap().0, 1000));
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
        let forth = names(Search::new(ENDS, &one, &two, RandomState::new(), 0).paths(2), &one);
        assert_eq!(forth, [(ip(v4[0]), ip(v4[1])), (ip(v4[0]), ip(v4[2]))]);
        let back = names(Search::new(ENDS.turned(), &two, &one, RandomState::new(), 0).paths(2), &two);
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
            let mut search = Search::new(ENDS, &one, two, RandomState::new(), 0);
            assert_eq!(search.paths(2).1, 1472);
            let (mut now_ns, mut answers) = (0, Vec::new());
            while !search.poll(&guard, now_ns, |path, bytes| {
                if passes(&path, bytes.len()) {
                    answers.push(bytes)
                }
            }) {
                for probe in answers.drain(..) {
                    let answer = Knock::read(&guard, &probe).unwrap().0.answer(&guard).unwrap();
                    assert!(search.answered(&Knock::read(&guard, &answer).unwrap().0, now_ns));
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
        let mut search = Search::new(ENDS, &card(11, &[("10.0.0.1", 24)]), &two, RandomState::new(), 0);
        let mut probes = Vec::new();
        let mut ask = |search: &mut Search, now_ns| {
            search.poll(&right, now_ns, |_, bytes| probes.push(Knock::read(&right, &bytes).unwrap().0));
            *probes.last().unwrap()
        };
        let first = ask(&mut search, 0);
        let second = ask(&mut search, PROBE_WAIT_NS);
        assert_ne!(first.nonce, second.nonce, "each probe has its own");
        let mut earlier = Search::new(ENDS, &card(11, &[("10.0.0.1", 24)]), &two, RandomState::new(), 0);
        let other = ask(&mut earlier, 0);
        let knock = Knock { ends: ENDS.turned(), answer: true, ..second };
        assert_eq!(Knock::read(&right, &knock.write(&guard(2), &[], 0)), None, "another job");
        let mut damaged = knock.write(&right, &[], 0);
        damaged[1] = 1;
        assert_eq!(Knock::read(&right, &damaged), None);
        for wrong in [
            Knock { nonce: knock.nonce ^ 1, ..knock },
            Knock { nonce: other.nonce, ..knock },
            Knock { pair: 1, ..knock },
            Knock { answer: false, ..knock },
            Knock { ends: ENDS, ..knock },
        ] {
            assert!(!search.answered(&wrong, 0), "{wrong:?}");
        }
        assert!(search.answered(&Knock { nonce: first.nonce, ..knock }, 0), "an answer may be late");
        assert!(search.answered(&knock, 0));
        assert_eq!(knock.answer(&right), None, "answers are not answered");
    }

    /// What comes with a probe is under its authenticator, and no probe is longer than its pair carries.
    #[test]
    fn cards_come_along() {
        let (ours, two) = (card(11, &[("10.0.0.1", 24), ("10.0.1.1", 24)]), card(12, &[("10.0.0.2", 24)]));
        let guard = guard(1);
        let mut search = Search::new(ENDS, &ours, &two, RandomState::new(), 0).telling(&ours, 3);
        let mut probes = Vec::new();
        search.poll(&guard, 0, |_, bytes| probes.push(bytes));
        for mut probe in probes {
            assert_eq!(probe.len(), 1472);
            let (knock, text) = Knock::read(&guard, &probe).unwrap();
            assert_eq!((knock.revision, std::str::from_utf8(text).unwrap().parse()), (3, Ok(ours.clone())));
            let answer = knock.answer(&guard).unwrap();
            assert_eq!(answer.len(), PROBE_BYTES);
            assert_eq!(Knock::read(&guard, &answer).unwrap().1, b"");
            probe[PROBE_BYTES] ^= 1;
            assert_eq!(Knock::read(&guard, &probe), None);
            probe[PROBE_BYTES] ^= 1;
            assert_eq!(Knock::read(&guard, &probe[..PROBE_BYTES + 9]), None, "cut inside the card");
        }
        let long = Card {
            offers: vec![Offer { ip: ip("1111:1111:1111:1111:1111:1111:1111:1111"), prefix: 128, ports: vec![u16::MAX; 4], mtu_bytes: 9999 }; RAILS_MAX],
            ..ours
        };
        assert_eq!(Search::new(ENDS, &long, &long, RandomState::new(), 0).telling(&long, 1).revision, 1, "the longest card fits");
    }

    /// Ways that answer later are added to those there are, in the place of doubles first; none that is shorter, none without an address of its own.
    #[test]
    fn later_ways_are_added() {
        let one = card(11, &[("10.0.0.1", 24), ("10.0.1.1", 24), ("10.0.2.1", 24)]);
        let two = card(12, &[("10.0.0.2", 24), ("10.0.1.2", 24), ("10.0.2.2", 24)]);
        let mut short = two.clone();
        short.offers[2].mtu_bytes = 1300;
        let first = Search::new(ENDS, &one, &two, RandomState::new(), 0).paths(1).0;
        let after = |two: &Card, before: &[Path]| {
            let mut search = Search::new(ENDS, &one, two, RandomState::new(), 0).carrying(1472);
            let mut probes = Vec::new();
            search.poll(&guard(1), 0, |_, bytes| probes.push(bytes));
            for probe in probes {
                let answer = Knock::read(&guard(1), &probe).unwrap().0.answer(&guard(1)).unwrap();
                assert!(search.answered(&Knock::read(&guard(1), &answer).unwrap().0, 0));
            }
            search.added_to(before).iter().map(|path| (path.local, path.ip)).collect::<Vec<_>>()
        };
        let ways = [0, 1, 2].map(|at: u8| (at, two.offers[at as usize].ip));
        assert_eq!(after(&two, &first), ways);
        assert_eq!(after(&two, &[first[0], first[0]]), ways);
        // The short one is no end of any.
        assert_eq!(after(&short, &first), [ways[0], ways[1], (2, ways[0].1)]);
    }

    #[test]
    fn gives_up() {
        let mut search = Search::new(ENDS, &card(11, &[("10.0.0.1", 24)]), &card(12, &[("10.0.0.2", 24)]), RandomState::new(), 0);
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
        fn any_knock(bytes in proptest::collection::vec(any::<u8>(), 0..100)) {
            prop_assert_eq!(Knock::read(&guard(1), &bytes), None);
        }
    }
}
