//! `docs/status.md`: which functions are built, chapter by chapter, what mpi4py's tests leave out, and known faults.

use crate::exports::Built;
use crate::tables::{CHAPTERS, Tables};
use std::fmt::Write;

/// What mpi4py's tests leave out, and why: the test reads the same text.
const MPI4PY: &str = include_str!("../../../tests/abi/mpi4py_skips.md");

/// What is known to be wrong and not mended yet.
const KNOWN_FAULTS: &str = include_str!("known_faults.md");

/// The whole document.
pub fn status(tables: &Tables, built: &Built) -> String {
    let count = |chapter: Option<u8>| {
        let of = tables.functions.iter().filter(|f| chapter.is_none_or(|c| c == f.chapter));
        of.fold((0, 0), |(done, all), f| (done + usize::from(built.has(&f.name)), all + 1))
    };
    let mut out = String::from(
        "# Status\n\n\
         Generated from the tables and the entry points by `cargo run -p whimbrel-abigen -- status`; `make test` fails when it is out of date.\n\n\
         Every function of the MPI-5.0 standard ABI is exported, as `MPI_X` and `PMPI_X`. One that is not built raises\n\
         `MPI_ERR_UNSUPPORTED_OPERATION` with its name in the message.\n\n\
         | chapter of MPI-5.0 | built | functions |\n| --- | ---: | ---: |\n",
    );
    for (chapter, title) in CHAPTERS {
        let (done, all) = count(Some(chapter));
        let _ = writeln!(out, "| {chapter} {title} | {done} | {all} |");
    }
    let (done, all) = count(None);
    let _ = writeln!(out, "| **all** | **{done}** | **{all}** |");
    for (chapter, title) in CHAPTERS {
        let (done, all) = count(Some(chapter));
        let _ = write!(out, "\n## {chapter} {title}\n");
        if done == all {
            out.push_str("\nAll built.\n");
            continue;
        }
        for (is_built, head) in [(true, "Built"), (false, "Not built")] {
            let names: Vec<String> = tables.in_chapter(chapter).filter(|f| built.has(&f.name) == is_built).map(|f| format!("`{}`", f.name)).collect();
            if !names.is_empty() {
                let _ = write!(out, "\n{head} ({}): {}.\n", names.len(), names.join(", "));
            }
        }
    }
    let removed: Vec<String> = tables.removed.iter().map(|r| format!("`{}`", r.function.name)).collect();
    let _ = write!(
        out,
        "\n## 17 Removed Interfaces\n\nNot part of the ABI; built for programs written before their removal ({}): {}.\n\n",
        removed.len(),
        removed.join(", ")
    );
    out.push_str(MPI4PY);
    out.push_str(KNOWN_FAULTS);
    out
}
