//! Timers (MPI-5.0 §9.6).

use std::time::Instant;

static START: std::sync::OnceLock<Instant> = std::sync::OnceLock::new();

/// Seconds since the first call in this process, by the monotonic clock.
pub unsafe fn MPI_Wtime() -> f64 {
    START.get_or_init(Instant::now).elapsed().as_secs_f64()
}

/// Resolution of [`MPI_Wtime`]: one nanosecond.
pub unsafe fn MPI_Wtick() -> f64 {
    1e-9
}
