//! Entries under numbers that are never 0 and come back only after 32,767 other uses of the same slot.

/// Entries at once, at most.
pub const SLOTS_MAX: usize = 1 << SLOT_BITS;
const SLOT_BITS: u32 = 17;

#[derive(Debug)]
pub struct Slab<T> {
    slots: Vec<(u32, Option<T>)>,
    free: Vec<u32>,
}

impl<T> Slab<T> {
    pub const fn new() -> Slab<T> {
        Slab { slots: Vec::new(), free: Vec::new() }
    }

    /// `None` when it is full.
    pub fn insert(&mut self, value: T) -> Option<u32> {
        let slot = match self.free.pop() {
            Some(slot) => slot,
            None if self.slots.len() < SLOTS_MAX => {
                self.slots.push((0, None));
                self.slots.len() as u32 - 1
            }
            None => return None,
        };
        let entry = &mut self.slots[slot as usize];
        entry.0 = entry.0 % (u32::MAX >> SLOT_BITS) + 1;
        entry.1 = Some(value);
        Some(entry.0 << SLOT_BITS | slot)
    }

    pub fn get(&self, id: u32) -> Option<&T> {
        let (generation, value) = self.slots.get((id as usize) % SLOTS_MAX)?;
        if *generation == id >> SLOT_BITS { value.as_ref() } else { None }
    }

    pub fn get_mut(&mut self, id: u32) -> Option<&mut T> {
        let (generation, value) = self.slots.get_mut((id as usize) % SLOTS_MAX)?;
        if *generation == id >> SLOT_BITS { value.as_mut() } else { None }
    }

    pub fn remove(&mut self, id: u32) -> Option<T> {
        self.get(id)?;
        let slot = id % SLOTS_MAX as u32;
        self.free.push(slot);
        self.slots[slot as usize].1.take()
    }

    /// Numbers of the entries for which `wanted` holds.
    pub fn numbers(&self, wanted: impl Fn(&T) -> bool) -> Vec<u32> {
        let all = (0..).zip(&self.slots);
        let found = all.filter(|(_, (_, value))| value.as_ref().is_some_and(&wanted));
        found.map(|(slot, (generation, _))| generation << SLOT_BITS | slot).collect()
    }

    pub fn len(&self) -> usize {
        self.slots.len() - self.free.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn old_numbers_find_nothing() {
        let mut slab = Slab::new();
        let first = slab.insert(1).unwrap();
        assert_eq!((slab.remove(first), slab.remove(first)), (Some(1), None));
        let second = slab.insert(2).unwrap();
        assert!(first != 0 && second != first && slab.get(first).is_none());
        assert_eq!((slab.get(second), slab.len()), (Some(&2), 1));
        let all = (1..SLOTS_MAX).filter_map(|n| slab.insert(n)).count();
        assert_eq!((all, slab.insert(0)), (SLOTS_MAX - 1, None));
    }
}
