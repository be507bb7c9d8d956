//! Enumerations (MPI-5.0 §15.3.5): what the values of a variable mean, and how the elements of an event are called.
#![forbid(unsafe_code)]

use super::event::TYPES;
use crate::consts::*;
use crate::error::Result;
use crate::handle::TEnum;
use params::{Kind, Row};
use std::sync::LazyLock;

/// Item number `n` has the value `n`.
pub struct Enumeration {
    pub name: String,
    pub items: Vec<&'static str>,
}

/// Values of `phase`.
pub const PHASES: [&str; 3] = ["before initialization", "initialized", "finalized"];

static ALL: LazyLock<Vec<Enumeration>> = LazyLock::new(|| {
    let mut all = vec![Enumeration { name: "switch".into(), items: vec!["off", "on"] }, Enumeration { name: "phase".into(), items: PHASES.to_vec() }];
    for row in params::table::ALL {
        if let Kind::Choice(words) = row.kind() {
            all.push(Enumeration { name: row.name().to_lowercase(), items: words.to_vec() });
        }
    }
    for event in &TYPES {
        let items = event.elements.iter().map(|element| element.name).collect();
        all.push(Enumeration { name: format!("{}_elements", event.name), items });
    }
    all
});

fn named(name: &str) -> TEnum {
    ALL.iter().position(|e| e.name == name).map_or(MPI_T_ENUM_NULL, |index| TEnum(FIRST_FREE_HANDLE + index))
}

/// What the values of a parameter mean, `MPI_T_ENUM_NULL` where they are numbers or text.
pub fn of_row(row: &Row) -> TEnum {
    match row.kind() {
        Kind::Switch => named("switch"),
        Kind::Choice(_) => named(&row.name().to_lowercase()),
        _ => MPI_T_ENUM_NULL,
    }
}

/// What the values of the variable `phase` mean.
pub fn of_phase() -> TEnum {
    named("phase")
}

/// How the elements of an event are called.
pub fn of_event(name: &str) -> TEnum {
    named(&format!("{name}_elements"))
}

/// The enumeration of a handle.
///
/// # Errors
/// `MPI_T_ERR_NOT_INITIALIZED`, `MPI_T_ERR_INVALID_HANDLE`.
pub fn find(handle: TEnum) -> Result<&'static Enumeration> {
    super::check()?;
    handle.0.checked_sub(FIRST_FREE_HANDLE).and_then(|index| ALL.get(index)).ok_or_else(|| super::bad_handle("enumeration", handle.0))
}

impl Enumeration {
    /// Name of item `index`, whose value is the index.
    ///
    /// # Errors
    /// `MPI_T_ERR_INVALID_INDEX`.
    pub fn item(&self, index: i32) -> Result<&'static str> {
        super::at(&self.items, index, "item").copied()
    }
}
