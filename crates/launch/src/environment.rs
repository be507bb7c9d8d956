//! What the environment says about how this process was started.

use crate::pmi::Version;
use crate::wire::SECRET_BYTES;
use crate::{Error, sys};
use std::env;

/// Name of the job's socket in the abstract namespace.
pub const JOB: &str = "WHIMBREL_JOB";
/// The job's secret, hexadecimal.
pub const KEY: &str = "WHIMBREL_KEY";
/// Rank of this process.
pub const RANK: &str = "WHIMBREL_RANK";
/// Inode of the network namespace of `mpiexec`, in which its socket is.
pub const NETWORK: &str = "WHIMBREL_NETWORK";
/// Ranks in the job; for scripts, the library learns it from its launcher.
pub const SIZE: &str = "WHIMBREL_SIZE";
/// The port at which the processes wait that have spawned this one's job.
pub const PARENT: &str = "WHIMBREL_PARENT";
/// What a rank finds of its launcher in its environment: no business of another launcher's ranks.
pub const OWN: [&str; 6] = [JOB, KEY, NETWORK, PARENT, RANK, SIZE];
/// Longest name of a job, bytes.
pub const JOB_BYTES_MAX: usize = 64;

/// How to reach the launcher of this process.
#[derive(Clone, PartialEq, Eq)]
pub struct Address {
    /// Name in the abstract namespace: letters, digits and hyphens.
    pub job: String,
    /// Proves that this process belongs to the job.
    pub secret: [u8; SECRET_BYTES],
    /// The rank that this process is to be.
    pub rank: u32,
}

/// Who started this process.
#[derive(Clone, PartialEq, Eq)]
pub enum Launched {
    /// Nobody that speaks MPI: a world of one.
    Alone,
    /// `mpiexec` of this library.
    Here(Address),
    /// A PMIx server, which its client library finds by itself.
    Pmix,
    /// A process manager that speaks PMI over a socket.
    Pmi(Pmi),
}

/// How to reach a PMI process manager.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Pmi {
    /// Over a socket that this process inherited.
    Inherited {
        descriptor: i32,
        rank: u32,
        size: u32,
        /// Name of the job, where the launcher gives one.
        job: Option<String>,
        version: Version,
    },
    /// At a TCP port, where `id` says which process this is.
    Port { host: String, port: u16, id: String },
}

/// Reads the environment of this process.
///
/// Errors: variables that do not parse; those of a foreign launcher that this library cannot speak to.
pub fn read() -> Result<Launched, Error> {
    let foreign_is_nobody = params::FOREIGN_LAUNCHER.value().map_err(|error| Error::new(error.to_string()))? == "ignore";
    let launched = parse(|name| env::var_os(name).map(|value| value.to_string_lossy().into_owned()), foreign_is_nobody)?;
    if matches!(launched, Launched::Here(_)) {
        // Nobody else needs it: neither what this process starts, nor who looks at its environment from outside.
        sys::blank_variable(KEY);
    }
    Ok(launched)
}

/// The rank that the launcher's variables give this process, for messages about what goes wrong before it has joined its job.
pub fn apparent_rank() -> Option<u32> {
    let number = |name: &&str| env::var(name).ok()?.parse().ok();
    [RANK, "PMIX_RANK", "PMI_RANK", "PMI_ID"].iter().find_map(number)
}

/// Reads variables through `variable`; see [`read`]. With `foreign_is_nobody`, foreign launchers are not looked for.
pub fn parse(variable: impl Fn(&str) -> Option<String>, foreign_is_nobody: bool) -> Result<Launched, Error> {
    let Some(job) = variable(JOB) else {
        return if foreign_is_nobody { Ok(Launched::Alone) } else { foreign(&variable) };
    };
    let need = |name: &str| variable(name).ok_or_else(|| Error::new(format!("{JOB} is set, but {name} is not")));
    if job.is_empty() || job.len() > JOB_BYTES_MAX || !job.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-') {
        return Err(Error::new(format!("{JOB}={job:?} is no name of a job")));
    }
    // What a rank starts may not have inherited the key; the launcher says what such a process is.
    let secret = match variable(KEY).filter(|key| !key.is_empty()) {
        Some(key) => from_hex(&key).ok_or_else(|| Error::new(format!("{KEY} is not {SECRET_BYTES} bytes in hexadecimal")))?,
        None => [0; SECRET_BYTES],
    };
    let rank = need(RANK)?;
    let rank = rank.parse().map_err(|_| Error::new(format!("{RANK}={rank:?} is no rank")))?;
    Ok(Launched::Here(Address { job, secret, rank }))
}

/// `secret` in hexadecimal, as [`KEY`] holds it.
pub fn to_hex(secret: &[u8; SECRET_BYTES]) -> String {
    secret.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn from_hex(text: &str) -> Option<[u8; SECRET_BYTES]> {
    let mut secret = [0; SECRET_BYTES];
    let (digits, []) = text.as_bytes().as_chunks::<2>() else { return None };
    if digits.len() != SECRET_BYTES {
        return None;
    }
    for (byte, digits) in secret.iter_mut().zip(digits) {
        let digit = |digit: u8| char::from(digit).to_digit(16);
        *byte = (digit(digits[0])? * 16 + digit(digits[1])?) as u8;
    }
    Some(secret)
}

/// Which foreign launcher has started this process.
///
/// Errors: one line about one that this library cannot speak to.
fn foreign(variable: impl Fn(&str) -> Option<String>) -> Result<Launched, Error> {
    if variable("PMIX_NAMESPACE").is_some() {
        return Ok(Launched::Pmix);
    }
    fn number<T: std::str::FromStr>(name: &str, value: &str) -> Result<T, Error> {
        value.parse().map_err(|_| Error::new(format!("{name}={value:?} is no number that it can be")))
    }
    let need = |of: &str, name: &str| {
        let value = variable(name).ok_or_else(|| Error::new(format!("{of} is set, but {name} is not")))?;
        number::<u32>(name, &value)
    };
    if let Some(descriptor) = variable("PMI_FD") {
        let descriptor = number("PMI_FD", &descriptor)?;
        let (rank, size) = (need("PMI_FD", "PMI_RANK")?, need("PMI_FD", "PMI_SIZE")?);
        // Slurm speaks PMI-2 better than PMI-1; it names the job, which nobody else does. Others say so if they want it.
        let job = variable("PMI_JOBID").filter(|job| !job.is_empty() && job.bytes().all(|b| b.is_ascii_graphic() && b != b';'));
        let slurm = job.is_some() && variable("SLURM_JOB_ID").is_some();
        let version = match variable("PMI_VERSION").as_deref() {
            Some("1") => Version::One,
            Some("2") => Version::Two,
            _ if slurm => Version::Two,
            _ => Version::One,
        };
        return Ok(Launched::Pmi(Pmi::Inherited { descriptor, rank, size, job, version }));
    }
    if let Some(place) = variable("PMI_PORT") {
        let (host, port) = place.rsplit_once(':').ok_or_else(|| Error::new(format!("PMI_PORT={place:?} names no port")))?;
        let host = host.trim_matches(['[', ']']).to_owned();
        let id = need("PMI_PORT", "PMI_ID")?.to_string();
        return Ok(Launched::Pmi(Pmi::Port { host, port: number("PMI_PORT", port)?, id }));
    }
    let first = |names: &[&'static str]| names.iter().copied().find(|name| variable(name).is_some());
    let (launcher, name) = if let Some(name) = first(&["PMIX_RANK", "PMIX_SERVER_URI2"]) {
        ("a PMIx launcher without PMIX_NAMESPACE", name)
    } else if let Some(name) = first(&["PMI_RANK", "PMI_SIZE"]) {
        ("a PMI launcher without PMI_FD or PMI_PORT", name)
    } else if variable("SLURM_STEP_ID").is_some() && variable("SLURM_STEP_NUM_TASKS").is_some_and(|tasks| tasks != "1") {
        // A batch script has SLURM_PROCID too, but is no step; a step of one task is a world of one.
        match first(&["SLURM_PROCID"]) {
            Some(name) => ("Slurm's srun without --mpi=pmi2 or --mpi=pmix", name),
            None => return Ok(Launched::Alone),
        }
    } else {
        return Ok(Launched::Alone);
    };
    Err(Error::new(format!(
        "started by {launcher}, which this library cannot speak to ({name} is set): start the program with Whimbrel's \
         mpiexec, prterun, MPICH's mpiexec, srun --mpi=pmi2 or srun --mpi=pmix, or set WHIMBREL_FOREIGN_LAUNCHER=ignore to \
         run it as a world of one"
    )))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with(variables: &[(&str, &str)]) -> Result<Launched, Error> {
        parse(|name| variables.iter().find(|(n, _)| *n == name).map(|(_, value)| value.to_string()), false)
    }

    #[test]
    fn nothing_set_is_a_world_of_one() {
        assert!(with(&[]) == Ok(Launched::Alone));
        assert!(with(&[("SLURM_PROCID", "0"), ("SLURM_JOB_ID", "7")]) == Ok(Launched::Alone));
        let one_task = [("SLURM_PROCID", "0"), ("SLURM_STEP_ID", "0"), ("SLURM_STEP_NUM_TASKS", "1")];
        assert!(with(&one_task) == Ok(Launched::Alone));
    }

    #[test]
    fn launchers_are_found_in_their_order() {
        let inherited = |job: Option<&str>, version| Launched::Pmi(Pmi::Inherited { descriptor: 9, rank: 1, size: 4, job: job.map(str::to_owned), version });
        let pmi = [("PMI_FD", "9"), ("PMI_RANK", "1"), ("PMI_SIZE", "4")];
        assert!(with(&pmi) == Ok(inherited(None, Version::One)));
        assert!(with(&[&pmi[..], &[("PMI_VERSION", "2")]].concat()) == Ok(inherited(None, Version::Two)));
        let slurm = [&pmi[..], &[("PMI_JOBID", "7.0"), ("SLURM_JOB_ID", "7")]].concat();
        assert!(with(&slurm) == Ok(inherited(Some("7.0"), Version::Two)));
        assert!(with(&[&slurm[..], &[("PMI_VERSION", "1")]].concat()) == Ok(inherited(Some("7.0"), Version::One)));
        assert!(with(&[&slurm[..], &[("PMIX_NAMESPACE", "n"), ("PMIX_RANK", "0")]].concat()) == Ok(Launched::Pmix));
        let port = Pmi::Port { host: "h".into(), port: 33045, id: "2".into() };
        assert!(with(&[("PMI_PORT", "h:33045"), ("PMI_ID", "2")]) == Ok(Launched::Pmi(port)));
        let port = Pmi::Port { host: "fe80::1".into(), port: 1, id: "0".into() };
        assert!(with(&[("PMI_PORT", "[fe80::1]:1"), ("PMI_ID", "0")]) == Ok(Launched::Pmi(port)));
    }

    #[test]
    fn launchers_that_cannot_be_spoken_to_are_named_with_their_variable() {
        for (variables, launcher, name) in [
            (&[("PMIX_RANK", "1")][..], "PMIx", "PMIX_RANK"),
            (&[("PMI_RANK", "1"), ("PMI_SIZE", "5")], "PMI launcher", "PMI_RANK"),
            (&[("PMI_FD", "x"), ("PMI_RANK", "1"), ("PMI_SIZE", "5")], "PMI_FD", "\"x\""),
            (&[("PMI_FD", "5"), ("PMI_RANK", "1")], "PMI_FD", "PMI_SIZE is not"),
            (&[("PMI_PORT", "5"), ("PMI_ID", "1")], "PMI_PORT", "names no port"),
            (&[("PMI_PORT", "h:99999"), ("PMI_ID", "1")], "PMI_PORT", "99999"),
            (&[("SLURM_PROCID", "1"), ("SLURM_STEP_ID", "0"), ("SLURM_STEP_NUM_TASKS", "2")], "Slurm", "SLURM_PROCID"),
        ] {
            let line = with(variables).err().expect("must be refused").to_string();
            assert!(line.contains(launcher) && line.contains(name) && !line.contains('\n'), "{line}");
            let variable = |name: &str| variables.iter().find(|(n, _)| *n == name).map(|(_, value)| value.to_string());
            assert!(parse(variable, true) == Ok(Launched::Alone));
        }
    }

    #[test]
    fn our_variables_win_and_parse_strictly() {
        let secret: [u8; SECRET_BYTES] = std::array::from_fn(|i| 7 * i as u8 + 3);
        let key = to_hex(&secret);
        let good = [(JOB, "whimbrel-1f"), (KEY, key.as_str()), (RANK, "3"), ("PMI_RANK", "1")];
        let Ok(Launched::Here(address)) = with(&good) else { panic!("must parse") };
        assert!(address == Address { job: "whimbrel-1f".into(), secret, rank: 3 });
        let long = "a".repeat(JOB_BYTES_MAX + 1);
        for (at, wrong) in [(0, ""), (0, "a b"), (0, long.as_str()), (1, "00"), (1, "zz"), (2, "-1"), (2, "x"), (2, "")] {
            let mut bad = good;
            bad[at].1 = wrong;
            let line = with(&bad).err().expect("must be refused").to_string();
            assert!(line.contains(good[at].0), "{line}");
        }
        assert!(with(&good[..2]).err().unwrap().to_string().contains(RANK));
    }
}
