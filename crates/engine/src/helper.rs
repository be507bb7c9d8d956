//! The helping thread: copies for a process that computes, when a core has nothing else to do.
//!
//! It takes part in copies that are under way when the program leaves MPI, piece by piece like the two processes themselves, and
//! touches nothing else of the engine. It runs only where a core is idle (`SCHED_IDLE`), and sleeps otherwise. It is not asked where the
//! program has been coming back soon ([`Absences`]), nor where it has turned out to come too late.

use fabric::local::Copier;
use fabric::local::{Cooperative, Side};
use proto::p2p::copies::{piece_range, pieces};
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
    pub cooperative: &'static Cooperative,
    pub generation: u32,
    pub bytes: usize,
    pub remote: u64,
    pub here: *mut u8,
    /// From here to there.
    pub out: bool,
    pub share: Share,
}

// SAFETY: `local` belongs to the copy as long as a piece of it can be claimed, and is only used under a claim.
unsafe impl Send for Task {}

#[derive(Default)]
pub(crate) struct Shared {
    tasks: Mutex<Vec<Task>>,
    /// Held while it copies a piece.
    piece: Mutex<()>,
    stop: AtomicBool,
}

impl Shared {
    /// Waits until it has ended the piece that it has begun, and leaves it the core if it needs that.
    pub fn await_piece(&self) {
        drop(self.piece.lock());
    }
}

/// The helping thread of one process.
pub(crate) struct Helper {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

impl Helper {
    /// Starts the thread, which runs on `any_core` or only where this one may. `None` where the system does not let it be one that runs only on
    /// idle cores.
    pub fn start(any_core: bool) -> Option<Helper> {
        let shared = Arc::new(Shared::default());
        let (theirs, (tell, told)) = (shared.clone(), std::sync::mpsc::channel());
        let run = move || {
            let idle = become_idle(any_core);
            let _ = tell.send(idle);
            if idle {
                serve(&theirs);
            }
        };
        let builder = std::thread::Builder::new().name("mpi-helper".into()).stack_size(128 << 10);
        let thread = launch::without_signals(|| builder.spawn(run)).ok()?;
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

    /// For [`Shared::await_piece`], while it copies a piece.
    pub fn busy(&self) -> Option<Arc<Shared>> {
        self.shared.piece.try_lock().is_err().then(|| self.shared.clone())
    }
}

/// How long the program stays away when it leaves copies behind: as long as the last time it left as many, in the same direction.
#[derive(Default)]
pub(crate) struct Absences {
    left: Option<(u64, usize)>,
    short: [bool; Absences::KINDS],
}

impl Absences {
    const KINDS: usize = 8;
    /// Shorter ones do not pay for waking the helper: it takes some microseconds to begin, and to be sent away again.
    const LONG_NS: u64 = 18_000;

    /// The program leaves `copies` behind, of which the newest goes `out`, at `now_ns`. Returns whether it will be away for long.
    pub fn leave(&mut self, copies: usize, out: bool, now_ns: u64) -> bool {
        let kind = (2 * copies + out as usize).min(Self::KINDS - 1);
        self.left = Some((now_ns, kind));
        !self.short[kind]
    }

    /// Whether [`Absences::back`] has not been called since the program left.
    #[inline]
    pub fn away(&self) -> bool {
        self.left.is_some()
    }

    pub fn back(&mut self, now_ns: u64) {
        if let Some((left_ns, kind)) = self.left.take() {
            self.short[kind] = now_ns.saturating_sub(left_ns) < Self::LONG_NS;
        }
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

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn serve(shared: &Shared) {
    while !shared.stop.load(Ordering::Relaxed) {
        let Some(task) = lock(&shared.tasks).first().cloned() else {
            std::thread::park();
            continue;
        };
        while !shared.stop.load(Ordering::Relaxed) {
            let piece = lock(&shared.piece);
            let copied = copy_piece(&task);
            drop(piece);
            if !copied {
                break;
            }
        }
        lock(&shared.tasks).retain(|other| !Arc::ptr_eq(&other.share, &task.share));
    }
}

/// Copies one piece. False: there is none left.
fn copy_piece(task: &Task) -> bool {
    let Some(piece) = task.cooperative.claim(task.generation, pieces(task.bytes), if task.out { Side::Sender } else { Side::Receiver }) else {
        return false;
    };
    let (at, bytes) = piece_range(task.bytes, piece);
    // SAFETY: a claimed piece of both buffers, which MPI has until all pieces are finished.
    let done = unsafe {
        let here = task.here.add(at);
        let remote = task.remote.wrapping_add(at as u64);
        if task.out { task.copier.write(remote, here, bytes) } else { task.copier.read(remote, here, bytes) }
    };
    if !done {
        task.cooperative.fail();
    }
    task.share.fetch_add(1, Ordering::Relaxed);
    if task.cooperative.finish() >= pieces(task.bytes) {
        task.copier.wake_both();
    }
    true
}

/// This thread runs only where nothing else wants to.
fn become_idle(any_core: bool) -> bool {
    // SAFETY: plain calls on this thread.
    unsafe {
        if any_core {
            let cores: libc::cpu_set_t = std::mem::transmute([0xffu8; size_of::<libc::cpu_set_t>()]);
            libc::sched_setaffinity(0, size_of::<libc::cpu_set_t>(), &cores);
        }
        let parameters = libc::sched_param { sched_priority: 0 };
        libc::sched_setscheduler(0, libc::SCHED_IDLE, &parameters) == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn absences_are_as_long_as_the_last_of_their_kind() {
        let mut absences = Absences::default();
        let mut asked = |copies, out, away_ns| {
            let long = absences.leave(copies, out, 1_000);
            assert!(absences.away());
            absences.back(1_000 + away_ns);
            long
        };
        assert_eq!([Absences::LONG_NS, 100, 100, Absences::LONG_NS, 100].map(|ns| asked(1, true, ns)), [true, true, false, false, true]);
        assert_eq!([100, 100].map(|ns| asked(1, false, ns)), [true, false]);
        assert_eq!([100, 100].map(|ns| asked(1000, false, ns)), [true, false]);
        assert!(!absences.away());
    }
}
