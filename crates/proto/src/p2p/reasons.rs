//! Who may send in a context, and why processes have failed.

use super::ports::Error;
use crate::matching::Pattern;
use std::sync::{Arc, Mutex, PoisonError};

/// Who may send in a context.
pub trait Senders: Send + Sync {
    /// The process whose messages `pattern` accepts, if it is one.
    fn process(&self, pattern: Pattern) -> Option<u32>;
    /// Whether `process` may send here.
    fn contains(&self, process: u32) -> bool;
    /// Whether all that happens here is one another's condition.
    fn together(&self) -> bool;
}

/// Why processes have failed, for whoever tells of it without the engine.
#[derive(Clone, Debug)]
pub struct Reasons<F>(Arc<Mutex<Vec<(u32, F)>>>);

impl<F> Default for Reasons<F> {
    fn default() -> Self {
        Reasons(Arc::default())
    }
}

impl<F: Clone> Reasons<F> {
    /// Why nothing can be expected of `process` any more.
    pub fn of<E: Error + Into<F>>(&self, process: u32) -> F {
        let all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let known = all.iter().find(|(failed, _)| *failed == process).map(|(_, why)| why.clone());
        known.unwrap_or_else(|| E::peer(process, "it has failed".into()).into())
    }

    pub(super) fn add(&self, process: u32, why: F) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push((process, why));
    }
}
