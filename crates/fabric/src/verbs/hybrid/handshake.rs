//! How two processes that reach each other in any case agree that they have a connection, too, and that they have none any more.
//!
//! Their words are sent in order and none is lost. Each attempt of a process has a number of its own. Whoever wants a connection makes a pair of queues and tells of
//! it; the other one makes its own, ties that to it, and tells of its own in return. Where both begin, each takes the other's word for the answer. Whoever has tied its
//! pair says so, and messages may leave once the other one has said it. Either may end it whenever it wants, and says which attempts it means: so nothing that
//! is said of one that has ended is taken for a word about the next.

/// What processes say to each other.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Word {
    /// A pair has been made for the attempt `mine`, which answers the receiver's attempt, or none (0).
    Connect { mine: u32, answers: u32 },
    /// The pair of the sender's attempt `mine` is tied to that of the receiver's attempt.
    Ready { mine: u32, theirs: u32 },
    /// The sender's attempt `mine` has ended, or there will be none (0) for the receiver's attempt `theirs`, where that is known (else 0).
    Ended { mine: u32, theirs: u32 },
}

/// How far a process is.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default, Debug)]
enum Stage {
    #[default]
    None,
    /// It has told of its pair.
    Calling,
    /// Its pair is tied to the peer's.
    Tied,
    /// The peer's is tied to its own: messages may leave.
    Open,
}

/// What becomes of the peer's pair.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Heard {
    /// A pair is to be made ([`Handshake::call`]), or there is none ([`Handshake::refuse`]); then as [`Heard::Tie`].
    Answer,
    /// The own pair is to be tied to it: [`Handshake::tied`] says so, or [`Handshake::end`].
    Tie,
    /// Nothing: this is to be said.
    Refuse(Word),
}

#[derive(Clone, PartialEq, Eq, Hash, Default, Debug)]
pub struct Handshake {
    stage: Stage,
    /// The last own attempt, and that of the peer that it is tied to.
    mine: u32,
    theirs: u32,
}

impl Handshake {
    /// There is a pair, or one is wanted.
    pub fn is_begun(&self) -> bool {
        self.stage != Stage::None
    }

    pub fn is_open(&self) -> bool {
        self.stage == Stage::Open
    }

    /// A pair has been made; `answers`: the peer's attempt, or 0.
    pub fn call(&mut self, answers: u32) -> Word {
        debug_assert!(!self.is_begun());
        self.stage = Stage::Calling;
        // No attempt is 0.
        self.mine = self.mine.checked_add(1).unwrap_or(1);
        Word::Connect { mine: self.mine, answers }
    }

    /// The peer tells of the pair of its attempt `theirs`.
    pub fn asked(&self, theirs: u32, answers: u32) -> Heard {
        if answers != 0 && (answers != self.mine || self.stage != Stage::Calling) {
            return Heard::Refuse(Word::Ended { mine: answers, theirs });
        }
        match self.stage {
            Stage::None => Heard::Answer,
            Stage::Calling => Heard::Tie,
            Stage::Tied | Stage::Open => Heard::Refuse(self.refuse(theirs)),
        }
    }

    /// There is no pair for the peer's attempt `theirs`.
    pub fn refuse(&self, theirs: u32) -> Word {
        Word::Ended { mine: 0, theirs }
    }

    /// The own pair is tied to that of the peer's attempt `theirs`.
    pub fn tied(&mut self, theirs: u32) -> Word {
        debug_assert_eq!(self.stage, Stage::Calling);
        (self.stage, self.theirs) = (Stage::Tied, theirs);
        Word::Ready { mine: self.mine, theirs }
    }

    /// The pair of the peer's attempt `theirs` is tied to the own one of attempt `mine`. Whether messages may leave by that.
    pub fn ready(&mut self, theirs: u32, mine: u32) -> bool {
        let opens = self.stage == Stage::Tied && (self.mine, self.theirs) == (mine, theirs);
        if opens {
            self.stage = Stage::Open;
        }
        opens
    }

    /// The peer has ended its attempt `theirs`, or the own one `mine`. Where that ends the own pair it is said, too: the peer may have taken what was told of it
    /// for the answer to its next attempt.
    pub fn ended(&mut self, theirs: u32, mine: u32) -> Option<Word> {
        let ends = self.is_begun() && (theirs != 0 && theirs == self.theirs || mine != 0 && mine == self.mine);
        ends.then(|| self.end())
    }

    /// The own pair ends.
    pub fn end(&mut self) -> Word {
        let word = Word::Ended { mine: self.mine, theirs: self.theirs };
        (self.stage, self.theirs) = (Stage::None, 0);
        word
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::{HashMap, HashSet, VecDeque};

    /// Two processes, and the words between them.
    #[derive(Clone, PartialEq, Eq, Hash, Default, Debug)]
    struct World {
        ends: [Handshake; 2],
        /// To each of them.
        words: [VecDeque<Word>; 2],
        /// Pairs that exist: own attempt, and the peer's that it is tied to.
        pairs: [Option<(u32, u32)>; 2],
        /// How often each may still begin, and end what has begun.
        calls: [u8; 2],
        closes: [u8; 2],
    }

    impl World {
        fn say(&mut self, from: usize, word: Word) {
            self.words[1 - from].push_back(word);
        }

        fn call(&mut self, end: usize, answers: u32) {
            let word = self.ends[end].call(answers);
            self.pairs[end] = Some((self.ends[end].mine, 0));
            self.say(end, word);
        }

        fn tie(&mut self, end: usize, theirs: u32) {
            self.pairs[end].as_mut().unwrap().1 = theirs;
            let word = self.ends[end].tied(theirs);
            self.say(end, word);
        }

        /// The next word is heard; `refuses`: no pair can be made.
        fn hear(&mut self, end: usize, refuses: bool) {
            match self.words[end].pop_front().unwrap() {
                Word::Connect { mine, answers } => match self.ends[end].asked(mine, answers) {
                    Heard::Answer if refuses => {
                        let word = self.ends[end].refuse(mine);
                        self.say(end, word);
                    }
                    Heard::Answer => {
                        self.call(end, mine);
                        self.tie(end, mine);
                    }
                    Heard::Tie => self.tie(end, mine),
                    Heard::Refuse(word) => self.say(end, word),
                },
                Word::Ready { mine, theirs } => {
                    if self.ends[end].ready(mine, theirs) {
                        // What leaves now finds a pair that is tied to this one, or none: not another one.
                        let own = self.pairs[end].unwrap();
                        assert!(self.pairs[1 - end].is_none_or(|(mine, theirs)| mine != own.1 || theirs == own.0), "{self:?}");
                    }
                }
                Word::Ended { mine, theirs } => {
                    if let Some(word) = self.ends[end].ended(mine, theirs) {
                        self.pairs[end] = None;
                        self.say(end, word);
                    }
                }
            }
        }

        /// Every world that may follow.
        fn next(&self) -> Vec<World> {
            let mut all = Vec::new();
            for end in 0..2 {
                let mut next = |act: &dyn Fn(&mut World)| {
                    let mut next = self.clone();
                    act(&mut next);
                    assert_eq!(next.pairs[end].is_some(), next.ends[end].is_begun());
                    all.push(next);
                };
                if self.calls[end] > 0 && !self.ends[end].is_begun() {
                    next(&|next| {
                        next.calls[end] -= 1;
                        next.call(end, 0);
                    });
                }
                if self.closes[end] > 0 && self.ends[end].is_begun() {
                    next(&|next| {
                        next.closes[end] -= 1;
                        next.pairs[end] = None;
                        let word = next.ends[end].end();
                        next.say(end, word);
                    });
                }
                if let Some(word) = self.words[end].front() {
                    next(&|next| next.hear(end, false));
                    if matches!(word, Word::Connect { .. }) && self.closes[end] > 0 {
                        next(&|next| {
                            next.closes[end] -= 1;
                            next.hear(end, true);
                        });
                    }
                }
            }
            all
        }
    }

    /// Whoever begins, ends and refuses, in whatever order: when all has been heard both have a connection to each other, or both none.
    #[test]
    fn all_orders() {
        let first = World { calls: [2, 2], closes: [2, 2], ..World::default() };
        let (mut known, mut waiting, mut ends) = (HashSet::from([first.clone()]), vec![first], HashMap::<bool, u32>::new());
        while let Some(world) = waiting.pop() {
            if world.words.iter().all(VecDeque::is_empty) {
                let open = world.ends.iter().all(Handshake::is_open);
                match (world.pairs, open) {
                    ([Some(one), Some(other)], true) => assert_eq!(one, (other.1, other.0), "{world:?}"),
                    (pairs, _) => assert_eq!(pairs, [None, None], "{world:?}"),
                }
                *ends.entry(open).or_default() += 1;
            }
            waiting.extend(world.next().into_iter().filter(|next| known.insert(next.clone())));
        }
        assert!(ends[&true] > 10 && ends[&false] > 10, "{ends:?}");
    }

    #[test]
    fn numbers_begin_anew() {
        let mut one = Handshake { mine: u32::MAX, ..Handshake::default() };
        assert_eq!(one.call(0), Word::Connect { mine: 1, answers: 0 });
    }
}
