//! What is taken for lost, and when: overtaken segments, silence, rails that die and return.

use super::Outside;
use super::endpoint::Endpoint;
use super::peer::Active;
use super::rail::RailMemory;
use super::transfer::Transfer;

/// Silences in a row after which a rail is dead, if all that was on it has come by another one.
const STRIKES_QUIET: u8 = 2;

impl Endpoint {
    /// Gives up what newer datagrams of the same rail have overtaken (RFC 8985): all messages, and the transfers in `touched`, of
    /// which the peer has just told.
    pub(super) fn detect_losses(&mut self, p: usize, touched: &[u32], now_ns: u64) {
        let peer = &mut self.peers[p];
        let Some(active) = peer.active.as_deref_mut() else { return };
        for r in 0..peer.rails.len() {
            let arrived_ns = active.rails[r].arrived_sent_ns;
            if arrived_ns == 0 || active.rails[r].in_flight_bytes == 0 {
                active.rails[r].loss_ns = u64::MAX;
                continue;
            }
            let rtt = &peer.rails[r].rtt;
            let slack_ns = rtt.reordering_ns(self.config.rtt_initial_ns);
            let wait_ns = rtt.smoothed_ns(self.config.rtt_initial_ns) + slack_ns + self.config.ack_delay_ns;
            let judge = |sent_ns: u64| sent_ns + slack_ns <= arrived_ns;
            let mut next_ns = u64::MAX;
            lose_messages(active, r, arrived_ns, judge, &mut next_ns);
            for &id in touched {
                let Some(transfer) = self.transfers.get_mut(id) else { continue };
                lose_vfrags(transfer, active, id, r, arrived_ns, judge, &mut next_ns);
            }
            if next_ns != u64::MAX {
                let at_ns = (next_ns + wait_ns).max(now_ns + 1);
                active.rails[r].loss_ns = active.rails[r].loss_ns.min(at_ns).max(now_ns + 1);
            }
        }
    }

    /// What is due on one rail: overtaken segments, silence, probes.
    pub(super) fn expire_rail(&mut self, p: usize, r: usize, now_ns: u64, outside: &mut impl Outside) {
        let unheard_ns = self.patience_ns();
        let peer = &mut self.peers[p];
        let Some(active) = peer.active.as_deref_mut() else { return };
        let memory = &mut peer.rails[r];
        if memory.dead {
            if now_ns >= active.rails[r].probe_ns {
                active.rails[r].probe_later(now_ns, &self.config);
                if active.wants() {
                    active.pings |= 1 << r;
                }
            }
            return;
        }
        if now_ns >= active.rails[r].loss_ns {
            active.rails[r].loss_ns = u64::MAX;
            let wait_ns = memory.rtt.smoothed_ns(self.config.rtt_initial_ns) + memory.rtt.reordering_ns(self.config.rtt_initial_ns) + self.config.ack_delay_ns;
            let arrived_ns = active.rails[r].arrived_sent_ns;
            let judge = |sent_ns: u64| sent_ns < arrived_ns && sent_ns + wait_ns <= now_ns;
            let mut next_ns = u64::MAX;
            lose_messages(active, r, arrived_ns, judge, &mut next_ns);
            let mut at = 0;
            while let Some(&id) = active.transfers.get(at) {
                at += 1;
                if let Some(transfer) = self.transfers.get_mut(id)
                    && !transfer.vfrags.is_empty()
                {
                    lose_vfrags(transfer, active, id, r, arrived_ns, judge, &mut next_ns);
                }
            }
            if next_ns != u64::MAX {
                active.rails[r].loss_ns = (next_ns + wait_ns).max(now_ns + 1);
            }
        }
        if now_ns >= active.rails[r].timeout_ns(memory, unheard_ns, &self.config) {
            self.silence(p, r, now_ns, outside);
        }
    }

    /// Nothing has been heard on a rail for too long: first a tail probe, then all in flight is given up, then the rail.
    fn silence(&mut self, p: usize, r: usize, now_ns: u64, outside: &mut impl Outside) {
        let strikes_max = self.config.strikes_max;
        let peer = &mut self.peers[p];
        let Some(active) = peer.active.as_deref_mut() else { return };
        let others = |active: &Active, memories: &[RailMemory]| {
            let silent_ns = active.rails[r].silent_ns;
            (0..memories.len()).any(|other| other != r && !memories[other].dead && active.rails[other].answered_ns > silent_ns)
        };
        if active.rails[r].in_flight_bytes == 0 && !active.wants() {
            // What was on it has gone by another rail: the next burst is not to wait for this one again.
            if active.rails[r].strikes >= STRIKES_QUIET && others(active, &peer.rails) {
                self.bury(p, r, now_ns, outside);
            } else {
                active.rails[r].strikes = 0;
            }
            return;
        }
        let rail = &mut active.rails[r];
        rail.strikes = rail.strikes.saturating_add(1);
        rail.last_sent_ns = now_ns;
        if rail.strikes == 1 {
            rail.silent_ns = now_ns;
            self.counters.tail_probes += 1;
            if self.probe_tail(p, r) {
                return;
            }
        }
        self.counters.timeouts += 1;
        self.give_up(p, r);
        let peer = &mut self.peers[p];
        let Some(active) = peer.active.as_deref_mut() else { return };
        active.rails[r].collapse(&self.config);
        active.pings |= 1 << r;
        active.probe = active.probe.saturating_add(1);
        if active.rails[r].strikes >= strikes_max && others(active, &peer.rails) {
            self.bury(p, r, now_ns, outside);
        }
    }

    /// Makes the newest segment on a rail leave again. False when there is none.
    fn probe_tail(&mut self, p: usize, r: usize) -> bool {
        let Some(active) = self.peers[p].active.as_deref_mut() else { return false };
        for &id in active.transfers.iter().rev() {
            let Some(transfer) = self.transfers.get_mut(id) else { continue };
            let base = transfer.base;
            let newest = transfer.vfrags.iter_mut().enumerate().rev();
            for (index, vfrag) in newest {
                if vfrag.sent_on(r).is_some()
                    && let Some(segment) = vfrag.tail()
                {
                    let weights = vfrag.lose_segment(segment);
                    for (rail, weight) in active.rails.iter_mut().zip(weights) {
                        rail.in_flight_bytes -= weight;
                    }
                    if !std::mem::replace(&mut vfrag.queued, true) {
                        transfer.ready.push_front(base + index as u32);
                    }
                    active.probe = 1;
                    self.schedule_transfer(p, id);
                    return true;
                }
            }
        }
        let base = active.base;
        for (index, message) in active.messages.iter_mut().enumerate().rev() {
            if message.vfrag.sent_on(r).is_some()
                && let Some(segment) = message.vfrag.tail()
            {
                let weights = message.vfrag.lose_segment(segment);
                for (rail, weight) in active.rails.iter_mut().zip(weights) {
                    rail.in_flight_bytes -= weight;
                }
                if !std::mem::replace(&mut message.vfrag.queued, true) {
                    active.ready.push_front(base.wrapping_add(index as u32));
                }
                active.probe = 1;
                return true;
            }
        }
        false
    }

    /// Gives up everything in flight on a rail.
    fn give_up(&mut self, p: usize, r: usize) {
        let Some(active) = self.peers[p].active.as_deref_mut() else { return };
        lose_messages(active, r, u64::MAX, |_| true, &mut 0);
        let mut at = 0;
        while let Some(&id) = active.transfers.get(at) {
            at += 1;
            if let Some(transfer) = self.transfers.get_mut(id) {
                lose_vfrags(transfer, active, id, r, u64::MAX, |_| true, &mut 0);
            }
        }
        debug_assert_eq!(active.rails[r].in_flight_bytes, 0);
    }

    /// A rail to one peer is dead: what was on it moves to the others, and it is probed for its return.
    pub(super) fn bury(&mut self, p: usize, r: usize, now_ns: u64, outside: &mut impl Outside) {
        self.give_up(p, r);
        let peer = &mut self.peers[p];
        let Some(active) = peer.active.as_deref_mut() else { return };
        peer.rails[r].dead = true;
        active.rails[r].collapse(&self.config);
        active.rails[r].strikes = 0;
        active.rails[r].probe_later(now_ns, &self.config);
        self.counters.rails_died += 1;
        outside.rail_changed(peer.id, r as u8, false);
    }

    /// A rail has carried a question and its answer.
    pub(super) fn revived(&mut self, p: usize, r: usize, now_ns: u64, outside: &mut impl Outside) {
        let peer = &mut self.peers[p];
        let Some(active) = peer.active.as_deref_mut() else { return };
        if std::mem::take(&mut peer.rails[r].dead) {
            active.rails[r].revive(now_ns, &self.config);
            self.counters.rails_returned += 1;
            outside.rail_changed(peer.id, r as u8, true);
        }
    }
}

/// Gives up messages on a rail that `lost` says are lost; `next_ns` becomes the oldest that has been overtaken but is not lost.
fn lose_messages(active: &mut Active, r: usize, arrived_ns: u64, lost: impl Fn(u64) -> bool, next_ns: &mut u64) {
    let base = active.base;
    for (index, message) in active.messages.iter_mut().enumerate() {
        let Some(sent_ns) = message.vfrag.sent_on(r) else { continue };
        if lost(sent_ns) {
            active.rails[r].lost(message.vfrag.lose(r));
            if message.vfrag.pending().is_some() && !std::mem::replace(&mut message.vfrag.queued, true) {
                active.ready.push_back(base.wrapping_add(index as u32));
            }
        } else if sent_ns < arrived_ns {
            *next_ns = (*next_ns).min(sent_ns);
        }
    }
}

/// As [`lose_messages`], of one transfer.
fn lose_vfrags(transfer: &mut Transfer, active: &mut Active, id: u32, r: usize, arrived_ns: u64, lost: impl Fn(u64) -> bool, next_ns: &mut u64) {
    let mut any = false;
    for (index, vfrag) in transfer.vfrags.iter_mut().enumerate() {
        let Some(sent_ns) = vfrag.sent_on(r) else { continue };
        if lost(sent_ns) {
            active.rails[r].lost(vfrag.lose(r));
            any = true;
            if vfrag.pending().is_some() && !std::mem::replace(&mut vfrag.queued, true) {
                transfer.ready.push_back(transfer.base + index as u32);
            }
        } else if sent_ns < arrived_ns {
            *next_ns = (*next_ns).min(sent_ns);
        }
    }
    if any && !std::mem::replace(&mut transfer.queued, true) {
        active.sending.push_back(id);
    }
}
