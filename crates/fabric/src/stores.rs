//! Which stores write what another core is to read.

/// Streaming stores go past the caches: for memory that another core has read last, and that this one will not read, so that it need not be brought here
/// before it is written to. Where the processor has none, or memory does not begin where they can, they are as the others. Whoever lets others read what they
/// have written [fences](fence) first.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Stores {
    Ordinary,
    Streaming,
}

/// Makes what these stores have written visible before all that is stored later.
pub fn fence(stores: Stores) {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    if stores == Stores::Streaming {
        // SAFETY: all 64-bit processors can.
        unsafe { std::arch::x86_64::_mm_sfence() };
    }
    #[cfg(not(all(target_arch = "x86_64", not(miri))))]
    let _ = stores;
}

/// Copies `bytes`, all but the lines of which they fill a part by stores that go past the caches, where there are such.
///
/// # Safety
/// As `std::ptr::copy_nonoverlapping`.
#[inline]
pub unsafe fn copy_streaming(from: *const u8, to: *mut u8, bytes: usize) {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    {
        use std::arch::x86_64::{__m128i, _mm_loadu_si128, _mm_sfence, _mm_stream_si128};
        let head = to.align_offset(64).min(bytes);
        std::ptr::copy_nonoverlapping(from, to, head);
        let (from, to, bytes) = (from.add(head), to.add(head), bytes - head);
        let lines = bytes / 64;
        for line in 0..lines {
            let (from, to) = (from.add(64 * line).cast::<__m128i>(), to.add(64 * line).cast::<__m128i>());
            // No other store between them: a line leaves in one piece.
            let (a, b, c, d) = (_mm_loadu_si128(from), _mm_loadu_si128(from.add(1)), _mm_loadu_si128(from.add(2)), _mm_loadu_si128(from.add(3)));
            _mm_stream_si128(to, a);
            _mm_stream_si128(to.add(1), b);
            _mm_stream_si128(to.add(2), c);
            _mm_stream_si128(to.add(3), d);
        }
        std::ptr::copy_nonoverlapping(from.add(64 * lines), to.add(64 * lines), bytes - 64 * lines);
        // Streaming stores keep no order, not even that of the release that says that they are there.
        _mm_sfence();
    }
    #[cfg(not(all(target_arch = "x86_64", not(miri))))]
    std::ptr::copy_nonoverlapping(from, to, bytes);
}
