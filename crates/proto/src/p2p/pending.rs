//! A queue that takes no memory while it is empty: every peer has some, and few are in use.

use std::collections::VecDeque;

#[allow(clippy::box_collection)]
#[derive(Clone, Hash)]
pub(crate) struct Pending<T>(Option<Box<VecDeque<T>>>);

impl<T> Default for Pending<T> {
    fn default() -> Self {
        Pending(None)
    }
}

impl<T> Pending<T> {
    pub fn is_empty(&self) -> bool {
        self.0.is_none()
    }

    pub fn front(&self) -> Option<&T> {
        self.0.as_ref()?.front()
    }

    pub fn push_back(&mut self, item: T) {
        self.0.get_or_insert_default().push_back(item);
    }

    pub fn pop_front(&mut self) -> Option<T> {
        let item = self.0.as_mut()?.pop_front();
        self.tidy();
        item
    }

    pub fn retain(&mut self, keep: impl FnMut(&T) -> bool) {
        if let Some(items) = &mut self.0 {
            items.retain(keep);
        }
        self.tidy();
    }

    fn tidy(&mut self) {
        if self.0.as_ref().is_some_and(|items| items.is_empty()) {
            self.0 = None;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn first_in_first_out_and_nothing_left() {
        let mut pending = Pending::default();
        assert!(pending.is_empty() && pending.front().is_none() && pending.pop_front().is_none());
        (0..5).for_each(|n| pending.push_back(n));
        pending.retain(|n| n % 2 == 0);
        assert_eq!(pending.front(), Some(&0));
        assert_eq!((pending.pop_front(), pending.pop_front()), (Some(0), Some(2)));
        assert!(!pending.is_empty());
        pending.retain(|_| false);
        assert!(pending.0.is_none());
        assert_eq!(size_of::<Pending<u64>>(), 8);
    }
}
