//! Data in pieces, for several tests.

use engine::Plan;

/// Where packed byte `i` lies in blocks of `block` bytes with gaps of the same length; 0: in one piece.
pub fn place(block: usize, i: usize) -> usize {
    i.checked_div(block).map_or(i, |whole| whole * 2 * block + i % block)
}

/// Every second block of so many bytes, as a datatype with holes would be.
pub struct EverySecond {
    pub block: usize,
    /// All of them.
    pub bytes: usize,
}

impl EverySecond {
    /// Where packed byte `i` lies.
    fn place(&self, i: usize) -> usize {
        place(self.block, i)
    }
}

// SAFETY: touches the bytes of even blocks only, one for each packed byte.
unsafe impl Plan for EverySecond {
    unsafe fn pack(&self, start: *const u8, _count: usize, offset: usize, out: *mut u8, bytes: usize) {
        // SAFETY: the caller's promise; places lie inside the data.
        (0..bytes).for_each(|i| unsafe { *out.add(i) = *start.add(self.place(offset + i)) });
    }
    unsafe fn unpack(&self, start: *mut u8, _count: usize, offset: usize, from: *const u8, bytes: usize) {
        // SAFETY: as above.
        (0..bytes).for_each(|i| unsafe { *start.add(self.place(offset + i)) = *from.add(i) });
    }
    fn runs(&self) -> usize {
        self.bytes.div_ceil(self.block)
    }
    fn io_vectors(&self, start: *mut u8, _count: usize, offset: usize, bytes: usize, pieces_max: usize, out: &mut Vec<(*mut u8, usize)>) -> usize {
        let mut done = 0;
        for _ in 0..pieces_max {
            let now = (self.block - (offset + done) % self.block).min(bytes - done);
            if now == 0 {
                break;
            }
            out.push((start.wrapping_add(self.place(offset + done)), now));
            done += now;
        }
        done
    }
}
