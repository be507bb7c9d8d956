//! Runs the real `mpiexec`, and finds what it leaves behind.
#![allow(dead_code)] // Each test file uses some of it.

use cli::processes;
use std::io::Read;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

pub const RANK: &str = env!("CARGO_BIN_EXE_test-rank");
pub const MPIEXEC: &str = env!("CARGO_BIN_EXE_mpiexec");
/// Longer than any test takes on a loaded machine; past it, something hangs.
const PATIENCE: Duration = Duration::from_secs(120);

/// What a finished `mpiexec` left.
#[derive(Debug)]
pub struct Ended {
    /// Exit status; `None` if it was killed.
    pub status: Option<i32>,
    pub out: String,
    pub err: String,
}

/// A running `mpiexec`, whose processes carry a mark in their environment.
pub struct Running {
    pub child: Child,
    mark: String,
    out: JoinHandle<String>,
    err: JoinHandle<String>,
}

/// `mpiexec` with `args`, and a mark that all its ranks inherit.
pub fn command(args: &[&str]) -> (Command, String) {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    let mark = format!("WHIMBREL_TEST_MARK={}-{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
    // The tests may themselves run where SIGINT is ignored.
    let mut command = Command::new("env");
    let (name, value) = mark.split_once('=').unwrap();
    command.args(["--default-signal", MPIEXEC]).args(args).env(name, value).env("WHIMBREL_CONFIG", "").stdin(Stdio::null());
    (command, mark)
}

pub fn start(args: &[&str]) -> Running {
    let (command, mark) = command(args);
    Running::of(command, mark)
}

/// Runs to the end, and checks that nothing is left.
pub fn run(args: &[&str]) -> Ended {
    start(args).end()
}

impl Running {
    pub fn of(mut command: Command, mark: String) -> Running {
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("mpiexec starts");
        let out = read(child.stdout.take().unwrap());
        let err = read(child.stderr.take().unwrap());
        Running { child, mark, out, err }
    }

    pub fn pid(&self) -> i32 {
        self.child.id() as i32
    }

    /// Waits for the end, and checks that nothing is left.
    pub fn end(mut self) -> Ended {
        let end = Instant::now() + PATIENCE;
        let status = loop {
            if let Some(status) = self.child.try_wait().expect("wait") {
                break status;
            }
            if Instant::now() > end {
                let left = self.processes();
                let _ = self.child.kill();
                panic!("mpiexec hangs; its processes: {left:?}");
            }
            std::thread::sleep(Duration::from_millis(2));
        };
        let mark = self.mark.clone();
        // After a kill of mpiexec, its guardian needs a moment.
        if status.code().is_none() {
            // A process in the middle of a fork may escape one look.
            let mut quiet = 0;
            eventually("all processes of the job are gone", || {
                quiet = if marked(&mark).is_empty() { quiet + 1 } else { 0 };
                quiet == 10
            });
        }
        assert_eq!(marked(&mark), [] as [i32; 0], "processes of the job are left");
        Ended { status: status.code(), out: self.out.join().unwrap(), err: self.err.join().unwrap() }
    }

    /// Processes of the job, `mpiexec` itself included.
    pub fn processes(&self) -> Vec<i32> {
        marked(&self.mark)
    }

    /// Waits until there are `count` processes beside `mpiexec`.
    pub fn wait_for(&self, count: usize) {
        eventually("the ranks run", || self.processes().len() > count);
    }

    pub fn signal(&self, name: &str) {
        signal(self.pid(), name);
    }
}

pub fn signal(pid: i32, name: &str) {
    let status = Command::new("kill").args(["-s", name, &pid.to_string()]).status().expect("kill");
    assert!(status.success(), "kill -s {name} {pid}");
}

pub fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    let end = Instant::now() + PATIENCE;
    while !holds() {
        assert!(Instant::now() < end, "never: {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Reads a stream to its end, aside.
fn read(mut stream: impl Read + Send + 'static) -> JoinHandle<String> {
    std::thread::spawn(move || {
        let mut bytes = Vec::new();
        stream.read_to_end(&mut bytes).expect("read");
        String::from_utf8_lossy(&bytes).into_owned()
    })
}

/// How often the random tests run, for the long runs.
pub fn scale() -> u64 {
    std::env::var("WHIMBREL_TEST_SCALE").map_or(1, |scale| scale.parse().expect("WHIMBREL_TEST_SCALE is a number"))
}

fn marked(mark: &str) -> Vec<i32> {
    let all = processes::all().into_iter().filter(|process| process.alive);
    all.map(|process| process.pid).filter(|pid| processes::has_variable(*pid, mark)).collect()
}

/// Reports a part of a test that this machine cannot run to tests/run, which counts it.
#[allow(dead_code, reason = "not every test that includes this file skips")]
pub fn skipped(part: &str, reason: &str) {
    if let Some(path) = std::env::var_os("WHIMBREL_TEST_SKIPS") {
        let mut file = std::fs::OpenOptions::new().append(true).open(path).unwrap();
        std::io::Write::write_all(&mut file, format!("skip  {part}: {reason}\n").as_bytes()).unwrap();
    }
}
