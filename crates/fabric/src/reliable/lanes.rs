//! AEGIS-128L as a keyed authenticator of four messages at once, one in each quarter of the widest registers, or two and two
//! in the halves of narrower ones: a datagram alone leaves most of the core's AES units idle, since every step waits for the
//! last. The tags are those of one message at a time.
//!
//! Source: draft-irtf-cfrg-aegis-aead, "The AEGIS-128L Algorithm" and "Using AEGIS as a MAC".

use proto::reliability::wire::{STEP_BYTES, TAG_BYTES, Tag};

use crate::stores::Stores;

/// Messages at once.
pub const LANES: usize = 4;
/// What one step takes in of each message; the first parts of messages are whole multiples of it.
pub const RATE_BYTES: usize = 32;

/// Datagrams that streaming stores make begin where these can write.
const _: () = assert!(STEP_BYTES.is_multiple_of(RATE_BYTES));

/// The parts of messages, by lane.
pub type Parts<'a> = [&'a [u8]; LANES];

/// Where messages lie, by lane: each is its head, its body and its tail, all three alike in length. Two messages may be the same.
#[derive(Clone, Copy, Debug)]
pub struct Laid {
    pub heads: [*const u8; LANES],
    /// A multiple of [`RATE_BYTES`].
    pub head_bytes: usize,
    pub bodies: [*const u8; LANES],
    /// A multiple of [`RATE_BYTES`] where there are tails.
    pub body_bytes: usize,
    /// Where bodies are copied to meanwhile, if they are ([`Copied`]).
    pub to: [*mut u8; LANES],
    pub tails: [*const u8; LANES],
    pub tail_bytes: usize,
}

impl Laid {
    /// Which of the first two messages the last two are, if both are: two alone are given once more, in whatever order.
    fn again(&self) -> Option<[usize; 2]> {
        let again = |lane: usize| (0..2).find(|&one| self.heads[lane] == self.heads[one] && self.bodies[lane] == self.bodies[one]);
        Some([again(2)?, again(3)?])
    }
}

/// How a body is put elsewhere while its tag is made, if it is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Copied {
    Not,
    By(Stores),
}

/// Memory that will be wanted next, and is brought towards this core meanwhile. Any address will do.
#[derive(Clone, Copy, Debug)]
pub enum Ahead {
    Nothing,
    Read(*const u8),
    Write(*const u8),
}

#[cfg(not(target_arch = "x86_64"))]
pub use none::Lanes;
#[cfg(target_arch = "x86_64")]
pub use x86::Lanes;

#[cfg(not(target_arch = "x86_64"))]
mod none {
    use super::{Ahead, Copied, LANES, Laid, Parts, Tag};

    /// There is no such core.
    #[derive(Clone)]
    pub enum Lanes {}

    impl Lanes {
        pub fn new(key: &[u8; 16], nonce: &[u8; 16]) -> Option<Lanes> {
            Lanes::all(key, nonce).next()
        }

        pub fn all(_key: &[u8; 16], _nonce: &[u8; 16]) -> impl Iterator<Item = Lanes> {
            std::iter::empty()
        }

        pub fn tags(&self, _heads: &Parts, _bodies: &Parts, _ahead: Ahead) -> [Tag; LANES] {
            match *self {}
        }

        pub unsafe fn tags_of(&self, _: &Laid, _: Copied, _: Ahead) -> [Tag; LANES] {
            match *self {}
        }
    }
}

#[cfg(target_arch = "x86_64")]
mod x86 {
    use super::common::{NOT, ORDINARY, STREAMING};
    use super::{Ahead, Copied, LANES, Laid, Parts, RATE_BYTES, Tag, half, wide};
    use crate::stores::Stores;

    /// The state after key and nonce, the same for each message, in the registers that the core has. Two messages take half as long in the narrower ones.
    #[derive(Clone)]
    #[allow(clippy::large_enum_variant, reason = "there is one of them for a job")]
    pub enum Lanes {
        Wide(wide::Start, half::Start),
        Half(half::Start),
    }

    impl Lanes {
        /// `None` where the core has no such instructions.
        pub fn new(key: &[u8; 16], nonce: &[u8; 16]) -> Option<Lanes> {
            Lanes::all(key, nonce).next()
        }

        /// In all ways that the core can, the fastest first.
        pub fn all(key: &[u8; 16], nonce: &[u8; 16]) -> impl Iterator<Item = Lanes> {
            let half = half::start(key, nonce);
            let wide = wide::start(key, nonce).zip(half).map(|(wide, half)| Lanes::Wide(wide, half));
            wide.into_iter().chain(half.map(Lanes::Half))
        }

        /// The tags of four messages, each `heads` then `bodies`. As many bytes as these have are brought from `ahead`.
        ///
        /// # Panics
        /// When heads differ in length, or bodies, or heads are no multiple of [`RATE_BYTES`].
        pub fn tags(&self, heads: &Parts, bodies: &Parts, ahead: Ahead) -> [Tag; LANES] {
            let (head_bytes, body_bytes) = (heads[0].len(), bodies[0].len());
            assert!(heads.iter().all(|head| head.len() == head_bytes) && head_bytes.is_multiple_of(RATE_BYTES));
            assert!(bodies.iter().all(|body| body.len() == body_bytes));
            let (heads, bodies) = (heads.map(<[u8]>::as_ptr), bodies.map(<[u8]>::as_ptr));
            let (to, tails) = ([std::ptr::null_mut(); LANES], [std::ptr::null(); LANES]);
            // SAFETY: slices are readable; nothing is written.
            unsafe { self.tags_of(&Laid { heads, head_bytes, bodies, body_bytes, to, tails, tail_bytes: 0 }, Copied::Not, ahead) }
        }

        /// The tags of four messages, whose bodies are copied meanwhile if `copied` says so.
        ///
        /// # Safety
        /// All that must be readable, and writable where bodies go. What is written overlaps nothing but the body that it is a copy of, which may
        /// lie there already.
        ///
        /// # Panics
        /// When a length is no multiple that [`Laid`] asks for.
        pub unsafe fn tags_of(&self, laid: &Laid, copied: Copied, ahead: Ahead) -> [Tag; LANES] {
            assert!(laid.head_bytes.is_multiple_of(RATE_BYTES) && (laid.tail_bytes == 0 || laid.body_bytes.is_multiple_of(RATE_BYTES)));
            let streams = copied == Copied::By(Stores::Streaming) && laid.to.iter().all(|to| to.addr().is_multiple_of(RATE_BYTES));
            // SAFETY: the core can, or there would be no `self`; the rest is promised, or has just been seen.
            unsafe {
                match self {
                    Lanes::Wide(start, _) if laid.again().is_none() => match copied {
                        Copied::Not => wide::tags::<NOT>(*start, laid, ahead),
                        Copied::By(_) if streams => wide::tags::<STREAMING>(*start, laid, ahead),
                        Copied::By(_) => wide::tags::<ORDINARY>(*start, laid, ahead),
                    },
                    Lanes::Wide(_, start) | Lanes::Half(start) => match copied {
                        Copied::Not => half::tags::<NOT>(*start, laid, ahead),
                        Copied::By(_) if streams => half::tags::<STREAMING>(*start, laid, ahead),
                        Copied::By(_) => half::tags::<ORDINARY>(*start, laid, ahead),
                    },
                }
            }
        }
    }
}

/// What both widths share.
#[cfg(target_arch = "x86_64")]
mod common {
    use super::{Ahead, TAG_BYTES};
    use core::arch::{asm, x86_64::*};

    pub const C0: [u8; 16] = [0x00, 0x01, 0x01, 0x02, 0x03, 0x05, 0x08, 0x0d, 0x15, 0x22, 0x37, 0x59, 0x90, 0xe9, 0x79, 0x62];
    pub const C1: [u8; 16] = [0xdb, 0x3d, 0x18, 0x55, 0x6d, 0xc2, 0x2f, 0xf1, 0x20, 0x11, 0x31, 0x42, 0x73, 0xb5, 0x28, 0xdd];

    pub const LINE_BYTES: usize = 64;

    /// Whether a body is copied, and by which stores: parameters of what makes the tags.
    pub const NOT: u8 = 0;
    pub const ORDINARY: u8 = 1;
    pub const STREAMING: u8 = 2;

    /// Brings `lines` lines from `at` on: all at once would wait for the core's few outstanding misses.
    #[inline(always)]
    pub fn bring(ahead: Ahead, at: usize, lines: usize) {
        for line in (at..at + lines * LINE_BYTES).step_by(LINE_BYTES) {
            // SAFETY: a prefetch of any address has no effect but on caches.
            unsafe {
                match ahead {
                    Ahead::Nothing => {}
                    Ahead::Read(start) => _mm_prefetch::<_MM_HINT_T0>(start.wrapping_add(line).cast()),
                    // `_mm_prefetch` asks for reading only, unless the target's features name this instruction, which all such processors accept.
                    Ahead::Write(start) => asm!("prefetchw [{}]", in(reg) start.wrapping_add(line), options(nostack, preserves_flags, readonly)),
                }
            }
        }
    }

    /// The last `rest_bytes` of each body, which begin at `from`, and zeroes; they are put to `to` as well unless `COPY` is [`NOT`].
    ///
    /// # Safety
    /// They must be readable, and fit in `BYTES`; and writable at `to` if they are put there, where a body may lie already.
    #[inline(always)]
    pub unsafe fn rest<const BYTES: usize, const BODIES: usize, const COPY: u8>(
        bodies: [*const u8; BODIES],
        to: [*mut u8; BODIES],
        from: usize,
        rest_bytes: usize,
    ) -> [[u8; BYTES]; BODIES] {
        debug_assert!(rest_bytes <= BYTES);
        let mut last = [[0; BYTES]; BODIES];
        for (lane, last) in last.iter_mut().enumerate() {
            // SAFETY: as promised.
            unsafe {
                bodies[lane].add(from).copy_to_nonoverlapping(last.as_mut_ptr(), rest_bytes);
                if COPY != NOT {
                    last.as_ptr().copy_to_nonoverlapping(to[lane].add(from), rest_bytes);
                }
            }
        }
        last
    }

    /// The last block of all: the lengths of what has been taken in and of the tag, bits.
    pub fn lengths(bytes: usize) -> [u8; TAG_BYTES] {
        let mut lengths = [0; TAG_BYTES];
        lengths[..8].copy_from_slice(&(8 * bytes as u64).to_le_bytes());
        lengths[8..].copy_from_slice(&(8 * TAG_BYTES as u64).to_le_bytes());
        lengths
    }
}

/// Two messages in the halves of a register of 32 bytes, and then the other two.
#[cfg(target_arch = "x86_64")]
mod half {
    use super::common::{C0, C1, LINE_BYTES, NOT, ORDINARY, STREAMING, bring, lengths, rest};
    use super::{Ahead, LANES, Laid, RATE_BYTES, TAG_BYTES, Tag};
    use core::arch::x86_64::*;

    pub type Start = [__m256i; 8];

    /// `None` where the core has no such instructions.
    pub fn start(key: &[u8; 16], nonce: &[u8; 16]) -> Option<Start> {
        let able = is_x86_feature_detected!("avx2") && is_x86_feature_detected!("vaes");
        // SAFETY: the core can.
        able.then(|| unsafe { keyed(key, nonce) })
    }

    #[inline]
    #[target_feature(enable = "avx2")]
    fn block(bytes: &[u8; 16]) -> __m256i {
        // SAFETY: 16 readable bytes.
        _mm256_broadcastsi128_si256(unsafe { _mm_loadu_si128(bytes.as_ptr().cast()) })
    }

    #[inline]
    #[target_feature(enable = "avx2,vaes")]
    fn update(s: &mut Start, m0: __m256i, m1: __m256i) {
        let last = s[7];
        s[7] = _mm256_aesenc_epi128(s[6], s[7]);
        s[6] = _mm256_aesenc_epi128(s[5], s[6]);
        s[5] = _mm256_aesenc_epi128(s[4], s[5]);
        s[4] = _mm256_aesenc_epi128(s[3], _mm256_xor_si256(s[4], m1));
        s[3] = _mm256_aesenc_epi128(s[2], s[3]);
        s[2] = _mm256_aesenc_epi128(s[1], s[2]);
        s[1] = _mm256_aesenc_epi128(s[0], s[1]);
        s[0] = _mm256_aesenc_epi128(last, _mm256_xor_si256(s[0], m0));
    }

    #[inline]
    #[target_feature(enable = "avx2,vaes")]
    fn keyed(key: &[u8; 16], nonce: &[u8; 16]) -> Start {
        let (k, n, c0, c1) = (block(key), block(nonce), block(&C0), block(&C1));
        let (kn, k0, k1) = (_mm256_xor_si256(k, n), _mm256_xor_si256(k, c0), _mm256_xor_si256(k, c1));
        let mut s = [kn, c1, c0, c1, kn, k0, k1, k0];
        for _ in 0..10 {
            update(&mut s, n, k);
        }
        s
    }

    /// Takes in [`RATE_BYTES`] of both messages, and puts them to `to` unless `COPY` is [`NOT`].
    ///
    /// # Safety
    /// So many bytes must be readable at each of `at`, and writable at each of `to` if they are put there, which is at a multiple of so many for [`STREAMING`].
    #[inline]
    #[target_feature(enable = "avx2,vaes")]
    unsafe fn absorb<const COPY: u8>(s: &mut Start, at: [*const u8; 2], to: [*mut u8; 2]) {
        // No closure: what has these instructions cannot be made part of functions that have them not.
        let (a, b) = (_mm256_loadu_si256(at[0].cast()), _mm256_loadu_si256(at[1].cast()));
        match COPY {
            STREAMING => {
                _mm256_stream_si256(to[0].cast(), a);
                _mm256_stream_si256(to[1].cast(), b);
            }
            ORDINARY => {
                _mm256_storeu_si256(to[0].cast(), a);
                _mm256_storeu_si256(to[1].cast(), b);
            }
            _ => {}
        }
        update(s, _mm256_permute2x128_si256::<0x20>(a, b), _mm256_permute2x128_si256::<0x31>(a, b));
    }

    /// As [`super::x86::Lanes::tags_of`].
    ///
    /// # Safety
    /// As there.
    #[target_feature(enable = "avx2,vaes")]
    pub unsafe fn tags<const COPY: u8>(s: Start, laid: &Laid, ahead: Ahead) -> [Tag; LANES] {
        // SAFETY: as promised.
        let [first, second] = unsafe { two::<COPY>(s, laid, 0, ahead) };
        let [third, fourth] = match laid.again() {
            Some(again) => again.map(|one| [first, second][one]),
            // SAFETY: as promised.
            None => unsafe { two::<COPY>(s, laid, 2, ahead) },
        };
        [first, second, third, fourth]
    }

    /// The tags of the messages `lane` and `lane + 1`.
    ///
    /// # Safety
    /// As of [`tags`].
    #[inline]
    #[target_feature(enable = "avx2,vaes")]
    unsafe fn two<const COPY: u8>(mut s: Start, laid: &Laid, lane: usize, ahead: Ahead) -> [Tag; 2] {
        let &Laid { head_bytes, body_bytes, tail_bytes, .. } = laid;
        let pair = |parts: &[*const u8; LANES]| [parts[lane], parts[lane + 1]];
        let (heads, bodies, tails) = (pair(&laid.heads), pair(&laid.bodies), pair(&laid.tails));
        let to = [laid.to[lane], laid.to[lane + 1]];
        for at in (0..head_bytes).step_by(RATE_BYTES) {
            // SAFETY: heads end with a whole step.
            unsafe { absorb::<NOT>(&mut s, [heads[0].add(at), heads[1].add(at)], to) };
        }
        let whole_bytes = body_bytes - body_bytes % RATE_BYTES;
        for at in (0..whole_bytes).step_by(RATE_BYTES) {
            if at.is_multiple_of(LINE_BYTES) {
                bring(ahead, lane * body_bytes + 2 * at, 2);
            }
            // SAFETY: a whole step before the end of each body.
            unsafe {
                let to = [to[0].wrapping_add(at), to[1].wrapping_add(at)];
                absorb::<COPY>(&mut s, [bodies[0].add(at), bodies[1].add(at)], to);
            }
        }
        let rest_bytes = body_bytes - whole_bytes;
        if rest_bytes > 0 {
            // SAFETY: less than a step is left of each body, as promised.
            let last: [[u8; RATE_BYTES]; 2] = unsafe { rest::<_, _, COPY>(bodies, to, whole_bytes, rest_bytes) };
            // SAFETY: arrays of a step each.
            unsafe { absorb::<NOT>(&mut s, [last[0].as_ptr(), last[1].as_ptr()], to) };
        }
        for at in (0..tail_bytes).step_by(RATE_BYTES) {
            // SAFETY: what is left of each tail, at most a step.
            let last: [[u8; RATE_BYTES]; 2] = unsafe { rest::<_, _, NOT>(tails, to, at, RATE_BYTES.min(tail_bytes - at)) };
            // SAFETY: arrays of a step each.
            unsafe { absorb::<NOT>(&mut s, [last[0].as_ptr(), last[1].as_ptr()], to) };
        }
        let t = _mm256_xor_si256(s[2], block(&lengths(head_bytes + body_bytes + tail_bytes)));
        for _ in 0..7 {
            update(&mut s, t, t);
        }
        let mut sum = s[0];
        for &one in &s[1..7] {
            sum = _mm256_xor_si256(sum, one);
        }
        let mut all = [[0; TAG_BYTES]; 2];
        // SAFETY: 32 writable bytes.
        unsafe { _mm256_storeu_si256(all.as_mut_ptr().cast(), sum) };
        all
    }
}

/// Four messages in the quarters of a register of 64 bytes.
#[cfg(target_arch = "x86_64")]
mod wide {
    use super::common::{C0, C1, LINE_BYTES, NOT, ORDINARY, STREAMING, bring, lengths, rest};
    use super::{Ahead, LANES, Laid, RATE_BYTES, TAG_BYTES, Tag};
    use core::arch::x86_64::*;

    pub type Start = [__m512i; 8];

    /// `None` where the core has no such instructions.
    pub fn start(key: &[u8; 16], nonce: &[u8; 16]) -> Option<Start> {
        let able = is_x86_feature_detected!("avx512f") && is_x86_feature_detected!("vaes");
        // SAFETY: the core can.
        able.then(|| unsafe { keyed(key, nonce) })
    }

    #[inline]
    #[target_feature(enable = "avx512f")]
    fn block(bytes: &[u8; 16]) -> __m512i {
        // SAFETY: 16 readable bytes.
        _mm512_broadcast_i32x4(unsafe { _mm_loadu_si128(bytes.as_ptr().cast()) })
    }

    #[inline]
    #[target_feature(enable = "avx512f,vaes")]
    fn update(s: &mut [__m512i; 8], m0: __m512i, m1: __m512i) {
        let last = s[7];
        s[7] = _mm512_aesenc_epi128(s[6], s[7]);
        s[6] = _mm512_aesenc_epi128(s[5], s[6]);
        s[5] = _mm512_aesenc_epi128(s[4], s[5]);
        s[4] = _mm512_aesenc_epi128(s[3], _mm512_xor_si512(s[4], m1));
        s[3] = _mm512_aesenc_epi128(s[2], s[3]);
        s[2] = _mm512_aesenc_epi128(s[1], s[2]);
        s[1] = _mm512_aesenc_epi128(s[0], s[1]);
        s[0] = _mm512_aesenc_epi128(last, _mm512_xor_si512(s[0], m0));
    }

    #[inline]
    #[target_feature(enable = "avx512f,vaes")]
    fn keyed(key: &[u8; 16], nonce: &[u8; 16]) -> Start {
        let (k, n, c0, c1) = (block(key), block(nonce), block(&C0), block(&C1));
        let (kn, k0, k1) = (_mm512_xor_si512(k, n), _mm512_xor_si512(k, c0), _mm512_xor_si512(k, c1));
        let mut s = [kn, c1, c0, c1, kn, k0, k1, k0];
        for _ in 0..10 {
            update(&mut s, n, k);
        }
        s
    }

    /// Takes in [`RATE_BYTES`] of each lane.
    ///
    /// # Safety
    /// So many bytes must be readable at each of `at`.
    #[inline]
    #[target_feature(enable = "avx512f,vaes")]
    unsafe fn absorb(s: &mut [__m512i; 8], at: [*const u8; LANES]) {
        let two = |a: *const u8, b: *const u8| {
            let low = _mm512_castsi256_si512(_mm256_loadu_si256(a.cast()));
            _mm512_inserti64x4::<1>(low, _mm256_loadu_si256(b.cast()))
        };
        let (ab, cd) = (two(at[0], at[1]), two(at[2], at[3]));
        let m0 = _mm512_shuffle_i64x2::<0b10_00_10_00>(ab, cd);
        let m1 = _mm512_shuffle_i64x2::<0b11_01_11_01>(ab, cd);
        update(s, m0, m1);
    }

    /// Takes in a line of each lane, and puts it to `to` unless `COPY` is [`NOT`].
    ///
    /// # Safety
    /// A line must be readable at each of `at`, and writable at each of `to` if it is put there, which is at a multiple of half a line for [`STREAMING`].
    #[inline]
    #[target_feature(enable = "avx512f,vaes")]
    unsafe fn absorb_line<const COPY: u8>(s: &mut [__m512i; 8], at: [*const u8; LANES], to: [*mut u8; LANES]) {
        let lines = at.map(|at| _mm512_loadu_si512(at.cast()));
        match COPY {
            STREAMING => to.iter().zip(lines).for_each(|(to, line)| {
                _mm256_stream_si256(to.cast(), _mm512_castsi512_si256(line));
                _mm256_stream_si256(to.wrapping_add(LINE_BYTES / 2).cast(), _mm512_extracti64x4_epi64::<1>(line));
            }),
            ORDINARY => to.iter().zip(lines).for_each(|(to, line)| _mm512_storeu_si512(to.cast(), line)),
            _ => {}
        }
        let [a, b, c, d] = lines;
        let (ab, cd) = (_mm512_shuffle_i64x2::<0b01_00_01_00>(a, b), _mm512_shuffle_i64x2::<0b01_00_01_00>(c, d));
        update(s, _mm512_shuffle_i64x2::<0b10_00_10_00>(ab, cd), _mm512_shuffle_i64x2::<0b11_01_11_01>(ab, cd));
        let (ab, cd) = (_mm512_shuffle_i64x2::<0b11_10_11_10>(a, b), _mm512_shuffle_i64x2::<0b11_10_11_10>(c, d));
        update(s, _mm512_shuffle_i64x2::<0b10_00_10_00>(ab, cd), _mm512_shuffle_i64x2::<0b11_01_11_01>(ab, cd));
    }

    /// As [`super::x86::Lanes::tags_of`].
    ///
    /// # Safety
    /// As there.
    #[target_feature(enable = "avx512f,vaes")]
    pub unsafe fn tags<const COPY: u8>(mut s: Start, laid: &Laid, ahead: Ahead) -> [Tag; LANES] {
        let &Laid { heads, head_bytes, bodies, body_bytes, to, tails, tail_bytes } = laid;
        for at in (0..head_bytes).step_by(RATE_BYTES) {
            // SAFETY: heads end with a whole step.
            unsafe { absorb(&mut s, heads.map(|head| head.add(at))) };
        }
        let whole_bytes = body_bytes - body_bytes % LINE_BYTES;
        for at in (0..whole_bytes).step_by(LINE_BYTES) {
            bring(ahead, LANES * at, LANES);
            // SAFETY: a whole line before the end of each body.
            unsafe { absorb_line::<COPY>(&mut s, bodies.map(|body| body.add(at)), to.map(|to| to.wrapping_add(at))) };
        }
        let rest_bytes = body_bytes - whole_bytes;
        if rest_bytes > 0 {
            // SAFETY: less than a line is left of each body, as promised.
            let last: [[u8; LINE_BYTES]; LANES] = unsafe { rest::<_, _, COPY>(bodies, to, whole_bytes, rest_bytes) };
            for at in (0..rest_bytes).step_by(RATE_BYTES) {
                // SAFETY: arrays of a line each.
                unsafe { absorb(&mut s, last.each_ref().map(|last| last.as_ptr().add(at))) };
            }
        }
        for at in (0..tail_bytes).step_by(RATE_BYTES) {
            // SAFETY: what is left of each tail, at most a step.
            let last: [[u8; RATE_BYTES]; LANES] = unsafe { rest::<_, _, NOT>(tails, to, at, RATE_BYTES.min(tail_bytes - at)) };
            // SAFETY: arrays of a step each.
            unsafe { absorb(&mut s, last.each_ref().map(|last| last.as_ptr())) };
        }
        let mut tag = [0; TAG_BYTES];
        let t = _mm512_xor_si512(s[2], block(&lengths(head_bytes + body_bytes + tail_bytes)));
        for _ in 0..7 {
            update(&mut s, t, t);
        }
        let sum = s[..7].iter().fold(_mm512_setzero_si512(), |sum, &one| _mm512_xor_si512(sum, one));
        let mut all = [0u8; TAG_BYTES * LANES];
        // SAFETY: 64 writable bytes.
        unsafe { _mm512_storeu_si512(all.as_mut_ptr().cast(), sum) };
        std::array::from_fn(|lane| {
            tag.copy_from_slice(&all[lane * TAG_BYTES..][..TAG_BYTES]);
            tag
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use aegis::aegis128l::Aegis128LMac;
    use proptest::prelude::*;

    proptest! {
        /// Each lane's tag is that of the kept crate, whatever the others hold.
        #[test]
        fn as_one_by_one(key: [u8; 16], nonce: [u8; 16], steps in 0usize..4, body_bytes in 0usize..300, tail_bytes in 0usize..80, apart in 0usize..64, bytes in proptest::collection::vec(any::<u8>(), LANES * 400)) {
            let ways: Vec<Lanes> = Lanes::all(&key, &nonce).collect();
            if ways.is_empty() {
                super::super::tests::skipped("reliable::lanes, several messages at once", "no VAES on this processor");
            }
            let each: Vec<&[u8]> = bytes.chunks(400).collect();
            let heads = std::array::from_fn(|lane| &each[lane][..steps * RATE_BYTES]);
            let bodies = std::array::from_fn(|lane| &each[lane][100..][..body_bytes]);
            for lanes in ways {
                let tags = lanes.tags(&heads, &bodies, Ahead::Nothing);
                // The same in one go, from and to any alignment; what is around stays. What is no whole step of the body is a tail then.
                let tail_bytes = if tail_bytes == 0 { 0 } else { (body_bytes % RATE_BYTES + tail_bytes / RATE_BYTES * RATE_BYTES).min(body_bytes) };
                let own_bytes = body_bytes - tail_bytes;
                let each_bytes = heads[0].len() + body_bytes;
                // As close as can be, or where streaming stores can write.
                for (stores, from_step) in [(Stores::Ordinary, false), (Stores::Streaming, false), (Stores::Streaming, true)] {
                    let stride = if from_step { each_bytes.next_multiple_of(RATE_BYTES) } else { each_bytes };
                    let mut made = vec![0x55; apart + RATE_BYTES + LANES * stride + 1];
                    let start = if from_step { made.as_ptr().align_offset(RATE_BYTES) } else { apart };
                    for (lane, (head, body)) in heads.iter().zip(bodies).enumerate() {
                        let to = &mut made[start + lane * stride..][..each_bytes];
                        to[..head.len()].copy_from_slice(head);
                        to[head.len() + own_bytes..].copy_from_slice(&body[own_bytes..]);
                    }
                    let memory = made.as_mut_ptr();
                    // SAFETY: each within `made`.
                    let copying = unsafe {
                        let messages: [*mut u8; LANES] = std::array::from_fn(|lane| memory.add(start + lane * stride));
                        let to = messages.map(|message| message.add(heads[0].len()));
                        let laid = Laid {
                            heads: messages.map(<*mut u8>::cast_const),
                            head_bytes: heads[0].len(),
                            bodies: bodies.map(<[u8]>::as_ptr),
                            body_bytes: own_bytes,
                            to,
                            tails: to.map(|to| to.add(own_bytes).cast_const()),
                            tail_bytes,
                        };
                        lanes.tags_of(&laid, Copied::By(stores), Ahead::Read(memory))
                    };
                    crate::stores::fence(stores);
                    prop_assert_eq!(tags, copying);
                    let mut around = made.clone();
                    for lane in 0..LANES {
                        let at = start + lane * stride;
                        prop_assert_eq!(&made[at..][..each_bytes], &[heads[lane], bodies[lane]].concat());
                        around[at..at + each_bytes].fill(0x55);
                    }
                    prop_assert!(around.iter().all(|&byte| byte == 0x55));
                }
                for lane in 0..LANES {
                    let mut one = Aegis128LMac::<TAG_BYTES>::new_with_nonce(&key, &nonce);
                    one.update(heads[lane]);
                    one.update(bodies[lane]);
                    prop_assert_eq!(tags[lane], one.finalize(), "lane {}", lane);
                }
                // Fewer messages, given more than once.
                for order in [[0, 1, 0, 1], [0, 1, 0, 0], [0, 1, 2, 0], [0, 0, 0, 0]] {
                    let again = lanes.tags(&order.map(|lane| heads[lane]), &order.map(|lane| bodies[lane]), Ahead::Nothing);
                    prop_assert_eq!(again, order.map(|lane| tags[lane]));
                }
            }
        }
    }
}
