//! The real `mpiexec` with shell programs and ranks that do what they are told.

mod common;

use common::{Ended, MPIEXEC, RANK, Running, command, eventually, run, signal, skipped, start};
use std::collections::BTreeMap;
use std::fs;
use std::io::{Read, Write};
use std::path::PathBuf;
use std::process::{Command, Stdio};

fn sorted(text: &str) -> Vec<&str> {
    let mut lines: Vec<&str> = text.lines().collect();
    lines.sort_unstable();
    lines
}

/// The one line of `mpiexec` itself.
#[track_caller]
fn line(ended: &Ended) -> &str {
    let lines: Vec<&str> = ended.err.lines().filter(|line| line.starts_with("mpiexec: ")).collect();
    assert_eq!(lines.len(), 1, "one line is expected: {ended:?}");
    lines[0]
}

fn scratch(name: &str) -> PathBuf {
    let path = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("{name}-{}", std::process::id()));
    let _ = fs::remove_dir_all(&path);
    fs::create_dir_all(&path).unwrap();
    path
}

// ---- Programs that know nothing of MPI ----

#[test]
fn any_program_runs() {
    let ended = run(&["-n", "4", "echo", "hello"]);
    assert_eq!((ended.status, ended.out.as_str(), ended.err.as_str()), (Some(0), "hello\nhello\nhello\nhello\n", ""));
    assert_eq!(run(&["-n", "300", "true"]).status, Some(0));
}

#[test]
fn status_is_that_of_the_first_that_failed() {
    let ended = run(&["-n", "3", "sh", "-c", "[ $WHIMBREL_RANK = 1 ] && exit 5; sleep 1000"]);
    assert_eq!(ended.status, Some(5));
    assert!(line(&ended).contains("rank 1 (") && line(&ended).ends_with("exited with status 5 without calling MPI_Init"));
    let ended = run(&["-n", "2", "sh", "-c", "[ $WHIMBREL_RANK = 0 ] && kill -9 $$; sleep 1000"]);
    assert_eq!(ended.status, Some(137));
    assert!(line(&ended).contains("rank 0 (") && line(&ended).contains("was killed by signal 9 (SIGKILL)"));
}

#[test]
fn what_cannot_be_started_is_named() {
    let ended = run(&["-n", "2", "sleep", "1000", ":", "./no-such-program"]);
    assert_eq!(ended.status, Some(127));
    assert!(line(&ended).contains("./no-such-program"));
    let ended = run(&["--wdir", "/no/such/place", "true"]);
    assert_eq!(ended.status, Some(127));
    assert!(line(&ended).contains("/no/such/place"));
    let ended = run(&["/etc/passwd"]);
    assert_eq!(ended.status, Some(126));
    let ended = run(&["-n", "0", "true"]);
    assert_eq!(ended.status, Some(2));
    assert!(line(&ended).contains("-n 0"));
}

#[test]
fn a_limit_of_open_files_that_is_too_low_is_told() {
    let script = format!("ulimit -n 200; exec {MPIEXEC} -n 64 true");
    let output = Command::new("sh").args(["-c", &script]).output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(text.contains("64 ranks need 288 open files, but the limit is 200"), "{text}");
    // The soft limit is raised.
    let script = format!("ulimit -Sn 100; exec {MPIEXEC} -n 64 true");
    assert!(Command::new("sh").args(["-c", &script]).status().unwrap().success());
}

#[test]
fn programs_get_their_own_variables_and_directory() {
    let ended = run(&[
        "-genv",
        "A",
        "common",
        "-n",
        "1",
        "--env",
        "B=one",
        "sh",
        "-c",
        "echo $WHIMBREL_RANK/$WHIMBREL_SIZE $A $B",
        ":",
        "-n",
        "2",
        "-x",
        "A=own",
        "--wdir",
        "/",
        "sh",
        "-c",
        "echo $WHIMBREL_RANK/$WHIMBREL_SIZE $A $B $PWD",
    ]);
    assert_eq!(sorted(&ended.out), ["0/3 common one", "1/3 own /", "2/3 own /"]);
}

#[test]
fn ranks_that_fit_share_the_cores_and_others_roam() {
    let allowed = "sed -n s/Cpus_allowed_list:.//p /proc/self/status";
    let of = |args: &[&str]| -> Vec<String> {
        let ended = run(&[args, &["sh", "-c", allowed]].concat());
        assert_eq!(ended.status, Some(0), "{ended:?}");
        ended.out.lines().map(str::to_owned).collect()
    };
    let everything = of(&["-n", "1"]);
    let cores = cli::topology::cores().len();
    assert_eq!(of(&["-n", "2", "--bind", "none"]), [&everything[..], &everything[..]].concat());
    if cores >= 2 {
        let mut bound = of(&["-n", "2"]);
        bound.sort();
        bound.dedup();
        assert_eq!(bound.len(), 2, "two ranks share a core although there are {cores}");
        let count = cores.min(64);
        let mut bound = of(&["-n", &count.to_string(), "--bind", "core"]);
        bound.sort();
        bound.dedup();
        assert_eq!(bound.len(), count);
    }
    let many = (cores + 1).to_string();
    assert!(of(&["-n", &many]).iter().all(|list| *list == everything[0]));
}

// ---- Output and input ----

#[test]
fn lines_of_ranks_never_mix() {
    // Pieces of lines, written one by one, from many ranks at once.
    let script = "i=0; while [ $i -lt 150 ]; do for p in a b c d; do printf %s $p$WHIMBREL_RANK.; done; echo $i; i=$((i+1)); done";
    let ended = run(&["-n", "8", "-l", "sh", "-c", script]);
    let mut next: BTreeMap<String, u32> = BTreeMap::new();
    for line in ended.out.lines() {
        let (label, text) = line.split_once("] ").expect("a label");
        let rank = label.strip_prefix('[').expect("a label");
        let at = next.entry(rank.to_owned()).or_default();
        assert_eq!(text, format!("a{rank}.b{rank}.c{rank}.d{rank}.{at}"));
        *at += 1;
    }
    assert_eq!(next.into_values().collect::<Vec<_>>(), [150; 8]);
}

#[test]
fn much_output_arrives_whole() {
    let ended = run(&["-n", "3", "sh", "-c", "seq 1 60000"]);
    let mut numbers: Vec<u32> = ended.out.lines().map(|line| line.parse().expect("a whole line")).collect();
    numbers.sort_unstable();
    let expected: Vec<u32> = (1..=60000).flat_map(|number| [number; 3]).collect();
    assert!(numbers == expected);
}

#[test]
fn output_and_errors_stay_apart_and_unfinished_lines_come_out() {
    let ended = run(&["-n", "2", "-l", "sh", "-c", "echo good; echo bad >&2; printf end"]);
    assert_eq!(sorted(&ended.out).len(), 4);
    assert_eq!(sorted(&ended.out)[..2], ["[0] end", "[0] good"]);
    assert_eq!(sorted(&ended.err), ["[0] bad", "[1] bad"]);
}

#[test]
fn a_prompt_shows_before_its_line_ends() {
    let (mut command, mark) = command(&["-n", "2", "sh", "-c", "[ $WHIMBREL_RANK = 1 ] && exit; printf 'name? '; read name; echo hi $name"]);
    command.stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let mut prompt = [0; 6];
    child.stdout.as_mut().unwrap().read_exact(&mut prompt).unwrap();
    assert_eq!(&prompt, b"name? ");
    child.stdin.take().unwrap().write_all(b"you\n").unwrap();
    let mut rest = String::new();
    child.stdout.take().unwrap().read_to_string(&mut rest).unwrap();
    assert_eq!(rest, "hi you\n");
    assert!(child.wait().unwrap().success());
    drop(mark);
}

#[test]
fn output_goes_to_files() {
    let directory = scratch("output");
    let path = |name: &str| directory.join(name).to_str().unwrap().to_owned();
    let script = "echo out $WHIMBREL_RANK; echo err $WHIMBREL_RANK >&2";
    let ended = run(&["-n", "2", "--output", &path("d/e"), "sh", "-c", script]);
    assert_eq!((ended.out.as_str(), ended.err.as_str()), ("", ""));
    assert_eq!(fs::read_to_string(path("d/e/rank.1.out")).unwrap(), "out 1\n");
    assert_eq!(fs::read_to_string(path("d/e/rank.1.err")).unwrap(), "err 1\n");
    run(&["-n", "2", "--output", &path("both.%r"), "sh", "-c", script]);
    assert_eq!(fs::read_to_string(path("both.0")).unwrap(), "out 0\nerr 0\n");
    run(&["-n", "2", "--output", &path("%s.%r"), "sh", "-c", script]);
    assert_eq!(fs::read_to_string(path("err.1")).unwrap(), "err 1\n");
    let ended = run(&["--output", "/proc/nowhere", "true"]);
    assert_eq!(ended.status, Some(1));
    assert!(line(&ended).contains("/proc/nowhere"));
    fs::remove_dir_all(directory).unwrap();
}

#[test]
fn lines_longer_than_what_is_held_do_not_mix() {
    // 700,000 letters that tell the rank, and an end, some of them in pieces.
    let script = "x=$(echo abcd | cut -c$((WHIMBREL_RANK+1))); for i in 1 2 3; do head -c 700000 /dev/zero | tr '\\0' $x; printf $x; echo $x; done";
    let ended = run(&["-n", "4", "sh", "-c", script]);
    assert_eq!(ended.status, Some(0), "{}", ended.err);
    let lines: Vec<&str> = ended.out.lines().collect();
    assert_eq!(lines.len(), 12, "{:?}", lines.iter().map(|line| line.len()).collect::<Vec<_>>());
    for line in lines {
        assert!(line.len() == 700_002 && line.bytes().all(|letter| letter == line.as_bytes()[0]), "a line of {} bytes is mixed or cut", line.len());
    }
}

#[test]
fn lines_get_patterns_times_and_one_stream() {
    let script = "echo out; echo err >&2";
    let ended = run(&["-n", "2", "-prepend-pattern", "<%r on %h> ", "sh", "-c", script]);
    let host = fs::read_to_string("/proc/sys/kernel/hostname").unwrap();
    let with = |text: &str| [0, 1].map(|rank| format!("<{rank} on {}> {text}", host.trim()));
    assert_eq!((sorted(&ended.out), sorted(&ended.err)), (with("out").iter().map(String::as_str).collect(), with("err").iter().map(String::as_str).collect()));
    for option in [&["--merge-stderr-to-stdout"][..], &["--output", "merge"]] {
        for count in ["1", "2"] {
            let ended = run(&[&["-n", count], option, &["sh", "-c", script]].concat());
            let each: usize = count.parse().unwrap();
            assert_eq!((ended.out.matches("out\n").count(), ended.out.matches("err\n").count(), ended.err.as_str()), (each, each, ""));
        }
    }
    let ended = run(&["--timestamp-output", "-l", "sh", "-c", script]);
    let (time, rest) = ended.out.split_once(' ').unwrap();
    assert!(time.len() == 24 && time.ends_with('Z') && time.as_bytes()[10] == b'T', "{ended:?}");
    assert_eq!(rest, "[0] out\n");
    let directory = scratch("errors");
    let pattern = directory.join("e/%r.txt");
    let ended = run(&["-n", "2", "-errfile-pattern", pattern.to_str().unwrap(), "sh", "-c", script]);
    assert_eq!((ended.out.as_str(), ended.err.as_str()), ("out\nout\n", ""));
    assert_eq!(fs::read_to_string(directory.join("e/1.txt")).unwrap(), "err\n");
    fs::remove_dir_all(directory).unwrap();
}

#[test]
fn places_are_shown_and_processors_chosen() {
    let ended = run(&["-n", "2", "--report-bindings", "true"]);
    let lines = sorted(&ended.err);
    assert!(lines.len() == 2 && lines[0].starts_with("mpiexec: rank 0 (") && lines[1].contains(": true, "), "{lines:?}");
    assert!(lines.iter().all(|line| line.contains("processors ")), "{lines:?}");
    let ended = run(&["-n", "2", "--display-map", "true", ":", "true"]);
    assert!(line(&ended).starts_with("mpiexec: map: host ") && line(&ended).ends_with(": ranks 0-1 true; rank 2 true"), "{ended:?}");
    let last = cli::topology::cores().last().unwrap().cpus[0].to_string();
    let allowed = "sed -n s/Cpus_allowed_list:.//p /proc/self/status";
    let ended = run(&["-n", "2", "--cpu-list", &last, "sh", "-c", allowed]);
    assert_eq!(ended.out, format!("{last}\n{last}\n"));
    let ended = run(&["--cpu-list", "1000", "true"]);
    assert!(ended.status == Some(1) && line(&ended).contains("processor 1000 is not there"), "{ended:?}");
}

#[test]
fn ranks_are_mapped_and_bound_as_asked() {
    let allowed = "echo $WHIMBREL_RANK $(sed -n s/Cpus_allowed_list:.//p /proc/self/status)";
    let of = |args: &[&str]| {
        let ended = run(&[args, &["sh", "-c", allowed]].concat());
        assert_eq!((ended.status, ended.err.as_str()), (Some(0), ""), "{args:?}: {ended:?}");
        sorted(&ended.out).iter().map(|line| line.split_once(' ').unwrap().1.to_owned()).collect::<Vec<_>>()
    };
    let cores = cli::topology::cores();
    let list = |core: usize| cli::topology::list(&cores[core].cpus);
    assert_eq!(of(&["-n", "1", "--map-by", "core"]), [list(0)]);
    assert_eq!(of(&["-n", "1", "--bind-to", "core"]), [list(0)]);
    assert_eq!(of(&["-n", "1", "--bind-to", "hwthread"]), [cores[0].cpus[0].to_string()]);
    if cores.len() >= 2 {
        assert_eq!(of(&["-n", "2", "--map-by", "core", "--bind-to", "core"]), [list(0), list(1)]);
        assert_eq!(of(&["--map-by", "ppr:2:node", "--bind-to", "core"]).len(), 2);
        let two = cli::topology::list(&[&cores[0].cpus[..], &cores[1].cpus[..]].concat());
        assert_eq!(of(&["-n", "1", "--map-by", "slot:PE=2"]), [two]);
    }
    let too_many = (cores.len() + 1).to_string();
    for args in [["-n", "1", "--map-by", &format!("slot:PE={too_many}")], ["-n", &too_many, "--map-by", "slot:NOOVERSUBSCRIBE"]] {
        let ended = run(&[&args[..], &["true"]].concat());
        assert!(ended.status == Some(1) && line(&ended).contains("cores"), "{ended:?}");
    }
    let ended = run(&["-n", "2", "--mca", "btl", "self,vader", "true"]);
    assert!(ended.status == Some(0) && line(&ended).starts_with("mpiexec: warning: --mca btl self,vader has no effect: "), "{ended:?}");
    assert_eq!(run(&["-q", "-n", "2", "--mca", "btl", "self,vader", "true"]).err, "");
}

#[test]
fn programs_get_what_they_are_to_inherit() {
    let with = |args: &[&str]| {
        let (mut command, mark) = command(&[args, &["sh", "-c", "echo ${A-none} ${B-none} ${C-none}"]].concat());
        command.env("A", "1").env("B", "2");
        let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
        let mut out = String::new();
        child.stdout.take().unwrap().read_to_string(&mut out).unwrap();
        assert!(child.wait().unwrap().success());
        drop(mark);
        out.trim().to_owned()
    };
    assert_eq!(with(&[]), "1 2 none");
    assert_eq!(with(&["-genvnone", "-env", "C", "3"]), "none none 3");
    assert_eq!(with(&["-genvlist", "B,C"]), "none 2 none");
    assert_eq!(with(&["-envlist", "A"]), "1 none none");
    assert_eq!(with(&["-genvnone", "-envall"]), "1 2 none");
}

#[test]
fn programs_are_found_on_a_path_and_in_a_file() {
    use std::os::unix::fs::PermissionsExt;
    let directory = scratch("path");
    let program = directory.join("only-here");
    fs::write(&program, "#!/bin/sh\necho found $WHIMBREL_RANK $*\n").unwrap();
    fs::set_permissions(&program, PermissionsExt::from_mode(0o755)).unwrap();
    let folder = directory.to_str().unwrap();
    assert_eq!(run(&["-path", &format!("/nowhere:{folder}"), "only-here", "x"]).out, "found 0 x\n");
    let file = directory.join("app");
    fs::write(&file, format!("-n 2 -path {folder} only-here 'a b'\n# more\n-n 1 -wdir / pwd\n")).unwrap();
    for option in ["-configfile", "--app"] {
        assert_eq!(sorted(&run(&[option, file.to_str().unwrap()]).out), ["/", "found 0 a b", "found 1 a b"]);
    }
    fs::remove_dir_all(directory).unwrap();
}

#[test]
fn counts_limits_and_kinds_of_other_launchers() {
    assert_eq!(run(&["-ppn", "3", "echo", "x"]).out, "x\nx\nx\n");
    assert_eq!(run(&["-soft", "0:8:2", "-n", "3", "echo", "x"]).out, "x\nx\n");
    let (mut command, mark) = command(&["-n", "1", RANK, "init", "recv"]);
    command.env("MPIEXEC_TIMEOUT", "1");
    let ended = Running::of(command, mark).end();
    assert_eq!(ended.status, Some(124));
    assert_eq!(line(&ended), "mpiexec: time is up after 1 s: rank 0 in MPI_Recv from rank 2, tag 5");
    let ended = run(&["-memory-alloc-kinds", "system,cuda:host,mpi", "true"]);
    assert!(ended.status == Some(0) && line(&ended).contains("cuda:host cannot be had"), "{ended:?}");
    assert_eq!(run(&["-memory-alloc-kinds", "system,mpi:alloc_mem", "true"]).err, "");
    let ended = run(&["-gdb", "true"]);
    assert!(ended.status == Some(2) && line(&ended).contains("-gdb is not supported: start the debugger as the program"), "{ended:?}");
}

fn with_input(args: &[&str], input: &[u8]) -> Ended {
    let (mut command, mark) = command(args);
    let directory = scratch("input");
    fs::write(directory.join("in"), input).unwrap();
    command.stdin(fs::File::open(directory.join("in")).unwrap());
    let from_file = Running::of(command, mark).end();
    let (mut command, mark) = common::command(args);
    command.stdin(Stdio::piped());
    let mut running = Running::of(command, mark);
    // A rank that reads nothing may be gone before everything is written.
    let _ = running.child.stdin.take().unwrap().write_all(input);
    let from_pipe = running.end();
    assert_eq!(sorted(&from_pipe.out), sorted(&from_file.out), "a file and a pipe are read alike");
    from_pipe
}

#[test]
fn input_goes_to_whom_it_is_for() {
    let script = ["sh", "-c", "echo $WHIMBREL_RANK got $(wc -c)"];
    let input = vec![b'x'; 300_000];
    for (option, expected) in [
        (&[][..], ["0 got 300000", "1 got 0"]),
        (&["--stdin", "1"], ["0 got 0", "1 got 300000"]),
        (&["--stdin", "all"], ["0 got 300000", "1 got 300000"]),
        (&["--stdin", "none"], ["0 got 0", "1 got 0"]),
    ] {
        let ended = with_input(&[&["-n", "2"], option, &script].concat(), &input);
        assert_eq!(sorted(&ended.out), expected, "{option:?}");
    }
    // One that does not read must not hold the others up.
    let script = ["sh", "-c", "[ $WHIMBREL_RANK = 0 ] || echo got $(wc -c)"];
    assert_eq!(with_input(&[&["-n", "2", "--stdin", "all"], &script[..]].concat(), &input).out, "got 300000\n");
}

#[test]
fn a_terminal_is_read_for_the_rank_that_asks() {
    let inner = "[ $WHIMBREL_RANK = 0 ] && { printf \"name? \"; read x; echo \"hi $x\"; }; true";
    let script = format!("{MPIEXEC} -n 2 sh -c '{inner}'");
    // script(1) gives its command a terminal.
    let mut command = Command::new("script");
    command.args(["-qec", &script, "/dev/null"]).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let (mut input, mut out) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
    let mut prompt = [0; 6];
    out.read_exact(&mut prompt).unwrap();
    assert_eq!(&prompt, b"name? ");
    input.write_all(b"you\n").unwrap();
    let mut rest = String::new();
    out.read_to_string(&mut rest).unwrap();
    assert!(rest.contains("hi you"), "{rest:?}");
    assert!(child.wait().unwrap().success());
}

#[test]
fn input_that_no_rank_reads_is_left_to_others() {
    let script = format!("printf 'a\\nb\\nc\\n' | while read line; do {MPIEXEC} -n 2 true; echo $line; done");
    let output = Command::new("sh").args(["-c", &script]).output().unwrap();
    assert_eq!(String::from_utf8_lossy(&output.stdout), "a\nb\nc\n");
}

#[test]
fn an_endless_writer_ends_when_nobody_reads() {
    for count in [1, 3] {
        let script = format!("{MPIEXEC} -n {count} yes | head -n 2");
        let output = Command::new("sh").args(["-c", &script]).output().unwrap();
        assert_eq!(String::from_utf8_lossy(&output.stdout), "y\ny\n");
    }
}

#[test]
fn a_full_disk_is_told() {
    let (mut command, _mark) = command(&["-n", "2", "sh", "-c", "echo text; sleep 1000"]);
    let full = fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
    let output = command.stdout(full).output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(text.contains("cannot write standard output: No space left"), "{text}");
}

#[test]
fn what_a_rank_leaves_running_may_finish_its_output() {
    let ended = run(&["-n", "2", "sh", "-c", "seq 1 50000 & exit 0"]);
    assert_eq!(ended.out.lines().count(), 100_000);
}

#[test]
fn a_slow_reader_loses_nothing() {
    let (mut command, _mark) = command(&["-n", "3", "seq", "1", "200000"]);
    let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
    let pid = child.id() as i32;
    // Until the ranks can write no more, all of them wait in a pipe.
    eventually("the launcher waits for its reader", || {
        let waits = |pid: i32| fs::read_to_string(format!("/proc/{pid}/wchan")).is_ok_and(|at| at.contains("pipe_write"));
        let ranks: Vec<i32> = cli::processes::all().iter().filter(|p| p.parent == pid && p.group == p.pid).map(|p| p.pid).collect();
        let writers = ranks.iter().filter(|rank| waits(**rank)).count();
        writers == 3 || fs::read_to_string(format!("/proc/{pid}/wchan")).is_ok_and(|at| at == "0")
    });
    let mut text = String::new();
    child.stdout.take().unwrap().read_to_string(&mut text).unwrap();
    assert!(child.wait().unwrap().success());
    let mut numbers: Vec<u32> = text.lines().map(|line| line.parse().expect("a whole line")).collect();
    numbers.sort_unstable();
    assert!(numbers == (1..=200_000).flat_map(|number| [number; 3]).collect::<Vec<u32>>());
}

// ---- Ranks ----

#[test]
fn ranks_learn_who_they_are() {
    let ended = run(&["-n", "2", RANK, "init", "facts", "finalize", ":", "-n", "1", RANK, "init", "facts", "finalize"]);
    assert_eq!(ended.status, Some(0), "{ended:?}");
    let cores = cli::topology::processors();
    let expected = [(0, 0), (1, 0), (2, 1)].map(|(rank, app)| format!("rank {rank} of 3 appnum {app} universe 3 cores {cores} local 3"));
    assert_eq!(sorted(&ended.out), expected);
    assert!(run(&["--usize", "7", RANK, "init", "facts", "finalize"]).out.contains("universe 7"));
}

#[test]
fn segments_reach_all_peers() {
    for way in ["fetch", "fetch-many"] {
        let ended = run(&["-n", "48", RANK, "init", way, "fence", way, "finalize"]);
        assert_eq!((ended.status, ended.err.as_str()), (Some(0), ""), "{way}");
    }
    // One comes late: the others wait, and the launcher does not.
    let ended = run(&["-n", "6", RANK, "3:sleep=100", "init", "fetch=3", "fetch", "fence", "finalize"]);
    assert_eq!(ended.status, Some(0));
}

#[test]
fn values_and_fences() {
    let ended = run(&["-n", "3", RANK, "init", "1:sleep=50", "put=v", "get=1", "get-late", "fence", "fence", "finalize"]);
    assert_eq!(ended.status, Some(0));
    assert_eq!(sorted(&ended.out), [["no rank stored \"never\" within 20 ms"; 3], ["v"; 3]].concat());
}

#[test]
fn a_rank_that_dies_ends_the_job_with_one_line() {
    for (act, status, words) in [
        (&["init", "1:signal=11", "recv"][..], 139, "was killed by signal 11 (SIGSEGV) while computing"),
        (&["init", "1:signal=9", "barrier"], 137, "was killed by signal 9 (SIGKILL) while computing"),
        (&["init", "1:exit=0", "recv"], 1, "exited with status 0 before MPI_Finalize while computing"),
        (&["init", "1:exit=42", "recv"], 42, "exited with status 42 before MPI_Finalize while computing"),
        (&["1:hello", "1:exit=42", "init", "fetch"], 42, "exited with status 42 before MPI_Finalize while starting"),
        (&["1:exit=4", "init", "recv"], 4, "exited with status 4 without calling MPI_Init"),
        (&["1:exit=0", "init", "fetch"], 1, "waits for it"),
        (&["init", "1:abort=7", "recv"], 7, "aborted the job with code 7: by request"),
        (&["init", "1:abort=256", "recv"], 1, "aborted the job with code 256: by request"),
        (&["init", "1:abort=-1", "recv"], 255, "aborted the job with code -1: by request"),
        (&["init", "1:abort=0", "recv"], 0, "aborted the job with code 0: by request"),
    ] {
        let ended = run(&[&["-n", "3", RANK], act].concat());
        assert_eq!(ended.status, Some(status), "{act:?}: {ended:?}");
        let line = line(&ended);
        assert!(line.starts_with("mpiexec: rank 1 (") && line.contains(words), "{act:?}: {line}");
    }
}

#[test]
fn the_line_says_what_the_rank_was_doing() {
    for (act, words) in [("recv", " in MPI_Recv from rank 2, tag 5"), ("barrier", " in MPI_Barrier")] {
        let running = start(&["-n", "2", RANK, "init", "fence", "print=ready", act]);
        eventually("rank 1 waits", || {
            let ranks = running.processes();
            ranks.len() == 3 && ranks.iter().all(|pid| *pid == running.pid() || parked(*pid))
        });
        let victim = running.processes().into_iter().find(|pid| *pid != running.pid()).unwrap();
        // Rust's own handler lets the first pass, and two that come at once are one.
        eventually("it is dead", || {
            let _ = Command::new("kill").args(["-s", "SEGV", &victim.to_string()]).stderr(Stdio::null()).status();
            !running.processes().contains(&victim)
        });
        let ended = running.end();
        assert_eq!(ended.status, Some(139));
        assert!(line(&ended).ends_with(&format!("pid {victim}) was killed by signal 11 (SIGSEGV){words}")), "{ended:?}");
    }
}

fn parked(pid: i32) -> bool {
    fs::read_to_string(format!("/proc/{pid}/wchan")).is_ok_and(|at| at.contains("futex"))
}

#[test]
fn a_program_inside_a_wrapper_is_watched_as_well() {
    for (script, status, words) in [
        ("RANK init 1:signal=11 recv; exit 0", 139, "was killed by signal 11 (SIGSEGV) while computing"),
        ("RANK init 1:signal=9 recv; sleep 1000", 137, "was killed by signal 9 (SIGKILL) while computing"),
        ("RANK init 1:exit=6 recv; sleep 1000", 6, "exited with status 6 before MPI_Finalize while computing"),
        ("RANK init 1:abort=6 recv; sleep 1000", 6, "aborted the job with code 6"),
    ] {
        let ended = run(&["-n", "2", "sh", "-c", &script.replace("RANK", RANK)]);
        assert_eq!(ended.status, Some(status), "{script}: {ended:?}");
        assert!(line(&ended).starts_with("mpiexec: rank 1 (") && line(&ended).contains(words), "{script}: {ended:?}");
    }
    let ended = run(&["-n", "2", "sh", "-c", &format!("{RANK} init fetch finalize; echo after")]);
    assert_eq!((ended.status, ended.out.as_str()), (Some(0), "after\nafter\n"));
    // A wrapper that closes every descriptor it does not know.
    let ended = run(&["-n", "2", "sh", "-c", &format!("exec 3>&- 4>&- 5>&- 6>&- 7>&- 8>&- 9>&-; exec {RANK} init fetch finalize")]);
    assert_eq!(ended.status, Some(0));
    // A wrapper that puts its program into another namespace, where this system allows it.
    if Command::new("unshare").args(["-Urpf", "true"]).status().is_ok_and(|status| status.success()) {
        let ended = run(&["-n", "2", "unshare", "-Urpf", RANK, "init", "fetch", "fence", "finalize"]);
        assert_eq!(ended.status, Some(0), "{ended:?}");
        let ended = run(&["-n", "2", "unshare", "-Urpf", RANK, "init", "1:exit=6", "recv"]);
        assert_eq!(ended.status, Some(6), "{ended:?}");
    }
    // A wrapper that ends before its program does.
    let directory = scratch("wrapper");
    let script =
        format!("f={}/$WHIMBREL_RANK; mkfifo $f; {RANK} init \"sh=echo >$f\" sleep=50 fetch fence finalize print=done & read x <$f", directory.display());
    let ended = run(&["-n", "2", "sh", "-c", &script]);
    assert_eq!((ended.status, ended.out.matches("done\n").count()), (Some(0), 2), "{ended:?}");
    fs::remove_dir_all(directory).unwrap();
}

#[test]
fn after_finalize_a_rank_may_exit_as_it_likes() {
    assert_eq!(run(&["-n", "3", RANK, "init", "fence", "finalize"]).status, Some(0));
    let ended = run(&["-n", "3", RANK, "init", "finalize", "1:exit=9", "sleep=100", "print=slow"]);
    assert_eq!((ended.status, ended.out.as_str()), (Some(9), "slow\nslow\n"), "the others go on");
    assert!(line(&ended).ends_with("exited with status 9 after MPI_Finalize"));
}

#[test]
fn a_second_process_cannot_be_the_same_rank() {
    let sibling =
        format!("{RANK} init sleep=60000 & p=$!; until {RANK} init 2>$0.err; grep -q 'rank 0 of this job is' $0.err; do sleep 0.01; done; cat $0.err; kill $p");
    let directory = scratch("sibling");
    let ended = run(&["-n", "1", "sh", "-c", &sibling, directory.join("x").to_str().unwrap()]);
    assert!(ended.out.contains("rank 0 of this job is process") && ended.out.contains("cannot join"), "{ended:?}");
    fs::remove_dir_all(directory).unwrap();
    // But a job of its own it may have.
    let ended = run(&["-n", "2", RANK, "init", &format!("sh={MPIEXEC} -n 2 {RANK} init fence finalize"), "finalize"]);
    assert_eq!(ended.out, "sh: exit status: 0\nsh: exit status: 0\n");
}

/// As Python's `multiprocessing` does: the helper process calls `MPI_Init` while its rank lives.
#[test]
fn what_a_rank_starts_is_a_world_of_one() {
    for helper in [format!("{RANK} init"), format!("sh -c '{RANK} init; true'"), format!("env -u WHIMBREL_KEY {RANK} init")] {
        let ended = run(&["-n", "2", RANK, "init", "fence", &format!("sh={helper}"), "fence", "finalize"]);
        assert_eq!(ended.status, Some(0), "{ended:?}");
        assert_eq!((ended.out.matches("singleton").count(), ended.out.matches("sh: exit status: 0").count()), (2, 2), "{ended:?}");
        assert_eq!(ended.err, "");
    }
}

#[test]
fn a_rank_that_exits_well_without_finalize_is_warned_of() {
    // Nobody waits for it: the others go on, and what they have to say is heard.
    let ended = run(&["-n", "3", RANK, "init", "fence", "1:exit=0", "sleep=1500", "print=word", "finalize"]);
    assert_eq!((ended.status, ended.out.as_str()), (Some(0), "word\nword\n"), "{ended:?}");
    assert_eq!(line(&ended), "mpiexec: warning: rank 1 exited with status 0 without calling MPI_Finalize");
    let ended = run(&["-n", "2", RANK, "init", "exit=0"]);
    assert_eq!(ended.status, Some(0));
    assert_eq!(line(&ended), "mpiexec: warning: ranks 0, 1 exited with status 0 without calling MPI_Finalize");
    // Others wait for all ranks.
    let ended = run(&["-n", "3", RANK, "init", "1:exit=0", "0:barrier", "sleep=100000"]);
    assert_eq!(ended.status, Some(1));
    assert!(line(&ended).contains("rank 1 (") && line(&ended).ends_with("while computing, but rank 0 waits in MPI_Barrier"), "{ended:?}");
}

#[test]
fn a_failure_after_finalize_ends_a_job_that_waits() {
    let ended = run(&["-n", "2", RANK, "init", "fence", "1:finalize", "1:exit=1", "barrier"]);
    assert_eq!(ended.status, Some(1));
    assert!(ended.err.contains("exited with status 1 after MPI_Finalize") && ended.err.contains("rank 0 still waits in MPI_Barrier"), "{ended:?}");
}

#[test]
fn others_may_say_what_they_know_when_a_rank_fails() {
    // The others meet the same trouble a little later; what they say is heard, and they are not waited for any longer than that takes.
    let talk = "[ $WHIMBREL_RANK = 0 ] && { echo $$ > $0; exit 7; }
                until [ -s $0 ]; do sleep 0.01; done; while kill -0 $(cat $0) 2> /dev/null; do sleep 0.01; done
                sleep 0.3; echo $WHIMBREL_RANK has more to say >&2; exit 3";
    let file = scratch("say").join("pid");
    for end in ["exit 7", "kill -9 $$"] {
        fs::remove_file(&file).unwrap_or_default();
        let (mut command, mark) = command(&["-n", "3", "sh", "-c", &talk.replace("exit 7", end), file.to_str().unwrap()]);
        command.env("WHIMBREL_FAILURE_GRACE", "60000");
        let ended = Running::of(command, mark).end();
        assert_eq!(ended.status, Some(if end == "exit 7" { 7 } else { 137 }), "{ended:?}");
        for rank in [1, 2] {
            assert!(ended.err.contains(&format!("{rank} has more to say")), "{ended:?}");
        }
        assert_eq!(ended.err.matches("mpiexec: ").count(), 1, "{ended:?}");
    }
    let grace = |ms: &str, sleep: &str| {
        let (mut command, mark) = command(&["-n", "2", "sh", "-c", &format!("[ $WHIMBREL_RANK = 0 ] && exit 7; {sleep}")]);
        command.env("WHIMBREL_FAILURE_GRACE", ms);
        Running::of(command, mark).end().status
    };
    // Who says nothing is ended.
    assert_eq!((grace("0", "sleep 1000"), grace("250", "sleep 1000")), (Some(7), Some(7)));
    fs::remove_dir_all(file.parent().unwrap()).unwrap();
}

#[test]
fn a_program_in_the_current_directory_is_suggested() {
    let directory = scratch("here");
    fs::write(directory.join("prog-here"), "").unwrap();
    let (mut command, mark) = command(&["-n", "2", "prog-here"]);
    command.current_dir(&directory);
    let ended = Running::of(command, mark).end();
    assert_eq!(ended.status, Some(127));
    assert!(line(&ended).ends_with("; did you mean ./prog-here?"), "{ended:?}");
    fs::remove_dir_all(directory).unwrap();
}

#[test]
fn a_misspelt_variable_is_warned_of_with_the_nearest_name() {
    let (mut command, mark) = command(&["-x", "WHIMBREL_FABRICK=udp", "true"]);
    command.env("WHIMBREL_PROGRES", "thread").env("WHIMBREL_QQQQQQQQQQ", "1");
    let ended = Running::of(command, mark).end();
    assert_eq!(ended.status, Some(0));
    let expected = [
        "mpiexec: warning: WHIMBREL_FABRICK is set, but no parameter has this name; did you mean WHIMBREL_FABRIC?",
        "mpiexec: warning: WHIMBREL_PROGRES is set, but no parameter has this name; did you mean WHIMBREL_PROGRESS?",
        "mpiexec: warning: WHIMBREL_QQQQQQQQQQ is set, but no parameter has this name",
    ];
    assert_eq!(sorted(&ended.err), expected);
}

/// What `whimbrel` prints.
fn whimbrel(args: &[&str]) -> (Option<i32>, String) {
    let output = Command::new(env!("CARGO_BIN_EXE_whimbrel")).args(args).output().unwrap();
    (output.status.code(), String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned())
}

#[test]
fn an_interrupt_says_first_where_every_rank_is_and_whimbrel_asks_any_time() {
    for name in ["INT", "QUIT"] {
        let running = start(&["-n", "3", RANK, "init", "fence", "0:recv", "1:barrier", "sleep=100000"]);
        let where_all = ["rank 0 ", " in MPI_Recv from rank 2, tag 5\n", "rank 1 ", " in MPI_Barrier\n", "rank 2 ", " while computing\n"];
        let pid = pid_of_mpiexec(&running);
        eventually("whimbrel where tells of all ranks", || {
            let (_, text) = whimbrel(&["where", &pid]);
            where_all.iter().all(|words| text.contains(words))
        });
        let (status, list) = whimbrel(&["ps"]);
        let of = |line: &&str| line.contains(&format!("mpiexec {pid} "));
        let line_of = list.lines().find(of).expect("the job is listed");
        assert!(status == Some(0) && line_of.starts_with("whimbrel-") && line_of.contains("3 ranks"), "{list}");
        let job = line_of.split_whitespace().next().unwrap();
        assert!(whimbrel(&["where", job]).1.starts_with(line_of.split("  ").next().unwrap()));
        running.signal(name);
        let ended = running.end();
        assert_eq!(line(&ended), format!("mpiexec: SIG{name}: rank 0 in MPI_Recv from rank 2, tag 5; rank 1 in MPI_Barrier; rank 2 while computing"));
    }
    let (status, text) = whimbrel(&["where", "whimbrel-nowhere"]);
    assert!(status == Some(2) && text.contains("no job \"whimbrel-nowhere\""), "{text}");
}

/// The process is `env` first, and then `mpiexec`; its number stays.
fn pid_of_mpiexec(running: &Running) -> String {
    running.pid().to_string()
}

#[test]
fn without_a_launcher_or_under_a_foreign_one() {
    let alone = |variables: &[(&str, &str)]| {
        let output = Command::new(RANK).arg("init").envs(variables.iter().copied()).output().unwrap();
        (output.status.code(), String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned())
    };
    assert_eq!(alone(&[("A", "b")]), (Some(0), "singleton\n".to_owned()));
    let ignore = ("WHIMBREL_FOREIGN_LAUNCHER", "ignore");
    for (variables, words) in [
        (&[("PMIX_RANK", "0")][..], "a PMIx launcher"),
        (&[("PMI_RANK", "0")], "a PMI launcher"),
        (&[("PMI_FD", "0")], "PMI_RANK is not"),
        (&[("PMI_FD", "97"), ("PMI_RANK", "0"), ("PMI_SIZE", "2")], "PMI_FD=97 is no open socket"),
        (&[("PMI_PORT", "127.0.0.1:1"), ("PMI_ID", "0")], "cannot reach the process manager"),
        (&[("PMIX_NAMESPACE", "n"), ("WHIMBREL_LIBPMIX", "libnothing.so.7")], "libnothing.so.7"),
    ] {
        let (status, text) = alone(variables);
        assert_eq!(status, Some(3));
        assert!(text.lines().count() == 1 && text.contains(words), "{text}");
        let (status, text) = alone(&[variables, &[ignore]].concat());
        assert_eq!((status, text.as_str()), (Some(0), "singleton\n"));
    }
    // Ours, inside a foreign one's.
    let (mut command, mark) = command(&["-n", "2", RANK, "init", "fence", "finalize"]);
    command.env("PMIX_RANK", "0").env("SLURM_PROCID", "0").env("SLURM_STEP_ID", "0");
    assert_eq!(Running::of(command, mark).end().status, Some(0));
    // A launcher that is gone.
    let output =
        Command::new(RANK).arg("init").envs([("WHIMBREL_JOB", "whimbrel-gone"), ("WHIMBREL_RANK", "0")]).env("WHIMBREL_KEY", "00".repeat(32)).output().unwrap();
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.code() == Some(3) && text.contains("whimbrel-gone") && text.lines().count() == 1, "{text}");
}

#[test]
fn a_wrong_parameter_is_refused_by_name() {
    let (mut command, mark) = command(&["true"]);
    command.env("WHIMBREL_ABORT_GRACE", "soon");
    let ended = Running::of(command, mark).end();
    assert_eq!(ended.status, Some(1));
    assert!(line(&ended).contains("WHIMBREL_ABORT_GRACE=\"soon\""));
}

#[test]
fn time_is_up_with_a_word_on_every_rank() {
    let ended = run(&["-n", "3", "--timeout", "1", RANK, "init", "fence", "0:recv", "1:barrier", "sleep=100000"]);
    assert_eq!(ended.status, Some(124));
    assert_eq!(line(&ended), "mpiexec: time is up after 1 s: rank 0 in MPI_Recv from rank 2, tag 5; rank 1 in MPI_Barrier; rank 2 while computing");
}

// ---- Strangers ----

/// A running job's name and secret, from the environment of one of its ranks.
fn address(running: &Running) -> (String, [u8; 32]) {
    let of = |pid: &i32| {
        let environment = fs::read(format!("/proc/{pid}/environ")).ok()?;
        let environment = String::from_utf8_lossy(&environment).into_owned();
        let find = |name: &str| environment.split('\0').find_map(|entry| Some(entry.strip_prefix(name)?.to_owned()));
        match launch::environment::parse(|name| find(&format!("{name}=")), true) {
            Ok(launch::environment::Launched::Here(address)) => Some((address.job, address.secret)),
            _ => None,
        }
    };
    let mut found = None;
    eventually("a rank has its environment", || {
        found = running.processes().iter().find_map(of);
        found.is_some()
    });
    found.unwrap()
}

#[test]
fn strangers_are_turned_away() {
    use launch::channel::{self, Received};
    use launch::wire::{Reply, Request, VERSION};
    use std::os::fd::AsFd;
    let running = start(&["-n", "2", RANK, "sleep=300", "init", "fetch", "fence", "finalize", "print=well"]);
    let (job, secret) = address(&running);
    let mut buffer = vec![0; launch::wire::PACKET_BYTES_MAX];
    let mut ask = |packet: &[u8]| {
        let socket = channel::connect(&job).unwrap();
        channel::send(socket.as_fd(), packet, &[]).unwrap();
        match channel::receive(socket.as_fd(), &mut buffer) {
            Ok(Received::Packet { length, .. }) => Some(Reply::parse(&buffer[..length]).unwrap()),
            _ => None,
        }
    };
    let refusal = |reply: Option<Reply>| match reply {
        Some(Reply::Refused { text }) => text,
        other => panic!("{other:?}"),
    };
    let hello = |version, rank, secret| Request::Hello { version, rank, secret }.encode();
    assert!(refusal(ask(&hello(VERSION, 0, [7; 32]))).contains("no rank of the job"));
    assert!(refusal(ask(&hello(VERSION + 1, 0, secret))).contains("version"));
    assert!(refusal(ask(&hello(VERSION, 2, secret))).contains("no rank 2"));
    // Without a hello nothing is answered, sound or not.
    assert!(ask(&Request::Fetch { ranks: vec![0] }.encode()).is_none());
    assert!(ask(&[0xff; 100]).is_none());
    let silent: Vec<_> = (0..200).map(|_| channel::connect(&job)).collect();
    drop(silent);
    let ended = running.end();
    assert_eq!((ended.status, ended.out.as_str()), (Some(0), "well\nwell\n"), "{ended:?}");
}

#[test]
fn a_rank_that_talks_nonsense_ends_the_job() {
    use launch::channel;
    use launch::wire::{Request, VERSION};
    use std::os::fd::AsFd;
    let running = start(&["-n", "2", "sleep", "1000"]);
    let (job, secret) = address(&running);
    let socket = channel::connect(&job).unwrap();
    channel::send(socket.as_fd(), &Request::Hello { version: VERSION, rank: 1, secret }.encode(), &[]).unwrap();
    channel::send(socket.as_fd(), &[0xff; 100], &[]).unwrap();
    let ended = running.end();
    assert_eq!(ended.status, Some(1));
    assert!(line(&ended).starts_with("mpiexec: rank 1 (") && line(&ended).contains("cannot be read"));
}

// ---- Signals ----

#[test]
fn signals_reach_ranks_and_what_they_started() {
    for name in ["INT", "TERM", "HUP", "USR1"] {
        let script = format!("trap 'echo got; exit 3' {name}; echo ready; while :; do sleep 0.01; done");
        let (mut command, _mark) = command(&["-n", "2", "sh", "-c", &script]);
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let mut ready = [0; 12];
        child.stdout.as_mut().unwrap().read_exact(&mut ready).unwrap();
        signal(child.id() as i32, name);
        let output = child.wait_with_output().unwrap();
        assert_eq!(output.status.code(), Some(3), "{name}");
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(text.contains("got"), "{name}: {text}");
        if name != "USR1" {
            assert_eq!(text, "got\ngot\n", "{name}: both had time");
        }
    }
}

#[test]
fn a_second_interrupt_kills_and_so_does_time() {
    let script = "trap 'echo got it' INT; echo ready; while :; do sleep 0.01; done";
    for (grace, twice) in [("3600s", true), ("300ms", false)] {
        let (mut command, _mark) = command(&["-n", "2", "sh", "-c", script]);
        command.env("WHIMBREL_INTERRUPT_GRACE", grace);
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let (pid, mut out) = (child.id() as i32, child.stdout.take().unwrap());
        let mut read = |expected: &str| {
            let mut bytes = vec![0; expected.len()];
            out.read_exact(&mut bytes).unwrap();
            assert_eq!(String::from_utf8_lossy(&bytes), expected);
        };
        read("ready\nready\n");
        signal(pid, "INT");
        read("got it\ngot it\n");
        if twice {
            signal(pid, "INT");
        }
        let output = child.wait_with_output().unwrap();
        assert_eq!(output.status.code(), Some(130));
        assert_eq!(String::from_utf8_lossy(&output.stderr).contains("300 ms after SIGINT"), !twice);
    }
}

#[test]
fn ranks_that_die_of_the_interrupt_are_not_reported() {
    let running = start(&["-n", "2", "sleep", "1000"]);
    running.wait_for(2);
    running.signal("INT");
    let ended = running.end();
    assert_eq!((ended.status, ended.err.as_str()), (Some(130), ""));
}

#[test]
fn an_ignored_signal_stays_ignored() {
    let script = format!("trap '' HUP CHLD; exec {MPIEXEC} -n 2 sh -c 'echo ready; sleep 0.2; exit 3'");
    let mut child = Command::new("sh").args(["-c", &script]).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    let mut ready = [0; 6];
    child.stdout.as_mut().unwrap().read_exact(&mut ready).unwrap();
    signal(child.id() as i32, "HUP");
    assert_eq!(child.wait().unwrap().code(), Some(3));
}

#[test]
fn stopping_and_going_on_applies_to_all() {
    let running = start(&["-n", "2", "sh", "-c", "while :; do sleep 0.01; done"]);
    running.wait_for(2);
    // Until it is the program, a process has the launcher's own handlers.
    let is_program = |pid: &i32| fs::read_to_string(format!("/proc/{pid}/comm")).is_ok_and(|name| name == "sh\n");
    eventually("the programs have begun", || running.processes().iter().filter(|pid| is_program(pid)).count() == 2);
    let stopped = |pid: i32| fs::read_to_string(format!("/proc/{pid}/stat")).is_ok_and(|stat| stat.rsplit(") ").next().unwrap().starts_with('T'));
    running.signal("TSTP");
    eventually("all stand still", || {
        let all = running.processes();
        all.len() >= 3 && all.iter().all(|pid| stopped(*pid))
    });
    running.signal("CONT");
    eventually("all go on", || running.processes().iter().all(|pid| !stopped(*pid)));
    running.signal("TERM");
    assert_eq!(running.end().status, Some(143));
}

// ---- Nothing is left ----

#[test]
fn what_ranks_leave_behind_is_killed() {
    // `end` looks for leftovers.
    let ended = run(&["-n", "2", "sh", "-c", "setsid sleep 1000 & (sleep 1000 &) ; nohup sleep 1000 >/dev/null 2>&1 & exit 0"]);
    assert_eq!(ended.status, Some(0));
    let ended = run(&["-n", "2", "sh", "-c", "setsid sh -c 'trap \"\" TERM; sleep 1000' & exit 5"]);
    assert_eq!(ended.status, Some(5));
}

#[test]
fn a_killed_launcher_takes_all_along() {
    for program in [
        vec!["sleep", "1000"],
        vec![RANK, "init", "fence", "recv"],
        vec!["sh", "-c", "sleep 1000; exit"],
        vec!["sh", "-c", "trap '' TERM HUP INT; (trap '' TERM; setsid sleep 1000) & while :; do sleep 0.1; done"],
        vec!["env", "-i", "sh", "-c", "sleep 1000; exit"],
    ] {
        let running = start(&[&["-n", "3"], &program[..]].concat());
        let pid = running.pid();
        // One of the programs clears its environment, and with it the mark.
        let descendants = || cli::processes::descendants(&cli::processes::all(), pid, &[]);
        eventually("the ranks run", || descendants().len() >= if program[0] == "sleep" || program[0] == RANK { 4 } else { 7 });
        let before = descendants();
        running.signal("KILL");
        assert_eq!(running.end().status, None);
        eventually("all are gone", || {
            let now = cli::processes::all();
            !now.iter().any(|p| p.alive && before.iter().any(|b| b.pid == p.pid && b.session == p.session))
        });
    }
}

#[test]
fn a_killed_guardian_is_replaced() {
    let running = start(&["-n", "2", "sh", "-c", "sleep 1000; exit"]);
    running.wait_for(4);
    let guardians = || {
        let all = cli::processes::all();
        let children = all.into_iter().filter(|process| process.parent == running.pid() && process.alive);
        let name = |pid: i32| fs::read_to_string(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        children.map(|process| process.pid).filter(|pid| name(*pid).starts_with("mpi-guardian")).collect::<Vec<i32>>()
    };
    eventually("there is a guardian", || guardians().len() == 1);
    let first = guardians()[0];
    signal(first, "KILL");
    eventually("there is another", || guardians().iter().any(|pid| *pid != first));
    running.signal("KILL");
    assert_eq!(running.end().status, None);
}

/// As in a container whose session and process group began outside of it, and so have no number inside.
#[test]
fn a_session_from_outside_is_no_trouble() {
    let unshare = ["-Urpf", "--kill-child", "--mount-proc"];
    if !Command::new("unshare").args(unshare).arg("true").status().is_ok_and(|status| status.success()) {
        return skipped("a_session_from_outside_is_no_trouble", "no pid namespaces here");
    }
    let script = format!(
        "{MPIEXEC} -n 2 sh -c 'setsid sleep 1000; exit' & launcher=$!
         until [ $(pgrep -c sleep) = 2 ]; do sleep 0.01; done
         kill -9 $launcher
         while pgrep sleep > /dev/null; do sleep 0.01; done; echo gone"
    );
    let limited = ["-s", "KILL", "60", "unshare"];
    let ended = Command::new("timeout").args(limited).args(unshare).args(["sh", "-c", &script]).output().unwrap();
    assert_eq!(String::from_utf8_lossy(&ended.stdout), "gone\n", "{ended:?}");
}
