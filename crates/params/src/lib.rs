//! How is Whimbrel configured? One typed [table]: name, default, meaning, unit.
//!
//! A value comes from the environment (`WHIMBREL_NAME`), else from the configuration file (`name = value` lines; the file
//! that `WHIMBREL_CONFIG` names, else `~/.config/whimbrel.conf`), else it is the default. A value that does not parse is
//! refused with one clear line; the default is not taken instead. To add a row, write it into [`table`].
//!
//! ```
//! assert_eq!(params::ABORT_GRACE.value(), Ok(250));
//! ```
#![forbid(unsafe_code)]

use std::fs::File;
use std::io::Read;

mod file;
pub mod kinds;
mod row;
pub mod table;

pub use row::{Error, Kind, Param, Row, Source, Typed, Unit, Value};
pub use table::*;

/// What every variable's name begins with.
pub const PREFIX: &str = "WHIMBREL_";
/// Names the configuration file; empty for none.
pub const CONFIG: &str = "WHIMBREL_CONFIG";

/// Variables with our prefix that are no configuration: the launcher's word to its ranks, and what the tests take.
const OTHERS: [&str; 9] =
    [CONFIG, "WHIMBREL_JOB", "WHIMBREL_KEY", "WHIMBREL_NETWORK", "WHIMBREL_RANK", "WHIMBREL_SIZE", "WHIMBREL_GUARD", "WHIMBREL_PREFIX", "WHIMBREL_UML_KERNEL"];
const OTHERS_PREFIX: &str = "WHIMBREL_TEST_";

/// The rows that only `mpiexec` reads: a rank may set them, and nobody would notice.
pub static LAUNCHER_ROWS: [&Row; 4] = [INTERRUPT_GRACE.row(), FAILURE_GRACE.row(), ABORT_GRACE.row(), PARTIAL_LINE_WAIT.row()];

/// Whether this process has privileges that its user has not (a program with the set-user-ID bit, or with capabilities): then the environment names no
/// files to it, neither of configuration nor of code.
pub fn is_privileged() -> bool {
    const AT_SECURE: u64 = 23;
    static SECURE: std::sync::OnceLock<bool> = std::sync::OnceLock::new();
    *SECURE.get_or_init(|| {
        // Pairs of a name and a value, some twenty, which one read gives. Where they cannot be read, the worst is assumed.
        let mut bytes = [0; 1024];
        let Ok(length) = File::open("/proc/self/auxv").and_then(|mut file| file.read(&mut bytes)) else { return true };
        let (words, _) = bytes[..length].as_chunks::<8>();
        let mut pairs = words.chunks_exact(2).map(|pair| (u64::from_ne_bytes(pair[0]), u64::from_ne_bytes(pair[1])));
        pairs.find(|(name, _)| *name == AT_SECURE).is_none_or(|(_, value)| value != 0)
    })
}

/// Reads every row.
///
/// Errors: the first value, or line of the configuration file, that does not parse.
pub fn check() -> Result<(), Error> {
    table::ALL.iter().try_for_each(|row| row.read().map(|_| ()))
}

/// Variables of the environment that look like ours but are in no row: most likely misspelt.
pub fn unknown() -> Vec<String> {
    let mut names: Vec<String> = std::env::vars_os().filter_map(|(name, _)| name.into_string().ok()).filter(|name| is_unknown(name)).collect();
    names.sort();
    names
}

/// Whether a variable called `name` looks like ours but is in no row.
pub fn is_unknown(name: &str) -> bool {
    let ours = name.strip_prefix(PREFIX).filter(|_| !name.starts_with(OTHERS_PREFIX) && !OTHERS.contains(&name));
    ours.is_some_and(|bare| table::ALL.iter().all(|row| row.name() != bare))
}

/// The value of a number as `usize`; the same as `param.value()`.
pub fn usize_of(param: &'static Param<usize>) -> Result<usize, Error> {
    param.value()
}
