//! Caching: attribute keys and attributes of communicators, datatypes and windows (MPI-5.0 §7.7).
//!
//! Attributes lie in one table beside the objects: objects without any pay one load when they are copied or freed.
//! No lock is held while a callback of the program runs, so a callback may use attributes itself.

use crate::consts::*;
use crate::error::{Error, Result};
use crate::handle::*;
use engine::order::{Level, Ordered, OrderedGuard, before_callback};
use std::collections::BTreeMap;
use std::ffi::{c_int, c_void};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Keys that may exist at once, freed ones with attributes left included.
pub const KEYS_MAX: usize = 65_536;
/// Attributes that may exist at once, over all objects.
pub const ATTRIBUTES_MAX: usize = 1 << 20;
/// The first key that is given out: the ABI keeps smaller integers for itself (MPI-5.0 chapter 20).
const FIRST_KEY: i32 = 16_385;

/// What carries attributes: its kind and the value of its handle.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Object {
    Comm(Comm),
    Type(Datatype),
    Win(Win),
}

/// What copying an object does with an attribute.
#[derive(Debug, Clone, Copy)]
pub enum CopyFn {
    /// The copy has no such attribute.
    Null,
    /// The copy has the same value.
    Dup,
    Comm(CommCopyAttrFunction),
    Type(TypeCopyAttrFunction),
    Win(WinCopyAttrFunction),
}

/// What is called before an attribute goes.
#[derive(Debug, Clone, Copy)]
pub enum DeleteFn {
    Null,
    Comm(CommDeleteAttrFunction),
    Type(TypeDeleteAttrFunction),
    Win(WinDeleteAttrFunction),
}

/// The kind of object that a key is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    Comm,
    Type,
    Win,
}

impl Object {
    pub fn kind(self) -> Kind {
        match self {
            Object::Comm(_) => Kind::Comm,
            Object::Type(_) => Kind::Type,
            Object::Win(_) => Kind::Win,
        }
    }
}

/// Makes a key. `extra_state` is handed to the callbacks as it is.
///
/// # Errors
/// `MPI_ERR_OTHER` past [`KEYS_MAX`].
pub fn create_key(kind: Kind, copy: CopyFn, delete: DeleteFn, extra_state: usize) -> Result<i32> {
    let mut table = table();
    if table.keys.len() >= KEYS_MAX {
        return Err(Error::new(MPI_ERR_OTHER, format!("{KEYS_MAX} attribute keys exist already")));
    }
    let number = table.next_key;
    table.next_key = number.checked_add(1).ok_or_else(|| Error::new(MPI_ERR_OTHER, "there are no more attribute keys"))?;
    let key = Arc::new(Key { number, kind, copy, delete, extra_state });
    table.keys.insert(number, Entry { key, attributes: 0, freed: false });
    Ok(number)
}

/// Frees a key, which stays in use until the last attribute that has it goes: the program may delete those by it, and then
/// freeing it once more changes nothing (MPI-5.0 §7.7.2).
///
/// # Errors
/// `MPI_ERR_KEYVAL` when `key` is no key of this kind.
pub fn free_key(kind: Kind, key: i32) -> Result<()> {
    let mut table = table();
    table.key(kind, key)?;
    if let Some(entry) = table.keys.get_mut(&key) {
        entry.freed = true;
        if entry.attributes == 0 {
            table.keys.remove(&key);
        }
    }
    Ok(())
}

/// The value of an attribute.
///
/// # Errors
/// `MPI_ERR_KEYVAL` when `key` is no key for this object.
#[inline]
pub fn value(object: Object, key: i32) -> Result<Option<usize>> {
    let table = table();
    // An object has attributes of valid keys of its kind only.
    match table.here(object, key) {
        Some(found) => Ok(Some(found.value)),
        None => table.known(object.kind(), key).map(|()| None),
    }
}

/// Sets an attribute; an earlier value is deleted first, its callback included.
///
/// # Errors
/// `MPI_ERR_KEYVAL` as [`value`]; `MPI_ERR_OTHER` past [`ATTRIBUTES_MAX`]; the code of a delete callback that failed, and
/// then the old value stays.
#[inline]
pub fn set(object: Object, key: i32, value: usize) -> Result<()> {
    if let Some(old) = table().attributes.get_mut(&object).and_then(|list| list.iter_mut().find(|a| a.key.number == key))
        && matches!(old.key.delete, DeleteFn::Null)
    {
        // Nobody is called for the old value.
        old.value = value;
        return Ok(());
    }
    set_otherwise(object, key, value)
}

/// As [`set`], where the attribute is new or somebody is called for the old value.
#[inline(never)]
fn set_otherwise(object: Object, key: i32, value: usize) -> Result<()> {
    let (key, old) = {
        let table = table();
        (table.key(object.kind(), key)?.clone(), table.find(object, key))
    };
    match old {
        Some(old) => call_delete(object, &old)?,
        None if COUNT.load(Ordering::Relaxed) >= ATTRIBUTES_MAX => {
            return Err(Error::new(MPI_ERR_OTHER, format!("{ATTRIBUTES_MAX} attributes exist already")));
        }
        None => {}
    }
    table().put(object, Attribute { key, value });
    Ok(())
}

/// Deletes an attribute after its callback.
///
/// # Errors
/// `MPI_ERR_KEYVAL` when `key` is no key for this object, or the object has no such attribute; the code of a callback that
/// failed, and then the attribute stays.
pub fn delete(object: Object, key: i32) -> Result<()> {
    let old = {
        let table = table();
        table.key(object.kind(), key)?;
        table.find(object, key)
    };
    let old = old.ok_or_else(|| Error::new(MPI_ERR_KEYVAL, format!("the object has no attribute of key {key}")))?;
    call_delete(object, &old)?;
    table().take(object, key);
    Ok(())
}

/// Gives the copy of an object what the copy callbacks of the original's attributes say, in the order in which they were set.
///
/// # Errors
/// The code of a callback that failed; the attributes copied by then are deleted from the copy.
pub fn copy_all(from: Object, to: Object) -> Result<()> {
    for attribute in list(from) {
        match call_copy(from, &attribute) {
            Ok(Some(value)) => table().put(to, Attribute { key: attribute.key, value }),
            Ok(None) => {}
            Err(error) => {
                // The first failure is the one to report.
                let _ = delete_all(to);
                return Err(error);
            }
        }
    }
    Ok(())
}

/// Deletes every attribute of an object that is about to be freed, the latest first (MPI-5.0 §7.7.4). Call it for
/// `MPI_COMM_SELF` at the start of finalization (MPI-5.0 §11.2.4).
///
/// # Errors
/// The code of a callback that failed; that attribute and those set before it stay.
#[inline]
pub fn delete_all(object: Object) -> Result<()> {
    if COUNT.load(Ordering::Relaxed) == 0 { Ok(()) } else { delete_each(object) }
}

fn delete_each(object: Object) -> Result<()> {
    while let Some(latest) = list(object).pop() {
        call_delete(object, &latest)?;
        table().take(object, latest.key.number);
    }
    Ok(())
}

static TABLE: Ordered<Table> = Ordered::new(Level::Table, Table { keys: BTreeMap::new(), next_key: FIRST_KEY, attributes: BTreeMap::new() });
/// Attributes in the table, to be read without its lock.
static COUNT: AtomicUsize = AtomicUsize::new(0);

struct Table {
    /// Keys that are not freed, or that attributes still have.
    keys: BTreeMap<i32, Entry>,
    next_key: i32,
    /// In the order in which they were first set.
    attributes: BTreeMap<Object, Vec<Attribute>>,
}

struct Entry {
    key: Arc<Key>,
    /// How many attributes have it.
    attributes: usize,
    freed: bool,
}

#[derive(Debug)]
struct Key {
    number: i32,
    kind: Kind,
    copy: CopyFn,
    delete: DeleteFn,
    extra_state: usize,
}

#[derive(Debug, Clone)]
struct Attribute {
    key: Arc<Key>,
    value: usize,
}

impl Table {
    fn key(&self, kind: Kind, key: i32) -> Result<&Arc<Key>> {
        let found = self.keys.get(&key).map(|entry| &entry.key).filter(|found| found.kind == kind);
        found.ok_or_else(|| match key {
            MPI_KEYVAL_INVALID => Error::new(MPI_ERR_KEYVAL, "the attribute key is MPI_KEYVAL_INVALID"),
            _ => Error::new(MPI_ERR_KEYVAL, format!("{key} is not an attribute key of this kind of object that a program may change")),
        })
    }

    /// Whether `key` is one for objects of `kind`.
    #[inline(never)]
    fn known(&self, kind: Kind, key: i32) -> Result<()> {
        self.key(kind, key).map(|_| ())
    }

    #[inline]
    fn here(&self, object: Object, key: i32) -> Option<&Attribute> {
        self.attributes.get(&object)?.iter().find(|a| a.key.number == key)
    }

    fn find(&self, object: Object, key: i32) -> Option<Attribute> {
        self.here(object, key).cloned()
    }

    fn put(&mut self, object: Object, new: Attribute) {
        let list = self.attributes.entry(object).or_default();
        match list.iter_mut().find(|a| a.key.number == new.key.number) {
            Some(old) => *old = new,
            None => {
                // A callback may have freed the key and deleted its last attribute meanwhile.
                let entry = self.keys.entry(new.key.number);
                entry.or_insert_with(|| Entry { key: new.key.clone(), attributes: 0, freed: true }).attributes += 1;
                list.push(new);
                COUNT.fetch_add(1, Ordering::Relaxed);
            }
        }
    }

    fn take(&mut self, object: Object, key: i32) {
        let Some(list) = self.attributes.get_mut(&object) else { return };
        if let Some(at) = list.iter().position(|a| a.key.number == key) {
            list.remove(at);
            COUNT.fetch_sub(1, Ordering::Relaxed);
            if let Some(entry) = self.keys.get_mut(&key) {
                entry.attributes -= 1;
                if entry.freed && entry.attributes == 0 {
                    self.keys.remove(&key);
                }
            }
        }
        if list.is_empty() {
            self.attributes.remove(&object);
        }
    }
}

#[inline]
fn table() -> OrderedGuard<'static, Table> {
    TABLE.lock()
}

fn list(object: Object) -> Vec<Attribute> {
    if COUNT.load(Ordering::Relaxed) == 0 {
        return Vec::new();
    }
    table().attributes.get(&object).cloned().unwrap_or_default()
}

/// Asks the copy callback; gives the copy's value, or none when the copy has no such attribute.
fn call_copy(from: Object, attribute: &Attribute) -> Result<Option<usize>> {
    let (key, state) = (attribute.key.number, attribute.key.extra_state as *mut c_void);
    let old = attribute.value as *mut c_void;
    let mut new: *mut c_void = std::ptr::null_mut();
    let mut flag: c_int = 0;
    before_callback();
    let place = (&raw mut new).cast::<c_void>();
    // SAFETY: the program's callback, called with what MPI-5.0 §7.7.2 says; it writes a pointer and an int.
    let code = unsafe {
        match (attribute.key.copy, from) {
            (CopyFn::Null, _) => return Ok(None),
            (CopyFn::Dup, _) => return Ok(Some(attribute.value)),
            (CopyFn::Comm(copy), Object::Comm(comm)) => copy(comm, key, state, old, place, &mut flag),
            (CopyFn::Type(copy), Object::Type(datatype)) => copy(datatype, key, state, old, place, &mut flag),
            (CopyFn::Win(copy), Object::Win(win)) => copy(win, key, state, old, place, &mut flag),
            (copy, object) => return Err(Error::new(MPI_ERR_INTERN, format!("{copy:?} on {object:?}"))),
        }
    };
    check(code, "copy", key).map(|()| (flag != 0).then_some(new as usize))
}

fn call_delete(object: Object, attribute: &Attribute) -> Result<()> {
    let (key, state) = (attribute.key.number, attribute.key.extra_state as *mut c_void);
    let old = attribute.value as *mut c_void;
    before_callback();
    // SAFETY: the program's callback, called with what MPI-5.0 §7.7.2 says.
    let code = unsafe {
        match (attribute.key.delete, object) {
            (DeleteFn::Null, _) => return Ok(()),
            (DeleteFn::Comm(delete), Object::Comm(comm)) => delete(comm, key, old, state),
            (DeleteFn::Type(delete), Object::Type(datatype)) => delete(datatype, key, old, state),
            (DeleteFn::Win(delete), Object::Win(win)) => delete(win, key, old, state),
            (delete, object) => return Err(Error::new(MPI_ERR_INTERN, format!("{delete:?} on {object:?}"))),
        }
    };
    check(code, "delete", key)
}

/// A callback's own code is the code of the call that it fails.
fn check(code: c_int, what: &str, key: i32) -> Result<()> {
    match code {
        MPI_SUCCESS => Ok(()),
        _ => Err(Error::new(code, format!("the {what} callback of attribute key {key} gave {code}"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicI32;

    fn comm(n: usize) -> Object {
        Object::Comm(Comm(0x10_0000 + n))
    }

    unsafe extern "C" fn copy_plus_one(_: Comm, _: c_int, extra: *mut c_void, old: *mut c_void, new: *mut c_void, flag: *mut c_int) -> c_int {
        assert_eq!(extra as usize, 7);
        // SAFETY: the places are those that the library gives to a copy callback.
        unsafe {
            *new.cast::<usize>() = old as usize + 1;
            *flag = 1;
        }
        MPI_SUCCESS
    }

    unsafe extern "C" fn failing_copy(_: Comm, _: c_int, _: *mut c_void, _: *mut c_void, _: *mut c_void, _: *mut c_int) -> c_int {
        4321
    }

    /// Writes the order of deletions into the integer that `extra` points to.
    unsafe extern "C" fn note_deletion(_: Comm, _: c_int, value: *mut c_void, extra: *mut c_void) -> c_int {
        // SAFETY: the test's counter, which outlives the attribute.
        let order = unsafe { &*extra.cast::<AtomicI32>() };
        order.store(order.load(Ordering::Relaxed) * 10 + value as i32, Ordering::Relaxed);
        MPI_SUCCESS
    }

    unsafe extern "C" fn free_and_forget(object: Comm, key: c_int, _: *mut c_void, _: *mut c_void) -> c_int {
        free_key(Kind::Comm, key).unwrap();
        table().take(Object::Comm(object), key);
        MPI_SUCCESS
    }

    unsafe extern "C" fn refuse_deletion(_: Comm, _: c_int, _: *mut c_void, _: *mut c_void) -> c_int {
        1234
    }

    #[test]
    fn copies_ask_the_callbacks() {
        let (from, to) = (comm(1), comm(2));
        let keys = [CopyFn::Null, CopyFn::Dup, CopyFn::Comm(copy_plus_one)].map(|copy| create_key(Kind::Comm, copy, DeleteFn::Null, 7).unwrap());
        for key in keys {
            set(from, key, 40).unwrap();
        }
        copy_all(from, to).unwrap();
        assert_eq!(keys.map(|key| value(to, key).unwrap()), [None, Some(40), Some(41)]);
        let failing = create_key(Kind::Comm, CopyFn::Comm(failing_copy), DeleteFn::Null, 0).unwrap();
        set(from, failing, 1).unwrap();
        assert_eq!(copy_all(from, comm(3)).unwrap_err().class, 4321);
        assert_eq!(value(comm(3), keys[1]).unwrap(), None);
        for object in [from, to] {
            delete_all(object).unwrap();
        }
    }

    #[test]
    fn deletion_is_latest_first_and_outlives_the_key() {
        let object = comm(4);
        let order = AtomicI32::new(0);
        let keys = [1, 2, 3].map(|n| {
            let extra = &raw const order as usize;
            let key = create_key(Kind::Comm, CopyFn::Null, DeleteFn::Comm(note_deletion), extra).unwrap();
            set(object, key, n).unwrap();
            key
        });
        set(object, keys[0], 4).unwrap();
        assert_eq!(order.load(Ordering::Relaxed), 1);
        free_key(Kind::Comm, keys[1]).unwrap();
        assert_eq!(value(object, keys[1]).unwrap(), Some(2));
        delete(object, keys[2]).unwrap();
        delete_all(object).unwrap();
        assert_eq!(order.load(Ordering::Relaxed), 1324);
        assert_eq!(delete(object, keys[0]).unwrap_err().class, MPI_ERR_KEYVAL);
    }

    #[test]
    fn a_freed_key_lasts_as_long_as_its_attributes() {
        let key = create_key(Kind::Comm, CopyFn::Dup, DeleteFn::Null, 0).unwrap();
        set(comm(7), key, 5).unwrap();
        free_key(Kind::Comm, key).unwrap();
        free_key(Kind::Comm, key).unwrap();
        copy_all(comm(7), comm(8)).unwrap();
        set(comm(7), key, 6).unwrap();
        delete(comm(7), key).unwrap();
        assert_eq!((value(comm(7), key).unwrap(), value(comm(8), key).unwrap()), (None, Some(5)));
        delete(comm(8), key).unwrap();
        assert_eq!(value(comm(8), key).unwrap_err().class, MPI_ERR_KEYVAL);
        assert_eq!(free_key(Kind::Comm, key).unwrap_err().class, MPI_ERR_KEYVAL);
        // Also where a callback deletes the last attribute of a freed key while a new value takes its place.
        let key = create_key(Kind::Comm, CopyFn::Null, DeleteFn::Comm(free_and_forget), 0).unwrap();
        set(comm(9), key, 1).unwrap();
        set(comm(9), key, 2).unwrap();
        assert_eq!(value(comm(9), key).unwrap(), Some(2));
        table().take(comm(9), key);
        assert_eq!(value(comm(9), key).unwrap_err().class, MPI_ERR_KEYVAL);
    }

    #[test]
    fn a_refused_deletion_keeps_the_value() {
        let object = comm(5);
        let key = create_key(Kind::Comm, CopyFn::Null, DeleteFn::Comm(refuse_deletion), 0).unwrap();
        set(object, key, 1).unwrap();
        assert_eq!(set(object, key, 2).unwrap_err().class, 1234);
        assert_eq!(delete(object, key).unwrap_err().class, 1234);
        assert_eq!(value(object, key).unwrap(), Some(1));
    }

    #[test]
    fn keys_belong_to_a_kind_of_object() {
        let key = create_key(Kind::Type, CopyFn::Null, DeleteFn::Null, 0).unwrap();
        assert!(key > 16_384);
        for wrong in [key, MPI_KEYVAL_INVALID, MPI_TAG_UB, -1] {
            assert_eq!(set(comm(6), wrong, 1).unwrap_err().class, MPI_ERR_KEYVAL);
            assert_eq!(free_key(Kind::Comm, wrong).unwrap_err().class, MPI_ERR_KEYVAL);
        }
        set(Object::Type(Datatype(0x10_0000)), key, 1).unwrap();
        delete_all(Object::Type(Datatype(0x10_0000))).unwrap();
        free_key(Kind::Type, key).unwrap();
    }
}
