//! One process's end of all its conversations.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use super::local_rail::{LocalRail, Orphan, Reference};
use super::peer::{Answering, Envelope, Peer, Peers, Waiting, WaitingKind};
use super::rtt::Rtt;
use super::slab::Slab;
use super::transfer::Transfer;
use super::window::{Grants, Window};
use super::wire::{self, BULK_BYTES_MAX, Class};
use super::{Config, Failure, MTU_BYTES_MIN, Outside, PEERS_MAX, PeerId, RAILS_MAX, Refused, SILENT_NS, Slice, Sparse, TRANSFERS_MAX, VFRAG_BYTES, VFRAGS_MAX};
use crate::costs::making::Making;
use crate::credits::OVERHEAD_BYTES;

/// A peer is silent when it has not answered for so many times as long as others take at most.
const SILENT_TIMEOUTS: u64 = 8;

/// What has happened since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    pub packets_sent: u64,
    pub packets_arrived: u64,
    /// Datagrams that carried nothing but acknowledgements, grants and signs of life.
    pub control_sent: u64,
    /// Segments that left again, and those of which an earlier copy had arrived.
    pub segments_again: u64,
    pub segments_needless: u64,
    pub tail_probes: u64,
    pub timeouts: u64,
    /// Datagrams of another incarnation, for another process, or of a failed peer.
    pub refused_foreign: u64,
    /// Datagrams that had been here before, or are too old to tell.
    pub refused_replayed: u64,
    /// Frames that contradict what is known or exceed what is allowed.
    pub refused_frames: u64,
    /// Segments and messages that had arrived already.
    pub duplicates: u64,
    /// Segments that were not authentic where they had been placed.
    pub damaged_in_memory: u64,
    pub rails_died: u64,
    pub rails_returned: u64,
    pub peers_failed: u64,
}

/// The fullest that each queue has been.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HighWater {
    /// Messages to one peer: in flight, and waiting.
    pub messages: usize,
    pub waiting: usize,
    /// Messages and bytes of one peer that came too early.
    pub ahead: usize,
    pub ahead_bytes: u64,
    /// Transfers of the process.
    pub transfers: usize,
    pub windows: usize,
    /// Granted and not here, of the whole process.
    pub granted_bytes: u64,
    /// In flight to one peer on one rail, and the largest such window.
    pub in_flight_bytes: u64,
    pub window_bytes: u64,
    pub timers: usize,
    pub runnable: usize,
    /// Delivered and not released, of one peer, overheads included.
    pub unreleased_bytes: u64,
}

/// The machine. Times are ns of one clock that never goes back.
#[derive(Debug)]
pub struct Endpoint {
    pub(super) config: Config,
    pub(super) me: PeerId,
    pub(super) epoch: u32,
    pub(super) index: Sparse<u32>,
    pub(super) peers: Peers,
    pub(super) transfers: Slab<Transfer>,
    pub(super) windows: Slab<Window>,
    pub(super) local: Vec<LocalRail>,
    /// Sends to peers that have failed whose payload queued datagrams still read, by peer: bounded by what the queues of the rails hold.
    pub(super) orphans: BTreeMap<(u32, Reference), Orphan>,
    /// Round trips of all peers: what one that has not been heard yet may take, as when many ranks share the cores of its host.
    pub(super) others: Rtt,
    pub(super) timers: BTreeSet<(u64, u32)>,
    pub(super) runnable: VecDeque<u32>,
    pub(super) grants: Grants,
    pub(super) making: Making,
    /// Offered windows that have just found their transfers.
    pub(super) adopted: Vec<(u32, u32)>,
    /// What arrives now had come before, when nobody looked.
    pub(super) late: bool,
    pub(super) scratch: Vec<u8>,
    /// Header and frame of the second of several datagrams.
    pub(super) scratch_next: Vec<u8>,
    /// What messages of several segments are put together in: the memory of the last one.
    pub(super) scratch_payload: Vec<u8>,
    /// Of the messages in one datagram: their payloads, and which segments of which they are.
    pub(super) scratch_lists: (Vec<Slice>, Vec<(u32, u8)>),
    pub counters: Counters,
    pub high: HighWater,
}

impl Endpoint {
    /// The end of process `me` in its incarnation `epoch` (not 0; later incarnations have higher ones).
    ///
    /// # Panics
    /// When `config` contradicts itself: that is a mistake of the program, not of its input.
    pub fn new(config: Config, me: PeerId, epoch: u32) -> Endpoint {
        assert!(epoch != 0);
        assert!((1..=RAILS_MAX).contains(&config.rails.len()), "1 to {RAILS_MAX} rails");
        let mtu_bytes = config.rails.iter().map(|rail| rail.mtu_bytes).min().unwrap_or(0);
        assert!(mtu_bytes >= MTU_BYTES_MIN, "datagrams of {mtu_bytes} bytes are too short");
        assert!(config.eager_bytes_max <= VFRAG_BYTES && config.grant_bytes_max >= VFRAG_BYTES as u64);
        assert!(config.credit_bytes >= config.eager_bytes_max as u64 + OVERHEAD_BYTES);
        assert!(config.rails.iter().all(|rail| rail.endpoints > 0 && rail.queue_packets_max > 0));
        assert!(config.window_initial_bytes >= 4 * mtu_bytes as u64);
        let queues = |endpoints| (0..endpoints).map(|_| Default::default()).collect();
        let local = config.rails.iter().map(|rail| LocalRail { busy: false, queues: queues(rail.endpoints), next_queue: 0, moved_ns: 0 });
        Endpoint {
            me,
            epoch,
            index: Sparse::default(),
            peers: Peers::default(),
            transfers: Slab::new(),
            windows: Slab::new(),
            local: local.collect(),
            orphans: BTreeMap::new(),
            others: Rtt::default(),
            timers: BTreeSet::new(),
            runnable: VecDeque::new(),
            grants: Grants::default(),
            making: Making::default(),
            adopted: Vec::new(),
            late: false,
            scratch: Vec::with_capacity(512),
            scratch_next: Vec::new(),
            scratch_payload: Vec::new(),
            scratch_lists: Default::default(),
            counters: Counters::default(),
            high: HighWater::default(),
            config,
        }
    }

    pub fn config(&self) -> &Config {
        &self.config
    }

    /// Whether what arrives from now on had come before, when nobody looked: then the time that it took says nothing about the network.
    pub fn set_late(&mut self, late: bool) {
        self.late = late;
    }

    /// Names a peer and its incarnation, as the job's key-value store says. Needed before the first request towards it.
    pub fn connect(&mut self, peer: PeerId, epoch: u32) {
        self.peer_index(peer, epoch);
    }

    /// Whether `peer` has been named or has spoken, and has not failed.
    pub fn knows(&self, peer: PeerId) -> bool {
        self.find(peer).is_ok()
    }

    /// Whether a message of `bytes` to `peer` would leave with its payload, so that its send ends when that has come, matched or not: nothing waits before
    /// it, and the peer has room for it.
    pub fn leaves_whole(&self, peer: PeerId, bytes: u64) -> bool {
        let Ok(p) = self.find(peer) else { return true };
        let peer = &self.peers[p];
        let waits = peer.active.as_deref().is_some_and(|active| !active.waiting.is_empty());
        bytes <= u64::from(self.config.eager_bytes_max) && !waits && peer.credits.clone().take_eager(bytes)
    }

    /// Whether messages to `peer` that could leave with their payload wait because it has no room for them, as far as has been heard.
    #[inline]
    pub fn lacks_room(&self, peer: PeerId) -> bool {
        let active = self.find(peer).ok().and_then(|p| self.peers[p].active.as_deref());
        active.is_some_and(|active| active.held_ns != u64::MAX || active.impatient)
    }

    /// How many rails lead to `peer`, 1 to [`RAILS_MAX`], and the longest datagram that passes all of them, bytes, at least [`MTU_BYTES_MIN`]. There are never
    /// fewer rails than before; the longest datagram gets shorter only while nothing has been sent.
    ///
    /// # Panics
    /// When one of them is out of its range.
    pub fn set_paths(&mut self, peer: PeerId, rails: usize, mtu_bytes: u32) {
        assert!(rails <= RAILS_MAX && mtu_bytes >= MTU_BYTES_MIN, "{rails} rails, {mtu_bytes} bytes");
        let Ok(p) = self.find(peer) else { return };
        self.peers[p].widen(rails, &self.config);
        let peer = &mut self.peers[p];
        debug_assert!(mtu_bytes >= peer.mtu_bytes || peer.send_next == 0);
        peer.mtu_bytes = mtu_bytes;
    }

    /// Rails to `peer` take other paths from now on, bit `r` for rail `r`: those that were silent for long are tried at once.
    pub fn paths_changed(&mut self, peer: PeerId, rails: u8) {
        let Ok(p) = self.find(peer) else { return };
        if let Some(active) = &mut self.peers[p].active {
            let changed = active.rails.iter_mut().enumerate().filter(|(r, _)| rails >> r & 1 == 1);
            changed.for_each(|(_, rail)| rail.strikes = rail.strikes.min(1));
            self.settle(p);
        }
    }

    /// Of the rails to `peer`, those whose bit is set in `spares` are used only while no other one answers.
    pub fn set_spares(&mut self, peer: PeerId, spares: u8) {
        if let Ok(p) = self.find(peer) {
            self.peers[p].spares = spares;
        }
    }

    /// Longest datagram that passes all rails to `peer`, bytes; 0 where it is not known or has failed.
    pub fn mtu_bytes(&self, peer: PeerId) -> u32 {
        self.find(peer).map_or(0, |p| self.peers[p].mtu_bytes)
    }

    /// Which of the process's own rails carries rail `r` to a peer, who may have more of them.
    pub(super) fn local_of(&self, r: usize) -> usize {
        r % self.local.len()
    }

    pub(super) fn peer_index(&mut self, peer: PeerId, epoch: u32) -> usize {
        assert!(peer < PEERS_MAX, "process {peer} is none");
        let (peers, config) = (&mut self.peers, &self.config);
        let at = *self.index.place(peer).get_or_insert_with(|| {
            peers.push(Peer::new(peer, epoch, config));
            peers.len() as u32 - 1
        });
        at as usize
    }

    pub(super) fn find(&self, peer: PeerId) -> Result<usize, Refused> {
        let &at = self.index.get(peer).ok_or(Refused::Argument)?;
        if self.peers[at as usize].failed { Err(Refused::Peer) } else { Ok(at as usize) }
    }

    /// Sends a message of `bytes` behind `envelope`; it ends with [`Outside::complete`]. A short one goes with its payload while
    /// the receiver has room, any other waits to be asked for. Nothing leaves before [`Endpoint::flush`].
    ///
    /// `pulled`: it waits to be asked for in any case.
    pub fn send(&mut self, now_ns: u64, peer: PeerId, envelope: &[u8], send: u64, bytes: u64, pulled: bool) -> Result<(), Refused> {
        let eager = !pulled && bytes <= self.config.eager_bytes_max as u64;
        self.queue(now_ns, peer, envelope, WaitingKind::Send { send, bytes, eager })
    }

    fn queue(&mut self, now_ns: u64, peer: PeerId, envelope: &[u8], kind: WaitingKind) -> Result<(), Refused> {
        let p = self.find(peer)?;
        let envelope = Envelope::new(envelope).ok_or(Refused::Argument)?;
        if let WaitingKind::Send { bytes, .. } = kind
            && bytes > BULK_BYTES_MAX
        {
            return Err(Refused::Argument);
        }
        let active = self.peers[p].activate(&self.config, now_ns);
        if active.waiting.len() >= self.config.waiting_max {
            return Err(Refused::Full);
        }
        active.waiting.push_back(Waiting { kind, envelope });
        active.replies |= active.ended_ns != 0 && now_ns < active.ended_ns + self.config.ack_long_ns;
        active.busy_ns = now_ns;
        self.high.waiting = self.high.waiting.max(active.waiting.len());
        self.wake(p);
        Ok(())
    }

    /// Fetches `bytes` (at most what was requested) of a transfer that [`Delivery::Request`](super::Delivery::Request) named;
    /// ends with [`Outside::received`] of `receive`. With 0 bytes the transfer is declined, and nothing follows.
    pub fn receive(&mut self, now_ns: u64, peer: PeerId, transfer: u32, bytes: u64, receive: u64) -> Result<(), Refused> {
        let p = self.find(peer)?;
        if bytes == 0 {
            let kind = WaitingKind::Ready { class: Class::Decline { transfer }, send: None };
            return self.queue(now_ns, peer, &[], kind);
        }
        let id = self.open(Window::new(p, receive, transfer, bytes, Some(bytes), now_ns))?;
        self.peers[p].activate(&self.config, now_ns).windows.push(id);
        self.grant(now_ns);
        Ok(())
    }

    fn open(&mut self, window: Window) -> Result<u32, Refused> {
        if window.end_bytes() > BULK_BYTES_MAX {
            return Err(Refused::Argument);
        }
        let id = self.windows.insert(window).ok_or(Refused::Full)?;
        self.high.windows = self.high.windows.max(self.windows.len());
        self.enqueue_window(id);
        Ok(id)
    }

    /// A receiver that is there first: tells `peer` that up to `capacity_bytes` may come, and grants the first of them at once.
    /// Ends with [`Outside::received`] of `receive`. Nothing is wanted of the peer for that: it may never have anything to send.
    pub fn offer(&mut self, now_ns: u64, peer: PeerId, envelope: &[u8], capacity_bytes: u64, receive: u64) -> Result<u32, Refused> {
        let p = self.find(peer)?;
        if envelope.len() > wire::ENVELOPE_BYTES_MAX || capacity_bytes == 0 {
            return Err(Refused::Argument);
        }
        if self.peers[p].activate(&self.config, now_ns).waiting.len() >= self.config.waiting_max {
            return Err(Refused::Full);
        }
        // Enough for the time until the first of it has come and more can be granted: what nobody may send for long does not count, so it should not be much.
        let vfrags = (self.config.grant_bytes_max / 8 / VFRAG_BYTES as u64).clamp(1, VFRAGS_MAX as u64);
        let granted_bytes = capacity_bytes.min(vfrags * VFRAG_BYTES as u64);
        let mut window = Window::new(p, receive, 0, capacity_bytes, None, now_ns);
        window.grant_ahead(granted_bytes);
        let id = self.open(window)?;
        let class = Class::Offer { window: id, granted_bytes, capacity_bytes };
        self.queue(now_ns, peer, envelope, WaitingKind::Ready { class, send: None })?;
        Ok(id)
    }

    /// Fills a window that [`Delivery::Offer`](super::Delivery::Offer) named, `granted_bytes` of it at once. Ends with
    /// [`Outside::complete`] of `send`.
    #[allow(clippy::too_many_arguments)]
    pub fn push(&mut self, now_ns: u64, peer: PeerId, envelope: &[u8], window: u32, granted_bytes: u64, send: u64, bytes: u64) -> Result<(), Refused> {
        let p = self.find(peer)?;
        if window == 0 || envelope.len() > wire::ENVELOPE_BYTES_MAX {
            return Err(Refused::Argument);
        }
        if self.peers[p].activate(&self.config, now_ns).waiting.len() >= self.config.waiting_max {
            return Err(Refused::Full);
        }
        if bytes == 0 {
            let class = Class::Push { window, transfer: 0, bytes: 0 };
            return self.queue(now_ns, peer, envelope, WaitingKind::Ready { class, send: Some(send) });
        }
        let mut transfer = Transfer::new(p, send, bytes, self.peers[p].data_segment_bytes());
        transfer.open(window, granted_bytes);
        let id = self.transfers.insert(transfer).ok_or(Refused::Full)?;
        self.high.transfers = self.high.transfers.max(self.transfers.len());
        let active = self.peers[p].activate(&self.config, now_ns);
        active.transfers.push(id);
        self.schedule_transfer(p, id);
        let class = Class::Push { window, transfer: id, bytes };
        self.queue(now_ns, peer, envelope, WaitingKind::Ready { class, send: None })
    }

    /// The memory of a delivered message with `payload_bytes` (0 for all but eager ones) is free again.
    pub fn release(&mut self, now_ns: u64, peer: PeerId, payload_bytes: u64) {
        let Ok(p) = self.find(peer) else { return };
        let peer = &mut self.peers[p];
        peer.released_bytes += payload_bytes + OVERHEAD_BYTES;
        debug_assert!(peer.released_bytes <= peer.delivered_bytes);
        let released_bytes = peer.released_bytes;
        let active = peer.activate(&self.config, now_ns);
        // The sender hears of it in time to go on, but not of every message.
        if released_bytes - active.told_released_bytes >= self.config.credit_bytes / 4 {
            active.acknowledge_soon(now_ns);
            self.wake(p);
        }
    }

    /// What we wait for may be held back by the peer for lack of room here: it may leave more headers.
    pub fn widen(&mut self, now_ns: u64, peer: PeerId) {
        let Ok(p) = self.find(peer) else { return };
        self.peers[p].widened = self.peers[p].widened.wrapping_add(1);
        self.peers[p].activate(&self.config, now_ns).acknowledge_soon(now_ns);
        self.wake(p);
    }

    /// Whether the engine waits for something from `peer`, so that its failure matters although nothing is under way.
    pub fn watch(&mut self, now_ns: u64, peer: PeerId, watched: bool) -> Result<(), Refused> {
        let p = self.find(peer)?;
        if watched || self.peers[p].active.is_some() {
            let active = self.peers[p].activate(&self.config, now_ns);
            active.watched = watched;
            active.busy_ns = now_ns;
            self.settle(p);
        }
        Ok(())
    }

    /// Peers that may have something to send, and nothing else, are looked at again by [`Endpoint::flush`].
    pub(super) fn wake(&mut self, p: usize) {
        let peer = &mut self.peers[p];
        if !peer.runnable {
            peer.runnable = true;
            self.runnable.push_back(p as u32);
            self.high.runnable = self.high.runnable.max(self.runnable.len());
        }
    }

    /// Whether [`Endpoint::flush`] may find something to do.
    pub fn is_runnable(&self) -> bool {
        !self.runnable.is_empty()
    }

    /// Whether something should leave now. Otherwise what has arrived since the last [`Endpoint::flush`] can wait for the next.
    pub fn is_pressing(&self, now_ns: u64) -> bool {
        self.runnable.iter().any(|&p| {
            let active = self.peers[p as usize].active.as_deref();
            active.is_some_and(|active| active.has_to_send() || active.ack_ns <= now_ns || active.pings | active.pongs != 0 || !active.waiting.is_empty())
        })
    }

    /// Whether some message to `peer` is not acknowledged.
    pub fn is_unanswered(&self, peer: PeerId) -> bool {
        self.find(peer).is_ok_and(|p| {
            let peer = &self.peers[p];
            peer.active.as_deref().is_some_and(|active| !active.messages.is_empty() && active.told.as_ref().is_none_or(|told| told.ack.next != peer.send_next))
        })
    }

    /// Lets everything leave that may.
    pub fn flush(&mut self, now_ns: u64, outside: &mut impl Outside) {
        self.end_adopted(now_ns, outside);
        // Peers that a busy rail holds back stay in the queue for the next call.
        for _ in 0..self.runnable.len() {
            let Some(p) = self.runnable.pop_front() else { break };
            let p = p as usize;
            self.peers[p].runnable = false;
            self.pump(p, now_ns, outside);
            if self.peers[p].active.as_deref().is_some_and(|active| active.told.is_some()) {
                self.hear(p, &[], now_ns, outside);
                self.pump(p, now_ns, outside);
            }
            self.settle(p);
        }
    }

    /// For how long it says nothing that a peer is silent of whom nothing has been heard yet: as long as others would take, and not less than
    /// [`Config::rtt_initial_ns`] there and back.
    pub fn patience_ns(&self) -> u64 {
        self.others.timeout_ns(0).max(2 * self.config.rtt_initial_ns)
    }

    /// Whether no datagram that left for `peer` on `rail` at `sent_us` ([`wire::Header::sent_us`]) is expected to arrive any more: a later one has, which
    /// on most networks comes after it, or nothing is under way there.
    pub fn has_passed(&self, peer: PeerId, rail: u8, sent_us: u32) -> bool {
        let Ok(p) = self.find(peer) else { return true };
        let peer = &self.peers[p];
        let rail = peer.active.as_deref().and_then(|active| active.rails.get(rail as usize)).zip(peer.rails.get(rail as usize));
        rail.is_none_or(|(rail, memory)| {
            let since_us = ((rail.arrived_sent_ns / 1000) as u32).wrapping_sub(sent_us).cast_signed();
            since_us > 0 || memory.dead || rail.in_flight_bytes == 0 && rail.strikes == 0
        })
    }

    /// When [`Endpoint::tick`] is due.
    pub fn deadline_ns(&self) -> Option<u64> {
        let peers_ns = self.timers.first().map(|&(at_ns, _)| at_ns);
        let waiting = self.local.iter().filter(|rail| rail.waits());
        let local_ns = waiting.map(|rail| rail.moved_ns + self.config.local_timeout_ns).min();
        peers_ns.into_iter().chain(local_ns).min()
    }

    /// Time has passed: whatever is due is done.
    pub fn tick(&mut self, now_ns: u64, outside: &mut impl Outside) {
        for local in 0..self.local.len() {
            if self.local[local].waits() && now_ns >= self.local[local].moved_ns + self.config.local_timeout_ns {
                self.local[local].moved_ns = now_ns;
                outside.stuck(local as u8);
                for p in 0..self.peers.len() {
                    for rail in (local..self.peers[p].rails.len()).step_by(self.local.len()) {
                        if self.peers[p].active.is_some() && !self.peers[p].rails[rail].dead {
                            self.bury(p, rail, now_ns, outside);
                            self.wake(p);
                        }
                    }
                }
            }
        }
        while let Some(&(at_ns, p)) = self.timers.first()
            && at_ns <= now_ns
        {
            self.timers.remove(&(at_ns, p));
            self.peers[p as usize].timer_ns = u64::MAX;
            self.hear(p as usize, &[], now_ns, outside);
            self.expire(p as usize, now_ns, outside);
            self.pump(p as usize, now_ns, outside);
            self.settle(p as usize);
            // A timer in the past would come again at once, for ever unless it is the one that ends a quiet time: a peer may have been kept by its last acknowledgement.
            debug_assert!(
                self.peers[p as usize].timer_ns > now_ns || self.peers[p as usize].active.as_deref().is_some_and(|active| active.is_quiet()),
                "timer of {p} does not move: {:?}",
                self.next_timer(p as usize)
            );
        }
        self.flush(now_ns, outside);
    }

    /// Sets the peer's timer. One that fires too early does no harm, so only earlier ones are moved.
    pub(super) fn settle(&mut self, p: usize) {
        let at_ns = self.next_timer(p);
        let peer = &mut self.peers[p];
        if at_ns < peer.timer_ns {
            if peer.timer_ns != u64::MAX {
                self.timers.remove(&(peer.timer_ns, p as u32));
            }
            peer.timer_ns = at_ns;
            self.timers.insert((at_ns, p as u32));
            self.high.timers = self.high.timers.max(self.timers.len());
        }
    }

    fn next_timer(&self, p: usize) -> u64 {
        let peer = &self.peers[p];
        let Some(active) = peer.active.as_deref() else { return u64::MAX };
        let config = &self.config;
        let mut at_ns = active.stall_ns.min(active.held_ns);
        if !self.local.iter().any(|rail| rail.busy) {
            at_ns = at_ns.min(active.ack_ns);
        }
        if active.unanswered_ns != u64::MAX {
            at_ns = at_ns.min(active.unanswered_ns + config.peer_timeout_ns);
        }
        let blocked = active.has_to_send();
        let answering = Answering::of(&peer.rails, &active.rails, peer.spares);
        for (r, rail) in active.rails.iter().enumerate() {
            let memory = &peer.rails[r];
            at_ns = at_ns.min(rail.timeout_ns(memory, self.patience_ns(), config)).min(rail.loss_ns);
            // Of a peer that has given us up, half a message may lie here for ever.
            if active.wants() {
                at_ns = at_ns.min(rail.probe_ns);
            }
            let takes = || answering.is_some_and(|answering| answering.takes(r, rail)) && !self.local[self.local_of(r)].busy;
            if blocked && takes() && rail.in_flight_bytes < rail.window_bytes {
                at_ns = at_ns.min(rail.resume_ns);
            }
        }
        // What is neither wanted nor quiet waits for the peer or for a rail.
        if active.wants() {
            at_ns = at_ns.min(active.asked_ns + active.ask_wait_ns);
        } else if active.is_quiet() {
            at_ns = at_ns.min(active.busy_ns + config.idle_ns);
        }
        at_ns
    }

    /// What is due for one peer.
    fn expire(&mut self, p: usize, now_ns: u64, outside: &mut impl Outside) {
        let peer = &mut self.peers[p];
        let alive = peer.alive();
        let Some(active) = peer.active.as_deref_mut() else { return };
        if active.unanswered_ns != u64::MAX && now_ns >= active.unanswered_ns + self.config.peer_timeout_ns {
            self.fail(p, now_ns, outside);
            return;
        }
        if active.is_quiet() && now_ns >= active.busy_ns + self.config.idle_ns {
            peer.active = None;
            return;
        }
        if active.unanswered_ns != u64::MAX && now_ns >= active.unanswered_ns + SILENT_NS.max(SILENT_TIMEOUTS * self.others.timeout_ns(0)) {
            outside.silent(peer.id);
        }
        if active.wants() && now_ns >= active.asked_ns + active.ask_wait_ns {
            active.asked_ns = now_ns;
            active.ask_wait_ns = (active.ask_wait_ns * 2).min(self.config.keepalive_ns);
            active.pings |= alive;
        }
        if now_ns >= active.held_ns {
            active.stop_holding();
        }
        if now_ns >= active.stall_ns {
            self.stalled(p, now_ns);
        }
        for r in 0..self.peers[p].rails.len() {
            self.expire_rail(p, r, now_ns, outside);
        }
    }

    /// Ends everything with a peer.
    pub(super) fn fail(&mut self, p: usize, now_ns: u64, outside: &mut impl Outside) {
        let peer = &mut self.peers[p];
        if std::mem::replace(&mut peer.failed, true) {
            return;
        }
        let id = peer.id;
        self.counters.peers_failed += 1;
        let mut in_use = Vec::new();
        let mut end = |reference, references, send, arrived: bool, outside: &mut _| {
            let result = if arrived { Ok(()) } else { Err(Failure::Peer) };
            if references == 0 {
                return Outside::complete(outside, send, result);
            }
            in_use.push(send);
            self.orphans.insert((p as u32, reference), Orphan { send, references, result });
        };
        if let Some(active) = peer.active.take() {
            for (index, message) in active.messages.iter().enumerate() {
                if let Some(send) = message.send {
                    let reference = Reference::Message(active.base.wrapping_add(index as u32));
                    end(reference, message.references as u32, send, message.vfrag.is_acked(), outside);
                }
            }
            for waiting in &active.waiting {
                match waiting.kind {
                    WaitingKind::Send { send, .. } | WaitingKind::Ready { send: Some(send), .. } => {
                        outside.complete(send, Err(Failure::Peer));
                    }
                    WaitingKind::Ready { send: None, .. } => {}
                }
            }
            for place in active.ahead.iter().flatten().filter_map(|assembly| assembly.place) {
                outside.received(place.receive, Err(Failure::Peer));
            }
            for id in active.transfers {
                if let Some(transfer) = self.transfers.remove(id) {
                    end(Reference::Transfer(id), transfer.references, transfer.send, transfer.done, outside);
                }
            }
        }
        for id in self.windows.numbers(|window| window.is_of(p)) {
            if let Some(window) = self.remove_window(id) {
                outside.received(window.receive, Err(Failure::Peer));
            }
        }
        outside.peer_failed(id, &in_use);
        // What it had been granted is for the others.
        self.grant(now_ns);
    }

    /// Gives a peer up of which nothing is expected any more. What it has said is acknowledged first, once.
    pub fn abandon(&mut self, now_ns: u64, peer: PeerId, outside: &mut impl Outside) {
        let Ok(p) = self.find(peer) else { return };
        if let Some(active) = self.peers[p].active.as_deref_mut() {
            active.acknowledge_soon(now_ns);
        }
        self.pump(p, now_ns, outside);
        self.fail(p, now_ns, outside);
    }

    /// How many processes have been named or have spoken.
    pub fn known(&self) -> usize {
        self.peers.len()
    }

    /// Nothing is under way with any peer, watched or not, no queued datagram reads the payload of a send, and all that arrived has been acknowledged. A
    /// peer may have left in the middle of a message.
    pub fn is_quiet(&self) -> bool {
        let mut active = self.peers.iter().filter_map(|peer| peer.active.as_deref());
        self.orphans.is_empty() && active.all(|active| !active.has_open() && !active.owes())
    }

    /// Memory that grows with the number of peers, bytes, as allocated.
    pub fn peer_bytes(&self) -> usize {
        let rails = |peer: &Peer| {
            let quiet = peer.rails.len() * size_of::<super::rail::RailMemory>();
            let active = size_of::<super::peer::Active>() + peer.rails.len() * size_of::<super::rail::Rail>();
            quiet + if peer.active.is_some() { active } else { 0 }
        };
        self.peers.bytes() + self.peers.iter().map(rails).sum::<usize>() + self.index.bytes() + self.timers.len() * 2 * size_of::<(u64, u32)>()
    }

    /// Rails to `peer` that are not dead, as a mask.
    pub fn rails_alive(&self, peer: PeerId) -> u8 {
        self.find(peer).map_or(0, |p| self.peers[p].alive())
    }

    /// Limits that [`HighWater`] keeps to: each queue, and what bounds it.
    pub fn within_limits(&self) -> bool {
        let (high, config) = (&self.high, &self.config);
        high.messages <= super::MESSAGES_MAX
            && high.waiting <= config.waiting_max
            && high.ahead <= super::MESSAGES_MAX
            && high.ahead_bytes <= config.ahead_bytes_max()
            && high.transfers <= TRANSFERS_MAX
            && high.windows <= TRANSFERS_MAX
            && high.granted_bytes <= config.grant_bytes_max
            && high.window_bytes <= config.window_bytes_max
            // A tail probe and the datagram that fills the window may go past it.
            && high.in_flight_bytes <= config.window_bytes_max + (VFRAG_BYTES as u64)
            && high.timers <= self.peers.len()
            && high.runnable <= self.peers.len()
    }
}
