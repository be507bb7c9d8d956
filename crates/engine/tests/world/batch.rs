//! Seeds are played in batches, each in a child process: what a batch maps stays mapped until its process ends.

use std::process::Command;

const VARIABLE: &str = "WHIMBREL_TEST_BATCH";

/// The number in a variable of the environment.
pub fn number(variable: &str) -> Option<u64> {
    std::env::var(variable).ok().filter(|v| !v.is_empty()).map(|v| v.parse().expect("a number"))
}

/// The first seed of this process' batch, if it is a child.
pub fn first() -> Option<u64> {
    number(VARIABLE)
}

/// Plays the seeds of a batch. The last line printed tells the seed, however the process ends.
pub fn play(seeds: std::ops::Range<u64>, mut each: impl FnMut(u64)) {
    for seed in seeds {
        println!("seed {seed}");
        each(seed);
    }
}

/// Runs the batch of test `name` that begins with seed `first` in a child process; gives what that printed.
pub fn run(name: &str, first: u64) -> String {
    let child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", name, "--nocapture", "--test-threads=1"])
        .env(VARIABLE, first.to_string())
        .output()
        .unwrap();
    let out = String::from_utf8_lossy(&child.stdout);
    if !child.status.success() {
        let err = String::from_utf8_lossy(&child.stderr);
        let seed = out.lines().rev().find_map(|l| l.split("seed ").nth(1)).unwrap_or("?");
        panic!("{}: repeat with WHIMBREL_TEST_SEED={}\n{err}", child.status, seed.trim());
    }
    out.into_owned()
}
