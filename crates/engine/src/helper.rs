//! The helping thread: copies for a process that computes, when a core has nothing else to do.
//!
//! It takes part in copies that are under way when the program leaves MPI, piece by piece like the two processes themselves, and
//! touches nothing else of the engine. It runs only where a core is idle (`SCHED_IDLE`), and sleeps otherwise; whether asking for its
//! help pays is learned.

use crate::transfer::{piece_range, pieces};
use fabric::shm::area::{Joint, Side};
use fabric::shm::copier::Copier;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

/// Copies that wait for help at most; others go without.
const TASKS_MAX: usize = 32;

/// How many pieces of one copy the helper has copied.
pub(crate) type Share = Arc<AtomicU32>;

/// One copy that is under way.
#[derive(Clone)]
pub(crate) struct Task {
    pub copier: Copier,
    pub joint: &'static Joint,
    pub generation: u32,
    pub bytes: usize,
    pub remote: u64,
    pub local: *mut u8,
    /// From here to there.
    pub out: bool,
    pub share: Share,
}

// SAFETY: `local` belongs to the copy as long as a piece of it can be claimed, and is only used under a claim.
unsafe impl Send for Task {}

#[derive(Default)]
struct Shared {
    tasks: Mutex<Vec<Task>>,
    /// It is inside a piece.
    busy: AtomicBool,
    stop: AtomicBool,
}

/// The helping thread of one process.
pub(crate) struct Helper {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

impl Helper {
    /// Starts the thread. `None` where the system does not let it be one that runs only on idle cores.
    pub fn start() -> Option<Helper> {
        let shared = Arc::new(Shared::default());
        let (theirs, (tell, told)) = (shared.clone(), std::sync::mpsc::channel());
        let run = move || {
            let idle = become_idle();
            let _ = tell.send(idle);
            if idle {
                serve(&theirs);
            }
        };
        let thread = std::thread::Builder::new().name("mpi-helper".into()).stack_size(128 << 10).spawn(run).ok()?;
        told.recv().is_ok_and(|idle| idle).then_some(Helper { shared, thread: Some(thread) })
    }

    /// Asks for help with a copy. Returns whether it was taken on.
    pub fn ask(&self, task: Task) -> bool {
        let mut tasks = lock(&self.shared.tasks);
        if tasks.len() >= TASKS_MAX {
            return false;
        }
        tasks.push(task);
        true
    }

    pub fn wake(&self) {
        if let Some(thread) = &self.thread {
            thread.thread().unpark();
        }
    }

    /// Whether it is copying a piece now.
    pub fn busy(&self) -> bool {
        self.shared.busy.load(Ordering::Relaxed)
    }
}

impl Drop for Helper {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::Relaxed);
        self.wake();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn lock(tasks: &Mutex<Vec<Task>>) -> MutexGuard<'_, Vec<Task>> {
    tasks.lock().unwrap_or_else(PoisonError::into_inner)
}

fn serve(shared: &Shared) {
    while !shared.stop.load(Ordering::Relaxed) {
        let Some(task) = lock(&shared.tasks).first().cloned() else {
            std::thread::park();
            continue;
        };
        while !shared.stop.load(Ordering::Relaxed) {
            shared.busy.store(true, Ordering::Relaxed);
            let copied = copy_piece(&task);
            shared.busy.store(false, Ordering::Relaxed);
            if !copied {
                break;
            }
        }
        lock(&shared.tasks).retain(|other| !Arc::ptr_eq(&other.share, &task.share));
    }
}

/// Copies one piece. False: there is none left.
fn copy_piece(task: &Task) -> bool {
    let Some(piece) = task.joint.claim(task.generation, pieces(task.bytes), if task.out { Side::Sender } else { Side::Receiver }) else { return false };
    let (at, bytes) = piece_range(task.bytes, piece);
    // SAFETY: a claimed piece of both buffers, which MPI has until all pieces are finished.
    let done = unsafe {
        let local = task.local.add(at);
        let remote = task.remote.wrapping_add(at as u64);
        if task.out { task.copier.write(remote, local, bytes) } else { task.copier.read(remote, local, bytes) }
    };
    if !done {
        task.joint.fail();
    }
    task.share.fetch_add(1, Ordering::Relaxed);
    if task.joint.finish() >= pieces(task.bytes) {
        task.copier.wake_both();
    }
    true
}

/// This thread takes no signals, runs on any core, and only where nothing else wants to.
fn become_idle() -> bool {
    // SAFETY: plain calls on this thread.
    unsafe {
        let mut all: libc::sigset_t = std::mem::zeroed();
        libc::sigfillset(&mut all);
        libc::pthread_sigmask(libc::SIG_SETMASK, &all, std::ptr::null_mut());
        let cores: libc::cpu_set_t = std::mem::transmute([0xffu8; size_of::<libc::cpu_set_t>()]);
        libc::sched_setaffinity(0, size_of::<libc::cpu_set_t>(), &cores);
        let parameters = libc::sched_param { sched_priority: 0 };
        libc::sched_setscheduler(0, libc::SCHED_IDLE, &parameters) == 0
    }
}
