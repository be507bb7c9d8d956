//! Which kinds of memory can a program ask for, or promise to use (MPI-5.0 §12.4.3)?
//!
//! A kind is a name, and perhaps restrictors behind colons that say which memory of that kind is meant: `mpi:alloc_mem`.

/// Kinds that every rank has, whatever was asked for.
pub const ALWAYS: &str = "mpi,system";
/// Restrictors of `mpi`; `system` has none.
const OF_MPI: [&str; 3] = ["alloc_mem", "win_allocate", "win_allocate_shared"];

/// The kinds of a list with commas between.
pub fn list(kinds: &str) -> impl Iterator<Item = &str> {
    kinds.split(',').map(str::trim).filter(|kind| !kind.is_empty())
}

/// Whether memory of `kind`, which may have restrictors, can be used here.
pub fn is_known(kind: &str) -> bool {
    let mut words = kind.split(':');
    match words.next() {
        Some("system") => words.next().is_none(),
        Some("mpi") => words.all(|restrictor| OF_MPI.contains(&restrictor)),
        _ => false,
    }
}

/// What is supported where `asked` was asked for, shorter than `bytes_max`: [`ALWAYS`], and the kinds with restrictors that were named and are known.
pub fn supported(asked: &str, bytes_max: usize) -> String {
    let mut kinds = ALWAYS.to_string();
    for kind in list(asked).filter(|kind| is_known(kind)) {
        if kinds.len() + kind.len() + 1 < bytes_max && !kinds.split(',').any(|there| there == kind) {
            kinds = format!("{kinds},{kind}");
        }
    }
    kinds
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_kinds_with_known_restrictors_are_supported() {
        for (asked, given) in [
            ("", "mpi,system"),
            ("system", "mpi,system"),
            ("mpi:alloc_mem, cuda:device ,mpi", "mpi,system,mpi:alloc_mem"),
            ("mpi:win_allocate:alloc_mem,mpi:x,system:y,mpi:", "mpi,system,mpi:win_allocate:alloc_mem"),
            ("mpi:alloc_mem,mpi:alloc_mem", "mpi,system,mpi:alloc_mem"),
        ] {
            assert_eq!(supported(asked, 1024), given, "{asked}");
        }
        assert_eq!(supported("mpi:alloc_mem", 15), "mpi,system");
    }
}
