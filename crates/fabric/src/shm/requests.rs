//! Requests of one process to another one of its host, which answers them when it looks. Each pair has [`DEPTH`] lines, written in turn. The asker
//! does not depend on whether the other looks: what has not been taken it takes back, the youngest request first, so that what was taken is always
//! what came first.
//!
//! A line's first word holds the number of the request that it is used for, and what has become of the request; the asker changes it from or to
//! *posted*, and whoever takes a request or takes it back does so by one compare-and-swap from *posted*. The other words belong to the process whose
//! turn it is.

use super::area::Line;

pub use super::area::LINE_WORDS as REQUEST_WORDS;

/// Requests that may be under way between two processes, in one direction.
pub const DEPTH: usize = 8;

/// What has become of a request: the lowest bits of a line's first word.
const POSTED: u64 = 1;
const TAKEN: u64 = 2;
const ANSWERED: u64 = 3;
const WITHDRAWN: u64 = 0;

fn state(number: u64, what: u64) -> u64 {
    number << 2 | what
}

fn line(lines: &[Line], number: u64) -> &Line {
    &lines[number as usize % DEPTH]
}

/// The side that asks.
#[derive(Debug)]
pub struct Asker<'a> {
    lines: &'a [Line],
    /// The number of the next request, and of the oldest whose answer has not been read.
    next: u64,
    oldest: u64,
}

impl<'a> Asker<'a> {
    /// `lines`: [`DEPTH`] of them, which nobody has used before.
    pub fn new(lines: &'a [Line]) -> Asker<'a> {
        assert_eq!(lines.len(), DEPTH);
        Asker { lines, next: 1, oldest: 1 }
    }

    /// Requests whose answer has not been read.
    #[inline]
    pub fn pending(&self) -> usize {
        (self.next - self.oldest) as usize
    }

    /// # Panics
    /// Where [`DEPTH`] are pending.
    #[inline]
    pub fn post(&mut self, words: &[u64; REQUEST_WORDS]) {
        assert!(self.pending() < DEPTH);
        line(self.lines, self.next).write(state(self.next, POSTED), words);
        self.next += 1;
    }

    /// The answer to the oldest request, if it has come.
    #[inline]
    pub fn answer(&mut self) -> Option<[u64; REQUEST_WORDS]> {
        let line = line(self.lines, self.oldest);
        if self.oldest == self.next || !line.holds(state(self.oldest, ANSWERED)) {
            return None;
        }
        let mut words = [0; REQUEST_WORDS];
        line.read(&mut words);
        self.oldest += 1;
        Some(words)
    }

    /// Takes the youngest request back, unless there is none or it has been taken: then all before it have been, too.
    pub fn withdraw(&mut self) -> Option<[u64; REQUEST_WORDS]> {
        let number = self.next - 1;
        let line = line(self.lines, number);
        if self.oldest == self.next || !line.change(state(number, POSTED), state(number, WITHDRAWN)) {
            return None;
        }
        let mut words = [0; REQUEST_WORDS];
        line.read(&mut words);
        self.next = number;
        Some(words)
    }
}

/// The side that answers, in the order in which it was asked.
#[derive(Debug)]
pub struct Answerer<'a> {
    lines: &'a [Line],
    next: u64,
}

impl<'a> Answerer<'a> {
    /// As [`Asker::new`].
    pub fn new(lines: &'a [Line]) -> Answerer<'a> {
        assert_eq!(lines.len(), DEPTH);
        Answerer { lines, next: 1 }
    }

    /// Takes the next request, if it is there; it is to be answered before another one is taken.
    #[inline]
    pub fn take(&self) -> Option<[u64; REQUEST_WORDS]> {
        let line = line(self.lines, self.next);
        if !line.holds(state(self.next, POSTED)) || !line.change(state(self.next, POSTED), state(self.next, TAKEN)) {
            return None;
        }
        let mut words = [0; REQUEST_WORDS];
        line.read(&mut words);
        Some(words)
    }

    /// Whether the next request is there.
    #[inline]
    pub fn is_asked(&self) -> bool {
        line(self.lines, self.next).holds(state(self.next, POSTED))
    }

    /// Answers what was taken last.
    #[inline]
    pub fn answer(&mut self, words: &[u64; REQUEST_WORDS]) {
        line(self.lines, self.next).write(state(self.next, ANSWERED), words);
        self.next += 1;
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn what_was_not_taken_is_taken_back_youngest_first() {
        let lines: [Line; DEPTH] = Default::default();
        let (mut asker, mut answerer) = (Asker::new(&lines), Answerer::new(&lines));
        let request = |value| [value, 0, 0, 0, 0, 0, 9];
        for round in 0..5 {
            assert_eq!((asker.withdraw(), asker.answer(), answerer.take()), (None, None, None));
            (0..DEPTH as u64).for_each(|at| asker.post(&request(100 * round + at)));
            assert_eq!((asker.pending(), asker.answer()), (DEPTH, None));
            assert_eq!(answerer.take(), Some(request(100 * round)));
            assert_eq!(asker.answer(), None);
            let back: Vec<u64> = std::iter::from_fn(|| asker.withdraw()).map(|words| words[0] - 100 * round).collect();
            assert_eq!(back, (1..DEPTH as u64).rev().collect::<Vec<u64>>());
            assert_eq!((asker.pending(), asker.answer()), (1, None));
            answerer.answer(&request(7));
            assert_eq!((asker.withdraw(), answerer.take(), asker.answer()), (None, None, Some(request(7))));
            assert_eq!(asker.pending(), 0);
        }
    }
}
