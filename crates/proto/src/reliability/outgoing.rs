//! What leaves: messages and transfers over the rails, acknowledgements with them; and what becomes of it.

use super::endpoint::Endpoint;
use super::local_rail::Reference;
use super::peer::{Active, Answering, Outgoing, WaitingKind};
use super::transfer::Transfer;
use super::vfrag::{PACKET_BYTES, Vfrag};
use super::wire::{self, Ack, Class, Data, Frame, Header, Message};
use super::{Cut, MESSAGES_MAX, Outside, RAILS_MAX, SLICES_MAX, SendPath, Sent, Slice, VFRAGS_MAX};
use crate::credits::SHORT_BYTES_MAX;

/// Datagrams after which an acknowledgement leaves, however fast they come.
const ACK_PACKETS_MAX: u64 = 256;

/// Datagrams of a transfer that leave together where it has several rails.
const RUN_SHARED: u32 = 8;

/// Wraps: whether `a` is before `b`.
fn before(a: u32, b: u32) -> bool {
    (a.wrapping_sub(b) as i32) < 0
}

impl Endpoint {
    /// Sends whatever may leave to a peer.
    pub(super) fn pump(&mut self, p: usize, now_ns: u64, outside: &mut impl Outside) {
        if self.peers[p].failed || self.peers[p].active.is_none() {
            return;
        }
        loop {
            self.admit(p, now_ns);
            let Some(active) = self.peers[p].active.as_deref_mut() else { return };
            while let Some(&sequence) = active.ready.front() {
                if let Some(message) = active.message(sequence) {
                    if message.vfrag.pending().is_some() {
                        break;
                    }
                    message.vfrag.queued = false;
                }
                active.ready.pop_front();
            }
            let messages = !active.ready.is_empty();
            let transfer = if messages { None } else { self.next_transfer(p) };
            if !messages && transfer.is_none() {
                if let Some(active) = self.peers[p].active.as_deref_mut() {
                    active.probe = 0;
                }
                break;
            }
            let Some(r) = self.pick(p, now_ns) else { break };
            let sent = match transfer {
                None => match self.first_of_several(p, r, now_ns) {
                    Some(several) => self.emit_segments(p, r, several, now_ns, outside),
                    None => self.emit_messages(p, r, now_ns, outside),
                },
                Some((id, index)) => self.emit_data(p, r, id, index, now_ns, outside),
            };
            if sent {
                let active = self.peers[p].active.as_deref_mut().expect("has just sent");
                active.probe = active.probe.saturating_sub(1);
            }
        }
        self.emit_control(p, now_ns, outside);
        if self.local.iter().any(|rail| rail.busy)
            && let Some(active) = self.peers[p].active.as_deref()
            && (active.has_to_send() || active.pings | active.pongs != 0 || active.ack_ns != u64::MAX)
        {
            self.wake(p);
        }
    }

    /// Numbers messages that have waited, as far as window and credit go. What is short enough to go with its payload is held back for a while where the
    /// receiver has no room for that: one that takes messages makes room soon, and to be asked for each costs both more than that.
    fn admit(&mut self, p: usize, now_ns: u64) {
        let hold_ns = self.others.timeout_ns(0).max(self.config.timeout_min_ns);
        loop {
            let peer = &mut self.peers[p];
            let (segment_bytes, data_segment_bytes) = (peer.segment_bytes(), peer.data_segment_bytes());
            let Some(active) = peer.active.as_deref_mut() else { return };
            if active.messages.len() >= MESSAGES_MAX {
                return;
            }
            let Some(&waiting) = active.waiting.front() else { return };
            let (class, bytes, send) = match waiting.kind {
                WaitingKind::Ready { class, send } => {
                    if !peer.credits.take_header() {
                        return;
                    }
                    (class, 0, send)
                }
                WaitingKind::Send { send, bytes, eager } if eager && (peer.credits.take_eager(bytes) || peer.credits.take_short(bytes)) => {
                    active.held_ns = u64::MAX;
                    (Class::Eager, bytes as u32, Some(send))
                }
                // To fetch it later would cost both more than to wait now; and control packets, which are empty, cannot be fetched.
                WaitingKind::Send { bytes: ..=SHORT_BYTES_MAX, eager: true, .. } => return,
                // Behind a message that is lost no room is made for a while, and headers keep what follows going.
                WaitingKind::Send { eager: true, .. } if !active.is_outrun() && active.holds(now_ns, hold_ns) => return,
                WaitingKind::Send { send, bytes, .. } => {
                    if !peer.credits.take_header() {
                        return;
                    }
                    let Some(transfer) = self.transfers.insert(Transfer::new(p, send, bytes, data_segment_bytes)) else {
                        peer.credits.put_back(0);
                        return;
                    };
                    self.high.transfers = self.high.transfers.max(self.transfers.len());
                    active.transfers.push(transfer);
                    (Class::Request { transfer, bytes }, 0, None)
                }
            };
            active.waiting.pop_front();
            // All segments as long as each other, and their datagrams with them: those of one length leave and arrive
            // together.
            let segments = bytes.div_ceil(segment_bytes);
            let mut vfrag = Vfrag::new(bytes, if segments > 1 { bytes.div_ceil(segments) } else { segment_bytes });
            vfrag.queued = true;
            active.messages.push_back(Outgoing { vfrag, class, envelope: waiting.envelope, send, references: 0 });
            active.ready.push_back(peer.send_next);
            peer.send_next = peer.send_next.wrapping_add(1);
            self.high.messages = self.high.messages.max(active.messages.len());
        }
    }

    /// The transfer whose turn it is, and its VFRAG.
    fn next_transfer(&mut self, p: usize) -> Option<(u32, u32)> {
        let segment_bytes = self.peers[p].data_segment_bytes();
        let active = self.peers[p].active.as_deref_mut()?;
        while let Some(&id) = active.sending.front() {
            if let Some(transfer) = self.transfers.get_mut(id) {
                if let Some(index) = transfer.next(segment_bytes) {
                    return Some((id, index));
                }
                transfer.queued = false;
            }
            active.sending.pop_front();
        }
        None
    }

    /// The rail on which a datagram would arrive first, of those that are answering and may take one; spares only while none of the others answers.
    fn pick(&mut self, p: usize, now_ns: u64) -> Option<usize> {
        let peer = &mut self.peers[p];
        let active = peer.active.as_deref_mut()?;
        let config = &self.config;
        let answering = Answering::of(&peer.rails, &active.rails, peer.spares)?;
        let mut best: Option<usize> = None;
        let cost_ns = |active: &Active, r: usize| active.rails[r].cost_ns(&peer.rails[r], peer.mtu_bytes as u64, config);
        for r in 0..peer.rails.len() {
            let rail = &mut active.rails[r];
            if self.local[r % self.local.len()].busy || !answering.takes(r, rail) {
                continue;
            }
            if active.probe == 0 && (rail.in_flight_bytes >= rail.window_bytes || rail.resume_ns > now_ns) {
                rail.held_back = true;
                rail.waits |= rail.in_flight_bytes < rail.window_bytes;
                continue;
            }
            if best.is_none_or(|best| cost_ns(active, r) < cost_ns(active, best)) {
                best = Some(r);
            }
        }
        best
    }

    fn begin(&mut self, p: usize, r: usize, direct: bool, now_ns: u64) -> Vec<u8> {
        let memory = &mut self.peers[p].rails[r];
        // Never the same number twice, even if the rail turns out to be busy: it makes the authenticator's nonce.
        memory.sent += 1;
        let header = Header {
            direct,
            rail: r as u8,
            source: self.me,
            destination: self.peers[p].id,
            source_epoch: self.epoch,
            destination_epoch: self.peers[p].epoch,
            sent_us: (now_ns / 1000) as u32,
            number: self.peers[p].rails[r].sent,
        };
        let mut out = std::mem::take(&mut self.scratch);
        wire::begin(&mut out, &header);
        out
    }

    /// Adds what there is to tell, if it fits in `room_bytes`; how many windows, or `None` if it does not fit.
    fn write_ack(&mut self, p: usize, out: &mut Vec<u8>, room_bytes: usize) -> Option<(usize, usize)> {
        let peer = &self.peers[p];
        let active = peer.active.as_deref()?;
        let start = out.len();
        let mut ack = Ack { next: peer.deliver_next, released_bytes: peer.released_bytes, widened: peer.widened, ..Ack::default() };
        // The first message ahead is `deliver_next` itself, which cannot be complete.
        for (index, slot) in active.ahead.iter().enumerate() {
            let Some(assembly) = slot else { continue };
            if assembly.is_complete() && index > 0 {
                ack.seen[(index - 1) / 64] |= 1 << ((index - 1) % 64);
            } else {
                let sequence = peer.deliver_next.wrapping_add(index as u32);
                ack.partial.push(wire::PartialMessage { sequence, segments: assembly.segments });
            }
        }
        for echo in self.echoes(p) {
            ack.echoes.push(echo);
        }
        Frame::Ack(&ack).write(out);
        let (mut windows, mut ends) = (0, 0);
        while let Some(&(window, transfer)) = active.done.get(ends) {
            let frame = wire::Window { window, transfer, done: true, ..wire::Window::default() };
            if !append(&Frame::Window(&frame), out, start + room_bytes) {
                break;
            }
            ends += 1;
        }
        // What is told of windows is what the detection of losses goes by: at most as many as its list holds.
        while let Some(frame) = self.dirty_frame(p, windows)
            && windows < wire::PARTIALS_MAX
        {
            if let Some(frame) = frame
                && !append(&Frame::Window(&frame), out, start + room_bytes)
            {
                break;
            }
            windows += 1;
        }
        if out.len() - start > room_bytes {
            out.truncate(start);
            return None;
        }
        Some((windows, ends))
    }

    /// The acknowledgement that `write_ack` wrote has left.
    fn acknowledgement_left(&mut self, p: usize, (windows, ends): (usize, usize), now_ns: u64) {
        self.clean(p, windows);
        let peer = &mut self.peers[p];
        let Some(active) = peer.active.as_deref_mut() else { return };
        active.done.drain(..ends);
        // While much comes, by time: an acknowledgement costs as much as dozens of datagrams that came joined.
        let elapsed_ns = (now_ns - active.acknowledged_ns).max(1);
        let batch = active.ack_packets as u64 * self.config.ack_delay_ns / elapsed_ns;
        active.ack_batch = batch.clamp(self.config.ack_packets as u64, ACK_PACKETS_MAX) as u32;
        active.acknowledged_ns = now_ns;
        active.ack_packets = 0;
        let more = !active.dirty.is_empty() || !active.done.is_empty();
        active.ack_ns = if more { now_ns } else { u64::MAX };
        active.told_released_bytes = peer.released_bytes;
    }

    /// Hands a finished datagram over. False when the rail is busy.
    #[allow(clippy::too_many_arguments)]
    fn transmit(
        &mut self,
        p: usize,
        r: usize,
        mut out: Vec<u8>,
        slices: &[Slice],
        references: impl ExactSizeIterator<Item = Reference>,
        now_ns: u64,
        outside: &mut impl Outside,
    ) -> bool {
        wire::finish(&mut out);
        let at = self.local_of(r);
        let queue_max = self.config.rails[at].queue_packets_max as u32;
        let local = &mut self.local[at];
        let Some((endpoint, _)) = local.take_queue(queue_max) else {
            self.scratch = out;
            return false;
        };
        let route = SendPath { peer: self.peers[p].id, rail: r as u8, endpoint };
        let sent = outside.transmit(route, &mut out, slices);
        self.scratch = out;
        match sent {
            Sent::Busy => {
                self.local[at].busy = true;
                return false;
            }
            Sent::Done => {}
            Sent::Queued => self.queued(p, at, endpoint, references, now_ns),
        }
        self.counters.packets_sent += 1;
        true
    }

    /// Something that wants an answer left.
    fn asked(&mut self, p: usize, r: usize, weight: u64, now_ns: u64) {
        let peer = &mut self.peers[p];
        let Some(active) = peer.active.as_deref_mut() else { return };
        let rail = &mut active.rails[r];
        rail.left(&peer.rails[r], weight, now_ns, &self.config);
        self.high.in_flight_bytes = self.high.in_flight_bytes.max(rail.in_flight_bytes);
        self.high.window_bytes = self.high.window_bytes.max(rail.window_bytes);
        active.unanswered_ns = active.unanswered_ns.min(now_ns);
        active.asked_ns = now_ns;
        active.busy_ns = now_ns;
    }

    /// One datagram of messages, as many as fit.
    fn emit_messages(&mut self, p: usize, r: usize, now_ns: u64, outside: &mut impl Outside) -> bool {
        let mut out = self.begin(p, r, false, now_ns);
        let mtu_bytes = self.peers[p].mtu_bytes as usize;
        let active = self.peers[p].active.as_deref_mut().expect("has messages");
        // The first message always fits; what there is to tell goes with it if that fits, too.
        let first = active.ready.front().copied().and_then(|sequence| active.message(sequence));
        let first_bytes = first.map_or(0, |message| framed(message));
        let mut told = None;
        if active.ack_ns != u64::MAX {
            let room = mtu_bytes.saturating_sub(out.len() + first_bytes);
            told = self.write_ack(p, &mut out, room);
        }
        let active = self.peers[p].active.as_deref_mut().expect("has messages");
        let (mut slices, mut taken) = std::mem::take(&mut self.scratch_lists);
        slices.clear();
        taken.clear();
        let mut payload_bytes = 0;
        while let Some(&sequence) = active.ready.front()
            && taken.len() < SLICES_MAX
        {
            let base = active.base;
            let Some(message) = active.messages.get_mut(sequence.wrapping_sub(base) as usize) else {
                active.ready.pop_front();
                continue;
            };
            let Some(segment) = message.vfrag.pending() else {
                message.vfrag.queued = false;
                active.ready.pop_front();
                continue;
            };
            if out.len() + payload_bytes + framed(message) > mtu_bytes {
                break;
            }
            let (start, length) = message.vfrag.range(segment);
            let frame = Message {
                sequence,
                class: message.class,
                total_bytes: message.vfrag.bytes(),
                segment,
                segment_bytes: message.vfrag.segment_bytes() as u16,
                envelope: if segment == 0 { message.envelope.as_slice() } else { &[] },
            };
            Frame::Message(frame).write(&mut out);
            payload_bytes += length as usize;
            if length > 0 {
                let send = message.send.unwrap_or(0);
                slices.push(Slice { send, offset_bytes: start as u64, length_bytes: length });
            }
            taken.push((sequence, segment));
            active.ready.pop_front();
        }
        let references = taken.iter().map(|&(sequence, _)| Reference::Message(sequence));
        let sent = self.transmit(p, r, out, &slices, references, now_ns, outside);
        let active = self.peers[p].active.as_deref_mut().expect("has messages");
        let mut weight = 0;
        for &(sequence, segment) in taken.iter().rev() {
            let Some(message) = active.message(sequence) else { continue };
            if sent {
                let (added, again) = message.vfrag.sent(segment, 1, r, now_ns);
                weight += added;
                self.counters.segments_again += again as u64;
                message.vfrag.queued = message.vfrag.pending().is_some();
            }
            if message.vfrag.queued {
                active.ready.push_front(sequence);
            }
        }
        self.scratch_lists = (slices, taken);
        if !sent {
            return false;
        }
        if let Some(told) = told {
            self.acknowledgement_left(p, told, now_ns);
        }
        self.asked(p, r, weight, now_ns);
        true
    }

    /// The next message, where two or more of its segments that follow each other may leave on a rail now: the first of
    /// them, and how many.
    fn first_of_several(&self, p: usize, r: usize, now_ns: u64) -> Option<(u8, u32)> {
        let peer = &self.peers[p];
        let active = peer.active.as_deref()?;
        let message = active.messages.get(active.ready.front()?.wrapping_sub(active.base) as usize)?;
        if message.vfrag.segments() < 2 || active.probe > 0 {
            return None;
        }
        let segment = message.vfrag.pending()?;
        let count = message.vfrag.run(segment, u32::MAX).min(self.room(p, r, message.vfrag.segment_bytes(), now_ns));
        (count > 1).then_some((segment, count))
    }

    /// How many datagrams with `payload_bytes` may leave together on a rail, of which the last may go past window and
    /// pace.
    fn room(&self, p: usize, r: usize, payload_bytes: u32, now_ns: u64) -> u32 {
        let peer = &self.peers[p];
        let Some(active) = peer.active.as_deref() else { return 1 };
        let room_bytes = active.rails[r].room_bytes(&peer.rails[r], now_ns, &self.config);
        // Where there are several rails, each gets some in turn.
        let most = if peer.own_rails() > 1 { RUN_SHARED } else { u32::MAX };
        most.min(1 + (room_bytes / (PACKET_BYTES + payload_bytes as u64)) as u32)
    }

    /// Segments of the next message that follow each other, each in a datagram of its own: `count` of them from
    /// `segment` on.
    fn emit_segments(&mut self, p: usize, r: usize, (segment, count): (u8, u32), now_ns: u64, outside: &mut impl Outside) -> bool {
        let mut out = self.begin(p, r, false, now_ns);
        let mtu_bytes = self.peers[p].mtu_bytes as usize;
        let active = self.peers[p].active.as_deref_mut().expect("has a message");
        let sequence = active.ready.front().copied().expect("has a message");
        let mut told = None;
        if active.ack_ns != u64::MAX {
            let room = mtu_bytes.saturating_sub(out.len() + active.message(sequence).map_or(0, |message| framed(message)));
            told = self.write_ack(p, &mut out, room);
        }
        let mut next = std::mem::take(&mut self.scratch_next);
        let active = self.peers[p].active.as_deref_mut().expect("has a message");
        let message = active.message(sequence).expect("has just been found");
        let (start, length) = message.vfrag.range(segment);
        let (total_bytes, segment_bytes) = (message.vfrag.bytes(), message.vfrag.segment_bytes());
        let streams = message.vfrag.streams(&self.making, total_bytes as u64, now_ns);
        let frame =
            |segment, envelope| Frame::Message(Message { sequence, class: message.class, total_bytes, segment, segment_bytes: segment_bytes as u16, envelope });
        frame(segment, if segment == 0 { message.envelope.as_slice() } else { &[] }).write(&mut out);
        next.clear();
        next.extend_from_slice(&out[..wire::HEADER_BYTES]);
        frame(segment, &[]).write(&mut next);
        wire::finish(&mut next);
        wire::advance_message(&mut next);
        let length_bytes = (count * segment_bytes).min(total_bytes - start);
        let whole = Slice { send: message.send.unwrap_or(0), offset_bytes: start as u64, length_bytes };
        let reference = Reference::Message(sequence);
        let fitting_bytes = out.len() + segment_bytes as usize;
        let whole_bytes = fitting_bytes.next_multiple_of(wire::STEP_BYTES);
        let each_bytes = if streams && whole_bytes <= mtu_bytes { whole_bytes } else { fitting_bytes };
        let cut = Cut { segment_bytes, count, each_bytes, streams };
        let run = self.transmit_run(p, r, reference, (&mut out, Some(&mut next)), &whole, cut, now_ns, outside);
        self.scratch_next = next;
        let alone = Slice { length_bytes: length, ..whole };
        let taken = self.run_or_alone(p, r, run, out, alone, reference, now_ns, outside);
        if taken == 0 {
            return false;
        }
        let active = self.peers[p].active.as_deref_mut().expect("has a message");
        let message = active.message(sequence).expect("has just been found");
        let (weight, again) = message.vfrag.sent(segment, taken, r, now_ns);
        message.vfrag.queued = message.vfrag.pending().is_some();
        if !message.vfrag.queued {
            active.ready.pop_front();
        }
        self.counters.segments_again += again as u64;
        if let Some(told) = told {
            self.acknowledgement_left(p, told, now_ns);
        }
        self.asked(p, r, weight, now_ns);
        true
    }

    /// Segments of a transfer that follow each other, as many as may leave.
    fn emit_data(&mut self, p: usize, r: usize, id: u32, index: u32, now_ns: u64, outside: &mut impl Outside) -> bool {
        let mut out = self.begin(p, r, true, now_ns);
        let mtu_bytes = self.peers[p].mtu_bytes as usize;
        let transfer = self.transfers.get_mut(id).expect("has just been found");
        let (send, window) = (transfer.send, transfer.window);
        let bytes = transfer.bytes;
        let vfrag = transfer.vfrag(index).expect("has just been found");
        let streams = vfrag.streams(&self.making, bytes, now_ns);
        let segment = vfrag.pending().expect("has just been found");
        let (start, length) = vfrag.range(segment);
        let data = Data { window, vfrag: index, vfrag_bytes: vfrag.bytes(), segment, segment_bytes: vfrag.segment_bytes() as u16 };
        let offset_bytes = data.offset_bytes();
        let ready = vfrag.run(segment, u32::MAX);
        debug_assert_eq!(offset_bytes, index as u64 * transfer.stride_bytes as u64 + start as u64);
        let mut told = None;
        if self.peers[p].active.as_deref().is_some_and(|active| active.ack_ns != u64::MAX) {
            let room = mtu_bytes - (out.len() + wire::DATA_BYTES + length as usize);
            told = self.write_ack(p, &mut out, room);
        }
        let mut count = 1;
        if told.is_none() && self.peers[p].active.as_deref().is_some_and(|active| active.probe == 0) {
            count = ready.min(self.room(p, r, length, now_ns));
        }
        Frame::Data(data).write(&mut out);
        debug_assert!(out.len() + length as usize <= mtu_bytes);
        let end = data.vfrag_bytes.min(start + count * data.segment_bytes as u32);
        let whole = Slice { send, offset_bytes, length_bytes: end - start };
        let reference = Reference::Transfer(id);
        let segment_bytes = data.segment_bytes as u32;
        let cut = Cut { segment_bytes, count, each_bytes: out.len() + segment_bytes as usize, streams };
        let run = if told.is_none() { self.transmit_run(p, r, reference, (&mut out, None), &whole, cut, now_ns, outside) } else { None };
        let alone = Slice { length_bytes: length, ..whole };
        let taken = self.run_or_alone(p, r, run, out, alone, reference, now_ns, outside);
        if taken == 0 {
            return false;
        }
        let transfer = self.transfers.get_mut(id).expect("has just been found");
        let vfrag = transfer.vfrag(index).expect("has just been found");
        let (weight, again) = vfrag.sent(segment, taken, r, now_ns);
        self.counters.segments_again += again as u64;
        if vfrag.pending().is_none() {
            vfrag.queued = false;
            transfer.ready.pop_front();
            // The next VFRAG is another transfer's.
            let active = self.peers[p].active.as_deref_mut().expect("has a transfer");
            active.sending.rotate_left(1);
        }
        if let Some(told) = told {
            self.acknowledgement_left(p, told, now_ns);
        }
        self.asked(p, r, weight, now_ns);
        true
    }

    /// How many segments have left: what [`Endpoint::transmit_run`] says in `run`, or where it wants them one by one, the first one `alone`.
    #[allow(clippy::too_many_arguments)]
    fn run_or_alone(
        &mut self,
        p: usize,
        r: usize,
        run: Option<u32>,
        out: Vec<u8>,
        alone: Slice,
        reference: Reference,
        now_ns: u64,
        outside: &mut impl Outside,
    ) -> u32 {
        match run {
            Some(taken) => {
                self.scratch = out;
                taken
            }
            None => self.transmit(p, r, out, &[alone], std::iter::once(reference), now_ns, outside) as u32,
        }
    }

    /// Hands `count` finished datagrams of a transfer over, of which `out` is the first, or of a message, whose second
    /// begins with `next`; how many were taken, or `None` where they go one by one.
    #[allow(clippy::too_many_arguments)]
    fn transmit_run(
        &mut self,
        p: usize,
        r: usize,
        reference: Reference,
        (out, next): (&mut [u8], Option<&mut [u8]>),
        payload: &Slice,
        cut: Cut,
        now_ns: u64,
        outside: &mut impl Outside,
    ) -> Option<u32> {
        wire::finish(out);
        let at = self.local_of(r);
        let next_queue = self.local[at].next_queue;
        let Some((endpoint, room)) = self.local[at].take_queue(self.config.rails[at].queue_packets_max as u32) else { return Some(0) };
        let route = SendPath { peer: self.peers[p].id, rail: r as u8, endpoint };
        let fitting = cut.count.min(room);
        let cut = Cut { count: fitting, ..cut };
        let part = Slice { length_bytes: payload.length_bytes.min(fitting * cut.segment_bytes), ..*payload };
        // What an answer has acknowledged may not have been looked at yet.
        let lone = self.peers[p].active.as_deref().is_some_and(|active| active.messages.len() <= 2);
        let taken = match next {
            Some(next) if fitting > 1 => outside.transmit_message(route, (out, next), &part, cut, lone),
            Some(_) => None,
            None => outside.transmit_run(route, out, &part, cut),
        };
        let Some(taken) = taken else {
            self.local[at].next_queue = next_queue;
            return None;
        };
        self.local[at].busy |= taken.datagrams < fitting;
        if taken.queued {
            for _ in 0..taken.datagrams {
                self.queued(p, at, endpoint, std::iter::once(reference), now_ns);
            }
        }
        // `begin` has counted the first.
        self.peers[p].rails[r].sent += fitting as u64 - 1;
        self.counters.packets_sent += taken.datagrams as u64;
        Some(taken.datagrams)
    }

    /// Signs of life, and acknowledgements that found nothing to ride on.
    fn emit_control(&mut self, p: usize, now_ns: u64, outside: &mut impl Outside) {
        for r in 0..self.peers[p].rails.len() {
            let Some(active) = self.peers[p].active.as_deref() else { return };
            let (ping, pong) = (active.pings >> r & 1 == 1, active.pongs >> r & 1 == 1);
            if (ping || pong) && !self.local[self.local_of(r)].busy {
                self.emit_bare(p, r, ping, pong, now_ns, outside);
            }
        }
        // Each datagram tells of a limited number of windows.
        loop {
            let peer = &self.peers[p];
            let Some(active) = peer.active.as_deref() else { return };
            if active.ack_ns > now_ns {
                return;
            }
            let usable = |&r: &usize| !self.local[self.local_of(r)].busy;
            let preferred = active.ack_rail as usize;
            let alive = |&r: &usize| !peer.rails[r].dead;
            let rails = std::iter::once(preferred).chain((0..peer.rails.len()).filter(|&r| r != preferred));
            // If all are dead, the one that has brought something is not quite.
            let Some(r) = rails.filter(alive).find(usable).or(Some(preferred).filter(usable)) else { return };
            self.emit_bare(p, r, false, false, now_ns, outside);
        }
    }

    fn emit_bare(&mut self, p: usize, r: usize, ping: bool, pong: bool, now_ns: u64, outside: &mut impl Outside) -> bool {
        let mut out = self.begin(p, r, false, now_ns);
        let room = self.peers[p].mtu_bytes as usize - out.len() - 2;
        if ping {
            Frame::Ping.write(&mut out);
        }
        if pong {
            Frame::Pong.write(&mut out);
        }
        let told = self.write_ack(p, &mut out, room);
        if !self.transmit(p, r, out, &[], std::iter::empty(), now_ns, outside) {
            return false;
        }
        self.counters.control_sent += 1;
        if let Some(told) = told {
            self.acknowledgement_left(p, told, now_ns);
        }
        let Some(active) = self.peers[p].active.as_deref_mut() else { return true };
        if told.is_some_and(|(_, ends)| ends > 0) && now_ns >= active.ended_ns + self.config.ack_long_ns {
            active.replies = false;
        }
        active.pongs &= !((pong as u8) << r);
        active.pings &= !((ping as u8) << r);
        if ping {
            active.pinged = true;
            active.rails[r].last_sent_ns = now_ns;
            active.unanswered_ns = active.unanswered_ns.min(now_ns);
            active.asked_ns = now_ns;
        }
        true
    }

    /// Takes in what the peer says of our messages.
    /// `ack_sent_us`: when it left, by the peer's clock.
    pub(super) fn acknowledged(&mut self, p: usize, ack: &Ack, ack_sent_us: u32, now_ns: u64, outside: &mut impl Outside) {
        let config = &self.config;
        let peer = &mut self.peers[p];
        let Some(active) = peer.active.as_deref_mut() else { return };
        for echo in ack.echoes.as_slice() {
            let r = echo.rail as usize;
            if r >= active.rails.len() {
                continue;
            }
            // The sending time had its high bits cut off; it cannot be in the future.
            let age_us = ((now_ns / 1000) as u32).wrapping_sub(echo.sent_us);
            let sent_ns = (now_ns / 1000).saturating_sub(age_us as u64) * 1000;
            let rail = &mut active.rails[r];
            if sent_ns > rail.arrived_sent_ns {
                let delay_us = ack_sent_us.wrapping_sub(echo.came_us);
                let rtt_ns = (now_ns - sent_ns).saturating_sub(delay_us as u64 * 1000);
                if !echo.late {
                    rail.forward_took(echo.came_us.wrapping_sub(echo.sent_us));
                }
                rail.answered(&mut peer.rails[r], sent_ns, rtt_ns, now_ns, config);
                self.others.sample(rtt_ns);
                active.unanswered_ns = u64::MAX;
                active.pinged = false;
            }
        }
        let before_bytes = peer.credits.outstanding_bytes();
        if peer.credits.released(ack.released_bytes) && peer.credits.outstanding_bytes() < before_bytes {
            active.ask_wait_ns = config.keepalive_ns;
            (active.blocked, active.impatient, active.held_ns) = (false, false, u64::MAX);
        }
        while ack.widened.wrapping_sub(peer.widened_by_peer) as i8 > 0 {
            peer.widened_by_peer = peer.widened_by_peer.wrapping_add(1);
            peer.credits.widen();
            active.impatient = true;
        }
        if before(ack.next, active.base) {
            // Overtaken by a newer one.
            return;
        }
        if before(peer.send_next, ack.next) {
            self.counters.refused_frames += 1;
            return;
        }
        let first_open = ack.next.wrapping_sub(active.base) as usize;
        let words = ack.seen.iter().rposition(|&word| word != 0).map_or(0, |last| last + 1);
        let end = (first_open + 1 + words * 64).min(active.messages.len());
        let rails = &mut active.rails;
        for (index, message) in active.messages.iter_mut().take(end).enumerate() {
            let seen = match index.checked_sub(first_open) {
                None => true,
                Some(0) => false,
                Some(bit) => ack.seen[(bit - 1) / 64] >> ((bit - 1) % 64) & 1 == 1,
            };
            if seen && !message.vfrag.is_acked() {
                let arrived = message.vfrag.acknowledge_all();
                credit_rails(rails, arrived, config, &mut self.counters.segments_needless);
                message.vfrag.arrived(&mut self.making, now_ns);
                message.end_if_whole(outside);
            }
        }
        for partial in ack.partial.as_slice() {
            let index = partial.sequence.wrapping_sub(active.base) as usize;
            if let Some(message) = active.messages.get_mut(index)
                && !message.vfrag.is_acked()
            {
                let arrived = message.vfrag.acknowledge(partial.segments);
                credit_rails(rails, arrived, config, &mut self.counters.segments_needless);
                message.end_if_whole(outside);
            }
        }
        active.retire();
        // A sender without room asks for news, ever less often: the word of it may have been lost.
        if !active.waiting.is_empty() && active.messages.is_empty() && !active.blocked {
            active.blocked = true;
            active.ask_wait_ns = config.timeout_min_ns * 2;
        }
    }

    /// Takes in a grant and what it acknowledges; the transfer, if it goes on.
    pub(super) fn window(&mut self, p: usize, window: &wire::Window, now_ns: u64, outside: &mut impl Outside) -> Option<u32> {
        let active = self.peers[p].active.as_deref_mut()?;
        let id = if window.transfer != 0 {
            window.transfer
        } else {
            let mut all = active.transfers.iter().copied();
            all.find(|&id| self.transfers.get(id).is_some_and(|one| one.window == window.window))?
        };
        let transfer = self.transfers.get_mut(id)?;
        if transfer.peer as usize != p || (transfer.window != 0 && transfer.window != window.window) {
            self.counters.refused_frames += 1;
            return None;
        }
        if window.done {
            self.finish_transfer(p, id, now_ns, outside);
            return None;
        }
        let sent_vfrags = transfer.base as u64 + transfer.vfrags.len() as u64;
        if window.base as u64 > sent_vfrags {
            self.counters.refused_frames += 1;
            return None;
        }
        transfer.open(window.window, window.granted_bytes);
        if window.last {
            transfer.bytes = transfer.bytes.min(window.granted_bytes);
        }
        let rails = &mut active.rails;
        for (index, vfrag) in transfer.vfrags.iter_mut().enumerate() {
            let number = transfer.base + index as u32;
            let seen = match number.checked_sub(window.base) {
                None => true,
                Some(bit) => bit < VFRAGS_MAX as u32 && window.complete >> bit & 1 == 1,
            };
            if seen && !vfrag.is_acked() {
                credit_rails(rails, vfrag.acknowledge_all(), &self.config, &mut self.counters.segments_needless);
            }
        }
        for partial in window.partial.as_slice() {
            let number = window.base + partial.index as u32;
            if let Some(vfrag) = transfer.vfrag(number)
                && vfrag.segment_bytes() == partial.segment_bytes as u32
            {
                let arrived = vfrag.acknowledge(partial.segments);
                credit_rails(rails, arrived, &self.config, &mut self.counters.segments_needless);
            }
        }
        while let Some(vfrag) = transfer.vfrags.front().filter(|vfrag| vfrag.is_acked()) {
            vfrag.arrived(&mut self.making, now_ns);
            transfer.vfrags.pop_front();
            transfer.base += 1;
        }
        if transfer.base as u64 * transfer.stride_bytes as u64 >= transfer.bytes {
            self.finish_transfer(p, id, now_ns, outside);
            return None;
        }
        self.schedule_transfer(p, id);
        Some(id)
    }

    /// Puts a transfer among those of which something should leave.
    pub(super) fn schedule_transfer(&mut self, p: usize, id: u32) {
        let Some(active) = self.peers[p].active.as_deref_mut() else { return };
        if let Some(transfer) = self.transfers.get_mut(id)
            && transfer.window != 0
            && !std::mem::replace(&mut transfer.queued, true)
        {
            active.sending.push_back(id);
        }
    }

    /// All that was wanted has arrived.
    pub(super) fn finish_transfer(&mut self, p: usize, id: u32, now_ns: u64, outside: &mut impl Outside) {
        let Some(transfer) = self.transfers.get_mut(id).filter(|one| one.peer as usize == p) else { return };
        let Some(active) = self.peers[p].active.as_deref_mut() else { return };
        if !std::mem::replace(&mut transfer.done, true) {
            for vfrag in &mut transfer.vfrags {
                credit_rails(&mut active.rails, vfrag.acknowledge_all(), &self.config, &mut self.counters.segments_needless);
                vfrag.arrived(&mut self.making, now_ns);
            }
            transfer.ready.clear();
        }
        if transfer.references > 0 {
            return;
        }
        let send = transfer.send;
        self.transfers.remove(id);
        if let Some(at) = active.transfers.iter().position(|&one| one == id) {
            active.transfers.swap_remove(at);
        }
        outside.complete(send, Ok(()));
    }
}

impl Outgoing {
    /// Ends its send once all has arrived and nothing refers to its payload.
    pub(super) fn end_if_whole(&mut self, outside: &mut impl Outside) {
        if self.references == 0
            && self.vfrag.is_acked()
            && let Some(send) = self.send.take()
        {
            outside.complete(send, Ok(()));
        }
    }
}

/// Bytes that the next segment of a message takes in a datagram.
fn framed(message: &Outgoing) -> usize {
    let segment = message.vfrag.pending().unwrap_or(0);
    let envelope = if segment == 0 { message.envelope.as_slice().len() } else { 0 };
    wire::MESSAGE_BYTES_MAX + envelope + message.vfrag.range(segment).1 as usize
}

/// Writes a frame unless it would end past `end`.
fn append(frame: &Frame, out: &mut Vec<u8>, end: usize) -> bool {
    let before = out.len();
    frame.write(out);
    let fits = out.len() <= end;
    if !fits {
        out.truncate(before);
    }
    fits
}

fn credit_rails(rails: &mut [super::rail::Rail], (weights, needless): ([u64; RAILS_MAX], bool), config: &super::Config, counter: &mut u64) {
    *counter += needless as u64;
    for (rail, weight) in rails.iter_mut().zip(weights) {
        if weight > 0 {
            rail.acked(weight, config);
        }
    }
}
