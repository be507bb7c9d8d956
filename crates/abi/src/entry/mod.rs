//! Entry points by chapter. A file here is scanned by `build.rs` for lines `pub unsafe fn MPI_X(`; their signatures are
//! those that `abi/functions.tsv` gives, checked at compile time.
#![allow(non_snake_case, clippy::missing_safety_doc, clippy::too_many_arguments)]

pub mod abi;
pub mod clock;
pub mod errors;
pub mod info;
pub mod memory;
pub mod status;
pub mod version;
