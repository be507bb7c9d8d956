//! Objects behind handles: looked up without a lock, since every call does it.
//!
//! A handle is 31 bits, so that its integer is its value: bit 30, then 8 bits of generation, then 22 bits of index. A handle that
//! has been freed is found out until its place has been used 256 times more.

use engine::order::{Level, Ordered};
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

/// Objects of one kind. At most 2^22 at once.
pub struct Table<T: 'static> {
    chunks: [AtomicPtr<Place<T>>; CHUNKS],
    grown: Ordered<Grown>,
}

struct Grown {
    free: Vec<u32>,
    used: u32,
}

impl<T: Send + Sync> Table<T> {
    #[allow(clippy::new_without_default)]
    pub const fn new() -> Table<T> {
        Table { chunks: [const { AtomicPtr::new(std::ptr::null_mut()) }; CHUNKS], grown: Ordered::new(Level::Table, Grown { free: Vec::new(), used: 0 }) }
    }

    /// Puts an object in; gives its handle, or the object back when the table is full.
    pub fn insert(&self, object: Arc<T>) -> Result<usize, Arc<T>> {
        let mut grown = self.grown.lock();
        let index = match grown.free.pop() {
            Some(index) => index,
            None if (grown.used as usize) < CHUNK * CHUNKS => {
                let index = grown.used;
                if (index as usize).is_multiple_of(CHUNK) {
                    let places: Box<[Place<T>]> =
                        (0..CHUNK).map(|_| Place { object: AtomicPtr::new(std::ptr::null_mut()), generation: AtomicU32::new(0) }).collect();
                    self.chunks[index as usize / CHUNK].store(Box::leak(places).as_mut_ptr(), Ordering::Release);
                }
                grown.used += 1;
                index
            }
            None => return Err(object),
        };
        let place = self.place(index as usize).expect("its chunk was just made");
        place.object.store(Arc::into_raw(object).cast_mut(), Ordering::Release);
        let generation = place.generation.load(Ordering::Relaxed);
        Ok(MARK | (generation as usize) << INDEX_BITS | index as usize)
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
    pub fn remove(&self, handle: usize) -> Option<Arc<T>> {
        let mut grown = self.grown.lock();
        let (place, object) = self.find(handle)?;
        place.object.store(std::ptr::null_mut(), Ordering::Release);
        let generation = place.generation.load(Ordering::Relaxed);
        place.generation.store((generation + 1) % GENERATIONS, Ordering::Relaxed);
        grown.free.push((handle & ((1 << INDEX_BITS) - 1)) as u32);
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn freed_handles_are_found_out() {
        let table: Table<String> = Table::new();
        let a = table.insert(Arc::new("a".into())).unwrap();
        let b = table.insert(Arc::new("b".into())).unwrap();
        assert!(a > 4095 && a <= i32::MAX as usize && a != b);
        assert_eq!(table.share(a).unwrap().as_str(), "a");
        assert_eq!(table.remove(a).unwrap().as_str(), "a");
        assert!(table.share(a).is_none() && table.remove(a).is_none());
        let c = table.insert(Arc::new("c".into())).unwrap();
        assert_ne!(c, a);
        // SAFETY: one thread.
        assert_eq!(unsafe { table.get(b) }.unwrap(), "b");
        for wrong in [0, 1, 0x101, 4096, usize::MAX, MARK | 77, c + (1 << 31)] {
            assert!(table.share(wrong).is_none(), "{wrong:#x}");
        }
        assert_eq!(table.handles().len(), 2);
    }
}
