//! System calls and raw memory. All unsafe code but the C entry points is in this folder.

mod lock;

pub use lock::Lock;

use crate::status::{Refusal, Result};
use fabric::Body;
use fabric::shm::parts::{self, Atomics};
use fabric::shm::ring::{Bulk, Consumer, Corrupt, INLINE_BYTES, Producer, Returns, Slot, Taken};
use std::ops::Deref;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64};

pub const PAGE: u64 = 4096;
/// Words of a payload that fits in a line of the ring.
pub const INLINE_WORDS: usize = INLINE_BYTES / 8;

/// A shared mapping; it goes when the last part of it does.
pub struct Map {
    start: *mut u8,
    bytes: usize,
}

// SAFETY: a mapping is an address range; all access to it goes through atomics or raw copies.
unsafe impl Send for Map {}
// SAFETY: as above.
unsafe impl Sync for Map {}

impl Drop for Map {
    fn drop(&mut self) {
        // SAFETY: this range was mapped by `Map::new`, and nothing refers to it any more: every part holds the map.
        unsafe { libc::munmap(self.start.cast(), self.bytes) };
    }
}

impl Map {
    /// Maps `bytes` of `fd` from `offset`, a multiple of the page. The file must not be able to shrink: sealed, or its keeper's promise.
    pub fn new(fd: BorrowedFd, offset: u64, bytes: usize) -> Result<Arc<Map>> {
        // SAFETY: a plain system call; the mapping is new and belongs to the value.
        let start =
            unsafe { libc::mmap(std::ptr::null_mut(), bytes, libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED, fd.as_raw_fd(), offset as libc::off_t) };
        if start == libc::MAP_FAILED { Err(Refusal::Resource) } else { Ok(Arc::new(Map { start: start.cast(), bytes })) }
    }

    pub fn address(&self) -> u64 {
        self.start as u64
    }

    pub fn len(&self) -> usize {
        self.bytes
    }

    /// `count` values of atomics from `offset`, if they lie inside and are aligned.
    pub fn slice<T: Atomics>(self: &Arc<Map>, offset: usize, count: usize) -> Option<Shared<T>> {
        let bytes = count.checked_mul(size_of::<T>())?;
        if offset.checked_add(bytes)? > self.bytes || !(self.start as usize + offset).is_multiple_of(align_of::<T>()) {
            return None;
        }
        // SAFETY: in bounds.
        Some(Shared { start: unsafe { self.start.add(offset) }.cast(), count, _map: self.clone() })
    }

    pub fn at<T: Atomics>(self: &Arc<Map>, offset: usize) -> Option<One<T>> {
        self.slice(offset, 1).map(One)
    }

    /// Raw bytes of the mapping, for the time of a copy.
    #[inline]
    pub fn bytes(&self, offset: u64, bytes: u64) -> Option<Raw<'_>> {
        let end = offset.checked_add(bytes)?;
        // SAFETY: in bounds.
        (end <= self.bytes as u64).then(|| Raw { start: unsafe { self.start.add(offset as usize) }, bytes: bytes as usize, _map: self })
    }

    /// The whole mapping as memory of the program: allocated by the library, given to the program.
    pub fn as_user(&self) -> UserRange {
        UserRange { start: self.start as u64, bytes: self.bytes as u64 }
    }
}

/// Atomics in a mapping that lives as long as they do.
pub struct Shared<T> {
    start: *const T,
    count: usize,
    _map: Arc<Map>,
}

// SAFETY: atomics in a mapping that the value keeps.
unsafe impl<T: Atomics> Send for Shared<T> {}
// SAFETY: as above.
unsafe impl<T: Atomics> Sync for Shared<T> {}

impl<T> Clone for Shared<T> {
    fn clone(&self) -> Self {
        Shared { start: self.start, count: self.count, _map: self._map.clone() }
    }
}

impl<T> Deref for Shared<T> {
    type Target = [T];
    #[inline]
    fn deref(&self) -> &[T] {
        // SAFETY: checked when made; `Atomics` types are valid for any bytes and may change at any time; the mapping is held.
        unsafe { std::slice::from_raw_parts(self.start, self.count) }
    }
}

/// One value of atomics.
pub struct One<T>(Shared<T>);

impl<T> Clone for One<T> {
    fn clone(&self) -> Self {
        One(self.0.clone())
    }
}

impl<T> Deref for One<T> {
    type Target = T;
    #[inline]
    fn deref(&self) -> &T {
        &self.0[0]
    }
}

/// Raw bytes of a mapping. They are copied, never referenced: others may write them at any time.
#[derive(Clone, Copy)]
pub struct Raw<'a> {
    start: *mut u8,
    bytes: usize,
    _map: &'a Map,
}

impl Raw<'_> {
    #[cfg(test)]
    pub fn load(&self, out: &mut [u8]) {
        assert!(out.len() <= self.bytes);
        // SAFETY: in bounds, just checked.
        unsafe { std::ptr::copy_nonoverlapping(self.start, out.as_mut_ptr(), out.len()) };
    }
}

/// Memory of the program, which it has promised to keep by registering it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UserRange {
    start: u64,
    bytes: u64,
}

impl UserRange {
    /// # Safety
    /// The program must keep `start..start + bytes` readable and writable as long as the range is in use.
    pub unsafe fn promised(start: u64, bytes: u64) -> UserRange {
        UserRange { start, bytes }
    }

    #[inline]
    pub fn start(&self) -> u64 {
        self.start
    }

    #[inline]
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// The part of this range that lies at `address`, if all of it does.
    #[inline]
    pub fn at(&self, address: u64, bytes: u64) -> Option<UserRange> {
        let offset = address.checked_sub(self.start)?;
        (offset.checked_add(bytes)? <= self.bytes).then_some(UserRange { start: address, bytes })
    }

    #[inline]
    pub fn load(&self, out: &mut [u8]) {
        assert!(out.len() as u64 <= self.bytes);
        // SAFETY: the program's promise; in bounds, just checked.
        unsafe { std::ptr::copy_nonoverlapping(self.start as *const u8, out.as_mut_ptr(), out.len()) };
    }

    #[inline]
    pub fn store(&self, from: &[u8]) {
        assert!(from.len() as u64 <= self.bytes);
        // SAFETY: as above.
        unsafe { std::ptr::copy_nonoverlapping(from.as_ptr(), self.start as *mut u8, from.len()) };
    }

    /// The range, which fits in a line, as the words of one; what lies behind its end is 0. The bytes never lie in memory in pieces that
    /// are loaded again in another width: that would wait until earlier stores have left the core.
    #[inline(always)]
    pub fn words(&self) -> [u64; INLINE_WORDS] {
        let (start, bytes) = (self.start as *const u8, self.bytes as usize);
        assert!(bytes <= INLINE_BYTES);
        let mut words = [0; INLINE_WORDS];
        let whole = bytes / 8;
        // SAFETY: the program's promise; every load lies inside the range. Loads may overlap: the bits that both bring are the same.
        unsafe {
            for (at, word) in words.iter_mut().enumerate().take(whole) {
                *word = start.add(8 * at).cast::<u64>().read_unaligned();
            }
            let rest = bytes % 8;
            if rest == 0 {
                return words;
            }
            words[whole] = match bytes {
                8.. => start.add(bytes - 8).cast::<u64>().read_unaligned() >> (64 - 8 * rest),
                4.. => start.cast::<u32>().read_unaligned() as u64 | (start.add(rest - 4).cast::<u32>().read_unaligned() as u64) << (8 * (rest - 4)),
                2.. => start.cast::<u16>().read_unaligned() as u64 | (start.add(rest - 2).cast::<u16>().read_unaligned() as u64) << (8 * (rest - 2)),
                _ => start.read() as u64,
            };
        }
        words
    }

    /// Writes this whole range, which fits in a line, from the words of one.
    #[inline(always)]
    pub fn set_words(&self, words: &[u64; INLINE_WORDS]) {
        let (start, bytes) = (self.start as *mut u8, self.bytes as usize);
        assert!(bytes <= INLINE_BYTES);
        let whole = bytes / 8;
        // SAFETY: the program's promise; every store lies inside the range.
        unsafe {
            for (at, word) in words.iter().enumerate().take(whole) {
                start.add(8 * at).cast::<u64>().write_unaligned(*word);
            }
            let (mut at, mut left) = (8 * whole, if whole < INLINE_WORDS { words[whole] } else { 0 });
            if bytes & 4 != 0 {
                start.add(at).cast::<u32>().write_unaligned(left as u32);
                (at, left) = (at + 4, left >> 32);
            }
            if bytes & 2 != 0 {
                start.add(at).cast::<u16>().write_unaligned(left as u16);
                (at, left) = (at + 2, left >> 16);
            }
            if bytes & 1 != 0 {
                start.add(at).write(left as u8);
            }
        }
    }

    /// Copies this whole range to `to`, which is as long.
    #[inline]
    pub fn copy_to(&self, to: Raw) {
        assert!(to.bytes as u64 == self.bytes);
        // SAFETY: the program's promise, and a range of a mapping; the two may be the same memory of a shared file.
        unsafe { std::ptr::copy(self.start as *const u8, to.start, to.bytes) };
    }

    /// As [`UserRange::copy_to`], past the caches where the processor can, for memory that another core has in its cache: taking each line
    /// over from there before it is written costs ten times as much. All is written when this returns, in every core's view.
    pub fn stream_to(&self, to: Raw) {
        assert!(to.bytes as u64 == self.bytes);
        #[cfg(all(target_arch = "x86_64", not(miri)))]
        {
            use std::arch::x86_64::{__m128i, _mm_loadu_si128, _mm_sfence, _mm_stream_si128};
            let (from, start) = (self.start as *const u8, to.start);
            let head = start.align_offset(64).min(to.bytes);
            let whole = (to.bytes - head) / 64 * 64;
            // SAFETY: the program's promise, and a range of a mapping that no memory of the program is: a shadow segment. All offsets lie
            // inside both; stores past the caches are aligned, as they must be, and fenced before anybody is told.
            unsafe {
                std::ptr::copy_nonoverlapping(from, start, head);
                for at in (head..head + whole).step_by(64) {
                    for part in (at..at + 64).step_by(16) {
                        _mm_stream_si128(start.add(part).cast::<__m128i>(), _mm_loadu_si128(from.add(part).cast()));
                    }
                }
                let done = head + whole;
                std::ptr::copy_nonoverlapping(from.add(done), start.add(done), to.bytes - done);
                _mm_sfence();
            }
        }
        #[cfg(not(all(target_arch = "x86_64", not(miri))))]
        self.copy_to(to);
    }

    /// Copies `from` to this range, which is as long.
    #[inline]
    pub fn copy_from(&self, from: Raw) {
        assert!(from.bytes as u64 == self.bytes);
        // SAFETY: as above.
        unsafe { std::ptr::copy(from.start, self.start as *mut u8, from.bytes) };
    }

    pub fn fill_zero(&self) {
        // SAFETY: as above.
        unsafe { std::ptr::write_bytes(self.start as *mut u8, 0, self.bytes as usize) };
    }

    /// A word of the range, which the program may look at meanwhile.
    #[inline]
    pub fn word(&self, at: u64) -> u64 {
        assert!(at + 8 <= self.bytes && (self.start + at).is_multiple_of(8));
        // SAFETY: the program's promise; in bounds and aligned, just checked.
        unsafe { (*((self.start + at) as *const AtomicU64)).load(std::sync::atomic::Ordering::Relaxed) }
    }

    #[inline]
    pub fn word32(&self, at: u64) -> u32 {
        assert!(at + 4 <= self.bytes && (self.start + at).is_multiple_of(4));
        // SAFETY: as above.
        unsafe { (*((self.start + at) as *const AtomicU32)).load(std::sync::atomic::Ordering::Relaxed) }
    }

    #[inline]
    pub fn word16(&self, at: u64) -> u16 {
        assert!(at + 2 <= self.bytes && (self.start + at).is_multiple_of(2));
        // SAFETY: as above.
        unsafe { (*((self.start + at) as *const std::sync::atomic::AtomicU16)).load(std::sync::atomic::Ordering::Relaxed) }
    }

    #[inline]
    pub fn set_word32(&self, at: u64, value: u32, order: std::sync::atomic::Ordering) {
        assert!(at + 4 <= self.bytes && (self.start + at).is_multiple_of(4));
        // SAFETY: as above.
        unsafe { (*((self.start + at) as *const AtomicU32)).store(value, order) };
    }
}

/// The ring's place for bodies that do not fit in a line. There is none: longer payloads go where they belong at once.
pub struct NoBulk;

impl Bulk for NoBulk {
    type Part = ();
    fn len(&self) -> usize {
        1
    }
    unsafe fn write(&self, _: usize, _: &Body, _: usize, _: usize) {}
    fn part(&self, _: usize, _: usize) {}
}

pub type RingSender = Producer<Shared<Slot>, One<Returns>, NoBulk>;
pub type RingReceiver = Consumer<Shared<Slot>, One<Returns>, NoBulk>;
pub type Packet = Taken;

/// Puts a line into the ring, if there is room; `body` is at most what fits in a line.
#[inline(always)]
pub fn push(ring: &mut RingSender, head: [u64; 2], body: &[u64]) -> std::result::Result<bool, Corrupt> {
    assert!(body.len() <= INLINE_WORDS);
    ring.push_words(head, body)
}

/// What a NIC's peers look at before they wake it.
#[repr(C, align(64))]
pub struct Alarm {
    /// Not 0: somebody sleeps on the word.
    pub sleeping: AtomicU64,
    /// Not 0: the event manager wants to be woken by everything that comes, not only by what it alone can do.
    pub watching: AtomicU64,
    pub word: AtomicU32,
    unused32: AtomicU32,
    unused: [AtomicU64; 5],
}

// SAFETY: made of atomics only.
unsafe impl Atomics for Alarm {}

/// A line of eight words.
#[repr(C, align(64))]
pub struct Line(pub [AtomicU64; 8]);

// SAFETY: made of atomics only.
unsafe impl Atomics for Line {}

// SAFETY: made of atomics only.
unsafe impl Atomics for crate::handed::Entry {}
// SAFETY: made of atomics only.
unsafe impl Atomics for crate::handed::Posted {}

/// A descriptor of another process, or of this one, opened anew. The kernel lets only those that may inspect the process.
pub fn open_of_process(pid: u32, fd: u32) -> Result<OwnedFd> {
    let path = std::ffi::CString::new(format!("/proc/{pid}/fd/{fd}")).map_err(|_| Refusal::InvalidParameter)?;
    // SAFETY: a plain system call with a C string; the descriptor is new and ours.
    unsafe {
        let fd = libc::open(path.as_ptr(), libc::O_RDWR | libc::O_CLOEXEC);
        if fd < 0 { Err(Refusal::Resource) } else { Ok(OwnedFd::from_raw_fd(fd)) }
    }
}

/// Whether `fd` is a file of at least `bytes` that cannot shrink any more.
pub fn sealed(fd: BorrowedFd, bytes: u64) -> bool {
    // SAFETY: plain system calls on an open descriptor.
    unsafe {
        let mut stat: libc::stat = std::mem::zeroed();
        let seals = libc::fcntl(fd.as_raw_fd(), libc::F_GET_SEALS);
        libc::fstat(fd.as_raw_fd(), &mut stat) == 0 && stat.st_size as u64 >= bytes && seals >= 0 && seals & libc::F_SEAL_SHRINK != 0
    }
}

/// Takes the bytes `offset..offset + bytes` of a file for this opening of it; the kernel gives them back when it is closed, however that happens.
/// False: another opening has some of them.
pub fn take_range(fd: BorrowedFd, offset: u64, bytes: u64) -> Result<bool> {
    // SAFETY: all fields are set below; a plain system call on an open descriptor.
    unsafe {
        let mut range: libc::flock = std::mem::zeroed();
        range.l_type = libc::F_WRLCK as libc::c_short;
        range.l_whence = libc::SEEK_SET as libc::c_short;
        range.l_start = offset as libc::off_t;
        range.l_len = bytes as libc::off_t;
        match libc::fcntl(fd.as_raw_fd(), libc::F_OFD_SETLK, &range) {
            0 => Ok(true),
            _ if matches!(*libc::__errno_location(), libc::EAGAIN | libc::EACCES) => Ok(false),
            _ => Err(Refusal::Resource),
        }
    }
}

pub fn random_word() -> Result<u64> {
    let mut bytes = [0; 8];
    parts::random(&mut bytes).map_err(|_| Refusal::Resource)?;
    Ok(u64::from_ne_bytes(bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[cfg_attr(miri, ignore = "maps files")]
    fn streams_are_copies() {
        use std::os::fd::AsFd;
        let file = parts::memfd(PAGE).unwrap();
        let map = Map::new(file.as_fd(), 0, PAGE as usize).unwrap();
        let from: Vec<u8> = (0..1000u32).map(|at| (at * 7 + 1) as u8).collect();
        for (start, at, bytes) in [(0, 0, 0), (0, 0, 64), (3, 5, 500), (1, 63, 66), (2, 64, 63), (7, 1, 900), (0, 60, 3)] {
            map.as_user().fill_zero();
            // SAFETY: the memory outlives the range, which is only read.
            let user = unsafe { UserRange::promised(from.as_ptr() as u64 + start as u64, bytes as u64) };
            user.stream_to(map.bytes(at as u64, bytes as u64).unwrap());
            let mut all = vec![0; PAGE as usize];
            map.bytes(0, PAGE).unwrap().load(&mut all);
            let expected = |place: usize| if place >= at && place < at + bytes { from[start + place - at] } else { 0 };
            assert_eq!(all, (0..PAGE as usize).map(expected).collect::<Vec<u8>>(), "{start} {at} {bytes}");
        }
    }

    #[test]
    fn words_have_the_bytes_and_nothing_behind_them() {
        let from: Vec<u8> = (1..=64).collect();
        for start in 0..8 {
            for bytes in 0..=INLINE_BYTES {
                // SAFETY: both outlive the ranges, which are used here alone.
                let range = |memory: *const u8| unsafe { UserRange::promised(memory as u64 + start as u64, bytes as u64) };
                let words = range(from.as_ptr()).words();
                let expected: Vec<u8> = (0..INLINE_BYTES).map(|at| if at < bytes { from[start + at] } else { 0 }).collect();
                assert_eq!(words.iter().flat_map(|word| word.to_ne_bytes()).collect::<Vec<u8>>(), expected);
                let mut to = vec![0xee; 64];
                range(to.as_mut_ptr()).set_words(&words);
                let written = |at: usize| if at >= start && at < start + bytes { from[at] } else { 0xee };
                assert_eq!(to, (0..64).map(written).collect::<Vec<u8>>());
            }
        }
    }
}
