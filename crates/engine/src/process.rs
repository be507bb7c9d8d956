//! This process among the others of its job: where launcher, fabric and engine come together.

pub use crate::failed::Failed;

use crate::connected::{BusinessCard, Connected, Identity};
use crate::{Cell, Config, Engine, LivenessWatch, Rendezvous, Speculation, open};
use fabric::local::{self, LocalPeers};
use fabric::reliable::{JobKey, Protection};
use launch::{Board, Launcher, Neighbours, Start};
use std::io::Read;
use std::os::unix::fs::MetadataExt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, TryLockError};
use std::time::{Duration, Instant};

const _: () = assert!(launch::JOB_RANKS_MAX == proto::wire::Context::PROCESSES_MAX);

/// Under what name each rank says where it listens and, in a second line, on which host; and how long it may take until it does.
const CARD: &str = "network";
const CARD_WITHIN: Duration = Duration::from_secs(60);
/// Longest key file that is read, bytes.
const KEY_FILE_BYTES_MAX: u64 = 256;
/// How long a process stays after its last acknowledgement, where it does not know when the others are done; and between looks.
const FAREWELL: Duration = Duration::from_millis(50);
const FAREWELL_NAP: Duration = Duration::from_millis(1);
/// After that long it matters whether those that do not come are alive; and so long they may take to acknowledge a last word.
const LIVENESS_AFTER: Duration = Duration::from_secs(1);
/// Longest that the program's unwritten output may hold the end of the job up.
const FLUSH_MAX: Duration = Duration::from_secs(1);

fn protection() -> Result<Protection, Failed> {
    Ok(params::PROTECTION.value()?.parse().expect("the table's words are those of the modes"))
}

/// What the file that `WHIMBREL_KEY_FILE` names holds: 64 hexadecimal digits, which nobody but this user may read.
fn key_file() -> Result<Option<JobKey>, Failed> {
    let path = params::KEY_FILE.value()?;
    if path.is_empty() {
        return Ok(None);
    }
    let refused = |why: String| Failed::Launch(launch::Error::new(format!("WHIMBREL_KEY_FILE={path}: {why}")));
    let file = std::fs::File::open(path).map_err(|error| refused(error.to_string()))?;
    let facts = file.metadata().map_err(|error| refused(error.to_string()))?;
    // SAFETY: a plain system call.
    let own = unsafe { libc::geteuid() };
    if !facts.is_file() || facts.uid() != own || facts.mode() & 0o077 != 0 {
        return Err(refused(format!("must be a file of user {own} with mode 600, and is one of user {} with mode {:o}", facts.uid(), facts.mode() & 0o7777)));
    }
    let mut text = String::new();
    file.take(KEY_FILE_BYTES_MAX).read_to_string(&mut text).map_err(|error| refused(error.to_string()))?;
    match (text.trim().len(), JobKey::from_hex(text.trim())) {
        (_, Some(key)) => Ok(Some(key)),
        (length, None) => Err(refused(format!("must hold 64 hexadecimal digits (openssl rand -hex 32), and holds {length} characters"))),
    }
}

/// Opens this process' sockets, with the limits that the user has set.
fn open_network(me: u32, unexpected_bytes_max: u64, headers_bytes_max: u64, peer_timeout_ms: u64) -> Result<fabric::Network, Failed> {
    open::network(me, protection()?, |limits| {
        // A sender whose account is small keeps what is long itself.
        let half_bytes = (unexpected_bytes_max / 2).max(proto::reliability::COPIED_BYTES_MAX as u64);
        limits.eager_bytes_max = half_bytes.min(limits.eager_bytes_max as u64) as u32;
        limits.credit_bytes = unexpected_bytes_max.max(2 * limits.eager_bytes_max as u64);
        limits.credit_header_bytes = headers_bytes_max.max(limits.credit_bytes);
        limits.peer_timeout_ns = peer_timeout_ms * 1_000_000;
    })
}

/// What names the job among all others: made of its key, or thrown by a process that is alone.
fn job_of(launcher: Option<&Arc<Mutex<Launcher>>>) -> Result<[u8; 16], Failed> {
    let key = match launcher.and_then(|launcher| lock(launcher).key().copied()) {
        Some(key) => JobKey::new(key).mixed(&JobKey::new(*b"whimbrel names of jobs, not keys")),
        None => JobKey::random().map_err(|error| launch::Error::new(format!("cannot get random bytes: {error}")))?,
    };
    Ok(*key.bytes().first_chunk().expect("32 bytes"))
}

/// This process' place in its job.
pub struct Process {
    pub me: u32,
    pub size: u32,
    pub appnum: i32,
    pub universe_size: u32,
    launcher: Option<Arc<Mutex<Launcher>>>,
    neighbours: Arc<OnceLock<Neighbours>>,
    local_ranks: Vec<u32>,
    memory_ranks: Vec<u32>,
    board: Option<&'static Board>,
    connected: Mutex<Connected>,
    parent_port: Option<String>,
    /// The launcher has been told that this process may end.
    told: AtomicBool,
    /// A thread of this process waits in the launcher for the other ranks, which may never come there.
    meeting: Arc<AtomicBool>,
}

impl Process {
    /// Finds out how this process was started, makes its segment known, and gives the engine that reaches the others.
    pub fn join() -> Result<(Process, Engine), Failed> {
        params::check()?;
        let (launcher, board) = match launch::start()? {
            Start::Singleton => (None, None),
            Start::Job(launcher) => {
                // The board is looked at for as long as the process lives, also by threads that outlive finalization.
                let launcher = Arc::new(Mutex::new(launcher));
                let _ = FOR_EVER.set(launcher.clone());
                *joining() = Some(launcher.clone());
                let board = lock(&launcher).board().map(|board| board as *const Board);
                // SAFETY: the launcher lives in an Arc of which FOR_EVER holds a count; the board does not move in it.
                (Some(launcher), board.map(|board| unsafe { &*board }))
            }
        };
        let (me, size, appnum, universe_size) = match &launcher {
            None => (0, 1, 0, std::thread::available_parallelism().map_or(1, |cores| cores.get() as u32)),
            Some(launcher) => {
                let l = lock(launcher);
                (l.rank(), l.size(), l.appnum(), l.universe_size())
            }
        };
        if params::BACKTRACE.value()? {
            crate::crash::watch(me, board);
        }
        let (neighbours, meeting) = (Arc::<OnceLock<Neighbours>>::default(), Arc::<AtomicBool>::default());
        let local = LocalPeers::new(
            local::Config {
                index: me,
                processes: size,
                memory_bytes: params::RING_MEMORY.value()? as u64,
                single_copy: params::SINGLE_COPY.value()?,
                map_memory: params::MAP_MEMORY.value()?,
                answer_within: local::ANSWER_WITHIN,
            },
            resolver(launcher.clone(), neighbours.clone()),
        )?;
        let reach = open::reach()?;
        let unexpected_bytes_max = params::UNEXPECTED_MAX.value()? as u64;
        let headers_bytes_max = 8 * unexpected_bytes_max;
        let peer_timeout_ms = params::PEER_TIMEOUT.value()? as u64;
        let (cores, yields_reach, local_ranks, node) = match &launcher {
            None => (1, true, vec![0], None),
            Some(launcher) => {
                let mut l = lock(launcher);
                l.publish(local.segment())?;
                let mut node = None;
                if size > 1 && reach.network && (!reach.memory || l.may_be_remote()) {
                    let opened = open_network(me, unexpected_bytes_max, headers_bytes_max, peer_timeout_ms)?;
                    l.put(CARD, format!("{}\n{}", opened.card(), launch::Host::here().name).as_bytes())?;
                    node = Some(opened);
                }
                l.meet()?;
                if let Some(all) = l.neighbours() {
                    let _ = neighbours.set(all);
                }
                let remote = if reach.memory { l.remote_rank() } else { None };
                match remote {
                    Some(remote) if node.is_none() => {
                        let (here, there) = (l.host(me)?, l.host(remote)?);
                        return Err(Failed::Launch(launch::Error::new(format!(
                            "rank {me} runs on {here} and rank {remote} on {there}: WHIMBREL_FABRIC={} does not reach from one to the other",
                            reach.word
                        ))));
                    }
                    None if reach.memory => node = None,
                    _ => {}
                }
                if let Some(node) = &mut node {
                    let key = l.key().ok_or_else(|| launch::Error::new(format!("{} gave no key for the job", l.name())))?;
                    let key = JobKey::new(*key);
                    let key = key_file()?.map_or(key.clone(), |secret| secret.mixed(&key));
                    node.set_key(&key, protection()?);
                }
                let local_ranks = l.local_ranks().to_vec();
                (l.cores(), l.yielding_reaches() || l.cores() as usize >= local_ranks.len(), local_ranks, node)
            }
        };
        let memory_ranks = if reach.memory { local_ranks.clone() } else { vec![me] };
        let config = Config {
            me,
            processes: size,
            local_processes: local_ranks.len() as u32,
            cores,
            eager_bytes_max: params::EAGER_MAX.value()?,
            unexpected_bytes_max,
            headers_bytes_max,
            spin_ns: params::SPIN.value()? as u64 * 1000,
            yield_ns: params::YIELD.value()? as u64 * 1000,
            yields_reach,
            cooperative_bytes_min: params::COOPERATIVE_MIN.value()? as u64,
            costs_from: crate::costs::setting().map_err(launch::Error::new)?,
            eager_is_set: params::EAGER_MAX.is_set()?,
            cooperative_is_set: params::COOPERATIVE_MIN.is_set()?,
            leads_host: memory_ranks.first() == Some(&me),
            speculation: match params::SPECULATION.value()? {
                "off" => Speculation::Off,
                "always" => Speculation::Always,
                _ => Speculation::Adaptive,
            },
            rendezvous: match params::RENDEZVOUS.value()? {
                "acks" => Rendezvous::Acks,
                _ => Rendezvous::Sequence,
            },
            rtr_usage_min_percent: params::RTR_USAGE_MIN.value()? as u32,
            help: params::PROGRESS.value()? == "auto",
            peer_timeout_ms,
            ..Config::default()
        };
        // With nobody to share it with, memory has no doorbell worth waiting for.
        let mut engine = Engine::new(config, (memory_ranks.len() > 1 || node.is_none()).then_some(local));
        // A library that was preloaded, or an earlier session, may have given memory out already. Where peers cannot be told, they copy as from other memory.
        let _ = engine.give_out();
        if let (Some(node), Some(launcher)) = (node, launcher.clone()) {
            let meeting = meeting.clone();
            let cards = move |peer, waits| {
                let mut free = match waits && !meeting.load(Ordering::Relaxed) {
                    true => lock(&launcher),
                    false => launcher.try_lock().map_err(|_| "the launcher is busy")?,
                };
                let said = free.get(peer, CARD, CARD_WITHIN).map_err(|e| e.to_string())?;
                let lines = std::str::from_utf8(&said).ok().and_then(|text| text.split_once('\n'));
                let card = lines.map(|(card, host)| (card.to_owned(), host.to_owned()));
                card.ok_or_else(|| format!("it says that it listens at {:?}", String::from_utf8_lossy(&said)))
            };
            engine.reach_remote(node, &memory_ranks, Box::new(cards))?;
        }
        if let Some(all) = neighbours.get().cloned().filter(|_| memory_ranks.len() > 1) {
            engine.look_after(Box::new(move |rank| all.has_ended(rank)));
        }
        joining().take();
        let parent_port = launcher.as_ref().and_then(|launcher| lock(launcher).parent_port());
        let connected = Mutex::new(Connected::new(Identity { job: job_of(launcher.as_ref())?, rank: me }, size));
        Ok((
            Process {
                me,
                size,
                appnum,
                universe_size,
                launcher,
                neighbours,
                local_ranks,
                memory_ranks,
                board,
                connected,
                parent_port,
                told: AtomicBool::new(false),
                meeting,
            },
            engine,
        ))
    }

    /// Gives an engine the segments of the others.
    pub fn resolver(&self) -> local::Resolver {
        resolver(self.launcher.clone(), self.neighbours.clone())
    }

    /// Where this process says what it is doing.
    #[inline]
    pub fn board(&self) -> Option<&'static Board> {
        self.board
    }

    /// Processes on this host, ascending; this one is among them. Whether they share memory with it is another question.
    pub fn local_ranks(&self) -> &[u32] {
        &self.local_ranks
    }

    /// Processes that this one reaches through memory, ascending; this one is among them.
    pub fn memory_ranks(&self) -> &[u32] {
        &self.memory_ranks
    }

    /// Waits, where there is a network, until nobody needs this process any more to hear again what was lost. `together`: every rank of the job calls
    /// this now; otherwise sessions may follow, to which a launcher that has been told of the end would not say where others listen. Where a process has
    /// failed, nobody waits for all ranks: this ends within twice the silence that is borne of a peer, and a second.
    pub fn part(&self, cell: &Cell<Engine>, together: bool) -> Result<(), Failed> {
        crate::costs::finish();
        let Some(launcher) = &self.launcher else {
            self.leave_foreign(cell);
            return Ok(());
        };
        if !cell.lock().networked() {
            if together && cell.lock().has_failures() {
                // Those of this host that live may wait for this one.
                cell.lock().part();
                let start = Instant::now();
                while cell.lock().progress().is_ok() && !cell.lock().settled() && start.elapsed() < LIVENESS_AFTER {
                    std::thread::sleep(FAREWELL_NAP);
                }
            }
            return Ok(());
        }
        let began = Instant::now();
        let look = || is_quiet(cell, began);
        while !look() {}
        // Those that have failed will not come.
        if together && !self.told.load(Ordering::Relaxed) && !cell.lock().has_failures() {
            let (launcher, mut checked, mut liveness) = (launcher.clone(), Instant::now(), LivenessWatch::new(cell));
            self.meeting.store(true, Ordering::Relaxed);
            let all = launch::without_signals(|| std::thread::spawn(move || lock(&launcher).fence()));
            while !all.is_finished() && !cell.lock().has_failures() {
                look();
                if checked.elapsed() > LIVENESS_AFTER {
                    checked = Instant::now();
                    liveness.look(&mut cell.lock(), None);
                }
            }
            drop(liveness);
            if all.is_finished() {
                self.meeting.store(false, Ordering::Relaxed);
                self.leave_foreign(cell);
                return all.join().map_err(|_| launch::Error::new("the thread that met the other ranks ended early"))?.map_err(Failed::Launch);
            }
        }
        if !together && !self.told.load(Ordering::Relaxed) {
            cell.lock().connect_all().map_err(|fault| launch::Error::new(fault.to_string()))?;
        }
        if together && !self.told.load(Ordering::Relaxed) {
            cell.lock().part();
        }
        let start = Instant::now();
        while !look() && start.elapsed() < LIVENESS_AFTER || start.elapsed() < FAREWELL {}
        Ok(())
    }

    /// Stays until what was sent to processes of other jobs has arrived, and for a moment for those that have not heard that theirs has.
    fn leave_foreign(&self, cell: &Cell<Engine>) {
        if !self.knows_foreign() {
            return;
        }
        let start = Instant::now();
        while !is_quiet(cell, start) {}
        let last = Instant::now();
        while last.elapsed() < FAREWELL {
            is_quiet(cell, start);
        }
    }

    /// Whether this process has ever been connected to one of another job.
    pub fn knows_foreign(&self) -> bool {
        self.connected().knows_any()
    }

    fn connected(&self) -> MutexGuard<'_, Connected> {
        self.connected.lock().unwrap_or_else(|e| e.into_inner())
    }

    /// The port of the processes that have spawned this one's job, if any have.
    pub fn parent_port(&self) -> Option<&str> {
        self.parent_port.as_deref()
    }

    /// Bits that nobody can guess.
    ///
    /// # Errors
    /// The system gives none.
    pub fn draw(&self) -> Result<u64, Failed> {
        let key = JobKey::random().map_err(|error| launch::Error::new(format!("cannot get random bytes: {error}")))?;
        Ok(u64::from_ne_bytes(*key.bytes().first_chunk().expect("32 bytes")))
    }

    /// Who the process of this number is.
    pub fn identity(&self, process: u32) -> Identity {
        self.connected().identity(process)
    }

    /// The number of a process that is known.
    pub fn number_of(&self, identity: Identity) -> Option<u32> {
        self.connected().number(identity)
    }

    /// Makes this process reachable for those of other jobs: what they have to know. Whoever calls this makes sure that the network has its thread then
    /// ([`Engine::network_thread`]).
    ///
    /// # Errors
    /// There is no network, or it may not be used.
    pub fn business_card(&self, cell: &Cell<Engine>) -> Result<BusinessCard, Failed> {
        let networked = cell.lock().networked();
        let opened = match networked {
            true => None,
            false if !open::reach()?.network => {
                let word = open::reach()?.word;
                return Err(launch::Error::new(format!("other jobs are reached through the network, which WHIMBREL_FABRIC={word} excludes")).into());
            }
            false => {
                let (unexpected_bytes_max, peer_timeout_ms) = (params::UNEXPECTED_MAX.value()? as u64, params::PEER_TIMEOUT.value()? as u64);
                Some(open_network(self.me, unexpected_bytes_max, 8 * unexpected_bytes_max, peer_timeout_ms)?)
            }
        };
        let mut engine = cell.lock();
        if let Some(node) = opened {
            engine.reach_foreign(node)?;
        }
        self.connected().business_card(&mut engine, launch::Host::here().name, protection()?)
    }

    /// The number by which this process knows the one that has said this of itself.
    ///
    /// # Errors
    /// It cannot be reached, or too many are known.
    pub fn connect_foreign(&self, cell: &Cell<Engine>, one: &BusinessCard) -> Result<u32, Failed> {
        let mut engine = cell.lock();
        self.connected().connect_foreign(&mut engine, one)
    }

    /// From now on, ending is normal. Sessions may follow.
    pub fn finalized(&self) -> Result<(), Failed> {
        match &self.launcher {
            // It hears that the process has ended when that has ended.
            Some(_) if self.meeting.load(Ordering::Relaxed) => Ok(()),
            Some(launcher) => {
                self.told.store(true, Ordering::Relaxed);
                Ok(lock(launcher).finalized()?)
            }
            None => Ok(()),
        }
    }

    /// Ends the whole job with exit status `code`. Never returns.
    pub fn abort(&self, code: i32, message: &str) -> ! {
        flush_streams();
        match &self.launcher {
            Some(launcher) if !self.meeting.load(Ordering::Relaxed) => lock(launcher).abort(code, message),
            _ => end(code, message),
        }
    }
}

/// Writes what the program has left in the buffers of C's streams, as `exit` would. It takes at most [`FLUSH_MAX`]: a reader
/// that does not read, or a thread that holds a stream locked, must not keep the job from ending.
fn flush_streams() {
    let (done, flushed) = std::sync::mpsc::channel();
    let flush = move || {
        // SAFETY: `fflush` takes a null pointer, which means all streams, and locks each of them itself.
        unsafe { libc::fflush(std::ptr::null_mut()) };
        let _ = done.send(());
    };
    if std::thread::Builder::new().name("mpi-flush".into()).spawn(flush).is_ok() {
        let _ = flushed.recv_timeout(FLUSH_MAX);
    }
}

/// Makes progress on the network and sleeps for a moment. Whether nobody needs this process any more to hear again what was lost; also where, having lost
/// others, it has waited for long enough since `began`.
fn is_quiet(cell: &Cell<Engine>, began: Instant) -> bool {
    let mut engine = cell.lock();
    let over = engine.progress().is_err() || engine.remote_quiet() || engine.gives_up(began);
    let sleep = engine.sleep_remote();
    drop(engine);
    if let Some((watch, due)) = sleep {
        watch.wait_sources(due.map_or(FAREWELL_NAP, |due| due.min(FAREWELL_NAP)).as_nanos() as u64);
    }
    over
}

/// A share of the launcher that is never given up, so that its board can be looked at as long as the process lives.
static FOR_EVER: OnceLock<Arc<Mutex<Launcher>>> = OnceLock::new();

/// The launcher of a process that has begun to join its job, until it has joined it.
static JOINING: Mutex<Option<Arc<Mutex<Launcher>>>> = Mutex::new(None);

fn joining() -> MutexGuard<'static, Option<Arc<Mutex<Launcher>>>> {
    JOINING.lock().unwrap_or_else(|e| e.into_inner())
}

/// Ends this process, which is in no job; or all of a job that it could not join, which would wait for it. Never returns.
pub fn end(code: i32, message: &str) -> ! {
    flush_streams();
    if let Some(launcher) = joining().take() {
        lock(&launcher).abort(code, message);
    }
    launch::last_line::print(&format!("whimbrel: {message}"));
    std::process::exit(if code & 0xff == 0 { 1 } else { code & 0xff })
}

fn resolver(launcher: Option<Arc<Mutex<Launcher>>>, neighbours: Arc<OnceLock<Neighbours>>) -> local::Resolver {
    match launcher {
        Some(launcher) => Box::new(move |peer, within| {
            let answer = match (neighbours.get(), launcher.try_lock()) {
                (Some(all), _) => all.fetch(peer, within),
                (None, Ok(mut launcher)) => launcher.fetch(peer, within),
                (None, Err(TryLockError::Poisoned(launcher))) => launcher.into_inner().fetch(peer, within),
                // Another thread waits there for something else.
                (None, Err(TryLockError::WouldBlock)) => Ok(None),
            };
            answer.map_err(|e| e.to_string())
        }),
        None => Box::new(|peer, _| Err(format!("process {peer} does not exist: this process was started alone"))),
    }
}

fn lock(launcher: &Arc<Mutex<Launcher>>) -> MutexGuard<'_, Launcher> {
    launcher.lock().unwrap_or_else(|e| e.into_inner())
}

/// The rank that the launcher's variables give this process, for messages about what goes wrong before [`Process::join`].
pub fn apparent_rank() -> Option<u32> {
    launch::environment::apparent_rank()
}

/// The name of this host. `Err` holds the system's error number.
pub fn host_name() -> Result<Vec<u8>, i32> {
    let mut name = [0u8; 256];
    // SAFETY: the array is writable for its length, less one byte that stays 0.
    let failed = unsafe { libc::gethostname(name.as_mut_ptr().cast(), name.len() - 1) } != 0;
    if failed {
        return Err(std::io::Error::last_os_error().raw_os_error().unwrap_or(0));
    }
    Ok(name.into_iter().take_while(|byte| *byte != 0).collect())
}
