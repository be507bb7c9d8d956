//! Replays what fuzzing has found worth keeping (`fuzz/corpus/vipl`), without a fuzzer.
#![cfg(not(loom))]

#[path = "../../../fuzz/targets/vipl.rs"]
mod target;

#[test]
fn corpus_of_vipl() {
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus/vipl");
    let mut count = 0;
    for entry in std::fs::read_dir(&folder).unwrap() {
        let path = entry.unwrap().path();
        // A failing file is the last one named.
        println!("{}", path.display());
        target::run(&std::fs::read(&path).unwrap());
        count += 1;
    }
    assert!(count >= 10, "{} holds only {count} files", folder.display());
}
