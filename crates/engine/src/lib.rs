//! Who does what next? Requests, progress and waiting: the room that joins protocol, memory and fabric.
#![cfg(not(loom))]

mod allocation;
mod bias;
mod buffer;
mod cell;
pub mod connected;
pub mod costs;
mod crash;
mod failed;
mod failure;
mod helper;
mod long_wait;
mod one_sided;
mod open;
pub mod order;
mod owner;
mod pieces;
pub mod port;
pub mod process;
mod progress;
mod remote;
pub mod spawn;
mod spin;
mod state;
mod vcis;
mod wait;
mod worker;

pub use allocation::{allocate, free};
pub use buffer::{Buffer, Plan};
pub use cell::{Cell, Guard};
pub use fabric::local::{Doorbell, yield_core};
pub use fabric::local::{LINE_WORDS, Line, copy_from_end, slots};
pub use fabric::remote::{Cards, NetworkThread};
pub use launch::{Board, without_signals};
pub use long_wait::{Doing, LivenessWatch, wait, wait_for};
pub use memory::mapped::{ALIGNMENT as MAPPED_ALIGNMENT, MappedFile};
pub use one_sided::{Answerer, Asker, Looker, REQUEST_WORDS, REQUESTS_PENDING_MAX, Service, SharedMemory, SharedName};
pub use open::{FabricReport, addresses, fabrics, registration_costs};
pub use proto::costs::two::Took;
pub use proto::matching::{ContextIndex, Pattern};
pub use proto::p2p::{Message, Mode, Outcome, Received, RequestId, Senders, Target};
pub use proto::rendezvous::Variant as Rendezvous;
pub use proto::rendezvous::usage::Speculation;
pub use proto::wire::{Context, Envelope};
pub use remote::run_network_thread;
pub use spin::Waiting;
pub use vcis::{Helped, ProgressSeen, VCIS, Vcis};
pub use wait::{LOOKS_BESIDE, give_core};

pub use fabric::Error as FabricError;
use fabric::local::LocalPeers;
use proto::costs::Costs;
use state::{Machine, Worker};
use std::fmt;
use std::ops::{Deref, DerefMut, Range};
use trace::{Announcements, Counters, Tags};

/// Why processes have failed, for whoever tells of it without the engine.
#[derive(Clone, Debug, Default)]
pub struct Reasons(proto::p2p::Reasons<Fault>);

impl Reasons {
    /// Why nothing can be expected of `process` any more.
    pub fn of(&self, process: u32) -> Fault {
        self.0.of::<FabricError>(process)
    }
}

/// Why the engine cannot do what was asked.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Fault {
    Fabric(fabric::Error),
    /// A ready-mode or other promise of the program was broken.
    Program(String),
}

/// What it means that a copy from or to the memory of `process` has failed.
#[cold]
fn copied(process: u32, error: FabricError) -> Fault {
    match error {
        FabricError::System { call, errno: libc::ESRCH } => FabricError::Peer { peer: process, why: format!("{call} finds no such process") }.into(),
        other => other.into(),
    }
}

impl Fault {
    /// Whether the system found no memory at an address that it was given.
    pub fn is_bad_address(&self) -> bool {
        matches!(self, Fault::Fabric(FabricError::System { errno: libc::EFAULT, .. }))
    }
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

/// Looks for which a side of a copy that both do leaves it to the other, where pieces go through the ring: some microseconds, several times as long as a piece
/// takes. Where the other does not say that it waits, a sixteenth of them.
const PATIENCE: u32 = 256;

/// What the engine is told at the start.
#[derive(Clone, Debug)]
pub struct Config {
    /// This process and how many there are.
    pub me: u32,
    pub processes: u32,
    /// How many of them share this host's memory.
    pub local_processes: u32,
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
    /// A core that is given away goes to whoever wants it. False: the scheduler may share it among groups of processes first.
    pub yields_reach: bool,
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

impl Config {
    /// Whether more processes of this host want to run than it has cores.
    pub fn shares_cores(&self) -> bool {
        self.local_processes > self.cores
    }
}

impl Default for Config {
    fn default() -> Self {
        Config {
            me: 0,
            processes: 1,
            local_processes: 1,
            cores: 1,
            eager_bytes_max: 16 << 10,
            unexpected_bytes_max: 1 << 20,
            headers_bytes_max: 8 << 20,
            spin_ns: 100_000,
            yield_ns: 300_000,
            yields_reach: true,
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

/// The engine of one process: the protocol machine, and what drives it.
pub struct Engine(Machine);

/// What the machine can be asked for, the engine can be asked for.
impl Deref for Engine {
    type Target = Machine;
    #[inline(always)]
    fn deref(&self) -> &Machine {
        &self.0
    }
}

impl DerefMut for Engine {
    #[inline(always)]
    fn deref_mut(&mut self) -> &mut Machine {
        &mut self.0
    }
}

impl Engine {
    /// `local` is there when other processes share this host.
    pub fn new(config: Config, local: Option<LocalPeers>) -> Engine {
        Engine::of_vci(config, 0, local)
    }

    fn of_vci(mut config: Config, vci: u8, local: Option<LocalPeers>) -> Engine {
        use proto::p2p::Memory;
        if let Some(local) = &local {
            config.eager_bytes_max = config.eager_bytes_max.min(local.body_bytes_max());
        }
        // They are of processes with a core each.
        let costs_from = config.costs_from.clone().filter(|_| local.is_some() && !config.shares_cores());
        let costs = costs::State::new(costs_from, config.eager_bytes_max, config.processes);
        config.eager_bytes_max = costs.quick_bytes_max(config.eager_bytes_max, config.eager_is_set);
        let shared_cores = config.shares_cores();
        let protocols = proto::p2p::Config {
            me: config.me,
            processes: config.processes,
            eager_bytes_max: config.eager_bytes_max,
            quick_bytes_max: config.eager_bytes_max,
            // Who shares its core is not there at the same time as the other.
            longer_while_both_wait: !config.eager_is_set && !shared_cores,
            shared_cores,
            unexpected_bytes_max: config.unexpected_bytes_max,
            headers_bytes_max: config.headers_bytes_max,
            speculation: config.speculation,
            rtr_usage_min_percent: config.rtr_usage_min_percent,
            rendezvous: config.rendezvous,
            descriptors: fabric::local::COOPERATIVES as u8,
            patience: PATIENCE,
        };
        Engine(Machine::new(protocols, vci, local, Worker::new(config, costs, vci)))
    }

    pub fn me(&self) -> u32 {
        self.config.me
    }

    /// Which of its process' engines it is.
    #[inline]
    pub fn vci(&self) -> u8 {
        self.worker.vci
    }

    /// Whether it reaches others through memory.
    pub fn has_memory(&self) -> bool {
        self.memory.is_some()
    }

    /// A further engine of the same process, number `vci`, which reaches others through memory alone.
    pub(crate) fn sibling(&self, vci: u8, resolver: fabric::local::Resolver) -> Result<Engine, Fault> {
        let Some(local) = &self.memory else {
            return Err(Fault::Program(format!("process {} has one engine only, since it shares no memory with others", self.config.me)));
        };
        let mut config = self.worker.config.clone();
        config.eager_bytes_max = self.config.eager_bytes_max;
        let mut sibling = Engine::of_vci(config, vci, Some(local.vci(vci, resolver)?));
        sibling.worker.costs.assume_as(&self.worker.costs);
        failure::initiate(self, &mut sibling);
        Ok(sibling)
    }

    /// It is one of `siblings` from now on.
    pub(crate) fn accompany(&mut self, siblings: &'static Vcis) {
        if self.worker.siblings.replace(siblings).is_none() {
            siblings.shared().sleepers.begin_sleep(self.worker.asleep);
            siblings.shared().publish(self.worker.vci, self.completions());
        }
    }

    /// The other engines of its process, if there are any.
    #[inline]
    pub fn siblings(&self) -> Option<&'static Vcis> {
        self.worker.siblings
    }

    /// Completed requests of all engines of the process since the start: grows with each, and what others have told lately.
    pub fn completions_anywhere(&self) -> u64 {
        self.completions() + self.worker.siblings.map_or(0, |all| all.shared().elsewhere(self.worker.vci))
    }

    pub fn counters(&self) -> &Counters {
        &self.worker.counters
    }

    /// Takes up settings that may change while it runs. `None` for lengths that nobody has set.
    pub fn retune(&mut self, eager_bytes_max: Option<usize>, cooperative_bytes_min: Option<u64>, spin_ns: u64, yield_ns: u64) {
        use proto::p2p::Memory;
        let machine = &mut self.0;
        if let Some(bytes) = eager_bytes_max {
            let most = machine.memory.as_ref().map_or(usize::MAX, |memory| memory.body_bytes_max());
            machine.worker.config.eager_is_set = true;
            machine.worker.costs.fix(bytes.min(most));
            machine.limit(bytes.min(most), bytes.min(most));
        }
        if let Some(bytes) = cooperative_bytes_min {
            (machine.worker.config.cooperative_bytes_min, machine.worker.config.cooperative_is_set) = (bytes, true);
        }
        (machine.worker.config.spin_ns, machine.worker.config.yield_ns) = (spin_ns, yield_ns);
        machine.worker.waiting.retune(spin_ns, yield_ns);
        machine.announce_above();
    }

    /// Shared memory reserved in this process' segment, bytes.
    pub fn shared_bytes(&self) -> u64 {
        self.memory.as_ref().map_or(0, LocalPeers::reserved_bytes)
    }

    /// Counts a wait that did not go through [`wait`], but for the times that it [gave its core away](give_core).
    pub fn count_wait(&mut self, waited_ns: u64) {
        self.worker.counters.waits += 1;
        self.worker.counters.waiting_ns += waited_ns;
    }

    /// Whether nothing is under way that needs this process.
    pub fn settled(&self) -> bool {
        self.0.settled() && !self.remote_open()
    }

    /// Why processes have failed, now and later.
    pub fn reasons(&self) -> Reasons {
        Reasons(self.0.reasons())
    }

    /// The quick way: a standard send of bytes in one piece that leaves at once. Otherwise nothing happens, and `send` does it.
    ///
    /// # Safety
    /// `start..start + bytes` must be readable.
    #[inline(always)]
    pub unsafe fn send_quickly(&mut self, to: Target, start: *const u8, bytes: usize) -> bool {
        // SAFETY: the caller's promise.
        let body = unsafe { fabric::Body::new(start, bytes) };
        self.0.send_quickly(to, bytes, |memory, process, head| memory.send_connected(process, head, body))
    }

    /// The quick way: a receive into bytes in one piece, for `owner`.
    ///
    /// # Safety
    /// As [`Buffer::contiguous`].
    #[inline(always)]
    pub unsafe fn receive_quickly(&mut self, context: ContextIndex, pattern: Pattern, start: *mut u8, bytes: usize, owner: u32) -> Result<RequestId, Fault> {
        // SAFETY: the caller's promise.
        self.0.receive_quickly(context, pattern, bytes, owner, |buffer| unsafe { buffer.set_contiguous(start, bytes) })
    }

    /// As [`Engine::receive_quickly`], of a message that was taken before.
    ///
    /// # Safety
    /// As [`Buffer::contiguous`].
    #[inline(always)]
    pub unsafe fn receive_message_quickly(&mut self, message: Message, start: *mut u8, bytes: usize, owner: u32) -> Result<RequestId, Fault> {
        // SAFETY: the caller's promise.
        self.0.receive_message_quickly(message, owner, |buffer| unsafe { buffer.set_contiguous(start, bytes) })
    }

    /// A send to this process itself and the receive of it, both at once, where nothing else is queued in their context. Otherwise nothing happens.
    ///
    /// # Safety
    /// `from..from + bytes` must be readable, `into..into + bytes` writable.
    #[inline(always)]
    pub unsafe fn exchange_with_self(&mut self, context: ContextIndex, to: &Target, from: *const u8, into: *mut u8, bytes: usize) -> bool {
        // SAFETY: the caller's promise; a program that gives buffers that overlap gets what lay there.
        self.0.exchange_own(context, to, bytes, || unsafe { std::ptr::copy(from, into, bytes) })
    }

    /// What became of the announcements of the envelopes that are remembered, and of those that were new when they were announced.
    pub fn announcements(&self) -> Vec<Announcements> {
        let told = |told: proto::p2p::Speculated| Announcements {
            context: told.context,
            source: (told.source != Pattern::ANY_SOURCE).then_some(told.source),
            tags: match told.tag {
                None => Tags::New,
                Some(Pattern::ANY_TAG) => Tags::Any,
                Some(tag) => Tags::One(tag),
            },
            used: told.sums.used.into(),
            in_vain: told.sums.in_vain.into(),
            voided: told.sums.voided.into(),
            suppressed: told.sums.suppressed.into(),
            pauses: told.sums.pauses.into(),
        };
        self.0.announcements().into_iter().map(told).collect()
    }

    /// Reserves a shared area of `lines` lines in this process' segment; returns its place.
    pub fn share(&mut self, lines: usize) -> Result<u64, Fault> {
        self.share_in_parts(lines, lines)
    }

    /// As [`Engine::share`], with pages for the first `begin` lines alone: those who share the others reserve them, each [a part](Engine::lines_in_parts).
    pub fn share_in_parts(&mut self, lines: usize, begin: usize) -> Result<u64, Fault> {
        let local = self.memory.as_mut().ok_or_else(|| Fault::Program("a process alone shares nothing".into()))?;
        Ok(local.share_in_parts(lines as u64 * 64, begin as u64 * 64)?)
    }

    /// The lines of a shared area of `owner`. `None` while that process has not handed out its segment.
    pub fn lines(&mut self, owner: u32, place: u64, lines: usize) -> Result<Option<&'static [Line]>, Fault> {
        self.lines_in_parts(owner, place, lines, 0..lines)
    }

    /// As [`Engine::lines`]; of the lines, this process reserves the pages of `own` alone.
    pub fn lines_in_parts(&mut self, owner: u32, place: u64, lines: usize, own: Range<usize>) -> Result<Option<&'static [Line]>, Fault> {
        let local = self.memory.as_mut().ok_or_else(|| Fault::Program("a process alone shares nothing".into()))?;
        let lines = local.lines_in_parts(owner, place, lines, own)?;
        self.worker.unanswered |= lines.is_none();
        Ok(lines)
    }

    /// Whether this process may read the memory of `process`: a trial read of a secret decides, once for each process.
    pub fn may_read(&mut self, process: u32) -> bool {
        process == self.config.me || self.memory.as_mut().is_some_and(|local| local.reachable(process))
    }

    /// Reads `bytes` at the address `remote` of `process`, which this process [may read](Engine::may_read), to `local`.
    ///
    /// # Errors
    /// [`FabricError::Peer`] where the process has ended; [`FabricError::System`] with `EFAULT` where the memory of one of the two is not there.
    ///
    /// # Safety
    /// `local..local + bytes` must be writable and otherwise unused.
    pub unsafe fn read_from(&mut self, process: u32, remote: u64, local: *mut u8, bytes: usize) -> Result<(), Fault> {
        let memory = self.memory.as_mut().ok_or_else(|| Fault::Program("a process alone shares nothing".into()))?;
        // SAFETY: the caller's promise.
        unsafe { memory.read(process, remote, local, bytes) }.map_err(|error| copied(process, error))
    }

    /// Writes `bytes` at `local` to the address `remote` of `process`.
    ///
    /// # Errors
    /// As [`Engine::read_from`].
    ///
    /// # Safety
    /// `local..local + bytes` must be readable, and the process must have offered what is written.
    pub unsafe fn write_to(&mut self, process: u32, remote: u64, local: *const u8, bytes: usize) -> Result<(), Fault> {
        let memory = self.memory.as_mut().ok_or_else(|| Fault::Program("a process alone shares nothing".into()))?;
        // SAFETY: the caller's promise.
        unsafe { memory.write(process, remote, local, bytes) }.map_err(|error| copied(process, error))
    }

    /// While this process waits for something in a shared area: where to note that it sleeps, and the process that is waited for, where it is one.
    pub fn watch(&mut self, sleepers: &'static Line, member: usize, process: Option<u32>) {
        self.worker.armed.push((sleepers, member, process));
    }

    pub fn unwatch(&mut self, sleepers: &'static Line, member: usize) {
        if let Some(at) = self.worker.armed.iter().position(|(l, m, _)| std::ptr::eq(*l, sleepers) && *m == member) {
            self.worker.armed.swap_remove(at);
        }
    }

    /// Wakes `process` if it sleeps, after something was written to a shared area.
    pub fn wake(&mut self, process: u32) -> Result<(), Fault> {
        let Some(local) = &mut self.memory else { return Ok(()) };
        match local.wake(process)? {
            true => Ok(()),
            // What follows the answer wakes it, too.
            false => self.control(process, proto::wire::control(proto::wire::Kind::CooperativeDone), &[]),
        }
    }

    /// Whether a barrier between writing to a shared area and looking for sleepers must be a real one.
    pub fn must_fence(&self) -> bool {
        self.memory.as_ref().is_some_and(LocalPeers::must_fence)
    }

    /// Whether more ranks than cores share this host.
    pub fn oversubscribed(&self) -> bool {
        self.worker.waiting.oversubscribed
    }

    /// The waits from here on are long for most processes, or no longer.
    pub fn expect_long_waits(&mut self, long: bool) {
        self.worker.waiting.expect_long(long);
    }
}
