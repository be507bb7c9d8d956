//! What this library needs of a foreign process manager: who we are, and a store of values that each rank leaves for the others.

use crate::Error;
use std::time::Duration;

/// What a process manager tells a rank of its job.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Job {
    pub(crate) rank: u32,
    pub(crate) size: u32,
    /// Number of the program on the command line; negative where it does not say.
    pub(crate) appnum: i32,
    /// `MPI_UNIVERSE_SIZE`; 0 where it does not say.
    pub(crate) universe_size: u32,
    /// Ranks that it put on the node of this one, ascending and this one among them; `None` where it does not say.
    pub(crate) local_ranks: Option<Vec<u32>>,
}

/// A process manager's store. Names and values are short: [`crate::wire::KEY_BYTES_MAX`] and
/// [`crate::wire::VALUE_BYTES_MAX`] bound them, the caller has checked.
pub(crate) trait Store: Send {
    /// Leaves `value` under `name`, for others to see after the next fence. `name` is of letters, digits and hyphens.
    fn put(&mut self, name: &str, value: &[u8]) -> Result<(), Error>;

    /// Blocks until every rank has called this, at most for `within`; what was left before is visible from then on.
    ///
    /// Errors: time is up ([`late`]); after that nothing but [`Store::abort`] is called.
    fn fence(&mut self, within: Option<Duration>) -> Result<(), Error>;

    /// What `rank` left under `name` before the last fence; `None` if nothing.
    fn get(&mut self, rank: u32, name: &str, timeout: Duration) -> Result<Option<Vec<u8>>, Error>;

    /// From now on, the end of this process is normal. The last call but [`Store::abort`].
    fn finalize(&mut self) -> Result<(), Error>;

    /// Asks for the end of all ranks with exit status `code`. Returns; the end may come at any time.
    fn abort(&mut self, code: i32, message: &str);
}

/// What [`Store::fence`] says when time is up.
pub(crate) fn late(within: Duration) -> Error {
    Error::new(format!("not all ranks of the job have come to MPI_Init within {} s (WHIMBREL_START_TIMEOUT): one may have ended, or is late", within.as_secs()))
}
