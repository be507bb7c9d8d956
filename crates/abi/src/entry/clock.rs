//! Timers (MPI-5.0 §9.6).

/// Seconds of the machine's monotonic clock, the same in every process of the machine (`MPI_WTIME_IS_GLOBAL` is true).
pub unsafe fn MPI_Wtime() -> f64 {
    let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `now` is writable; CLOCK_MONOTONIC is always there.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &mut now) };
    now.tv_sec as f64 + now.tv_nsec as f64 * 1e-9
}

/// Resolution of [`MPI_Wtime`] in seconds: that of the clock, one nanosecond.
pub unsafe fn MPI_Wtick() -> f64 {
    1e-9
}
