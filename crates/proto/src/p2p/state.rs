//! Copies of a machine's state, and what of it decides what the machine does: for worlds that explore every order of events.

use super::machine::{Machine, Peer, Worker};
use super::ports::Buffer;
use std::hash::{Hash, Hasher};

impl<W: Worker + Clone> Clone for Machine<W>
where
    W::Memory: Clone,
    W::Network: Clone,
    W::Remote: Clone,
    W::Share: Clone,
    <W::Buffer as Buffer>::List: Clone,
{
    /// A machine that does from here on what this one would do. Both go by one list of the reasons for failures.
    fn clone(&self) -> Self {
        Machine {
            config: self.config.clone(),
            memory: self.memory.clone(),
            network: self.network.clone(),
            actions: self.actions.clone(),
            peers: self.peers.clone(),
            unasked: self.unasked.clone(),
            crowding: self.crowding.clone(),
            matcher: self.matcher.clone(),
            requests: self.requests.clone(),
            backlog: self.backlog.clone(),
            streams: self.streams.clone(),
            jobs: self.jobs.clone(),
            descriptors_free: self.descriptors_free.clone(),
            cancels: self.cancels.clone(),
            usage: self.usage.clone(),
            failures: self.failures.clone(),
            reasons: self.reasons.clone(),
            senders: self.senders.clone(),
            news: self.news.clone(),
            told: self.told.clone(),
            unreached: self.unreached.clone(),
            fault: self.fault.clone(),
            worker: self.worker.clone(),
            ..*self
        }
    }
}

impl<W: Worker> Machine<W>
where
    W::Buffer: Hash,
    W::Remote: Hash,
    W::Share: Hash,
    <W::Buffer as Buffer>::List: Hash,
{
    /// Feeds `hasher` with what decides what the machine does from here on, as far as no process has failed: two machines of one configuration that feed
    /// it with the same behave alike. Left out is what is only counted, the names of places that nobody uses, and what the transports and the worker hold.
    pub fn hash_state(&self, hasher: &mut impl Hasher) {
        self.actions.hash(hasher);
        self.peers.iter().for_each(|peer| peer.hash_state(hasher));
        self.unasked.hash(hasher);
        self.crowding.hash(hasher);
        self.vain_polls.hash(hasher);
        self.matcher.hash_state(hasher);
        self.requests.hash_state(hasher);
        self.backlog.hash(hasher);
        self.streams.hash(hasher);
        self.jobs.hash(hasher);
        self.descriptors_free.hash(hasher);
        self.cooperative_generation.hash(hasher);
        self.cancels.hash(hasher);
        (self.wild_announced, self.ahead_bytes, self.postponed, self.held, self.prompt).hash(hasher);
        self.usage.hash_state(hasher);
    }
}

impl<W: Worker> Peer<W> {
    fn hash_state(&self, hasher: &mut impl Hasher) {
        (self.remote, self.failed, self.gone, self.listed, self.exchanging, self.crossing, self.crowding).hash(hasher);
        self.credits.hash(hasher);
        self.queue.hash(hasher);
        self.control.hash(hasher);
        self.speculation.hash(hasher);
        (self.sent, self.seen, self.offers, self.held_bytes, self.widen_at_bytes, self.held_bytes_max).hash(hasher);
    }
}
