//! Memory allocation (MPI-5.0 §9.2): blocks that other processes of the host can map, where there are such.

use crate::consts::MPI_ERR_BASE;
use crate::error::{Error, Result};
use crate::world;

/// A block of at least `bytes` that peers can map. `None`: memory comes from elsewhere.
pub fn allocate(bytes: usize, align_bytes: usize) -> Option<*mut u8> {
    let world = world::joined()?;
    if !world.engine().lock().maps_memory() {
        return None;
    }
    let start = engine::allocate(bytes, align_bytes)?;
    // Where the peers cannot be told, they copy as from other memory.
    let _ = world.engine().lock().give_out();
    Some(start)
}

/// Gives back what [`allocate`] gave. False: it did not.
///
/// # Errors
/// `MPI_ERR_BASE`: no block begins there.
pub fn free(start: *mut u8) -> Result<bool> {
    match engine::free(start) {
        None => Ok(false),
        Some(true) => Ok(true),
        Some(false) => Err(Error::new(MPI_ERR_BASE, format!("base is {start:p}, where no memory of MPI_Alloc_mem begins that is in use"))),
    }
}
