//! The error every fallible MPI operation returns (MPI-5.0 §9.4).

use std::fmt;

/// An MPI error: a class of the standard and one sentence that names the argument and its value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Error {
    /// `MPI_ERR_*` class, or a user's error code.
    pub class: i32,
    /// What was wrong: the argument and its value. Never empty.
    pub detail: String,
}

/// `Box` keeps the successful path small.
pub type Result<T> = std::result::Result<T, Box<Error>>;

impl Error {
    pub fn new(class: i32, detail: impl Into<String>) -> Box<Error> {
        Box::new(Error { class, detail: detail.into() })
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} (class {})", self.detail, self.class)
    }
}

impl std::error::Error for Error {}
