//! `mpiexec`: starts the ranks of an MPI program.
#![forbid(unsafe_code)]

use cli::args::{self, Command};
use cli::{guardian, handover, info, job};

fn main() {
    if let Some(job) = guardian::job() {
        return guardian::guard(&job);
    }
    let mut words = std::env::args_os().skip(1);
    if words.next().is_some_and(|word| word == launch::spawn::OPTION) {
        let descriptor = words.next().and_then(|word| word.to_str()?.parse().ok()).unwrap_or(-1);
        std::process::exit(job::run_spawned(descriptor));
    }
    let command = args::parse(std::env::args_os().skip(1)).and_then(|mut command| {
        if let Command::Run(job) = &mut command {
            args::take_timeout(job, std::env::var_os("MPIEXEC_TIMEOUT"))?;
            job.notes.iter().filter(|_| !job.quiet).for_each(|note| eprintln!("mpiexec: warning: {note}"));
        }
        Ok(command)
    });
    let status = match command {
        Ok(Command::Run(job)) if !job.hosts.is_empty() => handover::run(&job),
        Ok(Command::Run(job)) => job::run(*job),
        Ok(Command::Help) => {
            println!("{}", args::HELP);
            0
        }
        Ok(Command::Version) => {
            println!("{}", info::version());
            0
        }
        Err(line) => {
            eprintln!("mpiexec: {line}");
            2
        }
    };
    std::process::exit(status);
}
