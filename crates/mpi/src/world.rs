//! This process in its job: start, end, and what happens on an error (MPI-5.0 chapters 9 and 11).

use crate::buffered::Holder;
use crate::call::Kind;
use crate::coll::Tuning;
use crate::comm::{self, Comm};
use crate::consts::*;
use crate::error::{Error, Result};
use crate::errors::{self, Handler};
use crate::handle;
use crate::mismatch;
use crate::turn::lend::Use;
use engine::order::{Level, Ordered, OrderedGuard, before_callback};
use engine::process::{self, Failed, Process};
use engine::{Board, Cell, Engine, FabricError, VCIS, Vcis};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicI32, AtomicPtr, AtomicU32, Ordering};
use std::time::Instant;
use trace::{Announcements, Counters, Summary, now_ns};

/// What the library knows of itself once it is initialized.
pub struct World {
    /// The engines, one for each VCI that communicators are spread over.
    pub engines: Vcis,
    /// VCIs that this process gives new communicators to, and the next one's turn.
    vcis: u32,
    vci_turn: AtomicU32,
    pub me: u32,
    pub size: u32,
    pub appnum: i32,
    pub universe_size: u32,
    pub process: Process,
    /// Why processes have failed.
    pub reasons: engine::Reasons,
    pub contexts: AtomicU32,
    pub thread_level: AtomicI32,
    /// The thread that initialized the World model.
    main_thread: OnceLock<usize>,
    start_ns: u64,
    pub tuning: Tuning,
    /// Whether short collectives may go through shared lines and slots.
    pub slots: bool,
    /// Whether, and when, members of long ones read each other's memory.
    pub lending: Use,
    /// More ranks than cores on this host.
    pub crowded: bool,
    pub must_fence: bool,
    /// How long a rank waits before it asks whether collectives match, ns; all ones: it never does.
    pub collective_check_ns: u64,
}

/// Who uses the library: it joins its job for the first and says that it is done after the last.
struct Users {
    world_model: bool,
    sessions: u32,
}

impl Users {
    /// Whether one session is the only user.
    fn alone(&self) -> bool {
        !self.world_model && self.sessions == 1
    }
}

static USERS: Ordered<Users> = Ordered::new(Level::Users, Users { world_model: false, sessions: 0 });
/// The world while it is used: null before initialization, and after the last user has finalized.
static WORLD: AtomicPtr<World> = AtomicPtr::new(std::ptr::null_mut());
/// The world once it has been joined.
static JOINED: OnceLock<World> = OnceLock::new();
/// 0 before initialization, 1 while it lasts, 2 after finalization.
static PHASE: AtomicI32 = AtomicI32::new(0);

#[inline]
pub fn initialized() -> bool {
    PHASE.load(Ordering::Acquire) >= 1
}

#[inline]
pub fn finalized() -> bool {
    PHASE.load(Ordering::Acquire) == 2
}

/// The world, while MPI is initialized.
#[inline]
pub fn get() -> Result<&'static World> {
    // SAFETY: null or that of JOINED, which is never freed.
    unsafe { WORLD.load(Ordering::Acquire).as_ref() }.ok_or_else(unusable)
}

/// Whether MPI is initialized and not finalized.
#[inline]
pub fn is_usable() -> bool {
    !WORLD.load(Ordering::Acquire).is_null()
}

/// Why MPI cannot be used now.
#[cold]
pub fn unusable() -> Box<Error> {
    Error::new(MPI_ERR_OTHER, if finalized() { "MPI has been finalized" } else { "MPI is not initialized" })
}

/// The world, also when this process has finalized: for counters and messages.
pub fn joined() -> Option<&'static World> {
    JOINED.get()
}

/// The number of this process; before it has joined its job, the one that its launcher gave it, or 0.
pub fn me() -> u32 {
    joined().map_or_else(|| process::apparent_rank().unwrap_or(0), |w| w.me)
}

/// The handler of `MPI_COMM_WORLD`, `MPI_COMM_SELF` and of errors before initialization: `MPI_ERRORS_ARE_FATAL`, or what the
/// launcher was asked for (MPI-5.0 §9.3, §11.5). A value that does not parse keeps the library from being initialized.
pub fn initial_errhandler() -> handle::Errhandler {
    match params::INITIAL_ERRHANDLER.value() {
        Ok("mpi_errors_return") => MPI_ERRORS_RETURN,
        Ok("mpi_errors_abort") => MPI_ERRORS_ABORT,
        _ => MPI_ERRORS_ARE_FATAL,
    }
}

impl World {
    #[inline]
    pub fn board(&self) -> Option<&'static Board> {
        self.process.board()
    }

    /// The engine of the first VCI: predefined communicators', and whatever belongs to none.
    #[inline]
    pub fn engine(&self) -> &Cell<Engine> {
        self.engines.first()
    }

    /// The engine of a VCI, made if this is the first to need it.
    pub fn open_vci(&'static self, vci: u8) -> Result<&'static Cell<Engine>> {
        self.engines.open(vci, || self.process.resolver()).map_err(fault)
    }

    /// Whether this process reaches all of `processes` through memory, its own messages included.
    pub fn shares_memory(&self, mut processes: impl Iterator<Item = u32>) -> bool {
        let engine = self.engine().lock();
        !engine.networked() || (engine.has_memory() && processes.all(|process| engine.shares_memory(process)))
    }

    /// The VCI for a new communicator: another one each time where several threads may communicate at once. If not all its members share memory,
    /// it will be the first after all.
    pub fn next_vci(&self) -> u8 {
        if self.vcis == 1 || self.thread_level.load(Ordering::Relaxed) != MPI_THREAD_MULTIPLE {
            return 0;
        }
        (self.vci_turn.fetch_add(1, Ordering::Relaxed) % self.vcis) as u8
    }

    /// Whether several threads may call at once.
    #[inline]
    pub fn may_have_threads(&self) -> bool {
        self.thread_level.load(Ordering::Relaxed) == MPI_THREAD_MULTIPLE
    }

    /// Time since initialization, ns.
    pub fn age_ns(&self) -> u64 {
        now_ns() - self.start_ns
    }

    /// What all engines have counted.
    pub fn counters(&self) -> Counters {
        let mut sum = Counters::default();
        for cell in self.engines.all() {
            let engine = cell.lock();
            sum.add(engine.counters());
            sum.mapped_bytes += engine.mapped_bytes();
            let (registrations, connections) = (engine.registrations(), engine.connections());
            sum.add(&Counters { registrations, connections, ..Counters::default() });
        }
        [sum.collectives_by_slots, sum.collectives_by_lines, sum.collectives_by_messages] = comm::collectives_by_way();
        [sum.request_lines_posted, sum.request_lines_withdrawn] = crate::counts::request_lines();
        sum
    }

    pub fn is_main_thread(&self) -> bool {
        self.main_thread.get() == Some(&this_thread())
    }
}

/// What tells a thread from the others that live: the place of its own variables. The standard library's number of a thread that it
/// did not start would cost memory that lives as long as the process, which leak checkers report.
fn this_thread() -> usize {
    thread_local!(static MARK: u8 = const { 0 });
    MARK.with(|mark| std::ptr::from_ref(mark).addr())
}

fn tuning() -> Result<Tuning> {
    let parameter = |error| failed(Failed::Parameter(error));
    let mut tuning = Tuning::of(params::REPRODUCIBLE.value().map_err(parameter)?);
    let words = params::ALGORITHMS.value().map_err(parameter)?;
    tuning.force_all(words.as_ref()).map_err(|why| Error::new(MPI_ERR_OTHER, format!("WHIMBREL_ALGORITHMS: {why}")))?;
    Ok(tuning)
}

pub(crate) fn failed(failed: Failed) -> Box<Error> {
    let class = match &failed {
        Failed::Fabric(FabricError::Memory { .. } | FabricError::Segment { .. }) => MPI_ERR_NO_MEM,
        _ => MPI_ERR_OTHER,
    };
    Error::new(class, failed.to_string())
}

/// Initializes MPI at thread level `required`; gives the level provided (MPI-5.0 §11.2).
pub fn init(required: i32) -> Result<i32> {
    match PHASE.load(Ordering::Acquire) {
        0 => {}
        1 => return Err(Error::new(MPI_ERR_OTHER, "MPI is initialized already")),
        _ => return Err(Error::new(MPI_ERR_OTHER, "MPI has been finalized")),
    }
    if ![MPI_THREAD_SINGLE, MPI_THREAD_FUNNELED, MPI_THREAD_SERIALIZED, MPI_THREAD_MULTIPLE].contains(&required) {
        return Err(Error::new(MPI_ERR_ARG, format!("required = {required} is no thread level")));
    }
    let mut users = users();
    let world = join(required == MPI_THREAD_MULTIPLE)?;
    world.thread_level.store(required, Ordering::Relaxed);
    world.main_thread.get_or_init(this_thread);
    comm::begin(world.size, world.me)?;
    users.world_model = true;
    PHASE.store(1, Ordering::Release);
    if let Some(board) = world.board() {
        board.initialized();
    }
    drop(users);
    crate::dynamic::begin()?;
    Ok(required)
}

fn users() -> OrderedGuard<'static, Users> {
    USERS.lock()
}

/// The world, joined if this is the first to need it.
fn join(locking: bool) -> Result<&'static World> {
    if let Some(world) = joined() {
        WORLD.store(std::ptr::from_ref(world).cast_mut(), Ordering::Release);
        if locking && !world.engine().locking() {
            // Nobody is inside: without locking this is the only thread that calls MPI now.
            world.engines.set_locking();
        }
        return Ok(world);
    }
    let start_ns = now_ns();
    crate::checks::set(params::ARGUMENT_CHECKS.value().map_err(|e| failed(Failed::Parameter(e)))?);
    params::INITIAL_ERRHANDLER.value().map_err(|e| failed(Failed::Parameter(e)))?;
    let (process, engine) = Process::join().map_err(failed)?;
    let (me, size) = (process.me, process.size);
    let (crowded, must_fence, reasons) = (engine.oversubscribed(), engine.must_fence(), engine.reasons());
    let collective_check_ns = match params::COLLECTIVE_CHECK.value().map_err(|e| failed(Failed::Parameter(e)))? {
        0 => u64::MAX,
        ms => ms as u64 * 1_000_000,
    };
    let world = World {
        engines: Vcis::new(engine, locking || crate::tool::wants_threads()),
        vcis: (params::VCIS.value().map_err(|e| failed(Failed::Parameter(e)))? as u32).min(VCIS as u32),
        vci_turn: AtomicU32::new(1),
        me,
        size,
        appnum: process.appnum,
        universe_size: process.universe_size,
        process,
        reasons,
        contexts: AtomicU32::new(comm::FIRST_FREE_CONTEXT),
        thread_level: AtomicI32::new(MPI_THREAD_MULTIPLE),
        main_thread: OnceLock::new(),
        start_ns,
        tuning: tuning()?,
        slots: params::COLLECTIVE_SLOTS.value().map_err(|e| failed(Failed::Parameter(e)))?,
        lending: Use::of(params::COLLECTIVE_LENDING.value().map_err(|e| failed(Failed::Parameter(e)))?),
        crowded,
        must_fence,
        collective_check_ns,
    };
    let world = JOINED.get_or_init(|| world);
    WORLD.store(std::ptr::from_ref(world).cast_mut(), Ordering::Release);
    if size > 1 && params::PROGRESS.value().map_err(|e| failed(Failed::Parameter(e)))? == "thread" {
        world.engines.set_locking();
        // It lives as long as the process. What breaks the engine, it leaves to the next call to say.
        let run = || engine::wait(world.engine(), None, engine::Doing::serving("the progress thread"), |_| None::<()>);
        engine::without_signals(|| std::thread::Builder::new().name("mpi-progress".into()).spawn(run))
            .map_err(|e| Error::new(MPI_ERR_OTHER, format!("no thread could be started for WHIMBREL_PROGRESS=thread: {e}")))?;
    }
    attend_network(world)?;
    Ok(world)
}

/// Whether the network has its thread.
static ATTENDED: Ordered<bool> = Ordered::new(Level::Opening, false);

/// Starts the network's thread, where there is a network, and none has it yet.
pub(crate) fn attend_network(world: &'static World) -> Result<()> {
    let mut attended = ATTENDED.lock();
    if *attended {
        return Ok(());
    }
    let helps = params::PROGRESS.value().map_err(|e| failed(Failed::Parameter(e)))? == "auto";
    let given = world.engine().lock().network_thread(helps);
    if let Some(given) = given {
        *attended = true;
        // Nobody else is inside where there was no locking.
        world.engine().set_locking(true);
        let run = move || engine::run_network_thread(world.engine(), given);
        let thread = engine::without_signals(|| std::thread::Builder::new().name("mpi-network".into()).spawn(run))
            .map_err(|e| Error::new(MPI_ERR_OTHER, format!("no thread could be started for the network: {e}")))?;
        world.engine().lock().network_thread_started(thread.thread().clone(), helps);
    }
    Ok(())
}

/// A session begins to use the library. Sessions may be used by any thread, whatever the World model was asked for.
pub fn open_session() -> Result<()> {
    let mut users = users();
    let world = join(true)?;
    users.sessions += 1;
    if let Some(board) = world.board() {
        board.initialized();
    }
    Ok(())
}

/// A session is done. What still has to leave this process leaves before the last user of the library goes; while there are others, the messages under
/// way may be theirs, and whoever is the last waits for all.
pub fn close_session() -> Result<()> {
    let world = get()?;
    if users().alone() {
        drain(world, "MPI_Session_finalize")?;
        world.process.part(world.engine(), false).map_err(failed)?;
    }
    let mut users = users();
    users.sessions -= 1;
    leave(&users, world)
}

/// Tells the launcher, after the last user, that this process may end.
fn leave(users: &Users, world: &World) -> Result<()> {
    if users.world_model || users.sessions > 0 {
        return Ok(());
    }
    // Others may have asked in that context what kept this process from a collective. What those say there who are in a session that this process has not
    // begun stays for that one.
    mismatch::look(world);
    world.engine().lock().close_if_empty(comm::bootstrap());
    WORLD.store(std::ptr::null_mut(), Ordering::Release);
    world.process.finalized().map_err(failed)
}

/// Finalizes the World model (MPI-5.0 §11.2.2): what has been sent is delivered first.
pub fn finalize() -> Result<()> {
    match PHASE.load(Ordering::Acquire) {
        0 => return Err(unusable()),
        1 => {}
        _ => return Err(Error::new(MPI_ERR_OTHER, "MPI has been finalized already")),
    }
    let world = get()?;
    let comm = comm::find(MPI_COMM_WORLD)?;
    crate::buffered::flush(&Holder::Comm(comm), "MPI_Finalize")?;
    crate::buffered::flush(&Holder::Process, "MPI_Finalize")?;
    // Those that live finalize without those that have failed. Most wait for the last, and it is not known when that comes.
    comm.engine().expect_long_waits(true);
    let met = crate::collective::barrier(comm, "MPI_Finalize", Kind::Finalize);
    comm.engine().expect_long_waits(false);
    let met = met.or_else(|error| if error.class == MPI_ERR_PROC_ABORTED { Ok(()) } else { Err(error) }).and_then(|()| mismatch::leftovers(comm));
    // Where collectives have not matched, and the program goes on all the same, each process ends by itself.
    let parted = met.is_err() && mismatch::any(comm.context) && comm.errhandler() == MPI_ERRORS_RETURN;
    if !parted {
        met.clone()?;
    }
    drain(world, "MPI_Finalize")?;
    if !parted && !world.engine().lock().has_failures() && params::REPORT.value().map_err(|e| failed(Failed::Parameter(e)))? {
        report(world, comm)?;
    }
    world.process.part(world.engine(), true).map_err(failed)?;
    crate::dynamic::spawn::release_all();
    PHASE.store(2, Ordering::Release);
    comm::end();
    let mut users = users();
    users.world_model = false;
    leave(&users, world).and(met)
}

/// Lets go of everything that still has to leave this process; where others have failed, of what does so in time.
fn drain(world: &World, function: &'static str) -> Result<()> {
    let start = Instant::now();
    for cell in world.engines.all() {
        engine::wait(cell, world.board(), engine::Doing::call(function), |e| (e.settled() || e.gives_up(start)).then_some(())).map_err(fault)?;
    }
    Ok(())
}

/// Rank 0 prints what all ranks have counted.
fn report(world: &World, comm: &'static Comm) -> Result<()> {
    let mut words = world.counters().to_words();
    words.push(world.engine().lock().shared_bytes());
    words.push(now_ns() - world.start_ns);
    let bytes: Vec<u8> = words.iter().flat_map(|w| w.to_ne_bytes()).collect();
    let all = crate::exchange::gather_bytes(comm, &bytes)?;
    drain(world, "MPI_Finalize")?;
    if world.me == 0 {
        let rows: Vec<Vec<u64>> =
            all.chunks_exact(bytes.len()).map(|row| row.chunks_exact(8).map(|w| u64::from_ne_bytes(w.try_into().expect("eight bytes"))).collect()).collect();
        let counters: Vec<Counters> = rows.iter().filter_map(|row| Counters::from_words(&row[..Counters::WORDS])).collect();
        let most = |at: usize| rows.iter().map(|row| row[at]).max().unwrap_or(0);
        let summary = Summary { ranks: rows.len(), shared_bytes_max: most(Counters::WORDS), elapsed_ns: most(Counters::WORDS + 1) };
        eprint!("{}", trace::report(&counters, &summary));
    }
    let most = params::REPORT_ENVELOPES.value().map_err(|e| failed(Failed::Parameter(e)))?;
    if most > 0 { report_envelopes(world, comm, most) } else { Ok(()) }
}

/// Rank 0 prints up to `most` envelopes of each rank, with what became of the announcements of their receives.
fn report_envelopes(world: &World, comm: &'static Comm, most: usize) -> Result<()> {
    let mut mine: Vec<Announcements> = world.engines.all().flat_map(|cell| cell.lock().announcements()).collect();
    mine.sort_by_key(|envelope| std::cmp::Reverse(envelope.receives()));
    mine.truncate(most);
    let mut outgoing = vec![Vec::new(); comm.size() as usize];
    outgoing[0] = mine.iter().flat_map(Announcements::to_words).flat_map(u64::to_ne_bytes).collect();
    let all = crate::exchange::alltoall_bytes("MPI_Finalize", comm, &outgoing)?;
    drain(world, "MPI_Finalize")?;
    for (rank, bytes) in all.iter().enumerate() {
        let words: Vec<u64> = bytes.chunks_exact(8).map(|w| u64::from_ne_bytes(w.try_into().expect("eight bytes"))).collect();
        let envelopes: Vec<Announcements> = words.chunks_exact(Announcements::WORDS).filter_map(Announcements::from_words).collect();
        eprint!("{}", trace::report_envelopes(rank, &envelopes));
    }
    Ok(())
}

/// Ends the job (MPI-5.0 §9.8). Never returns.
pub fn abort(code: i32, message: &str) -> ! {
    match get() {
        Ok(world) => world.process.abort(code, message),
        _ => process::end(code, message),
    }
}

/// What an engine's fault is in MPI's words.
#[cold]
pub fn fault(fault: engine::Fault) -> Box<Error> {
    let class = match &fault {
        engine::Fault::Fabric(FabricError::Memory { .. } | FabricError::Segment { .. }) => MPI_ERR_NO_MEM,
        engine::Fault::Fabric(FabricError::Corrupt { .. }) => MPI_ERR_INTERN,
        engine::Fault::Fabric(FabricError::Peer { peer, why }) => {
            let who = match joined().filter(|world| *peer >= world.size) {
                Some(world) => format!("rank {} of another job", world.process.identity(*peer).rank),
                None => format!("rank {peer} of MPI_COMM_WORLD"),
            };
            return Error::new(MPI_ERR_PROC_ABORTED, format!("{who} cannot be reached: {why}"));
        }
        engine::Fault::Fabric(_) | engine::Fault::Program(_) => MPI_ERR_OTHER,
    };
    Error::new(class, fault.to_string())
}

/// Raises `error` of `function` on a communicator, or where no object applies, and gives the code to return (MPI-5.0 §9.3).
#[cold]
pub fn raise(comm: Option<&'static Comm>, function: &str, error: &Error) -> i32 {
    errors::remember(error.class, &format!("{function}: {}", error.detail));
    // Errors that belong to no communicator are raised on MPI_COMM_SELF, before initialization on the initial handler.
    let comm = comm.or_else(|| comm::find(MPI_COMM_SELF).ok());
    let handler = comm.map_or(initial_errhandler(), |c| c.errhandler());
    call_handler(handler, comm.map_or(MPI_COMM_NULL, |c| c.handle()), function, error)
}

/// Raises `error` of a call that was to make a communicator or session on the handler that was meant for it (MPI-5.0 §7.4.2, §11.3.1).
#[cold]
pub fn raise_on(handler: handle::Errhandler, function: &str, error: &Error) -> i32 {
    if errors::handler(handler).is_err() {
        return raise(None, function, error);
    }
    errors::remember(error.class, &format!("{function}: {}", error.detail));
    call_handler(handler, MPI_COMM_NULL, function, error)
}

fn call_handler(handler: handle::Errhandler, mut comm: handle::Comm, function: &str, error: &Error) -> i32 {
    let mut code = error.class;
    before_callback();
    match errors::handler(handler) {
        Ok(Handler::Return) => {}
        // SAFETY: the user's handler, called as the standard says.
        Ok(Handler::Comm(user)) => unsafe { user(&mut comm, &mut code) },
        Ok(Handler::Session(user)) => {
            let mut session = MPI_SESSION_NULL;
            // SAFETY: as above.
            unsafe { user(&mut session, &mut code) };
        }
        _ => {
            let on = comm::find(comm).map_or(String::new(), |c| format!(" on {}", comm::describe(c)));
            let who = joined().map_or_else(process::apparent_rank, |world| Some(world.me));
            let who = who.map_or(String::new(), |rank| format!("rank {rank}: "));
            abort(code, &format!("{who}{function} failed{on}: {}: {}", errors::message(error.class), error.detail));
        }
    }
    error.class
}

/// The name of this host, at most `MPI_MAX_PROCESSOR_NAME - 1` bytes.
pub fn processor_name() -> Result<Vec<u8>> {
    let name = engine::process::host_name().map_err(|errno| Error::new(MPI_ERR_OTHER, format!("gethostname failed with error {errno}")))?;
    Ok(name[..name.len().min(MPI_MAX_PROCESSOR_NAME - 1)].to_vec())
}
