//! What keeps foreign and damaged datagrams out.
//!
//! | mode | tag | against |
//! | --- | --- | --- |
//! | `auth` | AEGIS-128L as a keyed authenticator, 128 bits | whoever has not the job's key, and damage |
//! | `crc` | CRC-32 and 96 bits of the job's mark | damage, and datagrams of other jobs by mistake |
//! | `encrypt` | AEGIS-256X2, authenticated encryption of all after the fixed header | readers as well |
//!
//! The nonce of `encrypt` is the fixed header, which holds source, incarnation, rail and number, and never repeats. Replays are refused by
//! those numbers, in `proto::reliability`.

use std::cell::RefCell;
use std::fmt;
use std::mem::MaybeUninit;
use std::str::FromStr;

use aegis::aegis128l::Aegis128LMac;
use aegis::aegis256x2::Aegis256X2;
use crc32fast::Hasher;
use proto::reliability::seal::{self, Seal};
use proto::reliability::wire::{FIXED_BYTES, HEADER_BYTES, Packet, TAG_BYTES, Tag};

use super::lanes::{Ahead, Copied, LANES, Laid, Lanes, Parts, RATE_BYTES};
use crate::stores::{self, Stores};

/// The key of a job: made by its launcher, passed by the process-management channel only.
#[derive(Clone)]
pub struct JobKey([u8; 32]);

/// What [`JobKey::seal`] adds, bytes.
pub const SEALED_MORE_BYTES: usize = 32 + TAG_BYTES;

impl JobKey {
    pub fn new(bytes: [u8; 32]) -> JobKey {
        JobKey(bytes)
    }

    /// A key of the system's random numbers.
    pub fn random() -> std::io::Result<JobKey> {
        let mut bytes = [0; 32];
        std::io::Read::read_exact(&mut std::fs::File::open("/dev/urandom")?, &mut bytes)?;
        Ok(JobKey(bytes))
    }

    /// A key that only those can make who know this one, another for each `salt`, which others may know.
    pub fn mixed(&self, salt: &JobKey) -> JobKey {
        let mut bytes = [0; 32];
        Aegis256X2::<TAG_BYTES>::new(&self.0, &salt.0).stream(&mut bytes);
        JobKey(bytes)
    }

    /// `bytes`, encrypted and authenticated: a nonce, a tag, then as many bytes.
    pub fn seal(&self, bytes: &[u8]) -> std::io::Result<Vec<u8>> {
        let nonce = JobKey::random()?.0;
        let mut out = [&nonce[..], &[0; TAG_BYTES], bytes].concat();
        let tag = Aegis256X2::<TAG_BYTES>::new(&self.0, &nonce).encrypt_in_place(&mut out[SEALED_MORE_BYTES..], b"");
        out[nonce.len()..SEALED_MORE_BYTES].copy_from_slice(&tag);
        Ok(out)
    }

    /// What [`JobKey::seal`] was given, if it was sealed with this key.
    pub fn open(&self, sealed: &[u8]) -> Option<Vec<u8>> {
        let (nonce, rest) = sealed.split_first_chunk::<32>()?;
        let (tag, rest) = rest.split_first_chunk::<TAG_BYTES>()?;
        Aegis256X2::<TAG_BYTES>::new(&self.0, nonce).decrypt(rest, tag, b"").ok()
    }

    pub fn bytes(&self) -> &[u8; 32] {
        &self.0
    }

    /// 64 hexadecimal digits, for the process-management channel.
    pub fn to_hex(&self) -> String {
        self.0.iter().map(|byte| format!("{byte:02x}")).collect()
    }

    pub fn from_hex(text: &str) -> Option<JobKey> {
        let digits: Vec<u8> = text.chars().map(|c| c.to_digit(16).map(|d| d as u8)).collect::<Option<_>>()?;
        let (pairs, []) = digits.as_chunks::<2>() else { return None };
        let bytes: Vec<u8> = pairs.iter().map(|[high, low]| high << 4 | low).collect();
        bytes.try_into().ok().map(JobKey)
    }
}

impl fmt::Debug for JobKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JobKey(…)")
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Protection {
    #[default]
    Auth,
    Crc,
    Encrypt,
}

impl FromStr for Protection {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text {
            "auth" => Ok(Protection::Auth),
            "crc" => Ok(Protection::Crc),
            "encrypt" => Ok(Protection::Encrypt),
            _ => Err("one of auth, crc, encrypt"),
        }
    }
}

/// Seals and opens datagrams of one job.
#[derive(Clone)]
pub struct Guard {
    protection: Protection,
    /// Keyed already, and reset after each use: copies of them are long.
    authenticator: RefCell<Aegis128LMac<TAG_BYTES>>,
    /// The same for several datagrams at once, where the core can.
    lanes: Option<Lanes>,
    encryption: [u8; 32],
    mark: [u8; 12],
}

impl fmt::Debug for Guard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Guard({:?})", self.protection)
    }
}

impl Guard {
    pub fn new(key: &JobKey, protection: Protection) -> Guard {
        // One key for each use. An authenticator takes 256 bits: as its key, and as a nonce that stays, which a keyed hash may have.
        let mut keys = [0; 2 * 16 + 32 + 12];
        Aegis256X2::<TAG_BYTES>::new(&key.0, b"whimbrel datagrams, keys of uses").stream(&mut keys);
        let (halves, rest) = keys.split_first_chunk::<32>().expect("76 bytes");
        let ([mac, nonce], []) = halves.as_chunks::<16>() else { unreachable!() };
        let (encryption, rest) = rest.split_first_chunk::<32>().expect("44 bytes");
        let mark = *rest.first_chunk::<12>().expect("12 bytes");
        let authenticator = RefCell::new(Aegis128LMac::new_with_nonce(mac, nonce));
        let lanes = Lanes::new(mac, nonce).filter(|_| protection == Protection::Auth);
        Guard { protection, authenticator, lanes, encryption: *encryption, mark }
    }

    pub fn protection(&self) -> Protection {
        self.protection
    }

    /// Whether a payload has to lie in one piece after its header when it is sealed ([`Guard::encrypt`]).
    pub fn encrypts(&self) -> bool {
        self.protection == Protection::Encrypt
    }

    /// Puts the tags into `header`; the datagram is then header and payload. Not for `encrypt`.
    pub fn seal_datagram(&self, header: &mut [u8], payload: &[&[u8]]) {
        debug_assert!(!self.encrypts());
        seal::seal_datagram(self, header, payload);
    }

    /// Makes datagrams of `each_bytes`, which fill `out`: each has a head, which `head` writes without its tag and says the length of, then `segment_bytes`
    /// of `payload` or what is left of it, then zeroes up to its end. Payloads are read once, and put there by `stores` where several are authenticated at
    /// once; all can be seen then. What follows `payload` in memory is brought meanwhile.
    ///
    /// # Panics
    /// When `out` takes less than `payload`, or a head and a segment are longer than `each_bytes`.
    pub fn seal_each(
        &self,
        each_bytes: usize,
        segment_bytes: usize,
        mut payload: &[u8],
        out: &mut [MaybeUninit<u8>],
        stores: Stores,
        mut head: impl FnMut(&mut [MaybeUninit<u8>]) -> usize,
    ) {
        for several in out.chunks_mut(LANES * each_bytes) {
            let lanes = self.lanes.as_ref().filter(|_| several.len() > each_bytes && several.len().is_multiple_of(each_bytes));
            let (mut messages, mut bodies, mut head_bytes) = ([std::ptr::null_mut(); LANES], [&[][..]; LANES], [0; LANES]);
            let mut count = 0;
            for datagram in several.chunks_mut(each_bytes) {
                head_bytes[count] = head(datagram);
                datagram[FIXED_BYTES..HEADER_BYTES].fill(MaybeUninit::new(0));
                (bodies[count], payload) = payload.split_at(payload.len().min(segment_bytes));
                messages[count] = datagram.as_mut_ptr().cast::<u8>();
                count += 1;
            }
            let Some((lanes, cut)) = lanes.and_then(|lanes| Some((lanes, Cut::new(each_bytes, &head_bytes[..count], segment_bytes)?))) else {
                for (at, datagram) in several.chunks_mut(each_bytes).enumerate() {
                    let (to_body, padding) = datagram[head_bytes[at]..].split_at_mut(bodies[at].len());
                    fill(to_body, bodies[at]);
                    padding.fill(MaybeUninit::new(0));
                    // SAFETY: it has been written.
                    self.seal_whole(unsafe { std::slice::from_raw_parts_mut(datagram.as_mut_ptr().cast::<u8>(), datagram.len()) });
                }
                continue;
            };
            let mut from = [std::ptr::null(); LANES];
            for (at, datagram) in several.chunks_mut(each_bytes).enumerate() {
                let (body, rest) = (bodies[at], &mut datagram[head_bytes[at]..]);
                // What is copied with the tags has to be there as a whole.
                let (start, end) = (cut.head_bytes - head_bytes[at], cut.head_bytes - head_bytes[at] + cut.body_bytes);
                let apart = body.len() < end;
                let (first, last) = if apart { (body.len(), body.len()) } else { (start, end) };
                fill(&mut rest[..first], &body[..first]);
                fill(&mut rest[last..body.len()], &body[last..]);
                rest[body.len()..].fill(MaybeUninit::new(0));
                from[at] = if apart { messages[at].wrapping_add(cut.head_bytes).cast_const() } else { body[start..].as_ptr() };
            }
            // Two cost less together with themselves than one by one.
            (count..LANES).for_each(|lane| (messages[lane], from[lane]) = (messages[0], from[0]));
            let to = messages.map(|message| message.wrapping_add(cut.head_bytes));
            let tails = to.map(|to| to.wrapping_add(cut.body_bytes).cast_const());
            let laid = cut.laid(messages.map(<*mut u8>::cast_const), from, to, tails);
            // SAFETY: each message lies in `out`, its head, its tail and, where it is not copied, its body written; bodies lie in `payload`.
            let tags = unsafe { lanes.tags_of(&laid, Copied::By(stores), Ahead::Read(payload.as_ptr())) };
            for (datagram, tag) in several.chunks_mut(each_bytes).zip(tags) {
                fill(&mut datagram[FIXED_BYTES..HEADER_BYTES], &tag);
            }
        }
        stores::fence(stores);
        assert!(payload.is_empty());
    }

    /// Puts the tag into a whole datagram, whose own is zeroes.
    fn seal_whole(&self, datagram: &mut [u8]) {
        if self.encrypts() {
            return self.encrypt(datagram);
        }
        let tag = self.seal(datagram, &[]);
        datagram[FIXED_BYTES..HEADER_BYTES].copy_from_slice(&tag);
    }

    /// The tags of up to [`LANES`] datagrams of `each_bytes`, at least [`HEADER_BYTES`], which fill `bytes` and whose
    /// own tags are zeroes. Not for `encrypt`.
    fn tags_alike(&self, bytes: &[u8], each_bytes: usize) -> [Tag; LANES] {
        let count = bytes.len() / each_bytes;
        if let Some(lanes) = self.lanes.as_ref().filter(|_| count > 1) {
            let datagrams = several_times(bytes, each_bytes);
            return lanes.tags(&datagrams.map(|one| &one[..FIXED_BYTES]), &datagrams.map(|one| &one[FIXED_BYTES..]), Ahead::Nothing);
        }
        let mut tags = [[0; TAG_BYTES]; LANES];
        for (datagram, tag) in bytes.chunks_exact(each_bytes).zip(&mut tags) {
            *tag = self.seal(datagram, &[]);
        }
        tags
    }

    /// Which of up to [`LANES`] datagrams of `each_bytes`, at least [`HEADER_BYTES`], which fill `bytes`, are
    /// authentic: bit `i` for the one with number `i`. Nothing is said of their structure. Not for `encrypt`.
    pub fn open_alike(&self, bytes: &mut [u8], each_bytes: usize) -> u8 {
        debug_assert!(!self.encrypts() && bytes.len() <= LANES * each_bytes);
        let mut right = [[0; TAG_BYTES]; LANES];
        for (datagram, tag) in bytes.chunks_exact_mut(each_bytes).zip(&mut right) {
            tag.swap_with_slice(&mut datagram[FIXED_BYTES..HEADER_BYTES]);
        }
        let tags = self.tags_alike(bytes, each_bytes);
        let same = |lane: usize| (seal::same(&tags[lane], &right[lane]) as u8) << lane;
        (0..bytes.len() / each_bytes).fold(0, |all, lane| all | same(lane))
    }

    /// Encrypts a whole datagram in place.
    pub fn encrypt(&self, datagram: &mut [u8]) {
        let (fixed, rest) = datagram.split_first_chunk_mut::<FIXED_BYTES>().expect("a header");
        let (tag, rest) = rest.split_first_chunk_mut::<TAG_BYTES>().expect("a header");
        *tag = Aegis256X2::<TAG_BYTES>::new(&self.encryption, fixed).encrypt_in_place(rest, &[]);
    }

    /// The datagram in `bytes` if it is authentic.
    pub fn open_datagram<'a>(&self, bytes: &'a mut [u8]) -> Option<Packet<'a>> {
        if !self.encrypts() {
            return seal::open_datagram(self, bytes);
        }
        if bytes.len() < HEADER_BYTES {
            return None;
        }
        let (fixed, rest) = bytes.split_first_chunk_mut::<FIXED_BYTES>()?;
        let (tag, rest) = rest.split_first_chunk_mut::<TAG_BYTES>()?;
        Aegis256X2::<TAG_BYTES>::new(&self.encryption, fixed).decrypt_in_place(rest, tag, &[]).ok()?;
        Packet::parse(bytes)
    }

    /// Which of the first datagrams of `each_bytes` in `bytes`, which make a [`Run`] by their structure, are authentic. Not for `encrypt`. With a `place`
    /// those before the last few are copied there first, and judged by what is in memory then.
    ///
    /// # Safety
    /// What `place` says must be so.
    pub unsafe fn open_run(&self, bytes: &mut [u8], each_bytes: usize, place: Option<Place>) -> Opened {
        debug_assert!(!self.encrypts());
        let mut opened = Opened { good: 0, placed: 0 };
        let place = place.and_then(|place| Some((place, Cut::new(each_bytes, &[place.head_bytes], place.segment_bytes)?)));
        for several in bytes.chunks_mut(LANES * each_bytes) {
            let count = several.len().div_ceil(each_bytes);
            let mut right = [[0; TAG_BYTES]; LANES];
            for (datagram, tag) in several.chunks_mut(each_bytes).zip(&mut right) {
                tag.swap_with_slice(&mut datagram[FIXED_BYTES..HEADER_BYTES]);
            }
            let alike = several.len().is_multiple_of(each_bytes);
            let (mut placed, mut there) = (0, [true; LANES]);
            let whole = |(place, _): &(Place, Cut)| (opened.good + count) * place.segment_bytes <= place.bytes && opened.placed == opened.good;
            let together = self.lanes.as_ref().filter(|_| alike && count > 1).zip(place.filter(whole));
            let tags = if let Some((lanes, (place, cut))) = together {
                let tags;
                // SAFETY: as promised, inside the place.
                (tags, there) = unsafe { place.put(lanes, &cut, &several_times(several, each_bytes), count, opened.good) };
                placed = count;
                tags
            } else if alike {
                self.tags_alike(several, each_bytes)
            } else {
                let mut datagrams = several.chunks(each_bytes);
                std::array::from_fn(|_| datagrams.next().map_or([0; TAG_BYTES], |datagram| self.seal(datagram, &[])))
            };
            let first = (0..count).take_while(|&lane| seal::same(&tags[lane], &right[lane]) && there[lane]).count();
            opened.good += first;
            opened.placed += placed.min(first);
            if first < count {
                // What follows is looked at by itself.
                for (datagram, tag) in several.chunks_mut(each_bytes).zip(&right).skip(first + 1) {
                    datagram[FIXED_BYTES..HEADER_BYTES].copy_from_slice(tag);
                }
                break;
            }
        }
        opened
    }

    /// A tag over bytes of another kind than datagrams: those of the handshake.
    pub fn mark(&self, kind: &[u8], bytes: &[u8]) -> Tag {
        let mut authenticator = self.authenticator.borrow_mut();
        authenticator.update(kind);
        authenticator.update(bytes);
        authenticator.finalize_and_reset()
    }
}

/// Up to [`LANES`] datagrams of `each_bytes`, which fill `bytes`: fewer cost less together with themselves than one by one.
fn several_times(bytes: &[u8], each_bytes: usize) -> Parts<'_> {
    let count = bytes.len() / each_bytes;
    std::array::from_fn(|lane| &bytes[lane % count * each_bytes..][..each_bytes])
}

/// How datagrams alike in length are parted into what several of them have their tags made of at once.
#[derive(Clone, Copy)]
struct Cut {
    /// At least as long as each one's own head.
    head_bytes: usize,
    body_bytes: usize,
    tail_bytes: usize,
}

impl Cut {
    /// Of datagrams of `each_bytes`, in which heads of these lengths, `own_heads`, and segments of `segment_bytes` fit. `None` where these are next to
    /// nothing.
    fn new(each_bytes: usize, own_heads: &[usize], segment_bytes: usize) -> Option<Cut> {
        let longest = own_heads.iter().copied().max().unwrap_or(0);
        let head_bytes = longest.next_multiple_of(RATE_BYTES);
        let shortest = own_heads.iter().copied().min().unwrap_or(0);
        let body_bytes = (shortest + segment_bytes).checked_sub(head_bytes)?;
        let whole = head_bytes + body_bytes == each_bytes;
        let body_bytes = if whole { body_bytes } else { body_bytes - body_bytes % RATE_BYTES };
        Some(Cut { head_bytes, body_bytes, tail_bytes: each_bytes - head_bytes - body_bytes })
    }

    fn laid(&self, heads: [*const u8; LANES], bodies: [*const u8; LANES], to: [*mut u8; LANES], tails: [*const u8; LANES]) -> Laid {
        let &Cut { head_bytes, body_bytes, tail_bytes } = self;
        Laid { heads, head_bytes, bodies, body_bytes, to, tails, tail_bytes }
    }
}

/// Where the payloads of a run belong: `bytes` from `start` on, all of `segment_bytes` but the last; they stand `head_bytes` behind the
/// beginnings of their datagrams.
#[derive(Clone, Copy, Debug)]
pub struct Place {
    pub start: *mut u8,
    pub bytes: usize,
    pub segment_bytes: usize,
    /// Those and a segment fit in each datagram.
    pub head_bytes: usize,
}

impl Place {
    /// Copies the payloads of the first `count` of `datagrams`, the first of which is number `from` of the run, and makes the tags of the datagrams from what is in
    /// memory then. Also which are there as they came, in those bytes that the tags are not made from.
    ///
    /// # Safety
    /// These payloads must be writable, and not in use.
    unsafe fn put(&self, lanes: &Lanes, cut: &Cut, datagrams: &Parts, count: usize, from: usize) -> ([Tag; LANES], [bool; LANES]) {
        let segment_bytes = self.segment_bytes;
        // SAFETY: as promised.
        let to: [*mut u8; LANES] = std::array::from_fn(|lane| unsafe { self.start.add((from + lane % count) * segment_bytes) });
        let start = cut.head_bytes - self.head_bytes;
        let body = start..start + cut.body_bytes;
        let mut same = [true; LANES];
        for lane in 0..count {
            let payload = &datagrams[lane][self.head_bytes..][..segment_bytes];
            // SAFETY: as promised; it has just been written.
            let placed = unsafe {
                payload.as_ptr().copy_to_nonoverlapping(to[lane], segment_bytes);
                std::slice::from_raw_parts(to[lane], segment_bytes)
            };
            // What the tag does not read there.
            same[lane] = placed[..body.start] == payload[..body.start] && placed[body.end..] == payload[body.end..];
        }
        let heads = datagrams.map(<[u8]>::as_ptr);
        let bodies = to.map(|to| to.wrapping_add(body.start).cast_const());
        let tails = heads.map(|head| head.wrapping_add(cut.head_bytes + cut.body_bytes));
        let next = to[0].wrapping_add(count * segment_bytes);
        // SAFETY: datagrams are readable, and so is what has been written.
        (unsafe { lanes.tags_of(&cut.laid(heads, bodies, to, tails), Copied::Not, Ahead::Write(next)) }, same)
    }
}

/// What [`Guard::open_run`] has found.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct Opened {
    /// So many of the first are authentic.
    pub good: usize,
    /// And the payloads of so many of those are where they belong.
    pub placed: usize,
}

pub(super) fn fill(to: &mut [MaybeUninit<u8>], from: &[u8]) {
    debug_assert_eq!(to.len(), from.len());
    // SAFETY: bytes that are initialized are such as may not be.
    to.copy_from_slice(unsafe { std::slice::from_raw_parts(from.as_ptr().cast::<MaybeUninit<u8>>(), from.len()) });
}

impl Seal for Guard {
    fn seal(&self, header: &[u8], payload: &[&[u8]]) -> Tag {
        if self.protection == Protection::Crc {
            let mut sum = Hasher::new();
            sum.update(header);
            payload.iter().for_each(|slice| sum.update(slice));
            let mut tag = [0; TAG_BYTES];
            let (sum_bytes, mark) = tag.split_at_mut(4);
            sum_bytes.copy_from_slice(&sum.finalize().to_le_bytes());
            mark.copy_from_slice(&self.mark);
            return tag;
        }
        let mut authenticator = self.authenticator.borrow_mut();
        authenticator.update(header);
        payload.iter().for_each(|slice| authenticator.update(slice));
        authenticator.finalize_and_reset()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use proto::reliability::wire::{self, Data, Frame, Header, begin, finish};

    const MODES: [Protection; 3] = [Protection::Auth, Protection::Crc, Protection::Encrypt];

    fn datagram(guard: &Guard, direct: bool, payload: &[u8]) -> Vec<u8> {
        let header = Header { direct, rail: 0, source: 1, destination: 2, source_epoch: 3, destination_epoch: 4, sent_us: 5, number: 6 };
        let mut bytes = Vec::new();
        begin(&mut bytes, &header);
        let carried = if direct { payload } else { &[] };
        if direct {
            let data = Data { window: 1, vfrag: 0, vfrag_bytes: (LANES * payload.len()) as u32, segment: 0, segment_bytes: payload.len() as u16 };
            Frame::Data(data).write(&mut bytes);
        } else {
            Frame::Ping.write(&mut bytes);
        }
        finish(&mut bytes);
        if guard.encrypts() {
            bytes.extend(carried);
            guard.encrypt(&mut bytes);
        } else {
            let half = carried.len() / 2;
            guard.seal_datagram(&mut bytes, &[&carried[..half], &carried[half..]]);
            bytes.extend(carried);
        }
        bytes
    }

    fn opens(guard: &Guard, bytes: &[u8]) -> bool {
        let mut bytes = bytes.to_vec();
        guard.open_datagram(&mut bytes).is_some()
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        /// What was sealed opens; with any bit changed, any byte missing, or another key it does not.
        #[test]
        fn only_the_authentic(key: [u8; 32], other: [u8; 32], direct: bool, payload in proptest::collection::vec(any::<u8>(), 1..1500), at: usize) {
            prop_assume!(key != other);
            for protection in MODES {
                let guard = Guard::new(&JobKey::new(key), protection);
                let sealed = datagram(&guard, direct, &payload);
                prop_assert!(opens(&guard, &sealed), "{protection:?}");
                prop_assert!(!opens(&Guard::new(&JobKey::new(other), protection), &sealed));
                let mut damaged = sealed.clone();
                damaged[at / 8 % sealed.len()] ^= 1 << (at % 8);
                prop_assert!(!opens(&guard, &damaged), "{protection:?} byte {}", at / 8 % sealed.len());
                prop_assert!(!opens(&guard, &sealed[..at % sealed.len()]));
            }
        }
    }

    fn run(guard: &Guard, head: &mut [u8; 64], payload: &[u8], segment_bytes: usize, out_bytes: usize, stores: Stores) -> Vec<u8> {
        let mut out = Vec::with_capacity(out_bytes);
        guard.seal_each(64 + segment_bytes, segment_bytes, payload, &mut out.spare_capacity_mut()[..out_bytes], stores, |datagram| {
            fill(&mut datagram[..64], head);
            wire::advance(head);
            64
        });
        // SAFETY: filled.
        unsafe { out.set_len(out_bytes) };
        out
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        /// A run is what each of its datagrams is alone, padding included, with lanes and without.
        #[test]
        fn runs(key: [u8; 32], mode in 0usize..3, segment_bytes in 100usize..1500, payload in proptest::collection::vec(any::<u8>(), 1..6000), odd in 0usize..64) {
            let payload = &payload[odd.min(payload.len() - 1)..];
            let guard = Guard::new(&JobKey::new(key), MODES[mode]);
            let whole = datagram(&guard, true, &payload[..1]);
            let head: [u8; 64] = whole[..64].try_into().unwrap();
            let count = payload.len().div_ceil(segment_bytes);
            let (mut first, mut second) = (head, head);
            let sealed = run(&guard, &mut first, payload, segment_bytes, count * (64 + segment_bytes), Stores::Streaming);
            let slow = Guard { lanes: None, ..guard.clone() };
            prop_assert_eq!(&sealed, &run(&slow, &mut second, payload, segment_bytes, count * (64 + segment_bytes), Stores::Ordinary));
            prop_assert_eq!(first, second);
            let mut next = head;
            for (one, part) in sealed.chunks(64 + segment_bytes).zip(payload.chunks(segment_bytes)) {
                let mut alone = next.to_vec();
                alone[FIXED_BYTES..HEADER_BYTES].fill(0);
                alone.extend(part);
                alone.resize(64 + segment_bytes, 0);
                if guard.encrypts() {
                    guard.encrypt(&mut alone);
                } else {
                    let (head, body) = alone.split_at_mut(64);
                    guard.seal_datagram(head, &[body]);
                }
                prop_assert_eq!(one, &alone[..]);
                wire::advance(&mut next);
            }
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(128))]

        /// The segments of a message, of which the first has a longer head than the others and all are made as long, are what each of them is alone.
        #[test]
        fn messages(key: [u8; 32], mode in 0usize..3, more_bytes in 0usize..100, segment_bytes in 1usize..1500, payload in proptest::collection::vec(any::<u8>(), 1..9000), seed: u64) {
            let guard = Guard::new(&JobKey::new(key), MODES[mode]);
            let heads = super::super::tests::pattern(seed, 62 + more_bytes);
            let each_bytes = heads.len() + segment_bytes;
            let count = payload.len().div_ceil(segment_bytes).min(70);
            let payload = &payload[..payload.len().min(count * segment_bytes)];
            let mut out = Vec::with_capacity(count * each_bytes);
            let mut next = 0;
            guard.seal_each(each_bytes, segment_bytes, payload, &mut out.spare_capacity_mut()[..count * each_bytes], Stores::Streaming, |datagram| {
                let head = &heads[..if next == 0 { heads.len() } else { 62 }];
                fill(&mut datagram[..head.len()], head);
                next += 1;
                head.len()
            });
            // SAFETY: filled.
            unsafe { out.set_len(count * each_bytes) };
            prop_assert_eq!(next, count);
            for (at, (one, segment)) in out.chunks(each_bytes).zip(payload.chunks(segment_bytes)).enumerate() {
                let mut alone = heads[..if at == 0 { heads.len() } else { 62 }].to_vec();
                alone[FIXED_BYTES..HEADER_BYTES].fill(0);
                alone.extend(segment);
                alone.resize(each_bytes, 0);
                guard.seal_whole(&mut alone);
                prop_assert!(one == alone, "datagram {}", at);
            }
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        /// Datagrams sealed together open one by one, and the other way round; damage of one is that one's alone. With lanes, where
        /// the processor has them, and without.
        #[test]
        fn several_at_once(key: [u8; 32], payload in proptest::collection::vec(any::<u8>(), 4..1500), at: usize, with_lanes: bool, crc: bool) {
            let mut guard = Guard::new(&JobKey::new(key), if crc { Protection::Crc } else { Protection::Auth });
            guard.lanes = guard.lanes.filter(|_| with_lanes);
            let whole = datagram(&guard, true, &payload);
            let (each_bytes, head_bytes) = (whole.len(), whole.len() - payload.len());
            let mut head: [u8; 64] = whole[..head_bytes].try_into().unwrap();
            let sealed = run(&guard, &mut head, &payload.repeat(LANES), payload.len(), LANES * each_bytes, Stores::Ordinary);
            prop_assert!(sealed.chunks(each_bytes).all(|one| opens(&guard, one)));
            let open = |bytes: &[u8], of: usize| {
                let mut bytes = bytes.to_vec();
                // SAFETY: there is no place.
                let Opened { good, placed } = unsafe { guard.open_run(&mut bytes, each_bytes, None) };
                assert_eq!(placed, 0);
                // Behind the first that is not authentic the others are as they came.
                (good, (good + 1..of).all(|at| guard.open_datagram(&mut bytes[at * each_bytes..][..each_bytes]).is_some()))
            };
            // Into a place, whole or damaged: what is authentic is there, and nothing before or behind it is touched.
            for (count, damaged) in [(1, None), (2, Some(1)), (3, None), (LANES, Some(at % LANES)), (LANES, None)] {
                let (mut bytes, mut memory) = (sealed[..count * each_bytes].to_vec(), vec![0x55; 2 + count * payload.len()]);
                if let Some(damaged) = damaged {
                    bytes[damaged * each_bytes + head_bytes + at % payload.len()] ^= 1;
                }
                let place = Place { start: memory[1..].as_mut_ptr(), bytes: count * payload.len(), segment_bytes: payload.len(), head_bytes };
                // SAFETY: inside of `memory`.
                let Opened { good, placed } = unsafe { guard.open_run(&mut bytes, each_bytes, Some(place)) };
                prop_assert_eq!(good, damaged.unwrap_or(count));
                prop_assert_eq!(placed, if guard.lanes.is_some() && count > 1 { good } else { 0 });
                prop_assert!(memory[1..][..placed * payload.len()] == payload.repeat(placed));
                prop_assert_eq!((memory[0], memory[memory.len() - 1]), (0x55, 0x55));
            }
            for count in 1..=LANES {
                let sealed = &sealed[..count * each_bytes];
                prop_assert_eq!(open(sealed, count), (count, true));
                let (at, bit) = (at / 8 % sealed.len(), 1 << (at % 8));
                let mut damaged = sealed.to_vec();
                damaged[at] ^= bit;
                prop_assert_eq!(open(&damaged, count), (at / each_bytes, true));
            }
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        /// Datagrams of any kind that are alike in length alone are opened together as each of them is by itself;
        /// damage of one is that one's alone. With lanes, where the processor has them, and without.
        #[test]
        fn alike_in_length_alone(key: [u8; 32], each_bytes in HEADER_BYTES..1500, count in 1usize..9, seed: u64, at: usize, with_lanes: bool, mode in 0usize..3) {
            let mut guard = Guard::new(&JobKey::new(key), MODES[mode]);
            guard.lanes = guard.lanes.filter(|_| with_lanes);
            let plain = super::super::tests::pattern(seed, count * each_bytes);
            let mut sealed = plain;
            for datagram in sealed.chunks_mut(each_bytes) {
                datagram[FIXED_BYTES..HEADER_BYTES].fill(0);
                guard.seal_whole(datagram);
            }
            if !guard.encrypts() {
                let count = count.min(LANES);
                let all = &sealed[..count * each_bytes];
                prop_assert_eq!(guard.open_alike(&mut all.to_vec(), each_bytes), (1 << count) - 1);
                let (at, bit) = (at / 8 % all.len(), 1 << (at % 8));
                let mut damaged = all.to_vec();
                damaged[at] ^= bit;
                prop_assert_eq!(guard.open_alike(&mut damaged, each_bytes), ((1 << count) - 1) & !(1 << (at / each_bytes)));
            }
        }
    }

    #[test]
    fn encrypts() {
        let guard = Guard::new(&JobKey::new([1; 32]), Protection::Encrypt);
        let sealed = datagram(&guard, true, &[0x55; 1000]);
        assert!(!sealed.windows(4).any(|four| four == [0x55; 4]));
    }

    #[test]
    fn keys_in_words() {
        let key = JobKey::random().unwrap();
        assert_eq!(JobKey::from_hex(&key.to_hex()).unwrap().0, key.0);
        for bad in ["", "00", &"0".repeat(63), &"0".repeat(66), &"g".repeat(64), &"é".repeat(32)] {
            assert!(JobKey::from_hex(bad).is_none(), "{bad}");
        }
        assert_eq!(format!("{key:?}"), "JobKey(…)");
    }
}
