//! Replays what fuzzing has found worth keeping (`fuzz/corpus/datagram`) through its target, without a fuzzer.

#[path = "../../../fuzz/targets/datagram.rs"]
mod datagram;

#[test]
fn corpus_of_datagram() {
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus/datagram");
    let mut count = 0;
    for entry in std::fs::read_dir(&folder).unwrap() {
        let path = entry.unwrap().path();
        // A failing file is the last one named.
        println!("{}", path.display());
        datagram::run(&std::fs::read(&path).unwrap());
        count += 1;
    }
    assert!(count >= 10, "{} holds only {count} files", folder.display());
}
