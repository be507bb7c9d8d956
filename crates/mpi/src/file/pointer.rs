//! The shared file pointer (MPI-5.0 §14.4.4): one number that all processes of a file add to.
//!
//! It is eight bytes in a file that all can reach, under that file's lock. On one host that is a file without a name, which rank 0
//! makes and the others open through the kernel's list of its descriptors, so that nothing is left behind by a killed job. Elsewhere it is
//! a hidden file beside the data, made when it is first used and removed when the file is closed.

use super::{lock, trouble};
use crate::comm::Comm;
use crate::error::{Error, Result};
use crate::exchange::allgather_bytes;
use rustix::fs::{FlockOperation, MemfdFlags, flock, memfd_create};
use std::fs::File;
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Mutex;

/// The pointer, and behind it what tells a process that it has opened the right file.
const POINTER_BYTES: usize = 8;
const TOKEN_BYTES: usize = 16;

pub struct SharedPointer {
    /// Where the number is kept; `None` while the hidden file has not been opened.
    kept: Mutex<Option<File>>,
    hidden: PathBuf,
}

impl SharedPointer {
    /// Made together by all ranks of `comm`.
    pub(super) fn new(function: &'static str, comm: &Comm, path: &Path) -> Result<SharedPointer> {
        let mut token = [0u8; TOKEN_BYTES];
        let mut offer = [0u8; TOKEN_BYTES + 8];
        let mut made = None;
        if comm.rank == 0 {
            File::open("/dev/urandom")
                .and_then(|random| std::io::Read::read_exact(&mut &random, &mut token))
                .map_err(|e| trouble(Path::new("/dev/urandom"), "it cannot be read", &e))?;
            if let Ok(memory) = memfd_create("whimbrel-shared-pointer", MemfdFlags::CLOEXEC) {
                let memory = File::from(memory);
                let place = [std::process::id(), memory.as_raw_fd() as u32];
                if memory.write_all_at(&[0; POINTER_BYTES], 0).and_then(|()| memory.write_all_at(&token, POINTER_BYTES as u64)).is_ok() {
                    offer[TOKEN_BYTES..TOKEN_BYTES + 4].copy_from_slice(&place[0].to_ne_bytes());
                    offer[TOKEN_BYTES + 4..].copy_from_slice(&place[1].to_ne_bytes());
                    made = Some(memory);
                }
            }
            offer[..TOKEN_BYTES].copy_from_slice(&token);
        }
        let offers = allgather_bytes(function, comm, &offer)?;
        let offer = &offers[..offer.len()];
        if comm.rank != 0 {
            made = through_descriptor(offer);
        }
        let reached = allgather_bytes(function, comm, &[u8::from(made.is_some())])?;
        if reached.contains(&0) {
            made = None;
        }
        let name: String = offer[..TOKEN_BYTES].iter().map(|byte| format!("{byte:02x}")).collect();
        let base = path.file_name().unwrap_or_default().to_string_lossy();
        Ok(SharedPointer { kept: Mutex::new(made), hidden: path.with_file_name(format!(".{base}.{name}.pointer")) })
    }

    /// Adds `change` and gives the pointer as it was.
    pub(super) fn add(&self, change: i64) -> Result<i64> {
        self.update(|old| old + change)
    }

    pub(super) fn set(&self, to: i64) -> Result<()> {
        self.update(|_| to).map(|_| ())
    }

    pub(super) fn read(&self) -> Result<i64> {
        self.update(|old| old)
    }

    fn update(&self, new: impl FnOnce(i64) -> i64) -> Result<i64> {
        let mut kept = lock(&self.kept);
        let failed = |e: std::io::Error| trouble(&self.hidden, "the shared file pointer cannot be kept there", &e);
        if kept.is_none() {
            let opened = File::options().read(true).write(true).create(true).truncate(false).open(&self.hidden).map_err(failed)?;
            *kept = Some(opened);
        }
        let Some(file) = kept.as_ref() else { return Err(Error::new(crate::consts::MPI_ERR_INTERN, "no shared file pointer")) };
        flock(file, FlockOperation::LockExclusive).map_err(|e| failed(e.into()))?;
        let changed = (|| {
            let mut bytes = [0; POINTER_BYTES];
            // A hidden file that is new is empty: the pointer is 0.
            let there = file.read_at(&mut bytes, 0)?;
            let old = if there == POINTER_BYTES { i64::from_ne_bytes(bytes) } else { 0 };
            let new = new(old);
            if new != old || there != POINTER_BYTES {
                file.write_all_at(&new.to_ne_bytes(), 0)?;
            }
            Ok(old)
        })();
        flock(file, FlockOperation::Unlock).map_err(|e| failed(e.into()))?;
        changed.map_err(failed)
    }

    /// Removes what has a name.
    pub(super) fn remove(&self) {
        // It is there only where somebody used it.
        let _ = std::fs::remove_file(&self.hidden);
    }
}

/// Rank 0's file, if this process can open it and it is the right one.
fn through_descriptor(offer: &[u8]) -> Option<File> {
    let number = |at: usize| Some(u32::from_ne_bytes(offer.get(at..at + 4)?.try_into().ok()?));
    let (pid, descriptor) = (number(TOKEN_BYTES)?, number(TOKEN_BYTES + 4)?);
    if pid == 0 {
        return None;
    }
    let path = format!("/proc/{pid}/fd/{descriptor}");
    // What is no regular file might wait, or act, when it is opened.
    if !std::fs::metadata(&path).ok()?.is_file() {
        return None;
    }
    let file = File::options().read(true).write(true).open(path).ok()?;
    let mut token = [0; TOKEN_BYTES];
    file.read_exact_at(&mut token, POINTER_BYTES as u64).ok()?;
    (token == offer[..TOKEN_BYTES]).then_some(file)
}
