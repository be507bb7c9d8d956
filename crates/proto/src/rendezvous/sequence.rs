//! The sender's side, by counting: which message does an RTR answer?

use super::Rtr;
use std::collections::VecDeque;

/// Messages that a sender remembers for each receiver that has ever announced a receive. Messages in flight beyond these make
/// an RTR undecidable.
pub const HISTORY: usize = 64;
/// RTRs that a sender keeps for one receiver.
pub const RTRS_MAX: usize = 64;

#[derive(Clone, Copy, Default, PartialEq, Eq, Hash, Debug)]
struct Sent {
    context: u64,
    tag: i32,
    /// The sender's own name of the message, if it waits to be fetched.
    request: Option<u64>,
    /// An RTR has been assigned to it.
    assigned: bool,
}

/// What a sender does with an RTR that has come.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Verdict {
    /// It is for a message that is still to be sent.
    Stored,
    /// It crossed its message: `request` names that one if it waits to be fetched.
    Crossed { request: Option<u64> },
    /// It was sent before the receiver learnt of a reset: void.
    Void,
    /// It cannot be decided. All RTRs of this receiver are void until it has learnt of this reset, the `epoch`th.
    Reset { epoch: u32 },
}

/// What a process knows, as a sender, of one receiver that announces receives. It remembers `H` messages, a power of two,
/// and keeps `R` RTRs.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Sender<const H: usize = HISTORY, const R: usize = RTRS_MAX> {
    epoch: u32,
    /// Number of the message that was sent first after this began.
    first: u32,
    history: Box<[Sent; H]>,
    rtrs: VecDeque<Rtr>,
}

impl Sender {
    /// Begins to remember, after `sent` messages of which nothing is known.
    pub fn new(sent: u32) -> Sender {
        Sender::bounded(sent)
    }
}

impl<const H: usize, const R: usize> Sender<H, R> {
    /// As [`Sender::new`], with limits of one's own.
    pub fn bounded(sent: u32) -> Sender<H, R> {
        const { assert!(H.is_power_of_two()) };
        Sender { epoch: 0, first: sent, history: Box::new([Sent::default(); H]), rtrs: VecDeque::new() }
    }

    /// The RTR that a message with this envelope would answer.
    #[inline]
    pub fn find(&self, context: u64, tag: i32) -> Option<&Rtr> {
        self.rtrs.iter().find(|rtr| rtr.accepts(context, tag))
    }

    /// Forgets the RTR that [`Sender::find`] names: its receive is no longer posted.
    pub fn withdrawn(&mut self, context: u64, tag: i32) {
        if let Some(at) = self.rtrs.iter().position(|rtr| rtr.accepts(context, tag)) {
            self.rtrs.remove(at);
        }
    }

    /// Message number `number` (counted modulo 2^32) has left, by whatever protocol. The RTR that it answers is used up.
    /// `request` names it while it waits to be fetched.
    #[inline(always)]
    pub fn sent(&mut self, number: u32, context: u64, tag: i32, request: Option<u64>) -> Option<Rtr> {
        self.history[number as usize % H] = Sent { context, tag, request, assigned: false };
        if self.rtrs.is_empty() { None } else { self.assign(number, context, tag) }
    }

    #[inline(never)]
    fn assign(&mut self, number: u32, context: u64, tag: i32) -> Option<Rtr> {
        let at = self.rtrs.iter().position(|rtr| rtr.accepts(context, tag))?;
        self.history[number as usize % H].assigned = true;
        self.rtrs.remove(at)
    }

    /// An RTR has come, when `sent` messages had left (counted modulo 2^32).
    pub fn arrived(&mut self, rtr: Rtr, sent: u32) -> Verdict {
        if rtr.epoch != self.epoch {
            return Verdict::Void;
        }
        let crossing = sent.wrapping_sub(rtr.seen);
        let remembered = sent.wrapping_sub(self.first).min(H as u32);
        if crossing > remembered || self.rtrs.len() == R {
            return Verdict::Reset { epoch: self.forget(sent) };
        }
        for number in (0..crossing).map(|i| rtr.seen.wrapping_add(i)) {
            let message = &mut self.history[number as usize % H];
            if !message.assigned && rtr.accepts(message.context, message.tag) {
                message.assigned = true;
                return Verdict::Crossed { request: message.request };
            }
        }
        self.rtrs.push_back(rtr);
        Verdict::Stored
    }

    /// The receiver has taken an RTR back, so that which message was for which is unknown. Returns the epoch of the reset.
    pub fn forget(&mut self, sent: u32) -> u32 {
        self.rtrs.clear();
        self.first = sent;
        self.epoch = (self.epoch + 1) & (u32::MAX >> 1);
        self.epoch
    }

    /// Resets so far, modulo 2^31.
    pub fn epoch(&self) -> u32 {
        self.epoch
    }

    /// Message `number` turned out not to be for the RTR that it was assigned to.
    pub fn release(&mut self, number: u32) {
        self.history[number as usize % H].assigned = false;
    }

    /// RTRs that wait for their message, oldest first.
    pub fn rtrs(&self) -> impl Iterator<Item = &Rtr> {
        self.rtrs.iter()
    }

    /// What is remembered of message `number`: tag, name, and whether an RTR was assigned to it. It is one of the last `H`.
    pub fn remembered(&self, number: u32) -> (i32, Option<u64>, bool) {
        let message = &self.history[number as usize % H];
        (message.tag, message.request, message.assigned)
    }

    /// Number of the oldest message that an RTR can be for.
    pub fn first(&self) -> u32 {
        self.first
    }

    /// RTRs that wait for their message.
    pub fn waiting(&self) -> usize {
        self.rtrs.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::matching::Pattern;

    fn rtr(request: u64, tag: i32, seen: u32) -> Rtr {
        Rtr { request, slot: 0, generation: 0, address: 0, room_bytes: 1 << 20, pieces: 0, seen, epoch: 0, context: 1, tag }
    }

    #[test]
    fn an_rtr_waits_for_the_next_message_it_accepts() {
        let mut sender = Sender::new(0);
        assert_eq!(sender.arrived(rtr(1, 5, 0), 0), Verdict::Stored);
        assert_eq!(sender.sent(0, 1, 6, None), None);
        assert_eq!(sender.sent(1, 2, 5, None), None);
        assert_eq!(sender.sent(2, 1, 5, None).map(|r| r.request), Some(1));
        assert_eq!(sender.sent(3, 1, 5, None), None);
    }

    #[test]
    fn one_that_crossed_its_message_is_not_for_the_next() {
        let mut sender = Sender::new(0);
        assert_eq!(sender.sent(0, 1, 5, Some(70)), None);
        assert_eq!(sender.arrived(rtr(1, 5, 0), 1), Verdict::Crossed { request: Some(70) });
        // The second receive's is not for the same message again.
        assert_eq!(sender.arrived(rtr(2, Pattern::ANY_TAG, 0), 1), Verdict::Stored);
        assert_eq!(sender.sent(1, 1, 9, None).map(|r| r.request), Some(2));
    }

    #[test]
    fn what_was_matched_before_is_not_its_message() {
        let mut sender = Sender::new(0);
        sender.sent(0, 1, 5, None);
        assert_eq!(sender.arrived(rtr(1, 5, 1), 1), Verdict::Stored);
    }

    #[test]
    fn what_is_unknown_resets_until_the_receiver_knows() {
        let mut sender = Sender::new(10);
        assert_eq!(sender.arrived(rtr(1, 5, 9), 10), Verdict::Reset { epoch: 1 });
        assert_eq!(sender.arrived(rtr(2, 5, 10), 10), Verdict::Void);
        assert_eq!(sender.arrived(Rtr { epoch: 1, ..rtr(3, 5, 10) }, 10), Verdict::Stored);
        for number in 0..HISTORY as u32 + 1 {
            sender.sent(10 + number, 1, 6, None);
        }
        let late = Rtr { epoch: 1, ..rtr(4, 5, 10) };
        assert_eq!(sender.arrived(late, 10 + HISTORY as u32 + 1), Verdict::Reset { epoch: 2 });
        assert_eq!(sender.find(1, 5), None);
    }

    #[test]
    fn counts_may_pass_their_end() {
        let mut sender = Sender::new(u32::MAX);
        assert_eq!(sender.sent(u32::MAX, 1, 5, None), None);
        assert_eq!(sender.sent(0, 1, 6, None), None);
        assert_eq!(sender.arrived(rtr(1, 6, u32::MAX), 1), Verdict::Crossed { request: None });
        assert_eq!(sender.arrived(rtr(2, 5, u32::MAX), 1), Verdict::Crossed { request: None });
        assert_eq!(sender.arrived(rtr(3, 5, u32::MAX), 1), Verdict::Stored);
    }

    #[test]
    fn rtrs_are_bounded() {
        let mut sender = Sender::new(0);
        for request in 0..RTRS_MAX as u64 {
            assert_eq!(sender.arrived(rtr(request, 5, 0), 0), Verdict::Stored);
        }
        assert_eq!(sender.arrived(rtr(99, 5, 0), 0), Verdict::Reset { epoch: 1 });
        assert_eq!(sender.waiting(), 0);
    }
}
