//! What does a rank say when a signal such as `SIGSEGV` kills it?
//!
//! A handler prints a short backtrace and leaves the name of the MPI call on the launcher's board, then lets the signal kill
//! the process as it would have. Names and lines are found in a forked copy of the process, since that allocates memory and
//! takes locks that the crash may have left in any state; where the copy does not succeed in time, addresses are printed.

use launch::Board;
use std::ffi::{CStr, c_int, c_void};
use std::fmt::Write;
use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicPtr, AtomicU32, Ordering::SeqCst};

/// Most calls that are printed.
const FRAMES_MAX: usize = 16;
/// Most frames that are looked at: those of the handler come first.
const DEPTH_MAX: usize = 64;
/// Longest that the copy may take to find names, and that the handler may take in all, seconds.
const NAMES_SECONDS_MAX: u32 = 3;
const HANDLER_SECONDS_MAX: i64 = 6;
/// Bytes of the stack that the handler runs on, should the program's own have overflowed.
const STACK_BYTES: usize = 512 * 1024;

/// Signals that mean a crash.
const CRASHES: [(c_int, &str); 5] =
    [(libc::SIGSEGV, "SIGSEGV"), (libc::SIGBUS, "SIGBUS"), (libc::SIGFPE, "SIGFPE"), (libc::SIGILL, "SIGILL"), (libc::SIGABRT, "SIGABRT")];

static PROCESS: AtomicI32 = AtomicI32::new(0);
static RANK: AtomicU32 = AtomicU32::new(0);
static BOARD: AtomicPtr<Board> = AtomicPtr::new(ptr::null_mut());
static CRASHED: AtomicBool = AtomicBool::new(false);

/// Watches for crashes of this process from now on. A signal that the program, or its tools, handle already is left to them.
pub fn watch(rank: u32, board: Option<&'static Board>) {
    RANK.store(rank, SeqCst);
    BOARD.store(board.map_or(ptr::null_mut(), |board| ptr::from_ref(board).cast_mut()), SeqCst);
    // SAFETY: `getpid` has no conditions.
    if PROCESS.swap(unsafe { libc::getpid() }, SeqCst) != 0 {
        return;
    }
    // Loads what the unwinder needs while memory can be allocated.
    backtrace::trace(|_| false);
    give_stack();
    for (signal, _) in CRASHES {
        // SAFETY: an all-zero `sigaction` is valid memory that the first call fills in; the handler has the signature that
        // SA_SIGINFO asks for.
        unsafe {
            let mut action: libc::sigaction = std::mem::zeroed();
            if libc::sigaction(signal, ptr::null(), &mut action) != 0 || action.sa_sigaction != libc::SIG_DFL {
                continue;
            }
            action = std::mem::zeroed();
            action.sa_sigaction = on_crash as *const () as usize;
            action.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK | libc::SA_NODEFER;
            libc::sigaction(signal, &action, ptr::null_mut());
        }
    }
}

/// Gives this thread a stack for the handler, unless it has one. It stays for the life of the process.
fn give_stack() {
    // SAFETY: the calls fill in, or read, a structure that lives through them; the mapping is new, and is never unmapped.
    unsafe {
        let mut stack: libc::stack_t = std::mem::zeroed();
        if libc::sigaltstack(ptr::null(), &mut stack) != 0 || stack.ss_flags & libc::SS_DISABLE == 0 {
            return;
        }
        let memory =
            libc::mmap(ptr::null_mut(), STACK_BYTES, libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE, -1, 0);
        if memory != libc::MAP_FAILED {
            libc::sigaltstack(&libc::stack_t { ss_sp: memory, ss_flags: 0, ss_size: STACK_BYTES }, ptr::null_mut());
        }
    }
}

extern "C" fn on_crash(signal: c_int, info: *mut libc::siginfo_t, context: *mut c_void) {
    for (other, _) in CRASHES {
        // SAFETY: the default action is a valid one. A crash in here, or in another thread, ends the process at once.
        unsafe { libc::signal(other, libc::SIG_DFL) };
    }
    if !CRASHED.swap(true, SeqCst) {
        limit_time(signal);
        let mut addresses = [ptr::null_mut(); DEPTH_MAX];
        let count = calls(crashed_at(context), &mut addresses);
        // SAFETY: with SA_SIGINFO the kernel passes a valid structure; a fault's kind has an address.
        let (code, fault) = unsafe { ((*info).si_code, (*info).si_addr() as usize) };
        let at = (code > 0 && signal != libc::SIGABRT).then_some(fault);
        tell(signal, at, &addresses[..count]);
        if code > 0 && signal != libc::SIGABRT {
            // The instruction is tried again, and now the signal kills: a core file then shows where.
            return;
        }
    }
    // SAFETY: `raise` has no conditions; the default action ends the process.
    unsafe { libc::raise(signal) };
}

/// Lets `signal` kill this process when the handler takes too long, such as by a lock that the crash left held.
fn limit_time(signal: c_int) {
    // SAFETY: the structures are valid and live through the calls; all-zero ones are valid memory.
    unsafe {
        let mut event: libc::sigevent = std::mem::zeroed();
        event.sigev_notify = libc::SIGEV_SIGNAL;
        event.sigev_signo = signal;
        let mut timer: libc::timer_t = std::mem::zeroed();
        if libc::timer_create(libc::CLOCK_MONOTONIC, &mut event, &mut timer) == 0 {
            let mut limit: libc::itimerspec = std::mem::zeroed();
            limit.it_value.tv_sec = HANDLER_SECONDS_MAX;
            libc::timer_settime(timer, 0, &limit, ptr::null_mut());
        }
    }
}

/// The instruction that crashed; 0 where this processor's registers are not known here.
fn crashed_at(context: *mut c_void) -> usize {
    let context = context.cast::<libc::ucontext_t>();
    // SAFETY: with SA_SIGINFO the kernel passes a valid context.
    #[cfg(target_arch = "x86_64")]
    return unsafe { (*context).uc_mcontext.gregs[libc::REG_RIP as usize] as usize };
    // SAFETY: as above.
    #[cfg(target_arch = "aarch64")]
    return unsafe { (*context).uc_mcontext.pc as usize };
    #[allow(unreachable_code)]
    {
        let _ = context;
        0
    }
}

/// Fills `addresses` with the calls that led to `crashed_at`, the newest first; how many.
fn calls(crashed_at: usize, addresses: &mut [*mut c_void; DEPTH_MAX]) -> usize {
    let mut count = 0;
    // SAFETY: nobody else uses the crate's unwinder at this time but this thread, or the process is past saving anyway.
    unsafe {
        backtrace::trace_unsynchronized(|frame| {
            addresses[count] = frame.ip();
            count += 1;
            count < DEPTH_MAX
        });
    }
    // The handler's own frames, and the kernel's that calls it, come before. The end of a stack may be told as a frame at 0.
    let first = addresses[..count].iter().position(|at| crashed_at != 0 && *at as usize == crashed_at).unwrap_or(0);
    addresses.copy_within(first..count, 0);
    (count - first).min(FRAMES_MAX)
}

/// Prints what has happened: by a copy of this process with names and lines, or else with what the dynamic linker knows.
fn tell(signal: c_int, fault: Option<usize>, addresses: &[*mut c_void]) {
    // SAFETY: a fork without the C library's hooks, which may wait for locks. The copy only reads memory, prints, and ends.
    let copy = unsafe { libc::syscall(libc::SYS_clone, libc::SIGCHLD as libc::c_long, 0, 0, 0, 0) } as libc::pid_t;
    if copy == 0 {
        print(&report(signal, fault, &named(addresses)));
        // SAFETY: `_exit` runs nothing of the program.
        unsafe { libc::_exit(0) };
    }
    if copy < 0 || !ended_well(copy) {
        print(&report(signal, fault, &linked(addresses)));
    }
}

/// Whether process `copy` ends with status 0 in time. It is gone then.
fn ended_well(copy: libc::pid_t) -> bool {
    let nap = libc::timespec { tv_sec: 0, tv_nsec: 5_000_000 };
    let mut status = 0;
    for _ in 0..NAMES_SECONDS_MAX * 200 {
        // SAFETY: the pointers are valid for the calls.
        let found = unsafe { libc::waitpid(copy, &mut status, libc::WNOHANG) };
        if found != 0 {
            return found == copy && status == 0;
        }
        // SAFETY: as above.
        unsafe { libc::nanosleep(&nap, ptr::null_mut()) };
    }
    // SAFETY: the copy is a child of this process that has not been collected.
    unsafe {
        libc::kill(copy, libc::SIGKILL);
        libc::waitpid(copy, &mut status, 0);
    }
    false
}

/// One call: the function's name, and where in it.
struct Named {
    function: String,
    place: String,
}

fn named(addresses: &[*mut c_void]) -> Vec<Named> {
    let mut all = Vec::new();
    for (depth, address) in addresses.iter().enumerate() {
        // What is on the stack is where the call returns to, which may be another line already.
        let within = if depth == 0 { *address } else { address.wrapping_byte_sub(1) };
        let mut found = Vec::new();
        // SAFETY: this process has one thread, and nobody else uses the crate's tables in it.
        unsafe {
            backtrace::resolve_unsynchronized(within, |symbol| {
                let function = symbol.name().map(|name| format!("{name:#}"));
                let place = symbol.filename().map(|file| format!(" at {}:{}", file.display(), symbol.lineno().unwrap_or(0)));
                found.push((function, place));
            });
        }
        match found.iter().rev().find_map(|(function, place)| Some((function.clone()?, place.clone()))) {
            Some((function, place)) => {
                let place = place.unwrap_or_else(|| format!(" in {}", object(*address)));
                all.push(Named { function, place });
            }
            None => all.push(unnamed(*address)),
        }
    }
    all
}

fn linked(addresses: &[*mut c_void]) -> Vec<Named> {
    addresses.iter().map(|address| unnamed(*address)).collect()
}

/// What the dynamic linker knows of `address`.
fn unnamed(address: *mut c_void) -> Named {
    let info = link_info(address);
    // SAFETY: names of the linker live as long as the object that they belong to.
    let function = info.filter(|info| !info.dli_sname.is_null()).map(|info| unsafe { CStr::from_ptr(info.dli_sname) });
    Named { function: function.map_or("??".to_owned(), |name| name.to_string_lossy().into_owned()), place: format!(" in {}", object(address)) }
}

/// `./solver+0x1189`: the file that `address` was loaded from, and where in it, as `addr2line` takes it.
fn object(address: *mut c_void) -> String {
    match link_info(address).filter(|info| !info.dli_fname.is_null()) {
        Some(info) => {
            // SAFETY: as above.
            let file = unsafe { CStr::from_ptr(info.dli_fname) };
            format!("{}+{:#x}", file.to_string_lossy(), address as usize - info.dli_fbase as usize)
        }
        None => format!("{address:p}"),
    }
}

fn link_info(address: *mut c_void) -> Option<libc::Dl_info> {
    // SAFETY: `info` is plain memory that the call fills in; any address may be asked for.
    unsafe {
        let mut info: libc::Dl_info = std::mem::zeroed();
        (libc::dladdr(address, &mut info) != 0).then_some(info)
    }
}

/// The text, after the name of the MPI call is left on the board.
fn report(signal: c_int, fault: Option<usize>, calls: &[Named]) -> String {
    // The outermost of those that stand one upon the other is the one that the program has called.
    let call = calls.iter().map(|call| mpi_call(&call.function)).skip_while(Option::is_none).map_while(|call| call).last();
    // SAFETY: the board is leaked, or null.
    let board = unsafe { BOARD.load(SeqCst).as_ref() };
    // SAFETY: neither call has conditions.
    let (own, parent) = unsafe { (libc::getpid(), libc::getppid()) };
    let process = PROCESS.load(SeqCst);
    let is_rank = own == process || parent == process;
    if let (Some(board), Some(call), true) = (board, call, is_rank) {
        board.crashed_in(call);
    }
    let who = if is_rank { "rank" } else { "a process that was forked by rank" };
    let name = CRASHES.iter().find(|(number, _)| *number == signal).map_or("", |(_, name)| name);
    let fault = fault.map_or(String::new(), |address| format!(" at address {address:#x}"));
    let call = call.map_or(String::new(), |call| format!(" in {call}"));
    let mut text = String::new();
    let _ = writeln!(text, "whimbrel: {who} {}: signal {signal} ({name}){fault}{call}; the latest calls, newest first:", RANK.load(SeqCst));
    for (depth, Named { function, place }) in calls.iter().enumerate() {
        let _ = writeln!(text, "  #{depth:<2} {function}{place}");
        if function == "main" {
            break;
        }
    }
    text
}

/// `MPI_Send` of a function that is called so, in whatever module, for whatever width of counts, or as the profiling interface's name.
fn mpi_call(function: &str) -> Option<&str> {
    let name = function.split('<').next()?.rsplit("::").next()?;
    let name = name.strip_suffix("_plan").unwrap_or(name);
    let name = name.strip_prefix('P').filter(|name| name.starts_with("MPI_")).unwrap_or(name);
    name.starts_with("MPI_").then_some(name)
}

fn print(text: &str) {
    let mut bytes = text.as_bytes();
    while !bytes.is_empty() {
        // SAFETY: the bytes live through the call.
        let written = unsafe { libc::write(libc::STDERR_FILENO, bytes.as_ptr().cast(), bytes.len()) };
        if written <= 0 {
            return;
        }
        bytes = &bytes[written as usize..];
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_call_is_found_by_its_name() {
        assert_eq!(mpi_call("abi::entry::p2p::MPI_Send"), Some("MPI_Send"));
        assert_eq!(mpi_call("PMPI_Recv"), Some("MPI_Recv"));
        assert_eq!(mpi_call("abi::entry::pack::MPI_Pack<i32>"), Some("MPI_Pack"));
        assert_eq!(mpi_call("abi::entry::coll::MPI_Bcast_plan<i64>"), Some("MPI_Bcast"));
        for other in ["main", "solver::send", "MPIX", "std::process::abort"] {
            assert_eq!(mpi_call(other), None, "{other}");
        }
    }

    #[test]
    fn calls_have_names() {
        let mut addresses = [ptr::null_mut(); DEPTH_MAX];
        let count = calls(0, &mut addresses);
        let all = named(&addresses[..count]);
        assert!(count > 2 && all.iter().any(|call| call.function.contains("calls_have_names")), "{count}");
    }
}
