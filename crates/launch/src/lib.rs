//! Who are my peers, and how did we start?
//!
//! A rank of a job speaks to its launcher (`mpiexec`) over one Unix socket of the abstract namespace, named in the
//! environment, so that wrappers which close descriptors do no harm. The rank says hello once, hands over the
//! descriptor of its shared-memory segment, asks for those of its peers when it first needs them, and says when it
//! is finished. What a rank is doing stands in the [`Board`], memory shared by all ranks with the launcher.
//!
//! | module | question |
//! | --- | --- |
//! | [`client`] | What can a rank ask of its launcher? |
//! | [`board`] | What is each rank doing just now? |
//! | [`wire`] | What do rank and launcher say to each other? |
//! | [`channel`] | How do those packets and descriptors travel? |
//! | [`environment`] | What does the environment say about how we were started? |

pub mod board;
pub mod channel;
pub mod client;
pub mod environment;
mod error;
pub mod wire;

pub use board::Board;
pub use client::{Client, Start, start};
pub use error::Error;

/// Most ranks in one job.
pub const RANKS_MAX: u32 = 1024;
