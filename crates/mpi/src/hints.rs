//! What a program promises about its communication on one communicator (MPI-5.0 §7.4.4).
#![forbid(unsafe_code)]

use crate::consts::MPI_MAX_INFO_VAL;
use crate::error::Result;
use crate::info::Pairs;

/// The assertions of the standard. All are off until the program sets them; keys that are not here are ignored.
const ASSERTIONS: [&str; 5] = [
    "mpi_assert_no_any_tag",
    "mpi_assert_no_any_source",
    "mpi_assert_exact_length",
    "mpi_assert_allow_overtaking",
    "mpi_assert_strict_persistent_collective_ordering",
];

/// Kinds of memory that a program may hand over (MPI-5.0 §11.4.3). Read only.
pub const MEMORY_KINDS: (&str, &str) = ("mpi_memory_alloc_kinds", "mpi,system");

/// Kinds that are supported of those `asked` for, a list separated by commas (MPI-5.0 §11.4.3). `mpi` and `system` always are; a
/// kind with restrictors is where all of these are known.
pub fn memory_kinds(asked: &[u8]) -> String {
    const OF_MPI: [&str; 3] = ["alloc_mem", "win_allocate", "win_allocate_shared"];
    let mut kinds = MEMORY_KINDS.1.to_string();
    for kind in String::from_utf8_lossy(asked).split(',').map(str::trim) {
        let restrictors = kind.strip_prefix("mpi:");
        let known = restrictors.is_some_and(|all| all.split(':').all(|one| OF_MPI.contains(&one)));
        if known && kinds.len() + kind.len() + 1 < MPI_MAX_INFO_VAL && !kinds.split(',').any(|there| there == kind) {
            kinds = format!("{kinds},{kind}");
        }
    }
    kinds
}

/// The hints of a communicator.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Hints {
    asserted: [bool; ASSERTIONS.len()],
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
    }

    /// All hints in use, and the kinds of memory that its session supports.
    ///
    /// # Errors
    /// As [`Pairs::set`].
    pub fn pairs(&self, memory_kinds: &str) -> Result<Pairs> {
        let mut pairs = Pairs::new();
        for (name, asserted) in ASSERTIONS.iter().zip(self.asserted) {
            pairs.set(name.as_bytes(), if asserted { b"true" } else { b"false" })?;
        }
        pairs.set(MEMORY_KINDS.0.as_bytes(), memory_kinds.as_bytes())?;
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
        let used = hints.pairs(MEMORY_KINDS.1).unwrap();
        assert_eq!(used.value(b"mpi_assert_exact_length").unwrap(), Some(&b"true"[..]));
        assert_eq!(used.value(b"mpi_assert_no_any_tag").unwrap(), Some(&b"false"[..]));
        assert_eq!(used.value(b"colour").unwrap(), None);
        hints.update(&Pairs::new());
        assert_eq!(hints.pairs(MEMORY_KINDS.1).unwrap(), used);
    }
}
