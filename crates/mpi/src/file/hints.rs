//! What a program says about a file (MPI-5.0 §14.2.8). Keys that are not here are ignored.
#![forbid(unsafe_code)]

use crate::coll::aggregate::Buffering;
use crate::error::Result;
use crate::hints::{MEMORY_KINDS_ASSERTED, memory_kinds_asserted};
use crate::info::Pairs;
use crate::memory_kinds::MEMORY_KINDS;

/// Hints of one file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Hints {
    pub buffering: Buffering,
    /// `access_style`, kept as it was given: it is told, and changes nothing.
    access_style: Option<Vec<u8>>,
    /// `mpi_assert_memory_alloc_kinds`.
    memory_kinds_asserted: Option<String>,
    /// `file_perm`: permissions of a file that is created, octal.
    pub permissions: Option<u32>,
}

/// Longest stripe that a hint may ask for, bytes.
const STRIPE_BYTES_MAX: u64 = 1 << 30;

impl Hints {
    /// Takes over what `pairs` says; values that cannot be are ignored.
    ///
    /// # Errors
    /// As [`Pairs::value`].
    pub fn update(&mut self, pairs: &Pairs) -> Result<()> {
        if let Some(on) = pairs.value(b"collective_buffering")? {
            match on {
                b"true" | b"enable" => self.buffering.on = Some(true),
                b"false" | b"disable" => self.buffering.on = Some(false),
                _ => {}
            }
        }
        if let Some(bytes) = number(pairs, b"cb_buffer_size")?.filter(|bytes| (1..=STRIPE_BYTES_MAX).contains(bytes)) {
            self.buffering.stripe_bytes_max = bytes;
        }
        if let Some(nodes) = number(pairs, b"cb_nodes")? {
            self.buffering.aggregators = nodes as usize;
        }
        if let Some(style) = pairs.value(b"access_style")? {
            self.access_style = Some(style.to_vec());
        }
        if let Some(text) = pairs.value(b"file_perm")?
            && let Some(permissions) = std::str::from_utf8(text).ok().and_then(|text| u32::from_str_radix(text, 8).ok())
        {
            self.permissions = Some(permissions & 0o777);
        }
        if let Some(kinds) = memory_kinds_asserted(pairs) {
            self.memory_kinds_asserted = Some(kinds);
        }
        Ok(())
    }

    /// All hints in use, and the kinds of memory that its session, or the World model, supports.
    ///
    /// # Errors
    /// As [`Pairs::set`].
    pub fn pairs(&self, memory_kinds: &str) -> Result<Pairs> {
        let mut pairs = Pairs::new();
        pairs.set(MEMORY_KINDS.as_bytes(), memory_kinds.as_bytes())?;
        if let Some(kinds) = &self.memory_kinds_asserted {
            pairs.set(MEMORY_KINDS_ASSERTED.as_bytes(), kinds.as_bytes())?;
        }
        pairs.set(b"collective_buffering", if self.buffering.on != Some(false) { b"true" } else { b"false" })?;
        pairs.set(b"cb_buffer_size", self.buffering.stripe_bytes_max.to_string().as_bytes())?;
        if self.buffering.aggregators > 0 {
            pairs.set(b"cb_nodes", self.buffering.aggregators.to_string().as_bytes())?;
        }
        if let Some(style) = &self.access_style {
            pairs.set(b"access_style", style)?;
        }
        if let Some(permissions) = self.permissions {
            pairs.set(b"file_perm", format!("{permissions:o}").as_bytes())?;
        }
        Ok(pairs)
    }
}

fn number(pairs: &Pairs, key: &[u8]) -> Result<Option<u64>> {
    Ok(pairs.value(key)?.and_then(|value| std::str::from_utf8(value).ok()?.trim().parse().ok()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_hints_are_taken_and_told_and_others_ignored() {
        let mut pairs = Pairs::new();
        for (key, value) in [("collective_buffering", "false"), ("cb_buffer_size", "65536"), ("cb_nodes", "3"), ("striping_unit", "7"), ("file_perm", "640")] {
            pairs.set(key.as_bytes(), value.as_bytes()).unwrap();
        }
        let mut hints = Hints::default();
        hints.update(&pairs).unwrap();
        assert_eq!(hints.buffering, Buffering { on: Some(false), stripe_bytes_max: 65_536, aggregators: 3 });
        assert_eq!(hints.permissions, Some(0o640));
        let told = hints.pairs("mpi,system").unwrap();
        assert_eq!(told.value(b"cb_nodes").unwrap(), Some(&b"3"[..]));
        assert_eq!(told.value(b"striping_unit").unwrap(), None);
        let mut nonsense = Pairs::new();
        nonsense.set(b"cb_buffer_size", b"many").unwrap();
        nonsense.set(b"collective_buffering", b"perhaps").unwrap();
        let before = hints.clone();
        hints.update(&nonsense).unwrap();
        assert_eq!(hints, before);
    }
}
