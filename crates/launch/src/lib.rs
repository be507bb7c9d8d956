//! Who are my peers, and how did we start?
//!
//! A rank of a job speaks to its [`Launcher`]: this library's `mpiexec`, or a process manager of others. Which one stands in the
//! environment.
//!
//! Our own is reached over one Unix socket of the abstract namespace, so that wrappers which close descriptors do no harm. The rank
//! says hello once, hands over the descriptor of its shared-memory segment, asks for those of its peers when it first needs
//! them, and says when it is finished. What a rank is doing stands in the [`Board`], memory shared by all ranks with `mpiexec`.
//!
//! A foreign one is a store of values with a barrier. Ranks leave there who they are, and hand out their segments themselves.
//!
//! | module | question |
//! | --- | --- |
//! | [`launcher`] | What can a rank ask of whoever started it? |
//! | [`environment`] | What does the environment say about how we were started? |
//! | [`client`] | What can a rank ask of the `mpiexec` of this library? |
//! | [`board`] | What is each rank doing just now? |
//! | [`wire`] | What do rank and `mpiexec` say to each other? |
//! | [`channel`] | How do those packets and descriptors travel? |
//! | [`foreign`] | How does a rank find its peers through a foreign process manager? |
//! | [`host`] | On which host does this process run, and who shares its memory? |
//! | `segment_server` | How does a rank hand its segment to others, where the launcher carries no descriptors? |
//! | `secret`, `munge_sys` | How does the job's key go through that process manager? As it is, or through `libmunge` |
//! | [`spawn`] | How does a process start others while it runs? |
//! | [`last_line`] | What does a process say before it ends? |
//! | `store` | What does this library need of a foreign process manager? |
//! | [`pmi`], `stream` | How are PMI-1 and PMI-2 spoken? |
//! | [`fields`], [`mapping`] | How do PMI's messages and its map of ranks read? |
//! | [`pmix`], `pmix_sys` | How is PMIx spoken, through `libpmix`? |

pub mod board;
pub mod channel;
pub mod client;
pub mod environment;
mod error;
pub mod fields;
pub mod foreign;
pub mod host;
pub mod last_line;
pub mod launcher;
pub mod mapping;
mod munge_sys;
pub mod pmi;
pub mod pmix;
mod pmix_sys;
mod secret;
mod segment_server;
pub mod spawn;
mod store;
mod stream;
mod sys;
pub mod wire;

pub use board::Board;
pub use client::Client;
pub use error::Error;
pub use foreign::{Foreign, Neighbours};
pub use host::Host;
pub use launcher::{Launcher, Start, start};
pub use memory::without_signals;
pub use segment_server::HAS_ENDED;

/// Most ranks under our own launcher, on one host: it holds a descriptor of each.
pub const RANKS_MAX: u32 = 1024;
/// Most ranks under other launchers: as many as messages can name.
pub const JOB_RANKS_MAX: u32 = 1_000_000;
