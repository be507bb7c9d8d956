//! Objects behind handles: looked up without a lock, since every call does it.
//!
//! A handle is 31 bits, so that its integer is its value: bit 30, then 8 bits of generation, then 22 bits of index. A handle that
//! has been freed is found out until its place has been used 256 times more.

use crate::spare::{Spare, empty, sole};
use engine::order::{Level, Ordered};
use std::mem::ManuallyDrop;
use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::{AtomicPtr, AtomicU32, Ordering};

const INDEX_BITS: u32 = 22;
const GENERATIONS: u32 = 1 << 8;
const MARK: usize = 1 << 30;
const CHUNK: usize = 256;
const CHUNKS: usize = (1 << INDEX_BITS) / CHUNK;

struct Place<T> {
    object: AtomicPtr<T>,
    generation: AtomicU32,
}

/// Objects of one kind, of which no `Weak` is made. At most 2^22 at once.
pub struct Table<T: 'static> {
    chunks: [AtomicPtr<Place<T>>; CHUNKS],
    grown: Ordered<Grown<T>>,
}

struct Grown<T> {
    free: Vec<u32>,
    used: u32,
    spare: Spare<T>,
    /// The share of the handle that was freed last of those whose object others share: programs ask for such a handle and free it in turn, and counting
    /// costs more than all the rest.
    latest: Option<Arc<T>>,
}

impl<T: Send + Sync> Table<T> {
    #[allow(clippy::new_without_default)]
    pub const fn new() -> Table<T> {
        let grown = Grown { free: Vec::new(), used: 0, spare: Spare::new(), latest: None };
        Table { chunks: [const { AtomicPtr::new(std::ptr::null_mut()) }; CHUNKS], grown: Ordered::new(Level::Table, grown) }
    }

    /// Puts an object in; gives its handle, or `None` when the table is full.
    #[inline]
    pub fn insert(&self, object: T) -> Option<usize> {
        self.insert_made(|| object)
    }

    /// As [`Table::insert`], of an object that is made in its place, with the table's lock held.
    #[inline(always)]
    pub fn insert_made(&self, make: impl FnOnce() -> T) -> Option<usize> {
        let mut grown = self.grown.lock();
        let object = grown.spare.place(make);
        let inserted = self.insert_in(&mut grown, object);
        // An object that found no place goes without the lock.
        drop(grown);
        inserted.ok()
    }

    /// As [`Table::insert`], for an object that others share.
    pub fn insert_shared(&self, object: Arc<T>) -> Option<usize> {
        let inserted = self.insert_in(&mut self.grown.lock(), object);
        inserted.ok()
    }

    /// As [`Table::insert_shared`], for an object that others keep.
    pub fn insert_share_of(&self, object: &Arc<T>) -> Option<usize> {
        let mut grown = self.grown.lock();
        let share = grown.latest.take_if(|latest| Arc::ptr_eq(latest, object)).unwrap_or_else(|| object.clone());
        self.insert_in(&mut grown, share).ok()
    }

    #[inline]
    fn insert_in(&self, grown: &mut Grown<T>, object: Arc<T>) -> Result<usize, Arc<T>> {
        let Some(index) = grown.free.pop().or_else(|| self.grow(grown)) else { return Err(object) };
        let place = self.place(index as usize).expect("its chunk has been made");
        place.object.store(Arc::into_raw(object).cast_mut(), Ordering::Release);
        let generation = place.generation.load(Ordering::Relaxed);
        Ok(MARK | (generation as usize) << INDEX_BITS | index as usize)
    }

    /// A place that has not been used, if there is one.
    #[cold]
    fn grow(&self, grown: &mut Grown<T>) -> Option<u32> {
        let index = grown.used;
        if index as usize == CHUNK * CHUNKS {
            return None;
        }
        if (index as usize).is_multiple_of(CHUNK) {
            let places: Box<[Place<T>]> = (0..CHUNK).map(|_| Place { object: AtomicPtr::new(std::ptr::null_mut()), generation: AtomicU32::new(0) }).collect();
            self.chunks[index as usize / CHUNK].store(Box::leak(places).as_mut_ptr(), Ordering::Release);
        }
        grown.used += 1;
        Some(index)
    }

    #[inline]
    fn place(&self, index: usize) -> Option<&Place<T>> {
        let chunk = self.chunks[index / CHUNK].load(Ordering::Acquire);
        if chunk.is_null() {
            return None;
        }
        // SAFETY: a chunk has CHUNK places and is never freed.
        Some(unsafe { &*chunk.add(index % CHUNK) })
    }

    #[inline]
    fn find(&self, handle: usize) -> Option<(&Place<T>, *mut T)> {
        if handle & !(2 * MARK - 1) != 0 || handle & MARK == 0 {
            return None;
        }
        let place = self.place(handle & ((1 << INDEX_BITS) - 1))?;
        if place.generation.load(Ordering::Relaxed) as usize != (handle >> INDEX_BITS) & (GENERATIONS as usize - 1) {
            return None;
        }
        let object = place.object.load(Ordering::Acquire);
        (!object.is_null()).then_some((place, object))
    }

    /// The object of a handle; `None` for handles that are not, or no longer, in use.
    ///
    /// # Safety
    /// No other thread may free the handle while the reference is used: MPI leaves that race to the program.
    #[inline]
    pub unsafe fn get(&self, handle: usize) -> Option<&'static T> {
        // SAFETY: the table holds a count of the object until the handle is freed.
        self.find(handle).map(|(_, object)| unsafe { &*object })
    }

    /// A share of the object of a handle.
    pub fn share(&self, handle: usize) -> Option<Arc<T>> {
        let _grown = self.grown.lock();
        let (_, object) = self.find(handle)?;
        // SAFETY: from `Arc::into_raw`, and the table holds a count; the lock keeps `remove` away.
        unsafe {
            Arc::increment_strong_count(object);
            Some(Arc::from_raw(object))
        }
    }

    /// Puts another object in the place of one; gives the old one, or the new one back when the handle is not in use.
    pub fn replace(&self, handle: usize, object: Arc<T>) -> Arc<T> {
        let _grown = self.grown.lock();
        let Some((place, old)) = self.find(handle) else { return object };
        place.object.store(Arc::into_raw(object).cast_mut(), Ordering::Release);
        // SAFETY: the table's own count.
        unsafe { Arc::from_raw(old) }
    }

    /// Takes the object out; its handle is no longer valid.
    #[inline]
    pub fn remove(&self, handle: usize) -> Option<Removed<'_, T>> {
        let object = self.take_out(&mut self.grown.lock(), handle)?;
        Some(Removed { object: ManuallyDrop::new(object), table: self })
    }

    /// As [`Table::remove`], of a handle whose object others may share, and of which nothing is asked any more; gives whether the handle was in use.
    #[inline]
    pub fn release(&self, handle: usize) -> bool {
        let mut grown = self.grown.lock();
        let Some(object) = self.take_out(&mut grown, handle) else { return false };
        let before = match Arc::strong_count(&object) {
            1 => Some(object),
            _ => grown.latest.replace(object),
        };
        // What ends here goes without the lock.
        drop(grown);
        drop(before.map(|object| Removed { object: ManuallyDrop::new(object), table: self }));
        true
    }

    /// Lets the object of a handle end, and gives what `leave` takes out of it first, both with the table's lock held: neither takes locks of this level or
    /// one before. `None`: the handle is not in use, others share the object, or `leave` has given nothing; then nothing has changed.
    #[inline(always)]
    pub fn end<R>(&self, handle: usize, leave: impl FnOnce(&mut T) -> Option<R>) -> Option<R> {
        let mut grown = self.grown.lock();
        let (place, object) = self.find(handle)?;
        // SAFETY: the table's own count, which it keeps until the place is cleared.
        let mut object = ManuallyDrop::new(unsafe { Arc::from_raw(object) });
        let left = sole(&mut object).and_then(leave)?;
        self.clear(&mut grown, handle, place);
        if let Some(emptied) = empty(ManuallyDrop::into_inner(object)) {
            grown.spare.keep(emptied);
        }
        Some(left)
    }

    #[inline]
    fn clear(&self, grown: &mut Grown<T>, handle: usize, place: &Place<T>) {
        place.object.store(std::ptr::null_mut(), Ordering::Release);
        let generation = place.generation.load(Ordering::Relaxed);
        place.generation.store((generation + 1) % GENERATIONS, Ordering::Relaxed);
        grown.free.push((handle & ((1 << INDEX_BITS) - 1)) as u32);
    }

    #[inline]
    fn take_out(&self, grown: &mut Grown<T>, handle: usize) -> Option<Arc<T>> {
        let (place, object) = self.find(handle)?;
        self.clear(grown, handle, place);
        // SAFETY: the table's own count.
        Some(unsafe { Arc::from_raw(object) })
    }

    /// Handles in use.
    pub fn handles(&self) -> Vec<usize> {
        let grown = self.grown.lock();
        (0..grown.used as usize)
            .filter_map(|index| {
                let place = self.place(index)?;
                let generation = place.generation.load(Ordering::Relaxed) as usize;
                (!place.object.load(Ordering::Acquire).is_null()).then_some(MARK | generation << INDEX_BITS | index)
            })
            .collect()
    }
}

/// An object that was taken out of its table.
pub struct Removed<'a, T: Send + Sync + 'static> {
    object: ManuallyDrop<Arc<T>>,
    table: &'a Table<T>,
}

impl<T: Send + Sync> Deref for Removed<'_, T> {
    type Target = T;
    fn deref(&self) -> &T {
        &self.object
    }
}

impl<T: Send + Sync> Drop for Removed<'_, T> {
    /// The object goes without the table's lock: its end may take others. Its memory stays with the table, where nobody shares it.
    #[inline]
    fn drop(&mut self) {
        // SAFETY: nobody uses it after this.
        let object = unsafe { ManuallyDrop::take(&mut self.object) };
        if let Some(emptied) = empty(object) {
            self.table.grown.lock().spare.keep(emptied);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn freed_handles_are_found_out() {
        let table: Table<String> = Table::new();
        let a = table.insert("a".into()).unwrap();
        let b = table.insert_shared(Arc::new("b".into())).unwrap();
        assert!(a > 4095 && a <= i32::MAX as usize && a != b);
        assert_eq!(table.share(a).unwrap().as_str(), "a");
        assert_eq!(table.remove(a).unwrap().as_str(), "a");
        assert!(table.share(a).is_none() && table.remove(a).is_none());
        let c = table.insert("c".into()).unwrap();
        assert_ne!(c, a);
        // SAFETY: one thread.
        assert_eq!(unsafe { table.get(b) }.unwrap(), "b");
        for wrong in [0, 1, 0x101, 4096, usize::MAX, MARK | 77, c + (1 << 31)] {
            assert!(table.share(wrong).is_none(), "{wrong:#x}");
        }
        assert_eq!(table.handles().len(), 2);
    }
    #[test]
    fn memory_of_removed_objects_that_nobody_shares_is_used_again() {
        static TABLE: Table<String> = Table::new();
        let at = |handle| std::ptr::from_ref(&*TABLE.share(handle).unwrap());
        let first = TABLE.insert("1".into()).unwrap();
        let place = at(first);
        drop(TABLE.remove(first));
        let second = TABLE.insert("2".into()).unwrap();
        assert!(at(second) == place && first != second);
        let shared = TABLE.share(second).unwrap();
        drop(TABLE.remove(second));
        let third = TABLE.insert("3".into()).unwrap();
        assert!(at(third) != place && *shared == "2" && *TABLE.share(third).unwrap() == "3");
        let full = Arc::new("4".to_string());
        let fourth = TABLE.insert_shared(full.clone()).unwrap();
        drop(TABLE.remove(fourth));
        assert_eq!(Arc::strong_count(&full), 1);
    }
}
