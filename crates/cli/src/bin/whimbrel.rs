//! `whimbrel`: what this build and this machine are, and what programs gain by them.
#![forbid(unsafe_code)]

use cli::{bench, collectives, costs, info, jobs};
use std::io::Write;

const HELP: &str = "\
Usage: whimbrel info            facts of this build and this machine
       whimbrel info --params   every parameter: value, where it came from, meaning
       whimbrel info --costs    what a message costs on this machine, by kind of peer, size and protocol; measured where no file has it
       whimbrel info --protocols  how a message goes, by kind of peer and size: protocol, expected and seen time, and why
       whimbrel info --collectives  which way each collective goes, by number of ranks and length, and why
       whimbrel info --fabrics  every way to reach others, what this machine has of it, and why it is used or not
       whimbrel ps              the jobs that this user runs on this machine
       whimbrel where [JOB]     what each rank of a job is doing; JOB is a name of whimbrel ps, or mpiexec's process number
       whimbrel bench …         measures overlap, exchanges, crossing and application patterns; whimbrel bench --help
       whimbrel --version";

fn main() {
    let args: Vec<std::ffi::OsString> = std::env::args_os().skip(1).collect();
    if args.first().is_some_and(|word| word == "bench") {
        match bench::run(args[1..].to_vec()) {
            Ok(good) => std::process::exit(i32::from(!good)),
            Err(line) => refuse(&format!("bench: {line}")),
        }
    }
    let args: Vec<String> = args.iter().map(|word| word.to_string_lossy().into_owned()).collect();
    let words: Vec<&str> = args.iter().map(String::as_str).collect();
    let answer = match words[..] {
        ["info"] => Ok(info::facts()),
        ["info", "--params"] => info::params(),
        ["info", "--fabrics"] => info::fabrics(),
        ["info", "--costs"] => costs::costs(),
        ["info", "--protocols"] => costs::protocols(),
        ["info", "--collectives"] => collectives::collectives(),
        ["ps"] => jobs::list(),
        ["where"] => jobs::find(None),
        ["where", job] => jobs::find(Some(job)),
        ["--version" | "-V"] => Ok(info::version() + "\n"),
        ["--help" | "-h" | "help"] => Ok(HELP.to_owned() + "\n"),
        _ => Err(format!("no such command: whimbrel {}\n{HELP}", words.join(" "))),
    };
    match answer {
        // Whoever stops reading has read enough.
        Ok(text) => drop(std::io::stdout().write_all(text.as_bytes())),
        Err(line) => refuse(&line),
    }
}

fn refuse(line: &str) -> ! {
    eprintln!("whimbrel: {line}");
    std::process::exit(2);
}
