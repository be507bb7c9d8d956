//! Writes the exported symbols into `OUT_DIR` and names the shared object.
use abigen::exports::{Built, exports};
use std::path::{Path, PathBuf};

fn main() {
    let entry_dir = Path::new("src/entry");
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rerun-if-changed={}", entry_dir.display());
    let out = PathBuf::from(std::env::var_os("OUT_DIR").expect("set by cargo"));
    let text = Built::scan(entry_dir).and_then(|built| exports(&abigen::Tables::load(), &built));
    match text {
        Ok(text) => std::fs::write(out.join("exports.rs"), text).expect("OUT_DIR is writable"),
        Err(message) => panic!("{message}"),
    }
    // Threads of the library may outlive the program's last use of it, so that it must not be unloaded: nodelete.
    for arg in ["-Wl,-soname,libmpi_abi.so.1", "-Wl,-Bsymbolic-functions", "-Wl,-z,now", "-Wl,-z,defs", "-Wl,-z,nodelete"] {
        println!("cargo:rustc-cdylib-link-arg={arg}");
    }
}
