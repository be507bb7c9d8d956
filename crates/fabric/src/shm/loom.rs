//! The lock-free structures alone, for loom.

pub mod area;
pub mod requests;
pub mod ring;
pub(crate) mod sleep;
pub mod slots;
mod stores;

#[cfg(test)]
mod loom_models;
