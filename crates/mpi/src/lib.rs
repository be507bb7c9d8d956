//! What MPI means: one module per chapter of the standard.
pub mod coll;
pub mod error;
pub mod op;
