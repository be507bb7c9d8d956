//! What the environment says about how this process was started.

use crate::Error;
use crate::wire::SECRET_BYTES;
use std::env;

/// Name of the job's socket in the abstract namespace.
pub const JOB: &str = "WHIMBREL_JOB";
/// The job's secret, hexadecimal.
pub const KEY: &str = "WHIMBREL_KEY";
/// Rank of this process.
pub const RANK: &str = "WHIMBREL_RANK";
/// Ranks in the job; for scripts, the library learns it from its launcher.
pub const SIZE: &str = "WHIMBREL_SIZE";
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
}

/// Reads the environment of this process.
///
/// Errors: variables of ours that do not parse; a foreign launcher's variables without ours.
pub fn read() -> Result<Launched, Error> {
    let foreign_is_nobody =
        params::FOREIGN_LAUNCHER.value().map_err(|error| Error::new(error.to_string()))? == "ignore";
    parse(|name| env::var_os(name).map(|value| value.to_string_lossy().into_owned()), foreign_is_nobody)
}

/// Reads variables through `variable`; see [`read`]. With `foreign_is_nobody`, foreign launchers are not looked for.
pub fn parse(variable: impl Fn(&str) -> Option<String>, foreign_is_nobody: bool) -> Result<Launched, Error> {
    let Some(job) = variable(JOB) else {
        return match foreign(&variable) {
            Some(line) if !foreign_is_nobody => Err(Error::new(line)),
            _ => Ok(Launched::Alone),
        };
    };
    let need = |name: &str| variable(name).ok_or_else(|| Error::new(format!("{JOB} is set, but {name} is not")));
    if job.is_empty() || job.len() > JOB_BYTES_MAX || !job.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-') {
        return Err(Error::new(format!("{JOB}={job:?} is no name of a job")));
    }
    let secret =
        from_hex(&need(KEY)?).ok_or_else(|| Error::new(format!("{KEY} is not {SECRET_BYTES} bytes in hexadecimal")))?;
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

/// One line about a launcher that this library cannot speak to, if one has started this process.
fn foreign(variable: impl Fn(&str) -> Option<String>) -> Option<String> {
    let first = |names: &[&'static str]| names.iter().copied().find(|name| variable(name).is_some());
    let (launcher, name) = if let Some(name) = first(&["PMIX_RANK", "PMIX_NAMESPACE", "PMIX_SERVER_URI2"]) {
        ("a PMIx launcher (prterun, Open MPI's mpirun, or srun --mpi=pmix)", name)
    } else if let Some(name) = first(&["PMI_FD", "PMI_PORT", "PMI_RANK", "PMI_SIZE"]) {
        ("a PMI launcher (MPICH's or Intel's mpiexec, or srun --mpi=pmi2)", name)
    } else if variable("SLURM_STEP_ID").is_some() && variable("SLURM_STEP_NUM_TASKS").as_deref() != Some("1") {
        // A batch script has SLURM_PROCID too, but is no step; a step of one task is a world of one.
        ("Slurm's srun", first(&["SLURM_PROCID"])?)
    } else {
        return None;
    };
    Some(format!(
        "started by {launcher}, which this library cannot speak to ({name} is set): start the program with \
         Whimbrel's mpiexec, or set WHIMBREL_FOREIGN_LAUNCHER=ignore to run it as a world of one"
    ))
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
    fn foreign_launchers_are_named_with_their_variable() {
        for (variables, launcher, name) in [
            (&[("PMIX_RANK", "1")][..], "PMIx", "PMIX_RANK"),
            (&[("PMI_RANK", "1"), ("PMI_FD", "5")], "MPICH", "PMI_FD"),
            (&[("PMI_RANK", "1"), ("PMI_SIZE", "5")], "MPICH", "PMI_RANK"),
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
        for (at, wrong) in [(0, ""), (0, "a b"), (0, long.as_str()), (1, "00"), (1, "zz"), (2, "-1"), (2, "x"), (2, "")]
        {
            let mut bad = good;
            bad[at].1 = wrong;
            let line = with(&bad).err().expect("must be refused").to_string();
            assert!(line.contains(good[at].0), "{line}");
        }
        assert!(with(&good[..2]).err().unwrap().to_string().contains(RANK));
    }
}
