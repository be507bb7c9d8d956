//! What are this build and this machine?

use crate::{sys, topology};
use rustix::process::{Resource, getrlimit};
use std::fmt::Write;
use std::fs;

/// One line: name, version, and the MPI it speaks.
pub fn version() -> String {
    format!("Whimbrel {} (MPI-5.0, standard ABI 1.0)", env!("CARGO_PKG_VERSION"))
}

/// What `whimbrel info` prints: facts of the build and of the machine, one per line.
pub fn facts() -> String {
    let kernel = rustix::system::uname();
    let cores = topology::cores();
    let packages = cores.iter().map(|core| core.package).collect::<std::collections::BTreeSet<_>>().len();
    let threads: usize = cores.iter().map(|core| core.cpus.len()).sum();
    let first_line = |path: &str| fs::read_to_string(path).ok().map(|text| text.trim().to_owned());
    let unknown = || "unknown".to_owned();
    let limit = |resource| match getrlimit(resource).current {
        Some(bytes) => bytes.to_string(),
        None => "unlimited".to_owned(),
    };
    let mut out = String::new();
    let mut fact = |name: &str, value: String| {
        let _ = writeln!(out, "{name:<26}{value}");
    };
    fact("version", version());
    fact("library", "libmpi_abi.so.1".to_owned());
    fact("built for", format!("{} {}", std::env::consts::ARCH, std::env::consts::OS));
    fact("build", if cfg!(debug_assertions) { "debug" } else { "release" }.to_owned());
    fact("most ranks", launch::RANKS_MAX.to_string());
    fact("kernel", format!("{} {}", kernel.sysname().to_string_lossy(), kernel.release().to_string_lossy()));
    fact("host", kernel.nodename().to_string_lossy().into_owned());
    fact("processors", format!("{} usable at once", topology::processors()));
    fact("cores", format!("{} in {packages} package(s), {threads} hardware thread(s)", cores.len()));
    fact("page", format!("{} bytes", rustix::param::page_size()));
    fact("huge pages", first_line("/sys/kernel/mm/transparent_hugepage/enabled").unwrap_or_else(unknown));
    fact("huge pages in memfd", first_line("/sys/kernel/mm/transparent_hugepage/shmem_enabled").unwrap_or_else(unknown));
    fact("locked memory limit", format!("{} bytes", limit(Resource::Memlock)));
    fact("open files limit", limit(Resource::Nofile));
    let scope = first_line("/proc/sys/kernel/yama/ptrace_scope");
    fact("process_vm_readv", single_copy(sys::reads_memory(), scope.as_deref()).to_owned());
    fact("io_uring", if sys::makes_io_uring() { "yes" } else { "no" }.to_owned());
    fact(
        "userfaultfd",
        match (sys::makes_userfaultfd(false), sys::makes_userfaultfd(true)) {
            (true, _) => "yes",
            (false, true) => "user mode only",
            (false, false) => "no",
        }
        .to_owned(),
    );
    fact("RDMA devices", names("/sys/class/infiniband"));
    out
}

/// What `whimbrel info --params` prints: every parameter with its value, where that came from, and its meaning.
///
/// Errors: the first value that does not parse.
pub fn params() -> Result<String, String> {
    let mut out = String::new();
    for row in params::table::ALL {
        let (value, source) = row.read().map_err(|error| error.to_string())?;
        let unit = if let params::Kind::Number { unit, .. } = row.kind() { unit.suffix() } else { "" };
        let gap = if unit.is_empty() { "" } else { " " };
        let _ = writeln!(out, "{}{} = {value}{gap}{unit}", params::PREFIX, row.name());
        let _ = writeln!(out, "    from {source}; default {}{gap}{unit}; {}", row.default(), row.kind());
        let _ = writeln!(out, "   {}", row.meaning());
    }
    for name in params::unknown() {
        let _ = writeln!(out, "{}", misspelt(&name));
    }
    Ok(out)
}

/// What `whimbrel info --fabrics` prints: every way to reach others, whether it is used, and its devices on this machine.
///
/// Errors: a value of `WHIMBREL_FABRIC` or `WHIMBREL_NET` that is none.
pub fn fabrics() -> Result<String, String> {
    let mut out = String::new();
    for engine::FabricReport { name, chosen, devices } in engine::fabrics().map_err(|error| error.to_string())? {
        let _ = writeln!(out, "{name:<8}{chosen}");
        for (device, said) in devices {
            let _ = writeln!(out, "        {device}: {said}");
        }
    }
    Ok(out)
}

/// A line about a variable that looks like a parameter and is none, with the nearest name.
pub fn misspelt(name: &str) -> String {
    let rows = params::table::ALL.iter().map(|row| format!("{}{}", params::PREFIX, row.name()));
    let nearest = rows.map(|row| (strsim::damerau_levenshtein(name, &row), row)).min();
    let bare = name.len().saturating_sub(params::PREFIX.len());
    // Further away, nothing of the name is left to recognize.
    let meant = nearest.filter(|(distance, _)| *distance <= 1 + bare / 3).map_or(String::new(), |(_, row)| format!("; did you mean {row}?"));
    format!("{name} is set, but no parameter has this name{meant}")
}

fn single_copy(works: bool, ptrace_scope: Option<&str>) -> &'static str {
    match (works, ptrace_scope) {
        (false, _) => "refused by the system",
        (true, None | Some("0")) => "between processes of one user",
        (true, Some("1")) => "restricted by ptrace_scope; ranks try it",
        (true, Some("2")) => "for privileged users",
        (true, Some(_)) => "refused by ptrace_scope",
    }
}

fn names(directory: &str) -> String {
    let mut names: Vec<String> =
        fs::read_dir(directory).map(|entries| entries.flatten().map(|entry| entry.file_name().to_string_lossy().into_owned()).collect()).unwrap_or_default();
    names.sort();
    if names.is_empty() { "none".to_owned() } else { names.join(", ") }
}
