//! Tables of objects: a handle names a slot and its generation, so that a freed handle is noticed.
#![forbid(unsafe_code)]

use crate::consts::FIRST_FREE_HANDLE;

const INDEX_BITS: u32 = 20;
const GENERATIONS: u32 = 1 << 10;

/// Objects that one table can hold at once.
pub const SLOTS_MAX: usize = 1 << INDEX_BITS;

/// Objects of one kind by handle value. A handle lies between [`FIRST_FREE_HANDLE`] and `i32::MAX`, as
/// `MPI_*_toint` needs; the handle of a freed object is refused until its slot was reused 1,024 times.
#[derive(Debug)]
pub struct Slots<T> {
    slots: Vec<Slot<T>>,
    free: Vec<u32>,
}

#[derive(Debug)]
struct Slot<T> {
    generation: u32,
    object: Option<T>,
}

impl<T> Slots<T> {
    pub const fn new() -> Slots<T> {
        Slots { slots: Vec::new(), free: Vec::new() }
    }

    /// Stores `object` and gives its handle, or the object back when the table holds [`SLOTS_MAX`].
    #[inline]
    pub fn insert(&mut self, object: T) -> Result<usize, T> {
        let index = match self.free.pop() {
            Some(index) => index,
            None if self.slots.len() < SLOTS_MAX => {
                self.slots.push(Slot { generation: 0, object: None });
                (self.slots.len() - 1) as u32
            }
            None => return Err(object),
        };
        let slot = &mut self.slots[index as usize];
        slot.object = Some(object);
        Ok(FIRST_FREE_HANDLE + (slot.generation << INDEX_BITS | index) as usize)
    }

    #[inline]
    pub fn get(&self, handle: usize) -> Option<&T> {
        let (index, generation) = parts(handle)?;
        self.slots.get(index).filter(|slot| slot.generation == generation)?.object.as_ref()
    }

    #[inline]
    pub fn get_mut(&mut self, handle: usize) -> Option<&mut T> {
        let (index, generation) = parts(handle)?;
        self.slots.get_mut(index).filter(|slot| slot.generation == generation)?.object.as_mut()
    }

    /// Takes the object out; its handle is refused from now on.
    #[inline]
    pub fn remove(&mut self, handle: usize) -> Option<T> {
        let (index, generation) = parts(handle)?;
        let slot = self.slots.get_mut(index).filter(|slot| slot.generation == generation)?;
        let object = slot.object.take()?;
        slot.generation = (slot.generation + 1) % GENERATIONS;
        self.free.push(index as u32);
        Some(object)
    }

    /// Handles and their objects.
    pub fn iter(&self) -> impl Iterator<Item = (usize, &T)> {
        self.slots.iter().enumerate().filter_map(|(index, slot)| {
            let handle = FIRST_FREE_HANDLE + (slot.generation << INDEX_BITS | index as u32) as usize;
            Some((handle, slot.object.as_ref()?))
        })
    }

    /// Objects held.
    pub fn len(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl<T> Default for Slots<T> {
    fn default() -> Self {
        Slots::new()
    }
}

#[inline]
fn parts(handle: usize) -> Option<(usize, u32)> {
    let value = u32::try_from(handle.checked_sub(FIRST_FREE_HANDLE)?).ok()?;
    let generation = value >> INDEX_BITS;
    (generation < GENERATIONS).then_some(((value as usize) & (SLOTS_MAX - 1), generation))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_freed_handle_is_refused_though_its_slot_is_used_again() {
        let mut slots = Slots::new();
        let first = slots.insert("a").unwrap();
        assert_eq!(slots.remove(first), Some("a"));
        assert_eq!(slots.remove(first), None);
        let second = slots.insert("b").unwrap();
        assert_ne!(first, second);
        assert_eq!((slots.get(first), slots.get(second)), (None, Some(&"b")));
    }

    #[test]
    fn handles_fit_an_int_and_avoid_the_predefined_ones() {
        let mut slots = Slots::new();
        for _ in 0..3 * GENERATIONS {
            let handle = slots.insert(()).unwrap();
            assert!((FIRST_FREE_HANDLE..=i32::MAX as usize).contains(&handle));
            slots.remove(handle);
        }
        for stranger in [0, 1, 0x101, FIRST_FREE_HANDLE - 1, usize::MAX, i32::MAX as usize] {
            assert_eq!(slots.get(stranger), None);
        }
    }

    #[test]
    fn a_full_table_gives_the_object_back() {
        let mut slots = Slots::new();
        for n in 0..SLOTS_MAX {
            slots.insert(n).unwrap();
        }
        assert_eq!(slots.insert(7), Err(7));
        assert_eq!(slots.len(), SLOTS_MAX);
    }
}
