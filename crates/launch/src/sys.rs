//! What the system gives without a safe wrapper elsewhere.

use crate::Error;
use std::os::fd::{FromRawFd, OwnedFd, RawFd};

/// Bytes that nobody can guess.
pub(crate) fn random<const BYTES: usize>() -> Result<[u8; BYTES], Error> {
    let mut bytes = [0; BYTES];
    let mut filled = 0;
    while filled < BYTES {
        match rustix::rand::getrandom(&mut bytes[filled..], rustix::rand::GetRandomFlags::empty()) {
            Ok(count) => filled += count,
            Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(Error::new(format!("cannot get random bytes: {error}"))),
        }
    }
    Ok(bytes)
}

/// The socket that this process inherited as `descriptor`, from now on closed in programs that it starts. `None`: it is
/// none. Called once for a descriptor, which belongs to nobody else: the environment gave it to this library.
pub(crate) fn inherited_socket(descriptor: RawFd) -> Option<OwnedFd> {
    // SAFETY: asking about a descriptor that may not exist does no harm.
    let socket = unsafe {
        let mut stat: libc::stat = std::mem::zeroed();
        descriptor > 2
            && libc::fstat(descriptor, &mut stat) == 0
            && stat.st_mode & libc::S_IFMT == libc::S_IFSOCK
            && libc::fcntl(descriptor, libc::F_SETFD, libc::FD_CLOEXEC) == 0
    };
    // SAFETY: it is open, and by the contract of the variable that named it nobody else's.
    socket.then(|| unsafe { OwnedFd::from_raw_fd(descriptor) })
}

/// Overwrites the value of an environment variable where it lies, so that its first bytes are the end: the variable is empty from then on, here, in
/// what this process starts, and in `/proc`. The list of variables is not touched, which other threads may be reading.
pub(crate) fn blank_variable(name: &str) {
    let Ok(name) = std::ffi::CString::new(name) else { return };
    // SAFETY: the value is a string of this process's own memory, which is writable; whoever reads it meanwhile finds an end within its old length.
    unsafe {
        let value = libc::getenv(name.as_ptr());
        if !value.is_null() {
            std::ptr::write_bytes(value, 0, libc::strlen(value));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_blank_variable_is_empty_for_all() {
        // SAFETY: no other test reads this variable.
        unsafe { std::env::set_var("WHIMBREL_TEST_BLANK", "secret") };
        blank_variable("WHIMBREL_TEST_BLANK");
        assert_eq!(std::env::var("WHIMBREL_TEST_BLANK").as_deref(), Ok(""));
        blank_variable("WHIMBREL_TEST_NONE");
    }
}
