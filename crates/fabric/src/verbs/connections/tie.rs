//! How far the making of one connection is, in each of the ways.

use super::crossing::Crossing;
use super::meeting::Meeting;
use crate::verbs::sys::ConversationId;

#[derive(Debug)]
pub enum Tie {
    /// By greetings.
    Meeting(Meeting),
    /// By the connection manager.
    Line(Line),
    /// By the owner of the connections, who says when messages may leave.
    Told(bool),
}

/// What is known of a connection of the connection manager.
#[derive(Debug)]
pub struct Line {
    pub crossing: Crossing,
    pub call: Option<ConversationId>,
    /// Why the last call failed.
    pub why: Option<String>,
    /// Signs of life that had come when that changed last, and when that was, ns.
    pub heard: u32,
    pub heard_ns: u64,
}

impl Tie {
    /// Messages may leave.
    pub fn is_open(&self) -> bool {
        match self {
            Tie::Meeting(meeting) => meeting.met,
            Tie::Line(line) => line.crossing.is_open(),
            Tie::Told(is_open) => *is_open,
        }
    }

    /// Something has come through the connection. True where messages may leave by that.
    pub fn spoken_to(&mut self) -> bool {
        match self {
            Tie::Meeting(meeting) => meeting.spoken_to(),
            Tie::Line(line) => line.crossing.spoken_to(),
            Tie::Told(_) => false,
        }
    }

    /// The peer waits for something to come through the connection.
    pub fn owes(&self) -> bool {
        matches!(self, Tie::Line(line) if line.crossing.owes())
    }

    /// Something leaves through the connection.
    pub fn speaks(&mut self) {
        if let Tie::Line(line) = self {
            line.crossing.speaks();
        }
    }
}
