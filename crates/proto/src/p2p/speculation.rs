//! What one process knows of another's announcements, and has announced to it.

use super::request::{Announced, RequestId};
use crate::matching::Pattern;
use crate::rendezvous::sequence::Sender;
use crate::rendezvous::{Rtr, Variant, acks, usage};
use crate::wire::{Context, Envelope, Kind};
use std::collections::VecDeque;

/// What this process knows of one peer's announcements, and has announced to it.
#[derive(Clone, Hash, Default)]
pub(super) struct Speculation {
    /// What decides which message an announcement is for. By counting, not there before the peer's first announcement.
    pub known: Option<Box<Known>>,
    /// This side receives: announced receives that are posted, oldest first.
    pub announced: Vec<RequestId>,
    /// Resets of the peer that this side has heard of.
    pub epoch: u32,
    /// An announcement was taken back, and the peer has not answered yet.
    pub forgetting: bool,
    /// Envelopes of announcements that crossed their offers and served. Whether the sender used them too, or had dropped them, is
    /// known when it answers a later one, or when a reset comes. Oldest first.
    pub crossed: VecDeque<usage::Envelope>,
    /// This side sends: messages that had left when the peer's last announcement came, modulo 2^32.
    pub heard: u32,
}

/// How an announcement ended, as far as this side can tell.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Ended {
    /// Its sender has answered it.
    Answered,
    /// It crossed the sender's offer, and serves for the copy of that.
    Crossed,
    /// Its message takes another way.
    Unused,
}

impl Announced {
    /// Messages of this process itself may be matched by its receive, too.
    pub fn wild(&self) -> bool {
        self.envelope.1 == Pattern::ANY_SOURCE
    }
}

#[derive(Clone, Hash)]
pub(super) enum Known {
    Sequence(Sender),
    /// As a sender, and as a receiver.
    Acks(acks::Sender, acks::Receiver),
}

impl Known {
    /// Message number `number` has left.
    #[inline(always)]
    pub fn sent(&mut self, number: u32, context: Context, tag: i32, request: Option<u64>) {
        match self {
            Known::Sequence(sender) => {
                sender.sent(number, context.raw(), tag, request);
            }
            Known::Acks(sender, _) => Known::sent_by_acks(sender, context, tag, request),
        }
    }

    #[inline(never)]
    fn sent_by_acks(sender: &mut acks::Sender, context: Context, tag: i32, request: Option<u64>) {
        match request {
            _ if collective(context.raw()) => {}
            Some(request) => {
                sender.offer(context.raw(), tag, request);
            }
            None => sender.eager(context.raw(), tag),
        }
    }

    /// What an offer that leaves now is called.
    pub fn offer(&self, envelope: Envelope) -> Kind {
        match self {
            Known::Acks(sender, _) if !collective(envelope.context.raw()) => match sender.flags(envelope.context.raw(), envelope.tag) {
                (true, _) => Kind::RtsStop,
                (_, true) => Kind::RtsResume,
                _ => Kind::Rts,
            },
            _ => Kind::Rts,
        }
    }
}

impl Speculation {
    pub fn new(rendezvous: Variant) -> Speculation {
        let acks = || Box::new(Known::Acks(acks::Sender::default(), acks::Receiver::default()));
        Speculation { known: (rendezvous == Variant::Acks).then(acks), ..Speculation::default() }
    }
}

impl Speculation {
    /// The announcement that a message to a remote peer answers.
    pub fn awaits(&self, context: Context, tag: i32) -> Option<Rtr> {
        match self.known.as_deref()? {
            Known::Sequence(sender) => sender.find(context.raw(), tag).copied(),
            Known::Acks(..) => None,
        }
    }
}

/// Collectives give every message a tag of its own: acknowledging would remember them all, and never use it.
pub(super) fn collective(context: u64) -> bool {
    context & 1 == 1
}

/// Whose usage is counted together. Collectives give every message a tag of its own.
pub(super) fn envelope_of(context: Context, source: u32, tag: i32) -> usage::Envelope {
    (context.raw(), source, if collective(context.raw()) { 0 } else { tag })
}
