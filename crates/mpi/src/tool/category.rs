//! Categories (MPI-5.0 §15.3.9): what belongs together. They never change.
#![forbid(unsafe_code)]

use super::{at, cvar, event, pvar};
use crate::error::Result;
use std::sync::LazyLock;

pub struct Category {
    pub name: &'static str,
    pub text: &'static str,
    pub cvars: Vec<i32>,
    pub pvars: Vec<i32>,
    pub events: Vec<i32>,
    pub categories: Vec<i32>,
}

/// Name and meaning. The first holds all others.
const NAMES: [(&str, &str); 8] = [
    ("whimbrel", "This library."),
    ("protocols", "How messages are moved."),
    ("matching", "How messages and receives find each other."),
    ("speculation", "Receives that are announced to their senders."),
    ("flow_control", "What a sender may leave at a receiver."),
    ("memory", "What is reserved."),
    ("waiting", "What a process does that has nothing to do."),
    ("job", "How processes are started and ended, and what is told about them."),
];

/// Where a parameter belongs; what is not listed belongs to the first category.
fn of_row(name: &str) -> &'static str {
    match name {
        "COSTS" | "EAGER_MAX" | "VERBS_RENDEZVOUS" | "VERBS_PRICE" | "VERBS_PERIOD" | "VERBS_CONNECTIONS" | "SINGLE_COPY" | "REQUEST_LINES"
        | "COOPERATIVE_MIN" => "protocols",
        "PROGRESS" | "RENDEZVOUS" | "SPECULATION" | "RTR_USAGE_MIN" | "REPORT_ENVELOPES" => "speculation",
        "UNEXPECTED_MAX" => "flow_control",
        "RING_MEMORY" | "MAP_MEMORY" | "REGISTERED_MAX" | "SEND_IN_PLACE" | "OVERLAP_PINNING" => "memory",
        "SPIN" | "YIELD" => "waiting",
        "REPORT" | "INITIAL_ERRHANDLER" | "FOREIGN_LAUNCHER" | "LIBPMIX" | "INTERRUPT_GRACE" | "ABORT_GRACE" | "PARTIAL_LINE_WAIT" => "job",
        _ => "whimbrel",
    }
}

pub static ALL: LazyLock<Vec<Category>> = LazyLock::new(|| {
    let members = |wanted: &str, categories: &mut dyn Iterator<Item = &'static str>| -> Vec<i32> {
        categories.zip(0..).filter(|(category, _)| *category == wanted).map(|(_, index)| index).collect()
    };
    NAMES
        .iter()
        .map(|&(name, text)| Category {
            name,
            text,
            cvars: members(name, &mut cvar::names().iter().map(|row| of_row(row))),
            pvars: members(name, &mut pvar::ALL.iter().map(|variable| variable.category)),
            events: members(name, &mut event::TYPES.iter().map(|event| event.category)),
            categories: if name == NAMES[0].0 { (1..NAMES.len() as i32).collect() } else { Vec::new() },
        })
        .collect()
});

/// # Errors
/// `MPI_T_ERR_NOT_INITIALIZED`, `MPI_T_ERR_INVALID_INDEX`.
pub fn find(index: i32) -> Result<&'static Category> {
    super::check()?;
    at(&ALL, index, "category")
}

/// # Errors
/// `MPI_T_ERR_NOT_INITIALIZED`, `MPI_T_ERR_INVALID_NAME`.
pub fn index(name: &[u8]) -> Result<i32> {
    super::check()?;
    super::find(&ALL, "category", name, |category| category.name.as_bytes() == name)
}
