//! Which paths lead to a peer: pairs of addresses, and the handshake that finds the pairs that carry datagrams of full length both ways.

use std::hash::{BuildHasher, RandomState};

use proto::reliability::seal;
use proto::reliability::wire::TAG_BYTES;
use proto::reliability::{MTU_BYTES_MIN, PeerId, RAILS_MAX};

use super::card::Card;
use super::device::{DatagramDevice, Path};
use super::protection::Guard;

/// Pairs of addresses that are probed, at most.
const CANDIDATES_MAX: usize = 16;

/// A pair of addresses that may be a path.
#[derive(Clone, Copy, Debug)]
struct Candidate<P> {
    path: P,
    /// Both addresses are of rails of their own.
    own: bool,
    /// What both links take, bytes, and what is sure to pass between them.
    most_bytes: u32,
    sure_bytes: u32,
    /// What both would carry in several packets, bytes.
    in_parts_bytes: u32,
}

/// Every pair of addresses that may be a path, the likeliest first. Both ends find the same order, so that a rail means the same
/// network to both as far as it can.
fn candidates<D: DatagramDevice>(ours: &Card<D::Offer>, card: &Card<D::Offer>, lower: bool) -> Vec<Candidate<D::Path>> {
    let mut pairs = Vec::new();
    for (local, our) in ours.offers.iter().enumerate() {
        for (remote, offer) in card.offers.iter().enumerate() {
            let Some(found) = D::candidate(local as u8, our, offer) else { continue };
            let (first, second) = if lower { (local, remote) } else { (remote, local) };
            let own = local < ours.rails && remote < card.rails;
            let most_bytes = found.most_bytes.max(MTU_BYTES_MIN);
            let sure_bytes = found.sure_bytes.clamp(MTU_BYTES_MIN, most_bytes);
            let in_parts_bytes = found.in_parts_bytes.max(most_bytes);
            pairs.push(((found.distance, first, second), Candidate { path: found.path, own, most_bytes, sure_bytes, in_parts_bytes }));
        }
    }
    pairs.sort_by_key(|&(order, _)| order);
    pairs.into_iter().map(|(_, pair)| pair).take(CANDIDATES_MAX).collect()
}

/// Paths of which no two share an address, as far as there are any, then such as have an address of their own at one end, then the same again; those between
/// addresses of rails of their own first.
fn rails<'a, P: Path + 'a>(candidates: impl Iterator<Item = &'a Candidate<P>> + Clone, rails: usize) -> Vec<P> {
    let mut chosen: Vec<P> = Vec::new();
    for (own, apart) in [(true, true), (true, false), (false, true), (false, false)] {
        for Candidate { path, .. } in candidates.clone().filter(|one| one.own || !own) {
            let (here, there) = shared(&chosen, path);
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

/// Whether one of `paths` begins where `path` does, and whether one ends there.
fn shared<P: Path>(paths: &[P], path: &P) -> (bool, bool) {
    (paths.iter().any(|one| one.local() == path.local()), paths.iter().any(|one| one.ends_with(path)))
}

const PROBE: u8 = b'P';
const ANSWER: u8 = b'A';
/// Bytes of a probe or an answer without its padding.
pub const PROBE_BYTES: usize = 32 + TAG_BYTES;

/// Who speaks to whom.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Ends {
    pub source: PeerId,
    pub source_epoch: u32,
    pub destination: PeerId,
    pub destination_epoch: u32,
}

impl Ends {
    pub fn turned(self) -> Ends {
        Ends { source: self.destination, source_epoch: self.destination_epoch, destination: self.source, destination_epoch: self.source_epoch }
    }
}

/// A sound and authentic datagram of the handshake.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Probe {
    pub ends: Ends,
    pub answer: bool,
    pub pair: u8,
    /// The probe is as long as the pair may carry, not as it surely does.
    pub long: bool,
    pub nonce: u64,
    /// Which of the prober's cards comes with it, counted from the start; 0 for none.
    pub revision: u16,
    /// It goes between processes of two jobs, and the ends are the numbers that each has in its own.
    pub foreign: bool,
}

/// | bytes | meaning |
/// | --- | --- |
/// | 0 | `P` probe, `A` answer |
/// | 1 | which pair, by the prober's order |
/// | 2 | 1 for a probe of the longest datagram, and its answer; 0 for one of a length that surely passes |
/// | 3 | 1 between processes of two jobs, else 0 |
/// | 4..6 | length of the card, 0 for none |
/// | 6..8 | how often the prober's card has changed, if it comes along |
/// | 8..24 | source, its epoch, destination, its epoch |
/// | 24..32 | the probe's nonce |
/// | 32..48 | authenticator of all before and of the card |
/// | 48.. | the card, then padding of a probe, 0 |
impl Probe {
    /// Whether bytes belong to the handshake, and not to `proto::reliability`.
    pub fn is_one(bytes: &[u8]) -> bool {
        matches!(bytes.first(), Some(&PROBE | &ANSWER))
    }

    /// Whether bytes are marked as going between processes of two jobs.
    pub fn is_foreign(bytes: &[u8]) -> bool {
        bytes.get(3) == Some(&1)
    }

    pub fn write(&self, guard: &Guard, card: &[u8], bytes: usize) -> Vec<u8> {
        let mut out = vec![if self.answer { ANSWER } else { PROBE }, self.pair, self.long as u8, self.foreign as u8];
        out.extend((card.len() as u16).to_le_bytes());
        out.extend(self.revision.to_le_bytes());
        let ends = self.ends;
        for word in [ends.source, ends.source_epoch, ends.destination, ends.destination_epoch] {
            out.extend(word.to_le_bytes());
        }
        out.extend(self.nonce.to_le_bytes());
        let tag = guard.mark(b"probe", &[&out, card].concat());
        out.extend(tag);
        out.extend(card);
        out.resize(out.len().max(bytes), 0);
        out
    }

    /// With the card that came along, which may be empty.
    pub fn read<'a>(guard: &Guard, bytes: &'a [u8]) -> Option<(Probe, &'a [u8])> {
        let (fixed, rest) = bytes.split_first_chunk::<PROBE_BYTES>()?;
        let (said, tag) = fixed.split_at(PROBE_BYTES - TAG_BYTES);
        let half = |at: usize| u16::from_le_bytes([said[at], said[at + 1]]);
        let card = rest.get(..half(4) as usize)?;
        let right = guard.mark(b"probe", &[said, card].concat());
        let same = seal::same(&right, tag.try_into().ok()?);
        let word = |at: usize| u32::from_le_bytes([said[at], said[at + 1], said[at + 2], said[at + 3]]);
        let ends = Ends { source: word(8), source_epoch: word(12), destination: word(16), destination_epoch: word(20) };
        let nonce = word(24) as u64 | (word(28) as u64) << 32;
        let probe = Probe { ends, answer: said[0] == ANSWER, pair: said[1], long: said[2] != 0, nonce, revision: half(6), foreign: Probe::is_foreign(said) };
        (same && Probe::is_one(said) && said[1] < CANDIDATES_MAX as u8).then_some((probe, card))
    }

    /// What a probe is answered with; it is shorter, so that nobody can use us to flood others.
    pub fn answer(&self, guard: &Guard) -> Option<Vec<u8>> {
        (!self.answer).then(|| Probe { ends: self.ends.turned(), answer: true, revision: 0, ..*self }.write(guard, &[], 0))
    }
}

/// The search for paths to one peer. Until it has ended, the likeliest pairs are used.
#[derive(Debug)]
pub struct Search<P> {
    ends: Ends,
    foreign: bool,
    /// What makes the nonces of probes; no two are the same.
    random: RandomState,
    candidates: Vec<Candidate<P>>,
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
    pub revision: u16,
    /// What it finds is added to the paths there are.
    pub adds: bool,
}

/// Time between the first two probes of a pair; it doubles.
pub const PROBE_WAIT_NS: u64 = 5_000_000;
/// Probes of each pair. With the doubling they span about five seconds; then the likeliest pairs stay.
pub const TRIES_MAX: u8 = 10;
/// After the first answer, others are waited for so long.
pub const SETTLE_NS: u64 = 50_000_000;

impl<P: Path> Search<P> {
    /// `random`: of this search's own, so that an answer to another one is none to it.
    pub fn new<D: DatagramDevice<Path = P>>(ends: Ends, ours: &Card<D::Offer>, card: &Card<D::Offer>, random: RandomState, now_ns: u64) -> Search<P> {
        let candidates = candidates::<D>(ours, card, (ends.source, ends.source_epoch) < (ends.destination, ends.destination_epoch));
        Search {
            ends,
            foreign: false,
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

    /// The peer is a process of another job, if `foreign`.
    pub fn between_jobs(self, foreign: bool) -> Search<P> {
        Search { foreign, ..self }
    }

    /// Tells the peer that `card` is ours now, which has changed `revision` times; nothing if it has not.
    pub fn telling(mut self, card: &str, revision: u16) -> Search<P> {
        let text = if revision > 0 { card.as_bytes().to_vec() } else { Vec::new() };
        // No card is as long as that.
        if text.len() + PROBE_BYTES <= MTU_BYTES_MIN as usize {
            (self.card, self.revision) = (text, revision);
        }
        self
    }

    /// Only such pairs count as carry datagrams of `bytes`, if need be in several packets: what has been cut for other paths must pass.
    pub fn carrying(mut self, bytes: u32) -> Search<P> {
        self.candidates.retain(|one| one.in_parts_bytes >= bytes);
        for one in &mut self.candidates {
            one.most_bytes = one.most_bytes.max(bytes);
            one.sure_bytes = if one.sure_bytes < bytes { one.most_bytes } else { one.sure_bytes };
        }
        self
    }

    /// Answers take so long that probes wait for them for `wait_ns` at least.
    pub fn patient(self, wait_ns: u64) -> Search<P> {
        Search { wait_ns: self.wait_ns.max(wait_ns), ..self }
    }

    /// Whether there is something to find out, or to tell.
    pub fn is_worth_it(&self) -> bool {
        self.revision > 0 || self.candidates.len() > 1 || self.candidates.iter().any(|one| one.most_bytes > one.sure_bytes)
    }

    /// What to use now, one for each of `count` rails, and the longest datagram that passes all of them, bytes. The latter grows only.
    pub fn paths(&self, count: usize) -> (Vec<P>, u32) {
        let all = self.candidates.iter().enumerate();
        let any = self.answered == 0;
        let usable = all.clone().filter(|&(pair, _)| any || self.answered >> pair & 1 == 1).map(|(_, one)| one);
        let spares_alone = usable.clone().all(|one| one.path.is_spare());
        let paths = rails(usable.filter(|one| spares_alone || !one.path.is_spare()), count);
        // Until a pair has answered, any may be used later.
        let used = all.filter(|(_, one)| any || paths.contains(&one.path));
        let passes = used.map(|(pair, one)| if self.answered_long >> pair & 1 == 1 { one.most_bytes } else { one.sure_bytes });
        let bytes = passes.min().unwrap_or(MTU_BYTES_MIN);
        (paths, bytes)
    }

    /// Whether pairs have answered, and all of them are spare.
    pub fn found_spares_alone(&self) -> bool {
        let mut answered = self.candidates.iter().enumerate().filter(|(pair, _)| self.answered >> pair & 1 == 1);
        self.answered != 0 && answered.all(|(_, one)| one.path.is_spare())
    }

    /// `paths`, and those that have answered besides and have an address of their own, in the place of doubles or as rails more.
    pub fn added_to(&self, paths: &[P]) -> Vec<P> {
        let mut all = paths.to_vec();
        for (_, Candidate { path, .. }) in self.candidates.iter().enumerate().filter(|(pair, _)| self.answered >> pair & 1 == 1) {
            let (here, there) = shared(&all, path);
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
    pub fn poll(&mut self, guard: &Guard, now_ns: u64, mut send: impl FnMut(P, Vec<u8>)) -> bool {
        let all = self.answered_long.count_ones() as usize == self.candidates.len();
        if all || now_ns >= self.end_ns || self.tries == TRIES_MAX && now_ns >= self.next_ns {
            return true;
        }
        if now_ns >= self.next_ns {
            for (pair, one) in self.candidates.iter().enumerate() {
                let (answered, long) = (self.answered >> pair & 1 == 1, self.answered_long >> pair & 1 == 1);
                let mut ask = |long, bytes: u32| {
                    let nonce = self.nonce(self.tries, pair as u8, long);
                    let probe = Probe { ends: self.ends, answer: false, pair: pair as u8, long, nonce, revision: self.revision, foreign: self.foreign };
                    send(one.path, probe.write(guard, &self.card, bytes as usize));
                };
                if !long {
                    ask(true, one.most_bytes);
                }
                if !answered && one.most_bytes > one.sure_bytes {
                    ask(false, one.sure_bytes);
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
    pub fn answered(&mut self, probe: &Probe, now_ns: u64) -> bool {
        let asked = (0..self.tries).any(|one| probe.nonce == self.nonce(one, probe.pair, probe.long));
        let ours = probe.answer && probe.ends == self.ends.turned() && asked && (probe.pair as usize) < self.candidates.len();
        if ours {
            self.answered |= 1 << probe.pair;
            self.answered_long |= (probe.long as u32) << probe.pair;
            self.end_ns = self.end_ns.min(now_ns + SETTLE_NS);
        }
        ours
    }
}
