//! The system calls and raw memory of shared memory. All unsafe code of this fabric that is not in `ring` is here.

use super::abreast::{Order, Trial};
use crate::Error;
use crate::stores::{Stores, fence};
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

const LINE_BYTES: usize = 64;

pub(super) fn errno() -> i32 {
    std::io::Error::last_os_error().raw_os_error().unwrap_or(0)
}

/// A file of `bytes` (sparse) without a name, whose length stays, so that touching it is never SIGBUS where pages are reserved.
pub fn memfd(bytes: u64) -> Result<OwnedFd, Error> {
    memory::create("whimbrel", bytes).map_err(|refused| match refused {
        memory::Refused::Call(_, errno) => Error::Memory { what: "a shared-memory segment", bytes, errno: errno.raw_os_error() },
        other => Error::Segment { bytes, errno: other.errno(), why: other.to_string() },
    })
}

/// Reserves pages of `fd`, so that touching them cannot fail.
pub fn reserve(fd: BorrowedFd, offset: u64, bytes: u64, what: &'static str) -> Result<(), Error> {
    memory::reserve(fd, offset, bytes).map_err(|errno| Error::Memory { what, bytes, errno: errno.raw_os_error() })
}

/// A shared mapping that stays for the life of the process: references into it are `'static`.
#[derive(Clone, Copy)]
pub struct Mapping {
    start: *mut u8,
    bytes: usize,
}

// SAFETY: a mapping is an address range; all access to it goes through atomics or raw copies.
unsafe impl Send for Mapping {}
// SAFETY: as above.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// Maps the whole of `fd`, after [`memory::check`]: a file that could shrink would be a trap.
    pub fn new(fd: BorrowedFd) -> Result<Mapping, Error> {
        let bytes =
            memory::check(fd).map_err(|errno| Error::System { call: "a check that shared memory cannot shrink", errno: errno.raw_os_error() })? as usize;
        // SAFETY: a plain system call; the mapping is new and never unmapped.
        unsafe {
            let start = libc::mmap(std::ptr::null_mut(), bytes, libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED, fd.as_raw_fd(), 0);
            if start == libc::MAP_FAILED {
                return Err(Error::Memory { what: "a mapping of shared memory", bytes: bytes as u64, errno: errno() });
            }
            Ok(Mapping { start: start.cast(), bytes })
        }
    }

    pub fn len(&self) -> usize {
        self.bytes
    }

    /// A value of atomics at `offset`. `None` when it does not lie inside or is not aligned.
    pub fn at<T: Atomics>(&self, offset: usize) -> Option<&'static T> {
        self.slice(offset, 1).map(|s| &s[0])
    }

    /// `count` values of atomics from `offset`.
    pub fn slice<T: Atomics>(&self, offset: usize, count: usize) -> Option<&'static [T]> {
        let bytes = count.checked_mul(size_of::<T>())?;
        if offset.checked_add(bytes)? > self.bytes || !offset.is_multiple_of(align_of::<T>()) {
            return None;
        }
        // SAFETY: in bounds and aligned; the mapping lives as long as the process; `Atomics` types consist of atomics,
        // which any bytes are valid for and which others may change at any time.
        Some(unsafe { std::slice::from_raw_parts(self.start.add(offset).cast::<T>(), count) })
    }

    /// A range of raw bytes.
    pub fn bytes(&self, offset: usize, bytes: usize) -> Option<Area> {
        (offset.checked_add(bytes)? <= self.bytes).then(|| Area {
            // SAFETY: in bounds of the mapping.
            start: unsafe { self.start.add(offset) },
            bytes,
        })
    }
}

/// Types made of atomics only: any bytes are a value, and others may write them at any time.
///
/// # Safety
/// Every bit pattern must be valid and every field an atomic or padding.
pub unsafe trait Atomics {}

// SAFETY: an atomic.
unsafe impl Atomics for std::sync::atomic::AtomicU64 {}

/// Raw shared bytes: only copied in and out, never referenced.
#[derive(Clone, Copy)]
pub struct Area {
    start: *mut u8,
    bytes: usize,
}

// SAFETY: an address range that is only copied to and from.
unsafe impl Send for Area {}
// SAFETY: as above.
unsafe impl Sync for Area {}

impl Area {
    #[inline]
    #[allow(clippy::len_without_is_empty)]
    pub fn len(&self) -> usize {
        self.bytes
    }

    /// Part of this area.
    #[inline(always)]
    pub fn part(&self, offset: usize, bytes: usize) -> Area {
        assert!(offset <= self.bytes && bytes <= self.bytes - offset, "part of an area out of bounds");
        // SAFETY: in bounds, just checked.
        Area { start: unsafe { self.start.add(offset) }, bytes }
    }

    /// Fills this area with the bytes of `body` from place `from` on.
    ///
    /// # Safety
    /// The body must have that many.
    #[inline]
    pub unsafe fn fill(&self, body: &crate::Body, from: usize) {
        match body.start() {
            Some(start) => copy_written(start.add(from), self.start, self.bytes),
            None => body.copy_to(from, self.start, self.bytes),
        }
    }

    /// As [`Area::fill`], by stores that go past the caches, where the processor has them. They can be seen by others before what is stored after this
    /// returns.
    ///
    /// # Safety
    /// As there.
    #[inline]
    pub unsafe fn stream(&self, body: &crate::Body, from: usize) {
        match body.start() {
            Some(start) => copy_streaming(start.add(from), self.start, self.bytes),
            None => self.stream_packed(body, from),
        }
    }

    /// As [`Area::stream`] of a body that has to be packed, which writes less than a line at a time: so it is packed into this core's cache first.
    ///
    /// # Safety
    /// As there.
    #[inline(never)]
    unsafe fn stream_packed(&self, body: &crate::Body, from: usize) {
        let mut packed = Lines([const { std::mem::MaybeUninit::uninit() }; PACKED_BYTES]);
        let packed = packed.0.as_mut_ptr().cast::<u8>();
        for at in (0..self.bytes).step_by(PACKED_BYTES) {
            let bytes = PACKED_BYTES.min(self.bytes - at);
            body.copy_to(from + at, packed, bytes);
            copy_past_caches(packed, self.start.add(at), bytes);
        }
        fence(Stores::Streaming);
    }

    /// Copies this whole area to `to`.
    ///
    /// # Safety
    /// `to..to + len()` must be writable.
    #[inline]
    pub unsafe fn read_to(&self, to: *mut u8) {
        std::ptr::copy_nonoverlapping(self.start, to, self.bytes);
    }

    /// Looks at each line, as [`copy_from_end`] does, and tells how many [`ticks`] that takes.
    pub fn touch(&self) -> u64 {
        let before = ticks();
        for line in (0..self.bytes).step_by(LINE_BYTES).rev() {
            // SAFETY: in bounds; what the byte is does not matter.
            unsafe { std::ptr::read_volatile(self.start.add(line)) };
        }
        ticks().wrapping_sub(before)
    }

    /// Asks for the line of its first byte, which is going to be written. A hint.
    #[inline(always)]
    pub fn own(&self) {
        prefetch_for_store(self.start);
    }

    /// Moves its lines towards the cache that all cores share, where the processor can: others have them sooner from there.
    #[inline(always)]
    pub fn demote(&self) {
        #[cfg(all(target_arch = "x86_64", not(miri)))]
        for line in (0..self.bytes).step_by(LINE_BYTES) {
            // SAFETY: in bounds; moving a line changes nothing. To a processor that does not know it, this instruction is one that does nothing.
            unsafe { std::arch::asm!("cldemote [{}]", in(reg) self.start.add(line), options(nostack, preserves_flags)) };
        }
    }

    /// Asks for all its lines, the last one first: no processor takes that for a reason to fetch what lies behind. A hint.
    #[inline(always)]
    pub fn fetch(&self) {
        #[cfg(all(target_arch = "x86_64", not(miri)))]
        for line in (0..self.bytes).step_by(LINE_BYTES).rev() {
            // SAFETY: in bounds; fetching a line into the cache changes nothing.
            unsafe { std::arch::x86_64::_mm_prefetch::<{ std::arch::x86_64::_MM_HINT_T0 }>(self.start.add(line).cast_const().cast()) };
        }
    }

    /// Where it lies, for scattered copies. Others may write it at any time.
    pub fn as_ptr(&self) -> *const u8 {
        self.start
    }
}

/// Asks for the cache line at an address, so that a store to it finds it: else the store waits until those who have read the line have given it up, and so do
/// all that come after it. The address is never accessed: any will do. A hint.
#[inline(always)]
pub fn prefetch_for_store<T>(address: *const T) {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    // SAFETY: a prefetch changes nothing and never faults. `_mm_prefetch` asks for reading only, unless the target's features name this instruction; every
    // 64-bit processor accepts it.
    unsafe {
        std::arch::asm!("prefetchw [{}]", in(reg) address, options(nostack, preserves_flags, readonly));
    }
    #[cfg(not(all(target_arch = "x86_64", not(miri))))]
    let _ = address;
}

/// Bytes that are packed at a time before they go past the caches.
const PACKED_BYTES: usize = 4 << 10;

/// Memory for them.
#[repr(align(64))]
struct Lines([std::mem::MaybeUninit<u8>; PACKED_BYTES]);

/// Copies `bytes`, all but the lines of which they fill a part by stores that go past the caches, where there are such.
///
/// # Safety
/// As `std::ptr::copy_nonoverlapping`.
#[inline]
pub unsafe fn copy_streaming(from: *const u8, to: *mut u8, bytes: usize) {
    copy_past_caches(from, to, bytes);
    // Streaming stores keep no order, not even that of the release that says that they are there.
    fence(Stores::Streaming);
}

/// As [`copy_streaming`], without the fence that makes them visible before what is stored next.
///
/// # Safety
/// As there.
#[inline]
unsafe fn copy_past_caches(from: *const u8, to: *mut u8, bytes: usize) {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    {
        use std::arch::x86_64::{__m128i, _mm_loadu_si128, _mm_stream_si128};
        let head = to.align_offset(64).min(bytes);
        std::ptr::copy_nonoverlapping(from, to, head);
        let (from, to, bytes) = (from.add(head), to.add(head), bytes - head);
        let lines = bytes / 64;
        for line in 0..lines {
            let (from, to) = (from.add(64 * line).cast::<__m128i>(), to.add(64 * line).cast::<__m128i>());
            // No other store between them: a line leaves in one piece.
            let (a, b, c, d) = (_mm_loadu_si128(from), _mm_loadu_si128(from.add(1)), _mm_loadu_si128(from.add(2)), _mm_loadu_si128(from.add(3)));
            _mm_stream_si128(to, a);
            _mm_stream_si128(to.add(1), b);
            _mm_stream_si128(to.add(2), c);
            _mm_stream_si128(to.add(3), d);
        }
        std::ptr::copy_nonoverlapping(from.add(64 * lines), to.add(64 * lines), bytes - 64 * lines);
    }
    #[cfg(not(all(target_arch = "x86_64", not(miri))))]
    std::ptr::copy_nonoverlapping(from, to, bytes);
}

/// Most streams of [`copy_abreast`], and the longest part that each copies before all go on behind, bytes.
const STREAMS_MAX: usize = 8;
const STREAM_BYTES_MAX: usize = 4 << 10;
/// Shortest bytes that are copied in two streams; twice as many in twice as many.
const ABREAST_BYTES_MIN: usize = 7 << 10;
/// Shortest bytes of a body that are written so: shorter ones go to lines that their writer has asked for, in their order.
const WRITTEN_ABREAST_BYTES_MIN: usize = 16 << 10;
/// Shortest bytes that are read so, and timed apart from shorter ones, which lie in a first cache.
const LONG_BYTES_MIN: usize = 14 << 10;

/// What the trials say: short and long copies out of other cores' caches, copies into lines that others have read, and copies of mapped memory.
static READS: [Trial; 2] = [const { Trial::new(32) }; 2];
static WRITES: Trial = Trial::new(27);
static MAPPED: Trial = Trial::new(32);

/// Copies bytes that another core may have in its caches: long ones in order or in several streams, a line of each in turn, whichever [trials](Trial) found to be the
/// faster. A processor fetches ahead within a page, and in many pages at a time; so streams may have more lines under way than one page after the other has.
///
/// # Safety
/// As `std::ptr::copy_nonoverlapping`.
#[inline(always)]
pub unsafe fn copy_brought(from: *const u8, to: *mut u8, bytes: usize) {
    match bytes < ABREAST_BYTES_MIN {
        true => std::ptr::copy_nonoverlapping(from, to, bytes),
        false => copy_long(&READS[usize::from(bytes >= LONG_BYTES_MIN)], from, to, bytes),
    }
}

/// Copies bytes to where another core reads them.
///
/// # Safety
/// As `std::ptr::copy_nonoverlapping`.
#[inline(always)]
pub unsafe fn copy_written(from: *const u8, to: *mut u8, bytes: usize) {
    match bytes < WRITTEN_ABREAST_BYTES_MIN {
        true => std::ptr::copy_nonoverlapping(from, to, bytes),
        false => copy_long(&WRITES, from, to, bytes),
    }
}

/// As [`copy_brought`] and [`copy_written`], by what the trials of one kind of copies say.
#[inline(never)]
unsafe fn copy_long(trial: &Trial, from: *const u8, to: *mut u8, bytes: usize) {
    let (order, timed) = trial.next();
    let before = timed.map(|_| counter());
    match order {
        Order::InOrder => std::ptr::copy_nonoverlapping(from, to, bytes),
        Order::Abreast => copy_abreast(from, to, bytes),
    }
    if let (Some(number), Some(before)) = (timed, before) {
        trial.took(number, bytes, before, counter());
    }
}

/// Copies in streams where the processor has the instructions, else in order.
///
/// # Safety
/// As `std::ptr::copy_nonoverlapping`.
unsafe fn copy_abreast(from: *const u8, to: *mut u8, bytes: usize) {
    let mut done = 0;
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    if std::arch::is_x86_feature_detected!("avx") {
        // Whole lines are written: a store across two takes twice as long.
        done = to.align_offset(LINE_BYTES).min(LINE_BYTES);
        std::ptr::copy_nonoverlapping(from, to, done);
        while bytes - done >= ABREAST_BYTES_MIN {
            let (left, from, to) = (bytes - done, from.add(done), to.add(done));
            done += match left / ABREAST_BYTES_MIN {
                1 => streams_avx::<2>(from, to, left),
                2 | 3 => streams_avx::<4>(from, to, left),
                _ => streams_avx::<STREAMS_MAX>(from, to, left),
            };
        }
    }
    std::ptr::copy_nonoverlapping(from.add(done), to.add(done), bytes - done);
}

/// Copies in so many streams of equal length what they take of `bytes`, and gives how much that is.
#[cfg(all(target_arch = "x86_64", not(miri)))]
#[target_feature(enable = "avx")]
unsafe fn streams_avx<const STREAMS: usize>(from: *const u8, to: *mut u8, bytes: usize) -> usize {
    use std::arch::x86_64::{_mm256_loadu_si256, _mm256_setzero_si256, _mm256_storeu_si256};
    // An odd number of lines: streams whose distance is half a page or a whole one would all use the same few lines of a first cache.
    let each = (((bytes / STREAMS).min(STREAM_BYTES_MAX) / LINE_BYTES - 1) | 1) * LINE_BYTES;
    for at in (0..each).step_by(LINE_BYTES) {
        let mut lines = [[_mm256_setzero_si256(); 2]; STREAMS];
        for (stream, line) in lines.iter_mut().enumerate() {
            let from = from.add(stream * each + at);
            *line = [_mm256_loadu_si256(from.cast()), _mm256_loadu_si256(from.add(32).cast())];
        }
        for (stream, line) in lines.iter().enumerate() {
            let to = to.add(stream * each + at);
            _mm256_storeu_si256(to.cast(), line[0]);
            _mm256_storeu_si256(to.add(32).cast(), line[1]);
        }
    }
    STREAMS * each
}

/// What is read from its last line on: as far as any processor fetches ahead.
const END_BYTES: usize = 2 << 10;

/// Copies bytes out of memory that another core has just written and goes on writing behind them: the end of them first, from the last line to the first. A processor
/// that sees lines read in their order fetches the ones behind them, too; these their writer has to take back, which takes three times as long as to write lines that
/// nobody holds. Before the end, what is fetched ahead is of use. Of long ones the end is a small part: they are copied [as others](copy_brought).
///
/// # Safety
/// As `std::ptr::copy_nonoverlapping`.
#[inline]
pub unsafe fn copy_from_end(from: *const u8, to: *mut u8, bytes: usize) {
    if bytes >= LONG_BYTES_MIN {
        return copy_brought(from, to, bytes);
    }
    let last = (from as usize + bytes) % LINE_BYTES;
    if bytes < last {
        return std::ptr::copy_nonoverlapping(from, to, bytes);
    }
    let whole = bytes - last;
    std::ptr::copy_nonoverlapping(from.add(whole), to.add(whole), last);
    let end = whole.min(END_BYTES);
    let before = whole - end;
    let (from_end, to_end) = (from.add(before), to.add(before));
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    let first = if std::arch::is_x86_feature_detected!("avx") { lines_from_end_avx(from_end, to_end, end) } else { lines_from_end(from_end, to_end, end) };
    #[cfg(not(all(target_arch = "x86_64", not(miri))))]
    let first = lines_from_end(from_end, to_end, end);
    copy_brought(from, to, before + first);
}

/// Copies all whole lines of `bytes`; gives how many bytes are left at the beginning.
unsafe fn lines_from_end(from: *const u8, to: *mut u8, bytes: usize) -> usize {
    let mut left = bytes;
    while left >= LINE_BYTES {
        left -= LINE_BYTES;
        let line = from.add(left).cast::<[u8; LINE_BYTES]>().read_unaligned();
        to.add(left).cast::<[u8; LINE_BYTES]>().write_unaligned(line);
        // Else a compiler may make one copy of all of it.
        std::sync::atomic::compiler_fence(Ordering::SeqCst);
    }
    left
}

/// As [`lines_from_end`], for a processor that has these instructions.
#[cfg(all(target_arch = "x86_64", not(miri)))]
#[target_feature(enable = "avx")]
unsafe fn lines_from_end_avx(from: *const u8, to: *mut u8, bytes: usize) -> usize {
    use std::arch::x86_64::{_mm256_loadu_si256, _mm256_storeu_si256};
    let mut left = bytes;
    while left >= LINE_BYTES {
        left -= LINE_BYTES;
        let (from, to) = (from.add(left), to.add(left));
        let (low, high) = (_mm256_loadu_si256(from.cast()), _mm256_loadu_si256(from.add(32).cast()));
        _mm256_storeu_si256(to.cast(), low);
        _mm256_storeu_si256(to.add(32).cast(), high);
    }
    left
}

/// Lets this process' page tables know the pages of a range of a shared mapping, at once instead of one by one when they are first touched. A hint.
pub fn map_ahead(start: *const u8, bytes: usize) {
    let _ = populate(start, bytes);
}

/// As [`map_ahead`]; the pages get memory where they have none.
///
/// # Errors
/// `errno`: there is none, or the system is [too old](can_populate).
pub fn populate(start: *const u8, bytes: usize) -> Result<(), i32> {
    // SAFETY: no content changes; where the range is none of this process, or the system is too old, it says so, and nothing else happens.
    unsafe {
        let before = start.addr() % libc::sysconf(libc::_SC_PAGESIZE).max(1) as usize;
        if cfg!(miri) || bytes == 0 {
            return Ok(());
        }
        match libc::madvise(start.wrapping_sub(before).cast_mut().cast(), before + bytes, libc::MADV_POPULATE_WRITE) {
            0 => Ok(()),
            _ => Err(errno()),
        }
    }
}

/// Whether [`populate`] is there (Linux 5.14): it says so of no bytes.
pub fn can_populate() -> bool {
    static CAN: std::sync::OnceLock<bool> = std::sync::OnceLock::new();
    // SAFETY: no bytes of any page.
    *CAN.get_or_init(|| !cfg!(miri) && unsafe { libc::madvise(std::ptr::null_mut(), 0, libc::MADV_POPULATE_WRITE) } == 0)
}

/// Mapped memory of so many bytes is copied in streams. Where one of the cores has just written less, it lies in its first cache, from which lines come one by one;
/// more is a piece of a long message, which may come from memory, and that gives no more lines at a time to several streams.
const MAPPED_ABREAST: std::ops::RangeInclusive<usize> = 48 << 10..=64 << 10;

/// Copies between mapped memory of a peer, which others may change at any time, and memory of this process.
///
/// # Safety
/// As `std::ptr::copy`.
#[inline]
pub unsafe fn copy_mapped(from: *const u8, to: *mut u8, bytes: usize) {
    if !MAPPED_ABREAST.contains(&bytes) || (from as usize).abs_diff(to as usize) < bytes {
        return std::ptr::copy(from, to, bytes);
    }
    copy_long(&MAPPED, from, to, bytes);
}

/// Waits until all that this thread has stored can be seen, and tells the time, ticks of the processor's counter.
pub fn ticks() -> u64 {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    // SAFETY: this instruction touches no memory, and all processors of this kind have it.
    unsafe {
        std::arch::x86_64::_mm_mfence();
    }
    counter()
}

/// The time, ticks of the processor's counter; 0 where there is none.
fn counter() -> u64 {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    // SAFETY: as above.
    unsafe {
        std::arch::x86_64::_rdtsc()
    }
    #[cfg(not(all(target_arch = "x86_64", not(miri))))]
    0
}

/// Waits until `word` is no longer `seen`, somebody wakes it, or `timeout` has passed.
pub fn futex_wait(word: &AtomicU32, seen: u32, timeout: Duration) {
    let time = libc::timespec { tv_sec: timeout.as_secs() as libc::time_t, tv_nsec: timeout.subsec_nanos() as libc::c_long };
    // SAFETY: the word is a valid address for the time of the call. Shared futex: the word lies in a shared mapping.
    unsafe { libc::syscall(libc::SYS_futex, word.as_ptr(), libc::FUTEX_WAIT, seen, &time) };
}

/// Wakes all that wait on `word`, in any process.
pub fn futex_wake(word: &AtomicU32) {
    // SAFETY: as above.
    unsafe { libc::syscall(libc::SYS_futex, word.as_ptr(), libc::FUTEX_WAKE, i32::MAX) };
}

const MEMBARRIER_GLOBAL_EXPEDITED: libc::c_long = 1 << 1;
const MEMBARRIER_REGISTER_GLOBAL_EXPEDITED: libc::c_long = 1 << 2;

/// Makes this process one that other processes' [`heavy_fence`] reaches. Returns whether that works here.
pub fn register_for_fences() -> bool {
    // SAFETY: a plain system call.
    unsafe { libc::syscall(libc::SYS_membarrier, MEMBARRIER_REGISTER_GLOBAL_EXPEDITED, 0, 0) == 0 }
}

/// A full memory barrier on every core that runs a registered process. Returns whether it was done.
pub fn heavy_fence() -> bool {
    std::sync::atomic::fence(Ordering::SeqCst);
    // SAFETY: a plain system call.
    unsafe { libc::syscall(libc::SYS_membarrier, MEMBARRIER_GLOBAL_EXPEDITED, 0, 0) == 0 }
}

pub fn process() -> u32 {
    std::process::id()
}

/// Fills `out` with random bytes from the kernel.
pub fn random(out: &mut [u8]) -> Result<(), Error> {
    // SAFETY: the slice is writable for its length.
    let n = unsafe { libc::getrandom(out.as_mut_ptr().cast(), out.len(), 0) };
    if n == out.len() as isize { Ok(()) } else { Err(Error::System { call: "getrandom", errno: errno() }) }
}

/// Reads `bytes` at `remote` of process `pid` to `local` in one copy. `Err` holds the error number.
///
/// # Safety
/// `local..local + bytes` must be writable.
pub unsafe fn read_process(pid: u32, remote: u64, local: *mut u8, bytes: usize) -> Result<(), i32> {
    copy_process(libc::SYS_process_vm_readv, pid, remote, local, bytes)
}

/// Writes `bytes` at `local` to `remote` of process `pid` in one copy.
///
/// # Safety
/// `local..local + bytes` must be readable, and the peer must have offered `remote..remote + bytes`.
pub unsafe fn write_process(pid: u32, remote: u64, local: *const u8, bytes: usize) -> Result<(), i32> {
    copy_process(libc::SYS_process_vm_writev, pid, remote, local.cast_mut(), bytes)
}

unsafe fn copy_process(call: libc::c_long, pid: u32, remote: u64, local: *mut u8, bytes: usize) -> Result<(), i32> {
    let mut done = 0;
    while done < bytes {
        let here = libc::iovec { iov_base: local.add(done).cast(), iov_len: bytes - done };
        let there = libc::iovec { iov_base: (remote as usize + done) as *mut libc::c_void, iov_len: bytes - done };
        let n = libc::syscall(call, pid as libc::pid_t, &here, 1 as libc::c_ulong, &there, 1 as libc::c_ulong, 0 as libc::c_ulong);
        match n {
            n if n > 0 => done += n as usize,
            0 => return Err(libc::EFAULT),
            _ if errno() == libc::EINTR => {}
            _ => return Err(errno()),
        }
    }
    Ok(())
}

/// Pieces of each side that one call copies.
pub const PIECES_PER_CALL: usize = 256;

/// Reads pieces of process `pid` into local ones, as far as both reach; gives the bytes copied.
///
/// # Safety
/// The local pieces must be writable.
pub unsafe fn read_pieces(pid: u32, remote: &[(u64, usize)], local: &[(*mut u8, usize)]) -> Result<usize, i32> {
    copy_pieces(libc::SYS_process_vm_readv, pid, remote, local)
}

/// Writes local pieces into those of process `pid`.
///
/// # Safety
/// The local pieces must be readable, and the peer must have offered the remote ones.
pub unsafe fn write_pieces(pid: u32, remote: &[(u64, usize)], local: &[(*mut u8, usize)]) -> Result<usize, i32> {
    copy_pieces(libc::SYS_process_vm_writev, pid, remote, local)
}

unsafe fn copy_pieces(call: libc::c_long, pid: u32, remote: &[(u64, usize)], local: &[(*mut u8, usize)]) -> Result<usize, i32> {
    let none = libc::iovec { iov_base: std::ptr::null_mut(), iov_len: 0 };
    let (mut here, mut there) = ([none; PIECES_PER_CALL], [none; PIECES_PER_CALL]);
    for (vector, (start, bytes)) in here.iter_mut().zip(local) {
        *vector = libc::iovec { iov_base: start.cast(), iov_len: *bytes };
    }
    for (vector, (address, bytes)) in there.iter_mut().zip(remote) {
        *vector = libc::iovec { iov_base: *address as usize as *mut libc::c_void, iov_len: *bytes };
    }
    let (ours, theirs) = (local.len().min(PIECES_PER_CALL) as libc::c_ulong, remote.len().min(PIECES_PER_CALL) as libc::c_ulong);
    loop {
        match libc::syscall(call, pid as libc::pid_t, here.as_ptr(), ours, there.as_ptr(), theirs, 0 as libc::c_ulong) {
            n if n > 0 => return Ok(n as usize),
            0 => return Err(libc::EFAULT),
            _ if errno() == libc::EINTR => {}
            _ => return Err(errno()),
        }
    }
}

/// The cache that a core has for itself alone, bytes; 0 where that is not known.
pub fn core_cache_bytes() -> u64 {
    #[cfg(target_env = "gnu")]
    // SAFETY: a plain question.
    let bytes = unsafe { libc::sysconf(libc::_SC_LEVEL2_CACHE_SIZE) };
    #[cfg(not(target_env = "gnu"))]
    let bytes = 0;
    bytes.max(0) as u64
}

/// Gives the core to another runnable thread, if there is one.
pub fn yield_core() {
    // SAFETY: a plain system call.
    unsafe { libc::sched_yield() };
}

/// How often this thread has left its core to another without having waited for anything: it gave the core away, or the kernel took it. Always 0 where the
/// kernel does not count (gVisor).
#[cold]
pub fn switches() -> u64 {
    let mut usage = std::mem::MaybeUninit::<libc::rusage>::zeroed();
    // SAFETY: there is room for what the call tells; zeroes are a value, too, should it fail.
    let usage = unsafe {
        libc::getrusage(libc::RUSAGE_THREAD, usage.as_mut_ptr());
        usage.assume_init()
    };
    usage.ru_nivcsw as u64
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    /// Two threads on one core that give it away by turns.
    #[test]
    fn a_core_left_to_another_thread_is_counted() {
        // SAFETY: a set of processors is made of integers; the calls write and read no more than that.
        unsafe {
            let mut all = std::mem::zeroed::<libc::cpu_set_t>();
            assert_eq!(libc::sched_getaffinity(0, size_of_val(&all), &mut all), 0);
            let first = (0..libc::CPU_SETSIZE as usize).find(|cpu| libc::CPU_ISSET(*cpu, &all)).expect("a processor");
            let mut one = std::mem::zeroed::<libc::cpu_set_t>();
            libc::CPU_SET(first, &mut one);
            let ended = &std::sync::atomic::AtomicBool::new(false);
            let seen = std::thread::scope(|s| {
                let worker = s.spawn(move || {
                    libc::sched_setaffinity(0, size_of_val(&one), &one);
                    let before = switches();
                    let deadline = std::time::Instant::now() + std::time::Duration::from_secs(20);
                    while switches() < before + 10 && std::time::Instant::now() < deadline {
                        yield_core();
                    }
                    ended.store(true, std::sync::atomic::Ordering::Release);
                    switches() - before
                });
                s.spawn(move || {
                    libc::sched_setaffinity(0, size_of_val(&one), &one);
                    while !ended.load(std::sync::atomic::Ordering::Acquire) {
                        yield_core();
                    }
                });
                worker.join().unwrap()
            });
            assert!(seen >= 10, "{seen}");
        }
    }

    #[test]
    fn what_is_copied_from_its_end_is_all_there_and_nothing_else() {
        let from: Vec<u8> = (0..3 * END_BYTES).map(|at| (at * 31 % 251) as u8 + 1).collect();
        for bytes in (0..200).chain([255, 256, 257, 511, 512, 600]).chain([0, 1, 63, 64, 65, 640].map(|more| END_BYTES + more)) {
            for (source, place) in [(0, 0), (1, 0), (0, 1), (63, 17), (64, 64), (31, 32)] {
                let copied = |copy: &dyn Fn(*const u8, *mut u8)| {
                    let mut to = vec![0; 3 * END_BYTES];
                    copy(from[source..].as_ptr(), to[place..].as_mut_ptr());
                    to
                };
                // SAFETY: both have so many bytes from there on.
                let found = copied(&|from, to| unsafe { copy_from_end(from, to, bytes) });
                let mut expected = vec![0; 3 * END_BYTES];
                expected[place..place + bytes].copy_from_slice(&from[source..source + bytes]);
                assert_eq!(found, expected, "{bytes} bytes from {source} to {place}");
                // SAFETY: as above.
                let found = copied(&|from, to| unsafe { assert_eq!(lines_from_end(from, to, bytes), bytes % LINE_BYTES) });
                expected[place..place + bytes % LINE_BYTES].fill(0);
                assert_eq!(found, expected, "the lines of {bytes} bytes");
            }
        }
    }

    /// A body's bytes, each of which knows its place.
    struct Bytes<'a>(&'a [u8]);

    // SAFETY: exactly the bytes asked for are written.
    unsafe impl crate::Scattered for Bytes<'_> {
        unsafe fn write(&self, offset: usize, to: *mut u8, bytes: usize) {
            self.0[offset..][..bytes].as_ptr().copy_to_nonoverlapping(to, bytes);
        }
    }

    /// In one piece or packed on the way, in any place.
    #[test]
    fn what_goes_past_the_caches_is_all_there_and_nothing_else() {
        let from: Vec<u8> = (0..4 * PACKED_BYTES).map(|at| (at * 31 % 251) as u8 + 1).collect();
        let bytes = Bytes(&from);
        // SAFETY: they stay.
        for body in [unsafe { crate::Body::new(from.as_ptr(), from.len()) }, crate::Body::scattered(&bytes, from.len())] {
            for length in (0..200).chain([0, 1, 63, 64, 65, 640, PACKED_BYTES].map(|more| PACKED_BYTES + more)) {
                for (start, place) in [(0, 0), (1, 0), (0, 1), (63, 17), (PACKED_BYTES, 64), (31, 32)] {
                    let (mut to, mut expected) = (vec![0; 4 * PACKED_BYTES], vec![0; 4 * PACKED_BYTES]);
                    // SAFETY: both have so many bytes from there on.
                    unsafe { Area { start: to[place..].as_mut_ptr(), bytes: length }.stream(&body, start) };
                    expected[place..place + length].copy_from_slice(&from[start..start + length]);
                    assert!(to == expected, "{length} bytes from {start} to {place}");
                }
            }
        }
    }

    /// With one stream and with each number of several, whole turns of them and the rest, in any place.
    #[test]
    fn what_is_copied_in_streams_is_all_there_and_nothing_else() {
        let most = 3 * STREAMS_MAX * STREAM_BYTES_MAX;
        let from: Vec<u8> = (0..most).map(|at| (at * 31 % 251) as u8 + 1).collect();
        let steps = [ABREAST_BYTES_MIN, 2 * ABREAST_BYTES_MIN, 4 * ABREAST_BYTES_MIN, LONG_BYTES_MIN, 32 << 10, 40 << 10, 64 << 10, 71 << 10];
        for bytes in steps.into_iter().flat_map(|step| [step - 1, step, step + 1, step + 63, step + 64, step + 1000]) {
            for (source, place) in [(0, 0), (1, 0), (0, 1), (63, 17), (64, 64), (4000, 32)] {
                for copy in [copy_abreast, copy_brought, copy_from_end] {
                    let mut found = vec![0; most];
                    // SAFETY: both have so many bytes from there on.
                    unsafe { copy(from[source..].as_ptr(), found[place..].as_mut_ptr(), bytes) };
                    let mut expected = vec![0; most];
                    expected[place..place + bytes].copy_from_slice(&from[source..source + bytes]);
                    assert!(found == expected, "{bytes} bytes from {source} to {place}");
                }
            }
        }
    }
}
