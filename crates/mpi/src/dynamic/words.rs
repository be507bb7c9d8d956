//! What ranks, and roots, tell each other when they become connected: bytes, or the error that one of them has met.
#![forbid(unsafe_code)]

use crate::consts::*;
use crate::error::{Error, Result};

/// Longest text of an error that is told, bytes.
const TEXT_BYTES_MAX: usize = 2000;

/// Four bytes of the error's class (0: none), and what follows.
pub fn encode(result: Result<Vec<u8>>) -> Vec<u8> {
    match result {
        Ok(bytes) => [&MPI_SUCCESS.to_le_bytes()[..], &bytes].concat(),
        Err(error) => {
            let end = (0..=error.detail.len().min(TEXT_BYTES_MAX)).rev().find(|end| error.detail.is_char_boundary(*end)).unwrap_or(0);
            [&error.class.to_le_bytes()[..], &error.detail.as_bytes()[..end]].concat()
        }
    }
}

/// What was [encoded](encode). Bytes that were not are an error of their own.
pub fn decode(bytes: &[u8]) -> Result<Vec<u8>> {
    let broken = || Error::new(MPI_ERR_OTHER, "the other side speaks another protocol");
    let (class, rest) = bytes.split_first_chunk().ok_or_else(broken)?;
    match i32::from_le_bytes(*class) {
        MPI_SUCCESS => Ok(rest.to_vec()),
        class if ERROR_CLASSES.iter().any(|(known, _)| *known == class) && rest.len() <= TEXT_BYTES_MAX => {
            Err(Error::new(class, String::from_utf8_lossy(rest)))
        }
        _ => Err(broken()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn bytes_and_errors_survive() {
        assert_eq!(decode(&encode(Ok(b"abc".to_vec()))).unwrap(), b"abc");
        let error = decode(&encode(Err(Error::new(MPI_ERR_PORT, "ä".repeat(5000))))).unwrap_err();
        assert_eq!((error.class, error.detail.chars().count()), (MPI_ERR_PORT, 1000));
        assert_eq!(decode(&[1, 2]).unwrap_err().class, MPI_ERR_OTHER);
        assert_eq!(decode(&[255; 9]).unwrap_err().class, MPI_ERR_OTHER);
    }

    proptest! {
        #[test]
        fn no_bytes_panic(bytes in prop::collection::vec(any::<u8>(), 0..100)) {
            let _ = decode(&bytes);
        }
    }
}
