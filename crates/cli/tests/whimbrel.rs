//! The `whimbrel` command.

use std::process::{Command, Output};

fn whimbrel(args: &[&str], variables: &[(&str, &str)]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_whimbrel"));
    command.args(args).env("WHIMBREL_CONFIG", "").envs(variables.iter().copied()).output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[test]
fn facts_of_build_and_machine() {
    let output = whimbrel(&["info"], &[]);
    assert!(output.status.success());
    let facts = text(&output.stdout);
    for name in ["version", "library", "kernel", "processors", "cores", "page", "process_vm_readv", "RDMA devices"] {
        assert!(facts.lines().any(|line| line.starts_with(name) && line.len() > 26), "{name}: {facts}");
    }
}

#[test]
fn parameters_show_their_value_and_where_it_came_from() {
    let directory = std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("conf-{}", std::process::id()));
    std::fs::write(&directory, "# mine\ninterrupt_grace = 7s\nabort_grace = 1s\n").unwrap();
    let path = directory.to_str().unwrap();
    let output = whimbrel(&["info", "--params"], &[("WHIMBREL_CONFIG", path), ("WHIMBREL_ABORT_GRACE", "20"), ("WHIMBREL_REPROT", "1")]);
    let table = text(&output.stdout);
    assert!(table.contains(&format!("WHIMBREL_INTERRUPT_GRACE = 7000 ms\n    from {path}:2; default 5000 ms")), "{table}");
    assert!(table.contains("WHIMBREL_ABORT_GRACE = 20 ms\n    from environment; default 250 ms"), "{table}");
    assert!(table.contains("WHIMBREL_REPORT = off\n    from default; default off"), "{table}");
    assert!(table.contains("WHIMBREL_REPROT is set, but no parameter has this name; did you mean WHIMBREL_REPORT?"), "{table}");
    std::fs::remove_file(directory).unwrap();
}

#[test]
fn what_is_wrong_is_refused_in_one_line() {
    let output = whimbrel(&["info", "--params"], &[("WHIMBREL_REPORT", "perhaps")]);
    assert_eq!(output.status.code(), Some(2));
    assert_eq!(text(&output.stderr), "whimbrel: WHIMBREL_REPORT=\"perhaps\": expected on or off\n");
    assert_eq!(whimbrel(&["infer"], &[]).status.code(), Some(2));
}
