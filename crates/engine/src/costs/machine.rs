//! Which machine is this, as far as the cost of a message depends on it, and where are its processors?

use proto::costs::PeerKind;
use rustix::thread::{CpuSet, Pid, sched_getaffinity, sched_setaffinity};
use std::fs;
use std::sync::OnceLock;

const CPUS: &str = "/sys/devices/system/cpu";

/// What tells machines apart whose costs differ: processor, kernel, topology, this library's version, and the device, in one line.
pub fn describe() -> String {
    let model = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = model.lines().find_map(|line| line.strip_prefix("model name")).map_or("unknown", |rest| rest.trim_start_matches([' ', '\t', ':']));
    let kernel = rustix::system::uname();
    let first = |name: &str| read(&format!("cpu0/{name}"));
    format!(
        "processor {model}, kernel {}, processors {}, core {}, cache {}, package {}, whimbrel {}, device memory",
        kernel.release().to_string_lossy(),
        read("online"),
        first("topology/thread_siblings_list"),
        last_cache(0),
        first("topology/package_cpus_list"),
        env!("CARGO_PKG_VERSION"),
    )
}

fn read(name: &str) -> String {
    fs::read_to_string(format!("{CPUS}/{name}")).map_or_else(|_| "unknown".to_owned(), |text| text.trim().to_owned())
}

/// More of a last-level cache than processors have for each of their cores, bytes: where the kernel tells of more, as in a virtual machine with a few processors
/// of a large one, other machines share it.
const SHARE_MAX: u64 = 16 << 20;

/// The bytes of the last-level cache on which each of `processes` may count that share `cores`, from the kernel's description; without one, any number.
pub fn cache_bytes(processes: u32, cores: u32) -> u64 {
    static LAST: OnceLock<Option<(u64, u64)>> = OnceLock::new();
    let look = || Some((parse_bytes(&of_last_cache(0, "size"))?, count_cpus(&last_cache(0))?));
    let Some((bytes, sharers)) = *LAST.get_or_init(look) else { return u64::MAX };
    let (processes, cores) = (u64::from(processes.max(1)), u64::from(cores.max(1)));
    (bytes / (processes * sharers.min(cores)).div_ceil(cores).max(1)).min(SHARE_MAX)
}

/// A size as the kernel writes it: `32768K`.
fn parse_bytes(text: &str) -> Option<u64> {
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let unit = match &text[digits.len()..] {
        "" => 1,
        "K" => 1 << 10,
        "M" => 1 << 20,
        _ => return None,
    };
    digits.parse::<u64>().ok()?.checked_mul(unit).filter(|bytes| *bytes > 0)
}

/// How many processors a list of the kernel's names: `0-3,8`.
fn count_cpus(list: &str) -> Option<u64> {
    let count = |part: &str| match part.split_once('-') {
        Some((from, to)) => (to.parse::<u64>().ok()? + 1).checked_sub(from.parse().ok()?),
        None => part.parse::<u64>().ok().map(|_| 1),
    };
    list.split(',').map(count).sum()
}

/// The processors that share the last-level cache of `cpu`, as the kernel lists them.
fn last_cache(cpu: usize) -> String {
    of_last_cache(cpu, "shared_cpu_list")
}

/// What the kernel says of the last-level cache of `cpu` under a name.
fn of_last_cache(cpu: usize, name: &str) -> String {
    let levels = (0..8).map(|index| read(&format!("cpu{cpu}/cache/index{index}/{name}")));
    levels.take_while(|text| text != "unknown").last().unwrap_or_else(|| "unknown".to_owned())
}

/// One processor and what it is part of, each by the kernel's list of that object's processors.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Cpu {
    number: usize,
    core: String,
    cache: String,
    package: String,
}

impl Cpu {
    fn kind(&self, other: &Cpu) -> PeerKind {
        if self.core == other.core {
            PeerKind::SameCore
        } else if self.cache == other.cache {
            PeerKind::SharedCache
        } else if self.package == other.package {
            PeerKind::SamePackage
        } else {
            PeerKind::OtherPackage
        }
    }
}

/// The processors that this process could be allowed to run on.
#[derive(Debug, Default)]
pub struct Topology {
    cpus: Vec<Cpu>,
}

impl Topology {
    /// Looks at the machine. For a thread of its own: its processors are widened to all that the system lets it have.
    pub fn of_this_machine() -> Topology {
        let mut all = CpuSet::new();
        (0..CpuSet::MAX_CPU).for_each(|cpu| all.set(cpu));
        let _ = sched_setaffinity(None, &all);
        let Ok(allowed) = sched_getaffinity(None) else { return Topology::default() };
        let cpu = |number: usize| Cpu {
            number,
            core: read(&format!("cpu{number}/topology/thread_siblings_list")),
            cache: last_cache(number),
            package: read(&format!("cpu{number}/topology/package_cpus_list")),
        };
        Topology { cpus: (0..CpuSet::MAX_CPU).filter(|number| allowed.is_set(*number)).map(cpu).collect() }
    }

    /// For each kind of pairs of processors that there are: the sets that the two sides may run on, so that whichever is taken, they are of that kind.
    pub fn pairs(&self) -> Vec<(PeerKind, CpuSet, CpuSet)> {
        let mut pairs = Vec::new();
        let Some(first) = self.cpus.first() else { return pairs };
        for kind in PeerKind::ALL {
            let Some(second) = self.cpus.iter().find(|cpu| cpu.number != first.number && first.kind(cpu) == kind) else { continue };
            let (mut ours, mut theirs) = (CpuSet::new(), CpuSet::new());
            let (mut here, mut there) = (vec![first], vec![second]);
            ours.set(first.number);
            theirs.set(second.number);
            // Wider sets let the system take processors that have nothing to do.
            for cpu in self.cpus.iter().filter(|_| kind != PeerKind::SameCore) {
                if there.iter().all(|other| cpu.kind(other) == kind && cpu.number != other.number) && !theirs.is_set(cpu.number) && !ours.is_set(cpu.number) {
                    here.push(cpu);
                    ours.set(cpu.number);
                } else if here.iter().all(|other| cpu.kind(other) == kind && cpu.number != other.number) && !ours.is_set(cpu.number) {
                    there.push(cpu);
                    theirs.set(cpu.number);
                }
            }
            pairs.push((kind, ours, theirs));
        }
        pairs
    }

    /// The nearest and the farthest kind of pairs that there are, where all packages are alike.
    fn range(&self) -> Option<(PeerKind, PeerKind)> {
        let (first, rest) = self.cpus.split_first()?;
        let kinds = || rest.iter().map(|cpu| first.kind(cpu));
        Some((kinds().min_by_key(|kind| *kind as usize)?, kinds().max_by_key(|kind| *kind as usize)?))
    }

    /// The kind of the process `pid` for this one: the farthest that the processors on which the two may run allow.
    pub fn kind_of(&self, pid: u32) -> Option<PeerKind> {
        let (nearest, farthest) = self.range()?;
        if nearest == farthest {
            return Some(farthest);
        }
        let (ours, theirs) = (sched_getaffinity(None).ok()?, sched_getaffinity(Pid::from_raw(pid as i32)).ok()?);
        let of = |set: &CpuSet| self.cpus.iter().filter(|cpu| set.is_set(cpu.number)).collect::<Vec<_>>();
        let (ours, theirs) = (of(&ours), of(&theirs));
        let mut kinds = ours.iter().flat_map(|cpu| theirs.iter().filter(|other| other.number != cpu.number).map(|other| cpu.kind(other)));
        // Two that may run anywhere are soon found to be as far apart as the machine allows.
        let mut most = kinds.next()?;
        while most != farthest
            && let Some(kind) = kinds.next()
        {
            most = if kind as usize > most as usize { kind } else { most };
        }
        Some(most)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn machine(packages: usize, caches: usize, cores: usize, threads: usize) -> Topology {
        let cpus = (0..packages * caches * cores * threads).map(|number| {
            let core = number / threads;
            let cache = core / cores;
            Cpu { number, core: core.to_string(), cache: cache.to_string(), package: (cache / caches).to_string() }
        });
        Topology { cpus: cpus.collect() }
    }

    #[test]
    fn sizes_and_lists_are_read_as_the_kernel_writes_them() {
        assert_eq!(
            ["32768K", "2M", "512", "", "K", "12Q", "0K", "unknown"].map(parse_bytes),
            [Some(32 << 20), Some(2 << 20), Some(512), None, None, None, None, None]
        );
        assert_eq!(["0", "0-1", "0-3,8,10-11", "", "unknown", "3-1"].map(count_cpus), [Some(1), Some(2), Some(7), None, None, None]);
        let whole = cache_bytes(1, 1);
        assert!(whole <= SHARE_MAX || whole == u64::MAX);
        assert!(cache_bytes(2, 2) <= whole && cache_bytes(64, 2) <= cache_bytes(2, 2));
    }

    #[test]
    fn each_kind_that_there_is_has_its_processors() {
        for (packages, caches, cores, threads) in [(1, 1, 2, 1), (1, 1, 1, 2), (2, 1, 4, 1), (2, 2, 2, 2), (1, 4, 2, 1)] {
            let machine = machine(packages, caches, cores, threads);
            let pairs = machine.pairs();
            let there = [(threads, PeerKind::SameCore), (cores, PeerKind::SharedCache), (caches, PeerKind::SamePackage), (packages, PeerKind::OtherPackage)];
            let expected: Vec<PeerKind> = there.into_iter().filter(|(count, _)| *count > 1).map(|(_, kind)| kind).collect();
            assert_eq!(pairs.iter().map(|pair| pair.0).collect::<Vec<_>>(), expected);
            for (kind, ours, theirs) in &pairs {
                let of = |set: &CpuSet| machine.cpus.iter().filter(|cpu| set.is_set(cpu.number)).collect::<Vec<_>>();
                for (a, b) in of(ours).into_iter().flat_map(|a| of(theirs).into_iter().map(move |b| (a, b))) {
                    assert_eq!((a.kind(b), a.number == b.number), (*kind, false));
                }
            }
        }
        assert!(machine(1, 1, 1, 1).pairs().is_empty());
        assert_eq!(machine(1, 1, 1, 1).range(), None);
        assert_eq!(machine(1, 1, 4, 1).range(), Some((PeerKind::SharedCache, PeerKind::SharedCache)));
        assert_eq!(machine(2, 1, 2, 2).range(), Some((PeerKind::SameCore, PeerKind::OtherPackage)));
    }

    #[test]
    fn this_machine_is_described_in_one_line() {
        let text = describe();
        assert!(!text.contains('\n') && text.contains("kernel "), "{text}");
        assert_eq!(text, describe());
    }
}
