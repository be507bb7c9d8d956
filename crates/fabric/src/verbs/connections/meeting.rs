//! How two processes tie their queue pairs to each other. Each tells the other the number of its pair in a greeting, which goes
//! as a datagram, sealed with the job's key, and may be lost, repeated or overtaken.
//!
//! Both sides do the same, so that it does not matter who begins, nor whether both do: each makes one pair for the peer and
//! greets with its number; it ties its pair to the number that it hears; once it hears that the peer knows its own
//! number, the peer's pair is tied too, and messages may leave. A greeting whose sender does not know that yet is answered.

use crate::reliable::JobKey;

/// A greeting before it is sealed.
pub const GREETING_BYTES: usize = 48;
const MAGIC: u32 = 0x7768_7263;
/// Greetings are sent again after this time, later after twice as long each time, ns.
const AGAIN_NS_MIN: u64 = 5_000_000;
const AGAIN_NS_MAX: u64 = 300_000_000;

/// What a process says of its queue pair.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Own {
    pub number: u32,
    /// Of the first packet.
    pub psn: u32,
    pub mtu_bytes: u32,
    /// Remote reads that it answers at once.
    pub reads: u8,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Greeting {
    /// Rank and incarnation.
    pub from: (u32, u32),
    pub to: (u32, u32),
    pub own: Own,
    /// The number of the receiver's pair, where it is known; else 0.
    pub known: u32,
    /// The sender knows that the receiver knows its number.
    pub met: bool,
}

impl Greeting {
    fn to_bytes(self) -> [u8; GREETING_BYTES] {
        let flags = u32::from(self.own.reads) << 8 | u32::from(self.met);
        let Own { number, psn, mtu_bytes, .. } = self.own;
        let words = [MAGIC, self.from.0, self.from.1, self.to.0, self.to.1, number, psn, mtu_bytes, self.known, flags, 0, 0];
        let mut bytes = [0; GREETING_BYTES];
        bytes.chunks_exact_mut(4).zip(words).for_each(|(to, word)| to.copy_from_slice(&word.to_le_bytes()));
        bytes
    }

    fn parse(bytes: &[u8]) -> Option<Greeting> {
        let bytes: &[u8; GREETING_BYTES] = bytes.try_into().ok()?;
        let word = |at: usize| u32::from_le_bytes([bytes[4 * at], bytes[4 * at + 1], bytes[4 * at + 2], bytes[4 * at + 3]]);
        let own = Own { number: word(5), psn: word(6), mtu_bytes: word(7), reads: (word(9) >> 8) as u8 };
        let sound = word(0) == MAGIC && own.number > 1 && own.number < 1 << 24 && own.mtu_bytes.is_power_of_two() && (256..=4096).contains(&own.mtu_bytes);
        sound.then_some(Greeting { from: (word(1), word(2)), to: (word(3), word(4)), own, known: word(8), met: word(9) & 1 != 0 })
    }

    /// As a datagram; nothing where the system has no random numbers.
    pub fn sealed(self, key: &JobKey) -> Option<Vec<u8>> {
        key.seal(&self.to_bytes()).ok()
    }

    /// What a datagram says, if it was made with `key`.
    pub fn open(sealed: &[u8], key: &JobKey) -> Option<Greeting> {
        Greeting::parse(&key.open(sealed)?)
    }
}

/// What a greeting gives rise to.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Next {
    /// The own pair is to be tied to this one.
    pub tie: Option<Own>,
    /// Messages may leave from now on.
    pub met: bool,
    /// A greeting is to be sent now.
    pub greet: bool,
}

/// One side of a meeting.
#[derive(Clone, Debug)]
pub struct Meeting {
    number: u32,
    theirs: Option<Own>,
    pub met: bool,
    /// When it began, when it greets again, and how long after that, ns.
    pub since_ns: u64,
    again_ns: u64,
    wait_ns: u64,
}

impl Meeting {
    /// For the pair `number`. A greeting is due.
    pub fn new(number: u32, now_ns: u64) -> Meeting {
        Meeting { number, theirs: None, met: false, since_ns: now_ns, again_ns: now_ns, wait_ns: AGAIN_NS_MIN }
    }

    /// The number of the peer's pair, 0 where it is not known.
    pub fn known(&self) -> u32 {
        self.theirs.map_or(0, |theirs| theirs.number)
    }

    /// When a greeting is due.
    pub fn due_ns(&self) -> Option<u64> {
        (!self.met).then_some(self.again_ns)
    }

    /// A greeting leaves.
    pub fn greeted(&mut self, now_ns: u64) {
        self.again_ns = now_ns + self.wait_ns;
        self.wait_ns = (2 * self.wait_ns).min(AGAIN_NS_MAX);
    }

    /// A greeting has come. `None`: it is of another pair than the one that this is tied to; the peer has given that up.
    pub fn heard(&mut self, greeting: &Greeting) -> Option<Next> {
        let mut next = Next::default();
        match self.theirs {
            None => {
                self.theirs = Some(greeting.own);
                next.tie = self.theirs;
            }
            Some(theirs) if theirs == greeting.own => {}
            Some(_) => return None,
        }
        if greeting.known == self.number && !self.met {
            (self.met, next.met) = (true, true);
        }
        next.greet = !greeting.met;
        Some(next)
    }

    /// A message of the peer has come, so it knows this pair. Whether that is new.
    pub fn spoken_to(&mut self) -> bool {
        !std::mem::replace(&mut self.met, true)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn own(number: u32) -> Own {
        Own { number, psn: 7 * number, mtu_bytes: 1024, reads: 16 }
    }

    proptest! {
        #[test]
        fn greetings_come_back(from: (u32, u32), to: (u32, u32), number in 2u32..1 << 24, psn: u32, mtu in 8u32..13, reads: u8, known: u32, met: bool, key: [u8; 32], cut in 0usize..100) {
            let greeting = Greeting { from, to, own: Own { number, psn, mtu_bytes: 1 << mtu, reads }, known, met };
            let key = JobKey::new(key);
            let mut sealed = greeting.sealed(&key).unwrap();
            prop_assert_eq!(Greeting::open(&sealed, &key), Some(greeting));
            let at = cut % sealed.len();
            prop_assert_eq!(Greeting::open(&sealed[..at], &key), None);
            sealed[at] ^= 1;
            prop_assert_eq!(Greeting::open(&sealed, &key), None);
        }

        /// One side begins, or both do; greetings are lost, come twice and overtake each other: each side ties once, to the other's pair, no message
        /// leaves before the other side is tied, and both meet in the end.
        #[test]
        fn two_meet(both: bool, fates in proptest::collection::vec((any::<bool>(), 0u8..4, any::<prop::sample::Index>()), 0..80)) {
            let mut sides: [Option<Meeting>; 2] = [Some(Meeting::new(10, 0)), both.then(|| Meeting::new(11, 0))];
            let mut tied = [None, None];
            let mut under_way: [Vec<Greeting>; 2] = [Vec::new(), Vec::new()];
            let greeting = |sides: &[Option<Meeting>; 2], one: usize| {
                let side = sides[one].as_ref().unwrap();
                Greeting { from: (one as u32, 1), to: (1 - one as u32, 1), own: own(10 + one as u32), known: side.known(), met: side.met }
            };
            let mut now_ns = 0;
            // In the end nothing is lost any more.
            let rest = (0..40).flat_map(|_| [(false, 0), (true, 0), (false, 1), (true, 1)]).map(|(side, act)| (side, act, None));
            for (side, act, at) in fates.into_iter().map(|(side, act, at)| (side, act, Some(at))).chain(rest) {
                let one = side as usize;
                now_ns += AGAIN_NS_MAX / 2;
                match act {
                    0 => if sides[one].as_ref().is_some_and(|side| side.due_ns().is_some_and(|due_ns| due_ns <= now_ns)) {
                        under_way[1 - one].push(greeting(&sides, one));
                        sides[one].as_mut().unwrap().greeted(now_ns);
                    },
                    1 | 3 => while !under_way[one].is_empty() {
                        let at = at.map_or(0, |at| at.index(under_way[one].len()));
                        let came = match act {
                            1 => under_way[one].remove(at),
                            _ => under_way[one][at],
                        };
                        let next = sides[one].get_or_insert_with(|| Meeting::new(10 + one as u32, now_ns)).heard(&came).expect("the same pair");
                        if let Some(theirs) = next.tie {
                            prop_assert_eq!(tied[one].replace(theirs), None);
                            prop_assert_eq!(theirs, own(11 - one as u32));
                        }
                        if next.met {
                            prop_assert!(tied[one].is_some() && tied[1 - one].is_some(), "the other side is not tied");
                        }
                        if next.greet {
                            under_way[1 - one].push(greeting(&sides, one));
                        }
                        if act == 3 {
                            break;
                        }
                    },
                    _ => if let Some(at) = at.filter(|_| !under_way[one].is_empty()) {
                        let at = at.index(under_way[one].len());
                        under_way[one].remove(at);
                    },
                }
            }
            prop_assert!(sides.iter().all(|side| side.as_ref().is_some_and(|side| side.met)), "{:?}", sides);
        }
    }

    #[test]
    fn another_pair_of_the_same_process() {
        let mut one = Meeting::new(10, 0);
        let greeting = Greeting { from: (1, 1), to: (0, 1), own: own(11), known: 0, met: false };
        assert!(one.heard(&greeting).is_some());
        assert_eq!(one.heard(&Greeting { own: own(12), ..greeting }), None);
        assert!(one.spoken_to() && !one.spoken_to());
    }
}
