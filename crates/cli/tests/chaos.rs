//! Random deaths at random moments: never a hang, never a process left, always the right words.
//! `WHIMBREL_TEST_SCALE=100` for a long run.

mod common;

use common::{RANK, scale, start};
use rustix::process::{Pid, Signal, kill_process};
use std::time::Duration;

/// xorshift64*, so that a failure can be run again from its seed.
struct Random(u64);

impl Random {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) % limit
    }
}

fn seeds() -> impl Iterator<Item = u64> {
    let first = match std::env::var("WHIMBREL_TEST_SEED") {
        Ok(seed) => return (seed.parse().expect("WHIMBREL_TEST_SEED is a number")..).take(1),
        Err(_) => std::time::UNIX_EPOCH.elapsed().expect("a clock").as_nanos() as u64,
    };
    (first..).take(10 * scale() as usize)
}

const PROGRAMS: [&[&str]; 4] = [
    &[RANK, "init", "fetch", "fence", "recv"],
    &[RANK, "init", "fence", "barrier"],
    &["sh", "-c", "sleep 1000; exit"],
    &["sh", "-c", "(setsid sh -c 'sleep 1000; exit' &) ; sleep 1000; exit"],
];

#[test]
fn the_launcher_is_killed() {
    for seed in seeds() {
        let mut random = Random(seed | 1);
        let size = (1 + random.below(12)).to_string();
        let program = PROGRAMS[random.below(4) as usize];
        println!("WHIMBREL_TEST_SEED={seed}: -n {size} {program:?}");
        let mut running = start(&[&["-n", &size], program].concat());
        std::thread::sleep(Duration::from_micros(random.below(40_000)));
        running.child.kill().expect("kill");
        // `end` waits until nothing is left.
        assert_eq!(running.end().status, None);
    }
}

#[test]
fn a_rank_is_killed() {
    for seed in seeds() {
        let mut random = Random(seed | 1);
        let size = 1 + random.below(12);
        let program = PROGRAMS[random.below(2) as usize];
        println!("WHIMBREL_TEST_SEED={seed}: -n {size} {program:?}");
        let running = start(&[&["-n", &size.to_string()], program].concat());
        let launcher = running.pid();
        let ranks = || -> Vec<i32> {
            let of_job = |p: &cli::processes::Process| p.parent == launcher && p.group == p.pid && p.session != p.pid && p.alive;
            cli::processes::all().iter().filter(|p| of_job(p)).map(|p| p.pid).collect()
        };
        common::eventually("a rank runs", || !ranks().is_empty());
        std::thread::sleep(Duration::from_micros(random.below(40_000)));
        let ranks = ranks();
        let victim = ranks[random.below(ranks.len() as u64) as usize];
        kill_process(Pid::from_raw(victim).expect("a pid"), Signal::KILL).expect("kill");
        let ended = running.end();
        assert_eq!(ended.status, Some(137), "{ended:?}");
        let words = format!("pid {victim}) was killed by signal 9 (SIGKILL)");
        let lines: Vec<&str> = ended.err.lines().collect();
        assert!(lines.len() == 1 && lines[0].starts_with("mpiexec: rank ") && lines[0].contains(&words), "{ended:?}");
    }
}
