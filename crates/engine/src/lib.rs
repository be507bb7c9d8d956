//! Who does what next? Requests, progress and waiting: the room that joins protocol, memory and fabric.

mod announce;
mod buffer;
mod cell;
pub mod costs;
mod crash;
mod failure;
mod helper;
mod lane;
mod open;
pub mod order;
mod pieces;
pub mod process;
mod progress;
mod receive;
mod remote;
mod request;
mod send;
mod transfer;
mod vcis;
mod wait;

pub use buffer::{Buffer, Plan};
pub use cell::{Cell, Guard};
pub use fabric::local::{Doorbell, yield_core};
pub use fabric::local::{LINE_WORDS, Line};
pub use fabric::remote::{Cards, NetworkThread};
pub use failure::{Reasons, Senders};
pub use launch::{Board, without_signals};
pub use proto::matching::{ContextIndex, Pattern};
pub use proto::wire::{Context, Envelope};
pub use receive::Message;
pub use remote::run_network_thread;
pub use request::{Outcome, RequestId};
pub use send::{Mode, Target};
pub use vcis::{Glances, Helped, VCIS, Vcis};
pub use wait::{Doing, Waiting, wait, wait_for};

pub use fabric::Error as FabricError;
use fabric::local::LocalPeers;
use fabric::remote::RemotePeers;
use helper::{Absences, Helper};
use lane::Lane;
use proto::costs::Costs;
use proto::credits::Credits;
use proto::matching::Matcher;
pub use proto::rendezvous::Variant as Rendezvous;
pub use proto::rendezvous::usage::Speculation;
use proto::rendezvous::usage::Usage;
use receive::Unexpected;
use request::Requests;
use std::collections::VecDeque;
use std::fmt;
use std::sync::Arc;
use trace::Counters;
use transfer::{Job, Stream};

/// Why the engine cannot do what was asked.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Fault {
    Fabric(fabric::Error),
    /// A ready-mode or other promise of the program was broken.
    Program(String),
}

impl From<fabric::Error> for Fault {
    fn from(error: fabric::Error) -> Self {
        Fault::Fabric(error)
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Fault::Fabric(error) => error.fmt(f),
            Fault::Program(what) => f.write_str(what),
        }
    }
}

impl std::error::Error for Fault {}

/// What the engine is told at the start.
#[derive(Clone, Debug)]
pub struct Config {
    /// This process and how many there are.
    pub me: u32,
    pub processes: u32,
    /// How many of them share this host's memory.
    pub near: u32,
    /// Cores that the processes of this host share.
    pub cores: u32,
    /// Messages up to this many bytes go with their header.
    pub eager_bytes_max: usize,
    /// What may lie unmatched at a receiver, per sender: with payload, and as headers.
    pub unexpected_bytes_max: u64,
    pub headers_bytes_max: u64,
    /// How long a waiting rank spins, and how long it yields after that, before it sleeps, ns.
    pub spin_ns: u64,
    pub yield_ns: u64,
    /// Copies of at least this many bytes are done by both sides.
    pub cooperative_bytes_min: u64,
    /// Whether receives that come first are announced, and the share of announcements that must be used, percent.
    pub speculation: Speculation,
    pub rtr_usage_min_percent: u32,
    /// How a sender finds out which message an announcement is for.
    pub rendezvous: Rendezvous,
    /// Whether a thread may go on with copies while the program computes, where a core is idle.
    pub help: bool,
    /// After this silence a peer on the network has failed, ms.
    pub peer_timeout_ms: u64,
    /// What messages are assumed to cost, for the choice of a protocol, and where this machine's costs are found.
    pub costs: Costs,
    pub costs_from: Option<costs::Setting>,
    /// Whether the user has set the two lengths above: then costs decide nothing there.
    pub eager_is_set: bool,
    pub cooperative_is_set: bool,
    /// Of the processes of this host, this one does what only one is to do.
    pub leads_host: bool,
}

impl Default for Config {
    fn default() -> Self {
        Config {
            me: 0,
            processes: 1,
            near: 1,
            cores: 1,
            eager_bytes_max: 16 << 10,
            unexpected_bytes_max: 1 << 20,
            headers_bytes_max: 8 << 20,
            spin_ns: 100_000,
            yield_ns: 300_000,
            cooperative_bytes_min: 128 << 10,
            speculation: Speculation::Adaptive,
            rtr_usage_min_percent: 80,
            rendezvous: Rendezvous::Sequence,
            help: false,
            peer_timeout_ms: 20_000,
            costs: Costs::default(),
            costs_from: None,
            eager_is_set: false,
            cooperative_is_set: false,
            leads_host: true,
        }
    }
}

struct Peer {
    /// It is reached by datagrams.
    remote: bool,
    /// It answers no more, or others say so; and nothing is said to it either.
    failed: bool,
    gone: bool,
    credits: Credits,
    /// Sends that have not left, in order.
    queue: Lane<RequestId>,
    /// Control packets that found no room.
    control: Lane<Control>,
    /// In the engine's list of peers with something to flush.
    listed: bool,
    /// Messages sent to the peer, and messages of it that were matched or kept, modulo 2^32.
    sent: u32,
    seen: u32,
    speculation: announce::Speculation,
    /// Sends that it has been told of and not fetched.
    offers: u32,
    /// The last message fetched from it met one that it had to fetch from here.
    exchanging: bool,
    /// Headers of this peer that lie here, bytes of credit; and the level at which it is allowed more.
    held_bytes: u64,
    widen_at_bytes: u64,
    /// That level has been reached since this process last had nothing to do.
    crowding: bool,
    /// What its credit allows it to leave here, bytes.
    held_bytes_max: u64,
}

#[derive(Clone, Copy)]
struct Control {
    head: [u64; 2],
    words: [u64; 6],
    count: usize,
}

/// The engine of one process.
pub struct Engine {
    config: Config,
    local: Option<LocalPeers>,
    /// Where some processes share no memory with this one. Not there while it is being looked at.
    remote: Option<Box<RemotePeers>>,
    deferred: remote::Deferred,
    /// Short messages wait for others to share datagrams with; and what is being sent now does not.
    held: bool,
    prompt: bool,
    peers: Vec<Peer>,
    /// Those who are crowding.
    crowding: Vec<u32>,
    /// Since they last were told to go on.
    vain_polls: u32,
    matcher: Matcher<u32, Unexpected>,
    requests: Requests,
    /// Peers with queued sends or controls.
    backlog: Vec<u32>,
    streams: Vec<Stream>,
    jobs: VecDeque<Job>,
    cooperative_copies_free: Vec<u8>,
    cooperative_generation: u32,
    /// Announced receives that are to be cancelled when the messages before them have come.
    cancels: Vec<RequestId>,
    /// Receives from any source that are announced; messages of this process to itself that they hold up wait in its own queue.
    wild_announced: u32,
    /// Receives longer than this may be announced.
    announce_above_bytes: usize,
    /// What announced receives have offered to remote senders, bytes.
    ahead_bytes: u64,
    /// Something waits for the next look or for messages under way: cancels, own messages, or processes that fail.
    postponed: bool,
    /// No copy under way could go on at the last look: their other sides have claimed what is left.
    stalled: bool,
    /// Started when it is first wanted, and whether that pays.
    helper: Option<Helper>,
    helping: Usage,
    absences: Absences,
    /// Which envelopes' receives are worth announcing.
    usage: Usage,
    /// Completed requests since the start: tells waiters that looking again may pay.
    completions: u64,
    counters: Counters,
    costs: costs::State,
    waiting: Waiting,
    /// Places of shared areas where this process is marked as asleep while it sleeps.
    armed: Vec<(&'static Line, usize)>,
    /// Threads of this process that sleep while they wait in this engine, or are about to.
    asleep: u32,
    /// Processes that have failed, and why, for those without the engine too; who may send in which context, where some process is remote.
    failures: Vec<u32>,
    reasons: Reasons,
    senders: Vec<Option<Arc<dyn Senders>>>,
    /// Those that others may not know of; how much of that each process has been told; and when that was last looked at: how much there was, and how many were
    /// known. The last word is that this process ends.
    news: Vec<u32>,
    told: Vec<usize>,
    told_last: (usize, usize),
    parting: bool,
    /// Which of the process' engines it is, and the others, once there are several.
    vci: u8,
    siblings: Option<&'static Vcis>,
    /// Processes of this host that this one can send nothing to, and why; they fail within the next look.
    unreached: Vec<(u32, fabric::Error)>,
    /// A segment has been asked for that has not come. Nobody wakes this process when it does: it must ask again.
    unanswered: bool,
    /// When it was last looked whether processes of this host have ended; which had; and how to tell, where a launcher does not see to it.
    near_looked_ns: u64,
    near_ended: Vec<u32>,
    has_ended: Option<failure::Ends>,
    /// How often in a row the program has asked for what had not come, and since when.
    asked: u32,
    asking_since_ns: Option<u64>,
    fault: Option<Fault>,
}

impl Engine {
    /// `local` is there when other processes share this host.
    pub fn new(config: Config, local: Option<LocalPeers>) -> Engine {
        use fabric::Fabric;
        let mut config = config;
        if let Some(local) = &local {
            config.eager_bytes_max = config.eager_bytes_max.min(local.capabilities().body_bytes_max);
        }
        let costs = costs::State::new(config.costs_from.clone().filter(|_| local.is_some()), config.eager_bytes_max, config.processes);
        config.eager_bytes_max = costs.quick_bytes_max(config.eager_bytes_max, config.eager_is_set);
        let peers = (0..config.processes)
            .map(|_| Peer {
                remote: false,
                failed: false,
                gone: false,
                credits: Credits::new(config.unexpected_bytes_max, config.headers_bytes_max),
                queue: Lane::default(),
                control: Lane::default(),
                listed: false,
                sent: 0,
                seen: 0,
                speculation: announce::Speculation::new(config.rendezvous),
                offers: 0,
                exchanging: false,
                held_bytes: 0,
                widen_at_bytes: config.headers_bytes_max / 2,
                crowding: false,
                held_bytes_max: config.headers_bytes_max.max(config.unexpected_bytes_max),
            })
            .collect();
        Engine {
            waiting: Waiting::new(&config),
            local,
            remote: None,
            deferred: remote::Deferred::default(),
            held: false,
            prompt: false,
            peers,
            crowding: Vec::new(),
            vain_polls: 0,
            matcher: Matcher::default(),
            requests: Requests::default(),
            backlog: Vec::new(),
            streams: Vec::new(),
            jobs: VecDeque::new(),
            cooperative_copies_free: (0..fabric::local::COOPERATIVES as u8).collect(),
            cooperative_generation: 0,
            cancels: Vec::new(),
            wild_announced: 0,
            announce_above_bytes: if config.speculation == Speculation::Off { usize::MAX } else { config.eager_bytes_max },
            ahead_bytes: 0,
            postponed: false,
            stalled: false,
            helper: None,
            helping: Usage::new(Speculation::Adaptive, 50),
            absences: Absences::default(),
            usage: Usage::new(config.speculation, config.rtr_usage_min_percent),
            completions: 0,
            costs,
            counters: Counters::default(),
            armed: Vec::new(),
            asleep: 0,
            failures: Vec::new(),
            reasons: Reasons::default(),
            senders: Vec::new(),
            news: Vec::new(),
            told: Vec::new(),
            told_last: (0, 0),
            parting: false,
            vci: 0,
            siblings: None,
            unreached: Vec::new(),
            unanswered: false,
            near_looked_ns: 0,
            near_ended: Vec::new(),
            has_ended: None,
            asked: 0,
            asking_since_ns: None,
            fault: None,
            config,
        }
    }

    pub fn me(&self) -> u32 {
        self.config.me
    }

    /// Which of its process' engines it is.
    #[inline]
    pub fn vci(&self) -> u8 {
        self.vci
    }

    /// Whether it reaches others through memory.
    pub fn has_memory(&self) -> bool {
        self.local.is_some()
    }

    /// A further engine of the same process, number `vci`, which reaches others through memory alone.
    pub(crate) fn sibling(&self, vci: u8, resolver: fabric::local::Resolver) -> Result<Engine, Fault> {
        let Some(local) = &self.local else {
            return Err(Fault::Program(format!("process {} has one engine only, since it shares no memory with others", self.config.me)));
        };
        let local = local.vci(vci, resolver)?;
        let mut sibling = Engine { vci, requests: Requests::of_vci(vci), ..Engine::new(self.config.clone(), Some(local)) };
        sibling.costs.assume_as(&self.costs);
        self.initiate(&mut sibling);
        Ok(sibling)
    }

    /// It is one of `siblings` from now on.
    pub(crate) fn accompany(&mut self, siblings: &'static Vcis) {
        if self.siblings.replace(siblings).is_none() {
            siblings.shared().sleepers.lie_down(self.asleep);
            siblings.shared().publish(self.vci, self.completions);
        }
    }

    /// The other engines of its process, if there are any.
    #[inline]
    pub fn siblings(&self) -> Option<&'static Vcis> {
        self.siblings
    }

    /// Completed requests of all engines of the process since the start: grows with each, and what others have told lately.
    pub fn completions_anywhere(&self) -> u64 {
        self.completions + self.siblings.map_or(0, |all| all.shared().elsewhere(self.vci))
    }

    pub fn config(&self) -> &Config {
        &self.config
    }

    /// Receives longer than this may be announced ([`Engine::announce`]), bytes.
    #[inline]
    pub fn announce_above_bytes(&self) -> usize {
        self.announce_above_bytes
    }

    pub fn counters(&self) -> &Counters {
        &self.counters
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

    /// Takes up settings that may change while it runs. `None` for lengths that nobody has set.
    pub fn retune(&mut self, eager_bytes_max: Option<usize>, cooperative_bytes_min: Option<u64>, spin_ns: u64, yield_ns: u64) {
        use fabric::Fabric;
        if let Some(bytes) = eager_bytes_max {
            let most = self.local.as_ref().map_or(usize::MAX, |local| local.capabilities().body_bytes_max);
            (self.config.eager_bytes_max, self.config.eager_is_set) = (bytes.min(most), true);
            self.costs.fix(self.config.eager_bytes_max);
        }
        if let Some(bytes) = cooperative_bytes_min {
            (self.config.cooperative_bytes_min, self.config.cooperative_is_set) = (bytes, true);
        }
        (self.config.spin_ns, self.config.yield_ns) = (spin_ns, yield_ns);
        self.waiting.retune(spin_ns, yield_ns);
        self.announce_above();
    }

    /// Shared memory reserved in this process' segment, bytes.
    pub fn shared_bytes(&self) -> u64 {
        self.local.as_ref().map_or(0, LocalPeers::reserved_bytes)
    }

    /// A context that messages may be matched in.
    pub fn open(&mut self, context: Context) -> ContextIndex {
        self.matcher.open(context)
    }

    /// Forgets a context. Messages that nobody will receive are dropped with it.
    pub fn close(&mut self, index: ContextIndex) {
        let any = Pattern { source: Pattern::ANY_SOURCE, tag: Pattern::ANY_TAG };
        while let Some((envelope, kept)) = self.matcher.extract(index, any) {
            self.give_back(&kept);
            match kept {
                Unexpected::Pull(pull) => self.decline(pull),
                // Its sender may want it back, and must not wait for what nobody knows any more. A fabric that fails says so at the next progress.
                Unexpected::Offer { peer, rts } => {
                    let _ = self.acknowledge(peer, envelope, rts.request);
                    let _ = self.control(peer, proto::wire::control(proto::wire::Kind::Cancelled), &[rts.request, 1]);
                }
                _ => {}
            }
        }
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

    /// Whether nothing is under way that needs this process.
    pub fn settled(&self) -> bool {
        self.backlog.is_empty() && self.streams.is_empty() && self.jobs.is_empty() && !self.remote_open()
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
            let sent = proto::wire::parse(request.head).is_some_and(|(_, envelope)| contexts.contains(&envelope.context));
            request.owner == owner || sent || matches!(request.state, request::State::Posted { context, .. } if indices.contains(&context))
        })
    }

    /// What broke the engine, if something did.
    pub fn fault(&self) -> Option<&Fault> {
        self.fault.as_ref()
    }

    /// Completed requests since the start.
    #[inline]
    pub fn completions(&self) -> u64 {
        self.completions
    }

    /// Counts a wait that did not go through [`wait`].
    pub fn count_wait(&mut self, waited_ns: u64, yields: u64) {
        self.counters.waits += 1;
        self.counters.waiting_ns += waited_ns;
        self.counters.yields += yields;
    }

    /// Says that something outside the requests has completed.
    pub fn completed(&mut self) {
        self.completions += 1;
        self.rouse();
    }

    /// Looks whether a request is complete; takes it out of the table if so.
    #[inline]
    pub fn take(&mut self, id: RequestId) -> Option<Outcome> {
        let r = self.requests.find(id)?;
        if r.state != request::State::Complete {
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

    /// As [`Engine::take`], of a request for which [`Engine::own_request_is_complete`] has said yes.
    #[inline(always)]
    pub fn take_own_request(&mut self, id: RequestId) -> Outcome {
        self.requests.take_complete(id)
    }

    /// Whether there is nothing to wait for at a place of the table: what is there is complete, or nothing is there.
    #[inline(always)]
    pub fn at_rest(&mut self, index: u32) -> bool {
        self.requests.at_rest(index)
    }

    /// Completions ago that the request completed that is named as in [`Engine::named`]: `None` inside where it has not, outside where there is none.
    #[inline(always)]
    pub fn age_of(&self, index: u32, generation: u32, mask: u32) -> Option<Option<u32>> {
        let order = self.requests.order_of(index, generation, mask)?;
        Some(order.map(|order| (self.completions as u32).wrapping_sub(order)))
    }

    /// Takes out the receive that is named as in [`Engine::named`], if it has ended well.
    #[inline(always)]
    pub fn take_well(&mut self, index: u32, generation: u32, mask: u32) -> Option<Outcome> {
        self.requests.take_well(index, generation, mask)
    }

    /// Looks whether a request is complete, and leaves it. `None` also for unknown requests.
    #[inline]
    pub fn peek(&mut self, id: RequestId) -> Option<Outcome> {
        self.requests.find(id).filter(|r| r.state == request::State::Complete).map(|r| r.outcome)
    }

    /// Whom a request belongs to: a number that the caller chose and that the engine only keeps.
    #[inline]
    pub fn set_owner(&mut self, id: RequestId, owner: u32) {
        self.requests.at(id.index).owner = owner;
    }

    #[inline]
    pub fn owner(&mut self, id: RequestId) -> u32 {
        self.requests.at(id.index).owner
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

    /// Nobody will ask for the request again: it is freed when it is complete.
    pub fn detach(&mut self, id: RequestId) {
        if let Some(r) = self.requests.find(id) {
            if r.state == request::State::Complete {
                self.requests.remove(id);
            } else {
                r.detached = true;
            }
        }
    }

    /// Marks a request complete.
    #[inline]
    fn complete(&mut self, id: RequestId) {
        let r = self.requests.at(id.index);
        if r.state == request::State::Offered {
            self.peers[r.peer as usize].offers -= 1;
        }
        r.state = request::State::Complete;
        self.completions += 1;
        r.outcome.order = self.completions as u32;
        if r.detached {
            self.requests.remove(id);
        }
    }

    /// Reserves a shared area of `lines` lines in this process' segment; returns its place.
    pub fn share(&mut self, lines: usize) -> Result<u64, Fault> {
        let local = self.local.as_mut().ok_or_else(|| Fault::Program("a process alone shares nothing".into()))?;
        Ok(local.share(lines as u64 * 64)?)
    }

    /// The lines of a shared area of `owner`. `None` while that process has not handed out its segment.
    pub fn lines(&mut self, owner: u32, place: u64, lines: usize) -> Result<Option<&'static [Line]>, Fault> {
        let local = self.local.as_mut().ok_or_else(|| Fault::Program("a process alone shares nothing".into()))?;
        let lines = local.lines(owner, place, lines)?;
        self.unanswered |= lines.is_none();
        Ok(lines)
    }

    /// While this process waits for something in a shared area: where to note that it sleeps.
    pub fn watch(&mut self, sleepers: &'static Line, member: usize) {
        self.armed.push((sleepers, member));
    }

    pub fn unwatch(&mut self, sleepers: &'static Line, member: usize) {
        if let Some(at) = self.armed.iter().position(|(l, m)| std::ptr::eq(*l, sleepers) && *m == member) {
            self.armed.swap_remove(at);
        }
    }

    /// Wakes `process` if it sleeps, after something was written to a shared area.
    pub fn nudge(&mut self, process: u32) -> Result<(), Fault> {
        let Some(local) = &mut self.local else { return Ok(()) };
        match local.nudge(process)? {
            true => Ok(()),
            // What follows the answer wakes it, too.
            false => self.control(process, proto::wire::control(proto::wire::Kind::CooperativeDone), &[]),
        }
    }

    /// Whether a barrier between writing to a shared area and looking for sleepers must be a real one.
    pub fn must_fence(&self) -> bool {
        self.local.as_ref().is_some_and(LocalPeers::must_fence)
    }

    /// Whether more ranks than cores share this host.
    pub fn oversubscribed(&self) -> bool {
        self.waiting.oversubscribed
    }
}
