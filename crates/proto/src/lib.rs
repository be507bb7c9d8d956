//! What two processes say to each other, and when.
//!
//! No I/O, no clock, no unsafe: time, randomness and addresses enter as arguments, so that any run can be
//! replayed. The engine carries out what is decided here.
#![forbid(unsafe_code)]

pub mod costs;
pub mod credits;
mod envelope;
pub mod list;
pub mod matching;
pub mod p2p;
mod protocol;
pub mod protocols;
pub mod reliability;
pub mod rendezvous;
pub mod routes;
pub mod wire;
