//! Whether arguments are checked (MPI-5.0 §9.3): the parameter `ARGUMENT_CHECKS`.
//!
//! Off, a wrong argument is taken as it is. Checks that cost nothing extra because the work needs them anyway (a rank's process, a
//! handle's object, a count's bytes), and those that keep other processes from harm, stay.
#![forbid(unsafe_code)]

use std::sync::atomic::{AtomicBool, Ordering};

static ON: AtomicBool = AtomicBool::new(true);

/// Asked where an argument has been found wrong, so that right ones do not pay for the question.
#[inline]
pub fn on() -> bool {
    ON.load(Ordering::Relaxed)
}

pub fn set(on: bool) {
    ON.store(on, Ordering::Relaxed);
}
