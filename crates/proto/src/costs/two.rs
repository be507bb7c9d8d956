//! Two ways of doing one thing, tried by turns: what each has taken last, and which one is next.

/// Whether one of two takes half as long again as the other.
#[inline]
pub fn are_far_apart(first: u64, second: u64) -> bool {
    first.max(second) / 3 > first.min(second) / 2
}

/// What each way has taken last, ns; 0: it has not been tried. The second way is the one that `true` names.
#[derive(Clone, Copy, Debug, Default)]
pub struct Took([u64; 2]);

impl Took {
    #[inline]
    pub fn of(&self, way: bool) -> u64 {
        self.0[way as usize]
    }

    /// `way` has taken `ns`, or in whatever unit the other is given.
    #[inline]
    pub fn set(&mut self, way: bool, ns: u64) {
        self.0[way as usize] = ns;
    }

    /// Whether one has taken half as long again as the other: then that one is tried rarely.
    #[inline]
    pub fn are_far_apart(&self) -> bool {
        are_far_apart(self.0[0], self.0[1])
    }

    /// `way` has gone on long enough, and has taken `least`; it was a `trial`, or the faster way until the other one is tried again. Which way is next, and
    /// whether that is a trial.
    pub fn next(&mut self, way: bool, least: u64, trial: bool) -> (bool, bool) {
        self.0[way as usize] = least;
        let next = match self.0 {
            [_, 0] => true,
            [0, _] => false,
            _ if !trial => !way,
            [first, second] => second < first,
        };
        // The way that was taken until now may turn out to be the better one: it goes on.
        (next, !trial || self.0.contains(&0))
    }
}
