//! AEGIS-128L as a keyed authenticator of four messages at once, one in each quarter of the widest registers: a datagram alone leaves most of the
//! core's AES units idle, since every step waits for the last. The tags are those of one message at a time.
//!
//! Source: draft-irtf-cfrg-aegis-aead, "The AEGIS-128L Algorithm" and "Using AEGIS as a MAC".

use proto::reliability::wire::{TAG_BYTES, Tag};

/// Messages at once.
pub const LANES: usize = 4;
/// What one step takes in of each message; the first parts of messages are whole multiples of it.
pub const RATE_BYTES: usize = 32;

/// The parts of messages, by lane.
pub type Parts<'a> = [&'a [u8]; LANES];

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
pub use wide::Lanes;

#[cfg(not(target_arch = "x86_64"))]
mod none {
    use super::{Ahead, LANES, Parts, Tag};

    /// There is no such core.
    #[derive(Clone)]
    pub enum Lanes {}

    impl Lanes {
        pub fn new(_key: &[u8; 16], _nonce: &[u8; 16]) -> Option<Lanes> {
            None
        }

        pub fn tags(&self, _heads: &Parts, _bodies: &Parts, _ahead: Ahead) -> [Tag; LANES] {
            match *self {}
        }

        pub unsafe fn tags_copying(&self, _: [*mut u8; LANES], _: usize, _: [*const u8; LANES], _: usize, _: Ahead) -> [Tag; LANES] {
            match *self {}
        }
    }
}

#[cfg(target_arch = "x86_64")]
mod wide {
    use super::{Ahead, LANES, Parts, RATE_BYTES, TAG_BYTES, Tag};
    use core::arch::{asm, x86_64::*};

    const C0: [u8; 16] = [0x00, 0x01, 0x01, 0x02, 0x03, 0x05, 0x08, 0x0d, 0x15, 0x22, 0x37, 0x59, 0x90, 0xe9, 0x79, 0x62];
    const C1: [u8; 16] = [0xdb, 0x3d, 0x18, 0x55, 0x6d, 0xc2, 0x2f, 0xf1, 0x20, 0x11, 0x31, 0x42, 0x73, 0xb5, 0x28, 0xdd];

    const LINE_BYTES: usize = 64;

    /// The state after key and nonce, the same in each lane.
    #[derive(Clone)]
    pub struct Lanes {
        start: [__m512i; 8],
    }

    impl Lanes {
        /// `None` where the core has no such instructions.
        pub fn new(key: &[u8; 16], nonce: &[u8; 16]) -> Option<Lanes> {
            let able = is_x86_feature_detected!("avx512f") && is_x86_feature_detected!("vaes");
            // SAFETY: the core can.
            able.then(|| Lanes { start: unsafe { start(key, nonce) } })
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
            // SAFETY: the core can, or there would be no `self`; nothing is written.
            unsafe { tags::<false>(self.start, heads, head_bytes, bodies, [std::ptr::null_mut(); LANES], body_bytes, ahead) }
        }

        /// The tags of four messages that are put together meanwhile: each has its head of `head_bytes` at `messages` already, and gets its body of `body_bytes`
        /// from `bodies`. Messages may be the same one, and a body may lie where it belongs.
        ///
        /// # Safety
        /// All that must be readable, and writable at `messages`. No message overlaps another in part, nor a body but its own.
        ///
        /// # Panics
        /// When heads are no multiple of [`RATE_BYTES`].
        pub unsafe fn tags_copying(
            &self,
            messages: [*mut u8; LANES],
            head_bytes: usize,
            bodies: [*const u8; LANES],
            body_bytes: usize,
            ahead: Ahead,
        ) -> [Tag; LANES] {
            assert!(head_bytes.is_multiple_of(RATE_BYTES));
            let to = messages.map(|message| message.wrapping_add(head_bytes));
            // SAFETY: the core can, or there would be no `self`; the rest is promised.
            unsafe { tags::<true>(self.start, messages.map(<*mut u8>::cast_const), head_bytes, bodies, to, body_bytes, ahead) }
        }
    }

    #[target_feature(enable = "avx512f")]
    fn block(bytes: &[u8; 16]) -> __m512i {
        // SAFETY: 16 readable bytes.
        _mm512_broadcast_i32x4(unsafe { _mm_loadu_si128(bytes.as_ptr().cast()) })
    }

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

    #[target_feature(enable = "avx512f,vaes")]
    fn start(key: &[u8; 16], nonce: &[u8; 16]) -> [__m512i; 8] {
        let (k, n, c0, c1) = (block(key), block(nonce), block(&C0), block(&C1));
        let (kn, k0, k1) = (_mm512_xor_si512(k, n), _mm512_xor_si512(k, c0), _mm512_xor_si512(k, c1));
        let mut s = [kn, c1, c0, c1, kn, k0, k1, k0];
        (0..10).for_each(|_| update(&mut s, n, k));
        s
    }

    /// Takes in [`RATE_BYTES`] of each lane.
    ///
    /// # Safety
    /// So many bytes must be readable at each of `at`.
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

    /// Takes in a line of each lane, and with `COPY` puts it to `to`.
    ///
    /// # Safety
    /// A line must be readable at each of `at`, and writable at each of `to`.
    #[target_feature(enable = "avx512f,vaes")]
    unsafe fn absorb_line<const COPY: bool>(s: &mut [__m512i; 8], at: [*const u8; LANES], to: [*mut u8; LANES]) {
        let lines = at.map(|at| _mm512_loadu_si512(at.cast()));
        if COPY {
            to.iter().zip(lines).for_each(|(to, line)| _mm512_storeu_si512(to.cast(), line));
        }
        let [a, b, c, d] = lines;
        let (ab, cd) = (_mm512_shuffle_i64x2::<0b01_00_01_00>(a, b), _mm512_shuffle_i64x2::<0b01_00_01_00>(c, d));
        update(s, _mm512_shuffle_i64x2::<0b10_00_10_00>(ab, cd), _mm512_shuffle_i64x2::<0b11_01_11_01>(ab, cd));
        let (ab, cd) = (_mm512_shuffle_i64x2::<0b11_10_11_10>(a, b), _mm512_shuffle_i64x2::<0b11_10_11_10>(c, d));
        update(s, _mm512_shuffle_i64x2::<0b10_00_10_00>(ab, cd), _mm512_shuffle_i64x2::<0b11_01_11_01>(ab, cd));
    }

    /// Brings what one line in four lanes takes, evenly: all at once would wait for the core's few outstanding misses.
    #[inline(always)]
    fn bring(ahead: Ahead, at: usize) {
        for line in (at..at + LANES * LINE_BYTES).step_by(LINE_BYTES) {
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

    /// With `COPY` also puts the bodies to `to`.
    ///
    /// # Safety
    /// Heads, a multiple of [`RATE_BYTES`], and bodies must be readable in these lengths, and `to` writable with `COPY`.
    #[target_feature(enable = "avx512f,vaes")]
    unsafe fn tags<const COPY: bool>(
        mut s: [__m512i; 8],
        heads: [*const u8; LANES],
        head_bytes: usize,
        bodies: [*const u8; LANES],
        to: [*mut u8; LANES],
        body_bytes: usize,
        ahead: Ahead,
    ) -> [Tag; LANES] {
        for at in (0..head_bytes).step_by(RATE_BYTES) {
            // SAFETY: heads end with a whole step.
            unsafe { absorb(&mut s, heads.map(|head| head.add(at))) };
        }
        let whole_bytes = body_bytes - body_bytes % LINE_BYTES;
        for at in (0..whole_bytes).step_by(LINE_BYTES) {
            bring(ahead, LANES * at);
            // SAFETY: a whole line before the end of each body.
            unsafe { absorb_line::<COPY>(&mut s, bodies.map(|body| body.add(at)), to.map(|to| to.wrapping_add(at))) };
        }
        let rest_bytes = body_bytes - whole_bytes;
        if rest_bytes > 0 {
            let mut last = [[0; LINE_BYTES]; LANES];
            for (lane, last) in last.iter_mut().enumerate() {
                // SAFETY: what is left of each body, which may lie where it belongs.
                unsafe {
                    bodies[lane].add(whole_bytes).copy_to_nonoverlapping(last.as_mut_ptr(), rest_bytes);
                    if COPY {
                        last.as_ptr().copy_to_nonoverlapping(to[lane].add(whole_bytes), rest_bytes);
                    }
                }
            }
            for at in (0..rest_bytes).step_by(RATE_BYTES) {
                // SAFETY: arrays of a line each.
                unsafe { absorb(&mut s, last.each_ref().map(|last| last.as_ptr().add(at))) };
            }
        }
        let [mut lengths, mut tag] = [[0; TAG_BYTES]; 2];
        lengths[..8].copy_from_slice(&(8 * (head_bytes + body_bytes) as u64).to_le_bytes());
        lengths[8..].copy_from_slice(&(8 * TAG_BYTES as u64).to_le_bytes());
        let t = _mm512_xor_si512(s[2], block(&lengths));
        (0..7).for_each(|_| update(&mut s, t, t));
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
        fn as_one_by_one(key: [u8; 16], nonce: [u8; 16], steps in 0usize..4, body_bytes in 0usize..300, apart in 0usize..64, bytes in proptest::collection::vec(any::<u8>(), LANES * 400)) {
            let Some(lanes) = Lanes::new(&key, &nonce) else {
                super::super::tests::skipped("reliable::lanes, four messages at once", "no AVX-512 with VAES on this processor");
                return Ok(());
            };
            let each: Vec<&[u8]> = bytes.chunks(400).collect();
            let heads = std::array::from_fn(|lane| &each[lane][..steps * RATE_BYTES]);
            let bodies = std::array::from_fn(|lane| &each[lane][100..][..body_bytes]);
            let tags = lanes.tags(&heads, &bodies, Ahead::Nothing);
            // The same in one go, from and to any alignment; what is around stays.
            let each_bytes = heads[0].len() + body_bytes;
            let mut made = vec![0x55; apart + LANES * each_bytes + 1];
            let end = made.len() - 1;
            made[apart..end].chunks_exact_mut(each_bytes.max(1)).zip(heads).for_each(|(to, head)| to[..head.len()].copy_from_slice(head));
            let start = made.as_mut_ptr();
            // SAFETY: each within `made`.
            let copying = unsafe {
                let messages = std::array::from_fn(|lane| start.add(apart + lane * each_bytes));
                lanes.tags_copying(messages, heads[0].len(), bodies.map(<[u8]>::as_ptr), body_bytes, Ahead::Read(start))
            };
            prop_assert_eq!(tags, copying);
            prop_assert!(made[..apart].iter().chain(&made[end..]).all(|&byte| byte == 0x55));
            for lane in 0..LANES {
                prop_assert_eq!(&made[apart + lane * each_bytes..][..each_bytes], &[heads[lane], bodies[lane]].concat());
                let mut one = Aegis128LMac::<TAG_BYTES>::new_with_nonce(&key, &nonce);
                one.update(heads[lane]);
                one.update(bodies[lane]);
                prop_assert_eq!(tags[lane], one.finalize(), "lane {}", lane);
            }
        }
    }
}
