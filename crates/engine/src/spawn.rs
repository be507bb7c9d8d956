//! Starting further processes through an `mpiexec` of this library ([`launch::spawn`]), and what becomes of their jobs.

pub use launch::RANKS_MAX as PROCESSES_MAX;
pub use launch::spawn::{Program, Spawned};

use crate::{Engine, Fault};
use launch::Error;
use std::ffi::{CStr, OsStr};
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

/// A job that this process has started.
pub struct Spawn {
    inner: launch::spawn::Spawn,
}

impl Spawn {
    /// The process number of its launcher.
    pub fn launcher_id(&self) -> u32 {
        self.inner.launcher.id()
    }

    /// It lives on, whatever becomes of this process.
    pub fn release(&mut self) {
        self.inner.release();
    }
}

/// The file that this library was loaded from.
fn library() -> Option<PathBuf> {
    // SAFETY: pointers that are null are what this consists of until it is filled.
    let mut found: libc::Dl_info = unsafe { std::mem::zeroed() };
    // SAFETY: any address may be asked for; the name lives as long as the library is loaded.
    unsafe {
        if libc::dladdr(library as *const () as *const libc::c_void, &mut found) == 0 || found.dli_fname.is_null() {
            return None;
        }
        Some(PathBuf::from(OsStr::from_bytes(CStr::from_ptr(found.dli_fname).to_bytes())))
    }
}

/// Starts a job, and waits until all its processes have been started. May block.
///
/// # Errors
/// There is no `mpiexec` beside the library, or a program cannot be started.
pub fn start(job: &Spawned) -> Result<Spawn, Error> {
    let library = library().ok_or_else(|| Error::new("cannot tell where this library lies, and so where its mpiexec is"))?;
    let missing = || Error::new(format!("processes are started by the mpiexec of this library, and there is none in bin beside {}", library.display()));
    let mpiexec = launch::spawn::mpiexec_of(&library).ok_or_else(missing)?;
    launch::spawn::start(&mpiexec, job).map(|inner| Spawn { inner })
}

/// Whether a launcher has not ended.
pub fn lives(launcher: u32) -> bool {
    let Some(pid) = rustix::process::Pid::from_raw(launcher as i32) else { return false };
    let options = rustix::process::WaitIdOptions::EXITED | rustix::process::WaitIdOptions::NOHANG | rustix::process::WaitIdOptions::NOWAIT;
    matches!(rustix::process::waitid(rustix::process::WaitId::Pid(pid), options), Ok(None))
}

/// Waits until a launcher has ended. In words, where its job has ended badly; also where nobody can tell. May block.
pub fn outcome(launcher: u32) -> Option<String> {
    let pid = rustix::process::Pid::from_raw(launcher as i32)?;
    loop {
        match rustix::process::waitpid(Some(pid), rustix::process::WaitOptions::empty()) {
            Err(rustix::io::Errno::INTR) => {}
            Ok(Some((_, status))) => {
                return match (status.exit_status(), status.terminating_signal()) {
                    (Some(0), _) => None,
                    (Some(status), _) => Some(format!("its job has ended with status {status}")),
                    (None, signal) => Some(format!("its launcher was killed by signal {}", signal.unwrap_or(0))),
                };
            }
            // The program collects the ends of all its children itself.
            _ => return None,
        }
    }
}

impl Engine {
    /// Processes of a job that has ended badly: those that a communicator has are failed ones.
    pub fn lose_foreign(&mut self, processes: &[u32], why: &str) {
        for &process in processes {
            if self.peers[process as usize].links > 0 {
                let why: Fault = fabric::Error::Peer { peer: process, why: why.to_owned() }.into();
                self.lose_peer(process, why);
            }
        }
    }

    /// Whether a communicator has one of these.
    pub fn is_linked(&self, processes: &[u32]) -> bool {
        processes.iter().any(|&process| self.peers[process as usize].links > 0)
    }
}
