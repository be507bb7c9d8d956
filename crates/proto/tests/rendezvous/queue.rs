//! Matching as the standard has it, in its simplest form, for the models to be checked against.

/// Any tag, any source.
pub const ANY: u8 = u8::MAX;

/// What of a posted receive decides about matching.
pub trait Posted {
    fn source(&self) -> u8;
    fn tag(&self) -> u8;
    /// No message has matched it yet.
    fn waits(&self) -> bool;
    fn announced_to(&self, peer: u8) -> bool;

    fn accepts(&self, source: u8, tag: u8) -> bool {
        (self.source() == source || self.source() == ANY) && (self.tag() == tag || self.tag() == ANY)
    }
}

/// The oldest receive that waits and accepts a message.
pub fn oldest<P: Posted>(posted: &[P], source: u8, tag: u8) -> Option<usize> {
    posted.iter().position(|p| p.waits() && p.accepts(source, tag))
}

/// The rule of Fig. 9: whether receive `at` may be announced to `peer`.
pub fn may_announce<P: Posted>(posted: &[P], at: usize, peer: u8) -> bool {
    let tag = posted[at].tag();
    !posted[..at].iter().any(|p| {
        let meets = p.tag() == tag || p.tag() == ANY || tag == ANY;
        p.waits() && meets && (p.source() == peer || p.source() == ANY) && !p.announced_to(peer)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::explore::Random;
    use proto::matching::{Matcher, Pattern};
    use proto::wire::Context;

    #[derive(Clone, Copy)]
    struct Plain {
        id: u32,
        source: u8,
        tag: u8,
        announced: bool,
        place: u32,
    }

    impl Posted for Plain {
        fn source(&self) -> u8 {
            self.source
        }
        fn tag(&self) -> u8 {
            self.tag
        }
        fn waits(&self) -> bool {
            true
        }
        fn announced_to(&self, _: u8) -> bool {
            self.announced
        }
    }

    fn pattern(source: u8, tag: u8) -> Pattern {
        Pattern { source: if source == ANY { Pattern::ANY_SOURCE } else { source as u32 }, tag: if tag == ANY { Pattern::ANY_TAG } else { tag as i32 } }
    }

    /// The engine's queues do what the model's do; about announcing they may only be more careful.
    #[test]
    fn the_engine_s_queues_match_as_the_model_s() {
        let (mut granted, mut careful) = (0, 0);
        for seed in 0..300 {
            let mut random = Random(seed);
            let mut matcher: Matcher<u32, u32> = Matcher::default();
            let index = matcher.open(Context::new(0, 1).expect("a context"));
            let (mut posted, mut unexpected): (Vec<Plain>, Vec<(u8, u8, u32)>) = (Vec::new(), Vec::new());
            let tags = 1 + random.below(5);
            for id in 0..400u32 {
                let (source, tag) = (random.below(3) as u8, random.below(tags) as u8);
                match random.below(5) {
                    0 | 1 => {
                        let source = if random.below(4) == 0 { ANY } else { source };
                        let tag = if random.below(4) == 0 { ANY } else { tag };
                        let mut new = Plain { id, source, tag, announced: false, place: 0 };
                        let found = unexpected.iter().position(|&(s, t, _)| new.accepts(s, t));
                        match matcher.post(index, pattern(source, tag), id) {
                            Ok(aside) => {
                                let message = matcher.take(aside);
                                let (_, _, expected) = unexpected.remove(found.expect("the model has it too"));
                                assert_eq!(message, expected);
                            }
                            Err(place) => {
                                assert_eq!(found, None);
                                new.place = place;
                                posted.push(new);
                                let at = posted.len() - 1;
                                let may = matcher.may_announce(index, place);
                                // To the only one that can send, whichever that is.
                                let mut senders = (0..3).filter(|sender| [ANY, *sender].contains(&source));
                                let model = senders.all(|sender| may_announce(&posted, at, sender));
                                assert!(model || !may, "announced where the model says no");
                                granted += may as u32;
                                careful += (model && !may) as u32;
                                if may && random.below(4) > 0 {
                                    matcher.announce(place, true);
                                    posted[at].announced = true;
                                }
                            }
                        }
                    }
                    2 | 3 => {
                        let found = oldest(&posted, source, tag).map(|at| posted.remove(at).id);
                        assert_eq!(matcher.arrive(index, source as u32, tag as i32), found);
                        if found.is_none() {
                            matcher.keep(index, source as u32, tag as i32, id);
                            unexpected.push((source, tag, id));
                        }
                    }
                    _ if !posted.is_empty() => {
                        let at = random.below(posted.len());
                        if random.below(2) == 0 {
                            matcher.withdraw(index, posted.remove(at).place);
                        } else {
                            posted[at].announced = false;
                            matcher.announce(posted[at].place, false);
                        }
                    }
                    _ => {}
                }
            }
        }
        assert!(granted > 1000 && careful < granted, "{granted} announced, {careful} held back");
    }
}
