//! The protocol machine of one process: it takes posts, packets and completions, and decides what is sent, fetched, copied together, announced and
//! completed. A [`Worker`] drives it and carries that out; the machine reads what transports can do, and never a name.
//!
//! | file | what |
//! | --- | --- |
//! | [`machine`] | its state, and what drives it |
//! | [`ports`] | what it asks for: users' memory, transports |
//! | [`send`] | what leaves: eager, or offered; what is cancelled |
//! | [`receive`] | posted receives, and messages that came before |
//! | [`arrive`] | packets, by their kind |
//! | [`transfer`] | rendezvous between memories: read, copied together, pipelined |
//! | [`pull`] | rendezvous over the network: pulled, or put into an offered window |
//! | [`announce`] | receives that are announced (RTR) |
//! | [`failure`] | processes that have failed |
//!
//! The other files hold what these have in common.

mod actions;
pub mod announce;
pub mod arrive;
pub mod copies;
mod crossing;
pub mod failure;
mod header;
pub mod machine;
mod pending;
pub mod ports;
pub mod pull;
mod reasons;
pub mod receive;
mod request;
pub mod send;
mod speculation;
mod state;
mod target;
pub mod transfer;
mod unexpected;

pub use actions::{Actions, Pull, Said};
pub use announce::Speculated;
pub use crossing::SHORT_BYTES_MAX;
pub use header::Header;
pub use machine::{Config, Machine, Worker};
pub use ports::{Buffer, COOPERATIVE_PIECES_MAX, Count, DataPath, Descriptor, Error, Event, Memory, Network, Refused, Side, Way, Window};
pub use reasons::{Reasons, Senders};
pub use request::{Outcome, Received, RequestId};
pub use target::{Mode, Target};
pub use unexpected::Message;
