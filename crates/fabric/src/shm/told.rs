//! What a segment says of the memory that its process gives out.

use super::shared::SharedName;
use crate::Error;
use memory::arena::Range;
use std::sync::atomic::{AtomicU64, Ordering};

/// A range as a segment tells of it: five words, the first of which is written last. 0: there is none.
#[repr(C)]
#[derive(Default)]
pub struct Told([AtomicU64; 2 + SharedName::WORDS]);

impl Told {
    /// Errors: the descriptor is none.
    pub fn tell(&self, range: Range) -> Result<(), Error> {
        let name = SharedName::of_descriptor(range.fd)?;
        let words = std::iter::once(range.bytes).chain(name.to_words());
        self.0[1..].iter().zip(words).for_each(|(word, value)| word.store(value, Ordering::Relaxed));
        self.0[0].store(range.start, Ordering::Release);
        Ok(())
    }

    /// First address, bytes, and the file's name. `None`: nothing has been told.
    pub fn heard(&self) -> Option<(u64, u64, SharedName)> {
        let start = self.0[0].load(Ordering::Acquire);
        let word = |at: usize| self.0[at].load(Ordering::Relaxed);
        (start != 0).then(|| (start, word(1), SharedName::from_words([word(2), word(3), word(4)])))
    }
}
