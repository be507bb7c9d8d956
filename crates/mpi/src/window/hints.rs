//! Info keys of windows (MPI-5.0 §12.2.1, §12.2.3).
#![forbid(unsafe_code)]

use crate::consts::*;
use crate::error::Result;
use crate::hints::{MEMORY_KINDS_ASSERTED, memory_kinds_asserted};
use crate::info::{self, Pairs};
use crate::memory_kinds::MEMORY_KINDS;
use crate::session;
use crate::window::{find, lock};
use crate::{exchange, handle};

/// The promises with a value of `true` or `false`; all are off until the program makes them.
const PROMISES: [&str; 4] = ["no_locks", "same_size", "same_disp_unit", "alloc_shared_noncontig"];
const NO_LOCKS: usize = 0;
const APART: usize = 3;
const ORDERING: &str = "accumulate_ordering";
const OPS: &str = "accumulate_ops";
const GRANULARITY: &str = "mpi_accumulate_granularity";

/// What a program says of a window.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Hints {
    promised: [bool; PROMISES.len()],
    /// Kept as the program gave it: accumulates are always ordered.
    ordering: String,
    ops: String,
    granularity: Option<u64>,
    memory_kinds_asserted: Option<String>,
}

impl Default for Hints {
    fn default() -> Hints {
        let (ordering, ops) = ("rar,raw,war,waw".into(), "same_op_no_op".into());
        Hints { promised: [false; PROMISES.len()], ordering, ops, granularity: None, memory_kinds_asserted: None }
    }
}

fn is_ordering(value: &str) -> bool {
    value == "none" || value.split(',').all(|word| ["rar", "raw", "war", "waw"].contains(&word.trim()))
}

impl Hints {
    /// Takes over what `pairs` has; values that mean nothing are ignored.
    pub fn update(&mut self, pairs: &Pairs) {
        for (key, value) in pairs.iter() {
            let (Ok(key), Ok(value)) = (std::str::from_utf8(key), std::str::from_utf8(value)) else { continue };
            match (PROMISES.iter().position(|name| *name == key), value) {
                (Some(at), "true" | "false") => self.promised[at] = value == "true",
                (None, _) if key == ORDERING && is_ordering(value) => self.ordering = value.into(),
                (None, "same_op" | "same_op_no_op") if key == OPS => self.ops = value.into(),
                (None, _) if key == GRANULARITY => self.granularity = value.parse().ok().or(self.granularity),
                _ => {}
            }
        }
        if let Some(kinds) = memory_kinds_asserted(pairs) {
            self.memory_kinds_asserted = Some(kinds);
        }
    }

    /// The program uses no locks on the window.
    pub fn no_locks(&self) -> bool {
        self.promised[NO_LOCKS]
    }

    /// The parts of `MPI_Win_allocate_shared` need not follow each other.
    pub fn apart(&self) -> bool {
        self.promised[APART]
    }

    fn pairs(&self, flavor: i32, memory_kinds: &str) -> Result<Pairs> {
        let mut pairs = Pairs::new();
        for (at, (name, promised)) in PROMISES.iter().zip(self.promised).enumerate() {
            if at != APART || flavor == MPI_WIN_FLAVOR_SHARED {
                pairs.set(name.as_bytes(), if promised { b"true" } else { b"false" })?;
            }
        }
        pairs.set(ORDERING.as_bytes(), self.ordering.as_bytes())?;
        pairs.set(OPS.as_bytes(), self.ops.as_bytes())?;
        pairs.set(GRANULARITY.as_bytes(), self.granularity.unwrap_or(0).to_string().as_bytes())?;
        pairs.set(MEMORY_KINDS.as_bytes(), memory_kinds.as_bytes())?;
        if let Some(kinds) = &self.memory_kinds_asserted {
            pairs.set(MEMORY_KINDS_ASSERTED.as_bytes(), kinds.as_bytes())?;
        }
        Ok(pairs)
    }
}

/// `MPI_Win_set_info`, collective. What lets the memory's parts lie apart is told again, and moves nothing.
///
/// # Errors
/// `MPI_ERR_WIN`, `MPI_ERR_INFO`.
pub fn set_info(win: handle::Win, given: handle::Info) -> Result<()> {
    let window = find(win)?;
    let pairs = exchange::agree("MPI_Win_set_info", window.comm, info::hints(given))?;
    let mut hints = lock(&window.hints);
    hints.update(&pairs);
    window.epochs.set_no_locks(hints.no_locks());
    Ok(())
}

/// `MPI_Win_get_info`: the hints in use, in a new object.
///
/// # Errors
/// `MPI_ERR_WIN`.
pub fn info(win: handle::Win) -> Result<handle::Info> {
    let window = find(win)?;
    let pairs = lock(&window.hints).pairs(window.flavor, &session::memory_kinds_of(&window.comm.group))?;
    info::create(pairs)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_known_is_taken_and_told_again() {
        let mut pairs = Pairs::new();
        for (key, value) in [("no_locks", "true"), ("same_size", "maybe"), (ORDERING, "rar, waw"), (OPS, "same_op"), (GRANULARITY, "8"), ("other", "x")] {
            pairs.set(key.as_bytes(), value.as_bytes()).unwrap();
        }
        let mut hints = Hints::default();
        hints.update(&pairs);
        assert!(hints.no_locks() && !hints.apart() && !hints.promised[1]);
        let told = hints.pairs(MPI_WIN_FLAVOR_CREATE, "system").unwrap();
        let value = |key: &str| told.value(key.as_bytes()).unwrap().map(|value| String::from_utf8_lossy(value).into_owned());
        assert_eq!(value(ORDERING).as_deref(), Some("rar, waw"));
        assert_eq!(value(GRANULARITY).as_deref(), Some("8"));
        assert_eq!(value("alloc_shared_noncontig"), None);
        assert!(hints.pairs(MPI_WIN_FLAVOR_SHARED, "").unwrap().value(b"alloc_shared_noncontig").unwrap().is_some());
    }
}
