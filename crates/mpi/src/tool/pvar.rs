//! Performance variables (MPI-5.0 §15.3.7): the counters of this process, its queues and its memory.
//!
//! Counters run freely inside the engine. A handle remembers where its counter stood when it was started, and what had
//! been counted before; so every handle starts, stops and resets on its own. What tells a state runs always and is read only.
#![forbid(unsafe_code)]

use super::{Datum, Tools, at, bad_handle, enumeration, out_of_handles, tools};
use crate::consts::*;
use crate::error::{Error, Result};
use crate::handle::{self, Datatype, TEnum, TPvarHandle, TPvarSession};
use crate::{comm, world};
use engine::Engine;
use std::sync::LazyLock;
use trace::{Counters, DATA_PATHS, SIZE_CLASSES, Tally};

/// One variable.
pub struct Variable {
    pub name: String,
    pub text: String,
    pub class: i32,
    pub verbosity: i32,
    pub category: &'static str,
    quantity: Quantity,
}

/// What a variable shows.
#[derive(Clone, Copy)]
enum Quantity {
    /// One number that only grows.
    Counter(fn(&Counters) -> u64),
    /// The same by size class.
    Classes(usize, fn(&Tally) -> u64),
    /// A number that comes and goes.
    /// Of all engines of the process together; of high-water marks the sum, which is never below the level.
    Level(fn(&Engine) -> u64),
    /// What is the same of all engines.
    Common(fn(&Engine) -> u64),
    /// A number that comes and goes, of one communicator.
    CommLevel(fn((u64, u64)) -> u64),
    Phase,
    WaitingShare,
}

/// An experiment: handles that belong together.
pub struct Session;

pub struct Handle {
    session: usize,
    variable: usize,
    comm: Option<handle::Comm>,
    running: bool,
    /// Counted before the last start or reset, and where the counters stood then.
    counted: Vec<u64>,
    base: Vec<u64>,
}

/// The variables, in order of their index.
pub static ALL: LazyLock<Vec<Variable>> = LazyLock::new(|| {
    use Quantity::*;
    let mut all = Vec::new();
    let mut add = |name: &str, class: i32, category: &'static str, quantity: Quantity, text: &str| {
        let verbosity = match quantity {
            Classes(..) => MPI_T_VERBOSITY_USER_DETAIL,
            _ => MPI_T_VERBOSITY_USER_BASIC,
        };
        all.push(Variable { name: name.into(), text: text.into(), class, verbosity, category, quantity });
    };
    add("messages_received", MPI_T_PVAR_CLASS_COUNTER, "protocols", Counter(|c| c.received.iter().flatten().map(|t| t.messages).sum()), "Messages received.");
    add(
        "bytes_received",
        MPI_T_PVAR_CLASS_AGGREGATE,
        "protocols",
        Counter(|c| c.received.iter().flatten().map(|t| t.bytes).sum()),
        "Bytes received in messages.",
    );
    for (place, (path, how)) in DATA_PATHS.iter().enumerate() {
        let path = format!("{path:?}").to_lowercase();
        let sizes = "by size: 0 bytes, 1 to 15, 16 to 255, and so on in powers of 16";
        let text = format!("Messages received on one data path ({how}), {sizes}.");
        add(&format!("{path}_messages"), MPI_T_PVAR_CLASS_COUNTER, "protocols", Classes(place, |t| t.messages), &text);
        let text = format!("Bytes received on one data path ({how}), {sizes}.");
        add(&format!("{path}_bytes"), MPI_T_PVAR_CLASS_AGGREGATE, "protocols", Classes(place, |t| t.bytes), &text);
    }
    let collectives = [
        ("slots", "Collectives that this process has ended through slots that all members read.", (|c| c.collectives_by_slots) as fn(&Counters) -> u64),
        ("lines", "Barriers and the shortest allreduces that this process has ended through lines that all members share.", |c| c.collectives_by_lines),
        ("messages", "Collectives that this process has begun and that go by messages.", |c| c.collectives_by_messages),
    ];
    for (way, text, of) in collectives {
        add(&format!("collectives_by_{way}"), MPI_T_PVAR_CLASS_COUNTER, "protocols", Counter(of), text);
    }
    add("unexpected_messages", MPI_T_PVAR_CLASS_COUNTER, "matching", Counter(|c| c.unexpected), "Messages that came before their receive was posted.");
    add("unexpected_queue", MPI_T_PVAR_CLASS_LEVEL, "matching", Level(|e| e.queued().1), "Messages that wait for their receive now.");
    add(
        "unexpected_queue_most",
        MPI_T_PVAR_CLASS_HIGHWATERMARK,
        "matching",
        Level(|e| e.most().1),
        "Most messages that have waited for their receive at once since initialization, engine by engine.",
    );
    add("posted_receives", MPI_T_PVAR_CLASS_LEVEL, "matching", Level(|e| e.queued().0), "Receives that wait for their message now.");
    add(
        "posted_receives_most",
        MPI_T_PVAR_CLASS_HIGHWATERMARK,
        "matching",
        Level(|e| e.most().0),
        "Most receives that have waited for their message at once since initialization, engine by engine.",
    );
    add(
        "communicator_unexpected_queue",
        MPI_T_PVAR_CLASS_LEVEL,
        "matching",
        CommLevel(|q| q.1),
        "Point-to-point messages of one communicator that wait for their receive now.",
    );
    add(
        "communicator_posted_receives",
        MPI_T_PVAR_CLASS_LEVEL,
        "matching",
        CommLevel(|q| q.0),
        "Point-to-point receives of one communicator that wait for their message now.",
    );
    add("active_requests", MPI_T_PVAR_CLASS_LEVEL, "matching", Level(|e| e.active() as u64), "Sends and receives that are not complete now.");
    add(
        "requests_most",
        MPI_T_PVAR_CLASS_HIGHWATERMARK,
        "matching",
        Level(|e| e.most().2),
        "Most requests that there have been at once since initialization, engine by engine.",
    );
    add("sends_held_back", MPI_T_PVAR_CLASS_COUNTER, "flow_control", Counter(|c| c.held_back), "Sends that had to wait for room or credit.");
    add(
        "sends_held_to_header",
        MPI_T_PVAR_CLASS_COUNTER,
        "flow_control",
        Counter(|c| c.held_to_header),
        "Sends that went as a header because the receiver's credit was used up.",
    );
    add("packets_refused", MPI_T_PVAR_CLASS_COUNTER, "flow_control", Counter(|c| c.refused), "Packets that were refused because they made no sense.");
    add(
        "rtr_sent",
        MPI_T_PVAR_CLASS_COUNTER,
        "speculation",
        Counter(|c| c.rtr_sent),
        "Receives that were announced to their senders (requests to receive, RTR).",
    );
    add("rtr_used", MPI_T_PVAR_CLASS_COUNTER, "speculation", Counter(|c| c.rtr_used), "Announcements that their senders used.");
    add("rtr_crossed", MPI_T_PVAR_CLASS_COUNTER, "speculation", Counter(|c| c.rtr_crossed), "Announcements that crossed the sender's offer.");
    add("rtr_mispredicted", MPI_T_PVAR_CLASS_COUNTER, "speculation", Counter(|c| c.rtr_mispredicted), "Announcements for messages that needed none.");
    add("rtr_wasted_bytes", MPI_T_PVAR_CLASS_AGGREGATE, "speculation", Counter(|c| c.rtr_wasted_bytes), "Bytes of announcements that were not used.");
    add(
        "rtr_voided",
        MPI_T_PVAR_CLASS_COUNTER,
        "speculation",
        Counter(|c| c.rtr_voided),
        "Announcements that their senders had dropped when they saw them, or that were taken back.",
    );
    add(
        "rtr_suppressed",
        MPI_T_PVAR_CLASS_COUNTER,
        "speculation",
        Counter(|c| c.rtr_suppressed),
        "Receives that were not announced since announcing did not pay for their envelope.",
    );
    add("rtr_pauses", MPI_T_PVAR_CLASS_COUNTER, "speculation", Counter(|c| c.rtr_pauses), "Times that announcing paused for an envelope.");
    add(
        "pieces_helped",
        MPI_T_PVAR_CLASS_COUNTER,
        "speculation",
        Counter(|c| c.pieces_helped),
        "Pieces of large messages that the helping thread copied while the program computed.",
    );
    add(
        "mapped_bytes",
        MPI_T_PVAR_CLASS_AGGREGATE,
        "protocols",
        Counter(|c| c.mapped_bytes),
        "Bytes copied by load and store from or to memory of peers that this process has mapped.",
    );
    add(
        "request_lines_posted",
        MPI_T_PVAR_CLASS_COUNTER,
        "protocols",
        Counter(|c| c.request_lines_posted),
        "Short one-sided calls that their target, which waited in MPI, was asked to do.",
    );
    add(
        "request_lines_withdrawn",
        MPI_T_PVAR_CLASS_COUNTER,
        "protocols",
        Counter(|c| c.request_lines_withdrawn),
        "Such calls that the target did not answer at once, and that therefore went another way.",
    );
    type Registered = (&'static str, i32, fn(&Counters) -> u64, &'static str);
    let registered: [Registered; trace::Registrations::WORDS - 2] = [
        ("hits", MPI_T_PVAR_CLASS_COUNTER, |c| c.registrations.hits, "Transfers whose memory was registered with the network's device already."),
        ("misses", MPI_T_PVAR_CLASS_COUNTER, |c| c.registrations.misses, "Transfers whose memory was looked for among what is registered, and not found."),
        ("made", MPI_T_PVAR_CLASS_COUNTER, |c| c.registrations.made, "Registrations of memory of the program."),
        ("evicted", MPI_T_PVAR_CLASS_COUNTER, |c| c.registrations.evicted, "Registrations that were given up for room."),
        ("invalidated", MPI_T_PVAR_CLASS_COUNTER, |c| c.registrations.invalidated, "Registrations that were given up since their memory had changed."),
        ("unpaid", MPI_T_PVAR_CLASS_COUNTER, |c| c.registrations.unpaid, "Registrations that were given up before a second use."),
        ("refused", MPI_T_PVAR_CLASS_COUNTER, |c| c.registrations.refused, "Transfers that went another way, since their memory could not be registered."),
        ("kept_bytes", MPI_T_PVAR_CLASS_AGGREGATE, |c| c.registrations.kept_bytes_most, "Most bytes that were kept registered at once."),
        ("in_place", MPI_T_PVAR_CLASS_COUNTER, |c| c.registrations.in_place, "Short messages that left from the program's buffer, without a copy."),
        ("in_place_bytes", MPI_T_PVAR_CLASS_AGGREGATE, |c| c.registrations.in_place_bytes, "The bytes of these."),
        (
            "overlapped",
            MPI_T_PVAR_CLASS_COUNTER,
            |c| c.registrations.overlapped,
            "Pieces of memory that were registered while what went before them was under way.",
        ),
    ];
    for (name, class, of, text) in registered {
        add(&format!("registrations_{name}"), class, "memory", Counter(of), text);
    }
    type Connected = (&'static str, fn(&Counters) -> u64, &'static str);
    let connected: [Connected; trace::Connections::WORDS] = [
        ("made", |c| c.connections.made, "Connections that were made to peers whose traffic had earned them."),
        ("given_back", |c| c.connections.given_back, "Connections that were given back since they were little used."),
        ("broken", |c| c.connections.broken, "Connections that broke, after which messages went in datagrams."),
        ("resent", |c| c.connections.resent, "Messages that were sent again since their connection had ended."),
    ];
    for (name, of, text) in connected {
        add(&format!("connections_{name}"), MPI_T_PVAR_CLASS_COUNTER, "protocols", Counter(of), text);
    }
    add(
        "registrations_pool_bytes",
        MPI_T_PVAR_CLASS_SIZE,
        "memory",
        Level(|e| e.registrations().pool_bytes),
        "Memory of the library that is registered with RDMA devices, in bytes.",
    );
    add("registrations_queue_pairs", MPI_T_PVAR_CLASS_LEVEL, "memory", Level(|e| e.registrations().queue_pairs), "Queue pairs of RDMA devices.");
    add("rtr_answered", MPI_T_PVAR_CLASS_COUNTER, "speculation", Counter(|c| c.rtr_answered), "Sends of this process that used an announcement.");
    add("waiting_time", MPI_T_PVAR_CLASS_TIMER, "waiting", Counter(|c| c.waiting_ns), "Time inside blocking calls with nothing to do, in nanoseconds.");
    add(
        "waiting_share",
        MPI_T_PVAR_CLASS_PERCENTAGE,
        "waiting",
        WaitingShare,
        "Share of the time since initialization that was spent inside blocking calls with nothing to do, from 0 to 1.",
    );
    add("waits", MPI_T_PVAR_CLASS_COUNTER, "waiting", Counter(|c| c.waits), "Blocking calls that had to wait.");
    add("cores_given_away", MPI_T_PVAR_CLASS_COUNTER, "waiting", Counter(|c| c.yields), "Times that a waiting call gave its core away.");
    add("sleeps", MPI_T_PVAR_CLASS_COUNTER, "waiting", Counter(|c| c.sleeps), "Times that a waiting call slept in the kernel.");
    add("shared_memory_bytes", MPI_T_PVAR_CLASS_SIZE, "memory", Common(|e| e.shared_bytes()), "Shared memory reserved in this process' segment, in bytes.");
    add("phase", MPI_T_PVAR_CLASS_STATE, "whimbrel", Phase, "Where this process stands between initialization and finalization.");
    all
});

impl Variable {
    /// Numbers that it has.
    fn count(&self) -> usize {
        if matches!(self.quantity, Quantity::Classes(..)) { SIZE_CLASSES } else { 1 }
    }

    /// Whether it runs always and cannot be written: it tells a state.
    pub fn continuous(&self) -> bool {
        !matches!(self.quantity, Quantity::Counter(_) | Quantity::Classes(..))
    }

    pub fn datatype(&self) -> Datatype {
        self.datum(0).datatype()
    }

    pub fn enumeration(&self) -> TEnum {
        if matches!(self.quantity, Quantity::Phase) { enumeration::of_phase() } else { MPI_T_ENUM_NULL }
    }

    /// The kind of object that a handle of it is bound to.
    pub fn bind(&self) -> i32 {
        if matches!(self.quantity, Quantity::CommLevel(_)) { MPI_T_BIND_MPI_COMM } else { MPI_T_BIND_NO_OBJECT }
    }

    fn datum(&self, word: u64) -> Datum {
        match self.quantity {
            Quantity::Phase => Datum::Int(word as i32),
            Quantity::WaitingShare => Datum::Double(f64::from_bits(word)),
            _ => Datum::Unsigned(word),
        }
    }

    /// Where it stands now.
    fn now(&self, bound: Option<handle::Comm>) -> Result<Vec<u64>> {
        if let Quantity::Phase = self.quantity {
            return Ok(vec![u64::from(world::initialized()) + u64::from(world::finalized())]);
        }
        let Some(world) = world::joined() else { return Ok(vec![0; self.count()]) };
        let sum = |of: &dyn Fn(&Engine) -> u64| world.engines.all().map(|cell| of(&cell.lock())).sum();
        Ok(match self.quantity {
            Quantity::Counter(of) => vec![of(&world.counters())],
            Quantity::Classes(path, of) => (0..SIZE_CLASSES).map(|class| sum(&|e| of(&e.counters().received[path][class]))).collect(),
            Quantity::Level(of) => vec![sum(&of)],
            Quantity::Common(of) => vec![of(&world.engine().lock())],
            Quantity::CommLevel(of) => {
                let comm = comm::find(bound.unwrap_or(MPI_COMM_NULL)).map_err(|e| Error::new(MPI_T_ERR_INVALID_HANDLE, e.detail))?;
                vec![of(comm.engine().queued_in(comm.p2p))]
            }
            Quantity::WaitingShare => {
                let waiting_ns = sum(&|e| e.counters().waiting_ns) as f64;
                vec![(waiting_ns / world.age_ns().max(1) as f64).min(1.0).to_bits()]
            }
            Quantity::Phase => unreachable!("told before"),
        })
    }
}

/// The variable called `name`, of a class.
///
/// # Errors
/// `MPI_T_ERR_NOT_INITIALIZED`, `MPI_T_ERR_INVALID_NAME`.
pub fn index(name: &[u8], class: i32) -> Result<i32> {
    super::check()?;
    super::find(&ALL, "performance variable of this class", name, |v| v.name.as_bytes() == name && v.class == class)
}

/// # Errors
/// `MPI_T_ERR_NOT_INITIALIZED`, `MPI_T_ERR_INVALID_INDEX`.
pub fn find(index: i32) -> Result<&'static Variable> {
    super::check()?;
    at(&ALL, index, "performance variable")
}

/// # Errors
/// `MPI_T_ERR_NOT_INITIALIZED`, `MPI_T_ERR_OUT_OF_SESSIONS`.
pub fn session_create() -> Result<TPvarSession> {
    let created = tools()?.sessions.insert(Session);
    created.map(TPvarSession).map_err(|_| Error::new(MPI_T_ERR_OUT_OF_SESSIONS, format!("{} sessions exist already", crate::slots::SLOTS_MAX)))
}

/// Frees a session with its handles.
///
/// # Errors
/// `MPI_T_ERR_NOT_INITIALIZED`, `MPI_T_ERR_INVALID_SESSION`.
pub fn session_free(session: TPvarSession) -> Result<()> {
    let mut tools = tools()?;
    for handle in handles_of(&tools, session)? {
        tools.pvars.remove(handle);
    }
    tools.sessions.remove(session.0);
    Ok(())
}

fn check_session(tools: &Tools, session: TPvarSession) -> Result<()> {
    match tools.sessions.get(session.0) {
        Some(_) => Ok(()),
        None => Err(Error::new(MPI_T_ERR_INVALID_SESSION, format!("{:#x} is no session", session.0))),
    }
}

fn handles_of(tools: &Tools, session: TPvarSession) -> Result<Vec<usize>> {
    check_session(tools, session)?;
    Ok(tools.pvars.iter().filter(|(_, h)| h.session == session.0).map(|(handle, _)| handle).collect())
}

/// Whether a handle of this variable must be bound to a communicator.
///
/// # Errors
/// As [`find`].
pub fn binds(index: i32) -> Result<bool> {
    Ok(find(index)?.bind() == MPI_T_BIND_MPI_COMM)
}

/// A handle, and how many numbers its variable has. Counters are stopped at 0.
///
/// # Errors
/// `MPI_T_ERR_INVALID_SESSION`, `MPI_T_ERR_INVALID_INDEX`, `MPI_T_ERR_OUT_OF_HANDLES`, `MPI_T_ERR_NOT_INITIALIZED`;
/// `MPI_T_ERR_INVALID` when the object to bind to is none.
pub fn open(session: TPvarSession, index: i32, bound: Option<handle::Comm>) -> Result<(TPvarHandle, usize)> {
    let mut tools = tools()?;
    check_session(&tools, session)?;
    let variable = at(&ALL, index, "performance variable")?;
    if variable.bind() == MPI_T_BIND_MPI_COMM {
        comm::find(bound.unwrap_or(MPI_COMM_NULL)).map_err(|e| Error::new(MPI_T_ERR_INVALID, e.detail))?;
    }
    let zeros = vec![0; variable.count()];
    let handle = Handle { session: session.0, variable: index as usize, comm: bound, running: false, counted: zeros.clone(), base: zeros };
    let handle = tools.pvars.insert(handle).map_err(out_of_handles)?;
    Ok((TPvarHandle(handle), variable.count()))
}

/// # Errors
/// `MPI_T_ERR_INVALID_SESSION`, `MPI_T_ERR_INVALID_HANDLE`, `MPI_T_ERR_NOT_INITIALIZED`.
pub fn close(session: TPvarSession, handle: TPvarHandle) -> Result<()> {
    let mut tools = tools()?;
    one(&mut tools, session, handle)?;
    tools.pvars.remove(handle.0);
    Ok(())
}

fn one(tools: &mut Tools, session: TPvarSession, handle: TPvarHandle) -> Result<&mut Handle> {
    check_session(tools, session)?;
    let found = tools.pvars.get_mut(handle.0).filter(|found| found.session == session.0);
    found.ok_or_else(|| bad_handle("handle of this session", handle.0))
}

/// Does something to one handle, or to all of a session that `fits`.
fn each(
    session: TPvarSession,
    handle: TPvarHandle,
    fits: impl Fn(&Handle) -> bool,
    refuse: impl Fn(&Variable) -> Box<Error>,
    act: impl Fn(&mut Handle) -> Result<()>,
) -> Result<()> {
    let mut tools = tools()?;
    if handle == MPI_T_PVAR_ALL_HANDLES {
        for place in handles_of(&tools, session)? {
            if let Some(found) = tools.pvars.get_mut(place).filter(|found| fits(found)) {
                act(found)?;
            }
        }
        return Ok(());
    }
    let found = one(&mut tools, session, handle)?;
    if !fits(found) {
        return Err(refuse(found.variable()));
    }
    act(found)
}

fn no_start_stop(variable: &Variable) -> Box<Error> {
    Error::new(MPI_T_ERR_PVAR_NO_STARTSTOP, format!("{} runs always", variable.name))
}

fn no_write(variable: &Variable) -> Box<Error> {
    Error::new(MPI_T_ERR_PVAR_NO_WRITE, format!("{} is read only", variable.name))
}

fn counts(handle: &Handle) -> bool {
    !handle.variable().continuous()
}

/// # Errors
/// `MPI_T_ERR_PVAR_NO_STARTSTOP` for one variable that runs always; as [`close`].
pub fn start(session: TPvarSession, handle: TPvarHandle) -> Result<()> {
    each(session, handle, counts, no_start_stop, Handle::start)
}

/// # Errors
/// As [`start`].
pub fn stop(session: TPvarSession, handle: TPvarHandle) -> Result<()> {
    each(session, handle, counts, no_start_stop, Handle::stop)
}

/// # Errors
/// `MPI_T_ERR_PVAR_NO_WRITE` for one variable that is read only; as [`close`].
pub fn reset(session: TPvarSession, handle: TPvarHandle) -> Result<()> {
    each(session, handle, counts, no_write, |h| {
        let zeros = vec![0; h.counted.len()];
        h.set(zeros)
    })
}

/// # Errors
/// As [`close`].
pub fn read(session: TPvarSession, handle: TPvarHandle) -> Result<Vec<Datum>> {
    one(&mut *tools()?, session, handle)?.read()
}

/// # Errors
/// `MPI_T_ERR_PVAR_NO_ATOMIC` for variables that cannot be reset; as [`close`].
pub fn read_reset(session: TPvarSession, handle: TPvarHandle) -> Result<Vec<Datum>> {
    let mut tools = tools()?;
    let found = one(&mut tools, session, handle)?;
    if !counts(found) {
        return Err(Error::new(MPI_T_ERR_PVAR_NO_ATOMIC, format!("{} is read only", found.variable().name)));
    }
    let now = found.variable().now(found.comm)?;
    let values = found.values(&now);
    let zeros = vec![0; found.counted.len()];
    (found.counted, found.base) = (zeros, now);
    Ok(values.into_iter().map(|word| found.variable().datum(word)).collect())
}

/// What is written: as many numbers as the handle's variable has.
///
/// # Errors
/// As [`write`].
pub fn writable(session: TPvarSession, handle: TPvarHandle) -> Result<usize> {
    let mut tools = tools()?;
    let found = one(&mut tools, session, handle)?;
    if counts(found) { Ok(found.counted.len()) } else { Err(no_write(found.variable())) }
}

/// # Errors
/// `MPI_T_ERR_PVAR_NO_WRITE` for variables that are read only; as [`close`].
pub fn write(session: TPvarSession, handle: TPvarHandle, values: Vec<u64>) -> Result<()> {
    let mut tools = tools()?;
    let found = one(&mut tools, session, handle)?;
    if !counts(found) {
        return Err(no_write(found.variable()));
    }
    found.set(values)
}

impl Handle {
    fn variable(&self) -> &'static Variable {
        &ALL[self.variable]
    }

    /// What it shows when its counters stand at `now`.
    fn values(&self, now: &[u64]) -> Vec<u64> {
        match self.running {
            true => self.counted.iter().zip(now.iter().zip(&self.base)).map(|(c, (n, b))| c.wrapping_add(n.wrapping_sub(*b))).collect(),
            false => self.counted.clone(),
        }
    }

    fn start(&mut self) -> Result<()> {
        if !self.running {
            self.base = self.variable().now(self.comm)?;
            self.running = true;
        }
        Ok(())
    }

    fn stop(&mut self) -> Result<()> {
        let now = self.variable().now(self.comm)?;
        self.counted = self.values(&now);
        self.running = false;
        Ok(())
    }

    fn set(&mut self, values: Vec<u64>) -> Result<()> {
        self.base = self.variable().now(self.comm)?;
        self.counted = values;
        Ok(())
    }

    fn read(&self) -> Result<Vec<Datum>> {
        let now = self.variable().now(self.comm)?;
        let words = if counts(self) { self.values(&now) } else { now };
        Ok(words.into_iter().map(|word| self.variable().datum(word)).collect())
    }
}
