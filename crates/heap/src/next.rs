//! The allocator that would be there without this library.

use std::cell::UnsafeCell;
use std::ffi::{CStr, c_int, c_void};
use std::mem::MaybeUninit;
use std::sync::atomic::{AtomicU8, AtomicUsize, Ordering};

/// Its functions.
pub struct Next {
    pub malloc: unsafe extern "C" fn(usize) -> *mut c_void,
    pub calloc: unsafe extern "C" fn(usize, usize) -> *mut c_void,
    pub free: unsafe extern "C" fn(*mut c_void),
    pub realloc: unsafe extern "C" fn(*mut c_void, usize) -> *mut c_void,
    pub posix_memalign: unsafe extern "C" fn(*mut *mut c_void, usize, usize) -> c_int,
    pub aligned_alloc: unsafe extern "C" fn(usize, usize) -> *mut c_void,
    pub memalign: unsafe extern "C" fn(usize, usize) -> *mut c_void,
    pub malloc_usable_size: unsafe extern "C" fn(*mut c_void) -> usize,
    /// Large blocks come from the arena: no checker of memory is at work.
    pub shares: bool,
}

/// What is asked for while the functions are looked up, which may allocate.
static EARLY: Next = Next {
    malloc: early_malloc,
    calloc: early_calloc,
    free: early_free,
    realloc: early_realloc,
    posix_memalign: early_posix_memalign,
    aligned_alloc: early_aligned_alloc,
    memalign: early_aligned_alloc,
    malloc_usable_size: early_usable_size,
    shares: false,
};

struct Found(UnsafeCell<MaybeUninit<Next>>);

// SAFETY: written once, before STATE says so.
unsafe impl Sync for Found {}

static FOUND: Found = Found(UnsafeCell::new(MaybeUninit::uninit()));
const UNKNOWN: u8 = 0;
const LOOKING: u8 = 1;
const KNOWN: u8 = 2;
static STATE: AtomicU8 = AtomicU8::new(UNKNOWN);

/// The functions; those that need nothing while they are looked up.
#[inline]
pub fn next() -> &'static Next {
    match STATE.load(Ordering::Acquire) {
        // SAFETY: written before the state said so, and never again.
        KNOWN => unsafe { (*FOUND.0.get()).assume_init_ref() },
        _ => look(),
    }
}

/// A process begins with one thread, which allocates long before there is a second one.
#[cold]
fn look() -> &'static Next {
    if STATE.compare_exchange(UNKNOWN, LOOKING, Ordering::AcqRel, Ordering::Acquire).is_err() {
        return &EARLY;
    }
    // SAFETY: the types are those of C's functions by these names; nobody else writes or reads before the state says that it is known.
    unsafe {
        let found = Next {
            malloc: function(c"malloc"),
            calloc: function(c"calloc"),
            free: function(c"free"),
            realloc: function(c"realloc"),
            posix_memalign: function(c"posix_memalign"),
            aligned_alloc: function(c"aligned_alloc"),
            memalign: function(c"memalign"),
            malloc_usable_size: function(c"malloc_usable_size"),
            shares: !is_checked(),
        };
        (*FOUND.0.get()).write(found);
    }
    STATE.store(KNOWN, Ordering::Release);
    // Before there are threads, and before most others ask to be called at forks.
    if next().shares {
        memory::arena::own();
    }
    next()
}

/// The next function of that name.
///
/// # Safety
/// `F` must be a pointer to a function of its type.
unsafe fn function<F>(name: &CStr) -> F {
    const { assert!(size_of::<F>() == size_of::<*mut c_void>()) };
    let found = libc::dlsym(libc::RTLD_NEXT, name.as_ptr());
    if found.is_null() {
        let line = b"whimbrel: the shared heap finds no allocator behind it\n";
        libc::write(2, line.as_ptr().cast(), line.len());
        libc::abort();
    }
    std::mem::transmute_copy(&found)
}

/// Whether a checker of memory is at work, which has to see every block: AddressSanitizer, valgrind.
fn is_checked() -> bool {
    // SAFETY: plain look-ups; a variable's value ends with 0.
    let checked = unsafe {
        let preloaded = libc::getenv(c"LD_PRELOAD".as_ptr());
        let valgrind = !preloaded.is_null() && CStr::from_ptr(preloaded).to_bytes().windows(9).any(|part| part == b"vgpreload");
        valgrind || !libc::dlsym(libc::RTLD_DEFAULT, c"__asan_init".as_ptr()).is_null()
    };
    if checked {
        let line = b"whimbrel: no shared heap: a checker of memory is at work\n";
        // SAFETY: a plain write.
        unsafe { libc::write(2, line.as_ptr().cast(), line.len()) };
    }
    checked
}

/// Memory for that time, bytes; never given back.
const EARLY_BYTES: usize = 64 << 10;
#[repr(align(64))]
struct Early(UnsafeCell<[u8; EARLY_BYTES]>);
// SAFETY: handed out in parts, each to one caller.
unsafe impl Sync for Early {}
static EARLY_MEMORY: Early = Early(UnsafeCell::new([0; EARLY_BYTES]));
static EARLY_USED: AtomicUsize = AtomicUsize::new(0);

/// Whether `start` was given out in that time.
pub fn is_early(start: *mut c_void) -> bool {
    (start as usize).wrapping_sub(EARLY_MEMORY.0.get() as usize) < EARLY_BYTES
}

unsafe extern "C" fn early_aligned_alloc(align: usize, bytes: usize) -> *mut c_void {
    let align = align.max(16);
    let all = bytes.saturating_add(align);
    let used = EARLY_USED.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |used| used.checked_add(all).filter(|used| *used <= EARLY_BYTES));
    match used {
        Ok(used) => ((EARLY_MEMORY.0.get() as usize + used).next_multiple_of(align)) as *mut c_void,
        Err(_) => std::ptr::null_mut(),
    }
}

unsafe extern "C" fn early_malloc(bytes: usize) -> *mut c_void {
    early_aligned_alloc(16, bytes)
}

unsafe extern "C" fn early_calloc(count: usize, each: usize) -> *mut c_void {
    // It is all zero, and nothing is given out twice.
    early_aligned_alloc(16, count.saturating_mul(each))
}

unsafe extern "C" fn early_free(_: *mut c_void) {}

unsafe extern "C" fn early_realloc(start: *mut c_void, bytes: usize) -> *mut c_void {
    let new = early_malloc(bytes);
    if !(new.is_null() || start.is_null()) {
        // What lies behind the old bytes is copied, too: both lie in that memory.
        let end = EARLY_MEMORY.0.get() as usize + EARLY_BYTES;
        std::ptr::copy(start.cast::<u8>(), new.cast::<u8>(), bytes.min(end - start as usize));
    }
    new
}

unsafe extern "C" fn early_posix_memalign(to: *mut *mut c_void, align: usize, bytes: usize) -> c_int {
    *to = early_aligned_alloc(align, bytes);
    if (*to).is_null() { libc::ENOMEM } else { 0 }
}

unsafe extern "C" fn early_usable_size(start: *mut c_void) -> usize {
    if start.is_null() { 0 } else { EARLY_MEMORY.0.get() as usize + EARLY_BYTES - start as usize }
}
