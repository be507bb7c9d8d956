//! What does a descriptor say? Read once from the program's memory, checked, and written when it is complete.

use crate::handed::PIECES_MAX;
use crate::status::*;
use crate::sys::UserRange;
use std::sync::atomic::Ordering;

pub const CONTROL_BYTES: u64 = 32;
pub const SEGMENT_BYTES: u64 = 16;
pub const ALIGNMENT: u64 = 64;

/// A data segment.
#[derive(Clone, Copy, Default, Debug, PartialEq, Eq)]
pub struct Piece {
    pub address: u64,
    pub handle: u32,
    pub bytes: u32,
}

/// The data segments of a descriptor; two of them need no memory of their own.
#[derive(Default, Debug)]
pub struct Pieces {
    few: [Piece; 2],
    count: usize,
    many: Vec<Piece>,
}

impl std::ops::Deref for Pieces {
    type Target = [Piece];
    #[inline]
    fn deref(&self) -> &[Piece] {
        if self.count <= 2 { &self.few[..self.count] } else { &self.many }
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Op {
    Send,
    /// The remote address and its memory handle.
    RdmaWrite(u64, u32),
    RdmaRead(u64, u32),
}

impl Op {
    pub fn status(self) -> u32 {
        match self {
            Op::Send => OP_SEND,
            Op::RdmaWrite(..) => OP_RDMA_WRITE,
            Op::RdmaRead(..) => OP_RDMA_READ,
        }
    }
}

#[derive(Debug)]
pub struct Work {
    pub op: Op,
    pub immediate: Option<u32>,
    pub fence: bool,
    pub pieces: Pieces,
    /// Sum of the pieces, bytes.
    pub bytes: u64,
}

/// Which queue a descriptor was posted to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Side {
    Send,
    Receive,
}

/// Segments of the descriptor at `head`, which has [`CONTROL_BYTES`] at least.
#[inline]
pub fn segments(head: &UserRange) -> u64 {
    head.word16(12) as u64
}

/// Reads a descriptor, which has as many segments as it says. `Err`: the operation bits and the error.
///
/// Fields are read in the width in which programs write them: a wider load would wait until all earlier stores have left the core.
#[inline]
pub fn read(whole: &UserRange, side: Side) -> Result<Work, u32> {
    let (count, control, reserved) = (whole.word16(12) as u64, whole.word16(14), whole.word32(16));
    let immediate = (control & CONTROL_IMMEDIATE != 0).then(|| whole.word32(20));
    let length = whole.word32(24);
    let segment = |at: u64| {
        let start = CONTROL_BYTES + at * SEGMENT_BYTES;
        Piece { address: whole.word(start), handle: whole.word32(start + 8), bytes: whole.word32(start + 12) }
    };
    let op_status = match (side, control & CONTROL_OP_MASK) {
        (Side::Receive, _) => OP_RECEIVE,
        (_, 1) => OP_RDMA_WRITE,
        (_, 2) => OP_RDMA_READ,
        _ => OP_SEND,
    };
    let wrong = Err(op_status | FORMAT_ERROR);
    if control & CONTROL_RESERVED != 0 || reserved != 0 || count > PIECES_MAX as u64 + 1 {
        return wrong;
    }
    let (op, first) = match (side, control & CONTROL_OP_MASK) {
        (_, 0) => (Op::Send, 0),
        (Side::Send, op @ (1 | 2)) if count >= 1 => {
            let remote = segment(0);
            (if op == 1 { Op::RdmaWrite(remote.address, remote.handle) } else { Op::RdmaRead(remote.address, remote.handle) }, 1)
        }
        _ => return wrong,
    };
    if count - first > PIECES_MAX as u64 || (matches!(op, Op::RdmaRead(..)) && immediate.is_some()) {
        return wrong;
    }
    let mut pieces = Pieces { count: (count - first) as usize, ..Pieces::default() };
    let mut bytes = 0;
    for at in first..count {
        let piece = segment(at);
        bytes += piece.bytes as u64;
        if pieces.count <= 2 {
            pieces.few[(at - first) as usize] = piece;
        } else {
            pieces.many.push(piece);
        }
    }
    if side == Side::Send && length as u64 != bytes {
        return wrong;
    }
    Ok(Work { op, immediate, fence: control & CONTROL_QFENCE != 0, pieces, bytes })
}

/// The piece of a message that is nothing but one piece: no RDMA, immediate data or fence, and nothing wrong with it.
#[inline]
pub fn only_piece(whole: &UserRange) -> Option<Piece> {
    if whole.bytes() != CONTROL_BYTES + SEGMENT_BYTES || whole.word16(14) != 0 || whole.word32(16) != 0 {
        return None;
    }
    let piece = Piece { address: whole.word(CONTROL_BYTES), handle: whole.word32(CONTROL_BYTES + 8), bytes: whole.word32(CONTROL_BYTES + 12) };
    (whole.word32(24) == piece.bytes).then_some(piece)
}

/// Says in the program's memory that a descriptor is complete: immediate data and length first, the status last.
#[inline]
pub fn complete(head: &UserRange, status: u32, bytes: Option<u64>, immediate: Option<u32>) {
    let mut status = status | DONE;
    if let Some(data) = immediate {
        head.set_word32(20, data, Ordering::Relaxed);
        status |= IMMEDIATE;
    }
    if let Some(bytes) = bytes {
        head.set_word32(24, bytes as u32, Ordering::Relaxed);
    }
    head.set_word32(28, status, Ordering::Release);
}

/// Takes the status away while the descriptor is in a queue.
#[inline]
pub fn begin(head: &UserRange) {
    head.set_word32(28, 0, Ordering::Relaxed);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[repr(align(64))]
    struct Memory([u64; 80]);

    /// Words of a control segment with these fields.
    fn control(memory: &mut Memory, count: u64, control: u64, length: u64) {
        memory.0[1] = count << 32 | control << 48;
        memory.0[2] = 77 << 32;
        memory.0[3] = length;
    }

    fn parsed(memory: &mut Memory, side: Side) -> Result<Work, u32> {
        // SAFETY: the memory outlives the range, which is used here alone.
        read(&unsafe { UserRange::promised(memory.0.as_mut_ptr() as u64, 640) }, side)
    }

    #[test]
    fn descriptors_are_read_and_checked() {
        let mut memory = Memory([0; 80]);
        control(&mut memory, 3, 4, 60);
        for at in 0..3u64 {
            memory.0[4 + 2 * at as usize] = 1000 * (at + 1);
            memory.0[5 + 2 * at as usize] = (at + 5) | (10 * (at + 1)) << 32;
        }
        let work = parsed(&mut memory, Side::Send).unwrap();
        assert_eq!((work.op, work.immediate, work.bytes, work.pieces.len()), (Op::Send, Some(77), 60, 3));
        assert_eq!(work.pieces[2], Piece { address: 3000, handle: 7, bytes: 30 });
        control(&mut memory, 2, 1, 20);
        let work = parsed(&mut memory, Side::Send).unwrap();
        assert_eq!((work.op, work.bytes, work.pieces.len()), (Op::RdmaWrite(1000, 5), 20, 1));
        assert_eq!(parsed(&mut memory, Side::Receive).unwrap_err(), OP_RECEIVE | FORMAT_ERROR);
        for (count, bits, length) in [(2, 3, 20), (0, 1, 0), (2, 0x10, 30), (33, 0, 0), (1, 0, 11), (2, 6, 20)] {
            control(&mut memory, count, bits, length);
            assert!(parsed(&mut memory, Side::Send).is_err(), "{count} {bits} {length}");
        }
        control(&mut memory, 0, 0, 0);
        assert_eq!(parsed(&mut memory, Side::Send).unwrap().bytes, 0);
    }
}
