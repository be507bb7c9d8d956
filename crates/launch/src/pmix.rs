//! The client of process managers that speak PMIx: PRRTE's `prterun` (Open MPI's `mpirun`) and Slurm's `srun --mpi=pmix`.
//!
//! PMIx is a library rather than a protocol: `libpmix` speaks to whatever release its server is. It is loaded when such a
//! server has started this process, so that nothing else needs it.

use crate::pmix_sys::{Known, Of, Pmix};
use crate::store::{Job, Store, late};
use crate::{Error, JOB_RANKS_MAX, pmix_sys};
use std::time::Duration;

/// How long the server may think about what it knows itself.
const ANSWER_WITHIN: Duration = Duration::from_secs(60);
/// Of the thread that waits for other ranks: it calls the library.
const STACK_BYTES: usize = 1 << 20;

/// Greets the server that the environment names, and learns what it knows of the job.
///
/// Errors: the library is missing, or the server does not answer, or says what cannot be.
pub(crate) fn hello() -> Result<(Pmix, Job), Error> {
    let file = library()?;
    let mut pmix = Pmix::init(file).map_err(|why| {
        Error::new(format!(
            "started by a PMIx launcher (prterun, Open MPI's mpirun, or srun --mpi=pmix), but its client library does not \
             work: {why}; install libpmix (Debian: libpmix2), or name the file in WHIMBREL_LIBPMIX"
        ))
    })?;
    let mut number = |of, key| match value(&mut pmix, of, key, ANSWER_WITHIN) {
        Ok(Some(Some(Known::Number(number)))) => Some(number),
        _ => None,
    };
    let size = number(Of::Job, "pmix.job.size");
    let universe_size = number(Of::Job, "pmix.univ.size").and_then(|size| size.try_into().ok()).unwrap_or(0);
    let rank = pmix.rank();
    let mut number = |of, key| match value(&mut pmix, of, key, ANSWER_WITHIN) {
        Ok(Some(Some(Known::Number(number)))) => Some(number),
        _ => None,
    };
    let appnum = number(Of::Rank(rank), "pmix.appnum").and_then(|number| number.try_into().ok()).unwrap_or(-1);
    let Some(size) = size.and_then(|size| u32::try_from(size).ok()) else {
        return Err(Error::new("the PMIx server does not say how many ranks the job has"));
    };
    if size > JOB_RANKS_MAX || rank >= size {
        return Err(Error::new(format!("rank {rank} of {size} is out of range (most ranks: {JOB_RANKS_MAX})")));
    }
    let local_ranks = match value(&mut pmix, Of::Job, "pmix.lpeers", ANSWER_WITHIN) {
        Ok(Some(Some(Known::Bytes(text)))) => ranks(&text, rank, size),
        _ => None,
    };
    Ok((pmix, Job { rank, size, appnum, universe_size, local_ranks }))
}

/// The client library's file. The environment of a user loads no code into a process that has more privileges than that user.
fn library() -> Result<&'static str, Error> {
    match (params::is_privileged(), params::LIBPMIX.row().default()) {
        (true, params::Value::Text(file)) => Ok(file),
        _ => params::LIBPMIX.value().map_err(|error| Error::new(error.to_string())),
    }
}

/// Whether the client library can be loaded.
///
/// Errors: why not.
pub fn available() -> Result<(), String> {
    let file = library().map_err(|error| error.to_string())?;
    pmix_sys::load(file).map(|_| ())
}

impl Store for Pmix {
    fn put(&mut self, name: &str, value: &[u8]) -> Result<(), Error> {
        Pmix::put(self, &key(name), value).map_err(Error::new)
    }

    fn fence(&mut self, within: Option<Duration>) -> Result<(), Error> {
        let Some(within) = within else { return Pmix::fence(self).map_err(Error::new) };
        let fence = self.fence_later().map_err(Error::new)?;
        waited("whimbrel-fence", within, fence)?.ok_or_else(|| late(within))?.map_err(Error::new)
    }

    fn get(&mut self, rank: u32, name: &str, timeout: Duration) -> Result<Option<Vec<u8>>, Error> {
        match value(self, Of::Rank(rank), &key(name), timeout)? {
            Some(Some(Known::Bytes(value))) => Ok(Some(value)),
            Some(Some(Known::Number(_))) => Err(Error::new(format!("rank {rank} left a number under {name:?}"))),
            Some(None) => Ok(None),
            None => {
                let within = timeout.as_secs();
                Err(Error::new(format!(
                    "the PMIx server has not told what rank {rank} left within {within} s (at most WHIMBREL_START_TIMEOUT): it may have ended"
                )))
            }
        }
    }

    fn finalize(&mut self) -> Result<(), Error> {
        Pmix::finalize(self).map_err(Error::new)
    }

    fn abort(&mut self, code: i32, message: &str) {
        Pmix::abort(self, code, message);
    }
}

/// The value of `key`; `None` inside where the server knows none, or one of a kind that this library never asks for, and outside where it has not
/// answered after `timeout`.
fn value(pmix: &mut Pmix, of: Of, key: &str, timeout: Duration) -> Result<Option<Option<Known>>, Error> {
    match pmix.get_local(of, key).map_err(Error::new)? {
        Some(known) => Ok(Some(Some(known))),
        // A server may wait without end for what a rank that has ended did not leave.
        None => waited("whimbrel-value", timeout, pmix.get_later(of, key, timeout).map_err(Error::new)?),
    }
}

/// What `wait` gives; `None` where that takes longer than `within`, which servers need not honour themselves: then the thread is left to itself.
fn waited<T: Send + 'static>(name: &str, within: Duration, wait: impl FnOnce() -> T + Send + 'static) -> Result<Option<T>, Error> {
    let (told, hears) = std::sync::mpsc::channel();
    let tell = move || {
        let _ = told.send(wait());
    };
    memory::without_signals(|| std::thread::Builder::new().name(name.into()).stack_size(STACK_BYTES).spawn(tell))
        .map_err(|error| Error::new(format!("cannot start the thread that waits for the PMIx server: {error}")))?;
    Ok(hears.recv_timeout(within).ok())
}

fn key(name: &str) -> String {
    format!("whimbrel-{name}")
}

/// The ranks of a list such as `0,1,5`; `None` where one does not parse, is out of range, or `own` is not among them.
pub fn ranks(text: &[u8], own: u32, size: u32) -> Option<Vec<u32>> {
    let text = std::str::from_utf8(text).ok()?;
    let ranks: Option<Vec<u32>> = text.split(',').take(size as usize + 1).map(|rank| rank.trim().parse().ok()).collect();
    let mut ranks = ranks?;
    ranks.sort_unstable();
    ranks.dedup();
    (ranks.last()? < &size && ranks.contains(&own)).then_some(ranks)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_of_ranks_are_read() {
        assert_eq!(ranks(b"0,2,1", 1, 4), Some(vec![0, 1, 2]));
        for bad in [&b""[..], b"0,,1", b"0,4", b"2,3", b"0-3", b"\xff", b"0,1,99999999999"] {
            assert_eq!(ranks(bad, 1, 4), None, "{bad:?}");
        }
    }
}
