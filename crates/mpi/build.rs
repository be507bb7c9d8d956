//! Writes the handle types and constants of the ABI tables into `OUT_DIR`.
use std::path::PathBuf;

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    let out = PathBuf::from(std::env::var_os("OUT_DIR").expect("set by cargo"));
    let tables = abigen::Tables::load();
    std::fs::write(out.join("handles.rs"), abigen::rust::handles(&tables)).expect("OUT_DIR is writable");
    std::fs::write(out.join("consts.rs"), abigen::rust::constants(&tables)).expect("OUT_DIR is writable");
}
