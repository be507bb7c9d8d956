//! Error classes, codes and strings (MPI-5.0 §9.4, §9.5), and error handlers (§9.3).
//!
//! A call returns the class of its error as code. What else is known, the argument and its value, is remembered for the
//! calling thread, and `MPI_Error_string` of that code adds it.
#![forbid(unsafe_code)]

use crate::consts::*;
use crate::error::{Error, Result};
use crate::handle::{CommErrhandlerFunction, Errhandler, FileErrhandlerFunction, SessionErrhandlerFunction, WinErrhandlerFunction};
use crate::slots::Slots;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard};

/// User classes and codes that may exist at once.
pub const USER_CODES_MAX: usize = 65_536;

/// What happens when an error is raised on an object (MPI-5.0 §9.3).
#[derive(Debug, Clone, Copy)]
pub enum Handler {
    /// Ends every connected process.
    Fatal,
    /// Ends the processes of the object's communicator.
    Abort,
    /// Gives the code to the caller.
    Return,
    Comm(CommErrhandlerFunction),
    Win(WinErrhandlerFunction),
    File(FileErrhandlerFunction),
    Session(SessionErrhandlerFunction),
}

/// Makes an error handler object with one reference.
///
/// # Errors
/// `MPI_ERR_OTHER` when as many exist as [`crate::slots::SLOTS_MAX`].
pub fn create_handler(handler: Handler) -> Result<Errhandler> {
    let counted = Counted { handler, references: 1 };
    let inserted = handlers().insert(counted);
    inserted.map(Errhandler).map_err(|_| Error::new(MPI_ERR_OTHER, "too many error handlers exist"))
}

/// The handler behind a handle, predefined or created.
///
/// # Errors
/// `MPI_ERR_ERRHANDLER` when the handle is null or names no error handler.
pub fn handler(handle: Errhandler) -> Result<Handler> {
    match handle {
        MPI_ERRORS_ARE_FATAL => Ok(Handler::Fatal),
        MPI_ERRORS_ABORT => Ok(Handler::Abort),
        MPI_ERRORS_RETURN => Ok(Handler::Return),
        _ => handlers().get(handle.0).map(|counted| counted.handler).ok_or_else(|| not_a_handler(handle)),
    }
}

/// Adds a reference: an object that the handler is attached to, or a handle given out by `MPI_*_get_errhandler`.
///
/// # Errors
/// As [`handler`].
pub fn retain_handler(handle: Errhandler) -> Result<Handler> {
    if let Some(counted) = handlers().get_mut(handle.0) {
        counted.references += 1;
        return Ok(counted.handler);
    }
    handler(handle)
}

/// Drops a reference; the last one frees the handler. Predefined handlers stay.
///
/// # Errors
/// As [`handler`].
pub fn release_handler(handle: Errhandler) -> Result<()> {
    handler(handle)?;
    let mut handlers = handlers();
    if let Some(counted) = handlers.get_mut(handle.0) {
        counted.references -= 1;
        if counted.references == 0 {
            handlers.remove(handle.0);
        }
    }
    Ok(())
}

/// Adds an error class and gives its value, the same in every process that adds in the same order.
///
/// # Errors
/// `MPI_ERR_OTHER` past [`USER_CODES_MAX`].
pub fn add_class() -> Result<i32> {
    registry().add(None)
}

/// Adds an error code to a class, predefined or added.
///
/// # Errors
/// `MPI_ERR_ARG` when `class` is no class, `MPI_ERR_OTHER` past [`USER_CODES_MAX`].
pub fn add_code(class: i32) -> Result<i32> {
    let mut registry = registry();
    let is_class = predefined(class).is_some() || registry.codes.get(&class).is_some_and(|code| code.class.is_none());
    if !is_class {
        return Err(Error::new(MPI_ERR_ARG, format!("{class} is not an error class")));
    }
    registry.add(Some(class))
}

/// Gives an added class or code its string, in place of an earlier one.
///
/// # Errors
/// `MPI_ERR_ARG` when `code` was not added, or `text` has more than `MPI_MAX_ERROR_STRING - 1` bytes.
pub fn add_string(code: i32, text: &[u8]) -> Result<()> {
    if text.len() >= MPI_MAX_ERROR_STRING {
        let length = text.len();
        return Err(Error::new(MPI_ERR_ARG, format!("the error string has {length} bytes, at most {} fit", MPI_MAX_ERROR_STRING - 1)));
    }
    registry().added(code)?.text = Some(text.to_vec());
    Ok(())
}

/// Removes an added class.
///
/// # Errors
/// `MPI_ERR_ARG` when `class` was not added by [`add_class`]; `MPI_ERR_OTHER` while it has codes or a string.
pub fn remove_class(class: i32) -> Result<()> {
    let mut registry = registry();
    if registry.added(class)?.class.is_some() {
        return Err(Error::new(MPI_ERR_ARG, format!("{class} is an error code, not a class")));
    }
    if registry.codes.values().any(|code| code.class == Some(class)) {
        return Err(Error::new(MPI_ERR_OTHER, format!("error class {class} still has error codes")));
    }
    registry.remove(class)
}

/// Removes an added code.
///
/// # Errors
/// `MPI_ERR_ARG` when `code` was not added by [`add_code`]; `MPI_ERR_OTHER` while it has a string.
pub fn remove_code(code: i32) -> Result<()> {
    let mut registry = registry();
    if registry.added(code)?.class.is_none() {
        return Err(Error::new(MPI_ERR_ARG, format!("{code} is an error class, not a code")));
    }
    registry.remove(code)
}

/// Removes the string of an added class or code.
///
/// # Errors
/// `MPI_ERR_ARG` when there is no such code or it has no string.
pub fn remove_string(code: i32) -> Result<()> {
    let text = registry().added(code)?.text.take();
    text.map(drop).ok_or_else(|| Error::new(MPI_ERR_ARG, format!("error code {code} has no string")))
}

/// The class of a code; a class is its own.
///
/// # Errors
/// `MPI_ERR_ARG` when `code` is none.
#[inline]
pub fn class_of(code: i32) -> Result<i32> {
    if at_its_place(code) { Ok(code) } else { class_otherwise(code) }
}

fn class_otherwise(code: i32) -> Result<i32> {
    if ERROR_CLASSES.iter().any(|(class, _)| *class == code) {
        return Ok(code);
    }
    Ok(registry().added(code)?.class.unwrap_or(code))
}

/// The string of a class or code as `MPI_Error_string` gives it, at most `MPI_MAX_ERROR_STRING - 1` bytes. When the latest
/// error of this thread had this code, its details follow.
///
/// # Errors
/// `MPI_ERR_ARG` when `code` is none.
pub fn string(code: i32) -> Result<Vec<u8>> {
    let mut text = match predefined(code) {
        Some(text) => {
            let mut text = text.into_bytes();
            LATEST.with_borrow(|latest| {
                if let Some((_, detail)) = latest.as_ref().filter(|(latest, _)| *latest == code) {
                    text.extend_from_slice(b": ");
                    text.extend_from_slice(detail.as_bytes());
                }
            });
            text
        }
        None => registry().added(code)?.text.clone().unwrap_or_default(),
    };
    if text.len() >= MPI_MAX_ERROR_STRING {
        // Cut between characters.
        let end = (0..MPI_MAX_ERROR_STRING).rev().find(|&at| text[at] & 0xc0 != 0x80).unwrap_or(0);
        text.truncate(end);
    }
    Ok(text)
}

/// The message of a class or code without the details of one error; never fails.
pub fn message(code: i32) -> String {
    if let Some(text) = predefined(code) {
        return text;
    }
    match registry().codes.get(&code) {
        Some(code) if code.text.is_some() => String::from_utf8_lossy(code.text.as_deref().unwrap_or_default()).into_owned(),
        Some(_) => format!("error code {code} of the program"),
        None => format!("unknown error code {code}"),
    }
}

/// The value of the attribute `MPI_LASTUSEDCODE`: the largest class or code so far, at least `MPI_ERR_LASTCODE`.
pub fn last_used_code() -> i32 {
    registry().last_used
}

/// Remembers the latest error of this thread, whose details [`string`] adds.
pub fn remember(code: i32, detail: &str) {
    LATEST.with_borrow_mut(|latest| *latest = Some((code, detail.to_string())));
}

thread_local! {
    static LATEST: RefCell<Option<(i32, String)>> = const { RefCell::new(None) };
}

static HANDLERS: Mutex<Slots<Counted>> = Mutex::new(Slots::new());
static REGISTRY: Mutex<Registry> = Mutex::new(Registry { codes: BTreeMap::new(), last_used: MPI_ERR_LASTCODE });

struct Counted {
    handler: Handler,
    references: usize,
}

/// What the program has added.
struct Registry {
    codes: BTreeMap<i32, Code>,
    last_used: i32,
}

struct Code {
    /// `None` for a class.
    class: Option<i32>,
    text: Option<Vec<u8>>,
}

impl Registry {
    /// Values are never used twice, so that a removed code stays unknown.
    fn add(&mut self, class: Option<i32>) -> Result<i32> {
        let value = self.last_used.checked_add(1).filter(|_| self.codes.len() < USER_CODES_MAX);
        let value = value.ok_or_else(|| Error::new(MPI_ERR_OTHER, format!("{USER_CODES_MAX} error classes and codes exist already")))?;
        self.codes.insert(value, Code { class, text: None });
        self.last_used = value;
        Ok(value)
    }

    fn added(&mut self, code: i32) -> Result<&mut Code> {
        self.codes.get_mut(&code).ok_or_else(|| match predefined(code) {
            Some(_) => Error::new(MPI_ERR_ARG, format!("error code {code} is predefined")),
            None => Error::new(MPI_ERR_ARG, format!("{code} is not an error code")),
        })
    }

    fn remove(&mut self, code: i32) -> Result<()> {
        if self.added(code)?.text.is_some() {
            return Err(Error::new(MPI_ERR_OTHER, format!("error code {code} still has an error string")));
        }
        self.codes.remove(&code);
        Ok(())
    }
}

fn handlers() -> MutexGuard<'static, Slots<Counted>> {
    HANDLERS.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
}

fn registry() -> MutexGuard<'static, Registry> {
    REGISTRY.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
}

fn not_a_handler(handle: Errhandler) -> Box<Error> {
    match handle {
        MPI_ERRHANDLER_NULL => Error::new(MPI_ERR_ERRHANDLER, "the error handler is MPI_ERRHANDLER_NULL"),
        _ => Error::new(MPI_ERR_ERRHANDLER, format!("{:#x} is not an error handler", handle.0)),
    }
}

/// Whether `code` is a predefined class that stands where its number says, as nearly all do.
#[inline]
fn at_its_place(code: i32) -> bool {
    usize::try_from(code).ok().and_then(|at| ERROR_CLASSES.get(at)).is_some_and(|(class, _)| *class == code)
}

/// Name and meaning of a predefined class.
fn predefined(code: i32) -> Option<String> {
    let (_, name) = ERROR_CLASSES.iter().find(|(class, _)| *class == code)?;
    let meaning = MEANINGS.iter().find(|(class, _)| *class == code).map_or("", |(_, meaning)| meaning);
    Some(format!("{name}: {meaning}"))
}

const MEANINGS: [(i32, &str); ERROR_CLASSES.len()] = [
    (MPI_SUCCESS, "no error"),
    (MPI_ERR_BUFFER, "invalid buffer pointer"),
    (MPI_ERR_COUNT, "invalid count"),
    (MPI_ERR_TYPE, "invalid datatype"),
    (MPI_ERR_TAG, "invalid tag"),
    (MPI_ERR_COMM, "invalid communicator"),
    (MPI_ERR_RANK, "invalid rank"),
    (MPI_ERR_REQUEST, "invalid request"),
    (MPI_ERR_ROOT, "invalid root"),
    (MPI_ERR_GROUP, "invalid group"),
    (MPI_ERR_OP, "invalid reduction operation"),
    (MPI_ERR_TOPOLOGY, "invalid topology"),
    (MPI_ERR_DIMS, "invalid dimensions"),
    (MPI_ERR_ARG, "invalid argument"),
    (MPI_ERR_UNKNOWN, "unknown error"),
    (MPI_ERR_TRUNCATE, "the message is longer than the receive buffer"),
    (MPI_ERR_OTHER, "other error"),
    (MPI_ERR_INTERN, "internal error of the library"),
    (MPI_ERR_PENDING, "the request is neither completed nor failed"),
    (MPI_ERR_IN_STATUS, "the error code is in the status"),
    (MPI_ERR_ACCESS, "permission denied"),
    (MPI_ERR_AMODE, "invalid access mode of a file"),
    (MPI_ERR_ASSERT, "invalid assertion"),
    (MPI_ERR_BAD_FILE, "invalid file name"),
    (MPI_ERR_BASE, "invalid base address"),
    (MPI_ERR_CONVERSION, "a data conversion function failed"),
    (MPI_ERR_DISP, "invalid displacement"),
    (MPI_ERR_DUP_DATAREP, "the data representation is already defined"),
    (MPI_ERR_FILE_EXISTS, "the file exists"),
    (MPI_ERR_FILE_IN_USE, "the file is open"),
    (MPI_ERR_FILE, "invalid file handle"),
    (MPI_ERR_INFO_KEY, "invalid info key"),
    (MPI_ERR_INFO_NOKEY, "no such info key"),
    (MPI_ERR_INFO_VALUE, "invalid info value"),
    (MPI_ERR_INFO, "invalid info object"),
    (MPI_ERR_IO, "input or output failed"),
    (MPI_ERR_KEYVAL, "invalid attribute key"),
    (MPI_ERR_LOCKTYPE, "invalid lock type"),
    (MPI_ERR_NAME, "no such service name"),
    (MPI_ERR_NO_MEM, "not enough memory"),
    (MPI_ERR_NOT_SAME, "a collective argument differs between processes"),
    (MPI_ERR_NO_SPACE, "no space left"),
    (MPI_ERR_NO_SUCH_FILE, "no such file"),
    (MPI_ERR_PORT, "invalid port name"),
    (MPI_ERR_QUOTA, "quota exceeded"),
    (MPI_ERR_READ_ONLY, "read-only file or file system"),
    (MPI_ERR_RMA_ATTACH, "memory cannot be attached"),
    (MPI_ERR_RMA_CONFLICT, "conflicting accesses to a window"),
    (MPI_ERR_RMA_RANGE, "target memory outside of the window"),
    (MPI_ERR_RMA_SHARED, "memory cannot be shared"),
    (MPI_ERR_RMA_SYNC, "wrong synchronization of one-sided calls"),
    (MPI_ERR_SERVICE, "invalid service name"),
    (MPI_ERR_SIZE, "invalid size"),
    (MPI_ERR_SPAWN, "processes could not be started"),
    (MPI_ERR_UNSUPPORTED_DATAREP, "unsupported data representation"),
    (MPI_ERR_UNSUPPORTED_OPERATION, "unsupported operation"),
    (MPI_ERR_WIN, "invalid window"),
    (MPI_ERR_RMA_FLAVOR, "wrong flavor of window"),
    (MPI_ERR_PROC_ABORTED, "a peer process has aborted"),
    (MPI_ERR_VALUE_TOO_LARGE, "a value does not fit its result"),
    (MPI_ERR_SESSION, "invalid session"),
    (MPI_ERR_ERRHANDLER, "invalid error handler"),
    (MPI_ERR_ABI, "the ABI's Fortran properties are already set"),
    (MPI_T_ERR_CANNOT_INIT, "the tool interface cannot be initialized"),
    (MPI_T_ERR_NOT_ACCESSIBLE, "not accessible now"),
    (MPI_T_ERR_NOT_INITIALIZED, "the tool interface is not initialized"),
    (MPI_T_ERR_NOT_SUPPORTED, "not supported by the tool interface"),
    (MPI_T_ERR_MEMORY, "not enough memory for the tool interface"),
    (MPI_T_ERR_INVALID, "invalid argument to the tool interface"),
    (MPI_T_ERR_INVALID_INDEX, "invalid index"),
    (MPI_T_ERR_INVALID_ITEM, "invalid item index"),
    (MPI_T_ERR_INVALID_SESSION, "invalid tool session"),
    (MPI_T_ERR_INVALID_HANDLE, "invalid tool handle"),
    (MPI_T_ERR_INVALID_NAME, "invalid name"),
    (MPI_T_ERR_OUT_OF_HANDLES, "no more tool handles"),
    (MPI_T_ERR_OUT_OF_SESSIONS, "no more tool sessions"),
    (MPI_T_ERR_CVAR_SET_NOT_NOW, "the control variable cannot be set now"),
    (MPI_T_ERR_CVAR_SET_NEVER, "the control variable can never be set"),
    (MPI_T_ERR_PVAR_NO_WRITE, "the performance variable cannot be written"),
    (MPI_T_ERR_PVAR_NO_STARTSTOP, "the performance variable cannot be started or stopped"),
    (MPI_T_ERR_PVAR_NO_ATOMIC, "the performance variable cannot be read and reset at once"),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_class_has_its_meaning() {
        for ((class, name), (other, meaning)) in ERROR_CLASSES.iter().zip(MEANINGS) {
            assert_eq!(*class, other, "{name}");
            assert!(!meaning.is_empty());
            assert_eq!(class_of(*class).unwrap(), *class);
            assert_eq!(string(*class).unwrap(), format!("{name}: {meaning}").into_bytes());
        }
    }

    #[test]
    fn classes_and_codes_of_the_program() {
        let class = add_class().unwrap();
        let code = add_code(class).unwrap();
        assert!(MPI_ERR_LASTCODE < class && class < code && code <= last_used_code());
        assert_eq!((class_of(class).unwrap(), class_of(code).unwrap()), (class, class));
        assert_eq!(string(code).unwrap(), b"");
        add_string(code, b"out of cheese").unwrap();
        assert_eq!(string(code).unwrap(), b"out of cheese");
        assert_eq!(remove_class(class).unwrap_err().class, MPI_ERR_OTHER);
        assert_eq!(remove_code(code).unwrap_err().class, MPI_ERR_OTHER);
        remove_string(code).unwrap();
        assert!(remove_class(code).is_err() && remove_code(class).is_err());
        remove_code(code).unwrap();
        remove_class(class).unwrap();
        for gone in [class, code] {
            assert!(class_of(gone).is_err() && add_code(gone).is_err() && string(gone).is_err());
        }
        assert_eq!(class_of(add_code(MPI_ERR_TAG).unwrap()).unwrap(), MPI_ERR_TAG);
    }

    #[test]
    fn predefined_and_unknown_codes_cannot_be_changed() {
        for code in [MPI_SUCCESS, MPI_ERR_TAG, MPI_ERR_LASTCODE, -1, i32::MAX] {
            assert_eq!(add_string(code, b"x").unwrap_err().class, MPI_ERR_ARG);
            assert!(remove_class(code).is_err() && remove_code(code).is_err() && remove_string(code).is_err());
        }
        assert!(add_string(add_class().unwrap(), &[b'x'; MPI_MAX_ERROR_STRING]).is_err());
    }

    #[test]
    fn details_belong_to_the_latest_error_and_are_cut_between_characters() {
        remember(MPI_ERR_RANK, "MPI_Send: destination 7 is not in 0..4");
        assert_eq!(string(MPI_ERR_RANK).unwrap(), b"MPI_ERR_RANK: invalid rank: MPI_Send: destination 7 is not in 0..4");
        assert_eq!(string(MPI_ERR_TAG).unwrap(), b"MPI_ERR_TAG: invalid tag");
        for shift in 0..4 {
            remember(MPI_ERR_TAG, &("x".repeat(shift) + &"ü".repeat(400)));
            let text = string(MPI_ERR_TAG).unwrap();
            assert!(text.len() < MPI_MAX_ERROR_STRING && text.len() > MPI_MAX_ERROR_STRING - 4);
            assert!(String::from_utf8(text).is_ok());
        }
        std::thread::spawn(|| assert_eq!(string(MPI_ERR_RANK).unwrap(), b"MPI_ERR_RANK: invalid rank")).join().unwrap();
    }

    #[test]
    fn a_handler_lives_until_its_last_reference_goes() {
        let handle = create_handler(Handler::Return).unwrap();
        retain_handler(handle).unwrap();
        release_handler(handle).unwrap();
        assert!(handler(handle).is_ok());
        release_handler(handle).unwrap();
        assert_eq!(handler(handle).unwrap_err().class, MPI_ERR_ERRHANDLER);
        assert!(release_handler(handle).is_err() && release_handler(MPI_ERRHANDLER_NULL).is_err());
        for _ in 0..3 {
            release_handler(MPI_ERRORS_RETURN).unwrap();
        }
        assert!(matches!(retain_handler(MPI_ERRORS_RETURN), Ok(Handler::Return)));
    }
}
