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
