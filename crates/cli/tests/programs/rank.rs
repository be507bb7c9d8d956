//! A rank that does what its arguments say, one after the other. `2:exit=1` is for rank 2 only.
#![forbid(unsafe_code)]

use launch::board::NONE;
use launch::{Client, Launcher, Start};
use rustix::fs::MemfdFlags;
use rustix::process::Signal;
use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;

fn main() {
    let own = std::env::var("WHIMBREL_RANK").unwrap_or_default();
    let mut client = None;
    for word in std::env::args().skip(1) {
        let (rank, action) = word.split_once(':').unwrap_or((&own, &word));
        if rank == own {
            let (name, value) = action.split_once('=').unwrap_or((action, ""));
            act(&mut client, name, value);
        }
    }
}

fn act(client: &mut Option<Client>, name: &str, value: &str) {
    let number = || value.parse::<u64>().expect("a number");
    match name {
        "print" => println!("{value}"),
        "sleep" => std::thread::sleep(Duration::from_millis(number())),
        "exit" => std::process::exit(number() as i32),
        "signal" => {
            let signal = Signal::from_named_raw(number() as i32).expect("a signal");
            // Rust's own handler of SIGSEGV lets the first one pass.
            loop {
                rustix::process::kill_process(rustix::process::getpid(), signal).expect("kill");
            }
        }
        "init" => match launch::start() {
            Ok(Start::Job(Launcher::Own(mut job))) => {
                let segment = rustix::fs::memfd_create("test-segment", MemfdFlags::CLOEXEC).expect("memfd");
                rustix::io::write(&segment, &job.rank().to_le_bytes()).expect("write");
                job.publish(segment.as_fd()).expect("publish");
                job.board().initialized();
                *client = Some(job);
            }
            Ok(Start::Singleton) => println!("singleton"),
            Ok(Start::Job(Launcher::Foreign(job))) => {
                println!("rank {} of a foreign job", Launcher::Foreign(job).rank())
            }
            Err(error) => {
                eprintln!("test-rank: {error}");
                std::process::exit(3);
            }
        },
        // A rank that says hello and publishes nothing.
        "hello" => match launch::start() {
            Ok(Start::Job(Launcher::Own(job))) => *client = Some(job),
            _ => std::process::exit(3),
        },
        _ => with(client.as_mut().expect("init comes first"), name, value),
    }
}

fn with(job: &mut Client, name: &str, value: &str) {
    let own = |descriptor: &OwnedFd| {
        let mut bytes = [0; 4];
        rustix::io::pread(descriptor, &mut bytes, 0).expect("read");
        u32::from_le_bytes(bytes)
    };
    match name {
        "facts" => println!(
            "rank {} of {} appnum {} universe {} cores {} local {}",
            job.rank(),
            job.size(),
            job.appnum(),
            job.universe_size(),
            job.cores(),
            job.local_ranks().len()
        ),
        "fetch" => {
            for rank in (0..job.size()).filter(|rank| value.is_empty() || *rank == value.parse().expect("a rank")) {
                let segment = job.fetch(rank).expect("fetch");
                assert_eq!(own(&segment), rank, "another rank's segment");
            }
        }
        "fetch-many" => {
            let ranks: Vec<u32> = (0..job.size()).rev().collect();
            let segments = job.fetch_many(&ranks).expect("fetch");
            for (rank, segment) in ranks.iter().zip(&segments) {
                assert_eq!(own(segment), *rank, "another rank's segment");
            }
        }
        "fence" => job.fence().expect("fence"),
        "put" => job.kv_put(format!("key{}", job.rank()).as_bytes(), value.as_bytes()).expect("put"),
        "get" => {
            let got = job.kv_get(format!("key{value}").as_bytes(), Duration::from_secs(60)).expect("get");
            println!("{}", String::from_utf8_lossy(&got));
        }
        "get-late" => {
            let error = job.kv_get(b"never", Duration::from_millis(20)).expect_err("nobody has put it");
            println!("{error}");
        }
        "recv" => {
            job.board().enter("MPI_Recv", 2, 5);
            loop {
                std::thread::park();
            }
        }
        "barrier" => {
            job.board().enter("MPI_Barrier", NONE, NONE);
            loop {
                std::thread::park();
            }
        }
        "abort" => job.abort(value.parse().expect("a code"), "by request"),
        "finalize" => job.finalized().expect("finalized"),
        "sh" => {
            // What a rank starts ends up in the same process group, and has the same environment.
            let status = std::process::Command::new("sh").args(["-c", value]).status().expect("sh");
            println!("sh: {status}");
        }
        other => panic!("no such action: {other}"),
    }
}
