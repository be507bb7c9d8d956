//! Replays what fuzzing has found worth keeping (`fuzz/corpus`) through the fuzz targets, without a fuzzer.

#[path = "../../../fuzz/targets/costs.rs"]
mod costs;
#[path = "../../../fuzz/targets/dynamic.rs"]
mod dynamic;
#[path = "../../../fuzz/targets/launcher.rs"]
mod launcher;
#[path = "../../../fuzz/targets/managers.rs"]
mod managers;
#[path = "../../../fuzz/targets/ring.rs"]
mod ring;
#[path = "../../../fuzz/targets/wire.rs"]
mod wire;

use std::path::Path;

fn replay(target: &str, run: fn(&[u8])) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus").join(target);
    let mut count = 0;
    for entry in std::fs::read_dir(&folder).unwrap() {
        let path = entry.unwrap().path();
        // A failing file is the last one named.
        println!("{}", path.display());
        run(&std::fs::read(&path).unwrap());
        count += 1;
    }
    assert!(count >= 10, "{} holds only {count} files", folder.display());
}

#[test]
fn corpus_of_wire() {
    replay("wire", wire::run);
}

#[test]
fn corpus_of_costs() {
    replay("costs", costs::run);
}

#[test]
fn corpus_of_dynamic() {
    replay("dynamic", dynamic::run);
}

#[test]
fn corpus_of_launcher() {
    replay("launcher", launcher::run);
}

#[test]
fn corpus_of_managers() {
    replay("managers", managers::run);
}

#[test]
fn corpus_of_ring() {
    replay("ring", ring::run);
}
