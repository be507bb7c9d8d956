//! Users' memory as the engine sees it: a start, a number of bytes as they travel, and a plan where they do not lie in one piece.

use fabric::Scattered;
use std::sync::Arc;

/// How the elements of a datatype lie in memory. The engine asks for ranges of the packed bytes.
///
/// # Safety
/// Implementations must touch only memory of the layout that they describe, relative to `start`, and exactly `bytes` of the packed side.
pub unsafe trait Plan: Send + Sync {
    /// Copies packed bytes `offset..offset + bytes` of the data at `start` to `out`.
    ///
    /// # Safety
    /// The data at `start` must be readable, and `out..out + bytes` writable.
    unsafe fn pack(&self, start: *const u8, count: usize, offset: usize, out: *mut u8, bytes: usize);
    /// Copies `bytes` from `from` to packed place `offset` of the data at `start`.
    ///
    /// # Safety
    /// The data at `start` must be writable, and `from..from + bytes` readable.
    unsafe fn unpack(&self, start: *mut u8, count: usize, offset: usize, from: *const u8, bytes: usize);
    /// Pieces of memory that one element has, as far as known without walking it all; `usize::MAX` where they cannot be listed.
    fn runs(&self) -> usize {
        usize::MAX
    }
    /// Appends address and length of the pieces of packed bytes `offset..offset + bytes`, at most `pieces_max` of them. Gives the
    /// bytes that they cover.
    fn io_vectors(&self, _start: *mut u8, _count: usize, _offset: usize, _bytes: usize, _pieces_max: usize, _out: &mut Vec<(*mut u8, usize)>) -> usize {
        0
    }
}

/// A list of pieces as it lies in memory, to be read by the peer: address and length of each piece.
pub type List = Box<[[u64; 2]]>;

/// One user's buffer: of a send, or of a receive.
#[derive(Clone)]
pub struct Buffer {
    start: *mut u8,
    bytes: usize,
    plan: Option<(Arc<dyn Plan>, usize)>,
}

// SAFETY: shared references to a buffer do nothing; whoever drives the engine copies.
unsafe impl Sync for Buffer {}
// SAFETY: MPI hands the buffer to the library until the operation is complete (MPI-5.0 §3.7.2); whoever drives the engine may use it.
unsafe impl Send for Buffer {}

/// The bytes of a message that has come, in up to two pieces, while its packet is here.
#[derive(Clone, Copy)]
pub struct Body {
    pieces: [(*const u8, usize); 2],
    /// To be read from its end.
    from_end: bool,
}

impl Body {
    pub(crate) const NOTHING: (*const u8, usize) = (std::ptr::null(), 0);

    /// The pieces are a packet's payload, which stays until the packet is released.
    pub(crate) fn of(pieces: [(*const u8, usize); 2]) -> Body {
        Body { pieces, from_end: false }
    }

    /// As [`Body::of`], in a ring.
    pub(crate) fn in_ring(pieces: [(*const u8, usize); 2], from_end: bool) -> Body {
        Body { pieces, from_end }
    }
}

/// A plan whose packed bytes begin later.
struct Shifted {
    plan: Arc<dyn Plan>,
    offset: usize,
}

// SAFETY: the plan's own promise, for bytes inside the same data.
unsafe impl Plan for Shifted {
    unsafe fn pack(&self, start: *const u8, count: usize, offset: usize, out: *mut u8, bytes: usize) {
        // SAFETY: the caller's promise.
        unsafe { self.plan.pack(start, count, self.offset + offset, out, bytes) };
    }

    unsafe fn unpack(&self, start: *mut u8, count: usize, offset: usize, from: *const u8, bytes: usize) {
        // SAFETY: the caller's promise.
        unsafe { self.plan.unpack(start, count, self.offset + offset, from, bytes) };
    }

    fn runs(&self) -> usize {
        self.plan.runs()
    }

    fn io_vectors(&self, start: *mut u8, count: usize, offset: usize, bytes: usize, pieces_max: usize, out: &mut Vec<(*mut u8, usize)>) -> usize {
        self.plan.io_vectors(start, count, self.offset + offset, bytes, pieces_max, out)
    }
}

/// Part of a buffer whose bytes do not lie in one piece: packed straight to where the fabric wants them.
pub(crate) struct Part<'a> {
    buffer: &'a Buffer,
    offset: usize,
}

// SAFETY: plans write exactly the bytes that they are asked for.
unsafe impl Scattered for Part<'_> {
    unsafe fn write(&self, offset: usize, to: *mut u8, bytes: usize) {
        match &self.buffer.plan {
            // SAFETY: the caller's promise; the buffer is readable.
            Some((plan, count)) => unsafe { plan.pack(self.buffer.start, *count, self.offset + offset, to, bytes) },
            // SAFETY: as above.
            None => unsafe { std::ptr::copy_nonoverlapping(self.buffer.start.add(self.offset + offset), to, bytes) },
        }
    }
}

/// Bytes that are packed and unpacked at a time where both sides of a copy lie in pieces.
const PART_BYTES: usize = 16 << 10;

impl Buffer {
    pub const EMPTY: Buffer = Buffer { start: std::ptr::null_mut(), bytes: 0, plan: None };

    /// `bytes` in one piece.
    ///
    /// # Safety
    /// The memory must stay valid, and for receives writable and otherwise unused, until the operation that the buffer is given to
    /// is complete.
    #[inline]
    pub unsafe fn contiguous(start: *mut u8, bytes: usize) -> Buffer {
        Buffer { start, bytes, plan: None }
    }

    /// `count` elements that `plan` describes; `bytes` is their packed size.
    ///
    /// # Safety
    /// As [`Buffer::contiguous`], for all memory that the plan touches.
    pub unsafe fn planned(start: *mut u8, count: usize, bytes: usize, plan: Arc<dyn Plan>) -> Buffer {
        Buffer { start, bytes, plan: Some((plan, count)) }
    }

    /// Makes this another buffer, in one piece.
    ///
    /// # Safety
    /// As [`Buffer::contiguous`].
    #[inline(always)]
    pub(crate) unsafe fn set_contiguous(&mut self, start: *mut u8, bytes: usize) {
        self.start = start;
        self.bytes = bytes;
        self.forget_plan();
    }

    /// Lets go of what describes the layout.
    #[inline(always)]
    pub(crate) fn forget_plan(&mut self) {
        if self.plan.is_some() {
            self.plan = None;
        }
    }

    /// Packed size, bytes.
    #[inline]
    pub fn len(&self) -> usize {
        self.bytes
    }

    pub fn is_empty(&self) -> bool {
        self.bytes == 0
    }

    /// Where the bytes lie when they lie in one piece.
    #[inline]
    pub fn address(&self) -> Option<*mut u8> {
        if self.plan.is_none() { Some(self.start) } else { None }
    }

    /// Mean length of the pieces that the bytes lie in; `usize::MAX` where it is one piece, 0 where they cannot be listed.
    #[inline]
    pub(crate) fn piece_bytes(&self) -> usize {
        match &self.plan {
            None => usize::MAX,
            Some((plan, count)) => plan.runs().checked_mul(*count).map_or(0, |pieces| self.bytes / pieces.max(1)),
        }
    }

    /// Appends address and length of the pieces of bytes `offset..offset + bytes`, at most `pieces_max` of them. Gives the bytes
    /// that they cover.
    pub(crate) fn pieces(&self, offset: usize, bytes: usize, pieces_max: usize, out: &mut Vec<(*mut u8, usize)>) -> usize {
        assert!(offset <= self.bytes && bytes <= self.bytes - offset, "pieces past the end of a buffer");
        match &self.plan {
            None => {
                out.push((self.start.wrapping_add(offset), bytes));
                bytes
            }
            Some((plan, count)) => plan.io_vectors(self.start, *count, offset, bytes, pieces_max, out),
        }
    }

    /// The bytes `offset..offset + bytes` as the body of a packet. `part` keeps what describes them where they do not lie in one piece.
    #[inline]
    pub(crate) fn body<'a>(&'a self, offset: usize, bytes: usize, part: &'a mut Option<Part<'a>>) -> fabric::Body<'a> {
        assert!(offset + bytes <= self.bytes, "body past the end of a buffer");
        match &self.plan {
            // SAFETY: inside the buffer, whose memory its maker promised.
            None => unsafe { fabric::Body::new(self.start.add(offset), bytes) },
            Some(_) => fabric::Body::scattered(part.insert(Part { buffer: self, offset }), bytes),
        }
    }

    /// Copies bytes that have come to place `offset`; what does not fit is left out.
    #[inline]
    pub(crate) fn put(&self, offset: usize, from: *const u8, bytes: usize) {
        let bytes = bytes.min(self.bytes.saturating_sub(offset));
        if bytes == 0 {
            return;
        }
        // SAFETY: inside the buffer; `from` is a packet's payload or kept bytes of at least that length.
        unsafe {
            match &self.plan {
                None => fabric::local::copy_brought(from, self.start.add(offset), bytes),
                Some((plan, count)) => plan.unpack(self.start, *count, offset, from, bytes),
            }
        }
    }

    /// Copies what has come to place `offset`, by streaming stores where the bytes lie in one piece; what does not fit is left out.
    pub(crate) fn place_past_caches(&self, offset: usize, body: &Body) {
        let mut offset = offset;
        for (from, length) in body.pieces {
            let bytes = length.min(self.bytes.saturating_sub(offset));
            match self.plan {
                // SAFETY: inside the buffer; `from` is a packet's payload of at least that length.
                None if bytes > 0 => unsafe { fabric::local::copy_streaming(from, self.start.add(offset), bytes) },
                _ => self.put(offset, from, length),
            }
            offset += length;
        }
    }

    /// Copies what has come to place `offset` of a buffer that lies in one piece, the last byte first; what does not fit is left out.
    fn place_from_end(&self, offset: usize, body: &Body) {
        let [(first, length), (second, rest)] = body.pieces;
        let room = self.bytes.saturating_sub(offset);
        let (length, rest) = (length.min(room), rest.min(room.saturating_sub(length)));
        // SAFETY: inside the buffer; the pieces are a packet's payload of at least these lengths.
        unsafe {
            if rest > 0 {
                fabric::local::copy_from_end(second, self.start.add(offset + length), rest);
            }
            if length > 0 {
                fabric::local::copy_from_end(first, self.start.add(offset), length);
            }
        }
    }

    /// Copies bytes that have come to place `offset`, inside the buffer, if `check` finds in memory what was sent. Where they do not lie in one piece
    /// it is asked before they are unpacked.
    pub(crate) fn put_checked(&self, offset: usize, from: &[u8], check: &dyn Fn(&[u8]) -> bool) -> bool {
        assert!(offset <= self.bytes && from.len() <= self.bytes - offset, "bytes past the end of a buffer");
        if self.plan.is_some() {
            let good = check(from);
            if good {
                self.put(offset, from.as_ptr(), from.len());
            }
            return good;
        }
        self.put(offset, from.as_ptr(), from.len());
        // SAFETY: just written, inside the buffer.
        check(unsafe { std::slice::from_raw_parts(self.start.add(offset), from.len()) })
    }

    /// Packs the bytes from `offset` on, as many as `out` has, which must lie inside the buffer.
    pub(crate) fn get(&self, offset: usize, out: &mut [u8]) {
        assert!(offset <= self.bytes && out.len() <= self.bytes - offset, "bytes past the end of a buffer");
        // SAFETY: inside the buffer, which is readable.
        unsafe {
            match &self.plan {
                None => std::ptr::copy_nonoverlapping(self.start.add(offset), out.as_mut_ptr(), out.len()),
                Some((plan, count)) => plan.pack(self.start, *count, offset, out.as_mut_ptr(), out.len()),
            }
        }
    }

    /// The packed bytes `offset..offset + bytes` as a buffer of their own.
    pub fn part(&self, offset: usize, bytes: usize) -> Buffer {
        assert!(offset <= self.bytes && bytes <= self.bytes - offset, "part past the end of a buffer");
        match &self.plan {
            None => Buffer { start: self.start.wrapping_add(offset), bytes, plan: None },
            Some((plan, count)) => {
                let shifted: Arc<dyn Plan> = Arc::new(Shifted { plan: plan.clone(), offset });
                Buffer { start: self.start, bytes, plan: Some((shifted, *count)) }
            }
        }
    }

    /// Copies packed bytes to the start of the buffer, as many as both have.
    pub fn fill(&self, from: &[u8]) {
        self.put(0, from.as_ptr(), from.len());
    }

    /// Copies at most 48 bytes that lie in words. Small and inlined: the way of most messages.
    #[inline(always)]
    pub(crate) fn put_words(&self, words: &[u64], bytes: usize) {
        if self.plan.is_none() && bytes == 8 && self.bytes >= 8 {
            // SAFETY: eight writable bytes.
            unsafe { self.start.cast::<u64>().write_unaligned(words[0]) };
        } else {
            self.put(0, words.as_ptr().cast(), bytes);
        }
    }

    /// A copy of all bytes, packed.
    pub fn to_vec(&self) -> Vec<u8> {
        let mut out = Vec::new();
        self.append_to(&mut out);
        out
    }

    /// As [`Buffer::to_vec`]; `None` where there is no memory for it.
    pub fn try_to_vec(&self) -> Option<Vec<u8>> {
        let mut out = Vec::new();
        out.try_reserve_exact(self.bytes).ok()?;
        self.append_to(&mut out);
        Some(out)
    }

    /// Puts a copy of all bytes, packed, behind what is in `out`.
    pub(crate) fn append_to(&self, out: &mut Vec<u8>) {
        out.reserve_exact(self.bytes);
        let end = out.len();
        // SAFETY: the buffer is readable; `out` has room for all of it.
        unsafe {
            match &self.plan {
                None if self.bytes > 0 => std::ptr::copy_nonoverlapping(self.start, out.as_mut_ptr().add(end), self.bytes),
                None => {}
                Some((plan, count)) => plan.pack(self.start, *count, 0, out.as_mut_ptr().add(end), self.bytes),
            }
            out.set_len(end + self.bytes);
        }
    }

    /// Copies `from` here, as far as both reach.
    pub fn copy_from(&self, from: &Buffer) {
        let bytes = from.bytes.min(self.bytes);
        match (&from.plan, &self.plan) {
            // SAFETY: both readable and writable for `bytes`; MPI forbids overlap, `copy` bears it all the same.
            (None, None) => unsafe { std::ptr::copy(from.start, self.start, bytes) },
            (None, Some(_)) => self.put(0, from.start, bytes),
            (Some(_), None) if bytes == from.bytes => {
                let Some((plan, count)) = &from.plan else { return };
                // SAFETY: the plan writes exactly `bytes`, which fit.
                unsafe { plan.pack(from.start, *count, 0, self.start, bytes) };
            }
            // Both in pieces: packed and unpacked part by part, since the engine may be held, and there memory of a message's size is not asked for.
            _ => {
                let mut part = [0u8; PART_BYTES];
                for offset in (0..bytes).step_by(PART_BYTES) {
                    let part = &mut part[..PART_BYTES.min(bytes - offset)];
                    from.get(offset, part);
                    self.put(offset, part.as_ptr(), part.len());
                }
            }
        }
    }
}

impl proto::p2p::Buffer for Buffer {
    type Body = Body;
    type List = List;
    const EMPTY: Buffer = Buffer::EMPTY;

    #[inline(always)]
    fn len(&self) -> usize {
        self.bytes
    }

    #[inline(always)]
    fn is_contiguous(&self) -> bool {
        self.plan.is_none()
    }

    #[inline]
    fn straight(&self) -> bool {
        Buffer::straight(self)
    }

    #[inline]
    fn tellable(&self) -> bool {
        Buffer::tellable(self)
    }

    fn list(&self) -> Option<List> {
        Buffer::list(self)
    }

    fn told(&self, list: Option<&List>) -> Option<(u64, u64)> {
        Buffer::told(self, list)
    }

    #[inline]
    fn body_bytes(body: &Body) -> usize {
        body.pieces[0].1 + body.pieces[1].1
    }

    fn keep(body: &Body) -> Box<[u8]> {
        let mut data = Vec::with_capacity(Self::body_bytes(body));
        for (start, length) in body.pieces.into_iter().filter(|p| p.1 > 0) {
            // SAFETY: a packet's payload, valid until it is released; copied as raw bytes, since its sender could still write it.
            unsafe {
                let end: *mut u8 = data.as_mut_ptr();
                std::ptr::copy_nonoverlapping(start, end.add(data.len()), length);
                data.set_len(data.len() + length);
            }
        }
        data.into_boxed_slice()
    }

    #[inline]
    fn place(&self, offset: usize, body: &Body) {
        if body.from_end && self.plan.is_none() {
            return self.place_from_end(offset, body);
        }
        let [(first, length), (second, rest)] = body.pieces;
        self.put(offset, first, length);
        self.put(offset + length, second, rest);
    }

    #[inline]
    fn place_unexpected(&self, data: &[u8]) {
        self.put(0, data.as_ptr(), data.len());
    }

    #[inline(always)]
    fn place_words(&self, words: &[u64], bytes: usize) {
        self.put_words(words, bytes);
    }

    fn copy_from(&self, from: &Buffer) {
        Buffer::copy_from(self, from);
    }

    fn to_vec(&self) -> Vec<u8> {
        Buffer::to_vec(self)
    }

    fn append_to(&self, out: &mut Vec<u8>) {
        Buffer::append_to(self, out);
    }

    #[inline(always)]
    fn forget_layout(&mut self) {
        self.forget_plan();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// From and to places of any alignment, in two parts, and no byte besides.
    #[test]
    fn what_goes_past_the_caches_lies_where_the_rest_would() {
        let from: Vec<u8> = (0..2000u32).map(|i| (i % 251) as u8 + 1).collect();
        for (start, offset, first, second) in
            [(0, 0, 0, 1), (0, 0, 1024, 0), (1, 0, 700, 900), (13, 5, 63, 130), (64, 64, 64, 64), (3, 900, 90, 200), (7, 1000, 10, 10)]
        {
            let (mut plain, mut streamed) = (vec![0u8; 2500], vec![0u8; 2500]);
            let body = Body::of([(from.as_ptr(), first), (from[first..].as_ptr(), second)]);
            // SAFETY: the vectors are longer than where the buffer ends.
            let [one, other] = [&mut plain, &mut streamed].map(|to| unsafe { Buffer::contiguous(to.as_mut_ptr().add(start), 1000) });
            proto::p2p::Buffer::place(&one, offset, &body);
            other.place_past_caches(offset, &body);
            assert!(plain == streamed, "{start} {offset} {first} {second}");
            let placed = (first + second).min(1000usize.saturating_sub(offset));
            assert_eq!(plain.iter().filter(|byte| **byte != 0).count(), placed);
        }
    }
}
