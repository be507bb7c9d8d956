//! Which jobs of this user run on this machine, and where are their ranks? Asked over the sockets that their ranks use.

use launch::channel::{self, Received};
use launch::wire::{PACKET_BYTES_MAX, Reply, Request};
use rustix::event::{PollFd, PollFlags, Timespec};
use std::fs;
use std::os::fd::AsFd;

/// How long a launcher may take to answer, seconds: one that is stopped never does.
const ANSWER_SECONDS_MAX: i64 = 5;
/// Most jobs that are asked.
const JOBS_MAX: usize = 4096;

/// What `whimbrel ps` prints: a line for each job of this user.
///
/// Errors: the kernel does not list the sockets.
pub fn list() -> Result<String, String> {
    let mut out = String::new();
    for name in names()? {
        match ask(&name) {
            Ok(Some(account)) => out.push_str(&format!("{}\n", account.lines().next().unwrap_or_default())),
            // Another user's, or one that has ended since.
            Ok(None) => {}
            Err(why) => out.push_str(&format!("{name}  {why}\n")),
        }
    }
    Ok(out)
}

/// What `whimbrel where JOB` prints: the job, and what each rank is doing. `job` is its name, or the process number of its
/// `mpiexec`; without it, there must be one job.
///
/// Errors: one line; no such job, or several.
pub fn find(job: Option<&str>) -> Result<String, String> {
    let mut found = Vec::new();
    let mut silent = Vec::new();
    for name in names()? {
        match ask(&name) {
            Ok(Some(account)) => {
                let first = account.lines().next().unwrap_or_default();
                let launcher = first.split_whitespace().nth(2).unwrap_or_default().to_owned();
                if job.is_none_or(|job| job == name || job == launcher) {
                    found.push((name, account));
                }
            }
            Ok(None) => {}
            Err(why) => silent.push(format!("{name} {why}")),
        }
    }
    let named = job.map_or(String::new(), |job| format!(" {job:?}"));
    match &found[..] {
        [(_, account)] => Ok(account.clone()),
        [] if silent.is_empty() => Err(format!("no job{named} of this user runs here (whimbrel ps lists them)")),
        [] => Err(format!("no job{named} of this user answers here: {}", silent.join("; "))),
        several => {
            let names: Vec<&str> = several.iter().map(|(name, _)| name.as_str()).collect();
            Err(format!("{} jobs run here; name one of them: {}", several.len(), names.join(", ")))
        }
    }
}

/// Names of the jobs' sockets, of all users, ascending.
fn names() -> Result<Vec<String>, String> {
    let sockets = fs::read_to_string("/proc/net/unix").map_err(|error| format!("cannot read /proc/net/unix: {error}"))?;
    let mut names: Vec<String> = sockets.lines().filter_map(job_of).map(str::to_owned).take(JOBS_MAX).collect();
    names.sort();
    names.dedup();
    Ok(names)
}

/// The job whose socket stands in this line of `/proc/net/unix`.
fn job_of(line: &str) -> Option<&str> {
    let name = line.split_whitespace().last()?.strip_prefix('@')?;
    let digits = name.strip_prefix("whimbrel-")?;
    (digits.len() == 16 && digits.bytes().all(|digit| digit.is_ascii_hexdigit())).then_some(name)
}

/// What the launcher of `job` says of its ranks; `None` if it is another user's, or is gone.
///
/// Errors: it does not answer.
fn ask(job: &str) -> Result<Option<String>, String> {
    let Ok(socket) = channel::connect(job) else { return Ok(None) };
    let ours = rustix::process::geteuid().as_raw();
    if !channel::peer(socket.as_fd()).is_ok_and(|peer| peer.uid == ours) || channel::send(socket.as_fd(), &Request::Where.encode(), &[]).is_err() {
        return Ok(None);
    }
    let limit = Timespec { tv_sec: ANSWER_SECONDS_MAX, tv_nsec: 0 };
    if rustix::event::poll(&mut [PollFd::new(&socket, PollFlags::IN)], Some(&limit)) != Ok(1) {
        return Err("does not answer".to_owned());
    }
    let mut buffer = vec![0; PACKET_BYTES_MAX];
    match channel::receive(socket.as_fd(), &mut buffer) {
        Ok(Received::Packet { length, .. }) => match Reply::parse(&buffer[..length]) {
            Ok(Reply::Value { value, .. }) => Ok(Some(String::from_utf8_lossy(&value).into_owned())),
            _ => Err("is of another version".to_owned()),
        },
        _ => Ok(None),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_sockets_of_jobs_are_asked() {
        let line = |name: &str| format!("0000000000000000: 00000002 00000000 00010000 0005 01 29366 {name}");
        assert_eq!(job_of(&line("@whimbrel-0123456789abcdef")), Some("whimbrel-0123456789abcdef"));
        for other in ["", "@whimbrel-", "@whimbrel-0123456789abcdeg", "/tmp/whimbrel-0123456789abcdef", "@whimbrel-0123456789abcdef0"] {
            assert_eq!(job_of(&line(other)), None, "{other}");
        }
    }
}
