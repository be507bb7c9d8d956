//! Who cleans up when the launcher is killed? A second process of the same program, asleep on a pipe.
//!
//! The launcher tells it each rank's process group. When the pipe breaks, the launcher is gone, and the guardian kills what
//! belongs to the job: those process groups, and every process with the job's name in its environment. The pipe's other
//! end is also held by a rank that is just being started, up to its `exec`, so none slips through. The guardian has a
//! session of its own, so that signals to the launcher's process group do not reach it.

use crate::processes;
use launch::environment;
use rustix::process::{Pid, Signal, WaitOptions};
use std::io::{self, Read};
use std::os::fd::OwnedFd;
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// Tells the guardian which job is its own; set in its environment only.
const GUARD: &str = "WHIMBREL_GUARD";
const NAME: &str = "mpi-guardian";
/// How long the guardian goes on killing at most.
const CLEANUP_MAX: Duration = Duration::from_secs(30);
/// Between looks for what is left of the job.
const FIRST_WAIT: Duration = Duration::from_millis(5);
/// Looks have found nothing for as long as this.
const LAST_WAIT: Duration = Duration::from_millis(200);

/// The launcher's side.
pub struct Guardian {
    job: String,
    pid: Pid,
    pipe: OwnedFd,
    groups: Vec<i32>,
}

/// Where what is written is lost: `/dev/null`, or, where a bare container has none, a pipe that nobody reads.
fn nowhere() -> io::Result<Stdio> {
    std::fs::File::options().write(true).open("/dev/null").map(Stdio::from).or_else(|_| io::pipe().map(|(_, write)| Stdio::from(write)))
}

impl Guardian {
    /// Starts a guardian for `job` and the process groups `groups`.
    pub fn start(job: &str, groups: Vec<i32>) -> io::Result<Guardian> {
        let mut child = Command::new("/proc/self/exe")
            .arg0(NAME)
            .env_clear()
            .env(GUARD, job)
            .current_dir("/")
            .stdin(Stdio::piped())
            .stdout(nowhere()?)
            .stderr(nowhere()?)
            .spawn()?;
        let pipe = child.stdin.take().ok_or_else(|| io::Error::other("no pipe"))?;
        let pid = Pid::from_raw(child.id() as i32).ok_or_else(|| io::Error::other("no process"))?;
        let guardian = Guardian { job: job.to_owned(), pid, pipe: pipe.into(), groups };
        guardian.groups.iter().for_each(|group| guardian.tell(*group));
        Ok(guardian)
    }

    /// Another guardian in place of this one, which has died.
    pub fn again(&self) -> io::Result<Guardian> {
        Guardian::start(&self.job, self.groups.clone())
    }

    pub fn pid(&self) -> i32 {
        self.pid.as_raw_nonzero().get()
    }

    /// A process group of the job.
    pub fn add(&mut self, group: i32) {
        self.groups.push(group);
        self.tell(group);
    }

    /// A process group that is empty, and whose number may come to belong to others.
    pub fn remove(&mut self, group: i32) {
        self.groups.retain(|other| *other != group);
        self.tell(-group);
    }

    /// The job has ended and nothing is left to guard.
    pub fn dismiss(self) {
        let _ = rustix::process::kill_process(self.pid, Signal::KILL);
        let _ = rustix::io::retry_on_intr(|| rustix::process::waitpid(Some(self.pid), WaitOptions::empty()));
    }

    fn tell(&self, group: i32) {
        // A guardian that has died is replaced when its end is noticed.
        let _ = rustix::io::write(&self.pipe, &group.to_ne_bytes());
    }
}

/// The job to guard, if this process was started as a guardian.
pub fn job() -> Option<String> {
    let job = std::env::var(GUARD).ok()?;
    (std::env::args().next().as_deref() == Some(NAME)).then_some(job)
}

/// What the guardian does: sleeps until the launcher is gone, then kills what is left of `job`.
pub fn guard(job: &str) {
    let session = processes::own().map_or(0, |process| process.session);
    let _ = rustix::process::setsid();
    // So that a killall of mpiexec spares the guardian.
    let _ = rustix::thread::set_name(c"mpi-guardian");
    let mut groups: Vec<i32> = Vec::new();
    let mut stdin = io::stdin().lock();
    let mut record = [0; 4];
    while stdin.read_exact(&mut record).is_ok() {
        match i32::from_ne_bytes(record) {
            group @ 1.. => groups.push(group),
            group => groups.retain(|other| *other != -group),
        }
    }
    let end = Instant::now() + CLEANUP_MAX;
    // A process in the middle of `fork` or `exec` may escape a look, but not several at growing distances.
    let mut wait = FIRST_WAIT;
    while wait < LAST_WAIT && Instant::now() < end {
        wait = if kill_all(job, &groups, session) == 0 { wait * 2 } else { FIRST_WAIT };
        std::thread::sleep(wait);
    }
}

/// Kills every process of the job; how many there were.
fn kill_all(job: &str, groups: &[i32], session: i32) -> usize {
    let own = std::process::id() as i32;
    let assignment = format!("{}={job}", environment::JOB);
    let of_job = |process: &processes::Process| {
        // A group's number alone may have come to belong to somebody else, hence the session.
        groups.contains(&process.group) && process.session == session || processes::has_variable(process.pid, &assignment)
    };
    let found: Vec<_> = processes::all().into_iter().filter(|p| p.alive && p.pid != own && of_job(p)).collect();
    found.iter().for_each(|process| processes::kill(process.pid));
    found.len()
}
