//! `whimbrel-abigen header | status [OUTPUT]`: writes a generated file, into its place in the repository unless OUTPUT is given.
#![forbid(unsafe_code)]

use abigen::exports::Built;
use abigen::{Tables, header, status};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

fn main() -> ExitCode {
    match run(&std::env::args().skip(1).collect::<Vec<_>>()) {
        Ok(path) => {
            println!("{}", path.display());
            ExitCode::SUCCESS
        }
        Err(message) => {
            eprintln!("whimbrel-abigen: {message}");
            ExitCode::FAILURE
        }
    }
}

fn run(args: &[String]) -> Result<PathBuf, String> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).ok_or("no repository around the generator")?;
    let tables = Tables::load();
    let (text, place) = match args.first().map(String::as_str) {
        Some("header") => (header::header(&tables), root.join("include/mpi.h")),
        Some("status") => {
            let built = Built::scan(&root.join("crates/abi/src/entry"))?;
            (status::status(&tables, &built), root.join("docs/status.md"))
        }
        _ => return Err("usage: whimbrel-abigen header|status [OUTPUT]".into()),
    };
    let path = args.get(1).map_or(place, PathBuf::from);
    std::fs::write(&path, text).map_err(|e| format!("{}: {e}", path.display()))?;
    Ok(path)
}
