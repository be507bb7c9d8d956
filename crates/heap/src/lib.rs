//! Where do large arrays live, so that peers can map them? In blocks of the process's own file ([`memory::arena`]): `libwhimbrel-heap.so`, preloaded
//! (`mpiexec --shared-heap`), serves `malloc` and its kin from 64 KiB on, and leaves the rest to the allocator that would be there without it.
//!
//! The MPI library finds the range by `whimbrel_heap_range` and tells peers of it. A block that is freed and given out again is the same
//! memory at the same address, so nothing that a peer has mapped becomes stale. What a child of a fork sees is said at [`memory::arena`].
//!
//! The library allocates nothing while it holds a lock, so that another allocator's locks may be taken in any order.

mod next;

use memory::arena::{self, Arena, BLOCK_BYTES_MIN};
use next::{is_early, next};
use std::ffi::{c_int, c_void};

/// Says that a pointer is none of the heap's, and ends the process: the program has freed it already, or writes where it must not.
fn invalid(call: &str) -> ! {
    eprintln!("whimbrel: {call}: no block of the shared heap begins there");
    std::process::abort()
}

/// The arena, for blocks of at least 64 KiB.
#[inline]
fn arena_for(bytes: usize) -> Option<&'static Arena> {
    if bytes < BLOCK_BYTES_MIN || bytes > isize::MAX as usize || !next().shares { None } else { arena::own() }
}

/// The arena in which `start` lies.
#[inline]
fn arena_of(start: *mut c_void) -> Option<&'static Arena> {
    arena::made().filter(|arena| arena.contains(start as usize))
}

/// # Safety
/// As in C.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn malloc(bytes: usize) -> *mut c_void {
    match arena_for(bytes).and_then(|arena| arena.allocate(bytes, 64)) {
        Some(block) => block.start.cast(),
        None => (next().malloc)(bytes),
    }
}

/// # Safety
/// As in C.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn calloc(count: usize, each: usize) -> *mut c_void {
    let bytes = count.checked_mul(each).unwrap_or(0);
    match arena_for(bytes).and_then(|arena| arena.allocate(bytes, 64)) {
        Some(block) => {
            if !block.zeroed {
                // SAFETY: a new block of at least as many bytes.
                unsafe { std::ptr::write_bytes(block.start, 0, bytes) };
            }
            block.start.cast()
        }
        None => (next().calloc)(count, each),
    }
}

/// # Safety
/// As in C.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn free(start: *mut c_void) {
    let Some(arena) = arena_of(start) else {
        if !is_early(start) {
            (next().free)(start);
        }
        return;
    };
    // SAFETY: the address of this thread's error number. `free` leaves that as it is (POSIX.1-2024).
    unsafe {
        let errno = *libc::__errno_location();
        if arena.free(start as usize).is_err() {
            invalid("free");
        }
        *libc::__errno_location() = errno;
    }
}

/// # Safety
/// As in C.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn realloc(start: *mut c_void, bytes: usize) -> *mut c_void {
    if start.is_null() {
        return malloc(bytes);
    }
    let had = match arena_of(start) {
        Some(arena) => {
            let Some(had) = arena.block_bytes(start as usize) else { invalid("realloc") };
            if bytes == 0 {
                free(start);
                return std::ptr::null_mut();
            }
            if bytes >= BLOCK_BYTES_MIN && bytes <= isize::MAX as usize && arena.resize(start as usize, bytes) {
                return start;
            }
            had
        }
        None if is_early(start) => bytes,
        // A short block that stays short, or is no block.
        None if arena_for(bytes).is_none() => return (next().realloc)(start, bytes),
        None => (next().malloc_usable_size)(start),
    };
    let new = malloc(bytes);
    if !new.is_null() {
        // SAFETY: both blocks have as many bytes, and do not overlap.
        unsafe { std::ptr::copy_nonoverlapping(start.cast::<u8>(), new.cast::<u8>(), had.min(bytes)) };
        free(start);
    }
    new
}

/// # Safety
/// As in C.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn posix_memalign(to: *mut *mut c_void, align: usize, bytes: usize) -> c_int {
    let valid = align.is_power_of_two() && align.is_multiple_of(size_of::<*mut c_void>());
    match arena_for(bytes).filter(|_| valid).and_then(|arena| arena.allocate(bytes, align)) {
        Some(block) => {
            // SAFETY: the caller's promise.
            unsafe { *to = block.start.cast() };
            0
        }
        None => (next().posix_memalign)(to, align, bytes),
    }
}

/// # Safety
/// As in C.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn aligned_alloc(align: usize, bytes: usize) -> *mut c_void {
    match arena_for(bytes).filter(|_| align.is_power_of_two()).and_then(|arena| arena.allocate(bytes, align)) {
        Some(block) => block.start.cast(),
        None => (next().aligned_alloc)(align, bytes),
    }
}

/// # Safety
/// As in C.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn memalign(align: usize, bytes: usize) -> *mut c_void {
    match arena_for(bytes).filter(|_| align.is_power_of_two()).and_then(|arena| arena.allocate(bytes, align)) {
        Some(block) => block.start.cast(),
        None => (next().memalign)(align, bytes),
    }
}

/// # Safety
/// As in C.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn malloc_usable_size(start: *mut c_void) -> usize {
    match arena_of(start) {
        Some(arena) => arena.block_bytes(start as usize).unwrap_or_else(|| invalid("malloc_usable_size")),
        None => (next().malloc_usable_size)(start),
    }
}

/// `MADV_DONTNEED` on a block means what it does on memory of a process' own: the pages read as zero afterwards.
///
/// # Safety
/// As in C.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn madvise(start: *mut c_void, bytes: usize, advice: c_int) -> c_int {
    match arena_of(start) {
        Some(arena) if advice == libc::MADV_DONTNEED && arena.discard(start as usize, bytes) => 0,
        // SAFETY: the caller's promise. By the system's number: the C library's function is this one.
        _ => unsafe { libc::syscall(libc::SYS_madvise, start, bytes, advice) as c_int },
    }
}

/// Where the blocks lie, for the MPI library: writes first address, bytes and the file's descriptor to `words`. 0: it has; else there are none.
///
/// # Safety
/// Three words are writable at `words`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn whimbrel_heap_range(words: *mut u64) -> c_int {
    if !next().shares {
        return -1;
    }
    let Some(range) = arena::own().map(Arena::range) else { return -1 };
    // SAFETY: the caller's promise.
    unsafe { words.cast::<[u64; 3]>().write([range.start, range.bytes, range.fd as u64]) };
    0
}
