//! What drives the protocol machine of this process: it carries the machine's actions out on memory and transports.

use crate::buffer::{Body, Part};
use crate::helper::{Helper, Share};
use crate::pieces::Remote;
use crate::state::{HELP, Machine, Worker};
use crate::{Buffer, Fault, RequestId, costs, failure, progress, remote, wait};
use fabric::local::LocalPeers;
use fabric::remote::RemotePeers;
use fabric::{Error, Fabric, Refused};
use proto::costs::pieces::Done;
use proto::p2p::{self, Count, DataPath, Event, Target, Way};
use proto::protocols::{Abilities, Protocol, Transfer};
use proto::rendezvous::Rtr;
use proto::rendezvous::usage::End;
use proto::wire::Envelope;
use std::sync::atomic::Ordering;
use trace::events::{EventKind, note};

/// The same in the words of counters and reports.
#[inline(always)]
fn data_path(path: DataPath) -> trace::DataPath {
    match path {
        DataPath::Own => trace::DataPath::Own,
        DataPath::Inline => trace::DataPath::Inline,
        DataPath::Eager => trace::DataPath::Eager,
        DataPath::Read => trace::DataPath::Read,
        DataPath::Cooperative => trace::DataPath::Cooperative,
        DataPath::Pipelined => trace::DataPath::Pipelined,
        DataPath::Datagrams => trace::DataPath::Datagrams,
        DataPath::Pulled => trace::DataPath::Pulled,
    }
}

impl p2p::Worker for Worker {
    type Error = Error;
    type Fault = Fault;
    type Buffer = Buffer;
    type Memory = LocalPeers;
    type Network = RemotePeers;
    type Remote = Remote;
    type Share = Share;

    fn program_fault(why: String) -> Fault {
        Fault::Program(why)
    }

    fn transport_error(fault: Fault) -> Result<Error, Fault> {
        match fault {
            Fault::Fabric(error) => Ok(error),
            fault => Err(fault),
        }
    }

    #[inline(always)]
    fn count(&mut self, what: Count, more: u64) {
        let c = &mut self.counters;
        *match what {
            Count::Unexpected => &mut c.unexpected,
            Count::HeldToHeader => &mut c.held_to_header,
            Count::HeldBack => &mut c.held_back,
            Count::Refused => &mut c.refused,
            Count::RtrSent => &mut c.rtr_sent,
            Count::RtrUsed => &mut c.rtr_used,
            Count::RtrCrossed => &mut c.rtr_crossed,
            Count::RtrMispredicted => &mut c.rtr_mispredicted,
            Count::RtrAnswered => &mut c.rtr_answered,
            Count::RtrVoided => &mut c.rtr_voided,
            Count::RtrSuppressed => &mut c.rtr_suppressed,
            Count::RtrPauses => &mut c.rtr_pauses,
            Count::RtrWastedBytes => &mut c.rtr_wasted_bytes,
        } += more;
    }

    #[inline(always)]
    fn received(&mut self, path: DataPath, bytes: u64) {
        self.counters.received(data_path(path), bytes);
    }

    #[inline(always)]
    fn note(&self, event: Event, values: impl FnOnce() -> [i64; 3]) {
        let kind = match event {
            Event::Unexpected => EventKind::Unexpected,
            Event::HeldBack => EventKind::HeldBack,
            Event::HeldToHeader => EventKind::HeldToHeader,
            Event::Refused => EventKind::Refused,
            Event::Announced => EventKind::Announced,
        };
        note(kind, values);
    }

    #[inline]
    fn send_body(memory: &mut LocalPeers, peer: u32, head: [u64; 2], words: &[u64], buffer: &Buffer, (offset, bytes): (usize, usize)) -> Result<(), Refused> {
        let mut part: Option<Part> = None;
        let body = buffer.body(offset, bytes, &mut part);
        Fabric::send(memory, peer, head, words, body)
    }

    fn learn(memory: &mut LocalPeers, peer: u32, address: u64, pieces: u64, bytes: u64) -> Option<Remote> {
        Remote::learn(memory, peer, address, pieces, bytes)
    }

    fn at(address: u64) -> Remote {
        Remote::At(address)
    }

    fn copy(memory: &mut LocalPeers, peer: u32, remote: &Remote, buffer: &Buffer, (at, bytes): (usize, usize), way: Way) -> Result<(), Error> {
        // SAFETY: the machine copies inside buffers of requests that are under way, which MPI has handed over, and writes only where the peer has offered
        // its own.
        unsafe { remote.copy(memory, peer, buffer, at, bytes, way) }
    }

    fn eager_limit(machine: &mut Machine, process: u32) -> usize {
        costs::eager_limit(machine, process)
    }

    fn crosses(machine: &mut Machine, process: u32, bytes: usize) {
        machine.worker.costs.crosses(process, bytes as u64);
    }

    fn reads_crossing(machine: &mut Machine, process: u32, bytes: usize) -> bool {
        let reachable = machine.memory.as_mut().is_some_and(|local| local.reachable(process));
        reachable && !machine.worker.config.eager_is_set && machine.worker.costs.reads_crossing(process, bytes as u64)
    }

    fn offers(machine: &mut Machine, process: u32, bytes: usize, expected: bool) -> Option<(bool, u16)> {
        costs::offers(machine, process, bytes as u64, expected)
    }

    fn own_bytes_max(&self) -> usize {
        self.costs.own_bytes_max()
    }

    #[inline]
    fn settle_costs(machine: &mut Machine) {
        costs::settle(machine);
    }

    fn fetching(machine: &mut Machine, id: RequestId, peer: u32, abilities: &Abilities, transfer: &Transfer) -> Protocol {
        costs::fetching(machine, id, peer, abilities, transfer)
    }

    fn through_ring(machine: &mut Machine, peer: u32, bytes: u64, exchange: bool) -> bool {
        machine.worker.costs.through_ring(peer, bytes, exchange)
    }

    fn now_ns(&self) -> u64 {
        trace::now_ns()
    }

    fn piece_took(&mut self, peer: u32, message_bytes: usize, done: Done, bytes: usize, start_ns: u64) {
        self.costs.piece_took(peer, message_bytes as u64, done, bytes as u64, trace::now_ns() - start_ns);
    }

    fn caches_hold(&self, bytes: u64) -> bool {
        bytes <= costs::machine::cache_bytes(self.config.local_processes, self.config.cores)
    }

    fn place_past_caches(&mut self, buffer: &Buffer, offset: usize, body: &Body) {
        let streams = self.placing.streams();
        let start_ns = trace::now_ns();
        match streams {
            true => buffer.place_past_caches(offset, body),
            false => p2p::Buffer::place(buffer, offset, body),
        }
        self.placing.took(streams, <Buffer as p2p::Buffer>::body_bytes(body) as u64, trace::now_ns() - start_ns);
    }

    #[inline]
    fn fetched(&mut self, id: RequestId, protocol: Protocol, alone: bool) {
        if self.costs.is_timing() {
            self.costs.fetched(&self.config.costs, id, protocol, alone);
        }
    }

    fn shares_copies(&self, bytes: u64) -> bool {
        bytes >= self.config.cooperative_bytes_min && !self.waiting.oversubscribed
    }

    fn judge_share(&mut self, share: &Share) {
        // Of the copy, the other side, its helper and this thread may have done the most.
        let copied = share.load(Ordering::Relaxed);
        self.counters.pieces_helped += copied as u64;
        self.helping.learn(HELP, if copied > 0 { End::Used } else { End::Unused });
    }

    fn await_helper(&mut self) {
        if let Some(helper) = self.helper.as_ref().and_then(Helper::busy) {
            helper.await_piece();
        }
    }

    #[inline]
    fn copies_begin(machine: &mut Machine) {
        wait::say_waiting_where_blocked(machine);
    }

    fn look(machine: &mut Machine) -> Result<bool, Fault> {
        progress::look(machine)
    }

    #[inline]
    fn wake_threads(machine: &Machine) {
        wait::wake_threads(machine);
    }

    fn tell_failed(machine: &Machine, process: u32) {
        failure::tell_siblings(machine, process);
    }

    fn flush_datagrams(machine: &mut Machine, process: u32) -> Result<bool, Fault> {
        remote::flush_process(machine, process)
    }

    fn send_copy(machine: &mut Machine, to: &Target, buffer: &Buffer) -> Result<bool, Fault> {
        remote::send_copy(machine, to, buffer)
    }

    fn offer_window(machine: &mut Machine, process: u32, rtr: Rtr, envelope: Envelope) -> u32 {
        remote::offer_window(machine, process, rtr, envelope)
    }

    fn hurry(machine: &mut Machine) {
        remote::hurry(machine);
    }
}
