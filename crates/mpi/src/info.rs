//! The info object (MPI-5.0 chapter 10).
#![forbid(unsafe_code)]

use crate::consts::*;
use crate::error::{Error, Result};
use crate::handle::Info;
use crate::slots::Slots;
use engine::order::{Level, Ordered, OrderedGuard};
use smallvec::SmallVec;

/// Pairs that one info object may hold.
pub const PAIRS_MAX: usize = 4096;

/// The pairs of an info object, in the order in which their keys were first set.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Pairs {
    /// Most info objects have few, which need no list of their own.
    pairs: SmallVec<[Pair; 2]>,
}

/// A key and its value, one behind the other: one allocation for both.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Pair {
    key_bytes: usize,
    text: Box<[u8]>,
}

impl Pair {
    fn new(key: &[u8], value: &[u8]) -> Pair {
        let mut text = Vec::with_capacity(key.len() + value.len());
        text.extend_from_slice(key);
        text.extend_from_slice(value);
        Pair { key_bytes: key.len(), text: text.into_boxed_slice() }
    }

    #[inline]
    fn key(&self) -> &[u8] {
        &self.text[..self.key_bytes]
    }

    #[inline]
    fn value(&self) -> &[u8] {
        &self.text[self.key_bytes..]
    }
}

impl Pairs {
    #[inline]
    pub fn new() -> Pairs {
        Pairs { pairs: SmallVec::new() }
    }

    #[inline]
    fn place(&self, key: &[u8]) -> Option<usize> {
        self.pairs.iter().position(|pair| pair.key() == key)
    }

    /// Sets `key`, in place of an earlier value.
    ///
    /// # Errors
    /// `MPI_ERR_INFO_KEY` or `MPI_ERR_INFO_VALUE` when empty (the key) or longer than `MPI_MAX_INFO_KEY - 1` or
    /// `MPI_MAX_INFO_VAL - 1` bytes; `MPI_ERR_OTHER` past [`PAIRS_MAX`].
    pub fn set(&mut self, key: &[u8], value: &[u8]) -> Result<()> {
        check_key(key)?;
        if value.len() >= MPI_MAX_INFO_VAL {
            let (length, most) = (value.len(), MPI_MAX_INFO_VAL - 1);
            return Err(Error::new(MPI_ERR_INFO_VALUE, format!("the info value has {length} bytes, at most {most} fit")));
        }
        match self.place(key) {
            Some(at) => self.pairs[at] = Pair::new(key, value),
            None if self.pairs.len() == PAIRS_MAX => {
                return Err(Error::new(MPI_ERR_OTHER, format!("the info object holds {PAIRS_MAX} pairs already")));
            }
            None => self.pairs.push(Pair::new(key, value)),
        }
        Ok(())
    }

    /// The value of `key`.
    ///
    /// # Errors
    /// `MPI_ERR_INFO_KEY` as [`Pairs::set`].
    pub fn value(&self, key: &[u8]) -> Result<Option<&[u8]>> {
        check_key(key)?;
        Ok(self.place(key).map(|at| self.pairs[at].value()))
    }

    /// Removes `key`.
    ///
    /// # Errors
    /// `MPI_ERR_INFO_NOKEY` when it is not set, `MPI_ERR_INFO_KEY` as [`Pairs::set`].
    pub fn delete(&mut self, key: &[u8]) -> Result<()> {
        check_key(key)?;
        let at = self.place(key);
        let no_key = || Error::new(MPI_ERR_INFO_NOKEY, format!("the info object has no key {:?}", String::from_utf8_lossy(key)));
        self.pairs.remove(at.ok_or_else(no_key)?);
        Ok(())
    }

    /// Pairs held.
    pub fn len(&self) -> usize {
        self.pairs.len()
    }

    pub fn is_empty(&self) -> bool {
        self.pairs.is_empty()
    }

    /// Key number `n`, from 0.
    ///
    /// # Errors
    /// `MPI_ERR_ARG` when `n` is not below [`Pairs::len`].
    pub fn nth_key(&self, n: i32) -> Result<&[u8]> {
        let pair = usize::try_from(n).ok().and_then(|n| self.pairs.get(n));
        let outside = || Error::new(MPI_ERR_ARG, format!("key number {n} of an info object with {} keys", self.pairs.len()));
        pair.map(Pair::key).ok_or_else(outside)
    }

    /// Keys and values.
    pub fn iter(&self) -> impl Iterator<Item = (&[u8], &[u8])> {
        self.pairs.iter().map(|pair| (pair.key(), pair.value()))
    }
}

/// Makes an info object.
///
/// # Errors
/// `MPI_ERR_OTHER` when as many exist as [`crate::slots::SLOTS_MAX`].
pub fn create(pairs: Pairs) -> Result<Info> {
    objects().insert(pairs).map(Info).map_err(|_| Error::new(MPI_ERR_OTHER, "too many info objects exist"))
}

/// Reads an info object, `MPI_INFO_ENV` included.
///
/// # Errors
/// `MPI_ERR_INFO` when the handle is null or names none; what `read` gives.
pub fn read<R>(handle: Info, read: impl FnOnce(&Pairs) -> Result<R>) -> Result<R> {
    if handle == MPI_INFO_ENV {
        return read(&environment());
    }
    read(objects().get(handle.0).ok_or_else(|| not_an_info(handle))?)
}

/// Changes an info object.
///
/// # Errors
/// `MPI_ERR_INFO` when the handle is null, names none or is `MPI_INFO_ENV`, which cannot be changed; what `change` gives.
pub fn change<R>(handle: Info, change: impl FnOnce(&mut Pairs) -> Result<R>) -> Result<R> {
    change(objects().get_mut(handle.0).ok_or_else(|| not_an_info(handle))?)
}

/// The pairs of an argument that may be `MPI_INFO_NULL`, which is no pairs.
///
/// # Errors
/// `MPI_ERR_INFO` when the handle names no info object.
pub fn hints(handle: Info) -> Result<Pairs> {
    if handle == MPI_INFO_NULL { Ok(Pairs::new()) } else { read(handle, |pairs| Ok(pairs.clone())) }
}

/// Frees an info object.
///
/// # Errors
/// `MPI_ERR_INFO` as [`change`].
pub fn free(handle: Info) -> Result<()> {
    objects().remove(handle.0).map(drop).ok_or_else(|| not_an_info(handle))
}

/// The pairs of `MPI_INFO_ENV` (MPI-5.0 §11.2.1), the same before, during and after the World model: `command`, `argv`, `wdir`,
/// `arch`, `host`, `mpi_initial_errhandler`, `mpi_memory_alloc_kinds`, and `maxprocs` where a launcher gave it. No thread level can have been asked for before the program started.
pub fn environment() -> Pairs {
    let arguments: Vec<Vec<u8>> = std::env::args_os().map(std::ffi::OsString::into_encoded_bytes).collect();
    environment_with(&arguments)
}

/// As [`environment`], with the command and the arguments given (`MPI_Info_create_env`).
pub fn environment_with(arguments: &[Vec<u8>]) -> Pairs {
    let mut pairs = Pairs::new();
    // A value that does not fit is left out: a shortened path would be a wrong one.
    let mut add = |key: &str, value: &[u8]| pairs.set(key.as_bytes(), value).unwrap_or(());
    if let Some((command, rest)) = arguments.split_first() {
        add("command", command);
        if !rest.is_empty() {
            add("argv", &rest.join(&b' '));
        }
    }
    if let Ok(folder) = std::env::current_dir() {
        add("wdir", folder.as_os_str().as_encoded_bytes());
    }
    add("arch", std::env::consts::ARCH.as_bytes());
    if let Ok(host) = std::fs::read("/proc/sys/kernel/hostname") {
        add("host", host.trim_ascii());
    }
    if let Ok(name) = params::INITIAL_ERRHANDLER.value() {
        add("mpi_initial_errhandler", name.as_bytes());
    }
    add(crate::memory_kinds::MEMORY_KINDS, crate::memory_kinds::memory_kinds_of_world().as_bytes());
    // Those of `mpiexec` and of PMI.
    if let Some(ranks) = ["WHIMBREL_SIZE", "PMI_SIZE"].into_iter().find_map(std::env::var_os) {
        add("maxprocs", ranks.as_encoded_bytes());
    }
    pairs
}

static OBJECTS: Ordered<Slots<Pairs>> = Ordered::new(Level::Table, Slots::new());

fn objects() -> OrderedGuard<'static, Slots<Pairs>> {
    OBJECTS.lock()
}

fn check_key(key: &[u8]) -> Result<()> {
    match key.len() {
        0 => Err(Error::new(MPI_ERR_INFO_KEY, "the info key is empty")),
        length if length >= MPI_MAX_INFO_KEY => {
            let most = MPI_MAX_INFO_KEY - 1;
            Err(Error::new(MPI_ERR_INFO_KEY, format!("the info key has {length} bytes, at most {most} fit")))
        }
        _ => Ok(()),
    }
}

fn not_an_info(handle: Info) -> Box<Error> {
    match handle {
        MPI_INFO_NULL => Error::new(MPI_ERR_INFO, "the info object is MPI_INFO_NULL"),
        MPI_INFO_ENV => Error::new(MPI_ERR_INFO, "MPI_INFO_ENV cannot be changed or freed"),
        _ => Error::new(MPI_ERR_INFO, format!("{:#x} is not an info object", handle.0)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pairs_keep_their_order() {
        let mut pairs = Pairs::new();
        pairs.set(b"b", b"1").unwrap();
        pairs.set(b"a", b"2").unwrap();
        pairs.set(b"b", b"3").unwrap();
        assert_eq!(pairs.iter().collect::<Vec<_>>(), [(&b"b"[..], &b"3"[..]), (b"a", b"2")]);
        assert_eq!(pairs.nth_key(1).unwrap(), b"a");
        assert!(pairs.nth_key(2).is_err() && pairs.nth_key(-1).is_err());
        pairs.delete(b"b").unwrap();
        assert_eq!(pairs.delete(b"b").unwrap_err().class, MPI_ERR_INFO_NOKEY);
        assert_eq!((pairs.value(b"b").unwrap(), pairs.value(b"a").unwrap()), (None, Some(&b"2"[..])));
    }

    #[test]
    fn lengths_have_limits() {
        let mut pairs = Pairs::new();
        pairs.set(&[b'k'; MPI_MAX_INFO_KEY - 1], &[b'v'; MPI_MAX_INFO_VAL - 1]).unwrap();
        assert_eq!(pairs.set(&[b'k'; MPI_MAX_INFO_KEY], b"").unwrap_err().class, MPI_ERR_INFO_KEY);
        assert_eq!(pairs.set(b"", b"").unwrap_err().class, MPI_ERR_INFO_KEY);
        assert_eq!(pairs.set(b"k", &[b'v'; MPI_MAX_INFO_VAL]).unwrap_err().class, MPI_ERR_INFO_VALUE);
        for n in 1..PAIRS_MAX {
            pairs.set(n.to_string().as_bytes(), b"").unwrap();
        }
        assert_eq!(pairs.set(b"one more", b"").unwrap_err().class, MPI_ERR_OTHER);
        pairs.set(b"1", b"changed").unwrap();
    }

    #[test]
    fn predefined_handles() {
        assert!(!read(MPI_INFO_ENV, |pairs| Ok(pairs.value(b"command")?.unwrap().is_empty())).unwrap());
        for handle in [MPI_INFO_ENV, MPI_INFO_NULL, Info(0), Info(usize::MAX)] {
            assert_eq!(free(handle).unwrap_err().class, MPI_ERR_INFO);
            assert_eq!(change(handle, |_| Ok(())).unwrap_err().class, MPI_ERR_INFO);
        }
        assert!(hints(MPI_INFO_NULL).unwrap().is_empty());
        assert!(hints(Info(0)).is_err());
    }

    #[test]
    fn the_environment_has_the_arguments_given() {
        let pairs = environment_with(&[b"prog".to_vec(), b"-x".to_vec(), b"1".to_vec()]);
        assert_eq!(pairs.value(b"command").unwrap(), Some(&b"prog"[..]));
        assert_eq!(pairs.value(b"argv").unwrap(), Some(&b"-x 1"[..]));
    }
}
