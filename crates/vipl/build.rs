//! Link options of `libvipl.so`.
fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    // The library's threads may outlive the program's last use of it: nodelete.
    for arg in ["-Wl,-soname,libvipl.so.1", "-Wl,-z,now", "-Wl,-z,nodelete"] {
        println!("cargo:rustc-cdylib-link-arg={arg}");
    }
}
