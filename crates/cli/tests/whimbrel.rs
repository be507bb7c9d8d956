//! The `whimbrel` command.

use proto::costs::{PeerKind, text as costs_text};
use proto::protocols::Protocol;
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

/// Whatever devices this machine has, each way to reach others says whether it is used, and verbs what there is or is missing.
#[test]
fn every_fabric_says_whether_it_is_used() {
    for (word, used) in [("auto", "used between hosts"), ("udp", "used: WHIMBREL_FABRIC=udp"), ("verbs", "not used: WHIMBREL_FABRIC=verbs")] {
        let table = text(&whimbrel(&["info", "--fabrics"], &[("WHIMBREL_FABRIC", word)]).stdout);
        assert!(table.contains(&format!("udp     {used}\n")), "{table}");
        let (_, after) = table.split_once("\nverbs ").expect("a line for each");
        assert_eq!(after.contains(" used: WHIMBREL_FABRIC=verbs"), word == "verbs", "{table}");
        assert!(after.lines().nth(1).is_some_and(|line| line.starts_with("        ")), "{table}");
    }
    let refused = whimbrel(&["info", "--fabrics"], &[("WHIMBREL_NET", "10.0.0.0/99")]);
    assert_eq!((refused.status.code(), text(&refused.stderr).contains("WHIMBREL_NET")), (Some(2), true));
}

/// A file of costs for this machine, by which messages to a core of the same cache go with their header up to 16 KiB.
fn costs_of(machine: &str) -> String {
    let line = |start: u64, per_kib: u64| proto::costs::Curve::through(&[(0, start), (1 << 20, start + per_kib * 1024)]).unwrap();
    let mut costs = proto::costs::Costs::unknown();
    costs.set(PeerKind::SharedCache, Protocol::Eager, line(200_000, 200_000));
    costs.set(PeerKind::SharedCache, Protocol::Announced, line(2_500_000, 100_000));
    costs.set(PeerKind::SharedCache, Protocol::Read, line(2_000_000, 100_000));
    costs.set(PeerKind::SharedCache, Protocol::Cooperative, line(4_000_000, 50_000));
    costs.set(PeerKind::SharedCache, Protocol::Pipelined, line(1_000_000, 300_000));
    costs_text::write(machine, &costs)
}

/// What `info --protocols` says of a size: its line.
fn line_of<'a>(table: &'a str, size: &str) -> &'a str {
    table.lines().find(|line| line.trim_start().starts_with(size)).unwrap_or_else(|| panic!("no line for {size}: {table}"))
}

#[test]
fn protocols_follow_the_costs_of_a_warm_cache() {
    let path = std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("costs-warm-{}", std::process::id()));
    std::fs::write(&path, costs_of(&engine::costs::machine::describe())).unwrap();
    let named = path.to_str().unwrap();
    let costs = text_of(&whimbrel(&["info", "--costs"], &[("WHIMBREL_COSTS", named)]));
    assert!(costs.contains(&format!("from {named}\n")) && costs.contains("shared-cache: one message one way"), "{costs}");
    let tables = text_of(&whimbrel(&["info", "--protocols"], &[("WHIMBREL_COSTS", named)]));
    for (size, protocol) in [("0 B", "eager"), ("16 KiB", "eager"), ("32 KiB", "announced"), ("4 MiB", "announced")] {
        assert!(line_of(&tables, size).contains(protocol), "{size}: {tables}");
    }
    assert!(tables.lines().filter(|line| line.contains("eager") || line.contains("announced")).count() >= proto::costs::SIZES, "{tables}");
    let late = text_of(&whimbrel(&["info", "--protocols"], &[("WHIMBREL_COSTS", named), ("WHIMBREL_SPECULATION", "off")]));
    for (size, protocol) in [("16 KiB", "eager"), ("32 KiB", "read"), ("64 KiB", "cooperative")] {
        assert!(line_of(&late, size).contains(protocol), "{size}: {late}");
    }
    let set = text_of(&whimbrel(&["info", "--protocols"], &[("WHIMBREL_COSTS", named), ("WHIMBREL_EAGER_MAX", "64K")]));
    assert!(line_of(&set, "64 KiB").contains("WHIMBREL_EAGER_MAX is set"), "{set}");
    std::fs::remove_file(path).unwrap();
}

#[test]
fn collectives_are_listed_with_their_way() {
    let line_of = |listed: &str, call: &str, way: &str| {
        listed.lines().any(|line| line.split_whitespace().next() == Some(call) && line.split_whitespace().any(|word| word == way))
    };
    let usual = text_of(&whimbrel(&["info", "--collectives"], &[]));
    for (call, way) in [("MPI_Barrier", "lines"), ("MPI_Bcast", "slots"), ("MPI_Alltoallv", "slots"), ("MPI_Scan", "chain"), ("MPI_Allreduce", "rabenseifner")]
    {
        assert!(line_of(&usual, call, way), "{call} {way}: {usual}");
    }
    let off = text_of(&whimbrel(&["info", "--collectives"], &[("WHIMBREL_COLLECTIVE_SLOTS", "off")]));
    assert!(off.contains("WHIMBREL_COLLECTIVE_SLOTS is off") && !line_of(&off, "MPI_Bcast", "slots") && !line_of(&off, "MPI_Barrier", "lines"), "{off}");
    let ordered = text_of(&whimbrel(&["info", "--collectives"], &[("WHIMBREL_REPRODUCIBLE", "on")]));
    assert!(line_of(&ordered, "MPI_Allreduce", "reduce_bcast") && !line_of(&ordered, "MPI_Allreduce", "rabenseifner"), "{ordered}");
}

#[test]
fn a_cold_torn_or_foreign_cache_is_said_so_and_replaced_where_the_machine_can_be_measured() {
    let folder = std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("costs-states-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let own = costs_of(&engine::costs::machine::describe());
    for (name, content, said) in
        [("cold", None, "absent before"), ("torn", Some(own[..own.len() / 2].to_owned()), "torn"), ("foreign", Some(costs_of("there")), "of another machine")]
    {
        let path = folder.join(name);
        if let Some(content) = &content {
            std::fs::write(&path, content).unwrap();
        }
        let named = path.to_str().unwrap();
        let out = text_of(&whimbrel(&["info", "--costs"], &[("WHIMBREL_COSTS", named)]));
        if out.contains("measured now") {
            assert!(out.contains(said) && out.contains(&format!("left in {named}")), "{name}: {out}");
            let again = text_of(&whimbrel(&["info", "--costs"], &[("WHIMBREL_COSTS", named)]));
            assert!(again.contains(&format!("from {named}\n")), "{name}: {again}");
        } else {
            // No two cores at once: what lies there is as it was.
            assert!(out.contains("not measured: "), "{name}: {out}");
            assert_eq!(std::fs::read_to_string(&path).ok(), content, "{name}");
        }
    }
    let off = text_of(&whimbrel(&["info", "--protocols"], &[("WHIMBREL_COSTS", "off")]));
    assert!(off.contains("WHIMBREL_COSTS is off; assumed") && line_of(&off, "64 KiB").contains("default of WHIMBREL_EAGER_MAX"), "{off}");
    let busy = folder.join("busy");
    let lock = std::fs::File::create(busy.with_extension("lock")).unwrap();
    lock.lock().unwrap();
    let out = text_of(&whimbrel(&["info", "--costs"], &[("WHIMBREL_COSTS", busy.to_str().unwrap())]));
    assert!(out.contains("another process is at it"), "{out}");
    std::fs::remove_dir_all(folder).unwrap();
}

fn text_of(output: &Output) -> String {
    assert!(output.status.success(), "{output:?}");
    text(&output.stdout)
}

#[test]
fn what_is_wrong_is_refused_in_one_line() {
    let output = whimbrel(&["info", "--params"], &[("WHIMBREL_REPORT", "perhaps")]);
    assert_eq!(output.status.code(), Some(2));
    assert_eq!(text(&output.stderr), "whimbrel: WHIMBREL_REPORT=\"perhaps\": expected on or off\n");
    assert_eq!(whimbrel(&["infer"], &[]).status.code(), Some(2));
}
