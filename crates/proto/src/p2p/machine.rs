//! The machine's state, what drives it, and what it can be asked that no protocol decides. Its protocols are in the files beside this one.

use super::actions::Actions;
use super::copies::{Job, Ring, Stream};
use super::crossing::Crossing;
use super::pending::Pending;
use super::ports::{Buffer, Count, DataPath, Descriptor, Error, Event, Memory, Network, Refused, Way};
use super::reasons::{Reasons, Senders};
use super::request::{Outcome, Received, RequestId, Requests, State};
use super::speculation::Speculation as Announcements;
use super::target::Target;
use super::unexpected::Unexpected;
use crate::costs::pieces::Done;
use crate::costs::ways::Ways;
use crate::credits::Credits;
use crate::matching::{ContextIndex, Matcher, Pattern};
use crate::protocols::{Abilities, Protocol, Transfer};
use crate::rendezvous::usage::{Speculation, Usage};
use crate::rendezvous::{Rtr, Variant};
use crate::wire::{self, Context, Envelope};
use std::collections::VecDeque;
use std::sync::Arc;

/// What the machine is told at the start.
#[derive(Clone, Debug)]
pub struct Config {
    /// This process and how many there are.
    pub me: u32,
    pub processes: u32,
    /// Messages up to this many bytes go with their header.
    pub eager_bytes_max: usize,
    /// Longest message of which the quick way may find that it goes with its header: a long one, where it need not be asked ([`Worker::offers`]).
    pub quick_bytes_max: usize,
    /// Longer ones do, too, as far as the ring takes them, while their sender waits for nothing else and their receiver waits as well.
    pub longer_while_both_wait: bool,
    /// Processes of this host share its cores. Then receives are not announced to those among them: where some senders write, and other receivers read, one
    /// process has two copies to do while its neighbour has none.
    pub shared_cores: bool,
    /// What may lie unmatched at a receiver, per sender: with payload, and as headers.
    pub unexpected_bytes_max: u64,
    pub headers_bytes_max: u64,
    /// Whether receives that come first are announced, and the share of announcements that must be used, percent.
    pub speculation: Speculation,
    pub rtr_usage_min_percent: u32,
    /// How a sender finds out which message an announcement is for.
    pub rendezvous: Variant,
    /// Descriptors of cooperative copies to this process.
    pub descriptors: u8,
    /// Looks for which one side of such a copy leaves it to the other where pieces go through the ring.
    pub patience: u32,
}

impl Config {
    /// How a copy that both do begins, with the ring.
    pub(super) fn ring(&self, descriptor: impl Descriptor) -> Ring {
        Ring { patience: if descriptor.goes_through_ring() { self.patience } else { 0 }, ..Ring::default() }
    }
}

#[derive(Clone)]
pub struct Peer<W: Worker> {
    /// It is reached by datagrams.
    pub remote: bool,
    /// It answers no more, or others say so; and nothing is said to it either.
    pub failed: bool,
    pub gone: bool,
    pub(super) credits: Credits,
    /// Sends that have not left, in order.
    pub(super) queue: Pending<RequestId>,
    /// Control packets that found no room.
    pub(super) control: Pending<Control>,
    /// In the machine's list of peers with something to flush.
    pub(super) listed: bool,
    /// Messages sent to the peer, and messages of it that were matched or queued as unexpected, modulo 2^32.
    pub(super) sent: u32,
    pub(super) seen: u32,
    pub(super) speculation: Announcements,
    /// Sends that it has been told of and not fetched.
    pub(super) offers: u32,
    /// The last message fetched from it met one that it had to fetch from here.
    pub(super) exchanging: bool,
    /// Whether long messages in both directions cross.
    pub(super) crossing: Crossing,
    /// Headers of this peer that lie here, bytes of credit; and the level at which it is allowed more.
    pub(super) held_bytes: u64,
    pub(super) widen_at_bytes: u64,
    /// That level has been reached since this process last had nothing to do.
    pub(super) crowding: bool,
    /// What its credit allows it to leave here, bytes.
    pub(super) held_bytes_max: u64,
    /// Of another job: communicators of this process that it is in.
    pub links: u32,
    worker: std::marker::PhantomData<fn() -> W>,
}

impl<W: Worker> Peer<W> {
    fn new(config: &Config) -> Peer<W> {
        Peer {
            remote: false,
            failed: false,
            gone: false,
            credits: Credits::new(config.unexpected_bytes_max, config.headers_bytes_max),
            queue: Pending::default(),
            control: Pending::default(),
            listed: false,
            sent: 0,
            seen: 0,
            speculation: Announcements::new(config.rendezvous),
            offers: 0,
            exchanging: false,
            crossing: Crossing::default(),
            held_bytes: 0,
            widen_at_bytes: config.headers_bytes_max / 2,
            crowding: false,
            held_bytes_max: config.headers_bytes_max.max(config.unexpected_bytes_max),
            links: 0,
            worker: std::marker::PhantomData,
        }
    }
}

#[derive(Clone, Copy, Hash)]
pub(super) struct Control {
    pub(super) head: [u64; 2],
    pub(super) words: [u64; 6],
    pub(super) count: usize,
}

/// Who drives the machine: one process, or a simulated one.
pub trait Worker: Sized {
    type Error: Error;
    type Fault: Clone + From<Self::Error>;
    type Buffer: Buffer;
    type Memory: Memory<Error = Self::Error>;
    type Network: Network;
    /// Where the bytes of a message lie in a peer's memory.
    type Remote;
    /// What others do of a copy.
    type Share;

    /// What the program has asked for cannot be.
    fn program_fault(why: String) -> Self::Fault;
    /// The transport's error that a fault is; else the fault itself.
    fn transport_error(fault: Self::Fault) -> Result<Self::Error, Self::Fault>;
    fn count(&mut self, what: Count, more: u64);
    /// A message has been received.
    fn received(&mut self, path: DataPath, bytes: u64);
    fn note(&self, event: Event, values: impl FnOnce() -> [i64; 3]);

    /// Sends a packet whose body is `bytes` of `buffer` from `offset` on.
    fn send_body(
        memory: &mut Self::Memory,
        peer: u32,
        head: [u64; 2],
        words: &[u64],
        buffer: &Self::Buffer,
        part: (usize, usize),
    ) -> Result<(), Refused<Self::Error>>;
    /// What the peer says about `bytes` of its memory: `address` is theirs, or that of a list of so many pieces. `None` where that cannot be read or
    /// does not fit together.
    fn learn(memory: &mut Self::Memory, peer: u32, address: u64, pieces: u64, bytes: u64) -> Option<Self::Remote>;
    /// In one piece at `address`, which may be nowhere.
    fn at(address: u64) -> Self::Remote;
    /// Copies bytes `part` (start, length) of a message between `buffer` and the peer's memory.
    fn copy(memory: &mut Self::Memory, peer: u32, remote: &Self::Remote, buffer: &Self::Buffer, part: (usize, usize), way: Way) -> Result<(), Self::Error>;

    /// Longest message that goes to `process`, which shares memory with this one, with its header, bytes.
    fn eager_limit(machine: &mut Machine<Self>, process: u32) -> usize;
    /// A message of `bytes` that might go with its header is about to go to `process`, while long messages of both cross.
    fn crosses(machine: &mut Machine<Self>, process: u32, bytes: usize);
    /// Whether such a message is to be read by its receiver instead.
    fn reads_crossing(machine: &mut Machine<Self>, process: u32, bytes: usize) -> bool;
    /// Whether a long message of `bytes` that crosses no others, and is about to go to `process`, is to be offered rather than to go with its header; and how many of
    /// its length may go after it with their headers, without this question. `expected`: it is, by its length. `None`: that alone decides.
    fn offers(machine: &mut Machine<Self>, process: u32, bytes: usize, expected: bool) -> Option<(bool, u16)>;
    /// Longest message to itself that a process keeps, bytes.
    fn own_bytes_max(&self) -> usize;
    /// A message is about to go whose protocol depends on costs.
    fn settle_costs(machine: &mut Machine<Self>);
    /// How the message of `peer` that request `id` receives is fetched.
    fn fetching(machine: &mut Machine<Self>, id: RequestId, peer: u32, abilities: &Abilities, transfer: &Transfer) -> Protocol;
    /// Whether the sender's pieces of a message of `peer` that both copy, of up to `bytes`, are to come through the ring. `exchange`: this
    /// side sends to it at the same time.
    fn through_ring(machine: &mut Machine<Self>, peer: u32, bytes: u64, exchange: bool) -> bool;
    /// The time, ns, for [`Worker::piece_took`].
    fn now_ns(&self) -> u64;
    /// A copy that both sides do has begun: its peer should know where this process waits in a call.
    fn copies_begin(_machine: &mut Machine<Self>) {}
    /// That was done with a piece of `bytes` of a message from or to `peer`, of `message_bytes`, from `start_ns` until now.
    fn piece_took(&mut self, peer: u32, message_bytes: usize, done: Done, bytes: usize, start_ns: u64);
    /// Whether the caches on which this process may count hold so many bytes.
    fn caches_hold(&self, _bytes: u64) -> bool {
        true
    }
    /// Copies what has come to place `offset` of `buffer`, of a message of which the caches do not hold all.
    fn place_past_caches(&mut self, buffer: &Self::Buffer, offset: usize, body: &<Self::Buffer as Buffer>::Body) {
        buffer.place(offset, body);
    }
    /// It is all there, by `protocol`. `alone`: one call has done all of it.
    fn fetched(&mut self, id: RequestId, protocol: Protocol, alone: bool);
    /// Copies of so many bytes are worth both sides' time, where they have a core each.
    fn shares_copies(&self, bytes: u64) -> bool;
    /// A copy is over in which others may have taken part.
    fn judge_share(&mut self, share: &Self::Share);
    /// A thread that helps may be in the middle of a piece of a copy that is void now: waits for its end.
    fn await_helper(&mut self);

    /// Looks for what has come, and deals with it.
    fn look(machine: &mut Machine<Self>) -> Result<bool, Self::Fault>;
    /// Others that wait in this process may find what they wait for.
    fn wake_threads(machine: &Machine<Self>);
    /// `process` has failed, or is gone: what else of this process reaches it is to know.
    fn tell_failed(machine: &Machine<Self>, process: u32);
    /// Lets what waits for `process` leave as datagrams ([`Machine::queue_datagrams`]).
    fn flush_datagrams(machine: &mut Machine<Self>, process: u32) -> Result<bool, Self::Fault>;
    /// Sends a copy of a short message as a datagram, if nothing waits before it and there is room.
    fn send_copy(machine: &mut Machine<Self>, to: &Target, buffer: &Self::Buffer) -> Result<bool, Self::Fault>;
    /// Offers a window for a receive to its sender, and says what for. 0 where that is not possible now.
    fn offer_window(machine: &mut Machine<Self>, process: u32, rtr: Rtr, envelope: Envelope) -> u32;
    /// Carries [`Actions`] out now.
    fn hurry(machine: &mut Machine<Self>);
}

/// A copy of a machine that is under way.
pub type JobOf<W> = Job<<W as Worker>::Remote, <<W as Worker>::Buffer as Buffer>::List, <W as Worker>::Share>;

/// The machine of one process, or of one of its engines.
pub struct Machine<W: Worker> {
    pub config: Config,
    pub memory: Option<W::Memory>,
    /// Where some processes share no memory with this one. Not there while it is being looked at.
    pub network: Option<Box<W::Network>>,
    /// What the transport over datagrams is asked for after an arrival.
    pub actions: Actions,
    /// Short messages wait for others to share datagrams with.
    pub held: bool,
    /// What is being sent now does not, and its call returns only when it is complete.
    pub prompt: bool,
    /// The program waits for what it sends now before it does anything else.
    pub sends_blocking: bool,
    /// Memory that this process gives out and others map: its start, and bytes.
    pub(super) lent: (u64, u64),
    /// Peers whose long messages cross those of this process.
    pub(super) crossing: u32,
    pub peers: Vec<Peer<W>>,
    /// Of each class of long messages to each peer, how many may go with their header before it is asked how they go; beside the peers, which short messages
    /// look at.
    pub(super) unasked: Vec<[u16; Ways::CLASSES]>,
    /// Those who are crowding.
    pub(super) crowding: Vec<u32>,
    /// Since they last were told to go on.
    pub(super) vain_polls: u32,
    pub(super) matcher: Matcher<u32, Unexpected>,
    pub(super) requests: Requests<W::Buffer>,
    /// Peers with queued sends or controls.
    pub(super) backlog: Vec<u32>,
    pub(super) streams: Vec<Stream>,
    pub(super) jobs: VecDeque<JobOf<W>>,
    pub(super) descriptors_free: Vec<u8>,
    pub(super) cooperative_generation: u32,
    /// What processes of this host have been asked to put into their rings and has not come, bytes; a failure of one of them forgets the others.
    pub(super) asked_bytes: u64,
    /// Announced receives that are to be cancelled when the messages before them have come.
    pub(super) cancels: Vec<RequestId>,
    /// Receives from any source that are announced; messages of this process to itself that they hold up wait in its own queue.
    pub(super) wild_announced: u32,
    /// Receives longer than this may be announced.
    pub(super) announce_above_bytes: usize,
    /// What announced receives have offered to remote senders, bytes.
    pub(super) ahead_bytes: u64,
    /// Something waits for the next look or for messages under way: cancels, own messages, or processes that fail.
    pub postponed: bool,
    /// No copy under way could go on at the last look: their other sides have claimed what is left.
    pub(super) stalled: bool,
    /// Which envelopes' receives are worth announcing.
    pub(super) usage: Usage,
    /// Completed requests, and unexpected messages, since the start: tells waiters that looking again may pay.
    pub(super) completions: u64,
    pub(super) unexpected: u64,
    /// Processes that have failed, and why, for those without the machine too; who may send in which context, where some process is remote.
    pub(super) failures: Vec<u32>,
    pub(super) reasons: Reasons<W::Fault>,
    pub(super) senders: Vec<Option<Arc<dyn Senders>>>,
    /// Those that others may not know of; how much of that each process has been told; and when that was last looked at: how much there was, and how many were
    /// known. The last word is that this process ends.
    pub(super) news: Vec<u32>,
    pub(super) told: Vec<usize>,
    pub(super) told_last: (usize, usize),
    pub(super) parting: bool,
    /// Processes of this host that this one can send nothing to, and why; they fail within the next look.
    pub(super) unreached: Vec<(u32, W::Error)>,
    /// What broke the machine.
    pub fault: Option<W::Fault>,
    pub worker: W,
}

impl<W: Worker> Machine<W> {
    /// `memory` is there when other processes share this host. `vci` is the number of the engine that the machine is of.
    pub fn new(config: Config, vci: u8, memory: Option<W::Memory>, worker: W) -> Machine<W> {
        let peers = (0..config.processes).map(|_| Peer::new(&config)).collect();
        let mut machine = Machine {
            memory,
            network: None,
            actions: Actions::default(),
            held: false,
            prompt: false,
            sends_blocking: false,
            unasked: Vec::new(),
            lent: (0, 0),
            crossing: 0,
            peers,
            crowding: Vec::new(),
            vain_polls: 0,
            matcher: Matcher::default(),
            requests: Requests::of_vci(vci),
            backlog: Vec::new(),
            streams: Vec::new(),
            jobs: VecDeque::new(),
            descriptors_free: (0..config.descriptors).collect(),
            cooperative_generation: 0,
            asked_bytes: 0,
            cancels: Vec::new(),
            wild_announced: 0,
            announce_above_bytes: usize::MAX,
            ahead_bytes: 0,
            postponed: false,
            stalled: false,
            usage: Usage::new(config.speculation, config.rtr_usage_min_percent),
            completions: 0,
            unexpected: 0,
            failures: Vec::new(),
            reasons: Reasons::default(),
            senders: Vec::new(),
            news: Vec::new(),
            told: Vec::new(),
            told_last: (0, 0),
            parting: false,
            unreached: Vec::new(),
            fault: None,
            config,
            worker,
        };
        machine.announce_above();
        machine
    }

    /// Receives longer than this may be announced ([`Machine::announce`]), bytes.
    #[inline]
    pub fn announce_above_bytes(&self) -> usize {
        self.announce_above_bytes
    }

    /// Sets which messages go with their header ([`Config`]), and forgets what was said of those that need not be asked about.
    pub fn limit(&mut self, eager_bytes_max: usize, quick_bytes_max: usize) {
        (self.config.eager_bytes_max, self.config.quick_bytes_max) = (eager_bytes_max, quick_bytes_max);
        self.unasked.clear();
        self.announce_above();
    }

    /// Sets from which length on receives may be announced: above what goes with its header, through memory or in datagrams. None is where speculation is
    /// off.
    pub fn announce_above(&mut self) {
        let remote = self.network.as_ref().map_or(usize::MAX, |network| network.short_bytes_max());
        let announces = self.config.speculation != Speculation::Off;
        let memory = if self.announces_on_memory() { self.config.eager_bytes_max } else { usize::MAX };
        self.announce_above_bytes = if announces { memory.min(remote) } else { usize::MAX };
    }

    /// Whether receives are announced to processes that share memory with this one.
    pub fn announces_on_memory(&self) -> bool {
        match self.config.speculation {
            Speculation::Off => false,
            Speculation::Adaptive => !self.config.shared_cores,
            Speculation::Always => true,
        }
    }

    /// Announces receives as `speculation` says from now on, and forgets what was learned about that.
    pub fn speculate(&mut self, speculation: Speculation, usage_min_percent: u32) {
        self.usage = Usage::new(speculation, usage_min_percent);
    }

    /// The processes that are not in `local` (ascending), nor this one, are reached through `datagrams` from now on.
    pub fn reach_remote(&mut self, network: Box<W::Network>, local: &[u32]) {
        let accounts = network.accounts();
        for process in 0..self.config.processes {
            let peer = &mut self.peers[process as usize];
            peer.remote = process != self.config.me && local.binary_search(&process).is_err();
            if peer.remote {
                // There, announcements are told apart by counting only.
                peer.speculation = Announcements::default();
                peer.held_bytes_max *= accounts;
            }
        }
        self.network = Some(network);
        self.announce_above();
    }

    /// Opens the way to processes of other jobs, where there is no network yet: all processes of this job share memory.
    pub fn reach_foreign(&mut self, network: Box<W::Network>) {
        if self.network.is_none() {
            self.network = Some(network);
            self.announce_above();
        }
    }

    /// A process of another job is reached by datagrams from now on, under the number after all that there are.
    pub fn add_foreign(&mut self) -> u32 {
        self.peers.push(Peer { remote: true, speculation: Announcements::default(), ..Peer::new(&self.config) });
        self.peers.len() as u32 - 1
    }

    /// Whether `process` belongs to another job.
    #[inline]
    pub fn is_foreign(&self, process: u32) -> bool {
        process >= self.config.processes
    }

    /// A communicator has `process`, of another job. If that has failed meanwhile, it has failed for the communicator.
    pub fn link(&mut self, process: u32) {
        let peer = &mut self.peers[process as usize];
        peer.links += 1;
        if peer.failed && !self.failures.contains(&process) {
            self.failures.push(process);
        }
    }

    /// One communicator less has `process`.
    pub fn unlink(&mut self, process: u32) {
        self.peers[process as usize].links -= 1;
    }

    /// Processes of other jobs that some communicator of this process has.
    pub fn linked(&self) -> impl Iterator<Item = u32> {
        let foreign = (self.config.processes..).zip(self.peers.iter().skip(self.config.processes as usize));
        foreign.filter(|(_, peer)| peer.links > 0 && !peer.failed).map(|(process, _)| process)
    }

    /// Whether `process` shares memory with this one.
    pub fn shares_memory(&self, process: u32) -> bool {
        !self.peers[process as usize].remote
    }

    /// Posted receives and unexpected messages now.
    pub fn queued(&self) -> (u64, u64) {
        self.matcher.queued()
    }

    /// The same in one context.
    pub fn queued_in(&self, index: ContextIndex) -> (u64, u64) {
        self.matcher.queued_in(index)
    }

    /// Source and tag of up to `most` unexpected messages of one context, oldest first.
    pub fn unexpected_in(&self, index: ContextIndex, most: usize) -> Vec<(u32, i32)> {
        self.matcher.unexpected_in(index).take(most).collect()
    }

    /// Most posted receives, unexpected messages and requests that there were at once.
    pub fn most(&self) -> (u64, u64, u64) {
        let (posted, unexpected) = self.matcher.most_queued();
        (posted, unexpected, self.requests.most())
    }

    /// A context that messages may be matched in.
    pub fn open(&mut self, context: Context) -> ContextIndex {
        self.matcher.open(context)
    }

    /// Forgets a context. Messages that nobody will receive are dropped with it.
    pub fn close(&mut self, index: ContextIndex) {
        let any = Pattern { source: Pattern::ANY_SOURCE, tag: Pattern::ANY_TAG };
        while let Some((envelope, unexpected)) = self.matcher.extract(index, any) {
            self.give_back(&unexpected);
            match unexpected {
                Unexpected::Pull(pull) => self.decline(pull),
                // Its sender may want it back, and must not wait for what nobody knows any more. A transport that fails says so at the next progress.
                Unexpected::Offer { peer, rts } => {
                    let _ = self.acknowledge(peer, envelope, rts.request);
                    let _ = self.control(peer, wire::control(wire::Kind::Cancelled), &[rts.request, 1]);
                }
                _ => {}
            }
        }
        self.forget_if_empty(index);
    }

    /// Forgets a context in which nothing is queued; else leaves it as it is.
    pub fn close_if_empty(&mut self, context: Context) {
        if let Some(index) = self.matcher.known(context) {
            self.forget_if_empty(index);
        }
    }

    fn forget_if_empty(&mut self, index: ContextIndex) {
        if self.matcher.close(index)
            && let Some(senders) = self.senders.get_mut(index as usize)
        {
            *senders = None;
        }
    }

    /// What unmatched messages of `peer` take here, bytes of its credit.
    pub fn held_bytes(&self, peer: u32) -> u64 {
        self.peers[peer as usize].held_bytes
    }

    /// Whether no message and no copy between memories is under way that needs this process.
    pub fn settled(&self) -> bool {
        self.backlog.is_empty() && self.streams.is_empty() && self.jobs.is_empty()
    }

    /// Whether a look has nothing to do but to find what has come: nothing is under way here, no process has failed, no sender is held back, and there
    /// is no network.
    #[inline(always)]
    pub fn idle(&self) -> bool {
        self.settled() && !self.postponed && !self.has_failures() && !self.is_crowded() && self.network.is_none()
    }

    /// Whether nothing is under way that only this process' progress could end.
    pub fn quiet(&self) -> bool {
        self.backlog.is_empty() && self.streams.is_empty() && (self.jobs.is_empty() || self.stalled)
    }

    /// Requests that are not complete.
    pub fn active(&self) -> usize {
        self.requests.active()
    }

    /// Whether a request is not complete that belongs to `owner`, or is a message to be matched in one of `contexts`.
    pub fn pending(&mut self, owner: u32, contexts: &[Context]) -> bool {
        let indices: Vec<ContextIndex> = contexts.iter().filter_map(|context| self.matcher.known(*context)).collect();
        self.requests.any_under_way(|request| {
            let sent = wire::parse(request.head).is_some_and(|(_, envelope)| contexts.contains(&envelope.context));
            request.owner == owner || sent || matches!(request.state, State::Posted { context, .. } if indices.contains(&context))
        })
    }

    /// Whether requests are under way, and all of them, as far as is looked, are ended by processes of which `asked` says so.
    pub fn depends_on(&self, asked: impl Fn(u32) -> bool) -> bool {
        self.requests.all_under_way(|request| match request.state {
            State::Posted { context, place, .. } => self.expected(context, self.matcher.posted(context, place).1).is_some_and(&asked),
            _ => asked(request.peer),
        })
    }

    /// What broke the machine, if something did.
    pub fn fault(&self) -> Option<&W::Fault> {
        self.fault.as_ref()
    }

    /// Nothing that it has been told can be trusted any more: every later operation says why.
    #[cold]
    pub fn break_down(&mut self, fault: W::Fault) -> W::Fault {
        self.fault.get_or_insert(fault).clone()
    }

    /// Completed requests since the start.
    #[inline]
    pub fn completions(&self) -> u64 {
        self.completions
    }

    /// Those, and the messages that came before their receives: grows with all that somebody may wait for.
    #[inline]
    pub fn events(&self) -> u64 {
        self.completions + self.unexpected
    }

    /// Says that something outside the requests has completed.
    pub fn completed(&mut self) {
        self.completions += 1;
        W::wake_threads(self);
    }

    /// Looks whether a request is complete; takes it out of the table if so.
    #[inline]
    pub fn take(&mut self, id: RequestId) -> Option<Outcome> {
        let r = self.requests.find(id)?;
        if r.state != State::Complete {
            return None;
        }
        let outcome = r.outcome;
        self.requests.remove(id);
        Some(outcome)
    }

    /// Whether a request is complete that the caller has started since it entered.
    #[inline(always)]
    pub fn own_request_is_complete(&self, id: RequestId) -> bool {
        self.requests.is_complete(id)
    }

    /// Whether that request, a receive that is complete, has got `bytes` bytes and no more.
    #[inline(always)]
    pub fn own_request_is_well(&self, id: RequestId, bytes: usize) -> bool {
        self.requests.is_well(id, bytes as u64)
    }

    /// As [`Machine::take`], of a request for which [`Machine::own_request_is_complete`] has said yes.
    #[inline(always)]
    pub fn take_own_request(&mut self, id: RequestId) -> Outcome {
        self.requests.take_complete(id)
    }

    /// Whether there is nothing to wait for at a place of the table: what is there is complete, or nothing is there.
    #[inline(always)]
    pub fn at_rest(&mut self, index: u32) -> bool {
        self.requests.at_rest(index)
    }

    /// Completions ago that the request completed that is named as in [`Machine::named`]: `None` inside where it has not, outside where there is none.
    #[inline(always)]
    pub fn age_of(&self, index: u32, generation: u32, mask: u32) -> Option<Option<u32>> {
        let order = self.requests.order_of(index, generation, mask)?;
        Some(order.map(|order| (self.completions as u32).wrapping_sub(order)))
    }

    /// Whether the request is not complete that is named as in [`Machine::named`].
    #[inline(always)]
    pub fn is_under_way(&self, index: u32, generation: u32, mask: u32) -> bool {
        self.requests.is_under_way(index, generation, mask)
    }

    /// Takes out the request that is named as in [`Machine::named`], if it has ended well: what it has received, `sent` if it is a send.
    #[inline(always)]
    pub fn take_well(&mut self, index: u32, generation: u32, mask: u32, sent: Received) -> Option<Received> {
        self.requests.take_well(index, generation, mask, sent)
    }

    /// Looks whether a request is complete, and leaves it. `None` also for unknown requests.
    #[inline]
    pub fn peek(&mut self, id: RequestId) -> Option<Outcome> {
        self.requests.find(id).filter(|r| r.state == State::Complete).map(|r| r.outcome)
    }

    /// Whom a request belongs to: a number that the caller chose and that the machine only keeps.
    #[inline]
    pub fn set_owner(&mut self, id: RequestId, owner: u32) {
        self.requests.at(id.index()).owner = owner;
    }

    #[inline]
    pub fn owner(&mut self, id: RequestId) -> u32 {
        self.requests.at(id.index()).owner
    }

    /// The request in place `index`, if the low bits of its generation under `mask` are `generation`.
    #[inline]
    pub fn named(&mut self, index: u32, generation: u32, mask: u32) -> Option<RequestId> {
        self.requests.named(index, generation, mask)
    }

    /// Whether the request is a receive.
    pub fn is_receive(&mut self, id: RequestId) -> bool {
        self.requests.find(id).is_some_and(|r| r.head == [0; 2])
    }

    /// Whether a request is in the table.
    pub fn knows(&mut self, id: RequestId) -> bool {
        self.requests.find(id).is_some()
    }

    /// The buffer of a request that is in the table.
    pub fn buffer_of(&self, id: RequestId) -> Option<&W::Buffer> {
        self.requests.buffer_of(id)
    }

    /// Nobody will ask for the request again: it is freed when it is complete.
    pub fn detach(&mut self, id: RequestId) {
        if let Some(r) = self.requests.find(id) {
            if r.state == State::Complete {
                self.requests.remove(id);
            } else {
                r.detached = true;
            }
        }
    }

    /// Marks a request complete.
    #[inline]
    pub(super) fn complete(&mut self, id: RequestId) {
        let r = self.requests.at(id.index());
        if r.state == State::Offered {
            self.peers[r.peer as usize].offers -= 1;
        }
        r.state = State::Complete;
        self.completions += 1;
        r.outcome.order = self.completions as u32;
        if r.detached {
            self.requests.remove(id);
        }
    }

    /// Counts a message that came before its receive.
    #[inline]
    pub(super) fn count_unexpected(&mut self) {
        self.unexpected += 1;
        self.worker.count(Count::Unexpected, 1);
    }
}
