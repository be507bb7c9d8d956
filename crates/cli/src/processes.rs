//! Which processes are there? Read from `/proc`.

use rustix::process::{Pid, Signal};
use std::fs;

/// Most parents of parents that are looked at.
const GENERATIONS_MAX: u32 = 256;

/// What `/proc/PID/stat` says of a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Process {
    pub pid: i32,
    pub parent: i32,
    /// Process group.
    pub group: i32,
    pub session: i32,
    /// Not a zombie.
    pub alive: bool,
}

/// All processes that this one can see.
pub fn all() -> Vec<Process> {
    let Ok(entries) = fs::read_dir("/proc") else { return Vec::new() };
    entries
        .flatten()
        .filter(|entry| entry.file_name().as_encoded_bytes().first().is_some_and(u8::is_ascii_digit))
        // A process may end while this reads.
        .filter_map(|entry| fs::read(entry.path().join("stat")).ok())
        .filter_map(|stat| parse_stat(&String::from_utf8_lossy(&stat)))
        .collect()
}

/// This process. Its group and session are 0 where they began outside this pid namespace; the system calls' wrappers do not
/// expect that.
pub fn own() -> Option<Process> {
    parse_stat(&String::from_utf8_lossy(&fs::read("/proc/self/stat").ok()?))
}

/// Children of this single-threaded process; `None` where the kernel does not list them.
pub fn children() -> Option<Vec<i32>> {
    let pid = std::process::id();
    let list = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).ok()?;
    list.split_whitespace().map(|pid| pid.parse().ok()).collect()
}

/// All that descend from `ancestor`, by way of none of `except`.
pub fn descendants(processes: &[Process], ancestor: i32, except: &[i32]) -> Vec<Process> {
    let mut found = Vec::new();
    let mut parents = vec![ancestor];
    while let Some(parent) = parents.pop() {
        for process in processes.iter().filter(|process| process.parent == parent && !except.contains(&process.pid)) {
            found.push(*process);
            parents.push(process.pid);
        }
    }
    found
}

/// Whether `pid` is a child of `ancestor`, or a child's child, and so on; `ancestor` itself is not.
pub fn descends(pid: i32, ancestor: i32) -> bool {
    let parent_of = |pid: i32| parse_stat(&String::from_utf8_lossy(&fs::read(format!("/proc/{pid}/stat")).ok()?)).map(|process| process.parent);
    let mut at = pid;
    // Deeper than anybody's processes are; a process that ends meanwhile can make no circle longer than this.
    for _ in 0..GENERATIONS_MAX {
        match parent_of(at) {
            Some(parent) if parent == ancestor => return true,
            Some(parent) if parent > 1 => at = parent,
            _ => return false,
        }
    }
    false
}

/// Whether the environment of `pid` holds `NAME=value` (`assignment`); false where it cannot be read.
pub fn has_variable(pid: i32, assignment: &str) -> bool {
    fs::read(format!("/proc/{pid}/environ")).is_ok_and(|environment| environment.split(|byte| *byte == 0).any(|entry| entry == assignment.as_bytes()))
}

/// The word after the name of the program in the command line of `pid`.
pub fn first_argument(pid: i32) -> Option<Vec<u8>> {
    let line = fs::read(format!("/proc/{pid}/cmdline")).ok()?;
    line.split(|byte| *byte == 0).nth(1).map(<[u8]>::to_vec)
}

/// Kills process `pid`; it may be gone already.
pub fn kill(pid: i32) {
    if let Some(pid) = Pid::from_raw(pid) {
        let _ = rustix::process::kill_process(pid, Signal::KILL);
    }
}

fn parse_stat(stat: &str) -> Option<Process> {
    // The name stands in parentheses and may itself contain some.
    let (pid, _) = stat.split_once(' ')?;
    let (_, rest) = stat.rsplit_once(") ")?;
    let mut fields = rest.split(' ');
    let state = fields.next()?;
    let mut number = || fields.next()?.parse().ok();
    Some(Process { pid: pid.parse().ok()?, parent: number()?, group: number()?, session: number()?, alive: !matches!(state, "Z" | "X" | "x") })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_with_parentheses_do_not_confuse() {
        let process = parse_stat("12 (a) R 1) S) S 3 4 5 0 -1 4194560 1 2").unwrap();
        assert_eq!(process, Process { pid: 12, parent: 3, group: 4, session: 5, alive: true });
        assert!(!parse_stat("12 (z) Z 3 4 5 0").unwrap().alive);
        for wrong in ["", "12", "12 (a)", "12 (a) S 3", "x (a) S 3 4 5"] {
            assert_eq!(parse_stat(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn descendants_are_found_through_their_parents() {
        let of = |pid, parent| Process { pid, parent, group: 0, session: 0, alive: true };
        let processes = [of(2, 1), of(5, 4), of(4, 2), of(3, 1), of(6, 3), of(9, 8)];
        let pids = |except: &[i32]| {
            let mut pids: Vec<i32> = descendants(&processes, 1, except).iter().map(|process| process.pid).collect();
            pids.sort();
            pids
        };
        assert_eq!(pids(&[]), [2, 3, 4, 5, 6]);
        assert_eq!(pids(&[4]), [2, 3, 6]);
    }

    #[test]
    fn this_process_is_there() {
        let own = std::process::id() as i32;
        assert!(all().iter().any(|process| process.pid == own && process.alive));
        let parent = super::own().unwrap().parent;
        assert!(descends(own, parent) && !descends(own, own) && !descends(parent, own) && !descends(0, own));
        assert_eq!(super::own().map(|process| process.pid), Some(own));
        // Cargo always sets this for the tests that it runs.
        let name = std::env::var("CARGO_PKG_NAME").unwrap();
        assert!(has_variable(own, &format!("CARGO_PKG_NAME={name}")));
        assert!(!has_variable(own, "CARGO_PKG_NAME="));
    }
}
