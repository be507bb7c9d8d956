//! What one-sided communication needs of the engine: memory that processes of one host share, copies between their memories that one side alone
//! makes, and answers to what others ask of this process while its program does something else.

pub use fabric::local::{Answerer, Asker, Looker, REQUEST_WORDS, REQUESTS_PENDING_MAX, SharedMemory, SharedName};

use crate::{Engine, Fault};
use fabric::local::PIECES_PER_CALL;

/// Answers what other processes ask. It is called by whoever makes progress, the network's thread included, with the engine held: it must not wait.
pub trait Service: Send + Sync {
    /// Does what can be done now; says whether anything moved.
    ///
    /// # Errors
    /// What breaks the engine.
    fn serve(&self, engine: &mut Engine) -> Result<bool, Fault>;
}

/// A piece of another process' memory, or of this one's: address, bytes.
pub type Piece = (*mut u8, usize);

impl Engine {
    /// From now on progress includes `service`; `None`: there is nobody to answer any more.
    pub fn answer_with(&mut self, service: Option<&'static dyn Service>) {
        self.worker.service = service;
    }

    #[inline(never)]
    pub(crate) fn serve(&mut self) -> Result<bool, Fault> {
        // It may come back here: what it starts may make progress.
        let Some(service) = self.worker.service.take() else { return Ok(false) };
        let served = service.serve(self);
        self.worker.service = Some(service);
        served
    }

    /// Processes of this process' own job.
    pub fn processes(&self) -> u32 {
        self.config.processes
    }

    /// What tells whether `process` looks for what comes, where it has handed its segment out.
    pub fn looker(&self, process: u32) -> Option<Looker> {
        self.memory.as_ref().filter(|_| self.shares_memory(process))?.looker(process)
    }

    /// Whether this process may read and write the memory of `process`, as far as it is known without waiting.
    pub fn reaches_memory_of(&mut self, process: u32) -> bool {
        self.shares_memory(process) && self.memory.as_mut().is_some_and(|memory| memory.reachable(process))
    }

    /// Copies between pieces of this process' memory and pieces of the memory of `process`, which has as many bytes: into it if `write`.
    ///
    /// # Errors
    /// The process has ended: [`fabric::Error::Peer`]. It has no memory there: [`fabric::Error::System`] with `EFAULT`.
    ///
    /// # Safety
    /// The local pieces must be readable, and writable unless `write`; the process must have offered its pieces.
    pub unsafe fn copy_across(&mut self, process: u32, local: &[Piece], theirs: &[Piece], write: bool) -> Result<(), Fault> {
        let Some(memory) = &mut self.memory else { return Err(Fault::Program(format!("process {process} shares no memory with this one"))) };
        let (mut ours, mut remote) = (Vec::with_capacity(PIECES_PER_CALL), Vec::with_capacity(PIECES_PER_CALL));
        let mut pairs = Pairs { local, theirs, at: [0; 2] };
        while pairs.take(&mut ours, &mut remote) {
            while !ours.is_empty() {
                // SAFETY: the caller's promise.
                let done = unsafe {
                    match write {
                        true => memory.write_pieces(process, &remote, &ours),
                        false => memory.read_pieces(process, &remote, &ours),
                    }
                };
                let done = done.map_err(|error| match error {
                    // No process has that number, or another one has it now.
                    fabric::Error::System { errno: libc::ESRCH, .. } | fabric::Error::Peer { .. } => {
                        fabric::Error::Peer { peer: process, why: launch::HAS_ENDED.into() }
                    }
                    error => error,
                })?;
                drop_front(&mut ours, &mut remote, done);
            }
        }
        Ok(())
    }
}

/// Two lists of pieces with as many bytes, cut where either has an end.
struct Pairs<'a> {
    local: &'a [Piece],
    theirs: &'a [Piece],
    /// Bytes of the first piece of each that have been taken.
    at: [usize; 2],
}

impl Pairs<'_> {
    /// Fills both lists with the next pieces of equal lengths; false when there are none.
    fn take(&mut self, ours: &mut Vec<Piece>, remote: &mut Vec<(u64, usize)>) -> bool {
        ours.clear();
        remote.clear();
        while let ([here, ..], [there, ..]) = (self.local, self.theirs)
            && ours.len() < PIECES_PER_CALL
        {
            let bytes = (here.1 - self.at[0]).min(there.1 - self.at[1]);
            if bytes > 0 {
                ours.push((here.0.wrapping_add(self.at[0]), bytes));
                remote.push((there.0.wrapping_add(self.at[1]) as u64, bytes));
            }
            self.at = [self.at[0] + bytes, self.at[1] + bytes];
            if self.at[0] == here.1 {
                (self.local, self.at[0]) = (&self.local[1..], 0);
            }
            if self.at[1] == there.1 {
                (self.theirs, self.at[1]) = (&self.theirs[1..], 0);
            }
        }
        !ours.is_empty()
    }
}

/// Takes the first `bytes` bytes out of two lists whose pieces are of equal lengths.
fn drop_front(ours: &mut Vec<Piece>, remote: &mut Vec<(u64, usize)>, mut bytes: usize) {
    let whole = ours
        .iter()
        .take_while(|piece| {
            piece.1 <= bytes && {
                bytes -= piece.1;
                true
            }
        })
        .count();
    ours.drain(..whole);
    remote.drain(..whole);
    if let (Some(here), Some(there)) = (ours.first_mut(), remote.first_mut()) {
        *here = (here.0.wrapping_add(bytes), here.1 - bytes);
        *there = (there.0 + bytes as u64, there.1 - bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_are_cut_where_either_has_an_end() {
        let at = |address: usize, bytes| (std::ptr::without_provenance_mut(address), bytes);
        let (local, theirs) = ([at(100, 5), at(200, 0), at(300, 7)], [at(1000, 3), at(2000, 9)]);
        let mut pairs = Pairs { local: &local, theirs: &theirs, at: [0; 2] };
        let (mut ours, mut remote) = (Vec::new(), Vec::new());
        assert!(pairs.take(&mut ours, &mut remote));
        assert_eq!(ours, [at(100, 3), at(103, 2), at(300, 7)]);
        assert_eq!(remote, [(1000, 3), (2000, 2), (2002, 7)]);
        drop_front(&mut ours, &mut remote, 4);
        assert_eq!((&ours[..], &remote[..]), (&[at(104, 1), at(300, 7)][..], &[(2001, 1), (2002, 7)][..]));
        drop_front(&mut ours, &mut remote, 8);
        assert!(ours.is_empty() && remote.is_empty() && !pairs.take(&mut ours, &mut remote));
    }
}
