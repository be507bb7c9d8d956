//! How does a process start others (MPI-5.0 §11.8)? It starts an `mpiexec` of this library, which starts them as a job of its own and stays in its process
//! group: signals to the spawning rank reach it. Both hold one end of a socket: the description of the job goes there, and the word whether it runs comes
//! back. While the two jobs are connected the socket is their lifeline: where its other end closes without [`RELEASE`], the spawning process has died, and
//! the spawned job ends.

use crate::Error;
use std::ffi::OsString;
use std::io::{Read, Write};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

/// The option by which `mpiexec` learns that it starts processes for another one, and over which descriptor.
pub const OPTION: &str = "--spawned";
/// What the spawning process says when the spawned job is to live on without it.
pub const RELEASE: u8 = b'r';
/// Longest description, bytes; most programs, and most arguments of one.
const BYTES_MAX: usize = 1 << 20;
const PROGRAMS_MAX: usize = 1024;
const WORDS_MAX: usize = 1 << 16;

/// One program of a job that is to be spawned.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Program {
    pub program: OsString,
    pub arguments: Vec<OsString>,
    /// Processes: at least 1.
    pub count: u32,
    /// Working directory, and where to look for the program first: the info keys `wdir` and `path`.
    pub wdir: Option<OsString>,
    pub path: Option<OsString>,
    /// The info key `mpi_initial_errhandler`.
    pub errhandler: Option<OsString>,
}

/// A job that is to be spawned.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Spawned {
    pub programs: Vec<Program>,
    /// The port at which the spawning processes wait.
    pub parent: OsString,
    pub universe_size: u32,
}

fn put(out: &mut Vec<u8>, bytes: &[u8]) {
    out.extend((bytes.len() as u32).to_le_bytes());
    out.extend(bytes);
}

struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn number(&mut self) -> Option<u32> {
        let (head, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(u32::from_le_bytes(*head))
    }

    fn word(&mut self) -> Option<OsString> {
        let length = self.number()? as usize;
        let (word, rest) = self.0.split_at_checked(length)?;
        self.0 = rest;
        // The system takes no such word.
        (!word.contains(&0)).then(|| OsString::from_vec(word.to_vec()))
    }

    fn option(&mut self) -> Option<Option<OsString>> {
        match self.number()? {
            0 => Some(None),
            1 => self.word().map(Some),
            _ => None,
        }
    }
}

impl Spawned {
    /// Processes in all.
    pub fn size(&self) -> u64 {
        self.programs.iter().map(|program| u64::from(program.count)).sum()
    }

    pub fn to_bytes(&self) -> Vec<u8> {
        let mut out = Vec::new();
        put(&mut out, self.parent.as_bytes());
        out.extend(self.universe_size.to_le_bytes());
        out.extend((self.programs.len() as u32).to_le_bytes());
        for one in &self.programs {
            put(&mut out, one.program.as_bytes());
            out.extend(one.count.to_le_bytes());
            out.extend((one.arguments.len() as u32).to_le_bytes());
            one.arguments.iter().for_each(|word| put(&mut out, word.as_bytes()));
            for given in [&one.wdir, &one.path, &one.errhandler] {
                out.extend((given.is_some() as u32).to_le_bytes());
                if let Some(word) = given {
                    put(&mut out, word.as_bytes());
                }
            }
        }
        out
    }

    /// `None` where the bytes are none, or past a limit.
    pub fn parse(bytes: &[u8]) -> Option<Spawned> {
        let mut reader = Reader(bytes);
        let (parent, universe_size) = (reader.word()?, reader.number()?);
        let programs = reader.number().filter(|count| (1..=PROGRAMS_MAX as u32).contains(count))?;
        let program = |reader: &mut Reader| {
            let (program, count) = (reader.word()?, reader.number().filter(|count| *count > 0)?);
            let words = reader.number().filter(|count| *count <= WORDS_MAX as u32)?;
            let arguments = (0..words).map(|_| reader.word()).collect::<Option<_>>()?;
            Some(Program { program, arguments, count, wdir: reader.option()?, path: reader.option()?, errhandler: reader.option()? })
        };
        let programs = (0..programs).map(|_| program(&mut reader)).collect::<Option<_>>()?;
        reader.0.is_empty().then_some(Spawned { programs, parent, universe_size })
    }
}

/// A spawned job, as its spawning process holds it.
#[derive(Debug)]
pub struct Spawn {
    socket: UnixStream,
    pub launcher: Child,
}

/// Starts `job` through the `mpiexec` at `mpiexec`, and waits until it runs.
///
/// # Errors
/// `mpiexec` or a program cannot be started: in words, and whether `mpiexec` is there.
pub fn start(mpiexec: &Path, job: &Spawned) -> Result<Spawn, Error> {
    let description = job.to_bytes();
    if description.len() > BYTES_MAX {
        return Err(Error::new(format!("programs and arguments take {} bytes, and {BYTES_MAX} are the most", description.len())));
    }
    let failed = |error: std::io::Error| Error::new(format!("cannot start {}, which starts the processes: {error}", mpiexec.display()));
    let (mut socket, other) = UnixStream::pair().map_err(failed)?;
    let other: OwnedFd = other.into();
    let number = other.as_raw_fd();
    let mut command = Command::new(mpiexec);
    command.arg(OPTION).arg(number.to_string()).stdin(Stdio::null());
    // It is no rank, and no process of this job.
    for name in crate::environment::OWN {
        command.env_remove(name);
    }
    // SAFETY: between fork and exec, nothing is done but to clear this thread's mask and to hand on a descriptor that this process keeps open; both calls may
    // be made there.
    unsafe {
        command.pre_exec(move || {
            // Threads of the library block all signals, which `exec` would hand on.
            let mut none: libc::sigset_t = std::mem::zeroed();
            libc::sigemptyset(&mut none);
            libc::pthread_sigmask(libc::SIG_SETMASK, &none, std::ptr::null_mut());
            match libc::fcntl(number, libc::F_SETFD, 0) {
                0 => Ok(()),
                _ => Err(std::io::Error::last_os_error()),
            }
        });
    }
    let mut launcher = command.spawn().map_err(failed)?;
    drop(other);
    let mut told = Vec::new();
    let said = socket
        .write_all(&(description.len() as u32).to_le_bytes())
        .and_then(|()| socket.write_all(&description))
        .and_then(|()| read_text(&mut socket, &mut told));
    match said {
        Ok(()) if told.is_empty() => Ok(Spawn { socket, launcher }),
        said => {
            let why = if said.is_ok() { String::from_utf8_lossy(&told).into_owned() } else { "it ended before it had started them".to_owned() };
            drop(socket);
            let _ = launcher.wait();
            Err(Error::new(why))
        }
    }
}

fn read_text(socket: &mut UnixStream, told: &mut Vec<u8>) -> std::io::Result<()> {
    let mut length = [0; 4];
    socket.read_exact(&mut length)?;
    told.resize((u32::from_le_bytes(length) as usize).min(crate::wire::TEXT_BYTES_MAX), 0);
    socket.read_exact(told)
}

impl Spawn {
    /// The spawned job lives on, whatever becomes of this process.
    pub fn release(&mut self) {
        // A launcher that has ended needs no word.
        let _ = self.socket.write_all(&[RELEASE]);
    }
}

/// The spawned launcher's end of the socket.
#[derive(Debug)]
pub struct Lifeline(UnixStream);

impl Lifeline {
    /// What is to be started, over the descriptor that [`OPTION`] names.
    ///
    /// # Errors
    /// The descriptor is no socket, or what comes is no description.
    pub fn receive(descriptor: i32) -> Result<(Lifeline, Spawned), Error> {
        let socket = crate::sys::inherited_socket(descriptor).ok_or_else(|| Error::new(format!("{OPTION} {descriptor}: no such socket")))?;
        let mut socket = UnixStream::from(socket);
        let mut length = [0; 4];
        let failed = |error: std::io::Error| Error::new(format!("{OPTION} {descriptor}: {error}"));
        socket.read_exact(&mut length).map_err(failed)?;
        let mut bytes = vec![0; (u32::from_le_bytes(length) as usize).min(BYTES_MAX)];
        socket.read_exact(&mut bytes).map_err(failed)?;
        let job = Spawned::parse(&bytes).ok_or_else(|| Error::new(format!("{OPTION} {descriptor}: what came is no description of a job")))?;
        Ok((Lifeline(socket), job))
    }

    /// All programs have been started, or what went wrong.
    pub fn tell(&mut self, wrong: Option<&str>) {
        let text = wrong.unwrap_or_default();
        let text = &text.as_bytes()[..text.len().min(crate::wire::TEXT_BYTES_MAX)];
        // Whoever is gone is noticed by the lifeline.
        let _ = self.0.write_all(&[&(text.len() as u32).to_le_bytes()[..], text].concat());
        let _ = self.0.set_nonblocking(true);
    }

    /// What has come: `Some(true)`: the spawned job lives on by itself; `Some(false)`: the spawning process has died; `None`: nothing.
    pub fn read(&mut self) -> Option<bool> {
        let mut byte = [0];
        match self.0.read(&mut byte) {
            Ok(1) if byte[0] == RELEASE => Some(true),
            Err(error) if [std::io::ErrorKind::WouldBlock, std::io::ErrorKind::Interrupted].contains(&error.kind()) => None,
            _ => Some(false),
        }
    }

    pub fn socket(&self) -> &UnixStream {
        &self.0
    }
}

/// The `mpiexec` that belongs to the library at `library`: in the `bin` beside its folder.
pub fn mpiexec_of(library: &Path) -> Option<PathBuf> {
    let library = library.canonicalize().ok()?;
    library.ancestors().skip(1).take(4).map(|folder| folder.join("bin/mpiexec")).find(|file| file.is_file())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn word() -> impl Strategy<Value = OsString> {
        prop::collection::vec(1u8..=255, 0..20).prop_map(OsString::from_vec)
    }

    fn program() -> impl Strategy<Value = Program> {
        let given = || prop::option::of(word());
        (word(), prop::collection::vec(word(), 0..5), 1..9u32, given(), given(), given())
            .prop_map(|(program, arguments, count, wdir, path, errhandler)| Program { program, arguments, count, wdir, path, errhandler })
    }

    proptest! {
        #[test]
        fn a_job_survives(programs in prop::collection::vec(program(), 1..5), parent in word(), universe_size: u32) {
            let job = Spawned { programs, parent, universe_size };
            let bytes = job.to_bytes();
            prop_assert_eq!(Spawned::parse(&bytes), Some(job));
            for cut in 0..bytes.len() {
                prop_assert_eq!(Spawned::parse(&bytes[..cut]), None);
            }
        }

        #[test]
        fn no_bytes_panic(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let _ = Spawned::parse(&bytes);
        }
    }

    #[test]
    fn no_program_and_no_process_are_no_job() {
        assert_eq!(Spawned::parse(&Spawned::default().to_bytes()), None);
        let nobody = Spawned { programs: vec![Program::default()], ..Spawned::default() };
        assert_eq!(Spawned::parse(&nobody.to_bytes()), None);
    }
}
