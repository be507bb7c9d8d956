//! `whimbrel`: what this build and this machine are.
#![forbid(unsafe_code)]

use cli::info;
use std::io::Write;

const HELP: &str = "\
Usage: whimbrel info            facts of this build and this machine
       whimbrel info --params   every parameter: value, where it came from, meaning
       whimbrel --version";

fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = args.iter().map(String::as_str).collect();
    let answer = match words[..] {
        ["info"] => Ok(info::facts()),
        ["info", "--params"] => info::params(),
        ["--version" | "-V"] => Ok(info::version() + "\n"),
        ["--help" | "-h" | "help"] => Ok(HELP.to_owned() + "\n"),
        _ => Err(format!("no such command: whimbrel {}\n{HELP}", words.join(" "))),
    };
    match answer {
        // Whoever stops reading has read enough.
        Ok(text) => drop(std::io::stdout().write_all(text.as_bytes())),
        Err(line) => {
            eprintln!("whimbrel: {line}");
            std::process::exit(2);
        }
    }
}
