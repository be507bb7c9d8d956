//! Sessions (MPI-5.0 §11.3): handles to the library that are opened and closed without the World model.

use crate::buffered::Attached;
use crate::consts::*;
use crate::error::{Error, Result};
use crate::errors::{self, Handler};
use crate::group::Group;
use crate::handle;
use crate::info::{self, Pairs};
use crate::memory_kinds::{MEMORY_KINDS, memory_kinds, memory_kinds_of_world};
use crate::table::Table;
use crate::world;
use engine::order::{Level, Ordered, before_callback};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// A session.
pub struct Session {
    errhandler: AtomicUsize,
    thread_level: i32,
    /// Kinds of memory that the program may hand over: the value of `mpi_memory_alloc_kinds`.
    memory_kinds: String,
    /// The buffer for buffered sends on communicators of this session.
    pub buffer: Ordered<Option<Attached>>,
}

static SESSIONS: Table<Session> = Table::new();

/// Names of the process sets that every session has.
pub const PSETS: [&str; 2] = ["mpi://WORLD", "mpi://SELF"];

const LEVELS: [(&str, i32); 4] = [
    ("MPI_THREAD_SINGLE", MPI_THREAD_SINGLE),
    ("MPI_THREAD_FUNNELED", MPI_THREAD_FUNNELED),
    ("MPI_THREAD_SERIALIZED", MPI_THREAD_SERIALIZED),
    ("MPI_THREAD_MULTIPLE", MPI_THREAD_MULTIPLE),
];

impl Session {
    pub fn errhandler(&self) -> handle::Errhandler {
        handle::Errhandler(self.errhandler.load(Ordering::Relaxed))
    }

    /// Attaches an error handler and lets the old one go.
    pub fn set_errhandler(&self, new: handle::Errhandler) -> Result<()> {
        check_handler(new)?;
        errors::retain_handler(new)?;
        let old = self.errhandler.swap(new.0, Ordering::Relaxed);
        errors::release_handler(handle::Errhandler(old))
    }

    /// `MPI_Session_get_info`: what the session was given that is in use.
    pub fn info(&self) -> Result<Pairs> {
        let mut pairs = Pairs::new();
        let level = LEVELS.iter().find(|(_, level)| *level == self.thread_level).map_or("", |(name, _)| name);
        pairs.set(b"thread_level", level.as_bytes())?;
        pairs.set(MEMORY_KINDS.as_bytes(), self.memory_kinds.as_bytes())?;
        Ok(pairs)
    }

    /// The value of `mpi_memory_alloc_kinds` here and on all communicators that come from this session.
    pub fn memory_kinds(&self) -> &str {
        &self.memory_kinds
    }
}

fn check_handler(handler: handle::Errhandler) -> Result<()> {
    match errors::handler(handler)? {
        Handler::Comm(_) | Handler::Win(_) | Handler::File(_) => Err(Error::new(MPI_ERR_ERRHANDLER, "the error handler is not one of sessions")),
        _ => Ok(()),
    }
}

/// `MPI_Session_init`. `MPI_ERRHANDLER_NULL` is no error handler.
///
/// # Errors
/// `MPI_ERR_ERRHANDLER`, `MPI_ERR_INFO`, `MPI_ERR_INFO_VALUE` when `thread_level` names no thread level, or what keeps this process from joining its job.
pub fn init(given: handle::Info, errhandler: handle::Errhandler) -> Result<handle::Session> {
    check_handler(errhandler)?;
    let hints = info::hints(given)?;
    let thread_level = match hints.value(b"thread_level")? {
        None => MPI_THREAD_MULTIPLE,
        Some(name) => LEVELS.iter().find(|(known, _)| known.as_bytes() == name).map(|(_, level)| *level).ok_or_else(|| {
            let name = String::from_utf8_lossy(name);
            Error::new(MPI_ERR_INFO_VALUE, format!("the info value thread_level = {name:?} is no thread level such as MPI_THREAD_SINGLE"))
        })?,
    };
    let memory_kinds = hints.value(MEMORY_KINDS.as_bytes())?.map_or_else(memory_kinds_of_world, memory_kinds);
    world::open_session()?;
    errors::retain_handler(errhandler)?;
    let session = Session { errhandler: AtomicUsize::new(errhandler.0), thread_level, memory_kinds, buffer: Ordered::new(Level::SessionBuffer, None) };
    SESSIONS.insert(session).map(handle::Session).ok_or_else(|| Error::new(MPI_ERR_OTHER, "too many sessions exist"))
}

/// The session behind a handle.
///
/// # Errors
/// `MPI_ERR_SESSION`.
pub fn find(handle: handle::Session) -> Result<Arc<Session>> {
    SESSIONS.share(handle.0).ok_or_else(|| match handle {
        MPI_SESSION_NULL => Error::new(MPI_ERR_SESSION, "the session is MPI_SESSION_NULL"),
        _ => Error::new(MPI_ERR_SESSION, format!("{:#x} is no session", handle.0)),
    })
}

/// The session that a group or communicator comes from, if it is one that still exists.
pub fn of(group: &Group) -> Option<Arc<Session>> {
    if group.session() == 0 { None } else { SESSIONS.share(group.session()) }
}

/// `MPI_Session_finalize`: what its communicators have sent leaves first.
pub fn finalize(handle: handle::Session) -> Result<()> {
    let session = find(handle)?;
    crate::buffered::flush_session(&session, "MPI_Session_finalize")?;
    SESSIONS.remove(handle.0);
    errors::release_handler(session.errhandler())?;
    world::close_session()
}

/// The kinds of memory of a communicator or file with this group: its session's, or the World model's.
pub fn memory_kinds_of(group: &Group) -> String {
    of(group).map_or_else(memory_kinds_of_world, |session| session.memory_kinds().to_owned())
}

/// The members of a process set.
pub fn members_of(name: &[u8]) -> Option<Arc<Group>> {
    let world = world::get().ok()?;
    match PSETS.iter().position(|pset| pset.as_bytes().eq_ignore_ascii_case(name))? {
        0 => Some(Group::identity(world.size, world.me)),
        _ => Some(Group::new(vec![world.me], world.me)),
    }
}

fn unknown_pset(name: &[u8]) -> Box<Error> {
    Error::new(MPI_ERR_ARG, format!("there is no process set {:?}", String::from_utf8_lossy(name)))
}

/// `MPI_Group_from_session_pset`.
pub fn group(handle: handle::Session, name: &[u8]) -> Result<Arc<Group>> {
    find(handle)?;
    members_of(name).map(|group| group.of_session(handle.0)).ok_or_else(|| unknown_pset(name))
}

/// `MPI_Session_get_nth_pset`.
pub fn nth_pset(handle: handle::Session, n: i32) -> Result<&'static str> {
    find(handle)?;
    let name = usize::try_from(n).ok().and_then(|n| PSETS.get(n));
    name.copied().ok_or_else(|| Error::new(MPI_ERR_ARG, format!("n = {n}, and there are {} process sets", PSETS.len())))
}

/// `MPI_Session_get_pset_info`: the key `mpi_size`.
pub fn pset_info(handle: handle::Session, name: &[u8]) -> Result<Pairs> {
    find(handle)?;
    let members = members_of(name).ok_or_else(|| unknown_pset(name))?;
    let mut pairs = Pairs::new();
    pairs.set(b"mpi_size", members.size().to_string().as_bytes())?;
    Ok(pairs)
}

/// Raises `error` of `function` on a session and gives the code to return (MPI-5.0 §9.3).
#[cold]
pub fn raise(handle: handle::Session, function: &str, error: &Error) -> i32 {
    let Ok(session) = find(handle) else { return world::raise(None, function, error) };
    errors::remember(error.class, &format!("{function}: {}", error.detail));
    match errors::handler(session.errhandler()) {
        Ok(Handler::Return) => {}
        Ok(Handler::Session(user)) => {
            let (mut handle, mut code) = (handle, error.class);
            before_callback();
            // SAFETY: the program's handler, called as the standard says.
            unsafe { user(&mut handle, &mut code) };
        }
        _ => world::abort(error.class, &format!("rank {}: {function} failed on a session: {}: {}", world::me(), errors::message(error.class), error.detail)),
    }
    error.class
}
