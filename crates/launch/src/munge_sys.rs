//! `libmunge`, found when the program runs: two calls behind safe ones. All that touches its C is here.
//!
//! Types and numbers are those of `munge.h`, the same in all releases 0.5 that give `libmunge.so.2`.

use crate::pmix_sys::load;
use std::ffi::{CStr, CString, c_char, c_int, c_void};

const LIBRARY: &str = "libmunge.so.2";

const SUCCESS: c_int = 0;
/// The credential has been decoded on this host before; what was found in it is given all the same.
const REPLAYED: c_int = 17;

const OPTION_CIPHER: c_int = 0;
const OPTION_TTL: c_int = 4;
const OPTION_UID_RESTRICTION: c_int = 9;
const CIPHER_AES128: c_int = 4;
const TTL_LONGEST: c_int = -1;

/// Longest content that is taken from a credential, bytes.
const CONTENT_BYTES_MAX: usize = 4096;

type Context = *mut c_void;
type Create = unsafe extern "C" fn() -> Context;
type Destroy = unsafe extern "C" fn(Context);
/// `munge_ctx_set` takes a variable argument; all that are set here are of four bytes.
type Set = unsafe extern "C" fn(Context, c_int, ...) -> c_int;
type Encode = unsafe extern "C" fn(*mut *mut c_char, Context, *const c_void, c_int) -> c_int;
type Decode = unsafe extern "C" fn(*const c_char, Context, *mut *mut c_void, *mut c_int, *mut libc::uid_t, *mut libc::gid_t) -> c_int;
type ErrorString = unsafe extern "C" fn(c_int) -> *const c_char;

/// The library, loaded. It speaks to the daemon `munged` of this host at the daemon's usual place.
pub(crate) struct Munge {
    create: Create,
    destroy: Destroy,
    set: Set,
    encode: Encode,
    decode: Decode,
    error_string: ErrorString,
}

/// The user that this process acts for, as the daemon sees it.
pub(crate) fn user() -> u32 {
    rustix::process::geteuid().as_raw()
}

impl Munge {
    /// Loads the library. Its name is fixed, so that the environment names no code.
    ///
    /// Errors: words that say what is missing.
    pub(crate) fn open() -> Result<Munge, String> {
        let library = load(LIBRARY)?;
        let find = |name: &CStr| {
            // SAFETY: the library is loaded and the name ends with 0.
            let symbol = unsafe { libc::dlsym(library, name.as_ptr()) };
            if symbol.is_null() { Err(format!("{LIBRARY} has no {}", name.to_string_lossy())) } else { Ok(symbol) }
        };
        // SAFETY: the functions of these names have these types in munge.h.
        Ok(unsafe {
            Munge {
                create: std::mem::transmute::<*mut c_void, Create>(find(c"munge_ctx_create")?),
                destroy: std::mem::transmute::<*mut c_void, Destroy>(find(c"munge_ctx_destroy")?),
                set: std::mem::transmute::<*mut c_void, Set>(find(c"munge_ctx_set")?),
                encode: std::mem::transmute::<*mut c_void, Encode>(find(c"munge_encode")?),
                decode: std::mem::transmute::<*mut c_void, Decode>(find(c"munge_decode")?),
                error_string: std::mem::transmute::<*mut c_void, ErrorString>(find(c"munge_strerror")?),
            }
        })
    }

    /// A credential with `content`, encrypted, that only processes of `user` can decode, as long as the daemon lets credentials live (an hour).
    ///
    /// Errors: why there is none; most often that no daemon answers.
    pub(crate) fn encode(&self, content: &[u8], user: u32) -> Result<Vec<u8>, String> {
        let length = c_int::try_from(content.len()).map_err(|_| "too long for a credential".to_owned())?;
        // SAFETY: a context lives from here to its end below; options take an int, or a uid_t of the same width; the library reads `length` bytes and
        // stores a string of its own, made with malloc.
        unsafe {
            let context = (self.create)();
            if context.is_null() {
                return Err("no memory".to_owned());
            }
            let mut text: *mut c_char = std::ptr::null_mut();
            let mut code = (self.set)(context, OPTION_CIPHER, CIPHER_AES128);
            for (option, value) in [(OPTION_TTL, TTL_LONGEST), (OPTION_UID_RESTRICTION, user.cast_signed())] {
                if code == SUCCESS {
                    code = (self.set)(context, option, value);
                }
            }
            if code == SUCCESS {
                code = (self.encode)(&mut text, context, content.as_ptr().cast(), length);
            }
            (self.destroy)(context);
            let credential = (!text.is_null()).then(|| CStr::from_ptr(text).to_bytes().to_vec());
            libc::free(text.cast());
            credential.filter(|_| code == SUCCESS).ok_or_else(|| self.reason(code))
        }
    }

    /// What a credential holds, and the user whose process has made it. Several ranks of a host decode the same one.
    ///
    /// Errors: the daemon's reason: damaged, expired, for another user, made with another key than this host's; or that no daemon answers.
    pub(crate) fn decode(&self, credential: &[u8]) -> Result<(Vec<u8>, u32), String> {
        let text = CString::new(credential).map_err(|_| "a 0 in it".to_owned())?;
        let (mut content, mut length, mut user, mut group) = (std::ptr::null_mut(), 0, u32::MAX, u32::MAX);
        // SAFETY: the text ends with 0; without a context the library uses its defaults; it stores a buffer of its own, made with malloc, and its length.
        unsafe {
            let code = (self.decode)(text.as_ptr(), std::ptr::null_mut(), &mut content, &mut length, &mut user, &mut group);
            let bytes = usize::try_from(length).unwrap_or(0);
            let mut found = None;
            if !content.is_null() {
                if bytes <= CONTENT_BYTES_MAX {
                    found = Some(std::slice::from_raw_parts(content.cast::<u8>(), bytes).to_vec());
                }
                std::ptr::write_bytes(content.cast::<u8>(), 0, bytes);
                libc::free(content);
            }
            match found {
                Some(found) if code == SUCCESS || code == REPLAYED => Ok((found, user)),
                _ => Err(self.reason(code)),
            }
        }
    }

    fn reason(&self, code: c_int) -> String {
        // SAFETY: the library gives a string that lives as long as it does.
        let text = unsafe { (self.error_string)(code).as_ref().map(|text| CStr::from_ptr(text).to_string_lossy()) };
        format!("{} (munge error {code})", text.unwrap_or_default())
    }
}
