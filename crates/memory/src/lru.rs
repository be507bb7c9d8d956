//! Which of several things was used the longest ago? An order of use over small numbers, each operation in constant time.

#![forbid(unsafe_code)]

const NONE: u32 = u32::MAX;

#[derive(Clone, Copy)]
struct Link {
    older: u32,
    newer: u32,
    is_in: bool,
}

/// Numbers in the order in which they were last touched.
pub struct Lru {
    links: Vec<Link>,
    oldest: u32,
    newest: u32,
}

impl Lru {
    pub fn new() -> Lru {
        Lru { links: Vec::new(), oldest: NONE, newest: NONE }
    }

    pub fn oldest(&self) -> Option<u32> {
        (self.oldest != NONE).then_some(self.oldest)
    }

    /// `number` is the newest from now on, whether it was in the order or not.
    pub fn touch(&mut self, number: u32) {
        self.remove(number);
        if self.links.len() <= number as usize {
            self.links.resize(number as usize + 1, Link { older: NONE, newer: NONE, is_in: false });
        }
        self.links[number as usize] = Link { older: self.newest, newer: NONE, is_in: true };
        match self.newest {
            NONE => self.oldest = number,
            newest => self.links[newest as usize].newer = number,
        }
        self.newest = number;
    }

    /// Takes `number` out, if it is there.
    pub fn remove(&mut self, number: u32) {
        let Some(link) = self.links.get_mut(number as usize).filter(|link| link.is_in) else { return };
        link.is_in = false;
        let Link { older, newer, .. } = *link;
        match older {
            NONE => self.oldest = newer,
            older => self.links[older as usize].newer = newer,
        }
        match newer {
            NONE => self.newest = older,
            newer => self.links[newer as usize].older = older,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn the_oldest_is_that_of_a_plain_list(program in prop::collection::vec((0u32..12, any::<bool>()), 0..200)) {
            let (mut lru, mut plain) = (Lru::new(), Vec::new());
            for (number, touched) in program {
                plain.retain(|&other| other != number);
                if touched {
                    lru.touch(number);
                    plain.push(number);
                } else {
                    lru.remove(number);
                }
                prop_assert_eq!(lru.oldest(), plain.first().copied());
            }
        }
    }
}
