//! The parts of the machine that this process runs on, from the kernel's description (`/sys/devices/system`).
#![forbid(unsafe_code)]

use crate::error::Result;
use crate::info::Pairs;
use std::fs;

/// Processors that are looked at, at most.
pub const CPUS_MAX: usize = 4096;

/// Kinds of hardware, from the largest to the smallest. Names are those of hwloc (MPI-5.0 §9.1.3 leaves them to the library).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Resource {
    Machine,
    Package,
    NumaNode,
    L3Cache,
    L2Cache,
    Core,
    Pu,
}

impl Resource {
    pub const ALL: [Resource; 7] =
        [Resource::Machine, Resource::Package, Resource::NumaNode, Resource::L3Cache, Resource::L2Cache, Resource::Core, Resource::Pu];

    pub fn name(self) -> &'static str {
        match self {
            Resource::Machine => "hwloc://Machine",
            Resource::Package => "hwloc://Package",
            Resource::NumaNode => "hwloc://NUMANode",
            Resource::L3Cache => "hwloc://L3Cache",
            Resource::L2Cache => "hwloc://L2Cache",
            Resource::Core => "hwloc://Core",
            Resource::Pu => "hwloc://PU",
        }
    }

    /// The kind of a name.
    pub fn named(name: &[u8]) -> Option<Resource> {
        Resource::ALL.into_iter().find(|kind| kind.name().as_bytes() == name)
    }

    /// The processors of the instance that `cpu` belongs to; `None` where the machine does not have, or not tell, such a thing.
    fn instance(self, cpu: usize) -> Option<Vec<usize>> {
        let cpu_dir = format!("/sys/devices/system/cpu/cpu{cpu}");
        let list = |path: String| fs::read_to_string(path).ok().and_then(|text| parse_list(&text));
        match self {
            Resource::Machine => list("/sys/devices/system/cpu/possible".into()),
            Resource::Package => list(format!("{cpu_dir}/topology/package_cpus_list")),
            Resource::NumaNode => {
                let nodes = fs::read_dir(&cpu_dir).ok()?;
                let name = |entry: fs::DirEntry| entry.file_name().into_string().ok();
                let node = nodes.flatten().filter_map(name).find(|n| n.strip_prefix("node").is_some_and(|n| n.parse::<u32>().is_ok()))?;
                list(format!("/sys/devices/system/node/{node}/cpulist"))
            }
            Resource::L3Cache => cache(&cpu_dir, "3").and_then(list),
            Resource::L2Cache => cache(&cpu_dir, "2").and_then(list),
            Resource::Core => list(format!("{cpu_dir}/topology/core_cpus_list")),
            Resource::Pu => Some(vec![cpu]),
        }
    }
}

/// The file that lists the processors that share a cache of `level`.
fn cache(cpu_dir: &str, level: &str) -> Option<String> {
    let index = |n: u32| format!("{cpu_dir}/cache/index{n}");
    let fits = |n: &u32| fs::read_to_string(format!("{}/level", index(*n))).is_ok_and(|text| text.trim() == level);
    (0..10).find(fits).map(|n| format!("{}/shared_cpu_list", index(n)))
}

/// The number (its first processor) of the one instance of `kind` that this process may run on; `None` when it may run on several,
/// or the machine does not tell.
pub fn used(kind: Resource) -> Option<usize> {
    within(&allowed()?, |cpu| kind.instance(cpu))
}

/// The parts of the machine that this process runs in, from the largest to the smallest; -1 where there is not one of a kind.
pub fn place() -> [i32; Resource::ALL.len()] {
    Resource::ALL.map(|kind| used(kind).map_or(-1, |n| n as i32))
}

/// `MPI_Get_hw_resource_info`: each kind that the machine tells of, with "true" where this process uses one instance of it only.
///
/// # Errors
/// As [`Pairs::set`].
pub fn resources() -> Result<Pairs> {
    let allowed = allowed().unwrap_or_default();
    let mut pairs = Pairs::new();
    // One machine, one shared memory: every process is restricted to it.
    pairs.set(b"mpi_shared_memory", b"true")?;
    for kind in Resource::ALL {
        if allowed.first().is_some_and(|cpu| kind.instance(*cpu).is_some()) {
            let one = within(&allowed, |cpu| kind.instance(cpu)).is_some();
            pairs.set(kind.name().as_bytes(), if one { b"true" } else { b"false" })?;
        }
    }
    Ok(pairs)
}

fn within(allowed: &[usize], instance: impl Fn(usize) -> Option<Vec<usize>>) -> Option<usize> {
    let cpus = instance(*allowed.first()?)?;
    let inside = allowed.iter().all(|cpu| cpus.contains(cpu));
    if inside { cpus.first().copied() } else { None }
}

/// The processors that this thread may run on.
fn allowed() -> Option<Vec<usize>> {
    let status = fs::read_to_string("/proc/thread-self/status").ok()?;
    status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:")).and_then(parse_list)
}

/// The kernel's list of processors, `0-3,8`.
fn parse_list(text: &str) -> Option<Vec<usize>> {
    let mut cpus = Vec::new();
    for part in text.trim().split(',') {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (first, last): (usize, usize) = (first.parse().ok()?, last.parse().ok()?);
        if last >= CPUS_MAX || first > last {
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
    fn lists_and_instances() {
        assert_eq!(parse_list("0-2,8\n"), Some(vec![0, 1, 2, 8]));
        assert_eq!(parse_list("0-99999"), None);
        let pairs = |cpu: usize| Some(vec![cpu & !1, cpu | 1]);
        assert_eq!(within(&[2, 3], pairs), Some(2));
        assert_eq!(within(&[3], pairs), Some(2));
        assert_eq!(within(&[1, 2], pairs), None);
        assert_eq!(within(&[0], |_| None), None);
    }

    #[test]
    fn names_are_understood() {
        for kind in Resource::ALL {
            assert_eq!(Resource::named(kind.name().as_bytes()), Some(kind));
        }
        assert_eq!(Resource::named(b"hwloc://Toaster"), None);
        // Every process runs inside the machine.
        assert_eq!(used(Resource::Machine), Some(0));
    }

    #[test]
    fn this_machine_is_described() {
        let pairs = resources().unwrap();
        assert_eq!(pairs.value(b"mpi_shared_memory").unwrap(), Some(&b"true"[..]));
        assert!(pairs.iter().all(|(_, value)| [&b"true"[..], b"false"].contains(&value)));
    }
}
