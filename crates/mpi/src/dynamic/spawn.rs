//! Starting processes (MPI-5.0 §11.8): an `mpiexec` of this library starts them on this host ([`engine::spawn`]), and they connect to a port of the root.

use super::{Begin, SPAWNED_WITHIN, background_thread, check_root, establish, going_to};
use crate::comm::{self, Comm};
use crate::consts::*;
use crate::error::{Error, Result};
use crate::handle;
use crate::info::{self, Pairs};
use crate::world;
use engine::order::{Level, Ordered};
use engine::port::{Missed, Patience, Port};
use engine::spawn::{Program, Spawn, Spawned};
use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// Between looks whether those that were started are still there, while they are waited for.
const LOOK: Duration = Duration::from_millis(200);
/// Most triplets of the info key `soft`.
const SOFT_MAX: usize = 1000;

/// One program that is to be started.
pub struct Wanted {
    pub command: Vec<u8>,
    pub arguments: Vec<Vec<u8>>,
    pub processes_max: i32,
    pub info: handle::Info,
}

/// A job that this process has started, and its processes.
struct Started {
    spawn: Spawn,
    processes: Vec<u32>,
}

static STARTED: Ordered<Vec<Started>> = Ordered::new(Level::Table, Vec::new());

/// `MPI_Comm_spawn` and `MPI_Comm_spawn_multiple`. `wanted` matters at the root.
///
/// # Errors
/// `MPI_ERR_SPAWN` on all ranks where a program cannot be started, or its processes end before they have called `MPI_Init`; the class of a wrong argument.
pub fn spawn(function: &'static str, comm: &'static Comm, root: i32, wanted: impl FnOnce() -> Result<Vec<Wanted>>) -> Result<Arc<Comm>> {
    let root = check_root(comm, root)?;
    let world = world::get()?;
    let running = Arc::new(Mutex::new(None));
    let kept = running.clone();
    let begin = || -> Result<Begin> {
        let programs = wanted()?.iter().map(program).collect::<Result<Vec<Program>>>()?;
        let addresses = engine::addresses().map_err(|error| Error::new(MPI_ERR_SPAWN, error.to_string()))?;
        let port = Port::open(&addresses).map_err(super::missed)?;
        let job = Spawned { programs, parent: port.name().into(), universe_size: world.universe_size };
        if job.size() > u64::from(engine::spawn::PROCESSES_MAX) {
            let most = engine::spawn::PROCESSES_MAX;
            return Err(Error::new(MPI_ERR_SPAWN, format!("{} processes are asked for, and {most} are the most that mpiexec starts", job.size())));
        }
        Ok(Box::new(move |patience| {
            let spawn = engine::spawn::start(&job).map_err(|why| Missed::NotStarted(why.to_string()))?;
            let spawn = kept.lock().unwrap_or_else(|e| e.into_inner()).insert(spawn).launcher_id();
            accept(&port, patience, spawn)
        }))
    };
    let made = establish(function, comm, root, begin);
    let spawn = running.lock().unwrap_or_else(|e| e.into_inner()).take();
    let Some(spawn) = spawn else { return made };
    let Ok(inter) = &made else {
        // A job that has not become connected ends with its lifeline.
        let launcher = spawn.launcher_id();
        drop(spawn);
        background_thread("mpi-spawned", move || drop(engine::spawn::outcome(launcher)))?;
        return made;
    };
    let processes: Vec<u32> = inter.remote.iter().flat_map(|group| group.processes()).collect();
    watch(&spawn, processes.clone())?;
    STARTED.lock().push(Started { spawn, processes });
    made
}

/// Waits for the first of the new processes; not for longer than their launcher lives.
fn accept(port: &Port, patience: Patience, launcher: u32) -> std::result::Result<engine::port::Conversation, Missed> {
    loop {
        match port.accept(Patience { until: Some(Instant::now() + LOOK), ..patience }) {
            Err(Missed::Late(_)) if engine::spawn::lives(launcher) => {}
            Err(Missed::Late(_)) => return Err(Missed::NotStarted("the processes have ended before they had called MPI_Init".into())),
            met => return met,
        }
    }
}

/// Sees to it that processes count as failed when their job ends badly while they are connected.
fn watch(spawn: &Spawn, processes: Vec<u32>) -> Result<()> {
    let world = world::get()?;
    let launcher = spawn.launcher_id();
    background_thread("mpi-spawned", move || {
        if let Some(why) = engine::spawn::outcome(launcher) {
            world.engine().lock().lose_foreign(&processes, &why);
        }
    })
    .map(drop)
}

/// Jobs with none of whose processes this one has a communicator any more live on by themselves.
pub fn release_disconnected() {
    let Ok(world) = world::get() else { return };
    let started = std::mem::take(&mut *STARTED.lock());
    let (linked, free): (Vec<Started>, Vec<Started>) = started.into_iter().partition(|one| world.engine().lock().is_linked(&one.processes));
    STARTED.lock().extend(linked);
    free.into_iter().for_each(|mut one| one.spawn.release());
}

/// This process ends as it should: what it has started goes on.
pub fn release_all() {
    std::mem::take(&mut *STARTED.lock()).into_iter().for_each(|mut one| one.spawn.release());
}

/// A spawned process meets those that have spawned it, while it is initialized.
pub fn meet_parents() -> Result<Option<handle::Comm>> {
    let Some(port) = world::get()?.process.parent_port() else { return Ok(None) };
    let port = port.to_owned();
    let inter = establish("MPI_Init", comm::find(MPI_COMM_WORLD)?, 0, || Ok(going_to(port, SPAWNED_WITHIN)))?;
    // MPI-5.0 §7.8.
    *inter.name.lock().unwrap_or_else(|e| e.into_inner()) = b"MPI_COMM_PARENT".to_vec();
    comm::publish(inter).map(Some)
}

fn program(wanted: &Wanted) -> Result<Program> {
    let hints = info::hints(wanted.info)?;
    let text = |key: &[u8]| -> Result<Option<OsString>> { Ok(hints.value(key)?.map(|value| OsString::from_vec(value.to_vec()))) };
    if wanted.command.is_empty() {
        return Err(Error::new(MPI_ERR_ARG, "command is empty"));
    }
    let most = u32::try_from(wanted.processes_max).ok().filter(|most| *most > 0);
    let most = most.ok_or_else(|| Error::new(MPI_ERR_ARG, format!("maxprocs = {} is not positive", wanted.processes_max)))?;
    check_place(&hints)?;
    Ok(Program {
        program: OsString::from_vec(wanted.command.clone()),
        arguments: wanted.arguments.iter().cloned().map(OsString::from_vec).collect(),
        count: soft(&hints, most)?,
        wdir: text(b"wdir")?,
        path: text(b"path")?,
        errhandler: errhandler(&hints)?,
    })
}

/// The keys that say where the processes run: nowhere but here.
fn check_place(hints: &Pairs) -> Result<()> {
    let refused =
        |key: &str, value: &[u8], why: &str| Err(Error::new(MPI_ERR_SPAWN, format!("the info value {key} = {:?} {why}", String::from_utf8_lossy(value))));
    if let Some(host) = hints.value(b"host")? {
        let own = world::processor_name()?;
        let here = |name: &[u8]| name == own || [&b"localhost"[..], b"127.0.0.1", b"::1"].contains(&name);
        if !host.split(|byte| *byte == b',').all(|name| here(name.trim_ascii())) {
            return refused("host", host, "names another host than this one, and processes are spawned on this one alone");
        }
    }
    if let Some(arch) = hints.value(b"arch")?
        && arch != std::env::consts::ARCH.as_bytes()
    {
        return refused("arch", arch, &format!("is not this machine's architecture ({})", std::env::consts::ARCH));
    }
    match hints.value(b"file")? {
        Some(file) => refused("file", file, "names a file, and this library reads no such files"),
        None => Ok(()),
    }
}

/// The key `mpi_initial_errhandler` (MPI-5.0 §11.8.4).
fn errhandler(hints: &Pairs) -> Result<Option<OsString>> {
    let Some(name) = hints.value(b"mpi_initial_errhandler")? else { return Ok(None) };
    let known = [&b"mpi_errors_are_fatal"[..], b"mpi_errors_abort", b"mpi_errors_return"];
    match known.contains(&name) {
        true => Ok(Some(OsString::from_vec(name.to_vec()))),
        // As any hint that is not known (MPI-5.0 §10).
        false => Ok(None),
    }
}

/// How many processes: all, or the largest number that the key `soft` has, a list of `a`, `a:b` and `a:b:c`.
fn soft(hints: &Pairs, most: u32) -> Result<u32> {
    let Some(text) = hints.value(b"soft")? else { return Ok(most) };
    let wrong = || Error::new(MPI_ERR_SPAWN, format!("the info value soft = {:?} has no number of processes up to {most}", String::from_utf8_lossy(text)));
    let text = std::str::from_utf8(text).map_err(|_| wrong())?;
    let mut best = None;
    for triplet in text.split(',').take(SOFT_MAX) {
        let numbers: Vec<i64> = triplet.split(':').map(|number| number.trim().parse()).collect::<std::result::Result<_, _>>().map_err(|_| wrong())?;
        let (first, last, step) = match *numbers {
            [one] => (one, one, 1),
            [first, last] => (first, last, 1),
            [first, last, step] if step != 0 => (first, last, step),
            _ => return Err(wrong()),
        };
        let (low, high) = (first.min(last), first.max(last));
        // The largest of first, first + step, … within both ends and `most`.
        let top = high.min(i64::from(most));
        let found = if (last - first).signum() * step.signum() < 0 {
            None
        } else if step > 0 {
            (top >= first).then(|| first + (top - first) / step * step)
        } else {
            let skipped = ((first - top).max(0) + -step - 1) / -step;
            Some(first + skipped * step).filter(|number| *number >= low)
        };
        best = best.max(found.filter(|number| *number >= 1));
    }
    best.map(|count| count as u32).ok_or_else(wrong)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(text: &str, most: u32) -> Option<u32> {
        let mut hints = Pairs::new();
        hints.set(b"soft", text.as_bytes()).unwrap();
        soft(&hints, most).ok()
    }

    #[test]
    fn soft_gives_the_largest_number_that_may_be_had() {
        for (text, most, count) in [
            ("4", 4, Some(4)),
            ("2,3", 5, Some(3)),
            ("1:8:2", 8, Some(7)),
            ("1:8:2", 6, Some(5)),
            ("8:1:-3", 7, Some(5)),
            ("8:1:-3", 1, None),
            ("9:1:-3", 9, Some(9)),
            ("5", 4, None),
            ("0:0", 4, None),
            ("x", 4, None),
            ("1:2:0", 4, None),
            ("1:4:-1", 4, None),
            ("2:4", 100, Some(4)),
        ] {
            assert_eq!(of(text, most), count, "{text} up to {most}");
        }
        assert_eq!(soft(&Pairs::new(), 3).unwrap(), 3);
    }
}
