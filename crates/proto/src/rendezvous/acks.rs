//! The paper's own variant, by acknowledgements: envelopes are matched first come first served on both sides, and whoever finds
//! the other's request says so, so that nobody waits for what will not come (§3.3, Figs. 8 and 11).
//!
//! It takes part with receives that name source and tag; any other is posted without RTR, as the paper does with any source.
//! What the paper leaves open, and the model decided:
//!
//! * An RTS is acknowledged whenever the receive that it matches has sent no RTR: not only when a receive is posted and
//!   finds it, also when it finds such a receive. The *done* packet would come too late for an RTR that is sent meanwhile.
//!   So is an RTS with *stop-RTR* in any case, since an RTR that crosses it is dropped; the *done* packet then says nothing new.
//! * The receive of an RTS with *stop-RTR*, and all others of that envelope that are posted, count as unannounced from then on.
//! * Between an eager message and *resume-RTR*, an RTR is dropped as it comes. So nothing piles up, and an RTR too many
//!   may be treated as if an eager message had been sent.

use super::Rtr;
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// RTRs that a sender keeps for one envelope. Past that, all are dropped as after an eager message.
pub const RTRS_MAX: usize = 64;
/// Envelopes that a sender remembers. What it has no room to remember is sent without speculation.
pub const ENVELOPES_MAX: usize = 4096;

type Envelope = (u64, i32);

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
enum Phase {
    /// Every RTR is for the next message that waits for one.
    Clear,
    /// The Eager flag: an RTR may be one that an eager message has answered.
    Eager,
    /// *stop-RTR* is on its way, with this request.
    Stopping(u64),
    /// All RTRs have come and are dropped: the next RTS says *resume-RTR*.
    Drained,
}

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
struct State {
    phase: Phase,
    /// RTRs that no message has answered.
    rtrs: VecDeque<Rtr>,
    /// Requests offered while clear, which an RTR may still cross.
    offered: VecDeque<u64>,
}

/// How a large message leaves.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Send {
    /// It answers this RTR: the receiver is sent an RTR-ACK, and the message is written.
    Answer(Rtr),
    /// By an RTS that carries these flags.
    Offer { stop: bool, resume: bool },
}

/// What a sender does with an RTR that has come.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Verdict {
    /// It is for a message that is still to be sent.
    Stored,
    /// It crossed the RTS of this request, and is dropped.
    Crossed { request: u64 },
    /// It is ambiguous, and dropped.
    Void,
}

/// What a process knows, as a sender, of one receiver.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Sender<const R: usize = RTRS_MAX, const E: usize = ENVELOPES_MAX> {
    envelopes: BTreeMap<Envelope, State>,
    /// Some envelope was not remembered: for all of those the Eager flag counts as set.
    forgetful: bool,
}

impl<const R: usize, const E: usize> Default for Sender<R, E> {
    fn default() -> Self {
        Sender { envelopes: BTreeMap::new(), forgetful: false }
    }
}

impl<const R: usize, const E: usize> Sender<R, E> {
    /// The state of an envelope; `None` where there is no room for it, which is as after an eager message.
    fn state(&mut self, envelope: Envelope) -> Option<&mut State> {
        if self.envelopes.len() >= E && !self.envelopes.contains_key(&envelope) {
            self.forgetful = true;
            return None;
        }
        let phase = if self.forgetful { Phase::Eager } else { Phase::Clear };
        Some(self.envelopes.entry(envelope).or_insert(State { phase, rtrs: VecDeque::new(), offered: VecDeque::new() }))
    }

    /// An eager message leaves.
    pub fn eager(&mut self, context: u64, tag: i32) {
        if let Some(state) = self.state((context, tag))
            && state.phase == Phase::Clear
        {
            state.doubt();
        }
    }

    /// The RTR that a large message would answer.
    pub fn find(&self, context: u64, tag: i32) -> Option<&Rtr> {
        self.envelopes.get(&(context, tag)).filter(|state| state.phase == Phase::Clear)?.rtrs.front()
    }

    /// The flags that an RTS would carry now: *stop-RTR* and *resume-RTR*.
    pub fn flags(&self, context: u64, tag: i32) -> (bool, bool) {
        let phase = self.envelopes.get(&(context, tag)).map_or(Phase::Clear, |state| state.phase);
        (phase == Phase::Eager, phase == Phase::Drained)
    }

    /// A large message leaves. One that cannot answer an RTR is sent as by [`Sender::offer`].
    pub fn send(&mut self, context: u64, tag: i32, request: u64) -> Send {
        if let Some(state) = self.state((context, tag))
            && state.phase == Phase::Clear
            && let Some(rtr) = state.rtrs.pop_front()
        {
            return Send::Answer(rtr);
        }
        self.offer(context, tag, request)
    }

    /// A large message leaves by an RTS, whatever has been announced; the RTR that it would have answered is dropped.
    pub fn offer(&mut self, context: u64, tag: i32, request: u64) -> Send {
        let Some(state) = self.state((context, tag)) else { return Send::Offer { stop: false, resume: false } };
        if state.phase == Phase::Clear && state.rtrs.pop_front().is_none() {
            state.offered.push_back(request);
        }
        let (stop, resume) = (state.phase == Phase::Eager, state.phase == Phase::Drained);
        if stop {
            state.phase = Phase::Stopping(request);
        } else if resume {
            state.phase = Phase::Clear;
        }
        Send::Offer { stop, resume }
    }

    /// An RTR has come. It names a tag.
    pub fn arrived(&mut self, rtr: Rtr) -> Verdict {
        let Some(state) = self.state((rtr.context, rtr.tag)) else { return Verdict::Void };
        if state.phase != Phase::Clear {
            return Verdict::Void;
        }
        if let Some(request) = state.offered.pop_front() {
            return Verdict::Crossed { request };
        }
        if state.rtrs.len() == R {
            state.doubt();
            return Verdict::Void;
        }
        state.rtrs.push_back(rtr);
        Verdict::Stored
    }

    /// An RTS-ACK: no RTR comes any more from the receive of this request.
    pub fn acknowledged(&mut self, context: u64, tag: i32, request: u64) {
        let Some(state) = self.envelopes.get_mut(&(context, tag)) else { return };
        if state.phase == Phase::Stopping(request) {
            state.phase = Phase::Drained;
        }
        state.offered.retain(|&other| other != request);
    }

    /// The receiver takes its RTRs of an envelope back, and sends no more until it is answered.
    pub fn forget(&mut self, context: u64, tag: i32) {
        if let Some(state) = self.envelopes.get_mut(&(context, tag)) {
            state.rtrs.clear();
            state.offered.clear();
        }
    }

    /// RTRs that wait for their message.
    pub fn waiting(&self) -> usize {
        self.envelopes.values().map(|state| state.rtrs.len()).sum()
    }
}

impl State {
    fn doubt(&mut self) {
        *self = State { phase: Phase::Eager, rtrs: VecDeque::new(), offered: VecDeque::new() };
    }
}

/// What a process knows, as a receiver, of one sender: as many envelopes as that one remembers.
#[derive(Clone, PartialEq, Eq, Hash, Default, Debug)]
pub struct Receiver {
    stopped: BTreeSet<Envelope>,
    /// Envelopes whose RTRs were taken back, until the sender answers.
    forgetting: BTreeSet<Envelope>,
}

impl Receiver {
    /// Whether a receive may send an RTR, as far as its envelope goes.
    pub fn may_announce(&self, context: u64, tag: i32) -> bool {
        !self.stopped.contains(&(context, tag)) && !self.forgetting.contains(&(context, tag))
    }

    /// An RTS has come. After `stop`, every posted receive of the envelope counts as unannounced.
    pub fn offered(&mut self, context: u64, tag: i32, stop: bool, resume: bool) {
        if stop && self.stopped.len() < ENVELOPES_MAX {
            self.stopped.insert((context, tag));
        }
        if resume {
            self.stopped.remove(&(context, tag));
        }
    }

    /// Takes the RTRs of an envelope back. Whether the sender is to be told; a receive is cancelled when it has answered.
    pub fn forget(&mut self, context: u64, tag: i32) -> bool {
        self.forgetting.insert((context, tag))
    }

    /// The sender has answered: every posted receive of the envelope counts as unannounced.
    pub fn forgotten(&mut self, context: u64, tag: i32) {
        self.forgetting.remove(&(context, tag));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rtr(request: u64, tag: i32) -> Rtr {
        Rtr { request, slot: 0, generation: 0, address: 0, room_bytes: 1 << 20, pieces: 0, seen: 0, epoch: 0, context: 1, tag }
    }

    const OFFER: Send = Send::Offer { stop: false, resume: false };

    #[test]
    fn an_rtr_is_for_the_first_that_waits() {
        let mut sender: Sender = Sender::default();
        assert_eq!(sender.send(1, 5, 70), OFFER);
        assert_eq!(sender.send(1, 5, 71), OFFER);
        assert_eq!(sender.arrived(rtr(1, 5)), Verdict::Crossed { request: 70 });
        sender.acknowledged(1, 5, 71);
        assert_eq!(sender.arrived(rtr(2, 5)), Verdict::Stored);
        assert_eq!(sender.send(1, 6, 72), OFFER);
        assert_eq!(sender.send(1, 5, 73), Send::Answer(rtr(2, 5)));
    }

    #[test]
    fn after_an_eager_message_it_stops_and_resumes() {
        let mut sender: Sender = Sender::default();
        assert_eq!(sender.arrived(rtr(1, 5)), Verdict::Stored);
        sender.eager(1, 5);
        assert_eq!(sender.arrived(rtr(2, 5)), Verdict::Void);
        assert_eq!((sender.find(1, 5), sender.flags(1, 5)), (None, (true, false)));
        assert_eq!(sender.send(1, 5, 70), Send::Offer { stop: true, resume: false });
        assert_eq!((sender.arrived(rtr(3, 5)), sender.flags(1, 5)), (Verdict::Void, (false, false)));
        assert_eq!(sender.send(1, 5, 71), OFFER);
        sender.acknowledged(1, 5, 71);
        assert_eq!(sender.send(1, 5, 72), OFFER);
        sender.acknowledged(1, 5, 70);
        assert_eq!(sender.flags(1, 5), (false, true));
        assert_eq!(sender.send(1, 5, 73), Send::Offer { stop: false, resume: true });
        assert_eq!(sender.arrived(rtr(4, 5)), Verdict::Stored);
        assert_eq!((sender.find(1, 5), sender.flags(1, 5)), (Some(&rtr(4, 5)), (false, false)));
        assert_eq!(sender.send(1, 5, 74), Send::Answer(rtr(4, 5)));
    }

    #[test]
    fn rtrs_and_envelopes_are_bounded() {
        let mut sender: Sender<2, 3> = Sender::default();
        assert_eq!([1, 2, 3].map(|request| sender.arrived(rtr(request, 5))), [Verdict::Stored, Verdict::Stored, Verdict::Void]);
        assert_eq!(sender.waiting(), 0);
        assert_eq!(sender.send(1, 5, 70), Send::Offer { stop: true, resume: false });
        for tag in 6..20 {
            sender.eager(1, tag);
        }
        assert_eq!(sender.envelopes.len(), 3);
        assert_eq!(sender.arrived(rtr(9, 30)), Verdict::Void);
        assert_eq!(sender.send(1, 30, 71), OFFER);
    }
}
