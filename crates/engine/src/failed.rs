//! Errors of joining a job.

use std::fmt;

/// Why a process cannot join its job.
#[derive(Debug)]
pub enum Failed {
    Launch(launch::Error),
    Fabric(fabric::Error),
    Parameter(params::Error),
}

impl fmt::Display for Failed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Failed::Launch(error) => error.fmt(f),
            Failed::Fabric(error) => error.fmt(f),
            Failed::Parameter(error) => error.fmt(f),
        }
    }
}

impl From<launch::Error> for Failed {
    fn from(error: launch::Error) -> Self {
        Failed::Launch(error)
    }
}
impl From<fabric::Error> for Failed {
    fn from(error: fabric::Error) -> Self {
        Failed::Fabric(error)
    }
}
impl From<params::Error> for Failed {
    fn from(error: params::Error) -> Self {
        Failed::Parameter(error)
    }
}
