//! Which object does a handle mean? A handle is a kind, a place in a table and the generation of what lies there, so that one of something that is
//! no more is refused.

/// Kinds of handles.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum Kind {
    Nic = 1,
    Vi = 2,
    Cq = 3,
    Ptag = 4,
    Connection = 5,
}

/// A place and its generation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Key {
    pub index: u32,
    pub generation: u32,
}

const MARK: u64 = 0xa5;

impl Key {
    /// As the program holds it.
    #[inline]
    pub fn handle(self, kind: Kind) -> u64 {
        MARK << 56 | (kind as u64) << 52 | (self.index as u64 & 0xf_ffff) << 32 | self.generation as u64
    }

    #[inline]
    pub fn of(handle: u64, kind: Kind) -> Option<Key> {
        (handle >> 52 == MARK << 4 | kind as u64)
            .then_some(Key { index: (handle >> 32) as u32 & 0xf_ffff, generation: handle as u32 })
            .filter(|key| key.generation != 0)
    }
}

/// A table of what comes and goes.
pub struct Table<T> {
    slots: Vec<(u32, Option<T>)>,
    limit: usize,
}

impl<T> Table<T> {
    pub const fn new(limit: usize) -> Table<T> {
        Table { slots: Vec::new(), limit }
    }

    /// None: the table is full.
    pub fn add(&mut self, value: T) -> Option<Key> {
        let index = match self.slots.iter().position(|(_, it)| it.is_none()) {
            Some(index) => index,
            None if self.slots.len() < self.limit => {
                self.slots.push((0, None));
                self.slots.len() - 1
            }
            None => return None,
        };
        let slot = &mut self.slots[index];
        slot.0 = slot.0.wrapping_add(1).max(1);
        slot.1 = Some(value);
        Some(Key { index: index as u32, generation: slot.0 })
    }

    pub fn find(&self, key: Key) -> Option<&T> {
        self.slots.get(key.index as usize).filter(|slot| slot.0 == key.generation)?.1.as_ref()
    }

    pub fn find_mut(&mut self, key: Key) -> Option<&mut T> {
        self.slots.get_mut(key.index as usize).filter(|slot| slot.0 == key.generation)?.1.as_mut()
    }

    pub fn remove(&mut self, key: Key) -> Option<T> {
        self.slots.get_mut(key.index as usize).filter(|slot| slot.0 == key.generation)?.1.take()
    }

    pub fn values(&self) -> impl Iterator<Item = &T> {
        self.slots.iter().filter_map(|slot| slot.1.as_ref())
    }

    pub fn is_empty(&self) -> bool {
        self.values().next().is_none()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stale_and_foreign_handles_are_refused() {
        let mut table = Table::new(2);
        let first = table.add('a').unwrap();
        assert_eq!(Key::of(first.handle(Kind::Vi), Kind::Vi), Some(first));
        assert_eq!(Key::of(first.handle(Kind::Vi), Kind::Cq), None);
        assert_eq!((Key::of(0, Kind::Nic), Key::of(u64::MAX, Kind::Nic)), (None, None));
        assert!(table.add('b').is_some() && table.add('c').is_none());
        assert_eq!(table.remove(first), Some('a'));
        let again = table.add('d').unwrap();
        assert_eq!((again.index, table.find(first), table.find(again)), (first.index, None, Some(&'d')));
    }
}
