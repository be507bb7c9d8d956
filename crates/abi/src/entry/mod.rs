//! Entry points by chapter. A file here is scanned by `build.rs` for lines `pub unsafe fn MPI_X`; their signatures are
//! those that `abi/functions.tsv` gives, checked at compile time.
#![allow(non_snake_case, clippy::missing_safety_doc, clippy::too_many_arguments)]

pub mod abi;
pub mod attributes;
pub mod clock;
pub mod coll;
pub mod comm;
pub mod datatype;
pub mod dynamic;
pub mod env;
pub mod errors;
pub mod file;
pub mod file_access;
pub mod group;
pub mod info;
pub mod memory;
pub mod neighborhood;
pub mod op;
pub mod p2p;
pub mod pack;
pub mod partitioned;
pub mod removed;
pub mod request;
pub mod session;
pub mod status;
pub mod tool;
pub mod topology;
pub mod version;
pub mod window;
