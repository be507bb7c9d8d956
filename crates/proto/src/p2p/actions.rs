//! What the transport over the network is asked for after an arrival.

use super::ports::Window;
use super::request::{Origin, RequestId};
use std::collections::VecDeque;

/// A message that waits at its sender.
#[derive(Clone, Copy, Hash, Debug)]
pub struct Pull {
    pub peer: u32,
    pub transfer: u32,
    pub bytes: u64,
    /// `None` where it sent a copy, which it cannot take back.
    pub origin: Option<Origin>,
}

/// What arrivals have given rise to, and the transport over datagrams is asked for afterwards.
#[derive(Clone, Hash, Default)]
pub struct Actions {
    /// Memory that is free again: whose message's, and bytes of its payload.
    pub releases: Vec<(u32, u64)>,
    /// Which receive fetches how much, into which offered window if not 0; `None` declines.
    pub fetches: VecDeque<(Pull, Option<RequestId>, u32)>,
    /// Windows of announced receives that nothing comes to: whose, and which.
    pub withdrawals: Vec<(u32, u32)>,
    /// Announcements that have crossed the messages of these requests: whose, and which window.
    pub fills: Vec<(u32, RequestId, Window)>,
    /// Processes of which nothing is expected any more, and what has been said of them.
    pub abandoned: Vec<(u32, Said)>,
}

/// Why nothing is expected of a process any more that may still answer.
#[derive(Clone, Copy, Hash, Debug)]
pub enum Said {
    /// It has ended itself, for want of another.
    Left { lost: u64 },
    /// Another one takes it for failed.
    Lost { by: u32 },
}

impl Actions {
    pub fn is_empty(&self) -> bool {
        self.releases.is_empty() && self.fetches.is_empty() && self.withdrawals.is_empty() && self.fills.is_empty() && self.abandoned.is_empty()
    }
}
