//! What MPI means: one module per chapter of the standard.
pub mod attributes;
pub mod coll;
pub mod consts;
pub mod error;
pub mod errors;
pub mod handle;
pub mod info;
pub mod op;
pub mod table;
pub mod slots;
pub mod status;
