//! Progress: what has come goes to the machine, what waits is sent, copies go on.

use crate::buffer::Body;
use crate::helper::{Helper, Task};
use crate::pieces::Remote;
use crate::state::{HELP, Machine};
use crate::{Engine, Fault, remote, wait};
use fabric::Fabric;
use fabric::local::{Begun, Long, Packet, SharedBytes};
use proto::p2p::{DataPath, RequestId};
use proto::wire::{self, Kind};
use std::sync::Arc;
use trace::now_ns;

/// Packets dealt with before other work gets its turn.
const PACKETS_PER_TURN: usize = 64;
/// Shortest copy that waking the helper may pay for.
const HELP_BYTES_MIN: usize = 128 << 10;

/// Of a piece that is timed, no more than one part in so many is there when it is first seen: the sender's time counts as well.
const TIMED_FROM: usize = 4;

/// Does what can be done now, with at most so many packets of shared memory, and no more than [`PACKETS_PER_TURN`]. Returns whether anything moved.
#[inline]
fn progress(machine: &mut Machine, packets: usize) -> Result<bool, Fault> {
    let mut moved = false;
    let before = machine.events();
    for _ in 0..packets.min(PACKETS_PER_TURN) {
        let Some(local) = &mut machine.memory else { break };
        match &local.receive() {
            Ok(Some(packet)) if packet.taken.is_long => {
                let completions = machine.completions();
                match handle_beside(machine, packet) {
                    Ok(did) => moved |= did,
                    Err(fault) => return Err(machine.break_down(fault)),
                }
                // Whoever has waited for this message may be about to post the receive of the next, which would be copied once more before that.
                if machine.completions() != completions {
                    break;
                }
            }
            Ok(Some(packet)) => match handle(machine, packet) {
                Ok(()) => moved = true,
                Err(fault) => return Err(machine.break_down(fault)),
            },
            Ok(None) => break,
            Err(error @ fabric::Error::Peer { peer, .. }) => machine.unreached(*peer, error.clone())?,
            Err(error) => return Err(machine.break_down(error.clone().into())),
        }
    }
    if machine.network.is_some() {
        moved |= remote::look(machine)?;
    }
    if machine.postponed
        && let Err(fault) = machine.try_postponed()
    {
        return Err(machine.break_down(fault));
    }
    if !machine.settled() {
        if machine.worker.absences.away() {
            machine.worker.absences.back(now_ns());
        }
        match machine.advance() {
            Ok(did) => moved |= did,
            Err(fault) => return Err(machine.break_down(fault)),
        }
    }
    if let Some(siblings) = machine.worker.siblings {
        siblings.shared().attend(machine.worker.vci);
    }
    if (machine.worker.asleep > 0 || machine.worker.siblings.is_some()) && machine.events() != before {
        wait::wake_threads(machine);
    }
    Ok(moved)
}

/// Makes progress in a call that does not wait: peers are told as long as it copies, and no longer.
pub(crate) fn look(machine: &mut Machine) -> Result<bool, Fault> {
    if machine.worker.blocked {
        return progress(machine, PACKETS_PER_TURN);
    }
    let said = machine.worker.costs.is_waiting();
    machine.worker.blocked = true;
    let moved = progress(machine, PACKETS_PER_TURN);
    machine.worker.blocked = false;
    if !said && machine.worker.costs.is_waiting() {
        wait::say_waiting(machine, false);
    }
    moved
}

/// Deals with a packet whose bytes lie in its slot.
#[inline]
fn handle(machine: &mut Machine, packet: &Packet) -> Result<(), Fault> {
    // The way of most messages: a short one, whose receive is posted or not.
    let taken = &packet.taken;
    let (head, words, bytes) = (taken.head, &taken.words, taken.inline_bytes);
    if !machine.arrive_quickly(packet.peer, head, words, bytes)? && !machine.arrive_synchronous(packet.peer, head, words, bytes)? {
        handle_other(machine, packet, None)?;
    }
    machine.memory.as_mut().expect("the packet came through it").release(packet);
    Ok(())
}

/// Words before the body of a message of some kind.
fn own_words(kind: Kind) -> Option<usize> {
    match kind {
        Kind::Eager => Some(0),
        Kind::EagerSync => Some(1),
        Kind::Data | Kind::Piece => Some(2),
        _ => None,
    }
}

#[inline(never)]
fn handle_other(machine: &mut Machine, packet: &Packet, in_ring: Option<Body>) -> Result<(), Fault> {
    let taken = &packet.taken;
    let good = match wire::parse(taken.head) {
        None => false,
        Some((kind, envelope)) => {
            let whole = if taken.is_long { 4 } else { taken.inline_bytes / 8 };
            // Where the body lies in the line, it follows the words of its kind.
            let own = own_words(kind).unwrap_or(taken.inline_bytes / 8);
            let (body, path) = match in_ring {
                Some(body) => (body, DataPath::Eager),
                None => (Body::of([(taken.words[own..].as_ptr().cast(), taken.inline_bytes.saturating_sub(8 * own)), Body::NOTHING]), DataPath::Inline),
            };
            machine.arrive(packet.peer, kind, envelope, &taken.words[..own.min(whole)], &body, path)?
        }
    };
    if !good {
        machine.refused(packet.peer);
    }
    Ok(())
}

/// All of a body that is there.
#[inline]
fn all_of(long: &Long<SharedBytes>) -> Body {
    let (a, b) = &long.parts;
    Body::in_ring([(a.as_ptr(), a.len()), (b.as_ptr(), b.len())], long.is_read_from_end())
}

/// Bytes of a body from `from` on, up to which it has been taken, as many as are there.
fn rest(long: &Long<SharedBytes>, from: usize) -> Body {
    let ((a, b), to) = (&long.parts, long.present_bytes);
    let of = |area: &SharedBytes, before: usize| {
        let (from, to) = (from.saturating_sub(before).min(area.len()), to.saturating_sub(before).min(area.len()));
        (area.as_ptr().wrapping_add(from), to - from)
    };
    Body::in_ring([of(a, 0), of(b, a.len())], long.is_read_from_end())
}

/// Deals with a message whose body lies beside the slots. Whether anything of it has come.
#[inline(never)]
fn handle_beside(machine: &mut Machine, packet: &Packet) -> Result<bool, Fault> {
    let memory = machine.memory.as_ref().expect("the packet came through it");
    // The way of most: all of it is there.
    let Some(body) = memory.whole(packet).map(all_of) else { return handle_long(machine, packet) };
    if !machine.arrive_quickly_beside(packet.peer, packet.taken.head, &body)? {
        handle_other(machine, packet, Some(body))?;
    }
    machine.memory.as_mut().expect("the packet came through it").release(packet);
    Ok(true)
}

/// Deals with a message whose body lies beside the slots, of which some has come while its sender writes the rest. Whether anything has.
#[inline(never)]
fn handle_long(machine: &mut Machine, packet: &Packet) -> Result<bool, Fault> {
    let memory = machine.memory.as_ref().expect("the packet came through it");
    let (long, begun) = memory.long(packet).expect("it is long");
    // Who has pieces of its own to put in does that first: two that follow each other's pieces by turns take twice as long.
    if !long.is_whole() && machine.puts_pieces() {
        release_or_put_off(machine, packet, &long, begun);
        return Ok(false);
    }
    let taken = &packet.taken;
    let (peer, present, bytes) = (packet.peer, long.present_bytes, long.parts.0.len() + long.parts.1.len());
    let parsed = wire::parse(taken.head);
    // A piece of a copy that both do: of which, and which piece.
    let piece = matches!(parsed, Some((Kind::Piece, _))).then_some((taken.words[0], taken.words[1]));
    let started = match (piece, begun, parsed) {
        (None, Some(begun), _) => Some((RequestId::from_raw(begun.token), begun.done_bytes, 0)),
        (Some((receiver, word)), Some(begun), _) => machine.begin_piece(peer, receiver, word, bytes, false).map(|(id, at)| (id, begun.done_bytes, at)),
        (Some((receiver, word)), None, _) => machine.begin_piece(peer, receiver, word, bytes, TIMED_FROM * present <= bytes).map(|(id, at)| (id, 0, at)),
        (None, None, Some((Kind::Eager | Kind::EagerSync, envelope))) => machine.begin_bytes(peer, envelope, bytes)?.map(|id| (id, 0, 0)),
        (None, None, _) => None,
    };
    let Some((id, done, at)) = started else {
        // Nothing is known to be done with it before all of it is there.
        if long.is_whole() {
            handle_other(machine, packet, Some(all_of(&long)))?;
        }
        release_or_put_off(machine, packet, &long, None);
        return Ok(long.is_whole());
    };
    let (mut long, mut placed) = (long, done);
    loop {
        if long.present_bytes > placed {
            machine.more_bytes(id, at + placed, &rest(&long, placed));
            placed = long.present_bytes;
        }
        if long.is_whole() {
            break;
        }
        let memory = machine.memory.as_mut().expect("the packet came through it");
        let Some(more) = memory.await_more(packet) else { break };
        long = more;
    }
    if long.is_whole()
        && let Some((receiver, word)) = piece
    {
        machine.end_piece(peer, receiver, word, bytes)?;
    } else if long.is_whole() {
        let request = matches!(parsed, Some((Kind::EagerSync, _))).then_some(taken.words[0]);
        machine.end_bytes(peer, id, bytes, request, DataPath::Eager)?;
    }
    release_or_put_off(machine, packet, &long, Some(Begun { token: id.to_raw(), done_bytes: placed }));
    Ok(placed > done || long.is_whole())
}

fn release_or_put_off(machine: &mut Machine, packet: &Packet, long: &Long<SharedBytes>, begun: Option<Begun>) {
    let memory = machine.memory.as_mut().expect("the packet came through it");
    match long.is_whole() {
        true => memory.release(packet),
        false => memory.put_off(packet, long.present_bytes, begun),
    }
}

impl Engine {
    /// Does what can be done now. Returns whether anything moved.
    #[inline]
    pub fn progress(&mut self) -> Result<bool, Fault> {
        self.progress_by(PACKETS_PER_TURN)
    }

    /// As [`Engine::progress`], with at most so many packets of shared memory: to look whether another one is there takes a transfer between cores where its sender
    /// writes just now.
    #[inline]
    pub(crate) fn progress_by(&mut self, packets: usize) -> Result<bool, Fault> {
        let moved = progress(&mut *self, packets)?;
        if self.worker.service.is_some() {
            return Ok(self.serve()? | moved);
        }
        Ok(moved)
    }

    /// The quick way of a look in vain, for a program that asks whether something is complete that is not: nothing has come, and a look would do nothing
    /// else. `false`: that is not certain, and nothing has been done.
    #[inline(always)]
    pub fn looks_in_vain(&mut self) -> bool {
        let alone = self.worker.siblings.is_none() && self.worker.service.is_none() && !self.worker.waiting.oversubscribed;
        let in_vain = alone && self.idle() && self.memory.as_ref().is_some_and(|memory| memory.is_silent());
        if in_vain {
            self.polled(false);
        }
        in_vain
    }

    /// The program leaves MPI with copies under way: a helper takes part in them where a core is idle.
    #[inline]
    pub fn leave(&mut self) {
        let (copies, out) = self.copies();
        if copies > 0 && self.worker.config.help && self.worker.absences.leave(copies, out, now_ns()) {
            ask_for_help(self);
        }
    }

    /// Where this process can only wait for pieces that others have claimed, and its helper copies one: what that can be awaited by.
    pub(crate) fn helped(&self) -> Option<Arc<crate::helper::Shared>> {
        if self.stuck() { self.worker.helper.as_ref()?.busy() } else { None }
    }
}

#[inline(never)]
fn ask_for_help(machine: &mut Machine) {
    let mut asked = false;
    for at in 0..machine.copies().0 {
        let Some(copy) = machine.shareable(at) else { continue };
        let (&Remote::At(remote), Some(here)) = (copy.remote, copy.buffer.address()) else { continue };
        if copy.bytes < HELP_BYTES_MIN || !copy.worker.helping.allows(HELP) {
            continue;
        }
        let config = &mut copy.worker.config;
        if copy.worker.helper.is_none() {
            // On another rank's core it would stop in the middle of a piece when that rank goes on.
            copy.worker.helper = Helper::start(config.processes < config.cores);
            if copy.worker.helper.is_none() {
                config.help = false;
                return;
            }
        }
        let (Ok(copier), Ok(cooperative)) = (copy.memory.copier(copy.peer, remote), copy.memory.cooperative(copy.owner, copy.slot)) else { continue };
        let new = crate::helper::Share::default();
        let task = Task { copier, cooperative, generation: copy.generation, bytes: copy.bytes, remote, here, out: copy.out, share: new.clone() };
        if copy.worker.helper.as_ref().is_some_and(|helper| helper.ask(task)) {
            asked = true;
            *copy.share = Some(new);
        }
    }
    if asked && let Some(helper) = &machine.worker.helper {
        helper.wake();
    }
}
