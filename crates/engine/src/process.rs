//! This process among the others of its job: where launcher, fabric and engine come together.

use crate::{Config, Engine, Rendezvous, Speculation};
use fabric::shm::{self, Shm};
use launch::{Board, Launcher, Start};
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard};

/// Why a process cannot join its job.
#[derive(Debug)]
pub enum Failed {
    Launch(launch::Error),
    Fabric(fabric::Error),
    Parameter(params::Error),
}

impl fmt::Display for Failed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Failed::Launch(error) => error.fmt(f),
            Failed::Fabric(error) => error.fmt(f),
            Failed::Parameter(error) => error.fmt(f),
        }
    }
}

impl From<launch::Error> for Failed {
    fn from(error: launch::Error) -> Self {
        Failed::Launch(error)
    }
}
impl From<fabric::Error> for Failed {
    fn from(error: fabric::Error) -> Self {
        Failed::Fabric(error)
    }
}
impl From<params::Error> for Failed {
    fn from(error: params::Error) -> Self {
        Failed::Parameter(error)
    }
}

/// This process' place in its job.
pub struct Process {
    pub me: u32,
    pub size: u32,
    pub appnum: i32,
    pub universe_size: u32,
    launcher: Option<Arc<Mutex<Launcher>>>,
    local_ranks: Vec<u32>,
    board: Option<&'static Board>,
}

impl Process {
    /// Finds out how this process was started, makes its segment known, and gives the engine that reaches the others.
    pub fn join() -> Result<(Process, Engine), Failed> {
        params::check()?;
        let (launcher, board) = match launch::start()? {
            Start::Singleton => (None, None),
            Start::Job(launcher) => {
                // The board is looked at for as long as the process lives, also by threads that outlive finalization.
                let launcher = Box::leak(Box::new(Arc::new(Mutex::new(launcher))));
                let board = lock(launcher).board().map(|board| board as *const Board);
                // SAFETY: the launcher lives in an Arc of which one count is leaked; the board does not move in it.
                (Some(launcher.clone()), board.map(|board| unsafe { &*board }))
            }
        };
        let (me, size, appnum, universe_size) = match &launcher {
            None => (0, 1, 0, 1),
            Some(launcher) => {
                let l = lock(launcher);
                (l.rank(), l.size(), l.appnum(), l.universe_size())
            }
        };
        let resolver: shm::Resolver = match launcher.clone() {
            Some(launcher) => Box::new(move |peer| lock(&launcher).fetch(peer).map_err(|e| e.to_string())),
            None => Box::new(|peer| Err(format!("process {peer} does not exist: this process was started alone"))),
        };
        let shm = Shm::new(
            shm::Config { index: me, processes: size, memory_bytes: params::RING_MEMORY.value()? as u64, single_copy: params::SINGLE_COPY.value()? },
            resolver,
        )?;
        let (cores, yielding, local_ranks) = match &launcher {
            None => (1, true, vec![0]),
            Some(launcher) => {
                let mut l = lock(launcher);
                l.publish(shm.segment())?;
                l.meet()?;
                if let Some(far) = l.far_rank() {
                    let (here, there) = (l.host(me)?, l.host(far)?);
                    return Err(Failed::Launch(launch::Error::new(format!(
                        "rank {me} runs on {here} and rank {far} on {there}: no fabric reaches from one to the other, since this \
                         library connects ranks through shared memory only"
                    ))));
                }
                (l.cores(), l.yielding_reaches() || l.cores() >= size, l.local_ranks().to_vec())
            }
        };
        let unexpected_bytes_max = params::UNEXPECTED_MAX.value()? as u64;
        let config = Config {
            me,
            processes: size,
            cores,
            eager_bytes_max: params::EAGER_MAX.value()?,
            unexpected_bytes_max,
            headers_bytes_max: 8 * unexpected_bytes_max,
            spin_ns: params::SPIN.value()? as u64 * 1000,
            yield_ns: if yielding { params::YIELD.value()? as u64 * 1000 } else { 0 },
            joint_bytes_min: params::JOINT_MIN.value()? as u64,
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
            ..Config::default()
        };
        Ok((Process { me, size, appnum, universe_size, launcher, local_ranks, board }, Engine::new(config, Some(shm))))
    }

    /// Where this process says what it is doing.
    #[inline]
    pub fn board(&self) -> Option<&'static Board> {
        self.board
    }

    /// Processes that share this host's memory, ascending; this one is among them.
    pub fn local_ranks(&self) -> &[u32] {
        &self.local_ranks
    }

    /// From now on, ending is normal.
    pub fn finalized(&self) -> Result<(), Failed> {
        match &self.launcher {
            Some(launcher) => Ok(lock(launcher).finalized()?),
            None => Ok(()),
        }
    }

    /// Ends the whole job with exit status `code`. Never returns.
    pub fn abort(&self, code: i32, message: &str) -> ! {
        match &self.launcher {
            Some(launcher) => lock(launcher).abort(code, message),
            None => end(code, message),
        }
    }
}

/// Ends this process, which has no job. Never returns.
pub fn end(code: i32, message: &str) -> ! {
    eprintln!("whimbrel: {message}");
    std::process::exit(if code & 0xff == 0 { 1 } else { code & 0xff })
}

fn lock(launcher: &Arc<Mutex<Launcher>>) -> MutexGuard<'_, Launcher> {
    launcher.lock().unwrap_or_else(|e| e.into_inner())
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
