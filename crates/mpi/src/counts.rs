//! What is counted outside of the engines.
#![forbid(unsafe_code)]

use std::sync::atomic::{AtomicU64, Ordering};

/// Requests that this process has posted in request lines, and that it has taken back.
pub static REQUESTS_POSTED: AtomicU64 = AtomicU64::new(0);
pub static REQUESTS_WITHDRAWN: AtomicU64 = AtomicU64::new(0);

/// Both of them.
pub fn request_lines() -> [u64; 2] {
    [&REQUESTS_POSTED, &REQUESTS_WITHDRAWN].map(|count| count.load(Ordering::Relaxed))
}
