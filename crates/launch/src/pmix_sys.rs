//! `libpmix`, found when the program runs: its types, and its calls behind safe ones. All that touches C is here.
//!
//! Layouts are those of the PMIx standard's C header, the same in releases 3 to 6 of OpenPMIx.

use std::ffi::{CStr, CString, c_char, c_int, c_uint, c_void};
use std::time::Duration;

const KEY_BYTES: usize = 512;
const NAMESPACE_BYTES: usize = 256;
const GLOBAL: u8 = 3;
const SUCCESS: c_int = 0;
const RANK_WILDCARD: u32 = u32::MAX - 1;

/// Longest value that is taken from the library, bytes.
const VALUE_BYTES_MAX: usize = 64 * 1024;

mod kind {
    pub const BOOL: u16 = 1;
    pub const STRING: u16 = 3;
    pub const SIZE: u16 = 4;
    pub const INT: u16 = 6;
    pub const INT32: u16 = 9;
    pub const INT64: u16 = 10;
    pub const UINT: u16 = 11;
    pub const UINT16: u16 = 13;
    pub const UINT32: u16 = 14;
    pub const UINT64: u16 = 15;
    pub const BYTES: u16 = 27;
    pub const RANK: u16 = 40;
}

/// `pmix_proc_t`.
#[repr(C)]
#[derive(Clone, Copy)]
struct Proc {
    namespace: [u8; NAMESPACE_BYTES],
    rank: u32,
}

/// `pmix_byte_object_t`.
#[repr(C)]
#[derive(Clone, Copy)]
struct Bytes {
    bytes: *mut c_char,
    size: usize,
}

/// The union of `pmix_value_t`; its largest member, `pmix_envar_t`, has three words.
#[repr(C)]
#[derive(Clone, Copy)]
union Data {
    flag: bool,
    string: *mut c_char,
    size: usize,
    int32: i32,
    int64: i64,
    uint16: u16,
    uint32: u32,
    uint64: u64,
    bytes: Bytes,
    words: [u64; 3],
}

/// `pmix_value_t`.
#[repr(C)]
#[derive(Clone, Copy)]
struct Value {
    kind: u16,
    data: Data,
}

/// `pmix_info_t`.
#[repr(C)]
struct Info {
    key: [u8; KEY_BYTES],
    flags: u32,
    value: Value,
}

const _: () = assert!(size_of::<Proc>() == 260 && size_of::<Value>() == 32 && size_of::<Info>() == 552);

/// A value as this library asks for it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Known {
    Number(i64),
    Bytes(Vec<u8>),
}

type Init = unsafe extern "C" fn(*mut Proc, *mut Info, usize) -> c_int;
type Finalize = unsafe extern "C" fn(*const Info, usize) -> c_int;
type Put = unsafe extern "C" fn(u8, *const c_char, *mut Value) -> c_int;
type Commit = unsafe extern "C" fn() -> c_int;
type Fence = unsafe extern "C" fn(*const Proc, usize, *const Info, usize) -> c_int;
type Get = unsafe extern "C" fn(*const Proc, *const c_char, *const Info, usize, *mut *mut Value) -> c_int;
type Abort = unsafe extern "C" fn(c_int, *const c_char, *mut Proc, usize) -> c_int;
type ErrorString = unsafe extern "C" fn(c_int) -> *const c_char;

/// The library, initialized: this process is known to its server.
pub(crate) struct Pmix {
    own: Proc,
    finalize: Finalize,
    put: Put,
    commit: Commit,
    fence: Fence,
    get: Get,
    abort: Abort,
    error_string: ErrorString,
}

/// Whose value is asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Of {
    /// What the server knows of the job as a whole.
    Job,
    Rank(u32),
}

impl Pmix {
    /// Loads the library `file` and greets the server that the environment names.
    ///
    /// Errors: words that say what went wrong.
    pub(crate) fn init(file: &str) -> Result<Pmix, String> {
        let library = load(file)?;
        let find = |name: &CStr| {
            // SAFETY: the library is loaded and the name ends with 0.
            let symbol = unsafe { libc::dlsym(library, name.as_ptr()) };
            if symbol.is_null() { Err(format!("{file} has no {}", name.to_string_lossy())) } else { Ok(symbol) }
        };
        // SAFETY: the functions of these names have these types in the PMIx standard.
        let (init, mut pmix) = unsafe {
            let init = std::mem::transmute::<*mut c_void, Init>(find(c"PMIx_Init")?);
            let pmix = Pmix {
                own: Proc { namespace: [0; NAMESPACE_BYTES], rank: 0 },
                finalize: std::mem::transmute::<*mut c_void, Finalize>(find(c"PMIx_Finalize")?),
                put: std::mem::transmute::<*mut c_void, Put>(find(c"PMIx_Put")?),
                commit: std::mem::transmute::<*mut c_void, Commit>(find(c"PMIx_Commit")?),
                fence: std::mem::transmute::<*mut c_void, Fence>(find(c"PMIx_Fence")?),
                get: std::mem::transmute::<*mut c_void, Get>(find(c"PMIx_Get")?),
                abort: std::mem::transmute::<*mut c_void, Abort>(find(c"PMIx_Abort")?),
                error_string: std::mem::transmute::<*mut c_void, ErrorString>(find(c"PMIx_Error_string")?),
            };
            (init, pmix)
        };
        // SAFETY: the library fills in the process; there are no directives.
        let status = unsafe { init(&mut pmix.own, std::ptr::null_mut(), 0) };
        pmix.checked("PMIx_Init", status)?;
        Ok(pmix)
    }

    pub(crate) fn rank(&self) -> u32 {
        self.own.rank
    }

    /// Leaves `value` under `key` for all ranks.
    pub(crate) fn put(&mut self, key: &str, value: &[u8]) -> Result<(), String> {
        let key = key_text(key)?;
        let bytes = Bytes { bytes: value.as_ptr().cast_mut().cast(), size: value.len() };
        let mut data = Data { words: [0; 3] };
        data.bytes = bytes;
        let mut value = Value { kind: kind::BYTES, data };
        // SAFETY: the library copies key and value before it returns.
        self.checked("PMIx_Put", unsafe { (self.put)(GLOBAL, key.as_ptr(), &mut value) })
    }

    /// Waits for all ranks of the job, and brings what they have put.
    pub(crate) fn fence(&mut self) -> Result<(), String> {
        self.fence_later()?()
    }

    /// As [`Pmix::fence`], in two steps: what is returned waits, on any thread.
    pub(crate) fn fence_later(&mut self) -> Result<impl FnOnce() -> Result<(), String> + Send + 'static, String> {
        // SAFETY: no arguments.
        checked(self.error_string, "PMIx_Commit", unsafe { (self.commit)() })?;
        let (all, fence, error_string) = (Proc { rank: RANK_WILDCARD, ..self.own }, self.fence, self.error_string);
        Ok(move || {
            let mut flag = Data { words: [0; 3] };
            flag.flag = true;
            let collect = info("pmix.collect", Value { kind: kind::BOOL, data: flag });
            // SAFETY: one process and one directive, both alive during the call; the library's calls may come from any thread.
            checked(error_string, "PMIx_Fence", unsafe { fence(&all, 1, &collect, 1) })
        })
    }

    /// The value of `key` that this process has been brought already, as by a fence; asks nobody. `None` where there is none, or one of a kind that this
    /// library never asks for.
    pub(crate) fn get_local(&mut self, of: Of, key: &str) -> Result<Option<Known>, String> {
        let mut data = Data { words: [0; 3] };
        data.flag = true;
        Ok(self.look(of, key, "pmix.optional", Value { kind: kind::BOOL, data })?())
    }

    /// The value of `key`, in two steps: what is returned waits, on any thread, until the server answers or `timeout` (rounded up to seconds) has passed;
    /// servers need not honour it.
    pub(crate) fn get_later(&mut self, of: Of, key: &str, timeout: Duration) -> Result<impl FnOnce() -> Option<Known> + Send + 'static, String> {
        let mut data = Data { words: [0; 3] };
        data.int32 = timeout.as_millis().div_ceil(1000).clamp(1, i32::MAX as u128) as i32;
        self.look(of, key, "pmix.timeout", Value { kind: kind::INT, data })
    }

    /// A look for `key` with one directive, whose value is no pointer.
    fn look(&self, of: Of, key: &str, directive: &'static str, with: Value) -> Result<impl FnOnce() -> Option<Known> + Send + use<>, String> {
        let key = key_text(key)?;
        let rank = match of {
            Of::Job => RANK_WILDCARD,
            Of::Rank(rank) => rank,
        };
        let (whose, get) = (Proc { rank, ..self.own }, self.get);
        // SAFETY: which member of the union is set is the library's business, as above; all of it is initialized.
        let (of_kind, words) = (with.kind, unsafe { with.data.words });
        Ok(move || {
            let directive = info(directive, Value { kind: of_kind, data: Data { words } });
            let mut value: *mut Value = std::ptr::null_mut();
            // SAFETY: process, key and directive are alive during the call, which may come from any thread; the library stores a pointer of its own.
            let status = unsafe { get(&whose, key.as_ptr(), &directive, 1, &mut value) };
            if status != SUCCESS || value.is_null() {
                return None;
            }
            // SAFETY: on success the value is ours, made with malloc, and its kind says which member of the union is set.
            unsafe {
                let known = read(&*value);
                release(value);
                known
            }
        })
    }

    pub(crate) fn finalize(&mut self) -> Result<(), String> {
        // SAFETY: no directives.
        self.checked("PMIx_Finalize", unsafe { (self.finalize)(std::ptr::null(), 0) })
    }

    /// Asks for the end of the job.
    pub(crate) fn abort(&mut self, code: i32, message: &str) {
        let message: String = message.chars().filter(|c| *c != '\0').collect();
        let message = CString::new(message).unwrap_or_default();
        // SAFETY: without a list of processes all of the job are meant.
        unsafe { (self.abort)(code, message.as_ptr(), std::ptr::null_mut(), 0) };
    }

    fn checked(&self, call: &str, status: c_int) -> Result<(), String> {
        checked(self.error_string, call, status)
    }
}

fn checked(error_string: ErrorString, call: &str, status: c_int) -> Result<(), String> {
    if status == SUCCESS {
        return Ok(());
    }
    // SAFETY: the library gives a string that lives as long as it does.
    let text = unsafe { error_string(status).as_ref().map(|text| CStr::from_ptr(text).to_string_lossy()) };
    Err(format!("{call} failed: {} ({status})", text.unwrap_or_default()))
}

/// Loads the library `file`, which stays loaded: it has threads.
///
/// Errors: why it cannot be loaded.
pub(crate) fn load(file: &str) -> Result<*mut c_void, String> {
    let name = CString::new(file).map_err(|_| format!("{file:?} is no name of a library"))?;
    // SAFETY: loading a library runs its constructors, which is what was asked for.
    let library = unsafe { libc::dlopen(name.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL) };
    if library.is_null() {
        // SAFETY: dlerror gives a string or nothing; it is copied at once.
        let why = unsafe { libc::dlerror().as_ref().map(|why| CStr::from_ptr(why).to_string_lossy().into_owned()) };
        return Err(why.unwrap_or_else(|| format!("{file} cannot be loaded")));
    }
    Ok(library)
}

fn key_text(key: &str) -> Result<CString, String> {
    if key.len() >= KEY_BYTES {
        return Err(format!("the key {key:?} is too long"));
    }
    CString::new(key).map_err(|_| format!("the key {key:?} holds a 0"))
}

fn info(key: &str, value: Value) -> Info {
    let mut info = Info { key: [0; KEY_BYTES], flags: 0, value };
    info.key[..key.len()].copy_from_slice(key.as_bytes());
    info
}

/// # Safety
/// `value` was filled in by the library.
unsafe fn read(value: &Value) -> Option<Known> {
    let data = &value.data;
    Some(match value.kind {
        kind::STRING if !data.string.is_null() => Known::Bytes(CStr::from_ptr(data.string).to_bytes().to_vec()),
        kind::BYTES if data.bytes.size == 0 => Known::Bytes(Vec::new()),
        kind::BYTES if !data.bytes.bytes.is_null() && data.bytes.size <= VALUE_BYTES_MAX => {
            Known::Bytes(std::slice::from_raw_parts(data.bytes.bytes.cast(), data.bytes.size).to_vec())
        }
        kind::SIZE | kind::UINT64 => Known::Number(data.uint64.try_into().ok()?),
        kind::INT | kind::INT32 => Known::Number(data.int32.into()),
        kind::INT64 => Known::Number(data.int64),
        kind::UINT | kind::UINT32 | kind::RANK => Known::Number(data.uint32.into()),
        kind::UINT16 => Known::Number(data.uint16.into()),
        _ => return None,
    })
}

/// # Safety
/// `value` was made by the library with malloc, and is not used again.
unsafe fn release(value: *mut Value) {
    // Kinds with deeper structure are not asked for; should one come, its inside stays.
    match (*value).kind {
        kind::STRING => libc::free((*value).data.string.cast()),
        kind::BYTES => libc::free((*value).data.bytes.bytes.cast()),
        _ => {}
    }
    libc::free(value.cast());
}

const _: () = assert!(size_of::<c_uint>() == 4);
