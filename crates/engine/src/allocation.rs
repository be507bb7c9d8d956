//! Memory that the library gives out, in blocks that peers on this host can map (MPI-5.0 §9.2).

use crate::{Engine, Fault};
use memory::arena;

/// A block of at least `bytes` at a multiple of `align_bytes`, a power of two. `None`: shorter ones, and all where there is no such memory, come from elsewhere.
/// The first one is asked for before [`Engine::give_out`].
pub fn allocate(bytes: usize, align_bytes: usize) -> Option<*mut u8> {
    // What a preloaded library gives out can be mapped already.
    if bytes < arena::BLOCK_BYTES_MIN || arena::preloaded().is_some() {
        return None;
    }
    arena::own()?.allocate(bytes, align_bytes).map(|block| block.start)
}

/// Gives a block back. `None`: no memory of [`allocate`] lies there; false: some does, and no block begins there.
pub fn free(start: *mut u8) -> Option<bool> {
    let arena = arena::made().filter(|arena| arena.contains(start as usize))?;
    Some(arena.free(start as usize).is_ok())
}

impl Engine {
    /// Tells peers where this process gives memory out, if it does.
    ///
    /// # Errors
    /// The memory's descriptor has been closed by the program.
    pub fn give_out(&mut self) -> Result<(), Fault> {
        if let (Some(memory), Some(range)) = (&self.memory, range()) {
            memory.give_out(range)?;
            if memory.maps() {
                self.lend(range.start, range.bytes);
            }
        }
        Ok(())
    }

    /// Whether peers map what this process gives out.
    pub fn maps_memory(&self) -> bool {
        self.memory.as_ref().is_some_and(|memory| memory.maps())
    }

    /// Copied by load and store from and to mapped memory of peers, bytes.
    pub fn mapped_bytes(&self) -> u64 {
        self.memory.as_ref().map_or(0, |memory| memory.mapped_bytes())
    }
}

/// Where this process gives memory out now.
fn range() -> Option<arena::Range> {
    arena::preloaded().or_else(|| arena::made().map(arena::Arena::range))
}
