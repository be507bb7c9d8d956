//! Which options do users of other launchers bring, and what do these mean here?

use std::io::Read;
use std::path::Path;

/// Longest file of a command line, bytes.
const FILE_BYTES_MAX: u64 = 1024 * 1024;

/// Options of MPICH and Open MPI that ask for what happens anyway.
pub const HAPPENS_ANYWAY: [&str; 4] = ["oversubscribe", "allow-run-as-root", "report-state-on-timeout", "enable-auto-cleanup"];

/// Options that concern another launcher or library alone: taken, and told to have no effect.
pub struct WithoutEffect {
    pub names: &'static [&'static str],
    /// How many arguments they take.
    pub values: usize,
    /// Why, and what to use instead.
    pub why: &'static str,
}

pub const WITHOUT_EFFECT: [WithoutEffect; 14] = [
    WithoutEffect {
        names: &["mca", "gmca", "omca", "prtemca", "pmixmca"],
        values: 2,
        why: "it is a parameter of Open MPI, PRRTE or PMIx; this library's are listed by whimbrel info --params, and set with -x NAME=VALUE",
    },
    WithoutEffect { names: &["tune"], values: 1, why: "it names parameters of Open MPI; this library's can stand in a file that WHIMBREL_CONFIG names" },
    WithoutEffect { names: &["prefix"], values: 1, why: "programs find the library where they were linked, or by LD_LIBRARY_PATH" },
    WithoutEffect { names: &["personality"], values: 1, why: "it chooses a dialect of PRRTE" },
    WithoutEffect { names: &["launcher", "launcher-exec"], values: 1, why: "ranks of this machine are started directly; --engine says who starts others" },
    WithoutEffect { names: &["rmk"], values: 1, why: "machines come from --hosts and --hostfile" },
    WithoutEffect { names: &["demux"], values: 1, why: "it chooses how Hydra waits" },
    WithoutEffect { names: &["membind"], values: 1, why: "memory lies where it is first touched; start the program with numactl --membind to bind it" },
    WithoutEffect { names: &["topolib"], values: 1, why: "the machine is read from /sys" },
    WithoutEffect { names: &["pmi-port"], values: 0, why: "it chooses how Hydra is reached" },
    WithoutEffect { names: &["disable-hostname-propagation"], values: 0, why: "ranks ask their own system for its name" },
    WithoutEffect { names: &["enable-x", "disable-x"], values: 0, why: "ranks of this machine have the display of mpiexec" },
    WithoutEffect { names: &["order-nodes"], values: 1, why: "machines are used in the order in which they are named" },
    WithoutEffect { names: &["localhost"], values: 1, why: "the name of this machine is the system's" },
];

/// Options that ask for what this launcher does not do, and what to use instead.
const REFUSED: [(&[&str], &str); 9] = [
    (&["rankfile", "rf"], "ranks are not placed one by one: use --bind core, with --cpu-list for the processors that the job may use"),
    (
        &["gdb", "gdba", "debug", "tv", "ddd"],
        "start the debugger as the program: mpiexec -n 2 xterm -e gdb --args ./prog, or gdb -p PID (--verbose tells each rank's)",
    ),
    (&["xterm"], "start it as the program: mpiexec -n 2 xterm -hold -e ./prog"),
    (&["get-stack-traces"], "--timeout says in which call each rank is; for one rank's stack: gdb -p PID -batch -ex 'thread apply all bt'"),
    (
        &["disable-auto-cleanup", "enable-recovery", "continuous"],
        "a rank that dies ends the job; --engine hydra or prterun, with --hosts, can go on without it",
    ),
    (&["nolocal"], "name the other machines with --hosts or --hostfile"),
    (&["file"], "use -configfile FILE for a command line in a file, or --hostfile FILE for machines"),
    (&["gpus-per-proc", "ngpus"], "GPUs are not shared out: let each rank choose by its local rank, or set CUDA_VISIBLE_DEVICES with -env per program"),
    (&["report-pid", "report-uri", "do-not-launch"], "use --verbose, which tells each rank's process, or whimbrel ps"),
];

/// What to use instead of the option `name`, if that is known and refused.
pub fn instead(name: &str) -> Option<&'static str> {
    REFUSED.iter().find(|(names, _)| names.contains(&name)).map(|(_, advice)| *advice)
}

/// The largest number of processes up to `most` that `-soft` allows (MPI-5.0 §11.5, §11.8.4): numbers and `first:last:step`,
/// with commas between.
///
/// Errors: one line.
pub fn soft(text: &str, most: u32) -> Result<u32, String> {
    let wrong = || format!("{text:?} is no list of numbers or of first:last:step");
    let mut best = None;
    for part in text.split(',') {
        let numbers: Vec<i64> = part.split(':').map(|number| number.parse().map_err(|_| wrong())).collect::<Result<_, _>>()?;
        let (first, last, step) = match numbers[..] {
            [one] => (one, one, 1),
            [first, last] => (first, last, 1),
            [first, last, step] if step != 0 => (first, last, step),
            _ => return Err(wrong()),
        };
        let most = i64::from(most);
        // Within the range of both; the largest that a step meets.
        let found = if step > 0 {
            let end = last.min(most);
            (end >= first).then(|| end - (end - first) % step)
        } else {
            // Downwards, the first that is not above `most`.
            let skipped = if first > most { (first - most + -step - 1) / -step } else { 0 };
            Some(first + skipped * step).filter(|number| *number >= last)
        };
        best = best.max(found.filter(|number| *number >= 1));
    }
    best.map(|number| number as u32).ok_or_else(|| format!("{text:?} allows no number of processes from 1 to {most}"))
}

/// Whether ranks of the architecture `name` run here.
pub fn is_here(name: &str) -> bool {
    let own = std::env::consts::ARCH;
    let name = name.to_ascii_lowercase();
    name == own || matches!((name.as_str(), own), ("amd64" | "x86-64", "x86_64") | ("arm64", "aarch64"))
}

/// The lines of a file of command lines, each in words: a program's options, its name and its arguments. `#` begins a line
/// that is none, `\` at the end goes on in the next, and quotes keep blanks.
///
/// Errors: one line.
pub fn lines_of(file: &Path) -> Result<Vec<Vec<String>>, String> {
    let mut text = String::new();
    let opened = std::fs::File::open(file).map_err(|error| error.to_string())?;
    opened.take(FILE_BYTES_MAX + 1).read_to_string(&mut text).map_err(|error| error.to_string())?;
    if text.len() as u64 > FILE_BYTES_MAX {
        return Err(format!("longer than {FILE_BYTES_MAX} bytes"));
    }
    let mut lines = Vec::new();
    for (at, line) in text.replace("\\\n", " ").lines().enumerate() {
        let line = line.trim();
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        // A colon at a line's end or beginning is what would stand between programs on one line.
        let words = shlex::split(line).ok_or_else(|| format!("line {}: a quote is not closed", at + 1))?;
        lines.extend(words.split(|word| word == ":").filter(|words| !words.is_empty()).map(<[String]>::to_vec));
    }
    if lines.is_empty() { Err("it names no program".to_owned()) } else { Ok(lines) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn soft_takes_the_largest_that_is_allowed() {
        for (text, most, expected) in
            [("4", 8, Some(4)), ("1:8", 5, Some(5)), ("2:8:2", 7, Some(6)), ("0:8:4,3", 3, Some(3)), ("8:1:-3", 6, Some(5)), ("9", 8, None), ("0", 4, None)]
        {
            assert_eq!(soft(text, most).ok(), expected, "{text} {most}");
        }
        for wrong in ["", "x", "1:2:0", "1:2:3:4", "1,,2"] {
            assert!(soft(wrong, 4).unwrap_err().contains("is no list"), "{wrong}");
        }
    }

    proptest! {
        #[test]
        fn soft_is_a_member_of_its_set(first in 0i64..30, last in 0i64..30, step in -5i64..6, most in 1u32..30) {
            prop_assume!(step != 0);
            let mut members = Vec::new();
            let mut at = first;
            while if step > 0 { at <= last } else { at >= last } {
                members.push(at);
                at += step;
            }
            let expected = members.into_iter().filter(|number| (1..=i64::from(most)).contains(number)).max();
            prop_assert_eq!(soft(&format!("{first}:{last}:{step}"), most).ok().map(i64::from), expected);
        }
    }
}
