//! Which pages of a range are free? Runs of pages, each free or in use, whose sizes are kept beside the pages and not in them: processes that map the
//! range cannot change them.
//!
//! Free runs lie in lists by size, eight for each power of two (TLSF: Masmano et al., "TLSF: a new dynamic memory allocator for real-time systems", 2004),
//! and two that touch are joined at once. No call allocates memory, and each takes a bounded number of steps, [`Runs::purge`] excepted.

/// What is kept for each page; it has a meaning for the first and the last page of a run only. All zero at first.
#[derive(Clone, Copy, Default, Debug)]
pub struct Mark {
    /// Pages of the run that begins here; 0: none does.
    pages: u32,
    /// [`USED`], or of a free run the pages that may hold something, at most.
    dirty: u32,
    /// Pages of the free run that ends here; 0: none does.
    ends: u32,
    /// The neighbours of a free run in its list.
    next: u32,
    before: u32,
}

const USED: u32 = u32::MAX;
const NONE: u32 = u32::MAX;
/// Lists for each power of two.
const STEPS: usize = 8;
const POWERS: usize = 30;
/// Runs of a list that are looked at for one that is long enough.
const LOOKS_MAX: usize = 16;

/// The runs of a range.
pub struct Runs {
    marks: &'static mut [Mark],
    lists: [[u32; STEPS]; POWERS],
    /// A bit for each list that has a run.
    filled: [u8; POWERS],
    used_pages: usize,
    dirty_pages: usize,
}

/// A run that was taken.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Taken {
    pub first: usize,
    /// Nothing has been in its pages since they were purged.
    pub clean: bool,
}

/// The list of runs of so many pages.
fn list_of(pages: usize) -> (usize, usize) {
    match pages {
        0..STEPS => (0, pages),
        _ => {
            let power = pages.ilog2() as usize;
            (power - 2, (pages >> (power - 3)) & (STEPS - 1))
        }
    }
}

impl Runs {
    /// A range with as many pages as there are marks, all of them zero: one free run, and nothing in it.
    pub fn new(marks: &'static mut [Mark]) -> Runs {
        let pages = marks.len().min(1 << (POWERS + 1));
        let mut runs = Runs { marks, lists: [[NONE; STEPS]; POWERS], filled: [0; POWERS], used_pages: 0, dirty_pages: 0 };
        if pages > 0 {
            runs.insert(0, pages, 0);
        }
        runs
    }

    pub fn used_pages(&self) -> usize {
        self.used_pages
    }

    /// Pages of free runs that may hold something, at most.
    pub fn dirty_pages(&self) -> usize {
        self.dirty_pages
    }

    /// Makes a free run. It touches no other one.
    fn insert(&mut self, first: usize, pages: usize, dirty: usize) {
        let (power, step) = list_of(pages);
        let next = std::mem::replace(&mut self.lists[power][step], first as u32);
        self.filled[power] |= 1 << step;
        if next != NONE {
            self.marks[next as usize].before = first as u32;
        }
        self.marks[first] = Mark { pages: pages as u32, dirty: dirty as u32, ends: self.marks[first].ends, next, before: NONE };
        self.marks[first + pages - 1].ends = pages as u32;
        self.dirty_pages += dirty;
    }

    /// Takes a free run out of its list; gives its pages and the dirty ones.
    fn remove(&mut self, first: usize) -> (usize, usize) {
        let Mark { pages, dirty, next, before, .. } = self.marks[first];
        let (power, step) = list_of(pages as usize);
        if next != NONE {
            self.marks[next as usize].before = before;
        }
        match before {
            NONE => self.lists[power][step] = next,
            before => self.marks[before as usize].next = next,
        }
        if self.lists[power][step] == NONE {
            self.filled[power] &= !(1 << step);
        }
        self.marks[first].pages = 0;
        self.marks[first + pages as usize - 1].ends = 0;
        self.dirty_pages -= dirty as usize;
        (pages as usize, dirty as usize)
    }

    /// A free run in which `pages` lie from a multiple of `align` pages on, and where.
    fn find(&self, pages: usize, align: usize) -> Option<(usize, usize)> {
        let (power, step) = list_of(pages);
        let mut steps = !0u8 << step;
        for power in power..POWERS {
            let mut filled = self.filled[power] & steps;
            steps = !0;
            while filled != 0 {
                let mut at = self.lists[power][filled.trailing_zeros() as usize];
                filled &= filled - 1;
                for _ in 0..LOOKS_MAX {
                    if at == NONE {
                        break;
                    }
                    let (first, mark) = (at as usize, self.marks[at as usize]);
                    let place = first.next_multiple_of(align);
                    if place + pages <= first + mark.pages as usize {
                        return Some((first, place));
                    }
                    at = mark.next;
                }
            }
        }
        None
    }

    /// Takes `pages` from a multiple of `align` pages on. `None`: there are none, as far as the search goes.
    pub fn take(&mut self, pages: usize, align: usize) -> Option<Taken> {
        if pages == 0 || pages > self.marks.len() || align > self.marks.len() {
            return None;
        }
        let (first, place) = self.find(pages, align)?;
        let (had, dirty) = self.remove(first);
        if place > first {
            self.insert(first, place - first, dirty.min(place - first));
        }
        let rest = first + had - place - pages;
        if rest > 0 {
            self.insert(place + pages, rest, dirty.min(rest));
        }
        self.marks[place].pages = pages as u32;
        self.marks[place].dirty = USED;
        self.used_pages += pages;
        Some(Taken { first: place, clean: dirty == 0 })
    }

    /// Pages of the run in use that begins at `first`. `None`: none does.
    pub fn pages(&self, first: usize) -> Option<usize> {
        let mark = self.marks.get(first)?;
        (mark.pages > 0 && mark.dirty == USED).then_some(mark.pages as usize)
    }

    /// Gives a run in use back; gives the first page of the free run in which it lies now. `None`: no run in use begins there.
    pub fn give(&mut self, first: usize) -> Option<usize> {
        let pages = self.pages(first)?;
        self.used_pages -= pages;
        self.marks[first].pages = 0;
        let (mut start, mut length, mut dirty) = (first, pages, pages);
        if first > 0 && self.marks[first - 1].ends > 0 {
            start = first - self.marks[first - 1].ends as usize;
            let (more, theirs) = self.remove(start);
            (length, dirty) = (length + more, dirty + theirs);
        }
        let after = first + pages;
        if self.marks.get(after).is_some_and(|mark| mark.pages > 0 && mark.dirty != USED) {
            let (more, theirs) = self.remove(after);
            (length, dirty) = (length + more, dirty + theirs);
        }
        self.insert(start, length, dirty);
        Some(start)
    }

    /// Makes a run in use shorter, or longer where free pages follow. Whether it has `pages` now.
    pub fn resize(&mut self, first: usize, pages: usize) -> bool {
        let Some(had) = self.pages(first).filter(|_| pages > 0) else { return false };
        if pages < had {
            self.marks[first].pages = pages as u32;
            self.marks[first + pages].pages = (had - pages) as u32;
            self.marks[first + pages].dirty = USED;
            return self.give(first + pages).is_some();
        }
        if pages > had {
            let (after, more) = (first + had, pages - had);
            if !self.marks.get(after).is_some_and(|mark| mark.dirty != USED && mark.pages as usize >= more) {
                return false;
            }
            let (free, dirty) = self.remove(after);
            if free > more {
                self.insert(after + more, free - more, dirty.min(free - more));
            }
            self.marks[first].pages = pages as u32;
            self.used_pages += more;
        }
        true
    }

    /// Has `purge` take what is in the pages of the free run at `first`, which says whether it has.
    pub fn purge_run(&mut self, first: usize, purge: impl FnOnce(usize, usize) -> bool) {
        let mark = self.marks[first];
        if mark.dirty > 0 && mark.dirty != USED && purge(first, mark.pages as usize) {
            self.dirty_pages -= mark.dirty as usize;
            self.marks[first].dirty = 0;
        }
    }

    /// As [`Runs::purge_run`], run by run, until at most `dirty_pages_max` are left.
    pub fn purge(&mut self, dirty_pages_max: usize, mut purge: impl FnMut(usize, usize) -> bool) {
        for (power, step) in (0..POWERS).rev().flat_map(|power| (0..STEPS).rev().map(move |step| (power, step))) {
            let mut at = self.lists[power][step];
            while at != NONE {
                if self.dirty_pages <= dirty_pages_max {
                    return;
                }
                self.purge_run(at as usize, &mut purge);
                at = self.marks[at as usize].next;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    fn runs(pages: usize) -> Runs {
        Runs::new(Vec::leak(vec![Mark::default(); pages]))
    }

    impl Runs {
        /// All runs, from the first page on: where, how long, free. Checks that they tile the range, and what is kept of them twice.
        fn all(&self) -> Vec<(usize, usize, bool)> {
            let (mut at, mut all, mut used, mut dirty) = (0, Vec::<(usize, usize, bool)>::new(), 0, 0);
            while at < self.marks.len() {
                let mark = self.marks[at];
                let (pages, free) = (mark.pages as usize, mark.dirty != USED);
                assert!(pages > 0 && at + pages <= self.marks.len(), "a run at {at}");
                assert_eq!(self.marks[at + pages - 1].ends as usize, if free { pages } else { 0 }, "the end of the run at {at}");
                assert!(!free || !all.last().is_some_and(|(.., free)| *free), "two free runs touch at {at}");
                let (power, step) = list_of(pages);
                let there = |at: u32| Some(at).filter(|at| *at != NONE);
                let mut list = std::iter::successors(there(self.lists[power][step]), |at| there(self.marks[*at as usize].next));
                assert_eq!(free, list.any(|other| other as usize == at), "the list of {at}");
                if free {
                    dirty += mark.dirty as usize
                } else {
                    used += pages
                }
                all.push((at, pages, free));
                at += pages;
            }
            assert_eq!((self.used_pages, self.dirty_pages), (used, dirty));
            all
        }
    }

    #[test]
    fn runs_are_taken_from_the_front_and_joined_again() {
        let mut runs = runs(100);
        let taken: Vec<_> = (0..4).map(|_| runs.take(25, 1).unwrap()).collect();
        assert_eq!(taken.iter().map(|t| (t.first, t.clean)).collect::<Vec<_>>(), [(0, true), (25, true), (50, true), (75, true)]);
        assert_eq!((runs.take(1, 1), runs.used_pages()), (None, 100));
        assert_eq!((runs.give(25), runs.give(25), runs.give(26)), (Some(25), None, None));
        assert_eq!(runs.give(75), Some(75));
        assert_eq!(runs.give(50), Some(25));
        assert_eq!((runs.take(26, 32).unwrap(), runs.dirty_pages()), (Taken { first: 32, clean: false }, 7 + 42));
        runs.give(32).unwrap();
        let mut purged = Vec::new();
        runs.purge(0, |first, pages| {
            purged.push((first, pages));
            true
        });
        assert_eq!((purged, runs.dirty_pages()), (vec![(25, 75)], 0));
        assert!(runs.take(75, 1).unwrap().clean);
    }

    #[test]
    fn runs_grow_where_the_next_is_free() {
        let mut runs = runs(20);
        let (a, b) = (runs.take(5, 1).unwrap().first, runs.take(5, 1).unwrap().first);
        assert!(!runs.resize(a, 6) && runs.resize(b, 15) && !runs.resize(b, 16));
        assert!(runs.resize(b, 1) && runs.resize(a, 5) && !runs.resize(b, 0) && !runs.resize(3, 1));
        runs.give(b).unwrap();
        assert!(runs.resize(a, 20));
        assert_eq!(runs.all(), [(0, 20, false)]);
    }

    proptest! {
        /// Beside a model that knows of each run in use where it lies: runs never overlap, lie at multiples of what was asked for, and a run is found
        /// wherever a free one of twice the length and alignment is.
        #[test]
        fn runs_do_as_a_model_does(steps in prop::collection::vec((0..6u8, 0..400usize, 0..7u32, any::<prop::sample::Index>()), 1..200)) {
            let mut runs = runs(1000);
            let mut model: BTreeMap<usize, usize> = BTreeMap::new();
            for (what, pages, align, which) in steps {
                let known = (!model.is_empty()).then(|| *which.get(&model.keys().copied().collect::<Vec<_>>()));
                match (what, known) {
                    (0..=2, _) => {
                        let (pages, align) = (pages.max(1), 1 << align);
                        let longest = runs.all().iter().filter(|(.., free)| *free).map(|(_, pages, _)| *pages).max().unwrap_or(0);
                        match runs.take(pages, align) {
                            Some(taken) => {
                                prop_assert!(taken.first.is_multiple_of(align) && taken.first + pages <= 1000);
                                let before = model.range(..taken.first + pages).next_back();
                                prop_assert!(before.is_none_or(|(first, pages)| first + pages <= taken.first), "{taken:?} lies in {before:?}");
                                model.insert(taken.first, pages);
                            }
                            None => prop_assert!(longest < 2 * (pages + align), "{pages} pages not found in {longest}"),
                        }
                    }
                    (3, Some(first)) => {
                        prop_assert!(runs.give(first).is_some());
                        model.remove(&first);
                    }
                    (4, Some(first)) => {
                        let room = model.range(first + 1..).next().map_or(1000, |(next, _)| *next) - first;
                        let resized = runs.resize(first, pages);
                        prop_assert_eq!(resized, pages > 0 && pages <= room);
                        if resized {
                            model.insert(first, pages);
                        }
                    }
                    _ => {
                        let mut clean = true;
                        runs.purge(pages, |first, pages| {
                            clean &= model.range(..first + pages).next_back().is_none_or(|(used, length)| used + length <= first);
                            true
                        });
                        prop_assert!(clean && runs.dirty_pages() <= pages);
                    }
                }
                let used: Vec<(usize, usize)> = runs.all().into_iter().filter(|(.., free)| !free).map(|(first, pages, _)| (first, pages)).collect();
                prop_assert_eq!(&used, &model.iter().map(|(first, pages)| (*first, *pages)).collect::<Vec<_>>());
                prop_assert!(model.iter().all(|(first, pages)| runs.pages(*first) == Some(*pages)));
            }
            for first in model.into_keys() {
                prop_assert!(runs.give(first).is_some());
            }
            prop_assert_eq!(runs.all(), [(0, 1000, true)]);
        }
    }
}
