//! How did a rank end, in words?

use launch::board::Doing;
use rustix::process::Signal;
use std::fmt;

/// How a process ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Exit {
    /// Exit status, 0 to 255.
    Status(i32),
    /// Number of the signal that killed it.
    Signal(i32),
}

/// How far a rank had come when it ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Stage {
    /// It never called `MPI_Init`.
    Outside,
    /// Between `MPI_Init` and `MPI_Finalize`.
    Inside(Doing),
    /// After `MPI_Finalize`.
    Finalized,
}

impl Exit {
    /// From the wait status of a process that has ended.
    pub fn of(status: i32) -> Exit {
        match status & 0x7f {
            0 => Exit::Status(status >> 8 & 0xff),
            signal => Exit::Signal(signal),
        }
    }

    /// As a shell would say it: the status, or 128 + signal.
    pub fn code(self) -> i32 {
        match self {
            Exit::Status(status) => status,
            Exit::Signal(signal) => 128 + signal,
        }
    }
}

impl Exit {
    /// What the exit of a wrapper tells of its program: shells report 128 + signal. `None` if it hides a failure.
    pub fn unwrap_shell(self) -> Option<Exit> {
        match self {
            Exit::Status(0) => None,
            Exit::Status(status) if status > 128 && signal_name(status - 128).is_some() => Some(Exit::Signal(status - 128)),
            other => Some(other),
        }
    }
}

/// `was killed by signal 11 (SIGSEGV)`, `exited with status 1`.
impl fmt::Display for Exit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Exit::Status(status) => write!(f, "exited with status {status}"),
            Exit::Signal(signal) => match signal_name(*signal) {
                Some(name) => write!(f, "was killed by signal {signal} ({name})"),
                None => write!(f, "was killed by signal {signal}"),
            },
        }
    }
}

/// What is said of a rank after its name: how it ended, and what it was doing. `exit` is unknown where a wrapper still
/// runs, or hides it.
pub fn sentence(exit: Option<Exit>, stage: &Stage) -> String {
    let how = exit.map_or_else(|| "ended".to_owned(), |exit| exit.to_string());
    match (exit, stage) {
        (Some(Exit::Signal(_)), Stage::Inside(doing)) => format!("{how} {doing}"),
        (_, Stage::Inside(doing)) => format!("{how} before MPI_Finalize {doing}"),
        (_, Stage::Outside) => format!("{how} without calling MPI_Init"),
        (_, Stage::Finalized) => format!("{how} after MPI_Finalize"),
    }
}

/// Such as `SIGSEGV`.
pub fn signal_name(number: i32) -> Option<&'static str> {
    const NAMES: [(Signal, &str); 29] = [
        (Signal::HUP, "SIGHUP"),
        (Signal::INT, "SIGINT"),
        (Signal::QUIT, "SIGQUIT"),
        (Signal::ILL, "SIGILL"),
        (Signal::TRAP, "SIGTRAP"),
        (Signal::ABORT, "SIGABRT"),
        (Signal::BUS, "SIGBUS"),
        (Signal::FPE, "SIGFPE"),
        (Signal::KILL, "SIGKILL"),
        (Signal::USR1, "SIGUSR1"),
        (Signal::SEGV, "SIGSEGV"),
        (Signal::USR2, "SIGUSR2"),
        (Signal::PIPE, "SIGPIPE"),
        (Signal::ALARM, "SIGALRM"),
        (Signal::TERM, "SIGTERM"),
        (Signal::CHILD, "SIGCHLD"),
        (Signal::CONT, "SIGCONT"),
        (Signal::STOP, "SIGSTOP"),
        (Signal::TSTP, "SIGTSTP"),
        (Signal::TTIN, "SIGTTIN"),
        (Signal::TTOU, "SIGTTOU"),
        (Signal::URG, "SIGURG"),
        (Signal::XCPU, "SIGXCPU"),
        (Signal::XFSZ, "SIGXFSZ"),
        (Signal::VTALARM, "SIGVTALRM"),
        (Signal::PROF, "SIGPROF"),
        (Signal::IO, "SIGIO"),
        (Signal::POWER, "SIGPWR"),
        (Signal::SYS, "SIGSYS"),
    ];
    NAMES.iter().find(|(signal, _)| signal.as_raw() == number).map(|(_, name)| *name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use launch::board::{Call, State};

    #[test]
    fn wait_statuses() {
        assert_eq!(Exit::of(0), Exit::Status(0));
        assert_eq!(Exit::of(3 << 8), Exit::Status(3));
        assert_eq!(Exit::of(9), Exit::Signal(9));
        // With a core file.
        assert_eq!(Exit::of(11 | 0x80), Exit::Signal(11));
        assert_eq!(Exit::Status(139).unwrap_shell(), Some(Exit::Signal(11)));
        assert_eq!(Exit::Status(255).unwrap_shell(), Some(Exit::Status(255)));
        assert_eq!(Exit::Status(0).unwrap_shell(), None);
        assert_eq!((Exit::Signal(9).code(), Exit::Status(7).code()), (137, 7));
    }

    #[test]
    fn sentences() {
        let receiving = Stage::Inside(Doing { state: State::Initialized, call: Some(Call { function: "MPI_Recv".into(), peer: 2, tag: 5 }) });
        let computing = Stage::Inside(Doing { state: State::Initialized, call: None });
        for (exit, stage, words) in [
            (Some(Exit::Signal(11)), &receiving, "was killed by signal 11 (SIGSEGV) in MPI_Recv from rank 2, tag 5"),
            (Some(Exit::Signal(40)), &computing, "was killed by signal 40 while computing"),
            (Some(Exit::Status(1)), &computing, "exited with status 1 before MPI_Finalize while computing"),
            (Some(Exit::Status(0)), &receiving, "exited with status 0 before MPI_Finalize in MPI_Recv from rank 2, tag 5"),
            (None, &computing, "ended before MPI_Finalize while computing"),
            (Some(Exit::Status(3)), &Stage::Outside, "exited with status 3 without calling MPI_Init"),
            (Some(Exit::Signal(6)), &Stage::Finalized, "was killed by signal 6 (SIGABRT) after MPI_Finalize"),
        ] {
            assert_eq!(sentence(exit, stage), words);
        }
    }
}
