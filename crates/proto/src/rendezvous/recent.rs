//! A table of bounded size: a new key takes the place of the key that was used the longest ago.

use crate::list::{Link, List, NIL, Pool};
use rustc_hash::FxHashMap;
use std::hash::Hash;

#[derive(Clone, Debug)]
struct Node<K, V> {
    link: Link,
    key: K,
    value: V,
}

/// At most `entries_max` keys with a value each. Every operation takes constant time.
#[derive(Clone, Debug)]
pub struct Recent<K, V> {
    entries_max: usize,
    places: FxHashMap<K, u32>,
    nodes: Pool<Node<K, V>>,
    /// The key used the longest ago comes first.
    order: List,
}

impl<K: Copy + Eq + Hash, V> Recent<K, V> {
    /// An empty table, for at least one key. It takes memory as it fills.
    pub fn new(entries_max: usize) -> Recent<K, V> {
        Recent { entries_max: entries_max.max(1), places: FxHashMap::default(), nodes: Pool::default(), order: List::EMPTY }
    }

    /// The value of `key`, which is used by this.
    #[inline]
    pub fn find(&mut self, key: &K) -> Option<&mut V> {
        let at = *self.places.get(key)?;
        self.renew(at);
        Some(&mut self.nodes[at].value)
    }

    /// The value of `key`, which is used by this; `make` gives the value of a key that is not in the table. Returns also
    /// whether the key is new.
    pub fn find_or_insert(&mut self, key: K, make: impl FnOnce() -> V) -> (&mut V, bool) {
        if let Some(&at) = self.places.get(&key) {
            self.renew(at);
            return (&mut self.nodes[at].value, false);
        }
        if self.places.len() == self.entries_max {
            let oldest = self.order.head;
            self.order.remove(self.nodes.nodes(), oldest, |node| &mut node.link);
            self.places.remove(&self.nodes[oldest].key);
            self.nodes.release(oldest);
        }
        let at = self.nodes.insert(Node { link: Link::LOOSE, key, value: make() });
        self.order.push(self.nodes.nodes(), at, |node| &mut node.link);
        self.places.insert(key, at);
        (&mut self.nodes[at].value, true)
    }

    #[inline]
    fn renew(&mut self, at: u32) {
        if self.order.tail != at {
            self.order.remove(self.nodes.nodes(), at, |node| &mut node.link);
            self.order.push(self.nodes.nodes(), at, |node| &mut node.link);
        }
    }

    /// All keys and values; the key used the longest ago comes first.
    pub fn iter(&self) -> impl Iterator<Item = (&K, &V)> {
        let mut next = self.order.head;
        std::iter::from_fn(move || {
            if next == NIL {
                return None;
            }
            let node = &self.nodes[next];
            next = node.link.next;
            Some((&node.key, &node.value))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[derive(Clone, Debug)]
    enum Step {
        Find(u8),
        Insert(u8),
    }

    fn steps() -> impl Strategy<Value = Vec<Step>> {
        let step = prop_oneof![(0..12u8).prop_map(Step::Find), (0..12u8).prop_map(Step::Insert)];
        prop::collection::vec(step, 0..200)
    }

    proptest! {
        /// The table holds what a list of the keys in the order of their last use holds, whose first is dropped.
        #[test]
        fn the_key_used_the_longest_ago_makes_room(entries_max in 1..8usize, steps in steps()) {
            let mut table = Recent::new(entries_max);
            let mut expected: Vec<(u8, usize)> = Vec::new();
            for (number, step) in steps.into_iter().enumerate() {
                let at = |expected: &[(u8, usize)], key| expected.iter().position(|(k, _)| *k == key);
                match step {
                    Step::Find(key) => {
                        let entry = at(&expected, key).map(|at| expected.remove(at));
                        expected.extend(entry);
                        prop_assert_eq!(table.find(&key).copied(), entry.map(|entry| entry.1));
                    }
                    Step::Insert(key) => {
                        let known = at(&expected, key).map(|at| expected.remove(at));
                        if known.is_none() && expected.len() == entries_max {
                            expected.remove(0);
                        }
                        let entry = known.unwrap_or((key, number));
                        expected.push(entry);
                        let (value, new) = table.find_or_insert(key, || number);
                        prop_assert_eq!((*value, new), (entry.1, known.is_none()));
                    }
                }
                prop_assert_eq!(table.places.len(), expected.len());
                let held: Vec<(u8, usize)> = table.iter().map(|(key, value)| (*key, *value)).collect();
                prop_assert_eq!(held, expected.clone());
            }
        }
    }
}
