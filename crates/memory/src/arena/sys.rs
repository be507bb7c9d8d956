//! The system calls and raw memory of an arena.

use super::runs::Mark;
use std::sync::atomic::{AtomicU32, Ordering};

fn errno() -> i32 {
    std::io::Error::last_os_error().raw_os_error().unwrap_or(0)
}

/// A lock that allocates nothing, and may be taken before a fork and given back on both sides of it.
#[derive(Default)]
pub struct Lock(AtomicU32);

impl Lock {
    /// Free, taken, and taken while others wait.
    const FREE: u32 = 0;
    const TAKEN: u32 = 1;
    const WANTED: u32 = 2;

    pub fn lock(&self) {
        if self.0.compare_exchange(Self::FREE, Self::TAKEN, Ordering::Acquire, Ordering::Relaxed).is_ok() {
            return;
        }
        while self.0.swap(Self::WANTED, Ordering::Acquire) != Self::FREE {
            // SAFETY: the word lives for the time of the call.
            unsafe {
                libc::syscall(libc::SYS_futex, self.0.as_ptr(), libc::FUTEX_WAIT | libc::FUTEX_PRIVATE_FLAG, Self::WANTED, std::ptr::null::<libc::timespec>())
            };
        }
    }

    /// The caller holds it, or is the child of the thread that held it in a fork.
    pub fn unlock(&self) {
        if self.0.swap(Self::FREE, Ordering::Release) == Self::WANTED {
            // SAFETY: as above.
            unsafe { libc::syscall(libc::SYS_futex, self.0.as_ptr(), libc::FUTEX_WAKE | libc::FUTEX_PRIVATE_FLAG, 1) };
        }
    }
}

/// Address space of `bytes` that nothing can be done with yet, from a multiple of 2 MiB on. `Err` holds the error number.
pub fn reserve_addresses(bytes: usize) -> Result<usize, i32> {
    const ALIGN: usize = 2 << 20;
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
    // SAFETY: a new mapping, of which what is too much is unmapped at once.
    unsafe {
        let start = libc::mmap(std::ptr::null_mut(), bytes + ALIGN, libc::PROT_NONE, flags, -1, 0);
        if start == libc::MAP_FAILED {
            return Err(errno());
        }
        let first = (start as usize).next_multiple_of(ALIGN);
        let (before, after) = (first - start as usize, ALIGN - (first - start as usize));
        if before > 0 {
            libc::munmap(start, before);
        }
        if after > 0 {
            libc::munmap((first + bytes) as *mut libc::c_void, after);
        }
        Ok(first)
    }
}

/// Zeroed marks for so many pages; memory is taken for those that are written. They stay for the life of the process.
pub fn marks(pages: usize) -> Result<&'static mut [Mark], i32> {
    let bytes = pages * size_of::<Mark>();
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
    // SAFETY: a new mapping of as many marks, aligned to a page, all zero, which is a valid mark.
    unsafe {
        let start = libc::mmap(std::ptr::null_mut(), bytes, libc::PROT_READ | libc::PROT_WRITE, flags, -1, 0);
        if start == libc::MAP_FAILED { Err(errno()) } else { Ok(std::slice::from_raw_parts_mut(start.cast(), pages)) }
    }
}

/// Puts bytes `offset..offset + bytes` of the file to that place of the addresses at `start`. A child of a fork without handlers does not get them: touching
/// them there is SIGSEGV, and not a write to the parent's memory.
pub fn map_file(start: usize, fd: i32, offset: usize, bytes: usize) -> bool {
    let at = (start + offset) as *mut libc::c_void;
    // SAFETY: replaces addresses that were reserved for this and are not used yet.
    unsafe {
        let flags = libc::MAP_SHARED | libc::MAP_FIXED | libc::MAP_NORESERVE;
        libc::mmap(at, bytes, libc::PROT_READ | libc::PROT_WRITE, flags, fd, offset as libc::off_t) == at && libc::madvise(at, bytes, libc::MADV_DONTFORK) == 0
    }
}

/// Puts memory of this process alone there, all zero.
pub fn map_private(start: usize, bytes: usize) -> bool {
    let at = start as *mut libc::c_void;
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED | libc::MAP_NORESERVE;
    // SAFETY: as above, or in the child of a fork addresses at which nothing is mapped.
    bytes == 0 || unsafe { libc::mmap(at, bytes, libc::PROT_READ | libc::PROT_WRITE, flags, -1, 0) == at }
}

/// Gives the pages of a file that lie there back: they read as zero afterwards, in every process that maps them. By the mapping, not by the file's
/// descriptor: a program may have closed that and have another file by its number.
pub fn punch(start: usize, bytes: usize) -> bool {
    // SAFETY: pages of the arena that are free, or whose owner gives up what is in them.
    unsafe { libc::madvise(start as *mut libc::c_void, bytes, libc::MADV_REMOVE) == 0 }
}

/// Device and number of the file that `fd` is.
pub fn identity(fd: i32) -> Option<(u64, u64)> {
    // SAFETY: room for what the call writes, all zero before.
    unsafe {
        let mut found: libc::stat = std::mem::zeroed();
        (libc::fstat(fd, &mut found) == 0).then_some((found.st_dev, found.st_ino))
    }
}

/// The same for memory of this process alone.
pub fn drop_private(start: usize, bytes: usize) -> bool {
    // SAFETY: pages of the arena that are free, or whose owner gives up what is in them.
    unsafe { libc::madvise(start as *mut libc::c_void, bytes, libc::MADV_DONTNEED) == 0 }
}

/// Reads what the file holds in `0..bytes` to `start`, holes left out. Allocates nothing.
///
/// # Safety
/// `start..start + bytes` must be writable and all zero.
pub unsafe fn read_file(fd: i32, start: usize, bytes: usize) -> bool {
    let mut at = 0;
    while at < bytes {
        let data = libc::lseek(fd, at as libc::off_t, libc::SEEK_DATA);
        if data < 0 {
            return errno() == libc::ENXIO;
        }
        let hole = libc::lseek(fd, data, libc::SEEK_HOLE);
        at = data as usize;
        let end = if hole < 0 { return false } else { (hole as usize).min(bytes) };
        while at < end {
            match libc::pread(fd, (start + at) as *mut libc::c_void, end - at, at as libc::off_t) {
                read if read > 0 => at += read as usize,
                read if read < 0 && errno() == libc::EINTR => {}
                _ => return false,
            }
        }
    }
    true
}

pub fn close(fd: i32) {
    // SAFETY: a descriptor of the arena that is not used any more.
    unsafe { libc::close(fd) };
}

/// How a child of a fork tells its parent that it has its copy.
pub struct Signal([i32; 2]);

impl Signal {
    /// `None` where there is no descriptor left.
    pub fn new() -> Option<Signal> {
        let mut ends = [-1; 2];
        // SAFETY: room for two descriptors.
        (unsafe { libc::pipe2(ends.as_mut_ptr(), libc::O_CLOEXEC) } == 0).then_some(Signal(ends))
    }

    /// The child has its copy.
    pub fn send(self) {
        // SAFETY: descriptors of the pipe, which are closed here and nowhere else in this process.
        unsafe {
            libc::write(self.0[1], [1u8].as_ptr().cast(), 1);
            libc::close(self.0[0]);
            libc::close(self.0[1]);
        }
    }

    /// Waits for the child, until it has its copy or has ended. Where no child has come into being, nobody holds the other end.
    pub fn wait(self) {
        let mut byte = 0u8;
        // SAFETY: as above; a byte is writable.
        unsafe {
            libc::close(self.0[1]);
            while libc::read(self.0[0], (&raw mut byte).cast(), 1) < 0 && errno() == libc::EINTR {}
            libc::close(self.0[0]);
        }
    }
}

/// Registers what is done before a fork, and afterwards in the parent and in the child.
pub fn at_fork(prepare: extern "C" fn(), parent: extern "C" fn(), child: extern "C" fn()) -> bool {
    // SAFETY: functions of this library, which the C library forgets when it unloads it.
    unsafe { libc::pthread_atfork(Some(prepare), Some(parent), Some(child)) == 0 }
}

/// Ends this process at once, with a line on standard error. Allocates nothing.
pub fn die(line: &str) -> ! {
    // SAFETY: a plain write, and the end.
    unsafe {
        libc::write(2, line.as_ptr().cast(), line.len());
        libc::abort()
    }
}

/// What a library that was preloaded says of the range of its arena.
pub fn preloaded() -> Option<[u64; 3]> {
    // SAFETY: the symbol, where it is, is the function of that type of `libwhimbrel-heap.so`.
    unsafe {
        let symbol = libc::dlsym(libc::RTLD_DEFAULT, c"whimbrel_heap_range".as_ptr());
        if symbol.is_null() {
            return None;
        }
        let tell: unsafe extern "C" fn(*mut u64) -> libc::c_int = std::mem::transmute(symbol);
        let mut words = [0; 3];
        (tell(words.as_mut_ptr()) == 0).then_some(words)
    }
}
