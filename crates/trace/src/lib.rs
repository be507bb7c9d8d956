//! What happened? Counters and the report made of them.
#![forbid(unsafe_code)]

mod counters;
pub mod events;
mod report;

pub use counters::{Connections, Counters, DATA_PATHS, DataPath, Registrations, SIZE_CLASSES, Tally, class_of, class_range};
pub use report::{Announcements, Summary, Tags, report, report_envelopes};

/// Nanoseconds on a clock that never goes back, since an arbitrary start.
pub fn now_ns() -> u64 {
    use std::sync::OnceLock;
    use std::time::Instant;
    static START: OnceLock<Instant> = OnceLock::new();
    START.get_or_init(Instant::now).elapsed().as_nanos() as u64
}
