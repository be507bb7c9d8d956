//! How many frames may be under way to a peer: so many as it has posted receives for, so that the device never has to
//! wait for one (an RNR NAK).
//!
//! Receives are shared by all connections. Each connection is entitled to [`EACH`] of them from its start, for which the
//! pool grows; peers that use up what they have get more, up to [`MOST`], out of [`SPARE`] that all share, and hand them
//! back when the spare ones run out and they have been quieter than others.

/// Frames that a peer may send from the start.
pub const EACH: u32 = 8;
/// Most that a busy peer may send.
pub const MOST: u32 = 64;
/// Receives beside those of each connection, which busy peers share.
pub const SPARE: u32 = 256;

/// The account with one peer.
#[derive(Clone, Debug)]
pub struct Allowance {
    /// Frames that may leave.
    ours: u32,
    /// Frames of the peer that have been taken in, and that it has not been told it may send anew.
    owed: u32,
    /// What the peer may have in all.
    theirs: u32,
    /// Of the peer's frames since its allowance changed last.
    came: u32,
}

impl Allowance {
    pub fn new() -> Allowance {
        Allowance { ours: EACH, owed: 0, theirs: EACH, came: 0 }
    }

    /// Whether a frame may leave. The last one is for frames that hand back credits: so two that have used up all theirs still
    /// hear of each other's.
    pub fn may_send(&self) -> bool {
        self.has_room() || self.ours == 1 && self.is_pressing()
    }

    /// Whether a frame of any kind may leave.
    pub fn has_room(&self) -> bool {
        self.ours > 1
    }

    /// So much is owed that the peer should hear of it even where nothing else goes to it. Two at least, so that frames that hand back
    /// credits do not answer each other without end.
    pub fn is_pressing(&self) -> bool {
        self.owed >= (self.theirs / 2).max(2)
    }

    /// A frame leaves: the credits that go with it.
    ///
    /// # Panics
    /// Where none may.
    pub fn send(&mut self) -> u16 {
        assert!(self.ours > 0, "a frame without a credit");
        self.ours -= 1;
        std::mem::take(&mut self.owed) as u16
    }

    /// A frame has come, with credits. False where the peer had no right to send it, or hands back more than it had.
    pub fn came(&mut self, credits: u16) -> bool {
        self.ours += u32::from(credits);
        self.owed += 1;
        self.came += 1;
        self.owed <= self.theirs && self.ours <= MOST
    }

    /// Whether the peer may get more: it has sent all that it had since it last got some.
    pub fn wants_more(&self) -> bool {
        self.theirs < MOST && self.came >= 2 * self.theirs
    }

    /// Doubles what the peer has, by at most `spare`. By how much.
    pub fn grow(&mut self, spare: u32) -> u32 {
        self.came = 0;
        let more = self.theirs.min(MOST - self.theirs).min(spare);
        self.theirs += more;
        self.owed += more;
        more
    }

    /// Keeps back credits that are owed to a peer that has more than [`EACH`]. How many.
    pub fn shrink(&mut self) -> u32 {
        let less = self.owed.min(self.theirs - EACH);
        self.owed -= less;
        self.theirs -= less;
        less
    }

    /// What the peer has beside [`EACH`].
    pub fn extra(&self) -> u32 {
        self.theirs - EACH
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::VecDeque;

    /// One of two peers.
    struct Side {
        allowance: Allowance,
        /// Frames that it wants to send, and credits of those on their way to it.
        wants: u32,
        arriving: VecDeque<u16>,
    }

    proptest! {
        /// Whatever is sent, taken in, given and kept back in whatever order: a frame never finds no receive, and both sides get rid of all that they have.
        #[test]
        fn nothing_is_stuck(first in 0u32..300, second in 0u32..300, steps in proptest::collection::vec((0u8..5, any::<bool>()), 0..600)) {
            let side = |wants| Side { allowance: Allowance::new(), wants, arriving: VecDeque::new() };
            let mut sides = [side(first), side(second)];
            let mut spare = 100;
            // After the random steps both do all that they can.
            let rest = (0..20_000).map(|at| ([0, 1, 3][at % 3], at % 2 == 0));
            for (act, which) in steps.into_iter().chain(rest) {
                let (one, other) = (which as usize, 1 - which as usize);
                let allowance = &mut sides[one].allowance;
                match act {
                    0 if sides[one].wants > 0 && allowance.ours > 1 => {
                        let credits = allowance.send();
                        sides[one].wants -= 1;
                        sides[other].arriving.push_back(credits);
                    }
                    1 => if let Some(credits) = sides[one].arriving.pop_front() {
                        prop_assert!(sides[one].allowance.came(credits));
                    },
                    2 if allowance.wants_more() => spare -= allowance.grow(spare),
                    3 if allowance.is_pressing() && allowance.may_send() => {
                        let credits = allowance.send();
                        sides[other].arriving.push_back(credits);
                    }
                    4 => spare += allowance.shrink(),
                    _ => {}
                }
                // Each frame on its way has a receive.
                for (at, side) in sides.iter().enumerate() {
                    prop_assert!(side.arriving.len() as u32 + side.allowance.owed <= side.allowance.theirs);
                    let given: u32 = side.arriving.iter().map(|&credits| u32::from(credits)).sum();
                    prop_assert_eq!(side.allowance.ours + given + sides[1 - at].allowance.owed + sides[1 - at].arriving.len() as u32, sides[1 - at].allowance.theirs);
                }
            }
            prop_assert_eq!((sides[0].wants, sides[1].wants), (0, 0), "{:?} {:?}", sides[0].allowance, sides[1].allowance);
        }
    }

    #[test]
    fn a_peer_that_takes_too_much() {
        let mut one = Allowance::new();
        assert!((0..EACH).all(|_| one.came(0)));
        assert!(!one.came(0), "it had no right to");
        assert!(!Allowance::new().came(MOST as u16), "it hands back what it never had");
    }
}
