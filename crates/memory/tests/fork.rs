//! A fork while another thread changes watched memory and holds what the fork wants: malloc's locks, as a rule.

use memory::monitor::Monitor;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Stands for malloc's locks, which a fork takes after the handlers have run.
static HELD: Mutex<()> = Mutex::new(());
static FORKS: AtomicBool = AtomicBool::new(false);
static IS_OVER: AtomicBool = AtomicBool::new(false);

extern "C" fn before() {
    FORKS.store(true, Ordering::SeqCst);
    drop(HELD.lock().unwrap());
}

#[test]
fn a_fork_waits_for_nobody_who_waits_for_the_monitor() {
    // Before the monitor's handler, so that it runs after that.
    // SAFETY: a function that lives for ever.
    assert_eq!(unsafe { libc::pthread_atfork(Some(before), None, None) }, 0);
    let monitor = match Monitor::get(|run| std::thread::Builder::new().spawn(run).is_ok()) {
        Ok(monitor) => monitor,
        Err(why) => {
            println!("skip  memory::monitor, forks: {why}");
            if let Some(path) = std::env::var_os("WHIMBREL_TEST_SKIPS") {
                use std::io::Write;
                let mut file = std::fs::File::options().append(true).create(true).open(path).unwrap();
                writeln!(file, "skip  memory::monitor, forks: {why}").unwrap();
            }
            return;
        }
    };
    let bytes = 16 << 12;
    // SAFETY: a new mapping.
    let start = unsafe { libc::mmap(std::ptr::null_mut(), bytes, libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS, -1, 0) };
    assert_ne!(start, libc::MAP_FAILED);
    let at = start as usize;
    monitor.watch(&(at..at + bytes)).unwrap();
    let (ready, is_ready) = std::sync::mpsc::channel();
    let other = std::thread::spawn(move || {
        let held = HELD.lock().unwrap();
        ready.send(()).unwrap();
        while !FORKS.load(Ordering::SeqCst) {
            std::thread::yield_now();
        }
        // SAFETY: the test's own mapping.
        assert_eq!(unsafe { libc::munmap(at as *mut libc::c_void, bytes) }, 0);
        drop(held);
    });
    is_ready.recv().unwrap();
    std::thread::spawn(|| {
        std::thread::sleep(Duration::from_secs(20));
        if !IS_OVER.load(Ordering::SeqCst) {
            eprintln!("the fork, the thread that unmaps and the monitor wait for each other");
            std::process::exit(1);
        }
    });
    // SAFETY: the child calls nothing but `_exit`.
    let child = unsafe { libc::fork() };
    if child == 0 {
        // SAFETY: as above.
        unsafe { libc::_exit(0) };
    }
    IS_OVER.store(true, Ordering::SeqCst);
    assert!(child > 0);
    // SAFETY: the child from above.
    unsafe { libc::waitpid(child, std::ptr::null_mut(), 0) };
    other.join().unwrap();
}
