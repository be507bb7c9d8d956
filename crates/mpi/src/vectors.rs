//! Loops over elements, compiled for each width of vectors that processors have, and chosen when the program runs.

use std::sync::atomic::{AtomicU8, Ordering};

/// A loop.
pub trait Loop {
    /// Must be inlined (`#[inline(always)]`), with all that it calls for each element: what is not is compiled for the narrowest vectors.
    fn run(self);
}

/// What a loop is compiled for; each processor of a kind has those before its own.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Width {
    /// What every processor of the architecture has.
    Least,
    /// AVX2.
    Bits256,
    /// AVX-512 F, BW, DQ and VL.
    Bits512,
}

/// The widest that this processor has, one more than its number; 0 until it is known.
static WIDEST: AtomicU8 = AtomicU8::new(0);

impl Width {
    /// The widest that this processor has.
    #[inline]
    pub fn widest() -> Width {
        match WIDEST.load(Ordering::Relaxed) {
            1 => Width::Least,
            2 => Width::Bits256,
            3 => Width::Bits512,
            _ => {
                let widest = Width::found();
                WIDEST.store(widest as u8 + 1, Ordering::Relaxed);
                widest
            }
        }
    }

    #[cold]
    fn found() -> Width {
        #[cfg(target_arch = "x86_64")]
        if is_x86_feature_detected!("avx2") {
            let wider = is_x86_feature_detected!("avx512f") && is_x86_feature_detected!("avx512bw");
            let wider = wider && is_x86_feature_detected!("avx512dq") && is_x86_feature_detected!("avx512vl");
            return if wider { Width::Bits512 } else { Width::Bits256 };
        }
        Width::Least
    }
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2")]
fn run_with_256(work: impl Loop) {
    work.run();
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2")]
fn run_with_512(work: impl Loop) {
    work.run();
}

#[cfg(test)]
thread_local! {
    /// The widest that tests of this thread allow.
    pub static MOST: std::cell::Cell<Width> = const { std::cell::Cell::new(Width::Bits512) };
}

/// Runs a loop with the widest vectors that this processor has.
#[inline]
pub fn run(work: impl Loop) {
    let width = Width::widest();
    #[cfg(test)]
    let width = width.min(MOST.get());
    match width {
        Width::Least => work.run(),
        // SAFETY: the processor has what these functions are compiled for.
        #[cfg(target_arch = "x86_64")]
        Width::Bits256 => unsafe { run_with_256(work) },
        // SAFETY: as above.
        #[cfg(target_arch = "x86_64")]
        Width::Bits512 => unsafe { run_with_512(work) },
        #[cfg(not(target_arch = "x86_64"))]
        _ => work.run(),
    }
}
