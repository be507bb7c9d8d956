//! What the library keeps in `MPI_Status` (MPI-5.0 §3.2.5, §3.8.4).
#![forbid(unsafe_code)]

use crate::consts::{MPI_ANY_SOURCE, MPI_ANY_TAG, MPI_PROC_NULL, MPI_SUCCESS};
use crate::handle::Status;
use engine::Received;

const COUNT_LOW: usize = 0;
const COUNT_HIGH: usize = 1;
const CANCELLED: usize = 2;

impl Status {
    /// The empty status: what waiting on a null or inactive request gives (MPI-5.0 §3.7.3).
    pub const EMPTY: Status = Status { source: MPI_ANY_SOURCE, tag: MPI_ANY_TAG, error: MPI_SUCCESS, internal: [0; 5] };

    /// What receiving from `MPI_PROC_NULL` gives (MPI-5.0 §3.10).
    pub const PROC_NULL: Status = Status { source: MPI_PROC_NULL, ..Status::EMPTY };

    /// A message of `count_bytes` from `source` with `tag`, not cancelled, without error.
    #[inline]
    pub fn received(source: i32, tag: i32, count_bytes: u64) -> Status {
        let mut status = Status { source, tag, ..Status::EMPTY };
        status.set_count_bytes(count_bytes);
        status
    }

    /// Bytes of data received.
    #[inline]
    pub fn count_bytes(&self) -> u64 {
        u64::from(self.internal[COUNT_LOW] as u32) | u64::from(self.internal[COUNT_HIGH] as u32) << 32
    }

    #[inline]
    pub fn set_count_bytes(&mut self, bytes: u64) {
        self.internal[COUNT_LOW] = bytes as u32 as i32;
        self.internal[COUNT_HIGH] = (bytes >> 32) as u32 as i32;
    }

    /// Whether the operation was cancelled.
    #[inline]
    pub fn is_cancelled(&self) -> bool {
        self.internal[CANCELLED] != 0
    }

    #[inline]
    pub fn set_cancelled(&mut self, cancelled: bool) {
        self.internal[CANCELLED] = i32::from(cancelled);
    }

    /// This status with the error field of `old`: calls that return one status leave that field alone (MPI-5.0 §3.2.5).
    /// An empty status keeps its own, which is part of its definition (§3.7.3).
    #[inline]
    pub fn keeping_error_of(mut self, old: &Status) -> Status {
        if self.source != MPI_ANY_SOURCE {
            self.error = old.error;
        }
        self
    }
}

impl From<Received> for Status {
    #[inline(always)]
    fn from(received: Received) -> Status {
        Status::received(received.source(), received.tag(), received.bytes())
    }
}

/// What a send that has ended well has received: the empty status.
#[inline(always)]
pub fn sent() -> Received {
    Received::new(MPI_ANY_SOURCE, MPI_ANY_TAG, 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_has_been_received_is_told_by_two_numbers() {
        for (source, tag, bytes) in [(0, 0, 0), (7, i32::MAX, 1), (i32::MAX, 3, u64::MAX - 1), (MPI_PROC_NULL, -1, 1 << 40)] {
            let received = Received::new(source, tag, bytes);
            assert_eq!((received.source(), received.tag(), received.bytes()), (source, tag, bytes));
            assert_eq!(Status::from(received), Status::received(source, tag, bytes));
        }
        assert_eq!(Status::from(sent()), Status::EMPTY);
    }

    #[test]
    fn counts_have_64_bits() {
        let mut status = Status::EMPTY;
        for bytes in [0, 1, u64::from(u32::MAX), 1 << 32, u64::MAX] {
            status.set_count_bytes(bytes);
            assert_eq!(status.count_bytes(), bytes);
        }
        assert!(!status.is_cancelled());
        status.set_cancelled(true);
        assert!(status.is_cancelled());
        assert_eq!(status.count_bytes(), u64::MAX);
    }

    #[test]
    fn only_empty_statuses_have_their_own_error() {
        let old = Status { error: 7, ..Status::EMPTY };
        assert_eq!(Status::EMPTY.keeping_error_of(&old).error, MPI_SUCCESS);
        assert_eq!(Status::received(0, 1, 2).keeping_error_of(&old).error, 7);
        assert_eq!(Status::PROC_NULL.keeping_error_of(&old).error, 7);
    }
}
