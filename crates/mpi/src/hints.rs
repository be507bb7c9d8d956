//! What a program promises about its communication on one communicator (MPI-5.0 §7.4.4).
#![forbid(unsafe_code)]

use crate::error::Result;
use crate::info::Pairs;
use crate::memory_kinds::MEMORY_KINDS;
use params::kinds;

/// The assertions of the standard. All are off until the program sets them; keys that are not here are ignored.
const ASSERTIONS: [&str; 5] = [
    "mpi_assert_no_any_tag",
    "mpi_assert_no_any_source",
    "mpi_assert_exact_length",
    "mpi_assert_allow_overtaking",
    "mpi_assert_strict_persistent_collective_ordering",
];

/// A program's promise to use memory of these kinds alone with one object. It is taken where all of them are supported, and told again.
pub const MEMORY_KINDS_ASSERTED: &str = "mpi_assert_memory_alloc_kinds";

/// The promise in `pairs`; `None` where there is none, or one that names a kind that is not supported.
pub fn memory_kinds_asserted(pairs: &Pairs) -> Option<String> {
    let value = std::str::from_utf8(pairs.value(MEMORY_KINDS_ASSERTED.as_bytes()).ok()??).ok()?;
    (kinds::list(value).next().is_some() && kinds::list(value).all(kinds::is_known)).then(|| value.to_owned())
}

/// The hints of a communicator.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Hints {
    asserted: [bool; ASSERTIONS.len()],
    /// The value of [`MEMORY_KINDS_ASSERTED`].
    memory_kinds_asserted: Option<String>,
}

impl Hints {
    /// Takes over the assertions that `pairs` has; others stay. Values that are no booleans are ignored.
    pub fn update(&mut self, pairs: &Pairs) {
        for (key, value) in pairs.iter() {
            let known = ASSERTIONS.iter().position(|name| name.as_bytes() == key);
            if let (Some(at), Some(value)) = (known, boolean(value)) {
                self.asserted[at] = value;
            }
        }
        if let Some(kinds) = memory_kinds_asserted(pairs) {
            self.memory_kinds_asserted = Some(kinds);
        }
    }

    /// All hints in use, and the kinds of memory that its session, or the World model, supports.
    ///
    /// # Errors
    /// As [`Pairs::set`].
    pub fn pairs(&self, memory_kinds: &str) -> Result<Pairs> {
        let mut pairs = Pairs::new();
        for (name, asserted) in ASSERTIONS.iter().zip(self.asserted) {
            pairs.set(name.as_bytes(), if asserted { b"true" } else { b"false" })?;
        }
        pairs.set(MEMORY_KINDS.as_bytes(), memory_kinds.as_bytes())?;
        if let Some(kinds) = &self.memory_kinds_asserted {
            pairs.set(MEMORY_KINDS_ASSERTED.as_bytes(), kinds.as_bytes())?;
        }
        Ok(pairs)
    }
}

fn boolean(value: &[u8]) -> Option<bool> {
    match value {
        b"true" => Some(true),
        b"false" => Some(false),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hints_change_one_by_one() {
        let mut given = Pairs::new();
        given.set(b"mpi_assert_exact_length", b"true").unwrap();
        given.set(b"mpi_assert_no_any_tag", b"perhaps").unwrap();
        given.set(b"colour", b"blue").unwrap();
        let mut hints = Hints::default();
        hints.update(&given);
        let used = hints.pairs(kinds::ALWAYS).unwrap();
        assert_eq!(used.value(b"mpi_assert_exact_length").unwrap(), Some(&b"true"[..]));
        assert_eq!(used.value(b"mpi_assert_no_any_tag").unwrap(), Some(&b"false"[..]));
        assert_eq!(used.value(b"colour").unwrap(), None);
        hints.update(&Pairs::new());
        assert_eq!(hints.pairs(kinds::ALWAYS).unwrap(), used);
    }
}
