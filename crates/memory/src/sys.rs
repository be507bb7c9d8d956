//! What the system gives without a safe wrapper elsewhere.

/// Runs `act` with all signals blocked in this thread, which threads made by it inherit.
pub fn without_signals<T>(act: impl FnOnce() -> T) -> T {
    // SAFETY: both sets are plain memory that the calls fill in; changing this thread's mask touches nothing else.
    unsafe {
        let mut all: libc::sigset_t = std::mem::zeroed();
        let mut before: libc::sigset_t = std::mem::zeroed();
        libc::sigfillset(&mut all);
        let blocked = libc::pthread_sigmask(libc::SIG_SETMASK, &all, &mut before) == 0;
        let value = act();
        if blocked {
            libc::pthread_sigmask(libc::SIG_SETMASK, &before, std::ptr::null_mut());
        }
        value
    }
}

/// So many `values`, in huge pages where the system has them and there is enough to fill one: what is looked at by chance misses the core's table of pages
/// less often then.
pub fn in_huge_pages<T: Clone>(value: T, count: usize) -> Vec<T> {
    let mut values = Vec::with_capacity(count);
    let bytes = size_of_val(values.spare_capacity_mut());
    if bytes >= HUGE_PAGE_BYTES {
        let start = values.as_mut_ptr() as usize;
        let page_bytes = rustix::param::page_size();
        let (first, end) = (start.next_multiple_of(page_bytes), (start + bytes) & !(page_bytes - 1));
        // SAFETY: whole pages of memory that is the vector's own; what is in it does not change. Refusals leave it as it was.
        unsafe { libc::madvise(first as *mut libc::c_void, end - first, libc::MADV_HUGEPAGE) };
    }
    values.resize(count, value);
    values
}

/// As of most processors; larger ones are not used for less.
const HUGE_PAGE_BYTES: usize = 2 << 20;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_the_same_in_pages_of_any_size() {
        for count in [0, 1, 1000, HUGE_PAGE_BYTES / 2, 3 * HUGE_PAGE_BYTES / 8] {
            let values = in_huge_pages(0x0123_4567_89ab_cdef_u64, count);
            assert!(values.len() == count && values.iter().all(|&value| value == 0x0123_4567_89ab_cdef));
        }
    }
}
