//! What messages cost on this machine: found in a file or measured, once a message is long enough that the choice of its protocol matters.
//!
//! Neither happens in a call of MPI: a thread reads the file and, where there is none of this machine, measures and leaves one. Until
//! it has ended, messages go by what is assumed. A process whose messages are all short does nothing of this.

pub mod file;
pub mod machine;
pub mod measure;

use crate::RequestId;
use crate::state::Machine;
use fabric::Fabric;
use file::{Claim, Nothing};
use machine::Topology;
use proto::costs::pieces::{Done, Pieces};
use proto::costs::seen::Seen;
use proto::costs::two::are_far_apart;
use proto::costs::ways::{Expected, Ways};
use proto::costs::{Costs, KINDS, PeerKind};
use proto::protocols::{self, Abilities, Protocol, Transfer};
use std::path::PathBuf;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Messages up to this length go with their header on any machine: a system call alone takes about as long as to copy them twice.
pub const UNASKED_BYTES_MAX: usize = proto::p2p::SHORT_BYTES_MAX;
/// Longest message that may go with its header, bytes.
pub const EAGER_BYTES_MAX: u64 = 128 << 10;
/// How often a process looks for costs that another one is measuring, or tries again where measuring failed, and how long it waits between.
const TRIES_MAX: u32 = 8;
const TRY_AGAIN_NS: u64 = 50_000_000;
/// How long the end of a process waits for what it is measuring: less would let a program that is always shorter measure for ever.
const END_PATIENCE: Duration = Duration::from_millis(500);

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Mode {
    /// From the file; where there is none, measured, and left there.
    Auto,
    /// Measured, whatever is in the file, and left there.
    Measure,
}

/// What `WHIMBREL_COSTS` says.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Setting {
    pub mode: Mode,
    /// The file that was named; else that in the user's cache directory.
    pub path: Option<PathBuf>,
}

/// What `WHIMBREL_COSTS` says; `None` for `off`.
///
/// Errors: a line that names the variable, its value, and what was expected.
pub fn setting() -> Result<Option<Setting>, String> {
    parse_setting(params::COSTS.value().map_err(|error| error.to_string())?)
}

fn parse_setting(text: &str) -> Result<Option<Setting>, String> {
    Ok(match text {
        "auto" => Some(Setting { mode: Mode::Auto, path: None }),
        "measure" => Some(Setting { mode: Mode::Measure, path: None }),
        "off" => None,
        path if path.contains('/') => Some(Setting { mode: Mode::Auto, path: Some(path.into()) }),
        other => return Err(format!("WHIMBREL_COSTS={other:?}: expected auto, measure, off, or the path of a file, with a slash")),
    })
}

/// Where costs came from.
#[derive(Debug)]
pub enum Origin {
    File(PathBuf),
    /// Measured now. Where they were left, or why not; and why what was there before did not serve.
    Measured {
        left: Result<PathBuf, String>,
        before: Option<Nothing>,
        took: Duration,
    },
}

/// The costs of this machine, and its processors.
#[derive(Debug)]
pub struct Obtained {
    pub costs: Costs,
    pub topology: Topology,
    pub machine: String,
    pub origin: Origin,
}

/// Why there are no costs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Missing {
    /// Another process measures this machine.
    Busy,
    /// Two processes would not have a core each, or the system refuses what it takes.
    Unmeasurable,
}

/// Finds or measures the costs of this machine; takes some milliseconds for each kind of peer where they are measured, and up to half a second where the cores
/// are busy. For a thread of its own: it changes where that may run. `alone`: it may measure where no file can be left, too.
///
/// Errors: why that cannot be done now.
pub fn obtain(setting: &Setting, alone: bool) -> Result<Obtained, Missing> {
    let machine = machine::describe();
    let path = setting.path.clone().or_else(|| file::usual(&machine));
    let found = |origin: PathBuf, costs| Obtained { costs, topology: Topology::of_this_machine(), machine: machine.clone(), origin: Origin::File(origin) };
    let look = || path.clone().map(|path| file::read(&path, &machine).map(|costs| (path, costs)));
    let mut before = None;
    if setting.mode == Mode::Auto {
        match look() {
            Some(Ok((path, costs))) => return Ok(found(path, costs)),
            Some(Err(nothing)) => before = Some(nothing),
            None => {}
        }
    }
    let mut claim = path.as_deref().map_or(Claim::NoFile, file::claim);
    match &claim {
        Claim::Busy => return Err(Missing::Busy),
        // Whoever had it before may have measured meanwhile.
        Claim::Ours(_) if setting.mode == Mode::Auto => {
            if let Some(Ok((path, costs))) = look() {
                return Ok(found(path, costs));
            }
        }
        Claim::NoFile if !alone => return Err(Missing::Unmeasurable),
        _ => {}
    }
    let topology = Topology::of_this_machine();
    let start = Instant::now();
    let mut costs = Costs::unknown();
    let mut whole = true;
    for (kind, ours, theirs) in topology.pairs() {
        match measure::measure(&ours, &theirs) {
            Some(curves) => {
                let known = Protocol::ALL.into_iter().zip(curves).filter_map(|(protocol, curve)| Some((protocol, curve?)));
                known.for_each(|(protocol, curve)| costs.set(kind, protocol, curve));
            }
            None => whole = false,
        }
    }
    if let Claim::Ours(claim) = &mut claim {
        file::report(claim, whole && costs.measured());
    }
    if !costs.measured() {
        return Err(Missing::Unmeasurable);
    }
    let took = start.elapsed();
    let left = match (path, &claim) {
        (None, _) => Err("there is no cache directory: neither XDG_CACHE_HOME nor HOME names one".to_owned()),
        (Some(path), Claim::Ours(_)) if whole => {
            file::write(&path, &machine, &costs).map(|()| path.clone()).map_err(|error| format!("{}: {error}", path.display()))
        }
        (Some(_), Claim::Ours(_)) => Err("not all kinds of peers could be measured".to_owned()),
        (Some(path), _) => Err(format!("{}: its directory cannot be written", path.display())),
    };
    Ok(Obtained { costs, topology, machine, origin: Origin::Measured { left, before, took } })
}

/// What this process has obtained; the thread that is at it, how often one was, and when the next may be.
static OBTAINED: OnceLock<Obtained> = OnceLock::new();
static AT_IT: AtomicBool = AtomicBool::new(false);
static TRIES: AtomicU32 = AtomicU32::new(0);
static NEXT_NS: AtomicU64 = AtomicU64::new(0);

/// Lets a thread look for the costs, if none is at it. False: enough was tried.
fn ask(setting: &Setting, alone: bool) -> bool {
    if AT_IT.load(Ordering::Acquire) || trace::now_ns() < NEXT_NS.load(Ordering::Relaxed) {
        return true;
    }
    if TRIES.load(Ordering::Relaxed) >= TRIES_MAX {
        return false;
    }
    if AT_IT.swap(true, Ordering::AcqRel) {
        return true;
    }
    TRIES.fetch_add(1, Ordering::Relaxed);
    let setting = setting.clone();
    let run = move || {
        if let Ok(obtained) = obtain(&setting, alone) {
            let _ = OBTAINED.set(obtained);
        }
        NEXT_NS.store(trace::now_ns() + TRY_AGAIN_NS, Ordering::Relaxed);
        AT_IT.store(false, Ordering::Release);
    };
    let builder = std::thread::Builder::new().name("mpi-costs".into()).stack_size(256 << 10);
    let started = launch::without_signals(|| builder.spawn(run)).is_ok();
    if !started {
        AT_IT.store(false, Ordering::Release);
    }
    started
}

/// Waits until this process measures nothing, but not for long.
pub(crate) fn finish() {
    let start = Instant::now();
    while AT_IT.load(Ordering::Acquire) && start.elapsed() < END_PATIENCE {
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// What an engine knows of the costs.
pub(crate) struct State {
    setting: Option<Setting>,
    /// Nothing is expected any more of [`OBTAINED`].
    settled: bool,
    /// Longest message that goes with its header: as set or assumed, and by measured costs for each kind of peer, with and without a memory that can be read.
    assumed: usize,
    limits: Option<[[usize; 2]; KINDS]>,
    /// Limits of the processes that were asked for, 0 for the others; and where those processes are.
    known: Vec<usize>,
    kinds: Vec<Option<PeerKind>>,
    /// What fetched messages really took, once one was fetched by costs.
    seen: Option<Seen>,
    timing: Option<Timing>,
    /// What pieces of copies with each process have taken, once there were some.
    pieces: Vec<Option<Box<Pieces>>>,
    /// Which way long messages to each process go, once some have: those that cross its own, and the others.
    crossing: Vec<Option<Box<Ways>>>,
    ways: Vec<Option<Box<Ways>>>,
    /// The program waits in a call, and has for more than a few looks.
    waits: bool,
}

/// What is known of one process, from the first time on.
fn of<T: Default>(all: &mut Vec<Option<Box<T>>>, process: u32) -> &mut T {
    let at = process as usize;
    if at >= all.len() {
        all.resize_with(at + 1, || None);
    }
    all[at].get_or_insert_default()
}

/// A message that is being fetched, and timed.
struct Timing {
    id: RequestId,
    kind: PeerKind,
    protocol: Protocol,
    bytes: u64,
    start_ns: u64,
    /// The program has waited for it from its start on: else the time tells about the program.
    waits: bool,
}

/// A fetch that began longer before the program waits for it is not timed.
const WAITS_WITHIN_NS: u64 = 2_000;

impl State {
    /// `eager_bytes_max`: as set, where `set`, or assumed.
    pub fn new(setting: Option<Setting>, eager_bytes_max: usize, processes: u32) -> State {
        State {
            settled: setting.is_none(),
            setting,
            assumed: eager_bytes_max,
            limits: None,
            known: vec![0; processes as usize],
            kinds: vec![None; processes as usize],
            seen: None,
            timing: None,
            pieces: Vec::new(),
            crossing: Vec::new(),
            ways: Vec::new(),
            waits: false,
        }
    }

    /// A message of `bytes` is about to go to `process` that crosses its own.
    pub fn crosses(&mut self, process: u32, bytes: u64) {
        of(&mut self.crossing, process).count(bytes, trace::now_ns);
    }

    /// Whether such a message is to be offered.
    pub fn reads_crossing(&mut self, process: u32, bytes: u64) -> bool {
        of(&mut self.crossing, process).offers(bytes)
    }

    /// Whether the sender's pieces of a message of about `bytes` that is copied together with `process` should go through the ring.
    pub fn through_ring(&mut self, process: u32, bytes: u64, exchange: bool) -> bool {
        of(&mut self.pieces, process).through_ring(bytes, exchange)
    }

    /// A piece of `bytes` of a message of `message_bytes` from or to `process` took `ns`.
    pub fn piece_took(&mut self, process: u32, message_bytes: u64, done: Done, bytes: u64, ns: u64) {
        of(&mut self.pieces, process).took(message_bytes, done, bytes, ns);
    }

    /// The program waits in a call.
    #[inline]
    pub fn wait_begins(&mut self) {
        self.waits = true;
        if let Some(timing) = &mut self.timing
            && !timing.waits
        {
            timing.waits = true;
            if trace::now_ns() > timing.start_ns + WAITS_WITHIN_NS {
                self.timing = None;
            }
        }
    }

    /// Whether it does, as far as peers have been told.
    #[inline]
    pub fn is_waiting(&self) -> bool {
        self.waits
    }

    /// It is about to do something else.
    #[inline]
    pub fn wait_ends(&mut self) {
        (self.waits, self.timing) = (false, None);
    }

    #[inline]
    pub fn is_timing(&self) -> bool {
        self.timing.is_some()
    }

    /// A message has been fetched. `alone`: in one call, so that nothing else has been done meanwhile.
    #[cold]
    pub fn fetched(&mut self, costs: &Costs, id: RequestId, protocol: Protocol, alone: bool) {
        let Some(timing) = self.timing.take_if(|timing| timing.id == id) else { return };
        // Another protocol than the one that was chosen has taken over where that failed.
        if timing.protocol == protocol
            && (timing.waits || alone)
            && let Some(seen) = &mut self.seen
        {
            let ps = trace::now_ns().saturating_sub(timing.start_ns).max(1).saturating_mul(1000);
            seen.learn(costs, timing.kind, protocol, timing.bytes, ps);
        }
    }

    /// The longest message that goes with its header is `eager_bytes_max` for every peer from here on.
    pub fn fix(&mut self, eager_bytes_max: usize) {
        (self.assumed, self.limits) = (eager_bytes_max, None);
        self.known.fill(0);
    }

    /// Takes over what was assumed in another engine of the process, whose own limit may be that of the quick way.
    pub fn assume_as(&mut self, other: &State) {
        self.assumed = other.assumed;
    }

    /// Longest message that the quick way may take before the costs are known.
    pub fn quick_bytes_max(&self, eager_bytes_max: usize, set: bool) -> usize {
        if self.settled || set { eager_bytes_max } else { eager_bytes_max.min(UNASKED_BYTES_MAX) }
    }

    /// Longest message to itself that a process keeps, bytes.
    pub fn own_bytes_max(&self) -> usize {
        self.assumed
    }
}

/// Looks for the machine's costs where a message is the first whose protocol depends on them.
#[inline]
pub(crate) fn settle(machine: &mut Machine) {
    if !machine.worker.costs.settled {
        settle_now(machine);
    }
}

#[cold]
fn settle_now(machine: &mut Machine) {
    let Some(setting) = &machine.worker.costs.setting else { return };
    match OBTAINED.get() {
        Some(obtained) => {
            machine.worker.costs.settled = true;
            machine.worker.config.costs = obtained.costs.clone();
            // It was seen beside what was assumed.
            (machine.worker.costs.seen, machine.worker.costs.timing) = (None, None);
            if !machine.worker.config.cooperative_is_set {
                machine.worker.config.cooperative_bytes_min = 1;
            }
            if !machine.worker.config.eager_is_set {
                limit_eager(machine, obtained);
            }
        }
        None if ask(setting, machine.worker.config.leads_host) => {}
        None => {
            machine.worker.costs.settled = true;
            if !machine.worker.config.eager_is_set {
                machine.limit(machine.worker.costs.assumed, machine.worker.costs.assumed);
            }
        }
    }
}

/// Takes the longest messages that go with their header from measured costs.
fn limit_eager(machine: &mut Machine, obtained: &Obtained) {
    let Some(local) = &machine.memory else { return };
    let most = EAGER_BYTES_MAX.min(local.capabilities().body_bytes_max as u64);
    let (announced, cooperative_copy) = (machine.announces_on_memory(), !machine.worker.waiting.oversubscribed);
    let mut limits = [[machine.worker.costs.assumed; 2]; KINDS];
    let mut least = usize::MAX;
    for kind in PeerKind::ALL {
        for remote_read in [false, true] {
            let abilities = Abilities { remote_read, cooperative_copy };
            let limit = protocols::eager_bytes_max(&abilities, &obtained.costs, kind, announced, UNASKED_BYTES_MAX as u64, most);
            if let Some(limit) = limit {
                limits[kind as usize][remote_read as usize] = limit as usize;
                least = least.min(if remote_read == local.capabilities().remote_read { limit as usize } else { usize::MAX });
            }
        }
    }
    machine.worker.costs.limits = Some(limits);
    machine.worker.costs.known.fill(0);
    machine.worker.costs.ways.clear();
    machine.limit(least.min(most as usize), most as usize);
}

/// Longest message that goes to `process`, which shares memory with this one, with its header, bytes.
pub(crate) fn eager_limit(machine: &mut Machine, process: u32) -> usize {
    let Some(limits) = machine.worker.costs.limits else { return machine.worker.costs.assumed };
    let known = machine.worker.costs.known[process as usize];
    if known > 0 {
        return known;
    }
    let kind = peer_kind(machine, process);
    let Some(local) = &mut machine.memory else { return machine.worker.costs.assumed };
    let limit = limits[kind as usize][local.reachable(process) as usize];
    if local.pid(process).is_some() {
        machine.worker.costs.known[process as usize] = limit;
    }
    limit
}

/// Whether a long message of `bytes` that crosses no others is offered to `process`, and how many may go after it with their headers before this is asked again:
/// by what the costs say, and by what such messages have taken. `None` where neither counts.
pub(crate) fn offers(machine: &mut Machine, process: u32, bytes: u64, expected: bool) -> Option<(bool, u16)> {
    let reachable = machine.memory.as_mut().is_some_and(|local| local.reachable(process));
    if machine.worker.costs.setting.is_none() || machine.worker.config.eager_is_set || !reachable {
        return None;
    }
    if !machine.worker.costs.settled {
        return Some((expected, 0));
    }
    let kind = peer_kind(machine, process);
    let announced = machine.announces_on_memory();
    let (alone, worker) = (machine.sends_blocking, &mut machine.worker);
    let costs = &worker.config.costs;
    let expected = || {
        let abilities = Abilities { remote_read: true, cooperative_copy: true };
        let both = protocols::ring_and_rendezvous_ps(&abilities, costs, kind, announced, bytes);
        // Shorter ones are expected to go as the limits say, which come from the same costs.
        let longer = bytes > EAGER_BYTES_MAX && costs.measured();
        let offered = expected || (longer && both.is_some_and(|(ring, other)| other < ring));
        Expected { offered, far: both.is_none_or(|(ring, other)| are_far_apart(ring, other)) }
    };
    Some(of(&mut worker.costs.ways, process).ask(bytes, alone, expected, trace::now_ns))
}

/// Where `process` is, as far as that is known.
fn peer_kind(machine: &mut Machine, process: u32) -> PeerKind {
    if let Some(kind) = machine.worker.costs.kinds[process as usize] {
        return kind;
    }
    let pid = machine.memory.as_ref().and_then(|local| local.pid(process));
    let Some((obtained, pid)) = OBTAINED.get().zip(pid) else { return PeerKind::SharedCache };
    let kind = obtained.topology.kind_of(pid).unwrap_or(PeerKind::SharedCache);
    machine.worker.costs.kinds[process as usize] = Some(kind);
    kind
}

/// Whether both sides copy a message whatever is measured: what both may copy goes on while either of them computes, of which the time of a message that both
/// wait for says nothing. So long ones are left neither to one side nor to the presence of both.
fn is_shared(abilities: &Abilities, transfer: &Transfer) -> bool {
    static ASSUMED: OnceLock<Costs> = OnceLock::new();
    protocols::choose(abilities, ASSUMED.get_or_init(Costs::assumed), PeerKind::SharedCache, transfer) == Protocol::Cooperative
}

/// How the message of `peer` that request `id` receives is fetched.
pub(crate) fn fetching(machine: &mut Machine, id: RequestId, peer: u32, abilities: &Abilities, transfer: &Transfer) -> Protocol {
    settle(machine);
    if machine.worker.config.cooperative_is_set && abilities.remote_read && abilities.cooperative_copy && transfer.contiguous {
        return Protocol::Cooperative;
    }
    if machine.worker.costs.setting.is_none() {
        return protocols::choose(abilities, &machine.worker.config.costs, PeerKind::SharedCache, transfer);
    }
    if is_shared(abilities, transfer) {
        return Protocol::Cooperative;
    }
    let kind = peer_kind(machine, peer);
    let alone = machine.copies().0 == 0;
    let worker = &mut machine.worker;
    let choice = worker.costs.seen.get_or_insert_default().choose(abilities, &worker.config.costs, kind, transfer);
    if choice.timed && alone {
        let (start_ns, waits) = (trace::now_ns(), worker.costs.waits);
        worker.costs.timing = Some(Timing { id, kind, protocol: choice.protocol, bytes: transfer.bytes, start_ns, waits });
    }
    choice.protocol
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_messages_are_shared_whatever_is_measured() {
        let both = Abilities { remote_read: true, cooperative_copy: true };
        let shared = |abilities: &Abilities, bytes, contiguous| is_shared(abilities, &Transfer { bytes, contiguous });
        assert_eq!([32 << 10, 256 << 10, 1 << 20, 1 << 30].map(|bytes| shared(&both, bytes, true)), [false, true, true, true]);
        assert!(!shared(&both, 1 << 20, false) && !shared(&Abilities { cooperative_copy: false, ..both }, 1 << 20, true));
    }

    #[test]
    fn settings_say_where_costs_come_from() {
        let auto = |path: Option<&str>| Some(Setting { mode: Mode::Auto, path: path.map(PathBuf::from) });
        assert_eq!(parse_setting("auto"), Ok(auto(None)));
        assert_eq!(parse_setting("./costs"), Ok(auto(Some("./costs"))));
        assert_eq!(parse_setting("measure"), Ok(Some(Setting { mode: Mode::Measure, path: None })));
        assert_eq!(parse_setting("off"), Ok(None));
        assert!(parse_setting("sometimes").unwrap_err().contains("WHIMBREL_COSTS=\"sometimes\""));
    }
}
