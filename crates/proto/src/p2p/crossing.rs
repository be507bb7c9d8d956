//! Long messages that cross: two processes send each other long messages at the same time. Then a message that goes through the ring is copied twice by
//! processes that are busy, and nobody is there to share a copy with: each reads straight what comes, once.
//!
//! It is learned for each peer. A sender that finds, when a long body has gone into the ring, that the peer's own has begun to come sees that they cross; so does
//! who is offered a message while the peer has not fetched what it was offered.

/// Longest message that is of no account here, bytes: it goes with its header.
pub const SHORT_BYTES_MAX: usize = 8 << 10;
/// One that crossed counts as many that did not: of two windows of messages, the first ones of the window that begins first meet nothing.
const WEIGHT: u8 = 8;
/// The score from which on messages to a peer go by what crossing takes, and the most; until it is 0.
const FROM: u8 = 12 * WEIGHT;
const MOST: u8 = 16 * WEIGHT;
/// Long messages to a peer of which none comes meanwhile, after which nothing crosses any more.
const ALONE_MAX: u8 = 255;

/// Whether the long messages of one peer and of this process cross.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub(super) struct Crossing {
    score: u8,
    alone: u8,
    on: bool,
    /// The last message of the peer that might have gone with its header was to be read.
    reads: bool,
}

impl Crossing {
    #[inline(always)]
    pub fn is_on(&self) -> bool {
        self.on
    }

    /// A long message has gone through the ring, or come: it has `crossed` another one or not. Whether that changes how the next go.
    pub fn note(&mut self, crossed: bool) -> bool {
        self.score = if crossed { (self.score + WEIGHT).min(MOST) } else { self.score.saturating_sub(1) };
        self.alone = if crossed { 0 } else { self.alone };
        let before = self.on;
        self.on = if before { self.score > 0 } else { self.score >= FROM };
        self.on != before
    }

    /// A long message of the peer has come; whether it is to be read, where it might have gone with its header.
    pub fn came(&mut self, reads: Option<bool>) {
        self.alone = 0;
        self.reads = reads.unwrap_or(self.reads);
    }

    /// Whether the peer lets its messages be read: what this process does, where the peer decides for both.
    pub fn reads(&self) -> bool {
        self.reads
    }

    /// A long message is offered to the peer. Whether that changes how the next go.
    pub fn offered(&mut self) -> bool {
        self.alone = self.alone.saturating_add(1);
        if !self.on || self.alone < ALONE_MAX {
            return false;
        }
        *self = Crossing::default();
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_cross_after_some_and_until_they_do_not() {
        let mut crossing = Crossing::default();
        let changes: Vec<_> = (0..40).filter(|_| crossing.note(true)).collect();
        assert!(changes == [(FROM / WEIGHT) as i32 - 1] && crossing.is_on());
        // Half of each window.
        for at in 0..640 {
            assert!(!crossing.note(at % 64 < 32));
        }
        let changes: Vec<_> = (0..400).filter(|_| crossing.note(false)).collect();
        assert!(changes.len() == 1 && changes[0] < MOST as i32 && !crossing.is_on(), "{changes:?}");
    }

    #[test]
    fn messages_one_way_cross_nothing() {
        let mut crossing = Crossing::default();
        assert!((0..1000).all(|_| !crossing.note(false) && !crossing.offered()));
        (0..MOST).for_each(|_| _ = crossing.note(true));
        // A window of sends before the first of the others is seen.
        for _ in 0..10 {
            assert!((0..200).all(|_| !crossing.offered()));
            crossing.came(None);
        }
        let changes: Vec<_> = (1..1000).filter(|_| crossing.offered()).collect();
        assert!(changes == [ALONE_MAX as i32] && !crossing.is_on());
    }
}
