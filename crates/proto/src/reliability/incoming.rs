//! What arrives: messages into order, segments into place; and the grants that decide what may come.

use super::endpoint::Endpoint;
use super::peer::{Assembly, Envelope, Told};
use super::window::{Part, Window};
use super::wire::{self, Class, Data, Echo, Frame, Header, Lone, Message, Packet, Run};
use super::{COPIED_BYTES_MAX, Delivery, MESSAGES_MAX, Outside, Placement, RAILS_MAX, VFRAG_BYTES, VFRAGS_MAX};
use crate::credits::OVERHEAD_BYTES;

/// After how many datagrams an acknowledgement leaves.
#[derive(Clone, Copy)]
enum Batch {
    /// A few: a sender of short messages may run out of numbers for them.
    Short,
    /// More while much comes ([`super::peer::Active::ack_batch`]), and at least so many: no message asks for an answer
    /// of its own, which may be on its way.
    Long { least: u32 },
}

impl Batch {
    fn of(lone: &Lone) -> Batch {
        match lone {
            Lone::Data(_) => Batch::Long { least: 0 },
            Lone::Message(message) => Batch::of_message(message),
        }
    }

    /// Of a message of several segments.
    fn of_message(message: &Message) -> Batch {
        Batch::Long { least: message.segments() + 1 }
    }
}

/// Windows that are granted to at a time: more than one, since a sender may be slow (overcommitment).
const GRANTED_AT_ONCE: usize = 8;
/// Ends of transfers that wait to be told; a sender that is not told asks again.
const DONE_MAX: usize = 64;
/// Windows standing still that are told again at once.
const STALLED_MAX: usize = 32;

impl Endpoint {
    /// Takes in a datagram that is authentic ([`super::seal::open_datagram`]).
    pub fn arrived(&mut self, now_ns: u64, rail: u8, packet: &Packet, outside: &mut impl Outside) {
        let header = &packet.header;
        let Some(p) = self.sender(now_ns, rail, header, outside) else { return };
        let r = rail as usize;
        let peer = &mut self.peers[p];
        let memory = &mut peer.rails[r];
        let active = peer.active.as_deref_mut().expect("just made");
        let expected = memory.arrived + 1;
        if !active.rails[r].replay.fresh(&mut memory.arrived, header.number) {
            self.counters.refused_replayed += 1;
            self.settle(p);
            return;
        }
        self.counters.packets_arrived += 1;
        active.busy_ns = now_ns;
        let newest = memory.arrived == header.number;
        let mut urgent = header.number != expected;
        let (mut wants_ack, mut batch) = (false, if header.direct { Batch::Long { least: 0 } } else { Batch::Short });
        let mut touched = [0; wire::PARTIALS_MAX];
        let mut touched_count = 0;
        let mut delivers = false;
        // A message that is whole now is delivered before what was said along with its first datagram is looked into.
        if !matches!(packet.lone, Some(Lone::Message(_))) {
            self.hear(p, &[], now_ns, outside);
        }
        let mut frames = packet.frames();
        if let Some(lone) = &packet.lone {
            (wants_ack, batch, delivers) = (true, Batch::of(lone), matches!(lone, Lone::Message(_)));
            urgent |= !self.lone(p, lone, packet.payload, now_ns, outside);
        }
        while packet.lone.is_none()
            && let Some((frame, payload)) = frames.next()
        {
            match frame {
                Frame::Ack(ack) => {
                    if let Some(active) = self.peers[p].active.as_deref_mut() {
                        active.told = Some(Told { ack: *ack, sent_us: header.sent_us, came_ns: now_ns });
                    }
                }
                Frame::Message(message) => {
                    (wants_ack, delivers) = (true, true);
                    if message.segments() > 1 {
                        batch = Batch::of_message(&message);
                    }
                    urgent |= !self.message(p, &message, (std::iter::once(payload), 0), now_ns, outside);
                }
                Frame::Data(data) => {
                    wants_ack = true;
                    urgent |= !self.data(p, &data, payload, now_ns, outside);
                }
                Frame::Window(window) => {
                    if let Some(id) = self.window(p, window, now_ns, outside)
                        && touched_count < touched.len()
                    {
                        touched[touched_count] = id;
                        touched_count += 1;
                    }
                }
                Frame::Ping => {
                    wants_ack = true;
                    if let Some(active) = self.peers[p].active.as_deref_mut() {
                        active.pongs |= 1 << r;
                    }
                }
                Frame::Pong => self.revived(p, r, now_ns, outside),
            }
        }
        if !delivers || touched_count > 0 {
            self.hear(p, &touched[..touched_count], now_ns, outside);
        }
        self.taken_in(p, header, (wants_ack as u32, batch), newest, urgent, now_ns);
    }

    /// Takes in the datagrams of a run, all of them authentic: as [`Endpoint::arrived`] of each.
    pub fn arrived_run(&mut self, now_ns: u64, rail: u8, run: &Run, outside: &mut impl Outside) {
        let header = &run.header;
        let count = run.count();
        let Some(p) = self.sender(now_ns, rail, header, outside) else { return };
        let peer = &mut self.peers[p];
        let memory = &mut peer.rails[rail as usize];
        let active = peer.active.as_deref_mut().expect("just made");
        let expected = memory.arrived + 1;
        if !active.rails[rail as usize].replay.newer(&mut memory.arrived, header.number, count) {
            // What came late may have been here in part.
            run.packets().for_each(|packet| self.arrived(now_ns, rail, &packet, outside));
            return;
        }
        self.counters.packets_arrived += count as u64;
        active.busy_ns = now_ns;
        if !matches!(run.first, Lone::Message(_)) {
            self.hear(p, &[], now_ns, outside);
        }
        let mut urgent = header.number != expected;
        match &run.first {
            Lone::Data(data) if self.is_new(data, run.segments()) => {
                let place = |outside: &mut _, placement: &Placement| Outside::place_run(outside, placement, run);
                urgent |= !self.segments(p, data, run.segments(), run.payload_bytes(), now_ns, outside, place);
            }
            Lone::Message(first) if self.is_new_message(p, first, run.segments()) => {
                urgent |= !self.message(p, first, (run.payloads(), run.placed), now_ns, outside);
            }
            _ => {
                for packet in run.packets() {
                    urgent |= packet.lone.is_some_and(|lone| !self.lone(p, &lone, packet.payload, now_ns, outside));
                }
            }
        }
        self.taken_in(p, header, (count, Batch::of(&run.first)), true, urgent, now_ns);
    }

    /// Where the segments of a run would be put, if it is what it says. Nothing that has arrived lies there, and nothing that is not part of what comes: until they have
    /// arrived, any bytes may be there.
    pub fn placement(&self, run: &Run) -> Option<Placement> {
        let p = self.find(run.header.source).ok()?;
        match &run.first {
            Lone::Data(data) => {
                let window = self.windows.get(data.window).filter(|window| window.is_of(p) && window.total_bytes.is_some() && window.takes(data))?;
                let part = window.parts.get(data.vfrag.checked_sub(window.base)? as usize);
                let new = part.is_none_or(|part| [0, data.vfrag_bytes].contains(&part.vfrag_bytes) && part.segments & run.segments() == 0);
                new.then_some(Placement { receive: window.receive, offset_bytes: data.offset_bytes() })
            }
            Lone::Message(message) => {
                let peer = &self.peers[p];
                let assembly = peer.active.as_deref()?.ahead.get(message.sequence.wrapping_sub(peer.deliver_next) as usize)?.as_ref()?;
                let place = assembly.place.filter(|_| assembly.is_of(message))?;
                let offset_bytes = message.segment as u64 * message.segment_bytes as u64;
                let fits = offset_bytes + run.payload_bytes() as u64 <= place.room_bytes.min(message.total_bytes as u64);
                (fits && assembly.segments & run.segments() == 0).then_some(Placement { receive: place.receive, offset_bytes })
            }
        }
    }

    /// Who has sent a datagram that may be taken in.
    fn sender(&mut self, now_ns: u64, rail: u8, header: &Header, outside: &mut impl Outside) -> Option<usize> {
        if header.destination != self.me
            || header.destination_epoch != self.epoch
            || header.source_epoch == 0
            || header.source >= super::PEERS_MAX
            || header.rail != rail
            || rail as usize >= RAILS_MAX
        {
            self.counters.refused_foreign += 1;
            return None;
        }
        let p = self.peer_index(header.source, header.source_epoch);
        if self.peers[p].epoch != header.source_epoch {
            self.counters.refused_foreign += 1;
            if header.source_epoch > self.peers[p].epoch {
                // The peer that we knew is no more.
                self.fail(p, now_ns, outside);
            }
            return None;
        }
        let peer = &mut self.peers[p];
        if peer.failed {
            self.counters.refused_foreign += 1;
            return None;
        }
        peer.activate(&self.config, now_ns);
        peer.widen(rail as usize + 1, &self.config);
        Some(p)
    }

    /// Sees to the answer to datagrams of which `wanting` want an acknowledgement and the first has `header`.
    fn taken_in(&mut self, p: usize, header: &Header, (wanting, batch): (u32, Batch), newest: bool, urgent: bool, now_ns: u64) {
        let config = &self.config;
        let Some(active) = self.peers[p].active.as_deref_mut() else { return };
        active.count_unanswered(now_ns);
        if wanting > 0 {
            active.ack_packets += wanting;
            let batch = match batch {
                Batch::Short => config.ack_packets,
                Batch::Long { least } => active.ack_batch.max(least),
            };
            active.ack_rail = header.rail;
            if newest {
                active.rails[header.rail as usize].echo = Some((header.sent_us, (now_ns / 1000) as u32, self.late));
            }
            // What has ended just now may wait for the program's answer.
            let waits = active.replies && active.ended_ns == now_ns && active.windows.is_empty();
            let wait_ns = if urgent || (active.ack_packets >= batch && !waits) { 0 } else { config.ack_delay_ns };
            active.acknowledge_soon(now_ns + wait_ns);
        }
        self.wake(p);
    }

    /// Takes in what the peer has said of our messages, and which of its windows it has told of along with it. Where it came with a message this
    /// is done after the message has been delivered, and what its receiver sends then has left.
    pub(super) fn hear(&mut self, p: usize, touched: &[u32], now_ns: u64, outside: &mut impl Outside) {
        let Some(told) = self.peers[p].active.as_deref_mut().and_then(|active| active.told.take()) else { return };
        self.acknowledged(p, &told.ack, told.sent_us, told.came_ns, outside);
        self.detect_losses(p, touched, now_ns);
        if let Some(active) = self.peers[p].active.as_deref_mut() {
            active.count_unanswered(now_ns);
        }
    }

    /// The newest datagram of each rail.
    pub(super) fn echoes(&self, p: usize) -> impl Iterator<Item = Echo> {
        let active = self.peers[p].active.as_deref();
        let rails = active.into_iter().flat_map(|active| active.rails.iter().enumerate());
        rails.filter_map(move |(rail, state)| {
            let (sent_us, came_us, late) = state.echo?;
            Some(Echo { rail: rail as u8, sent_us, came_us, late })
        })
    }

    /// As [`Endpoint::message`] and [`Endpoint::data`].
    fn lone(&mut self, p: usize, lone: &Lone, payload: &[u8], now_ns: u64, outside: &mut impl Outside) -> bool {
        match lone {
            Lone::Data(data) => self.data(p, data, payload, now_ns, outside),
            Lone::Message(message) => self.message(p, message, (std::iter::once(payload), 0), now_ns, outside),
        }
    }

    /// Whether none of `segments` of a message has been here.
    fn is_new_message(&self, p: usize, message: &Message, segments: u64) -> bool {
        let peer = &self.peers[p];
        let distance = message.sequence.wrapping_sub(peer.deliver_next) as usize;
        let slot = peer.active.as_deref().and_then(|active| active.ahead.get(distance));
        distance < MESSAGES_MAX && slot.is_none_or(|slot| slot.as_ref().is_none_or(|assembly| assembly.segments & segments == 0))
    }

    /// Takes in segments of a message that follow each other, the first of them that of `message`; either none of them
    /// has been here, or it is one. The first `placed` payloads are where they belong, as [`Endpoint::placement`] has said. False when they should be
    /// acknowledged at once: they had been here, or something is missing.
    fn message<'a>(
        &mut self,
        p: usize,
        message: &Message,
        (mut payloads, placed): (impl Iterator<Item = &'a [u8]>, u32),
        now_ns: u64,
        outside: &mut impl Outside,
    ) -> bool {
        let peer = &mut self.peers[p];
        let Some(active) = peer.active.as_deref_mut() else { return true };
        let distance = message.sequence.wrapping_sub(peer.deliver_next);
        if distance as usize >= MESSAGES_MAX {
            if distance > u32::MAX / 2 {
                self.counters.duplicates += 1;
            } else {
                self.counters.refused_frames += 1;
            }
            return false;
        }
        let whole = message.length_bytes() == message.total_bytes as usize;
        if distance == 0 && whole && active.ahead.front().is_none_or(|first| first.is_none()) {
            active.ahead.pop_front();
            peer.deliver_next = peer.deliver_next.wrapping_add(1);
            self.deliver(p, message.class, message.envelope, payloads.next().unwrap_or_default(), now_ns, outside);
        } else {
            let distance = distance as usize;
            let new = active.ahead.get(distance).is_none_or(|slot| slot.is_none());
            if new {
                let cost = message.total_bytes as u64;
                if active.ahead_bytes + cost > self.config.ahead_bytes_max() {
                    self.counters.refused_frames += 1;
                    return false;
                }
                active.ahead_bytes += cost;
                self.high.ahead_bytes = self.high.ahead_bytes.max(active.ahead_bytes);
                if active.ahead.len() <= distance {
                    active.ahead.resize_with(distance + 1, || None);
                    self.high.ahead = self.high.ahead.max(distance + 1);
                }
                let begins = distance == 0 && message.segment == 0 && message.class == Class::Eager;
                let place = if begins { outside.begin(peer.id, message.envelope, cost) } else { None };
                let mut payload = Vec::new();
                if place.is_none() {
                    payload = std::mem::take(&mut self.scratch_payload);
                    payload.reserve_exact(message.total_bytes as usize);
                }
                active.ahead[distance] = Some(Assembly {
                    class: message.class,
                    envelope: Envelope::new(&[]).expect("empty"),
                    total_bytes: message.total_bytes,
                    place,
                    payload,
                    segment_bytes: message.segment_bytes,
                    segments: 0,
                });
            }
            let assembly = active.ahead[distance].as_mut().expect("just looked at");
            if !assembly.is_of(message) {
                self.counters.refused_frames += 1;
                return false;
            }
            if assembly.segments & 1 << message.segment != 0 {
                self.counters.duplicates += 1;
                return false;
            }
            if message.segment == 0 {
                assembly.envelope = Envelope::new(message.envelope).expect("parsed with this limit");
            }
            for ((segment, payload), at) in (message.segment..).zip(payloads).zip(0..) {
                if at < placed {
                    assembly.placed(segment);
                } else if !assembly.put(segment, payload, outside) {
                    self.counters.damaged_in_memory += 1;
                    return false;
                }
            }
        }
        // What came too early may have its turn now.
        loop {
            let peer = &mut self.peers[p];
            let Some(active) = peer.active.as_deref_mut() else { return true };
            match active.ahead.front() {
                Some(Some(first)) if first.is_complete() => {}
                _ => return distance == 0,
            }
            let Some(Some(mut first)) = active.ahead.pop_front() else { return true };
            active.ahead_bytes -= first.total_bytes as u64;
            if first.total_bytes > COPIED_BYTES_MAX {
                active.acknowledge_soon(now_ns + self.config.ack_long_ns);
            }
            peer.deliver_next = peer.deliver_next.wrapping_add(1);
            if let Some(place) = first.place {
                let bytes = first.total_bytes as u64;
                self.count_delivered(p, bytes);
                outside.deliver(self.peers[p].id, Delivery::Placed { envelope: first.envelope.as_slice(), receive: place.receive, bytes });
                continue;
            }
            self.deliver(p, first.class, first.envelope.as_slice(), &first.payload, now_ns, outside);
            // The next one need not allocate; one that waited long for its turn is not kept beside that.
            first.payload.clear();
            self.scratch_payload = first.payload;
        }
    }

    /// Counts a message with `bytes` of payload against what its sender may leave here.
    fn count_delivered(&mut self, p: usize, bytes: u64) {
        let peer = &mut self.peers[p];
        peer.delivered_bytes += bytes + OVERHEAD_BYTES;
        self.high.unreleased_bytes = self.high.unreleased_bytes.max(peer.delivered_bytes - peer.released_bytes);
    }

    fn deliver(&mut self, p: usize, class: Class, envelope: &[u8], payload: &[u8], now_ns: u64, outside: &mut impl Outside) {
        self.count_delivered(p, payload.len() as u64);
        let peer = &mut self.peers[p];
        let id = peer.id;
        let delivery = match class {
            Class::Eager => Delivery::Eager { envelope, payload },
            Class::Request { transfer, bytes } => Delivery::Request { envelope, transfer, bytes },
            Class::Offer { window, granted_bytes, capacity_bytes } => Delivery::Offer { envelope, window, granted_bytes, capacity_bytes },
            Class::Push { window: id, transfer, bytes } => {
                let Some(window) =
                    self.windows.get_mut(id).filter(|w| w.peer as usize == p && w.transfer == 0 && bytes <= w.capacity_bytes && w.arrived_bytes <= bytes)
                else {
                    self.counters.refused_frames += 1;
                    peer.released_bytes += OVERHEAD_BYTES;
                    return;
                };
                window.transfer = transfer;
                window.total_bytes = Some(bytes);
                window.heard_ns = now_ns;
                window.parked &= window.arrived_bytes == 0;
                let receive = window.receive;
                if let Some(active) = peer.active.as_deref_mut() {
                    active.windows.push(id);
                }
                self.grants.recount(window);
                outside.deliver(self.peers[p].id, Delivery::Push { envelope, receive, bytes });
                self.watch_stall(p, now_ns);
                self.finish_window(p, id, now_ns, outside);
                self.grant(now_ns);
                return;
            }
            Class::Decline { transfer } => {
                peer.released_bytes += OVERHEAD_BYTES;
                self.finish_transfer(p, transfer, now_ns, outside);
                return;
            }
        };
        outside.deliver(id, delivery);
    }

    /// As [`Endpoint::message`].
    fn data(&mut self, p: usize, data: &Data, payload: &[u8], now_ns: u64, outside: &mut impl Outside) -> bool {
        let place = |outside: &mut _, placement: &Placement| Outside::place(outside, placement, payload);
        self.segments(p, data, 1 << data.segment, payload.len() as u32, now_ns, outside, place)
    }

    /// Whether none of `segments` of a VFRAG has been here, as far as is known.
    fn is_new(&self, data: &Data, segments: u64) -> bool {
        let part = |window: &Window| window.parts.get(data.vfrag.checked_sub(window.base)? as usize).copied();
        self.windows.get(data.window).and_then(part).is_none_or(|part| !part.is_done() && part.segments & segments == 0)
    }

    /// Takes in `segments` of a VFRAG that follow each other, `bytes` of payload, the first of them that of `data`; either none of them has been here, or it is one.
    #[allow(clippy::too_many_arguments)]
    fn segments<O: Outside>(
        &mut self,
        p: usize,
        data: &Data,
        segments: u64,
        bytes: u32,
        now_ns: u64,
        outside: &mut O,
        place: impl FnOnce(&mut O, &Placement) -> bool,
    ) -> bool {
        let Some(active) = self.peers[p].active.as_deref_mut() else { return true };
        let Some(window) = self.windows.get_mut(data.window) else {
            // It has ended, and the sender has not heard.
            self.counters.duplicates += 1;
            if active.done.len() < DONE_MAX {
                active.done.push_back((data.window, 0));
            }
            return false;
        };
        if !window.is_of(p) || !window.takes(data) {
            self.counters.refused_frames += 1;
            return false;
        }
        active.stall_wait_ns = 0;
        window.heard_ns = now_ns;
        if !window.dirty {
            window.dirty = true;
            active.dirty.push_back(data.window);
        }
        let Some(index) = data.vfrag.checked_sub(window.base) else {
            self.counters.duplicates += 1;
            return false;
        };
        if index as usize >= VFRAGS_MAX {
            self.counters.refused_frames += 1;
            return false;
        }
        if window.parts.len() <= index as usize {
            window.parts.resize(index as usize + 1, Part::default());
        }
        let part = &mut window.parts[index as usize];
        if part.vfrag_bytes == 0 {
            part.vfrag_bytes = data.vfrag_bytes;
        }
        if part.vfrag_bytes != data.vfrag_bytes {
            self.counters.refused_frames += 1;
            return false;
        }
        window.segment_bytes = data.segment_bytes;
        // What comes to an offer before the message that takes it may be all that ever comes.
        let mut changed = window.transfer != 0 && std::mem::take(&mut window.parked);
        if part.is_done() || part.segments & segments != 0 {
            self.counters.duplicates += 1;
            if changed {
                self.grants.recount(window);
            }
            return false;
        }
        let placement = Placement { receive: window.receive, offset_bytes: data.offset_bytes() };
        if !place(outside, &placement) {
            self.counters.damaged_in_memory += 1;
            if changed {
                self.grants.recount(window);
            }
            return false;
        }
        part.segments |= segments;
        part.arrived_bytes += bytes;
        window.arrived_bytes += bytes as u64;
        changed |= part.is_done();
        // Grants follow whole VFRAGs; less is not worth the look.
        if !changed {
            return true;
        }
        self.grants.recount(window);
        while window.parts.front().is_some_and(Part::is_done) {
            window.parts.pop_front();
            window.base += 1;
        }
        let id = data.window;
        if window.granted_bytes < window.end_bytes() {
            self.enqueue_window(id);
        }
        self.finish_window(p, id, now_ns, outside);
        self.grant(now_ns);
        true
    }

    /// Whether the window has ended.
    pub(super) fn finish_window(&mut self, p: usize, id: u32, now_ns: u64, outside: &mut impl Outside) -> bool {
        if !self.windows.get(id).is_some_and(Window::is_complete) {
            return false;
        }
        let window = self.remove_window(id).expect("just looked at");
        if let Some(active) = self.peers[p].active.as_deref_mut() {
            if let Some(at) = active.windows.iter().position(|&one| one == id) {
                active.windows.swap_remove(at);
            }
            if active.done.len() < DONE_MAX {
                active.done.push_back((id, window.transfer));
            }
            active.ended_ns = now_ns;
            match (active.windows.is_empty(), active.replies) {
                // Whatever else was to be told waits with it.
                (true, true) => active.ack_ns = now_ns + self.config.ack_long_ns,
                (true, false) => active.acknowledge_soon(now_ns),
                // With more under way the sender hears of it soon enough.
                (false, _) => active.acknowledge_soon(now_ns + self.config.ack_delay_ns),
            }
        }
        outside.received(window.receive, Ok(()));
        true
    }

    /// Follows what has changed in a window.
    pub(super) fn recount(&mut self, id: u32) {
        if let Some(window) = self.windows.get_mut(id) {
            self.grants.recount(window);
        }
    }

    /// Tells the sender of a window at once, and again if nothing comes of it.
    pub(super) fn tell_window(&mut self, p: usize, id: u32, now_ns: u64) {
        let Some(window) = self.windows.get_mut(id) else { return };
        if let Some(active) = self.peers[p].active.as_deref_mut() {
            active.mark_dirty(id, window);
            active.acknowledge_soon(now_ns);
        }
        self.watch_stall(p, now_ns);
    }

    pub(super) fn remove_window(&mut self, id: u32) -> Option<Window> {
        let window = self.windows.remove(id)?;
        self.grants.outstanding_bytes -= window.counted_bytes;
        if window.queued {
            self.grants.queue.retain(|&one| one != id);
        }
        Some(window)
    }

    /// Lets a window wait for grants.
    pub(super) fn enqueue_window(&mut self, id: u32) {
        if let Some(window) = self.windows.get_mut(id)
            && !window.queued
            && window.granted_bytes < window.end_bytes()
        {
            window.queued = true;
            self.grants.queue.push_back(id);
        }
    }

    /// Grants what may come, the windows in turn (receiver-driven, as Homa does it).
    pub(super) fn grant(&mut self, now_ns: u64) {
        let max_bytes = self.config.grant_bytes_max;
        if self.grants.outstanding_bytes + VFRAG_BYTES as u64 > max_bytes {
            // The next that comes makes room.
            return;
        }
        loop {
            let count = self.grants.queue.len().min(GRANTED_AT_ONCE);
            let each_bytes = (max_bytes / count.max(1) as u64).max(2 * VFRAG_BYTES as u64);
            let (mut progress, mut seen) = (false, 0);
            for _ in 0..self.grants.queue.len() {
                let Some(id) = self.grants.queue.pop_front() else { break };
                let Some(window) = self.windows.get_mut(id) else { continue };
                seen += !window.parked as usize;
                // One VFRAG of the sender's cut; the part of another one that is granted already brings nothing.
                let usable_bytes = window.usable_bytes(window.granted_bytes);
                let next_bytes = window.usable_bytes(usable_bytes + window.stride_bytes());
                // An offer may have granted more than its sender turned out to have.
                let chunk = next_bytes.saturating_sub(usable_bytes);
                let room = (window.base as u64 + VFRAGS_MAX as u64) * window.stride_bytes();
                let fits = chunk > 0
                    && window.outstanding_bytes() + chunk <= each_bytes
                    && next_bytes <= room
                    && self.grants.outstanding_bytes + chunk <= max_bytes
                    && !window.parked;
                if fits {
                    progress = true;
                    window.granted_bytes = next_bytes;
                    self.grants.recount(window);
                    self.high.granted_bytes = self.high.granted_bytes.max(self.grants.outstanding_bytes);
                    let p = window.peer as usize;
                    if let Some(active) = self.peers[p].active.as_deref_mut() {
                        active.mark_dirty(id, window);
                        // The first grant starts the transfer; later ones ride on acknowledgements.
                        let first = next_bytes == chunk || window.outstanding_bytes() == chunk;
                        active.acknowledge_soon(now_ns + if first { 0 } else { self.config.ack_delay_ns });
                    }
                    window.heard_ns = window.heard_ns.max(now_ns);
                    self.watch_stall(p, now_ns);
                    self.wake(p);
                }
                let window = self.windows.get_mut(id).expect("just looked at");
                window.queued = window.granted_bytes < window.end_bytes();
                if window.queued {
                    self.grants.queue.push_back(id);
                }
                if seen == GRANTED_AT_ONCE {
                    break;
                }
            }
            if !progress {
                return;
            }
        }
    }

    /// Makes sure that a window that stands still is noticed.
    fn watch_stall(&mut self, p: usize, now_ns: u64) {
        let peer = &mut self.peers[p];
        let memory = &peer.rails[0];
        let Some(active) = peer.active.as_deref_mut() else { return };
        if active.stall_ns == u64::MAX {
            let patience_ns = memory.rtt.timeout_ns(self.config.rtt_initial_ns) + self.config.ack_delay_ns;
            let least_ns = 2 * patience_ns.max(self.config.timeout_min_ns);
            active.stall_wait_ns = active.stall_wait_ns.max(least_ns).min(self.config.timeout_max_ns / 8);
            active.stall_ns = now_ns + active.stall_wait_ns;
        }
    }

    /// Tells again of windows that stand still, and stops counting what was granted there.
    pub(super) fn stalled(&mut self, p: usize, now_ns: u64) {
        let alive = self.peers[p].alive();
        let Some(active) = self.peers[p].active.as_deref_mut() else { return };
        active.stall_ns = u64::MAX;
        let wait_ns = active.stall_wait_ns;
        let (mut open, mut told) = (false, 0);
        for &id in &active.windows {
            let Some(window) = self.windows.get_mut(id) else { continue };
            if window.transfer == 0 || window.outstanding_bytes() == 0 || window.granted_bytes == 0 {
                continue;
            }
            open = true;
            if now_ns >= window.heard_ns + wait_ns && told < STALLED_MAX {
                told += 1;
                window.heard_ns = now_ns;
                window.parked = true;
                self.grants.recount(window);
                if !window.dirty {
                    window.dirty = true;
                    active.dirty.push_back(id);
                }
            }
        }
        if told > 0 {
            active.stall_wait_ns = (wait_ns * 2).min(self.config.timeout_max_ns / 8);
            // A rail that has not answered before may be dead; where another one answers, the next news goes there.
            active.pings |= if active.pinged { alive } else { 1 << active.ack_rail };
            active.acknowledge_soon(now_ns);
        }
        if open {
            self.watch_stall(p, now_ns);
        }
        if told > 0 {
            // The others may have what it left.
            self.grant(now_ns);
        }
    }

    /// The frame of the window that is `at` in the list of those to be told of.
    pub(super) fn dirty_frame(&self, p: usize, at: usize) -> Option<Option<wire::Window>> {
        let &id = self.peers[p].active.as_deref()?.dirty.get(at)?;
        Some(self.windows.get(id).map(|window| window.frame(id)))
    }

    pub(super) fn clean(&mut self, p: usize, count: usize) {
        let Some(active) = self.peers[p].active.as_deref_mut() else { return };
        for id in active.dirty.drain(..count) {
            if let Some(window) = self.windows.get_mut(id) {
                window.dirty = false;
            }
        }
    }
}
