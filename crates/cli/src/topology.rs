//! What is this machine made of? Cores, caches, nodes and packages as the kernel tells them in `/sys`, which is where hwloc reads
//! them too; loading hwloc would cost more than starting the ranks.

use rustix::thread::CpuSet;
use std::fs;

/// Largest processor number that is known, plus one.
pub const CPUS_MAX: usize = CpuSet::MAX_CPU;

/// One core: its hardware threads that this process may use, ascending.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Core {
    pub package: usize,
    pub cpus: Vec<usize>,
}

/// A kind of objects of a machine, from small to large.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unit {
    Hwthread,
    Core,
    /// Of this level, 1 to 3.
    Cache(u8),
    Numa,
    Package,
    /// The whole machine: slots are its cores.
    Machine,
}

impl Unit {
    /// Errors: the words that name one.
    pub fn parse(word: &str) -> Result<Unit, &'static str> {
        Ok(match word {
            "hwthread" | "hwt" | "thread" => Unit::Hwthread,
            "core" => Unit::Core,
            "l1cache" | "l1" => Unit::Cache(1),
            "l2cache" | "l2" => Unit::Cache(2),
            "l3cache" | "l3" => Unit::Cache(3),
            "numa" => Unit::Numa,
            "package" | "socket" => Unit::Package,
            "slot" | "node" | "machine" | "board" => Unit::Machine,
            _ => return Err("slot, hwthread, core, l1cache, l2cache, l3cache, numa, package, socket, node"),
        })
    }
}

impl Unit {
    /// The word that PRRTE and Hydra have for it.
    pub fn name(self) -> &'static str {
        match self {
            Unit::Hwthread => "hwthread",
            Unit::Core => "core",
            Unit::Cache(1) => "l1cache",
            Unit::Cache(2) => "l2cache",
            Unit::Cache(_) => "l3cache",
            Unit::Numa => "numa",
            Unit::Package => "package",
            Unit::Machine => "slot",
        }
    }
}

/// One processor, and the objects that it is part of, each by a number of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Cpu {
    pub number: usize,
    pub core: usize,
    /// Of levels 1, 2 and 3.
    pub caches: [usize; 3],
    pub numa: usize,
    pub package: usize,
}

impl Cpu {
    /// The object of a kind that this processor is part of.
    pub fn key(&self, unit: Unit) -> usize {
        match unit {
            Unit::Hwthread => self.number,
            Unit::Core => self.core,
            Unit::Cache(level) => self.caches[usize::from(level.clamp(1, 3)) - 1],
            Unit::Numa => self.numa,
            Unit::Package => self.package,
            Unit::Machine => 0,
        }
    }
}

/// The processors that this process may use, neighbours side by side; empty where the kernel does not say. An object is numbered by its first processor
/// where the kernel has no number of it, and what it does not tell of is taken to be the next smaller object.
pub fn cpus() -> Vec<Cpu> {
    let nodes: Vec<(usize, Vec<usize>)> = fs::read_dir("/sys/devices/system/node")
        .into_iter()
        .flatten()
        .flatten()
        .filter_map(|entry| {
            let number = entry.file_name().to_str()?.strip_prefix("node")?.parse().ok()?;
            Some((number, parse_list(&fs::read_to_string(entry.path().join("cpulist")).ok()?)?))
        })
        .collect();
    let first_of = |path: String| fs::read_to_string(path).ok().and_then(|text| parse_list(&text)?.into_iter().min());
    let cache = |cpu: usize, level: u8| {
        (0..8).find_map(|index| {
            let folder = format!("/sys/devices/system/cpu/cpu{cpu}/cache/index{index}");
            let is = |name: &str, value: &str| fs::read_to_string(format!("{folder}/{name}")).is_ok_and(|text| text.trim() == value);
            if !is("level", &level.to_string()) || is("type", "Instruction") {
                return None;
            }
            first_of(format!("{folder}/shared_cpu_list"))
        })
    };
    let mut all = Vec::new();
    for core in cores() {
        for number in core.cpus.iter().copied() {
            let numa = nodes.iter().find(|(_, cpus)| cpus.contains(&number)).map_or(0, |(node, _)| *node);
            let first = cache(number, 1).unwrap_or(core.cpus[0]);
            let second = cache(number, 2).unwrap_or(first);
            let third = cache(number, 3).unwrap_or(second);
            all.push(Cpu { number, core: core.cpus[0], caches: [first, second, third], numa, package: core.package });
        }
    }
    // Stable: cores of one node keep their order.
    all.sort_by_key(|cpu| (cpu.package, cpu.numa));
    all
}

/// Processors that this process may use at once, with affinity and control-group quotas taken into account; at least 1.
pub fn processors() -> u32 {
    std::thread::available_parallelism().map_or(1, |count| u32::try_from(count.get()).unwrap_or(u32::MAX))
}

/// The cores that this process may use, neighbours side by side; empty where the kernel does not say.
pub fn cores() -> Vec<Core> {
    let Ok(allowed) = rustix::thread::sched_getaffinity(None) else { return Vec::new() };
    let allowed: Vec<usize> = (0..CPUS_MAX).filter(|cpu| allowed.is_set(*cpu)).collect();
    let read = |cpu: usize, name: &str| fs::read_to_string(format!("/sys/devices/system/cpu/cpu{cpu}/topology/{name}")).ok();
    group(&allowed, |cpu| {
        let package = read(cpu, "physical_package_id").and_then(|text| text.trim().parse().ok()).unwrap_or(0);
        let siblings = read(cpu, "thread_siblings_list").and_then(|text| parse_list(&text));
        (package, siblings.unwrap_or_else(|| vec![cpu]))
    })
}

/// Processors as the kernel's set.
pub fn set(cpus: &[usize]) -> CpuSet {
    let mut set = CpuSet::new();
    cpus.iter().for_each(|cpu| set.set(*cpu));
    set
}

/// Processors in words: `0-3,8`.
pub fn list(cpus: &[usize]) -> String {
    let mut cpus = cpus.to_vec();
    cpus.sort_unstable();
    let mut text = String::new();
    let mut at = 0;
    while at < cpus.len() {
        let mut end = at;
        while end + 1 < cpus.len() && cpus[end + 1] == cpus[end] + 1 {
            end += 1;
        }
        if !text.is_empty() {
            text.push(',');
        }
        text.push_str(&cpus[at].to_string());
        if end > at {
            text.push_str(&format!("-{}", cpus[end]));
        }
        at = end + 1;
    }
    text
}

fn group(allowed: &[usize], of: impl Fn(usize) -> (usize, Vec<usize>)) -> Vec<Core> {
    let mut cores: Vec<Core> = Vec::new();
    let mut seen = CpuSet::new();
    for cpu in allowed.iter().copied() {
        if seen.is_set(cpu) {
            continue;
        }
        let (package, siblings) = of(cpu);
        let mut cpus: Vec<usize> = siblings.into_iter().filter(|cpu| allowed.contains(cpu) && !seen.is_set(*cpu)).collect();
        if !cpus.contains(&cpu) {
            cpus.push(cpu);
        }
        cpus.sort_unstable();
        cpus.iter().for_each(|cpu| seen.set(*cpu));
        cores.push(Core { package, cpus });
    }
    cores.sort();
    cores
}

/// The kernel's list of processors, `0-3,8`; `None` if it is none or names one past [`CPUS_MAX`].
pub fn parse_list(text: &str) -> Option<Vec<usize>> {
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
    fn lists() {
        assert_eq!(parse_list("0-2,8\n"), Some(vec![0, 1, 2, 8]));
        assert_eq!(parse_list("5"), Some(vec![5]));
        for wrong in ["", "x", "3-1", "0-99999999", "1,,2", "-1"] {
            assert_eq!(parse_list(wrong), None, "{wrong}");
        }
        assert_eq!(list(&[0, 8, 1, 9, 2]), "0-2,8-9");
        assert_eq!(list(&[]), "");
    }

    #[test]
    fn hardware_threads_of_a_core_stay_together() {
        // Two packages of two cores of two threads, numbered as Linux usually does.
        let of = |cpu: usize| (cpu % 4 / 2, vec![cpu % 4, cpu % 4 + 4]);
        let cores = group(&[0, 1, 2, 3, 4, 5, 6], of);
        let cpus: Vec<&[usize]> = cores.iter().map(|core| &core.cpus[..]).collect();
        assert_eq!(cpus, [&[0, 4][..], &[1, 5], &[2, 6], &[3]]);
        assert_eq!(cores.iter().map(|core| core.package).collect::<Vec<_>>(), [0, 0, 1, 1]);
    }

    #[test]
    fn this_machine_has_a_core() {
        assert!(processors() >= 1);
        assert!(!cores().is_empty());
        assert_eq!(cpus().len(), cores().iter().map(|core| core.cpus.len()).sum::<usize>());
    }
}
