//! A table by process number that takes memory only around numbers that are in use, and whose entries never move.

/// Entries that come together.
const CHUNK: usize = 32;

#[derive(Debug)]
pub struct Sparse<T> {
    chunks: Vec<Option<Box<[Option<T>; CHUNK]>>>,
}

impl<T> Default for Sparse<T> {
    fn default() -> Self {
        Sparse { chunks: Vec::new() }
    }
}

impl<T> Sparse<T> {
    pub fn get(&self, number: u32) -> Option<&T> {
        self.chunks.get(number as usize / CHUNK)?.as_ref()?[number as usize % CHUNK].as_ref()
    }

    pub fn get_mut(&mut self, number: u32) -> Option<&mut T> {
        self.chunks.get_mut(number as usize / CHUNK)?.as_mut()?[number as usize % CHUNK].as_mut()
    }

    /// The place of `number`, whose memory is there from now on: 8 bytes for each 32 numbers below it, and 32 entries around it.
    pub fn place(&mut self, number: u32) -> &mut Option<T> {
        let chunk = number as usize / CHUNK;
        if chunk >= self.chunks.len() {
            self.chunks.resize_with(chunk + 1, || None);
        }
        &mut self.chunks[chunk].get_or_insert_with(|| Box::new([const { None }; CHUNK]))[number as usize % CHUNK]
    }

    /// All numbers that something is kept for, ascending.
    pub fn numbers(&self) -> impl Iterator<Item = u32> {
        let chunks = (0..).step_by(CHUNK).zip(&self.chunks).filter_map(|(first, chunk)| Some((first, chunk.as_ref()?)));
        chunks.flat_map(|(first, chunk)| (first..).zip(chunk.iter()).filter_map(|(number, entry)| entry.is_some().then_some(number)))
    }

    /// Memory, bytes.
    pub fn bytes(&self) -> usize {
        let used = self.chunks.iter().flatten().count();
        self.chunks.capacity() * size_of::<usize>() + used * CHUNK * size_of::<Option<T>>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::HashMap;

    proptest! {
        #[test]
        fn as_a_map(entries in proptest::collection::vec((0u32..5000, any::<u16>()), 0..200)) {
            let (mut sparse, mut map) = (Sparse::default(), HashMap::new());
            for (number, value) in entries {
                *sparse.place(number) = Some(value);
                map.insert(number, value);
            }
            let mut numbers: Vec<u32> = map.keys().copied().collect();
            numbers.sort_unstable();
            prop_assert_eq!(sparse.numbers().collect::<Vec<_>>(), numbers);
            for number in 0..5100 {
                prop_assert_eq!(sparse.get(number), map.get(&number));
                prop_assert_eq!(sparse.get_mut(number).copied(), map.get(&number).copied());
            }
        }
    }

    #[test]
    fn a_high_number_is_cheap() {
        let mut sparse = Sparse::default();
        *sparse.place((1 << 20) - 1) = Some(1u64);
        assert!(sparse.bytes() < 600_000, "{}", sparse.bytes());
        assert_eq!(sparse.get(5), None);
    }
}
