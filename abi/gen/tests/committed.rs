//! The generated files in the repository are those that the tables and the entry points give.

use abigen::exports::Built;
use abigen::{Tables, header, status};
use std::path::{Path, PathBuf};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).unwrap().to_path_buf()
}

fn assert_same(file: &str, wanted: &str) {
    let found = std::fs::read_to_string(root().join(file)).unwrap();
    let line = wanted.lines().zip(found.lines()).position(|(wanted, found)| wanted != found);
    assert!(found == wanted, "{file} is out of date (line {:?}); run `make generate`", line.map(|n| n + 1));
}

#[test]
fn the_header_is_the_one_of_the_tables() {
    assert_same("include/mpi.h", &header::header(&Tables::load()));
}

#[test]
fn the_status_tells_which_functions_are_built() {
    let built = Built::scan(&root().join("crates/abi/src/entry")).unwrap();
    assert_same("docs/status.md", &status::status(&Tables::load(), &built));
}
