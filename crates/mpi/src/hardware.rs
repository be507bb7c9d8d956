//! What hardware the calling thread may run on (MPI-5.0 §9.1.2), as Linux tells it.
#![forbid(unsafe_code)]

use crate::error::Result;
use crate::info::Pairs;
use std::collections::BTreeSet;
use std::path::Path;

/// The resource types as keys, each with `true` when the calling thread is restricted to one instance, else `false`. A type
/// that the system does not tell about is left out.
pub fn resources() -> Result<Pairs> {
    let mut pairs = Pairs::new();
    // One machine, one shared memory: every process is restricted to it.
    pairs.set(b"mpi_shared_memory", b"true")?;
    let status = std::fs::read_to_string("/proc/thread-self/status").unwrap_or_default();
    let Some(allowed) = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:")).and_then(parse_list)
    else {
        return Ok(pairs);
    };
    let cpus = Path::new("/sys/devices/system/cpu");
    let package = |cpu: u32| read_number(&cpus.join(format!("cpu{cpu}/topology/physical_package_id")));
    let core = |cpu: u32| Some((package(cpu)?, read_number(&cpus.join(format!("cpu{cpu}/topology/core_id")))?));
    let restricted = [
        ("hwloc://PU", Some(allowed.len() == 1)),
        ("hwloc://Core", one_of(&allowed, core)),
        ("hwloc://Package", one_of(&allowed, package)),
        ("hwloc://NUMANode", one_of(&allowed, |cpu| node_of(&cpus.join(format!("cpu{cpu}"))))),
    ];
    for (kind, restricted) in restricted {
        if let Some(restricted) = restricted {
            pairs.set(kind.as_bytes(), if restricted { b"true" } else { b"false" })?;
        }
    }
    Ok(pairs)
}

/// Whether all processors belong to the same resource; `None` when one's is unknown.
fn one_of<T: Ord>(cpus: &BTreeSet<u32>, resource: impl Fn(u32) -> Option<T>) -> Option<bool> {
    let found: BTreeSet<T> = cpus.iter().map(|cpu| resource(*cpu)).collect::<Option<_>>()?;
    Some(found.len() == 1)
}

/// The NUMA node, of which a processor's folder has a link `node<N>`.
fn node_of(cpu: &Path) -> Option<u32> {
    let entries = std::fs::read_dir(cpu).ok()?;
    entries.flatten().find_map(|entry| entry.file_name().to_str()?.strip_prefix("node")?.parse().ok())
}

fn read_number(path: &Path) -> Option<i64> {
    std::fs::read_to_string(path).ok()?.trim().parse().ok()
}

/// Parses Linux' lists of processors, such as `0-3,8`; `None` when it is none or empty.
fn parse_list(text: &str) -> Option<BTreeSet<u32>> {
    /// More processors than a Linux kernel can be built for.
    const CPUS_MAX: u32 = 1 << 16;
    let mut cpus = BTreeSet::new();
    for part in text.trim().split(',') {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (first, last): (u32, u32) = (first.parse().ok()?, last.parse().ok()?);
        if first > last || last >= CPUS_MAX {
            return None;
        }
        cpus.extend(first..=last);
    }
    Some(cpus)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_of_processors() {
        assert_eq!(parse_list("\t0-2,8\n"), Some(BTreeSet::from([0, 1, 2, 8])));
        for nonsense in ["", "3-1", "x", "0-4294967295"] {
            assert_eq!(parse_list(nonsense), None);
        }
    }

    #[test]
    fn restriction_is_to_one_instance() {
        let cpus = BTreeSet::from([0, 1, 2]);
        assert_eq!(one_of(&cpus, |cpu| Some(cpu / 2)), Some(false));
        assert_eq!(one_of(&cpus, |_| Some(7)), Some(true));
        assert_eq!(one_of(&cpus, |cpu| (cpu != 1).then_some(0)), None);
    }

    #[test]
    fn this_machine_is_described() {
        let pairs = resources().unwrap();
        assert_eq!(pairs.value(b"mpi_shared_memory").unwrap(), Some(&b"true"[..]));
        for (_, value) in pairs.iter() {
            assert!([&b"true"[..], b"false"].contains(&value));
        }
    }
}
