//! Which processors does a rank get? Cores and packages as the kernel tells them in `/sys`, which is where hwloc reads
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

/// The share of rank `rank` of `ranks`: neighbouring cores, as equal as can be. At least one while `ranks` do not exceed
/// the cores.
pub fn share(cores: &[Core], rank: usize, ranks: usize) -> &[Core] {
    &cores[rank * cores.len() / ranks..(rank + 1) * cores.len() / ranks]
}

/// The processors of these cores as the kernel's set.
pub fn set(cores: &[Core]) -> CpuSet {
    let mut set = CpuSet::new();
    cores.iter().flat_map(|core| &core.cpus).for_each(|cpu| set.set(*cpu));
    set
}

/// The processors of these cores in words: `0-3,8`.
pub fn list(cores: &[Core]) -> String {
    let mut cpus: Vec<usize> = cores.iter().flat_map(|core| core.cpus.iter().copied()).collect();
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
    use proptest::prelude::*;

    #[test]
    fn lists() {
        assert_eq!(parse_list("0-2,8\n"), Some(vec![0, 1, 2, 8]));
        assert_eq!(parse_list("5"), Some(vec![5]));
        for wrong in ["", "x", "3-1", "0-99999999", "1,,2", "-1"] {
            assert_eq!(parse_list(wrong), None, "{wrong}");
        }
        let core = |cpus: &[usize]| Core { package: 0, cpus: cpus.to_vec() };
        assert_eq!(list(&[core(&[0, 8]), core(&[1, 9]), core(&[2])]), "0-2,8-9");
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
    }

    proptest! {
        #[test]
        fn shares_cover_all_cores_once(count in 1usize..70, ranks in 1usize..70) {
            let cores: Vec<Core> = (0..count).map(|cpu| Core { package: 0, cpus: vec![cpu] }).collect();
            let together: Vec<Core> = (0..ranks).flat_map(|rank| share(&cores, rank, ranks).to_vec()).collect();
            prop_assert_eq!(&together, &cores);
            let least = (0..ranks).map(|rank| share(&cores, rank, ranks).len()).min();
            let most = (0..ranks).map(|rank| share(&cores, rank, ranks).len()).max();
            prop_assert!(most <= least.map(|least| least + 1));
        }
    }
}
