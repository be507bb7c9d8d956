//! What would happen if…? A simulated world of N ranks that talk over [`proto::reliability`]: clock, latency, bandwidth, loss,
//! duplication, reordering, corruption, dead links, several rails. For tests only.
//!
//! [`device`] is a model of adapters and of the memory that they may touch, [`rdma`] one of messages over them.
//!
//! A world is made from a [`Setup`] and a seed and is fully determined by them. What goes wrong is a panic
//! that names the seed.
#![forbid(unsafe_code)]

pub mod device;
mod load;
pub mod mixed;
mod network;
mod random;
pub mod rdma;
pub mod wireup;
mod world;

pub use load::{Load, Sizes};
pub use network::{Cut, Link, Network};
pub use random::Random;
pub use world::{Outcome, Setup, World};
