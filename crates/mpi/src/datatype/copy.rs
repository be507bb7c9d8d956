//! What is done with the pieces that a program walks over: packing, unpacking, collecting.

use std::ptr;

/// One piece of memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Run {
    /// Bytes from the start of the node.
    pub at: isize,
    /// Where it starts in the packed data of the node.
    pub packed: usize,
    pub bytes: usize,
}

/// Piece after piece, in packed order. Each call gives `false` when no more is wanted.
pub trait Mover {
    /// # Safety
    /// `at..at + bytes` is memory that the mover may use as it does, and the packed side has as much left; here and below.
    unsafe fn run(&mut self, at: *mut u8, bytes: usize) -> bool;

    /// Says that a run of `bytes` at `at` comes soon, `later` packed bytes after the next one.
    fn soon(&self, _at: *mut u8, _later: usize, _bytes: usize) {}

    /// `count` runs, `stride` apart.
    unsafe fn strided(&mut self, at: *mut u8, stride: isize, bytes: usize, count: usize) -> bool {
        (0..count).all(|i| self.run(at.wrapping_offset(stride.wrapping_mul(i as isize)), bytes))
    }

    /// Runs of one length.
    unsafe fn even(&mut self, at: *mut u8, places: &[isize], bytes: usize) -> bool {
        places.iter().all(|place| self.run(at.wrapping_offset(*place), bytes))
    }

    /// `count` times the same few runs, of `size` bytes together, `stride` apart.
    unsafe fn table(&mut self, at: *mut u8, stride: isize, runs: &[Run], _size: usize, count: usize) -> bool {
        (0..count).all(|i| {
            let at = at.wrapping_offset(stride.wrapping_mul(i as isize));
            runs.iter().all(|run| self.run(at.wrapping_offset(run.at), run.bytes))
        })
    }
}

/// Bytes of memory that [`Packer::table`] goes over at once: they stay in the first-level cache while each run of the table is
/// taken in turn.
const TABLE_BYTES: usize = 8192;

/// Runs from this length on have lines of the packed side asked for ahead, and so many bytes ahead: they come from another core.
const PACKED_ASKED_BYTES_MIN: usize = 32;
const PACKED_AHEAD_BYTES: usize = 1024;

/// The same for users' memory that is written, from this stride on, which the processor does not foresee so well: and the fewest runs.
const USER_ASKED_STRIDE_MIN: usize = 64;
const USER_AHEAD_BYTES: usize = 4096;
const USER_AHEAD_RUNS_MIN: usize = 8;

/// The same for runs that have no code of their own, of which the first so many bytes are asked for at once.
const LONG_BYTES_MIN: usize = 64;
const LONG_AHEAD_BYTES: usize = 2048;

/// Asks for the lines of `bytes` at `at`, to be written (`WRITE`) or read. They belong to another core or a farther cache, and
/// loads and stores alone wait for too few of them at once.
#[inline(always)]
fn ask<const WRITE: bool>(at: *mut u8, bytes: usize) {
    #[cfg(target_arch = "x86_64")]
    for line in (0..bytes.min(LONG_AHEAD_BYTES)).step_by(64) {
        let line = at.wrapping_add(line);
        // SAFETY: prefetching changes no value, and an address that is not mapped is no fault.
        unsafe {
            if WRITE {
                // `_mm_prefetch` asks for reading only, unless the target's features name this instruction; every 64-bit processor accepts it.
                std::arch::asm!("prefetchw [{}]", in(reg) line, options(nostack, preserves_flags, readonly));
            } else {
                std::arch::x86_64::_mm_prefetch::<{ std::arch::x86_64::_MM_HINT_T0 }>(line.cast());
            }
        }
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = (at, bytes);
}

/// Copies to packed bytes (`PACK`), or from them.
pub struct Packer<const PACK: bool> {
    packed: *mut u8,
}

impl<const PACK: bool> Packer<PACK> {
    pub fn new(packed: *mut u8) -> Packer<PACK> {
        Packer { packed }
    }
}

#[inline(always)]
unsafe fn copy<const PACK: bool>(user: *mut u8, packed: *mut u8, bytes: usize) {
    if PACK { ptr::copy_nonoverlapping(user, packed, bytes) } else { ptr::copy_nonoverlapping(packed, user, bytes) }
}

/// As [`copy`], without a call for a few bytes: two moves that overlap where the length is no power of two.
#[inline(always)]
unsafe fn copy_short<const PACK: bool>(user: *mut u8, packed: *mut u8, bytes: usize) {
    macro_rules! ends {
        ($width:literal) => {{
            let last = bytes - $width;
            copy::<PACK>(user, packed, $width);
            copy::<PACK>(user.wrapping_add(last), packed.wrapping_add(last), $width);
        }};
    }
    match bytes {
        0 => {}
        1 => copy::<PACK>(user, packed, 1),
        2..4 => ends!(2),
        4..8 => ends!(4),
        8..16 => ends!(8),
        16..=32 => ends!(16),
        33..=64 => ends!(32),
        _ => copy::<PACK>(user, packed, bytes),
    }
}

/// Calls `$kernel::<PACK, BYTES>` for the lengths that deserve their own code, where a copy is a few moves; `$other` else.
macro_rules! by_length {
    ($bytes:expr, $kernel:ident, $arguments:tt, $other:expr) => {
        by_length!(@ $bytes, $kernel, $arguments, $other,
            1 2 3 4 5 6 7 8 10 12 14 16 20 24 28 32 36 40 48 56 64 72 80 96 112 128)
    };
    (@ $bytes:expr, $kernel:ident, $arguments:tt, $other:expr, $($length:literal)+) => {
        match $bytes {
            $($length => by_length!(+ $kernel, $length, $arguments),)+
            _ => $other,
        }
    };
    (+ $kernel:ident, $length:literal, ($($argument:expr),+)) => { $kernel::<PACK, $length>($($argument),+) };
}

/// `count` runs of `BYTES`, `stride` apart in memory and `step` apart in the packed data.
#[inline(always)]
unsafe fn lanes<const PACK: bool, const BYTES: usize>(user: *mut u8, stride: isize, packed: *mut u8, step: usize, count: usize) {
    let (mut user, mut packed) = (user, packed);
    let quads = count / 4;
    let packed_ahead = if BYTES >= PACKED_ASKED_BYTES_MIN && step == BYTES { (PACKED_AHEAD_BYTES / 4 / BYTES).max(1) } else { quads };
    let user_ahead = if !PACK && quads > USER_AHEAD_RUNS_MIN / 4 && stride.unsigned_abs() >= USER_ASKED_STRIDE_MIN {
        (USER_AHEAD_BYTES / stride.unsigned_abs()).max(USER_AHEAD_RUNS_MIN) / 4
    } else {
        quads
    };
    for quad in 0..quads {
        if quad + packed_ahead < quads {
            ask::<PACK>(packed.wrapping_add(packed_ahead * 4 * BYTES), 4 * BYTES);
        }
        if quad + user_ahead < quads {
            let soon = user.wrapping_offset(stride.wrapping_mul(4 * user_ahead as isize));
            (0..4).for_each(|lane| ask::<true>(soon.wrapping_offset(stride.wrapping_mul(lane)), BYTES));
        }
        for lane in 0..4 {
            copy::<PACK>(user.wrapping_offset(stride.wrapping_mul(lane)), packed.wrapping_add(step * lane as usize), BYTES);
        }
        user = user.wrapping_offset(stride.wrapping_mul(4));
        packed = packed.wrapping_add(step * 4);
    }
    for _ in 0..count % 4 {
        copy::<PACK>(user, packed, BYTES);
        user = user.wrapping_offset(stride);
        packed = packed.wrapping_add(step);
    }
}

/// Any number of longer runs, dense in the packed data.
unsafe fn blocks<const PACK: bool>(user: *mut u8, stride: isize, packed: *mut u8, bytes: usize, count: usize) {
    let ahead = (LONG_AHEAD_BYTES / bytes.max(1)).max(1);
    for i in 0..count {
        let place = |i: usize| (user.wrapping_offset(stride.wrapping_mul(i as isize)), packed.wrapping_add(i * bytes));
        if bytes >= LONG_BYTES_MIN && i + ahead < count {
            let (user, packed) = place(i + ahead);
            ask::<PACK>(packed, bytes);
            if !PACK {
                ask::<true>(user, bytes);
            }
        }
        let (user, packed) = place(i);
        copy::<PACK>(user, packed, bytes);
    }
}

unsafe fn dense_lanes<const PACK: bool, const BYTES: usize>(user: *mut u8, stride: isize, packed: *mut u8, count: usize) {
    lanes::<PACK, BYTES>(user, stride, packed, BYTES, count);
}

unsafe fn wide_lanes<const PACK: bool, const BYTES: usize>(user: *mut u8, stride: isize, packed: *mut u8, step: usize, count: usize) {
    lanes::<PACK, BYTES>(user, stride, packed, step, count);
}

unsafe fn listed<const PACK: bool, const BYTES: usize>(user: *mut u8, places: &[isize], packed: *mut u8) {
    let mut packed = packed;
    for place in places {
        copy::<PACK>(user.wrapping_offset(*place), packed, BYTES);
        packed = packed.wrapping_add(BYTES);
    }
}

impl<const PACK: bool> Mover for Packer<PACK> {
    #[inline]
    unsafe fn run(&mut self, at: *mut u8, bytes: usize) -> bool {
        copy_short::<PACK>(at, self.packed, bytes);
        self.packed = self.packed.wrapping_add(bytes);
        true
    }

    #[inline]
    fn soon(&self, at: *mut u8, later: usize, bytes: usize) {
        if bytes >= LONG_BYTES_MIN {
            ask::<PACK>(self.packed.wrapping_add(later), bytes);
            if !PACK {
                ask::<true>(at, bytes);
            }
        }
    }

    #[inline]
    unsafe fn strided(&mut self, at: *mut u8, stride: isize, bytes: usize, count: usize) -> bool {
        by_length!(bytes, dense_lanes, (at, stride, self.packed, count), blocks::<PACK>(at, stride, self.packed, bytes, count));
        self.packed = self.packed.wrapping_add(bytes * count);
        true
    }

    #[inline]
    unsafe fn even(&mut self, at: *mut u8, places: &[isize], bytes: usize) -> bool {
        by_length!(bytes, listed, (at, places, self.packed), {
            for (i, place) in places.iter().enumerate() {
                copy::<PACK>(at.wrapping_offset(*place), self.packed.wrapping_add(i * bytes), bytes);
            }
        });
        self.packed = self.packed.wrapping_add(bytes * places.len());
        true
    }

    unsafe fn table(&mut self, at: *mut u8, stride: isize, runs: &[Run], size: usize, count: usize) -> bool {
        let at_once = (TABLE_BYTES / size.max(stride.unsigned_abs()).max(1)).max(1);
        let mut done = 0;
        while done < count {
            let some = at_once.min(count - done);
            let user = at.wrapping_offset(stride.wrapping_mul(done as isize));
            for run in runs {
                let (user, packed) = (user.wrapping_offset(run.at), self.packed.wrapping_add(run.packed));
                by_length!(run.bytes, wide_lanes, (user, stride, packed, size, some), {
                    for i in 0..some {
                        let user = user.wrapping_offset(stride.wrapping_mul(i as isize));
                        copy::<PACK>(user, packed.wrapping_add(i * size), run.bytes);
                    }
                });
            }
            self.packed = self.packed.wrapping_add(size * some);
            done += some;
        }
        true
    }
}

/// Collects addresses and lengths, joined where they touch.
pub struct Collect<'a> {
    out: &'a mut Vec<(*mut u8, usize)>,
    /// Where this collection starts in `out`, and how long `out` may become.
    first: usize,
    limit: usize,
    covered: usize,
}

impl Collect<'_> {
    pub fn new(out: &mut Vec<(*mut u8, usize)>, pieces_max: usize) -> Collect<'_> {
        let first = out.len();
        Collect { out, first, limit: first.saturating_add(pieces_max), covered: 0 }
    }

    /// Bytes of all pieces.
    pub fn covered(&self) -> usize {
        self.covered
    }
}

impl Mover for Collect<'_> {
    unsafe fn run(&mut self, at: *mut u8, bytes: usize) -> bool {
        let room = self.out.len() < self.limit;
        match self.out[self.first..].last_mut() {
            Some((start, length)) if start.wrapping_add(*length) == at => *length += bytes,
            _ if room => self.out.push((at, bytes)),
            _ => return false,
        }
        self.covered += bytes;
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Packs and unpacks `count` runs of `bytes` at `stride`, and compares with one byte after the other.
    fn strided(bytes: usize, stride: isize, count: usize) {
        let span = stride.unsigned_abs() * count.saturating_sub(1) + bytes;
        let first = if stride < 0 { span - bytes } else { 0 };
        let place = |i: usize, byte: usize| first.wrapping_add_signed(stride * i as isize) + byte;
        let mut user: Vec<u8> = (0..span).map(|i| (i * 7 + (i >> 8) * 13) as u8).collect();
        let expected: Vec<u8> = (0..count).flat_map(|i| (0..bytes).map(move |byte| (i, byte))).map(|(i, byte)| user[place(i, byte)]).collect();
        let mut packed = vec![0xa5; bytes * count + 1];
        // SAFETY: `user` has every run, and `packed` the bytes of all.
        assert!(unsafe { Packer::<true>::new(packed.as_mut_ptr()).strided(user.as_mut_ptr().add(first), stride, bytes, count) });
        assert_eq!((&packed[..bytes * count], packed[bytes * count]), (&expected[..], 0xa5), "{count} runs of {bytes} at {stride}");

        let mut fresh = vec![0xa5u8; span];
        let mut wanted = fresh.clone();
        (0..count).for_each(|i| (0..bytes).for_each(|byte| wanted[place(i, byte)] = expected[i * bytes + byte]));
        // SAFETY: as above.
        assert!(unsafe { Packer::<false>::new(packed.as_mut_ptr()).strided(fresh.as_mut_ptr().add(first), stride, bytes, count) });
        assert!(fresh == wanted, "{count} runs of {bytes} unpacked at {stride}");
    }

    #[test]
    fn every_length_of_runs_is_moved_as_byte_by_byte() {
        for bytes in (1..=140).chain([511, 512, 513, 2047, 2048, 2049, 5000]) {
            for gap in [0, 1, 8, 64, 100] {
                for count in [0, 1, 3, 4, 5, 37, 150] {
                    strided(bytes, (bytes + gap) as isize, count);
                    strided(bytes, -((bytes + gap) as isize), count);
                }
            }
        }
    }
}
